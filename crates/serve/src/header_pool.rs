//! Per-thread reuse of header maps and formatted dates, so that most requests allocate almost nothing.

use std::cell::RefCell;
use std::time::{Duration, UNIX_EPOCH};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use rustix::time::{ClockId, clock_gettime};

/// The largest number of free header maps of a thread. A connection has one request at a time on HTTP/1; requests on
/// HTTP/2 arrive in bursts.
const MAX_FREE_MAPS: usize = 32;
/// The capacity of a new header map: enough for most responses without growing.
const MAP_CAPACITY: usize = 12;
/// The largest capacity of a map that is reused. A request with many header fields makes a map grow beyond it.
const MAX_MAP_CAPACITY: usize = 64;
/// The number of formatted dates in the cache of a thread; a power of two. The files of a bundle mostly have few
/// different dates.
const CACHED_DATES: usize = 64;

thread_local! {
    /// The free header maps.
    static FREE_MAPS: RefCell<Vec<HeaderMap>> = const { RefCell::new(Vec::new()) };
    /// The formatted dates, each with its time in seconds since 1970.
    static FORMATTED_DATES: RefCell<Vec<Option<(i64, HeaderValue)>>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty header map.
pub(super) fn take_header_map() -> HeaderMap {
    FREE_MAPS.with_borrow_mut(Vec::pop).unwrap_or_else(|| HeaderMap::with_capacity(MAP_CAPACITY))
}

/// Creates a response without header fields.
pub(super) fn new_response<B>(status: StatusCode, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    *response.headers_mut() = take_header_map();
    response
}

/// Stores a header map for reuse.
pub(super) fn recycle_header_map(mut fields: HeaderMap) {
    if fields.capacity() > MAX_MAP_CAPACITY || fields.capacity() < MAP_CAPACITY {
        return;
    }
    fields.clear();
    FREE_MAPS.with_borrow_mut(|maps| {
        if maps.len() < MAX_FREE_MAPS {
            maps.push(fields);
        }
    });
}

/// Sets a field to a value made by this program, which has no characters that a field must not have.
pub(super) fn set_field(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// Returns the current time in seconds since 1970. Every response needs it, so it comes from the coarse clock, which is
/// a few milliseconds late and almost free.
pub(super) fn unix_seconds_now() -> u64 {
    u64::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

/// Formats a time, in seconds since 1970, as an IMF-fixdate (RFC 9110, section 5.6.7).
pub(super) fn format_http_date(second: u64) -> String {
    httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second))
}

/// Returns whether a time, in seconds since 1970, is not in the future.
pub(super) fn is_past(modified: i64) -> bool {
    modified <= i64::try_from(unix_seconds_now()).unwrap_or(i64::MAX)
}

/// Formats a modification time, in seconds since 1970, for `Last-Modified`. A time in the future becomes the current
/// time (RFC 9110, section 8.8.2.1).
pub(super) fn last_modified_value(modified: i64) -> Option<HeaderValue> {
    let seconds = u64::try_from(modified).ok()?;
    let index = (seconds ^ (seconds >> 6) ^ (seconds >> 12)) as usize % CACHED_DATES;
    FORMATTED_DATES.with_borrow_mut(|dates| {
        if let Some(Some((cached, value))) = dates.get(index)
            && *cached == modified
        {
            return Some(value.clone());
        }
        // `Last-Modified` must not be later than `Date`.
        let now = unix_seconds_now();
        let value = HeaderValue::try_from(format_http_date(seconds.min(now))).ok()?;
        if seconds <= now {
            dates.resize(CACHED_DATES, None);
            dates[index] = Some((modified, value.clone()));
        }
        Some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_maps_of_usual_capacity_are_cleared_and_reused() {
        FREE_MAPS.take();
        for (capacity, is_reused) in
            [(0, false), (MAP_CAPACITY / 2, false), (MAP_CAPACITY, true), (48, true), (4 * MAX_MAP_CAPACITY, false)]
        {
            let mut map = HeaderMap::with_capacity(capacity);
            map.insert("x-secret", HeaderValue::from_static("of another request"));
            recycle_header_map(map);
            assert_eq!(FREE_MAPS.with_borrow(Vec::len), usize::from(is_reused), "capacity of {capacity}");
            assert!(take_header_map().is_empty(), "capacity of {capacity}");
            assert_eq!(FREE_MAPS.with_borrow(Vec::len), 0, "capacity of {capacity}");
        }
        assert!(take_header_map().capacity() >= MAP_CAPACITY);
        for _ in 0..2 * MAX_FREE_MAPS {
            recycle_header_map(HeaderMap::with_capacity(MAP_CAPACITY));
        }
        assert_eq!(FREE_MAPS.take().len(), MAX_FREE_MAPS);
        let response = new_response(StatusCode::NOT_FOUND, ());
        assert!(response.status() == 404 && response.headers().is_empty());
    }

    #[test]
    fn last_modified_is_the_file_date_but_never_in_the_future() {
        // 0 and 65 use the same slot.
        for (modified, expected) in [
            (0, Some("Thu, 01 Jan 1970 00:00:00 GMT")),
            (65, Some("Thu, 01 Jan 1970 00:01:05 GMT")),
            (0, Some("Thu, 01 Jan 1970 00:00:00 GMT")),
            (784_111_777, Some("Sun, 06 Nov 1994 08:49:37 GMT")),
            (784_111_777, Some("Sun, 06 Nov 1994 08:49:37 GMT")),
            (-1, None),
            (i64::MIN, None),
        ] {
            let value = last_modified_value(modified);
            assert_eq!(value.as_ref().map(|value| value.to_str().unwrap()), expected, "{modified}");
        }
        let is_cached = |modified| {
            FORMATTED_DATES.with_borrow(|dates| dates.iter().flatten().any(|(cached, _)| *cached == modified))
        };
        assert!(is_cached(784_111_777));
        for ahead in [1000, 4_000_000_000] {
            let before = unix_seconds_now();
            let modified = i64::try_from(before).unwrap() + ahead;
            let value = last_modified_value(modified).unwrap();
            let value = httpdate::parse_http_date(value.to_str().unwrap()).unwrap();
            let seconds = value.duration_since(UNIX_EPOCH).unwrap().as_secs();
            assert!((before..=unix_seconds_now()).contains(&seconds), "{ahead} s from now: {seconds}");
            assert!(!is_cached(modified), "the date changes every second");
        }
    }

    #[test]
    fn a_modification_date_is_past_if_not_later_than_now() {
        let now = i64::try_from(unix_seconds_now()).unwrap();
        for (modified, expected) in [(i64::MIN, true), (-1, true), (now - 1, true), (now, true), (now + 1000, false)] {
            assert_eq!(is_past(modified), expected, "{modified} at {now}");
        }
    }
}
