//! The rows: rounds in which each server has its turn at each row, in an order that turns with the rounds.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::check::{check, check_h2, condition};
use crate::common::place::local;
use crate::common::process::Server;
use crate::field::Contender;
use crate::load::{h2_latency, load, warm_up};
use crate::options::Options;
use crate::rows::{Ask, Row};
use crate::site::Site;

/// One measurement: CPU microseconds a request, requests a second, microseconds of latency.
#[derive(Debug, Clone, Copy)]
struct Sample {
    cpu: f64,
    rate: f64,
    p50: f64,
    p99: f64,
}

/// What is asked and how long bodies are on average, or why there is no such row.
type Turn = Result<(Ask, f64), String>;

/// A server, and what it is asked in each row.
struct Player<'a> {
    contender: &'a Contender,
    server: Server,
    turns: Vec<(Row, Turn)>,
}

fn ask(row: Row, site: &Site, contender: &Contender) -> Result<Ask, String> {
    let port = if row == Row::H2 { contender.launch.h2_port } else { contender.place.port };
    let tag = condition(site, local(contender.place.port))?;
    row.ask(site, local(port), tag.as_ref()).map_err(|why| format!("{}, {}: {why}", contender.name, row.title()))
}

/// Right or an error, always; the mean length of bodies.
fn judge(row: Row, site: &Site, ask: &Ask, name: &str) -> Result<f64, String> {
    let judged = if row == Row::H2 { check_h2(site, ask).map(|()| 0.0) } else { check(site, ask) };
    judged.map_err(|what| format!("{name}, {}: {what}", row.title()))
}

impl<'a> Player<'a> {
    /// Everything that will be asked is asked once and compared; caches are warm then.
    fn new(contender: &'a Contender, site: &Site, rows: &[Row]) -> Result<Self, String> {
        let server = contender.start(site)?;
        let mut turns = Vec::new();
        for &row in rows {
            let turn = if let Some((_, why)) = contender.launch.lacks.iter().find(|(lacked, _)| *lacked == row) {
                Err((*why).to_owned())
            } else {
                let ask = ask(row, site, contender)?;
                judge(row, site, &ask, contender.name)?;
                let mean = judge(row, site, &ask, contender.name)?;
                Ok((ask, mean))
            };
            turns.push((row, turn));
        }
        Ok(Self { contender, server, turns })
    }

    /// None if this server has no such row.
    fn turn(&self, at: usize, site: &Site, seconds: u64) -> Result<Option<Sample>, String> {
        let (row, Ok((ask, mean))) = &self.turns[at] else { return Ok(None) };
        let told = |what: String| format!("{}, {}: {what}", self.contender.name, row.title());
        let folder = &self.contender.place.folder;
        if ask.paths.len() == 1 {
            judge(*row, site, ask, self.contender.name)?;
        }
        warm_up(*row, ask, folder)?;
        let before = self.server.times();
        let seen = load(*row, ask, *mean, folder, seconds).map_err(told)?;
        let cpu = self.server.times().since(&before) * 1e6 / seen.requests;
        let (p50, p99) = if *row == Row::H2 { h2_latency(ask, folder).map_err(told)? } else { (seen.p50, seen.p99) };
        Ok(Some(Sample { cpu, rate: seen.requests / seen.seconds, p50, p99 }))
    }
}

/// Results of all rows as they are kept.
pub(crate) fn rows(options: &Options, site: &Site, field: &[Contender]) -> Result<Value, String> {
    let mut players = Vec::new();
    for contender in field {
        players.push(Player::new(contender, site, &options.rows)?);
    }
    let mut samples: BTreeMap<(usize, usize), Vec<Sample>> = BTreeMap::new();
    for round in 0..options.rounds {
        for (at, row) in options.rows.iter().enumerate() {
            for turn in 0..players.len() {
                let who = (turn + round + at) % players.len();
                if let Some(sample) = players[who].turn(at, site, options.seconds)? {
                    samples.entry((at, who)).or_default().push(sample);
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
            .map(|(at, row)| (row.name().to_owned(), row_of(&players, at, &samples)))
            .collect(),
    ))
}

fn row_of(players: &[Player], at: usize, samples: &BTreeMap<(usize, usize), Vec<Sample>>) -> Value {
    let cell = |who: usize, player: &Player| {
        let Some(samples) = samples.get(&(at, who)) else {
            let why = player.turns[at].1.as_ref().err().cloned().unwrap_or_default();
            return json!({ "reason": why });
        };
        let of = |figure: fn(&Sample) -> f64| -> Vec<f64> { samples.iter().map(figure).collect() };
        let memory = player.server.memory();
        json!({
            "cpu_us": of(|s| s.cpu), "rate": of(|s| s.rate), "p50_us": of(|s| s.p50), "p99_us": of(|s| s.p99),
            "pss_kib": memory.pss, "anonymous_kib": memory.anonymous,
        })
    };
    let cells = players.iter().enumerate().map(|(who, player)| (player.contender.name.to_owned(), cell(who, player)));
    Value::Object(cells.collect())
}
