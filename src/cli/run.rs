//! `docwharf run`: runs the daemon.

use clap::Args;

use crate::daemon::{self, Hangup, Start};

use super::exit::describe;
use super::{Context, Failure, PATIENCE};

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Do not listen: only fetch versions and publish them (publish.directory)
    #[arg(long)]
    no_serve: bool,
}

impl Run {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let config = context.config()?;
        if self.no_serve && config.publish.is_none() {
            // Only a warning: `publish.directory` may be added while the daemon runs.
            let what = "--no-serve without publish.directory: versions are neither served nor published";
            context.say(&format!("docwharf: warning: {what}"));
        }
        let sources = context.sources().settled();
        let start = Start { sources, config, patience: PATIENCE, hangup: Hangup::Reload, describe };
        Ok(daemon::run(start, !self.no_serve)?)
    }
}
