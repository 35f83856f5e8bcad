//! A version ready to be read: its bytes and its index.

use std::borrow::Cow;

use bytes::Bytes;

use crate::base::chain::OneLine;
use crate::model::units::show_size;
use crate::model::version::VersionId;

use super::index::{Coding, Entry, Index, IndexFault};
use super::lookup::{Files, Slashes};
use super::mapping::Image;
use super::rules::{Draft, Rules, docs_json, hosting};
use super::types::{self, CacheClass};

/// A sealed version in memory.
#[derive(Debug)]
pub struct Sealed {
    /// Which version it is.
    pub id: VersionId,
    image: Image,
    index: Index,
    /// The number of the site's `404.html`.
    pub not_found: Option<usize>,
    /// What `slashes = "auto"` means for this site.
    pub auto_slashes: Slashes,
    /// Whether Next.js has exported it: there is a root `_next/` folder.
    pub is_next: bool,
    /// The site's `llms.txt`, its index for assistants.
    pub llms: Option<usize>,
    rules: Rules,
}

/// A larger `_redirects` or `_headers`, in bytes, is not read.
const RULES_FILE: u64 = 2_000_000;
/// A larger `docs.json`, in bytes, is not read.
const DOCS_JSON: u64 = 8_000_000;

impl Sealed {
    /// Joins an image with the index that was checked against it.
    pub fn new(id: VersionId, image: Image, index: Index) -> Sealed {
        let is_next = index.first_from(b"_next/").is_some_and(|path| path.starts_with(b"_next/"));
        let not_found = index.find(b"404.html").or_else(|| index.find(b"404/index.html"));
        let auto_slashes = if is_next { Slashes::Serve } else { Slashes::Redirect };
        let llms = index.find(b"llms.txt");
        let rules = Rules::default();
        let mut sealed = Sealed { id, image, index, not_found, auto_slashes, is_next, llms, rules };
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

    /// Proves the index, if it has only been read.
    pub fn prove_index(&self) -> Result<(), IndexFault> {
        self.index.prove(self.id)
    }

    /// The record of a file.
    pub fn entry(&self, file: usize) -> Entry {
        self.index.entry(file)
    }

    /// A file's bytes as they lie in the image, without a copy.
    pub fn coded(&self, entry: &Entry) -> Bytes {
        // The index was checked against the image's length when it was read. If a disk has lost a part of it since then,
        // there is too little to send, and the connection breaks off.
        let end = entry.offset.checked_add(entry.coded_len).filter(|&end| end <= self.image.len() as u64);
        end.map_or_else(Bytes::new, |end| self.image.slice(entry.offset as usize..end as usize))
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
        self.index.find(path)
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    fn markdown(&self, page: usize) -> Option<usize> {
        self.index.markdown(page)
    }
}
