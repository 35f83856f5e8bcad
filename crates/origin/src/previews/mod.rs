//! Previews: branches served as readers would see them.
//!
//! A project with a Git repository has at most one preview for each branch. Deploying a branch builds its site like an
//! export, verifies and seals it like any bundle ([`build`], [`store`]), counts its broken links ([`broken_links`]) and
//! serves it at an address that never changes ([`slug`]). The preview serves its previous version until then, and also
//! afterwards if the deployment fails. A preview exists as long as its branch. The branches of each repository are
//! listed at intervals; if it cannot be reached or has no branch at all, all its previews stay.
//!
//! **Durability.** A deployment is on disk before its id is returned. A version is durable before a row names it. The
//! row is written before the deployment reports `success`, which it does only once the version is served. After a kill,
//! waiting deployments wait again; those that were being built have failed, with the message that the origin was
//! stopped; versions without a row are removed.
//!
//! **One at a time.** A request for a branch that already waits gets the id of the waiting deployment, which builds the
//! branch as it is when the build begins. While a deployment of a branch is being built, one more may wait.
//!
//! **Search.** If the origin has a [`PreviewSearch`], readers can search each preview. Its index is built at the first
//! search in it, and again for each new version from then on.
//!
//! **Access.** Every client that knows the address may read a preview, like the production site. Header fields of each
//! response exclude search engines and shared caches ([`respond_to_preview`]).
//!
//! **Below a path** ([`PreviewLocation::Path`]) a preview is served as with `server.basePath`: addresses, redirects,
//! rules and header fields are those of the prefix. Pages are sent as they were sealed. So links and assets must be
//! relative, or the build must know the prefix ([`PreviewLocation::base_path`]): a link that begins with `/` leads out
//! of it. To a browser, all previews there and everything else on that host are one origin, and share what scripts
//! store. On a separate host ([`PreviewLocation::Host`]) every site works, and is isolated from the others.

mod broken_links;
mod build;
mod deployment;
mod queue;
mod response;
mod rows;
mod search;
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
use docwharf_base::model::digest::encode_hex;
use docwharf_serve::Site;
use docwharf_site::seal::SealOptions;
use docwharf_site::sealed_version::SealedVersion;

use super::database::{Database, DatabaseError};
use super::limits::SharedResource;
use super::random_bytes::random_bytes;
use super::resource_pools::ResourcePools;
use super::source::JobContext;
use super::source::git::{self, GitSource};
use queue::{DeploymentQueue, EnqueueResult};
use rows::DeploymentRequest;
use store::PreviewStore;

pub use deployment::{ApiAuthor, ApiCommit, Deployment, DeploymentSource, DeploymentStatus, FilesChanged};
pub use response::respond_to_preview;
pub use search::{PreviewSearch, PreviewSiteSearch};
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
    pub git: GitSource,
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
pub type ProductionFinder = Arc<dyn Fn(&str) -> Option<Arc<SealedVersion>> + Send + Sync>;

/// Settings of previews.
#[derive(Clone)]
pub struct PreviewServiceSettings {
    /// A folder that no other program writes to.
    pub folder: PathBuf,
    /// The projects by id.
    pub projects: BTreeMap<String, PreviewProject>,
    /// Limits of verifying and sealing.
    pub seal_options: SealOptions,
    /// The pools of the resources that organizations share; the total limit of preview builds is the number of build
    /// threads.
    pub pools: Arc<ResourcePools>,
    /// Interval at which the branches of repositories are listed.
    pub check_interval: Duration,
    /// The search of the previews, if they have one.
    pub search: Option<Arc<dyn PreviewSearch>>,
    /// Whether the previews are MCP servers, and have Markdown and `llms.txt`.
    pub assistant: bool,
    /// Where previews are served.
    pub location: PreviewLocation,
    /// Finds the version that the links of a preview are compared with.
    pub production_finder: ProductionFinder,
}

/// Reason why previews cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PreviewError {
    /// The folder of the versions cannot be used.
    #[error(transparent)]
    Store(#[from] PreviewStoreError),
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
    #[error("the project does not exist or has no previews")]
    NoProject,
    /// No branch can have this name; contains the reason.
    #[error("bad branch: {0}")]
    BranchName(&'static str),
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
    #[error("cannot create an id for the deployment")]
    NoId(#[source] io::Error),
}

/// A deployment that was accepted and waits in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedDeployment {
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
    search: Option<Box<dyn PreviewSiteSearch>>,
}

/// State that all threads share.
struct PreviewState {
    db: Arc<Database>,
    store: PreviewStore,
    projects: BTreeMap<String, PreviewProject>,
    seal_options: SealOptions,
    location: PreviewLocation,
    search: Option<Arc<dyn PreviewSearch>>,
    assistant: bool,
    production_finder: ProductionFinder,
    queue: Arc<DeploymentQueue>,
    /// Previews by slug.
    sites: RwLock<HashMap<String, PreviewSite>>,
    /// Cancels the listing of branches when the origin is closed.
    branch_listing: JobContext,
}

/// All previews of an origin. Dropping it closes it.
pub struct PreviewService {
    state: Arc<PreviewState>,
}

impl fmt::Debug for PreviewService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Previews").field("projects", &self.state.projects.keys()).finish_non_exhaustive()
    }
}

impl PreviewService {
    /// Serves the stored versions and continues with the waiting deployments. Blocks on the disk.
    pub fn open(db: Arc<Database>, settings: PreviewServiceSettings) -> Result<Arc<PreviewService>, PreviewError> {
        let PreviewServiceSettings {
            folder,
            projects,
            seal_options,
            pools,
            check_interval,
            search,
            assistant,
            location,
            production_finder,
        } = settings;
        let store = PreviewStore::open(folder)?;
        let workers = pools.limits.total.count(SharedResource::PreviewBuilds);
        let (queue, sites) = (Arc::new(DeploymentQueue::new(pools)), RwLock::default());
        let state = Arc::new(PreviewState {
            db,
            store,
            projects,
            seal_options,
            location,
            search,
            assistant,
            production_finder,
            queue,
            sites,
            branch_listing: JobContext::default(),
        });
        let waiting = state.db.write(|transaction| rows::resume_deployments(transaction, now_unix_millis()))?;
        state.open_sites()?;
        for deployment in &waiting {
            state.site_at(&deployment.project, &deployment.slug);
        }
        state.queue.resume(waiting);
        // From this point an error drops `previews`, which ends the threads that were started.
        let previews = Arc::new(PreviewService { state });
        for n in 0..workers.max(1) {
            previews.spawn(format!("preview-{n}"), PreviewState::run_worker)?;
        }
        previews.spawn("branches".to_owned(), move |state| {
            while !state.queue.wait_or_closed(check_interval) {
                state.remove_deleted_branches();
            }
        })?;
        Ok(previews)
    }

    /// Starts a thread, which [`PreviewService::close`] waits for.
    fn spawn(&self, name: String, run: impl FnOnce(&PreviewState) + Send + 'static) -> Result<(), PreviewError> {
        let (state, registration) = (Arc::clone(&self.state), self.state.queue.register_thread());
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            run(&state);
            // A stop that waits for this thread also waits for the lock on the folder, which `state` holds.
            drop(state);
            drop(registration);
        });
        thread.map(drop).map_err(PreviewError::Thread)
    }

    /// Queues the deployment of a branch; it is on disk when this returns. Blocks on the disk.
    pub fn deploy(&self, project: &str, branch: &str) -> Result<AcceptedDeployment, DeployError> {
        let state = &self.state;
        let project = state.projects.get(project).ok_or(DeployError::NoProject)?;
        if branch.len() > MAX_BRANCH_BYTES {
            return Err(DeployError::BranchName("it is longer than 255 bytes"));
        }
        if !git::is_branch_name(branch) {
            return Err(DeployError::BranchName("Git allows no branch of that name"));
        }
        let deployment = DeploymentRequest {
            id: format!("dp_{}", encode_hex(&random_bytes::<8>().map_err(DeployError::NoId)?)),
            organization: project.organization.clone(),
            project: project.id.clone(),
            branch: branch.to_owned(),
            slug: String::new(),
        };
        let result = state.queue.enqueue(deployment, |deployment| {
            let request = deployment.clone();
            let slug =
                state.db.write(move |transaction| rows::insert_deployment(transaction, &request, now_unix_millis()))?;
            state.site_at(&deployment.project, &slug);
            Ok(DeploymentRequest { slug, ..deployment })
        });
        match result {
            EnqueueResult::Waiting(DeploymentRequest { id, slug, .. }) => {
                Ok(AcceptedDeployment { status_id: id, slug })
            }
            EnqueueResult::Full => Err(DeployError::Full),
            EnqueueResult::Closed => Err(DeployError::Closed),
            EnqueueResult::Failed(error) => Err(DeployError::Database(error)),
        }
    }

    /// Returns a deployment and its status; `None` if it does not exist, or was deleted. Blocks on the disk.
    pub fn status(&self, id: &str) -> Result<Option<Deployment>, DatabaseError> {
        // The queue is read before the database: a deployment that has ended in the database is still in progress until
        // its preview serves it.
        let context = self.state.queue.build_context(id);
        let mut deployment = self.state.db.read(|connection| rows::find_deployment(connection, id))?;
        if let Some(deployment) = &mut deployment {
            if let Some(project) = self.state.projects.get(&deployment.project_id) {
                deployment.organization.clone_from(&project.organization);
            }
            if let Some(context) = context.filter(|_| deployment.status != DeploymentStatus::Queued) {
                deployment.status = DeploymentStatus::InProgress;
                (deployment.ended_at, deployment.summary, deployment.logs) = (None, None, context.log());
            }
        }
        Ok(deployment)
    }

    /// Returns the site of a preview, to be served by [`respond_to_preview`]. It stays the same object while the
    /// preview is deployed again. `None` if there is no such preview, or none of its deployments succeeded; a preview
    /// that is being built for the first time responds with 503.
    pub fn site(&self, project: &str, slug: &str) -> Option<Arc<Site>> {
        let sites = self.state.sites.read();
        let site = sites.get(slug).filter(|entry| entry.project == project).map(|entry| Arc::clone(&entry.site))?;
        drop(sites);
        (site.served_version().is_some() || self.state.queue.is_busy(slug)).then_some(site)
    }

    /// Returns the project and slug of the preview whose host begins with this label.
    pub fn find_by_host_label(&self, label: &str) -> Option<(String, String)> {
        let slug = label.to_ascii_lowercase();
        let sites = self.state.sites.read();
        let project = sites.get(&slug)?.project.clone();
        Some((project, slug))
    }

    /// Returns the number of previews that serve a version.
    pub fn count(&self) -> usize {
        let sites = self.state.sites.read();
        sites.values().filter(|entry| entry.site.served_version().is_some()).count()
    }

    /// Removes the previews of deleted branches. Blocks on the repositories.
    pub fn remove_deleted_branches(&self) {
        self.state.remove_deleted_branches();
    }

    /// Cancels the running builds, whose deployments then fail with the message that the origin was stopped, and starts
    /// no more. Waits a few seconds at most.
    pub fn close(&self) {
        self.state.branch_listing.cancel();
        self.state.queue.close(PREVIEW_STOP_TIMEOUT);
    }
}

impl Drop for PreviewService {
    fn drop(&mut self) {
        self.close();
    }
}
