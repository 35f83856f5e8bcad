//! Load: wrk for HTTP/1.1, h2load for HTTP/2, and the parsing of their output.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::check::ExpectedResponse;
use crate::common::stats::percentile;
use crate::rows::{Row, RowRequest};
use crate::site::run;

const CONNECTIONS: &str = "64";
/// More than the head of any response.
const MAX_HEAD_BYTES: f64 = 2048.0;

/// The results of a load. Latencies are in microseconds, NaN if the tool does not report them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LoadResult {
    pub requests: f64,
    pub seconds: f64,
    pub p50: f64,
    pub p99: f64,
}

/// wrk's script for a row: the paths and fields, and one line of output for `load`.
fn script(request: &RowRequest, folder: &Path) -> Result<std::path::PathBuf, String> {
    let mut text = String::new();
    for (name, value) in &request.fields {
        let _ = writeln!(text, "wrk.headers[{name:?}] = [==[{value}]==]");
    }
    if request.paths.len() > 1 {
        let list = folder.join("paths");
        fs::write(&list, request.paths.join("\n"))
            .map_err(|error| format!("cannot write {}: {error}", list.display()))?;
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

fn wrk(request: &RowRequest, folder: &Path, seconds: u64) -> Result<Command, String> {
    let mut command = Command::new("wrk");
    command.args(["-t1", "-c", CONNECTIONS, "--timeout", "10s", "-d"]).arg(format!("{seconds}s"));
    command.arg("-s").arg(script(request, folder)?).arg(format!("http://{}{}", request.address, request.paths[0]));
    Ok(command)
}

/// Runs the load for a moment without measuring it.
pub(crate) fn warm_up(row: Row, request: &RowRequest, folder: &Path) -> Result<(), String> {
    let mut command = if row == Row::H2 { h2load(request, 1) } else { wrk(request, folder, 1)? };
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = child.map_err(|error| format!("cannot start {command:?}: {error}"))?;
    std::thread::sleep(Duration::from_millis(300));
    let _ = child.kill();
    child.wait().map(|_| ()).map_err(|error| format!("cannot wait for {command:?}: {error}"))
}

/// Runs the load. `mean` is the expected mean length of bodies as sent.
pub(crate) fn load(
    row: Row,
    request: &RowRequest,
    mean: f64,
    folder: &Path,
    seconds: u64,
) -> Result<LoadResult, String> {
    if row == Row::H2 {
        return read_h2load(&run(&mut h2load(request, seconds))?);
    }
    let output = run(&mut wrk(request, folder, seconds)?)?;
    let line = output
        .lines()
        .find_map(|line| line.strip_prefix("MEASURED "))
        .ok_or_else(|| format!("the output of wrk: {output}"))?;
    let numbers: Vec<f64> = line.split(' ').filter_map(|number| number.parse().ok()).collect();
    let &[requests, micros, bytes, connect, read, write, timeout, status, p50, p99] = numbers.as_slice() else {
        return Err(format!("the output of wrk: {line}"));
    };
    if requests < 1.0 || connect + read + write + timeout > 0.0 {
        return Err(format!(
            "{requests} answers; failed: {connect} to connect, {read} read, {write} write, {timeout} in time"
        ));
    }
    let refused = if request.expected == ExpectedResponse::Missing { requests } else { 0.0 };
    if status.total_cmp(&refused).is_ne() {
        return Err(format!("{status} of {requests} answers had a status from 400 on"));
    }
    // wrk counts only statuses from 400 on. A wrong response would have another length.
    let mean_bytes = bytes / requests;
    if mean_bytes < mean * 0.9 || mean_bytes > mean * 1.1 + MAX_HEAD_BYTES {
        return Err(format!("answers had {mean_bytes:.0} bytes on average, bodies should have {mean:.0}"));
    }
    Ok(LoadResult { requests, seconds: micros / 1e6, p50, p99 })
}

fn h2load(request: &RowRequest, seconds: u64) -> Command {
    let mut command = Command::new("h2load");
    command.args(["-t1", "-c8", "-m16", "-D"]).arg(seconds.to_string());
    command.arg(format!("http://{}{}", request.address, request.paths[0]));
    command
}

fn read_h2load(output: &str) -> Result<LoadResult, String> {
    let line =
        |start: &str| output.lines().find_map(|line| line.trim().strip_prefix(start)).unwrap_or_default().to_owned();
    let number = |text: &str, unit: &str| -> f64 {
        let part = text.split(", ").find_map(|part| part.trim().strip_suffix(unit));
        part.and_then(|text| text.trim().parse().ok()).unwrap_or(f64::NAN)
    };
    let (requests, codes) = (line("requests:"), line("status codes:"));
    let finished = number(&requests, " done");
    let failed =
        ["failed", "errored", "timeout"].iter().map(|kind| number(&requests, &format!(" {kind}"))).sum::<f64>();
    let successful = number(&codes, " 2xx");
    if line("Application protocol:").trim() != "h2c" || finished < 1.0 || failed != 0.0 || successful < finished {
        return Err(format!("the output of h2load: {output}"));
    }
    let rate = number(&line("finished in "), " req/s");
    if rate.is_nan() {
        return Err(format!("the output of h2load: {output}"));
    }
    Ok(LoadResult { requests: finished, seconds: finished / rate, p50: f64::NAN, p99: f64::NAN })
}

/// Percentiles over HTTP/2, from a separate run, because logging each request costs the load tool time.
pub(crate) fn h2_latency(request: &RowRequest, folder: &Path) -> Result<(f64, f64), String> {
    let log = folder.join("h2load.log");
    let _ = fs::remove_file(&log);
    run(h2load(request, 1).arg("--log-file").arg(&log))?;
    let text = fs::read_to_string(&log).map_err(|error| format!("cannot read {}: {error}", log.display()))?;
    let micros: Vec<f64> = text.lines().filter_map(|line| line.split('\t').nth(2)?.trim().parse().ok()).collect();
    Ok((percentile(&micros, 0.5), percentile(&micros, 0.99)))
}
