//! `docwharf run`

use clap::Args;

use crate::daemon::{self, Hangup, Start};

use super::exit::describe;
use super::{Context, Failure, PATIENCE};

#[derive(Debug, Args)]
pub(super) struct Run {}

impl Run {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let config = context.config()?;
        Ok(daemon::run(Start {
            sources: context.sources().settled(),
            config,
            patience: PATIENCE,
            hangup: Hangup::Reload,
            describe,
        })?)
    }
}
