//! Export jobs: what is recorded before a request, polls, probes, and the success of an export.

use std::collections::BTreeMap;

use super::*;
use crate::store::record::{JobRecord, OfferedVersion, ProbeBackOff, SourceEvent, SourceProbes};
use crate::sync::plan::SyncTrigger;
use crate::sync::run::run_sync;
use docwharf_base::model::units::format_unix_seconds;

/// An event of [`API`] without a pin, this number of seconds before noon.
fn event(seconds_ago: i64) -> SourceEvent {
    SourceEvent { source: API.to_owned(), pin: None, time: format_unix_seconds(NOON - seconds_ago) }
}

/// A job of `source` that was started this number of seconds before noon.
fn job(source: &str, seconds_ago: i64) -> JobRecord {
    let (id, source) = ("j1".to_owned(), source.to_owned());
    JobRecord { id, source, pin: None, started: format_unix_seconds(NOON - seconds_ago), probes: BTreeMap::new() }
}

fn probe_result(sha256: &str) -> ProbeResult {
    ProbeResult { sha256: sha256.to_owned(), etag: None, last_modified: None }
}

/// The results of the probes `a` and `b`, as far as they are known.
fn results(known: &[(&str, &str)]) -> BTreeMap<String, ProbeResult> {
    known.iter().map(|&(name, sha256)| (format!("https://docs.example/{name}"), probe_result(sha256))).collect()
}

/// A configuration with an API and the probes `a` and `b`.
fn probing_settings() -> SyncSettings {
    let probes = ["a", "b"].map(|name| url(&format!("https://docs.example/{name}"))).into();
    SyncSettings { exports_at_each_check: false, probes, ..api_settings() }
}

/// A record with a success a minute ago, and with these results of the probes of `source`.
fn probed_record(source: &str, known: &[(&str, &str)]) -> StoreRecord {
    let probed = Some(SourceProbes { source: source.to_owned(), probes: results(known) });
    StoreRecord { probed, last_export_success: Some(event(60)), ..StoreRecord::default() }
}

/// Scripts the rest of an export whose job `j1` is completed: the link, and a bundle that is ingested with this result.
fn script_bundle(environment: &mut ScriptedEnvironment, result: Result<IngestedBundle, SyncError>) {
    environment.polls.push_back(Ok(Ok(job_state("completed", 100.0))));
    environment.links.push_back(Ok(Ok(signed_link(1, None))));
    environment.downloads.push_back(Ok(Ok(received(false))));
    environment.ingests.push_back(result);
}

#[test]
fn a_start_that_was_refused_delays_no_other_and_one_that_may_have_been_heard_does() {
    let lost = || Ok(Err(request_error(RequestErrorCause::NoUsableResponse)));
    let not_connected = || Ok(Err(request_error(RequestErrorCause::NotConnected)));
    let cases: [(&str, Vec<CallResult<String>>, bool); 3] = [
        ("refused", vec![Ok(Err(status_error(401)))], false),
        ("not connected", (0..5).map(|_| not_connected()).collect(), false),
        ("lost", (0..3).map(|_| lost()).collect(), true),
    ];
    for (name, responses, is_started) in cases {
        let attempts = responses.len();
        let mut environment = ScriptedEnvironment { starts: responses.into(), ..ScriptedEnvironment::new() };
        let mut record = StoreRecord { last_start: Some(event(7200)), ..StoreRecord::default() };
        run_sync(&mut environment, &mut record, &api_settings(), SyncTrigger::RegularCheck)
            .expect_err("no job is started");
        assert_eq!(environment.effects[..2], ["save", "start"], "{name}: recorded before the request");
        assert_eq!(environment.saved[0].last_start, Some(event(0)), "{name}");
        assert_eq!(environment.count("start"), attempts, "{name}");
        let expected = if is_started { event(0) } else { event(7200) };
        assert_eq!(record.last_start, Some(expected), "{name}");
        assert_eq!(environment.saved.last(), Some(&record), "{name}");
    }
}

#[test]
fn a_job_is_recorded_before_its_first_poll_and_polled_after_pauses_that_grow() {
    let mut environment = ScriptedEnvironment::new();
    environment.starts.push_back(Ok(Ok("j1".to_owned())));
    environment.polls.extend([Ok(Ok(job_state("queued", 10.0))), Ok(Ok(job_state("running", 20.0)))]);
    script_bundle(&mut environment, Ok(ingested(1)));
    let mut record = StoreRecord::default();
    run_sync(&mut environment, &mut record, &api_settings(), SyncTrigger::RegularCheck).expect("the export is good");
    let begin = format!("begin {API}, 0 known");
    let expected = [
        "save",
        "start",
        "save",
        "event export started",
        "wait 1000 ms",
        "poll j1",
        "wait 1500 ms",
        "poll j1",
        "wait 2250 ms",
        "poll j1",
        begin.as_str(),
        "link of j1",
        "download https://bucket.example/1",
        "ingest",
        "discard",
        "activate",
        "save",
    ];
    assert_eq!(environment.effects, expected);
    assert_eq!(environment.notes, [Some("j1".to_owned())], "history has the id of the job");
    assert_eq!(environment.saved[1].job, Some(job(API, 0)));
    assert_eq!(environment.percents, [Some(10.0), Some(20.0), None], "a completed job has no progress");
    assert_eq!(
        (&record.job, &record.last_start, &record.last_export_success),
        (&None, &Some(event(0)), &Some(event(0)))
    );
}

#[test]
fn a_job_of_an_earlier_sync_is_polled_at_once_and_given_up_when_all_its_time_has_passed() {
    // The job's timeout is half an hour. The pauses are 1.5 s and 2.25 s.
    let mut environment = ScriptedEnvironment::new();
    environment.polls.extend((0..3).map(|_| Ok(Ok(job_state("running", 5.0)))));
    let mut record = StoreRecord { job: Some(job(API, 1797)), ..StoreRecord::default() };
    let error =
        run_sync(&mut environment, &mut record, &api_settings(), SyncTrigger::RegularCheck).expect_err("too long");
    assert!(matches!(error, SyncError::JobTimeout { .. }), "{error:?}");
    let expected = ["poll j1", "wait 1500 ms", "poll j1", "wait 2250 ms", "poll j1", "save", "event failed", "save"];
    assert_eq!(environment.effects, expected);
    assert_eq!((&environment.saved[0].job, &record.job), (&None, &None));
}

#[test]
fn a_job_that_is_too_old_is_forgotten_at_every_source() {
    let mut environment = ScriptedEnvironment::new();
    environment.starts.push_back(Ok(Err(status_error(401))));
    let (old, young) = (job("https://other.example#docs", 1800), job("https://third.example#docs", 1799));
    let mut record =
        StoreRecord { job: Some(job(API, 1800)), jobs_elsewhere: vec![old, young.clone()], ..StoreRecord::default() };
    run_sync(&mut environment, &mut record, &api_settings(), SyncTrigger::RegularCheck)
        .expect_err("the start is refused");
    assert_eq!((&record.job, &record.jobs_elsewhere), (&None, &vec![young]));
    assert_eq!(environment.effects, ["save", "start", "event failed", "save"], "the old job is not polled");
}

#[test]
fn a_bundle_that_is_refused_or_does_not_arrive_is_no_success_of_its_export() {
    let (sync_settings, probes) = (probing_settings(), results(&[("a", "2"), ("b", "1")]));
    let started = JobRecord { probes: probes.clone(), ..job(API, 60) };
    let before = StoreRecord { job: Some(started.clone()), ..probed_record(API, &[("a", "1"), ("b", "1")]) };
    let checked = SourceProbes { source: API.to_owned(), probes };

    let (mut environment, mut record) = (ScriptedEnvironment::new(), before.clone());
    script_bundle(&mut environment, Err(refusal()));
    run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck)
        .expect_err("the bundle is refused");
    assert_eq!((&record.job, &record.probed), (&None, &Some(checked.clone())), "the same change is exported once");
    assert_eq!(record.last_export_success, Some(event(60)));

    let (mut environment, mut record) = (ScriptedEnvironment::new(), before.clone());
    script_bundle(&mut environment, Ok(ingested(1)));
    environment.downloads = [Ok(Err(status_error(402)))].into();
    run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck).expect_err("the download fails");
    assert_eq!((&record.job, &record.probed), (&Some(started), &before.probed), "the job is continued");
    assert_eq!(record.last_export_success, Some(event(60)));

    let (mut environment, mut record) = (ScriptedEnvironment::new(), before);
    script_bundle(&mut environment, Ok(ingested(1)));
    run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck).expect("the bundle is good");
    assert_eq!((&record.job, &record.probed, &record.last_export_success), (&None, &Some(checked), &Some(event(0))));
}

#[test]
fn space_is_freed_for_the_size_in_the_response_unless_the_bundle_is_known_or_too_large() {
    // The limit of an archive is 4 GiB.
    for (size, effect) in [
        (None, None),
        (Some(7), None),
        (Some(8), Some("reserve 8")),
        (Some(4 << 30), Some("reserve 4294967296")),
        (Some((4 << 30) + 1), None),
        (Some(u64::MAX), None),
    ] {
        let mut environment =
            ScriptedEnvironment { known: vec![(validator(), Some(id(1)))], ..ScriptedEnvironment::new() };
        script_bundle(&mut environment, Ok(ingested(1)));
        environment.links = [Ok(Ok(signed_link(1, size)))].into();
        let mut record = StoreRecord { job: Some(job(API, 1)), ..StoreRecord::default() };
        run_sync(&mut environment, &mut record, &api_settings(), SyncTrigger::RegularCheck)
            .expect("the export is good");
        let reserved = environment.effects.iter().find(|effect| effect.starts_with("reserve "));
        assert_eq!(reserved.map(String::as_str), effect, "{size:?}");
    }
}

#[test]
fn a_probe_is_skipped_as_long_as_its_server_asks_and_the_others_still_detect_changes() {
    let (a, b) = ("probe https://docs.example/a if changed", "probe https://docs.example/b if changed");
    let sync_settings = probing_settings();
    let mut record = probed_record(API, &[("a", "1"), ("b", "1")]);
    record
        .probe_back_offs
        .insert("https://docs.example/gone".to_owned(), ProbeBackOff { since: format_unix_seconds(NOON), wait: 3600 });
    let mut busy = status_error(503);
    busy.retry_after = Some(Duration::from_secs(100));

    let mut environment = ScriptedEnvironment::new();
    environment.probes.extend([Ok(Err(busy)), Ok(Ok(None))]);
    let report =
        run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck).expect("b is readable");
    assert_eq!(environment.effects, [a, "save", b, "activate", "save"], "the back-off is saved at once");
    let back_offs = BTreeMap::from([(
        "https://docs.example/a".to_owned(),
        ProbeBackOff { since: format_unix_seconds(NOON), wait: 100 },
    )]);
    assert_eq!(environment.saved[0].probe_back_offs, back_offs, "a probe that is not configured is forgotten");
    assert_eq!(report.unreadable_probes, None, "b could be read: it has not changed");
    assert_eq!(record.last_attempt.as_ref().map(|attempt| attempt.result.as_str()), Some("already current"));

    let mut environment = ScriptedEnvironment { now: NOON + 100, ..ScriptedEnvironment::new() };
    environment.probes.push_back(Ok(Ok(None)));
    run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck).expect("b is readable");
    assert_eq!(environment.effects, [b, "activate", "save"]);
    let last_good_sync = record.last_good_sync.clone();

    let mut environment = ScriptedEnvironment { now: NOON + 101, ..ScriptedEnvironment::new() };
    environment.probes.extend([Ok(Err(status_error(500))), Ok(Err(status_error(500)))]);
    let report =
        run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck).expect("only a warning");
    assert_eq!(environment.effects, [a, b, "activate", "save"], "without Retry-After there is no back-off");
    assert_eq!((report.unreadable_probes.is_some(), report.check_summary), (true, None));
    assert_eq!(record.last_attempt.as_ref().map(|attempt| attempt.result.as_str()), Some("probes unreadable"));
    assert_eq!((&record.last_good_sync, record.probe_back_offs.len()), (&last_good_sync, 0), "it is no good sync");
}

#[test]
fn the_result_of_a_probe_that_could_not_be_read_stays_known_for_its_own_source() {
    let cases: [(&str, &[(&str, &str)]); 2] =
        [(API, &[("a", "2"), ("b", "1")]), ("https://other.example#docs", &[("a", "2")])];
    for (source, known) in cases {
        let mut environment = ScriptedEnvironment::new();
        environment.probes.extend([Ok(Ok(Some(probe_result("2")))), Ok(Err(status_error(500)))]);
        environment.starts.push_back(Ok(Ok("j1".to_owned())));
        script_bundle(&mut environment, Ok(ingested(1)));
        let mut record = probed_record(source, &[("a", "1"), ("b", "1")]);
        run_sync(&mut environment, &mut record, &probing_settings(), SyncTrigger::RegularCheck).expect("a has changed");
        let expected = SourceProbes { source: API.to_owned(), probes: results(known) };
        assert_eq!(record.probed, Some(expected), "{source}");
    }
}

#[test]
fn a_lost_version_of_the_source_is_exported_again_unless_another_one_has_taken_its_place() {
    // The source of the lost version, the active and the newest version, the stored ones; whether a job is started.
    let cases: [(&str, u8, u8, &[u8], bool); 5] = [
        (API, 1, 1, &[], true),
        (API, 1, 1, &[1], false),
        (API, 2, 2, &[2], false),
        (API, 1, 2, &[2], false),
        ("https://other.example#docs", 1, 1, &[], false),
    ];
    for (n, (source, active, newest, stored, is_started)) in cases.into_iter().enumerate() {
        let stored = stored.iter().map(|&n| id(n)).collect();
        let mut environment = ScriptedEnvironment { stored, ..ScriptedEnvironment::new() };
        environment.probes.extend([Ok(Ok(None)), Ok(Ok(None))]);
        environment.starts.push_back(Ok(Err(status_error(401))));
        let mut record = StoreRecord {
            active: Some(id(active)),
            newest: Some(id(newest)),
            offered: Some(OfferedVersion { source: source.to_owned(), version: id(1) }),
            ..probed_record(API, &[("a", "1"), ("b", "1")])
        };
        let result = run_sync(&mut environment, &mut record, &probing_settings(), SyncTrigger::RegularCheck);
        assert_eq!((environment.count("start") > 0, result.is_err()), (is_started, is_started), "case {n}");
    }
}
