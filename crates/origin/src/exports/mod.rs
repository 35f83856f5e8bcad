//! Export jobs: their requests, their order and their results.
//!
//! A job is queued, then running, then completed or failed; it never goes back. It is in the database before its id is
//! returned, and so outlives the process. The next process runs a job that was queued, and marks a job that was running
//! as failed, with a message that says so. The bundle is complete and on disk before the job is completed.

mod progress;
mod retention;
mod rows;
mod subset;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{DirBuilder, File};
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
use docwharf_base::model::digest::{Digest, hex};
use docwharf_base::model::units::{count_noun, show_unix};
use docwharf_base::{durable, regular_file};
use docwharf_site::seal::SealOptions;

use super::api_types::Job as Shown;
use super::database::{Database, DatabaseError};
use super::error::OriginError;
use super::limits::SharedResource;
use super::random_bytes::random_bytes;
use super::settings::OriginProject;
use super::shares::{LimitReached, ResourcePools, ResourceShare};
use super::source::JobContext;
use super::stale_work::remove_work_folder;

use progress::JobProgress;
pub(super) use retention::BundleRetention;
use rows::{ExportRequest, JobRow};

/// Folder within the state in which bundles are made.
const WORK: &str = "work";
/// Pause before the end of a job that could not be written is written again.
const AGAIN: Duration = Duration::from_secs(5);
/// Time that a stop waits for builds and crawls to end.
const EXPORT_STOP_TIMEOUT: Duration = Duration::from_secs(3);
/// Error of a job that was running when the last process ended.
const ABANDONED: &str = "the origin was stopped while the bundle was made; start another job";

/// The archive of a bundle: an open file, whether or not it still has a name.
#[derive(Debug)]
pub(super) struct BundleFile {
    pub(super) file: Arc<File>,
    pub(super) kind: String,
    pub(super) digest: Digest,
    pub(super) len: u64,
    /// When the job was completed, in seconds since 1970.
    pub(super) made: i64,
}

impl BundleFile {
    /// Returns the last component of its link.
    pub(super) fn name(&self) -> String {
        format!("bundle.{}", self.kind)
    }
}

/// Reason why a job is not started.
#[derive(Debug)]
pub(super) enum StartJobError {
    /// Too many jobs are waiting: of the organization, or of all.
    Full(LimitReached),
    /// The system provides no random bytes for an id.
    NoId(io::Error),
    /// The job cannot be written to the database.
    Database(DatabaseError),
}

/// Result of looking up the bundle of a job.
#[derive(Debug)]
pub(super) enum BundleLookup {
    /// The job does not exist, or was forgotten.
    Unknown,
    /// The job has no bundle, and is in this state.
    NotReady(String),
    /// The bundle.
    Found(BundleFile),
}

#[derive(Debug, Default)]
struct JobQueueState {
    /// Whether there may be a job that no worker has taken.
    is_fresh: bool,
    is_closed: bool,
}

/// All export jobs of an origin.
#[derive(Debug)]
pub(super) struct ExportJobs {
    db: Arc<Database>,
    shares: Arc<ResourcePools>,
    /// Projects by id, each with its organization.
    projects: BTreeMap<String, (String, OriginProject)>,
    effort: SealOptions,
    keep: BundleRetention,
    /// Folder of finished bundles; they are made in `work`.
    bundles: PathBuf,
    work: PathBuf,
    queue: Mutex<JobQueueState>,
    wake: Condvar,
    /// Running jobs by id.
    live: Mutex<HashMap<String, RunningJob>>,
    is_stopping: AtomicBool,
}

#[derive(Debug, Clone)]
struct RunningJob {
    live: Arc<JobProgress>,
    /// Progress and pages that were last reported; they never go back.
    told: (u64, u64),
    since: i64,
    watch: Arc<JobContext>,
}

impl ExportJobs {
    /// Continues with the jobs in the database. `state` is the folder of the origin's state.
    pub(super) fn open(
        db: Arc<Database>,
        shares: Arc<ResourcePools>,
        projects: BTreeMap<String, (String, OriginProject)>,
        effort: SealOptions,
        keep: BundleRetention,
        state: &Path,
    ) -> Result<ExportJobs, OriginError> {
        let (bundles, work) = (state.join("bundles"), state.join(WORK));
        let system = |doing| move |source| OriginError::System { doing, source };
        remove_work_folder(&Directory::open(state).map_err(system("open the state"))?, WORK);
        // Builds that run as another user traverse `work`; `bundles` is for this process's user only.
        for (folder, mode) in [(&bundles, 0o700), (&work, 0o711)] {
            let made = DirBuilder::new().recursive(true).mode(mode).create(folder);
            made.map_err(system("make a folder for bundles"))?;
        }
        let now = now_unix_millis();
        let abandoned = db.run_writer(move |transaction| rows::abandon(transaction, ABANDONED, now))?;
        if abandoned > 0 {
            let jobs = count_noun(abandoned as u64, "job");
            tracing::warn!("the origin was stopped with {jobs} under way, which failed");
        }
        let known: BTreeSet<String> = db.read(rows::bundles)?.into_iter().collect();
        remove_unnamed(&bundles, &known).map_err(system("list the bundles"))?;
        let queue = Mutex::new(JobQueueState { is_fresh: true, is_closed: false });
        Ok(ExportJobs {
            db,
            shares,
            projects,
            effort,
            keep,
            bundles,
            work,
            queue,
            wake: Condvar::new(),
            live: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Returns the shares that organizations hold of limited resources.
    pub(super) fn shares(&self) -> &Arc<ResourcePools> {
        &self.shares
    }

    fn queue(&self) -> MutexGuard<'_, JobQueueState> {
        // No code panics in the middle of a change, so the state is consistent.
        self.queue.lock()
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, RunningJob>> {
        self.live.lock()
    }

    /// Queues a job.
    pub(super) fn start(
        &self,
        project: &OriginProject,
        organization: &str,
        version: Option<String>,
        paths: Option<Vec<String>>,
    ) -> Result<Shown, StartJobError> {
        let id = format!("se_{}", hex(&random_bytes::<8>().map_err(StartJobError::NoId)?));
        let asked = ExportRequest {
            organization: organization.to_owned(),
            project: project.id.clone(),
            domain: project.domain.to_string(),
            version,
            paths,
        };
        let now = now_unix_millis();
        let pool = Arc::clone(self.shares.pool(SharedResource::WaitingJobs));
        let job = self.db.run_writer(move |transaction| {
            let (own, all) = rows::waiting(transaction, &asked.organization)?;
            if let Err(why) = pool.check(own, all, 1) {
                return Ok(Err(why));
            }
            rows::insert(transaction, &id, &asked, now)?;
            rows::find(transaction, &id).map(Ok)
        });
        let job = job.map_err(StartJobError::Database)?.map_err(StartJobError::Full)?;
        let job = job.ok_or(StartJobError::Database(DatabaseError::Closed))?;
        self.queue().is_fresh = true;
        self.wake.notify_one();
        Ok(self.shown(job))
    }

    /// Returns the current state of a job; `None` if it belongs to another organization.
    pub(super) fn show(&self, id: &str, organization: &str) -> Result<Option<Shown>, DatabaseError> {
        let job = self.db.read(|connection| rows::find(connection, id))?;
        Ok(job.filter(|job| job.asked.organization == organization).map(|job| self.shown(job)))
    }

    fn shown(&self, mut job: JobRow) -> Shown {
        if job.status == "running"
            && let Some(running) = self.live().get_mut(&job.id)
        {
            let now = (running.live.progress(), running.live.pages());
            let now = (now.0.max(running.told.0), now.1.max(running.told.1));
            if now != running.told {
                (running.told, running.since) = (now, now_unix_millis());
            }
            ((job.progress, job.pages), job.updated) = (running.told, running.since.max(job.updated));
        }
        Shown {
            id: job.id,
            domain: job.asked.domain,
            version: job.asked.version,
            status: job.status,
            progress: job.progress,
            page_count: job.pages,
            created_at: show_unix(job.created.div_euclid(1000)),
            updated_at: show_unix(job.updated.div_euclid(1000)),
            error: job.error,
        }
    }

    /// Looks up the bundle of a job, for this organization or, with `None`, for a client that has a link.
    pub(super) fn bundle(&self, id: &str, organization: Option<&str>) -> Result<BundleLookup, DatabaseError> {
        let job = self.db.read(|connection| rows::find(connection, id))?;
        let Some(job) = job.filter(|job| organization.is_none_or(|whose| whose == job.asked.organization)) else {
            return Ok(BundleLookup::Unknown);
        };
        let Some(made) = job.made else { return Ok(BundleLookup::NotReady(job.status)) };
        let path = self.bundles.join(rows::file_name(&job.id, &made.kind));
        Ok(match regular_file::open(&path) {
            Ok(file) => BundleLookup::Found(BundleFile {
                file: Arc::new(file),
                kind: made.kind,
                digest: made.digest,
                len: made.bytes,
                made: job.updated.div_euclid(1000),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::error!("{} is gone; the job has to be started again", path.display());
                BundleLookup::Unknown
            }
            // It may be available again in a moment; too many files may be open, for example.
            Err(error) => return Err(DatabaseError::Bundle { path, source: error }),
        })
    }

    /// Returns the newest bundle of a project's whole site, whichever user of the organization requested it.
    pub(super) fn newest(&self, project: &str) -> Result<Option<PathBuf>, DatabaseError> {
        let Some((organization, _)) = self.projects.get(project) else { return Ok(None) };
        let found = self.db.read(move |connection| {
            use rusqlite::OptionalExtension;
            let sql = "SELECT id, kind FROM jobs WHERE project = ? AND organization = ? AND kind IS NOT NULL AND paths IS NULL ORDER BY number DESC LIMIT 1";
            let name = |row: &rusqlite::Row<'_>| Ok(rows::file_name(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?));
            connection.prepare_cached(sql)?.query_row([project, organization.as_str()], name).optional()
        })?;
        Ok(found.map(|name| self.bundles.join(name)))
    }

    /// Fails if the folders for bundles cannot be read.
    pub(super) fn check_folders(&self) -> io::Result<()> {
        std::fs::read_dir(&self.bundles).and(std::fs::read_dir(&self.work)).map(drop)
    }

    /// Returns the number of jobs in each state.
    pub(super) fn count(&self) -> Result<Vec<(String, u64)>, DatabaseError> {
        self.db.read(rows::count)
    }

    /// Waits for the next job, and a share of the workers for its organization; `None` once the queue is closed.
    fn next(&self) -> Option<(JobRow, ResourceShare)> {
        loop {
            let mut queue = self.queue();
            while !queue.is_fresh && !queue.is_closed {
                queue = self.wake.wait(queue);
            }
            if queue.is_closed {
                return None;
            }
            queue.is_fresh = false;
            drop(queue);
            let now = now_unix_millis();
            if self.is_stopping.load(Ordering::Relaxed) {
                return None;
            }
            let places = Arc::clone(self.shares.pool(SharedResource::Workers));
            let turn = move |organization: &str| places.take_turn(organization);
            match self.db.run_writer(move |transaction| rows::take(transaction, now, turn)) {
                Ok(Some(job)) => {
                    // Other workers may find more jobs.
                    self.queue().is_fresh = true;
                    self.wake.notify_one();
                    return Some(job);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!("cannot take the next job: {}", ErrorChain(&error));
                    std::thread::sleep(std::time::Duration::from_secs(1));
                    self.queue().is_fresh = true;
                }
            }
        }
    }

    /// Releases a share of the workers and wakes a worker, because a job of another organization may wait for it.
    fn give_back(&self, place: ResourceShare) {
        drop(place);
        self.queue().is_fresh = true;
        self.wake.notify_one();
    }

    /// Records that a job is running; `live` measures its progress.
    fn running(&self, id: &str, live: Arc<JobProgress>, watch: &Arc<JobContext>) {
        let mut all = self.live();
        let told = all.get(id).map_or((0, 0), |running| running.told);
        let since = now_unix_millis();
        all.insert(id.to_owned(), RunningJob { live, told, since, watch: Arc::clone(watch) });
    }

    /// Records the end of a job: a bundle and its number of pages, or the error. Jobs beyond the limits of what is kept
    /// are deleted.
    fn finish(&self, id: &str, organization: &str, made: &Result<(rows::CompletedBundle, u64), String>) {
        let reached = self.live().get(id).map_or((0, 0), |running| {
            (running.live.progress().max(running.told.0), running.live.pages().max(running.told.1))
        });
        // Retry until it is written: a full disk may have space again later, and clients wait for the end of the job.
        let gone = loop {
            match self.write_end(id, organization, made.clone(), reached) {
                Ok(gone) => break gone,
                Err(error) => tracing::error!("cannot write down how job {id} ended: {}", ErrorChain(&error)),
            }
            let queue = self.queue();
            let wait = |queue: &mut JobQueueState| !queue.is_closed;
            if self.wake.wait_timeout_while(queue, AGAIN, wait).is_closed {
                break Vec::new();
            }
        };
        self.live().remove(id);
        self.remove(gone);
    }

    /// Writes the end of a job and deletes old jobs in one commit, so that a client that sees the end sees the
    /// deletions too. Returns the names of the files to remove.
    fn write_end(
        &self,
        id: &str,
        organization: &str,
        made: Result<(rows::CompletedBundle, u64), String>,
        reached: (u64, u64),
    ) -> Result<Vec<String>, DatabaseError> {
        let (keep, now, job, organization) = (self.keep, now_unix_millis(), id.to_owned(), organization.to_owned());
        let pool = Arc::clone(self.shares.pool(SharedResource::BundleBytes));
        let (mut gone, full) = self.db.run_writer(move |transaction| {
            let why = match made {
                Err(why) => why,
                Ok((made, pages)) => {
                    transaction.execute_batch("SAVEPOINT completed")?;
                    rows::complete(transaction, &job, &made, pages, now)?;
                    let gone = keep.forget(transaction, now)?;
                    let (own, all) = rows::bundle_bytes(transaction, &organization, None)?;
                    let bytes = made.bytes;
                    let Err(why) = pool.check(own.saturating_sub(bytes), all.saturating_sub(bytes), bytes) else {
                        transaction.execute_batch("RELEASE completed")?;
                        return Ok((gone, None));
                    };
                    // The jobs that were to be deleted for it stay.
                    transaction.execute_batch("ROLLBACK TO completed; RELEASE completed")?;
                    return Ok((vec![rows::file_name(&job, &made.kind)], Some((job, why))));
                }
            };
            rows::fail(transaction, &job, &why, reached, now)?;
            Ok((keep.forget(transaction, now)?, None))
        })?;
        if let Some((job, why)) = full {
            let why = self.full(why);
            tracing::error!("job {job}: failed: {why}");
            gone.extend(self.db.run_writer(move |transaction| {
                rows::fail(transaction, &job, &why, reached, now)?;
                keep.forget(transaction, now)
            })?);
        }
        Ok(gone)
    }

    /// Deletes jobs and bundles beyond the limits of what is kept.
    pub(super) fn forget(&self) {
        let (keep, now) = (self.keep, now_unix_millis());
        match self.db.run_writer(move |transaction| keep.forget(transaction, now)) {
            Ok(gone) => self.remove(gone),
            Err(error) => tracing::error!("cannot forget old jobs: {}", ErrorChain(&error)),
        }
    }

    /// Removes the bundles of deleted jobs. A download that has begun still completes: it holds the open file.
    fn remove(&self, names: Vec<String>) {
        for name in names {
            if let Err(error) = std::fs::remove_file(self.bundles.join(&name)) {
                tracing::warn!("cannot remove the bundle {name}: {error}");
            }
        }
    }

    /// Keeps a job at least until `until`, because a link to its bundle is valid until then.
    pub(super) fn keep_until(&self, id: &str, until: SystemTime) -> Result<(), DatabaseError> {
        if self.keep.young.is_zero() {
            return Ok(());
        }
        let (id, until) = (id.to_owned(), unix_millis(until));
        self.db.run_writer(move |transaction| rows::promise(transaction, &id, until))
    }

    /// Moves the file at `path` into place as the bundle of a job, durably.
    fn place(&self, path: &Path, id: &str, kind: &str) -> io::Result<()> {
        regular_file::open(path)?.sync_all()?;
        std::fs::rename(path, self.bundles.join(rows::file_name(id, kind)))?;
        durable::sync_dir(&self.bundles)
    }

    /// Starts no more jobs and cancels the running ones. Waits briefly for those that can be cancelled.
    pub(super) fn close(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.queue().is_closed = true;
        self.wake.notify_all();
        let until = Instant::now() + EXPORT_STOP_TIMEOUT;
        loop {
            let live = self.live();
            live.values().for_each(|running| running.watch.cancel());
            // Packing cannot be cancelled, and need not be: nothing of it outlives the process.
            if !live.values().any(|running| matches!(*running.live, JobProgress::Making(_))) || Instant::now() > until {
                return;
            }
            drop(live);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Removes bundles that no job names. A file that no job can have made belongs to a user, and stays.
fn remove_unnamed(bundles: &Path, known: &BTreeSet<String>) -> io::Result<()> {
    let bundles = Directory::open(bundles)?;
    for entry in bundles.entries()? {
        let DirectoryEntry { name, kind } = entry?;
        let shown = bundles.path().join(&name);
        let name = name.to_string_lossy();
        if kind != EntryKind::File || !rows::is_file_name(&name) {
            tracing::warn!(
                "{} is not a bundle of any job and was not removed; move it to another folder",
                shown.display()
            );
        } else if !known.contains(&*name)
            && let Err(error) = bundles.remove_file(&*name)
        {
            tracing::warn!("cannot remove {}, which no job names: {error}", shown.display());
        }
    }
    Ok(())
}
