//! `docwharf activate`, `rollback`, `hold`, `release`, `gc`

use clap::Args;

use crate::admin::command_execution::list_surplus;
use crate::admin::control_messages::CommandAction;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::SyncIntent;

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::write_command::{self, StoreWriteCommand};

#[derive(Debug, Args)]
pub(super) struct ActivateCommand {
    /// A label, or 8 or more digits of a version's id
    #[arg(value_name = "VERSION")]
    name: String,
}

#[derive(Debug, Args)]
pub(super) struct RollbackCommand {}

#[derive(Debug, Args)]
pub(super) struct HoldCommand {
    /// The reason, shown by status and history
    #[arg(long, default_value = "held by hand")]
    reason: String,
}

#[derive(Debug, Args)]
pub(super) struct ReleaseCommand {}

#[derive(Debug, Args)]
pub(super) struct GcCommand {
    /// Only show what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// Runs a command that needs only the store's path, so that it works despite mistakes in the configuration.
fn execute_without_config(context: &CommandContext, action: CommandAction) -> Result<(), CommandFailure> {
    let intent = SyncIntent { seal_options: context.seal_options(), ..SyncIntent::default() };
    StoreWriteCommand { action, store: context.store()?, intent }.execute(context)
}

/// Runs a command that depends on the configured pin and retention.
fn execute_with_config(context: &CommandContext, action: CommandAction) -> Result<(), CommandFailure> {
    let config = context.config()?;
    StoreWriteCommand { action, store: config.store, intent: config.intent }.execute(context)
}

impl ActivateCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        // The configured activation decides whether the version is held. With mistakes in it, the default does.
        let store = context.store()?;
        let seal_options = context.seal_options();
        let intent = context
            .config()
            .map_or_else(|_| SyncIntent { seal_options, ..SyncIntent::default() }, |config| config.intent);
        StoreWriteCommand { action: CommandAction::Activate { name: self.name }, store, intent }.execute(context)
    }
}

impl RollbackCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        execute_without_config(context, CommandAction::Rollback)
    }
}

impl HoldCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        execute_without_config(context, CommandAction::Hold { reason: self.reason })
    }
}

impl ReleaseCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        execute_with_config(context, CommandAction::Release)
    }
}

impl GcCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let store = context.store()?;
        if self.dry_run && write_command::find_daemon(&store).is_none() {
            // A dry run only reads: it needs no lock, and the store may be read-only.
            let config = context.config()?;
            return write_command::print_command_result(
                context,
                &list_surplus(&VersionStore::at(&config.store), &config.intent)?,
            );
        }
        execute_with_config(context, CommandAction::Gc { dry_run: self.dry_run })
    }
}
