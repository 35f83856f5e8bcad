//! The real system: the store, this machine's files, and upstreams over the network.
//!
//! A sync runs on a separate thread and blocks there; sockets and timers run on the runtime in [`TaskContext`]. It can
//! be cancelled whenever it waits, and at each page that the gate reads.

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
use crate::api::responses::{ExportJob, SignedLink};
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
use docwharf_base::net::client::{HttpClient, build_client};
use docwharf_base::net::redirects::{RedirectPolicy, RedirectScope, follow_redirects};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::regular_file;
use docwharf_base::secret::{SafeUrl, SecretRedactor};
use docwharf_site::seal::SealProgress;

use super::activation::{SyncReport, activate_and_prune};
use super::activation_decision::ActivationRequest;
use super::environment::{CallResult, KnownBundle, SyncEnvironment};
use super::incoming_bundle::IncomingBundle;
use super::ingest::{IngestedBundle, ingest_bundle, note_offered_again};
use super::known_bundles::find_known_bundles;
use super::local_source::bundle_file_metadata;
use super::plan::{BundleFileState, SyncTrigger};
use super::record_recovery::read_record;
use super::streaming_seal::StreamingSeal;
use super::{SyncError, SyncSettings, disk_space, run};

/// Upper bound of a probe's body in bytes; a larger one is an error.
const MAX_PROBE_BYTES: usize = 8 * 1024 * 1024;

/// The progress of a task, for display.
#[derive(Debug, Default)]
pub struct TaskProgress {
    step: Mutex<String>,
    error: Mutex<Option<String>>,
    percent: Mutex<Option<f64>>,
    /// The progress of the download.
    pub fetching: Arc<DownloadProgress>,
    /// The progress of sealing.
    pub sealing: SealProgress,
}

impl TaskProgress {
    /// Sets the current step. It is logged once, however often it is set.
    pub fn set_step(&self, step: &str) {
        let mut current = self.step.lock();
        if *current != step {
            tracing::info!("{}", OneLine(step));
            step.clone_into(&mut current);
            self.set_error(None);
        }
    }

    /// Sets the step without logging it, unlike [`TaskProgress::set_step`]: for a step that is only displayed.
    pub fn display_step(&self, step: &str) {
        step.clone_into(&mut self.step.lock());
    }

    /// Sets the error of the current step while it is retried; none when it continues.
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
    pub fn step(&self) -> String {
        self.step.lock().clone()
    }
}

/// The context of the process that a task runs in, such as a sync or an import.
#[derive(Debug, Clone)]
pub struct TaskContext {
    /// Runs sockets and timers; it must have more than one thread.
    pub runtime: Handle,
    /// Becomes true to cancel the task.
    pub stop: watch::Receiver<bool>,
    /// The progress, for display.
    pub progress: Arc<TaskProgress>,
    /// The user or process that has started the task, for receipts and history.
    pub author: String,
    /// Whether the target version becomes active although the gate refuses it.
    pub force: bool,
    /// The configuration in force, where it may change during a task.
    pub in_force: Option<Arc<ArcSwap<SyncSettings>>>,
}

/// Runs one sync on the real system.
pub fn sync_store(
    writer: &StoreWriter,
    sync_settings: &SyncSettings,
    trigger: SyncTrigger,
    context: &TaskContext,
) -> Result<SyncReport, SyncError> {
    let mut record = read_record(writer)?;
    let start = Instant::now();
    let mut environment = SystemEnvironment {
        writer,
        sync_settings,
        context,
        http: None,
        api: None,
        download: None,
        streaming_seal: None,
        start,
    };
    run::run_sync(&mut environment, &mut record, sync_settings, trigger)
}

struct SystemEnvironment<'a> {
    writer: &'a StoreWriter,
    sync_settings: &'a SyncSettings,
    context: &'a TaskContext,
    http: Option<HttpClient>,
    api: Option<ApiClient>,
    download: Option<Download>,
    streaming_seal: Option<StreamingSeal>,
    start: Instant,
}

impl TaskContext {
    /// The configuration in force now, for a task that began under `sync_settings`.
    pub fn in_force(&self, sync_settings: &SyncSettings) -> SyncSettings {
        self.in_force.as_ref().map_or_else(|| sync_settings.clone(), |current| SyncSettings::clone(&current.load()))
    }

    /// Whether the task has been cancelled, for code that does not wait.
    pub fn is_cancelled(&self) -> bool {
        *self.stop.borrow()
    }

    /// Waits for a future; fails if the task is cancelled.
    pub fn wait_for<T>(&self, future: impl Future<Output = T>) -> Result<T, SyncError> {
        let mut stop = self.stop.clone();
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                _ = stop.wait_for(|&stop| stop) => Err(SyncError::Cancelled),
                value = future => Ok(value),
            }
        })
    }
}

impl SystemEnvironment<'_> {
    /// The HTTP client, built once for each sync: certificates may have been replaced since the last one.
    fn http(&mut self) -> Result<HttpClient, SyncError> {
        if let Some(http) = &self.http {
            return Ok(http.clone());
        }
        let http = build_client(&self.sync_settings.network)?;
        self.http = Some(http.clone());
        Ok(http)
    }

    fn api(&mut self) -> Result<(ApiClient, String), SyncError> {
        let Some(source) = &self.sync_settings.api else {
            return Err(SyncError::UnusableSetting("there is no [api] in the configuration".to_owned()));
        };
        if let Some(api) = &self.api {
            return Ok((api.clone(), source.domain.clone()));
        }
        let key = source.api_key.read()?;
        let network = &self.sync_settings.network;
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
        self.start.elapsed()
    }

    fn random(&mut self) -> f64 {
        backoff::random_fraction()
    }

    fn wait(&mut self, pause: Duration) -> Result<(), SyncError> {
        self.context.wait_for(async { tokio::time::sleep(pause).await })
    }

    fn begin_step(&mut self, step: &str) {
        self.context.progress.set_step(step);
    }

    fn show_progress(&mut self, percent: Option<f64>) {
        self.context.progress.set_percent(percent);
        // The upstream has responded.
        self.context.progress.set_error(None);
    }

    fn warn(&mut self, message: &str) {
        let line = OneLine(message).to_string();
        tracing::warn!("{line}");
        self.context.progress.set_error(Some(line));
    }

    fn save_record(&mut self, record: &mut StoreRecord) -> Result<(), SyncError> {
        Ok(self.writer.save_sync_record(record)?)
    }

    fn append_event(&mut self, what: &str, version: Option<VersionId>, note: Option<String>) {
        self.writer.note(&self.context.author, what, version, note);
    }

    fn has_undamaged(&self, id: VersionId) -> bool {
        self.writer.store().has_undamaged(id)
    }

    fn is_empty(&self) -> Result<bool, SyncError> {
        Ok(self.writer.store().versions()?.is_empty())
    }

    fn bundle_file_state(&mut self, path: &Path) -> Result<BundleFileState, SyncError> {
        let metadata = bundle_file_metadata(path, self.sync_settings.bundle_key())?;
        let modified = metadata.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
        Ok(BundleFileState {
            source: path.display().to_string(),
            size: metadata.len(),
            modified: modified.and_then(|d| i64::try_from(d.as_nanos()).ok()).unwrap_or(0),
        })
    }

    fn digest_file(&mut self, path: &Path) -> Result<Digest, SyncError> {
        use std::io::Read;
        let key = self.sync_settings.bundle_key();
        let missing = |source| SyncError::Missing { path: path.to_owned(), key, source };
        let mut file = regular_file::open(path).map_err(missing)?;
        let mut hasher = Sha256Hasher::new();
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let n = file.read(&mut buffer).map_err(missing)?;
            if n == 0 {
                return Ok(hasher.finalize_reset());
            }
            hasher.update(&buffer[..n]);
        }
    }

    fn read_probe(&mut self, url: &SafeUrl, previous: Option<&ProbeResult>) -> CallResult<Option<ProbeResult>> {
        let http = self.http()?;
        let (timeout, redirects) = (self.sync_settings.network.call_timeout, self.sync_settings.network.max_redirects);
        self.context.wait_for(async {
            let request = read_probe(&http, url, previous, redirects);
            let timeout_error = || {
                RequestError::new(
                    RequestErrorCause::NoUsableResponse,
                    format!("no response within {}", docwharf_base::net::format_seconds(timeout)),
                )
            };
            tokio::time::timeout(timeout, request).await.unwrap_or_else(|_| Err(timeout_error()))
        })
    }

    fn prepare_api(&mut self) -> Result<(), SyncError> {
        self.api().map(drop)
    }

    fn start_job(&mut self) -> CallResult<String> {
        let (api, domain) = self.api()?;
        let version = self.sync_settings.pin.as_ref().map(VersionLabel::as_str);
        self.context.wait_for(api.start_export(&domain, version))
    }

    fn poll_job(&mut self, id: &str) -> CallResult<ExportJob> {
        let (api, _) = self.api()?;
        self.context.wait_for(api.poll_export(id))
    }

    fn request_link(&mut self, id: &str) -> CallResult<SignedLink> {
        let (api, _) = self.api()?;
        self.context.wait_for(api.request_link(id))
    }

    fn known_bundles(&self, record: &StoreRecord, source: &str) -> Vec<KnownBundle> {
        find_known_bundles(self.writer, record, source, self.sync_settings.sha256)
    }

    fn begin_download(&mut self, source: &str, known: Vec<BundleValidator>) -> Result<(), SyncError> {
        let dir = self.writer.store().downloads_directory()?;
        let progress = Arc::clone(&self.context.progress.fetching);
        let limit = self.sync_settings.seal_options.limits.archive;
        let network = self.sync_settings.network.clone();
        // Before the download is replaced: the sealing thread reads its file.
        self.streaming_seal = None;
        self.download = Some(Download::new(self.http()?, network, progress, &dir, source, limit, known));
        Ok(())
    }

    fn reserve_space(&mut self, record: &StoreRecord, size: u64) -> Result<(), SyncError> {
        let received = self.download.as_ref().map_or(0, Download::received);
        let request = SpaceRequest { version_bytes: size, remaining_bytes: size.saturating_sub(received) };
        self.streaming_seal = self
            .streaming_seal
            .take()
            .and_then(|sealing| sealing.retain_if_space(self.writer, self.sync_settings, request.remaining_bytes));
        Ok(disk_space::reserve_space(self.writer, record, self.sync_settings, request, &self.context.author)?)
    }

    fn attempt_download(&mut self, record: &StoreRecord, url: &SafeUrl) -> CallResult<DownloadResult> {
        // Cannot happen: `SyncRun::begin_download` is always called before `SyncRun::download`.
        let Some(download) = &mut self.download else { return Err(SyncError::Cancelled) };
        let (space_error, streaming_seal) = (Cell::new(None), Cell::new(self.streaming_seal.take()));
        let before_receiving = |expected: &ExpectedBundle<'_>| {
            streaming_seal.set(
                streaming_seal
                    .take()
                    .and_then(|sealing| sealing.retain_for_download(self.writer, self.sync_settings, expected)),
            );
            let request = SpaceRequest { version_bytes: expected.size, remaining_bytes: expected.remaining };
            disk_space::reserve_space(self.writer, record, self.sync_settings, request, &self.context.author).map_err(
                |error| {
                    let request_error = RequestError::new(RequestErrorCause::Disk, ErrorChain(&error).to_string());
                    space_error.set(Some(error));
                    request_error
                },
            )?;
            streaming_seal
                .set(streaming_seal.take().or_else(|| StreamingSeal::start(self.writer, self.sync_settings, expected)));
            Ok(())
        };
        let result = self.context.wait_for(download.attempt(url, &before_receiving))?;
        self.streaming_seal =
            streaming_seal.into_inner().filter(|_| !matches!(result, Ok(DownloadResult::Unchanged(_))));
        match space_error.into_inner() {
            Some(error) => Err(error.into()),
            None => Ok(result),
        }
    }

    fn has_received_another_mebibyte(&mut self) -> bool {
        self.download.as_mut().is_some_and(Download::has_received_another_mebibyte)
    }

    fn discard_download(&mut self) {
        self.streaming_seal = None;
        if let Some(download) = &mut self.download {
            download.restart();
        }
    }

    fn remove_outer_gzip_layer(&mut self, received: &ReceivedBundle) -> Result<Option<PathBuf>, SyncError> {
        let limit = self.sync_settings.seal_options.limits.archive;
        let downloads = self.writer.store().downloads_directory()?;
        Ok(fetch::remove_outer_gzip_layer(&downloads, limit).map_err(StoreError::io("unwrap", &received.path))?)
    }

    fn ingest(
        &mut self,
        record: &mut StoreRecord,
        incoming_bundle: &IncomingBundle<'_>,
        may_move: bool,
    ) -> Result<IngestedBundle, SyncError> {
        let streamed_seal = self.streaming_seal.take().and_then(|sealing| sealing.finish(incoming_bundle.path));
        let incoming_bundle = &IncomingBundle { streamed_seal: RefCell::new(streamed_seal), ..*incoming_bundle };
        ingest_bundle(
            self.writer,
            record,
            self.sync_settings,
            incoming_bundle,
            may_move,
            &self.context.author,
            &self.context.progress.sealing,
        )
    }

    fn note_offered_again(&mut self, record: &mut StoreRecord, source: &str, id: VersionId) -> Result<(), SyncError> {
        Ok(note_offered_again(self.writer, record, source, id, &self.context.author)?)
    }

    fn activate_target_version(
        &mut self,
        record: &mut StoreRecord,
        reported: Option<VersionId>,
        ingested: Option<IngestedBundle>,
    ) -> Result<SyncReport, SyncError> {
        let is_cancelled = || self.context.is_cancelled();
        let in_force = || self.context.in_force(self.sync_settings);
        let request = ActivationRequest {
            author: &self.context.author,
            force: self.context.force,
            is_cancelled: &is_cancelled,
            in_force: &in_force,
        };
        activate_and_prune(self.writer, record, request, reported, ingested)
    }
}

/// Sends a conditional GET without the API key. The bodies are compared, because a server may change dates without a
/// change of the content.
async fn read_probe(
    http: &HttpClient,
    url: &SafeUrl,
    previous: Option<&ProbeResult>,
    max_redirects: usize,
) -> Result<Option<ProbeResult>, RequestError> {
    let policy = RedirectPolicy { scope: RedirectScope::AnyOrigin, max_redirects };
    let followed = follow_redirects(http, &Method::GET, url, &policy, async |hop| {
        let mut request = hop.request()?;
        if let Some(etag) = previous.and_then(|previous| previous.etag.as_deref()) {
            request = request.header(IF_NONE_MATCH, etag);
        } else if let Some(date) = previous.and_then(|previous| previous.last_modified.as_deref()) {
            request = request.header(IF_MODIFIED_SINCE, date);
        }
        request.send().await.map_err(|error| RequestError::from_client(error, hop.url))
    });
    let (mut response, final_url) = followed.await?;
    let status = response.status().as_u16();
    if status == 304 && previous.is_some() {
        return Ok(None);
    }
    let text = |name| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
    let (etag, last_modified) = (text(ETAG), text(LAST_MODIFIED));
    let headers = response.headers().clone();
    let mut hasher = Sha256Hasher::new();
    let mut size = 0;
    let mut start = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| RequestError::from_client(error, &final_url))? {
        size += chunk.len();
        if size > MAX_PROBE_BYTES {
            return Err(RequestError::new(RequestErrorCause::TooLarge, "it is larger than 8 MiB"));
        }
        if start.len() < 1024 {
            start.extend_from_slice(&chunk[..chunk.len().min(1024)]);
        }
        hasher.update(&chunk);
    }
    if status != 200 {
        let mut redactor = SecretRedactor::default();
        redactor.hide_url(url);
        redactor.hide_url(&final_url);
        return Err(RequestError::from_response(status, &headers, &start, &redactor));
    }
    Ok(Some(ProbeResult { sha256: hasher.finalize_reset().to_hex(), etag, last_modified }))
}

#[cfg(test)]
mod tests;
