//! The deadline for request heads on HTTP/1 connections that hyper serves, with one timer for each connection.
//!
//! hyper creates a timer for each request head and drops it when the head is complete. A timer of the runtime would be
//! allocated, registered and removed for each request. Here the connection has one timer, and checks when it fires
//! whether the deadline has really passed.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// The value of a deadline that is not set.
const NO_DEADLINE: u64 = 0;

/// The deadline of one connection, shared between the connection and hyper.
#[derive(Debug, Clone)]
pub(super) struct HeadTimer(Arc<HeadTimerState>);

#[derive(Debug)]
struct HeadTimerState {
    /// When the timer was created.
    created_at: Instant,
    /// The deadline in force, in milliseconds since `created_at`, or [`NO_DEADLINE`].
    deadline: AtomicU64,
    /// Whether the deadline has passed.
    has_expired: AtomicBool,
}

impl HeadTimer {
    /// Creates the timer of a connection that begins now. No deadline is set.
    pub(super) fn new() -> HeadTimer {
        HeadTimer(Arc::new(HeadTimerState {
            created_at: Instant::now(),
            deadline: AtomicU64::new(NO_DEADLINE),
            has_expired: AtomicBool::new(false),
        }))
    }

    /// Returns whether the deadline has passed; if it has, the next poll of hyper's timer is ready. The connection
    /// calls this function when its own timer has fired.
    pub(super) fn check_expired(&self) -> bool {
        let has_expired = self.deadline().is_some_and(|deadline| Instant::now() >= deadline);
        if has_expired {
            self.0.has_expired.store(true, Ordering::Relaxed);
        }
        has_expired
    }

    /// Returns the deadline in force.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.0.deadline.load(Ordering::Relaxed) {
            NO_DEADLINE => None,
            millis => Some(self.0.created_at + Duration::from_millis(millis)),
        }
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadSleep { timer: self.clone(), deadline })
    }
}

/// The timer that hyper polls while it waits for a request head.
struct HeadSleep {
    timer: HeadTimer,
    deadline: Instant,
}

impl Sleep for HeadSleep {}

impl Future for HeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        let state = &self.timer.0;
        let millis = self.deadline.saturating_duration_since(state.created_at).as_millis();
        // Rounded up, so that the deadline has passed when this millisecond is reached.
        state
            .deadline
            .store(u64::try_from(millis).map_or(u64::MAX, |millis| millis.saturating_add(1)), Ordering::Relaxed);
        // The connection polls hyper again when its timer fires, so the clock is not read for each request.
        if state.has_expired.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for HeadSleep {
    fn drop(&mut self) {
        self.timer.0.deadline.store(NO_DEADLINE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn the_head_timer_expires_only_at_the_deadline_of_a_polled_sleep() {
        let timer = HeadTimer::new();
        let mut context = Context::from_waker(Waker::noop());
        assert!(timer.deadline().is_none() && !timer.check_expired());
        let deadline_set = Instant::now() + Duration::from_hours(1);
        let mut waiting = timer.sleep_until(deadline_set);
        assert!(timer.deadline().is_none(), "the timer was not polled yet");
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let deadline = timer.deadline().unwrap();
        assert!(deadline >= deadline_set && deadline <= deadline_set + Duration::from_millis(1));
        assert!(!timer.check_expired() && waiting.as_mut().poll(&mut context).is_pending());
        drop(waiting);
        assert!(timer.deadline().is_none() && !timer.check_expired(), "the head is complete");
        let mut waiting = timer.sleep(Duration::ZERO);
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "expired, but not checked yet");
        while !timer.check_expired() {
            std::thread::yield_now();
        }
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }
}
