//! The tables of BENCHMARKS.md from kept results, between marks; what is written around them by hand stays.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::common::document::{put, short};
use crate::common::stats::{Ratio, median, percentile, ratio};
use crate::ours::NAME;
use crate::peers::PEERS;
use crate::rows::Row;
use crate::svg;

/// The measurements of one server in one row.
pub(crate) struct Cell<'a>(&'a Value);

impl<'a> Cell<'a> {
    pub(crate) fn of(results: &'a Value, row: Row, server: &str) -> Self {
        Self(&results["rows"][row.name()][server])
    }

    pub(crate) fn all(&self, figure: &str) -> Vec<f64> {
        numbers(&self.0[figure])
    }

    pub(crate) fn cpu(&self) -> Option<f64> {
        Some(median(&self.all("cpu_us"))).filter(|cpu| cpu.is_finite())
    }
}

fn numbers(list: &Value) -> Vec<f64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// The peer that took the least CPU in a row.
pub(crate) fn best(results: &Value, row: Row) -> Option<&'static str> {
    let cpus = PEERS.iter().filter_map(|peer| Some((peer.name, Cell::of(results, row, peer.name).cpu()?)));
    cpus.min_by(|a, b| a.1.total_cmp(&b.1)).map(|(name, _)| name)
}

/// docwharf's ratio to a peer, pair by pair.
fn against(results: &Value, row: Row, peer: &str) -> Option<Ratio> {
    ratio(&Cell::of(results, row, NAME).all("cpu_us"), &Cell::of(results, row, peer).all("cpu_us"))
}

fn servers() -> Vec<&'static str> {
    std::iter::once(NAME).chain(PEERS.iter().map(|peer| peer.name)).collect()
}

fn head(first: &[&str]) -> String {
    let columns: Vec<&str> = first.iter().copied().chain(servers()).collect();
    format!("| {} |\n|{}\n", columns.join(" | "), "---|".repeat(columns.len()))
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("unknown")
}

/// What was measured, on what and when.
fn circumstances(results: &Value) -> String {
    let (site, machine, settings) = (&results["site"], &results["machine"], &results["settings"]);
    let mut versions: Vec<&str> = servers().iter().filter_map(|name| results["versions"][*name].as_str()).collect();
    versions.dedup();
    let kb = |value: &Value| format!("{:.1} kB", value.as_f64().unwrap_or(f64::NAN) / 1e3);
    format!(
        "Measured on {}: {} files; the small page is `{}` ({}), the large file `{}` ({}), and {} pages with a mean of {} \
         are asked for at random. {} rounds of {} s; {}{}; {}, {}. {}, {} cores, {} GiB, {}, congestion control {}.\n",
        text(results, "date"),
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
        text(machine, "wrk"),
        text(machine, "h2load"),
        text(machine, "cpu"),
        machine["cores"],
        machine["memory_gib"],
        text(machine, "kernel"),
        text(machine, "congestion_control"),
    )
}

fn goal(row: Row, results: &Value) -> String {
    let (must, aim) = row.goals();
    let met = |ratio: Option<Ratio>, most: f64| {
        ratio.is_some_and(|ratio| (ratio.median * 100.0).round() <= (most * 100.0).round())
    };
    let peer = best(results, row).unwrap_or_default();
    let [judged, aimed] = if row == Row::H2 { ["nginx", "h2o"] } else { [peer; 2] };
    let of = if row == Row::H2 { [" of nginx", " of h2o"] } else { [""; 2] };
    let (must_met, aim_met) = (met(against(results, row, judged), must), met(against(results, row, aimed), aim));
    let verdict = match (must_met, aim_met) {
        (false, _) => "**missed**",
        (true, false) => "met, aim missed",
        (true, true) => "met, aim too",
    };
    format!("{must:.2}{}, aim {aim:.2}{}: {verdict}", of[0], of[1])
}

/// CPU a request, then requests a second with latencies.
fn serve(results: &Value) -> String {
    let mut out = format!("### {}\n\n{}\n", title(results), circumstances(results));
    let _ = writeln!(out, "![CPU a request relative to docwharf](docs/benchmarks/serve-{}.svg)\n", site_name(results));
    out.push_str("CPU microseconds a request, medians; the ratio is docwharf's to the best peer, ");
    out.push_str("median of the rounds and their range.\n\n");
    out.push_str(&head(&["row", "ratio", "best peer", "goal"]));
    for row in measured(results) {
        let peer = best(results, row).unwrap_or("–");
        let ratio = against(results, row, peer).map_or("–".to_owned(), |ratio| {
            let extra = against(results, row, "nginx").filter(|_| row == Row::H2);
            let extra = extra.map_or(String::new(), |of| format!("; {:.2} of nginx", of.median));
            format!("**{:.2}** ({:.2}–{:.2}){extra}", ratio.median, ratio.least, ratio.greatest)
        });
        let _ = write!(out, "| {} | {ratio} | {peer} | {} |", row.title(), goal(row, results));
        for server in servers() {
            let _ = write!(out, " {} |", short(Cell::of(results, row, server).cpu().unwrap_or(f64::NAN)));
        }
        out.push('\n');
    }
    out.push_str("\nThousand requests a second; p50 and p99 in ms. The load is closed: 64 connections, ");
    out.push_str("each asking again when it is answered.\n\n");
    out.push_str(&head(&["row"]));
    for row in measured(results) {
        let _ = write!(out, "| {} |", row.title());
        for server in servers() {
            let cell = Cell::of(results, row, server);
            let of = |figure: &str, by: f64| short(median(&cell.all(figure)) / by);
            match cell.cpu() {
                Some(_) => {
                    let _ = write!(out, " {}; {}, {} |", of("rate", 1e3), of("p50_us", 1e3), of("p99_us", 1e3));
                }
                None => out.push_str(" – |"),
            }
        }
        out.push('\n');
    }
    for (row, server, why) in reasons(results) {
        let _ = write!(out, "\n{server} has no row “{row}”: it {why}.");
    }
    out.push_str("\n\n");
    out
}

fn measured(results: &Value) -> impl Iterator<Item = Row> + '_ {
    Row::ALL.iter().copied().filter(|row| Cell::of(results, *row, NAME).cpu().is_some())
}

fn reasons(results: &Value) -> Vec<(&'static str, &'static str, &str)> {
    let all = Row::ALL.iter().flat_map(|row| servers().into_iter().map(move |server| (*row, server)));
    all.filter_map(|(row, server)| Some((row.title(), server, results["rows"][row.name()][server]["reason"].as_str()?)))
        .collect()
}

fn site_name(results: &Value) -> &str {
    text(&results["site"], "name")
}

pub(crate) fn title(results: &Value) -> String {
    let name = site_name(results);
    let (first, rest) = name.split_at(name.chars().next().map_or(0, char::len_utf8));
    format!("{}{rest} documentation", first.to_uppercase())
}

fn start(all: &[Value]) -> String {
    let mut out = head(&["ms, median (least–greatest)"]);
    for results in all.iter().filter(|results| results["start"].is_object()) {
        let _ = write!(out, "| {}, {} files |", title(results), results["site"]["files"]);
        for server in servers() {
            let times = numbers(&results["start"][server]["ms"]);
            if times.is_empty() {
                out.push_str(" – |");
                continue;
            }
            let [least, most] = [0.0, 1.0].map(|share| short(percentile(&times, share)));
            let _ = write!(out, " {} ({least}–{most}) |", short(median(&times)));
        }
        out.push('\n');
    }
    out
}

fn swap(all: &[Value]) -> String {
    let mut out = String::from("| ms, median; p99; most | ");
    let measured: Vec<&Value> = all.iter().filter(|results| results["swap"].is_object()).collect();
    let titles: Vec<String> = measured.iter().map(|results| title(results)).collect();
    let _ = writeln!(out, "{} |\n|---|{}", titles.join(" | "), "---|".repeat(titles.len()));
    let figures = [
        ("flip to first new answer, at most", "flip_ms"),
        ("`activate` typed to first new answer", "seen_ms"),
        ("`activate` typed to its return", "returned_ms"),
    ];
    for (title, figure) in figures {
        let _ = write!(out, "| {title} |");
        for results in &measured {
            let times = numbers(&results["swap"]["latency"][figure]);
            let shares = [0.5, 0.99, 1.0].map(|share| short(percentile(&times, share)));
            let _ = write!(out, " {} |", shares.join("; "));
        }
        out.push('\n');
    }
    let loads = [
        ("p50 and p99 of a load without swaps", "still"),
        ("the same beside `status`, ten times a second", "status"),
        ("the same beside `activate`, ten times a second", "swapping"),
    ];
    for (title, load) in loads {
        let _ = write!(out, "| {title} |");
        for results in &measured {
            let of = |figure: &str| short(results["swap"][load][figure].as_f64().unwrap_or(f64::NAN) / 1e3);
            let _ = write!(out, " {}; {} |", of("p50_us"), of("p99_us"));
        }
        out.push('\n');
    }
    out
}

fn memory(all: &[Value]) -> String {
    let mut out = head(&["anonymous / PSS"]);
    for results in all.iter().filter(|results| results["memory"].is_object()) {
        let mib = |value: &Value, key: &str| short(value[key].as_f64().unwrap_or(f64::NAN) / 1024.0);
        for (title, moment) in [("after the start, MiB", "start"), ("after every page in both codings, MiB", "walked")]
        {
            let _ = write!(out, "| {}: {title} |", self::title(results));
            for server in servers() {
                let cell = &results["memory"][server][moment];
                let _ = write!(out, " {} / {}", mib(cell, "anonymous_kib"), mib(cell, "pss_kib"));
                if let Some(bytes) = cell["identity_cache_bytes"].as_f64() {
                    let _ = write!(out, ", {} of it `identityCache`", short(bytes / 1024.0 / 1024.0));
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
    for results in all {
        for server in servers() {
            if let Some(why) = results["memory"][server]["idle"]["reason"].as_str() {
                let _ = write!(out, "\nNo idle connections of {server} ({}): it {why}.\n", title(results));
            }
        }
    }
    out
}

/// Tables and plots of all results in `out`, into the package's documents.
pub(crate) fn report(out: &Path, package: &Path) -> Result<(), String> {
    let mut paths: Vec<_> = fs::read_dir(out)
        .map_err(|error| format!("cannot list {}: {error}", out.display()))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().and_then(|name| name.to_str()).is_some_and(is_result))
        .collect();
    paths.sort();
    let all: Vec<Value> = paths
        .iter()
        .filter_map(|path| serde_json::from_str(&fs::read_to_string(path).ok()?).ok())
        .filter(|results: &Value| results["site"].is_object())
        .collect();
    if all.is_empty() {
        return Err(format!("there are no results in {}: measure first", out.display()));
    }
    let (plots, document) = (package.join("docs/benchmarks"), package.join("BENCHMARKS.md"));
    let io = |what: std::io::Error| format!("cannot write the report: {what}");
    fs::create_dir_all(&plots).map_err(io)?;
    for results in &all {
        fs::write(plots.join(format!("serve-{}.svg", site_name(results))), svg::plot(results)).map_err(io)?;
    }
    let mut text = fs::read_to_string(&document).map_err(io)?;
    let rows: String = all.iter().map(serve).collect();
    for (part, new) in [("serve", rows), ("start", start(&all)), ("swap", swap(&all)), ("memory", memory(&all))] {
        text = put(&text, part, &new)?;
    }
    fs::write(&document, text).map_err(io)
}

fn is_result(name: &str) -> bool {
    name.strip_prefix("serve-").is_some_and(|rest| Path::new(rest).extension().is_some_and(|end| end == "json"))
}
