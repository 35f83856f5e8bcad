//! A summary of a site from file metadata, without reading a page: enough to detect a change, to estimate the work, and
//! to list the pages in a sitemap.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::path::Path;
use std::time::SystemTime;

use jiff::Timestamp;
use percent_encoding::percent_encode;

use docwharf_base::encode_sets;
use docwharf_base::model::digest::{Digest, Sha256Hasher};
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::site_path::{is_hidden, is_page};
use docwharf_site::bundle::BundleReadError;
use docwharf_site::bundle::folder::FolderReader;
use docwharf_site::bundle::site_layout::SiteLayout;

use super::domain::Domain;

/// A page of a folder.
#[derive(Debug)]
pub(super) struct SurveyedPage {
    /// The number of files before it.
    pub(super) position: usize,
    /// Its address without extension, such as `guides/start`; `None` for the page for missing addresses, `404.html`.
    address: Option<Vec<u8>>,
    modified: SystemTime,
}

/// A site as the file system lists it.
#[derive(Debug)]
pub(super) struct SiteSurvey {
    /// The digest of path, size and time of every file. It changes when the site changes.
    pub(super) digest: Digest,
    /// The bytes of all files of a folder, or the size of an archive.
    pub(super) bytes: u64,
    /// The pages in the order in which a folder is read. An archive has only its root page, because its other pages are
    /// unknown until it is read.
    pub(super) pages: Vec<SurveyedPage>,
}

impl SiteSurvey {
    /// Surveys the folder or archive at `path`.
    pub(super) fn read(path: &Path, limits: &BundleLimits) -> Result<SiteSurvey, BundleReadError> {
        let metadata = std::fs::metadata(path).map_err(BundleReadError::io(path))?;
        if metadata.is_dir() {
            Ok(SiteSurvey::from_folder(&FolderReader::open(path, limits)?))
        } else {
            Ok(SiteSurvey::from_file(&metadata))
        }
    }

    fn from_file(metadata: &Metadata) -> SiteSurvey {
        let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        let digest = Digest::compute(format!("{} {}\n", metadata.len(), format_rfc3339(modified)).as_bytes());
        let root = SurveyedPage { position: 0, address: Some(Vec::new()), modified };
        SiteSurvey { digest, bytes: metadata.len(), pages: vec![root] }
    }

    fn from_folder(folder: &FolderReader) -> SiteSurvey {
        let mut hasher = Sha256Hasher::new();
        let mut bytes = 0u64;
        for item in &folder.files {
            hasher.update(item.path.as_bytes());
            // A path has no NUL, so two different lists of files never give the same input.
            hasher.update(format!("\0{} {}\n", item.size, format_rfc3339(item.modified)).as_bytes());
            bytes = bytes.saturating_add(item.size);
        }
        let mut pages = Vec::new();
        // A folder without a page is refused when it is packed, but it has a sitemap.
        if let Ok(site_layout) = SiteLayout::detect(folder.files.iter().map(|item| &item.path)) {
            for (position, item) in folder.files.iter().enumerate() {
                let Some(path) = site_layout.site_path(&item.path) else { continue };
                let path = path.as_bytes();
                if is_page(path) && !is_hidden(path) {
                    pages.push(SurveyedPage { position, address: page_address(path), modified: item.modified });
                }
            }
        }
        SiteSurvey { digest: hasher.finalize_reset(), bytes, pages }
    }

    /// Returns the strong entity tag of the sitemap.
    pub(super) fn entity_tag(&self) -> String {
        format!("\"{}\"", &self.digest.to_hex()[..32])
    }

    /// Returns the sitemap (sitemaps.org, protocol 0.9). A comment in it has the digest, for clients that compare the
    /// body instead of sending conditional requests.
    pub(super) fn to_sitemap(&self, domain: &Domain) -> String {
        // Two files with the same address are one page with the newer time.
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
            let address = percent_encode(address, encode_sets::PLAIN_PATH);
            let modified = format_rfc3339(modified);
            let _ = writeln!(text, "<url><loc>https://{domain}/{address}</loc><lastmod>{modified}</lastmod></url>");
        }
        text.push_str("</urlset>\n");
        text
    }
}

/// Returns the address under which readers find a page, in either layout of files.
fn page_address(path: &[u8]) -> Option<Vec<u8>> {
    if path == b"404.html" {
        return None;
    }
    let stem = path.strip_suffix(b".html").unwrap_or(path);
    let address = if stem == b"index" { b"" } else { stem.strip_suffix(b"/index").unwrap_or(stem) };
    Some(address.to_vec())
}

/// Formats a time by RFC 3339, with all digits that the file system has.
fn format_rfc3339(time: SystemTime) -> String {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_address_omits_index_html_and_the_html_extension() {
        for (path, expected) in [
            ("index.html", Some("")),
            ("guides/start.html", Some("guides/start")),
            ("guides/start/index.html", Some("guides/start")),
            ("myindex.html", Some("myindex")),
            ("old.htm", Some("old.htm")),
            ("404.html", None),
            ("a/404.html", Some("a/404")),
        ] {
            assert_eq!(page_address(path.as_bytes()), expected.map(|address| address.as_bytes().to_vec()), "{path}");
        }
    }

    #[test]
    fn a_sitemap_lists_each_address_once_and_escapes_xml_characters() {
        let time = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::new(seconds, 5);
        let page = |address: &str, seconds| SurveyedPage {
            position: 0,
            address: Some(address.as_bytes().to_vec()),
            modified: time(seconds),
        };
        let survey = SiteSurvey {
            digest: Digest::compute(b""),
            bytes: 0,
            pages: vec![page("a&<b>--ä", 1), page("x", 3), page("x", 2)],
        };
        let text = survey.to_sitemap(&Domain::parse("docs.example").unwrap());
        assert!(text.contains("<loc>https://docs.example/a%26%3Cb%3E--%C3%A4</loc>"), "{text}");
        assert!(text.contains("/x</loc><lastmod>1970-01-01T00:00:03.000000005Z</lastmod>"), "{text}");
        assert_eq!(text.matches("<url>").count(), 2, "{text}");
    }

    #[test]
    fn a_folder_without_pages_has_an_empty_sitemap_and_an_archive_lists_only_the_root() {
        let (dir, limits) = (tempfile::tempdir().unwrap(), BundleLimits::default());
        let (folder, archive) = (dir.path().join("site"), dir.path().join("site.zip"));
        std::fs::create_dir(&folder).unwrap();
        std::fs::write(folder.join("a.css"), "a{}").unwrap();
        std::fs::write(&archive, "12345").unwrap();
        let domain = Domain::parse("docs.example").unwrap();
        for (path, bytes, addresses) in [(&folder, 3, 0), (&archive, 5, 1)] {
            let survey = SiteSurvey::read(path, &limits).unwrap();
            let text = survey.to_sitemap(&domain);
            assert_eq!((survey.bytes, text.matches("<loc>https://docs.example/</loc>").count()), (bytes, addresses));
            assert_eq!(text.matches("<url>").count(), addresses, "{text}");
            assert!(text.contains(&survey.digest.to_hex()), "{text}");
        }
    }
}
