//! Short configurations to begin with, one for each kind of place: `docwharf config init --for`. Each of them is valid
//! and runs as it is, but that for a container needs an API and the secret with its key, and that for an origin its
//! folder. That for a container has the keys of README.md.

/// A configuration for a virtual machine with the package or the systemd unit.
pub const VM: &str = include_str!("starter/vm.toml");
/// A configuration for a container or a pod: with a volume, and the key of the API in a mounted secret.
pub const CONTAINER: &str = include_str!("starter/container.toml");
/// A configuration for a host without a network.
pub const AIR_GAP: &str = include_str!("starter/air-gap.toml");
/// A configuration of an origin, for `docwharf origin`.
#[cfg(feature = "origin")]
pub const ORIGIN: &str = include_str!("starter/origin.toml");

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::checked::check;
    use crate::config::systemd_credentials::SystemdCredentials;
    use crate::config::written::WrittenConfig;

    #[test]
    fn each_short_configuration_is_valid_has_at_most_15_lines_and_says_what_its_lines_are_for() {
        for text in [VM, CONTAINER, AIR_GAP] {
            let mut raw = WrittenConfig::default();
            raw.read_toml(text, Path::new("c.toml"));
            let config = check(&raw, Path::new("/etc")).unwrap_or_else(|problems| panic!("{problems:?}"));
            assert!(config.receives_versions() && config.warnings.is_empty(), "{:?}", config.warnings);
            assert!(text.lines().count() <= 15 && text.lines().all(|line| line.len() <= 120), "{text}");
        }
        #[cfg(feature = "origin")]
        assert!(ORIGIN.lines().count() <= 15, "{ORIGIN}");
    }

    #[test]
    fn the_api_of_the_configuration_for_a_vm_needs_no_more_than_its_comment_signs_removed() {
        // The lines of prose begin with a space after the sign.
        let lines = VM.lines().map(|line| line.strip_prefix('#').unwrap_or(line));
        let text = lines.filter(|line| !line.starts_with(' ')).collect::<Vec<_>>().join("\n");
        let mut raw = WrittenConfig::default();
        raw.read_toml(&text, Path::new("c.toml"));
        raw.credentials = SystemdCredentials::Passed("/run/credentials/docwharf.service".into());
        let config = check(&raw, Path::new("/etc/docwharf")).unwrap_or_else(|problems| panic!("{problems:?}"));
        let key = config.sync_settings.api.map(|api| api.api_key.name());
        assert_eq!(key.as_deref(), Some("/run/credentials/docwharf.service/api-key"));
    }
}
