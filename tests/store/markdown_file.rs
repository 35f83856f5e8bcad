//! The stored Markdown of a version: it is used again after a restart, and made again when it is damaged, of another
//! format or of other settings; kills and full disks leave nothing that is used.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use support::disk::SmallDisk;
use support::host::{Host, toml_string};
use support::http::get;
use support::{Daemon, until_done_in_background};

use super::search_helpers::{identity, import, index_process, large_site, wait_for_end_of};
use support::zip::{deflated, zip};

/// The length of the end of the file: numbers, digests, checksums, and eight bytes that mark it.
const FILE_END_BYTES: usize = 128;

fn bundle() -> Vec<u8> {
    zip(&[
        deflated("index.html", "<title>Start</title><h1>Start</h1><p>Welcome."),
        deflated("guide/ropes.html", "<title>Ropes</title><h1>Ropes</h1><p>How to tie a bowline."),
        deflated("private/keys.html", "<title>Keys</title><p>Not for lists."),
    ])
}

/// A host with the search, after whose index the Markdown is made.
fn host() -> Host {
    Host::bare().set("search.enabled", "true").set("server.codings", "[]")
}

fn derived(host: &Host) -> PathBuf {
    let store = host.value("store.path").expect("a store");
    // A relative path is relative to the configuration.
    host.path(store.trim_matches('"')).join("derived").join(host.active().expect("an active version"))
}

fn markdown_file(host: &Host) -> PathBuf {
    derived(host).join("markdown/pages")
}

/// Waits until `llms.txt` is answered, from the stored file or from one of the process.
#[track_caller]
fn wait_for_list(daemon: &Daemon) -> String {
    let mut text = String::new();
    until_done_in_background("llms.txt is answered", || {
        let response = get(&daemon.address, "/llms.txt");
        text = response.text();
        response.status == 200
    });
    text
}

/// Returns how often the Markdown of a version was made.
fn builds(host: &Host, id: &str) -> usize {
    host.log().lines().filter(|line| line.contains("has the Markdown of ") && line.contains(&id[..12])).count()
}

/// Starts `run`, waits until the stored file answers, and returns what identifies it.
fn run_until_stored(host: &Host) -> (Daemon, (u64, i64, i64)) {
    let daemon = host.run_logged();
    until_done_in_background("the Markdown is stored", || markdown_file(host).is_file());
    wait_for_list(&daemon);
    let identity = identity(&markdown_file(host));
    (daemon, identity)
}

#[track_caller]
fn check_pages(daemon: &Daemon) {
    assert_eq!(get(&daemon.address, "/guide/ropes.md").text(), "# Ropes\n\nHow to tie a bowline.\n");
    assert!(wait_for_list(daemon).contains("[Ropes](/guide/ropes.md)"));
}

/// CRC-32 as in gzip (RFC 1952, section 8).
fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

/// Writes a file with another number of its format, and otherwise unchanged and with right checksums.
fn change_format_number(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    let end = bytes.len() - FILE_END_BYTES;
    let number = u32::from_le_bytes(bytes[end..end + 4].try_into().unwrap());
    bytes[end..end + 4].copy_from_slice(&(number + 1).to_le_bytes());
    let crc_at = bytes.len() - 12;
    let crc = crc32(&bytes[end..crc_at]);
    bytes[crc_at..crc_at + 4].copy_from_slice(&crc.to_le_bytes());
    replace(path, &bytes);
}

/// Replaces a file, which may be mapped or read-only.
fn replace(path: &Path, bytes: &[u8]) {
    fs::remove_file(path).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn the_stored_markdown_is_used_again_after_a_restart_and_after_a_rollback() {
    let host = host();
    import(&host, bundle());
    let first = host.active().unwrap();
    let (daemon, before) = run_until_stored(&host);
    check_pages(&daemon);
    assert_eq!(builds(&host, &first), 1, "{}", host.log());
    drop(daemon);
    let (daemon, after) = run_until_stored(&host);
    check_pages(&daemon);
    assert_eq!((after, builds(&host, &first)), (before, 1), "it is not made again: {}", host.log());
    // Another version, and back.
    import(&host, zip(&[deflated("index.html", "<title>Other</title><p>other")]));
    until_done_in_background("the list is that of the other version", || {
        get(&daemon.address, "/llms.txt").text().contains("Other")
    });
    host.ok(&["rollback"]);
    assert_eq!(host.active().as_ref(), Some(&first));
    until_done_in_background("the list is that of the version again", || {
        get(&daemon.address, "/llms.txt").text().contains("Ropes")
    });
    check_pages(&daemon);
    assert_eq!((identity(&markdown_file(&host)), builds(&host, &first)), (before, 1), "{}", host.log());
}

#[test]
fn stored_markdown_that_is_damaged_of_another_format_or_of_other_settings_is_made_again() {
    let mut host = host();
    import(&host, bundle());
    let (daemon, mut before) = run_until_stored(&host);
    drop(daemon);
    let id = host.active().unwrap();
    let original = fs::read(markdown_file(&host)).unwrap();
    let mut flipped = original.clone();
    flipped[3] ^= 0x10;
    let cut = original[..original.len() - 1].to_vec();
    let mut made = 1;
    let mut check_made_again = |host: &Host, case: &str, expected: &str| {
        let logged = host.log().len();
        let daemon = host.run_logged();
        made += 1;
        until_done_in_background("the Markdown is made again", || builds(host, &id) == made);
        check_pages(&daemon);
        let after = identity(&markdown_file(host));
        assert_ne!(after, before, "{case}");
        before = after;
        let new = host.log()[logged..].to_owned();
        assert!(new.contains(expected), "{case}: {new}");
        assert!(!new.contains("panicked"), "{case}: {new}");
    };
    for (case, bytes) in [("a changed bit", &flipped), ("a byte less", &cut), ("nothing", &Vec::new())] {
        replace(&markdown_file(&host), bytes);
        check_made_again(&host, case, "it is made again");
        // The order of the pages in the file depends on the threads that have made them.
        assert_eq!(fs::read(markdown_file(&host)).unwrap().len(), original.len(), "{case}");
    }
    change_format_number(&markdown_file(&host));
    check_made_again(&host, "another format", "which this program does not read; it is made again");
    assert_eq!(fs::read(markdown_file(&host)).unwrap().len(), original.len());
    // What the lists leave out depends on this key, and so do the links on the base path.
    host.change("search.exclude", "[\"/private/*\"]");
    check_made_again(&host, "other pages are left out", "has the Markdown of 3 pages");
    let (daemon, _) = run_until_stored(&host);
    let list = wait_for_list(&daemon);
    assert!(list.contains("Ropes") && !list.contains("Keys"), "{list}");
}

#[test]
fn a_kill_while_the_markdown_is_made_leaves_nothing_that_is_used() {
    let host = host();
    import(&host, large_site("bowline", 8));
    let partial = || derived(&host).join(".markdown.new");
    for _ in 0..3 {
        let mut daemon = host.run();
        let mut process = None;
        until_done_in_background("the Markdown is being made", || {
            process = index_process(daemon.pid()).filter(|_| partial().exists());
            process.is_some()
        });
        daemon.signal("KILL");
        daemon.wait(Duration::from_secs(20));
        wait_for_end_of(process.unwrap());
        assert!(!derived(&host).join("markdown").exists(), "half a file has no name");
        // A command opens the store and removes what the kill has left.
        host.ok(&["hold", "--reason", "to open the store"]);
        assert!(!partial().exists());
    }
    let daemon = host.run();
    until_done_in_background("the Markdown is stored", || markdown_file(&host).is_file());
    assert_eq!(wait_for_list(&daemon).matches("\n- [Page ").count(), 400);
    assert!(get(&daemon.address, "/399.md").text().starts_with("# Page 399 of bowline\n"));
    host.ok(&["store", "verify"]);
}

#[test]
fn without_disk_space_a_warning_says_so_and_pages_are_converted_on_request() {
    let disk = SmallDisk::new("size=24m");
    // The index is made first, and fits.
    let host = host().set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    import(&host, large_site("bowline", 6));
    let without_markdown = ["assistant.markdown", "assistant.llms", "assistant.mcp"];
    let mut host = without_markdown.into_iter().fold(host, |host, key| host.set(key, "false"));
    let daemon = host.run_logged();
    super::search_helpers::wait_for_index(&host);
    drop(daemon);
    for key in without_markdown {
        host.remove(key);
    }
    disk.leave_free_bytes(200 << 10);
    let daemon = host.run_logged();
    until_done_in_background("the warning is logged", || {
        let log = host.log();
        let warning = log.lines().find(|line| line.contains("cannot make the Markdown of version"));
        warning.is_some_and(|line| line.contains("WARN") && line.contains("its pages are converted on request"))
    });
    let warning = host.log();
    let warning = warning.lines().find(|line| line.contains("cannot make the Markdown")).unwrap();
    assert!(warning.contains(" are needed; ") && !warning.contains("NoSpace"), "it says why: {warning}");
    assert!(!derived(&host).join("markdown").exists() && !derived(&host).join(".markdown.new").exists());
    assert!(get(&daemon.address, "/7.md").text().starts_with("# Page 7 of bowline\n"));
    // The list is made in a temporary folder, which is on another disk.
    assert!(wait_for_list(&daemon).contains("[Page 7](/7.md)"));
    drop(daemon);
    disk.remove_fillers();
    let daemon = host.run_logged();
    until_done_in_background("with space it is made", || markdown_file(&host).is_file());
    assert!(get(&daemon.address, "/8.md").text().starts_with("# Page 8 of bowline\n"));
}
