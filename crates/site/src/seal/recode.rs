//! A sealed image once more in a denser coding, text by text: what `derived/<id>/brotli` and `zstd` hold.

use std::fs::File;
use std::io::{self, BufWriter, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use docwharf_base::codec::dense::{Dense, Effort, Encoder, effort};
use docwharf_base::codec::gzip;
use docwharf_base::codec::inflate::{Inflate, Status};
use docwharf_base::model::site_path::is_hidden;
use docwharf_base::model::version::VersionId;
use crate::codings::{Record, head, head_len};
use crate::index::{Coding, Entry, Index};
use crate::types::is_archive;

/// Larger contents, in bytes, stay as they are: few read them, one would hold everything up for a minute, and what is in
/// memory at a time is bounded by it.
const MOST: u64 = 64 << 20;
/// Smaller ones, in bytes, have nothing to win: the answer's header is several times that.
const LEAST: u64 = 64;

/// Whether a file of the site is worth coding: text that is sent with gzip.
fn is_due(path: &[u8], entry: &Entry) -> bool {
    entry.coding == Coding::Deflate && (LEAST..=MOST).contains(&entry.len) && !is_archive(path) && !is_hidden(path)
}

/// Bytes that a coding of this version takes at most: no body is larger than the gzip form that it stands in for.
pub fn most(index: &Index) -> u64 {
    head_len(index.len()) + due(index).map(|(_, entry)| framed(&entry)).sum::<u64>()
}

fn due(index: &Index) -> impl Iterator<Item = (usize, Entry)> {
    let all = (0..index.len()).map(|file| (file, index.entry(file)));
    all.filter(|(file, entry)| is_due(index.path(*file), entry))
}

/// Length of the gzip form.
fn framed(entry: &Entry) -> u64 {
    (gzip::HEADER.len() + gzip::TRAILER) as u64 + entry.coded_len
}

/// Writes the coding of version `id`, whose `image` and `index` these are, to the empty file `out`. `spent` tells the
/// processor time so far. What does not inflate to what was sealed is left out.
pub fn recode(
    coding: Dense,
    id: VersionId,
    image: &File,
    index: &Index,
    mut out: &File,
    spent: impl Fn() -> Duration,
) -> io::Result<()> {
    let content = due(index).map(|(_, entry)| entry.len).sum();
    let effort = effort(coding, content);
    let mut records = vec![Record::default(); index.len()];
    let mut at = head_len(index.len());
    out.seek(SeekFrom::Start(at))?;
    let mut bodies = BufWriter::with_capacity(256 << 10, out);
    let mut inflate = Inflate::new();
    for (file, entry) in due(index) {
        let Some(body) = smaller(coding, effort, image, &entry, &mut inflate)? else { continue };
        bodies.write_all(&body)?;
        let len = body.len() as u64;
        records[file] = Record { offset: at, len, crc: crc32fast::hash(&body) };
        at += len;
    }
    bodies.flush()?;
    drop(bodies);
    let millis = u64::try_from(spent().as_millis()).unwrap_or(u64::MAX);
    out.write_all_at(&head(coding, id, &records, millis), 0)
}

/// One text in this coding, if it is smaller than with gzip.
fn smaller(
    coding: Dense,
    effort: Effort,
    image: &File,
    entry: &Entry,
    inflate: &mut Inflate,
) -> io::Result<Option<Vec<u8>>> {
    let mut coded = vec![0; entry.coded_len as usize];
    image.read_exact_at(&mut coded, entry.offset)?;
    let mut encoder = Encoder::new(coding, effort, entry.len)?;
    let (mut crc, mut len, mut at) = (crc32fast::Hasher::new(), 0, 0);
    inflate.reset();
    loop {
        let Ok(step) = inflate.run(&coded[at..], true) else { return Ok(None) };
        at += step.consumed;
        let piece = inflate.output();
        crc.update(piece);
        len += piece.len() as u64;
        // Rot: it would be no error of the encoder to be told more than it was promised.
        if len > entry.len {
            return Ok(None);
        }
        encoder.write(piece)?;
        let stands_still = step.consumed == 0 && piece.is_empty();
        if encoder.made() as u64 >= framed(entry) || (stands_still && step.status != Status::Done) {
            return Ok(None);
        }
        if step.status == Status::Done {
            break;
        }
    }
    if len != entry.len || crc.finalize() != entry.crc {
        return Ok(None);
    }
    let body = encoder.finish()?;
    Ok(Some(body).filter(|body| !body.is_empty() && (body.len() as u64) < framed(entry)))
}
