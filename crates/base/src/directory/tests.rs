//! Tests of both ways to resolve paths, against changes that another user may make.

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

const WAYS: [PathResolution; 2] = [PathResolution::Kernel, PathResolution::Components];

/// Creates a directory with `a/b/file` in it, and a secret file beside it.
fn tree(way: PathResolution) -> (TempDir, Directory) {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().canonicalize().unwrap().join("inside");
    fs::create_dir_all(inside.join("a/b")).unwrap();
    fs::write(inside.join("a/b/file"), "content").unwrap();
    fs::write(dir.path().join("secret"), "secret").unwrap();
    let directory = Directory::open_with(&inside, way).unwrap();
    (dir, directory)
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

fn said<T>(result: io::Result<T>) -> String {
    result.err().expect("an error").to_string()
}

#[test]
fn a_file_below_is_read_and_a_path_that_leaves_is_refused() {
    for way in WAYS {
        let (_dir, directory) = tree(way);
        assert_eq!(directory.read("a/b/file", 100).unwrap(), b"content");
        assert_eq!(directory.read("./a/./b/file", 100).unwrap(), b"content");
        assert!(said(directory.read("a/b/file", 6)).contains("larger than 6 bytes"));
        for path in ["../secret", "a/../../secret", "a/../a/b/file", "/etc/passwd", "", "."] {
            assert_eq!(directory.file(path).unwrap_err().kind(), io::ErrorKind::InvalidInput, "{path}");
        }
        assert_eq!(directory.file("a/none").unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(said(directory.file("a/b")).contains("it is a folder"));
    }
}

#[test]
fn no_link_is_followed_wherever_it_stands() {
    for way in WAYS {
        let (dir, directory) = tree(way);
        let inside = directory.path();
        symlink("../secret", inside.join("last")).unwrap();
        symlink("a", inside.join("first")).unwrap();
        symlink(dir.path(), inside.join("a/out")).unwrap();
        symlink(format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()), inside.join("magic")).unwrap();
        for path in ["last", "first/b/file", "a/out/secret", "magic/a/b/file"] {
            assert!(directory.file(path).is_err(), "{path}");
            assert!(directory.open_file(path, FileAccess::ReadWrite, FileRequirements::default()).is_err(), "{path}");
            assert!(
                directory.open_file(path, FileAccess::Append(0o600), FileRequirements::default()).is_err(),
                "{path}"
            );
        }
        assert!(said(directory.file("last")).contains("symbolic link"));
        assert!(directory.directory("first").is_err() && directory.directory("a/out").is_err());
        assert!(directory.metadata_of("last").unwrap().is_symlink());
        assert!(directory.create_file("last", 0o600).is_err() && directory.create_directory("first", 0o700).is_err());
        assert!(directory.ensure_directory("first", 0o700).is_err());
        assert!(Directory::open_unlinked(&inside.join("first")).is_err());
        assert_eq!(fs::read_to_string(dir.path().join("secret")).unwrap(), "secret");
    }
}

#[test]
fn a_name_that_becomes_a_link_after_the_directory_was_opened_leads_nowhere_else() {
    for way in WAYS {
        let (dir, directory) = tree(way);
        let (inside, a) = (directory.path().to_owned(), directory.directory("a").unwrap());
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
fn an_exchange_at_any_moment_gives_the_file_or_an_error() {
    for way in WAYS {
        let (dir, directory) = tree(way);
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

#[test]
fn what_is_no_regular_file_is_named_and_never_waited_for() {
    for way in WAYS {
        let (_dir, directory) = tree(way);
        pipe(&directory.path().join("pipe"));
        let _socket = UnixListener::bind(directory.path().join("socket")).unwrap();
        for access in [FileAccess::Read, FileAccess::ReadWrite, FileAccess::Append(0o600)] {
            assert!(
                said(directory.open_file("pipe", access, FileRequirements::default())).contains("it is a named pipe")
            );
            assert!(
                said(directory.open_file("socket", access, FileRequirements::default())).contains("it is a socket")
            );
        }
        let kinds: Vec<_> = directory.entries().unwrap().map(|entry| entry.unwrap().kind).collect();
        assert_eq!(kinds.iter().filter(|kind| **kind == EntryKind::Other).count(), 2);
    }
}

#[test]
fn owner_and_second_names_are_checked_where_it_is_demanded() {
    for way in WAYS {
        let (dir, directory) = tree(way);
        let mine = directory.metadata().unwrap().uid();
        let demand = |owner| FileRequirements { required_owner: Some(owner), single_name: true };
        assert!(directory.open_file("a/b/file", FileAccess::ReadWrite, demand(mine)).is_ok());
        assert!(said(directory.open_file("a/b/file", FileAccess::Read, demand(mine + 1))).contains("belongs to user"));
        fs::hard_link(dir.path().join("secret"), directory.path().join("hard")).unwrap();
        let append = directory.open_file("hard", FileAccess::Append(0o600), FileRequirements::SINGLE_NAME);
        assert!(said(append).contains("hard link"));
        assert!(directory.file("hard").is_ok());
    }
}

#[test]
fn a_file_is_replaced_whole_and_a_link_in_its_place_is_replaced_and_not_followed() {
    for way in WAYS {
        let (dir, directory) = tree(way);
        symlink(dir.path().join("secret"), directory.path().join("record")).unwrap();
        symlink(dir.path().join("secret"), directory.path().join(".record.new")).unwrap();
        directory.replace_file("record", 0o600, |mut file| file.write_all(b"new")).unwrap();
        assert_eq!(directory.read("record", 100).unwrap(), b"new");
        assert_eq!(directory.metadata_of("record").unwrap().permissions().mode() & 0o777, 0o600);
        let failed = directory.replace_file("record", 0o600, |mut file| {
            file.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert!(failed.is_err() && !directory.has(".record.new"));
        assert_eq!(directory.read("record", 100).unwrap(), b"new");
        assert_eq!(fs::read_to_string(dir.path().join("secret")).unwrap(), "secret");
    }
}

#[test]
fn renaming_to_a_free_name_replaces_nothing() {
    let (_dir, directory) = tree(PathResolution::Kernel);
    let (a, b) = (directory.directory("a").unwrap(), directory.directory("a/b").unwrap());
    directory.create_file("file", 0o600).unwrap();
    assert_eq!(b.rename_to_free("file", &directory, "file").unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    b.rename_to_free("file", &directory, "2-file").unwrap();
    assert_eq!(directory.read("2-file", 100).unwrap(), b"content");
    assert!(a.rename("b", &directory, "../b").is_err() && a.rename("b/file", &directory, "x").is_err());
}

#[test]
fn removing_a_tree_follows_no_link_and_takes_any_depth() {
    let (dir, directory) = tree(PathResolution::Kernel);
    symlink(dir.path(), directory.path().join("a/b/out")).unwrap();
    symlink(dir.path().join("secret"), directory.path().join("a/secret")).unwrap();
    let mut deep = directory.directory("a").unwrap();
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
fn links_that_stay_inside_are_resolved_and_others_are_told_apart() {
    for way in WAYS {
        let (dir, directory) = tree(way);
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
        let leads = |path: &str| directory.resolve(path).unwrap();
        assert_eq!(leads("a/b/file"), Path::new("a/b/file"));
        assert_eq!(leads("relative/file"), Path::new("a/b/file"));
        assert_eq!(leads("absolute/up/file"), Path::new("a/b/file"));
        assert_eq!(leads("and-back/b"), Path::new("a/b"));
        assert_eq!(leads("through"), Path::new("a/b/file"));
        assert_eq!(leads("itself"), Path::new(""));
        for path in ["out", "far-out", "a/out/secret", ".."] {
            assert!(matches!(directory.resolve(path), Err(LinkError::Outside)), "{path}");
        }
        assert!(matches!(directory.resolve("dangling"), Err(LinkError::Nowhere(_))));
        assert!(matches!(directory.resolve("loop"), Err(LinkError::Loop)));
    }
}

#[test]
fn a_name_is_one_component_and_anything_else_is_refused_before_anything_is_done() {
    for way in WAYS {
        let (_dir, directory) = tree(way);
        for name in ["", ".", "..", "a/b", "b/", "/"] {
            for done in [
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
                directory.rename_to_free(name, &directory, "x"),
                directory.rename_to_free("a", &directory, name),
                directory.exchange(name, &directory, "a"),
                directory.exchange("a", &directory, name),
            ] {
                assert_eq!(done.unwrap_err().kind(), io::ErrorKind::InvalidInput, "{name:?}");
            }
        }
        assert_eq!(directory.read("a/b/file", 7).unwrap(), b"content");
        for (path, is_there) in [("", true), ("a/b/file", true), ("a", true), ("none", false), ("../secret", false)] {
            assert_eq!(directory.has(path), is_there, "{path:?}");
        }
        let id = |path: &str| FileId::from_metadata(&directory.metadata_of(path).unwrap());
        assert_eq!(id(""), FileId::from_metadata(&directory.directory("").unwrap().metadata().unwrap()));
        assert!(
            id("") != id("a")
                && id("a") == FileId::from_metadata(&directory.directory("a").unwrap().metadata().unwrap())
        );
        let below = directory.directory("a/b").unwrap();
        assert_eq!(below.path(), directory.path().join("a/b"));
        assert_eq!(fs::read(below.path_of_descriptor().join("file")).unwrap(), b"content");
    }
}

#[test]
fn what_is_made_has_the_mode_that_was_asked_for_and_what_is_there_keeps_its_own() {
    for way in WAYS {
        let (_dir, directory) = tree(way);
        let mode = |name: &str| directory.metadata_of(name).unwrap().permissions().mode() & 0o777;
        let open = |name: &str, access| directory.open_file(name, access, FileRequirements::default());
        directory.create_directory("new", 0o700).unwrap().create_file("file", 0o600).unwrap();
        assert_eq!(directory.create_directory("new", 0o700).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert!(directory.ensure_directory("new", 0o755).unwrap().has("file"));
        directory.ensure_directory("newer", 0o700).unwrap();
        assert_eq!((mode("new"), mode("newer")), (0o700, 0o700));
        directory.directory("new").unwrap().set_mode(0o755).unwrap();
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
        assert_eq!(directory.directory("none").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}

#[test]
fn what_is_not_there_is_told_apart_from_what_cannot_be_removed() {
    let (_dir, directory) = tree(PathResolution::Kernel);
    directory.create_file("file", 0o600).unwrap();
    directory.create_link("a", "link").unwrap();
    assert_eq!(directory.read_link("link").unwrap(), Path::new("a"));
    assert_eq!(directory.read_link("file").unwrap_err().kind(), io::ErrorKind::InvalidInput);
    assert_eq!(directory.read_link("none").unwrap_err().kind(), io::ErrorKind::NotFound);
    let mut entries: Vec<DirectoryEntry> = directory.entries().unwrap().map(Result::unwrap).collect();
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    let kinds = [("a", EntryKind::Directory), ("file", EntryKind::File), ("link", EntryKind::Link)];
    assert_eq!(entries, kinds.map(|(name, kind)| DirectoryEntry { name: name.into(), kind }));
    for (name, kind) in kinds {
        assert_eq!(EntryKind::from_metadata(&directory.metadata_of(name).unwrap()), kind);
    }
    assert!(directory.remove_file("a").is_err() && directory.remove_file_if_there("a").is_err());
    assert!(directory.remove_directory("a").is_err() && directory.remove_directory("file").is_err());
    assert!(directory.remove_file_if_there("file").unwrap() && !directory.remove_file_if_there("file").unwrap());
    directory.directory("a").unwrap().remove_contents().unwrap();
    assert_eq!(directory.directory("a").unwrap().entries().unwrap().count(), 0);
    assert!(directory.remove_all_if_there("a").unwrap() && !directory.remove_all_if_there("a").unwrap());
    assert!(directory.remove_all_if_there("../inside").is_err());
    for (errno, unsupported) in [
        (Errno::INVAL, true),
        (Errno::NOSYS, true),
        (Errno::OPNOTSUPP, true),
        (Errno::NOENT, false),
        (Errno::EXIST, false),
        (Errno::PERM, false),
    ] {
        assert_eq!(is_unsupported(&errno.into()), unsupported, "{errno}");
    }
}

#[test]
fn forty_links_in_a_row_are_followed_and_one_more_is_a_loop() {
    for way in WAYS {
        let (_dir, directory) = tree(way);
        directory.create_link("a", "1").unwrap();
        for n in 2..=41 {
            directory.create_link((n - 1).to_string(), n.to_string()).unwrap();
        }
        assert_eq!(directory.resolve("40/b").unwrap(), Path::new("a/b"));
        assert!(matches!(directory.resolve("41"), Err(LinkError::Loop)));
        for (path, leads) in [("a/../a/b", "a/b"), ("a/b/../..", ""), ("", ""), ("./a/./b", "a/b")] {
            assert_eq!(directory.resolve(path).unwrap(), Path::new(leads), "{path:?}");
        }
        assert!(matches!(directory.resolve("a/none/file"), Err(LinkError::Nowhere(_))));
    }
}
