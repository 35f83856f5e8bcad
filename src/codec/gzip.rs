//! The gzip frame (RFC 1952): reading a member's header, and putting a header and trailer around DEFLATE bytes.

/// Why a member's header is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// More bytes are needed.
    #[error("the gzip header is cut short")]
    Short,
    /// Not a gzip member, or one with reserved flags or another method.
    #[error("the gzip header is damaged")]
    Damaged,
}

/// The header docwharf sends: no name, no time, unknown system.
pub const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// Bytes of the trailer.
pub const TRAILER: usize = 8;

/// The trailer behind a member's DEFLATE bytes: CRC-32 and length of the content, modulo 2^32.
pub fn trailer(crc: u32, len: u64) -> [u8; TRAILER] {
    let mut bytes = [0; TRAILER];
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes[4..].copy_from_slice(&(len as u32).to_le_bytes());
    bytes
}

/// The length of the header at the start of `bytes`. A header longer than what was shown gives [`HeaderFault::Short`].
pub fn header_len(bytes: &[u8]) -> Result<usize, HeaderFault> {
    const FHCRC: u8 = 2;
    const FEXTRA: u8 = 4;
    const FNAME: u8 = 8;
    const FCOMMENT: u8 = 16;
    const RESERVED: u8 = 0xe0;
    let magic = [0x1f, 0x8b, 8];
    if bytes.iter().zip(magic).any(|(&a, b)| a != b) {
        return Err(HeaderFault::Damaged);
    }
    if bytes.len() < 10 {
        return Err(HeaderFault::Short);
    }
    let flags = bytes[3];
    if flags & RESERVED != 0 {
        return Err(HeaderFault::Damaged);
    }
    let mut at = 10;
    if flags & FEXTRA != 0 {
        let len = bytes.get(at..at + 2).ok_or(HeaderFault::Short)?;
        at += 2 + usize::from(u16::from_le_bytes([len[0], len[1]]));
    }
    for flag in [FNAME, FCOMMENT] {
        if flags & flag != 0 {
            let rest = bytes.get(at..).ok_or(HeaderFault::Short)?;
            at += rest.iter().position(|&b| b == 0).ok_or(HeaderFault::Short)? + 1;
        }
    }
    if flags & FHCRC != 0 {
        let crc = bytes.get(at..at + 2).ok_or(HeaderFault::Short)?;
        if u16::from_le_bytes([crc[0], crc[1]]) != crc32fast::hash(&bytes[..at]) as u16 {
            return Err(HeaderFault::Damaged);
        }
        at += 2;
    }
    if at > bytes.len() { Err(HeaderFault::Short) } else { Ok(at) }
}
