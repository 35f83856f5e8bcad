//! A site: the version that is served, and all other state that its responses depend on.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use http::StatusCode;
use tokio::sync::watch;

use docwharf_base::model::version::VersionId;
use docwharf_site::external::csp;
use docwharf_site::lookup::{AddressSettings, SiteFiles};
use docwharf_site::rules::RuleSet;
use docwharf_site::sealed_version::SealedVersion;

use super::access::AccessControl;
use super::access_log::AccessLog;
use super::ask::AskState;
use super::assistant_settings::AssistantSettings;
use super::conditional::ContentDates;
use super::content_changes::ContentChanges;
use super::converted_pages::MarkdownState;
use super::csp_header::VersionCsp;
use super::damage_reports::DamageReports;
use super::held_bytes::HELD;
use super::inflated_file_cache::InflatedFileCache;
use super::insertion::InsertedTag;
use super::markdown_statistics::MarkdownCounts;
use super::mcp_state::McpState;
use super::playground::Playground;
use super::precompressed::{CodingsInForce, PrecompressedCodings};
use super::recording::Recorder;
use super::retained_versions::RetainedVersions;
use super::search::SearchState;
use super::security_headers::SecurityHeaders;
use super::site_settings::SiteSettings;

/// A site: the version that is served, and all other state that its responses depend on. Version, rules, access
/// control, policies and codings can be replaced at any time; a request keeps the version that was served when it
/// began.
#[derive(Debug)]
pub struct Site {
    /// This site, for work that outlives a request.
    own: Weak<Site>,
    pub(super) settings: SiteSettings,
    /// Identifies this site among all sites of the process.
    pub(super) instance_id: u64,
    pub(super) security_headers: SecurityHeaders,
    /// The version that is served.
    pub(super) served_version: ArcSwapOption<SealedVersion>,
    /// The versions that were served before.
    pub(super) retained_versions: RetainedVersions,
    /// The operator's rules.
    rules: ArcSwap<RuleSet>,
    /// The access control.
    access_control: ArcSwap<AccessControl>,
    /// The content security policies of a version, once they are computed.
    pub(super) csp: ArcSwapOption<VersionCsp>,
    /// The Brotli and Zstandard forms of a version, once they are computed.
    pub(super) codings: CodingsInForce,
    /// The tag that is inserted into pages.
    pub(super) inserted_tag: ArcSwapOption<InsertedTag>,
    /// The cache of inflated files.
    pub(super) inflated_file_cache: Arc<InflatedFileCache>,
    /// The search; `site_search` has the functions that change it.
    pub(super) search: Arc<SearchState>,
    /// The settings of `[assistant]`; `site_assistant` has the functions that change it.
    pub(super) assistant: ArcSwapOption<AssistantSettings>,
    /// The state of the MCP server.
    pub(super) mcp: McpState,
    /// The Markdown of the pages; `site_assistant` has the functions that change it.
    pub(super) markdown: Arc<MarkdownState>,
    /// The counts of requests for it.
    pub(super) markdown_counts: MarkdownCounts,
    /// The questions that a model answers, a part of `assistant`.
    pub(super) ask: Arc<AskState>,
    /// The API playground.
    pub(super) playground: Arc<Playground>,
    /// The recorder of what readers do, if that is recorded.
    pub(super) recorder: ArcSwapOption<Recorder>,
    /// The number of answered requests in each of [`STATUS_CLASSES`].
    request_counts: [AtomicU64; STATUS_CLASSES.len()],
    /// Notifies each time a version was set.
    version_changes: watch::Sender<()>,
    content_changes: ContentChanges,
    /// Incremented after each change of state that responses depend on. Cached responses of an earlier generation are
    /// invalid.
    generation: AtomicU64,
    /// Receives a report when stored bytes differ from those that were sealed.
    damage_reports: Arc<DamageReports>,
    access_log: Option<Arc<AccessLog>>,
}

/// The classes of status codes by which requests are counted.
pub const STATUS_CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

impl Site {
    /// Creates a site without a version, which answers every request with 503.
    pub fn new(settings: SiteSettings) -> Arc<Site> {
        Site::with_access_log(settings, None)
    }

    /// Creates a site without a version that writes its requests to `access_log`, if there is one.
    pub fn with_access_log(settings: SiteSettings, access_log: Option<Arc<AccessLog>>) -> Arc<Site> {
        static NEXT_INSTANCE_ID: AtomicU64 = AtomicU64::new(0);
        let damage_reports = Arc::<DamageReports>::default();
        let inflated_file_cache =
            Arc::new(InflatedFileCache::new(settings.identity_cache, Arc::clone(&damage_reports)));
        HELD.set_limit(settings.held_bytes);
        Arc::new_cyclic(|own| Site {
            own: Weak::clone(own),
            instance_id: NEXT_INSTANCE_ID.fetch_add(1, Ordering::Relaxed),
            security_headers: SecurityHeaders::new(&settings.security_headers),
            served_version: ArcSwapOption::empty(),
            retained_versions: RetainedVersions::new(settings.asset_grace),
            rules: ArcSwap::default(),
            access_control: ArcSwap::from_pointee(settings.access_control.clone()),
            csp: ArcSwapOption::empty(),
            codings: CodingsInForce::default(),
            inserted_tag: ArcSwapOption::empty(),
            inflated_file_cache,
            search: Arc::default(),
            assistant: ArcSwapOption::empty(),
            mcp: McpState::default(),
            markdown: Arc::default(),
            markdown_counts: MarkdownCounts::default(),
            ask: Arc::default(),
            playground: Arc::default(),
            recorder: ArcSwapOption::empty(),
            request_counts: Default::default(),
            version_changes: watch::Sender::default(),
            content_changes: ContentChanges::default(),
            generation: AtomicU64::new(0),
            damage_reports,
            access_log,
            settings,
        })
    }

    /// Returns this site, for work that outlives a request; `None` while it is being dropped.
    pub(super) fn shared(&self) -> Option<Arc<Site>> {
        self.own.upgrade()
    }

    /// Serves `version` from the next request on, and hashed assets of the version before it for the grace period.
    pub fn set_version(&self, version: SealedVersion) {
        let id = version.id;
        // The old version is retained before the new one is stored, so that its assets are found at every moment.
        if let Some(replaced) = self.served_version().filter(|replaced| replaced.id != id) {
            self.note_content_change();
            if replaced.rules() != version.rules() {
                self.content_changes.note_route_change();
            }
            self.retained_versions.retain(replaced, Duration::ZERO);
        }
        if self.search.is_enabled() || self.playground.has_script() {
            self.update_inserted_tag(Some(&version));
        }
        self.served_version.store(Some(Arc::new(version)));
        self.codings.retain_version(id);
        self.retained_versions.remove(id);
        self.retained_versions.remove_expired();
        self.markdown.begin_version(id);
        self.invalidate_responses();
        self.version_changes.send_replace(());
    }

    /// Serves hashed assets of `version` as well, which was replaced `age` ago, before this process started.
    pub fn retain_version(&self, version: SealedVersion, age: Duration) {
        let id = version.id;
        self.retained_versions.retain(Arc::new(version), age);
        // The version may have become active again meanwhile.
        if self.served_version().is_some_and(|current| current.id == id) {
            self.retained_versions.remove(id);
        }
        self.invalidate_responses();
    }

    /// Records that until now some path may have led to other content (see [`ContentChanges::note_content_change`]).
    pub fn note_content_change(&self) {
        self.content_changes.note_content_change();
    }

    /// Invalidates all cached responses. Must be called after the change: a thread that reads the new generation then
    /// also reads the change.
    pub(super) fn invalidate_responses(&self) {
        self.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of calls of [`Site::invalidate_responses`].
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the dates by which preconditions of a file with this modification time are evaluated.
    pub(super) fn content_dates(&self, modified: i64) -> ContentDates {
        self.content_changes.dates(modified)
    }

    /// Returns whether versions that were replaced before this process started are still being opened.
    pub fn is_opening(&self) -> bool {
        self.retained_versions.is_opening()
    }

    /// Returns the time for which hashed assets of a replaced version are served.
    pub fn asset_grace(&self) -> Duration {
        self.settings.asset_grace
    }

    /// Reports that a file could not be sent as it was sealed, for this `reason`. The file may be of any version that
    /// is served or retained, so all of them are reported.
    pub(super) fn report_damage(&self, reason: &str) {
        let current = self.served_version().map(|version| version.id);
        let versions: Vec<VersionId> = current.into_iter().chain(self.retained_versions.ids()).collect();
        self.damage_reports.report(&versions, reason);
    }

    /// Waits for a report of damage and returns the versions that may be damaged.
    pub async fn wait_for_damage(&self) -> BTreeSet<VersionId> {
        self.damage_reports.wait_for_report().await
    }

    /// Stops serving assets of a replaced version, because the version is to be removed.
    pub fn release_version(&self, id: VersionId) {
        self.retained_versions.remove(id);
        self.invalidate_responses();
    }

    /// Stops serving assets of versions that were replaced longer ago than the grace period.
    pub fn release_expired_versions(&self) {
        self.retained_versions.remove_expired();
    }

    /// Replaces the operator's rules from the next request on.
    pub fn set_rules(&self, rules: Arc<RuleSet>) {
        // Rules can lead a path to another file.
        if self.served_version.load().is_some() && **self.rules.load() != *rules {
            self.note_content_change();
            self.content_changes.note_route_change();
        }
        self.rules.store(rules);
        self.invalidate_responses();
    }

    /// Returns the operator's rules.
    pub fn rules(&self) -> Guard<Arc<RuleSet>> {
        self.rules.load()
    }

    /// Returns the settings that decide where an address leads, as they are now.
    pub(super) fn address_settings(&self) -> AddressSettings {
        AddressSettings {
            base_path: self.settings.base_path.clone(),
            slashes: self.settings.slashes,
            rules: Arc::clone(&self.rules()),
        }
    }

    /// Replaces the access control from the next request on, also on connections that are open.
    pub fn set_access_control(&self, access_control: AccessControl) {
        self.access_control.store(Arc::new(access_control));
        self.invalidate_responses();
    }

    /// Returns the access control in force.
    pub fn access_control(&self) -> Guard<Arc<AccessControl>> {
        self.access_control.load()
    }

    /// Returns a receiver that is notified each time a version has been set.
    pub fn subscribe_to_versions(&self) -> watch::Receiver<()> {
        self.version_changes.subscribe()
    }

    /// Returns the settings of content security policies; `None` if none are sent.
    pub fn csp_settings(&self) -> Option<&csp::CspSettings> {
        self.settings.security_headers.csp.as_ref()
    }

    /// Adds these content security policies to the responses of the version that they were computed for.
    pub fn set_csp(&self, csp: VersionCsp) {
        self.csp.store(Some(Arc::new(csp)));
        self.invalidate_responses();
    }

    /// Serves these Brotli and Zstandard forms of a version to clients that accept them; with `None`, stops serving
    /// any.
    pub fn set_precompressed(&self, codings: Option<PrecompressedCodings>) {
        self.codings.set(codings);
        self.invalidate_responses();
    }

    /// Stops serving a version from the next request on; requests then get 503.
    pub fn remove_version(&self) {
        self.note_content_change();
        self.served_version.store(None);
        self.codings.set(None);
        self.invalidate_responses();
    }

    /// Returns the version that is served.
    pub fn served_version(&self) -> Option<Arc<SealedVersion>> {
        self.served_version.load_full()
    }

    /// Returns the version that is served, for the duration of one response. Cheaper than [`Site::served_version`].
    pub(super) fn load_served_version(&self) -> Guard<Option<Arc<SealedVersion>>> {
        self.served_version.load()
    }

    /// Returns the bytes in the cache of inflated files, as `server.identityCache` limits them.
    pub fn inflated_file_cache_bytes(&self) -> u64 {
        self.inflated_file_cache.bytes()
    }

    /// Returns the bytes of memory that responses hold while clients read them, as `server.heldBytes` limits them.
    pub fn held_bytes(&self) -> u64 {
        HELD.held()
    }

    /// Returns the number of requests answered since the start, by class of status code.
    pub fn request_counts(&self) -> [u64; STATUS_CLASSES.len()] {
        self.request_counts.each_ref().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the path below which the site is served, with a slash at both ends.
    pub fn base_path(&self) -> &str {
        &self.settings.base_path
    }

    /// Returns whether the response or the access log depends on the client.
    pub(super) fn depends_on_client(&self) -> bool {
        !self.access_control().rules.is_open() || self.settings.hsts.is_some() || self.access_log.is_some()
    }

    /// Returns the access log, if there is one.
    pub fn access_log(&self) -> Option<&Arc<AccessLog>> {
        self.access_log.as_ref()
    }

    /// Counts a response with this status.
    pub(super) fn count_response(&self, status: StatusCode) {
        let class = usize::from(status.as_u16() / 100).saturating_sub(2).min(STATUS_CLASSES.len() - 1);
        self.request_counts[class].fetch_add(1, Ordering::Relaxed);
    }
}

/// A guard that exists while versions that were replaced before this process started are being opened.
#[derive(Debug)]
pub struct OpeningGuard(Arc<Site>);

impl OpeningGuard {
    /// Marks the site as opening versions until the guard is dropped.
    pub fn start(site: &Arc<Site>) -> OpeningGuard {
        site.retained_versions.set_opening(true);
        OpeningGuard(Arc::clone(site))
    }
}

impl Drop for OpeningGuard {
    fn drop(&mut self) {
        self.0.retained_versions.set_opening(false);
    }
}

#[cfg(test)]
mod tests;
