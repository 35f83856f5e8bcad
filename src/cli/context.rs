//! The global options, and what commands derive from them: the configuration, the store, logging and printing.

use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::checked::Config;
use crate::config::inputs::ConfigInputs;
use crate::config::problem::ConfigProblem;
use crate::config::systemd_unit::ServiceUnit;
use docwharf_base::accounts::resolve_uid_name;
use docwharf_base::child_network::ChildNetwork;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::units::format_count;
use docwharf_site::lookup::AddressSettings;
use docwharf_site::seal::SealOptions;

use super::failure::CommandFailure;
use super::output::print;

/// The longest time that a writing command waits while another process holds the lock of the store.
pub(super) const STORE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the network of the programs of docwharf that a command starts. Without a configuration, which may have
/// mistakes, it is none: whether the host is air-gapped is not known.
pub(super) fn own_program_network(config: Option<&Config>) -> ChildNetwork {
    config.map_or(ChildNetwork::NoSockets, |config| ChildNetwork::for_own_program(&config.deployment.outbound_policy()))
}

/// The options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub(super) struct GlobalOptions {
    /// The configuration file; default: `$DOCWHARF_CONFIG`, else `/etc/docwharf/config.toml`
    #[arg(long, global = true, value_name = "FILE")]
    pub(super) config: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long, global = true)]
    pub(super) json: bool,
    /// Print only errors and the requested result
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub(super) quiet: bool,
    /// Log more; twice: even more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
    /// Use of colour
    #[arg(long, global = true, value_name = "WHEN", value_parser = ["auto", "always", "never"], default_value = "auto")]
    pub(super) color: String,
}

/// The global options, and what commands derive from them.
pub(super) struct CommandContext {
    pub(super) global: GlobalOptions,
    /// Whether this process is the service (`run`), which uses only what is passed to it and does not read its unit.
    pub(super) is_service: bool,
}

impl CommandContext {
    pub(super) fn start_logging(&self, default: &str) {
        let level = match (self.global.quiet, self.global.verbose) {
            (true, _) => "error",
            (_, 0) => default,
            (_, 1) => "debug",
            (_, _) => "trace",
        };
        let from_env =
            ["DOCWHARF_LOG", "RUST_LOG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
        let default_filter = || format!("docwharf={level}").parse::<Targets>().ok();
        let filter = from_env.and_then(|directives| directives.parse().ok()).or_else(default_filter);
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false).with_ansi(false);
        // Libraries log URLs and header fields, which may contain secrets. Only the lines of docwharf are shown.
        let own_lines = filter_fn(|metadata| metadata.target().starts_with("docwharf"));
        let subscriber = tracing_subscriber::registry().with(filter.unwrap_or_default());
        // The journal adds its own timestamps. If this process has a subscriber already, `try_init` fails, and that one
        // stays.
        let _ = if std::env::var_os("JOURNAL_STREAM").is_some() {
            subscriber.with(lines.without_time().with_filter(own_lines)).try_init()
        } else {
            subscriber.with(lines.with_filter(own_lines)).try_init()
        };
    }

    pub(super) fn config_inputs(&self) -> ConfigInputs {
        ConfigInputs { config_path: self.global.config.clone(), uses_unit: !self.is_service, ..ConfigInputs::default() }
    }

    /// Returns the command that starts the daemon for this configuration, through the systemd unit if there is one.
    pub(super) fn start_command(&self) -> String {
        let (file, is_named) = self.config_inputs().file();
        match ServiceUnit::for_configuration(&file) {
            Some(unit) => format!("systemctl start {}", unit.name.trim_end_matches(".service")),
            None if is_named => format!("docwharf run --config {}", file.display()),
            None => "docwharf run".to_owned(),
        }
    }

    pub(super) fn config(&self) -> Result<Config, CommandFailure> {
        self.config_inputs().load().map_err(CommandFailure::Config)
    }

    /// Returns the path of the store. If the configuration has mistakes and the store exists, the mistakes are only
    /// printed: an operator can still see what is served, and roll back.
    pub(super) fn store(&self) -> Result<PathBuf, CommandFailure> {
        match self.config() {
            Ok(config) => Ok(config.store),
            Err(CommandFailure::Config(problems)) => {
                let Some(store) = self.config_inputs().store().filter(|store| store.is_dir()) else {
                    return Err(CommandFailure::Config(problems));
                };
                for problem in &problems {
                    eprintln!("docwharf: {}", OneLine(&problem.to_string()));
                }
                Ok(store)
            }
            Err(other) => Err(other),
        }
    }

    /// Returns the configuration if `--config` or `$DOCWHARF_CONFIG` names one; commands on a single bundle need none.
    pub(super) fn named_config(&self) -> Result<Option<Config>, CommandFailure> {
        if self.global.config.is_none() && std::env::var_os("DOCWHARF_CONFIG").is_none() {
            return Ok(None);
        }
        self.config().map(Some)
    }

    /// Returns the limits of the named configuration, or the defaults.
    pub(super) fn limits(&self) -> Result<BundleLimits, CommandFailure> {
        Ok(self.named_config()?.map_or_else(BundleLimits::default, |config| config.sync_settings.seal_options.limits))
    }

    /// Returns how the named configuration resolves addresses, or the default.
    pub(super) fn addresses(&self) -> Result<AddressSettings, CommandFailure> {
        Ok(self
            .named_config()?
            .map_or_else(AddressSettings::default, |config| config.sync_settings.gate.address_settings))
    }

    /// Returns the configured limits for opening a stored version; the defaults if the configuration has mistakes. The
    /// number of threads is that of all processors, whatever `sync.threads` says.
    pub(super) fn seal_options(&self) -> SealOptions {
        self.config()
            .map_or_else(|_| SealOptions::new(BundleLimits::default()), |config| config.sync_settings.seal_options)
    }

    /// Prints a line on standard error, unless `--quiet` is given.
    pub(super) fn print_note(&self, line: &str) {
        if !self.global.quiet {
            eprintln!("{line}");
        }
    }

    /// Prints the warnings of the configuration.
    pub(super) fn warn_about_config(&self, config: &Config) {
        self.print_config_warnings(&config.warnings);
    }

    /// Prints each warning about a configuration on a line.
    pub(super) fn print_config_warnings(&self, warnings: &[ConfigProblem]) {
        for warning in warnings {
            self.print_note(&format!("docwharf: warning: {}", OneLine(&warning.to_string())));
        }
    }

    /// Prints the first warning and the number of the others on one line (docs/design/archives.md, rule 14).
    pub(super) fn print_warnings(&self, subject: &str, warnings: &[String]) {
        if let Some(first) = warnings.first() {
            let more = if warnings.len() > 1 {
                format!(" (and {})", format_count(warnings.len() as u64 - 1, "more warning"))
            } else {
                String::new()
            };
            let line = format!("docwharf: warning: {subject}: {first}{more}");
            self.print_note(&OneLine(&line).to_string());
        }
    }

    /// Prints the result of a query: as JSON with `--json`, otherwise as text.
    pub(super) fn print_result(&self, json: &impl serde::Serialize, text: &str) -> Result<(), CommandFailure> {
        if self.global.json {
            let mut line = serde_json::to_string_pretty(json).map_err(|e| CommandFailure::Output(e.into()))?;
            line.push('\n');
            print(&line)
        } else {
            print(text)
        }
    }

    /// Prints the result of an action like [`CommandContext::print_result`], but no text with `--quiet`.
    pub(super) fn print_outcome(&self, json: &impl serde::Serialize, text: &str) -> Result<(), CommandFailure> {
        if self.global.quiet && !self.global.json { Ok(()) } else { self.print_result(json, text) }
    }

    /// Returns whether to draw progress on the terminal.
    pub(super) fn shows_progress(&self) -> bool {
        !self.global.quiet && !self.global.json && io::stderr().is_terminal()
    }
}

/// Returns the name of the user who runs the command, for receipts and history.
pub(super) fn current_user_name() -> String {
    let name = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).or_else(|_| std::env::var("LOGNAME"));
    let name_of_uid = || resolve_uid_name(&format!("uid {}", rustix::process::getuid().as_raw()));
    name.ok().filter(|name| !name.is_empty()).unwrap_or_else(name_of_uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_programs_have_a_network_only_if_the_configuration_is_known_and_not_air_gapped() {
        let network = |text: &str| {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("config.toml");
            std::fs::write(&path, text).unwrap();
            let inputs = ConfigInputs { config_path: Some(path), ignores_environment: true, ..ConfigInputs::default() };
            own_program_network(Some(&inputs.load().unwrap()))
        };
        assert_eq!(own_program_network(None), ChildNetwork::NoSockets);
        assert_eq!(network("[deployment]\ntype = \"air-gapped\"\n"), ChildNetwork::NoSockets);
        assert_eq!(network(""), ChildNetwork::Inherited);
    }
}
