//! Executes commands that change a store, in the process that has the store open: the command's own, or the daemon.

use std::fmt::Write;

use serde_json::json;

use docwharf_agent::store::operations::StoreOperations;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::store::{StoredVersion, VersionStore};
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::record_recovery::read_record;
use docwharf_agent::sync::{SyncError, SyncOutcome, SyncSettings, operator};
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::units::{format_count, format_size};
use docwharf_site::sealed_version::SealedVersion;

use super::control_messages::{CommandAction, CommandResult};

/// Executes a command at once; returns `None` for a command that needs a sync or an import. The result contains the
/// opened version that a person has activated, if any.
pub fn execute_at_once(
    writer: &StoreWriter,
    sync_settings: &SyncSettings,
    action: &CommandAction,
    author: &str,
) -> Result<Option<(CommandResult, Option<SealedVersion>)>, SyncError> {
    let result = match action {
        CommandAction::Activate { name } => {
            let (id, sealed) = operator::activate(writer, name, author, sync_settings)?;
            let held = writer.store().record()?.hold.is_some();
            return Ok(Some((CommandResult::activated("activated", id, held), Some(sealed))));
        }
        CommandAction::Rollback => {
            let (id, sealed) = operator::rollback(writer, author, &sync_settings.seal_options)?;
            return Ok(Some((CommandResult::activated("rolled back to", id, true), Some(sealed))));
        }
        CommandAction::Hold { reason } => {
            operator::hold(writer, author, reason)?;
            let json = json!({ "schemaVersion": 1, "result": "held", "held": true });
            CommandResult::without_warnings(json, "held until `docwharf release`\n".to_owned())
        }
        CommandAction::Release => release(writer, sync_settings, author)?,
        CommandAction::Gc { dry_run: true } => list_prunable_versions(writer.store(), sync_settings)?,
        CommandAction::Gc { dry_run: false } => prune(writer, sync_settings, author)?,
        CommandAction::Sync { .. } | CommandAction::Import(_) => return Ok(None),
    };
    Ok(Some((result, None)))
}

fn release(writer: &StoreWriter, sync_settings: &SyncSettings, author: &str) -> Result<CommandResult, SyncError> {
    let (was_held, report) = operator::release(writer, sync_settings, author)?;
    release_result(writer.store(), was_held, &report)
}

/// Describes the result of a release: whether there was a hold, and the decision that followed.
pub fn release_result(store: &VersionStore, was_held: bool, report: &SyncReport) -> Result<CommandResult, SyncError> {
    let active = store.record()?.active;
    let first = if was_held { "released" } else { "there was no hold" };
    let state = active.map_or_else(|| "nothing is active".to_owned(), |id| format!("{} is active", id.short()));
    let other = match &report.outcome {
        SyncOutcome::NotActive(id, why) => format!("; {} is not: {}", id.short(), OneLine(why)),
        SyncOutcome::Staged(id) => format!("; {} is staged", id.short()),
        _ => String::new(),
    };
    let json = json!({
        "schemaVersion": 1, "result": "released", "outcome": report.outcome.name(), "version": active, "held": false,
        "wasHeld": was_held,
    });
    Ok(CommandResult::without_warnings(json, format!("{first}; {state}{other}\n")))
}

fn prune(writer: &StoreWriter, sync_settings: &SyncSettings, author: &str) -> Result<CommandResult, SyncError> {
    let removed = writer.prune(&read_record(writer)?, &sync_settings.space_limits)?;
    for version in &removed {
        writer.note(author, "pruned", Some(version.id), None);
    }
    Ok(removal_result("removed", &removed))
}

/// Lists the versions that `gc` would remove. It needs no lock.
pub fn list_prunable_versions(store: &VersionStore, sync_settings: &SyncSettings) -> Result<CommandResult, SyncError> {
    Ok(removal_result("would remove", &store.surplus(&store.record()?, &sync_settings.space_limits)?))
}

fn removal_result(what: &str, removed: &[StoredVersion]) -> CommandResult {
    let bytes = removed.iter().map(|version| version.bytes).sum();
    let mut text = String::new();
    for version in removed {
        let _ = writeln!(text, "{what} {}  {}", version.id.short(), format_size(version.bytes));
    }
    let _ = match removed.len() as u64 {
        0 => writeln!(text, "nothing to remove"),
        n => writeln!(text, "{}, {}", format_count(n, "version"), format_size(bytes)),
    };
    let list: Vec<_> = removed.iter().map(|version| json!({ "id": version.id, "bytes": version.bytes })).collect();
    let json = json!({ "schemaVersion": 1, "result": what, "versions": list, "bytes": bytes });
    CommandResult::without_warnings(json, text)
}
