//! Publishes the version that a command without a daemon has activated, as the daemon would do.
//!
//! Root does not publish into another user's folder: the daemon could neither replace nor remove what root creates there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use docwharf_base::chain::OneLine;
use crate::config::checked::Sources;
use docwharf_base::model::limits::BundleLimits;
use docwharf_agent::publish::{Care, bring_up_to_date};
use docwharf_site::seal::SealOptions;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::open;

use super::Failure;

/// Publishes the active version if `publish.directory` is set. Mistakes elsewhere in the configuration do not matter here.
pub(super) fn published(sources: &Sources, writer: &StoreWriter) -> Result<(), Failure> {
    let Some(settings) = sources.publish(writer.store().root()) else { return Ok(()) };
    let Some(active) = writer.store().record()?.active else { return Ok(()) };
    if geteuid().is_root() && owner(&settings.directory).is_some_and(|owner| owner != 0) {
        let directory = settings.directory.display().to_string();
        tracing::warn!(
            "not published: {} is another user's; the daemon publishes when it runs, or run this command as that user",
            OneLine(&directory)
        );
        return Ok(());
    }
    let effort = sources.load().map_or_else(|_| SealOptions::new(BundleLimits::default()), |config| config.intent.effort);
    let version = open::open_suspect(writer, active, &effort)?;
    bring_up_to_date(&settings, &version, Care::Look)?;
    Ok(())
}

/// Returns the owner of a folder or, if it does not exist, of the nearest folder above it that does.
fn owner(dir: &Path) -> Option<u32> {
    let whole = std::path::absolute(dir).ok()?;
    let metadata = whole.ancestors().find_map(|above| std::fs::metadata(above).ok())?;
    Some(metadata.uid())
}
