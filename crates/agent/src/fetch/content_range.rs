//! `Content-Range` of a 206 (RFC 9110 section 14.4).

use http::HeaderMap;
use http::header::CONTENT_RANGE;

/// The range of a 206 response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    first: u64,
    last: u64,
    total: Option<u64>,
}

impl ContentRange {
    /// Parses `bytes 5-9/10` or `bytes 5-9/*`.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<ContentRange> {
        let text = headers.get(CONTENT_RANGE)?.to_str().ok()?;
        let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let total = if total == "*" { None } else { Some(total.parse().ok()?) };
        let range = ContentRange { first: first.parse().ok()?, last: last.parse().ok()?, total };
        (range.first <= range.last && range.total.is_none_or(|total| range.last < total)).then_some(range)
    }

    /// Whether the range is the rest of a file of which `received` bytes have arrived.
    pub(super) fn continues(self, received: u64, total: Option<u64>) -> bool {
        let same_total = self.total.is_none() || total.is_none() || self.total == total;
        self.first == received
            && same_total
            && self.total.or(total).is_none_or(|total| self.last.checked_add(1) == Some(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<ContentRange> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_RANGE, text.parse().unwrap());
        ContentRange::from_headers(&headers)
    }

    #[test]
    fn content_range_continues_a_file_only_with_its_exact_rest() {
        assert!(parse("bytes 5-9/10").unwrap().continues(5, Some(10)));
        assert!(parse("bytes 5-9/*").unwrap().continues(5, Some(10)));
        assert!(parse("bytes 5-9/10").unwrap().continues(5, None));
        assert!(!parse("bytes 4-9/10").unwrap().continues(5, Some(10)), "another first byte");
        assert!(!parse("bytes 5-8/10").unwrap().continues(5, Some(10)), "not the complete rest");
        assert!(!parse("bytes 5-10/11").unwrap().continues(5, Some(10)), "another file");
        for wrong in ["bytes 9-5/10", "bytes 5-10/10", "bytes */10", "items 5-9/10", "bytes 5-9", "bytes -1-9/10"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    // Regression: a `Content-Range` that ended at 2^64-1 overflowed.
    #[test]
    fn content_range_is_checked_against_received_bytes_and_known_total() {
        for (text, received, total, continues) in [
            ("bytes 0-0/1", 0, Some(1), true),
            ("bytes 9-9/10", 9, Some(10), true),
            (" bytes 9-9/10 ", 9, None, true),
            ("bytes 9-9/10", 8, Some(10), false),
            ("bytes 9-9/10", 10, Some(10), false),
            ("bytes 5-8/10", 5, None, false),
            ("bytes 5-9/10", 5, Some(9), false),
            ("bytes 5-9/10", 5, Some(11), false),
            ("bytes 5-9/*", 5, Some(11), false),
            ("bytes 5-9/*", 5, Some(9), false),
            ("bytes 5-9/*", 5, None, true),
            ("bytes 6-9/*", 5, None, false),
            ("bytes 5-18446744073709551615/*", 5, Some(10), false),
            ("bytes 5-18446744073709551615/*", 5, None, true),
        ] {
            assert_eq!(
                parse(text).unwrap().continues(received, total),
                continues,
                "{text} after {received} of {total:?}"
            );
        }
        for wrong in
            ["", "bytes", "bytes=5-9/10", "bytes 5-/10", "bytes 5-9/", "bytes 5-9/x", "bytes 5-9/9", "bytes 6-5/*"]
        {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(ContentRange::from_headers(&HeaderMap::new()), None);
    }
}
