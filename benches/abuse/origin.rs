//! An origin with three organizations, one of which is hostile: what the other two notice.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Results;
use crate::attack::{Attack, Orders};
use crate::attacker::Attacker;
use crate::bystander::{Bystander, Question};
use crate::common::machine;
use crate::common::place::free_port;
use crate::common::process::times_of;
use crate::measure::{QUIET, Watch};
use crate::options::Options;
use crate::report;
use crate::servers::is_running;
use crate::tenants::{self, BUILT, CRAWLED, FOLDER, domain};
use support::hub::{Hub, JOBS, data, git};
use support::write_site;

/// An origin, its organizations' keys, and the port of the hostile crawled site.
pub(crate) struct Origin {
    pub hub: Hub,
    /// Of the organization whose preview is made.
    umbrella: String,
    hostile: String,
    crawled: u16,
}

/// Health and metrics are on a listener of their own.
const SERVER: &str = "[server]\nlisten = [\"127.0.0.1:0\"]\n[admin]\nlisten = [\"127.0.0.1:0\"]\n";
/// The size of the folder that the hostile organization has exported.
const FOLDER_BYTES: usize = 24 * 1024 * 1024;

fn repository(at: &Path, branches: usize) {
    write_site(at, &[("index.html", "<p>home")]);
    git(at, &["init", "-q", "-b", "main"]);
    git(at, &["add", "-A"]);
    git(at, &["commit", "-q", "-m", "begin"]);
    for n in 0..branches {
        git(at, &["branch", &format!("branch-{n}")]);
    }
}

impl Origin {
    /// acme has a folder, umbrella a repository, evil one of each kind.
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
            support::hub::FOLDER
        );
        let mut hub = Hub::with(SERVER, &file);
        write_site(&hub.path("site"), &[("index.html", "<p>home"), ("a.css", "a{}")]);
        write_site(&hub.path("large"), &[("index.html", &support::text(FOLDER_BYTES))]);
        repository(&hub.path("quick"), 0);
        repository(&hub.path("slow"), 8);
        let (umbrella, hostile) = (hub.create("umbrella", "all", &[]), hub.create("evil", "all", &[]));
        hub.start();
        Ok(Self { hub, umbrella, hostile, crawled })
    }

    pub(crate) fn question(&self) -> Result<Question, String> {
        let address = self.hub.address().parse().map_err(|error| format!("{}: {error}", self.hub.address()))?;
        // Not a job, which is forgotten after enough others.
        let path = "/sites/docs.acme.example/sitemap.xml".to_owned();
        Ok(Question { address, tls: None, path, fields: String::new(), body: None })
    }

    /// The listener that answers `/livez`.
    pub(crate) fn admin(&self) -> Result<SocketAddr, String> {
        let address = self.hub.admin_address();
        address.parse().map_err(|error| format!("{address}: {error}"))
    }

    pub(crate) fn pid(&self) -> Result<u32, String> {
        self.hub.daemon.as_ref().map(support::Daemon::pid).ok_or_else(|| "the origin does not run".to_owned())
    }

    pub(crate) fn orders(&self, seconds: f64) -> Result<Orders, String> {
        let address = self.hub.address().parse().map_err(|error| format!("{}: {error}", self.hub.address()))?;
        let (key, crawled) = (self.hostile.clone(), self.crawled);
        Ok(Orders { address, seconds, rate: None, root: "/".into(), key, crawled })
    }

    /// Seconds of an export of acme's; infinite if it is refused, fails or has no end.
    fn export(&self, until: Instant) -> f64 {
        let begun = Instant::now();
        let started = self.hub.post(JOBS, &json!({ "domain": "docs.acme.example" }));
        let id = data(&started)["jobId"].as_str().unwrap_or_default().to_owned();
        if started.status != 202 {
            return f64::INFINITY;
        }
        let ended = ended(until, || data(&self.hub.get(&format!("{JOBS}/{id}")))["status"].clone());
        if ended == "completed" { begun.elapsed().as_secs_f64() } else { f64::INFINITY }
    }

    /// Seconds of a preview of umbrella's.
    fn preview(&self, until: Instant) -> f64 {
        let begun = Instant::now();
        let body = json!({ "branch": "main" });
        let started = self.hub.ask(&self.umbrella, "POST", "/v1/project/preview/guides", Some(&body));
        if started.status != 202 {
            return f64::INFINITY;
        }
        let id = data(&started)["statusId"].as_str().unwrap_or_default().to_owned();
        let target = format!("/v1/project/update-status/{id}");
        let ended = ended(until, || data(&self.hub.ask(&self.umbrella, "GET", &target, None))["status"].clone());
        if ended == "success" { begun.elapsed().as_secs_f64() } else { f64::INFINITY }
    }

    /// Seconds of a question about searches of acme's.
    fn ask(&self) -> f64 {
        let begun = Instant::now();
        let answer = self.hub.get("/v1/analytics/docs/searches?dateFrom=2026-10-01&dateTo=2026-11-01");
        if answer.status == 200 { begun.elapsed().as_secs_f64() } else { f64::INFINITY }
    }

    /// The other organizations' work, once: the seconds of each, JSON's null where it came to nothing.
    pub(crate) fn work(&self) -> Value {
        let until = Instant::now() + PATIENCE;
        // The tests' helpers panic when they are not answered, which is a result here.
        let outcome = |work: &dyn Fn() -> f64| catch_unwind(AssertUnwindSafe(work)).unwrap_or(f64::INFINITY);
        json!({
            "export_s": outcome(&|| self.export(until)),
            "preview_s": outcome(&|| self.preview(until)),
            "question_s": outcome(&|| self.ask()),
        })
    }
}

/// How long the work of another organization is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// Polls until there is an end.
fn ended(until: Instant, mut status: impl FnMut() -> Value) -> Value {
    loop {
        let now = status();
        if Instant::now() > until || ["completed", "failed", "success", "failure"].iter().any(|end| now == *end) {
            return now;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn measure(attack: &Attack, seconds: f64) -> Result<Value, String> {
    let origin = Origin::start()?;
    let usual = origin.work();
    let mut watch = Watch::new(vec![origin.pid()?]);
    let idle = watch.look();
    let bystander = Bystander::start(origin.question()?, Some(origin.admin()?))?;
    // The process itself: what builds and git take belongs to the organization that has them run.
    let processes = [origin.pid()?];
    let (before, begun) = (times_of(&processes), Instant::now());
    std::thread::sleep(QUIET);
    let quiet = times_of(&processes).since(&before) / begun.elapsed().as_secs_f64();
    let (before, begun) = (times_of(&processes), Instant::now());
    let mut attacker = Attacker::start(attack, &origin.orders(seconds)?)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (sent, then) = std::thread::scope(|scope| {
        let working = scope.spawn(|| {
            // When the attack has taken what it can get.
            std::thread::sleep(Duration::from_secs_f64(seconds / 4.0));
            let then = origin.work();
            is_over.store(true, Ordering::Relaxed);
            then
        });
        let sent = watch.during(&mut attacker);
        (sent, working.join().map_err(|_| "the other organizations' work has panicked".to_owned()))
    });
    let then = then?;
    let cpu = times_of(&processes).since(&before) - quiet * begun.elapsed().as_secs_f64();
    let seen = bystander.stop()?.between(begun, Instant::now());
    let (after, back) = watch.settle(idle);
    let over = |kib: u64| kib.saturating_sub(idle);
    let is_running = is_running(origin.pid()?);
    Ok(json!({
        "sent": sent?, "cpu_s": cpu.max(0.0), "bystander": seen, "usual": usual, "then": then, "idle_kib": idle,
        "peak_kib": over(watch.peak), "after_kib": over(after), "back_s": back, "is_running": is_running,
        "date": machine::today(), "seconds": seconds,
    }))
}

/// Each attack on an origin of its own; whether a bystander was let down.
pub(crate) fn attack_origin(options: &Options, results: &mut Results) -> Result<bool, String> {
    let mut has_failed = false;
    for attack in tenants::ATTACKS.iter().filter(|attack| options.wants(attack.name)) {
        let measured = match measure(attack, options.seconds) {
            Ok(measured) => measured,
            Err(why) => {
                eprintln!("{}: {why}", attack.name);
                has_failed = true;
                continue;
            }
        };
        report::print(attack.name, "origin", &measured);
        eprintln!("{:20} usual {}, then {}", "", measured["usual"], measured["then"]);
        has_failed |= report::has_failed(&measured);
        results.keep("origin", attack.name, measured)?;
    }
    Ok(has_failed)
}
