//! Whether the loops that accept connections still turn. They beat themselves: a timer of its own would go on beating
//! beside a server that hangs.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior, interval};

/// How often a loop beats if nobody needs it more often. A wake-up that costs nothing beside what a probe would.
pub const EVERY: Duration = Duration::from_secs(2);
/// A loop that has missed so many beats does not turn. One or two may be late on a busy machine.
const MISSED: u32 = 5;

/// The pulse of a server: it beats as long as each of its loops does.
pub struct Pulse {
    every: Duration,
    begun: Instant,
    /// When each loop has beaten last, in microseconds since `begun`.
    loops: Mutex<Vec<Arc<AtomicU64>>>,
    /// When it was last told of, in the same; 0 for never.
    told: AtomicU64,
    tell: Box<dyn Fn() + Send + Sync>,
}

impl Pulse {
    /// Beats every so often, and calls `tell` as often if all loops are known to turn, however many there are. `tell` is
    /// called by the loops: it must not block.
    pub fn new(every: Duration, tell: impl Fn() + Send + Sync + 'static) -> Arc<Pulse> {
        let every = every.max(Duration::from_millis(1));
        Arc::new(Pulse {
            every,
            begun: Instant::now(),
            loops: Mutex::default(),
            told: AtomicU64::new(0),
            tell: Box::new(tell),
        })
    }

    /// Another loop belongs to it from now on, until it drops its heart. Within a runtime.
    pub fn heart(self: &Arc<Pulse>) -> Heart {
        let last = Arc::new(AtomicU64::new(self.now()));
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&last));
        let mut tick = interval(self.every);
        // After a pause one beat says all there is to say.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Heart { pulse: Arc::clone(self), last, tick }
    }

    /// Whether every loop turns. Before the first begins and after the last has ended none is missing.
    pub fn is_beating(&self) -> bool {
        self.is_beating_at(self.now())
    }

    fn is_beating_at(&self, now: u64) -> bool {
        let late = u64::try_from((self.every * MISSED).as_micros()).unwrap_or(u64::MAX);
        let loops = self.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.iter().all(|last| now.saturating_sub(last.load(Ordering::Relaxed)) <= late)
    }

    /// Whether nobody has told for half of its time: there is a loop a core, and one of them is enough. Whoever asks tells.
    fn is_time(&self, now: u64) -> bool {
        let half = u64::try_from((self.every / 2).as_micros()).unwrap_or(u64::MAX);
        let told = self.told.load(Ordering::Relaxed);
        let is_due = told == 0 || now.saturating_sub(told) >= half;
        is_due && self.told.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Pulse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").field("every", &self.every).finish_non_exhaustive()
    }
}

/// What one loop beats with.
#[derive(Debug)]
pub struct Heart {
    pulse: Arc<Pulse>,
    last: Arc<AtomicU64>,
    tick: Interval,
}

impl Heart {
    /// This loop turns.
    pub fn beat(&self) {
        self.beat_at(self.pulse.now().max(1));
    }

    fn beat_at(&self, now: u64) {
        self.last.store(now, Ordering::Relaxed);
        if self.pulse.is_beating_at(now) && self.pulse.is_time(now) {
            (self.pulse.tell)();
        }
    }

    /// Waits for what the loop waits for, and beats meanwhile: waiting is no hanging.
    pub async fn beside<F: Future>(&mut self, what: F) -> F::Output {
        let mut what = pin!(what);
        loop {
            tokio::select! {
                // Under load there is always something to do: the beat comes first.
                biased;
                _ = self.tick.tick() => self.beat(),
                done = &mut what => return done,
            }
        }
    }
}

impl Drop for Heart {
    fn drop(&mut self) {
        let mut loops = self.pulse.loops.lock().unwrap_or_else(PoisonError::into_inner);
        loops.retain(|last| !Arc::ptr_eq(last, &self.last));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(2);

    fn in_runtime(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    fn counting(every: Duration) -> (Arc<Pulse>, Arc<AtomicU64>) {
        let told = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&told);
        let tell = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        (Pulse::new(every, tell), told)
    }

    #[test]
    fn one_loop_that_hangs_stops_the_pulse_though_another_turns() {
        in_runtime(async {
            // Microseconds: a loop may be late by five beats of 2 ms, and half a beat lies between two signs of life.
            let (pulse, told) = counting(SHORT);
            assert!(pulse.is_beating(), "no loop is missing yet");
            let (turns, hangs) = (pulse.heart(), pulse.heart());
            let begun = hangs.last.load(Ordering::Relaxed);
            for (at, expected) in [
                (1, 1),
                (1000, 1),
                (1001, 2),
                (10_000, 3),
                // What hangs is not vouched for by another.
                (10_001, 3),
                (20_000, 3),
            ] {
                turns.beat_at(begun + at);
                assert_eq!(told.load(Ordering::Relaxed), expected, "{at}");
                assert_eq!(pulse.is_beating_at(begun + at), at <= 10_000, "{at}");
            }
            drop(hangs);
            turns.beat_at(begun + 20_001);
            assert_eq!(told.load(Ordering::Relaxed), 4, "a loop that has ended does not hang");
            assert!(pulse.is_beating_at(begun + 30_001) && !pulse.is_beating_at(begun + 30_002));
        });
    }

    #[test]
    fn what_is_always_ready_does_not_keep_a_loop_from_beating() {
        in_runtime(async {
            let (pulse, told) = counting(SHORT);
            let mut heart = pulse.heart();
            let deadline = Instant::now() + Duration::from_secs(20);
            while told.load(Ordering::Relaxed) < 3 && Instant::now() < deadline {
                heart.beside(tokio::task::yield_now()).await;
            }
            assert!(told.load(Ordering::Relaxed) >= 3);
        });
    }
}
