//! The difference between two versions, computed from their indexes alone: no content is read.

use std::cmp::Ordering;

use docwharf_base::model::site_path::{is_hidden, is_page};

use super::index::ImageIndex;

/// A file that exists in only one of the versions, or differs between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChange {
    /// The path of the file.
    pub path: Vec<u8>,
    /// The size in the earlier version, in bytes; `None` if the version lacks the file.
    pub size_before: Option<u64>,
    /// The size in the later version, in bytes; `None` if the version lacks the file.
    pub size_after: Option<u64>,
}

/// The changes among the files of one class: pages, or everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClassChanges {
    /// The number of such files in the earlier version.
    pub count_before: u64,
    /// The number of such files in the later version.
    pub count_after: u64,
    /// The files that only the later version has, in byte order of their paths. The next two lists have the same order.
    pub added: Vec<FileChange>,
    /// The files that only the earlier version has.
    pub removed: Vec<FileChange>,
    /// The files that both versions have, with different content.
    pub changed: Vec<FileChange>,
}

/// The difference between two versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct VersionDiff {
    /// The HTML documents whose path has no hidden component.
    pub pages: ClassChanges,
    /// All other files.
    pub other_files: ClassChanges,
    /// The size of all content in bytes, in the earlier and the later version.
    pub bytes: (u64, u64),
}

impl ClassChanges {
    /// Whether no file was added, removed or changed.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty() && self.changed.is_empty()
    }
}

impl VersionDiff {
    /// Whether both versions have the same content.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.other_files.is_empty()
    }

    fn changes_for(&mut self, path: &[u8]) -> &mut ClassChanges {
        if is_reachable_page(path) { &mut self.pages } else { &mut self.other_files }
    }
}

/// Whether a path is that of an HTML document and has no hidden component.
fn is_reachable_page(path: &[u8]) -> bool {
    is_page(path) && !is_hidden(path)
}

/// Counts the pages of a version: HTML documents whose path has no hidden component.
pub fn count_pages(index: &ImageIndex) -> u64 {
    (0..index.len()).filter(|&i| is_reachable_page(index.path(i))).count() as u64
}

/// Compares two versions path by path.
pub fn compare_versions(before: &ImageIndex, after: &ImageIndex) -> VersionDiff {
    let mut diff = VersionDiff::default();
    let (mut i, mut j) = (0, 0);
    while i < before.len() || j < after.len() {
        // Both are in byte order of their paths.
        let order = match (i < before.len(), j < after.len()) {
            (true, true) => before.path(i).cmp(after.path(j)),
            (true, false) => Ordering::Less,
            (false, _) => Ordering::Greater,
        };
        let old = (order != Ordering::Greater).then(|| before.entry(i));
        let new = (order != Ordering::Less).then(|| after.entry(j));
        let path = if old.is_some() { before.path(i) } else { after.path(j) };
        let changes = diff.changes_for(path);
        changes.count_before += u64::from(old.is_some());
        changes.count_after += u64::from(new.is_some());
        let change = || FileChange {
            path: path.to_vec(),
            size_before: old.map(|entry| entry.len),
            size_after: new.map(|entry| entry.len),
        };
        match (&old, &new) {
            (Some(old), Some(new)) if old.content == new.content => {}
            (Some(_), Some(_)) => changes.changed.push(change()),
            (Some(_), None) => changes.removed.push(change()),
            (None, _) => changes.added.push(change()),
        }
        diff.bytes.0 += old.map_or(0, |entry| entry.len);
        diff.bytes.1 += new.map_or(0, |entry| entry.len);
        i += usize::from(old.is_some());
        j += usize::from(new.is_some());
    }
    diff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{EntryCompression, IndexEntry, encode_index};
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionManifest;

    fn index(files: &[(&str, &str)]) -> ImageIndex {
        let mut files: Vec<(&[u8], IndexEntry)> = files
            .iter()
            .map(|(path, text)| {
                let entry = IndexEntry {
                    compression: EntryCompression::Stored,
                    offset: 0,
                    compressed_len: 0,
                    len: text.len() as u64,
                    crc: 0,
                    content: Digest::compute(text.as_bytes()),
                    compressed_crc: 0,
                    last_block_bit: 0,
                    spare_bits: 0,
                    modified: 0,
                };
                (path.as_bytes(), entry)
            })
            .collect();
        files.sort_by_key(|(path, _)| *path);
        let mut manifest = VersionManifest::default();
        for (path, entry) in &files {
            manifest.add(&entry.content, entry.len, path);
        }
        let id = manifest.id();
        ImageIndex::decode(encode_index(0, id, &files), 0, id).unwrap()
    }

    fn paths(changes: &[FileChange]) -> Vec<&str> {
        changes.iter().map(|change| std::str::from_utf8(&change.path).unwrap()).collect()
    }

    #[test]
    fn diff_separates_pages_from_other_files_and_reports_each_change_once() {
        let before = index(&[("a.html", "1"), ("b.html", "22"), ("c.css", "3"), ("z.html", "9"), (".x/h.html", "")]);
        let after = index(&[("a.html", "1"), ("b.html", "4444"), ("d.css", "3"), ("0.html", "5"), (".x/h.html", "7")]);
        let diff = compare_versions(&before, &after);
        assert_eq!((diff.pages.count_before, diff.pages.count_after, diff.bytes), (3, 3, (5, 8)));
        assert_eq!(paths(&diff.pages.added), ["0.html"]);
        assert_eq!(paths(&diff.pages.removed), ["z.html"]);
        let changed_page = FileChange { path: b"b.html".to_vec(), size_before: Some(2), size_after: Some(4) };
        assert_eq!(diff.pages.changed, [changed_page]);
        assert_eq!(paths(&diff.other_files.added), ["d.css"]);
        assert_eq!(paths(&diff.other_files.removed), ["c.css"]);
        assert_eq!(paths(&diff.other_files.changed), [".x/h.html"], "a page that cannot be reached is a file");
        assert_eq!((count_pages(&before), count_pages(&after)), (3, 3));
        assert!(!diff.is_empty());
    }

    #[test]
    fn diff_with_itself_is_empty_and_diff_from_an_empty_site_adds_every_file() {
        let site = index(&[("a.html", "1"), ("b.css", "2")]);
        let same = compare_versions(&site, &site);
        assert!(same.is_empty());
        assert_eq!((same.pages.count_before, same.other_files.count_after), (1, 1));
        let all = compare_versions(&index(&[]), &site);
        assert_eq!((all.pages.added.len(), all.other_files.added.len(), all.bytes), (1, 1, (0, 2)));
    }
}
