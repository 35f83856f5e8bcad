//! The clicks of pages by term, counted while the rows of a query are read for the totals of terms.

use std::collections::HashMap;

/// The approximate memory of an entry without its key, in bytes.
const ENTRY_OVERHEAD_BYTES: usize = 64;
/// The number of bytes of the length of the term, with which a key begins.
const LENGTH_BYTES: usize = size_of::<u32>();

/// The clicks of pages by term, in bounded memory. Beyond it, nothing is counted, and the caller has to read the rows
/// once more.
#[derive(Debug)]
pub(super) struct ClickedPages {
    memory: usize,
    bytes: usize,
    /// The clicks by term and page: a key has the length of the term, the term, and the page. `None` beyond the memory.
    clicks: Option<HashMap<Box<[u8]>, u64>>,
    key: Vec<u8>,
}

impl ClickedPages {
    /// Creates the counts; `memory` is their approximate maximum, in bytes.
    pub(super) fn new(memory: usize) -> ClickedPages {
        ClickedPages { memory, bytes: 0, clicks: Some(HashMap::new()), key: Vec::new() }
    }

    /// Counts clicks on a page that was a result for a term.
    pub(super) fn add(&mut self, term: &str, page: &str, clicks: u64) {
        let (Some(counts), Ok(term_len)) = (&mut self.clicks, u32::try_from(term.len())) else { return };
        self.key.clear();
        self.key.extend_from_slice(&term_len.to_ne_bytes());
        self.key.extend_from_slice(term.as_bytes());
        self.key.extend_from_slice(page.as_bytes());
        if let Some(count) = counts.get_mut(&*self.key) {
            *count = count.saturating_add(clicks);
            return;
        }
        self.bytes += self.key.len() + ENTRY_OVERHEAD_BYTES;
        if self.bytes > self.memory {
            self.clicks = None;
        } else {
            counts.insert(self.key.as_slice().into(), clicks);
        }
    }

    /// Calls `visit` with each term, page and number of clicks, in any order. Returns false, without a call, if there
    /// were more than the memory holds.
    pub(super) fn for_each(&self, mut visit: impl FnMut(&str, &str, u64)) -> bool {
        let Some(counts) = &self.clicks else { return false };
        for (key, clicks) in counts {
            let Some((term, page)) = split_key(key) else { continue };
            visit(term, page, *clicks);
        }
        true
    }
}

/// Splits a key into term and page.
fn split_key(key: &[u8]) -> Option<(&str, &str)> {
    let (term_len, rest) = key.split_first_chunk::<LENGTH_BYTES>()?;
    let (term, page) = rest.split_at_checked(u32::from_ne_bytes(*term_len) as usize)?;
    Some((str::from_utf8(term).ok()?, str::from_utf8(page).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clicks_are_added_up_by_term_and_page_until_the_memory_is_used_up() {
        let mut pages = ClickedPages::new(400);
        for (term, page, clicks) in [("a", "b/x", 1), ("ab", "/x", 2), ("a", "b/x", 3), ("", "/y", 4)] {
            pages.add(term, page, clicks);
        }
        let mut list = Vec::new();
        assert!(pages.for_each(|term, page, clicks| list.push(format!("{term} {page} {clicks}"))));
        list.sort();
        assert_eq!(list, [" /y 4", "a b/x 4", "ab /x 2"]);
        for n in 0..10 {
            pages.add("a", &n.to_string(), 1);
        }
        assert!(!pages.for_each(|_, _, _| panic!("there are too many")));
    }
}
