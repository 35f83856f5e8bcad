//! Byte range requests (RFC 9110, 14): one range, or a list of a few that do not overlap.

use http::HeaderMap;
use http::header::RANGE;

/// The largest number of ranges. A longer list is answered with the whole representation, because its only purpose is
/// to cause work.
pub const MAX_RANGES: usize = 16;

/// The requested part of a representation. A slice is given by its first offset and the offset after its last byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedRange {
    /// The whole representation.
    Whole,
    /// One slice.
    Single(u64, u64),
    /// At least two and at most [`MAX_RANGES`] slices, in the order of the request. They do not overlap.
    Multiple(Vec<(u64, u64)>),
    /// No requested byte exists; the response is 416.
    NotSatisfiable,
}

/// Parses the Range field for a representation of `len` bytes. A field that is invalid or unknown is ignored, as the
/// RFC requires.
pub fn parse_range(headers: &HeaderMap, len: u64) -> RequestedRange {
    let mut fields = headers.get_all(RANGE).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return RequestedRange::Whole;
    };
    let Some(set) = field.to_str().ok().and_then(strip_bytes_unit) else {
        return RequestedRange::Whole;
    };
    let mut slices: Vec<(u64, u64)> = Vec::new();
    let mut is_empty = true;
    // Empty list elements are ignored (RFC 9110, 5.6.1.2).
    for spec in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        is_empty = false;
        match parse_range_spec(spec, len) {
            Err(InvalidRange) => return RequestedRange::Whole,
            Ok(None) => {}
            Ok(Some((start, end))) => {
                let overlaps = slices.iter().any(|&(from, to)| start < to && from < end);
                if overlaps || slices.len() == MAX_RANGES {
                    return RequestedRange::Whole;
                }
                slices.push((start, end));
            }
        }
    }
    match slices[..] {
        [] if is_empty => RequestedRange::Whole,
        [] => RequestedRange::NotSatisfiable,
        // If one range of a list remains, it is sent without multipart (RFC 9110, 15.3.7.2).
        [(start, end)] => RequestedRange::Single(start, end),
        _ => RequestedRange::Multiple(slices),
    }
}

/// The error for an invalid range.
struct InvalidRange;

/// Parses one range of `len` bytes; `None` if none of its bytes exist.
fn parse_range_spec(spec: &str, len: u64) -> Result<Option<(u64, u64)>, InvalidRange> {
    let (first, last) = spec.split_once('-').ok_or(InvalidRange)?;
    let slice = match (parse_position(first)?, parse_position(last)?) {
        (None, None) => return Err(InvalidRange),
        (None, Some(suffix)) => (len - suffix.min(len), len),
        (Some(first), None) => (first, len),
        (Some(first), Some(last)) if last < first => return Err(InvalidRange),
        (Some(first), Some(last)) => (first, last.saturating_add(1).min(len)),
    };
    Ok((slice.0 < slice.1).then_some(slice))
}

/// Returns the ranges of a field in the unit `bytes`; `None` for another unit.
fn strip_bytes_unit(field: &str) -> Option<&str> {
    let (unit, spec) = field.split_once('=')?;
    unit.trim().eq_ignore_ascii_case("bytes").then_some(spec)
}

/// Parses a position; `None` if the text is empty. A number that is too large becomes the largest one.
fn parse_position(text: &str) -> Result<Option<u64>, InvalidRange> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    if is_number { Ok(Some(text.parse().unwrap_or(u64::MAX))) } else { Err(InvalidRange) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a Range field for a representation of `len` bytes.
    fn parse(value: &str, len: u64) -> RequestedRange {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, value.parse().unwrap());
        parse_range(&headers, len)
    }

    #[test]
    fn ranges_are_clipped_refused_or_ignored() {
        for (value, expected) in [
            ("bytes=0-9", RequestedRange::Single(0, 10)),
            ("bytes=90-", RequestedRange::Single(90, 100)),
            ("bytes=-10", RequestedRange::Single(90, 100)),
            ("bytes=-1000", RequestedRange::Single(0, 100)),
            ("bytes=50-99999999999999999999999", RequestedRange::Single(50, 100)),
            ("BYTES = 5-5", RequestedRange::Single(5, 6)),
            ("bytes=100-", RequestedRange::NotSatisfiable),
            ("bytes=99999999999999999999999-", RequestedRange::NotSatisfiable),
            ("bytes=99999999999999999999998-99999999999999999999999", RequestedRange::NotSatisfiable),
            ("bytes=-0", RequestedRange::NotSatisfiable),
            ("bytes=9-5", RequestedRange::Whole),
            ("bytes=a-b", RequestedRange::Whole),
            ("bytes=-", RequestedRange::Whole),
            ("bytes=--5", RequestedRange::Whole),
            ("bytes=", RequestedRange::Whole),
            ("bytes=,", RequestedRange::Whole),
            ("lines=0-9", RequestedRange::Whole),
            ("0-9", RequestedRange::Whole),
        ] {
            assert_eq!(parse(value, 100), expected, "{value}");
        }
        assert_eq!(parse_range(&HeaderMap::new(), 100), RequestedRange::Whole);
        for value in ["bytes=0-", "bytes=-1", "bytes=0-0,-1"] {
            assert_eq!(parse(value, 0), RequestedRange::NotSatisfiable, "{value} of nothing");
        }
    }

    #[test]
    fn a_range_list_retains_its_order_and_drops_unsatisfiable_ranges() {
        let slices = |slices: &[(u64, u64)]| RequestedRange::Multiple(slices.to_vec());
        for (value, expected) in [
            ("bytes=0-1,5-6", slices(&[(0, 2), (5, 7)])),
            ("bytes= 5-6 ,\t0-1 ", slices(&[(5, 7), (0, 2)])),
            ("bytes=0-1,,2-3,", slices(&[(0, 2), (2, 4)])),
            ("bytes=0-0,-1", slices(&[(0, 1), (99, 100)])),
            ("bytes=0-1,90-", slices(&[(0, 2), (90, 100)])),
            ("bytes=0-1,200-300,5-6", slices(&[(0, 2), (5, 7)])),
            ("bytes=0-1,90-99999999999999999999999", slices(&[(0, 2), (90, 100)])),
            ("bytes=0-1,200-", RequestedRange::Single(0, 2)),
            ("bytes=-0,5-5", RequestedRange::Single(5, 6)),
            ("bytes=200-,300-301,-0", RequestedRange::NotSatisfiable),
            ("bytes=0-5,5-9", RequestedRange::Whole),
            ("bytes=50-,-60", RequestedRange::Whole),
            ("bytes=0-,0-", RequestedRange::Whole),
            ("bytes=0-1,x", RequestedRange::Whole),
            ("bytes=0-1,6-5", RequestedRange::Whole),
            ("bytes=200-,6-5", RequestedRange::Whole),
        ] {
            assert_eq!(parse(value, 100), expected, "{value}");
        }
    }

    #[test]
    fn a_request_with_more_than_16_ranges_gets_the_whole_representation() {
        let list = |count: u64| {
            let specs: Vec<String> = (0..count).map(|n| format!("{0}-{0}", n * 2)).collect();
            format!("bytes={}", specs.join(","))
        };
        assert!(matches!(parse(&list(16), 100), RequestedRange::Multiple(slices) if slices.len() == 16));
        assert!(
            matches!(parse(&format!("{},200-", list(16)), 100), RequestedRange::Multiple(slices) if slices.len() == 16)
        );
        assert_eq!(parse(&list(17), 100), RequestedRange::Whole);
    }

    #[test]
    fn a_range_ends_where_the_content_ends() {
        for (value, expected) in [
            ("bytes=0-99", RequestedRange::Single(0, 100)),
            ("bytes=0-100", RequestedRange::Single(0, 100)),
            ("bytes=99-", RequestedRange::Single(99, 100)),
            ("bytes=99-100", RequestedRange::Single(99, 100)),
            ("bytes=99-99", RequestedRange::Single(99, 100)),
            ("bytes=100-100", RequestedRange::NotSatisfiable),
            ("bytes=-1", RequestedRange::Single(99, 100)),
            ("bytes=-99", RequestedRange::Single(1, 100)),
            ("bytes=-100", RequestedRange::Single(0, 100)),
            ("bytes=-101", RequestedRange::Single(0, 100)),
            ("bytes=-99999999999999999999999", RequestedRange::Single(0, 100)),
        ] {
            assert_eq!(parse(value, 100), expected, "{value}");
        }
        for (value, expected) in [
            ("bytes=0-18446744073709551615", RequestedRange::Single(0, u64::MAX)),
            ("bytes=18446744073709551614-18446744073709551614", RequestedRange::Single(u64::MAX - 1, u64::MAX)),
            ("bytes=18446744073709551615-", RequestedRange::NotSatisfiable),
            ("bytes=-18446744073709551615", RequestedRange::Single(0, u64::MAX)),
        ] {
            assert_eq!(parse(value, u64::MAX), expected, "{value}");
        }
        // An invalid range is invalid for an empty representation as well.
        for (value, expected) in [
            ("bytes=0-0", RequestedRange::NotSatisfiable),
            ("bytes=-0", RequestedRange::NotSatisfiable),
            ("bytes=5-2", RequestedRange::Whole),
            ("lines=0-", RequestedRange::Whole),
        ] {
            assert_eq!(parse(value, 0), expected, "{value} of nothing");
        }
    }

    #[test]
    fn invalid_or_repeated_range_fields_are_ignored() {
        for value in [
            "bytes=+0-9",
            "bytes=0-+9",
            "bytes=0x0-9",
            "bytes=0.0-9",
            "bytes=0-9-",
            "bytes=0-9=",
            "bytes=0-9;1-2",
            "bytes=5",
            "bytes=0-9\u{e9}",
            "bytes 0-9",
            "byte=0-9",
            "bytes2=0-9",
            "=0-9",
        ] {
            assert_eq!(parse(value, 100), RequestedRange::Whole, "{value}");
        }
        let mut headers = HeaderMap::new();
        for value in ["bytes=0-9", "bytes=20-29"] {
            headers.append(RANGE, value.parse().unwrap());
        }
        assert_eq!(parse_range(&headers, 100), RequestedRange::Whole, "two fields");
    }

    #[test]
    fn range_lists_with_overlaps_after_clipping_are_ignored() {
        for value in [
            "bytes=0-9,20-29,5-5",
            "bytes=5-5,0-99",
            "bytes=0-99,5-5",
            "bytes=20-29,0-20",
            "bytes=20-29,29-40",
            "bytes=50-1000,-1",
            "bytes=-1,99-99",
        ] {
            assert_eq!(parse(value, 100), RequestedRange::Whole, "{value}");
        }
        assert_eq!(parse("bytes=5-9,10-14,0-4", 100), RequestedRange::Multiple(vec![(5, 10), (10, 15), (0, 5)]));
    }
}
