//! Decides whether and when to retry a call (`docs/design/agent.md`, rule 4). No I/O.

use std::time::Duration;

use crate::backoff;

use super::request_error::{RequestError, RequestErrorCause};

/// Upper bound of the attempts at one call.
const MAX_ATTEMPTS: u32 = 5;
/// Upper bound of the repetitions of a POST whose response was lost: the server may have processed each of them.
const MAX_BLIND_REPEATS: u32 = 2;
/// Upper bound of the `Retry-After` that a sync waits for; a longer one ends it.
pub const MAX_SYNC_RETRY_AFTER: Duration = Duration::from_mins(1);

/// The kind of call, which decides whether it may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// A POST that starts a job.
    Start,
    /// A GET.
    Read,
    /// The POST that requests a link: it starts nothing.
    Link,
}

/// The failed attempts at one call so far.
#[derive(Debug, Clone, Default)]
pub struct CallAttempts {
    failed: u32,
    /// Attempts whose response was lost.
    lost: u32,
}

impl CallAttempts {
    /// Starts counting again, after a usable response.
    pub fn reset(&mut self) {
        *self = CallAttempts::default();
    }

    /// Whether an attempt may have been processed by the server although its response was lost.
    pub fn may_have_been_processed(&self) -> bool {
        self.lost > 0
    }

    /// Records a failed attempt. Returns how long to wait before the next one, or `None` to give up. `random` is from 0
    /// to 1.
    pub fn next_pause(&mut self, call: CallKind, error: &RequestError, random: f64) -> Option<Duration> {
        self.failed += 1;
        let may_retry = match error.cause {
            RequestErrorCause::NotConnected | RequestErrorCause::Status(408 | 429 | 500..=599) => true,
            RequestErrorCause::Status(409) => call == CallKind::Link,
            RequestErrorCause::NoUsableResponse | RequestErrorCause::Unreadable => {
                self.lost += 1;
                call != CallKind::Start || self.lost <= MAX_BLIND_REPEATS
            }
            RequestErrorCause::Status(_)
            | RequestErrorCause::RefusedRedirect
            | RequestErrorCause::NotPermitted
            | RequestErrorCause::Tls
            | RequestErrorCause::TooLarge
            | RequestErrorCause::Disk => false,
        };
        if !may_retry
            || self.failed >= MAX_ATTEMPTS
            || error.retry_after.is_some_and(|wait| wait > MAX_SYNC_RETRY_AFTER)
        {
            return None;
        }
        Some(backoff::wait_after_attempt(self.failed, random).max(error.retry_after.unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request_error(cause: RequestErrorCause) -> RequestError {
        RequestError::new(cause, "x")
    }

    fn pauses(call: CallKind, cause: RequestErrorCause, random: f64) -> Vec<u128> {
        let mut attempts = CallAttempts::default();
        std::iter::from_fn(|| attempts.next_pause(call, &request_error(cause), random)).map(|d| d.as_millis()).collect()
    }

    #[test]
    fn retryable_error_gets_five_attempts_with_doubling_pauses() {
        assert_eq!(pauses(CallKind::Read, RequestErrorCause::Status(503), 1.0), [1000, 2000, 4000, 8000]);
        assert_eq!(pauses(CallKind::Link, RequestErrorCause::NoUsableResponse, 0.0), [500, 1000, 2000, 4000]);
        assert_eq!(pauses(CallKind::Start, RequestErrorCause::NotConnected, 1.0).len(), 4);
    }

    #[test]
    fn post_without_a_response_is_retried_at_most_twice() {
        assert_eq!(pauses(CallKind::Start, RequestErrorCause::NoUsableResponse, 1.0).len(), 2);
        assert_eq!(pauses(CallKind::Start, RequestErrorCause::Unreadable, 1.0).len(), 2);
        assert_eq!(pauses(CallKind::Start, RequestErrorCause::Status(500), 1.0).len(), 4);
    }

    #[test]
    fn client_errors_are_not_retried_except_409_for_a_download_link() {
        for status in [400, 401, 403, 404, 422] {
            assert!(pauses(CallKind::Read, RequestErrorCause::Status(status), 1.0).is_empty(), "{status}");
        }
        assert!(pauses(CallKind::Start, RequestErrorCause::Status(409), 1.0).is_empty());
        assert_eq!(pauses(CallKind::Link, RequestErrorCause::Status(409), 1.0).len(), 4);
    }

    #[test]
    fn retry_after_extends_the_pause_and_stops_retries_above_one_minute() {
        let mut error = request_error(RequestErrorCause::Status(429));
        error.retry_after = Some(Duration::from_secs(7));
        assert_eq!(CallAttempts::default().next_pause(CallKind::Read, &error, 0.0), Some(Duration::from_secs(7)));
        error.retry_after = Some(Duration::from_mins(1));
        assert_eq!(CallAttempts::default().next_pause(CallKind::Read, &error, 0.0), Some(Duration::from_mins(1)));
        error.retry_after = Some(Duration::from_secs(61));
        assert_eq!(CallAttempts::default().next_pause(CallKind::Read, &error, 0.0), None);
    }

    #[test]
    fn only_temporary_errors_are_retried() {
        for status in [200, 302, 400, 405, 407, 410, 418, 428, 430, 451, 499, 600] {
            for call in [CallKind::Start, CallKind::Read, CallKind::Link] {
                assert!(pauses(call, RequestErrorCause::Status(status), 1.0).is_empty(), "{call:?} {status}");
            }
        }
        for status in [408, 429, 500, 502, 503, 504, 599] {
            for call in [CallKind::Start, CallKind::Read, CallKind::Link] {
                assert_eq!(pauses(call, RequestErrorCause::Status(status), 1.0).len(), 4, "{call:?} {status}");
            }
        }
        for (cause, start, others) in [
            (RequestErrorCause::NotConnected, 4, 4),
            (RequestErrorCause::NoUsableResponse, 2, 4),
            (RequestErrorCause::Unreadable, 2, 4),
            (RequestErrorCause::RefusedRedirect, 0, 0),
            (RequestErrorCause::Tls, 0, 0),
            (RequestErrorCause::TooLarge, 0, 0),
            (RequestErrorCause::Disk, 0, 0),
        ] {
            let counts = [CallKind::Start, CallKind::Read, CallKind::Link].map(|call| pauses(call, cause, 0.5).len());
            assert_eq!(counts, [start, others, others], "{cause:?}");
        }
        assert!(pauses(CallKind::Read, RequestErrorCause::Status(409), 1.0).is_empty());
    }

    #[test]
    fn lost_responses_are_counted_until_a_reset() {
        let mut attempts = CallAttempts::default();
        let mut next = |cause| {
            (
                attempts.next_pause(CallKind::Start, &request_error(cause), 1.0).is_some(),
                attempts.may_have_been_processed(),
            )
        };
        assert_eq!(next(RequestErrorCause::Status(503)), (true, false));
        assert_eq!(next(RequestErrorCause::NoUsableResponse), (true, true));
        assert_eq!(next(RequestErrorCause::Status(503)), (true, true));
        assert_eq!(next(RequestErrorCause::Unreadable), (true, true));
        assert_eq!(next(RequestErrorCause::NotConnected), (false, true), "the fifth attempt is the last");
        attempts.reset();
        assert!(!attempts.may_have_been_processed());
        let next = |cause| attempts.next_pause(CallKind::Start, &request_error(cause), 1.0).map(|wait| wait.as_secs());
        let lost =
            [RequestErrorCause::NoUsableResponse, RequestErrorCause::Unreadable, RequestErrorCause::NoUsableResponse]
                .map(next);
        assert_eq!(lost, [Some(1), Some(2), None]);
    }

    #[test]
    fn a_short_retry_after_shortens_no_pause() {
        let mut error = request_error(RequestErrorCause::Status(503));
        for (wait, pause) in
            [(0, Some(1000)), (999, Some(1000)), (1001, Some(1001)), (60_000, Some(60_000)), (60_001, None)]
        {
            error.retry_after = Some(Duration::from_millis(wait));
            let next = CallAttempts::default().next_pause(CallKind::Read, &error, 1.0);
            assert_eq!(next.map(|next| next.as_millis()), pause, "{wait}");
        }
    }
}
