//! Data computed from a version that can be computed again: `derived/<id>/`, one file for each kind, or one directory
//! for the search index and for the Markdown. A reader verifies what it reads; a failure to write is no error of the
//! version.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use docwharf_base::directory::Directory;
use docwharf_base::model::version::VersionId;
use docwharf_site::mapping::SealedFile;

use super::layout::DERIVED;
use super::writer::StoreWriter;
use super::{StoreError, VersionStore};

/// Name of the file with the content security policies of a version.
pub const CSP: &str = "csp";
/// Name of the file with the Brotli codings of a version's texts.
pub const BROTLI: &str = "brotli";
/// Name of the file with the Zstandard codings of a version's texts.
pub const ZSTD: &str = "zstd";

/// Name of the directory with the search index of a version.
pub const SEARCH: &str = "search";
/// Name of the directory with the Markdown of the pages of a version.
pub const MARKDOWN: &str = "markdown";

/// Kinds that may be as large as the version itself. They are removed when there is not enough space.
const LARGE_KINDS: [&str; 2] = [BROTLI, ZSTD];

/// Lists the names that are removed from the directory of a version when there is not enough space, finished or not.
/// The search index and the Markdown are among them only for a version that is not active: readers use those of the
/// active one.
fn removable_names(is_inactive: bool) -> impl Iterator<Item = String> {
    let kinds = LARGE_KINDS.into_iter().chain([SEARCH, MARKDOWN].into_iter().filter(move |_| is_inactive));
    kinds.flat_map(|kind| [kind.to_owned(), format!(".{kind}.new")])
}

impl VersionStore {
    /// The path of the directory with the data derived from a version.
    pub fn derived_dir(&self, id: VersionId) -> PathBuf {
        self.root().join(DERIVED).join(id.to_string())
    }

    /// Reads a derived file; none if it is missing or has more than `max_bytes`.
    pub fn read_derived(&self, id: VersionId, kind: &str, max_bytes: u64) -> Option<Vec<u8>> {
        self.directory().ok()?.read(Path::new(DERIVED).join(id.to_string()).join(kind), max_bytes).ok()
    }

    /// Opens a derived file, if it exists.
    pub fn open_derived(&self, id: VersionId, kind: &str) -> Option<SealedFile> {
        let path = Path::new(DERIVED).join(id.to_string()).join(kind);
        SealedFile::open_derived(self.directory().ok()?, path).ok()
    }

    /// Opens the directory of the search index of a version, if it exists.
    pub fn open_search_index(&self, id: VersionId) -> Option<Directory> {
        self.open_derived_directory(id, SEARCH)
    }

    /// Opens a directory of derived files, if it exists.
    pub fn open_derived_directory(&self, id: VersionId, kind: &str) -> Option<Directory> {
        self.directory().ok()?.open_directory(Path::new(DERIVED).join(id.to_string()).join(kind)).ok()
    }

    /// Whether there is a file that [`StoreWriter::remove_large_derived_files`] would remove.
    pub(super) fn has_large_derived_files(&self) -> bool {
        self.large_derived_files().next().is_some()
    }

    /// Lists the large derived files of all versions and the search indexes of those that are not active, finished or
    /// not.
    fn large_derived_files(&self) -> impl Iterator<Item = PathBuf> {
        let derived = self.directory().and_then(|root| root.open_directory(DERIVED)).ok();
        let folders = derived.and_then(|derived| derived.entries().ok()).into_iter().flatten().flatten();
        let is_inactive = self.inactive_versions();
        let paths = folders.flat_map(move |folder| {
            removable_names(is_inactive(&folder.name)).map(move |name| Path::new(&folder.name).join(name))
        });
        let derived = self.directory().and_then(|root| root.open_directory(DERIVED)).ok();
        paths.filter(move |path| derived.as_ref().is_some_and(|derived| derived.has(path)))
    }

    /// Returns a function that tells whether the version of a directory in `derived/` is not the active one. If the
    /// record cannot be read, every version may be the active one.
    fn inactive_versions(&self) -> impl Fn(&OsStr) -> bool + use<> {
        let active = self.record().ok().map(|record| record.active.map(|id| id.to_string()));
        move |folder: &OsStr| {
            active.as_ref().is_some_and(|active| active.as_ref().is_none_or(|active| folder != OsStr::new(active)))
        }
    }
}

impl StoreWriter {
    /// Stores a derived file in one step. Nothing is stored for a version that has been removed meanwhile.
    pub fn write_derived(&self, id: VersionId, kind: &str, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_derived_with(id, kind, 0o644, |mut file| file.write_all(bytes))
    }

    /// Stores a derived file that is too large to be held in memory, or takes long to compute. `fill` writes it to a
    /// temporary file, which is then renamed and never written again.
    pub fn write_large_derived(
        &self,
        id: VersionId,
        kind: &str,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        self.write_derived_with(id, kind, 0o444, fill)
    }

    fn write_derived_with(
        &self,
        id: VersionId,
        kind: &str,
        mode: u32,
        fill: impl FnOnce(&File) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let (name, dir) = (id.to_string(), self.store().derived_dir(id));
        let derived = self.store().folder(DERIVED)?;
        let folder = derived.ensure_directory(&name, 0o755).map_err(StoreError::io("make", &dir))?;
        let fill = |file: &File| {
            // Before it is filled: after a kill the service, which may not be root, must be able to remove it.
            self.change_owner_to_store_owner();
            fill(file)
        };
        let written = folder.replace_file(kind, mode, fill).map_err(StoreError::io("write", &dir.join(kind)));
        self.finish_write(id, &derived, written.is_ok());
        written
    }

    /// Stores a directory of derived files. `fill` writes them into a new directory, which then gets its name; a
    /// directory of that name is replaced. A crash leaves the old directory, the new one or none. Nothing is synced to
    /// disk: the files must have checksums.
    pub fn write_derived_directory(
        &self,
        id: VersionId,
        kind: &str,
        fill: impl FnOnce(&Directory) -> io::Result<()>,
    ) -> Result<(), StoreError> {
        let (name, dir) = (id.to_string(), self.store().derived_dir(id));
        let derived = self.store().folder(DERIVED)?;
        let folder = derived.ensure_directory(&name, 0o755).map_err(StoreError::io("make", &dir))?;
        let temporary = format!(".{kind}.new");
        let write = || -> io::Result<()> {
            folder.remove_all_if_exists(&temporary)?;
            let new = folder.create_directory(&temporary, 0o755)?;
            // Before it is filled: the process that does so runs as the owner of the store.
            self.change_owner_to_store_owner();
            fill(&new)?;
            folder.remove_all_if_exists(kind)?;
            folder.rename(&temporary, &folder, kind)
        };
        let written = write().map_err(StoreError::io("write", &dir.join(kind)));
        if written.is_err() {
            let _ = folder.remove_all_if_exists(&temporary);
        }
        self.finish_write(id, &derived, written.is_ok());
        written
    }

    /// Removes what is of no use after a file or directory of a version was written to `derived`, or after that failed.
    fn finish_write(&self, id: VersionId, derived: &Directory, is_written: bool) {
        let name = id.to_string();
        // Checked last: the version may have been pruned meanwhile.
        if !self.store().has(id) {
            let _ = derived.remove_all(&name);
        } else if !is_written {
            // On a full disk an empty directory is of no use.
            let _ = derived.remove_directory(&name);
        }
        // At once: a daemon may be killed before its `StoreWriter` is dropped.
        self.change_owner_to_store_owner();
    }

    /// Removes one derived file or directory, which is unusable.
    pub fn remove_derived(&self, id: VersionId, kind: &str) -> Result<(), StoreError> {
        let path = self.store().derived_dir(id).join(kind);
        let folder = self.store().folder(DERIVED)?.open_directory(id.to_string());
        match folder.and_then(|folder| folder.remove_all_if_exists(kind)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StoreError::io("remove", &path)(error)),
            _ => Ok(()),
        }
    }

    /// Removes the large derived files of all versions, after the registered callback has released them, and the search
    /// indexes of versions that are not active. Returns whether there were any. An index that is still open stays on
    /// the disk until it is closed.
    pub(super) fn remove_large_derived_files(&self) -> bool {
        if !self.store().has_large_derived_files() {
            return false;
        }
        self.release_large_derived_files();
        let Ok(derived) = self.store().folder(DERIVED) else { return false };
        let Ok(folders) = derived.entries() else { return false };
        let is_inactive = self.store().inactive_versions();
        let mut is_any_removed = false;
        for entry in folders.flatten() {
            let Ok(folder) = derived.open_directory(&entry.name) else { continue };
            for name in removable_names(is_inactive(&entry.name)) {
                is_any_removed |= folder.remove_all_if_exists(name).unwrap_or_default();
            }
        }
        is_any_removed
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::fs;
    use std::os::unix::fs::{chown, symlink};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::store::operations::StoreOperations;
    use docwharf_base::model::digest::Digest;

    // Regression: root wrote policies through links in another user's store.
    #[test]
    fn root_writes_no_derived_file_through_links_in_the_store_of_another_user() {
        if !rustix::process::geteuid().is_root() {
            return; // only root can write to the stores of other users
        }
        let dir = tempfile::tempdir().unwrap();
        let (store, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
        let writer = StoreWriter::open(&store, Duration::ZERO).unwrap();
        let (id, derived) = (VersionId(Digest::compute(b"x")), store.join(DERIVED));
        fs::create_dir(&elsewhere).unwrap();
        fs::create_dir(&derived).unwrap();
        symlink(&elsewhere, derived.join(id.to_string())).unwrap();
        chown(&store, Some(4711), Some(4711)).unwrap();
        chown(&derived, Some(4711), Some(4711)).unwrap();
        let refused = writer.write_derived(id, CSP, b"x").unwrap_err();
        assert!(refused.to_string().contains("store/derived/"), "{refused}");
        // Nor through a link in the place of `derived` itself.
        fs::remove_dir_all(&derived).unwrap();
        symlink(&elsewhere, &derived).unwrap();
        assert!(writer.write_derived(id, CSP, b"x").is_err());
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 0);
        fs::remove_file(&derived).unwrap();
        writer.write_derived(id, CSP, b"x").unwrap();
        assert!(derived.is_dir() && !derived.join(id.to_string()).exists(), "there is no such version");
    }

    #[test]
    fn a_file_that_root_derives_belongs_to_the_owner_of_the_store_before_it_is_filled() {
        if !rustix::process::geteuid().is_root() {
            return; // only root can change owners
        }
        let dir = tempfile::tempdir().unwrap();
        let id = VersionId(Digest::compute(b"x"));
        let writer = store_with_versions(dir.path(), &[id]);
        chown(dir.path(), Some(4711), Some(4711)).unwrap();
        let owner = |file: &File| file.metadata().map(|metadata| std::os::unix::fs::MetadataExt::uid(&metadata));
        let mut owner_at_start = 0;
        let fill = |file: &File| -> io::Result<()> {
            owner_at_start = owner(file)?;
            Ok(())
        };
        writer.write_large_derived(id, ZSTD, fill).unwrap();
        assert_eq!(owner_at_start, 4711, "after a kill, the service has to remove the unfinished file");
        assert_eq!(owner(&File::open(writer.store().derived_dir(id).join(ZSTD)).unwrap()).unwrap(), 4711);
    }

    /// A store with versions whose content is never read.
    fn store_with_versions(root: &Path, ids: &[VersionId]) -> StoreWriter {
        let writer = StoreWriter::open(root, Duration::ZERO).unwrap();
        for &id in ids {
            fs::create_dir(writer.store().version_dir(id)).unwrap();
            fs::write(writer.store().version_dir(id).join("site.zip"), "image").unwrap();
        }
        writer
    }

    #[test]
    fn remove_large_derived_files_removes_only_compressed_copies_even_unfinished_ones() {
        let names = [
            (BROTLI, true),
            (ZSTD, true),
            (".brotli.new", true),
            (".zstd.new", true),
            (CSP, false),
            (".csp.new", false),
        ];
        let id = VersionId(Digest::compute(b"x"));
        for (name, is_large) in names {
            let dir = tempfile::tempdir().unwrap();
            let writer = store_with_versions(dir.path(), &[id]);
            let calls = Arc::new(AtomicU32::new(0));
            let (count, file) = (Arc::clone(&calls), writer.store().derived_dir(id).join(name));
            writer.before_removing_derived_files(move || {
                count.fetch_add(u32::from(file.exists()), Ordering::Relaxed);
            });
            assert!(
                !writer.store().has_large_derived_files() && !writer.remove_large_derived_files(),
                "there is no derived file yet"
            );
            fs::create_dir_all(writer.store().derived_dir(id)).unwrap();
            fs::write(writer.store().derived_dir(id).join(name), "x").unwrap();
            assert_eq!(
                (writer.store().has_large_derived_files(), writer.remove_large_derived_files()),
                (is_large, is_large),
                "{name}"
            );
            assert_eq!(writer.store().derived_dir(id).join(name).exists(), !is_large, "{name}");
            assert_eq!(
                calls.load(Ordering::Relaxed),
                u32::from(is_large),
                "{name}: the callback runs before the removal"
            );
        }
    }

    #[test]
    fn a_search_index_is_removed_for_space_only_if_its_version_is_not_active() {
        let dir = tempfile::tempdir().unwrap();
        let (active, other) = (VersionId(Digest::compute(b"active")), VersionId(Digest::compute(b"other")));
        let writer = store_with_versions(dir.path(), &[active, other]);
        let path = |id: VersionId, name: &str| writer.store().derived_dir(id).join(name);
        let write_index = |id: VersionId| {
            writer.write_derived_directory(id, SEARCH, |new| new.replace("pages", 0o644, b"pages")).unwrap();
            fs::create_dir(path(id, ".search.new")).unwrap();
            fs::write(path(id, ".search.new").join("half"), "x").unwrap();
        };
        write_index(active);
        write_index(other);
        writer.change_record(|record| record.activate(active, "t")).unwrap();
        assert!(writer.store().has_large_derived_files() && writer.remove_large_derived_files());
        assert!(path(active, SEARCH).join("pages").exists() && path(active, ".search.new").exists());
        assert!(!path(other, SEARCH).exists() && !path(other, ".search.new").exists());
        assert!(!writer.store().has_large_derived_files() && !writer.remove_large_derived_files());
        // Nothing is removed while it is not known which version is active.
        write_index(other);
        fs::write(dir.path().join("state.json"), "{").unwrap();
        assert!(!writer.store().has_large_derived_files() && !writer.remove_large_derived_files());
        assert!(path(other, SEARCH).join("pages").exists());
        // What a crash has left is removed when the store is opened.
        drop(writer);
        let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
        for id in [active, other] {
            let derived = writer.store().derived_dir(id);
            assert!(derived.join(SEARCH).join("pages").exists() && !derived.join(".search.new").exists());
        }
    }

    #[test]
    fn a_directory_of_derived_files_is_complete_or_not_there() {
        let dir = tempfile::tempdir().unwrap();
        let (id, missing) = (VersionId(Digest::compute(b"x")), VersionId(Digest::compute(b"missing")));
        let writer = store_with_versions(dir.path(), &[id]);
        let write = |id: VersionId, content: &'static str, result: fn() -> io::Result<()>| {
            writer.write_derived_directory(id, SEARCH, |new| {
                new.replace("pages", 0o644, content.as_bytes())?;
                result()
            })
        };
        let failed: fn() -> io::Result<()> = || Err(io::ErrorKind::StorageFull.into());
        assert!(write(id, "first", failed).is_err());
        assert!(!writer.store().derived_dir(id).exists(), "nothing is left of it");
        write(id, "first", || Ok(())).unwrap();
        assert!(write(id, "second", failed).is_err());
        let read = || writer.store().open_search_index(id).map(|index| index.read("pages", 9).unwrap());
        assert_eq!(read().as_deref(), Some(&b"first"[..]), "after a failure the previous directory stays");
        write(id, "third", || Ok(())).unwrap();
        assert_eq!(read().as_deref(), Some(&b"third"[..]));
        write(missing, "x", || Ok(())).unwrap();
        assert!(!writer.store().derived_dir(missing).exists(), "there is no such version");
        let sizes = writer.store().sizes().unwrap();
        assert_eq!(sizes, [(id, "image".len() as u64 + "third".len() as u64)], "it counts as part of its version");
        writer.remove_derived(id, SEARCH).unwrap();
        assert!(writer.store().open_search_index(id).is_none());
    }

    #[test]
    fn derived_file_is_read_up_to_its_limit_and_removed_alone_or_with_its_version() {
        let dir = tempfile::tempdir().unwrap();
        let (id, missing) = (VersionId(Digest::compute(b"x")), VersionId(Digest::compute(b"missing")));
        let writer = store_with_versions(dir.path(), &[id]);
        let store = writer.store();
        writer.write_derived(id, CSP, b"four").unwrap();
        writer.write_large_derived(id, ZSTD, |mut file| file.write_all(b"large")).unwrap();
        assert_eq!(store.read_derived(id, CSP, 4).as_deref(), Some(&b"four"[..]));
        assert_eq!(store.read_derived(id, CSP, 3), None);
        assert!(store.open_derived(id, ZSTD).is_some() && store.open_derived(id, BROTLI).is_none());
        // After a failure the previous file stays, and no new directory.
        assert!(writer.write_large_derived(id, ZSTD, |_| Err(io::ErrorKind::StorageFull.into())).is_err());
        assert_eq!(store.read_derived(id, ZSTD, 5).as_deref(), Some(&b"large"[..]));
        writer.remove_derived(id, ZSTD).unwrap();
        assert!(store.open_derived(id, ZSTD).is_none() && store.open_derived(id, CSP).is_some());
        writer.remove_derived(id, ZSTD).unwrap();
        writer.remove_derived(missing, ZSTD).unwrap();
        writer.write_derived(missing, CSP, b"x").unwrap();
        assert!(!store.derived_dir(missing).exists(), "there is no such version");
        writer.remove_derived(id, CSP).unwrap();
        assert!(writer.write_large_derived(id, ZSTD, |_| Err(io::ErrorKind::StorageFull.into())).is_err());
        assert!(!store.derived_dir(id).exists());
        // Opening the store removes what a crash has left.
        writer.write_derived(id, CSP, b"kept").unwrap();
        fs::write(store.derived_dir(id).join(".zstd.new"), "half").unwrap();
        fs::create_dir(store.derived_dir(missing)).unwrap();
        fs::write(dir.path().join(DERIVED).join("file"), "x").unwrap();
        drop(writer);
        drop(StoreWriter::open(dir.path(), Duration::ZERO).unwrap());
        let names =
            |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!(names(&dir.path().join(DERIVED)), [id.to_string().as_str()]);
        assert_eq!(names(&dir.path().join(DERIVED).join(id.to_string())), [CSP]);
    }
}
