//! What was measured, as lines while it runs and as tables in BENCHMARKS.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::attack::Attack;
use crate::common::document::{put, short};
use crate::measure::BACK_KIB;
use crate::servers::DOCWHARF;
use crate::{on_sites, tenants};

const PEERS: [&str; 2] = ["nginx", "h2o"];
/// What must hold under every attack.
const MOST_P99_MS: f64 = 100.0;
/// With so many connections at once, and for each one more.
const MOST_MEMORY_KIB: f64 = 128.0 * 1024.0;
const FEW_CONNECTIONS: f64 = 1000.0;
const MOST_MEMORY_OF_CONNECTION_KIB: f64 = 48.0;
const MOST_CPU_RATIO: f64 = 1.5;
/// CPU for each byte is compared where each server took as much as this.
const COMPARED_BYTES: f64 = 1e6;

const MISSED: &str = "**missed**";

/// Attacks of which the servers do not take the same, and why: their CPU for each byte is told, and not judged.
const NOT_ALIKE: &[(&str, &str)] = &[
    (
        "pipelined-pages",
        "docwharf stores pages compressed only, and inflates what is asked for; the peers read it from a file",
    ),
    ("h2-pages", "the same"),
    (
        "huge-heads",
        "docwharf refuses a head after 100 fields (7 KB), nginx after 32 KB, h2o after 400 KB: the cost is that of connections",
    ),
    (
        "h2-goaway",
        "docwharf ends the connection at the first GOAWAY, the peers read on: the cost is that of connections",
    ),
];

fn not_alike(attack: &Attack) -> Option<&'static str> {
    NOT_ALIKE.iter().find(|(name, _)| *name == attack.name).map(|(_, why)| *why)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn sent(cell: &Value) -> f64 {
    number(&cell["sent"]["sent"])
}

/// CPU milliseconds for each MB that the attacker sent.
fn cpu_of_mb(cell: &Value) -> f64 {
    number(&cell["cpu_s"]) * 1e3 / (sent(cell) / 1e6)
}

/// Whether a bystander was let down, or the server ended.
pub(crate) fn has_failed(cell: &Value) -> bool {
    let seen = &cell["bystander"];
    cell["is_running"] == false || number(&seen["failed"]) > 0.0 || number(&seen["livez_failed"]) > 0.0
}

/// A line for whoever watches.
pub(crate) fn print(attack: &str, server: &str, cell: &Value) {
    let seen = &cell["bystander"];
    eprintln!(
        "{attack:20} {server:9} {:8.2} MB {:8.0} units {:8.1} CPU ms/MB; p50 {:.1} p99 {:.1} max {:.0} ms, {} of {} failed{}, livez {} of {}{}; {:.1} MiB, {:.1} after {:.1} s{}",
        sent(cell) / 1e6,
        number(&cell["sent"]["units"]),
        cpu_of_mb(cell),
        number(&seen["p50_ms"]),
        number(&seen["p99_ms"]),
        number(&seen["max_ms"]),
        seen["failed"],
        seen["asked"],
        seen["first_failure"].as_str().map_or(String::new(), |why| format!(" ({why})")),
        seen["livez_failed"],
        seen["livez_asked"],
        seen["livez_first_failure"].as_str().map_or(String::new(), |why| format!(" ({why})")),
        number(&cell["peak_kib"]) / 1024.0,
        number(&cell["after_kib"]) / 1024.0,
        number(&cell["back_s"]),
        if cell["is_running"] == false { "; THE SERVER HAS ENDED" } else { "" },
    );
}

/// A figure, and whether it misses what must hold.
fn judged(text: String, is_met: bool) -> String {
    if is_met { text } else { format!("{text}, {MISSED}") }
}

fn bystander(cell: &Value) -> String {
    let seen = &cell["bystander"];
    let (p99, failed) = (number(&seen["p99_ms"]), number(&seen["failed"]));
    let text = format!("{}; {}; {failed:.0} of {}", short(number(&seen["p50_ms"])), short(p99), seen["asked"]);
    judged(text, p99 <= MOST_P99_MS && failed < 1.0)
}

fn livez(cell: &Value) -> String {
    let seen = &cell["bystander"];
    let failed = number(&seen["livez_failed"]);
    judged(format!("{failed:.0} of {}", seen["livez_asked"]), failed < 1.0)
}

/// How many connections beyond [`FEW_CONNECTIONS`] were open at once.
fn more_connections(cell: &Value) -> f64 {
    let open = cell["sent"]["most_open"].as_f64().unwrap_or(0.0);
    (open - FEW_CONNECTIONS).max(0.0)
}

/// Memory above idle at its peak, and afterwards. Beside the peak, what each connection beyond [`FEW_CONNECTIONS`] has
/// added to what the same attack takes with that many; `few` is its cell.
fn memory(cell: &Value, few: Option<&Value>) -> [String; 2] {
    let (peak, after, more) = (number(&cell["peak_kib"]), number(&cell["after_kib"]), more_connections(cell));
    let each = few.map(|few| (peak - number(&few["peak_kib"])) / more).filter(|each| each.is_finite());
    let each = each.map_or(String::new(), |kib| format!("; {} KiB for each over 1,000", short(kib)));
    let most = MOST_MEMORY_KIB + more * MOST_MEMORY_OF_CONNECTION_KIB;
    [
        judged(format!("{}{each}", short(peak / 1024.0)), peak <= most),
        judged(
            format!("{} after {} s", short(after / 1024.0), short(number(&cell["back_s"]))),
            after <= BACK_KIB as f64,
        ),
    ]
}

/// docwharf's figures under the same attack with [`FEW_CONNECTIONS`], for an attack with 4,000.
fn with_few_connections<'a>(results: &'a Value, attack: &Attack) -> Option<&'a Value> {
    results["attacks"].get(attack.name.strip_suffix("-4000")?)?.get(DOCWHARF)
}

/// docwharf's CPU for each byte over the better peer's; none where somebody took too little to compare.
fn ratio(cells: &Value) -> Option<(f64, &'static str)> {
    if sent(&cells[DOCWHARF]).is_nan() || sent(&cells[DOCWHARF]) < COMPARED_BYTES {
        return None;
    }
    let peers = PEERS.iter().filter(|peer| cells[**peer].is_object());
    let of: Vec<(f64, &'static str)> = peers.map(|peer| (cpu_of_mb(&cells[*peer]), *peer)).collect();
    if of.is_empty() || PEERS.iter().any(|peer| cells[*peer].is_object() && sent(&cells[*peer]) < COMPARED_BYTES) {
        return None;
    }
    let best = of.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((cpu_of_mb(&cells[DOCWHARF]) / best.0, best.1))
}

fn musts(results: &Value) -> String {
    let mut out = String::from(
        "| attack | bystander: p50, p99 ms; failed | `/livez` failed | memory above idle, MiB | and afterwards | CPU a byte, \
         of the better peer |\n|---|---|---|---|---|---|\n",
    );
    for (attack, cells) in measured(results) {
        let cell = &cells[DOCWHARF];
        if !cell.is_object() {
            continue;
        }
        let cpu = ratio(cells).map_or("–".to_owned(), |(ratio, peer)| {
            let text = format!("{} of {peer}", short(ratio));
            if not_alike(attack).is_some() {
                format!("{text}, not alike")
            } else {
                judged(text, ratio <= MOST_CPU_RATIO)
            }
        });
        let [peak, after] = memory(cell, with_few_connections(results, attack));
        let _ =
            writeln!(out, "| {} | {} | {} | {peak} | {after} | {cpu} |", attack.title, bystander(cell), livez(cell));
    }
    out
}

fn measured(results: &Value) -> impl Iterator<Item = (&'static Attack, &Value)> {
    let cells = |attack: &'static Attack| Some((attack, results["attacks"].get(attack.name)?));
    on_sites().filter_map(cells)
}

/// Each server's figures beside one another.
fn field(results: &Value) -> String {
    let servers = [&[DOCWHARF][..], &PEERS].concat();
    let mut out = format!("| attack, connections | {} |\n|---|---|---|---|\n", servers.join(" | "));
    for (attack, cells) in measured(results) {
        let _ = write!(out, "| {}, {} |", attack.title, attack.connections);
        for server in &servers {
            let cell = &cells[*server];
            if !cell.is_object() {
                out.push_str(" – |");
                continue;
            }
            let seen = &cell["bystander"];
            let failed = number(&seen["failed"]);
            let failed = if failed > 0.0 { format!(", {failed:.0} failed") } else { String::new() };
            let ended = if cell["is_running"] == false { ", **ended**" } else { "" };
            let _ = write!(
                out,
                " {} MB; {}; {}; {}{failed}{ended} |",
                short(sent(cell) / 1e6),
                short(cpu_of_mb(cell)),
                short(number(&cell["peak_kib"]) / 1024.0),
                short(number(&seen["p99_ms"])),
            );
        }
        out.push('\n');
    }
    out
}

/// What must hold on an origin: the other organizations' work at twice its usual time and 2 s. Without a bound, because
/// the peers have no organizations: CPU for each MB.
fn origin(results: &Value) -> String {
    let cells = |attack: &'static Attack| Some((attack, results["origin"].get(attack.name)?));
    let mut out = format!(
        "Measured {}: docwharf alone. nginx and h2o have no organizations, so there is no peer to compare its CPU with.\n\n\
         | attack of one organization | bystander: p50, p99 ms; failed | `/livez` failed | memory above idle, MiB | \
         and afterwards | sent, MB | CPU, ms a MB | another's export, s: usual, then | its preview, s | its question, s \
         |\n|---|---|---|---|---|---|---|---|---|---|\n",
        runs(tenants::ATTACKS.iter().filter_map(cells)),
    );
    for (attack, cell) in tenants::ATTACKS.iter().filter_map(cells) {
        let work = |what: &str| {
            let (usual, then) = (number(&cell["usual"][what]), number(&cell["then"][what]));
            judged(format!("{}, {}", short(usual), short(then)), then <= usual * 2.0 + 2.0)
        };
        let [peak, after] = memory(cell, None);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {peak} | {after} | {} | {} | {} | {} | {} |",
            attack.title,
            bystander(cell),
            livez(cell),
            short(sent(cell) / 1e6),
            short(cpu_of_mb(cell)),
            work("export_s"),
            work("preview_s"),
            work("question_s"),
        );
    }
    out
}

/// When each attack was measured and for how long, the most common last: results are kept, so a table may join several
/// runs.
fn runs<'a>(measured: impl Iterator<Item = (&'static Attack, &'a Value)>) -> String {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (attack, cell) in measured {
        let date = cell["date"].as_str().unwrap_or("an unknown day");
        let run = format!("on {date}, {} s", short(number(&cell["seconds"])));
        groups.entry(run).or_default().push(attack.title);
    }
    let mut groups: Vec<(String, Vec<&str>)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, titles)| titles.len());
    let Some((most, _)) = groups.pop() else { return "nothing".to_owned() };
    if groups.is_empty() {
        return format!("{most} of each attack");
    }
    let others: Vec<String> =
        groups.iter().map(|(run, titles)| format!("{run} of each of these: {}; ", titles.join(", "))).collect();
    format!("{}{most} of each other attack", others.concat())
}

fn circumstances(results: &Value) -> String {
    let (run, versions) = (&results["run"], &results["versions"]);
    let cells = measured(results).filter_map(|(attack, cells)| Some((attack, cells.as_object()?.values().next()?)));
    let machine = &run["machine"];
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let of: Vec<String> = [&[DOCWHARF][..], &PEERS].concat().iter().map(|name| text(&versions[*name])).collect();
    format!(
        "Measured {}. {}; {}, {} cores, {} GiB, {}.\n",
        runs(cells),
        of.join(", "),
        text(&machine["cpu"]),
        machine["cores"],
        machine["memory_gib"],
        text(&machine["kernel"]),
    )
}

/// Puts the tables into the package's BENCHMARKS.md.
pub(crate) fn write(results: &Value, package: &Path) -> Result<(), String> {
    let path = package.join("BENCHMARKS.md");
    let io = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let mut text = fs::read_to_string(&path).map_err(io)?;
    if results["attacks"].is_object() {
        let legend = "For each server: MB that the attacker sent; CPU milliseconds for each of them; memory above idle in \
                      MiB; the bystander's p99 in ms.";
        let reasons: String = measured(results)
            .filter_map(|(attack, _)| Some(format!("- Not alike, {}: {}.\n", attack.title, not_alike(attack)?)))
            .collect();
        let new = format!("{}\n{}\n{reasons}\n{legend}\n\n{}", circumstances(results), musts(results), field(results));
        text = put(&text, "abuse", &new)?;
    }
    if results["origin"].is_object() {
        text = put(&text, "abuse-origin", &origin(results))?;
    }
    for (section, mark) in [("sites", "abuse-hour"), ("origin", "abuse-hour-origin")] {
        if let Some(table) = results["hour"][section]["table"].as_str() {
            text = put(&text, mark, table)?;
        }
    }
    fs::write(&path, text).map_err(io)
}
