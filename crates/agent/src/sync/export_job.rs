//! A bundle through the management API: starts an export job, polls its state, gets a link and downloads the bundle.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::api::calls::ApiCall;
use crate::api::export::{self, ExportStep, StallDetector};
use crate::store::record::{JobRecord, ProbeBackOff, ProbeResult, SourceEvent, SourceProbes};
use docwharf_base::error_chain::OneLine;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::{parse_time, show_duration, show_unix};
use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::net::retry::CallAttempts;
use docwharf_base::secret::SafeUrl;

use super::SyncError;
use super::activation::SyncReport;
use super::environment::{KnownBundle, SyncEnvironment};
use super::plan::{self, ExportDecision, ExportTiming, PlanInput};
use super::run::{FoundVersion, SyncRun};

/// Seconds after the start of an export job in which a start of the daemon, or a changed configuration, starts no other
/// one.
const QUIET_SECONDS: u64 = 600;

/// The end of a job.
enum JobEnd {
    Completed,
    Failed(String),
    Vanished(RequestError),
    Late(SyncError),
}

impl<W: SyncEnvironment> SyncRun<'_, W> {
    pub(super) fn api(&mut self, wish: &PlanInput<'_>) -> Result<SyncReport, SyncError> {
        let Some(api) = &self.intent.api else { return self.settle(None) };
        let source = api.name();
        let pace = ExportTiming {
            each_look: self.intent.each_look,
            max_age: seconds(self.intent.max_age),
            job_timeout: seconds(self.intent.job_timeout),
            quiet: seconds(self.intent.interval).min(QUIET_SECONDS.cast_signed()),
        };
        self.record.switch_job_source(&source);
        let begin = plan::decide_export(self.record, wish, &pace, self.trigger, self.world.now());
        let now = self.world.now();
        self.record.job.take_if(|job| plan::is_over(job, &pace, now));
        self.record.jobs_elsewhere.retain(|job| !plan::is_over(job, &pace, now));
        let job = match begin {
            ExportDecision::Nothing(why) => {
                self.world.tell(why);
                return self.settle_seeing(why);
            }
            ExportDecision::TooEarly(more) => {
                let why = "an export job was started a short while ago: none is started yet";
                self.world.tell(why);
                let report = self.settle_seeing(why)?;
                let more = Duration::from_secs(u64::try_from(more).unwrap_or(0));
                return Ok(SyncReport { too_early: Some(if self.is_owed() { more } else { Duration::MAX }), ..report });
            }
            ExportDecision::Adopt(job) => {
                self.world.tell(&format!("continuing with the export job {}", OneLine(&job.id)));
                self.await_job(&job, true)?;
                job
            }
            ExportDecision::AfterThis(job) => {
                self.world.tell(&format!("waiting for the export job {} to end", OneLine(&job.id)));
                self.run_out(&job)?;
                self.start(wish, &source, BTreeMap::new())?
            }
            ExportDecision::Start => self.start(wish, &source, BTreeMap::new())?,
            ExportDecision::Probe => {
                let said = self.probe(&source)?;
                // The version that the source gave last is lost: the content is exported again, unless something newer
                // is stored.
                let needed = [self.record.active, self.record.newest];
                let is_lost = self.record.offered.as_ref().is_some_and(|offered| {
                    let id = offered.version;
                    offered.source == source && needed == [Some(id); 2] && !self.world.has(id)
                });
                if !is_lost && !plan::calls_for_job(self.record, wish, &pace, &said, self.world.now()) {
                    let report = self.settle_seeing("the probes say what they said before the last export")?;
                    let blind = said.is_empty().then(|| {
                        let after = show_duration(self.intent.max_age);
                        format!("no probe can be read (sync.probe): the next export is when the last success is {after} old (sync.maxAge)")
                    });
                    let saw = if blind.is_some() { None } else { report.saw };
                    return Ok(SyncReport { blind, saw, ..report });
                }
                self.start(wish, &source, said)?
            }
        };
        let found = self.bundle_of(wish, &source, &job)?;
        self.settle(Some(found))
    }

    /// Whether the last export job has not led to a success.
    fn is_owed(&self) -> bool {
        let time = |event: Option<&SourceEvent>| event.and_then(|event| parse_time(&event.time));
        time(self.record.last_success.as_ref()) < time(self.record.last_start.as_ref())
    }

    /// Reads the probes. One that cannot be read is logged and left out.
    fn probe(&mut self, source: &str) -> Result<BTreeMap<String, ProbeResult>, SyncError> {
        let mut said = BTreeMap::new();
        let before = self.record.probed.clone().filter(|probed| probed.source == source);
        self.forget_busy();
        for url in &self.intent.probes {
            if self.record.busy.contains_key(&probe_key(url)) {
                self.world.tell(&format!("the probe {url} is skipped until the Retry-After of its server ends"));
                continue;
            }
            let known = before.as_ref().and_then(|before| before.probes.get(&probe_key(url)));
            match self.world.probe(url, known)? {
                Ok(Some(probe)) => {
                    said.insert(probe_key(url), probe);
                }
                Ok(None) => said.extend(known.map(|known| (probe_key(url), known.clone()))),
                Err(trouble) => {
                    self.world.warn(&format!(
                        "cannot read the probe {url}: {trouble}; correct sync.probe, or set it to [] to export at each look"
                    ));
                    if let Some(wait) = trouble.retry_after {
                        // Saved at once: a cancelled sync is not recorded.
                        let since = show_unix(self.world.now());
                        self.record.busy.insert(probe_key(url), ProbeBackOff { since, wait: wait.as_secs() });
                        self.world.save(self.record)?;
                    }
                }
            }
        }
        Ok(said)
    }

    /// Removes the back-off of probes that has ended, or whose probe is not configured any more.
    fn forget_busy(&mut self) {
        let asked: Vec<String> = self.intent.probes.iter().map(probe_key).collect();
        let now = self.world.now();
        self.record.busy.retain(|probe, busy| asked.contains(probe) && plan::is_busy(busy, now));
    }

    /// Starts an export job and polls it to its end. The job's id is saved before the first poll.
    fn start(
        &mut self,
        wish: &PlanInput<'_>,
        source: &str,
        probes: BTreeMap<String, ProbeResult>,
    ) -> Result<JobRecord, SyncError> {
        let domain = self.intent.api.as_ref().map_or_else(String::new, |api| api.domain.clone());
        // A missing key is an error before the record says that a job was started.
        self.world.prepare()?;
        self.world.tell(&format!("starting the export of {domain}"));
        let started = show_unix(self.world.now());
        let mark = SourceEvent { source: source.to_owned(), pin: wish.pin.map(str::to_owned), time: started.clone() };
        // Saved before the request is sent: a job whose response is lost may have been started all the same.
        let before = self.record.last_start.replace(mark);
        self.world.save(self.record)?;
        let doing = format!("start the export of {domain}");
        let mut attempts = CallAttempts::default();
        let id = match self.call_with_retries(ApiCall::Start, &doing, &mut attempts, W::start_job) {
            Ok(id) => id,
            Err(error) => {
                // Unless the job may have been started all the same.
                if !attempts.may_have_been_processed() && !matches!(error, SyncError::Interrupted) {
                    self.record.last_start = before;
                }
                return Err(error);
            }
        };
        let pin = wish.pin.map(str::to_owned);
        let job = JobRecord { id, source: source.to_owned(), pin, started, probes };
        self.record.job = Some(job.clone());
        self.world.save(self.record)?;
        self.world.note("export started", None, Some(job.id.clone()));
        self.await_job(&job, false)?;
        Ok(job)
    }

    /// Polls until the job is completed; any other end removes it from the record and is an error.
    fn await_job(&mut self, job: &JobRecord, adopted: bool) -> Result<(), SyncError> {
        let error = match self.poll(job, adopted)? {
            JobEnd::Completed => return Ok(()),
            JobEnd::Failed(reason) => SyncError::JobFailed { id: job.id.clone(), reason: OneLine(&reason).to_string() },
            JobEnd::Vanished(trouble) => SyncError::JobVanished { id: job.id.clone(), trouble },
            JobEnd::Late(error) => error,
        };
        self.forget_job()?;
        Err(error)
    }

    /// Polls until the job has ended in any way, and removes it from the record.
    fn run_out(&mut self, job: &JobRecord) -> Result<(), SyncError> {
        self.poll(job, true)?;
        self.forget_job()
    }

    fn forget_job(&mut self) -> Result<(), SyncError> {
        self.record.job = None;
        self.world.save(self.record)
    }

    fn poll(&mut self, job: &JobRecord, adopted: bool) -> Result<JobEnd, SyncError> {
        let network = &self.intent.network;
        let doing = format!("read the state of the export job {}", OneLine(&job.id));
        // The age is computed once; then the monotonic clock counts. A new job has the age 0, even if the clock was set
        // meanwhile.
        let age = if adopted { plan::job_age(job, self.world.now()) } else { 0 };
        let age = Duration::from_secs(u64::try_from(age).unwrap_or(0));
        let began = self.world.elapsed();
        let mut stall = StallDetector::default();
        let mut polls = 0;
        loop {
            if polls > 0 || !adopted {
                self.world.wait(export::poll_pause(polls, network.first_poll_pause, network.max_poll_pause))?;
            }
            polls += 1;
            let state = match self
                .call_with_retries(ApiCall::Poll, &doing, &mut CallAttempts::default(), |world| world.poll(&job.id))
            {
                Ok(state) => state,
                Err(SyncError::Upstream { trouble, .. }) if trouble.cause == RequestErrorCause::Status(404) => {
                    return Ok(JobEnd::Vanished(trouble));
                }
                Err(error) => return Err(error),
            };
            self.world.show_progress(state.progress.filter(|_| export::next_step(&state) == ExportStep::Poll));
            self.world.tell(&format!("export job {}", OneLine(&state.line())));
            match export::next_step(&state) {
                ExportStep::AskForLink => return Ok(JobEnd::Completed),
                ExportStep::GiveUp(reason) => return Ok(JobEnd::Failed(reason)),
                ExportStep::Poll => {}
            }
            let elapsed = self.world.elapsed().saturating_sub(began);
            if let Some(still) = stall.observe(&state, elapsed) {
                let line = state.line();
                self.world.warn(&format!(
                    "export job {}: not moved for {} s ({})",
                    OneLine(&job.id),
                    still.as_secs(),
                    OneLine(&line)
                ));
            }
            if age.saturating_add(elapsed) >= self.intent.job_timeout {
                return Ok(JobEnd::Late(SyncError::JobTimeout {
                    id: OneLine(&job.id).to_string(),
                    after: self.intent.job_timeout,
                    state: OneLine(&state.line()).to_string(),
                    still: stall.unchanged_for(elapsed),
                }));
            }
        }
    }

    /// Frees space for a bundle of the size that the API gives. The size is a hint: it is ignored if it exceeds the
    /// limit, or if it is the size of a known bundle, which need not be downloaded.
    fn reserve(&mut self, size: Option<u64>, known: &[KnownBundle]) -> Result<(), SyncError> {
        let believed = size.filter(|&size| size <= self.intent.effort.limits.archive);
        match believed.filter(|&size| !known.iter().any(|(known, _)| known.size == size)) {
            Some(size) => self.world.reserve(self.record, size),
            None => Ok(()),
        }
    }

    /// Downloads the bundle of a completed job.
    fn bundle_of(&mut self, wish: &PlanInput<'_>, source: &str, job: &JobRecord) -> Result<FoundVersion, SyncError> {
        let known = self.begin_download(source)?;
        let id = job.id.clone();
        let result = self.download(wish, source, Some(&id), &known, |sync| {
            let doing = format!("get a link to the bundle of the export job {}", OneLine(&id));
            match sync.call_with_retries(ApiCall::Link, &doing, &mut CallAttempts::default(), |world| world.link(&id)) {
                Ok(link) => {
                    let size = link.size.map_or_else(String::new, |size| format!(", {size} bytes"));
                    let until = link
                        .expires_at
                        .as_deref()
                        .map_or_else(String::new, |time| format!(", until {}", OneLine(time)));
                    sync.world.tell(&format!("link {}{size}{until}", link.url));
                    sync.reserve(link.size, &known)?;
                    Ok(link.url)
                }
                Err(SyncError::Upstream { trouble, .. }) if trouble.cause == RequestErrorCause::Status(404) => {
                    sync.forget_job()?;
                    Err(SyncError::JobVanished { id: id.clone(), trouble })
                }
                Err(error) => Err(error),
            }
        });
        let checked = match &result {
            Ok(_) | Err(SyncError::StillRefused(_)) => true,
            Err(error) => error.is_refusal(),
        };
        if checked {
            self.record.job = None;
            if !job.probes.is_empty() {
                let before = self.record.probed.take().filter(|probed| probed.source == source);
                // A probe that could not be read this time keeps its previous result.
                let mut probes = before.map(|before| before.probes).unwrap_or_default();
                probes.extend(job.probes.clone());
                self.record.probed = Some(SourceProbes { source: source.to_owned(), probes });
            }
        }
        if result.is_ok() {
            let time = show_unix(self.world.now());
            self.record.last_success = Some(SourceEvent { source: source.to_owned(), pin: job.pin.clone(), time });
        }
        result
    }
}

/// The key of a probe in the record: its URL without the query, and a digest of the query.
fn probe_key(url: &SafeUrl) -> String {
    match url.expose().query() {
        Some(query) => format!("{}#{}", url.without_secrets(), &Digest::of(query.as_bytes()).hex()[..8]),
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
    fn a_probe_is_known_by_its_address_and_by_its_query_without_telling_that() {
        let key = |url: &str| probe_key(&SafeUrl::parse(url).unwrap());
        assert_eq!(key("https://a.example/x"), "https://a.example/x");
        let [one, two] = ["token1", "token2"].map(|token| key(&format!("https://a.example/x?{token}")));
        assert!(one.starts_with("https://a.example/x#") && !one.contains("token"), "{one}");
        assert_ne!(one, two);
        assert_eq!(one.len(), "https://a.example/x#".len() + 8);
        assert_eq!((seconds(Duration::from_millis(1999)), seconds(Duration::MAX)), (1, i64::MAX));
    }
}
