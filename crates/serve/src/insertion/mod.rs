//! The tag that is inserted into HTML pages when they are sent: the script of the search box and that of the
//! playground, behind the last byte of the page.
//!
//! The sealed bytes do not change, and no page is decoded or compressed for the tag. Each form of a page
//! ([`ResponseForm`]) is continued where its last byte is ([`docwharf_base::codec::continuation`]):
//!
//! - identity: the tag follows the page;
//! - gzip: a block with the tag follows the sealed DEFLATE stream, within the same gzip member;
//! - Brotli and Zstandard: a block with the tag is added to the stream of the coding file.
//!
//! A response is about the page with the tag in every respect: lengths, ranges, entity tag and conditions. Only
//! Last-Modified is that of the page. Without a tag, a response has the bytes that it has without this module.
//!
//! `file_body` makes the bodies, `file_response` decides which responses have the tag, and
//! [`Site::set_inserted_tag`](super::Site::set_inserted_tag) replaces it.

use std::fmt::Write;

use bytes::Bytes;
use percent_encoding::utf8_percent_encode;

use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::codec::continuation::{MAX_ADDED_BYTES, coding_growth, deflate_growth, is_continuable};
use docwharf_base::codec::crc32_suffix::Crc32Suffix;
use docwharf_base::encode_sets;
use docwharf_base::model::digest::Digest;
use docwharf_site::index::IndexEntry;
use docwharf_site::media_types::{content_type, is_html};

use super::negotiate::ResponseForm;

/// The tag that is inserted into pages.
#[derive(Debug, PartialEq, Eq)]
pub struct InsertedTag {
    bytes: Bytes,
    digest: TagDigest,
    crc: Crc32Suffix,
}

/// The first 4 bytes of the SHA-256 of a tag. Entity tags and entries of the response cache have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TagDigest(pub(super) [u8; 4]);

/// The scripts of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InsertedScripts {
    /// The script of the search box.
    pub search_box: bool,
    /// The script that sends requests of the page through the playground.
    pub playground: bool,
}

impl InsertedTag {
    /// Creates the tag with the script of the search box, as [`InsertedTag::with_scripts`] does.
    pub fn new(base_path: &str) -> Option<InsertedTag> {
        InsertedTag::with_scripts(base_path, InsertedScripts { search_box: true, playground: false })
    }

    /// Creates the tag of a site whose base path is `base_path`, with a slash at both ends. Returns `None` if there is
    /// no script, or if the base path is longer than about 1,000 bytes (450 with both scripts), because not every form
    /// of a page could be continued with such a tag.
    pub fn with_scripts(base_path: &str, scripts: InsertedScripts) -> Option<InsertedTag> {
        // The characters that a base path in the configuration may have stay as they are.
        let base_path = utf8_percent_encode(base_path, encode_sets::PLAIN_PATH);
        let mut tag = String::new();
        if scripts.playground {
            // Not deferred: scripts of the page that are deferred run after it.
            let _ = write!(tag, "<script src=\"{base_path}_docwharf/playground.js\"></script>");
        }
        if scripts.search_box {
            let _ = write!(tag, "<script src=\"{base_path}_docwharf/search.js\" defer></script>");
        }
        if tag.is_empty() || tag.len() > MAX_ADDED_BYTES {
            return None;
        }
        let Digest([first, second, third, fourth, ..]) = Digest::compute(tag.as_bytes());
        let digest = TagDigest([first, second, third, fourth]);
        Some(InsertedTag { crc: Crc32Suffix::new(tag.as_bytes()), bytes: tag.into(), digest })
    }

    /// Returns the bytes that follow a page.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Returns the digest that identifies the tag.
    pub(super) fn digest(&self) -> TagDigest {
        self.digest
    }

    /// Returns the CRC-32 of a page with the tag; `crc` is that of the page alone.
    pub(super) fn crc_with_page(&self, crc: u32) -> u32 {
        self.crc.append_to(crc)
    }

    /// Returns by how many bytes the tag makes a page longer in a form.
    pub(super) fn growth(&self, form: ResponseForm, entry: &IndexEntry) -> u64 {
        match form {
            ResponseForm::Identity => self.bytes.len() as u64,
            ResponseForm::Gzip => deflate_growth(entry.spare_bits, self.bytes.len()),
            ResponseForm::Precompressed(coding) => coding_growth(coding, self.bytes.len()),
        }
    }
}

/// Returns whether a tag can be added to the Brotli or Zstandard form `coded` of the file at `path`. Only HTML files
/// are encoded for that; a rule may also give the media type of HTML to another file.
pub(super) fn is_continuable_form(coding: ContentCoding, path: &[u8], coded: &[u8]) -> bool {
    is_html(&content_type(path)) && is_continuable(coding, coded)
}

#[cfg(test)]
mod cache_tests;
#[cfg(test)]
mod tests;
