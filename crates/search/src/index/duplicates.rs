//! Pages with the same text: one of them is kept.

use std::collections::{HashMap, HashSet};

use docwharf_base::model::digest::{Digest, Sha256Hasher};

use crate::extract::ExtractedPage;

/// The facts by which pages with the same text are found and one of them is chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct PageIdentity {
    /// The number of the page.
    pub(super) page: u32,
    /// The number of its file.
    pub(super) file: usize,
    /// The digest of its headings and text; `None` for a page without words, which is no duplicate.
    pub(super) text: Option<Digest>,
    /// The file to which its canonical link leads.
    pub(super) canonical: Option<usize>,
    /// Whether it is in a sitemap.
    pub(super) is_in_sitemap: bool,
}

/// Computes the digest of the headings and texts of a page.
pub(super) fn digest_text(page: &ExtractedPage) -> Option<Digest> {
    if page.words == 0 {
        return None;
    }
    let mut hasher = Sha256Hasher::new();
    for section in &page.sections {
        for text in [section.headings.last().map_or("", String::as_str), &section.text] {
            // Without the lengths, the same text in other sections would have the same digest.
            hasher.update(&(text.len() as u64).to_le_bytes());
            hasher.update(text.as_bytes());
        }
    }
    Some(hasher.finalize_reset())
}

/// Returns the pages that are duplicates of another one. Of the pages with the same text, one is kept: the canonical
/// one, else one in the sitemap, else the first. `pages` are in the order of their numbers.
pub(super) fn find_duplicates(pages: &[PageIdentity]) -> HashSet<u32> {
    let mut groups: HashMap<Digest, Vec<&PageIdentity>> = HashMap::new();
    for identity in pages {
        if let Some(text) = identity.text {
            groups.entry(text).or_default().push(identity);
        }
    }
    let mut duplicates = HashSet::new();
    for group in groups.into_values().filter(|group| group.len() > 1) {
        let kept = choose_page(&group);
        duplicates.extend(group.iter().map(|identity| identity.page).filter(|page| *page != kept));
    }
    duplicates
}

fn choose_page(group: &[&PageIdentity]) -> u32 {
    let links = group.iter().filter(|identity| identity.canonical != Some(identity.file));
    let named_by_others: HashSet<usize> = links.filter_map(|identity| identity.canonical).collect();
    let rank = |identity: &PageIdentity| {
        let is_named_by_itself = identity.canonical == Some(identity.file);
        (named_by_others.contains(&identity.file), is_named_by_itself, identity.is_in_sitemap)
    };
    let best = group.iter().map(|identity| rank(identity)).max().unwrap_or_default();
    let kept = group.iter().find(|identity| rank(identity) == best);
    kept.map_or(0, |identity| identity.page)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity(page: u32, text: &str, canonical: Option<usize>, is_in_sitemap: bool) -> PageIdentity {
        let text = (!text.is_empty()).then(|| Digest::compute(text.as_bytes()));
        PageIdentity { page, file: page as usize + 10, text, canonical, is_in_sitemap }
    }

    fn duplicates(pages: &[PageIdentity]) -> Vec<u32> {
        let mut duplicates: Vec<u32> = find_duplicates(pages).into_iter().collect();
        duplicates.sort_unstable();
        duplicates
    }

    #[test]
    fn the_canonical_page_is_kept_else_that_in_the_sitemap_else_the_first() {
        let first = [identity(0, "x", None, false), identity(1, "x", None, false), identity(2, "y", None, false)];
        assert_eq!(duplicates(&first), [1]);
        let in_sitemap = [identity(0, "x", None, false), identity(1, "x", None, true)];
        assert_eq!(duplicates(&in_sitemap), [0]);
        let named = [identity(0, "x", Some(11), true), identity(1, "x", None, false)];
        assert_eq!(duplicates(&named), [0]);
        let own = [identity(0, "x", Some(5), true), identity(1, "x", Some(11), false)];
        assert_eq!(duplicates(&own), [0]);
        // Each says that it is the canonical one.
        let both = [identity(0, "x", Some(10), false), identity(1, "x", Some(11), false)];
        assert_eq!(duplicates(&both), [1]);
        let outside = [identity(0, "x", Some(99), false), identity(1, "x", Some(99), true)];
        assert_eq!(duplicates(&outside), [0]);
    }

    #[test]
    fn pages_without_words_repeat_nothing() {
        assert!(duplicates(&[identity(0, "", None, false), identity(1, "", None, false)]).is_empty());
        assert!(duplicates(&[]).is_empty());
    }
}
