//! The output of `docwharf status` and `/status`: the state of a store, and of the daemon on it if one runs. Scripts
//! read the JSON: fields may be added, but none changes its meaning without another `schemaVersion`.

mod delivery;
mod features;
mod inbox;
mod recording;
mod search;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use crate::features::{FeatureReport, FeatureSettings};
use docwharf_agent::publish::published_version;
use docwharf_agent::store::record::{ActivationHold, StoreRecord, SyncAttempt};
use docwharf_agent::store::{StoreError, VersionStore};
use docwharf_agent::sync::waiting::{WaitingReason, activation_advice, find_waiting_version};
use docwharf_agent::sync::{ApiSource, BundleLocation, SyncSettings};
use docwharf_base::accounts::resolve_uid_name;
use docwharf_base::clock::format_system_time;
use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::model::units::format_unix_seconds;
use docwharf_base::model::version::{VersionId, VersionLabel};
use docwharf_site::coding_file::CodingStatistics;

use super::daemon_state::{self, DaemonState, PolicyState};

pub use delivery::DeliveryStatus;
pub use inbox::{InboxStatus, first_version_advice};
pub use recording::RecordingStatus;
pub use search::SearchStatus;

/// The begin of [`StoreStatus::why`] if no source is configured, which is no fault.
const NO_SOURCE: &str = "no source is configured: ";

/// The state of a store and of its daemon. Times are in RFC 3339 format.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreStatus {
    /// The version of the format: 1.
    pub schema_version: u32,
    /// The store's folder.
    pub store: PathBuf,
    /// The active version.
    pub active: Option<VersionId>,
    /// The time since which it is active.
    pub active_since: Option<String>,
    /// Whether the active version is stored.
    pub active_present: Option<bool>,
    /// The labels of the active version.
    pub active_labels: Vec<String>,
    /// The version that was active before.
    pub previous: Option<VersionId>,
    /// The version that arrived last.
    pub newest: Option<VersionId>,
    /// A version that was found damaged; the active one, if it is damaged.
    pub damaged: Option<VersionId>,
    /// All versions that were found damaged.
    #[serde(default)]
    pub damaged_versions: Vec<VersionId>,
    /// The time at which every byte of the active version was last verified, or at which it last arrived.
    #[serde(default)]
    pub active_verified: Option<String>,
    /// The hold that stops automatic activation.
    pub hold: Option<ActivationHold>,
    /// The version that waits to become active.
    #[serde(default, rename = "staged")]
    pub waiting: Option<WaitingStatus>,
    /// The last verdict of the gate.
    #[serde(default)]
    pub gate: Option<GateStatus>,
    /// The label that the configuration pins.
    pub pin: Option<String>,
    /// `staticExport.enabled`; `None` if the configuration has mistakes.
    pub enabled: Option<bool>,
    /// The source of versions; of a link, without its query.
    pub source: Option<String>,
    /// The last attempt to sync, which `docwharf status` prints as the last check: its time, what it found, and its
    /// result.
    pub last_attempt: Option<SyncAttempt>,
    /// The time of the last successful sync whose source or probes could be read.
    #[serde(rename = "lastGood")]
    pub last_good_sync: Option<String>,
    /// The time of the next check; `None` without a daemon.
    // The wire name is older than the term "check"; it must not change.
    #[serde(rename = "nextLook")]
    pub next_check: Option<String>,
    /// The reason why there is no newer version.
    pub why: Option<String>,
    /// Advice on how to solve the last error, or on how to get a first version.
    #[serde(rename = "nextStep")]
    pub advice: Option<String>,
    /// The export job that was started for this store and has not delivered a bundle yet.
    pub job: Option<ExportJobStatus>,
    /// The reason why a changed configuration is not in force.
    pub config_error: Option<String>,
    /// The features of the site on this host; `None` if the configuration has mistakes.
    #[serde(default)]
    pub features: Option<FeatureReport>,
    /// The running daemon; `None` if there is none.
    pub daemon: Option<DaemonStatus>,
}

/// A version that waits to become active.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WaitingStatus {
    /// The version's id.
    pub version: VersionId,
    /// The reason why it waits: `manual`, `gate`, `hold` or `look` (the next check decides).
    pub waits: String,
    /// Advice on how it can become active.
    #[serde(rename = "next")]
    pub advice: String,
}

/// The verdict of the gate on a version.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GateStatus {
    /// The version that was checked.
    pub version: VersionId,
    /// The version that was active at that time.
    pub against: Option<VersionId>,
    /// The time of the check.
    pub time: String,
    /// Whether the gate accepts the version.
    pub passed: bool,
    /// The reason for a refusal.
    pub refused: Option<String>,
}

/// An export job that was started for this store.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportJobStatus {
    /// The id that the management API has given it.
    pub id: String,
    /// The base URL of the management API, and the domain.
    pub source: String,
    /// The time at which it was started.
    pub started: String,
    /// The label it was started for.
    pub pin: Option<String>,
}

/// A running daemon.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStatus {
    /// The process id, in the PID namespace of the daemon.
    pub pid: u32,
    /// The version of the program.
    pub version: String,
    /// The time at which the daemon started.
    pub started: String,
    /// The URLs of the site.
    #[serde(rename = "addresses")]
    pub urls: Vec<String>,
    /// The URLs of the admin routes, besides the control socket.
    #[serde(default, rename = "admin")]
    pub admin_urls: Vec<String>,
    /// The URLs of the version that waits to become active (`activate.listen`).
    #[serde(default, rename = "staged")]
    pub waiting_urls: Vec<String>,
    /// The served version; it differs from `active` if the active one cannot be served: damaged, missing, or not
    /// readable.
    pub served: Option<VersionId>,
    /// The current step of the task in progress.
    pub doing: Option<String>,
    /// The error of that step, while it is retried.
    #[serde(default)]
    pub doing_error: Option<String>,
    /// The progress of an export job in percent.
    pub percent: Option<f64>,
    /// The number of syncs in a row that failed.
    pub failures: u32,
    /// The keys of the configuration that have changed, but keep their value until a restart.
    #[serde(default, rename = "needsRestart")]
    pub restart_keys: Vec<String>,
    /// The inbox, if one is configured (`sync.inbox`).
    #[serde(default)]
    pub inbox: Option<InboxStatus>,
    /// The state of publishing as files, if it is configured.
    #[serde(default)]
    pub publish: Option<PublishStatus>,
    /// The content security policies, if any are sent (`server.csp`).
    #[serde(default)]
    pub csp: Option<CspStatus>,
    /// The Brotli and Zstandard forms, if any are made (`server.codings`).
    #[serde(default)]
    pub codings: Option<PrecompressedStatus>,
    /// The recording of what readers do, if that is recorded (`analytics.enabled`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analytics: Option<RecordingStatus>,
    /// The delivery of what is recorded to an origin, if it is delivered (`analytics.deliver`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryStatus>,
    /// The search, if readers can search the site (`search.enabled`).
    #[serde(default)]
    pub search: Option<SearchStatus>,
    /// The TLS certificate in force, if connections are encrypted.
    #[serde(default)]
    pub tls: Option<CertificateStatus>,
}

/// The content security policies of the served version.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CspStatus {
    /// `server.csp`
    pub preset: String,
    /// The version that the policies belong to.
    pub version: VersionId,
    /// Whether the policies are known; if not, the pages of the version are being read.
    pub ready: bool,
    /// The number of pages, each of which has a policy.
    pub pages: u64,
    /// The number of pages that allow all inline scripts, because a policy that names their scripts would be longer
    /// than `server.cspSize`.
    pub too_long: u64,
    /// The number of pages that allow all inline scripts, because their scripts cannot be named for certain.
    pub unsure: u64,
    /// The length of the longest policy in bytes.
    pub longest: u64,
    /// The length of the policies of all pages together in bytes.
    pub total: u64,
}

impl From<PolicyState> for CspStatus {
    fn from(policy: PolicyState) -> CspStatus {
        let statistics = policy.statistics.unwrap_or_default();
        CspStatus {
            preset: policy.preset.to_owned(),
            version: policy.version,
            ready: policy.statistics.is_some(),
            pages: statistics.pages,
            too_long: statistics.too_long,
            unsure: statistics.uncertain,
            longest: statistics.longest_bytes as u64,
            total: statistics.total_bytes,
        }
    }
}

/// The Brotli and Zstandard forms of the served version.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrecompressedStatus {
    /// The version that the forms belong to.
    pub version: VersionId,
    /// Whether all forms are available; if not, they are being made, unless there is an error.
    pub ready: bool,
    /// The available forms.
    pub made: Vec<PrecompressedCodingStatus>,
    /// The reason why forms cannot be made.
    pub error: Option<String>,
}

/// The forms of all files in one coding.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PrecompressedCodingStatus {
    /// `br` or `zstd`
    pub coding: String,
    /// The number of files that have this form; the others would not become smaller.
    pub files: u64,
    /// The size of the forms in this coding, in bytes.
    pub bytes: u64,
    /// The processor time in seconds that the encoding took.
    pub seconds: f64,
}

impl From<daemon_state::PrecompressedState> for PrecompressedStatus {
    fn from(now: daemon_state::PrecompressedState) -> PrecompressedStatus {
        let made = |(coding, statistics): (ContentCoding, CodingStatistics)| PrecompressedCodingStatus {
            coding: coding.token().to_owned(),
            files: statistics.files,
            bytes: statistics.bytes,
            seconds: statistics.seconds(),
        };
        PrecompressedStatus {
            version: now.version,
            ready: now.ready,
            made: now.available().map(made).collect(),
            error: now.error,
        }
    }
}

/// The TLS certificate in force.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateStatus {
    /// The end of its validity.
    pub not_after: String,
    /// The problem: the current files cannot be used and are not in force, or the dates of the certificate are wrong.
    pub error: Option<String>,
}

/// The state of publishing as files.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PublishStatus {
    /// The folder.
    pub directory: PathBuf,
    /// The version that the link `current` points to.
    pub version: Option<VersionId>,
    /// The error of the last attempt to publish, if it failed.
    pub error: Option<String>,
}

impl StoreStatus {
    /// Returns how versions arrive, if that is the content of `why` because no source is configured.
    pub fn ways_without_source(&self) -> Option<&str> {
        self.why.as_deref()?.strip_prefix(NO_SOURCE)
    }

    /// Describes the state of `store`. `sync_settings` and `feature_settings` are those of the configuration, if it has
    /// no mistakes; `inbox` is used if `daemon_state` is `None`, because no daemon runs.
    pub fn read(
        store: &VersionStore,
        sync_settings: Option<&SyncSettings>,
        feature_settings: Option<&FeatureSettings>,
        inbox: Option<&Path>,
        daemon_state: Option<&DaemonState>,
    ) -> Result<StoreStatus, StoreError> {
        let record = store.record()?;
        let labels = record.labels.iter().filter(|(_, labelled)| Some(labelled.version) == record.active);
        let snapshot = daemon_state.map(DaemonState::snapshot);
        let configured = || {
            inbox.map(|directory| daemon_state::InboxState {
                directory: directory.to_owned(),
                ..daemon_state::InboxState::default()
            })
        };
        let inbox = snapshot.as_ref().map_or_else(configured, |snapshot| snapshot.inbox.clone());
        let daemon = daemon_state.zip(snapshot.as_ref()).map(|(daemon_state, snapshot)| DaemonStatus {
            pid: std::process::id(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: format_system_time(daemon_state.started),
            urls: daemon_state.site_urls.clone(),
            admin_urls: daemon_state.admin_urls.clone(),
            waiting_urls: daemon_state.waiting_urls.clone(),
            served: snapshot.served,
            doing: snapshot.progress.as_ref().map(|progress| progress.step()).filter(|what| !what.is_empty()),
            doing_error: snapshot.progress.as_ref().and_then(|progress| progress.error()),
            percent: snapshot.progress.as_ref().and_then(|progress| progress.percent()),
            failures: snapshot.failures,
            publish: snapshot.publish.as_ref().map(|settings| PublishStatus {
                directory: settings.directory.clone(),
                version: published_version(settings),
                error: snapshot.publish_error.clone(),
            }),
            restart_keys: snapshot.restart_keys.iter().map(|&key| key.to_owned()).collect(),
            inbox: snapshot.inbox.clone().map(InboxStatus::from),
            csp: snapshot.policy.map(CspStatus::from),
            codings: snapshot.codings.clone().map(PrecompressedStatus::from),
            analytics: snapshot.recording.clone().map(RecordingStatus::from),
            delivery: snapshot.delivery.clone().map(DeliveryStatus::from),
            search: snapshot.search.clone().map(SearchStatus::from),
            tls: daemon_state.tls.as_ref().map(|tls| {
                let pair = tls.key_pair();
                let error = snapshot.tls_error.clone().or_else(|| pair.date_problem(SystemTime::now()));
                CertificateStatus { not_after: format_system_time(pair.not_after), error }
            }),
        });
        let damaged = store.damaged_versions();
        let failed = record.last_attempt.as_ref().is_some_and(|attempt| attempt.failures > 0);
        let advice = failed
            .then(|| advice_after_failure(sync_settings, daemon.is_some()))
            .or_else(|| daemon.as_ref().and_then(|_| first_version_advice(&record, sync_settings, inbox.as_ref())));
        let features = feature_settings
            .map(|settings| FeatureReport::new(settings, &features::host_state(record.active, daemon.as_ref())));
        Ok(StoreStatus {
            schema_version: 1,
            store: store.root().to_owned(),
            active_present: record.active.map(|id| store.has(id)),
            active_labels: labels.map(|(label, _)| label.clone()).collect(),
            damaged: record.active.filter(|id| damaged.contains(id)).or(damaged.first().copied()),
            active_verified: record.active.and_then(|id| store.verified_at(id)).map(format_unix_seconds),
            damaged_versions: damaged,
            pin: sync_settings.and_then(|sync_settings| sync_settings.pin.as_ref()).map(ToString::to_string),
            enabled: sync_settings.map(|sync_settings| sync_settings.enabled),
            source: sync_settings.and_then(source),
            next_check: snapshot.as_ref().and_then(|snapshot| snapshot.next_check).map(format_system_time),
            why: reason_for_no_update(&record, sync_settings, inbox.as_ref()),
            waiting: find_waiting_version(&record, sync_settings).map(|waiting| WaitingStatus {
                version: waiting.version,
                waits: waiting.reason.name().to_owned(),
                advice: activation_advice(&waiting),
            }),
            gate: record.gate.map(|verdict| GateStatus {
                version: verdict.version,
                against: verdict.against,
                time: verdict.time,
                passed: verdict.refused.is_none(),
                refused: verdict.refused,
            }),
            advice,
            job: record.job.as_ref().map(|job| ExportJobStatus {
                id: job.id.clone(),
                source: job.source.clone(),
                started: job.started.clone(),
                pin: job.pin.clone(),
            }),
            daemon,
            active: record.active,
            active_since: record.active_since,
            previous: record.previous,
            newest: record.newest,
            hold: record.hold,
            last_attempt: record.last_attempt,
            last_good_sync: record.last_good_sync,
            config_error: record.config_error,
            features,
        })
    }
}

/// Returns the next step after a sync that failed.
fn advice_after_failure(sync_settings: Option<&SyncSettings>, has_daemon: bool) -> String {
    if let Some(BundleLocation::Unreadable { file, .. }) = sync_settings.and_then(|settings| settings.bundle.as_ref()) {
        let then = if has_daemon { "docwharf reads it again when it changes" } else { "then `docwharf sync`" };
        return format!("put the link into {}; {then}", file.display());
    }
    let retry_note = if has_daemon { "it is tried again automatically; " } else { "" };
    format!("{retry_note}`docwharf doctor` checks what it needs, `docwharf sync` tries it at once")
}

fn source(sync_settings: &SyncSettings) -> Option<String> {
    sync_settings.api.as_ref().map(ApiSource::name).or_else(|| sync_settings.bundle.as_ref().map(BundleLocation::name))
}

/// Returns the reason why there is no newer version. If there are several, it is the one that decides first which
/// version is active.
fn reason_for_no_update(
    record: &StoreRecord,
    sync_settings: Option<&SyncSettings>,
    inbox: Option<&daemon_state::InboxState>,
) -> Option<String> {
    if let Some(hold) = &record.hold {
        let author = resolve_uid_name(&hold.author);
        return Some(format!("{author} has stopped activation ({}): `docwharf release` ends that", hold.why));
    }
    let sync_settings = sync_settings?;
    if let Some(waiting) =
        find_waiting_version(record, Some(sync_settings)).filter(|waiting| waiting.reason != WaitingReason::NextCheck)
    {
        let id = waiting.version.short();
        return Some(match &waiting.reason {
            WaitingReason::Gate(why) => format!("the gate refuses {id}: {why}"),
            _ => format!("{id} waits for a person (activate.mode)"),
        });
    }
    if !sync_settings.enabled {
        return Some("staticExport.enabled is false: the source is not checked".to_owned());
    }
    if !sync_settings.has_source() {
        let through = match inbox {
            None => " only".to_owned(),
            Some(inbox) => {
                let directory = inbox.directory.display();
                match inbox.error {
                    None => format!(" and the inbox {directory}"),
                    Some(_) => format!(" only, because the inbox {directory} cannot be used"),
                }
            }
        };
        return Some(format!("{NO_SOURCE}versions arrive through `docwharf import`{through}"));
    }
    let attempt = record.last_attempt.as_ref()?;
    if attempt.failures > 0 {
        return Some("the last check failed".to_owned());
    }
    let pin = sync_settings.pin.as_ref().map(VersionLabel::as_str);
    let newer = record.newest.filter(|_| record.newest != record.active);
    match (pin, newer, &attempt.saw) {
        (Some(pin), Some(newer), _) => {
            Some(format!("{pin:?} is pinned (staticExport.version); {} is newer", newer.short()))
        }
        (.., Some(saw)) => Some(saw.clone()),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
