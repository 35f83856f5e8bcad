//! The stored Markdown of a version: it is used again after a restart, and made again when it is damaged, of another
//! format or of other settings; kills and full disks leave nothing that is used, and the daemon never makes it itself.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use support::disk::SmallDisk;
use support::host::{Host, toml_string};
use support::http::get;
use support::{Daemon, until_done_in_background};

use super::search_helpers::{
    identity, import, index_process, large_site, signal_process, wait_for_end_of, wait_for_index,
};
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
        check_made_again(&host, case, "it is rebuilt");
        // The order of the pages in the file depends on the threads that have made them.
        assert_eq!(fs::read(markdown_file(&host)).unwrap().len(), original.len(), "{case}");
    }
    change_format_number(&markdown_file(&host));
    check_made_again(&host, "another format", "which this program does not read; it is rebuilt");
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

/// Waits until lists are refused because they could not be made, while pages are still converted. The daemon makes none
/// itself.
#[track_caller]
fn check_lists_are_refused(daemon: &Daemon) {
    until_done_in_background("a list is refused", || {
        get(&daemon.address, "/llms.txt").header("retry-after") == Some("60")
    });
    assert!(get(&daemon.address, "/7.md").text().starts_with("# Page 7 of bowline\n"));
    for path in ["/llms.txt", "/llms-full.txt", "/.well-known/llms.txt"] {
        let refused = get(&daemon.address, path);
        assert_eq!((refused.status, refused.header("retry-after")), (503, Some("60")), "{path}");
        assert!(refused.text().contains("the log of the server has the reason"), "{path}");
    }
    check_no_build_in_daemon(daemon);
}

/// Checks that no thread of the daemon makes the file.
#[track_caller]
fn check_no_build_in_daemon(daemon: &Daemon) {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap().flatten();
    let names: Vec<String> = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok()).collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.trim() != "docwharf-md"), "{names:?}");
}

#[track_caller]
fn check_metric(host: &Host, line: &str) {
    let status = host.status();
    let admin = status["daemon"]["admin"][0].as_str().unwrap().trim_start_matches("http://").trim_end_matches('/');
    let metrics = get(admin, "/metrics").text();
    assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
}

#[test]
fn without_the_search_the_markdown_is_stored_too() {
    let host = Host::bare().set("search.enabled", "false").set("server.codings", "[]");
    import(&host, bundle());
    let id = host.active().unwrap();
    let (daemon, before) = run_until_stored(&host);
    check_pages(&daemon);
    check_no_build_in_daemon(&daemon);
    drop(daemon);
    let (daemon, after) = run_until_stored(&host);
    check_pages(&daemon);
    assert_eq!((after, builds(&host, &id)), (before, 1), "it is not made again: {}", host.log());
    assert!(!derived(&host).join("search").exists());
}

#[test]
fn a_reload_that_turns_a_list_on_has_the_markdown_made() {
    let off = ["assistant.markdown", "assistant.llms", "assistant.mcp"];
    let mut host = off.into_iter().fold(host(), |host, key| host.set(key, "false"));
    import(&host, bundle());
    let daemon = host.run_logged();
    wait_for_index(&host);
    assert_eq!(get(&daemon.address, "/llms.txt").status, 404);
    host.change("assistant.llms", "true");
    daemon.signal("HUP");
    until_done_in_background("the Markdown is stored", || markdown_file(&host).is_file());
    until_done_in_background("the list is answered", || get(&daemon.address, "/llms.txt").status == 200);
    check_no_build_in_daemon(&daemon);
}

#[test]
fn a_process_that_is_killed_while_it_makes_the_markdown_is_started_three_times_and_lists_are_refused_then() {
    let host = host().set("admin.listen", toml_string("127.0.0.1:0"));
    import(&host, large_site("bowline", 16));
    let daemon = host.run_logged();
    let partial = || derived(&host).join(".markdown.new");
    let failures = || host.log().matches("cannot build the Markdown of version").count();
    for attempt in 1..=3 {
        let mut process = None;
        until_done_in_background("the Markdown is being made", || {
            // Not the process of the index, which has ended when there is such a folder.
            process = if partial().exists() { index_process(daemon.pid()) } else { None };
            process.is_some()
        });
        signal_process(process.unwrap(), Signal::KILL);
        until_done_in_background("the failure is logged", || failures() == attempt);
    }
    let log = host.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("cannot build the Markdown")).collect();
    assert!(warnings.iter().all(|line| line.contains("the index process has ended")), "{warnings:?}");
    assert!(warnings[0].contains("trying again later") && warnings[2].contains("the next version or start"));
    check_lists_are_refused(&daemon);
    assert!(!derived(&host).join("markdown").exists() && !partial().exists());
    check_metric(&host, "docwharf_markdown_builds_total{result=\"failed\"} 3");
    check_metric(&host, "docwharf_search_builds_total{result=\"built\"} 1");
    drop(daemon);
    let daemon = host.run_logged();
    until_done_in_background("the next start makes it", || markdown_file(&host).is_file());
    assert!(wait_for_list(&daemon).contains("[Page 7](/7.md)"));
    check_metric(&host, "docwharf_markdown_builds_total{result=\"built\"} 1");
}

#[test]
fn without_disk_space_a_warning_says_so_and_lists_are_refused() {
    let disk = SmallDisk::new("size=24m");
    // The index is made first, and fits.
    let host = host()
        .set("store.path", toml_string(disk.path("store").to_str().unwrap()))
        .set("admin.listen", toml_string("127.0.0.1:0"));
    import(&host, large_site("bowline", 6));
    let without_markdown = ["assistant.markdown", "assistant.llms", "assistant.mcp"];
    let mut host = without_markdown.into_iter().fold(host, |host, key| host.set(key, "false"));
    let daemon = host.run_logged();
    wait_for_index(&host);
    drop(daemon);
    for key in without_markdown {
        host.remove(key);
    }
    disk.leave_free_bytes(200 << 10);
    let daemon = host.run_logged();
    until_done_in_background("the warning is logged", || {
        let log = host.log();
        let warning = log.lines().find(|line| line.contains("the Markdown of version"));
        warning.is_some_and(|line| line.contains("WARN") && line.contains("pages are converted on request"))
    });
    let warning = host.log();
    let warning = warning.lines().find(|line| line.contains("the Markdown of version")).unwrap();
    assert!(warning.contains(" are needed; ") && !warning.contains("NoSpace"), "it says why: {warning}");
    assert!(!derived(&host).join("markdown").exists() && !derived(&host).join(".markdown.new").exists());
    check_lists_are_refused(&daemon);
    check_metric(&host, "docwharf_markdown_builds_total{result=\"no_space\"} 1");
    drop(daemon);
    disk.remove_fillers();
    let daemon = host.run_logged();
    until_done_in_background("with space it is made", || markdown_file(&host).is_file());
    assert!(get(&daemon.address, "/8.md").text().starts_with("# Page 8 of bowline\n"));
    assert!(wait_for_list(&daemon).contains("(/8.md)"));
}
