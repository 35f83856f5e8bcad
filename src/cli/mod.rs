//! The command line: parses the arguments, runs the command, prints its result and returns its failure.
//!
//! Each command has a file of its own.

mod analytics;
mod api_caller;
mod audit;
mod bundle;
mod completions;
mod config;
#[cfg(feature = "origin")]
mod demo;
mod diff;
mod doctor;
mod exit;
mod export;
mod health;
mod import;
mod interruptible;
mod make_coding;
mod man;
mod operator_commands;
#[cfg(feature = "origin")]
mod origin;
mod preview;
mod progress;
mod publish;
mod redirects;
mod run;
mod serve;
mod stage;
mod status;
mod store;
mod suggestions;
mod sync;
mod text_columns;
mod version;
mod write_command;

use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::checked::Config;
use crate::config::sources::ConfigSources;
use crate::config::systemd_unit::ServiceUnit;
use docwharf_base::accounts::resolve_uid_name;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::secret::install_panic_hook;
use docwharf_site::lookup::Addresses;
use docwharf_site::mapping::limit_freed_memory;
use docwharf_site::seal::SealOptions;

pub use exit::CommandFailure;

/// How long a command that writes waits while another process holds the store's lock.
const STORE_LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Fetch, verify, seal and serve static documentation bundles
#[derive(Debug, Parser)]
#[command(name = "docwharf", version)]
#[command(
    after_help = "Exit codes: 0 done · 1 other, or something was found · 2 usage or configuration · 3 refused by the upstream · 4 upstream unavailable \
· 5 bundle rejected · 6 export job or preview failed · 7 sealed, but held, pinned or refused by the gate · 8 local (disk, permission, lock, port)"
)]
struct Cli {
    #[command(flatten)]
    global: GlobalOptions,
    #[command(subcommand)]
    command: Command,
}

/// The options of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
struct GlobalOptions {
    /// The configuration file; default: `$DOCWHARF_CONFIG`, else `/etc/docwharf/config.toml`
    #[arg(long, global = true, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the result as JSON
    #[arg(long, global = true)]
    json: bool,
    /// Print only errors and the requested result
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    quiet: bool,
    /// Log more; given twice, even more
    #[arg(long, short, global = true, action = clap::ArgAction::Count)]
    verbose: u8,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", value_parser = ["auto", "always", "never"], default_value = "auto")]
    color: String,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Keep a site up to date and serve it (the daemon)
    Run(run::RunCommand),
    /// Serve an archive or a folder, without a store
    Serve(serve::ServeCommand),
    /// Sync once with the configured source: export, fetch, verify, seal, activate
    Sync(sync::SyncCommand),
    /// Import a bundle from a file or folder into the store and activate it
    Import(import::ImportBundleCommand),
    /// Show what is served and how the last sync ended
    Status(status::StatusCommand),
    /// List the versions in the store
    Versions(status::VersionsCommand),
    /// Show who did what, and when
    History(status::HistoryCommand),
    /// Show the version that waits for activation, and its changes
    Stage(stage::StageCommand),
    /// Show the differences between two versions; exit code 1 if there are any
    Diff(diff::DiffCommand),
    /// Activate this version and hold it
    Activate(operator_commands::ActivateCommand),
    /// Activate the previous version and hold it
    Rollback(operator_commands::RollbackCommand),
    /// Stop automatic activation
    Hold(operator_commands::HoldCommand),
    /// End a hold
    Release(operator_commands::ReleaseCommand),
    /// Remove versions that are not needed
    Gc(operator_commands::GcCommand),
    /// Check whether the daemon is alive and ready
    Health(health::HealthCommand),
    /// Verify what is stored
    #[command(subcommand)]
    Store(store::StoreCommand),
    /// Serve the management API: make bundles of sites and provide links to them
    #[cfg(feature = "origin")]
    Origin(origin::OriginArgs),
    /// Run a demonstration: an origin, an agent and a site to change
    #[cfg(feature = "origin")]
    Demo(demo::DemoCommand),
    /// Run the steps of an export job one by one
    #[command(subcommand)]
    Export(export::ExportCommand),
    /// Deploy previews of branches and show their state
    #[command(subcommand)]
    Preview(preview::PreviewCommand),
    /// Show what readers search for
    #[command(subcommand)]
    Analytics(analytics::AnalyticsCommand),
    /// Check, show or create the configuration
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Verify, inspect, unpack, make and audit bundles
    #[command(subcommand)]
    Bundle(bundle::BundleCommand),
    /// Check redirects
    #[command(subcommand)]
    Redirects(redirects::RedirectsCommand),
    /// Check this host for faults: configuration, key, clock, network, disk, permissions, ports, limits
    Doctor(doctor::DoctorCommand),
    /// Print a completion script for a shell
    Completions(completions::CompletionsCommand),
    /// Print the manual page, or write those of all commands
    Man(man::ManCommand),
    /// Show the version, commit, target and features of this program
    Version(version::VersionCommand),
    /// Compress a version; started by docwharf itself
    #[command(name = crate::daemon::ENCODER_COMMAND, hide = true)]
    Recode(make_coding::MakeCodingCommand),
}

impl Command {
    /// Returns the default log level: `info` for long-running commands, `warn` for the others.
    fn default_level(&self) -> &'static str {
        match self {
            Command::Run(_) | Command::Serve(_) => "info",
            #[cfg(feature = "origin")]
            Command::Origin(_) | Command::Demo(_) => "info",
            _ => "warn",
        }
    }
}

/// The value of `--color`; unset until the command line has been parsed.
static COLOR_OPTION: OnceLock<String> = OnceLock::new();

/// Whether `--json` was given. It is set even if the rest of the command line is invalid.
static IS_JSON_WANTED: AtomicBool = AtomicBool::new(false);
/// Whether anything was printed to standard output. A program that reads one JSON document must not find two.
static HAS_PRINTED: AtomicBool = AtomicBool::new(false);

/// Reports a failure on standard error and, with `--json`, as JSON on standard output.
pub fn report(failure: &CommandFailure) {
    let line = colour_failure(failure);
    if line.is_empty() {
        return;
    }
    eprintln!("{line}");
    if IS_JSON_WANTED.load(Ordering::Relaxed) && !HAS_PRINTED.load(Ordering::Relaxed) {
        // If standard output is closed, the exit code still reports the failure.
        let _ = print(&format!("{:#}\n", failure.json()));
    }
}

/// Formats a failure for standard error, with the program's name in red where colour is wanted.
fn colour_failure(failure: &CommandFailure) -> String {
    let text = failure.to_string();
    if !wants_colour(io::stderr().is_terminal()) {
        return text;
    }
    let paint = |line: &str| match line.strip_prefix("docwharf:") {
        Some(rest) => format!("\x1b[1;31mdocwharf:\x1b[0m{rest}"),
        None => line.to_owned(),
    };
    text.lines().map(paint).collect::<Vec<_>>().join("\n")
}

/// Returns whether colour is wanted, by `--color`, `NO_COLOR` and whether the output is a terminal.
fn wants_colour(on_terminal: bool) -> bool {
    match COLOR_OPTION.get().map(String::as_str) {
        Some("always") => true,
        Some("never") => false,
        _ => on_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}

/// Runs the command line `arguments`, program name first.
pub fn run(arguments: impl Iterator<Item = OsString>) -> Result<(), CommandFailure> {
    install_panic_hook();
    limit_freed_memory();
    let arguments: Vec<OsString> = arguments.collect();
    IS_JSON_WANTED
        .store(arguments.iter().take_while(|&word| word != "--").any(|word| word == "--json"), Ordering::Relaxed);
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        // Help and version are results and go to standard output; any other error is a mistake in the arguments.
        Err(answer) if !answer.use_stderr() => return print(&answer.to_string()),
        Err(empty) if empty.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(CommandFailure::Help(empty.to_string()));
        }
        Err(mistake) => return Err(CommandFailure::Usage(usage_message(&mistake))),
    };
    let _ = COLOR_OPTION.set(cli.global.color.clone());
    let context = CommandContext { global: cli.global, is_service: matches!(cli.command, Command::Run(_)) };
    context.start_logging(cli.command.default_level());
    match cli.command {
        Command::Run(command) => command.run(&context),
        Command::Serve(command) => command.run(&context),
        Command::Sync(command) => command.run(&context),
        Command::Import(command) => command.run(&context),
        Command::Status(command) => command.run(&context),
        Command::Versions(command) => command.run(&context),
        Command::History(command) => command.run(&context),
        Command::Stage(command) => command.run(&context),
        Command::Diff(command) => command.run(&context),
        Command::Activate(command) => command.run(&context),
        Command::Rollback(command) => command.run(&context),
        Command::Hold(command) => command.run(&context),
        Command::Release(command) => command.run(&context),
        Command::Gc(command) => command.run(&context),
        Command::Health(command) => command.run(&context),
        Command::Store(command) => command.run(&context),
        #[cfg(feature = "origin")]
        Command::Origin(command) => command.run(&context),
        #[cfg(feature = "origin")]
        Command::Demo(command) => command.run(&context),
        Command::Export(command) => command.run(&context),
        Command::Preview(command) => command.run(&context),
        Command::Analytics(command) => command.run(&context),
        Command::Config(command) => command.run(&context),
        Command::Bundle(command) => command.run(&context),
        Command::Redirects(command) => command.run(&context),
        Command::Doctor(command) => command.run(&context),
        Command::Completions(command) => command.run(),
        Command::Man(command) => command.run(),
        Command::Version(command) => command.run(&context),
        Command::Recode(command) => command.run(),
    }
}

/// Formats clap's error on one line, without clap's prefix and blank lines.
fn usage_message(mistake: &clap::Error) -> String {
    if let Some(better) = suggestions::explain_unknown_command(mistake) {
        return better;
    }
    let text = mistake.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").replace(":; ", ": ").trim_start_matches("error: ").to_owned()
}

/// The global options, and what commands derive from them.
struct CommandContext {
    global: GlobalOptions,
    /// Whether this process is the service (`run`), which uses only what is passed to it and does not read its unit.
    is_service: bool,
}

impl CommandContext {
    fn start_logging(&self, default: &str) {
        let level = match (self.global.quiet, self.global.verbose) {
            (true, _) => "error",
            (_, 0) => default,
            (_, 1) => "debug",
            (_, _) => "trace",
        };
        let chosen =
            ["DOCWHARF_LOG", "RUST_LOG"].iter().find_map(|name| std::env::var(name).ok().filter(|v| !v.is_empty()));
        let directives = chosen.unwrap_or_else(|| format!("docwharf={level}"));
        let filter = tracing_subscriber::EnvFilter::try_new(&directives)
            .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(format!("docwharf={level}")));
        let lines = tracing_subscriber::fmt::layer().with_writer(io::stderr).with_target(false).with_ansi(false);
        // Libraries log URLs and header fields, which may contain secrets. Only our own lines are shown.
        let ours = filter_fn(|metadata| metadata.target().starts_with("docwharf"));
        let subscriber = tracing_subscriber::registry().with(filter);
        // The journal adds its own timestamps. If this process has a subscriber already, `try_init` fails and it stays.
        let _ = if std::env::var_os("JOURNAL_STREAM").is_some() {
            subscriber.with(lines.without_time().with_filter(ours)).try_init()
        } else {
            subscriber.with(lines.with_filter(ours)).try_init()
        };
    }

    fn sources(&self) -> ConfigSources {
        ConfigSources { flag: self.global.config.clone(), uses_unit: !self.is_service, ..ConfigSources::default() }
    }

    /// Returns the command that starts the daemon for this configuration, by its systemd unit if that is installed.
    fn start_command(&self) -> String {
        let (file, is_named) = self.sources().file();
        match ServiceUnit::for_configuration(&file) {
            Some(unit) => format!("systemctl start {}", unit.name.trim_end_matches(".service")),
            None if is_named => format!("docwharf run --config {}", file.display()),
            None => "docwharf run".to_owned(),
        }
    }

    fn config(&self) -> Result<Config, CommandFailure> {
        self.sources().load().map_err(CommandFailure::Config)
    }

    /// Returns the path of the store. If the configuration has mistakes and the store exists, the mistakes are only
    /// printed: an operator can still look at what is served, and roll back.
    fn store(&self) -> Result<PathBuf, CommandFailure> {
        match self.config() {
            Ok(config) => Ok(config.store),
            Err(CommandFailure::Config(problems)) => {
                let Some(store) = self.sources().store().filter(|store| store.is_dir()) else {
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
    fn named_config(&self) -> Result<Option<Config>, CommandFailure> {
        if self.global.config.is_none() && std::env::var_os("DOCWHARF_CONFIG").is_none() {
            return Ok(None);
        }
        self.config().map(Some)
    }

    /// Returns the limits of the named configuration, or the defaults.
    fn limits(&self) -> Result<BundleLimits, CommandFailure> {
        Ok(self.named_config()?.map_or_else(BundleLimits::default, |config| config.intent.effort.limits))
    }

    /// Returns how the named configuration resolves addresses, or the default.
    fn addresses(&self) -> Result<Addresses, CommandFailure> {
        Ok(self.named_config()?.map_or_else(Addresses::default, |config| config.intent.gate.addresses))
    }

    /// Returns the limits and threads for opening a stored version; the defaults if the configuration has mistakes.
    fn seal_options(&self) -> SealOptions {
        self.config().map_or_else(|_| SealOptions::new(BundleLimits::default()), |config| config.intent.effort)
    }

    /// Prints a line on standard error, unless `--quiet` is given.
    fn print_note(&self, line: &str) {
        if !self.global.quiet {
            eprintln!("{line}");
        }
    }

    /// Prints the warnings of the configuration.
    fn warn_about_config(&self, config: &Config) {
        for warning in &config.warnings {
            self.print_note(&format!("docwharf: warning: {}", OneLine(&warning.to_string())));
        }
    }

    /// Prints the first warning and the number of the others on one line (docs/design/archives.md, rule 14).
    fn print_warnings(&self, subject: &str, warnings: &[String]) {
        if let Some(first) = warnings.first() {
            let more = if warnings.len() > 1 {
                format!(" (and {})", docwharf_base::model::units::count_noun(warnings.len() as u64 - 1, "more warning"))
            } else {
                String::new()
            };
            let line = format!("docwharf: warning: {subject}: {first}{more}");
            self.print_note(&OneLine(&line).to_string());
        }
    }

    /// Prints the result of a query: as JSON with `--json`, otherwise as text.
    fn print_result(&self, json: &impl serde::Serialize, text: &str) -> Result<(), CommandFailure> {
        if self.global.json {
            let mut line = serde_json::to_string_pretty(json).map_err(|e| CommandFailure::Output(e.into()))?;
            line.push('\n');
            print(&line)
        } else {
            print(text)
        }
    }

    /// Prints the result of an action like [`Context::print_result`], but no text with `--quiet`.
    fn print_outcome(&self, json: &impl serde::Serialize, text: &str) -> Result<(), CommandFailure> {
        if self.global.quiet && !self.global.json { Ok(()) } else { self.print_result(json, text) }
    }

    /// Returns whether to draw progress on the terminal.
    fn shows_progress(&self) -> bool {
        !self.global.quiet && !self.global.json && io::stderr().is_terminal()
    }
}

/// Writes text to standard output. A closed pipe (`| head`) is not an error.
fn print(text: &str) -> Result<(), CommandFailure> {
    HAS_PRINTED.fetch_or(!text.is_empty(), Ordering::Relaxed);
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(CommandFailure::Output(error)),
        _ => Ok(()),
    }
}

/// Returns the name of the user who gives the command, for receipts and history.
fn current_user_name() -> String {
    let name = std::env::var("SUDO_USER").or_else(|_| std::env::var("USER")).or_else(|_| std::env::var("LOGNAME"));
    let nameless = || resolve_uid_name(&format!("uid {}", rustix::process::getuid().as_raw()));
    name.ok().filter(|name| !name.is_empty()).unwrap_or_else(nameless)
}
