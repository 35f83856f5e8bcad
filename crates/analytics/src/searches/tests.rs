//! Queries with a real database, for searches with a number of results and for those of assistants. The origin tests
//! result pages and cursors with the events that it receives.

use tempfile::TempDir;

use super::rows::{BatchSize, BatchWriter, SearchRow};
use super::{Searches, query_searches};
use crate::database::Database;
use crate::query_error::QueryError;

const SECRET: [u8; 32] = [7; 32];

/// Creates a database with one batch of searches: term, number of results, source.
fn database(searches: &'static [(&str, Option<u64>, Option<&str>)]) -> (TempDir, Database) {
    let folder = tempfile::tempdir().unwrap();
    let db = Database::open(&folder.path().join("analytics.db"), &[include_str!("tables.sql")]).unwrap();
    db.write(move |transaction| {
        let rows = searches.len() as u64;
        let mut writer = BatchWriter::begin(transaction, "", "b", 0, BatchSize { rows, searches: rows })?;
        searches.iter().try_for_each(|&(query, results, source)| {
            writer.push(SearchRow { time: 0, query, page: None, count: 1, clicks: 0, results, source })
        })
    })
    .unwrap();
    (folder, db)
}

fn query(db: &Database, query: &str) -> Result<Searches, QueryError> {
    query_searches(db, "", Some(query), &SECRET, i64::MIN)
}

/// Returns the terms with their hits, and the number of searches.
fn terms(db: &Database, query_string: &str) -> (Vec<(String, u64)>, u64) {
    let page = query(db, query_string).unwrap();
    (page.searches.into_iter().map(|term| (term.search_query, term.hits)).collect(), page.total_searches)
}

fn hits(terms: &[(&str, u64)]) -> Vec<(String, u64)> {
    terms.iter().map(|&(term, hits)| (term.to_owned(), hits)).collect()
}

#[test]
fn no_results_counts_only_the_searches_that_found_nothing() {
    let (_folder, db) = database(&[
        ("moat", Some(0), None),
        ("moat", Some(3), None),
        ("keep", None, None),
        ("dock", Some(0), None),
        ("dock", Some(0), None),
        ("gate", Some(1), None),
    ]);
    assert_eq!(terms(&db, "noResults=true"), (hits(&[("dock", 2), ("moat", 1)]), 3));
    let all = (hits(&[("dock", 2), ("moat", 2), ("gate", 1), ("keep", 1)]), 6);
    assert_eq!(terms(&db, ""), all);
    assert_eq!(terms(&db, "noResults=false"), all);
}

#[test]
fn searches_of_assistants_are_no_part_of_the_totals() {
    let (_folder, db) = database(&[
        ("moat", Some(0), Some("assistant")),
        ("moat", Some(2), None),
        ("keep", Some(0), Some("assistant")),
    ]);
    assert_eq!(terms(&db, ""), (hits(&[("moat", 1)]), 1));
    assert_eq!(terms(&db, "noResults=true"), (vec![], 0));
}

#[test]
fn a_cursor_is_valid_only_for_the_same_value_of_no_results() {
    let (_folder, db) = database(&[("a", Some(0), None), ("b", Some(0), None), ("c", Some(0), None)]);
    for (created, other) in [("noResults=true", "noResults=false"), ("noResults=false", "noResults=true")] {
        let cursor = query(&db, &format!("{created}&limit=1")).unwrap().next_cursor.unwrap();
        let next = query(&db, &format!("{created}&cursor={cursor}")).unwrap();
        assert_eq!((next.searches.len(), next.total_searches), (2, 3));
        match query(&db, &format!("{other}&cursor={cursor}")) {
            Err(QueryError::Invalid(invalid)) => assert!(invalid.details[0].contains("noResults"), "{invalid:?}"),
            result => panic!("{result:?}"),
        }
    }
}
