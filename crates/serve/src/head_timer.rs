//! The deadline for request heads on HTTP/1 connections that hyper serves, with one timer for each connection.
//!
//! hyper creates a timer for each request head and drops it when the head is complete. A timer of the runtime would be
//! allocated, registered and removed for each request. Here the connection keeps one timer, and checks when it fires
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
    /// When the connection began.
    begun: Instant,
    /// The deadline in force, in milliseconds since `begun`, or [`NONE`].
    deadline: AtomicU64,
    /// Whether the deadline has passed.
    has_expired: AtomicBool,
}

impl HeadTimer {
    /// Creates the timer of a connection that begins now. No deadline is set.
    pub(super) fn new() -> HeadTimer {
        HeadTimer(Arc::new(HeadTimerState {
            begun: Instant::now(),
            deadline: AtomicU64::new(NO_DEADLINE),
            has_expired: AtomicBool::new(false),
        }))
    }

    /// Returns whether the deadline has passed, and lets hyper know if it has. The connection calls it when its timer
    /// has fired.
    pub(super) fn has_expired(&self) -> bool {
        let has_come = self.deadline().is_some_and(|deadline| Instant::now() >= deadline);
        if has_come {
            self.0.has_expired.store(true, Ordering::Relaxed);
        }
        has_come
    }

    /// Returns the deadline in force.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.0.deadline.load(Ordering::Relaxed) {
            NO_DEADLINE => None,
            millis => Some(self.0.begun + Duration::from_millis(millis)),
        }
    }
}

impl Timer for HeadTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(HeadSleep { alarm: self.clone(), deadline })
    }
}

/// The timer that hyper polls while it waits for a request head.
struct HeadSleep {
    alarm: HeadTimer,
    deadline: Instant,
}

impl Sleep for HeadSleep {}

impl Future for HeadSleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        let inner = &self.alarm.0;
        let millis = self.deadline.saturating_duration_since(inner.begun).as_millis();
        // Rounded up, so that the deadline has passed when this millisecond is reached.
        inner
            .deadline
            .store(u64::try_from(millis).map_or(u64::MAX, |millis| millis.saturating_add(1)), Ordering::Relaxed);
        // The connection polls hyper again when its timer fires, so the clock is not read for each request.
        if inner.has_expired.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for HeadSleep {
    fn drop(&mut self) {
        self.alarm.0.deadline.store(NO_DEADLINE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn an_alarm_goes_off_at_its_deadline_and_only_while_somebody_waits() {
        let alarm = HeadTimer::new();
        let mut context = Context::from_waker(Waker::noop());
        assert!(alarm.deadline().is_none() && !alarm.has_expired());
        let later = Instant::now() + Duration::from_hours(1);
        let mut waiting = alarm.sleep_until(later);
        assert!(alarm.deadline().is_none(), "nobody waits yet");
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let deadline = alarm.deadline().unwrap();
        assert!(deadline >= later && deadline <= later + Duration::from_millis(1));
        assert!(!alarm.has_expired() && waiting.as_mut().poll(&mut context).is_pending());
        drop(waiting);
        assert!(alarm.deadline().is_none() && !alarm.has_expired(), "the head is there");
        let mut waiting = alarm.sleep(Duration::ZERO);
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "whoever keeps the timer says when");
        while !alarm.has_expired() {
            std::thread::yield_now();
        }
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }
}
