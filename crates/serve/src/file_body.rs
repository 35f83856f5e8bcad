//! Response bodies that are available without inflating.

use docwharf_base::codec::gzip;
use docwharf_site::index::{EntryCompression, IndexEntry};
use docwharf_site::sealed_version::SealedVersion;

use super::body_chunk::BodyChunk;
use super::negotiate::ResponseForm;
use super::site::Site;

/// Returns the body of a file in a form ([`ResponseForm`]), if its bytes are in the image or in the cache of inflated
/// files. The bytes of a precompressed form are in neither.
pub(super) fn ready_body(site: &Site, version: &SealedVersion, file: usize, form: ResponseForm) -> Option<BodyChunk> {
    let entry = version.entry(file);
    match (form, entry.compression) {
        (ResponseForm::Gzip, _) => Some(gzip_chunk(version, &entry)),
        (ResponseForm::Precompressed(_), _) => None,
        (ResponseForm::Identity, EntryCompression::Stored) => Some(version.compressed_bytes(&entry).into()),
        (ResponseForm::Identity, EntryCompression::Deflate) => {
            site.inflated_file_cache.get(&entry.content).map(BodyChunk::from)
        }
    }
}

/// Returns the sealed DEFLATE bytes of a file as a gzip file.
pub(super) fn gzip_chunk(version: &SealedVersion, entry: &IndexEntry) -> BodyChunk {
    BodyChunk::framed(&gzip::GZIP_HEADER, version.compressed_bytes(entry), gzip::encode_trailer(entry.crc, entry.len))
}

/// Returns the length of a file's gzip form in bytes.
pub(super) fn gzip_len(entry: &IndexEntry) -> u64 {
    (gzip::GZIP_HEADER.len() + gzip::GZIP_TRAILER_BYTES) as u64 + entry.compressed_len
}
