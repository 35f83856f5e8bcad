//! The rows: in each round, each server is measured once in each row. The order rotates with the rounds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::check::{check, check_h2, condition};
use crate::common::process::Server;
use crate::common::server_setup::local;
use crate::contenders::Contender;
use crate::load::{h2_latency, load, warm_up};
use crate::options::Options;
use crate::rows::{Row, RowRequest};
use crate::site::Site;

/// One measurement: CPU microseconds per request, requests a second, latencies in microseconds.
#[derive(Debug, Clone, Copy)]
struct Sample {
    cpu: f64,
    rate: f64,
    p50: f64,
    p99: f64,
}

/// The request of a row and the mean length of bodies, or the reason why the server cannot do the row.
type RowSetup = Result<(RowRequest, f64), String>;

/// A running server and its rows.
struct RunningContender<'a> {
    contender: &'a Contender,
    server: Server,
    rows: Vec<(Row, RowSetup)>,
}

fn row_request(row: Row, site: &Site, contender: &Contender) -> Result<RowRequest, String> {
    let port = if row == Row::H2 { contender.launch.h2_port } else { contender.setup.port };
    let tag = condition(site, local(contender.setup.port))?;
    row.request(site, local(port), tag.as_ref())
        .map_err(|reason| format!("{}, {}: {reason}", contender.name, row.title()))
}

/// Checks the responses of a row. Returns the mean length of bodies; 0 for HTTP/2, where the load does not check it.
fn check_row(row: Row, site: &Site, request: &RowRequest, name: &str) -> Result<f64, String> {
    let result = if row == Row::H2 { check_h2(site, request).map(|()| 0.0) } else { check(site, request) };
    result.map_err(|error| format!("{name}, {}: {error}", row.title()))
}

impl<'a> RunningContender<'a> {
    /// Starts the server and checks all responses of all rows twice. Its caches are full afterwards.
    fn new(contender: &'a Contender, site: &Site, rows: &[Row]) -> Result<Self, String> {
        let server = contender.start(site)?;
        let mut row_setups = Vec::new();
        for &row in rows {
            let setup =
                if let Some((_, reason)) = contender.launch.missing_rows.iter().find(|(missing, _)| *missing == row) {
                    Err((*reason).to_owned())
                } else {
                    let request = row_request(row, site, contender)?;
                    check_row(row, site, &request, contender.name)?;
                    let mean = check_row(row, site, &request, contender.name)?;
                    Ok((request, mean))
                };
            row_setups.push((row, setup));
        }
        Ok(Self { contender, server, rows: row_setups })
    }

    /// Measures a row once. `None` if the server cannot do the row.
    fn measure(&self, row_index: usize, site: &Site, seconds: u64) -> Result<Option<Sample>, String> {
        let (row, Ok((request, mean))) = &self.rows[row_index] else { return Ok(None) };
        let with_context = |error: String| format!("{}, {}: {error}", self.contender.name, row.title());
        let folder = &self.contender.setup.folder;
        if request.paths.len() == 1 {
            check_row(*row, site, request, self.contender.name)?;
        }
        warm_up(*row, request, folder)?;
        let before = self.server.cpu_times();
        let load_result = load(*row, request, *mean, folder, seconds).map_err(with_context)?;
        let cpu = self.server.cpu_times().since(&before) * 1e6 / load_result.requests;
        let (p50, p99) = if *row == Row::H2 {
            h2_latency(request, folder).map_err(with_context)?
        } else {
            (load_result.p50, load_result.p99)
        };
        Ok(Some(Sample { cpu, rate: load_result.requests / load_result.seconds, p50, p99 }))
    }
}

/// Measures all rows. Returns the results to be stored.
pub(crate) fn rows(options: &Options, site: &Site, contenders: &[Contender]) -> Result<Value, String> {
    let mut running_contenders = Vec::new();
    for contender in contenders {
        running_contenders.push(RunningContender::new(contender, site, &options.rows)?);
    }
    let mut samples: BTreeMap<(usize, usize), Vec<Sample>> = BTreeMap::new();
    for round in 0..options.rounds {
        for (row_index, row) in options.rows.iter().enumerate() {
            for turn in 0..running_contenders.len() {
                let contender_index = (turn + round + row_index) % running_contenders.len();
                if let Some(sample) = running_contenders[contender_index].measure(row_index, site, options.seconds)? {
                    samples.entry((row_index, contender_index)).or_default().push(sample);
                }
            }
            eprintln!("{}: round {} of {}: {}", site.name, round + 1, options.rounds, row.title());
        }
    }
    Ok(Value::Object(
        options
            .rows
            .iter()
            .enumerate()
            .map(|(row_index, row)| (row.name().to_owned(), row_of(&running_contenders, row_index, &samples)))
            .collect(),
    ))
}

fn row_of(
    running_contenders: &[RunningContender],
    row_index: usize,
    samples: &BTreeMap<(usize, usize), Vec<Sample>>,
) -> Value {
    let cell = |contender_index: usize, running: &RunningContender| {
        let Some(samples) = samples.get(&(row_index, contender_index)) else {
            let reason = running.rows[row_index].1.as_ref().err().cloned().unwrap_or_default();
            return json!({ "reason": reason });
        };
        let values = |figure: fn(&Sample) -> f64| -> Vec<f64> { samples.iter().map(figure).collect() };
        let memory = running.server.memory();
        json!({
            "cpu_us": values(|s| s.cpu), "rate": values(|s| s.rate), "p50_us": values(|s| s.p50),
            "p99_us": values(|s| s.p99),
            "pss_kib": memory.pss, "anonymous_kib": memory.anonymous,
        })
    };
    let cells = running_contenders
        .iter()
        .enumerate()
        .map(|(contender_index, running)| (running.contender.name.to_owned(), cell(contender_index, running)));
    Value::Object(cells.collect())
}
