//! Compresses the texts of a sealed image with Brotli or Zstandard into the files `derived/<id>/brotli` and `zstd`.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::coding_file::{CodingRecord, compute_head_len, encode_head};
use crate::index::{EntryCompression, ImageIndex, IndexEntry};
use crate::media_types::{content_type, is_archive, is_html};
use docwharf_base::codec::content_coding::{ContentCoding, ContentEncoder, StreamEnd, choose_encoder_level};
use docwharf_base::codec::gzip;
use docwharf_base::codec::inflate::{InflateStatus, Inflater};
use docwharf_base::model::site_path::is_hidden;
use docwharf_base::model::version::VersionId;

/// The maximum size of a file that is compressed, in bytes. Larger files are rarely requested, take up to a minute
/// each, and would have to be held in memory.
const MAX_CONTENT_BYTES: u64 = 64 << 20;
/// The minimum size of a file that is compressed, in bytes. A smaller file cannot save much: the header of the response
/// is several times its size.
const MIN_CONTENT_BYTES: u64 = 64;

/// Whether a file of the site gets a compressed body: text that is sent with gzip.
fn is_compressed(path: &[u8], entry: &IndexEntry) -> bool {
    entry.compression == EntryCompression::Deflate
        && (MIN_CONTENT_BYTES..=MAX_CONTENT_BYTES).contains(&entry.len)
        && !is_archive(path)
        && !is_hidden(path)
}

/// Returns how the compressed body of a file ends. A tag may be added to a page when it is sent.
fn stream_end(path: &[u8]) -> StreamEnd {
    if is_html(&content_type(path)) { StreamEnd::Continuable } else { StreamEnd::Shortest }
}

/// Returns the maximum size of a coding file of this version, in bytes: no body is larger than the gzip form that it
/// replaces.
pub fn max_coding_len(index: &ImageIndex) -> u64 {
    compute_head_len(index.len()) + compressed_files(index).map(|(_, entry)| gzip_len(&entry)).sum::<u64>()
}

fn compressed_files(index: &ImageIndex) -> impl Iterator<Item = (usize, IndexEntry)> {
    let entries = (0..index.len()).map(|file| (file, index.entry(file)));
    entries.filter(|(file, entry)| is_compressed(index.path(*file), entry))
}

/// Returns the length of the gzip form.
fn gzip_len(entry: &IndexEntry) -> u64 {
    (gzip::GZIP_HEADER.len() + gzip::GZIP_TRAILER_BYTES) as u64 + entry.compressed_len
}

/// Writes the coding file of version `id` to `output`, which is empty. `image` and `index` are those of the version;
/// `processor_time` returns the processor time so far. A file whose content does not match its record is left out.
pub fn write_coding_file(
    coding: ContentCoding,
    id: VersionId,
    image: &File,
    index: &ImageIndex,
    mut output: &File,
    processor_time: impl Fn() -> Duration,
) -> io::Result<()> {
    let content = compressed_files(index).map(|(_, entry)| entry.len).sum();
    let level = choose_encoder_level(coding, content);
    let mut records = vec![CodingRecord::default(); index.len()];
    let mut offset = compute_head_len(index.len());
    output.seek(SeekFrom::Start(offset))?;
    let mut bodies = BufWriter::with_capacity(256 << 10, output);
    let mut inflate = Inflater::new();
    for (file, entry) in compressed_files(index) {
        let encoder = ContentEncoder::new(coding, level, entry.len, stream_end(index.path(file)))?;
        let Some(body) = compress_text(encoder, image, &entry, &mut inflate)? else { continue };
        bodies.write_all(&body)?;
        let len = body.len() as u64;
        records[file] = CodingRecord { offset, len, crc: crc32fast::hash(&body) };
        offset += len;
    }
    bodies.flush()?;
    drop(bodies);
    let cpu_millis = u64::try_from(processor_time().as_millis()).unwrap_or(u64::MAX);
    output.write_all_at(&encode_head(coding, id, &records, cpu_millis), 0)
}

/// Compresses one text; `None` if the result is not smaller than with gzip.
fn compress_text(
    mut encoder: ContentEncoder,
    image: &File,
    entry: &IndexEntry,
    inflate: &mut Inflater,
) -> io::Result<Option<Vec<u8>>> {
    let mut compressed = vec![0; entry.compressed_len as usize];
    image.read_exact_at(&mut compressed, entry.offset)?;
    let (mut crc, mut len, mut input_start) = (crc32fast::Hasher::new(), 0, 0);
    inflate.reset();
    loop {
        let Ok(step) = inflate.run(&compressed[input_start..], true) else { return Ok(None) };
        input_start += step.consumed;
        let piece = inflate.output();
        crc.update(piece);
        len += piece.len() as u64;
        // The image is damaged. Without this check the encoder would receive more bytes than it was created for, and
        // fail with a different error.
        if len > entry.len {
            return Ok(None);
        }
        encoder.write(piece)?;
        let makes_no_progress = step.consumed == 0 && piece.is_empty();
        if encoder.encoded_len() as u64 >= gzip_len(entry) || (makes_no_progress && step.status != InflateStatus::Done)
        {
            return Ok(None);
        }
        if step.status == InflateStatus::Done {
            break;
        }
    }
    if len != entry.len || crc.finalize() != entry.crc {
        return Ok(None);
    }
    let body = encoder.finish()?;
    Ok(Some(body).filter(|body| !body.is_empty() && (body.len() as u64) < gzip_len(entry)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;

    #[test]
    fn deflated_text_files_are_precompressed_unless_short_huge_hidden_or_archives() {
        use EntryCompression::{Deflate, Stored};
        for (path, compression, len, expected) in [
            ("index.html", Deflate, 64, true),
            ("index.html", Deflate, 63, false),
            ("index.html", Deflate, 64 << 20, true),
            ("index.html", Deflate, (64 << 20) + 1, false),
            ("index.html", Stored, 1000, false),
            ("LICENSE", Deflate, 1000, true),
            ("data.tar", Deflate, 1000, false),
            ("a/b.TGZ", Deflate, 1000, false),
            (".env", Deflate, 1000, false),
            ("a/.git/config", Deflate, 1000, false),
            (".well-known/security.txt", Deflate, 1000, true),
        ] {
            let entry = IndexEntry {
                compression,
                offset: 0,
                compressed_len: 30,
                len,
                crc: 0,
                content: Digest::compute(b""),
                compressed_crc: 0,
                last_block_bit: 0,
                spare_bits: 0,
                modified: 0,
            };
            assert_eq!(is_compressed(path.as_bytes(), &entry), expected, "{path} of {len} bytes");
            assert_eq!(gzip_len(&entry), 48, "10 bytes of header and 8 of trailer");
        }
    }

    #[test]
    fn only_html_files_have_bodies_to_which_a_tag_can_be_added() {
        for (path, expected) in [
            ("index.html", StreamEnd::Continuable),
            ("a/b.HTM", StreamEnd::Continuable),
            ("a.xhtml", StreamEnd::Shortest),
            ("a.css", StreamEnd::Shortest),
            ("LICENSE", StreamEnd::Shortest),
        ] {
            assert_eq!(stream_end(path.as_bytes()), expected, "{path}");
        }
    }
}
