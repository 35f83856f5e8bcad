//! Little-endian numbers in a byte string, as ZIP archives, gzip headers and docwharf's own files have them.
//!
//! Each function reads the number that begins at byte `offset`. It panics if the bytes end before, so the caller checks
//! the length of the record first.

/// Reads 16 bits at `offset`.
#[inline]
pub fn read_u16_le(bytes: &[u8], offset: usize) -> u16 {
    let mut word = [0; 2];
    word.copy_from_slice(&bytes[offset..offset + 2]);
    u16::from_le_bytes(word)
}

/// Reads 32 bits at `offset`.
#[inline]
pub fn read_u32_le(bytes: &[u8], offset: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_le_bytes(word)
}

/// Reads 64 bits at `offset`.
#[inline]
pub fn read_u64_le(bytes: &[u8], offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_significant_byte_comes_first() {
        let bytes = [0xff, 1, 2, 3, 4, 5, 6, 7, 8, 0xff];
        assert_eq!(read_u16_le(&bytes, 1), 0x0201);
        assert_eq!(read_u32_le(&bytes, 1), 0x0403_0201);
        assert_eq!(read_u64_le(&bytes, 1), 0x0807_0605_0403_0201);
        assert_eq!((read_u16_le(&bytes, 8), read_u16_le(&bytes, 0)), (0xff08, 0x01ff));
    }
}
