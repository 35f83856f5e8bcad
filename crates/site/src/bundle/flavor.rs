//! Which part of a bundle is the site: layouts, the wrapper folder, launchers, junk (rules A11, A12).

use docwharf_base::model::site_path::{SitePath, components, file_name, is_hidden, is_page};

use super::policy::{Fault, Refusal};

/// The vendor's helpers for offline use, at the site's root; not content.
const LAUNCHERS: [&[u8]; 3] = [b"serve.js", b"Start Docs.command", b"Start Docs.bat"];

/// What a bundle turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flavor {
    wrapper: Option<Vec<u8>>,
    /// HTML pages that can be reached.
    pub pages: u64,
    /// Files that operating systems and archivers leave behind.
    pub junk: u64,
    /// Launchers at the root.
    pub launchers: u64,
    /// Files that are part of the content but never served, such as `.git/config`.
    pub hidden: u64,
    /// Whether the root has an `index.html`.
    pub has_index: bool,
    /// How pages are laid out.
    pub layout: Layout,
}

/// How pages are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// `guides/start.html`
    Files,
    /// `guides/start/index.html`
    Folders,
    /// Both, or a root page alone.
    Mixed,
}

impl Layout {
    /// The name that `--json` uses.
    pub fn name(self) -> &'static str {
        match self {
            Layout::Files => "files",
            Layout::Folders => "folders",
            Layout::Mixed => "mixed",
        }
    }
}

impl Flavor {
    /// Judges the paths of all files of a bundle. Without a page it is no site.
    pub fn of<'a>(paths: impl Iterator<Item = &'a SitePath> + Clone) -> Result<Flavor, Refusal> {
        let wrapper = wrapper(paths.clone());
        let mut flavor =
            Flavor { wrapper, pages: 0, junk: 0, launchers: 0, hidden: 0, has_index: false, layout: Layout::Mixed };
        let (mut in_files, mut in_folders) = (0u64, 0u64);
        for path in paths {
            if is_junk(path.as_bytes()) {
                flavor.junk += 1;
                continue;
            }
            let Some(path) = flavor.site_path(path) else {
                flavor.launchers += 1;
                continue;
            };
            let path = path.as_bytes();
            if is_hidden(path) {
                flavor.hidden += 1;
            } else if is_page(path) {
                flavor.pages += 1;
                if path == b"index.html" {
                    flavor.has_index = true;
                } else if path.ends_with(b"/index.html") {
                    in_folders += 1;
                } else if path != b"404.html" {
                    in_files += 1;
                }
            }
        }
        if flavor.pages == 0 {
            return Err(Fault::NoPage.of_archive());
        }
        flavor.layout = match (in_files, in_folders) {
            (1.., 0) => Layout::Files,
            (0, 1..) => Layout::Folders,
            _ => Layout::Mixed,
        };
        Ok(flavor)
    }

    /// The one folder that the site lies in, if it does.
    pub fn wrapper(&self) -> Option<&[u8]> {
        self.wrapper.as_deref()
    }

    /// Where a file of the bundle lies in the site; `None` for junk and launchers.
    pub fn site_path(&self, path: &SitePath) -> Option<SitePath> {
        if is_junk(path.as_bytes()) || is_launcher(path.as_bytes()) {
            return None;
        }
        let path = match &self.wrapper {
            Some(folder) => path.below(folder)?,
            None => path.clone(),
        };
        (!is_launcher(path.as_bytes())).then_some(path)
    }
}

/// Left by Finder, Explorer and their archivers; at any depth.
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

/// The one top folder with an `index.html` that holds everything but launchers and junk.
fn wrapper<'a>(paths: impl Iterator<Item = &'a SitePath>) -> Option<Vec<u8>> {
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
            Some(known) if known == &path[..slash] => {}
            Some(_) => return None,
        }
        has_index |= &path[slash + 1..] == b"index.html";
    }
    // A hidden folder is never the site: its pages must not be uncovered by taking it away.
    folder.filter(|folder| has_index && !is_hidden(folder)).map(<[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge(names: &[&str]) -> Vec<SitePath> {
        names.iter().map(|n| SitePath::judge(n.as_bytes(), false).unwrap().unwrap()).collect()
    }

    fn site(names: &[&str]) -> Vec<String> {
        let paths = judge(names);
        let flavor = Flavor::of(paths.iter()).unwrap();
        let site = paths.iter().filter_map(|p| flavor.site_path(p));
        site.map(|p| String::from_utf8(p.as_bytes().to_vec()).unwrap()).collect()
    }

    #[test]
    fn one_top_folder_with_an_index_is_taken_away_once() {
        assert_eq!(site(&["docs/index.html", "docs/a/b.css"]), ["index.html", "a/b.css"]);
        assert_eq!(site(&["docs/index.html", "serve.js", "__MACOSX/docs/._index.html"]), ["index.html"]);
        assert_eq!(site(&["docs/index.html", "docs/serve.js", "docs/x/serve.js"]), ["index.html", "x/serve.js"]);
        assert_eq!(site(&["a/b/index.html"]), ["a/b/index.html"]);
        assert!(Flavor::of(judge(&[".git/index.html"]).iter()).is_err());
        assert_eq!(site(&["a/index.html", "b/index.html"]), ["a/index.html", "b/index.html"]);
        assert_eq!(site(&["a/index.html", "robots.txt"]), ["a/index.html", "robots.txt"]);
    }

    #[test]
    fn launchers_count_at_the_root_only() {
        assert_eq!(site(&["index.html", "serve.js", "Start Docs.bat", "sub/serve.js"]), ["index.html", "sub/serve.js"]);
    }

    #[test]
    fn the_layout_is_told_by_the_pages() {
        let layout = |names: &[&str]| Flavor::of(judge(names).iter()).unwrap().layout;
        assert_eq!(layout(&["index.html", "a.html", "404.html"]), Layout::Files);
        assert_eq!(layout(&["index.html", "a/index.html"]), Layout::Folders);
        assert_eq!(layout(&["index.html", "a/index.html", "b.html"]), Layout::Mixed);
        assert_eq!(layout(&["index.html"]), Layout::Mixed);
    }

    #[test]
    fn hidden_pages_make_no_site() {
        assert!(Flavor::of(judge(&[".git/index.html", "x.css"]).iter()).is_err());
    }
}
