//! `docwharf sync`: one sync, now.

use clap::Args;
use serde_json::json;

use crate::config::checked::Config;
use crate::model::units::{count, show_size};
use crate::store::Store;
use crate::store::writer::Writer;
use crate::sync::plan::Trigger;
use crate::sync::settle::Report;
use crate::sync::{Intent, Outcome, act};

use super::attend::attended;
use super::publish::published;
use super::{Context, Failure, PATIENCE};

#[derive(Debug, Args)]
pub(super) struct Sync {
    /// Look at the source even if the pinned label is already there
    #[arg(long)]
    refresh: bool,
}

impl Sync {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        let config = context.config()?;
        context.warn_of(&config);
        // Without a source there is nothing to do, which is a mistake only while there is nothing to serve either.
        let no_source = config.intent.enabled && !config.intent.has_source();
        if no_source && Store::at(&config.store).versions()?.is_empty() {
            return Err(Failure::NoSource(config.store));
        }
        if !config.intent.enabled {
            // Nothing to do, so nothing to wait for.
            return tell(context, &Report { outcome: Outcome::Disabled, brought: None, too_early: None, blind: None });
        }
        let trigger = if self.refresh { Trigger::Refresh } else { Trigger::Asked };
        let sources = context.sources();
        let (report, published) = attended(context, move |means| {
            let writer = Writer::open(&config.store, PATIENCE)?;
            let report = act::sync(&writer, &unhurried(&config), trigger, means)?;
            Ok::<_, Failure>((report, published(&sources, &writer)))
        })??;
        tell(context, &report).and(published)
    }
}

/// What a person waits for may take all cores, unless the configuration says otherwise.
pub(super) fn unhurried(config: &Config) -> Intent {
    let mut intent = config.intent.clone();
    if let Some(threads) = config.threads {
        intent.effort.threads = threads;
    }
    intent
}

/// Prints how a sync or an import ended.
pub(super) fn tell(context: &Context, report: &Report) -> Result<(), Failure> {
    if let Some(brought) = &report.brought {
        context.warn("the bundle", &brought.warnings);
    }
    let of = report.brought.as_ref().map_or_else(String::new, |brought| {
        format!(" ({}, {})", count(brought.pages, "page"), show_size(brought.bytes))
    });
    let (version, text) = match &report.outcome {
        Outcome::Disabled => (None, "disabled: staticExport.enabled is false or there is no source\n".to_owned()),
        Outcome::Current(None) => (None, "nothing is active yet\n".to_owned()),
        Outcome::Current(Some(id)) => (Some(id), format!("already current: {}{of}\n", id.short())),
        Outcome::Activated(id) => (Some(id), format!("activated {}{of}\n", id.short())),
        Outcome::NotActive(id, _) => (Some(id), format!("sealed {}{of}\n", id.short())),
    };
    let json = json!({
        "schemaVersion": 1,
        "result": report.outcome.name(),
        "version": version,
        "pages": report.brought.as_ref().map(|brought| brought.pages),
        "bytes": report.brought.as_ref().map(|brought| brought.bytes),
        "archiveSha256": report.brought.as_ref().and_then(|brought| brought.sha256).map(|digest| digest.hex()),
        "reason": match &report.outcome {
            Outcome::NotActive(_, why) => Some(why),
            _ => None,
        },
        "warnings": report.brought.as_ref().map(|brought| brought.warnings.clone()).unwrap_or_default(),
    });
    context.done(&json, &text)?;
    match &report.outcome {
        Outcome::NotActive(_, why) => Err(Failure::NotActive(why.clone())),
        _ => Ok(()),
    }
}
