//! Tests of an inbox into which other users write.

use std::os::unix::fs::symlink;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::*;

/// The one file that is complete.
fn dropped(inbox: &mut BundleInbox) -> InboxFile {
    let start = Instant::now();
    inbox.see(start).unwrap();
    inbox.see(start + QUIET_PERIOD).unwrap().ready.pop().unwrap()
}

fn pipe(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
}

#[test]
fn the_reason_for_a_refusal_is_written_over_nothing_and_waits_for_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (drops, secret) = (dir.path().join("inbox"), dir.path().join("state.json"));
    std::fs::write(&secret, "ours").unwrap();
    let mut inbox = BundleInbox::open(&drops).unwrap();
    symlink(&secret, drops.join("rejected/evil.zip.reason.txt")).unwrap();
    pipe(&drops.join("rejected/2-evil.zip.reason.txt"));
    for _ in 0..2 {
        std::fs::write(drops.join("evil.zip"), "x").unwrap();
        let evil = dropped(&mut inbox);
        inbox.put_away(&evil, Some("it is bad")).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "ours");
    assert!(drops.join("rejected/evil.zip").is_file() && drops.join("rejected/2-evil.zip").is_file());
}

#[test]
fn a_file_goes_into_our_folder_and_not_where_a_link_in_its_place_leads() {
    let dir = tempfile::tempdir().unwrap();
    let (drops, elsewhere) = (dir.path().join("inbox"), dir.path().join("elsewhere"));
    std::fs::create_dir(&elsewhere).unwrap();
    let mut inbox = BundleInbox::open(&drops).unwrap();
    std::fs::remove_dir(drops.join("accepted")).unwrap();
    symlink(&elsewhere, drops.join("accepted")).unwrap();
    std::fs::write(drops.join("b.zip"), "x").unwrap();
    let file = dropped(&mut inbox);
    assert!(inbox.put_away(&file, None).is_err());
    assert!(drops.join("b.zip").exists() && std::fs::read_dir(&elsewhere).unwrap().next().is_none());
    // It stays where it is, and is imported again when it has changed.
    let later = Instant::now() + QUIET_PERIOD * 2;
    inbox.see(later).unwrap();
    assert!(inbox.see(later + QUIET_PERIOD).unwrap().ready.is_empty(), "the same file a second time");
    std::fs::write(drops.join("b.zip"), "longer").unwrap();
    inbox.see(later + QUIET_PERIOD * 2).unwrap();
    assert_eq!(inbox.see(later + QUIET_PERIOD * 3).unwrap().ready.len(), 1);
    assert!(BundleInbox::open(&drops).is_err());
}

#[test]
fn what_was_seen_is_what_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (drops, secret) = (dir.path().join("inbox"), dir.path().join("secret"));
    std::fs::write(&secret, "secret").unwrap();
    let mut inbox = BundleInbox::open(&drops).unwrap();
    let path = drops.join("b.zip");
    std::fs::write(&path, "public").unwrap();
    let file = dropped(&mut inbox);
    let exchanges: [&dyn Fn(); 4] = [
        &|| symlink(&secret, &path).unwrap(),
        &|| std::fs::hard_link(&secret, &path).unwrap(),
        &|| pipe(&path),
        &|| std::fs::write(&path, "others").unwrap(),
    ];
    for exchange in exchanges {
        std::fs::rename(&path, drops.join(".aside")).unwrap();
        exchange();
        assert!(file.open().is_err() && !inbox.is_unchanged(&file));
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(drops.join(".aside"), &path).unwrap();
    }
    assert!(file.open().is_ok());
    std::fs::remove_file(&path).unwrap();
    std::fs::hard_link(&secret, &path).unwrap();
    let later = Instant::now() + QUIET_PERIOD * 2;
    inbox.see(later).unwrap();
    assert!(inbox.see(later + QUIET_PERIOD * 2).unwrap().ready.is_empty(), "a file with a second name");
}

#[test]
fn a_file_that_is_written_over_in_place_is_not_ready_though_its_size_stays() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path()).unwrap();
    let file = std::fs::File::create(dir.path().join("b.zip")).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365 * 50);
    let start = Instant::now();
    for n in 0..4 {
        file.set_modified(then + QUIET_PERIOD * n).unwrap();
        assert!(inbox.see(start + QUIET_PERIOD * n).unwrap().ready.is_empty(), "{n}");
    }
    assert_eq!(inbox.see(start + QUIET_PERIOD * 4).unwrap().ready.len(), 1);
}

#[test]
fn files_are_taken_by_their_times_and_those_of_one_time_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path()).unwrap();
    let then = SystemTime::UNIX_EPOCH + Duration::from_hours(24 * 365 * 50);
    for (name, second) in [("a.zip", 3), ("d.zip", 1), ("b.zip", 2), ("c.zip", 2)] {
        let file = std::fs::File::create(dir.path().join(name)).unwrap();
        file.set_modified(then + Duration::from_secs(second)).unwrap();
    }
    let start = Instant::now();
    inbox.see(start).unwrap();
    let ready = inbox.see(start + QUIET_PERIOD).unwrap().ready;
    let names: Vec<_> = ready.iter().map(|file| file.name.to_str().unwrap()).collect();
    assert_eq!(names, ["d.zip", "b.zip", "c.zip", "a.zip"]);
}

#[test]
fn a_file_is_ready_when_it_has_not_changed_for_a_moment() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path()).unwrap();
    let path = dir.path().join("b.zip");
    std::fs::write(&path, "half").unwrap();
    std::fs::write(dir.path().join(".hidden"), "x").unwrap();
    std::fs::write(dir.path().join("c.zip.part"), "x").unwrap();
    let start = Instant::now();
    let seen = inbox.see(start).unwrap();
    assert!(seen.ready.is_empty() && seen.growing);
    std::fs::write(&path, "the whole").unwrap();
    assert!(inbox.see(start + QUIET_PERIOD).unwrap().ready.is_empty(), "it has grown");
    assert!(inbox.see(start + QUIET_PERIOD + QUIET_PERIOD / 2).unwrap().ready.is_empty());
    let seen = inbox.see(start + QUIET_PERIOD * 2).unwrap();
    assert!(!seen.growing);
    let [dropped] = &seen.ready[..] else { panic!("{seen:?}") };
    assert_eq!(dropped.path, path);
    assert!(inbox.is_unchanged(dropped) && dropped.open().is_ok());
    inbox.put_away(dropped, Some("it is bad")).unwrap();
    assert_eq!(std::fs::read_to_string(dir.path().join("rejected/b.zip.reason.txt")).unwrap(), "it is bad\n");
    assert!(inbox.see(start + QUIET_PERIOD * 3).unwrap().ready.is_empty());
}

#[test]
fn a_second_file_of_the_same_name_keeps_the_first() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path()).unwrap();
    let path = dir.path().join("b.zip");
    for _ in 0..2 {
        std::fs::write(&path, "x").unwrap();
        let dropped = dropped(&mut inbox);
        inbox.put_away(&dropped, None).unwrap();
    }
    assert!(dir.path().join("accepted/b.zip").exists() && dir.path().join("accepted/2-b.zip").exists());
}

#[test]
fn a_file_that_is_cut_short_gets_more_time_once_and_anew_when_it_grows() {
    let dir = tempfile::tempdir().unwrap();
    let mut inbox = BundleInbox::open(dir.path()).unwrap();
    let path = dir.path().join("b.zip");
    std::fs::write(&path, "half").unwrap();
    let start = Instant::now();
    let before = |end: Instant| end.checked_sub(Duration::from_millis(1)).unwrap();
    inbox.see(start).unwrap();
    assert!(inbox.see(before(start + QUIET_PERIOD)).unwrap().ready.is_empty());
    let file = inbox.see(start + QUIET_PERIOD).unwrap().ready.pop().unwrap();
    assert!(!inbox.give_time(&file), "it has had none");
    let seen = inbox.see(before(start + TRUNCATED_GRACE)).unwrap();
    assert!(seen.ready.is_empty() && seen.growing);
    let file = inbox.see(start + TRUNCATED_GRACE).unwrap().ready.pop().unwrap();
    assert!(inbox.give_time(&file), "it has had it");
    std::fs::write(&path, "more than half").unwrap();
    let later = start + TRUNCATED_GRACE * 2;
    assert!(inbox.see(later).unwrap().ready.is_empty());
    let file = inbox.see(later + QUIET_PERIOD).unwrap().ready.pop().unwrap();
    assert!(!inbox.give_time(&file), "it is another one now");
    // A file that has been removed needs no time.
    std::fs::remove_file(&path).unwrap();
    assert!(!inbox.see(later + QUIET_PERIOD * 2).unwrap().growing);
    assert!(inbox.give_time(&file));
}

#[test]
fn names_of_what_is_being_written_are_left_alone_and_no_others() {
    for (name, is_left) in [
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
        assert_eq!(is_unfinished(OsStr::new(name)), is_left, "{name}");
    }
    assert_eq!(prefixed(2, OsStr::new("b.zip")), "2-b.zip");
    for (kind, is_so) in [
        (io::ErrorKind::ReadOnlyFilesystem, true),
        (io::ErrorKind::PermissionDenied, true),
        (io::ErrorKind::StorageFull, true),
        (io::ErrorKind::NotADirectory, false),
        (io::ErrorKind::NotFound, false),
    ] {
        assert_eq!(is_unwritable(&kind.into()), is_so, "{kind:?}");
    }
}
