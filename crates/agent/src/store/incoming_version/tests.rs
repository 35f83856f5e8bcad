//! Tests of committing versions, in a store where another user exchanges names.

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::*;
use docwharf_base::model::digest::Digest;

// Regression: root, working in another user's store, followed a link in the place of an image and gave the target mode
// 0444.
#[test]
fn an_image_that_was_exchanged_for_a_link_changes_no_file_and_becomes_no_version() {
    let dir = tempfile::tempdir().unwrap();
    let victim = dir.path().join("victim");
    fs::write(&victim, "secret").unwrap();
    fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
    let root = dir.path().join("store");
    let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
    let incoming = writer.begin_incoming_version().unwrap();
    let image = incoming.directory().create_file(IMAGE, 0o600).unwrap();
    fs::remove_file(root.join("staging/0").join(IMAGE)).unwrap();
    symlink(&victim, root.join("staging/0").join(IMAGE)).unwrap();
    writer.finish_incoming_version(&incoming, &image, b"index").unwrap();
    assert_eq!(victim.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let id = VersionId(Digest::compute(b"x"));
    assert!(writer.commit(&incoming, &image, id, |_| true).is_err());
    assert!(!root.join("versions").join(id.to_string()).exists());
}

#[test]
fn each_incoming_version_has_its_own_directory_and_removes_it_on_drop() {
    let dir = tempfile::tempdir().unwrap();
    let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
    let [first, second] = [(); 2].map(|()| writer.begin_incoming_version().unwrap());
    let id_of = |incoming: &IncomingVersion| FileId::from_metadata(&incoming.directory().metadata().unwrap());
    assert_ne!(id_of(&first), id_of(&second));
    let second_path = second.directory().path().to_owned();
    drop(first);
    assert!(second_path.is_dir());
    drop(second);
    assert_eq!(fs::read_dir(dir.path().join("staging")).unwrap().count(), 0);
}

#[test]
fn staging_directory_created_by_root_belongs_to_the_owner_of_the_store_immediately() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can change owners
    }
    let dir = tempfile::tempdir().unwrap();
    let writer = StoreWriter::open(dir.path(), Duration::ZERO).unwrap();
    std::os::unix::fs::chown(dir.path(), Some(4711), Some(4711)).unwrap();
    let incoming = writer.begin_incoming_version().unwrap();
    let metadata = incoming.directory().metadata().unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::uid(&metadata), 4711, "after a kill, the service has to remove it");
}

// Regression: root, working in another user's store, wrote a replaced index through links of that user.
#[test]
fn an_index_is_replaced_through_no_link_in_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let [root, elsewhere] = ["store", "elsewhere"].map(|name| dir.path().join(name));
    let victim = elsewhere.join(INDEX);
    fs::create_dir(&elsewhere).unwrap();
    fs::write(&victim, "secret").unwrap();
    fs::set_permissions(&victim, Permissions::from_mode(0o600)).unwrap();
    let assert_untouched = |case: &str| {
        assert_eq!(fs::read_to_string(&victim).unwrap(), "secret", "{case}");
        assert_eq!(victim.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{case}");
        assert_eq!(fs::read_dir(&elsewhere).unwrap().count(), 1, "{case}");
    };
    let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
    let id = VersionId(Digest::compute(b"x"));
    let version = root.join("versions").join(id.to_string());
    fs::create_dir(&version).unwrap();
    let link_symbolic = |name: &str| symlink(&victim, version.join(name)).unwrap();
    let link_hard = |name: &str| fs::hard_link(&victim, version.join(name)).unwrap();
    for (case, create_link) in [("links", &link_symbolic as &dyn Fn(&str)), ("hard links", &link_hard)] {
        // The temporary file has the second name.
        for name in [INDEX, ".index.new"] {
            create_link(name);
        }
        writer.replace_index(id, b"new").unwrap();
        assert_untouched(case);
        let metadata = version.join(INDEX).symlink_metadata().unwrap();
        assert!(metadata.is_file(), "{case}");
        assert_eq!(metadata.permissions().mode() & 0o777, 0o440, "{case}");
        assert_eq!(fs::read(version.join(INDEX)).unwrap(), b"new", "{case}");
        assert_eq!(fs::read_dir(&version).unwrap().count(), 1, "{case}");
        fs::remove_file(version.join(INDEX)).unwrap();
    }
    fs::rename(&version, root.join("moved")).unwrap();
    symlink(&elsewhere, &version).unwrap();
    let refused = writer.replace_index(id, b"new").unwrap_err();
    assert!(refused.to_string().contains("store/versions/"), "{refused}");
    assert_untouched("the version is a link");
    fs::remove_file(&version).unwrap();
    fs::rename(root.join("versions"), root.join("moved/versions")).unwrap();
    let other = dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::rename(&elsewhere, other.join(id.to_string())).unwrap();
    symlink(&other, root.join("versions")).unwrap();
    assert!(writer.replace_index(id, b"new").is_err());
    assert_eq!(fs::read_to_string(other.join(id.to_string()).join(INDEX)).unwrap(), "secret");
}

/// Watches the names that are moved into and out of a directory.
fn watch_moves(directory: &Directory) -> OwnedFd {
    let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
    inotify::add_watch(&watch, directory.path(), WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO).unwrap();
    watch
}

/// Returns the moves of the name "old" since [`watch_moves`], in their order.
fn moves_of_old(watch: &OwnedFd) -> Vec<ReadFlags> {
    let mut buffer = [MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(watch, &mut buffer);
    let mut moves = Vec::new();
    while let Ok(event) = events.next() {
        if event.file_name() == Some(c"old") {
            moves.push(event.events() & (ReadFlags::MOVED_FROM | ReadFlags::MOVED_TO));
        }
    }
    moves
}

/// Whether the file system of this directory can exchange names.
fn can_exchange(directory: &Path) -> bool {
    let directory = Directory::open(directory).unwrap();
    for name in ["a", "b"] {
        directory.create_directory(name, 0o755).unwrap();
    }
    directory.exchange("a", &directory, "b").is_ok()
}

// Regression: a crash while a damaged version was replaced left a record that named a missing version.
#[test]
fn a_folder_is_replaced_in_one_step_or_file_by_file() {
    for (replace, is_one_step) in [(replace_damaged as fn(&_, &_, &_) -> _, true), (replace_files, false)] {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("store");
        let writer = StoreWriter::open(&root, Duration::ZERO).unwrap();
        let (incoming, versions) =
            (writer.begin_incoming_version().unwrap(), writer.store().folder("versions").unwrap());
        let old = versions.create_directory("old", 0o755).unwrap();
        for name in [IMAGE, INDEX] {
            old.replace(name, 0o644, b"old").unwrap();
            incoming.directory().replace(name, 0o644, b"new").unwrap();
        }
        let id_of = |directory: &Directory| FileId::from_metadata(&directory.metadata().unwrap());
        let watch = watch_moves(&versions);
        replace(&incoming, &versions, "old").unwrap();
        for name in [IMAGE, INDEX] {
            assert_eq!(fs::read(root.join("versions/old").join(name)).unwrap(), b"new");
            assert_ne!(fs::read(root.join("staging/0").join(name)).unwrap_or_default(), b"new");
        }
        let (stored, leftover) =
            (versions.open_directory("old").unwrap(), incoming.parent.open_directory("0").unwrap());
        if is_one_step && can_exchange(dir.path()) {
            assert_eq!((id_of(&stored), id_of(&leftover)), (id_of(incoming.directory()), id_of(&old)));
            // An exchange reports the directory that is moved in before the one that is moved out. Two renames report
            // them in the other order, and between them there is no version of this name.
            assert_eq!(moves_of_old(&watch), [ReadFlags::MOVED_TO, ReadFlags::MOVED_FROM]);
        } else {
            assert_eq!((id_of(&stored), id_of(&leftover)), (id_of(&old), id_of(incoming.directory())));
            assert_eq!(moves_of_old(&watch), [], "the directory itself is not moved");
        }
    }
}
