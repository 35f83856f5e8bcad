//! The contract of the command line: exit codes, errors of one line, data on standard output.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use rustix::fs::{FlockOperation, flock};
use support::host::{Host, bundle, expect_plain_exit, run_with_timeout, toml_string};
use support::tls::CertificateAuthority;
use support::upstream::Upstream;
use support::zip::{deflated, zip};
use support::{docwharf, run_docwharf, run_to_end, temporary_folder, write_site};

#[test]
fn usage_errors_are_one_line_and_exit_2() {
    for arguments in [
        &["--no-such-flag"][..],
        &["no-such-command"],
        &["serve"],
        &["serve", "/no/such/bundle.zip"],
        &["serve", ".", "--listen", "nowhere"],
        &["serve", ".", "--base-path", "docs"],
        &["serve", ".", "--slashes", "sometimes"],
        &["bundle", "verify", "/no/such/bundle.zip"],
        &["import", "x.zip", "--label", ""],
        &["status", "--config", "/no/such/config.toml"],
    ] {
        let output = run_docwharf(arguments).expect(2);
        assert_eq!(output.stderr.lines().count(), 1, "{arguments:?}: {}", output.stderr);
        assert!(output.stderr.starts_with("docwharf: "), "{}", output.stderr);
        assert_eq!(output.stdout, "");
    }
}

#[test]
fn help_and_version_print_to_stdout_and_a_missing_command_exits_2() {
    assert!(run_docwharf(["--help"]).expect(0).stdout.contains("Exit codes"));
    assert_eq!(run_docwharf(["--version"]).expect(0).stdout, format!("docwharf {}\n", env!("CARGO_PKG_VERSION")));
    for command in
        ["run", "serve", "sync", "import", "status", "versions", "history", "activate", "rollback", "hold", "release"]
    {
        assert!(!run_docwharf([command, "--help"]).expect(0).stdout.is_empty());
    }
    #[cfg(feature = "origin")]
    assert!(!run_docwharf(["origin", "--help"]).expect(0).stdout.is_empty());
    // A command line without a command is a mistake, also for a script that reads the exit code.
    for arguments in [&[][..], &["config"], &["bundle"]] {
        let output = run_docwharf(arguments).expect(2);
        assert!(output.stdout.is_empty() && output.stderr.contains("Usage: docwharf"), "{arguments:?}: {output:?}");
    }
}

#[test]
fn version_command_prints_version_target_compiler_features_and_commit() {
    let output = run_docwharf(["version"]).expect(0);
    assert!(output.stdout.starts_with(concat!("docwharf ", env!("CARGO_PKG_VERSION"), "\n")), "{}", output.stdout);
    let json = run_docwharf(["version", "--json"]).expect(0).json();
    assert_eq!((&json["schemaVersion"], &json["version"]), (&1.into(), &env!("CARGO_PKG_VERSION").into()));
    assert!(json["target"].as_str().unwrap().contains("linux"), "{json}");
    let compiler = json["compiler"].as_str().unwrap();
    assert!(compiler.starts_with("rustc 1.") && compiler.lines().count() == 1, "{json}");
    assert!(output.stdout.contains(&format!("\ncompiler {compiler}\n")), "{}", output.stdout);
    // The same sources give the same bytes: nothing depends on the time or the folder of the build.
    let mut names: Vec<&str> = json.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    assert_eq!(names, ["commit", "compiler", "features", "schemaVersion", "target", "version"]);
    let features: Vec<&str> = [("analytics", cfg!(feature = "analytics")), ("origin", cfg!(feature = "origin"))]
        .into_iter()
        .filter_map(|(name, is_on)| is_on.then_some(name))
        .collect();
    assert_eq!(json["features"], serde_json::json!(features), "{json}");
    assert!(json.get("commit").is_some(), "{json}");
}

#[test]
#[cfg(not(feature = "origin"))]
fn build_without_the_origin_feature_has_no_origin_or_demo_command() {
    let help = run_docwharf(["--help"]).expect(0).stdout;
    for command in ["origin", "demo"] {
        assert!(!help.lines().any(|line| line.trim_start().starts_with(command)), "{help}");
        let output = run_docwharf([command]).expect(2);
        assert!(output.stderr.contains(&format!("there is no command '{command}'")), "{}", output.stderr);
    }
}

#[test]
fn unknown_command_error_suggests_a_command_but_none_that_changes_the_site() {
    for (guess, right) in [
        ("validate", "docwharf config check"),
        ("prune", "docwharf gc --dry-run"),
        ("reload", "systemctl reload docwharf"),
        ("verify", "docwharf bundle verify FILE"),
        ("stop", "systemctl stop docwharf"),
        ("statsu", "docwharf status"),
        ("qwertz", "docwharf --help"),
    ] {
        let output = run_docwharf([guess]).expect(2);
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        assert!(output.stderr.contains(right), "{guess}: {}", output.stderr);
    }
    for (arguments, right) in [
        (&["store", "verfy"][..], "did you mean docwharf store verify?"),
        (&["config", "ini"], "did you mean docwharf config init?"),
        #[cfg(feature = "origin")]
        (&["origin", "key", "creat"], "did you mean docwharf origin key create?"),
        (&["export", "strat"], "did you mean docwharf export start?"),
        (&["export", "qwertz"], "docwharf export --help lists the commands"),
    ] {
        let output = run_docwharf(arguments).expect(2);
        assert!(output.stderr.contains(right), "{arguments:?}: {}", output.stderr);
    }
    for guess in ["activat", "rolback", "holds", "releas", "imports", "synch", "gcc", "validate", "reload", "verify"] {
        let output = run_docwharf([guess]).expect(2);
        for changing in ["activate", "rollback", "hold", "release", "import", "run", "sync", "gc"] {
            assert!(!output.stderr.contains(&format!("docwharf {changing}")), "{guess}: {}", output.stderr);
        }
    }
}

// Regression: a command that failed with `--json` printed no JSON.
#[test]
fn errors_are_also_printed_as_json_with_the_json_option() {
    let dir = temporary_folder();
    let broken = dir.path().join("broken.zip");
    std::fs::write(&broken, "no archive").unwrap();
    let broken = broken.to_str().unwrap();
    let file = dir.path().join("config.toml");
    std::fs::write(&file, "[sever]\n[stoer]\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, exit) in [
        (&["--json", "validate"][..], 2),
        (&["status", "--no-such-flag", "--json"], 2),
        (&["--json", "bundle", "verify", broken], 5),
        (&["config", "check", "--json", "--config", file], 2),
        (&["activate", "nothing", "--json"], 2),
    ] {
        let mut command = docwharf();
        let store = dir.path().join("store");
        let output = run_to_end(command.args(arguments).env("DOCWHARF_STORE__PATH", store)).expect(exit);
        let json = output.json();
        assert_eq!(
            (&json["schemaVersion"], &json["error"]["exit"]),
            (&1.into(), &exit.into()),
            "{arguments:?}: {json}"
        );
        let message = json["error"]["message"].as_str().unwrap();
        let line = output.stderr.lines().next().unwrap().trim_start_matches("docwharf: ");
        assert!(message.starts_with(line), "{message} / {line}");
        assert!(!json["error"]["nextStep"].as_str().unwrap().is_empty(), "{json}");
    }
    // Behind `--`, it is the name of a file.
    assert_eq!(run_docwharf(["bundle", "verify", "--", "--json"]).expect(2).stdout, "");
    // A result that was printed is not followed by another document.
    let mut command = docwharf();
    let faults = run_to_end(command.args(["doctor", "--offline", "--json", "--config", file])).expect(1);
    assert!(faults.json().get("error").is_none());
}

#[test]
fn command_results_are_json_with_the_json_option() {
    let dir = temporary_folder();
    let site = write_site(&dir.path().join("site"), &[("index.html", "<p>hi"), ("a/b.html", "x"), (".env", "secret")]);
    let bundle = dir.path().join("b.zip");
    let packed = run_to_end(docwharf().args(["bundle", "pack", "--json"]).arg(&site).arg(&bundle)).expect(0).json();
    let verified = run_to_end(docwharf().args(["bundle", "verify", "--json"]).arg(&bundle)).expect(0).json();
    let inspected = run_to_end(docwharf().args(["bundle", "inspect", "--json"]).arg(&bundle)).expect(0).json();
    assert_eq!(packed["version"], verified["version"]);
    assert_eq!(inspected["kind"], "zip");
    assert_eq!((&inspected["pages"], &inspected["files"]), (&2.into(), &3.into()));
    assert_eq!(inspected["leftOut"], serde_json::json!({ "launchers": 0, "junk": 0, "hidden": 1 }));
    assert_eq!(inspected["archiveSha256"], packed["archiveSha256"]);
    let archive_bytes = std::fs::metadata(&bundle).unwrap().len();
    for (json, bytes) in [(&packed, "archiveBytes"), (&inspected, "archiveBytes")] {
        assert_eq!(json[bytes], archive_bytes, "{json}");
    }
    // The two pages have 5 bytes and 1 byte; content is also the hidden file.
    assert_eq!((&inspected["pageBytes"], &inspected["contentBytes"]), (&6.into(), &12.into()), "{inspected}");
    for field in ["pages", "files", "contentBytes", "version", "warnings"] {
        assert_eq!(verified[field], inspected[field], "{field}");
    }
    let store = dir.path().join("store");
    for arguments in
        [&["import", bundle.to_str().unwrap()][..], &["status"], &["versions"], &["history"], &["hold"], &["release"]]
    {
        let mut command = docwharf();
        let output = run_to_end(command.args(arguments).arg("--json").env("DOCWHARF_STORE__PATH", &store)).expect(0);
        assert_eq!(output.json()["schemaVersion"], 1, "{arguments:?}");
        assert_eq!(output.stderr, "", "{arguments:?}");
    }
}

#[test]
fn closed_stdout_pipe_is_not_an_error() {
    let dir = temporary_folder();
    let site = write_site(&dir.path().join("site"), &[("index.html", "<p>hi")]);
    let mut child = docwharf()
        .args(["bundle", "inspect"])
        .arg(&site)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn config_flag_takes_precedence_over_docwharf_config_variable() {
    let (flag_host, variable_host) = (Host::bare(), Host::bare());
    let dir = temporary_folder();
    let archive = dir.path().join("bundle.zip");
    std::fs::write(&archive, bundle("one")).unwrap();
    let import = |host: &Host| {
        let mut command = host.command(&["import", archive.to_str().unwrap()]);
        command.env("DOCWHARF_CONFIG", variable_host.path("docwharf.toml")).current_dir(dir.path());
        command
    };
    run_with_timeout(&mut import(&flag_host)).expect(0);
    assert!(flag_host.path("store/state.json").exists() && !variable_host.path("store").exists());
    // A path in a file is relative to that file, a path in the environment to the working directory.
    run_with_timeout(import(&flag_host).env("DOCWHARF_STORE__PATH", "elsewhere")).expect(0);
    assert!(dir.path().join("elsewhere/state.json").exists() && !flag_host.path("elsewhere").exists());
    let mut alone = docwharf();
    alone.args(["import", archive.to_str().unwrap()]).env("DOCWHARF_CONFIG", variable_host.path("docwharf.toml"));
    run_with_timeout(&mut alone).expect(0);
    assert!(variable_host.path("store/state.json").exists());
}

#[test]
fn config_show_masks_secrets_in_urls() {
    for (key, value) in [
        ("staticExport.bundleUrl", "\"https://docs.example/b.zip?signature=secret-value\""),
        ("sync.probe", "\"https://docs.example/sitemap.xml?signature=secret-value\""),
        (
            "sync.probe",
            "[\"https://docs.example/a\", \"https://ada:secret-value@docs.example/b?signature=secret-value\"]",
        ),
    ] {
        let host = Host::bare()
            .set("api.baseUrl", toml_string("https://api.example/v1"))
            .set("api.domain", toml_string("docs.example"))
            .set(key, value);
        let shown = host.ok(&["config", "show"]);
        assert!(shown.stdout.contains("https://docs.example/"), "{key}: {}", shown.stdout);
        for text in [&shown.stdout, &shown.stderr] {
            assert!(!text.contains("secret-value"), "{key}: {text}");
        }
    }
}

#[test]
fn the_example_configuration_has_every_key_and_is_valid() {
    let example = include_str!("../../config.example.toml");
    let dir = temporary_folder();
    let path = dir.path().join("config.toml");
    // Keys that are comments, because they have no default, are part of the example, too.
    let all: Vec<&str> = example
        .lines()
        .map(|line| {
            line.strip_prefix('#').filter(|rest| rest.contains(" = ") && !rest.starts_with(' ')).unwrap_or(line)
        })
        .collect();
    std::fs::write(&path, all.join("\n").replace("/var/lib/docwharf", dir.path().to_str().unwrap())).unwrap();
    // The only file that must exist if a configuration names it.
    std::fs::write(dir.path().join("docs.json"), "{\"redirects\": []}").unwrap();
    run_docwharf(["status".as_ref(), "--config".as_ref(), path.as_os_str()]).expect(0);
    for key in docwharf::config::keys::keys() {
        let (section, name) = key.name.rsplit_once('.').unwrap();
        let body = example.split(&format!("\n[{section}]\n")).nth(1).unwrap_or_else(|| panic!("no section {section}"));
        let body = body.split("\n[").next().unwrap();
        assert!(
            body.lines().any(|line| line.trim_start_matches('#').starts_with(&format!("{name} = "))),
            "{} is missing",
            key.name
        );
    }
}

#[test]
fn quiet_option_suppresses_output_and_a_warning_is_one_line() {
    let dir = temporary_folder();
    let path = dir.path().join("b.zip");
    std::fs::write(&path, zip(&[deflated("a/x.html", "x"), deflated("y.html", "y")])).unwrap();
    let loud = run_to_end(docwharf().args(["bundle", "verify"]).arg(&path)).expect(0);
    assert_eq!(loud.stderr.lines().count(), 1);
    assert!(loud.stderr.contains("no index.html"), "{}", loud.stderr);
    let quiet = run_to_end(docwharf().args(["-q", "bundle", "verify"]).arg(&path)).expect(0);
    assert_eq!((quiet.stdout.as_str(), quiet.stderr.as_str()), ("", ""));
}

#[test]
fn an_unwritable_store_is_exit_8_and_names_the_folder() {
    let dir = temporary_folder();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let bundle = dir.path().join("b.zip");
    std::fs::write(&bundle, zip(&[deflated("index.html", "x")])).unwrap();
    let output =
        run_to_end(docwharf().arg("import").arg(&bundle).env("DOCWHARF_STORE__PATH", file.join("store"))).expect(8);
    assert_eq!(output.stderr.lines().count(), 1);
    assert!(output.stderr.contains(file.join("store").to_str().unwrap()), "{}", output.stderr);
}

#[test]
fn errors_in_a_pipe_are_coloured_only_with_color_always() {
    let stderr =
        |when: &[&str]| run_docwharf(["bundle", "verify", "/no/such/bundle"].iter().chain(when)).expect(2).stderr;
    assert!(stderr(&["--color", "always"]).starts_with("\x1b[1;31mdocwharf:\x1b[0m cannot read"));
    for when in [&[][..], &["--color", "auto"], &["--color", "never"]] {
        assert!(stderr(when).starts_with("docwharf: cannot read"), "{when:?}");
    }
}

// Regression: the file that `config init` wrote was not a valid configuration, and it requested an export at each
// check.
#[test]
fn config_init_writes_a_valid_file_that_equals_the_defaults() {
    let dir = temporary_folder();
    let path = dir.path().join("config.toml");
    run_to_end(docwharf().args(["config", "init"]).arg(&path)).expect(0);
    let shown = |arguments: &[&str]| {
        let values = run_to_end(docwharf().args(["config", "show", "--json"]).args(arguments)).expect(0).json();
        let values = values["values"].as_object().unwrap().clone();
        values.into_iter().map(|(key, value)| (key, value["value"].clone())).collect::<Vec<_>>()
    };
    std::fs::write(dir.path().join("empty.toml"), "").unwrap();
    let (init, empty) = (path.to_str().unwrap(), dir.path().join("empty.toml"));
    assert_eq!(shown(&["--config", init]), shown(&["--config", empty.to_str().unwrap()]));
}

// Regression: the first command that the documentation advises, `docwharf config init /etc/docwharf/config.toml`,
// failed because the folder did not exist.
#[test]
fn config_init_creates_the_folder_lists_keys_to_set_and_keeps_an_existing_file() {
    let dir = temporary_folder();
    let path = dir.path().join("etc/docwharf/config.toml");
    let first = run_to_end(docwharf().args(["config", "init"]).arg(&path)).expect(0);
    assert_eq!(first.stdout.trim_end(), path.display().to_string());
    for words in ["api.baseUrl", "staticExport.bundleUrl", "docwharf doctor --config"] {
        assert!(first.stderr.contains(words), "{words}: {}", first.stderr);
    }
    std::fs::write(&path, "[server]\nlisten = \"127.0.0.1:0\"\n").unwrap();
    let second = expect_plain_exit(8, run_to_end(docwharf().args(["config", "init"]).arg(&path)));
    assert!(second.stderr.contains("docwharf config check --config"), "{}", second.stderr);
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("[server]"));
}

#[test]
fn config_check_warns_about_valid_but_suspicious_settings() {
    let upstream = Upstream::new(bundle("one"));
    let sound = || Host::new(&upstream).set("sync.probe", format!("[{}]", toml_string(&upstream.probe_url())));
    let warnings = |host: &Host| -> Vec<String> {
        let json = host.ok(&["config", "check", "--json"]).json();
        assert_eq!((json["result"].as_str(), json["file"].as_str()), (Some("ok"), host.path("docwharf.toml").to_str()));
        let warnings = json["warnings"].as_array().unwrap().iter();
        warnings.map(|warning| warning.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(warnings(&sound()), [""; 0]);
    let open_key = sound();
    std::fs::set_permissions(open_key.path("key"), PermissionsExt::from_mode(0o644)).unwrap();
    let pair = CertificateAuthority::new().issue(&["localhost"]);
    let silent = sound().set("tls.certFile", toml_string("cert.pem")).set("tls.keyFile", toml_string("key.pem"));
    silent.put("cert.pem", &pair.certificate);
    silent.put("key.pem", &pair.key);
    let cases: [(Host, &str); 7] = [
        (open_key, "is open to more than owner and group: chmod 0640 it"),
        (silent, "tls.listen is not set: nothing is served encrypted"),
        (sound().set("api.keyFile", toml_string("absent")), "cannot read the API key"),
        (sound().set("staticExport.bundleUrl", toml_string("absent.zip")), "staticExport.bundleUrl: cannot read "),
        (sound().set("api.caFile", toml_string("absent.pem")), "api.caFile: cannot read "),
        (Host::new(&upstream).without("sync.probe"), "each check starts an export: set sync.probe"),
        (sound().set("api.baseUrl", toml_string(&upstream.api_origin())), "the URL does not end in /v1"),
    ];
    for (host, expected) in cases {
        let found = warnings(&host);
        assert!(found.len() == 1 && found[0].contains(expected), "{expected}: {found:?}");
        let output = host.ok(&["config", "check"]);
        assert_eq!(output.stdout, format!("{}: ok\n", host.path("docwharf.toml").display()));
        assert_eq!(output.stderr, format!("docwharf: warning: {}\n", found[0]));
        let output = host.ok(&["config", "check", "--quiet"]);
        assert_eq!((output.stdout.as_str(), output.stderr.as_str()), ("", ""), "{expected}");
    }
}

// Regression: `config check`, `doctor` and `run` gave three different verdicts on a configuration without a source.
#[test]
fn config_check_doctor_and_run_all_reject_a_configuration_with_nothing_to_serve() {
    let host = Host::bare();
    let verdict = "there is nothing to serve: no source is set, and the store";
    for arguments in [&["config", "check"][..], &["run"]] {
        let output = host.expect_exit(2, arguments);
        assert!(
            output.stderr.contains(verdict) && output.stderr.contains("staticExport.bundleUrl"),
            "{}",
            output.stderr
        );
    }
    let doctor = run_with_timeout(&mut host.command(&["doctor", "--offline"])).expect(1);
    assert!(doctor.stdout.contains(verdict) && doctor.stdout.contains("staticExport.bundleUrl"), "{}", doctor.stdout);
    let host = host.set("sync.inbox", toml_string("inbox"));
    host.ok(&["config", "check"]);
}

#[test]
fn inbox_inside_the_store_is_a_configuration_error() {
    for inbox in ["store", "store/versions"] {
        let output = Host::bare().set("sync.inbox", toml_string(inbox)).expect_exit(2, &["config", "check"]);
        assert!(output.stderr.contains("sync.inbox: it is the store or inside it"), "{}", output.stderr);
    }
}

// Regression: `sync` with an inbox as the only source reported "disabled".
#[test]
fn sync_without_a_source_reports_no_source_and_ignores_the_inbox() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox"));
    host.put("bundle.zip", bundle("one"));
    let empty = host.expect_exit(2, &["sync"]);
    assert!(empty.stderr.contains("no source") && empty.stderr.contains("docwharf run"), "{}", empty.stderr);
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
    let output = host.ok(&["sync"]);
    assert!(output.stdout.contains("no source is configured"), "{}", output.stdout);
    let why = host.status()["why"].to_string();
    assert!(why.contains("through `docwharf import` and the inbox "), "{why}");
    assert_eq!(host.sync(), "no source");
    let host = host.set("staticExport.enabled", "false");
    // There is nothing to do, so it does not wait for another process that writes to the store.
    let lock = std::fs::File::open(host.path("store/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    assert_eq!(host.sync(), "disabled");
}

// Regression: `import` and `status` did not report that no process serves the store.
#[test]
fn import_and_status_without_a_daemon_print_the_next_step() {
    let host = Host::bare();
    host.put("bundle.zip", bundle("one"));
    let import = |host: &Host| host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]).stderr;
    let next = format!("docwharf run --config {}", host.path("docwharf.toml").display());
    let stderr = import(&host);
    assert!(stderr.contains("no daemon serves this store") && stderr.contains(&next), "{stderr}");
    let status = host.ok(&["status"]).stdout;
    assert!(status.contains("next step") && status.contains(&next), "{status}");
    let units = temporary_folder();
    let exec = format!("[Service]\nExecStart=/bin/docwharf run --config {}\n", host.path("docwharf.toml").display());
    std::fs::write(units.path().join("docwharf.service"), exec).unwrap();
    let status = run_with_timeout(host.command(&["status"]).env("SYSTEMD_UNIT_PATH", units.path())).expect(0).stdout;
    assert!(status.contains("systemctl start docwharf"), "{status}");
    let _daemon = host.run();
    let stderr = import(&host);
    assert!(!stderr.contains("no daemon"), "{stderr}");
    assert!(!host.ok(&["status"]).stdout.contains("next step"));
}

#[test]
fn environment_variable_with_a_missing_underscore_causes_a_warning() {
    let check = || {
        let mut command = docwharf();
        command.args(["config", "check"]).env("DOCWHARF_SYNC__INBOX", "/srv/inbox");
        command
    };
    let slip = run_to_end(check().env("DOCWHARF_SERVER_LISTEN", "127.0.0.1:1")).expect(0);
    assert!(slip.stderr.contains("did you mean DOCWHARF_SERVER__LISTEN"), "{}", slip.stderr);
    let invented = run_to_end(check().env("DOCWHARF_SERVICE_HOST", "10.0.0.1")).expect(0);
    assert!(!invented.stderr.contains("DOCWHARF_SERVICE_HOST"), "{}", invented.stderr);
}

#[test]
fn history_records_the_sudo_user_or_user_and_last_limits_the_events() {
    let host = Host::bare();
    let name_of_process = run_to_end(std::process::Command::new("id").arg("-un")).expect(0).stdout;
    let cases = [
        (&[("SUDO_USER", "ada"), ("USER", "root"), ("LOGNAME", "root")][..], "ada"),
        (&[("USER", "ben"), ("LOGNAME", "cyd")], "ben"),
        (&[("LOGNAME", "cyd")], "cyd"),
        (&[("USER", "")], name_of_process.trim()),
        (&[], name_of_process.trim()),
    ];
    for (variables, name) in cases {
        let mut command = host.command(&["hold"]);
        for removed in ["SUDO_USER", "USER", "LOGNAME"] {
            command.env_remove(removed);
        }
        run_with_timeout(command.envs(variables.iter().copied())).expect(0);
        assert_eq!(host.status()["hold"]["who"], name, "{variables:?}");
    }
    let authors = |arguments: &[&str]| -> Vec<String> {
        let history = host.ok(&[&["history", "--json"], arguments].concat()).json();
        let events = history["events"].as_array().unwrap().iter();
        events.map(|event| event["who"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(authors(&[])[..3], ["ada", "ben", "cyd"], "the oldest first");
    assert_eq!(authors(&["-n", "2"]), authors(&[])[3..]);
    assert_eq!(authors(&["--last", "9"]), authors(&[]));
    assert!(authors(&["--last", "0"]).is_empty());
}

// Regression: `status` and `rollback` failed when the configuration was invalid.
#[test]
fn status_history_and_rollback_work_with_an_invalid_configuration() {
    let dir = temporary_folder();
    let bundle = dir.path().join("b.zip");
    let config = dir.path().join("c.toml");
    std::fs::write(&config, "[store]\npath = \"store\"\n").unwrap();
    let command = |arguments: &[&str]| run_to_end(docwharf().args(arguments).arg("--config").arg(&config));
    for text in ["one", "two"] {
        std::fs::write(&bundle, zip(&[deflated("index.html", text)])).unwrap();
        command(&["import", bundle.to_str().unwrap()]).expect(0);
    }
    assert_eq!(command(&["status", "--json"]).expect(0).json()["enabled"], true);
    for broken in ["[sync\n", "[sync]\nintervall = 5\n"] {
        std::fs::write(&config, format!("[store]\npath = \"store\"\n{broken}")).unwrap();
        let status = command(&["status"]).expect(0);
        assert!(status.stdout.contains("active") && status.stderr.contains("c.toml:"), "{status:?}");
        command(&["history"]).expect(0);
        command(&["rollback"]).expect(0);
        // Whether `activate` holds depends on the configuration; without it, as by default.
        let status = command(&["status", "--json"]).expect(0).json();
        assert!(status["enabled"].is_null(), "it is not known: {status}");
        let id = status["previous"].as_str().unwrap().to_owned();
        assert!(command(&["activate", &id]).expect(0).stdout.contains("; held until `docwharf release`"));
        command(&["release"]).expect(2);
    }
    // Without a configured store, no default is assumed.
    std::fs::write(&config, "[sync\n").unwrap();
    command(&["status"]).expect(2);
}

// Regression: `config show` printed invalid TOML for a value that contains the delete character.
#[test]
fn config_show_prints_valid_toml_for_any_values() {
    let dir = temporary_folder();
    let show = |text: &str| {
        let file = dir.path().join("docwharf.toml");
        std::fs::write(&file, text).expect("files can be written");
        run_to_end(docwharf().args(["config", "show", "--config"]).arg(file)).expect(0).stdout
    };
    // TOML requires an escape of the delete character, JSON does not.
    let shown = show(
        "[store]\npath = \"/a\\u007f\\n\\\"\\u00e9\"\n\
         [[server.headers]]\nsource = \"/*\"\nvalues = { X-A = \"b\" }\n",
    );
    let values = |shown: &str| -> Vec<String> {
        shown.lines().map(|line| line.split("  #").next().unwrap_or_default().trim_end().to_owned()).collect()
    };
    assert!(values(&shown).contains(&"path = \"/a\\u007f\\n\\\"\u{e9}\"".to_owned()), "{shown}");
    // A key without a value is a comment.
    let again = show(&shown);
    assert_eq!(values(&shown), values(&again));
}
