//! `state.json`: the record of a store. It is replaced by rename. It never contains a link. The pin in force is read
//! from the configuration; the record only notes the pin of past checks and jobs. `types` has its fields, `encoding`
//! its text; the rules by which it changes are here.

mod encoding;
mod types;

use docwharf_base::model::version::VersionId;

pub(super) use encoding::{DecodeError, decode, encode};
pub use types::{
    ActivationHold, BundleCheck, GateVerdict, JobRecord, LabelledVersion, OfferedVersion, ProbeBackOff, ProbeResult,
    SCHEMA_VERSION, SourceEvent, SourceProbes, StoreRecord, SyncAttempt,
};

impl StoreRecord {
    /// Makes `id` the active version; the one that was active becomes the previous one.
    pub fn activate(&mut self, id: VersionId, now: &str) {
        if self.active != Some(id) {
            self.previous = self.active.or(self.previous);
            self.active = Some(id);
            self.active_since = Some(now.to_owned());
        }
    }

    /// The version that should be active. Under a hold the active version. With a pin the version with that label;
    /// while no version has it, the active one. Without a pin the newest, or the active one if there is no newest.
    pub fn target_version(&self, pin: Option<&str>) -> Option<VersionId> {
        if self.hold.is_some() {
            return self.active;
        }
        match pin {
            Some(label) => self.labels.get(label).map(|l| l.version).or(self.active),
            None => self.newest.or(self.active),
        }
    }

    /// The version that waits to become active, whether for the end of a hold, for the gate, for a person or for the
    /// next check: with a pin the version with that label, without a pin the newest; `None` if there is none or it is
    /// active.
    pub fn waiting_version(&self, pin: Option<&str>) -> Option<VersionId> {
        let next = match pin {
            Some(label) => self.labels.get(label).map(|labelled| labelled.version),
            None => self.newest,
        };
        next.filter(|&id| self.active != Some(id))
    }

    /// Copies from `stored` the fields that people, and the daemon on their behalf, may change during a sync.
    pub fn copy_decisions(&mut self, stored: &StoreRecord) {
        self.active = stored.active;
        self.active_since.clone_from(&stored.active_since);
        self.previous = stored.previous;
        self.hold.clone_from(&stored.hold);
        self.config_error.clone_from(&stored.config_error);
        let time = |verdict: &Option<GateVerdict>| verdict.as_ref().map(|verdict| verdict.time.clone());
        if time(&stored.gate) > time(&self.gate) {
            self.gate.clone_from(&stored.gate);
        }
    }

    /// Makes the job at `source` the current one; a job at another source is stored in `jobs_elsewhere`.
    pub fn switch_job_source(&mut self, source: &str) {
        self.jobs_elsewhere.extend(self.job.take_if(|job| job.source != source));
        if self.job.is_none()
            && let Some(index) = self.jobs_elsewhere.iter().position(|job| job.source == source)
        {
            self.job = Some(self.jobs_elsewhere.remove(index));
        }
    }

    /// Records that a check of `source` has found `version`. If the source had another version before, this one becomes
    /// the newest, also if the source has returned to an earlier version. If the source has not changed, a version
    /// that was imported after the previous check stays the newest as long as it is stored, unless `is_refresh`: a
    /// person has requested the source's version.
    pub fn note_offered(
        &mut self,
        source: &str,
        version: VersionId,
        is_refresh: bool,
        is_stored: impl Fn(VersionId) -> bool,
    ) {
        let offered = OfferedVersion { source: source.to_owned(), version };
        let is_unchanged = self.offered.as_ref() == Some(&offered);
        self.offered = Some(offered);
        if is_refresh || !is_unchanged || !self.newest.is_some_and(is_stored) {
            self.newest = Some(version);
        }
    }

    /// The version that the source had at the last check.
    pub fn offered_version(&self) -> Option<VersionId> {
        self.offered.as_ref().map(|offered| offered.version)
    }

    /// Whether pruning must not remove this version, independent of `keep`.
    pub fn protects(&self, id: VersionId) -> bool {
        self.active == Some(id)
            || self.previous == Some(id)
            || self.newest == Some(id)
            || self.labels.values().any(|labelled| labelled.version == id)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::compute(&[n]))
    }

    #[test]
    fn hold_beats_pin_and_pin_beats_newest() {
        let mut record = StoreRecord::default();
        record.activate(id(1), "t");
        record.newest = Some(id(2));
        assert_eq!(record.target_version(None), Some(id(2)));
        assert_eq!(record.target_version(Some("L")), Some(id(1)), "until the label exists, the active version stays");
        let labelled = LabelledVersion { version: id(3), source: String::new(), sha256: None, time: String::new() };
        record.labels.insert("L".into(), labelled);
        assert_eq!(record.target_version(Some("L")), Some(id(3)));
        record.hold = Some(ActivationHold { author: "me".into(), when: "t".into(), why: "x".into() });
        assert_eq!(record.target_version(Some("L")), Some(id(1)));
    }

    #[test]
    fn waiting_version_is_the_version_that_would_be_active_without_a_hold() {
        let mut record = StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        assert_eq!(record.waiting_version(None), Some(id(2)), "no version is active yet");
        record.activate(id(1), "t");
        record.hold = Some(ActivationHold { author: "me".into(), when: "t".into(), why: "x".into() });
        assert_eq!(record.waiting_version(None), Some(id(2)));
        assert_eq!(record.waiting_version(Some("L")), None, "until the label exists, no version waits");
        let labelled = LabelledVersion { version: id(3), source: String::new(), sha256: None, time: String::new() };
        record.labels.insert("L".into(), labelled);
        assert_eq!(record.waiting_version(Some("L")), Some(id(3)));
        record.activate(id(2), "t");
        assert_eq!(record.waiting_version(None), None);
    }

    #[test]
    fn decision_made_during_a_sync_is_preserved() {
        let mut syncing = StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        syncing.activate(id(2), "t");
        let mut now = StoreRecord { newest: Some(id(1)), ..StoreRecord::default() };
        now.activate(id(1), "u");
        now.hold = Some(ActivationHold { author: "me".into(), when: "u".into(), why: "x".into() });
        syncing.copy_decisions(&now);
        assert_eq!(
            (syncing.active, syncing.newest, syncing.target_version(None)),
            (Some(id(1)), Some(id(2)), Some(id(1)))
        );
        assert_eq!(syncing.active_since.as_deref(), Some("u"));
        // A hold that was released and an error that was corrected meanwhile do not come back.
        let mut syncing = StoreRecord { config_error: Some("x".to_owned()), ..syncing };
        assert!(syncing.hold.is_some());
        now.hold = None;
        syncing.copy_decisions(&now);
        assert_eq!((syncing.hold, syncing.config_error), (None, None));
    }

    #[test]
    fn imported_version_stays_the_newest_until_the_source_changes() {
        let mut record = StoreRecord::default();
        let check = |record: &mut StoreRecord, n| {
            record.note_offered("s", id(n), false, |_| true);
            record.newest
        };
        assert_eq!(check(&mut record, 1), Some(id(1)));
        assert_eq!(check(&mut record, 2), Some(id(2)));
        assert_eq!(check(&mut record, 1), Some(id(1)), "the source returns to an earlier version");
        record.newest = Some(id(9));
        assert_eq!(check(&mut record, 1), Some(id(9)), "it has not changed since the import");
        assert_eq!(check(&mut record, 2), Some(id(2)), "it has changed");
        record.newest = Some(id(9));
        record.note_offered("other", id(2), false, |_| true);
        assert_eq!(record.newest, Some(id(2)), "another source is configured");
        record.newest = Some(id(9));
        record.note_offered("other", id(2), false, |_| false);
        assert_eq!(record.newest, Some(id(2)), "the imported version is not stored any more");
        record.newest = Some(id(9));
        record.note_offered("other", id(2), true, |_| true);
        assert_eq!(record.newest, Some(id(2)), "a person demands the source's version");
    }

    #[test]
    fn reactivating_the_active_version_does_not_change_the_previous_one() {
        let mut record = StoreRecord::default();
        record.activate(id(1), "t");
        record.activate(id(2), "t");
        record.activate(id(2), "t");
        assert_eq!((record.active, record.previous), (Some(id(2)), Some(id(1))));
    }

    // Regression: a source that was removed from the configuration and added again lost its running job, and a second
    // one was started.
    #[test]
    fn job_is_restored_when_its_source_is_configured_again() {
        let job = |source: &str| {
            let (id, started) = (format!("job of {source}"), String::new());
            JobRecord { id, source: source.into(), pin: None, started, probes: BTreeMap::new() }
        };
        let mut record = StoreRecord { job: Some(job("a")), ..StoreRecord::default() };
        record.switch_job_source("a");
        assert_eq!(record.job, Some(job("a")));
        record.switch_job_source("b");
        assert_eq!((&record.job, record.jobs_elsewhere.len()), (&None, 1));
        record.job = Some(job("b"));
        record.switch_job_source("a");
        assert_eq!((record.job, record.jobs_elsewhere), (Some(job("a")), vec![job("b")]));
    }

    #[test]
    fn activation_sets_its_time_and_the_previous_version() {
        let mut record = StoreRecord { previous: Some(id(9)), ..StoreRecord::default() };
        let fields =
            |record: &StoreRecord| (record.active, record.active_since.clone().unwrap_or_default(), record.previous);
        record.activate(id(1), "1");
        assert_eq!(fields(&record), (Some(id(1)), "1".to_owned(), Some(id(9))), "no version was active before");
        record.activate(id(1), "2");
        assert_eq!(fields(&record), (Some(id(1)), "1".to_owned(), Some(id(9))));
        record.activate(id(2), "3");
        assert_eq!(fields(&record), (Some(id(2)), "3".to_owned(), Some(id(1))));
    }

    #[test]
    fn protected_versions_are_active_previous_newest_or_labelled_but_not_only_offered() {
        let labelled = LabelledVersion { version: id(4), source: String::new(), sha256: None, time: String::new() };
        let record = StoreRecord {
            active: Some(id(1)),
            previous: Some(id(2)),
            newest: Some(id(3)),
            labels: BTreeMap::from([("L".to_owned(), labelled)]),
            offered: Some(OfferedVersion { source: "s".to_owned(), version: id(5) }),
            ..StoreRecord::default()
        };
        assert_eq!([1, 2, 3, 4, 5, 6].map(|n| record.protects(id(n))), [true, true, true, true, false, false]);
        assert_eq!((record.offered_version(), StoreRecord::default().offered_version()), (Some(id(5)), None));
        assert_eq!(StoreRecord::default().target_version(None), None);
        assert_eq!(
            StoreRecord { newest: None, ..record }.target_version(None),
            Some(id(1)),
            "there is no newer version"
        );
    }

    #[test]
    fn copy_decisions_takes_the_later_gate_verdict_and_preserves_sync_results() {
        let verdict = |time: &str, conditions_digest: &str| GateVerdict {
            version: id(1),
            against: None,
            conditions_digest: conditions_digest.to_owned(),
            refused: None,
            time: time.to_owned(),
            address_settings_digest: String::new(),
            links: BTreeMap::new(),
        };
        let cases = [
            (Some("1"), Some("2"), Some("now")),
            (Some("2"), Some("2"), Some("syncing")),
            (Some("3"), Some("2"), Some("syncing")),
            (None, Some("2"), Some("now")),
            (Some("1"), None, Some("syncing")),
            (None, None, None),
        ];
        for (own_time, stored_time, expected) in cases {
            let gate = own_time.map(|time| verdict(time, "syncing"));
            let mut syncing = StoreRecord {
                gate,
                newest: Some(id(2)),
                last_good_sync: Some("g".to_owned()),
                ..StoreRecord::default()
            };
            let config_error = Some("x".to_owned());
            let previous = Some(id(7));
            let gate = stored_time.map(|time| verdict(time, "now"));
            syncing.copy_decisions(&StoreRecord { previous, config_error, gate, ..StoreRecord::default() });
            assert_eq!(
                syncing.gate.map(|gate| gate.conditions_digest).as_deref(),
                expected,
                "{own_time:?}, {stored_time:?}"
            );
            assert_eq!((syncing.config_error.as_deref(), syncing.previous), (Some("x"), Some(id(7))));
            assert_eq!((syncing.newest, syncing.last_good_sync.as_deref()), (Some(id(2)), Some("g")));
        }
    }
}
