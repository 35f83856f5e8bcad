//! Tests of the decisions, case by case.

use super::*;
use crate::store::record::LabelledVersion;
use docwharf_base::model::digest::Digest;

const FILE_INPUT: PlanInput<'_> =
    PlanInput { enabled: true, bundle: Some("/b.zip"), api: None, pin: None, sha256: None };

fn id() -> VersionId {
    VersionId(Digest::compute(b"x"))
}

fn record_with_check(version: Option<VersionId>) -> StoreRecord {
    StoreRecord {
        last_checked_bundle: Some(BundleCheck {
            source: "/b.zip".into(),
            pin: None,
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

fn record_with_label(source: &str) -> StoreRecord {
    let mut record = StoreRecord::default();
    let label =
        LabelledVersion { version: id(), source: source.into(), sha256: Some("aa".into()), time: String::new() };
    record.labels.insert("L".into(), label);
    record
}

#[test]
fn disabled_sync_or_missing_source_checks_nothing() {
    let record = StoreRecord::default();
    for input in [PlanInput { enabled: false, ..FILE_INPUT }, PlanInput { bundle: None, ..FILE_INPUT }] {
        assert_eq!(decide_source_check(&record, &input, SyncTrigger::Refresh, |_| true), SourceDecision::DoNotCheck);
    }
}

#[test]
fn satisfied_pin_checks_the_source_only_after_a_change_or_a_refresh() {
    let pinned = PlanInput { pin: Some("L"), ..FILE_INPUT };
    let record = record_with_label("/b.zip");
    assert_eq!(decide_source_check(&record, &pinned, SyncTrigger::Command, |_| true), SourceDecision::ActivateOnly);
    assert_eq!(decide_source_check(&record, &pinned, SyncTrigger::Refresh, |_| true), SourceDecision::CheckSource);
    assert_eq!(decide_source_check(&record, &pinned, SyncTrigger::Command, |_| false), SourceDecision::CheckSource);
    assert_eq!(
        decide_source_check(&record, &PlanInput { sha256: Some("aa"), ..pinned }, SyncTrigger::Command, |_| true),
        SourceDecision::ActivateOnly
    );
    assert_eq!(
        decide_source_check(&record, &PlanInput { sha256: Some("bb"), ..pinned }, SyncTrigger::Command, |_| true),
        SourceDecision::CheckSource
    );
    assert_eq!(
        decide_source_check(&record_with_label("/other.zip"), &pinned, SyncTrigger::Start, |_| true),
        SourceDecision::CheckSource
    );
    assert_eq!(
        decide_source_check(&StoreRecord::default(), &pinned, SyncTrigger::Start, |_| true),
        SourceDecision::CheckSource
    );
}

#[test]
fn an_unchanged_file_is_not_read_again() {
    let state = BundleFileState { source: "/b.zip".into(), size: 5, modified: 7 };
    let accepted = record_with_check(Some(id()));
    assert_eq!(
        decide_file(&accepted, &FILE_INPUT, SyncTrigger::RegularCheck, &state, |_| true),
        FileDecision::Known(id())
    );
    assert_eq!(decide_file(&accepted, &FILE_INPUT, SyncTrigger::RegularCheck, &state, |_| false), FileDecision::Digest);
    assert_eq!(
        decide_file(
            &accepted,
            &FILE_INPUT,
            SyncTrigger::RegularCheck,
            &BundleFileState { size: 6, ..state.clone() },
            |_| { true }
        ),
        FileDecision::Digest
    );
    assert_eq!(
        decide_file(
            &accepted,
            &FILE_INPUT,
            SyncTrigger::RegularCheck,
            &BundleFileState { modified: 8, ..state.clone() },
            |_| { true }
        ),
        FileDecision::Digest
    );
    assert_eq!(
        decide_file(
            &accepted,
            &PlanInput { sha256: Some("aa"), ..FILE_INPUT },
            SyncTrigger::RegularCheck,
            &state,
            |_| { true }
        ),
        FileDecision::Digest
    );
    let refused = record_with_check(None);
    assert_eq!(
        decide_file(&refused, &FILE_INPUT, SyncTrigger::RegularCheck, &state, |_| true),
        FileDecision::StillRefused
    );
    assert_eq!(decide_file(&refused, &FILE_INPUT, SyncTrigger::Command, &state, |_| true), FileDecision::Digest);
}

const API_INPUT: PlanInput<'_> = PlanInput { enabled: true, bundle: None, api: Some("api"), pin: None, sha256: None };
const TIMING: ExportTiming =
    ExportTiming { exports_at_each_check: false, max_age: 86_400, job_timeout: 1800, restart_delay: 600 };
/// 2026-11-20T12:00:00Z
const NOON: i64 = 1_795_176_000;

fn event_at(time: &str) -> SourceEvent {
    SourceEvent { source: "api".into(), pin: None, time: format!("2026-11-20T{time}Z") }
}

fn record_with_job(started: &str, pin: Option<&str>) -> StoreRecord {
    let started = format!("2026-11-20T{started}Z");
    let pin = pin.map(str::to_owned);
    let job = JobRecord { id: "j".into(), source: "api".into(), pin, started, probes: BTreeMap::new() };
    StoreRecord { job: Some(job), ..StoreRecord::default() }
}

fn hold(record: StoreRecord) -> StoreRecord {
    let hold = crate::store::record::ActivationHold { author: "me".into(), when: String::new(), why: String::new() };
    StoreRecord { hold: Some(hold), ..record }
}

#[test]
fn own_export_job_is_continued_and_no_second_job_starts_beside_it() {
    let record = record_with_job("11:50:00", None);
    for trigger in [SyncTrigger::Start, SyncTrigger::RegularCheck, SyncTrigger::Changed, SyncTrigger::Corrected] {
        assert!(
            matches!(decide_export(&record, &API_INPUT, &TIMING, trigger, NOON), ExportDecision::ContinueJob(_)),
            "{trigger:?}"
        );
    }
    for trigger in [SyncTrigger::Command, SyncTrigger::Refresh, SyncTrigger::Signal] {
        assert!(
            matches!(decide_export(&record, &API_INPUT, &TIMING, trigger, NOON), ExportDecision::StartAfter(_)),
            "{trigger:?}"
        );
    }
    let other_pin = record_with_job("11:50:00", Some("L"));
    assert!(matches!(
        decide_export(&other_pin, &API_INPUT, &TIMING, SyncTrigger::RegularCheck, NOON),
        ExportDecision::StartAfter(_)
    ));
    let other_source = PlanInput { api: Some("other"), ..API_INPUT };
    assert_eq!(decide_export(&record, &other_source, &TIMING, SyncTrigger::RegularCheck, NOON), ExportDecision::Probe);
    assert_eq!(
        decide_export(&record_with_job("11:29:00", None), &API_INPUT, &TIMING, SyncTrigger::RegularCheck, NOON),
        ExportDecision::Probe,
        "expired"
    );
    // The clock was set back since its start.
    assert!(matches!(
        decide_export(&record, &API_INPUT, &TIMING, SyncTrigger::RegularCheck, NOON - 86_400),
        ExportDecision::ContinueJob(_)
    ));
}

#[test]
fn daemon_start_soon_after_an_export_starts_no_job_but_a_command_does() {
    let recent = StoreRecord { last_start: Some(event_at("11:55:00")), ..StoreRecord::default() };
    assert_eq!(decide_export(&recent, &API_INPUT, &TIMING, SyncTrigger::Start, NOON), ExportDecision::TooEarly(300));
    assert_eq!(decide_export(&recent, &API_INPUT, &TIMING, SyncTrigger::RegularCheck, NOON), ExportDecision::Probe);
    assert_eq!(decide_export(&recent, &API_INPUT, &TIMING, SyncTrigger::Corrected, NOON), ExportDecision::Probe);
    // Regression: unchanged probes kept a refused bundle from being exported again after its cause was corrected.
    let mut refused = StoreRecord { last_start: recent.last_start.clone(), ..record_with_check(None) };
    assert_eq!(
        decide_export(&refused, &API_INPUT, &TIMING, SyncTrigger::Corrected, NOON),
        ExportDecision::Probe,
        "a bundle of another source"
    );
    refused.last_checked_bundle.as_mut().expect("a check").source = API_INPUT.api.expect("an API").to_owned();
    assert_eq!(decide_export(&refused, &API_INPUT, &TIMING, SyncTrigger::Corrected, NOON), ExportDecision::Start);
    assert_eq!(decide_export(&refused, &API_INPUT, &TIMING, SyncTrigger::RegularCheck, NOON), ExportDecision::Probe);
    assert_eq!(decide_export(&recent, &API_INPUT, &TIMING, SyncTrigger::Command, NOON), ExportDecision::Start);
    assert_eq!(
        decide_export(&recent, &PlanInput { pin: Some("L"), ..API_INPUT }, &TIMING, SyncTrigger::Start, NOON),
        ExportDecision::Probe
    );
    assert_eq!(
        decide_export(&recent, &PlanInput { api: Some("other"), ..API_INPUT }, &TIMING, SyncTrigger::Start, NOON),
        ExportDecision::Probe
    );
    let each_check = ExportTiming { exports_at_each_check: true, ..TIMING };
    assert_eq!(decide_export(&recent, &API_INPUT, &each_check, SyncTrigger::RegularCheck, NOON), ExportDecision::Start);
    // A clock that was set back does not suppress jobs for ever.
    assert_eq!(decide_export(&recent, &API_INPUT, &TIMING, SyncTrigger::Start, NOON - 86_400), ExportDecision::Probe);
}

#[test]
fn held_store_starts_export_jobs_only_by_command() {
    let held = hold(StoreRecord::default());
    for trigger in [
        SyncTrigger::Start,
        SyncTrigger::RegularCheck,
        SyncTrigger::Changed,
        SyncTrigger::Corrected,
        SyncTrigger::Signal,
    ] {
        assert!(
            matches!(decide_export(&held, &API_INPUT, &TIMING, trigger, NOON), ExportDecision::Nothing(_)),
            "{trigger:?}"
        );
    }
    assert_eq!(decide_export(&held, &API_INPUT, &TIMING, SyncTrigger::Command, NOON), ExportDecision::Start);
    let with_job = hold(record_with_job("11:50:00", None));
    assert!(matches!(
        decide_export(&with_job, &API_INPUT, &TIMING, SyncTrigger::Signal, NOON),
        ExportDecision::ContinueJob(_)
    ));
    let new_pin = PlanInput { pin: Some("L"), ..API_INPUT };
    assert!(matches!(
        decide_export(&with_job, &new_pin, &TIMING, SyncTrigger::Start, NOON),
        ExportDecision::Nothing(_)
    ));
    assert!(matches!(
        decide_export(&with_job, &new_pin, &TIMING, SyncTrigger::Command, NOON),
        ExportDecision::StartAfter(_)
    ));
}

#[test]
fn changed_probe_or_an_old_last_success_requires_an_export_job() {
    let probe = |sha256: &str| ProbeResult { sha256: sha256.into(), etag: None, last_modified: None };
    let probes = |sha256: &str| BTreeMap::from([("u".to_owned(), probe(sha256))]);
    let probed = crate::store::record::SourceProbes { source: "api".into(), probes: probes("1") };
    let record =
        StoreRecord { last_export_success: Some(event_at("11:00:00")), probed: Some(probed), ..StoreRecord::default() };
    let is_needed = |record: &StoreRecord, probes, now| needs_export_job(record, &API_INPUT, &TIMING, &probes, now);
    assert!(!is_needed(&record, probes("1"), NOON));
    assert!(is_needed(&record, probes("2"), NOON));
    assert!(!is_needed(&record, BTreeMap::new(), NOON), "unreadable probes are no change");
    assert!(is_needed(&record, probes("1"), NOON + 86_400));
    assert!(is_needed(&StoreRecord::default(), probes("1"), NOON), "never a success");
    let of_another_pin = SourceEvent { pin: Some("L".into()), ..event_at("11:00:00") };
    assert!(is_needed(&StoreRecord { last_export_success: Some(of_another_pin), ..record.clone() }, probes("1"), NOON));
    let of_another_source = SourceEvent { source: "other".into(), ..event_at("11:00:00") };
    assert!(is_needed(
        &StoreRecord { last_export_success: Some(of_another_source), ..record.clone() },
        probes("1"),
        NOON
    ));
    assert!(is_needed(&StoreRecord { probed: None, ..record }, probes("1"), NOON), "never probed");
}

// Regression: a probe's server that had sent `Retry-After` was requested again at the next check.
#[test]
fn probe_back_off_lasts_as_long_as_the_server_demands_unless_the_clock_is_set_back() {
    let back_off = ProbeBackOff { since: "2026-11-20T11:50:00Z".into(), wait: 600 };
    assert!(is_backing_off(&back_off, NOON));
    assert!(!is_backing_off(&back_off, NOON + 1));
    assert!(!is_backing_off(&back_off, NOON - 86_400));
    let for_ever = ProbeBackOff { wait: u64::MAX, ..back_off };
    assert!(!is_backing_off(&for_ever, NOON + 8 * 86_400));
}

#[test]
fn a_label_satisfies_the_pin_whichever_of_the_two_sources_it_came_from() {
    let both = PlanInput { api: Some("api"), pin: Some("L"), ..FILE_INPUT };
    for (input, source, expected) in [
        (both, "/b.zip", SourceDecision::ActivateOnly),
        (both, "api", SourceDecision::ActivateOnly),
        (both, "other", SourceDecision::CheckSource),
        (PlanInput { bundle: None, ..both }, "api", SourceDecision::ActivateOnly),
        (PlanInput { bundle: None, ..both }, "/b.zip", SourceDecision::CheckSource),
        (PlanInput { api: None, ..both }, "api", SourceDecision::CheckSource),
        (PlanInput { pin: Some("M"), ..both }, "api", SourceDecision::CheckSource),
        (PlanInput { pin: None, ..both }, "api", SourceDecision::CheckSource),
        (PlanInput { enabled: false, ..both }, "api", SourceDecision::DoNotCheck),
        (PlanInput { bundle: None, api: None, ..both }, "api", SourceDecision::DoNotCheck),
    ] {
        assert_eq!(
            decide_source_check(&record_with_label(source), &input, SyncTrigger::Command, |_| true),
            expected,
            "{input:?} {source}"
        );
    }
}

#[test]
fn earlier_check_of_a_link_or_of_another_label_does_not_apply_to_a_file() {
    let state = BundleFileState { source: "/b.zip".into(), size: 5, modified: 7 };
    let decide = |input: &PlanInput<'_>, trigger, change: &dyn Fn(&mut BundleCheck)| {
        let mut record = record_with_check(Some(id()));
        change(record.last_checked_bundle.as_mut().unwrap());
        decide_file(&record, input, trigger, &state, |_| true)
    };
    let known = FileDecision::Known(id());
    for trigger in
        [SyncTrigger::Changed, SyncTrigger::Start, SyncTrigger::RegularCheck, SyncTrigger::Signal, SyncTrigger::Command]
    {
        assert_eq!(decide(&FILE_INPUT, trigger, &|_| ()), known, "{trigger:?}");
    }
    assert_eq!(decide(&FILE_INPUT, SyncTrigger::Refresh, &|_| ()), FileDecision::Digest);
    assert_eq!(
        decide(&FILE_INPUT, SyncTrigger::Start, &|check| check.validator = Some("v".into())),
        FileDecision::Digest
    );
    assert_eq!(decide(&FILE_INPUT, SyncTrigger::Start, &|check| check.source = "/c.zip".into()), FileDecision::Digest);
    assert_eq!(decide(&FILE_INPUT, SyncTrigger::Start, &|check| check.pin = Some("L".into())), FileDecision::Digest);
    let pinned = PlanInput { pin: Some("L"), ..FILE_INPUT };
    assert_eq!(decide(&pinned, SyncTrigger::Start, &|_| ()), FileDecision::Digest);
    assert_eq!(decide(&pinned, SyncTrigger::Start, &|check| check.pin = Some("L".into())), known);
    let demanding = PlanInput { sha256: Some("aa"), ..FILE_INPUT };
    assert_eq!(decide(&demanding, SyncTrigger::Start, &|check| check.demanded = Some("aa".into())), known);
    assert_eq!(
        decide(&demanding, SyncTrigger::Start, &|check| check.demanded = Some("bb".into())),
        FileDecision::Digest
    );
    assert_eq!(
        decide_file(&StoreRecord::default(), &FILE_INPUT, SyncTrigger::Start, &state, |_| true),
        FileDecision::Digest
    );
    for (trigger, expected) in [
        (SyncTrigger::Changed, FileDecision::StillRefused),
        (SyncTrigger::Start, FileDecision::StillRefused),
        (SyncTrigger::Corrected, FileDecision::Digest),
        (SyncTrigger::Signal, FileDecision::Digest),
        (SyncTrigger::Refresh, FileDecision::Digest),
    ] {
        assert_eq!(
            decide_file(&record_with_check(None), &FILE_INPUT, trigger, &state, |_| true),
            expected,
            "{trigger:?}"
        );
    }
}

#[test]
fn export_time_limits_end_at_the_exact_second() {
    let job = |started: &str| record_with_job(started, None).job.unwrap();
    // Half an hour.
    assert!(is_expired(&job("11:30:00"), &TIMING, NOON) && !is_expired(&job("11:30:01"), &TIMING, NOON));
    assert_eq!((job_age(&job("11:30:00"), NOON), job_age(&job("12:00:01"), NOON)), (1800, 0));
    assert_eq!(job_age(&JobRecord { started: "soon".into(), ..job("11:30:00") }, NOON), i64::MAX);
    let started = |time: &str| StoreRecord { last_start: Some(event_at(time)), ..StoreRecord::default() };
    for (time, expected) in [
        ("11:50:00", ExportDecision::Probe),
        ("11:50:01", ExportDecision::TooEarly(1)),
        ("12:00:00", ExportDecision::TooEarly(600)),
        // Clocks of two machines may differ by a second; a larger difference means that a clock was set back.
        ("12:00:01", ExportDecision::TooEarly(601)),
        ("12:00:02", ExportDecision::Probe),
    ] {
        for trigger in [SyncTrigger::Start, SyncTrigger::Changed] {
            assert_eq!(
                decide_export(&started(time), &API_INPUT, &TIMING, trigger, NOON),
                expected,
                "{time} {trigger:?}"
            );
        }
    }
    let each_check = ExportTiming { exports_at_each_check: true, ..TIMING };
    let succeeded = |time: &str| StoreRecord { last_export_success: Some(event_at(time)), ..StoreRecord::default() };
    let due = ExportDecision::Nothing("the next export is due at its time");
    for (record, now, expected) in [
        (succeeded("12:00:00"), NOON + 86_399, due.clone()),
        (succeeded("12:00:00"), NOON + 86_400, ExportDecision::Start),
        (StoreRecord::default(), NOON, ExportDecision::Start),
    ] {
        assert_eq!(decide_export(&record, &API_INPUT, &each_check, SyncTrigger::Changed, now), expected);
        assert_eq!(decide_export(&record, &API_INPUT, &each_check, SyncTrigger::Start, now), ExportDecision::Start);
    }
    let is_needed = |now| needs_export_job(&succeeded("12:00:00"), &API_INPUT, &TIMING, &BTreeMap::new(), now);
    assert_eq!([NOON, NOON + 86_399, NOON + 86_400].map(is_needed), [false, false, true]);
    assert!(is_needed(NOON - 2), "a success in the future does not count");
    assert!(matches!(
        decide_export(&StoreRecord::default(), &FILE_INPUT, &TIMING, SyncTrigger::Command, NOON),
        ExportDecision::Nothing(_)
    ));
}

#[test]
fn a_probe_that_is_new_or_was_of_another_source_is_a_change() {
    let probe = |sha256: &str| ProbeResult { sha256: sha256.into(), etag: None, last_modified: None };
    let probes = |all: &[(&str, &str)]| -> BTreeMap<String, ProbeResult> {
        all.iter().map(|&(url, sha256)| (url.to_owned(), probe(sha256))).collect()
    };
    let record = |source: &str| StoreRecord {
        last_export_success: Some(event_at("11:00:00")),
        probed: Some(crate::store::record::SourceProbes {
            source: source.into(),
            probes: probes(&[("u", "1"), ("v", "1")]),
        }),
        ..StoreRecord::default()
    };
    let is_needed =
        |source: &str, all: &[(&str, &str)]| needs_export_job(&record(source), &API_INPUT, &TIMING, &probes(all), NOON);
    assert!(!is_needed("api", &[("u", "1")]) && !is_needed("api", &[("u", "1"), ("v", "1")]));
    assert!(is_needed("api", &[("u", "1"), ("v", "2")]) && is_needed("api", &[("u", "1"), ("w", "1")]));
    assert!(is_needed("other", &[("u", "1")]) && !is_needed("other", &[]));
}
