//! Options of the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::corpus::{CORPORA, Corpus};
use crate::queries::QueryKind;

pub(crate) const USAGE: &str = "usage: cargo bench --bench search -- [FOLDER] [OPTIONS]
  FOLDER              the folder of the corpora (target/extra/corpus; `.ci/extra corpus` makes them)
  --corpus a,b        some of: python postgresql rustbook gimp rust
  --kinds a,b         some of: identifier split concept phrase prefix typo question
  --queries FILE      the queries of a file, as --list prints them, instead of those made from the indexes and
                      questions.tsv; with --no-peers only
  --no-peers          only docwharf; its index is made only if there is none (or with --reindex)
  --reindex           makes docwharf's index again: after a change of extraction, analysis or index
  --misses            prints each query of docwharf whose first result is not right
  --list              prints the queries with their targets, and measures nothing
  --server ADDRESS    queries this docwharf, such as 127.0.0.1:8080, which serves the corpus; with --no-peers only
  --rounds N          rounds of indexing, and of queries (3); 1 with --no-peers
  --program FILE      a docwharf to measure instead of the one built with this benchmark
  --modules FOLDER    the node_modules folder that has Pagefind (target/extra/node/node_modules)
  --out FOLDER        the folder of stores and results (target/bench); corpora that are not measured again stay
  --report            writes the tables of BENCHMARKS.md afterwards";

/// The options of a run.
#[derive(Debug)]
pub(crate) struct Options {
    pub folder: PathBuf,
    pub corpora: Vec<&'static Corpus>,
    pub kinds: Vec<QueryKind>,
    pub queries: Option<PathBuf>,
    pub with_peers: bool,
    pub reindex: bool,
    pub misses: bool,
    pub server: Option<SocketAddr>,
    pub rounds: usize,
    pub program: PathBuf,
    pub modules: PathBuf,
    pub out: PathBuf,
    pub purpose: RunPurpose,
}

/// The purpose of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunPurpose {
    /// The queries are printed, and nothing is measured.
    List,
    /// The results are printed.
    Print,
    /// The results are also written into BENCHMARKS.md.
    Report,
}

impl Options {
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let mut options = Self {
            folder: PathBuf::from("target/extra/corpus"),
            corpora: CORPORA.iter().collect(),
            kinds: QueryKind::ALL.to_vec(),
            queries: None,
            with_peers: true,
            reindex: false,
            misses: false,
            server: None,
            rounds: 0,
            program: PathBuf::from(env!("CARGO_BIN_EXE_docwharf")),
            modules: PathBuf::from("target/extra/node/node_modules"),
            out: PathBuf::from("target/bench"),
            purpose: RunPurpose::Print,
        };
        let mut arguments = arguments.filter(|argument| argument != "--bench");
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{argument} takes a value"));
            match argument.as_str() {
                "--corpus" => {
                    let all: Vec<&'static Corpus> = CORPORA.iter().collect();
                    options.corpora = select("corpus", &value()?, &all, |corpus| corpus.name)?;
                }
                "--kinds" => options.kinds = select("kind", &value()?, QueryKind::ALL, QueryKind::name)?,
                "--queries" => options.queries = Some(PathBuf::from(value()?)),
                "--no-peers" => options.with_peers = false,
                "--reindex" => options.reindex = true,
                "--misses" => options.misses = true,
                "--list" => options.purpose = RunPurpose::List,
                "--server" => options.server = Some(parse("--server", &value()?)?),
                "--rounds" => options.rounds = parse("--rounds", &value()?)?,
                "--program" => options.program = PathBuf::from(value()?),
                "--modules" => options.modules = PathBuf::from(value()?),
                "--out" => options.out = PathBuf::from(value()?),
                "--report" => options.purpose = RunPurpose::Report,
                unknown if unknown.starts_with('-') => return Err(format!("{unknown} is no option\n{USAGE}")),
                folder => options.folder = PathBuf::from(folder),
            }
        }
        if options.server.is_some() && (options.with_peers || options.corpora.len() != 1) {
            return Err("--server needs --no-peers and one --corpus".to_owned());
        }
        if options.queries.is_some() && options.with_peers {
            return Err("--queries needs --no-peers".to_owned());
        }
        if options.purpose == RunPurpose::Report && !options.with_peers {
            return Err("--report needs the results of all engines".to_owned());
        }
        if options.rounds == 0 {
            options.rounds = if options.with_peers { 3 } else { 1 };
        }
        Ok(options)
    }
}

fn parse<T: std::str::FromStr>(option: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{option}: {text:?} is wrong\n{USAGE}"))
}

/// Selects some of `all` by a list of names.
fn select<T: Copy>(what: &str, list: &str, all: &[T], name: impl Fn(T) -> &'static str) -> Result<Vec<T>, String> {
    let find = |wanted: &str| {
        let found = all.iter().copied().find(|item| name(*item) == wanted);
        found.ok_or_else(|| format!("{wanted} is no {what}\n{USAGE}"))
    };
    list.split(',').map(str::trim).map(find).collect()
}
