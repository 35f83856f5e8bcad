//! Parsing of the query parameters of a query for searches. Pure functions.

use super::cursor::SearchRange;
use crate::query_string::{MAX_QUOTED_CHARS, parse_dates, parse_whole_number, split_query, truncate};

/// The default number of terms on a result page.
const DEFAULT_LIMIT: u32 = 50;
/// The largest number of terms on a result page.
const MAX_LIMIT: u32 = 100;

/// The parsed parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchQuery {
    pub(super) range: SearchRange,
    /// Whether only searches without results count.
    pub(super) no_results: bool,
    /// The number of terms on a result page.
    pub(super) limit: usize,
    /// The cursor, not verified yet.
    pub(super) cursor: Option<String>,
}

/// Parses the query of a request target. The error lists all mistakes.
pub(super) fn parse_query(query: Option<&str>) -> Result<SearchQuery, Vec<String>> {
    let mut problems = Vec::new();
    let names = ["dateFrom", "dateTo", "limit", "cursor", "noResults"];
    let [from, to, limit, cursor, no_results] = split_query(query, names, &mut problems);
    let (from, to) = parse_dates(from.as_deref(), to.as_deref(), &mut problems);
    let limit = parse_whole_number("limit", limit.as_deref(), DEFAULT_LIMIT, 1..=MAX_LIMIT, &mut problems);
    let no_results = parse_no_results(no_results.as_deref(), &mut problems);
    let range = SearchRange { from: from.unwrap_or(i64::MIN), to: to.unwrap_or(i64::MAX) };
    let query = SearchQuery { range, no_results, limit: limit as usize, cursor };
    if problems.is_empty() { Ok(query) } else { Err(problems) }
}

fn parse_no_results(value: Option<&str>, problems: &mut Vec<String>) -> bool {
    match value {
        // An empty value is reported already.
        None | Some("" | "false") => {}
        Some("true") => return true,
        Some(text) => {
            problems.push(format!("noResults: {:?} is neither true nor false", truncate(text, MAX_QUOTED_CHARS)));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(query: &str) -> (Option<String>, Option<String>) {
        let SearchRange { from, to } =
            parse_query(Some(query)).unwrap_or_else(|reason| panic!("{query}: {reason:?}")).range;
        (super::super::time::format_rfc3339(from), super::super::time::format_rfc3339(to))
    }

    fn problems(query: &str) -> Vec<String> {
        parse_query(Some(query)).expect_err(query)
    }

    #[test]
    fn dates_are_days_in_utc_or_moments_with_or_without_seconds_and_offset() {
        for (text, moment) in [
            ("2026-11-01", "2026-11-01T00:00:00Z"),
            ("2024-02-29", "2024-02-29T00:00:00Z"),
            ("2026-11-01T08:30:15Z", "2026-11-01T08:30:15Z"),
            ("2026-11-01T08:30:15.25Z", "2026-11-01T08:30:15.25Z"),
            ("2026-11-01T08:30Z", "2026-11-01T08:30:00Z"),
            ("2026-11-01T08:30", "2026-11-01T08:30:00Z"),
            ("2026-11-01T08:30:15", "2026-11-01T08:30:15Z"),
            ("2026-11-01T00:30:00+02:00", "2026-10-31T22:30:00Z"),
            ("2026-11-01T00:30:00%2B02:00", "2026-10-31T22:30:00Z"),
            ("2026-11-01T00:30%2b02:00", "2026-10-31T22:30:00Z"),
            ("2026-11-01T00%3A30%3A00-01:00", "2026-11-01T01:30:00Z"),
        ] {
            assert_eq!(range(&format!("dateFrom={text}")), (Some(moment.to_owned()), None), "{text}");
            assert_eq!(range(&format!("dateTo={text}")), (None, Some(moment.to_owned())), "{text}");
        }
        assert_eq!(parse_query(None).unwrap().range, SearchRange { from: i64::MIN, to: i64::MAX });
        // A range may be empty, but its end must not be before its start.
        assert!(parse_query(Some("dateFrom=2026-11-01&dateTo=2026-11-01")).is_ok());
        assert_eq!(problems("dateFrom=2026-11-02&dateTo=2026-11-01"), ["dateFrom is after dateTo"]);
        assert_eq!(
            problems("dateFrom=2026-11-01T00:00Z&dateTo=2026-11-01T01:00%2B02:00"),
            ["dateFrom is after dateTo"]
        );
    }

    #[test]
    fn invalid_date_is_reported_with_the_name_of_its_parameter() {
        for wrong in [
            "yesterday",
            "2026-13-01",
            "2026-02-30",
            "2025-02-29",
            "01.02.2026",
            "2026-1-1",
            "20260101",
            "12:30",
            "2026",
            "1767225600",
            "2026-01-01T25:00:00Z",
            "2026-01-01T00:61Z",
            "null",
            "2026-01-01+02:00",
            "-1",
            "%00",
            "%20",
        ] {
            for name in ["dateFrom", "dateTo"] {
                let problems = problems(&format!("{name}={wrong}"));
                assert!(problems.len() == 1 && problems[0].starts_with(&format!("{name}: ")), "{problems:?}");
            }
        }
        assert!(problems(&format!("dateTo={}", "9".repeat(5000)))[0].len() < 200);
    }

    #[test]
    fn a_limit_is_a_whole_number_from_1_to_100_however_it_is_written() {
        assert_eq!(parse_query(Some("")).unwrap().limit, 50);
        for (text, limit) in [("1", 1), ("100", 100), ("50.0", 50), ("5e1", 50), ("%35", 5)] {
            assert_eq!(parse_query(Some(&format!("limit={text}"))).unwrap().limit, limit, "{text}");
        }
        for wrong in [
            "0", "101", "-1", "1.5", "100.1", "ten", "+5", "05", "0x5", "1e999", "NaN", "Infinity", "5 ", "5,0", "null",
        ] {
            let problems = problems(&format!("limit={wrong}"));
            assert!(problems.len() == 1 && problems[0].starts_with("limit: "), "{problems:?}");
        }
    }

    #[test]
    fn no_results_is_true_or_false_and_false_by_default() {
        for (query, no_results) in [("", false), ("noResults=false", false), ("noResults=%74rue", true)] {
            assert_eq!(parse_query(Some(query)).unwrap().no_results, no_results, "{query}");
        }
        for wrong in ["1", "True", "yes", "null", "true+", "", "%ff"] {
            let problems = problems(&format!("noResults={wrong}"));
            assert!(problems.len() == 1 && problems[0].starts_with("noResults"), "{problems:?}");
        }
    }

    #[test]
    fn each_invalid_query_parameter_is_reported_and_unknown_ones_are_ignored() {
        assert_eq!(parse_query(Some("x=1&x=2&y&&=&utm=100%&Limit=0&limit=7")).unwrap().limit, 7);
        assert_eq!(
            problems("dateFrom=&limit=1&limit=2&limit=3&dateTo=%zz&cursor&%ff=1"),
            [
                "dateFrom is empty",
                "limit occurs more than once",
                "dateTo: the percent-encoding of \"%zz\" is invalid",
                "cursor is empty",
                "\"%ff\" is not a valid name of a parameter: its percent-encoding is invalid",
            ]
        );
        assert_eq!(problems("limit=0&dateFrom=x&dateTo=y").len(), 3);
        for broken in ["%", "%4", "%4x", "a%", "%ff", "%c3%28", "%%41"] {
            let problems = problems(&format!("cursor={broken}"));
            assert!(problems.len() == 1 && problems[0].starts_with("cursor: "), "{problems:?}");
        }
        assert_eq!(parse_query(Some("%63ursor=a+b%2Bc")).unwrap().cursor.as_deref(), Some("a+b+c"));
    }
}
