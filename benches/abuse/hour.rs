//! All attacks in turn for a long time: on `run` with a new version every minute, then on an origin with three
//! organizations. Measures memory, disk usage and the responses to a bystander over time.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::attack::{Attack, AttackParameters, Listener, Pace};
use crate::attacker::Attacker;
use crate::bystander::Bystander;
use crate::common::document::format_number;
use crate::common::http;
use crate::common::process::anonymous_kib;
use crate::measure::{bystander_request, calibrate};
use crate::options::Options;
use crate::origin::AttackedOrigin;
use crate::servers::{self, Target, TestCertificate};
use crate::site::Site;
use crate::{Results, organizations, report, site_attacks};

const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// The time between two versions of the site, equal to `sync.interval`.
const VERSION_INTERVAL: Duration = Duration::from_mins(1);
/// The time between two runs of the other organizations' work: an organization has 100 analytics queries an hour.
const OTHER_WORK_INTERVAL: Duration = Duration::from_secs(40);
/// The number of rows of the table, each for an equal part of the time.
const TABLE_ROWS: u32 = 12;
/// The time between the last attack and the last sample of memory.
const PAUSE_BEFORE_LAST_SAMPLE: Duration = Duration::from_secs(30);

/// Memory of a process and disk usage of a folder.
#[derive(Debug, Clone, Copy)]
struct Sample {
    time: Instant,
    kib: u64,
    disk_bytes: u64,
}

/// The disk usage of the files in a folder, in bytes.
fn disk_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// The attacked daemon and its folder.
#[derive(Debug, Clone)]
struct WatchedProcess {
    pid: u32,
    folder: PathBuf,
}

impl WatchedProcess {
    fn sample(&self) -> Sample {
        Sample { time: Instant::now(), kib: anonymous_kib(&[self.pid]), disk_bytes: disk_bytes(&self.folder) }
    }

    fn sample_until(&self, is_over: &AtomicBool) -> Vec<Sample> {
        let mut samples = Vec::new();
        while !is_over.load(Ordering::Relaxed) {
            samples.push(self.sample());
            std::thread::sleep(SAMPLE_INTERVAL);
        }
        samples
    }
}

/// Attacks of equal duration, one after another, until the time is over.
struct AttackSequence {
    attacks: Vec<&'static Attack>,
    minutes: f64,
}

impl AttackSequence {
    fn new(options: &Options, attacks: impl Iterator<Item = &'static Attack>, minutes: f64) -> Self {
        Self { attacks: attacks.filter(|attack| options.wants(attack.name)).collect(), minutes }
    }

    /// Runs the attacks and returns their number. A failure of the attacker ends the sequence.
    fn run(&self, mut parameters: impl FnMut(&Attack) -> Result<AttackParameters, String>) -> Result<usize, String> {
        let deadline = Instant::now() + Duration::from_secs_f64(self.minutes * 60.0);
        let mut count = 0;
        for attack in self.attacks.iter().cycle() {
            if Instant::now() >= deadline {
                break;
            }
            let sent = Attacker::start(attack, &parameters(attack)?)?.report();
            sent.map_err(|reason| format!("{}: {reason}", attack.name))?;
            count += 1;
        }
        Ok(count)
    }

    /// Runs the attacks while memory and disk usage are sampled.
    fn watch(
        &self,
        watched: &WatchedProcess,
        bystander: Bystander,
        parameters: impl FnMut(&Attack) -> Result<AttackParameters, String>,
        beside: impl FnOnce(&AtomicBool) + Send,
    ) -> Result<Value, String> {
        let (started, is_over) = (Instant::now(), AtomicBool::new(false));
        let idle = watched.sample();
        let (count, samples) = std::thread::scope(|scope| {
            let sampling = scope.spawn(|| watched.sample_until(&is_over));
            scope.spawn(|| beside(&is_over));
            let count = self.run(parameters);
            is_over.store(true, Ordering::Relaxed);
            (count, sampling.join())
        });
        let count = count?;
        let samples = samples.map_err(|_| "the sampling thread has panicked".to_owned())?;
        let (ended, report) = (Instant::now(), bystander.stop()?);
        std::thread::sleep(PAUSE_BEFORE_LAST_SAMPLE);
        let part = (ended - started) / TABLE_ROWS;
        let rows: Vec<Value> = (0..TABLE_ROWS)
            .map(|n| {
                let (from, to) = (started + part * n, started + part * (n + 1));
                let within: Vec<&Sample> =
                    samples.iter().filter(|sample| sample.time >= from && sample.time < to).collect();
                json!({
                    "until_minutes": (to - started).as_secs_f64() / 60.0,
                    "bystander": report.summarize(from, to),
                    "least_kib": within.iter().map(|sample| sample.kib).min(),
                    "most_kib": within.iter().map(|sample| sample.kib).max(),
                    "most_disk": within.iter().map(|sample| sample.disk_bytes).max(),
                })
            })
            .collect();
        let after = watched.sample();
        Ok(json!({
            "attacks": count, "rows": rows, "bystander": report.summarize(started, ended),
            "idle_kib": idle.kib, "after_kib": after.kib, "after_disk": after.disk_bytes,
            "is_running": servers::is_running(watched.pid),
        }))
    }
}

fn number_in_unit(value: &Value, unit: f64) -> String {
    format_number(value.as_f64().unwrap_or(f64::NAN) / unit)
}

/// The table of the results, after an introductory sentence.
fn table(measured: &Value, sentence: &str) -> String {
    let mut out = format!(
        "{sentence} {} attacks, one after another; {} MiB of anonymous memory before, {} {} s after the last; {} MiB on the \
         disk then.\n\n\
         | up to minute | bystander: p50, p99 ms | failed | `/livez` failed | memory, MiB: least, most | disk, MiB |\n\
         |---|---|---|---|---|---|\n",
        measured["attacks"],
        number_in_unit(&measured["idle_kib"], 1024.0),
        number_in_unit(&measured["after_kib"], 1024.0),
        PAUSE_BEFORE_LAST_SAMPLE.as_secs(),
        number_in_unit(&measured["after_disk"], 1024.0 * 1024.0),
    );
    for row in measured["rows"].as_array().into_iter().flatten() {
        let report = &row["bystander"];
        let _ = writeln!(
            out,
            "| {} | {}, {} | {} of {} | {} of {} | {}, {} | {} |",
            number_in_unit(&row["until_minutes"], 1.0),
            number_in_unit(&report["p50_ms"], 1.0),
            number_in_unit(&report["p99_ms"], 1.0),
            report["failed"],
            report["asked"],
            report["livez_failed"],
            report["livez_asked"],
            number_in_unit(&row["least_kib"], 1024.0),
            number_in_unit(&row["most_kib"], 1024.0),
            number_in_unit(&row["most_disk"], 1024.0 * 1024.0),
        );
    }
    out
}

/// Prints and stores the table. Returns whether a request of the bystander failed.
fn print_and_store(results: &mut Results, section: &str, mut measured: Value, sentence: &str) -> Result<bool, String> {
    let table = table(&measured, sentence);
    eprintln!("{table}");
    let reason = &measured["bystander"]["first_failure"];
    if reason.is_string() {
        eprintln!("the bystander's first failure: {reason}");
    }
    let has_failed = report::has_failed(&measured);
    measured["table"] = json!(table);
    results.store_result("hour", section, measured)?;
    Ok(has_failed)
}

/// Replaces the source every minute. Returns the number of versions that were served.
fn publish(site: &Site, source: &Path, target: &Target, is_over: &AtomicBool, version_count: &AtomicUsize) -> usize {
    let (mut served_versions, mut next) = (BTreeSet::new(), Instant::now());
    while !is_over.load(Ordering::Relaxed) {
        if Instant::now() >= next {
            next += VERSION_INTERVAL;
            let number = version_count.fetch_add(1, Ordering::Relaxed);
            if let Err(reason) = site.write_version(source, number) {
                eprintln!("{reason}");
            }
        }
        if let Ok(answer) = http::get_once(target.address(Listener::Clear), "/version.txt", &[])
            && answer.status == 200
        {
            served_versions.insert(answer.body);
        }
        std::thread::sleep(SAMPLE_INTERVAL);
    }
    served_versions.len()
}

fn attack_site(options: &Options, minutes: f64, scratch: &Path, results: &mut Results) -> Result<bool, String> {
    let course = AttackSequence::new(options, site_attacks(), minutes);
    if course.attacks.is_empty() {
        return Ok(false);
    }
    let site = Site::make(scratch)?;
    let certificate_files = TestCertificate::make(scratch)?;
    let source = scratch.join("source.zip");
    site.write_version(&source, 0)?;
    let text = format!("[sync]\ninterval = '1m'\n[staticExport]\nbundleUrl = '{}'", source.display());
    let target = servers::docwharf(&options.program, scratch, &certificate_files, &text)?;
    results.store_result("versions", target.name, json!(target.version))?;
    let server = target.start(&site)?;
    let bystander =
        Bystander::start(bystander_request(&target, Listener::Clear, &site, &certificate_files.root)?, target.admin)?;
    let parameters = |attack: &Attack| {
        let (address, root) = (target.address(attack.listener), certificate_files.root.clone());
        let mut parameters =
            AttackParameters { address, seconds: options.seconds, rate: None, root, key: String::new(), crawled: 0 };
        if attack.pace == Pace::HalfCore {
            parameters.rate = calibrate(attack, &parameters, &server, 0.0)?;
        }
        Ok(parameters)
    };
    let watched = WatchedProcess { pid: server.pid(), folder: target.folder().join("store") };
    let (version_count, served_versions) = (AtomicUsize::new(1), AtomicUsize::new(0));
    let measured = course.watch(&watched, bystander, parameters, |is_over| {
        served_versions.store(publish(&site, &source, &target, is_over, &version_count), Ordering::Relaxed);
    })?;
    let sentence = format!(
        "`run` with a sync every minute: {} versions of the site made, {} of them seen by its readers.",
        version_count.load(Ordering::Relaxed),
        served_versions.load(Ordering::Relaxed),
    );
    print_and_store(results, "sites", measured, &sentence)
}

/// The number of successful runs of a kind of work, and the slowest.
fn outcome(outcomes: &[Value], key: &str, name: &str) -> String {
    let cpu_times: Vec<f64> = outcomes.iter().filter_map(|get_once| get_once[key].as_f64()).collect();
    let slowest = cpu_times.iter().copied().fold(0.0, f64::max);
    format!("{} of {} {name} (the slowest in {} s)", cpu_times.len(), outcomes.len(), format_number(slowest))
}

fn attack_origin(options: &Options, minutes: f64, results: &mut Results) -> Result<bool, String> {
    let course = AttackSequence::new(options, organizations::ATTACKS.iter(), minutes);
    if course.attacks.is_empty() {
        return Ok(false);
    }
    let origin = AttackedOrigin::start()?;
    let bystander = Bystander::start(origin.bystander_request()?, Some(origin.admin()?))?;
    let watched = WatchedProcess { pid: origin.pid()?, folder: origin.server.path("state") };
    let parameters = |_: &Attack| origin.parameters(options.seconds);
    let mut outcomes = Vec::new();
    let measured = course.watch(&watched, bystander, parameters, |is_over| {
        while !is_over.load(Ordering::Relaxed) {
            outcomes.push(origin.run_other_work());
            let next = Instant::now() + OTHER_WORK_INTERVAL;
            while Instant::now() < next && !is_over.load(Ordering::Relaxed) {
                std::thread::sleep(SAMPLE_INTERVAL);
            }
        }
    })?;
    let sentence = format!(
        "An origin with three organizations, one hostile. Meanwhile the other two got {}, {}, {}.",
        outcome(&outcomes, "export_s", "exports"),
        outcome(&outcomes, "preview_s", "previews"),
        outcome(&outcomes, "question_s", "answers"),
    );
    print_and_store(results, "origin", measured, &sentence)
}

/// Attacks the site, then the origin. Returns whether a request of a bystander failed.
pub(crate) fn run_hour(options: &Options, minutes: f64, scratch: &Path, results: &mut Results) -> Result<bool, String> {
    Ok(attack_site(options, minutes, scratch, results)? | attack_origin(options, minutes, results)?)
}
