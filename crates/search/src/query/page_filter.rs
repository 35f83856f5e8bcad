//! The pages that a query asks for: those below a path, and those in a language.

use crate::index::PageTable;

/// The pages that can be results.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PageFilter {
    /// Whether each page is allowed; `None` allows all.
    allowed: Option<Vec<bool>>,
}

impl PageFilter {
    /// Creates a filter for pages below the path `section` and in the language `lang`.
    pub(super) fn new(pages: &PageTable, section: Option<&str>, lang: Option<&str>) -> PageFilter {
        let section = section.map(|section| section.trim_start_matches('/')).filter(|section| !section.is_empty());
        if section.is_none() && lang.is_none() {
            return PageFilter::default();
        }
        let mut allowed = vec![false; pages.len() as usize];
        let first = section.map_or(0, |section| pages.first_from(section));
        // Most pages have the language of the page before.
        let mut last_lang = ("", true);
        for page in first..pages.len() {
            // Only a search below a path needs the paths.
            let path = section.map(|_| pages.record(page).path).unwrap_or_default();
            let section = section.unwrap_or_default();
            if !path.starts_with(section) {
                break;
            }
            let page_lang = pages.lang(page);
            if last_lang.0 != page_lang {
                last_lang = (page_lang, lang.is_none_or(|lang| is_in_language(page_lang, lang)));
            }
            allowed[page as usize] = last_lang.1 && is_below(path, section);
        }
        PageFilter { allowed: Some(allowed) }
    }

    /// Whether a page can be a result.
    pub(super) fn allows(&self, page: u32) -> bool {
        self.allowed.as_ref().is_none_or(|allowed| allowed.get(page as usize).copied().unwrap_or_default())
    }
}

/// Whether a path that begins with `section` is that of the page or below it, and does not only have the same first
/// letters.
fn is_below(path: &str, section: &str) -> bool {
    let rest = path.get(section.len()..).unwrap_or_default();
    section.ends_with('/') || matches!(rest, "" | ".html" | ".htm") || rest.starts_with('/')
}

/// Whether a page in the language `page` is asked for by the language tag `asked`: one of the tags is the beginning of
/// the other (`pt` and `pt-BR`, but not `pt-PT` and `pt-BR`). A page without a language is in every language.
fn is_in_language(page: &str, asked: &str) -> bool {
    subtags(page).zip(subtags(asked)).all(|(a, b)| a.eq_ignore_ascii_case(b))
}

fn subtags(tag: &str) -> impl Iterator<Item = &str> {
    tag.split(['-', '_']).filter(|subtag| !subtag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_a_folder_or_a_page_and_not_the_beginning_of_a_name() {
        for (path, section, expected) in [
            ("guide/a.html", "guide/", true),
            ("guide/a.html", "guide", true),
            ("guide.html", "guide", true),
            ("guide/a.html", "guide/a", true),
            ("guide/a.html", "guide/a.html", true),
            ("guides/a.html", "guide", false),
            ("guide-2.html", "guide", false),
            ("os.html", "os", true),
            ("os.htm", "os", true),
            ("os.path.html", "os", false),
        ] {
            assert_eq!(is_below(path, section), expected, "{path} {section}");
        }
    }

    #[test]
    fn languages_match_if_one_tag_is_the_beginning_of_the_other() {
        for (page, asked, expected) in [
            ("en", "en", true),
            ("en-us", "en", true),
            ("en", "EN_GB", true),
            ("", "de", true),
            ("pt-br", "pt-PT", false),
            ("zh-hans", "zh-Hant", false),
            ("en", "de", false),
            ("en", "eng", false),
            ("en", "", true),
        ] {
            assert_eq!(is_in_language(page, asked), expected, "{page} {asked}");
        }
    }
}
