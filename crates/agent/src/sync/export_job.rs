//! Gets a bundle through the management API: starts an export job or continues an unfinished one, also after a restart;
//! polls its state, requests a link and downloads the bundle.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::calls::ApiCall;
use crate::api::export::{self, ExportAction, StallDetector};
use crate::store::record::{JobRecord, ProbeBackOff, ProbeResult, SourceEvent, SourceProbes};
use docwharf_base::clock::seconds_ceil;
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::{format_duration, format_unix_seconds, parse_time};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::net::retry::CallAttempts;
use docwharf_base::secret::SafeUrl;

use super::SyncError;
use super::activation::{Postponement, SyncReport};
use super::environment::{KnownBundle, SyncEnvironment};
use super::plan::{self, ExportDecision, ExportTiming, PlanInput};
use super::run::{FoundVersion, SyncRun};

/// Upper bound of [`ExportTiming::restart_delay`], which is otherwise the interval between checks of the source.
const MAX_RESTART_DELAY_SECONDS: u64 = 600;

/// The end of a polled job.
enum JobEnd {
    Completed,
    Failed(String),
    Vanished(RequestError),
    TimedOut(SyncError),
}

impl<E: SyncEnvironment> SyncRun<'_, E> {
    /// Fetches a bundle through the API, if one is needed, and activates the target version.
    pub(super) fn sync_from_api(&mut self, input: &PlanInput<'_>) -> Result<SyncReport, SyncError> {
        let Some(api) = &self.sync_settings.api else { return self.activate_target_version(None) };
        let source = api.name();
        let timing = ExportTiming {
            exports_at_each_check: self.sync_settings.exports_at_each_check,
            max_age: seconds(self.sync_settings.max_age),
            job_timeout: seconds(self.sync_settings.job_timeout),
            restart_delay: seconds(self.sync_settings.interval).min(MAX_RESTART_DELAY_SECONDS.cast_signed()),
        };
        self.record.switch_job_source(&source);
        let decision = plan::decide_export(self.record, input, &timing, self.trigger, self.environment.now());
        let now = self.environment.now();
        self.record.job.take_if(|job| plan::is_expired(job, &timing, now));
        self.record.jobs_elsewhere.retain(|job| !plan::is_expired(job, &timing, now));
        let job = match decision {
            ExportDecision::Nothing(reason) => {
                self.environment.begin_step(reason);
                return self.activate_without_fetch(reason);
            }
            ExportDecision::TooEarly(seconds) => {
                let reason = "an export job was started a short time ago: no other is started yet";
                self.environment.begin_step(reason);
                let report = self.activate_without_fetch(reason)?;
                let wait = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
                // After a success nothing is overdue.
                let is_overdue = self.has_unfinished_export();
                let postponement = if is_overdue { Postponement::For(wait) } else { Postponement::UntilNextCheck };
                return Ok(SyncReport { postponed: Some(postponement), ..report });
            }
            ExportDecision::ContinueJob(job) => {
                self.environment.begin_step(&format!("continuing with the export job {}", OneLine(&job.id)));
                self.await_job(&job, true)?;
                job
            }
            ExportDecision::StartAfter(job) => {
                self.environment.begin_step(&format!("waiting for the export job {} to end", OneLine(&job.id)));
                self.wait_and_discard(&job)?;
                self.start_job(input, &source, BTreeMap::new())?
            }
            ExportDecision::Start => self.start_job(input, &source, BTreeMap::new())?,
            ExportDecision::Probe => {
                let probes = self.read_probes(&source)?;
                // If the last version of the source is lost, the content is exported again, unless a newer version is
                // stored.
                let selected = [self.record.active, self.record.newest];
                let is_lost = self.record.offered.as_ref().is_some_and(|offered| {
                    let id = offered.version;
                    offered.source == source && selected == [Some(id); 2] && !self.environment.has_undamaged(id)
                });
                if !is_lost && !plan::needs_export_job(self.record, input, &timing, &probes, self.environment.now()) {
                    let report = self.activate_without_fetch("the probes have not changed since the last export")?;
                    let unreadable_probes = probes.is_empty().then(|| {
                        let after = format_duration(self.sync_settings.max_age);
                        format!("no probe can be read (sync.probe): the next export starts {after} after the last success (sync.maxAge)")
                    });
                    let check_summary = if unreadable_probes.is_some() { None } else { report.check_summary };
                    return Ok(SyncReport { unreadable_probes, check_summary, ..report });
                }
                self.start_job(input, &source, probes)?
            }
        };
        let found = self.fetch_export(input, &source, &job)?;
        self.activate_target_version(Some(found))
    }

    /// Whether the export job that was started last has not given an accepted bundle yet.
    fn has_unfinished_export(&self) -> bool {
        let time = |event: Option<&SourceEvent>| event.and_then(|event| parse_time(&event.time));
        time(self.record.last_export_success.as_ref()) < time(self.record.last_start.as_ref())
    }

    /// Reads the probes. A probe that cannot be read is logged and omitted.
    fn read_probes(&mut self, source: &str) -> Result<BTreeMap<String, ProbeResult>, SyncError> {
        let mut results = BTreeMap::new();
        let before = self.record.probed.clone().filter(|probed| probed.source == source);
        self.remove_ended_back_offs();
        for url in &self.sync_settings.probes {
            if self.record.probe_back_offs.contains_key(&probe_key(url)) {
                self.environment
                    .begin_step(&format!("the probe {url} is skipped until the Retry-After of its server ends"));
                continue;
            }
            let known = before.as_ref().and_then(|before| before.probes.get(&probe_key(url)));
            match self.environment.read_probe(url, known)? {
                Ok(Some(probe)) => {
                    results.insert(probe_key(url), probe);
                }
                Ok(None) => results.extend(known.map(|known| (probe_key(url), known.clone()))),
                Err(request_error) => {
                    self.environment.warn(&format!(
                        "cannot read the probe {url}: {request_error}; correct sync.probe, or set it to [] to export at each check"
                    ));
                    if let Some(wait) = request_error.retry_after {
                        // Saved at once: a cancelled sync is not recorded.
                        let since = format_unix_seconds(self.environment.now());
                        self.record
                            .probe_back_offs
                            .insert(probe_key(url), ProbeBackOff { since, wait: seconds_ceil(wait) });
                        self.environment.save_record(self.record)?;
                    }
                }
            }
        }
        Ok(results)
    }

    /// Removes the back-offs that have ended, and those of probes that are not configured any more.
    fn remove_ended_back_offs(&mut self) {
        let configured: Vec<String> = self.sync_settings.probes.iter().map(probe_key).collect();
        let now = self.environment.now();
        self.record
            .probe_back_offs
            .retain(|probe, back_off| configured.contains(probe) && plan::is_backing_off(back_off, now));
    }

    /// Starts an export job and polls it to its end. The job's id is saved before the first poll.
    fn start_job(
        &mut self,
        input: &PlanInput<'_>,
        source: &str,
        probes: BTreeMap<String, ProbeResult>,
    ) -> Result<JobRecord, SyncError> {
        let domain = self.sync_settings.api.as_ref().map_or_else(String::new, |api| api.domain.clone());
        // If the key is missing, this fails before the start of a job is recorded.
        self.environment.prepare_api()?;
        self.environment.begin_step(&format!("starting the export of {domain}"));
        let started = format_unix_seconds(self.environment.now());
        let start_event =
            SourceEvent { source: source.to_owned(), pin: input.pin.map(str::to_owned), time: started.clone() };
        // Saved before the request is sent: if its response is lost, a job may have been started.
        let before = self.record.last_start.replace(start_event);
        self.environment.save_record(self.record)?;
        let doing = format!("start the export of {domain}");
        let mut attempts = CallAttempts::default();
        let id = match self.call_with_retries(ApiCall::StartExport, &doing, &mut attempts, E::start_job) {
            Ok(id) => id,
            Err(error) => {
                // The start stays recorded if the API may have started a job despite the error.
                if !attempts.may_have_been_processed() && !matches!(error, SyncError::Cancelled) {
                    self.record.last_start = before;
                }
                return Err(error);
            }
        };
        let pin = input.pin.map(str::to_owned);
        let job = JobRecord { id, source: source.to_owned(), pin, started, probes };
        self.record.job = Some(job.clone());
        self.environment.save_record(self.record)?;
        self.environment.append_event("export started", None, Some(job.id.clone()));
        self.await_job(&job, false)?;
        Ok(job)
    }

    /// Polls until the job is completed; any other end removes it from the record and is an error.
    fn await_job(&mut self, job: &JobRecord, is_continued: bool) -> Result<(), SyncError> {
        let error = match self.poll_until_end(job, is_continued)? {
            JobEnd::Completed => return Ok(()),
            JobEnd::Failed(reason) => SyncError::JobFailed { id: job.id.clone(), reason: OneLine(&reason).to_string() },
            JobEnd::Vanished(request_error) => SyncError::JobVanished { id: job.id.clone(), request_error },
            JobEnd::TimedOut(error) => error,
        };
        self.remove_job()?;
        Err(error)
    }

    /// Polls until the job has ended in any way, and removes it from the record.
    fn wait_and_discard(&mut self, job: &JobRecord) -> Result<(), SyncError> {
        self.poll_until_end(job, true)?;
        self.remove_job()
    }

    /// Removes the job from the record.
    fn remove_job(&mut self) -> Result<(), SyncError> {
        self.record.job = None;
        self.environment.save_record(self.record)
    }

    /// Polls until the job has ended or its timeout has passed.
    fn poll_until_end(&mut self, job: &JobRecord, is_continued: bool) -> Result<JobEnd, SyncError> {
        let network = &self.sync_settings.network;
        let doing = format!("read the state of the export job {}", OneLine(&job.id));
        // The age is computed once; then the monotonic clock measures it. A new job has the age 0, even if the clock
        // was set meanwhile.
        let age = if is_continued { plan::job_age(job, self.environment.now()) } else { 0 };
        let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
        let start = self.environment.elapsed();
        let mut stall = StallDetector::default();
        let mut polls = 0;
        loop {
            if polls > 0 || !is_continued {
                self.environment.wait(export::poll_pause(polls, network.first_poll_pause, network.max_poll_pause))?;
            }
            polls += 1;
            let state =
                match self.call_with_retries(ApiCall::PollExport, &doing, &mut CallAttempts::default(), |environment| {
                    environment.poll_job(&job.id)
                }) {
                    Ok(state) => state,
                    Err(SyncError::Upstream { request_error, .. })
                        if request_error.cause == RequestErrorCause::Status(404) =>
                    {
                        return Ok(JobEnd::Vanished(request_error));
                    }
                    Err(error) => return Err(error),
                };
            self.environment
                .show_progress(state.progress.filter(|_| export::next_action(&state) == ExportAction::Poll));
            self.environment.begin_step(&format!("export job {}", OneLine(&state.line())));
            match export::next_action(&state) {
                ExportAction::RequestLink => return Ok(JobEnd::Completed),
                ExportAction::Failed(reason) => return Ok(JobEnd::Failed(reason)),
                ExportAction::Poll => {}
            }
            let elapsed = self.environment.elapsed().saturating_sub(start);
            if let Some(stalled_for) = stall.observe(&state, elapsed) {
                let line = state.line();
                self.environment.warn(&format!(
                    "export job {}: no progress for {} s ({})",
                    OneLine(&job.id),
                    stalled_for.as_secs(),
                    OneLine(&line)
                ));
            }
            if age.saturating_add(elapsed) >= self.sync_settings.job_timeout {
                return Ok(JobEnd::TimedOut(SyncError::JobTimeout {
                    id: OneLine(&job.id).to_string(),
                    after: self.sync_settings.job_timeout,
                    state: OneLine(&state.line()).to_string(),
                    still: stall.unchanged_for(elapsed),
                }));
            }
        }
    }

    /// Frees space for a bundle of the size that the API reports. The size is a hint: it is ignored if it exceeds the
    /// limit, or if it is the size of a known bundle, which need not be downloaded.
    fn reserve_space(&mut self, size: Option<u64>, known: &[KnownBundle]) -> Result<(), SyncError> {
        let plausible = size.filter(|&size| size <= self.sync_settings.seal_options.limits.archive);
        match plausible.filter(|&size| !known.iter().any(|(known, _)| known.size == size)) {
            Some(size) => self.environment.reserve_space(self.record, size),
            None => Ok(()),
        }
    }

    /// Downloads the bundle of a completed job.
    fn fetch_export(
        &mut self,
        input: &PlanInput<'_>,
        source: &str,
        job: &JobRecord,
    ) -> Result<FoundVersion, SyncError> {
        let known = self.begin_download(source)?;
        let id = job.id.clone();
        let result = self.download(input, source, Some(&id), &known, |sync| {
            let doing = format!("get a link to the bundle of the export job {}", OneLine(&id));
            match sync.call_with_retries(
                ApiCall::RequestExportLink,
                &doing,
                &mut CallAttempts::default(),
                |environment| environment.request_link(&id),
            ) {
                Ok(link) => {
                    let size = link.size.map_or_else(String::new, |size| format!(", {size} bytes"));
                    let until = link
                        .expires_at
                        .as_deref()
                        .map_or_else(String::new, |time| format!(", until {}", OneLine(time)));
                    sync.environment.begin_step(&format!("link {}{size}{until}", link.url));
                    sync.reserve_space(link.size, &known)?;
                    Ok(link.url)
                }
                Err(SyncError::Upstream { request_error, .. })
                    if request_error.cause == RequestErrorCause::Status(404) =>
                {
                    sync.remove_job()?;
                    Err(SyncError::JobVanished { id: id.clone(), request_error })
                }
                Err(error) => Err(error),
            }
        });
        let is_checked = match &result {
            Ok(_) | Err(SyncError::StillRefused(_)) => true,
            Err(error) => error.is_refusal(),
        };
        if is_checked {
            self.record.job = None;
            if !job.probes.is_empty() {
                let before = self.record.probed.take().filter(|probed| probed.source == source);
                // A probe that could not be read this time retains its previous result.
                let mut probes = before.map(|before| before.probes).unwrap_or_default();
                probes.extend(job.probes.clone());
                self.record.probed = Some(SourceProbes { source: source.to_owned(), probes });
            }
        }
        if result.is_ok() {
            let time = format_unix_seconds(self.environment.now());
            self.record.last_export_success =
                Some(SourceEvent { source: source.to_owned(), pin: job.pin.clone(), time });
        }
        result
    }
}

/// The key of a probe in the record: its URL without the query, and a digest of the query.
fn probe_key(url: &SafeUrl) -> String {
    match url.expose().query() {
        Some(query) => format!("{}#{}", url.without_secrets(), &Digest::compute(query.as_bytes()).to_hex()[..8]),
        None => url.without_secrets(),
    }
}

fn seconds(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_key_is_the_url_with_a_short_hash_instead_of_its_query() {
        let key = |url: &str| probe_key(&SafeUrl::parse(url).unwrap());
        assert_eq!(key("https://a.example/x"), "https://a.example/x");
        let [first, second] = ["token1", "token2"].map(|token| key(&format!("https://a.example/x?{token}")));
        assert!(first.starts_with("https://a.example/x#") && !first.contains("token"), "{first}");
        assert_ne!(first, second);
        assert_eq!(first.len(), "https://a.example/x#".len() + 8);
        assert_eq!((seconds(Duration::from_millis(1999)), seconds(Duration::MAX)), (1, i64::MAX));
    }
}
