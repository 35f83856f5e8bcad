//! The report of a period: what readers search for, which searches lead to no click, and the changes since the period
//! before. Pure.
//!
//! Rates are in percent; shares are of all searches in the period. Both are rounded to a tenth. A number that the API
//! does not send is none, never zero.

pub(super) mod fields;

use std::cmp::Reverse;

use super::period_rows::{PeriodRows, TermRow, finite, percent_of, round_to_tenth, signed_difference};

pub use fields::{
    GoneTerm, MIN_RATED_HITS, PeriodTerms, PeriodTotals, PreviousNumbers, ReportParameters, ReportTerm, SearchReport,
    TermList, TermTrends, TotalsChange,
};

/// Returns the factor that converts rates to percent. Some servers send percent, others a fraction of one: a rate above
/// 1 can only be percent. It takes the rates of both periods, so that both are converted in the same way.
pub fn percent_factor(rates: impl IntoIterator<Item = f64>) -> f64 {
    if rates.into_iter().any(|rate| rate > 1.0) { 1.0 } else { 100.0 }
}

fn find_trends(now: &PeriodRows<'_>, before: &PeriodRows<'_>, parameters: &ReportParameters) -> TermTrends {
    let mut changed: Vec<(i64, ReportTerm)> = Vec::new();
    let mut new = Vec::new();
    for row in &now.rows {
        let term = now.report_term(row, Some(before));
        match (&term.before, term.change, term.hits) {
            (Some(_), Some(change), _) => changed.push((change, term)),
            (None, _, Some(hits)) if hits > 0 && before.would_have_read(hits) => new.push(term),
            _ => {}
        }
    }
    let gone = before.rows.iter().filter(|row| now.find(&row.search.search_query).is_none());
    let gone = gone.filter(|row| row.hits.is_some_and(|hits| hits > 0 && now.would_have_read(hits)));
    let gone =
        gone.map(|row| GoneTerm { search_query: row.search.search_query.clone(), before: row.previous_numbers() });
    let gone = gone.take(parameters.top).collect();
    new.truncate(parameters.top);
    // A stable sort: of equal changes, the more frequent term comes first.
    let list = |terms: Vec<(i64, ReportTerm)>| terms.into_iter().take(parameters.top).map(|(_, term)| term).collect();
    let (mut risen, mut fallen): (Vec<_>, Vec<_>) =
        changed.into_iter().filter(|(change, _)| *change != 0).partition(|(change, _)| *change > 0);
    risen.sort_by_key(|(change, _)| Reverse(*change));
    fallen.sort_by_key(|(change, _)| *change);
    TermTrends { risen: list(risen), fallen: list(fallen), new, gone }
}

impl SearchReport {
    /// Creates a report of the terms of a period.
    pub fn new(
        project: &str,
        made_at: &str,
        terms: &PeriodTerms,
        before: Option<&PeriodTerms>,
        parameters: ReportParameters,
    ) -> SearchReport {
        let rates = [Some(terms), before].into_iter().flatten().flat_map(|terms| &terms.page.searches);
        let factor = percent_factor(rates.filter_map(|search| finite(search.ctr.as_ref())));
        let now = PeriodRows::new(terms, factor);
        let before = before.map(|terms| PeriodRows::new(terms, factor));
        let previous = before.as_ref();
        let change = previous.map(|before| {
            let totals = now.totals.total_searches.zip(before.totals.total_searches);
            let rates = now.totals.click_through_rate.zip(before.totals.click_through_rate);
            TotalsChange {
                searches: totals.map(|(now, before)| signed_difference(now, before)),
                percent: totals
                    .filter(|(_, before)| *before > 0)
                    .map(|(now, before)| round_to_tenth((now as f64 - before as f64) * 100.0 / before as f64)),
                points: rates.map(|(now, before)| round_to_tenth(now - before)),
            }
        });
        let select =
            |is_selected: &dyn Fn(&TermRow<'_>) -> bool| now.rows.iter().filter(|row| is_selected(row)).collect();
        SearchReport {
            schema_version: 1,
            project: project.to_owned(),
            made_at: made_at.to_owned(),
            parameters,
            change,
            top: now.rows.iter().take(parameters.top).map(|row| now.report_term(row, previous)).collect(),
            low_ctr: now.term_list(select(&|row| row.has_low_rate(&parameters)), previous, &parameters),
            unclicked: now.term_list(select(&|row| row.is_unclicked()), previous, &parameters),
            trends: previous.map(|before| find_trends(&now, before, &parameters)),
            period: now.totals.clone(),
            previous: previous.map(|before| before.totals.clone()),
        }
    }

    /// Whether there was no search in either period.
    pub fn is_empty(&self) -> bool {
        let empty = |totals: &PeriodTotals| totals.terms_read == 0 && totals.total_searches.unwrap_or(0) == 0;
        empty(&self.period) && self.previous.as_ref().is_none_or(empty)
    }
}

impl PeriodTotals {
    /// Returns the share of all searches that the terms read have; percent.
    pub fn share_read(&self) -> Option<f64> {
        percent_of(self.searches_read, self.total_searches)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Number;

    use super::*;
    use crate::analytics::period::Period;
    use crate::api::analytics::{SearchPage, SearchTerm};

    const PARAMETERS: ReportParameters = ReportParameters { top: 10, low_percent: 20.0, fewest_hits: MIN_RATED_HITS };

    fn search(term: &str, hits: Option<f64>, ctr: Option<f64>, page: Option<&str>) -> SearchTerm {
        let to_number = |n: f64| if n.fract() == 0.0 { Number::from(n as i64) } else { Number::from_f64(n).unwrap() };
        SearchTerm {
            search_query: term.to_owned(),
            hits: hits.map(to_number),
            ctr: ctr.and_then(Number::from_f64),
            top_clicked_page: page.map(str::to_owned),
            last_searched_at: None,
        }
    }

    fn read(searches: Vec<SearchTerm>, total: Option<u64>, more: bool) -> PeriodTerms {
        let period = Period { from: Some("2026-02-01".into()), to: Some("2026-03-01".into()) };
        PeriodTerms {
            period,
            page: SearchPage { searches, total_searches: total, next_cursor: more.then(|| "c".to_owned()) },
        }
    }

    fn report(now: &PeriodTerms, before: Option<&PeriodTerms>) -> SearchReport {
        SearchReport::new("p", "2026-03-01T00:00:00Z", now, before, PARAMETERS)
    }

    fn names(terms: &[ReportTerm]) -> Vec<&str> {
        terms.iter().map(|term| term.search_query.as_str()).collect()
    }

    #[test]
    fn one_rate_above_one_means_that_all_rates_are_percentages() {
        assert_eq!(percent_factor([0.0, 0.4, 1.0]).to_bits(), 100f64.to_bits());
        assert_eq!(percent_factor([0.0, 0.4, 1.1]).to_bits(), 1f64.to_bits());
        assert_eq!(percent_factor([]).to_bits(), 100f64.to_bits());
        // The rates of one period decide for both.
        let now = read(vec![search("a", Some(10.0), Some(0.5), Some("/a"))], None, false);
        let before = read(vec![search("a", Some(10.0), Some(50.0), Some("/a"))], None, false);
        assert_eq!(report(&now, Some(&before)).top[0].ctr, Some(0.5));
        assert_eq!(report(&now, None).top[0].ctr, Some(50.0));
    }

    #[test]
    fn low_rate_and_unclicked_lists_contain_the_matching_terms() {
        let searches = vec![
            search("tides", Some(100.0), Some(80.0), Some("/tides")),
            search("much missed", Some(50.0), Some(10.0), Some("/x")),
            search("missed", Some(20.0), Some(5.0), Some("/x")),
            search("just enough", Some(10.0), Some(20.0), Some("/x")),
            search("never", Some(9.0), Some(0.0), None),
            search("never said", Some(7.0), None, None),
            search("page gone", Some(6.0), Some(50.0), None),
            search("unknown", Some(5.0), None, Some("/y")),
            search("too few", Some(2.0), Some(15.0), Some("/y")),
            search("no number", None, None, None),
        ];
        let report = report(&read(searches, Some(418), false), None);
        assert_eq!(names(&report.low_ctr.list), ["much missed", "missed"]);
        assert_eq!(names(&report.unclicked.list), ["never", "never said", "no number"]);
        assert_eq!((report.unclicked.searches, report.unclicked.share), (16, Some(3.8)));
        assert_eq!(report.low_ctr.list[0].without_click, Some(45));
        // (80 + 5 + 1 + 2 + 0 + 3 + 0.3) of 197 searches with a rate
        assert_eq!(report.period.click_through_rate, Some(46.3));
        assert_eq!((report.period.total_searches, report.period.searches_read), (Some(418), 209));
        assert_eq!((report.top[0].share, report.top[9].share, report.top[9].hits), (Some(23.9), None, None));
        assert!(report.trends.is_none() && report.change.is_none());
    }

    #[test]
    fn trends_compare_searches_with_the_previous_period() {
        let row = |term, hits| search(term, Some(hits), Some(50.0), Some("/"));
        let before =
            vec![row("falls", 40.0), row("rises", 10.0), row("stays", 5.0), row("gone", 4.0), row("drops", 3.0)];
        let before = read(before, Some(62), false);
        let now = vec![row("rises", 30.0), row("falls", 20.0), row("new", 9.0), row("stays", 5.0), row("drops", 1.0)];
        let now = read(now, Some(65), false);
        let report = report(&now, Some(&before));
        let trends = report.trends.unwrap();
        assert_eq!((names(&trends.risen), names(&trends.fallen)), (vec!["rises"], vec!["falls", "drops"]));
        assert_eq!((names(&trends.new), trends.gone[0].search_query.as_str()), (vec!["new"], "gone"));
        assert_eq!((trends.gone.len(), trends.gone[0].before.rank), (1, 4));
        assert_eq!((report.top[0].change, report.top[0].before.map(|then| then.rank)), (Some(20), Some(2)));
        assert_eq!((report.top[2].change, report.top[2].before), (Some(9), None));
        let change = report.change.unwrap();
        assert_eq!((change.searches, change.percent, change.points), (Some(3), Some(4.8), Some(0.0)));
    }

    #[test]
    fn term_below_the_cutoff_of_an_incomplete_list_is_neither_new_nor_gone() {
        let row = |term, hits| search(term, Some(hits), None, None);
        let before = read(vec![row("a", 10.0), row("b", 5.0)], Some(90), true);
        let now = read(vec![row("c", 6.0), row("d", 5.0), row("e", 4.0)], Some(80), true);
        let report = report(&now, Some(&before));
        let trends = report.trends.unwrap();
        assert_eq!(names(&trends.new), ["c"]);
        assert_eq!(trends.gone.iter().map(|gone| gone.search_query.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(report.top[0].change, None);
        assert!(!report.period.all_terms_read);
    }

    #[test]
    fn missing_invalid_or_zero_numbers_give_no_percentage() {
        let nothing = report(&read(vec![], None, false), None);
        assert!(nothing.is_empty());
        assert_eq!((nothing.period.total_searches, nothing.period.click_through_rate), (Some(0), None));
        let odd = vec![
            search("negative", Some(-4.0), Some(-3.0), None),
            search("", Some(1e18), Some(1e300), Some("")),
            search("", Some(3.0), Some(40.0), None),
            search("half", Some(2.5), None, None),
        ];
        let odd = report(&read(odd, Some(0), true), Some(&read(vec![], Some(0), false)));
        assert_eq!((odd.period.terms_read, odd.top[0].share), (3, None));
        assert_eq!((odd.top[0].hits, odd.top[0].search_query.as_str()), (Some(3), ""));
        assert_eq!((odd.top[2].hits, odd.top[2].ctr), (None, Some(0.0)));
        assert_eq!(odd.change.unwrap().percent, None);
        let unknown = report(&read(vec![search("a", Some(2.0), None, None)], None, true), None);
        assert_eq!((unknown.period.total_searches, unknown.top[0].share), (None, None));
    }
}
