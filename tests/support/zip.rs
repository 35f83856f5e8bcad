//! ZIP archives built byte by byte, so that each of their fields can lie.

/// One member. What is `None` is computed.
#[derive(Debug, Clone, Default)]
pub struct Member {
    pub name: Vec<u8>,
    pub content: Vec<u8>,
    pub deflate: bool,
}

/// A stored member.
pub fn stored(name: &str, content: &str) -> Member {
    Member { name: name.into(), content: content.into(), deflate: false }
}

/// A compressed member.
pub fn deflated(name: &str, content: &str) -> Member {
    Member { name: name.into(), content: content.into(), deflate: true }
}

/// An honest archive of these members.
pub fn zip(members: &[Member]) -> Vec<u8> {
    let (mut out, mut central) = (Vec::new(), Vec::new());
    for member in members {
        let coded = if member.deflate { deflate(&member.content) } else { member.content.clone() };
        let mut common = Vec::new();
        common.extend_from_slice(&20u16.to_le_bytes());
        common.extend_from_slice(&0u16.to_le_bytes());
        common.extend_from_slice(&(if member.deflate { 8u16 } else { 0 }).to_le_bytes());
        common.extend_from_slice(&[0, 0, 0x21, 0]);
        common.extend_from_slice(&crc32fast::hash(&member.content).to_le_bytes());
        common.extend_from_slice(&(coded.len() as u32).to_le_bytes());
        common.extend_from_slice(&(member.content.len() as u32).to_le_bytes());
        common.extend_from_slice(&(member.name.len() as u16).to_le_bytes());
        common.extend_from_slice(&0u16.to_le_bytes());
        let at = out.len() as u32;
        out.extend_from_slice(b"PK\x03\x04");
        out.extend_from_slice(&common);
        out.extend_from_slice(&member.name);
        out.extend_from_slice(&coded);
        central.extend_from_slice(b"PK\x01\x02\x14\x03");
        central.extend_from_slice(&common);
        central.extend_from_slice(&[0; 6]);
        central.extend_from_slice(&(0o100_644u32 << 16).to_le_bytes());
        central.extend_from_slice(&at.to_le_bytes());
        central.extend_from_slice(&member.name);
    }
    let (start, count) = (out.len() as u32, members.len() as u16);
    out.extend_from_slice(&central);
    out.extend_from_slice(b"PK\x05\x06\0\0\0\0");
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&count.to_le_bytes());
    out.extend_from_slice(&(central.len() as u32).to_le_bytes());
    out.extend_from_slice(&start.to_le_bytes());
    out.extend_from_slice(&[0, 0]);
    out
}

/// Raw DEFLATE by zlib.
pub fn deflate(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}
