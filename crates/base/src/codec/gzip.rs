//! The gzip frame (RFC 1952): parses the header of a member, and encodes the header and trailer around DEFLATE bytes.

use crate::little_endian::read_u16_le;

use super::deflate::Deflater;

/// The reason why bytes are not the header of a gzip member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GzipHeaderFault {
    /// The header is longer than the bytes.
    #[error("the gzip header is cut short")]
    Short,
    /// The bytes are not a gzip member, or one with reserved flags, another compression method or a wrong header CRC.
    #[error("the gzip header is damaged")]
    Damaged,
}

/// The header of each gzip member that docwharf sends: no name, no modification time, operating system unknown.
pub const GZIP_HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 0xff];

/// The length of the trailer in bytes.
pub const GZIP_TRAILER_BYTES: usize = 8;

/// Encodes the trailer of a member: the CRC-32 of the content, and its length modulo 2^32.
pub fn encode_trailer(crc: u32, len: u64) -> [u8; GZIP_TRAILER_BYTES] {
    let mut bytes = [0; GZIP_TRAILER_BYTES];
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
    bytes[4..].copy_from_slice(&(len as u32).to_le_bytes());
    bytes
}

/// Encodes `content` as a member, with a compression level of zlib, 1 to 9.
pub fn encode_member(content: &[u8], level: u32) -> Vec<u8> {
    let mut out = GZIP_HEADER.to_vec();
    Deflater::new(level).encode_all(content, &mut out);
    out.extend_from_slice(&encode_trailer(crc32fast::hash(content), content.len() as u64));
    out
}

/// Checks the header at the start of `bytes` and returns its length. The error is [`GzipHeaderFault::Short`] if the
/// header is longer than `bytes`.
pub fn parse_header_len(bytes: &[u8]) -> Result<usize, GzipHeaderFault> {
    const FHCRC: u8 = 2;
    const FEXTRA: u8 = 4;
    const FNAME: u8 = 8;
    const FCOMMENT: u8 = 16;
    const RESERVED: u8 = 0xe0;
    let magic = [0x1f, 0x8b, 8];
    if bytes.iter().zip(magic).any(|(&a, b)| a != b) {
        return Err(GzipHeaderFault::Damaged);
    }
    if bytes.len() < 10 {
        return Err(GzipHeaderFault::Short);
    }
    let flags = bytes[3];
    if flags & RESERVED != 0 {
        return Err(GzipHeaderFault::Damaged);
    }
    let mut end = 10;
    if flags & FEXTRA != 0 {
        let len = bytes.get(end..end + 2).ok_or(GzipHeaderFault::Short)?;
        end += 2 + usize::from(read_u16_le(len, 0));
    }
    for flag in [FNAME, FCOMMENT] {
        if flags & flag != 0 {
            let rest = bytes.get(end..).ok_or(GzipHeaderFault::Short)?;
            end += rest.iter().position(|&b| b == 0).ok_or(GzipHeaderFault::Short)? + 1;
        }
    }
    if flags & FHCRC != 0 {
        let crc = bytes.get(end..end + 2).ok_or(GzipHeaderFault::Short)?;
        if read_u16_le(crc, 0) != crc32fast::hash(&bytes[..end]) as u16 {
            return Err(GzipHeaderFault::Damaged);
        }
        end += 2;
    }
    if end > bytes.len() { Err(GzipHeaderFault::Short) } else { Ok(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn make_header(flags: u8, rest: &[u8]) -> Vec<u8> {
        [&[0x1f, 0x8b, 8, flags, 1, 2, 3, 4, 0, 3][..], rest].concat()
    }

    fn with_crc(mut bytes: Vec<u8>) -> Vec<u8> {
        let crc = crc32fast::hash(&bytes) as u16;
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes
    }

    #[test]
    fn gzip_header_is_incomplete_until_the_end_of_its_last_field() {
        let long_field = [&[0, 1][..], &[7; 256]].concat();
        for header in [
            GZIP_HEADER.to_vec(),
            make_header(1, b""),
            make_header(4, b"\0\0"),
            make_header(4, b"\x03\0abc"),
            make_header(4, &long_field),
            make_header(8, b"\0"),
            make_header(8, b"name\0"),
            make_header(16, b"a comment\0"),
            make_header(8 | 16, b"name\0a comment\0"),
            make_header(4 | 8, b"\x01\0xname\0"),
            with_crc(make_header(2, b"")),
            with_crc(make_header(2 | 4 | 8 | 16, b"\x01\0xname\0a comment\0")),
        ] {
            for cut in 0..header.len() {
                assert_eq!(parse_header_len(&header[..cut]), Err(GzipHeaderFault::Short), "{cut} of {header:x?}");
            }
            let followed = [&header[..], b"what follows\0"].concat();
            assert_eq!(
                (parse_header_len(&header), parse_header_len(&followed)),
                (Ok(header.len()), Ok(header.len())),
                "{header:x?}"
            );
        }
        // The extra field is longer than the bytes, and a name would follow it.
        assert_eq!(parse_header_len(&make_header(4 | 8, b"\x09\0")), Err(GzipHeaderFault::Short));
    }

    #[test]
    fn invalid_gzip_header_is_detected_at_its_first_wrong_byte() {
        for (index, byte) in [(0, 0x1e), (1, 0x8c), (2, 7), (3, 0x20), (3, 0x40), (3, 0x80)] {
            let mut invalid = make_header(0, b"");
            invalid[index] = byte;
            assert_eq!(parse_header_len(&invalid), Err(GzipHeaderFault::Damaged), "{invalid:x?}");
            // The flags are checked once the fixed part is complete.
            let expected = if index < 3 { GzipHeaderFault::Damaged } else { GzipHeaderFault::Short };
            assert_eq!(parse_header_len(&invalid[..=index]), Err(expected), "{invalid:x?}");
        }
        let valid = with_crc(make_header(2 | 8, b"name\0"));
        for index in [4, 10, 15, 16] {
            let mut invalid = valid.clone();
            invalid[index] ^= 1;
            assert_eq!(parse_header_len(&invalid), Err(GzipHeaderFault::Damaged), "byte {index}");
        }
    }

    #[test]
    fn gzip_trailer_is_crc32_and_length_in_little_endian() {
        assert_eq!(encode_trailer(0x0102_0304, 5), [4, 3, 2, 1, 5, 0, 0, 0]);
        assert_eq!(encode_trailer(0, (1 << 32) + 0x0a0b), [0, 0, 0, 0, 0x0b, 0x0a, 0, 0]);
    }
}
