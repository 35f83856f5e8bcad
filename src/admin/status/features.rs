//! The part of the status that concerns the features.

use crate::features::{DaemonFeatureState, HostState, SearchIndexState};
use docwharf_base::model::version::VersionId;

use super::{DaemonStatus, SearchStatus, StoreStatus};

impl StoreStatus {
    /// Returns the part of the status that decides which features there are.
    pub fn feature_host_state(&self) -> HostState {
        host_state(self.active, self.daemon.as_ref())
    }
}

/// Returns the state of a host with this active version and this daemon, if one runs.
pub(super) fn host_state(active: Option<VersionId>, daemon: Option<&DaemonStatus>) -> HostState {
    HostState {
        has_version: daemon.map_or(active, |daemon| daemon.served).is_some(),
        daemon: daemon.map(|daemon| DaemonFeatureState {
            serves_site: !daemon.urls.is_empty(),
            search_index: daemon.search.as_ref().map(index_state),
            has_recorder: daemon.analytics.is_some(),
            recording_error: daemon.analytics.as_ref().and_then(|recording| recording.error.clone()),
            inbox_error: daemon.inbox.as_ref().and_then(|inbox| inbox.error.clone()),
            has_check_failed: daemon.failures > 0,
        }),
    }
}

fn index_state(search: &SearchStatus) -> SearchIndexState {
    match &search.error {
        Some(reason) => SearchIndexState::Failed { reason: reason.clone(), has_older: search.has_older_index },
        None if search.ready => SearchIndexState::Ready,
        None => SearchIndexState::Building { has_older: search.has_older_index },
    }
}
