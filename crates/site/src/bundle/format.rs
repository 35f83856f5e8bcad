//! What a file is, by its first bytes, never by its name (rules A10).

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use docwharf_base::chain::Name;
use docwharf_base::growth::Growth;
use docwharf_base::model::limits::Limits;

use super::policy::{Fault, Refusal};
use super::stream::{ArchiveFile, Gunzip, Peeked, Plain, Source, Unzstd};
use super::tar::{self, Tar};
use super::{Kind, ReadError};

/// An archive that has been recognised.
#[derive(Debug)]
pub enum Archive {
    /// A ZIP, not read yet.
    Zip(File),
    /// A tar, compressed or not, at its start.
    Tar(Kind, Box<Tar>),
}

/// Recognises the archive in `file`, which stands at its start.
pub fn open(file: File, path: &Path, limits: &Limits) -> Result<Archive, ReadError> {
    open_growing(file, path, limits, &Arc::new(Growth::done()))
}

/// The same of one that may still grow: waits for as much as it takes to recognise it.
pub fn open_growing(file: File, path: &Path, limits: &Limits, growth: &Arc<Growth>) -> Result<Archive, ReadError> {
    let mut head = [0u8; 1024];
    // If it was given up, reading tells.
    growth.wait_for(head.len() as u64);
    let mut have = 0;
    while have < head.len() {
        match file.read_at(&mut head[have..], have as u64).map_err(ReadError::io(path))? {
            0 => break,
            n => have += n,
        }
    }
    let head = &head[..have];
    if is_zip(head) {
        return Ok(Archive::Zip(file));
    }
    let archive = ArchiveFile::new(file, path.to_owned(), limits, Arc::clone(growth));
    if head.starts_with(&[0x1f, 0x8b]) {
        return open_tar(Kind::TarGz, Box::new(Gunzip::new(archive)), *limits);
    }
    if is_zstd(head) {
        return open_tar(Kind::TarZst, Box::new(Unzstd::new(archive)?), *limits);
    }
    if is_tar(head) {
        return open_tar(Kind::Tar, Box::new(Plain::new(archive)), *limits);
    }
    Err(not_an_archive(head, "").into())
}

/// What a file seems to be, by its first bytes alone.
pub fn guess(head: &[u8]) -> Option<Kind> {
    if is_zip(head) {
        Some(Kind::Zip)
    } else if head.starts_with(&[0x1f, 0x8b]) {
        Some(Kind::TarGz)
    } else {
        is_zstd(head).then_some(Kind::TarZst)
    }
}

fn is_zip(head: &[u8]) -> bool {
    head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")
}

fn is_zstd(head: &[u8]) -> bool {
    head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd])
        || (head.len() >= 4 && head[0] & 0xf0 == 0x50 && head[1..4] == [0x2a, 0x4d, 0x18])
}

/// A header with a right checksum, or the zeros of an empty archive.
fn is_tar(head: &[u8]) -> bool {
    tar::is_header(head) || (head.len() >= 1024 && head.iter().all(|&b| b == 0))
}

fn open_tar(kind: Kind, source: Box<dyn Source>, limits: Limits) -> Result<Archive, ReadError> {
    let source = Peeked::new(source, 1024)?;
    if !is_tar(source.head()) {
        let inside = if kind == Kind::TarGz { "gzip of " } else { "zstd of " };
        return Err(not_an_archive(source.head(), inside).into());
    }
    Ok(Archive::Tar(kind, Box::new(Tar::new(Box::new(source), limits))))
}

/// Says what a file is that is no archive; an error of an S3 store is quoted by its code.
fn not_an_archive(head: &[u8], inside: &str) -> Refusal {
    const KNOWN: [(&[u8], &str); 8] = [
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
    let start = beginning(&text);
    let lower = start.to_ascii_lowercase();
    let is_html =
        ["<!doctype html", "<html", "<head", "<body", "<title", "<meta"].iter().any(|tag| lower.starts_with(tag));
    let what = if let Some((_, name)) = KNOWN.iter().find(|(magic, _)| head.starts_with(magic)) {
        (*name).to_owned()
    } else if head.is_empty() {
        if inside.is_empty() { "empty".to_owned() } else { "an empty file".to_owned() }
    } else if let Some(code) = s3_code(start) {
        format!("an error from the storage service ({})", Name(code.as_bytes()))
    } else if is_html {
        "an HTML page".to_owned()
    } else if lower.starts_with("<?xml") || (lower.starts_with('<') && !lower.starts_with("<!")) {
        "an XML document".to_owned()
    } else if lower.starts_with('{') || lower.starts_with('[') {
        "a JSON document".to_owned()
    } else if is_text(head) {
        "a text file".to_owned()
    } else if inside.is_empty() {
        "of no known kind".to_owned()
    } else {
        "something of no known kind".to_owned()
    };
    Fault::NotAnArchive(format!("is {inside}{what}; a bundle is a zip, tar, tar.gz or tar.zst")).of_archive()
}

/// Text without the byte order mark, white space and comments that markup may begin with.
fn beginning(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(['\u{feff}', ' ', '\t', '\r', '\n']);
        match rest.strip_prefix("<!--").and_then(|comment| comment.split_once("-->")) {
            Some((_, behind)) => rest = behind,
            None => return rest,
        }
    }
}

/// UTF-8 without NUL; the last character may have been cut.
fn is_text(head: &[u8]) -> bool {
    !head.contains(&0) && std::str::from_utf8(head).map_or_else(|e| e.error_len().is_none(), |_| true)
}

/// The `Code` of an S3 error document.
fn s3_code(text: &str) -> Option<&str> {
    let error = &text[text.find("<Error")?..];
    let code = &error[error.find("<Code>")? + "<Code>".len()..];
    let code = &code[..code.find("</Code>")?];
    Some(&code[..code.floor_char_boundary(100)])
}
