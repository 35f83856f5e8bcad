//! Bringing the store to what configuration and state ask for: level-triggered, one path for every trigger.
//!
//! [`plan`] decides without I/O; [`bring`] proves, seals and commits; [`look`] joins the two; [`operator`] is what a
//! person may do to it; [`open`] makes a stored version ready to be served.

pub mod bring;
pub mod look;
pub mod open;
pub mod operator;
pub mod plan;

use std::path::PathBuf;

use crate::model::digest::Digest;
use crate::model::version::{Label, VersionId};
use crate::seal::{Effort, SealError};
use crate::store::StoreError;

/// What the configuration asks of a sync.
#[derive(Debug, Clone)]
pub struct Intent {
    /// Whether to sync at all.
    pub enabled: bool,
    /// The bundle file.
    pub source: Option<PathBuf>,
    /// Serve this label and no other.
    pub pin: Option<Label>,
    /// Accept this archive only.
    pub sha256: Option<Digest>,
    /// What sealing may cost.
    pub effort: Effort,
    /// Unprotected versions to keep.
    pub keep: usize,
}

/// How a sync ended well.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// `enabled = false`, or there is no source to look at.
    Disabled,
    /// Nothing new; this version, if any, is active.
    Current(Option<VersionId>),
    /// This version is active now.
    Activated(VersionId),
    /// This version is sealed but not active, for this reason.
    NotActive(VersionId, String),
}

impl Outcome {
    /// The words that status and `--json` use.
    pub fn name(&self) -> &'static str {
        match self {
            Outcome::Disabled => "disabled",
            Outcome::Current(_) => "already current",
            Outcome::Activated(_) => "activated",
            Outcome::NotActive(..) => "not activated",
        }
    }
}

/// Why a sync or an import failed.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The bundle is not there.
    #[error("cannot read the bundle {} (staticExport.bundleUrl); put it there, or correct the path", path.display())]
    Missing {
        /// Its path.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The bundle is a folder.
    #[error("the bundle {} is a folder; staticExport.bundleUrl names an archive, `docwharf import` takes folders", path.display())]
    IsFolder {
        /// Its path.
        path: PathBuf,
    },
    /// It is another archive than the one demanded.
    #[error("{}: its SHA-256 is {found}, not the {demanded} that staticExport.sha256 demands", path.display())]
    WrongDigest {
        /// The bundle.
        path: PathBuf,
        /// What it is.
        found: Digest,
        /// What it should be.
        demanded: Digest,
    },
    /// It was refused when it was last looked at, and has not changed.
    #[error("the bundle is still the one that was refused: {0}")]
    StillRefused(String),
    /// It could not be proved or sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A version in the store cannot be served.
    #[error("cannot open version {}", id.short())]
    Open {
        /// Which.
        id: VersionId,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A version in the store is not what its id says.
    #[error("version {} in the store is damaged; import its bundle again to mend it", id.short())]
    DamagedVersion {
        /// Which.
        id: VersionId,
        /// How, if it was read so far.
        #[source]
        source: Option<SealError>,
    },
}

impl SyncError {
    /// Whether the bundle itself is at fault, so that trying the same one again is no use.
    pub fn is_refusal(&self) -> bool {
        matches!(self, SyncError::WrongDigest { .. } | SyncError::Seal(SealError::Refused { .. }))
    }
}
