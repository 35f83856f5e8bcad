//! The parts of a running origin: how it is opened from settings, what its parts share, and how it is closed.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::sync::Semaphore;

use docwharf_analytics::{searches, views};
use docwharf_base::clock::now_unix_millis;
use docwharf_base::durable::FileLock;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::Mutex;
use docwharf_site::seal::SealOptions;

use super::analytics::AnalyticsLimits;
use super::database::{Database, open_database};
use super::domain::{Domain, PublicUrl};
use super::error::OriginError;
use super::exports::{BundleRetention, ExportJobs};
use super::key_file::{ApiKeyFile, ApiKeyFileError, OrganizationApiKeyFile};
use super::limits::SharedResource;
use super::metrics::OriginMetrics;
use super::previews::{self, PreviewService};
use super::production_version;
use super::random_bytes::random_bytes;
use super::rate_limit::RateLimiter;
use super::resource_pools::{ResourcePool, ResourcePools};
use super::settings::{
    MAX_LINK_LIFETIME, MIN_LINK_LIFETIME, OriginProject, OriginSettings, OriginStorage, PREVIEW_PATH_PREFIX,
    PreviewSettings,
};
use super::signed_links::OriginSecret;
use super::sitemap_cache::{CachedBranchHead, SharedFolderSitemap};
use super::source::ProjectSource;
use super::state_folder::{self, LOCK_TIMEOUT};

/// The name of the database file in the state folder of an origin.
pub const DATABASE_FILE_NAME: &str = "origin.db";
/// The number of sitemaps that are made at the same time. A sitemap needs no key, and each one reads a whole folder.
const MAX_CONCURRENT_SITEMAPS: usize = 4;
/// The rate limit of preview requests of one organization. Other texts name this one and the two below: `management.rs`
/// and `openapi.rs`, the agent (`api/calls.rs`, `src/cli/preview/`, `src/cli/analytics/`), SECURITY.md,
/// docs/analytics.md, docs/origin.md and docs/previews.md.
const PREVIEW_RATE_LIMIT: (u32, Duration) = (5, Duration::from_mins(1));
/// The rate limit of analytics queries of one organization.
const QUERY_RATE_LIMIT: (u32, Duration) = (100, Duration::from_hours(1));
/// The rate limit of batches of searches and counts of one organization.
const BATCH_RATE_LIMIT: (u32, Duration) = (10_000, Duration::from_hours(1));
/// The limits (of each organization, in total, reserve for others) of batches that wait for the disk. Each holds a
/// blocking thread, and authenticating a client needs such a thread as well.
const WAITING_BATCH_LIMITS: (u64, u64, u64) = (32, 64, 16);
/// The limits of analytics queries that run at the same time, in the same form as [`WAITING_BATCH_LIMITS`]. Each reads
/// all rows of its range.
const RUNNING_QUERY_LIMITS: (u64, u64, u64) = (2, 4, 2);
/// The limits of analytics queries that run or wait, in the same form as [`WAITING_BATCH_LIMITS`].
const WAITING_QUERY_LIMITS: (u64, u64, u64) = (16, 64, 16);
/// Searches that expire within this time (or within half of `analytics.keep`, if that is less) are left out of a
/// new paginated query, so that none of its searches expires while it is under way.
const PAGINATED_QUERY_LIFETIME: Duration = Duration::from_hours(24);
/// The window of `limits.*.links` and `limits.*.events`.
const HOUR: Duration = Duration::from_hours(1);
/// The length of a day, in milliseconds.
const DAY_MS: i64 = 24 * 60 * 60 * 1000;
/// The interval at which expired data is removed.
const CLEANUP_INTERVAL: Duration = Duration::from_hours(1);

/// A running management API.
pub struct OriginServer {
    pub(super) projects: BTreeMap<String, OriginProject>,
    /// The organization and project of each domain.
    pub(super) domains: BTreeMap<Domain, (String, String)>,
    /// The organization of each project.
    pub(super) owners: Arc<BTreeMap<String, String>>,
    /// The file of an API key, if one is configured. Other API keys are in the database.
    pub(super) key_file: Option<OrganizationApiKeyFile>,
    pub(super) database: Arc<Database>,
    pub(super) link_lifetime: Duration,
    pub(super) public_url: Option<PublicUrl>,
    pub(super) preview_host: Option<Domain>,
    pub(super) seal_options: SealOptions,
    /// The secret that links are signed with. API keys are compared under it.
    pub(super) secret: OriginSecret,
    /// The secret that cursors are signed with.
    pub(super) cursor_secret: [u8; 32],
    pub(super) export_jobs: Arc<ExportJobs>,
    pub(super) preview_service: Arc<PreviewService>,
    pub(super) preview_rate_limiter: RateLimiter,
    pub(super) query_rate_limiter: RateLimiter,
    /// The pools of the resources that organizations share.
    pub(super) pools: Arc<ResourcePools>,
    pub(super) link_rate_limiter: RateLimiter,
    pub(super) event_rate_limiter: Arc<RateLimiter>,
    /// The number of bytes that must stay free on the disk.
    pub(super) min_free: Option<u64>,
    /// The time for which searches and daily counts are stored.
    pub(super) analytics_retention: Duration,
    /// Analytics queries that run or wait, and those that run.
    pub(super) waiting_queries: Arc<ResourcePool>,
    pub(super) running_queries: Arc<ResourcePool>,
    /// Permits for making sitemaps at the same time.
    pub(super) sitemap_permits: Arc<Semaphore>,
    /// The sitemaps of projects with a folder.
    pub(super) folder_sitemaps: BTreeMap<String, SharedFolderSitemap>,
    /// The branch heads of projects with a repository.
    pub(super) branch_heads: BTreeMap<String, CachedBranchHead>,
    pub(super) batch_rate_limiter: RateLimiter,
    /// Batches that wait for the disk.
    pub(super) waiting_batches: Arc<ResourcePool>,
    pub(super) metrics: OriginMetrics,
    /// Stops the thread that removes expired data.
    pub(super) stop_cleanup: std::sync::mpsc::Sender<()>,
    /// The state folder if it is temporary; and the lock of the state folder.
    pub(super) state_folder_guard: Mutex<(Option<TempDir>, Option<FileLock>)>,
}

impl OriginServer {
    /// Creates an origin: reads the key, checks the sites, opens the state folder, and starts the threads that make
    /// bundles and previews.
    ///
    /// If the folder or archive of a project is missing: with [`OriginStorage::Temporary`] this fails; with a
    /// persistent folder it logs an error and continues.
    pub fn new(settings: OriginSettings) -> Result<Arc<OriginServer>, OriginError> {
        let OriginSettings { organizations, storage, seal_options, .. } = settings;
        for project in organizations.iter().flat_map(|organization| &organization.projects) {
            let ProjectSource::FolderOrArchive(path) = &project.source else { continue };
            let Err(source) = check_readable(path) else { continue };
            let error = OriginError::Site { domain: project.domain.clone(), path: path.clone(), source };
            match storage {
                // The missing folder of one project must not stop the others.
                OriginStorage::Folder(_) => {
                    tracing::error!("{}; its exports fail until the folder or archive exists", ErrorChain(&error));
                }
                OriginStorage::Temporary => return Err(error),
            }
        }
        let key_file = settings
            .key_file
            .map(|(organization, path)| {
                Ok::<_, ApiKeyFileError>(OrganizationApiKeyFile { organization, file: ApiKeyFile::open(path)? })
            })
            .transpose()?;
        let system_error = |doing| move |source| OriginError::System { doing, source };
        let (folder, temporary) = match storage {
            OriginStorage::Folder(folder) => (folder, None),
            OriginStorage::Temporary => {
                let folder = tempfile::Builder::new().prefix("docwharf-origin-").tempdir();
                let folder = folder.map_err(system_error("create a temporary folder"))?;
                (folder.path().to_owned(), Some(folder))
            }
        };
        let lock = state_folder::lock(&folder, LOCK_TIMEOUT)?;
        let db = Arc::new(open_database(&folder.join(DATABASE_FILE_NAME))?);
        let pools = ResourcePools::new(settings.limits, organizations.len());
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
        let projects_with_owner =
            |project: &OriginProject| (project.id.clone(), (owners[&project.id].clone(), project.clone()));
        let projects_with_owner = projects.values().map(projects_with_owner).collect();
        let is_git = |project: &&OriginProject| matches!(project.source, ProjectSource::Git(_));
        let branch_heads =
            projects.values().filter(is_git).map(|project| (project.id.clone(), CachedBranchHead::default()));
        let branch_heads = branch_heads.collect();
        let is_folder = |project: &&OriginProject| matches!(project.source, ProjectSource::FolderOrArchive(_));
        let folder_sitemaps =
            projects.values().filter(is_folder).map(|project| (project.id.clone(), SharedFolderSitemap::default()));
        let folder_sitemaps = folder_sitemaps.collect();
        // In a temporary state folder, bundles have no minimum lifetime.
        let min_job_age = if temporary.is_some() { Duration::ZERO } else { settings.link_lifetime };
        let retention = BundleRetention::new(settings.max_jobs_per_project, &pools, min_job_age, settings.min_free);
        let export_jobs = Arc::new(ExportJobs::open(
            Arc::clone(&db),
            Arc::clone(&pools),
            projects_with_owner,
            seal_options,
            retention,
            &folder,
        )?);
        for n in 0..settings.limits.total.count(SharedResource::Workers) {
            let export_jobs = Arc::clone(&export_jobs);
            std::thread::Builder::new()
                .name(format!("packing-{n}"))
                .spawn(move || export_jobs.run_worker())
                .map_err(system_error("start the threads that make bundles"))?;
        }
        let preview_service =
            open_previews(&db, &folder, &projects, &owners, seal_options, &settings.preview_settings, &export_jobs)?;
        let (secret, cursor_secret) = (OriginSecret::new(stored_secret(&db, "links")?), stored_secret(&db, "cursors")?);
        let (stop_cleanup, stopped) = std::sync::mpsc::channel();
        let (cleanup_db, analytics_retention, cleanup_export_jobs) =
            (Arc::clone(&db), settings.analytics_retention, Arc::clone(&export_jobs));
        std::thread::Builder::new()
            .name("cleanup".to_owned())
            .spawn(move || remove_expired(&cleanup_db, analytics_retention, &cleanup_export_jobs, &stopped))
            .map_err(system_error("start the thread that removes expired data"))?;
        let hourly = |resource| {
            let limits = &settings.limits;
            RateLimiter::with_total(
                limits.organization[resource],
                limits.total[resource],
                pools.pool(resource).reserve(),
                HOUR,
            )
        };
        let pool = |(organization, total, reserve)| ResourcePool::new(organization, total, reserve);
        Ok(Arc::new(OriginServer {
            projects,
            domains,
            owners,
            key_file,
            database: db,
            link_lifetime: settings.link_lifetime.clamp(MIN_LINK_LIFETIME, MAX_LINK_LIFETIME),
            public_url: settings.public_url,
            preview_host: settings.preview_settings.host,
            seal_options,
            secret,
            cursor_secret,
            export_jobs,
            preview_service,
            preview_rate_limiter: RateLimiter::new(PREVIEW_RATE_LIMIT.0, PREVIEW_RATE_LIMIT.1),
            query_rate_limiter: RateLimiter::new(QUERY_RATE_LIMIT.0, QUERY_RATE_LIMIT.1),
            link_rate_limiter: hourly(SharedResource::DownloadLinks),
            event_rate_limiter: Arc::new(hourly(SharedResource::Events)),
            min_free: settings.min_free,
            analytics_retention: settings.analytics_retention,
            waiting_queries: pool(WAITING_QUERY_LIMITS),
            running_queries: pool(RUNNING_QUERY_LIMITS),
            folder_sitemaps,
            sitemap_permits: Arc::new(Semaphore::new(MAX_CONCURRENT_SITEMAPS)),
            branch_heads,
            batch_rate_limiter: RateLimiter::new(BATCH_RATE_LIMIT.0, BATCH_RATE_LIMIT.1),
            waiting_batches: pool(WAITING_BATCH_LIMITS),
            pools,
            metrics: OriginMetrics::new(),
            stop_cleanup,
            state_folder_guard: Mutex::new((temporary, Some(lock))),
        }))
    }

    /// Returns the limits on the searches and daily counts that an organization may add to the database.
    pub(super) fn analytics_limits(&self, organization: &str) -> AnalyticsLimits {
        let events = Some(Arc::clone(&self.event_rate_limiter));
        AnalyticsLimits::new(organization, Arc::clone(&self.owners), Arc::clone(&self.pools), events, self.min_free)
    }

    /// Returns the time, in milliseconds since 1970, from which searches count for a paginated query that starts now.
    /// Searches that may expire while the query is under way are older.
    pub(super) fn oldest_searches(&self) -> i64 {
        let counted_time =
            self.analytics_retention.saturating_sub(PAGINATED_QUERY_LIFETIME.min(self.analytics_retention / 2));
        now_unix_millis().saturating_sub(i64::try_from(counted_time.as_millis()).unwrap_or(i64::MAX))
    }

    /// Stops the threads that make bundles and previews. Builds and crawls under way are cancelled and have a few
    /// seconds to end; the packing of a bundle is not awaited.
    pub fn close(&self) {
        self.export_jobs.close();
        self.preview_service.close();
        let _ = self.stop_cleanup.send(());
        let (temporary, lock) = std::mem::take(&mut *self.state_folder_guard.lock());
        if let Some(Err(error)) = temporary.map(TempDir::close) {
            tracing::warn!("cannot remove the temporary folder: {error}");
        }
        drop(lock);
    }
}

impl Drop for OriginServer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Shows neither the key nor a secret.
impl fmt::Debug for OriginServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Origin").field("domains", &self.domains).finish_non_exhaustive()
    }
}

/// Returns the secret of this name, which is created once and then read from the database.
fn stored_secret<const N: usize>(db: &Database, name: &'static str) -> Result<[u8; N], OriginError> {
    let random: [u8; N] = random_bytes()
        .map_err(|source| OriginError::System { doing: "create a secret for links or cursors", source })?;
    Ok(db.write(move |transaction| {
        transaction.execute("INSERT OR IGNORE INTO secrets (name, value) VALUES (?, ?)", (name, random.as_slice()))?;
        transaction.query_row("SELECT value FROM secrets WHERE name = ?", [name], |row| row.get(0))
    })?)
}

/// Opens the previews of all projects with previews and a Git repository.
fn open_previews(
    db: &Arc<Database>,
    folder: &Path,
    projects: &BTreeMap<String, OriginProject>,
    owners: &BTreeMap<String, String>,
    seal_options: SealOptions,
    settings: &PreviewSettings,
    export_jobs: &Arc<ExportJobs>,
) -> Result<Arc<PreviewService>, OriginError> {
    let preview_projects =
        projects.values().filter(|project| project.allows_previews).filter_map(|project| match &project.source {
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
    let location = match &settings.host {
        Some(_) => previews::PreviewLocation::Host,
        None => previews::PreviewLocation::Path(PREVIEW_PATH_PREFIX.to_owned()),
    };
    let settings = previews::PreviewServiceSettings {
        folder: folder.join("previews"),
        projects: preview_projects.collect(),
        seal_options,
        pools: Arc::clone(export_jobs.pools()),
        check_interval: settings.check_interval,
        search: settings.search.clone(),
        assistant: settings.assistant,
        location,
        production_finder: production_version::production_finder(
            Arc::clone(export_jobs),
            folder.to_owned(),
            seal_options,
        ),
    };
    Ok(PreviewService::open(Arc::clone(db), settings)?)
}

/// Removes expired searches and jobs once an hour, until the origin is closed.
fn remove_expired(
    db: &Database,
    analytics_retention: Duration,
    export_jobs: &ExportJobs,
    stopped: &std::sync::mpsc::Receiver<()>,
) {
    loop {
        export_jobs.delete_old_jobs();
        let before =
            now_unix_millis().saturating_sub(i64::try_from(analytics_retention.as_millis()).unwrap_or(i64::MAX));
        let result = searches::projects_with_rows(db).and_then(|projects| {
            projects.iter().try_for_each(|project| {
                searches::delete_older_than(db, project, before)?;
                views::delete_views_before(db, Some(project), before.div_euclid(DAY_MS)).map(drop)
            })
        });
        if let Err(error) = result {
            tracing::warn!("cannot remove old searches and counts: {}", ErrorChain(&error));
        }
        match stopped.recv_timeout(CLEANUP_INTERVAL) {
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}

/// Checks that a site exists and can be read. Its content is checked when it is packed.
fn check_readable(path: &Path) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use http::Request;
    use http::header::HOST;

    use docwharf_base::model::limits::BundleLimits;
    use docwharf_serve::peer::Peer;

    use super::*;
    use crate::previews::AcceptedDeployment;
    use crate::resource_pools::LimitReached;

    /// Opens an origin with a temporary state folder and without organizations.
    fn server(change: impl FnOnce(&mut OriginSettings)) -> Arc<OriginServer> {
        let mut settings = OriginSettings::new(SealOptions::new(BundleLimits::default()));
        change(&mut settings);
        OriginServer::new(settings).unwrap()
    }

    /// Returns the head of a request for this target with these `Host` fields.
    fn request_head(target: &str, hosts: &[&str], is_encrypted: bool) -> http::request::Parts {
        let mut request = Request::new(());
        *request.uri_mut() = target.parse().unwrap();
        for host in hosts {
            request.headers_mut().append(HOST, host.parse().unwrap());
        }
        request.extensions_mut().insert(Peer {
            address: "127.0.0.1:9".parse().unwrap(),
            is_encrypted,
            is_loopback_listener: false,
        });
        request.into_parts().0
    }

    #[test]
    fn links_begin_with_the_public_url_or_with_the_scheme_and_host_of_the_request() {
        let plain = server(|_| {});
        let public = server(|settings| settings.public_url = PublicUrl::parse("https://origin.example/api/").ok());
        for (target, hosts, is_encrypted, expected) in [
            ("/", &["docs.example:8080"][..], false, Some("http://docs.example:8080")),
            ("/", &["docs.example"], true, Some("https://docs.example")),
            // HTTP/2 has the host in the target.
            ("https://docs.example:8443/", &[], true, Some("https://docs.example:8443")),
            ("http://other.example/", &["docs.example"], false, Some("http://docs.example")),
            ("/", &[], false, None),
            ("/", &["a", "a"], false, None),
            ("/", &["a b"], false, None),
        ] {
            let head = request_head(target, hosts, is_encrypted);
            assert_eq!(plain.link_base_url(&head).as_deref(), expected, "{target} {hosts:?}");
            assert_eq!(public.link_base_url(&head).as_deref(), Some("https://origin.example/api"));
        }
    }

    #[test]
    fn a_preview_url_keeps_the_scheme_and_port_of_the_request_on_the_preview_host() {
        let accepted = AcceptedDeployment { status_id: "x".to_owned(), slug: "b".to_owned() };
        let on_host = server(|settings| settings.preview_settings.host = Domain::parse("preview.example").ok());
        let below_path = server(|_| {});
        for (base, host_url, path_url) in [
            ("http://origin.example:8090", "http://b.preview.example:8090/", "http://origin.example:8090/preview/p/b/"),
            ("https://origin.example/api", "https://b.preview.example/", "https://origin.example/api/preview/p/b/"),
            ("https://[::1]", "https://b.preview.example/", "https://[::1]/preview/p/b/"),
            ("https://[::1]:8443", "https://b.preview.example:8443/", "https://[::1]:8443/preview/p/b/"),
        ] {
            assert_eq!(on_host.preview_url(base, "p", &accepted), host_url);
            assert_eq!(below_path.preview_url(base, "p", &accepted), path_url);
        }
    }

    #[test]
    fn the_link_lifetime_is_clamped_between_one_second_and_one_week() {
        let hour = Duration::from_hours(1);
        for (configured, expected) in [
            (Duration::ZERO, MIN_LINK_LIFETIME),
            (hour, hour),
            (Duration::from_hours(24 * 7), MAX_LINK_LIFETIME),
            (Duration::from_hours(24 * 30), MAX_LINK_LIFETIME),
        ] {
            assert_eq!(server(|settings| settings.link_lifetime = configured).link_lifetime, expected);
        }
    }

    #[test]
    fn analytics_queries_exclude_the_oldest_day_or_half_of_a_shorter_retention() {
        for (retention_hours, counted_hours) in [(2, 1), (48, 24), (240, 216)] {
            let origin = server(|settings| settings.analytics_retention = Duration::from_hours(retention_hours));
            let before = now_unix_millis();
            let oldest = origin.oldest_searches();
            let counted = counted_hours * 3_600_000;
            assert!((before - counted..=now_unix_millis() - counted).contains(&oldest), "{retention_hours} h");
        }
    }

    #[test]
    fn batches_and_queries_have_a_limit_for_each_organization_and_one_for_all() {
        let origin = server(|_| {});
        for (pool, own, total) in
            [(&origin.running_queries, 2, 4), (&origin.waiting_queries, 16, 64), (&origin.waiting_batches, 32, 64)]
        {
            let mut shares = vec![pool.acquire("0", own).unwrap()];
            assert_eq!(pool.acquire("0", 1).unwrap_err(), LimitReached::Organization);
            shares.extend((1..total / own).map(|n| pool.acquire(&n.to_string(), own).unwrap()));
            assert_eq!(pool.acquire("x", 1).unwrap_err(), LimitReached::Total);
            assert_eq!(pool.in_use(), total);
            drop(shares);
        }
    }
}
