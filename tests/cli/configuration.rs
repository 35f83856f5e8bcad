//! The inputs of the configuration, and what is said about it besides mistakes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use support::host::{Host, bundle, run_with_timeout, toml_string};
use support::tls::CertificateAuthority;
use support::{KillOnDrop, docwharf, http, run_to_end, serve_site, temporary_folder, until};

#[test]
fn the_first_state_directory_of_systemd_is_the_store_unless_a_key_names_another() {
    let dir = temporary_folder();
    let config = dir.path().join("c.toml");
    let store = |text: &str, variables: &[(&str, &str)]| {
        std::fs::write(&config, text).unwrap();
        let mut command = docwharf();
        command.args(["config", "show", "--json", "--config"]).arg(&config).envs(variables.iter().copied());
        run_to_end(&mut command).expect(0).json()["values"]["store.path"].clone()
    };
    let state = ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b");
    let own = dir.path().join("own");
    for (text, variables, value, origin) in [
        ("", &[][..], "/var/lib/docwharf", "default".to_owned()),
        ("", &[state][..], "/var/lib/a", "default".to_owned()),
        ("[store]\npath = \"own\"\n", &[state][..], own.to_str().unwrap(), format!("{}:2", config.display())),
        ("", &[state, ("DOCWHARF_STORE__PATH", "/c")][..], "/c", "$DOCWHARF_STORE__PATH".to_owned()),
    ] {
        assert_eq!(store(text, variables), json!({ "value": value, "origin": origin }), "{variables:?}");
    }
    // Beside a configuration with mistakes, it is still the store.
    std::fs::write(&config, "[sync]\nkeep = -1\n").unwrap();
    let status = |state_directory: Option<&Path>| {
        let mut command = docwharf();
        command.args(["status", "--json", "--config"]).arg(&config);
        command.envs(state_directory.map(|path| ("STATE_DIRECTORY", path)));
        run_to_end(&mut command)
    };
    status(None).expect(2);
    assert_eq!(status(Some(dir.path())).expect(0).json()["schemaVersion"], 1);
}

#[test]
fn serve_ends_with_0_on_each_signal_that_stops_a_program() {
    for signal in ["TERM", "INT", "HUP"] {
        let (_dir, mut daemon) = serve_site(&[("index.html", "<p>hi")], &[]);
        daemon.signal(signal);
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{signal}");
    }
}

#[test]
fn run_warns_of_a_key_that_all_users_can_read_at_the_start_and_after_a_reload() {
    let mut host = Host::bare()
        .set("staticExport.enabled", "false")
        .set("sync.inbox", toml_string("inbox"))
        .set("api.baseUrl", toml_string("http://127.0.0.1:9/v1"))
        .set("api.domain", toml_string("docs.example"))
        .set("api.keyFile", toml_string("key"));
    let set_mode = |host: &Host, name: &str| {
        std::fs::write(host.path(name), "dwk_1").unwrap();
        std::fs::set_permissions(host.path(name), PermissionsExt::from_mode(0o644)).unwrap();
        format!("{} (api.keyFile) is open to more than owner and group: chmod 0640 it", host.path(name).display())
    };
    let (first, second) = (set_mode(&host, "key"), set_mode(&host, "other-key"));
    let daemon = host.run_logged();
    until("the first key is reported", || host.log().contains(&first));
    assert!(!host.log().contains(&second), "{}", host.log());
    host.change("api.keyFile", toml_string("other-key"));
    daemon.signal("HUP");
    until("the second key is reported", || host.log().contains(&second));
}

#[test]
fn config_check_warns_of_an_expired_certificate_and_of_one_that_is_missing() {
    let host = Host::bare()
        .set("sync.inbox", toml_string("inbox"))
        .set("server.listen", "[]")
        .set("tls.listen", toml_string("127.0.0.1:0"))
        .set("tls.certFile", toml_string("cert.pem"))
        .set("tls.keyFile", toml_string("key.pem"));
    let warnings = || host.ok(&["config", "check"]).stderr;
    assert!(warnings().contains("cert.pem"), "{}", warnings());
    let authority = CertificateAuthority::new();
    for (pair, is_reported) in
        [(authority.issue_between(&["docs.example"], 2001, 2002), true), (authority.issue(&["docs.example"]), false)]
    {
        host.put("cert.pem", &pair.certificate);
        host.put("key.pem", &pair.key);
        assert_eq!(warnings().contains("the TLS certificate expired on"), is_reported, "{}", warnings());
    }
}

#[test]
fn the_staged_site_is_shown_to_every_client_with_the_reloaded_rules() {
    let mut host = Host::bare()
        .set("activate.mode", toml_string("manual"))
        .set("activate.listen", toml_string("127.0.0.1:0"))
        .set("access.allow", toml_string("127.0.0.0/8"));
    host.put("bundle.zip", bundle("one"));
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    host.put("first", "/old /guide 302\n");
    host.put("second", "/older /guide 303\n");
    host.change("server.redirectsFile", toml_string("first"));
    let daemon = host.run_logged();
    let mut staged = String::new();
    until("the address is in the status", || {
        host.status()["daemon"]["staged"][0].as_str().unwrap_or_default().clone_into(&mut staged);
        !staged.is_empty()
    });
    let staged = staged.trim_start_matches("http://").trim_end_matches('/');
    until("the version that waits is shown", || http::get(staged, "/").status == 200);
    assert_eq!(["/old", "/older"].map(|path| http::get(staged, path).status), [302, 404]);
    // The configuration may be read between the two changes.
    host.change("server.redirectsFile", toml_string("second"));
    host.change("access.allow", toml_string("203.0.113.0/24"));
    daemon.signal("HUP");
    until("the site refuses this client", || http::get(&daemon.address, "/").status == 403);
    until("the change is logged", || host.log().contains("access or server.trustedProxies has changed"));
    assert_eq!(["/", "/old", "/older"].map(|path| http::get(staged, path).status), [200, 404, 303]);
}

#[test]
fn a_daemon_with_nothing_to_serve_makes_no_store() {
    let host = Host::bare();
    let ended = host.expect_exit(2, &["run"]);
    assert!(ended.stderr.contains("there is nothing to serve") && ended.stdout.is_empty(), "{}", ended.stderr);
    assert!(!host.path("store").exists());
}

#[test]
fn import_of_a_bundle_that_cannot_be_read_makes_no_store() {
    let host = Host::bare();
    let missing = host.path("missing.zip");
    let ended = host.expect_exit(2, &["import", missing.to_str().unwrap()]);
    assert!(ended.stderr.contains(&format!("cannot read {}", missing.display())), "{}", ended.stderr);
    assert!(!host.path("store").exists());
}

#[test]
fn a_missing_configuration_is_named_with_the_command_that_writes_one() {
    let dir = temporary_folder();
    let absent = dir.path().join("absent.toml");
    let default = Path::new("/etc/docwharf/config.toml");
    for arguments in [&["run"][..], &["config", "check"]] {
        let ended = run_to_end(docwharf().args(arguments).arg("--config").arg(&absent)).expect(2);
        let advice = format!("; `docwharf config init {}` writes one", absent.display());
        assert!(ended.stderr.contains(&advice), "{}", ended.stderr);
        if default.exists() {
            continue;
        }
        let mut command = docwharf();
        command.args(arguments).env("DOCWHARF_STORE__PATH", dir.path().join("store"));
        let ended = run_to_end(&mut command).expect(2);
        let path = default.display();
        let advice =
            format!("there is no {path}: `docwharf config init {path} --for vm` writes a short one; in it, set");
        assert!(ended.stderr.contains(&advice), "{}", ended.stderr);
    }
}

#[test]
fn without_a_listener_neither_a_certificate_nor_an_access_log_is_needed() {
    let host = Host::bare()
        .set("sync.inbox", toml_string("inbox"))
        .set("publish.directory", toml_string("www"))
        .set("tls.certFile", toml_string("absent.pem"))
        .set("tls.keyFile", toml_string("absent.pem"))
        .set("access.log", toml_string("json"))
        .set("access.logFile", toml_string("no/such/folder/access.log"));
    assert!(host.expect_exit(2, &["run"]).stderr.contains("absent.pem"));
    let mut command = host.command(&["run", "--no-serve"]);
    let daemon = KillOnDrop(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("docwharf starts"));
    // Before the store exists, there is no status.
    until("the socket", || host.path("store/control.sock").exists());
    until("it answers", || host.status()["daemon"]["pid"] == daemon.pid());
    assert_eq!(host.status()["daemon"]["addresses"], json!([]));
}

#[test]
fn a_command_of_root_uses_the_environment_of_the_unit_below_its_own() {
    let host = Host::bare();
    let units = temporary_folder();
    let exec = format!("ExecStart=/bin/docwharf run --config {}", host.path("docwharf.toml").display());
    let environment = "Environment=DOCWHARF_SYNC__KEEP=7 DOCWHARF_LIMITS__ENTRIES=8";
    std::fs::write(units.path().join("docwharf.service"), format!("[Service]\n{environment}\n{exec}\n")).unwrap();
    let shown = |own: &[(&str, &str)]| -> [Value; 2] {
        let mut command = host.command(&["config", "show", "--json"]);
        command.env("SYSTEMD_UNIT_PATH", units.path()).envs(own.iter().copied());
        let json = run_with_timeout(&mut command).expect(0).json();
        ["sync.keep", "limits.entries"].map(|key| json["values"][key]["value"].clone())
    };
    let is_root = rustix::process::geteuid().is_root();
    let (keep, entries) = if is_root { (7, 8) } else { (3, 200_000) };
    assert_eq!(shown(&[]), [json!(keep), json!(entries)]);
    assert_eq!(shown(&[("DOCWHARF_SYNC__KEEP", "9")]), [json!(9), json!(entries)]);
}

#[test]
#[cfg(feature = "analytics")]
fn config_check_warns_of_a_file_of_analytics_keys_that_is_missing_wrong_or_open_to_others() {
    let host =
        Host::bare().set("sync.inbox", toml_string("inbox")).set("analytics.keyFile", toml_string("analytics-keys"));
    let file = format!("{} (analytics.keyFile)", host.path("analytics-keys").display());
    let warnings = || host.ok(&["config", "check"]).stderr;
    assert!(warnings().contains(&format!("cannot read {file}: ")), "{}", warnings());
    host.put("analytics-keys", "# dashboard\nsecret-value\n");
    let wrong = warnings();
    assert!(wrong.contains(&format!("{file}, line 2: the key has 12 characters, and 16 to 512 are needed")), "{wrong}");
    assert!(!wrong.contains("secret-value"), "{wrong}");
    host.put("analytics-keys", "# dashboard\n0123456789abcdef\n");
    assert!(!warnings().contains("analytics.keyFile"), "{}", warnings());
    std::fs::set_permissions(host.path("analytics-keys"), PermissionsExt::from_mode(0o644)).unwrap();
    let open = format!("{file} has mode 0644, which lets other users use it or its group write it: chmod 0640 it");
    assert!(warnings().contains(&open), "{}", warnings());
}

#[test]
#[cfg(feature = "analytics")]
fn run_warns_of_analytics_keys_that_all_users_can_read_at_the_start_and_after_a_reload() {
    let mut host =
        Host::bare().set("sync.inbox", toml_string("inbox")).set("analytics.keyFile", toml_string("analytics-keys"));
    let warning = |host: &Host, name: &str| {
        std::fs::write(host.path(name), "0123456789abcdef\n").unwrap();
        std::fs::set_permissions(host.path(name), PermissionsExt::from_mode(0o644)).unwrap();
        format!("{} (analytics.keyFile) has mode 0644, which lets other users use it", host.path(name).display())
    };
    let (first, second) = (warning(&host, "analytics-keys"), warning(&host, "other-keys"));
    let daemon = host.run_logged();
    until("the first file is reported", || host.log().contains(&first));
    assert!(!host.log().contains(&second), "{}", host.log());
    host.change("analytics.keyFile", toml_string("other-keys"));
    daemon.signal("HUP");
    until("the second file is reported", || host.log().contains(&second));
}

#[test]
#[cfg(feature = "analytics")]
fn a_wrong_file_of_patterns_is_a_mistake_and_a_reload_keeps_the_previous_configuration() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox")).set("analytics.bots", toml_string("bots.txt"));
    let absent = host.expect_exit(2, &["config", "check"]).stderr;
    assert!(absent.contains("analytics.bots: ") && absent.contains("bots.txt: cannot be read: "), "{absent}");
    host.put("bots.txt", "bot LinkChecker\n");
    host.ok(&["config", "check"]);
    let _daemon = host.run_logged();
    // The daemon watches the file.
    host.put("bots.txt", "nonsense\n");
    until("the mistake is reported", || host.log().contains("bots.txt: line 1: "));
    assert!(host.log().contains("the previous configuration stays in force"), "{}", host.log());
}

#[test]
#[cfg(not(feature = "analytics"))]
fn without_the_feature_the_keys_of_analytics_are_mistakes_that_name_it() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox")).set("analytics.keep", toml_string("30d"));
    let refused = host.expect_exit(2, &["config", "check"]).stderr;
    let mistake = "analytics.keep: this docwharf was built without the feature \"analytics\"";
    assert!(refused.contains(mistake), "{refused}");
    let shown = host.without("analytics.keep").ok(&["config", "show", "--json"]).json();
    assert_eq!(shown["values"]["analytics.enabled"], json!({ "value": false, "origin": "default" }));
}
