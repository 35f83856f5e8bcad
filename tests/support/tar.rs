//! Tar archives built byte by byte, so that each of their fields can lie.

/// One entry: a header block that may be changed, and its content.
#[derive(Debug, Clone)]
pub struct Entry {
    pub header: [u8; 512],
    pub content: Vec<u8>,
}

/// A ustar entry of a type, with its checksum set.
pub fn entry(name: &str, kind: u8, content: &[u8]) -> Entry {
    let mut header = [0u8; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
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

impl Entry {
    /// Sets the checksum after a change.
    pub fn seal(&mut self) {
        self.header[148..156].fill(b' ');
        let sum: u32 = self.header.iter().map(|&b| u32::from(b)).sum();
        self.header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }

    /// Header, content and padding.
    pub fn bytes(&self) -> Vec<u8> {
        let mut out = self.header.to_vec();
        out.extend_from_slice(&self.content);
        out.resize(out.len().next_multiple_of(512), 0);
        out
    }
}

/// The entries and two blocks of zeros.
pub fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut out: Vec<u8> = entries.iter().flat_map(Entry::bytes).collect();
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

/// One zstd frame.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::stream::encode_all(bytes, 3).expect("memory")
}
