//! Disk space: the size of versions, the free space of the file system, and which versions are removed to free space.

use std::io;
use std::path::Path;

use docwharf_base::directory::{Directory, DirectoryEntry, EntryKind};
use docwharf_base::model::version::VersionId;

use super::layout::DERIVED;
use super::record::StoreRecord;
use super::{StoreError, StoredVersion, VersionStore};

/// Limits of the store's disk space.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceLimits {
    /// Number of unprotected versions to keep besides the one that the source offers, as long as the two other limits
    /// allow it.
    pub keep: usize,
    /// Upper bound of the bytes of all versions together (`store.maxBytes`); none if it is not set.
    pub max_bytes: Option<u64>,
    /// Bytes that must stay free on the file system (`store.minFree`); none if it is not set.
    pub min_free: Option<u64>,
}

/// The space that a bundle needs, in bytes; both are 0 if its size is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceRequest {
    /// Size of the version in the store.
    pub version_bytes: u64,
    /// Bytes still to be written until the version is stored.
    pub remaining_bytes: u64,
}

/// A version and its size on disk in bytes.
pub type VersionSize = (VersionId, u64);

impl VersionStore {
    /// Returns the bytes that each version occupies, including its derived files; newest arrival first.
    pub fn sizes(&self) -> Result<Vec<VersionSize>, StoreError> {
        Ok(self.sizes_of(&self.versions()?))
    }

    pub(super) fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize> {
        let bytes_in = |parent: &str, id: VersionId| {
            let folder = self.directory().and_then(|root| root.open_directory(Path::new(parent).join(id.to_string())));
            folder.map_or(0, |folder| bytes_below(&folder))
        };
        let size_of = |id: VersionId| bytes_in("versions", id) + bytes_in(DERIVED, id);
        versions.iter().map(|version| (version.id, size_of(version.id))).collect()
    }

    /// Lists the versions that pruning would remove, oldest first.
    pub fn surplus(&self, record: &StoreRecord, limits: &SpaceLimits) -> Result<Vec<StoredVersion>, StoreError> {
        let versions = self.versions()?;
        let surplus = surplus(record, limits, &self.sizes_of(&versions));
        let find = |(id, _): VersionSize| versions.iter().find(|version| version.id == id).cloned();
        Ok(surplus.into_iter().filter_map(find).collect())
    }
}

/// Selects the versions to remove, oldest first: the unprotected ones beyond `keep`, and as many more as are needed to
/// come below `max_bytes`. The version that the source offers is removed last, and only for `max_bytes`: the next check
/// of the source would fetch it again.
pub(super) fn surplus(record: &StoreRecord, limits: &SpaceLimits, sizes: &[VersionSize]) -> Vec<VersionSize> {
    let removable = sizes.iter().filter(|(id, _)| !record.protects(*id));
    let (offered, others): (Vec<VersionSize>, Vec<VersionSize>) =
        removable.partition(|(id, _)| record.offered_version() == Some(*id));
    let keep = offered.len().saturating_add(limits.keep);
    let unprotected = [offered, others].concat();
    let mut kept = keep.min(unprotected.len());
    if let Some(max_bytes) = limits.max_bytes {
        let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
        let mut remaining = total.saturating_sub(unprotected[kept..].iter().map(|(_, bytes)| bytes).sum());
        while remaining > max_bytes && kept > 0 {
            kept -= 1;
            remaining -= unprotected[kept].1;
        }
    }
    unprotected[kept..].iter().rev().copied().collect()
}

/// Whether the versions and `additional_bytes` together exceed `max_bytes`.
pub fn is_over(limits: &SpaceLimits, sizes: &[VersionSize], additional_bytes: u64) -> bool {
    let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    limits.max_bytes.is_some_and(|max_bytes| total.saturating_add(additional_bytes) > max_bytes)
}

/// Returns the bytes of versions that cannot be removed once a new version is stored: without a hold the new one
/// becomes active, and the active one becomes the previous one.
pub(super) fn protected_bytes_after_import(record: &StoreRecord, sizes: &[VersionSize]) -> u64 {
    let mut record = record.clone();
    record.newest = None;
    if record.hold.is_none() {
        record.previous = None;
    }
    sizes.iter().filter(|(id, _)| record.protects(*id)).map(|(_, bytes)| bytes).sum()
}

/// Returns the bytes that this process can still write on the file system of `path`; none where the file system does
/// not report them, as with some network file systems.
pub fn free_bytes(path: &Path) -> io::Result<Option<u64>> {
    let stats = rustix::fs::statvfs(path)?;
    Ok((stats.f_blocks > 0).then(|| stats.f_bavail.saturating_mul(stats.f_frsize)))
}

/// Returns the bytes of all files below a directory. A file that cannot be read counts as 0: the sum is used to free
/// space, not to verify.
fn bytes_below(directory: &Directory) -> u64 {
    let Ok(entries) = directory.entries() else { return 0 };
    let size_of = |entry: DirectoryEntry| match entry.kind {
        EntryKind::Directory => directory.open_directory(&entry.name).map_or(0, |inner| bytes_below(&inner)),
        _ => directory.metadata_of(&entry.name).map_or(0, |metadata| metadata.len()),
    };
    entries.flatten().map(size_of).sum()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use super::*;
    use crate::store::record::{ActivationHold, LabelledVersion, OfferedVersion};
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    /// Versions 5 (newest) to 1, each of 10 bytes; 5 is active, 4 is the previous one.
    fn record_and_sizes_of_five_versions() -> (StoreRecord, Vec<VersionSize>) {
        let mut record = StoreRecord::default();
        record.activate(id(4), "t");
        record.activate(id(5), "t");
        record.newest = Some(id(5));
        (record, (1..=5).rev().map(|n| (id(n), 10)).collect())
    }

    fn removed(record: &StoreRecord, sizes: &[VersionSize], keep: usize, max_bytes: Option<u64>) -> Vec<VersionId> {
        let limits = SpaceLimits { keep, max_bytes, min_free: None };
        surplus(record, &limits, sizes).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn surplus_lists_the_oldest_versions_first_and_no_protected_version() {
        let (mut record, sizes) = record_and_sizes_of_five_versions();
        assert_eq!(removed(&record, &sizes, 3, None), []);
        assert_eq!(removed(&record, &sizes, 1, None), [id(1), id(2)]);
        assert_eq!(removed(&record, &sizes, 3, Some(50)), []);
        assert_eq!(removed(&record, &sizes, 3, Some(49)), [id(1)]);
        assert_eq!(removed(&record, &sizes, 1, Some(35)), [id(1), id(2)]);
        assert_eq!(removed(&record, &sizes, 9, Some(0)), [id(1), id(2), id(3)]);
        let labelled = LabelledVersion { version: id(1), source: String::new(), sha256: None, time: String::new() };
        record.labels.insert("L".to_owned(), labelled);
        assert_eq!(removed(&record, &sizes, 0, Some(0)), [id(2), id(3)]);
    }

    #[test]
    fn offered_version_is_removed_only_to_stay_below_max_bytes() {
        let (mut record, sizes) = record_and_sizes_of_five_versions();
        record.offered = Some(OfferedVersion { source: "s".to_owned(), version: id(1) });
        assert_eq!(removed(&record, &sizes, 0, None), [id(2), id(3)]);
        assert_eq!(removed(&record, &sizes, 9, Some(35)), [id(2), id(3)]);
        assert_eq!(removed(&record, &sizes, 9, Some(29)), [id(2), id(3), id(1)]);
    }

    #[test]
    fn new_version_replaces_the_previous_one_in_the_space_estimate_unless_held() {
        let (mut record, sizes) = record_and_sizes_of_five_versions();
        assert_eq!(protected_bytes_after_import(&record, &sizes), 10);
        record.hold = Some(ActivationHold { author: String::new(), when: String::new(), why: String::new() });
        assert_eq!(protected_bytes_after_import(&record, &sizes), 20);
    }

    // Under a hold, `newest` waits and is not active.
    #[test]
    fn new_version_replaces_the_newest_one_in_the_space_estimate_unless_held() {
        let (mut record, sizes) = record_and_sizes_of_five_versions();
        record.newest = Some(id(3));
        assert_eq!(protected_bytes_after_import(&record, &sizes), 10);
        record.hold = Some(ActivationHold { author: String::new(), when: String::new(), why: String::new() });
        assert_eq!(protected_bytes_after_import(&record, &sizes), 20);
    }

    #[test]
    fn free_space_is_unknown_where_the_file_system_does_not_report_it() {
        let dir = tempfile::tempdir().unwrap();
        assert!(free_bytes(dir.path()).unwrap().is_some_and(|bytes| bytes > 0));
        // Like some network file systems, it reports a size of zero blocks.
        assert_eq!(free_bytes(Path::new("/proc")).unwrap(), None);
    }

    #[test]
    fn size_of_a_version_includes_its_files_and_its_derived_files() {
        let dir = tempfile::tempdir().unwrap();
        let store = VersionStore::at(dir.path());
        let write = |path: std::path::PathBuf, bytes: usize| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![0; bytes]).unwrap();
        };
        write(store.version_dir(id(1)).join("site.zip"), 100);
        write(store.version_dir(id(1)).join("index"), 20);
        write(store.derived_dir(id(1)).join("zstd"), 3);
        write(store.derived_dir(id(1)).join("deep/er"), 4);
        write(store.version_dir(id(2)).join("site.zip"), 50);
        write(store.derived_dir(id(3)).join("zstd"), 1000);
        let mut sizes = store.sizes().unwrap();
        sizes.sort_unstable_by_key(|&(_, bytes)| bytes);
        assert_eq!(sizes, [(id(2), 50), (id(1), 127)]);
        let limits = |max_bytes| SpaceLimits { max_bytes, ..SpaceLimits::default() };
        for (max_bytes, additional, over) in
            [(Some(177), 0, false), (Some(176), 0, true), (Some(180), 3, false), (Some(180), 4, true)]
        {
            assert_eq!(is_over(&limits(max_bytes), &sizes, additional), over, "{max_bytes:?} {additional}");
        }
        assert!(is_over(&limits(Some(u64::MAX - 1)), &sizes, u64::MAX) && !is_over(&limits(None), &sizes, u64::MAX));
        for keep in [0, 1, 2, 3] {
            let limits = SpaceLimits { keep, ..SpaceLimits::default() };
            assert_eq!(store.surplus(&StoreRecord::default(), &limits).unwrap().len(), 2usize.saturating_sub(keep));
        }
    }
}
