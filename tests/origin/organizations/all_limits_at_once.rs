//! One organization uses up all of its limits at once, and the jobs of another organization are completed in their
//! turn.
//!
//! These tests measure no times. `benches/abuse.rs` measures for each attack how long the jobs of the other
//! organization take, and `benches/abuse/report.rs` checks that against the limit (twice the usual time and 2 s).

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::data::{
    SEARCHES_PATH, SERVER_SECTION, UMBRELLA_SEARCHES_PATH, assert_refused, batch, export_umbrella, metric, random_text,
    send_head_only, start_origin, start_silent_server,
};
use crate::management_api::search_events;
use support::test_origin::{JOBS_PATH, TestOrigin, commit, git, json_body, repository};
use support::{run_to_end, until_done_in_background, write_site};

const PREVIEW_PATH: &str = "/v1/project/preview";
const STATUS_PATH: &str = "/v1/project/update-status";
const MIB: u64 = 1 << 20;

/// Limits that would take hours or gigabytes to reach are lower than by default. As by default, the total is twice the
/// limit of an organization. The other limits (`workers`, `waitingJobs`, `previewBuilds`, `bodyBytes` and those without
/// a key) are at their defaults.
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

/// Projects of acme: a folder, a crawled site and a repository. Projects of umbrella: a folder and a repository.
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

/// Branches of the repository of acme, with their builds. Each of the first three exceeds the limit of one resource and
/// is ended. The fourth uses some of each resource until the test ends, and the fifth waits behind it.
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

/// An origin with two organizations, of which acme uses up its limits.
struct TwoOrganizations {
    origin: TestOrigin,
    /// The key of umbrella.
    umbrella_key: String,
}

impl TwoOrganizations {
    /// Starts an origin with a line for `[exports]`.
    fn start(workers: &str) -> TwoOrganizations {
        let file = LIMITS.replace("WORKERS", workers) + &PROJECTS.replace("SILENT", &start_silent_server());
        let mut origin = TestOrigin::with_server_section(SERVER_SECTION, &file);
        // The user of a build must be able to traverse the folder.
        std::fs::set_permissions(origin.dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        write_site(&origin.path("site"), &[("index.html", "<p>acme"), ("a.txt", &random_text(900_000))]);
        write_site(&origin.path("other"), &[("index.html", "<p>umbrella")]);
        repository(&origin.path("quick"), &[("index.html", "<p>umbrella")]);
        let greedy = origin.path("greedy");
        repository(&greedy, &[("index.html", "<p>acme")]);
        for (branch, build) in BUILDS {
            git(&greedy, &["checkout", "-q", "-b", branch, "main"]);
            commit(&greedy, &[("build.sh", build)], branch);
        }
        let umbrella_key = origin.create_key("umbrella", "all", &[]);
        origin.start();
        TwoOrganizations { origin, umbrella_key }
    }

    /// Uses up the limits of stored objects: bundles, links, events and rows.
    fn fill_store(&self) {
        let origin = &self.origin;
        let job = origin.export(&json!({}));
        assert_eq!(origin.wait_for_job(&job)["status"], "completed");
        let failed = origin.wait_for_job(&origin.export(&json!({})));
        assert!(failed["error"].as_str().unwrap().contains("limits.organization.bundleBytes"), "{failed}");
        (0..50).for_each(|_| drop(origin.link(&job)));
        assert_refused(
            &origin.send_request(&origin.key, "POST", &format!("{JOBS_PATH}/{job}/bundle"), None),
            "limits.organization.links",
        );
        let thousand_events = |n: usize| -> Vec<Value> {
            (0..1000).map(|event| json!({ "query": format!("{n}-{event}"), "time": "2026-11-01T10:00:00Z" })).collect()
        };
        for n in 0..2 {
            assert_eq!(origin.post(SEARCHES_PATH, &batch(&n.to_string(), &thousand_events(n))).status, 200);
        }
        assert_refused(&origin.post(SEARCHES_PATH, &batch("2", &thousand_events(2))), "limits.organization.events");
        let file = origin.path("s.csv");
        for (first, code) in [(0, 0), (1000, 2)] {
            let lines: Vec<String> = (first..first + 1000).map(|n| format!("i{n},2026-11-01T10:00:00Z\n")).collect();
            std::fs::write(&file, format!("query,time\n{}", lines.concat())).unwrap();
            let ended =
                run_to_end(&mut origin.command(&["import-searches", "docs", file.to_str().unwrap()])).expect(code);
            assert!(code == 0 || ended.stderr.contains("limits.organization.rows"), "{}", ended.stderr);
        }
    }

    /// Reaches each limit of builds once, then leaves one build running and one waiting.
    fn fill_builds(&self) {
        let origin = &self.origin;
        for (branch, _) in BUILDS {
            let response = origin.post(&format!("{PREVIEW_PATH}/greedy"), &json!({ "branch": branch }));
            assert_eq!(response.status, 202, "{}", response.text());
            let target = format!("{STATUS_PATH}/{}", json_body(&response)["statusId"].as_str().unwrap());
            if branch.starts_with("build") {
                until_done_in_background("the build is ended", || {
                    json_body(&origin.get(&target))["status"] == "failure"
                });
                let text = origin.get(&target).text();
                assert!(text.contains(&format!("limits.organization.{branch}")), "{branch}: {text}");
            }
        }
        // The builds may have taken longer than a minute.
        let full = (0..6)
            .map(|_| origin.post(&format!("{PREVIEW_PATH}/greedy"), &json!({ "branch": "main" })))
            .find(|response| response.status != 202);
        assert_refused(&full.expect("a preview above the limit is refused"), "5 previews a minute");
        until_done_in_background("a build uses some of each resource", || {
            ["buildProcesses", "buildMemory", "buildDisk"]
                .into_iter()
                .zip([15, 18 * MIB, 7 * MIB])
                .all(|(resource, minimum)| metric(origin, "in_use", resource) >= minimum)
        });
        assert_eq!(metric(origin, "in_use", "previewBuilds"), 1, "one build is reserved for other organizations");
    }

    /// Uses up the worker and the crawl time, and the limit of waiting jobs.
    fn fill_queue(&self) {
        let origin = &self.origin;
        let crawl = json!({ "domain": "slow.acme.example" });
        let first = origin.wait_for_job(&origin.export(&crawl));
        assert!(first["error"].as_str().unwrap().contains("the crawl was ended after 3 s"), "{first}");
        let full = (0..80).map(|_| origin.post(JOBS_PATH, &crawl)).find(|response| response.status != 202);
        assert_refused(&full.expect("a job above the limit is refused"), "limits.organization.waitingJobs");
        until_done_in_background("a crawl is running", || metric(origin, "in_use", "crawlTime") > 0);
        assert_eq!(metric(origin, "in_use", "workers"), 1, "one worker is reserved for other organizations");
    }

    /// Sends queries of searches until the rate limit refuses one.
    fn fill_queries(&self) {
        let full = (0..101)
            .map(|_| self.origin.get(&format!("{SEARCHES_PATH}?limit=1")))
            .find(|response| response.status != 200);
        assert_refused(&full.expect("a query above the limit is refused"), "100 analytics queries an hour");
    }

    /// Sends more requests of every kind until `is_stopped` is true. They are refused, or one more job waits.
    fn send_more(&self, is_stopped: &AtomicBool) {
        while !is_stopped.load(Ordering::Relaxed) {
            self.origin.post(JOBS_PATH, &json!({ "domain": "slow.acme.example" }));
            self.origin.post(&format!("{PREVIEW_PATH}/greedy"), &json!({ "branch": "main" }));
            self.origin.get(SEARCHES_PATH);
            self.origin.post(SEARCHES_PATH, &batch("again", &search_events("moat", 60, 1)));
        }
    }

    /// Sends a request of umbrella, which must succeed, and returns the body of the response.
    fn send(&self, method: &str, target: &str, body: Option<&Value>) -> Value {
        let response = self.origin.send_request(&self.umbrella_key, method, target, body);
        assert!(matches!(response.status, 200 | 202), "{method} {target}: {} {}", response.status, response.text());
        json_body(&response)
    }

    /// Returns the number of jobs of acme that started between the acceptance and the start of a job of umbrella,
    /// according to the log of the origin. `accepted` is the length of the log at the acceptance.
    fn acme_starts_before(&self, accepted: usize, umbrella_start: &str, acme_start: &str) -> usize {
        let log = self.origin.log();
        let before = log[accepted..].split(umbrella_start).next().unwrap_or_default();
        // The job may have started before the length of the log was read.
        if log[..accepted].contains(umbrella_start) { 0 } else { before.matches(acme_start).count() }
    }

    /// Exports the folder of umbrella, and creates a link to the bundle.
    fn export_umbrella_site(&self) {
        let started = self.send("POST", JOBS_PATH, Some(&json!({ "domain": "docs.umbrella.example" })));
        let accepted = self.origin.log().len();
        let job = format!("{JOBS_PATH}/{}", started["jobId"].as_str().unwrap());
        let mut last = Value::Null;
        until_done_in_background("the export of umbrella has ended", || {
            last = self.send("GET", &job, None);
            last["status"] == "completed" || last["status"] == "failed"
        });
        assert_eq!(last["status"], "completed", "{last}");
        let acme_starts =
            self.acme_starts_before(accepted, "making the bundle of docs.umbrella.example", ".acme.example");
        assert!(acme_starts <= 1, "{acme_starts} jobs of acme started before it");
        assert!(self.send("POST", &format!("{job}/bundle"), None)["bundleUrl"].is_string());
    }

    /// Deploys the preview of umbrella.
    fn preview_umbrella_branch(&self) {
        let started = self.send("POST", &format!("{PREVIEW_PATH}/guides"), Some(&json!({ "branch": "main" })));
        let accepted = self.origin.log().len();
        let target = format!("{STATUS_PATH}/{}", started["statusId"].as_str().unwrap());
        let mut last = Value::Null;
        until_done_in_background("the preview of umbrella has ended", || {
            last = self.send("GET", &target, None);
            last["status"] == "success" || last["status"] == "failure"
        });
        assert_eq!(last["status"], "success", "{last}");
        let acme_starts = self.acme_starts_before(accepted, "building main of guides", "of greedy");
        assert!(acme_starts <= 1, "{acme_starts} previews of acme started before it");
    }

    /// Sends searches of umbrella, and queries them.
    fn query_umbrella_searches(&self) {
        self.send("POST", UMBRELLA_SEARCHES_PATH, Some(&batch("b", &search_events("moat", 60, 1))));
        for _ in 0..5 {
            assert_eq!(self.send("GET", UMBRELLA_SEARCHES_PATH, None)["totalSearches"], 60);
        }
    }
}

#[test]
fn organization_at_all_of_its_limits_does_not_block_jobs_of_another() {
    let organizations = TwoOrganizations::start("");
    let origin = &organizations.origin;
    organizations.fill_store();
    organizations.fill_builds();
    organizations.fill_queries();
    organizations.fill_queue();
    let held: Vec<_> = (0..3).map(|_| send_head_only(origin, &origin.key, SEARCHES_PATH, 8 << 20, false)).collect();
    until_done_in_background("bodies are held", || metric(origin, "in_use", "bodyBytes") >= 24 * MIB);
    assert_refused(
        &send_head_only(origin, &origin.key, SEARCHES_PATH, 8 << 20, true).response(false),
        "limits.organization.bodyBytes",
    );
    for (resource, minimum) in [("events", 2000), ("rows", 3000), ("links", 50), ("bundleBytes", MIB / 2)] {
        assert!(metric(origin, "in_use", resource) >= minimum, "{resource} is still used");
    }
    for resource in ["waitingJobs", "bodyBytes", "events", "bundleBytes", "links"] {
        assert!(metric(origin, "refused_total", resource) > 0, "{resource} was refused to acme");
    }

    let is_stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| organizations.send_more(&is_stopped));
        // The other thread must end even if an assertion fails.
        let umbrella_jobs = std::panic::AssertUnwindSafe(|| {
            for _ in 0..2 {
                organizations.export_umbrella_site();
                organizations.preview_umbrella_branch();
            }
            organizations.query_umbrella_searches();
        });
        let result = std::panic::catch_unwind(umbrella_jobs);
        is_stopped.store(true, Ordering::Relaxed);
        if let Err(panic) = result {
            std::panic::resume_unwind(panic);
        }
    });
    drop(held);
    assert!(metric(origin, "in_use", "waitingJobs") >= 50, "the jobs of acme are still waiting");
    assert_eq!(metric(origin, "in_use", "previewBuilds"), 1, "the build of acme is still running");
}

#[test]
fn single_worker_lets_another_organizations_job_wait_for_at_most_one_job() {
    let organizations = TwoOrganizations::start("workers = 1");
    organizations.fill_queue();
    for _ in 0..2 {
        organizations.export_umbrella_site();
    }
    assert!(metric(&organizations.origin, "in_use", "waitingJobs") >= 50, "the jobs of acme are still waiting");
}

#[test]
fn organization_at_its_data_limits_does_not_block_queries_and_exports_of_another() {
    let (origin, umbrella) =
        start_origin("[limits.total]\nrows = 20000\nbundleBytes = \"3MiB\"\n[exports]\nlinkLifetime = \"1h\"\n");
    write_site(&origin.path("site"), &[("a.txt", &random_text(900_000))]);
    let held: Vec<_> = (0..3).map(|_| send_head_only(&origin, &origin.key, SEARCHES_PATH, 8 << 20, false)).collect();
    until_done_in_background("bodies are held", || metric(&origin, "in_use", "bodyBytes") == 3 * (8 << 20));
    let connections: Vec<_> =
        (0..200).map(|_| send_head_only(&origin, &origin.key, SEARCHES_PATH, 8 << 20, true)).collect();
    for mut connection in connections {
        assert_refused(&connection.response(false), "limits.organization.bodyBytes");
    }
    drop(held);
    until_done_in_background("the bodies are discarded", || metric(&origin, "in_use", "bodyBytes") == 0);
    let term = |n: usize| json!({ "query": format!("{n:0500}"), "time": "2026-11-01T10:00:00Z" });
    let full = (0..30).find(|n| {
        let events: Vec<Value> = (0..1000).map(|event| term(n * 1000 + event)).collect();
        origin.post(SEARCHES_PATH, &batch(&n.to_string(), &events)).status == 429
    });
    assert_eq!(full, Some(18), "all rows but the reserve for others, and a row for each batch");
    for _ in 0..6 {
        origin.wait_for_job(&origin.export(&json!({})));
    }
    assert!(metric(&origin, "in_use", "bundleBytes") <= 2 << 20, "the reserve for others is free");
    std::thread::scope(|scope| {
        for _ in 0..16 {
            scope.spawn(|| (0..5).for_each(|_| drop(origin.get(&format!("{SEARCHES_PATH}?limit=100")))));
        }
        for _ in 0..4 {
            scope.spawn(|| drop(origin.post(JOBS_PATH, &json!({ "domain": "docs.acme.example" }))));
        }
        let events = search_events("moat", 60, 1);
        let response = origin.send_request(&umbrella, "POST", UMBRELLA_SEARCHES_PATH, Some(&batch("b", &events)));
        assert_eq!(response.status, 200, "{}", response.text());
        for _ in 0..5 {
            let response = origin.send_request(&umbrella, "GET", UMBRELLA_SEARCHES_PATH, None);
            assert_eq!(
                (response.status, &json_body(&response)["totalSearches"]),
                (200, &json!(60)),
                "{}",
                response.text()
            );
        }
        export_umbrella(&origin, &umbrella);
    });
}
