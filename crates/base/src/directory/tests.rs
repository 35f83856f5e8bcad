//! Tests of both methods to resolve paths, against changes that another user may make.

use std::fs;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::io::Errno;
use tempfile::TempDir;

use super::*;

const RESOLUTIONS: [PathResolution; 2] = [PathResolution::Kernel, PathResolution::Components];

/// Creates a directory with `a/b/file` in it, and a secret file beside it.
fn create_tree(resolution: PathResolution) -> (TempDir, Directory) {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().canonicalize().unwrap().join("inside");
    fs::create_dir_all(inside.join("a/b")).unwrap();
    fs::write(inside.join("a/b/file"), "content").unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let directory = Directory::open_with(&inside, resolution).unwrap();
    (dir, directory)
}

fn create_pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

fn error_text<T>(result: io::Result<T>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn a_file_below_is_read_and_a_path_that_leaves_is_refused() {
    for resolution in RESOLUTIONS {
        let (_dir, directory) = create_tree(resolution);
        assert_eq!(directory.read("a/b/file", 100).unwrap(), b"content");
        assert_eq!(directory.read("./a/./b/file", 100).unwrap(), b"content");
        assert!(error_text(directory.read("a/b/file", 6)).contains("larger than 6 bytes"));
        for path in ["../secret", "a/../../secret", "a/../a/b/file", "/etc/passwd", "", "."] {
            assert_eq!(directory.open_for_reading(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        assert_eq!(directory.open_for_reading("a/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(error_text(directory.open_for_reading("a/b")).contains("found a folder"));
    }
}

#[test]
fn symlink_is_not_followed_in_any_component() {
    for resolution in RESOLUTIONS {
        let (dir, directory) = create_tree(resolution);
        let inside = directory.path();
        symlink("../secret", inside.join("last")).unwrap();
        symlink("a", inside.join("first")).unwrap();
        symlink(dir.path(), inside.join("a/out")).unwrap();
        symlink(format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()), inside.join("magic")).unwrap();
        for path in ["last", "first/b/file", "a/out/secret", "magic/a/b/file"] {
            assert!(directory.open_for_reading(path).is_err(), "{path}");
            assert!(directory.open_file(path, FileAccess::ReadWrite, FileRequirements::default()).is_err(), "{path}");
            assert!(
                directory.open_file(path, FileAccess::Append(0o600), FileRequirements::default()).is_err(),
                "{path}"
            );
        }
        assert!(error_text(directory.open_for_reading("last")).contains("symbolic link"));
        assert!(directory.open_directory("first").is_err() && directory.open_directory("a/out").is_err());
        assert!(directory.metadata_of("last").unwrap().is_symlink());
        assert!(directory.create_file("last", 0o600).is_err() && directory.create_directory("first", 0o700).is_err());
        assert!(directory.ensure_directory("first", 0o700).is_err());
        assert!(Directory::open_no_follow(&inside.join("first")).is_err());
        assert_eq!(fs::read_to_string(dir.path().join("secret")).unwrap(), "secret");
    }
}

#[test]
fn open_directory_still_refers_to_the_same_files_after_a_symlink_replaces_its_name() {
    for resolution in RESOLUTIONS {
        let (dir, directory) = create_tree(resolution);
        let (inside, a) = (directory.path().to_owned(), directory.open_directory("a").unwrap());
        // The directory itself is exchanged for a link, and so is one below it.
        fs::create_dir_all(dir.path().join("other/b")).unwrap();
        fs::write(dir.path().join("other/b/file"), "secret").unwrap();
        fs::rename(inside.join("a"), inside.join("was")).unwrap();
        symlink(dir.path().join("other"), inside.join("a")).unwrap();
        fs::rename(&inside, dir.path().join("moved")).unwrap();
        symlink(dir.path().join("other"), &inside).unwrap();
        assert_eq!(a.read("b/file", 100).unwrap(), b"content");
        assert!(directory.read("a/b/file", 100).is_err());
        assert_eq!(directory.read("was/b/file", 100).unwrap(), b"content");
        a.create_file("new", 0o600).unwrap();
        assert!(dir.path().join("moved/was/new").exists());
        a.rename("b", &directory, "up").unwrap();
        directory.remove_all("up").unwrap();
        assert_eq!(fs::read_to_string(dir.path().join("other/b/file")).unwrap(), "secret");
        assert!(!dir.path().join("moved/up").exists());
    }
}

/// Another user exchanges names as fast as it can; no read may return the secret.
#[test]
fn directory_exchange_during_a_read_gives_the_file_or_an_error() {
    for resolution in RESOLUTIONS {
        let (dir, directory) = create_tree(resolution);
        let inside = directory.path().to_owned();
        symlink(dir.path(), inside.join("link")).unwrap();
        fs::create_dir(dir.path().join("b")).unwrap();
        fs::write(dir.path().join("b/file"), "secret").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let _ = directory.exchange("link", &directory, "a");
                }
            });
            for _ in 0..5000 {
                if let Ok(bytes) = directory.read("a/b/file", 100) {
                    assert_eq!(bytes, b"content");
                }
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    }
}

// Regression: the program waited for ever when it opened a named pipe in the place of a regular file.
#[test]
fn opening_a_pipe_or_a_socket_fails_without_blocking() {
    for resolution in RESOLUTIONS {
        let (_dir, directory) = create_tree(resolution);
        create_pipe(&directory.path().join("pipe"));
        let _socket = UnixListener::bind(directory.path().join("socket")).unwrap();
        for access in [FileAccess::Read, FileAccess::ReadWrite, FileAccess::Append(0o600)] {
            assert!(
                error_text(directory.open_file("pipe", access, FileRequirements::default()))
                    .contains("found a named pipe")
            );
            assert!(
                error_text(directory.open_file("socket", access, FileRequirements::default()))
                    .contains("found a socket")
            );
        }
        let kinds: Vec<_> = directory.entries().unwrap().map(|entry| entry.unwrap().kind).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == EntryKind::Other).count(), 2);
    }
}

#[test]
fn owner_and_hard_links_are_checked_if_required() {
    for resolution in RESOLUTIONS {
        let (dir, directory) = create_tree(resolution);
        let owner = directory.metadata().unwrap().uid();
        let requirements = |owner| FileRequirements { required_owner: Some(owner), single_name: true };
        assert!(directory.open_file("a/b/file", FileAccess::ReadWrite, requirements(owner)).is_ok());
        assert!(
            error_text(directory.open_file("a/b/file", FileAccess::Read, requirements(owner + 1)))
                .contains("belongs to user")
        );
        fs::hard_link(dir.path().join("secret"), directory.path().join("hard")).unwrap();
        let append = directory.open_file("hard", FileAccess::Append(0o600), FileRequirements::SINGLE_NAME);
        assert!(error_text(append).contains("hard link"));
        assert!(directory.open_for_reading("hard").is_ok());
    }
}

#[test]
fn a_file_is_replaced_whole_and_a_link_in_its_place_is_replaced_and_not_followed() {
    for resolution in RESOLUTIONS {
        let (dir, directory) = create_tree(resolution);
        symlink(dir.path().join("secret"), directory.path().join("record")).unwrap();
        symlink(dir.path().join("secret"), directory.path().join(".record.new")).unwrap();
        directory.replace_file("record", 0o600, |mut file| file.write_all(b"new")).unwrap();
        assert_eq!(directory.read("record", 100).unwrap(), b"new");
        assert_eq!(directory.metadata_of("record").unwrap().permissions().mode() & 0o777, 0o600);
        let result = directory.replace_file("record", 0o600, |mut file| {
            file.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert!(result.is_err() && !directory.has(".record.new"));
        assert_eq!(directory.read("record", 100).unwrap(), b"new");
        assert_eq!(fs::read_to_string(dir.path().join("secret")).unwrap(), "secret");
    }
}

#[test]
fn rename_no_replace_refuses_an_existing_name() {
    let (_dir, directory) = create_tree(PathResolution::Kernel);
    let (a, b) = (directory.open_directory("a").unwrap(), directory.open_directory("a/b").unwrap());
    directory.create_file("file", 0o600).unwrap();
    assert_eq!(b.rename_no_replace("file", &directory, "file").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    b.rename_no_replace("file", &directory, "2-file").unwrap();
    assert_eq!(directory.read("2-file", 100).unwrap(), b"content");
    assert!(a.rename("b", &directory, "../b").is_err() && a.rename("b/file", &directory, "x").is_err());
}

#[test]
fn removing_a_tree_follows_no_link_and_takes_any_depth() {
    let (dir, directory) = create_tree(PathResolution::Kernel);
    symlink(dir.path(), directory.path().join("a/b/out")).unwrap();
    symlink(dir.path().join("secret"), directory.path().join("a/secret")).unwrap();
    let mut deep = directory.open_directory("a").unwrap();
    for _ in 0..300 {
        deep = deep.create_directory("d", 0o700).unwrap();
        deep.create_file("f", 0o600).unwrap();
    }
    directory.remove_all("a").unwrap();
    assert!(!directory.has("a"));
    assert_eq!(directory.remove_all("a").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(fs::read_to_string(dir.path().join("secret")).unwrap(), "secret");
    symlink(dir.path(), directory.path().join("link")).unwrap();
    directory.remove_all("link").unwrap();
    assert!(dir.path().join("secret").exists() && !directory.has("link"));
}

#[test]
fn remove_all_also_removes_leftovers_of_an_interrupted_removal() {
    let (_dir, directory) = create_tree(PathResolution::Kernel);
    let top = directory.open_directory("a").unwrap();
    // Created before the deep directories: most file systems list the newest entry first, or by a hash of the name.
    for n in 1..=4 {
        top.create_directory(format!(".removing-{n}"), 0o700).unwrap().create_file("f", 0o600).unwrap();
    }
    for n in 0..8 {
        let mut deep = top.create_directory(n.to_string(), 0o700).unwrap();
        for _ in 0..70 {
            deep = deep.create_directory("d", 0o700).unwrap();
        }
    }
    directory.remove_all("a").unwrap();
    assert!(!directory.has("a"));
}

#[test]
fn symlinks_that_stay_inside_are_resolved_and_others_have_distinct_errors() {
    for resolution in RESOLUTIONS {
        let (dir, directory) = create_tree(resolution);
        let link = |target: &Path, name: &str| symlink(target, directory.path().join(name)).unwrap();
        link(Path::new("a/b"), "relative");
        link(&directory.path().join("a"), "absolute");
        link(Path::new("../inside/a"), "and-back");
        link(Path::new("relative/file"), "through");
        link(Path::new("."), "itself");
        link(Path::new("../secret"), "out");
        link(Path::new("/etc/passwd"), "far-out");
        link(Path::new("none"), "dangling");
        link(Path::new("loop"), "loop");
        link(Path::new("b"), "a/up");
        link(dir.path(), "a/out");
        let resolve = |path: &str| directory.resolve_links(path).unwrap();
        assert_eq!(resolve("a/b/file"), Path::new("a/b/file"));
        assert_eq!(resolve("relative/file"), Path::new("a/b/file"));
        assert_eq!(resolve("absolute/up/file"), Path::new("a/b/file"));
        assert_eq!(resolve("and-back/b"), Path::new("a/b"));
        assert_eq!(resolve("through"), Path::new("a/b/file"));
        assert_eq!(resolve("itself"), Path::new(""));
        for path in ["out", "far-out", "a/out/secret", ".."] {
            assert!(matches!(directory.resolve_links(path), Err(SymlinkError::Outside)), "{path}");
        }
        assert!(matches!(directory.resolve_links("dangling"), Err(SymlinkError::Unreadable(_))));
        assert!(matches!(directory.resolve_links("loop"), Err(SymlinkError::Loop)));
    }
}

#[test]
fn name_must_be_one_component_or_the_operation_fails_without_effect() {
    for resolution in RESOLUTIONS {
        let (_dir, directory) = create_tree(resolution);
        for name in ["", ".", "..", "a/b", "b/", "/"] {
            for result in [
                directory.create_file(name, 0o600).map(drop),
                directory.create_directory(name, 0o700).map(drop),
                directory.ensure_directory(name, 0o700).map(drop),
                directory.create_link("a", name),
                directory.replace(name, 0o600, b"x"),
                directory.remove_file(name),
                directory.remove_directory(name),
                directory.remove_all(name),
                directory.rename(name, &directory, "x"),
                directory.rename("a", &directory, name),
                directory.rename_no_replace(name, &directory, "x"),
                directory.rename_no_replace("a", &directory, name),
                directory.exchange(name, &directory, "a"),
                directory.exchange("a", &directory, name),
            ] {
                assert_eq!(result.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
            }
        }
        assert_eq!(directory.read("a/b/file", 7).unwrap(), b"content");
        for (path, exists) in [("", true), ("a/b/file", true), ("a", true), ("none", false), ("../secret", false)] {
            assert_eq!(directory.has(path), exists, "{path:?}");
        }
        let id = |path: &str| FileId::from_metadata(&directory.metadata_of(path).unwrap());
        assert_eq!(id(""), FileId::from_metadata(&directory.open_directory("").unwrap().metadata().unwrap()));
        assert!(
            id("") != id("a")
                && id("a") == FileId::from_metadata(&directory.open_directory("a").unwrap().metadata().unwrap())
        );
        let below = directory.open_directory("a/b").unwrap();
        assert_eq!(below.path(), directory.path().join("a/b"));
        assert_eq!(fs::read(below.proc_fd_path().join("file")).unwrap(), b"content");
    }
}

#[test]
fn new_files_and_directories_get_the_given_mode_and_existing_ones_are_unchanged() {
    for resolution in RESOLUTIONS {
        let (_dir, directory) = create_tree(resolution);
        let mode = |name: &str| directory.metadata_of(name).unwrap().permissions().mode() & 0o777;
        let open = |name: &str, access| directory.open_file(name, access, FileRequirements::default());
        directory.create_directory("new", 0o700).unwrap().create_file("file", 0o600).unwrap();
        assert_eq!(directory.create_directory("new", 0o700).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(directory.ensure_directory("new", 0o755).unwrap().has("file"));
        directory.ensure_directory("newer", 0o700).unwrap();
        assert_eq!((mode("new"), mode("newer")), (0o700, 0o700));
        directory.open_directory("new").unwrap().set_mode(0o755).unwrap();
        assert_eq!(mode("new"), 0o755);
        for access in [FileAccess::Read, FileAccess::ReadWrite] {
            assert_eq!(open("none", access).unwrap_err().kind(), io::ErrorKind::NotFound);
        }
        for piece in ["12", "3"] {
            open("begin", FileAccess::ReadWriteOrCreate(0o600)).unwrap().write_all(piece.as_bytes()).unwrap();
            open("end", FileAccess::Append(0o600)).unwrap().write_all(piece.as_bytes()).unwrap();
        }
        open("end", FileAccess::ReadWrite).unwrap().write_all(b"x").unwrap();
        assert!(open("end", FileAccess::Read).unwrap().write_all(b"y").is_err());
        assert_eq!(
            (directory.read("begin", 9).unwrap(), directory.read("end", 9).unwrap()),
            (b"32".into(), b"x23".into())
        );
        assert_eq!((mode("begin"), mode("end")), (0o600, 0o600));
        assert_eq!(directory.create_file("end", 0o600).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(directory.ensure_directory("end", 0o700).unwrap_err().kind(), io::ErrorKind::NotADirectory);
        assert_eq!(directory.open_directory("none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn missing_entry_and_failed_removal_are_reported_differently() {
    let (_dir, directory) = create_tree(PathResolution::Kernel);
    directory.create_file("file", 0o600).unwrap();
    directory.create_link("a", "link").unwrap();
    assert_eq!(directory.read_link("link").unwrap(), Path::new("a"));
    assert_eq!(directory.read_link("file").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(directory.read_link("none").unwrap_err().kind(), io::ErrorKind::NotFound);
    let mut entries: Vec<DirectoryEntry> = directory.entries().unwrap().map(Result::unwrap).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    let kinds = [("a", EntryKind::Directory), ("file", EntryKind::File), ("link", EntryKind::Link)];
    assert_eq!(entries, kinds.map(|(name, kind)| DirectoryEntry { name: name.into(), kind }));
    for (name, kind) in kinds {
        assert_eq!(EntryKind::from_metadata(&directory.metadata_of(name).unwrap()), kind);
    }
    assert!(directory.remove_file("a").is_err() && directory.remove_file_if_exists("a").is_err());
    assert!(directory.remove_directory("a").is_err() && directory.remove_directory("file").is_err());
    assert!(directory.remove_file_if_exists("file").unwrap() && !directory.remove_file_if_exists("file").unwrap());
    directory.open_directory("a").unwrap().remove_contents().unwrap();
    assert_eq!(directory.open_directory("a").unwrap().entries().unwrap().count(), 0);
    assert!(directory.remove_all_if_exists("a").unwrap() && !directory.remove_all_if_exists("a").unwrap());
    assert!(directory.remove_all_if_exists("../inside").is_err());
    for (errno, expected) in [
        (Errno::INVAL, true),
        (Errno::NOSYS, true),
        (Errno::OPNOTSUPP, true),
        (Errno::NOENT, false),
        (Errno::EXIST, false),
        (Errno::PERM, false),
    ] {
        assert_eq!(is_unsupported(&errno.into()), expected, "{errno}");
    }
}

#[test]
fn forty_links_in_a_row_are_followed_and_one_more_is_a_loop() {
    for resolution in RESOLUTIONS {
        let (_dir, directory) = create_tree(resolution);
        directory.create_link("a", "1").unwrap();
        for n in 2..=41 {
            directory.create_link((n - 1).to_string(), n.to_string()).unwrap();
        }
        assert_eq!(directory.resolve_links("40/b").unwrap(), Path::new("a/b"));
        assert!(matches!(directory.resolve_links("41"), Err(SymlinkError::Loop)));
        for (path, target) in [("a/../a/b", "a/b"), ("a/b/../..", ""), ("", ""), ("./a/./b", "a/b")] {
            assert_eq!(directory.resolve_links(path).unwrap(), Path::new(target), "{path:?}");
        }
        assert!(matches!(directory.resolve_links("a/none/file"), Err(SymlinkError::Unreadable(_))));
    }
}

// Regression: an origin, as root, gave a checkout to the user of a build by path and from the top, so a process of that
// user could exchange a folder for a link and become the owner of files elsewhere.
#[test]
fn a_directory_gets_a_new_owner_after_everything_in_it_and_no_link_is_followed() {
    for resolution in RESOLUTIONS {
        let (dir, directory) = create_tree(resolution);
        let root = directory.path().to_owned();
        let secret = dir.path().join("secret");
        symlink(&secret, root.join("a/link")).unwrap();
        symlink(dir.path(), root.join("a/b/link")).unwrap();
        for n in 0..200 {
            fs::write(root.join(format!("a/b/{n}")), "").unwrap();
        }
        let changed = |path: &Path| {
            let metadata = fs::symlink_metadata(path).unwrap();
            (metadata.ctime(), metadata.ctime_nsec())
        };
        let (secret_before, outside_before) = (changed(&secret), changed(dir.path()));
        let is_root = rustix::process::geteuid().is_root();
        let (user, group) = if is_root {
            (4711, 4712)
        } else {
            (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
        };
        let below = ["a", "a/link", "a/b", "a/b/link", "a/b/file", "a/b/0", "a/b/199"].map(|path| root.join(path));
        // Linux takes a finer time for a file whose last time was read (since 6.13).
        below.iter().map(|path| changed(path)).for_each(drop);
        directory.set_owner_of_tree(user, group).unwrap();
        for path in below.iter().chain([&root]) {
            let metadata = fs::symlink_metadata(path).unwrap();
            assert_eq!((metadata.uid(), metadata.gid()), (user, group), "{path:?}");
            assert!(changed(path) <= changed(path.parent().unwrap()) || path == &root, "{path:?} after its directory");
        }
        assert_eq!((changed(&secret), changed(dir.path())), (secret_before, outside_before), "links are not followed");
    }
}
