//! Whether a site brings its own search: an index that a documentation tool has made for its search in the browser.
//!
//! An index counts for the pages of the folder that it is for. A site brings its own search if that is most of its
//! pages: a single folder with the documentation of an API that has one does not count, a folder for each language
//! does.

use std::collections::BTreeMap;
use std::fmt;

use docwharf_base::error_chain::OneLine;
use docwharf_base::model::site_path::{file_name, is_hidden, is_page};

use crate::sealed_version::SealedVersion;

/// A tool that makes a search index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SearchTool {
    /// mdBook: `searchindex.js`, `searchindex-0a1b2c3d.js` or `searchindex.json`.
    MdBook,
    /// Sphinx: `searchindex.js` beside `search.html`.
    Sphinx,
    /// `MkDocs`: `search/search_index.json`.
    MkDocs,
    /// Pagefind: `pagefind/pagefind.js`, in earlier versions `_pagefind/pagefind.js`.
    Pagefind,
    /// rustdoc: the folder `search.index`, in earlier versions `search-index.js` or `search-index1.80.0.js`.
    Rustdoc,
    /// docusaurus-search-local: `search-index.json` or `search-index-docs-default-latest.json`.
    DocusaurusSearchLocal,
}

impl SearchTool {
    /// Returns the name of the tool as its documentation writes it.
    pub fn name(self) -> &'static str {
        match self {
            SearchTool::MdBook => "mdBook",
            SearchTool::Sphinx => "Sphinx",
            SearchTool::MkDocs => "MkDocs",
            SearchTool::Pagefind => "Pagefind",
            SearchTool::Rustdoc => "rustdoc",
            SearchTool::DocusaurusSearchLocal => "docusaurus-search-local",
        }
    }
}

/// The search that a site brings. As text: `mdBook (book/searchindex.js)`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnSearch {
    /// The tool that has made the index.
    pub tool: SearchTool,
    /// The path of the first file by which the index was recognized.
    pub path: String,
}

impl fmt::Display for OwnSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.tool.name(), OneLine(&self.path))
    }
}

/// Finds the search that a version brings; `None` if it brings none. It looks at the paths only.
pub fn find_own_search(version: &SealedVersion) -> Option<OwnSearch> {
    let index = version.index();
    find_in_paths(|| (0..index.len()).map(move |file| index.path(file)), &|path| index.find(path).is_some())
}

/// Finds the search among the paths of a site, which `paths` lists and `has_file` finds.
fn find_in_paths<'a, I: Iterator<Item = &'a [u8]>>(
    paths: impl Fn() -> I,
    has_file: &dyn Fn(&[u8]) -> bool,
) -> Option<OwnSearch> {
    // The folders that have an index, each with a slash at its end: the tool, and the file of the index.
    let mut folders: BTreeMap<&[u8], (SearchTool, &[u8])> = BTreeMap::new();
    for path in paths().filter(|path| !is_hidden(path)) {
        if let Some((tool, folder)) = recognize_index(path, has_file) {
            folders.entry(folder).or_insert((tool, path));
        }
    }
    // The folder nearest to the root comes first.
    let (tool, path) = *folders.values().next()?;
    let (mut pages, mut searched_pages) = (0usize, 0usize);
    for path in paths().filter(|path| is_page(path) && !is_hidden(path)) {
        pages += 1;
        searched_pages += usize::from(ancestors(path).any(|folder| folders.contains_key(folder)));
    }
    (2 * searched_pages > pages).then(|| OwnSearch { tool, path: String::from_utf8_lossy(path).into_owned() })
}

/// Returns the folders that contain a file, each with a slash at its end, from the root on, which is empty.
fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    std::iter::once(&path[..0]).chain(slashes.map(move |(at, _)| &path[..=at]))
}

/// Recognizes a file of an index by its path. Returns the tool, and the folder whose pages the index is for, with a
/// slash at its end.
fn recognize_index<'a>(path: &'a [u8], has_file: &dyn Fn(&[u8]) -> bool) -> Option<(SearchTool, &'a [u8])> {
    let name = file_name(path);
    let folder = &path[..path.len() - name.len()];
    // The folder above, if this one has the given name.
    let above = |own_name: &[u8]| {
        let above = folder.strip_suffix(b"/")?.strip_suffix(own_name)?;
        (above.is_empty() || above.ends_with(b"/")).then_some(above)
    };
    let is_variant = |start: &[u8], end: &[u8]| {
        name.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).is_some_and(|middle| !middle.is_empty())
    };
    let in_folder = |tool: SearchTool| Some((tool, folder));
    match name {
        b"searchindex.js" if has_file(&[folder, b"search.html"].concat()) => in_folder(SearchTool::Sphinx),
        b"searchindex.js" | b"searchindex.json" => in_folder(SearchTool::MdBook),
        b"search_index.json" => above(b"search").map(|site| (SearchTool::MkDocs, site)),
        b"pagefind.js" => above(b"pagefind").or_else(|| above(b"_pagefind")).map(|site| (SearchTool::Pagefind, site)),
        b"search-index.js" => in_folder(SearchTool::Rustdoc),
        b"search-index.json" => in_folder(SearchTool::DocusaurusSearchLocal),
        _ if is_variant(b"searchindex-", b".js") => in_folder(SearchTool::MdBook),
        _ if is_variant(b"search-index", b".js") => in_folder(SearchTool::Rustdoc),
        _ if is_variant(b"search-index-", b".json") => in_folder(SearchTool::DocusaurusSearchLocal),
        _ => above(b"search.index").map(|site| (SearchTool::Rustdoc, site)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sealed_version::test_versions::version_with_files;

    /// Returns the search of a site with these files, as text.
    fn find(files: &[&str]) -> Option<String> {
        let version = version_with_files(&files.iter().map(|&path| (path, "x")).collect::<Vec<_>>());
        find_own_search(&version).map(|found| found.to_string())
    }

    #[test]
    fn the_index_of_each_documentation_tool_is_recognized_at_the_root_of_a_site() {
        for (file, expected) in [
            ("searchindex.js", "mdBook (searchindex.js)"),
            ("searchindex.json", "mdBook (searchindex.json)"),
            ("searchindex-0a1b2c3d.js", "mdBook (searchindex-0a1b2c3d.js)"),
            ("search/search_index.json", "MkDocs (search/search_index.json)"),
            ("pagefind/pagefind.js", "Pagefind (pagefind/pagefind.js)"),
            ("_pagefind/pagefind.js", "Pagefind (_pagefind/pagefind.js)"),
            ("search-index.js", "rustdoc (search-index.js)"),
            ("search-index1.80.0.js", "rustdoc (search-index1.80.0.js)"),
            ("search.index/root.js", "rustdoc (search.index/root.js)"),
            ("search-index.json", "docusaurus-search-local (search-index.json)"),
            ("search-index-docs-default.json", "docusaurus-search-local (search-index-docs-default.json)"),
        ] {
            assert_eq!(find(&["index.html", file]).as_deref(), Some(expected), "{file}");
        }
        let sphinx = find(&["index.html", "search.html", "searchindex.js"]);
        assert_eq!(sphinx.as_deref(), Some("Sphinx (searchindex.js)"));
    }

    #[test]
    fn files_with_similar_names_are_no_index() {
        for file in [
            "searchindex.html",
            "searchindex.js.map",
            "my-searchindex.js",
            "searchindex-.js",
            "search_index.json",
            "research/search_index.json",
            "search/index.json",
            "pagefind.js",
            "my_pagefind/pagefind.js",
            "pagefind/index.js",
            "search-indexes.html",
            "search-index-.json",
            "search.index",
            "a.search.index/root.js",
            "search.json",
            "_next/static/search.js",
            ".git/searchindex.js",
        ] {
            assert_eq!(find(&["index.html", file]), None, "{file}");
        }
        assert_eq!(find(&["index.html"]), None);
        assert_eq!(find(&[]), None);
    }

    #[test]
    fn indexes_in_folders_count_if_they_are_for_most_of_the_pages() {
        for (files, expected) in [
            // One book for each language, below a page that leads to them.
            (
                &["de/a.html", "de/b.html", "de/searchindex.js", "en/a.html", "en/searchindex.js", "index.html"][..],
                Some("mdBook (de/searchindex.js)"),
            ),
            (
                &["docs/a.html", "docs/b/c.html", "docs/search/search_index.json", "index.html"],
                Some("MkDocs (docs/search/search_index.json)"),
            ),
            // The documentation of an API within a site.
            (&["a.html", "api/a.html", "api/search-index.js", "b.html", "index.html"], None),
            (&["api/a.html", "api/search-index.js", "index.html"], None),
            // The folder has an index, but no pages.
            (&["index.html", "x/searchindex.js"], None),
            (&["a.html", "apiary/b.html", "api/searchindex.js"], None),
            // An index without any page is of no use.
            (&["searchindex.js"], None),
            (&["api/search-index.js", "index.html", "searchindex.js"], Some("mdBook (searchindex.js)")),
        ] {
            assert_eq!(find(files).as_deref(), expected, "{files:?}");
        }
    }

    #[test]
    fn the_path_of_an_index_is_shown_on_one_line() {
        let own_search = OwnSearch { tool: SearchTool::MdBook, path: "a\n\u{1b}[2J/searchindex.js".to_owned() };
        let text = own_search.to_string();
        assert!(text.starts_with("mdBook (a") && !text.contains(char::is_control), "{text:?}");
    }
}
