//! The simulated machine as [`SyncEnvironment`]: calls that fail, responses that are lost, bundles that arrive in
//! parts.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use docwharf::api::responses::{ExportJob, SignedLink};
use docwharf::base::secret::SafeUrl;
use docwharf::fetch::{BundleValidator, DownloadResult, ReceivedBundle};
use docwharf::model::digest::Digest;
use docwharf::model::version::{VersionId, VersionLabel};
use docwharf::net::request_error::{RequestError, RequestErrorCause};
use docwharf::seal::SealProgress;
use docwharf::store::operations::StoreOperations;
use docwharf::store::record::{ProbeResult, StoreRecord};
use docwharf::store::space::SpaceRequest;
use docwharf::sync::activation::{SyncReport, activate_and_prune};
use docwharf::sync::activation_decision::ActivationRequest;
use docwharf::sync::environment::{CallResult, KnownBundle, SyncEnvironment};
use docwharf::sync::incoming_bundle::IncomingBundle;
use docwharf::sync::ingest::{IngestedBundle, ingest_bundle, note_offered_again};
use docwharf::sync::known_bundles::find_known_bundles;
use docwharf::sync::plan::BundleFileState;
use docwharf::sync::{BUNDLE_URL_KEY, SyncError, SyncSettings, disk_space};

use super::disk::{Content, PartialDownload};
use super::rules::Host;
use super::sim::{Sim, archive_of, id_of};
use super::upstream::State;

/// Path of a bundle that is being downloaded.
const DOWNLOAD_PATH: &str = "/store/downloads/x";
const MIB: u64 = 1024 * 1024;

/// The environment of one sync on the simulated machine.
pub(crate) struct SimulatedEnvironment<'a> {
    pub(crate) sim: &'a Sim,
    pub(crate) sync_settings: &'a SyncSettings,
    pub(crate) author: &'a str,
    pub(crate) force: bool,
    pub(crate) source: String,
    pub(crate) known: Vec<BundleValidator>,
    /// The largest number of received bytes of any attempt.
    pub(crate) max_received: u64,
    /// The value of `max_received` when attempts were last counted from zero.
    pub(crate) received_at_reset: u64,
}

impl SimulatedEnvironment<'_> {
    fn check_cancelled(&self) -> Result<(), SyncError> {
        if self.sim.stop.load(Ordering::Relaxed) { Err(SyncError::Cancelled) } else { Ok(()) }
    }

    /// Sends a request. Returns its error, if it fails.
    fn call(&self, host: Host, description: impl FnOnce() -> String) -> Result<Option<RequestError>, SyncError> {
        self.sim.operation(description);
        self.check_cancelled()?;
        self.sim.check_call(host);
        let error = self.sim.call_error(host);
        let delay = match &error {
            Some(error) if error.cause == RequestErrorCause::NoUsableResponse => 30_000,
            _ if self.sim.happens(0.02) => 10_000,
            _ => 200,
        };
        self.sim.advance_clock(Duration::from_millis(1 + self.sim.below(delay)));
        Ok(error)
    }

    /// Receives the response or the error of a call.
    fn finish_call<T>(&self, host: Host, response: Result<T, RequestError>) -> CallResult<T> {
        self.sim.operation(|| match &response {
            Ok(_) => "    a response".to_owned(),
            Err(error) => format!("    {error} ({:?})", error.cause),
        });
        self.check_cancelled()?;
        if let Err(error) = &response {
            self.sim.record_call_error(host, error);
        }
        Ok(response)
    }

    fn api_name(&self) -> String {
        self.sync_settings.api.as_ref().map_or_else(String::new, docwharf::sync::ApiSource::name)
    }

    fn reserve_bytes(&self, record: &StoreRecord, request: SpaceRequest) -> Result<(), SyncError> {
        Ok(disk_space::reserve_space(self.sim, record, self.sync_settings, request, self.author)?)
    }

    /// Returns the content of a link.
    fn content_of_link(&self, url: &SafeUrl) -> Result<Content, RequestError> {
        let dead = || RequestError::new(RequestErrorCause::Status(403), "403");
        let number = url.expose().path_segments().and_then(|mut parts| parts.next_back()?.parse::<usize>().ok());
        self.sim.with(|s| match number {
            Some(number) => {
                let &(job, until) = s.upstream.links.get(number).ok_or_else(dead)?;
                if s.elapsed >= until { Err(dead()) } else { Ok(s.upstream.jobs[job].content) }
            }
            None => s.upstream.link.ok_or_else(|| RequestError::new(RequestErrorCause::Status(404), "404")),
        })
    }

    /// Receives the rest of a bundle, or a part of it.
    fn receive_bundle(
        &mut self,
        record: &StoreRecord,
        content: Content,
    ) -> Result<Result<DownloadResult, RequestError>, SyncError> {
        let sim = self.sim;
        let etag = format!("\"{}\"", content.n);
        let bytes = content.bytes;
        let received = sim.with(|s| {
            let partial = s.disk.partial.take();
            let partial = partial.filter(|p| p.source == self.source && p.validator.validator == etag);
            let validator = BundleValidator { validator: etag.clone(), size: bytes };
            let source = self.source.clone();
            let fresh = PartialDownload { source, validator, content, received: 0, resumed: false, damaged: false };
            s.disk.partial.insert(partial.unwrap_or(fresh)).received
        });
        self.reserve_bytes(record, SpaceRequest { version_bytes: bytes, remaining_bytes: bytes - received })?;
        let remaining = bytes - received;
        let is_cut = sim.happens(sim.with(|s| s.faults.call * 3.0));
        let arriving = if is_cut { sim.below(remaining + 1) } else { remaining };
        let is_full = sim.with(|s| s.disk.free()) < arriving;
        sim.advance_clock(Duration::from_millis(arriving / 5000));
        let complete = sim.with(|s| {
            let partial = s.disk.partial.as_mut()?;
            partial.received += if is_full { 0 } else { arriving };
            (partial.received == bytes).then(|| partial.clone())
        });
        self.max_received = self.max_received.max(received + arriving);
        if is_full {
            return Ok(Err(RequestError::new(RequestErrorCause::Disk, "no space left")));
        }
        let Some(partial) = complete else {
            return Ok(Err(RequestError::new(RequestErrorCause::NoUsableResponse, "cut")));
        };
        let has_validator = content.has_validator();
        Ok(Ok(DownloadResult::Received(ReceivedBundle {
            path: PathBuf::from(DOWNLOAD_PATH),
            validator: has_validator.then_some(partial.validator),
            resumed: partial.resumed,
            encoded: false,
        })))
    }
}

impl SyncEnvironment for SimulatedEnvironment<'_> {
    fn now(&mut self) -> i64 {
        self.sim.wall_clock()
    }

    fn elapsed(&mut self) -> Duration {
        self.sim.with(|s| s.elapsed)
    }

    fn random(&mut self) -> f64 {
        self.sim.fraction()
    }

    fn wait(&mut self, pause: Duration) -> Result<(), SyncError> {
        self.sim.operation(|| format!("wait {:.1} s", pause.as_secs_f64()));
        self.check_cancelled()?;
        self.sim.advance_clock(pause);
        self.check_cancelled()
    }

    fn begin_step(&mut self, _: &str) {}

    fn show_progress(&mut self, _: Option<f64>) {}

    fn warn(&mut self, message: &str) {
        self.sim.log(|| format!("    {message}"));
    }

    fn save_record(&mut self, record: &mut StoreRecord) -> Result<(), SyncError> {
        Ok(self.sim.save_sync_record(record)?)
    }

    fn append_event(&mut self, what: &str, version: Option<VersionId>, note: Option<String>) {
        StoreOperations::note(self.sim, self.author, what, version, note);
    }

    fn has_undamaged(&self, id: VersionId) -> bool {
        self.sim.has_undamaged(id)
    }

    fn is_empty(&self) -> Result<bool, SyncError> {
        Ok(self.sim.versions()?.is_empty())
    }

    fn bundle_file_state(&mut self, path: &Path) -> Result<BundleFileState, SyncError> {
        self.sim.operation(|| format!("stat {}", path.display()));
        let file = self.sim.with(|s| s.disk.bundle_files.get(path).cloned());
        let missing = || SyncError::Missing {
            path: path.to_owned(),
            key: BUNDLE_URL_KEY,
            source: std::io::ErrorKind::NotFound.into(),
        };
        let file = file.ok_or_else(missing)?;
        let (source, size) = (path.display().to_string(), file.content.bytes);
        if !file.content.hostile {
            self.sim.note_check(&source, id_of(file.content));
        }
        Ok(BundleFileState { source, size, modified: file.modified })
    }

    fn digest_file(&mut self, path: &Path) -> Result<Digest, SyncError> {
        self.sim.operation(|| format!("digest {}", path.display()));
        let missing = || SyncError::Missing {
            path: path.to_owned(),
            key: BUNDLE_URL_KEY,
            source: std::io::ErrorKind::NotFound.into(),
        };
        let content = self.sim.content_at(path);
        if let Some(content) = content.filter(|content| !content.hostile) {
            self.sim.note_check(&path.display().to_string(), id_of(content));
        }
        Ok(archive_of(content.ok_or_else(missing)?))
    }

    fn read_probe(&mut self, url: &SafeUrl, previous: Option<&ProbeResult>) -> CallResult<Option<ProbeResult>> {
        let error = self.call(Host::Docs, || format!("GET {url}"))?;
        let (source, pin) = (self.api_name(), self.sync_settings.pin.as_ref().map(VersionLabel::as_str));
        let response = if let Some(error) = error {
            Err(error)
        } else {
            let content = self.sim.with(|s| s.upstream.content_of(&source, pin, &mut s.random));
            let sha256 = Digest::compute(&content.n.to_be_bytes()).to_hex();
            let is_unchanged = previous.is_some_and(|previous| previous.sha256 == sha256);
            Ok((!is_unchanged).then_some(ProbeResult { sha256, etag: None, last_modified: None }))
        };
        self.finish_call(Host::Docs, response)
    }

    fn prepare_api(&mut self) -> Result<(), SyncError> {
        self.sim.operation(|| "read the key".to_owned());
        self.sim.with(|s| s.upstream.job_request = (s.elapsed, s.clock_advanced));
        if self.sim.with(|s| s.daemon.has_key) {
            Ok(())
        } else {
            Err(SyncError::UnusableSetting("no API key".to_owned()))
        }
    }

    fn start_job(&mut self) -> CallResult<String> {
        let error = self.call(Host::Api, || "POST jobs".to_owned())?;
        let (source, pin) = (self.api_name(), self.sync_settings.pin.as_ref().map(VersionLabel::as_str));
        self.sim.check_start(&source);
        let sim = self.sim;
        let start = || {
            sim.with(|s| {
                let (now, has_no_faults) = (s.elapsed, s.faults.are_off);
                s.upstream.start_job(&source, pin, now, has_no_faults, &mut s.random)
            })
        };
        // If the response is lost, the job may have been started; and a request may arrive twice.
        let is_response_lost = error.as_ref().is_some_and(|error| {
            matches!(error.cause, RequestErrorCause::NoUsableResponse | RequestErrorCause::Unreadable)
        });
        if (is_response_lost && sim.happens(0.5)) || sim.happens(sim.with(|s| s.faults.call * 0.2)) {
            start();
        }
        let job = match error {
            Some(error) => Err(error),
            None => Ok(start()),
        };
        let job = self.finish_call(Host::Api, job)?;
        Ok(job.map(|job| {
            sim.with(|s| {
                s.upstream.jobs[job].is_known_to_agent = true;
                s.upstream.jobs[job].id.clone()
            })
        }))
    }

    fn poll_job(&mut self, id: &str) -> CallResult<ExportJob> {
        let error = self.call(Host::Api, || format!("GET {id}"))?;
        let state = self.sim.with(|s| s.upstream.find_job(id).map(|job| s.upstream.jobs[job].state(s.elapsed)));
        let response = match (error, state) {
            (Some(error), _) => Err(error),
            (None, None | Some(State::Vanished)) => Err(RequestError::new(RequestErrorCause::Status(404), "404")),
            (None, Some(state)) => {
                let status = match state {
                    State::Completed => "completed",
                    State::Failed => "failed",
                    _ => ["queued", "running", "odd"][self.sim.below(3) as usize],
                };
                let status = status.to_owned();
                Ok(ExportJob { status, progress: None, page_count: None, updated_at: None, error: None })
            }
        };
        self.finish_call(Host::Api, response)
    }

    fn request_link(&mut self, id: &str) -> CallResult<SignedLink> {
        let error = self.call(Host::Api, || format!("POST {id}/bundle"))?;
        let response = match error {
            Some(error) => Err(error),
            None => self.sim.with(|s| {
                let job = s.upstream.find_job(id).filter(|&job| s.upstream.jobs[job].end_state != State::Vanished);
                let job = job.ok_or_else(|| RequestError::new(RequestErrorCause::Status(404), "404"))?;
                let seconds = if s.faults.are_off { 3600 } else { s.random.below(200) };
                s.upstream.links.push((job, s.elapsed + Duration::from_secs(seconds)));
                let url = format!("https://storage.test/{}?sig=secret", s.upstream.links.len() - 1);
                let url = SafeUrl::parse(&url).unwrap();
                let size = s.random.happens(0.7).then_some(s.upstream.jobs[job].content.bytes);
                Ok(SignedLink { url, size, expires_at: None })
            }),
        };
        self.finish_call(Host::Api, response)
    }

    fn known_bundles(&self, record: &StoreRecord, source: &str) -> Vec<KnownBundle> {
        find_known_bundles(self.sim, record, source, self.sync_settings.sha256)
    }

    fn begin_download(&mut self, source: &str, known: Vec<BundleValidator>) -> Result<(), SyncError> {
        self.sim.operation(|| format!("begin the download from {source}"));
        let received = self.sim.with(|s| {
            s.disk.partial = s.disk.partial.take().filter(|partial| partial.source == source);
            s.disk.partial.as_ref().map_or(0, |partial| partial.received)
        });
        (self.known, self.max_received, self.received_at_reset) = (known, received, received);
        source.clone_into(&mut self.source);
        Ok(())
    }

    fn reserve_space(&mut self, record: &StoreRecord, size: u64) -> Result<(), SyncError> {
        let received = self.sim.with(|s| s.disk.partial.as_ref().map_or(0, |partial| partial.received));
        self.reserve_bytes(record, SpaceRequest { version_bytes: size, remaining_bytes: size.saturating_sub(received) })
    }

    fn attempt_download(&mut self, record: &StoreRecord, url: &SafeUrl) -> CallResult<DownloadResult> {
        let host = if url.host() == "storage.test" { Host::Storage } else { Host::Files };
        let error = self.call(host, || format!("GET {url}"))?;
        let content = match error {
            Some(error) => Err(error),
            None => self.content_of_link(url),
        };
        let response = match content {
            Err(error) => Err(error),
            Ok(content) => {
                let validator = format!("\"{}\"", content.n);
                match self.known.iter().find(|known| known.validator == validator && content.has_validator()) {
                    Some(known) => {
                        if !content.hostile {
                            self.sim.note_check(&self.source, id_of(content));
                        }
                        Ok(DownloadResult::Unchanged(known.clone()))
                    }
                    None => self.receive_bundle(record, content)?,
                }
            }
        };
        self.finish_call(host, response)
    }

    fn has_received_another_mebibyte(&mut self) -> bool {
        let has_progressed = self.max_received >= self.received_at_reset + MIB;
        if has_progressed {
            self.received_at_reset = self.max_received;
        }
        has_progressed
    }

    fn discard_download(&mut self) {
        self.sim.operation(|| "discard the received bytes".to_owned());
        self.sim.with(|s| s.disk.partial = None);
    }

    fn remove_outer_gzip_layer(&mut self, _: &ReceivedBundle) -> Result<Option<PathBuf>, SyncError> {
        Ok(None)
    }

    fn ingest(
        &mut self,
        record: &mut StoreRecord,
        incoming_bundle: &IncomingBundle<'_>,
        may_move: bool,
    ) -> Result<IngestedBundle, SyncError> {
        ingest_bundle(
            self.sim,
            record,
            self.sync_settings,
            incoming_bundle,
            may_move,
            self.author,
            &SealProgress::default(),
        )
    }

    fn note_offered_again(&mut self, record: &mut StoreRecord, source: &str, id: VersionId) -> Result<(), SyncError> {
        Ok(note_offered_again(self.sim, record, source, id, self.author)?)
    }

    fn activate_target_version(
        &mut self,
        record: &mut StoreRecord,
        found: Option<VersionId>,
        ingested: Option<IngestedBundle>,
    ) -> Result<SyncReport, SyncError> {
        let flag = std::sync::Arc::clone(&self.sim.stop);
        let is_cancelled = move || flag.load(Ordering::Relaxed);
        let in_force = || self.sim.in_force();
        let request = ActivationRequest {
            author: self.author,
            force: self.force,
            is_cancelled: &is_cancelled,
            in_force: &in_force,
        };
        activate_and_prune(self.sim, record, request, found, ingested)
    }
}
