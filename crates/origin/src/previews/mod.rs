//! Previews: branches served as readers would see them.
//!
//! A project with a Git repository has at most one preview for each branch. Deploying a branch builds its site like an
//! export, verifies and seals it like any bundle ([`build`], [`shelf`]), counts its broken links ([`links`]) and serves
//! it at an address that the preview keeps ([`slug`]). The preview serves its previous version until then, and also
//! afterwards if the deployment fails. A preview stays as long as its branch. Each repository is asked at intervals for
//! its branches; if it cannot be reached or has no branch at all, all its previews stay.
//!
//! **Durability.** A deployment is on disk before its id is returned. A version is durable before a row names it. The
//! row is written before the deployment reports `success`, which it does only once the version is served. After a kill,
//! waiting deployments wait again; those that were being built have failed, with the message that the origin was
//! stopped; versions without a row are removed.
//!
//! **One at a time.** A request for a branch that already waits gets the id of the waiting deployment, which builds the
//! branch as it is when the build begins. While a deployment of a branch is being built, one more may wait.
//!
//! **Access.** Every client that knows the address may read a preview, like the production site. Header fields of each
//! response exclude search engines and shared caches ([`answer`]).
//!
//! **Below a path** ([`Place::Path`]) a preview is served as with `server.basePath`: addresses, redirects, rules and
//! header fields are those of the prefix. Pages are sent as they were sealed. So links and assets must be relative, or
//! the build must know the prefix ([`Place::base_path`]): a link that begins with `/` leads out of it. To a browser,
//! all previews there and everything else on that host are one origin, and share what scripts store. On a host of its
//! own ([`Place::Host`]) every site works, and is isolated from the others.

mod build;
mod deployment;
mod links;
mod queue;
mod response;
mod rows;
mod sites;
mod slug;
mod store;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use docwharf_base::clock::now_unix_millis;
use docwharf_base::locks::RwLock;
use docwharf_base::model::digest::hex;
use docwharf_serve::Site;
use docwharf_site::seal::SealOptions;
use docwharf_site::sealed_version::SealedVersion;

use super::database::{Database, DatabaseError};
use super::limits::SharedResource;
use super::random_bytes::random_bytes;
use super::shares::ResourcePools;
use super::source::JobContext;
use super::source::git::{self, Git};
use queue::{DeploymentQueue, EnqueueResult};
use rows::QueuedDeployment;
use store::PreviewStore;

pub use deployment::{Author, Commit, Deployment, FilesChanged, Status, Trigger};
pub use response::respond_to_preview;
pub use store::PreviewStoreError;

/// Time that a stop waits for builds to end.
const PREVIEW_STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum length of a branch name in bytes, as file systems and servers accept it.
const MAX_BRANCH_BYTES: usize = 255;

/// A project that has previews.
#[derive(Debug, Clone)]
pub struct PreviewProject {
    /// Its organization.
    pub organization: String,
    /// Its id, as in the API.
    pub id: String,
    /// The domain of its production site.
    pub domain: String,
    /// Its repository, and how a site is built from a branch.
    pub git: Git,
}

/// Where previews are served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PreviewLocation {
    /// Each on its own host, `<slug>.<preview host>`.
    Host,
    /// Each below a path, `<prefix><project>/<slug>/`; the prefix begins and ends with `/`.
    Path(String),
}

impl PreviewLocation {
    /// Returns the path at which a preview begins on its host.
    pub fn base_path(&self, project: &str, slug: &str) -> String {
        match self {
            PreviewLocation::Host => "/".to_owned(),
            PreviewLocation::Path(prefix) => format!("{prefix}{project}/{slug}/"),
        }
    }
}

/// Function that returns the version that a project serves in production, as far as this origin knows it.
pub type Production = Arc<dyn Fn(&str) -> Option<Arc<SealedVersion>> + Send + Sync>;

/// Settings of previews.
#[derive(Clone)]
pub struct PreviewServiceSettings {
    /// A folder that no other program writes to.
    pub folder: PathBuf,
    /// The projects by id.
    pub projects: BTreeMap<String, PreviewProject>,
    /// Limits of verifying and sealing.
    pub effort: SealOptions,
    /// Limits of organizations; their total number of preview builds is the number of build threads.
    pub shares: Arc<ResourcePools>,
    /// Interval at which repositories are asked for their branches.
    pub every: Duration,
    /// Where previews are served.
    pub place: PreviewLocation,
    /// Finds the version that the links of a preview are compared with.
    pub production: Production,
}

/// Reason why previews cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// Their folder cannot be used.
    #[error(transparent)]
    Shelf(#[from] PreviewStoreError),
    /// The database cannot be used.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// A thread cannot be started.
    #[error("cannot start the threads that build previews")]
    Thread(#[source] io::Error),
}

/// Reason why a branch is not deployed.
#[derive(Debug, thiserror::Error)]
pub enum DeployError {
    /// The project does not exist, or has no previews.
    #[error("no such project has previews here")]
    NoProject,
    /// No branch can have this name; contains the reason.
    #[error("bad branch: {0}")]
    Branch(&'static str),
    /// Too many deployments are waiting.
    #[error("too many deployments are waiting; start this one later")]
    Full,
    /// The origin is being stopped.
    #[error("the origin is stopping; deploy again")]
    Closed,
    /// The deployment cannot be written to the database.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The system provides no random bytes for an id.
    #[error("cannot make an id for the deployment")]
    NoId(#[source] io::Error),
}

/// A deployment that was accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Id with which its status is requested.
    pub status_id: String,
    /// Part of the preview's address that names the branch.
    pub slug: String,
}

/// A preview with its site.
#[derive(Debug)]
struct PreviewSite {
    project: String,
    site: Arc<Site>,
}

/// State that all threads share.
struct PreviewState {
    db: Arc<Database>,
    store: PreviewStore,
    projects: BTreeMap<String, PreviewProject>,
    effort: SealOptions,
    place: PreviewLocation,
    production: Production,
    queue: Arc<DeploymentQueue>,
    /// Previews by slug.
    sites: RwLock<HashMap<String, PreviewSite>>,
    /// Cancels the requests for branches.
    asking: JobContext,
}

/// All previews of an origin. Dropping it closes it.
pub struct PreviewService {
    inner: Arc<PreviewState>,
}

impl fmt::Debug for PreviewService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Previews").field("projects", &self.inner.projects.keys()).finish_non_exhaustive()
    }
}

impl PreviewService {
    /// Serves the stored versions and continues with the waiting deployments. Blocks on the disk.
    pub fn open(db: Arc<Database>, settings: PreviewServiceSettings) -> Result<Arc<PreviewService>, PreviewError> {
        let PreviewServiceSettings { folder, projects, effort, shares, every, place, production } = settings;
        let shelf = PreviewStore::open(folder)?;
        let workers = shares.limits.total.count(SharedResource::PreviewBuilds);
        let (queue, shown) = (Arc::new(DeploymentQueue::new(shares)), RwLock::default());
        let inner = Arc::new(PreviewState {
            db,
            store: shelf,
            projects,
            effort,
            place,
            production,
            queue,
            sites: shown,
            asking: JobContext::default(),
        });
        let waiting = inner.db.run_writer(|transaction| rows::resume(transaction, now_unix_millis()))?;
        inner.show_all()?;
        for job in &waiting {
            inner.place_for(&job.project, &job.slug);
        }
        inner.queue.resume(waiting);
        // From here on an error drops `previews`, which ends the threads that were started.
        let previews = Arc::new(PreviewService { inner });
        for n in 0..workers.max(1) {
            previews.spawn(format!("preview-{n}"), PreviewState::work)?;
        }
        previews.spawn("branches".to_owned(), move |inner| {
            while !inner.queue.sleep(every) {
                inner.sweep();
            }
        })?;
        Ok(previews)
    }

    fn spawn(&self, name: String, work: impl FnOnce(&PreviewState) + Send + 'static) -> Result<(), PreviewError> {
        let (inner, inside) = (Arc::clone(&self.inner), self.inner.queue.enter());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            work(&inner);
            // A stop that waits for this thread also waits for the lock on the folder, which `inner` holds.
            drop(inner);
            drop(inside);
        });
        thread.map(drop).map_err(PreviewError::Thread)
    }

    /// Queues the deployment of a branch; it is on disk when this returns. Blocks on the disk.
    pub fn deploy(&self, project: &str, branch: &str) -> Result<Started, DeployError> {
        let inner = &self.inner;
        let project = inner.projects.get(project).ok_or(DeployError::NoProject)?;
        if branch.len() > MAX_BRANCH_BYTES {
            return Err(DeployError::Branch("it is longer than 255 bytes"));
        }
        if !git::is_branch_name(branch) {
            return Err(DeployError::Branch("Git allows no branch of that name"));
        }
        let wanted = QueuedDeployment {
            id: format!("dp_{}", hex(&random_bytes::<8>().map_err(DeployError::NoId)?)),
            organization: project.organization.clone(),
            project: project.id.clone(),
            branch: branch.to_owned(),
            slug: String::new(),
        };
        let admitted = inner.queue.admit(wanted, |wanted| {
            let job = wanted.clone();
            let slug = inner.db.run_writer(move |transaction| rows::queue(transaction, &job, now_unix_millis()))?;
            inner.place_for(&wanted.project, &slug);
            Ok(QueuedDeployment { slug, ..wanted })
        });
        match admitted {
            EnqueueResult::Waits(QueuedDeployment { id, slug, .. }) => Ok(Started { status_id: id, slug }),
            EnqueueResult::Full => Err(DeployError::Full),
            EnqueueResult::Closed => Err(DeployError::Closed),
            EnqueueResult::Failed(error) => Err(DeployError::Database(error)),
        }
    }

    /// Returns a deployment and its status; `None` if there was none, or it was forgotten. Blocks on the disk.
    pub fn status(&self, id: &str) -> Result<Option<Deployment>, DatabaseError> {
        // Read this before the database: a deployment that has ended there is in progress until its preview serves it.
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

    /// Returns the site of a preview, to be served by [`answer`]. It stays the same object while the preview is
    /// deployed again. `None` if there is no such preview, or none of its deployments succeeded; a preview that is
    /// being built for the first time answers 503.
    pub fn site(&self, project: &str, slug: &str) -> Option<Arc<Site>> {
        let shown = self.inner.sites.read();
        let site = shown.get(slug).filter(|shown| shown.project == project).map(|shown| Arc::clone(&shown.site))?;
        drop(shown);
        (site.current().is_some() || self.inner.queue.is_busy(slug)).then_some(site)
    }

    /// Returns the project and slug of the preview whose host begins with this label.
    pub fn by_host_label(&self, label: &str) -> Option<(String, String)> {
        let slug = label.to_ascii_lowercase();
        let shown = self.inner.sites.read();
        let project = shown.get(&slug)?.project.clone();
        Some((project, slug))
    }

    /// Returns the number of previews that serve a version.
    pub fn count(&self) -> usize {
        let shown = self.inner.sites.read();
        shown.values().filter(|shown| shown.site.current().is_some()).count()
    }

    /// Removes previews whose branch is gone. Blocks on the repositories.
    pub fn sweep(&self) {
        self.inner.sweep();
    }

    /// Cancels the running builds, whose deployments then fail with the message that the origin was stopped, and starts
    /// no more. Waits a few seconds at most.
    pub fn close(&self) {
        self.inner.asking.cancel();
        self.inner.queue.close(PREVIEW_STOP_TIMEOUT);
    }
}

impl Drop for PreviewService {
    fn drop(&mut self) {
        self.close();
    }
}
