//! The version that the site serves, and how damage of it is handled.
//!
//! The record in the store says which version is active. This state follows it, except while the active version cannot
//! be opened or is damaged. If it cannot be opened, the version that was served before stays. If it is damaged, the
//! best of the other versions is served until it is repaired.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use crate::admin::daemon_state::DaemonState;
use docwharf_agent::publish::PublishSettings;
use docwharf_agent::store::operations::StoreOperations;
use docwharf_agent::store::writer::StoreWriter;
use docwharf_agent::sync::activation::candidates;
use docwharf_agent::sync::{SyncError, SyncSettings, open};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_serve::access::AccessControl;
use docwharf_serve::search::SearchSettings;
use docwharf_serve::{AssistantSettings, PlaygroundSettings, Site};
use docwharf_site::rules::RuleSet;
use docwharf_site::seal::SealOptions;
use docwharf_site::sealed_version::SealedVersion;

use super::publisher::Publisher;
use super::scrub::DamagedVersion;
use super::task::VersionToServe;

/// The served version.
pub(super) struct ServedVersion {
    writer: Arc<StoreWriter>,
    site: Arc<Site>,
    daemon_state: Arc<DaemonState>,
    /// Publishes the version that `site` serves.
    publisher: Publisher,
    id: Option<VersionId>,
    /// Whether the version in `id` is damaged, and has to be opened again once it is repaired.
    must_reopen: bool,
    /// The served version that was found damaged, until it is served again undamaged.
    damaged: Option<VersionId>,
    /// The served version and since when it is active, cached for the status line.
    since: Option<(VersionId, Option<String>)>,
}

impl ServedVersion {
    /// Creates the state of a site that serves `id`, and starts publishing.
    pub(super) fn new(
        writer: Arc<StoreWriter>,
        site: Arc<Site>,
        daemon_state: Arc<DaemonState>,
        id: Option<VersionId>,
        publish: Option<PublishSettings>,
    ) -> ServedVersion {
        let publisher = Publisher::start(publish, Arc::clone(&site), Arc::clone(&daemon_state));
        ServedVersion { writer, site, daemon_state, publisher, id, must_reopen: false, damaged: None, since: None }
    }

    /// Returns the served version.
    pub(super) fn id(&self) -> Option<VersionId> {
        self.id
    }

    /// Returns the served version, unless it is damaged and has to be opened again.
    pub(super) fn undamaged(&self) -> Option<VersionId> {
        self.id.filter(|_| !self.must_reopen)
    }

    /// Returns the served version, and since when it is active if that is known. The record is read once for each
    /// version.
    pub(super) fn id_and_since(&mut self) -> Option<(VersionId, Option<&str>)> {
        if self.since.as_ref().map(|(id, _)| *id) != self.id {
            let record = self.writer.store().record().ok();
            let since = |id| record.and_then(|record| record.active_since.filter(|_| record.active == Some(id)));
            self.since = self.id.map(|id| (id, since(id)));
        }
        self.since.as_ref().map(|(id, since)| (*id, since.as_deref()))
    }

    /// Returns the active version, as recorded in the store.
    fn active(&self) -> Option<VersionId> {
        self.writer.store().record().ok().and_then(|record| record.active)
    }

    /// Serves a version from now on.
    pub(super) fn serve(&mut self, id: VersionId, version: SealedVersion) {
        warn_about_rules(&version);
        self.site.set_version(version);
        self.id = Some(id);
        self.must_reopen = false;
        if self.damaged == Some(id) {
            self.damaged = None;
            tracing::info!("version {} is undamaged again and served", id.short());
            self.writer.note("docwharf run", "mended", Some(id), None);
        }
        // A client that learns that the version is served may request the status at once.
        self.daemon_state.update(|snapshot| snapshot.served = Some(id));
    }

    /// Serves the version that a task has opened, or the active version if the task has opened none.
    pub(super) async fn serve_opened(&mut self, opened: VersionToServe, seal_options: SealOptions) {
        match opened {
            // A person may have activated another version in between: the record decides.
            Some((id, Ok(version))) if self.active() == Some(id) => self.serve(id, version),
            Some((_, Err(error))) => tracing::error!("{}; the previous version stays", ErrorChain(&error)),
            _ => self.serve_active(seal_options).await,
        }
    }

    /// Serves the active version, unless it is served already.
    pub(super) async fn serve_active(&mut self, seal_options: SealOptions) {
        let Some(id) = self.active().filter(|&id| self.undamaged() != Some(id)) else { return };
        // This process has found it damaged before, and its file has not changed since.
        if self.writer.store().has_read_as_damaged(id) {
            return;
        }
        let writer = Arc::clone(&self.writer);
        let opened = spawn_blocking(move || open::open_checked(&writer, id, &seal_options));
        match opened.await.unwrap_or_else(|error| Err(SyncError::Bug(error.to_string()))) {
            Ok(version) => self.serve(id, version),
            Err(error) => tracing::error!("{}; the previous version stays", ErrorChain(&error)),
        }
    }

    /// Handles a damaged version. If it is the served one, the best of the other versions is served instead; without
    /// another version it stays, because most of it is undamaged, and log, status and metrics report the damage.
    /// Returns whether the source should be checked, to fetch the content again.
    pub(super) async fn handle_damage(&mut self, damage: DamagedVersion, sync_settings: &SyncSettings) -> bool {
        let DamagedVersion { id, why } = damage;
        // The version may have been repaired before this fault was handled.
        if !self.writer.store().is_marked_damaged(id) {
            return false;
        }
        // Its assets are not served any more: browsers would keep a damaged one without requesting it again.
        self.site.release_version(id);
        self.writer.note("docwharf run", "damaged", Some(id), Some(why.clone()));
        let short = id.short();
        if self.id != Some(id) {
            tracing::error!("the stored version {short} is damaged: {why}; import its bundle again to replace it");
            return false;
        }
        let replacement = self.open_next_best(id, sync_settings.clone()).await;
        self.damaged = Some(id);
        if let Some((other, version)) = replacement {
            let other_short = other.short();
            tracing::error!(
                "the served version {short} is damaged: {why}; version {other_short} is served until {short} is \
                 repaired"
            );
            self.serve(other, version);
            self.site.release_version(id);
            self.writer.note("docwharf run", "fell back", Some(other), None);
        } else {
            // The served mapping is of the damaged image; after a repair the version must be opened again.
            self.must_reopen = true;
            tracing::error!(
                "the served version {short} is damaged: {why}; no other version can be served: import its bundle again"
            );
        }
        true
    }

    async fn open_next_best(
        &self,
        damaged: VersionId,
        sync_settings: SyncSettings,
    ) -> Option<(VersionId, SealedVersion)> {
        let writer = Arc::clone(&self.writer);
        let best = spawn_blocking(move || {
            let record = writer.store().record().ok()?;
            let stored = writer.store().versions().ok()?;
            let remaining = candidates(&record, &sync_settings, stored.iter().map(|version| version.id));
            remaining.into_iter().filter(|&id| id != damaged).find_map(|id| {
                let opened: Result<_, SyncError> = open::open_checked(&writer, id, &sync_settings.seal_options);
                Some((id, opened.ok()?))
            })
        });
        best.await.ok().flatten()
    }

    /// Opens a version again if it is served, because its index was wrong or has been rebuilt. No content is lost with
    /// an index. Returns whether the source should be checked, because the version turned out to be damaged.
    pub(super) async fn reopen(&mut self, id: VersionId, sync_settings: &SyncSettings) -> bool {
        if self.id != Some(id) {
            return false;
        }
        let (writer, seal_options) = (Arc::clone(&self.writer), sync_settings.seal_options);
        let opened = spawn_blocking(move || open::open(&writer, id, &seal_options, false)).await;
        match opened.unwrap_or_else(|error| Err(SyncError::Bug(error.to_string()))) {
            Ok(version) => self.site.set_version(version),
            Err(error @ SyncError::DamagedVersion { .. }) => {
                if let Err(error) = self.writer.mark_damaged(id) {
                    tracing::warn!("{}", ErrorChain(&error));
                }
                return self
                    .handle_damage(DamagedVersion { id, why: ErrorChain(&error).to_string() }, sync_settings)
                    .await;
            }
            Err(error) => {
                tracing::error!("{}; it is still served with its previous index", ErrorChain(&error));
            }
        }
        false
    }

    /// Replaces the operator's rules.
    pub(super) fn set_rules(&self, rules: Arc<RuleSet>) {
        self.site.set_rules(rules);
    }

    /// Replaces access control, from the next request on.
    pub(super) fn set_access_control(&self, access_control: AccessControl) {
        self.site.set_access_control(access_control);
    }

    /// Replaces the settings of the search, from the next request on.
    pub(super) fn set_search_settings(&self, settings: SearchSettings) {
        self.site.set_search_settings(Arc::new(settings));
    }

    /// Replaces what the site offers to assistants, from the next request on.
    pub(super) fn set_assistant_settings(&self, settings: AssistantSettings) {
        self.site.set_assistant_settings(Some(Arc::new(settings)));
    }

    /// Replaces the APIs to which pages may send requests, from the next request on; `None` turns the playground off.
    pub(super) fn set_playground_settings(&self, settings: Option<Arc<PlaygroundSettings>>) {
        self.site.set_playground_settings(settings);
    }

    /// Replaces the settings of publishing.
    pub(super) fn configure_publishing(&self, settings: Option<PublishSettings>) {
        self.publisher.configure(settings);
    }

    /// Opens the access log again, because its file may have been moved away.
    pub(super) fn reopen_log(&self) {
        if let Some(log) = self.site.access_log() {
            log.reopen();
        }
    }
}

/// Logs the mistakes in the rules that a version contains.
pub(super) fn warn_about_rules(version: &SealedVersion) {
    if let Some(warning) = version.describe_rule_faults() {
        tracing::warn!("version {}: {warning}", version.id.short());
    }
}
