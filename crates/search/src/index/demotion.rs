//! Pages that rank lower because of their structure: pages of links, the index of a book, pages that contain the whole
//! site, and lists of changes.

use crate::analyze::fold;
use crate::extract::ExtractedPage;

use super::repetitions::Repetition;

/// The share of words in links above which a page is a page of links, in percent.
const MAX_LINK_PERCENT: u64 = 70;
/// The number of words for each link to another page of the site below which a page is a page of links.
const MIN_WORDS_PER_LINK: u64 = 5;
/// The share of a site's words from which on a page repeats the site for printing, in percent.
const MIN_PRINT_PERCENT: u64 = 20;
/// The number of pages below which one page may be a large part of the site without repeating it.
const MIN_PRINTED_PAGES: u64 = 10;

/// The number of entries from which on a page can be the index of a book.
const MIN_INDEX_ENTRIES: usize = 20;
/// The share of sections that are entries, and of entries with a link, in the index of a book, in percent.
const MIN_ENTRY_PERCENT: usize = 80;
/// The share of words in links in the index of a book, in percent.
const MIN_INDEX_LINK_PERCENT: u64 = 50;

/// The factor of the score of a page of links, in percent.
const LINK_PAGE_PERCENT: u8 = 50;
/// The factor of the score of the index of a book, in percent.
const INDEX_PERCENT: u8 = 10;
/// The factor of the score of a list of changes, in percent.
const CHANGES_PERCENT: u8 = 60;
/// The factor of the score of a page for printing, in percent.
const PRINT_PERCENT: u8 = 30;
/// The factor up to which the sections of a page are about what other pages explain, in percent.
pub(crate) const MAX_SECONDARY_PERCENT: u8 = PRINT_PERCENT;

/// Titles of lists of changes, folded, without apostrophes.
const CHANGES_TITLES: [&str; 7] =
    ["changelog", "change log", "release notes", "release history", "whats new", "changes in version", "news for"];

/// Returns the factor of the score of a page by its own structure, in percent.
pub(super) fn rate_page(page: &ExtractedPage) -> u8 {
    let (words, link_words) = (u64::from(page.words), u64::from(page.link_words));
    let is_link_page = link_words * 100 > words * MAX_LINK_PERCENT
        || (page.site_links > 0 && u64::from(page.site_links) * MIN_WORDS_PER_LINK > words);
    if is_index(page) {
        INDEX_PERCENT
    } else if is_link_page {
        LINK_PAGE_PERCENT
    } else if is_list_of_changes(page) {
        CHANGES_PERCENT
    } else {
        100
    }
}

/// Whether a page is the index of a book: its sections are terms with links to other pages, and the titles of these
/// pages are half of its text.
fn is_index(page: &ExtractedPage) -> bool {
    let entries = page.sections.iter().filter(|section| section.is_definition).count();
    entries >= MIN_INDEX_ENTRIES
        && entries * 100 >= page.sections.len() * MIN_ENTRY_PERCENT
        && page.site_links as usize * 100 >= entries * MIN_ENTRY_PERCENT
        && u64::from(page.link_words) * 100 >= u64::from(page.words) * MIN_INDEX_LINK_PERCENT
}

fn is_list_of_changes(page: &ExtractedPage) -> bool {
    let heading = page.sections.iter().find_map(|section| section.headings.first());
    [Some(&page.title), heading].into_iter().flatten().any(|text| {
        let text: String = fold(text).chars().filter(|c| !matches!(c, '\'' | '’')).collect();
        CHANGES_TITLES.iter().any(|title| text.contains(title))
    })
}

/// Returns the factor of the score of a page with `words` of the `site_words` of a site of `pages` pages, in percent.
/// `own` is the factor by its own structure.
///
/// A page that consists of others is one for printing. If its sections give no answer ([`Repetition::Unknown`]), a page
/// with a large part of the text is one, too; a large page whose sections are nowhere else is not.
pub(super) fn rate_in_site(own: u8, repetition: Repetition, words: u32, site_words: u64, pages: u64) -> u8 {
    let is_large = pages >= MIN_PRINTED_PAGES && u64::from(words) * 100 >= site_words * MIN_PRINT_PERCENT && words > 0;
    match repetition {
        Repetition::OfOtherPages => own.min(PRINT_PERCENT),
        Repetition::Unknown if is_large => own.min(PRINT_PERCENT),
        Repetition::Unknown | Repetition::None => own,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extract::LeftOutContent;

    fn page(title: &str, words: u32, link_words: u32, site_links: u32) -> ExtractedPage {
        ExtractedPage {
            title: title.to_owned(),
            lang: None,
            canonical: None,
            exclusion: None,
            sections: Vec::new(),
            words,
            link_words,
            site_links,
            left_out: LeftOutContent::default(),
        }
    }

    #[test]
    fn pages_of_links_and_lists_of_changes_rank_lower() {
        for (page, expected) in [
            (page("Guide", 100, 70, 20), 100),
            (page("Guide", 100, 71, 20), LINK_PAGE_PERCENT),
            (page("Guide", 100, 10, 21), LINK_PAGE_PERCENT),
            (page("Guide", 0, 0, 0), 100),
            (page("Guide", 0, 0, 1), LINK_PAGE_PERCENT),
            (page("What’s New In Python 3.11", 100, 0, 0), CHANGES_PERCENT),
            (page("Release Notes", 100, 0, 0), CHANGES_PERCENT),
            (page("Changelog — Python", 100, 90, 0), LINK_PAGE_PERCENT),
        ] {
            assert_eq!(rate_page(&page), expected, "{page:?}");
        }
    }

    #[test]
    fn the_index_of_a_book_ranks_lowest() {
        let entry = || crate::extract::Section {
            anchor: Some("entry".to_owned()),
            headings: vec!["Index".to_owned(), "widget, Functions for Widgets".to_owned()],
            level: 7,
            is_definition: true,
            text: String::new(),
            code_spans: Vec::new(),
        };
        let index = |link_words: u32, links: u32| {
            let sections = (0..MIN_INDEX_ENTRIES).map(|_| entry()).collect();
            rate_page(&ExtractedPage { sections, ..page("Index", 2000, link_words, links) })
        };
        assert_eq!(index(1000, 20), INDEX_PERCENT);
        assert_eq!(index(1000, 10), 100, "names without links");
        assert_eq!(index(200, 20), 100, "a glossary");
    }

    #[test]
    fn a_page_with_a_fifth_of_the_site_ranks_lower_unless_the_site_is_small_or_its_sections_are_its_own() {
        let rate = |own: u8, words: u32, pages: u64| rate_in_site(own, Repetition::Unknown, words, 1000, pages);
        assert_eq!(rate(100, 200, 10), PRINT_PERCENT);
        assert_eq!(rate(100, 199, 10), 100);
        assert_eq!(rate(100, 200, 9), 100);
        assert_eq!(rate(20, 200, 10), 20);
        assert_eq!(rate_in_site(100, Repetition::Unknown, 0, 0, 10), 100);
        assert_eq!(rate_in_site(100, Repetition::None, 900, 1000, 10), 100);
        assert_eq!(rate_in_site(100, Repetition::OfOtherPages, 10, 1000, 2), PRINT_PERCENT);
        assert_eq!(rate_in_site(20, Repetition::OfOtherPages, 10, 1000, 2), 20);
    }
}
