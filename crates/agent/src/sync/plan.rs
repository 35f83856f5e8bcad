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
mod tests {
    use super::*;
    use crate::store::record::LabelledVersion;
    use docwharf_base::model::digest::Digest;

    const WISH: PlanInput<'_> = PlanInput { enabled: true, bundle: Some("/b.zip"), api: None, pin: None, sha256: None };

    fn id() -> VersionId {
        VersionId(Digest::of(b"x"))
    }

    fn looked(version: Option<VersionId>) -> StoreRecord {
        StoreRecord {
            looked: Some(BundleCheck {
                source: "/b.zip".into(),
                label: None,
                demanded: None,
                size: 5,
                modified: 7,
                validator: None,
                sha256: None,
                version,
                refusal: None,
            }),
            ..StoreRecord::default()
        }
    }

    fn labelled(source: &str) -> StoreRecord {
        let mut record = StoreRecord::default();
        let label =
            LabelledVersion { version: id(), source: source.into(), sha256: Some("aa".into()), time: String::new() };
        record.labels.insert("L".into(), label);
        record
    }

    #[test]
    fn disabled_or_without_a_source_nothing_is_looked_at() {
        let record = StoreRecord::default();
        for wish in [PlanInput { enabled: false, ..WISH }, PlanInput { bundle: None, ..WISH }] {
            assert_eq!(decide_source_check(&record, &wish, SyncTrigger::Refresh, |_| true), SourceDecision::Disabled);
        }
    }

    #[test]
    fn a_satisfied_pin_is_left_alone_until_source_digest_or_a_person_say_otherwise() {
        let pinned = PlanInput { pin: Some("L"), ..WISH };
        let record = labelled("/b.zip");
        assert_eq!(decide_source_check(&record, &pinned, SyncTrigger::Asked, |_| true), SourceDecision::Settle);
        assert_eq!(decide_source_check(&record, &pinned, SyncTrigger::Refresh, |_| true), SourceDecision::Look);
        assert_eq!(decide_source_check(&record, &pinned, SyncTrigger::Asked, |_| false), SourceDecision::Look);
        assert_eq!(
            decide_source_check(&record, &PlanInput { sha256: Some("aa"), ..pinned }, SyncTrigger::Asked, |_| true),
            SourceDecision::Settle
        );
        assert_eq!(
            decide_source_check(&record, &PlanInput { sha256: Some("bb"), ..pinned }, SyncTrigger::Asked, |_| true),
            SourceDecision::Look
        );
        assert_eq!(
            decide_source_check(&labelled("/other.zip"), &pinned, SyncTrigger::Start, |_| true),
            SourceDecision::Look
        );
        assert_eq!(
            decide_source_check(&StoreRecord::default(), &pinned, SyncTrigger::Start, |_| true),
            SourceDecision::Look
        );
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let seen = BundleFileState { source: "/b.zip".into(), size: 5, modified: 7 };
        let accepted = looked(Some(id()));
        assert_eq!(decide_file(&accepted, &WISH, SyncTrigger::Interval, &seen, |_| true), FileDecision::Known(id()));
        assert_eq!(decide_file(&accepted, &WISH, SyncTrigger::Interval, &seen, |_| false), FileDecision::Digest);
        assert_eq!(
            decide_file(&accepted, &WISH, SyncTrigger::Interval, &BundleFileState { size: 6, ..seen.clone() }, |_| {
                true
            }),
            FileDecision::Digest
        );
        assert_eq!(
            decide_file(
                &accepted,
                &WISH,
                SyncTrigger::Interval,
                &BundleFileState { modified: 8, ..seen.clone() },
                |_| true
            ),
            FileDecision::Digest
        );
        assert_eq!(
            decide_file(&accepted, &PlanInput { sha256: Some("aa"), ..WISH }, SyncTrigger::Interval, &seen, |_| true),
            FileDecision::Digest
        );
        let refused = looked(None);
        assert_eq!(decide_file(&refused, &WISH, SyncTrigger::Interval, &seen, |_| true), FileDecision::StillRefused);
        assert_eq!(decide_file(&refused, &WISH, SyncTrigger::Asked, &seen, |_| true), FileDecision::Digest);
    }

    const API: PlanInput<'_> = PlanInput { enabled: true, bundle: None, api: Some("api"), pin: None, sha256: None };
    const PACE: ExportTiming = ExportTiming { each_look: false, max_age: 86_400, job_timeout: 1800, quiet: 600 };
    /// 2026-11-20T12:00:00Z
    const NOON: i64 = 1_795_176_000;

    fn at(time: &str) -> SourceEvent {
        SourceEvent { source: "api".into(), pin: None, time: format!("2026-11-20T{time}Z") }
    }

    fn with_job(started: &str, pin: Option<&str>) -> StoreRecord {
        let started = format!("2026-11-20T{started}Z");
        let pin = pin.map(str::to_owned);
        let job = JobRecord { id: "j".into(), source: "api".into(), pin, started, probes: BTreeMap::new() };
        StoreRecord { job: Some(job), ..StoreRecord::default() }
    }

    fn hold(record: StoreRecord) -> StoreRecord {
        let hold = crate::store::record::ActivationHold { who: "me".into(), when: String::new(), why: String::new() };
        StoreRecord { hold: Some(hold), ..record }
    }

    #[test]
    fn a_job_of_ours_is_adopted_and_none_is_started_beside_it() {
        let record = with_job("11:50:00", None);
        for trigger in [SyncTrigger::Start, SyncTrigger::Interval, SyncTrigger::Changed] {
            assert!(
                matches!(decide_export(&record, &API, &PACE, trigger, NOON), ExportDecision::Adopt(_)),
                "{trigger:?}"
            );
        }
        for trigger in [SyncTrigger::Asked, SyncTrigger::Refresh, SyncTrigger::Hook] {
            assert!(
                matches!(decide_export(&record, &API, &PACE, trigger, NOON), ExportDecision::AfterThis(_)),
                "{trigger:?}"
            );
        }
        let other_pin = with_job("11:50:00", Some("L"));
        assert!(matches!(
            decide_export(&other_pin, &API, &PACE, SyncTrigger::Interval, NOON),
            ExportDecision::AfterThis(_)
        ));
        let other_source = PlanInput { api: Some("other"), ..API };
        assert_eq!(decide_export(&record, &other_source, &PACE, SyncTrigger::Interval, NOON), ExportDecision::Probe);
        assert_eq!(
            decide_export(&with_job("11:29:00", None), &API, &PACE, SyncTrigger::Interval, NOON),
            ExportDecision::Probe,
            "over"
        );
        // The clock was set back since its start.
        assert!(matches!(
            decide_export(&record, &API, &PACE, SyncTrigger::Interval, NOON - 86_400),
            ExportDecision::Adopt(_)
        ));
    }

    #[test]
    fn a_start_of_the_daemon_leaves_the_api_alone_for_a_while_and_a_person_does_not() {
        let recent = StoreRecord { last_start: Some(at("11:55:00")), ..StoreRecord::default() };
        assert_eq!(decide_export(&recent, &API, &PACE, SyncTrigger::Start, NOON), ExportDecision::TooEarly(300));
        assert_eq!(decide_export(&recent, &API, &PACE, SyncTrigger::Interval, NOON), ExportDecision::Probe);
        assert_eq!(decide_export(&recent, &API, &PACE, SyncTrigger::Asked, NOON), ExportDecision::Start);
        assert_eq!(
            decide_export(&recent, &PlanInput { pin: Some("L"), ..API }, &PACE, SyncTrigger::Start, NOON),
            ExportDecision::Probe
        );
        assert_eq!(
            decide_export(&recent, &PlanInput { api: Some("other"), ..API }, &PACE, SyncTrigger::Start, NOON),
            ExportDecision::Probe
        );
        let each = ExportTiming { each_look: true, ..PACE };
        assert_eq!(decide_export(&recent, &API, &each, SyncTrigger::Interval, NOON), ExportDecision::Start);
        // A clock that was set back does not suppress jobs for ever.
        assert_eq!(decide_export(&recent, &API, &PACE, SyncTrigger::Start, NOON - 86_400), ExportDecision::Probe);
    }

    #[test]
    fn while_held_only_a_person_starts_jobs() {
        let held = hold(StoreRecord::default());
        for trigger in [SyncTrigger::Start, SyncTrigger::Interval, SyncTrigger::Changed, SyncTrigger::Hook] {
            assert!(
                matches!(decide_export(&held, &API, &PACE, trigger, NOON), ExportDecision::Nothing(_)),
                "{trigger:?}"
            );
        }
        assert_eq!(decide_export(&held, &API, &PACE, SyncTrigger::Asked, NOON), ExportDecision::Start);
        let with_job = hold(with_job("11:50:00", None));
        assert!(matches!(decide_export(&with_job, &API, &PACE, SyncTrigger::Hook, NOON), ExportDecision::Adopt(_)));
        let new_pin = PlanInput { pin: Some("L"), ..API };
        assert!(matches!(
            decide_export(&with_job, &new_pin, &PACE, SyncTrigger::Start, NOON),
            ExportDecision::Nothing(_)
        ));
        assert!(matches!(
            decide_export(&with_job, &new_pin, &PACE, SyncTrigger::Asked, NOON),
            ExportDecision::AfterThis(_)
        ));
    }

    #[test]
    fn a_changed_probe_or_no_success_for_long_calls_for_a_job() {
        let probe = |sha256: &str| ProbeResult { sha256: sha256.into(), etag: None, last_modified: None };
        let said = |sha256: &str| BTreeMap::from([("u".to_owned(), probe(sha256))]);
        let probed = crate::store::record::SourceProbes { source: "api".into(), probes: said("1") };
        let record = StoreRecord { last_success: Some(at("11:00:00")), probed: Some(probed), ..StoreRecord::default() };
        let calls = |record: &StoreRecord, said, now| calls_for_job(record, &API, &PACE, &said, now);
        assert!(!calls(&record, said("1"), NOON));
        assert!(calls(&record, said("2"), NOON));
        assert!(!calls(&record, BTreeMap::new(), NOON), "unreadable probes are no change");
        assert!(calls(&record, said("1"), NOON + 86_400));
        assert!(calls(&StoreRecord::default(), said("1"), NOON), "never a success");
        let of_another_pin = SourceEvent { pin: Some("L".into()), ..at("11:00:00") };
        assert!(calls(&StoreRecord { last_success: Some(of_another_pin), ..record.clone() }, said("1"), NOON));
        let of_another_source = SourceEvent { source: "other".into(), ..at("11:00:00") };
        assert!(calls(&StoreRecord { last_success: Some(of_another_source), ..record.clone() }, said("1"), NOON));
        assert!(calls(&StoreRecord { probed: None, ..record }, said("1"), NOON), "never probed");
    }

    #[test]
    fn a_server_is_left_alone_for_as_long_as_it_asks_unless_the_clock_was_put_back() {
        let busy = ProbeBackOff { since: "2026-11-20T11:50:00Z".into(), wait: 601 };
        assert!(is_busy(&busy, NOON));
        assert!(!is_busy(&busy, NOON + 1));
        assert!(!is_busy(&busy, NOON - 86_400));
        let for_ever = ProbeBackOff { wait: u64::MAX, ..busy };
        assert!(!is_busy(&for_ever, NOON + 8 * 86_400));
    }

    #[test]
    fn a_label_satisfies_the_pin_whichever_of_the_two_sources_it_came_from() {
        let both = PlanInput { api: Some("api"), pin: Some("L"), ..WISH };
        for (wish, source, expected) in [
            (both, "/b.zip", SourceDecision::Settle),
            (both, "api", SourceDecision::Settle),
            (both, "other", SourceDecision::Look),
            (PlanInput { bundle: None, ..both }, "api", SourceDecision::Settle),
            (PlanInput { bundle: None, ..both }, "/b.zip", SourceDecision::Look),
            (PlanInput { api: None, ..both }, "api", SourceDecision::Look),
            (PlanInput { pin: Some("M"), ..both }, "api", SourceDecision::Look),
            (PlanInput { pin: None, ..both }, "api", SourceDecision::Look),
            (PlanInput { enabled: false, ..both }, "api", SourceDecision::Disabled),
            (PlanInput { bundle: None, api: None, ..both }, "api", SourceDecision::Disabled),
        ] {
            assert_eq!(
                decide_source_check(&labelled(source), &wish, SyncTrigger::Asked, |_| true),
                expected,
                "{wish:?} {source}"
            );
        }
    }

    #[test]
    fn what_was_looked_at_through_a_link_or_under_another_label_says_nothing_of_a_file() {
        let seen = BundleFileState { source: "/b.zip".into(), size: 5, modified: 7 };
        let checked = |wish: &PlanInput<'_>, trigger, change: &dyn Fn(&mut BundleCheck)| {
            let mut record = looked(Some(id()));
            change(record.looked.as_mut().unwrap());
            decide_file(&record, wish, trigger, &seen, |_| true)
        };
        let known = FileDecision::Known(id());
        for trigger in
            [SyncTrigger::Changed, SyncTrigger::Start, SyncTrigger::Interval, SyncTrigger::Hook, SyncTrigger::Asked]
        {
            assert_eq!(checked(&WISH, trigger, &|_| ()), known, "{trigger:?}");
        }
        assert_eq!(checked(&WISH, SyncTrigger::Refresh, &|_| ()), FileDecision::Digest);
        assert_eq!(
            checked(&WISH, SyncTrigger::Start, &|looked| looked.validator = Some("v".into())),
            FileDecision::Digest
        );
        assert_eq!(checked(&WISH, SyncTrigger::Start, &|looked| looked.source = "/c.zip".into()), FileDecision::Digest);
        assert_eq!(checked(&WISH, SyncTrigger::Start, &|looked| looked.label = Some("L".into())), FileDecision::Digest);
        let pinned = PlanInput { pin: Some("L"), ..WISH };
        assert_eq!(checked(&pinned, SyncTrigger::Start, &|_| ()), FileDecision::Digest);
        assert_eq!(checked(&pinned, SyncTrigger::Start, &|looked| looked.label = Some("L".into())), known);
        let demanding = PlanInput { sha256: Some("aa"), ..WISH };
        assert_eq!(checked(&demanding, SyncTrigger::Start, &|looked| looked.demanded = Some("aa".into())), known);
        assert_eq!(
            checked(&demanding, SyncTrigger::Start, &|looked| looked.demanded = Some("bb".into())),
            FileDecision::Digest
        );
        assert_eq!(
            decide_file(&StoreRecord::default(), &WISH, SyncTrigger::Start, &seen, |_| true),
            FileDecision::Digest
        );
        for (trigger, expected) in [
            (SyncTrigger::Changed, FileDecision::StillRefused),
            (SyncTrigger::Start, FileDecision::StillRefused),
            (SyncTrigger::Hook, FileDecision::Digest),
            (SyncTrigger::Refresh, FileDecision::Digest),
        ] {
            assert_eq!(decide_file(&looked(None), &WISH, trigger, &seen, |_| true), expected, "{trigger:?}");
        }
    }

    #[test]
    fn each_span_ends_at_its_second() {
        let job = |started: &str| with_job(started, None).job.unwrap();
        // Half an hour.
        assert!(is_over(&job("11:30:00"), &PACE, NOON) && !is_over(&job("11:30:01"), &PACE, NOON));
        assert_eq!((job_age(&job("11:30:00"), NOON), job_age(&job("12:00:01"), NOON)), (1800, 0));
        assert_eq!(job_age(&JobRecord { started: "soon".into(), ..job("11:30:00") }, NOON), i64::MAX);
        let started = |time: &str| StoreRecord { last_start: Some(at(time)), ..StoreRecord::default() };
        for (time, expected) in [
            ("11:50:00", ExportDecision::Probe),
            ("11:50:01", ExportDecision::TooEarly(1)),
            ("12:00:00", ExportDecision::TooEarly(600)),
            // Clocks of two machines may differ by a second; a larger difference means that a clock was set back.
            ("12:00:01", ExportDecision::TooEarly(601)),
            ("12:00:02", ExportDecision::Probe),
        ] {
            for trigger in [SyncTrigger::Start, SyncTrigger::Changed] {
                assert_eq!(decide_export(&started(time), &API, &PACE, trigger, NOON), expected, "{time} {trigger:?}");
            }
        }
        let each = ExportTiming { each_look: true, ..PACE };
        let succeeded = |time: &str| StoreRecord { last_success: Some(at(time)), ..StoreRecord::default() };
        let due = ExportDecision::Nothing("the next export is due at its time");
        for (record, now, expected) in [
            (succeeded("12:00:00"), NOON + 86_399, due.clone()),
            (succeeded("12:00:00"), NOON + 86_400, ExportDecision::Start),
            (StoreRecord::default(), NOON, ExportDecision::Start),
        ] {
            assert_eq!(decide_export(&record, &API, &each, SyncTrigger::Changed, now), expected);
            assert_eq!(decide_export(&record, &API, &each, SyncTrigger::Start, now), ExportDecision::Start);
        }
        let calls = |now| calls_for_job(&succeeded("12:00:00"), &API, &PACE, &BTreeMap::new(), now);
        assert_eq!([NOON, NOON + 86_399, NOON + 86_400].map(calls), [false, false, true]);
        assert!(calls(NOON - 2), "a success in the future is none");
        assert!(matches!(
            decide_export(&StoreRecord::default(), &WISH, &PACE, SyncTrigger::Asked, NOON),
            ExportDecision::Nothing(_)
        ));
    }

    #[test]
    fn a_probe_that_is_new_or_was_of_another_source_is_a_change() {
        let probe = |sha256: &str| ProbeResult { sha256: sha256.into(), etag: None, last_modified: None };
        let said = |all: &[(&str, &str)]| -> BTreeMap<String, ProbeResult> {
            all.iter().map(|&(url, sha256)| (url.to_owned(), probe(sha256))).collect()
        };
        let record = |source: &str| StoreRecord {
            last_success: Some(at("11:00:00")),
            probed: Some(crate::store::record::SourceProbes {
                source: source.into(),
                probes: said(&[("u", "1"), ("v", "1")]),
            }),
            ..StoreRecord::default()
        };
        let calls = |source: &str, all: &[(&str, &str)]| calls_for_job(&record(source), &API, &PACE, &said(all), NOON);
        assert!(!calls("api", &[("u", "1")]) && !calls("api", &[("u", "1"), ("v", "1")]));
        assert!(calls("api", &[("u", "1"), ("v", "2")]) && calls("api", &[("u", "1"), ("w", "1")]));
        assert!(calls("other", &[("u", "1")]) && !calls("other", &[]));
    }
}
