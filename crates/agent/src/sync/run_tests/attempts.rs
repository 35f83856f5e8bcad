//! Attempts: when a sync counts as one, the failures in a row, history, and checks of a file.

use super::*;
use crate::store::StoreError;
use crate::store::record::{BundleCheck, SourceEvent};
use crate::sync::plan::SyncTrigger;
use crate::sync::run::run_sync;

#[test]
fn failures_in_a_row_are_counted_from_zero_after_a_request_or_a_changed_configuration() {
    // The trigger, whether the configuration is that of the failures before; the failures, and the wait in seconds.
    let cases = [
        (SyncTrigger::RegularCheck, true, 3, 20),
        (SyncTrigger::Start, true, 3, 20),
        (SyncTrigger::RegularCheck, false, 1, 5),
        (SyncTrigger::Start, false, 1, 5),
        (SyncTrigger::Changed, true, 1, 5),
        (SyncTrigger::Corrected, true, 1, 5),
        (SyncTrigger::Signal, true, 1, 5),
        (SyncTrigger::Command, true, 1, 5),
        (SyncTrigger::Refresh, true, 1, 5),
    ];
    for (trigger, is_same, failures, wait) in cases {
        let sync_settings = link_settings();
        let before = if is_same { failed_attempt(&sync_settings, 2) } else { failed_attempt(&api_settings(), 2) };
        let last_good_sync = Some("2026-11-20T10:00:00Z".to_owned());
        let mut record = StoreRecord {
            last_attempt: Some(before),
            last_good_sync: last_good_sync.clone(),
            ..StoreRecord::default()
        };
        let mut environment = ScriptedEnvironment::new();
        environment.downloads.push_back(Ok(Err(status_error(402))));
        let error = run_sync(&mut environment, &mut record, &sync_settings, trigger).expect_err("402 is final");
        assert!(matches!(error, SyncError::Download { .. }), "{error:?}");
        let attempt = record.last_attempt.as_ref().expect("the attempt is recorded");
        assert_eq!(
            (attempt.result.as_str(), attempt.failures, attempt.wait, attempt.time.as_str()),
            ("failed", failures, wait, "2026-11-20T12:00:00Z"),
            "{trigger:?} {is_same}"
        );
        assert_eq!(record.last_good_sync, last_good_sync, "a failure is no good sync");
        // History has the first failure in a row only.
        let events: &[&str] = if failures == 1 { &["failed"] } else { &[] };
        assert_eq!(environment.events(), events, "{trigger:?} {is_same}");
        assert_eq!(attempt.error, Some(format!("cannot download {LINK}?***: x")), "without the signature");
        assert!(environment.notes.iter().all(|note| *note == attempt.error), "{:?}", environment.notes);
        assert_eq!(environment.saved.last(), Some(&record));
    }
    let (sync_settings, mut environment) = (link_settings(), ScriptedEnvironment::new());
    environment.downloads.push_back(Ok(Ok(received(false))));
    environment.ingests.push_back(Ok(ingested(1)));
    let mut record = StoreRecord { last_attempt: Some(failed_attempt(&sync_settings, 2)), ..StoreRecord::default() };
    run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck).expect("the bundle is good");
    let attempt = record.last_attempt.as_ref().expect("the attempt is recorded");
    assert_eq!((attempt.result.as_str(), attempt.failures, attempt.wait), ("already current", 0, 0));
    assert_eq!(record.last_good_sync.as_deref(), Some("2026-11-20T12:00:00Z"));
}

#[test]
fn a_sync_that_is_disabled_postponed_or_cancelled_is_no_attempt() {
    let disabled = SyncSettings { enabled: false, ..link_settings() };
    let without_source = SyncSettings { bundle: None, ..link_settings() };
    for (name, sync_settings) in [
        ("disabled", disabled),
        ("without a source", without_source),
        ("postponed", api_settings()),
        ("cancelled", link_settings()),
    ] {
        let start = SourceEvent { source: API.to_owned(), pin: None, time: "2026-11-20T11:55:00Z".to_owned() };
        let before = StoreRecord {
            last_attempt: Some(failed_attempt(&sync_settings, 2)),
            last_start: Some(start),
            ..StoreRecord::default()
        };
        let mut record = before.clone();
        let mut environment = ScriptedEnvironment::new();
        environment.downloads.push_back(Err(SyncError::Cancelled));
        let result = run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::Start);
        let is_expected = match (name, &result) {
            ("disabled", Ok(report)) => report.outcome == SyncOutcome::Disabled,
            ("without a source", Ok(report)) => report.outcome == SyncOutcome::NoSource,
            ("postponed", Ok(report)) => report.postponed.is_some(),
            ("cancelled", Err(error)) => matches!(error, SyncError::Cancelled),
            _ => false,
        };
        assert!(is_expected, "{name}: {result:?}");
        assert_eq!(record, before, "{name}");
        assert_eq!((environment.saved.len(), environment.events().len()), (0, 0), "{name}");
    }
}

/// A configuration with a file alone.
fn file_settings() -> SyncSettings {
    SyncSettings { bundle: Some(BundleLocation::File("/b.zip".into())), ..link_settings() }
}

fn file_state(modified: i64) -> BundleFileState {
    BundleFileState { source: "/b.zip".to_owned(), size: 5, modified }
}

/// The check of the file as it was at second 7, with this result.
fn file_check(version: Option<VersionId>) -> BundleCheck {
    BundleCheck {
        source: "/b.zip".to_owned(),
        pin: None,
        demanded: None,
        size: 5,
        modified: 7,
        validator: None,
        sha256: Some(Digest::compute(b"archive").to_hex()),
        version,
        refusal: None,
    }
}

#[test]
fn an_absent_file_delays_no_restart_and_a_refusal_is_in_history_once() {
    let sync_settings = file_settings();
    let mut environment = ScriptedEnvironment::new();
    let mut record = StoreRecord::default();
    let error = run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::Start).expect_err("no file");
    assert!(matches!(error, SyncError::Missing { .. }), "{error:?}");
    let attempt = record.last_attempt.as_ref().expect("the attempt is recorded");
    assert_eq!((attempt.failures, attempt.wait), (1, 0), "a check for the file costs nothing");
    assert_eq!(environment.effects, ["event failed", "save"]);

    let mut environment = ScriptedEnvironment::new();
    environment.file_states.extend([file_state(7), file_state(7)]);
    environment.ingests.push_back(Err(refusal()));
    let error =
        run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck).expect_err("it is refused");
    assert!(error.is_refusal(), "{error:?}");
    assert_eq!(environment.effects, ["digest", "ingest", "event refused", "save"]);
    let attempt = record.last_attempt.as_ref().expect("the attempt is recorded");
    assert_eq!(environment.notes, [Some(refusal().to_string())], "with the reason");
    assert_eq!((attempt.failures, attempt.wait), (2, 3600), "the interval");

    let mut environment = ScriptedEnvironment::new();
    environment.file_states.push_back(file_state(7));
    let error =
        run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck).expect_err("still refused");
    assert!(matches!(error, SyncError::StillRefused(_)), "{error:?}");
    assert_eq!(environment.effects, ["save"], "the file is not read again");
}

#[test]
fn a_file_is_read_again_only_as_far_as_needed_and_only_a_refusal_is_remembered_as_one() {
    // A touched file: the bytes are the same, and the next check need not read them.
    let mut environment = ScriptedEnvironment { stored: vec![id(1)], ..ScriptedEnvironment::new() };
    environment.file_states.push_back(file_state(8));
    let mut record = StoreRecord { last_checked_bundle: Some(file_check(Some(id(1)))), ..StoreRecord::default() };
    run_sync(&mut environment, &mut record, &file_settings(), SyncTrigger::RegularCheck).expect("it is known");
    assert_eq!(environment.effects, ["digest", "offered again", "activate", "save"]);
    assert_eq!(record.last_checked_bundle, Some(BundleCheck { modified: 8, ..file_check(Some(id(1))) }));

    // A refresh, a lost version, and a failure of the disk.
    let disk_error = || SyncError::Store(StoreError::NoPrevious);
    let cases = [
        (SyncTrigger::Refresh, vec![id(1)], Ok(ingested(1)), Some(file_check(Some(id(1))))),
        (SyncTrigger::RegularCheck, Vec::new(), Ok(ingested(1)), Some(file_check(Some(id(1))))),
        (SyncTrigger::RegularCheck, Vec::new(), Err(disk_error()), None),
    ];
    for (n, (trigger, stored, result, expected)) in cases.into_iter().enumerate() {
        let mut environment = ScriptedEnvironment { stored, ..ScriptedEnvironment::new() };
        environment.file_states.push_back(file_state(7));
        let before = result.is_ok().then(|| file_check(Some(id(1))));
        environment.ingests.push_back(result);
        let mut record = StoreRecord { last_checked_bundle: before, ..StoreRecord::default() };
        let _ = run_sync(&mut environment, &mut record, &file_settings(), trigger);
        assert_eq!(environment.effects[..2], ["digest", "ingest"], "case {n}");
        assert_eq!(record.last_checked_bundle, expected, "case {n}");
    }

    // An archive with another digest than the demanded one is refused before it is sealed.
    let demanding = SyncSettings { sha256: Some(Digest::compute(b"another")), ..file_settings() };
    let mut environment = ScriptedEnvironment::new();
    environment.file_states.extend([file_state(7), file_state(7)]);
    let mut record = StoreRecord::default();
    let error = run_sync(&mut environment, &mut record, &demanding, SyncTrigger::RegularCheck).expect_err("refused");
    assert!(matches!(error, SyncError::WrongDigest { .. }), "{error:?}");
    assert_eq!(environment.effects, ["digest", "event refused", "save"]);
    assert!(record.last_checked_bundle.is_some_and(|check| check.version.is_none() && check.refusal.is_some()));

    // A refused file that has changed meanwhile is still being written.
    let mut environment = ScriptedEnvironment::new();
    environment.file_states.extend([file_state(7), file_state(8)]);
    environment.ingests.push_back(Err(refusal()));
    let mut record = StoreRecord::default();
    let error =
        run_sync(&mut environment, &mut record, &file_settings(), SyncTrigger::RegularCheck).expect_err("changed");
    assert!(matches!(error, SyncError::Changing { .. }), "{error:?}");
    assert_eq!(environment.effects, ["digest", "ingest", "save"], "it is not in history");
    assert_eq!(record.last_checked_bundle, None);
}

#[test]
fn a_link_beside_an_api_that_has_failed_is_used_again_only_when_it_is_a_fresh_one() {
    let with_link = |signature: &str| {
        let link = BundleLocation::Link(url(&format!("{LINK}?signature={signature}")));
        SyncSettings { bundle: Some(link), ..api_settings() }
    };
    let mut record = StoreRecord::default();
    let mut sync = |sync_settings: &SyncSettings| {
        let mut environment = ScriptedEnvironment::new();
        environment.downloads.push_back(Ok(Err(status_error(402))));
        environment.starts.push_back(Ok(Err(status_error(401))));
        let error =
            run_sync(&mut environment, &mut record, sync_settings, SyncTrigger::RegularCheck).expect_err("both fail");
        assert!(matches!(error, SyncError::Upstream { .. }), "{error:?}");
        environment
    };
    let (begin, download) = (format!("begin {LINK}, 0 known"), format!("download {LINK}"));
    let first = sync(&with_link("1"));
    assert_eq!(first.effects, [begin.as_str(), download.as_str(), "save", "save", "start", "event failed", "save"]);
    assert!(first.saved[0].tried_link.is_some(), "saved before the API is asked");
    assert_eq!(sync(&with_link("1")).effects, ["save", "start", "save"]);
    assert_eq!(sync(&with_link("2")).effects[..2], [begin.as_str(), download.as_str()]);
    assert_eq!(sync(&with_link("2")).effects, ["save", "start", "save"]);

    // A failure of this machine's disk says nothing about the link.
    let mut environment = ScriptedEnvironment::new();
    environment.downloads.push_back(Err(SyncError::Store(StoreError::NoPrevious)));
    let mut record = StoreRecord::default();
    let error =
        run_sync(&mut environment, &mut record, &with_link("1"), SyncTrigger::RegularCheck).expect_err("the disk");
    assert!(matches!(error, SyncError::Store(_)), "{error:?}");
    assert_eq!(environment.effects, [begin.as_str(), download.as_str(), "event failed", "save"]);
    assert_eq!(record.tried_link, None);
}
