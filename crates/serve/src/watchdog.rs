//! A watchdog for the loops of the server: the accept loops and the serving threads. Each loop reports by itself that
//! it still runs; a separate timer would go on reporting beside a server that hangs.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior, interval};

use docwharf_base::locks::Mutex;

/// The interval of a loop's reports if no one needs a shorter one. A wake-up costs nothing compared with a request.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// The number of intervals without a report after which a loop counts as hanging. One or two reports may be late on a
/// busy machine.
const MAX_MISSED_HEARTBEATS: u32 = 5;

/// The watchdog of a server: it is healthy as long as each of its loops reports.
pub struct Watchdog {
    every: Duration,
    begun: Instant,
    /// The last report of each loop, in microseconds since `begun`.
    loops: Mutex<Vec<Arc<AtomicU64>>>,
    /// The last call of `tell`, in microseconds since `begun`; 0 before the first.
    last_notified: AtomicU64,
    notify: Box<dyn Fn() + Send + Sync>,
}

impl Watchdog {
    /// Creates a watchdog whose loops report at this interval. `tell` is called at the same interval while all loops
    /// report, however many there are. The loops call it: it must not block.
    pub fn new(every: Duration, tell: impl Fn() + Send + Sync + 'static) -> Arc<Watchdog> {
        let every = every.max(Duration::from_millis(1));
        Arc::new(Watchdog {
            every,
            begun: Instant::now(),
            loops: Mutex::default(),
            last_notified: AtomicU64::new(0),
            notify: Box::new(tell),
        })
    }

    /// Registers another loop until the returned value is dropped. Must be called within a tokio runtime.
    pub fn register(self: &Arc<Watchdog>) -> Heartbeat {
        let last = Arc::new(AtomicU64::new(self.now()));
        self.loops.lock().push(Arc::clone(&last));
        let mut tick = interval(self.every);
        // After a pause a single report is enough.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Heartbeat { pulse: Arc::clone(self), last, tick }
    }

    /// Returns whether every loop runs. It is true before the first loop starts and after the last has ended.
    pub fn is_healthy(&self) -> bool {
        self.is_healthy_at(self.now())
    }

    fn is_healthy_at(&self, now: u64) -> bool {
        let late = u64::try_from((self.every * MAX_MISSED_HEARTBEATS).as_micros()).unwrap_or(u64::MAX);
        let loops = self.loops.lock();
        loops.iter().all(|last| now.saturating_sub(last.load(Ordering::Relaxed)) <= late)
    }

    /// Claims the next call of `tell`: true if none was made for half an interval. There is a loop on each core, and
    /// one call for all of them is enough.
    fn claim_notification(&self, now: u64) -> bool {
        let half = u64::try_from((self.every / 2).as_micros()).unwrap_or(u64::MAX);
        let told = self.last_notified.load(Ordering::Relaxed);
        let is_due = told == 0 || now.saturating_sub(told) >= half;
        is_due && self.last_notified.compare_exchange(told, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pulse").field("every", &self.every).finish_non_exhaustive()
    }
}

/// The registration of one loop with the watchdog, by which the loop reports.
#[derive(Debug)]
pub struct Heartbeat {
    pulse: Arc<Watchdog>,
    last: Arc<AtomicU64>,
    tick: Interval,
}

impl Heartbeat {
    /// Reports that this loop runs.
    pub fn beat(&self) {
        self.beat_at(self.pulse.now().max(1));
    }

    fn beat_at(&self, now: u64) {
        self.last.store(now, Ordering::Relaxed);
        if self.pulse.is_healthy_at(now) && self.pulse.claim_notification(now) {
            (self.pulse.notify)();
        }
    }

    /// Waits for `what`, and reports meanwhile: a loop that waits does not hang.
    pub async fn beat_while<F: Future>(&mut self, what: F) -> F::Output {
        let mut what = pin!(what);
        loop {
            tokio::select! {
                // Under load `what` is always ready, so the report has to come first.
                biased;
                _ = self.tick.tick() => self.beat(),
                done = &mut what => return done,
            }
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let mut loops = self.pulse.loops.lock();
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

    fn counting(every: Duration) -> (Arc<Watchdog>, Arc<AtomicU64>) {
        let told = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&told);
        let tell = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        (Watchdog::new(every, tell), told)
    }

    #[test]
    fn one_loop_that_hangs_stops_the_pulse_though_another_turns() {
        in_runtime(async {
            // In microseconds: a loop may be late by five intervals of 2 ms, and `tell` is called at most once in half
            // an interval.
            let (pulse, told) = counting(SHORT);
            assert!(pulse.is_healthy(), "no loop is missing yet");
            let (turns, hangs) = (pulse.register(), pulse.register());
            let begun = hangs.last.load(Ordering::Relaxed);
            for (at, expected) in [
                (1, 1),
                (1000, 1),
                (1001, 2),
                (10_000, 3),
                // Another loop does not hide the one that hangs.
                (10_001, 3),
                (20_000, 3),
            ] {
                turns.beat_at(begun + at);
                assert_eq!(told.load(Ordering::Relaxed), expected, "{at}");
                assert_eq!(pulse.is_healthy_at(begun + at), at <= 10_000, "{at}");
            }
            drop(hangs);
            turns.beat_at(begun + 20_001);
            assert_eq!(told.load(Ordering::Relaxed), 4, "a loop that has ended does not hang");
            assert!(pulse.is_healthy_at(begun + 30_001) && !pulse.is_healthy_at(begun + 30_002));
        });
    }

    #[test]
    fn what_is_always_ready_does_not_keep_a_loop_from_beating() {
        in_runtime(async {
            let (pulse, told) = counting(SHORT);
            let mut heart = pulse.register();
            let deadline = Instant::now() + Duration::from_secs(20);
            while told.load(Ordering::Relaxed) < 3 && Instant::now() < deadline {
                heart.beat_while(tokio::task::yield_now()).await;
            }
            assert!(told.load(Ordering::Relaxed) >= 3);
        });
    }
}
