//! The command line: parses the arguments, runs the command, prints its result and returns its failure.
//!
//! Each command has its own file.

mod advice;
mod analytics;
mod api_caller;
mod audit;
mod bundle;
mod completions;
mod config;
mod context;
#[cfg(feature = "origin")]
mod demo;
mod diff;
mod doctor;
#[cfg(any(feature = "analytics", feature = "origin"))]
mod exchange_file;
mod exit;
mod export;
mod failure;
mod failure_json;
mod features;
mod health;
mod history;
mod import;
mod interruptible;
mod make_coding;
mod make_search_index;
mod man;
mod mcp;
mod operator_commands;
#[cfg(feature = "origin")]
mod origin;
mod output;
mod preview;
mod progress;
mod publish;
mod redirects;
mod run;
#[cfg(test)]
mod sample_errors;
mod search;
mod search_output;
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
use std::sync::atomic::Ordering;

use clap::{CommandFactory, Parser, Subcommand};

use docwharf_base::secret::install_panic_hook;
use docwharf_site::mapping::limit_freed_memory;

pub use failure::CommandFailure;
pub use output::report;

use context::{CommandContext, GlobalOptions};
use output::{COLOR_OPTION, IS_JSON_WANTED, print};

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
    History(history::HistoryCommand),
    /// Show the version that waits for activation, and its changes
    Stage(stage::StageCommand),
    /// Show the differences between two versions; exit code 1 if there are any
    Diff(diff::DiffCommand),
    /// Search a version, an archive or a folder; exit code 1 without results
    Search(search::SearchCommand),
    /// Serve a version, an archive or a folder to a coding agent over standard input and output (MCP)
    Mcp(mcp::McpCommand),
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
    /// Show what readers search for and read
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
    /// Show which features the site has on this host, and which keys turn the others on
    Features(features::FeaturesCommand),
    /// Print a completion script for a shell
    Completions(completions::CompletionsCommand),
    /// Print the manual page, or write those of all commands
    Man(man::ManCommand),
    /// Show the version, commit, target and features of this program
    Version(version::VersionCommand),
    /// Compress a version; started by docwharf itself
    #[command(name = crate::daemon::ENCODER_COMMAND, hide = true)]
    MakeCoding(make_coding::MakeCodingCommand),
    /// Build a search index; started by docwharf itself
    #[command(name = crate::daemon::INDEX_COMMAND, hide = true)]
    MakeSearchIndex(make_search_index::MakeSearchIndexCommand),
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
        Err(output) if !output.use_stderr() => return print(&output.to_string()),
        Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            return Err(CommandFailure::Help(error.to_string()));
        }
        Err(error) => return Err(CommandFailure::Usage(usage_message(&error))),
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
        Command::Search(command) => command.run(&context),
        Command::Mcp(command) => command.run(&context),
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
        Command::Features(command) => command.run(&context),
        Command::Completions(command) => command.run(Cli::command()),
        Command::Man(command) => command.run(Cli::command()),
        Command::Version(command) => command.run(&context),
        Command::MakeCoding(command) => command.run(),
        Command::MakeSearchIndex(command) => command.run(),
    }
}

/// Formats clap's error on one line, without clap's prefix and blank lines.
fn usage_message(error: &clap::Error) -> String {
    if let Some(better) = suggestions::explain_unknown_command(error) {
        return better;
    }
    let text = error.to_string();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.join("; ").replace(":; ", ": ").trim_start_matches("error: ").to_owned()
}
