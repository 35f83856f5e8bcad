//! `docwharf activate`, `rollback`, `hold`, `release`

use clap::Args;
use serde_json::json;

use crate::model::version::VersionId;
use crate::store::writer::Writer;
use crate::sync::operator;

use super::publish::published;
use super::{Context, Failure, PATIENCE, who};

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

fn held(context: &Context, what: &str, id: VersionId) -> Result<(), Failure> {
    let json = json!({ "schemaVersion": 1, "result": what, "version": id, "held": true });
    context.done(&json, &format!("{what} {}; held until `docwharf release`\n", id.short()))
}

impl Activate {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let writer = Writer::open(&context.store()?, PATIENCE)?;
        held(context, "activated", operator::activate(&writer, &self.name, &who())?)?;
        published(&context.sources(), &writer)
    }
}

impl Rollback {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let writer = Writer::open(&context.store()?, PATIENCE)?;
        held(context, "rolled back to", operator::rollback(&writer, &who())?)?;
        published(&context.sources(), &writer)
    }
}

impl Hold {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let writer = Writer::open(&context.store()?, PATIENCE)?;
        operator::hold(&writer, &who(), &self.reason)?;
        context
            .result(&json!({ "schemaVersion": 1, "result": "held", "held": true }), "held until `docwharf release`\n")
    }
}

impl Release {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let config = context.config()?;
        let writer = Writer::open(&config.store, PATIENCE)?;
        let (was_held, report) = operator::release(&writer, &config.intent, &who())?;
        let active = writer.store().record()?.active;
        let first = if was_held { "released" } else { "there was no hold" };
        let then = active.map_or_else(|| "nothing is active".to_owned(), |id| format!("{} is active", id.short()));
        let json = json!({
            "schemaVersion": 1, "result": "released", "outcome": report.outcome.name(), "version": active, "held": false,
            "wasHeld": was_held,
        });
        context.done(&json, &format!("{first}; {then}\n"))?;
        published(&context.sources(), &writer)
    }
}
