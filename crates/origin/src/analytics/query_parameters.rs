//! Parsing of the query parameters of an analytics query. Pure functions.
//!
//! Unknown parameters are ignored. Percent-encoding is decoded once, and `+` is not decoded to a space: no value has a
//! space, but the offset of a time may begin with `+`.

use percent_encoding::percent_decode_str;
use serde_json::Number;

use super::cursor::SearchRange;
use super::time::ceil_to_millisecond;
use docwharf_agent::analytics::period::parse_period_end;

/// The default number of terms on a result page.
const DEFAULT_LIMIT: usize = 50;
/// The largest number of terms on a result page.
const MAX_LIMIT: f64 = 100.0;
/// The number of characters of a value that an error quotes.
const MAX_QUOTED_CHARS: usize = 60;

/// The parsed parameters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SearchQuery {
    pub(super) range: SearchRange,
    /// The number of terms on a result page.
    pub(super) limit: usize,
    /// The cursor, not verified yet.
    pub(super) cursor: Option<String>,
}

/// The percent-decoded values, not parsed yet.
#[derive(Debug, Default)]
struct RawQueryParameters {
    date_from: Option<String>,
    date_to: Option<String>,
    limit: Option<String>,
    cursor: Option<String>,
}

/// Parses the query of a request target. The error lists all mistakes.
pub(super) fn parse_query(query: Option<&str>) -> Result<SearchQuery, Vec<String>> {
    let mut problems = Vec::new();
    let values = split_query(query.unwrap_or_default(), &mut problems);
    let mut date = |name: &str, value: Option<String>| {
        let time = parse_period_end(&value?)
            .map_err(|reason| problems.push(format!("{name}: {}", truncate(&reason, 2 * MAX_QUOTED_CHARS))))
            .ok()?;
        Some(ceil_to_millisecond(time))
    };
    let (from, to) = (date("dateFrom", values.date_from), date("dateTo", values.date_to));
    if let (Some(from), Some(to)) = (from, to)
        && from > to
    {
        problems.push("dateFrom is after dateTo".to_owned());
    }
    let limit = values.limit.map_or(Ok(DEFAULT_LIMIT), |limit| parse_limit(&limit));
    let limit = limit.map_err(|reason| problems.push(reason)).unwrap_or(DEFAULT_LIMIT);
    let range = SearchRange { from: from.unwrap_or(i64::MIN), to: to.unwrap_or(i64::MAX) };
    if problems.is_empty() { Ok(SearchQuery { range, limit, cursor: values.cursor }) } else { Err(problems) }
}

fn split_query(query: &str, problems: &mut Vec<String>) -> RawQueryParameters {
    let mut values = RawQueryParameters::default();
    let mut repeated = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = decode(name) else {
            problems.push(format!(
                "{:?} is not a valid name of a parameter: its percent-encoding is invalid",
                truncate(name, MAX_QUOTED_CHARS)
            ));
            continue;
        };
        let slot = match name.as_str() {
            "dateFrom" => &mut values.date_from,
            "dateTo" => &mut values.date_to,
            "limit" => &mut values.limit,
            "cursor" => &mut values.cursor,
            _ => continue,
        };
        if slot.is_some() {
            if !repeated.contains(&name) {
                problems.push(format!("{name} occurs more than once"));
                repeated.push(name);
            }
            continue;
        }
        if let Some(value) = decode(value) {
            if value.is_empty() {
                problems.push(format!("{name} is empty"));
            }
            *slot = Some(value);
        } else {
            problems
                .push(format!("{name}: the percent-encoding of {:?} is invalid", truncate(value, MAX_QUOTED_CHARS)));
            // A placeholder: a repetition of the parameter is still reported, and the value is not parsed.
            *slot = Some(String::new());
        }
    }
    // Empty values are reported already.
    for value in [&mut values.date_from, &mut values.date_to, &mut values.limit, &mut values.cursor] {
        value.take_if(|value| value.is_empty());
    }
    values
}

/// Decodes percent-encoding; `None` if a `%` is not followed by two hexadecimal digits, or the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut codes = text.split('%').skip(1);
    let is_complete = codes.all(|code| code.len() >= 2 && code.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit));
    percent_decode_str(text).decode_utf8().ok().filter(|_| is_complete).map(std::borrow::Cow::into_owned)
}

/// Parses a whole number from 1 to 100 in any notation of JSON: `50`, `50.0` and `5e1` are the same number.
fn parse_limit(text: &str) -> Result<usize, String> {
    let number = serde_json::from_str::<Number>(text).ok().and_then(|number| number.as_f64());
    let number = number.filter(|_| !text.contains(char::is_whitespace));
    let limit = number.filter(|number| (1.0..=MAX_LIMIT).contains(number) && number.fract() == 0.0);
    #[expect(clippy::cast_sign_loss, reason = "it is from 1 to 100")]
    let limit = limit.map(|number| number as usize);
    limit.ok_or_else(|| {
        format!("limit: {:?} is not a whole number from 1 to {MAX_LIMIT}", truncate(text, MAX_QUOTED_CHARS))
    })
}

fn truncate(text: &str, max_chars: usize) -> String {
    let mut short: String = text.chars().take(max_chars).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
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
