//! Walks through the searches of a project, over the database of an origin with two organizations: pages are those of a list
//! that was sorted, whatever their size. A cursor that was changed, made up, or given out for another project, for other dates
//! or by another origin is refused; no question at all is answered with what another organization has.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;

use docwharf::model::digest::hex;
use docwharf::origin::analytics::{AnalyticsError, IngestLimits, Searches, ingest_batch, query_searches};
use docwharf::origin::database::Database;
use docwharf::origin::limits::OriginLimits;
use docwharf::origin::shares::ResourcePools;
use serde_json::json;
use tempfile::TempDir;

use super::recipe::Recipe;

const SECRET: [u8; 32] = [7; 32];
const OTHER_SECRET: [u8; 32] = [8; 32];
/// Project and organization.
const OWN: (&str, &str) = ("p", "one");
const FOREIGN: (&str, &str) = ("q", "two");
/// Terms of each project; the searches for a term are all of one day.
const TERMS: usize = 20;
/// Digits of a cursor before its signature.
const NUMBERS: usize = 96;

/// A database in which two organizations have searches.
struct Origin {
    db: Database,
    _folder: TempDir,
}

thread_local! {
    // Making one waits for the disk. It is only read.
    static ORIGIN: Origin = Origin::new();
}

/// A term, how often it was searched for, and on which day of January 2020.
fn terms((project, _): (&str, &str)) -> Vec<(String, u64, usize)> {
    let term = |n: usize| (format!("{project} {n:02}"), 1 + (n as u64 * 7) % 5, n + 1);
    (0..TERMS).map(term).collect()
}

impl Origin {
    fn new() -> Origin {
        let folder = tempfile::Builder::new().prefix("docwharf-fuzz-").tempdir().expect("a temporary folder");
        let db = Database::open(&folder.path().join("origin.db")).expect("a database");
        let owners: BTreeMap<String, String> =
            [OWN, FOREIGN].map(|(project, organization)| (project.to_owned(), organization.to_owned())).into();
        let (owners, shares) = (Arc::new(owners), ResourcePools::new(OriginLimits::default(), 2));
        for (project, organization) in [OWN, FOREIGN] {
            let allowance = IngestLimits::new(organization, Arc::clone(&owners), Arc::clone(&shares), None, Some(0));
            let event = |(query, _, day): &(String, u64, usize)| json!({ "query": query, "time": format!("2020-01-{day:02}T12:00:00Z"), "clickedPage": format!("/{project}") });
            let events: Vec<_> =
                terms((project, organization)).iter().flat_map(|term| (0..term.1).map(move |_| event(term))).collect();
            let batch = json!({ "batchId": "b", "events": events }).to_string();
            ingest_batch(&db, project, batch.as_bytes(), &allowance).expect("searches are taken in");
        }
        Origin { db, _folder: folder }
    }

    /// A page, or everything that is wrong with the question.
    fn ask(&self, (project, _): (&str, &str), secret: &[u8; 32], query: &str) -> Result<Searches, Vec<String>> {
        match query_searches(&self.db, project, Some(query), secret, i64::MIN) {
            Ok(page) => {
                let own = terms((project, ""));
                for found in &page.searches {
                    let known = own.iter().find(|(term, ..)| *term == found.search_query);
                    let (_, hits, _) = known.unwrap_or_else(|| panic!("{found:?} is none of {project}'s: {query}"));
                    assert_eq!((found.hits, found.top_clicked_page.clone()), (*hits, Some(format!("/{project}"))));
                }
                let most: u64 = own.iter().map(|(_, hits, _)| hits).sum();
                assert!(page.total_searches <= most, "{} searches: {query}", page.total_searches);
                Ok(page)
            }
            Err(AnalyticsError::Invalid(bad)) => {
                assert!(!bad.details.is_empty() && !bad.error.is_empty(), "{query}");
                for detail in &bad.details {
                    assert!(!detail.is_empty() && !detail.contains(char::is_control), "{detail:?}");
                    assert!(detail.chars().count() < 1000, "{} characters", detail.chars().count());
                }
                Err(bad.details)
            }
            Err(other) => panic!("not refused, but failed: {other}"),
        }
    }
}

/// Which days count: the first that does, and the first that does not any more.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Days(Option<usize>, Option<usize>);

impl Days {
    fn of(recipe: &mut Recipe<'_>) -> Days {
        let mut day = || (!recipe.once_in(2)).then(|| 1 + recipe.below(25));
        let (from, to) = (day(), day());
        match (from, to) {
            (Some(from), Some(to)) => Days(Some(from.min(to)), Some(from.max(to))),
            _ => Days(from, to),
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

    /// The terms of these days with their searches, the most frequent first, and how many searches these are.
    fn ranking(self, of: (&str, &str)) -> (Vec<(String, u64)>, u64) {
        let counts = |day: usize| self.0.is_none_or(|from| day >= from) && self.1.is_none_or(|to| day < to);
        let within = terms(of).into_iter().filter(|(_, _, day)| counts(*day));
        let mut all: Vec<(String, u64)> = within.map(|(term, hits, _)| (term, hits)).collect();
        all.sort_by(|(one, ones), (other, others)| others.cmp(ones).then_with(|| one.cmp(other)));
        let total = all.iter().map(|(_, hits)| hits).sum();
        (all, total)
    }
}

fn rows(page: &Searches) -> Vec<(String, u64)> {
    page.searches.iter().map(|found| (found.search_query.clone(), found.hits)).collect()
}

/// Any bytes as the value of a parameter.
fn encoded(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "%{byte:02x}");
        text
    })
}

/// A cursor in which something is different.
fn changed(recipe: &mut Recipe<'_>, genuine: &str) -> Vec<u8> {
    let mut cursor = genuine.as_bytes().to_vec();
    for _ in 0..=recipe.below(2) {
        let at = recipe.below(256) % cursor.len().max(1);
        match recipe.below(7) {
            0 | 1 if at < cursor.len() => cursor[at] = recipe.one_of(b"0123456789abcdefg"),
            2 => cursor.truncate(at),
            3 => cursor.insert(at.min(cursor.len()), recipe.byte()),
            4 => cursor.extend_from_slice(recipe.bytes(20)),
            5 => cursor.make_ascii_uppercase(),
            // The signature stays what it is.
            _ => {
                let number = format!("{:016x}", recipe.long());
                let at = recipe.below(6) * 16;
                if let Some(place) = cursor.get_mut(at..at + 16) {
                    place.copy_from_slice(number.as_bytes());
                }
            }
        }
    }
    cursor
}

/// Whether a cursor says the same as the genuine one: digits of the signature may be of either case.
fn is_same(cursor: &[u8], genuine: &str) -> bool {
    let genuine = genuine.as_bytes();
    cursor.get(..NUMBERS) == genuine.get(..NUMBERS) && cursor.eq_ignore_ascii_case(genuine)
}

/// A question with a cursor that is none, which is said of the cursor and of nothing else.
fn refused(answer: Result<Searches, Vec<String>>, cursor: &[u8]) {
    let cursor = String::from_utf8_lossy(cursor);
    match answer {
        Ok(page) => panic!("{cursor:?} leads to {:?}", rows(&page)),
        Err(details) => {
            assert!(details.len() == 1 && details[0].starts_with("cursor"), "{cursor:?}: {details:?}");
        }
    }
}

/// See the head of this file.
pub fn cursor(data: &[u8]) {
    ORIGIN.with(|origin| walk(origin, &mut Recipe::new(data)));
}

fn walk(origin: &Origin, recipe: &mut Recipe<'_>) {
    if recipe.once_in(4) {
        // Any question.
        let query = String::from_utf8_lossy(recipe.rest()).into_owned();
        let _ = origin.ask(OWN, &SECRET, &query);
        let _ = origin.ask(OWN, &SECRET, &format!("limit=5&cursor={}", encoded(query.as_bytes())));
        return;
    }
    let (days, limit) = (Days::of(recipe), 1 + recipe.below(9));
    let question = format!("limit={limit}{}", days.query());
    let (ranking, total) = days.ranking(OWN);
    let stop = recipe.below(6);
    let (mut at, mut cursor) = (0, String::new());
    loop {
        let query = if at == 0 { question.clone() } else { format!("{question}&cursor={cursor}") };
        let page = origin.ask(OWN, &SECRET, &query).expect("a page");
        let end = ranking.len().min(at + limit);
        assert_eq!((rows(&page), page.total_searches), (ranking[at..end].to_vec(), total), "{query}");
        at = end;
        let Some(next) = page.next_cursor else { return assert_eq!(at, ranking.len(), "a walk that ends early") };
        assert!(at < ranking.len(), "a cursor behind the last page");
        cursor = next;
        if at >= stop * limit {
            return misuse(origin, recipe, days, at, &cursor);
        }
    }
}

/// What else may be done with a cursor behind the first `at` terms of these days.
fn misuse(origin: &Origin, recipe: &mut Recipe<'_>, days: Days, at: usize, cursor: &str) {
    let dates = days.query();
    let with = |cursor: &[u8]| format!("limit=7{dates}&cursor={}", encoded(cursor));
    match recipe.below(6) {
        // Another size of pages is nobody's harm.
        0 => {
            let page = origin.ask(OWN, &SECRET, &with(cursor.as_bytes())).expect("a page");
            let (ranking, _) = days.ranking(OWN);
            assert_eq!(rows(&page), ranking[at..ranking.len().min(at + 7)]);
        }
        1 => refused(origin.ask(FOREIGN, &SECRET, &with(cursor.as_bytes())), cursor.as_bytes()),
        2 => refused(origin.ask(OWN, &OTHER_SECRET, &with(cursor.as_bytes())), cursor.as_bytes()),
        3 => {
            let other = Days::of(recipe);
            if other != days {
                let query = format!("{}&cursor={cursor}", other.query());
                refused(origin.ask(OWN, &SECRET, query.trim_start_matches('&')), cursor.as_bytes());
            }
        }
        4 => {
            // One that the other organization has been given, and one that nobody was.
            if let Ok(page) = origin.ask(FOREIGN, &SECRET, &format!("limit=1{dates}"))
                && let Some(foreign) = page.next_cursor
            {
                refused(origin.ask(OWN, &SECRET, &with(foreign.as_bytes())), foreign.as_bytes());
            }
            let numbers: Vec<u8> = (0..10).flat_map(|_| recipe.long().to_be_bytes()).collect();
            let forged = hex(&numbers);
            refused(origin.ask(OWN, &SECRET, &with(forged.as_bytes())), forged.as_bytes());
        }
        _ => {
            let changed = changed(recipe, cursor);
            let answer = origin.ask(OWN, &SECRET, &with(&changed));
            match answer {
                Ok(page) if is_same(&changed, cursor) => {
                    let (ranking, _) = days.ranking(OWN);
                    assert_eq!(rows(&page), ranking[at..ranking.len().min(at + 7)]);
                }
                answer => refused(answer, &changed),
            }
        }
    }
}
