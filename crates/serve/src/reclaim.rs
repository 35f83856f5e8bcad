//! Returns freed memory to the operating system after many connections, or responses that held much memory, have ended.
//! The C library does not return freed blocks between blocks in use, so the process would otherwise stay at its peak
//! size.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use docwharf_site::mapping::return_freed_memory;

use super::held_bytes::HELD;

/// The interval of the checks.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// The smallest number of ended connections after which memory is returned. Returning memory takes milliseconds.
const MIN_ENDED_CONNECTIONS: usize = 32;
/// The smallest number of freed held bytes after which memory is returned.
const MIN_FREED_BYTES: u64 = 4 << 20;

/// The peak of the load since memory was last returned.
#[derive(Debug, Default)]
struct PeakLoad {
    connections: usize,
    /// Bytes held by responses; see [`HELD`].
    held: u64,
}

impl PeakLoad {
    /// Records the peak of the connections since the last call, and the current connections and held bytes. Returns
    /// whether the load has dropped far enough below its peak to return memory.
    fn record(&mut self, peak_connections: usize, connections: usize, held: u64) -> bool {
        self.connections = self.connections.max(peak_connections).max(connections);
        self.held = self.held.max(held);
        let has_dropped = self.connections - connections >= MIN_ENDED_CONNECTIONS.max(self.connections / 2)
            || self.held - held >= MIN_FREED_BYTES.max(self.held / 2);
        if has_dropped {
            *self = PeakLoad { connections, held };
        }
        has_dropped
    }
}

/// Returns memory whenever the load has dropped, for as long as the runtime runs. `take_connections` returns the
/// largest number of open connections since its last call, which a check every few seconds would miss, and their number
/// now.
pub(super) async fn return_memory(take_connections: impl Fn() -> (usize, usize)) {
    let mut load = PeakLoad::default();
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let (peak_connections, connections) = take_connections();
        if load.record(peak_connections, connections, HELD.held()) {
            // Not on a serving thread, because it blocks. A failure has no consequences.
            let _ = spawn_blocking(return_freed_memory).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_returned_to_the_system_after_a_high_load_halves() {
        let mut load = PeakLoad::default();
        let samples = [(1000, 0), (900, 0), (500, 0), (480, 0), (10, 0), (9, 0), (31, 0), (0, 0)];
        let returned = samples.map(|(connections, held)| load.record(connections, connections, held));
        assert_eq!(returned, [false, false, true, false, true, false, false, false]);
        // Regression: memory of connections that began and ended between two checks was not returned.
        assert_eq!([load.record(400, 0, 0), load.record(0, 0, 0), load.record(31, 0, 0)], [true, false, false]);
        let samples = [(5, 64 << 20), (5, 40 << 20), (5, 2 << 20), (5, 5 << 20), (5, 2 << 20)];
        let returned = samples.map(|(connections, held)| load.record(connections, connections, held));
        assert_eq!(returned, [false, false, true, false, false]);
    }
}
