//! `docwharf config check|show|init|schema`: checks, shows, creates and describes configurations.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;

use crate::config::default_file::DEFAULT_FILE;
use crate::config::key_documents::example_config;
#[cfg(feature = "origin")]
use crate::config::origin::is_origin_file;
use crate::config::schema::config_schema;
use crate::config::show::{as_json, as_toml, lists_as_json, lists_as_toml, values_in_force};
use crate::config::starter;
use crate::daemon::DaemonError;
use crate::doctor::configuration::unintended_settings;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_serve::key_pair::KeyPair;

use super::context::CommandContext;
use super::failure::CommandFailure;
#[cfg(feature = "origin")]
use super::origin::read_origin_config;
use super::output::print;

/// The keys to set first: a configuration needs one of these sources of versions.
const FIRST_KEYS: &str = "api.baseUrl, api.domain and the key (api.keyFile, or /etc/docwharf/api-key where the systemd unit \
                          passes it on), or staticExport.bundleUrl or bundleUrlFile, or sync.inbox";

#[derive(Debug, Subcommand)]
pub(super) enum ConfigCommand {
    /// Report every mistake, and what is probably not intended
    Check(ConfigCheckCommand),
    /// Show every value in force and where it comes from; secrets are masked
    Show(ConfigShowCommand),
    /// Write a new configuration: every key with its default, or a short one to begin with
    Init(ConfigInitCommand),
    /// Print a JSON Schema of the configuration, for editors
    Schema(ConfigSchemaCommand),
}

#[derive(Debug, Args)]
pub(super) struct ConfigCheckCommand {}

#[derive(Debug, Args)]
pub(super) struct ConfigShowCommand {}

#[derive(Debug, Args)]
pub(super) struct ConfigInitCommand {
    /// Where to write it; nothing is overwritten. Default: standard output
    file: Option<PathBuf>,
    /// Write a short configuration for this kind of place
    #[arg(long = "for", value_name = "PLACE")]
    place: Option<Place>,
}

/// The place that a short configuration is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Place {
    /// A virtual machine: an inbox, and lines for the management API
    Vm,
    /// A container or pod: a volume, and the key of the API in a mounted secret
    Container,
    /// A host without a network: an inbox
    AirGap,
    /// The management API for sites of your own: `docwharf origin`
    #[cfg(feature = "origin")]
    Origin,
}

impl Place {
    fn text(self) -> &'static str {
        match self {
            Place::Vm => starter::VM,
            Place::Container => starter::CONTAINER,
            Place::AirGap => starter::AIR_GAP,
            #[cfg(feature = "origin")]
            Place::Origin => starter::ORIGIN,
        }
    }

    /// Returns the next step, for the configuration in this file.
    fn next_step(self, file: &Path) -> String {
        let option = format!(" --config {}", file.display());
        let flag = if file == Path::new(DEFAULT_FILE) { "" } else { &option };
        let bundle = "put a bundle into the inbox";
        match self {
            Place::Vm => format!("{bundle}, or set [api]; `docwharf doctor{flag}` reports what is missing"),
            Place::Container => {
                format!("set [api] and mount the secret with its key; `docwharf doctor{flag}` reports what is missing")
            }
            Place::AirGap => format!("{bundle}; `docwharf doctor{flag}` reports what is missing"),
            #[cfg(feature = "origin")]
            Place::Origin => format!(
                "set domain and directory, create a key with `docwharf origin key create docs NAME{option}`, then \
                 `docwharf origin{option}`"
            ),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct ConfigSchemaCommand {}

impl ConfigCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            ConfigCommand::Check(_) => check(context),
            ConfigCommand::Show(_) => show(context),
            ConfigCommand::Init(init) => init.run(context),
            ConfigCommand::Schema(_) => print(&format!("{:#}\n", config_schema())),
        }
    }
}

fn check(context: &CommandContext) -> Result<(), CommandFailure> {
    #[cfg(feature = "origin")]
    if let Some(path) = context.global.config.as_deref().filter(|path| is_origin_file(path)) {
        let warnings = read_origin_config(context)?.warnings.iter().map(ToString::to_string).collect::<Vec<_>>();
        return print_valid(context, Some(path), &warnings);
    }
    let config_inputs = context.config_inputs();
    let config = context.config()?;
    if config.has_nothing_to_serve() {
        let missing_config = config_inputs.missing_default_file();
        return Err(DaemonError::NothingToServe { store: config.store, missing_config }.into());
    }
    let mut warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    let sync_settings = &config.sync_settings;
    if let Some(api) = &sync_settings.api {
        // The check itself does not need the key, but a sync does.
        if let Err(error) = api.api_key.read() {
            warnings.push(error.to_string());
        }
        if api.api_key.is_too_open() {
            warnings.push(format!("{} is open to more than owner and group: chmod 0640 it", api.api_key.name()));
        }
    }
    if let Some(tls) = &config.tls {
        // The check itself does not need the certificate, but serving does.
        match KeyPair::load(&tls.files) {
            Ok(pair) => warnings.extend(pair.date_problem(std::time::SystemTime::now())),
            Err(error) => warnings.push(ErrorChain(&error).to_string()),
        }
    }
    warnings.extend(unintended_settings(&config));
    for warning in &warnings {
        context.print_note(&format!("docwharf: warning: {}", OneLine(warning)));
    }
    let (file, named) = config_inputs.file();
    print_valid(context, (named || file.exists()).then_some(&*file), &warnings)
}

/// Prints that a configuration is valid; `file` is `None` for one of the environment and defaults.
fn print_valid(context: &CommandContext, file: Option<&Path>, warnings: &[String]) -> Result<(), CommandFailure> {
    let name = file.map_or_else(|| "the environment and defaults".to_owned(), |file| file.display().to_string());
    let json = json!({ "schemaVersion": 1, "result": "ok", "file": file, "warnings": warnings });
    context.print_outcome(&json, &format!("{name}: ok\n"))
}

fn show(context: &CommandContext) -> Result<(), CommandFailure> {
    let config_inputs = context.config_inputs();
    let raw = config_inputs.read().map_err(CommandFailure::Config)?;
    // A configuration with mistakes is not in force, so it is not shown.
    let config = config_inputs.check(&raw).map_err(CommandFailure::Config)?;
    let values = values_in_force(&raw, &config, &config_inputs.folder());
    let (mut json, text) = (as_json(&values), as_toml(&values) + &lists_as_toml(&raw));
    json["lists"] = lists_as_json(&raw);
    context.print_result(&json, &text)
}

impl ConfigInitCommand {
    fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let text = self.place.map_or_else(|| Cow::Owned(example_config()), |place| Cow::Borrowed(place.text()));
        let Some(path) = self.file else { return print(&text) };
        let shown = path.display();
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder {
            std::fs::create_dir_all(folder)
                .map_err(CommandFailure::local(format!("cannot create the folder {}", folder.display())))?;
        }
        let write = || OpenOptions::new().write(true).create_new(true).open(&path)?.write_all(text.as_bytes());
        write().map_err(|error| {
            let error = if error.kind() == io::ErrorKind::AlreadyExists {
                let next = format!("edit it and check it with `docwharf config check --config {shown}`");
                io::Error::new(error.kind(), format!("it exists and was not changed; {next}, or name another file"))
            } else {
                error
            };
            CommandFailure::local(format!("cannot write {shown}"))(error)
        })?;
        let flag = if path == Path::new(DEFAULT_FILE) { String::new() } else { format!(" --config {shown}") };
        let next_step = self.place.map_or_else(
            || format!("set {FIRST_KEYS}; then `docwharf doctor{flag}` reports what is missing"),
            |place| place.next_step(&path),
        );
        context.print_note(&format!("docwharf: {next_step}"));
        print(&format!("{shown}\n"))
    }
}
