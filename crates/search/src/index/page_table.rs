//! The table of pages: what all sections of a page have in common, stored once.
//!
//! The format is little-endian: the number of pages (u32), the offset of each record and of the end of the last one
//! (u32), the records. A record is the factor of the score in percent (u8), the lengths of language (u8), path (u16)
//! and address (u16), then these three and the title. The pages are in byte order of their paths, so those below a
//! folder are neighbours. Pages that were left out have a record, because the sections name a page by its number; no
//! section names theirs.
//!
//! The table is mapped. A damaged one is refused when it is opened; a record that does not fit its bounds after that is
//! read as empty.

use tantivy::directory::OwnedBytes;

const COUNT_BYTES: usize = 4;
const OFFSET_BYTES: usize = 4;
/// The length of the fixed part of a record in bytes.
const RECORD_HEAD_BYTES: usize = 1 + 1 + 2 + 2;
/// The maximum length of a title in bytes. It bounds the memory for a site with many pages.
const MAX_TITLE_BYTES: usize = 500;

/// The common facts of a page.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct PageRecord<'a> {
    /// The path of the file.
    pub(crate) path: &'a str,
    /// The address at which the page is served, without a leading slash.
    pub(crate) address: &'a str,
    /// The title.
    pub(crate) title: &'a str,
    /// The language tag; empty if the page has none.
    pub(crate) lang: &'a str,
    /// The factor of the score, in percent.
    pub(crate) score_percent: u8,
}

/// Encodes a table. A part of a record that is too long is cut; only titles ever are.
pub(super) fn encode_page_table<'a>(records: impl Iterator<Item = PageRecord<'a>>) -> Vec<u8> {
    let (mut offsets, mut data) = (vec![0u32], Vec::new());
    for record in records {
        let lang = cut(record.lang, usize::from(u8::MAX));
        let (path, address) = (cut(record.path, usize::from(u16::MAX)), cut(record.address, usize::from(u16::MAX)));
        data.extend_from_slice(&[record.score_percent, lang.len() as u8]);
        data.extend_from_slice(&(path.len() as u16).to_le_bytes());
        data.extend_from_slice(&(address.len() as u16).to_le_bytes());
        for text in [lang, path, address, cut(record.title, MAX_TITLE_BYTES)] {
            data.extend_from_slice(text.as_bytes());
        }
        offsets.push(data.len() as u32);
    }
    let mut bytes = ((offsets.len() - 1) as u32).to_le_bytes().to_vec();
    bytes.extend(offsets.iter().flat_map(|offset| offset.to_le_bytes()));
    bytes.extend(data);
    bytes
}

fn cut(text: &str, max_bytes: usize) -> &str {
    &text[..text.floor_char_boundary(max_bytes)]
}

/// A table in memory.
#[derive(Clone)]
pub(crate) struct PageTable {
    bytes: OwnedBytes,
    count: u32,
}

impl PageTable {
    /// Opens a table; `None` if its bounds are wrong.
    pub(super) fn open(bytes: OwnedBytes) -> Option<PageTable> {
        let count = read_u32(bytes.as_slice(), 0)?;
        let table = PageTable { bytes, count };
        let data = table.bytes.len().checked_sub(table.data_start())?;
        let offsets = (0..=count).map(|page| table.offset(page));
        let is_valid = offsets.is_sorted() && table.offset(0) == Some(0) && table.offset(count) == Some(data);
        is_valid.then_some(table)
    }

    /// Returns the number of pages.
    pub(crate) fn len(&self) -> u32 {
        self.count
    }

    fn data_start(&self) -> usize {
        (self.count as usize + 1).saturating_mul(OFFSET_BYTES).saturating_add(COUNT_BYTES)
    }

    fn offset(&self, page: u32) -> Option<usize> {
        let start = COUNT_BYTES + (page as usize).checked_mul(OFFSET_BYTES)?;
        read_u32(self.bytes.as_slice(), start).map(|offset| offset as usize)
    }

    /// Returns the record of a page; an empty one if there is none.
    pub(crate) fn record(&self, page: u32) -> PageRecord<'_> {
        self.find_record(page).unwrap_or_default()
    }

    /// Returns the factor of the score of a page, in percent, without reading the rest of its record: a query asks for
    /// it once for each section that it finds.
    pub(crate) fn score_percent(&self, page: u32) -> u8 {
        self.record_bytes(page).and_then(<[u8]>::first).copied().unwrap_or_default()
    }

    /// Returns the language tag of a page, without reading the rest of its record: a query in a language asks for that
    /// of all pages.
    pub(crate) fn lang(&self, page: u32) -> &str {
        let lang = self.record_bytes(page).and_then(|record| {
            let (head, rest) = record.split_at_checked(RECORD_HEAD_BYTES)?;
            std::str::from_utf8(rest.get(..usize::from(head[1]))?).ok()
        });
        lang.unwrap_or_default()
    }

    fn record_bytes(&self, page: u32) -> Option<&[u8]> {
        if page >= self.count {
            return None;
        }
        let (start, end) = (self.offset(page)?, self.offset(page + 1)?);
        self.bytes.as_slice().get(self.data_start()..)?.get(start..end)
    }

    fn find_record(&self, page: u32) -> Option<PageRecord<'_>> {
        let (head, mut rest) = self.record_bytes(page)?.split_at_checked(RECORD_HEAD_BYTES)?;
        let length = |index: usize| usize::from(u16::from_le_bytes([head[index], head[index + 1]]));
        let mut take = |bytes: usize| -> Option<&str> {
            let (text, after) = rest.split_at_checked(bytes)?;
            rest = after;
            std::str::from_utf8(text).ok()
        };
        let (lang, path, address) = (take(usize::from(head[1]))?, take(length(2))?, take(length(4))?);
        let title = std::str::from_utf8(rest).ok()?;
        Some(PageRecord { path, address, title, lang, score_percent: head[0] })
    }

    /// Returns the first page whose path is not before `path`.
    pub(crate) fn first_from(&self, path: &str) -> u32 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            if self.record(middle).path < path {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

fn read_u32(bytes: &[u8], start: usize) -> Option<u32> {
    let bytes = bytes.get(start..start.checked_add(4)?)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records() -> [PageRecord<'static>; 3] {
        let record = PageRecord { path: "a.html", address: "a", title: "Ä", lang: "en", score_percent: 100 };
        let other = PageRecord { path: "b/index.html", address: "b/", title: "", lang: "", score_percent: 30 };
        [record, other, PageRecord { path: "c.html", ..other }]
    }

    fn open(bytes: Vec<u8>) -> Option<PageTable> {
        PageTable::open(OwnedBytes::new(bytes))
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let table = open(encode_page_table(records().into_iter())).unwrap();
        assert_eq!(table.len(), 3);
        for (page, expected) in (0..).zip(records()) {
            assert_eq!(table.record(page), expected);
            assert_eq!((table.score_percent(page), table.lang(page)), (expected.score_percent, expected.lang));
        }
        assert_eq!((table.record(3), table.score_percent(3)), (PageRecord::default(), 0));
        assert_eq!(open(encode_page_table(std::iter::empty())).unwrap().len(), 0);
    }

    #[test]
    fn pages_are_found_by_the_beginning_of_their_path() {
        let table = open(encode_page_table(records().into_iter())).unwrap();
        for (path, expected) in [("", 0), ("a.html", 0), ("b", 1), ("b/index.html", 1), ("bb", 2), ("d", 3)] {
            assert_eq!(table.first_from(path), expected, "{path}");
        }
    }

    #[test]
    fn long_titles_are_cut_between_characters() {
        let title = "ä".repeat(MAX_TITLE_BYTES);
        let record = PageRecord { title: &title, ..records()[0] };
        let table = open(encode_page_table(std::iter::once(record))).unwrap();
        assert_eq!(table.record(0).title, "ä".repeat(MAX_TITLE_BYTES / 2));
    }

    #[test]
    fn any_bytes_are_refused_or_read_without_a_panic() {
        let bytes = encode_page_table(records().into_iter());
        for len in 0..bytes.len() {
            assert!(open(bytes[..len].to_vec()).is_none(), "{len}");
        }
        for index in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[index] ^= 0xff;
            if let Some(table) = open(damaged) {
                for page in 0..table.len() {
                    let _ = (table.record(page), table.score_percent(page), table.lang(page), table.first_from("b"));
                }
            }
        }
        assert!(open(u32::MAX.to_le_bytes().to_vec()).is_none());
    }
}
