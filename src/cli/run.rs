//! `docwharf run`: runs the daemon.

use clap::Args;

use crate::daemon::{self, RunHangup, RunParameters};

use super::context::{CommandContext, STORE_LOCK_TIMEOUT};
use super::exit::exit_code_and_message;
use super::failure::CommandFailure;

#[derive(Debug, Args)]
pub(super) struct RunCommand {
    /// Do not listen: only fetch versions and publish them (publish.directory)
    #[arg(long)]
    no_serve: bool,
}

impl RunCommand {
    pub(super) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let config = context.config()?;
        if self.no_serve && config.publish.is_none() {
            // Only a warning: `publish.directory` may be added while the daemon runs.
            let warning = "--no-serve without publish.directory: versions are neither served nor published";
            context.print_note(&format!("docwharf: warning: {warning}"));
        }
        let config_inputs = context.config_inputs().with_file_state();
        let parameters = RunParameters {
            config_inputs,
            config,
            lock_timeout: STORE_LOCK_TIMEOUT,
            hangup: RunHangup::Reload,
            describe: exit_code_and_message,
        };
        Ok(daemon::run(parameters, !self.no_serve)?)
    }
}
