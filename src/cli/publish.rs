//! What a command without a daemon has made active is published, as the daemon would do.

use crate::config::checked::Sources;
use crate::model::limits::Limits;
use crate::publish::{Care, bring_up_to_date};
use crate::seal::Effort;
use crate::store::writer::Writer;
use crate::sync::open;

use super::Failure;

/// Publishes what is active, if the configuration says where; mistakes elsewhere in it do not matter here.
pub(super) fn published(sources: &Sources, writer: &Writer) -> Result<(), Failure> {
    let Some(settings) = sources.publish(writer.store().root()) else { return Ok(()) };
    let Some(active) = writer.store().record()?.active else { return Ok(()) };
    let effort = sources.load().map_or_else(|_| Effort::new(Limits::default()), |config| config.intent.effort);
    let in_full = writer.store().suspect() == Some(active);
    let version = open::open(writer, active, &effort, in_full)?;
    bring_up_to_date(&settings, &version, Care::Look)?;
    Ok(())
}
