//! Decides what a sync does next. It is pure, from configuration, record and the current time, so that every case can
//! be tested.

use std::collections::BTreeMap;

use crate::store::record::{BundleCheck, JobRecord, ProbeBackOff, ProbeResult, SourceEvent, StoreRecord};
use docwharf_base::model::units::parse_time;
use docwharf_base::model::version::VersionId;
use docwharf_base::net::request_error::MAX_RETRY_AFTER;

/// The trigger of a sync. The variants are ordered: a later one asks for more than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncTrigger {
    /// The configuration has changed.
    Changed,
    /// The daemon has started.
    Start,
    /// The interval has passed, a watched file has changed, or a failure is retried.
    Interval,
    /// SIGHUP, or a hook.
    Hook,
    /// `docwharf sync`.
    Asked,
    /// `docwharf sync --refresh`: the source is checked even if the pinned label is stored.
    Refresh,
}

impl SyncTrigger {
    /// Whether a person has typed the command: a hold does not keep a person from fetching.
    fn is_person(self) -> bool {
        matches!(self, SyncTrigger::Asked | SyncTrigger::Refresh)
    }

    /// Whether the current content is wanted, whatever the probes say.
    pub fn wants_now(self) -> bool {
        self.is_person() || self == SyncTrigger::Hook
    }
}

/// The state of the bundle's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleFileState {
    /// Name of the source, as in receipts.
    pub source: String,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, in nanoseconds since 1970.
    pub modified: i64,
}

/// The part of the configuration that these decisions need.
#[derive(Debug, Clone, Copy)]
pub struct PlanInput<'a> {
    /// `staticExport.enabled`
    pub enabled: bool,
    /// Name of the bundle, if one is configured.
    pub bundle: Option<&'a str>,
    /// Name of the API, if one is configured.
    pub api: Option<&'a str>,
    /// `staticExport.version`
    pub pin: Option<&'a str>,
    /// `staticExport.sha256`, in hex.
    pub sha256: Option<&'a str>,
}

/// The first decision of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDecision {
    /// Syncing is disabled, or no source is configured.
    Disabled,
    /// The pinned version is stored: make sure that it is active, and send the source no request.
    Settle,
    /// Check the source.
    Look,
}

/// Decides whether the source has to be checked. `has` says which versions are stored.
pub fn decide_source_check(
    record: &StoreRecord,
    wish: &PlanInput<'_>,
    trigger: SyncTrigger,
    has: impl Fn(VersionId) -> bool,
) -> SourceDecision {
    if !wish.enabled || (wish.bundle.is_none() && wish.api.is_none()) {
        return SourceDecision::Disabled;
    }
    if trigger == SyncTrigger::Refresh {
        return SourceDecision::Look;
    }
    let satisfied = wish.pin.and_then(|pin| record.labels.get(pin)).is_some_and(|labelled| {
        [wish.bundle, wish.api].contains(&Some(labelled.source.as_str()))
            && wish.sha256.is_none_or(|sha256| labelled.sha256.as_deref() == Some(sha256))
            && has(labelled.version)
    });
    if satisfied { SourceDecision::Settle } else { SourceDecision::Look }
}

/// The decision about a bundle's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileDecision {
    /// The file is the one that was accepted before, with this version.
    Known(VersionId),
    /// The file is the one that was refused before.
    StillRefused,
    /// The file may be the same: its digest decides.
    Digest,
}

/// Decides by size and time whether the file is the one that was checked last.
pub fn decide_file(
    record: &StoreRecord,
    wish: &PlanInput<'_>,
    trigger: SyncTrigger,
    seen: &BundleFileState,
    has: impl Fn(VersionId) -> bool,
) -> FileDecision {
    let Some(looked) = record.looked.as_ref().filter(|looked| same_question(looked, wish, &seen.source)) else {
        return FileDecision::Digest;
    };
    if looked.validator.is_some()
        || looked.size != seen.size
        || looked.modified != seen.modified
        || trigger == SyncTrigger::Refresh
    {
        return FileDecision::Digest;
    }
    match looked.version {
        Some(id) if has(id) => FileDecision::Known(id),
        Some(_) => FileDecision::Digest,
        // The user may have changed the cause of the refusal, such as a limit.
        None if trigger.wants_now() => FileDecision::Digest,
        None => FileDecision::StillRefused,
    }
}

/// The decision about export jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportDecision {
    /// Continue with the running job.
    Adopt(JobRecord),
    /// Wait until the running job has ended, discard it, and start another.
    AfterThis(JobRecord),
    /// Start a job.
    Start,
    /// Read the probes; start a job if one has changed.
    Probe,
    /// Send the API no request, for this reason.
    Nothing(&'static str),
    /// Send the API no request for this many seconds more: a job was started a short while ago.
    TooEarly(i64),
}

/// Timing of export jobs; durations in seconds.
#[derive(Debug, Clone, Copy)]
pub struct ExportTiming {
    /// Whether each check of the source starts a job.
    pub each_look: bool,
    /// Time without a success after which a job is started whatever the probes say.
    pub max_age: i64,
    /// Age at which a job is given up.
    pub job_timeout: i64,
    /// Time after the start of a job in which a start of the daemon, or a changed configuration, starts no other one.
    pub quiet: i64,
}

/// Decides about export jobs. `now` is in seconds since 1970.
pub fn decide_export(
    record: &StoreRecord,
    wish: &PlanInput<'_>,
    pace: &ExportTiming,
    trigger: SyncTrigger,
    now: i64,
) -> ExportDecision {
    let Some(source) = wish.api else { return ExportDecision::Nothing("there is no API") };
    let ours = record.job.as_ref().filter(|job| job.source == source && !is_over(job, pace, now));
    if let Some(job) = ours {
        let same = job.pin.as_deref() == wish.pin;
        let may_start = record.hold.is_none() || trigger.is_person();
        return match (same, may_start) {
            (true, _) if !trigger.wants_now() || !may_start => ExportDecision::Adopt(job.clone()),
            (false, false) => ExportDecision::Nothing("held: no export job is started"),
            _ => ExportDecision::AfterThis(job.clone()),
        };
    }
    if record.hold.is_some() && !trigger.is_person() {
        return ExportDecision::Nothing("held: no export job is started");
    }
    let since = |event: Option<&SourceEvent>| {
        event.filter(|event| event.source == source && event.pin.as_deref() == wish.pin).and_then(|e| age(&e.time, now))
    };
    let early = since(record.last_start.as_ref())
        .filter(|&age| matches!(trigger, SyncTrigger::Start | SyncTrigger::Changed) && age < pace.quiet)
        .map(|age| pace.quiet - age);
    let stale = since(record.last_success.as_ref()).is_none_or(|age| age >= pace.max_age);
    if trigger.wants_now() {
        return ExportDecision::Start;
    }
    if let Some(more) = early {
        return ExportDecision::TooEarly(more);
    }
    match (pace.each_look, trigger) {
        (false, _) => ExportDecision::Probe,
        (true, SyncTrigger::Changed) if !stale => ExportDecision::Nothing("the next export is due at its time"),
        (true, _) => ExportDecision::Start,
    }
}

/// Whether a changed probe or the age of the last success calls for a job. `said` has no probe that could not be read;
/// a new probe counts as changed.
pub fn calls_for_job(
    record: &StoreRecord,
    wish: &PlanInput<'_>,
    pace: &ExportTiming,
    said: &BTreeMap<String, ProbeResult>,
    now: i64,
) -> bool {
    let success = record
        .last_success
        .as_ref()
        .filter(|success| Some(success.source.as_str()) == wish.api && success.pin.as_deref() == wish.pin);
    let stale = success.and_then(|success| age(&success.time, now)).is_none_or(|age| age >= pace.max_age);
    let before = record.probed.as_ref().filter(|probed| Some(probed.source.as_str()) == wish.api);
    let changed = said.iter().any(|(url, probe)| {
        before.and_then(|before| before.probes.get(url)).is_none_or(|known| known.sha256 != probe.sha256)
    });
    stale || changed
}

/// Whether a job has exceeded its timeout.
pub fn is_over(job: &JobRecord, pace: &ExportTiming, now: i64) -> bool {
    job_age(job, now) >= pace.job_timeout
}

/// Seconds since a job was started; 0 if the clock has been set back since: two jobs at once are worse than a long
/// wait.
pub fn job_age(job: &JobRecord, now: i64) -> i64 {
    parse_time(&job.started).map_or(i64::MAX, |started| (now - started).max(0))
}

/// Whether a server's back-off is still in force. One that begins in the future was recorded under another clock and is
/// ignored: one request too many is better than none ever again.
pub fn is_busy(busy: &ProbeBackOff, now: i64) -> bool {
    age(&busy.since, now).is_some_and(|age| age.max(0).unsigned_abs() < busy.wait.min(MAX_RETRY_AFTER.as_secs()))
}

/// Seconds from `time` to `now`; none if `time` cannot be parsed or is in the future by more than a second.
fn age(time: &str, now: i64) -> Option<i64> {
    parse_time(time).map(|time| now - time).filter(|&age| age >= -1)
}

/// Whether the last check was of this source, with this label and this demanded digest.
pub fn same_question(looked: &BundleCheck, wish: &PlanInput<'_>, source: &str) -> bool {
    looked.source == source && looked.label.as_deref() == wish.pin && looked.demanded.as_deref() == wish.sha256
}

#[cfg(test)]
mod tests;
