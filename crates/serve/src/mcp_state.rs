//! The state of the MCP server of a site: its counters, and the bounds of its requests.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::mcp_statistics::{McpCounts, McpOperation, McpOutcome};
use super::request_rate::RequestRate;

/// The maximum number of requests that are answered at a time.
const MAX_CALLS: usize = 16;

/// The state of the MCP server of a site.
#[derive(Debug)]
pub(crate) struct McpState {
    counts: McpCounts,
    rate: RequestRate,
    calls: Arc<Semaphore>,
}

impl Default for McpState {
    fn default() -> McpState {
        McpState {
            counts: McpCounts::default(),
            rate: RequestRate::default(),
            calls: Arc::new(Semaphore::new(MAX_CALLS)),
        }
    }
}

impl McpState {
    /// Counts a request.
    pub(crate) fn count(&self, operation: McpOperation, outcome: McpOutcome) {
        self.counts.count_with(operation, outcome);
    }

    /// Returns the counts.
    pub(crate) fn counts(&self) -> &McpCounts {
        &self.counts
    }

    /// Counts a request of a client in its minute and returns whether it is allowed.
    pub(crate) fn allows_request_from(&self, address: IpAddr, max_per_minute: NonZeroU32) -> bool {
        self.rate.allow_now(address, max_per_minute.get())
    }

    /// Returns a permit to answer a request; `None` if too many are being answered.
    pub(crate) fn try_begin_call(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.calls).try_acquire_owned().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_requests_are_answered_at_a_time() {
        let state = McpState::default();
        let mut permits: Vec<_> = (0..MAX_CALLS).map(|_| state.try_begin_call().unwrap()).collect();
        assert!(state.try_begin_call().is_none());
        permits.pop();
        assert!(state.try_begin_call().is_some());
    }
}
