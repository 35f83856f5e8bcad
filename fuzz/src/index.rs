//! Indexes of sealed images: any bytes, and written indexes that were changed, with valid or invalid checksums. Opening
//! succeeds or returns the reason. All values of an opened index are within the image, and each lookup ends. A verified
//! index has the version id, and a lookup finds the same as a linear search. If the file changes after it was opened,
//! results may be wrong, but they stay within the index.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use docwharf::base::directory::Directory;
use docwharf::model::digest::Digest;
use docwharf::model::version::VersionId;
use docwharf::site::index::{EntryCompression, ImageIndex, IndexEntry, encode_index};
use docwharf::site::mapping::{SealedFile, map_index};

use super::fuzz_input::FuzzInput;

/// The layout: see the module documentation of `crates/site/src/index/mod.rs`.
const HEADER_BYTES: usize = 72;
const OLD_HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 88;
const SHA256_BYTES: usize = 32;
const CRC32_BYTES: usize = 4;

const COMPONENTS: [&str; 12] = [
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

/// The image that an index belongs to.
#[derive(Clone, Copy)]
struct Image {
    len: u64,
    id: VersionId,
}

/// The manifest line of a file. A version id is the digest of these lines.
fn manifest_line(path: &[u8], content: &Digest, len: u64) -> Vec<u8> {
    let mut line = format!("{} {len} ", content.to_hex()).into_bytes();
    for &byte in path {
        match byte {
            b'\\' => line.extend_from_slice(b"\\\\"),
            b'\r' => line.extend_from_slice(b"\\r"),
            b'\n' => line.extend_from_slice(b"\\n"),
            byte => line.push(byte),
        }
    }
    line.push(b'\n');
    line
}

/// Makes files with their index entries.
fn make_files(input: &mut FuzzInput<'_>) -> BTreeMap<Vec<u8>, IndexEntry> {
    let (mut files, mut offset) = (BTreeMap::new(), 0);
    for _ in 0..input.below(20) {
        let mut path = Vec::new();
        for n in 0..=input.below(3) {
            if n > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(if input.once_in(8) {
                input.bytes(6)
            } else {
                input.one_of(&COMPONENTS).as_bytes()
            });
        }
        let len = u64::from(input.u16());
        let entry = IndexEntry {
            compression: input.one_of(&[EntryCompression::Stored, EntryCompression::Deflate]),
            offset,
            compressed_len: len,
            len: len * 2,
            crc: u32::from(input.u16()),
            content: Digest::compute(&path),
            compressed_crc: 7,
            last_block_bit: 3,
            spare_bits: input.byte() % 8,
            modified: input.u64().cast_signed(),
        };
        offset += len;
        files.insert(path, entry);
    }
    files
}

fn read_u32(bytes: &[u8], offset: usize) -> usize {
    bytes[offset..offset + 4].iter().rev().fold(0, |value, byte| value << 8 | usize::from(*byte))
}

/// Converts an index to the older format, which has no hash table, no Markdown pages and no CRC-32.
fn to_old_format(bytes: &[u8]) -> Vec<u8> {
    let table_start = HEADER_BYTES + read_u32(bytes, 12) * RECORD_BYTES;
    let paths_start = table_start + read_u32(bytes, 64) * 4 + read_u32(bytes, 68) * 8;
    let mut old = bytes[..OLD_HEADER_BYTES].to_vec();
    old[8..12].copy_from_slice(&1u32.to_le_bytes());
    old.extend_from_slice(&bytes[HEADER_BYTES..table_start]);
    old.extend_from_slice(&bytes[paths_start..bytes.len() - SHA256_BYTES - CRC32_BYTES]);
    let digest = Digest::compute(&old);
    old.extend_from_slice(&digest.0);
    old
}

/// Makes the checksums valid again after a change, in both formats.
fn update_checksums(mut bytes: Vec<u8>) -> Vec<u8> {
    let is_old_format = bytes.get(8..12).is_some_and(|format| format == [1, 0, 0, 0]);
    let crc_len = if is_old_format { 0 } else { CRC32_BYTES };
    let Some(sha_start) = bytes.len().checked_sub(SHA256_BYTES + crc_len) else { return bytes };
    let digest = Digest::compute(&bytes[..sha_start]);
    bytes[sha_start..sha_start + SHA256_BYTES].copy_from_slice(&digest.0);
    if !is_old_format {
        let crc = crc32fast::hash(&bytes[..sha_start + SHA256_BYTES]);
        bytes[sha_start + SHA256_BYTES..].copy_from_slice(&crc.to_le_bytes());
    }
    bytes
}

/// Damages an index file.
fn damage(input: &mut FuzzInput<'_>, bytes: &mut Vec<u8>) {
    let at = usize::from(input.u16()) % bytes.len().max(1);
    let numbers = [0, 1, 2, 3, 0x7fff_ffff, u32::MAX - 1, u32::MAX, input.u16().into()];
    match input.below(8) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << input.below(8);
            }
        }
        2 => bytes.truncate(at),
        3 => bytes.extend_from_slice(input.bytes(40)),
        // A length or count of the header, or another aligned field.
        4 | 5 => {
            let at = if input.once_in(2) { input.one_of(&[8, 12, 16, 20, 56, 60, 64, 68]) } else { at / 4 * 4 };
            let number = input.one_of(&numbers);
            if let Some(field) = bytes.get_mut(at..at + 4) {
                field.copy_from_slice(&number.to_le_bytes());
            }
        }
        6 => {
            let (a, b) = (input.below(20), input.below(20));
            for byte in 0..RECORD_BYTES {
                let (a, b) = (HEADER_BYTES + a * RECORD_BYTES + byte, HEADER_BYTES + b * RECORD_BYTES + byte);
                if a.max(b) < bytes.len() {
                    bytes.swap(a, b);
                }
            }
        }
        _ => {
            let (start, len) = (at, usize::from(input.byte()));
            let fill = input.one_of(&[0, 0xff]);
            bytes.iter_mut().skip(start).take(len).for_each(|byte| *byte = fill);
        }
    }
}

/// Checks that each lookup ends with a result within the index. With `image_len`, checks that all files are within the
/// image, too; only the bytes that were checked at opening ensure this.
fn check_bounds(index: &ImageIndex, image_len: Option<u64>, probes: &[Vec<u8>]) {
    for file in 0..index.len() {
        let (entry, markdown) = (index.entry(file), index.markdown_of(file));
        if let Some(len) = image_len {
            let end = entry.offset.checked_add(entry.compressed_len);
            assert!(end.is_some_and(|end| end <= len), "file {file} ends at {end:?} in {len}");
        }
        assert!(markdown.is_none_or(|markdown| markdown < index.len()), "{markdown:?} beside {file}");
        check_lookup(index, index.path(file));
    }
    for probe in probes {
        check_lookup(index, probe);
    }
}

fn check_lookup(index: &ImageIndex, path: &[u8]) {
    let found = index.find(path);
    assert!(found.is_none_or(|file| file < index.len() && index.path(file) == path), "{found:?}");
    let _ = index.first_path_from(path);
}

/// Checks a verified index: its version id, and its lookups against a linear search.
fn check_verified(index: &ImageIndex, id: VersionId, probes: &[Vec<u8>]) {
    let paths: Vec<&[u8]> = (0..index.len()).map(|file| index.path(file)).collect();
    assert!(paths.is_sorted_by(|a, b| a < b), "the paths are in order and unique");
    let entries = (0..index.len()).map(|file| index.entry(file));
    let lines: Vec<u8> =
        paths.iter().zip(entries).flat_map(|(path, entry)| manifest_line(path, &entry.content, entry.len)).collect();
    assert_eq!(VersionId(Digest::compute(&lines)), id);
    for path in paths.iter().copied().chain(probes.iter().map(|probe| &probe[..])) {
        assert_eq!(index.find(path), paths.iter().position(|other| *other == path));
        assert_eq!(index.first_path_from(path), paths.iter().copied().find(|other| *other >= path));
    }
    for (page, path) in paths.iter().enumerate() {
        let markdown = index.markdown_of(page).map(|file| paths[file].to_vec());
        let names = markdown_names(path);
        assert!(markdown.as_ref().is_none_or(|markdown| names.contains(markdown)), "{markdown:?} for {path:?}");
        // A name that belongs to this page only has priority.
        let exists = |path: &[u8]| paths.contains(&path);
        if let Some(stem) = path.strip_suffix(b".html")
            && is_page(path)
            && !stem.ends_with(b"/index")
            && !(is_page(stem) && exists(stem))
            && exists(&[stem, b".md"].concat())
        {
            assert_eq!(markdown, Some([stem, b".md"].concat()), "for {path:?}");
        }
    }
}

fn is_page(path: &[u8]) -> bool {
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default().to_ascii_lowercase();
    [&b".html"[..], b".htm"].iter().any(|end| name.len() > end.len() && name.ends_with(end))
}

/// The possible names of the Markdown version of a page.
fn markdown_names(page: &[u8]) -> Vec<Vec<u8>> {
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

/// Opens `bytes` with and without verification, and checks the index. Returns whether verification succeeded.
fn open_and_check(bytes: &[u8], image: Image, probes: &[Vec<u8>]) -> bool {
    match ImageIndex::read(bytes.to_vec().into(), image.len, image.id) {
        Ok(index) => check_bounds(&index, Some(image.len), probes),
        Err(fault) => assert!(fault.to_string().starts_with("the index does not match its image (")),
    }
    match ImageIndex::decode(bytes.to_vec(), image.len, image.id) {
        Ok(index) => {
            check_bounds(&index, Some(image.len), probes);
            check_verified(&index, image.id, probes);
            true
        }
        Err(fault) => {
            assert!(fault.to_string().starts_with("the index does not match its image ("));
            false
        }
    }
}

/// Changes the file of an open index, as a disk that loses a part of it would.
fn change_under_reader(before: &[u8], after: &[u8], image: Image, probes: &[Vec<u8>]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    std::fs::write(folder.path().join("index"), before).expect("files can be written");
    let file = File::options().write(true).open(folder.path().join("index")).expect("files can be opened");
    let directory = Directory::open(folder.path()).expect("folders can be opened");
    // This violates the contract of `SealedFile::open`, as a failing disk does.
    let sealed = SealedFile::open(&directory, "index", image.id).expect("files can be opened");
    let mapped = map_index(&sealed).expect("a file can be mapped");
    let index = ImageIndex::read(mapped, image.len, image.id).expect("the index is unchanged");
    // The file never becomes shorter, as `site::mapping` requires.
    file.write_all_at(&after[..after.len().min(before.len())], 0).expect("files can be written");
    check_bounds(&index, None, probes);
    let _ = index.verify(image.id);
}

/// The fuzz target: see the module documentation.
pub fn index(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    if input.once_in(4) {
        // Any bytes. The image is the one that the bytes name.
        let has_valid_checksums = input.once_in(2);
        let bytes = input.rest().to_vec();
        let bytes = if has_valid_checksums { update_checksums(bytes) } else { bytes };
        let (mut len, mut id) = ([0; 8], [0; 32]);
        if let (Some(len_bytes), Some(id_bytes)) = (bytes.get(16..24), bytes.get(24..56)) {
            len.copy_from_slice(len_bytes);
            id.copy_from_slice(id_bytes);
        }
        let image = Image { len: u64::from_le_bytes(len), id: VersionId(Digest(id)) };
        open_and_check(&bytes, image, &[Vec::new(), b"index.html".to_vec(), b"a".to_vec()]);
        return;
    }
    let files = make_files(&mut input);
    let lines: Vec<u8> =
        files.iter().flat_map(|(path, entry)| manifest_line(path, &entry.content, entry.len)).collect();
    let len = files.values().map(|entry| entry.offset + entry.compressed_len).max().unwrap_or(0);
    let image = Image { len, id: VersionId(Digest::compute(&lines)) };
    let entries: Vec<(&[u8], IndexEntry)> = files.iter().map(|(path, entry)| (&path[..], *entry)).collect();
    let encoded = encode_index(image.len, image.id, &entries);
    let mut probes: Vec<Vec<u8>> = vec![Vec::new(), input.bytes(8).to_vec(), b"zz".to_vec()];
    for path in files.keys() {
        probes.extend([[&path[..], b"x"].concat(), path[..path.len() / 2].to_vec(), [&path[..], b".md"].concat()]);
    }

    assert!(open_and_check(&encoded, image, &probes), "an encoded index can be opened");
    let index = ImageIndex::decode(encoded.clone(), image.len, image.id).expect("the index is valid");
    let read_entries: Vec<(&[u8], IndexEntry)> =
        (0..index.len()).map(|file| (index.path(file), index.entry(file))).collect();
    assert_eq!(read_entries, entries);
    let old_format = to_old_format(&encoded);
    let converted = ImageIndex::decode(old_format.clone(), image.len, image.id).expect("the older format is accepted");
    assert!(converted.bytes() == encoded, "the older format is converted to the current one");
    assert!(
        ImageIndex::decode(encoded.clone(), image.len + 1, image.id).is_err(),
        "the index of another image is accepted"
    );

    let is_old_format = input.once_in(4);
    let original = if is_old_format { &old_format } else { &encoded };
    let mut changed = original.clone();
    for _ in 0..=input.below(4) {
        damage(&mut input, &mut changed);
    }
    if !is_old_format {
        change_under_reader(&encoded, &changed, image, &probes);
    }
    if input.once_in(2) {
        open_and_check(&update_checksums(changed), image, &probes);
    } else if changed != *original {
        assert!(!open_and_check(&changed, image, &probes), "the change is not detected");
    }
}
