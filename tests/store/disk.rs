//! A disk that is full, at every write: the old site stays, the message says so, and space is all that it takes.

use std::path::Path;

use serde_json::json;
use support::disk::Disk;
use support::host::{Host, bundle, front, large_bundle, large_tar, text};
use support::tar::{file, gzip, tar, zstd};
use support::upstream::{Call, Upstream, honest, raw};
use support::zip::{deflated, stored, zip};
use support::{Ended, http, until};

/// A host whose store is on the disk.
fn on(disk: &Disk, host: Host) -> Host {
    host.set("store.path", text(disk.path("store").to_str().unwrap()))
}

/// Copies a store as it lies.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(path, target).unwrap();
        }
    }
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// After a full disk: said in one line, nothing half-done, the old version active.
#[track_caller]
fn assert_unharmed(what: &str, disk: &Disk, host: &Host, ended: &Ended, old: &str) {
    let store = disk.path("store");
    assert!(names(&store.join("staging")).is_empty(), "{what}: {:?}", names(&store.join("staging")));
    let downloads = names(&store.join("downloads"));
    assert!(downloads.is_empty() || downloads == ["bundle.json", "bundle.part"], "{what}: {downloads:?}");
    let hidden: Vec<String> = names(&store).into_iter().filter(|name| name.starts_with('.')).collect();
    assert!(hidden.is_empty(), "{what}: {hidden:?}");
    for id in names(&store.join("versions")) {
        assert_eq!(names(&store.join("versions").join(&id)), ["index", "site.zip"], "{what}");
    }
    let status = host.status();
    assert_eq!(status["activePresent"], true, "{what}");
    match ended.code {
        Some(0) => assert_ne!(status["active"], old, "{what}"),
        Some(8) => {
            let line = ended.stderr.lines().find(|line| line.starts_with("docwharf: ")).unwrap_or_default();
            assert!(line.contains("no space"), "{what}: {}", ended.stderr);
            assert_eq!(status["active"], old, "{what}");
            assert_eq!(names(&store.join("versions")), [old], "{what}: what came is of no use to anybody");
        }
        _ => panic!("{what}: {ended:?}"),
    }
}

/// Does `arguments` with 0, 4, 8, … KiB left, until it succeeds three times in a row; each failure must leave everything
/// as it was, and space must be all that it takes. Gives how often it failed and how far it came.
#[track_caller]
fn sweep(what: &str, disk: &Disk, host: &Host, leave: impl Fn(u64), arguments: &[&str]) -> u64 {
    let (store, kept) = (disk.path("store"), host.path("kept"));
    let old = host.active().expect("there is an old version");
    let _ = std::fs::remove_dir_all(&kept);
    copy(&store, &kept);
    let (mut failures, mut successes) = (0, 0);
    for step in 0.. {
        assert!(step < 120, "{what}: it never succeeds");
        leave(step);
        let ended = support::host::finish(&mut host.command(arguments));
        let at = format!("{what} with {step} left");
        assert_unharmed(&at, disk, host, &ended, &old);
        disk.empty();
        if ended.code == Some(8) {
            (failures, successes) = (failures + 1, 0);
            host.ok(arguments);
            assert_ne!(host.active().as_ref(), Some(&old), "{at}, and then enough");
        } else {
            successes += 1;
            if successes == 3 {
                break;
            }
        }
        std::fs::remove_dir_all(&store).unwrap();
        copy(&kept, &store);
    }
    assert!(failures > 1, "{what}: the disk was never full");
    failures
}

/// One site as each kind of archive; all but the plain tar are sealed from about as many bytes as they become.
fn kinds() -> [(&'static str, Vec<u8>); 5] {
    let page = format!("<title>new</title>{}", support::text(40_000));
    let noise = String::from_utf8_lossy(&large_bundle("x", 12_000)).into_owned();
    let all = || [file("index.html", &page), file("n.png", &noise)];
    [
        ("zip", zip(&[deflated("index.html", &page), stored("n.png", &noise)])),
        ("zip to be written anew", zip(&[stored("index.html", &page), stored("n.png", &noise)])),
        ("tar", tar(&all())),
        ("tar.gz", gzip(&tar(&all()))),
        ("tar.zst", zstd(&tar(&all()))),
    ]
}

#[test]
fn a_disk_that_is_full_at_any_write_of_an_import_leaves_the_old_site() {
    let disk = Disk::new("size=1m");
    let host = on(&disk, Host::bare());
    host.put("old", bundle("old"));
    host.ok(&["import", host.path("old").to_str().unwrap()]);
    for (kind, bytes) in kinds() {
        host.put("new", bytes);
        let import = ["import", host.path("new").to_str().unwrap()].map(str::to_owned);
        sweep(kind, &disk, &host, |step| disk.leave(step * 4096), &import.each_ref().map(String::as_str));
        std::fs::remove_dir_all(disk.path("store")).unwrap();
        copy(&host.path("kept"), &disk.path("store"));
    }
}

#[test]
fn a_disk_without_a_name_to_spare_is_a_full_disk() {
    let disk = Disk::new("size=4m,nr_inodes=60");
    let host = on(&disk, Host::bare());
    host.put("old", bundle("old"));
    host.ok(&["import", host.path("old").to_str().unwrap()]);
    host.put("new", &kinds()[3].1);
    let new = host.path("new");
    let failures = sweep("inodes", &disk, &host, |step| disk.leave_inodes(step), &["import", new.to_str().unwrap()]);
    assert!(failures > 3, "{failures}");
}

#[test]
fn a_disk_that_is_full_at_any_write_of_a_sync_leaves_the_old_site() {
    let [zip, _, tar, ..] = kinds();
    for (kind, bytes) in [zip, tar] {
        let upstream = Upstream::new(bundle("old"));
        let disk = Disk::new("size=1m");
        let host = on(&disk, Host::new(&upstream)).set("api.keyFile", text("key"));
        host.sync();
        upstream.publish(bytes);
        // With the size announced, and by an upstream that says nothing of it.
        sweep(&format!("announced {kind}"), &disk, &host, |step| disk.leave(step * 4096), &["sync"]);
        std::fs::remove_dir_all(disk.path("store")).unwrap();
        copy(&host.path("kept"), &disk.path("store"));
        upstream.plan().size_bytes = Some(json!(null));
        upstream.on(Call::Download).gives(honest().without("Content-Length"));
        sweep(&format!("unannounced {kind}"), &disk, &host, |step| disk.leave(step * 4096), &["sync"]);
    }
}

#[test]
fn a_bundle_for_which_there_is_no_room_is_not_downloaded() {
    let big = large_bundle("big", 3 << 20);
    let upstream = Upstream::new(big.clone());
    let disk = Disk::new("size=2m");
    let host = on(&disk, Host::new(&upstream));
    // By the size that the API names.
    let ended = host.ends(8, &["sync"]);
    assert!(
        ended.stderr.contains("no space in the store") && ended.stderr.contains("3.1 MB needed"),
        "{}",
        ended.stderr
    );
    assert_eq!(upstream.count(Call::Download), 0);
    assert!(host.last_error().contains("no space"), "{}", host.last_error());
    // By the length that the answer names: nothing of it is kept.
    upstream.plan().size_bytes = Some(json!(null));
    let ended = host.ends(8, &["sync"]);
    assert!(ended.stderr.contains("3.1 MB needed"), "{}", ended.stderr);
    let part = disk.path("store/downloads/bundle.part");
    assert_eq!(std::fs::metadata(part).map_or(0, |part| part.len()), 0);
    // By the size of a file.
    host.put("big.zip", big);
    let ended = host.ends(8, &["import", host.path("big.zip").to_str().unwrap()]);
    assert!(ended.stderr.contains("3.1 MB needed"), "{}", ended.stderr);
}

#[test]
fn min_free_is_left_free_and_what_nothing_protects_goes_for_it() {
    let upstream = Upstream::new(large_bundle("one", 1 << 20));
    let disk = Disk::new("size=8m");
    let mut host = on(&disk, Host::new(&upstream)).set("sync.keep", "9");
    for text in ["one", "two", "three", "four"] {
        upstream.publish(large_bundle(text, 1 << 20));
        host.sync();
    }
    let stored = || names(&disk.path("store/versions")).len();
    assert_eq!(stored(), 4);
    // Not even all that may go would make the room: nothing goes.
    host.change("store.minFree", text("7MiB"));
    upstream.publish(large_bundle("five", 1_100_000));
    let downloads = upstream.count(Call::Download);
    let old = host.active();
    let ended = host.ends(8, &["sync"]);
    for word in ["no space", "1.1 MB needed", "of which 7.3 MB must stay so (store.minFree)", "lower store.minFree"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    assert_eq!((upstream.count(Call::Download), stored(), host.active()), (downloads, 4, old));
    // One of the two that nothing protects makes it.
    host.change("store.minFree", text("3500KiB"));
    assert_eq!(host.sync(), "activated");
    assert_eq!(stored(), 4, "one came, the oldest went");
    assert!(disk.free() >= 3500 << 10, "{}", disk.free());
    let history = host.ok(&["history"]).stdout;
    assert!(history.contains("to make room"), "{history}");
    // In `run` it is a failed sync that is tried again.
    host.change("store.minFree", text("7MiB"));
    upstream.publish(large_bundle("six", 1 << 20));
    let daemon = host.run();
    daemon.signal("HUP");
    until("the failure is known", || host.last_error().contains("no space"));
    assert!(host.status()["lastAttempt"]["failures"].as_u64() >= Some(1));
    assert_eq!(front(&daemon), "five");
}

#[test]
fn min_free_is_left_free_by_a_bundle_that_does_not_tell_its_length() {
    let upstream = Upstream::new(bundle("one"));
    upstream.plan().size_bytes = Some(json!(null));
    upstream.on(Call::Download).gives(raw("application/zip", b"PK\x03\x04").without("Content-Length").zeros(256 << 20));
    let disk = Disk::new("size=128m");
    let host = on(&disk, Host::new(&upstream)).set("store.minFree", text("96MiB"));
    let ended = host.ends(8, &["sync"]);
    assert!(ended.stderr.contains("store.minFree"), "{}", ended.stderr);
    // 32 MiB may be taken; the disk is looked at every 4 MiB, and some are on their way.
    assert!(upstream.sent() < 64 << 20, "{} bytes", upstream.sent());
    // But for the few KiB of the record of it.
    assert!(disk.free() >= 95 << 20, "{}", disk.free());
}

#[test]
fn nothing_goes_for_what_is_sealed_ahead() {
    const LEN: usize = 1 << 20;
    let arrives = |text: &str| gzip(&large_tar(text, LEN));
    // Room for the bundle and its image beside what must stay free, and less or more than that.
    for (spare, attempts) in [(LEN * 5 / 2, 1), (LEN * 9 / 2, 1), (LEN * 9 / 2, 2)] {
        let upstream = Upstream::new(arrives("one"));
        let disk = Disk::new("size=32m");
        let mut host = on(&disk, Host::new(&upstream)).set("sync.keep", "9");
        for text in ["one", "two", "three"] {
            upstream.publish(arrives(text));
            host.sync();
        }
        let min_free = (disk.free() - spare as u64) >> 10;
        host.change("store.minFree", text(&format!("{min_free}KiB")));
        upstream.publish(arrives("four"));
        if attempts > 1 {
            upstream.on(Call::Download).times(attempts - 1).gives(honest().cut(LEN / 2));
        }
        assert_eq!(host.sync(), "activated", "{spare}");
        assert_eq!(names(&disk.path("store/versions")).len(), 4, "{spare}");
        let history = host.ok(&["history"]).stdout;
        assert!(!history.contains("to make room"), "{spare}: {history}");
    }
}

#[test]
fn max_bytes_takes_the_oldest_and_none_that_must_stay() {
    let mut host = Host::bare().set("sync.keep", "9");
    let import = |host: &Host, name: &str, more: &[&str]| {
        host.put("b.zip", large_bundle(name, 100_000));
        let path = host.path("b.zip");
        host.ok(&[&["import", path.to_str().unwrap()], more].concat())
    };
    import(&host, "one", &["--label", "L"]);
    let labelled = host.active().unwrap();
    for name in ["two", "three", "four", "five"] {
        import(&host, name, &[]);
    }
    let stored = |host: &Host| names(&host.path("store/versions"));
    assert_eq!(stored(&host).len(), 5);
    host.change("store.maxBytes", "450000");
    let ended = import(&host, "six", &["--json"]);
    assert_eq!(ended.stderr, "");
    assert_eq!(stored(&host).len(), 4, "the labelled one, the one before, the new one, and one more");
    assert!(stored(&host).contains(&labelled));
    // What must stay is more than there may be: said beforehand, with numbers, and nothing is lost.
    host.change("store.maxBytes", "250000");
    host.put("b.zip", large_bundle("seven", 100_000));
    let (before, active) = (stored(&host), host.active());
    let ended = host.ends(8, &["import", host.path("b.zip").to_str().unwrap()]);
    for word in ["no space", "store.maxBytes (250 kB)", "100 kB of the bundle and 201 kB of versions that must stay"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    assert_eq!((stored(&host), host.active()), (before, active));
    // What cannot be told beforehand is told afterwards.
    host.change("store.maxBytes", "200000");
    host.put("tiny.zip", bundle("tiny"));
    host.ends(8, &["import", host.path("tiny.zip").to_str().unwrap()]);
    host.put("tiny.tar", tar(&[file("index.html", "<title>tiny</title>")]));
    let ended = host.ok(&["import", host.path("tiny.tar").to_str().unwrap()]);
    assert!(ended.stderr.contains("more than store.maxBytes (200 kB)"), "{}", ended.stderr);
}

#[test]
fn a_bundle_that_the_store_may_not_hold_is_not_downloaded() {
    let upstream = Upstream::new(large_bundle("one", 100_000));
    let host = Host::new(&upstream).set("store.maxBytes", "150000");
    host.sync();
    upstream.publish(large_bundle("two", 110_000));
    let ended = host.ends(8, &["sync"]);
    assert!(ended.stderr.contains("no space") && ended.stderr.contains("store.maxBytes"), "{}", ended.stderr);
    assert_eq!(upstream.count(Call::Download), 1);
}

#[test]
fn run_serves_beside_a_full_disk_and_recovers_by_itself() {
    let upstream = Upstream::new(bundle("old"));
    let disk = Disk::new("size=1m");
    let host = on(&disk, Host::linked(&upstream.link())).set("sync.interval", text("100ms"));
    host.sync();
    let daemon = host.run();
    assert_eq!(front(&daemon), "old");
    let asked = upstream.count(Call::Download);
    disk.fill();
    upstream.publish(kinds()[2].1.clone());
    until("it has tried", || upstream.count(Call::Download) > asked + 1);
    assert_eq!(front(&daemon), "old");
    disk.empty();
    until("the new site is served", || http::get(&daemon.address, "/").text().starts_with("<title>new<"));
    assert!(host.last_error().is_empty(), "{}", host.last_error());
}

#[test]
fn a_file_in_the_inbox_waits_for_space() {
    let disk = Disk::new("size=1m");
    let inbox = disk.path("inbox");
    let host = on(&disk, Host::bare()).set("sync.inbox", text(inbox.to_str().unwrap()));
    host.put("old", bundle("old"));
    host.ok(&["import", host.path("old").to_str().unwrap()]);
    let daemon = host.run();
    let old = host.active();
    std::fs::write(inbox.join("new.tar"), &kinds()[2].1).unwrap();
    std::fs::write(inbox.join("bad.zip"), "no archive").unwrap();
    // Before they have been quiet for long enough to be taken.
    disk.leave(0);
    until("the bad one is put away, though its reason finds no room", || inbox.join("rejected/bad.zip").exists());
    assert_eq!(names(&inbox.join("rejected")), ["bad.zip"]);
    assert!(inbox.join("new.tar").exists(), "a full disk says nothing about a file");
    assert_eq!((front(&daemon).as_str(), host.active()), ("old", old.clone()));
    disk.empty();
    until("it is accepted", || inbox.join("accepted/new.tar").exists());
    assert_ne!(host.active(), old);
}

#[test]
fn what_is_not_needed_can_be_removed_from_a_disk_that_is_full() {
    for fill in [|disk: &Disk| disk.leave(0), |disk: &Disk| disk.leave_inodes(0)] {
        let disk = Disk::new("size=1m,nr_inodes=60");
        let mut host = on(&disk, Host::bare());
        for text in ["one", "two", "three"] {
            host.put("b.zip", bundle(text));
            host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
        }
        host.change("sync.keep", "0");
        fill(&disk);
        let ended = host.ok(&["gc"]);
        assert!(ended.stdout.contains("1 version"), "{ended:?}");
        assert_eq!(names(&disk.path("store/versions")).len(), 2);
        assert!(names(&disk.path("store/staging")).is_empty());
    }
}
