//! Byte ranges (RFC 9110, 14): one range; a list of several is answered with the whole.

use http::HeaderMap;
use http::header::RANGE;

/// What part is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// From the first byte up to, not including, the second.
    Slice(u64, u64),
    /// Nothing that there is: 416.
    Nowhere,
}

/// Reads the Range field for a body of `len` bytes. What is not understood is ignored, as the RFC asks.
pub fn parse(headers: &HeaderMap, len: u64) -> Part {
    let mut fields = headers.get_all(RANGE).iter();
    let (Some(field), None) = (fields.next(), fields.next()) else {
        return Part::Whole;
    };
    let Some(spec) = field.to_str().ok().and_then(bytes_unit) else {
        return Part::Whole;
    };
    let spec = spec.trim();
    if spec.contains(',') {
        return Part::Whole;
    }
    let Some((first, last)) = spec.split_once('-') else {
        return Part::Whole;
    };
    let (Ok(first), Ok(last)) = (number(first), number(last)) else {
        return Part::Whole;
    };
    match (first, last) {
        (None, None) => Part::Whole,
        (None, Some(suffix)) => {
            if suffix == 0 || len == 0 {
                Part::Nowhere
            } else {
                Part::Slice(len - suffix.min(len), len)
            }
        }
        (Some(first), None) => {
            if first >= len {
                Part::Nowhere
            } else {
                Part::Slice(first, len)
            }
        }
        (Some(first), Some(last)) if last < first => Part::Whole,
        (Some(first), Some(last)) => {
            if first >= len {
                Part::Nowhere
            } else {
                Part::Slice(first, last.saturating_add(1).min(len))
            }
        }
    }
}

fn bytes_unit(field: &str) -> Option<&str> {
    let (unit, spec) = field.split_once('=')?;
    unit.trim().eq_ignore_ascii_case("bytes").then_some(spec)
}

/// A position; `None` where none is given. Too many digits are as good as infinity.
fn number(text: &str) -> Result<Option<u64>, ()> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    if !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(());
    }
    Ok(Some(text.parse().unwrap_or(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_clipped_refused_or_ignored() {
        let part = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(RANGE, value.parse().unwrap());
            parse(&headers, 100)
        };
        for (value, expected) in [
            ("bytes=0-9", Part::Slice(0, 10)),
            ("bytes=90-", Part::Slice(90, 100)),
            ("bytes=-10", Part::Slice(90, 100)),
            ("bytes=-1000", Part::Slice(0, 100)),
            ("bytes=50-99999999999999999999999", Part::Slice(50, 100)),
            ("BYTES = 5-5", Part::Slice(5, 6)),
            ("bytes=100-", Part::Nowhere),
            ("bytes=99999999999999999999999-", Part::Nowhere),
            ("bytes=-0", Part::Nowhere),
            ("bytes=9-5", Part::Whole),
            ("bytes=a-b", Part::Whole),
            ("bytes=-", Part::Whole),
            ("bytes=--5", Part::Whole),
            ("bytes=0-1,5-6", Part::Whole),
            ("lines=0-9", Part::Whole),
            ("0-9", Part::Whole),
        ] {
            assert_eq!(part(value), expected, "{value}");
        }
        assert_eq!(parse(&HeaderMap::new(), 100), Part::Whole);
    }
}
