//! `docwharf activate`, `rollback`, `hold`, `release`, `gc`

use clap::Args;

use crate::admin::verbs::would_remove;
use crate::admin::wire::Verb;
use docwharf_agent::store::Store;
use docwharf_agent::sync::Intent;

use super::order::{self, Wanted};
use super::{Context, Failure};

#[derive(Debug, Args)]
pub(super) struct Activate {
    /// A label, or 8 or more digits of a version's id
    #[arg(value_name = "VERSION")]
    name: String,
}

#[derive(Debug, Args)]
pub(super) struct Rollback {}

#[derive(Debug, Args)]
pub(super) struct Hold {
    /// Why, for whoever wonders later
    #[arg(long, default_value = "held by hand")]
    reason: String,
}

#[derive(Debug, Args)]
pub(super) struct Release {}

#[derive(Debug, Args)]
pub(super) struct Gc {
    /// Only say what would be removed
    #[arg(long)]
    dry_run: bool,
}

/// What a person decides about a store needs no configuration but where it is.
fn decided(context: &Context, verb: Verb) -> Result<(), Failure> {
    let intent = Intent { effort: context.effort(), ..Intent::default() };
    Wanted { verb, store: context.store()?, intent }.at_once(context)
}

/// What depends on pin and retention.
fn configured(context: &Context, verb: Verb) -> Result<(), Failure> {
    let config = context.config()?;
    Wanted { verb, store: config.store, intent: config.intent }.at_once(context)
}

impl Activate {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        // Whether it is held depends on what the configuration says of activation; one with mistakes says nothing.
        let store = context.store()?;
        let effort = context.effort();
        let intent = context.config().map_or_else(|_| Intent { effort, ..Intent::default() }, |config| config.intent);
        Wanted { verb: Verb::Activate { name: self.name }, store, intent }.at_once(context)
    }
}

impl Rollback {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        decided(context, Verb::Rollback)
    }
}

impl Hold {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        decided(context, Verb::Hold { reason: self.reason })
    }
}

impl Release {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        configured(context, Verb::Release)
    }
}

impl Gc {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let store = context.store()?;
        if self.dry_run && order::daemon_of(&store).is_none() {
            // Only looking: no lock, and a store that cannot be written to will do.
            let config = context.config()?;
            return order::tell(context, &would_remove(&Store::at(&config.store), &config.intent)?);
        }
        configured(context, Verb::Gc { dry_run: self.dry_run })
    }
}
