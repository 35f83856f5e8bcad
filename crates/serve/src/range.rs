//! Byte range requests (RFC 9110, 14): one range, or a list of a few that do not overlap.

use http::HeaderMap;
use http::header::RANGE;

/// The largest number of ranges. A longer list is answered with the whole representation, because its only purpose is
/// to cause work.
pub const MOST_PARTS: usize = 16;

/// The requested part of a representation. A slice goes from its first offset up to, not including, its second.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// The whole representation.
    Whole,
    /// One slice.
    Slice(u64, u64),
    /// At least two and at most [`MOST_PARTS`] slices, in the order of the request. They do not overlap.
    Slices(Vec<(u64, u64)>),
    /// No requested byte exists; the response is 416.
    Nowhere,
}

/// Parses the Range field for a representation of `len` bytes. A field that is invalid or unknown is ignored, as the
/// RFC requires.
pub fn parse(headers: &HeaderMap, len: u64) -> Part {
    let mut fields = headers.get_all(RANGE).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Part::Whole;
    };
    let Some(set) = field.to_str().ok().and_then(bytes_unit) else {
        return Part::Whole;
    };
    let mut slices: Vec<(u64, u64)> = Vec::new();
    let mut is_empty = true;
    // Empty list elements are ignored (RFC 9110, 5.6.1.2).
    for spec in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        is_empty = false;
        match one(spec, len) {
            Err(NoRange) => return Part::Whole,
            Ok(None) => {}
            Ok(Some((start, end))) => {
                let overlaps = slices.iter().any(|&(from, to)| start < to && from < end);
                if overlaps || slices.len() == MOST_PARTS {
                    return Part::Whole;
                }
                slices.push((start, end));
            }
        }
    }
    match slices[..] {
        [] if is_empty => Part::Whole,
        [] => Part::Nowhere,
        // If one range of a list is left, it is sent without multipart (RFC 9110, 15.3.7.2).
        [(start, end)] => Part::Slice(start, end),
        _ => Part::Slices(slices),
    }
}

/// The error for an invalid range.
struct NoRange;

/// Parses one range of `len` bytes; `None` if none of its bytes exist.
fn one(spec: &str, len: u64) -> Result<Option<(u64, u64)>, NoRange> {
    let (first, last) = spec.split_once('-').ok_or(NoRange)?;
    let slice = match (number(first)?, number(last)?) {
        (None, None) => return Err(NoRange),
        (None, Some(suffix)) => (len - suffix.min(len), len),
        (Some(first), None) => (first, len),
        (Some(first), Some(last)) if last < first => return Err(NoRange),
        (Some(first), Some(last)) => (first, last.saturating_add(1).min(len)),
    };
    Ok((slice.0 < slice.1).then_some(slice))
}

fn bytes_unit(field: &str) -> Option<&str> {
    let (unit, spec) = field.split_once('=')?;
    unit.trim().eq_ignore_ascii_case("bytes").then_some(spec)
}

/// Parses a position; `None` if the text is empty. A number that is too large becomes the largest one.
fn number(text: &str) -> Result<Option<u64>, NoRange> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let is_number = text.bytes().all(|b| b.is_ascii_digit());
    if is_number { Ok(Some(text.parse().unwrap_or(u64::MAX))) } else { Err(NoRange) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(value: &str, len: u64) -> Part {
        let mut headers = HeaderMap::new();
        headers.insert(RANGE, value.parse().unwrap());
        parse(&headers, len)
    }

    #[test]
    fn ranges_are_clipped_refused_or_ignored() {
        for (value, expected) in [
            ("bytes=0-9", Part::Slice(0, 10)),
            ("bytes=90-", Part::Slice(90, 100)),
            ("bytes=-10", Part::Slice(90, 100)),
            ("bytes=-1000", Part::Slice(0, 100)),
            ("bytes=50-99999999999999999999999", Part::Slice(50, 100)),
            ("BYTES = 5-5", Part::Slice(5, 6)),
            ("bytes=100-", Part::Nowhere),
            ("bytes=99999999999999999999999-", Part::Nowhere),
            ("bytes=99999999999999999999998-99999999999999999999999", Part::Nowhere),
            ("bytes=-0", Part::Nowhere),
            ("bytes=9-5", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=--5", Part::Whole),
            ("bytes=", Part::Whole),
            ("bytes=,", Part::Whole),
            ("lines=0-9", Part::Whole),
            ("0-9", Part::Whole),
        ] {
            assert_eq!(part(value, 100), expected, "{value}");
        }
        assert_eq!(parse(&HeaderMap::new(), 100), Part::Whole);
        for value in ["bytes=0-", "bytes=-1", "bytes=0-0,-1"] {
            assert_eq!(part(value, 0), Part::Nowhere, "{value} of nothing");
        }
    }

    #[test]
    fn lists_keep_their_order_and_lose_what_is_not_there() {
        let slices = |slices: &[(u64, u64)]| Part::Slices(slices.to_vec());
        for (value, expected) in [
            ("bytes=0-1,5-6", slices(&[(0, 2), (5, 7)])),
            ("bytes= 5-6 ,\t0-1 ", slices(&[(5, 7), (0, 2)])),
            ("bytes=0-1,,2-3,", slices(&[(0, 2), (2, 4)])),
            ("bytes=0-0,-1", slices(&[(0, 1), (99, 100)])),
            ("bytes=0-1,90-", slices(&[(0, 2), (90, 100)])),
            ("bytes=0-1,200-300,5-6", slices(&[(0, 2), (5, 7)])),
            ("bytes=0-1,90-99999999999999999999999", slices(&[(0, 2), (90, 100)])),
            ("bytes=0-1,200-", Part::Slice(0, 2)),
            ("bytes=-0,5-5", Part::Slice(5, 6)),
            ("bytes=200-,300-301,-0", Part::Nowhere),
            ("bytes=0-5,5-9", Part::Whole),
            ("bytes=50-,-60", Part::Whole),
            ("bytes=0-,0-", Part::Whole),
            ("bytes=0-1,x", Part::Whole),
            ("bytes=0-1,6-5", Part::Whole),
            ("bytes=200-,6-5", Part::Whole),
        ] {
            assert_eq!(part(value, 100), expected, "{value}");
        }
    }

    #[test]
    fn sixteen_parts_are_sent_and_seventeen_are_not() {
        let list = |count: u64| {
            let specs: Vec<String> = (0..count).map(|n| format!("{0}-{0}", n * 2)).collect();
            format!("bytes={}", specs.join(","))
        };
        assert!(matches!(part(&list(16), 100), Part::Slices(slices) if slices.len() == 16));
        assert!(matches!(part(&format!("{},200-", list(16)), 100), Part::Slices(slices) if slices.len() == 16));
        assert_eq!(part(&list(17), 100), Part::Whole);
    }

    #[test]
    fn a_range_ends_where_the_content_ends() {
        for (value, expected) in [
            ("bytes=0-99", Part::Slice(0, 100)),
            ("bytes=0-100", Part::Slice(0, 100)),
            ("bytes=99-", Part::Slice(99, 100)),
            ("bytes=99-100", Part::Slice(99, 100)),
            ("bytes=99-99", Part::Slice(99, 100)),
            ("bytes=100-100", Part::Nowhere),
            ("bytes=-1", Part::Slice(99, 100)),
            ("bytes=-99", Part::Slice(1, 100)),
            ("bytes=-100", Part::Slice(0, 100)),
            ("bytes=-101", Part::Slice(0, 100)),
            ("bytes=-99999999999999999999999", Part::Slice(0, 100)),
        ] {
            assert_eq!(part(value, 100), expected, "{value}");
        }
        for (value, expected) in [
            ("bytes=0-18446744073709551615", Part::Slice(0, u64::MAX)),
            ("bytes=18446744073709551614-18446744073709551614", Part::Slice(u64::MAX - 1, u64::MAX)),
            ("bytes=18446744073709551615-", Part::Nowhere),
            ("bytes=-18446744073709551615", Part::Slice(0, u64::MAX)),
        ] {
            assert_eq!(part(value, u64::MAX), expected, "{value}");
        }
        // An invalid range is invalid for an empty representation as well.
        for (value, expected) in [
            ("bytes=0-0", Part::Nowhere),
            ("bytes=-0", Part::Nowhere),
            ("bytes=5-2", Part::Whole),
            ("lines=0-", Part::Whole),
        ] {
            assert_eq!(part(value, 0), expected, "{value} of nothing");
        }
    }

    #[test]
    fn what_is_no_byte_range_or_comes_twice_is_ignored() {
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
            assert_eq!(part(value, 100), Part::Whole, "{value}");
        }
        let mut headers = HeaderMap::new();
        for value in ["bytes=0-9", "bytes=20-29"] {
            headers.append(RANGE, value.parse().unwrap());
        }
        assert_eq!(parse(&headers, 100), Part::Whole, "two fields");
    }

    #[test]
    fn a_range_overlaps_any_of_those_before_it_as_they_are_cut() {
        for value in [
            "bytes=0-9,20-29,5-5",
            "bytes=5-5,0-99",
            "bytes=0-99,5-5",
            "bytes=20-29,0-20",
            "bytes=20-29,29-40",
            "bytes=50-1000,-1",
            "bytes=-1,99-99",
        ] {
            assert_eq!(part(value, 100), Part::Whole, "{value}");
        }
        assert_eq!(part("bytes=5-9,10-14,0-4", 100), Part::Slices(vec![(5, 10), (10, 15), (0, 5)]));
    }
}
