//! Regression tests: bugs of the agent in exchanges with an upstream, found by a review.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use support::host::{
    Host, bundle, expect_plain_exit, front_page_title, large_bundle, run_concurrently, run_with_timeout, toml_string,
};
use support::upstream::{
    KEY, SIGNATURE, Upstream, UpstreamCall, error_reply, no_reply, normal_reply, raw_reply, rfc3339_in,
};
use support::{Daemon, KillOnDrop, docwharf, read_tree, send_signal, tar, until, until_done_in_background};

const FIRST_JOB: &str = "se_0000000000000001";

fn upstream() -> Upstream {
    Upstream::new(bundle("one"))
}

/// Changes the store's record. No other process may write it at the same time.
#[track_caller]
fn change_record(host: &Host, change: impl FnOnce(&mut Value)) {
    let path = host.path("store/state.json");
    let mut record = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    change(&mut record);
    std::fs::write(path, record.to_string()).unwrap();
}

/// Makes a sync fail while its job is in progress, and returns the id of the job.
#[track_caller]
fn leave_unfinished_job(upstream: &Upstream, host: &Host) -> String {
    upstream.on(UpstreamCall::Poll).times(1).respond_with(error_reply(401));
    host.expect_exit(3, &["sync"]);
    host.job().expect("a job that was left behind")
}

/// The kinds of events in the store's history.
#[track_caller]
fn history_events(host: &Host) -> Vec<String> {
    let history = host.ok(&["history", "--json"]).json();
    history["events"].as_array().unwrap().iter().map(|event| event["what"].as_str().unwrap().to_owned()).collect()
}

/// Starts `run` with its log in the file `log`.
#[track_caller]
fn run_with_log(host: &Host) -> Daemon {
    let log = File::create(host.path("log")).unwrap();
    Daemon::start(host.command(&["run"]).env("DOCWHARF_LOG", "info").stderr(log))
}

/// The log so far.
fn log_text(host: &Host) -> String {
    String::from_utf8_lossy(&std::fs::read(host.path("log")).unwrap_or_default()).into_owned()
}

/// Waits until the daemon has checked the source `checks` times. It replaces the record's file after each check.
#[track_caller]
fn wait_for_checks(host: &Host, checks: usize) {
    let mut files = BTreeSet::new();
    until("further checks", || {
        if let Ok(metadata) = std::fs::metadata(host.path("store/state.json")) {
            files.insert((metadata.mtime(), metadata.mtime_nsec(), metadata.ino()));
        }
        files.len() > checks
    });
}

// Times beyond the range of the clock.

// Regression: a `Retry-After` that exceeds the range of the clock ended `run`, also after a restart.
// Regression: `Retry-After` delayed a sync for a week.
#[test]
fn huge_retry_after_delays_checks_by_at_most_a_day_and_does_not_end_the_server() {
    let values = [
        "18446744073709551615",
        "18446744073709551614",
        "9223372036854775807",
        "99999999999999999999999999",
        "999999999",
    ];
    run_concurrently(&values, |value| {
        let upstream = upstream();
        let host = Host::new(&upstream).set("sync.interval", toml_string("100ms"));
        host.ok(&["sync"]);
        upstream.on(UpstreamCall::Start).respond_with(error_reply(503).header("Retry-After", value));
        let daemon = host.run();
        until("the refusal", || host.last_result() == "failed");
        assert_eq!(front_page_title(&daemon), "one", "{value}");
        drop(daemon);
        change_record(&host, |record| {
            let wait = record["lastAttempt"]["wait"].as_u64();
            assert_eq!(wait, Some(86_400), "one day, not more, and not the usual pause: {record}");
        });
        upstream.clear_rules();
        upstream.publish(bundle("two"));
        let daemon = host.run();
        assert_eq!(front_page_title(&daemon), "one", "{value}");
        daemon.signal("HUP");
        until("the second version", || front_page_title(&daemon) == "two");
    });
}

// Regression: a wait in the record that exceeds the range of the clock ended `run` at each start.
#[test]
fn store_record_with_a_wait_beyond_the_clock_range_does_not_end_the_server() {
    let times = [rfc3339_in(0), rfc3339_in(86_400), "1970-01-01T00:00:00Z".to_owned(), "soon".to_owned()];
    run_concurrently(&times, |time| {
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
        assert_eq!(front_page_title(&daemon), "one", "{time}");
        daemon.signal("HUP");
        until("the second version", || front_page_title(&daemon) == "two");
    });
}

// Secrets.

// Regression: an unreadable response that should have contained a link was quoted in the error, with the link.
#[test]
fn malformed_link_response_is_not_quoted_in_any_output() {
    let shapes: [fn(&str) -> String; 6] = [
        |link| format!("{{\"bundleUrl\": \"{link}"),
        |link| format!("{{\"bundleUrl\": \"{link}\", \"sizeBytes\": 12"),
        |link| json!(link).to_string(),
        |link| json!([link]).to_string(),
        |link| json!([{ "bundleUrl": link }]).to_string(),
        |link| json!({ "bundleUrl": { "href": link } }).to_string(),
    ];
    run_concurrently(&shapes, |shape| {
        let upstream = upstream();
        let body = shape(&upstream.link());
        upstream.on(UpstreamCall::Link).respond_with(raw_reply("application/json", &body));
        let host = Host::new(&upstream);
        let ended = run_with_timeout(host.command(&["sync"]).env("DOCWHARF_LOG", "trace"));
        assert_eq!(ended.code, Some(4), "{body}: {ended:?}");
        assert_eq!(upstream.count(UpstreamCall::Link), 5, "{body}: {}", upstream.request_history());
        assert!(ended.stderr.contains("DEBUG") && ended.stderr.contains("trying again"), "{}", ended.stderr);
        let outputs = [ended.stdout, ended.stderr, host.ok(&["status"]).stdout, host.ok(&["history", "--json"]).stdout];
        for outputs in outputs {
            assert!(!outputs.contains(SIGNATURE) && !outputs.contains("AKIDEXAMPLE"), "{body}: {outputs}");
        }
        for (name, content) in read_tree(&host.path("store")) {
            let content = String::from_utf8_lossy(&content);
            assert!(!content.contains(SIGNATURE) && !content.contains("AKIDEXAMPLE"), "{body}: {name}: {content}");
        }
    });
}

// Regression: a link with a wrong scheme was read as a path and repeated in the output.
#[test]
fn download_link_with_an_invalid_scheme_is_never_printed() {
    let links = [
        format!("bucket.example/secret-value.zip?X-Amz-Signature={SIGNATURE}"),
        format!("https:/bucket.example/secret-value.zip?X-Amz-Signature={SIGNATURE}"),
        format!("https:bucket.example/secret-value.zip?X-Amz-Signature={SIGNATURE}"),
        format!("file:///secret-value.zip?X-Amz-Signature={SIGNATURE}"),
        format!("file:secret-value.zip?X-Amz-Signature={SIGNATURE}"),
    ];
    run_concurrently(&links, |link| {
        let host = Host::linked(link);
        for arguments in [
            &["sync"][..],
            &["run"],
            &["status"],
            &["config", "check"],
            &["config", "show"],
            &["config", "show", "--json"],
        ] {
            let ended = expect_plain_exit(2, run_with_timeout(host.command(arguments).env("DOCWHARF_LOG", "trace")));
            for output in [&ended.stdout, &ended.stderr] {
                for part in [SIGNATURE, "X-Amz", "secret-value", "bucket.example"] {
                    assert!(!output.contains(part), "{arguments:?} repeats {part} of {link}: {output}");
                }
            }
            assert!(ended.stderr.contains("bundleUrl"), "{arguments:?}, {link}: {}", ended.stderr);
        }
        assert!(!host.path("store").exists(), "{link}");
    });
}

// Messages.

// Regression: line breaks in an error of the upstream became separate lines of the log.
#[test]
fn message_with_text_of_the_upstream_is_a_single_log_line() {
    const LINES: &str =
        "first\r\nINJECTED second\rINJECTED third\n\n\nINJECTED\u{85}INJECTED\u{2028}INJECTED\u{b}INJECTED";
    /// Characters that some log readers treat as line breaks.
    const BREAKS: [char; 7] = ['\n', '\r', '\u{85}', '\u{2028}', '\u{2029}', '\u{b}', '\u{c}'];
    let bodies = [("text/plain", LINES.to_owned()), ("application/json", json!({ "error": LINES }).to_string())];
    let mut cases = Vec::new();
    for call in [UpstreamCall::Start, UpstreamCall::Poll, UpstreamCall::Link, UpstreamCall::Download] {
        cases.extend(bodies.iter().map(|(kind, body)| (call, *kind, body)));
    }
    run_concurrently(&cases, |(call, kind, body)| {
        let upstream = upstream();
        // The first response causes a retry and a warning, the next one ends the sync with an error.
        upstream.on(*call).times(1).respond_with(error_reply(503).body(kind, body));
        upstream.on(*call).respond_with(error_reply(400).body(kind, body));
        let host = Host::new(&upstream);
        for level in ["info", "trace"] {
            let ended = run_with_timeout(host.command(&["sync"]).env("DOCWHARF_LOG", level));
            assert_ne!(ended.code, Some(0), "{call:?}");
            assert!(ended.stderr.contains("first"), "the body is not quoted: {call:?} {kind}: {}", ended.stderr);
            let stderr = ended.stderr.strip_suffix('\n').expect("complete lines");
            for line in stderr.split(BREAKS) {
                assert!(
                    line.starts_with("docwharf: ") || line.starts_with("20"),
                    "{call:?} {kind}: {line:?}: {stderr:?}"
                );
            }
        }
        let daemon = run_with_log(&host);
        daemon.signal("HUP");
        until("the error in the log of run", || log_text(&host).contains("ERROR"));
        drop(daemon);
        let log = log_text(&host);
        for line in log.strip_suffix('\n').unwrap_or(&log).split(BREAKS) {
            assert!(line.starts_with("20"), "{call:?} {kind}: {line:?}: {log:?}");
        }
    });
}

// Truncated responses and downloads.

// Regression: a refusal whose body stalled, was truncated or was too long was requested again and again.
#[test]
fn refusal_response_is_final_even_if_its_body_stalls_is_cut_or_is_too_long() {
    let page = "no such key ".repeat(200_000);
    let long = || error_reply(401).body("text/plain", &page);
    let mut cases = Vec::new();
    for call in [UpstreamCall::Start, UpstreamCall::Poll, UpstreamCall::Link, UpstreamCall::Download] {
        for (name, reply) in [
            ("stalled", error_reply(401).stall(5)),
            ("without a byte", error_reply(401).stall(0)),
            ("cut", error_reply(401).cut(5)),
            ("2 MiB", long()),
            ("2 MiB, stalled", long().stall(1 << 20)),
            ("2 MiB, cut", long().cut((1 << 20) + 1)),
        ] {
            cases.push((call, name, reply));
        }
    }
    run_concurrently(&cases, |(call, name, reply)| {
        let upstream = upstream();
        upstream.on(*call).respond_with(reply.clone());
        // A refused link is renewed if there is an API.
        let is_download = *call == UpstreamCall::Download;
        let host = if is_download { Host::linked(&upstream.link()) } else { Host::new(&upstream) };
        let host = host.set("network.callTimeout", toml_string("1h")).set("network.idleTimeout", toml_string("1h"));
        // The sync ends long before the timeout of the call.
        let ended = host.expect_exit(if is_download { 4 } else { 3 }, &["sync"]);
        assert!(ended.stderr.contains("401"), "{call:?} {name}: {}", ended.stderr);
        assert_eq!(upstream.count(*call), 1, "{call:?} {name}: {}", upstream.request_history());
    });
}

// Regression: bytes that were received a second time counted as progress, so a download never gave up.
#[test]
fn download_gives_up_if_a_server_without_ranges_always_cuts_at_the_same_offset() {
    let upstream = Upstream::new(large_bundle("large", 10 << 20));
    upstream
        .on(UpstreamCall::Download)
        .respond_with(normal_reply().ignoring_range().without("Accept-Ranges").cut(3 << 20));
    let host = Host::new(&upstream);
    host.expect_exit(4, &["sync"]);
    assert_eq!(upstream.count(UpstreamCall::Download), 5, "{}", upstream.request_history());
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
}

// Regression: the archive inside an outer gzip layer stayed in `downloads/`.
#[test]
fn bundle_with_an_outer_gzip_layer_leaves_no_temporary_file() {
    let tar = tar::tar(&[tar::file("index.html", "<title>tar</title>")]);
    let cases = [(bundle("zip"), 0), (tar::gzip(&tar), 0), (tar, 0), (b"<html>no bundle</html>".to_vec(), 5)];
    run_concurrently(&cases, |(bytes, code)| {
        let upstream = Upstream::new(bytes.clone());
        upstream.state().coding = Some(support::upstream::BundleCoding::Layer);
        let host = Host::new(&upstream);
        host.expect_exit(*code, &["sync"]);
        host.assert_tidy();
        host.expect_exit(*code, &["sync", "--refresh"]);
        host.assert_tidy();
    });
}

// Jobs.

// Regression: a changed pin started a job in spite of a hold when the record contained a job for the old pin.
#[test]
fn changed_pin_starts_no_job_during_a_hold_despite_an_unfinished_older_job() {
    let upstream = upstream();
    let mut host = Host::new(&upstream).set("sync.interval", toml_string("100ms"));
    host.ok(&["sync"]);
    host.ok(&["hold"]);
    host.change("staticExport.version", toml_string("1"));
    leave_unfinished_job(&upstream, &host);
    host.change("staticExport.version", toml_string("2"));
    upstream.publish(bundle("two"));
    let daemon = host.run();
    wait_for_checks(&host, 6);
    daemon.signal("HUP");
    wait_for_checks(&host, 6);
    assert_eq!(upstream.count(UpstreamCall::Start), 2, "{}", upstream.request_history());
    assert_eq!(front_page_title(&daemon), "one");
}

// Regression: a clock that was set back made a young job look old, and a second one was started beside it.
#[test]
fn job_with_a_start_time_in_the_future_is_adopted_after_the_clock_was_set_back() {
    run_concurrently(&[3600, 86_400, 40 * 86_400], |&ahead| {
        let upstream = upstream();
        let host = Host::new(&upstream);
        leave_unfinished_job(&upstream, &host);
        change_record(&host, |record| {
            record["job"]["started"] = rfc3339_in(ahead).into();
            record["lastStart"]["time"] = rfc3339_in(ahead).into();
            record["lastAttempt"] = Value::Null;
        });
        let daemon = host.run();
        until("the version", || front_page_title(&daemon) == "one");
        assert_eq!(upstream.count(UpstreamCall::Start), 1, "{ahead}: {}", upstream.request_history());
        assert_eq!(upstream.calls(UpstreamCall::Link)[0].job().as_deref(), Some(FIRST_JOB));
    });
}

// Regression: a start that failed because the API key was missing delayed the next one as if a job had been started.
#[test]
fn missing_api_key_does_not_delay_the_next_export_job() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("api.keyFile", toml_string("later"));
    // An end with an error of its own is a clean one: the next start verifies nothing again.
    for _ in 0..2 {
        let ended = host.expect_exit(2, &["run"]);
        assert!(ended.stderr.contains("later"), "{}", ended.stderr);
        assert!(!ended.stderr.contains("did not end cleanly"), "{}", ended.stderr);
    }
    assert_eq!(upstream.connections(), 0);
    host.put("later", KEY);
    let daemon = host.run();
    // A failed start is repeated after five seconds, also after a restart. Only a started job delays the next by ten
    // minutes.
    until("the job", || upstream.count(UpstreamCall::Start) > 0);
    until("the version", || front_page_title(&daemon) == "one");
}

// Regression: a signal was forgotten when a change of the key cancelled its sync.
#[test]
fn signal_is_kept_when_a_changed_key_cancels_its_sync() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    assert_eq!(leave_unfinished_job(&upstream, &host), FIRST_JOB);
    // Delays the next scheduled check, so that the signal causes the sync.
    change_record(&host, |record| record["lastAttempt"]["wait"] = 3600.into());
    upstream.statuses(&[json!("running")]);
    let daemon = run_with_log(&host);
    daemon.signal("HUP");
    until("the sync that waits for the older job", || {
        log_text(&host).contains(&format!("waiting for the export job {FIRST_JOB}"))
    });
    host.put("key", format!("{KEY}\n"));
    until("the change of the key", || {
        log_text(&host).contains(&format!("changed: {}; reading", host.path("key").display()))
    });
    let polls = upstream.count(UpstreamCall::Poll);
    until("polls after it", || upstream.count(UpstreamCall::Poll) > polls + 2);
    upstream.publish(bundle("two"));
    upstream.statuses(&[json!("completed")]);
    until("the current content", || front_page_title(&daemon) == "two");
    assert_eq!(upstream.count(UpstreamCall::Start), 2, "{}", upstream.request_history());
    let jobs: Vec<_> = upstream.calls(UpstreamCall::Link).iter().map(|request| request.job().unwrap()).collect();
    assert_eq!(jobs.last().map(String::as_str), Some("se_0000000000000002"), "{}", upstream.request_history());
}

// Regression: probes whose URLs differ only in the query were treated as one probe.
#[test]
fn probes_that_differ_only_in_the_query_are_separate_probes() {
    let upstream = upstream();
    let targets = ["/sitemap.xml?lang=de", "/sitemap.xml?lang=en"];
    for target in targets {
        upstream.state().pages.insert(target.to_owned(), format!("{target} as it was").into());
    }
    let urls = targets.map(|target| format!("{}{target}", upstream.object_store_origin()));
    let host =
        Host::new(&upstream).set("sync.probe", json!(urls).to_string()).set("sync.interval", toml_string("100ms"));
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    for (target, next) in targets.into_iter().zip(["two", "three"]) {
        let probes = upstream.count(UpstreamCall::Probe);
        until("further checks", || upstream.count(UpstreamCall::Probe) > probes + 8);
        let before = upstream.count(UpstreamCall::Start);
        upstream.publish(bundle(next));
        let probes = upstream.count(UpstreamCall::Probe);
        until("further checks", || upstream.count(UpstreamCall::Probe) > probes + 8);
        assert_eq!(upstream.count(UpstreamCall::Start), before, "nothing has changed: {}", upstream.request_history());
        upstream.state().pages.insert(target.to_owned(), format!("{target} with {next}").into());
        until(&format!("{next}, because {target} has changed"), || front_page_title(&daemon) == next);
        assert_eq!(upstream.count(UpstreamCall::Start), before + 1, "{}", upstream.request_history());
    }
}

// The daemon and its files.

// Regression: SIGTERM killed a `run` that waited for a locked store.
#[test]
fn sigterm_ends_run_with_exit_code_0_while_it_waits_for_a_locked_store() {
    run_concurrently(&["TERM", "INT"], |signal| {
        let upstream = upstream();
        upstream.on(UpstreamCall::Start).respond_with(no_reply());
        let host = Host::new(&upstream).set("network.callTimeout", toml_string("1h"));
        let _holder = KillOnDrop(host.command(&["sync"]).stderr(Stdio::null()).spawn().unwrap());
        until("the lock is held", || upstream.count(UpstreamCall::Start) > 0);
        let errors = File::create(host.path("log")).unwrap();
        let mut waiting = KillOnDrop(
            host.command(&["run"]).env("DOCWHARF_LOG", "info").stdout(Stdio::null()).stderr(errors).spawn().unwrap(),
        );
        until("it waits for the lock", || log_text(&host).contains("waiting up to"));
        send_signal(&waiting.0, signal);
        // It does not wait 30 s for the lock first.
        assert_eq!(waiting.wait(Duration::from_secs(20)), Some(0), "{signal}: {}", log_text(&host));
    });
}

// Regression: an emptied or removed configuration file was applied as a configuration without a source.
#[test]
fn an_emptied_or_removed_configuration_file_leaves_the_previous_one_in_force() {
    let damages: [fn(&Host); 3] = [
        |host| host.put("docwharf.toml", ""),
        |host| drop(File::create(host.path("docwharf.toml")).unwrap()),
        |host| std::fs::remove_file(host.path("docwharf.toml")).unwrap(),
    ];
    let mut cases = Vec::new();
    for damage in damages {
        cases.extend([(damage, false), (damage, true)]);
    }
    run_concurrently(&cases, |&(damage, hangup)| {
        let upstream = upstream();
        let host = Host::new(&upstream).set("sync.interval", toml_string("200ms"));
        let valid_config = std::fs::read(host.path("docwharf.toml")).unwrap();
        host.put("good.toml", &valid_config);
        let config_error = || {
            let mut command = docwharf();
            command.args(["status", "--json", "--config"]).arg(host.path("good.toml"));
            expect_plain_exit(0, run_with_timeout(&mut command)).json()["configError"].clone()
        };
        let daemon = host.run();
        until("the first version", || front_page_title(&daemon) == "one");
        assert_eq!(config_error(), Value::Null);
        damage(&host);
        if hangup {
            daemon.signal("HUP");
        }
        until("the configuration error", || config_error() != Value::Null);
        upstream.publish(bundle("two"));
        if hangup {
            daemon.signal("HUP");
        }
        until("the second version", || front_page_title(&daemon) == "two");
        assert_ne!(config_error(), Value::Null);
        host.put("docwharf.toml", &valid_config);
        if hangup {
            daemon.signal("HUP");
        }
        until("no configuration error", || config_error() == Value::Null);
        upstream.publish(bundle("three"));
        until("the third version", || front_page_title(&daemon) == "three");
    });
}

// Regression: a file that was still being written was recorded as refused.
#[test]
fn a_bundle_file_that_is_still_being_written_is_not_recorded_as_refused() {
    let full_bundle = large_bundle("whole", 40 << 20);
    let (first_part, rest) = full_bundle.split_at(32 << 20);
    let host =
        Host::bare().set("staticExport.bundleUrl", toml_string("docs.zip")).set("sync.interval", toml_string("100ms"));
    let path = host.path("docs.zip");
    std::fs::write(&path, first_part).unwrap();
    let is_checked = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut file = OpenOptions::new().append(true).open(&path).unwrap();
            let mut rest = rest;
            while !is_checked.load(Ordering::Relaxed) {
                // Four bytes at a time, so that writing lasts longer than the check, which runs at a low priority.
                let (chunk, tail) = rest.split_at_checked(4).expect("a check happens before the end");
                file.write_all(chunk).unwrap();
                // Slow like a network, but a pause is always shorter than a check.
                std::thread::sleep(Duration::from_micros(100));
                rest = tail;
            }
            file.write_all(rest).unwrap();
        });
        let daemon_result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let daemon = host.run();
            until_done_in_background("a check of the incomplete file", || host.last_result() == "failed");
            daemon
        }));
        is_checked.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        let daemon = daemon_result.unwrap();
        until_done_in_background("the complete bundle", || front_page_title(&daemon) == "whole");
    });
    assert_eq!(history_events(&host), ["imported", "activated"]);
}

// Regression: a bundle that a limit had refused was not verified again after the limit was raised beside a running
// `run`.
#[test]
fn run_serves_a_refused_bundle_after_the_exceeded_limit_is_raised() {
    run_concurrently(&[true, false], |&is_link| {
        let upstream = upstream();
        let bundle_url = if is_link { upstream.link() } else { "bundle.zip".to_owned() };
        let mut host = Host::linked(&bundle_url).set("limits.entry", toml_string("1"));
        host.put("bundle.zip", bundle("one"));
        let daemon = host.run();
        until("the refusal", || host.last_result() == "failed");
        host.remove("limits.entry");
        until("the version", || front_page_title(&daemon) == "one");
    });
}

/// How many times the daemon has logged a changed file of its configuration.
fn noticed_changes(host: &Host) -> usize {
    log_text(host).matches("; reading the configuration and its files again").count()
}

/// Changes an irrelevant key of the configuration until the daemon has noticed more than `times` changes.
#[track_caller]
fn wait_for_noticed_changes(host: &mut Host, times: usize) {
    let mut hours = 1;
    until("a change that is noticed", || {
        hours += 1;
        host.change("sync.interval", toml_string(&format!("{hours}h")));
        noticed_changes(host) > times
    });
}

// Regression: a file that arrived in the inbox while the agent was disabled stayed there after it was enabled.
#[test]
fn inbox_files_that_arrive_while_disabled_are_imported_after_enabling() {
    let mut host = Host::bare().set("sync.inbox", toml_string("inbox")).set("staticExport.enabled", "false");
    std::fs::create_dir(host.path("inbox")).unwrap();
    std::fs::write(host.path("inbox/before.zip"), bundle("before")).unwrap();
    let daemon = run_with_log(&host);
    wait_for_noticed_changes(&mut host, 0);
    std::fs::write(host.path("inbox/after.zip"), bundle("after")).unwrap();
    // All watched files are compared together. After the second noticed change, the inbox has been read, too.
    let before = noticed_changes(&host);
    wait_for_noticed_changes(&mut host, before + 1);
    let accepted = |host: &Host, name: &str| host.path("inbox/accepted").join(name).exists();
    assert!(!accepted(&host, "before.zip") && !accepted(&host, "after.zip"), "{}", log_text(&host));
    assert!(!host.path("store/state.json").exists(), "{}", log_text(&host));
    host.change("staticExport.enabled", "true");
    let accepted = |name: &str| accepted(&host, name);
    until("both files are imported", || accepted("before.zip") && accepted("after.zip"));
    until("one of them is served", || ["before", "after"].contains(&front_page_title(&daemon).as_str()));
}

// Regression: a file whose copy into the inbox paused was moved away when half of it had arrived.
#[test]
fn the_inbox_waits_for_a_file_whose_copy_pauses() {
    let host = Host::bare().set("sync.inbox", toml_string("inbox"));
    std::fs::create_dir(host.path("inbox")).unwrap();
    let path = host.path("inbox/slow.zip");
    let full_bundle = bundle("whole");
    let (first_half, rest) = full_bundle.split_at(full_bundle.len() / 2);
    std::fs::write(&path, first_half).unwrap();
    let daemon = run_with_log(&host);
    until("a check of the incomplete file", || log_text(&host).contains("checked again in a minute"));
    OpenOptions::new().append(true).open(&path).unwrap().write_all(rest).unwrap();
    until("the complete bundle", || front_page_title(&daemon) == "whole");
    until("the file is moved to accepted/", || host.path("inbox/accepted/slow.zip").exists());
    assert_eq!(std::fs::read_dir(host.path("inbox/rejected")).unwrap().count(), 0);
}
