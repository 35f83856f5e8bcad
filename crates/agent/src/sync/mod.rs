//! Syncing: brings the store to the state that configuration and record ask for. It is level-triggered: every trigger
//! takes the same path.
//!
//! - [`plan`] decides without I/O or clock. [`run`] carries out one sync, through the trait in [`environment`];
//!   `export_job` and `bundle_download` are its parts. [`system`] implements that trait for the real system.
//! - [`ingest`] verifies, seals and commits a bundle; [`disk_space`] frees the space for it. [`streaming_seal`] seals a
//!   bundle while it is downloaded. [`known_bundles`] finds bundles that need not be downloaded again.
//! - [`activation`] activates the version that is due, if [`activation_decision`] and the [`gate`] allow it, and prunes.
//!   [`waiting`] says which version waits, and for what.
//! - [`import`] takes a bundle that a person has given. [`record_recovery`] makes a lost record again.
//! - [`operator`] carries out a person's commands. [`open`] opens a stored version for serving, and [`scrub`] verifies
//!   stored versions again.
//! - [`scheduler`] decides when to sync next; [`schedule`], [`file_watch`] and [`inbox`] trigger it.

pub mod activation;
pub mod activation_decision;
pub mod api_key;
mod bundle_download;
pub mod disk_space;
pub mod environment;
pub mod error;
mod export_job;
mod file_dates;
pub mod file_watch;
pub mod gate;
pub mod import;
pub mod inbox;
pub mod incoming_bundle;
pub mod ingest;
pub mod known_bundles;
pub mod open;
pub mod operator;
pub mod plan;
pub mod record_recovery;
pub mod run;
pub mod schedule;
pub mod scheduler;
pub mod scrub;
pub mod seal_operations;
pub mod stored_index;
pub mod streaming_seal;
pub mod system;
pub mod waiting;

use std::path::PathBuf;
use std::time::Duration;

use crate::api::preview::StatusPath;
use crate::store::space::SpaceLimits;
use docwharf_base::model::digest::Digest;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::version::{VersionId, VersionLabel};
use docwharf_base::net::NetworkSettings;
use docwharf_base::secret::SafeUrl;
use docwharf_site::seal::SealOptions;

use api_key::KeyPlace;
pub use error::SyncError;
use gate::GateRules;

/// The part of the configuration that a sync needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncIntent {
    /// Whether to sync at all.
    pub enabled: bool,
    /// The bundle, if one is configured.
    pub bundle: Option<BundleLocation>,
    /// The API that exports bundles, if one is configured.
    pub api: Option<ApiSource>,
    /// The label to serve, and no other.
    pub pin: Option<VersionLabel>,
    /// The only archive that is accepted.
    pub sha256: Option<Digest>,
    /// Whether each check of the source starts an export job; otherwise the probes decide.
    pub each_look: bool,
    /// URLs whose content changes when the site's content has changed.
    pub probes: Vec<SafeUrl>,
    /// Whether the configuration sets the probes.
    pub probes_said: bool,
    /// The interval between checks of the source.
    pub interval: Duration,
    /// Time without a success after which an export job is started whatever the probes say.
    pub max_age: Duration,
    /// Age at which an export job is given up.
    pub job_timeout: Duration,
    /// Timeouts and limits of network calls.
    pub network: NetworkSettings,
    /// Limits of the work that sealing may do.
    pub effort: SealOptions,
    /// Limits of the store's disk space.
    pub allowance: SpaceLimits,
    /// Conditions that a version must meet to become active by itself.
    pub gate: GateRules,
    /// How a version becomes active.
    pub activation: ActivationMode,
}

/// How a version becomes active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActivationMode {
    /// By itself.
    #[default]
    Auto,
    /// A person promotes it.
    Manual,
}

/// The intent that asks for nothing: a person may still work on a store whose configuration has errors.
impl Default for SyncIntent {
    fn default() -> SyncIntent {
        SyncIntent {
            enabled: false,
            bundle: None,
            api: None,
            pin: None,
            sha256: None,
            each_look: false,
            probes: Vec::new(),
            probes_said: false,
            interval: Duration::MAX,
            max_age: Duration::MAX,
            job_timeout: Duration::MAX,
            network: NetworkSettings::default(),
            effort: SealOptions::new(BundleLimits::default()),
            allowance: SpaceLimits { keep: usize::MAX, ..SpaceLimits::default() },
            gate: GateRules::default(),
            activation: ActivationMode::Auto,
        }
    }
}

impl SyncIntent {
    /// Whether there is a source of bundles.
    pub fn has_source(&self) -> bool {
        self.bundle.is_some() || self.api.is_some()
    }

    /// A digest of the source and the demands on it, without secrets: when it changes, failures are counted from zero.
    pub fn question(&self) -> String {
        let bundle = self.bundle.as_ref().map(|bundle| match bundle {
            // A fresh link to the same file is worth an attempt at once.
            BundleLocation::Link(url) => {
                format!("{} {}", url.without_secrets(), Digest::of(url.expose().as_str().as_bytes()).hex())
            }
            BundleLocation::File(path) => path.display().to_string(),
        });
        let api = self.api.as_ref().map(ApiSource::name);
        let words = format!("{bundle:?} {api:?} {:?} {:?} {}", self.pin, self.sha256, self.enabled);
        Digest::of(words.as_bytes()).hex()[..16].to_owned()
    }
}

/// The location of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleLocation {
    /// A file on this machine.
    File(PathBuf),
    /// A link, perhaps a presigned one.
    Link(SafeUrl),
}

impl BundleLocation {
    /// The name of the source in receipts and labels: it has no query, because that may be a secret.
    pub fn name(&self) -> String {
        match self {
            BundleLocation::File(path) => path.display().to_string(),
            BundleLocation::Link(url) => url.without_secrets(),
        }
    }
}

/// The management API and the export that is requested from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiSource {
    /// The API's base URL.
    pub base: SafeUrl,
    /// The domain that is exported.
    pub domain: String,
    /// The project, for previews and analytics.
    pub project: Option<String>,
    /// The endpoint for the state of a preview's deployment.
    pub status_path: StatusPath,
    /// The location of the API key.
    pub api_key: KeyPlace,
}

impl ApiSource {
    /// The name of the source in receipts and labels.
    pub fn name(&self) -> String {
        format!("{}#{}", self.base.without_secrets().trim_end_matches('/'), self.domain)
    }
}

/// The result of a sync that has not failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncOutcome {
    /// `enabled = false`
    Disabled,
    /// No source is configured.
    NoSource,
    /// Nothing is new; this version, if any, is active.
    Current(Option<VersionId>),
    /// This version has become active.
    Activated(VersionId),
    /// This version is sealed and waits for a person, as configured.
    Staged(VersionId),
    /// This version is sealed but not active, for this reason.
    NotActive(VersionId, String),
}

impl SyncOutcome {
    /// Whether the outcome is about this version.
    fn is_about(&self, id: VersionId) -> bool {
        matches!(self, SyncOutcome::Activated(of) | SyncOutcome::Staged(of) | SyncOutcome::NotActive(of, _) if *of == id)
    }

    /// The name in the status and in `--json`.
    pub fn name(&self) -> &'static str {
        match self {
            SyncOutcome::Disabled => "disabled",
            SyncOutcome::NoSource => "no source",
            SyncOutcome::Current(_) => "already current",
            SyncOutcome::Activated(_) => "activated",
            SyncOutcome::Staged(_) => "staged",
            SyncOutcome::NotActive(..) => "not activated",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> VersionId {
        VersionId(Digest::of(&[n]))
    }

    fn link(url: &str) -> BundleLocation {
        BundleLocation::Link(SafeUrl::parse(url).unwrap())
    }

    fn api(base: &str, domain: &str) -> ApiSource {
        let base = SafeUrl::parse(base).unwrap();
        let (project, status_path, key) = (None, StatusPath::default(), KeyPlace::Nowhere);
        ApiSource { base, domain: domain.to_owned(), project, status_path, api_key: key }
    }

    #[test]
    fn another_source_pin_digest_or_a_fresh_link_is_another_question_and_a_rhythm_is_not() {
        let asked = || SyncIntent {
            enabled: true,
            bundle: Some(link("https://b.example/b.zip?sig=1")),
            ..SyncIntent::default()
        };
        let label = |text: &str| VersionLabel::new(text).ok();
        let same = [
            asked(),
            SyncIntent { interval: Duration::from_secs(1), max_age: Duration::from_secs(1), ..asked() },
            SyncIntent { gate: GateRules { min_pages: Some(1), ..GateRules::default() }, ..asked() },
            SyncIntent { activation: ActivationMode::Manual, ..asked() },
        ];
        for intent in same {
            assert_eq!(intent.question(), asked().question(), "{intent:?}");
        }
        let others = [
            asked(),
            SyncIntent { enabled: false, ..asked() },
            SyncIntent { bundle: Some(link("https://b.example/b.zip?sig=2")), ..asked() },
            SyncIntent { bundle: Some(link("https://b.example/c.zip?sig=1")), ..asked() },
            SyncIntent { bundle: None, ..asked() },
            SyncIntent { bundle: Some(BundleLocation::File("/b.zip".into())), ..asked() },
            SyncIntent { bundle: Some(BundleLocation::File("/c.zip".into())), ..asked() },
            SyncIntent { api: Some(api("https://a.example/v1", "docs")), ..asked() },
            SyncIntent { api: Some(api("https://a.example/v1", "other")), ..asked() },
            SyncIntent { api: Some(api("https://b.example/v1", "docs")), ..asked() },
            SyncIntent { pin: label("1"), ..asked() },
            SyncIntent { pin: label("2"), ..asked() },
            SyncIntent { sha256: Some(Digest::of(b"1")), ..asked() },
            SyncIntent { sha256: Some(Digest::of(b"2")), ..asked() },
        ];
        let questions: std::collections::BTreeSet<String> = others.iter().map(SyncIntent::question).collect();
        assert_eq!(questions.len(), others.len());
        let sources =
            [(None, None), (Some(link("https://b.example/b")), None), (None, Some(api("https://a.example", "docs")))];
        let has = sources.map(|(bundle, api)| SyncIntent { bundle, api, ..SyncIntent::default() }.has_source());
        assert_eq!(has, [false, true, true]);
    }

    #[test]
    fn a_source_is_named_without_what_is_secret_or_may_be_written_in_two_ways() {
        assert_eq!(link("https://b.example/b.zip?sig=1").name(), "https://b.example/b.zip");
        assert_eq!(BundleLocation::File("/a b.zip".into()).name(), "/a b.zip");
        for base in ["https://a.example/v1", "https://a.example/v1/", "https://a.example/v1//?x=1"] {
            assert_eq!(api(base, "docs").name(), "https://a.example/v1#docs", "{base}");
        }
    }

    #[test]
    fn an_outcome_is_about_the_version_that_it_has_decided_about() {
        let why = String::new;
        let cases = [
            (SyncOutcome::Activated(id(1)), true, "activated"),
            (SyncOutcome::Staged(id(1)), true, "staged"),
            (SyncOutcome::NotActive(id(1), why()), true, "not activated"),
            (SyncOutcome::Activated(id(2)), false, "activated"),
            (SyncOutcome::Staged(id(2)), false, "staged"),
            (SyncOutcome::NotActive(id(2), why()), false, "not activated"),
            (SyncOutcome::Current(Some(id(1))), false, "already current"),
            (SyncOutcome::Disabled, false, "disabled"),
            (SyncOutcome::NoSource, false, "no source"),
        ];
        for (outcome, is_about, name) in cases {
            assert_eq!((outcome.is_about(id(1)), outcome.name()), (is_about, name), "{outcome:?}");
        }
    }
}
