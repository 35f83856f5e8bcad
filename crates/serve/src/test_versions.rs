//! Versions in memory, for tests.

use docwharf_base::codec::deflate::Deflater;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionManifest;
use docwharf_site::index::{EntryCompression, ImageIndex, IndexEntry, encode_index};
use docwharf_site::media_types::is_compressible;
use docwharf_site::sealed_version::SealedVersion;

/// Creates a version of these files, which have all changed at `modified`, in seconds since 1970. Files are compressed
/// as in a sealed image.
pub(crate) fn version_with_files(files: &[(&str, &str)], modified: i64) -> SealedVersion {
    let mut files = files.to_vec();
    files.sort_unstable();
    let (mut image, mut manifest, mut entries) = (Vec::new(), VersionManifest::default(), Vec::new());
    for &(path, text) in &files {
        let (path, text, start) = (path.as_bytes(), text.as_bytes(), image.len());
        let content = Digest::compute(text);
        manifest.add(&content, text.len() as u64, path);
        let (compression, compressed_crc) = if is_compressible(path) {
            Deflater::new(1).encode_all(text, &mut image);
            (EntryCompression::Deflate, crc32fast::hash(&image[start..]))
        } else {
            image.extend_from_slice(text);
            (EntryCompression::Stored, 0)
        };
        let entry = IndexEntry {
            compression,
            offset: start as u64,
            compressed_len: (image.len() - start) as u64,
            len: text.len() as u64,
            crc: crc32fast::hash(text),
            content,
            compressed_crc,
            last_block_bit: 0,
            spare_bits: 0,
            modified,
        };
        entries.push((path, entry));
    }
    let (id, len) = (manifest.id(), image.len() as u64);
    let index = ImageIndex::decode(encode_index(len, id, &entries), len, id).expect("the index is valid");
    SealedVersion::new(id, image.into(), index)
}
