//! A disk that is full at any write: the old site stays active, the error says why, and with free space the command
//! works.

use std::path::Path;

use serde_json::json;
use support::disk::SmallDisk;
use support::host::{Host, bundle, front_page_title, large_bundle, large_tar, toml_string};
use support::tar::{file, gzip, tar, zstd};
use support::upstream::{Upstream, UpstreamCall, normal_reply, raw_reply};
use support::zip::{deflated, stored, zip};
use support::{CommandOutput, http, until};

/// Moves the host's store to the disk.
fn with_store_on(disk: &SmallDisk, host: Host) -> Host {
    host.set("store.path", toml_string(disk.path("store").to_str().unwrap()))
}

/// Copies a folder.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy_folder(&path, &target);
        } else {
            std::fs::copy(path, target).unwrap();
        }
    }
}

fn entry_names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Checks the store after a command on a full disk: one line of error, no leftovers, the old version active.
#[track_caller]
fn assert_unharmed(case: &str, disk: &SmallDisk, host: &Host, ended: &CommandOutput, old: &str) {
    let store = disk.path("store");
    assert!(entry_names(&store.join("staging")).is_empty(), "{case}: {:?}", entry_names(&store.join("staging")));
    let downloads = entry_names(&store.join("downloads"));
    assert!(downloads.is_empty() || downloads == ["bundle.json", "bundle.part"], "{case}: {downloads:?}");
    let hidden: Vec<String> = entry_names(&store).into_iter().filter(|name| name.starts_with('.')).collect();
    assert!(hidden.is_empty(), "{case}: {hidden:?}");
    for id in entry_names(&store.join("versions")) {
        assert_eq!(entry_names(&store.join("versions").join(&id)), ["index", "site.zip"], "{case}");
    }
    let status = host.status();
    assert_eq!(status["activePresent"], true, "{case}");
    match ended.code {
        Some(0) => assert_ne!(status["active"], old, "{case}"),
        Some(8) => {
            let line = ended.stderr.lines().find(|line| line.starts_with("docwharf: ")).unwrap_or_default();
            assert!(line.contains("no space"), "{case}: {}", ended.stderr);
            assert_eq!(status["active"], old, "{case}");
            assert_eq!(entry_names(&store.join("versions")), [old], "{case}: the new version must be removed");
        }
        _ => panic!("{case}: {ended:?}"),
    }
}

/// Runs `arguments` with 0, 4, 8, … KiB of free space, until the command succeeds three times in a row. Each failure
/// must leave the store unharmed, and the command must succeed with more space. Returns the number of failures.
#[track_caller]
fn import_with_growing_space(
    case: &str,
    disk: &SmallDisk,
    host: &Host,
    leave: impl Fn(u64),
    arguments: &[&str],
) -> u64 {
    let (store, backup) = (disk.path("store"), host.path("kept"));
    let old = host.active().expect("there is an old version");
    let _ = std::fs::remove_dir_all(&backup);
    copy_folder(&store, &backup);
    let (mut failures, mut successes) = (0, 0);
    for step in 0.. {
        assert!(step < 120, "{case}: it never succeeds");
        leave(step);
        let ended = support::host::run_with_timeout(&mut host.command(arguments));
        let attempt_case = format!("{case} with {step} left");
        assert_unharmed(&attempt_case, disk, host, &ended, &old);
        disk.remove_fillers();
        if ended.code == Some(8) {
            (failures, successes) = (failures + 1, 0);
            host.ok(arguments);
            assert_ne!(host.active().as_ref(), Some(&old), "{attempt_case}, and then enough");
        } else {
            successes += 1;
            if successes == 3 {
                break;
            }
        }
        std::fs::remove_dir_all(&store).unwrap();
        copy_folder(&backup, &store);
    }
    assert!(failures > 1, "{case}: the disk was never full");
    failures
}

/// A site as each kind of archive. The image has about the size of the archive, except for the plain tar.
fn bundles_of_all_kinds() -> [(&'static str, Vec<u8>); 5] {
    let page = format!("<title>new</title>{}", support::sample_text(40_000));
    let noise = String::from_utf8_lossy(&large_bundle("x", 12_000)).into_owned();
    let files = || [file("index.html", &page), file("n.png", &noise)];
    [
        ("zip", zip(&[deflated("index.html", &page), stored("n.png", &noise)])),
        ("zip without adoption", zip(&[stored("index.html", &page), stored("n.png", &noise)])),
        ("tar", tar(&files())),
        ("tar.gz", gzip(&tar(&files()))),
        ("tar.zst", zstd(&tar(&files()))),
    ]
}

// Regression: a write that a full disk truncated left its temporary file in the store.
// Regression: a version whose receipt or record could not be written on a full disk stayed in the store, and no record
// named it.
#[test]
fn a_disk_that_is_full_at_any_write_of_an_import_leaves_the_old_site() {
    let disk = SmallDisk::new("size=1m");
    let host = with_store_on(&disk, Host::bare());
    host.put("old", bundle("old"));
    host.ok(&["import", host.path("old").to_str().unwrap()]);
    for (kind, bytes) in bundles_of_all_kinds() {
        host.put("new", bytes);
        let import = ["import", host.path("new").to_str().unwrap()].map(str::to_owned);
        import_with_growing_space(
            kind,
            &disk,
            &host,
            |step| disk.leave_free_bytes(step * 4096),
            &import.each_ref().map(String::as_str),
        );
        std::fs::remove_dir_all(disk.path("store")).unwrap();
        copy_folder(&host.path("kept"), &disk.path("store"));
    }
}

#[test]
fn a_disk_without_free_inodes_is_handled_as_a_full_disk() {
    let disk = SmallDisk::new("size=4m,nr_inodes=60");
    let host = with_store_on(&disk, Host::bare());
    host.put("old", bundle("old"));
    host.ok(&["import", host.path("old").to_str().unwrap()]);
    host.put("new", &bundles_of_all_kinds()[3].1);
    let new = host.path("new");
    let failures = import_with_growing_space(
        "inodes",
        &disk,
        &host,
        |step| disk.leave_free_inodes(step),
        &["import", new.to_str().unwrap()],
    );
    assert!(failures > 3, "{failures}");
}

#[test]
fn a_disk_that_is_full_at_any_write_of_a_sync_leaves_the_old_site() {
    let [zip, _, tar, ..] = bundles_of_all_kinds();
    for (kind, bytes) in [zip, tar] {
        let upstream = Upstream::new(bundle("old"));
        let disk = SmallDisk::new("size=1m");
        let host = with_store_on(&disk, Host::new(&upstream)).set("api.keyFile", toml_string("key"));
        host.sync();
        upstream.publish(bytes);
        // With the size in the API's response, then without any size.
        import_with_growing_space(
            &format!("announced {kind}"),
            &disk,
            &host,
            |step| disk.leave_free_bytes(step * 4096),
            &["sync"],
        );
        std::fs::remove_dir_all(disk.path("store")).unwrap();
        copy_folder(&host.path("kept"), &disk.path("store"));
        upstream.state().size_bytes = Some(json!(null));
        upstream.on(UpstreamCall::Download).respond_with(normal_reply().without("Content-Length"));
        import_with_growing_space(
            &format!("unannounced {kind}"),
            &disk,
            &host,
            |step| disk.leave_free_bytes(step * 4096),
            &["sync"],
        );
    }
}

#[test]
fn a_bundle_larger_than_the_free_disk_space_is_not_downloaded() {
    let big = large_bundle("big", 3 << 20);
    let upstream = Upstream::new(big.clone());
    let disk = SmallDisk::new("size=2m");
    let host = with_store_on(&disk, Host::new(&upstream));
    // By the size in the API's response.
    let ended = host.expect_exit(8, &["sync"]);
    assert!(
        ended.stderr.contains("no space in the store") && ended.stderr.contains("3.1 MB needed"),
        "{}",
        ended.stderr
    );
    assert_eq!(upstream.count(UpstreamCall::Download), 0);
    assert!(host.last_error().contains("no space"), "{}", host.last_error());
    // By Content-Length: no byte of the body is stored.
    upstream.state().size_bytes = Some(json!(null));
    let ended = host.expect_exit(8, &["sync"]);
    assert!(ended.stderr.contains("3.1 MB needed"), "{}", ended.stderr);
    let part = disk.path("store/downloads/bundle.part");
    assert_eq!(std::fs::metadata(part).map_or(0, |part| part.len()), 0);
    // By the size of a file.
    host.put("big.zip", big);
    let ended = host.expect_exit(8, &["import", host.path("big.zip").to_str().unwrap()]);
    assert!(ended.stderr.contains("3.1 MB needed"), "{}", ended.stderr);
}

#[test]
fn unprotected_versions_are_pruned_to_leave_min_free_space() {
    let upstream = Upstream::new(large_bundle("one", 1 << 20));
    let disk = SmallDisk::new("size=8m");
    let mut host = with_store_on(&disk, Host::new(&upstream)).set("sync.keep", "9");
    for text in ["one", "two", "three", "four"] {
        upstream.publish(large_bundle(text, 1 << 20));
        host.sync();
    }
    let stored = || entry_names(&disk.path("store/versions")).len();
    assert_eq!(stored(), 4);
    // If even pruning all unprotected versions does not free enough space, none is pruned.
    host.change("store.minFree", toml_string("7MiB"));
    upstream.publish(large_bundle("five", 1_100_000));
    let downloads = upstream.count(UpstreamCall::Download);
    let old = host.active();
    let ended = host.expect_exit(8, &["sync"]);
    for part in ["no space", "1.1 MB needed", "of which 7.3 MB must stay free (store.minFree)", "lower store.minFree"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert_eq!((upstream.count(UpstreamCall::Download), stored(), host.active()), (downloads, 4, old));
    // Pruning one of the two unprotected versions is enough.
    host.change("store.minFree", toml_string("3500KiB"));
    assert_eq!(host.sync(), "activated");
    assert_eq!(stored(), 4, "one version was added, the oldest was pruned");
    assert!(disk.free_bytes() >= 3500 << 10, "{}", disk.free_bytes());
    let history = host.ok(&["history"]).stdout;
    assert!(history.contains("to free disk space"), "{history}");
    // In `run` it is a failed sync, which is tried again.
    host.change("store.minFree", toml_string("7MiB"));
    upstream.publish(large_bundle("six", 1 << 20));
    let daemon = host.run();
    daemon.signal("HUP");
    until("the failure is recorded", || host.last_error().contains("no space"));
    assert!(host.status()["lastAttempt"]["failures"].as_u64() >= Some(1));
    assert_eq!(front_page_title(&daemon), "five");
}

#[test]
fn a_download_without_a_content_length_stops_before_it_uses_min_free_space() {
    let upstream = Upstream::new(bundle("one"));
    upstream.state().size_bytes = Some(json!(null));
    upstream
        .on(UpstreamCall::Download)
        .respond_with(raw_reply("application/zip", b"PK\x03\x04").without("Content-Length").zeros(256 << 20));
    let disk = SmallDisk::new("size=128m");
    let host = with_store_on(&disk, Host::new(&upstream)).set("store.minFree", toml_string("96MiB"));
    let ended = host.expect_exit(8, &["sync"]);
    assert!(ended.stderr.contains("store.minFree"), "{}", ended.stderr);
    // 32 MiB are available. Free space is checked every 4 MiB, and buffers hold some more.
    assert!(upstream.sent_bytes() < 64 << 20, "{} bytes", upstream.sent_bytes());
    // The record of the failure needs a few KiB.
    assert!(disk.free_bytes() >= 95 << 20, "{}", disk.free_bytes());
}

// Regression: space for an image that the streaming seal had already written was requested a second time, and versions
// were pruned for it.
#[test]
fn no_version_is_pruned_for_an_image_that_is_already_sealed() {
    const TAR_BYTES: usize = 1 << 20;
    let bundle_of = |text: &str| gzip(&large_tar(text, TAR_BYTES));
    // Space beyond `store.minFree`: enough for the bundle and its image, and more.
    for (spare, attempts) in [(TAR_BYTES * 5 / 2, 1), (TAR_BYTES * 9 / 2, 1), (TAR_BYTES * 9 / 2, 2)] {
        let upstream = Upstream::new(bundle_of("one"));
        let disk = SmallDisk::new("size=32m");
        let mut host = with_store_on(&disk, Host::new(&upstream)).set("sync.keep", "9");
        for text in ["one", "two", "three"] {
            upstream.publish(bundle_of(text));
            host.sync();
        }
        let min_free = (disk.free_bytes() - spare as u64) >> 10;
        host.change("store.minFree", toml_string(&format!("{min_free}KiB")));
        upstream.publish(bundle_of("four"));
        if attempts > 1 {
            upstream.on(UpstreamCall::Download).times(attempts - 1).respond_with(normal_reply().cut(TAR_BYTES / 2));
        }
        assert_eq!(host.sync(), "activated", "{spare}");
        assert_eq!(entry_names(&disk.path("store/versions")).len(), 4, "{spare}");
        let history = host.ok(&["history"]).stdout;
        assert!(!history.contains("to free disk space"), "{spare}: {history}");
    }
}

#[test]
fn max_bytes_prunes_the_oldest_versions_but_no_protected_one() {
    let mut host = Host::bare().set("sync.keep", "9");
    let import = |host: &Host, name: &str, options: &[&str]| {
        host.put("b.zip", large_bundle(name, 100_000));
        let path = host.path("b.zip");
        host.ok(&[&["import", path.to_str().unwrap()], options].concat())
    };
    import(&host, "one", &["--label", "L"]);
    let labelled = host.active().unwrap();
    for name in ["two", "three", "four", "five"] {
        import(&host, name, &[]);
    }
    let stored = |host: &Host| entry_names(&host.path("store/versions"));
    assert_eq!(stored(&host).len(), 5);
    host.change("store.maxBytes", "450000");
    let ended = import(&host, "six", &["--json"]);
    assert_eq!(ended.stderr, "");
    assert_eq!(stored(&host).len(), 4, "labelled, previous, active, and one more");
    assert!(stored(&host).contains(&labelled));
    // Versions that must stay exceed `store.maxBytes`: the import is refused before it starts, and none is removed.
    host.change("store.maxBytes", "250000");
    host.put("b.zip", large_bundle("seven", 100_000));
    let (before, active) = (stored(&host), host.active());
    let ended = host.expect_exit(8, &["import", host.path("b.zip").to_str().unwrap()]);
    for part in ["no space", "store.maxBytes (250 kB)", "100 kB of the bundle and 201 kB of versions that must stay"] {
        assert!(ended.stderr.contains(part), "{part}: {}", ended.stderr);
    }
    assert_eq!((stored(&host), host.active()), (before, active));
    // If the size of the image is not known before, a warning is printed afterwards.
    host.change("store.maxBytes", "200000");
    host.put("tiny.zip", bundle("tiny"));
    host.expect_exit(8, &["import", host.path("tiny.zip").to_str().unwrap()]);
    host.put("tiny.tar", tar(&[file("index.html", "<title>tiny</title>")]));
    let ended = host.ok(&["import", host.path("tiny.tar").to_str().unwrap()]);
    assert!(ended.stderr.contains("more than store.maxBytes (200 kB)"), "{}", ended.stderr);
}

#[test]
fn a_bundle_that_would_exceed_max_bytes_is_not_downloaded() {
    let upstream = Upstream::new(large_bundle("one", 100_000));
    let host = Host::new(&upstream).set("store.maxBytes", "150000");
    host.sync();
    upstream.publish(large_bundle("two", 110_000));
    let ended = host.expect_exit(8, &["sync"]);
    assert!(ended.stderr.contains("no space") && ended.stderr.contains("store.maxBytes"), "{}", ended.stderr);
    assert_eq!(upstream.count(UpstreamCall::Download), 1);
}

#[test]
fn run_serves_beside_a_full_disk_and_recovers_by_itself() {
    let upstream = Upstream::new(bundle("old"));
    let disk = SmallDisk::new("size=1m");
    let host = with_store_on(&disk, Host::linked(&upstream.link())).set("sync.interval", toml_string("100ms"));
    host.sync();
    let daemon = host.run();
    assert_eq!(front_page_title(&daemon), "old");
    let downloads = upstream.count(UpstreamCall::Download);
    disk.fill();
    upstream.publish(bundles_of_all_kinds()[2].1.clone());
    until("further attempts", || upstream.count(UpstreamCall::Download) > downloads + 1);
    assert_eq!(front_page_title(&daemon), "old");
    disk.remove_fillers();
    until("the new site is served", || http::get(&daemon.address, "/").text().starts_with("<title>new<"));
    assert!(host.last_error().is_empty(), "{}", host.last_error());
}

// Regression: a refused file in the inbox could not be moved away on a full disk, because there was no space for the
// reason.
#[test]
fn a_bundle_in_the_inbox_is_retried_until_there_is_disk_space() {
    let disk = SmallDisk::new("size=1m");
    let inbox = disk.path("inbox");
    let host = with_store_on(&disk, Host::bare()).set("sync.inbox", toml_string(inbox.to_str().unwrap()));
    host.put("old", bundle("old"));
    host.ok(&["import", host.path("old").to_str().unwrap()]);
    let daemon = host.run();
    let old = host.active();
    // The daemon makes it after the site is served.
    until("there is an inbox", || inbox.is_dir());
    std::fs::write(inbox.join("new.tar"), &bundles_of_all_kinds()[2].1).unwrap();
    std::fs::write(inbox.join("bad.zip"), "no archive").unwrap();
    // The files have not been unchanged for long enough to be imported.
    disk.leave_free_bytes(0);
    until("the refused file is moved, though there is no space for its reason", || {
        inbox.join("rejected/bad.zip").exists()
    });
    assert_eq!(entry_names(&inbox.join("rejected")), ["bad.zip"]);
    assert!(inbox.join("new.tar").exists(), "a full disk is no reason to refuse a file");
    assert_eq!((front_page_title(&daemon).as_str(), host.active()), ("old", old.clone()));
    disk.remove_fillers();
    until("the file is accepted", || inbox.join("accepted/new.tar").exists());
    assert_ne!(host.active(), old);
}

// Regression: pruning created a folder first, which a full disk refuses.
#[test]
fn gc_removes_versions_on_a_full_disk() {
    for fill in [|disk: &SmallDisk| disk.leave_free_bytes(0), |disk: &SmallDisk| disk.leave_free_inodes(0)] {
        let disk = SmallDisk::new("size=1m,nr_inodes=60");
        let mut host = with_store_on(&disk, Host::bare());
        for text in ["one", "two", "three"] {
            host.put("b.zip", bundle(text));
            host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
        }
        host.change("sync.keep", "0");
        fill(&disk);
        let ended = host.ok(&["gc"]);
        assert!(ended.stdout.contains("1 version"), "{ended:?}");
        assert_eq!(entry_names(&disk.path("store/versions")).len(), 2);
        assert!(entry_names(&disk.path("store/staging")).is_empty());
    }
}
