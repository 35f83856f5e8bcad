//! The tables of BENCHMARKS.md from stored results, between marks. The text around them is written by hand and stays.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::document::{format_number, replace_table};
use crate::common::stats::{Ratio, median, percentile, ratio};
use crate::docwharf::NAME;
use crate::peers::PEERS;
use crate::rows::Row;
use crate::svg;

/// The measurements of one server in one row.
pub(crate) struct Cell<'a>(&'a Value);

impl<'a> Cell<'a> {
    pub(crate) fn of_server(results: &'a Value, row: Row, server: &str) -> Self {
        Self(&results["rows"][row.name()][server])
    }

    pub(crate) fn values(&self, figure: &str) -> Vec<f64> {
        numbers(&self.0[figure])
    }

    pub(crate) fn cpu(&self) -> Option<f64> {
        Some(median(&self.values("cpu_us"))).filter(|cpu| cpu.is_finite())
    }
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// The peer that used the least CPU time in a row.
pub(crate) fn best_peer(results: &Value, row: Row) -> Option<&'static str> {
    let cpus = PEERS.iter().filter_map(|peer| Some((peer.name, Cell::of_server(results, row, peer.name).cpu()?)));
    cpus.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
}

/// The ratios of docwharf to a peer, round by round.
fn ratio_to_peer(results: &Value, row: Row, peer: &str) -> Option<Ratio> {
    ratio(&Cell::of_server(results, row, NAME).values("cpu_us"), &Cell::of_server(results, row, peer).values("cpu_us"))
}

fn servers() -> Vec<&'static str> {
    std::iter::once(NAME).chain(PEERS.iter().map(|peer| peer.name)).collect()
}

fn table_head(first: &[&str]) -> String {
    let columns: Vec<&str> = first.iter().copied().chain(servers()).collect();
    format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

fn text_of<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("unknown")
}

/// The site, the machine, the versions and the date of the measurements.
fn circumstances(results: &Value) -> String {
    let (site, machine, settings) = (&results["site"], &results["machine"], &results["settings"]);
    let mut versions: Vec<&str> = servers().iter().filter_map(|name| results["versions"][*name].as_str()).collect();
    versions.dedup();
    let kb = |value: &Value| format!("{:.1} kB", value.as_f64().unwrap_or(f64::NAN) / 1e3);
    format!(
        "Measured on {}: {} files; the small page is `{}` ({}), the large file `{}` ({}), and {} pages with a mean of {} \
         are asked for at random. {} rounds of {} s; {}{}; {}, {}. {}, {} cores, {} GiB, {}, congestion control {}.\n",
        text_of(results, "date"),
        site["files"],
        site["hot"][0].as_str().unwrap_or("unknown"),
        kb(&site["hot"][1]),
        site["asset"][0].as_str().unwrap_or("unknown"),
        kb(&site["asset"][1]),
        site["random"][0],
        kb(&site["random"][1]),
        settings["rounds"],
        settings["seconds"],
        versions.join(", "),
        if machine["pinned"] == true { "" } else { " (**not pinned**: one core for servers and load)" },
        text_of(machine, "wrk"),
        text_of(machine, "h2load"),
        text_of(machine, "cpu"),
        machine["cores"],
        machine["memory_gib"],
        text_of(machine, "kernel"),
        text_of(machine, "congestion_control"),
    )
}

fn goal_cell(row: Row, results: &Value) -> String {
    let (limit, target) = row.goals();
    let is_met = |ratio: Option<Ratio>, max_ratio: f64| {
        ratio.is_some_and(|ratio| (ratio.median * 100.0).round() <= (max_ratio * 100.0).round())
    };
    let peer = best_peer(results, row).unwrap_or_default();
    let [limit_peer, target_peer] = if row == Row::H2 { ["nginx", "h2o"] } else { [peer; 2] };
    let peer_suffixes = if row == Row::H2 { [" of nginx", " of h2o"] } else { [""; 2] };
    let (is_limit_met, is_target_met) = (
        is_met(ratio_to_peer(results, row, limit_peer), limit),
        is_met(ratio_to_peer(results, row, target_peer), target),
    );
    let verdict = match (is_limit_met, is_target_met) {
        (false, _) => "**missed**",
        (true, false) => "met, aim missed",
        (true, true) => "met, aim too",
    };
    format!("{limit:.2}{}, aim {target:.2}{}: {verdict}", peer_suffixes[0], peer_suffixes[1])
}

/// The tables of CPU time per request, and of requests a second with latencies.
fn serve_tables(results: &Value) -> String {
    let mut out = format!("### {}\n\n{}\n", title(results), circumstances(results));
    let _ = writeln!(out, "![CPU a request relative to docwharf](docs/benchmarks/serve-{}.svg)\n", site_name(results));
    out.push_str("CPU microseconds a request, medians; the ratio is docwharf's to the best peer, ");
    out.push_str("median of the rounds and their range.\n\n");
    out.push_str(&table_head(&["row", "ratio", "best peer", "goal"]));
    for row in measured_rows(results) {
        let peer = best_peer(results, row).unwrap_or("–");
        let ratio = ratio_to_peer(results, row, peer).map_or("–".to_owned(), |ratio| {
            let extra = ratio_to_peer(results, row, "nginx").filter(|_| row == Row::H2);
            let extra = extra.map_or(String::new(), |median_of| format!("; {:.2} of nginx", median_of.median));
            format!("**{:.2}** ({:.2}–{:.2}){extra}", ratio.median, ratio.least, ratio.greatest)
        });
        let _ = write!(out, "| {} | {ratio} | {peer} | {} |", row.title(), goal_cell(row, results));
        for server in servers() {
            let _ =
                write!(out, " {} |", format_number(Cell::of_server(results, row, server).cpu().unwrap_or(f64::NAN)));
        }
        out.push('\n');
    }
    out.push_str("\nThousand requests a second; p50 and p99 in ms. The load is closed: 64 connections, ");
    out.push_str("each asking again when it is answered.\n\n");
    out.push_str(&table_head(&["row"]));
    for row in measured_rows(results) {
        let _ = write!(out, "| {} |", row.title());
        for server in servers() {
            let cell = Cell::of_server(results, row, server);
            let median_of = |figure: &str, by: f64| format_number(median(&cell.values(figure)) / by);
            match cell.cpu() {
                Some(_) => {
                    let _ = write!(
                        out,
                        " {}; {}, {} |",
                        median_of("rate", 1e3),
                        median_of("p50_us", 1e3),
                        median_of("p99_us", 1e3)
                    );
                }
                None => out.push_str(" – |"),
            }
        }
        out.push('\n');
    }
    for (row, server, reason) in reasons(results) {
        let _ = write!(out, "\n{server} has no row “{row}”: it {reason}.");
    }
    out.push_str("\n\n");
    out
}

fn measured_rows(results: &Value) -> impl Iterator<Item = Row> + '_ {
    Row::ALL.iter().copied().filter(|row| Cell::of_server(results, *row, NAME).cpu().is_some())
}

fn reasons(results: &Value) -> Vec<(&'static str, &'static str, &str)> {
    let cells = Row::ALL.iter().flat_map(|row| servers().into_iter().map(move |server| (*row, server)));
    cells
        .filter_map(|(row, server)| {
            Some((row.title(), server, results["rows"][row.name()][server]["reason"].as_str()?))
        })
        .collect()
}

fn site_name(results: &Value) -> &str {
    text_of(&results["site"], "name")
}

pub(crate) fn title(results: &Value) -> String {
    let name = site_name(results);
    let (first, rest) = name.split_at(name.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest} documentation", first.to_uppercase())
}

fn start_table(all_results: &[Value]) -> String {
    let mut out = table_head(&["ms, median (least–greatest)"]);
    for results in all_results.iter().filter(|results| results["start"].is_object()) {
        let _ = write!(out, "| {}, {} files |", title(results), results["site"]["files"]);
        for server in servers() {
            let times_ms = numbers(&results["start"][server]["ms"]);
            if times_ms.is_empty() {
                out.push_str(" – |");
                continue;
            }
            let [least, most] = [0.0, 1.0].map(|share| format_number(percentile(&times_ms, share)));
            let _ = write!(out, " {} ({least}–{most}) |", format_number(median(&times_ms)));
        }
        out.push('\n');
    }
    out
}

fn swap_table(all_results: &[Value]) -> String {
    let mut out = String::from("| ms, median; p99; most | ");
    let measured: Vec<&Value> = all_results.iter().filter(|results| results["swap"].is_object()).collect();
    let titles: Vec<String> = measured.iter().map(|results| title(results)).collect();
    let _ = writeln!(out, "{} |\n|---|{}", titles.join(" | "), "---|".repeat(titles.len()));
    let figures = [
        ("activation to first new response, at most", "flip_ms"),
        ("`activate` typed to first new response", "seen_ms"),
        ("`activate` typed to its return", "returned_ms"),
    ];
    for (title, figure) in figures {
        let _ = write!(out, "| {title} |");
        for results in &measured {
            let times_ms = numbers(&results["swap"]["latency"][figure]);
            let shares = [0.5, 0.99, 1.0].map(|share| format_number(percentile(&times_ms, share)));
            let _ = write!(out, " {} |", shares.join("; "));
        }
        out.push('\n');
    }
    let loads = [
        ("p50 and p99 of a load without a command", "still"),
        ("p50 and p99 of a load beside `status`, ten times a second", "status"),
        ("p50 and p99 of a load beside `activate`, ten times a second", "swapping"),
    ];
    for (title, load) in loads {
        let _ = write!(out, "| {title} |");
        for results in &measured {
            let value = |figure: &str| format_number(results["swap"][load][figure].as_f64().unwrap_or(f64::NAN) / 1e3);
            let _ = write!(out, " {}; {} |", value("p50_us"), value("p99_us"));
        }
        out.push('\n');
    }
    out
}

fn memory_table(all_results: &[Value]) -> String {
    let mut out = table_head(&["anonymous / PSS"]);
    for results in all_results.iter().filter(|results| results["memory"].is_object()) {
        let mib = |value: &Value, key: &str| format_number(value[key].as_f64().unwrap_or(f64::NAN) / 1024.0);
        for (title, moment) in [("after the start, MiB", "start"), ("after every page in both codings, MiB", "walked")]
        {
            let _ = write!(out, "| {}: {title} |", self::title(results));
            for server in servers() {
                let cell = &results["memory"][server][moment];
                let _ = write!(out, " {} / {}", mib(cell, "anonymous_kib"), mib(cell, "pss_kib"));
                if let Some(bytes) = cell["identity_cache_bytes"].as_f64() {
                    let _ = write!(out, ", {} of it `identityCache`", format_number(bytes / 1024.0 / 1024.0));
                }
                out.push_str(" |");
            }
            out.push('\n');
        }
        let _ = write!(out, "| {}: after the rows above, MiB |", self::title(results));
        for server in servers() {
            let cell = &results["rows"][Row::Hot.name()][server];
            let _ = write!(out, " {} / {} |", mib(cell, "anonymous_kib"), mib(cell, "pss_kib"));
        }
        out.push('\n');
        let _ = write!(out, "| {}: an idle connection, bytes |", self::title(results));
        for server in servers() {
            let idle = &results["memory"][server]["idle"];
            let bytes = |key: &str| idle[key].as_f64().map_or("–".to_owned(), |bytes| format!("{bytes:.0}"));
            let _ = write!(out, " {} / {} |", bytes("anonymous_bytes"), bytes("pss_bytes"));
        }
        out.push('\n');
    }
    for results in all_results {
        for server in servers() {
            if let Some(reason) = results["memory"][server]["idle"]["reason"].as_str() {
                let _ = write!(out, "\nNo idle connections of {server} ({}): it {reason}.\n", title(results));
            }
        }
    }
    out
}

/// Writes the tables and plots of all results in `out` into the package's documents.
pub(crate) fn report(out: &Path, package: &Path) -> Result<(), String> {
    let mut paths: Vec<_> = fs::read_dir(out)
        .map_err(|error| format!("cannot list {}: {error}", out.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_result))
        .collect();
    paths.sort();
    let all_results: Vec<Value> = paths
        .iter()
        .filter_map(|path| serde_json::from_str(&fs::read_to_string(path).ok()?).ok())
        .filter(|results: &Value| results["site"].is_object())
        .collect();
    if all_results.is_empty() {
        return Err(format!("there are no results in {}: measure first", out.display()));
    }
    let (plots, document) = (package.join("docs/benchmarks"), package.join("BENCHMARKS.md"));
    let io = |what: std::io::Error| format!("cannot write the report: {what}");
    fs::create_dir_all(&plots).map_err(io)?;
    for results in &all_results {
        fs::write(plots.join(format!("serve-{}.svg", site_name(results))), svg::plot(results)).map_err(io)?;
    }
    let mut text = fs::read_to_string(&document).map_err(io)?;
    let rows: String = all_results.iter().map(serve_tables).collect();
    for (part, new) in [
        ("serve", rows),
        ("start", start_table(&all_results)),
        ("swap", swap_table(&all_results)),
        ("memory", memory_table(&all_results)),
    ] {
        text = replace_table(&text, part, &new)?;
    }
    fs::write(&document, text).map_err(io)
}

fn is_result(name: &str) -> bool {
    name.strip_prefix("serve-").is_some_and(|rest| Path::new(rest).extension().is_some_and(|end| end == "json"))
}
