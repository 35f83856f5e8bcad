//! `docwharf activate`, `rollback`, `hold`, `release`, `gc`

use clap::Args;

use crate::admin::verbs::would_remove;
use crate::admin::wire::Verb;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::SyncIntent;

use super::order::{self, Wanted};
use super::{Context, Failure};

#[derive(Debug, Args)]
pub(super) struct Activate {
    /// A label, or 8 or more digits of a version's id
    #[arg(value_name = "VERSION")]
    name: String,
}

#[derive(Debug, Args)]
pub(super) struct Rollback {}

#[derive(Debug, Args)]
pub(super) struct Hold {
    /// The reason, shown by status and history
    #[arg(long, default_value = "held by hand")]
    reason: String,
}

#[derive(Debug, Args)]
pub(super) struct Release {}

#[derive(Debug, Args)]
pub(super) struct Gc {
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// Runs a command that needs only the store's path, so that it works despite mistakes in the configuration.
fn decided(context: &Context, verb: Verb) -> Result<(), Failure> {
    let intent = SyncIntent { effort: context.effort(), ..SyncIntent::default() };
    Wanted { verb, store: context.store()?, intent }.at_once(context)
}

/// Runs a command that depends on the configured pin and retention.
fn configured(context: &Context, verb: Verb) -> Result<(), Failure> {
    let config = context.config()?;
    Wanted { verb, store: config.store, intent: config.intent }.at_once(context)
}

impl Activate {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        // The configured activation decides whether the version is held. With mistakes in it, the default does.
        let store = context.store()?;
        let effort = context.effort();
        let intent =
            context.config().map_or_else(|_| SyncIntent { effort, ..SyncIntent::default() }, |config| config.intent);
        Wanted { verb: Verb::Activate { name: self.name }, store, intent }.at_once(context)
    }
}

impl Rollback {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        decided(context, Verb::Rollback)
    }
}

impl Hold {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        decided(context, Verb::Hold { reason: self.reason })
    }
}

impl Release {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        configured(context, Verb::Release)
    }
}

impl Gc {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let store = context.store()?;
        if self.dry_run && order::daemon_of(&store).is_none() {
            // A dry run only reads: it needs no lock, and the store may be read-only.
            let config = context.config()?;
            return order::tell(context, &would_remove(&VersionStore::at(&config.store), &config.intent)?);
        }
        configured(context, Verb::Gc { dry_run: self.dry_run })
    }
}
