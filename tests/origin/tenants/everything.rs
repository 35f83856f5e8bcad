//! One organization takes everything at once that it can get, and another one's work is done in its turn.
//!
//! Nothing here is measured in seconds: how long the other one's work may take beside that (twice its usual time and
//! 2 s) is measured by `benches/abuse.rs`, attack by attack, and judged by `benches/abuse/report.rs`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::data::{
    ADMIN, SEARCHES, THEIR_SEARCHES, batch, half_sent, hub, metric, noise, refused, silent, theirs_are_exported,
};
use crate::management_api::searches;
use support::end;
use support::hub::{Hub, JOBS, commit, data, git, repository};
use support::write_site;

const PREVIEWS: &str = "/v1/project/preview";
const STATUS: &str = "/v1/project/update-status";
const MIB: u64 = 1 << 20;

/// Bounds that take hours, or gigabytes, to reach are lower than by default; like there, all organizations together may
/// hold twice as much as each. The others (`workers`, `waitingJobs`, `previewBuilds`, `bodyBytes` and those without a
/// key) are at their defaults.
const LIMITS: &str = r#"
[exports]
linkLifetime = "1h"
WORKERS
[limits.organization]
crawlTime = "3s"
events = 2000
rows = 3500
bundleBytes = "1MiB"
links = 50
buildMemory = "64MiB"
buildDisk = "16MiB"
buildProcesses = 40
[limits.total]
crawlTime = "6s"
events = 4000
rows = 7000
bundleBytes = "2MiB"
links = 100
buildMemory = "128MiB"
buildDisk = "32MiB"
buildProcesses = 80
"#;

/// Acme's folder, crawled site and repository; umbrella's folder and repository.
const PROJECTS: &str = r#"
[[organization]]
id = "acme"
[[organization.project]]
id = "docs"
domain = "docs.acme.example"
directory = "site"
[[organization.project]]
id = "slow"
domain = "slow.acme.example"
crawl = "SILENT"
[[organization.project]]
id = "greedy"
domain = "greedy.acme.example"
git = "greedy"
build = "sh ./build.sh"
output = "."
allowUntrusted = true
[[organization]]
id = "umbrella"
[[organization.project]]
id = "secrets"
domain = "docs.umbrella.example"
directory = "other"
[[organization.project]]
id = "guides"
domain = "guides.umbrella.example"
git = "quick"
build = "true"
output = "."
allowUntrusted = true
"#;

/// Branches of acme's repository, with their builds. The first three take too much of one resource, and are ended; the
/// fourth holds some of each until the test ends, and the fifth waits behind it.
const BUILDS: [(&str, &str); 5] = [
    ("buildProcesses", "n=0; while [ $n -lt 60 ]; do sleep 600 & n=$((n+1)); done; wait"),
    ("buildMemory", "for n in 1 2 3 4 5; do (head -c 20000000 /dev/zero; exec sleep 600) | tail & done; wait"),
    ("buildDisk", "while head -c 1000000 /dev/zero >> fill; do sleep 0.1; done; sleep 600"),
    (
        "holds",
        "n=0; while [ $n -lt 15 ]; do sleep 600 & n=$((n+1)); done; head -c 8000000 /dev/zero > fill; \
         (head -c 20000000 /dev/zero; exec sleep 600) | tail & wait",
    ),
    ("waits", "true"),
];

/// Builds have the lowest priority, so that a machine with other work takes its time.
#[track_caller]
fn until(what: &str, mut yes: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_mins(4);
    while !yes() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The origin with what one organization does to it.
struct Neighbours {
    hub: Hub,
    umbrella: String,
}

impl Neighbours {
    /// Starts an origin with a line for `[exports]`.
    fn start(workers: &str) -> Neighbours {
        let file = LIMITS.replace("WORKERS", workers) + &PROJECTS.replace("SILENT", &silent());
        let mut hub = Hub::with(ADMIN, &file);
        // The user of a build passes through the folder.
        std::fs::set_permissions(hub.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        write_site(&hub.path("site"), &[("index.html", "<p>acme"), ("a.txt", &noise(900_000))]);
        write_site(&hub.path("other"), &[("index.html", "<p>umbrella")]);
        repository(&hub.path("quick"), &[("index.html", "<p>umbrella")]);
        let greedy = hub.path("greedy");
        repository(&greedy, &[("index.html", "<p>acme")]);
        for (branch, build) in BUILDS {
            git(&greedy, &["checkout", "-q", "-b", branch, "main"]);
            commit(&greedy, &[("build.sh", build)], branch);
        }
        let umbrella = hub.create("umbrella", "all", &[]);
        hub.start();
        Neighbours { hub, umbrella }
    }

    /// Takes what stays taken: bundles, links, events and rows.
    fn fill_store(&self) {
        let hub = &self.hub;
        let job = hub.export(&json!({}));
        assert_eq!(hub.ended(&job)["status"], "completed");
        let full = hub.ended(&hub.export(&json!({})));
        assert!(full["error"].as_str().unwrap().contains("limits.organization.bundleBytes"), "{full}");
        (0..50).for_each(|_| drop(hub.link(&job)));
        refused(&hub.ask(&hub.key, "POST", &format!("{JOBS}/{job}/bundle"), None), "limits.organization.links");
        let thousand = |n: usize| -> Vec<Value> {
            (0..1000).map(|event| json!({ "query": format!("{n}-{event}"), "time": "2026-11-01T10:00:00Z" })).collect()
        };
        for n in 0..2 {
            assert_eq!(hub.post(SEARCHES, &batch(&n.to_string(), &thousand(n))).status, 200);
        }
        refused(&hub.post(SEARCHES, &batch("2", &thousand(2))), "limits.organization.events");
        let file = hub.path("s.csv");
        for (first, code) in [(0, 0), (1000, 2)] {
            let lines: Vec<String> = (first..first + 1000).map(|n| format!("i{n},2026-11-01T10:00:00Z\n")).collect();
            std::fs::write(&file, format!("query,time\n{}", lines.concat())).unwrap();
            let ended = end(&mut hub.command(&["import-searches", "docs", file.to_str().unwrap()])).expect(code);
            assert!(code == 0 || ended.stderr.contains("limits.organization.rows"), "{}", ended.stderr);
        }
    }

    /// Takes what builds may have: reaches each bound once, then has one build under way and one that waits.
    fn fill_builds(&self) {
        let hub = &self.hub;
        for (branch, _) in BUILDS {
            let answer = hub.post(&format!("{PREVIEWS}/greedy"), &json!({ "branch": branch }));
            assert_eq!(answer.status, 202, "{}", answer.text());
            let target = format!("{STATUS}/{}", data(&answer)["statusId"].as_str().unwrap());
            if branch.starts_with("build") {
                until("the build is ended", || data(&hub.get(&target))["status"] == "failure");
                let why = hub.get(&target).text();
                assert!(why.contains(&format!("limits.organization.{branch}")), "{branch}: {why}");
            }
        }
        refused(&hub.post(&format!("{PREVIEWS}/greedy"), &json!({ "branch": "main" })), "5 previews a minute");
        until("a build holds some of each", || {
            ["buildProcesses", "buildMemory", "buildDisk"]
                .into_iter()
                .zip([15, 18 * MIB, 7 * MIB])
                .all(|(resource, least)| metric(hub, "in_use", resource) >= least)
        });
        assert_eq!(metric(hub, "in_use", "previewBuilds"), 1, "one place is left for others");
    }

    /// Takes the worker and the time of crawls, and all places of jobs that wait.
    fn fill_queue(&self) {
        let hub = &self.hub;
        let crawl = json!({ "domain": "slow.acme.example" });
        let first = hub.ended(&hub.export(&crawl));
        assert!(first["error"].as_str().unwrap().contains("the crawl was ended after 3 s"), "{first}");
        let full = (0..80).map(|_| hub.post(JOBS, &crawl)).find(|answer| answer.status != 202);
        refused(&full.expect("more jobs than may wait"), "limits.organization.waitingJobs");
        until("a crawl is under way", || metric(hub, "in_use", "crawlTime") > 0);
        assert_eq!(metric(hub, "in_use", "workers"), 1, "one is left for others");
    }

    /// Asks about searches until no more questions are answered.
    fn fill_questions(&self) {
        let full = (0..101).map(|_| self.hub.get(&format!("{SEARCHES}?limit=1"))).find(|answer| answer.status != 200);
        refused(&full.expect("more questions than are answered"), "100 times an hour");
    }

    /// Asks for more of everything until it is told to stop; all of it is refused, or one more job waits.
    fn go_on(&self, is_over: &AtomicBool) {
        while !is_over.load(Ordering::Relaxed) {
            self.hub.post(JOBS, &json!({ "domain": "slow.acme.example" }));
            self.hub.post(&format!("{PREVIEWS}/greedy"), &json!({ "branch": "main" }));
            self.hub.get(SEARCHES);
            self.hub.post(SEARCHES, &batch("again", &searches("moat", 60, 1)));
        }
    }

    fn ask(&self, method: &str, target: &str, body: Option<&Value>) -> Value {
        let answer = self.hub.ask(&self.umbrella, method, target, body);
        assert!(matches!(answer.status, 200 | 202), "{method} {target}: {} {}", answer.status, answer.text());
        data(&answer)
    }

    /// Returns how many of acme's jobs began after umbrella's was accepted and before it began, by the log of the
    /// origin. `accepted` is the length of the log when the job had been accepted.
    fn turns_of_acme(&self, accepted: usize, umbrella_begins: &str, acme_begins: &str) -> usize {
        let log = self.hub.log();
        let before = log[accepted..].split(umbrella_begins).next().unwrap_or_default();
        // It may have begun before its acceptance was read.
        if log[..accepted].contains(umbrella_begins) { 0 } else { before.matches(acme_begins).count() }
    }

    /// Umbrella's export, with a link to its bundle.
    fn export(&self) {
        let started = self.ask("POST", JOBS, Some(&json!({ "domain": "docs.umbrella.example" })));
        let accepted = self.hub.log().len();
        let job = format!("{JOBS}/{}", started["jobId"].as_str().unwrap());
        let mut last = Value::Null;
        until("umbrella's export has ended", || {
            last = self.ask("GET", &job, None);
            last["status"] == "completed" || last["status"] == "failed"
        });
        assert_eq!(last["status"], "completed", "{last}");
        let turns = self.turns_of_acme(accepted, "making docs.umbrella.example", ".acme.example");
        assert!(turns <= 1, "{turns} jobs of acme's were begun before it");
        assert!(self.ask("POST", &format!("{job}/bundle"), None)["bundleUrl"].is_string());
    }

    /// Umbrella's preview.
    fn preview(&self) {
        let started = self.ask("POST", &format!("{PREVIEWS}/guides"), Some(&json!({ "branch": "main" })));
        let accepted = self.hub.log().len();
        let target = format!("{STATUS}/{}", started["statusId"].as_str().unwrap());
        let mut last = Value::Null;
        until("umbrella's preview has ended", || {
            last = self.ask("GET", &target, None);
            last["status"] == "success" || last["status"] == "failure"
        });
        assert_eq!(last["status"], "success", "{last}");
        let turns = self.turns_of_acme(accepted, "building main of guides", "of greedy");
        assert!(turns <= 1, "{turns} previews of acme's were begun before it");
    }

    /// Umbrella's searches, and questions about them.
    fn questions(&self) {
        self.ask("POST", THEIR_SEARCHES, Some(&batch("b", &searches("moat", 60, 1))));
        for _ in 0..5 {
            assert_eq!(self.ask("GET", THEIR_SEARCHES, None)["totalSearches"], 60);
        }
    }
}

#[test]
fn one_organization_takes_all_that_it_can_at_once_and_anothers_work_is_done_in_its_turn() {
    let neighbours = Neighbours::start("");
    let hub = &neighbours.hub;
    neighbours.fill_store();
    neighbours.fill_builds();
    neighbours.fill_questions();
    neighbours.fill_queue();
    let held: Vec<_> = (0..3).map(|_| half_sent(hub, &hub.key, SEARCHES, 8 << 20, false)).collect();
    until("bodies are held", || metric(hub, "in_use", "bodyBytes") >= 24 * MIB);
    refused(&half_sent(hub, &hub.key, SEARCHES, 8 << 20, true).response(false), "limits.organization.bodyBytes");
    for (resource, least) in [("events", 2000), ("rows", 3000), ("links", 50), ("bundleBytes", MIB / 2)] {
        assert!(metric(hub, "in_use", resource) >= least, "{resource} is still taken");
    }
    for resource in ["waitingJobs", "bodyBytes", "events", "bundleBytes", "links"] {
        assert!(metric(hub, "refused_total", resource) > 0, "{resource} was refused to acme");
    }

    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| neighbours.go_on(&is_over));
        // However this ends, the other thread must end as well.
        let work = std::panic::AssertUnwindSafe(|| {
            for _ in 0..2 {
                neighbours.export();
                neighbours.preview();
            }
            neighbours.questions();
        });
        let done = std::panic::catch_unwind(work);
        is_over.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    drop(held);
    assert!(metric(hub, "in_use", "waitingJobs") >= 50, "acme's jobs still wait");
    assert_eq!(metric(hub, "in_use", "previewBuilds"), 1, "acme's build did not have to end");
}

#[test]
fn with_one_worker_a_job_of_another_organization_waits_for_one_of_many_at_most() {
    let neighbours = Neighbours::start("workers = 1");
    neighbours.fill_queue();
    for _ in 0..2 {
        neighbours.export();
    }
    assert!(metric(&neighbours.hub, "in_use", "waitingJobs") >= 50, "acme's jobs still wait");
}

#[test]
fn one_organization_takes_all_data_that_it_can_and_anothers_questions_and_exports_work() {
    let (hub, umbrella) =
        hub("[limits.total]\nrows = 20000\nbundleBytes = \"3MiB\"\n[exports]\nlinkLifetime = \"1h\"\n");
    write_site(&hub.path("site"), &[("a.txt", &noise(900_000))]);
    let held: Vec<_> = (0..3).map(|_| half_sent(&hub, &hub.key, SEARCHES, 8 << 20, false)).collect();
    until("bodies are held", || metric(&hub, "in_use", "bodyBytes") == 3 * (8 << 20));
    let more: Vec<_> = (0..200).map(|_| half_sent(&hub, &hub.key, SEARCHES, 8 << 20, true)).collect();
    for mut connection in more {
        refused(&connection.response(false), "limits.organization.bodyBytes");
    }
    drop(held);
    until("they are gone", || metric(&hub, "in_use", "bodyBytes") == 0);
    let term = |n: usize| json!({ "query": format!("{n:0500}"), "time": "2026-11-01T10:00:00Z" });
    let full = (0..30).find(|n| {
        let events: Vec<Value> = (0..1000).map(|event| term(n * 1000 + event)).collect();
        hub.post(SEARCHES, &batch(&n.to_string(), &events)).status == 429
    });
    assert_eq!(full, Some(18), "all but what is left to others, and a row for each batch");
    for _ in 0..6 {
        hub.ended(&hub.export(&json!({})));
    }
    assert!(metric(&hub, "in_use", "bundleBytes") <= 2 << 20, "a place is left");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..5).for_each(|_| drop(hub.get(&format!("{SEARCHES}?limit=100")))));
        }
        for _ in 0..4 {
            scope.spawn(|| drop(hub.post(JOBS, &json!({ "domain": "docs.acme.example" }))));
        }
        let events = searches("moat", 60, 1);
        let answer = hub.ask(&umbrella, "POST", THEIR_SEARCHES, Some(&batch("b", &events)));
        assert_eq!(answer.status, 200, "{}", answer.text());
        for _ in 0..5 {
            let answer = hub.ask(&umbrella, "GET", THEIR_SEARCHES, None);
            assert_eq!((answer.status, &data(&answer)["totalSearches"]), (200, &json!(60)), "{}", answer.text());
        }
        theirs_are_exported(&hub, &umbrella);
    });
}
