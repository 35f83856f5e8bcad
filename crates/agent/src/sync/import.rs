//! Import of a bundle by command or from the inbox.

use std::cell::RefCell;
use std::fs::File;
use std::path::Path;

use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionLabel;
use docwharf_site::seal::SealProgress;

use super::activation::{SyncReport, activate_and_prune};
use super::activation_decision::{ActivationRequest, NEVER_CANCELLED};
use super::incoming_bundle::{ArrivalCause, IncomingBundle};
use super::ingest::ingest_bundle;
use super::record_recovery::read_record;
use super::seal_operations::SealOperations;
use super::{SyncError, SyncSettings};

/// A bundle to be imported.
#[derive(Debug, Clone, Copy)]
pub struct ImportRequest<'a> {
    /// Path of the bundle.
    pub path: &'a Path,
    /// The open bundle, if it is open already: then nothing is opened by path.
    pub file: Option<&'a File>,
    /// Name of the source in receipts and messages.
    pub source: &'a str,
    /// The label that the version gets.
    pub label: Option<&'a VersionLabel>,
    /// The user or process that imports it.
    pub author: &'a str,
    /// Whether the version becomes active although the gate refuses it.
    pub force: bool,
}

/// Ingests a bundle, and activates it unless a hold, a pin or the gate prevents that. It cannot be cancelled: no later
/// sync would fetch the bundle again. `in_force` returns the configuration in force.
pub fn import<W: SealOperations>(
    store: &W,
    in_force: &dyn Fn() -> SyncSettings,
    request: ImportRequest<'_>,
    progress: &SealProgress,
) -> Result<SyncReport, SyncError> {
    let ImportRequest { path, file, source, label, author, force } = request;
    let mut record = read_record(store)?;
    let sync_settings = &in_force();
    let streamed_seal = RefCell::default();
    let cause = ArrivalCause::Import;
    let incoming_bundle = IncomingBundle {
        path,
        file,
        source,
        title: source,
        cause,
        label,
        demanded: None,
        job: None,
        sent: None,
        streamed_seal,
    };
    let ingested = match ingest_bundle(store, &mut record, sync_settings, &incoming_bundle, false, author, progress) {
        Ok(ingested) => ingested,
        Err(error) => {
            if error.is_refusal() {
                store.note(author, "refused", None, Some(ErrorChain(&error).to_string()));
            }
            return Err(error);
        }
    };
    let request = ActivationRequest { author, force, is_cancelled: NEVER_CANCELLED, in_force };
    activate_and_prune(store, &mut record, request, Some(ingested.id), Some(ingested))
}
