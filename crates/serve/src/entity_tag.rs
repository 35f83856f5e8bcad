//! Entity tags (RFC 9110, 8.8.3), created without an allocation.

use docwharf_base::model::digest::Digest;

use super::insertion::TagDigest;

/// The longest tag in bytes: two quotes, 16 digits, and twice a dash, a letter and 8 digits.
const MAX_TAG_BYTES: usize = 2 + 16 + 2 * (2 + 8);

/// A strong entity tag: identifies the content, the tag that is inserted into a page, and the coded bytes if the
/// content is coded.
#[derive(Debug, Clone, Copy)]
pub(super) struct EntityTag {
    text: [u8; MAX_TAG_BYTES],
    len: usize,
}

impl EntityTag {
    /// Creates the tag of this content. `inserted` identifies the tag that follows a page; `coding` is the letter of a
    /// coding and the CRC-32 of the coded bytes, without an inserted tag.
    pub(super) fn of_content(content: &Digest, inserted: Option<TagDigest>, coding: Option<(u8, u32)>) -> EntityTag {
        let mut tag = EntityTag { text: [0; MAX_TAG_BYTES], len: 0 };
        tag.push(b'"');
        tag.push_hex(&content.0[..8]);
        if let Some(TagDigest(digest)) = inserted {
            tag.push(b'-');
            tag.push(b'i');
            tag.push_hex(&digest);
        }
        if let Some((letter, crc)) = coding {
            tag.push(b'-');
            tag.push(letter);
            tag.push_hex(&crc.to_be_bytes());
        }
        tag.push(b'"');
        tag
    }

    /// Returns the tag with its quotes.
    pub(super) fn as_str(&self) -> &str {
        std::str::from_utf8(&self.text[..self.len]).unwrap_or_default()
    }

    fn push(&mut self, byte: u8) {
        self.text[self.len] = byte;
        self.len += 1;
    }

    fn push_hex(&mut self, bytes: &[u8]) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        for byte in bytes {
            self.push(DIGITS[usize::from(byte >> 4)]);
            self.push(DIGITS[usize::from(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entity_tag_identifies_the_content_and_its_coding() {
        let content = Digest::compute(b"x");
        let inserted = Some(TagDigest([0xa0, 1, 2, 0xff]));
        for (inserted, coding, expected) in [
            (None, None, "\"2d711642b726b044\""),
            (None, Some((b'g', 0x0102_abcd)), "\"2d711642b726b044-g0102abcd\""),
            (inserted, None, "\"2d711642b726b044-ia00102ff\""),
            (inserted, Some((b'b', 0x0102_abcd)), "\"2d711642b726b044-ia00102ff-b0102abcd\""),
        ] {
            assert_eq!(EntityTag::of_content(&content, inserted, coding).as_str(), expected);
        }
    }
}
