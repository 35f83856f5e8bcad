//! Bringing the store to what configuration and state ask for: level-triggered, one path for every trigger.
//!
//! [`plan`] decides without I/O or clock. [`run`] carries a sync through, knowing the world only through the trait in
//! [`world`]; `exporting` and `downloading` are its parts; [`act`] is the real world. [`ahead`] seals what is still arriving.
//! [`bring`] proves, seals and commits, and `room` sees to it that a bundle fits; [`settle`] prunes and sees that what is due becomes active, if `decide` and the
//! [`gate`] let it; [`staged`] tells what waits; [`operator`] is what a person may do; [`open`] makes a stored version ready
//! to be served. What wakes a sync:
//! [`schedule`], [`watch`], [`inbox`].

pub mod act;
pub mod agenda;
pub mod ahead;
pub mod bring;
pub mod decide;
mod downloading;
pub mod error;
mod exporting;
pub mod gate;
pub mod inbox;
pub mod key;
pub mod known;
pub mod open;
pub mod operator;
pub mod plan;
pub mod room;
pub mod run;
pub mod schedule;
pub mod scrub;
pub mod settle;
pub mod staged;
pub mod watch;
pub mod workshop;
pub mod world;

use std::path::PathBuf;
use std::time::Duration;

use crate::api::preview::StatusPath;
use crate::base::secret::SafeUrl;
use crate::model::digest::Digest;
use crate::model::limits::Limits;
use crate::model::version::{Label, VersionId};
use crate::net::Network;
use crate::seal::Effort;
use crate::store::space::Allowance;

pub use error::SyncError;
use gate::Gate;
use key::KeyPlace;

/// What the configuration asks of a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Intent {
    /// Whether to sync at all.
    pub enabled: bool,
    /// The bundle, if one is named.
    pub bundle: Option<Bundle>,
    /// The API that makes bundles, if there is one.
    pub api: Option<ApiSource>,
    /// Serve this label and no other.
    pub pin: Option<Label>,
    /// Accept this archive only.
    pub sha256: Option<Digest>,
    /// Whether each look starts an export job; otherwise the probes tell when.
    pub each_look: bool,
    /// What tells that content has changed.
    pub probes: Vec<SafeUrl>,
    /// Whether the configuration speaks of probes at all.
    pub probes_said: bool,
    /// How often the source is looked at.
    pub interval: Duration,
    /// Without a success for so long, an export job is started whatever the probes say.
    pub max_age: Duration,
    /// After so long a job is given up.
    pub job_timeout: Duration,
    /// How patient we are with upstreams.
    pub network: Network,
    /// What sealing may cost.
    pub effort: Effort,
    /// What the store may hold and must leave.
    pub allowance: Allowance,
    /// What a version must be like to become active by itself.
    pub gate: Gate,
    /// Who makes a version active.
    pub activation: Activation,
}

/// Who makes a version active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Activation {
    /// It becomes so by itself.
    #[default]
    Auto,
    /// A person promotes it.
    Manual,
}

/// Nothing at all is asked: for what a person does with a store whose configuration has mistakes.
impl Default for Intent {
    fn default() -> Intent {
        Intent {
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
            network: Network::default(),
            effort: Effort::new(Limits::default()),
            allowance: Allowance { keep: usize::MAX, ..Allowance::default() },
            gate: Gate::default(),
            activation: Activation::Auto,
        }
    }
}

impl Intent {
    /// Whether there is anything to bring bundles from.
    pub fn has_source(&self) -> bool {
        self.bundle.is_some() || self.api.is_some()
    }

    /// What a sync is about, without secrets: when it changes, failures count anew.
    pub fn question(&self) -> String {
        let bundle = self.bundle.as_ref().map(|bundle| match bundle {
            // A fresh link to the same file is worth trying at once.
            Bundle::Link(url) => format!("{} {}", url.name(), Digest::of(url.expose().as_str().as_bytes()).hex()),
            Bundle::File(path) => path.display().to_string(),
        });
        let api = self.api.as_ref().map(ApiSource::name);
        let words = format!("{bundle:?} {api:?} {:?} {:?} {}", self.pin, self.sha256, self.enabled);
        Digest::of(words.as_bytes()).hex()[..16].to_owned()
    }
}

/// Where a bundle lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bundle {
    /// On this machine.
    File(PathBuf),
    /// Behind a link, perhaps a presigned one.
    Link(SafeUrl),
}

impl Bundle {
    /// What receipts and labels call it: without the query, which is a secret.
    pub fn name(&self) -> String {
        match self {
            Bundle::File(path) => path.display().to_string(),
            Bundle::Link(url) => url.name(),
        }
    }
}

/// The management API and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiSource {
    /// Its address.
    pub base: SafeUrl,
    /// What is exported.
    pub domain: String,
    /// The project, for previews and analytics.
    pub project: Option<String>,
    /// Where the state of a preview's deployment is asked for.
    pub status_path: StatusPath,
    /// Where its key is.
    pub key: KeyPlace,
}

impl ApiSource {
    /// What receipts and labels call it.
    pub fn name(&self) -> String {
        format!("{}#{}", self.base.name().trim_end_matches('/'), self.domain)
    }
}

/// How a sync ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// `enabled = false`
    Disabled,
    /// There is no source to look at.
    NoSource,
    /// Nothing new; this version, if any, is active.
    Current(Option<VersionId>),
    /// This version is active now.
    Activated(VersionId),
    /// This version is sealed and waits for a person, as it is configured.
    Staged(VersionId),
    /// This version is sealed but not active, for this reason.
    NotActive(VersionId, String),
}

impl Outcome {
    /// Whether it says what has become of this version.
    fn is_about(&self, id: VersionId) -> bool {
        matches!(self, Outcome::Activated(of) | Outcome::Staged(of) | Outcome::NotActive(of, _) if *of == id)
    }

    /// The words that status and `--json` use.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Disabled => "disabled",
            Outcome::NoSource => "no source",
            Outcome::Current(_) => "already current",
            Outcome::Activated(_) => "activated",
            Outcome::Staged(_) => "staged",
            Outcome::NotActive(..) => "not activated",
        }
    }
}
