//! One sync, from checking the source to activating a version. It uses only [`SyncEnvironment`] to act on the system.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use crate::api::calls::ApiCall;
use crate::fetch::BundleValidator;
use crate::store::incoming_version::CommitOutcome;
use crate::store::record::{BundleCheck, StoreRecord, SyncAttempt};
use docwharf_base::backoff;
use docwharf_base::clock::seconds_ceil;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::{format_count, format_size, format_unix_seconds};
use docwharf_base::model::version::{VersionId, VersionLabel};
use docwharf_base::net::request_error::MAX_RETRY_AFTER;
use docwharf_base::net::retry::CallAttempts;

use super::activation::SyncReport;
use super::environment::{CallResult, SyncEnvironment};
use super::incoming_bundle::{ArrivalCause, IncomingBundle};
use super::ingest::IngestedBundle;
use super::plan::{self, FileDecision, PlanInput, SourceDecision, SyncTrigger};
use super::{ApiSource, BundleLocation, SyncError, SyncOutcome, SyncSettings};

/// Runs a sync, and records the attempt, also after a failure.
pub fn run_sync<E: SyncEnvironment>(
    environment: &mut E,
    record: &mut StoreRecord,
    sync_settings: &SyncSettings,
    trigger: SyncTrigger,
) -> Result<SyncReport, SyncError> {
    let result = SyncRun { environment, record, sync_settings, trigger }.check_and_activate();
    let (name, error) = match &result {
        // None of these counts as an attempt.
        Ok(
            SyncReport { postponed: Some(_), .. }
            | SyncReport { outcome: SyncOutcome::Disabled | SyncOutcome::NoSource, .. },
        )
        | Err(SyncError::Cancelled) => return result,
        Ok(SyncReport { unreadable_probes: Some(why), .. }) => ("probes unreadable", Some(why.clone())),
        Ok(report) => (report.outcome.name(), None),
        Err(SyncError::StillRefused(refusal)) => ("failed", Some(refusal.clone())),
        Err(error) => ("failed", Some(ErrorChain(error).to_string())),
    };
    if let Err(refused) = &result
        && refused.is_refusal()
    {
        environment.append_event("refused", None, error.clone());
    }
    let source_digest = sync_settings.source_digest();
    // After an explicit request or a changed configuration, failures are counted from zero.
    let before = record.last_attempt.as_ref().filter(|before| {
        before.source_digest == source_digest
            && !trigger.is_explicit_request()
            && !matches!(trigger, SyncTrigger::Changed | SyncTrigger::Corrected)
    });
    let failures = match &result {
        Ok(_) => 0,
        Err(_) => before.map_or(0, |before| before.failures).saturating_add(1),
    };
    let is_ordinary_failure =
        result.as_ref().err().is_some_and(|error| !error.is_refusal() && !matches!(error, SyncError::Changing { .. }));
    if is_ordinary_failure && failures == 1 {
        // Only the first of several failures in a row is appended: the others would repeat it.
        environment.append_event("failed", None, error.clone());
    }
    // A check for a missing file or key sends no request, so a restart checks at once.
    let failure = result.as_ref().err().filter(|error| !error.is_absence());
    let wait = failure
        .map_or(0, |error| seconds_ceil(wait_after(error, failures, sync_settings.interval, || environment.random())));
    let time = format_unix_seconds(environment.now());
    if result.as_ref().is_ok_and(|report| report.unreadable_probes.is_none()) {
        record.last_good_sync = Some(time.clone());
    }
    let saw = result.as_ref().ok().and_then(|report| report.check_summary.clone());
    record.last_attempt =
        Some(SyncAttempt { time, result: name.to_owned(), saw, error, failures, source_digest, wait });
    match (result, environment.save_record(record)) {
        (Ok(_), Err(error)) => Err(error),
        (result, _) => result,
    }
}

/// Returns the back-off of `docwharf run` after a failure. It grows with each failure; where a retry is useless, it
/// lasts for `interval`, until the next check of the source. It is never shorter than the upstream's Retry-After, of
/// which at most a day counts. `random` returns numbers from 0 to 1.
pub fn wait_after(error: &SyncError, failures: u32, interval: Duration, mut random: impl FnMut() -> f64) -> Duration {
    let wait = match error {
        SyncError::StillRefused(_) => interval,
        error if error.is_refusal() => interval,
        // A check of a file is cheap.
        SyncError::Missing { .. } | SyncError::IsFolder { .. } | SyncError::Changing { .. } => {
            backoff::wait_after_failures(failures).min(interval)
        }
        _ => backoff::add_jitter(backoff::wait_after_failures(failures), random()),
    };
    // Clients that got the same Retry-After should not retry at the same moment.
    wait.max(error.retry_after().unwrap_or_default().mul_f64(1.0 + random() / 10.0).min(MAX_RETRY_AFTER))
}

/// A sync in progress.
pub(super) struct SyncRun<'a, E> {
    pub(super) environment: &'a mut E,
    pub(super) record: &'a mut StoreRecord,
    pub(super) sync_settings: &'a SyncSettings,
    pub(super) trigger: SyncTrigger,
}

/// The version that the source has, and its bundle if it had to be ingested.
pub(super) type FoundVersion = (VersionId, Option<IngestedBundle>);

impl<E: SyncEnvironment> SyncRun<'_, E> {
    /// Checks the source if necessary, and activates the target version.
    fn check_and_activate(&mut self) -> Result<SyncReport, SyncError> {
        let bundle = self.sync_settings.bundle.as_ref().map(BundleLocation::name);
        let api = self.sync_settings.api.as_ref().map(ApiSource::name);
        let demanded = self.sync_settings.sha256.map(|digest| digest.to_hex());
        let input = PlanInput {
            enabled: self.sync_settings.enabled,
            bundle: bundle.as_deref(),
            api: api.as_deref(),
            pin: self.sync_settings.pin.as_ref().map(VersionLabel::as_str),
            sha256: demanded.as_deref(),
        };
        match plan::decide_source_check(self.record, &input, self.trigger, |id| self.environment.has_undamaged(id)) {
            SourceDecision::DoNotCheck if !self.sync_settings.enabled => {
                Ok(SyncReport::from_outcome(SyncOutcome::Disabled))
            }
            // There is no source to check, but an imported version may be due, for example after a condition of the
            // gate was removed.
            SourceDecision::DoNotCheck => {
                let report = self.activate_target_version(None)?;
                Ok(if matches!(report.outcome, SyncOutcome::Current(_)) {
                    SyncReport::from_outcome(SyncOutcome::NoSource)
                } else {
                    report
                })
            }
            SourceDecision::ActivateOnly => {
                self.activate_without_fetch("the pinned label is in the store: no request is sent")
            }
            SourceDecision::CheckSource => self.sync_from_source(&input),
        }
    }

    /// Activates the target version, and reports what the source has.
    pub(super) fn activate_target_version(&mut self, found: Option<FoundVersion>) -> Result<SyncReport, SyncError> {
        let (id, ingested) = found.map_or((None, None), |(id, ingested)| (Some(id), ingested));
        let imported = self.imported_since(id);
        let check_summary = match (&id, &ingested) {
            (None, _) => None,
            (Some(_), None) => Some(match imported {
                Some(imported) => {
                    format!("the source still has the same bundle; version {} was imported since", imported.short())
                }
                None => "the bundle is known already".to_owned(),
            }),
            (Some(_), Some(ingested)) => Some(match ingested.committed {
                CommitOutcome::New => {
                    format!("a new bundle ({}, {})", format_count(ingested.pages, "page"), format_size(ingested.bytes))
                }
                CommitOutcome::AlreadyStored => "a bundle with content that the store has already".to_owned(),
                CommitOutcome::Repaired => "a bundle that replaces a damaged version".to_owned(),
            }),
        };
        let report = self.environment.activate_target_version(self.record, imported.or(id), ingested)?;
        Ok(SyncReport { check_summary, ..report })
    }

    /// Returns the version that was imported since the source had `found`, if it is the next to become active.
    fn imported_since(&self, found: Option<VersionId>) -> Option<VersionId> {
        let found = found.filter(|_| self.sync_settings.pin.is_none())?;
        self.record.newest.filter(|&newest| newest != found && self.record.active != Some(found))
    }

    /// Activates the target version in a sync that has fetched nothing, for this reason.
    pub(super) fn activate_without_fetch(&mut self, reason: &str) -> Result<SyncReport, SyncError> {
        Ok(SyncReport { check_summary: Some(reason.to_owned()), ..self.activate_target_version(None)? })
    }

    /// Fetches from the configured bundle or the API; if both are configured, the bundle is only for an empty store.
    fn sync_from_source(&mut self, input: &PlanInput<'_>) -> Result<SyncReport, SyncError> {
        let sync_settings = self.sync_settings;
        let Some(bundle) = &sync_settings.bundle else { return self.sync_from_api(input) };
        if sync_settings.api.is_none() {
            let found = self.fetch_bundle(input, bundle)?;
            return self.activate_target_version(Some(found));
        }
        let location_digest = bundle.digest().to_hex();
        if !self.environment.is_empty()? || self.record.tried_link.as_ref() == Some(&location_digest) {
            return self.sync_from_api(input);
        }
        match self.fetch_bundle(input, bundle) {
            Ok(found) => self.activate_target_version(Some(found)),
            Err(error @ (SyncError::Cancelled | SyncError::Store(_))) => Err(error),
            Err(error) => {
                self.record.tried_link = Some(location_digest);
                self.environment.save_record(self.record)?;
                self.environment.warn(&format!("{}; using the API instead", ErrorChain(&error)));
                self.sync_from_api(input)
            }
        }
    }

    fn fetch_bundle(&mut self, input: &PlanInput<'_>, bundle: &BundleLocation) -> Result<FoundVersion, SyncError> {
        match bundle {
            BundleLocation::File(path) => self.check_file(input, path),
            BundleLocation::Unreadable { error, .. } => Err(SyncError::UnusableSetting(error.clone())),
            BundleLocation::Link(url) => {
                let source = bundle.name();
                let known = self.begin_download(&source)?;
                self.download(input, &source, None, &known, |_| Ok(url.clone()))
            }
        }
    }

    fn check_file(&mut self, input: &PlanInput<'_>, path: &Path) -> Result<FoundVersion, SyncError> {
        let state = self.environment.bundle_file_state(path)?;
        match plan::decide_file(self.record, input, self.trigger, &state, |id| self.environment.has_undamaged(id)) {
            FileDecision::Known(id) => {
                self.environment.note_offered_again(self.record, &state.source, id)?;
                return Ok((id, None));
            }
            FileDecision::StillRefused => return Err(self.still_refused_error()),
            FileDecision::Digest => {}
        }
        let found = self.environment.digest_file(path)?;
        let mut check = BundleCheck {
            source: state.source.clone(),
            pin: input.pin.map(str::to_owned),
            demanded: input.sha256.map(str::to_owned),
            size: state.size,
            modified: state.modified,
            validator: None,
            sha256: Some(found.to_hex()),
            version: None,
            refusal: None,
        };
        let last_check = self.record.last_checked_bundle.as_ref();
        let last_check = last_check.filter(|last_check| plan::is_same_check(last_check, input, &state.source));
        if let Some(id) = last_check.filter(|last| last.sha256 == check.sha256).and_then(|last| last.version)
            && self.trigger != SyncTrigger::Refresh
            && self.environment.has_undamaged(id)
        {
            // Only the file's time has changed, not its bytes.
            check.version = Some(id);
            self.record.last_checked_bundle = Some(check);
            self.environment.note_offered_again(self.record, &state.source, id)?;
            return Ok((id, None));
        }
        let ingested = match self.sync_settings.sha256.filter(|&demanded| demanded != found) {
            Some(demanded) => Err(SyncError::WrongDigest { name: state.source.clone(), found, demanded }),
            None => self.ingest(path, &state.source, None, None, false),
        };
        if let Err(refusal) = &ingested
            && refusal.is_refusal()
            && self.environment.bundle_file_state(path)? != state
        {
            let source = Box::new(ingested.err().unwrap_or(SyncError::Cancelled));
            return Err(SyncError::Changing { path: path.to_owned(), source });
        }
        check.version = ingested.as_ref().ok().map(|ingested| ingested.id);
        check.refusal = ingested.as_ref().err().map(|refusal| ErrorChain(refusal).to_string());
        if ingested.as_ref().err().is_none_or(SyncError::is_refusal) {
            self.record.last_checked_bundle = Some(check);
        }
        ingested.map(|ingested| (ingested.id, Some(ingested)))
    }

    pub(super) fn still_refused_error(&self) -> SyncError {
        let refusal = self.record.last_checked_bundle.as_ref().and_then(|check| check.refusal.clone());
        SyncError::StillRefused(refusal.unwrap_or_else(|| "`docwharf history` shows the reason".to_owned()))
    }

    pub(super) fn ingest(
        &mut self,
        path: &Path,
        source: &str,
        job: Option<&str>,
        sent: Option<&BundleValidator>,
        may_move: bool,
    ) -> Result<IngestedBundle, SyncError> {
        self.environment.begin_step("verifying the bundle");
        let label = self.sync_settings.pin.as_ref();
        let export = self.sync_settings.api.as_ref().filter(|_| job.is_some());
        let export = export.map(|api| format!("the export of {}", api.domain));
        let title = export.as_deref().unwrap_or(source);
        let cause =
            if self.trigger == SyncTrigger::Refresh { ArrivalCause::Refresh } else { ArrivalCause::SourceCheck };
        let demanded = self.sync_settings.sha256;
        let (file, streamed_seal) = (None, RefCell::default());
        let incoming_bundle =
            IncomingBundle { path, file, source, title, cause, label, demanded, job, sent, streamed_seal };
        self.environment.ingest(self.record, &incoming_bundle, may_move)
    }

    /// Repeats an API call until it succeeds or a retry is useless.
    pub(super) fn call_with_retries<T>(
        &mut self,
        api_call: ApiCall,
        doing: &str,
        attempts: &mut CallAttempts,
        mut call: impl FnMut(&mut E) -> CallResult<T>,
    ) -> Result<T, SyncError> {
        loop {
            let request_error = match call(self.environment)? {
                Ok(response) => return Ok(response),
                Err(request_error) => request_error,
            };
            let Some(pause) = attempts.next_pause(api_call.kind(), &request_error, self.environment.random()) else {
                return Err(SyncError::Upstream { doing: doing.to_owned(), call: api_call, request_error });
            };
            self.environment
                .warn(&format!("cannot {doing}: {request_error}; trying again in {:.1} s", pause.as_secs_f64()));
            self.environment.wait(pause)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::digest::Digest;
    use docwharf_base::net::request_error::{RequestError, RequestErrorCause};

    use super::super::BUNDLE_URL_KEY;
    use super::*;

    #[test]
    fn refused_bundle_is_checked_again_after_the_normal_interval() {
        let interval = Duration::from_hours(1);
        let digest = Digest::compute(b"x");
        let refused = SyncError::WrongDigest { name: "b.zip".to_owned(), found: digest, demanded: digest };
        for failures in [1, 2, 9, 1000] {
            assert_eq!(wait_after(&refused, failures, interval, || 0.5), interval, "{failures}");
        }
        // An error that may be temporary is retried sooner.
        let waits = [1, 2, 3].map(|failures| wait_after(&SyncError::Cancelled, failures, interval, || 0.5));
        assert!(waits[0] < waits[1] && waits[1] < waits[2] && waits[2] < interval, "{waits:?}");
    }

    #[test]
    fn wait_grows_with_failures_and_is_at_least_the_retry_after_of_the_upstream() {
        let interval = Duration::from_mins(2);
        let seconds = Duration::from_secs;
        let upstream = |retry_after: Option<u64>| {
            let mut request_error = RequestError::new(RequestErrorCause::Status(429), "x");
            request_error.retry_after = retry_after.map(seconds);
            SyncError::Upstream { doing: String::new(), call: ApiCall::PollExport, request_error }
        };
        let missing = || SyncError::Missing {
            path: "b".into(),
            key: BUNDLE_URL_KEY,
            source: std::io::ErrorKind::NotFound.into(),
        };
        let folder = || SyncError::IsFolder { path: "b".into(), key: BUNDLE_URL_KEY };
        let changing = || SyncError::Changing { path: "b".into(), source: Box::new(missing()) };
        let cases = [
            (SyncError::StillRefused(String::new()), 3, 0.0, interval),
            // For a missing file the wait has no random part and ends at the next check at the latest.
            (missing(), 1, 0.0, seconds(5)),
            (folder(), 2, 0.0, seconds(10)),
            (changing(), 3, 0.0, seconds(20)),
            (missing(), 9, 0.0, interval),
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
            let wait = wait_after(&error, failures, interval, || random);
            assert!(wait.abs_diff(expected) < Duration::from_millis(1), "{error:?} {failures} {random}: {wait:?}");
        }
    }
}
