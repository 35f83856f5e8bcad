//! `docwharf sync`: runs one sync, here or by the daemon that has the store open.

use clap::Args;

use crate::admin::wire::{Told, Verb};
use crate::config::checked::{Config, SET_A_SOURCE};
use docwharf_agent::store::VersionStore;
use docwharf_agent::sync::activation::SyncReport;
use docwharf_agent::sync::plan::SyncTrigger;
use docwharf_agent::sync::system::SyncContext;
use docwharf_agent::sync::{SyncIntent, SyncOutcome, system};

use super::attend::attended;
use super::order::{self, Hand, hand, order, tell};
use super::publish::published;
use super::{Context, Failure};

#[derive(Debug, Args)]
pub(super) struct Sync {
    /// Check the source even if the pinned label is already in the store
    #[arg(long)]
    refresh: bool,
    /// Activate the new version even if the gate refuses it; a hold stays
    #[arg(long)]
    force: bool,
}

impl Sync {
    pub(super) fn run(self, context: &Context) -> Result<(), Failure> {
        // A configuration that --config names must be valid, and must name the same source as that of a running daemon.
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
        // Without a source there is nothing to do. That is a mistake only while there is nothing to serve, either.
        let no_source = config.intent.enabled && !config.intent.has_source();
        if no_source && VersionStore::at(&config.store).versions()?.is_empty() {
            return Err(Failure::NoSource(no_source_in(&config)));
        }
        if !config.intent.enabled {
            // There is nothing to do, so the lock of the store is not needed.
            return tell(context, &Told::of(&SyncReport::of(SyncOutcome::Disabled)));
        }
        let trigger = if self.refresh { SyncTrigger::Refresh } else { SyncTrigger::Asked };
        let sources = context.sources();
        let (told, published) = attended(context, move |means| match hand(&config.store, means)? {
            Hand::Here(writer) => {
                let means = SyncContext { force: self.force, ..means.clone() };
                let report = system::sync_store(&writer, &unhurried(&config), trigger, &means)?;
                Ok((Told::of(&report), published(&sources, &writer)))
            }
            Hand::Daemon(daemon) => order(&daemon, &config.store, verb, question, means).map(|told| (told, Ok(()))),
        })??;
        tell(context, &told).and(published)
    }
}

/// Returns the message for a configuration without a source and a store without a version.
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

/// Returns the intent for a command that a person waits for: it uses all processors, unless `sync.threads` is set.
pub(super) fn unhurried(config: &Config) -> SyncIntent {
    let mut intent = config.intent.clone();
    if let Some(threads) = config.threads {
        intent.effort.threads = threads;
    }
    intent
}
