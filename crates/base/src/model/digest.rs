//! SHA-256 digests.

use std::fmt;

use sha2::Digest as _;

/// A SHA-256 digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn compute(bytes: &[u8]) -> Digest {
        Digest(sha2::Sha256::digest(bytes).into())
    }

    /// The 64 hexadecimal digits of the digest, in lower case.
    pub fn to_hex(&self) -> String {
        encode_hex(&self.0)
    }

    /// Parses 64 hexadecimal digits of either case.
    pub fn parse(text: &str) -> Option<Digest> {
        let text = text.as_bytes();
        if text.len() != 64 {
            return None;
        }
        let mut bytes = [0u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
            let high = char::from(pair[0]).to_digit(16)?;
            let low = char::from(pair[1]).to_digit(16)?;
            *byte = (high << 4 | low) as u8;
        }
        Some(Digest(bytes))
    }
}

/// Formats bytes as lower-case hexadecimal digits.
pub fn encode_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(bytes.len() * 2);
    for &byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_hex())
    }
}

/// Computes a SHA-256 digest incrementally.
#[derive(Debug, Clone, Default)]
pub struct Sha256Hasher(sha2::Sha256);

impl Sha256Hasher {
    /// Creates a hasher without input.
    pub fn new() -> Sha256Hasher {
        Sha256Hasher::default()
    }

    /// Adds bytes to the input.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all input so far and resets the hasher.
    pub fn finalize_reset(&mut self) -> Digest {
        Digest(self.0.finalize_reset().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY_DIGEST: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn digest_is_parsed_from_its_hex_form_in_either_case() {
        let empty = Digest::compute(b"");
        assert_eq!(
            (empty.to_hex(), empty.to_string(), format!("{empty:?}")),
            [EMPTY_DIGEST; 3].map(str::to_owned).into()
        );
        assert_eq!(Digest::parse(EMPTY_DIGEST), Some(empty));
        assert_eq!(Digest::parse(&EMPTY_DIGEST.to_ascii_uppercase()), Some(empty));
        let with_last_digit = |digit: &str| format!("{}{digit}", &EMPTY_DIGEST[digit.len()..]);
        for invalid in [
            "",
            &EMPTY_DIGEST[1..],
            &format!("{EMPTY_DIGEST}0"),
            &with_last_digit("g"),
            &with_last_digit("+"),
            &with_last_digit(" "),
            &with_last_digit("ä"),
        ] {
            assert_eq!(Digest::parse(invalid), None, "{invalid}");
        }
        assert_eq!(encode_hex(&[0x00, 0x0f, 0xa5, 0xff]), "000fa5ff");
    }

    #[test]
    fn hasher_digests_pieces_as_one_content_and_resets_after_finalize() {
        let mut hasher = Sha256Hasher::new();
        hasher.update(b"hel");
        hasher.update(b"lo");
        assert_eq!(hasher.finalize_reset(), Digest::compute(b"hello"));
        assert_eq!(hasher.finalize_reset(), Digest::compute(b""));
    }
}
