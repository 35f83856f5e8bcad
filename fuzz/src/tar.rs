//! Tar, plain, in gzip and in zstd, against the `tar` crate over flate2 and libzstd.

use std::collections::BTreeSet;
use std::io::{Cursor, Read};

use docwharf::bundle::BundleKind;

use super::archive::{Tree, agree, judge, plain};
use super::make_tar::{self as make, Entry};
use super::recipe::Recipe;
use super::zip::{make_text, sealed};

/// An archive as it is.
pub fn bytes(data: &[u8]) {
    let Ok(accepted) = judge(data) else { return };
    let Some(decoded) = decode(data, accepted.kind) else { return };
    compare(&accepted.files, &decoded);
    sealed(&accepted);
}

fn compare(ours: &Tree, decoded: &[u8]) {
    match independent(decoded) {
        Ok(theirs) => agree(ours, &theirs, "the tar crate"),
        Err(Other::Knows(_)) => {}
        Err(Other::Refuses(why)) => panic!("accepted, but not by the tar crate: {why}"),
    }
}

/// The tar within, by decoders that are not docwharf's; none for a ZIP.
fn decode(data: &[u8], kind: BundleKind) -> Option<Vec<u8>> {
    match kind {
        BundleKind::Tar => Some(data.to_vec()),
        BundleKind::TarGz => {
            let (mut rest, mut all) = (data, Vec::new());
            // Zeros behind the last member are padding, as for gzip(1).
            while rest.iter().any(|&b| b != 0) {
                let mut member = flate2::bufread::GzDecoder::new(rest);
                member.read_to_end(&mut all).expect("flate2 reads every member");
                rest = member.into_inner();
            }
            Some(all)
        }
        BundleKind::TarZst => Some(zstd::stream::decode_all(data).expect("zstd reads it")),
        _ => None,
    }
}

/// Why the other reader has nothing to compare with.
enum Other {
    /// It reads less than the standard has, in a way that is known.
    Knows(#[allow(dead_code)] &'static str), // for whoever reads the code
    /// It has found something wrong.
    Refuses(String),
}

/// What the other reader makes of it.
fn independent(data: &[u8]) -> Result<Tree, Other> {
    let mut archive = tar::Archive::new(Cursor::new(data));
    let mut files = Tree::new();
    let refuses = |error: std::io::Error| {
        let why = error.to_string();
        // It sums bytes without a sign only, takes an empty number for none, and ends a PAX record at any line feed.
        let known = [
            ("malformed pax extension", "a line feed in a PAX record"),
            ("archive header checksum mismatch", "checksums of signed bytes"),
            ("numeric field was not a number", "a number that is empty"),
            ("two pax extensions entries describing the same member", "several PAX headers before one entry"),
            ("two long name entries describing the same member", "several names or link names before one entry"),
        ];
        match known.iter().find(|(said, _)| why.contains(said)) {
            Some((_, what)) => Other::Knows(what),
            None => Other::Refuses(why),
        }
    };
    for entry in archive.entries().map_err(refuses)? {
        let mut entry = entry.map_err(refuses)?;
        let mut keys = BTreeSet::new();
        let raw = entry.path_bytes().into_owned();
        if let Some(extensions) = entry.pax_extensions().map_err(refuses)? {
            for extension in extensions {
                // Of two records of one name it takes the first, POSIX the last; an empty one takes nothing back.
                let extension = extension.map_err(refuses)?;
                if !keys.insert(extension.key_bytes().to_vec()) || extension.value_bytes().is_empty() {
                    return Err(Other::Knows("a PAX record that is there twice or empty"));
                }
                // For GNU tar and libarchive it is the other way round.
                if extension.key_bytes() == b"path" && extension.value_bytes() != raw {
                    return Err(Other::Knows("a GNU name that beats a PAX path"));
                }
            }
        }
        let kind = entry.header().entry_type();
        // What stands before a global header is the global header's for it, and the next entry's for POSIX and GNU tar.
        if kind.is_pax_global_extensions() && raw != entry.header().path_bytes().into_owned() {
            return Err(Other::Knows("a name before a global header"));
        }
        // It looks for the version, 00, behind "ustar" as well; GNU tar, bsdtar and Python do not.
        let is_special = kind.is_pax_local_extensions() || kind.is_gnu_longname() || kind.is_gnu_longlink();
        if is_special && entry.header().as_ustar().is_none() && entry.header().as_gnu().is_none() {
            return Err(Other::Knows("a special header of another version"));
        }
        let mut content = Vec::new();
        if kind.is_hard_link() {
            let target = plain(&entry.link_name_bytes().unwrap_or_default());
            content = files.get(&target).cloned().expect("a hard link to an earlier file");
        } else if kind.is_pax_global_extensions() || kind.is_dir() {
            continue;
        } else {
            assert!(kind.is_file() || kind.is_contiguous(), "an entry of type {kind:?}");
            entry.read_to_end(&mut content).map_err(refuses)?;
            if raw.ends_with(b"/") {
                assert!(content.is_empty(), "a folder with content");
                continue;
            }
        }
        assert!(files.insert(plain(&raw), content).is_none(), "a file that is there twice");
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

/// A description of an archive. Without a lie in it, it is accepted and holds what was described.
pub fn built(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let mut built = Built { blocks: Vec::new(), files: Tree::new(), names: Vec::new(), lies: false };
    built.put(b"index.html", b"<!doctype html><title>Home</title>", &mut recipe);
    for _ in 0..recipe.below(6) {
        let name = match recipe.below(32) {
            n @ 0..24 => NAMES[n].to_vec(),
            n @ 24..28 => recipe.bytes(n - 20).to_vec(),
            n => b"long/name".repeat(n * 2),
        };
        let content = match recipe.below(4) {
            0 => Vec::new(),
            1 => recipe.bytes(40).to_vec(),
            2 => recipe.bytes(3).repeat(recipe.below(256) * 40),
            _ => make_text(recipe.below(256) * 16),
        };
        built.put(&name, &content, &mut recipe);
    }
    let tar = built.end(&mut recipe);
    let bytes = built.wrap(&tar, &mut recipe);
    match judge(&bytes) {
        Ok(accepted) => {
            let decoded = decode(&bytes, accepted.kind).expect("a tar");
            compare(&accepted.files, &decoded);
            sealed(&accepted);
            if !built.lies {
                agree(&accepted.files, &built.files, "the description");
            }
        }
        Err(why) => assert!(built.lies, "an honest archive is refused: {why}"),
    }
}

struct Built {
    blocks: Vec<u8>,
    files: Tree,
    names: Vec<Vec<u8>>,
    lies: bool,
}

impl Built {
    /// Adds an entry in one of the dialects, or one that lies.
    fn put(&mut self, name: &[u8], content: &[u8], recipe: &mut Recipe<'_>) {
        let is_folder = name.ends_with(b"/");
        let content = if is_folder { &[] } else { content };
        let kind = if is_folder { recipe.one_of(&[b'5', b'0', 0]) } else { recipe.one_of(&[b'0', 0, b'7']) };
        let mut before: Vec<Entry> = Vec::new();
        let dialect = recipe.below(5);
        let short = name.len() <= 100 && !name.contains(&0);
        let mut entry = match dialect {
            0 if short => make::raw_entry(name, kind, content),
            1 if short => make::raw_entry(name, kind, content).with(257, b"ustar  \0"),
            2 if short => make::raw_entry(name, kind, content).with(257, &[0; 8]),
            3 => {
                before.push(make::long_name(name));
                make::entry("short", kind, content)
            }
            _ => {
                before.push(make::pax(&[("path", name), ("mtime", b"1.5")]));
                make::entry("short", kind, content)
            }
        };
        if recipe.once_in(8) {
            let size = content.len().to_string();
            // The header says something else, and PAX wins.
            before.push(make::pax(&[("path", name), ("size", size.as_bytes())]));
            self.lies |= before.len() > 1;
            entry = entry.sized(0);
        }
        if recipe.once_in(8) {
            before.insert(0, make::entry("global", b'g', &make::pax_record("comment", recipe.bytes(10))));
        }
        let path = plain(name);
        let clash = self.names.iter().any(|other| clash(other, &path));
        self.lies |= clash || !is_legal(name);
        self.names.push(path.clone());
        if !is_folder {
            self.files.insert(path, content.to_vec());
        }
        if recipe.once_in(6) {
            self.lies = true;
            entry = self.lie(entry, &mut before, recipe);
        }
        before.push(entry);
        self.blocks.extend_from_slice(&make::blocks(&before));
    }

    /// Something that is not so.
    fn lie(&mut self, entry: Entry, before: &mut Vec<Entry>, recipe: &mut Recipe<'_>) -> Entry {
        let earlier: Vec<u8> = self.names.first().cloned().unwrap_or_default();
        match recipe.below(12) {
            0 => entry.with(156, &[recipe.byte()]),
            1 => entry.sized(recipe.long() >> recipe.below(64)),
            2 => entry.with(124, recipe.bytes(12)),
            3 => entry.with(345, recipe.bytes(40)),
            4 => entry.with(257, recipe.bytes(8)),
            5 => entry.with(156, b"1").with(157, &earlier[..earlier.len().min(100)]).sized(0),
            6 => {
                before.push(make::pax_bytes(recipe.bytes(40)));
                entry
            }
            7 => {
                let key = recipe.one_of(&["path", "size", "linkpath", "GNU.sparse.name", "GNU.sparse.major", "x"]);
                before.push(make::pax(&[(key, recipe.bytes(12))]));
                entry
            }
            8 => {
                before.push(make::entry("g", b'g', &make::pax_record("path", recipe.bytes(12))));
                entry
            }
            9 => {
                before.push(make::entry("././@LongLink", recipe.one_of(b"KL"), recipe.bytes(30)));
                entry
            }
            10 => {
                let (at, byte) = (usize::from(recipe.short()) % 512, recipe.byte());
                let mut entry = entry;
                entry.header[at] ^= byte;
                entry
            }
            _ => entry.with(recipe.below(250), recipe.bytes(12)),
        }
    }

    fn end(&mut self, recipe: &mut Recipe<'_>) -> Vec<u8> {
        let mut tar = self.blocks.clone();
        match recipe.below(8) {
            0 => {}
            1 => tar.extend_from_slice(&[0; 512]),
            2 => {
                self.lies = true;
                tar.extend_from_slice(&[0; 1024]);
                tar.extend_from_slice(recipe.bytes(40));
            }
            3 => {
                self.lies = true;
                tar.truncate(tar.len().saturating_sub(usize::from(recipe.short())));
            }
            _ => tar.extend_from_slice(&[0; 1024]),
        }
        tar
    }

    fn wrap(&mut self, tar: &[u8], recipe: &mut Recipe<'_>) -> Vec<u8> {
        let half = tar.len() / 2;
        let mut bytes = match recipe.below(8) {
            0 => make::gzip(tar),
            1 => [make::gzip(&tar[..half]), make::gzip(&tar[half..])].concat(),
            2 => make::zstd(tar),
            3 => [make::zstd(&tar[..half]), make::zstd_skippable(recipe.bytes(9)), make::zstd_checked(&tar[half..])]
                .concat(),
            _ => return tar.to_vec(),
        };
        if recipe.once_in(4) {
            self.lies = true;
            let (at, bit) = (usize::from(recipe.short()) % bytes.len(), recipe.below(8));
            bytes[at] ^= 1 << bit;
        }
        bytes
    }
}

/// Whether two paths cannot be in one archive together, or perhaps cannot.
fn clash(one: &[u8], other: &[u8]) -> bool {
    let below = |a: &[u8], b: &[u8]| a.strip_prefix(b).is_some_and(|rest| rest.starts_with(b"/"));
    one == other || below(one, other) || below(other, one)
}

/// Rules A2, said once more and shorter.
fn is_legal(name: &[u8]) -> bool {
    let path = plain(name);
    let drive = |name: &[u8]| name.len() > 1 && name[0].is_ascii_alphabetic() && name[1] == b':';
    !(name.is_empty() || name.contains(&0) || drive(name) || drive(&path))
        && name[0] != b'/'
        && (name.ends_with(b"/") || !path.is_empty())
        && name.split(|&b| b == b'/').all(|component| component != b"..")
}
