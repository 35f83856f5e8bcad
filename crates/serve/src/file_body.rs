//! Response bodies that are available without inflating. A page may be followed by an inserted tag
//! ([`super::insertion`]).

use bytes::Bytes;

use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::codec::continuation::{continue_coding, continue_deflate};
use docwharf_base::codec::deflate::DeflateStreamEnd;
use docwharf_base::codec::gzip;
use docwharf_site::index::{EntryCompression, IndexEntry};
use docwharf_site::sealed_version::SealedVersion;

use super::body_chunk::BodyChunk;
use super::insertion::InsertedTag;
use super::negotiate::ResponseForm;
use super::site::Site;

/// Returns the body of a file in a form ([`ResponseForm`]), if its bytes are in the image or in the cache of inflated
/// files. The bytes of a precompressed form are in neither.
pub(super) fn ready_body(
    site: &Site,
    version: &SealedVersion,
    file: usize,
    form: ResponseForm,
    tag: Option<&InsertedTag>,
) -> Option<BodyChunk> {
    let entry = version.entry(file);
    match (form, entry.compression) {
        (ResponseForm::Gzip, _) => Some(gzip_chunk(version, &entry, tag)),
        (ResponseForm::Precompressed(_), _) => None,
        (ResponseForm::Identity, EntryCompression::Stored) => {
            Some(identity_chunk(version.compressed_bytes(&entry).into(), tag))
        }
        (ResponseForm::Identity, EntryCompression::Deflate) => {
            let file = site.inflated_file_cache.get(&entry.content)?;
            Some(identity_chunk(file.into(), tag))
        }
    }
}

/// Returns the content of a file, which is `content`, with the tag behind it.
pub(super) fn identity_chunk(content: BodyChunk, tag: Option<&InsertedTag>) -> BodyChunk {
    match tag {
        None => content,
        Some(tag) => content.followed_by(tag.bytes()),
    }
}

/// Returns the sealed DEFLATE bytes of a file as a gzip file.
pub(super) fn gzip_chunk(version: &SealedVersion, entry: &IndexEntry, tag: Option<&InsertedTag>) -> BodyChunk {
    let coded = version.compressed_bytes(entry);
    if let Some(tag) = tag {
        let stream_end = DeflateStreamEnd { last_block_bit: entry.last_block_bit, spare_bits: entry.spare_bits };
        if let Some(mut stream) = continue_deflate(&coded, stream_end, tag.bytes()) {
            let len = entry.len + tag.bytes().len() as u64;
            stream.end.extend_from_slice(&gzip::encode_trailer(tag.crc_with_page(entry.crc), len));
            return BodyChunk::continued(&gzip::GZIP_HEADER, coded, stream);
        }
        // The record was checked when the index was opened; the disk has lost it since. The response is shorter than
        // announced.
    }
    BodyChunk::framed(&gzip::GZIP_HEADER, coded, gzip::encode_trailer(entry.crc, entry.len))
}

/// Returns the precompressed form `coded` of a file with the tag behind its content. The form was checked with
/// [`super::insertion::is_continuable_form`].
pub(super) fn precompressed_chunk(coding: ContentCoding, coded: Bytes, tag: Option<&InsertedTag>) -> BodyChunk {
    match tag.and_then(|tag| continue_coding(coding, &coded, tag.bytes())) {
        None => coded.into(),
        Some(stream) => BodyChunk::continued(&[], coded, stream),
    }
}

/// Returns the length of a file's gzip form in bytes, without a tag.
pub(super) fn gzip_len(entry: &IndexEntry) -> u64 {
    (gzip::GZIP_HEADER.len() + gzip::GZIP_TRAILER_BYTES) as u64 + entry.compressed_len
}
