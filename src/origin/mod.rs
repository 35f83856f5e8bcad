//! The management API of static exports, served by docwharf itself: where bundles come from when nobody else makes
//! them.
//!
//! A client with the admin key starts a *job* for a domain ([`jobs`]); one thread packs that domain's folder, or proves
//! and copies its archive, into a file of this process ([`worker`]). For a finished job the client asks for a *link*,
//! signed and short-lived ([`links`]), and whoever has the link gets the bytes, without the key ([`bundles`]). Agents
//! that only want to know whether anything has changed ask for the sitemap, which needs no key ([`survey`]).
//!
//! Nothing outlives the process: jobs are in memory, and an archive is an open file without a name, gone when the last
//! download of it ends. A restart therefore forgets all jobs and makes all links invalid, which clients that follow the
//! four steps (start, poll, link, download) do not notice unless they are in the middle of them.

mod body;
mod bundles;
pub mod db;
mod domain;
mod jobs;
mod key;
mod links;
pub mod previews;
mod routes;
pub mod source;
mod survey;
mod worker;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use crate::seal::Effort;
use crate::serve::listener::{self, Answer, Listener};

use jobs::Jobs;
use key::KeyFile;
use links::Signer;

pub use body::Body;
pub use domain::{Domain, PublicUrl};
pub use key::KeyError;

/// The shortest life of a link: its end is written in whole seconds.
pub const SHORTEST_LINK: Duration = Duration::from_secs(1);
/// The longest life of a link. Whoever has one needs no key, so that one found later in a log should be worthless.
pub const LONGEST_LINK: Duration = Duration::from_hours(7 * 24);
/// Sitemaps made at a time. They need no key, and each one walks a folder.
const SITEMAPS_AT_ONCE: usize = 4;

/// What is exported, and to whom.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The folder or archive of each domain.
    pub sites: BTreeMap<Domain, PathBuf>,
    /// The file with the admin key.
    pub key_file: PathBuf,
    /// How long a link works, from [`SHORTEST_LINK`] to [`LONGEST_LINK`].
    pub link_lifetime: Duration,
    /// What links begin with; by default `http://` and the host that the client asked.
    pub public_url: Option<PublicUrl>,
    /// What packing and proving may cost.
    pub effort: Effort,
}

/// Why the API cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// A folder or archive is not there, or cannot be looked at.
    #[error("cannot read {}, the site of {domain}", path.display())]
    Site {
        /// Whose site it is.
        domain: Domain,
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// There is no admin key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The system gives no folder, no thread or no random bytes.
    #[error("cannot {doing}")]
    System {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// The API while it runs.
pub struct Origin {
    sites: Arc<BTreeMap<Domain, PathBuf>>,
    key: KeyFile,
    link_lifetime: Duration,
    public_url: Option<PublicUrl>,
    effort: Effort,
    signer: Signer,
    jobs: Arc<Jobs>,
    sitemaps: Semaphore,
    /// Where archives are made. Empty between jobs.
    space: Mutex<Option<TempDir>>,
}

impl Origin {
    /// Looks at key and sites, and starts the thread that packs.
    pub fn new(settings: Settings) -> Result<Arc<Origin>, OriginError> {
        let Settings { sites, key_file, link_lifetime, public_url, effort } = settings;
        for (domain, path) in &sites {
            look_at(path).map_err(|source| OriginError::Site { domain: domain.clone(), path: path.clone(), source })?;
        }
        let key = KeyFile::open(key_file)?;
        let system = |doing| move |source| OriginError::System { doing, source };
        let signer = Signer::new(random().map_err(system("draw a secret for links"))?);
        let space = tempfile::Builder::new().prefix("docwharf-origin-").tempdir();
        let space = space.map_err(system("make a temporary folder"))?;
        let (sites, jobs) = (Arc::new(sites), Arc::new(Jobs::default()));
        let worker = worker::Worker {
            jobs: Arc::clone(&jobs),
            sites: Arc::clone(&sites),
            effort,
            space: space.path().to_owned(),
        };
        std::thread::Builder::new()
            .name("packing".to_owned())
            .spawn(move || worker.run())
            .map_err(system("start the thread that packs"))?;
        Ok(Arc::new(Origin {
            sites,
            key,
            link_lifetime: link_lifetime.clamp(SHORTEST_LINK, LONGEST_LINK),
            public_url,
            effort,
            signer,
            jobs,
            sitemaps: Semaphore::new(SITEMAPS_AT_ONCE),
            space: Mutex::new(Some(space)),
        }))
    }

    /// Ends the thread that packs and removes what it was writing. A job under way is abandoned, not waited for.
    pub fn close(&self) {
        self.jobs.close();
        let space = self.space.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = space.map(TempDir::close) {
            tracing::warn!("cannot remove the temporary folder: {error}");
        }
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.close();
    }
}

/// Nothing of key or secret.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("sites", &self.sites).finish_non_exhaustive()
    }
}

impl Answer for Origin {
    type Body = Body;

    fn answer(
        self: &Arc<Self>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Body>> + Send + 'static + use<> {
        let origin = Arc::clone(self);
        async move { routes::answer(&origin, request).await }
    }
}

/// Serves the API on sockets that are bound already until `stop` turns true, within the runtime of the caller; then
/// closes it.
pub async fn serve(origin: Arc<Origin>, listeners: Vec<TcpListener>, stop: watch::Receiver<bool>) -> io::Result<()> {
    let ended = listener::serve(listeners.into_iter().map(Listener::from).collect(), Arc::clone(&origin), stop).await;
    origin.close();
    ended
}

/// Whether a site is there and can be read at all; what it is worth shows when it is packed.
fn look_at(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        std::fs::read_dir(path).map(drop)
    } else if metadata.is_file() {
        File::open(path).map(drop)
    } else {
        // Opening a fifo would wait for whoever writes into it.
        Err(io::Error::other("it is neither a file nor a folder"))
    }
}

/// Bytes that nobody can guess.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let n = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    // Up to 256 bytes come whole (getrandom(2)); fewer would be a secret that is partly zeros.
    if n == N { Ok(bytes) } else { Err(io::Error::other("the system gave too few random bytes")) }
}
