//! `docwharf sync`: one sync, now.

use clap::Args;

use crate::admin::wire::{Told, Verb};
use crate::config::checked::{Config, SET_A_SOURCE};
use docwharf_agent::store::Store;
use docwharf_agent::sync::act::Means;
use docwharf_agent::sync::plan::Trigger;
use docwharf_agent::sync::settle::Report;
use docwharf_agent::sync::{Intent, Outcome, act};

use super::attend::attended;
use super::order::{self, Hand, hand, order, tell};
use super::publish::published;
use super::{Context, Failure};

#[derive(Debug, Args)]
pub(super) struct Sync {
    /// Look at the source even if the pinned label is already there
    #[arg(long)]
    refresh: bool,
    /// Activate what it brings, whatever the gate says; a hold stays
    #[arg(long)]
    force: bool,
}

impl Sync {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        // A configuration that is named must be good, and beside a daemon ask for the same as the daemon's.
        let named = context.global.config.is_some();
        let config = if named { Some(context.config()?) } else { None };
        let question = config.as_ref().map(|config| config.intent.question());
        let store = config.as_ref().map_or_else(|| context.store(), |config| Ok(config.store.clone()))?;
        let verb = Verb::Sync { refresh: self.refresh, force: self.force };
        if let Some(daemon) = order::daemon_of(&store) {
            let told = attended(context, move |means| order(&daemon, &store, verb, question, means))??;
            return tell(context, &told);
        }
        let config = config.map_or_else(|| context.config(), Ok)?;
        context.warn_of(&config);
        // Without a source there is nothing to do, which is a mistake only while there is nothing to serve either.
        let no_source = config.intent.enabled && !config.intent.has_source();
        if no_source && Store::at(&config.store).versions()?.is_empty() {
            return Err(Failure::NoSource(no_source_in(&config)));
        }
        if !config.intent.enabled {
            // Nothing to do, so nothing to wait for.
            return tell(context, &Told::of(&Report::of(Outcome::Disabled)));
        }
        let trigger = if self.refresh { Trigger::Refresh } else { Trigger::Asked };
        let sources = context.sources();
        let (told, published) = attended(context, move |means| match hand(&config.store, means)? {
            Hand::Here(writer) => {
                let means = Means { force: self.force, ..means.clone() };
                let report = act::sync(&writer, &unhurried(&config), trigger, &means)?;
                Ok((Told::of(&report), published(&sources, &writer)))
            }
            Hand::Daemon(daemon) => order(&daemon, &config.store, verb, question, means).map(|told| (told, Ok(()))),
        })??;
        tell(context, &told).and(published)
    }
}

/// Why there is nothing to sync from, in a store without a version.
fn no_source_in(config: &Config) -> String {
    let store = config.store.display();
    match &config.inbox {
        Some(inbox) => format!(
            "there is no source to sync from, and the store {store} is empty: `docwharf run` imports what lies in the inbox {}; \
             for a source, set [api] or staticExport.bundleUrl",
            inbox.display()
        ),
        None => format!("there is no source to sync from, and the store {store} is empty; {SET_A_SOURCE}"),
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
