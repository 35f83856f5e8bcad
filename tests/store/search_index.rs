//! The search index of a version: when it is built, kept, used again, built again and removed.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use support::disk::SmallDisk;
use support::host::{Host, large_bundle, toml_string};
use support::{KillOnDrop, http, until, until_done_in_background};

use super::search_helpers::{
    active_index, answer, bundle, child_process, count_pages, identity, import, inode, large_site, partial_index,
    search, search_status, searchable_host, wait_for_error, wait_for_index,
};

#[test]
fn after_activation_the_index_is_built_and_status_and_metrics_report_it() {
    let host = searchable_host().set("admin.listen", toml_string("127.0.0.1:0"));
    import(&host, bundle("bowline"));
    let daemon = host.run_logged();
    wait_for_index(&host);
    assert_eq!((count_pages(&daemon, "bowline"), count_pages(&daemon, "zyxwvut")), (3, 0));
    let search = search_status(&host);
    assert_eq!((&search["pages"], &search["sections"]), (&3.into(), &3.into()), "{search}");
    assert_eq!((&search["box"], &search["error"], &search["boxForbidden"]), (&true.into(), &Value::Null, &Value::Null));
    assert!(search["boxWhy"].as_str().unwrap().contains("no search index of its own"), "{search}");
    let text = host.ok(&["status"]).stdout;
    assert!(text.contains("\nsearch     3 pages, 3 sections ("), "{text}");
    assert!(host.log().contains("has a search index of 3 pages with 3 sections"), "{}", host.log());
    let metrics = http::get(&host.reported_address("admin"), "/metrics").text();
    let bytes = format!("docwharf_search_index_bytes {}", search["bytes"]);
    for line in [
        bytes.as_str(),
        "docwharf_search_ready 1",
        "docwharf_search_builds_total{result=\"built\"} 1",
        "docwharf_search_queries_total{outcome=\"ok\"} 1",
        "docwharf_search_queries_total{outcome=\"empty\"} 1",
        "docwharf_search_queries_total{outcome=\"busy\"} 0",
        "docwharf_search_query_seconds_count 2",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}: {metrics}");
    }
    assert!(metrics.contains("\ndocwharf_search_build_seconds "), "{metrics}");
}

#[test]
fn restarts_and_rollbacks_use_the_stored_index() {
    let host = searchable_host();
    import(&host, bundle("bowline"));
    let daemon = host.run_logged();
    wait_for_index(&host);
    let first = active_index(&host);
    import(&host, bundle("sheepshank"));
    wait_for_index(&host);
    let second = active_index(&host);
    let inodes = [inode(&first), inode(&second)];
    for (present, absent) in [("bowline", "sheepshank"), ("sheepshank", "bowline")] {
        host.ok(&["rollback"]);
        wait_for_index(&host);
        assert_eq!((count_pages(&daemon, present), count_pages(&daemon, absent)), (3, 0));
    }
    drop(daemon);
    let daemon = host.run_logged();
    wait_for_index(&host);
    assert_eq!(count_pages(&daemon, "sheepshank"), 3);
    assert_eq!([inode(&first), inode(&second)], inodes, "neither index was built again");
    assert_eq!(host.log().matches("has a search index of").count(), 2, "{}", host.log());
}

#[test]
fn while_a_new_index_is_built_the_previous_one_answers() {
    let host = searchable_host();
    import(&host, bundle("bowline"));
    let daemon = host.run();
    // Before there is any index, clients are told to wait.
    let first = search(&daemon, "bowline");
    assert!(first.status == 200 || first.header("retry-after") == Some("2"), "{first:?}");
    wait_for_index(&host);
    import(&host, large_site("bowline", 8));
    // The activation has not waited: the new version is served, and its index is not there yet.
    assert_eq!(http::get(&daemon.address, "/1.html").status, 200);
    let answered = answer(&daemon, "bowline");
    assert_eq!(answered["indexing"], true, "{answered}");
    assert_eq!(answered["version"], host.active().unwrap(), "{answered}");
    // Of the previous version's pages, only the front page is still there.
    let results = answered["results"].as_array().unwrap();
    assert!(results.len() == 1 && results[0]["url"].as_str().unwrap().starts_with('/'), "{answered}");
    let status = search_status(&host);
    assert_eq!((&status["ready"], &status["olderIndex"]), (&false.into(), &true.into()), "{status}");
    wait_for_index(&host);
    assert_eq!(search_status(&host)["olderIndex"], false);
    let answered = answer(&daemon, "bowline");
    assert_eq!(answered["indexing"], false);
    assert!(answered["total"].as_u64().unwrap() > 300, "{answered}");
}

#[test]
fn an_index_with_any_file_damaged_or_missing_is_built_again() {
    let host = searchable_host();
    import(&host, bundle("bowline"));
    wait_and_stop(&host);
    let index = active_index(&host);
    let unchanged = identity(&index);
    wait_and_stop(&host);
    assert_eq!(identity(&index), unchanged, "it is used again");
    // The names of some files are others in each index.
    let files = || {
        let mut files: Vec<PathBuf> = fs::read_dir(&index).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort_unstable_by_key(|path| (path.extension().map(ToOwned::to_owned), path.clone()));
        files
    };
    for number in 0..files().len() {
        let path = files()[number].clone();
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        match bytes.get_mut(middle) {
            Some(byte) => *byte ^= 1,
            None => bytes.push(0),
        }
        // As a restored backup does: a file that may be mapped is replaced, never written to.
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        let before = identity(&index);
        let log = wait_and_stop(&host);
        assert_ne!(identity(&index), before, "a changed byte of {}: {log}", path.display());
    }
    for number in 0..files().len() {
        let (path, before) = (files()[number].clone(), identity(&index));
        fs::remove_file(&path).unwrap();
        let log = wait_and_stop(&host);
        assert_ne!(identity(&index), before, "without {}: {log}", path.display());
    }
    fs::write(index.join("search.json.new"), "{}").unwrap();
    fs::rename(index.join("search.json.new"), index.join("search.json")).unwrap();
    let log = wait_and_stop(&host);
    assert!(log.contains("it is rebuilt"), "{log}");
    // Something else in its place.
    fs::remove_dir_all(&index).unwrap();
    fs::write(&index, "in the way").unwrap();
    wait_and_stop(&host);
    assert!(index.is_dir());
}

/// Runs the daemon until the index answers, and returns its log.
#[track_caller]
fn wait_and_stop(host: &Host) -> String {
    let start = host.log().len();
    let daemon = host.run_logged();
    wait_for_index(host);
    assert_eq!(count_pages(&daemon, "bowline"), 3);
    drop(daemon);
    host.log()[start..].to_owned()
}

#[test]
fn changed_settings_apply_without_a_restart_and_decide_whether_the_index_is_built_again() {
    let mut host = searchable_host();
    import(&host, bundle("bowline"));
    let daemon = host.run();
    wait_for_index(&host);
    let index = active_index(&host);
    let before = inode(&index);
    host.change("search.exclude", "[\"/guide/:path*\"]");
    until_done_in_background("the pages are left out", || count_pages(&daemon, "bowline") == 1);
    let is_new = || fs::metadata(&index).is_ok_and(|metadata| metadata.ino() != before);
    until_done_in_background("the index is built again", is_new);
    wait_for_index(&host);
    let excluded = inode(&index);
    // Words that mean the same are a matter of the query.
    host.put("words.toml", "sets = [[\"bowline\", \"paltanu\"]]");
    host.change("search.synonyms", toml_string("words.toml"));
    until_done_in_background("the synonym is known", || count_pages(&daemon, "paltanu") == 1);
    host.put("words.toml", "sets = [[\"bowline\", \"kryptel\"]]");
    until_done_in_background("the file is read again", || count_pages(&daemon, "kryptel") == 1);
    host.put("words.toml", "sets = 1");
    until_done_in_background("the mistake is reported", || {
        host.status()["configError"].as_str().is_some_and(|error| error.contains("words.toml"))
    });
    assert_eq!(count_pages(&daemon, "kryptel"), 1, "the previous words stay in force");
    host.remove("search.synonyms");
    // Off, and on again.
    host.change("search.enabled", "false");
    until_done_in_background("the search is off", || search(&daemon, "bowline").status == 404);
    until("no page has the box", || !http::get(&daemon.address, "/").text().contains("_docwharf"));
    assert!(search_status(&host).is_null());
    host.change("search.enabled", "true");
    wait_for_index(&host);
    assert_eq!(count_pages(&daemon, "bowline"), 1);
    assert!(http::get(&daemon.address, "/").text().contains("/_docwharf/search.js"));
    host.change("search.inject", toml_string("never"));
    until_done_in_background("no page has the box", || !http::get(&daemon.address, "/").text().contains("_docwharf"));
    until("the status says so", || search_status(&host)["box"] == false);
    assert_eq!(inode(&index), excluded, "it was not built again");
}

// Regression: an index waited until the Brotli form was made, which is suspended under load.
#[test]
fn a_changed_index_does_not_wait_for_the_brotli_and_zstandard_forms() {
    let mut host = Host::bare().set("search.enabled", "true");
    import(&host, large_site("bowline", 6));
    let daemon = host.run();
    wait_for_index(&host);
    let index = active_index(&host);
    let before = inode(&index);
    until_done_in_background("the Brotli form is being made", || child_process(daemon.pid(), "make-coding").is_some());
    host.change("search.exclude", "[\"/1.html\"]");
    let is_new = || fs::metadata(&index).is_ok_and(|metadata| metadata.ino() != before);
    until_done_in_background("the index is built again", is_new);
    wait_for_index(&host);
    assert_eq!(host.status()["daemon"]["codings"]["made"], serde_json::json!([]), "the forms are made after it");
    until_done_in_background("the forms are made again", || child_process(daemon.pid(), "make-coding").is_some());
}

#[test]
fn indexes_of_inactive_versions_are_removed_before_any_version_and_the_active_one_stays() {
    let disk = SmallDisk::new("size=32m");
    let host = searchable_host().set("sync.keep", "5");
    let host = host.set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    let index = |host: &Host| disk.path("store/derived").join(host.active().unwrap()).join("search");
    let size = |folder: &Path| -> u64 {
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
    };
    import(&host, large_site("bowline", 5));
    let daemon = host.run();
    wait_for_index(&host);
    let first = index(&host);
    import(&host, large_site("sheepshank", 5));
    wait_for_index(&host);
    let second = index(&host);
    let third = large_bundle("third", 400_000);
    assert!(size(&first) > 900_000, "the index has {} bytes, which is too little for this test", size(&first));
    // Enough for the copy of the bundle, and not for its image as well.
    disk.leave_free_bytes(600 << 10);
    import(&host, third);
    assert!(http::get(&daemon.address, "/").text().starts_with("<title>third</title>"));
    assert!(!first.exists(), "the index of a version that is not active is removed");
    assert!(second.exists(), "the index of the active version stays");
    assert_eq!(host.ok(&["versions", "--json"]).json()["versions"].as_array().unwrap().len(), 3);
    // After a rollback it is built again once there is space.
    disk.remove_fillers();
    let ids = host.ok(&["versions", "--json"]).json();
    let oldest = ids["versions"].as_array().unwrap().iter().map(|version| version["id"].as_str().unwrap().to_owned());
    let oldest = oldest.into_iter().find(|id| first.to_string_lossy().contains(id)).expect("the first version");
    host.ok(&["activate", &oldest]);
    wait_for_index(&host);
    assert!(first.exists() && count_pages(&daemon, "bowline") > 200);
}

#[test]
fn run_without_serving_builds_no_index() {
    let host = searchable_host().set("publish.directory", toml_string("www"));
    import(&host, bundle("bowline"));
    let mut command = host.command(&["run", "--no-serve"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = KillOnDrop(command.spawn().expect("docwharf starts"));
    until("the daemon runs", || host.status()["daemon"].is_object());
    until("it has published", || host.path("www/current/index.html").exists());
    // Longer than a build takes.
    let other = searchable_host();
    import(&other, bundle("bowline"));
    let _other_daemon = other.run();
    wait_for_index(&other);
    assert!(search_status(&host).is_null());
    assert!(!active_index(&host).exists() && !partial_index(&host).exists());
}

#[test]
fn a_store_in_which_no_index_can_be_written_is_served_and_reports_it() {
    let host = searchable_host();
    import(&host, bundle("bowline"));
    fs::write(host.path("store/derived"), "in the way").unwrap();
    let daemon = host.run();
    assert!(wait_for_error(&host).contains("derived"));
    assert_eq!(http::get(&daemon.address, "/").status, 200);
}

#[test]
fn files_of_the_index_belong_to_the_owner_of_the_store_and_others_cannot_write_them() {
    let host = searchable_host();
    import(&host, bundle("bowline"));
    let _daemon = host.run();
    wait_for_index(&host);
    let index = active_index(&host);
    let owner = fs::metadata(host.path("store")).unwrap().uid();
    for entry in fs::read_dir(&index).unwrap() {
        let metadata = entry.unwrap().metadata().unwrap();
        assert!(metadata.is_file());
        assert_eq!((metadata.uid(), metadata.permissions().mode() & 0o022), (owner, 0));
    }
}

#[test]
fn make_search_index_refuses_to_run_unless_started_by_docwharf() {
    let ended = support::run_docwharf(["make-search-index", "--parent", "1"]).expect(8);
    assert!(ended.stderr.contains("for docwharf itself"), "{}", ended.stderr);
    assert!(ended.stdout.is_empty());
    assert!(!support::run_docwharf(["--help"]).stdout.contains("make-search-index"));
}
