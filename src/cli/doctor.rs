//! `docwharf doctor`: runs the checks of [`crate::doctor`] and prints them.

use std::fmt::Write;
use std::io::{self, IsTerminal};

use clap::Args;
use serde_json::json;

use crate::doctor::check::{CheckStatus, DoctorCheck};
use crate::doctor::{DoctorOptions, run_checks};
use docwharf_base::runtime;

use super::context::CommandContext;
use super::failure::CommandFailure;
use super::output::wants_colour;

#[derive(Debug, Args)]
pub(super) struct DoctorCommand {
    /// Skip the checks that use the network
    #[arg(long)]
    offline: bool,
    /// Check paths and ports as this user, by name or number; needs root. Default for root: the service's user
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
}

impl DoctorCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let runtime = runtime::build_runtime(tokio::runtime::Builder::new_multi_thread().worker_threads(1));
        let runtime = runtime.map_err(CommandFailure::local("cannot start"))?;
        let options = DoctorOptions { is_offline: self.offline, user: self.user.as_deref() };
        let checks = run_checks(&context.config_inputs(), options, runtime.handle());
        // A name lookup that is still running must not delay the end of the command.
        runtime.shutdown_background();
        let checks = checks.map_err(CommandFailure::Usage)?;
        let count = |status| checks.iter().filter(|check| check.status == status).count() as u64;
        let (errors, warnings) = (count(CheckStatus::Error), count(CheckStatus::Warning));
        let json = json!({ "schemaVersion": 1, "errors": errors, "warnings": warnings, "checks": checks });
        context.print_result(&json, &table(&checks, wants_colour(io::stdout().is_terminal())))?;
        if errors > 0 { Err(CommandFailure::CheckFailed) } else { Ok(()) }
    }
}

/// Formats one line for each check, with its advice below it.
fn table(checks: &[DoctorCheck], coloured: bool) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for DoctorCheck { name, status, found, advice } in checks {
        let status_text = format!("{:7}", status.name());
        let status_text = match status {
            _ if !coloured => status_text,
            CheckStatus::Ok => format!("\x1b[32m{status_text}\x1b[0m"),
            CheckStatus::Warning => format!("\x1b[33m{status_text}\x1b[0m"),
            CheckStatus::Error => format!("\x1b[1;31m{status_text}\x1b[0m"),
        };
        let _ = writeln!(text, "{status_text}  {name:width$}  {found}");
        if let Some(advice) = advice {
            let _ = writeln!(text, "{:7}  {:width$}  → {advice}", "", "");
        }
    }
    text
}
