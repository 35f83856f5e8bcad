//! Checks the API key: where it is, whether it can be used, which other users can read it. The key itself is never
//! shown.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::config::checked::Config;
use docwharf_agent::sync::api_key::ApiKeyLocation;

use super::check::DoctorCheck;
use super::checked_user::{CheckedUser, ServiceUser};
use super::permissions::{PathUse, find_blocked};

const CHECK_NAME: &str = "key";

pub(super) fn check(config: &Config, user: &CheckedUser) -> DoctorCheck {
    let Some(api) = &config.sync_settings.api else {
        return DoctorCheck::ok(CHECK_NAME, "not needed: there is no [api]");
    };
    let place = api.api_key.name();
    if let ApiKeyLocation::File(path) = &api.api_key
        && !user.is_process()
        && path.exists()
        && let Some(barrier) = find_blocked(CHECK_NAME, path, PathUse::Read, user)
    {
        return match user.service() {
            Some(service) => unreadable(path, &barrier.found, service),
            None => barrier,
        };
    }
    if let Err(error) = api.api_key.read() {
        return DoctorCheck::error(CHECK_NAME, error.to_string(), advice(&api.api_key));
    }
    let mode = api.api_key.file().and_then(|path| std::fs::metadata(path).ok());
    let mode =
        mode.map_or_else(String::new, |metadata| format!(", mode {:04o}", metadata.permissions().mode() & 0o7777));
    if api.api_key.is_too_open() {
        let found = format!("{place} is open to more than owner and group{mode}");
        return DoctorCheck::warning(
            CHECK_NAME,
            found,
            "chmod 0640 it, and replace the key if other users may have read it",
        );
    }
    DoctorCheck::ok(CHECK_NAME, format!("{place}{mode}"))
}

fn advice(key: &ApiKeyLocation) -> String {
    match key {
        // Only the service and root can read the unit's credential.
        ApiKeyLocation::Unset => "set one of them; if the systemd unit is installed, put the key into \
                              /etc/docwharf/api-key (mode 0600) and run `docwharf doctor` as root"
            .to_owned(),
        ApiKeyLocation::UnitCredential { path, .. } => {
            format!("install the key there: install -m 600 my-key {}; then restart the service", path.display())
        }
        _ => "put the key, and nothing else, where docwharf can read it".to_owned(),
    }
}

/// Returns the error for a key file that the service cannot read. systemd can pass it as a credential.
fn unreadable(path: &Path, why: &str, service: &ServiceUser) -> DoctorCheck {
    let found = format!("the service cannot read {} (api.keyFile): {why}", path.display());
    let removal = "remove api.keyFile from the configuration";
    let advice = if service.unit.credential("api-key") == Some(path) {
        format!("{removal}: {} passes this file to the service as the credential api-key", service.unit.name)
    } else {
        let setting = format!("LoadCredential=api-key:{}", path.display());
        format!("{removal} and let systemd pass the key: {}", service.drop_in(&setting))
    };
    DoctorCheck::error(CHECK_NAME, found, advice)
}
