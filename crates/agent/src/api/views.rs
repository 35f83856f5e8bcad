//! Views of pages, and counts by a key: parsing a part of such a list, and reading several parts in sequence. Pure.

use serde::Serialize;
use serde_json::{Number, Value};

use super::responses::{ApiResponse, as_json_number, as_text, required_objects};

/// Upper bound of the rows in one response, set by the API.
pub const MAX_RESPONSE_ROWS: u64 = 250;
/// Upper bound of the rows before those in a response, set by the API.
pub const MAX_OFFSET: u64 = 1_000_000;

/// The parameters of a request for rows.
#[derive(Debug, Clone, Copy)]
pub struct RowsRequest<'a> {
    /// First moment of the range, inclusive: ISO 8601 or YYYY-MM-DD.
    pub from: Option<&'a str>,
    /// End of the range, exclusive: ISO 8601 or YYYY-MM-DD.
    pub to: Option<&'a str>,
    /// Upper bound of the rows, 1 to 250.
    pub limit: u64,
    /// Number of rows to leave out at the beginning, at most 1,000,000.
    pub offset: u64,
}

impl RowsRequest<'_> {
    /// Returns the query parameters of a request for views of pages.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let parameters = [
            ("dateFrom", self.from.map(str::to_owned)),
            ("dateTo", self.to.map(str::to_owned)),
            ("limit", Some(self.limit.to_string())),
            ("offset", (self.offset > 0).then(|| self.offset.to_string())),
        ];
        parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }

    /// Returns the query parameters of a request for counts by a key.
    pub fn parameters_by(&self, by: CountKey) -> Vec<(&'static str, String)> {
        let mut parameters = vec![("by", by.name().to_owned())];
        parameters.extend(self.parameters());
        parameters
    }
}

/// The key by which views are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum CountKey {
    /// The day (UTC).
    Day,
    /// The host whose page led a person to the site.
    Referrer,
    /// The page with which a person began a visit.
    Entry,
    /// A path that a person requested and that does not exist.
    NotFound,
    /// The program that requested a page.
    Agent,
}

impl CountKey {
    /// Returns the name of the key in the API.
    pub fn name(self) -> &'static str {
        match self {
            CountKey::Day => "day",
            CountKey::Referrer => "referrer",
            CountKey::Entry => "entry",
            CountKey::NotFound => "notFound",
            CountKey::Agent => "agent",
        }
    }
}

/// Views of pages, in the API's field names: a part of the list, or several joined.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewList {
    /// The views of all pages in the range, including those that are not listed.
    pub totals: ViewTotals,
    /// The pages by `total`, descending.
    pub views: Vec<PageViews>,
    /// Whether there are pages after these.
    pub has_more: bool,
}

/// Views by class of visitor.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ViewTotals {
    /// Views by people.
    pub human: Option<Number>,
    /// Views by agents and crawlers of AI services.
    pub ai: Option<Number>,
    /// Sum of `human` and `ai`.
    pub total: Option<Number>,
    /// Views by other programs, which only servers of docwharf count.
    pub bot: Option<Number>,
}

/// The views of a page.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PageViews {
    /// Path of the page.
    pub path: String,
    /// Views by people.
    pub human: Option<Number>,
    /// Views by agents and crawlers of AI services.
    pub ai: Option<Number>,
    /// Sum of `human` and `ai`.
    pub total: Option<Number>,
    /// Views by other programs, which only servers of docwharf count.
    pub bot: Option<Number>,
}

/// Counts by a key, in the API's field names: a part of the list, or several joined.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CountList {
    /// The requested key.
    pub by: CountKey,
    /// Days in ascending order; other rows by `count`, descending.
    pub rows: Vec<KeyCount>,
    /// Whether there are rows after these.
    pub has_more: bool,
}

/// A key with its count.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeyCount {
    /// A day, a host, a path or a name.
    pub key: String,
    /// The count.
    pub count: Option<Number>,
}

/// Parses views of pages. A missing or invalid field is none; its row is not omitted.
pub fn parse_views(response: &ApiResponse) -> Result<ViewList, String> {
    let views = required_objects(response, "views")?.iter().map(parse_page_views).collect();
    let totals = response.raw_value("totals").and_then(|raw| ApiResponse::parse(raw.get().as_bytes()));
    let totals = totals.as_ref().map(parse_totals).unwrap_or_default();
    Ok(ViewList { totals, views, has_more: parse_has_more(response) })
}

fn parse_totals(totals: &ApiResponse) -> ViewTotals {
    let number = |name| as_json_number(totals.value(name));
    ViewTotals { human: number("human"), ai: number("ai"), total: number("total"), bot: number("bot") }
}

fn parse_page_views(row: &ApiResponse) -> PageViews {
    let ViewTotals { human, ai, total, bot } = parse_totals(row);
    PageViews { path: as_text(row.value("path")).unwrap_or_default(), human, ai, total, bot }
}

/// Parses counts by the requested key. A missing or invalid field is none; its row is not omitted.
pub fn parse_counts(response: &ApiResponse, by: CountKey) -> Result<CountList, String> {
    let parse_row = |row: &ApiResponse| KeyCount {
        key: as_text(row.value("key")).unwrap_or_default(),
        count: as_json_number(row.value("count")),
    };
    let rows = required_objects(response, "rows")?.iter().map(parse_row).collect();
    Ok(CountList { by, rows, has_more: parse_has_more(response) })
}

fn parse_has_more(response: &ApiResponse) -> bool {
    response.value("hasMore") == Some(Value::Bool(true))
}

/// A list that is read in parts.
pub trait RowList {
    /// Returns the number of rows.
    fn row_count(&self) -> u64;
    /// Returns what the rows are about: paths, days, hosts or names. Each occurs once in a complete list.
    fn keys(&self) -> Vec<&str>;
    /// Returns whether there are rows after these.
    fn has_more(&self) -> bool;
    /// Adds the next part.
    fn append(&mut self, next: Self);
}

impl RowList for ViewList {
    fn row_count(&self) -> u64 {
        self.views.len() as u64
    }

    fn keys(&self) -> Vec<&str> {
        self.views.iter().map(|page| page.path.as_str()).collect()
    }

    fn has_more(&self) -> bool {
        self.has_more
    }

    fn append(&mut self, next: ViewList) {
        self.views.extend(next.views);
        // Views that were added meanwhile are in the newer totals only.
        self.totals = next.totals;
        self.has_more = next.has_more;
    }
}

impl RowList for CountList {
    fn row_count(&self) -> u64 {
        self.rows.len() as u64
    }

    fn keys(&self) -> Vec<&str> {
        self.rows.iter().map(|row| row.key.as_str()).collect()
    }

    fn has_more(&self) -> bool {
        self.has_more
    }

    fn append(&mut self, next: CountList) {
        self.rows.extend(next.rows);
        self.has_more = next.has_more;
    }
}

/// The reason why the reader stops although there are more rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowReadingError {
    /// A response has no row, so the reading would not end.
    NoRows,
    /// The offset of the next request is above [`MAX_OFFSET`].
    TooManyRows,
}

/// The progress of a reading in consecutive parts, up to a number of rows or to the end.
#[derive(Debug, Clone)]
pub struct RowReader {
    /// Number of rows that are still wanted; none for all.
    remaining: Option<u64>,
    response_limit: u64,
    offset: u64,
}

impl RowReader {
    /// Reads `rows` rows after the first `offset` ones, in parts of at most 250.
    pub fn first(rows: u64, offset: u64) -> RowReader {
        RowReader { remaining: Some(rows), response_limit: MAX_RESPONSE_ROWS, offset }
    }

    /// Reads all rows, at most `response_limit` of them in each part.
    pub fn all(response_limit: u64) -> RowReader {
        RowReader { remaining: None, response_limit, offset: 0 }
    }

    /// Returns the limit of the next request.
    pub fn limit(&self) -> u64 {
        self.remaining.map_or(self.response_limit, |remaining| remaining.min(self.response_limit))
    }

    /// Returns the offset of the next request.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Counts the rows of a response. Returns whether another request is needed.
    pub fn advance(&mut self, rows: u64, has_more: bool) -> Result<bool, RowReadingError> {
        self.offset = self.offset.saturating_add(rows);
        self.remaining = self.remaining.map(|remaining| remaining.saturating_sub(rows));
        if !has_more || self.remaining == Some(0) {
            return Ok(false);
        }
        if rows == 0 {
            return Err(RowReadingError::NoRows);
        }
        if self.offset > MAX_OFFSET { Err(RowReadingError::TooManyRows) } else { Ok(true) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(text: &str) -> ApiResponse {
        ApiResponse::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn views_without_bots_and_with_fields_of_other_types_are_accepted() {
        let text = r#"{"totals":{"human":"5","ai":1,"total":6},"x":[],"hasMore":true,"views":[
            {"path":"/a","human":5,"ai":1,"total":6,"bot":9},{"path":7,"human":"many"},{"human":1e999},null]}"#;
        let list = parse_views(&response(text)).unwrap();
        assert_eq!(
            list.totals,
            ViewTotals { human: Some(5_u64.into()), ai: Some(1_u64.into()), total: Some(6_u64.into()), bot: None }
        );
        let first = PageViews {
            path: "/a".to_owned(),
            human: Some(5_u64.into()),
            ai: Some(1_u64.into()),
            total: Some(6_u64.into()),
            bot: Some(9_u64.into()),
        };
        let second = PageViews { path: "7".to_owned(), ..PageViews::default() };
        assert_eq!(list.views, [first, second, PageViews::default()]);
        assert!(list.has_more);
        let none = parse_views(&response(r#"{"totals":null,"views":null,"hasMore":"yes"}"#)).unwrap();
        assert_eq!(none, ViewList::default());
        for wrong in [r"{}", r#"{"views":7}"#, r#"{"rows":[]}"#] {
            assert!(parse_views(&response(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn counts_have_the_requested_key_and_the_field_names_of_the_api() {
        let text = r#"{"rows":[{"key":"2026-01-01","count":3},{"count":"4"},{"key":null}],"hasMore":false}"#;
        let list = parse_counts(&response(text), CountKey::NotFound).unwrap();
        let json = concat!(
            r#"{"by":"notFound","rows":[{"key":"2026-01-01","count":3},"#,
            r#"{"key":"","count":4},{"key":"","count":null}],"hasMore":false}"#
        );
        assert_eq!(serde_json::to_string(&list).unwrap(), json);
        assert!(parse_counts(&response(r#"{"views":[]}"#), CountKey::Day).is_err());
        for by in [CountKey::Day, CountKey::Referrer, CountKey::Entry, CountKey::NotFound, CountKey::Agent] {
            assert_eq!(serde_json::to_value(by).unwrap(), by.name());
        }
    }

    #[test]
    fn a_request_has_the_parameters_that_are_set() {
        let request = RowsRequest { from: None, to: Some("2026-02-01"), limit: 250, offset: 0 };
        let pair = |name, value: &str| (name, value.to_owned());
        assert_eq!(request.parameters(), [pair("dateTo", "2026-02-01"), pair("limit", "250")]);
        let request = RowsRequest { from: Some("2026-01-01"), to: None, limit: 1, offset: 7 };
        let expected = [pair("by", "agent"), pair("dateFrom", "2026-01-01"), pair("limit", "1"), pair("offset", "7")];
        assert_eq!(request.parameters_by(CountKey::Agent), expected);
    }

    #[test]
    fn the_wanted_number_of_rows_is_requested_in_parts_of_250() {
        let mut reader = RowReader::first(600, 40);
        let mut requests = Vec::new();
        loop {
            requests.push((reader.limit(), reader.offset()));
            if !reader.advance(reader.limit(), true).unwrap() {
                break;
            }
        }
        assert_eq!(requests, [(250, 40), (250, 290), (100, 540)]);
        let mut reader = RowReader::first(600, 0);
        assert_eq!(reader.advance(10, false), Ok(false), "there are no more");
        assert_eq!(reader.advance(1000, true), Ok(false), "more rows than requested");
    }

    #[test]
    fn all_rows_are_read_until_there_are_no_more() {
        let mut reader = RowReader::all(7);
        assert_eq!(reader.advance(7, true), Ok(true));
        assert_eq!((reader.limit(), reader.offset()), (7, 7));
        // A server may send fewer rows than requested.
        assert_eq!(reader.advance(3, true), Ok(true));
        assert_eq!((reader.limit(), reader.offset()), (7, 10));
        assert_eq!(reader.advance(0, false), Ok(false));
        assert_eq!(reader.advance(0, true), Err(RowReadingError::NoRows));
        let mut reader = RowReader::all(250);
        assert_eq!(reader.advance(MAX_OFFSET, true), Ok(true));
        assert_eq!(reader.advance(1, true), Err(RowReadingError::TooManyRows));
    }

    #[test]
    fn joined_parts_have_all_rows_and_the_newest_totals() {
        let part = |path: &str, human: u64, has_more| ViewList {
            totals: ViewTotals { human: Some(human.into()), ..ViewTotals::default() },
            views: vec![PageViews { path: path.to_owned(), ..PageViews::default() }],
            has_more,
        };
        let mut list = part("/a", 1, true);
        list.append(part("/b", 2, false));
        assert_eq!((list.keys(), list.has_more()), (vec!["/a", "/b"], false));
        assert_eq!(list.totals.human, Some(2_u64.into()));
        assert_eq!(list.row_count(), 2);
        let part = |key: &str, has_more| CountList {
            by: CountKey::Day,
            rows: vec![KeyCount { key: key.to_owned(), count: None }],
            has_more,
        };
        let mut list = part("2026-01-01", true);
        list.append(part("2026-01-02", false));
        assert_eq!((list.keys(), list.has_more()), (vec!["2026-01-01", "2026-01-02"], false));
    }
}
