//! The search compared with Pagefind 1.6 and `SQLite` FTS5: how far up the right page is, whether the first result
//! leads to the right section, and what the index and the queries cost.
//!
//! `cargo bench --bench search -- FOLDER` with the folder that `.ci/extra corpus` makes; `.ci/extra search` does all of
//! it. `cargo bench --bench search -- --corpus python --no-peers --misses` prints the queries that docwharf misses,
//! with the index that is there. BENCHMARKS.md says what is compared, and how.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own

mod common;

#[path = "search/corpus.rs"]
mod corpus;
#[path = "search/doc_index.rs"]
mod doc_index;
#[path = "search/docbook.rs"]
mod docbook;
#[path = "search/docwharf.rs"]
mod docwharf;
#[path = "search/fts5.rs"]
mod fts5;
#[path = "search/html.rs"]
mod html;
#[path = "search/mdbook.rs"]
mod mdbook;
#[path = "search/measure.rs"]
mod measure;
#[path = "search/misses.rs"]
mod misses;
#[path = "search/options.rs"]
mod options;
#[path = "search/pagefind.rs"]
mod pagefind;
#[path = "search/queries.rs"]
mod queries;
#[path = "search/report.rs"]
mod report;
#[path = "search/results.rs"]
mod results;
#[path = "search/score.rs"]
mod score;
#[path = "search/sections.rs"]
mod sections;
#[path = "search/sphinx.rs"]
mod sphinx;
#[path = "search/timed.rs"]
mod timed;
#[path = "search/typo.rs"]
mod typo;
#[path = "search/vocabulary.rs"]
mod vocabulary;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use common::document::replace_table;
use common::machine;
use corpus::{Corpus, OpenCorpus};
use options::{Options, RunPurpose};
use queries::{Query, make_queries, read_queries};
use results::{CorpusResults, StoredResults};
use sections::SectionMaps;

/// The name of the tables in BENCHMARKS.md.
const TABLES: &str = "search";

/// Measures a corpus. `None` if its queries are only printed.
fn measure(options: &Options, corpus: &'static Corpus) -> Result<Option<CorpusResults>, String> {
    let corpus = OpenCorpus::open(corpus, &options.folder)?;
    let mut sections = SectionMaps::new(&corpus);
    let queries = match &options.queries {
        Some(file) => read_queries(file, &corpus, &options.kinds)?,
        None => make_queries(&corpus, &options.kinds, &mut sections)?,
    };
    warn_about_missing_anchors(&queries, &mut sections);
    if options.purpose == RunPurpose::List {
        for query in &queries {
            let targets: Vec<String> = query.targets.iter().map(ToString::to_string).collect();
            println!("{}\t{}\t{}\t{}", corpus.corpus.name, query.kind.name(), query.text, targets.join(" "));
        }
        return Ok(None);
    }
    let folder = options.out.join("search").join(corpus.corpus.name);
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let engines = if options.with_peers {
        measure::measure_all(options, &corpus, &queries, &mut sections, &folder)?
    } else {
        let results = measure::measure_docwharf(options, &corpus, &queries, &mut sections, &folder)?;
        BTreeMap::from([(docwharf::NAME.to_owned(), results)])
    };
    let machine = machine::describe(false);
    let text_of = |key: &str| machine[key].as_str().unwrap_or("unknown").to_owned();
    Ok(Some(CorpusResults {
        description: corpus.pages.describe(),
        date: machine::today(),
        machine: format!(
            "{}, {} cores, {} GiB, {}",
            text_of("cpu"),
            machine["cores"],
            machine["memory_gib"],
            text_of("kernel")
        ),
        rounds: options.rounds,
        engines,
    }))
}

/// A corpus of another version may lack anchors of the questions.
fn warn_about_missing_anchors(queries: &[Query], sections: &mut SectionMaps) {
    for query in queries {
        for target in query.targets.iter().filter(|target| !sections.has_anchor(target)) {
            eprintln!("{:?}: no anchor {target}", query.text);
        }
    }
}

/// Writes the tables into BENCHMARKS.md.
fn write_report(results: &StoredResults) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("BENCHMARKS.md");
    let failure = |error: std::io::Error| format!("cannot change {}: {error}", path.display());
    let document = fs::read_to_string(&path).map_err(failure)?;
    fs::write(&path, replace_table(&document, TABLES, &report::tables(results))?).map_err(failure)
}

fn run(mut options: Options) -> Result<(), String> {
    // cargo starts benches in the package's folder; commands run in other folders.
    let paths = [&mut options.folder, &mut options.program, &mut options.modules, &mut options.out];
    for path in paths.into_iter().chain(options.queries.as_mut()) {
        *path = std::path::absolute(&*path).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let stored = options.out.join("search.json");
    let mut results = if options.with_peers { StoredResults::read(&stored) } else { StoredResults::default() };
    for &corpus in &options.corpora {
        let Some(measured) = measure(&options, corpus)? else { continue };
        results.0.insert(corpus.name.to_owned(), measured);
        if options.with_peers {
            results.write(&stored)?;
        }
    }
    if options.purpose != RunPurpose::List {
        let tables = report::tables(&results);
        println!("{tables}");
        if options.with_peers {
            let path = options.out.join("search.md");
            fs::write(&path, &tables).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        }
    }
    if options.purpose == RunPurpose::Report { write_report(&results) } else { Ok(()) }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match arguments.as_slice() {
        [option, rest @ ..] if option == fts5::INDEX_OPTION => fts5::make_database(rest),
        _ => Options::parse(arguments.into_iter()).and_then(run),
    };
    if let Err(reason) = result {
        eprintln!("search: {reason}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
