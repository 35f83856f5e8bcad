//! Tar archives that are built byte by byte, so that a test can make each field wrong.

/// An entry of a tar archive: a header block that may be changed, and its content.
#[derive(Debug, Clone)]
#[must_use]
pub struct TarEntry {
    /// The header block.
    pub header: [u8; 512],
    /// The content without padding.
    pub content: Vec<u8>,
}

/// Makes a ustar entry of this type, with a correct checksum.
pub fn entry(name: &str, kind: u8, content: &[u8]) -> TarEntry {
    raw_entry(name.as_bytes(), kind, content)
}

/// Makes a ustar entry with a name of at most 100 bytes of any value.
pub fn raw_entry(name: &[u8], kind: u8, content: &[u8]) -> TarEntry {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name);
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let mut entry = TarEntry { header, content: content.to_vec() };
    entry.set_checksum();
    entry
}

/// Makes a regular file.
pub fn file(name: &str, content: &str) -> TarEntry {
    entry(name, b'0', content.as_bytes())
}

/// Makes a link of type `1` (hard) or `2` (symbolic).
pub fn link(name: &str, kind: u8, target: &str) -> TarEntry {
    entry(name, kind, b"").with(157, target.as_bytes())
}

impl TarEntry {
    /// Computes the checksum again after a change.
    pub fn set_checksum(&mut self) {
        self.header[148..156].fill(b' ');
        let sum: u32 = self.header.iter().map(|&b| u32::from(b)).sum();
        self.header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    /// Writes `bytes` into the header at `offset` and sets the checksum.
    pub fn with(mut self, offset: usize, bytes: &[u8]) -> TarEntry {
        self.header[offset..offset + bytes.len()].copy_from_slice(bytes);
        self.set_checksum();
        self
    }

    /// Declares another size.
    pub fn sized(self, size: u64) -> TarEntry {
        self.with(124, format!("{size:011o}\0").as_bytes())
    }

    /// Returns header, content and padding.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header.to_vec();
        out.extend_from_slice(&self.content);
        out.resize(out.len().next_multiple_of(512), 0);
        out
    }
}

/// Makes a PAX header with these bytes for the next entry.
pub fn pax_bytes(records: &[u8]) -> TarEntry {
    entry("PaxHeaders/x", b'x', records)
}

/// Makes a PAX header with these records for the next entry.
pub fn pax(records: &[(&str, &[u8])]) -> TarEntry {
    pax_bytes(&records.iter().flat_map(|(key, value)| pax_record(key, value)).collect::<Vec<u8>>())
}

/// Makes a PAX record, `LENGTH KEY=VALUE\n`. The length includes its own digits.
pub fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let length =
        (rest..rest + 20).find(|n| *n == rest + n.to_string().len()).expect("one number includes its own digits");
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// Makes a GNU long name entry for the next entry.
pub fn long_name(name: &[u8]) -> TarEntry {
    entry("././@LongLink", b'L', &[name, b"\0"].concat())
}

/// Makes a file with any name: with a PAX header if the name is over 100 bytes or has a NUL.
pub fn any_file(name: &[u8], content: &[u8]) -> Vec<TarEntry> {
    if name.len() > 100 || name.contains(&0) {
        vec![pax(&[("path", name)]), entry("short", b'0', content)]
    } else {
        vec![raw_entry(name, b'0', content)]
    }
}

/// Returns the entries without the end of the archive.
pub fn blocks(entries: &[TarEntry]) -> Vec<u8> {
    entries.iter().flat_map(TarEntry::bytes).collect()
}

/// Returns an archive: the entries and two blocks of zeros.
pub fn tar(entries: &[TarEntry]) -> Vec<u8> {
    let mut out = blocks(entries);
    out.extend_from_slice(&[0; 1024]);
    out
}

/// Compresses into one gzip member.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Makes a gzip member from DEFLATE bytes.
pub fn gzip_frame(coded: &[u8], crc: u32, len: u32) -> Vec<u8> {
    [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff], coded, &crc.to_le_bytes(), &len.to_le_bytes()].concat()
}

/// Compresses into one zstd frame without a checksum, like the `zstd` program when it writes to a pipe.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).expect("memory")
}

/// Compresses into one zstd frame with a checksum of the content.
pub fn zstd_with_checksum(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory");
    encoder.include_checksum(true).expect("a known parameter");
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// Makes a zstd frame of one raw block, with this window descriptor.
pub fn zstd_raw(window: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128 * 1024, "a block has at most 128 KiB");
    let block = (bytes.len() as u32) << 3 | 1;
    [&[0x28, 0xb5, 0x2f, 0xfd, 0, window], &block.to_le_bytes()[..3], bytes].concat()
}

/// Makes a skippable zstd frame, which readers ignore.
pub fn zstd_skippable(bytes: &[u8]) -> Vec<u8> {
    [&[0x50, 0x2a, 0x4d, 0x18], &(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}
