//! Compresses the texts of a sealed image with Brotli or Zstandard into the files `derived/<id>/brotli` and `zstd`.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::coding_file::{CodingRecord, encode_head, head_len};
use crate::index::{EntryCompression, ImageIndex, IndexEntry};
use crate::media_types::is_archive;
use docwharf_base::codec::content_coding::{ContentCoding, ContentEncoder, EncoderEffort, choose_effort};
use docwharf_base::codec::gzip;
use docwharf_base::codec::inflate::{Inflate, InflateStatus};
use docwharf_base::model::site_path::is_hidden;
use docwharf_base::model::version::VersionId;

/// The maximum size of a content that is compressed, in bytes. Larger ones are rarely requested, take up to a minute
/// each, and would have to be held in memory.
const MAX_CONTENT_BYTES: u64 = 64 << 20;
/// The minimum size of a content that is compressed, in bytes. Less cannot save much: the header of the response is
/// several times that.
const MIN_CONTENT_BYTES: u64 = 64;

/// Whether a file of the site is compressed: text that is sent with gzip.
fn is_compressed(path: &[u8], entry: &IndexEntry) -> bool {
    entry.coding == EntryCompression::Deflate
        && (MIN_CONTENT_BYTES..=MAX_CONTENT_BYTES).contains(&entry.len)
        && !is_archive(path)
        && !is_hidden(path)
}

/// Returns the maximum size of a coding file of this version, in bytes: no body is larger than the gzip form that it
/// replaces.
pub fn max_coding_len(index: &ImageIndex) -> u64 {
    head_len(index.len()) + compressed_files(index).map(|(_, entry)| gzip_len(&entry)).sum::<u64>()
}

fn compressed_files(index: &ImageIndex) -> impl Iterator<Item = (usize, IndexEntry)> {
    let all = (0..index.len()).map(|file| (file, index.entry(file)));
    all.filter(|(file, entry)| is_compressed(index.path(*file), entry))
}

/// Returns the length of the gzip form.
fn gzip_len(entry: &IndexEntry) -> u64 {
    (gzip::GZIP_HEADER.len() + gzip::TRAILER_BYTES) as u64 + entry.coded_len
}

/// Writes the coding file of version `id` to `out`, which is empty. `image` and `index` are those of the version;
/// `spent` returns the processor time so far. A content that does not inflate to what was sealed is left out.
pub fn write_coding_file(
    coding: ContentCoding,
    id: VersionId,
    image: &File,
    index: &ImageIndex,
    mut out: &File,
    spent: impl Fn() -> Duration,
) -> io::Result<()> {
    let content = compressed_files(index).map(|(_, entry)| entry.len).sum();
    let effort = choose_effort(coding, content);
    let mut records = vec![CodingRecord::default(); index.len()];
    let mut at = head_len(index.len());
    out.seek(SeekFrom::Start(at))?;
    let mut bodies = BufWriter::with_capacity(256 << 10, out);
    let mut inflate = Inflate::new();
    for (file, entry) in compressed_files(index) {
        let Some(body) = compress_text(coding, effort, image, &entry, &mut inflate)? else { continue };
        bodies.write_all(&body)?;
        let len = body.len() as u64;
        records[file] = CodingRecord { offset: at, len, crc: crc32fast::hash(&body) };
        at += len;
    }
    bodies.flush()?;
    drop(bodies);
    let millis = u64::try_from(spent().as_millis()).unwrap_or(u64::MAX);
    out.write_all_at(&encode_head(coding, id, &records, millis), 0)
}

/// Compresses one text; `None` if the result is not smaller than with gzip.
fn compress_text(
    coding: ContentCoding,
    effort: EncoderEffort,
    image: &File,
    entry: &IndexEntry,
    inflate: &mut Inflate,
) -> io::Result<Option<Vec<u8>>> {
    let mut coded = vec![0; entry.coded_len as usize];
    image.read_exact_at(&mut coded, entry.offset)?;
    let mut encoder = ContentEncoder::new(coding, effort, entry.len)?;
    let (mut crc, mut len, mut at) = (crc32fast::Hasher::new(), 0, 0);
    inflate.reset();
    loop {
        let Ok(step) = inflate.run(&coded[at..], true) else { return Ok(None) };
        at += step.consumed;
        let piece = inflate.output();
        crc.update(piece);
        len += piece.len() as u64;
        // The image is damaged. Without this check the encoder would receive more bytes than it was created for, and
        // fail with an error of its own.
        if len > entry.len {
            return Ok(None);
        }
        encoder.write(piece)?;
        let stands_still = step.consumed == 0 && piece.is_empty();
        if encoder.encoded_len() as u64 >= gzip_len(entry) || (stands_still && step.status != InflateStatus::Done) {
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
