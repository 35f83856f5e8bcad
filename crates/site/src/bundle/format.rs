//! Recognises the format of an archive by its first bytes, never by its name (docs/design/archives.md, rule 10).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use docwharf_base::error_chain::QuotedName;
use docwharf_base::growing_file::WriteProgress;
use docwharf_base::model::limits::BundleLimits;

use super::archive_stream::{ArchiveFile, ArchiveStream, GzipStream, PeekedStream, UncompressedStream, ZstdStream};
use super::bundle_reader::{BundleKind, BundleReadError};
use super::refusal::{BundleFault, BundleRefusal};
use super::tar::{self, TarReader};

/// An archive whose format has been recognised.
#[derive(Debug)]
pub enum RecognizedArchive {
    /// A ZIP archive of which nothing but the first bytes has been read.
    Zip(File),
    /// A tar archive, compressed or not, at its first entry.
    Tar(BundleKind, Box<TarReader>),
}

/// Recognises the archive in `file`, whose position is its start. Refuses every other kind of file.
pub fn open_archive(file: File, path: &Path, limits: &BundleLimits) -> Result<RecognizedArchive, BundleReadError> {
    open_growing_archive(file, path, limits, &Arc::new(WriteProgress::complete()))
}

/// Recognises an archive that may still be growing, as [`open_archive`] does. Waits until 1 KiB of the file
/// is written, or all of a shorter file.
pub fn open_growing_archive(
    file: File,
    path: &Path,
    limits: &BundleLimits,
    growth: &Arc<WriteProgress>,
) -> Result<RecognizedArchive, BundleReadError> {
    let mut head = [0u8; 1024];
    // If the writer has failed, a later read reports it.
    growth.wait_for_len(head.len() as u64);
    let mut filled = 0;
    while filled < head.len() {
        match file.read_at(&mut head[filled..], filled as u64).map_err(BundleReadError::io(path))? {
            0 => break,
            n => filled += n,
        }
    }
    let head = &head[..filled];
    if is_zip(head) {
        return Ok(RecognizedArchive::Zip(file));
    }
    let archive = ArchiveFile::new(file, path.to_owned(), limits, Arc::clone(growth));
    if head.starts_with(&[0x1f, 0x8b]) {
        return open_tar(BundleKind::TarGz, Box::new(GzipStream::new(archive)), *limits);
    }
    if is_zstd(head) {
        return open_tar(BundleKind::TarZst, Box::new(ZstdStream::new(archive)?), *limits);
    }
    if is_tar(head) {
        return open_tar(BundleKind::Tar, Box::new(UncompressedStream::new(archive)), *limits);
    }
    Err(refuse_non_archive(head, "").into())
}

/// Guesses the format of a file from its first bytes: gzip and zstd are assumed to contain a tar. An uncompressed tar
/// is not recognised.
pub fn guess_kind(head: &[u8]) -> Option<BundleKind> {
    if is_zip(head) {
        Some(BundleKind::Zip)
    } else if head.starts_with(&[0x1f, 0x8b]) {
        Some(BundleKind::TarGz)
    } else {
        is_zstd(head).then_some(BundleKind::TarZst)
    }
}

fn is_zip(head: &[u8]) -> bool {
    head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")
}

fn is_zstd(head: &[u8]) -> bool {
    head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        || (head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == [0x2a, 0x4d, 0x18])
}

/// Whether `head` is a tar header with a correct checksum, or the two zero blocks of an empty archive.
fn is_tar(head: &[u8]) -> bool {
    tar::is_tar_header(head) || (head.len() >= 1024 && head.iter().all(|&b| b == 0))
}

fn open_tar(
    kind: BundleKind,
    source: Box<dyn ArchiveStream>,
    limits: BundleLimits,
) -> Result<RecognizedArchive, BundleReadError> {
    let source = PeekedStream::new(source, 1024)?;
    if !is_tar(source.head()) {
        let prefix = if kind == BundleKind::TarGz { "gzip of " } else { "zstd of " };
        return Err(refuse_non_archive(source.head(), prefix).into());
    }
    Ok(RecognizedArchive::Tar(kind, Box::new(TarReader::new(Box::new(source), limits))))
}

/// Builds the refusal of a file that is not an archive. The text names the kind of file; of an error document of S3
/// it quotes the `Code`. `prefix` is `gzip of ` or `zstd of ` if `head` was decompressed, and empty otherwise.
fn refuse_non_archive(head: &[u8], prefix: &str) -> BundleRefusal {
    const KNOWN_FORMATS: [(&[u8], &str); 8] = [
        (b"PK\x03\x04", "a ZIP"),
        (b"PK\x07\x08", "one part of a split ZIP"),
        (b"BZh", "bzip2 data"),
        (b"\xfd7zXZ", "xz data"),
        (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
        (b"Rar!", "a RAR archive"),
        (b"%PDF", "a PDF document"),
        (b"\x7fELF", "a program"),
    ];
    let text = String::from_utf8_lossy(head);
    let start = skip_to_markup(&text);
    let lower = start.to_ascii_lowercase();
    let is_html =
        ["<!doctype html", "<html", "<head", "<body", "<title", "<meta"].iter().any(|tag| lower.starts_with(tag));
    let description = if let Some((_, name)) = KNOWN_FORMATS.iter().find(|(magic, _)| head.starts_with(magic)) {
        (*name).to_owned()
    } else if head.is_empty() {
        if prefix.is_empty() { "empty".to_owned() } else { "an empty file".to_owned() }
    } else if let Some(code) = s3_error_code(start) {
        format!("an error from the object store ({})", QuotedName(code.as_bytes()))
    } else if is_html {
        "an HTML page".to_owned()
    } else if lower.starts_with("<?xml") || (lower.starts_with('<') && !lower.starts_with("<!")) {
        "an XML document".to_owned()
    } else if lower.starts_with('{') || lower.starts_with('[') {
        "a JSON document".to_owned()
    } else if is_text(head) {
        "a text file".to_owned()
    } else if prefix.is_empty() {
        "of an unknown kind".to_owned()
    } else {
        "a file of an unknown kind".to_owned()
    };
    BundleFault::NotAnArchive(format!("is {prefix}{description}; a bundle is a zip, tar, tar.gz or tar.zst"))
        .in_bundle()
}

/// Skips the byte order mark, white space and comments that may precede markup.
fn skip_to_markup(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
        match rest.strip_prefix("<!--").and_then(|comment| comment.split_once("-->")) {
            Some((_, after)) => rest = after,
            None => return rest,
        }
    }
}

/// Whether `head` is UTF-8 without NUL. Its last character may be cut off.
fn is_text(head: &[u8]) -> bool {
    !head.contains(&0) && std::str::from_utf8(head).map_or_else(|e| e.error_len().is_none(), |_| true)
}

/// Returns the `Code` of an S3 error document, at most 100 bytes of it.
fn s3_error_code(text: &str) -> Option<&str> {
    let error = &text[text.find("<Error")?..];
    let code = &error[error.find("<Code>")? + "<Code>".len()..];
    let code = &code[..code.find("</Code>")?];
    Some(&code[..code.floor_char_boundary(100)])
}
