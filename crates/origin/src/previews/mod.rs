//! Previews: a branch as readers would see it.
//!
//! A project with a Git repository has at most one preview a branch. Deploying a branch makes its site as an export is
//! made, proves and seals it as any bundle (`build`, `shelf`), counts the links that lead nowhere (`links`) and shows it at an
//! address that stays the preview's own (`slug`). What was shown before is shown until then, and afterwards,
//! too, if nothing comes of it. A preview stays as long as its branch: every while each repository is asked which it has,
//! and one that cannot be asked, or says that it has none at all, keeps all.
//!
//! **What is acknowledged.** A deployment is on disk before it has an id that anybody knows; a version is durable before a
//! row names it, and named before its deployment says `success`, which in turn it says only once the version is shown.
//! After a kill, what waited waits again; what was being built has failed and says that the origin was stopped; a version
//! without a row is removed.
//!
//! **One at a time.** Who deploys a branch that waits for its turn already gets the id of that deployment: it takes the
//! branch as it is when it begins. Beside one that is being built, one more waits.
//!
//! **Who may look.** Anybody who knows the address, like the production site. No answer is for search engines or shared
//! caches ([`answer`]).
//!
//! **Below a path** ([`Place::Path`]) a preview is served as `server.basePath` does it: addresses, redirects, rules and
//! the fields of answers are those of the prefix. Pages are sent as they were sealed, so that links and assets must be
//! relative, or the build must know the prefix ([`Place::base_path`]): a link that begins with `/` leads out of it. To a
//! browser all previews there, and whatever else that host serves, are one site, which share what scripts store. On a host
//! of its own ([`Place::Host`]) every site works, and is apart from the others.

mod answer;
mod build;
mod deployment;
mod links;
mod queue;
mod rows;
mod shelf;
mod shown;
mod slug;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use docwharf_base::model::digest::hex;
use docwharf_site::seal::Effort;
use docwharf_serve::Site;
use docwharf_site::sealed::Sealed;

use super::db::{Database, DatabaseError};
use super::limits::Resource;
use super::random;
use super::shares::Shares;
use super::source::Watch;
use super::source::git::{self, Git};
use queue::{Admitted, Queue};
use rows::Waiting;
use shelf::Shelf;

pub use answer::answer;
pub use deployment::{Author, Commit, Deployment, FilesChanged, Status, Trigger};
pub use shelf::ShelfError;

/// How long a stop waits for builds to end.
const PATIENCE: Duration = Duration::from_secs(5);
/// The longest name of a branch, in bytes: what file systems and servers take.
const LONGEST_BRANCH: usize = 255;

/// A project that has previews.
#[derive(Debug, Clone)]
pub struct Project {
    /// Whose it is.
    pub organization: String,
    /// Its id, as in the API.
    pub id: String,
    /// The domain of its production site.
    pub domain: String,
    /// Its repository, and how a site is made of a branch.
    pub git: Git,
}

/// Where previews are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// Each on a host of its own, `<slug>.<preview host>`.
    Host,
    /// Each below a path, `<prefix><project>/<slug>/`; the prefix begins and ends with `/`.
    Path(String),
}

impl Place {
    /// Where a preview begins on its host.
    pub fn base_path(&self, project: &str, slug: &str) -> String {
        match self {
            Place::Host => "/".to_owned(),
            Place::Path(prefix) => format!("{prefix}{project}/{slug}/"),
        }
    }
}

/// Finds what a project shows in production, as far as this origin knows.
pub type Production = Arc<dyn Fn(&str) -> Option<Arc<Sealed>> + Send + Sync>;

/// How previews are made and shown.
#[derive(Clone)]
pub struct Settings {
    /// A folder that nobody else writes to.
    pub folder: PathBuf,
    /// By their ids.
    pub projects: BTreeMap<String, Project>,
    /// What proving and sealing may cost.
    pub effort: Effort,
    /// What organizations may take; as many are built at a time as there are places for that.
    pub shares: Arc<Shares>,
    /// How often repositories are asked for their branches.
    pub every: Duration,
    /// Where previews are.
    pub place: Place,
    /// What their links are compared with.
    pub production: Production,
}

/// Why there are no previews.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// Their folder cannot be used.
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system gives no thread.
    #[error("cannot start the threads that build previews")]
    Thread(#[source] io::Error),
}

/// Why a branch is not deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// There is no such project.
    #[error("no such project has previews here")]
    NoProject,
    /// No branch can have this name; says why.
    #[error("bad branch: {0}")]
    Branch(&'static str),
    /// Too many wait.
    #[error("too many deployments are waiting; start this one later")]
    Full,
    /// The origin is being stopped.
    #[error("the origin is stopping; deploy again")]
    Closed,
    /// It cannot be written down.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system gives no random bytes.
    #[error("cannot make an id for the deployment")]
    NoId(#[source] io::Error),
}

/// A deployment that has been acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// What it is asked for with.
    pub status_id: String,
    /// What its preview's address is made of.
    pub slug: String,
}

/// A preview that has an address.
#[derive(Debug)]
struct Shown {
    project: String,
    site: Arc<Site>,
}

/// What threads share.
struct Inner {
    db: Arc<Database>,
    shelf: Shelf,
    projects: BTreeMap<String, Project>,
    effort: Effort,
    place: Place,
    production: Production,
    queue: Arc<Queue>,
    /// By slug.
    shown: RwLock<HashMap<String, Shown>>,
    /// Of what repositories are asked beside building.
    asking: Watch,
}

/// All previews of an origin. Dropped, it is closed.
pub struct Previews {
    inner: Arc<Inner>,
}

impl fmt::Debug for Previews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Previews").field("projects", &self.inner.projects.keys()).finish_non_exhaustive()
    }
}

impl Previews {
    /// Shows what there is, and goes on with what was waiting. Waits for the disk.
    pub fn open(db: Arc<Database>, settings: Settings) -> Result<Arc<Previews>, PreviewError> {
        let Settings { folder, projects, effort, shares, every, place, production } = settings;
        let shelf = Shelf::open(folder)?;
        let workers = shares.limits.total.count(Resource::PreviewBuilds);
        let (queue, shown) = (Arc::new(Queue::new(shares)), RwLock::default());
        let inner =
            Arc::new(Inner { db, shelf, projects, effort, place, production, queue, shown, asking: Watch::default() });
        let waiting = inner.db.write(|transaction| rows::resume(transaction, milliseconds()))?;
        inner.show_all()?;
        for job in &waiting {
            inner.place_for(&job.project, &job.slug);
        }
        inner.queue.resume(waiting);
        // From here on whatever fails closes what has begun.
        let previews = Arc::new(Previews { inner });
        for n in 0..workers.max(1) {
            previews.spawn(format!("preview-{n}"), Inner::work)?;
        }
        previews.spawn("branches".to_owned(), move |inner| {
            while !inner.queue.sleep(every) {
                inner.sweep();
            }
        })?;
        Ok(previews)
    }

    fn spawn(&self, name: String, work: impl FnOnce(&Inner) + Send + 'static) -> Result<(), PreviewError> {
        let (inner, inside) = (Arc::clone(&self.inner), self.inner.queue.enter());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            work(&inner);
            // Whoever waits for the thread waits for the lock on the folder, too.
            drop(inner);
            drop(inside);
        });
        thread.map(drop).map_err(PreviewError::Thread)
    }

    /// Queues the deployment of a branch; it is on disk when this returns. Waits for the disk.
    pub fn deploy(&self, project: &str, branch: &str) -> Result<Started, DeployError> {
        let inner = &self.inner;
        let project = inner.projects.get(project).ok_or(DeployError::NoProject)?;
        if branch.len() > LONGEST_BRANCH {
            return Err(DeployError::Branch("it is longer than 255 bytes"));
        }
        if !git::is_branch_name(branch) {
            return Err(DeployError::Branch("Git allows no branch of that name"));
        }
        let wanted = Waiting {
            id: format!("dp_{}", hex(&random::<8>().map_err(DeployError::NoId)?)),
            organization: project.organization.clone(),
            project: project.id.clone(),
            branch: branch.to_owned(),
            slug: String::new(),
        };
        let admitted = inner.queue.admit(wanted, |wanted| {
            let job = wanted.clone();
            let slug = inner.db.write(move |transaction| rows::queue(transaction, &job, milliseconds()))?;
            inner.place_for(&wanted.project, &slug);
            Ok(Waiting { slug, ..wanted })
        });
        match admitted {
            Admitted::Waits(Waiting { id, slug, .. }) => Ok(Started { status_id: id, slug }),
            Admitted::Full => Err(DeployError::Full),
            Admitted::Closed => Err(DeployError::Closed),
            Admitted::Failed(error) => Err(DeployError::Database(error)),
        }
    }

    /// How far a deployment is; `None` if there was none, or it has been forgotten. Waits for the disk.
    pub fn status(&self, id: &str) -> Result<Option<Deployment>, DatabaseError> {
        // First: one that has ended on disk is under way until its preview shows it.
        let watch = self.inner.queue.watch(id);
        let mut found = self.inner.db.read(|connection| rows::deployment(connection, id))?;
        if let Some(deployment) = &mut found {
            if let Some(project) = self.inner.projects.get(&deployment.project_id) {
                deployment.organization.clone_from(&project.organization);
            }
            if let Some(watch) = watch.filter(|_| deployment.status != Status::Queued) {
                deployment.status = Status::InProgress;
                (deployment.ended_at, deployment.summary, deployment.logs) = (None, None, watch.log());
            }
        }
        Ok(found)
    }

    /// What is served as a preview, by [`answer`]. It stays the same object while the preview is deployed again. `None` if
    /// there is no such preview or nothing has come of it; one that is being built for the first time answers 503.
    pub fn site(&self, project: &str, slug: &str) -> Option<Arc<Site>> {
        let shown = self.inner.shown.read().unwrap_or_else(PoisonError::into_inner);
        let site = shown.get(slug).filter(|shown| shown.project == project).map(|shown| Arc::clone(&shown.site))?;
        drop(shown);
        (site.current().is_some() || self.inner.queue.is_busy(slug)).then_some(site)
    }

    /// The project and slug of the preview whose host begins with this label.
    pub fn by_host_label(&self, label: &str) -> Option<(String, String)> {
        let slug = label.to_ascii_lowercase();
        let shown = self.inner.shown.read().unwrap_or_else(PoisonError::into_inner);
        let project = shown.get(&slug)?.project.clone();
        Some((project, slug))
    }

    /// How many have something to show.
    pub fn count(&self) -> usize {
        let shown = self.inner.shown.read().unwrap_or_else(PoisonError::into_inner);
        shown.values().filter(|shown| shown.site.current().is_some()).count()
    }

    /// Removes previews whose branch is gone. Waits for repositories.
    pub fn sweep(&self) {
        self.inner.sweep();
    }

    /// Ends what is being built, as a failure that says so, and begins nothing any more. Waits a few seconds at most.
    pub fn close(&self) {
        self.inner.asking.end();
        self.inner.queue.close(PATIENCE);
    }
}

impl Drop for Previews {
    fn drop(&mut self) {
        self.close();
    }
}

/// Now, in milliseconds since 1970.
fn milliseconds() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
