//! Measures the engines: the cost of their indexes in interleaved rounds, then the queries of each.

use std::collections::BTreeMap;
use std::path::Path;

use crate::common::server_setup::version_of;
use crate::common::stats::percentile;
use crate::corpus::{OpenCorpus, Target};
use crate::docwharf::{self, DocwharfClient, DocwharfStore};
use crate::fts5::{self, Fts5Database};
use crate::misses;
use crate::options::Options;
use crate::pagefind::{self, Pagefind};
use crate::queries::Query;
use crate::results::{EngineResults, IndexFigures};
use crate::score::{distinct_pages, score};
use crate::sections::SectionMaps;

/// The results of an engine for all queries.
#[derive(Debug, Default)]
pub(crate) struct EngineAnswers {
    /// For each query, results on different pages, best first.
    pub results: Vec<Vec<Target>>,
    /// For each query, the words that were searched instead.
    pub corrected: Vec<Option<String>>,
    milliseconds: Vec<f64>,
}

impl EngineAnswers {
    fn into_results(
        self,
        version: String,
        index: IndexFigures,
        queries: &[Query],
        sections: &mut SectionMaps,
    ) -> EngineResults {
        EngineResults {
            version,
            scores: queries.iter().zip(&self.results).map(|(query, found)| score(query, found, sections)).collect(),
            p50_ms: percentile(&self.milliseconds, 0.5),
            p99_ms: percentile(&self.milliseconds, 0.99),
            index,
            added_bytes: None,
        }
    }
}

/// Measures docwharf and its peers. Returns the results of each engine by its name.
pub(crate) fn measure_all(
    options: &Options,
    corpus: &OpenCorpus,
    queries: &[Query],
    sections: &mut SectionMaps,
    folder: &Path,
) -> Result<BTreeMap<String, EngineResults>, String> {
    let store = DocwharfStore::open(&options.program, corpus, &folder.join("docwharf"))?;
    let pagefind = Pagefind::find(&options.modules, folder)?;
    let mut figures: [IndexFigures; 3] = Default::default();
    let rounds = options.rounds.min(corpus.corpus.max_index_rounds);
    for round in 0..rounds {
        eprintln!("{}: indexing, round {} of {rounds}", corpus.corpus.name, round + 1);
        let [docwharf, pagefind_figures, fts5_figures] = &mut figures;
        store.measure_index(docwharf)?;
        store.measure_from_folder(&corpus.html, docwharf)?;
        pagefind.measure_index(corpus, pagefind_figures)?;
        fts5::measure_index(corpus, &options.folder, folder, fts5_figures)?;
    }
    let [docwharf, pagefind_figures, fts5_figures] = figures;
    let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();

    eprintln!("{}: {} queries", corpus.corpus.name, queries.len());
    let added_bytes = store.measure_added_memory(&texts)?;
    let answers = answer_with_docwharf(options, Some(&store), corpus, &texts)?;
    if options.misses {
        misses::print(queries, &answers, sections);
    }
    let version = docwharf_version(options)?;
    let mut docwharf = answers.into_results(version, docwharf, queries, sections);
    docwharf.added_bytes = Some(added_bytes);

    let answers = answer_with_pagefind(&pagefind, corpus, &texts, options.rounds)?;
    let pagefind = answers.into_results(pagefind.version()?, pagefind_figures, queries, sections);
    let answers = answer_with_fts5(&Fts5Database::open(folder)?, &texts, options.rounds)?;
    let fts5 = answers.into_results(Fts5Database::version(), fts5_figures, queries, sections);
    let engines = [(docwharf::NAME, docwharf), (pagefind::NAME, pagefind), (fts5::NAME, fts5)];
    Ok(engines.map(|(name, results)| (name.to_owned(), results)).into())
}

/// Measures only docwharf, with the index that is there, for work on the ranking.
pub(crate) fn measure_docwharf(
    options: &Options,
    corpus: &OpenCorpus,
    queries: &[Query],
    sections: &mut SectionMaps,
    folder: &Path,
) -> Result<EngineResults, String> {
    let mut figures = IndexFigures::default();
    let store = match options.server {
        Some(_) => None,
        None => Some(DocwharfStore::open(&options.program, corpus, &folder.join("docwharf"))?),
    };
    if let Some(store) = store.as_ref().filter(|_| options.reindex) {
        store.measure_index(&mut figures)?;
    }
    let texts: Vec<&str> = queries.iter().map(|query| query.text.as_str()).collect();
    let answers = answer_with_docwharf(options, store.as_ref(), corpus, &texts)?;
    if options.misses {
        misses::print(queries, &answers, sections);
    }
    Ok(answers.into_results(docwharf_version(options)?, figures, queries, sections))
}

fn docwharf_version(options: &Options) -> Result<String, String> {
    let version = version_of(&options.program, &["--version"]);
    version.ok_or_else(|| format!("cannot start {}", options.program.display()))
}

/// Runs the queries over HTTP on one connection, in each round. With peers, one more round before them is not measured.
fn answer_with_docwharf(
    options: &Options,
    store: Option<&DocwharfStore>,
    corpus: &OpenCorpus,
    queries: &[&str],
) -> Result<EngineAnswers, String> {
    let _server = store.map(DocwharfStore::start_search).transpose()?;
    let address = options.server.or(store.map(DocwharfStore::address)).ok_or("no server")?;
    let mut client = DocwharfClient::connect(address)?;
    let mut answers = EngineAnswers::default();
    let warm_up_rounds = usize::from(options.with_peers);
    for round in 0..warm_up_rounds + options.rounds {
        for query in queries {
            let answer = client.search(query, corpus)?;
            if round >= warm_up_rounds {
                answers.milliseconds.push(answer.milliseconds);
            }
            if round == 0 {
                answers.results.push(distinct_pages(answer.results));
                answers.corrected.push(answer.corrected);
            }
        }
    }
    Ok(answers)
}

fn answer_with_pagefind(
    pagefind: &Pagefind,
    corpus: &OpenCorpus,
    queries: &[&str],
    rounds: usize,
) -> Result<EngineAnswers, String> {
    let mut answers = EngineAnswers::default();
    for answer in pagefind.search(corpus, queries, rounds)? {
        answers.results.push(distinct_pages(answer.results(corpus)));
        answers.milliseconds.extend(answer.milliseconds);
    }
    Ok(answers)
}

fn answer_with_fts5(database: &Fts5Database, queries: &[&str], rounds: usize) -> Result<EngineAnswers, String> {
    let mut answers = EngineAnswers::default();
    for round in 0..=rounds {
        for query in queries {
            let (results, milliseconds) = database.search(query)?;
            if round == 0 {
                answers.results.push(distinct_pages(results));
            } else {
                answers.milliseconds.push(milliseconds);
            }
        }
    }
    Ok(answers)
}
