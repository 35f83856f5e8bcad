//! docwharf: the documentation is imported into a store once, `docwharf search --index-only` makes the index there, and
//! `docwharf run` answers queries over HTTP.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::common::http::HttpClient;
use crate::common::process::{self, Server, StartMode};
use crate::common::server_setup::{ServerSetup, local};
use crate::corpus::{OpenCorpus, Target};
use crate::results::IndexFigures;
use crate::score::MAX_RESULTS;
use crate::timed::{TimedRun, make_empty_folder, path_text, run_timed};

pub(crate) const NAME: &str = "docwharf";

/// Enough for all Rust documentation at the lowest priority on a slow machine.
const INDEX_TIMEOUT: Duration = Duration::from_mins(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The searches that a daemon answers before its memory is measured.
const WARM_UP_REQUESTS: usize = 50;

/// A store with one version, and a configuration.
#[derive(Debug)]
pub(crate) struct DocwharfStore {
    program: PathBuf,
    setup: ServerSetup,
    config: String,
}

impl DocwharfStore {
    /// Opens the store in `folder`. It is made again if the documentation has changed.
    pub(crate) fn open(program: &Path, corpus: &OpenCorpus, folder: &Path) -> Result<Self, String> {
        let source_file = folder.join("made-of");
        let source = format!("{}: {}", corpus.html.display(), corpus.pages.describe());
        let is_current = fs::read_to_string(&source_file).is_ok_and(|text| text == source);
        if !is_current {
            make_empty_folder(folder)?;
        }
        let setup = ServerSetup::new(folder.to_path_buf(), &corpus.html)?;
        let inbox = folder.join("inbox");
        fs::create_dir_all(&inbox).map_err(|error| format!("cannot make {}: {error}", inbox.display()))?;
        // Codings would be made while queries are measured.
        let text = format!(
            "[store]\npath = '{}'\n[sync]\ninbox = '{}'\n[server]\nlisten = \"127.0.0.1:{}\"\ncodings = []\n\
             [access]\nlog = \"off\"\n",
            folder.join("store").display(),
            inbox.display(),
            setup.port,
        );
        let config = setup.write("docwharf.toml", &text)?;
        let store = Self { program: program.to_path_buf(), setup, config };
        if !is_current {
            eprintln!("{}: importing the documentation", corpus.corpus.name);
            store.run(&["import", path_text(&corpus.html)?])?;
            fs::write(&source_file, source)
                .map_err(|error| format!("cannot write to {}: {error}", folder.display()))?;
        }
        Ok(store)
    }

    fn run(&self, arguments: &[&str]) -> Result<TimedRun, String> {
        let words = [path_text(&self.program)?, "--config", &self.config];
        run_timed(&[&words[..], arguments].concat(), &self.setup.folder)
    }

    /// Makes the index again, and adds its figures.
    pub(crate) fn measure_index(&self, figures: &mut IndexFigures) -> Result<(), String> {
        let run = self.run(&["search", "--index-only", "--json"])?;
        let report: Value = serde_json::from_str(&run.output).map_err(|error| format!("{}: {error}", run.output))?;
        if report["kept"] != true {
            return Err("the index is not in the store: another process has it open".to_owned());
        }
        figures.seconds.push(run.seconds);
        // The program reports the memory of the process that makes the index; GNU time that of the largest process.
        figures.peak_bytes.push(run.peak_bytes.max(report["peakMemory"].as_u64().unwrap_or(0)) as f64);
        figures.bytes = report["bytes"].as_u64().ok_or("no `bytes` in the report")?;
        figures.pages = report["pages"].as_u64();
        figures.sections = report["sections"].as_u64();
        Ok(())
    }

    /// Measures verifying, sealing and indexing the folder, without a store.
    pub(crate) fn measure_from_folder(&self, html: &Path, figures: &mut IndexFigures) -> Result<(), String> {
        let run = self.run(&["search", "--index-only", "--json", "--in", path_text(html)?])?;
        figures.seconds_from_folder.push(run.seconds);
        Ok(())
    }

    /// Starts the daemon, and waits until it serves.
    fn start(&self, is_search_on: bool) -> Result<Server, String> {
        let words = [path_text(&self.program)?, "--config", &self.config, "run"];
        let command: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        let variables = [("DOCWHARF_SEARCH__ENABLED".to_owned(), is_search_on.to_string())];
        let mut server = process::spawn(&command, &self.setup.folder, &variables, StartMode::AllCores)?;
        let path = if is_search_on { search_path("a") } else { "/".to_owned() };
        let started = Instant::now();
        loop {
            let response = HttpClient::connect(self.address()).and_then(|mut client| client.get(&path, &[]));
            match response {
                Ok(response) if response.status == 200 => return Ok(server),
                Ok(response) if response.status != 503 => return Err(format!("{path} answers {}", response.status)),
                _ if !server.is_running() || started.elapsed() > INDEX_TIMEOUT => {
                    let log = fs::read_to_string(self.setup.folder.join("log")).unwrap_or_default();
                    return Err(format!("docwharf run does not serve; its output: {}", log.trim()));
                }
                _ => std::thread::sleep(POLL_INTERVAL),
            }
        }
    }

    /// Starts the daemon with the search. A missing or outdated index is made first.
    pub(crate) fn start_search(&self) -> Result<Server, String> {
        self.start(true)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        local(self.setup.port)
    }

    /// The own memory that the open index adds to the daemon: with it after some queries, and without it after as many
    /// pages.
    pub(crate) fn measure_added_memory(&self, queries: &[&str]) -> Result<u64, String> {
        let mut kib = Vec::new();
        for is_search_on in [true, false] {
            let server = self.start(is_search_on)?;
            let mut client = HttpClient::connect(self.address()).map_err(|error| error.to_string())?;
            for query in queries.iter().cycle().take(WARM_UP_REQUESTS) {
                let path = if is_search_on { search_path(query) } else { "/".to_owned() };
                client.get(&path, &[]).map_err(|error| format!("{path}: {error}"))?;
            }
            kib.push(server.memory().anonymous);
        }
        Ok(kib[0].saturating_sub(kib[1]) * 1024)
    }
}

/// The address of a search.
fn search_path(query: &str) -> String {
    format!("/_docwharf/search?limit={MAX_RESULTS}&q={}", utf8_percent_encode(query, NON_ALPHANUMERIC))
}

/// A connection to a running docwharf.
#[derive(Debug)]
pub(crate) struct DocwharfClient {
    address: SocketAddr,
    client: HttpClient,
}

/// The answer to a query.
#[derive(Debug)]
pub(crate) struct DocwharfAnswer {
    pub results: Vec<Target>,
    /// The words that were searched instead of the query.
    pub corrected: Option<String>,
    /// From before the request is sent until the response is read.
    pub milliseconds: f64,
}

impl DocwharfClient {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self, String> {
        let client = HttpClient::connect(address).map_err(|error| format!("cannot connect to {address}: {error}"))?;
        Ok(Self { address, client })
    }

    pub(crate) fn search(&mut self, query: &str, corpus: &OpenCorpus) -> Result<DocwharfAnswer, String> {
        let path = search_path(query);
        let started = Instant::now();
        let response = self.client.get(&path, &[]).map_err(|error| format!("{path}: {error}"))?;
        let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
        if response.status != 200 {
            return Err(format!("{path} answers {}", response.status));
        }
        if !response.is_reusable {
            *self = Self::connect(self.address)?;
        }
        let answer: Value = serde_json::from_slice(&response.body).map_err(|error| format!("{path}: {error}"))?;
        let urls = answer["results"].as_array().into_iter().flatten().filter_map(|result| result["url"].as_str());
        let results = urls.map(|url| corpus.pages.find_address(url)).collect();
        let corrected = answer["corrected"].as_str().map(str::to_owned);
        Ok(DocwharfAnswer { results, corrected, milliseconds })
    }
}
