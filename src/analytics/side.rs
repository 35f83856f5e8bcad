//! One period as it was read: rows by their searches, with numbers proved, and totals.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde_json::Number;

use super::report::{Before, List, Read, Rules, Term, Totals};
use crate::api::analytics::{Page, Search};

/// A row with its numbers proved.
#[derive(Debug)]
pub(super) struct Row<'a> {
    pub(super) search: &'a Search,
    rank: usize,
    pub(super) hits: Option<u64>,
    ctr: Option<f64>,
}

/// A number, if it is one.
pub(super) fn finite(number: Option<&Number>) -> Option<f64> {
    number?.as_f64().filter(|number| number.is_finite())
}

/// A count; none if it is below zero. Half a search is rounded.
fn counted(number: Option<&Number>) -> Option<u64> {
    let number = number?;
    // Too large for a count is as many as can be counted.
    number.as_u64().or_else(|| finite(Some(number)).filter(|n| *n >= 0.0).map(rounded))
}

/// To a whole; below zero is zero, and beyond what can be counted is the most that can.
#[expect(clippy::cast_sign_loss, reason = "what is below zero is cut off before")]
fn rounded(number: f64) -> u64 {
    number.round().max(0.0) as u64
}

/// To a tenth.
pub(super) fn tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// A part in percent, to a tenth; none of nothing.
pub(super) fn share(part: u64, whole: Option<u64>) -> Option<f64> {
    whole.filter(|whole| *whole > 0).map(|whole| tenth(part as f64 * 100.0 / whole as f64))
}

/// How many more there are than before.
pub(super) fn minus(now: u64, before: u64) -> i64 {
    i64::try_from(i128::from(now) - i128::from(before)).unwrap_or(if now > before { i64::MAX } else { i64::MIN })
}

/// Rows by hits. A term that came twice, because others were searched for while it was read, counts once: the later row
/// is the newer one.
fn rows(page: &Page, factor: f64) -> Vec<Row<'_>> {
    let mut places: HashMap<&str, usize> = HashMap::new();
    let mut rows: Vec<Row<'_>> = Vec::new();
    for search in &page.searches {
        let row = Row {
            search,
            rank: 0,
            hits: counted(search.hits.as_ref()),
            ctr: finite(search.ctr.as_ref()).map(|rate| (rate * factor).clamp(0.0, 100.0)),
        };
        if let Some(at) = places.get(search.search_query.as_str()) {
            rows[*at] = row;
        } else {
            places.insert(&search.search_query, rows.len());
            rows.push(row);
        }
    }
    rows.sort_by_key(|row| Reverse(row.hits));
    for (at, row) in rows.iter_mut().enumerate() {
        row.rank = at + 1;
    }
    rows
}

impl Row<'_> {
    fn without_click(&self) -> Option<u64> {
        let (hits, ctr) = (self.hits?, self.ctr?);
        Some(hits.saturating_sub(rounded(hits as f64 * ctr / 100.0)))
    }

    /// The rate decides; where there is none, whether there is a page.
    pub(super) fn is_unclicked(&self) -> bool {
        self.ctr.map_or(self.search.top_clicked_page.is_none(), |ctr| ctr <= 0.0)
    }

    /// Whether it was clicked, but seldom.
    pub(super) fn is_low(&self, rules: &Rules) -> bool {
        self.ctr.is_some_and(|ctr| ctr > 0.0 && ctr < rules.low_percent)
            && self.hits.is_some_and(|hits| hits >= rules.fewest_hits)
    }

    /// What a later period says of this one.
    pub(super) fn before(&self) -> Before {
        Before { rank: self.rank, hits: self.hits, ctr: self.ctr.map(tenth) }
    }
}

/// One period's rows beside its totals.
pub(super) struct Side<'a> {
    pub(super) totals: Totals,
    pub(super) rows: Vec<Row<'a>>,
    places: HashMap<&'a str, usize>,
}

impl<'a> Side<'a> {
    /// What was read, with rates made percent by `factor`.
    pub(super) fn new(read: &'a Read, factor: f64) -> Side<'a> {
        let rows = rows(&read.page, factor);
        let searches_read = rows.iter().filter_map(|row| row.hits).fold(0, u64::saturating_add);
        let all_terms_read = read.page.next_cursor.is_none();
        let rated = || rows.iter().filter_map(|row| Some((row.hits? as f64, row.ctr?)));
        let weight: f64 = rated().map(|(hits, _)| hits).sum();
        let clicks: f64 = rated().map(|(hits, ctr)| hits * ctr).sum();
        let totals = Totals {
            from: read.period.from.clone(),
            to: read.period.to.clone(),
            total_searches: read.page.total_searches.or_else(|| all_terms_read.then_some(searches_read)),
            terms_read: rows.len(),
            all_terms_read,
            searches_read,
            click_through_rate: (weight > 0.0).then(|| tenth(clicks / weight)),
        };
        let places = rows.iter().enumerate().map(|(at, row)| (row.search.search_query.as_str(), at)).collect();
        Side { totals, rows, places }
    }

    /// The row of a term.
    pub(super) fn find(&self, term: &str) -> Option<&Row<'a>> {
        self.places.get(term).map(|at| &self.rows[*at])
    }

    /// Whether a term with so many searches would have been read here.
    pub(super) fn would_have(&self, hits: u64) -> bool {
        let fewest = || self.rows.last().and_then(|row| row.hits);
        self.totals.all_terms_read || fewest().is_some_and(|fewest| hits > fewest)
    }

    /// A row as it is reported, beside what it was before.
    pub(super) fn term(&self, row: &Row<'_>, previous: Option<&Side<'_>>) -> Term {
        let query = row.search.search_query.as_str();
        let then = previous.and_then(|previous| previous.find(query));
        let change = match (previous, then) {
            (Some(_), Some(then)) => row.hits.zip(then.hits).map(|(now, then)| minus(now, then)),
            (Some(previous), None) if previous.totals.all_terms_read => row.hits.map(|now| minus(now, 0)),
            _ => None,
        };
        Term {
            search_query: query.to_owned(),
            rank: row.rank,
            hits: row.hits,
            share: row.hits.and_then(|hits| share(hits, self.totals.total_searches)),
            ctr: row.ctr.map(tenth),
            without_click: row.without_click(),
            top_clicked_page: row.search.top_clicked_page.clone(),
            before: then.map(Row::before),
            change,
        }
    }

    /// The head of a list of these rows, and how much there is of them.
    pub(super) fn list(&self, mut rows: Vec<&Row<'_>>, previous: Option<&Side<'_>>, rules: &Rules) -> List {
        let searches = rows.iter().filter_map(|row| row.hits).fold(0, u64::saturating_add);
        rows.sort_by_key(|row| Reverse(row.without_click().or(row.hits)));
        List {
            terms: rows.len(),
            searches,
            share: share(searches, self.totals.total_searches),
            list: rows.into_iter().take(rules.top).map(|row| self.term(row, previous)).collect(),
        }
    }
}
