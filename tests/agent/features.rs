//! `features` in `/status`: what the running daemon provides.

use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use support::host::{Host, bundle, toml_string};
use support::{Daemon, KillOnDrop, http, until, until_done_in_background};

/// An air-gapped host with an inbox, a version and an admin listener.
fn host() -> Host {
    let host = Host::bare()
        .without("search.enabled")
        .set("deployment.type", toml_string("air-gapped"))
        .set("deployment.allow", toml_string("10.0.0.5:443"))
        .set("sync.inbox", toml_string("inbox"))
        .set("admin.listen", toml_string("127.0.0.1:0"));
    host.put("bundle.zip", bundle("Moat"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    host
}

/// Returns one row of the features that `docwharf status` reports.
#[track_caller]
fn feature(host: &Host, id: &str) -> Value {
    let status = host.status();
    let rows = status["features"]["features"].as_array();
    let row = rows.and_then(|rows| rows.iter().find(|row| row["id"] == id).cloned());
    row.unwrap_or_else(|| panic!("{id} is not in {status}"))
}

/// Returns whether a row has this state, and this text in its reason.
#[track_caller]
fn is_reported(host: &Host, id: &str, state: &str, why: &str) -> bool {
    let row = feature(host, id);
    row["state"] == state && row["why"].as_str().unwrap_or_default().contains(why)
}

/// Waits until no new index can be built, and asserts that an older one answers.
fn assert_older_index_answers(host: &Host, daemon: &Daemon) {
    until_done_in_background("no index can be built", || {
        is_reported(host, "search", "available", "an older index answers, because the new one cannot be built: ")
    });
    assert_eq!(http::get(&daemon.address, "/_docwharf/search?q=tide").status, 200);
    let search = &host.status()["daemon"]["search"];
    assert_eq!((&search["ready"], &search["olderIndex"]), (&json!(false), &json!(true)));
}

#[test]
fn status_has_the_features_on_every_route_as_the_command_prints_them() {
    let host = host();
    let alone = host.status()["features"].clone();
    assert_eq!(alone, host.ok(&["features", "--json"]).json(), "without a daemon");
    assert_eq!(alone["deployment"], json!({ "type": "air-gapped", "allow": ["10.0.0.5:443"] }));
    let why = "docwharf run provides it, and no daemon answers";
    assert!(is_reported(&host, "search", "available", why), "{alone}");
    let _daemon = host.run();
    until_done_in_background("there is an index", || host.status()["daemon"]["search"]["ready"] == true);
    let reported = host.status()["features"].clone();
    assert_eq!(reported, host.ok(&["features", "--json"]).json());
    assert!(!reported.to_string().contains(why), "{reported}");
    let states = |report: &Value| -> Vec<Value> {
        report["features"].as_array().unwrap().iter().map(|row| row["state"].clone()).collect()
    };
    assert_eq!(states(&reported), states(&alone), "everything that is configured works");
    let over_tcp = http::get(&host.reported_address("admin"), "/status").json();
    assert_eq!(over_tcp["features"], reported);
    let socket = UnixStream::connect(host.path("store/control.sock")).unwrap();
    let response = http::exchange(socket, b"GET /status HTTP/1.1\r\nHost: x\r\n\r\n", false);
    let over_socket = response.json();
    assert_eq!(over_socket["features"], reported);
}

#[test]
fn features_of_the_status_follow_a_reload_and_a_mistake_leaves_them() {
    let mut host = host();
    let daemon = host.run();
    until_done_in_background("there is an index", || feature(&host, "search")["state"] == "available");
    host.change("search.enabled", "false");
    host.change("deployment.type", toml_string("cloud"));
    host.remove("deployment.allow");
    host.change("staticExport.enabled", "false");
    daemon.signal("HUP");
    until("the configuration is read again", || host.status()["features"]["deployment"]["type"] == "cloud");
    let search = feature(&host, "search");
    assert_eq!((&search["vendor"], &search["state"]), (&json!("available"), &json!("configurable")));
    assert_eq!(search["set"], json!(["search.enabled"]));
    assert_eq!(feature(&host, "staticExport")["set"], json!(["staticExport.enabled"]));
    let before = host.status()["features"].clone();
    host.change("deployment.type", toml_string("moon"));
    daemon.signal("HUP");
    until("the mistake is found", || host.status()["configError"].is_string());
    assert_eq!(host.status()["features"], before);
    host.expect_exit(2, &["features"]);
    drop(daemon);
    assert_eq!(host.status()["features"], Value::Null, "nothing is known of a wrong configuration");
}

#[test]
fn what_fails_in_the_daemon_is_unavailable_with_its_reason() {
    let host = host();
    host.put("inbox", "in the way");
    std::fs::write(host.path("store/derived"), "in the way").unwrap();
    std::fs::create_dir(host.path("store/analytics.db")).unwrap();
    let _daemon = host.run();
    until("the inbox cannot be used", || is_reported(&host, "staticExport", "unavailable", "cannot open the inbox"));
    until_done_in_background("no index can be built", || {
        is_reported(&host, "search", "unavailable", "the index cannot be built: ")
    });
    if cfg!(feature = "analytics") {
        let why = "nothing is recorded at the moment: cannot open";
        until("nothing is recorded", || is_reported(&host, "webAnalytics", "unavailable", why));
    }
    assert_eq!(host.ok(&["features", "--json"]).json(), host.status()["features"]);
    let table = host.ok(&["features"]).stdout;
    assert!(table.contains("unavailable   cannot open the inbox "), "{table}");
    let host = host.set("staticExport.bundleUrl", toml_string("none.zip"));
    until("the source is checked", || host.status()["daemon"]["failures"] != 0);
    assert!(is_reported(&host, "staticExport", "available", "the last check of the source failed"));
}

#[test]
fn search_is_available_while_an_older_index_answers_because_no_new_one_can_be_built() {
    let host = host();
    let daemon = host.run();
    until_done_in_background("there is an index", || host.status()["daemon"]["search"]["ready"] == true);
    std::fs::rename(host.path("store/derived"), host.path("store/derived-before")).unwrap();
    std::fs::write(host.path("store/derived"), "in the way").unwrap();
    host.put("other.zip", bundle("Quay"));
    host.ok(&["import", host.path("other.zip").to_str().unwrap()]);
    assert_older_index_answers(&host, &daemon);
}

// Regression: a daemon that was started again showed that no index answers, while that of the version before did.
#[test]
fn search_is_available_after_a_restart_while_the_index_of_the_version_before_answers() {
    // The coding files would not fit either, and would make room for themselves.
    let mut host = host().set("server.codings", "[]");
    let mut daemon = host.run();
    until_done_in_background("there is an index", || host.status()["daemon"]["search"]["ready"] == true);
    daemon.signal("TERM");
    daemon.wait(Duration::from_secs(20));
    host.put("other.zip", bundle("Quay"));
    host.ok(&["import", host.path("other.zip").to_str().unwrap()]);
    host.change("store.minFree", toml_string("512TiB"));
    let daemon = host.run();
    assert_older_index_answers(&host, &daemon);
}

#[test]
fn a_daemon_without_a_version_has_neither_search_nor_web_analytics_yet() {
    let host = Host::bare()
        .without("search.enabled")
        .set("deployment.type", toml_string("air-gapped"))
        .set("sync.inbox", toml_string("inbox"));
    let _daemon = host.run();
    assert!(is_reported(&host, "search", "unavailable", "no version is active yet"));
    if cfg!(feature = "analytics") {
        assert!(is_reported(&host, "webAnalytics", "unavailable", "no version is active yet"));
    }
}

#[test]
fn a_daemon_that_serves_no_site_has_neither_search_nor_web_analytics() {
    let host = host().set("publish.directory", toml_string("www"));
    let mut command = host.command(&["run", "--no-serve"]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let _daemon = KillOnDrop(command.spawn().expect("docwharf starts"));
    until("the daemon runs", || host.status()["daemon"].is_object());
    assert!(is_reported(&host, "search", "unavailable", "run --no-serve"));
    if cfg!(feature = "analytics") {
        assert!(is_reported(&host, "webAnalytics", "unavailable", "run --no-serve"));
    }
    assert_eq!(feature(&host, "staticExport")["state"], "available");
}
