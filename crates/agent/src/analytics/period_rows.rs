//! The rows of one period: sorted by searches, with checked numbers; and their totals.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::Number;

use super::report::fields::{PeriodTerms, PeriodTotals, PreviousNumbers, ReportParameters, ReportTerm, TermList};
use crate::api::analytics::{SearchPage, SearchTerm};

/// A row with checked numbers.
#[derive(Debug)]
pub(super) struct TermRow<'a> {
    pub(super) search: &'a SearchTerm,
    rank: usize,
    pub(super) hits: Option<u64>,
    ctr: Option<f64>,
}

/// Converts a number of JSON, if it is finite.
pub(super) fn finite(number: Option<&Number>) -> Option<f64> {
    number?.as_f64().filter(|number| number.is_finite())
}

/// Converts a number of searches, rounded to a whole number; none if it is negative.
fn as_count(number: Option<&Number>) -> Option<u64> {
    let number = number?;
    // A number that is too large counts as the maximum.
    number.as_u64().or_else(|| finite(Some(number)).filter(|n| *n >= 0.0).map(round_to_count))
}

/// Rounds to a whole number; negative numbers become 0, and numbers above the range its maximum.
#[expect(clippy::cast_sign_loss, reason = "negative numbers become 0 before the cast")]
fn round_to_count(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

/// Rounds to a tenth.
pub(super) fn round_to_tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// Returns a part in percent, rounded to a tenth; none if the total is 0 or unknown.
pub(super) fn percent_of(part: u64, total: Option<u64>) -> Option<f64> {
    total.filter(|total| *total > 0).map(|total| round_to_tenth(part as f64 * 100.0 / total as f64))
}

/// Returns the difference between two counts, within the range of i64.
pub(super) fn signed_difference(now: u64, before: u64) -> i64 {
    i64::try_from(i128::from(now) - i128::from(before)).unwrap_or(if now > before { i64::MAX } else { i64::MIN })
}

/// Converts and sorts rows by hits. A term may occur twice, because the order of terms changes while pages are read;
/// the later row is newer and replaces the earlier one.
fn sorted_rows(page: &SearchPage, factor: f64) -> Vec<TermRow<'_>> {
    let mut positions: HashMap<&str, usize> = HashMap::new();
    let mut rows: Vec<TermRow<'_>> = Vec::new();
    for search in &page.searches {
        let row = TermRow {
            search,
            rank: 0,
            hits: as_count(search.hits.as_ref()),
            ctr: finite(search.ctr.as_ref()).map(|rate| (rate * factor).clamp(0.0, 100.0)),
        };
        if let Some(position) = positions.get(search.search_query.as_str()) {
            rows[*position] = row;
        } else {
            positions.insert(&search.search_query, rows.len());
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| Reverse(row.hits));
    for (index, row) in rows.iter_mut().enumerate() {
        row.rank = index + 1;
    }
    rows
}

impl TermRow<'_> {
    fn without_click(&self) -> Option<u64> {
        let (hits, ctr) = (self.hits?, self.ctr?);
        Some(hits.saturating_sub(round_to_count(hits as f64 * ctr / 100.0)))
    }

    /// Whether no result was clicked. The rate decides; without a rate, whether the row names a clicked page.
    pub(super) fn is_unclicked(&self) -> bool {
        self.ctr.map_or(self.search.top_clicked_page.is_none(), |ctr| ctr <= 0.0)
    }

    /// Whether results were clicked at a low rate.
    pub(super) fn has_low_rate(&self, parameters: &ReportParameters) -> bool {
        self.ctr.is_some_and(|ctr| ctr > 0.0 && ctr < parameters.low_percent)
            && self.hits.is_some_and(|hits| hits >= parameters.fewest_hits)
    }

    /// Returns the numbers of this row as those of the period before.
    pub(super) fn previous_numbers(&self) -> PreviousNumbers {
        PreviousNumbers { rank: self.rank, hits: self.hits, ctr: self.ctr.map(round_to_tenth) }
    }
}

/// The rows and the totals of one period.
pub(super) struct PeriodRows<'a> {
    pub(super) totals: PeriodTotals,
    pub(super) rows: Vec<TermRow<'a>>,
    positions: HashMap<&'a str, usize>,
}

impl<'a> PeriodRows<'a> {
    /// Converts the terms read; `factor` converts rates to percent.
    pub(super) fn new(terms: &'a PeriodTerms, factor: f64) -> PeriodRows<'a> {
        let rows = sorted_rows(&terms.page, factor);
        let searches_read = rows.iter().filter_map(|row| row.hits).fold(0, u64::saturating_add);
        let all_terms_read = terms.page.next_cursor.is_none();
        let rows_with_rate = || rows.iter().filter_map(|row| Some((row.hits? as f64, row.ctr?)));
        let weight: f64 = rows_with_rate().map(|(hits, _)| hits).sum();
        let clicks: f64 = rows_with_rate().map(|(hits, ctr)| hits * ctr).sum();
        let totals = PeriodTotals {
            from: terms.period.from.clone(),
            to: terms.period.to.clone(),
            total_searches: terms.page.total_searches.or_else(|| all_terms_read.then_some(searches_read)),
            terms_read: rows.len(),
            all_terms_read,
            searches_read,
            click_through_rate: (weight > 0.0).then(|| round_to_tenth(clicks / weight)),
        };
        let positions = rows.iter().enumerate().map(|(index, row)| (row.search.search_query.as_str(), index)).collect();
        PeriodRows { totals, rows, positions }
    }

    /// Finds the row of a term.
    pub(super) fn find(&self, term: &str) -> Option<&TermRow<'a>> {
        self.positions.get(term).map(|index| &self.rows[*index])
    }

    /// Whether a term with this many searches would have been read in this period.
    pub(super) fn would_have_read(&self, hits: u64) -> bool {
        let min_hits = || self.rows.last().and_then(|row| row.hits);
        self.totals.all_terms_read || min_hits().is_some_and(|min_hits| hits > min_hits)
    }

    /// Converts a row for the report, with its numbers in the previous period.
    pub(super) fn report_term(&self, row: &TermRow<'_>, previous: Option<&PeriodRows<'_>>) -> ReportTerm {
        let query = row.search.search_query.as_str();
        let previous_row = previous.and_then(|previous| previous.find(query));
        let change = match (previous, previous_row) {
            (Some(_), Some(previous_row)) => {
                row.hits.zip(previous_row.hits).map(|(now, before)| signed_difference(now, before))
            }
            (Some(previous), None) if previous.totals.all_terms_read => row.hits.map(|now| signed_difference(now, 0)),
            _ => None,
        };
        ReportTerm {
            search_query: query.to_owned(),
            rank: row.rank,
            hits: row.hits,
            share: row.hits.and_then(|hits| percent_of(hits, self.totals.total_searches)),
            ctr: row.ctr.map(round_to_tenth),
            without_click: row.without_click(),
            top_clicked_page: row.search.top_clicked_page.clone(),
            before: previous_row.map(TermRow::previous_numbers),
            change,
        }
    }

    /// Creates a list from these rows: its first terms and its totals.
    pub(super) fn term_list(
        &self,
        mut rows: Vec<&TermRow<'_>>,
        previous: Option<&PeriodRows<'_>>,
        parameters: &ReportParameters,
    ) -> TermList {
        let searches = rows.iter().filter_map(|row| row.hits).fold(0, u64::saturating_add);
        rows.sort_by_key(|row| Reverse(row.without_click().or(row.hits)));
        TermList {
            terms: rows.len(),
            searches,
            share: percent_of(searches, self.totals.total_searches),
            list: rows.into_iter().take(parameters.top).map(|row| self.report_term(row, previous)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analytics::period::Period;
    use crate::analytics::report::MIN_RATED_HITS;

    const PARAMETERS: ReportParameters = ReportParameters { top: 2, low_percent: 20.0, fewest_hits: MIN_RATED_HITS };

    fn number(text: &str) -> Option<Number> {
        serde_json::from_str(text).ok()
    }

    /// Creates a row; `-` is a number that the API does not send.
    fn search((term, hits, ctr, page): (&str, &str, &str, Option<&str>)) -> SearchTerm {
        SearchTerm {
            search_query: term.to_owned(),
            hits: number(hits),
            ctr: number(ctr),
            top_clicked_page: page.map(str::to_owned),
            last_searched_at: None,
        }
    }

    fn read(searches: &[(&str, &str, &str, Option<&str>)], total: Option<u64>, is_all: bool) -> PeriodTerms {
        let searches = searches.iter().copied().map(search).collect();
        let page = SearchPage { searches, total_searches: total, next_cursor: (!is_all).then(|| "more".to_owned()) };
        PeriodTerms { period: Period::default(), page }
    }

    #[test]
    fn a_count_is_whole_and_not_below_zero() {
        for (text, expected) in [
            ("0", Some(0)),
            ("7", Some(7)),
            ("2.4", Some(2)),
            ("2.5", Some(3)),
            ("-0.0", Some(0)),
            ("-0.1", None),
            ("-1", None),
            ("18446744073709551615", Some(u64::MAX)),
            ("1e30", Some(u64::MAX)),
            ("-", None),
        ] {
            assert_eq!(as_count(number(text).as_ref()), expected, "{text}");
        }
    }

    #[test]
    fn difference_saturates_and_percentage_needs_a_total_above_zero() {
        for (now, before, expected) in [
            (5, 3, 2),
            (3, 5, -2),
            (5, 5, 0),
            (u64::MAX, 0, i64::MAX),
            (0, u64::MAX, i64::MIN),
            (i64::MAX.unsigned_abs(), 0, i64::MAX),
        ] {
            assert_eq!(signed_difference(now, before), expected, "{now} {before}");
        }
        for (part, total, expected) in [
            (1, Some(3), Some(33.3)),
            (2, Some(3), Some(66.7)),
            (0, Some(9), Some(0.0)),
            (1, Some(0), None),
            (1, None, None),
        ] {
            assert_eq!(percent_of(part, total), expected, "{part} {total:?}");
        }
    }

    #[test]
    fn low_rate_is_below_the_threshold_above_zero_and_has_enough_searches() {
        // Searches, rate in percent, page; whether the rate is low, whether no result was clicked, searches without a
        // click.
        for (hits, ctr, page, is_low, is_unclicked, without) in [
            ("3", "19.9", Some("/x"), true, false, Some(2)),
            ("3", "20", Some("/x"), false, false, Some(2)),
            ("2", "19.9", Some("/x"), false, false, Some(2)),
            ("3", "0.1", None, true, false, Some(3)),
            ("3", "0", Some("/x"), false, true, Some(3)),
            ("3", "-5", Some("/x"), false, true, Some(3)),
            ("3", "100", None, false, false, Some(0)),
            ("3", "250", None, false, false, Some(0)),
            ("3", "-", None, false, true, None),
            ("3", "-", Some("/x"), false, false, None),
            ("-", "10", Some("/x"), false, false, None),
        ] {
            let read = read(&[("a", hits, ctr, page)], None, true);
            let rows = PeriodRows::new(&read, 1.0);
            let row = rows.find("a").unwrap();
            let found = (row.has_low_rate(&PARAMETERS), row.is_unclicked(), row.without_click());
            assert_eq!(found, (is_low, is_unclicked, without), "{hits} {ctr} {page:?}");
        }
    }

    #[test]
    fn rows_are_ranked_by_searches_and_a_repeated_term_has_its_last_count() {
        let rows = [
            ("none", "-", "-", None),
            ("few", "2", "0.5", None),
            ("twice", "9", "0.9", None),
            ("many", "5", "0.1", None),
            ("same", "5", "-", None),
            ("twice", "3", "0.2", None),
        ];
        let read = read(&rows, None, true);
        let rows = PeriodRows::new(&read, 100.0);
        let ranks: Vec<_> =
            rows.rows.iter().map(|row| (row.search.search_query.as_str(), row.rank, row.hits)).collect();
        let expected =
            [("many", 1, Some(5)), ("same", 2, Some(5)), ("twice", 3, Some(3)), ("few", 4, Some(2)), ("none", 5, None)];
        assert_eq!(ranks, expected);
        assert_eq!(
            rows.find("twice").map(TermRow::previous_numbers),
            Some(PreviousNumbers { rank: 3, hits: Some(3), ctr: Some(20.0) })
        );
        let totals = &rows.totals;
        assert_eq!((totals.terms_read, totals.searches_read, totals.total_searches), (5, 15, Some(15)));
        // (2 x 50 + 5 x 10 + 3 x 20) of 10 searches with a rate
        assert_eq!(totals.click_through_rate, Some(21.0));
    }

    #[test]
    fn total_is_reported_by_the_api_or_else_summed_from_a_complete_list_of_terms() {
        for (total, is_all, expected) in
            [(Some(9), true, Some(9)), (Some(9), false, Some(9)), (None, true, Some(4)), (None, false, None)]
        {
            let read = read(&[("a", "4", "-", None)], total, is_all);
            let totals = PeriodRows::new(&read, 1.0).totals;
            assert_eq!((totals.total_searches, totals.all_terms_read), (expected, is_all), "{total:?}");
            assert_eq!(totals.click_through_rate, None);
        }
    }

    #[test]
    fn would_have_read_needs_more_searches_than_the_last_term_of_an_incomplete_list() {
        let rows = [("a", "9", "-", None), ("b", "5", "-", None)];
        for (is_all, rows, hits, expected) in [
            (false, &rows[..], 6, true),
            (false, &rows[..], 5, false),
            (false, &rows[..], 4, false),
            (false, &[], 4, false),
            (false, &[("c", "-", "-", None)], 4, false),
            (true, &rows[..], 1, true),
            (true, &[], 1, true),
        ] {
            let read = read(rows, None, is_all);
            assert_eq!(PeriodRows::new(&read, 1.0).would_have_read(hits), expected, "{is_all} {hits} of {rows:?}");
        }
    }

    #[test]
    fn change_is_shown_only_if_the_previous_count_is_known() {
        let now = read(&[("both", "7", "-", None), ("new", "4", "-", None), ("none", "-", "-", None)], None, true);
        let before = [("both", "9", "-", None), ("none", "2", "-", None)];
        for (is_all, changes) in [(true, [Some(-2), Some(4), None]), (false, [Some(-2), None, None])] {
            let before = read(&before, None, is_all);
            let (now, before) = (PeriodRows::new(&now, 1.0), PeriodRows::new(&before, 1.0));
            let terms = ["both", "new", "none"].map(|term| now.report_term(now.find(term).unwrap(), Some(&before)));
            assert_eq!(terms.each_ref().map(|term| term.change), changes);
            assert_eq!(terms.map(|term| term.before.map(|then| then.rank)), [Some(1), None, Some(2)]);
            assert_eq!(now.report_term(&now.rows[0], None).change, None);
        }
    }

    #[test]
    fn list_is_sorted_by_searches_without_a_click_and_shows_the_totals_of_all_terms() {
        let rows = [("a", "10", "90", None), ("b", "9", "-", None), ("c", "8", "50", None), ("d", "2", "0", None)];
        let read = read(&rows, Some(58), true);
        let rows = PeriodRows::new(&read, 1.0);
        let list = rows.term_list(rows.rows.iter().collect(), None, &PARAMETERS);
        assert_eq!((list.terms, list.searches, list.share), (4, 29, Some(50.0)));
        let terms: Vec<&str> = list.list.iter().map(|term| term.search_query.as_str()).collect();
        assert_eq!(terms, ["b", "c"], "without a rate all searches count");
    }
}
