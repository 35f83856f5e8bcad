//! A version ready to be read: its bytes, its index, and a table from path to file that is built once.

use std::borrow::Cow;
use std::collections::HashMap;

use bytes::Bytes;

use crate::base::chain::OneLine;
use crate::model::site_path::is_page;
use crate::model::units::show_size;
use crate::model::version::VersionId;

use super::index::{Coding, Entry, Index};
use super::lookup::{Files, Slashes};
use super::rules::{Draft, Rules, docs_json, hosting};
use super::types::{self, CacheClass};

/// A sealed version in memory.
#[derive(Debug)]
pub struct Sealed {
    /// Which version it is.
    pub id: VersionId,
    image: Bytes,
    index: Index,
    table: Vec<u32>,
    /// The number of the site's `404.html`.
    pub not_found: Option<usize>,
    /// What `slashes = "auto"` means for this site.
    pub auto_slashes: Slashes,
    /// Whether Next.js has exported it: there is a root `_next/` folder.
    pub is_next: bool,
    /// The site's `llms.txt`, its index for assistants.
    pub llms: Option<usize>,
    rules: Rules,
    /// Markdown by the page that it says the same as.
    markdown: HashMap<u32, u32>,
}

const EMPTY: u32 = u32::MAX;

/// A larger `_redirects` or `_headers`, in bytes, is not read.
const RULES_FILE: u64 = 2_000_000;
/// A larger `docs.json`, in bytes, is not read.
const DOCS_JSON: u64 = 8_000_000;

impl Sealed {
    /// Joins an image with the index that was checked against it.
    pub fn new(id: VersionId, image: Bytes, index: Index) -> Sealed {
        let mut table = vec![EMPTY; (index.len() * 2).next_power_of_two().max(2)];
        let mask = table.len() - 1;
        let mut is_next = false;
        for i in 0..index.len() {
            let path = index.path(i);
            is_next |= path.starts_with(b"_next/");
            let mut slot = hash(path) & mask;
            while table[slot] != EMPTY {
                slot = (slot + 1) & mask;
            }
            table[slot] = i as u32;
        }
        let not_found = index.find(b"404.html").or_else(|| index.find(b"404/index.html"));
        let auto_slashes = if is_next { Slashes::Serve } else { Slashes::Redirect };
        let llms = index.find(b"llms.txt");
        let (rules, markdown) = (Rules::default(), beside(&index));
        let mut sealed = Sealed { id, image, index, table, not_found, auto_slashes, is_next, llms, rules, markdown };
        sealed.rules = Rules::new(sealed.draft());
        sealed
    }

    /// Reads the rules that the site brings along.
    fn draft(&self) -> Draft {
        let mut draft = Draft::default();
        if let Some(text) = self.text(hosting::REDIRECTS, RULES_FILE, &mut draft) {
            hosting::redirects(&text, hosting::REDIRECTS, &mut draft);
        }
        if let Some(text) = self.text(docs_json::NAME, DOCS_JSON, &mut draft) {
            docs_json::redirects(&text, docs_json::NAME, false, &mut draft);
        }
        if let Some(text) = self.text(hosting::HEADERS, RULES_FILE, &mut draft) {
            hosting::headers(&text, hosting::HEADERS, &mut draft);
        }
        draft
    }

    /// A file of the site as text, if it is there and has at most so many bytes.
    fn text(&self, name: &str, most: u64, draft: &mut Draft) -> Option<String> {
        let entry = self.entry(self.index.find(name.as_bytes())?);
        let what = if entry.len > most {
            format!("it is larger than {}", show_size(most))
        } else {
            match self.content(&entry).map(|content| String::from_utf8(content.into())) {
                Ok(Ok(text)) => return Some(text),
                Ok(Err(_)) => "it is not UTF-8".to_owned(),
                Err(error) => format!("it cannot be read: {error}"),
            }
        };
        draft.fault(name.to_owned(), what);
        None
    }

    /// What is wrong with the rules that the site brings along, on one line.
    pub fn doubts(&self) -> Option<String> {
        let (first, more) = self.rules.faults.split_first()?;
        let more = if more.is_empty() { String::new() } else { format!(" (and {} more of them)", more.len()) };
        let line = format!("{first}; that is left out{more}, and `docwharf redirects check` tells all");
        Some(OneLine(&line).to_string())
    }

    /// The files, in byte order of their paths.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// The record of a file.
    pub fn entry(&self, file: usize) -> Entry {
        self.index.entry(file)
    }

    /// A file's bytes as they lie in the image, without a copy.
    pub fn coded(&self, entry: &Entry) -> Bytes {
        // The index was checked against the image's length when it was read.
        self.image.slice(entry.offset as usize..(entry.offset + entry.coded_len) as usize)
    }

    /// The whole content of a file, decoded if need be; meant for small ones.
    pub fn content(&self, entry: &Entry) -> Result<Bytes, crate::codec::inflate::InflateFault> {
        let coded = self.coded(entry);
        match entry.coding {
            Coding::Stored => Ok(coded),
            Coding::Deflate => crate::codec::inflate::all(&coded, entry.len as usize).map(Bytes::from),
        }
    }

    /// The media type of a file.
    pub fn content_type(&self, file: usize) -> Cow<'static, str> {
        types::content_type(self.index.path(file))
    }

    /// Whether a file is an archive for download.
    pub fn is_archive(&self, file: usize) -> bool {
        types::is_archive(self.index.path(file))
    }

    /// How long a file may be cached.
    pub fn cache_class(&self, file: usize) -> CacheClass {
        types::cache_class(self.index.path(file))
    }
}

impl Files for Sealed {
    fn is_next(&self) -> bool {
        self.is_next
    }

    fn find(&self, path: &[u8]) -> Option<usize> {
        let mask = self.table.len() - 1;
        let mut slot = hash(path) & mask;
        loop {
            let file = self.table[slot];
            if file == EMPTY {
                return None;
            }
            if self.index.path(file as usize) == path {
                return Some(file as usize);
            }
            slot = (slot + 1) & mask;
        }
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn markdown(&self, page: usize) -> Option<usize> {
        self.markdown.get(&u32::try_from(page).ok()?).map(|&file| file as usize)
    }
}

/// Finds the pages beside which Markdown lies: `x.md`, `x.html.md` or `x/index.md` for a page `x.html` or
/// `x/index.html`. Where there are several, the first of these counts.
fn beside(index: &Index) -> HashMap<u32, u32> {
    let mut found: HashMap<u32, (usize, u32)> = HashMap::new();
    for file in 0..index.len() {
        let Some(stem) = index.path(file).strip_suffix(b".md") else { continue };
        let page = |name: &[u8]| index.find(name).filter(|_| is_page(name));
        let joined = |end: &[u8]| page(&[stem, end].concat());
        // The shorter a name, the more it is meant for everybody.
        let (rank, page) = if let Some(page) = page(stem) {
            (1, page)
        } else if let Some(page) = joined(b".html").or_else(|| joined(b"/index.html")) {
            (if stem.ends_with(b"/index") { 2 } else { 0 }, page)
        } else if let Some(page) = stem.strip_suffix(b"/index").and_then(|stem| page(&[stem, b".html"].concat())) {
            (3, page)
        } else {
            continue;
        };
        let entry = found.entry(page as u32).or_insert((rank, file as u32));
        if rank < entry.0 {
            *entry = (rank, file as u32);
        }
    }
    found.into_iter().map(|(page, (_, file))| (page, file)).collect()
}

/// FNV-1a. The table is sealed with the site, so no request can make its chains longer.
fn hash(path: &[u8]) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in path {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash ^ hash >> 32) as usize
}
