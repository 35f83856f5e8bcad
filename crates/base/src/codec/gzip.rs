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

#[cfg(test)]
mod tests {
    use super::*;

    fn head(flags: u8, rest: &[u8]) -> Vec<u8> {
        [&[0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 0, 3][..], rest].concat()
    }

    fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32fast::hash(&bytes) as u16;
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn a_header_ends_behind_its_last_field_and_is_short_until_then() {
        let long = [&[0, 1][..], &[7; 256]].concat();
        for header in [
            HEADER.to_vec(),
            head(1, b""),
            head(4, b"\0\0"),
            head(4, b"\x03\0abc"),
            head(4, &long),
            head(8, b"\0"),
            head(8, b"name\0"),
            head(16, b"a comment\0"),
            head(8 | 16, b"name\0a comment\0"),
            head(4 | 8, b"\x01\0xname\0"),
            with_crc(head(2, b"")),
            with_crc(head(2 | 4 | 8 | 16, b"\x01\0xname\0a comment\0")),
        ] {
            for cut in 0..header.len() {
                assert_eq!(header_len(&header[..cut]), Err(HeaderFault::Short), "{cut} of {header:x?}");
            }
            let followed = [&header[..], b"what follows\0"].concat();
            assert_eq!(
                (header_len(&header), header_len(&followed)),
                (Ok(header.len()), Ok(header.len())),
                "{header:x?}"
            );
        }
        // More in it than there is, and a name behind that.
        assert_eq!(header_len(&head(4 | 8, b"\x09\0")), Err(HeaderFault::Short));
    }

    #[test]
    fn what_is_no_header_is_known_by_its_first_wrong_byte() {
        for (at, byte) in [(0, 0x1e), (1, 0x8c), (2, 7), (3, 0x20), (3, 0x40), (3, 0x80)] {
            let mut wrong = head(0, b"");
            wrong[at] = byte;
            assert_eq!(header_len(&wrong), Err(HeaderFault::Damaged), "{wrong:x?}");
            // The flags are looked at once the fixed part is there.
            let early = if at < 3 { HeaderFault::Damaged } else { HeaderFault::Short };
            assert_eq!(header_len(&wrong[..=at]), Err(early), "{wrong:x?}");
        }
        let good = with_crc(head(2 | 8, b"name\0"));
        for at in [4, 10, 15, 16] {
            let mut wrong = good.clone();
            wrong[at] ^= 1;
            assert_eq!(header_len(&wrong), Err(HeaderFault::Damaged), "byte {at}");
        }
    }

    #[test]
    fn a_trailer_is_checksum_and_length_from_their_lowest_bytes() {
        assert_eq!(trailer(0x0102_0304, 5), [4, 3, 2, 1, 5, 0, 0, 0]);
        assert_eq!(trailer(0, (1 << 32) + 0x0a0b), [0, 0, 0, 0, 0x0b, 0x0a, 0, 0]);
    }
}
