//! The tables: relevance with the goals, and the cost of the indexes and queries.

use std::fmt::Write as _;

use crate::common::document::format_number;
use crate::common::stats::median;
use crate::corpus::{CORPORA, Corpus};
use crate::queries::QueryKind;
use crate::results::{CorpusResults, EngineResults, StoredResults};
use crate::score::{QueryScore, RelevanceFigure};
use crate::{docwharf, fts5, pagefind};

const ENGINES: [&str; 3] = [docwharf::NAME, pagefind::NAME, fts5::NAME];
const MIB: f64 = 1024.0 * 1024.0;
const MB: f64 = 1e6;

/// The queries that a row of the table is about.
#[derive(Debug, Clone, Copy)]
enum QueryScope {
    /// All queries of the pooled corpora.
    Pooled,
    /// All queries of a corpus.
    Corpus(&'static str),
    /// The queries of a kind in the pooled corpora.
    Kind(QueryKind),
}

/// A row of the table of relevance: what docwharf must reach, and what it should.
struct RelevanceRow(QueryScope, RelevanceFigure, Option<(f64, f64)>);

const RELEVANCE: &[RelevanceRow] = &[
    RelevanceRow(QueryScope::Pooled, RelevanceFigure::Mrr, Some((0.86, 0.90))),
    RelevanceRow(QueryScope::Pooled, RelevanceFigure::Success(1), Some((0.79, 0.85))),
    RelevanceRow(QueryScope::Pooled, RelevanceFigure::Success(3), Some((0.93, 0.955))),
    RelevanceRow(QueryScope::Pooled, RelevanceFigure::Success(10), Some((0.97, 0.985))),
    RelevanceRow(QueryScope::Pooled, RelevanceFigure::Ndcg, Some((0.86, 0.89))),
    RelevanceRow(QueryScope::Pooled, RelevanceFigure::NoResult, Some((0.01, 0.003))),
    RelevanceRow(QueryScope::Corpus("python"), RelevanceFigure::Mrr, Some((0.88, 0.92))),
    RelevanceRow(QueryScope::Corpus("postgresql"), RelevanceFigure::Mrr, Some((0.83, 0.87))),
    RelevanceRow(QueryScope::Corpus("rustbook"), RelevanceFigure::Mrr, Some((0.88, 0.92))),
    RelevanceRow(QueryScope::Corpus("gimp"), RelevanceFigure::Mrr, Some((0.90, 0.97))),
    RelevanceRow(QueryScope::Corpus("rust"), RelevanceFigure::Mrr, None),
    RelevanceRow(QueryScope::Corpus("python"), RelevanceFigure::Section, Some((0.75, 0.82))),
    RelevanceRow(QueryScope::Corpus("postgresql"), RelevanceFigure::Section, Some((0.74, 0.80))),
    RelevanceRow(QueryScope::Corpus("rustbook"), RelevanceFigure::Section, Some((0.80, 0.88))),
    RelevanceRow(QueryScope::Corpus("gimp"), RelevanceFigure::Section, None),
    RelevanceRow(QueryScope::Kind(QueryKind::Identifier), RelevanceFigure::Mrr, Some((0.93, 0.95))),
    RelevanceRow(QueryScope::Kind(QueryKind::Split), RelevanceFigure::Mrr, Some((0.90, 0.93))),
    RelevanceRow(QueryScope::Kind(QueryKind::Concept), RelevanceFigure::Mrr, None),
    RelevanceRow(QueryScope::Kind(QueryKind::Phrase), RelevanceFigure::Mrr, None),
    RelevanceRow(QueryScope::Kind(QueryKind::Prefix), RelevanceFigure::Mrr, Some((0.85, 0.90))),
    RelevanceRow(QueryScope::Kind(QueryKind::Typo), RelevanceFigure::Mrr, Some((0.73, 0.85))),
    RelevanceRow(QueryScope::Kind(QueryKind::Question), RelevanceFigure::Mrr, Some((0.74, 0.80))),
];

fn find_corpus(name: &str) -> Option<&'static Corpus> {
    CORPORA.iter().find(|corpus| corpus.name == name)
}

/// The scores of an engine for the queries of a scope.
fn scores<'a>(results: &'a StoredResults, scope: QueryScope, engine: &str) -> Vec<&'a QueryScore> {
    let is_in_scope = |name: &str, score: &QueryScore| {
        let is_pooled = find_corpus(name).is_some_and(|corpus| corpus.is_pooled);
        match scope {
            QueryScope::Pooled => is_pooled,
            QueryScope::Corpus(corpus) => name == corpus,
            QueryScope::Kind(kind) => is_pooled && score.kind == kind,
        }
    };
    let mut selected = Vec::new();
    for (name, corpus) in &results.0 {
        let Some(engine) = corpus.engines.get(engine) else { continue };
        selected.extend(engine.scores.iter().filter(|score| is_in_scope(name, score)));
    }
    selected
}

/// The goal, and whether docwharf reaches it. `is_upper` for a figure that should be small.
fn goal_cell(value: f64, goal: Option<(f64, f64)>, is_upper: bool) -> String {
    let Some((must, aim)) = goal else { return "–".to_owned() };
    let is_met = |bound: f64| if is_upper { value <= bound } else { value >= bound };
    let verdict = match (is_met(must), is_met(aim)) {
        (false, _) => "**missed**",
        (true, false) => "met, aim missed",
        (true, true) => "met, aim too",
    };
    format!("{must} ({aim}): {verdict}")
}

fn relevance_table(results: &StoredResults) -> String {
    let mut table = format!("| | queries | {} | goal (aim) |\n|---|---|---|---|---|---|\n", ENGINES.join(" | "));
    for RelevanceRow(scope, figure, goal) in RELEVANCE {
        let own = scores(results, *scope, docwharf::NAME);
        let Some(value) = figure.mean(own.iter().copied()) else { continue };
        let name = match scope {
            QueryScope::Pooled => "pooled",
            QueryScope::Corpus(name) => find_corpus(name).map_or(*name, |corpus| corpus.title),
            QueryScope::Kind(kind) => kind.name(),
        };
        let cells = ENGINES.map(|engine| {
            let value = figure.mean(scores(results, *scope, engine).into_iter());
            value.map_or_else(|| "–".to_owned(), |value| format!("{value:.3}"))
        });
        let goal = goal_cell(value, *goal, *figure == RelevanceFigure::NoResult);
        let _ = writeln!(table, "| {name}, {} | {} | {} | {goal} |", figure.title(), own.len(), cells.join(" | "));
    }
    table
}

fn cost_table(results: &StoredResults) -> String {
    let mut table = "| | pages | sections | index s | with sealing s | peak MiB | index MB | p50 ms | p99 ms |\n\
                     |---|---|---|---|---|---|---|---|---|\n"
        .to_owned();
    for corpus in CORPORA {
        let Some(measured) = results.0.get(corpus.name) else { continue };
        for name in ENGINES {
            let Some(engine) = measured.engines.get(name) else { continue };
            let count = |number: Option<u64>| number.map_or_else(|| "–".to_owned(), |number| number.to_string());
            let index = &engine.index;
            let numbers = [
                median(&index.seconds),
                median(&index.seconds_from_folder),
                median(&index.peak_bytes) / MIB,
                if index.bytes == 0 { f64::NAN } else { index.bytes as f64 / MB },
                engine.p50_ms,
                engine.p99_ms,
            ];
            let _ = writeln!(
                table,
                "| {}, {name} | {} | {} | {} |",
                corpus.title,
                count(index.pages),
                count(index.sections),
                numbers.map(format_number).join(" | ")
            );
        }
    }
    table
}

fn find_engine<'a>(results: &'a StoredResults, corpus: &str, engine: &str) -> Option<&'a EngineResults> {
    results.0.get(corpus)?.engines.get(engine)
}

/// The bounds of cost: what is compared, docwharf's value, and the goal with the aim.
fn cost_goals(results: &StoredResults) -> Vec<(&'static str, f64, (f64, f64))> {
    let own = |corpus: &str, figure: fn(&EngineResults) -> f64| {
        find_engine(results, corpus, docwharf::NAME).map_or(f64::NAN, figure)
    };
    let to_pagefind = |corpus: &str, figure: fn(&EngineResults) -> f64| {
        own(corpus, figure) / find_engine(results, corpus, pagefind::NAME).map_or(f64::NAN, figure)
    };
    let seconds: fn(&EngineResults) -> f64 = |engine| median(&engine.index.seconds);
    let peak: fn(&EngineResults) -> f64 = |engine| median(&engine.index.peak_bytes) / MIB;
    let added: fn(&EngineResults) -> f64 = |engine| engine.added_bytes.map_or(f64::NAN, |bytes| bytes as f64 / MIB);
    vec![
        ("Python: time to index, of Pagefind's", to_pagefind("python", seconds), (0.7, 0.5)),
        ("all Rust documentation: time to index, of Pagefind's", to_pagefind("rust", seconds), (0.55, 0.25)),
        ("all Rust documentation: peak memory, of Pagefind's", to_pagefind("rust", peak), (0.17, 0.08)),
        ("all Rust documentation: peak memory, MiB", own("rust", peak), (512.0, 250.0)),
        ("Python: index, MB", own("python", |engine| engine.index.bytes as f64 / MB), (17.0, 9.0)),
        ("Python: p50, ms", own("python", |engine| engine.p50_ms), (2.0, 1.0)),
        ("Python: p99, ms", own("python", |engine| engine.p99_ms), (10.0, 5.0)),
        ("all Rust documentation: p99, ms", own("rust", |engine| engine.p99_ms), (30.0, 15.0)),
        ("Python: memory that the open index adds, MiB", own("python", added), (10.0, 10.0)),
        ("all Rust documentation: memory that the open index adds, MiB", own("rust", added), (10.0, 10.0)),
    ]
}

fn cost_goal_table(results: &StoredResults) -> String {
    let mut table = "| | docwharf | goal (aim) |\n|---|---|---|\n".to_owned();
    for (title, value, goal) in cost_goals(results).into_iter().filter(|(_, value, _)| value.is_finite()) {
        let _ = writeln!(table, "| {title} | {} | {} |", format_number(value), goal_cell(value, Some(goal), true));
    }
    table
}

/// The dates, the machine, the versions and the corpora of the measurements.
fn circumstances(results: &StoredResults) -> String {
    let join = |mut texts: Vec<String>| {
        texts.sort_unstable();
        texts.dedup();
        texts.join(", ")
    };
    let each = |text: fn(&CorpusResults) -> String| join(results.0.values().map(text).collect());
    let versions = results.0.values().flat_map(|corpus| corpus.engines.values().map(|engine| engine.version.clone()));
    let corpora = CORPORA.iter().filter_map(|corpus| {
        let measured = results.0.get(corpus.name)?;
        Some(format!("{}: {}", corpus.title, measured.description))
    });
    format!(
        "Measured on {} with {}; {}; rounds: {}. {}.\n",
        each(|corpus| corpus.date.clone()),
        join(versions.collect()),
        each(|corpus| corpus.machine.clone()),
        each(|corpus| corpus.rounds.to_string()),
        corpora.collect::<Vec<_>>().join("; ")
    )
}

/// All tables, as Markdown.
pub(crate) fn tables(results: &StoredResults) -> String {
    [circumstances(results), relevance_table(results), cost_table(results), cost_goal_table(results)].join("\n")
}
