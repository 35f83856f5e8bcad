//! docwharf compared with the servers that people would use instead: CPU time per request, requests a second, latency,
//! memory, start and activation. Each response is checked first.
//!
//! `cargo bench --bench serve -- SITE…`, where a SITE is a folder with `html/` and `site.zip` (`.ci/extra corpus` makes
//! them); `.ci/extra speed` does all of it. Servers have one worker and run on one core, the load on another; rounds
//! are interleaved. BENCHMARKS.md says what is compared, and how.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own

mod common;

#[path = "serve/check.rs"]
mod check;
#[path = "serve/contenders.rs"]
mod contenders;
#[path = "serve/docwharf.rs"]
mod docwharf;
#[path = "serve/load.rs"]
mod load;
#[path = "serve/measure.rs"]
mod measure;
#[path = "serve/memory.rs"]
mod memory;
#[path = "serve/options.rs"]
mod options;
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

/// The stored results. Results that are not measured again stay.
fn stored_results(path: &Path) -> Value {
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

fn measure(options: &Options, site: &Site, is_pinned: bool) -> Result<(), String> {
    let scratch = tempfile::Builder::new().prefix("serve-").tempdir_in(&options.out);
    let scratch = scratch.map_err(|error| format!("cannot write to {}: {error}", options.out.display()))?;
    let path = options.out.join(format!("serve-{}.json", site.name));
    let mut results = stored_results(&path);
    let contenders = contenders::set_up(options, site, scratch.path())?;
    let versions: Map<String, Value> =
        contenders.iter().map(|contender| (contender.name.to_owned(), json!(contender.version))).collect();
    results["site"] = json!({
        "name": site.name, "files": site.files, "hot": [site.hot.path, site.hot.size],
        "asset": [site.asset.path, site.asset.size], "random": [site.random.len(), site.mean_of_random()],
    });
    results["machine"] = machine::describe(is_pinned);
    results["date"] = json!(machine::today());
    merge(&mut results, "versions", Value::Object(versions));
    // First, because servers start later at a port where many connections were just closed (BENCHMARKS.md).
    if options.parts.contains(&"start") {
        results["start"] = start::start(options, site, &contenders)?;
        save(&path, &results)?;
    }
    if !options.rows.is_empty() {
        let rows = measure::rows(options, site, &contenders)?;
        merge(&mut results, "rows", rows);
        results["settings"] = json!({ "rounds": options.rounds, "seconds": options.seconds });
    }
    save(&path, &results)?;
    for part in options.parts.iter().filter(|part| **part != "start") {
        results[*part] = match *part {
            "swap" => swap::swap(options, site, scratch.path())?,
            _ => memory::memory(options, site, &contenders)?,
        };
        save(&path, &results)?;
    }
    print(&results);
    Ok(())
}

/// Prints the medians of the rows, and the ratios to the best peer.
fn print(results: &Value) {
    for &row in rows::Row::ALL {
        let best_peer = report::best_peer(results, row).unwrap_or_default();
        let best_peer = report::Cell::of_server(results, row, best_peer).values("cpu_us");
        println!("\n{}", row.title());
        for (name, _) in results["rows"][row.name()].as_object().into_iter().flatten() {
            let cell = report::Cell::of_server(results, row, name);
            let median = |figure: &str| stats::median(&cell.values(figure));
            let [cpu, rate, p50, p99] = ["cpu_us", "rate", "p50_us", "p99_us"].map(median);
            print!("  {name:18} {cpu:7.2} us {rate:8.0}/s  p50 {p50:6.0} us  p99 {p99:6.0} us");
            match stats::ratio(&cell.values("cpu_us"), &best_peer) {
                Some(ratio) => {
                    println!("  {:.2} of the best peer ({:.2} to {:.2})", ratio.median, ratio.least, ratio.greatest);
                }
                None => println!(),
            }
        }
        for pair in [
            [docwharf::NAME, docwharf::EARLIER],
            [docwharf::WITH_TAG, docwharf::NAME],
            [docwharf::WITH_RECORDING, docwharf::NAME],
            [docwharf::WITH_ASSISTANTS, docwharf::NAME],
        ] {
            let [one, other] = pair.map(|name| report::Cell::of_server(results, row, name).values("cpu_us"));
            if let Some(ratio) = stats::ratio(&one, &other) {
                let [name, to] = pair;
                println!("  {name}: {:.3} of {to} ({:.3} to {:.3})", ratio.median, ratio.least, ratio.greatest);
            }
        }
    }
}

fn run(mut options: Options) -> Result<(), String> {
    // cargo starts benches in the package's folder.
    std::fs::create_dir_all(&options.out).map_err(|error| format!("cannot make {}: {error}", options.out.display()))?;
    options.out = std::path::absolute(&options.out).map_err(|error| error.to_string())?;
    options.program = std::path::absolute(&options.program).map_err(|error| error.to_string())?;
    options.before = options.before.map(std::path::absolute).transpose().map_err(|error| error.to_string())?;
    // Before the pinning, because the copies for the peers are made on all cores.
    let sites = options.sites.iter().map(|folder| Site::open(folder, &options.out)).collect::<Result<Vec<_>, _>>()?;
    let is_pinned = process::can_pin();
    process::raise_file_limit();
    if is_pinned {
        process::pin(process::LOAD_CORE)?;
    } else {
        eprintln!("one core: servers and load share it, so the results are only relative");
    }
    for site in &sites {
        measure(&options, site, is_pinned)?;
    }
    if options.report {
        report::report(&options.out, Path::new(env!("CARGO_MANIFEST_DIR")))?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let peer_names: Vec<&str> = peers::PEERS.iter().map(|peer| peer.name).collect();
    let result = Options::parse(std::env::args().skip(1), &peer_names).and_then(run);
    if let Err(reason) = result {
        eprintln!("serve: {reason}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
