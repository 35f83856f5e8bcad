//! `state.json`: the one record. It is written by rename and read as a whole. It never contains a link or the
//! configured pin.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use docwharf_base::model::digest::Digest;
use docwharf_base::model::version::VersionId;

use super::json;

/// The `schemaVersion` that is written. A record with a later one is refused: its unknown fields would be lost at the
/// next write.
pub const SCHEMA_VERSION: u32 = 2;

/// Beginning of the last line, a checksum of the bytes before it. It detects a disk that changes a bit of a label or an
/// id, which would change the version that is served.
const SUM: &str = ",\n  \"sum\": \"";

/// Encodes the record with its checksum.
pub(super) fn encode(record: &StoreRecord) -> Vec<u8> {
    let mut bytes = json::encode(record);
    // "\n}\n"
    bytes.truncate(bytes.len() - 3);
    let sum = sum(&bytes);
    bytes.extend_from_slice(format!("{SUM}{sum}\"\n}}\n").as_bytes());
    bytes
}

/// The reason why the file contains no record.
#[derive(Debug)]
pub(super) enum DecodeError {
    /// The content does not parse, or its checksum is wrong.
    Damaged(serde_json::Error),
    /// A later docwharf has written it, with this `schemaVersion`.
    Later(u32),
}

/// The field that the file has in every schema version.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Schema {
    schema_version: u32,
}

/// Decodes the file. One without a checksum was written by hand, or by a docwharf before 0.1.
pub(super) fn decode(bytes: &[u8]) -> Result<StoreRecord, DecodeError> {
    check_sum(bytes).map_err(DecodeError::Damaged)?;
    let schema: Schema = serde_json::from_slice(bytes).map_err(DecodeError::Damaged)?;
    if schema.schema_version > SCHEMA_VERSION {
        return Err(DecodeError::Later(schema.schema_version));
    }
    let mut record: StoreRecord = serde_json::from_slice(bytes).map_err(DecodeError::Damaged)?;
    if schema.schema_version < 2 {
        // Schema 1 did not store the offered version: the bundle that was checked last came from the source.
        let looked = record.looked.as_ref();
        let offered =
            looked.and_then(|looked| Some(OfferedVersion { source: looked.source.clone(), version: looked.version? }));
        record.offered = offered;
    }
    record.schema_version = SCHEMA_VERSION;
    Ok(record)
}

fn check_sum(bytes: &[u8]) -> Result<(), serde_json::Error> {
    if let Some(end) = memchr::memmem::rfind(bytes, SUM.as_bytes()) {
        let said = bytes[end + SUM.len()..].split(|&byte| byte == b'"').next();
        if said != Some(sum(&bytes[..end]).as_bytes()) {
            return Err(serde::de::Error::custom("its checksum (\"sum\") is of another content"));
        }
    }
    Ok(())
}

/// The first 16 hex digits of the SHA-256.
fn sum(bytes: &[u8]) -> String {
    let mut digits = Digest::of(bytes).hex();
    digits.truncate(16);
    digits
}

/// The state of a store besides its versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreRecord {
    /// [`SCHEMA_VERSION`]; it is raised when a field gets another meaning.
    pub schema_version: u32,
    /// The version that is served.
    #[serde(default)]
    pub active: Option<VersionId>,
    /// Since when `active` is active, RFC 3339.
    #[serde(default)]
    pub active_since: Option<String>,
    /// The version that was active before.
    #[serde(default)]
    pub previous: Option<VersionId>,
    /// The version that arrived last, from a source that has changed or by hand, whether or not it was activated.
    #[serde(default)]
    pub newest: Option<VersionId>,
    /// The version that the source had at the last successful check.
    #[serde(default)]
    pub offered: Option<OfferedVersion>,
    /// The hold, which stops automatic activation.
    #[serde(default)]
    pub hold: Option<ActivationHold>,
    /// The labels and their versions.
    #[serde(default)]
    pub labels: BTreeMap<String, LabelledVersion>,
    /// The bundle that was checked last.
    #[serde(default)]
    pub looked: Option<BundleCheck>,
    /// The last attempt to sync.
    #[serde(default)]
    pub last_attempt: Option<SyncAttempt>,
    /// Time of the last successful sync whose source or probes could be read, RFC 3339.
    #[serde(default)]
    pub last_good: Option<String>,
    /// The last success of an export: the API gave a bundle that was accepted or is known already.
    #[serde(default)]
    pub last_success: Option<SourceEvent>,
    /// The export job of the current source that has not yet given a bundle.
    #[serde(default)]
    pub job: Option<JobRecord>,
    /// Export jobs at sources that are not configured now; such a source finds its job when it is configured again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs_elsewhere: Vec<JobRecord>,
    /// The last start of an export job.
    #[serde(default)]
    pub last_start: Option<SourceEvent>,
    /// The probe results that belong to the bundle that was checked last.
    #[serde(default)]
    pub probed: Option<SourceProbes>,
    /// Probes whose servers sent Retry-After, by key of the probe.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub busy: BTreeMap<String, ProbeBackOff>,
    /// Digest of the bundle's link or path that failed while the store was empty; it is not tried again.
    #[serde(default)]
    pub tried_link: Option<String>,
    /// The error of a new configuration that was rejected on reload; the previous configuration is in force.
    #[serde(default)]
    pub config_error: Option<String>,
    /// The last verdict of the gate.
    #[serde(default)]
    pub gate: Option<GateVerdict>,
}

impl Default for StoreRecord {
    fn default() -> Self {
        StoreRecord {
            schema_version: SCHEMA_VERSION,
            active: None,
            active_since: None,
            previous: None,
            newest: None,
            offered: None,
            hold: None,
            labels: BTreeMap::new(),
            looked: None,
            last_attempt: None,
            last_good: None,
            last_success: None,
            job: None,
            jobs_elsewhere: Vec::new(),
            last_start: None,
            probed: None,
            busy: BTreeMap::new(),
            tried_link: None,
            config_error: None,
            gate: None,
        }
    }
}

/// The gate's verdict on a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateVerdict {
    /// The version that was checked.
    pub version: VersionId,
    /// The version that was active then.
    #[serde(default)]
    pub against: Option<VersionId>,
    /// A digest of the rules that were applied.
    pub rules: String,
    /// The reason why the version does not become active by itself; none if it may.
    #[serde(default)]
    pub refused: Option<String>,
    /// Time of the verdict, RFC 3339.
    pub time: String,
    /// A digest of the rules by which addresses were resolved when links were counted.
    #[serde(default)]
    pub addresses: String,
    /// Number of broken links, by version.
    #[serde(default)]
    pub links: BTreeMap<VersionId, u64>,
}

/// A hold: it stops automatic activation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivationHold {
    /// The user who set the hold.
    pub who: String,
    /// Time at which it was set, RFC 3339.
    pub when: String,
    /// The reason.
    pub why: String,
}

/// The version that a label names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelledVersion {
    /// The version's id.
    pub version: VersionId,
    /// The source of the version, without a link's query.
    pub source: String,
    /// SHA-256 of the archive that the version came in.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Time at which the label was set, RFC 3339.
    pub time: String,
}

/// The last check of a bundle and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleCheck {
    /// The source, without a link's query.
    pub source: String,
    /// The label that was requested.
    pub label: Option<String>,
    /// The SHA-256 that was demanded of the archive.
    pub demanded: Option<String>,
    /// Size of the archive in bytes.
    pub size: u64,
    /// Modification time of a file, in nanoseconds since 1970; 0 for a link.
    pub modified: i64,
    /// The validator that a link's server sent.
    #[serde(default)]
    pub validator: Option<String>,
    /// SHA-256 of the archive.
    pub sha256: Option<String>,
    /// The version in the bundle; none if the bundle was refused.
    pub version: Option<VersionId>,
    /// The reason why it was refused.
    #[serde(default)]
    pub refusal: Option<String>,
}

/// A version that a source offers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OfferedVersion {
    /// The source, without a link's query.
    pub source: String,
    /// The version's id.
    pub version: VersionId,
}

/// An attempt to sync and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncAttempt {
    /// Time of its end, RFC 3339.
    pub time: String,
    /// The result: `activated`, `already current`, `staged`, `not activated`, `probes unreadable` or `failed`.
    pub result: String,
    /// A short description of what the sync found.
    #[serde(default)]
    pub saw: Option<String>,
    /// The error, on one line.
    #[serde(default)]
    pub error: Option<String>,
    /// Failures in a row, including this one.
    #[serde(default)]
    pub failures: u32,
    /// A digest of the sync's configuration: when it changes, failures are counted from zero.
    #[serde(default)]
    pub question: String,
    /// Back-off in seconds until the next attempt.
    #[serde(default)]
    pub wait: u64,
}

/// An event of a source under a pin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceEvent {
    /// The source, without a link's query.
    pub source: String,
    /// The pin in force.
    #[serde(default)]
    pub pin: Option<String>,
    /// Time of the event, RFC 3339.
    pub time: String,
}

/// An export job that this store has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JobRecord {
    /// The job's id, as the API gave it.
    pub id: String,
    /// The source: base URL and domain.
    pub source: String,
    /// The label that the job was started for.
    #[serde(default)]
    pub pin: Option<String>,
    /// Time of the start, RFC 3339.
    pub started: String,
    /// The probe results from just before the start, if the probes were read.
    #[serde(default)]
    pub probes: BTreeMap<String, ProbeResult>,
}

/// The results of a source's probes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SourceProbes {
    /// The source: base URL and domain.
    pub source: String,
    /// Results by key of the probe: its URL without the query, with a digest of the query.
    pub probes: BTreeMap<String, ProbeResult>,
}

/// The back-off that a server demands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeBackOff {
    /// Its beginning, RFC 3339.
    pub since: String,
    /// Its length in seconds.
    pub wait: u64,
}

/// The result of reading a probe.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProbeResult {
    /// SHA-256 of the body.
    pub sha256: String,
    /// The response's `ETag`.
    #[serde(default)]
    pub etag: Option<String>,
    /// The response's Last-Modified.
    #[serde(default)]
    pub last_modified: Option<String>,
}

impl StoreRecord {
    /// Makes `id` the active version; the one that was active becomes the previous one.
    pub fn activate(&mut self, id: VersionId, now: &str) {
        if self.active != Some(id) {
            self.previous = self.active.or(self.previous);
            self.active = Some(id);
            self.active_since = Some(now.to_owned());
        }
    }

    /// The version that should be active: under a hold the active one, else the pinned one (if the label exists), else
    /// the newest.
    pub fn due(&self, pin: Option<&str>) -> Option<VersionId> {
        if self.hold.is_some() {
            return self.active;
        }
        match pin {
            Some(label) => self.labels.get(label).map(|l| l.version).or(self.active),
            None => self.newest.or(self.active),
        }
    }

    /// The version that is to be active next, if it is not active: the pinned one, else the newest. Under a hold it
    /// waits.
    pub fn waiting(&self, pin: Option<&str>) -> Option<VersionId> {
        let next = match pin {
            Some(label) => self.labels.get(label).map(|labelled| labelled.version),
            None => self.newest,
        };
        next.filter(|&id| self.active != Some(id))
    }

    /// Takes over from `now` the fields that people, and the daemon on their behalf, may change during a sync.
    pub fn adopt_decisions(&mut self, now: &StoreRecord) {
        self.active = now.active;
        self.active_since.clone_from(&now.active_since);
        self.previous = now.previous;
        self.hold.clone_from(&now.hold);
        self.config_error.clone_from(&now.config_error);
        let time = |verdict: &Option<GateVerdict>| verdict.as_ref().map(|verdict| verdict.time.clone());
        if time(&now.gate) > time(&self.gate) {
            self.gate.clone_from(&now.gate);
        }
    }

    /// Makes the job at `source` the current one; a job at another source is set aside.
    pub fn switch_job_source(&mut self, source: &str) {
        self.jobs_elsewhere.extend(self.job.take_if(|job| job.source != source));
        if self.job.is_none()
            && let Some(at) = self.jobs_elsewhere.iter().position(|job| job.source == source)
        {
            self.job = Some(self.jobs_elsewhere.remove(at));
        }
    }

    /// Records that a check of `source` has found `version`. If the source had another version before, this one becomes
    /// the newest, also if the source goes back to an earlier one. If the source has not changed, a version imported
    /// since stays the newest as long as it is stored, unless the source's version is `demanded`.
    pub fn note_offered(
        &mut self,
        source: &str,
        version: VersionId,
        demanded: bool,
        is_stored: impl Fn(VersionId) -> bool,
    ) {
        let offered = OfferedVersion { source: source.to_owned(), version };
        let is_unchanged = self.offered.as_ref() == Some(&offered);
        self.offered = Some(offered);
        if demanded || !is_unchanged || !self.newest.is_some_and(is_stored) {
            self.newest = Some(version);
        }
    }

    /// The version that the source had at the last check.
    pub fn offered_version(&self) -> Option<VersionId> {
        self.offered.as_ref().map(|offered| offered.version)
    }

    /// Whether pruning must keep this version, whatever `keep` says.
    pub fn protects(&self, id: VersionId) -> bool {
        self.active == Some(id)
            || self.previous == Some(id)
            || self.newest == Some(id)
            || self.labels.values().any(|labelled| labelled.version == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::of(&[n]))
    }

    #[test]
    fn hold_beats_pin_and_pin_beats_newest() {
        let mut record = StoreRecord::default();
        record.activate(id(1), "t");
        record.newest = Some(id(2));
        assert_eq!(record.due(None), Some(id(2)));
        assert_eq!(record.due(Some("L")), Some(id(1)), "until the label is there, the active version stays");
        let labelled = LabelledVersion { version: id(3), source: String::new(), sha256: None, time: String::new() };
        record.labels.insert("L".into(), labelled);
        assert_eq!(record.due(Some("L")), Some(id(3)));
        record.hold = Some(ActivationHold { who: "me".into(), when: "t".into(), why: "x".into() });
        assert_eq!(record.due(Some("L")), Some(id(1)));
    }

    #[test]
    fn what_waits_is_what_would_be_active_without_a_hold() {
        let mut record = StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        assert_eq!(record.waiting(None), Some(id(2)), "nothing is active yet");
        record.activate(id(1), "t");
        record.hold = Some(ActivationHold { who: "me".into(), when: "t".into(), why: "x".into() });
        assert_eq!(record.waiting(None), Some(id(2)));
        assert_eq!(record.waiting(Some("L")), None, "until the label is there, nothing waits");
        let labelled = LabelledVersion { version: id(3), source: String::new(), sha256: None, time: String::new() };
        record.labels.insert("L".into(), labelled);
        assert_eq!(record.waiting(Some("L")), Some(id(3)));
        record.activate(id(2), "t");
        assert_eq!(record.waiting(None), None);
    }

    #[test]
    fn what_a_person_decides_during_a_sync_outlives_it() {
        let mut syncing = StoreRecord { newest: Some(id(2)), ..StoreRecord::default() };
        syncing.activate(id(2), "t");
        let mut now = StoreRecord { newest: Some(id(1)), ..StoreRecord::default() };
        now.activate(id(1), "u");
        now.hold = Some(ActivationHold { who: "me".into(), when: "u".into(), why: "x".into() });
        syncing.adopt_decisions(&now);
        assert_eq!((syncing.active, syncing.newest, syncing.due(None)), (Some(id(1)), Some(id(2)), Some(id(1))));
        assert_eq!(syncing.active_since.as_deref(), Some("u"));
    }

    #[test]
    fn what_was_brought_by_hand_stays_the_newest_until_the_source_changes() {
        let mut record = StoreRecord::default();
        let look = |record: &mut StoreRecord, n| {
            record.note_offered("s", id(n), false, |_| true);
            record.newest
        };
        assert_eq!(look(&mut record, 1), Some(id(1)));
        assert_eq!(look(&mut record, 2), Some(id(2)));
        assert_eq!(look(&mut record, 1), Some(id(1)), "the source goes back");
        record.newest = Some(id(9));
        assert_eq!(look(&mut record, 1), Some(id(9)), "it has not changed since the import");
        assert_eq!(look(&mut record, 2), Some(id(2)), "it has changed");
        record.newest = Some(id(9));
        record.note_offered("other", id(2), false, |_| true);
        assert_eq!(record.newest, Some(id(2)), "another source is configured");
        record.newest = Some(id(9));
        record.note_offered("other", id(2), false, |_| false);
        assert_eq!(record.newest, Some(id(2)), "what was imported is not there any more");
        record.newest = Some(id(9));
        record.note_offered("other", id(2), true, |_| true);
        assert_eq!(record.newest, Some(id(2)), "a person wants what the source has");
    }

    fn with_schema(record: &StoreRecord, version: u32) -> Vec<u8> {
        let text = String::from_utf8(encode(record)).unwrap();
        let (text, _) = text.split_once(SUM).unwrap();
        format!("{text}\n}}").replace("\"schemaVersion\": 2", &format!("\"schemaVersion\": {version}")).into_bytes()
    }

    #[test]
    fn an_earlier_record_is_read_and_a_later_one_is_refused() {
        let looked = BundleCheck {
            source: "s".into(),
            label: None,
            demanded: None,
            size: 1,
            modified: 0,
            validator: None,
            sha256: None,
            version: Some(id(1)),
            refusal: None,
        };
        let record = StoreRecord { newest: Some(id(2)), looked: Some(looked), ..StoreRecord::default() };
        let earlier = decode(&with_schema(&record, 1)).unwrap();
        assert_eq!(earlier.offered, Some(OfferedVersion { source: "s".into(), version: id(1) }));
        assert_eq!((earlier.schema_version, earlier.newest), (SCHEMA_VERSION, Some(id(2))));
        assert_eq!(decode(&with_schema(&record, 2)).unwrap(), record);
        assert!(matches!(decode(&with_schema(&record, 3)), Err(DecodeError::Later(3))));
    }

    #[test]
    fn previous_is_the_version_before_and_survives_an_empty_change() {
        let mut record = StoreRecord::default();
        record.activate(id(1), "t");
        record.activate(id(2), "t");
        record.activate(id(2), "t");
        assert_eq!((record.active, record.previous), (Some(id(2)), Some(id(1))));
    }

    #[test]
    fn a_source_that_comes_back_finds_its_job() {
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
    fn a_version_is_active_since_it_became_so_and_the_one_before_it_is_previous() {
        let mut record = StoreRecord { previous: Some(id(9)), ..StoreRecord::default() };
        let told =
            |record: &StoreRecord| (record.active, record.active_since.clone().unwrap_or_default(), record.previous);
        record.activate(id(1), "1");
        assert_eq!(told(&record), (Some(id(1)), "1".to_owned(), Some(id(9))), "nothing was active before");
        record.activate(id(1), "2");
        assert_eq!(told(&record), (Some(id(1)), "1".to_owned(), Some(id(9))));
        record.activate(id(2), "3");
        assert_eq!(told(&record), (Some(id(2)), "3".to_owned(), Some(id(1))));
    }

    #[test]
    fn what_is_active_previous_newest_or_labelled_is_protected_and_what_the_source_has_is_not() {
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
        assert_eq!(StoreRecord::default().due(None), None);
        assert_eq!(StoreRecord { newest: None, ..record }.due(None), Some(id(1)), "nothing newer is there");
    }

    #[test]
    fn of_two_verdicts_of_the_gate_the_later_one_is_taken_over_and_nothing_that_a_sync_knows_better() {
        let verdict = |time: &str, rules: &str| GateVerdict {
            version: id(1),
            against: None,
            rules: rules.to_owned(),
            refused: None,
            time: time.to_owned(),
            addresses: String::new(),
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
        for (ours, theirs, expected) in cases {
            let gate = ours.map(|time| verdict(time, "syncing"));
            let mut syncing =
                StoreRecord { gate, newest: Some(id(2)), last_good: Some("g".to_owned()), ..StoreRecord::default() };
            let config_error = Some("x".to_owned());
            let previous = Some(id(7));
            let gate = theirs.map(|time| verdict(time, "now"));
            syncing.adopt_decisions(&StoreRecord { previous, config_error, gate, ..StoreRecord::default() });
            assert_eq!(syncing.gate.map(|gate| gate.rules).as_deref(), expected, "{ours:?}, {theirs:?}");
            assert_eq!((syncing.config_error.as_deref(), syncing.previous), (Some("x"), Some(id(7))));
            assert_eq!((syncing.newest, syncing.last_good.as_deref()), (Some(id(2)), Some("g")));
        }
    }
}
