//! Fields of requests and answers: Range, Accept-Encoding, the conditional ones, Retry-After. What a well-formed field
//! means is known from what it was made of; what any bytes mean, from a model that counts on its fingers.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use docwharf::base::secret::Scrubber;
use docwharf::codec::content_coding::ContentCoding;
use docwharf::net::request_error::{MAX_RETRY_AFTER, RequestError, retry_after as wait_of};
use docwharf::net::retry::{CallAttempts, CallKind, MAX_SYNC_RETRY_AFTER};
use docwharf::serve::byte_range::{MAX_RANGES, RequestedRange, parse_range};
use docwharf::serve::conditional::{ContentDates, PreconditionOutcome, evaluate_preconditions, if_range_matches};
use docwharf::serve::negotiate::{AcceptedCodings, ResponseForm, prefers_markdown};
use http::header::{
    ACCEPT, ACCEPT_ENCODING, DATE, HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE,
    IF_UNMODIFIED_SINCE, RANGE, RETRY_AFTER,
};
use http::{HeaderMap, HeaderValue};

use super::recipe::Recipe;

/// White space that may stand between the parts of a list.
fn space(recipe: &mut Recipe<'_>) -> &'static str {
    recipe.one_of(&["", "", "", " ", "\t", "  "])
}

fn value(bytes: &[u8]) -> Option<HeaderValue> {
    HeaderValue::from_bytes(bytes).ok()
}

/// Range: any bytes, or a list of ranges, of a body of up to 300 bytes.
pub fn range(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let len = u64::from(recipe.short() % 301);
    let text = if recipe.once_in(2) {
        recipe.rest().to_vec()
    } else {
        let mut specs = Vec::new();
        for _ in 0..recipe.below(20) {
            let number = |recipe: &mut Recipe<'_>| match recipe.below(8) {
                0 => String::new(),
                1 => recipe.long().to_string(),
                2 => "9".repeat(25),
                _ => (recipe.short() % 310).to_string(),
            };
            let (first, last) = (number(&mut recipe), number(&mut recipe));
            specs.push(format!("{}{first}-{last}{}", space(&mut recipe), space(&mut recipe)));
        }
        format!("{}={}", recipe.one_of(&["bytes", "bytes", "bytes", "Bytes", "lines"]), specs.join(",")).into_bytes()
    };
    let Some(field) = value(&text) else { return };
    let mut headers = HeaderMap::new();
    headers.insert(RANGE, field.clone());
    let part = parse_range(&headers, len);
    assert_eq!(part, by_fingers(&text, len), "{:?} of {len}", String::from_utf8_lossy(&text));
    let inside = |&(from, to): &(u64, u64)| from < to && to <= len;
    match &part {
        RequestedRange::Slice(from, to) => assert!(inside(&(*from, *to))),
        RequestedRange::Slices(slices) => {
            assert!(slices.len() > 1 && slices.len() <= MAX_RANGES && slices.iter().all(inside));
        }
        RequestedRange::Whole | RequestedRange::NotSatisfiable => {}
    }
    headers.append(RANGE, field);
    assert_eq!(parse_range(&headers, len), RequestedRange::Whole, "two fields");
    // A body of any length: nothing overflows.
    let part = parse_range(&headers, u64::MAX);
    assert_eq!(part, RequestedRange::Whole);
}

/// The bytes that each range names, counted out one by one.
fn by_fingers(text: &[u8], len: u64) -> RequestedRange {
    let Some(text) = std::str::from_utf8(text).ok().filter(|text| text.is_ascii() && !text.contains('\x7f')) else {
        return RequestedRange::Whole;
    };
    let Some((unit, list)) = text.split_once('=') else { return RequestedRange::Whole };
    if unit.trim().to_lowercase() != "bytes" {
        return RequestedRange::Whole;
    }
    let mut named: Vec<BTreeSet<u64>> = Vec::new();
    let mut count = 0;
    for spec in list.split(',') {
        if spec.trim().is_empty() {
            continue;
        }
        count += 1;
        let Some((first, last)) = spec.split_once('-') else { return RequestedRange::Whole };
        let (first, last) = (first.trim(), last.trim());
        let digits = |text: &str| text.chars().all(|c| c.is_ascii_digit());
        if !digits(first) || !digits(last) || (first.is_empty() && last.is_empty()) {
            return RequestedRange::Whole;
        }
        // More digits than these are more than any body.
        let number = |text: &str| text.parse::<u128>().unwrap_or(u128::MAX).min(u128::from(u64::MAX));
        let of: BTreeSet<u64> = if first.is_empty() {
            (0..len).filter(|&at| u128::from(len - at) <= number(last)).collect()
        } else if last.is_empty() {
            (0..len).filter(|&at| u128::from(at) >= number(first)).collect()
        } else if number(last) < number(first) {
            return RequestedRange::Whole;
        } else {
            (0..len).filter(|&at| u128::from(at) >= number(first) && u128::from(at) <= number(last)).collect()
        };
        if !of.is_empty() {
            named.push(of);
        }
    }
    for (at, one) in named.iter().enumerate() {
        if named[..at].iter().any(|other| !one.is_disjoint(other)) {
            return RequestedRange::Whole;
        }
    }
    let slice = |set: &BTreeSet<u64>| (*set.first().expect("not empty"), set.last().expect("not empty") + 1);
    match named.len() {
        0 if count == 0 => RequestedRange::Whole,
        0 => RequestedRange::NotSatisfiable,
        1 => RequestedRange::Slice(slice(&named[0]).0, slice(&named[0]).1),
        2..=MAX_RANGES => RequestedRange::Slices(named.iter().map(slice).collect()),
        _ => RequestedRange::Whole,
    }
}

/// Accept-Encoding: any bytes, or a list of codings with weights.
pub fn accept_encoding(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let mut headers = HeaderMap::new();
    if recipe.once_in(3) {
        let text = recipe.rest();
        for field in text.split(|&b| b == b'\n').filter_map(value) {
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
    let (mut gzip, mut brotli, mut zstd, mut identity, mut any) = (None, None, None, None, None);
    for _ in 0..recipe.below(3) {
        let mut items = Vec::new();
        for _ in 0..recipe.below(5) {
            let coding = recipe.one_of(&["gzip", "identity", "*", "x-gzip", "br", "deflate", "zstd", "gzip2", ""]);
            let weight = recipe.short() % 1001;
            let written = match recipe.below(4) {
                0 => None,
                1 if weight == 1000 => Some("1".to_owned()),
                2 if weight.is_multiple_of(100) => Some(format!("{}.{}", weight / 1000, weight / 100 % 10)),
                3 if weight == 0 => Some("0.".to_owned()),
                _ => Some(format!("{}.{:03}", weight / 1000, weight % 1000)),
            };
            let weight = if written.is_some() { weight } else { 1000 };
            match coding {
                "gzip" | "x-gzip" => gzip = Some(weight),
                "br" => brotli = Some(weight),
                "zstd" => zstd = Some(weight),
                "identity" => identity = Some(weight),
                "*" => any = Some(weight),
                _ => {}
            }
            let coding = if recipe.once_in(3) { coding.to_uppercase() } else { coding.to_owned() };
            let q = recipe.one_of(&["q", "Q"]);
            let written = written
                .map_or(String::new(), |weight| format!("{};{}{q}={weight}", space(&mut recipe), space(&mut recipe)));
            items.push(format!("{}{coding}{written}{}", space(&mut recipe), space(&mut recipe)));
        }
        headers.append(ACCEPT_ENCODING, items.join(",").parse().expect("visible characters"));
    }
    // RFC 9110, 12.5.3: what is not named is covered by `*`; without any weight above 0 a coding is not sent. Which it shall
    // be where several are welcome with the same weight is ours: the smallest, identity only where it is named with a
    // higher weight.
    let (small, smaller) = (recipe.below(3) as u64, recipe.below(3) as u64);
    let len = |coding: ContentCoding| match coding {
        ContentCoding::Brotli => Some(small).filter(|len| *len > 0),
        ContentCoding::Zstd => Some(smaller).filter(|len| *len > 0),
    };
    let offers = [
        (gzip, Some(2), ResponseForm::Gzip),
        (brotli, len(ContentCoding::Brotli), ResponseForm::Dense(ContentCoding::Brotli)),
        (zstd, len(ContentCoding::Zstd), ResponseForm::Dense(ContentCoding::Zstd)),
    ];
    let mut expected = (0, u64::MAX, ResponseForm::Identity);
    for (named, len, form) in offers {
        let weight = named.or(any).unwrap_or(0);
        let Some(len) = len.filter(|_| weight > 0) else { continue };
        if weight > expected.0 || (weight == expected.0 && len < expected.1) {
            expected = (weight, len, form);
        }
    }
    let expected = if expected.0 < identity.unwrap_or(0) { ResponseForm::Identity } else { expected.2 };
    assert_eq!(AcceptedCodings::parse(&headers).choose(2, len), expected, "{headers:?}");
}

/// One date in one of the three forms that HTTP has (RFC 9110, 5.6.7).
fn date(seconds: u64, form: usize) -> String {
    let fixed = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(seconds));
    let [name, day, month, year, time] =
        fixed.split([',', ' ']).filter(|part| !part.is_empty()).collect::<Vec<_>>()[..5]
    else {
        unreachable!("a date has five parts and a zone");
    };
    match form {
        1 => {
            let long = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
            let long = long.iter().find(|long| long.starts_with(name)).expect("a day of the week");
            format!("{long}, {day}-{month}-{} {time} GMT", &year[2..])
        }
        2 => format!("{name} {month} {:>2} {time} {year}", day.trim_start_matches('0')),
        _ => fixed,
    }
}

/// A date field: nothing, a date, what is none, or two.
fn put_date(recipe: &mut Recipe<'_>, headers: &mut HeaderMap, name: &HeaderName, modified: u64) -> Option<u64> {
    let at = (modified + 3).saturating_sub(recipe.below(7) as u64);
    let text = date(at, recipe.below(3));
    let parsed = |text: &str| value(text.as_bytes()).expect("visible characters");
    match recipe.below(6) {
        0 => None,
        1 => {
            if let Some(field) = value(recipe.bytes(20)).filter(|field| field.to_str().is_ok_and(|t| t.len() < 20)) {
                headers.append(name, field);
            }
            // Nothing so short is a date.
            None
        }
        2 => {
            headers.append(name, parsed(&text));
            headers.append(name, parsed(&text));
            None
        }
        _ => {
            headers.append(name, parsed(&text));
            Some(at)
        }
    }
}

/// A field of entity tags: nothing, `*`, or lists in which ours may be. Gives whether ours is in it, strongly and weakly.
fn put_tags(recipe: &mut Recipe<'_>, headers: &mut HeaderMap, name: &HeaderName, tag: &str) -> Option<(bool, bool)> {
    let (mut strong, mut weak) = (false, false);
    match recipe.below(4) {
        0 => return None,
        1 => {
            headers.append(name, HeaderValue::from_static("*"));
            return Some((true, true));
        }
        _ => {}
    }
    for _ in 0..=recipe.below(2) {
        let mut items = Vec::new();
        for _ in 0..=recipe.below(3) {
            let opaque = recipe.one_of(&[tag, "\"\"", "\"a,b\"", "\"W/\"", "\"abc-g\"", "\"ab\"", "\"*\""]);
            let is_weak = recipe.once_in(2);
            strong |= opaque == tag && !is_weak;
            weak |= opaque == tag;
            items.push(format!("{}{}{opaque}{}", space(recipe), if is_weak { "W/" } else { "" }, space(recipe)));
        }
        headers.append(name, items.join(",").parse().expect("visible characters"));
    }
    Some((strong, weak))
}

/// Preconditions by the table of RFC 9110, 13.2.2.
pub fn conditional(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let tag = recipe.one_of(&["\"abc\"", "\"0123456789abcdef-g89abcdef\""]);
    // From 1970 to 2060: the years of the old form with two digits are the nearest ones.
    let modified = recipe.long() % 2_840_000_000;
    let mut headers = HeaderMap::new();
    if recipe.once_in(4) {
        let mut names = [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE].into_iter().cycle();
        for text in recipe.rest().split(|&b| b == b'\n') {
            let (name, field) = (names.next().expect("without end"), value(text));
            if let Some(field) = field {
                headers.append(name, field);
            }
        }
        let verdict = evaluate_preconditions(&headers, tag, ContentDates::never_replaced(modified.cast_signed()));
        let any = |names: &[HeaderName]| names.iter().any(|name| headers.contains_key(name));
        assert!(verdict != PreconditionOutcome::Failed || any(&[IF_MATCH, IF_UNMODIFIED_SINCE]));
        assert!(verdict != PreconditionOutcome::NotModified || any(&[IF_NONE_MATCH, IF_MODIFIED_SINCE]));
        let named = headers.get_all(IF_RANGE).iter().any(|field| field.as_bytes().trim_ascii() == tag.as_bytes());
        let holds = if_range_matches(&headers, tag, Some(ContentDates::never_replaced(i64::MIN)));
        assert!(!holds || named || !headers.contains_key(IF_RANGE), "no date is before all time");
        return;
    }
    let matches = put_tags(&mut recipe, &mut headers, &IF_MATCH, tag);
    let unmodified = put_date(&mut recipe, &mut headers, &IF_UNMODIFIED_SINCE, modified);
    let none_match = put_tags(&mut recipe, &mut headers, &IF_NONE_MATCH, tag);
    let since = put_date(&mut recipe, &mut headers, &IF_MODIFIED_SINCE, modified);

    let first = match (matches, unmodified) {
        (Some((strong, _)), _) => strong,
        (None, Some(at)) => modified <= at,
        (None, None) => true,
    };
    let second = match (none_match, since) {
        (Some((_, weak)), _) => !weak,
        (None, Some(at)) => modified > at,
        (None, None) => true,
    };
    let expected = match (first, second) {
        (false, _) => PreconditionOutcome::Failed,
        (true, false) => PreconditionOutcome::NotModified,
        (true, true) => PreconditionOutcome::Proceed,
    };
    assert_eq!(
        evaluate_preconditions(&headers, tag, ContentDates::never_replaced(modified.cast_signed())),
        expected,
        "{headers:?}, {tag} {modified}"
    );

    let (text, holds) = match recipe.below(5) {
        0 => (tag.to_owned(), true),
        1 => (format!("W/{tag}"), false),
        2 => ("\"other\"".to_owned(), false),
        n => {
            let at = modified + recipe.below(2) as u64;
            (date(at, n - 3), at == modified)
        }
    };
    headers.insert(IF_RANGE, text.parse().expect("visible characters"));
    assert_eq!(
        if_range_matches(&headers, tag, Some(ContentDates::never_replaced(modified.cast_signed()))),
        holds,
        "{text}, {tag} {modified}"
    );
}

/// Retry-After: seconds, dates by the server's clock or ours, and any bytes.
pub fn retry_after(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let mut headers = HeaderMap::new();
    let second = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
    let (ours, theirs) = (recipe.long() % 2_840_000_000, recipe.long() % 2_840_000_000);
    let now: SystemTime = second(ours);
    let clock = if recipe.once_in(2) {
        headers.insert(DATE, date(theirs, recipe.below(3)).parse().expect("visible characters"));
        theirs
    } else {
        ours
    };
    let expected = match recipe.below(4) {
        0 => {
            let text = format!("{}{}{}", space(&mut recipe), recipe.long(), recipe.one_of(&["", "", "000", " "]));
            headers.insert(RETRY_AFTER, text.parse().expect("visible characters"));
            Some(text.trim().parse().unwrap_or(u64::MAX))
        }
        1 | 2 => {
            let at = (clock + u64::from(recipe.short())).saturating_sub(1000);
            headers.insert(RETRY_AFTER, date(at, recipe.below(3)).parse().expect("visible characters"));
            Some(at.saturating_sub(clock))
        }
        _ => {
            let Some(field) = value(recipe.rest()) else { return };
            let is_digits = !field.is_empty() && field.as_bytes().iter().all(u8::is_ascii_digit);
            let seconds = field.to_str().ok().filter(|_| is_digits);
            let expected = seconds.map(|text| text.parse().unwrap_or(u64::MAX));
            headers.insert(RETRY_AFTER, field);
            if expected.is_none() {
                // Whatever it is, it is bounded.
                assert!(wait_of(&headers, now).is_none_or(|wait| wait <= MAX_RETRY_AFTER));
                return;
            }
            expected
        }
    };
    let expected = expected.map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    assert_eq!(wait_of(&headers, now), expected, "{headers:?} at {ours}");

    headers.remove(DATE);
    let status = recipe.one_of(&[429, 503, 500, 401, 409]);
    let trouble = RequestError::from_answer(status, &headers, recipe.rest(), &Scrubber::default());
    let (mut attempts, mut made) = (CallAttempts::default(), 0);
    while let Some(pause) = attempts.next_pause(CallKind::Read, &trouble, 0.0) {
        made += 1;
        assert!(pause >= trouble.retry_after.unwrap_or_default() && pause <= MAX_SYNC_RETRY_AFTER, "{pause:?}");
    }
    assert!(made < 5, "five attempts at most");
    assert!(made == 0 || ![401, 409].contains(&status), "a refusal is final");
}
