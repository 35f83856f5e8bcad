//! Fields of requests and responses: Range, Accept-Encoding, preconditions and Retry-After. For a generated field the
//! meaning is known from the values it was made from; for any bytes a simple model finds it.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use docwharf::base::secret::SecretRedactor;
use docwharf::codec::content_coding::ContentCoding;
use docwharf::net::request_error::{MAX_RETRY_AFTER, RequestError, parse_retry_after};
use docwharf::net::retry::{CallAttempts, CallKind, MAX_SYNC_RETRY_AFTER};
use docwharf::serve::byte_range::{MAX_RANGES, RequestedRange, parse_range};
use docwharf::serve::conditional::{ContentDates, PreconditionOutcome, evaluate_preconditions, if_range_matches};
use docwharf::serve::negotiate::{AcceptedCodings, ResponseForm, prefers_markdown};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, DATE, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue};

use super::fuzz_input::FuzzInput;

/// Optional white space between the parts of a list.
fn random_space(input: &mut FuzzInput<'_>) -> &'static str {
    input.one_of(&["", "", "", " ", "\t", "  "])
}

fn field_value(bytes: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(bytes).ok()
}

/// Range: any bytes, or a list of ranges, for a body of up to 300 bytes.
pub fn range(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let len = u64::from(input.u16() % 301);
    let text = if input.once_in(2) {
        input.rest().to_vec()
    } else {
        let mut specs = Vec::new();
        for _ in 0..input.below(20) {
            let number = |input: &mut FuzzInput<'_>| match input.below(8) {
                0 => String::new(),
                1 => input.u64().to_string(),
                2 => "9".repeat(25),
                _ => (input.u16() % 310).to_string(),
            };
            let (first, last) = (number(&mut input), number(&mut input));
            specs.push(format!("{}{first}-{last}{}", random_space(&mut input), random_space(&mut input)));
        }
        format!("{}={}", input.one_of(&["bytes", "bytes", "bytes", "Bytes", "lines"]), specs.join(",")).into_bytes()
    };
    let Some(field) = field_value(&text) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(RANGE, field.clone());
    let result = parse_range(&headers, len);
    assert_eq!(result, expected_range(&text, len), "{:?} of {len}", String::from_utf8_lossy(&text));
    let is_inside = |&(start, end): &(u64, u64)| start < end && end <= len;
    match &result {
        RequestedRange::Single(start, end) => assert!(is_inside(&(*start, *end))),
        RequestedRange::Multiple(slices) => {
            assert!(slices.len() > 1 && slices.len() <= MAX_RANGES && slices.iter().all(is_inside));
        }
        RequestedRange::Whole | RequestedRange::NotSatisfiable => {}
    }
    headers.append(RANGE, field);
    assert_eq!(parse_range(&headers, len), RequestedRange::Whole, "two fields");
    // The largest length: nothing overflows.
    let result = parse_range(&headers, u64::MAX);
    assert_eq!(result, RequestedRange::Whole);
}

/// A simple model: collects the positions of all bytes of each range in a set.
fn expected_range(text: &[u8], len: u64) -> RequestedRange {
    let Some(text) = std::str::from_utf8(text).ok().filter(|text| text.is_ascii() && !text.contains('\x7f')) else {
        return RequestedRange::Whole;
    };
    let Some((unit, list)) = text.split_once('=') else { return RequestedRange::Whole };
    if unit.trim().to_lowercase() != "bytes" {
        return RequestedRange::Whole;
    }
    let mut sets: Vec<BTreeSet<u64>> = Vec::new();
    let mut count = 0;
    for spec in list.split(',') {
        if spec.trim().is_empty() {
            continue;
        }
        count += 1;
        let Some((first, last)) = spec.split_once('-') else { return RequestedRange::Whole };
        let (first, last) = (first.trim(), last.trim());
        let is_digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        if !is_digits(first) || !is_digits(last) || (first.is_empty() && last.is_empty()) {
            return RequestedRange::Whole;
        }
        // A larger number is beyond the end of any body.
        let number = |text: &str| text.parse::<u128>().unwrap_or(u128::MAX).min(u128::from(u64::MAX));
        let positions: BTreeSet<u64> = if first.is_empty() {
            (0..len).filter(|&at| u128::from(len - at) <= number(last)).collect()
        } else if last.is_empty() {
            (0..len).filter(|&at| u128::from(at) >= number(first)).collect()
        } else if number(last) < number(first) {
            return RequestedRange::Whole;
        } else {
            (0..len).filter(|&at| u128::from(at) >= number(first) && u128::from(at) <= number(last)).collect()
        };
        if !positions.is_empty() {
            sets.push(positions);
        }
    }
    for (n, set) in sets.iter().enumerate() {
        if sets[..n].iter().any(|earlier| !set.is_disjoint(earlier)) {
            return RequestedRange::Whole;
        }
    }
    let slice = |set: &BTreeSet<u64>| (*set.first().expect("not empty"), set.last().expect("not empty") + 1);
    match sets.len() {
        0 if count == 0 => RequestedRange::Whole,
        0 => RequestedRange::NotSatisfiable,
        1 => RequestedRange::Single(slice(&sets[0]).0, slice(&sets[0]).1),
        2..=MAX_RANGES => RequestedRange::Multiple(sets.iter().map(slice).collect()),
        _ => RequestedRange::Whole,
    }
}

/// Accept-Encoding: any bytes, or a list of codings with weights.
pub fn accept_encoding(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let mut headers = HeaderMap::new();
    if input.once_in(3) {
        let text = input.rest();
        for field in text.split(|&b| b == b'\n').filter_map(field_value) {
            headers.append(ACCEPT_ENCODING, field.clone());
            headers.append(ACCEPT, field);
        }
        let lower = String::from_utf8_lossy(text).to_lowercase();
        let form = AcceptedCodings::parse(&headers).choose(10, |_| Some(9));
        let is_named = form.token().is_none_or(|token| lower.contains(token));
        assert!(is_named || lower.contains('*'), "{form:?}: {lower:?}");
        assert!(!prefers_markdown(&headers) || lower.contains("text/markdown") || lower.contains('*'), "{lower:?}");
        return;
    }
    let (mut gzip, mut brotli, mut zstd, mut identity, mut wildcard) = (None, None, None, None, None);
    for _ in 0..input.below(3) {
        let mut items = Vec::new();
        for _ in 0..input.below(5) {
            let coding = input.one_of(&["gzip", "identity", "*", "x-gzip", "br", "deflate", "zstd", "gzip2", ""]);
            let weight = input.u16() % 1001;
            let weight_text = match input.below(4) {
                0 => None,
                1 if weight == 1000 => Some("1".to_owned()),
                2 if weight.is_multiple_of(100) => Some(format!("{}.{}", weight / 1000, weight / 100 % 10)),
                3 if weight == 0 => Some("0.".to_owned()),
                _ => Some(format!("{}.{:03}", weight / 1000, weight % 1000)),
            };
            let weight = if weight_text.is_some() { weight } else { 1000 };
            match coding {
                "gzip" | "x-gzip" => gzip = Some(weight),
                "br" => brotli = Some(weight),
                "zstd" => zstd = Some(weight),
                "identity" => identity = Some(weight),
                "*" => wildcard = Some(weight),
                _ => {}
            }
            let coding = if input.once_in(3) { coding.to_uppercase() } else { coding.to_owned() };
            let q = input.one_of(&["q", "Q"]);
            let weight_text = weight_text.map_or(String::new(), |weight| {
                format!("{};{}{q}={weight}", random_space(&mut input), random_space(&mut input))
            });
            items.push(format!("{}{coding}{weight_text}{}", random_space(&mut input), random_space(&mut input)));
        }
        headers.append(ACCEPT_ENCODING, items.join(",").parse().expect("visible characters"));
    }
    // RFC 9110, 12.5.3: `*` has the codings that are not named, and a coding without a weight above 0 is not sent.
    // Among codings with the same weight docwharf selects the smallest form, and identity only if its own weight is
    // higher.
    let (brotli_len, zstd_len) = (input.below(3) as u64, input.below(3) as u64);
    let len = |coding: ContentCoding| match coding {
        ContentCoding::Brotli => Some(brotli_len).filter(|len| *len > 0),
        ContentCoding::Zstd => Some(zstd_len).filter(|len| *len > 0),
    };
    let offers = [
        (gzip, Some(2), ResponseForm::Gzip),
        (brotli, len(ContentCoding::Brotli), ResponseForm::Precompressed(ContentCoding::Brotli)),
        (zstd, len(ContentCoding::Zstd), ResponseForm::Precompressed(ContentCoding::Zstd)),
    ];
    let mut expected = (0, u64::MAX, ResponseForm::Identity);
    for (weight, len, form) in offers {
        let weight = weight.or(wildcard).unwrap_or(0);
        let Some(len) = len.filter(|_| weight > 0) else { continue };
        if weight > expected.0 || (weight == expected.0 && len < expected.1) {
            expected = (weight, len, form);
        }
    }
    let expected = if expected.0 < identity.unwrap_or(0) { ResponseForm::Identity } else { expected.2 };
    assert_eq!(AcceptedCodings::parse(&headers).choose(2, len), expected, "{headers:?}");
}

/// Formats a date in one of the three forms of HTTP (RFC 9110, 5.6.7).
fn format_date(seconds: u64, form: usize) -> String {
    let imf_fixdate = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
    let [name, day, month, year, time] =
        imf_fixdate.split([',', ' ']).filter(|part| !part.is_empty()).collect::<Vec<_>>()[..5]
    else {
        unreachable!("an IMF-fixdate has five parts and a zone");
    };
    match form {
        1 => {
            let weekdays = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
            let weekday = weekdays.iter().find(|weekday| weekday.starts_with(name)).expect("a day of the week");
            format!("{weekday}, {day}-{month}-{} {time} GMT", &year[2..])
        }
        2 => format!("{name} {month} {:>2} {time} {year}", day.trim_start_matches('0')),
        _ => imf_fixdate,
    }
}

/// Adds a date field: none, one date, an invalid value, or two dates. Returns the date if the field is valid.
fn add_date(input: &mut FuzzInput<'_>, headers: &mut HeaderMap, name: &HeaderName, modified: u64) -> Option<u64> {
    let seconds = (modified + 3).saturating_sub(input.below(7) as u64);
    let text = format_date(seconds, input.below(3));
    let to_value = |text: &str| field_value(text.as_bytes()).expect("visible characters");
    match input.below(6) {
        0 => None,
        1 => {
            if let Some(field) = field_value(input.bytes(20)).filter(|field| field.to_str().is_ok_and(|t| t.len() < 20))
            {
                headers.append(name, field);
            }
            // A date is longer.
            None
        }
        2 => {
            headers.append(name, to_value(&text));
            headers.append(name, to_value(&text));
            None
        }
        _ => {
            headers.append(name, to_value(&text));
            Some(seconds)
        }
    }
}

/// Adds a field of entity tags: none, `*`, or lists that may contain `tag`. Returns whether `tag` matches by strong and
/// by weak comparison.
fn add_tags(input: &mut FuzzInput<'_>, headers: &mut HeaderMap, name: &HeaderName, tag: &str) -> Option<(bool, bool)> {
    let (mut is_strong_match, mut is_weak_match) = (false, false);
    match input.below(4) {
        0 => return None,
        1 => {
            headers.append(name, HeaderValue::from_static("*"));
            return Some((true, true));
        }
        _ => {}
    }
    for _ in 0..=input.below(2) {
        let mut items = Vec::new();
        for _ in 0..=input.below(3) {
            let opaque = input.one_of(&[tag, "\"\"", "\"a,b\"", "\"W/\"", "\"abc-g\"", "\"ab\"", "\"*\""]);
            let is_weak = input.once_in(2);
            is_strong_match |= opaque == tag && !is_weak;
            is_weak_match |= opaque == tag;
            items.push(format!(
                "{}{}{opaque}{}",
                random_space(input),
                if is_weak { "W/" } else { "" },
                random_space(input)
            ));
        }
        headers.append(name, items.join(",").parse().expect("visible characters"));
    }
    Some((is_strong_match, is_weak_match))
}

/// Preconditions by the table of RFC 9110, 13.2.2.
pub fn conditional(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let tag = input.one_of(&["\"abc\"", "\"0123456789abcdef-g89abcdef\""]);
    // From 1970 to 2060: a two-digit year of RFC 850 stands for the nearest year.
    let modified = input.u64() % 2_840_000_000;
    let mut headers = HeaderMap::new();
    if input.once_in(4) {
        let mut names = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE].into_iter().cycle();
        for text in input.rest().split(|&b| b == b'\n') {
            let (name, field) = (names.next().expect("the iterator is endless"), field_value(text));
            if let Some(field) = field {
                headers.append(name, field);
            }
        }
        let outcome = evaluate_preconditions(&headers, tag, ContentDates::never_replaced(modified.cast_signed()));
        let has_any = |names: &[HeaderName]| names.iter().any(|name| headers.contains_key(name));
        assert!(outcome != PreconditionOutcome::Failed || has_any(&[IF_MATCH, IF_UNMODIFIED_SINCE]));
        assert!(outcome != PreconditionOutcome::NotModified || has_any(&[IF_NONE_MATCH, IF_MODIFIED_SINCE]));
        let has_tag = headers.get_all(IF_RANGE).iter().any(|field| field.as_bytes().trim_ascii() == tag.as_bytes());
        let is_match = if_range_matches(&headers, tag, Some(ContentDates::never_replaced(i64::MIN)));
        assert!(!is_match || has_tag || !headers.contains_key(IF_RANGE), "no date matches the earliest time");
        return;
    }
    let matches = add_tags(&mut input, &mut headers, &IF_MATCH, tag);
    let unmodified = add_date(&mut input, &mut headers, &IF_UNMODIFIED_SINCE, modified);
    let none_match = add_tags(&mut input, &mut headers, &IF_NONE_MATCH, tag);
    let since = add_date(&mut input, &mut headers, &IF_MODIFIED_SINCE, modified);

    let is_fulfilled = match (matches, unmodified) {
        (Some((is_strong_match, _)), _) => is_strong_match,
        (None, Some(date)) => modified <= date,
        (None, None) => true,
    };
    let is_modified = match (none_match, since) {
        (Some((_, is_weak_match)), _) => !is_weak_match,
        (None, Some(date)) => modified > date,
        (None, None) => true,
    };
    let expected = match (is_fulfilled, is_modified) {
        (false, _) => PreconditionOutcome::Failed,
        (true, false) => PreconditionOutcome::NotModified,
        (true, true) => PreconditionOutcome::Proceed,
    };
    assert_eq!(
        evaluate_preconditions(&headers, tag, ContentDates::never_replaced(modified.cast_signed())),
        expected,
        "{headers:?}, {tag} {modified}"
    );

    let (text, is_match) = match input.below(5) {
        0 => (tag.to_owned(), true),
        1 => (format!("W/{tag}"), false),
        2 => ("\"other\"".to_owned(), false),
        n => {
            let seconds = modified + input.below(2) as u64;
            (format_date(seconds, n - 3), seconds == modified)
        }
    };
    headers.insert(IF_RANGE, text.parse().expect("visible characters"));
    assert_eq!(
        if_range_matches(&headers, tag, Some(ContentDates::never_replaced(modified.cast_signed()))),
        is_match,
        "{text}, {tag} {modified}"
    );
}

/// Retry-After: seconds, dates by the server's clock (Date) or by the local clock, and any bytes.
pub fn retry_after(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let mut headers = HeaderMap::new();
    let (local_seconds, server_seconds) = (input.u64() % 2_840_000_000, input.u64() % 2_840_000_000);
    let now: SystemTime = UNIX_EPOCH + Duration::from_secs(local_seconds);
    let clock = if input.once_in(2) {
        headers.insert(DATE, format_date(server_seconds, input.below(3)).parse().expect("visible characters"));
        server_seconds
    } else {
        local_seconds
    };
    let expected = match input.below(4) {
        0 => {
            let text = format!("{}{}{}", random_space(&mut input), input.u64(), input.one_of(&["", "", "000", " "]));
            headers.insert(RETRY_AFTER, text.parse().expect("visible characters"));
            Some(text.trim().parse().unwrap_or(u64::MAX))
        }
        1 | 2 => {
            let retry_time = (clock + u64::from(input.u16())).saturating_sub(1000);
            headers.insert(RETRY_AFTER, format_date(retry_time, input.below(3)).parse().expect("visible characters"));
            Some(retry_time.saturating_sub(clock))
        }
        _ => {
            let Some(field) = field_value(input.rest()) else { return };
            let is_digits = !field.is_empty() && field.as_bytes().iter().all(u8::is_ascii_digit);
            let seconds = field.to_str().ok().filter(|_| is_digits);
            let expected = seconds.map(|text| text.parse().unwrap_or(u64::MAX));
            headers.insert(RETRY_AFTER, field);
            if expected.is_none() {
                // An invalid or unusual date: the wait is still limited.
                assert!(parse_retry_after(&headers, now).is_none_or(|wait| wait <= MAX_RETRY_AFTER));
                return;
            }
            expected
        }
    };
    let expected = expected.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    assert_eq!(parse_retry_after(&headers, now), expected, "{headers:?} at {local_seconds}");

    headers.remove(DATE);
    let status = input.one_of(&[429, 503, 500, 401, 409]);
    let error = RequestError::from_response(status, &headers, input.rest(), &SecretRedactor::default());
    let (mut attempts, mut retries) = (CallAttempts::default(), 0);
    while let Some(pause) = attempts.next_pause(CallKind::Read, &error, 0.0) {
        retries += 1;
        assert!(pause >= error.retry_after.unwrap_or_default() && pause <= MAX_SYNC_RETRY_AFTER, "{pause:?}");
    }
    assert!(retries < 5, "five attempts at most");
    assert!(retries == 0 || ![401, 409].contains(&status), "a refusal is final");
}
