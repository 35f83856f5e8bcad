//! Decides what a sync does next. It is pure, from configuration, record and the current time, so that every case can
//! be tested.

use std::collections::BTreeMap;

use docwharf_base::model::units::parse_time;
use docwharf_base::model::version::VersionId;
use docwharf_base::net::trouble::LONGEST;
use crate::store::record::{Busy, JobRecord, Looked, Probe, Record, Success};

/// The trigger of a sync. The variants are ordered: a later one asks for more than an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Trigger {
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

impl Trigger {
    /// Whether a person has typed the command: a hold does not keep a person from fetching.
    fn is_person(self) -> bool {
        matches!(self, Trigger::Asked | Trigger::Refresh)
    }

    /// Whether the current content is wanted, whatever the probes say.
    pub fn wants_now(self) -> bool {
        self.is_person() || self == Trigger::Hook
    }
}

/// The state of the bundle's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Name of the source, as in receipts.
    pub source: String,
    /// Size in bytes.
    pub size: u64,
    /// Modification time, in nanoseconds since 1970.
    pub modified: i64,
}

/// The part of the configuration that these decisions need.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
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
pub enum First {
    /// Syncing is disabled, or no source is configured.
    Disabled,
    /// The pinned version is stored: make sure that it is active, and send the source no request.
    Settle,
    /// Check the source.
    Look,
}

/// Decides whether the source has to be checked. `has` says which versions are stored.
pub fn first(record: &Record, wish: &Wish<'_>, trigger: Trigger, has: impl Fn(VersionId) -> bool) -> First {
    if !wish.enabled || (wish.bundle.is_none() && wish.api.is_none()) {
        return First::Disabled;
    }
    if trigger == Trigger::Refresh {
        return First::Look;
    }
    let satisfied = wish.pin.and_then(|pin| record.labels.get(pin)).is_some_and(|labelled| {
        [wish.bundle, wish.api].contains(&Some(labelled.source.as_str()))
            && wish.sha256.is_none_or(|sha256| labelled.sha256.as_deref() == Some(sha256))
            && has(labelled.version)
    });
    if satisfied { First::Settle } else { First::Look }
}

/// The decision about a bundle's file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// The file is the one that was accepted before, with this version.
    Known(VersionId),
    /// The file is the one that was refused before.
    StillRefused,
    /// The file may be the same: its digest decides.
    Digest,
}

/// Decides by size and time whether the file is the one that was checked last.
pub fn then(record: &Record, wish: &Wish<'_>, trigger: Trigger, seen: &Seen, has: impl Fn(VersionId) -> bool) -> Then {
    let Some(looked) = record.looked.as_ref().filter(|looked| same_question(looked, wish, &seen.source)) else {
        return Then::Digest;
    };
    if looked.validator.is_some()
        || looked.size != seen.size
        || looked.modified != seen.modified
        || trigger == Trigger::Refresh
    {
        return Then::Digest;
    }
    match looked.version {
        Some(id) if has(id) => Then::Known(id),
        Some(_) => Then::Digest,
        // The user may have changed the cause of the refusal, such as a limit.
        None if trigger.wants_now() => Then::Digest,
        None => Then::StillRefused,
    }
}

/// The decision about export jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Begin {
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
pub struct Pace {
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
pub fn begin(record: &Record, wish: &Wish<'_>, pace: &Pace, trigger: Trigger, now: i64) -> Begin {
    let Some(source) = wish.api else { return Begin::Nothing("there is no API") };
    let ours = record.job.as_ref().filter(|job| job.source == source && !is_over(job, pace, now));
    if let Some(job) = ours {
        let same = job.pin.as_deref() == wish.pin;
        let may_start = record.hold.is_none() || trigger.is_person();
        return match (same, may_start) {
            (true, _) if !trigger.wants_now() || !may_start => Begin::Adopt(job.clone()),
            (false, false) => Begin::Nothing("held: no export job is started"),
            _ => Begin::AfterThis(job.clone()),
        };
    }
    if record.hold.is_some() && !trigger.is_person() {
        return Begin::Nothing("held: no export job is started");
    }
    let since = |event: Option<&Success>| {
        event.filter(|event| event.source == source && event.pin.as_deref() == wish.pin).and_then(|e| age(&e.time, now))
    };
    let early = since(record.last_start.as_ref())
        .filter(|&age| matches!(trigger, Trigger::Start | Trigger::Changed) && age < pace.quiet)
        .map(|age| pace.quiet - age);
    let stale = since(record.last_success.as_ref()).is_none_or(|age| age >= pace.max_age);
    if trigger.wants_now() {
        return Begin::Start;
    }
    if let Some(more) = early {
        return Begin::TooEarly(more);
    }
    match (pace.each_look, trigger) {
        (false, _) => Begin::Probe,
        (true, Trigger::Changed) if !stale => Begin::Nothing("the next export is due at its time"),
        (true, _) => Begin::Start,
    }
}

/// Whether a changed probe or the age of the last success calls for a job. `said` has no probe that could not be read;
/// a new probe counts as changed.
pub fn calls_for_job(record: &Record, wish: &Wish<'_>, pace: &Pace, said: &BTreeMap<String, Probe>, now: i64) -> bool {
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
pub fn is_over(job: &JobRecord, pace: &Pace, now: i64) -> bool {
    job_age(job, now) >= pace.job_timeout
}

/// Seconds since a job was started; 0 if the clock has been set back since: two jobs at once are worse than a long
/// wait.
pub fn job_age(job: &JobRecord, now: i64) -> i64 {
    parse_time(&job.started).map_or(i64::MAX, |started| (now - started).max(0))
}

/// Whether a server's back-off is still in force. One that begins in the future was recorded under another clock and is
/// ignored: one request too many is better than none ever again.
pub fn is_busy(busy: &Busy, now: i64) -> bool {
    age(&busy.since, now).is_some_and(|age| age.max(0).unsigned_abs() < busy.wait.min(LONGEST.as_secs()))
}

/// Seconds from `time` to `now`; none if `time` cannot be parsed or is in the future by more than a second.
fn age(time: &str, now: i64) -> Option<i64> {
    parse_time(time).map(|time| now - time).filter(|&age| age >= -1)
}

/// Whether the last check was of this source, with this label and this demanded digest.
pub fn same_question(looked: &Looked, wish: &Wish<'_>, source: &str) -> bool {
    looked.source == source && looked.label.as_deref() == wish.pin && looked.demanded.as_deref() == wish.sha256
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;
    use crate::store::record::Labelled;

    const WISH: Wish<'_> = Wish { enabled: true, bundle: Some("/b.zip"), api: None, pin: None, sha256: None };

    fn id() -> VersionId {
        VersionId(Digest::of(b"x"))
    }

    fn looked(version: Option<VersionId>) -> Record {
        Record {
            looked: Some(Looked {
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
            ..Record::default()
        }
    }

    fn labelled(source: &str) -> Record {
        let mut record = Record::default();
        let label = Labelled { version: id(), source: source.into(), sha256: Some("aa".into()), time: String::new() };
        record.labels.insert("L".into(), label);
        record
    }

    #[test]
    fn disabled_or_without_a_source_nothing_is_looked_at() {
        let record = Record::default();
        for wish in [Wish { enabled: false, ..WISH }, Wish { bundle: None, ..WISH }] {
            assert_eq!(first(&record, &wish, Trigger::Refresh, |_| true), First::Disabled);
        }
    }

    #[test]
    fn a_satisfied_pin_is_left_alone_until_source_digest_or_a_person_say_otherwise() {
        let pinned = Wish { pin: Some("L"), ..WISH };
        let record = labelled("/b.zip");
        assert_eq!(first(&record, &pinned, Trigger::Asked, |_| true), First::Settle);
        assert_eq!(first(&record, &pinned, Trigger::Refresh, |_| true), First::Look);
        assert_eq!(first(&record, &pinned, Trigger::Asked, |_| false), First::Look);
        assert_eq!(first(&record, &Wish { sha256: Some("aa"), ..pinned }, Trigger::Asked, |_| true), First::Settle);
        assert_eq!(first(&record, &Wish { sha256: Some("bb"), ..pinned }, Trigger::Asked, |_| true), First::Look);
        assert_eq!(first(&labelled("/other.zip"), &pinned, Trigger::Start, |_| true), First::Look);
        assert_eq!(first(&Record::default(), &pinned, Trigger::Start, |_| true), First::Look);
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let seen = Seen { source: "/b.zip".into(), size: 5, modified: 7 };
        let accepted = looked(Some(id()));
        assert_eq!(then(&accepted, &WISH, Trigger::Interval, &seen, |_| true), Then::Known(id()));
        assert_eq!(then(&accepted, &WISH, Trigger::Interval, &seen, |_| false), Then::Digest);
        assert_eq!(
            then(&accepted, &WISH, Trigger::Interval, &Seen { size: 6, ..seen.clone() }, |_| true),
            Then::Digest
        );
        assert_eq!(
            then(&accepted, &WISH, Trigger::Interval, &Seen { modified: 8, ..seen.clone() }, |_| true),
            Then::Digest
        );
        assert_eq!(
            then(&accepted, &Wish { sha256: Some("aa"), ..WISH }, Trigger::Interval, &seen, |_| true),
            Then::Digest
        );
        let refused = looked(None);
        assert_eq!(then(&refused, &WISH, Trigger::Interval, &seen, |_| true), Then::StillRefused);
        assert_eq!(then(&refused, &WISH, Trigger::Asked, &seen, |_| true), Then::Digest);
    }

    const API: Wish<'_> = Wish { enabled: true, bundle: None, api: Some("api"), pin: None, sha256: None };
    const PACE: Pace = Pace { each_look: false, max_age: 86_400, job_timeout: 1800, quiet: 600 };
    /// 2026-11-20T12:00:00Z
    const NOON: i64 = 1_795_176_000;

    fn at(time: &str) -> Success {
        Success { source: "api".into(), pin: None, time: format!("2026-11-20T{time}Z") }
    }

    fn with_job(started: &str, pin: Option<&str>) -> Record {
        let started = format!("2026-11-20T{started}Z");
        let pin = pin.map(str::to_owned);
        let job = JobRecord { id: "j".into(), source: "api".into(), pin, started, probes: BTreeMap::new() };
        Record { job: Some(job), ..Record::default() }
    }

    fn hold(record: Record) -> Record {
        let hold = crate::store::record::Hold { who: "me".into(), when: String::new(), why: String::new() };
        Record { hold: Some(hold), ..record }
    }

    #[test]
    fn a_job_of_ours_is_adopted_and_none_is_started_beside_it() {
        let record = with_job("11:50:00", None);
        for trigger in [Trigger::Start, Trigger::Interval, Trigger::Changed] {
            assert!(matches!(begin(&record, &API, &PACE, trigger, NOON), Begin::Adopt(_)), "{trigger:?}");
        }
        for trigger in [Trigger::Asked, Trigger::Refresh, Trigger::Hook] {
            assert!(matches!(begin(&record, &API, &PACE, trigger, NOON), Begin::AfterThis(_)), "{trigger:?}");
        }
        let other_pin = with_job("11:50:00", Some("L"));
        assert!(matches!(begin(&other_pin, &API, &PACE, Trigger::Interval, NOON), Begin::AfterThis(_)));
        let other_source = Wish { api: Some("other"), ..API };
        assert_eq!(begin(&record, &other_source, &PACE, Trigger::Interval, NOON), Begin::Probe);
        assert_eq!(begin(&with_job("11:29:00", None), &API, &PACE, Trigger::Interval, NOON), Begin::Probe, "over");
        // The clock was set back since its start.
        assert!(matches!(begin(&record, &API, &PACE, Trigger::Interval, NOON - 86_400), Begin::Adopt(_)));
    }

    #[test]
    fn a_start_of_the_daemon_leaves_the_api_alone_for_a_while_and_a_person_does_not() {
        let recent = Record { last_start: Some(at("11:55:00")), ..Record::default() };
        assert_eq!(begin(&recent, &API, &PACE, Trigger::Start, NOON), Begin::TooEarly(300));
        assert_eq!(begin(&recent, &API, &PACE, Trigger::Interval, NOON), Begin::Probe);
        assert_eq!(begin(&recent, &API, &PACE, Trigger::Asked, NOON), Begin::Start);
        assert_eq!(begin(&recent, &Wish { pin: Some("L"), ..API }, &PACE, Trigger::Start, NOON), Begin::Probe);
        assert_eq!(begin(&recent, &Wish { api: Some("other"), ..API }, &PACE, Trigger::Start, NOON), Begin::Probe);
        let each = Pace { each_look: true, ..PACE };
        assert_eq!(begin(&recent, &API, &each, Trigger::Interval, NOON), Begin::Start);
        // A clock that was set back does not suppress jobs for ever.
        assert_eq!(begin(&recent, &API, &PACE, Trigger::Start, NOON - 86_400), Begin::Probe);
    }

    #[test]
    fn while_held_only_a_person_starts_jobs() {
        let held = hold(Record::default());
        for trigger in [Trigger::Start, Trigger::Interval, Trigger::Changed, Trigger::Hook] {
            assert!(matches!(begin(&held, &API, &PACE, trigger, NOON), Begin::Nothing(_)), "{trigger:?}");
        }
        assert_eq!(begin(&held, &API, &PACE, Trigger::Asked, NOON), Begin::Start);
        let with_job = hold(with_job("11:50:00", None));
        assert!(matches!(begin(&with_job, &API, &PACE, Trigger::Hook, NOON), Begin::Adopt(_)));
        let new_pin = Wish { pin: Some("L"), ..API };
        assert!(matches!(begin(&with_job, &new_pin, &PACE, Trigger::Start, NOON), Begin::Nothing(_)));
        assert!(matches!(begin(&with_job, &new_pin, &PACE, Trigger::Asked, NOON), Begin::AfterThis(_)));
    }

    #[test]
    fn a_changed_probe_or_no_success_for_long_calls_for_a_job() {
        let probe = |sha256: &str| Probe { sha256: sha256.into(), etag: None, last_modified: None };
        let said = |sha256: &str| BTreeMap::from([("u".to_owned(), probe(sha256))]);
        let probed = crate::store::record::Probed { source: "api".into(), probes: said("1") };
        let record = Record { last_success: Some(at("11:00:00")), probed: Some(probed), ..Record::default() };
        let calls = |record: &Record, said, now| calls_for_job(record, &API, &PACE, &said, now);
        assert!(!calls(&record, said("1"), NOON));
        assert!(calls(&record, said("2"), NOON));
        assert!(!calls(&record, BTreeMap::new(), NOON), "unreadable probes are no change");
        assert!(calls(&record, said("1"), NOON + 86_400));
        assert!(calls(&Record::default(), said("1"), NOON), "never a success");
        let of_another_pin = Success { pin: Some("L".into()), ..at("11:00:00") };
        assert!(calls(&Record { last_success: Some(of_another_pin), ..record.clone() }, said("1"), NOON));
        let of_another_source = Success { source: "other".into(), ..at("11:00:00") };
        assert!(calls(&Record { last_success: Some(of_another_source), ..record.clone() }, said("1"), NOON));
        assert!(calls(&Record { probed: None, ..record }, said("1"), NOON), "never probed");
    }

    #[test]
    fn a_server_is_left_alone_for_as_long_as_it_asks_unless_the_clock_was_put_back() {
        let busy = Busy { since: "2026-11-20T11:50:00Z".into(), wait: 601 };
        assert!(is_busy(&busy, NOON));
        assert!(!is_busy(&busy, NOON + 1));
        assert!(!is_busy(&busy, NOON - 86_400));
        let for_ever = Busy { wait: u64::MAX, ..busy };
        assert!(!is_busy(&for_ever, NOON + 8 * 86_400));
    }

    #[test]
    fn a_label_satisfies_the_pin_whichever_of_the_two_sources_it_came_from() {
        let both = Wish { api: Some("api"), pin: Some("L"), ..WISH };
        for (wish, source, expected) in [
            (both, "/b.zip", First::Settle),
            (both, "api", First::Settle),
            (both, "other", First::Look),
            (Wish { bundle: None, ..both }, "api", First::Settle),
            (Wish { bundle: None, ..both }, "/b.zip", First::Look),
            (Wish { api: None, ..both }, "api", First::Look),
            (Wish { pin: Some("M"), ..both }, "api", First::Look),
            (Wish { pin: None, ..both }, "api", First::Look),
            (Wish { enabled: false, ..both }, "api", First::Disabled),
            (Wish { bundle: None, api: None, ..both }, "api", First::Disabled),
        ] {
            assert_eq!(first(&labelled(source), &wish, Trigger::Asked, |_| true), expected, "{wish:?} {source}");
        }
    }

    #[test]
    fn what_was_looked_at_through_a_link_or_under_another_label_says_nothing_of_a_file() {
        let seen = Seen { source: "/b.zip".into(), size: 5, modified: 7 };
        let judged = |wish: &Wish<'_>, trigger, change: &dyn Fn(&mut Looked)| {
            let mut record = looked(Some(id()));
            change(record.looked.as_mut().unwrap());
            then(&record, wish, trigger, &seen, |_| true)
        };
        let known = Then::Known(id());
        for trigger in [Trigger::Changed, Trigger::Start, Trigger::Interval, Trigger::Hook, Trigger::Asked] {
            assert_eq!(judged(&WISH, trigger, &|_| ()), known, "{trigger:?}");
        }
        assert_eq!(judged(&WISH, Trigger::Refresh, &|_| ()), Then::Digest);
        assert_eq!(judged(&WISH, Trigger::Start, &|looked| looked.validator = Some("v".into())), Then::Digest);
        assert_eq!(judged(&WISH, Trigger::Start, &|looked| looked.source = "/c.zip".into()), Then::Digest);
        assert_eq!(judged(&WISH, Trigger::Start, &|looked| looked.label = Some("L".into())), Then::Digest);
        let pinned = Wish { pin: Some("L"), ..WISH };
        assert_eq!(judged(&pinned, Trigger::Start, &|_| ()), Then::Digest);
        assert_eq!(judged(&pinned, Trigger::Start, &|looked| looked.label = Some("L".into())), known);
        let demanding = Wish { sha256: Some("aa"), ..WISH };
        assert_eq!(judged(&demanding, Trigger::Start, &|looked| looked.demanded = Some("aa".into())), known);
        assert_eq!(judged(&demanding, Trigger::Start, &|looked| looked.demanded = Some("bb".into())), Then::Digest);
        assert_eq!(then(&Record::default(), &WISH, Trigger::Start, &seen, |_| true), Then::Digest);
        for (trigger, expected) in [
            (Trigger::Changed, Then::StillRefused),
            (Trigger::Start, Then::StillRefused),
            (Trigger::Hook, Then::Digest),
            (Trigger::Refresh, Then::Digest),
        ] {
            assert_eq!(then(&looked(None), &WISH, trigger, &seen, |_| true), expected, "{trigger:?}");
        }
    }

    #[test]
    fn each_span_ends_at_its_second() {
        let job = |started: &str| with_job(started, None).job.unwrap();
        // Half an hour.
        assert!(is_over(&job("11:30:00"), &PACE, NOON) && !is_over(&job("11:30:01"), &PACE, NOON));
        assert_eq!((job_age(&job("11:30:00"), NOON), job_age(&job("12:00:01"), NOON)), (1800, 0));
        assert_eq!(job_age(&JobRecord { started: "soon".into(), ..job("11:30:00") }, NOON), i64::MAX);
        let started = |time: &str| Record { last_start: Some(at(time)), ..Record::default() };
        for (time, expected) in [
            ("11:50:00", Begin::Probe),
            ("11:50:01", Begin::TooEarly(1)),
            ("12:00:00", Begin::TooEarly(600)),
            // Clocks of two machines may differ by a second; a larger difference means that a clock was set back.
            ("12:00:01", Begin::TooEarly(601)),
            ("12:00:02", Begin::Probe),
        ] {
            for trigger in [Trigger::Start, Trigger::Changed] {
                assert_eq!(begin(&started(time), &API, &PACE, trigger, NOON), expected, "{time} {trigger:?}");
            }
        }
        let each = Pace { each_look: true, ..PACE };
        let succeeded = |time: &str| Record { last_success: Some(at(time)), ..Record::default() };
        let due = Begin::Nothing("the next export is due at its time");
        for (record, now, expected) in [
            (succeeded("12:00:00"), NOON + 86_399, due.clone()),
            (succeeded("12:00:00"), NOON + 86_400, Begin::Start),
            (Record::default(), NOON, Begin::Start),
        ] {
            assert_eq!(begin(&record, &API, &each, Trigger::Changed, now), expected);
            assert_eq!(begin(&record, &API, &each, Trigger::Start, now), Begin::Start);
        }
        let calls = |now| calls_for_job(&succeeded("12:00:00"), &API, &PACE, &BTreeMap::new(), now);
        assert_eq!([NOON, NOON + 86_399, NOON + 86_400].map(calls), [false, false, true]);
        assert!(calls(NOON - 2), "a success in the future is none");
        assert!(matches!(begin(&Record::default(), &WISH, &PACE, Trigger::Asked, NOON), Begin::Nothing(_)));
    }

    #[test]
    fn a_probe_that_is_new_or_was_of_another_source_is_a_change() {
        let probe = |sha256: &str| Probe { sha256: sha256.into(), etag: None, last_modified: None };
        let said = |all: &[(&str, &str)]| -> BTreeMap<String, Probe> {
            all.iter().map(|&(url, sha256)| (url.to_owned(), probe(sha256))).collect()
        };
        let record = |source: &str| Record {
            last_success: Some(at("11:00:00")),
            probed: Some(crate::store::record::Probed {
                source: source.into(),
                probes: said(&[("u", "1"), ("v", "1")]),
            }),
            ..Record::default()
        };
        let calls = |source: &str, all: &[(&str, &str)]| calls_for_job(&record(source), &API, &PACE, &said(all), NOON);
        assert!(!calls("api", &[("u", "1")]) && !calls("api", &[("u", "1"), ("v", "1")]));
        assert!(calls("api", &[("u", "1"), ("v", "2")]) && calls("api", &[("u", "1"), ("w", "1")]));
        assert!(calls("other", &[("u", "1")]) && !calls("other", &[]));
    }
}
