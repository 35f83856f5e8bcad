//! docwharf against the servers that people would otherwise use: CPU a request, requests a second, latency, memory,
//! start and swap, each answer checked first.
//!
//! `cargo bench --bench serve -- SITE…`, where a SITE is a folder with `html/` and `site.zip` (`.ci/extra corpus` makes
//! them); `.ci/extra speed` does all of it. Servers have one worker and run on one core, the load on another; rounds
//! are interleaved. BENCHMARKS.md says what is compared, and how.

mod common;

#[path = "serve/check.rs"]
mod check;
#[path = "serve/contenders.rs"]
mod field;
#[path = "serve/load.rs"]
mod load;
#[path = "serve/measure.rs"]
mod measure;
#[path = "serve/memory.rs"]
mod memory;
#[path = "serve/options.rs"]
mod options;
#[path = "serve/ours.rs"]
mod ours;
#[path = "serve/peers.rs"]
mod peers;
#[path = "serve/report.rs"]
mod report;
#[path = "serve/rows.rs"]
mod rows;
#[path = "serve/site.rs"]
mod site;
#[path = "serve/start.rs"]
mod start;
#[path = "serve/svg.rs"]
mod svg;
#[path = "serve/swap.rs"]
mod swap;

use std::path::Path;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use common::{machine, process, stats};
use options::Options;
use site::Site;

/// Results are kept so far: what is not measured again stays.
fn kept(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    serde_json::from_str(&text).ok().filter(Value::is_object).unwrap_or_else(|| json!({}))
}

fn merge(results: &mut Value, key: &str, new: Value) {
    if let (Some(old), Value::Object(new)) = (results[key].as_object_mut(), &new) {
        old.extend(new.clone());
    } else {
        results[key] = new;
    }
}

fn save(path: &Path, results: &Value) -> Result<(), String> {
    let text = serde_json::to_string_pretty(results).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

fn measure(options: &Options, site: &Site, pinned: bool) -> Result<(), String> {
    let scratch = tempfile::Builder::new().prefix("serve-").tempdir_in(&options.out);
    let scratch = scratch.map_err(|error| format!("cannot write to {}: {error}", options.out.display()))?;
    let path = options.out.join(format!("serve-{}.json", site.name));
    let mut results = kept(&path);
    let field = field::set_up(options, site, scratch.path())?;
    let versions: Map<String, Value> = field.iter().map(|one| (one.name.to_owned(), json!(one.version))).collect();
    results["site"] = json!({
        "name": site.name, "files": site.files, "hot": [site.hot.path, site.hot.size],
        "asset": [site.asset.path, site.asset.size], "random": [site.random.len(), site.mean_of_random()],
    });
    results["machine"] = machine::describe(pinned);
    results["date"] = json!(machine::today());
    merge(&mut results, "versions", Value::Object(versions));
    // First: at a port where many connections were closed a moment ago all of them start later (BENCHMARKS.md).
    if options.parts.contains(&"start") {
        results["start"] = start::start(options, site, &field)?;
        save(&path, &results)?;
    }
    if !options.rows.is_empty() {
        let rows = measure::rows(options, site, &field)?;
        merge(&mut results, "rows", rows);
        results["settings"] = json!({ "rounds": options.rounds, "seconds": options.seconds });
    }
    save(&path, &results)?;
    for part in options.parts.iter().filter(|part| **part != "start") {
        results[*part] = match *part {
            "swap" => swap::swap(options, site, scratch.path())?,
            _ => memory::memory(options, site, &field)?,
        };
        save(&path, &results)?;
    }
    print(&results);
    Ok(())
}

/// Medians of what has been measured, in the order of the rows.
fn print(results: &Value) {
    for &row in rows::Row::ALL {
        let best = report::best(results, row).unwrap_or_default();
        let best = report::Cell::of(results, row, best).all("cpu_us");
        println!("\n{}", row.title());
        for (name, _) in results["rows"][row.name()].as_object().into_iter().flatten() {
            let cell = report::Cell::of(results, row, name);
            let of = |figure: &str| stats::median(&cell.all(figure));
            let [cpu, rate, p50, p99] = ["cpu_us", "rate", "p50_us", "p99_us"].map(of);
            print!("  {name:18} {cpu:7.2} us {rate:8.0}/s  p50 {p50:6.0} us  p99 {p99:6.0} us");
            match stats::ratio(&cell.all("cpu_us"), &best) {
                Some(of) => println!("  {:.2} of the best peer ({:.2} to {:.2})", of.median, of.least, of.greatest),
                None => println!(),
            }
        }
        let [now, before] = [ours::NAME, ours::BEFORE].map(|name| report::Cell::of(results, row, name).all("cpu_us"));
        if let Some(of) = stats::ratio(&now, &before) {
            println!("  {:.3} of {} ({:.3} to {:.3})", of.median, ours::BEFORE, of.least, of.greatest);
        }
    }
}

fn work(mut options: Options) -> Result<(), String> {
    // cargo starts benches in the package's folder.
    std::fs::create_dir_all(&options.out).map_err(|error| format!("cannot make {}: {error}", options.out.display()))?;
    options.out = std::path::absolute(&options.out).map_err(|error| error.to_string())?;
    options.program = std::path::absolute(&options.program).map_err(|error| error.to_string())?;
    options.before = options.before.map(std::path::absolute).transpose().map_err(|error| error.to_string())?;
    // Copying them for the peers takes all cores.
    let sites = options.sites.iter().map(|folder| Site::open(folder, &options.out)).collect::<Result<Vec<_>, _>>()?;
    let pinned = process::can_pin();
    process::many_files();
    if pinned {
        process::pin(process::LOAD_CORE)?;
    } else {
        eprintln!("one core: servers and load share it, so this compares, but does not say how fast they are");
    }
    for site in &sites {
        measure(&options, site, pinned)?;
    }
    if options.report {
        report::report(&options.out, Path::new(env!("CARGO_MANIFEST_DIR")))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let known: Vec<&str> = peers::PEERS.iter().map(|peer| peer.name).collect();
    let done = Options::parse(std::env::args().skip(1), &known).and_then(work);
    if let Err(why) = done {
        eprintln!("serve: {why}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
