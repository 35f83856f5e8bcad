//! An opened version: its image, its index and the rules in its files.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use docwharf_base::codec::inflate::{InflateFault, InflateStatus, Inflater, inflate_all};
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::format_size;
use docwharf_base::model::version::VersionId;

use super::index::{EntryCompression, ImageIndex, IndexEntry, IndexFault};
use super::lookup::resolve::Slashes;
use super::lookup::site_files::SiteFiles;
use super::lookup::unserved_paths::is_never_served;
use super::mapping::MappedImage;
use super::media_types::{self, CacheClass};
use super::rules::rule_draft::RuleDraft;
use super::rules::rule_set::RuleSet;
use super::rules::{docs_json, netlify_files};

/// A sealed version in memory.
#[derive(Debug)]
pub struct SealedVersion {
    /// The version id.
    pub id: VersionId,
    /// Identifies this opened version among all of the process. The same version may be opened again from an image
    /// whose files are compressed differently.
    pub instance_id: u64,
    image: MappedImage,
    index: ImageIndex,
    /// The index number of the site's `404.html`, or else of its `404/index.html`.
    pub not_found: Option<usize>,
    /// The meaning of `slashes = "auto"` for this site.
    pub auto_slashes: Slashes,
    /// Whether the site is a Next.js export: there is a root `_next/` folder.
    pub is_next: bool,
    /// The index number of the site's `llms.txt`, an index for language model assistants.
    pub llms: Option<usize>,
    rules: RuleSet,
}

/// The maximum size of `_redirects` and `_headers`, in bytes. A larger file is not read.
const MAX_RULES_FILE_BYTES: u64 = 2_000_000;
/// The maximum size of `docs.json`, in bytes. A larger file is not read.
const MAX_DOCS_JSON_BYTES: u64 = 8_000_000;

/// The size of the pieces in which the content of a file that is not compressed is read, in bytes.
const PIECE_BYTES: usize = 256 * 1024;

/// The number for the next version that this process opens.
static NEXT_INSTANCE_ID: AtomicU64 = AtomicU64::new(0);

impl SealedVersion {
    /// Opens a version from an image and the index that was checked against it.
    pub fn new(id: VersionId, image: MappedImage, index: ImageIndex) -> SealedVersion {
        let is_next = index.first_path_from(b"_next/").is_some_and(|path| path.starts_with(b"_next/"));
        let not_found = index.find(b"404.html").or_else(|| index.find(b"404/index.html"));
        let auto_slashes = if is_next { Slashes::Serve } else { Slashes::Redirect };
        let llms = index.find(b"llms.txt");
        let rules = RuleSet::default();
        let instance_id = NEXT_INSTANCE_ID.fetch_add(1, Ordering::Relaxed);
        let mut sealed = SealedVersion { id, instance_id, image, index, not_found, auto_slashes, is_next, llms, rules };
        sealed.rules = RuleSet::new(sealed.read_rules());
        sealed
    }

    /// Reads the rules in the site's own files.
    fn read_rules(&self) -> RuleDraft {
        let mut draft = RuleDraft::default();
        if let Some(text) = self.read_text(netlify_files::REDIRECTS_FILE, MAX_RULES_FILE_BYTES, &mut draft) {
            netlify_files::read_redirects(&text, netlify_files::REDIRECTS_FILE, &mut draft);
        }
        if let Some(text) = self.read_text(docs_json::FILE_NAME, MAX_DOCS_JSON_BYTES, &mut draft) {
            docs_json::read_redirects(&text, docs_json::FILE_NAME, false, &mut draft);
        }
        if let Some(text) = self.read_text(netlify_files::HEADERS_FILE, MAX_RULES_FILE_BYTES, &mut draft) {
            netlify_files::read_headers(&text, netlify_files::HEADERS_FILE, &mut draft);
        }
        draft
    }

    /// Returns a file of the site as text, if it exists and has at most `max_bytes` bytes.
    fn read_text(&self, name: &str, max_bytes: u64, draft: &mut RuleDraft) -> Option<String> {
        let entry = self.entry(self.index.find(name.as_bytes())?);
        let fault = if entry.len > max_bytes {
            format!("it is larger than {}", format_size(max_bytes))
        } else {
            match self.content(&entry).map(|content| String::from_utf8(content.into())) {
                Ok(Ok(text)) => return Some(text),
                Ok(Err(_)) => "it is not UTF-8".to_owned(),
                Err(error) => format!("it cannot be read: {error}"),
            }
        };
        draft.add_fault(name.to_owned(), fault);
        None
    }

    /// Describes the faults in the site's own rules on one line; `None` without faults.
    pub fn describe_rule_faults(&self) -> Option<String> {
        let (first, others) = self.rules.faults.split_first()?;
        let more = if others.is_empty() { String::new() } else { format!(" (and {} more)", others.len()) };
        let line = format!("{first}; it is ignored{more}; `docwharf redirects check` lists all of them");
        Some(OneLine(&line).to_string())
    }

    /// Returns the index, whose files are in byte order of their paths.
    pub fn index(&self) -> &ImageIndex {
        &self.index
    }

    /// Verifies the index in full, which [`ImageIndex::read`] does not.
    pub fn verify_index(&self) -> Result<(), IndexFault> {
        self.index.verify(self.id)
    }

    /// Returns the record of a file.
    pub fn entry(&self, file: usize) -> IndexEntry {
        self.index.entry(file)
    }

    /// Returns a file's compressed bytes in the image, without a copy.
    pub fn compressed_bytes(&self, entry: &IndexEntry) -> Bytes {
        // The bounds were checked when the index was read. If the disk has lost a part of the index since, the result
        // is empty, the response is shorter than announced, and the connection is closed.
        let end = entry.offset.checked_add(entry.compressed_len).filter(|&end| end <= self.image.len() as u64);
        end.map_or_else(Bytes::new, |end| self.image.slice(entry.offset as usize..end as usize))
    }

    /// Returns the whole content of a file, inflated if necessary. It is meant for small files.
    pub fn content(&self, entry: &IndexEntry) -> Result<Bytes, InflateFault> {
        let compressed = self.compressed_bytes(entry);
        match entry.compression {
            EntryCompression::Stored => Ok(compressed),
            EntryCompression::Deflate => inflate_all(&compressed, entry.len as usize).map(Bytes::from),
        }
    }

    /// Passes the content of a file to `sink` piece by piece, until `sink` returns false.
    pub(crate) fn read_in_pieces(
        &self,
        entry: &IndexEntry,
        inflate: &mut Inflater,
        sink: &mut dyn FnMut(&[u8]) -> bool,
    ) {
        let compressed = self.compressed_bytes(entry);
        if entry.compression == EntryCompression::Stored {
            let _ = compressed.chunks(PIECE_BYTES).all(sink);
            return;
        }
        inflate.reset();
        let mut input_start = 0;
        // The stream was verified when it was sealed. If the file has been damaged since, the content ends at the
        // damage.
        while let Ok(step) = inflate.run(&compressed[input_start..], true) {
            input_start += step.consumed;
            let output = inflate.output();
            let makes_no_progress = step.consumed == 0 && output.is_empty();
            if !sink(output) || step.status == InflateStatus::Done || makes_no_progress {
                return;
            }
        }
    }

    /// Returns the media type of a file.
    pub fn content_type(&self, file: usize) -> Cow<'static, str> {
        media_types::content_type(self.index.path(file))
    }

    /// Whether a file is an archive for download.
    pub fn is_archive(&self, file: usize) -> bool {
        media_types::is_archive(self.index.path(file))
    }

    /// Returns the cache class of a file.
    pub fn cache_class(&self, file: usize) -> CacheClass {
        media_types::cache_class(self.index.path(file))
    }
}

impl SiteFiles for SealedVersion {
    fn is_next(&self) -> bool {
        self.is_next
    }

    fn find(&self, path: &[u8]) -> Option<usize> {
        self.index.find(path)
    }

    fn rules(&self) -> &RuleSet {
        &self.rules
    }

    fn markdown_of(&self, page: usize) -> Option<usize> {
        // Stored indexes have pairs with files that are never served.
        self.index.markdown_of(page).filter(|&file| !is_never_served(self.index.path(file)))
    }
}

#[cfg(test)]
pub(super) mod test_versions {
    use super::*;
    use crate::index::encode_index;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionManifest;

    /// Creates a version of these files in memory; nothing is compressed.
    pub(crate) fn version_with_files<T: AsRef<[u8]>>(files: &[(&str, T)]) -> SealedVersion {
        let mut files: Vec<(&[u8], &[u8])> =
            files.iter().map(|(path, text)| (path.as_bytes(), text.as_ref())).collect();
        files.sort_unstable();
        let (mut image, mut manifest, mut entries) = (Vec::new(), VersionManifest::default(), Vec::new());
        for &(path, text) in &files {
            let (offset, len, content) = (image.len() as u64, text.len() as u64, Digest::compute(text));
            manifest.add(&content, len, path);
            image.extend_from_slice(text);
            let entry = IndexEntry {
                compression: EntryCompression::Stored,
                offset,
                compressed_len: len,
                len,
                crc: crc32fast::hash(text),
                content,
                compressed_crc: 0,
                last_block_bit: 0,
                spare_bits: 0,
                modified: 0,
            };
            entries.push((path, entry));
        }
        let (id, len) = (manifest.id(), image.len() as u64);
        let index = ImageIndex::decode(encode_index(len, id, &entries), len, id).unwrap();
        SealedVersion::new(id, image.into(), index)
    }
}

#[cfg(test)]
mod tests {
    use super::test_versions::version_with_files;
    use super::*;

    /// The paths of a site, whether it is a Next.js export, its page for 404, and its `llms.txt`.
    type SiteCase<'a> = (&'a [&'a str], bool, Option<&'a str>, Option<&'a str>);

    #[test]
    fn next_site_not_found_page_and_llms_txt_are_detected_from_file_names() {
        let cases: [SiteCase<'_>; 5] = [
            (&["index.html"], false, None, None),
            (&["404.html", "404/index.html", "llms.txt"], false, Some("404.html"), Some("llms.txt")),
            (&["404/index.html", "sub/404.html", "sub/llms.txt"], false, Some("404/index.html"), None),
            (&["_next/static/a.js"], true, None, None),
            (&["_next", "_nextra/a.js", "a/_next/b.js"], false, None, None),
        ];
        for (files, is_next, not_found, llms) in cases {
            let site = version_with_files(&files.iter().map(|&name| (name, "x")).collect::<Vec<_>>());
            let name =
                |file: Option<usize>| file.map(|file| String::from_utf8(site.index().path(file).to_vec()).unwrap());
            assert_eq!(site.is_next, is_next, "{files:?}");
            assert_eq!(site.auto_slashes == Slashes::Serve, is_next, "{files:?}");
            assert_eq!((name(site.not_found).as_deref(), name(site.llms).as_deref()), (not_found, llms), "{files:?}");
        }
        // Two openings of one version may send different bytes; what is cached for one is not used for the other.
        let [first, second] = [(); 2].map(|()| version_with_files(&[("index.html", "x")]));
        assert_eq!(first.id, second.id);
        assert_ne!(first.instance_id, second.instance_id);
    }

    #[test]
    fn site_rules_are_read_from_redirects_docs_json_and_headers_files_in_order() {
        let docs_json =
            r#"{"redirects": [{"source": "/a", "destination": "/d"}, {"source": "/b", "destination": "/d"}]}"#;
        let site =
            version_with_files(&[("_headers", "/*\n X-A: 1\n"), ("_redirects", "/a /r\n"), ("docs.json", docs_json)]);
        let places: Vec<&str> = site.rules().list().iter().map(|rule| &*rule.place).collect();
        assert_eq!(places, ["_redirects:1", "docs.json: redirects[0]", "docs.json: redirects[1]"]);
        assert!(!site.rules().fields.is_empty());
        assert_eq!(site.describe_rule_faults(), None);
    }

    #[test]
    fn rules_file_above_its_size_limit_is_ignored_and_its_faults_are_one_line() {
        let fill_file = |start: &str, filler: &str, max_bytes: u64| {
            format!("{start}{}", filler.repeat(max_bytes as usize - start.len()))
        };
        for (name, start, filler, max_bytes) in [
            ("_redirects", "/a /b\n#", "x", MAX_RULES_FILE_BYTES),
            ("_headers", "/a\n X-A: 1\n#", "x", MAX_RULES_FILE_BYTES),
            ("docs.json", r#"{"redirects": [{"source": "/a", "destination": "/b"}]}"#, " ", MAX_DOCS_JSON_BYTES),
        ] {
            let read_rules = |text: &[u8]| {
                let site = version_with_files(&[(name, text)]);
                (
                    !site.rules().list().is_empty() || !site.rules().fields.is_empty(),
                    site.describe_rule_faults().unwrap_or_default(),
                )
            };
            assert_eq!(read_rules(fill_file(start, filler, max_bytes).as_bytes()), (true, String::new()), "{name}");
            let (read, faults) = read_rules(fill_file(start, filler, max_bytes + 1).as_bytes());
            assert!(!read && faults.starts_with(&format!("{name}: it is larger than ")), "{name}: {faults}");
            let (read, faults) = read_rules(b"/a /b\n\xff");
            assert!(!read && faults.starts_with(&format!("{name}: it is not UTF-8")), "{name}: {faults}");
        }
        let faults = |text: &str| version_with_files(&[("_redirects", text)]).describe_rule_faults().unwrap();
        assert!(!faults("/a\n").contains(" more)"), "{}", faults("/a\n"));
        assert!(faults("/a\n/b\n/c\n").contains("(and 2 more)"), "{}", faults("/a\n/b\n/c\n"));
    }

    #[test]
    fn index_entry_beyond_the_end_of_the_image_has_no_bytes() {
        let site = version_with_files(&[("a", "one"), ("b", "two")]);
        let entry = site.entry(1);
        assert_eq!((site.compressed_bytes(&entry), site.content(&entry).unwrap()), ("two".into(), "two".into()));
        for (offset, compressed_len) in [(4, 3), (3, 4), (7, 0), (u64::MAX, 1)] {
            assert!(
                site.compressed_bytes(&IndexEntry { offset, compressed_len, ..entry }).is_empty(),
                "{offset} {compressed_len}"
            );
        }
    }
}
