//! Options of the command line.

use std::path::PathBuf;

pub(crate) const USAGE: &str = "usage: cargo bench --bench abuse -- [OPTIONS]
  --only a,b          only these attacks; default: all, also those on an origin (--list prints them)
  --seconds S         of each attack (10)
  --peers a,b         some of: nginx h2o; - for none
  --hour MINUTES      all attacks in turn instead of each separately: for this time on `run` with a sync every minute,
                      then for this time on an origin
  --program FILE      a docwharf to measure instead of the one built with this benchmark (not for the origin)
  --out FOLDER        the folder of results (target/bench); results that are not measured again stay
  --report            write the tables of BENCHMARKS.md afterwards; with `--only -` without measuring";

#[derive(Debug)]
pub(crate) struct Options {
    /// `None` for all attacks.
    pub only: Option<Vec<String>>,
    pub seconds: f64,
    pub peers: Vec<String>,
    pub hour: Option<f64>,
    pub program: PathBuf,
    pub out: PathBuf,
    pub report: bool,
    pub list: bool,
}

fn names(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "-").map(str::to_owned).collect()
}

fn number(option: &str, text: &str) -> Result<f64, String> {
    let parsed = text.parse().ok().filter(|n: &f64| *n > 0.0 && n.is_finite());
    parsed.ok_or_else(|| format!("{option} takes a number above 0, not {text:?}"))
}

impl Options {
    pub(crate) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            only: None,
            seconds: 10.0,
            peers: names("nginx,h2o"),
            hour: None,
            program: PathBuf::from(env!("CARGO_BIN_EXE_docwharf")),
            out: PathBuf::from("target/bench"),
            report: false,
            list: false,
        };
        let mut arguments = arguments.iter().filter(|argument| *argument != "--bench");
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} takes a value"));
            match argument.as_str() {
                "--only" => options.only = Some(names(value()?)),
                "--seconds" => options.seconds = number(argument, value()?)?,
                "--peers" => options.peers = names(value()?),
                "--hour" => options.hour = Some(number(argument, value()?)?),
                "--program" => options.program = PathBuf::from(value()?),
                "--out" => options.out = PathBuf::from(value()?),
                "--report" => options.report = true,
                "--list" => options.list = true,
                unknown => return Err(format!("{unknown} is no option\n{USAGE}")),
            }
        }
        if let Some(unknown) = options.peers.iter().find(|name| !["nginx", "h2o"].contains(&name.as_str())) {
            return Err(format!("{unknown} is no peer; there are: nginx h2o"));
        }
        Ok(options)
    }

    pub(crate) fn wants(&self, attack: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|name| name == attack))
    }
}
