//! The management API, served by docwharf itself: for teams that publish their own documentation, for closed networks,
//! and for tests.
//!
//! An [`Organization`] owns [`Project`]s and keys ([`keys`]). A client with a key can request three things: an export
//! ([`exports`]) of a project's [`source`], a preview of a branch ([`previews`]), and the terms that readers searched
//! for ([`analytics`]). For a completed export it gets a signed link that expires ([`links`]). The link alone is enough
//! to download the bundle; no key is needed ([`bundles`]). Agents that only need to know whether a site has changed
//! request its sitemap, which needs no key ([`survey`]). One table lists all operations with their paths and methods
//! ([`table`]), and the `OpenAPI` document is generated from it ([`openapi`]).
//!
//! Every acknowledged change is on disk ([`db`]), so it survives a crash of the process.
//!
//! # Example
//!
//! An origin that serves exports of one folder. Jobs and bundles are in a temporary folder, because [`Settings::state`]
//! has its default.
//!
//! ```no_run
//! use docwharf_base::model::limits::Limits;
//! use docwharf_origin::source::Source;
//! use docwharf_origin::{Domain, Organization, Origin, Project, Settings};
//! use docwharf_site::seal::Effort;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let mut settings = Settings::new(Effort::new(Limits::default()));
//! settings.organizations.push(Organization {
//!     id: "acme".to_owned(),
//!     projects: vec![Project {
//!         id: "docs".to_owned(),
//!         domain: Domain::parse("docs.example.com")?,
//!         source: Source::Directory("site".into()),
//!         exports: true,
//!         previews: false,
//!     }],
//! });
//! // Clients authenticate with the key in this file.
//! settings.key_file = Some(("acme".to_owned(), "key".into()));
//!
//! let origin = Origin::new(settings)?;
//! let listener = std::net::TcpListener::bind("127.0.0.1:8090")?;
//! let (_stop, stopped) = tokio::sync::watch::channel(false);
//! docwharf_origin::serve(origin, vec![listener], stopped).await?;
//! # Ok(())
//! # }
//! ```

pub mod analytics;
mod answers;
mod body;
pub mod budget;
mod bundles;
pub mod db;
mod domain;
mod exports;
mod key;
pub mod keys;
mod leftover;
pub mod limits;
mod links;
mod management;
mod openapi;
mod ops;
pub mod previews;
mod production;
mod requests;
mod routes;
mod settings;
pub mod shares;
mod sitemap;
pub mod source;
pub(crate) mod space;
mod survey;
mod table;
mod types;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::future::Future;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{Request, Response};
use http_body_util::Either;
use hyper::body::Incoming;
use tempfile::TempDir;
use tokio::sync::{Semaphore, watch};

use docwharf_base::chain::Chain;
use docwharf_site::seal::SealOptions;
use docwharf_serve::service::RequestService;
use docwharf_serve::listener::{self, HttpListener};
use docwharf_serve::peer::Peer;

use analytics::Allowance;
use budget::Budget;
use db::{Database, DatabaseError};
use exports::{ExportJobs, BundleRetention};
use key::KeyFile;
use links::Signer;
use previews::{PreviewError, PreviewService};
use shares::{SharedPool, Shares};
use source::ProjectSource;

pub use body::Body;
pub use domain::{Domain, PublicUrl};
pub use key::KeyError;
pub use limits::{OriginLimits, Resource, ResourceLimits, Unit};
pub use ops::Ops;
pub use settings::{LONGEST_LINK, Organization, PreviewSettings, Project, SHORTEST_LINK, Settings, State};

/// The name of the database file in the folder of an origin.
pub const DATABASE: &str = "origin.db";
/// The number of sitemaps that are made at the same time. A sitemap needs no key, and each one reads a whole folder.
const SITEMAPS_AT_ONCE: usize = 4;
/// The rate limit of preview requests of one organization.
const PREVIEWS: (u32, Duration) = (5, Duration::from_mins(1));
/// The rate limit of analytics queries of one organization.
const QUESTIONS: (u32, Duration) = (100, Duration::from_hours(1));
/// The rate limit of batches of searches of one organization.
const BATCHES: (u32, Duration) = (10_000, Duration::from_hours(1));
/// The limits (each organization, total, reserve for others) of batches that wait for the disk. Each holds a blocking
/// thread, and authenticating a client needs such a thread as well.
const INGESTS: (u64, u64, u64) = (32, 64, 16);
/// The limits of analytics queries that run at the same time, in the same form as [`INGESTS`]. Each reads all rows of
/// its range.
const QUESTIONS_AT_ONCE: (u64, u64, u64) = (2, 4, 2);
/// The limits of analytics queries that run or wait, in the same form as [`INGESTS`].
const QUESTIONS_WAITING: (u64, u64, u64) = (16, 64, 16);
/// Searches that expire within this time (or within half of `analytics.keep`, if that is less) are left out of a new
/// paginated query, so that none of its searches expires while it is under way.
const WALK: Duration = Duration::from_hours(24);
/// The window of `limits.*.links` and `limits.*.events`.
const HOUR: Duration = Duration::from_hours(1);
/// The interval at which expired data is removed.
const TIDY: Duration = Duration::from_hours(1);

/// A response body: a text or a part of a bundle, or the body that the site of a preview returns.
pub type Said = Either<Body, docwharf_serve::body::ResponseBody>;

/// An error that prevents the start of an origin.
#[derive(Debug, thiserror::Error)]
pub enum OriginError {
    /// A folder or archive does not exist or cannot be read.
    #[error("cannot read {}, the site of {domain}", path.display())]
    Site {
        /// The domain of the site.
        domain: Domain,
        /// The configured path.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
    /// There is no admin key.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The database cannot be read or written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The previews cannot be opened.
    #[error(transparent)]
    Previews(#[from] PreviewError),
    /// Another origin uses the folder.
    #[error("{} belongs to another origin that is running; stop it, or give this one a store.path of its own", .0.display())]
    Locked(PathBuf),
    /// The operating system provides no folder, no thread or no random bytes.
    #[error("cannot {doing}")]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// A running management API.
pub struct Origin {
    projects: BTreeMap<String, Project>,
    /// The organization and project of each domain.
    domains: BTreeMap<Domain, (String, String)>,
    /// The organization of each project.
    owners: Arc<BTreeMap<String, String>>,
    key: Option<(String, KeyFile)>,
    db: Arc<Database>,
    link_lifetime: Duration,
    public_url: Option<PublicUrl>,
    preview_host: Option<Domain>,
    effort: SealOptions,
    signer: Signer,
    /// The secret that cursors are signed with.
    cursor: [u8; 32],
    exports: Arc<ExportJobs>,
    previews: Arc<PreviewService>,
    preview_budget: Budget,
    question_budget: Budget,
    /// The amount of each shared resource that organizations hold.
    shares: Arc<Shares>,
    link_budget: Budget,
    event_budget: Arc<Budget>,
    /// The number of bytes that must stay free on the disk.
    min_free: Option<u64>,
    /// The time for which searches are kept.
    searches: Duration,
    /// Analytics queries that run or wait, and those that run.
    asked: Arc<SharedPool>,
    questions: Arc<SharedPool>,
    sitemaps: Arc<Semaphore>,
    /// The sitemaps of projects with a folder.
    surveys: BTreeMap<String, sitemap::FolderSurvey>,
    /// The branch heads of projects with a repository.
    heads: BTreeMap<String, sitemap::Head>,
    ingest_budget: Budget,
    /// Batches that are being written.
    ingests: Arc<SharedPool>,
    counted: ops::Counted,
    /// Stops the thread that removes expired data.
    closed: std::sync::mpsc::Sender<()>,
    /// The temporary folder, if the state is temporary; and the lock of the folder.
    held: Mutex<(Option<TempDir>, Option<docwharf_base::durable::Lock>)>,
}

impl Origin {
    /// Creates an origin: reads the key, checks the sites, opens the persistent state, and starts the threads that make
    /// bundles and previews. If a site is missing, this fails with a temporary state and logs an error otherwise.
    pub fn new(settings: Settings) -> Result<Arc<Origin>, OriginError> {
        let Settings { organizations, state, effort, .. } = settings;
        for project in organizations.iter().flat_map(|organization| &organization.projects) {
            let ProjectSource::Directory(path) = &project.source else { continue };
            let Err(source) = look_at(path) else { continue };
            let error = OriginError::Site { domain: project.domain.clone(), path: path.clone(), source };
            match state {
                // The missing folder of one project must not stop the others.
                State::Folder(_) => tracing::error!("{}; its exports fail until it is there", Chain(&error)),
                State::Temporary => return Err(error),
            }
        }
        let key =
            settings.key_file.map(|(whose, path)| Ok::<_, KeyError>((whose, KeyFile::open(path)?))).transpose()?;
        let system = |doing| move |source| OriginError::System { doing, source };
        let (folder, temporary) = match state {
            State::Folder(folder) => (folder, None),
            State::Temporary => {
                let folder = tempfile::Builder::new().prefix("docwharf-origin-").tempdir();
                let folder = folder.map_err(system("make a temporary folder"))?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let lock = lock(&folder)?;
        let db = Arc::new(Database::open(&folder.join(DATABASE))?);
        let shares = Shares::new(settings.limits, organizations.len());
        let mut domains = BTreeMap::new();
        let (mut projects, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for organization in organizations {
            for project in organization.projects {
                domains.insert(project.domain.clone(), (organization.id.clone(), project.id.clone()));
                owners.insert(project.id.clone(), organization.id.clone());
                projects.insert(project.id.clone(), project);
            }
        }
        let owners = Arc::new(owners);
        let owned = |project: &Project| (project.id.clone(), (owners[&project.id].clone(), project.clone()));
        let owned = projects.values().map(owned).collect();
        let is_git = |project: &&Project| matches!(project.source, ProjectSource::Git(_));
        let heads = projects.values().filter(is_git).map(|project| (project.id.clone(), sitemap::Head::default()));
        let heads = heads.collect();
        let is_folder = |project: &&Project| matches!(project.source, ProjectSource::Directory(_));
        let surveys =
            projects.values().filter(is_folder).map(|project| (project.id.clone(), sitemap::FolderSurvey::default()));
        let surveys = surveys.collect();
        // With a temporary state, bundles have no minimum lifetime.
        let young = if temporary.is_some() { Duration::ZERO } else { settings.link_lifetime };
        let keep = BundleRetention::new(settings.keep, &shares, young, settings.min_free);
        let exports = Arc::new(ExportJobs::open(Arc::clone(&db), Arc::clone(&shares), owned, effort, keep, &folder)?);
        for n in 0..settings.limits.total.count(Resource::Workers) {
            let exports = Arc::clone(&exports);
            std::thread::Builder::new()
                .name(format!("packing-{n}"))
                .spawn(move || exports.work())
                .map_err(system("start the threads that make bundles"))?;
        }
        let previews = open_previews(&db, &folder, &projects, &owners, effort, &settings.previews, &exports)?;
        let (signer, cursor) = (Signer::new(secret(&db, "links")?), secret(&db, "cursors")?);
        let (closed, over) = std::sync::mpsc::channel();
        let (tidied, age, old) = (Arc::clone(&db), settings.searches, Arc::clone(&exports));
        std::thread::Builder::new()
            .name("tidying".to_owned())
            .spawn(move || tidy(&tidied, age, &old, &over))
            .map_err(system("start the thread that tidies"))?;
        let hourly = |resource| {
            let limits = &settings.limits;
            Budget::shared(limits.organization[resource], limits.total[resource], shares.pool(resource).reserve(), HOUR)
        };
        let pool = |(organization, total, reserve)| SharedPool::new(organization, total, reserve);
        Ok(Arc::new(Origin {
            projects,
            domains,
            owners,
            key,
            db,
            link_lifetime: settings.link_lifetime.clamp(SHORTEST_LINK, LONGEST_LINK),
            public_url: settings.public_url,
            preview_host: settings.previews.host,
            effort,
            signer,
            cursor,
            exports,
            previews,
            preview_budget: Budget::new(PREVIEWS.0, PREVIEWS.1),
            question_budget: Budget::new(QUESTIONS.0, QUESTIONS.1),
            link_budget: hourly(Resource::Links),
            event_budget: Arc::new(hourly(Resource::Events)),
            min_free: settings.min_free,
            searches: settings.searches,
            asked: pool(QUESTIONS_WAITING),
            questions: pool(QUESTIONS_AT_ONCE),
            surveys,
            sitemaps: Arc::new(Semaphore::new(SITEMAPS_AT_ONCE)),
            heads,
            ingest_budget: Budget::new(BATCHES.0, BATCHES.1),
            ingests: pool(INGESTS),
            shares,
            counted: ops::Counted::new(),
            closed,
            held: Mutex::new((temporary, Some(lock))),
        }))
    }

    /// Returns the limits on what an organization may put into the database.
    fn allowance(&self, organization: &str) -> Allowance {
        let events = Some(Arc::clone(&self.event_budget));
        Allowance::new(organization, Arc::clone(&self.owners), Arc::clone(&self.shares), events, self.min_free)
    }

    /// Returns the time, in milliseconds since 1970, from which searches count for a paginated query that starts now.
    /// Searches that may expire while the query is under way are older.
    fn oldest_searches(&self) -> i64 {
        let counted = self.searches.saturating_sub(WALK.min(self.searches / 2));
        millis(SystemTime::now()).saturating_sub(i64::try_from(counted.as_millis()).unwrap_or(i64::MAX))
    }

    /// Stops the threads that make bundles and previews. Builds and crawls under way are cancelled and have a few
    /// seconds to end; the packing of a bundle is abandoned.
    pub fn close(&self) {
        self.exports.close();
        self.previews.close();
        let _ = self.closed.send(());
        let (temporary, lock) = std::mem::take(&mut *self.held.lock().unwrap_or_else(PoisonError::into_inner));
        if let Some(Err(error)) = temporary.map(TempDir::close) {
            tracing::warn!("cannot remove the temporary folder: {error}");
        }
        drop(lock);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.close();
    }
}

/// Shows neither the key nor a secret.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("domains", &self.domains).finish_non_exhaustive()
    }
}

impl RequestService for Origin {
    type Body = Said;

    fn respond(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Said>> + Send + 'static + use<> {
        request.extensions_mut().insert(peer);
        routes::answer(Arc::clone(self), request)
    }
}

/// Serves the API on bound sockets until `stop` becomes true, then closes it. Connections run on threads of their own,
/// one per core; the caller's runtime only waits for the end.
pub async fn serve(origin: Arc<Origin>, listeners: Vec<TcpListener>, stop: watch::Receiver<bool>) -> io::Result<()> {
    let ended = listener::serve(listeners.into_iter().map(HttpListener::from).collect(), Arc::clone(&origin), stop).await;
    origin.close();
    ended
}

/// Creates the folder if necessary, and locks it, so that only one origin uses it at a time. Its content is private,
/// but a build that runs as another user must be able to pass through it; hence mode 0711.
fn lock(folder: &Path) -> Result<docwharf_base::durable::Lock, OriginError> {
    use std::os::unix::fs::DirBuilderExt;
    let system = |doing| move |source| OriginError::System { doing, source };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o711).create(folder).map_err(system("make the folder store.path"))?;
    docwharf_base::durable::Lock::take(&folder.join("lock"), Duration::ZERO)
        .map_err(system("lock the folder store.path"))?
        .ok_or_else(|| OriginError::Locked(folder.to_owned()))
}

/// Returns the secret of this name, which is created once and then read from the database.
fn secret<const N: usize>(db: &Database, name: &'static str) -> Result<[u8; N], OriginError> {
    let drawn: [u8; N] = random().map_err(|source| OriginError::System { doing: "draw a secret for links", source })?;
    Ok(db.write(move |transaction| {
        transaction.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, drawn.as_slice()))?;
        transaction.query_row("SELECT value FROM secrets WHERE name = ?", [name], |row| row.get(0))
    })?)
}

/// The path below which previews are served if they have no host of their own.
const BELOW: &str = "/preview/";

fn open_previews(
    db: &Arc<Database>,
    folder: &Path,
    projects: &BTreeMap<String, Project>,
    owners: &BTreeMap<String, String>,
    effort: SealOptions,
    settings: &PreviewSettings,
    exports: &Arc<ExportJobs>,
) -> Result<Arc<PreviewService>, OriginError> {
    let of_git = projects.values().filter(|project| project.previews).filter_map(|project| match &project.source {
        ProjectSource::Git(git) => {
            let preview = previews::PreviewProject {
                organization: owners[&project.id].clone(),
                id: project.id.clone(),
                domain: project.domain.to_string(),
                git: git.clone(),
            };
            Some((project.id.clone(), preview))
        }
        _ => None,
    });
    let place = match &settings.host {
        Some(_) => previews::PreviewLocation::Host,
        None => previews::PreviewLocation::Path(BELOW.to_owned()),
    };
    let settings = previews::PreviewServiceSettings {
        folder: folder.join("previews"),
        projects: of_git.collect(),
        effort,
        shares: Arc::clone(exports.shares()),
        every: settings.every,
        place,
        production: production::production(Arc::clone(exports), folder.to_owned(), effort),
    };
    Ok(PreviewService::open(Arc::clone(db), settings)?)
}

/// Removes expired searches and jobs once an hour, until the origin is closed.
fn tidy(db: &Database, age: Duration, exports: &ExportJobs, over: &std::sync::mpsc::Receiver<()>) {
    loop {
        exports.forget();
        let before = millis(SystemTime::now()).saturating_sub(i64::try_from(age.as_millis()).unwrap_or(i64::MAX));
        let pruned = analytics::projects(db).and_then(|projects| {
            projects.iter().try_for_each(|project| analytics::prune(db, project, before).map(drop))
        });
        if let Err(error) = pruned {
            tracing::warn!("cannot remove old searches: {}", Chain(&error));
        }
        match over.recv_timeout(TIDY) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}

/// Checks that a site exists and can be read. Its content is checked when it is packed.
fn look_at(path: &Path) -> io::Result<()> {
    let metadata = std::fs::metadata(path)?;
    if metadata.is_dir() {
        std::fs::read_dir(path).map(drop)
    } else if metadata.is_file() {
        File::open(path).map(drop)
    } else {
        // Opening a FIFO would block until another process opens it for writing.
        Err(io::Error::other("it is neither a file nor a folder"))
    }
}

/// Returns random bytes for a secret.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let n = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
    // The system call returns up to 256 bytes completely (getrandom(2)). With fewer, a part of the secret would be
    // zeros.
    if n == N { Ok(bytes) } else { Err(io::Error::other("the system gave too few random bytes")) }
}

/// Converts a time to milliseconds since 1970.
fn millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}
