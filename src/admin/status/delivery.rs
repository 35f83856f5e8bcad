//! The part of the status about the delivery of what is recorded to an origin.

use serde::{Deserialize, Serialize};

use docwharf_base::clock::format_system_time;

use crate::admin::daemon_state::DeliveryState;

/// The delivery of what is recorded to an origin.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeliveryStatus {
    /// The URL of the origin's API.
    pub to: String,
    /// The searches that were delivered since the start.
    pub searches: u64,
    /// The counts of views that were delivered since the start; one that has changed is delivered again.
    pub counts: u64,
    /// The searches that wait.
    pub waiting_searches: u64,
    /// The counts of which the origin does not have the present value.
    pub waiting_counts: u64,
    /// The batches of searches that the origin has refused.
    pub refused_batches: u64,
    /// The counts that the origin has refused.
    pub refused_counts: u64,
    /// The searches that are not delivered, because too many waited.
    pub undelivered_searches: u64,
    /// The time of the last delivery after which nothing waited.
    pub last_success: Option<String>,
    /// The reason why the last attempt failed.
    pub error: Option<String>,
}

impl From<DeliveryState> for DeliveryStatus {
    fn from(state: DeliveryState) -> DeliveryStatus {
        DeliveryStatus {
            to: state.target,
            searches: state.delivered_searches,
            counts: state.delivered_counts,
            waiting_searches: state.waiting_searches,
            waiting_counts: state.waiting_counts,
            refused_batches: state.refused_batches,
            refused_counts: state.refused_counts,
            undelivered_searches: state.undelivered_searches,
            last_success: state.last_success.map(format_system_time),
            error: state.error,
        }
    }
}
