//! Divides the Markdown of a page into parts that a model reads one after the other. Pure.
//!
//! Lengths and offsets are counted in characters (Unicode scalar values), because a client sees characters and not
//! bytes.

use std::ops::Range;

/// The maximum length of a part, in characters.
pub(super) const MAX_PART_CHARS: usize = 32 << 10;

/// A part of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PagePart<'a> {
    pub(super) text: &'a str,
    /// The offset of the next part; `None` after the last one.
    pub(super) next_offset: Option<usize>,
    /// The length of the whole text.
    pub(super) total: usize,
}

/// Returns the part of `text[range]` that begins after `offset` characters and has at most `max_chars` of them; `None`
/// if the text is shorter than the offset.
///
/// A part ends where a block begins. A block that is longer than a part is divided between two of its lines, and a
/// line that is longer between two characters. `block_starts` has the offsets of the blocks in `text` in bytes, in
/// order.
pub(super) fn cut_part<'a>(
    text: &'a str,
    block_starts: &[u32],
    range: Range<usize>,
    offset: usize,
    max_chars: usize,
) -> Option<PagePart<'a>> {
    let body = text.get(range.clone())?;
    let total = body.chars().count();
    if offset > total {
        return None;
    }
    let rest = &body[byte_of_char(body, offset)..];
    let end = if total - offset <= max_chars {
        rest.len()
    } else {
        let limit = byte_of_char(rest, max_chars);
        // The offset of the rest in the whole text.
        let start = range.end - rest.len();
        last_block_start(block_starts, start, limit)
            .or_else(|| rest[..limit].rfind('\n').map(|line_feed| line_feed + 1))
            .unwrap_or(limit)
    };
    let part = &rest[..end];
    let next_offset = (end < rest.len()).then(|| offset + part.chars().count());
    Some(PagePart { text: part, next_offset, total })
}

/// Returns the offset in bytes of a character, or the length of a text that has no more than `index` characters.
fn byte_of_char(text: &str, index: usize) -> usize {
    text.char_indices().nth(index).map_or(text.len(), |(byte, _)| byte)
}

/// Returns the last block that begins after `start` and at most `limit` bytes behind it, relative to `start`.
fn last_block_start(block_starts: &[u32], start: usize, limit: usize) -> Option<usize> {
    let end = block_starts.partition_point(|&block| block as usize <= start + limit);
    let last = *block_starts[..end].last()? as usize;
    last.checked_sub(start).filter(|&bytes| bytes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, blocks: &[u32], offset: usize, max: usize) -> (String, Option<usize>, usize) {
        let part = cut_part(text, blocks, 0..text.len(), offset, max).unwrap();
        (part.text.to_owned(), part.next_offset, part.total)
    }

    #[test]
    fn a_part_ends_where_the_last_block_that_still_fits_begins() {
        let text = "# ä\n\none\n\ntwo\n\nthree\n";
        let blocks = [0, 6, 11, 16];
        assert_eq!(text.find("one"), Some(6));
        assert_eq!(cut(text, &blocks, 0, 100), (text.to_owned(), None, 21));
        assert_eq!(cut(text, &blocks, 0, 11), ("# ä\n\none\n\n".to_owned(), Some(10), 21));
        assert_eq!(cut(text, &blocks, 0, 10), ("# ä\n\none\n\n".to_owned(), Some(10), 21));
        assert_eq!(cut(text, &blocks, 0, 9), ("# ä\n\n".to_owned(), Some(5), 21));
        assert_eq!(cut(text, &blocks, 10, 7), ("two\n\n".to_owned(), Some(15), 21));
        assert_eq!(cut(text, &blocks, 15, 6), ("three\n".to_owned(), None, 21));
        assert_eq!(cut(text, &blocks, 21, 6), (String::new(), None, 21));
        assert_eq!(cut_part(text, &blocks, 0..text.len(), 22, 6), None);
    }

    #[test]
    fn a_long_block_is_divided_between_lines_and_a_long_line_between_characters() {
        assert_eq!(cut("aaa\nbbb\nccc\n", &[0], 0, 9), ("aaa\nbbb\n".to_owned(), Some(8), 12));
        assert_eq!(cut("ääääää", &[0], 1, 3), ("äää".to_owned(), Some(4), 6));
    }

    #[test]
    fn the_parts_of_a_text_are_the_whole_text_again() {
        let text = (0..50).map(|number| format!("paragraph {number} é\n\n")).collect::<Vec<_>>().concat();
        let blocks: Vec<u32> = text.match_indices("paragraph").map(|(start, _)| start as u32).collect();
        for max in [1, 7, 16, 40, 500] {
            let (mut read, mut offset) = (String::new(), Some(0));
            while let Some(start) = offset {
                let part = cut_part(&text, &blocks, 0..text.len(), start, max).unwrap();
                assert!(part.text.chars().count() <= max);
                read.push_str(part.text);
                offset = part.next_offset;
            }
            assert_eq!(read, text, "{max}");
        }
    }

    #[test]
    fn a_section_is_a_text_of_its_own() {
        let text = "# A\n\n## B\n\nbb\n\n## C\n";
        let range = text.find("## B").unwrap()..text.find("## C").unwrap();
        let blocks = [0, 5, 11, 15];
        let part = cut_part(text, &blocks, range.clone(), 0, 8).unwrap();
        assert_eq!((part.text, part.next_offset, part.total), ("## B\n\n", Some(6), 10));
        let part = cut_part(text, &blocks, range, 6, 8).unwrap();
        assert_eq!((part.text, part.next_offset, part.total), ("bb\n\n", None, 10));
    }
}
