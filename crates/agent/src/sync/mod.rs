//! Syncing: brings the store to the state that configuration and record describe. Every trigger starts the same steps;
//! configuration, record and the kind of trigger ([`plan::SyncTrigger`]) decide which of them are necessary.
//!
//! - [`plan`] decides without I/O or clock. [`run`] carries out one sync, through the trait in [`environment`], which
//!   [`system`] implements for the real system. `export_job`, which continues an unfinished export job after a restart,
//!   and `bundle_download` are parts of [`run`].
//! - [`ingest`] verifies, seals and commits a bundle; [`disk_space`] frees the space for it. [`streaming_seal`] seals a
//!   bundle while it is downloaded. [`known_bundles`] finds bundles that need not be downloaded again; [`local_source`]
//!   checks a file that is the source.
//! - [`activation`] activates the target version, if [`activation_decision`] and the [`gate`] allow it, and
//!   prunes. [`waiting`] decides which version waits, and for what.
//! - [`import`] imports a bundle by command or from the inbox. [`record_recovery`] recovers a lost record.
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
pub mod local_source;
pub mod open;
pub mod operator;
pub mod plan;
pub mod record_recovery;
pub mod run;
#[cfg(test)]
mod run_tests;
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

use api_key::ApiKeyLocation;
pub use error::SyncError;
use gate::GateConditions;

/// The part of the configuration that a sync needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncSettings {
    /// Whether to sync at all.
    pub enabled: bool,
    /// The bundle, if one is configured.
    pub bundle: Option<BundleLocation>,
    /// The file that contains the location of the bundle (`staticExport.bundleUrlFile`), if it is there and not in the
    /// configuration.
    pub bundle_url_file: Option<PathBuf>,
    /// The API that exports bundles, if one is configured.
    pub api: Option<ApiSource>,
    /// The label of the version that becomes active instead of the newest one.
    pub pin: Option<VersionLabel>,
    /// SHA-256 of the only archive that is accepted from the source; imports are accepted with any.
    pub sha256: Option<Digest>,
    /// Whether each check of the source starts an export job; otherwise the probes decide.
    pub exports_at_each_check: bool,
    /// URLs whose content changes when the site's content has changed.
    pub probes: Vec<SafeUrl>,
    /// Whether the probes are set in the configuration.
    pub has_configured_probes: bool,
    /// The interval between checks of the source.
    pub interval: Duration,
    /// Time without a success after which an export job is started even if no probe has changed.
    pub max_age: Duration,
    /// Age at which an export job is given up.
    pub job_timeout: Duration,
    /// Timeouts and limits of network calls.
    pub network: NetworkSettings,
    /// Limits and options of sealing.
    pub seal_options: SealOptions,
    /// Limits of the store's disk space.
    pub space_limits: SpaceLimits,
    /// Conditions that a version must meet to become active automatically.
    pub gate: GateConditions,
    /// How a version becomes active.
    pub activation: ActivationMode,
}

/// How a version becomes active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ActivationMode {
    /// Automatically.
    #[default]
    Auto,
    /// By a person's command.
    Manual,
}

/// Sync settings without a source: commands still work on a store whose configuration has errors.
impl Default for SyncSettings {
    fn default() -> SyncSettings {
        SyncSettings {
            enabled: false,
            bundle: None,
            bundle_url_file: None,
            api: None,
            pin: None,
            sha256: None,
            exports_at_each_check: false,
            probes: Vec::new(),
            has_configured_probes: false,
            interval: Duration::MAX,
            max_age: Duration::MAX,
            job_timeout: Duration::MAX,
            network: NetworkSettings::default(),
            seal_options: SealOptions::new(BundleLimits::default()),
            space_limits: SpaceLimits { keep: usize::MAX, ..SpaceLimits::default() },
            gate: GateConditions::default(),
            activation: ActivationMode::Auto,
        }
    }
}

impl SyncSettings {
    /// Whether there is a source of bundles.
    pub fn has_source(&self) -> bool {
        self.bundle.is_some() || self.api.is_some()
    }

    /// The key of the configuration that has the location of the bundle, for messages.
    pub fn bundle_key(&self) -> &'static str {
        if self.bundle_url_file.is_some() { BUNDLE_URL_FILE_KEY } else { BUNDLE_URL_KEY }
    }

    /// A digest of the source and the demands on it, without secrets: when it changes, failures are counted from zero.
    pub fn source_digest(&self) -> String {
        let bundle = self.bundle.as_ref().map(|bundle| match bundle {
            // A fresh link to the same file is tried at once.
            BundleLocation::Link(url) => {
                format!("{} {}", url.without_secrets(), Digest::compute(url.expose().as_str().as_bytes()).to_hex())
            }
            _ => bundle.name(),
        });
        self.digest_with(bundle.as_deref())
    }

    /// A digest like [`SyncSettings::source_digest`] that has the path of the file with the link in place of its
    /// content. Two processes that read the same configuration get the same digest, although the link has been replaced
    /// in between, or only one of them may read it.
    pub fn configured_source_digest(&self) -> String {
        match &self.bundle_url_file {
            Some(file) => self.digest_with(Some(&format!("{BUNDLE_URL_FILE_KEY} {}", file.display()))),
            None => self.source_digest(),
        }
    }

    fn digest_with(&self, bundle: Option<&str>) -> String {
        let api = self.api.as_ref().map(ApiSource::name);
        let text = format!("{bundle:?} {api:?} {:?} {:?} {}", self.pin, self.sha256, self.enabled);
        Digest::compute(text.as_bytes()).to_hex()[..16].to_owned()
    }
}

/// The key with the location of the bundle.
pub const BUNDLE_URL_KEY: &str = "staticExport.bundleUrl";
/// The key with the path of a file that contains the location of the bundle.
pub const BUNDLE_URL_FILE_KEY: &str = "staticExport.bundleUrlFile";

/// The location of a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BundleLocation {
    /// A file on this machine.
    File(PathBuf),
    /// A link, perhaps a signed one.
    Link(SafeUrl),
    /// A location that is not known now: it belongs into a file that is missing, or that does not contain one.
    Unreadable {
        /// The file of `staticExport.bundleUrlFile`.
        file: PathBuf,
        /// The error, which names the file and the key, but quotes nothing of the file.
        error: String,
    },
}

impl BundleLocation {
    /// The name of the source in receipts and labels: it has no query, because that may be a secret.
    pub fn name(&self) -> String {
        match self {
            BundleLocation::File(path) => path.display().to_string(),
            BundleLocation::Link(url) => url.without_secrets(),
            BundleLocation::Unreadable { file, .. } => format!("{} ({BUNDLE_URL_FILE_KEY})", file.display()),
        }
    }

    /// A digest of the location itself, including the secrets of a link.
    pub fn digest(&self) -> Digest {
        match self {
            BundleLocation::File(path) => Digest::compute(path.as_os_str().as_encoded_bytes()),
            BundleLocation::Link(url) => Digest::compute(url.expose().as_str().as_bytes()),
            BundleLocation::Unreadable { .. } => Digest::compute(self.name().as_bytes()),
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
    pub api_key: ApiKeyLocation,
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
    /// `staticExport.enabled` is false.
    Disabled,
    /// No source is configured.
    NoSource,
    /// There is no new version; this version, if any, is active.
    Current(Option<VersionId>),
    /// This version has become active.
    Activated(VersionId),
    /// This version is sealed and waits for a person, as configured.
    Staged(VersionId),
    /// This version is sealed but not active, for this reason.
    NotActive(VersionId, String),
}

impl SyncOutcome {
    /// Whether the outcome is a decision about this version.
    fn is_about(&self, id: VersionId) -> bool {
        matches!(self, SyncOutcome::Activated(version) | SyncOutcome::Staged(version) | SyncOutcome::NotActive(version, _) if *version == id)
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
        VersionId(Digest::compute(&[n]))
    }

    fn link(url: &str) -> BundleLocation {
        BundleLocation::Link(SafeUrl::parse(url).unwrap())
    }

    fn api(base: &str, domain: &str) -> ApiSource {
        let base = SafeUrl::parse(base).unwrap();
        let (project, status_path, key) = (None, StatusPath::default(), ApiKeyLocation::Unset);
        ApiSource { base, domain: domain.to_owned(), project, status_path, api_key: key }
    }

    #[test]
    fn source_digest_changes_with_source_pin_digest_or_link_but_not_with_timing() {
        let original = || SyncSettings {
            enabled: true,
            bundle: Some(link("https://b.example/b.zip?sig=1")),
            ..SyncSettings::default()
        };
        let label = |text: &str| VersionLabel::new(text).ok();
        let with_equal_digest = [
            original(),
            SyncSettings { interval: Duration::from_secs(1), max_age: Duration::from_secs(1), ..original() },
            SyncSettings { gate: GateConditions { min_pages: Some(1), ..GateConditions::default() }, ..original() },
            SyncSettings { activation: ActivationMode::Manual, ..original() },
        ];
        for sync_settings in with_equal_digest {
            assert_eq!(sync_settings.source_digest(), original().source_digest(), "{sync_settings:?}");
        }
        let with_other_digests = [
            original(),
            SyncSettings { enabled: false, ..original() },
            SyncSettings { bundle: Some(link("https://b.example/b.zip?sig=2")), ..original() },
            SyncSettings { bundle: Some(link("https://b.example/c.zip?sig=1")), ..original() },
            SyncSettings { bundle: None, ..original() },
            SyncSettings { bundle: Some(BundleLocation::File("/b.zip".into())), ..original() },
            SyncSettings { bundle: Some(BundleLocation::File("/c.zip".into())), ..original() },
            SyncSettings { api: Some(api("https://a.example/v1", "docs")), ..original() },
            SyncSettings { api: Some(api("https://a.example/v1", "other")), ..original() },
            SyncSettings { api: Some(api("https://b.example/v1", "docs")), ..original() },
            SyncSettings { pin: label("1"), ..original() },
            SyncSettings { pin: label("2"), ..original() },
            SyncSettings { sha256: Some(Digest::compute(b"1")), ..original() },
            SyncSettings { sha256: Some(Digest::compute(b"2")), ..original() },
        ];
        let digests: std::collections::BTreeSet<String> =
            with_other_digests.iter().map(SyncSettings::source_digest).collect();
        assert_eq!(digests.len(), with_other_digests.len());
        let sources =
            [(None, None), (Some(link("https://b.example/b")), None), (None, Some(api("https://a.example", "docs")))];
        let has_source =
            sources.map(|(bundle, api)| SyncSettings { bundle, api, ..SyncSettings::default() }.has_source());
        assert_eq!(has_source, [false, true, true]);
    }

    #[test]
    fn the_digest_for_commands_has_the_path_of_the_link_file_and_not_its_content() {
        let settings = |file: Option<&str>, bundle| SyncSettings {
            bundle: Some(bundle),
            bundle_url_file: file.map(PathBuf::from),
            ..SyncSettings::default()
        };
        let unreadable = || BundleLocation::Unreadable { file: "/link".into(), error: "no right".to_owned() };
        let contents = [link("https://b.example/b.zip?sig=1"), link("https://b.example/c.zip?sig=2"), unreadable()];
        let digests = |file: Option<&str>| {
            contents.clone().map(|bundle| settings(file, bundle).configured_source_digest()).to_vec()
        };
        assert_eq!(digests(Some("/link")), vec![digests(Some("/link"))[0].clone(); 3]);
        assert_ne!(digests(Some("/link"))[0], digests(Some("/other"))[0]);
        assert_ne!(digests(None)[0], digests(None)[1], "without a file, the link is in the configuration");
        // Failures are counted from zero with each link.
        let of_sources = contents.clone().map(|bundle| settings(Some("/link"), bundle).source_digest());
        assert!(of_sources[0] != of_sources[1] && of_sources[1] != of_sources[2]);
        assert_eq!(unreadable().name(), "/link (staticExport.bundleUrlFile)");
        assert_eq!(settings(None, unreadable()).bundle_key(), "staticExport.bundleUrl");
        assert_eq!(settings(Some("/link"), unreadable()).bundle_key(), "staticExport.bundleUrlFile");
    }

    #[test]
    fn source_name_contains_no_secrets_and_is_the_same_for_equivalent_urls() {
        assert_eq!(link("https://b.example/b.zip?sig=1").name(), "https://b.example/b.zip");
        assert_eq!(BundleLocation::File("/a b.zip".into()).name(), "/a b.zip");
        for base in ["https://a.example/v1", "https://a.example/v1/", "https://a.example/v1//?x=1"] {
            assert_eq!(api(base, "docs").name(), "https://a.example/v1#docs", "{base}");
        }
    }

    #[test]
    fn sync_outcome_is_about_the_version_that_it_names() {
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
