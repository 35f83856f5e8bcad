//! The reason that the status gives for having no newer version.

use std::collections::BTreeMap;

use docwharf_agent::store::record::GateVerdict;
use docwharf_agent::sync::ActivationMode;
use docwharf_base::model::digest::Digest;

use super::*;

fn attempt(failures: u32) -> SyncAttempt {
    SyncAttempt {
        time: String::new(),
        result: String::new(),
        saw: Some("nothing new".to_owned()),
        error: None,
        failures,
        source_digest: String::new(),
        wait: 0,
    }
}

#[test]
fn status_reports_the_first_decisive_reason_for_no_newer_version() {
    let id = |n: u8| VersionId(Digest::compute(&[n]));
    let short = id(2).short();
    let refusal = GateVerdict {
        version: id(2),
        against: Some(id(1)),
        conditions_digest: String::new(),
        refused: Some("too few pages".to_owned()),
        time: String::new(),
        address_settings_digest: String::new(),
        links: BTreeMap::new(),
    };
    let hold = ActivationHold { author: "ann".to_owned(), when: String::new(), why: "release week".to_owned() };
    let mut record = StoreRecord {
        active: Some(id(1)),
        newest: Some(id(2)),
        gate: Some(refusal),
        hold: Some(hold),
        last_attempt: Some(attempt(1)),
        ..StoreRecord::default()
    };
    let mut sync_settings = SyncSettings { activation: ActivationMode::Manual, ..SyncSettings::default() };
    let error = Some("it is a file".to_owned());
    let directory = PathBuf::from("/inbox");
    let mut inbox = daemon_state::InboxState { directory, error, ..daemon_state::InboxState::default() };
    let held = "ann has stopped activation (release week): `docwharf release` ends that";
    assert_eq!(reason_for_no_update(&record, Some(&sync_settings), Some(&inbox)).as_deref(), Some(held));
    assert_eq!(reason_for_no_update(&record, None, None).as_deref(), Some(held));
    record.hold = None;
    assert_eq!(reason_for_no_update(&record, None, None), None);
    let person = format!("{short} waits for a person (activate.mode)");
    assert_eq!(reason_for_no_update(&record, Some(&sync_settings), Some(&inbox)), Some(person));
    sync_settings.activation = ActivationMode::Auto;
    let gate = format!("the gate refuses {short}: too few pages");
    assert_eq!(reason_for_no_update(&record, Some(&sync_settings), Some(&inbox)), Some(gate));
    record.gate = None;
    let disabled = "staticExport.enabled is false: the source is not checked";
    assert_eq!(reason_for_no_update(&record, Some(&sync_settings), Some(&inbox)).as_deref(), Some(disabled));
    sync_settings.enabled = true;
    let no_source = "no source is configured: versions arrive through `docwharf import`";
    for (error, through) in [
        (Some("it is a file".to_owned()), " only, because the inbox /inbox cannot be used"),
        (None, " and the inbox /inbox"),
    ] {
        inbox.error = error;
        let expected = format!("{no_source}{through}");
        assert_eq!(reason_for_no_update(&record, Some(&sync_settings), Some(&inbox)), Some(expected));
    }
    assert_eq!(reason_for_no_update(&record, Some(&sync_settings), None), Some(format!("{no_source} only")));
    sync_settings.bundle = Some(BundleLocation::File(PathBuf::from("/bundle.zip")));
    let reason =
        |record: &StoreRecord, sync_settings: &SyncSettings| reason_for_no_update(record, Some(sync_settings), None);
    assert_eq!(reason(&record, &sync_settings).as_deref(), Some("the last check failed"));
    record.last_attempt = Some(attempt(0));
    assert_eq!(reason(&record, &sync_settings).as_deref(), Some("nothing new"));
    sync_settings.pin = VersionLabel::new("1.4").ok();
    let pinned = format!("\"1.4\" is pinned (staticExport.version); {short} is newer");
    assert_eq!(reason(&record, &sync_settings), Some(pinned));
    record.newest = record.active;
    assert_eq!(reason(&record, &sync_settings).as_deref(), Some("nothing new"), "the newest version is active");
    record.last_attempt = None;
    assert_eq!(reason(&record, &sync_settings), None, "the source has not been checked");
}

#[test]
fn a_daemon_that_waits_for_a_first_bundle_in_its_inbox_has_that_as_the_next_step() {
    let mut sync_settings = SyncSettings { enabled: true, ..SyncSettings::default() };
    let inbox = daemon_state::InboxState { directory: PathBuf::from("/in"), ..daemon_state::InboxState::default() };
    let advice = |record: &StoreRecord, settings: &SyncSettings, inbox: &daemon_state::InboxState| {
        first_version_advice(record, Some(settings), Some(inbox))
    };
    let empty = StoreRecord::default();
    assert_eq!(advice(&empty, &sync_settings, &inbox).as_deref(), Some("copy a bundle to /in"));
    let unusable = daemon_state::InboxState { error: Some("it is a file".to_owned()), ..inbox.clone() };
    assert_eq!(advice(&empty, &sync_settings, &unusable), None);
    let filled = StoreRecord { newest: Some(VersionId(Digest::compute(b"a version"))), ..StoreRecord::default() };
    assert_eq!(advice(&filled, &sync_settings, &inbox), None);
    sync_settings.bundle = Some(BundleLocation::File(PathBuf::from("/bundle.zip")));
    assert_eq!(advice(&empty, &sync_settings, &inbox), None, "the source is checked");
}

#[test]
fn a_link_file_that_cannot_be_read_is_the_next_step_after_a_failure() {
    let mut sync_settings = SyncSettings::default();
    let doctor = "`docwharf doctor` checks what it needs, `docwharf sync` tries it at once";
    assert_eq!(advice_after_failure(Some(&sync_settings), false), doctor);
    assert_eq!(advice_after_failure(None, true), format!("it is tried again automatically; {doctor}"));
    let (file, error) = (PathBuf::from("/run/link"), "it is empty".to_owned());
    sync_settings.bundle = Some(BundleLocation::Unreadable { file, error });
    for (has_daemon, then) in [(true, "docwharf reads it again when it changes"), (false, "then `docwharf sync`")] {
        let expected = format!("put the link into /run/link; {then}");
        assert_eq!(advice_after_failure(Some(&sync_settings), has_daemon), expected);
    }
}
