//! The part of the title that all pages of a site have in common: ` — Python 3.11 documentation`. Results do not show
//! it.

use std::collections::HashMap;

/// The separators before the name of a site.
const TITLE_SEPARATORS: [&str; 6] = [" — ", " – ", " - ", " | ", " · ", " :: "];
/// The number of pages with the same end of the title from which on it is the name of the site.
const MIN_PAGES_WITH_COMMON_END: usize = 5;

/// Returns the end of the titles that more than half of them have; empty without one.
pub(super) fn find_common_end<'a>(titles: impl Iterator<Item = &'a str>) -> &'a str {
    let (mut counts, mut total) = (HashMap::<&str, usize>::new(), 0);
    for title in titles.filter(|title| !title.is_empty()) {
        total += 1;
        let start = TITLE_SEPARATORS.iter().filter_map(|separator| title.rfind(separator)).max();
        if let Some(start) = start.filter(|start| *start > 0) {
            *counts.entry(&title[start..]).or_default() += 1;
        }
    }
    let most = counts.into_iter().max_by_key(|(end, count)| (*count, *end));
    most.filter(|(_, count)| *count >= MIN_PAGES_WITH_COMMON_END && *count * 2 > total).map_or("", |(end, _)| end)
}

/// Returns a title without the common end.
pub(super) fn without_end<'a>(title: &'a str, common_end: &str) -> &'a str {
    let rest = title.strip_suffix(common_end).unwrap_or(title).trim();
    if rest.is_empty() { title } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_that_most_titles_have_is_left_out() {
        let titles: Vec<String> = (0..5).map(|number| format!("Page {number} — part — Site 1.0")).collect();
        let others = ["", "Other — page", "Start"];
        let all = || titles.iter().map(String::as_str).chain(others);
        assert_eq!(find_common_end(all()), " — Site 1.0");
        assert_eq!(without_end("Page 1 — part — Site 1.0", " — Site 1.0"), "Page 1 — part");
        assert_eq!(without_end(" — Site 1.0", " — Site 1.0"), " — Site 1.0");
        assert_eq!(without_end("Start", " — Site 1.0"), "Start");
        assert_eq!(without_end("Start", ""), "Start");
        assert_eq!(find_common_end(all().chain(["a", "b", "c"])), "", "half of the titles");
        assert_eq!(find_common_end(all().skip(1)), "", "too few pages");
        assert_eq!(find_common_end(std::iter::empty()), "");
    }
}
