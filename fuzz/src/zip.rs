//! ZIP archives compared with the `zip` crate, which must accept each archive that docwharf accepts, with the same
//! names and contents.

use std::io::{Cursor, Read};

use docwharf::bundle::BundleKind;

use super::archive::{Accepted, Tree, assert_same_files, check_archive, normalize_path};
use super::fuzz_input::FuzzInput;
use super::make_zip::{self as make, Header, RawArchive, RawMember, extra};

/// The fuzz target for any bytes as an archive.
pub fn archive_bytes(data: &[u8]) {
    let Ok(accepted) = check_archive(data) else { return };
    if accepted.kind != BundleKind::Zip {
        return;
    }
    assert_same_files(&accepted.files, &read_with_zip_crate(data), "the zip crate");
    check_image(&accepted);
}

/// Checks that the zip crate reads the sealed image.
pub fn check_image(accepted: &Accepted) {
    // Names that are not UTF-8 are marked in a private extra field, which the zip crate ignores.
    let is_utf8 = accepted.files.keys().all(|name| std::str::from_utf8(name).is_ok());
    if let Some(image) = accepted.image.as_ref().filter(|_| is_utf8) {
        assert_same_files(&accepted.files, &read_with_zip_crate(image), "the zip crate, image");
    }
}

/// Reads all files with the zip crate.
fn read_with_zip_crate(data: &[u8]) -> Tree {
    let mut archive = zip::ZipArchive::new(Cursor::new(data)).expect("the zip crate opens the archive");
    let mut files = Tree::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).expect("the zip crate finds each member");
        // Valid UTF-8 is UTF-8 with or without the flag (rules A2). The zip crate decodes other names.
        let raw = file.name_raw().to_vec();
        let name = if std::str::from_utf8(&raw).is_ok() {
            raw.clone()
        } else {
            file.name().expect("a name").as_bytes().to_vec()
        };
        let mut content = Vec::new();
        file.read_to_end(&mut content).expect("the zip crate reads each member");
        if raw.ends_with(b"/") {
            assert!(content.is_empty(), "a folder with content");
        } else {
            assert!(files.insert(normalize_path(&name), content).is_none(), "a duplicate file");
        }
    }
    files
}

/// Names that implementations treat specially.
const NAMES: [&[u8]; 32] = [
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
    b"\x81\x82",
    b"index.html/",
    b"index.html",
    b"INDEX.HTML",
    b".git/x",
    b"serve.js",
    b"__MACOSX/._a",
    b"docs/index.html",
    b"docs/a.css",
    b"%2e%2e/x",
    b"x\0y",
    b" ",
    b".",
    b"./",
    b"a\nb",
    b"[[...slug]].html",
];

/// The fuzz target for generated archives. A valid archive is accepted and has the files that were added.
pub fn built_archive(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let mut builder = ZipBuilder { archive: RawArchive::default(), files: Tree::new(), is_invalid: false };
    if !input.once_in(8) {
        builder.add_member(b"index.html", b"<!doctype html><title>Home</title>".to_vec(), &mut input);
    }
    for _ in 0..input.below(6) {
        let name = match input.below(40) {
            n @ 0..32 => NAMES[n].to_vec(),
            n => input.bytes(n - 28).to_vec(),
        };
        let content = match input.below(4) {
            0 => Vec::new(),
            1 => input.bytes(40).to_vec(),
            2 => input.bytes(3).repeat(input.below(256) * 40),
            _ => make_text(input.below(256) * 16),
        };
        builder.add_member(&name, content, &mut input);
    }
    builder.set_archive_fields(&mut input);
    let bytes = builder.archive.bytes();
    match check_archive(&bytes) {
        Ok(accepted) => {
            assert_same_files(&accepted.files, &read_with_zip_crate(&bytes), "the zip crate");
            check_image(&accepted);
            if !builder.is_invalid {
                assert_same_files(&accepted.files, &builder.files, "the builder");
            }
        }
        Err(reason) => assert!(builder.is_invalid, "a valid archive is refused: {reason}"),
    }
}

pub fn make_text(len: usize) -> Vec<u8> {
    (0..len).map(|at| b"<p>Section says that follows.</p>\n"[at % 33] ^ u8::from(at.is_multiple_of(97))).collect()
}

/// Describes a ZIP archive.
struct ZipBuilder {
    archive: RawArchive,
    /// The expected files of a valid archive.
    files: Tree,
    /// Whether the archive may be refused or have other files.
    is_invalid: bool,
}

impl ZipBuilder {
    /// Adds a member in one of the ZIP variants. It may be invalid.
    fn add_member(&mut self, name: &[u8], content: Vec<u8>, input: &mut FuzzInput<'_>) {
        let is_folder = name.ends_with(b"/");
        let content = if is_folder { Vec::new() } else { content };
        let deflate = input.once_in(2);
        let mut raw = RawMember::from_member(&make::Member { name: name.to_vec(), content: content.clone(), deflate });
        if is_folder {
            raw.attributes = 0o040_755 << 16;
        }
        if std::str::from_utf8(name).is_ok() && input.once_in(2) {
            raw = raw.change_both_headers(|header| header.flags |= 1 << 11);
        }
        match input.below(8) {
            1 => raw.local.extra = extra(0x5455, input.bytes(9)),
            2 => raw.central.extra = extra(0x7875, input.bytes(11)),
            3 => raw = raw.change_both_headers(|header| header.extra = extra(0x7764, &[])),
            4 => raw.zip64 = true,
            5 => raw.comment = input.bytes(20).to_vec(),
            _ => {}
        }
        if !raw.zip64 {
            match input.below(6) {
                1 => raw = raw.with_data_descriptor(true, false),
                2 => raw = raw.with_data_descriptor(false, false),
                3 => raw = raw.with_data_descriptor(true, true),
                _ => {}
            }
        }
        // A refused or duplicate name makes the whole archive invalid.
        let path = normalize_path(&decode_name(name));
        let has_conflict =
            self.files.contains_key(&path) || self.archive.members.iter().any(|m| may_conflict(&m.local.name, name));
        self.is_invalid |= has_conflict || !is_legal(name);
        if !is_folder {
            self.files.insert(path, content);
        }
        if input.once_in(6) {
            self.is_invalid = true;
            corrupt(&mut raw, input);
        }
        self.archive.members.push(raw);
    }

    /// Sets fields of the end records, the comment and the gap before the central directory.
    fn set_archive_fields(&mut self, input: &mut FuzzInput<'_>) {
        let archive = &mut self.archive;
        // An archive without a page is no site.
        let has_page = self.files.keys().any(|name| is_public_page(name));
        self.is_invalid |= !has_page;
        match input.below(12) {
            1 => archive.comment = input.bytes(30).to_vec(),
            2 => archive.zip64 = true,
            variant @ 3..=8 => {
                self.is_invalid = true;
                match variant {
                    3 => archive.gap = input.bytes(60).to_vec(),
                    4 => archive.total = Some(input.u16()),
                    5 => archive.start = Some(u32::from(input.u16())),
                    6 => archive.size = Some(u32::from(input.u16())),
                    7 => archive.disks = [input.u16(), input.u16()],
                    _ => (archive.zip64, archive.zip64_total) = (true, Some(input.u64())),
                }
            }
            _ => {}
        }
        // A comment that may contain another end record is refused, and so is an ambiguous end.
        self.is_invalid |= !archive.comment.is_empty();
    }
}

/// The name as docwharf stores it: converted to UTF-8.
fn decode_name(name: &[u8]) -> Vec<u8> {
    if std::str::from_utf8(name).is_ok() {
        return name.to_vec();
    }
    let header = Header { name: name.to_vec(), ..Header::default() };
    let page = RawMember { local: header.clone(), central: header, ..RawMember::default() };
    let bytes = RawArchive::default().with(page).bytes();
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("an archive of one empty file");
    archive.by_index(0).expect("the archive has a file").name().expect("a name").as_bytes().to_vec()
}

/// Whether an archive with both names is refused, or perhaps refused.
fn may_conflict(a: &[u8], b: &[u8]) -> bool {
    let (a, b) = (normalize_path(&decode_name(a)), normalize_path(&decode_name(b)));
    let is_below = |path: &[u8], folder: &[u8]| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with(b"/"));
    a == b || is_below(&a, &b) || is_below(&b, &a)
}

/// Whether a name is allowed by rules A2: an independent, shorter implementation.
fn is_legal(name: &[u8]) -> bool {
    let path = normalize_path(name);
    let is_folder = name.ends_with(b"/");
    let has_drive = |name: &[u8]| name.len() > 1 && name[0].is_ascii_alphabetic() && name[1] == b':';
    if name.is_empty() || name.contains(&0) || [b'/', b'\\'].contains(&name[0]) || has_drive(name) || has_drive(&path) {
        return false;
    }
    (is_folder || !path.is_empty()) && name.split(|b| [b'/', b'\\'].contains(b)).all(|component| component != b"..")
}

/// Whether the file is surely a page of the site, in a layout without a wrapper folder.
fn is_public_page(name: &[u8]) -> bool {
    name == b"index.html" || name == b"b.html"
}

/// Corrupts a member.
fn corrupt(raw: &mut RawMember, input: &mut FuzzInput<'_>) {
    let target = input.below(3);
    let field = input.below(10);
    let value = input.u16();
    let change = |header: &mut Header| match field {
        0 => header.flags ^= 1 << (value % 16),
        1 => header.method = value,
        2 => header.crc ^= u32::from(value),
        3 => header.coded = header.coded.wrapping_add(u32::from(value)),
        4 => header.size = header.size.wrapping_add(u32::from(value)),
        5 => header.size = header.size.wrapping_sub(u32::from(value)),
        6 => header.name.push(value as u8),
        7 => header.extra = value.to_le_bytes().repeat(usize::from(value % 5)),
        8 => header.version = value,
        _ => header.time = [value as u8; 4],
    };
    match target {
        0 => change(&mut raw.local),
        1 => change(&mut raw.central),
        _ => {
            change(&mut raw.local);
            change(&mut raw.central);
        }
    }
    match input.below(8) {
        1 => raw.attributes = u32::from(input.u16()) << 16,
        2 => raw.offset = Some(u32::from(input.u16())),
        3 => raw.trailing.extend_from_slice(input.bytes(24)),
        4 => raw.data.extend_from_slice(input.bytes(8)),
        5 => raw.disk = input.u16(),
        6 => {
            let at = usize::from(input.u16());
            if let Some(byte) = raw.data.get_mut(at) {
                *byte ^= 1 << (value % 8);
            }
        }
        _ => {}
    }
}
