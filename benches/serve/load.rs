//! Load: wrk for HTTP/1.1, h2load for HTTP/2, and what they say of it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::check::Expected;
use crate::common::stats::percentile;
use crate::rows::{Ask, Row};
use crate::site::run;

const CONNECTIONS: &str = "64";
/// Heads of answers are shorter.
const LONGEST_HEAD: f64 = 2048.0;

/// What the load saw. Microseconds; not a number where its tool does not tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen {
    pub requests: f64,
    pub seconds: f64,
    pub p50: f64,
    pub p99: f64,
}

/// wrk's script for a row: its addresses and fields, and one line at its end that is meant to be read.
fn script(ask: &Ask, folder: &Path) -> Result<std::path::PathBuf, String> {
    let mut text = String::new();
    for (name, value) in &ask.fields {
        let _ = writeln!(text, "wrk.headers[{name:?}] = [==[{value}]==]");
    }
    if ask.paths.len() > 1 {
        let list = folder.join("paths");
        fs::write(&list, ask.paths.join("\n")).map_err(|error| format!("cannot write {}: {error}", list.display()))?;
        let _ = write!(
            text,
            "local all, at = {{}}, 0\n\
             function init() for path in io.lines([==[{}]==]) do all[#all + 1] = wrk.format(\"GET\", path) end end\n\
             function request() at = at % #all + 1; return all[at] end\n",
            list.display()
        );
    }
    text.push_str(
        "function done(summary, latency)\n  local e = summary.errors\n\
         local p = { latency:percentile(50), latency:percentile(99) }\n\
         io.write(string.format(\"\\nMEASURED %d %d %d %d %d %d %d %d %d %d\\n\", summary.requests, summary.duration,\n\
         summary.bytes, e.connect, e.read, e.write, e.timeout, e.status, p[1], p[2]))\n\
         end\n",
    );
    let path = folder.join("load.lua");
    fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    Ok(path)
}

fn wrk(ask: &Ask, folder: &Path, seconds: u64) -> Result<Command, String> {
    let mut command = Command::new("wrk");
    command.args(["-t1", "-c", CONNECTIONS, "--timeout", "10s", "-d"]).arg(format!("{seconds}s"));
    command.arg("-s").arg(script(ask, folder)?).arg(format!("http://{}{}", ask.address, ask.paths[0]));
    Ok(command)
}

/// A moment of the same load that does not count.
pub(crate) fn warm_up(row: Row, ask: &Ask, folder: &Path) -> Result<(), String> {
    let mut command = if row == Row::H2 { h2load(ask, 1) } else { wrk(ask, folder, 1)? };
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|error| format!("cannot start {command:?}: {error}"))?;
    std::thread::sleep(Duration::from_millis(300));
    let _ = child.kill();
    child.wait().map(|_| ()).map_err(|error| format!("cannot wait for {command:?}: {error}"))
}

/// `mean` is what a body takes on its way, on average.
pub(crate) fn load(row: Row, ask: &Ask, mean: f64, folder: &Path, seconds: u64) -> Result<Seen, String> {
    if row == Row::H2 {
        return read_h2load(&run(&mut h2load(ask, seconds))?);
    }
    let said = run(&mut wrk(ask, folder, seconds)?)?;
    let line =
        said.lines().find_map(|line| line.strip_prefix("MEASURED ")).ok_or_else(|| format!("wrk said: {said}"))?;
    let numbers: Vec<f64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
    let &[requests, micros, bytes, connect, read, write, timeout, status, p50, p99] = numbers.as_slice() else {
        return Err(format!("wrk said: {line}"));
    };
    if requests < 1.0 || connect + read + write + timeout > 0.0 {
        return Err(format!(
            "{requests} answers; failed: {connect} to connect, {read} read, {write} write, {timeout} in time"
        ));
    }
    let refused = if ask.expected == Expected::Missing { requests } else { 0.0 };
    if status.total_cmp(&refused).is_ne() {
        return Err(format!("{status} of {requests} answers had a status from 400 on"));
    }
    // Statuses below 400 are not counted, but the wrong answer would be longer or shorter.
    let each = bytes / requests;
    if each < mean * 0.9 || each > mean * 1.1 + LONGEST_HEAD {
        return Err(format!("answers had {each:.0} bytes on average, bodies should have {mean:.0}"));
    }
    Ok(Seen { requests, seconds: micros / 1e6, p50, p99 })
}

fn h2load(ask: &Ask, seconds: u64) -> Command {
    let mut command = Command::new("h2load");
    command.args(["-t1", "-c8", "-m16", "-D"]).arg(seconds.to_string());
    command.arg(format!("http://{}{}", ask.address, ask.paths[0]));
    command
}

fn read_h2load(said: &str) -> Result<Seen, String> {
    let line =
        |start: &str| said.lines().find_map(|line| line.trim().strip_prefix(start)).unwrap_or_default().to_owned();
    let number = |text: &str, unit: &str| -> f64 {
        let part = text.split(", ").find_map(|part| part.trim().strip_suffix(unit));
        part.and_then(|text| text.trim().parse().ok()).unwrap_or(f64::NAN)
    };
    let (requests, codes) = (line("requests:"), line("status codes:"));
    let done = number(&requests, " done");
    let wrong = ["failed", "errored", "timeout"].iter().map(|what| number(&requests, &format!(" {what}"))).sum::<f64>();
    let good = number(&codes, " 2xx");
    if line("Application protocol:").trim() != "h2c" || done < 1.0 || wrong != 0.0 || good < done {
        return Err(format!("h2load said: {said}"));
    }
    let rate = number(&line("finished in "), " req/s");
    if rate.is_nan() {
        return Err(format!("h2load said: {said}"));
    }
    Ok(Seen { requests: done, seconds: done / rate, p50: f64::NAN, p99: f64::NAN })
}

/// Percentiles over HTTP/2 from a run of their own, because writing down each request takes the load's time.
pub(crate) fn h2_latency(ask: &Ask, folder: &Path) -> Result<(f64, f64), String> {
    let log = folder.join("h2load.log");
    let _ = fs::remove_file(&log);
    run(h2load(ask, 1).arg("--log-file").arg(&log))?;
    let text = fs::read_to_string(&log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
    let micros: Vec<f64> = text.lines().filter_map(|line| line.split('\t').nth(2)?.trim().parse().ok()).collect();
    Ok((percentile(&micros, 0.5), percentile(&micros, 0.99)))
}
