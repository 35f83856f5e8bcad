//! The fields of the record, as `state.json` has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use docwharf_base::model::version::VersionId;

/// The `schemaVersion` that is written. A record with a later one is refused: its unknown fields would be lost at the
/// next write.
pub const SCHEMA_VERSION: u32 = 2;

/// The state of a store besides its versions, as `state.json` has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreRecord {
    /// [`SCHEMA_VERSION`]; it is raised when a field gets another meaning.
    pub schema_version: u32,
    /// The active version, which the daemon serves as soon as it has opened it.
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
    // The wire name is older than the term "check"; it must not change.
    #[serde(default, rename = "looked")]
    pub last_checked_bundle: Option<BundleCheck>,
    /// The last attempt to sync.
    #[serde(default)]
    pub last_attempt: Option<SyncAttempt>,
    /// Time of the last successful sync whose source or probes could be read, RFC 3339.
    #[serde(default, rename = "lastGood")]
    pub last_good_sync: Option<String>,
    /// The last successful export: the API returned a bundle that was accepted or is known already.
    #[serde(default, rename = "lastSuccess")]
    pub last_export_success: Option<SourceEvent>,
    /// The export job of the current source, if it has not yet returned a bundle.
    #[serde(default)]
    pub job: Option<JobRecord>,
    /// Export jobs at sources that are not configured now; such a job is continued when its source is configured again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs_elsewhere: Vec<JobRecord>,
    /// The last start of an export job.
    #[serde(default)]
    pub last_start: Option<SourceEvent>,
    /// The probe results that belong to the bundle that was checked last.
    #[serde(default)]
    pub probed: Option<SourceProbes>,
    /// Probes whose servers sent Retry-After, by key of the probe.
    // The wire name is older than the term "back-off"; it must not change.
    #[serde(default, rename = "busy", skip_serializing_if = "BTreeMap::is_empty")]
    pub probe_back_offs: BTreeMap<String, ProbeBackOff>,
    /// Digest of the bundle's link or path that failed while the store was empty; it is not downloaded again.
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
            last_checked_bundle: None,
            last_attempt: None,
            last_good_sync: None,
            last_export_success: None,
            job: None,
            jobs_elsewhere: Vec::new(),
            last_start: None,
            probed: None,
            probe_back_offs: BTreeMap::new(),
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
    /// A digest of the conditions that were applied.
    #[serde(rename = "rules")]
    pub conditions_digest: String,
    /// The reason why the version does not become active automatically; none if it may.
    #[serde(default)]
    pub refused: Option<String>,
    /// Time of the verdict, RFC 3339.
    pub time: String,
    /// A digest of the settings by which addresses were resolved when links were counted.
    #[serde(default, rename = "addresses")]
    pub address_settings_digest: String,
    /// Number of broken links, by version.
    #[serde(default)]
    pub links: BTreeMap<VersionId, u64>,
}

/// A hold: it stops automatic activation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActivationHold {
    /// The user who set the hold.
    #[serde(rename = "who")]
    pub author: String,
    /// Time at which it was set, RFC 3339.
    pub when: String,
    /// The reason.
    pub why: String,
}

/// A version with a label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelledVersion {
    /// The version's id.
    pub version: VersionId,
    /// The source of the version, without a link's query.
    pub source: String,
    /// SHA-256 of the archive that contained the version.
    #[serde(default)]
    pub sha256: Option<String>,
    /// Time at which the label was set, RFC 3339.
    pub time: String,
}

/// A check of a bundle and its result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleCheck {
    /// The source, without a link's query.
    pub source: String,
    /// The label that was requested.
    #[serde(rename = "label")]
    pub pin: Option<String>,
    /// The SHA-256 that was demanded of the archive.
    pub demanded: Option<String>,
    /// Size in bytes: of the archive, or for a link of the file as it was sent; 0 if the server of a link sent no
    /// validator.
    pub size: u64,
    /// Modification time of a file, in nanoseconds since 1970; 0 for a link.
    pub modified: i64,
    /// The validator that the server of a link sent.
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
    /// A digest of the source and the demands on it: when it changes, failures are counted from zero.
    // The wire name is older than the term "source digest"; it must not change.
    #[serde(default, rename = "question")]
    pub source_digest: String,
    /// Back-off in seconds until the next attempt.
    #[serde(default)]
    pub wait: u64,
}

/// An event of a source under a pin, such as the start of an export job.
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
    /// The job's id, as the API returned it.
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
