//! The fields of a report, as `--json` prints them, and the terms and parameters from which it is created.

use serde::Serialize;

use crate::analytics::period::Period;
use crate::api::analytics::SearchPage;

/// Minimum number of searches for a term to have a low rate: with one or two searches the rate is chance.
pub const MIN_RATED_HITS: u64 = 3;

/// Parameters of the lists in a report.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportParameters {
    /// Upper bound of the terms in each list.
    pub top: usize,
    /// Click-through rate in percent below which a term has a low rate.
    pub low_percent: f64,
    /// Minimum number of searches; see [`MIN_RATED_HITS`].
    pub fewest_hits: u64,
}

/// The terms of a period, as the API sent them.
#[derive(Debug, Clone)]
pub struct PeriodTerms {
    /// The requested period.
    pub period: Period,
    /// All terms that were read.
    pub page: SearchPage,
}

/// A report.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchReport {
    /// Version of this format: 1.
    pub schema_version: u32,
    /// The project of the searches.
    pub project: String,
    /// Time of the report in UTC, to the second.
    pub made_at: String,
    /// Parameters of the lists.
    #[serde(rename = "rules")]
    pub parameters: ReportParameters,
    /// The period.
    pub period: PeriodTotals,
    /// The period before, if it was requested.
    pub previous: Option<PeriodTotals>,
    /// Differences between the two periods.
    pub change: Option<TotalsChange>,
    /// The most frequent terms.
    pub top: Vec<ReportTerm>,
    /// Terms with a low click-through rate, by searches without a click.
    pub low_ctr: TermList,
    /// Terms of which no result was clicked, by searches.
    pub unclicked: TermList,
    /// Changes of terms, if there is a period before.
    pub trends: Option<TermTrends>,
}

/// The numbers of a period.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PeriodTotals {
    /// First moment; none for the beginning of the records.
    pub from: Option<String>,
    /// End, exclusive; none for now.
    pub to: Option<String>,
    /// Number of searches: events, including those for terms that were not read.
    pub total_searches: Option<u64>,
    /// Number of terms read.
    pub terms_read: usize,
    /// Whether all terms were read.
    pub all_terms_read: bool,
    /// Number of searches for the terms read.
    pub searches_read: u64,
    /// Searches with a click, of all searches whose terms have a rate; percent.
    pub click_through_rate: Option<f64>,
}

/// Differences between a period and the one before.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TotalsChange {
    /// Increase of searches; negative for a decrease.
    pub searches: Option<i64>,
    /// Increase of searches in percent of the period before.
    pub percent: Option<f64>,
    /// Increase of the click-through rate in percentage points.
    pub points: Option<f64>,
}

/// A term with its numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReportTerm {
    /// The term as readers typed it: any text.
    pub search_query: String,
    /// Position among all terms, by searches; 1 is the first.
    pub rank: usize,
    /// Number of searches for the term.
    pub hits: Option<u64>,
    /// Share of all searches; percent.
    pub share: Option<f64>,
    /// Searches with a click; percent.
    pub ctr: Option<f64>,
    /// Number of searches without a click.
    pub without_click: Option<u64>,
    /// The page that readers clicked most.
    pub top_clicked_page: Option<String>,
    /// The term in the period before; none if it was not among the terms read for that period.
    pub before: Option<PreviousNumbers>,
    /// Increase of searches since the period before (negative for a decrease); none if it is unknown.
    pub change: Option<i64>,
}

/// A term in the period before.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviousNumbers {
    /// Position in that period.
    pub rank: usize,
    /// Number of searches in that period.
    pub hits: Option<u64>,
    /// Searches with a click in that period; percent.
    pub ctr: Option<f64>,
}

/// The first terms of a list, and the totals of the whole list.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TermList {
    /// Number of terms in the whole list.
    pub terms: usize,
    /// Number of searches for them.
    pub searches: u64,
    /// Their share of all searches; percent.
    pub share: Option<f64>,
    /// The first terms.
    pub list: Vec<ReportTerm>,
}

/// Changes of terms between the periods, largest first. A term that was read in one period only is new or gone if it
/// would have been read in the other period with as many searches.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TermTrends {
    /// Terms with more searches than before.
    pub risen: Vec<ReportTerm>,
    /// Terms with fewer searches than before.
    pub fallen: Vec<ReportTerm>,
    /// Terms without a search before.
    pub new: Vec<ReportTerm>,
    /// Terms without a search in this period.
    pub gone: Vec<GoneTerm>,
}

/// A term without a search in this period, and so without rank, share and rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GoneTerm {
    /// The term as readers typed it.
    pub search_query: String,
    /// The term in the period before.
    pub before: PreviousNumbers,
}
