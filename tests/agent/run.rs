//! The daemon beside an upstream: when it asks, what it goes on with, what it never does, and how it stays up meanwhile.

use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use support::host::{Host, at_once, bundle, finish, front, judged, large_bundle, text};
use support::upstream::{Call, KEY, Reply, Upstream, answer, close, honest, raw, silence};
use support::{Daemon, http, until};

const FIRST_JOB: &str = "se_0000000000000001";

fn upstream() -> Upstream {
    Upstream::new(bundle("one"))
}

/// Sees for a while that something stays as it is. What must never happen can only be waited for in vain.
#[track_caller]
fn for_a_while(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_millis(1200);
    while Instant::now() < end {
        assert!(holds(), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// When `run` looks again, as the status tells; nothing while a look is under way.
fn next_look(host: &Host) -> Option<Timestamp> {
    host.status()["nextLook"].as_str().map(|time| time.parse().expect("a moment"))
}

/// How long it is until then. Where `run` has to wait for longer than a test can, this tells it from the pause that it
/// makes anyway.
fn until_next_look(host: &Host) -> Duration {
    let left = next_look(host).map(|next| next.duration_since(Timestamp::now()));
    left.and_then(|left| Duration::try_from(left).ok()).unwrap_or_default()
}

#[test]
fn what_goes_wrong_with_an_attempt_under_way_is_in_the_status() {
    let upstream = upstream();
    upstream.on(Call::Start).gives(answer(503));
    let host = Host::new(&upstream);
    let _daemon = host.run();
    until("the first failure is told", || host.status()["daemon"]["doingError"].is_string());
    let status = host.status();
    assert!(status["daemon"]["doing"].is_string(), "{status}");
    assert!(status["lastAttempt"].is_null(), "the attempt goes on: {status}");
    assert!(host.ok(&["status"]).stdout.contains("503"), "{status}");
    upstream.heal();
    until("it goes on", || host.active().is_some());
    assert_eq!(host.status()["daemon"]["doingError"], Value::Null);
}

// C9: the site stays up.

#[test]
fn the_stored_version_is_served_before_a_dead_api_is_noticed() {
    let dead: [fn(&Upstream); 3] = [
        |upstream| upstream.on(Call::Start).gives(silence()),
        |upstream| upstream.on(Call::Start).gives(close()),
        |upstream| upstream.on(Call::Start).gives(answer(401)),
    ];
    at_once(&dead, |kill| {
        let upstream = upstream();
        let host = Host::new(&upstream).set("sync.interval", text("100ms"));
        host.ok(&["sync"]);
        kill(&upstream);
        let begun = Instant::now();
        let daemon = host.run();
        assert_eq!(front(&daemon), "one");
        assert!(begun.elapsed() < Duration::from_secs(3), "the promise is 200 ms on a machine with nothing else to do");
        until("the call that goes wrong", || upstream.count(Call::Start) > 1);
        assert_eq!(front(&daemon), "one");
    });
}

#[test]
fn an_empty_store_is_filled_by_the_first_job() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("a poll", || upstream.count(Call::Poll) > 0);
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    upstream.statuses(&[json!("completed")]);
    until("the first version", || front(&daemon) == "one");
}

#[test]
fn new_versions_are_switched_to_without_a_failed_request() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    host.ok(&["sync"]);
    let daemon = host.run();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let switcher = scope.spawn(|| {
            let switched = std::panic::catch_unwind(AssertUnwindSafe(|| {
                for n in 2..6 {
                    upstream.publish(bundle(&format!("v{n}")));
                    daemon.signal("HUP");
                    until("the next version", || front(&daemon) == format!("v{n}"));
                }
            }));
            done.store(true, Ordering::Relaxed);
            switched.unwrap();
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
fn run_recovers_by_itself_and_goes_on_with_its_job() {
    let cases = [(Call::Start, 401), (Call::Poll, 401), (Call::Poll, 403), (Call::Bundle, 403), (Call::Bundle, 400)];
    at_once(&cases, |&(call, status)| {
        let upstream = upstream();
        upstream.on(call).times(1).gives(answer(status));
        let host = Host::new(&upstream);
        let daemon = host.run();
        until("the failure", || host.last() == "failed");
        assert_eq!(host.status()["lastAttempt"]["failures"], 1);
        assert_eq!(host.job().as_deref(), (call != Call::Start).then_some(FIRST_JOB), "{call:?}");
        until("the version", || front(&daemon) == "one");
        let starts = if call == Call::Start { 2 } else { 1 };
        assert_eq!(upstream.count(Call::Start), starts, "{call:?}: {}", upstream.story());
        assert_eq!(host.status()["job"], Value::Null);
        let times: Vec<Instant> = upstream.calls(call).iter().map(|request| request.at).collect();
        let gap = times[1] - times[0];
        assert!(gap > Duration::from_millis(4400), "{call:?}: tried again after {gap:?}, which is not 5 s");
    });
}

#[test]
fn run_waits_for_a_refusing_port_to_open() {
    let upstream = Upstream::closed(bundle("one"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    assert_eq!(http::get(&daemon.address, "/").status, 503);
    upstream.open();
    until("the version", || front(&daemon) == "one");
    assert_eq!(upstream.count(Call::Start), 1);
}

#[test]
fn a_job_that_vanished_or_failed_or_took_too_long_gives_way_to_another() {
    let ends: [fn(&Upstream); 3] = [
        |upstream| upstream.on(Call::Poll).times(1).gives(answer(404)),
        |upstream| upstream.on(Call::Poll).times(1).gives(raw("application/json", "{\"status\": \"failed\"}")),
        |upstream| upstream.statuses(&[json!("running")]),
    ];
    at_once(&ends, |spoil| {
        let upstream = upstream();
        spoil(&upstream);
        let host = Host::new(&upstream).set("sync.jobTimeout", text("1s"));
        let daemon = host.run();
        until("the failure", || host.last() == "failed");
        assert_eq!(host.job(), None);
        upstream.statuses(&[json!("completed")]);
        until("the version", || front(&daemon) == "one");
        assert_eq!(upstream.count(Call::Start), 2, "{}", upstream.story());
        assert!(upstream.calls(Call::Bundle)[0].job().unwrap().ends_with('2'));
    });
}

#[test]
fn sigterm_ends_run_with_0_whatever_it_is_waiting_for() {
    let waits: [(Call, fn() -> Reply); 5] = [
        (Call::Start, silence),
        (Call::Start, || answer(503).header("Retry-After", "50")),
        (Call::Poll, || raw("application/json", "{\"status\": \"running\"}")),
        (Call::Bundle, silence),
        (Call::Download, || honest().stall(50)),
    ];
    at_once(&waits, |&(call, make)| {
        let upstream = upstream();
        upstream.on(call).gives(make());
        let host = Host::new(&upstream).set("network.callTimeout", text("30s"));
        let mut daemon = host.run();
        until("the call", || upstream.count(call) > 0);
        daemon.signal("TERM");
        assert_eq!(daemon.wait(Duration::from_secs(10)), Some(0), "{call:?}");
    });
}

#[test]
fn an_interrupted_sync_is_not_a_success_and_hinders_nothing() {
    let signals = [("TERM", 15), ("INT", 2), ("KILL", 9)];
    let mut cases = Vec::new();
    for signal in signals {
        for call in [Call::Start, Call::Poll, Call::Bundle, Call::Download] {
            cases.push((signal, call));
        }
    }
    at_once(&cases, |&((name, number), call)| {
        let upstream = upstream();
        upstream.on(call).times(1).gives(if call == Call::Download { honest().stall(50) } else { silence() });
        let host = Host::new(&upstream).set("network.callTimeout", text("30s"));
        let mut child = host.command(&["sync"]).spawn().unwrap();
        until("the call", || upstream.count(call) > 0);
        let status = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
        assert!(status.unwrap().success());
        let ended = child.wait().unwrap();
        assert!(
            ended.code() == Some(128 + number) || ended.signal() == Some(number),
            "{name} during {call:?}: {ended:?}"
        );
        assert_eq!(host.sync(), "activated", "{name} during {call:?}");
        host.assert_tidy();
    });
}

// C5, C11: one job, one writer.

#[test]
fn a_running_job_is_adopted_after_a_kill() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("polls", || upstream.count(Call::Poll) > 1);
    assert_eq!(host.job().as_deref(), Some(FIRST_JOB));
    daemon.signal("KILL");
    drop(daemon);
    let before = upstream.log().len();
    let daemon = host.run();
    until("polls of the same job", || upstream.log().len() > before + 1);
    upstream.statuses(&[json!("completed")]);
    until("the version", || front(&daemon) == "one");
    assert_eq!(upstream.count(Call::Start), 1, "{}", upstream.story());
    assert_eq!(host.job(), None);
}

#[test]
fn kills_at_any_moment_of_a_sync_leave_a_store_that_the_next_start_goes_on_with() {
    let upstream = Upstream::new(large_bundle("n0", 1 << 20));
    let host = Host::new(&upstream).set("sync.interval", text("100ms"));
    for n in 0..40 {
        let bytes = large_bundle(&format!("n{n}"), 1 << 20);
        upstream.publish(bytes);
        let daemon = host.run();
        // The moment of the kill is what varies, from the first call to the activation.
        std::thread::sleep(Duration::from_millis(n * 5));
        daemon.signal("KILL");
        drop(daemon);
        host.status();
    }
    upstream.publish(bundle("last"));
    let mut daemon = host.run();
    until("the last version", || front(&daemon) == "last");
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(10)), Some(0));
    let left = std::fs::read_dir(host.path("store/staging")).unwrap().count();
    assert_eq!(left, 0, "debris in staging");
}

#[test]
fn what_run_does_beside_serving_steps_back_and_keeps_to_its_processors() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream).set("sync.threads", "1");
    let daemon = host.run();
    until("a job in progress", || upstream.count(Call::Poll) > 1);
    // Threads that prove and compress are started from this one, and inherit both.
    let tasks = format!("/proc/{}/task", daemon.pid());
    // Whoever runs the tests may have stepped back already.
    let ours = rustix::process::getpriority_process(None).unwrap();
    let mut working = 0;
    for task in std::fs::read_dir(tasks).unwrap().map(|task| task.unwrap().path()) {
        let Ok(stat) = std::fs::read_to_string(task.join("stat")) else { continue };
        let status = std::fs::read_to_string(task.join("status")).unwrap();
        let (name, rest) = stat.split_once('(').unwrap().1.rsplit_once(") ").unwrap();
        // Fields are counted from the third, which is the state; nice is the nineteenth.
        let nice = rest.split(' ').nth(16).unwrap();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
        if name == "docwharf-sync" {
            working += 1;
            assert_eq!(nice, ours.max(10).to_string());
            assert!(allowed.parse::<u32>().is_ok(), "one processor, not {allowed}");
        } else {
            assert_eq!(nice, ours.to_string(), "{name}");
        }
    }
    assert_eq!(working, 1);
}

#[test]
fn a_download_goes_on_after_a_kill() {
    let bytes = large_bundle("large", 6 << 20);
    let upstream = Upstream::new(bytes);
    upstream.on(Call::Download).times(1).gives(honest().stall(4 << 20));
    let host = Host::new(&upstream).set("network.idleTimeout", text("30s"));
    let daemon = host.run();
    let on_disk = || -> u64 {
        let entries = std::fs::read_dir(host.path("store/downloads")).into_iter().flatten().flatten();
        entries.map(|entry| entry.metadata().map_or(0, |about| about.len())).sum()
    };
    until("a part on the disk", || on_disk() > 1 << 20);
    daemon.signal("KILL");
    drop(daemon);
    let daemon = host.run();
    until("the version", || front(&daemon) == "large");
    assert_eq!(upstream.count(Call::Start), 1, "{}", upstream.story());
    let downloads = upstream.calls(Call::Download);
    assert_eq!(downloads.len(), 2, "{}", upstream.story());
    assert!(downloads[1].header("range").is_some(), "{}", downloads[1].head());
    assert_eq!(downloads[1].header("if-range"), Some(&*upstream.plan().validator()));
    assert_eq!(downloads[1].status, 206);
    host.assert_tidy();
}

#[test]
fn there_is_never_a_second_job_beside_the_first() {
    let upstream = upstream();
    upstream.statuses(&["a", "b", "c", "d", "e", "f", "completed"].map(Value::from));
    let host = Host::new(&upstream).set("sync.interval", text("100ms"));
    let daemon = host.run();
    for jobs in 1..=3 {
        until("a job in progress", || upstream.count(Call::Poll) > 4 * jobs);
        daemon.signal("HUP");
        until("its bundle", || upstream.count(Call::Bundle) >= jobs);
    }
    // A signal in the middle may give a job up, but only one that has ended.
    let mut ended = true;
    for request in upstream.log() {
        match request.call {
            Call::Start => assert!(std::mem::replace(&mut ended, false), "{}", upstream.story()),
            Call::Poll => ended = request.job().is_some_and(|job| upstream.has_ended(&job)),
            _ => {}
        }
    }
}

#[test]
fn signals_faster_than_jobs_do_not_keep_the_new_version_away() {
    let upstream = upstream();
    upstream.statuses(&["a", "b", "c", "d", "e", "completed"].map(Value::from));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || {
        daemon.signal("HUP");
        front(&daemon) == "one"
    });
}

#[test]
fn a_second_sync_waits_for_the_first() {
    let upstream = upstream();
    upstream.statuses(&[json!("running")]);
    let host = Host::new(&upstream);
    std::thread::scope(|scope| {
        let first = scope.spawn(|| host.sync());
        until("the first job", || upstream.count(Call::Poll) > 0);
        let second = scope.spawn(|| host.sync());
        for_a_while("one job at a time", || upstream.count(Call::Start) == 1);
        upstream.statuses(&[json!("completed")]);
        assert_eq!((first.join().unwrap(), second.join().unwrap()), ("activated".into(), "already current".into()));
    });
    assert_eq!(upstream.count(Call::Start), 2);
}

#[test]
fn a_full_disk_is_local_trouble_and_leaves_nothing_that_hinders_the_next_sync() {
    let upstream = Upstream::new(large_bundle("large", 3 << 20));
    let host = Host::new(&upstream);
    // A limit on the size of files, for want of a small disk: writing fails in the same way.
    let mut command = host.command(&["sync"]);
    let mut limited = Command::new("bash");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 1000; exec \"$@\"", "bash"]);
    limited.arg(command.get_program()).args(command.get_args());
    let ended = judged(8, finish(&mut limited));
    assert!(ended.stderr.contains("store"), "where: {}", ended.stderr);
    assert_eq!(finish(&mut command).code, Some(0));
    host.assert_tidy();
}

// When it looks.

#[test]
fn a_restart_starts_no_job_soon_after_the_last_but_a_signal_does() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    drop(daemon);
    let daemon = host.run();
    assert_eq!(front(&daemon), "one");
    // The look at the start is over, and the next one is due when the interval is.
    until("the next look is most of an hour away", || until_next_look(&host) > Duration::from_mins(50));
    assert_eq!(upstream.count(Call::Start), 1);
    upstream.publish(bundle("two"));
    daemon.signal("HUP");
    until("the second version", || front(&daemon) == "two");
    assert_eq!(upstream.count(Call::Start), 2);
}

#[test]
fn without_probes_each_interval_starts_a_job() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.interval", text("200ms"));
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.publish(bundle("two"));
    until("the second version", || front(&daemon) == "two");
    until("more jobs", || upstream.count(Call::Start) > 4);
    // An interval without the key means the same.
    let host = Host::new(&upstream).without("sync.probe").set("sync.interval", text("200ms"));
    let before = upstream.count(Call::Start);
    let _daemon = host.run();
    until("jobs", || upstream.count(Call::Start) > before + 2);
}

#[test]
fn a_schedule_takes_the_place_of_the_interval() {
    let upstream = upstream();
    let host = Host::new(&upstream).without("sync.interval").set("sync.schedule", text("0 0 1 1 *"));
    // The schedule is in local time, the status in UTC.
    let daemon = Daemon::start(host.command(&["run"]).env("TZ", "UTC"));
    until("the look at the start", || front(&daemon) == "one");
    // The status cuts off parts of a second.
    let is_new_year = |next: Timestamp| (next + SignedDuration::from_secs(1)).to_string().contains("-01-01T00:00:0");
    until("the next look is at New Year", || next_look(&host).is_some_and(is_new_year));
    assert_eq!(upstream.count(Call::Start), 1);
}

#[test]
fn a_job_is_started_only_when_a_probed_page_has_changed() {
    let upstream = upstream();
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe(), format!("{}/llms.txt", upstream.api())]).to_string())
        .set("sync.interval", text("100ms"));
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    let settled = upstream.count(Call::Probe);
    until("many looks", || upstream.count(Call::Probe) > settled + 8);
    assert!(upstream.count(Call::Start) <= 2, "nothing has changed: {}", upstream.story());
    let before = upstream.count(Call::Start);
    upstream.publish(bundle("two"));
    upstream.plan().probe = b"<urlset><url/></urlset>".to_vec();
    until("the second version", || front(&daemon) == "two");
    let settled = upstream.count(Call::Probe);
    until("many looks", || upstream.count(Call::Probe) > settled + 8);
    // Two, if the change came between the two probes of one look.
    assert!((1..=2).contains(&(upstream.count(Call::Start) - before)), "{}", upstream.story());
    let probes = upstream.calls(Call::Probe);
    for request in &probes {
        assert_eq!((request.method.as_str(), request.header("authorization")), ("GET", None), "{}", request.head());
        assert!(!request.head().contains(KEY));
    }
    assert!(probes.iter().any(|request| request.status == 304), "looks are conditional");
}

#[test]
fn a_change_whose_job_has_failed_is_still_a_change_at_the_next_look() {
    let upstream = upstream();
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe()]).to_string())
        .set("sync.interval", text("100ms"));
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.publish(bundle("two"));
    upstream.on(Call::Poll).times(1).gives(answer(200).json(&json!({"status": "failed", "error": "no disk"})));
    upstream.plan().probe = b"<urlset><url/></urlset>".to_vec();
    until("the failure", || host.last() == "failed");
    until("the second version, though nothing has changed since", || front(&daemon) == "two");
}

#[test]
fn a_job_that_was_asked_for_and_not_heard_of_keeps_the_next_start_from_asking_for_another() {
    let upstream = upstream();
    upstream.on(Call::Start).gives(silence());
    let host = Host::new(&upstream).set("network.callTimeout", text("20s"));
    let daemon = host.run();
    until("the request", || upstream.count(Call::Start) == 1);
    drop(daemon); // by SIGKILL
    upstream.heal();
    let _daemon = host.run();
    // The look at the start is put off by what is left of ten minutes.
    until("the next look is far away", || {
        next_look(&host).is_some_and(|next| next.duration_since(Timestamp::now()).as_secs() > 300)
    });
    assert_eq!(upstream.count(Call::Start), 1);
}

#[test]
fn a_job_that_may_have_started_though_no_call_was_answered_keeps_the_next_start_from_asking_for_another() {
    let upstream = upstream();
    upstream.on(Call::Start).gives(close());
    let host = Host::new(&upstream);
    host.ends(4, &["sync"]);
    let asked = upstream.count(Call::Start);
    upstream.heal();
    let _daemon = host.run();
    // The look at the start is put off by what is left of ten minutes. A wait after a failure would be shorter.
    until("the next look is far away", || {
        next_look(&host).is_some_and(|next| next.duration_since(Timestamp::now()).as_secs() > 300)
    });
    assert_eq!(upstream.count(Call::Start), asked, "{}", upstream.story());
}

#[test]
fn a_probe_without_validators_is_compared_by_its_content() {
    let upstream = upstream();
    let page = |word: &str| raw("text/plain", word);
    upstream.on(Call::Probe).times(6).gives(page("same"));
    upstream.on(Call::Probe).gives(page("other"));
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe()]).to_string())
        .set("sync.interval", text("100ms"));
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    until("the change", || upstream.count(Call::Start) == 2);
    assert!(upstream.count(Call::Probe) >= 7, "{}", upstream.story());
}

#[test]
fn status_tells_probes_that_cannot_be_read_from_probes_that_have_not_changed() {
    let upstream = upstream();
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe()]).to_string())
        .set("sync.interval", text("100ms"));
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    upstream.on(Call::Probe).gives(answer(500));
    let last = || host.ok(&["status", "--json"]).json()["lastAttempt"].clone();
    until("a look in vain", || last()["result"] == "probes unreadable");
    assert!(last()["error"].as_str().is_some_and(|why| why.contains("sync.probe")), "{}", last());
    // What cannot be seen is no success to an alert on the age of the last one.
    let good = host.status()["lastGood"].clone();
    let looks = upstream.count(Call::Probe);
    until("more looks in vain", || upstream.count(Call::Probe) > looks + 2);
    assert_eq!(host.status()["lastGood"], good);
}

#[test]
fn unreadable_probes_start_nothing_until_max_age_has_passed() {
    let faults: [fn() -> Reply; 5] =
        [|| answer(500), || answer(404), close, || honest().cut(3), || raw("application/xml", vec![b'x'; 9 << 20])];
    at_once(&faults, |make| {
        let upstream = upstream();
        let mut host = Host::new(&upstream)
            .set("sync.probe", json!([upstream.probe()]).to_string())
            .set("sync.interval", text("100ms"));
        let daemon = host.run();
        until("the first version", || front(&daemon) == "one");
        let settled = upstream.count(Call::Probe);
        until("a quiet look", || upstream.count(Call::Probe) > settled + 2);
        let before = upstream.count(Call::Start);
        upstream.on(Call::Probe).gives(make());
        let settled = upstream.count(Call::Probe);
        until("looks in vain", || upstream.count(Call::Probe) > settled + 3);
        assert_eq!(upstream.count(Call::Start), before, "{}", upstream.story());
        assert_eq!(front(&daemon), "one");
        drop(daemon);
        host.change("sync.maxAge", text("1s"));
        upstream.publish(bundle("two"));
        let daemon = host.run();
        until("the second version", || front(&daemon) == "two");
    });
}

#[test]
fn a_broken_probe_does_not_keep_the_first_version_away() {
    let upstream = upstream();
    upstream.on(Call::Probe).gives(answer(500));
    let host = Host::new(&upstream)
        .set("sync.probe", json!([upstream.probe()]).to_string())
        .set("sync.interval", text("200ms"));
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
}

#[test]
fn sync_asks_no_probe() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.probe", json!([upstream.probe()]).to_string());
    host.ok(&["sync"]);
    host.ok(&["sync"]);
    assert_eq!((upstream.count(Call::Probe), upstream.count(Call::Start)), (0, 2));
}

#[test]
fn a_link_is_looked_at_each_interval_conditionally() {
    let upstream = upstream();
    let host = Host::linked(&upstream.link()).set("sync.interval", text("100ms"));
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    until("looks", || upstream.calls(Call::Download).iter().filter(|request| request.status == 304).count() > 2);
    upstream.publish(bundle("two"));
    until("the second version", || front(&daemon) == "two");
    let whole = upstream.calls(Call::Download).iter().filter(|request| request.status == 200).count();
    assert_eq!(whole, 2, "{}", upstream.story());
}

// C10 and the operator's word.

#[test]
fn disabled_means_that_no_request_leaves() {
    let upstream = upstream();
    let mut host = Host::new(&upstream).set("sync.interval", text("100ms"));
    host.ok(&["sync"]);
    host.change("staticExport.enabled", "false");
    let before = upstream.connections();
    assert_eq!(host.sync(), "disabled");
    let daemon = host.run();
    daemon.signal("HUP");
    for_a_while("no request", || upstream.connections() == before);
    assert_eq!(front(&daemon), "one");
}

#[test]
fn a_satisfied_pin_asks_for_nothing_and_moving_it_back_brings_the_old_version_from_the_store() {
    let upstream = upstream();
    let mut host = Host::new(&upstream).set("staticExport.version", text("1")).set("sync.interval", text("100ms"));
    assert_eq!(host.sync(), "activated");
    let one = host.active();
    let asked = upstream.connections();
    upstream.publish(bundle("two"));
    assert_eq!(host.sync(), "already current");
    let daemon = host.run();
    daemon.signal("HUP");
    for_a_while("no request", || upstream.connections() == asked);
    // Another label is brought by a reload.
    host.change("staticExport.version", text("2"));
    daemon.signal("HUP");
    until("the second version", || front(&daemon) == "two");
    assert_eq!(upstream.count(Call::Start), 2, "{}", upstream.story());
    let asked = upstream.connections();
    host.change("staticExport.version", text("1"));
    daemon.signal("HUP");
    until("the first version", || front(&daemon) == "one");
    assert_eq!(host.active(), one);
    for_a_while("no request", || upstream.connections() == asked);
    // Only a person who says so fetches again, and moves the label.
    drop(daemon);
    upstream.publish(bundle("one, corrected"));
    host.ok(&["sync", "--refresh"]);
    assert_ne!(host.active(), one);
    // The same label from another source is another thing.
    host.change("api.domain", text("other.example.com"));
    let before = upstream.count(Call::Start);
    upstream.publish(bundle("of another domain"));
    assert_eq!(host.sync(), "activated");
    assert_eq!(upstream.count(Call::Start), before + 1);
}

#[test]
fn a_label_belongs_to_base_url_and_domain_or_to_a_link_without_its_query() {
    let upstream = upstream();
    let mut host = Host::new(&upstream).set("staticExport.version", text("L"));
    host.ok(&["sync"]);
    let source = |host: &Host| -> Value {
        let state = std::fs::read_to_string(host.path("store/state.json")).unwrap();
        serde_json::from_str::<Value>(&state).unwrap()["labels"]["L"]["source"].clone()
    };
    assert_eq!(source(&host), format!("{}#docs.example.com", upstream.base()));
    // A slash makes no other source.
    let asked = upstream.connections();
    host.change("api.baseUrl", text(&format!("{}/", upstream.base())));
    assert_eq!(host.sync(), "already current");
    assert_eq!(upstream.connections(), asked);

    let link = upstream.link();
    let mut host = Host::linked(&link).set("staticExport.version", text("L"));
    host.ok(&["sync"]);
    assert_eq!(source(&host), link.split('?').next().unwrap());
    let asked = upstream.connections();
    host.change("staticExport.bundleUrl", text(&upstream.link()));
    assert_eq!(host.sync(), "already current");
    assert_eq!(upstream.connections(), asked, "a fresh signature is no other bundle");
    // Another link is, and so is another digest.
    upstream.publish(bundle("two"));
    host.change("staticExport.bundleUrl", text(&upstream.link().replace("/byhand/", "/elsewhere/")));
    assert_eq!(host.sync(), "activated");
    upstream.publish(bundle("three"));
    host.change("staticExport.sha256", text(&docwharf::model::digest::Digest::of(&bundle("three")).hex()));
    assert_eq!(host.sync(), "activated");
}

#[test]
fn until_the_pinned_version_is_there_the_active_one_stays() {
    let upstream = upstream();
    let mut host = Host::new(&upstream);
    host.ok(&["sync"]);
    host.change("staticExport.version", text("next"));
    upstream.on(Call::Start).gives(answer(503).header("Retry-After", "3600"));
    let daemon = host.run();
    until("the failure", || host.last() == "failed");
    assert_eq!(front(&daemon), "one");
}

#[test]
fn while_held_run_starts_no_jobs_and_sync_seals_without_activating() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.interval", text("100ms"));
    host.ok(&["sync"]);
    upstream.publish(bundle("two"));
    host.ok(&["sync"]);
    host.ok(&["rollback"]);
    let daemon = host.run();
    daemon.signal("HUP");
    for_a_while("no job", || upstream.count(Call::Start) == 2);
    assert_eq!(front(&daemon), "one");
    drop(daemon);
    upstream.publish(bundle("three"));
    let ended = host.ends(7, &["sync"]);
    assert!(ended.stderr.contains("held"), "{}", ended.stderr);
    assert_eq!(upstream.count(Call::Start), 3);
    assert_eq!(host.ends(7, &["sync", "--json"]).json()["result"], "not activated");
    let before = upstream.count(Call::Start);
    assert_eq!(front(&host.run()), "one");
    host.ok(&["release"]);
    let daemon = host.run();
    assert_eq!(front(&daemon), "three", "the newest, at once");
    until("jobs again", || upstream.count(Call::Start) > before);
}

// C4 in run: patience.

#[test]
fn backoff_doubles_outlives_a_restart_and_yields_to_a_person() {
    let upstream = upstream();
    upstream.on(Call::Start).times(4).gives(answer(401));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the second attempt", || upstream.count(Call::Start) == 2);
    until("its record", || host.status()["lastAttempt"]["failures"] == 2);
    daemon.signal("KILL");
    drop(daemon);
    let daemon = host.run();
    until("the third attempt", || upstream.count(Call::Start) == 3);
    let times: Vec<Instant> = upstream.calls(Call::Start).iter().map(|request| request.at).collect();
    assert!(times[1] - times[0] > Duration::from_millis(4400), "{:?}", times[1] - times[0]);
    assert!(times[2] - times[1] > Duration::from_millis(8800), "{:?}", times[2] - times[1]);
    until("its record", || host.status()["lastAttempt"]["failures"] == 3);
    drop(daemon);
    // The next would come in twenty seconds.
    let begun = Instant::now();
    host.ends(3, &["sync"]);
    assert_eq!(host.sync(), "activated");
    assert!(begun.elapsed() < Duration::from_secs(4));
    assert_eq!(host.status()["lastAttempt"]["failures"], 0);
}

#[test]
fn a_change_of_configuration_ends_the_waiting() {
    let upstream = upstream();
    upstream.on(Call::Start).times(1).gives(answer(429).header("Retry-After", "3600"));
    let mut host = Host::new(&upstream);
    let daemon = host.run();
    until("the failure", || host.last() == "failed");
    host.change("api.domain", text("other.example.com"));
    daemon.signal("HUP");
    until("the version", || front(&daemon) == "one");
    assert_eq!(upstream.calls(Call::Start)[1].json()["domain"], "other.example.com");
}

#[test]
fn a_long_retry_after_is_waited_out_also_over_a_restart() {
    let upstream = upstream();
    upstream.on(Call::Start).times(1).gives(answer(429).header("Retry-After", "3600"));
    let host = Host::new(&upstream).set("sync.interval", text("100ms"));
    let daemon = host.run();
    until("the failure", || host.last() == "failed");
    until("the next look is an hour away", || until_next_look(&host) > Duration::from_mins(59));
    drop(daemon);
    let daemon = host.run();
    until("after a restart it still is", || until_next_look(&host) > Duration::from_mins(58));
    assert_eq!(upstream.count(Call::Start), 1);
    drop(daemon);
    assert_eq!(host.sync(), "activated", "a person does not wait for the daemon's patience");
}

#[test]
fn a_short_retry_after_is_waited_out_and_then_all_is_well() {
    let upstream = upstream();
    upstream.on(Call::Poll).times(1).gives(answer(429).header("Retry-After", "2"));
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the version", || front(&daemon) == "one");
    let polls = upstream.calls(Call::Poll);
    assert!(polls[1].at - polls[0].at > Duration::from_millis(1950));
}

// C13 in run: reloads and absent things.

#[test]
fn a_reload_takes_a_good_configuration_and_keeps_the_old_one_in_place_of_a_bad_one() {
    let upstream = upstream();
    let mut host = Host::new(&upstream);
    let good = std::fs::read_to_string(host.path("docwharf.toml")).unwrap();
    host.put("good.toml", &good);
    let status = || {
        let mut command = support::docwharf();
        command.args(["status", "--json", "--config"]).arg(host.path("good.toml"));
        judged(0, finish(&mut command)).json()
    };
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    assert_eq!(status()["configError"], Value::Null);
    host.put("docwharf.toml", good.replace("interval = \"1h\"", "interval = \"soon\""));
    daemon.signal("HUP");
    until("the complaint", || status()["configError"].to_string().contains("interval"));
    upstream.publish(bundle("two"));
    daemon.signal("HUP");
    until("the second version, as the old configuration is in force", || front(&daemon) == "two");
    host.put("docwharf.toml", "not = [toml");
    daemon.signal("HUP");
    until("the next complaint", || !status()["configError"].to_string().contains("interval"));
    assert_ne!(status()["configError"], Value::Null);
    host.change("api.domain", text("other.example.com"));
    daemon.signal("HUP");
    until("the new domain", || {
        upstream.calls(Call::Start).last().is_some_and(|start| start.json()["domain"] == "other.example.com")
    });
    until("no complaint", || status_of(&host)["configError"] == Value::Null);
}

fn status_of(host: &Host) -> Value {
    host.status()
}

/// A folder as Kubernetes mounts a secret: the files are links into `..data`, which is a link that is swapped.
fn mount(folder: &Path, generation: &str, key: &str) {
    let real = folder.join(format!("..{generation}"));
    std::fs::create_dir_all(&real).unwrap();
    std::fs::write(real.join("api-key"), format!("{key}\n")).unwrap();
    symlink(format!("..{generation}"), folder.join("..data_tmp")).unwrap();
    std::fs::rename(folder.join("..data_tmp"), folder.join("..data")).unwrap();
    let _ = symlink("..data/api-key", folder.join("api-key"));
}

#[test]
fn a_key_that_changes_is_read_again_also_when_a_mounted_secret_is_swapped() {
    let swaps: [fn(&Host, &str, &str); 3] = [
        |host, generation, key| mount(&host.path("secret"), generation, key),
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
    at_once(&swaps, |swap| {
        let upstream = upstream();
        let host = Host::new(&upstream).set("api.keyFile", text("secret/api-key")).set("sync.interval", text("200ms"));
        swap(&host, "2026_08_01", KEY);
        let daemon = host.run();
        until("the first version", || front(&daemon) == "one");
        // The key is rolled while the daemon runs, and has the same length, so that no size tells.
        let rolled = KEY.replace("dwk_5", "dwk_6");
        upstream.plan().key.clone_from(&rolled);
        swap(&host, "2026_08_02", &rolled);
        upstream.publish(bundle("two"));
        until("the second version", || front(&daemon) == "two");
        let last = upstream.calls(Call::Start).pop().unwrap();
        assert_eq!(last.header("authorization"), Some(&*format!("Bearer {rolled}")));
    });
}

#[test]
fn a_wrong_key_is_corrected_without_a_signal() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("api.keyFile", text("secret/api-key"));
    std::fs::create_dir(host.path("secret")).unwrap();
    mount(&host.path("secret"), "1", "dwk_wrong");
    let daemon = host.run();
    until("the refusal", || host.last() == "failed");
    mount(&host.path("secret"), "2", KEY);
    until("the version", || front(&daemon) == "one");
}

#[test]
fn what_is_absent_now_does_not_take_a_served_version_away_and_is_tried_again() {
    at_once(&["api.keyFile", "api.caFile"], |key| {
        let upstream = upstream();
        let mut host = Host::new(&upstream).set("sync.interval", text("200ms"));
        host.ok(&["sync"]);
        host.change(key, text("later"));
        upstream.publish(bundle("two"));
        let daemon = host.run();
        assert_eq!(front(&daemon), "one");
        until("the failure", || host.last_error().contains("later"));
        assert_eq!(front(&daemon), "one");
        if *key == "api.keyFile" {
            host.put("later", KEY);
            until("the second version", || front(&daemon) == "two");
        }
    });
}

// The inbox.

/// What lies in a folder of the inbox.
fn inbox(host: &Host, name: &str) -> Vec<String> {
    let entries = std::fs::read_dir(host.path("inbox").join(name)).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn the_inbox_takes_what_is_whole_and_says_what_it_refused() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.inbox", text("inbox"));
    std::fs::create_dir(host.path("inbox")).unwrap();
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    std::fs::write(host.path("inbox/evil.zip"), "<html>no bundle</html>").unwrap();
    // A slow copy: never long without a change, and no archive before its last byte.
    let bytes = bundle("dropped");
    for end in 1..=4 {
        std::fs::write(host.path("inbox/good.zip"), &bytes[..bytes.len() * end / 4]).unwrap();
        std::thread::sleep(Duration::from_millis(600));
    }
    until("the dropped version", || front(&daemon) == "dropped");
    until("the files are put away", || inbox(&host, "accepted") == ["good.zip"] && inbox(&host, "rejected").len() == 2);
    assert!(host.path("inbox/rejected/evil.zip").exists());
    let reason = std::fs::read_to_string(host.path("inbox/rejected/evil.zip.reason.txt")).unwrap();
    assert!(reason.contains("HTML"), "{reason}");
    assert!(!host.path("inbox/good.zip").exists() && !host.path("inbox/evil.zip").exists());
}

#[test]
fn an_inbox_that_is_moved_or_taken_away_by_the_configuration_is_so_without_a_restart() {
    let mut host = Host::bare().set("sync.inbox", text("first"));
    for name in ["first", "second"] {
        std::fs::create_dir(host.path(name)).unwrap();
    }
    let daemon = host.run();
    std::fs::write(host.path("first/a.zip"), bundle("one")).unwrap();
    until("what the first brings", || front(&daemon) == "one");
    host.change("sync.inbox", text("second"));
    daemon.signal("HUP");
    std::fs::write(host.path("second/b.zip"), bundle("two")).unwrap();
    until("what the second brings", || front(&daemon) == "two");
    // The first is a folder like any other now, however long it takes: the second goes on meanwhile.
    std::fs::write(host.path("first/c.zip"), bundle("three")).unwrap();
    std::fs::write(host.path("second/d.zip"), bundle("four")).unwrap();
    until("what the second brings then", || front(&daemon) == "four");
    assert!(host.path("first/c.zip").exists());
    host.remove("sync.inbox");
    host.change("sync.keep", "5");
    daemon.signal("HUP");
    until("there is none", || host.status()["daemon"]["inbox"].is_null());
}

#[test]
fn a_file_that_waits_in_the_inbox_is_taken_at_start_but_not_over_a_hold() {
    let upstream = upstream();
    let host = Host::new(&upstream).set("sync.inbox", text("inbox"));
    host.ok(&["sync"]);
    host.ok(&["hold"]);
    std::fs::create_dir(host.path("inbox")).unwrap();
    std::fs::write(host.path("inbox/waiting.zip"), bundle("waiting")).unwrap();
    let daemon = host.run();
    until("it is taken", || inbox(&host, "accepted") == ["waiting.zip"]);
    assert_eq!(front(&daemon), "one");
    drop(daemon);
    host.ok(&["release"]);
    assert_eq!(front(&host.run()), "waiting");
}

// What a daemon with nothing to do uses.

#[test]
fn a_daemon_that_waits_keeps_no_connection_open_and_answers() {
    let upstream = upstream();
    let host = Host::new(&upstream);
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    let asked = upstream.connections();
    for_a_while("quiet", || upstream.connections() == asked);
    assert_eq!(front(&daemon), "one");
}

// What is newest: sources that go back, and what is brought beside them.

/// A host with one kind of source.
struct Sourced {
    upstream: Upstream,
    host: Host,
    has_file: bool,
}

impl Sourced {
    fn each() -> Vec<Sourced> {
        ["link", "file", "API"].into_iter().map(Sourced::of).collect()
    }

    fn of(kind: &str) -> Sourced {
        let upstream = upstream();
        let host = match kind {
            "API" => Host::new(&upstream),
            "link" => Host::linked(&upstream.link()),
            _ => Host::linked("bundle.zip"),
        };
        Sourced { upstream, host, has_file: kind == "file" }
    }

    fn publish(&self, bundle: Vec<u8>) {
        if self.has_file {
            self.host.put("bundle.zip", bundle);
        } else {
            self.upstream.publish(bundle);
        }
    }

    /// Publishes a bundle and has it looked at; the version that is active afterwards.
    #[track_caller]
    fn look(&self, code: i32, bundle: Vec<u8>) -> Option<String> {
        self.publish(bundle);
        self.host.ends(code, &["sync"]);
        self.host.active()
    }

    #[track_caller]
    fn import(&self, bundle: Vec<u8>) -> Option<String> {
        self.host.put("import.zip", bundle);
        self.host.ok(&["import", self.host.path("import.zip").to_str().expect("UTF-8")]);
        assert!(self.host.status()["hold"].is_null(), "an import holds nothing");
        self.host.active()
    }

    /// Changes the record as it lies there, without its checksum.
    fn change_record(&self, change: impl FnOnce(&mut Value)) {
        let path = self.host.path("store/state.json");
        let mut record: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        record.as_object_mut().unwrap().remove("sum");
        change(&mut record);
        std::fs::write(&path, record.to_string()).unwrap();
    }
}

/// Receipts tell the second of an arrival: waits for the next one.
fn until_the_next_second() {
    let second = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs();
    let now = second();
    until("the next second", || second() > now);
}

/// A site of one page.
fn one_page() -> Vec<u8> {
    support::zip::zip(&[support::zip::deflated("index.html", "<title>one page</title>")])
}

#[test]
fn a_version_that_the_source_has_withdrawn_is_not_activated_by_a_release() {
    at_once(&Sourced::each(), |at| {
        let one = at.look(0, bundle("one"));
        at.host.ok(&["hold"]);
        assert_eq!(at.look(7, bundle("two")), one);
        assert_eq!(at.look(0, bundle("one")), one);
        at.host.ok(&["release"]);
        assert_eq!(at.host.active(), one);
        assert_eq!(at.host.sync(), "already current");
        assert_eq!(at.host.status()["newest"].as_str(), one.as_deref());
    });
}

#[test]
fn a_version_that_the_source_has_withdrawn_is_not_activated_after_the_record_was_lost() {
    at_once(&Sourced::each(), |at| {
        let one = at.look(0, bundle("one"));
        at.host.ok(&["hold"]);
        until_the_next_second();
        assert_eq!(at.look(7, bundle("two")), one);
        until_the_next_second();
        assert_eq!(at.look(0, bundle("one")), one);
        std::fs::write(at.host.path("store/state.json"), "{").unwrap();
        at.host.ok(&["release"]);
        assert_eq!(at.host.active(), one);
    });
}

#[test]
fn a_version_that_the_source_has_withdrawn_is_not_activated_by_a_relaxed_gate_or_auto_mode() {
    for (key, strict, relaxed) in [("gate.minPages", "2", "1"), ("activate.mode", "\"manual\"", "\"auto\"")] {
        for mut at in Sourced::each() {
            let one = at.look(0, bundle("one"));
            at.host.change(key, strict);
            at.publish(one_page());
            finish(&mut at.host.command(&["sync"]));
            assert_eq!(at.host.active(), one);
            assert_eq!(at.look(0, bundle("one")), one);
            at.host.change(key, relaxed);
            // Nothing is looked at any more: what is due is decided about all the same.
            at.host.change("staticExport.enabled", "false");
            at.host.ok(&["sync"]);
            at.host.ok(&["release"]);
            assert_eq!(at.host.active(), one, "{key}");
        }
    }
}

#[test]
fn what_is_imported_beside_a_source_stays_until_the_source_changes() {
    at_once(&Sourced::each(), |at| {
        let one = at.look(0, bundle("one"));
        let imported = at.import(bundle("imported"));
        assert_ne!(imported, one);
        for _ in 0..2 {
            assert_eq!(at.host.sync(), "already current");
            assert_eq!(at.host.active(), imported);
        }
        let two = at.look(0, bundle("two"));
        assert!(two != imported && two != one, "a change of the source is newer");
        let imported = at.import(bundle("imported"));
        assert_ne!(imported, two);
        assert_eq!(at.look(0, bundle("two")), imported);
        assert_eq!(at.look(0, bundle("one")), one, "also a change back to an earlier bundle");
    });
    // What has not changed is not downloaded again either.
    let at = Sourced::of("link");
    at.look(0, bundle("one"));
    at.import(bundle("imported"));
    at.look(0, bundle("one"));
    let sent: Vec<u16> = at.upstream.calls(Call::Download).iter().map(|request| request.status).collect();
    assert_eq!(sent, [200, 304], "{}", at.upstream.story());
}

#[test]
fn a_refresh_takes_what_the_source_has_though_something_was_imported_since() {
    at_once(&Sourced::each(), |at| {
        let one = at.look(0, bundle("one"));
        at.import(bundle("imported"));
        at.host.ok(&["sync", "--refresh"]);
        assert_eq!(at.host.active(), one);
    });
}

#[test]
fn what_is_imported_outlives_the_loss_of_the_record() {
    at_once(&Sourced::each(), |at| {
        at.look(0, bundle("one"));
        until_the_next_second();
        let imported = at.import(bundle("imported"));
        std::fs::write(at.host.path("store/state.json"), "{").unwrap();
        at.host.ok(&["sync"]);
        assert_eq!(at.host.active(), imported);
    });
}

#[test]
fn what_the_inbox_brings_beside_a_link_stays_until_the_source_changes() {
    let at = Sourced::of("link");
    let host = at.host.set("sync.inbox", text("inbox")).set("sync.interval", text("100ms"));
    std::fs::create_dir(host.path("inbox")).unwrap();
    let daemon = host.run();
    until("the first version", || front(&daemon) == "one");
    // Under a name that is left alone until it is whole.
    std::fs::write(host.path("inbox/dropped.part"), bundle("dropped")).unwrap();
    std::fs::rename(host.path("inbox/dropped.part"), host.path("inbox/dropped.zip")).unwrap();
    until("the dropped one", || front(&daemon) == "dropped");
    let looks = at.upstream.count(Call::Download);
    until("more looks", || at.upstream.count(Call::Download) > looks + 3);
    assert_eq!(front(&daemon), "dropped");
    at.upstream.publish(bundle("two"));
    until("what the source has changed to", || front(&daemon) == "two");
}

#[test]
fn the_record_of_a_later_docwharf_is_refused_as_it_is_and_that_of_an_earlier_one_is_read() {
    let at = Sourced::of("link");
    at.look(0, bundle("one"));
    let imported = at.import(bundle("imported"));
    at.change_record(|record| {
        record["schemaVersion"] = 1.into();
        record.as_object_mut().unwrap().remove("offered");
    });
    at.host.ok(&["sync"]);
    assert_eq!(at.host.active(), imported, "what the source had is known from the last look");
    at.change_record(|record| {
        record["schemaVersion"] = 99.into();
        record["later"] = "something".into();
    });
    let before = std::fs::read(at.host.path("store/state.json")).unwrap();
    for verb in ["sync", "hold", "run"] {
        let ended = at.host.ends(8, &[verb]);
        assert!(ended.stderr.contains("later docwharf (schemaVersion 99"), "{}", ended.stderr);
    }
    assert_eq!(std::fs::read(at.host.path("store/state.json")).unwrap(), before);
}
