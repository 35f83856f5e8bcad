//! Downloads: renewed links, the received part, known bundles, and labels.

use std::collections::BTreeMap;

use super::*;
use crate::store::StoreError;
use crate::store::record::{BundleCheck, JobRecord, LabelledVersion};
use crate::sync::plan::SyncTrigger;
use crate::sync::run::run_sync;
use docwharf_base::model::units::format_unix_seconds;
use docwharf_base::model::version::VersionLabel;

/// A record with the job `j1` of [`API`], which was started a second ago.
fn record_with_job() -> StoreRecord {
    let (id, source, started) = ("j1".to_owned(), API.to_owned(), format_unix_seconds(NOON - 1));
    let job = JobRecord { id, source, pin: None, started, probes: BTreeMap::new() };
    StoreRecord { job: Some(job), ..StoreRecord::default() }
}

/// An environment with a completed job and this number of links.
fn environment_with_links(links: usize) -> ScriptedEnvironment {
    let mut environment = ScriptedEnvironment::new();
    environment.polls.push_back(Ok(Ok(job_state("completed", 100.0))));
    environment.links.extend((1..=links).map(|n| Ok(Ok(signed_link(n, None)))));
    environment
}

fn expired() -> RequestError {
    status_error(403)
}

#[test]
fn an_expired_link_is_renewed_three_times_and_after_the_first_time_with_a_pause() {
    let mut environment = environment_with_links(4);
    environment.downloads.extend((0..4).map(|_| Ok(Err(expired()))));
    let mut record = record_with_job();
    let error =
        run_sync(&mut environment, &mut record, &api_settings(), SyncTrigger::RegularCheck).expect_err("expired");
    assert!(matches!(error, SyncError::Download { key: None, .. }), "{error:?}");
    let begin = format!("begin {API}, 0 known");
    let expected = [
        "poll j1",
        begin.as_str(),
        "link of j1",
        "download https://bucket.example/1",
        "link of j1",
        "download https://bucket.example/2",
        "wait 750 ms",
        "link of j1",
        "download https://bucket.example/3",
        "wait 1500 ms",
        "link of j1",
        "download https://bucket.example/4",
        "event failed",
        "save",
    ];
    assert_eq!(environment.effects, expected);
    assert_eq!(record.job, record_with_job().job, "the job is continued by the next sync");
}

#[test]
fn links_and_attempts_are_counted_from_zero_after_progress() {
    let cut = || Ok(Err(request_error(RequestErrorCause::NoUsableResponse)));
    let mut environment = environment_with_links(5);
    environment.downloads.extend([
        Ok(Err(expired())),
        Ok(Err(expired())),
        Ok(Err(expired())),
        Ok(Err(expired())),
        Ok(Ok(received(false))),
    ]);
    environment.progress = [false, false, false, true].into();
    environment.ingests.push_back(Ok(ingested(1)));
    run_sync(&mut environment, &mut record_with_job(), &api_settings(), SyncTrigger::RegularCheck).expect("it arrives");
    assert_eq!(environment.count("link of j1"), 5);
    let last = environment.effects.iter().rposition(|effect| effect == "link of j1").expect("a link");
    assert_eq!(environment.effects[last - 1], "download https://bucket.example/4", "without a pause");

    let mut environment = environment_with_links(1);
    environment.downloads.extend([cut(), cut(), cut(), cut(), cut(), Ok(Ok(received(false)))]);
    environment.progress = [false, false, false, false, true].into();
    environment.ingests.push_back(Ok(ingested(1)));
    run_sync(&mut environment, &mut record_with_job(), &api_settings(), SyncTrigger::RegularCheck).expect("it arrives");
    let waits: Vec<_> = environment.effects.iter().filter(|effect| effect.starts_with("wait ")).collect();
    assert_eq!(waits, ["wait 750 ms", "wait 1500 ms", "wait 3000 ms", "wait 6000 ms", "wait 750 ms"]);
}

#[test]
fn a_part_stays_for_the_next_sync_unless_it_fits_nowhere() {
    for (cause, attempts, is_discarded) in [
        (RequestErrorCause::NoUsableResponse, 5, false),
        (RequestErrorCause::NotConnected, 5, false),
        (RequestErrorCause::Status(402), 1, false),
        (RequestErrorCause::Status(403), 1, false),
        (RequestErrorCause::Disk, 1, true),
        (RequestErrorCause::TooLarge, 1, true),
    ] {
        let mut environment = ScriptedEnvironment::new();
        environment.downloads.extend((0..attempts).map(|_| Ok(Err(request_error(cause)))));
        let mut record = StoreRecord::default();
        let error =
            run_sync(&mut environment, &mut record, &link_settings(), SyncTrigger::RegularCheck).expect_err("x");
        assert!(matches!(error, SyncError::Download { signed: true, key: Some(BUNDLE_URL_KEY), .. }), "{error:?}");
        assert_eq!(environment.count("discard"), usize::from(is_discarded), "{cause:?}");
        assert_eq!(record.last_checked_bundle, None, "{cause:?}: no bundle was checked");
    }
}

#[test]
fn a_received_bundle_is_discarded_once_it_is_sealed_or_refused_but_not_when_the_sync_is_cancelled() {
    let cases = [
        ("sealed", Ok(ingested(1)), 1, true),
        ("refused", Err(refusal()), 1, true),
        ("disk", Err(SyncError::Store(StoreError::NoPrevious)), 1, false),
        ("cancelled", Err(SyncError::Cancelled), 0, false),
    ];
    for (name, result, discards, is_checked) in cases {
        let version = result.as_ref().ok().map(|ingested| ingested.id);
        let is_good = result.is_ok();
        let mut environment = ScriptedEnvironment::new();
        environment.downloads.push_back(Ok(Ok(received(false))));
        environment.ingests.push_back(result);
        let mut record = StoreRecord::default();
        let ended = run_sync(&mut environment, &mut record, &link_settings(), SyncTrigger::RegularCheck);
        assert_eq!(ended.is_ok(), is_good, "{name}");
        assert_eq!(environment.count("discard"), discards, "{name}");
        let check =
            record.last_checked_bundle.map(|BundleCheck { source, size, validator, version, refusal, .. }| {
                (source, size, validator, version, refusal.is_some())
            });
        let expected = (LINK.to_owned(), 7, Some("\"v\"".to_owned()), version, !is_good);
        assert_eq!(check, is_checked.then_some(expected), "{name}");
    }
    // A power cut may have damaged the part that an earlier process received.
    let mut environment = ScriptedEnvironment::new();
    environment.downloads.extend([Ok(Ok(received(true))), Ok(Ok(received(false)))]);
    environment.ingests.extend([Err(refusal()), Ok(ingested(1))]);
    let mut record = StoreRecord::default();
    run_sync(&mut environment, &mut record, &link_settings(), SyncTrigger::RegularCheck)
        .expect("the second time it is good");
    let download = format!("download {LINK}");
    let expected = [download.as_str(), "ingest", "discard", download.as_str(), "ingest", "discard", "activate", "save"];
    assert_eq!(environment.effects[1..], expected);
}

#[test]
fn a_label_is_given_to_a_bundle_that_the_server_still_has() {
    let labelled = |n: u8, source: &str| LabelledVersion {
        version: id(n),
        source: source.to_owned(),
        sha256: None,
        time: "2026-11-20T12:00:00Z".to_owned(),
    };
    // The label before, and how often the record is saved.
    let cases =
        [(None, 2), (Some(labelled(1, LINK)), 1), (Some(labelled(2, LINK)), 2), (Some(labelled(1, "other")), 2)];
    for (n, (before, saves)) in cases.into_iter().enumerate() {
        let sync_settings = SyncSettings { pin: VersionLabel::new("L").ok(), ..link_settings() };
        let mut environment =
            ScriptedEnvironment { known: vec![(validator(), Some(id(1)))], ..ScriptedEnvironment::new() };
        environment.downloads.push_back(Ok(Ok(DownloadResult::Unchanged(validator()))));
        let labels = before.into_iter().map(|label| ("L".to_owned(), label)).collect();
        let mut record = StoreRecord { labels, ..StoreRecord::default() };
        run_sync(&mut environment, &mut record, &sync_settings, SyncTrigger::RegularCheck)
            .expect("the bundle is known");
        assert_eq!(record.labels.get("L"), Some(&labelled(1, LINK)), "case {n}");
        assert_eq!((environment.count("offered again"), environment.count("save")), (1, saves), "case {n}");
    }
}

#[test]
fn a_refused_bundle_is_downloaded_again_once_its_cause_may_have_been_corrected() {
    for (trigger, known) in [
        (SyncTrigger::Start, 2),
        (SyncTrigger::RegularCheck, 2),
        (SyncTrigger::Corrected, 1),
        (SyncTrigger::Signal, 1),
        (SyncTrigger::Command, 1),
        (SyncTrigger::Refresh, 0),
    ] {
        let refused = BundleValidator { validator: "\"refused\"".to_owned(), size: 8 };
        let mut environment = ScriptedEnvironment {
            known: vec![(validator(), Some(id(1))), (refused.clone(), None)],
            ..ScriptedEnvironment::new()
        };
        environment.downloads.push_back(Ok(Ok(DownloadResult::Unchanged(refused))));
        let mut record = StoreRecord::default();
        let error = run_sync(&mut environment, &mut record, &link_settings(), trigger).expect_err("still refused");
        assert!(matches!(error, SyncError::StillRefused(_)), "{error:?}");
        assert_eq!(environment.effects[0], format!("begin {LINK}, {known} known"), "{trigger:?}");
    }
}
