//! ZIP against the `zip` crate: what docwharf accepts, the other reader accepts, with the same names and bytes.

use std::io::{Cursor, Read};

use docwharf::bundle::BundleKind;

use super::archive::{Accepted, Tree, agree, judge, plain};
use super::make_zip::{self as make, Archive, Header, Raw, extra};
use super::recipe::Recipe;

/// An archive as it is.
pub fn bytes(data: &[u8]) {
    let Ok(accepted) = judge(data) else { return };
    if accepted.kind != BundleKind::Zip {
        return;
    }
    agree(&accepted.files, &independent(data), "the zip crate");
    sealed(&accepted);
}

/// The image is a ZIP for everybody, too.
pub fn sealed(accepted: &Accepted) {
    // Names that are not UTF-8 are marked in a field of our own, which others do not know.
    let is_plain = accepted.files.keys().all(|name| std::str::from_utf8(name).is_ok());
    if let Some(image) = accepted.image.as_ref().filter(|_| is_plain) {
        agree(&accepted.files, &independent(image), "the zip crate in the image");
    }
}

/// What the other reader makes of it.
fn independent(data: &[u8]) -> Tree {
    let mut archive = zip::ZipArchive::new(Cursor::new(data)).expect("the zip crate opens it");
    let mut files = Tree::new();
    for index in 0..archive.len() {
        let mut file = archive.by_index(index).expect("the zip crate finds every member");
        // UTF-8 counts with or without the flag (rules A2); the other encoding is as the other reader knows it.
        let raw = file.name_raw().to_vec();
        let name = if std::str::from_utf8(&raw).is_ok() {
            raw.clone()
        } else {
            file.name().expect("a name").as_bytes().to_vec()
        };
        let mut content = Vec::new();
        file.read_to_end(&mut content).expect("the zip crate reads every member");
        if raw.ends_with(b"/") {
            assert!(content.is_empty(), "a folder with content");
        } else {
            assert!(files.insert(plain(&name), content).is_none(), "a file that is there twice");
        }
    }
    files
}

/// Names that say something to one reader or another.
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

/// A description of an archive. Without a lie in it, it is accepted and holds what was described.
pub fn built(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let mut built = Built { archive: Archive::default(), files: Tree::new(), lies: false };
    if !recipe.once_in(8) {
        built.put(b"index.html", b"<!doctype html><title>Home</title>".to_vec(), &mut recipe);
    }
    for _ in 0..recipe.below(6) {
        let name = match recipe.below(40) {
            n @ 0..32 => NAMES[n].to_vec(),
            n => recipe.bytes(n - 28).to_vec(),
        };
        let content = match recipe.below(4) {
            0 => Vec::new(),
            1 => recipe.bytes(40).to_vec(),
            2 => recipe.bytes(3).repeat(recipe.below(256) * 40),
            _ => make_text(recipe.below(256) * 16),
        };
        built.put(&name, content, &mut recipe);
    }
    built.envelope(&mut recipe);
    let bytes = built.archive.bytes();
    match judge(&bytes) {
        Ok(accepted) => {
            agree(&accepted.files, &independent(&bytes), "the zip crate");
            sealed(&accepted);
            if !built.lies {
                agree(&accepted.files, &built.files, "the description");
            }
        }
        Err(why) => assert!(built.lies, "an honest archive is refused: {why}"),
    }
}

pub fn make_text(len: usize) -> Vec<u8> {
    (0..len).map(|at| b"<p>Section says that follows.</p>\n"[at % 33] ^ u8::from(at.is_multiple_of(97))).collect()
}

struct Built {
    archive: Archive,
    /// What it holds, as far as it is honest.
    files: Tree,
    lies: bool,
}

impl Built {
    /// Adds a member in one of the forms that a ZIP has, or one that lies.
    fn put(&mut self, name: &[u8], content: Vec<u8>, recipe: &mut Recipe<'_>) {
        let is_folder = name.ends_with(b"/");
        let content = if is_folder { Vec::new() } else { content };
        let deflate = recipe.once_in(2);
        let mut raw = Raw::of(&make::Member { name: name.to_vec(), content: content.clone(), deflate });
        if is_folder {
            raw.attributes = 0o040_755 << 16;
        }
        if std::str::from_utf8(name).is_ok() && recipe.once_in(2) {
            raw = raw.both(|header| header.flags |= 1 << 11);
        }
        match recipe.below(8) {
            1 => raw.local.extra = extra(0x5455, recipe.bytes(9)),
            2 => raw.central.extra = extra(0x7875, recipe.bytes(11)),
            3 => raw = raw.both(|header| header.extra = extra(0x7764, &[])),
            4 => raw.wide = true,
            5 => raw.comment = recipe.bytes(20).to_vec(),
            _ => {}
        }
        if !raw.wide {
            match recipe.below(6) {
                1 => raw = raw.descriptor(true, false),
                2 => raw = raw.descriptor(false, false),
                3 => raw = raw.descriptor(true, true),
                _ => {}
            }
        }
        // A name that is refused, or there already, is a lie of the whole.
        let path = plain(&shown(name));
        let is_there =
            self.files.contains_key(&path) || self.archive.members.iter().any(|m| clash(&m.local.name, name));
        self.lies |= is_there || !is_legal(name);
        if !is_folder {
            self.files.insert(path, content);
        }
        if recipe.once_in(6) {
            self.lies = true;
            lie(&mut raw, recipe);
        }
        self.archive.members.push(raw);
    }

    /// What stands around the members.
    fn envelope(&mut self, recipe: &mut Recipe<'_>) {
        let archive = &mut self.archive;
        // Without a page it is no site.
        let has_page = self.files.keys().any(|name| is_shown_page(name));
        self.lies |= !has_page;
        match recipe.below(12) {
            1 => archive.comment = recipe.bytes(30).to_vec(),
            2 => archive.wide = true,
            lie @ 3..=8 => {
                self.lies = true;
                match lie {
                    3 => archive.gap = recipe.bytes(60).to_vec(),
                    4 => archive.total = Some(recipe.short()),
                    5 => archive.start = Some(u32::from(recipe.short())),
                    6 => archive.size = Some(u32::from(recipe.short())),
                    7 => archive.disks = [recipe.short(), recipe.short()],
                    _ => (archive.wide, archive.wide_total) = (true, Some(recipe.long())),
                }
            }
            _ => {}
        }
        // A comment in which another end record could be seen is refused, and so is one with which the end is not clear.
        self.lies |= !archive.comment.is_empty();
    }
}

/// A name as docwharf keeps it.
fn shown(name: &[u8]) -> Vec<u8> {
    if std::str::from_utf8(name).is_ok() {
        return name.to_vec();
    }
    let header = Header { name: name.to_vec(), ..Header::default() };
    let page = Raw { local: header.clone(), central: header, ..Raw::default() };
    let bytes = Archive::default().with(page).bytes();
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).expect("an archive of one empty file");
    archive.by_index(0).expect("its file").name().expect("a name").as_bytes().to_vec()
}

/// Whether two names cannot be in one archive together, or perhaps cannot.
fn clash(one: &[u8], other: &[u8]) -> bool {
    let (one, other) = (plain(&shown(one)), plain(&shown(other)));
    let below = |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| rest.starts_with(b"/"));
    one == other || below(&one, &other) || below(&other, &one)
}

/// Rules A2, said once more and shorter.
fn is_legal(name: &[u8]) -> bool {
    let path = plain(name);
    let is_folder = name.ends_with(b"/");
    let drive = |name: &[u8]| name.len() > 1 && name[0].is_ascii_alphabetic() && name[1] == b':';
    if name.is_empty() || name.contains(&0) || [b'/', b'\\'].contains(&name[0]) || drive(name) || drive(&path) {
        return false;
    }
    (is_folder || !path.is_empty()) && name.split(|b| [b'/', b'\\'].contains(b)).all(|component| component != b"..")
}

/// A page that a reader can reach, in a layout without wrappers; where there is a doubt, none.
fn is_shown_page(name: &[u8]) -> bool {
    name == b"index.html" || name == b"b.html"
}

/// Something that is not so.
fn lie(raw: &mut Raw, recipe: &mut Recipe<'_>) {
    let which = recipe.below(3);
    let field = recipe.below(10);
    let value = recipe.short();
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
    match which {
        0 => change(&mut raw.local),
        1 => change(&mut raw.central),
        _ => {
            change(&mut raw.local);
            change(&mut raw.central);
        }
    }
    match recipe.below(8) {
        1 => raw.attributes = u32::from(recipe.short()) << 16,
        2 => raw.offset = Some(u32::from(recipe.short())),
        3 => raw.behind.extend_from_slice(recipe.bytes(24)),
        4 => raw.data.extend_from_slice(recipe.bytes(8)),
        5 => raw.disk = recipe.short(),
        6 => {
            let at = usize::from(recipe.short());
            if let Some(byte) = raw.data.get_mut(at) {
                *byte ^= 1 << (value % 8);
            }
        }
        _ => {}
    }
}
