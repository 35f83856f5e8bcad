//! All attacks in turn for a long time: against `run` with a new version every minute, then against an origin with
//! three organizations. Memory and disk over time, and what a bystander saw.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::attack::{Attack, Listener, Orders, Pace};
use crate::attacker::Attacker;
use crate::bystander::Bystander;
use crate::common::document::short;
use crate::common::http;
use crate::common::process::anonymous_of;
use crate::measure::{calibrate, question};
use crate::options::Options;
use crate::origin::Origin;
use crate::servers::{self, Identity, Target};
use crate::site::Site;
use crate::{Results, on_sites, report, tenants};

const SAMPLE: Duration = Duration::from_secs(1);
/// How often the site changes, as often as `run` looks.
const EDITION: Duration = Duration::from_mins(1);
/// How often the other organizations want something: an organization has 100 questions an hour.
const WORK: Duration = Duration::from_secs(40);
/// Parts of the whole time, each a row of the table.
const PARTS: u32 = 12;
/// Memory is looked at so long after the last attack.
const AFTER: Duration = Duration::from_secs(30);

/// Memory of a process and what a folder takes on the disk.
#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Instant,
    kib: u64,
    disk: u64,
}

/// Bytes that the files in a folder occupy.
fn disk(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// The daemon that is attacked, and its folder.
#[derive(Debug, Clone)]
struct Watched {
    pid: u32,
    folder: PathBuf,
}

impl Watched {
    fn sample(&self) -> Sample {
        Sample { at: Instant::now(), kib: anonymous_of(&[self.pid]), disk: disk(&self.folder) }
    }

    fn until(&self, is_over: &AtomicBool) -> Vec<Sample> {
        let mut samples = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            samples.push(self.sample());
            std::thread::sleep(SAMPLE);
        }
        samples
    }
}

/// A course of attacks, each as long as the others, until the time is over.
struct Course {
    attacks: Vec<&'static Attack>,
    minutes: f64,
}

impl Course {
    fn new(options: &Options, all: impl Iterator<Item = &'static Attack>, minutes: f64) -> Self {
        Self { attacks: all.filter(|attack| options.wants(attack.name)).collect(), minutes }
    }

    /// Runs it; how many attacks there were. A failure of the attacker ends it.
    fn run(&self, mut orders: impl FnMut(&Attack) -> Result<Orders, String>) -> Result<usize, String> {
        let until = Instant::now() + Duration::from_secs_f64(self.minutes * 60.0);
        let mut count = 0;
        for attack in self.attacks.iter().cycle() {
            if Instant::now() >= until {
                break;
            }
            let sent = Attacker::start(attack, &orders(attack)?)?.report();
            sent.map_err(|why| format!("{}: {why}", attack.name))?;
            count += 1;
        }
        Ok(count)
    }

    /// Runs it while memory and disk are looked at.
    fn watch(
        &self,
        watched: &Watched,
        bystander: Bystander,
        orders: impl FnMut(&Attack) -> Result<Orders, String>,
        beside: impl FnOnce(&AtomicBool) + Send,
    ) -> Result<Value, String> {
        let (begun, is_over) = (Instant::now(), AtomicBool::new(false));
        let idle = watched.sample();
        let (count, samples) = std::thread::scope(|scope| {
            let sampling = scope.spawn(|| watched.until(&is_over));
            scope.spawn(|| beside(&is_over));
            let count = self.run(orders);
            is_over.store(true, Ordering::Relaxed);
            (count, sampling.join())
        });
        let count = count?;
        let samples = samples.map_err(|_| "what looks at the memory has panicked".to_owned())?;
        let (ended, seen) = (Instant::now(), bystander.stop()?);
        std::thread::sleep(AFTER);
        let part = (ended - begun) / PARTS;
        let rows: Vec<Value> = (0..PARTS)
            .map(|n| {
                let (from, to) = (begun + part * n, begun + part * (n + 1));
                let within: Vec<&Sample> =
                    samples.iter().filter(|sample| sample.at >= from && sample.at < to).collect();
                json!({
                    "until_minutes": (to - begun).as_secs_f64() / 60.0,
                    "bystander": seen.between(from, to),
                    "least_kib": within.iter().map(|sample| sample.kib).min(),
                    "most_kib": within.iter().map(|sample| sample.kib).max(),
                    "most_disk": within.iter().map(|sample| sample.disk).max(),
                })
            })
            .collect();
        let after = watched.sample();
        Ok(json!({
            "attacks": count, "rows": rows, "bystander": seen.between(begun, ended),
            "idle_kib": idle.kib, "after_kib": after.kib, "after_disk": after.disk, "is_running": servers::is_running(watched.pid),
        }))
    }
}

fn mib(value: &Value, unit: f64) -> String {
    short(value.as_f64().unwrap_or(f64::NAN) / unit)
}

/// The table of an hour, with a sentence before it.
fn table(measured: &Value, sentence: &str) -> String {
    let mut out = format!(
        "{sentence} {} attacks, one after another; {} MiB of anonymous memory before, {} {} s after the last; {} MiB on the \
         disk then.\n\n\
         | up to minute | bystander: p50, p99 ms | failed | `/livez` failed | memory, MiB: least, most | disk, MiB |\n\
         |---|---|---|---|---|---|\n",
        measured["attacks"],
        mib(&measured["idle_kib"], 1024.0),
        mib(&measured["after_kib"], 1024.0),
        AFTER.as_secs(),
        mib(&measured["after_disk"], 1024.0 * 1024.0),
    );
    for row in measured["rows"].as_array().into_iter().flatten() {
        let seen = &row["bystander"];
        let _ = writeln!(
            out,
            "| {} | {}, {} | {} of {} | {} of {} | {}, {} | {} |",
            mib(&row["until_minutes"], 1.0),
            mib(&seen["p50_ms"], 1.0),
            mib(&seen["p99_ms"], 1.0),
            seen["failed"],
            seen["asked"],
            seen["livez_failed"],
            seen["livez_asked"],
            mib(&row["least_kib"], 1024.0),
            mib(&row["most_kib"], 1024.0),
            mib(&row["most_disk"], 1024.0 * 1024.0),
        );
    }
    out
}

/// Prints the table and puts it away; whether a bystander was let down.
fn keep(results: &mut Results, section: &str, mut measured: Value, sentence: &str) -> Result<bool, String> {
    let table = table(&measured, sentence);
    eprintln!("{table}");
    let why = &measured["bystander"]["first_failure"];
    if why.is_string() {
        eprintln!("the bystander's first failure: {why}");
    }
    let has_failed = report::has_failed(&measured);
    measured["table"] = json!(table);
    results.keep("hour", section, measured)?;
    Ok(has_failed)
}

/// Replaces the source every minute, and notes which editions are served.
fn publish(site: &Site, source: &Path, target: &Target, is_over: &AtomicBool, published: &AtomicUsize) -> usize {
    let (mut served, mut next) = (BTreeSet::new(), Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next += EDITION;
            let number = published.fetch_add(1, Ordering::Relaxed);
            if let Err(why) = site.edition(source, number) {
                eprintln!("{why}");
            }
        }
        if let Ok(answer) = http::once(target.address(Listener::Clear), "/edition.txt", &[])
            && answer.status == 200
        {
            served.insert(answer.body);
        }
        std::thread::sleep(SAMPLE);
    }
    served.len()
}

fn sites(options: &Options, minutes: f64, scratch: &Path, results: &mut Results) -> Result<bool, String> {
    let course = Course::new(options, on_sites(), minutes);
    if course.attacks.is_empty() {
        return Ok(false);
    }
    let site = Site::make(scratch)?;
    let identity = Identity::make(scratch)?;
    let source = scratch.join("source.zip");
    site.edition(&source, 0)?;
    let text = format!("[sync]\ninterval = '1m'\n[staticExport]\nbundleUrl = '{}'", source.display());
    let target = servers::docwharf(&options.program, scratch, &identity, &text)?;
    results.keep("versions", target.name, json!(target.version))?;
    let server = target.start(&site)?;
    let bystander = Bystander::start(question(&target, Listener::Clear, &site, &identity.root)?, target.admin)?;
    let orders = |attack: &Attack| {
        let (address, root) = (target.address(attack.on), identity.root.clone());
        let mut orders = Orders { address, seconds: options.seconds, rate: None, root, key: String::new(), crawled: 0 };
        if attack.pace == Pace::Half {
            orders.rate = calibrate(attack, &orders, &server, 0.0)?;
        }
        Ok(orders)
    };
    let watched = Watched { pid: server.pid(), folder: target.folder().join("store") };
    let (published, served) = (AtomicUsize::new(1), AtomicUsize::new(0));
    let measured = course.watch(&watched, bystander, orders, |is_over| {
        served.store(publish(&site, &source, &target, is_over, &published), Ordering::Relaxed);
    })?;
    let sentence = format!(
        "`run` with a sync every minute: {} editions of the site made, {} of them seen by its readers.",
        published.load(Ordering::Relaxed),
        served.load(Ordering::Relaxed),
    );
    keep(results, "sites", measured, &sentence)
}

/// How often work came to something, and the slowest of it.
fn outcome(worked: &[Value], key: &str, name: &str) -> String {
    let times: Vec<f64> = worked.iter().filter_map(|once| once[key].as_f64()).collect();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    format!("{} of {} {name} (the slowest in {} s)", times.len(), worked.len(), short(slowest))
}

fn origin(options: &Options, minutes: f64, results: &mut Results) -> Result<bool, String> {
    let course = Course::new(options, tenants::ATTACKS.iter(), minutes);
    if course.attacks.is_empty() {
        return Ok(false);
    }
    let origin = Origin::start()?;
    let bystander = Bystander::start(origin.question()?, Some(origin.admin()?))?;
    let watched = Watched { pid: origin.pid()?, folder: origin.hub.path("state") };
    let orders = |_: &Attack| origin.orders(options.seconds);
    let mut worked = Vec::new();
    let measured = course.watch(&watched, bystander, orders, |is_over| {
        while !is_over.load(Ordering::Relaxed) {
            worked.push(origin.work());
            let next = Instant::now() + WORK;
            while Instant::now() < next && !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(SAMPLE);
            }
        }
    })?;
    let sentence = format!(
        "An origin with three organizations, one hostile. Meanwhile the other two got {}, {}, {}.",
        outcome(&worked, "export_s", "exports"),
        outcome(&worked, "preview_s", "previews"),
        outcome(&worked, "question_s", "answers"),
    );
    keep(results, "origin", measured, &sentence)
}

/// Both, one after the other; whether a bystander was let down.
pub(crate) fn hour(options: &Options, minutes: f64, scratch: &Path, results: &mut Results) -> Result<bool, String> {
    Ok(sites(options, minutes, scratch, results)? | origin(options, minutes, results)?)
}
