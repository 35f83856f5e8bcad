//! Options of the command line.

use std::path::PathBuf;

use crate::docwharf;
use crate::rows::Row;

pub(crate) const USAGE: &str = "usage: cargo bench --bench serve -- SITE… [OPTIONS]
  SITE, --site SITE   a folder with html/ and site.zip (`.ci/extra corpus` makes them); the site has the folder's name
  --rows a,b          some of the rows: hot gzip revalidate random random-gzip asset missing close h2;
                      and of the other parts: start swap memory
  --peers a,b         some of: nginx nginx-small h2o lighttpd caddy static-web-server
  --without a,b       not these peers; any other peer that is not installed is an error
  --rounds N          interleaved rounds of the rows (5)
  --seconds S         of load in each round, at least 1 (3)
  --quick             2 rounds of 1 second, and fewer runs of all other parts: for a first impression, not for a report
  --program FILE      a docwharf to measure instead of the one built with this benchmark
  --tag               docwharf with the tag of the search box behind each page, in the same rounds; the ratio of both is
                      printed for each row
  --recording         docwharf that records what readers do, likewise
  --assistants        docwharf with MCP server, Markdown, llms.txt, ask and playground, likewise
  --before FILE       an earlier docwharf, measured in the same rounds; the ratio to it is printed for each row
  --out FOLDER        the folder of results (target/bench); rows that are not measured again stay
  --report            write the tables of BENCHMARKS.md and plots in docs/benchmarks; without a SITE only this";

/// The parts that are measured besides the rows of requests.
pub(crate) const PARTS: &[&str] = &["start", "swap", "memory"];

#[derive(Debug)]
pub(crate) struct Options {
    pub sites: Vec<PathBuf>,
    pub rows: Vec<Row>,
    pub parts: Vec<&'static str>,
    pub peers: Vec<String>,
    pub rounds: usize,
    pub seconds: u64,
    pub quick: bool,
    pub program: PathBuf,
    /// The names of docwharf with a further part, measured in the same rounds.
    pub added_parts: Vec<&'static str>,
    pub before: Option<PathBuf>,
    pub out: PathBuf,
    pub report: bool,
}

fn names(list: &str) -> impl Iterator<Item = String> + '_ {
    list.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned)
}

fn number<T: std::str::FromStr + PartialOrd + From<u8>>(option: &str, text: &str) -> Result<T, String> {
    let parsed = text.parse().ok().filter(|n| *n >= T::from(1));
    parsed.ok_or_else(|| format!("{option} takes a number from 1 on, not {text:?}"))
}

impl Options {
    /// `peer_names` are the names of all peers.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>, peer_names: &[&str]) -> Result<Self, String> {
        let mut options = Self {
            sites: Vec::new(),
            rows: Row::ALL.to_vec(),
            parts: PARTS.to_vec(),
            peers: peer_names.iter().map(|name| (*name).to_owned()).collect(),
            rounds: 5,
            seconds: 3,
            quick: false,
            program: PathBuf::from(env!("CARGO_BIN_EXE_docwharf")),
            added_parts: Vec::new(),
            before: None,
            out: PathBuf::from("target/bench"),
            report: false,
        };
        let (mut rounds, mut seconds) = (None, None);
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} takes a value"));
            match argument.as_str() {
                "--site" => options.sites.push(PathBuf::from(value()?)),
                "--rows" => (options.rows, options.parts) = parse_rows(&value()?)?,
                "--peers" => options.peers = parse_peers(&value()?, peer_names)?,
                "--without" => {
                    let without = parse_peers(&value()?, peer_names)?;
                    options.peers.retain(|peer| !without.contains(peer));
                }
                "--rounds" => rounds = Some(number("--rounds", &value()?)?),
                "--seconds" => seconds = Some(number("--seconds", &value()?)?),
                "--quick" => options.quick = true,
                "--program" => options.program = PathBuf::from(value()?),
                "--tag" => options.added_parts.push(docwharf::WITH_TAG),
                "--recording" => options.added_parts.push(docwharf::WITH_RECORDING),
                "--assistants" => options.added_parts.push(docwharf::WITH_ASSISTANTS),
                "--before" => options.before = Some(PathBuf::from(value()?)),
                "--out" => options.out = PathBuf::from(value()?),
                "--report" => options.report = true,
                unknown if unknown.starts_with('-') => return Err(format!("{unknown} is no option\n{USAGE}")),
                site => options.sites.push(PathBuf::from(site)),
            }
        }
        options.rounds = rounds.unwrap_or(if options.quick { 2 } else { options.rounds });
        options.seconds = seconds.unwrap_or(if options.quick { 1 } else { options.seconds });
        if options.sites.is_empty() && !options.report {
            return Err(USAGE.to_owned());
        }
        Ok(options)
    }
}

fn parse_peers(list: &str, peer_names: &[&str]) -> Result<Vec<String>, String> {
    let chosen: Vec<String> = names(list).collect();
    match chosen.iter().find(|name| !peer_names.contains(&name.as_str())) {
        Some(name) => Err(format!("{name} is no peer; there are: {}", peer_names.join(" "))),
        None => Ok(chosen),
    }
}

fn parse_rows(list: &str) -> Result<(Vec<Row>, Vec<&'static str>), String> {
    let (mut rows, mut parts) = (Vec::new(), Vec::new());
    for name in names(list) {
        if let Some(row) = Row::ALL.iter().find(|row| row.name() == name) {
            rows.push(*row);
        } else if let Some(part) = PARTS.iter().find(|part| **part == name) {
            parts.push(*part);
        } else {
            return Err(format!("{name} is no row\n{USAGE}"));
        }
    }
    Ok((rows, parts))
}
