//! A watchdog for the loops of the server: the accept loops and the serving threads. Each loop reports that it still
//! runs. A separate timer would still report when the loops hang.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::{Interval, MissedTickBehavior};

use docwharf_base::locks::Mutex;

/// The default interval of a loop's reports. A wake-up costs nothing compared with a request.
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_secs(2);
/// The number of intervals without a report after which a loop counts as hanging. One or two reports may be late on a
/// busy machine.
const MAX_MISSED_HEARTBEATS: u32 = 5;

/// The watchdog of a server: it is healthy as long as each of its loops reports.
pub struct Watchdog {
    /// The interval of reports and notifications.
    interval: Duration,
    started_at: Instant,
    /// The last report of each loop, in microseconds since `started_at`.
    loops: Mutex<Vec<Arc<AtomicU64>>>,
    /// The last call of `notify`, in microseconds since `started_at`; 0 before the first.
    last_notified: AtomicU64,
    notify: Box<dyn Fn() + Send + Sync>,
}

impl Watchdog {
    /// Creates a watchdog whose loops report at this interval. `notify` is called at the same interval while all loops
    /// report. It is one call for all loops. The loops call it, so it must not block.
    pub fn new(interval: Duration, notify: impl Fn() + Send + Sync + 'static) -> Arc<Watchdog> {
        let interval = interval.max(Duration::from_millis(1));
        Arc::new(Watchdog {
            interval,
            started_at: Instant::now(),
            loops: Mutex::default(),
            last_notified: AtomicU64::new(0),
            notify: Box::new(notify),
        })
    }

    /// Registers another loop until the returned value is dropped. Must be called within a tokio runtime.
    pub fn register(self: &Arc<Watchdog>) -> Heartbeat {
        let last_beat = Arc::new(AtomicU64::new(self.now()));
        self.loops.lock().push(Arc::clone(&last_beat));
        let mut tick = tokio::time::interval(self.interval);
        // After a pause a single report is enough.
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Heartbeat { watchdog: Arc::clone(self), last_beat, tick }
    }

    /// Returns whether every loop runs. It is true before the first loop starts and after the last has ended.
    pub fn is_healthy(&self) -> bool {
        self.is_healthy_at(self.now())
    }

    fn is_healthy_at(&self, now: u64) -> bool {
        let max_age = u64::try_from((self.interval * MAX_MISSED_HEARTBEATS).as_micros()).unwrap_or(u64::MAX);
        let loops = self.loops.lock();
        loops.iter().all(|last| now.saturating_sub(last.load(Ordering::Relaxed)) <= max_age)
    }

    /// Claims the next call of `notify`: true if none was made for half an interval. There is a loop on each core, and
    /// one call for all of them is enough.
    fn claim_notification(&self, now: u64) -> bool {
        let half = u64::try_from((self.interval / 2).as_micros()).unwrap_or(u64::MAX);
        let last_notified = self.last_notified.load(Ordering::Relaxed);
        let is_due = last_notified == 0 || now.saturating_sub(last_notified) >= half;
        is_due && self.last_notified.compare_exchange(last_notified, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started_at.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("interval", &self.interval).finish_non_exhaustive()
    }
}

/// The registration of one loop with the watchdog, by which the loop reports.
#[derive(Debug)]
pub struct Heartbeat {
    watchdog: Arc<Watchdog>,
    last_beat: Arc<AtomicU64>,
    tick: Interval,
}

impl Heartbeat {
    /// Reports that this loop runs.
    pub fn beat(&self) {
        self.beat_at(self.watchdog.now().max(1));
    }

    fn beat_at(&self, now: u64) {
        self.last_beat.store(now, Ordering::Relaxed);
        if self.watchdog.is_healthy_at(now) && self.watchdog.claim_notification(now) {
            (self.watchdog.notify)();
        }
    }

    /// Waits for `future`, and reports meanwhile: a loop that waits does not hang.
    pub async fn beat_while<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        loop {
            tokio::select! {
                // Under load `future` is always ready, so the report has to come first.
                biased;
                _ = self.tick.tick() => self.beat(),
                output = &mut future => return output,
            }
        }
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let mut loops = self.watchdog.loops.lock();
        loops.retain(|last| !Arc::ptr_eq(last, &self.last_beat));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST_INTERVAL: Duration = Duration::from_millis(2);

    fn in_runtime(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(test);
    }

    /// Returns a watchdog that counts its notifications.
    fn counting_watchdog(interval: Duration) -> (Arc<Watchdog>, Arc<AtomicU64>) {
        let notifications = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&notifications);
        let notify = move || {
            count.fetch_add(1, Ordering::Relaxed);
        };
        (Watchdog::new(interval, notify), notifications)
    }

    #[test]
    fn one_hung_event_loop_stops_the_watchdog_notifications_though_another_runs() {
        in_runtime(async {
            // In microseconds: a loop may be late by five intervals of 2 ms, and `notify` is called at most once in
            // half an interval.
            let (watchdog, notifications) = counting_watchdog(TEST_INTERVAL);
            assert!(watchdog.is_healthy(), "no loop is registered yet");
            let (running, hanging) = (watchdog.register(), watchdog.register());
            let start = hanging.last_beat.load(Ordering::Relaxed);
            for (at, expected) in [
                (1, 1),
                (1000, 1),
                (1001, 2),
                (10_000, 3),
                // Another loop does not hide the one that hangs.
                (10_001, 3),
                (20_000, 3),
            ] {
                running.beat_at(start + at);
                assert_eq!(notifications.load(Ordering::Relaxed), expected, "{at}");
                assert_eq!(watchdog.is_healthy_at(start + at), at <= 10_000, "{at}");
            }
            drop(hanging);
            running.beat_at(start + 20_001);
            assert_eq!(notifications.load(Ordering::Relaxed), 4, "a loop that has ended does not hang");
            assert!(watchdog.is_healthy_at(start + 30_001) && !watchdog.is_healthy_at(start + 30_002));
        });
    }

    #[test]
    fn always_ready_future_does_not_prevent_heartbeats() {
        in_runtime(async {
            let (watchdog, notifications) = counting_watchdog(TEST_INTERVAL);
            let mut heartbeat = watchdog.register();
            let deadline = Instant::now() + Duration::from_secs(20);
            while notifications.load(Ordering::Relaxed) < 3 && Instant::now() < deadline {
                heartbeat.beat_while(tokio::task::yield_now()).await;
            }
            assert!(notifications.load(Ordering::Relaxed) >= 3);
        });
    }
}
