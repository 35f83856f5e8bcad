//! Publishes the version that a command without a daemon has activated, as the daemon would do.
//!
//! Root does not publish into another user's folder, because the daemon could not replace or remove what root creates.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use crate::config::inputs::ConfigInputs;
use docwharf_agent::publish::{PublishCheck, publish_version};
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::open;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::limits::BundleLimits;
use docwharf_site::seal::SealOptions;

use super::failure::CommandFailure;

/// Publishes the active version if `publish.directory` is set, whatever mistakes the rest of the configuration has.
pub(super) fn publish_active(config_inputs: &ConfigInputs, writer: &StoreWriter) -> Result<(), CommandFailure> {
    let Some(settings) = config_inputs.publish(writer.store().root()) else { return Ok(()) };
    let Some(active) = writer.store().record()?.active else { return Ok(()) };
    if geteuid().is_root() && folder_owner(&settings.directory).is_some_and(|owner| owner != 0) {
        let directory = settings.directory.display().to_string();
        tracing::warn!(
            "not published: {} belongs to another user; the daemon publishes when it runs, or run this command as that user",
            OneLine(&directory)
        );
        return Ok(());
    }
    let seal_options = config_inputs
        .load()
        .map_or_else(|_| SealOptions::new(BundleLimits::default()), |config| config.sync_settings.seal_options);
    let version = open::open_checked(writer, active, &seal_options)?;
    publish_version(&settings, &version, PublishCheck::CheckFiles)?;
    Ok(())
}

/// Returns the owner of a folder or, if it does not exist, of the nearest folder above it that does.
fn folder_owner(dir: &Path) -> Option<u32> {
    let absolute = std::path::absolute(dir).ok()?;
    let metadata = absolute.ancestors().find_map(|ancestor| std::fs::metadata(ancestor).ok())?;
    Some(metadata.uid())
}
