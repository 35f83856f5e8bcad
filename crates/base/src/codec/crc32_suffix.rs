//! The CRC-32 (RFC 1952, 8) of a content that is followed by fixed bytes, computed from the CRC-32 of the content
//! alone.

use crc32fast::Hasher;

/// The number of groups of 4 bits in a CRC-32.
const NIBBLES: usize = 8;

/// Fixed bytes that follow a content.
///
/// As a function of the content's CRC-32, the result is linear over GF(2), apart from a constant. It is therefore the
/// exclusive or of one number for each 4 bits, which tables contain. That takes a few dozen instructions; hashing a tag
/// of 50 bytes takes about 300.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crc32Suffix {
    /// The result if the CRC-32 of the content is 0.
    of_zero: u32,
    /// The changes of the result, for each group of 4 bits and each value of it.
    changes: [[u32; 16]; NIBBLES],
}

impl Crc32Suffix {
    /// Computes the tables for these bytes.
    pub fn new(suffix: &[u8]) -> Crc32Suffix {
        let compute = |crc: u32| {
            let mut hasher = Hasher::new_with_initial(crc);
            hasher.update(suffix);
            hasher.finalize()
        };
        let of_zero = compute(0);
        let changes =
            std::array::from_fn(|group| std::array::from_fn(|value| of_zero ^ compute((value as u32) << (4 * group))));
        Crc32Suffix { of_zero, changes }
    }

    /// Returns the CRC-32 of a content followed by the fixed bytes; `crc` is that of the content alone.
    pub fn append_to(&self, crc: u32) -> u32 {
        self.changes
            .iter()
            .enumerate()
            .fold(self.of_zero, |result, (group, changes)| result ^ changes[(crc >> (4 * group) & 15) as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crc32_of_content_and_suffix_equals_that_of_all_their_bytes() {
        for suffix in [&b""[..], b"x", b"<script src=\"/x.js\" defer></script>", &[7; 1000]] {
            let tables = Crc32Suffix::new(suffix);
            for len in (0..300).chain([65_536, 1_000_003]) {
                let content: Vec<u8> = (0..len).map(|n: usize| (n.wrapping_mul(n) >> 3) as u8).collect();
                let expected = crc32fast::hash(&[&content[..], suffix].concat());
                let result = tables.append_to(crc32fast::hash(&content));
                assert_eq!(result, expected, "{len} bytes and {} more", suffix.len());
            }
        }
    }
}
