//! `docwharf sync`: runs one sync, here or by the daemon that has the store open.

use clap::Args;

use crate::admin::control_messages::{CommandAction, CommandResult};
use crate::config::checked::{Config, SET_SOURCE_ADVICE};
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::plan::SyncTrigger;
use docwharf_agent::sync::system::TaskContext;
use docwharf_agent::sync::{SyncOutcome, SyncSettings, system};

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::interruptible::run_interruptible;
use super::publish::publish_active;
use super::write_command::{self, StoreAccess, execute_on_daemon, open_store_or_daemon, print_command_result};

#[derive(Debug, Args)]
pub(super) struct SyncCommand {
    /// Check the source although the pinned label is stored, and prefer its version to a newer import
    #[arg(long)]
    refresh: bool,
    /// Activate the new version even if the gate refuses it; a hold stays
    #[arg(long)]
    force: bool,
}

impl SyncCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        // A configuration that --config names must be valid, and must name the same source as the configuration of a
        // running daemon.
        let is_config_named = context.global.config.is_some();
        let config = if is_config_named { Some(context.config()?) } else { None };
        let source_digest = config.as_ref().map(|config| config.sync_settings.configured_source_digest());
        let store = config.as_ref().map_or_else(|| context.store(), |config| Ok(config.store.clone()))?;
        let action = CommandAction::Sync { refresh: self.refresh, force: self.force };
        if let Some(daemon) = write_command::find_daemon(&store) {
            let result = run_interruptible(context, move |task_context| {
                execute_on_daemon(&daemon, &store, action, source_digest, task_context)
            })??;
            return print_command_result(context, &result);
        }
        let config = config.map_or_else(|| context.config(), Ok)?;
        context.warn_about_config(&config);
        // Without a source there is nothing to do. That is an error only if there is no version to serve, either.
        let no_source = config.sync_settings.enabled && !config.sync_settings.has_source();
        if no_source && VersionStore::at(&config.store).versions()?.is_empty() {
            return Err(CommandFailure::NoSource(no_source_message(&config)));
        }
        if !config.sync_settings.enabled {
            let published = publish_stored_version(context, &config);
            let report = SyncReport::from_outcome(SyncOutcome::Disabled);
            return print_command_result(context, &CommandResult::from_report(&report)).and(published);
        }
        let trigger = if self.refresh { SyncTrigger::Refresh } else { SyncTrigger::Command };
        let config_inputs = context.config_inputs();
        let (result, published) = run_interruptible(context, move |task_context| {
            match open_store_or_daemon(&config.store, task_context)? {
                StoreAccess::Writer(writer) => {
                    let task_context = TaskContext { force: self.force, ..task_context.clone() };
                    let report =
                        system::sync_store(&writer, &foreground_sync_settings(&config), trigger, &task_context)?;
                    Ok((CommandResult::from_report(&report), publish_active(&config_inputs, &writer)))
                }
                StoreAccess::Daemon(daemon) => {
                    execute_on_daemon(&daemon, &config.store, action, source_digest, task_context)
                        .map(|result| (result, Ok(())))
                }
            }
        })??;
        print_command_result(context, &result).and(published)
    }
}

/// Publishes the active version although syncing is disabled: the folder of `publish.directory` may be new, as in each
/// pod with an init container. The store is opened only if it has a version to publish.
fn publish_stored_version(context: &CommandContext, config: &Config) -> Result<(), CommandFailure> {
    if config.publish.is_none() || VersionStore::at(&config.store).versions()?.is_empty() {
        return Ok(());
    }
    let (config_inputs, store) = (context.config_inputs(), config.store.clone());
    run_interruptible(context, move |task_context| match open_store_or_daemon(&store, task_context)? {
        StoreAccess::Writer(writer) => publish_active(&config_inputs, &writer),
        // The daemon publishes what it serves.
        StoreAccess::Daemon(_) => Ok(()),
    })?
}

/// Returns the message for a configuration without a source and a store without a version.
fn no_source_message(config: &Config) -> String {
    let store = config.store.display();
    match &config.inbox {
        Some(inbox) => format!(
            "there is no source to sync from, and the store {store} is empty: `docwharf run` imports the files in the inbox {}; \
             for a source, set [api], staticExport.bundleUrl or bundleUrlFile",
            inbox.display()
        ),
        None => format!("there is no source to sync from, and the store {store} is empty; {SET_SOURCE_ADVICE}"),
    }
}

/// Returns the sync settings for a command that a person waits for: it uses all processors, unless `sync.threads` is
/// set.
pub(super) fn foreground_sync_settings(config: &Config) -> SyncSettings {
    let mut sync_settings = config.sync_settings.clone();
    if let Some(threads) = config.threads {
        sync_settings.seal_options.threads = threads;
    }
    sync_settings
}
