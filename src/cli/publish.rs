//! What a command without a daemon has made active is published, as the daemon would do.
//!
//! Not by root into the folder of somebody else: what root makes there, the daemon could neither replace nor remove.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::geteuid;

use docwharf_base::chain::OneLine;
use crate::config::checked::Sources;
use docwharf_base::model::limits::BundleLimits;
use docwharf_agent::publish::{Care, bring_up_to_date};
use docwharf_site::seal::Effort;
use docwharf_agent::store::writer::Writer;
use docwharf_agent::sync::open;

use super::Failure;

/// Publishes what is active, if the configuration says where; mistakes elsewhere in it do not matter here.
pub(super) fn published(sources: &Sources, writer: &Writer) -> Result<(), Failure> {
    let Some(settings) = sources.publish(writer.store().root()) else { return Ok(()) };
    let Some(active) = writer.store().record()?.active else { return Ok(()) };
    if geteuid().is_root() && owner(&settings.directory).is_some_and(|owner| owner != 0) {
        let directory = settings.directory.display().to_string();
        tracing::warn!(
            "not published: {} is another user's; the daemon publishes when it runs, or type this as that user",
            OneLine(&directory)
        );
        return Ok(());
    }
    let effort = sources.load().map_or_else(|_| Effort::new(BundleLimits::default()), |config| config.intent.effort);
    let version = open::open_doubted(writer, active, &effort)?;
    bring_up_to_date(&settings, &version, Care::Look)?;
    Ok(())
}

/// The user to whom a folder belongs, or the one that it would be made in.
fn owner(dir: &Path) -> Option<u32> {
    let whole = std::path::absolute(dir).ok()?;
    let metadata = whole.ancestors().find_map(|above| std::fs::metadata(above).ok())?;
    Some(metadata.uid())
}
