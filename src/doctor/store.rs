//! Checks the store: its record, and whether the versions that the record names exist undamaged.

use std::io;
use std::path::Path;

use docwharf_agent::store::{StoreError, VersionStore, lock_holder};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::format_count;

use super::check::DoctorCheck;

const CHECK_NAME: &str = "store";

const PERMISSIONS_ADVICE: &str = "the check of permissions, below, reports which owner or mode to change";

pub(super) fn check(root: &Path) -> Vec<DoctorCheck> {
    let store = VersionStore::at(root);
    if !root.exists() {
        return vec![DoctorCheck::ok(
            CHECK_NAME,
            format!("{} does not exist yet: the first sync or import creates it", root.display()),
        )];
    }
    let record = match store.record() {
        Ok(record) => record,
        Err(error) => {
            let advice = if is_denied(&error) {
                PERMISSIONS_ADVICE
            } else {
                "start docwharf run, or sync, which writes it anew"
            };
            return vec![DoctorCheck::error(CHECK_NAME, ErrorChain(&error).to_string(), advice)];
        }
    };
    let versions = match store.versions() {
        Ok(versions) => versions,
        Err(error) => {
            let advice =
                if is_denied(&error) { PERMISSIONS_ADVICE } else { "check the disk and the folder of the store" };
            return vec![DoctorCheck::error(CHECK_NAME, ErrorChain(&error).to_string(), advice)];
        }
    };
    let mut checks = Vec::new();
    if let Some(id) = record.active.filter(|&id| !store.has(id)) {
        let found = format!("the active version {} is missing from {}", id.short(), root.display());
        checks.push(DoctorCheck::error(
            CHECK_NAME,
            found,
            "import its bundle again, or activate another: docwharf versions lists them",
        ));
    }
    for id in store.damaged_versions() {
        let found = format!("version {} is damaged in the store", id.short());
        checks.push(DoctorCheck::error(CHECK_NAME, found, "import its bundle again to replace it, and check the disk"));
    }
    if let Some(error) = &record.config_error {
        let found = format!("the running docwharf has not applied the configuration: {error}");
        checks.push(DoctorCheck::warning(CHECK_NAME, found, "correct it; docwharf reads it again automatically"));
    }
    if checks.is_empty() {
        let active = record.active.map_or_else(|| "none active".to_owned(), |id| format!("{} active", id.short()));
        let writer = lock_holder(root).map_or_else(String::new, |pid| format!("; in use by pid {pid}"));
        let versions = format_count(versions.len() as u64, "version");
        checks.push(DoctorCheck::ok(CHECK_NAME, format!("{}: {versions}, {active}{writer}", root.display())));
    }
    checks
}

/// Whether an error goes back to a refused access.
fn is_denied(error: &StoreError) -> bool {
    let causes = std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source());
    let mut io_errors = causes.filter_map(|error| error.downcast_ref::<io::Error>());
    io_errors.any(|error| error.kind() == io::ErrorKind::PermissionDenied)
}
