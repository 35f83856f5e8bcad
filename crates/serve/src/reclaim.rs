//! Memory that was freed goes back to the system after many connections, or answers that held much, have gone. The C library
//! keeps what was freed between blocks that are in use, so that a server would for ever be as large as it once had to be.

use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use docwharf_site::mapping::return_freed;

use super::crew::Crew;
use super::held::HELD;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(3);
/// What must have gone at least: giving memory back costs milliseconds.
const FEWEST_CONNECTIONS: usize = 32;
const LEAST_HELD: u64 = 4 << 20;

/// The most that there was since memory was given back.
#[derive(Debug, Default)]
struct Load {
    connections: usize,
    /// In bytes; see [`HELD`].
    held: u64,
}

impl Load {
    /// There are so many connections now, and so many bytes are held. Whether much has gone.
    fn has_gone(&mut self, connections: usize, held: u64) -> bool {
        self.connections = self.connections.max(connections);
        self.held = self.held.max(held);
        let is_gone = self.connections - connections >= FEWEST_CONNECTIONS.max(self.connections / 2)
            || self.held - held >= LEAST_HELD.max(self.held / 2);
        if is_gone {
            *self = Load { connections, held };
        }
        is_gone
    }
}

/// Gives memory back whenever much has gone, for as long as the threads serve.
pub(super) async fn give_back(crew: Crew) {
    let mut load = Load::default();
    let mut ticks = interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if load.has_gone(crew.connections(), HELD.held()) {
            // Not on a thread that serves. If it cannot be done, nothing is lost.
            let _ = spawn_blocking(return_freed).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_given_back_when_half_of_much_has_gone_and_not_for_little() {
        let mut load = Load::default();
        let seen = [(1000, 0), (900, 0), (500, 0), (480, 0), (10, 0), (9, 0), (31, 0), (0, 0)];
        let gone = seen.map(|(connections, held)| load.has_gone(connections, held));
        assert_eq!(gone, [false, false, true, false, true, false, false, false]);
        let seen = [(5, 64 << 20), (5, 40 << 20), (5, 2 << 20), (5, 5 << 20), (5, 2 << 20)];
        let gone = seen.map(|(connections, held)| load.has_gone(connections, held));
        assert_eq!(gone, [false, false, true, false, false]);
    }
}
