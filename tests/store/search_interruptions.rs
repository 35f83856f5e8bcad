//! Interrupted and failed builds of a search index: kills, restarts and full disks; the process that builds it.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use support::disk::SmallDisk;
use support::host::{Host, toml_string};
use support::{Daemon, http, until_done_in_background};

use super::search_helpers::{
    active_index, answer, bundle, count_pages, import, index_process, large_site, partial_index, process_file, search,
    searchable_host, signal_process, wait_for_end_of, wait_for_error, wait_for_index, wait_for_index_process,
};

#[test]
fn after_a_kill_of_the_daemon_in_a_build_the_site_is_served_and_the_index_is_built() {
    let host = searchable_host();
    import(&host, large_site("bowline", 6));
    for _ in 0..3 {
        let mut daemon = host.run();
        kill_in_build(&mut daemon, &host);
        assert!(!active_index(&host).exists(), "half an index has no name");
    }
    assert!(partial_index(&host).exists());
    host.ok(&["hold", "--reason", "to open the store"]);
    assert!(!partial_index(&host).exists(), "what a kill leaves is removed when the store is opened");
    let daemon = host.run();
    assert_eq!(http::get(&daemon.address, "/1.html").status, 200);
    wait_for_index(&host);
    assert!(count_pages(&daemon, "bowline") > 290);
    host.ok(&["store", "verify"]);
}

// Regression: after a restart in a build, queries got 503 although the version before had an index.
#[test]
fn after_a_restart_in_a_build_the_index_of_the_version_before_answers() {
    let host = searchable_host();
    import(&host, bundle("bowline"));
    let mut daemon = host.run();
    wait_for_index(&host);
    import(&host, large_site("bowline", 6));
    kill_in_build(&mut daemon, &host);
    let daemon = host.run();
    let process = wait_for_index_process(&host, &daemon);
    signal_process(process, Signal::STOP);
    let answered = answer(&daemon, "bowline");
    assert_eq!((&answered["indexing"], answered["version"].as_str()), (&true.into(), host.active().as_deref()));
    assert_eq!(answered["results"].as_array().unwrap().len(), 1, "the front page is in both versions: {answered}");
    signal_process(process, Signal::CONT);
    wait_for_index(&host);
    assert!(count_pages(&daemon, "bowline") > 290);
    // An index with other settings does not answer for another version.
    drop(daemon);
    fs::remove_dir_all(active_index(&host)).unwrap();
    let host = host.set("search.exclude", "[\"/nowhere\"]");
    let daemon = host.run();
    let process = wait_for_index_process(&host, &daemon);
    signal_process(process, Signal::STOP);
    assert_eq!(search(&daemon, "bowline").status, 503);
    signal_process(process, Signal::CONT);
}

/// Kills the daemon while it builds an index.
#[track_caller]
fn kill_in_build(daemon: &mut Daemon, host: &Host) {
    let process = wait_for_index_process(host, daemon);
    daemon.signal("KILL");
    daemon.wait(Duration::from_secs(20));
    wait_for_end_of(process);
}

#[test]
fn a_killed_index_process_is_reported_and_the_build_is_tried_again() {
    let host = searchable_host().set("admin.listen", toml_string("127.0.0.1:0"));
    import(&host, large_site("bowline", 6));
    let daemon = host.run_logged();
    let process = wait_for_index_process(&host, &daemon);
    signal_process(process, Signal::KILL);
    let error = wait_for_error(&host);
    assert!(error.contains("the index process has ended") && error.contains("signal"), "{error}");
    assert!(host.log().contains("cannot build the search index of version"), "{}", host.log());
    assert_eq!(http::get(&daemon.address, "/1.html").status, 200);
    wait_for_index(&host);
    assert!(!partial_index(&host).exists());
    let metrics = http::get(&host.reported_address("admin"), "/metrics").text();
    for line in
        ["docwharf_search_builds_total{result=\"failed\"} 1", "docwharf_search_builds_total{result=\"built\"} 1"]
    {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
}

#[test]
fn the_index_process_has_bounded_memory_the_lowest_priority_and_no_environment() {
    let host = searchable_host();
    import(&host, large_site("bowline", 6));
    let daemon = host.run();
    let process = wait_for_index_process(&host, &daemon);
    let data_limit = || {
        let limits = process_file(process, "limits");
        let line = limits.lines().find_map(|line| line.strip_prefix("Max data size")).map(str::to_owned);
        line.and_then(|line| line.split_whitespace().next().and_then(|bytes| bytes.parse::<u64>().ok()))
    };
    // Fields are counted from the third, which is the state; nice is the nineteenth.
    let nice = || {
        let stat = process_file(process, "stat");
        stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(16).map(str::to_owned))
    };
    // They are set a moment after the start.
    let mut found = Vec::new();
    until_done_in_background("all limits are set", || {
        found = vec![
            process_file(process, "environ").is_empty(),
            // Less in a container with less than 2 GiB.
            data_limit().is_some_and(|bytes| bytes <= 1 << 30),
            process_file(process, "oom_score_adj").trim() == "1000",
            nice().as_deref() == Some("19"),
            fs::read_link(format!("/proc/{process}/cwd")).is_ok_and(|folder| folder == Path::new("/")),
        ];
        found.iter().all(|&is_set| is_set) || index_process(daemon.pid()).is_none()
    });
    assert_eq!(found, [true; 5], "environment, memory, end by the kernel, priority, working directory");
    wait_for_index(&host);
    wait_for_end_of(process);
    // One more process makes the Markdown of the pages.
    until_done_in_background("no process is left", || index_process(daemon.pid()).is_none());
}

#[test]
fn a_shutdown_ends_the_index_process_and_removes_its_partial_index() {
    let host = searchable_host();
    import(&host, large_site("bowline", 6));
    let mut daemon = host.run();
    let process = wait_for_index_process(&host, &daemon);
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    wait_for_end_of(process);
    assert!(!partial_index(&host).exists() && !active_index(&host).exists());
}

#[test]
fn without_disk_space_no_index_is_built_and_the_site_is_served() {
    let disk = SmallDisk::new("size=8m");
    let host = searchable_host().set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    import(&host, large_site("bowline", 4));
    disk.leave_free_bytes(300 << 10);
    let daemon = host.run_logged();
    let error = wait_for_error(&host);
    assert!(error.contains("are needed") && error.contains("free"), "{error}");
    assert!(host.log().contains("the site is served without it"), "{}", host.log());
    assert_eq!(http::get(&daemon.address, "/1.html").status, 200);
    // Clients are not told to wait for an index that does not come.
    let refused = search(&daemon, "bowline");
    let body: Value = serde_json::from_slice(&refused.body).unwrap();
    assert_eq!((refused.status, &body["indexing"], refused.header("retry-after")), (503, &false.into(), None));
    assert!(!disk.path("store/derived").join(host.active().unwrap()).exists());
    drop(daemon);
    // `store.minFree` and `store.maxBytes` count, too.
    disk.remove_fillers();
    let min_free = disk.free_bytes() - (300 << 10);
    let used: u64 = host.ok(&["versions", "--json"]).json()["versions"][0]["bytes"].as_u64().expect("a size");
    for (key, value) in [("store.minFree", min_free), ("store.maxBytes", used + 1000)] {
        let mut limited = searchable_host().set("store.path", toml_string(disk.path("store").to_str().unwrap()));
        limited.change(key, value.to_string());
        let _daemon = limited.run();
        let error = wait_for_error(&limited);
        assert!(error.contains(key), "{error}");
    }
    // With space, the next start builds it.
    let _daemon = host.run();
    wait_for_index(&host);
}

#[test]
fn a_disk_that_is_full_in_a_build_leaves_nothing_and_the_site_is_served() {
    // Bytes are there, but not enough files can be created.
    let disk = SmallDisk::new("size=16m,nr_inodes=60");
    let host = searchable_host().set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    import(&host, bundle("bowline"));
    let index = || disk.path("store/derived").join(host.active().unwrap()).join("search");
    disk.leave_free_inodes(8);
    let daemon = host.run_logged();
    let error = wait_for_error(&host);
    assert!(error.to_lowercase().contains("no space"), "{error}");
    assert_eq!(http::get(&daemon.address, "/").status, 200);
    assert!(!index().exists() && !index().with_file_name(".search.new").exists());
    disk.remove_fillers();
    drop(daemon);
    let daemon = host.run();
    wait_for_index(&host);
    assert_eq!(count_pages(&daemon, "bowline"), 3);
}
