//! Every verb beside a daemon, without one, on a store that is locked and on one that cannot be written to; and what the
//! control socket and the admin listener answer.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Value, json};
use support::host::{Host, at_once, bundle, finish, finish_child, front, judged, text};
use support::upstream::{Call, Upstream, answer};
use support::{Daemon, http, until};

/// Verb, then its exit code beside a daemon, alone, on a locked store, on one that is read-only.
const TABLE: [(&[&str], [i32; 4]); 17] = [
    (&["status"], [0, 0, 0, 0]),
    (&["status", "--json"], [0, 0, 0, 0]),
    (&["history"], [0, 0, 0, 0]),
    (&["versions"], [0, 0, 0, 0]),
    (&["store", "verify"], [0, 0, 0, 0]),
    (&["store", "verify", "--active"], [0, 0, 0, 0]),
    (&["gc", "--dry-run"], [0, 0, 0, 0]),
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
fn host() -> Host {
    let host = Host::bare();
    host.put("first.zip", bundle("first"));
    host.put("bundle.zip", bundle("second"));
    host.put("third.zip", bundle("third"));
    support::write_site(&host.path("folder"), &[("index.html", "<title>fourth</title>")]);
    let host = host.set("staticExport.bundleUrl", text("bundle.zip")).set("sync.interval", text("1h"));
    host.ok(&["import", host.path("first.zip").to_str().unwrap(), "--label", "first"]);
    assert_eq!(host.sync(), "activated");
    host
}

fn in_folder(host: &Host, verb: &[&str]) -> Command {
    let mut command = host.command(verb);
    command.current_dir(host.dir.path());
    command
}

#[test]
fn every_verb_works_beside_a_daemon() {
    at_once(&TABLE, |(verb, [code, ..])| {
        let host = host();
        let daemon = host.run();
        let ended = finish(&mut in_folder(&host, verb));
        assert_eq!(ended.code, Some(*code), "{verb:?}: {ended:?}");
        assert_eq!(http::get(&daemon.address, "/").status, 200, "{verb:?}");
    });
}

#[test]
fn every_verb_works_without_a_daemon() {
    at_once(&TABLE, |(verb, [_, code, ..])| {
        let host = host();
        judged(*code, finish(&mut in_folder(&host, verb)));
    });
}

#[test]
fn a_store_that_is_locked_is_read_and_not_written() {
    at_once(&TABLE, |(verb, [_, _, code, _])| {
        let host = host();
        // A writer that is no daemon, such as a long import.
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
        let ended = finish(&mut in_folder(&host, verb));
        assert_eq!(ended.code, Some(*code), "{verb:?}: {ended:?}");
        if *code == 8 {
            assert!(ended.stderr.contains("locked"), "{verb:?}: {}", ended.stderr);
            assert_eq!(std::fs::read(host.path("store/state.json")).unwrap(), before, "{verb:?}");
        }
        drop(holder.stdin.take());
        holder.wait().unwrap();
    });
}

#[test]
fn a_store_that_cannot_be_written_to_is_read() {
    at_once(&TABLE, |(verb, [_, _, _, code])| {
        let host = host();
        let inner = in_folder(&host, verb);
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-c"]);
        command.arg("mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" && exec \"$@\"");
        command.arg(host.path("store")).arg(inner.get_program()).args(inner.get_args());
        command.current_dir(host.dir.path());
        let ended = finish(&mut command).expect(*code);
        if *code == 8 {
            let ended = judged(8, ended);
            assert!(ended.stderr.contains("Read-only"), "{verb:?}: {}", ended.stderr);
        }
    });
}

#[test]
fn beside_a_daemon_what_is_activated_is_served_when_the_verb_ends() {
    let host = host();
    let daemon = host.run();
    assert_eq!(front(&daemon), "second");
    let told = host.ok(&["activate", "first", "--json"]).json();
    assert_eq!((told["result"].as_str(), told["held"].as_bool()), (Some("activated"), Some(true)));
    assert_eq!(front(&daemon), "first");
    host.ok(&["rollback"]);
    assert_eq!(front(&daemon), "second");
    host.ok(&["rollback"]);
    assert_eq!(front(&daemon), "first");
    assert_eq!(host.status()["hold"]["who"], "tester");
    // A hold is undone by nothing but a release.
    host.ends(7, &["sync"]);
    host.ends(7, &["import", host.path("third.zip").to_str().unwrap()]);
    assert_eq!(front(&daemon), "first");
    assert_eq!(host.ok(&["release", "--json"]).json()["wasHeld"], true);
    assert_eq!(front(&daemon), "third");
    host.ends(2, &["activate", "no-such-label"]);
    assert_eq!(front(&daemon), "third");
}

#[test]
fn a_folder_and_an_archive_are_imported_through_the_daemon_under_their_own_names() {
    let host = host();
    let daemon = host.run();
    finish(&mut in_folder(&host, &["import", "folder", "--label", "fourth"])).expect(0);
    assert_eq!(front(&daemon), "fourth");
    finish(&mut in_folder(&host, &["import", "third.zip"])).expect(0);
    assert_eq!(front(&daemon), "third");
    let versions = host.ok(&["versions", "--json"]).json();
    let sources: Vec<String> =
        versions["versions"].as_array().unwrap().iter().map(|v| v["receipts"][0]["source"].to_string()).collect();
    for name in ["folder", "third.zip"] {
        let path = host.path(name).display().to_string();
        assert!(sources.iter().any(|source| source.contains(&path)), "{path} in {sources:?}");
    }
    host.put("bad.zip", "<html>no bundle");
    let ended = judged(5, finish(&mut in_folder(&host, &["import", "bad.zip"])));
    assert!(ended.stderr.contains(&host.path("bad.zip").display().to_string()), "{}", ended.stderr);
    judged(2, finish(&mut in_folder(&host, &["import", "nowhere.zip"])));
    assert_eq!(front(&daemon), "third");
    host.assert_tidy();
}

#[test]
fn sync_beside_run_means_the_sync_of_the_daemon_with_its_result_and_code() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.publish(bundle("two"));
    let ended = host.ok(&["sync", "--json"]);
    assert_eq!(ended.json()["result"], "activated");
    assert_eq!(ended.json()["version"].as_str(), host.active().as_deref());
    assert_eq!(front(&daemon), "two");
    assert_eq!(host.sync(), "already current");
    upstream.on(Call::Start).times(1).gives(answer(403).json(&json!({"error": "no such plan"})));
    assert!(host.ends(3, &["sync"]).stderr.contains("no such plan"));
    upstream.publish(b"<html>no bundle</html>".to_vec());
    host.ends(5, &["sync"]);
    assert_eq!(front(&daemon), "two");
    // Another source than the daemon's is no request to the daemon.
    let requests = upstream.log().len();
    let all = std::fs::read_to_string(host.path("docwharf.toml")).unwrap().replace("docs.example.com", "other.example");
    host.put("other.toml", all);
    let mut command = support::docwharf();
    judged(8, finish(command.args(["sync", "--config"]).arg(host.path("other.toml"))));
    assert_eq!(upstream.log().len(), requests);
}

#[test]
fn what_is_typed_during_a_sync_is_done_at_once_and_outlives_it() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.publish(bundle("two"));
    upstream.on(Call::Poll).gives(answer(200).json(&json!({"status": "processing"})));
    let before = upstream.count(Call::Poll);
    let sync = waiting(&host, &["sync"]);
    until("the job is polled", || upstream.count(Call::Poll) > before + 2);
    host.ok(&["hold", "--reason", "not now"]);
    let job = host.job();
    assert!(job.is_some(), "the record of the sync is still there");
    upstream.heal();
    let ended = judged(7, finish_child(sync));
    assert!(ended.stderr.contains("not now"), "{}", ended.stderr);
    assert_eq!(front(&daemon), "one");
    assert_eq!(host.status()["hold"]["why"], "not now");
    assert_eq!(host.job(), None);
    host.ok(&["release"]);
    assert_eq!(front(&daemon), "two");
}

#[test]
fn a_forced_sync_is_still_forced_when_the_configuration_changes_meanwhile() {
    let upstream = Upstream::new(bundle("one"));
    let mut host = Host::new(&upstream).set("gate.minPages", "1");
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    host.change("gate.minPages", "100");
    daemon.signal("HUP");
    upstream.publish(bundle("two"));
    upstream.on(Call::Poll).gives(answer(200).json(&json!({"status": "processing"})));
    let before = upstream.count(Call::Poll);
    let sync = waiting(&host, &["sync", "--force"]);
    until("the job is polled", || upstream.count(Call::Poll) > before + 2);
    // It is called off and begins again.
    host.change("sync.keep", "7");
    let reloaded = upstream.count(Call::Poll);
    daemon.signal("HUP");
    until("it is polled again", || upstream.count(Call::Poll) > reloaded + 2);
    upstream.heal();
    judged(0, finish_child(sync));
    assert_eq!(front(&daemon), "two");
}

#[test]
fn what_a_hold_has_kept_from_being_brought_is_looked_for_when_it_ends() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::linked(&upstream.link());
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    host.ok(&["hold"]);
    upstream.publish(bundle("two"));
    // The next look of its own is an hour away.
    host.ok(&["release"]);
    until("the new version", || front(&daemon) == "two");
}

#[test]
fn what_is_imported_during_a_look_nobody_asked_for_does_not_wait_for_it() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.publish(bundle("two"));
    upstream.on(Call::Poll).gives(answer(200).json(&json!({"status": "processing"})));
    let before = upstream.count(Call::Poll);
    daemon.signal("HUP");
    until("the job is polled", || upstream.count(Call::Poll) > before + 2);
    host.put("third.zip", bundle("third"));
    host.ok(&["import", host.path("third.zip").to_str().unwrap()]);
    assert_eq!(front(&daemon), "third");
    upstream.heal();
    until("the look is made again", || front(&daemon) == "two");
}

/// Waits for the end of the first look; when the next one is due, an hour later. Before it has begun the next one is due at once.
fn next_look(host: &Host) -> String {
    let soon =
        Command::new("date").args(["-u", "-d", "30 minutes", "+%Y-%m-%dT%H:%M:%SZ"]).output().expect("date runs");
    let soon = String::from_utf8(soon.stdout).expect("a date");
    let mut next = String::new();
    until("the first look has ended", || {
        host.status()["nextLook"].as_str().unwrap_or_default().clone_into(&mut next);
        next.as_str() > soon.trim()
    });
    next
}

#[test]
fn a_shorter_interval_takes_effect_at_once() {
    let mut host = host();
    let _daemon = host.run();
    let far = next_look(&host);
    host.change("sync.interval", text("10m"));
    until("the next look is nearer", || host.status()["nextLook"].as_str().is_some_and(|next| next < far.as_str()));
}

#[test]
fn history_names_who_typed_a_sync() {
    // What is asked of an upstream, not a file: that one the daemon sees by itself.
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.publish(bundle("typed"));
    host.ok(&["sync"]);
    let history = host.ok(&["history"]).stdout;
    let typed = history.lines().filter(|line| line.contains("activated") && line.ends_with("tester")).count();
    assert_eq!(typed, 1, "{history}");
}

#[test]
fn a_daemon_of_another_user_is_told_from_none() {
    if !rustix::process::geteuid().is_root() {
        return; // who is not root cannot be two users
    }
    let host = host();
    let _daemon = host.run();
    finish(Command::new("chmod").args(["-R", "a+rX"]).arg(host.dir.path())).expect(0);
    let stranger = |verb: &[&str]| {
        let mut command = Command::new("setpriv");
        let inner = host.command(verb);
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        finish(command.arg(inner.get_program()).args(inner.get_args()))
    };
    let status = stranger(&["status"]).expect(0).stdout;
    assert!(status.contains("it answers its own user and root only"), "{status}");
    let health = judged(1, stranger(&["health"])).stderr;
    assert!(health.contains("it answers its own user and root only"), "{health}");
}

#[test]
fn nothing_that_a_daemon_says_reaches_a_terminal_but_plain_lines() {
    let host = host();
    // Whoever runs it may say anything.
    let lock = File::open(host.path("store/lock")).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let _ = std::fs::remove_file(host.path("store/control.sock"));
    let listener = UnixListener::bind(host.path("store/control.sock")).unwrap();
    let hostile = "released\u{1b}[2J\u{9b}31m\r\u{7}\u{202e}done";
    let told =
        json!({ "told": { "json": {}, "text": format!("{hostile}\n"), "warnings": [hostile], "not_active": hostile } });
    let failed = json!({ "failed": { "code": 8, "message": hostile } });
    for (reply, stream) in [told, failed].into_iter().zip(["stdout", "stderr"]) {
        let client = std::thread::spawn({
            let mut command = host.command(&["release"]);
            move || finish(&mut command)
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
            let is_order = head.first().is_some_and(|line| line.starts_with("post "));
            let length = head.iter().find_map(|line| line.strip_prefix("content-length: "));
            let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
            reader.read_exact(&mut body).unwrap();
            let (status, body) =
                if is_order { ("200 OK", reply.to_string()) } else { ("404 Not Found", String::new()) };
            let head = format!("HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = connection.write_all((head + &body).as_bytes());
        }
        let ended = client.join().unwrap();
        let said = if stream == "stdout" { &ended.stdout } else { &ended.stderr };
        assert!(said.contains("released") && said.contains("done"), "{ended:?}");
        for text in [&ended.stdout, &ended.stderr] {
            assert!(!text.chars().any(|c| c != '\n' && (c.is_control() || c == '\u{202e}')), "{text:?}");
        }
    }
}

#[test]
fn a_sync_goes_on_when_the_one_who_asked_for_it_has_gone() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.publish(bundle("two"));
    upstream.on(Call::Poll).gives(answer(200).json(&json!({"status": "processing"})));
    let before = upstream.count(Call::Poll);
    let mut sync = waiting(&host, &["sync"]);
    until("the job is polled", || upstream.count(Call::Poll) > before + 2);
    sync.kill().unwrap();
    sync.wait().unwrap();
    upstream.heal();
    until("the second version", || front(&daemon) == "two");
}

#[test]
fn who_waits_for_a_daemon_that_is_stopped_is_told() {
    let upstream = Upstream::new(bundle("one"));
    let host = Host::new(&upstream);
    let mut daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.on(Call::Poll).gives(answer(200).json(&json!({"status": "processing"})));
    let before = upstream.count(Call::Poll);
    let sync = waiting(&host, &["sync"]);
    until("the job is polled", || upstream.count(Call::Poll) > before + 2);
    daemon.signal("TERM");
    let ended = judged(8, finish_child(sync));
    assert!(ended.stderr.contains("the daemon on"), "{}", ended.stderr);
    assert_eq!(daemon.wait(std::time::Duration::from_secs(10)), Some(0));
    assert!(!host.path("store/control.sock").exists());
}

fn waiting(host: &Host, verb: &[&str]) -> Child {
    host.command(verb).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("docwharf starts")
}

#[test]
fn status_says_what_is_served_what_was_seen_and_what_comes_next() {
    let host = host();
    let alone = host.status();
    assert_eq!(alone["daemon"], Value::Null);
    assert_eq!(alone["nextLook"], Value::Null);
    let daemon = host.run();
    next_look(&host);
    let status = host.status();
    assert_eq!(status["daemon"]["addresses"][0], format!("http://{}/", daemon.address));
    assert_eq!(status["daemon"]["pid"], daemon.pid());
    assert_eq!(status["daemon"]["served"], status["active"]);
    assert_eq!(status["lastAttempt"]["saw"], "the bundle is the one that is known");
    assert_eq!(status["why"], "the bundle is the one that is known");
    host.put("bundle.zip", "<html>no bundle");
    until("a refusal", || host.status()["lastAttempt"]["failures"] == 1);
    let status = host.status();
    assert!(status["nextStep"].as_str().unwrap().contains("docwharf sync"), "{status}");
    let text = host.ok(&["status"]).stdout;
    for word in ["active ", "daemon ", "serving ", "last look ", "error ", "next step ", "next look "] {
        assert!(text.lines().any(|line| line.starts_with(word)), "{word} in {text}");
    }
    host.ok(&["hold", "--reason", "freeze"]);
    assert!(host.status()["why"].as_str().unwrap().contains("freeze"));
}

#[test]
fn status_without_a_daemon_has_the_same_fields() {
    let host = host();
    let alone = host.status();
    let _daemon = host.run();
    let beside = host.status();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&alone), names(&beside));
}

#[test]
fn the_admin_listener_tells_and_takes_no_orders() {
    let host = host().set("admin.listen", text("127.0.0.1:0"));
    let log = host.path("log");
    let mut command = host.command(&["run"]);
    command.stderr(std::fs::File::create(&log).unwrap());
    let _daemon = Daemon::start(&mut command);
    let admin = || {
        let text = std::fs::read_to_string(&log).unwrap();
        let at = text.split("metrics are at http://").nth(1)?;
        Some(at.split('/').next()?.to_owned())
    };
    until("the admin address", || admin().is_some());
    let admin = admin().unwrap();
    assert_eq!(http::get(&admin, "/livez").text(), "ok\n");
    assert_eq!(http::get(&admin, "/readyz").text(), "ready\n");
    let status: Value = serde_json::from_str(&http::get(&admin, "/status").text()).unwrap();
    assert_eq!(status["schemaVersion"], 1);
    assert_eq!(http::get(&admin, "/orders").status, 404);
    let order = json!({"verb": "rollback", "who": "stranger"}).to_string();
    let request = format!(
        "POST /orders HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{order}",
        order.len()
    );
    assert!(http::raw(&admin, request.as_bytes()).starts_with(b"HTTP/1.1 404"));
    assert!(
        http::raw(
            &admin,
            b"POST /status HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        )
        .starts_with(b"HTTP/1.1 405")
    );
    assert_eq!(host.status()["hold"], Value::Null);
    // Health by a listener, when the socket is out of reach.
    host.ok(&["health"]);
}

/// An address of the daemon, as `status` tells it.
fn told_address(host: &Host, kind: &str) -> String {
    let mut url = String::new();
    until("the status says where it listens", || {
        host.status()["daemon"][kind][0].as_str().unwrap_or_default().clone_into(&mut url);
        !url.is_empty()
    });
    url.trim_start_matches("http://").trim_end_matches('/').to_owned()
}

/// The status of an answer to a request with this `Host`.
fn status_for(address: &str, host: &str, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = String::from_utf8_lossy(&http::raw(address, request.as_bytes())).into_owned();
    answer.split(' ').nth(1).expect("a status").to_owned()
}

#[test]
fn a_staged_version_is_looked_at_on_a_listener_of_its_own_and_nowhere_else() {
    let host = Host::bare()
        .set("activate.mode", text("manual"))
        .set("activate.listen", text("127.0.0.1:0"))
        .set("admin.listen", text("127.0.0.1:0"));
    host.put("bundle.zip", bundle("one"));
    let host = host.set("staticExport.bundleUrl", text("bundle.zip")).set("sync.interval", text("1h"));
    let daemon = host.run();
    until("it is staged", || host.status()["staged"].is_object());
    let (admin, staged) = (told_address(&host, "admin"), told_address(&host, "staged"));
    let stage = host.ok(&["stage"]).stdout;
    assert!(stage.contains(&staged) && !stage.contains(&admin), "{stage}");
    until("it is shown", || http::get(&staged, "/").status == 200);
    assert!(http::get(&staged, "/").text().contains("one"));
    // The routes of the admin side are not answered beside it.
    for path in ["/livez", "/readyz", "/status", "/metrics", "/orders"] {
        assert_eq!(http::get(&staged, path).status, 404, "{path}");
    }
    // Not a byte of what waits, under whatever address, comes from where an operator's browser trusts what it gets.
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
}

#[test]
fn the_admin_listener_tells_its_status_under_names_of_its_own_only() {
    let mut host = host().set("admin.listen", text("127.0.0.1:0"));
    let daemon = host.run();
    let admin = told_address(&host, "admin");
    for name in ["127.0.0.1", "localhost", "localhost:8081", "[::1]:8081"] {
        assert_eq!(status_for(&admin, name, "/status"), "200", "{name}");
    }
    for path in ["/status", "/", "/orders"] {
        assert_eq!(status_for(&admin, "evil.example", path), "421", "{path}");
    }
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(status_for(&admin, "evil.example", path), "200", "{path}: probes use names of theirs");
    }
    assert_eq!(status_for(&admin, "docs-admin.example", "/status"), "421");
    host.change("admin.hosts", text("docs-admin.example"));
    daemon.signal("HUP");
    until("the name counts", || status_for(&admin, "docs-admin.example:8081", "/status") == "200");
    assert_eq!(status_for(&admin, "evil.example", "/status"), "421");
}

#[test]
fn an_inbox_that_cannot_be_used_is_told_by_status_metrics_and_again_when_it_can() {
    let host = host().set("sync.inbox", text("inbox")).set("admin.listen", text("127.0.0.1:0"));
    host.put("inbox", "in the way");
    let _daemon = host.run();
    let admin = told_address(&host, "admin");
    let value = |name: &str| {
        let text = http::get(&admin, "/metrics").text();
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok())
    };
    until("the daemon has tried", || !host.status()["daemon"]["inbox"]["error"].is_null());
    let error = host.status()["daemon"]["inbox"]["error"].as_str().unwrap().to_owned();
    assert!(error.contains("cannot open the inbox") && error.contains("sync.inbox"), "{error}");
    assert!(host.ok(&["status"]).stdout.contains("cannot open the inbox"));
    assert_eq!(value("docwharf_inbox_ready{}"), Some(0.0));
    assert!(value("docwharf_store_free_bytes ").is_some_and(|bytes| bytes > 0.0));
    std::fs::remove_file(host.path("inbox")).unwrap();
    std::fs::create_dir(host.path("inbox")).unwrap();
    until("it is used", || value("docwharf_inbox_ready{}") == Some(1.0));
    assert_eq!(host.status()["daemon"]["inbox"]["error"], Value::Null);
    assert_eq!(value("docwharf_inbox_rejected_total "), Some(0.0));
    std::fs::write(host.path("inbox/bad.zip"), "no archive").unwrap();
    until("it is refused", || value("docwharf_inbox_rejected_total ") == Some(1.0));
}

#[test]
fn metrics_are_prometheus_text_unless_openmetrics_is_accepted() {
    let host = host().set("admin.listen", text("127.0.0.1:0"));
    let _daemon = host.run();
    let admin = told_address(&host, "admin");
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
fn status_and_metrics_say_what_is_published_and_why_not() {
    let host = host().set("publish.directory", text("www"));
    let _daemon = host.run();
    until("it is published", || host.status()["daemon"]["publish"]["version"] == host.status()["active"]);
    let metrics = || socket(&host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    assert!(metrics().contains("\ndocwharf_published 1\n"));
    assert!(host.ok(&["status"]).stdout.lines().any(|line| line.starts_with("published ")));
    // A file where the next folder should be.
    std::fs::remove_file(host.path("www/current")).unwrap();
    std::fs::write(host.path("www/current"), "not a link").unwrap();
    host.ok(&["activate", "first"]);
    until("it is told", || host.status()["daemon"]["publish"]["error"].is_string());
    assert!(metrics().contains("\ndocwharf_published 0\n"));
}

/// The value of a metric without labels.
fn metric(host: &Host, name: &str) -> String {
    let text = socket(host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    let value = text.lines().find_map(|line| line.strip_prefix(&format!("docwharf_{name} ")));
    value.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
}

#[test]
fn a_version_that_is_published_but_not_served_does_not_count_as_published() {
    let host = host().set("publish.directory", text("www"));
    let _daemon = host.run();
    until("it is published", || host.status()["daemon"]["publish"]["version"] == host.status()["active"]);
    let second = host.active().unwrap();
    assert_eq!(metric(&host, "published"), "1");
    // A record that cannot be read keeps the next version from being published; the link stays where it is.
    let record = host.path("www/.docwharf.json");
    std::fs::remove_file(&record).unwrap();
    std::fs::create_dir(&record).unwrap();
    host.ok(&["activate", "first"]);
    until("it is told", || host.status()["daemon"]["publish"]["error"].is_string());
    assert_eq!(host.status()["daemon"]["publish"]["version"], json!(second));
    assert_eq!(metric(&host, "published"), "0");
    std::fs::remove_dir(&record).unwrap();
    host.ok(&["activate", &second]);
    until("what is served is published again", || metric(&host, "published") == "1");
}

#[test]
fn metrics_of_conditions_are_1_only_while_the_condition_holds() {
    let mut host = Host::bare().set("staticExport.bundleUrl", text("bundle.zip")).set("sync.interval", text("1h"));
    host.put("bundle.zip", "<html>no bundle");
    let daemon = host.run();
    until("the socket", || host.path("store/control.sock").exists());
    until("the first look has failed", || metric(&host, "consecutive_failures") != "0");
    let conditions = ["ready", "held", "pinned", "gate_refused", "config_reload_success", "store_damaged_versions"];
    let values = || conditions.map(|name| metric(&host, name)).join(" ");
    assert_eq!(values(), "0 0 0 0 1 0");
    host.put("bundle.zip", bundle("one"));
    host.ok(&["sync"]);
    until("it is served", || values() == "1 0 0 0 1 0");
    host.ok(&["hold"]);
    assert_eq!(values(), "1 1 0 0 1 0");
    host.ok(&["release"]);
    assert_eq!(values(), "1 0 0 0 1 0");
    std::fs::write(host.path("store/suspect"), format!("{}\n", host.active().unwrap())).unwrap();
    assert_eq!(values(), "1 0 0 0 1 1");
    std::fs::write(host.path("store/suspect"), "").unwrap();
    host.change("staticExport.version", text("one"));
    daemon.signal("HUP");
    until("the pin counts", || metric(&host, "pinned") == "1");
    host.change("sync.keep", "-1");
    daemon.signal("HUP");
    until("the mistake is told", || metric(&host, "config_reload_success") == "0");
    assert_eq!(metric(&host, "pinned"), "1", "the configuration before is in force");
    host.remove("sync.keep");
    host.remove("staticExport.version");
    daemon.signal("HUP");
    until("the correction counts", || metric(&host, "config_reload_success") == "1");
    until("nothing is pinned", || metric(&host, "pinned") == "0");
}

#[test]
fn a_daemon_waits_beside_a_staged_version_though_there_is_no_source_or_it_has_gone() {
    for source in [None, Some("gone.zip")] {
        let host = Host::bare().set("activate.mode", text("manual")).set("sync.interval", text("1h"));
        host.put("bundle.zip", bundle("one"));
        let host = source.into_iter().fold(host, |host, name| host.set("staticExport.bundleUrl", text(name)));
        let staged = host.ok(&["import", host.path("bundle.zip").to_str().unwrap(), "--json"]).json();
        let daemon = host.run();
        until("its first look has ended", || host.status()["daemon"]["doing"].is_null());
        assert_eq!(http::get(&daemon.address, "/").status, 503);
        host.ok(&["activate", staged["version"].as_str().unwrap()]);
        assert_eq!(front(&daemon), "one");
    }
}

#[test]
fn metrics_follow_the_conventions_and_count_what_happens() {
    let host = host();
    let daemon = host.run();
    next_look(&host);
    for path in ["/", "/guide", "/no-such-page"] {
        http::single(&daemon.address, "GET", path, &[]);
    }
    host.ok(&["hold"]);
    host.put("bundle.zip", "<html>no bundle");
    let mut metrics = String::new();
    // The record knows of it a moment before those who count.
    until("a refusal", || {
        metrics = socket(&host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        metrics.contains("docwharf_consecutive_failures 1\n")
    });
    for line in [
        "docwharf_sync_attempts_total{result=\"already_current\"} 1",
        "docwharf_sync_attempts_total{result=\"failed\"} 1",
        "docwharf_sync_duration_seconds_count 2",
        "docwharf_consecutive_failures 1",
        "docwharf_held 1",
        "docwharf_ready 1",
        "docwharf_store_versions 2",
        "docwharf_http_requests_total{code=\"2xx\"} 2",
        "docwharf_http_requests_total{code=\"4xx\"} 1",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} in {metrics}");
    }
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
    // The one before is not told of beside it.
    until("the other version's line", || {
        let text = socket(&host, "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        active(&text) == line(&after)
    });
    for name in ["last_success_timestamp_seconds", "last_attempt_timestamp_seconds", "store_bytes", "build_info"] {
        assert!(metrics.contains(&format!("\ndocwharf_{name}")), "{name} in {metrics}");
    }
    let body = &metrics[metrics.find("# HELP").unwrap()..];
    for line in body.lines().filter(|line| !line.starts_with('#')) {
        assert!(line.starts_with("docwharf_") && line.rsplit(' ').next().unwrap().parse::<f64>().is_ok(), "{line}");
    }
    assert!(!metrics.contains("# EOF"), "that is OpenMetrics, which was not asked for");
}

/// What the control socket answers.
fn socket(host: &Host, request: &str) -> String {
    let mut stream = UnixStream::connect(host.path("store/control.sock")).expect("the daemon listens");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_control_socket_is_for_its_owner_and_outlives_no_crash() {
    let host = host();
    let mut daemon = host.run();
    until("the socket", || host.path("store/control.sock").exists());
    let mode = std::fs::metadata(host.path("store/control.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        socket(&host, "POST /orders HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            .starts_with("HTTP/1.1 400")
    );
    daemon.signal("KILL");
    daemon.wait(std::time::Duration::from_secs(10));
    // What is left of it neither keeps a verb from working nor the next daemon from listening.
    host.ok(&["hold"]);
    let _daemon = host.run();
    until("the daemon is asked", || host.status()["daemon"].is_object());
}

#[test]
fn a_store_far_down_is_reached() {
    let host = host();
    let deep = (0..12).fold(host.path("deep"), |path, n| path.join(format!("a-folder-with-a-long-name-{n}")));
    let host = host.set("store.path", text(deep.to_str().unwrap()));
    assert!(deep.as_os_str().len() > 300);
    let daemon = host.run();
    until("the first version", || front(&daemon) == "second");
    assert_eq!(host.status()["daemon"]["pid"], daemon.pid());
    host.ok(&["hold"]);
}

#[test]
fn health_tells_whether_there_is_something_to_serve() {
    let upstream = Upstream::new(bundle("one"));
    upstream.on(Call::Start).gives(answer(503));
    let host = Host::new(&upstream);
    assert!(host.ends(1, &["health"]).stderr.contains("docwharf run"));
    let _daemon = host.run();
    until("it lives", || finish(&mut host.command(&["health", "--live"])).code == Some(0));
    assert!(host.ends(1, &["health"]).stderr.contains("no version yet"));
    upstream.heal();
    until("it is ready", || finish(&mut host.command(&["health"])).code == Some(0));
}

#[test]
fn store_verify_finds_what_has_rotted_and_changes_nothing() {
    let host = host();
    let versions = host.ok(&["versions", "--json"]).json()["versions"].clone();
    let labelled = |version: &&Value| version["labels"] == json!(["first"]);
    let first = versions.as_array().unwrap().iter().find(labelled).unwrap()["id"].as_str().unwrap().to_owned();
    rot(&host.path(&format!("store/versions/{first}/site.zip")));
    let before = support::read_tree(&host.path("store"));
    let ended = finish(&mut host.command(&["store", "verify", "--json"]));
    assert_eq!(ended.code, Some(8), "{ended:?}");
    assert_eq!(ended.json()["damaged"], json!([first]));
    host.ok(&["store", "verify", "--active"]);
    assert!(before == support::read_tree(&host.path("store")));
    // An image that is whole, but that of another version.
    let image = |id: &Value| host.path(&format!("store/versions/{}/site.zip", id.as_str().unwrap()));
    let second = versions.as_array().unwrap().iter().find(|version| !labelled(version)).unwrap()["id"].clone();
    std::fs::remove_file(image(&json!(first))).unwrap();
    std::fs::copy(image(&second), image(&json!(first))).unwrap();
    let ended = finish(&mut host.command(&["store", "verify", "--json"]));
    assert_eq!((ended.code, ended.json()["damaged"].clone()), (Some(8), json!([first])));
}

/// Changes a byte in the middle of a file.
fn rot(path: &Path) {
    let mut bytes = std::fs::read(path).unwrap();
    let middle = bytes.len() / 3;
    bytes[middle] ^= 0x55;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn gc_removes_what_it_said_it_would() {
    let host = host().set("sync.keep", "0");
    for name in ["third.zip", "bundle.zip", "third.zip"] {
        host.put("more.zip", bundle(&format!("{name} again {}", host.ok(&["versions"]).stdout.len())));
        host.ok(&["import", host.path("more.zip").to_str().unwrap()]);
    }
    // Pruned as they came; what is labelled, active and previous stays.
    assert_eq!(host.ok(&["gc", "--dry-run", "--json"]).json()["versions"].as_array().unwrap().len(), 0);
    let host = host.set("sync.keep", "5");
    for n in 0..3 {
        host.put("more.zip", bundle(&format!("further {n}")));
        host.ok(&["import", host.path("more.zip").to_str().unwrap()]);
    }
    let host = host.set("sync.keep", "0");
    let said = host.ok(&["gc", "--dry-run", "--json"]).json();
    assert!(!said["versions"].as_array().unwrap().is_empty());
    let done = host.ok(&["gc", "--json"]).json();
    assert_eq!(said["versions"], done["versions"]);
    assert_eq!(host.ok(&["gc"]).stdout, "nothing to remove\n");
}
