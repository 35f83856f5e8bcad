//! `docwharf run`

use clap::Args;

use crate::daemon::{self, Hangup};

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
        let sources = context.sources().settled();
        if !self.no_serve {
            return Ok(daemon::run(sources, config, PATIENCE)?);
        }
        if config.publish.is_none() {
            // It may be added while it runs.
            context
                .say("docwharf: warning: --no-serve without publish.directory: versions are brought for nobody to see");
        }
        Ok(daemon::run_on(Vec::new(), sources, config, PATIENCE, Hangup::Reload)?)
    }
}
