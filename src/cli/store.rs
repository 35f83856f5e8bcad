//! `docwharf store verify`: reads every byte of the stored versions and verifies it again.

use std::fmt::Write;

use clap::{Args, Subcommand};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;

use docwharf_agent::store::{IMAGE, VersionStore};
use docwharf_agent::sync::{SyncError, stored_index};
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::model::units::{format_count, format_size};
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::{SealOptions, verify_opened_image};

use super::context::CommandContext;
use super::failure::CommandFailure;

#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Verify the stored versions again, without changing anything
    Verify(StoreVerifyCommand),
}

#[derive(Debug, Args)]
pub(super) struct StoreVerifyCommand {
    /// Only the active version
    #[arg(long)]
    active: bool,
}

impl StoreCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            StoreCommand::Verify(verify) => verify.run(context),
        }
    }
}

impl StoreVerifyCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let store = VersionStore::at(&context.store()?);
        let seal_options = context.seal_options();
        let active = store.record()?.active;
        let versions = store.versions()?;
        if let Some(id) = active.filter(|&id| !store.has(id)) {
            return Err(CommandFailure::Damage(format!("the active version {} is missing from the store", id.short())));
        }
        let chosen = versions.iter().filter(|version| !self.active || Some(version.id) == active);
        let (mut text, mut list, mut damaged) = (String::new(), Vec::new(), Vec::new());
        for version in chosen {
            let verified = verify_version(&store, version.id, &seal_options);
            let verdict = match &verified {
                Ok(true) => "ok".to_owned(),
                Ok(false) => "ok; the index does not match and is rebuilt when the version is served next".to_owned(),
                Err(error) => OneLine(&ErrorChain(error).to_string()).to_string(),
            };
            let _ = writeln!(text, "{}  {:>8}  {verdict}", version.id.short(), format_size(version.bytes));
            list.push(json!({
                "id": version.id, "bytes": version.bytes, "ok": verified.is_ok(), "verdict": verdict,
            }));
            if verified.is_err() {
                damaged.push(version.id);
            }
        }
        context.print_result(&json!({ "schemaVersion": 1, "versions": list, "damaged": damaged }), &text)?;
        match damaged.first() {
            None => Ok(()),
            Some(first) => {
                let n = format_count(damaged.len() as u64, "version");
                Err(CommandFailure::Damage(format!(
                    "{n} damaged, such as {}: import its bundle again to replace it",
                    first.short()
                )))
            }
        }
    }
}

/// Verifies a version and returns whether its index matches as well. A lease prevents its removal meanwhile.
fn verify_version(store: &VersionStore, id: VersionId, seal_options: &SealOptions) -> Result<bool, SyncError> {
    let path = store.version_dir(id).join(IMAGE);
    // Read by descriptor: another user of the store could replace the image by a link or a named pipe.
    let image = store.image(id).map_err(|source| SyncError::Open { id, source })?;
    // A file system without locks has no leases.
    let _ = flock(&image, FlockOperation::NonBlockingLockShared);
    let verified = verify_opened_image(image.into_file(), &path, seal_options)
        .map_err(|source| SyncError::DamagedVersion { id, source: Some(source) })?;
    if verified.id != id {
        return Err(SyncError::DamagedVersion { id, source: None });
    }
    Ok(stored_index::read_index(store, id).is_ok())
}
