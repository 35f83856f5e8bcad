//! `docwharf run`

use clap::Args;

use crate::daemon;

use super::{Context, Failure, PATIENCE};

#[derive(Debug, Args)]
pub(super) struct Run {}

impl Run {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let config = context.config()?;
        Ok(daemon::run(context.sources().settled(), config, PATIENCE)?)
    }
}
