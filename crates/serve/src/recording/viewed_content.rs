//! The page that counts as viewed when a response is sent. Pure.

use docwharf_base::model::site_path::is_page;
use docwharf_site::lookup::SiteFiles;
use docwharf_site::sealed_version::SealedVersion;

/// The page that counts as viewed when the response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ViewedContent {
    /// None: the response is no page of the served version.
    #[default]
    Nothing,
    /// The page with this file of the served version.
    Page(u32),
    /// The page with this file, whose Markdown agents read in its place.
    Markdown(u32),
}

impl ViewedContent {
    /// Returns the page that is viewed with a file of the served version: itself, or the page whose Markdown it is.
    pub(crate) fn of_file(version: &SealedVersion, file: usize) -> ViewedContent {
        let path = version.index().path(file);
        let number = |page: usize| u32::try_from(page).ok();
        if is_page(path) {
            return number(file).map_or(ViewedContent::Nothing, ViewedContent::Page);
        }
        let Some(stem) = path.strip_suffix(b".md") else { return ViewedContent::Nothing };
        // The names that the page of a Markdown file may have.
        let names = [stem.to_vec(), [stem, b".html"].concat(), [stem, b"/index.html"].concat()];
        let beside_folder = stem.strip_suffix(b"/index").map(|stem| [stem, b".html"].concat());
        let is_its_page = |page: &usize| version.markdown_of(*page) == Some(file);
        let page = names.into_iter().chain(beside_folder).find_map(|name| version.find(&name).filter(is_its_page));
        page.and_then(number).map_or(ViewedContent::Nothing, ViewedContent::Markdown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_versions::version_with_files;

    #[test]
    fn markdown_is_a_view_of_its_page_however_it_is_named() {
        for (page, markdown) in [
            ("a.html", "a.md"),
            ("a.html", "a.html.md"),
            ("a.html", "a/index.md"),
            ("a/index.html", "a.md"),
            ("a/index.html", "a/index.md"),
            ("a/index.html", "a/index.html.md"),
        ] {
            let version = version_with_files(&[(page, "a"), (markdown, "#"), ("z.css", "")], 0);
            let viewed =
                |path: &str| ViewedContent::of_file(&version, version.find(path.as_bytes()).expect("the file exists"));
            let number = version.find(page.as_bytes()).expect("the page exists") as u32;
            assert_eq!(viewed(page), ViewedContent::Page(number), "{page}");
            assert_eq!(viewed(markdown), ViewedContent::Markdown(number), "{page} {markdown}");
            assert_eq!(viewed("z.css"), ViewedContent::Nothing);
        }
        let version = version_with_files(&[("a.md", "#")], 0);
        assert_eq!(ViewedContent::of_file(&version, 0), ViewedContent::Nothing);
    }
}
