//! Removal of what a crash has left behind in a store: unfinished work, temporary files, and files of removed versions.

use std::io;
use std::os::unix::ffi::OsStrExt;

use docwharf_base::directory::{Directory, EntryKind};

use super::layout::{CONTROL, DERIVED};
use super::{StoreError, VersionStore};

/// Removes what a crash has left behind in a store. The caller has the lock.
pub(super) fn remove_leftovers(store: &VersionStore) -> Result<(), StoreError> {
    let path = |name: &str| store.root().join(name);
    let staging = store.folder("staging")?;
    staging.remove_contents().map_err(StoreError::io("remove the files in", &path("staging")))?;
    let root = store.directory().map_err(StoreError::io("open", store.root()))?;
    sweep_unrenamed(root)?;
    // The daemon that listened on the socket held the lock, so it has ended.
    root.remove_file_if_exists(CONTROL).map_err(StoreError::io("remove", &path(CONTROL)))?;
    for parent in ["versions", "receipts"] {
        let folder = store.folder(parent)?;
        for entry in folder.entries().map_err(StoreError::io("read", &path(parent)))? {
            let entry = entry.map_err(StoreError::io("read", &path(parent)))?;
            if entry.kind == EntryKind::Directory {
                let inner = folder.open_directory(&entry.name);
                sweep_unrenamed(&inner.map_err(StoreError::io("read", &path(parent).join(&entry.name)))?)?;
            }
        }
    }
    sweep_derived(store);
    // A crash while pruning may leave the receipts of a removed version.
    let (versions, receipts) = (store.folder("versions")?, store.folder("receipts")?);
    for entry in receipts.entries().map_err(StoreError::io("read", &path("receipts")))? {
        let name = entry.map_err(StoreError::io("read", &path("receipts")))?.name;
        if !versions.has(&name) {
            receipts.remove_all_if_exists(&name).map_err(StoreError::io("remove", &path("receipts").join(&name)))?;
        }
    }
    Ok(())
}

/// Removes unfinished files that a crash has left, and directories of versions that do not exist. A failure is
/// harmless.
fn sweep_derived(store: &VersionStore) {
    let derived = store.directory().and_then(|root| root.open_directory(DERIVED));
    let entries = derived.and_then(|derived| Ok((derived.entries()?, derived)));
    let (entries, derived) = match entries {
        Ok(derived) => derived,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return,
        Err(error) => {
            tracing::warn!("cannot read {}: {error}", store.root().join(DERIVED).display());
            return;
        }
    };
    for entry in entries.flatten() {
        let version = entry.name.to_str().and_then(|name| name.parse().ok());
        if entry.kind == EntryKind::Directory && version.is_some_and(|id| store.has(id)) {
            let folder = derived.open_directory(&entry.name).map_err(StoreError::io("read", derived.path()));
            if let Err(error) = folder.and_then(|folder| sweep_unrenamed(&folder)) {
                tracing::warn!("{error}");
            }
        } else {
            let _ = derived.remove_all(&entry.name);
        }
    }
}

/// Removes temporary files and directories of writes that did not reach their rename.
fn sweep_unrenamed(directory: &Directory) -> Result<(), StoreError> {
    for entry in directory.entries().map_err(StoreError::io("read", directory.path()))? {
        let name = entry.map_err(StoreError::io("read", directory.path()))?.name;
        if name.as_bytes().starts_with(b".") && name.as_bytes().ends_with(b".new") {
            let removed = directory.remove_all_if_exists(&name);
            removed.map_err(StoreError::io("remove", &directory.path().join(&name)))?;
        }
    }
    Ok(())
}
