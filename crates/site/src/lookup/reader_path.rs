//! The path under which the views of a page are counted: one for a page, whichever of its addresses was requested and
//! however the bundle names its file. Pure.

use percent_encoding::percent_encode;

use docwharf_base::encode_sets::URL_PATH;

use super::site_files::SiteFiles;

/// Returns the path of the page with this file below `base_path`, percent-encoded: without `.html` and `/index.html`. A
/// folder's page keeps its slash if there is a page of the same name beside the folder.
pub fn reader_path(site: &impl SiteFiles, base_path: &str, path: &[u8]) -> String {
    let short = match path {
        b"index.html" => b"",
        _ if path.ends_with(b"/index.html") => {
            let folder = &path[..path.len() - b"/index.html".len()];
            let has_sibling = site.find(&[folder, b".html"].concat()).is_some();
            &path[..folder.len() + usize::from(has_sibling)]
        }
        _ => path.strip_suffix(b".html").filter(|stem| !stem.is_empty() && !stem.ends_with(b"/")).unwrap_or(path),
    };
    format!("{base_path}{}", percent_encode(short, URL_PATH))
}

#[cfg(test)]
mod tests {
    use super::super::site_files::path_list::PathListSite;
    use super::*;

    #[test]
    fn a_page_has_the_same_path_in_both_shapes_of_a_bundle() {
        let paths = |site: &PathListSite<'_>| -> Vec<String> {
            site.0.iter().map(|path| reader_path(site, "/docs/", path.as_bytes())).collect()
        };
        assert_eq!(paths(&PathListSite(&["guides/start.html", "index.html"])), ["/docs/guides/start", "/docs/"]);
        assert_eq!(paths(&PathListSite(&["guides/start/index.html"])), ["/docs/guides/start"]);
        assert_eq!(paths(&PathListSite(&["a.html", "a/index.html"])), ["/docs/a", "/docs/a/"]);
        assert_eq!(paths(&PathListSite(&["a b?.html", "é.html"])), ["/docs/a%20b%3F", "/docs/%C3%A9"]);
        assert_eq!(
            paths(&PathListSite(&[".html", "a/.html", "b.htm"])),
            ["/docs/.html", "/docs/a/.html", "/docs/b.htm"]
        );
    }
}
