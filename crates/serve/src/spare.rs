//! What each thread that answers keeps for the next answer, so that most requests allocate hardly anything: maps of fields
//! that have been read or sent, and dates as they are written.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderValue, Response, StatusCode};
use rustix::time::{ClockId, clock_gettime};

/// Maps kept. A connection has one request at a time in HTTP/1; those of HTTP/2 come in bursts.
const MAPS: usize = 32;
/// Room in a new map: what most answers have without growing.
const FIELDS: usize = 12;
/// A map that has grown beyond this, by a request with many fields, is not kept.
const MOST_FIELDS: usize = 64;
/// Dates kept; a power of two. Files of one bundle mostly have few.
const DATES: usize = 64;

thread_local! {
    static KEPT: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
    static WRITTEN: RefCell<Vec<Option<(i64, HeaderValue)>>> = const { RefCell::new(Vec::new()) };
}

/// A map without fields.
pub(super) fn fields() -> HeaderMap {
    KEPT.with_borrow_mut(Vec::pop).unwrap_or_else(|| HeaderMap::with_capacity(FIELDS))
}

/// A response without fields.
pub(super) fn response<B>(status: StatusCode, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = fields();
    response
}

/// Keeps a map that is not needed any more.
pub(super) fn keep(mut fields: HeaderMap) {
    if fields.capacity() > MOST_FIELDS || fields.capacity() < FIELDS {
        return;
    }
    fields.clear();
    KEPT.with_borrow_mut(|kept| {
        if kept.len() < MAPS {
            kept.push(fields);
        }
    });
}

/// The second, since 1970, that it is now, as `Date` says it. By the clock that is a few milliseconds behind and costs next to
/// nothing: every answer asks.
pub(super) fn second() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

/// A second, since 1970, as `Date` says it (RFC 9110, 5.6.7).
pub(super) fn written(second: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second))
}

/// Whether a time, in seconds since 1970, lies in the past.
pub(super) fn is_over(modified: i64) -> bool {
    modified <= i64::try_from(second()).unwrap_or(i64::MAX)
}

/// A time, in seconds since 1970, as Last-Modified says it. Files may come from the future; what is said of them may not
/// (RFC 9110, 8.8.2.1).
pub(super) fn date(modified: i64) -> Option<HeaderValue> {
    let seconds = u64::try_from(modified).ok()?;
    let place = (seconds ^ (seconds >> 6) ^ (seconds >> 12)) as usize % DATES;
    WRITTEN.with_borrow_mut(|dates| {
        if let Some(Some((known, value))) = dates.get(place)
            && *known == modified
        {
            return Some(value.clone());
        }
        // Never behind the `Date` beside it.
        let now = second();
        let value = HeaderValue::try_from(written(seconds.min(now))).ok()?;
        if seconds <= now {
            dates.resize(DATES, None);
            dates[place] = Some((modified, value.clone()));
        }
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_of_usual_size_are_given_out_again_without_what_was_in_them() {
        KEPT.take();
        for (room, is_kept) in [(0, false), (FIELDS / 2, false), (FIELDS, true), (48, true), (4 * MOST_FIELDS, false)] {
            let mut map = HeaderMap::with_capacity(room);
            map.insert("x-secret", HeaderValue::from_static("of somebody else"));
            keep(map);
            assert_eq!(KEPT.with_borrow(Vec::len), usize::from(is_kept), "room for {room}");
            assert!(fields().is_empty(), "room for {room}");
            assert_eq!(KEPT.with_borrow(Vec::len), 0, "room for {room}");
        }
        assert!(fields().capacity() >= FIELDS);
        for _ in 0..2 * MAPS {
            keep(HeaderMap::with_capacity(FIELDS));
        }
        assert_eq!(KEPT.take().len(), MAPS);
        let answer = response(StatusCode::NOT_FOUND, ());
        assert!(answer.status() == 404 && answer.headers().is_empty());
    }

    #[test]
    fn a_date_is_that_of_the_file_and_never_one_to_come() {
        // 0 and 65 have the same place among those that are kept.
        for (modified, expected) in [
            (0, Some("Thu, 01 Jan 1970 00:00:00 GMT")),
            (65, Some("Thu, 01 Jan 1970 00:01:05 GMT")),
            (0, Some("Thu, 01 Jan 1970 00:00:00 GMT")),
            (784_111_777, Some("Sun, 06 Nov 1994 08:49:37 GMT")),
            (784_111_777, Some("Sun, 06 Nov 1994 08:49:37 GMT")),
            (-1, None),
            (i64::MIN, None),
        ] {
            let said = date(modified);
            assert_eq!(said.as_ref().map(|value| value.to_str().unwrap()), expected, "{modified}");
        }
        let kept = |modified| WRITTEN.with_borrow(|dates| dates.iter().flatten().any(|(known, _)| *known == modified));
        assert!(kept(784_111_777));
        for ahead in [1000, 4_000_000_000] {
            let before = second();
            let modified = i64::try_from(before).unwrap() + ahead;
            let said = date(modified).unwrap();
            let said = httpdate::parse_http_date(said.to_str().unwrap()).unwrap();
            let said = said.duration_since(UNIX_EPOCH).unwrap().as_secs();
            assert!((before..=second()).contains(&said), "{ahead} s from now: {said}");
            assert!(!kept(modified), "it is another one soon");
        }
    }

    #[test]
    fn what_is_dated_now_or_before_is_over() {
        let now = i64::try_from(second()).unwrap();
        for (modified, expected) in [(i64::MIN, true), (-1, true), (now - 1, true), (now, true), (now + 1000, false)] {
            assert_eq!(is_over(modified), expected, "{modified} at {now}");
        }
    }
}
