//! Tests of one sync in a scripted environment: its effects, their order, and the record that it leaves.

mod attempts;
mod downloads;
mod export_jobs;

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::api::preview::StatusPath;
use crate::api::responses::{ExportJob, SignedLink};
use crate::fetch::{BundleValidator, DownloadResult, ReceivedBundle};
use crate::store::incoming_version::CommitOutcome;
use crate::store::record::{ProbeResult, StoreRecord, SyncAttempt};
use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::secret::SafeUrl;

use super::activation::SyncReport;
use super::api_key::ApiKeyLocation;
use super::environment::{CallResult, KnownBundle, SyncEnvironment};
use super::incoming_bundle::IncomingBundle;
use super::ingest::IngestedBundle;
use super::plan::BundleFileState;
use super::{ApiSource, BUNDLE_URL_KEY, BundleLocation, SyncError, SyncOutcome, SyncSettings};

/// 2026-11-20T12:00:00Z
const NOON: i64 = 1_795_176_000;
/// The name of the API of [`api_settings`].
const API: &str = "https://api.example/v1#docs";
/// The name of the link of [`link_settings`].
const LINK: &str = "https://files.example/b.zip";

/// An environment whose responses are scripted, and which records each effect in a few words.
#[derive(Default)]
struct ScriptedEnvironment {
    now: i64,
    elapsed: Duration,
    stored: Vec<VersionId>,
    known: Vec<KnownBundle>,
    file_states: VecDeque<BundleFileState>,
    probes: VecDeque<CallResult<Option<ProbeResult>>>,
    starts: VecDeque<CallResult<String>>,
    polls: VecDeque<CallResult<ExportJob>>,
    links: VecDeque<CallResult<SignedLink>>,
    downloads: VecDeque<CallResult<DownloadResult>>,
    /// Whether the attempts have made progress, at each failed attempt; then they have not.
    progress: VecDeque<bool>,
    ingests: VecDeque<Result<IngestedBundle, SyncError>>,
    effects: Vec<String>,
    /// The notes of the lines of history.
    notes: Vec<Option<String>>,
    saved: Vec<StoreRecord>,
    percents: Vec<Option<f64>>,
}

impl ScriptedEnvironment {
    fn new() -> ScriptedEnvironment {
        ScriptedEnvironment { now: NOON, ..ScriptedEnvironment::default() }
    }

    /// Records an effect, and returns its scripted response.
    fn respond<T>(&mut self, effect: String, script: fn(&mut ScriptedEnvironment) -> &mut VecDeque<T>) -> T {
        let response = script(self).pop_front().unwrap_or_else(|| panic!("no response is scripted for {effect:?}"));
        self.effects.push(effect);
        response
    }

    /// How often an effect has happened.
    fn count(&self, effect: &str) -> usize {
        self.effects.iter().filter(|other| *other == effect).count()
    }

    /// The lines of history.
    fn events(&self) -> Vec<&str> {
        self.effects.iter().filter_map(|effect| effect.strip_prefix("event ")).collect()
    }
}

impl SyncEnvironment for ScriptedEnvironment {
    fn now(&mut self) -> i64 {
        self.now
    }

    fn elapsed(&mut self) -> Duration {
        self.elapsed
    }

    fn random(&mut self) -> f64 {
        0.5
    }

    fn wait(&mut self, pause: Duration) -> Result<(), SyncError> {
        self.effects.push(format!("wait {} ms", pause.as_millis()));
        self.elapsed += pause;
        Ok(())
    }

    fn begin_step(&mut self, _: &str) {}

    fn show_progress(&mut self, percent: Option<f64>) {
        self.percents.push(percent);
    }

    fn warn(&mut self, _: &str) {}

    fn save_record(&mut self, record: &mut StoreRecord) -> Result<(), SyncError> {
        self.effects.push("save".to_owned());
        self.saved.push(record.clone());
        Ok(())
    }

    fn append_event(&mut self, what: &str, _: Option<VersionId>, note: Option<String>) {
        self.effects.push(format!("event {what}"));
        self.notes.push(note);
    }

    fn has_undamaged(&self, id: VersionId) -> bool {
        self.stored.contains(&id)
    }

    fn is_empty(&self) -> Result<bool, SyncError> {
        Ok(self.stored.is_empty())
    }

    fn bundle_file_state(&mut self, path: &Path) -> Result<BundleFileState, SyncError> {
        let missing = || SyncError::Missing {
            path: path.to_owned(),
            key: BUNDLE_URL_KEY,
            source: std::io::ErrorKind::NotFound.into(),
        };
        self.file_states.pop_front().ok_or_else(missing)
    }

    fn digest_file(&mut self, _: &Path) -> Result<Digest, SyncError> {
        self.effects.push("digest".to_owned());
        Ok(Digest::compute(b"archive"))
    }

    fn read_probe(&mut self, url: &SafeUrl, before: Option<&ProbeResult>) -> CallResult<Option<ProbeResult>> {
        let condition = if before.is_some() { " if changed" } else { "" };
        self.respond(format!("probe {}{condition}", url.without_secrets()), |environment| &mut environment.probes)
    }

    fn prepare_api(&mut self) -> Result<(), SyncError> {
        Ok(())
    }

    fn start_job(&mut self) -> CallResult<String> {
        self.respond("start".to_owned(), |environment| &mut environment.starts)
    }

    fn poll_job(&mut self, id: &str) -> CallResult<ExportJob> {
        self.respond(format!("poll {id}"), |environment| &mut environment.polls)
    }

    fn request_link(&mut self, id: &str) -> CallResult<SignedLink> {
        self.respond(format!("link of {id}"), |environment| &mut environment.links)
    }

    fn known_bundles(&self, _: &StoreRecord, _: &str) -> Vec<KnownBundle> {
        self.known.clone()
    }

    fn begin_download(&mut self, source: &str, known: Vec<BundleValidator>) -> Result<(), SyncError> {
        self.effects.push(format!("begin {source}, {} known", known.len()));
        Ok(())
    }

    fn reserve_space(&mut self, _: &StoreRecord, size: u64) -> Result<(), SyncError> {
        self.effects.push(format!("reserve {size}"));
        Ok(())
    }

    fn attempt_download(&mut self, _: &StoreRecord, url: &SafeUrl) -> CallResult<DownloadResult> {
        self.respond(format!("download {}", url.without_secrets()), |environment| &mut environment.downloads)
    }

    fn has_received_another_mebibyte(&mut self) -> bool {
        self.progress.pop_front().unwrap_or(false)
    }

    fn discard_download(&mut self) {
        self.effects.push("discard".to_owned());
    }

    fn remove_outer_gzip_layer(&mut self, _: &ReceivedBundle) -> Result<Option<PathBuf>, SyncError> {
        Ok(None)
    }

    fn ingest(&mut self, _: &mut StoreRecord, _: &IncomingBundle<'_>, _: bool) -> Result<IngestedBundle, SyncError> {
        self.respond("ingest".to_owned(), |environment| &mut environment.ingests)
    }

    fn note_offered_again(&mut self, _: &mut StoreRecord, _: &str, _: VersionId) -> Result<(), SyncError> {
        self.effects.push("offered again".to_owned());
        Ok(())
    }

    fn activate_target_version(
        &mut self,
        _: &mut StoreRecord,
        reported: Option<VersionId>,
        ingested: Option<IngestedBundle>,
    ) -> Result<SyncReport, SyncError> {
        self.effects.push("activate".to_owned());
        Ok(SyncReport { ingested, ..SyncReport::from_outcome(SyncOutcome::Current(reported)) })
    }
}

fn id(n: u8) -> VersionId {
    VersionId(Digest::compute(&[n]))
}

fn url(text: &str) -> SafeUrl {
    SafeUrl::parse(text).expect("a URL")
}

fn request_error(cause: RequestErrorCause) -> RequestError {
    RequestError::new(cause, "x")
}

fn status_error(status: u16) -> RequestError {
    request_error(RequestErrorCause::Status(status))
}

/// The refusal of a bundle.
fn refusal() -> SyncError {
    let digest = Digest::compute(b"archive");
    SyncError::WrongDigest { name: "b.zip".to_owned(), found: digest, demanded: digest }
}

fn ingested(n: u8) -> IngestedBundle {
    let (sha256, warnings, committed) = (None, Vec::new(), CommitOutcome::New);
    IngestedBundle { id: id(n), sha256, warnings, committed, pages: 1, bytes: 1 }
}

/// The validator and the size of a bundle of seven bytes.
fn validator() -> BundleValidator {
    BundleValidator { validator: "\"v\"".to_owned(), size: 7 }
}

fn received(resumed: bool) -> DownloadResult {
    let (path, validator) = (PathBuf::from("/downloads/bundle.part"), Some(validator()));
    DownloadResult::Received(ReceivedBundle { path, validator, resumed, encoded: false })
}

/// The state of a job, with its progress in percent.
fn job_state(status: &str, progress: f64) -> ExportJob {
    let (status, progress) = (status.to_owned(), Some(progress));
    ExportJob { status, progress, page_count: None, updated_at: None, error: None }
}

/// A link to a bundle of `size` bytes; `n` tells it from other links.
fn signed_link(n: usize, size: Option<u64>) -> SignedLink {
    SignedLink { url: url(&format!("https://bucket.example/{n}")), size, expires_at: None }
}

/// A configuration with a link alone.
fn link_settings() -> SyncSettings {
    let bundle = Some(BundleLocation::Link(url(&format!("{LINK}?signature=1"))));
    let (interval, max_age) = (Duration::from_hours(1), Duration::from_hours(24));
    SyncSettings {
        enabled: true,
        bundle,
        interval,
        max_age,
        job_timeout: Duration::from_mins(30),
        ..SyncSettings::default()
    }
}

/// A configuration with an API, which exports at each check.
fn api_settings() -> SyncSettings {
    let api = ApiSource {
        base: url("https://api.example/v1"),
        domain: "docs".to_owned(),
        project: None,
        status_path: StatusPath::default(),
        api_key: ApiKeyLocation::Unset,
    };
    SyncSettings { bundle: None, api: Some(api), exports_at_each_check: true, ..link_settings() }
}

/// A failed attempt under this configuration, the last of some failures in a row.
fn failed_attempt(sync_settings: &SyncSettings, failures: u32) -> SyncAttempt {
    SyncAttempt {
        time: "2026-11-20T11:00:00Z".to_owned(),
        result: "failed".to_owned(),
        saw: None,
        error: None,
        failures,
        source_digest: sync_settings.source_digest(),
        wait: 5,
    }
}
