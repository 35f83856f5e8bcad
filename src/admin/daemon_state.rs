//! The state of a running daemon that is not in its store: the main loop writes it, the admin routes read it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use http::Request;

use crate::features::FeatureSettings;
use docwharf_agent::publish::PublishSettings;
use docwharf_agent::sync::SyncSettings;
use docwharf_agent::sync::system::TaskProgress;
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::locks::Mutex;
use docwharf_base::model::version::VersionId;
use docwharf_serve::search::InjectMode;
use docwharf_serve::tls::ServerTls;
use docwharf_site::coding_file::CodingStatistics;
use docwharf_site::external::csp::CspStatistics;

use super::allowed_hosts::AllowedHosts;

/// The part of the state that changes while the daemon runs.
#[derive(Debug, Clone, Default)]
pub struct DaemonSnapshot {
    /// The sync settings of the configuration in force.
    pub sync_settings: Option<SyncSettings>,
    /// The part of the configuration in force that decides which features there are.
    pub feature_settings: Option<FeatureSettings>,
    /// The version being served.
    pub served: Option<VersionId>,
    /// The time of the next check of the source.
    pub next_check: Option<SystemTime>,
    /// The progress of the task in progress.
    pub progress: Option<Arc<TaskProgress>>,
    /// The number of syncs in a row that failed.
    pub failures: u32,
    /// The settings of publishing, if the served version is published as files.
    pub publish: Option<PublishSettings>,
    /// The error of the last attempt to publish, if it failed.
    pub publish_error: Option<String>,
    /// The state of the content security policies, if any are sent.
    pub policy: Option<PolicyState>,
    /// The state of the Brotli and Zstandard forms, if any are made.
    pub codings: Option<PrecompressedState>,
    /// The state of the search, if the site can be searched.
    pub search: Option<SearchState>,
    /// The state of the recording of what readers do, if that is recorded.
    pub recording: Option<RecordingState>,
    /// The state of the delivery of what is recorded to an origin, if it is delivered.
    pub delivery: Option<DeliveryState>,
    /// The keys of the configuration that have changed, but keep their value until a restart.
    pub restart_keys: Vec<&'static str>,
    /// The state of the inbox, if one is configured.
    pub inbox: Option<InboxState>,
    /// The reason why the current certificate files are not in force, if they are not.
    pub tls_error: Option<String>,
}

/// The inbox of a running daemon.
#[derive(Debug, Clone, Default)]
pub struct InboxState {
    /// `sync.inbox`
    pub directory: PathBuf,
    /// The reason why the inbox cannot be used; `None` if it can.
    pub error: Option<String>,
    /// The reason why its last file was not imported, if it was not.
    pub file_error: Option<String>,
    /// The number of files that were rejected since the daemon started.
    pub rejected: u64,
    /// The reason why the last of them was rejected.
    pub last_rejected: Option<String>,
    /// The number of files that could not be imported and are tried again.
    pub waiting: u64,
    /// The reason why the first of them, by name, could not be imported.
    pub first_waiting: Option<String>,
}

/// The state of the content security policies.
#[derive(Debug, Clone, Copy)]
pub struct PolicyState {
    /// `server.csp`
    pub preset: &'static str,
    /// The version that the policies belong to.
    pub version: VersionId,
    /// The statistics of the policies; `None` until they are known.
    pub statistics: Option<CspStatistics>,
}

/// The state of the Brotli and Zstandard forms (`server.codings`).
#[derive(Debug, Clone)]
pub struct PrecompressedState {
    /// The version that the forms belong to.
    pub version: VersionId,
    /// Whether all configured codings are available.
    pub ready: bool,
    /// The statistics of the `br` coding file, once it is available.
    pub brotli: Option<CodingStatistics>,
    /// The statistics of the `zstd` coding file, once it is available.
    pub zstd: Option<CodingStatistics>,
    /// The reason why forms cannot be made, if there is one.
    pub error: Option<String>,
}

impl PrecompressedState {
    /// Returns the state of a version that has no forms yet.
    pub fn none(version: VersionId) -> PrecompressedState {
        PrecompressedState { version, ready: false, brotli: None, zstd: None, error: None }
    }

    /// Returns the state of a version whose forms cannot be made, with the reason.
    pub fn with_error(version: VersionId, error: String) -> PrecompressedState {
        PrecompressedState { error: Some(error), ..PrecompressedState::none(version) }
    }

    /// Returns the available forms with their statistics.
    pub fn available(&self) -> impl Iterator<Item = (ContentCoding, CodingStatistics)> {
        [(ContentCoding::Brotli, self.brotli), (ContentCoding::Zstd, self.zstd)]
            .into_iter()
            .filter_map(|(coding, statistics)| Some((coding, statistics?)))
    }
}

/// The state of the search of the site (`[search]`).
#[derive(Debug, Clone)]
pub struct SearchState {
    /// The served version.
    pub version: VersionId,
    /// The state of its index.
    pub phase: SearchPhase,
    /// Whether queries are answered from an older index, because there is no index of this version yet.
    pub has_older_index: bool,
    /// Which pages get the script of the search box.
    pub inject: InjectMode,
    /// The parts of the version that concern the search box, once they have been read.
    pub facts: Option<SearchFacts>,
}

/// The state of a search index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SearchPhase {
    /// The index is being opened or built, or waits for that.
    Building,
    /// Queries are answered from the index.
    Ready(IndexStatistics),
    /// The index cannot be built, for this reason.
    Failed(String),
}

/// The size of a search index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IndexStatistics {
    /// The number of pages.
    pub pages: u64,
    /// The number of sections.
    pub sections: u64,
    /// The size in bytes.
    pub bytes: u64,
}

/// The parts of a version that concern the search box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchFacts {
    /// The search index that the site brings, if it brings one: the name of the tool that has made it.
    pub own_search: Option<String>,
    /// The policy that forbids the script of the box, if there is one.
    pub barrier: Option<String>,
}

impl SearchState {
    /// Returns whether pages get the script of the search box, and why. `None` before it is known.
    pub fn insertion(&self) -> Option<(bool, String)> {
        let own_search = self.facts.as_ref().map(|facts| facts.own_search.as_deref());
        match self.inject {
            InjectMode::Always => Some((true, "search.inject is \"always\"".to_owned())),
            InjectMode::Never => Some((false, "search.inject is \"never\"".to_owned())),
            InjectMode::Auto => own_search.map(|own_search| match own_search {
                Some(name) => (false, format!("the site brings a search of its own: {name}")),
                None => (true, "the site brings no search index of its own".to_owned()),
            }),
        }
    }
}

/// The state of the recording of what readers do (`[analytics]`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecordingState {
    /// The reason why nothing is recorded at the moment; `None` if it is.
    pub error: Option<String>,
    /// The size of the file in bytes.
    pub bytes: u64,
    /// The counts since the start.
    pub counts: RecordingCounts,
    /// The file that was moved aside since the start, because it was damaged.
    pub damaged_file: Option<PathBuf>,
}

/// The numbers of what was recorded since the start of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordingCounts {
    /// The searches.
    pub searches: u64,
    /// The clicks on results of searches.
    pub clicks: u64,
    /// The views of pages.
    pub views: u64,
    /// The searches, clicks and views that were dropped, because they could not be written or were too many.
    pub dropped: u64,
}

/// The state of the delivery of what is recorded to an origin (`[analytics.deliver]`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryState {
    /// The URL of the origin's API, without secrets.
    pub target: String,
    /// The reason why the last attempt failed; `None` if it did not.
    pub error: Option<String>,
    /// The time of the last attempt after which nothing waited.
    pub last_success: Option<SystemTime>,
    /// The searches that were delivered since the start.
    pub delivered_searches: u64,
    /// The counts that were delivered since the start; one that has changed is delivered again.
    pub delivered_counts: u64,
    /// The searches that wait.
    pub waiting_searches: u64,
    /// The counts of which the origin does not have the present value.
    pub waiting_counts: u64,
    /// The batches of searches that the origin has refused.
    pub refused_batches: u64,
    /// The counts that the origin has refused.
    pub refused_counts: u64,
    /// The searches that are not delivered, because too many waited.
    pub undelivered_searches: u64,
}

/// The state of a running daemon.
#[derive(Debug)]
pub struct DaemonState {
    /// The time at which the daemon started.
    pub started: SystemTime,
    /// The URLs of the site.
    pub site_urls: Vec<String>,
    /// The URLs of the admin routes, besides the control socket.
    pub admin_urls: Vec<String>,
    /// The URLs of the version that waits to become active.
    pub waiting_urls: Vec<String>,
    /// The TLS certificate in force, if connections are encrypted.
    pub tls: Option<Arc<ServerTls>>,
    snapshot: Mutex<DaemonSnapshot>,
    hosts: ArcSwap<AllowedHosts>,
}

impl DaemonState {
    /// Creates the state of a daemon that starts now, with the URLs of its listeners: for the site, for the admin
    /// routes, for the version that waits to become active.
    pub fn new(
        site_urls: Vec<String>,
        admin_urls: Vec<String>,
        waiting_urls: Vec<String>,
        tls: Option<Arc<ServerTls>>,
    ) -> DaemonState {
        let (snapshot, hosts) = (Mutex::default(), ArcSwap::from_pointee(AllowedHosts::new(&[])));
        DaemonState { started: SystemTime::now(), site_urls, admin_urls, waiting_urls, tls, snapshot, hosts }
    }

    /// Replaces the host names that the admin listener accepts, from the next request on.
    pub fn allow_hosts(&self, hosts: AllowedHosts) {
        self.hosts.store(Arc::new(hosts));
    }

    /// Returns whether the admin listener accepts the host that a request names.
    pub fn permits<B>(&self, request: &Request<B>) -> bool {
        self.hosts.load().permits(request.uri(), request.headers())
    }

    /// Returns a copy of the current state.
    pub fn snapshot(&self) -> DaemonSnapshot {
        self.snapshot.lock().clone()
    }

    /// Changes the current state.
    pub fn update(&self, change: impl FnOnce(&mut DaemonSnapshot)) {
        change(&mut self.snapshot.lock());
    }
}
