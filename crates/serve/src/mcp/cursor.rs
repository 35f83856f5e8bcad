//! The cursors of lists: the number of the first file of the next part, with a checksum of what was listed. Pure.
//!
//! A client must not interpret a cursor. One that it has invented, or that belongs to another list or version, is
//! refused: the numbers of files differ between versions.

use docwharf_base::model::digest::{Digest, encode_hex};
use docwharf_base::model::version::VersionId;

/// The digits of the number.
const POSITION_DIGITS: usize = 8;
/// The bytes of the checksum.
const CHECKSUM_BYTES: usize = 8;

/// A list of pages, of which a cursor names a part.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListIdentity<'a> {
    /// The operation, so that a cursor of one is not accepted by another.
    pub(super) operation: &'static str,
    pub(super) version: VersionId,
    /// The path below which pages are listed; empty for all.
    pub(super) section: &'a str,
}

impl ListIdentity<'_> {
    /// Returns the cursor of the part that begins with this file.
    pub(super) fn encode_cursor(&self, file: u32) -> String {
        format!("{file:0width$x}{}", self.checksum(file), width = POSITION_DIGITS)
    }

    /// Returns the file with which the part of a cursor begins; `None` if the cursor is not one of this list.
    pub(super) fn decode_cursor(&self, cursor: &str) -> Option<u32> {
        let (position, checksum) = cursor.split_at_checked(POSITION_DIGITS)?;
        let file = u32::from_str_radix(position, 16).ok()?;
        (checksum == self.checksum(file)).then_some(file)
    }

    fn checksum(&self, file: u32) -> String {
        let facts = format!("{}\n{}\n{file}\n{}", self.operation, self.version, self.section);
        encode_hex(&Digest::compute(facts.as_bytes()).0[..CHECKSUM_BYTES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_accepted_by_its_own_list_only() {
        let version = VersionId(Digest::compute(b"1"));
        let list = ListIdentity { operation: "list_pages", version, section: "guide" };
        let cursor = list.encode_cursor(4711);
        assert_eq!((cursor.len(), list.decode_cursor(&cursor)), (24, Some(4711)));
        for other in [
            ListIdentity { operation: "resources/list", ..list },
            ListIdentity { version: VersionId(Digest::compute(b"2")), ..list },
            ListIdentity { section: "", ..list },
        ] {
            assert_eq!(other.decode_cursor(&cursor), None, "{other:?}");
        }
        let changed = format!("{:08x}{}", 4712, &cursor[8..]);
        for wrong in ["", "0", "ääää", "00001267", &cursor[..23], &format!("{cursor}0"), &changed, "+0001267"] {
            assert_eq!(list.decode_cursor(wrong), None, "{wrong}");
        }
    }
}
