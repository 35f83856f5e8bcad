//! Pagefind: its program makes the index of the folder, and its script answers queries in Node, which reads the files
//! of the index from the disk (`pagefind.mjs`).

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::corpus::{OpenCorpus, Target};
use crate::results::IndexFigures;
use crate::timed::{folder_bytes, make_empty_folder, path_text, run_timed};

pub(crate) const NAME: &str = "Pagefind";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/search/pagefind.mjs");
/// The user interfaces, which every index gets, and a file of this benchmark.
const NO_INDEX: &[&str] = &["-ui.", "pagefind-highlight.js", "package.json"];

/// An installed Pagefind, and the folder for its index.
#[derive(Debug)]
pub(crate) struct Pagefind {
    program: PathBuf,
    folder: PathBuf,
}

/// The request to the script.
#[derive(Debug, Serialize)]
struct ScriptRequest<'a> {
    lang: &'a str,
    rounds: usize,
    queries: &'a [&'a str],
}

/// The answer to one query.
#[derive(Debug, Deserialize)]
pub(crate) struct PagefindAnswer {
    urls: Vec<String>,
    /// The duration in each round.
    pub milliseconds: Vec<f64>,
}

impl Pagefind {
    /// `modules` is the folder `node_modules`.
    pub(crate) fn find(modules: &Path, folder: &Path) -> Result<Self, String> {
        let program = modules.join(".bin/pagefind");
        if !program.exists() {
            return Err(format!("{} is missing: npm install pagefind@1.6, or --no-peers", program.display()));
        }
        Ok(Self { program, folder: folder.to_path_buf() })
    }

    pub(crate) fn version(&self) -> Result<String, String> {
        let run = run_timed(&[path_text(&self.program)?, "--version"], &self.folder)?;
        Ok(format!("Pagefind {}", run.output.trim().rsplit(' ').next().unwrap_or_default()))
    }

    fn bundle(&self) -> PathBuf {
        self.folder.join("pagefind")
    }

    /// Makes the index, and adds its figures.
    pub(crate) fn measure_index(&self, corpus: &OpenCorpus, figures: &mut IndexFigures) -> Result<(), String> {
        let bundle = self.bundle();
        make_empty_folder(&bundle)?;
        let (site, output) = (path_text(&corpus.html)?, path_text(&bundle)?);
        let mut words = vec![path_text(&self.program)?, "--quiet", "--site", site, "--output-path", output];
        if !corpus.corpus.names_lang {
            words.extend(["--force-language", corpus.corpus.lang]);
        }
        let run = run_timed(&words, &self.folder)?;
        figures.seconds.push(run.seconds);
        figures.peak_bytes.push(run.peak_bytes as f64);
        figures.bytes = folder_bytes(&bundle, |path| {
            path.to_str().is_some_and(|path| NO_INDEX.iter().any(|part| path.contains(part)))
        })?;
        // So that Node loads the script as a module.
        let package = bundle.join("package.json");
        fs::write(&package, "{\"type\":\"module\"}").map_err(|error| format!("{}: {error}", package.display()))
    }

    /// Runs all queries in each round, after one that is not measured.
    pub(crate) fn search(
        &self,
        corpus: &OpenCorpus,
        queries: &[&str],
        rounds: usize,
    ) -> Result<Vec<PagefindAnswer>, String> {
        let (input, output) = (self.folder.join("queries.json"), self.folder.join("answers.json"));
        let request = ScriptRequest { lang: corpus.corpus.lang, rounds, queries };
        let text = serde_json::to_string(&request).map_err(|error| error.to_string())?;
        fs::write(&input, text).map_err(|error| format!("cannot write {}: {error}", input.display()))?;
        let bundle = self.bundle();
        let words = ["node", SCRIPT, path_text(&bundle)?, path_text(&input)?, path_text(&output)?];
        run_timed(&words, &self.folder)?;
        let text = fs::read_to_string(&output).map_err(|error| format!("cannot read {}: {error}", output.display()))?;
        serde_json::from_str(&text).map_err(|error| format!("the output of pagefind.mjs: {error}"))
    }
}

impl PagefindAnswer {
    pub(crate) fn results(&self, corpus: &OpenCorpus) -> Vec<Target> {
        self.urls.iter().map(|url| corpus.pages.find_address(url)).collect()
    }
}
