//! The part of the status about the recording of what readers do.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::admin::daemon_state::{RecordingCounts, RecordingState};

/// The recording of what readers do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RecordingStatus {
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The searches that were recorded since the start.
    pub searches: u64,
    /// The clicks on results of searches that were recorded since the start.
    pub clicks: u64,
    /// The views of pages that were recorded since the start.
    pub views: u64,
    /// The searches, clicks and views since the start that were lost: they could not be written, or were too many.
    pub dropped: u64,
    /// The reason why nothing is recorded at the moment.
    pub error: Option<String>,
    /// The file that was moved aside since the start, because it was damaged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damaged_file: Option<PathBuf>,
}

impl From<RecordingState> for RecordingStatus {
    fn from(state: RecordingState) -> RecordingStatus {
        let RecordingCounts { searches, clicks, views, dropped } = state.counts;
        RecordingStatus {
            bytes: state.bytes,
            searches,
            clicks,
            views,
            dropped,
            error: state.error,
            damaged_file: state.damaged_file,
        }
    }
}
