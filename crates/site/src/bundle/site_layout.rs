//! Decides which files of a bundle are the site: finds the wrapper folder, leaves out launchers and junk, and
//! determines the layout of the pages (docs/design/archives.md, rules 11 and 12).

use docwharf_base::model::site_path::{SitePath, components, file_name, is_hidden, is_page};

use super::refusal::{BundleFault, BundleRefusal};

/// Helpers for offline use that the vendor adds at the site's root. They are not content.
const LAUNCHERS: [&[u8]; 3] = [b"serve.js", b"Start Docs.command", b"Start Docs.bat"];

/// The layout of a bundle: where the site is in it, and counts of its files by class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteLayout {
    wrapper: Option<Vec<u8>>,
    /// The number of HTML pages that can be requested.
    pub pages: u64,
    /// The number of files that operating systems and archivers leave behind.
    pub junk: u64,
    /// The number of launchers at the root.
    pub launchers: u64,
    /// The number of files that are part of the content but never served, such as `.git/config`.
    pub hidden: u64,
    /// Whether the site's root has an `index.html`.
    pub has_root_index: bool,
    /// The layout of the pages.
    pub page_layout: PageLayout,
}

/// The layout of the pages of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageLayout {
    /// Each page is a separate file, such as `guides/start.html`.
    Files,
    /// Each page is the index of a folder, such as `guides/start/index.html`.
    Folders,
    /// Both layouts occur, or the root page is the only page.
    Mixed,
}

impl PageLayout {
    /// The name of the layout in `--json` output.
    pub fn name(self) -> &'static str {
        match self {
            PageLayout::Files => "files",
            PageLayout::Folders => "folders",
            PageLayout::Mixed => "mixed",
        }
    }
}

impl SiteLayout {
    /// Determines the layout from the paths of all files of a bundle. Refuses a bundle without an HTML page.
    pub fn detect<'a>(paths: impl Iterator<Item = &'a SitePath> + Clone) -> Result<SiteLayout, BundleRefusal> {
        let wrapper = find_wrapper_folder(paths.clone());
        let mut site_layout = SiteLayout {
            wrapper,
            pages: 0,
            junk: 0,
            launchers: 0,
            hidden: 0,
            has_root_index: false,
            page_layout: PageLayout::Mixed,
        };
        let (mut in_files, mut in_folders) = (0u64, 0u64);
        for path in paths {
            if is_junk(path.as_bytes()) {
                site_layout.junk += 1;
                continue;
            }
            let Some(path) = site_layout.site_path(path) else {
                site_layout.launchers += 1;
                continue;
            };
            let path = path.as_bytes();
            if is_hidden(path) {
                site_layout.hidden += 1;
            } else if is_page(path) {
                site_layout.pages += 1;
                if path == b"index.html" {
                    site_layout.has_root_index = true;
                } else if path.ends_with(b"/index.html") {
                    in_folders += 1;
                } else if path != b"404.html" {
                    in_files += 1;
                }
            }
        }
        if site_layout.pages == 0 {
            return Err(BundleFault::NoPage.in_bundle());
        }
        site_layout.page_layout = match (in_files, in_folders) {
            (1.., 0) => PageLayout::Files,
            (0, 1..) => PageLayout::Folders,
            _ => PageLayout::Mixed,
        };
        Ok(site_layout)
    }

    /// The top folder that contains the whole site, if there is one.
    pub fn wrapper(&self) -> Option<&[u8]> {
        self.wrapper.as_deref()
    }

    /// Maps the path of a file in the bundle to its path in the site; `None` for junk and launchers.
    pub fn site_path(&self, path: &SitePath) -> Option<SitePath> {
        if is_junk(path.as_bytes()) || is_launcher(path.as_bytes()) {
            return None;
        }
        let path = match &self.wrapper {
            Some(folder) => path.strip_folder(folder)?,
            None => path.clone(),
        };
        (!is_launcher(path.as_bytes())).then_some(path)
    }
}

/// Whether a file was left behind by Finder, Explorer or their archivers. Junk is recognised at any depth.
fn is_junk(path: &[u8]) -> bool {
    let name = file_name(path);
    components(path).any(|c| c == b"__MACOSX")
        || name.starts_with(b"._")
        || name == b".DS_Store"
        || name.eq_ignore_ascii_case(b"thumbs.db")
        || name.eq_ignore_ascii_case(b"desktop.ini")
}

fn is_launcher(path: &[u8]) -> bool {
    LAUNCHERS.contains(&path)
}

/// Finds the one top folder that has an `index.html` and contains every file except launchers and junk.
fn find_wrapper_folder<'a>(paths: impl Iterator<Item = &'a SitePath>) -> Option<Vec<u8>> {
    let mut folder: Option<&[u8]> = None;
    let mut has_index = false;
    for path in paths {
        let path = path.as_bytes();
        if is_junk(path) || is_launcher(path) {
            continue;
        }
        let slash = path.iter().position(|&b| b == b'/')?;
        match folder {
            None => folder = Some(&path[..slash]),
            Some(top) if top == &path[..slash] => {}
            Some(_) => return None,
        }
        has_index |= &path[slash + 1..] == b"index.html";
    }
    // A hidden folder is never the site: removing it from the paths would publish its pages.
    folder.filter(|folder| has_index && !is_hidden(folder)).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_paths(names: &[&str]) -> Vec<SitePath> {
        names.iter().map(|n| SitePath::parse(n.as_bytes(), false).unwrap().unwrap()).collect()
    }

    fn site_paths(names: &[&str]) -> Vec<String> {
        let paths = parse_paths(names);
        let site_layout = SiteLayout::detect(paths.iter()).unwrap();
        let site_paths = paths.iter().filter_map(|p| site_layout.site_path(p));
        site_paths.map(|p| String::from_utf8(p.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn single_top_folder_with_an_index_page_is_stripped_once() {
        assert_eq!(site_paths(&["docs/index.html", "docs/a/b.css"]), ["index.html", "a/b.css"]);
        assert_eq!(site_paths(&["docs/index.html", "serve.js", "__MACOSX/docs/._index.html"]), ["index.html"]);
        assert_eq!(site_paths(&["docs/index.html", "docs/serve.js", "docs/x/serve.js"]), ["index.html", "x/serve.js"]);
        assert_eq!(site_paths(&["a/b/index.html"]), ["a/b/index.html"]);
        assert!(SiteLayout::detect(parse_paths(&[".git/index.html"]).iter()).is_err());
        assert_eq!(site_paths(&["a/index.html", "b/index.html"]), ["a/index.html", "b/index.html"]);
        assert_eq!(site_paths(&["a/index.html", "robots.txt"]), ["a/index.html", "robots.txt"]);
    }

    #[test]
    fn launcher_scripts_are_removed_only_at_the_site_root() {
        assert_eq!(
            site_paths(&["index.html", "serve.js", "Start Docs.bat", "sub/serve.js"]),
            ["index.html", "sub/serve.js"]
        );
    }

    #[test]
    fn page_layout_is_detected_from_the_paths_of_the_pages() {
        let layout = |names: &[&str]| SiteLayout::detect(parse_paths(names).iter()).unwrap().page_layout;
        assert_eq!(layout(&["index.html", "a.html", "404.html"]), PageLayout::Files);
        assert_eq!(layout(&["index.html", "a/index.html"]), PageLayout::Folders);
        assert_eq!(layout(&["index.html", "a/index.html", "b.html"]), PageLayout::Mixed);
        assert_eq!(layout(&["index.html"]), PageLayout::Mixed);
        // The page for 404 has one name in both layouts.
        assert_eq!(layout(&["index.html", "a/index.html", "404.html"]), PageLayout::Folders);
        assert_eq!(layout(&["index.html", "404.html"]), PageLayout::Mixed);
        assert_eq!(layout(&["index.html", "a/index.html", "a/404.html"]), PageLayout::Mixed);
        assert_eq!(layout(&["index.html", "a.htm", ".x/b/index.html"]), PageLayout::Files);
    }

    #[test]
    fn each_bundle_file_is_counted_once_as_page_junk_launcher_or_hidden_file() {
        let detect = |names: &[&str]| SiteLayout::detect(parse_paths(names).iter()).unwrap();
        let names = [
            "docs/index.html",
            "docs/a/index.html",
            "docs/main.css",
            "docs/.env",
            "docs/.git/page.html",
            "docs/.git/._page.html",
            "docs/a/Thumbs.db",
            "docs/._index.html",
            "docs/serve.js",
            "docs/a/serve.js",
            "__MACOSX/x.html",
            "Start Docs.bat",
            ".DS_Store",
        ];
        let expected = SiteLayout {
            wrapper: Some(b"docs".to_vec()),
            pages: 2,
            junk: 5,
            launchers: 2,
            hidden: 2,
            has_root_index: true,
            page_layout: PageLayout::Folders,
        };
        assert_eq!(detect(&names), expected);
        assert_eq!(expected.wrapper(), Some(&b"docs"[..]));
        let expected = SiteLayout {
            wrapper: None,
            pages: 3,
            junk: 0,
            launchers: 1,
            hidden: 1,
            has_root_index: false,
            page_layout: PageLayout::Mixed,
        };
        let without_root_page = ["a/index.html", "b/index.html", "c.htm", ".x/index.html", "Start Docs.command"];
        assert_eq!(detect(&without_root_page), expected);
    }

    #[test]
    fn bundle_with_only_hidden_pages_is_refused() {
        assert!(SiteLayout::detect(parse_paths(&[".git/index.html", "x.css"]).iter()).is_err());
    }
}
