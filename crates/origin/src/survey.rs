//! What a site looks like from outside, without reading a single page: enough to tell whether anything has changed, how
//! much there is to do, and what a sitemap lists.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use docwharf_site::bundle::ReadError;
use docwharf_site::bundle::flavor::Flavor;
use docwharf_site::bundle::folder::Folder;
use docwharf_base::model::digest::{Digest, Hasher};
use docwharf_base::model::limits::Limits;
use docwharf_base::model::site_path::{is_hidden, is_page};

use super::Domain;

/// What a sitemap's addresses are written with: nothing that URL, XML or a comment could take for its own.
const IN_ADDRESS: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A page of a folder.
#[derive(Debug)]
pub(super) struct Page {
    /// How many files come before it.
    pub(super) position: usize,
    /// Its address without extension, `guides/start`; none for what answers for pages that are missing.
    address: Option<Vec<u8>>,
    modified: SystemTime,
}

/// A site as the file system lists it.
#[derive(Debug)]
pub(super) struct Survey {
    /// Over path, size and time of every file: another digest, another site.
    pub(super) digest: Digest,
    /// Content of a folder, or the size of an archive.
    pub(super) bytes: u64,
    /// In the order in which a folder is read; an archive's only page is its root, because what else it holds is not
    /// known before it has been read.
    pub(super) pages: Vec<Page>,
}

impl Survey {
    /// Looks at the folder or archive at `path`.
    pub(super) fn of(path: &Path, limits: &Limits) -> Result<Survey, ReadError> {
        let metadata = std::fs::metadata(path).map_err(ReadError::io(path))?;
        if metadata.is_dir() {
            Ok(Survey::of_folder(&Folder::open(path, limits)?))
        } else {
            Ok(Survey::of_file(&metadata))
        }
    }

    fn of_file(metadata: &Metadata) -> Survey {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let digest = Digest::of(format!("{} {}\n", metadata.len(), show(modified)).as_bytes());
        let root = Page { position: 0, address: Some(Vec::new()), modified };
        Survey { digest, bytes: metadata.len(), pages: vec![root] }
    }

    fn of_folder(folder: &Folder) -> Survey {
        let mut hasher = Hasher::new();
        let mut bytes = 0u64;
        for item in &folder.items {
            hasher.update(item.path.as_bytes());
            // No path holds a NUL, so that no two lists of files read the same.
            hasher.update(format!("\0{} {}\n", item.size, show(item.modified)).as_bytes());
            bytes = bytes.saturating_add(item.size);
        }
        let mut pages = Vec::new();
        // A folder without a page is refused when it is packed; it has a sitemap all the same.
        if let Ok(flavor) = Flavor::of(folder.items.iter().map(|item| &item.path)) {
            for (position, item) in folder.items.iter().enumerate() {
                let Some(path) = flavor.site_path(&item.path) else { continue };
                let path = path.as_bytes();
                if is_page(path) && !is_hidden(path) {
                    pages.push(Page { position, address: address(path), modified: item.modified });
                }
            }
        }
        Survey { digest: hasher.take(), bytes, pages }
    }

    /// The strong entity tag of the sitemap.
    pub(super) fn tag(&self) -> String {
        format!("\"{}\"", &self.digest.hex()[..32])
    }

    /// The sitemap (sitemaps.org, protocol 0.9), with the digest in a comment for whoever reads rather than asks
    /// conditionally.
    pub(super) fn sitemap(&self, domain: &Domain) -> String {
        // Two files of one address are one page, as new as the newer.
        let mut pages: BTreeMap<&[u8], SystemTime> = BTreeMap::new();
        for page in &self.pages {
            if let Some(address) = &page.address {
                let newest = pages.entry(address).or_insert(page.modified);
                *newest = page.modified.max(*newest);
            }
        }
        let mut text = format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!-- sha256 of all files' names, sizes and times: {} -->\n\
             <urlset xmlns=\"http://www.sitemaps.org/schemas/sitemap/0.9\">\n",
            self.digest
        );
        for (address, modified) in pages {
            let address = percent_encode(address, IN_ADDRESS);
            let modified = show(modified);
            let _ = writeln!(text, "<url><loc>https://{domain}/{address}</loc><lastmod>{modified}</lastmod></url>");
        }
        text.push_str("</urlset>\n");
        text
    }
}

/// The address under which readers know a page, in either layout.
fn address(path: &[u8]) -> Option<Vec<u8>> {
    if path == b"404.html" {
        return None;
    }
    let stem = path.strip_suffix(b".html").unwrap_or(path);
    let address = if stem == b"index" { b"" } else { stem.strip_suffix(b"/index").unwrap_or(stem) };
    Some(address.to_vec())
}

/// RFC 3339 with all the digits that the file system keeps.
fn show(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_listed_by_the_address_that_readers_know() {
        for (path, expected) in [
            ("index.html", Some("")),
            ("guides/start.html", Some("guides/start")),
            ("guides/start/index.html", Some("guides/start")),
            ("myindex.html", Some("myindex")),
            ("old.htm", Some("old.htm")),
            ("404.html", None),
            ("a/404.html", Some("a/404")),
        ] {
            assert_eq!(address(path.as_bytes()), expected.map(|address| address.as_bytes().to_vec()), "{path}");
        }
    }

    #[test]
    fn a_sitemap_has_each_address_once_and_nothing_that_xml_would_mind() {
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, 5);
        let page = |address: &str, seconds| Page {
            position: 0,
            address: Some(address.as_bytes().to_vec()),
            modified: at(seconds),
        };
        let survey =
            Survey { digest: Digest::of(b""), bytes: 0, pages: vec![page("a&<b>--ä", 1), page("x", 3), page("x", 2)] };
        let text = survey.sitemap(&Domain::parse("docs.example").unwrap());
        assert!(text.contains("<loc>https://docs.example/a%26%3Cb%3E--%C3%A4</loc>"), "{text}");
        assert!(text.contains("/x</loc><lastmod>1970-01-01T00:00:03.000000005Z</lastmod>"), "{text}");
        assert_eq!(text.matches("<url>").count(), 2, "{text}");
    }
}
