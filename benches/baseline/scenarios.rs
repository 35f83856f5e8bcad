//! The scenarios: an event, and the expected result.

use std::collections::BTreeSet;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::host::{DOMAIN, Host, RunResult, ServedContent, Updater, bundle, bundle_with, get, markers, site_pages};
use super::upstream::{Fault, KEY, REVOKED, SIGNATURE, Upstream};
use support::tar::{file, link};
use support::{Daemon, docwharf, temporary_folder, write_site};

/// The result of a scenario.
pub(crate) struct Verdict {
    /// Whether it is the expected result.
    pub(crate) is_expected: bool,
    /// A description of the result.
    pub(crate) observation: String,
}

fn verdict(is_expected: bool, observation: impl Into<String>) -> Verdict {
    Verdict { is_expected, observation: observation.into() }
}

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The expected result.
    pub(crate) expectation: &'static str,
    pub(crate) run: fn(Updater) -> Verdict,
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    Scenario { name: "plain update", expectation: "the new version is served", run: plain_update },
    Scenario {
        name: "20 updates under load",
        expectation: "no failed request, no response of two versions",
        run: updates_under_load,
    },
    Scenario { name: "restart: API down, links expired", expectation: "the site is served at once", run: restart },
    Scenario { name: "restart with one start command", expectation: "the site is served", run: container },
    Scenario { name: "download cut half-way", expectation: "the run brings the new version", run: cut_download },
    Scenario {
        name: "link dies half-way (403)",
        expectation: "the run brings the new version, one job",
        run: expired_link,
    },
    Scenario { name: "API busy once (503)", expectation: "the run brings the new version", run: busy_api },
    Scenario {
        name: "HTML page for a bundle (200)",
        expectation: "the old version stays, the run fails",
        run: html_page,
    },
    Scenario {
        name: "hostile: entry with ../",
        expectation: "the old version stays, nothing outside",
        run: parent_folder_entry,
    },
    Scenario { name: "hostile: symlink to a secret", expectation: "the secret is not served", run: symlink },
    Scenario {
        name: "kill -9 while unpacking",
        expectation: "the old version is served after a restart",
        run: kill_while_unpacking,
    },
    Scenario {
        name: "kill -9, next update, then rollback",
        expectation: "a complete version is served",
        run: kill_rollback,
    },
    Scenario {
        name: "key revoked (401)",
        expectation: "the old version stays, the API's message is shown",
        run: revoked_key,
    },
    Scenario { name: "two runs at once", expectation: "what was published last is served", run: two_runs },
    Scenario { name: "key and links in ps and logs", expectation: "neither", run: secrets },
    Scenario { name: "rollback, then the next run", expectation: "the operator's choice stays", run: rollback },
    Scenario { name: "returning reader, files with one date", expectation: "the new version", run: returning_reader },
];

const CHECKED_PAGES: &[&str] = &["/", "/app.css", "/part/00009.html"];

/// A host with version 1, and its upstream.
fn host_at_version_1(updater: Updater) -> (Upstream, Host) {
    let upstream = Upstream::new(bundle(1));
    let host = Host::new(updater, &upstream.base_url());
    assert_ok(&host.run_sync());
    (upstream, host)
}

fn assert_ok(result: &RunResult) {
    assert!(result.ok, "the preparation of the scenario failed: {result}");
}

/// An update to version 2 with this fault, while the server runs.
fn update_with_fault(updater: Updater, fault: Fault) -> (Upstream, Host, RunResult, ServedContent) {
    let (upstream, mut host) = host_at_version_1(updater);
    host.start_server();
    upstream.publish(bundle(2));
    upstream.fault(fault);
    let result = host.update();
    let content = host.wait_for_version(if result.ok { 2 } else { 1 }, CHECKED_PAGES);
    (upstream, host, result, content)
}

/// A single run with this fault. Returns its result and the content served afterwards.
fn sync_with_fault(upstream: &Upstream, host: &mut Host, fault: Fault) -> (RunResult, ServedContent) {
    upstream.fault(fault);
    let result = host.run_sync();
    upstream.fault(Fault::Down);
    let content = host.start_server();
    (result, content)
}

/// An origin whose site changes.
struct Origin {
    dir: tempfile::TempDir,
    daemon: Daemon,
}

impl Origin {
    fn new() -> Origin {
        let dir = temporary_folder();
        std::fs::write(dir.path().join("key"), KEY).expect("a key");
        let site = format!("{DOMAIN}={}", dir.path().join("site").display());
        let mut command = docwharf();
        command.args(["origin", "-q", "--listen", "127.0.0.1:0", "--site", &site, "--key-file"]);
        write_site_version(&dir, 1);
        let daemon = Daemon::start(command.arg(dir.path().join("key")).stderr(Stdio::null()));
        Origin { dir, daemon }
    }

    fn base_url(&self) -> String {
        format!("http://{}/v1", self.daemon.address)
    }
}

fn write_site_version(dir: &tempfile::TempDir, version: u32) {
    let site = dir.path().join("site");
    let _ = std::fs::remove_dir_all(&site);
    let pages = site_pages(version, 10);
    write_site(&site, &pages.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect::<Vec<_>>());
}

fn plain_update(updater: Updater) -> Verdict {
    let origin = Origin::new();
    let mut host = Host::new(updater, &origin.base_url());
    assert_ok(&host.run_sync());
    host.start_server();
    write_site_version(&origin.dir, 2);
    let result = host.update();
    let content = host.wait_for_version(2, CHECKED_PAGES);
    verdict(content == ServedContent::Version(2), format!("{content}; {result}"))
}

/// Counters of readers that request the front page, and 20 ms later its style sheet and its script.
#[derive(Default)]
struct LoadCounters {
    requests: AtomicUsize,
    failed: AtomicUsize,
    mixed: AtomicUsize,
    /// Pages whose style sheet was of another version, or whose script was missing.
    mismatched: AtomicUsize,
}

impl LoadCounters {
    fn read(&self, address: &str) {
        let count = |counter: &AtomicUsize| counter.fetch_add(1, Ordering::Relaxed);
        let request = |target: &str, may_be_gone: bool| -> Option<BTreeSet<u32>> {
            count(&self.requests);
            match get(address, target, "") {
                Ok(response) if response.status == 200 => {
                    let versions = markers(&response.body);
                    if versions.len() != 1 {
                        count(&self.mixed);
                    }
                    Some(versions)
                }
                Ok(response) if response.status == 404 && may_be_gone => None,
                _ => {
                    count(&self.failed);
                    None
                }
            }
        };
        let Some(page) = request("/", false) else { return };
        std::thread::sleep(Duration::from_millis(20));
        let style = request("/app.css", false);
        let state = request(&format!("/app.{}.js", page.iter().next().unwrap_or(&0)), true);
        if style.is_none_or(|style| style != page) || state.is_none() {
            count(&self.mismatched);
        }
    }
}

fn updates_under_load(updater: Updater) -> Verdict {
    const UPDATES: u32 = 20;
    let origin = Origin::new();
    let mut host = Host::new(updater, &origin.base_url());
    assert_ok(&host.run_sync());
    host.start_server();
    let (counters, stop) = (LoadCounters::default(), AtomicBool::new(false));
    let address = host.address().to_owned();
    let mut arrived = 0;
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    counters.read(&address);
                }
            });
        }
        for version in 2..=UPDATES + 1 {
            write_site_version(&origin.dir, version);
            host.update();
            arrived += u32::from(host.wait_for_version(version, &["/"]) == ServedContent::Version(version));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let load_of = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let (requests, failed, mixed) = (load_of(&counters.requests), load_of(&counters.failed), load_of(&counters.mixed));
    let mismatched = load_of(&counters.mismatched);
    verdict(
        failed == 0 && mixed == 0 && arrived == UPDATES,
        format!(
            "{arrived} arrived; {requests} requests, {failed} failed, {mixed} mixed; page and assets apart {mismatched} times"
        ),
    )
}

fn restart(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    host.start_server();
    host.stop();
    upstream.fault(Fault::Down);
    let first = host.start_server();
    host.update();
    let later = host.read_pages(CHECKED_PAGES);
    let is_expected = first == ServedContent::Version(1) && later == first;
    verdict(is_expected, if is_expected { "stays up: v1".to_owned() } else { format!("{first}, then {later}") })
}

fn container(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    upstream.fault(Fault::Down);
    let content = host.start_container();
    let is_expected = content == ServedContent::Version(1);
    verdict(is_expected, if is_expected { "stays up: v1".to_owned() } else { content.to_string() })
}

fn cut_download(updater: Updater) -> Verdict {
    let (_upstream, _host, result, content) = update_with_fault(updater, Fault::CutOnce);
    verdict(content == ServedContent::Version(2), format!("{content}; {result}"))
}

fn expired_link(updater: Updater) -> Verdict {
    let (upstream, _host, result, content) = update_with_fault(updater, Fault::LinkExpires);
    let state = upstream.state();
    let sent_bytes = state.sent_bytes * 100 / bundle(2).len();
    let is_expected = content == ServedContent::Version(2) && state.job_starts == 1;
    let cost = format!("; {} job, {sent_bytes} % of the bundle's bytes", state.job_starts);
    verdict(is_expected, format!("{content}; {result}{}", if is_expected { &cost } else { "" }))
}

fn busy_api(updater: Updater) -> Verdict {
    let (_upstream, _host, result, content) = update_with_fault(updater, Fault::BusyOnce);
    verdict(content == ServedContent::Version(2), format!("{content}; {result}"))
}

fn html_page(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    let (result, content) = sync_with_fault(&upstream, &mut host, Fault::HtmlPage);
    verdict(content == ServedContent::Version(1) && !result.ok, format!("{content} stays; {result}"))
}

fn parent_folder_entry(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    upstream.publish(bundle_with(2, 10, vec![file("../../outside.html", "@666@")]));
    let (result, content) = sync_with_fault(&upstream, &mut host, Fault::None);
    let outside = ["outside.html", "site/outside.html", "site/releases/outside.html", "store/outside.html"];
    let is_outside = outside.iter().any(|name| host.path(name).exists());
    let observation = format!("{content} stays; {result}{}", if is_outside { "; a file outside" } else { "" });
    verdict(content == ServedContent::Version(1) && !result.ok && !is_outside, observation)
}

fn symlink(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    let key = host.path("key");
    upstream.publish(bundle_with(2, 10, vec![link("notes.txt", b'2', key.to_str().expect("a short path"))]));
    let (result, content) = sync_with_fault(&upstream, &mut host, Fault::None);
    let is_leaked =
        host.get("/notes.txt", "").is_ok_and(|response| String::from_utf8_lossy(&response.body).contains(KEY));
    let observation = if is_leaked { "leaks the key at /notes.txt".to_owned() } else { format!("{content} stays") };
    verdict(!is_leaked && content == ServedContent::Version(1), format!("{observation}; {result}"))
}

const MANY_PARTS: usize = 4000;

/// A host that was killed during an update, and started again.
struct KilledHost {
    upstream: Upstream,
    host: Host,
    /// The content before the update.
    old_content: ServedContent,
    /// The content of the first response after the restart.
    first: ServedContent,
}

fn kill_during_update(updater: Updater) -> KilledHost {
    let upstream = Upstream::new(bundle_with(1, MANY_PARTS, Vec::new()));
    let mut host = Host::new(updater, &upstream.base_url());
    assert_ok(&host.run_sync());
    // If the kill is too late, the new version is the old one of the next attempt.
    for version in 2..30 {
        let old_content = ServedContent::Version(version - 1);
        assert_eq!(host.start_server(), old_content, "the preparation of the scenario failed");
        upstream.publish(bundle_with(version, MANY_PARTS, Vec::new()));
        if host.kill_while_unpacking() {
            let first = host.start_server();
            return KilledHost { upstream, host, old_content, first };
        }
    }
    panic!("each kill was too late");
}

fn kill_while_unpacking(updater: Updater) -> Verdict {
    let KilledHost { host, old_content, first, .. } = kill_during_update(updater);
    let later = host.read_pages(&["/", "/app.css", "/part/00000.html", "/part/03999.html"]);
    let update_result = match &later {
        later if *later == old_content => "the update waits for the next run".to_owned(),
        ServedContent::Version(_) => "then the update is finished".to_owned(),
        other => format!("then {other}"),
    };
    let is_expected = first == old_content && matches!(later, ServedContent::Version(_));
    verdict(
        is_expected,
        if is_expected {
            format!("the old version at once; {update_result}")
        } else {
            format!("{first}; {update_result}")
        },
    )
}

fn kill_rollback(updater: Updater) -> Verdict {
    let KilledHost { upstream, mut host, .. } = kill_during_update(updater);
    upstream.publish(bundle_with(99, MANY_PARTS, Vec::new()));
    assert_ok(&host.update());
    host.rollback();
    let mut targets = vec!["/".to_owned(), "/app.css".to_owned()];
    targets.extend((0..MANY_PARTS).step_by(100).map(|n| format!("/part/{n:05}.html")));
    let targets: Vec<&str> = targets.iter().map(String::as_str).collect();
    let content = host.read_pages(&targets);
    let is_expected = matches!(content, ServedContent::Version(version) if version != 99);
    verdict(
        is_expected,
        if is_expected { "a whole older version".to_owned() } else { format!("half a version: {content}") },
    )
}

fn revoked_key(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    let (result, content) = sync_with_fault(&upstream, &mut host, Fault::Revoked);
    verdict(
        content == ServedContent::Version(1) && result.message.contains(REVOKED),
        format!("{content} stays; {result}"),
    )
}

fn two_runs(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    upstream.publish(bundle(2));
    upstream.fault(Fault::SlowOnce);
    let mut slow = host.sync_command().stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
    let deadline = Instant::now() + Duration::from_secs(20);
    while upstream.state().downloads == 0 {
        assert!(Instant::now() < deadline, "no download has begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    upstream.publish(bundle(3));
    let second = host.run_sync();
    let first = slow.wait().expect("it ends").code();
    let content = host.start_server();
    let comment =
        if content == ServedContent::Version(3) { "" } else { "wrong content: the run that began first ended last; " };
    let codes = format!("exit {} and {}", first.unwrap_or(-1), if second.ok { "0" } else { "an error" });
    verdict(content == ServedContent::Version(3), format!("{comment}{content} is served, v3 published; {codes}"))
}

fn secrets(updater: Updater) -> Verdict {
    let (upstream, host) = host_at_version_1(updater);
    upstream.fault(Fault::LinkExpires);
    upstream.publish(bundle(2));
    host.run_sync();
    let secrets_in_ps = upstream.state().secrets_in_ps.clone();
    let log_text = host.log_text();
    assert!(updater == Updater::Loop || log_text.contains("/bundles/"), "-vv logs no link: {log_text}");
    let in_log: Vec<_> =
        [("key", KEY), ("link", SIGNATURE)].into_iter().filter(|(_, s)| log_text.contains(s)).collect();
    let mut observation = Vec::new();
    observation.extend(secrets_in_ps.iter().map(|name| format!("leaks the {name} in ps")));
    observation.extend(in_log.iter().map(|(name, _)| format!("leaks the {name} in the log")));
    let is_expected = observation.is_empty();
    verdict(is_expected, if is_expected { "neither".to_owned() } else { observation.join(", ") })
}

fn rollback(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    host.start_server();
    upstream.publish(bundle(2));
    assert_ok(&host.update());
    host.rollback();
    let after_rollback = host.wait_for_version(1, CHECKED_PAGES);
    assert_eq!(after_rollback, ServedContent::Version(1), "the preparation of the scenario failed");
    host.update();
    let after_next_run = host.read_pages(CHECKED_PAGES);
    let comment = if after_next_run == after_rollback { "stays" } else { "the rollback is undone" };
    verdict(after_next_run == after_rollback, format!("{after_next_run}: {comment}"))
}

fn returning_reader(updater: Updater) -> Verdict {
    let (upstream, mut host) = host_at_version_1(updater);
    host.start_server();
    let page = host.get("/", "").expect("the site is up");
    let mut fields = String::new();
    for (theirs, ours) in [("etag", "If-None-Match"), ("last-modified", "If-Modified-Since")] {
        if let Some(value) = page.field(theirs) {
            fields = format!("{fields}{ours}: {value}\r\n");
        }
    }
    upstream.publish(bundle(2));
    assert_ok(&host.update());
    host.wait_for_version(2, CHECKED_PAGES);
    let revalidated = host.get("/", &fields).expect("the site is up");
    let is_expected = revalidated.status == 200 && markers(&revalidated.body) == BTreeSet::from([2]);
    let observation = if revalidated.status == 304 {
        "wrong content: told that v1 is still good (304)".to_owned()
    } else {
        "v2".to_owned()
    };
    verdict(is_expected, observation)
}
