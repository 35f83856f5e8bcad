//! Tests of an inbox that other users can write to.

use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// Scans until the only file is complete, and returns it.
fn complete_file(inbox: &mut BundleInbox) -> InboxFile {
    let start = Instant::now();
    inbox.scan(start).unwrap();
    inbox.scan(start + QUIET_PERIOD).unwrap().ready.pop().unwrap()
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

// Regression: a user who could write to the inbox made the agent overwrite any of its files with the reason for a
// refusal.
#[test]
fn rejection_reason_follows_no_symlink_and_blocks_on_no_named_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let (root, secret) = (dir.path().join("inbox"), dir.path().join("state.json"));
    std::fs::write(&secret, "ours").unwrap();
    let mut inbox = BundleInbox::open(&root, []).unwrap();
    symlink(&secret, root.join("rejected/evil.zip.reason.txt")).unwrap();
    pipe(&root.join("rejected/2-evil.zip.reason.txt"));
    for _ in 0..2 {
        std::fs::write(root.join("evil.zip"), "x").unwrap();
        let evil = complete_file(&mut inbox);
        inbox.move_away(&evil, Some("it is bad")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "ours");
    assert!(root.join("rejected/evil.zip").is_file() && root.join("rejected/2-evil.zip").is_file());
}

#[test]
fn file_is_not_moved_through_a_symlink_that_replaces_the_accepted_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (root, elsewhere) = (dir.path().join("inbox"), dir.path().join("elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    let mut inbox = BundleInbox::open(&root, []).unwrap();
    std::fs::remove_dir(root.join("accepted")).unwrap();
    symlink(&elsewhere, root.join("accepted")).unwrap();
    std::fs::write(root.join("b.zip"), "x").unwrap();
    let file = complete_file(&mut inbox);
    assert!(inbox.move_away(&file, None).is_err());
    assert!(root.join("b.zip").exists() && std::fs::read_dir(&elsewhere).unwrap().next().is_none());
    // The file is not moved, and is imported again when it has changed.
    let later = Instant::now() + QUIET_PERIOD * 2;
    inbox.scan(later).unwrap();
    assert!(
        inbox.scan(later + QUIET_PERIOD).unwrap().ready.is_empty(),
        "a file that could not be moved is not imported again"
    );
    std::fs::write(root.join("b.zip"), "longer").unwrap();
    inbox.scan(later + QUIET_PERIOD * 2).unwrap();
    assert_eq!(inbox.scan(later + QUIET_PERIOD * 3).unwrap().ready.len(), 1);
    assert!(BundleInbox::open(&root, []).is_err());
}

// Regression: a user who could write to the inbox exchanged a file after the agent had checked it, and the agent hung
// on a named pipe.
#[test]
fn inbox_opens_only_the_file_that_the_scan_found() {
    let dir = tempfile::tempdir().unwrap();
    let (root, secret) = (dir.path().join("inbox"), dir.path().join("secret"));
    std::fs::write(&secret, "secret").unwrap();
    let mut inbox = BundleInbox::open(&root, []).unwrap();
    let path = root.join("b.zip");
    std::fs::write(&path, "public").unwrap();
    let file = complete_file(&mut inbox);
    let replacements: [&dyn Fn(); 4] = [
        &|| symlink(&secret, &path).unwrap(),
        &|| std::fs::hard_link(&secret, &path).unwrap(),
        &|| pipe(&path),
        &|| std::fs::write(&path, "others").unwrap(),
    ];
    for replace in replacements {
        std::fs::rename(&path, root.join(".aside")).unwrap();
        replace();
        assert!(file.open().is_err() && !inbox.is_unchanged(&file));
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(root.join(".aside"), &path).unwrap();
    }
    assert!(file.open().is_ok());
    std::fs::remove_file(&path).unwrap();
    std::fs::hard_link(&secret, &path).unwrap();
    let later = Instant::now() + QUIET_PERIOD * 2;
    inbox.scan(later).unwrap();
    assert!(inbox.scan(later + QUIET_PERIOD * 2).unwrap().ready.is_empty(), "a file with a second name");
}

#[test]
fn a_file_that_is_written_over_in_place_is_not_ready_though_its_size_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path(), []).unwrap();
    let file = std::fs::File::create(dir.path().join("b.zip")).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365 * 50);
    let start = Instant::now();
    for n in 0..4 {
        file.set_modified(modified + QUIET_PERIOD * n).unwrap();
        assert!(inbox.scan(start + QUIET_PERIOD * n).unwrap().ready.is_empty(), "{n}");
    }
    assert_eq!(inbox.scan(start + QUIET_PERIOD * 4).unwrap().ready.len(), 1);
}

#[test]
fn ready_files_are_sorted_by_modification_time_and_then_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path(), []).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365 * 50);
    for (name, second) in [("a.zip", 3), ("d.zip", 1), ("b.zip", 2), ("c.zip", 2)] {
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        file.set_modified(modified + Duration::from_secs(second)).unwrap();
    }
    let start = Instant::now();
    inbox.scan(start).unwrap();
    let ready = inbox.scan(start + QUIET_PERIOD).unwrap().ready;
    let names: Vec<_> = ready.iter().map(|file| file.name.to_str().unwrap()).collect();
    assert_eq!(names, ["d.zip", "b.zip", "c.zip", "a.zip"]);
}

#[test]
fn a_file_is_ready_when_it_has_not_changed_for_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path(), []).unwrap();
    let path = dir.path().join("b.zip");
    std::fs::write(&path, "half").unwrap();
    std::fs::write(dir.path().join(".hidden"), "x").unwrap();
    std::fs::write(dir.path().join("c.zip.part"), "x").unwrap();
    let start = Instant::now();
    let scan = inbox.scan(start).unwrap();
    assert!(scan.ready.is_empty() && scan.growing);
    std::fs::write(&path, "complete").unwrap();
    assert!(inbox.scan(start + QUIET_PERIOD).unwrap().ready.is_empty(), "it has grown");
    assert!(inbox.scan(start + QUIET_PERIOD + QUIET_PERIOD / 2).unwrap().ready.is_empty());
    let scan = inbox.scan(start + QUIET_PERIOD * 2).unwrap();
    assert!(!scan.growing);
    let [file] = &scan.ready[..] else { panic!("{scan:?}") };
    assert_eq!(file.path, path);
    assert!(inbox.is_unchanged(file) && file.open().is_ok());
    inbox.move_away(file, Some("it is bad")).unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("rejected/b.zip.reason.txt")).unwrap(), "it is bad\n");
    assert!(inbox.scan(start + QUIET_PERIOD * 3).unwrap().ready.is_empty());
}

#[test]
fn second_file_of_the_same_name_is_moved_under_a_numbered_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path(), []).unwrap();
    let path = dir.path().join("b.zip");
    for _ in 0..2 {
        std::fs::write(&path, "x").unwrap();
        let file = complete_file(&mut inbox);
        inbox.move_away(&file, None).unwrap();
    }
    assert!(dir.path().join("accepted/b.zip").exists() && dir.path().join("accepted/2-b.zip").exists());
}

#[test]
fn rejected_file_that_cannot_be_moved_leaves_no_reason_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path(), []).unwrap();
    std::fs::write(dir.path().join("b.zip"), "x").unwrap();
    let file = complete_file(&mut inbox);
    std::fs::remove_file(dir.path().join("b.zip")).unwrap();
    let error = inbox.move_away(&file, Some("it is bad")).expect_err("the file is gone");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    assert_eq!(std::fs::read_dir(dir.path().join("rejected")).unwrap().count(), 0);
}

#[test]
fn truncated_file_gets_one_grace_period_and_another_after_it_grows() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path(), []).unwrap();
    let path = dir.path().join("b.zip");
    std::fs::write(&path, "half").unwrap();
    let start = Instant::now();
    let before = |end: Instant| end.checked_sub(Duration::from_millis(1)).unwrap();
    inbox.scan(start).unwrap();
    assert!(inbox.scan(before(start + QUIET_PERIOD)).unwrap().ready.is_empty());
    let file = inbox.scan(start + QUIET_PERIOD).unwrap().ready.pop().unwrap();
    assert!(inbox.grant_grace_period(&file), "the first time");
    let scan = inbox.scan(before(start + TRUNCATED_GRACE)).unwrap();
    assert!(scan.ready.is_empty() && scan.growing);
    let file = inbox.scan(start + TRUNCATED_GRACE).unwrap().ready.pop().unwrap();
    assert!(!inbox.grant_grace_period(&file), "the time has passed");
    std::fs::write(&path, "more than half").unwrap();
    let later = start + TRUNCATED_GRACE * 2;
    assert!(inbox.scan(later).unwrap().ready.is_empty());
    let file = inbox.scan(later + QUIET_PERIOD).unwrap().ready.pop().unwrap();
    assert!(inbox.grant_grace_period(&file), "the file has changed");
    // A removed file needs no more time.
    std::fs::remove_file(&path).unwrap();
    assert!(!inbox.scan(later + QUIET_PERIOD * 2).unwrap().growing);
    assert!(!inbox.grant_grace_period(&file));
}

#[test]
fn only_names_of_unfinished_files_are_ignored() {
    for (name, is_ignored) in [
        ("b.zip", false),
        ("b.zip.part", true),
        ("b.partial", true),
        ("b.tmp", true),
        ("b.crdownload", true),
        ("b.filepart", true),
        ("b.download", true),
        (".b.zip", true),
        ("part", false),
        ("b.part.zip", false),
        ("b.parts", false),
        ("b", false),
    ] {
        assert_eq!(is_unfinished(OsStr::new(name)), is_ignored, "{name}");
    }
    assert_eq!(prefixed(2, OsStr::new("b.zip")), "2-b.zip");
    for (kind, expected) in [
        (io::ErrorKind::ReadOnlyFilesystem, true),
        (io::ErrorKind::PermissionDenied, true),
        (io::ErrorKind::StorageFull, true),
        (io::ErrorKind::NotADirectory, false),
        (io::ErrorKind::NotFound, false),
    ] {
        assert_eq!(is_unwritable(&kind.into()), expected, "{kind:?}");
    }
}
