//! The time that a request's head may take, at the price of one timer a connection. hyper asks for a new timer for each
//! head and drops it when the head is there; a timer of the runtime would be made, entered into a list and taken out of it
//! again for each request. Here the connection keeps one, and asks when it goes off whether the time has really come.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};

/// No deadline.
const NONE: u64 = 0;

/// The deadline of one connection.
#[derive(Debug, Clone)]
pub(super) struct Alarm(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// When the connection began.
    begun: Instant,
    /// The deadline in force, in milliseconds since then, or [`NONE`].
    deadline: AtomicU64,
    /// Whether it has come.
    is_over: AtomicBool,
}

impl Alarm {
    /// Of a connection that begins now.
    pub(super) fn new() -> Alarm {
        Alarm(Arc::new(Inner {
            begun: Instant::now(),
            deadline: AtomicU64::new(NONE),
            is_over: AtomicBool::new(false),
        }))
    }

    /// The connection's timer has gone off: says whether the deadline has come.
    pub(super) fn has_come(&self) -> bool {
        let has_come = self.deadline().is_some_and(|deadline| Instant::now() >= deadline);
        if has_come {
            self.0.is_over.store(true, Ordering::Relaxed);
        }
        has_come
    }

    /// The deadline in force.
    pub(super) fn deadline(&self) -> Option<Instant> {
        match self.0.deadline.load(Ordering::Relaxed) {
            NONE => None,
            millis => Some(self.0.begun + Duration::from_millis(millis)),
        }
    }
}

impl Timer for Alarm {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(Instant::now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(Waiting { alarm: self.clone(), deadline })
    }
}

/// What hyper polls while it waits for a head.
struct Waiting {
    alarm: Alarm,
    deadline: Instant,
}

impl Sleep for Waiting {}

impl Future for Waiting {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        let inner = &self.alarm.0;
        let millis = self.deadline.saturating_duration_since(inner.begun).as_millis();
        // Up, so that it has come when it is over.
        inner
            .deadline
            .store(u64::try_from(millis).map_or(u64::MAX, |millis| millis.saturating_add(1)), Ordering::Relaxed);
        // Whoever keeps the timer polls again when it goes off; so the clock is not read for each request.
        if inner.is_over.load(Ordering::Relaxed) { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.alarm.0.deadline.store(NONE, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn an_alarm_goes_off_at_its_deadline_and_only_while_somebody_waits() {
        let alarm = Alarm::new();
        let mut context = Context::from_waker(Waker::noop());
        assert!(alarm.deadline().is_none() && !alarm.has_come());
        let later = Instant::now() + Duration::from_hours(1);
        let mut waiting = alarm.sleep_until(later);
        assert!(alarm.deadline().is_none(), "nobody waits yet");
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        let deadline = alarm.deadline().unwrap();
        assert!(deadline >= later && deadline <= later + Duration::from_millis(1));
        assert!(!alarm.has_come() && waiting.as_mut().poll(&mut context).is_pending());
        drop(waiting);
        assert!(alarm.deadline().is_none() && !alarm.has_come(), "the head is there");
        let mut waiting = alarm.sleep(Duration::ZERO);
        assert!(waiting.as_mut().poll(&mut context).is_pending(), "whoever keeps the timer says when");
        while !alarm.has_come() {
            std::thread::yield_now();
        }
        assert!(waiting.as_mut().poll(&mut context).is_ready());
    }
}
