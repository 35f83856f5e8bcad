//! Bugs that a review found in what docwharf does beside an upstream, each kept away by a test of its own.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::host::{Host, at_once, bundle, finish, front, judged, large_bundle, text};
use support::upstream::{Call, KEY, SIGNATURE, Upstream, answer, honest, raw, silence, stamp};
use support::{Daemon, docwharf, read_tree, tar, until};

const FIRST_JOB: &str = "se_0000000000000001";

fn upstream() -> Upstream {
    Upstream::new(bundle("one"))
}

/// Changes the store's record while nobody writes it.
#[track_caller]
fn change_record(host: &Host, change: impl FnOnce(&mut Value)) {
    let path = host.path("store/state.json");
    let mut record = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut record);
    std::fs::write(path, record.to_string()).unwrap();
}

/// Leaves a job of ours behind that has not ended.
#[track_caller]
fn leave_a_job(upstream: &Upstream, host: &Host) -> String {
    upstream.on(Call::Poll).times(1).gives(answer(401));
    host.ends(3, &["sync"]);
    host.job().expect("a job that was left behind")
}

/// What the store's history says has happened.
#[track_caller]
fn events(host: &Host) -> Vec<String> {
    let history = host.ok(&["history", "--json"]).json();
    history["events"].as_array().unwrap().iter().map(|event| event["what"].as_str().unwrap().to_owned()).collect()
}

/// `run` with what it says in the file `log`.
#[track_caller]
fn logged(host: &Host) -> Daemon {
    let log = File::create(host.path("log")).unwrap();
    Daemon::start(host.command(&["run"]).env("DOCWHARF_LOG", "info").stderr(log))
}

/// What has been said so far.
fn log(host: &Host) -> String {
    String::from_utf8_lossy(&std::fs::read(host.path("log")).unwrap_or_default()).into_owned()
}

/// Waits until the daemon has looked so often: each look that is recorded makes a new file of the record.
#[track_caller]
fn until_looks(host: &Host, looks: usize) {
    let mut seen = BTreeSet::new();
    until("looks", || {
        if let Ok(about) = std::fs::metadata(host.path("store/state.json")) {
            seen.insert((about.mtime(), about.mtime_nsec(), about.ino()));
        }
        seen.len() > looks
    });
}

// Times that no clock can hold.

#[test]
fn a_retry_after_beyond_all_time_does_not_take_the_site_down() {
    let values = [
        "18446744073709551615",
        "18446744073709551614",
        "9223372036854775807",
        "99999999999999999999999999",
        "999999999",
    ];
    at_once(&values, |value| {
        let upstream = upstream();
        let host = Host::new(&upstream).set("sync.interval", text("100ms"));
        host.ok(&["sync"]);
        upstream.on(Call::Start).gives(answer(503).header("Retry-After", value));
        let daemon = host.run();
        until("the refusal", || host.last() == "failed");
        assert_eq!(front(&daemon), "one", "{value}");
        drop(daemon);
        change_record(&host, |record| {
            let wait = record["lastAttempt"]["wait"].as_u64();
            assert_eq!(wait, Some(86_400), "a day, and neither more nor the usual pause: {record}");
        });
        upstream.heal();
        upstream.publish(bundle("two"));
        let daemon = host.run();
        assert_eq!(front(&daemon), "one", "{value}");
        daemon.signal("HUP");
        until("the second version", || front(&daemon) == "two");
    });
}

#[test]
fn a_record_that_says_to_wait_for_ever_does_not_take_the_site_down() {
    let times = [stamp(0), stamp(86_400), "1970-01-01T00:00:00Z".to_owned(), "soon".to_owned()];
    at_once(&times, |time| {
        let upstream = upstream();
        let host = Host::new(&upstream);
        host.ok(&["sync"]);
        change_record(&host, |record| {
            let attempt = &mut record["lastAttempt"];
            attempt["result"] = "failed".into();
            attempt["failures"] = u32::MAX.into();
            attempt["wait"] = u64::MAX.into();
            attempt["time"] = time.as_str().into();
        });
        upstream.publish(bundle("two"));
        let daemon = host.run();
        assert_eq!(front(&daemon), "one", "{time}");
        daemon.signal("HUP");
        until("the second version", || front(&daemon) == "two");
    });
}

// Secrets.

#[test]
fn an_answer_that_should_hold_a_link_and_cannot_be_read_is_not_quoted() {
    let shapes: [fn(&str) -> String; 6] = [
        |link| format!("{{\"bundleUrl\": \"{link}"),
        |link| format!("{{\"bundleUrl\": \"{link}\", \"sizeBytes\": 12"),
        |link| json!(link).to_string(),
        |link| json!([link]).to_string(),
        |link| json!([{ "bundleUrl": link }]).to_string(),
        |link| json!({ "bundleUrl": { "href": link } }).to_string(),
    ];
    at_once(&shapes, |shape| {
        let upstream = upstream();
        let said = shape(&upstream.link());
        upstream.on(Call::Bundle).gives(raw("application/json", &said));
        let host = Host::new(&upstream);
        let ended = finish(host.command(&["sync"]).env("DOCWHARF_LOG", "trace"));
        assert_eq!(ended.code, Some(4), "{said}: {ended:?}");
        assert_eq!(upstream.count(Call::Bundle), 5, "{said}: {}", upstream.story());
        assert!(ended.stderr.contains("DEBUG") && ended.stderr.contains("trying again"), "{}", ended.stderr);
        let told = [ended.stdout, ended.stderr, host.ok(&["status"]).stdout, host.ok(&["history", "--json"]).stdout];
        for told in told {
            assert!(!told.contains(SIGNATURE) && !told.contains("AKIDEXAMPLE"), "{said}: {told}");
        }
        for (name, content) in read_tree(&host.path("store")) {
            let content = String::from_utf8_lossy(&content);
            assert!(!content.contains(SIGNATURE) && !content.contains("AKIDEXAMPLE"), "{said}: {name}: {content}");
        }
    });
}

#[test]
fn what_was_meant_for_a_link_is_a_secret_though_its_scheme_is_wrong() {
    let links = [
        format!("bucket.example/geheim.zip?X-Amz-Signature={SIGNATURE}"),
        format!("https:/bucket.example/geheim.zip?X-Amz-Signature={SIGNATURE}"),
        format!("https:bucket.example/geheim.zip?X-Amz-Signature={SIGNATURE}"),
        format!("file:///geheim.zip?X-Amz-Signature={SIGNATURE}"),
        format!("file:geheim.zip?X-Amz-Signature={SIGNATURE}"),
    ];
    at_once(&links, |link| {
        let host = Host::linked(link);
        for arguments in [
            &["sync"][..],
            &["run"],
            &["status"],
            &["config", "check"],
            &["config", "show"],
            &["config", "show", "--json"],
        ] {
            let ended = judged(2, finish(host.command(arguments).env("DOCWHARF_LOG", "trace")));
            for told in [&ended.stdout, &ended.stderr] {
                for part in [SIGNATURE, "X-Amz", "geheim", "bucket.example"] {
                    assert!(!told.contains(part), "{arguments:?} repeats {part} of {link}: {told}");
                }
            }
            assert!(ended.stderr.contains("bundleUrl"), "{arguments:?}, {link}: {}", ended.stderr);
        }
        assert!(!host.path("store").exists(), "{link}");
    });
}

// Messages.

#[test]
fn whatever_an_upstream_says_a_message_is_one_line() {
    const LINES: &str =
        "first\r\nINJECTED second\rINJECTED third\n\n\nINJECTED\u{85}INJECTED\u{2028}INJECTED\u{b}INJECTED";
    /// Where some reader of logs begins a new line.
    const BREAKS: [char; 7] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{b}', '\u{c}'];
    let bodies = [("text/plain", LINES.to_owned()), ("application/json", json!({ "error": LINES }).to_string())];
    let mut cases = Vec::new();
    for call in [Call::Start, Call::Poll, Call::Bundle, Call::Download] {
        cases.extend(bodies.iter().map(|(kind, body)| (call, *kind, body)));
    }
    at_once(&cases, |(call, kind, body)| {
        let upstream = upstream();
        // One that is survived is a warning, one that is final an error.
        upstream.on(*call).times(1).gives(answer(503).body(kind, body));
        upstream.on(*call).gives(answer(400).body(kind, body));
        let host = Host::new(&upstream);
        for level in ["info", "trace"] {
            let ended = finish(host.command(&["sync"]).env("DOCWHARF_LOG", level));
            assert_ne!(ended.code, Some(0), "{call:?}");
            assert!(ended.stderr.contains("first"), "is it quoted at all? {call:?} {kind}: {}", ended.stderr);
            let whole = ended.stderr.strip_suffix('\n').expect("whole lines");
            for line in whole.split(BREAKS) {
                assert!(
                    line.starts_with("docwharf: ") || line.starts_with("20"),
                    "{call:?} {kind}: {line:?}: {whole:?}"
                );
            }
        }
        let daemon = logged(&host);
        daemon.signal("HUP");
        until("the same from run", || log(&host).contains("ERROR"));
        drop(daemon);
        let log = log(&host);
        for line in log.strip_suffix('\n').unwrap_or(&log).split(BREAKS) {
            assert!(line.starts_with("20"), "{call:?} {kind}: {line:?}: {log:?}");
        }
    });
}

// Answers and downloads that are cut.

#[test]
fn a_refusal_is_final_at_once_though_its_body_stalls_or_is_cut_or_has_no_end() {
    let page = "no such key ".repeat(200_000);
    let long = || answer(401).body("text/plain", &page);
    let mut cases = Vec::new();
    for call in [Call::Start, Call::Poll, Call::Bundle] {
        for (name, reply) in [
            ("stalled", answer(401).stall(5)),
            ("without a byte", answer(401).stall(0)),
            ("cut", answer(401).cut(5)),
            ("2 MiB", long()),
            ("2 MiB, stalled", long().stall(1 << 20)),
            ("2 MiB, cut", long().cut((1 << 20) + 1)),
        ] {
            cases.push((call, name, reply));
        }
    }
    at_once(&cases, |(call, name, reply)| {
        let upstream = upstream();
        upstream.on(*call).gives(reply.clone());
        let host = Host::new(&upstream).set("network.callTimeout", text("1h"));
        // It ends long before the call's own time is up.
        let ended = host.ends(3, &["sync"]);
        assert!(ended.stderr.contains("401"), "{call:?} {name}: {}", ended.stderr);
        assert_eq!(upstream.count(*call), 1, "{call:?} {name}: {}", upstream.story());
    });
}

#[test]
fn a_server_that_cuts_at_the_same_place_each_time_and_knows_no_ranges_is_given_up() {
    let upstream = Upstream::new(large_bundle("large", 10 << 20));
    upstream.on(Call::Download).gives(honest().ignoring_range().without("Accept-Ranges").cut(3 << 20));
    let host = Host::new(&upstream);
    host.ends(4, &["sync"]);
    assert_eq!(upstream.count(Call::Download), 5, "{}", upstream.story());
    assert_eq!(upstream.count(Call::Start), 1);
}

#[test]
fn nothing_is_left_of_a_bundle_in_a_second_layer_of_gzip() {
    let tar = tar::tar(&[tar::file("index.html", "<title>tar</title>")]);
    let cases = [(bundle("zip"), 0), (tar::gzip(&tar), 0), (tar, 0), (b"<html>no bundle</html>".to_vec(), 5)];
    at_once(&cases, |(bytes, code)| {
        let upstream = Upstream::new(bytes.clone());
        upstream.plan().coding = Some(support::upstream::Coding::Layer);
        let host = Host::new(&upstream);
        host.ends(*code, &["sync"]);
        host.assert_tidy();
        host.ends(*code, &["sync", "--refresh"]);
        host.assert_tidy();
    });
}

// Jobs.

#[test]
fn while_held_a_changed_pin_starts_no_job_though_one_for_the_old_pin_is_remembered() {
    let upstream = upstream();
    let mut host = Host::new(&upstream).set("sync.interval", text("100ms"));
    host.ok(&["sync"]);
    host.ok(&["hold"]);
    host.change("staticExport.version", text("1"));
    leave_a_job(&upstream, &host);
    host.change("staticExport.version", text("2"));
    upstream.publish(bundle("two"));
    let daemon = host.run();
    until_looks(&host, 6);
    daemon.signal("HUP");
    until_looks(&host, 6);
    assert_eq!(upstream.count(Call::Start), 2, "{}", upstream.story());
    assert_eq!(front(&daemon), "one");
}

#[test]
fn a_job_from_the_future_is_adopted_because_the_clock_was_set_back() {
    at_once(&[3600, 86_400, 40 * 86_400], |&ahead| {
        let upstream = upstream();
        let host = Host::new(&upstream);
        leave_a_job(&upstream, &host);
        change_record(&host, |record| {
            record["job"]["started"] = stamp(ahead).into();
            record["lastStart"]["time"] = stamp(ahead).into();
            record["lastAttempt"] = Value::Null;
        });
        let daemon = host.run();
        until("the version", || front(&daemon) == "one");
        assert_eq!(upstream.count(Call::Start), 1, "{ahead}: {}", upstream.story());
        assert_eq!(upstream.calls(Call::Bundle)[0].job().as_deref(), Some(FIRST_JOB));
    });
}

#[test]
fn a_key_that_was_not_there_puts_off_no_job() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("api.keyFile", text("later"));
    let ended = host.ends(2, &["run"]);
    assert!(ended.stderr.contains("later"), "{}", ended.stderr);
    assert_eq!(upstream.connections(), 0);
    host.put("later", KEY);
    let daemon = host.run();
    let begun = Instant::now();
    until("the job", || upstream.count(Call::Start) > 0);
    // What failed is tried again after five seconds, also over a restart; only what was started is left alone for long.
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    until("the version", || front(&daemon) == "one");
}

#[test]
fn a_signal_is_not_forgotten_when_a_rewritten_key_calls_its_sync_off() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    assert_eq!(leave_a_job(&upstream, &host), FIRST_JOB);
    // So that it is the signal which finds the job, and no look of the daemon's own.
    change_record(&host, |record| record["lastAttempt"]["wait"] = 3600.into());
    upstream.statuses(&[json!("running")]);
    let daemon = logged(&host);
    daemon.signal("HUP");
    until("the sync that waits for the older job", || {
        log(&host).contains(&format!("waiting for the export job {FIRST_JOB}"))
    });
    host.put("key", format!("{KEY}\n"));
    until("the change of the key", || log(&host).contains("the key or a certificate has changed"));
    let polls = upstream.count(Call::Poll);
    until("polls after it", || upstream.count(Call::Poll) > polls + 2);
    upstream.publish(bundle("two"));
    upstream.statuses(&[json!("completed")]);
    until("the content of now", || front(&daemon) == "two");
    assert_eq!(upstream.count(Call::Start), 2, "{}", upstream.story());
    let asked: Vec<_> = upstream.calls(Call::Bundle).iter().map(|request| request.job().unwrap()).collect();
    assert_eq!(asked.last().map(String::as_str), Some("se_0000000000000002"), "{}", upstream.story());
}

#[test]
fn probes_that_differ_in_the_query_alone_are_two() {
    let upstream = upstream();
    let targets = ["/sitemap.xml?lang=de", "/sitemap.xml?lang=en"];
    for target in targets {
        upstream.plan().pages.insert(target.to_owned(), format!("{target} as it was").into());
    }
    let urls = targets.map(|target| format!("{}{target}", upstream.bucket()));
    let host = Host::new(&upstream).set("sync.probe", json!(urls).to_string()).set("sync.interval", text("100ms"));
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    for (target, next) in targets.into_iter().zip(["two", "three"]) {
        let settled = upstream.count(Call::Probe);
        until("looks", || upstream.count(Call::Probe) > settled + 8);
        let before = upstream.count(Call::Start);
        upstream.publish(bundle(next));
        let settled = upstream.count(Call::Probe);
        until("looks", || upstream.count(Call::Probe) > settled + 8);
        assert_eq!(upstream.count(Call::Start), before, "nothing has changed: {}", upstream.story());
        upstream.plan().pages.insert(target.to_owned(), format!("{target} with {next}").into());
        until(&format!("{next}, because {target} has changed"), || front(&daemon) == next);
        assert_eq!(upstream.count(Call::Start), before + 1, "{}", upstream.story());
    }
}

// The daemon and what is around it.

/// A child that does not outlive its test.
struct Kept(Child);

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn sigterm_ends_run_with_0_while_it_waits_for_a_locked_store() {
    at_once(&["TERM", "INT"], |signal| {
        let upstream = upstream();
        upstream.on(Call::Start).gives(silence());
        let host = Host::new(&upstream).set("network.callTimeout", text("1h"));
        let _holder = Kept(host.command(&["sync"]).stderr(Stdio::null()).spawn().unwrap());
        until("the lock is held", || upstream.count(Call::Start) > 0);
        let errors = File::create(host.path("log")).unwrap();
        let mut waiting = Kept(
            host.command(&["run"]).env("DOCWHARF_LOG", "info").stdout(Stdio::null()).stderr(errors).spawn().unwrap(),
        );
        until("it waits", || log(&host).contains("waiting up to"));
        let begun = Instant::now();
        let status = Command::new("kill").args([&format!("-{signal}"), &waiting.0.id().to_string()]).status();
        assert!(status.unwrap().success());
        assert_eq!(waiting.0.wait().unwrap().code(), Some(0), "{signal}: {}", log(&host));
        assert!(begun.elapsed() < Duration::from_secs(10), "{signal}: it did not wait for the lock first");
    });
}

#[test]
fn a_configuration_that_is_emptied_or_removed_leaves_the_one_before_in_force() {
    let losses: [fn(&Host); 3] = [
        |host| host.put("docwharf.toml", ""),
        |host| drop(File::create(host.path("docwharf.toml")).unwrap()),
        |host| std::fs::remove_file(host.path("docwharf.toml")).unwrap(),
    ];
    let mut cases = Vec::new();
    for lose in losses {
        cases.extend([(lose, false), (lose, true)]);
    }
    at_once(&cases, |&(lose, hangup)| {
        let upstream = upstream();
        let host = Host::new(&upstream).set("sync.interval", text("200ms"));
        let good = std::fs::read(host.path("docwharf.toml")).unwrap();
        host.put("good.toml", &good);
        let complaint = || {
            let mut command = docwharf();
            command.args(["status", "--json", "--config"]).arg(host.path("good.toml"));
            judged(0, finish(&mut command)).json()["configError"].clone()
        };
        let daemon = host.run();
        until("the first version", || front(&daemon) == "one");
        assert_eq!(complaint(), Value::Null);
        lose(&host);
        if hangup {
            daemon.signal("HUP");
        }
        until("the complaint", || complaint() != Value::Null);
        upstream.publish(bundle("two"));
        if hangup {
            daemon.signal("HUP");
        }
        until("the second version", || front(&daemon) == "two");
        assert_ne!(complaint(), Value::Null);
        host.put("docwharf.toml", &good);
        if hangup {
            daemon.signal("HUP");
        }
        until("no complaint", || complaint() == Value::Null);
        upstream.publish(bundle("three"));
        until("the third version", || front(&daemon) == "three");
    });
}

#[test]
fn a_file_that_is_still_being_written_is_not_put_down_as_refused() {
    let whole = large_bundle("whole", 40 << 20);
    let (there, rest) = whole.split_at(32 << 20);
    let host = Host::bare().set("staticExport.bundleUrl", text("docs.zip")).set("sync.interval", text("100ms"));
    let path = host.path("docs.zip");
    std::fs::write(&path, there).unwrap();
    let is_seen = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            let mut rest = rest;
            while !is_seen.load(Ordering::Relaxed) {
                let (now, later) = rest.split_at_checked(64).expect("a look comes before the end");
                file.write_all(now).unwrap();
                // Slowly, as over a network, but never as long as a look takes.
                std::thread::sleep(Duration::from_micros(100));
                rest = later;
            }
            file.write_all(rest).unwrap();
        });
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let daemon = host.run();
            until("a look at half a file", || host.last() == "failed");
            daemon
        }));
        is_seen.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        let daemon = looked.unwrap();
        until("the whole", || front(&daemon) == "whole");
    });
    assert_eq!(events(&host), ["imported", "activated"]);
}

/// How often the daemon has noticed that a file of its configuration has changed.
fn noticed(host: &Host) -> usize {
    log(host).matches("the configuration, the key or a certificate has changed").count()
}

/// Changes the configuration, in nothing that matters, until that has been noticed more often.
#[track_caller]
fn until_noticed(host: &mut Host, times: usize) {
    let mut hours = 1;
    until("a change that is noticed", || {
        hours += 1;
        host.change("sync.interval", text(&format!("{hours}h")));
        noticed(host) > times
    });
}

#[test]
fn what_was_dropped_while_disabled_is_imported_when_the_file_says_enabled() {
    let mut host = Host::bare().set("sync.inbox", text("inbox")).set("staticExport.enabled", "false");
    std::fs::create_dir(host.path("inbox")).unwrap();
    std::fs::write(host.path("inbox/before.zip"), bundle("before")).unwrap();
    let daemon = logged(&host);
    until_noticed(&mut host, 0);
    std::fs::write(host.path("inbox/after.zip"), bundle("after")).unwrap();
    // All that is watched is compared at once: when the second change after it is noticed, the file has been as well.
    let before = noticed(&host);
    until_noticed(&mut host, before + 1);
    let accepted = |host: &Host, name: &str| host.path("inbox/accepted").join(name).exists();
    assert!(!accepted(&host, "before.zip") && !accepted(&host, "after.zip"), "{}", log(&host));
    assert!(!host.path("store/state.json").exists(), "{}", log(&host));
    host.change("staticExport.enabled", "true");
    let accepted = |name: &str| accepted(&host, name);
    until("both are taken", || accepted("before.zip") && accepted("after.zip"));
    until("one of them is served", || ["before", "after"].contains(&front(&daemon).as_str()));
}

#[test]
fn a_copy_into_the_inbox_that_pauses_is_given_time() {
    let host = Host::bare().set("sync.inbox", text("inbox"));
    std::fs::create_dir(host.path("inbox")).unwrap();
    let path = host.path("inbox/slow.zip");
    let whole = bundle("whole");
    let (there, rest) = whole.split_at(whole.len() / 2);
    std::fs::write(&path, there).unwrap();
    let daemon = logged(&host);
    until("a look at half of it", || log(&host).contains("looked at again in a minute"));
    OpenOptions::new().append(true).open(&path).unwrap().write_all(rest).unwrap();
    until("the whole", || front(&daemon) == "whole");
    until("its place", || host.path("inbox/accepted/slow.zip").exists());
    assert_eq!(std::fs::read_dir(host.path("inbox/rejected")).unwrap().count(), 0);
}
