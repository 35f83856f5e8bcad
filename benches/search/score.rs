//! The figures of relevance: how far up a right page is, and whether the first result leads to the right section.

use serde::{Deserialize, Serialize};

use crate::corpus::Target;
use crate::queries::{Query, QueryKind};
use crate::sections::SectionMaps;

/// The number of results that count.
pub(crate) const MAX_RESULTS: usize = 10;

/// The score of one query.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct QueryScore {
    pub kind: QueryKind,
    /// The rank of the first right page, from 1; `None` if none of the results is right.
    pub rank: Option<usize>,
    /// Whether the first result leads to the right section of the right page.
    pub is_at_section: bool,
    /// Normalised discounted cumulative gain; each right page has the gain 1.
    pub ndcg: f64,
    /// Whether there are any results.
    pub has_results: bool,
}

/// Returns the results without repeated pages, at most [`MAX_RESULTS`].
pub(crate) fn distinct_pages(results: Vec<Target>) -> Vec<Target> {
    let mut distinct: Vec<Target> = Vec::new();
    for result in results {
        if distinct.len() < MAX_RESULTS && distinct.iter().all(|other| other.page != result.page) {
            distinct.push(result);
        }
    }
    distinct
}

/// Scores the results of a query, which are on different pages.
pub(crate) fn score(query: &Query, results: &[Target], sections: &mut SectionMaps) -> QueryScore {
    let is_right = |result: &Target| query.targets.iter().any(|target| target.page == result.page);
    let gain = |place: usize| 1.0 / (place as f64 + 2.0).log2();
    let found: f64 = (0..results.len()).filter(|place| is_right(&results[*place])).map(gain).sum();
    let mut pages: Vec<&str> = query.targets.iter().map(|target| target.page.as_str()).collect();
    pages.sort_unstable();
    pages.dedup();
    let ideal: f64 = (0..pages.len().min(MAX_RESULTS)).map(gain).sum();
    QueryScore {
        kind: query.kind,
        rank: results.iter().position(is_right).map(|place| place + 1),
        is_at_section: results.first().is_some_and(|first| sections.is_at_section(first, &query.targets)),
        ndcg: found / ideal,
        has_results: !results.is_empty(),
    }
}

/// A figure of relevance over several queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RelevanceFigure {
    /// Mean reciprocal rank of the first right page, within ten results.
    Mrr,
    /// Share of queries with a right page among the first results.
    Success(usize),
    Ndcg,
    /// Share of queries without any result.
    NoResult,
    /// Share of queries whose first result leads to the right section.
    Section,
}

impl RelevanceFigure {
    pub(crate) fn title(self) -> String {
        match self {
            Self::Mrr => "MRR@10".to_owned(),
            Self::Success(results) => format!("S@{results}"),
            Self::Ndcg => "nDCG@10".to_owned(),
            Self::NoResult => "no result".to_owned(),
            Self::Section => "A@1".to_owned(),
        }
    }

    /// The mean over the queries; `None` without queries.
    pub(crate) fn mean<'a>(self, scores: impl Iterator<Item = &'a QueryScore>) -> Option<f64> {
        let share = |is_so: bool| if is_so { 1.0 } else { 0.0 };
        let value = |score: &QueryScore| match self {
            Self::Mrr => score.rank.map_or(0.0, |rank| 1.0 / rank as f64),
            Self::Success(results) => share(score.rank.is_some_and(|rank| rank <= results)),
            Self::Ndcg => score.ndcg,
            Self::NoResult => share(!score.has_results),
            Self::Section => share(score.is_at_section),
        };
        let values: Vec<f64> = scores.map(value).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    }
}
