//! Why a sync or an import failed, and what can be done about it.

use std::path::PathBuf;
use std::time::Duration;

use crate::api::ask::Ask;
use crate::bundle::policy::Fault;
use crate::model::digest::Digest;
use crate::model::units::show_duration;
use crate::model::version::VersionId;
use crate::net::client::ClientError;
use crate::net::trouble::{Cause, Trouble};
use crate::seal::SealError;
use crate::store::StoreError;

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
    /// Something that the configuration points at is not there.
    #[error("{0}")]
    Absent(String),
    /// The HTTP client cannot be made.
    #[error("cannot reach any upstream")]
    Client(#[from] ClientError),
    /// It is another archive than the one demanded.
    #[error("{name}: its SHA-256 is {found}, not the {demanded} that staticExport.sha256 demands")]
    WrongDigest {
        /// The bundle.
        name: String,
        /// What it is.
        found: Digest,
        /// What it should be.
        demanded: Digest,
    },
    /// It was refused when it was last looked at, and has not changed.
    #[error("the bundle is still the one that was refused: {0}")]
    StillRefused(String),
    /// It was refused, but it was being written meanwhile.
    #[error("the bundle {} is still being written; it is looked at again when it is quiet", path.display())]
    Changing {
        /// Its path.
        path: PathBuf,
        /// What was wrong with it.
        #[source]
        source: Box<SyncError>,
    },
    /// A call to the API brought no good answer.
    #[error("cannot {doing}: {trouble}{}", .call.hint(.trouble))]
    Upstream {
        /// What was being done: "start the export of …".
        doing: String,
        /// Which call.
        call: Ask,
        /// Why not.
        trouble: Trouble,
    },
    /// A link brought no bundle.
    #[error("cannot download {link}: {trouble}{}", link_hint(*.signed, .trouble, *.renewable))]
    Download {
        /// The link, without its query.
        link: String,
        /// Whether it had one, as signed links do.
        signed: bool,
        /// Why not.
        trouble: Trouble,
        /// Whether fresh links come from the API.
        renewable: bool,
    },
    /// The export job failed.
    #[error("the export job {id} failed: {reason}; look at the project's build, then sync again")]
    JobFailed {
        /// The job.
        id: String,
        /// What the upstream says.
        reason: String,
    },
    /// The export job is not known any more.
    #[error("the export job {id} has vanished: {trouble}; the next sync starts another")]
    JobVanished {
        /// The job.
        id: String,
        /// The answer.
        trouble: Trouble,
    },
    /// The export job took too long.
    #[error("the export job {id} is not done after {} (sync.jobTimeout); it was last seen {state}{}", show_duration(*.after), not_moved(*.still))]
    JobTimeout {
        /// The job.
        id: String,
        /// How long it was waited for.
        after: Duration,
        /// How it was last seen.
        state: String,
        /// How long it had not moved.
        still: Duration,
    },
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
    /// A mistake of ours.
    #[error("the sync broke off: {0}; this is a mistake in docwharf, please report it")]
    Broken(String),
    /// There is no thread to be had for it.
    #[error("cannot start a thread for the sync")]
    Thread(#[source] std::io::Error),
    /// It was called off: the program ends, or the configuration has changed.
    #[error("the sync was called off")]
    Interrupted,
}

impl SyncError {
    /// Whether the bundle itself is at fault, so that trying the same one again is no use.
    pub fn is_refusal(&self) -> bool {
        match self {
            SyncError::WrongDigest { .. } | SyncError::Seal(SealError::Refused { .. }) => true,
            SyncError::Download { trouble, .. } => trouble.cause == Cause::TooLarge,
            _ => false,
        }
    }

    /// Whether the bundle ends too early, as one does that is still on its way.
    pub fn is_cut_short(&self) -> bool {
        matches!(self, SyncError::Seal(SealError::Refused { source, .. }) if matches!(source.fault, Fault::Cut(_)))
    }

    /// Whether something is absent that the configuration points at.
    pub fn is_absence(&self) -> bool {
        matches!(
            self,
            SyncError::Missing { .. } | SyncError::IsFolder { .. } | SyncError::Absent(_) | SyncError::Client(_)
        )
    }

    /// How long the upstream wants to be left alone.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            SyncError::Upstream { trouble, .. } | SyncError::Download { trouble, .. } => trouble.retry_after,
            _ => None,
        }
    }
}

fn not_moved(still: Duration) -> String {
    if still < Duration::from_mins(1) {
        return String::new();
    }
    format!(" and had not moved for {}", show_duration(Duration::from_secs(still.as_secs())))
}

/// Links for one bundle that bring nothing, after which no other is asked for.
pub const FRESH_LINKS: u32 = 4;

/// Whether an answer says that a link is dead, rather than that the server is.
pub fn is_dead_link(trouble: &Trouble) -> bool {
    match trouble.cause {
        Cause::Status(401 | 403 | 404 | 410) => true,
        // What S3 says of a token that has run out comes with 400.
        Cause::Status(400) => trouble.code().is_some_and(|code| code.contains("Expired") || code.contains("Token")),
        _ => false,
    }
}

fn link_hint(signed: bool, trouble: &Trouble, renewable: bool) -> String {
    let hint = match trouble.cause {
        Cause::Disk => "free some space, or check the store's owner and mode",
        Cause::TooLarge => "raise the limit if you trust it",
        Cause::NotSent => "check the network and proxies",
        _ if is_dead_link(trouble) && renewable => "fresh links from the API did not help either",
        Cause::Status(404 | 410) => "check staticExport.bundleUrl",
        _ if is_dead_link(trouble) && signed => {
            "the link has probably expired and cannot be renewed: put a fresh one in staticExport.bundleUrl, or set [api] to have links made"
        }
        _ if is_dead_link(trouble) => "the server does not let us have it: check staticExport.bundleUrl",
        _ => return String::new(),
    };
    format!("; {hint}")
}
