//! Reports damage of `analytics.db`, whichever part of the daemon finds it.

use std::path::Path;

/// Logs that a damaged file was moved aside.
pub(super) fn report_damage(path: &Path, moved: &Path) {
    tracing::error!(
        "{} is damaged: it was moved to {}, and a new one is begun; what readers did before is missing in reports",
        path.display(),
        moved.display()
    );
}
