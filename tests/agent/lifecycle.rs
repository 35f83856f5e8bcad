//! The life of versions in the agent: `run`, `sync` and `import`, and the operator's commands.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use support::host::Host;
use support::http::PersistentConnection;
use support::zip::{deflated, stored, zip};
use support::{CommandOutput, Daemon, docwharf, http, run_to_end, send_signal, temporary_folder, until};

/// A configuration that checks a bundle file every 100 ms. `config` continues `[staticExport]`.
fn config_with_bundle(config: &str) -> String {
    format!("[sync]\ninterval = \"100ms\"\n[staticExport]\nbundleUrl = \"bundle.zip\"\n{config}")
}

/// Runs a command, which must fail with this exit code and print one line.
#[track_caller]
fn assert_fails(host: &Host, code: i32, arguments: &[&str]) -> CommandOutput {
    let ended = run_to_end(&mut host.command(arguments)).expect(code);
    assert_eq!(ended.stderr.lines().count(), 1, "one line: {}", ended.stderr);
    ended
}

fn versions(host: &Host) -> Vec<String> {
    let list = host.ok(&["versions", "--json"]).json();
    list["versions"].as_array().unwrap().iter().map(|v| v["id"].as_str().unwrap().to_owned()).collect()
}

fn site(text: &str) -> Vec<u8> {
    zip(&[
        deflated("index.html", &format!("<title>{text}</title>")),
        deflated("guide.html", &format!("<p>{text}{}</p>", " tide".repeat(300))),
        stored("logo.png", "not really a picture"),
    ])
}

fn front_page(daemon: &Daemon) -> String {
    http::get(&daemon.address, "/").text()
}

#[test]
fn run_verifies_seals_activates_and_serves_the_configured_bundle() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    let daemon = host.run();
    until("the first version", || front_page(&daemon) == "<title>one</title>");
    assert_eq!(http::get(&daemon.address, "/guide").status, 200);
}

#[test]
fn a_request_before_the_first_version_gets_503_with_retry_after() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(b"not an archive");
    let daemon = host.run();
    let response = http::get(&daemon.address, "/any/page");
    assert_eq!(response.status, 503);
    assert!(response.header("retry-after").is_some());
    assert_eq!(response.header("cache-control"), Some("no-store"));
    host.put_bundle(&site("at last"));
    until("the first good version", || front_page(&daemon).contains("at last"));
}

#[test]
fn run_activates_a_changed_bundle_file_without_a_failed_request() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("v0"));
    let daemon = host.run();
    until("the first version", || front_page(&daemon).contains("v0"));
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut requests = 0;
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        let response = http::get(&daemon.address, "/guide.html");
                        assert_eq!(response.status, 200);
                        // The body is complete, of one version: parse() has compared the length already.
                        assert!(response.text().ends_with(" tide</p>"), "{}", response.text());
                        requests += 1;
                    }
                    requests
                })
            })
            .collect();
        for n in 1..=8 {
            host.put_bundle(&site(&format!("v{n}")));
            until("the next version", || front_page(&daemon).contains(&format!("v{n}<")));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() > 0);
        }
    });
}

#[test]
fn an_invalid_bundle_file_is_refused_and_the_old_version_stays_active() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("good"));
    let daemon = host.run();
    until("the first version", || front_page(&daemon).contains("good"));
    host.put_bundle(&zip(&[deflated("../index.html", "evil")]));
    until("the refusal", || host.status()["lastAttempt"]["result"] == "failed");
    let error = host.status()["lastAttempt"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("\"../index.html\" leaves the bundle"), "{error}");
    assert!(front_page(&daemon).contains("good"));
    let history = host.ok(&["history", "--json"]).json();
    let count = history["events"].as_array().unwrap().iter().filter(|e| e["what"] == "refused").count();
    assert_eq!(count, 1, "an unchanged refused file is not verified again at each check");
    host.put_bundle(&site("better"));
    until("the next good version", || front_page(&daemon).contains("better"));
}

#[test]
fn sighup_checks_the_source_at_once() {
    let host = Host::configured(&config_with_bundle(""));
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap().replace("100ms", "1h");
    std::fs::write(host.path("docwharf.toml"), text).unwrap();
    host.put_bundle(&site("one"));
    let daemon = host.run();
    until("the first version", || front_page(&daemon).contains("one"));
    host.put_bundle(&site("two"));
    until("the second version after a signal", || {
        daemon.signal("HUP");
        front_page(&daemon).contains("two")
    });
}

#[test]
fn a_restart_serves_the_stored_version_though_the_bundle_is_gone() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("kept"));
    host.ok(&["sync"]);
    std::fs::remove_file(host.path("bundle.zip")).unwrap();
    let mut daemon = host.run();
    // The address is printed once the listener is open, so this is the first response.
    assert!(front_page(&daemon).contains("kept"));
    until("the failed check", || host.status()["lastAttempt"]["result"] == "failed");
    assert!(front_page(&daemon).contains("kept"));
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn run_without_a_version_and_a_bundle_is_a_configuration_error() {
    let host = Host::configured(&config_with_bundle(""));
    let ended = assert_fails(&host, 2, &["run"]);
    assert!(ended.stderr.contains("bundleUrl"), "{}", ended.stderr);
    std::fs::write(host.path("docwharf.toml"), "[store]\npath = \"empty\"\n[server]\nlisten = \"127.0.0.1:0\"\n")
        .unwrap();
    assert_fails(&host, 2, &["run"]);
    assert_fails(&host, 2, &["sync"]);
}

#[test]
fn sync_reports_its_result_and_seals_the_same_content_only_once() {
    let host = Host::configured(&config_with_bundle(""));
    assert_fails(&host, 2, &["sync"]);
    host.put_bundle(&site("one"));
    assert_eq!(host.ok(&["sync", "--json"]).json()["result"], "activated");
    assert_eq!(host.ok(&["sync", "--json"]).json()["result"], "already current");
    // Equal content in another archive.
    host.put_bundle(&zip(&[
        stored("logo.png", "not really a picture"),
        deflated("guide.html", &format!("<p>one{}</p>", " tide".repeat(300))),
        deflated("index.html", "<title>one</title>"),
    ]));
    assert_eq!(host.ok(&["sync", "--json"]).json()["result"], "already current");
    assert_eq!(versions(&host).len(), 1);
    host.put_bundle(b"<html>an error page</html>");
    let ended = assert_fails(&host, 5, &["sync"]);
    assert!(ended.stderr.contains("is an HTML page"), "{}", ended.stderr);
}

#[test]
fn a_bundle_url_may_be_a_file_url() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("by url"));
    let url = format!("file://{}", host.path("bundle.zip").display());
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap().replace("bundle.zip", &url);
    std::fs::write(host.path("docwharf.toml"), text).unwrap();
    host.ok(&["sync"]);
    // The environment takes precedence over the file.
    let other = host.path("other.zip");
    std::fs::write(&other, site("by environment")).unwrap();
    let mut command = host.command(&["sync", "--json"]);
    let ended = run_to_end(command.env("DOCWHARF_STATIC_EXPORT__BUNDLE_URL", &other)).expect(0);
    assert_eq!(ended.json()["result"], "activated");
}

#[test]
fn a_bundle_file_is_accepted_only_with_the_configured_sha256() {
    let accepted = site("one");
    let digest = docwharf::model::digest::Digest::compute(&accepted).to_hex();
    let host = Host::configured(&config_with_bundle(&format!("sha256 = \"{digest}\"")));
    host.put_bundle(&site("another"));
    let ended = assert_fails(&host, 5, &["sync"]);
    assert!(ended.stderr.contains(&digest), "{}", ended.stderr);
    host.put_bundle(&accepted);
    host.ok(&["sync"]);
    let before = host.version_id("active");
    host.put_bundle(&site("third"));
    assert_fails(&host, 5, &["sync"]);
    assert_eq!(host.version_id("active"), before);
}

// Regression: a SIGHUP in the first moment of `run` ended it.
// Regression: a disabled `sync` waited for the store's lock, only to report that it is disabled.
#[test]
fn a_disabled_agent_serves_the_stored_version_and_checks_no_source() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    host.configure(&config_with_bundle("enabled = false"));
    host.put_bundle(&site("two"));
    assert_eq!(host.ok(&["sync", "--json"]).json()["result"], "disabled");
    let daemon = host.run();
    daemon.signal("HUP");
    assert!(front_page(&daemon).contains("one"));
    // A disabled sync has nothing to do, so it does not wait for the store's lock.
    let ended = host.ok(&["sync", "--json"]);
    assert_eq!((&ended.json()["result"], ended.stderr.as_str()), (&"disabled".into(), ""));
    drop(daemon);
    // Commands still work.
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    assert!(front_page(&host.run()).contains("two"));
}

#[test]
fn a_pin_activates_only_the_version_with_its_label() {
    let host = Host::configured(&config_with_bundle("version = \"1.0\""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    let one = host.version_id("active");
    // The store has the pinned version, so the file is not checked any more, even if it is missing.
    std::fs::remove_file(host.path("bundle.zip")).unwrap();
    assert_eq!(host.ok(&["sync", "--json"]).json()["result"], "already current");
    // For another label, the file is read.
    host.put_bundle(&site("two"));
    host.configure(&config_with_bundle("version = \"2.0\""));
    assert_eq!(host.ok(&["sync", "--json"]).json()["result"], "activated");
    let two = host.version_id("active");
    assert_ne!(one, two);
    // The old label is found in the store, without a check of the source.
    std::fs::remove_file(host.path("bundle.zip")).unwrap();
    host.configure(&config_with_bundle("version = \"1.0\""));
    host.ok(&["sync"]);
    assert_eq!(host.version_id("active"), one);
    // --refresh fetches again and moves the label.
    host.put_bundle(&site("one, corrected"));
    host.ok(&["sync"]);
    assert_eq!(host.version_id("active"), one);
    host.ok(&["sync", "--refresh"]);
    assert_ne!(host.version_id("active"), one);
}

#[test]
fn an_import_under_a_pin_is_sealed_but_not_activated() {
    let host = Host::configured(&config_with_bundle("version = \"1.0\""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    let one = host.version_id("active");
    std::fs::write(host.path("other.zip"), site("two")).unwrap();
    let ended = assert_fails(&host, 7, &["import", host.path("other.zip").to_str().unwrap()]);
    assert!(ended.stderr.contains("pinned"), "{}", ended.stderr);
    assert_eq!(host.version_id("active"), one);
    assert_eq!(versions(&host).len(), 2);
}

#[test]
fn a_refused_import_is_in_history_with_its_reason_and_changes_nothing() {
    let host = Host::configured("");
    std::fs::write(host.path("evil.zip"), zip(&[deflated("../index.html", "evil")])).unwrap();
    assert_fails(&host, 5, &["import", host.path("evil.zip").to_str().unwrap()]);
    let history = host.ok(&["history", "--json"]).json();
    let events: Vec<_> = history["events"].as_array().unwrap().iter().map(|event| &event["what"]).collect();
    assert_eq!(events, ["refused"], "{history}");
    let event = &history["events"][0];
    assert!(event["note"].as_str().unwrap().contains("\"../index.html\" leaves the bundle"), "{history}");
    assert_eq!((event["who"].as_str(), versions(&host).len()), (Some("tester"), 0), "{history}");
}

#[test]
fn a_rollback_stays_in_force_after_checks_signals_and_restarts_until_release() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    host.put_bundle(&site("two"));
    host.ok(&["sync"]);
    let two = host.version_id("active");
    host.ok(&["rollback"]);
    let one = host.version_id("active");
    assert_ne!(one, two);
    host.put_bundle(&site("three"));
    // The version is sealed, but not active. The exit code shows it.
    let ended = assert_fails(&host, 7, &["sync"]);
    assert!(ended.stderr.contains("held by tester"), "{}", ended.stderr);
    // The exit code is the same if there is no new version.
    assert_fails(&host, 7, &["sync"]);
    let three = host.status()["newest"].clone();
    let daemon = host.run();
    daemon.signal("HUP");
    host.put_bundle(&site("four"));
    until("the fourth version", || host.status()["newest"] != three);
    assert!(front_page(&daemon).contains("one"));
    drop(daemon);
    assert_eq!(host.version_id("active"), one);
    assert_eq!(host.status()["hold"]["who"], "tester");
    // `release` activates the newest version at once.
    host.ok(&["release"]);
    assert!(front_page(&host.run()).contains("four"));
    assert_eq!(host.status()["hold"], serde_json::Value::Null);
    // A second release ends no hold, and is not in history as one that did.
    host.ok(&["release"]);
    let history = host.ok(&["history", "--json"]).json();
    let released = history["events"].as_array().unwrap().iter().filter(|event| event["what"] == "released").count();
    assert_eq!(released, 1, "{history}");
}

#[test]
fn activate_accepts_a_label_or_at_least_eight_digits_of_a_version_id() {
    let host = Host::configured(&config_with_bundle(""));
    std::fs::write(host.path("a.zip"), site("a")).unwrap();
    std::fs::write(host.path("b.zip"), site("b")).unwrap();
    host.ok(&["import", host.path("a.zip").to_str().unwrap(), "--label", "stable"]);
    let a = host.version_id("active");
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    let b = host.version_id("active");
    host.ok(&["activate", "stable"]);
    assert_eq!(host.version_id("active"), a);
    host.ok(&["activate", &b[..8]]);
    assert_eq!(host.version_id("active"), b);
    assert_fails(&host, 2, &["activate", &b[..7]]);
    assert_fails(&host, 2, &["activate", "no-such-label"]);
    host.ok(&["hold", "--reason", "release party"]);
    assert_eq!(host.status()["hold"]["why"], "release party");
    let events: Vec<String> = host.ok(&["history", "--json"]).json()["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| event["what"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(events, ["imported", "activated", "imported", "activated", "activated", "activated", "held"]);
}

#[test]
fn rollback_without_a_previous_version_fails_with_a_message() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    let ended = assert_fails(&host, 1, &["rollback"]);
    assert!(ended.stderr.contains("no previous version"), "{}", ended.stderr);
}

#[test]
fn pruning_keeps_the_active_the_previous_and_all_labelled_versions() {
    let host = Host::configured(&config_with_bundle(""));
    std::fs::write(host.path("labelled.zip"), site("labelled")).unwrap();
    host.ok(&["import", host.path("labelled.zip").to_str().unwrap(), "--label", "L"]);
    let labelled = host.version_id("active");
    for n in 0..7 {
        host.put_bundle(&site(&format!("n{n}")));
        host.ok(&["sync"]);
    }
    let versions = versions(&host);
    // keep = 3 beside active, previous and labelled.
    assert_eq!(versions.len(), 6, "{versions:?}");
    assert!(versions.contains(&labelled));
    let history = std::fs::read_to_string(host.path("store/history.jsonl")).unwrap();
    let pruned: Vec<&str> = history.lines().filter(|line| line.contains("\"what\":\"pruned\"")).collect();
    assert_eq!(pruned.len(), 2, "{history}");
    assert!(pruned.iter().all(|line| !versions.iter().any(|id| line.contains(id.as_str()))), "{history}");
    let staging = std::fs::read_dir(host.path("store/staging")).unwrap().count();
    assert_eq!(staging, 0);
}

#[test]
fn a_second_writer_of_a_store_fails_with_a_message_about_the_lock() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    let daemon = host.run();
    let store = host.path("store");
    let error = docwharf::store::writer::StoreWriter::open(&store, Duration::ZERO).unwrap_err();
    let expected = format!("is locked by another docwharf, process {}: try again", daemon.pid());
    assert!(error.to_string().contains(&expected), "{error}");
    // Readers take no lock.
    assert_eq!(host.status()["schemaVersion"], 1);
}

#[test]
fn run_fails_with_exit_code_8_if_its_port_is_in_use() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    let daemon = host.run();
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    let text = text.replace("127.0.0.1:0", &daemon.address).replace("\"store\"", "\"store2\"");
    std::fs::write(host.path("docwharf.toml"), text).unwrap();
    let ended = assert_fails(&host, 8, &["run"]);
    assert!(ended.stderr.contains(&daemon.address), "{}", ended.stderr);
}

#[test]
fn each_configuration_error_is_one_line_and_no_store_is_created() {
    let host = Host::configured(&config_with_bundle("sha265 = \"x\"\nversion = 5"));
    let ended = run_to_end(&mut host.command(&["sync"])).expect(2);
    let lines: Vec<&str> = ended.stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{}", ended.stderr);
    assert!(
        lines[0].contains("docwharf.toml:9:1") && lines[0].contains("did you mean staticExport.sha256?"),
        "{}",
        lines[0]
    );
    assert!(lines[1].contains("staticExport.version"), "{}", lines[1]);
    assert!(!host.path("store").exists());
    let missing = run_to_end(docwharf().args(["status", "--config", "/no/such/file.toml"])).expect(2);
    assert!(missing.stderr.contains("/no/such/file.toml"));
    // A signed link is a secret. The error does not repeat it.
    host.configure(&config_with_bundle(""));
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    let text = text.replace("bundle.zip", "s3://bucket.example/b.zip?X-Amz-Signature=deadbeef");
    std::fs::write(host.path("docwharf.toml"), text).unwrap();
    let ended = assert_fails(&host, 2, &["sync"]);
    assert!(!ended.stderr.contains("deadbeef"), "{}", ended.stderr);
}

#[test]
fn a_folder_can_be_imported_and_has_the_same_id_as_its_archive() {
    let host = Host::configured(&config_with_bundle(""));
    let tree = host.path("tree");
    support::write_site(&tree, &[("index.html", "<p>hello"), ("a/b.css", "p{}")]);
    host.ok(&["import", tree.to_str().unwrap()]);
    let id = host.version_id("active");
    std::fs::write(host.path("x.zip"), zip(&[stored("a/b.css", "p{}"), deflated("index.html", "<p>hello")])).unwrap();
    assert_eq!(host.ok(&["import", host.path("x.zip").to_str().unwrap(), "--json"]).json()["version"], id);
    // As the source of a sync a folder is refused with advice.
    let text = std::fs::read_to_string(host.path("docwharf.toml")).unwrap().replace("bundle.zip", "tree");
    std::fs::write(host.path("docwharf.toml"), text).unwrap();
    assert!(assert_fails(&host, 2, &["sync"]).stderr.contains("docwharf import"));
}

#[test]
fn an_unchanged_page_keeps_its_etag_and_last_modified_across_versions() {
    let host = Host::configured(&config_with_bundle(""));
    let bundle_with = |other: &str| zip(&[deflated("index.html", "<p>same"), deflated("other.html", other)]);
    host.put_bundle(&bundle_with("one"));
    let daemon = host.run();
    until("the first version", || http::get(&daemon.address, "/other").text() == "one");
    let (page, other) = (http::get(&daemon.address, "/"), http::get(&daemon.address, "/other"));
    host.put_bundle(&bundle_with("two"));
    until("the second version", || http::get(&daemon.address, "/other").text() == "two");
    let (page2, other2) = (http::get(&daemon.address, "/"), http::get(&daemon.address, "/other"));
    assert_eq!(page.header("etag"), page2.header("etag"));
    assert_eq!(page.header("last-modified"), page2.header("last-modified"));
    assert_ne!(other.header("etag"), other2.header("etag"));
}

#[test]
fn each_head_response_has_the_etag_and_length_of_the_served_version() {
    let host = Host::configured(&config_with_bundle(""));
    let bundle_with = |text: &str| zip(&[deflated("index.html", text)]);
    host.put_bundle(&bundle_with("<p>one"));
    let daemon = host.run();
    let etag = |connection: &mut PersistentConnection, method: &str| {
        connection.send(format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n"));
        let response = connection.response(method == "HEAD");
        let field = |name: &str| response.header(name).map(str::to_owned);
        (response.status, field("etag"), field("content-length"))
    };
    until("the first version", || http::get(&daemon.address, "/").text() == "<p>one");
    let mut connection = PersistentConnection::open(&daemon.address);
    for text in ["<p>one", "<p>another"] {
        host.put_bundle(&bundle_with(text));
        until("the version", || http::get(&daemon.address, "/").text() == text);
        let get_response = etag(&mut connection, "GET");
        assert_eq!((get_response.0, get_response.2.as_deref()), (200, Some(text.len().to_string().as_str())));
        for _ in 0..3 {
            assert_eq!(etag(&mut connection, "HEAD"), get_response);
        }
    }
}

#[test]
fn a_sync_ended_by_sigterm_exits_non_zero_and_leaves_the_store_usable() {
    let host = Host::configured(&config_with_bundle(""));
    let big = "a long page that takes a moment to verify; ".repeat(400_000);
    host.put_bundle(&zip(&[deflated("index.html", &big), deflated("b.html", &big), deflated("c.html", &big)]));
    let mut child = host.command(&["sync"]).spawn().unwrap();
    send_signal(&child, "TERM");
    let ended = child.wait().unwrap();
    // The sync may have ended before the signal. If not, it must not report success.
    if !ended.success() {
        // The signal arrives before or after the signal handler is installed.
        let signal = std::os::unix::process::ExitStatusExt::signal(&ended);
        assert!(signal == Some(15) || ended.code() == Some(143), "{ended:?}");
    }
    host.ok(&["sync"]);
}

/// The path of a version's file in the store.
fn stored_file(host: &Host, id: &str, name: &str) -> PathBuf {
    host.path("store/versions").join(id).join(name)
}

fn make_writable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
}

#[test]
fn a_damaged_index_is_rebuilt_from_the_image() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    let index = stored_file(&host, &host.version_id("active"), "index");
    let intact = std::fs::read(&index).unwrap();
    let last = intact.len() - 1;
    // A flipped bit in header, record, table, paths, digest and checksum; a truncated file.
    let flipped_offsets = [12, 70, 160, intact.len() / 2, last - 60, last - 20, last];
    let truncated_lengths = [last, 20, 0];
    for damage in 0..flipped_offsets.len() + truncated_lengths.len() {
        let mut bytes = intact.clone();
        match flipped_offsets.get(damage) {
            Some(&offset) => bytes[offset] ^= 1,
            None => bytes.truncate(truncated_lengths[damage - flipped_offsets.len()]),
        }
        make_writable(&index);
        std::fs::write(&index, &bytes).unwrap();
        assert!(front_page(&host.run()).contains("one"));
        assert_eq!(std::fs::read(&index).unwrap(), intact, "the index is made again with equal bytes");
    }
    std::fs::remove_file(&index).unwrap();
    assert!(front_page(&host.run()).contains("one"));
}

#[test]
fn run_serves_the_previous_version_if_the_active_one_is_lost_or_damaged() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    host.put_bundle(&site("two"));
    host.ok(&["sync"]);
    let two = host.version_id("active");
    let image = stored_file(&host, &two, "site.zip");
    let intact = std::fs::read(&image).unwrap();
    // The image has damaged data, and a server has marked the version as damaged.
    let mut bytes = intact.clone();
    bytes[45] ^= 1; // inside the compressed data of the first member
    make_writable(&image);
    std::fs::write(&image, &bytes).unwrap();
    std::fs::write(host.path("store/suspect"), format!("{two}\n")).unwrap();
    host.configure(&config_with_bundle("enabled = false"));
    assert!(front_page(&host.run()).contains("one"));
    // An import of the bundle repairs the version.
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    assert!(front_page(&host.run()).contains("two"));
    assert_eq!(std::fs::read(&image).unwrap(), intact);
    // The version's folder is removed.
    std::fs::remove_dir_all(image.parent().unwrap()).unwrap();
    assert!(front_page(&host.run()).contains("one"));
}

#[test]
fn run_serves_the_site_although_state_json_is_damaged() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    std::fs::write(host.path("store/state.json"), "{\"active\": ").unwrap();
    let ended = assert_fails(&host, 8, &["status"]);
    assert!(ended.stderr.contains("state.json"), "{}", ended.stderr);
    assert!(front_page(&host.run()).contains("one"));
    assert_eq!(host.status()["schemaVersion"], 1);
}

// Regression: changes that a person had made in `state.json` were lost when the file was made again.
#[test]
fn an_edited_state_json_is_kept_as_state_json_damaged_when_it_is_rebuilt() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    let (path, damaged) = (host.path("store/state.json"), host.path("store/state.json.damaged"));
    for author in ["me", "somebody else"] {
        let hold =
            format!("\"hold\": {{\"who\": \"{author}\", \"when\": \"2026-01-01T00:00:00Z\", \"why\": \"mine\"}}");
        let edited = std::fs::read_to_string(&path).unwrap().replace("\"hold\": null", &hold);
        assert!(edited.contains(author) && edited.contains("\"sum\""), "{edited}");
        std::fs::write(&path, &edited).unwrap();
        let ended = run_to_end(&mut host.command(&["sync"])).expect(0);
        assert!(ended.stderr.contains("state.json is damaged"), "{}", ended.stderr);
        assert!(ended.stderr.contains("state.json.damaged"), "{}", ended.stderr);
        assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
        assert_eq!(std::fs::read_to_string(&damaged).unwrap(), edited);
        assert_eq!(host.status()["hold"], serde_json::Value::Null);
    }
}

// Regression: a lost record took the labels and the hold with it.
#[test]
fn labels_and_hold_survive_the_loss_of_state_json() {
    let host = Host::configured(&config_with_bundle(""));
    for name in ["one", "two"] {
        std::fs::write(host.path(name), site(name)).unwrap();
        host.ok(&["import", host.path(name).to_str().unwrap(), "--label", name]);
    }
    host.ok(&["rollback"]);
    let one = host.version_id("active");
    std::fs::write(host.path("store/state.json"), "{").unwrap();
    host.put_bundle(&site("three"));
    // Prints a warning about the record and the line about the hold.
    run_to_end(&mut host.command(&["sync"])).expect(7);
    assert_eq!(host.version_id("active"), one);
    assert_eq!(host.status()["hold"]["who"], "tester");
    host.ok(&["activate", "two"]);
    assert_ne!(host.version_id("active"), one);
}

// Regression: a fallback from a damaged version replaced the version that the operator held.
#[test]
fn a_held_version_is_served_again_after_its_repair() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    host.put_bundle(&site("two"));
    host.ok(&["sync"]);
    let two = host.version_id("active");
    host.ok(&["activate", &two]);
    let image = stored_file(&host, &two, "site.zip");
    make_writable(&image);
    std::fs::write(&image, "lost").unwrap();
    assert!(front_page(&host.run()).contains("one"));
    assert_eq!(host.version_id("active"), two, "the operator's decision stays");
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    assert!(front_page(&host.run()).contains("two"));
}

#[test]
fn a_watched_folder_is_sealed_again_when_it_changes() {
    let dir = temporary_folder();
    let site = support::write_site(&dir.path().join("site"), &[("index.html", "before")]);
    let daemon = Daemon::serve(&site, &["--watch"]);
    assert_eq!(front_page(&daemon), "before");
    std::fs::write(site.join("index.html"), "after a while").unwrap();
    std::fs::write(site.join("new.html"), "new").unwrap();
    until("the changed page", || front_page(&daemon) == "after a while");
    assert_eq!(http::get(&daemon.address, "/new").text(), "new");
    // A folder without pages is no site. The last version stays served.
    std::fs::remove_file(site.join("index.html")).unwrap();
    std::fs::rename(site.join("new.html"), site.join("new.css")).unwrap();
    assert_eq!(front_page(&daemon), "after a while");
}

// Regression: a label moved to another version without a message.
#[test]
fn a_label_that_moves_to_another_version_is_reported() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap(), "--label", "1.4"]);
    let one = host.version_id("active");
    host.put_bundle(&site("two"));
    let moved = host.ok(&["import", host.path("bundle.zip").to_str().unwrap(), "--label", "1.4"]);
    assert!(moved.stderr.contains(&one[..12]) && moved.stderr.contains("1.4"), "{}", moved.stderr);
    let history = host.ok(&["history"]).stdout;
    assert!(history.lines().any(|line| line.contains("label moved") && line.contains("1.4")), "{history}");
}

// Regression: a version labelled `active` could not be distinguished from the active one.
#[test]
fn reserved_version_names_are_refused_as_labels() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    for label in ["active", "previous", "newest"] {
        let ended = assert_fails(&host, 2, &["import", host.path("bundle.zip").to_str().unwrap(), "--label", label]);
        assert!(ended.stderr.contains("docwharf uses these names itself"), "{}", ended.stderr);
    }
}

// Regression: `history.jsonl` grew without a bound.
#[test]
fn a_truncated_history_still_restores_active_version_and_hold_of_state_json() {
    use std::io::Write;
    let host = Host::configured(&config_with_bundle(""));
    for text in ["one", "two"] {
        host.put_bundle(&site(text));
        host.ok(&["sync"]);
    }
    host.ok(&["rollback"]);
    let held = host.status();
    let path = host.path("store/history.jsonl");
    let line = r#"{"time":"2026-11-21T10:00:00Z","who":"x","what":"refused","note":"not a bundle"}"#;
    let lines = usize::try_from(docwharf::store::history::MAX_HISTORY_BYTES).unwrap() / line.len();
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    file.write_all(format!("{line}\n").repeat(lines).as_bytes()).unwrap();
    host.put_bundle(&site("three"));
    assert_fails(&host, 7, &["sync"]);
    assert!(
        std::fs::metadata(&path).unwrap().len() < docwharf::store::history::MAX_HISTORY_BYTES,
        "the history is truncated"
    );
    std::fs::write(host.path("store/state.json"), "{").unwrap();
    // Prints a line about the record, too.
    run_to_end(&mut host.command(&["sync"])).expect(7);
    let status = host.status();
    assert_eq!(status["active"]["id"], held["active"]["id"]);
    assert!(status["hold"].is_object(), "the hold has outlived history and record: {status}");
}

// Regression: the error reported for a bundle that is still refused was the last error, whatever its subject.
#[test]
fn status_shows_the_original_error_of_a_bundle_that_is_still_refused() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    let daemon = host.run();
    host.put_bundle(b"no archive at all");
    let error = || host.status()["lastAttempt"]["error"].as_str().unwrap_or_default().to_owned();
    until("the refusal", || error().contains("the bundle is a text file"));
    std::fs::rename(host.path("bundle.zip"), host.path("away.zip")).unwrap();
    until("another error", || error().contains("cannot read the bundle"));
    std::fs::rename(host.path("away.zip"), host.path("bundle.zip")).unwrap();
    until("the first refusal again", || error().contains("the bundle is a text file"));
    drop(daemon);
}

// Regression: clients that read nothing kept every version in the store, whatever `keep` and `maxBytes` allowed.
#[test]
fn stalled_downloads_do_not_prevent_the_pruning_of_old_versions() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("before"));
    let daemon = Daemon::start(host.command(&["run"]).env("DOCWHARF_SYNC__KEEP", "0"));
    let content = |n: usize| format!("{n} {}", support::sample_text(1 << 20));
    let mut readers = Vec::new();
    for n in 0..9 {
        let title = format!("<title>{n}</title>");
        host.put_bundle(&zip(&[deflated("index.html", &title), stored("picture.png", &content(n))]));
        until("the next version", || front_page(&daemon) == title);
        readers.push(start_stalled_download(&daemon, "/picture.png"));
    }
    until("old versions are pruned", || versions(&host).len() <= 2);
    // The downloads of removed versions go on.
    let mut rest = Vec::new();
    readers.remove(0).read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(content(0).as_bytes()), "{} bytes", rest.len());
}

/// Requests an address and reads only the first byte of the response.
fn start_stalled_download(daemon: &Daemon, address: &str) -> TcpStream {
    let server: SocketAddr = daemon.address.parse().unwrap();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&server.into()).unwrap();
    let mut stream = TcpStream::from(socket);
    write!(stream, "GET {address} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
    stream.read_exact(&mut [0]).unwrap();
    stream
}

// Regression: any local user could keep `run` from serving a version by `flock` on its image.
#[test]
fn run_serves_a_version_whose_image_another_process_has_locked() {
    let host = Host::configured(&config_with_bundle(""));
    host.put_bundle(&site("one"));
    host.ok(&["sync"]);
    let image = host.path("store/versions").join(&versions(&host)[0]).join("site.zip");
    let file = std::fs::File::open(image).unwrap();
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive).unwrap();
    assert_eq!(front_page(&host.run()), "<title>one</title>");
}
