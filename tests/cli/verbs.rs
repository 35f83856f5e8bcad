//! Every command with a daemon, without one, on a locked store and on a read-only store.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::admin::request_over_socket;
use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use support::host::{
    Host, bundle, expect_plain_exit, front_page_title, run_concurrently, run_with_timeout, toml_string,
    wait_with_timeout,
};
use support::upstream::{Upstream, UpstreamCall, error_reply};
use support::{Daemon, ReservedPort, http, send_signal, until};

/// Each command with its exit codes: with a daemon, without one, on a locked store, on a read-only store.
const EXIT_CODES: [(&[&str], [i32; 4]); 19] = [
    (&["status"], [0, 0, 0, 0]),
    (&["status", "--json"], [0, 0, 0, 0]),
    (&["features"], [0, 0, 0, 0]),
    (&["history"], [0, 0, 0, 0]),
    (&["versions"], [0, 0, 0, 0]),
    (&["store", "verify"], [0, 0, 0, 0]),
    (&["store", "verify", "--active"], [0, 0, 0, 0]),
    (&["gc", "--dry-run"], [0, 0, 0, 0]),
    (&["search", "second"], [0, 0, 0, 0]),
    (&["health"], [0, 1, 1, 1]),
    (&["doctor", "--offline"], [0, 0, 0, 1]),
    (&["activate", "first"], [0, 0, 8, 8]),
    (&["rollback"], [0, 0, 8, 8]),
    (&["hold", "--reason", "because"], [0, 0, 8, 8]),
    (&["release"], [0, 0, 8, 8]),
    (&["gc"], [0, 0, 8, 8]),
    (&["import", "third.zip"], [0, 0, 8, 8]),
    (&["import", "folder", "--label", "fourth"], [0, 0, 8, 8]),
    (&["sync"], [0, 0, 8, 8]),
];

/// A host whose store has two versions, the newer one active.
pub(crate) fn host() -> Host {
    let host = Host::bare();
    host.put("first.zip", bundle("first"));
    host.put("bundle.zip", bundle("second"));
    host.put("third.zip", bundle("third"));
    support::write_site(&host.path("folder"), &[("index.html", "<title>fourth</title>")]);
    let host = host.set("staticExport.bundleUrl", toml_string("bundle.zip")).set("sync.interval", toml_string("1h"));
    host.ok(&["import", host.path("first.zip").to_str().unwrap(), "--label", "first"]);
    assert_eq!(host.sync(), "activated");
    host
}

fn in_folder(host: &Host, command_line: &[&str]) -> Command {
    let mut command = host.command(command_line);
    command.current_dir(host.dir.path());
    command
}

// Regression: a command that was run right after the daemon's announcement found no daemon.
#[test]
fn every_command_exits_with_its_code_while_a_daemon_runs() {
    run_concurrently(&EXIT_CODES, |(command_line, [code, ..])| {
        let host = host();
        let daemon = host.run();
        let output = run_with_timeout(&mut in_folder(&host, command_line));
        assert_eq!(output.code, Some(*code), "{command_line:?}: {output:?}");
        assert_eq!(http::get(&daemon.address, "/").status, 200, "{command_line:?}");
    });
}

#[test]
fn every_command_exits_with_its_code_without_a_daemon() {
    run_concurrently(&EXIT_CODES, |(command_line, [_, code, ..])| {
        let host = host();
        expect_plain_exit(*code, run_with_timeout(&mut in_folder(&host, command_line)));
    });
}

#[test]
fn read_commands_work_on_a_locked_store_and_write_commands_exit_8() {
    run_concurrently(&EXIT_CODES, |(command_line, [_, _, code, _])| {
        let host = host();
        // A writer that is not a daemon, such as a long import.
        let mut holder = Command::new("flock")
            .arg(host.path("store/lock"))
            .args(["sh", "-c", "echo locked; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("flock runs");
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let before = std::fs::read(host.path("store/state.json")).unwrap();
        let output = run_with_timeout(&mut in_folder(&host, command_line));
        assert_eq!(output.code, Some(*code), "{command_line:?}: {output:?}");
        if *code == 8 {
            assert!(output.stderr.contains("locked"), "{command_line:?}: {}", output.stderr);
            assert_eq!(std::fs::read(host.path("store/state.json")).unwrap(), before, "{command_line:?}");
        }
        drop(holder.stdin.take());
        holder.wait().unwrap();
    });
}

#[test]
fn read_commands_work_on_a_read_only_store_and_write_commands_exit_8() {
    run_concurrently(&EXIT_CODES, |(command_line, [_, _, _, code])| {
        let host = host();
        let inner = in_folder(&host, command_line);
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command.arg("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"");
        command.arg(host.path("store")).arg(inner.get_program()).args(inner.get_args());
        command.current_dir(host.dir.path());
        let output = run_with_timeout(&mut command).expect(*code);
        if *code == 8 {
            let output = expect_plain_exit(8, output);
            assert!(output.stderr.contains("Read-only"), "{command_line:?}: {}", output.stderr);
        }
    });
}

#[test]
fn daemon_serves_the_activated_version_before_the_command_ends() {
    let host = host();
    let daemon = host.run_logged();
    let lines = |start: &str| {
        let log = host.log();
        let lines = log.lines().filter_map(|line| line.split_once(" INFO ").map(|(_, text)| text.trim().to_owned()));
        lines.filter(|line| line.starts_with(start)).collect::<Vec<_>>()
    };
    assert_eq!(front_page_title(&daemon), "second");
    let result = host.ok(&["activate", "first", "--json"]).json();
    let first = host.version_id("active");
    let active = format!("version {} is active: ", &first[..12]);
    assert_eq!(lines(&active), [format!("{active}activated by tester; held until `docwharf release`")]);
    assert_eq!((result["result"].as_str(), result["held"].as_bool()), (Some("activated"), Some(true)));
    assert_eq!(front_page_title(&daemon), "first");
    assert!(host.ok(&["rollback"]).stdout.ends_with("; held until `docwharf release`\n"));
    assert_eq!(front_page_title(&daemon), "second");
    let result = host.ok(&["rollback", "--json"]).json();
    let expected = json!({"schemaVersion": 1, "result": "rolled back to", "version": host.active(), "held": true});
    assert_eq!(result, expected);
    assert_eq!(front_page_title(&daemon), "first");
    assert_eq!(host.status()["hold"]["who"], "tester");
    assert_eq!(lines(&active)[1..], [format!("{active}rolled back by tester; held until `docwharf release`")]);
    // Only a release ends a hold.
    host.expect_exit(7, &["sync"]);
    let output = host.expect_exit(7, &["import", host.path("third.zip").to_str().unwrap(), "--json"]);
    let report = output.json();
    assert_eq!((&report["result"], &report["pages"]), (&"not activated".into(), &2.into()), "{report}");
    assert!(output.stderr.contains(report["reason"].as_str().unwrap()), "{output:?}");
    assert_eq!(front_page_title(&daemon), "first");
    let result = host.ok(&["release", "--json"]).json();
    assert_eq!(
        (&result["outcome"], &result["wasHeld"], &result["held"]),
        (&"activated".into(), &true.into(), &false.into())
    );
    assert_eq!(result["version"].as_str(), host.active().as_deref());
    assert_eq!(front_page_title(&daemon), "third");
    assert_eq!(lines("the hold is ended by "), ["the hold is ended by tester"]);
    let third = &host.version_id("active")[..12];
    assert_eq!(lines(&format!("version {third} is active")), [format!("version {third} is active")]);
    assert_eq!(host.ok(&["release", "--json"]).json()["wasHeld"], false);
    assert_eq!(lines("the hold is ended by ").len(), 1, "there was none");
    assert!(host.ok(&["release"]).stdout.starts_with("there was no hold; "));
    host.expect_exit(2, &["activate", "no-such-label"]);
    assert_eq!(front_page_title(&daemon), "third");
    host.ok(&["hold", "--reason", "because"]);
    assert_eq!(lines("activation is "), ["activation is stopped by tester (because) until `docwharf release`"]);
}

#[test]
fn import_through_the_daemon_records_the_path_of_the_folder_or_archive() {
    let host = host();
    let daemon = host.run();
    run_with_timeout(&mut in_folder(&host, &["import", "folder", "--label", "fourth"])).expect(0);
    assert_eq!(front_page_title(&daemon), "fourth");
    assert_eq!(host.status()["activeLabels"], json!(["fourth"]));
    run_with_timeout(&mut in_folder(&host, &["import", "third.zip"])).expect(0);
    assert_eq!(front_page_title(&daemon), "third");
    let versions = host.ok(&["versions", "--json"]).json();
    let sources: Vec<String> =
        versions["versions"].as_array().unwrap().iter().map(|v| v["receipts"][0]["source"].to_string()).collect();
    for name in ["folder", "third.zip"] {
        let path = host.path(name).display().to_string();
        assert!(sources.iter().any(|source| source.contains(&path)), "{path} in {sources:?}");
    }
    host.put("bad.zip", "<html>no bundle");
    let output = expect_plain_exit(5, run_with_timeout(&mut in_folder(&host, &["import", "bad.zip"])));
    assert!(output.stderr.contains(&host.path("bad.zip").display().to_string()), "{}", output.stderr);
    expect_plain_exit(2, run_with_timeout(&mut in_folder(&host, &["import", "nowhere.zip"])));
    assert_eq!(front_page_title(&daemon), "third");
    host.assert_tidy();
}

#[test]
fn sync_with_a_running_daemon_returns_the_result_and_exit_code_of_its_sync() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.publish(bundle("two"));
    let output = host.ok(&["sync", "--json"]);
    assert_eq!(output.json()["result"], "activated");
    assert_eq!(output.json()["version"].as_str(), host.active().as_deref());
    assert_eq!(front_page_title(&daemon), "two");
    assert_eq!(host.sync(), "already current");
    upstream.on(UpstreamCall::Start).times(1).respond_with(error_reply(403).json(&json!({"error": "no such plan"})));
    assert!(host.expect_exit(3, &["sync"]).stderr.contains("no such plan"));
    upstream.publish(b"<html>no bundle</html>".to_vec());
    host.expect_exit(5, &["sync"]);
    assert_eq!(front_page_title(&daemon), "two");
    // A configuration with another source than the daemon's is refused, and no request is sent.
    let requests = upstream.log().len();
    let all = std::fs::read_to_string(host.path("docwharf.toml")).unwrap().replace("docs.example.com", "other.example");
    host.put("other.toml", all);
    let mut command = support::docwharf();
    expect_plain_exit(8, run_with_timeout(command.args(["sync", "--config"]).arg(host.path("other.toml"))));
    // A configuration with a mistake is refused, too, though the daemon's own has none.
    let mistaken = std::fs::read_to_string(host.path("docwharf.toml")).unwrap() + "[nothing]\n";
    host.put("mistaken.toml", mistaken);
    let mut command = support::docwharf();
    expect_plain_exit(2, run_with_timeout(command.args(["sync", "--config"]).arg(host.path("mistaken.toml"))));
    assert_eq!(upstream.log().len(), requests);
}

#[test]
fn hold_during_a_sync_takes_effect_at_once_and_persists_after_the_sync() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.publish(bundle("two"));
    upstream.on(UpstreamCall::Poll).respond_with(error_reply(200).json(&json!({"status": "processing"})));
    let before = upstream.count(UpstreamCall::Poll);
    let sync = spawn_command(&host, &["sync"]);
    until("the job is polled", || upstream.count(UpstreamCall::Poll) > before + 2);
    host.ok(&["hold", "--reason", "not now"]);
    let job = host.job();
    assert!(job.is_some(), "the record of the sync is still there");
    upstream.clear_rules();
    let output = expect_plain_exit(7, wait_with_timeout(sync));
    assert!(output.stderr.contains("not now"), "{}", output.stderr);
    assert_eq!(front_page_title(&daemon), "one");
    assert_eq!(host.status()["hold"]["why"], "not now");
    assert_eq!(host.job(), None);
    host.ok(&["release"]);
    assert_eq!(front_page_title(&daemon), "two");
}

#[test]
fn forced_sync_stays_forced_after_a_configuration_reload() {
    let upstream = Upstream::new(bundle("one"));
    let mut host = Host::new(&upstream).set("gate.minPages", "1");
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    host.change("gate.minPages", "100");
    daemon.signal("HUP");
    upstream.publish(bundle("two"));
    upstream.on(UpstreamCall::Poll).respond_with(error_reply(200).json(&json!({"status": "processing"})));
    let before = upstream.count(UpstreamCall::Poll);
    let sync = spawn_command(&host, &["sync", "--force"]);
    until("the job is polled", || upstream.count(UpstreamCall::Poll) > before + 2);
    // The sync is cancelled and starts again.
    host.change("sync.keep", "7");
    let reloaded = upstream.count(UpstreamCall::Poll);
    daemon.signal("HUP");
    until("it is polled again", || upstream.count(UpstreamCall::Poll) > reloaded + 2);
    upstream.clear_rules();
    expect_plain_exit(0, wait_with_timeout(sync));
    assert_eq!(front_page_title(&daemon), "two");
}

#[test]
fn release_syncs_a_version_that_was_published_during_the_hold() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::linked(&upstream.link());
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    host.ok(&["hold"]);
    upstream.publish(bundle("two"));
    // The next regular check is an hour away.
    host.ok(&["release"]);
    until("the new version", || front_page_title(&daemon) == "two");
}

// Regression: an `import` beside `run` waited for the end of an export that no command had requested.
#[test]
fn import_does_not_wait_for_a_background_sync_of_the_daemon() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.publish(bundle("two"));
    upstream.on(UpstreamCall::Poll).respond_with(error_reply(200).json(&json!({"status": "processing"})));
    let before = upstream.count(UpstreamCall::Poll);
    daemon.signal("HUP");
    until("the job is polled", || upstream.count(UpstreamCall::Poll) > before + 2);
    host.put("third.zip", bundle("third"));
    host.ok(&["import", host.path("third.zip").to_str().unwrap()]);
    assert_eq!(front_page_title(&daemon), "third");
    upstream.clear_rules();
    until("the check is repeated", || front_page_title(&daemon) == "two");
}

/// Waits for the end of the first check, and returns the time of the next one, an hour later. Before the first check
/// starts, the next one is due at once.
pub(crate) fn wait_for_next_check(host: &Host) -> String {
    let soon =
        Command::new("date").args(["-u", "-d", "30 minutes", "+%Y-%m-%dT%H:%M:%SZ"]).output().expect("date runs");
    let soon = String::from_utf8(soon.stdout).expect("a date");
    let mut next = String::new();
    until("the first check has ended", || {
        host.status()["nextLook"].as_str().unwrap_or_default().clone_into(&mut next);
        next.as_str() > soon.trim()
    });
    next
}

// Regression: a shorter interval took effect only after the next check.
#[test]
fn a_shorter_interval_takes_effect_at_once() {
    let mut host = host();
    let _daemon = host.run();
    let far = wait_for_next_check(&host);
    host.change("sync.interval", toml_string("10m"));
    until("the next check is earlier", || host.status()["nextLook"].as_str().is_some_and(|next| next < far.as_str()));
}

// Regression: the history recorded a sync that a person had started as the daemon's own.
#[test]
fn history_names_the_user_who_ran_sync() {
    // With an upstream, not a file: the daemon notices a changed file without a command.
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.publish(bundle("typed"));
    host.ok(&["sync"]);
    let history = host.ok(&["history"]).stdout;
    let typed = history.lines().filter(|line| line.contains("activated") && line.ends_with("tester")).count();
    assert_eq!(typed, 1, "{history}");
}

// Regression: a daemon of another user was reported as no daemon.
#[test]
fn status_and_health_report_a_daemon_of_another_user() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can run commands as another user
    }
    let host = host();
    let _daemon = host.run();
    run_with_timeout(Command::new("chmod").args(["-R", "a+rX"]).arg(host.dir.path())).expect(0);
    let run_as_other_user = |command_line: &[&str]| run_with_timeout(&mut as_other_user(&host, command_line));
    let silent = "it answers only root (uid 0)".to_owned();
    let status = run_as_other_user(&["status"]).expect(0).stdout;
    assert!(status.contains(&silent), "{status}");
    let features = run_as_other_user(&["features"]).expect(0).stderr;
    assert!(features.contains(&silent), "{features}");
    let health = expect_plain_exit(1, run_as_other_user(&["health"])).stderr;
    assert!(health.contains(&silent), "{health}");
    // The daemon does not rely on the mode of the socket alone.
    std::fs::set_permissions(host.path("store/control.sock"), PermissionsExt::from_mode(0o666)).unwrap();
    let health = expect_plain_exit(1, run_as_other_user(&["health"])).stderr;
    assert!(health.contains("cannot be queried: it does not answer"), "{health}");
    assert_eq!(run_as_other_user(&["status", "--json"]).expect(0).json()["daemon"], Value::Null);
}

/// Creates a command that runs `docwharf` on this host as the user 65534.
fn as_other_user(host: &Host, command_line: &[&str]) -> Command {
    let mut command = Command::new("setpriv");
    let inner = host.command(command_line);
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(inner.get_program()).args(inner.get_args());
    command
}

#[test]
fn health_of_a_daemon_of_another_user_is_read_from_the_admin_listener() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can run commands as another user
    }
    let port = ReservedPort::new();
    let host = host().set("admin.listen", toml_string(&port.address));
    let _daemon = host.run();
    run_with_timeout(Command::new("chmod").args(["-R", "a+rX"]).arg(host.dir.path())).expect(0);
    until("the admin listener responds", || run_with_timeout(&mut as_other_user(&host, &["health"])).code == Some(0));
    assert_eq!(run_with_timeout(&mut as_other_user(&host, &["health"])).expect(0).stdout, "ready\n");
}

#[test]
fn store_owners_daemon_accepts_imports_of_root_and_other_users_daemons_are_ignored() {
    if !rustix::process::geteuid().is_root() {
        return; // only root can run commands as another user
    }
    let host = host();
    let change_owner = |arguments: &[&str], path: &Path| {
        run_with_timeout(Command::new("chown").args(arguments).arg(path)).expect(0);
    };
    change_owner(&["-R", "65534:65534"], host.dir.path());
    let daemon = Daemon::start(&mut as_other_user(&host, &["run"]));
    until("the daemon responds", || host.status()["daemon"].is_object());
    // Neither the archive nor the folder can be read by the user of the daemon.
    for name in ["third.zip", "folder"] {
        change_owner(&["-R", "root:root"], &host.path(name));
        std::fs::set_permissions(host.path(name), PermissionsExt::from_mode(0o700)).unwrap();
    }
    host.ok(&["import", host.path("third.zip").to_str().unwrap()]);
    assert_eq!(front_page_title(&daemon), "third");
    host.ok(&["import", host.path("folder").to_str().unwrap()]);
    assert_eq!(front_page_title(&daemon), "fourth");
    // Now the process behind the control socket belongs neither to root nor to the owner of the store.
    change_owner(&["4711:4711"], &host.path("store"));
    std::fs::set_permissions(host.path("store"), PermissionsExt::from_mode(0o777)).unwrap();
    assert_eq!(host.status()["daemon"], Value::Null);
    let health = host.expect_exit(1, &["health"]).stderr;
    assert!(health.contains("cannot be queried: it does not answer"), "{health}");
}

#[test]
fn control_characters_in_responses_of_the_daemon_are_not_printed() {
    let host = host();
    // The process behind the socket may send any text.
    let lock = File::open(host.path("store/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let _ = std::fs::remove_file(host.path("store/control.sock"));
    let listener = UnixListener::bind(host.path("store/control.sock")).unwrap();
    let hostile = "released\u{1b}[2J\u{9b}31m\r\u{7}\u{202e}done";
    let executed =
        json!({ "told": { "json": {}, "text": format!("{hostile}\n"), "warnings": [hostile], "not_active": hostile } });
    let failed = json!({ "failed": { "code": 8, "message": hostile } });
    for (reply, stream) in [executed, failed].into_iter().zip(["stdout", "stderr"]) {
        let client = std::thread::spawn({
            let mut command = host.command(&["release"]);
            move || run_with_timeout(&mut command)
        });
        while !client.is_finished() {
            listener.set_nonblocking(true).unwrap();
            let Ok((mut connection, _)) = listener.accept() else {
                std::thread::yield_now();
                continue;
            };
            connection.set_nonblocking(false).unwrap();
            let mut reader = BufReader::new(connection.try_clone().unwrap());
            let lines = reader.by_ref().lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            let head: Vec<String> = lines.map(|line| line.to_ascii_lowercase()).collect();
            let is_command = head.first().is_some_and(|line| line.starts_with("post "));
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            reader.read_exact(&mut body).unwrap();
            let (status, body) =
                if is_command { ("200 OK", reply.to_string()) } else { ("404 Not Found", String::new()) };
            let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = connection.write_all((head + &body).as_bytes());
        }
        let output = client.join().unwrap();
        let printed = if stream == "stdout" { &output.stdout } else { &output.stderr };
        assert!(printed.contains("released") && printed.contains("done"), "{output:?}");
        for text in [&output.stdout, &output.stderr] {
            assert!(!text.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{text:?}");
        }
    }
}

#[test]
fn import_ended_by_a_signal_removes_its_copy_in_the_staging_folder() {
    let host = host();
    // A daemon that never responds.
    let lock = File::open(host.path("store/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let _ = std::fs::remove_file(host.path("store/control.sock"));
    let _listener = UnixListener::bind(host.path("store/control.sock")).unwrap();
    let import = spawn_command(&host, &["import", host.path("third.zip").to_str().unwrap()]);
    until("the copy is in the store", || std::fs::read_dir(host.path("store/staging")).unwrap().count() == 1);
    send_signal(&import, "TERM");
    let output = expect_plain_exit(143, wait_with_timeout(import));
    assert_eq!(output.stderr, "docwharf: interrupted\n");
    host.assert_tidy();
}

#[test]
fn sync_continues_in_the_daemon_after_the_client_is_killed() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.publish(bundle("two"));
    upstream.on(UpstreamCall::Poll).respond_with(error_reply(200).json(&json!({"status": "processing"})));
    let before = upstream.count(UpstreamCall::Poll);
    let mut sync = spawn_command(&host, &["sync"]);
    until("the job is polled", || upstream.count(UpstreamCall::Poll) > before + 2);
    sync.kill().unwrap();
    sync.wait().unwrap();
    upstream.clear_rules();
    until("the second version", || front_page_title(&daemon) == "two");
}

#[test]
fn daemon_removes_the_staging_copy_of_an_import_without_its_client() {
    let host = host();
    let daemon = host.run();
    until("the socket", || host.path("store/control.sock").exists());
    let copy = host.path("store/staging/import-1-a.tar");
    let import = |bytes: &[u8]| {
        std::fs::write(&copy, bytes).unwrap();
        let command = json!({ "verb": "import", "path": copy, "source": "third.zip", "label": null, "who": "tester" });
        let body = command.to_string();
        let length = body.len();
        let head = format!("POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
        let response = request_over_socket(&host, &(head + &body));
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        response
    };
    assert!(import(b"<html>no bundle").contains("third.zip"));
    host.assert_tidy();
    assert_eq!(front_page_title(&daemon), "second");
    import(&bundle("third"));
    assert_eq!(front_page_title(&daemon), "third");
    host.assert_tidy();
    let metrics = request_over_socket(&host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    for line in ["docwharf_imports_total{result=\"activated\"} 1", "docwharf_imports_total{result=\"failed\"} 1"] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
}

#[test]
fn sync_exits_8_when_the_daemon_stops_during_the_sync() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let mut daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.on(UpstreamCall::Poll).respond_with(error_reply(200).json(&json!({"status": "processing"})));
    let before = upstream.count(UpstreamCall::Poll);
    let sync = spawn_command(&host, &["sync"]);
    until("the job is polled", || upstream.count(UpstreamCall::Poll) > before + 2);
    daemon.signal("TERM");
    let output = expect_plain_exit(8, wait_with_timeout(sync));
    assert!(output.stderr.contains("the daemon on"), "{}", output.stderr);
    assert_eq!(daemon.wait(std::time::Duration::from_secs(20)), Some(0));
    assert!(!host.path("store/control.sock").exists());
}

/// Starts a command and captures its output.
fn spawn_command(host: &Host, command_line: &[&str]) -> Child {
    host.command(command_line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("docwharf starts")
}

#[test]
fn status_shows_the_served_version_the_last_check_and_the_next_step() {
    let host = host();
    let alone = host.status();
    assert_eq!(alone["daemon"], Value::Null);
    assert_eq!(alone["nextLook"], Value::Null);
    let daemon = host.run();
    wait_for_next_check(&host);
    let status = host.status();
    assert_eq!(status["daemon"]["addresses"][0], format!("http://{}/", daemon.address));
    assert_eq!(status["daemon"]["pid"], daemon.pid());
    assert_eq!(status["daemon"]["served"], status["active"]);
    assert_eq!(status["activeLabels"], json!([]), "the label belongs to the other version");
    assert_eq!(status["lastAttempt"]["saw"], "the bundle is known already");
    assert_eq!(status["why"], "the bundle is known already");
    host.put("bundle.zip", "<html>no bundle");
    until("a refusal", || host.status()["lastAttempt"]["failures"] == 1);
    let status = host.status();
    let next_step = status["nextStep"].as_str().unwrap();
    assert!(
        next_step.starts_with("it is tried again automatically; ") && next_step.contains("docwharf sync"),
        "{status}"
    );
    assert_eq!(status["why"], "the last check failed");
    let text = host.ok(&["status"]).stdout;
    for word in ["active ", "daemon ", "serving ", "last check ", "error ", "next step ", "next check "] {
        assert!(text.lines().any(|line| line.starts_with(word)), "{word} in {text}");
    }
    host.ok(&["hold", "--reason", "freeze"]);
    assert!(host.status()["why"].as_str().unwrap().contains("freeze"));
}

#[test]
fn status_json_has_the_same_fields_with_and_without_a_daemon() {
    let host = host();
    let alone = host.status();
    let _daemon = host.run();
    let beside = host.status();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&alone), names(&beside));
}

#[test]
fn status_names_the_active_version_among_several_damaged_ones() {
    let host = host();
    let state = host.path("store/state.json");
    let mut record: Value = serde_json::from_slice(&std::fs::read(&state).unwrap()).unwrap();
    let ids = ["active", "previous"].map(|field| record[field].as_str().unwrap().to_owned());
    std::fs::write(host.path("store/suspect"), ids.join("\n") + "\n").unwrap();
    for id in &ids {
        record["active"] = json!(id);
        std::fs::write(&state, record.to_string()).unwrap();
        let status = host.status();
        assert_eq!((&status["active"], &status["damaged"]), (&json!(id), &json!(id)), "{status}");
        assert_eq!(status["damagedVersions"].as_array().unwrap().len(), 2, "{status}");
    }
}

#[test]
fn store_verify_finds_damaged_versions_and_changes_nothing() {
    let host = host();
    let versions = host.ok(&["versions", "--json"]).json()["versions"].clone();
    let labelled = |version: &&Value| version["labels"] == json!(["first"]);
    let first = versions.as_array().unwrap().iter().find(labelled).unwrap()["id"].as_str().unwrap().to_owned();
    flip_byte(&host.path(&format!("store/versions/{first}/site.zip")));
    let before = support::read_tree(&host.path("store"));
    let output = run_with_timeout(&mut host.command(&["store", "verify", "--json"]));
    assert_eq!(output.code, Some(8), "{output:?}");
    assert_eq!(output.json()["damaged"], json!([first]));
    host.ok(&["store", "verify", "--active"]);
    assert!(before == support::read_tree(&host.path("store")));
    // A complete image, but that of another version.
    let image = |id: &Value| host.path(&format!("store/versions/{}/site.zip", id.as_str().unwrap()));
    let second = versions.as_array().unwrap().iter().find(|version| !labelled(version)).unwrap()["id"].clone();
    std::fs::remove_file(image(&json!(first))).unwrap();
    std::fs::copy(image(&second), image(&json!(first))).unwrap();
    let output = run_with_timeout(&mut host.command(&["store", "verify", "--json"]));
    assert_eq!((output.code, output.json()["damaged"].clone()), (Some(8), json!([first])));
}

#[test]
fn store_verify_distinguishes_a_wrong_index_and_a_missing_version_from_damage() {
    let host = host();
    let active = host.active().unwrap();
    let index = host.path(&format!("store/versions/{active}/index"));
    std::fs::set_permissions(&index, PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(&index, "damaged").unwrap();
    let report = host.ok(&["store", "verify", "--active", "--json"]).json();
    let verdict = "ok; the index does not match and is rebuilt when the version is served next";
    let version = &report["versions"][0];
    assert_eq!((&version["id"], &version["ok"]), (&json!(active), &json!(true)), "{report}");
    assert_eq!((&version["verdict"], &report["damaged"]), (&json!(verdict), &json!([])), "{report}");
    assert_eq!(report["versions"].as_array().unwrap().len(), 1, "--active verifies no other version: {report}");
    std::fs::remove_dir_all(host.path(&format!("store/versions/{active}"))).unwrap();
    for arguments in [&["store", "verify"][..], &["store", "verify", "--active"]] {
        let missing = format!("the active version {} is missing from the store", &active[..12]);
        let output = host.expect_exit(8, arguments);
        assert!(output.stderr.contains(&missing) && output.stdout.is_empty(), "{output:?}");
    }
}

/// Changes a byte in the middle of a file.
fn flip_byte(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x55;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn gc_removes_exactly_the_versions_that_dry_run_lists() {
    let host = host().set("sync.keep", "0");
    for name in ["third.zip", "bundle.zip", "third.zip"] {
        host.put("more.zip", bundle(&format!("{name} again {}", host.ok(&["versions"]).stdout.len())));
        host.ok(&["import", host.path("more.zip").to_str().unwrap()]);
    }
    // Each was pruned when the next one arrived; labelled, active and previous versions stay.
    assert_eq!(host.ok(&["gc", "--dry-run", "--json"]).json()["versions"].as_array().unwrap().len(), 0);
    let host = host.set("sync.keep", "5");
    for n in 0..3 {
        host.put("more.zip", bundle(&format!("further {n}")));
        host.ok(&["import", host.path("more.zip").to_str().unwrap()]);
    }
    let host = host.set("sync.keep", "0");
    let listed = host.ok(&["gc", "--dry-run", "--json"]).json();
    assert!(!listed["versions"].as_array().unwrap().is_empty());
    let sizes = listed["versions"].as_array().unwrap().iter().map(|version| version["bytes"].as_u64().unwrap());
    assert_eq!(listed["bytes"], sizes.sum::<u64>());
    // Also beside a daemon, which removes nothing itself while it checks no source.
    let host = host.set("staticExport.enabled", "false");
    let daemon = host.run();
    until("the daemon responds", || host.status()["daemon"].is_object());
    assert_eq!(host.ok(&["gc", "--dry-run", "--json"]).json(), listed);
    drop(daemon);
    let pruned = || host.ok(&["history"]).stdout.lines().filter(|line| line.contains("  pruned  ")).count();
    let before = pruned();
    let removed = host.ok(&["gc", "--json"]).json();
    assert_eq!(listed["versions"], removed["versions"]);
    assert_eq!(pruned() - before, removed["versions"].as_array().unwrap().len(), "history names each version");
    assert_eq!(host.ok(&["gc"]).stdout, "nothing to remove\n");
}
