//! Export jobs: their requests, their order and their results.
//!
//! A job is queued, then running, then completed or failed; it never changes back. It is in the database before its id
//! is returned, and so outlives the process. The next process runs a job that was queued, and marks a job that was
//! running as failed, with a message that says so. The bundle is complete and on disk before the job is completed.

mod bundle_lookup;
mod progress;
mod retention;
mod rows;
mod subset;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use docwharf_base::clock::{now_unix_millis, unix_millis};
use docwharf_base::directory::{Directory, DirectoryEntry, EntryKind};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::{Condvar, Mutex, MutexGuard};
use docwharf_base::model::digest::encode_hex;
use docwharf_base::model::units::{format_count, format_unix_seconds};
use docwharf_base::{durable, regular_file};
use docwharf_site::seal::SealOptions;

use super::api_types::Job as ApiJob;
use super::database::{Database, DatabaseError};
use super::error::OriginError;
use super::limits::SharedResource;
use super::random_bytes::random_bytes;
use super::resource_pools::{LimitReached, ResourcePools, ResourceShare};
use super::settings::OriginProject;
use super::source::JobContext;
use super::stale_work::end_builds_and_remove_work_folder;

pub(super) use bundle_lookup::{BundleFile, BundleLookup, BundleLookupError};
use progress::JobProgress;
pub(super) use retention::BundleRetention;
use rows::{ExportRequest, JobRow};

/// Folder within the state folder in which bundles are made.
const WORK_FOLDER: &str = "work";
/// Pause between two attempts to write the end of a job to the database.
const WRITE_RETRY_PAUSE: Duration = Duration::from_secs(5);
/// Time that a stop waits for builds and crawls to end.
const EXPORT_STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Error of a job that was running when the last process ended.
const INTERRUPTED_MESSAGE: &str = "the origin was stopped while the bundle was made; start another job";

/// Reason why a job is not queued.
#[derive(Debug)]
pub(super) enum QueueJobError {
    /// Too many jobs are waiting: of the organization, or of all.
    Full(LimitReached),
    /// The system provides no random bytes for an id.
    NoId(io::Error),
    /// The job cannot be written to the database.
    Database(DatabaseError),
}

#[derive(Debug, Default)]
struct JobQueueState {
    /// Whether there may be a queued job that a worker can start.
    may_have_job: bool,
    is_closed: bool,
}

/// All export jobs of an origin.
#[derive(Debug)]
pub(super) struct ExportJobs {
    db: Arc<Database>,
    pools: Arc<ResourcePools>,
    /// Projects by id, each with its organization.
    projects: BTreeMap<String, (String, OriginProject)>,
    seal_options: SealOptions,
    retention: BundleRetention,
    /// Folder of finished bundles; they are made in `work_folder`.
    bundles: PathBuf,
    work_folder: PathBuf,
    queue: Mutex<JobQueueState>,
    /// Notified when a worker may find a job, and when the queue is closed.
    queue_changed: Condvar,
    /// Running jobs by id.
    running_jobs: Mutex<HashMap<String, RunningJob>>,
    is_stopping: AtomicBool,
}

#[derive(Debug, Clone)]
struct RunningJob {
    progress: Arc<JobProgress>,
    /// Progress in percent and number of pages, as last reported; neither decreases.
    reported: (u64, u64),
    /// The time at which `reported` changed, in milliseconds since 1970.
    changed_at: i64,
    context: Arc<JobContext>,
}

impl ExportJobs {
    /// Continues with the jobs in the database. `state_folder` is that of the origin (`store.path`).
    pub(super) fn open(
        db: Arc<Database>,
        pools: Arc<ResourcePools>,
        projects: BTreeMap<String, (String, OriginProject)>,
        seal_options: SealOptions,
        retention: BundleRetention,
        state_folder: &Path,
    ) -> Result<ExportJobs, OriginError> {
        let (bundles, work_folder) = (state_folder.join("bundles"), state_folder.join(WORK_FOLDER));
        let system_error = |doing| move |source| OriginError::System { doing, source };
        let state_directory = Directory::open(state_folder).map_err(system_error("open the folder store.path"))?;
        end_builds_and_remove_work_folder(&state_directory, WORK_FOLDER);
        // Builds that run as another user traverse `work_folder`; `bundles` is for this process's user only.
        for (folder, mode) in [(&bundles, 0o700), (&work_folder, 0o711)] {
            let result = DirBuilder::new().recursive(true).mode(mode).create(folder);
            result.map_err(system_error("create a folder for bundles"))?;
        }
        let now = now_unix_millis();
        let interrupted = db.write(move |transaction| rows::fail_running(transaction, INTERRUPTED_MESSAGE, now))?;
        if interrupted > 0 {
            let jobs = format_count(interrupted as u64, "job");
            tracing::warn!("the origin was stopped while {jobs} ran; their status is now failed");
        }
        let referenced: BTreeSet<String> = db.read(rows::bundle_file_names)?.into_iter().collect();
        remove_unreferenced_bundles(&bundles, &referenced).map_err(system_error("list the bundles"))?;
        let queue = Mutex::new(JobQueueState { may_have_job: true, is_closed: false });
        Ok(ExportJobs {
            db,
            pools,
            projects,
            seal_options,
            retention,
            bundles,
            work_folder,
            queue,
            queue_changed: Condvar::new(),
            running_jobs: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Returns the pools of the resources that organizations share.
    pub(super) fn pools(&self) -> &Arc<ResourcePools> {
        &self.pools
    }

    fn queue(&self) -> MutexGuard<'_, JobQueueState> {
        // No code panics in the middle of a change, so the state is consistent.
        self.queue.lock()
    }

    fn running_jobs(&self) -> MutexGuard<'_, HashMap<String, RunningJob>> {
        self.running_jobs.lock()
    }

    /// Queues a job.
    pub(super) fn enqueue_job(
        &self,
        project: &OriginProject,
        organization: &str,
        version: Option<String>,
        paths: Option<Vec<String>>,
    ) -> Result<ApiJob, QueueJobError> {
        let id = format!("se_{}", encode_hex(&random_bytes::<8>().map_err(QueueJobError::NoId)?));
        let request = ExportRequest {
            organization: organization.to_owned(),
            project: project.id.clone(),
            domain: project.domain.to_string(),
            version,
            paths,
        };
        let now = now_unix_millis();
        let pool = Arc::clone(self.pools.pool(SharedResource::WaitingJobs));
        let job = self.db.write(move |transaction| {
            let (own, all) = rows::count_waiting(transaction, &request.organization)?;
            if let Err(reason) = pool.check(own, all, 1) {
                return Ok(Err(reason));
            }
            rows::insert(transaction, &id, &request, now)?;
            rows::find(transaction, &id).map(Ok)
        });
        let job = job.map_err(QueueJobError::Database)?.map_err(QueueJobError::Full)?;
        let job = job.ok_or(QueueJobError::Database(DatabaseError::Closed))?;
        self.queue().may_have_job = true;
        self.queue_changed.notify_one();
        Ok(self.to_api_job(job))
    }

    /// Returns a job with its current status; `None` if it belongs to another organization.
    pub(super) fn job_status(&self, id: &str, organization: &str) -> Result<Option<ApiJob>, DatabaseError> {
        let job = self.db.read(|connection| rows::find(connection, id))?;
        Ok(job.filter(|job| job.request.organization == organization).map(|job| self.to_api_job(job)))
    }

    /// Converts a job to the type of the API. A running job gets its current progress.
    fn to_api_job(&self, mut job: JobRow) -> ApiJob {
        if job.status == "running"
            && let Some(running) = self.running_jobs().get_mut(&job.id)
        {
            let (progress, pages) = (running.progress.percent(), running.progress.pages());
            let current = (progress.max(running.reported.0), pages.max(running.reported.1));
            if current != running.reported {
                (running.reported, running.changed_at) = (current, now_unix_millis());
            }
            ((job.progress, job.pages), job.updated) = (running.reported, running.changed_at.max(job.updated));
        }
        ApiJob {
            id: job.id,
            domain: job.request.domain,
            version: job.request.version,
            status: job.status,
            progress: job.progress,
            page_count: job.pages,
            created_at: format_unix_seconds(job.created.div_euclid(1000)),
            updated_at: format_unix_seconds(job.updated.div_euclid(1000)),
            error: job.error,
        }
    }

    /// Looks up the bundle of a job, for this organization or, with `None`, for a client that has a link.
    pub(super) fn find_bundle(&self, id: &str, organization: Option<&str>) -> Result<BundleLookup, BundleLookupError> {
        let job = self.db.read(|connection| rows::find(connection, id))?;
        let Some(job) = job.filter(|job| organization.is_none_or(|owner| owner == job.request.organization)) else {
            return Ok(BundleLookup::Unknown);
        };
        let Some(bundle) = job.bundle else { return Ok(BundleLookup::NotReady(job.status)) };
        let path = self.bundles.join(rows::bundle_file_name(&job.id, &bundle.kind));
        Ok(match regular_file::open(&path) {
            Ok(file) => BundleLookup::Found(BundleFile {
                file: Arc::new(file),
                kind: bundle.kind,
                digest: bundle.digest,
                len: bundle.bytes,
                completed_at: job.updated.div_euclid(1000),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::error!("{} does not exist any more; the export has to be started again", path.display());
                BundleLookup::Unknown
            }
            // The bundle file may be available again in a moment; too many files may be open, for example.
            Err(error) => return Err(BundleLookupError::Open { path, source: error }),
        })
    }

    /// Returns the path of the newest bundle of a project's whole site, whichever user of the organization requested
    /// it.
    pub(super) fn newest_bundle(&self, project: &str) -> Result<Option<PathBuf>, DatabaseError> {
        let Some((organization, _)) = self.projects.get(project) else { return Ok(None) };
        let file_name = self.db.read(move |connection| {
            use rusqlite::OptionalExtension;
            let sql = "SELECT id, kind FROM jobs WHERE project = ? AND organization = ? AND kind IS NOT NULL AND paths IS NULL ORDER BY number DESC LIMIT 1";
            let name = |row: &rusqlite::Row<'_>| Ok(rows::bundle_file_name(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?));
            connection.prepare_cached(sql)?.query_row([project, organization.as_str()], name).optional()
        })?;
        Ok(file_name.map(|name| self.bundles.join(name)))
    }

    /// Fails if the folders for bundles cannot be read.
    pub(super) fn check_folders(&self) -> io::Result<()> {
        std::fs::read_dir(&self.bundles).and(std::fs::read_dir(&self.work_folder)).map(drop)
    }

    /// Returns the number of jobs with each status.
    pub(super) fn count_by_status(&self) -> Result<Vec<(String, u64)>, DatabaseError> {
        self.db.read(rows::count_by_status)
    }

    /// Waits for the next job, and a share of the workers for its organization; `None` once the queue is closed.
    fn next_job(&self) -> Option<(JobRow, ResourceShare)> {
        loop {
            let mut queue = self.queue();
            while !queue.may_have_job && !queue.is_closed {
                queue = self.queue_changed.wait(queue);
            }
            if queue.is_closed {
                return None;
            }
            queue.may_have_job = false;
            drop(queue);
            let now = now_unix_millis();
            if self.is_stopping.load(Ordering::Relaxed) {
                return None;
            }
            let workers = Arc::clone(self.pools.pool(SharedResource::Workers));
            let acquire_worker = move |organization: &str| workers.acquire_from_queue(organization);
            match self.db.write(move |transaction| rows::start_next(transaction, now, acquire_worker)) {
                Ok(Some(job)) => {
                    // Other workers may find more jobs.
                    self.queue().may_have_job = true;
                    self.queue_changed.notify_one();
                    return Some(job);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!("cannot start the next job: {}", ErrorChain(&error));
                    std::thread::sleep(std::time::Duration::from_secs(1));
                    self.queue().may_have_job = true;
                }
            }
        }
    }

    /// Releases a share of the workers and wakes a worker, because a job of another organization may wait for it.
    fn release_worker(&self, worker_share: ResourceShare) {
        drop(worker_share);
        self.queue().may_have_job = true;
        self.queue_changed.notify_one();
    }

    /// Records that a job is running; `progress` measures it.
    fn record_running(&self, id: &str, progress: Arc<JobProgress>, context: &Arc<JobContext>) {
        let mut running_jobs = self.running_jobs();
        let reported = running_jobs.get(id).map_or((0, 0), |running| running.reported);
        let changed_at = now_unix_millis();
        let running = RunningJob { progress, reported, changed_at, context: Arc::clone(context) };
        running_jobs.insert(id.to_owned(), running);
    }

    /// Records the end of a job: a bundle and its number of pages, or the error. Then deletes old jobs.
    fn finish(&self, id: &str, organization: &str, result: &Result<(rows::CompletedBundle, u64), String>) {
        let reached = self.running_jobs().get(id).map_or((0, 0), |running| {
            (running.progress.percent().max(running.reported.0), running.progress.pages().max(running.reported.1))
        });
        // Retry until it is written: a full disk may have space again later, and clients wait for the end of the job.
        let deleted_files = loop {
            match self.write_end(id, organization, result.clone(), reached) {
                Ok(deleted_files) => break deleted_files,
                Err(error) => tracing::error!("cannot write the end of job {id}: {}", ErrorChain(&error)),
            }
            let queue = self.queue();
            let wait = |queue: &mut JobQueueState| !queue.is_closed;
            if self.queue_changed.wait_timeout_while(queue, WRITE_RETRY_PAUSE, wait).is_closed {
                break Vec::new();
            }
        };
        self.running_jobs().remove(id);
        self.remove_bundle_files(deleted_files);
    }

    /// Writes the end of a job and deletes old jobs in one commit, so that a client that sees the end sees the
    /// deletions too. Returns the names of the files to remove.
    fn write_end(
        &self,
        id: &str,
        organization: &str,
        result: Result<(rows::CompletedBundle, u64), String>,
        reached: (u64, u64),
    ) -> Result<Vec<String>, DatabaseError> {
        let (retention, now, job, organization) =
            (self.retention, now_unix_millis(), id.to_owned(), organization.to_owned());
        let pool = Arc::clone(self.pools.pool(SharedResource::BundleBytes));
        let (mut deleted_files, limit_reached) = self.db.write(move |transaction| {
            let error = match result {
                Err(error) => error,
                Ok((bundle, pages)) => {
                    transaction.execute_batch("SAVEPOINT completed")?;
                    rows::mark_completed(transaction, &job, &bundle, pages, now)?;
                    let deleted_files = retention.delete_old_jobs(transaction, now)?;
                    let (own, all) = rows::bundle_bytes(transaction, &organization, None)?;
                    let bytes = bundle.bytes;
                    let Err(reason) = pool.check(own.saturating_sub(bytes), all.saturating_sub(bytes), bytes) else {
                        transaction.execute_batch("RELEASE completed")?;
                        return Ok((deleted_files, None));
                    };
                    // The jobs that were to be deleted for this bundle stay.
                    transaction.execute_batch("ROLLBACK TO completed; RELEASE completed")?;
                    return Ok((vec![rows::bundle_file_name(&job, &bundle.kind)], Some((job, reason))));
                }
            };
            rows::mark_failed(transaction, &job, &error, reached, now)?;
            Ok((retention.delete_old_jobs(transaction, now)?, None))
        })?;
        if let Some((job, limit)) = limit_reached {
            let error = self.describe_limit_reached(limit);
            tracing::error!("job {job}: failed: {error}");
            deleted_files.extend(self.db.write(move |transaction| {
                rows::mark_failed(transaction, &job, &error, reached, now)?;
                retention.delete_old_jobs(transaction, now)
            })?);
        }
        Ok(deleted_files)
    }

    /// Deletes the jobs and bundles beyond the limits.
    pub(super) fn delete_old_jobs(&self) {
        let (retention, now) = (self.retention, now_unix_millis());
        match self.db.write(move |transaction| retention.delete_old_jobs(transaction, now)) {
            Ok(deleted_files) => self.remove_bundle_files(deleted_files),
            Err(error) => tracing::error!("cannot delete old jobs: {}", ErrorChain(&error)),
        }
    }

    /// Removes the bundles of deleted jobs. A download that has begun still completes: it holds the open file.
    fn remove_bundle_files(&self, names: Vec<String>) {
        for name in names {
            if let Err(error) = std::fs::remove_file(self.bundles.join(&name)) {
                tracing::warn!("cannot remove the bundle {name}: {error}");
            }
        }
    }

    /// Retains a job at least until `until`, because a link to its bundle is valid until then.
    pub(super) fn retain_until(&self, id: &str, until: SystemTime) -> Result<(), DatabaseError> {
        if self.retention.min_job_age.is_zero() {
            return Ok(());
        }
        let (id, until) = (id.to_owned(), unix_millis(until));
        self.db.write(move |transaction| rows::retain_until(transaction, &id, until))
    }

    /// Moves the file at `path` into place as the bundle of a job, durably.
    fn store_bundle(&self, path: &Path, id: &str, kind: &str) -> io::Result<()> {
        regular_file::open(path)?.sync_all()?;
        std::fs::rename(path, self.bundles.join(rows::bundle_file_name(id, kind)))?;
        durable::sync_dir(&self.bundles)
    }

    /// Starts no more jobs and cancels the running ones. Waits briefly for those that can be cancelled.
    pub(super) fn close(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.queue().is_closed = true;
        self.queue_changed.notify_all();
        let deadline = Instant::now() + EXPORT_STOP_TIMEOUT;
        loop {
            let running_jobs = self.running_jobs();
            running_jobs.values().for_each(|running| running.context.cancel());
            // Packing cannot be cancelled, and need not be: nothing of it outlives the process.
            let is_making_pages = |running: &RunningJob| matches!(*running.progress, JobProgress::MakingPages(_));
            if !running_jobs.values().any(is_making_pages) || Instant::now() > deadline {
                return;
            }
            drop(running_jobs);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Removes bundles that belong to no job. A file with a name that no job uses belongs to a user, and stays.
fn remove_unreferenced_bundles(bundles: &Path, referenced: &BTreeSet<String>) -> io::Result<()> {
    let bundles = Directory::open(bundles)?;
    for entry in bundles.entries()? {
        let DirectoryEntry { name, kind } = entry?;
        let path = bundles.path().join(&name);
        let name = name.to_string_lossy();
        if kind != EntryKind::File || !rows::is_bundle_file_name(&name) {
            tracing::warn!(
                "{} is not a bundle of any job and was not removed; move it to another folder",
                path.display()
            );
        } else if !referenced.contains(&*name)
            && let Err(error) = bundles.remove_file(&*name)
        {
            tracing::warn!("cannot remove {}, which belongs to no job: {error}", path.display());
        }
    }
    Ok(())
}
