//! `docwharf activate`, `rollback`, `hold`, `release`, `gc`

use clap::Args;

use crate::admin::command_execution::list_prunable_versions;
use crate::admin::control_messages::CommandAction;
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::SyncSettings;

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
    let sync_settings = SyncSettings { seal_options: context.seal_options(), ..SyncSettings::default() };
    StoreWriteCommand { action, store: context.store()?, sync_settings }.execute(context)
}

/// Runs a command that depends on the configured pin and retention.
fn execute_with_config(context: &CommandContext, action: CommandAction) -> Result<(), CommandFailure> {
    let config = context.config()?;
    StoreWriteCommand { action, store: config.store, sync_settings: config.sync_settings }.execute(context)
}

impl ActivateCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        // The configured activation decides whether the version is held. With mistakes in it, the default does.
        let store = context.store()?;
        let seal_options = context.seal_options();
        let sync_settings = context
            .config()
            .map_or_else(|_| SyncSettings { seal_options, ..SyncSettings::default() }, |config| config.sync_settings);
        StoreWriteCommand { action: CommandAction::Activate { name: self.name }, store, sync_settings }.execute(context)
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
                &list_prunable_versions(&VersionStore::at(&config.store), &config.sync_settings)?,
            );
        }
        execute_with_config(context, CommandAction::Gc { dry_run: self.dry_run })
    }
}
