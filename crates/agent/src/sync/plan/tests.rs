//! Tests of the decisions, one case after another.

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
        decide_file(&accepted, &WISH, SyncTrigger::Interval, &BundleFileState { modified: 8, ..seen.clone() }, |_| {
            true
        }),
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
        assert!(matches!(decide_export(&record, &API, &PACE, trigger, NOON), ExportDecision::Adopt(_)), "{trigger:?}");
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
        assert!(matches!(decide_export(&held, &API, &PACE, trigger, NOON), ExportDecision::Nothing(_)), "{trigger:?}");
    }
    assert_eq!(decide_export(&held, &API, &PACE, SyncTrigger::Asked, NOON), ExportDecision::Start);
    let with_job = hold(with_job("11:50:00", None));
    assert!(matches!(decide_export(&with_job, &API, &PACE, SyncTrigger::Hook, NOON), ExportDecision::Adopt(_)));
    let new_pin = PlanInput { pin: Some("L"), ..API };
    assert!(matches!(decide_export(&with_job, &new_pin, &PACE, SyncTrigger::Start, NOON), ExportDecision::Nothing(_)));
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
    assert_eq!(checked(&WISH, SyncTrigger::Start, &|looked| looked.validator = Some("v".into())), FileDecision::Digest);
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
    assert_eq!(decide_file(&StoreRecord::default(), &WISH, SyncTrigger::Start, &seen, |_| true), FileDecision::Digest);
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
