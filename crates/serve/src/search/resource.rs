//! The addresses of the search, below the base path of a site. Pure.

use docwharf_site::lookup::RESERVED_FOLDER;

/// A resource of the search. It is among the extensions of its response, because the rules of the bundle for header
/// fields do not apply to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SearchResource {
    /// The answers to queries, as JSON or as a page.
    Answers,
    /// The script of the search box.
    BoxScript,
    /// The style sheet of the search box.
    BoxStyles,
    /// The script of the panel for questions.
    AskScript,
    /// The style sheet of the panel for questions.
    AskStyles,
    /// The style sheet of the search page.
    PageStyles,
    /// The description by which browsers add the site to their search engines.
    OpenSearch,
}

/// The resources, by their names below `_docwharf/`.
pub(crate) const SEARCH_RESOURCES: [(&str, SearchResource); 7] = [
    ("search", SearchResource::Answers),
    ("search.js", SearchResource::BoxScript),
    ("search.css", SearchResource::BoxStyles),
    ("ask.js", SearchResource::AskScript),
    ("ask.css", SearchResource::AskStyles),
    ("page.css", SearchResource::PageStyles),
    ("opensearch.xml", SearchResource::OpenSearch),
];

impl SearchResource {
    /// Returns the resource at a decoded path within the site, with its leading slash.
    pub(crate) fn from_path(path: &[u8]) -> Option<SearchResource> {
        let name = path.strip_prefix(b"/")?.strip_prefix(RESERVED_FOLDER)?.strip_prefix(b"/")?;
        SEARCH_RESOURCES.iter().find(|(resource, _)| resource.as_bytes() == name).map(|(_, resource)| *resource)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_paths_in_the_reserved_folder_are_resources_of_the_search() {
        for (path, expected) in [
            ("/_docwharf/search", Some(SearchResource::Answers)),
            ("/_docwharf/search.js", Some(SearchResource::BoxScript)),
            ("/_docwharf/search.css", Some(SearchResource::BoxStyles)),
            ("/_docwharf/ask.js", Some(SearchResource::AskScript)),
            ("/_docwharf/ask.css", Some(SearchResource::AskStyles)),
            ("/_docwharf/page.css", Some(SearchResource::PageStyles)),
            ("/_docwharf/opensearch.xml", Some(SearchResource::OpenSearch)),
            ("/_docwharf/search/", None),
            ("/_docwharf/Search", None),
            ("/_docwharf", None),
            ("/_docwharf/", None),
            ("/_docwharfsearch", None),
            ("_docwharf/search", None),
            ("//_docwharf/search", None),
            ("/a/_docwharf/search", None),
            ("/search", None),
            ("", None),
        ] {
            assert_eq!(SearchResource::from_path(path.as_bytes()), expected, "{path}");
        }
    }
}
