//! `run` with an upstream: when it checks, what it resumes, requests that it must not send, and serving meanwhile.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use support::host::{
    Host, bundle, expect_plain_exit, front_page_title, large_bundle, run_concurrently, run_with_timeout, toml_string,
};
use support::upstream::{
    KEY, Reply, Upstream, UpstreamCall, close_without_reply, error_reply, no_reply, normal_reply, raw_reply,
};
use support::{Daemon, http, send_signal, until};

const FIRST_JOB: &str = "se_0000000000000001";

fn upstream() -> Upstream {
    Upstream::new(bundle("one"))
}

/// Panics unless `condition` holds for 1.2 s. That an event never happens can only be tested by waiting.
#[track_caller]
fn assert_for_a_while(message: &str, condition: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < end {
        assert!(condition(), "{message}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The time of the next check, from the status. `None` while a check is in progress.
fn next_check(host: &Host) -> Option<Timestamp> {
    host.status()["nextLook"].as_str().map(|time| time.parse().expect("a moment"))
}

/// The time until the next check. It distinguishes a wait that is longer than a test from the usual pause.
fn time_until_next_check(host: &Host) -> Duration {
    let remaining = next_check(host).map(|next| next.duration_since(Timestamp::now()));
    remaining.and_then(|remaining| Duration::try_from(remaining).ok()).unwrap_or_default()
}

// Regression: `status` did not show the failures of an attempt that was still in progress.
#[test]
fn status_shows_the_failures_of_an_attempt_in_progress() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Start).respond_with(error_reply(503));
    let host = Host::new(&upstream);
    let _daemon = host.run();
    until("the first failure is reported", || host.status()["daemon"]["doingError"].is_string());
    let status = host.status();
    assert!(status["daemon"]["doing"].is_string(), "{status}");
    assert!(status["lastAttempt"].is_null(), "the attempt goes on: {status}");
    assert!(host.ok(&["status"]).stdout.contains("503"), "{status}");
    upstream.clear_rules();
    until("the attempt succeeds", || host.active().is_some());
    assert_eq!(host.status()["daemon"]["doingError"], Value::Null);
}

// The site stays available.

#[test]
fn run_serves_the_stored_version_before_and_after_an_api_call_fails() {
    let faults: [fn(&Upstream); 3] = [
        |upstream| upstream.on(UpstreamCall::Start).respond_with(no_reply()),
        |upstream| upstream.on(UpstreamCall::Start).respond_with(close_without_reply()),
        |upstream| upstream.on(UpstreamCall::Start).respond_with(error_reply(401)),
    ];
    run_concurrently(&faults, |set_fault| {
        let upstream = upstream();
        // A start that waited for the first call would take two minutes without a reply.
        let host = Host::new(&upstream)
            .set("sync.interval", toml_string("100ms"))
            .set("network.callTimeout", toml_string("2m"));
        host.ok(&["sync"]);
        set_fault(&upstream);
        let started = Instant::now();
        let daemon = host.run();
        assert_eq!(front_page_title(&daemon), "one");
        assert!(started.elapsed() < Duration::from_secs(30), "the goal is 200 ms on an idle machine");
        until("the call that fails", || upstream.count(UpstreamCall::Start) > 1);
        assert_eq!(front_page_title(&daemon), "one");
    });
}

#[test]
fn run_returns_503_until_the_first_job_fills_an_empty_store() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("a poll", || upstream.count(UpstreamCall::Poll) > 0);
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    upstream.statuses(&[json!("completed")]);
    until("the first version", || front_page_title(&daemon) == "one");
}

#[test]
fn run_switches_to_new_versions_without_a_failed_request() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    host.ok(&["sync"]);
    let daemon = host.run();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let switcher = scope.spawn(|| {
            let result = std::panic::catch_unwind(AssertUnwindSafe(|| {
                for n in 2..6 {
                    upstream.publish(bundle(&format!("v{n}")));
                    daemon.signal("HUP");
                    until("the next version", || front_page_title(&daemon) == format!("v{n}"));
                }
            }));
            done.store(true, Ordering::Relaxed);
            result.unwrap();
        });
        while !done.load(Ordering::Relaxed) {
            let response = http::get(&daemon.address, "/guide.html");
            assert_eq!(response.status, 200);
            assert!(response.text().ends_with(" tide</p>"), "{}", response.text());
        }
        switcher.join().unwrap();
    });
}

#[test]
fn run_retries_after_a_400_401_or_403_and_continues_its_job() {
    let cases = [
        (UpstreamCall::Start, 401),
        (UpstreamCall::Poll, 401),
        (UpstreamCall::Poll, 403),
        (UpstreamCall::Link, 403),
        (UpstreamCall::Link, 400),
    ];
    run_concurrently(&cases, |&(call, status)| {
        let upstream = upstream();
        upstream.on(call).times(1).respond_with(error_reply(status));
        let host = Host::new(&upstream);
        let daemon = host.run();
        until("the failure", || host.last_result() == "failed");
        assert_eq!(host.status()["lastAttempt"]["failures"], 1);
        assert_eq!(host.job().as_deref(), (call != UpstreamCall::Start).then_some(FIRST_JOB), "{call:?}");
        until("the version", || front_page_title(&daemon) == "one");
        let starts = if call == UpstreamCall::Start { 2 } else { 1 };
        assert_eq!(upstream.count(UpstreamCall::Start), starts, "{call:?}: {}", upstream.request_history());
        assert_eq!(host.status()["job"], Value::Null);
        let times: Vec<Instant> = upstream.calls(call).iter().map(|request| request.received_at).collect();
        let pause = times[1] - times[0];
        assert!(pause > Duration::from_millis(4400), "{call:?}: tried again after {pause:?}, which is not 5 s");
    });
}

#[test]
fn run_retries_a_refused_connection_until_the_upstream_listens() {
    let upstream = Upstream::closed(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    upstream.open();
    until("the version", || front_page_title(&daemon) == "one");
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
}

#[test]
fn run_starts_another_job_after_one_is_missing_failed_or_timed_out() {
    let endings: [fn(&Upstream); 3] = [
        |upstream| upstream.on(UpstreamCall::Poll).times(1).respond_with(error_reply(404)),
        |upstream| {
            upstream
                .on(UpstreamCall::Poll)
                .times(1)
                .respond_with(raw_reply("application/json", "{\"status\": \"failed\"}"));
        },
        |upstream| upstream.statuses(&[json!("running")]),
    ];
    run_concurrently(&endings, |end_job| {
        let upstream = upstream();
        end_job(&upstream);
        // Enough for the second job on a busy machine: `run` polls at a low priority.
        let host = Host::new(&upstream).set("sync.jobTimeout", toml_string("5s"));
        let daemon = host.run();
        until("the failure", || host.last_result() == "failed");
        assert_eq!(host.job(), None);
        upstream.statuses(&[json!("completed")]);
        until("the version", || front_page_title(&daemon) == "one");
        assert_eq!(upstream.count(UpstreamCall::Start), 2, "{}", upstream.request_history());
        assert!(upstream.calls(UpstreamCall::Link)[0].job().unwrap().ends_with('2'));
    });
}

#[test]
fn sigterm_ends_run_with_exit_code_0_during_each_request_and_pause() {
    let waits: [(UpstreamCall, fn() -> Reply); 5] = [
        (UpstreamCall::Start, no_reply),
        (UpstreamCall::Start, || error_reply(503).header("Retry-After", "50")),
        (UpstreamCall::Poll, || raw_reply("application/json", "{\"status\": \"running\"}")),
        (UpstreamCall::Link, no_reply),
        (UpstreamCall::Download, || normal_reply().stall(50)),
    ];
    run_concurrently(&waits, |&(call, make_reply)| {
        let upstream = upstream();
        upstream.on(call).respond_with(make_reply());
        let host = Host::new(&upstream).set("network.callTimeout", toml_string("30s"));
        let mut daemon = host.run();
        until("the call", || upstream.count(call) > 0);
        daemon.signal("TERM");
        // docs/design/agent.md, rule 9.
        assert_eq!(daemon.wait(Duration::from_secs(10)), Some(0), "{call:?}");
    });
}

#[test]
fn a_sync_ended_by_a_signal_exits_non_zero_and_the_next_sync_succeeds() {
    let signals = [("TERM", 15), ("INT", 2), ("KILL", 9)];
    let mut cases = Vec::new();
    for signal in signals {
        for call in [UpstreamCall::Start, UpstreamCall::Poll, UpstreamCall::Link, UpstreamCall::Download] {
            cases.push((signal, call));
        }
    }
    run_concurrently(&cases, |&((name, number), call)| {
        let upstream = upstream();
        upstream.on(call).times(1).respond_with(if call == UpstreamCall::Download {
            normal_reply().stall(50)
        } else {
            no_reply()
        });
        let host = Host::new(&upstream).set("network.callTimeout", toml_string("30s"));
        let mut child = host.command(&["sync"]).spawn().unwrap();
        until("the call", || upstream.count(call) > 0);
        send_signal(&child, name);
        let ended = child.wait().unwrap();
        assert!(
            ended.code() == Some(128 + number) || ended.signal() == Some(number),
            "{name} during {call:?}: {ended:?}"
        );
        assert_eq!(host.sync(), "activated", "{name} during {call:?}");
        host.assert_tidy();
    });
}

// One job, one writer.

#[test]
fn run_continues_its_job_after_sigkill() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("polls", || upstream.count(UpstreamCall::Poll) > 1);
    assert_eq!(host.job().as_deref(), Some(FIRST_JOB));
    daemon.signal("KILL");
    drop(daemon);
    let before = upstream.log().len();
    let daemon = host.run();
    until("polls of the same job", || upstream.log().len() > before + 1);
    upstream.statuses(&[json!("completed")]);
    until("the version", || front_page_title(&daemon) == "one");
    assert_eq!(upstream.count(UpstreamCall::Start), 1, "{}", upstream.request_history());
    assert_eq!(host.job(), None);
}

#[test]
fn the_next_run_can_use_the_store_after_sigkill_at_any_moment_of_a_sync() {
    let upstream = Upstream::new(large_bundle("n0", 1 << 20));
    let host = Host::new(&upstream).set("sync.interval", toml_string("100ms"));
    for n in 0..40 {
        let bytes = large_bundle(&format!("n{n}"), 1 << 20);
        upstream.publish(bytes);
        let daemon = host.run();
        // The time of the kill varies, from the first call to the activation.
        std::thread::sleep(Duration::from_millis(n * 5));
        daemon.signal("KILL");
        drop(daemon);
        host.status();
    }
    upstream.publish(bundle("last"));
    let mut daemon = host.run();
    until("the last version", || front_page_title(&daemon) == "last");
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    let leftovers = std::fs::read_dir(host.path("store/staging")).unwrap().count();
    assert_eq!(leftovers, 0, "leftovers in staging");
}

#[test]
fn the_sync_thread_of_run_has_nice_10_and_only_its_configured_processors() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream).set("sync.threads", "1");
    let daemon = host.run();
    until("a job in progress", || upstream.count(UpstreamCall::Poll) > 1);
    // Threads that verify and compress are started from this thread, and inherit nice value and processors.
    let tasks = format!("/proc/{}/task", daemon.pid());
    // The tests may run with a nice value already.
    let own_nice = rustix::process::getpriority_process(None).unwrap();
    let mut sync_threads = 0;
    for task in std::fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path()) {
        // A thread may end between the two reads.
        let read = |name: &str| std::fs::read_to_string(task.join(name));
        let (Ok(stat), Ok(status)) = (read("stat"), read("status")) else { continue };
        let (name, rest) = stat.split_once('(').unwrap().1.rsplit_once(") ").unwrap();
        // Fields are counted from the third, which is the state; nice is the nineteenth.
        let nice = rest.split(' ').nth(16).unwrap();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        if name == "docwharf-sync" {
            sync_threads += 1;
            assert_eq!(nice, own_nice.max(10).to_string());
            assert!(allowed.parse::<u32>().is_ok(), "one processor, not {allowed}");
        } else {
            assert_eq!(nice, own_nice.to_string(), "{name}");
        }
    }
    assert_eq!(sync_threads, 1);
}

#[test]
fn run_resumes_its_download_after_sigkill() {
    let bytes = large_bundle("large", 6 << 20);
    let upstream = Upstream::new(bytes);
    upstream.on(UpstreamCall::Download).times(1).respond_with(normal_reply().stall(4 << 20));
    let host = Host::new(&upstream).set("network.idleTimeout", toml_string("30s"));
    let daemon = host.run();
    let on_disk = || -> u64 {
        let entries = std::fs::read_dir(host.path("store/downloads")).into_iter().flatten().flatten();
        entries.map(|entry| entry.metadata().map_or(0, |metadata| metadata.len())).sum()
    };
    until("a part on the disk", || on_disk() > 1 << 20);
    daemon.signal("KILL");
    drop(daemon);
    let daemon = host.run();
    until("the version", || front_page_title(&daemon) == "large");
    assert_eq!(upstream.count(UpstreamCall::Start), 1, "{}", upstream.request_history());
    let downloads = upstream.calls(UpstreamCall::Download);
    assert_eq!(downloads.len(), 2, "{}", upstream.request_history());
    assert!(downloads[1].header("range").is_some(), "{}", downloads[1].head());
    assert_eq!(downloads[1].header("if-range"), Some(&*upstream.state().validator()));
    assert_eq!(downloads[1].status, 206);
    host.assert_tidy();
}

#[test]
fn run_starts_no_second_job_before_the_first_has_ended() {
    let upstream = upstream();
    upstream.statuses(&["a", "b", "c", "d", "e", "f", "completed"].map(Value::from));
    let host = Host::new(&upstream).set("sync.interval", toml_string("100ms"));
    let daemon = host.run();
    for jobs in 1..=3 {
        until("a job in progress", || upstream.count(UpstreamCall::Poll) > 4 * jobs);
        daemon.signal("HUP");
        until("its bundle", || upstream.count(UpstreamCall::Link) >= jobs);
    }
    // A signal may start a new job only after the current job has ended.
    let mut ended = true;
    for request in upstream.log() {
        match request.call {
            UpstreamCall::Start => assert!(std::mem::replace(&mut ended, false), "{}", upstream.request_history()),
            UpstreamCall::Poll => ended = request.job().is_some_and(|job| upstream.has_job_ended(&job)),
            _ => {}
        }
    }
}

// Regression: signals that arrived faster than jobs completed kept the new version away.
#[test]
fn frequent_sighups_do_not_prevent_the_activation_of_a_new_version() {
    let upstream = upstream();
    upstream.statuses(&["a", "b", "c", "d", "e", "completed"].map(Value::from));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || {
        daemon.signal("HUP");
        front_page_title(&daemon) == "one"
    });
}

#[test]
fn a_second_sync_waits_for_the_first() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| host.sync());
        until("the first job", || upstream.count(UpstreamCall::Poll) > 0);
        let second = scope.spawn(|| host.sync());
        assert_for_a_while("one job at a time", || upstream.count(UpstreamCall::Start) == 1);
        upstream.statuses(&[json!("completed")]);
        assert_eq!((first.join().unwrap(), second.join().unwrap()), ("activated".into(), "already current".into()));
    });
    assert_eq!(upstream.count(UpstreamCall::Start), 2);
}

#[test]
fn a_full_disk_is_exit_code_8_and_the_next_sync_succeeds() {
    let upstream = Upstream::new(large_bundle("large", 3 << 20));
    let host = Host::new(&upstream);
    // A limit on the size of files replaces a small disk: writing fails with an error, too.
    let mut command = host.command(&["sync"]);
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$@\"", "bash"]);
    limited.arg(command.get_program()).args(command.get_args());
    let ended = expect_plain_exit(8, run_with_timeout(&mut limited));
    assert!(ended.stderr.contains("store"), "the path is missing: {}", ended.stderr);
    assert_eq!(run_with_timeout(&mut command).code, Some(0));
    host.assert_tidy();
}

// Schedule of checks and probes.

#[test]
fn a_restart_starts_no_job_before_the_interval_has_passed_but_sighup_does() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    drop(daemon);
    let daemon = host.run();
    assert_eq!(front_page_title(&daemon), "one");
    // The check at the start has ended, and the next one is due after the interval.
    until("the next check is most of an hour away", || time_until_next_check(&host) > Duration::from_mins(50));
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
    upstream.publish(bundle("two"));
    daemon.signal("HUP");
    until("the second version", || front_page_title(&daemon) == "two");
    assert_eq!(upstream.count(UpstreamCall::Start), 2);
}

#[test]
fn without_probes_each_interval_starts_a_job() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.interval", toml_string("200ms"));
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.publish(bundle("two"));
    until("the second version", || front_page_title(&daemon) == "two");
    until("more jobs", || upstream.count(UpstreamCall::Start) > 4);
    // Without the key `sync.probe`, too.
    let host = Host::new(&upstream).without("sync.probe").set("sync.interval", toml_string("200ms"));
    let before = upstream.count(UpstreamCall::Start);
    let _daemon = host.run();
    until("jobs", || upstream.count(UpstreamCall::Start) > before + 2);
}

#[test]
fn a_schedule_replaces_the_interval() {
    let upstream = upstream();
    let host = Host::new(&upstream).without("sync.interval").set("sync.schedule", toml_string("0 0 1 1 *"));
    // The schedule is in local time, the status in UTC.
    let daemon = Daemon::start(host.command(&["run"]).env("TZ", "UTC"));
    until("the check at the start", || front_page_title(&daemon) == "one");
    // The status cuts off parts of a second.
    let is_new_year = |next: Timestamp| (next + SignedDuration::from_secs(1)).to_string().contains("-01-01T00:00:0");
    until("the next check is at New Year", || next_check(&host).is_some_and(is_new_year));
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
}

#[test]
fn a_job_is_started_only_when_a_probed_page_has_changed() {
    let upstream = upstream();
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe_url(), format!("{}/llms.txt", upstream.api_origin())]).to_string())
        .set("sync.interval", toml_string("100ms"));
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    let probes = upstream.count(UpstreamCall::Probe);
    until("many checks", || upstream.count(UpstreamCall::Probe) > probes + 8);
    assert!(upstream.count(UpstreamCall::Start) <= 2, "nothing has changed: {}", upstream.request_history());
    let before = upstream.count(UpstreamCall::Start);
    upstream.publish(bundle("two"));
    upstream.state().probe = b"<urlset><url/></urlset>".to_vec();
    until("the second version", || front_page_title(&daemon) == "two");
    let probes = upstream.count(UpstreamCall::Probe);
    until("many checks", || upstream.count(UpstreamCall::Probe) > probes + 8);
    // Two, if the change happened between the two probes of one check.
    assert!((1..=2).contains(&(upstream.count(UpstreamCall::Start) - before)), "{}", upstream.request_history());
    let probes = upstream.calls(UpstreamCall::Probe);
    for request in &probes {
        assert_eq!((request.method.as_str(), request.header("authorization")), ("GET", None), "{}", request.head());
        assert!(!request.head().contains(KEY));
    }
    assert!(probes.iter().any(|request| request.status == 304), "probes are conditional");
}

#[test]
fn a_changed_probe_starts_another_job_after_its_job_has_failed() {
    let upstream = upstream();
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe_url()]).to_string())
        .set("sync.interval", toml_string("100ms"));
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.publish(bundle("two"));
    upstream
        .on(UpstreamCall::Poll)
        .times(1)
        .respond_with(error_reply(200).json(&json!({"status": "failed", "error": "no disk"})));
    upstream.state().probe = b"<urlset><url/></urlset>".to_vec();
    until("the failure", || host.last_result() == "failed");
    until("the second version, though nothing has changed since", || front_page_title(&daemon) == "two");
}

#[test]
fn a_job_start_interrupted_by_sigkill_delays_the_first_job_after_a_restart() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Start).respond_with(no_reply());
    let host = Host::new(&upstream).set("network.callTimeout", toml_string("20s"));
    let daemon = host.run();
    until("the request", || upstream.count(UpstreamCall::Start) == 1);
    drop(daemon); // by SIGKILL
    upstream.clear_rules();
    let _daemon = host.run();
    // The check at the start is delayed by the rest of ten minutes.
    until("the next check is far away", || {
        next_check(&host).is_some_and(|next| next.duration_since(Timestamp::now()).as_secs() > 300)
    });
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
}

#[test]
fn a_sync_whose_job_starts_got_no_response_delays_the_first_job_of_run() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Start).respond_with(close_without_reply());
    let host = Host::new(&upstream);
    host.expect_exit(4, &["sync"]);
    let starts = upstream.count(UpstreamCall::Start);
    upstream.clear_rules();
    let _daemon = host.run();
    // The check at the start is delayed by the rest of ten minutes. A wait after a failure would be shorter.
    until("the next check is far away", || {
        next_check(&host).is_some_and(|next| next.duration_since(Timestamp::now()).as_secs() > 300)
    });
    assert_eq!(upstream.count(UpstreamCall::Start), starts, "{}", upstream.request_history());
}

#[test]
fn a_probe_without_etag_and_last_modified_is_compared_by_its_content() {
    let upstream = upstream();
    let page = |word: &str| raw_reply("text/plain", word);
    upstream.on(UpstreamCall::Probe).times(6).respond_with(page("same"));
    upstream.on(UpstreamCall::Probe).respond_with(page("other"));
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe_url()]).to_string())
        .set("sync.interval", toml_string("100ms"));
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    until("the change", || upstream.count(UpstreamCall::Start) == 2);
    assert!(upstream.count(UpstreamCall::Probe) >= 7, "{}", upstream.request_history());
}

// Regression: probes that could not be read were reported as "already current".
// Regression: a check that could not read the probes counted as a success for alerts.
#[test]
fn status_distinguishes_unreadable_probes_from_unchanged_probes() {
    let upstream = upstream();
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe_url()]).to_string())
        .set("sync.interval", toml_string("100ms"));
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    upstream.on(UpstreamCall::Probe).respond_with(error_reply(500));
    let last = || host.ok(&["status", "--json"]).json()["lastAttempt"].clone();
    until("a failed check", || last()["result"] == "probes unreadable");
    assert!(last()["error"].as_str().is_some_and(|why| why.contains("sync.probe")), "{}", last());
    // A check without readable probes is no success: alerts watch the age of the last one.
    let last_good = host.status()["lastGood"].clone();
    let probes = upstream.count(UpstreamCall::Probe);
    until("more failed checks", || upstream.count(UpstreamCall::Probe) > probes + 2);
    assert_eq!(host.status()["lastGood"], last_good);
}

#[test]
fn unreadable_probes_start_no_job_until_max_age_has_passed() {
    let faults: [fn() -> Reply; 5] = [
        || error_reply(500),
        || error_reply(404),
        close_without_reply,
        || normal_reply().cut(3),
        || raw_reply("application/xml", vec![b'x'; 9 << 20]),
    ];
    run_concurrently(&faults, |make_reply| {
        let upstream = upstream();
        let mut host = Host::new(&upstream)
            .set("sync.probe", json!([upstream.probe_url()]).to_string())
            .set("sync.interval", toml_string("100ms"));
        let daemon = host.run();
        until("the first version", || front_page_title(&daemon) == "one");
        let probes = upstream.count(UpstreamCall::Probe);
        until("a check without a change", || upstream.count(UpstreamCall::Probe) > probes + 2);
        let before = upstream.count(UpstreamCall::Start);
        upstream.on(UpstreamCall::Probe).respond_with(make_reply());
        let probes = upstream.count(UpstreamCall::Probe);
        until("failed checks", || upstream.count(UpstreamCall::Probe) > probes + 3);
        assert_eq!(upstream.count(UpstreamCall::Start), before, "{}", upstream.request_history());
        assert_eq!(front_page_title(&daemon), "one");
        drop(daemon);
        host.change("sync.maxAge", toml_string("1s"));
        upstream.publish(bundle("two"));
        let daemon = host.run();
        until("the second version", || front_page_title(&daemon) == "two");
    });
}

#[test]
fn an_unreadable_probe_does_not_prevent_the_first_version() {
    run_concurrently(&[error_reply(500), no_reply()], |reply| {
        let upstream = upstream();
        upstream.on(UpstreamCall::Probe).respond_with(reply.clone());
        let host = Host::new(&upstream)
            .set("sync.probe", json!([upstream.probe_url()]).to_string())
            .set("sync.interval", toml_string("200ms"))
            .set("network.callTimeout", toml_string("1s"));
        let daemon = host.run();
        until("the first version", || front_page_title(&daemon) == "one");
    });
}

#[test]
fn sync_starts_a_job_without_requesting_the_probes() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.probe", json!([upstream.probe_url()]).to_string());
    host.ok(&["sync"]);
    host.ok(&["sync"]);
    assert_eq!((upstream.count(UpstreamCall::Probe), upstream.count(UpstreamCall::Start)), (0, 2));
}

#[test]
fn run_checks_a_bundle_url_by_conditional_requests_at_each_interval() {
    let upstream = upstream();
    let host = Host::linked(&upstream.link()).set("sync.interval", toml_string("100ms"));
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    until("conditional checks", || {
        upstream.calls(UpstreamCall::Download).iter().filter(|request| request.status == 304).count() > 2
    });
    upstream.publish(bundle("two"));
    until("the second version", || front_page_title(&daemon) == "two");
    let full_downloads = upstream.calls(UpstreamCall::Download).iter().filter(|request| request.status == 200).count();
    assert_eq!(full_downloads, 2, "{}", upstream.request_history());
}

// The operator's commands, disabled syncs, pins.

#[test]
fn a_disabled_agent_sends_no_request() {
    let upstream = upstream();
    let mut host = Host::new(&upstream).set("sync.interval", toml_string("100ms"));
    host.ok(&["sync"]);
    host.change("staticExport.enabled", "false");
    let before = upstream.connections();
    assert_eq!(host.sync(), "disabled");
    let daemon = host.run();
    daemon.signal("HUP");
    assert_for_a_while("no request", || upstream.connections() == before);
    assert_eq!(front_page_title(&daemon), "one");
}

#[test]
fn a_pin_to_a_stored_version_activates_it_without_a_request() {
    let upstream = upstream();
    let mut host =
        Host::new(&upstream).set("staticExport.version", toml_string("1")).set("sync.interval", toml_string("100ms"));
    assert_eq!(host.sync(), "activated");
    let one = host.active();
    let connections = upstream.connections();
    upstream.publish(bundle("two"));
    assert_eq!(host.sync(), "already current");
    let daemon = host.run();
    daemon.signal("HUP");
    assert_for_a_while("no request", || upstream.connections() == connections);
    // A reload with another label downloads it.
    host.change("staticExport.version", toml_string("2"));
    daemon.signal("HUP");
    until("the second version", || front_page_title(&daemon) == "two");
    assert_eq!(upstream.count(UpstreamCall::Start), 2, "{}", upstream.request_history());
    let connections = upstream.connections();
    host.change("staticExport.version", toml_string("1"));
    daemon.signal("HUP");
    until("the first version", || front_page_title(&daemon) == "one");
    assert_eq!(host.active(), one);
    assert_for_a_while("no request", || upstream.connections() == connections);
    // Only `--refresh` downloads again, and moves the label.
    drop(daemon);
    upstream.publish(bundle("one, corrected"));
    host.ok(&["sync", "--refresh"]);
    assert_ne!(host.active(), one);
    // A label of another source is another label.
    host.change("api.domain", toml_string("other.example.com"));
    let before = upstream.count(UpstreamCall::Start);
    upstream.publish(bundle("of another domain"));
    assert_eq!(host.sync(), "activated");
    assert_eq!(upstream.count(UpstreamCall::Start), before + 1);
}

#[test]
fn a_label_belongs_to_base_url_and_domain_or_to_a_bundle_url_without_its_query() {
    let upstream = upstream();
    let mut host = Host::new(&upstream).set("staticExport.version", toml_string("L"));
    host.ok(&["sync"]);
    let source = |host: &Host| -> Value {
        let state = std::fs::read_to_string(host.path("store/state.json")).unwrap();
        serde_json::from_str::<Value>(&state).unwrap()["labels"]["L"]["source"].clone()
    };
    assert_eq!(source(&host), format!("{}#docs.example.com", upstream.base_url()));
    // A trailing slash does not change the source.
    let connections = upstream.connections();
    host.change("api.baseUrl", toml_string(&format!("{}/", upstream.base_url())));
    assert_eq!(host.sync(), "already current");
    assert_eq!(upstream.connections(), connections);

    let link = upstream.link();
    let mut host = Host::linked(&link).set("staticExport.version", toml_string("L"));
    host.ok(&["sync"]);
    assert_eq!(source(&host), link.split('?').next().unwrap());
    let connections = upstream.connections();
    host.change("staticExport.bundleUrl", toml_string(&upstream.link()));
    assert_eq!(host.sync(), "already current");
    assert_eq!(upstream.connections(), connections, "a new signature is no new bundle");
    // Another link is another bundle, and so is another digest.
    upstream.publish(bundle("two"));
    host.change("staticExport.bundleUrl", toml_string(&upstream.link().replace("/byhand/", "/elsewhere/")));
    assert_eq!(host.sync(), "activated");
    upstream.publish(bundle("three"));
    host.change(
        "staticExport.sha256",
        toml_string(&docwharf::model::digest::Digest::compute(&bundle("three")).to_hex()),
    );
    assert_eq!(host.sync(), "activated");
}

#[test]
fn the_active_version_stays_until_the_pinned_version_is_available() {
    let upstream = upstream();
    let mut host = Host::new(&upstream);
    host.ok(&["sync"]);
    host.change("staticExport.version", toml_string("next"));
    upstream.on(UpstreamCall::Start).respond_with(error_reply(503).header("Retry-After", "3600"));
    let daemon = host.run();
    until("the failure", || host.last_result() == "failed");
    assert_eq!(front_page_title(&daemon), "one");
}

#[test]
fn under_a_hold_run_starts_no_job_and_sync_seals_without_activating() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.interval", toml_string("100ms"));
    host.ok(&["sync"]);
    upstream.publish(bundle("two"));
    host.ok(&["sync"]);
    host.ok(&["rollback"]);
    let daemon = host.run();
    daemon.signal("HUP");
    assert_for_a_while("no job", || upstream.count(UpstreamCall::Start) == 2);
    assert_eq!(front_page_title(&daemon), "one");
    drop(daemon);
    upstream.publish(bundle("three"));
    let ended = host.expect_exit(7, &["sync"]);
    assert!(ended.stderr.contains("held"), "{}", ended.stderr);
    assert_eq!(upstream.count(UpstreamCall::Start), 3);
    assert_eq!(host.expect_exit(7, &["sync", "--json"]).json()["result"], "not activated");
    let before = upstream.count(UpstreamCall::Start);
    assert_eq!(front_page_title(&host.run()), "one");
    host.ok(&["release"]);
    let daemon = host.run();
    assert_eq!(front_page_title(&daemon), "three", "the newest version, at once");
    until("jobs again", || upstream.count(UpstreamCall::Start) > before);
}

// Retries of `run`.

#[test]
fn backoff_doubles_survives_a_restart_and_does_not_delay_the_sync_command() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Start).times(4).respond_with(error_reply(401));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the second attempt", || upstream.count(UpstreamCall::Start) == 2);
    until("its record", || host.status()["lastAttempt"]["failures"] == 2);
    daemon.signal("KILL");
    drop(daemon);
    let daemon = host.run();
    until("the third attempt", || upstream.count(UpstreamCall::Start) == 3);
    let times: Vec<Instant> = upstream.calls(UpstreamCall::Start).iter().map(|request| request.received_at).collect();
    assert!(times[1] - times[0] > Duration::from_millis(4400), "{:?}", times[1] - times[0]);
    assert!(times[2] - times[1] > Duration::from_millis(8800), "{:?}", times[2] - times[1]);
    until("its record", || host.status()["lastAttempt"]["failures"] == 3);
    drop(daemon);
    // The next scheduled attempt is in twenty seconds.
    let started = Instant::now();
    host.expect_exit(3, &["sync"]);
    assert_eq!(host.sync(), "activated");
    assert!(started.elapsed() < Duration::from_secs(15));
    assert_eq!(host.status()["lastAttempt"]["failures"], 0);
}

#[test]
fn a_configuration_change_ends_the_wait_for_retry_after() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Start).times(1).respond_with(error_reply(429).header("Retry-After", "3600"));
    let mut host = Host::new(&upstream);
    let daemon = host.run();
    until("the failure", || host.last_result() == "failed");
    host.change("api.domain", toml_string("other.example.com"));
    daemon.signal("HUP");
    until("the version", || front_page_title(&daemon) == "one");
    assert_eq!(upstream.calls(UpstreamCall::Start)[1].json()["domain"], "other.example.com");
}

#[test]
fn run_respects_a_long_retry_after_even_after_a_restart() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Start).times(1).respond_with(error_reply(429).header("Retry-After", "3600"));
    let host = Host::new(&upstream).set("sync.interval", toml_string("100ms"));
    let daemon = host.run();
    until("the failure", || host.last_result() == "failed");
    until("the next check is an hour away", || time_until_next_check(&host) > Duration::from_mins(59));
    drop(daemon);
    let daemon = host.run();
    until("the next check is an hour away after a restart", || time_until_next_check(&host) > Duration::from_mins(58));
    assert_eq!(upstream.count(UpstreamCall::Start), 1);
    drop(daemon);
    assert_eq!(host.sync(), "activated", "the command does not wait for the daemon's retry time");
}

#[test]
fn run_polls_again_after_a_short_retry_after() {
    let upstream = upstream();
    upstream.on(UpstreamCall::Poll).times(1).respond_with(error_reply(429).header("Retry-After", "2"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the version", || front_page_title(&daemon) == "one");
    let polls = upstream.calls(UpstreamCall::Poll);
    assert!(polls[1].received_at - polls[0].received_at > Duration::from_millis(1950));
}

// Reloads and missing files.

#[test]
fn a_reload_applies_a_valid_configuration_and_ignores_an_invalid_one() {
    let upstream = upstream();
    let mut host = Host::new(&upstream);
    let valid_config = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    host.put("good.toml", &valid_config);
    let status = || {
        let mut command = support::docwharf();
        command.args(["status", "--json", "--config"]).arg(host.path("good.toml"));
        expect_plain_exit(0, run_with_timeout(&mut command)).json()
    };
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    assert_eq!(status()["configError"], Value::Null);
    host.put("docwharf.toml", valid_config.replace("interval = \"1h\"", "interval = \"soon\""));
    daemon.signal("HUP");
    until("the configuration error", || status()["configError"].to_string().contains("interval"));
    upstream.publish(bundle("two"));
    daemon.signal("HUP");
    until("the second version, as the old configuration is in force", || front_page_title(&daemon) == "two");
    host.put("docwharf.toml", "not = [toml");
    daemon.signal("HUP");
    until("the next configuration error", || !status()["configError"].to_string().contains("interval"));
    assert_ne!(status()["configError"], Value::Null);
    host.change("api.domain", toml_string("other.example.com"));
    daemon.signal("HUP");
    until("the new domain", || {
        upstream.calls(UpstreamCall::Start).last().is_some_and(|start| start.json()["domain"] == "other.example.com")
    });
    until("no configuration error", || host.status()["configError"] == Value::Null);
}

/// A folder as Kubernetes mounts a secret: the files are links into `..data`, which is a link that is swapped.
fn mount_secret(folder: &Path, generation: &str, key: &str) {
    let target = folder.join(format!("..{generation}"));
    std::fs::create_dir_all(&target).unwrap();
    std::fs::write(target.join("api-key"), format!("{key}\n")).unwrap();
    symlink(format!("..{generation}"), folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    let _ = symlink("..data/api-key", folder.join("api-key"));
}

#[test]
fn run_reads_a_changed_key_file_again_even_if_a_mounted_secret_is_swapped() {
    let swaps: [fn(&Host, &str, &str); 3] = [
        |host, generation, key| mount_secret(&host.path("secret"), generation, key),
        |host, _, key| {
            std::fs::create_dir_all(host.path("secret")).unwrap();
            std::fs::write(host.path("secret/api-key"), key).unwrap();
        },
        |host, _, key| {
            std::fs::create_dir_all(host.path("secret")).unwrap();
            std::fs::write(host.path("secret/new"), key).unwrap();
            std::fs::rename(host.path("secret/new"), host.path("secret/api-key")).unwrap();
        },
    ];
    run_concurrently(&swaps, |replace_key| {
        let upstream = upstream();
        let host = Host::new(&upstream)
            .set("api.keyFile", toml_string("secret/api-key"))
            .set("sync.interval", toml_string("200ms"));
        replace_key(&host, "2026_08_01", KEY);
        let daemon = host.run();
        until("the first version", || front_page_title(&daemon) == "one");
        // The key is replaced while the daemon runs. Its length is the same, so the file size does not show the change.
        let new_key = KEY.replace("dwk_5", "dwk_6");
        upstream.state().key.clone_from(&new_key);
        replace_key(&host, "2026_08_02", &new_key);
        upstream.publish(bundle("two"));
        until("the second version", || front_page_title(&daemon) == "two");
        let last = upstream.calls(UpstreamCall::Start).pop().unwrap();
        assert_eq!(last.header("authorization"), Some(&*format!("Bearer {new_key}")));
    });
}

#[test]
fn run_uses_a_corrected_key_without_a_signal() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("api.keyFile", toml_string("secret/api-key"));
    std::fs::create_dir(host.path("secret")).unwrap();
    mount_secret(&host.path("secret"), "1", "dwk_wrong");
    let daemon = host.run();
    until("the refusal", || host.last_result() == "failed");
    mount_secret(&host.path("secret"), "2", KEY);
    until("the version", || front_page_title(&daemon) == "one");
}

#[test]
fn run_serves_its_version_and_retries_while_the_key_or_ca_file_is_missing() {
    run_concurrently(&["api.keyFile", "api.caFile"], |key| {
        let upstream = upstream();
        let mut host = Host::new(&upstream).set("sync.interval", toml_string("200ms"));
        host.ok(&["sync"]);
        host.change(key, toml_string("later"));
        upstream.publish(bundle("two"));
        let daemon = host.run();
        assert_eq!(front_page_title(&daemon), "one");
        until("the failure", || host.last_error().contains("later"));
        assert_eq!(front_page_title(&daemon), "one");
        if *key == "api.keyFile" {
            host.put("later", KEY);
            until("the second version", || front_page_title(&daemon) == "two");
        }
    });
}

// The inbox.

/// The file names in a folder of the inbox.
fn inbox_files(host: &Host, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(host.path("inbox").join(name)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn the_inbox_imports_complete_bundles_and_rejects_others_with_a_reason_file() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.inbox", toml_string("inbox"));
    std::fs::create_dir(host.path("inbox")).unwrap();
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    std::fs::write(host.path("inbox/evil.zip"), "<html>no bundle</html>").unwrap();
    // A slow copy: the file changes often, and is no archive before its last byte.
    let bytes = bundle("dropped");
    for end in 1..=4 {
        std::fs::write(host.path("inbox/good.zip"), &bytes[..bytes.len() * end / 4]).unwrap();
        std::thread::sleep(Duration::from_millis(600));
    }
    until("the dropped version", || front_page_title(&daemon) == "dropped");
    until("the files are moved", || {
        inbox_files(&host, "accepted") == ["good.zip"] && inbox_files(&host, "rejected").len() == 2
    });
    assert!(host.path("inbox/rejected/evil.zip").exists());
    let reason = std::fs::read_to_string(host.path("inbox/rejected/evil.zip.reason.txt")).unwrap();
    assert!(reason.contains("HTML"), "{reason}");
    assert!(!host.path("inbox/good.zip").exists() && !host.path("inbox/evil.zip").exists());
    assert!(host.status()["daemon"]["inbox"]["fileError"].is_null(), "the last bundle was imported");
    std::fs::write(host.path("inbox/bad.zip"), "<html>no bundle</html>").unwrap();
    until("the file is refused", || inbox_files(&host, "rejected").len() == 4);
    until("status reports it", || host.status()["daemon"]["inbox"]["fileError"].is_string());
    let status = host.ok(&["status"]).stdout;
    assert!(status.contains("bad.zip") && status.contains("; it was moved to rejected/"), "{status}");
    // The status still has the rejected files, and those that wait, after another one was imported.
    std::fs::write(host.path("inbox/cut.zip"), &bytes[..bytes.len() / 2]).unwrap();
    let inbox = || host.status()["daemon"]["inbox"].clone();
    until("it waits", || inbox()["waiting"] == 1);
    std::fs::write(host.path("inbox/next.zip"), bundle("next")).unwrap();
    until("the next version", || front_page_title(&daemon) == "next");
    until("the file is moved", || inbox_files(&host, "accepted").len() == 2);
    let state = inbox();
    assert_eq!((&state["rejected"], &state["waiting"], &state["fileError"]), (&2.into(), &1.into(), &Value::Null));
    assert!(state["lastRejected"].as_str().unwrap().contains("bad.zip"), "{state}");
    let first = state["firstWaiting"].as_str().unwrap();
    assert!(first.contains("cut.zip") && first.contains("checked again in a minute"), "{state}");
    let status = host.ok(&["status"]).stdout;
    assert!(
        status.contains("; 2 rejected since the start, the last: ") && status.contains("; 1 file waits"),
        "{status}"
    );
    std::fs::remove_file(host.path("inbox/cut.zip")).unwrap();
    until("nothing waits", || inbox()["waiting"] == 0);
}

#[test]
fn run_moves_or_closes_its_inbox_on_reload_without_a_restart() {
    let mut host = Host::bare().set("sync.inbox", toml_string("first"));
    for name in ["first", "second"] {
        std::fs::create_dir(host.path(name)).unwrap();
    }
    let daemon = host.run();
    std::fs::write(host.path("first/a.zip"), bundle("one")).unwrap();
    until("the version from the first inbox", || front_page_title(&daemon) == "one");
    host.change("sync.inbox", toml_string("second"));
    daemon.signal("HUP");
    std::fs::write(host.path("second/b.zip"), bundle("two")).unwrap();
    until("the version from the second inbox", || front_page_title(&daemon) == "two");
    // The first folder is no inbox any more. The second import shows that there was time to read it.
    std::fs::write(host.path("first/c.zip"), bundle("three")).unwrap();
    std::fs::write(host.path("second/d.zip"), bundle("four")).unwrap();
    until("another version from the second inbox", || front_page_title(&daemon) == "four");
    assert!(host.path("first/c.zip").exists());
    host.remove("sync.inbox");
    host.change("sync.keep", "5");
    daemon.signal("HUP");
    until("the inbox is closed", || host.status()["daemon"]["inbox"].is_null());
}

#[test]
fn run_imports_an_existing_inbox_file_but_does_not_activate_it_under_a_hold() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.inbox", toml_string("inbox"));
    host.ok(&["sync"]);
    host.ok(&["hold"]);
    std::fs::create_dir(host.path("inbox")).unwrap();
    std::fs::write(host.path("inbox/waiting.zip"), bundle("waiting")).unwrap();
    let daemon = host.run();
    until("the file is imported", || inbox_files(&host, "accepted") == ["waiting.zip"]);
    assert_eq!(front_page_title(&daemon), "one");
    drop(daemon);
    host.ok(&["release"]);
    assert_eq!(front_page_title(&host.run()), "waiting");
}

// An idle daemon.

#[test]
fn an_idle_daemon_opens_no_upstream_connection_and_serves_requests() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    let connections = upstream.connections();
    assert_for_a_while("no new connection", || upstream.connections() == connections);
    assert_eq!(front_page_title(&daemon), "one");
}

// The newest version: sources that return to an earlier bundle, and imports beside a source.

/// A host with one kind of source.
struct SourceHost {
    upstream: Upstream,
    host: Host,
    has_file: bool,
}

impl SourceHost {
    fn all_kinds() -> Vec<SourceHost> {
        ["link", "file", "API"].into_iter().map(SourceHost::new).collect()
    }

    fn new(kind: &str) -> SourceHost {
        let upstream = upstream();
        let host = match kind {
            "API" => Host::new(&upstream),
            "link" => Host::linked(&upstream.link()),
            _ => Host::linked("bundle.zip"),
        };
        SourceHost { upstream, host, has_file: kind == "file" }
    }

    fn publish(&self, bundle: Vec<u8>) {
        if self.has_file {
            self.host.put("bundle.zip", bundle);
        } else {
            self.upstream.publish(bundle);
        }
    }

    /// Publishes a bundle and runs `sync`. Returns the active version.
    #[track_caller]
    fn publish_and_sync(&self, code: i32, bundle: Vec<u8>) -> Option<String> {
        self.publish(bundle);
        self.host.expect_exit(code, &["sync"]);
        self.host.active()
    }

    #[track_caller]
    fn import(&self, bundle: Vec<u8>) -> Option<String> {
        self.host.put("import.zip", bundle);
        self.host.ok(&["import", self.host.path("import.zip").to_str().expect("UTF-8")]);
        assert!(self.host.status()["hold"].is_null(), "an import holds nothing");
        self.host.active()
    }

    /// Changes the record's file and removes its checksum.
    fn change_record(&self, change: impl FnOnce(&mut Value)) {
        let path = self.host.path("store/state.json");
        let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        record.as_object_mut().unwrap().remove("sum");
        change(&mut record);
        std::fs::write(&path, record.to_string()).unwrap();
    }
}

/// Waits for the next second, because receipts have the arrival time in whole seconds.
fn wait_for_next_second() {
    let second = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let now = second();
    until("the next second", || second() > now);
}

/// A site of one page.
fn bundle_of_one_page() -> Vec<u8> {
    support::zip::zip(&[support::zip::deflated("index.html", "<title>one page</title>")])
}

// Regression: a version that the source had withdrawn by going back to an earlier bundle became active by `release`.
#[test]
fn release_does_not_activate_a_version_withdrawn_by_the_source() {
    run_concurrently(&SourceHost::all_kinds(), |source| {
        let one = source.publish_and_sync(0, bundle("one"));
        source.host.ok(&["hold"]);
        assert_eq!(source.publish_and_sync(7, bundle("two")), one);
        assert_eq!(source.publish_and_sync(0, bundle("one")), one);
        source.host.ok(&["release"]);
        assert_eq!(source.host.active(), one);
        assert_eq!(source.host.sync(), "already current");
        assert_eq!(source.host.status()["newest"].as_str(), one.as_deref());
    });
}

// Regression: a version that the source had withdrawn by going back to an earlier bundle became active after the record
// was lost.
#[test]
fn loss_of_state_json_does_not_activate_a_version_withdrawn_by_the_source() {
    run_concurrently(&SourceHost::all_kinds(), |source| {
        let one = source.publish_and_sync(0, bundle("one"));
        source.host.ok(&["hold"]);
        wait_for_next_second();
        assert_eq!(source.publish_and_sync(7, bundle("two")), one);
        wait_for_next_second();
        assert_eq!(source.publish_and_sync(0, bundle("one")), one);
        std::fs::write(source.host.path("store/state.json"), "{").unwrap();
        source.host.ok(&["release"]);
        assert_eq!(source.host.active(), one);
    });
}

// Regression: a version that the source had withdrawn by going back to an earlier bundle became active by a relaxed
// gate or `activate.mode = "auto"`.
#[test]
fn a_relaxed_gate_or_auto_mode_activates_no_version_withdrawn_by_the_source() {
    for (key, strict, relaxed) in [("gate.minPages", "2", "1"), ("activate.mode", "\"manual\"", "\"auto\"")] {
        for mut source in SourceHost::all_kinds() {
            let one = source.publish_and_sync(0, bundle("one"));
            source.host.change(key, strict);
            source.publish(bundle_of_one_page());
            run_with_timeout(&mut source.host.command(&["sync"]));
            assert_eq!(source.host.active(), one);
            assert_eq!(source.publish_and_sync(0, bundle("one")), one);
            source.host.change(key, relaxed);
            // No source is checked any more, but pending decisions are made all the same.
            source.host.change("staticExport.enabled", "false");
            source.host.ok(&["sync"]);
            source.host.ok(&["release"]);
            assert_eq!(source.host.active(), one, "{key}");
        }
    }
}

// Regression: a source with probes went back to the bundle before the one that was kept back, which stayed the newest
// version; `release`, a relaxed gate or `activate.mode = "auto"` activated it.
#[test]
fn run_with_probes_never_activates_a_version_withdrawn_by_the_source() {
    let hold = ("gate.minPages", "1", "1");
    let gate = ("gate.minPages", "2", "1");
    let mode = ("activate.mode", "\"manual\"", "\"auto\"");
    run_concurrently(&[hold, gate, mode], |&(key, strict, relaxed)| {
        let (upstream, is_hold) = (upstream(), strict == relaxed);
        let mut host = Host::new(&upstream)
            .set("sync.probe", json!([upstream.probe_url()]).to_string())
            .set("sync.interval", toml_string("100ms"));
        assert_eq!(host.sync(), "activated");
        let one = host.active();
        host.change(key, strict);
        let daemon = host.run_logged();
        let newest = |host: &Host| host.status()["newest"].as_str().map(str::to_owned);
        let publish = |bundle: Vec<u8>, probe: &[u8]| {
            upstream.publish(bundle);
            upstream.state().probe = probe.to_vec();
        };
        if is_hold {
            host.ok(&["hold"]);
        }
        publish(bundle_of_one_page(), b"<urlset><url/></urlset>");
        if is_hold {
            // Under a hold, only a command starts an export.
            host.expect_exit(7, &["sync"]);
        }
        until("the second version is the newest one", || newest(&host) != one);
        let withdrawn = newest(&host);
        assert_eq!((host.active(), front_page_title(&daemon).as_str()), (one.clone(), "one"), "{key}");
        publish(bundle("one"), b"<urlset></urlset>");
        if is_hold {
            host.ok(&["sync"]);
        }
        until("the first version is the newest one again", || newest(&host) == one);
        if !is_hold {
            host.change(key, relaxed);
            until("the change is noticed", || host.log().contains("reading the configuration and its files again"));
        }
        host.ok(&["release"]);
        let probes = upstream.count(UpstreamCall::Probe);
        until("many checks", || upstream.count(UpstreamCall::Probe) > probes + 8);
        assert_eq!((host.active(), newest(&host)), (one.clone(), one.clone()), "{key}");
        assert_eq!(front_page_title(&daemon), "one", "{key}");
        let history = host.ok(&["history", "--json"]).json();
        let mut events = history["events"].as_array().unwrap().iter();
        let has_served =
            events.any(|event| event["what"] == "activated" && event["version"].as_str() == withdrawn.as_deref());
        assert!(!has_served, "{key}: {history}");
    });
}

// Regression: the next check undid an import beside a link, and after an import beside a file `sync` ended with exit
// code 7 for ever.
#[test]
fn an_imported_version_stays_active_until_the_source_changes() {
    run_concurrently(&SourceHost::all_kinds(), |source| {
        let one = source.publish_and_sync(0, bundle("one"));
        let imported = source.import(bundle("imported"));
        assert_ne!(imported, one);
        for _ in 0..2 {
            assert_eq!(source.host.sync(), "already current");
            assert_eq!(source.host.active(), imported);
        }
        let two = source.publish_and_sync(0, bundle("two"));
        assert!(two != imported && two != one, "a change of the source is newer");
        let imported = source.import(bundle("imported"));
        assert_ne!(imported, two);
        assert_eq!(source.publish_and_sync(0, bundle("two")), imported);
        assert_eq!(source.publish_and_sync(0, bundle("one")), one, "also a change back to an earlier bundle");
    });
    // An unchanged bundle is not downloaded again either.
    let source = SourceHost::new("link");
    source.publish_and_sync(0, bundle("one"));
    source.import(bundle("imported"));
    source.publish_and_sync(0, bundle("one"));
    let statuses: Vec<u16> =
        source.upstream.calls(UpstreamCall::Download).iter().map(|request| request.status).collect();
    assert_eq!(statuses, [200, 304], "{}", source.upstream.request_history());
}

#[test]
fn sync_with_refresh_activates_the_version_of_the_source_after_an_import() {
    run_concurrently(&SourceHost::all_kinds(), |source| {
        let one = source.publish_and_sync(0, bundle("one"));
        source.import(bundle("imported"));
        source.host.ok(&["sync", "--refresh"]);
        assert_eq!(source.host.active(), one);
    });
}

#[test]
fn an_imported_version_stays_active_after_the_loss_of_state_json() {
    run_concurrently(&SourceHost::all_kinds(), |source| {
        source.publish_and_sync(0, bundle("one"));
        wait_for_next_second();
        let imported = source.import(bundle("imported"));
        std::fs::write(source.host.path("store/state.json"), "{").unwrap();
        source.host.ok(&["sync"]);
        assert_eq!(source.host.active(), imported);
    });
}

// Regression: the next check undid what the inbox had imported beside a link.
#[test]
fn a_version_from_the_inbox_stays_active_until_the_source_changes() {
    let source = SourceHost::new("link");
    let host = source.host.set("sync.inbox", toml_string("inbox")).set("sync.interval", toml_string("100ms"));
    std::fs::create_dir(host.path("inbox")).unwrap();
    let daemon = host.run();
    until("the first version", || front_page_title(&daemon) == "one");
    // The inbox ignores this name until the file is complete.
    std::fs::write(host.path("inbox/dropped.part"), bundle("dropped")).unwrap();
    std::fs::rename(host.path("inbox/dropped.part"), host.path("inbox/dropped.zip")).unwrap();
    until("the dropped version", || front_page_title(&daemon) == "dropped");
    let downloads = source.upstream.count(UpstreamCall::Download);
    until("more checks", || source.upstream.count(UpstreamCall::Download) > downloads + 3);
    assert_eq!(front_page_title(&daemon), "dropped");
    source.upstream.publish(bundle("two"));
    until("the new version of the source", || front_page_title(&daemon) == "two");
}

// Regression: the `state.json` of a later docwharf was read as one of this version, and lost its fields at the next
// write.
#[test]
fn a_state_json_of_a_later_docwharf_is_refused_unchanged_and_an_earlier_one_is_read() {
    let source = SourceHost::new("link");
    source.publish_and_sync(0, bundle("one"));
    let imported = source.import(bundle("imported"));
    source.change_record(|record| {
        record["schemaVersion"] = 1.into();
        record.as_object_mut().unwrap().remove("offered");
    });
    source.host.ok(&["sync"]);
    assert_eq!(source.host.active(), imported, "the source's version is known from the last check");
    source.change_record(|record| {
        record["schemaVersion"] = 99.into();
        record["later"] = "something".into();
    });
    let before = std::fs::read(source.host.path("store/state.json")).unwrap();
    for command in ["sync", "hold", "run"] {
        let ended = source.host.expect_exit(8, &[command]);
        assert!(ended.stderr.contains("later docwharf (schemaVersion 99"), "{}", ended.stderr);
    }
    assert_eq!(std::fs::read(source.host.path("store/state.json")).unwrap(), before);
}
