//! The management API, served by docwharf itself: for teams that publish their own documentation, for closed networks, and
//! for tests.
//!
//! An [`Organization`] owns [`Project`]s and keys ([`keys`]). A client with a key asks for an export ([`exports`]) of a
//! project's [`source`], for a preview of a branch ([`previews`]), or for what readers searched for ([`analytics`]). For a
//! finished export it gets a link, signed and short-lived ([`links`]), and whoever has the link gets the bytes, without the
//! key ([`bundles`]). Agents that only want to know whether anything has changed ask for the sitemap, which needs no key
//! ([`survey`]). What is answered where is one table ([`table`]), from which the `OpenAPI` document is made ([`openapi`]).
//!
//! What was acknowledged is on disk ([`db`]) and outlives the process, however that ends.

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
use docwharf_site::seal::Effort;
use docwharf_serve::answer::Answer;
use docwharf_serve::listener::{self, Listener};
use docwharf_serve::peer::Peer;

use analytics::Allowance;
use budget::Budget;
use db::{Database, DatabaseError};
use exports::{Exports, Keep};
use key::KeyFile;
use links::Signer;
use previews::{PreviewError, Previews};
use shares::{SharedPool, Shares};
use source::Source;

pub use body::Body;
pub use domain::{Domain, PublicUrl};
pub use key::KeyError;
pub use limits::{OriginLimits, Resource, ResourceLimits, Unit};
pub use ops::Ops;
pub use settings::{LONGEST_LINK, Organization, PreviewSettings, Project, SHORTEST_LINK, Settings, State};

/// The database's file in the folder of an origin.
pub const DATABASE: &str = "origin.db";
/// Sitemaps made at a time. They need no key, and each one walks a folder.
const SITEMAPS_AT_ONCE: usize = 4;
/// Previews that an organization may ask for.
const PREVIEWS: (u32, Duration) = (5, Duration::from_mins(1));
/// Questions about searches that an organization may ask.
const QUESTIONS: (u32, Duration) = (100, Duration::from_hours(1));
/// Batches of searches that an organization may send.
const BATCHES: (u32, Duration) = (10_000, Duration::from_hours(1));
/// Batches of an organization, and of all, that may wait for the disk, and what one leaves to others. Each holds a thread, of
/// which whoever looks up a key needs one as well.
const INGESTS: (u64, u64, u64) = (32, 64, 16);
/// Questions about searches that are answered at a time, likewise. Each reads all of its range.
const QUESTIONS_AT_ONCE: (u64, u64, u64) = (2, 4, 2);
/// The same for those that are answered or wait for it.
const QUESTIONS_WAITING: (u64, u64, u64) = (16, 64, 16);
/// What begins a walk through searches leaves out what is removed within this time, or half of `analytics.keep`.
const WALK: Duration = Duration::from_hours(24);
/// The window of `limits.*.links` and `limits.*.events`.
const HOUR: Duration = Duration::from_hours(1);
/// How often what is too old is removed.
const TIDY: Duration = Duration::from_hours(1);

/// A text or a part of a bundle, or what the site of a preview answers.
pub type Said = Either<Body, docwharf_serve::body::Body>;

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
    /// What outlives the process cannot be read or written.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// Previews cannot be kept.
    #[error(transparent)]
    Previews(#[from] PreviewError),
    /// Another origin uses the folder.
    #[error("{} belongs to another origin that is running; stop it, or give this one a store.path of its own", .0.display())]
    Locked(PathBuf),
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
    effort: Effort,
    signer: Signer,
    /// What cursors are signed with.
    cursor: [u8; 32],
    exports: Arc<Exports>,
    previews: Arc<Previews>,
    preview_budget: Budget,
    question_budget: Budget,
    /// What organizations hold of what they share.
    shares: Arc<Shares>,
    link_budget: Budget,
    event_budget: Arc<Budget>,
    /// What must stay free on the disk.
    min_free: Option<u64>,
    /// For how long searches are kept.
    searches: Duration,
    /// Questions that are answered or wait, and those that are answered.
    asked: Arc<SharedPool>,
    questions: Arc<SharedPool>,
    sitemaps: Arc<Semaphore>,
    /// Of projects with a folder.
    surveys: BTreeMap<String, sitemap::FolderSurvey>,
    /// Of projects with a repository.
    heads: BTreeMap<String, sitemap::Head>,
    ingest_budget: Budget,
    /// Batches that are written at a time.
    ingests: Arc<SharedPool>,
    counted: ops::Counted,
    /// Told when nothing is to be tidied any more.
    closed: std::sync::mpsc::Sender<()>,
    /// Where everything lies, where that goes with the process; and the lock.
    held: Mutex<(Option<TempDir>, Option<docwharf_base::durable::Lock>)>,
}

impl Origin {
    /// Looks at key and sites, opens what is in the state's folder, and starts the threads that make bundles and previews.
    pub fn new(settings: Settings) -> Result<Arc<Origin>, OriginError> {
        let Settings { organizations, state, effort, .. } = settings;
        for project in organizations.iter().flat_map(|organization| &organization.projects) {
            let Source::Directory(path) = &project.source else { continue };
            let Err(source) = look_at(path) else { continue };
            let error = OriginError::Site { domain: project.domain.clone(), path: path.clone(), source };
            match state {
                // One project's missing folder is not everybody's trouble.
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
        let is_git = |project: &&Project| matches!(project.source, Source::Git(_));
        let heads = projects.values().filter(is_git).map(|project| (project.id.clone(), sitemap::Head::default()));
        let heads = heads.collect();
        let is_folder = |project: &&Project| matches!(project.source, Source::Directory(_));
        let surveys =
            projects.values().filter(is_folder).map(|project| (project.id.clone(), sitemap::FolderSurvey::default()));
        let surveys = surveys.collect();
        // Whoever keeps nothing keeps no promise to those who come late, either.
        let young = if temporary.is_some() { Duration::ZERO } else { settings.link_lifetime };
        let keep = Keep::new(settings.keep, &shares, young, settings.min_free);
        let exports = Arc::new(Exports::open(Arc::clone(&db), Arc::clone(&shares), owned, effort, keep, &folder)?);
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

    /// What an organization may put into the database.
    fn allowance(&self, organization: &str) -> Allowance {
        let events = Some(Arc::clone(&self.event_budget));
        Allowance::new(organization, Arc::clone(&self.owners), Arc::clone(&self.shares), events, self.min_free)
    }

    /// The time before which nothing counts for a walk through searches that begins now, in milliseconds since 1970: what is
    /// removed while it goes on lies before it.
    fn oldest_searches(&self) -> i64 {
        let counted = self.searches.saturating_sub(WALK.min(self.searches / 2));
        millis(SystemTime::now()).saturating_sub(i64::try_from(counted.as_millis()).unwrap_or(i64::MAX))
    }

    /// Ends the threads that make bundles and previews. Work under way is abandoned, not waited for.
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

/// Nothing of key or secret.
impl fmt::Debug for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("domains", &self.domains).finish_non_exhaustive()
    }
}

impl Answer for Origin {
    type Body = Said;

    fn answer(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        peer: Peer,
    ) -> impl Future<Output = Response<Said>> + Send + 'static + use<> {
        request.extensions_mut().insert(peer);
        routes::answer(Arc::clone(self), request)
    }
}

/// Serves the API on sockets that are bound already until `stop` turns true, within the runtime of the caller; then
/// closes it.
pub async fn serve(origin: Arc<Origin>, listeners: Vec<TcpListener>, stop: watch::Receiver<bool>) -> io::Result<()> {
    let ended = listener::serve(listeners.into_iter().map(Listener::from).collect(), Arc::clone(&origin), stop).await;
    origin.close();
    ended
}

/// Makes the folder if need be. What lies there is not public, but builds that run as another user pass through it. One
/// origin at a time works in it.
fn lock(folder: &Path) -> Result<docwharf_base::durable::Lock, OriginError> {
    use std::os::unix::fs::DirBuilderExt;
    let system = |doing| move |source| OriginError::System { doing, source };
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true).mode(0o711).create(folder).map_err(system("make the folder store.path"))?;
    docwharf_base::durable::Lock::take(&folder.join("lock"), Duration::ZERO)
        .map_err(system("lock the folder store.path"))?
        .ok_or_else(|| OriginError::Locked(folder.to_owned()))
}

/// Bytes that this origin has drawn once, for this purpose.
fn secret<const N: usize>(db: &Database, name: &'static str) -> Result<[u8; N], OriginError> {
    let drawn: [u8; N] = random().map_err(|source| OriginError::System { doing: "draw a secret for links", source })?;
    Ok(db.write(move |transaction| {
        transaction.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, drawn.as_slice()))?;
        transaction.query_row("SELECT value FROM secrets WHERE name = ?", [name], |row| row.get(0))
    })?)
}

/// Where previews lie without a host of their own.
const BELOW: &str = "/preview/";

fn open_previews(
    db: &Arc<Database>,
    folder: &Path,
    projects: &BTreeMap<String, Project>,
    owners: &BTreeMap<String, String>,
    effort: Effort,
    settings: &PreviewSettings,
    exports: &Arc<Exports>,
) -> Result<Arc<Previews>, OriginError> {
    let of_git = projects.values().filter(|project| project.previews).filter_map(|project| match &project.source {
        Source::Git(git) => {
            let preview = previews::Project {
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
        Some(_) => previews::Place::Host,
        None => previews::Place::Path(BELOW.to_owned()),
    };
    let settings = previews::Settings {
        folder: folder.join("previews"),
        projects: of_git.collect(),
        effort,
        shares: Arc::clone(exports.shares()),
        every: settings.every,
        place,
        production: production::production(Arc::clone(exports), folder.to_owned(), effort),
    };
    Ok(Previews::open(Arc::clone(db), settings)?)
}

/// Removes events and jobs that are too old, now and then.
fn tidy(db: &Database, age: Duration, exports: &Exports, over: &std::sync::mpsc::Receiver<()>) {
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

/// Milliseconds since 1970.
fn millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    }
}
