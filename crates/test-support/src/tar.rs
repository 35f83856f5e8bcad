//! Tar archives built byte by byte, so that each of their fields can lie.

/// One entry: a header block that may be changed, and its content.
#[derive(Debug, Clone)]
#[must_use]
pub struct Entry {
    /// The header block.
    pub header: [u8; 512],
    /// The content without padding.
    pub content: Vec<u8>,
}

/// A ustar entry of a type, with its checksum set.
pub fn entry(name: &str, kind: u8, content: &[u8]) -> Entry {
    raw_entry(name.as_bytes(), kind, content)
}

/// A ustar entry with a name of any bytes, at most 100.
pub fn raw_entry(name: &[u8], kind: u8, content: &[u8]) -> Entry {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name);
    header[100..108].copy_from_slice(b"0000644\0");
    header[108..116].copy_from_slice(b"0000000\0");
    header[116..124].copy_from_slice(b"0000000\0");
    header[124..136].copy_from_slice(format!("{:011o}\0", content.len()).as_bytes());
    header[136..148].copy_from_slice(b"00000000000\0");
    header[156] = kind;
    header[257..265].copy_from_slice(b"ustar\x0000");
    let mut entry = Entry { header, content: content.to_vec() };
    entry.seal();
    entry
}

/// A regular file.
pub fn file(name: &str, content: &str) -> Entry {
    entry(name, b'0', content.as_bytes())
}

/// A link of type `1` or `2`.
pub fn link(name: &str, kind: u8, target: &str) -> Entry {
    entry(name, kind, b"").with(157, target.as_bytes())
}

impl Entry {
    /// Sets the checksum after a change.
    pub fn seal(&mut self) {
        self.header[148..156].fill(b' ');
        let sum: u32 = self.header.iter().map(|&b| u32::from(b)).sum();
        self.header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    /// Writes `bytes` into the header and sets the checksum.
    pub fn with(mut self, at: usize, bytes: &[u8]) -> Entry {
        self.header[at..at + bytes.len()].copy_from_slice(bytes);
        self.seal();
        self
    }

    /// Declares another size.
    pub fn sized(self, size: u64) -> Entry {
        self.with(124, format!("{size:011o}\0").as_bytes())
    }

    /// Header, content and padding.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header.to_vec();
        out.extend_from_slice(&self.content);
        out.resize(out.len().next_multiple_of(512), 0);
        out
    }
}

/// A PAX header of these bytes for the next entry.
pub fn pax_bytes(records: &[u8]) -> Entry {
    entry("PaxHeaders/x", b'x', records)
}

/// A PAX header of these records for the next entry.
pub fn pax(records: &[(&str, &[u8])]) -> Entry {
    pax_bytes(&records.iter().flat_map(|(key, value)| pax_record(key, value)).collect::<Vec<u8>>())
}

/// `LENGTH KEY=VALUE\n`, where the length counts its own digits.
pub fn pax_record(key: &str, value: &[u8]) -> Vec<u8> {
    let rest = key.len() + value.len() + 3;
    let length = (rest..rest + 20).find(|n| *n == rest + n.to_string().len()).expect("there is one");
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

/// A GNU long name for the next entry.
pub fn long_name(name: &[u8]) -> Entry {
    entry("././@LongLink", b'L', &[name, b"\0"].concat())
}

/// A file with any name: with a PAX header where it is over 100 bytes or holds a NUL.
pub fn any_file(name: &[u8], content: &[u8]) -> Vec<Entry> {
    if name.len() > 100 || name.contains(&0) {
        vec![pax(&[("path", name)]), entry("short", b'0', content)]
    } else {
        vec![raw_entry(name, b'0', content)]
    }
}

/// The entries without an end.
pub fn blocks(entries: &[Entry]) -> Vec<u8> {
    entries.iter().flat_map(Entry::bytes).collect()
}

/// The entries and two blocks of zeros.
pub fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut out = blocks(entries);
    out.extend_from_slice(&[0; 1024]);
    out
}

/// One gzip member.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// A gzip member around DEFLATE bytes.
pub fn gzip_frame(coded: &[u8], crc: u32, len: u32) -> Vec<u8> {
    [&[0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff], coded, &crc.to_le_bytes(), &len.to_le_bytes()].concat()
}

/// One zstd frame, without a checksum, as the program of that name does not write it to a pipe either.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).expect("memory")
}

/// One zstd frame with a checksum of its content.
pub fn zstd_checked(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).expect("memory");
    encoder.include_checksum(true).expect("a known parameter");
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// A zstd frame of one raw block, with a window descriptor of our choice.
pub fn zstd_raw(window: u8, bytes: &[u8]) -> Vec<u8> {
    assert!(bytes.len() < 128 * 1024, "one block holds no more");
    let block = (bytes.len() as u32) << 3 | 1;
    [&[0x28, 0xb5, 0x2f, 0xfd, 0, window], &block.to_le_bytes()[..3], bytes].concat()
}

/// A zstd frame that readers skip.
pub fn zstd_skippable(bytes: &[u8]) -> Vec<u8> {
    [&[0x50, 0x2a, 0x4d, 0x18], &(bytes.len() as u32).to_le_bytes()[..], bytes].concat()
}
