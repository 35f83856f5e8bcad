//! What happens to sites, and what has to come of it.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::host::{DOMAIN, Host, Kind, Ran, Seen, bundle, bundle_with, get, markers, pages};
use super::upstream::{Fault, KEY, REVOKED, SIGNATURE, Upstream};
use support::tar::{file, link};
use support::{Daemon, docwharf, folder, write_site};

/// What came of it.
pub(crate) struct Verdict {
    /// Whether that is what has to come of it.
    pub(crate) good: bool,
    /// What was seen.
    pub(crate) saw: String,
}

fn verdict(good: bool, saw: impl Into<String>) -> Verdict {
    Verdict { good, saw: saw.into() }
}

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// What has to come of it.
    pub(crate) wanted: &'static str,
    pub(crate) play: fn(Kind) -> Verdict,
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "plain update", wanted: "the new version is served", play: plain },
    Scenario { name: "20 updates under load", wanted: "no failed request, no response of two versions", play: load },
    Scenario { name: "restart: API down, links expired", wanted: "the site is served at once", play: restart },
    Scenario { name: "the same with one start command", wanted: "the site is served", play: container },
    Scenario { name: "download cut half-way", wanted: "the run brings the new version", play: cut },
    Scenario { name: "link dies half-way (403)", wanted: "the run brings the new version, one job", play: dies },
    Scenario { name: "API busy once (503)", wanted: "the run brings the new version", play: busy },
    Scenario { name: "HTML page for a bundle (200)", wanted: "the old version stays, the run fails", play: html },
    Scenario { name: "hostile: entry with ../", wanted: "the old version stays, nothing outside", play: dots },
    Scenario { name: "hostile: symlink to a secret", wanted: "the secret is not served", play: symlink },
    Scenario { name: "kill -9 while unpacking", wanted: "the old version is served after a restart", play: kill },
    Scenario { name: "… next update, then rollback", wanted: "a whole version is served", play: kill_rollback },
    Scenario { name: "key revoked (401)", wanted: "the old version stays, the API's words are shown", play: revoked },
    Scenario { name: "two runs at once", wanted: "what was published last is served", play: two_runs },
    Scenario { name: "key and links in ps and logs", wanted: "neither", play: secrets },
    Scenario { name: "rollback, then the next run", wanted: "the operator's choice stays", play: rollback },
    Scenario { name: "returning reader, files with one date", wanted: "the new version", play: returning },
];

const PAGES: &[&str] = &["/", "/app.css", "/part/00009.html"];

/// A site at version 1, of an upstream that is ready for more.
fn at_one(kind: Kind) -> (Upstream, Host) {
    let upstream = Upstream::new(bundle(1));
    let host = Host::new(kind, &upstream.base());
    must(&host.sync());
    (upstream, host)
}

fn must(ran: &Ran) {
    assert!(ran.ok, "what comes before a scenario has to work: {ran}");
}

/// An update to version 2 while this goes wrong, with readers served.
fn update_with(kind: Kind, fault: Fault) -> (Upstream, Host, Ran, Seen) {
    let (upstream, mut host) = at_one(kind);
    host.serve();
    upstream.publish(bundle(2));
    upstream.fault(fault);
    let ran = host.update();
    let seen = host.see_soon(if ran.ok { 2 } else { 1 }, PAGES);
    (upstream, host, ran, seen)
}

/// A single run that must not bring anything; what is served afterwards.
fn run_with(upstream: &Upstream, host: &mut Host, fault: Fault) -> (Ran, Seen) {
    upstream.fault(fault);
    let ran = host.sync();
    upstream.fault(Fault::Down);
    let seen = host.serve();
    (ran, seen)
}

/// An origin whose site changes.
struct Origin {
    dir: tempfile::TempDir,
    daemon: Daemon,
}

impl Origin {
    fn new() -> Origin {
        let dir = folder();
        std::fs::write(dir.path().join("key"), KEY).expect("a key");
        let site = format!("{DOMAIN}={}", dir.path().join("site").display());
        let mut command = docwharf();
        command.args(["origin", "-q", "--listen", "127.0.0.1:0", "--site", &site, "--key-file"]);
        write(&dir, 1);
        let daemon = Daemon::start(command.arg(dir.path().join("key")).stderr(Stdio::null()));
        Origin { dir, daemon }
    }

    fn base(&self) -> String {
        format!("http://{}/v1", self.daemon.address)
    }
}

fn write(dir: &tempfile::TempDir, version: u32) {
    let site = dir.path().join("site");
    let _ = std::fs::remove_dir_all(&site);
    let pages = pages(version, 10);
    write_site(&site, &pages.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>());
}

fn plain(kind: Kind) -> Verdict {
    let origin = Origin::new();
    let mut host = Host::new(kind, &origin.base());
    must(&host.sync());
    host.serve();
    write(&origin.dir, 2);
    let ran = host.update();
    let seen = host.see_soon(2, PAGES);
    verdict(seen == Seen::Version(2), format!("{seen}; {ran}"))
}

/// Readers open the front page, and a network's moment later its style and its script.
#[derive(Default)]
struct Tally {
    requests: AtomicUsize,
    failed: AtomicUsize,
    mixed: AtomicUsize,
    /// Pages whose style was of another version, or whose script was gone.
    apart: AtomicUsize,
}

impl Tally {
    fn read(&self, address: &str) {
        let count = |counter: &AtomicUsize| counter.fetch_add(1, Ordering::Relaxed);
        let ask = |target: &str, may_be_gone: bool| -> Option<BTreeSet<u32>> {
            count(&self.requests);
            match get(address, target, "") {
                Ok(answer) if answer.status == 200 => {
                    let versions = markers(&answer.body);
                    if versions.len() != 1 {
                        count(&self.mixed);
                    }
                    Some(versions)
                }
                Ok(answer) if answer.status == 404 && may_be_gone => None,
                _ => {
                    count(&self.failed);
                    None
                }
            }
        };
        let Some(page) = ask("/", false) else { return };
        std::thread::sleep(Duration::from_millis(20));
        let style = ask("/app.css", false);
        let script = ask(&format!("/app.{}.js", page.iter().next().unwrap_or(&0)), true);
        if style.is_none_or(|style| style != page) || script.is_none() {
            count(&self.apart);
        }
    }
}

fn load(kind: Kind) -> Verdict {
    const UPDATES: u32 = 20;
    let origin = Origin::new();
    let mut host = Host::new(kind, &origin.base());
    must(&host.sync());
    host.serve();
    let (tally, stop) = (Tally::default(), AtomicBool::new(false));
    let address = host.address().to_owned();
    let mut arrived = 0;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    tally.read(&address);
                }
            });
        }
        for version in 2..=UPDATES + 1 {
            write(&origin.dir, version);
            host.update();
            arrived += u32::from(host.see_soon(version, &["/"]) == Seen::Version(version));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let (requests, failed, mixed) = (of(&tally.requests), of(&tally.failed), of(&tally.mixed));
    let apart = of(&tally.apart);
    verdict(
        failed == 0 && mixed == 0 && arrived == UPDATES,
        format!(
            "{arrived} arrived; {requests} requests, {failed} failed, {mixed} mixed; page and assets apart {apart} times"
        ),
    )
}

fn restart(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    host.serve();
    host.stop();
    upstream.fault(Fault::Down);
    let first = host.serve();
    host.update();
    let then = host.see(PAGES);
    let good = first == Seen::Version(1) && then == first;
    verdict(good, if good { "stays up: v1".to_owned() } else { format!("{first}, then {then}") })
}

fn container(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    upstream.fault(Fault::Down);
    let seen = host.start();
    let good = seen == Seen::Version(1);
    verdict(good, if good { "stays up: v1".to_owned() } else { seen.to_string() })
}

fn cut(kind: Kind) -> Verdict {
    let (_upstream, _host, ran, seen) = update_with(kind, Fault::CutOnce);
    verdict(seen == Seen::Version(2), format!("{seen}; {ran}"))
}

fn dies(kind: Kind) -> Verdict {
    let (upstream, _host, ran, seen) = update_with(kind, Fault::LinkDies);
    let script = upstream.script();
    let sent = script.sent * 100 / bundle(2).len();
    let good = seen == Seen::Version(2) && script.starts == 1;
    let cost = format!("; {} job, {sent} % of the bundle's bytes", script.starts);
    verdict(good, format!("{seen}; {ran}{}", if good { &cost } else { "" }))
}

fn busy(kind: Kind) -> Verdict {
    let (_upstream, _host, ran, seen) = update_with(kind, Fault::BusyOnce);
    verdict(seen == Seen::Version(2), format!("{seen}; {ran}"))
}

fn html(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    let (ran, seen) = run_with(&upstream, &mut host, Fault::HtmlPage);
    verdict(seen == Seen::Version(1) && !ran.ok, format!("{seen} stays; {ran}"))
}

fn dots(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    upstream.publish(bundle_with(2, 10, vec![file("../../outside.html", "@666@")]));
    let (ran, seen) = run_with(&upstream, &mut host, Fault::None);
    let outside = ["outside.html", "site/outside.html", "site/releases/outside.html", "store/outside.html"];
    let out = outside.iter().any(|name| host.path(name).exists());
    let saw = format!("{seen} stays; {ran}{}", if out { "; a file outside" } else { "" });
    verdict(seen == Seen::Version(1) && !ran.ok && !out, saw)
}

fn symlink(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    let key = host.path("key");
    upstream.publish(bundle_with(2, 10, vec![link("notes.txt", b'2', key.to_str().expect("a short path"))]));
    let (ran, seen) = run_with(&upstream, &mut host, Fault::None);
    let leak = host.get("/notes.txt", "").is_ok_and(|answer| String::from_utf8_lossy(&answer.body).contains(KEY));
    let saw = if leak { "leaks the key at /notes.txt".to_owned() } else { format!("{seen} stays") };
    verdict(!leak && seen == Seen::Version(1), format!("{saw}; {ran}"))
}

const MANY: usize = 4000;

/// A host that was killed in the middle of an update, and started again.
struct Killed {
    upstream: Upstream,
    host: Host,
    /// What was served before.
    old: Seen,
    /// What the first reader after the restart saw.
    first: Seen,
}

fn killed(kind: Kind) -> Killed {
    let upstream = Upstream::new(bundle_with(1, MANY, Vec::new()));
    let mut host = Host::new(kind, &upstream.base());
    must(&host.sync());
    // Where the kill comes too late, the new version is the old one of the next attempt.
    for version in 2..30 {
        let old = Seen::Version(version - 1);
        assert_eq!(host.serve(), old, "what comes before a scenario has to work");
        upstream.publish(bundle_with(version, MANY, Vec::new()));
        if host.kill_while_unpacking() {
            let first = host.serve();
            return Killed { upstream, host, old, first };
        }
    }
    panic!("no kill came in time");
}

fn kill(kind: Kind) -> Verdict {
    let Killed { host, old, first, .. } = killed(kind);
    let then = host.see(&["/", "/app.css", "/part/00000.html", "/part/03999.html"]);
    let what = match &then {
        then if *then == old => "the update waits for the next run".to_owned(),
        Seen::Version(_) => "then the update is finished".to_owned(),
        other => format!("then {other}"),
    };
    let good = first == old && matches!(then, Seen::Version(_));
    verdict(good, if good { format!("the old version at once; {what}") } else { format!("{first}; {what}") })
}

fn kill_rollback(kind: Kind) -> Verdict {
    let Killed { upstream, mut host, .. } = killed(kind);
    upstream.publish(bundle_with(99, MANY, Vec::new()));
    must(&host.update());
    host.rollback();
    let mut targets = vec!["/".to_owned(), "/app.css".to_owned()];
    targets.extend((0..MANY).step_by(100).map(|n| format!("/part/{n:05}.html")));
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let seen = host.see(&targets);
    let good = matches!(seen, Seen::Version(version) if version != 99);
    verdict(good, if good { "a whole older version".to_owned() } else { format!("half a version: {seen}") })
}

fn revoked(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    let (ran, seen) = run_with(&upstream, &mut host, Fault::Revoked);
    verdict(seen == Seen::Version(1) && ran.said.contains(REVOKED), format!("{seen} stays; {ran}"))
}

fn two_runs(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    upstream.publish(bundle(2));
    upstream.fault(Fault::SlowOnce);
    let mut slow = host.job().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(20);
    while upstream.script().downloads == 0 {
        assert!(Instant::now() < deadline, "no download has begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    upstream.publish(bundle(3));
    let second = host.sync();
    let first = slow.wait().expect("it ends").code();
    let seen = host.serve();
    let stale = if seen == Seen::Version(3) { "" } else { "wrong content: the run that began first ended last; " };
    let codes = format!("exit {} and {}", first.unwrap_or(-1), if second.ok { "0" } else { "an error" });
    verdict(seen == Seen::Version(3), format!("{stale}{seen} is served, v3 published; {codes}"))
}

fn secrets(kind: Kind) -> Verdict {
    let (upstream, host) = at_one(kind);
    upstream.fault(Fault::LinkDies);
    upstream.publish(bundle(2));
    host.sync();
    let in_ps = upstream.script().in_ps.clone();
    let logged = host.logged();
    assert!(kind == Kind::Loop || logged.contains("/bundles/"), "-vv tells of links: {logged}");
    let in_log: Vec<_> = [("key", KEY), ("link", SIGNATURE)].into_iter().filter(|(_, s)| logged.contains(s)).collect();
    let mut saw = Vec::new();
    saw.extend(in_ps.iter().map(|what| format!("leaks the {what} in ps")));
    saw.extend(in_log.iter().map(|(what, _)| format!("leaks the {what} in the log")));
    let good = saw.is_empty();
    verdict(good, if good { "neither".to_owned() } else { saw.join(", ") })
}

fn rollback(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    host.serve();
    upstream.publish(bundle(2));
    must(&host.update());
    host.rollback();
    let back = host.see_soon(1, PAGES);
    assert_eq!(back, Seen::Version(1), "what comes before a scenario has to work");
    host.update();
    let next = host.see(PAGES);
    let undone = if next == back { "stays" } else { "the rollback is undone" };
    verdict(next == back, format!("{next}: {undone}"))
}

fn returning(kind: Kind) -> Verdict {
    let (upstream, mut host) = at_one(kind);
    host.serve();
    let page = host.get("/", "").expect("the site is up");
    let mut fields = String::new();
    for (theirs, ours) in [("etag", "If-None-Match"), ("last-modified", "If-Modified-Since")] {
        if let Some(value) = page.field(theirs) {
            fields = format!("{fields}{ours}: {value}\r\n");
        }
    }
    upstream.publish(bundle(2));
    must(&host.update());
    host.see_soon(2, PAGES);
    let again = host.get("/", &fields).expect("the site is up");
    let good = again.status == 200 && markers(&again.body) == BTreeSet::from([2]);
    let saw = if again.status == 304 {
        "wrong content: told that v1 is still good (304)".to_owned()
    } else {
        "v2".to_owned()
    };
    verdict(good, saw)
}
