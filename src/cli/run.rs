//! `docwharf run`

use clap::Args;

use crate::daemon::{self, Hangup, Start};

use super::exit::describe;
use super::{Context, Failure, PATIENCE};

#[derive(Debug, Args)]
pub(super) struct Run {
    /// Listen nowhere: only bring versions and publish them (publish.directory)
    #[arg(long)]
    no_serve: bool,
}

impl Run {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let config = context.config()?;
        if self.no_serve && config.publish.is_none() {
            // It may be added while it runs.
            let what = "--no-serve without publish.directory: versions are brought for nobody to see";
            context.say(&format!("docwharf: warning: {what}"));
        }
        let sources = context.sources().settled();
        let start = Start { sources, config, patience: PATIENCE, hangup: Hangup::Reload, describe };
        Ok(daemon::run(start, !self.no_serve)?)
    }
}
