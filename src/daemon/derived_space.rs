//! Whether there is disk space for files that are derived from versions. The configured limits of the store count, too.

use crate::admin::daemon_state::DaemonState;
use docwharf_agent::store::space::{SpaceLimits, free_bytes, is_over};
use docwharf_agent::store::{StoreError, VersionStore};
use docwharf_base::model::units::format_size;

/// Returns the reason why `added_bytes` cannot be written with `reserved_bytes` left free for the next bundle; `None`
/// if they can.
pub fn find_space_problem(
    store: &VersionStore,
    space_limits: &SpaceLimits,
    added_bytes: u64,
    reserved_bytes: u64,
) -> Result<Option<String>, StoreError> {
    let SpaceLimits { min_free, max_bytes, .. } = *space_limits;
    let min_free = min_free.unwrap_or(0);
    let free = free_bytes(store.root()).map_err(StoreError::io("read the free space of", store.root()))?;
    if let Some(free) = free.filter(|free| *free < added_bytes.saturating_add(reserved_bytes).saturating_add(min_free))
    {
        let for_bundle = if reserved_bytes == 0 {
            String::new()
        } else {
            format!(", and {} for the next bundle", format_size(reserved_bytes))
        };
        let [more, free, kept] = [added_bytes, free, min_free].map(format_size);
        return Ok(Some(format!(
            "up to {more} are needed{for_bundle}; {free} are free, of which {kept} must stay free (store.minFree)"
        )));
    }
    if let Some(limit) = max_bytes
        && is_over(space_limits, &store.sizes()?, added_bytes)
    {
        let (more, limit) = (format_size(added_bytes), format_size(limit));
        return Ok(Some(format!("up to {more} more would be over store.maxBytes ({limit})")));
    }
    Ok(None)
}

/// Returns the limits of the store that are in force in a daemon.
pub(super) fn space_limits(daemon_state: &DaemonState) -> SpaceLimits {
    daemon_state.snapshot().sync_settings.map(|sync_settings| sync_settings.space_limits).unwrap_or_default()
}
