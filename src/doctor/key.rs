//! The admin key: where it is, whether it can be used, who else can read it. Never the key itself.

use std::os::unix::fs::PermissionsExt;

use crate::config::checked::Config;
use crate::sync::key::KeyPlace;

use super::Check;

const NAME: &str = "key";

pub(super) fn check(config: &Config) -> Check {
    let Some(api) = &config.intent.api else { return Check::ok(NAME, "not needed: there is no [api]") };
    let place = api.key.name();
    if let Err(absent) = api.key.read() {
        // The unit's credential is there for the service alone; whoever types `doctor` beside it is not the service.
        let advice = match api.key {
            KeyPlace::Nowhere => {
                "set one of them; to look with the key of the systemd unit, run `CREDENTIALS_DIRECTORY=/etc/docwharf \
                 docwharf doctor` as root"
            }
            _ => "put the key, and nothing else, where docwharf can read it",
        };
        return Check::error(NAME, absent.to_string(), advice);
    }
    let mode = api.key.file().and_then(|path| std::fs::metadata(path).ok());
    let mode =
        mode.map_or_else(String::new, |metadata| format!(", mode {:04o}", metadata.permissions().mode() & 0o7777));
    if api.key.is_too_open() {
        let found = format!("{place} is open to more than owner and group{mode}");
        return Check::warning(NAME, found, "chmod 0640 it, and replace the key if others may have read it");
    }
    Check::ok(NAME, format!("{place}{mode}"))
}
