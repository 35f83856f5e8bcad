//! `[publish]`: the folder in which the site is published as files, and the mode of these files.

use std::path::{Path, PathBuf};

use docwharf_agent::publish::PublishSettings;
use docwharf_site::extract::FileModes;

use super::checker::ValueChecker;
use super::problem::ConfigProblem;
use super::store_path::outside_store;
use super::written_value::ConfigValue;

/// The default mode of published files. Another server runs as another user, so all users may read them.
const DEFAULT_FILE_MODE: u32 = 0o644;

/// Checks the section. `store` is the path of the store.
pub(super) fn check_publish(
    checker: &mut ValueChecker<'_>,
    base_of: &dyn Fn(&str) -> PathBuf,
    store: &Path,
    warnings: &mut Vec<ConfigProblem>,
) -> Option<PublishSettings> {
    let mode = checker.value("publish.mode", |value| {
        parse_octal(value).filter(|mode| mode & !0o666 == 0 && mode & 0o400 != 0).ok_or_else(|| {
            "a file mode in quotes such as \"0644\" is needed, with which the owner may read, and no user may execute"
                .to_owned()
        })
    });
    let umask = checker.value("publish.umask", |value| {
        parse_octal(value).filter(|umask| umask & !0o077 == 0).ok_or_else(|| {
            "a umask in quotes such as \"0022\" is needed, which removes no right of the owner".to_owned()
        })
    });
    let raw = checker.raw;
    if let (Some(_), Some(written)) = (raw.get("publish.mode"), raw.get("publish.umask")) {
        let message = "publish.umask: publish.mode replaces it; remove one of them".to_owned();
        warnings.push(ConfigProblem { place: written.place.clone(), message });
    }
    let directory = checker.parsed("publish.directory", |text| {
        // Symbolic links are resolved when the site is published.
        outside_store(base_of("publish.directory").join(text), store)
    })?;
    let modes = match (mode, umask) {
        (None, Some(umask)) => FileModes::from_umask(umask),
        (mode, _) => FileModes::from_file_mode(mode.unwrap_or(DEFAULT_FILE_MODE)),
    };
    Some(PublishSettings { directory, store: store.to_owned(), modes })
}

/// Parses octal digits, as for `chmod`. A number in TOML is refused, because it would be decimal.
fn parse_octal(value: &ConfigValue) -> Option<u32> {
    match value {
        ConfigValue::Text(text) if (3..=4).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()) => {
            u32::from_str_radix(text, 8).ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::written::WrittenConfig;

    fn checked(text: &str) -> (Option<PublishSettings>, Vec<ConfigProblem>, Vec<ConfigProblem>) {
        let mut raw = WrittenConfig::default();
        raw.read_toml(&format!("[publish]\n{text}"), Path::new("/etc/c.toml"));
        let mut checker = ValueChecker { raw: &raw, problems: Vec::new() };
        let mut warnings = Vec::new();
        let settings = check_publish(&mut checker, &|_| "/etc".into(), Path::new("/store"), &mut warnings);
        (settings, checker.problems, warnings)
    }

    fn modes(text: &str) -> (u32, u32) {
        let (settings, problems, _) = checked(&format!("directory = \"www\"\n{text}"));
        let settings = settings.unwrap_or_else(|| panic!("{problems:?}"));
        assert_eq!(settings.directory, Path::new("/etc/www"));
        (settings.modes.file, settings.modes.folder)
    }

    #[test]
    fn publish_mode_is_used_exactly_and_umask_clears_bits_of_files_and_folders() {
        assert_eq!(modes(""), (0o644, 0o755));
        assert_eq!(modes("mode = \"0440\""), (0o440, 0o750));
        assert_eq!(modes("umask = \"0027\""), (0o640, 0o750));
        assert_eq!(modes("umask = \"002\""), (0o664, 0o775));
        assert_eq!(modes("mode = \"0600\"\numask = \"0022\""), (0o600, 0o700));
        assert_eq!(checked("directory = \"www\"\nmode = \"0600\"\numask = \"0022\"").2.len(), 1);
    }

    #[test]
    fn invalid_publish_mode_umask_or_directory_is_reported() {
        for wrong in [
            "mode = \"0755\"",
            "mode = \"4644\"",
            "mode = \"0066\"",
            "mode = \"+644\"",
            "mode = \"0648\"",
            "mode = 644",
            "umask = \"0222\"",
            "umask = \"x\"",
            "directory = \"/store\"",
            "directory = \"/store/versions\"",
        ] {
            let (_, problems, _) = checked(wrong);
            assert_eq!(problems.len(), 1, "{wrong}: {problems:?}");
        }
        assert!(checked("directory = \"/store2\"").0.is_some());
    }
}
