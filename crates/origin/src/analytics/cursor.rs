//! Where a walk through pages goes on. Pure.
//!
//! A cursor says of what state the walk is, for which range, and how many terms it has had. All of that is signed: it
//! works for the project and the range that it was given for, and nobody makes one of his own. Its form is nobody's
//! business: six numbers of 16 hex digits, then 64 of the signature.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use docwharf_base::model::digest::{Digest, hex};

/// Which searches are asked for; milliseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    /// The first that counts; the least number if all do that lie before the end.
    pub(super) from: i64,
    /// The first that does not count any more; the greatest number if there is no end.
    pub(super) to: i64,
}

/// See above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) range: Range,
    /// Nothing before it counts, in milliseconds since 1970: it might be gone before the walk has ended.
    pub(super) oldest: i64,
    /// The last batch that counts.
    pub(super) last_batch: i64,
    /// Searches in the range. What differs from it is not that state any more.
    pub(super) total: u64,
    /// Terms on the pages before.
    pub(super) offset: u64,
}

const NUMBERS: usize = 6 * 16;

fn sign(secret: &[u8; 32], project: &str, numbers: &str) -> Hmac<Sha256> {
    // HMAC fills a key up with zeros to one block.
    let mut block = [0; 64];
    block[..32].copy_from_slice(secret);
    let mut mac = Hmac::<Sha256>::new(&block.into());
    for part in ["searches cursor 2\n", project, "\n", numbers] {
        mac.update(part.as_bytes());
    }
    mac
}

impl Cursor {
    /// As it is given out.
    pub(super) fn write(&self, project: &str, secret: &[u8; 32]) -> String {
        let Range { from, to } = self.range;
        let [from, to, oldest, last] = [from, to, self.oldest, self.last_batch].map(i64::cast_unsigned);
        let numbers = [from, to, oldest, last, self.total, self.offset];
        let mut text: String = numbers.iter().map(|number| hex(&number.to_be_bytes())).collect();
        let signature = sign(secret, project, &text).finalize().into_bytes();
        text.push_str(&hex(&signature));
        text
    }

    /// Reads one that was given out for `project`; none if it was not.
    pub(super) fn read(text: &str, project: &str, secret: &[u8; 32]) -> Option<Cursor> {
        let (numbers, signature) = text.split_at_checked(NUMBERS)?;
        let signature = Digest::parse(signature)?;
        sign(secret, project, numbers).verify_slice(&signature.0).ok()?;
        let number = |at: usize| u64::from_str_radix(numbers.get(at * 16..at * 16 + 16)?, 16).ok();
        Some(Cursor {
            range: Range { from: number(0)?.cast_signed(), to: number(1)?.cast_signed() },
            oldest: number(2)?.cast_signed(),
            last_batch: number(3)?.cast_signed(),
            total: number(4)?,
            offset: number(5)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: [u8; 32] = [7; 32];

    fn cursor() -> Cursor {
        Cursor { range: Range { from: i64::MIN, to: -5 }, oldest: -9, last_batch: 9, total: 1 << 40, offset: 50 }
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written() {
        let text = cursor().write("p", &SECRET);
        assert_eq!(Cursor::read(&text, "p", &SECRET), Some(cursor()));
        assert!(text.len() < 200 && text.bytes().all(|byte| byte.is_ascii_alphanumeric()));
    }

    #[test]
    fn an_altered_one_and_one_of_another_project_or_secret_is_none() {
        let text = cursor().write("p", &SECRET);
        assert_eq!(Cursor::read(&text, "q", &SECRET), None);
        assert_eq!(Cursor::read(&text, "p", &[8; 32]), None);
        for at in 0..text.len() {
            let mut other = text.clone().into_bytes();
            other[at] = if other[at] == b'0' { b'1' } else { b'0' };
            assert_eq!(Cursor::read(std::str::from_utf8(&other).unwrap(), "p", &SECRET), None, "{at}");
            assert_eq!(Cursor::read(&text[..at], "p", &SECRET), None, "{at}");
        }
        for other in ["", "ä", &"ä".repeat(80), &format!("{text}0"), &format!("0{text}")] {
            assert_eq!(Cursor::read(other, "p", &SECRET), None, "{other}");
        }
    }
}
