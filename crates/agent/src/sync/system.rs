//! The real system: the store, this machine's files, and upstreams over the network.
//!
//! A sync runs on a thread of its own and blocks there; sockets and timers belong to the runtime that it is given. It
//! can be cancelled whenever it waits, and at each page that the gate reads.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use arc_swap::ArcSwap;
use http::Method;
use http::header::{ETAG, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use tokio::runtime::Handle;
use tokio::sync::watch;

use crate::api::ApiClient;
use crate::api::responses::{ExportJob, PresignedLink};
use crate::fetch::{self, BundleValidator, Download, DownloadProgress, DownloadResult, ExpectedBundle, ReceivedBundle};
use crate::store::StoreError;
use crate::store::operations::StoreOperations;
use crate::store::record::{ProbeResult, StoreRecord};
use crate::store::space::SpaceRequest;
use crate::store::writer::StoreWriter;
use docwharf_base::backoff;
use docwharf_base::clock::now_unix_seconds;
use docwharf_base::error_chain::{ErrorChain, OneLine};
use docwharf_base::locks::Mutex;
use docwharf_base::model::digest::{Digest, Sha256Hasher};
use docwharf_base::model::version::{VersionId, VersionLabel};
use docwharf_base::net::client::build_client;
use docwharf_base::net::redirects::{RedirectPolicy, RedirectScope, follow_redirects};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::regular_file;
use docwharf_base::secret::{SafeUrl, Scrubber};
use docwharf_site::seal::SealProgress;

use super::activation::{SyncReport, activate_and_prune};
use super::activation_decision::ActivationRequest;
use super::environment::{CallResult, KnownBundle, SyncEnvironment};
use super::incoming_bundle::IncomingBundle;
use super::ingest::{IngestedBundle, ingest_bundle, note_offered_again};
use super::known_bundles::known;
use super::plan::{BundleFileState, SyncTrigger};
use super::record_recovery::read_record;
use super::streaming_seal::StreamingSeal;
use super::{SyncError, SyncIntent, disk_space, run};

/// Upper bound of a probe's body in bytes; a larger one is an error.
const MAX_PROBE_BYTES: usize = 8 * 1024 * 1024;

/// The progress of a sync, for display.
#[derive(Debug, Default)]
pub struct SyncProgress {
    what: Mutex<String>,
    error: Mutex<Option<String>>,
    percent: Mutex<Option<f64>>,
    /// The progress of the download.
    pub fetching: Arc<DownloadProgress>,
    /// The progress of sealing.
    pub sealing: SealProgress,
}

impl SyncProgress {
    /// Sets the current step. It is logged once, however often it is set.
    pub fn tell(&self, what: &str) {
        let mut said = self.what.lock();
        if *said != what {
            tracing::info!("{}", OneLine(what));
            what.clone_into(&mut said);
            self.set_error(None);
        }
    }

    /// Shows the step of another process, without logging it.
    pub fn show(&self, what: &str) {
        what.clone_into(&mut self.what.lock());
    }

    /// Sets the error of the current step while it is retried; none when it goes on.
    pub fn set_error(&self, error: Option<String>) {
        *self.error.lock() = error;
    }

    /// The error of the current step, on one line.
    pub fn error(&self) -> Option<String> {
        self.error.lock().clone()
    }

    /// Sets the progress of an export job in percent.
    pub fn set_percent(&self, percent: Option<f64>) {
        *self.percent.lock() = percent;
    }

    /// The progress of an export job in percent, if one is running and reports it.
    pub fn percent(&self) -> Option<f64> {
        *self.percent.lock()
    }

    /// The current step, in a few words.
    pub fn what(&self) -> String {
        self.what.lock().clone()
    }
}

/// The context of the process that a sync runs in.
#[derive(Debug, Clone)]
pub struct SyncContext {
    /// Runs sockets and timers; it must have more than one thread.
    pub runtime: Handle,
    /// Becomes true to cancel the sync.
    pub stop: watch::Receiver<bool>,
    /// The progress, for display.
    pub doing: Arc<SyncProgress>,
    /// The user or process that has asked for the sync, for receipts and history.
    pub who: String,
    /// Whether the version that is due becomes active without the gate.
    pub force: bool,
    /// The configuration in force, where it may change during the work.
    pub in_force: Option<Arc<ArcSwap<SyncIntent>>>,
}

/// Runs one sync on the real system.
pub fn sync_store(
    writer: &StoreWriter,
    intent: &SyncIntent,
    trigger: SyncTrigger,
    means: &SyncContext,
) -> Result<SyncReport, SyncError> {
    let mut record = read_record(writer)?;
    let began = Instant::now();
    let mut act =
        SystemEnvironment { writer, intent, means, http: None, api: None, download: None, ahead: None, began };
    run::run_sync(&mut act, &mut record, intent, trigger)
}

struct SystemEnvironment<'a> {
    writer: &'a StoreWriter,
    intent: &'a SyncIntent,
    means: &'a SyncContext,
    http: Option<reqwest::Client>,
    api: Option<ApiClient>,
    download: Option<Download>,
    ahead: Option<StreamingSeal>,
    began: Instant,
}

impl SyncContext {
    /// The configuration in force now, for work that began under `intent`.
    pub fn in_force(&self, intent: &SyncIntent) -> SyncIntent {
        self.in_force.as_ref().map_or_else(|| intent.clone(), |now| SyncIntent::clone(&now.load()))
    }

    /// Whether the sync has been cancelled, for work that does not wait.
    pub fn is_cancelled(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits for a future; fails if the sync is cancelled.
    pub fn wait_for<T>(&self, future: impl Future<Output = T>) -> Result<T, SyncError> {
        let mut stop = self.stop.clone();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = stop.wait_for(|&stop| stop) => Err(SyncError::Interrupted),
                value = future => Ok(value),
            }
        })
    }
}

impl SystemEnvironment<'_> {
    /// The HTTP client, built once for each sync: certificates may have been replaced since the last one.
    fn http(&mut self) -> Result<reqwest::Client, SyncError> {
        if let Some(http) = &self.http {
            return Ok(http.clone());
        }
        let http = build_client(&self.intent.network)?;
        self.http = Some(http.clone());
        Ok(http)
    }

    fn api(&mut self) -> Result<(ApiClient, String), SyncError> {
        let Some(source) = &self.intent.api else {
            return Err(SyncError::Absent("there is no [api] in the configuration".to_owned()));
        };
        if let Some(api) = &self.api {
            return Ok((api.clone(), source.domain.clone()));
        }
        let key = source.api_key.read()?;
        let network = &self.intent.network;
        let api = ApiClient::new(self.http()?, source.base.clone(), key, network.call_timeout, network.max_redirects);
        self.api = Some(api.clone());
        Ok((api, source.domain.clone()))
    }
}

impl SyncEnvironment for SystemEnvironment<'_> {
    fn now(&mut self) -> i64 {
        now_unix_seconds()
    }

    fn elapsed(&mut self) -> Duration {
        self.began.elapsed()
    }

    fn random(&mut self) -> f64 {
        backoff::random_fraction()
    }

    fn wait(&mut self, pause: Duration) -> Result<(), SyncError> {
        self.means.wait_for(async { tokio::time::sleep(pause).await })
    }

    fn tell(&mut self, what: &str) {
        self.means.doing.tell(what);
    }

    fn show_progress(&mut self, percent: Option<f64>) {
        self.means.doing.set_percent(percent);
        // The upstream has answered.
        self.means.doing.set_error(None);
    }

    fn warn(&mut self, what: &str) {
        let line = OneLine(what).to_string();
        tracing::warn!("{line}");
        self.means.doing.set_error(Some(line));
    }

    fn save(&mut self, record: &mut StoreRecord) -> Result<(), SyncError> {
        Ok(self.writer.save(record)?)
    }

    fn note(&mut self, what: &str, version: Option<VersionId>, note: Option<String>) {
        self.writer.note(&self.means.who, what, version, note);
    }

    fn has(&self, id: VersionId) -> bool {
        self.writer.store().has_whole(id)
    }

    fn is_empty(&self) -> Result<bool, SyncError> {
        Ok(self.writer.store().versions()?.is_empty())
    }

    fn bundle_file_state(&mut self, path: &Path) -> Result<BundleFileState, SyncError> {
        let metadata =
            std::fs::metadata(path).map_err(|source| SyncError::Missing { path: path.to_owned(), source })?;
        if metadata.is_dir() {
            return Err(SyncError::IsFolder { path: path.to_owned() });
        }
        if !metadata.is_file() {
            // Opening a named pipe would wait for a writer, perhaps for ever.
            let source = regular_file::not_regular_error(metadata.file_type());
            return Err(SyncError::Missing { path: path.to_owned(), source });
        }
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        Ok(BundleFileState {
            source: path.display().to_string(),
            size: metadata.len(),
            modified: modified.and_then(|d| i64::try_from(d.as_nanos()).ok()).unwrap_or(0),
        })
    }

    fn digest(&mut self, path: &Path) -> Result<Digest, SyncError> {
        use std::io::Read;
        let missing = |source| SyncError::Missing { path: path.to_owned(), source };
        let mut file = regular_file::open(path).map_err(missing)?;
        let mut hasher = Sha256Hasher::new();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let n = file.read(&mut buffer).map_err(missing)?;
            if n == 0 {
                return Ok(hasher.take());
            }
            hasher.update(&buffer[..n]);
        }
    }

    fn probe(&mut self, url: &SafeUrl, before: Option<&ProbeResult>) -> CallResult<Option<ProbeResult>> {
        let http = self.http()?;
        let (idle, redirects) = (self.intent.network.call_timeout, self.intent.network.max_redirects);
        self.means.wait_for(async {
            let read = probe(&http, url, before, redirects);
            let late = || {
                RequestError::new(
                    RequestErrorCause::NoResponse,
                    format!("no answer within {}", docwharf_base::net::format_seconds(idle)),
                )
            };
            tokio::time::timeout(idle, read).await.unwrap_or_else(|_| Err(late()))
        })
    }

    fn prepare(&mut self) -> Result<(), SyncError> {
        self.api().map(drop)
    }

    fn start_job(&mut self) -> CallResult<String> {
        let (api, domain) = self.api()?;
        let version = self.intent.pin.as_ref().map(VersionLabel::as_str);
        self.means.wait_for(api.start_export(&domain, version))
    }

    fn poll(&mut self, id: &str) -> CallResult<ExportJob> {
        let (api, _) = self.api()?;
        self.means.wait_for(api.poll_export(id))
    }

    fn link(&mut self, id: &str) -> CallResult<PresignedLink> {
        let (api, _) = self.api()?;
        self.means.wait_for(api.request_link(id))
    }

    fn known(&self, record: &StoreRecord, source: &str) -> Vec<KnownBundle> {
        known(self.writer, record, source, self.intent.sha256)
    }

    fn begin_download(&mut self, source: &str, known: Vec<BundleValidator>) -> Result<(), SyncError> {
        let dir = self.writer.store().downloads_directory()?;
        let progress = Arc::clone(&self.means.doing.fetching);
        let limit = self.intent.effort.limits.archive;
        let network = self.intent.network.clone();
        // Before the download is replaced: the sealing thread reads its file.
        self.ahead = None;
        self.download = Some(Download::new(self.http()?, network, progress, &dir, source, limit, known));
        Ok(())
    }

    fn reserve(&mut self, record: &StoreRecord, size: u64) -> Result<(), SyncError> {
        let here = self.download.as_ref().map_or(0, Download::received);
        let wanted = SpaceRequest { whole: size, more: size.saturating_sub(here) };
        self.ahead = self.ahead.take().and_then(|ahead| ahead.gives_way(self.writer, self.intent, wanted.more));
        Ok(disk_space::reserve_space(self.writer, record, self.intent, wanted, &self.means.who)?)
    }

    fn fetch(&mut self, record: &StoreRecord, url: &SafeUrl) -> CallResult<DownloadResult> {
        let Some(download) = &mut self.download else { return Err(SyncError::Interrupted) };
        let (lacking, ahead) = (Cell::new(None), Cell::new(self.ahead.take()));
        let room = |coming: &ExpectedBundle<'_>| {
            ahead.set(ahead.take().and_then(|ahead| ahead.goes_on(self.writer, self.intent, coming)));
            let wanted = SpaceRequest { whole: coming.size, more: coming.remaining };
            disk_space::reserve_space(self.writer, record, self.intent, wanted, &self.means.who).map_err(|error| {
                let trouble = RequestError::new(RequestErrorCause::Disk, ErrorChain(&error).to_string());
                lacking.set(Some(error));
                trouble
            })?;
            ahead.set(ahead.take().or_else(|| StreamingSeal::begin(self.writer, self.intent, coming)));
            Ok(())
        };
        let result = self.means.wait_for(download.attempt(url, &room))?;
        self.ahead = ahead.into_inner().filter(|_| !matches!(result, Ok(DownloadResult::Unchanged(_))));
        match lacking.into_inner() {
            Some(error) => Err(error.into()),
            None => Ok(result),
        }
    }

    fn has_moved(&mut self) -> bool {
        self.download.as_mut().is_some_and(Download::has_progressed)
    }

    fn discard(&mut self) {
        self.ahead = None;
        if let Some(download) = &mut self.download {
            download.restart();
        }
    }

    fn unwrap(&mut self, arrived: &ReceivedBundle) -> Result<Option<PathBuf>, SyncError> {
        let limit = self.intent.effort.limits.archive;
        let downloads = self.writer.store().downloads_directory()?;
        Ok(fetch::unwrap_second_layer(&downloads, limit).map_err(StoreError::io("unwrap", &arrived.path))?)
    }

    fn bring(
        &mut self,
        record: &mut StoreRecord,
        arrival: &IncomingBundle<'_>,
        ours: bool,
    ) -> Result<IngestedBundle, SyncError> {
        let done = self.ahead.take().and_then(|ahead| ahead.finish(arrival.path));
        let arrival = &IncomingBundle { ahead: RefCell::new(done), ..*arrival };
        ingest_bundle(self.writer, record, self.intent, arrival, ours, &self.means.who, &self.means.doing.sealing)
    }

    fn find_again(&mut self, record: &mut StoreRecord, source: &str, id: VersionId) -> Result<(), SyncError> {
        Ok(note_offered_again(self.writer, record, source, id, &self.means.who)?)
    }

    fn settle(
        &mut self,
        record: &mut StoreRecord,
        found: Option<VersionId>,
        brought: Option<IngestedBundle>,
    ) -> Result<SyncReport, SyncError> {
        let stop = || self.means.is_cancelled();
        let in_force = || self.means.in_force(self.intent);
        let asker =
            ActivationRequest { who: &self.means.who, force: self.means.force, stop: &stop, in_force: &in_force };
        activate_and_prune(self.writer, record, asker, found, brought)
    }
}

/// Sends a conditional GET without the API key. The body is compared, because servers that export also rewrite dates.
async fn probe(
    http: &reqwest::Client,
    url: &SafeUrl,
    before: Option<&ProbeResult>,
    max_redirects: usize,
) -> Result<Option<ProbeResult>, RequestError> {
    let policy = RedirectPolicy { scope: RedirectScope::AnyOrigin, max_redirects };
    let followed = follow_redirects(http, &Method::GET, url, &policy, async |hop| {
        let mut request = hop.request();
        if let Some(etag) = before.and_then(|before| before.etag.as_deref()) {
            request = request.header(IF_NONE_MATCH, etag);
        } else if let Some(date) = before.and_then(|before| before.last_modified.as_deref()) {
            request = request.header(IF_MODIFIED_SINCE, date);
        }
        request.send().await.map_err(|error| RequestError::from_client(error, hop.url))
    });
    let (mut response, from) = followed.await?;
    let status = response.status().as_u16();
    if status == 304 && before.is_some() {
        return Ok(None);
    }
    let text = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
    let (etag, last_modified) = (text(ETAG), text(LAST_MODIFIED));
    let headers = response.headers().clone();
    let mut hasher = Sha256Hasher::new();
    let mut size = 0;
    let mut start = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| RequestError::from_client(error, &from))? {
        size += chunk.len();
        if size > MAX_PROBE_BYTES {
            return Err(RequestError::new(RequestErrorCause::TooLarge, "it is over 8 MiB"));
        }
        if start.len() < 1024 {
            start.extend_from_slice(&chunk[..chunk.len().min(1024)]);
        }
        hasher.update(&chunk);
    }
    if status != 200 {
        let mut scrubber = Scrubber::default();
        scrubber.hide_url(url);
        scrubber.hide_url(&from);
        return Err(RequestError::from_answer(status, &headers, &start, &scrubber));
    }
    Ok(Some(ProbeResult { sha256: hasher.take().hex(), etag, last_modified }))
}
