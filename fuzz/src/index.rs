//! Indexes of sealed images: any bytes, and indexes that were written and then changed, with their sums or without. They open
//! or say why not. What has opened is within its image and ends; what has been proved gives the version id, and its look-up
//! finds what going through all of it finds. One whose file is changed under its reader gives wrong answers, and no others.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use docwharf::base::directory::Directory;
use docwharf::model::digest::Digest;
use docwharf::model::version::VersionId;
use docwharf::site::index::{EntryCompression, ImageIndex, IndexEntry, encode_index};
use docwharf::site::mapping::{SealedFile, map_index};

use super::recipe::Recipe;

/// The layout: see the head of `src/site/index.rs`.
const HEADER: usize = 72;
const HEADER_BEFORE: usize = 64;
const RECORD: usize = 88;
const SHA256: usize = 32;
const CRC32: usize = 4;

const WORDS: [&str; 12] = [
    "a",
    "a.html",
    "a.md",
    "a.html.md",
    "index.html",
    "index.md",
    "index",
    "b.htm",
    "b.htm.md",
    "x y",
    "\u{e9}",
    "\\\r\n",
];

/// What an index says that it is of.
#[derive(Clone, Copy)]
struct Image {
    len: u64,
    id: VersionId,
}

/// The line of a file in what a version id is the digest of.
fn line(path: &[u8], content: &Digest, len: u64) -> Vec<u8> {
    let mut line = format!("{} {len} ", content.hex()).into_bytes();
    for &byte in path {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\n' => line.extend_from_slice(b"\\n"),
            other => line.push(other),
        }
    }
    line.push(b'\n');
    line
}

/// Files by a recipe.
fn files(recipe: &mut Recipe<'_>) -> BTreeMap<Vec<u8>, IndexEntry> {
    let (mut files, mut offset) = (BTreeMap::new(), 0);
    for _ in 0..recipe.below(20) {
        let mut path = Vec::new();
        for at in 0..=recipe.below(3) {
            if at > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(if recipe.once_in(8) { recipe.bytes(6) } else { recipe.one_of(&WORDS).as_bytes() });
        }
        let len = u64::from(recipe.short());
        let entry = IndexEntry {
            coding: recipe.one_of(&[EntryCompression::Stored, EntryCompression::Deflate]),
            offset,
            coded_len: len,
            len: len * 2,
            crc: u32::from(recipe.short()),
            content: Digest::of(&path),
            coded_crc: 7,
            last_header_bit: 3,
            spare_bits: recipe.byte() % 8,
            modified: recipe.long().cast_signed(),
        };
        offset += len;
        files.insert(path, entry);
    }
    files
}

fn word(bytes: &[u8], at: usize) -> usize {
    bytes[at..at + 4].iter().rev().fold(0, |word, byte| word << 8 | usize::from(*byte))
}

/// The same files in the format before: without table, Markdown and CRC-32.
fn of_before(bytes: &[u8]) -> Vec<u8> {
    let table = HEADER + word(bytes, 12) * RECORD;
    let paths = table + word(bytes, 64) * 4 + word(bytes, 68) * 8;
    let mut old = bytes[..HEADER_BEFORE].to_vec();
    old[8..12].copy_from_slice(&1u32.to_le_bytes());
    old.extend_from_slice(&bytes[HEADER..table]);
    old.extend_from_slice(&bytes[paths..bytes.len() - SHA256 - CRC32]);
    let digest = Digest::of(&old);
    old.extend_from_slice(&digest.0);
    old
}

/// With the sums that are right for what has been changed, in either format.
fn summed(mut bytes: Vec<u8>) -> Vec<u8> {
    let is_before = bytes.get(8..12).is_some_and(|format| format == [1, 0, 0, 0]);
    let after = if is_before { 0 } else { CRC32 };
    let Some(at) = bytes.len().checked_sub(SHA256 + after) else { return bytes };
    let digest = Digest::of(&bytes[..at]);
    bytes[at..at + SHA256].copy_from_slice(&digest.0);
    if !is_before {
        let sum = crc32fast::hash(&bytes[..at + SHA256]);
        bytes[at + SHA256..].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

/// Something that happens to a file.
fn damage(recipe: &mut Recipe<'_>, bytes: &mut Vec<u8>) {
    let at = usize::from(recipe.short()) % bytes.len().max(1);
    let numbers = [0, 1, 2, 3, 0x7fff_ffff, u32::MAX - 1, u32::MAX, recipe.short().into()];
    match recipe.below(8) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << recipe.below(8);
            }
        }
        2 => bytes.truncate(at),
        3 => bytes.extend_from_slice(recipe.bytes(40)),
        // One of the lengths and numbers of the header, or of a field further back.
        4 | 5 => {
            let at = if recipe.once_in(2) { recipe.one_of(&[8, 12, 16, 20, 56, 60, 64, 68]) } else { at / 4 * 4 };
            let number = recipe.one_of(&numbers);
            if let Some(place) = bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&number.to_le_bytes());
            }
        }
        6 => {
            let (one, other) = (recipe.below(20), recipe.below(20));
            for byte in 0..RECORD {
                let (one, other) = (HEADER + one * RECORD + byte, HEADER + other * RECORD + byte);
                if one.max(other) < bytes.len() {
                    bytes.swap(one, other);
                }
            }
        }
        _ => {
            let (from, len) = (at, usize::from(recipe.byte()));
            let fill = recipe.one_of(&[0, 0xff]);
            bytes.iter_mut().skip(from).take(len).for_each(|byte| *byte = fill);
        }
    }
}

/// Whatever it says, each question ends with an answer that is within it. Where its bytes are what they were when it was
/// opened, files are within the image, too.
fn within(index: &ImageIndex, image_len: Option<u64>, probes: &[Vec<u8>]) {
    for file in 0..index.len() {
        let (entry, markdown) = (index.entry(file), index.markdown(file));
        if let Some(len) = image_len {
            let end = entry.offset.checked_add(entry.coded_len);
            assert!(end.is_some_and(|end| end <= len), "file {file} ends at {end:?} in {len}");
        }
        assert!(markdown.is_none_or(|markdown| markdown < index.len()), "{markdown:?} beside {file}");
        finds(index, index.path(file));
    }
    for probe in probes {
        finds(index, probe);
    }
}

fn finds(index: &ImageIndex, path: &[u8]) {
    let found = index.find(path);
    assert!(found.is_none_or(|file| file < index.len() && index.path(file) == path), "{found:?}");
    let _ = index.first_from(path);
}

/// An index that was proved: what it finds is what going through it finds.
fn proved(index: &ImageIndex, id: VersionId, probes: &[Vec<u8>]) {
    let paths: Vec<&[u8]> = (0..index.len()).map(|file| index.path(file)).collect();
    assert!(paths.is_sorted_by(|one, other| one < other), "paths are in order, each once");
    let entries = (0..index.len()).map(|file| index.entry(file));
    let lines: Vec<u8> =
        paths.iter().zip(entries).flat_map(|(path, entry)| line(path, &entry.content, entry.len)).collect();
    assert_eq!(VersionId(Digest::of(&lines)), id);
    for path in paths.iter().copied().chain(probes.iter().map(|probe| &probe[..])) {
        assert_eq!(index.find(path), paths.iter().position(|known| *known == path));
        assert_eq!(index.first_from(path), paths.iter().copied().find(|known| *known >= path));
    }
    for (page, path) in paths.iter().enumerate() {
        let markdown = index.markdown(page).map(|file| paths[file].to_vec());
        let beside = beside(path);
        assert!(markdown.as_ref().is_none_or(|markdown| beside.contains(markdown)), "{markdown:?} for {path:?}");
        // The name that is the page's own, and no other page's, comes first.
        let is_there = |path: &[u8]| paths.contains(&path);
        if let Some(stem) = path.strip_suffix(b".html")
            && is_page(path)
            && !stem.ends_with(b"/index")
            && !(is_page(stem) && is_there(stem))
            && is_there(&[stem, b".md"].concat())
        {
            assert_eq!(markdown, Some([stem, b".md"].concat()), "for {path:?}");
        }
    }
}

fn is_page(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default().to_ascii_lowercase();
    [&b".html"[..], b".htm"].iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

/// The names that Markdown beside a page may have.
fn beside(page: &[u8]) -> Vec<Vec<u8>> {
    if !is_page(page) {
        return Vec::new();
    }
    let mut names = vec![[page, b".md"].concat()];
    if let Some(stem) = page.strip_suffix(b".html") {
        names.extend([[stem, b".md"].concat(), [stem, b"/index.md"].concat()]);
    }
    if let Some(stem) = page.strip_suffix(b"/index.html") {
        names.extend([[stem, b".md"].concat(), [stem, b"/index.md"].concat()]);
    }
    names
}

/// Opens `bytes` in each way that there is; whether they were proved.
fn open(bytes: &[u8], image: Image, probes: &[Vec<u8>]) -> bool {
    match ImageIndex::read(bytes.to_vec().into(), image.len, image.id) {
        Ok(index) => within(&index, Some(image.len), probes),
        Err(fault) => assert!(fault.to_string().starts_with("the index does not match its image (")),
    }
    match ImageIndex::decode(bytes.to_vec(), image.len, image.id) {
        Ok(index) => {
            within(&index, Some(image.len), probes);
            proved(&index, image.id, probes);
            true
        }
        Err(fault) => {
            assert!(fault.to_string().starts_with("the index does not match its image ("));
            false
        }
    }
}

/// A file that is read and then changed, as by a disk that loses a part of it.
fn change_under_reader(before: &[u8], after: &[u8], image: Image, probes: &[Vec<u8>]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("index"), before).expect("files can be written");
    let file = File::options().write(true).open(folder.path().join("index")).expect("files can be opened");
    let directory = Directory::open(folder.path()).expect("folders can be opened");
    // Against the contract of `SealedFile::open`, as a disk is that loses a part.
    let sealed = SealedFile::open(&directory, "index", image.id).expect("files can be opened");
    let mapped = map_index(&sealed).expect("a file can be mapped");
    let index = ImageIndex::read(mapped, image.len, image.id).expect("it is as it was written");
    // Never shorter: the rules of `site::mapping`.
    file.write_all_at(&after[..after.len().min(before.len())], 0).expect("files can be written");
    within(&index, None, probes);
    let _ = index.verify(image.id);
}

/// See the head of this file.
pub fn index(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    if recipe.once_in(4) {
        // Any bytes, of the image that they say they are of.
        let is_summed = recipe.once_in(2);
        let bytes = recipe.rest().to_vec();
        let bytes = if is_summed { summed(bytes) } else { bytes };
        let (mut len, mut id) = ([0; 8], [0; 32]);
        if let (Some(said), Some(of)) = (bytes.get(16..24), bytes.get(24..56)) {
            len.copy_from_slice(said);
            id.copy_from_slice(of);
        }
        let image = Image { len: u64::from_le_bytes(len), id: VersionId(Digest(id)) };
        open(&bytes, image, &[Vec::new(), b"index.html".to_vec(), b"a".to_vec()]);
        return;
    }
    let files = files(&mut recipe);
    let lines: Vec<u8> = files.iter().flat_map(|(path, entry)| line(path, &entry.content, entry.len)).collect();
    let len = files.values().map(|entry| entry.offset + entry.coded_len).max().unwrap_or(0);
    let image = Image { len, id: VersionId(Digest::of(&lines)) };
    let written: Vec<(&[u8], IndexEntry)> = files.iter().map(|(path, entry)| (&path[..], *entry)).collect();
    let genuine = encode_index(image.len, image.id, &written);
    let mut probes: Vec<Vec<u8>> = vec![Vec::new(), recipe.bytes(8).to_vec(), b"zz".to_vec()];
    for path in files.keys() {
        probes.extend([[&path[..], b"x"].concat(), path[..path.len() / 2].to_vec(), [&path[..], b".md"].concat()]);
    }

    assert!(open(&genuine, image, &probes), "what was written is an index");
    let index = ImageIndex::decode(genuine.clone(), image.len, image.id).expect("it has just been opened");
    let read: Vec<(&[u8], IndexEntry)> = (0..index.len()).map(|file| (index.path(file), index.entry(file))).collect();
    assert_eq!(read, written);
    let before = of_before(&genuine);
    let taken_over = ImageIndex::decode(before.clone(), image.len, image.id).expect("the format before is taken over");
    assert!(taken_over.bytes() == genuine, "it is taken over as it would be written");
    assert!(ImageIndex::decode(genuine.clone(), image.len + 1, image.id).is_err(), "of another image");

    let is_before = recipe.once_in(4);
    let original = if is_before { &before } else { &genuine };
    let mut changed = original.clone();
    for _ in 0..=recipe.below(4) {
        damage(&mut recipe, &mut changed);
    }
    if !is_before {
        change_under_reader(&genuine, &changed, image, &probes);
    }
    if recipe.once_in(2) {
        open(&summed(changed), image, &probes);
    } else if changed != *original {
        assert!(!open(&changed, image, &probes), "it was changed, and that is not noticed");
    }
}
