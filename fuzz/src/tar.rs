//! Tar archives, uncompressed, in gzip and in zstd, compared with the `tar` crate over flate2 and libzstd.

use std::collections::BTreeSet;
use std::io::{Cursor, Read};

use docwharf::bundle::BundleKind;

use super::archive::{Tree, assert_same_files, check_archive, normalize_path};
use super::fuzz_input::FuzzInput;
use super::make_tar::{self as make, TarEntry};
use super::zip::{check_image, make_text};

/// The fuzz target for any bytes as an archive.
pub fn archive_bytes(data: &[u8]) {
    let Ok(accepted) = check_archive(data) else { return };
    let Some(decoded) = decode(data, accepted.kind) else { return };
    compare(&accepted.files, &decoded);
    check_image(&accepted);
}

/// Compares the files of a decoded tar with those that the tar crate reads.
fn compare(files: &Tree, decoded: &[u8]) {
    match read_with_tar_crate(decoded) {
        Ok(tar_files) => assert_same_files(files, &tar_files, "the tar crate"),
        Err(TarCrateError::KnownDifference(_)) => {}
        Err(TarCrateError::Refused(reason)) => panic!("accepted, but not by the tar crate: {reason}"),
    }
}

/// Decodes to the uncompressed tar with decoders other than docwharf's. `None` for a ZIP.
fn decode(data: &[u8], kind: BundleKind) -> Option<Vec<u8>> {
    match kind {
        BundleKind::Tar => Some(data.to_vec()),
        BundleKind::TarGz => {
            let (mut remaining, mut tar) = (data, Vec::new());
            // Zeros after the last member are padding, as for gzip(1).
            while remaining.iter().any(|&b| b != 0) {
                let mut member = flate2::bufread::GzDecoder::new(remaining);
                member.read_to_end(&mut tar).expect("flate2 reads each member");
                remaining = member.into_inner();
            }
            Some(tar)
        }
        BundleKind::TarZst => Some(zstd::stream::decode_all(data).expect("libzstd reads the archive")),
        _ => None,
    }
}

/// The reason why there is nothing to compare with.
enum TarCrateError {
    /// The tar crate is known to differ from the standard here.
    KnownDifference(#[allow(dead_code)] &'static str), // documents the code
    /// The tar crate refuses the archive.
    Refused(String),
}

/// Reads all files with the tar crate.
fn read_with_tar_crate(data: &[u8]) -> Result<Tree, TarCrateError> {
    let mut archive = tar::Archive::new(Cursor::new(data));
    let mut files = Tree::new();
    let to_error = |error: std::io::Error| {
        let message = error.to_string();
        // The tar crate sums unsigned bytes only, refuses empty numbers, and ends a PAX record at any line feed.
        let known_differences = [
            ("malformed pax extension", "a line feed in a PAX record"),
            ("archive header checksum mismatch", "checksums of signed bytes"),
            ("numeric field was not a number", "a number that is empty"),
            ("two pax extensions entries describing the same member", "several PAX headers before one entry"),
            ("two long name entries describing the same member", "several names or link names before one entry"),
        ];
        match known_differences.iter().find(|(text, _)| message.contains(text)) {
            Some((_, difference)) => TarCrateError::KnownDifference(difference),
            None => TarCrateError::Refused(message),
        }
    };
    for entry in archive.entries().map_err(to_error)? {
        let mut entry = entry.map_err(to_error)?;
        let mut pax_keys = BTreeSet::new();
        let raw = entry.path_bytes().into_owned();
        if let Some(extensions) = entry.pax_extensions().map_err(to_error)? {
            for extension in extensions {
                // The tar crate uses the first of two records with one name, POSIX the last. An empty record removes
                // nothing.
                let extension = extension.map_err(to_error)?;
                if !pax_keys.insert(extension.key_bytes().to_vec()) || extension.value_bytes().is_empty() {
                    return Err(TarCrateError::KnownDifference("a duplicate or empty PAX record"));
                }
                // In GNU tar and libarchive the PAX path has priority.
                if extension.key_bytes() == b"path" && extension.value_bytes() != raw {
                    return Err(TarCrateError::KnownDifference("a GNU name with priority over a PAX path"));
                }
            }
        }
        let kind = entry.header().entry_type();
        // The tar crate applies a name before a global header to that header, POSIX and GNU tar to the next entry.
        if kind.is_pax_global_extensions() && raw != entry.header().path_bytes().into_owned() {
            return Err(TarCrateError::KnownDifference("a name before a global header"));
        }
        // The tar crate requires the version 00 after "ustar"; GNU tar, bsdtar and Python do not.
        let is_special = kind.is_pax_local_extensions() || kind.is_gnu_longname() || kind.is_gnu_longlink();
        if is_special && entry.header().as_ustar().is_none() && entry.header().as_gnu().is_none() {
            return Err(TarCrateError::KnownDifference("a special header of another version"));
        }
        let mut content = Vec::new();
        if kind.is_hard_link() {
            let target = normalize_path(&entry.link_name_bytes().unwrap_or_default());
            content = files.get(&target).cloned().expect("a hard link to an earlier file");
        } else if kind.is_pax_global_extensions() || kind.is_dir() {
            continue;
        } else {
            assert!(kind.is_file() || kind.is_contiguous(), "an entry of type {kind:?}");
            entry.read_to_end(&mut content).map_err(to_error)?;
            if raw.ends_with(b"/") {
                assert!(content.is_empty(), "a folder with content");
                continue;
            }
        }
        assert!(files.insert(normalize_path(&raw), content).is_none(), "a duplicate file");
    }
    Ok(files)
}

const NAMES: [&[u8]; 24] = [
    b"a",
    b"b.html",
    b"a/b",
    b"a/",
    b"dir/",
    b"./c",
    b"d//e",
    b"a/./b",
    b"../x",
    b"x/../y",
    b"/abs",
    b"C:x",
    b"..\\x",
    b"e\\f",
    b"\xe4.txt",
    b"\xc3\xa4.txt",
    b"index.html/",
    b"index.html",
    b".git/x",
    b"serve.js",
    b"._a",
    b"docs/index.html",
    b" ",
    b"a\nb",
];

/// The fuzz target for generated archives. A valid archive is accepted and has the files that were added.
pub fn built_archive(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let mut builder = TarBuilder { blocks: Vec::new(), files: Tree::new(), paths: Vec::new(), is_invalid: false };
    builder.add_entry(b"index.html", b"<!doctype html><title>Home</title>", &mut input);
    for _ in 0..input.below(6) {
        let name = match input.below(32) {
            n @ 0..24 => NAMES[n].to_vec(),
            n @ 24..28 => input.bytes(n - 20).to_vec(),
            n => b"long/name".repeat(n * 2),
        };
        let content = match input.below(4) {
            0 => Vec::new(),
            1 => input.bytes(40).to_vec(),
            2 => input.bytes(3).repeat(input.below(256) * 40),
            _ => make_text(input.below(256) * 16),
        };
        builder.add_entry(&name, &content, &mut input);
    }
    let tar = builder.finish(&mut input);
    let bytes = builder.compress(&tar, &mut input);
    match check_archive(&bytes) {
        Ok(accepted) => {
            let decoded = decode(&bytes, accepted.kind).expect("a tar");
            compare(&accepted.files, &decoded);
            check_image(&accepted);
            if !builder.is_invalid {
                assert_same_files(&accepted.files, &builder.files, "the builder");
            }
        }
        Err(reason) => assert!(builder.is_invalid, "a valid archive is refused: {reason}"),
    }
}

/// Writes a tar archive.
struct TarBuilder {
    blocks: Vec<u8>,
    /// The expected files of a valid archive.
    files: Tree,
    /// The paths of all entries.
    paths: Vec<Vec<u8>>,
    /// Whether the archive may be refused or have other files.
    is_invalid: bool,
}

impl TarBuilder {
    /// Adds an entry in one of the tar formats. It may be invalid.
    fn add_entry(&mut self, name: &[u8], content: &[u8], input: &mut FuzzInput<'_>) {
        let is_folder = name.ends_with(b"/");
        let content = if is_folder { &[] } else { content };
        let kind = if is_folder { input.one_of(&[b'5', b'0', 0]) } else { input.one_of(&[b'0', 0, b'7']) };
        let mut extension_entries: Vec<TarEntry> = Vec::new();
        let format = input.below(5);
        let fits_header = name.len() <= 100 && !name.contains(&0);
        let mut entry = match format {
            0 if fits_header => make::raw_entry(name, kind, content),
            1 if fits_header => make::raw_entry(name, kind, content).with(257, b"ustar  \0"),
            2 if fits_header => make::raw_entry(name, kind, content).with(257, &[0; 8]),
            3 => {
                extension_entries.push(make::long_name(name));
                make::entry("short", kind, content)
            }
            _ => {
                extension_entries.push(make::pax(&[("path", name), ("mtime", b"1.5")]));
                make::entry("short", kind, content)
            }
        };
        if input.once_in(8) {
            let size = content.len().to_string();
            // The header has another size. PAX has priority.
            extension_entries.push(make::pax(&[("path", name), ("size", size.as_bytes())]));
            self.is_invalid |= extension_entries.len() > 1;
            entry = entry.sized(0);
        }
        if input.once_in(8) {
            extension_entries.insert(0, make::entry("global", b'g', &make::pax_record("comment", input.bytes(10))));
        }
        let path = normalize_path(name);
        let has_conflict = self.paths.iter().any(|other| may_conflict(other, &path));
        self.is_invalid |= has_conflict || !is_legal(name);
        self.paths.push(path.clone());
        if !is_folder {
            self.files.insert(path, content.to_vec());
        }
        if input.once_in(6) {
            self.is_invalid = true;
            entry = self.corrupt(entry, &mut extension_entries, input);
        }
        extension_entries.push(entry);
        self.blocks.extend_from_slice(&make::blocks(&extension_entries));
    }

    /// Corrupts an entry or adds a wrong extension entry.
    fn corrupt(
        &mut self,
        entry: TarEntry,
        extension_entries: &mut Vec<TarEntry>,
        input: &mut FuzzInput<'_>,
    ) -> TarEntry {
        let earlier_path: Vec<u8> = self.paths.first().cloned().unwrap_or_default();
        match input.below(12) {
            0 => entry.with(156, &[input.byte()]),
            1 => entry.sized(input.u64() >> input.below(64)),
            2 => entry.with(124, input.bytes(12)),
            3 => entry.with(345, input.bytes(40)),
            4 => entry.with(257, input.bytes(8)),
            5 => entry.with(156, b"1").with(157, &earlier_path[..earlier_path.len().min(100)]).sized(0),
            6 => {
                extension_entries.push(make::pax_bytes(input.bytes(40)));
                entry
            }
            7 => {
                let key = input.one_of(&["path", "size", "linkpath", "GNU.sparse.name", "GNU.sparse.major", "x"]);
                extension_entries.push(make::pax(&[(key, input.bytes(12))]));
                entry
            }
            8 => {
                extension_entries.push(make::entry("g", b'g', &make::pax_record("path", input.bytes(12))));
                entry
            }
            9 => {
                extension_entries.push(make::entry("././@LongLink", input.one_of(b"KL"), input.bytes(30)));
                entry
            }
            10 => {
                let (at, byte) = (usize::from(input.u16()) % 512, input.byte());
                let mut entry = entry;
                entry.header[at] ^= byte;
                entry
            }
            _ => entry.with(input.below(250), input.bytes(12)),
        }
    }

    /// Adds the end of the archive, which may be missing, truncated or followed by other bytes.
    fn finish(&mut self, input: &mut FuzzInput<'_>) -> Vec<u8> {
        let mut tar = self.blocks.clone();
        match input.below(8) {
            0 => {}
            1 => tar.extend_from_slice(&[0; 512]),
            2 => {
                self.is_invalid = true;
                tar.extend_from_slice(&[0; 1024]);
                tar.extend_from_slice(input.bytes(40));
            }
            3 => {
                self.is_invalid = true;
                tar.truncate(tar.len().saturating_sub(usize::from(input.u16())));
            }
            _ => tar.extend_from_slice(&[0; 1024]),
        }
        tar
    }

    /// Compresses the archive, or returns it as it is. May flip a bit.
    fn compress(&mut self, tar: &[u8], input: &mut FuzzInput<'_>) -> Vec<u8> {
        let half = tar.len() / 2;
        let mut bytes = match input.below(8) {
            0 => make::gzip(tar),
            1 => [make::gzip(&tar[..half]), make::gzip(&tar[half..])].concat(),
            2 => make::zstd(tar),
            3 => {
                [make::zstd(&tar[..half]), make::zstd_skippable(input.bytes(9)), make::zstd_with_checksum(&tar[half..])]
                    .concat()
            }
            _ => return tar.to_vec(),
        };
        if input.once_in(4) {
            self.is_invalid = true;
            let (at, bit) = (usize::from(input.u16()) % bytes.len(), input.below(8));
            bytes[at] ^= 1 << bit;
        }
        bytes
    }
}

/// Whether an archive with both paths is refused, or perhaps refused.
fn may_conflict(a: &[u8], b: &[u8]) -> bool {
    let is_below = |path: &[u8], folder: &[u8]| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"));
    a == b || is_below(a, b) || is_below(b, a)
}

/// Whether a name is allowed by rules A2: an independent, shorter implementation.
fn is_legal(name: &[u8]) -> bool {
    let path = normalize_path(name);
    let has_drive = |name: &[u8]| name.len() > 1 && name[0].is_ascii_alphabetic() && name[1] == b':';
    !(name.is_empty() || name.contains(&0) || has_drive(name) || has_drive(&path))
        && name[0] != b'/'
        && (name.ends_with(b"/") || !path.is_empty())
        && name.split(|&b| b == b'/').all(|component| component != b"..")
}
