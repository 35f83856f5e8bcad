//! The parts of an index besides its records: the hash table from paths to files, and the pairs of a page and the
//! Markdown file with the same text. They are stored, so that opening an index builds nothing. This module does no I/O;
//! only [`crate::index::encode_index`] builds these parts.

use std::collections::HashMap;

use docwharf_base::model::site_path::is_page;

/// The value of an empty slot.
pub(super) const EMPTY_SLOT: u32 = u32::MAX;

/// Returns the number of slots for `files` files: a power of two, at least half of the slots empty.
pub(super) fn slot_count(files: usize) -> usize {
    (files * 2).next_power_of_two().max(2)
}

/// Returns the slot at which the search for a path begins; it continues with the next slots (linear probing). The hash
/// is part of the format: 64-bit FNV-1a, folded to 32 bits. The table is fixed when the site is sealed, so no request
/// can make its probe sequences longer.
pub(super) fn first_slot(path: &[u8], slots: usize) -> usize {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for &byte in path {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    ((hash ^ hash >> 32) as u32) as usize & (slots - 1)
}

/// Builds the hash table of files with these paths, in their order.
pub(super) fn build_path_table<'a>(paths: impl ExactSizeIterator<Item = &'a [u8]>) -> Vec<u32> {
    let mut table = vec![EMPTY_SLOT; slot_count(paths.len())];
    for (file, path) in (0u32..).zip(paths) {
        let mut slot = first_slot(path, table.len());
        while table[slot] != EMPTY_SLOT {
            slot = (slot + 1) & (table.len() - 1);
        }
        table[slot] = file;
    }
    table
}

/// Finds the pages that have Markdown, in order, each with its Markdown file: `x.md`, `x.html.md` or `x/index.md` for a
/// page `x.html` or `x/index.html`. If there are several, the first in this order is chosen.
pub(super) fn find_markdown_pairs<'a>(
    paths: impl Iterator<Item = &'a [u8]>,
    find: impl Fn(&[u8]) -> Option<usize>,
) -> Vec<(u32, u32)> {
    let mut best_by_page: HashMap<u32, (usize, u32)> = HashMap::new();
    for (file, path) in (0u32..).zip(paths) {
        let Some(stem) = path.strip_suffix(b".md") else { continue };
        let page = |name: &[u8]| find(name).filter(|_| is_page(name));
        let joined = |end: &[u8]| page(&[stem, end].concat());
        // A lower rank is preferred: shorter names first.
        let (rank, page) = if let Some(page) = page(stem) {
            (1, page)
        } else if let Some(page) = joined(b".html").or_else(|| joined(b"/index.html")) {
            (if stem.ends_with(b"/index") { 2 } else { 0 }, page)
        } else if let Some(page) = stem.strip_suffix(b"/index").and_then(|stem| page(&[stem, b".html"].concat())) {
            (3, page)
        } else {
            continue;
        };
        let entry = best_by_page.entry(page as u32).or_insert((rank, file));
        if rank < entry.0 {
            *entry = (rank, file);
        }
    }
    let mut pairs: Vec<(u32, u32)> = best_by_page.into_iter().map(|(page, (_, file))| (page, file)).collect();
    pairs.sort_unstable();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_table_is_half_empty_and_finds_each_file_from_its_first_slot() {
        for (files, expected) in [(0, 2), (1, 2), (2, 4), (3, 8), (4, 8), (5, 16), (8, 16), (9, 32)] {
            assert_eq!(slot_count(files), expected, "{files}");
        }
        // Stored indexes contain these hashes: with another bit order no stored index would match.
        for (path, slot) in [("", 0xbfc1), ("a", 0x30c0), ("foobar", 0x2699)] {
            assert_eq!(first_slot(path.as_bytes(), 1 << 16), slot, "{path}");
        }
        let names: Vec<String> = (0..100).map(|n| format!("{n}.html")).collect();
        let table = build_path_table(names.iter().map(String::as_bytes));
        assert_eq!((table.len(), table.iter().filter(|&&slot| slot == EMPTY_SLOT).count()), (256, 156));
        for (file, name) in (0u32..).zip(&names) {
            let first = first_slot(name.as_bytes(), 256);
            let mut probes = (0..256).map(|step| table[(first + step) % 256]);
            assert!(probes.by_ref().take_while(|&slot| slot != EMPTY_SLOT).any(|slot| slot == file), "{name}");
        }
    }

    /// The paths of a site, and the pages with their Markdown.
    type PairsCase<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

    #[test]
    fn page_with_several_markdown_files_is_paired_with_the_shortest_name() {
        let cases: [PairsCase<'_>; 13] = [
            (&["x.html", "x.md"], &[("x.html", "x.md")]),
            (&["x.html", "x.html.md", "x.md"], &[("x.html", "x.md")]),
            (&["x.html", "x.html.md", "x/index.md"], &[("x.html", "x.html.md")]),
            (&["x.html", "x/index.md"], &[("x.html", "x/index.md")]),
            (&["x.html", "x.md", "x/index.md"], &[("x.html", "x.md")]),
            (&["x.md", "x/index.html", "x/index.html.md", "x/index.md"], &[("x/index.html", "x.md")]),
            (&["x/index.html", "x/index.html.md", "x/index.md"], &[("x/index.html", "x/index.html.md")]),
            (&["x/index.html", "x/index.md"], &[("x/index.html", "x/index.md")]),
            (&["x.html", "x.md", "x/index.html", "x/index.md"], &[("x.html", "x.md"), ("x/index.html", "x/index.md")]),
            (&["index.html", "index.md"], &[("index.html", "index.md")]),
            (&["x.htm", "x.htm.md"], &[("x.htm", "x.htm.md")]),
            (
                &["b.html", "b.md", "c.html", "c.md", "d.html", "d.html.md"],
                &[("b.html", "b.md"), ("c.html", "c.md"), ("d.html", "d.html.md")],
            ),
            (&["a.txt", "a.txt.md", "b.md", "x.html", "x.markdown", "y/x.md"], &[]),
        ];
        for (paths, expected) in cases {
            let find = |path: &[u8]| paths.iter().position(|candidate| candidate.as_bytes() == path);
            let pairs = find_markdown_pairs(paths.iter().map(|path| path.as_bytes()), find);
            let named_pairs: Vec<(&str, &str)> =
                pairs.iter().map(|&(page, file)| (paths[page as usize], paths[file as usize])).collect();
            assert_eq!(named_pairs, expected, "{paths:?}");
        }
    }
}
