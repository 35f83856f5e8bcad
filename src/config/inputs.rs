//! The inputs of an agent's configuration: the file, the environment, and the systemd unit that runs it.

use std::path::{Path, PathBuf};

use docwharf_agent::publish::PublishSettings;
use docwharf_base::accounts::describe_user;
use docwharf_base::regular_file;

use super::checked::{Config, check};
use super::checker::ValueChecker;
use super::default_file::DEFAULT_FILE;
use super::problem::{ConfigPlace, ConfigProblem};
use super::publish::check_publish;
use super::store_path::store_path;
use super::systemd_credentials::SystemdCredentials;
use super::systemd_unit::ServiceUnit;
use super::written::WrittenConfig;

/// The maximum size of a configuration file in bytes: it has a few lines, perhaps with rules.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The inputs of the configuration: a file, the environment, and the systemd unit that runs it.
#[derive(Debug, Clone, Default)]
pub struct ConfigInputs {
    /// The path of `--config`, if it is given.
    pub config_path: Option<PathBuf>,
    /// Whether the environment is ignored.
    pub ignores_environment: bool,
    /// Whether there was a file with content when the configuration was first read.
    pub had_file: bool,
    /// Whether a command of root uses the credentials and the environment of the systemd unit that runs this
    /// configuration. The service itself has only those that systemd passes to it.
    pub uses_unit: bool,
}

impl ConfigInputs {
    /// Returns the path of the file, and whether it was named explicitly.
    pub fn file(&self) -> (PathBuf, bool) {
        let named = self.config_path.clone().or_else(|| std::env::var_os("DOCWHARF_CONFIG").map(PathBuf::from));
        let is_named = named.is_some();
        let path = named.unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        // Absolute, so that the name of the source in receipts identifies the file.
        (std::path::absolute(&path).unwrap_or(path), is_named)
    }

    /// Returns the path of the default file if no file is named and that one is missing.
    pub fn missing_default_file(&self) -> Option<PathBuf> {
        let (file, is_named) = self.file();
        (!is_named && !file.exists()).then_some(file)
    }

    /// Returns the folder of the file, to which relative paths in it refer.
    pub fn folder(&self) -> PathBuf {
        self.file().0.parent().unwrap_or(Path::new("/")).to_owned()
    }

    /// Returns the systemd unit that runs this configuration, if root runs a command next to the service.
    pub fn unit(&self) -> Option<ServiceUnit> {
        let is_root = rustix::process::geteuid().is_root();
        (self.uses_unit && is_root).then(|| ServiceUnit::for_configuration(&self.file().0)).flatten()
    }

    /// Reads file and environment, and checks them.
    pub fn load(&self) -> Result<Config, Vec<ConfigProblem>> {
        self.read().and_then(|raw| self.check(&raw))
    }

    /// Returns the path of the store, even if other parts of the configuration have mistakes.
    pub fn store(&self) -> Option<PathBuf> {
        let raw = self.read().ok()?;
        // In a file with mistakes, the default would only be a guess, and a wrong store is worse than none.
        if raw.get("store.path").is_none() && std::env::var_os("STATE_DIRECTORY").is_none() {
            return None;
        }
        self.check_part(&raw, store_path)
    }

    /// Returns the settings of publishing for this store, even if other parts of the configuration have mistakes.
    pub fn publish(&self, store: &Path) -> Option<PublishSettings> {
        let raw = self.read().ok()?;
        self.check_part(&raw, |checker, base_of| check_publish(checker, base_of, store, &mut Vec::new())).flatten()
    }

    /// Checks one part of the configuration; `None` if that part has mistakes.
    fn check_part<T>(
        &self,
        raw: &WrittenConfig,
        part: impl FnOnce(&mut ValueChecker<'_>, &dyn Fn(&str) -> PathBuf) -> T,
    ) -> Option<T> {
        let mut checker = ValueChecker { raw, problems: Vec::new() };
        let config_folder = self.folder();
        let base_of = |key: &str| raw.base_of(key, &config_folder);
        let found = part(&mut checker, &base_of);
        checker.problems.is_empty().then_some(found)
    }

    /// Reads the configuration again while an earlier one is in force. If there was a file and it is missing or empty
    /// now, that is a mistake and not a configuration.
    pub fn reload(&self) -> Result<Config, Vec<ConfigProblem>> {
        let (path, _) = self.file();
        let is_empty = std::fs::metadata(&path).map_or(self.had_file, |metadata| metadata.len() == 0);
        if self.had_file && is_empty {
            let message = format!("{} is empty or missing", path.display());
            return Err(vec![ConfigProblem { place: ConfigPlace::Missing, message }]);
        }
        self.load()
    }

    /// Records whether there is a file with content, for [`ConfigInputs::reload`].
    #[must_use]
    pub fn with_file_state(self) -> ConfigInputs {
        let had_file = std::fs::metadata(self.file().0).is_ok_and(|metadata| metadata.len() > 0);
        ConfigInputs { had_file, ..self }
    }

    /// Reads file and environment as written.
    pub fn read(&self) -> Result<WrittenConfig, Vec<ConfigProblem>> {
        let (path, is_named) = self.file();
        let path_text = self.config_path.clone().unwrap_or_else(|| path.clone());
        let mut raw = WrittenConfig::default();
        match regular_file::read_text(&path, MAX_FILE_BYTES) {
            Ok(text) => raw.read_toml(&text, &path_text),
            Err(error) if !is_named && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let denied = match error.kind() {
                    std::io::ErrorKind::PermissionDenied => {
                        let user = describe_user(rustix::process::geteuid().as_raw());
                        format!(" for {user}; run the command as root (sudo)")
                    }
                    std::io::ErrorKind::NotFound => {
                        format!("; `docwharf config init {}` writes one", path_text.display())
                    }
                    _ => String::new(),
                };
                let message = format!("cannot read {}: {error}{denied}", path_text.display());
                return Err(vec![ConfigProblem { place: ConfigPlace::Missing, message }]);
            }
        }
        let unit = self.unit();
        if !self.ignores_environment {
            let mut variables = unit.as_ref().map(ServiceUnit::environment).unwrap_or_default();
            variables.retain(|(name, _)| std::env::var_os(name).is_none());
            raw.read_env(variables.into_iter().chain(std::env::vars_os()));
        }
        raw.credentials = SystemdCredentials::new(unit);
        Ok(raw)
    }

    /// Checks a configuration that was read.
    pub fn check(&self, raw: &WrittenConfig) -> Result<Config, Vec<ConfigProblem>> {
        let mut config = check(raw, &self.folder())?;
        // The variables of HTTP proxies are part of the environment.
        config.sync_settings.network.ignore_proxies = self.ignores_environment;
        if let Some(ask) = &mut config.assistant.ask {
            ask.network.ignore_proxies = self.ignores_environment;
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_environment_its_proxies_are_not_used_either() {
        for ignores_environment in [false, true] {
            let inputs = ConfigInputs { ignores_environment, ..ConfigInputs::default() };
            let config = inputs.check(&WrittenConfig::default()).unwrap_or_else(|problems| panic!("{problems:?}"));
            assert_eq!(config.sync_settings.network.ignore_proxies, ignores_environment);
        }
    }

    #[test]
    fn a_reload_misses_a_file_that_had_content_at_the_start_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        let put = |text: &str| std::fs::write(&path, text).unwrap();
        let start = || {
            let config_path = Some(path.clone());
            ConfigInputs { config_path, ignores_environment: true, ..ConfigInputs::default() }.with_file_state()
        };
        let reload = |inputs: &ConfigInputs| {
            let loaded = inputs.reload().map(|config| config.sync_settings.space_limits.keep);
            loaded.map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        let missed = || Err(vec![format!("configuration: {} is empty or missing", path.display())]);
        put("");
        let empty = start();
        assert_eq!(reload(&empty), Ok(3), "it was empty at the start, too");
        put("[sync]\nkeep = 7\n");
        assert_eq!(reload(&empty), Ok(7));
        let filled = start();
        put("[sync]\nkeep = 8\n");
        assert_eq!(reload(&filled), Ok(8));
        put("");
        assert_eq!(reload(&filled), missed());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(reload(&filled), missed());
        let absent = start().reload().expect_err("a file that is named must exist");
        assert!(absent[0].message.starts_with(&format!("cannot read {}: ", path.display())), "{absent:?}");
    }
}
