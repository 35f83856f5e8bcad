//! An origin with three organizations, one of which is hostile: the effect on the other two.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Results;
use crate::attack::{Attack, AttackParameters};
use crate::attacker::Attacker;
use crate::bystander::{Bystander, BystanderRequest};
use crate::common::machine;
use crate::common::process::cpu_times_of;
use crate::common::server_setup::free_port;
use crate::measure::{IDLE_TIME, MemoryWatch};
use crate::options::Options;
use crate::organizations::{self, BUILT, CRAWLED, FOLDER, domain};
use crate::report;
use crate::servers::is_running;
use support::test_origin::{JOBS_PATH, TestOrigin, git, json_body};
use support::write_site;

/// An origin, its organizations' keys, and the port of the hostile crawled site.
pub(crate) struct AttackedOrigin {
    pub server: TestOrigin,
    /// The key of the organization whose preview is made.
    umbrella_key: String,
    hostile_key: String,
    crawled: u16,
}

/// Health and metrics have a separate listener.
const SERVER: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n";
/// The size of the folder that the hostile organization has exported.
const FOLDER_BYTES: usize = 24 * 1024 * 1024;

fn make_repository(folder: &Path, branches: usize) {
    write_site(folder, &[("index.html", "<p>home")]);
    git(folder, &["init", "-q", "-b", "main"]);
    git(folder, &["add", "-A"]);
    git(folder, &["commit", "-q", "-m", "begin"]);
    for n in 0..branches {
        git(folder, &["branch", &format!("branch-{n}")]);
    }
}

impl AttackedOrigin {
    /// Starts the origin: `acme` has a folder project, `umbrella` a Git project, `evil` a project of each kind.
    pub(crate) fn start() -> Result<Self, String> {
        let crawled = free_port()?;
        let evil = [
            (FOLDER, "directory = \"large\"".to_owned()),
            (CRAWLED, format!("crawl = \"http://127.0.0.1:{crawled}/\"")),
            (BUILT, "git = \"slow\"\nbuild = \"sleep 8\"\noutput = \".\"\nbuildTime = \"15s\"".to_owned()),
        ];
        let project = |(id, source): &(&str, String)| {
            format!("[[organization.project]]\nid = \"{id}\"\ndomain = \"{}\"\n{source}\n", domain(id))
        };
        let evil = evil.iter().map(project).collect::<Vec<_>>().concat();
        let file = format!(
            "{}[[organization]]\nid = \"umbrella\"\n[[organization.project]]\nid = \"guides\"\n\
             domain = \"guides.umbrella.example\"\ngit = \"quick\"\nbuild = \"true\"\noutput = \".\"\n\
             [[organization]]\nid = \"evil\"\n{evil}",
            support::test_origin::FOLDER_PROJECT
        );
        let mut origin = TestOrigin::with_server_section(SERVER, &file);
        write_site(&origin.path("site"), &[("index.html", "<p>home"), ("a.css", "a{}")]);
        write_site(&origin.path("large"), &[("index.html", &support::sample_text(FOLDER_BYTES))]);
        make_repository(&origin.path("quick"), 0);
        make_repository(&origin.path("slow"), 8);
        let (umbrella_key, hostile_key) =
            (origin.create_key("umbrella", "all", &[]), origin.create_key("evil", "all", &[]));
        origin.start();
        Ok(Self { server: origin, umbrella_key, hostile_key, crawled })
    }

    pub(crate) fn bystander_request(&self) -> Result<BystanderRequest, String> {
        let address = self.server.address().parse().map_err(|error| format!("{}: {error}", self.server.address()))?;
        // A job would be removed after enough newer ones.
        let path = "/sites/docs.acme.example/sitemap.xml".to_owned();
        Ok(BystanderRequest { address, tls: None, path, fields: String::new(), body: None })
    }

    /// The listener that answers `/livez`.
    pub(crate) fn admin(&self) -> Result<SocketAddr, String> {
        let address = self.server.admin_address();
        address.parse().map_err(|error| format!("{address}: {error}"))
    }

    pub(crate) fn pid(&self) -> Result<u32, String> {
        self.server.daemon.as_ref().map(support::Daemon::pid).ok_or_else(|| "the origin does not run".to_owned())
    }

    pub(crate) fn parameters(&self, seconds: f64) -> Result<AttackParameters, String> {
        let address = self.server.address().parse().map_err(|error| format!("{}: {error}", self.server.address()))?;
        let (key, crawled) = (self.hostile_key.clone(), self.crawled);
        Ok(AttackParameters { address, seconds, rate: None, root: "/".into(), key, crawled })
    }

    /// The seconds of an export of `acme`. Infinite if it is refused, fails or does not end.
    fn export_seconds(&self, deadline: Instant) -> f64 {
        let started = Instant::now();
        let response = self.server.post(JOBS_PATH, &json!({ "domain": "docs.acme.example" }));
        let id = json_body(&response)["jobId"].as_str().unwrap_or_default().to_owned();
        if response.status != 202 {
            return f64::INFINITY;
        }
        let ended =
            wait_for_end(deadline, || json_body(&self.server.get(&format!("{JOBS_PATH}/{id}")))["status"].clone());
        if ended == "completed" { started.elapsed().as_secs_f64() } else { f64::INFINITY }
    }

    /// The seconds of a preview of `umbrella`.
    fn preview_seconds(&self, deadline: Instant) -> f64 {
        let started = Instant::now();
        let body = json!({ "branch": "main" });
        let response = self.server.send_request(&self.umbrella_key, "POST", "/v1/project/preview/guides", Some(&body));
        if response.status != 202 {
            return f64::INFINITY;
        }
        let id = json_body(&response)["statusId"].as_str().unwrap_or_default().to_owned();
        let target = format!("/v1/project/update-status/{id}");
        let ended = wait_for_end(deadline, || {
            json_body(&self.server.send_request(&self.umbrella_key, "GET", &target, None))["status"].clone()
        });
        if ended == "success" { started.elapsed().as_secs_f64() } else { f64::INFINITY }
    }

    /// The seconds of an analytics query of `acme`.
    fn analytics_seconds(&self) -> f64 {
        let started = Instant::now();
        let response = self.server.get("/v1/analytics/docs/searches?dateFrom=2026-10-01&dateTo=2026-11-01");
        if response.status == 200 { started.elapsed().as_secs_f64() } else { f64::INFINITY }
    }

    /// Runs the other organizations' work once: the seconds of each kind, `null` in JSON if it failed.
    pub(crate) fn run_other_work(&self) -> Value {
        let deadline = Instant::now() + OTHER_WORK_TIMEOUT;
        // The test helpers panic without a response, which is a valid result here.
        let seconds_of =
            |run_other_work: &dyn Fn() -> f64| catch_unwind(AssertUnwindSafe(run_other_work)).unwrap_or(f64::INFINITY);
        json!({
            "export_s": seconds_of(&|| self.export_seconds(deadline)),
            "preview_s": seconds_of(&|| self.preview_seconds(deadline)),
            "question_s": seconds_of(&|| self.analytics_seconds()),
        })
    }
}

/// The time limit of another organization's work.
const OTHER_WORK_TIMEOUT: Duration = Duration::from_mins(1);

/// Polls until the job ends, or until the deadline.
fn wait_for_end(deadline: Instant, mut status: impl FnMut() -> Value) -> Value {
    loop {
        let status_now = status();
        if Instant::now() > deadline
            || ["completed", "failed", "success", "failure"].iter().any(|end| status_now == *end)
        {
            return status_now;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn measure(attack: &Attack, seconds: f64) -> Result<Value, String> {
    let origin = AttackedOrigin::start()?;
    let before_attack = origin.run_other_work();
    let mut watch = MemoryWatch::new(vec![origin.pid()?]);
    let idle = watch.sample();
    let bystander = Bystander::start(origin.bystander_request()?, Some(origin.admin()?))?;
    // Only the origin's process: builds and Git count for the organization that runs them.
    let processes = [origin.pid()?];
    let (before, started) = (cpu_times_of(&processes), Instant::now());
    std::thread::sleep(IDLE_TIME);
    let idle_cpu = cpu_times_of(&processes).since(&before) / started.elapsed().as_secs_f64();
    let (before, started) = (cpu_times_of(&processes), Instant::now());
    let mut attacker = Attacker::start(attack, &origin.parameters(seconds)?)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (sent, during_attack) = std::thread::scope(|scope| {
        let other_work = scope.spawn(|| {
            // Starts when the attack has had time to take its resources.
            std::thread::sleep(Duration::from_secs_f64(seconds / 4.0));
            let during_attack = origin.run_other_work();
            is_over.store(true, Ordering::Relaxed);
            during_attack
        });
        let sent = watch.sample_while_running(&mut attacker);
        (sent, other_work.join().map_err(|_| "the other organizations' work has panicked".to_owned()))
    });
    let during_attack = during_attack?;
    let cpu = cpu_times_of(&processes).since(&before) - idle_cpu * started.elapsed().as_secs_f64();
    let bystander_report = bystander.stop()?.summarize(started, Instant::now());
    let (after, return_seconds) = watch.wait_until_returned(idle);
    let above_idle = |kib: u64| kib.saturating_sub(idle);
    let is_running = is_running(origin.pid()?);
    Ok(json!({
        "sent": sent?, "cpu_s": cpu.max(0.0), "bystander": bystander_report, "usual": before_attack,
        "then": during_attack, "idle_kib": idle,
        "peak_kib": above_idle(watch.peak), "after_kib": above_idle(after), "back_s": return_seconds,
        "is_running": is_running,
        "date": machine::today(), "seconds": seconds,
    }))
}

/// Runs each attack on a separate origin. Returns whether a request of a bystander failed.
pub(crate) fn attack_origin(options: &Options, results: &mut Results) -> Result<bool, String> {
    let mut has_failed = false;
    for attack in organizations::ATTACKS.iter().filter(|attack| options.wants(attack.name)) {
        let measurement = match measure(attack, options.seconds) {
            Ok(measurement) => measurement,
            Err(reason) => {
                eprintln!("{}: {reason}", attack.name);
                has_failed = true;
                continue;
            }
        };
        report::print(attack.name, "origin", &measurement);
        eprintln!("{:20} usual {}, then {}", "", measurement["usual"], measurement["then"]);
        has_failed |= report::has_failed(&measurement);
        results.store_result("origin", attack.name, measurement)?;
    }
    Ok(has_failed)
}
