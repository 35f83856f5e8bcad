//! The bytes of a file that need no work before they are sent.

use docwharf_base::codec::gzip;
use docwharf_site::index::{EntryCompression, IndexEntry};
use docwharf_site::sealed_version::SealedVersion;

use super::body_chunk::BodyChunk;
use super::negotiate::ResponseForm;
use super::site::Site;

/// Returns the body of a file in a form, if its bytes are in the image or in the cache of inflated files. A dense form
/// is in neither.
pub(super) fn ready_body(site: &Site, version: &SealedVersion, file: usize, form: ResponseForm) -> Option<BodyChunk> {
    let entry = version.entry(file);
    match (form, entry.coding) {
        (ResponseForm::Gzip, _) => Some(gzip_chunk(version, &entry)),
        (ResponseForm::Dense(_), _) => None,
        (ResponseForm::Identity, EntryCompression::Stored) => Some(version.compressed_bytes(&entry).into()),
        (ResponseForm::Identity, EntryCompression::Deflate) => site.inflated.get(&entry.content).map(BodyChunk::from),
    }
}

/// Returns the sealed DEFLATE bytes of a file as a gzip file.
pub(super) fn gzip_chunk(version: &SealedVersion, entry: &IndexEntry) -> BodyChunk {
    BodyChunk::framed(&gzip::GZIP_HEADER, version.compressed_bytes(entry), gzip::trailer(entry.crc, entry.len))
}

/// Returns the length of a file's gzip form in bytes.
pub(super) fn gzip_len(entry: &IndexEntry) -> u64 {
    (gzip::GZIP_HEADER.len() + gzip::TRAILER_BYTES) as u64 + entry.coded_len
}
