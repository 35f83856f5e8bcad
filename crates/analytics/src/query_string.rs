//! Parsing of the query strings of requests. Pure functions.
//!
//! Unknown parameters are ignored. Percent-encoding is decoded once, and `+` is not decoded to a space: no value has a
//! space, but the offset of a time may begin with `+`. Each function adds the mistakes that it finds to a list, so that
//! a client learns of all of them at once.

use std::ops::RangeInclusive;

use percent_encoding::percent_decode_str;
use serde_json::Number;

use super::searches::time::ceil_to_millisecond;
use docwharf_agent::analytics::period::parse_period_end;

/// The number of characters of a value that an error quotes.
pub(crate) const MAX_QUOTED_CHARS: usize = 60;

/// Splits a query string into the percent-decoded values of the parameters `names`, in the order of `names`. A
/// parameter that is absent has no value. The value of an invalid or empty parameter, which is reported already, is the
/// empty string.
pub(crate) fn split_query<const N: usize>(
    query: Option<&str>,
    names: [&str; N],
    problems: &mut Vec<String>,
) -> [Option<String>; N] {
    let mut values: [Option<String>; N] = [const { None }; N];
    let mut repeated = [false; N];
    for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let Some(name) = decode(name) else {
            problems.push(format!(
                "{:?} is not a valid name of a parameter: its percent-encoding is invalid",
                truncate(name, MAX_QUOTED_CHARS)
            ));
            continue;
        };
        let Some(index) = names.iter().position(|known| *known == name) else { continue };
        if values[index].is_some() {
            if !repeated[index] {
                problems.push(format!("{name} occurs more than once"));
                repeated[index] = true;
            }
            continue;
        }
        if let Some(value) = decode(value) {
            if value.is_empty() {
                problems.push(format!("{name} is empty"));
            }
            values[index] = Some(value);
        } else {
            problems
                .push(format!("{name}: the percent-encoding of {:?} is invalid", truncate(value, MAX_QUOTED_CHARS)));
            // A placeholder: a repetition of the parameter is still reported, and the value is not parsed.
            values[index] = Some(String::new());
        }
    }
    values
}

/// Decodes percent-encoding; `None` if a `%` is not followed by two hexadecimal digits, or the result is not UTF-8.
fn decode(text: &str) -> Option<String> {
    let mut codes = text.split('%').skip(1);
    let is_complete = codes.all(|code| code.len() >= 2 && code.as_bytes()[..2].iter().all(u8::is_ascii_hexdigit));
    percent_decode_str(text).decode_utf8().ok().filter(|_| is_complete).map(std::borrow::Cow::into_owned)
}

/// Parses the values of `dateFrom` and `dateTo` to milliseconds since 1970, rounded up.
pub(crate) fn parse_dates(
    from: Option<&str>,
    to: Option<&str>,
    problems: &mut Vec<String>,
) -> (Option<i64>, Option<i64>) {
    let mut date = |name: &str, value: Option<&str>| {
        let time = parse_period_end(value.filter(|value| !value.is_empty())?)
            .map_err(|reason| problems.push(format!("{name}: {}", truncate(&reason, 2 * MAX_QUOTED_CHARS))))
            .ok()?;
        Some(ceil_to_millisecond(time))
    };
    let (from, to) = (date("dateFrom", from), date("dateTo", to));
    if let (Some(from), Some(to)) = (from, to)
        && from > to
    {
        problems.push("dateFrom is after dateTo".to_owned());
    }
    (from, to)
}

/// Parses a whole number in `range` in any notation of JSON: `50`, `50.0` and `5e1` are the same number.
pub(crate) fn parse_whole_number(
    name: &str,
    value: Option<&str>,
    default: u32,
    range: RangeInclusive<u32>,
    problems: &mut Vec<String>,
) -> u32 {
    let Some(text) = value.filter(|text| !text.is_empty()) else { return default };
    let (min, max) = range.into_inner();
    let number = serde_json::from_str::<Number>(text).ok().and_then(|number| number.as_f64());
    let number = number.filter(|_| !text.contains(char::is_whitespace));
    let number = number.filter(|number| (f64::from(min)..=f64::from(max)).contains(number) && number.fract() == 0.0);
    #[expect(clippy::cast_sign_loss, reason = "it is not below `min`")]
    let number = number.map(|number| number as u32);
    number.unwrap_or_else(|| {
        problems
            .push(format!("{name}: {:?} is not a whole number from {min} to {max}", truncate(text, MAX_QUOTED_CHARS)));
        default
    })
}

/// Returns the first `max_chars` characters, and an ellipsis if there are more.
pub(crate) fn truncate(text: &str, max_chars: usize) -> String {
    let mut short: String = text.chars().take(max_chars).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_parameter_differs_from_one_that_is_reported_already() {
        let mut problems = Vec::new();
        let values = split_query(Some("a=1%2C&b=&c=%zz&b=2&b=3"), ["a", "b", "c", "d"], &mut problems);
        let values = values.each_ref().map(Option::as_deref);
        assert_eq!(values, [Some("1,"), Some(""), Some(""), None]);
        assert_eq!(
            problems,
            ["b is empty", "c: the percent-encoding of \"%zz\" is invalid", "b occurs more than once"]
        );
    }

    #[test]
    fn a_number_may_have_each_value_of_its_range() {
        let parse = |text: &str| {
            let mut problems = Vec::new();
            let number = parse_whole_number("offset", Some(text), 7, 0..=1_000_000, &mut problems);
            (number, problems.len())
        };
        for (text, number) in [("0", 0), ("0.0", 0), ("1e6", 1_000_000), ("1000000", 1_000_000)] {
            assert_eq!(parse(text), (number, 0), "{text}");
        }
        for wrong in ["-1", "1000001", "0.5", "x"] {
            assert_eq!(parse(wrong), (7, 1), "{wrong}");
        }
        assert_eq!(parse(""), (7, 0), "an empty value is reported already");
    }
}
