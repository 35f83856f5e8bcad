//! Pages of a project's searches, from the database of an origin with two organizations. The pages are those of one
//! sorted list, whatever their size. A cursor that was changed, made up, or returned for another project, for other
//! dates or by another origin is refused. No query returns data of another organization.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use docwharf::model::digest::encode_hex;
use docwharf::origin::analytics::{AnalyticsLimits, receive_batch};
use docwharf::origin::database::{Database, open_database};
use docwharf::origin::limits::OriginLimits;
use docwharf::origin::resource_pools::ResourcePools;
use docwharf::reader_analytics::query_error::QueryError;
use docwharf::reader_analytics::searches::{Searches, query_searches};
use serde_json::json;
use tempfile::TempDir;

use super::fuzz_input::FuzzInput;

const SECRET: [u8; 32] = [7; 32];
const OTHER_SECRET: [u8; 32] = [8; 32];
/// Project and organization.
const OWN: (&str, &str) = ("p", "one");
const FOREIGN: (&str, &str) = ("q", "two");
/// The number of search terms of each project. All searches for a term are of one day.
const TERMS: usize = 20;
/// The digits of a cursor before its signature.
const PAYLOAD_DIGITS: usize = 112;

/// A database in which two organizations have searches.
struct Origin {
    db: Database,
    _folder: TempDir,
}

thread_local! {
    // All runs share it: making a database waits for the disk, and the runs only read it.
    static ORIGIN: Origin = Origin::new();
}

/// Search terms with their number of searches and the day in January 2020.
fn terms((project, _): (&str, &str)) -> Vec<(String, u64, usize)> {
    let term = |n: usize| (format!("{project} {n:02}"), 1 + (n as u64 * 7) % 5, n + 1);
    (0..TERMS).map(term).collect()
}

impl Origin {
    fn new() -> Origin {
        let folder = tempfile::Builder::new().prefix("docwharf-fuzz-").tempdir().expect("a temporary folder");
        let db = open_database(&folder.path().join("origin.db")).expect("a database");
        let owners: BTreeMap<String, String> =
            [OWN, FOREIGN].map(|(project, organization)| (project.to_owned(), organization.to_owned())).into();
        let (owners, pools) = (Arc::new(owners), ResourcePools::new(OriginLimits::default(), 2));
        for (project, organization) in [OWN, FOREIGN] {
            let limits = AnalyticsLimits::new(organization, Arc::clone(&owners), Arc::clone(&pools), None, Some(0));
            let event = |(query, _, day): &(String, u64, usize)| {
                let time = format!("2020-01-{day:02}T12:00:00Z");
                json!({ "query": query, "time": time, "clickedPage": format!("/{project}") })
            };
            let events: Vec<_> =
                terms((project, organization)).iter().flat_map(|term| (0..term.1).map(move |_| event(term))).collect();
            let batch = json!({ "batchId": "b", "events": events }).to_string();
            receive_batch(&db, project, batch.as_bytes(), &limits).expect("the searches are stored");
        }
        Origin { db, _folder: folder }
    }

    /// Queries a page and checks it. The error has all problems of the query.
    fn query_page(&self, (project, _): (&str, &str), secret: &[u8; 32], query: &str) -> Result<Searches, Vec<String>> {
        match query_searches(&self.db, project, Some(query), secret, i64::MIN) {
            Ok(page) => {
                let project_terms = terms((project, ""));
                for found in &page.searches {
                    let term = project_terms.iter().find(|(term, ..)| *term == found.search_query);
                    let (_, hits, _) =
                        term.unwrap_or_else(|| panic!("{found:?} is not of the project {project}: {query}"));
                    assert_eq!((found.hits, found.top_clicked_page.clone()), (*hits, Some(format!("/{project}"))));
                }
                let max_searches: u64 = project_terms.iter().map(|(_, hits, _)| hits).sum();
                assert!(page.total_searches <= max_searches, "{} searches: {query}", page.total_searches);
                Ok(page)
            }
            Err(QueryError::Invalid(problem)) => {
                assert!(!problem.details.is_empty() && !problem.error.is_empty(), "{query}");
                for detail in &problem.details {
                    assert!(!detail.is_empty() && !detail.contains(char::is_control), "{detail:?}");
                    assert!(detail.chars().count() < 1000, "{} characters", detail.chars().count());
                }
                Err(problem.details)
            }
            Err(error) => panic!("failed instead of a refusal: {error}"),
        }
    }
}

/// A range of days: the first, inclusive, and the last, exclusive.
#[derive(Clone, Copy, PartialEq, Eq)]
struct DayRange(Option<usize>, Option<usize>);

impl DayRange {
    fn from_input(input: &mut FuzzInput<'_>) -> DayRange {
        let mut day = || (!input.once_in(2)).then(|| 1 + input.below(25));
        let (from, to) = (day(), day());
        match (from, to) {
            (Some(from), Some(to)) => DayRange(Some(from.min(to)), Some(from.max(to))),
            _ => DayRange(from, to),
        }
    }

    fn query(self) -> String {
        let mut query = String::new();
        for (name, day) in [("dateFrom", self.0), ("dateTo", self.1)] {
            if let Some(day) = day {
                let _ = write!(query, "&{name}=2020-01-{day:02}");
            }
        }
        query
    }

    /// The terms of these days with their number of searches, the most frequent first, and the total of searches.
    fn ranking(self, project: (&str, &str)) -> (Vec<(String, u64)>, u64) {
        let is_included = |day: usize| self.0.is_none_or(|from| day >= from) && self.1.is_none_or(|to| day < to);
        let included = terms(project).into_iter().filter(|(_, _, day)| is_included(*day));
        let mut ranking: Vec<(String, u64)> = included.map(|(term, hits, _)| (term, hits)).collect();
        ranking.sort_by(|(term_a, hits_a), (term_b, hits_b)| hits_b.cmp(hits_a).then_with(|| term_a.cmp(term_b)));
        let total = ranking.iter().map(|(_, hits)| hits).sum();
        (ranking, total)
    }
}

fn rows(page: &Searches) -> Vec<(String, u64)> {
    page.searches.iter().map(|found| (found.search_query.clone(), found.hits)).collect()
}

/// Percent-encodes bytes as a query parameter.
fn percent_encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "%{byte:02x}");
        text
    })
}

/// Changes a cursor.
fn change_cursor(input: &mut FuzzInput<'_>, genuine: &str) -> Vec<u8> {
    let mut cursor = genuine.as_bytes().to_vec();
    for _ in 0..=input.below(2) {
        let at = input.below(256) % cursor.len().max(1);
        match input.below(7) {
            0 | 1 if at < cursor.len() => cursor[at] = input.one_of(b"0123456789abcdefg"),
            2 => cursor.truncate(at),
            3 => cursor.insert(at.min(cursor.len()), input.byte()),
            4 => cursor.extend_from_slice(input.bytes(20)),
            5 => cursor.make_ascii_uppercase(),
            // Only a number in the payload changes.
            _ => {
                let number = format!("{:016x}", input.u64());
                let at = input.below(6) * 16;
                if let Some(digits) = cursor.get_mut(at..at + 16) {
                    digits.copy_from_slice(number.as_bytes());
                }
            }
        }
    }
    cursor
}

/// Whether a cursor is equal to the genuine one. The digits of the signature may have another case.
fn is_equivalent(cursor: &[u8], genuine: &str) -> bool {
    let genuine = genuine.as_bytes();
    cursor.get(..PAYLOAD_DIGITS) == genuine.get(..PAYLOAD_DIGITS) && cursor.eq_ignore_ascii_case(genuine)
}

/// Panics unless the query was refused because of the cursor only.
fn assert_cursor_refused(result: Result<Searches, Vec<String>>, cursor: &[u8]) {
    let cursor = String::from_utf8_lossy(cursor);
    match result {
        Ok(page) => panic!("{cursor:?} returns {:?}", rows(&page)),
        Err(details) => {
            assert!(details.len() == 1 && details[0].starts_with("cursor"), "{cursor:?}: {details:?}");
        }
    }
}

/// The fuzz target: see the module documentation.
pub fn cursor(data: &[u8]) {
    ORIGIN.with(|origin| read_pages(origin, &mut FuzzInput::new(data)));
}

fn read_pages(origin: &Origin, input: &mut FuzzInput<'_>) {
    if input.once_in(4) {
        // Any query.
        let query = String::from_utf8_lossy(input.rest()).into_owned();
        let _ = origin.query_page(OWN, &SECRET, &query);
        let _ = origin.query_page(OWN, &SECRET, &format!("limit=5&cursor={}", percent_encode(query.as_bytes())));
        return;
    }
    let (days, limit) = (DayRange::from_input(input), 1 + input.below(9));
    let base_query = format!("limit={limit}{}", days.query());
    let (ranking, total) = days.ranking(OWN);
    let pages_before_misuse = input.below(6);
    let (mut position, mut cursor) = (0, String::new());
    loop {
        let query = if position == 0 { base_query.clone() } else { format!("{base_query}&cursor={cursor}") };
        let page = origin.query_page(OWN, &SECRET, &query).expect("a page");
        let end = ranking.len().min(position + limit);
        assert_eq!((rows(&page), page.total_searches), (ranking[position..end].to_vec(), total), "{query}");
        position = end;
        let Some(next) = page.next_cursor else {
            return assert_eq!(position, ranking.len(), "the last page comes too early");
        };
        assert!(position < ranking.len(), "a cursor after the last page");
        cursor = next;
        if position >= pages_before_misuse * limit {
            return use_cursor_elsewhere(origin, input, days, position, &cursor);
        }
    }
}

/// Uses a cursor in another query than the one that returned it. The cursor is after the first `position` terms.
fn use_cursor_elsewhere(origin: &Origin, input: &mut FuzzInput<'_>, days: DayRange, position: usize, cursor: &str) {
    let dates = days.query();
    let query_with = |cursor: &[u8]| format!("limit=7{dates}&cursor={}", percent_encode(cursor));
    match input.below(6) {
        // Another page size is allowed.
        0 => {
            let page = origin.query_page(OWN, &SECRET, &query_with(cursor.as_bytes())).expect("a page");
            let (ranking, _) = days.ranking(OWN);
            assert_eq!(rows(&page), ranking[position..ranking.len().min(position + 7)]);
        }
        1 => assert_cursor_refused(
            origin.query_page(FOREIGN, &SECRET, &query_with(cursor.as_bytes())),
            cursor.as_bytes(),
        ),
        2 => assert_cursor_refused(
            origin.query_page(OWN, &OTHER_SECRET, &query_with(cursor.as_bytes())),
            cursor.as_bytes(),
        ),
        3 => {
            let other = DayRange::from_input(input);
            if other != days {
                let query = format!("{}&cursor={cursor}", other.query());
                assert_cursor_refused(
                    origin.query_page(OWN, &SECRET, query.trim_start_matches('&')),
                    cursor.as_bytes(),
                );
            }
        }
        4 => {
            // A cursor of the other organization, and one that no origin returned.
            if let Ok(page) = origin.query_page(FOREIGN, &SECRET, &format!("limit=1{dates}"))
                && let Some(foreign) = page.next_cursor
            {
                assert_cursor_refused(
                    origin.query_page(OWN, &SECRET, &query_with(foreign.as_bytes())),
                    foreign.as_bytes(),
                );
            }
            let numbers: Vec<u8> = (0..10).flat_map(|_| input.u64().to_be_bytes()).collect();
            let forged = encode_hex(&numbers);
            assert_cursor_refused(origin.query_page(OWN, &SECRET, &query_with(forged.as_bytes())), forged.as_bytes());
        }
        _ => {
            let changed = change_cursor(input, cursor);
            let result = origin.query_page(OWN, &SECRET, &query_with(&changed));
            match result {
                Ok(page) if is_equivalent(&changed, cursor) => {
                    let (ranking, _) = days.ranking(OWN);
                    assert_eq!(rows(&page), ranking[position..ranking.len().min(position + 7)]);
                }
                result => assert_cursor_refused(result, &changed),
            }
        }
    }
}
