//! The documentation that is searched. Each corpus is a folder with `html/`; `.ci/extra corpus` makes them from
//! packages of Debian.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use percent_encoding::percent_decode_str;

/// A site, and the kind of index that it brings.
#[derive(Debug)]
pub(crate) struct Corpus {
    /// The name in options and results, and of the folder.
    pub name: &'static str,
    /// The name in tables.
    pub title: &'static str,
    /// The folder of the site below the folder of the corpora.
    folder: &'static str,
    pub index: IndexFormat,
    pub lang: &'static str,
    /// Whether the pages name their language. Otherwise Pagefind gets it as an option.
    pub names_lang: bool,
    /// Whether the queries count in the pooled figures.
    pub is_pooled: bool,
    /// The greatest number of rounds in which indexing is measured.
    pub max_index_rounds: usize,
    /// The folder whose pages have the words that a typing error must not produce; empty for all pages.
    pub vocabulary_folder: &'static str,
}

/// The format of the index from which queries are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexFormat {
    /// `objects.inv` and `genindex-all.html` of Sphinx.
    Sphinx,
    /// The index of a book that the style sheets of `DocBook` have made, and the table of contents in `index.html`.
    DocBook {
        file: &'static str,
        /// Whether an entry below another one is a term of its own.
        has_nested_terms: bool,
    },
    /// The headings of all chapters of a book that mdBook has made.
    MdBook,
    /// `std/all.html` of rustdoc.
    Rustdoc,
}

/// All corpora.
pub(crate) const CORPORA: &[Corpus] = &[
    Corpus {
        name: "python",
        title: "Python",
        folder: "python/html",
        index: IndexFormat::Sphinx,
        lang: "en",
        names_lang: true,
        is_pooled: true,
        max_index_rounds: usize::MAX,
        vocabulary_folder: "",
    },
    Corpus {
        name: "postgresql",
        title: "PostgreSQL",
        folder: "postgresql/html",
        index: IndexFormat::DocBook { file: "bookindex.html", has_nested_terms: false },
        lang: "en",
        names_lang: false,
        is_pooled: true,
        max_index_rounds: usize::MAX,
        vocabulary_folder: "",
    },
    Corpus {
        name: "rustbook",
        title: "The Rust Book",
        folder: "rust/html/book",
        index: IndexFormat::MdBook,
        lang: "en",
        names_lang: true,
        is_pooled: true,
        max_index_rounds: usize::MAX,
        vocabulary_folder: "",
    },
    Corpus {
        name: "gimp",
        title: "GIMP in Japanese",
        folder: "gimp/html",
        index: IndexFormat::DocBook { file: "gimp-help-index.html", has_nested_terms: true },
        lang: "ja",
        names_lang: false,
        is_pooled: false,
        max_index_rounds: usize::MAX,
        vocabulary_folder: "",
    },
    Corpus {
        name: "rust",
        title: "all Rust documentation",
        folder: "rust/html",
        index: IndexFormat::Rustdoc,
        lang: "en",
        names_lang: true,
        is_pooled: false,
        // Pagefind takes minutes and gigabytes.
        max_index_rounds: 1,
        vocabulary_folder: "std/",
    },
];

impl Corpus {
    /// Whether its words have no spaces between them.
    pub(crate) fn is_cjk(&self) -> bool {
        self.lang == "ja"
    }
}

/// A corpus whose pages are known.
#[derive(Debug)]
pub(crate) struct OpenCorpus {
    pub corpus: &'static Corpus,
    /// The folder of the site.
    pub html: PathBuf,
    pub pages: PageSet,
}

impl OpenCorpus {
    /// Finds the pages of a corpus. `folder` has the folders of all corpora.
    pub(crate) fn open(corpus: &'static Corpus, folder: &Path) -> Result<Self, String> {
        let html = folder.join(corpus.folder);
        let html = fs::canonicalize(&html)
            .map_err(|error| format!("cannot find {} (`.ci/extra corpus` makes it): {error}", html.display()))?;
        let pages = PageSet::list(&html)?;
        Ok(Self { corpus, html, pages })
    }

    pub(crate) fn read(&self, page: &str) -> Result<Vec<u8>, String> {
        let path = self.html.join(page);
        fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    }

    pub(crate) fn read_text(&self, page: &str) -> Result<String, String> {
        self.read(page).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// The paths of all HTML pages of a site, relative to its root.
#[derive(Debug)]
pub(crate) struct PageSet {
    paths: BTreeSet<String>,
    bytes: u64,
}

impl PageSet {
    fn list(root: &Path) -> Result<Self, String> {
        let mut pages = Self { paths: BTreeSet::new(), bytes: 0 };
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let failure = |error: std::io::Error| format!("cannot list {}: {error}", folder.display());
            for entry in fs::read_dir(&folder).map_err(failure)? {
                let entry = entry.map_err(failure)?;
                let (path, metadata) = (entry.path(), entry.metadata().map_err(failure)?);
                if metadata.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "html")
                    && let Some(page) = path.strip_prefix(root).ok().and_then(Path::to_str)
                {
                    pages.bytes += metadata.len();
                    pages.paths.insert(page.to_owned());
                }
            }
        }
        Ok(pages)
    }

    pub(crate) fn has(&self, page: &str) -> bool {
        self.paths.contains(page)
    }

    pub(crate) fn paths(&self) -> impl Iterator<Item = &str> {
        self.paths.iter().map(String::as_str)
    }

    /// The number of pages and their size, by which a change of the corpus is noticed.
    pub(crate) fn describe(&self) -> String {
        format!("{} pages, {:.1} MB of HTML", self.paths.len(), self.bytes as f64 / 1e6)
    }

    /// Finds the page of an address that an engine has returned, in whichever form, and its anchor.
    pub(crate) fn find_address(&self, url: &str) -> Target {
        let (path, anchor) = url.split_once('#').map_or((url, None), |(path, anchor)| (path, Some(anchor)));
        let path = percent_decode_str(path.trim_start_matches('/')).decode_utf8_lossy().into_owned();
        let folder = if path.is_empty() || path.ends_with('/') { path.clone() } else { format!("{path}/") };
        let forms = [path.clone(), format!("{path}.html"), format!("{folder}index.html")];
        let page = forms.into_iter().find(|form| self.has(form)).unwrap_or(path);
        Target { page, anchor: anchor.map(decode_anchor) }
    }
}

fn decode_anchor(anchor: &str) -> String {
    percent_decode_str(anchor).decode_utf8_lossy().into_owned()
}

/// A place in a site: a page, and the anchor of one of its sections.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Target {
    /// The path of the file, relative to the root of the site.
    pub page: String,
    /// `None` for the page itself.
    pub anchor: Option<String>,
}

impl Target {
    /// Resolves a link of the page `base`; `None` if it leads to another site.
    pub(crate) fn from_href(href: &str, base: &str) -> Option<Self> {
        if href.contains("://") || href.starts_with("mailto:") {
            return None;
        }
        let (path, anchor) = href.split_once('#').map_or((href, None), |(path, anchor)| (path, Some(anchor)));
        let page = if path.is_empty() { base.to_owned() } else { resolve_path(path, base) };
        let anchor = anchor.filter(|anchor| !anchor.is_empty()).map(decode_anchor);
        Some(Self { page: percent_decode_str(&page).decode_utf8_lossy().into_owned(), anchor })
    }
}

fn resolve_path(path: &str, base: &str) -> String {
    let folder = base.rsplit_once('/').map_or("", |(folder, _)| folder);
    let mut names: Vec<&str> = folder.split('/').filter(|name| !name.is_empty()).collect();
    for name in path.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                names.pop();
            }
            name => names.push(name),
        }
    }
    names.join("/")
}

impl std::fmt::Display for Target {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.anchor {
            Some(anchor) => write!(formatter, "{}#{anchor}", self.page),
            None => write!(formatter, "{}", self.page),
        }
    }
}
