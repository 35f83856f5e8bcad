//! The inbox in the status: its problems, and the files in it that were not imported.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use docwharf_agent::store::record::StoreRecord;
use docwharf_agent::sync::SyncSettings;

use crate::admin::daemon_state::InboxState;

/// The state of the inbox.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InboxStatus {
    /// `sync.inbox`
    pub directory: PathBuf,
    /// The reason why the inbox cannot be used; `None` if it can.
    pub error: Option<String>,
    /// The reason why its last file was not imported: it was refused, or it cannot be read and is tried again. `None`
    /// if it was imported.
    #[serde(default)]
    pub file_error: Option<String>,
    /// The number of files that were rejected since the daemon started.
    #[serde(default)]
    pub rejected: u64,
    /// The reason why the last of them was rejected.
    #[serde(default)]
    pub last_rejected: Option<String>,
    /// The number of files that could not be imported and are tried again.
    #[serde(default)]
    pub waiting: u64,
    /// The reason why the first of them, by name, could not be imported.
    #[serde(default)]
    pub first_waiting: Option<String>,
}

impl From<InboxState> for InboxStatus {
    fn from(state: InboxState) -> InboxStatus {
        let InboxState { directory, error, file_error, .. } = state;
        let InboxState { rejected, last_rejected, waiting, first_waiting, .. } = state;
        InboxStatus { directory, error, file_error, rejected, last_rejected, waiting, first_waiting }
    }
}

/// Returns the next step if a daemon waits for the first version, and only a person can bring it.
pub fn first_version_advice(
    record: &StoreRecord,
    sync_settings: Option<&SyncSettings>,
    inbox: Option<&InboxState>,
) -> Option<String> {
    let is_empty = record.active.is_none() && record.newest.is_none();
    let waits = sync_settings.is_some_and(|sync_settings| sync_settings.enabled && !sync_settings.has_source());
    let inbox = inbox.filter(|inbox| is_empty && waits && inbox.error.is_none())?;
    Some(format!("copy a bundle to {}", inbox.directory.display()))
}
