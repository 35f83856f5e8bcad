//! Counts the open connections of a listener, and signals them when the listener shuts down.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit};

use super::serving_threads::ThreadConnectionGuard;

/// The open connections of one listener, and the phase of its shutdown: open, closing or closed.
#[derive(Debug, Default)]
pub(super) struct ConnectionTracker {
    pub(super) phase: AtomicU8,
    pub(super) phase_changed: Arc<Notify>,
    open_connections: AtomicUsize,
    connection_ended: Notify,
}

/// The phase in which connections accept requests.
pub(super) const OPEN: u8 = 0;
/// The phase in which connections finish their requests and accept no more.
const CLOSING: u8 = 1;
/// The phase in which connections end at once.
pub(super) const CLOSED: u8 = 2;

impl ConnectionTracker {
    fn is_open(&self) -> bool {
        self.phase.load(Ordering::Acquire) == OPEN
    }

    /// Signals all connections to finish the requests in progress and to accept no more.
    pub(super) fn close(&self) {
        self.set_phase(CLOSING);
    }

    /// Signals all connections to end at once.
    pub(super) fn close_now(&self) {
        self.set_phase(CLOSED);
    }

    fn set_phase(&self, phase: u8) {
        self.phase.store(phase, Ordering::Release);
        self.phase_changed.notify_waiters();
    }

    /// Waits until the connections are signalled to finish.
    pub(super) async fn wait_closing(&self) {
        loop {
            let notification = self.phase_changed.notified();
            if !self.is_open() {
                return;
            }
            notification.await;
        }
    }

    /// Returns the number of open connections.
    pub(super) fn open_connections(&self) -> usize {
        self.open_connections.load(Ordering::Acquire)
    }

    /// Waits until no connection is open.
    pub(super) async fn wait_empty(&self) {
        loop {
            let notification = self.connection_ended.notified();
            if self.open_connections() == 0 {
                return;
            }
            notification.await;
        }
    }
}

/// The entry of one connection in the counts of its listener and of its thread, and its permit in the connection limit.
/// Dropping it releases all three.
#[derive(Debug)]
pub(super) struct OpenConnectionGuard {
    pub(super) tracker: Arc<ConnectionTracker>,
    _permit: OwnedSemaphorePermit,
    _thread_guard: ThreadConnectionGuard,
}

impl OpenConnectionGuard {
    /// Adds a connection to the count of its listener, with its permit in the connection limit of the process.
    pub(super) fn new(
        tracker: &Arc<ConnectionTracker>,
        permit: OwnedSemaphorePermit,
        thread_guard: ThreadConnectionGuard,
    ) -> OpenConnectionGuard {
        tracker.open_connections.fetch_add(1, Ordering::AcqRel);
        OpenConnectionGuard { tracker: Arc::clone(tracker), _permit: permit, _thread_guard: thread_guard }
    }

    /// Returns the tracker of the listener that accepted the connection.
    pub(super) fn tracker(&self) -> &ConnectionTracker {
        &self.tracker
    }
}

impl Drop for OpenConnectionGuard {
    fn drop(&mut self) {
        if self.tracker.open_connections.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.tracker.connection_ended.notify_waiters();
        }
    }
}
