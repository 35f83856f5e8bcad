//! Whose a store is. A command that root types must not leave anything in it that the service, which runs as somebody
//! else, cannot change afterwards.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, chownat, openat};
use rustix::process::{Gid, Uid, geteuid};

use super::StoreError;
use super::derived::DERIVED;

/// How deep folders lie in a store: `receipts/<id>/`.
const DEPTH: usize = 2;

/// Gives what root has made in the store at `root` to whom the store belongs. Does nothing for anybody but root, nor in
/// root's own store.
pub(super) fn hand_over(root: &Path) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let dir = rustix::fs::open(root, FOLDER, Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    let owner = (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid));
    if owner.0.is_root() { Ok(()) } else { give(dir.as_fd(), owner, DEPTH) }
}

/// Whether root works in a store that belongs to somebody else, who may be hostile.
fn is_foreign(root: &Path) -> io::Result<bool> {
    Ok(geteuid().is_root() && std::fs::metadata(root)?.uid() != 0)
}

/// Refuses a store of somebody else whose folders are links: what is written and swept in them would be elsewhere.
pub(super) fn check(root: &Path) -> io::Result<()> {
    if !is_foreign(root)? {
        return Ok(());
    }
    for name in ["versions", "receipts", "staging", "downloads", DERIVED] {
        let is_link = match std::fs::symlink_metadata(root.join(name)) {
            Ok(metadata) => metadata.is_symlink(),
            // It is made when it is needed.
            Err(error) if name == DERIVED && error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if is_link {
            return Err(io::Error::other(format!("{name} is a link in a store that is not root's; remove it")));
        }
    }
    Ok(())
}

/// A folder of the store, and the way to it. In a store of somebody else it is held by its descriptor, so that nothing
/// that he does to the name meanwhile leads elsewhere.
pub(super) fn pinned(root: &Path, name: &str) -> Result<(Option<OwnedFd>, PathBuf), StoreError> {
    let path = root.join(name);
    if !is_foreign(root).map_err(StoreError::io("read", root))? {
        return Ok((None, path));
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(&path, flags, Mode::empty());
    let folder = folder.map_err(|errno| StoreError::io("open", &path)(errno.into()))?;
    let way = PathBuf::from(format!("/proc/self/fd/{}/.", folder.as_raw_fd()));
    Ok((Some(folder), way))
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The owner of the store may be hostile and change it meanwhile: no link is followed, neither a symbolic one nor, as a
/// file with a second name may be anybody's, a hard one.
fn give(dir: BorrowedFd<'_>, owner: (Uid, Gid), depth: usize) -> io::Result<()> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What has gone meanwhile needs no owner.
        let Ok(file) = openat(dir, name, flags, Mode::empty()) else { continue };
        let stat = rustix::fs::fstat(&file)?;
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_folder = kind == FileType::Directory;
        if is_folder && depth > 0 {
            let folder = openat(&file, c".", FOLDER, Mode::empty())?;
            give(folder.as_fd(), owner, depth - 1)?;
        }
        if stat.st_uid == 0 && (is_folder || kind == FileType::RegularFile && stat.st_nlink == 1) {
            chownat(&file, c"", Some(owner.0), Some(owner.1), AtFlags::EMPTY_PATH)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, lchown, symlink};

    use super::*;
    use crate::store::keeper::Keeper;

    #[test]
    fn root_sweeps_nothing_through_the_links_of_a_store_that_is_not_his() {
        if !geteuid().is_root() {
            return; // only root works in other people's stores
        }
        let dir = tempfile::tempdir().unwrap();
        let (store, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
        drop(super::super::writer::Writer::open(&store, std::time::Duration::ZERO).unwrap());
        std::fs::create_dir(&elsewhere).unwrap();
        std::fs::write(elsewhere.join("kept"), "x").unwrap();
        std::fs::remove_dir(store.join("staging")).unwrap();
        symlink(&elsewhere, store.join("staging")).unwrap();
        chown(&store, Some(4711), Some(4711)).unwrap();
        let refused = super::super::writer::Writer::open(&store, std::time::Duration::ZERO);
        assert!(refused.is_err());
        assert!(elsewhere.join("kept").exists());
        // Files that are links are not followed either.
        std::fs::remove_file(store.join("staging")).unwrap();
        symlink(elsewhere.join("kept"), store.join(".state.json.new")).unwrap();
        symlink(elsewhere.join("kept"), store.join("history.jsonl")).unwrap();
        let writer = super::super::writer::Writer::open(&store, std::time::Duration::ZERO).unwrap();
        writer.change(|record| record.tried_link = Some("x".into())).unwrap();
        writer.note("me", "held", None, None);
        assert_eq!(std::fs::read_to_string(elsewhere.join("kept")).unwrap(), "x");
    }

    #[test]
    fn what_root_has_made_is_given_to_the_owner_of_the_store_and_nothing_behind_a_link_is() {
        if !geteuid().is_root() {
            return; // nobody else could give anything away
        }
        let dir = tempfile::tempdir().unwrap();
        let (store, elsewhere) = (dir.path().join("store"), dir.path().join("elsewhere"));
        std::fs::create_dir_all(store.join("receipts/one")).unwrap();
        std::fs::create_dir_all(&elsewhere).unwrap();
        std::fs::create_dir_all(store.join("derived/one")).unwrap();
        let made = ["receipts/one/1.json", "derived/one/csp", "state.json"].map(|name| store.join(name));
        for path in made.into_iter().chain([elsewhere.join("shadow")]) {
            std::fs::write(path, "x").unwrap();
        }
        std::fs::hard_link(elsewhere.join("shadow"), store.join("history.jsonl")).unwrap();
        symlink(&elsewhere, store.join("versions")).unwrap();
        symlink(elsewhere.join("shadow"), store.join("suspect")).unwrap();
        let owner = |path: &Path| std::fs::symlink_metadata(path).unwrap().uid();
        hand_over(&store).unwrap();
        assert_eq!(owner(&store.join("state.json")), 0, "root's own store stays root's");
        chown(&store, Some(4711), Some(4711)).unwrap();
        lchown(store.join("suspect"), Some(4711), Some(4711)).unwrap();
        hand_over(&store).unwrap();
        for name in ["receipts", "receipts/one", "receipts/one/1.json", "derived/one/csp", "state.json"] {
            assert_eq!(owner(&store.join(name)), 4711, "{name}");
        }
        assert_eq!(owner(&elsewhere.join("shadow")), 0);
        assert_eq!(owner(&elsewhere), 0);
    }
}
