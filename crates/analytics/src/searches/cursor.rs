//! Cursors of paginated queries. Pure functions.
//!
//! A cursor names the snapshot, the range and the filter of the query, and the number of terms on the previous result
//! pages. It is signed together with the project, so a client can neither change it nor use it for another project. Its
//! format is opaque to clients: seven numbers of 16 hexadecimal digits, then the 64 digits of an HMAC-SHA-256.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use docwharf_base::model::digest::{Digest, encode_hex};

/// The range of a query, in milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SearchRange {
    /// The start, inclusive; `i64::MIN` if there is none.
    pub(super) from: i64,
    /// The end, exclusive; `i64::MAX` if there is none.
    pub(super) to: i64,
}

/// The position of a paginated query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SearchCursor {
    pub(super) range: SearchRange,
    /// Whether only searches without results count.
    pub(super) no_results: bool,
    /// The time, in milliseconds since 1970, before which searches do not count, because they may expire while the
    /// query is under way.
    pub(super) oldest: i64,
    /// The newest batch that counts.
    pub(super) last_batch: i64,
    /// The number of searches in the range. If it differs later, searches have been removed from the snapshot.
    pub(super) total: u64,
    /// The number of terms on the previous result pages.
    pub(super) offset: u64,
}

const NUMBERS_HEX_DIGITS: usize = 7 * 16;

fn sign(secret: &[u8; 32], project: &str, numbers: &str) -> Hmac<Sha256> {
    // HMAC pads a shorter key with zeros to one block (RFC 2104, section 2).
    let mut block = [0; 64];
    block[..32].copy_from_slice(secret);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in ["searches cursor 3\n", project, "\n", numbers] {
        mac.update(part.as_bytes());
    }
    mac
}

impl SearchCursor {
    /// Encodes and signs the cursor for a client.
    pub(super) fn encode(&self, project: &str, secret: &[u8; 32]) -> String {
        let SearchRange { from, to } = self.range;
        let [from, to, oldest, last] = [from, to, self.oldest, self.last_batch].map(i64::cast_unsigned);
        let numbers = [from, to, oldest, last, self.total, self.offset, u64::from(self.no_results)];
        let mut text: String = numbers.iter().map(|number| encode_hex(&number.to_be_bytes())).collect();
        let signature = sign(secret, project, &text).finalize().into_bytes();
        text.push_str(&encode_hex(&signature));
        text
    }

    /// Verifies and decodes a cursor; `None` if it was not created for `project` with this secret.
    pub(super) fn decode(text: &str, project: &str, secret: &[u8; 32]) -> Option<SearchCursor> {
        let (numbers, signature) = text.split_at_checked(NUMBERS_HEX_DIGITS)?;
        let signature = Digest::parse(signature)?;
        sign(secret, project, numbers).verify_slice(&signature.0).ok()?;
        let number = |index: usize| u64::from_str_radix(numbers.get(index * 16..index * 16 + 16)?, 16).ok();
        Some(SearchCursor {
            range: SearchRange { from: number(0)?.cast_signed(), to: number(1)?.cast_signed() },
            oldest: number(2)?.cast_signed(),
            last_batch: number(3)?.cast_signed(),
            total: number(4)?,
            offset: number(5)?,
            no_results: number(6)? != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn cursor() -> SearchCursor {
        SearchCursor {
            range: SearchRange { from: i64::MIN, to: -5 },
            no_results: true,
            oldest: -9,
            last_batch: 9,
            total: 1 << 40,
            offset: 50,
        }
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let text = cursor().encode("p", &SECRET);
        assert_eq!(SearchCursor::decode(&text, "p", &SECRET), Some(cursor()));
        assert!(text.len() < 200 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }

    #[test]
    fn altered_cursor_or_cursor_of_another_project_or_secret_is_refused() {
        let text = cursor().encode("p", &SECRET);
        assert_eq!(SearchCursor::decode(&text, "q", &SECRET), None);
        assert_eq!(SearchCursor::decode(&text, "p", &[8; 32]), None);
        for index in 0..text.len() {
            let mut altered = text.clone().into_bytes();
            altered[index] = if altered[index] == b'0' { b'1' } else { b'0' };
            assert_eq!(SearchCursor::decode(std::str::from_utf8(&altered).unwrap(), "p", &SECRET), None, "{index}");
            assert_eq!(SearchCursor::decode(&text[..index], "p", &SECRET), None, "{index}");
        }
        for invalid in ["", "ä", &"ä".repeat(80), &format!("{text}0"), &format!("0{text}")] {
            assert_eq!(SearchCursor::decode(invalid, "p", &SECRET), None, "{invalid}");
        }
    }
}
