//! `doctor`: says what is wrong and what to do about it, in a line each, and changes nothing.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::disk::Disk;
use support::host::{Host, bundle, finish, large_bundle, text};
use support::proxy::Proxy;
use support::tls::Authority;
use support::upstream::{Call, KEY, SIGNATURE, Upstream, answer, raw};
use support::{Ended, ReservedPort, docwharf, end, folder, read_tree, until};

/// What depends on the machine that the tests run on rather than on what they do.
const MACHINE: [&str; 3] = ["disk", "inotify", "descriptors"];

/// A host whose every check is well.
fn healthy(upstream: &Upstream) -> Host {
    Host::new(upstream).set("sync.probe", format!("[{}]", text(&upstream.probe())))
}

fn doctor(host: &Host, more: &[&str]) -> Command {
    host.command(&[&["doctor", "--json"], more].concat())
}

/// Runs it; the code must be 1 if and only if there is an error.
#[track_caller]
fn judged(ended: &Ended) -> Vec<Value> {
    let report = ended.json();
    assert_eq!(report["schemaVersion"], 1);
    let checks = report["checks"].as_array().unwrap().clone();
    let errors = checks.iter().filter(|check| check["status"] == "error").count();
    assert_eq!(
        (ended.code, report["errors"].as_u64()),
        (Some(i32::from(errors > 0)), Some(errors as u64)),
        "{ended:?}"
    );
    for check in &checks {
        let found = check["found"].as_str().unwrap();
        assert!(!found.is_empty() && !found.chars().any(char::is_control), "{check}");
        assert_eq!(check["status"] != "ok", check["advice"].is_string(), "{check}");
    }
    checks
}

#[track_caller]
fn checks(host: &Host, more: &[&str]) -> Vec<Value> {
    judged(&finish(&mut doctor(host, more)))
}

/// There is a check of this name and status that says all of these words.
#[track_caller]
fn assert_says(checks: &[Value], name: &str, status: &str, words: &[&str]) {
    let says = |check: &&Value| {
        let all = format!("{} {}", check["found"], check["advice"]);
        check["name"] == name && check["status"] == status && words.iter().all(|word| all.contains(word))
    };
    assert!(checks.iter().any(|check| says(&check)), "no {status} of {name} with {words:?}: {checks:#?}");
}

#[test]
fn a_healthy_host_is_found_healthy_and_nothing_is_started_or_written() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    let before = read_tree(host.dir.path());
    let found = checks(&host, &[]);
    for check in &found {
        assert!(check["status"] == "ok" || MACHINE.contains(&check["name"].as_str().unwrap()), "{check}");
    }
    for name in [
        "configuration",
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
        "ports",
        "inotify",
        "descriptors",
    ] {
        assert!(found.iter().any(|check| check["name"] == name), "{name}: {found:#?}");
    }
    assert_says(&found, "api", "ok", &["takes the key"]);
    assert_eq!(read_tree(host.dir.path()), before);
    assert!(!host.path("store").exists());
    assert_eq!((upstream.log().len(), upstream.count(Call::Poll), upstream.count(Call::Probe)), (2, 1, 1));
    // The same beside a store.
    host.sync();
    let before = read_tree(&host.path("store"));
    assert_says(&checks(&host, &[]), "store", "ok", &["1 version", "active"]);
    assert_eq!(read_tree(&host.path("store")), before);
    assert_eq!((upstream.count(Call::Start), upstream.count(Call::Bundle), upstream.count(Call::Download)), (1, 1, 1));
}

#[test]
fn offline_opens_no_connection() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    let found = checks(&host, &["--offline"]);
    assert_eq!(upstream.connections(), 0);
    for name in ["names", "tls", "api", "probe", "link"] {
        assert!(found.iter().all(|check| check["name"] != name), "{name}: {found:#?}");
    }
    assert_says(&found, "clock", "ok", &["no other clock"]);
}

#[test]
fn text_is_aligned_and_coloured_on_request_only() {
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
fn a_broken_configuration_and_none_at_all_are_told_and_the_rest_is_looked_at() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream).set("sync.keep", "-1").set("limits.entries", "0");
    let found = checks(&host, &[]);
    assert_says(&found, "configuration", "error", &["sync.keep", "docwharf.toml:"]);
    assert_says(&found, "configuration", "error", &["limits.entries"]);
    assert_says(&found, "store", "ok", &["not there yet"]);
    let none = folder();
    let mut command = docwharf();
    command.args(["doctor", "--json"]).env("DOCWHARF_STORE__PATH", none.path().join("store"));
    let found = judged(&end(&mut command));
    assert_says(&found, "configuration", "error", &["nothing to serve", "config init"]);
    assert!(!none.path().join("store").exists());
    let host = healthy(&upstream).set("api.caFile", text("absent.pem"));
    assert_says(&checks(&host, &[]), "configuration", "warning", &["absent.pem"]);
}

#[test]
fn a_key_that_cannot_be_used_or_that_others_can_read() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    std::fs::set_permissions(host.path("key"), PermissionsExt::from_mode(0o644)).unwrap();
    assert_says(&checks(&host, &["--offline"]), "key", "warning", &["mode 0644", "chmod 0640"]);
    for (key, word) in [("one\ntwo", "control characters"), ("", "empty")] {
        host.put("key", key);
        assert_says(&checks(&host, &["--offline"]), "key", "error", &[word, "put the key"]);
    }
    std::fs::remove_file(host.path("key")).unwrap();
    assert_says(&checks(&host, &["--offline"]), "key", "error", &["cannot read the API key"]);
}

#[test]
fn a_key_that_systemd_passes_is_looked_at() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream).without("api.keyFile");
    assert_says(&checks(&host, &["--offline"]), "key", "error", &["no API key", "/etc/docwharf/api-key"]);
    let unit = folder();
    std::fs::write(unit.path().join("api-key"), KEY).unwrap();
    let found = judged(&finish(doctor(&host, &[]).env("CREDENTIALS_DIRECTORY", unit.path())));
    assert_says(&found, "key", "ok", &["api-key"]);
    assert_says(&found, "api", "ok", &["takes the key"]);
}

#[test]
fn what_the_api_says_is_told_in_its_words() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    for (reply, status, words) in [
        (answer(401), "error", &["does not take the key", "scripted answer 401", "put a valid one"][..]),
        (answer(403), "error", &["not for this", "read-only"]),
        (answer(503), "warning", &["try again later"]),
        (raw("text/html", "<h1>Not found</h1>").status(404), "error", &["does not speak", "/v1"]),
        (
            raw("text/html", "").status(302).header("Location", "https://elsewhere.example/"),
            "error",
            &["sends elsewhere"],
        ),
    ] {
        upstream.heal();
        upstream.on(Call::Poll).gives(reply);
        assert_says(&checks(&host, &[]), "api", status, words);
    }
    upstream.on(Call::Probe).gives(answer(404));
    assert_says(&checks(&host, &[]), "probe", "warning", &["answers 404", "sync.probe"]);
    let closed = Upstream::closed(bundle("one"));
    assert_says(&checks(&Host::new(&closed), &[]), "api", "error", &["cannot connect", "firewall"]);
}

#[test]
fn a_clock_that_is_wrong_against_a_server_or_against_the_store() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    for (skew, status) in [(30, "ok"), (120, "warning"), (-120, "warning"), (1200, "error"), (-1200, "error")] {
        upstream.plan().skew = skew;
        let word = if skew.abs() < 60 {
            "within a minute"
        } else if skew > 0 {
            "behind"
        } else {
            "ahead of"
        };
        assert_says(&checks(&host, &[]), "clock", status, &[word]);
    }
    host.sync();
    let receipts = host.path("store/receipts").join(host.active().unwrap());
    let receipt = std::fs::read_dir(receipts).unwrap().next().unwrap().unwrap().path();
    let mut told: Value = serde_json::from_slice(&std::fs::read(&receipt).unwrap()).unwrap();
    told["time"] = "2999-01-01T00:00:00Z".into();
    std::fs::write(&receipt, told.to_string()).unwrap();
    assert_says(&checks(&host, &["--offline"]), "clock", "error", &["newest receipt is of 2999", "timedatectl"]);
}

#[test]
fn a_name_that_nobody_knows() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream).set("api.baseUrl", text("http://api.invalid/v1"));
    let host = host.set("network.connectTimeout", text("3s"));
    let found = checks(&host, &[]);
    assert_says(&found, "names", "error", &["api.invalid", "resolv.conf"]);
    assert!(found.iter().all(|check| check["name"] != "api"), "it is not asked in vain: {found:#?}");
}

#[test]
fn a_certificate_that_is_not_trusted_and_when_one_that_is_will_end() {
    let authority = Authority::new();
    let upstream = authority.upstream("127.0.0.1", bundle("one"));
    let mut host = Host::new(&upstream);
    assert_says(&checks(&host, &[]), "tls", "error", &["unknown authority", "api.caFile"]);
    host.put("ca.pem", authority.pem());
    host.change("api.caFile", text("ca.pem"));
    let found = checks(&host, &[]);
    assert_says(&found, "tls", "ok", &["trusted: 127.0.0.1", "until "]);
    assert_says(&found, "api", "ok", &["takes the key"]);
    host.put("ca.pem", "nothing");
    assert_says(&checks(&host, &[]), "tls", "error", &["holds no PEM certificate", "correct api.caFile"]);
}

#[test]
fn a_certificate_of_the_api_in_its_last_two_weeks_is_told_of() {
    let authority = Authority::new();
    let hour = Duration::from_hours(1);
    for (left, is_told) in [((14 * 24 + 1) * hour, false), ((14 * 24 - 1) * hour, true)] {
        let upstream = authority.upstream_ending_in("127.0.0.1", bundle("one"), left);
        let host = Host::new(&upstream).set("api.caFile", text("ca.pem"));
        host.put("ca.pem", authority.pem());
        let found = checks(&host, &[]);
        assert_says(&found, "tls", "ok", &["trusted: 127.0.0.1"]);
        assert_eq!(found.iter().any(|check| check.to_string().contains("ends soon")), is_told, "{found:#?}");
        if is_told {
            assert_says(&found, "tls", "warning", &["the certificate of 127.0.0.1", "ends soon", "renew it"]);
        }
    }
}

#[test]
fn proxies_are_named_without_their_passwords() {
    let upstream = Upstream::new(bundle("one"));
    let proxy = Proxy::new();
    let host = healthy(&upstream);
    let with = proxy.url().replace("http://", "http://user:pa55word@");
    let ended = finish(doctor(&host, &[]).env("HTTP_PROXY", &with).env("NO_PROXY", "other.example"));
    let found = judged(&ended);
    assert_says(&found, "proxy", "ok", &["HTTP_PROXY, NO_PROXY set", &format!("through {}", proxy.url())]);
    assert_says(&found, "names", "ok", &["the proxy's to find"]);
    assert!(!proxy.asked().is_empty());
    assert!(!ended.stdout.contains("pa55word") && !ended.stderr.contains("pa55word"), "{ended:?}");
    let found = judged(&finish(doctor(&host, &[]).env("HTTP_PROXY", &with).env("NO_PROXY", "127.0.0.1")));
    assert_says(&found, "proxy", "ok", &["127.0.0.1", " without"]);
    let found = judged(&finish(doctor(&host, &[]).env("http_proxy", "::not a proxy::")));
    assert_says(&found, "proxy", "warning", &["$http_proxy", "http://proxy.example:3128"]);
}

#[test]
fn a_port_that_is_taken_by_another_or_by_ourselves() {
    let upstream = Upstream::new(bundle("one"));
    let port = ReservedPort::new();
    let address = &port.address;
    let host = healthy(&upstream).set("server.listen", text(address));
    let other = port.listen();
    assert_says(&checks(&host, &["--offline"]), "ports", "error", &[address, "another program", "ss -ltnp"]);
    let elsewhere = healthy(&upstream).set("server.listen", text("192.0.2.1:8080"));
    assert_says(&checks(&elsewhere, &["--offline"]), "ports", "error", &["does not have that address"]);
    drop(other);
    assert_says(&checks(&host, &["--offline"]), "ports", "ok", &[address, "is free"]);
    let daemon = host.run();
    assert_eq!(daemon.address, *address);
    assert_says(&checks(&host, &["--offline"]), "ports", "ok", &[&format!("pid {}", daemon.pid())]);
}

#[test]
fn a_disk_that_is_full_or_soon_will_be() {
    let disk = Disk::new("size=4m,nr_inodes=100");
    let mut host = Host::bare().set("store.path", text(disk.path("store").to_str().unwrap()));
    host.put("b.zip", large_bundle("one", 1_000_000));
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    assert_says(&checks(&host, &["--offline"]), "disk", "warning", &["tmpfs", "put the store on a disk"]);
    assert_says(&checks(&host, &["--offline"]), "disk", "warning", &["files more can be made", "make room"]);
    disk.leave(1 << 20);
    assert_says(&checks(&host, &["--offline"]), "disk", "warning", &["1.0 MB free", "less than twice", "sync.keep"]);
    host.change("store.minFree", text("2MiB"));
    assert_says(&checks(&host, &["--offline"]), "disk", "error", &["no space", "2.1 MB must stay so (store.minFree)"]);
    host.remove("store.minFree");
    disk.leave(0);
    assert_says(&checks(&host, &["--offline"]), "disk", "error", &["no space", "0 B free"]);
    host.change("store.maxBytes", "500000");
    assert_says(&checks(&host, &["--offline"]), "disk", "warning", &["store.maxBytes (500 kB)", "raise"]);
}

#[test]
fn what_must_stay_free_is_no_room_for_versions_and_each_threshold_of_the_disk_is_exact() {
    let disk = Disk::new("size=8m,nr_inodes=1100");
    let mut host = Host::bare().set("store.path", text(disk.path("store").to_str().unwrap()));
    host.put("b.zip", large_bundle("one", 1_000_000));
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    let store = docwharf::store::VersionStore::at(&disk.path("store"));
    let size = store.versions().unwrap()[0].bytes;
    let with_derived = store.sizes().unwrap()[0].1;
    let is_told = |host: &Host, words: &str| {
        let found = checks(host, &["--offline"]);
        found
            .iter()
            .any(|check| check["name"] == "disk" && check["status"] != "ok" && check.to_string().contains(words))
    };
    // What is free beyond store.minFree is compared with what a bundle like the largest version needs.
    disk.leave(3 << 20);
    assert!(!is_told(&host, "less than twice"));
    host.change("store.minFree", ((3 << 20) - 2 * size).to_string());
    assert!(!is_told(&host, "less than twice"));
    host.change("store.minFree", ((3 << 20) - 2 * size + 1).to_string());
    assert!(is_told(&host, "less than twice"));
    host.change("store.minFree", (3 << 20).to_string());
    assert!(is_told(&host, "less than twice") && !is_told(&host, "no space"));
    host.change("store.minFree", ((3 << 20) + 1).to_string());
    assert!(is_told(&host, "no space"));
    host.remove("store.minFree");
    host.change("store.maxBytes", with_derived.to_string());
    assert!(!is_told(&host, "store.maxBytes"));
    host.change("store.maxBytes", (with_derived - 1).to_string());
    assert!(is_told(&host, "store.maxBytes"));
    disk.leave_inodes(1000);
    assert!(!is_told(&host, "more can be made"));
    disk.leave_inodes(999);
    assert!(is_told(&host, "more can be made"));
}

/// The program as a user to whom permissions mean something.
fn humbly(command: &mut Command) -> &mut Command {
    if rustix::process::geteuid().is_root() { command.uid(65534).gid(65534) } else { command }
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn the_first_part_of_a_path_that_is_in_the_way_is_named() {
    let dir = folder();
    set_mode(dir.path(), 0o755);
    // Where everybody may run it from.
    let program = dir.path().join("docwharf");
    support::copy_program(&program);
    set_mode(&program, 0o755);
    let config = dir.path().join("c.toml");
    let inbox = dir.path().join("shut/further/inbox");
    std::fs::create_dir_all(&inbox).unwrap();
    std::fs::write(&config, "[store]\npath = \"store\"\n[sync]\ninbox = \"shut/further/inbox\"\n").unwrap();
    set_mode(&config, 0o644);
    let shut = dir.path().join("shut");
    for (name, mode, store, words) in [
        ("inbox", 0o000, 0o777, [format!("{}: uid", inbox.display()), format!("lacks x on {}", shut.display())]),
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
        let ended = end(humbly(&mut command));
        set_mode(&shut, 0o755);
        set_mode(&dir.path().join("store"), 0o755);
        assert_says(&judged(&ended), name, "error", &words.each_ref().map(String::as_str));
    }
    // What can be read is imported from.
    set_mode(&inbox, 0o555);
    let mut command = Command::new(&program);
    command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
    let lacks = format!("lacks w on {}", inbox.display());
    let words = [lacks.as_str(), "bundles are imported from it, but stay there"];
    assert_says(&judged(&end(humbly(&mut command))), "inbox", "warning", &words);
    // Files that root has left behind, such as by a command that was typed without `sudo -u`.
    if rustix::process::geteuid().is_root() {
        for name in ["lock", "state.json", "history.jsonl", "suspect"] {
            set_mode(&dir.path().join("store"), 0o777);
            let file = dir.path().join("store").join(name);
            std::fs::write(&file, "").unwrap();
            set_mode(&file, 0o644);
            let mut command = Command::new(&program);
            command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
            let lacks = format!("on {}", file.display());
            assert_says(&judged(&end(humbly(&mut command))), "permissions", "error", &["lacks", &lacks]);
            std::fs::remove_file(file).unwrap();
        }
    }
    // A folder that is to be made: the one around it may be shared, such as /var/lib, and is left as it is.
    std::fs::remove_dir_all(dir.path().join("store")).unwrap();
    set_mode(dir.path(), 0o755);
    let mut command = Command::new(&program);
    command.env_clear().args(["doctor", "--offline", "--json", "--config"]).arg(&config);
    if rustix::process::geteuid().is_root() {
        let advice = format!("install -d -o 65534 {}", dir.path().join("store").display());
        assert_says(&judged(&end(humbly(&mut command))), "permissions", "error", &["lacks w on", &advice]);
    }
    std::fs::write(dir.path().join("store"), "").unwrap();
    let ended = end(docwharf().args(["doctor", "--offline", "--json", "--config"]).arg(&config));
    assert_says(&judged(&ended), "permissions", "error", &["is no folder"]);
}

/// A folder of units in which `docwharf.service`, as it is shipped, runs this host's configuration with the key in `key`.
fn units(host: &Host, drop_in: &str) -> tempfile::TempDir {
    let dir = folder();
    std::fs::copy("systemd/docwharf.service", dir.path().join("docwharf.service")).unwrap();
    let folder = dir.path().join("docwharf.service.d");
    std::fs::create_dir(&folder).unwrap();
    let run =
        format!("ExecStart=\nExecStart=/usr/local/bin/docwharf run --config {}", host.path("docwharf.toml").display());
    let key = format!("LoadCredential=\nLoadCredential=api-key:{}", host.path("key").display());
    std::fs::write(folder.join("test.conf"), format!("[Service]\n{run}\n{key}\n{drop_in}\n")).unwrap();
    dir
}

/// Only root may read a key of the service and is asked to check as its user; anybody else checks as itself.
#[test]
fn root_is_told_what_the_service_may_do_and_not_what_root_may() {
    let upstream = Upstream::new(bundle("one"));
    let host =
        healthy(&upstream).set("sync.inbox", text("/srv/inbox-of-docwharf")).set("server.listen", text("127.0.0.1:81"));
    let units_of = |drop_in: &str| units(&host, drop_in);
    let asked = |units: &Path| judged(&finish(doctor(&host, &["--offline"]).env("SYSTEMD_UNIT_PATH", units)));
    let plain = units_of("");
    let found = asked(plain.path());
    if !rustix::process::geteuid().is_root() {
        assert_says(&found, "user", "ok", &["checked as uid", "docwharf.service"]);
        return;
    }
    assert_says(&found, "user", "ok", &["checked as the user of docwharf.service", "DynamicUser"]);
    // What only root reads is no key of a service that has to read it itself.
    assert_says(&found, "key", "error", &["docwharf.service", "api-key"]);
    assert_says(&found, "ports", "error", &["127.0.0.1:81 (server.listen)", "docwharf.socket"]);
    assert_says(&found, "inbox", "error", &["ProtectSystem=", "ReadWritePaths=/srv/inbox-of-docwharf"]);
    let host = host.without("api.keyFile").set("server.listen", text("127.0.0.1:0"));
    let open = units(&host, "ReadWritePaths=/srv/inbox-of-docwharf");
    let found = judged(&finish(doctor(&host, &["--offline"]).env("SYSTEMD_UNIT_PATH", open.path())));
    assert_says(&found, "key", "ok", &["credential api-key of docwharf.service"]);
    assert!(!found.iter().any(|check| check["found"].as_str().unwrap().contains("ProtectSystem=")), "{found:#?}");
}

#[test]
fn roots_commands_find_the_key_where_the_unit_has_it() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream).without("api.keyFile");
    let units = units(&host, "");
    let mut command = host.command(&["export", "start"]);
    let ended = finish(command.env("SYSTEMD_UNIT_PATH", units.path()));
    if rustix::process::geteuid().is_root() {
        ended.expect(0);
        assert_eq!(upstream.count(Call::Start), 1);
    } else {
        assert_eq!(ended.expect(2).stdout, "");
    }
}

#[test]
fn a_store_whose_record_or_active_version_is_gone_or_damaged() {
    let host = Host::bare();
    host.put("b.zip", bundle("one"));
    host.ok(&["import", host.path("b.zip").to_str().unwrap()]);
    let active = host.active().unwrap();
    std::fs::write(host.path("store/suspect"), format!("{active}\n")).unwrap();
    assert_says(&checks(&host, &["--offline"]), "store", "error", &["was damaged", "mend"]);
    std::fs::write(host.path("store/suspect"), "").unwrap();
    std::fs::remove_dir_all(host.path("store/versions").join(&active)).unwrap();
    assert_says(&checks(&host, &["--offline"]), "store", "error", &["is missing", "import its bundle"]);
    std::fs::write(host.path("store/state.json"), "{").unwrap();
    assert_says(&checks(&host, &["--offline"]), "store", "error", &["state.json is damaged"]);
    assert_eq!(std::fs::read_to_string(host.path("store/state.json")).unwrap(), "{");
}

#[test]
fn few_open_files_are_told_of() {
    let upstream = Upstream::new(bundle("one"));
    let host = healthy(&upstream);
    for (files, status, words) in [
        (100, "warning", &["100 files", "LimitNOFILE"][..]),
        (1023, "warning", &["1023 files"]),
        (1024, "ok", &["1024 files"]),
    ] {
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -n {files}; exec \"$@\""), "sh", env!("CARGO_BIN_EXE_docwharf")]);
        let ended = finish(command.args(["doctor", "--json", "--offline", "--config"]).arg(host.path("docwharf.toml")));
        assert_says(&judged(&ended), "descriptors", status, words);
    }
}

#[test]
fn a_link_is_not_used_up_and_neither_it_nor_the_key_is_shown() {
    let upstream = Upstream::new(bundle("one"));
    let mut host = healthy(&upstream).set("staticExport.bundleUrl", text(&upstream.link()));
    for round in 0..2 {
        for more in [&[][..], &["--json"], &["-vv"]] {
            let ended = finish(host.command(&[&["doctor"], more].concat()).env("DOCWHARF_LOG", "trace"));
            for secret in [SIGNATURE, "5ecretAdminKey", "AKIDEXAMPLE"] {
                assert!(!ended.stdout.contains(secret) && !ended.stderr.contains(secret), "{round}: {ended:?}");
            }
        }
        assert_eq!(upstream.count(Call::Download), 0, "{}", upstream.story());
        // What an upstream quotes is hidden, too.
        upstream.on(Call::Poll).gives(raw("text/html", format!("<p>{KEY}?")).status(404));
        host.change("staticExport.bundleUrl", text(&upstream.link()));
    }
    let found = checks(&host, &[]);
    assert_says(&found, "link", "ok", &["was not tried"]);
    // The host outlives its daemon: its folder goes when it is dropped.
    let host = host.without("api.baseUrl").without("api.domain").without("api.keyFile").without("sync.probe");
    let daemon = host.run();
    until("the link has been used", || upstream.count(Call::Download) > 0);
    drop(daemon);
}
