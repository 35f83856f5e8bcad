//! Decides what a sync does next. A pure function of configuration, record, trigger and the current time, so that every
//! case can be tested.

use std::collections::BTreeMap;

use crate::store::record::{BundleCheck, JobRecord, ProbeBackOff, ProbeResult, SourceEvent, StoreRecord};
use docwharf_base::model::units::parse_time;
use docwharf_base::model::version::VersionId;
use docwharf_base::net::request_error::MAX_RETRY_AFTER;

/// The trigger of a sync. The variants are ordered: a later one is stronger than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SyncTrigger {
    /// The configuration, the API key, a CA certificate or the redirects file has changed, or a hold has ended.
    Changed,
    /// The daemon has started.
    Start,
    /// A regular check is due, the watched bundle has changed, a failure is retried, or a stored version is damaged.
    RegularCheck,
    /// The configuration, the API key, a CA certificate or the redirects file has changed after a failure, whose cause
    /// this may correct.
    Corrected,
    /// The daemon has received SIGHUP.
    Signal,
    /// `docwharf sync`.
    Command,
    /// `docwharf sync --refresh`: the source is checked even if the pinned label is stored, and its version becomes the
    /// newest even if an import is newer.
    Refresh,
}

impl SyncTrigger {
    /// Whether a command has started the sync: a hold does not prevent a person from fetching.
    fn is_command(self) -> bool {
        matches!(self, SyncTrigger::Command | SyncTrigger::Refresh)
    }

    /// Whether the current content is requested explicitly, independent of probes.
    pub fn is_explicit_request(self) -> bool {
        self.is_command() || self == SyncTrigger::Signal
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

/// The configured sources and the demands on a bundle, as texts that can be compared with those in the record.
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
    /// Check no source: syncing is disabled (`PlanInput::enabled` is false), or no source is configured.
    DoNotCheck,
    /// The pinned version is stored: activate it if necessary, and send the source no request.
    ActivateOnly,
    /// Check the source.
    CheckSource,
}

/// Decides whether the source has to be checked. `has_undamaged` returns whether a version is stored
/// and not marked as damaged.
pub fn decide_source_check(
    record: &StoreRecord,
    input: &PlanInput<'_>,
    trigger: SyncTrigger,
    has_undamaged: impl Fn(VersionId) -> bool,
) -> SourceDecision {
    if !input.enabled || (input.bundle.is_none() && input.api.is_none()) {
        return SourceDecision::DoNotCheck;
    }
    if trigger == SyncTrigger::Refresh {
        return SourceDecision::CheckSource;
    }
    let is_satisfied = input.pin.and_then(|pin| record.labels.get(pin)).is_some_and(|labelled| {
        [input.bundle, input.api].contains(&Some(labelled.source.as_str()))
            && input.sha256.is_none_or(|sha256| labelled.sha256.as_deref() == Some(sha256))
            && has_undamaged(labelled.version)
    });
    if is_satisfied { SourceDecision::ActivateOnly } else { SourceDecision::CheckSource }
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
    input: &PlanInput<'_>,
    trigger: SyncTrigger,
    state: &BundleFileState,
    has_undamaged: impl Fn(VersionId) -> bool,
) -> FileDecision {
    let Some(last_check) =
        record.last_checked_bundle.as_ref().filter(|check| is_same_check(check, input, &state.source))
    else {
        return FileDecision::Digest;
    };
    // A check with a validator was of a download, for which no modification time is recorded.
    if last_check.validator.is_some()
        || last_check.size != state.size
        || last_check.modified != state.modified
        || trigger == SyncTrigger::Refresh
    {
        return FileDecision::Digest;
    }
    match last_check.version {
        Some(id) if has_undamaged(id) => FileDecision::Known(id),
        Some(_) => FileDecision::Digest,
        // The user may have changed the cause of the refusal, such as a limit.
        None if trigger.is_explicit_request() || trigger == SyncTrigger::Corrected => FileDecision::Digest,
        None => FileDecision::StillRefused,
    }
}

/// The decision about export jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportDecision {
    /// Continue with the running job.
    ContinueJob(JobRecord),
    /// Wait until the running job has ended, discard its result, and start another.
    StartAfter(JobRecord),
    /// Start a job.
    Start,
    /// Read the probes; start a job if one has changed.
    Probe,
    /// Send the API no request, for this reason.
    Nothing(&'static str),
    /// Send the API no request for this number of seconds: a job was started a short time ago.
    TooEarly(i64),
}

/// Timing of export jobs; durations in seconds.
#[derive(Debug, Clone, Copy)]
pub struct ExportTiming {
    /// Whether each check of the source starts a job.
    pub exports_at_each_check: bool,
    /// Time without a success after which a job is started even if no probe has changed.
    pub max_age: i64,
    /// Age at which a job is given up.
    pub job_timeout: i64,
    /// Time after the start of a job during which a restart of the daemon, or a changed configuration, starts no other.
    pub restart_delay: i64,
}

/// Decides about export jobs. `now` is in seconds since 1970.
pub fn decide_export(
    record: &StoreRecord,
    input: &PlanInput<'_>,
    timing: &ExportTiming,
    trigger: SyncTrigger,
    now: i64,
) -> ExportDecision {
    let Some(source) = input.api else { return ExportDecision::Nothing("there is no API") };
    let running = record.job.as_ref().filter(|job| job.source == source && !is_expired(job, timing, now));
    if let Some(job) = running {
        let is_same_pin = job.pin.as_deref() == input.pin;
        let may_start = record.hold.is_none() || trigger.is_command();
        return match (is_same_pin, may_start) {
            (true, _) if !trigger.is_explicit_request() || !may_start => ExportDecision::ContinueJob(job.clone()),
            (false, false) => ExportDecision::Nothing("held: no export job is started"),
            _ => ExportDecision::StartAfter(job.clone()),
        };
    }
    if record.hold.is_some() && !trigger.is_command() {
        return ExportDecision::Nothing("held: no export job is started");
    }
    let age_of = |event: Option<&SourceEvent>| {
        event
            .filter(|event| event.source == source && event.pin.as_deref() == input.pin)
            .and_then(|e| age(&e.time, now))
    };
    let remaining_delay = age_of(record.last_start.as_ref())
        .filter(|&age| matches!(trigger, SyncTrigger::Start | SyncTrigger::Changed) && age < timing.restart_delay)
        .map(|age| timing.restart_delay - age);
    let is_stale = age_of(record.last_export_success.as_ref()).is_none_or(|age| age >= timing.max_age);
    if trigger.is_explicit_request() {
        return ExportDecision::Start;
    }
    // The bundle of the last export was refused, and the cause may be corrected.
    let is_refused =
        record.last_checked_bundle.as_ref().is_some_and(|check| check.source == source && check.version.is_none());
    if trigger == SyncTrigger::Corrected && is_refused {
        return ExportDecision::Start;
    }
    if let Some(seconds) = remaining_delay {
        return ExportDecision::TooEarly(seconds);
    }
    match (timing.exports_at_each_check, trigger) {
        (false, _) => ExportDecision::Probe,
        (true, SyncTrigger::Changed) if !is_stale => ExportDecision::Nothing("the next export is due at its time"),
        (true, _) => ExportDecision::Start,
    }
}

/// Whether a changed probe or the age of the last success requires an export job. `probes` has only the probes that
/// could be read; a new probe counts as changed.
pub fn needs_export_job(
    record: &StoreRecord,
    input: &PlanInput<'_>,
    timing: &ExportTiming,
    probes: &BTreeMap<String, ProbeResult>,
    now: i64,
) -> bool {
    let success = record
        .last_export_success
        .as_ref()
        .filter(|success| Some(success.source.as_str()) == input.api && success.pin.as_deref() == input.pin);
    let is_stale = success.and_then(|success| age(&success.time, now)).is_none_or(|age| age >= timing.max_age);
    let before = record.probed.as_ref().filter(|probed| Some(probed.source.as_str()) == input.api);
    let is_changed = probes.iter().any(|(url, probe)| {
        before.and_then(|before| before.probes.get(url)).is_none_or(|known| known.sha256 != probe.sha256)
    });
    is_stale || is_changed
}

/// Whether a job has exceeded its timeout.
pub fn is_expired(job: &JobRecord, timing: &ExportTiming, now: i64) -> bool {
    job_age(job, now) >= timing.job_timeout
}

/// Returns the seconds since a job was started; 0 if the clock has been set back since: two jobs at once are worse than
/// a long wait.
pub fn job_age(job: &JobRecord, now: i64) -> i64 {
    parse_time(&job.started).map_or(i64::MAX, |started| (now - started).max(0))
}

/// Whether a server's back-off is still in force. A back-off that begins in the future was recorded before the clock
/// was set back. It is ignored: one request too many is better than no request for a long time. Both times are cut to
/// whole seconds, so the back-off ends only when the age is above the wait.
pub fn is_backing_off(back_off: &ProbeBackOff, now: i64) -> bool {
    age(&back_off.since, now)
        .is_some_and(|age| age.max(0).unsigned_abs() <= back_off.wait.min(MAX_RETRY_AFTER.as_secs()))
}

/// Returns the seconds from `time` to `now`; none if `time` cannot be parsed or is in the future by more than a second.
fn age(time: &str, now: i64) -> Option<i64> {
    parse_time(time).map(|time| now - time).filter(|&age| age >= -1)
}

/// Whether the last check was of this source, with this label and this demanded digest.
pub fn is_same_check(check: &BundleCheck, input: &PlanInput<'_>, source: &str) -> bool {
    check.source == source && check.pin.as_deref() == input.pin && check.demanded.as_deref() == input.sha256
}

#[cfg(test)]
mod tests;
