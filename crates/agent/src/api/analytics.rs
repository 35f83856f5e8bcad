//! Search analytics: parsing one page of search terms, and reading several pages in sequence. Pure.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::{Number, Value};

use super::responses::{ApiResponse, as_count, as_json_number, as_text, required_objects};

/// Upper bound of the terms in one page, set by the API.
pub const MAX_PAGE_TERMS: u64 = 100;

/// The parameters of a request for one page.
#[derive(Debug, Clone, Copy)]
pub struct SearchPageRequest<'a> {
    /// First moment of the range, inclusive: ISO 8601 or YYYY-MM-DD.
    pub from: Option<&'a str>,
    /// End of the range, exclusive: ISO 8601 or YYYY-MM-DD.
    pub to: Option<&'a str>,
    /// Upper bound of the terms in the page, 1 to 100.
    pub limit: u64,
    /// The `nextCursor` of the page before.
    pub cursor: Option<&'a str>,
    /// Whether only terms whose searches found nothing are requested. Only servers of docwharf know this parameter.
    pub no_results: bool,
}

impl SearchPageRequest<'_> {
    /// Returns the query parameters of the request.
    pub fn parameters(&self) -> Vec<(&'static str, String)> {
        let parameters = [
            ("dateFrom", self.from.map(str::to_owned)),
            ("dateTo", self.to.map(str::to_owned)),
            ("limit", Some(self.limit.to_string())),
            ("cursor", self.cursor.map(str::to_owned)),
            ("noResults", self.no_results.then(|| "true".to_owned())),
        ];
        parameters.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// A search term with its numbers, in the API's field names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchTerm {
    /// The term, as readers typed it.
    pub search_query: String,
    /// How often readers searched for the term.
    pub hits: Option<Number>,
    /// Click-through rate as the API reports it: some servers use percent, others a fraction of one.
    pub ctr: Option<Number>,
    /// The page that readers clicked most; none if they clicked none.
    pub top_clicked_page: Option<String>,
    /// Time of the last search for the term, as the server formats it.
    pub last_searched_at: Option<String>,
}

/// One page of search terms, or several joined.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SearchPage {
    /// The terms by hits, descending.
    pub searches: Vec<SearchTerm>,
    /// Number of searches in the whole range: events, not terms.
    pub total_searches: Option<u64>,
    /// Cursor of the next page; none on the last page.
    pub next_cursor: Option<String>,
}

/// Parses one page. A missing or invalid field is none; its row is not omitted.
pub fn parse_search_page(response: &ApiResponse) -> Result<SearchPage, String> {
    let searches = required_objects(response, "searches")?.iter().map(parse_search_term).collect();
    let next_cursor = match response.value("nextCursor") {
        Some(Value::String(cursor)) => Some(cursor).filter(|cursor| !cursor.is_empty()),
        Some(Value::Number(cursor)) => Some(cursor.to_string()),
        _ => None,
    };
    Ok(SearchPage { searches, total_searches: as_count(response.value("totalSearches")), next_cursor })
}

fn parse_search_term(row: &ApiResponse) -> SearchTerm {
    SearchTerm {
        search_query: as_text(row.value("searchQuery")).unwrap_or_default(),
        hits: as_json_number(row.value("hits")),
        ctr: as_json_number(row.value("ctr")),
        top_clicked_page: as_text(row.value("topClickedPage")).filter(|page| !page.is_empty()),
        last_searched_at: as_text(row.value("lastSearchedAt")),
    }
}

/// The reason why the reader stops although the last page has a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CursorError {
    /// The cursor was returned before, so the reading would not end.
    Repeated,
    /// Too many pages in a row had no term.
    TooManyEmptyPages,
    /// The cursor is too long for a URL.
    TooLong,
}

/// Upper bound of a cursor's length in bytes; a longer one fits into no URL.
const MAX_CURSOR_BYTES: usize = 8 * 1024;
/// Number of pages without a term in a row after which the reader stops.
const MAX_EMPTY_PAGES: u32 = 10;

/// A reader of consecutive pages, up to a number of terms or to the end.
#[derive(Debug, Clone)]
pub struct SearchPageReader {
    max_terms: Option<u64>,
    page_limit: u64,
    seen_cursors: HashSet<String>,
    /// All pages read so far, joined into one.
    pub joined: SearchPage,
    pages: u64,
    empty_in_a_row: u32,
}

impl SearchPageReader {
    /// Reads the first `terms` terms, in pages of at most 100.
    pub fn first(terms: u64) -> SearchPageReader {
        SearchPageReader::new(Some(terms), MAX_PAGE_TERMS)
    }

    /// Reads all terms, at most `page_limit` of them in each page.
    pub fn all(page_limit: u64) -> SearchPageReader {
        SearchPageReader::new(None, page_limit)
    }

    fn new(max_terms: Option<u64>, page_limit: u64) -> SearchPageReader {
        SearchPageReader {
            max_terms,
            page_limit,
            seen_cursors: HashSet::new(),
            joined: SearchPage::default(),
            pages: 0,
            empty_in_a_row: 0,
        }
    }

    /// Continues at a cursor that an earlier process has stored.
    #[must_use]
    pub fn starting_at(mut self, cursor: Option<String>) -> SearchPageReader {
        self.seen_cursors.extend(cursor.clone());
        self.joined.next_cursor = cursor;
        self
    }

    /// Returns the limit and the cursor of the next request; none if the reading is complete.
    pub fn next_request(&self) -> Option<(u64, Option<&str>)> {
        let cursor = self.joined.next_cursor.as_deref();
        if self.pages > 0 && cursor.is_none() {
            return None;
        }
        let remaining =
            self.max_terms.map_or(u64::MAX, |max_terms| max_terms.saturating_sub(self.joined.searches.len() as u64));
        (remaining > 0).then_some((remaining.min(self.page_limit), cursor))
    }

    /// Adds a page. A cursor that cannot be used is an error; the terms read so far remain available.
    pub fn add_page(&mut self, page: SearchPage) -> Result<(), CursorError> {
        self.pages += 1;
        self.empty_in_a_row = if page.searches.is_empty() { self.empty_in_a_row + 1 } else { 0 };
        self.joined.searches.extend(page.searches);
        self.joined.total_searches = page.total_searches.or(self.joined.total_searches);
        self.joined.next_cursor.clone_from(&page.next_cursor);
        match page.next_cursor {
            None => Ok(()),
            Some(cursor) if cursor.len() > MAX_CURSOR_BYTES => Err(CursorError::TooLong),
            Some(cursor) => match self.seen_cursors.insert(cursor) {
                false => Err(CursorError::Repeated),
                true if self.empty_in_a_row >= MAX_EMPTY_PAGES => Err(CursorError::TooManyEmptyPages),
                true => Ok(()),
            },
        }
    }

    /// Number of pages read so far.
    pub fn pages(&self) -> u64 {
        self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<SearchPage, String> {
        parse_search_page(&ApiResponse::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn invalid_field_is_dropped_without_its_row() {
        let text = r#"{"searches":[{"searchQuery":"a\ud83d","hits":"7","ctr":0.5,"topClickedPage":null,"x":1},
            {"hits":1e999},{"searchQuery":42,"hits":3.0,"topClickedPage":"","lastSearchedAt":"2026"}],
            "totalSearches":"10","nextCursor":""}"#;
        let page = parse(text).unwrap();
        assert_eq!(page.searches.len(), 3);
        assert_eq!(page.searches[0].search_query, "a\u{fffd}");
        assert_eq!(page.searches[0].hits, Some(7.into()));
        assert_eq!((page.searches[1].search_query.as_str(), &page.searches[1].hits), ("", &None));
        assert_eq!((page.searches[2].search_query.as_str(), &page.searches[2].top_clicked_page), ("42", &None));
        assert_eq!((page.total_searches, page.next_cursor), (Some(10), None));
        assert!(parse(r#"{"searches":null}"#).unwrap().searches.is_empty());
        assert_eq!(parse(r#"{"searches":[null,{"hits":1},7]}"#).unwrap().searches.len(), 1);
        for wrong in [r"{}", r#"{"searches":7}"#] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_request_for_terms_without_results_has_a_parameter_of_its_own() {
        let (from, cursor) = (Some("2026-01-01"), Some("a"));
        let all = SearchPageRequest { from, to: None, limit: 7, cursor, no_results: false };
        let pair = |name, value: &str| (name, value.to_owned());
        let parameters = [pair("dateFrom", "2026-01-01"), pair("limit", "7"), pair("cursor", "a")];
        assert_eq!(all.parameters(), parameters);
        let mut with_filter = parameters.to_vec();
        with_filter.push(pair("noResults", "true"));
        assert_eq!(SearchPageRequest { no_results: true, ..all }.parameters(), with_filter);
    }

    fn terms(n: u64, next: Option<&str>) -> SearchPage {
        let term = SearchTerm {
            search_query: String::new(),
            hits: None,
            ctr: None,
            top_clicked_page: None,
            last_searched_at: None,
        };
        SearchPage { searches: vec![term; n as usize], total_searches: Some(9), next_cursor: next.map(str::to_owned) }
    }

    #[test]
    fn reader_requests_the_wanted_number_of_terms_in_pages_of_100() {
        let mut reader = SearchPageReader::first(250);
        let mut requests = Vec::new();
        while let Some((limit, cursor)) = reader.next_request() {
            requests.push((limit, cursor.map(str::to_owned)));
            let next = format!("c{}", reader.pages());
            reader.add_page(terms(limit, Some(&next))).unwrap();
        }
        let cursor = |text: &str| Some(text.to_owned());
        assert_eq!(requests, [(100, None), (100, cursor("c0")), (50, cursor("c1"))]);
        assert_eq!(reader.joined.next_cursor, cursor("c2"));
    }

    #[test]
    fn reader_of_all_terms_stops_at_the_last_cursor_even_after_an_empty_page() {
        let mut reader = SearchPageReader::all(7);
        reader.add_page(terms(7, Some("a"))).unwrap();
        reader.add_page(terms(0, Some("b"))).unwrap();
        assert_eq!(reader.next_request(), Some((7, Some("b"))));
        reader.add_page(terms(2, None)).unwrap();
        assert_eq!((reader.next_request(), reader.joined.searches.len()), (None, 9));
    }

    #[test]
    fn repeated_cursor_is_an_error_even_if_it_is_the_start_cursor() {
        let mut reader = SearchPageReader::all(7);
        reader.add_page(terms(7, Some("a"))).unwrap();
        reader.add_page(terms(7, Some("b"))).unwrap();
        assert_eq!(reader.add_page(terms(7, Some("a"))), Err(CursorError::Repeated));
        assert_eq!(
            SearchPageReader::all(7).starting_at(Some("a".into())).add_page(terms(7, Some("a"))),
            Err(CursorError::Repeated)
        );
    }

    #[test]
    fn reader_stops_after_ten_empty_pages_and_refuses_a_cursor_over_the_length_limit() {
        let mut reader = SearchPageReader::all(7);
        let stopped_at = (0..20)
            .map(|n| reader.add_page(terms(0, Some(&n.to_string()))))
            .position(|result| result == Err(CursorError::TooManyEmptyPages));
        assert_eq!(stopped_at, Some(9));
        assert_eq!(SearchPageReader::all(7).add_page(terms(7, Some(&"x".repeat(9000)))), Err(CursorError::TooLong));
    }

    #[test]
    fn only_consecutive_empty_pages_stop_the_reader() {
        let mut reader = SearchPageReader::all(7);
        for round in 0..5 {
            for n in 0..9 {
                assert_eq!(reader.add_page(terms(0, Some(&format!("{round}-{n}")))), Ok(()));
            }
            assert_eq!(reader.add_page(terms(1, Some(&format!("{round}")))), Ok(()));
        }
        assert_eq!((reader.pages(), reader.joined.searches.len()), (50, 5));
        // The last page has no cursor, however many pages before it had no term.
        for n in 0..9 {
            assert_eq!(reader.add_page(terms(0, Some(&n.to_string().repeat(2)))), Ok(()));
        }
        assert_eq!((reader.add_page(terms(0, None)), reader.next_request()), (Ok(()), None));
    }

    #[test]
    fn reader_requests_only_the_remaining_terms_and_joins_the_pages() {
        let mut reader = SearchPageReader::first(3);
        assert_eq!(reader.next_request(), Some((3, None)));
        reader.add_page(terms(2, Some("a"))).unwrap();
        assert_eq!(reader.next_request(), Some((1, Some("a"))));
        reader.add_page(SearchPage { total_searches: None, ..terms(2, Some("b")) }).unwrap();
        assert_eq!((reader.next_request(), reader.joined.searches.len()), (None, 4), "more terms than requested");
        assert_eq!(reader.joined.total_searches, Some(9), "a page may leave it out");
        reader.add_page(SearchPage { total_searches: Some(10), ..terms(0, None) }).unwrap();
        assert_eq!(reader.joined.total_searches, Some(10));
        assert_eq!(SearchPageReader::first(0).next_request(), None);
        assert_eq!(SearchPageReader::first(101).next_request(), Some((100, None)));
        assert_eq!(SearchPageReader::all(7).starting_at(Some("a".into())).next_request(), Some((7, Some("a"))));
        assert_eq!(SearchPageReader::all(7).starting_at(None).next_request(), Some((7, None)));
        for (length, expected) in [(8192, Ok(())), (8193, Err(CursorError::TooLong))] {
            let mut reader = SearchPageReader::all(7);
            assert_eq!(reader.add_page(terms(1, Some(&"x".repeat(length)))), expected, "{length}");
            assert_eq!(reader.joined.searches.len(), 1);
        }
    }

    #[test]
    fn cursor_is_a_string_or_a_number_and_search_fields_are_converted_if_possible() {
        for (cursor, next) in
            [(r#""x""#, Some("x")), ("7", Some("7")), (r#""""#, None), ("null", None), ("[7]", None), ("true", None)]
        {
            let page = parse(&format!(r#"{{"searches":[],"nextCursor":{cursor}}}"#)).unwrap();
            assert_eq!((page.next_cursor.as_deref(), page.total_searches), (next, None), "{cursor}");
        }
        let text = r#"{"searches":[{"searchQuery":"a","hits":3,"ctr":" 0.25 ","topClickedPage":"/x","lastSearchedAt":7},
            {"searchQuery":null,"hits":"many","ctr":[1],"topClickedPage":8,"lastSearchedAt":null}]}"#;
        let rows = parse(text).unwrap().searches;
        let number = |text: &str| Some(serde_json::from_str::<Number>(text).unwrap());
        assert_eq!((&rows[0].hits, &rows[0].ctr), (&number("3"), &number("0.25")));
        assert_eq!((rows[0].top_clicked_page.as_deref(), rows[0].last_searched_at.as_deref()), (Some("/x"), Some("7")));
        let odd = SearchTerm {
            search_query: String::new(),
            hits: None,
            ctr: None,
            top_clicked_page: Some("8".into()),
            last_searched_at: None,
        };
        assert_eq!(rows[1], odd);
    }
}
