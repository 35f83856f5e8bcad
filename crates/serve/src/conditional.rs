//! Conditional requests: evaluates preconditions in the order of RFC 9110, 13.2.2.

use http::HeaderMap;
use http::header::{HeaderName, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE};

use docwharf_base::clock::unix_seconds;

/// The outcome of evaluating the preconditions of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PreconditionOutcome {
    /// The request is answered as if it had no preconditions.
    Proceed,
    /// The response is 304 (Not Modified).
    NotModified,
    /// The response is 412 (Precondition Failed).
    Failed,
}

/// The dates of the content at a path, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContentDates {
    /// The date that Last-Modified has.
    pub modified: i64,
    /// When the path last led to other content, which may be newer: a rollback restores an earlier date. `None` if
    /// there never was other content.
    pub replaced: Option<i64>,
    /// When rules last led the path to another file, which may have the same date. Not later than `replaced`.
    pub rerouted: Option<i64>,
}

impl ContentDates {
    /// Creates the dates of content that was never replaced.
    pub fn never_replaced(modified: i64) -> ContentDates {
        ContentDates { modified, replaced: None, rerouted: None }
    }

    /// Returns whether a copy with this date is still current (RFC 9110, 13.1.3). An earlier date than `modified`
    /// belongs to other content. A later date may belong to the content before a rollback, so it counts only if it is
    /// later than the last replacement. `modified` itself belongs to one content of one file, so it counts unless rules
    /// have led the path to another file.
    fn is_unchanged_since(self, since: i64) -> bool {
        let changed = if since == self.modified { self.rerouted } else { self.replaced };
        since >= self.modified && changed.is_none_or(|second| since > second)
    }

    /// Returns whether the date is a strong validator (RFC 9110, 8.8.2.2): no other bytes can have been sent under it.
    fn is_strong(self) -> bool {
        self.replaced.is_none_or(|replaced| self.modified > replaced)
    }
}

/// Evaluates the preconditions of a GET or HEAD request against the selected representation: its strong entity tag,
/// quotes included, and its date.
pub fn evaluate_preconditions(headers: &HeaderMap, tag: &str, dates: ContentDates) -> PreconditionOutcome {
    if headers.contains_key(IF_MATCH) {
        if !matches_any(headers, &IF_MATCH, tag, false) {
            return PreconditionOutcome::Failed;
        }
    } else if parse_single_date(headers, &IF_UNMODIFIED_SINCE).is_some_and(|since| !dates.is_unchanged_since(since)) {
        return PreconditionOutcome::Failed;
    }
    if headers.contains_key(IF_NONE_MATCH) {
        if matches_any(headers, &IF_NONE_MATCH, tag, true) {
            return PreconditionOutcome::NotModified;
        }
    } else if parse_single_date(headers, &IF_MODIFIED_SINCE).is_some_and(|since| dates.is_unchanged_since(since)) {
        return PreconditionOutcome::NotModified;
    }
    PreconditionOutcome::Proceed
}

/// Evaluates the preconditions of a GET or HEAD request against a representation that has an entity tag and no date.
/// Preconditions with a date are ignored (RFC 9110, 13.1.3 and 13.1.4).
pub(super) fn evaluate_tag_preconditions(headers: &HeaderMap, tag: &str) -> PreconditionOutcome {
    if headers.contains_key(IF_MATCH) && !matches_any(headers, &IF_MATCH, tag, false) {
        return PreconditionOutcome::Failed;
    }
    if matches_none_match(headers, tag) { PreconditionOutcome::NotModified } else { PreconditionOutcome::Proceed }
}

/// Returns whether If-Match forbids a response whose entity tag is weak. It compares strongly (RFC 9110, 13.1.1), so
/// only `*` matches such a response.
pub(super) fn fails_match_of_weak_tag(headers: &HeaderMap) -> bool {
    headers.contains_key(IF_MATCH) && !matches_any(headers, &IF_MATCH, "", false)
}

/// Returns whether If-None-Match names an entity tag, by the weak comparison. `tag` has quotes and no `W/`.
pub(super) fn matches_none_match(headers: &HeaderMap, tag: &str) -> bool {
    matches_any(headers, &IF_NONE_MATCH, tag, true)
}

/// Returns whether the Range field of a request applies (RFC 9110, 13.1.5): the request has no If-Range, or If-Range
/// names exactly the representation that would be sent. All codings of a file share its date, so `dates` is `None` if
/// the date does not identify the coding that would be sent. A date must also be a strong validator.
pub fn if_range_matches(headers: &HeaderMap, tag: &str, dates: Option<ContentDates>) -> bool {
    let mut fields = headers.get_all(IF_RANGE).iter();
    match (fields.next().map(|field| field.to_str()), fields.next()) {
        (None, _) => true,
        (Some(Ok(value)), None) => {
            let value = value.trim();
            let is_date = || !value.starts_with('"') && !value.starts_with("W/");
            let dates = dates.filter(|dates| dates.is_strong());
            value == tag || (is_date() && dates.is_some_and(|dates| parse_date(value) == Some(dates.modified)))
        }
        _ => false,
    }
}

/// Parses a field with one date. Several fields, or a date that does not parse, count as none.
fn parse_single_date(headers: &HeaderMap, name: &HeaderName) -> Option<i64> {
    let mut fields = headers.get_all(name).iter();
    let first = fields.next()?;
    if fields.next().is_some() {
        return None;
    }
    parse_date(first.to_str().ok()?.trim())
}

fn parse_date(value: &str) -> Option<i64> {
    httpdate::parse_http_date(value).ok().map(unix_seconds)
}

/// Returns whether a list of entity tags, or `*`, matches `tag`. With `weak`, uses the weak comparison, which ignores
/// `W/` (RFC 9110, 8.8.3.2).
fn matches_any(headers: &HeaderMap, name: &HeaderName, tag: &str, weak: bool) -> bool {
    headers.get_all(name).iter().filter_map(|field| field.to_str().ok()).any(|field| {
        let mut rest = field.trim();
        if rest == "*" {
            return true;
        }
        while !rest.is_empty() {
            rest = rest.trim_start_matches([',', ' ', '\t']);
            let (is_weak, opaque) = match rest.strip_prefix("W/") {
                Some(opaque) => (true, opaque),
                None => (false, rest),
            };
            // A tag may contain commas; it ends at its closing quote.
            let Some(end) = opaque.strip_prefix('"').and_then(|inner| inner.find('"')) else {
                return false;
            };
            let (candidate, next) = opaque.split_at(end + 2);
            if candidate == tag && (weak || !is_weak) {
                return true;
            }
            rest = next;
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: &str = "\"abc\"";
    const NOON: i64 = 1_000_000_000; // Sun, 09 Sep 2001 01:46:40 GMT

    /// Evaluates the preconditions in these fields.
    fn evaluate(fields: &[(HeaderName, &str)]) -> PreconditionOutcome {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(name.clone(), value.parse().unwrap());
        }
        evaluate_preconditions(&headers, TAG, ContentDates::never_replaced(NOON))
    }

    #[test]
    fn if_none_match_takes_precedence_over_if_modified_since() {
        let old = (IF_MODIFIED_SINCE, "Sun, 09 Sep 2001 01:46:39 GMT");
        let same = (IF_MODIFIED_SINCE, "Sun, 09 Sep 2001 01:46:40 GMT");
        assert_eq!(evaluate(std::slice::from_ref(&same)), PreconditionOutcome::NotModified);
        assert_eq!(evaluate(std::slice::from_ref(&old)), PreconditionOutcome::Proceed);
        assert_eq!(evaluate(&[same, (IF_NONE_MATCH, "\"other\"")]), PreconditionOutcome::Proceed);
        assert_eq!(evaluate(&[old, (IF_NONE_MATCH, "W/\"abc\"")]), PreconditionOutcome::NotModified);
        assert_eq!(evaluate(&[(IF_MODIFIED_SINCE, "yesterday")]), PreconditionOutcome::Proceed);
    }

    #[test]
    fn if_none_match_accepts_lists_wildcards_and_commas_inside_tags() {
        for list in ["*", "\"x\", \"abc\"", "\"a,b\",W/\"abc\"", " \"abc\" "] {
            assert_eq!(evaluate(&[(IF_NONE_MATCH, list)]), PreconditionOutcome::NotModified, "{list}");
        }
        for list in ["abc", "\"abc", "\"x\", \"y\"", "\"abc\"x"] {
            let expected =
                if list == "\"abc\"x" { PreconditionOutcome::NotModified } else { PreconditionOutcome::Proceed };
            assert_eq!(evaluate(&[(IF_NONE_MATCH, list)]), expected, "{list}");
        }
    }

    #[test]
    fn a_condition_date_before_a_content_change_must_equal_last_modified() {
        let at =
            |seconds: u64| httpdate::fmt_http_date(std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds));
        let noon = NOON.cast_unsigned();
        let dates = ContentDates { modified: NOON, replaced: Some(NOON + 100), rerouted: None };
        for (since, is_same) in [(0, true), (1, false), (99, false), (100, false), (101, true), (1000, true)] {
            let mut headers = HeaderMap::new();
            headers.insert(IF_MODIFIED_SINCE, at(noon + since).parse().unwrap());
            let expected = if is_same { PreconditionOutcome::NotModified } else { PreconditionOutcome::Proceed };
            assert_eq!(evaluate_preconditions(&headers, TAG, dates), expected, "modified since +{since}");
            headers.clear();
            headers.insert(IF_UNMODIFIED_SINCE, at(noon + since).parse().unwrap());
            let expected = if is_same { PreconditionOutcome::Proceed } else { PreconditionOutcome::Failed };
            assert_eq!(evaluate_preconditions(&headers, TAG, dates), expected, "unmodified since +{since}");
        }
        let mut headers = HeaderMap::new();
        headers.insert(IF_MODIFIED_SINCE, at(noon).parse().unwrap());
        for (rerouted, expected) in [
            (-1, PreconditionOutcome::NotModified),
            (0, PreconditionOutcome::Proceed),
            (100, PreconditionOutcome::Proceed),
        ] {
            let dates = ContentDates { rerouted: Some(NOON + rerouted), ..dates };
            assert_eq!(evaluate_preconditions(&headers, TAG, dates), expected, "another file since +{rerouted}");
        }
    }

    #[test]
    fn an_if_range_date_matches_only_if_no_other_content_had_that_date() {
        let mut headers = HeaderMap::new();
        headers.insert(IF_RANGE, "Sun, 09 Sep 2001 01:46:40 GMT".parse().unwrap());
        assert!(if_range_matches(&headers, TAG, Some(ContentDates::never_replaced(NOON))));
        assert!(if_range_matches(
            &headers,
            TAG,
            Some(ContentDates { replaced: Some(NOON - 1), ..ContentDates::never_replaced(NOON) })
        ));
        assert!(!if_range_matches(
            &headers,
            TAG,
            Some(ContentDates { replaced: Some(NOON), ..ContentDates::never_replaced(NOON) })
        ));
        assert!(!if_range_matches(&headers, TAG, Some(ContentDates::never_replaced(NOON + 1))));
        assert!(!if_range_matches(&headers, TAG, None), "the file has several codings");
        headers.insert(IF_RANGE, TAG.parse().unwrap());
        assert!(if_range_matches(&headers, TAG, None));
    }

    #[test]
    fn if_match_and_if_unmodified_since_fail_when_the_file_differs() {
        assert_eq!(evaluate(&[(IF_MATCH, "\"x\"")]), PreconditionOutcome::Failed);
        assert_eq!(evaluate(&[(IF_MATCH, "W/\"abc\"")]), PreconditionOutcome::Failed, "If-Match compares strongly");
        assert_eq!(evaluate(&[(IF_MATCH, "\"abc\"")]), PreconditionOutcome::Proceed);
        assert_eq!(evaluate(&[(IF_UNMODIFIED_SINCE, "Sun, 09 Sep 2001 01:46:39 GMT")]), PreconditionOutcome::Failed);
        assert_eq!(evaluate(&[(IF_UNMODIFIED_SINCE, "soon")]), PreconditionOutcome::Proceed);
        assert_eq!(
            evaluate(&[(IF_MATCH, "\"abc\""), (IF_UNMODIFIED_SINCE, "Sun, 09 Sep 2001 01:46:39 GMT")]),
            PreconditionOutcome::Proceed
        );
    }

    #[test]
    fn conditions_with_a_date_are_ignored_for_a_representation_without_one() {
        for (fields, expected) in [
            (&[(IF_MODIFIED_SINCE, "Fri, 31 Dec 9999 23:59:59 GMT")][..], PreconditionOutcome::Proceed),
            (&[(IF_UNMODIFIED_SINCE, "Thu, 01 Jan 1970 00:00:00 GMT")], PreconditionOutcome::Proceed),
            (&[(IF_NONE_MATCH, "W/\"abc\"")], PreconditionOutcome::NotModified),
            (&[(IF_NONE_MATCH, "\"x\", *")], PreconditionOutcome::Proceed),
            (&[(IF_NONE_MATCH, "*")], PreconditionOutcome::NotModified),
            (&[(IF_MATCH, "\"abc\"")], PreconditionOutcome::Proceed),
            (&[(IF_MATCH, "W/\"abc\"")], PreconditionOutcome::Failed),
            (&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, TAG)], PreconditionOutcome::Failed),
            (&[], PreconditionOutcome::Proceed),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in fields {
                headers.append(name.clone(), value.parse().unwrap());
            }
            assert_eq!(evaluate_tag_preconditions(&headers, TAG), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_repeated_condition_field_is_ignored_unless_it_is_a_list() {
        let (old, same) = ("Sun, 09 Sep 2001 01:46:39 GMT", "Sun, 09 Sep 2001 01:46:40 GMT");
        for (fields, expected) in [
            (&[(IF_MODIFIED_SINCE, same), (IF_MODIFIED_SINCE, same)][..], PreconditionOutcome::Proceed),
            (&[(IF_UNMODIFIED_SINCE, old), (IF_UNMODIFIED_SINCE, old)], PreconditionOutcome::Proceed),
            (&[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, TAG)], PreconditionOutcome::NotModified),
            (&[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "*")], PreconditionOutcome::NotModified),
            (&[(IF_NONE_MATCH, "\"x\""), (IF_NONE_MATCH, "\"y\"")], PreconditionOutcome::Proceed),
            (&[(IF_NONE_MATCH, "\"x"), (IF_NONE_MATCH, TAG)], PreconditionOutcome::NotModified),
            (&[(IF_MATCH, "\"x\""), (IF_MATCH, TAG)], PreconditionOutcome::Proceed),
            (&[(IF_MATCH, "W/\"abc\", \"abc\"")], PreconditionOutcome::Proceed),
            (&[(IF_MATCH, "*")], PreconditionOutcome::Proceed),
            (&[(IF_MATCH, "")], PreconditionOutcome::Failed),
            (&[(IF_NONE_MATCH, "")], PreconditionOutcome::Proceed),
            (&[(IF_UNMODIFIED_SINCE, same)], PreconditionOutcome::Proceed),
            // If-Match and If-Unmodified-Since are evaluated before If-None-Match and If-Modified-Since.
            (&[(IF_MATCH, TAG), (IF_NONE_MATCH, TAG)], PreconditionOutcome::NotModified),
            (&[(IF_MATCH, "\"x\""), (IF_NONE_MATCH, TAG)], PreconditionOutcome::Failed),
            (&[(IF_UNMODIFIED_SINCE, old), (IF_MODIFIED_SINCE, same)], PreconditionOutcome::Failed),
            (&[(IF_UNMODIFIED_SINCE, same), (IF_MODIFIED_SINCE, same)], PreconditionOutcome::NotModified),
            (&[(IF_MATCH, TAG), (IF_MODIFIED_SINCE, same)], PreconditionOutcome::NotModified),
            (&[(IF_UNMODIFIED_SINCE, old), (IF_NONE_MATCH, TAG)], PreconditionOutcome::Failed),
        ] {
            assert_eq!(evaluate(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn if_range_matches_only_one_strong_tag_or_exact_date() {
        let same = "Sun, 09 Sep 2001 01:46:40 GMT";
        let strong_date = Some(ContentDates { replaced: Some(NOON - 1), ..ContentDates::never_replaced(NOON) });
        let weak_date = Some(ContentDates { replaced: Some(NOON + 1), ..ContentDates::never_replaced(NOON) });
        for (values, dates, expected) in [
            (&[][..], None, true),
            (&[TAG], None, true),
            (&[" \"abc\" "], strong_date, true),
            (&["W/\"abc\""], strong_date, false),
            (&["\"x\""], strong_date, false),
            (&["*"], strong_date, false),
            (&["\"x\", \"abc\""], strong_date, false),
            (&[TAG, TAG], strong_date, false),
            (&[same], strong_date, true),
            (&[same], weak_date, false),
            (&[same], None, false),
            (&[same, same], strong_date, false),
            (&["Sun, 09 Sep 2001 01:46:41 GMT"], strong_date, false),
            (&["Sun, 09 Sep 2001 01:46:39 GMT"], strong_date, false),
            (&[""], strong_date, false),
        ] {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(IF_RANGE, value.parse().unwrap());
            }
            assert_eq!(if_range_matches(&headers, TAG, dates), expected, "{values:?} of {dates:?}");
        }
    }
}
