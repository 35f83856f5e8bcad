//! Disk space: what versions take, what the file system has left, and which versions are removed to make space.

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
    /// Unprotected versions to keep, as long as the two other limits allow it.
    pub keep: usize,
    /// Bytes that all versions together may take (`store.maxBytes`); none if it is not set.
    pub max_bytes: Option<u64>,
    /// Bytes that must stay free on the file system (`store.minFree`); none if it is not set.
    pub min_free: Option<u64>,
}

/// The space that a bundle needs, in bytes; both are 0 if its size is unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SpaceRequest {
    /// Bytes that the version will take in the store.
    pub whole: u64,
    /// Bytes that are still to be written until the version is stored.
    pub more: u64,
}

/// A version and the bytes that it takes.
pub type VersionSize = (VersionId, u64);

impl VersionStore {
    /// The bytes that each version takes, including its derived files; newest arrival first.
    pub fn sizes(&self) -> Result<Vec<VersionSize>, StoreError> {
        Ok(self.sizes_of(&self.versions()?))
    }

    pub(super) fn sizes_of(&self, versions: &[StoredVersion]) -> Vec<VersionSize> {
        let below = |parent: &str, id: VersionId| {
            let folder = self.directory().and_then(|root| root.directory(Path::new(parent).join(id.to_string())));
            folder.map_or(0, |folder| bytes_below(&folder))
        };
        let of = |id: VersionId| below("versions", id) + below(DERIVED, id);
        versions.iter().map(|version| (version.id, of(version.id))).collect()
    }

    /// Lists the versions that pruning would remove, oldest first.
    pub fn surplus(&self, record: &StoreRecord, allowance: &SpaceLimits) -> Result<Vec<StoredVersion>, StoreError> {
        let versions = self.versions()?;
        let surplus = surplus(record, allowance, &self.sizes_of(&versions));
        let of = |(id, _): VersionSize| versions.iter().find(|version| version.id == id).cloned();
        Ok(surplus.into_iter().filter_map(of).collect())
    }
}

/// Selects the versions to remove, oldest first: the unprotected ones beyond `keep`, and as many more as it takes to
/// come below `max_bytes`. The version that the source offers is removed last, and only for `max_bytes`: each check of
/// the source would bring it again.
pub(super) fn surplus(record: &StoreRecord, allowance: &SpaceLimits, sizes: &[VersionSize]) -> Vec<VersionSize> {
    let may_go = sizes.iter().filter(|(id, _)| !record.protects(*id));
    let (offered, others): (Vec<VersionSize>, Vec<VersionSize>) =
        may_go.partition(|(id, _)| record.offered_version() == Some(*id));
    let keep = offered.len().saturating_add(allowance.keep);
    let unprotected = [offered, others].concat();
    let mut kept = keep.min(unprotected.len());
    if let Some(most) = allowance.max_bytes {
        let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
        let mut left = total.saturating_sub(unprotected[kept..].iter().map(|(_, bytes)| bytes).sum());
        while left > most && kept > 0 {
            kept -= 1;
            left -= unprotected[kept].1;
        }
    }
    unprotected[kept..].iter().rev().copied().collect()
}

/// Whether the versions and `more` bytes together exceed `max_bytes`.
pub fn is_over(allowance: &SpaceLimits, sizes: &[VersionSize], more: u64) -> bool {
    let total: u64 = sizes.iter().map(|(_, bytes)| bytes).sum();
    allowance.max_bytes.is_some_and(|most| total.saturating_add(more) > most)
}

/// Bytes of versions that cannot be removed once a new version is stored: without a hold the new one becomes active,
/// and the active one becomes the previous one.
pub(super) fn held_by_then(record: &StoreRecord, sizes: &[VersionSize]) -> u64 {
    let mut then = record.clone();
    then.newest = None;
    if then.hold.is_none() {
        then.previous = None;
    }
    sizes.iter().filter(|(id, _)| then.protects(*id)).map(|(_, bytes)| bytes).sum()
}

/// Bytes that this process may still write on the file system of `path`; none where the file system does not say, as
/// with some network file systems.
pub fn free_bytes(path: &Path) -> io::Result<Option<u64>> {
    let about = rustix::fs::statvfs(path)?;
    Ok((about.f_blocks > 0).then(|| about.f_bavail.saturating_mul(about.f_frsize)))
}

/// Bytes of all files below a directory. What cannot be read counts as 0: the sum is for making space, not for
/// verification.
fn bytes_below(directory: &Directory) -> u64 {
    let Ok(entries) = directory.entries() else { return 0 };
    let of = |entry: DirectoryEntry| match entry.kind {
        EntryKind::Directory => directory.directory(&entry.name).map_or(0, |inner| bytes_below(&inner)),
        _ => directory.metadata_of(&entry.name).map_or(0, |metadata| metadata.len()),
    };
    entries.flatten().map(of).sum()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use super::*;
    use crate::store::record::{ActivationHold, LabelledVersion, OfferedVersion};
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::of(&[n]))
    }

    /// Versions 5 (newest) to 1, each of 10 bytes; 5 is active, 4 is the previous one.
    fn five() -> (StoreRecord, Vec<VersionSize>) {
        let mut record = StoreRecord::default();
        record.activate(id(4), "t");
        record.activate(id(5), "t");
        record.newest = Some(id(5));
        (record, (1..=5).rev().map(|n| (id(n), 10)).collect())
    }

    fn gone(record: &StoreRecord, sizes: &[VersionSize], keep: usize, max_bytes: Option<u64>) -> Vec<VersionId> {
        let allowance = SpaceLimits { keep, max_bytes, min_free: None };
        surplus(record, &allowance, sizes).into_iter().map(|(id, _)| id).collect()
    }

    #[test]
    fn the_oldest_go_first_and_the_protected_never() {
        let (mut record, sizes) = five();
        assert_eq!(gone(&record, &sizes, 3, None), []);
        assert_eq!(gone(&record, &sizes, 1, None), [id(1), id(2)]);
        assert_eq!(gone(&record, &sizes, 3, Some(50)), []);
        assert_eq!(gone(&record, &sizes, 3, Some(49)), [id(1)]);
        assert_eq!(gone(&record, &sizes, 1, Some(35)), [id(1), id(2)]);
        assert_eq!(gone(&record, &sizes, 9, Some(0)), [id(1), id(2), id(3)]);
        let labelled = LabelledVersion { version: id(1), source: String::new(), sha256: None, time: String::new() };
        record.labels.insert("L".to_owned(), labelled);
        assert_eq!(gone(&record, &sizes, 0, Some(0)), [id(2), id(3)]);
    }

    #[test]
    fn the_version_that_the_source_has_goes_for_want_of_room_alone() {
        let (mut record, sizes) = five();
        record.offered = Some(OfferedVersion { source: "s".to_owned(), version: id(1) });
        assert_eq!(gone(&record, &sizes, 0, None), [id(2), id(3)]);
        assert_eq!(gone(&record, &sizes, 9, Some(35)), [id(2), id(3)]);
        assert_eq!(gone(&record, &sizes, 9, Some(29)), [id(2), id(3), id(1)]);
    }

    #[test]
    fn a_new_version_takes_the_place_of_the_previous_one_unless_it_is_held() {
        let (mut record, sizes) = five();
        assert_eq!(held_by_then(&record, &sizes), 10);
        record.hold = Some(ActivationHold { who: String::new(), when: String::new(), why: String::new() });
        assert_eq!(held_by_then(&record, &sizes), 20);
    }

    #[test]
    fn a_version_takes_what_lies_in_its_folder_and_what_was_derived_from_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = VersionStore::at(dir.path());
        let put = |path: std::path::PathBuf, bytes: usize| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, vec![0; bytes]).unwrap();
        };
        put(store.version_dir(id(1)).join("site.zip"), 100);
        put(store.version_dir(id(1)).join("index"), 20);
        put(store.derived_dir(id(1)).join("zstd"), 3);
        put(store.derived_dir(id(1)).join("deep/er"), 4);
        put(store.version_dir(id(2)).join("site.zip"), 50);
        put(store.derived_dir(id(3)).join("zstd"), 1000);
        let mut sizes = store.sizes().unwrap();
        sizes.sort_unstable_by_key(|&(_, bytes)| bytes);
        assert_eq!(sizes, [(id(2), 50), (id(1), 127)]);
        let allowed = |most| SpaceLimits { max_bytes: most, ..SpaceLimits::default() };
        for (most, more, over) in
            [(Some(177), 0, false), (Some(176), 0, true), (Some(180), 3, false), (Some(180), 4, true)]
        {
            assert_eq!(is_over(&allowed(most), &sizes, more), over, "{most:?} {more}");
        }
        assert!(is_over(&allowed(Some(u64::MAX - 1)), &sizes, u64::MAX) && !is_over(&allowed(None), &sizes, u64::MAX));
        for keep in [0, 1, 2, 3] {
            let allowance = SpaceLimits { keep, ..SpaceLimits::default() };
            assert_eq!(store.surplus(&StoreRecord::default(), &allowance).unwrap().len(), 2usize.saturating_sub(keep));
        }
    }
}
