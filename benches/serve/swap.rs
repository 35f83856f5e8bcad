//! Activations of versions in a running daemon by `docwharf activate`: how soon readers get the new version, and how
//! the activation affects other readers.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::check::check;
use crate::common::http::HttpClient;
use crate::common::server_setup::local;
use crate::contenders::{Contender, docwharf_contender};
use crate::docwharf::{DocwharfSetup, NAME};
use crate::load::load;
use crate::options::Options;
use crate::rows::Row;
use crate::site::Site;

/// The page that differs between the versions.
const LABEL_PAGE: &str = "docwharf-bench-version.txt";
const LABELS: [&str; 2] = ["one", "two"];

/// Writes an archive with the site and the label page.
fn write_version(site: &Site, scratch: &Path, label: &str) -> Result<PathBuf, String> {
    let path = scratch.join(format!("{label}.zip"));
    let write = || -> Result<(), Box<dyn std::error::Error>> {
        fs::copy(&site.zip, &path)?;
        let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
        let mut archive = zip::ZipWriter::new_append(file)?;
        archive.start_file(LABEL_PAGE, zip::write::SimpleFileOptions::default())?;
        archive.write_all(label.as_bytes())?;
        archive.finish()?;
        Ok(())
    };
    write().map_err(|error| format!("cannot make {}: {error}", path.display()))?;
    Ok(path)
}

/// A response to the client that never pauses.
struct TimedResponse {
    sent: Instant,
    received: Instant,
    label: Vec<u8>,
}

/// Requests the label page until `stop` is set.
fn request_without_pause(contender: &Contender, stop: &AtomicBool) -> Result<Vec<TimedResponse>, String> {
    let mut responses = Vec::new();
    let mut client = HttpClient::connect(local(contender.setup.port)).map_err(|error| error.to_string())?;
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let response = client
            .get(&format!("/{LABEL_PAGE}"), &[])
            .map_err(|error| format!("while versions are activated: {error}"))?;
        if response.status != 200 {
            return Err(format!("while versions are activated: status {}", response.status));
        }
        responses.push(TimedResponse { sent, received: Instant::now(), label: response.body });
        if !response.is_reusable {
            client = HttpClient::connect(local(contender.setup.port)).map_err(|error| error.to_string())?;
        }
    }
    Ok(responses)
}

/// The times of an `activate` command: before it was started, and after it returned.
struct ActivateCommand {
    started: Instant,
    ended: Instant,
    label: &'static str,
}

fn activate(docwharf: &DocwharfSetup, swap: usize) -> Result<ActivateCommand, String> {
    let label = LABELS[swap % 2];
    let started = Instant::now();
    docwharf.run_command(&["activate", label])?;
    Ok(ActivateCommand { started, ended: Instant::now(), label })
}

/// Milliseconds of an activation: from the command's start to its return; from its start to the first new response; and
/// the longest time possible between the moment of the activation and that response. That moment comes after the
/// request of the last old response.
fn latencies(responses: &[TimedResponse], command: &ActivateCommand) -> Result<[f64; 3], String> {
    let new_label = command.label.as_bytes();
    let first =
        responses.iter().position(|response| response.received > command.started && response.label == new_label);
    let first = first.ok_or_else(|| format!("{} was activated and never served", command.label))?;
    let is_old = |response: &TimedResponse| response.label != new_label;
    let old_after_end = |response: &TimedResponse| response.sent > command.ended && is_old(response);
    if responses[first..].iter().any(is_old) || responses.iter().any(old_after_end) {
        return Err(format!("{} was activated and the version before it was served afterwards", command.label));
    }
    let millis = |start: Instant, end: Instant| end.saturating_duration_since(start).as_secs_f64() * 1e3;
    let received = responses[first].received;
    let last_old_sent = responses[..first].last().map_or(command.started, |response| response.sent);
    Ok([millis(command.started, command.ended), millis(command.started, received), millis(last_old_sent, received)])
}

fn measure_swaps(contender: &Contender, docwharf: &DocwharfSetup, count: usize) -> Result<Value, String> {
    let stop = AtomicBool::new(false);
    let (commands, responses) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| request_without_pause(contender, &stop));
        let commands: Result<Vec<(ActivateCommand, Instant)>, String> = (0..count)
            .map(|swap| {
                let command = activate(docwharf, swap)?;
                std::thread::sleep(Duration::from_millis(20));
                Ok((command, Instant::now()))
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        (commands, reader.join())
    });
    let responses = responses.map_err(|_| "the reader has panicked".to_owned())??;
    let mut figures: [Vec<f64>; 3] = Default::default();
    for (command, next_swap) in &commands? {
        // Only the responses before the next activation belong to this one.
        let end = responses.partition_point(|response| response.received < *next_swap);
        for (figures, figure) in figures.iter_mut().zip(latencies(&responses[..end], command)?) {
            figures.push(figure);
        }
    }
    let [command_ms, seen_ms, flip_ms] = figures;
    Ok(
        json!({ "swaps": count, "asked": responses.len(), "returned_ms": command_ms, "seen_ms": seen_ms, "flip_ms": flip_ms }),
    )
}

/// Measures a load while `action` runs every 100 ms: p50 and p99 in microseconds, and responses a second.
fn load_while(
    site: &Site,
    contender: &Contender,
    count: usize,
    mut action: impl FnMut(usize) -> Result<(), String>,
) -> Result<Value, String> {
    let request = Row::Hot.request(site, local(contender.setup.port), None)?;
    let mean = check(site, &request)?;
    let interval = Duration::from_millis(100);
    let seconds = (interval * count as u32).as_secs() + 2;
    let result = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(Row::Hot, &request, mean, &contender.setup.folder, seconds));
        let started = Instant::now() + Duration::from_millis(300);
        for n in 0..count {
            std::thread::sleep((started + interval * n as u32).saturating_duration_since(Instant::now()));
            action(n)?;
        }
        loading.join().map_err(|_| "the load has panicked".to_owned())?
    })?;
    Ok(json!({ "p50_us": result.p50, "p99_us": result.p99, "rate": result.requests / result.seconds }))
}

pub(crate) fn swap(options: &Options, site: &Site, scratch: &Path) -> Result<Value, String> {
    let count = if options.quick { 10 } else { 100 };
    let archives = [write_version(site, scratch, LABELS[0])?, write_version(site, scratch, LABELS[1])?];
    let archives = [(archives[0].as_path(), LABELS[0]), (archives[1].as_path(), LABELS[1])];
    let contender = docwharf_contender((NAME, &options.program), site, scratch, &archives)?;
    let docwharf = contender.docwharf.clone().ok_or("no docwharf")?;
    let server = contender.start(site)?;
    let latency = measure_swaps(&contender, &docwharf, count)?;
    eprintln!("{}: {count} swaps", site.name);
    // The process of the command uses the load's core. A run with a command that changes nothing shows how much.
    let idle = load_while(site, &contender, count, |_| Ok(()))?;
    let status = load_while(site, &contender, count, |_| docwharf.run_command(&["status"]).map(|_| ()))?;
    let swapping = load_while(site, &contender, count, |n| activate(&docwharf, n).map(|_| ()))?;
    eprintln!("{}: {count} swaps under load", site.name);
    drop(server);
    Ok(json!({ "latency": latency, "still": idle, "status": status, "swapping": swapping }))
}
