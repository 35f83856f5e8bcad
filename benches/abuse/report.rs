//! Results as lines during the run and as tables in BENCHMARKS.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::attack::Attack;
use crate::common::document::{format_number, replace_table};
use crate::measure::RETURNED_KIB;
use crate::servers::DOCWHARF;
use crate::{organizations, site_attacks};

const PEERS: [&str; 2] = ["nginx", "h2o"];
/// The required p99 of the bystander under each attack.
const MAX_P99_MS: f64 = 100.0;
/// The allowed memory above idle with up to 1,000 connections, and for each further connection.
const MAX_MEMORY_KIB: f64 = 128.0 * 1024.0;
const FEW_CONNECTIONS: f64 = 1000.0;
const MAX_MEMORY_PER_CONNECTION_KIB: f64 = 48.0;
const MAX_CPU_RATIO: f64 = 1.5;
/// CPU time per byte is compared only if each server has received so many bytes.
const MIN_COMPARED_BYTES: f64 = 1e6;

const MISSED: &str = "**missed**";

/// The reason for attacks that request large pages without a coding.
const PAGES_REASON: &str =
    "docwharf stores pages compressed only, and inflates what is asked for; the peers read it from a file";

/// Attacks of which the servers accept different amounts, and the reason: CPU time per byte is shown without a verdict.
const NOT_COMPARABLE: &[(&str, &str)] = &[
    ("pipelined-pages", PAGES_REASON),
    ("h2-pages", PAGES_REASON),
    ("searches", "the peers have no search, and answer with 404"),
    (
        "huge-heads",
        "docwharf refuses a head after 100 fields (7 KB), nginx after 32 KB, h2o after 400 KB: the cost is that of connections",
    ),
    (
        "h2-goaway",
        "docwharf ends the connection at the first GOAWAY, the peers read on: the cost is that of connections",
    ),
    (
        "tls-renegotiation",
        "docwharf ends the connection at the second attempt to renegotiate, nginx refuses each and reads on: the cost is \
         that of handshakes",
    ),
];

fn not_comparable_reason(attack: &Attack) -> Option<&'static str> {
    NOT_COMPARABLE.iter().find(|(name, _)| *name == attack.name).map(|(_, reason)| *reason)
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn sent(cell: &Value) -> f64 {
    number(&cell["sent"]["sent"])
}

/// CPU milliseconds per MB that the attacker has sent.
fn cpu_of_mb(cell: &Value) -> f64 {
    number(&cell["cpu_s"]) * 1e3 / (sent(cell) / 1e6)
}

/// Whether a request of the bystander failed, or the server ended.
pub(crate) fn has_failed(cell: &Value) -> bool {
    let bystander_report = &cell["bystander"];
    cell["is_running"] == false
        || number(&bystander_report["failed"]) > 0.0
        || number(&bystander_report["livez_failed"]) > 0.0
}

/// Prints one result as a line.
pub(crate) fn print(attack: &str, server: &str, cell: &Value) {
    let bystander_report = &cell["bystander"];
    eprintln!(
        "{attack:20} {server:9} {:8.2} MB {:8.0} units {:8.1} CPU ms/MB; p50 {:.1} p99 {:.1} max {:.0} ms, {} of {} failed{}, livez {} of {}{}; {:.1} MiB, {:.1} after {:.1} s{}",
        sent(cell) / 1e6,
        number(&cell["sent"]["units"]),
        cpu_of_mb(cell),
        number(&bystander_report["p50_ms"]),
        number(&bystander_report["p99_ms"]),
        number(&bystander_report["max_ms"]),
        bystander_report["failed"],
        bystander_report["asked"],
        bystander_report["first_failure"].as_str().map_or(String::new(), |reason| format!(" ({reason})")),
        bystander_report["livez_failed"],
        bystander_report["livez_asked"],
        bystander_report["livez_first_failure"].as_str().map_or(String::new(), |reason| format!(" ({reason})")),
        number(&cell["peak_kib"]) / 1024.0,
        number(&cell["after_kib"]) / 1024.0,
        number(&cell["back_s"]),
        if cell["is_running"] == false { "; THE SERVER HAS ENDED" } else { "" },
    );
}

/// The text, with a mark if the requirement is missed.
fn with_verdict(text: String, is_met: bool) -> String {
    if is_met { text } else { format!("{text}, {MISSED}") }
}

fn bystander(cell: &Value) -> String {
    let bystander_report = &cell["bystander"];
    let (p99, failed) = (number(&bystander_report["p99_ms"]), number(&bystander_report["failed"]));
    let text = format!(
        "{}; {}; {failed:.0} of {}",
        format_number(number(&bystander_report["p50_ms"])),
        format_number(p99),
        bystander_report["asked"]
    );
    with_verdict(text, p99 <= MAX_P99_MS && failed < 1.0)
}

fn livez(cell: &Value) -> String {
    let bystander_report = &cell["bystander"];
    let failed = number(&bystander_report["livez_failed"]);
    with_verdict(format!("{failed:.0} of {}", bystander_report["livez_asked"]), failed < 1.0)
}

/// The number of connections above [`FEW_CONNECTIONS`] that were open at the same time.
fn connections_above_few(cell: &Value) -> f64 {
    let open = cell["sent"]["most_open"].as_f64().unwrap_or(0.0);
    (open - FEW_CONNECTIONS).max(0.0)
}

/// Memory above idle: the peak, and the value afterwards. `cell_with_few` is the result of the same attack with
/// [`FEW_CONNECTIONS`]: from it follows the memory of each further connection.
fn memory(cell: &Value, cell_with_few: Option<&Value>) -> [String; 2] {
    let (peak, after, connections) =
        (number(&cell["peak_kib"]), number(&cell["after_kib"]), connections_above_few(cell));
    let per_connection = cell_with_few
        .map(|cell_with_few| (peak - number(&cell_with_few["peak_kib"])) / connections)
        .filter(|per_connection| per_connection.is_finite());
    let per_connection =
        per_connection.map_or(String::new(), |kib| format!("; {} KiB for each over 1,000", format_number(kib)));
    let max_kib = MAX_MEMORY_KIB + connections * MAX_MEMORY_PER_CONNECTION_KIB;
    [
        with_verdict(format!("{}{per_connection}", format_number(peak / 1024.0)), peak <= max_kib),
        with_verdict(
            format!("{} after {} s", format_number(after / 1024.0), format_number(number(&cell["back_s"]))),
            after <= RETURNED_KIB as f64,
        ),
    ]
}

/// docwharf's figures under the same attack with [`FEW_CONNECTIONS`], for an attack with 4,000.
fn with_few_connections<'a>(results: &'a Value, attack: &Attack) -> Option<&'a Value> {
    results["attacks"].get(attack.name.strip_suffix("-4000")?)?.get(DOCWHARF)
}

/// The ratio of docwharf's CPU time per byte to that of the better peer. `None` if a server has received too few bytes.
fn ratio(cells: &Value) -> Option<(f64, &'static str)> {
    if sent(&cells[DOCWHARF]).is_nan() || sent(&cells[DOCWHARF]) < MIN_COMPARED_BYTES {
        return None;
    }
    let peers = PEERS.iter().filter(|peer| cells[**peer].is_object());
    let peer_costs: Vec<(f64, &'static str)> = peers.map(|peer| (cpu_of_mb(&cells[*peer]), *peer)).collect();
    if peer_costs.is_empty()
        || PEERS.iter().any(|peer| cells[*peer].is_object() && sent(&cells[*peer]) < MIN_COMPARED_BYTES)
    {
        return None;
    }
    let best = peer_costs.into_iter().min_by(|a, b| a.0.total_cmp(&b.0))?;
    Some((cpu_of_mb(&cells[DOCWHARF]) / best.0, best.1))
}

fn requirements_table(results: &Value) -> String {
    let mut out = String::from(
        "| attack | bystander: p50, p99 ms; failed | `/livez` failed | memory above idle, MiB | and afterwards | CPU a byte, \
         of the better peer |\n|---|---|---|---|---|---|\n",
    );
    for (attack, cells) in measured_attacks(results) {
        let cell = &cells[DOCWHARF];
        if !cell.is_object() {
            continue;
        }
        let cpu = ratio(cells).map_or("–".to_owned(), |(ratio, peer)| {
            let text = format!("{} of {peer}", format_number(ratio));
            if not_comparable_reason(attack).is_some() {
                format!("{text}, not alike")
            } else {
                with_verdict(text, ratio <= MAX_CPU_RATIO)
            }
        });
        let [peak, after] = memory(cell, with_few_connections(results, attack));
        let _ =
            writeln!(out, "| {} | {} | {} | {peak} | {after} | {cpu} |", attack.title, bystander(cell), livez(cell));
    }
    out
}

fn measured_attacks(results: &Value) -> impl Iterator<Item = (&'static Attack, &Value)> {
    let cells = |attack: &'static Attack| Some((attack, results["attacks"].get(attack.name)?));
    site_attacks().filter_map(cells)
}

/// The results of all servers, attack by attack.
fn servers_table(results: &Value) -> String {
    let servers = [&[DOCWHARF][..], &PEERS].concat();
    let mut out = format!("| attack, connections | {} |\n|---|---|---|---|\n", servers.join(" | "));
    for (attack, cells) in measured_attacks(results) {
        let _ = write!(out, "| {}, {} |", attack.title, attack.connections);
        for server in &servers {
            let cell = &cells[*server];
            if !cell.is_object() {
                out.push_str(" – |");
                continue;
            }
            let bystander_report = &cell["bystander"];
            let failed = number(&bystander_report["failed"]);
            let failed = if failed > 0.0 { format!(", {failed:.0} failed") } else { String::new() };
            let ended = if cell["is_running"] == false { ", **ended**" } else { "" };
            let _ = write!(
                out,
                " {} MB; {}; {}; {}{failed}{ended} |",
                format_number(sent(cell) / 1e6),
                format_number(cpu_of_mb(cell)),
                format_number(number(&cell["peak_kib"]) / 1024.0),
                format_number(number(&bystander_report["p99_ms"])),
            );
        }
        out.push('\n');
    }
    out
}

/// The table of the origin. The other organizations' work may take twice its usual time plus 2 s. CPU time per MB has
/// no requirement, because the peers have no organizations.
fn origin_table(results: &Value) -> String {
    let cells = |attack: &'static Attack| Some((attack, results["origin"].get(attack.name)?));
    let mut out = format!(
        "Measured {}: docwharf alone. nginx and h2o have no organizations, so there is no peer to compare its CPU with.\n\n\
         | attack of one organization | bystander: p50, p99 ms; failed | `/livez` failed | memory above idle, MiB | \
         and afterwards | sent, MB | CPU, ms a MB | another's export, s: usual, then | its preview, s | its question, s \
         |\n|---|---|---|---|---|---|---|---|---|---|\n",
        describe_runs(organizations::ATTACKS.iter().filter_map(cells)),
    );
    for (attack, cell) in organizations::ATTACKS.iter().filter_map(cells) {
        let work_of_others = |key: &str| {
            let (before_attack, during_attack) = (number(&cell["usual"][key]), number(&cell["then"][key]));
            with_verdict(
                format!("{}, {}", format_number(before_attack), format_number(during_attack)),
                during_attack <= before_attack * 2.0 + 2.0,
            )
        };
        let [peak, after] = memory(cell, None);
        let _ = writeln!(
            out,
            "| {} | {} | {} | {peak} | {after} | {} | {} | {} | {} | {} |",
            attack.title,
            bystander(cell),
            livez(cell),
            format_number(sent(cell) / 1e6),
            format_number(cpu_of_mb(cell)),
            work_of_others("export_s"),
            work_of_others("preview_s"),
            work_of_others("question_s"),
        );
    }
    out
}

/// The date and duration of the measurements, the most common last: results are stored, so a table may contain several
/// runs.
fn describe_runs<'a>(measured: impl Iterator<Item = (&'static Attack, &'a Value)>) -> String {
    let mut groups: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (attack, cell) in measured {
        let date = cell["date"].as_str().unwrap_or("an unknown day");
        let run = format!("on {date}, {} s", format_number(number(&cell["seconds"])));
        groups.entry(run).or_default().push(attack.title);
    }
    let mut groups: Vec<(String, Vec<&str>)> = groups.into_iter().collect();
    groups.sort_by_key(|(_, titles)| titles.len());
    let Some((most_common, _)) = groups.pop() else { return "nothing".to_owned() };
    if groups.is_empty() {
        return format!("{most_common} of each attack");
    }
    let other_runs: Vec<String> =
        groups.iter().map(|(run, titles)| format!("{run} of each of these: {}; ", titles.join(", "))).collect();
    format!("{}{most_common} of each other attack", other_runs.concat())
}

fn circumstances(results: &Value) -> String {
    let (run, versions) = (&results["run"], &results["versions"]);
    let cells =
        measured_attacks(results).filter_map(|(attack, cells)| Some((attack, cells.as_object()?.values().next()?)));
    let machine = &run["machine"];
    let text = |value: &Value| value.as_str().unwrap_or("unknown").to_owned();
    let version_texts: Vec<String> =
        [&[DOCWHARF][..], &PEERS].concat().iter().map(|name| text(&versions[*name])).collect();
    format!(
        "Measured {}. {}; {}, {} cores, {} GiB, {}.\n",
        describe_runs(cells),
        version_texts.join(", "),
        text(&machine["cpu"]),
        machine["cores"],
        machine["memory_gib"],
        text(&machine["kernel"]),
    )
}

/// Replaces the tables in the package's BENCHMARKS.md.
pub(crate) fn write(results: &Value, package: &Path) -> Result<(), String> {
    let path = package.join("BENCHMARKS.md");
    let io = |error: std::io::Error| format!("cannot write {}: {error}", path.display());
    let mut text = fs::read_to_string(&path).map_err(io)?;
    if results["attacks"].is_object() {
        let legend = "For each server: MB that the attacker sent; CPU milliseconds for each of them; memory above idle in \
                      MiB; the bystander's p99 in ms.";
        let reasons: String = measured_attacks(results)
            .filter_map(|(attack, _)| {
                Some(format!("- Not comparable, {}: {}.\n", attack.title, not_comparable_reason(attack)?))
            })
            .collect();
        let new = format!(
            "{}\n{}\n{reasons}\n{legend}\n\n{}",
            circumstances(results),
            requirements_table(results),
            servers_table(results)
        );
        text = replace_table(&text, "abuse", &new)?;
    }
    if results["origin"].is_object() {
        text = replace_table(&text, "abuse-origin", &origin_table(results))?;
    }
    for (section, mark) in [("sites", "abuse-hour"), ("origin", "abuse-hour-origin")] {
        if let Some(table) = results["hour"][section]["table"].as_str() {
            text = replace_table(&text, mark, table)?;
        }
    }
    fs::write(&path, text).map_err(io)
}
