//! Versions in memory, for tests.

use docwharf_base::codec::deflate::{DeflateStreamEnd, Deflater};
use docwharf_base::codec::inflate::{InflateStatus, Inflater};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionManifest;
use docwharf_site::index::{EntryCompression, ImageIndex, IndexEntry, encode_index};
use docwharf_site::media_types::is_compressible;
use docwharf_site::sealed_version::SealedVersion;

/// A file of a version.
struct TestFile {
    path: String,
    content: Vec<u8>,
    /// The DEFLATE stream in the image, and its end; `None` for a file that is stored.
    stream: Option<(Vec<u8>, DeflateStreamEnd)>,
}

/// Creates a version of these files, which have all changed at `modified`, in seconds since 1970. Files are compressed
/// as in a sealed image.
pub(crate) fn version_with_files(files: &[(&str, &str)], modified: i64) -> SealedVersion {
    let files = files.iter().map(|&(path, text)| {
        let stream = is_compressible(path.as_bytes()).then(|| {
            let mut coded = Vec::new();
            let end = Deflater::new(1).encode_all(text.as_bytes(), &mut coded);
            (coded, end)
        });
        TestFile { path: path.to_owned(), content: text.into(), stream }
    });
    build_version(files.collect(), modified)
}

/// A path, a content, and a DEFLATE stream of the content.
pub(crate) type FileWithStream<'a> = (&'a str, &'a [u8], Option<&'a [u8]>);

/// Creates a version of these files, each a path, the content and a DEFLATE stream of the content, as an adopted
/// archive has them. Without a stream, the file is stored.
pub(crate) fn version_with_streams(files: &[FileWithStream]) -> SealedVersion {
    let files = files.iter().map(|&(path, content, stream)| {
        let stream = stream.map(|coded| (coded.to_vec(), find_stream_end(coded)));
        TestFile { path: path.to_owned(), content: content.to_vec(), stream }
    });
    build_version(files.collect(), 0)
}

/// Finds the end of a valid DEFLATE stream.
fn find_stream_end(coded: &[u8]) -> DeflateStreamEnd {
    let (mut inflater, mut start) = (Inflater::new(), 0);
    loop {
        let step = inflater.run(&coded[start..], true).expect("the stream is valid");
        start += step.consumed;
        if step.status == InflateStatus::Done {
            let (last_block_bit, spare_bits) = (inflater.last_block_bit(), inflater.spare_bits());
            return DeflateStreamEnd { last_block_bit, spare_bits };
        }
    }
}

fn build_version(mut files: Vec<TestFile>, modified: i64) -> SealedVersion {
    files.sort_by(|left, right| left.path.cmp(&right.path));
    let (mut image, mut manifest, mut entries) = (Vec::new(), VersionManifest::default(), Vec::new());
    for TestFile { path, content, stream } in &files {
        let (path, len, offset, digest) =
            (path.as_bytes(), content.len() as u64, image.len() as u64, Digest::compute(content));
        manifest.add(&digest, len, path);
        let stored_end = DeflateStreamEnd { last_block_bit: 0, spare_bits: 0 };
        let (compression, coded, compressed_crc, end) = match stream {
            Some((coded, end)) => (EntryCompression::Deflate, coded, crc32fast::hash(coded), *end),
            None => (EntryCompression::Stored, content, 0, stored_end),
        };
        image.extend_from_slice(coded);
        let entry = IndexEntry {
            compression,
            offset,
            compressed_len: coded.len() as u64,
            len,
            crc: crc32fast::hash(content),
            content: digest,
            compressed_crc,
            last_block_bit: end.last_block_bit,
            spare_bits: end.spare_bits,
            modified,
        };
        entries.push((path, entry));
    }
    let (id, len) = (manifest.id(), image.len() as u64);
    let index = ImageIndex::decode(encode_index(len, id, &entries), len, id).expect("the index is valid");
    SealedVersion::new(id, image.into(), index)
}
