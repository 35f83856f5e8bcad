//! Ownership of a store's files. A command run by root must not leave files that the service, which runs as another
//! user, cannot change afterwards.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chownat, openat};
use rustix::process::{Gid, Uid, geteuid};

use docwharf_base::directory::Directory;

/// Depth of directories in a store: `receipts/<id>/`.
const DEPTH: usize = 2;

/// Changes the owner of the files that root has created in this store to the owner of the store. Does nothing for a
/// process that is not root, nor in a store that root owns.
pub(super) fn change_owner_to_store_owner(store_directory: &Directory) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let metadata = store_directory.metadata()?;
    let owner = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
    if owner.0.is_root() { Ok(()) } else { change_owner(store_directory.as_fd(), owner, DEPTH) }
}

/// Removes all permissions of other users from a directory of the store: a user who can open a version can lock it, and
/// a site may be meant for some readers only. Only the owner can do so, and only where the file system has such modes.
pub(super) fn remove_access_of_others(directory: &Directory) {
    let Ok(metadata) = directory.metadata() else { return };
    let (mode, others) = (metadata.mode() & 0o7777, 0o007);
    if metadata.uid() == geteuid().as_raw() && mode & others != 0 {
        let _ = directory.set_mode(mode & !others);
    }
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// Changes the owner of the files in a directory, recursively. The owner of the store may be hostile and change it
/// meanwhile, so no symbolic link is followed, and no file with a second name is changed: it may be another user's.
fn change_owner(dir: BorrowedFd<'_>, owner: (Uid, Gid), depth: usize) -> io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // The file may have been removed meanwhile.
        let Ok(file) = openat(dir, name, flags, Mode::empty()) else { continue };
        let stat = rustix::fs::fstat(&file)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_folder = kind == FileType::Directory;
        if is_folder && depth > 0 {
            let folder = openat(&file, c".", FOLDER, Mode::empty())?;
            change_owner(folder.as_fd(), owner, depth - 1)?;
        }
        if stat.st_uid == 0 && (is_folder || kind == FileType::RegularFile && stat.st_nlink == 1) {
            chownat(&file, c"", Some(owner.0), Some(owner.1), AtFlags::EMPTY_PATH)?;
        }
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};
    use std::path::Path;

    use super::*;
    use crate::store::operations::StoreOperations;

    // Regression: commands that root ran in another user's store swept and wrote through that user's links.
    #[test]
    fn root_opens_no_links_in_the_store_of_another_user() {
        if !geteuid().is_root() {
            return; // only root can write to the stores of other users
        }
        let dir = tempfile::tempdir().unwrap();
        let (store, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
        drop(super::super::writer::StoreWriter::open(&store, std::time::Duration::ZERO).unwrap());
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("kept"), "x").unwrap();
        std::fs::remove_dir(store.join("staging")).unwrap();
        symlink(&elsewhere, store.join("staging")).unwrap();
        chown(&store, Some(4711), Some(4711)).unwrap();
        let refused = super::super::writer::StoreWriter::open(&store, std::time::Duration::ZERO);
        assert!(refused.is_err());
        assert!(elsewhere.join("kept").exists());
        // Nor through files that are links.
        std::fs::remove_file(store.join("staging")).unwrap();
        symlink(elsewhere.join("kept"), store.join(".state.json.new")).unwrap();
        symlink(elsewhere.join("kept"), store.join("history.jsonl")).unwrap();
        let writer = super::super::writer::StoreWriter::open(&store, std::time::Duration::ZERO).unwrap();
        writer.change_record(|record| record.tried_link = Some("x".into())).unwrap();
        writer.note("me", "held", None, None);
        assert_eq!(std::fs::read_to_string(elsewhere.join("kept")).unwrap(), "x");
        // A command that ends gives its new files to the owner of the store.
        let owner = || std::fs::symlink_metadata(store.join("state.json")).unwrap().uid();
        assert_eq!(owner(), 0);
        drop(writer);
        assert_eq!(owner(), 4711);
    }

    // Regression: a version that root imported while the service was stopped could not be changed by the service
    // afterwards, so the next receipt was refused.
    #[test]
    fn files_created_by_root_get_the_owner_of_the_store_and_links_are_not_followed() {
        if !geteuid().is_root() {
            return; // only root can change owners
        }
        let dir = tempfile::tempdir().unwrap();
        let (store, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
        std::fs::create_dir_all(store.join("receipts/one")).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::fs::create_dir_all(store.join("derived/one")).unwrap();
        let new_files = ["receipts/one/1.json", "derived/one/csp", "state.json"].map(|name| store.join(name));
        for path in new_files.into_iter().chain([elsewhere.join("shadow")]) {
            std::fs::write(path, "x").unwrap();
        }
        std::fs::hard_link(elsewhere.join("shadow"), store.join("history.jsonl")).unwrap();
        symlink(&elsewhere, store.join("versions")).unwrap();
        symlink(elsewhere.join("shadow"), store.join("suspect")).unwrap();
        let owner = |path: &Path| std::fs::symlink_metadata(path).unwrap().uid();
        let group = |path: &Path| std::fs::symlink_metadata(path).unwrap().gid();
        let foreign = store.join("receipts/one/2.json");
        std::fs::write(&foreign, "x").unwrap();
        chown(&foreign, Some(4713), Some(4713)).unwrap();
        change_owner_to_store_owner(&Directory::open(&store).unwrap()).unwrap();
        assert_eq!(owner(&store.join("state.json")), 0, "files in a store that root owns keep their owner");
        chown(&store, Some(4711), Some(4712)).unwrap();
        lchown(store.join("suspect"), Some(4711), Some(4711)).unwrap();
        change_owner_to_store_owner(&Directory::open(&store).unwrap()).unwrap();
        for name in ["receipts", "receipts/one", "receipts/one/1.json", "derived/one/csp", "state.json"] {
            assert_eq!((owner(&store.join(name)), group(&store.join(name))), (4711, 4712), "{name}");
        }
        assert_eq!((owner(&foreign), group(&foreign)), (4713, 4713), "the file of a third user");
        assert_eq!(owner(&elsewhere.join("shadow")), 0);
        assert_eq!(owner(&elsewhere), 0);
    }
}
