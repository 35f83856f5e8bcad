//! `doctor`: reports each fault and its remedy in a line each, and changes nothing.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::disk::SmallDisk;
use support::host::{Host, bundle, large_bundle, run_with_timeout, toml_string};
use support::proxy::ForwardProxy;
use support::tls::CertificateAuthority;
use support::upstream::{KEY, SIGNATURE, Upstream, UpstreamCall, error_reply, raw_reply};
use support::zip::{Member, deflated, zip};
use support::{CommandOutput, ReservedPort, docwharf, read_tree, run_to_end, temporary_folder, until};

/// The checks whose result depends on the machine that runs the tests.
const MACHINE: [&str; 3] = ["disk", "inotify", "descriptors"];

/// A host on which no check fails.
fn healthy(upstream: &Upstream) -> Host {
    Host::new(upstream).set("sync.probe", format!("[{}]", toml_string(&upstream.probe_url())))
}

pub(super) fn doctor(host: &Host, more: &[&str]) -> Command {
    host.command(&[&["doctor", "--json"], more].concat())
}

/// Returns the checks of a report. The exit code must be 1 if and only if a check is an error.
#[track_caller]
pub(super) fn parse_checks(output: &CommandOutput) -> Vec<Value> {
    let report = output.json();
    assert_eq!(report["schemaVersion"], 1);
    let checks = report["checks"].as_array().unwrap().clone();
    let count = |status: &str| checks.iter().filter(|check| check["status"] == status).count();
    let (errors, warnings) = (count("error"), count("warning"));
    assert_eq!(report["warnings"], warnings, "{output:?}");
    assert_eq!(
        (output.code, report["errors"].as_u64()),
        (Some(i32::from(errors > 0)), Some(errors as u64)),
        "{output:?}"
    );
    for check in &checks {
        let found = check["found"].as_str().unwrap();
        assert!(!found.is_empty() && !found.chars().any(char::is_control), "{check}");
        assert_eq!(check["status"] != "ok", check["advice"].is_string(), "{check}");
    }
    checks
}

#[track_caller]
pub(super) fn checks(host: &Host, more: &[&str]) -> Vec<Value> {
    parse_checks(&run_with_timeout(&mut doctor(host, more)))
}

/// Asserts that a check of this name and status contains all of these texts.
#[track_caller]
pub(super) fn assert_check(checks: &[Value], name: &str, status: &str, words: &[&str]) {
    let matches = |check: &&Value| {
        let all = format!("{} {}", check["found"], check["advice"]);
        check["name"] == name && check["status"] == status && words.iter().all(|word| all.contains(word))
    };
    assert!(checks.iter().any(|check| matches(&check)), "no {status} of {name} with {words:?}: {checks:#?}");
}

#[test]
fn doctor_reports_a_healthy_host_starts_no_export_and_writes_nothing() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    let before = read_tree(host.dir.path());
    let found = checks(&host, &[]);
    for check in &found {
        assert!(check["status"] == "ok" || MACHINE.contains(&check["name"].as_str().unwrap()), "{check}");
    }
    for name in [
        "configuration",
        "deployment",
        "key",
        "proxy",
        "names",
        "tls",
        "api",
        "probe",
        "clock",
        "disk",
        "store",
        "permissions",
        "search",
        "ports",
        "inotify",
        "descriptors",
    ] {
        assert!(found.iter().any(|check| check["name"] == name), "{name}: {found:#?}");
    }
    assert_check(&found, "api", "ok", &["accepts the key"]);
    assert_eq!(read_tree(host.dir.path()), before);
    assert!(!host.path("store").exists());
    assert_eq!(
        (upstream.log().len(), upstream.count(UpstreamCall::Poll), upstream.count(UpstreamCall::Probe)),
        (2, 1, 1)
    );
    // Also with a store.
    host.sync();
    let before = read_tree(&host.path("store"));
    assert_check(&checks(&host, &[]), "store", "ok", &["1 version", "active"]);
    assert_eq!(read_tree(&host.path("store")), before);
    assert_eq!(
        (
            upstream.count(UpstreamCall::Start),
            upstream.count(UpstreamCall::Link),
            upstream.count(UpstreamCall::Download)
        ),
        (1, 1, 1)
    );
}

#[test]
fn doctor_offline_opens_no_connection() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    let found = checks(&host, &["--offline"]);
    assert_eq!(upstream.connections(), 0);
    for name in ["names", "tls", "api", "probe", "link"] {
        assert!(found.iter().all(|check| check["name"] != name), "{name}: {found:#?}");
    }
    assert_check(&found, "clock", "ok", &["not checked"]);
}

#[test]
fn doctor_text_is_aligned_and_coloured_only_with_color_always() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    let plain = host.command(&["doctor", "--offline"]).output().unwrap();
    let plain = String::from_utf8(plain.stdout).unwrap();
    assert!(!plain.contains('\x1b'), "{plain}");
    let column = plain.lines().next().unwrap().find('/').unwrap();
    for line in plain.lines() {
        assert!(line.is_char_boundary(column) && line.as_bytes()[column - 1] == b' ', "{line}");
        assert!(["ok ", "warning ", "error ", "        "].iter().any(|word| line.starts_with(word)), "{line}");
    }
    let coloured = host.command(&["doctor", "--offline", "--color", "always"]).output().unwrap();
    assert!(String::from_utf8(coloured.stdout).unwrap().starts_with("\x1b[32mok     \x1b[0m  configuration"));
}

#[test]
fn doctor_reports_an_invalid_or_missing_configuration_and_runs_the_other_checks() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream).set("sync.keep", "-1").set("limits.entries", "0");
    let found = checks(&host, &[]);
    assert_check(&found, "configuration", "error", &["sync.keep", "docwharf.toml:"]);
    assert_check(&found, "configuration", "error", &["limits.entries"]);
    assert_check(&found, "store", "ok", &["does not exist yet"]);
    let none = temporary_folder();
    let mut command = docwharf();
    command.args(["doctor", "--json"]).env("DOCWHARF_STORE__PATH", none.path().join("store"));
    let found = parse_checks(&run_to_end(&mut command));
    assert_check(&found, "configuration", "error", &["nothing to serve", "config init"]);
    assert!(!none.path().join("store").exists());
    let host = healthy(&upstream).set("api.caFile", toml_string("absent.pem"));
    assert_check(&checks(&host, &[]), "configuration", "warning", &["absent.pem"]);
    let host = healthy(&upstream).set("sync.inbox", toml_string("inbox"));
    let inbox = || {
        let found = checks(&host, &["--offline"]);
        let check = found.iter().find(|check| check["name"] == "inbox").expect("the inbox is checked");
        assert_eq!(check["status"], "ok", "{check}");
        check["found"].as_str().unwrap().contains("inbox, which is created when docwharf runs: ")
    };
    assert!(inbox() && !host.path("inbox").exists());
    std::fs::create_dir(host.path("inbox")).unwrap();
    assert!(!inbox());
}

#[test]
fn doctor_reports_an_unusable_or_world_readable_api_key() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    std::fs::set_permissions(host.path("key"), PermissionsExt::from_mode(0o644)).unwrap();
    assert_check(&checks(&host, &["--offline"]), "key", "warning", &["mode 0644", "chmod 0640"]);
    for (key, word) in [("one\ntwo", "control characters"), ("", "empty")] {
        host.put("key", key);
        assert_check(&checks(&host, &["--offline"]), "key", "error", &[word, "put the key"]);
    }
    std::fs::remove_file(host.path("key")).unwrap();
    assert_check(&checks(&host, &["--offline"]), "key", "error", &["cannot read the API key"]);
}

#[test]
fn doctor_checks_the_api_key_in_the_systemd_credentials_directory() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream).without("api.keyFile");
    assert_check(&checks(&host, &["--offline"]), "key", "error", &["no API key", "/etc/docwharf/api-key"]);
    let unit = temporary_folder();
    std::fs::write(unit.path().join("api-key"), KEY).unwrap();
    let found = parse_checks(&run_with_timeout(doctor(&host, &[]).env("CREDENTIALS_DIRECTORY", unit.path())));
    assert_check(&found, "key", "ok", &["api-key"]);
    assert_check(&found, "api", "ok", &["accepts the key"]);
}

#[test]
fn doctor_reports_api_probe_and_link_errors_with_advice() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    for (reply, status, words) in [
        (error_reply(401), "error", &["does not accept the key", "scripted reply 401", "by a valid one"][..]),
        (error_reply(403), "error", &["not for this", "read-only"]),
        (error_reply(503), "warning", &["try again later"]),
        (raw_reply("text/html", "<h1>Not found</h1>").status(404), "error", &["does not speak", "/v1"]),
        (
            raw_reply("text/html", "").status(302).header("Location", "https://elsewhere.example/"),
            "error",
            &["redirects to another address"],
        ),
    ] {
        upstream.clear_rules();
        upstream.on(UpstreamCall::Poll).respond_with(reply);
        assert_check(&checks(&host, &[]), "api", status, words);
    }
    upstream.on(UpstreamCall::Probe).respond_with(error_reply(404));
    assert_check(&checks(&host, &[]), "probe", "warning", &["responds with 404", "sync.probe"]);
    for (status, is_reported) in [(200, false), (299, false), (400, true), (500, true)] {
        upstream.clear_rules();
        upstream.on(UpstreamCall::Probe).respond_with(raw_reply("text/plain", "").status(status));
        let found = checks(&host, &[]);
        let is_warned = found.iter().any(|check| check["name"] == "probe" && check["status"] == "warning");
        assert_eq!(is_warned, is_reported, "{status}: {found:#?}");
    }
    let closed = Upstream::closed(bundle("one"));
    assert_check(&checks(&Host::new(&closed), &[]), "api", "error", &["cannot connect", "firewall"]);
    // Without a probe, exports are only less frequent; without its link, a sync has nothing.
    let host = host.set("sync.probe", format!("[{}]", toml_string(&format!("{}/sitemap.xml", closed.api_origin()))));
    let found = checks(&host, &[]);
    assert_check(&found, "probe", "warning", &["cannot connect", "only sync.maxAge starts exports"]);
    assert!(found.iter().all(|check| check["status"] != "error"), "{found:#?}");
    let found = checks(&Host::linked(&format!("{}/bundle.zip", closed.api_origin())), &[]);
    assert_check(&found, "link", "error", &["cannot connect", "firewall"]);
}

#[test]
fn doctor_reports_clock_skew_against_a_server_or_a_receipt() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    for (skew, status) in [(30, "ok"), (120, "warning"), (-120, "warning"), (1200, "error"), (-1200, "error")] {
        upstream.state().skew = skew;
        let word = if skew.abs() < 60 {
            "within a minute"
        } else if skew > 0 {
            "behind"
        } else {
            "ahead of"
        };
        assert_check(&checks(&host, &[]), "clock", status, &[word]);
    }
    host.sync();
    let receipts = host.path("store/receipts").join(host.active().unwrap());
    let receipt = std::fs::read_dir(receipts).unwrap().next().unwrap().unwrap().path();
    let mut content: Value = serde_json::from_slice(&std::fs::read(&receipt).unwrap()).unwrap();
    content["time"] = "2999-01-01T00:00:00Z".into();
    std::fs::write(&receipt, content.to_string()).unwrap();
    assert_check(&checks(&host, &["--offline"]), "clock", "error", &["newest receipt is of 2999", "timedatectl"]);
}

// Regression: a host that only delivers analytics was told that no requests are sent over the network.
#[test]
#[cfg(feature = "analytics")]
fn doctor_reaches_the_origin_of_a_delivery_without_its_key() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::bare()
        .set("analytics.deliver.baseUrl", toml_string(&upstream.base_url()))
        .set("analytics.deliver.keyFile", toml_string("origin-key"));
    host.put("origin-key", KEY);
    let host_name = upstream.base_url().trim_start_matches("http://").trim_end_matches("/v1").to_owned();
    let responds = format!("{host_name} responds; the key was not tried");
    assert_check(&checks(&host, &[]), "delivery", "ok", &[&responds]);
    let unreachable = host.set("analytics.deliver.baseUrl", toml_string("http://127.0.0.1:1/v1"));
    assert_check(&checks(&unreachable, &[]), "delivery", "error", &["check the address"]);
}

#[test]
fn doctor_reports_a_host_name_that_does_not_resolve() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream).set("api.baseUrl", toml_string("http://api.invalid/v1"));
    let host = host.set("network.connectTimeout", toml_string("3s"));
    let found = checks(&host, &[]);
    assert_check(&found, "names", "error", &["api.invalid", "resolv.conf"]);
    assert!(found.iter().all(|check| check["name"] != "api"), "it is not requested in vain: {found:#?}");
}

#[test]
fn doctor_reports_an_untrusted_certificate_or_the_expiry_of_a_trusted_one() {
    let authority = CertificateAuthority::new();
    let upstream = authority.upstream("127.0.0.1", bundle("one"));
    let mut host = Host::new(&upstream);
    assert_check(&checks(&host, &[]), "tls", "error", &["unknown authority", "api.caFile"]);
    host.put("ca.pem", authority.pem());
    host.change("api.caFile", toml_string("ca.pem"));
    let found = checks(&host, &[]);
    assert_check(&found, "tls", "ok", &["trusted: 127.0.0.1", "until "]);
    assert_check(&found, "api", "ok", &["accepts the key"]);
    host.put("ca.pem", "nothing");
    assert_check(&checks(&host, &[]), "tls", "error", &["holds no PEM certificate", "correct api.caFile"]);
}

#[test]
fn doctor_warns_about_an_api_certificate_that_expires_within_14_days() {
    let authority = CertificateAuthority::new();
    let hour = Duration::from_hours(1);
    for (remaining, is_reported) in [((14 * 24 + 1) * hour, false), ((14 * 24 - 1) * hour, true)] {
        let upstream = authority.upstream_expiring_in("127.0.0.1", bundle("one"), remaining);
        let host = Host::new(&upstream).set("api.caFile", toml_string("ca.pem"));
        host.put("ca.pem", authority.pem());
        let found = checks(&host, &[]);
        assert_check(&found, "tls", "ok", &["trusted: 127.0.0.1"]);
        assert_eq!(found.iter().any(|check| check.to_string().contains("expires soon")), is_reported, "{found:#?}");
        if is_reported {
            assert_check(&found, "tls", "warning", &["the certificate of 127.0.0.1", "expires soon", "renew it"]);
        }
    }
}

#[test]
fn doctor_shows_proxies_without_passwords_and_honours_no_proxy() {
    let upstream = Upstream::new(bundle("one"));
    let proxy = ForwardProxy::new();
    let host = healthy(&upstream);
    let proxy_url = proxy.url().replace("http://", "http://user:pa55word@");
    let output = run_with_timeout(doctor(&host, &[]).env("HTTP_PROXY", &proxy_url).env("NO_PROXY", "other.example"));
    let found = parse_checks(&output);
    assert_check(&found, "proxy", "ok", &["HTTP_PROXY, NO_PROXY set", &format!("through {}", proxy.url())]);
    assert_check(&found, "names", "ok", &["is looked up by the proxy"]);
    assert!(!proxy.request_lines().is_empty());
    assert!(!output.stdout.contains("pa55word") && !output.stderr.contains("pa55word"), "{output:?}");
    let found =
        parse_checks(&run_with_timeout(doctor(&host, &[]).env("HTTP_PROXY", &proxy_url).env("NO_PROXY", "127.0.0.1")));
    assert_check(&found, "proxy", "ok", &["127.0.0.1", " directly"]);
    // `*` turns proxies off.
    for name in ["NO_PROXY", "no_proxy"] {
        let requests = proxy.request_lines().len();
        let found = parse_checks(&run_with_timeout(doctor(&host, &[]).env("HTTP_PROXY", &proxy_url).env(name, " * ")));
        assert_check(&found, "proxy", "ok", &["127.0.0.1", " directly"]);
        assert_check(&found, "names", "ok", &[" is 127.0.0.1"]);
        assert_eq!(proxy.request_lines().len(), requests, "{name}");
    }
    let found = parse_checks(&run_with_timeout(doctor(&host, &[]).env("http_proxy", "::not a proxy::")));
    assert_check(&found, "proxy", "warning", &["$http_proxy", "http://proxy.example:3128"]);
}

#[test]
fn doctor_distinguishes_a_port_used_by_another_program_or_the_daemon() {
    let upstream = Upstream::new(bundle("one"));
    let port = ReservedPort::new();
    let address = &port.address;
    let host = healthy(&upstream).set("server.listen", toml_string(address));
    let other = port.listen();
    assert_check(&checks(&host, &["--offline"]), "ports", "error", &[address, "another program", "ss -ltnp"]);
    for key in ["admin.listen", "activate.listen"] {
        let host = healthy(&upstream).set("activate.mode", toml_string("manual")).set(key, toml_string(address));
        let found = checks(&host, &["--offline"]);
        assert_check(&found, "ports", "ok", &["127.0.0.1:0: any free port"]);
        assert_check(&found, "ports", "error", &[address, "another program", &format!("another port in {key}")]);
    }
    let elsewhere = healthy(&upstream).set("server.listen", toml_string("192.0.2.1:8080"));
    assert_check(&checks(&elsewhere, &["--offline"]), "ports", "error", &["does not have that address"]);
    drop(other);
    assert_check(&checks(&host, &["--offline"]), "ports", "ok", &[address, "is free"]);
    let daemon = host.run();
    assert_eq!(daemon.address, *address);
    let found = checks(&host, &["--offline"]);
    assert_check(&found, "ports", "ok", &[&format!("pid {}", daemon.pid())]);
    until("the daemon has a version", || host.active().is_some());
    assert_check(&checks(&host, &["--offline"]), "store", "ok", &[&format!("active; in use by pid {}", daemon.pid())]);
}

#[test]
fn doctor_reports_a_full_or_nearly_full_disk() {
    let disk = SmallDisk::new("size=4m,nr_inodes=100");
    let mut host = Host::bare().set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    host.put("b.zip", large_bundle("one", 1_000_000));
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    assert_check(&checks(&host, &["--offline"]), "disk", "warning", &["tmpfs", "put the store on a disk"]);
    assert_check(&checks(&host, &["--offline"]), "disk", "warning", &["files more can be created", "remove files"]);
    disk.leave_free_bytes(1 << 20);
    assert_check(&checks(&host, &["--offline"]), "disk", "warning", &["1.0 MB free", "less than twice", "sync.keep"]);
    host.change("store.minFree", toml_string("2MiB"));
    assert_check(
        &checks(&host, &["--offline"]),
        "disk",
        "error",
        &["no space", "2.1 MB must stay free (store.minFree)"],
    );
    host.remove("store.minFree");
    disk.leave_free_bytes(0);
    assert_check(&checks(&host, &["--offline"]), "disk", "error", &["no space", "0 B free"]);
    host.change("store.maxBytes", "500000");
    assert_check(&checks(&host, &["--offline"]), "disk", "warning", &["store.maxBytes (500 kB)", "raise"]);
}

#[test]
fn doctor_disk_thresholds_are_exact_and_exclude_the_min_free_space() {
    let disk = SmallDisk::new("size=8m,nr_inodes=1100");
    let mut host = Host::bare().set("store.path", toml_string(disk.path("store").to_str().unwrap()));
    host.put("b.zip", large_bundle("one", 1_000_000));
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    let store = docwharf::store::VersionStore::at(&disk.path("store"));
    let size = store.versions().unwrap()[0].bytes;
    let with_derived = store.sizes().unwrap()[0].1;
    let is_reported = |host: &Host, words: &str| {
        let found = checks(host, &["--offline"]);
        found
            .iter()
            .any(|check| check["name"] == "disk" && check["status"] != "ok" && check.to_string().contains(words))
    };
    // The space beyond store.minFree is compared with the space that a bundle like the largest version needs.
    disk.leave_free_bytes(3 << 20);
    assert!(!is_reported(&host, "less than twice"));
    host.change("store.minFree", ((3 << 20) - 2 * size).to_string());
    assert!(!is_reported(&host, "less than twice"));
    host.change("store.minFree", ((3 << 20) - 2 * size + 1).to_string());
    assert!(is_reported(&host, "less than twice"));
    host.change("store.minFree", (3 << 20).to_string());
    assert!(is_reported(&host, "less than twice") && !is_reported(&host, "no space"));
    host.change("store.minFree", ((3 << 20) + 1).to_string());
    assert!(is_reported(&host, "no space"));
    host.remove("store.minFree");
    host.change("store.maxBytes", with_derived.to_string());
    assert!(!is_reported(&host, "store.maxBytes"));
    host.change("store.maxBytes", (with_derived - 1).to_string());
    assert!(is_reported(&host, "store.maxBytes"));
    disk.leave_free_inodes(1000);
    assert!(!is_reported(&host, "more can be created"));
    disk.leave_free_inodes(999);
    assert!(is_reported(&host, "more can be created"));
}

/// Makes the command run as a user whose access is limited by permissions.
fn as_unprivileged_user(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() { command.uid(65534).gid(65534) } else { command }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn doctor_names_the_first_path_component_without_permission() {
    let dir = temporary_folder();
    set_mode(dir.path(), 0o755);
    // In a place from which every user may run it.
    let program = dir.path().join("docwharf");
    support::copy_program(&program);
    set_mode(&program, 0o755);
    let config = dir.path().join("c.toml");
    let inbox = dir.path().join("shut/further/inbox");
    std::fs::create_dir_all(&inbox).unwrap();
    std::fs::write(&config, "[store]\npath = \"store\"\n[sync]\ninbox = \"shut/further/inbox\"\n").unwrap();
    set_mode(&config, 0o644);
    let shut = dir.path().join("shut");
    let uid = if rustix::process::geteuid().is_root() { 65534 } else { rustix::process::geteuid().as_raw() };
    let checked = docwharf::base::accounts::describe_user(uid);
    for (name, mode, store, words) in [
        ("inbox", 0o000, 0o777, [format!("{}: {checked}", inbox.display()), format!("lacks x on {}", shut.display())]),
        (
            "permissions",
            0o755,
            0o555,
            [format!("lacks w on {}", dir.path().join("store").display()), "chown".to_owned()],
        ),
    ] {
        std::fs::create_dir_all(dir.path().join("store")).unwrap();
        set_mode(&dir.path().join("store"), store);
        set_mode(&inbox, 0o777);
        set_mode(&shut, mode);
        let mut command = Command::new(&program);
        command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
        let output = run_to_end(as_unprivileged_user(&mut command));
        set_mode(&shut, 0o755);
        set_mode(&dir.path().join("store"), 0o755);
        assert_check(&parse_checks(&output), name, "error", &words.each_ref().map(String::as_str));
    }
    // Starting docwharf does not help with a store that cannot be read.
    set_mode(&dir.path().join("store"), 0o000);
    let mut command = Command::new(&program);
    command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
    let output = run_to_end(as_unprivileged_user(&mut command));
    set_mode(&dir.path().join("store"), 0o755);
    let words = ["Permission denied", "the check of permissions, below"];
    assert_check(&parse_checks(&output), "store", "error", &words);
    // Files are imported from an inbox that can only be read.
    set_mode(&inbox, 0o555);
    let mut command = Command::new(&program);
    command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
    let lacks = format!("lacks w on {}", inbox.display());
    let words = [lacks.as_str(), "bundles are imported from it, but stay there", "nothing to do if"];
    assert_check(&parse_checks(&run_to_end(as_unprivileged_user(&mut command))), "inbox", "warning", &words);
    // Regression: nothing but one line of the log said that a bundle in the inbox cannot be read.
    let unreadable = inbox.join("private.zip");
    std::fs::write(&unreadable, "").unwrap();
    set_mode(&unreadable, 0o000);
    let mut command = Command::new(&program);
    command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
    let lacks = format!("lacks r on {}", unreadable.display());
    assert_check(&parse_checks(&run_to_end(as_unprivileged_user(&mut command))), "inbox", "error", &[&lacks]);
    // Regression: the advice for a configuration that the user may not read was to correct it.
    set_mode(&config, 0o000);
    let found = parse_checks(&run_to_end(as_unprivileged_user(&mut command)));
    assert_check(&found, "configuration", "error", &["Permission denied", "run the command as root (sudo)"]);
    let mut command = Command::new(&program);
    let output =
        run_to_end(as_unprivileged_user(command.env_clear().args(["status", "--json", "--config"]).arg(&config)));
    let error = &output.json()["error"];
    assert!(error["message"].to_string().contains("run the command as root (sudo)"), "{error}");
    assert!(error["nextStep"].to_string().contains("run the command as root (sudo)"), "{error}");
    set_mode(&config, 0o644);
    // Files of root, for example from a command that was run without `sudo -u`.
    if rustix::process::geteuid().is_root() {
        for name in ["lock", "state.json", "history.jsonl", "suspect"] {
            set_mode(&dir.path().join("store"), 0o777);
            let file = dir.path().join("store").join(name);
            std::fs::write(&file, "").unwrap();
            set_mode(&file, 0o644);
            let mut command = Command::new(&program);
            command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
            let lacks = format!("on {}", file.display());
            assert_check(
                &parse_checks(&run_to_end(as_unprivileged_user(&mut command))),
                "permissions",
                "error",
                &["lacks", &lacks],
            );
            std::fs::remove_file(file).unwrap();
        }
    }
    // A missing folder: the parent may be shared, such as /var/lib, and the advice does not change it.
    std::fs::remove_dir_all(dir.path().join("store")).unwrap();
    set_mode(dir.path(), 0o755);
    let mut command = Command::new(&program);
    command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
    if rustix::process::geteuid().is_root() {
        let owner = docwharf::base::accounts::find_user_name(65534).unwrap_or_else(|| "65534".to_owned());
        let advice = format!("install -d -o {owner} {}", dir.path().join("store").display());
        assert_check(
            &parse_checks(&run_to_end(as_unprivileged_user(&mut command))),
            "permissions",
            "error",
            &["lacks w on", &advice],
        );
    }
    std::fs::write(dir.path().join("store"), "").unwrap();
    let output = run_to_end(docwharf().args(["doctor", "--offline", "--json", "--config"]).arg(&config));
    assert_check(&parse_checks(&output), "permissions", "error", &["is not a folder"]);
}

#[test]
fn doctor_reports_every_configured_path_without_permission() {
    let dir = temporary_folder();
    set_mode(dir.path(), 0o755);
    let program = dir.path().join("docwharf");
    support::copy_program(&program);
    set_mode(&program, 0o755);
    let pair = CertificateAuthority::new().issue(&["localhost"]);
    let files = [("bundle.zip", "x"), ("ca.pem", "x"), ("key", KEY), ("access.log", "")];
    for (name, content) in files.into_iter().chain([("cert.pem", &*pair.certificate), ("key.pem", &*pair.key)]) {
        std::fs::write(dir.path().join(name), content).unwrap();
        set_mode(&dir.path().join(name), 0o666);
    }
    for name in ["store", "www", "logs"] {
        std::fs::create_dir(dir.path().join(name)).unwrap();
        set_mode(&dir.path().join(name), 0o777);
    }
    let config = dir.path().join("c.toml");
    let text = |log: &str| {
        format!(
            "[api]\nbaseUrl = \"https://api.invalid/v1\"\ndomain = \"docs.example\"\nkeyFile = \"key\"\ncaFile = \"ca.pem\"\n\
             [staticExport]\nbundleUrl = \"bundle.zip\"\n[store]\npath = \"store\"\n[publish]\ndirectory = \"www\"\n\
             [tls]\nlisten = \"127.0.0.1:0\"\ncertFile = \"cert.pem\"\nkeyFile = \"key.pem\"\n\
             [access]\nlog = \"json\"\nlogFile = \"{log}\"\n"
        )
    };
    let errors = |log: &str| -> Vec<String> {
        std::fs::write(&config, text(log)).unwrap();
        set_mode(&config, 0o644);
        let mut command = Command::new(&program);
        command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
        let found = parse_checks(&run_to_end(as_unprivileged_user(&mut command)));
        let errors = found.iter().filter(|check| check["name"] == "permissions" && check["status"] == "error");
        errors.map(|check| check["found"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(errors("access.log"), [""; 0]);
    assert_eq!(errors("logs/new.log"), [""; 0]);
    for (name, mode, rights, log) in [
        ("bundle.zip", 0o666, "r", "access.log"),
        ("ca.pem", 0o666, "r", "access.log"),
        ("key", 0o666, "r", "access.log"),
        ("cert.pem", 0o666, "r", "access.log"),
        ("key.pem", 0o666, "r", "access.log"),
        ("access.log", 0o666, "rw", "access.log"),
        ("logs", 0o777, "rwx", "logs/new.log"),
        ("www", 0o777, "rwx", "access.log"),
        ("store", 0o777, "rwx", "access.log"),
    ] {
        let path = dir.path().join(name);
        set_mode(&path, 0o000);
        let found = errors(log);
        set_mode(&path, mode);
        let lacks = format!("lacks {rights} on {}", path.display());
        assert!(found.len() == 1 && found[0].ends_with(&lacks), "{name}: {found:?}");
    }
}

#[test]
fn doctor_warns_of_a_policy_of_the_site_that_forbids_the_search_box() {
    let mut host = Host::bare().set("search.enabled", "true");
    let import = |host: &Host, files: &[(&str, &str)]| {
        let members: Vec<Member> = files.iter().map(|(name, text)| deflated(name, text)).collect();
        host.put("bundle.zip", zip(&members));
        host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    };
    import(&host, &[("index.html", "<p>one")]);
    assert_check(&checks(&host, &["--offline"]), "search", "ok", &["no index yet", "pages get the search box"]);
    host.ok(&["search", "one"]);
    assert_check(&checks(&host, &["--offline"]), "search", "ok", &["an index of "]);
    let headers = "/*\n  Content-Security-Policy: script-src 'none'\n";
    for files in [
        &[("index.html", "<p>two"), ("_headers", headers)][..],
        &[("index.html", "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'\"><p>three")],
    ] {
        import(&host, files);
        let found = checks(&host, &["--offline"]);
        assert_check(&found, "search", "warning", &["browsers refuse the script", "-src 'none'", "search.inject"]);
        // Without the box, its script does not matter.
        host.change("search.inject", toml_string("never"));
        assert_check(&checks(&host, &["--offline"]), "search", "ok", &["pages get no search box"]);
        host.remove("search.inject");
    }
    // A site with a search of its own gets no box.
    import(&host, &[("index.html", "<p>four"), ("searchindex.js", "{}"), ("_headers", headers)]);
    assert_check(&checks(&host, &["--offline"]), "search", "ok", &["pages get no search box"]);
    host.change("search.inject", toml_string("always"));
    assert_check(&checks(&host, &["--offline"]), "search", "warning", &["browsers refuse the script"]);
    host.change("search.enabled", "false");
    assert_check(&checks(&host, &["--offline"]), "search", "ok", &["search.enabled is false"]);
}

#[test]
fn doctor_reports_a_file_of_synonyms_that_cannot_be_used() {
    let host = Host::bare().set("search.synonyms", toml_string("words.toml"));
    let report = |words: &[&str]| assert_check(&checks(&host, &["--offline"]), "configuration", "error", words);
    report(&["search.synonyms", "words.toml"]);
    host.put("words.toml", "sets = [[\"one\"]]");
    report(&["search.synonyms", "words.toml", "at least two words"]);
    host.put("words.toml", "sets = [[\"one\", \"two\"]]");
    let found = checks(&host, &["--offline"]);
    assert!(found.iter().all(|check| !check.to_string().contains("words.toml")), "{found:#?}");
}

#[test]
#[cfg(feature = "analytics")]
fn doctor_reports_files_of_analytics_that_cannot_be_used() {
    let host = Host::bare()
        .set("sync.inbox", toml_string("inbox"))
        .set("analytics.keyFile", toml_string("analytics-keys"))
        .set("analytics.bots", toml_string("bots.txt"))
        .set("analytics.deliver.baseUrl", toml_string("http://127.0.0.1:9/v1"))
        .set("analytics.deliver.keyFile", toml_string("origin-key"));
    host.put("origin-key", "dwk_1");
    set_mode(&host.path("origin-key"), 0o644);
    let report = |status: &str, words: &[&str]| {
        assert_check(&checks(&host, &["--offline"]), "configuration", status, words);
    };
    report("error", &["analytics.bots", "bots.txt"]);
    host.put("bots.txt", "robot LinkChecker\n");
    report("error", &["analytics.bots", "bots.txt: line 1: "]);
    host.put("bots.txt", "bot LinkChecker\n");
    report("warning", &["cannot read", "analytics.keyFile"]);
    host.put("analytics-keys", "too-short\n");
    report("warning", &["analytics.keyFile", "line 1"]);
    host.put("analytics-keys", "0123456789abcdef\n");
    let found = checks(&host, &["--offline"]);
    let names_a_file =
        |check: &Value| ["analytics-keys", "bots.txt"].iter().any(|name| check.to_string().contains(name));
    assert!(!found.iter().any(names_a_file), "{found:#?}");
    report("warning", &["origin-key (analytics.deliver.keyFile) has mode 0644", "chmod 0640 it"]);
}

/// Creates a folder of units in which the shipped `docwharf.service` runs the configuration of this host with the key
/// in `key`.
fn units(host: &Host, drop_in: &str) -> tempfile::TempDir {
    let dir = temporary_folder();
    std::fs::copy("systemd/docwharf.service", dir.path().join("docwharf.service")).unwrap();
    let folder = dir.path().join("docwharf.service.d");
    std::fs::create_dir(&folder).unwrap();
    let run =
        format!("ExecStart=\nExecStart=/usr/local/bin/docwharf run --config {}", host.path("docwharf.toml").display());
    let key = format!("LoadCredential=\nLoadCredential=api-key:{}", host.path("key").display());
    std::fs::write(folder.join("test.conf"), format!("[Service]\n{run}\n{key}\n{drop_in}\n")).unwrap();
    dir
}

// Only root can read the key of the service, and checks as the user of the service. Other users check as themselves.
// Regression: `doctor`, run by root, checked as root, so a key, a port and an inbox that the service could not use were
// reported as valid.
#[test]
fn doctor_run_by_root_checks_permissions_of_the_service_user() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream)
        .set("sync.inbox", toml_string("/srv/inbox-of-docwharf"))
        .set("server.listen", toml_string("127.0.0.1:81"));
    let units_of = |drop_in: &str| units(&host, drop_in);
    let run_checks =
        |units: &Path| parse_checks(&run_with_timeout(doctor(&host, &["--offline"]).env("SYSTEMD_UNIT_PATH", units)));
    let plain = units_of("");
    let found = run_checks(plain.path());
    if !rustix::process::geteuid().is_root() {
        let own = docwharf::base::accounts::describe_user(rustix::process::geteuid().as_raw());
        assert_check(&found, "user", "ok", &[&format!("checked as {own}"), "docwharf.service"]);
        return;
    }
    assert_check(&found, "user", "ok", &["checked as the user of docwharf.service", "DynamicUser"]);
    // A key that only root can read is no key for a service that must read it itself.
    assert_check(
        &found,
        "key",
        "error",
        &["docwharf.service passes this file to the service as the credential api-key"],
    );
    let key = host.path("key").display().to_string();
    let other = units_of("LoadCredential=\nLoadCredential=api-key:/nowhere/else");
    let found = run_checks(other.path());
    let advice = format!("LoadCredential=api-key:{key}");
    assert_check(&found, "key", "error", &["systemctl edit docwharf.service", &advice]);
    let is_reported_twice = |check: &Value| check["name"] == "permissions" && check["found"].to_string().contains(&key);
    assert!(!found.iter().any(is_reported_twice), "{found:#?}");
    let named = units_of("DynamicUser=no\nUser=nobody");
    assert_check(
        &run_checks(named.path()),
        "user",
        "ok",
        &["checked as nobody (uid 65534), the user of docwharf.service (User=nobody"],
    );
    // An enabled socket listens in place of `server.listen`.
    let wants = named.path().join("sockets.target.wants");
    std::fs::create_dir(&wants).unwrap();
    std::fs::write(wants.join("docwharf.socket"), "").unwrap();
    let with_socket = run_checks(named.path());
    assert_check(&with_socket, "ports", "ok", &["docwharf.socket is enabled: systemd listens for the site"]);
    assert!(!with_socket.iter().any(|check| check["found"].to_string().contains("127.0.0.1:81")), "{with_socket:#?}");
    assert_check(&found, "ports", "error", &["127.0.0.1:81 (server.listen)", "docwharf.socket"]);
    let steps = [
        "ProtectSystem=",
        "install -d -m 2775 -g GROUP /srv/inbox-of-docwharf; then systemctl edit",
        "ReadWritePaths=/srv/inbox-of-docwharf and SupplementaryGroups=GROUP",
    ];
    assert_check(&found, "inbox", "error", &steps);
    let host = host.without("api.keyFile").set("server.listen", toml_string("127.0.0.1:0"));
    let open = units(&host, "ReadWritePaths=/srv/inbox-of-docwharf");
    let found = parse_checks(&run_with_timeout(doctor(&host, &["--offline"]).env("SYSTEMD_UNIT_PATH", open.path())));
    assert_check(&found, "key", "ok", &["credential api-key of docwharf.service"]);
    assert!(!found.iter().any(|check| check["found"].as_str().unwrap().contains("ProtectSystem=")), "{found:#?}");
}

// Regression: `doctor` reported the path of a credential as one that the service cannot read, and `sync` by root did not
// find it while the service was stopped.
#[test]
fn a_link_that_the_unit_passes_as_a_credential_is_read_by_root_and_is_no_fault() {
    let host = Host::bare()
        .set("staticExport.bundleUrlFile", toml_string("/run/credentials/docwharf.service/bundle-url"))
        .set("server.listen", toml_string("127.0.0.1:0"));
    std::fs::write(host.path("bundle.zip"), bundle("one")).unwrap();
    std::fs::write(host.path("link"), host.path("bundle.zip").to_str().unwrap()).unwrap();
    std::fs::set_permissions(host.path("link"), PermissionsExt::from_mode(0o600)).unwrap();
    let units = units(&host, &format!("LoadCredential=bundle-url:{}", host.path("link").display()));
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let output = run_with_timeout(host.command(&["sync"]).env("SYSTEMD_UNIT_PATH", units.path()));
    output.expect(0);
    let found = parse_checks(&run_with_timeout(doctor(&host, &["--offline"]).env("SYSTEMD_UNIT_PATH", units.path())));
    let names_link = |check: &Value| {
        let found = check["found"].as_str().unwrap();
        found.contains("/run/credentials") || found.contains(host.path("link").to_str().unwrap())
    };
    assert!(!found.iter().any(|check| check["status"] == "error" && names_link(check)), "{found:#?}");
}

// Regression: commands that root ran did not find the API key that the systemd unit passes to the service.
// Regression: `doctor`, run by root beside the systemd unit, reported that the key which only the service has was
// missing, and did not check with it.
#[test]
fn commands_run_by_root_use_the_api_key_of_the_systemd_unit() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream).without("api.keyFile");
    let units = units(&host, "");
    let mut command = host.command(&["export", "start"]);
    let output = run_with_timeout(command.env("SYSTEMD_UNIT_PATH", units.path()));
    if rustix::process::geteuid().is_root() {
        output.expect(0);
        assert_eq!(upstream.count(UpstreamCall::Start), 1);
    } else {
        assert_eq!(output.expect(2).stdout, "");
    }
}

#[test]
fn doctor_reports_a_damaged_or_missing_active_version_or_state_file() {
    let host = Host::bare();
    host.put("b.zip", bundle("one"));
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    let active = host.active().unwrap();
    std::fs::write(host.path("store/suspect"), format!("{active}\n")).unwrap();
    assert_check(&checks(&host, &["--offline"]), "store", "error", &["is damaged", "replace"]);
    std::fs::write(host.path("store/suspect"), "").unwrap();
    std::fs::remove_dir_all(host.path("store/versions").join(&active)).unwrap();
    assert_check(&checks(&host, &["--offline"]), "store", "error", &["is missing", "import its bundle"]);
    std::fs::write(host.path("store/state.json"), "{").unwrap();
    assert_check(&checks(&host, &["--offline"]), "store", "error", &["state.json is damaged"]);
    assert_eq!(std::fs::read_to_string(host.path("store/state.json")).unwrap(), "{");
}

#[test]
fn doctor_warns_about_exhausted_inotify_limits() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    // `run` needs one instance and up to 8 watches besides those in use.
    let many = 1_000_000;
    for (instances, watches, status) in [(0, many, "warning"), (many, many, "ok"), (many, 7, "warning")] {
        let limits = host.path("inotify");
        std::fs::create_dir_all(&limits).unwrap();
        std::fs::write(limits.join("max_user_instances"), format!("{instances}\n")).unwrap();
        std::fs::write(limits.join("max_user_watches"), format!("{watches}\n")).unwrap();
        let inner = doctor(&host, &["--offline"]);
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command.arg("mount --bind \"$0\" /proc/sys/fs/inotify && exec \"$@\"").arg(&limits);
        command.env("SYSTEMD_UNIT_PATH", "/nonexistent").arg(inner.get_program()).args(inner.get_args());
        let advice: &[&str] = if status == "ok" { &[] } else { &["fs.inotify.max_user_instances"] };
        let limits = [format!("of {instances} instances and "), format!("of {watches} watches")];
        let words = [&limits.each_ref().map(String::as_str)[..], advice].concat();
        assert_check(&parse_checks(&run_with_timeout(&mut command)), "inotify", status, &words);
    }
}

#[test]
fn doctor_warns_about_an_open_file_limit_below_1024() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    for (files, status, words) in [
        (100, "warning", &["100 files", "LimitNOFILE"][..]),
        (1023, "warning", &["1023 files"]),
        (1024, "ok", &["1024 files"]),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_docwharf")]);
        let output = run_with_timeout(
            command.args(["doctor", "--json", "--offline", "--config"]).arg(host.path("docwharf.toml")),
        );
        assert_check(&parse_checks(&output), "descriptors", status, words);
    }
}

#[test]
fn doctor_does_not_request_a_presigned_link_and_prints_no_secret() {
    let upstream = Upstream::new(bundle("one"));
    let mut host = healthy(&upstream).set("staticExport.bundleUrl", toml_string(&upstream.link()));
    for round in 0..2 {
        for more in [&[][..], &["--json"], &["-vv"]] {
            let output = run_with_timeout(host.command(&[&["doctor"], more].concat()).env("DOCWHARF_LOG", "trace"));
            for secret in [SIGNATURE, "5ecretAdminKey", "AKIDEXAMPLE"] {
                assert!(!output.stdout.contains(secret) && !output.stderr.contains(secret), "{round}: {output:?}");
            }
        }
        assert_eq!(upstream.count(UpstreamCall::Download), 0, "{}", upstream.request_history());
        // Secrets in responses of the upstream are masked, too.
        upstream.on(UpstreamCall::Poll).respond_with(raw_reply("text/html", format!("<p>{KEY}?")).status(404));
        host.change("staticExport.bundleUrl", toml_string(&upstream.link()));
    }
    let found = checks(&host, &[]);
    assert_check(&found, "link", "ok", &["was not tried"]);
    // The host must outlive its daemon: dropping it removes the folder.
    let host = host.without("api.baseUrl").without("api.domain").without("api.keyFile").without("sync.probe");
    let daemon = host.run();
    until("the link has been used", || upstream.count(UpstreamCall::Download) > 0);
    drop(daemon);
}
