//! One sync, from looking to activating. It acts on the world through [`World`] alone.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::api::export::{self, Stall, Step};
use crate::base::backoff;
use crate::base::chain::{Chain, OneLine};
use crate::base::secret::SafeUrl;
use crate::fetch::{Arrived, Fetched, Known};
use crate::model::digest::Digest;
use crate::model::units::{now, show_unix};
use crate::model::version::{Label, VersionId};
use crate::net::retry::{Attempts, Call};
use crate::net::trouble::{Cause, Trouble};
use crate::store::record::{Attempt, JobRecord, Labelled, Looked, Probe, Probed, Record, Success};

use super::bring::{Arrival, Brought};
use super::error::{Ask, is_dead_link};
use super::plan::{self, Begin, First, Pace, Then, Trigger, Wish};
use super::settle::Report;
use super::world::{Asked, KnownBundle, World};
use super::{ApiSource, Bundle, Intent, SyncError};

/// A start of the daemon starts no job within this many seconds of the last one.
const QUIET: u64 = 600;
/// Fresh links for one bundle.
const FRESH_LINKS: u32 = 4;

/// Looks, brings, activates; the attempt is recorded whatever comes of it.
pub fn sync<W: World>(
    world: &mut W,
    record: &mut Record,
    intent: &Intent,
    trigger: Trigger,
) -> Result<Report, SyncError> {
    let result = Sync { world, record, intent, trigger }.look();
    let (name, error) = match &result {
        // Neither is an attempt.
        Ok(Report { outcome: super::Outcome::Disabled, .. }) | Err(SyncError::Interrupted) => return result,
        Ok(report) => (report.outcome.name(), None),
        Err(SyncError::StillRefused(said)) => ("failed", Some(said.clone())),
        Err(error) => ("failed", Some(Chain(error).to_string())),
    };
    if let Err(refused) = &result
        && refused.is_refusal()
    {
        world.note("refused", None, error.clone());
    }
    let question = intent.question();
    let before = record.last_attempt.as_ref().filter(|before| before.question == question);
    let failures = match &result {
        Ok(_) => 0,
        Err(_) => before.map_or(0, |before| before.failures).saturating_add(1),
    };
    let wait = result.as_ref().err().map_or(0, |error| wait_after(error, failures, intent).as_secs());
    let time = show_unix(world.now());
    record.last_attempt = Some(Attempt { time, result: name.to_owned(), error, failures, question, wait });
    match (result, world.save(record)) {
        (Ok(_), Err(error)) => Err(error),
        (result, _) => result,
    }
}

/// How long `run` waits after a failure: longer each time, or until the next look where trying again is no use, and
/// never less than the upstream asks for.
pub fn wait_after(error: &SyncError, failures: u32, intent: &Intent) -> std::time::Duration {
    let wait = match error {
        SyncError::StillRefused(_) => intent.interval,
        error if error.is_refusal() => intent.interval,
        _ => backoff::after(failures).min(intent.interval.max(backoff::after(1))),
    };
    wait.max(error.retry_after().unwrap_or_default())
}

/// A sync under way.
struct Sync<'a, W> {
    world: &'a mut W,
    record: &'a mut Record,
    intent: &'a Intent,
    trigger: Trigger,
}

/// How a job ended.
enum Ended {
    Completed,
    Failed(String),
    Vanished(Trouble),
    Late(SyncError),
}

/// What a source holds: a version, and how it came here if it did not have to be looked for in the store.
type Found = (VersionId, Option<Brought>);

impl<W: World> Sync<'_, W> {
    fn look(&mut self) -> Result<Report, SyncError> {
        let bundle = self.intent.bundle.as_ref().map(Bundle::name);
        let api = self.intent.api.as_ref().map(ApiSource::name);
        let demanded = self.intent.sha256.map(|digest| digest.hex());
        let wish = Wish {
            enabled: self.intent.enabled,
            bundle: bundle.as_deref(),
            api: api.as_deref(),
            pin: self.intent.pin.as_ref().map(Label::as_str),
            sha256: demanded.as_deref(),
        };
        match plan::first(self.record, &wish, self.trigger, |id| self.world.has(id)) {
            First::Disabled => Ok(Report { outcome: super::Outcome::Disabled, brought: None }),
            First::Settle => self.settle(None),
            First::Look => self.source(&wish),
        }
    }

    fn settle(&mut self, found: Option<Found>) -> Result<Report, SyncError> {
        let (id, brought) = found.map_or((None, None), |(id, brought)| (Some(id), brought));
        self.world.settle(self.record, self.intent, id, brought)
    }

    /// The named bundle, or the API; with both, the bundle is for the first time only.
    fn source(&mut self, wish: &Wish<'_>) -> Result<Report, SyncError> {
        let intent = self.intent;
        let Some(bundle) = &intent.bundle else { return self.api(wish) };
        if intent.api.is_none() {
            let found = self.bundle(wish, bundle)?;
            return self.settle(Some(found));
        }
        let mark = match bundle {
            Bundle::Link(url) => Digest::of(url.expose().as_str().as_bytes()).hex(),
            Bundle::File(path) => Digest::of(path.as_os_str().as_encoded_bytes()).hex(),
        };
        if !self.world.is_empty()? || self.record.tried_link.as_ref() == Some(&mark) {
            return self.api(wish);
        }
        match self.bundle(wish, bundle) {
            Ok(found) => self.settle(Some(found)),
            Err(error @ (SyncError::Interrupted | SyncError::Store(_))) => Err(error),
            Err(error) => {
                self.record.tried_link = Some(mark);
                self.world.save(self.record)?;
                self.world.warn(&format!("{}; the API is asked instead", Chain(&error)));
                self.api(wish)
            }
        }
    }

    fn bundle(&mut self, wish: &Wish<'_>, bundle: &Bundle) -> Result<Found, SyncError> {
        match bundle {
            Bundle::File(path) => self.file(wish, path),
            Bundle::Link(url) => {
                let source = bundle.name();
                let known = self.begin_download(&source)?;
                self.download(wish, &source, None, &known, |_| Ok(url.clone()))
            }
        }
    }

    fn file(&mut self, wish: &Wish<'_>, path: &Path) -> Result<Found, SyncError> {
        let seen = self.world.see(path)?;
        match plan::then(self.record, wish, self.trigger, &seen, |id| self.world.has(id)) {
            Then::Known(id) => return Ok((id, None)),
            Then::StillRefused => return Err(self.still_refused()),
            Then::Digest => {}
        }
        let found = self.world.digest(path)?;
        let mut looked = Looked {
            source: seen.source.clone(),
            label: wish.pin.map(str::to_owned),
            demanded: wish.sha256.map(str::to_owned),
            size: seen.size,
            modified: seen.modified,
            validator: None,
            sha256: Some(found.hex()),
            version: None,
        };
        let known = self.record.looked.as_ref().filter(|known| plan::same_question(known, wish, &seen.source));
        if let Some(id) = known.filter(|known| known.sha256 == looked.sha256).and_then(|known| known.version)
            && self.trigger != Trigger::Refresh
            && self.world.has(id)
        {
            // Touched or copied again, the same bytes.
            looked.version = Some(id);
            self.record.looked = Some(looked);
            return Ok((id, None));
        }
        let brought = match self.intent.sha256.filter(|&demanded| demanded != found) {
            Some(demanded) => Err(SyncError::WrongDigest { name: seen.source.clone(), found, demanded }),
            None => self.bring(path, &seen.source, None, None, false),
        };
        if let Err(refused) = &brought
            && refused.is_refusal()
            && self.world.see(path)? != seen
        {
            let source = Box::new(brought.err().unwrap_or(SyncError::Interrupted));
            return Err(SyncError::Changing { path: path.to_owned(), source });
        }
        looked.version = brought.as_ref().ok().map(|brought| brought.id);
        if brought.as_ref().err().is_none_or(SyncError::is_refusal) {
            self.record.looked = Some(looked);
        }
        brought.map(|brought| (brought.id, Some(brought)))
    }

    fn still_refused(&self) -> SyncError {
        let said = self.record.last_attempt.as_ref().and_then(|attempt| attempt.error.clone());
        SyncError::StillRefused(said.unwrap_or_default())
    }

    fn bring(
        &mut self,
        path: &Path,
        source: &str,
        job: Option<&str>,
        sent: Option<&Known>,
        ours: bool,
    ) -> Result<Brought, SyncError> {
        self.world.tell("proving the bundle");
        let label = self.intent.pin.as_ref();
        let arrival = Arrival { path, source, label, demanded: self.intent.sha256, job, sent };
        self.world.bring(self.record, &arrival, ours)
    }

    // The API.

    fn api(&mut self, wish: &Wish<'_>) -> Result<Report, SyncError> {
        let Some(api) = &self.intent.api else { return self.settle(None) };
        let source = api.name();
        let pace = Pace {
            each_look: self.intent.each_look,
            max_age: seconds(self.intent.max_age),
            job_timeout: seconds(self.intent.job_timeout),
            quiet: seconds(self.intent.interval).min(QUIET.cast_signed()),
        };
        let begin = plan::begin(self.record, wish, &pace, self.trigger, self.world.now());
        if !matches!(begin, Begin::Adopt(_) | Begin::AfterThis(_)) {
            // One that was for another source, or has had its time.
            self.record.job = None;
        }
        let job = match begin {
            Begin::Nothing(why) => {
                self.world.tell(why);
                return self.settle(None);
            }
            Begin::Adopt(job) => {
                self.world.tell(&format!("going on with the export job {}", OneLine(&job.id)));
                self.await_job(&job, true)?;
                job
            }
            Begin::AfterThis(job) => {
                self.world.tell(&format!("waiting for the export job {} to end", OneLine(&job.id)));
                self.run_out(&job)?;
                self.start(wish, &source, BTreeMap::new())?
            }
            Begin::Start => self.start(wish, &source, BTreeMap::new())?,
            Begin::Probe => {
                let said = self.probe(&source)?;
                if !plan::calls_for_job(self.record, wish, &pace, &said, self.world.now()) {
                    return self.settle(None);
                }
                self.start(wish, &source, said)?
            }
        };
        let found = self.bundle_of(wish, &source, &job)?;
        self.settle(Some(found))
    }

    /// Reads what tells that content has changed; what cannot be read is warned about and left out.
    fn probe(&mut self, source: &str) -> Result<BTreeMap<String, Probe>, SyncError> {
        let mut said = BTreeMap::new();
        let before = self.record.probed.clone().filter(|probed| probed.source == source);
        for url in &self.intent.probes {
            let known = before.as_ref().and_then(|before| before.probes.get(&url.name()));
            match self.world.probe(url, known)? {
                Ok(Some(probe)) => {
                    said.insert(url.name(), probe);
                }
                Ok(None) => said.extend(known.map(|known| (url.name(), known.clone()))),
                Err(trouble) => self.world.warn(&format!("cannot read the probe {url}: {trouble}")),
            }
        }
        Ok(said)
    }

    /// Starts a job and sees it to its end; its id is kept before it is first asked about.
    fn start(
        &mut self,
        wish: &Wish<'_>,
        source: &str,
        probes: BTreeMap<String, Probe>,
    ) -> Result<JobRecord, SyncError> {
        let domain = self.intent.api.as_ref().map_or_else(String::new, |api| api.domain.clone());
        self.world.tell(&format!("starting the export of {domain}"));
        let started = show_unix(self.world.now());
        let mark = Success { source: source.to_owned(), pin: wish.pin.map(str::to_owned), time: started.clone() };
        // Before the request leaves: what is started and not heard of has been started all the same.
        let before = self.record.last_start.replace(mark);
        self.world.save(self.record)?;
        let doing = format!("start the export of {domain}");
        let id = match self.persist(Ask::Start, &doing, W::start_job) {
            Ok(id) => id,
            Err(error) => {
                if matches!(&error, SyncError::Upstream { trouble, .. } if !matches!(trouble.cause, Cause::Lost | Cause::Unreadable))
                {
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

    /// Polls until the job is completed; any other end forgets it and is an error.
    fn await_job(&mut self, job: &JobRecord, adopted: bool) -> Result<(), SyncError> {
        let error = match self.poll(job, adopted)? {
            Ended::Completed => return Ok(()),
            Ended::Failed(reason) => SyncError::JobFailed { id: job.id.clone(), reason: OneLine(&reason).to_string() },
            Ended::Vanished(trouble) => SyncError::JobVanished { id: job.id.clone(), trouble },
            Ended::Late(error) => error,
        };
        self.forget_job()?;
        Err(error)
    }

    /// Polls until the job has ended, however it ends, and forgets it.
    fn run_out(&mut self, job: &JobRecord) -> Result<(), SyncError> {
        self.poll(job, true)?;
        self.forget_job()
    }

    fn forget_job(&mut self) -> Result<(), SyncError> {
        self.record.job = None;
        self.world.save(self.record)
    }

    fn poll(&mut self, job: &JobRecord, adopted: bool) -> Result<Ended, SyncError> {
        let network = &self.intent.network;
        let doing = format!("read the state of the export job {}", OneLine(&job.id));
        let pace = Pace { each_look: false, max_age: 0, job_timeout: seconds(self.intent.job_timeout), quiet: 0 };
        let began = self.world.elapsed();
        let mut stall = Stall::default();
        let mut polls = 0;
        loop {
            if polls > 0 || !adopted {
                self.world.wait(export::pause(polls, network.poll_first, network.poll_most))?;
            }
            polls += 1;
            let state = match self.persist(Ask::Poll, &doing, |world| world.poll(&job.id)) {
                Ok(state) => state,
                Err(SyncError::Upstream { trouble, .. }) if trouble.cause == Cause::Status(404) => {
                    return Ok(Ended::Vanished(trouble));
                }
                Err(error) => return Err(error),
            };
            self.world.tell(&format!("export job {}", OneLine(&state.line())));
            match export::next(&state) {
                Step::AskForLink => return Ok(Ended::Completed),
                Step::GiveUp(reason) => return Ok(Ended::Failed(reason)),
                Step::Poll => {}
            }
            let elapsed = self.world.elapsed().saturating_sub(began);
            if let Some(still) = stall.see(&state, elapsed) {
                let line = state.line();
                self.world.warn(&format!(
                    "export job {}: not moved for {} s ({})",
                    OneLine(&job.id),
                    still.as_secs(),
                    OneLine(&line)
                ));
            }
            if plan::is_over(job, &pace, self.world.now()) || elapsed >= self.intent.job_timeout {
                return Ok(Ended::Late(SyncError::JobTimeout {
                    id: OneLine(&job.id).to_string(),
                    after: self.intent.job_timeout,
                    state: OneLine(&state.line()).to_string(),
                    still: stall.still(elapsed),
                }));
            }
        }
    }

    /// The bundle of a completed job.
    fn bundle_of(&mut self, wish: &Wish<'_>, source: &str, job: &JobRecord) -> Result<Found, SyncError> {
        let known = self.begin_download(source)?;
        let id = job.id.clone();
        let result = self.download(wish, source, Some(&id), &known, |sync| {
            let doing = format!("get a link to the bundle of the export job {}", OneLine(&id));
            match sync.persist(Ask::Link, &doing, |world| world.link(&id)) {
                Ok(link) => {
                    let size = link.size.map_or_else(String::new, |size| format!(", {size} bytes"));
                    let until = link
                        .expires_at
                        .as_deref()
                        .map_or_else(String::new, |time| format!(", until {}", OneLine(time)));
                    sync.world.tell(&format!("link {}{size}{until}", link.url));
                    Ok(link.url)
                }
                Err(SyncError::Upstream { trouble, .. }) if trouble.cause == Cause::Status(404) => {
                    sync.forget_job()?;
                    Err(SyncError::JobVanished { id: id.clone(), trouble })
                }
                Err(error) => Err(error),
            }
        });
        let judged = match &result {
            Ok(_) | Err(SyncError::StillRefused(_)) => true,
            Err(error) => error.is_refusal(),
        };
        if judged {
            self.record.job = None;
            if !job.probes.is_empty() {
                self.record.probed = Some(Probed { source: source.to_owned(), probes: job.probes.clone() });
            }
        }
        if result.is_ok() {
            let time = show_unix(self.world.now());
            self.record.last_success = Some(Success { source: source.to_owned(), pin: job.pin.clone(), time });
        }
        result
    }

    // Downloads.

    fn begin_download(&mut self, source: &str) -> Result<Vec<KnownBundle>, SyncError> {
        let mut known = self.world.known(self.record, source);
        if self.trigger == Trigger::Refresh {
            known.clear();
        }
        if !matches!(self.trigger, Trigger::Start | Trigger::Interval) {
            // Whoever asks may have changed what the refusal was about, such as a limit.
            known.retain(|(_, version)| version.is_some());
        }
        self.world.want(source, known.iter().map(|(known, _)| known.clone()).collect())?;
        Ok(known)
    }

    /// Downloads, with fresh links from `link` where they can be had, and brings what has arrived.
    fn download(
        &mut self,
        wish: &Wish<'_>,
        source: &str,
        job: Option<&str>,
        known: &[KnownBundle],
        mut link: impl FnMut(&mut Self) -> Result<SafeUrl, SyncError>,
    ) -> Result<Found, SyncError> {
        let renewable = job.is_some();
        let mut url = link(self)?;
        let mut attempts = Attempts::default();
        let mut links = 1;
        loop {
            self.world.tell(&format!("downloading {url}"));
            let trouble = match self.world.fetch(&url)? {
                Ok(Fetched::Unchanged(same)) => return self.unchanged(wish, source, known, &same),
                Ok(Fetched::Whole(arrived)) => {
                    let result = self.arrived(wish, source, job, &arrived);
                    if arrived.resumed && result.as_ref().err().is_some_and(SyncError::is_refusal) {
                        // A power cut may have damaged what was here before: it gets a second chance, from the start.
                        self.world.discard();
                        continue;
                    }
                    if !matches!(result, Err(SyncError::Interrupted)) {
                        self.world.discard();
                    }
                    return result;
                }
                Err(trouble) => trouble,
            };
            if self.world.has_moved() {
                attempts.reset();
            }
            let dead = is_dead_link(&trouble);
            if dead && renewable && links < FRESH_LINKS {
                self.world.warn(&format!("the link is dead ({trouble}): asking for a fresh one"));
                if links > 1 {
                    // A link that never lived may need a moment.
                    let pause = backoff::step(links - 1, self.world.random());
                    self.world.wait(pause)?;
                }
                links += 1;
                url = link(self)?;
                continue;
            }
            match attempts.next(Call::Read, &trouble, self.world.random()) {
                Some(pause) => {
                    self.world.warn(&format!("download of {url}: {trouble}; going on in {:.1} s", pause.as_secs_f64()));
                    self.world.wait(pause)?;
                }
                None => {
                    if matches!(trouble.cause, Cause::Disk | Cause::TooLarge) {
                        self.world.discard();
                    }
                    return Err(SyncError::Download {
                        link: url.to_string(),
                        signed: url.has_query(),
                        trouble,
                        renewable,
                    });
                }
            }
        }
    }

    /// The server has what we know already.
    fn unchanged(
        &mut self,
        wish: &Wish<'_>,
        source: &str,
        known: &[KnownBundle],
        same: &Known,
    ) -> Result<Found, SyncError> {
        let version = known.iter().find(|(known, _)| known == same).and_then(|(_, version)| *version);
        let Some(id) = version else { return Err(self.still_refused()) };
        if let Some(pin) = wish.pin
            && self.record.labels.get(pin).is_none_or(|label| label.version != id || label.source != source)
        {
            let sha256 = wish.sha256.map(str::to_owned);
            let labelled = Labelled { version: id, source: source.to_owned(), sha256, time: now() };
            self.record.labels.insert(pin.to_owned(), labelled);
            self.world.save(self.record)?;
        }
        Ok((id, None))
    }

    fn arrived(
        &mut self,
        wish: &Wish<'_>,
        source: &str,
        job: Option<&str>,
        arrived: &Arrived,
    ) -> Result<Found, SyncError> {
        let inner: Option<PathBuf> = if arrived.encoded { self.world.unwrap(arrived)? } else { None };
        let path = inner.as_deref().unwrap_or(&arrived.path);
        let brought = self.bring(path, source, job, arrived.known.as_ref(), true);
        if brought.as_ref().err().is_none_or(SyncError::is_refusal) {
            self.record.looked = Some(Looked {
                source: source.to_owned(),
                label: wish.pin.map(str::to_owned),
                demanded: wish.sha256.map(str::to_owned),
                size: arrived.known.as_ref().map_or(0, |known| known.size),
                modified: 0,
                validator: arrived.known.as_ref().map(|known| known.validator.clone()),
                sha256: brought.as_ref().ok().and_then(|brought| brought.sha256).map(|digest| digest.hex()),
                version: brought.as_ref().ok().map(|brought| brought.id),
            });
        }
        brought.map(|brought| (brought.id, Some(brought)))
    }

    /// Asks until there is an answer or no hope of one.
    fn persist<T>(&mut self, ask: Ask, doing: &str, mut call: impl FnMut(&mut W) -> Asked<T>) -> Result<T, SyncError> {
        let mut attempts = Attempts::default();
        loop {
            let trouble = match call(self.world)? {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let Some(pause) = attempts.next(ask.call(), &trouble, self.world.random()) else {
                return Err(SyncError::Upstream { doing: doing.to_owned(), call: ask, trouble });
            };
            self.world.warn(&format!("cannot {doing}: {trouble}; trying again in {:.1} s", pause.as_secs_f64()));
            self.world.wait(pause)?;
        }
    }
}

fn seconds(duration: std::time::Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}
