//! The routes of the admin listener and of the control socket: status, metrics, health, and the staged version.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::verbs::{host, wait_for_next_check};
use serde_json::{Value, json};
use support::host::{Host, bundle, front_page_title, run_with_timeout, toml_string};
use support::upstream::{Upstream, UpstreamCall, error_reply};
use support::{Daemon, http, metrics, until};

#[test]
fn admin_listener_serves_only_get_and_head_and_runs_no_command() {
    let host = host().set("admin.listen", toml_string("127.0.0.1:0"));
    let log = host.path("log");
    let mut command = host.command(&["run"]);
    command.stderr(std::fs::File::create(&log).unwrap());
    let _daemon = Daemon::start(&mut command);
    let admin = || {
        let text = std::fs::read_to_string(&log).unwrap();
        let address = text.split("metrics are at http://").nth(1)?;
        Some(address.split('/').next()?.to_owned())
    };
    until("the admin address", || admin().is_some());
    let admin = admin().unwrap();
    assert_eq!(http::get(&admin, "/livez").text(), "ok\n");
    assert_eq!(http::get(&admin, "/readyz").text(), "ready\n");
    let status: Value = serde_json::from_str(&http::get(&admin, "/status").text()).unwrap();
    assert_eq!(status["schemaVersion"], 1);
    for (path, media_type) in [
        ("/livez", "text/plain; charset=utf-8"),
        ("/readyz", "text/plain; charset=utf-8"),
        ("/status", "application/json"),
        ("/metrics", "text/plain; version=0.0.4; charset=utf-8"),
    ] {
        for method in ["GET", "HEAD", "POST"] {
            let response = http::request_and_close(&admin, method, path, &["Content-Length: 0"]);
            let is_read = method != "POST";
            assert_eq!(response.status, if is_read { 200 } else { 405 }, "{method} {path}");
            assert_eq!(response.body.is_empty(), method == "HEAD", "{method} {path}");
            assert_eq!(response.header("allow"), (!is_read).then_some("GET, HEAD"), "{method} {path}");
            assert_eq!(response.header("cache-control"), Some("no-store"), "{method} {path}");
            assert_eq!(response.header("x-content-type-options"), Some("nosniff"), "{method} {path}");
            if is_read {
                assert_eq!(response.header("content-type"), Some(media_type), "{method} {path}");
            }
        }
    }
    assert_eq!(http::get(&admin, "/livez/").status, 404);
    assert_eq!(http::get(&admin, "/orders").status, 404);
    let command = json!({"verb": "rollback", "who": "other"}).to_string();
    let request = format!(
        "POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{command}",
        command.len()
    );
    assert!(http::send_bytes(&admin, request.as_bytes()).starts_with(b"HTTP/1.1 404"));
    assert!(
        http::send_bytes(
            &admin,
            b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .starts_with(b"HTTP/1.1 405")
    );
    assert_eq!(host.status()["hold"], Value::Null);
    // Health is also read from the admin listener.
    host.ok(&["health"]);
}

/// Returns the status code of a response to a request with this `Host`.
fn status_for(address: &str, host: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8_lossy(&http::send_bytes(address, request.as_bytes())).into_owned();
    answer.split(' ').nth(1).expect("a status").to_owned()
}

// Regression: scripts of a version that no person had approved ran under the address of the admin listener and could
// read `/status`.
#[test]
fn staged_version_is_served_only_on_the_activate_listener() {
    let host = Host::bare()
        .set("activate.mode", toml_string("manual"))
        .set("activate.listen", toml_string("127.0.0.1:0"))
        .set("admin.listen", toml_string("127.0.0.1:0"));
    host.put("bundle.zip", bundle("one"));
    let host = host.set("staticExport.bundleUrl", toml_string("bundle.zip")).set("sync.interval", toml_string("1h"));
    let daemon = host.run();
    until("it is staged", || host.status()["staged"].is_object());
    let (admin, staged) = (host.reported_address("admin"), host.reported_address("staged"));
    let stage = host.ok(&["stage"]).stdout;
    assert!(stage.contains(&staged) && !stage.contains(&admin), "{stage}");
    until("it is shown", || http::get(&staged, "/").status == 200);
    assert!(http::get(&staged, "/").text().contains("one"));
    // The admin routes are not served on this listener.
    for path in ["/livez", "/readyz", "/status", "/metrics", "/orders"] {
        assert_eq!(http::get(&staged, path).status, 404, "{path}");
    }
    // The admin listener, which the browser of an operator trusts, serves no byte of the waiting version.
    for path in ["/", "/index.html", "/style.css", "/no-such-page"] {
        assert_eq!(http::get(&admin, path).status, 404, "{path}");
        assert!(!http::get(&admin, path).text().contains("one"), "{path}");
    }
    assert_eq!(http::get(&admin, "/readyz").status, 503);
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    let id = host.status()["staged"]["version"].as_str().unwrap().to_owned();
    host.ok(&["activate", &id]);
    assert!(http::get(&daemon.address, "/").text().contains("one"));
    until("nothing waits", || http::get(&staged, "/").status == 404);
    let nothing = http::get(&staged, "/");
    assert_eq!(nothing.text(), "404: no version waits to become active\n");
    assert_eq!(nothing.header("cache-control"), Some("no-store"));
    assert_eq!(nothing.header("x-content-type-options"), Some("nosniff"));
}

// Regression: any web page could read `/status` through DNS rebinding.
#[test]
fn admin_listener_serves_status_only_for_its_own_and_configured_host_names() {
    let mut host = host().set("admin.listen", toml_string("127.0.0.1:0"));
    let daemon = host.run();
    let admin = host.reported_address("admin");
    for name in ["127.0.0.1", "localhost", "localhost:8081", "[::1]:8081"] {
        assert_eq!(status_for(&admin, name, "/status"), "200", "{name}");
    }
    for path in ["/status", "/", "/orders"] {
        assert_eq!(status_for(&admin, "evil.example", path), "421", "{path}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(status_for(&admin, "evil.example", path), "200", "{path}: probes may use any name");
    }
    assert_eq!(status_for(&admin, "docs-admin.example", "/status"), "421");
    host.change("admin.hosts", toml_string("docs-admin.example"));
    daemon.signal("HUP");
    until("the name is accepted", || status_for(&admin, "docs-admin.example:8081", "/status") == "200");
    assert_eq!(status_for(&admin, "evil.example", "/status"), "421");
}

// Regression: an inbox that could not be opened was reported in the log only, not by `status` and the metrics.
#[test]
fn status_and_metrics_report_an_unusable_inbox_and_its_recovery() {
    let host = host().set("sync.inbox", toml_string("inbox")).set("admin.listen", toml_string("127.0.0.1:0"));
    host.put("inbox", "in the way");
    let _daemon = host.run();
    let admin = host.reported_address("admin");
    let value = |name: &str| {
        let text = http::get(&admin, "/metrics").text();
        metrics::find(&text, name).map(|value| value.parse::<f64>().unwrap())
    };
    until("the daemon has tried", || !host.status()["daemon"]["inbox"]["error"].is_null());
    let error = host.status()["daemon"]["inbox"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("cannot open the inbox") && error.contains("sync.inbox"), "{error}");
    assert!(host.ok(&["status"]).stdout.contains("cannot open the inbox"));
    assert_eq!(value("docwharf_inbox_ready{}"), Some(0.0));
    assert!(value("docwharf_store_free_bytes").is_some_and(|bytes| bytes > 0.0));
    std::fs::remove_file(host.path("inbox")).unwrap();
    // The daemon may have created it since.
    std::fs::create_dir_all(host.path("inbox")).unwrap();
    until("it is used", || value("docwharf_inbox_ready{}") == Some(1.0));
    assert_eq!(host.status()["daemon"]["inbox"]["error"], Value::Null);
    assert_eq!(value("docwharf_inbox_rejected_total"), Some(0.0));
    std::fs::write(host.path("inbox/bad.zip"), "no archive").unwrap();
    until("it is refused", || value("docwharf_inbox_rejected_total") == Some(1.0));
}

// Regression: `/metrics` answered in the OpenMetrics format, whatever the client accepted.
#[test]
fn metrics_are_prometheus_text_unless_openmetrics_is_accepted() {
    let host = host().set("admin.listen", toml_string("127.0.0.1:0"));
    let _daemon = host.run();
    let admin = host.reported_address("admin");
    let plain = http::get(&admin, "/metrics");
    assert_eq!(plain.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    assert_eq!(plain.header("vary"), Some("Accept"));
    let plain = plain.text();
    let kinds: std::collections::HashMap<&str, &str> =
        plain.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert!(kinds.values().all(|kind| matches!(*kind, "counter" | "gauge" | "histogram")), "{kinds:?}");
    for line in plain.lines().filter(|line| !line.starts_with('#')) {
        let name = line.split(['{', ' ']).next().unwrap();
        let of_histogram = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        assert!(kinds.contains_key(name) || of_histogram.is_some_and(|name| kinds.contains_key(name)), "{line}");
    }
    assert!(!plain.contains("# EOF") && !plain.contains("# UNIT"));
    let open =
        http::request(&admin, "GET", "/metrics", &["Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1"]);
    assert!(open.header("content-type").unwrap().starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(open.text().ends_with("# EOF\n"));
}

#[test]
fn status_and_metrics_report_the_published_version_and_publish_errors() {
    let host = host().set("publish.directory", toml_string("www"));
    let _daemon = host.run();
    until("it is published", || host.status()["daemon"]["publish"]["version"] == host.status()["active"]);
    let metrics = || request_over_socket(&host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(metrics().contains("\ndocwharf_published 1\n"));
    assert!(host.ok(&["status"]).stdout.lines().any(|line| line.starts_with("published ")));
    // A file is in the place of the link.
    std::fs::remove_file(host.path("www/current")).unwrap();
    std::fs::write(host.path("www/current"), "not a link").unwrap();
    host.ok(&["activate", "first"]);
    until("the error is reported", || host.status()["daemon"]["publish"]["error"].is_string());
    assert!(metrics().contains("\ndocwharf_published 0\n"));
    // A daemon that serves the site is ready whether or not the version is published as well.
    assert_eq!(host.status()["daemon"]["publish"]["version"], Value::Null);
    assert_eq!(host.ok(&["health"]).stdout, "ready\n");
}

/// The value of a metric without labels.
fn metric(host: &Host, name: &str) -> String {
    let text = request_over_socket(host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let value = metrics::find(&text, &format!("docwharf_{name}"));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn published_metric_is_0_while_another_version_than_the_served_one_is_published() {
    let host = host().set("publish.directory", toml_string("www"));
    let _daemon = host.run();
    until("it is published", || host.status()["daemon"]["publish"]["version"] == host.status()["active"]);
    let second = host.active().unwrap();
    assert_eq!(metric(&host, "published"), "1");
    // With a record that cannot be read, the next version is not published; the link stays.
    let record = host.path("www/.docwharf.json");
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    host.ok(&["activate", "first"]);
    until("the error is reported", || host.status()["daemon"]["publish"]["error"].is_string());
    assert_eq!(host.status()["daemon"]["publish"]["version"], json!(second));
    assert_eq!(metric(&host, "published"), "0");
    std::fs::remove_dir(&record).unwrap();
    host.ok(&["activate", &second]);
    until("the served version is published again", || metric(&host, "published") == "1");
}

#[test]
fn metrics_of_conditions_are_1_only_while_the_condition_holds() {
    let mut host =
        Host::bare().set("staticExport.bundleUrl", toml_string("bundle.zip")).set("sync.interval", toml_string("1h"));
    host.put("bundle.zip", "<html>no bundle");
    let daemon = host.run();
    until("the socket", || host.path("store/control.sock").exists());
    until("the first check has failed", || metric(&host, "consecutive_failures") != "0");
    let conditions = ["ready", "held", "pinned", "gate_refused", "config_reload_success", "store_damaged_versions"];
    let values = || conditions.map(|name| metric(&host, name)).join(" ");
    assert_eq!(values(), "0 0 0 0 1 0");
    let times = || {
        ["last_attempt", "next_look", "last_success", "active_since", "active_verified"]
            .map(|name| metric(&host, &format!("{name}_timestamp_seconds")).parse::<f64>().expect("a number"))
    };
    until("the next check is planned", || times()[1] > times()[0]);
    let [attempt, _, others @ ..] = times();
    assert!(attempt > 1e9, "{attempt}");
    assert!(others.iter().all(|time| *time == 0.0), "{others:?}: a time that is unknown is 0");
    host.put("bundle.zip", bundle("one"));
    host.ok(&["sync"]);
    until("it is served", || values() == "1 0 0 0 1 0");
    until("each time is known", || times().iter().all(|time| *time >= attempt));
    host.ok(&["hold"]);
    assert_eq!(values(), "1 1 0 0 1 0");
    host.ok(&["release"]);
    assert_eq!(values(), "1 0 0 0 1 0");
    std::fs::write(host.path("store/suspect"), format!("{}\n", host.active().unwrap())).unwrap();
    assert_eq!(values(), "1 0 0 0 1 1");
    std::fs::write(host.path("store/suspect"), "").unwrap();
    host.change("staticExport.version", toml_string("one"));
    daemon.signal("HUP");
    until("the pin is in force", || metric(&host, "pinned") == "1");
    host.change("sync.keep", "-1");
    daemon.signal("HUP");
    until("the mistake is reported", || metric(&host, "config_reload_success") == "0");
    assert_eq!(metric(&host, "pinned"), "1", "the configuration before is in force");
    let doctor = run_with_timeout(&mut host.command(&["doctor", "--offline"])).expect(1).stdout;
    let warning = "the running docwharf has not applied the configuration: ";
    assert!(doctor.lines().any(|line| line.starts_with("warning  store ") && line.contains(warning)), "{doctor}");
    host.remove("sync.keep");
    host.remove("staticExport.version");
    daemon.signal("HUP");
    until("the correction is in force", || metric(&host, "config_reload_success") == "1");
    until("nothing is pinned", || metric(&host, "pinned") == "0");
}

// Regression: `run` ended with exit code 2 beside a version that waited for activation when its source was missing or
// none was configured.
#[test]
fn daemon_with_a_staged_version_runs_without_a_source_or_with_a_missing_one() {
    for source in [None, Some("gone.zip")] {
        let host = Host::bare().set("activate.mode", toml_string("manual")).set("sync.interval", toml_string("1h"));
        host.put("bundle.zip", bundle("one"));
        let host = source.into_iter().fold(host, |host, name| host.set("staticExport.bundleUrl", toml_string(name)));
        let staged = host.ok(&["import", host.path("bundle.zip").to_str().unwrap(), "--json"]).json();
        let daemon = host.run();
        until("its first check has ended", || host.status()["daemon"]["doing"].is_null());
        assert_eq!(http::get(&daemon.address, "/").status, 503);
        host.ok(&["activate", staged["version"].as_str().unwrap()]);
        assert_eq!(front_page_title(&daemon), "one");
    }
}

#[test]
fn metrics_follow_prometheus_conventions_and_count_requests_syncs_and_imports() {
    let host = host();
    let daemon = host.run();
    wait_for_next_check(&host);
    for path in ["/", "/guide", "/no-such-page"] {
        http::request_and_close(&daemon.address, "GET", path, &[]);
    }
    http::request_and_close(&daemon.address, "GET", "/", &["If-None-Match: *"]);
    host.ok(&["hold"]);
    host.put("bundle.zip", "<html>no bundle");
    let mut metrics = String::new();
    // The record is written a moment before the counters.
    until("a refusal", || {
        metrics = request_over_socket(&host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        metrics.contains("docwharf_consecutive_failures 1\n")
    });
    for line in [
        "docwharf_sync_attempts_total{result=\"already_current\"} 1",
        "docwharf_sync_attempts_total{result=\"failed\"} 1",
        "docwharf_sync_duration_seconds_count 2",
        "docwharf_sync_attempts_total{result=\"not_activated\"} 0",
        "docwharf_imports_total{result=\"activated\"} 0",
        "docwharf_imports_total{result=\"failed\"} 0",
        "docwharf_consecutive_failures 1",
        "docwharf_held 1",
        "docwharf_ready 1",
        "docwharf_store_versions 2",
        "docwharf_http_requests_total{code=\"2xx\"} 2",
        "docwharf_http_requests_total{code=\"3xx\"} 1",
        "docwharf_http_requests_total{code=\"4xx\"} 1",
        "docwharf_http_requests_total{code=\"5xx\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
    let versions = host.ok(&["versions", "--json"]).json()["versions"].clone();
    let bytes: u64 = versions.as_array().unwrap().iter().map(|version| version["bytes"].as_u64().unwrap()).sum();
    assert!(metrics.contains(&format!("\ndocwharf_store_bytes {bytes}\n")), "{bytes} in {metrics}");
    let before = host.active().unwrap();
    let active = |text: &str| {
        let lines = text.lines().filter(|line| line.starts_with("docwharf_active_version_info{"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let line = |id: &str| vec![format!("docwharf_active_version_info{{version=\"{}\"}} 1", &id[..12])];
    assert_eq!(active(&metrics), line(&before));
    host.ok(&["activate", "first"]);
    let after = host.active().unwrap();
    assert_ne!(before, after);
    // The line of the previous version is removed.
    until("the other version's line", || {
        let text = request_over_socket(&host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        active(&text) == line(&after)
    });
    for name in ["last_success_timestamp_seconds", "last_attempt_timestamp_seconds", "store_bytes", "build_info"] {
        assert!(metrics.contains(&format!("\ndocwharf_{name}")), "{name} in {metrics}");
    }
    let body = &metrics[metrics.find("# HELP").unwrap()..];
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.starts_with("docwharf_") && line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
    }
    assert!(!metrics.contains("# EOF"), "that is OpenMetrics, which was not requested");
    for absent in ["docwharf_inbox_ready{", "docwharf_tls_certificate"] {
        assert!(!metrics.contains(&format!("\n{absent}")), "{absent}: a 0 would be an alert");
    }
    // A person's imports are counted apart from the checks of the source.
    host.expect_exit(7, &["import", host.path("third.zip").to_str().unwrap()]);
    host.expect_exit(5, &["import", host.path("bundle.zip").to_str().unwrap()]);
    until("both imports are counted", || {
        let text = request_over_socket(&host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let count = |line: &str| text.lines().any(|found| found == line);
        count("docwharf_imports_total{result=\"not_activated\"} 1")
            && count("docwharf_imports_total{result=\"failed\"} 1")
            && count("docwharf_sync_attempts_total{result=\"not_activated\"} 0")
    });
}

/// Returns the response of the control socket to a request.
pub(crate) fn request_over_socket(host: &Host, request: &str) -> String {
    let mut stream = UnixStream::connect(host.path("store/control.sock")).expect("the daemon listens");
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    response
}

// Regression: the control socket was visible under its name before its mode was set.
#[test]
fn control_socket_has_mode_0600_and_is_replaced_after_a_crash() {
    let host = host();
    let mut daemon = host.run();
    until("the socket", || host.path("store/control.sock").exists());
    let mode = std::fs::metadata(host.path("store/control.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        request_over_socket(
            &host,
            "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
        )
        .starts_with("HTTP/1.1 400")
    );
    let get = request_over_socket(&host, "GET /orders HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(get.starts_with("HTTP/1.1 405") && get.contains("\r\nallow: POST\r\n"), "{get}");
    // Of a longer command, the daemon keeps no more than 64 KiB in memory.
    let command = json!({"verb": "hold", "who": "tester", "reason": "x".repeat(64 * 1024)}).to_string();
    let head = format!("POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n", command.len());
    let mut stream = UnixStream::connect(host.path("store/control.sock")).expect("the daemon listens");
    // The daemon may respond and close the connection before it has read all.
    let _ = stream.write_all(format!("{head}Connection: close\r\n\r\n{command}").as_bytes());
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    let response = String::from_utf8_lossy(&response);
    assert!(response.starts_with("HTTP/1.1 400") && response.contains("this is not a command"), "{response}");
    assert_eq!(host.status()["hold"], Value::Null);
    daemon.signal("KILL");
    daemon.wait(std::time::Duration::from_secs(20));
    // The leftover socket stops neither a command nor the next daemon.
    host.ok(&["hold"]);
    let _daemon = host.run();
    until("the daemon responds", || host.status()["daemon"].is_object());
}

/// Listens at `path`, and closes each connection. The listening process, as the kernel names it to clients, has ended.
#[allow(unsafe_code)] // `pre_exec`
fn listen_as_an_ended_process(path: &Path) {
    let listener = UnixListener::bind(path).unwrap();
    let in_child = listener.try_clone().unwrap();
    let mut child = Command::new("true");
    // SAFETY: the closure makes one system call, on a descriptor that is open in the child.
    unsafe {
        child.pre_exec(move || Ok(rustix::net::listen(&in_child, 16)?));
    }
    assert!(child.status().unwrap().success());
    std::thread::spawn(move || listener.incoming().for_each(drop));
}

// Regression: a child of a killed daemon has the daemon's socket and lock until its `exec`. A command took it for the
// daemon, and failed.
#[test]
fn a_command_takes_no_child_of_a_killed_daemon_for_the_daemon() {
    let host = host();
    host.sync();
    listen_as_an_ended_process(&host.path("store/control.sock"));
    let lock = std::fs::File::open(host.path("store/lock")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let mut hold = host.command(&["hold"]);
    let mut hold = hold.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut notice = String::new();
    BufReader::new(hold.stderr.take().unwrap()).read_line(&mut notice).unwrap();
    assert!(notice.contains("another docwharf process writes to"), "{notice}");
    drop(lock);
    assert!(hold.wait().unwrap().success());
    assert!(host.status()["hold"].is_object());
}

#[test]
fn control_socket_works_with_a_store_path_over_300_bytes() {
    let host = host();
    let deep = (0..12).fold(host.path("deep"), |path, n| path.join(format!("a-folder-with-a-long-name-{n}")));
    let host = host.set("store.path", toml_string(deep.to_str().unwrap()));
    assert!(deep.as_os_str().len() > 300);
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "second");
    assert_eq!(host.status()["daemon"]["pid"], daemon.pid());
    host.ok(&["hold"]);
}

#[test]
fn health_exits_1_until_a_version_can_be_served() {
    let upstream = Upstream::new(bundle("one"));
    upstream.on(UpstreamCall::Start).respond_with(error_reply(503));
    let host = Host::new(&upstream);
    assert!(host.expect_exit(1, &["health"]).stderr.contains("docwharf run"));
    let _daemon = host.run();
    until("it is alive", || run_with_timeout(&mut host.command(&["health", "--live"])).code == Some(0));
    assert!(host.expect_exit(1, &["health"]).stderr.contains("no version yet"));
    assert_eq!(host.ok(&["health", "--live", "--json"]).json(), json!({"schemaVersion": 1, "result": "live"}));
    upstream.clear_rules();
    until("it is ready", || run_with_timeout(&mut host.command(&["health"])).code == Some(0));
    assert_eq!(host.ok(&["health", "--json"]).json(), json!({"schemaVersion": 1, "result": "ready"}));
    // A check that runs every few seconds prints nothing with --quiet.
    assert_eq!(host.ok(&["health", "--quiet"]).stdout, "");
}
