//! One sync, from checking the source to activating a version. It acts on the system through [`SyncEnvironment`] alone.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use crate::api::calls::ApiCall;
use crate::fetch::BundleValidator;
use crate::store::record::{BundleCheck, StoreRecord, SyncAttempt};
use crate::store::version_stage::CommitOutcome;
use docwharf_base::backoff;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::units::{count_noun, show_size, show_unix};
use docwharf_base::model::version::{VersionId, VersionLabel};
use docwharf_base::net::request_error::MAX_RETRY_AFTER;
use docwharf_base::net::retry::CallAttempts;

use super::activation::SyncReport;
use super::environment::{CallResult, SyncEnvironment};
use super::incoming_bundle::{IncomingBundle, Occasion};
use super::ingest::IngestedBundle;
use super::plan::{self, FileDecision, PlanInput, SourceDecision, SyncTrigger};
use super::{ApiSource, BundleLocation, SyncError, SyncIntent, SyncOutcome};

/// Runs a sync, and records the attempt whatever its result.
pub fn run_sync<W: SyncEnvironment>(
    world: &mut W,
    record: &mut StoreRecord,
    intent: &SyncIntent,
    trigger: SyncTrigger,
) -> Result<SyncReport, SyncError> {
    let result = SyncRun { world, record, intent, trigger }.look();
    let (name, error) = match &result {
        // None of these counts as an attempt.
        Ok(
            SyncReport { too_early: Some(_), .. }
            | SyncReport { outcome: SyncOutcome::Disabled | SyncOutcome::NoSource, .. },
        )
        | Err(SyncError::Interrupted) => return result,
        Ok(SyncReport { blind: Some(why), .. }) => ("probes unreadable", Some(why.clone())),
        Ok(report) => (report.outcome.name(), None),
        Err(SyncError::StillRefused(said)) => ("failed", Some(said.clone())),
        Err(error) => ("failed", Some(ErrorChain(error).to_string())),
    };
    if let Err(refused) = &result
        && refused.is_refusal()
    {
        world.note("refused", None, error.clone());
    }
    let question = intent.question();
    // A person's request or a changed configuration counts failures from zero.
    let before = record
        .last_attempt
        .as_ref()
        .filter(|before| before.question == question && !trigger.wants_now() && trigger != SyncTrigger::Changed);
    let failures = match &result {
        Ok(_) => 0,
        Err(_) => before.map_or(0, |before| before.failures).saturating_add(1),
    };
    let told =
        result.as_ref().err().is_some_and(|error| !error.is_refusal() && !matches!(error, SyncError::Changing { .. }));
    if told && failures == 1 {
        // Only the first failure in a row: the others would repeat it.
        world.note("failed", None, error.clone());
    }
    // Checking for a missing file or key costs an upstream nothing: a restart checks at once.
    let failure = result.as_ref().err().filter(|error| !error.is_absence());
    let wait = failure.map_or(0, |error| wait_after(error, failures, intent.interval, || world.random()).as_secs());
    let time = show_unix(world.now());
    if result.as_ref().is_ok_and(|report| report.blind.is_none()) {
        record.last_good = Some(time.clone());
    }
    let saw = result.as_ref().ok().and_then(|report| report.saw.clone());
    record.last_attempt = Some(SyncAttempt { time, result: name.to_owned(), saw, error, failures, question, wait });
    match (result, world.save(record)) {
        (Ok(_), Err(error)) => Err(error),
        (result, _) => result,
    }
}

/// The back-off of `run` after a failure. It grows with each failure; where a retry is of no use, it lasts until the
/// next check of the source. It is never shorter than the upstream's Retry-After. `random` returns numbers from 0 to 1.
pub fn wait_after(error: &SyncError, failures: u32, every: Duration, mut random: impl FnMut() -> f64) -> Duration {
    let wait = match error {
        SyncError::StillRefused(_) => every,
        error if error.is_refusal() => every,
        // Checking a file costs nothing.
        SyncError::Missing { .. } | SyncError::IsFolder { .. } | SyncError::Changing { .. } => {
            backoff::wait_after_failures(failures).min(every)
        }
        _ => backoff::jitter(backoff::wait_after_failures(failures), random()),
    };
    // Clients that got the same Retry-After should not come back at the same moment.
    wait.max(error.retry_after().unwrap_or_default().mul_f64(1.0 + random() / 10.0).min(MAX_RETRY_AFTER))
}

/// A sync in progress.
pub(super) struct SyncRun<'a, W> {
    pub(super) world: &'a mut W,
    pub(super) record: &'a mut StoreRecord,
    pub(super) intent: &'a SyncIntent,
    pub(super) trigger: SyncTrigger,
}

/// The version that a source has; with its ingested bundle, if it was not stored already.
pub(super) type FoundVersion = (VersionId, Option<IngestedBundle>);

impl<W: SyncEnvironment> SyncRun<'_, W> {
    fn look(&mut self) -> Result<SyncReport, SyncError> {
        let bundle = self.intent.bundle.as_ref().map(BundleLocation::name);
        let api = self.intent.api.as_ref().map(ApiSource::name);
        let demanded = self.intent.sha256.map(|digest| digest.hex());
        let wish = PlanInput {
            enabled: self.intent.enabled,
            bundle: bundle.as_deref(),
            api: api.as_deref(),
            pin: self.intent.pin.as_ref().map(VersionLabel::as_str),
            sha256: demanded.as_deref(),
        };
        match plan::decide_source_check(self.record, &wish, self.trigger, |id| self.world.has(id)) {
            SourceDecision::Disabled if !self.intent.enabled => Ok(SyncReport::of(SyncOutcome::Disabled)),
            // There is no source to check; an imported version may be due all the same, for example after a rule was
            // removed.
            SourceDecision::Disabled => {
                let report = self.settle(None)?;
                Ok(if matches!(report.outcome, SyncOutcome::Current(_)) {
                    SyncReport::of(SyncOutcome::NoSource)
                } else {
                    report
                })
            }
            SourceDecision::Settle => self.settle_seeing("the pinned label is in the store: no request is sent"),
            SourceDecision::Look => self.source(&wish),
        }
    }

    pub(super) fn settle(&mut self, found: Option<FoundVersion>) -> Result<SyncReport, SyncError> {
        let (id, brought) = found.map_or((None, None), |(id, brought)| (Some(id), brought));
        let later = self.brought_since(id);
        let saw = match (&id, &brought) {
            (None, _) => None,
            (Some(_), None) => Some(match later {
                Some(later) => {
                    format!("the source still has the same bundle; version {} was imported since", later.short())
                }
                None => "the bundle is the one that is known".to_owned(),
            }),
            (Some(_), Some(brought)) => Some(match brought.committed {
                CommitOutcome::New => {
                    format!("a new bundle ({}, {})", count_noun(brought.pages, "page"), show_size(brought.bytes))
                }
                CommitOutcome::Known => "a bundle with content that the store has already".to_owned(),
                CommitOutcome::Mended => "a bundle that mends a damaged version".to_owned(),
            }),
        };
        let report = self.world.settle(self.record, later.or(id), brought)?;
        Ok(SyncReport { saw, ..report })
    }

    /// The version that was imported since the source had `found`, if it is the next to be active.
    fn brought_since(&self, found: Option<VersionId>) -> Option<VersionId> {
        let found = found.filter(|_| self.intent.pin.is_none())?;
        self.record.newest.filter(|&newest| newest != found && self.record.active != Some(found))
    }

    /// Ends a sync that has fetched nothing, for this reason.
    pub(super) fn settle_seeing(&mut self, saw: &str) -> Result<SyncReport, SyncError> {
        Ok(SyncReport { saw: Some(saw.to_owned()), ..self.settle(None)? })
    }

    /// Fetches from the configured bundle or the API; with both, the bundle is for an empty store only.
    fn source(&mut self, wish: &PlanInput<'_>) -> Result<SyncReport, SyncError> {
        let intent = self.intent;
        let Some(bundle) = &intent.bundle else { return self.api(wish) };
        if intent.api.is_none() {
            let found = self.bundle(wish, bundle)?;
            return self.settle(Some(found));
        }
        let mark = match bundle {
            BundleLocation::Link(url) => Digest::of(url.expose().as_str().as_bytes()).hex(),
            BundleLocation::File(path) => Digest::of(path.as_os_str().as_encoded_bytes()).hex(),
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
                self.world.warn(&format!("{}; the API is asked instead", ErrorChain(&error)));
                self.api(wish)
            }
        }
    }

    fn bundle(&mut self, wish: &PlanInput<'_>, bundle: &BundleLocation) -> Result<FoundVersion, SyncError> {
        match bundle {
            BundleLocation::File(path) => self.file(wish, path),
            BundleLocation::Link(url) => {
                let source = bundle.name();
                let known = self.begin_download(&source)?;
                self.download(wish, &source, None, &known, |_| Ok(url.clone()))
            }
        }
    }

    fn file(&mut self, wish: &PlanInput<'_>, path: &Path) -> Result<FoundVersion, SyncError> {
        let seen = self.world.bundle_file_state(path)?;
        match plan::decide_file(self.record, wish, self.trigger, &seen, |id| self.world.has(id)) {
            FileDecision::Known(id) => {
                self.world.find_again(self.record, &seen.source, id)?;
                return Ok((id, None));
            }
            FileDecision::StillRefused => return Err(self.still_refused()),
            FileDecision::Digest => {}
        }
        let found = self.world.digest(path)?;
        let mut looked = BundleCheck {
            source: seen.source.clone(),
            label: wish.pin.map(str::to_owned),
            demanded: wish.sha256.map(str::to_owned),
            size: seen.size,
            modified: seen.modified,
            validator: None,
            sha256: Some(found.hex()),
            version: None,
            refusal: None,
        };
        let known = self.record.looked.as_ref().filter(|known| plan::same_question(known, wish, &seen.source));
        if let Some(id) = known.filter(|known| known.sha256 == looked.sha256).and_then(|known| known.version)
            && self.trigger != SyncTrigger::Refresh
            && self.world.has(id)
        {
            // The file was touched or copied again, with the same bytes.
            looked.version = Some(id);
            self.record.looked = Some(looked);
            self.world.find_again(self.record, &seen.source, id)?;
            return Ok((id, None));
        }
        let brought = match self.intent.sha256.filter(|&demanded| demanded != found) {
            Some(demanded) => Err(SyncError::WrongDigest { name: seen.source.clone(), found, demanded }),
            None => self.bring(path, &seen.source, None, None, false),
        };
        if let Err(refused) = &brought
            && refused.is_refusal()
            && self.world.bundle_file_state(path)? != seen
        {
            let source = Box::new(brought.err().unwrap_or(SyncError::Interrupted));
            return Err(SyncError::Changing { path: path.to_owned(), source });
        }
        looked.version = brought.as_ref().ok().map(|brought| brought.id);
        looked.refusal = brought.as_ref().err().map(|refused| ErrorChain(refused).to_string());
        if brought.as_ref().err().is_none_or(SyncError::is_refusal) {
            self.record.looked = Some(looked);
        }
        brought.map(|brought| (brought.id, Some(brought)))
    }

    pub(super) fn still_refused(&self) -> SyncError {
        let said = self.record.looked.as_ref().and_then(|looked| looked.refusal.clone());
        SyncError::StillRefused(said.unwrap_or_else(|| "`docwharf history` tells why".to_owned()))
    }

    pub(super) fn bring(
        &mut self,
        path: &Path,
        source: &str,
        job: Option<&str>,
        sent: Option<&BundleValidator>,
        ours: bool,
    ) -> Result<IngestedBundle, SyncError> {
        self.world.tell("verifying the bundle");
        let label = self.intent.pin.as_ref();
        let export = self.intent.api.as_ref().filter(|_| job.is_some());
        let export = export.map(|api| format!("the export of {}", api.domain));
        let title = export.as_deref().unwrap_or(source);
        let occasion = if self.trigger == SyncTrigger::Refresh { Occasion::Refresh } else { Occasion::Look };
        let demanded = self.intent.sha256;
        let (file, ahead) = (None, RefCell::default());
        let arrival = IncomingBundle { path, file, source, title, occasion, label, demanded, job, sent, ahead };
        self.world.bring(self.record, &arrival, ours)
    }

    /// Repeats an API call until it succeeds or a retry is of no use.
    pub(super) fn call_with_retries<T>(
        &mut self,
        ask: ApiCall,
        doing: &str,
        attempts: &mut CallAttempts,
        mut call: impl FnMut(&mut W) -> CallResult<T>,
    ) -> Result<T, SyncError> {
        loop {
            let trouble = match call(self.world)? {
                Ok(answer) => return Ok(answer),
                Err(trouble) => trouble,
            };
            let Some(pause) = attempts.next_pause(ask.kind(), &trouble, self.world.random()) else {
                return Err(SyncError::Upstream { doing: doing.to_owned(), call: ask, trouble });
            };
            self.world.warn(&format!("cannot {doing}: {trouble}; trying again in {:.1} s", pause.as_secs_f64()));
            self.world.wait(pause)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::digest::Digest;
    use docwharf_base::net::request_error::{RequestError, RequestErrorCause};

    use super::*;

    #[test]
    fn a_refused_bundle_is_looked_at_again_at_the_next_look_and_not_earlier_or_later() {
        let every = Duration::from_hours(1);
        let digest = Digest::of(b"x");
        let refused = SyncError::WrongDigest { name: "b.zip".to_owned(), found: digest, demanded: digest };
        for failures in [1, 2, 9, 1000] {
            assert_eq!(wait_after(&refused, failures, every, || 0.5), every, "{failures}");
        }
        // An error that may pass by itself is retried sooner.
        let waits = [1, 2, 3].map(|failures| wait_after(&SyncError::Interrupted, failures, every, || 0.5));
        assert!(waits[0] < waits[1] && waits[1] < waits[2] && waits[2] < every, "{waits:?}");
    }

    #[test]
    fn a_wait_grows_with_failures_and_is_never_less_than_the_upstream_asks_for() {
        let every = Duration::from_mins(2);
        let seconds = Duration::from_secs;
        let upstream = |retry_after: Option<u64>| {
            let mut trouble = RequestError::new(RequestErrorCause::Status(429), "x");
            trouble.retry_after = retry_after.map(seconds);
            SyncError::Upstream { doing: String::new(), call: ApiCall::Poll, trouble }
        };
        let missing = || SyncError::Missing { path: "b".into(), source: std::io::ErrorKind::NotFound.into() };
        let folder = || SyncError::IsFolder { path: "b".into() };
        let changing = || SyncError::Changing { path: "b".into(), source: Box::new(missing()) };
        let cases = [
            (SyncError::StillRefused(String::new()), 3, 0.0, every),
            // For a missing file the wait has no random part and ends at the next check at the latest.
            (missing(), 1, 0.0, seconds(5)),
            (folder(), 2, 0.0, seconds(10)),
            (changing(), 3, 0.0, seconds(20)),
            (missing(), 9, 0.0, every),
            (upstream(None), 1, 0.5, seconds(5)),
            (upstream(None), 9, 0.5, seconds(600)),
            (upstream(None), 2, 0.0, seconds(9)),
            (upstream(None), 2, 1.0, seconds(11)),
            (upstream(Some(3)), 2, 0.0, seconds(9)),
            (upstream(Some(100)), 1, 0.0, seconds(100)),
            (upstream(Some(100)), 1, 1.0, seconds(110)),
            (upstream(Some(MAX_RETRY_AFTER.as_secs() * 2)), 1, 0.0, MAX_RETRY_AFTER),
        ];
        for (error, failures, random, expected) in cases {
            let wait = wait_after(&error, failures, every, || random);
            assert!(wait.abs_diff(expected) < Duration::from_millis(1), "{error:?} {failures} {random}: {wait:?}");
        }
    }
}
