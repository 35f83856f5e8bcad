//! Swaps of versions in a running daemon, asked for by `docwharf activate`: how soon readers see the new one, and what
//! those who read meanwhile notice.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::check::check;
use crate::common::http::Client;
use crate::common::place::local;
use crate::field::{Contender, docwharf};
use crate::load::load;
use crate::options::Options;
use crate::ours::{NAME, Ours};
use crate::rows::Row;
use crate::site::Site;

/// The page that tells the versions apart.
const MARK: &str = "docwharf-bench-version.txt";
const LABELS: [&str; 2] = ["one", "two"];

/// The site with one page more.
fn edition(site: &Site, scratch: &Path, label: &str) -> Result<PathBuf, String> {
    let path = scratch.join(format!("{label}.zip"));
    let made = || -> Result<(), Box<dyn std::error::Error>> {
        fs::copy(&site.zip, &path)?;
        let file = fs::OpenOptions::new().read(true).write(true).open(&path)?;
        let mut archive = zip::ZipWriter::new_append(file)?;
        archive.start_file(MARK, zip::write::SimpleFileOptions::default())?;
        archive.write_all(label.as_bytes())?;
        archive.finish()?;
        Ok(())
    };
    made().map_err(|error| format!("cannot make {}: {error}", path.display()))?;
    Ok(path)
}

/// A request of the client that never pauses.
struct Asked {
    sent: Instant,
    received: Instant,
    label: Vec<u8>,
}

/// Asks until it is told to stop.
fn ask_without_pause(contender: &Contender, stop: &AtomicBool) -> Result<Vec<Asked>, String> {
    let mut asked = Vec::new();
    let mut client = Client::connect(local(contender.place.port)).map_err(|error| error.to_string())?;
    while !stop.load(Ordering::Relaxed) {
        let sent = Instant::now();
        let answer = client.get(&format!("/{MARK}"), &[]).map_err(|error| format!("while versions swap: {error}"))?;
        if answer.status != 200 {
            return Err(format!("while versions swap: status {}", answer.status));
        }
        asked.push(Asked { sent, received: Instant::now(), label: answer.body });
        if !answer.keeps {
            client = Client::connect(local(contender.place.port)).map_err(|error| error.to_string())?;
        }
    }
    Ok(asked)
}

/// When a verb was typed, and when it returned.
struct Typed {
    begun: Instant,
    ended: Instant,
    label: &'static str,
}

fn activate(ours: &Ours, swap: usize) -> Result<Typed, String> {
    let label = LABELS[swap % 2];
    let begun = Instant::now();
    ours.verb(&["activate", label])?;
    Ok(Typed { begun, ended: Instant::now(), label })
}

/// Milliseconds of a swap: from the verb's start to its return, to the first new answer, and the most that lies between
/// the flip and that answer: the flip comes after the last old answer was asked for.
fn latencies(asked: &[Asked], typed: &Typed) -> Result<[f64; 3], String> {
    let new = typed.label.as_bytes();
    let first = asked.iter().position(|one| one.received > typed.begun && one.label == new);
    let first = first.ok_or_else(|| format!("{} was activated and never seen", typed.label))?;
    let old = |one: &Asked| one.label != new;
    if asked[first..].iter().any(old) || asked.iter().any(|one| one.sent > typed.ended && old(one)) {
        return Err(format!("{} was activated and the version before it served afterwards", typed.label));
    }
    let since = |from: Instant, to: Instant| to.saturating_duration_since(from).as_secs_f64() * 1e3;
    let seen = asked[first].received;
    let last = asked[..first].last().map_or(typed.begun, |one| one.sent);
    Ok([since(typed.begun, typed.ended), since(typed.begun, seen), since(last, seen)])
}

fn swaps(contender: &Contender, ours: &Ours, count: usize) -> Result<Value, String> {
    let stop = AtomicBool::new(false);
    let (typed, asked) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| ask_without_pause(contender, &stop));
        let typed: Result<Vec<(Typed, Instant)>, String> = (0..count)
            .map(|swap| {
                let typed = activate(ours, swap)?;
                std::thread::sleep(Duration::from_millis(20));
                Ok((typed, Instant::now()))
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        (typed, reader.join())
    });
    let asked = asked.map_err(|_| "the reader has panicked".to_owned())??;
    let mut figures: [Vec<f64>; 3] = Default::default();
    for (typed, until) in &typed? {
        // Only what was asked before the next swap belongs to this one.
        let end = asked.partition_point(|one| one.received < *until);
        for (figures, figure) in figures.iter_mut().zip(latencies(&asked[..end], typed)?) {
            figures.push(figure);
        }
    }
    let [returned, seen, flip] = figures;
    Ok(json!({ "swaps": count, "asked": asked.len(), "returned_ms": returned, "seen_ms": seen, "flip_ms": flip }))
}

/// p50 and p99 of a load while something is done again and again; microseconds, and answers a second.
fn meanwhile(
    site: &Site,
    contender: &Contender,
    count: usize,
    mut act: impl FnMut(usize) -> Result<(), String>,
) -> Result<Value, String> {
    let ask = Row::Hot.ask(site, local(contender.place.port), None)?;
    let mean = check(site, &ask)?;
    let every = Duration::from_millis(100);
    let seconds = (every * count as u32).as_secs() + 2;
    let seen = std::thread::scope(|scope| {
        let loading = scope.spawn(|| load(Row::Hot, &ask, mean, &contender.place.folder, seconds));
        let begun = Instant::now() + Duration::from_millis(300);
        for n in 0..count {
            std::thread::sleep((begun + every * n as u32).saturating_duration_since(Instant::now()));
            act(n)?;
        }
        loading.join().map_err(|_| "the load has panicked".to_owned())?
    })?;
    Ok(json!({ "p50_us": seen.p50, "p99_us": seen.p99, "rate": seen.requests / seen.seconds }))
}

pub(crate) fn swap(options: &Options, site: &Site, scratch: &Path) -> Result<Value, String> {
    let count = if options.quick { 10 } else { 100 };
    let (one, two) = (edition(site, scratch, LABELS[0])?, edition(site, scratch, LABELS[1])?);
    let contender = docwharf((NAME, &options.program), site, scratch, &[(&one, LABELS[0]), (&two, LABELS[1])])?;
    let ours = contender.ours.clone().ok_or("no docwharf")?;
    let server = contender.start(site)?;
    let latency = swaps(&contender, &ours, count)?;
    eprintln!("{}: {count} swaps", site.name);
    // The verb's own process takes the load's core; the same with a verb that changes nothing tells that apart.
    let still = meanwhile(site, &contender, count, |_| Ok(()))?;
    let status = meanwhile(site, &contender, count, |_| ours.verb(&["status"]).map(|_| ()))?;
    let swapping = meanwhile(site, &contender, count, |n| activate(&ours, n).map(|_| ()))?;
    eprintln!("{}: {count} swaps under load", site.name);
    drop(server);
    Ok(json!({ "latency": latency, "still": still, "status": status, "swapping": swapping }))
}
