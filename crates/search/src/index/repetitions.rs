//! Pages that repeat other pages, such as the page that holds a whole book for printing. Readers look for the pages
//! that it repeats.
//!
//! Such a page consists of the sections of several pages. Sections are compared by their texts without headings,
//! because headings may have other numbers there. A page is compared with pages that have less text only, so that the
//! pages of the book do not count as repetitions of the whole book.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};

use crate::extract::ExtractedPage;

/// The minimum length of a text that is compared, in bytes. Shorter ones may be equal by chance.
const MIN_COMPARED_BYTES: usize = 40;
/// The number of pages, those with the most text, that may repeat others.
const MAX_LARGE_PAGES: usize = 64;
/// The share of its text from which on a page consists of other pages, in percent.
const MIN_REPEATED_PERCENT: u64 = 80;
/// The share of its text that may be that of one other page, in percent. With more, it is a variant of that page.
const MAX_PERCENT_OF_ONE_PAGE: u64 = 60;
/// The minimum number of pages that it consists of.
const MIN_REPEATED_PAGES: usize = 3;
/// The share of its text in other pages below which a page is an original: it repeats no others. In percent.
const MAX_REPEATED_PERCENT_OF_ORIGINAL: u64 = 20;
/// The minimum number of sections of an original. With fewer, equal texts may be chance.
const MIN_SECTIONS_OF_ORIGINAL: usize = 10;

/// Whether a page repeats other pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repetition {
    /// It consists of the sections of other pages.
    OfOtherPages,
    /// Other pages have little of its text.
    None,
    /// It has too few sections for an answer, or some of its text is that of others.
    Unknown,
}

/// The text of a page, as it is compared with others.
#[derive(Debug, Clone, Default)]
pub(super) struct PageText {
    /// For each text that is compared, its hash and its length in bytes.
    sections: Vec<(u64, u32)>,
    /// The length of all these texts in bytes.
    bytes: u64,
}

impl PageText {
    /// Returns the text of a page.
    pub(super) fn new(page: &ExtractedPage) -> PageText {
        PageText::of_texts(page.sections.iter().map(|section| section.text.as_str()))
    }

    fn of_texts<'t>(texts: impl Iterator<Item = &'t str>) -> PageText {
        let compared = texts.filter(|text| text.len() >= MIN_COMPARED_BYTES);
        let sections: Vec<(u64, u32)> = compared.map(|text| (hash_text(text), text.len() as u32)).collect();
        let bytes = sections.iter().map(|(_, bytes)| u64::from(*bytes)).sum();
        PageText { sections, bytes }
    }
}

fn hash_text(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Returns for each page whether it repeats others.
pub(super) fn find_repetitions(pages: &[&PageText]) -> Vec<Repetition> {
    let size = |page: usize| (pages[page].bytes, page);
    let mut large: Vec<usize> = (0..pages.len()).collect();
    large.sort_unstable_by_key(|page| std::cmp::Reverse(size(*page)));
    large.truncate(MAX_LARGE_PAGES);
    // For each text of a large page, the page with the least text that has it.
    let mut owners: HashMap<u64, usize> = HashMap::new();
    for &page in &large {
        owners.extend(pages[page].sections.iter().map(|(text, _)| (*text, page)));
    }
    for (page, text) in pages.iter().enumerate() {
        for (text, _) in &text.sections {
            if let Some(owner) = owners.get_mut(text).filter(|owner| size(page) < size(**owner)) {
                *owner = page;
            }
        }
    }
    let mut repetitions = vec![Repetition::Unknown; pages.len()];
    for page in large {
        repetitions[page] = classify_page(page, pages[page], &owners);
    }
    repetitions
}

fn classify_page(page: usize, text: &PageText, owners: &HashMap<u64, usize>) -> Repetition {
    let mut bytes_of_pages: HashMap<usize, u64> = HashMap::new();
    for (text, bytes) in &text.sections {
        if let Some(owner) = owners.get(text).filter(|owner| **owner != page) {
            *bytes_of_pages.entry(*owner).or_default() += u64::from(*bytes);
        }
    }
    let repeated: u64 = bytes_of_pages.values().sum();
    let of_one_page = bytes_of_pages.values().max().copied().unwrap_or_default();
    let is_at_least = |bytes: u64, percent: u64| bytes * 100 >= text.bytes * percent;
    if bytes_of_pages.len() >= MIN_REPEATED_PAGES
        && is_at_least(repeated, MIN_REPEATED_PERCENT)
        && !is_at_least(of_one_page, MAX_PERCENT_OF_ONE_PAGE)
    {
        Repetition::OfOtherPages
    } else if text.sections.len() >= MIN_SECTIONS_OF_ORIGINAL
        && !is_at_least(repeated, MAX_REPEATED_PERCENT_OF_ORIGINAL)
    {
        Repetition::None
    } else {
        Repetition::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The texts of sections, each long enough to be compared.
    fn texts(numbers: &[u32]) -> Vec<String> {
        numbers.iter().map(|number| format!("section {number} {}", "with some words ".repeat(3))).collect()
    }

    fn find(pages: &[&[u32]]) -> Vec<Repetition> {
        let pages: Vec<PageText> =
            pages.iter().map(|numbers| PageText::of_texts(texts(numbers).iter().map(String::as_str))).collect();
        find_repetitions(&pages.iter().collect::<Vec<_>>())
    }

    #[test]
    fn a_page_with_the_sections_of_others_repeats_them_and_they_do_not_repeat_it() {
        let found = find(&[&[1, 2], &[3, 4], &[5], &[1, 2, 3, 4, 5, 9]]);
        assert_eq!(found, [Repetition::Unknown, Repetition::Unknown, Repetition::Unknown, Repetition::OfOtherPages]);
        // One page more, and its contents, do not change that.
        let found = find(&[&[1, 2, 3, 4, 5, 6], &[1, 2], &[3, 4], &[5, 6], &[7, 8, 9, 10, 11, 12, 13]]);
        assert_eq!(found[0], Repetition::OfOtherPages);
    }

    #[test]
    fn a_page_like_one_other_page_or_with_common_sections_repeats_nothing() {
        // Two versions of a page, and sections that all pages have.
        let found = find(&[&[1, 2, 3, 4], &[1, 2, 3, 5, 6], &[7, 8], &[7, 9], &[7, 10]]);
        assert!(!found.contains(&Repetition::OfOtherPages), "{found:?}");
        let own: Vec<u32> = (20..40).collect();
        let found = find(&[&[1, 2], &[3], &own]);
        assert_eq!(found[2], Repetition::None);
        assert!(find(&[]).is_empty() && find(&[&[]]) == [Repetition::Unknown]);
    }

    #[test]
    fn short_texts_are_not_compared() {
        let page = PageText::of_texts(["Returns a value.", &"long text ".repeat(10)].into_iter());
        assert_eq!((page.sections.len(), page.bytes), (1, 100));
    }
}
