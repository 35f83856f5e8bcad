//! Jobs: what was asked for, in which order, and what became of it.
//!
//! A job is queued, then running, then completed or failed; nothing leads back. It is in the database before anybody is
//! told of it, and so outlives the process: one that waited is done by the next, one that was under way has failed, and
//! says so. Its bundle is whole and on disk before the job is completed.

mod live;
mod room;
mod rows;
mod subset;
mod worker;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use docwharf_base::chain::Chain;
use docwharf_base::directory::{Directory, Entry, EntryKind};
use docwharf_base::{durable, regular};
use docwharf_base::model::digest::{Digest, hex};
use docwharf_base::model::units::{count, show_unix};
use docwharf_site::seal::Effort;

use super::db::{Database, DatabaseError};
use super::leftover::set_aside;
use super::limits::Resource;
use super::settings::Project;
use super::shares::{NoShare, Share, Shares};
use super::source::Watch;
use super::types::Job as Shown;
use super::{OriginError, millis, random};

use live::Live;
pub(super) use room::Keep;
use rows::{Asked, Job};

/// The folder of the state in which bundles are made.
const WORK: &str = "work";
/// After how long the end of a job that could not be written down is written again.
const AGAIN: Duration = Duration::from_secs(5);
/// How long a stop waits for builds and crawls to end.
const PATIENCE: Duration = Duration::from_secs(3);
/// What a job that was under way says after a restart.
const ABANDONED: &str = "the origin was stopped while the bundle was made; start another job";

/// An archive that is handed out: an open file, whether or not it still has a name.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) file: Arc<File>,
    pub(super) kind: String,
    pub(super) digest: Digest,
    pub(super) len: u64,
    /// When it was made, in seconds since 1970.
    pub(super) made: i64,
}

impl Archive {
    /// The last component of its link.
    pub(super) fn name(&self) -> String {
        format!("bundle.{}", self.kind)
    }
}

/// Why a job is not started.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// Too many are waiting: of the organization, or of all.
    Full(NoShare),
    /// It cannot be given an id.
    NoId(io::Error),
    /// It cannot be written down.
    Database(DatabaseError),
}

/// What there is of a job to hand out.
#[derive(Debug)]
pub(super) enum Bundle {
    /// Never heard of it, or no longer.
    Unknown,
    /// It is in this state.
    NotThere(String),
    /// This.
    There(Archive),
}

#[derive(Debug, Default)]
struct Queue {
    /// There may be a job that nobody has taken.
    is_fresh: bool,
    is_closed: bool,
}

/// All jobs.
#[derive(Debug)]
pub(super) struct Exports {
    db: Arc<Database>,
    shares: Arc<Shares>,
    /// By their ids, each with its organization.
    projects: BTreeMap<String, (String, Project)>,
    effort: Effort,
    keep: Keep,
    /// Where bundles lie, and where they are made.
    bundles: PathBuf,
    work: PathBuf,
    queue: Mutex<Queue>,
    wake: Condvar,
    /// The jobs that are running.
    live: Mutex<HashMap<String, Running>>,
    is_stopping: AtomicBool,
}

#[derive(Debug, Clone)]
struct Running {
    live: Arc<Live>,
    /// How far it was told to be: it never goes back.
    told: (u64, u64),
    since: i64,
    watch: Arc<Watch>,
}

impl Exports {
    /// What is in the database goes on in `state`, a folder of ours.
    pub(super) fn open(
        db: Arc<Database>,
        shares: Arc<Shares>,
        projects: BTreeMap<String, (String, Project)>,
        effort: Effort,
        keep: Keep,
        state: &Path,
    ) -> Result<Exports, OriginError> {
        let (bundles, work) = (state.join("bundles"), state.join(WORK));
        let system = |doing| move |source| OriginError::System { doing, source };
        set_aside(&Directory::open(state).map_err(system("open the state"))?, WORK);
        // Builds that run as another user pass through the one; nobody else has anything to look for in the other.
        for (folder, mode) in [(&bundles, 0o700), (&work, 0o711)] {
            let made = DirBuilder::new().recursive(true).mode(mode).create(folder);
            made.map_err(system("make a folder for bundles"))?;
        }
        let now = millis(SystemTime::now());
        let abandoned = db.write(move |transaction| rows::abandon(transaction, ABANDONED, now))?;
        if abandoned > 0 {
            let jobs = count(abandoned as u64, "job");
            tracing::warn!("the origin was stopped with {jobs} under way, which failed");
        }
        let known: BTreeSet<String> = db.read(rows::bundles)?.into_iter().collect();
        remove_unnamed(&bundles, &known).map_err(system("list the bundles"))?;
        let queue = Mutex::new(Queue { is_fresh: true, is_closed: false });
        Ok(Exports {
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

    /// What organizations hold of what they share.
    pub(super) fn shares(&self) -> &Arc<Shares> {
        &self.shares
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        // Nothing in here panics half-way through a change.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn live(&self) -> MutexGuard<'_, HashMap<String, Running>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job.
    pub(super) fn start(
        &self,
        project: &Project,
        organization: &str,
        version: Option<String>,
        paths: Option<Vec<String>>,
    ) -> Result<Shown, NotStarted> {
        let id = format!("se_{}", hex(&random::<8>().map_err(NotStarted::NoId)?));
        let asked = Asked {
            organization: organization.to_owned(),
            project: project.id.clone(),
            domain: project.domain.to_string(),
            version,
            paths,
        };
        let now = millis(SystemTime::now());
        let pool = Arc::clone(self.shares.pool(Resource::WaitingJobs));
        let job = self.db.write(move |transaction| {
            let (own, all) = rows::waiting(transaction, &asked.organization)?;
            if let Err(why) = pool.check(own, all, 1) {
                return Ok(Err(why));
            }
            rows::insert(transaction, &id, &asked, now)?;
            rows::find(transaction, &id).map(Ok)
        });
        let job = job.map_err(NotStarted::Database)?.map_err(NotStarted::Full)?;
        let job = job.ok_or(NotStarted::Database(DatabaseError::Closed))?;
        self.queue().is_fresh = true;
        self.wake.notify_one();
        Ok(self.shown(job))
    }

    /// The job as it is now; none that is another organization's.
    pub(super) fn show(&self, id: &str, organization: &str) -> Result<Option<Shown>, DatabaseError> {
        let job = self.db.read(|connection| rows::find(connection, id))?;
        Ok(job.filter(|job| job.asked.organization == organization).map(|job| self.shown(job)))
    }

    fn shown(&self, mut job: Job) -> Shown {
        if job.status == "running"
            && let Some(running) = self.live().get_mut(&job.id)
        {
            let now = (running.live.progress(), running.live.pages());
            let now = (now.0.max(running.told.0), now.1.max(running.told.1));
            if now != running.told {
                (running.told, running.since) = (now, millis(SystemTime::now()));
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

    /// What there is to hand out, to this organization or to whoever has a link.
    pub(super) fn bundle(&self, id: &str, organization: Option<&str>) -> Result<Bundle, DatabaseError> {
        let job = self.db.read(|connection| rows::find(connection, id))?;
        let Some(job) = job.filter(|job| organization.is_none_or(|whose| whose == job.asked.organization)) else {
            return Ok(Bundle::Unknown);
        };
        let Some(made) = job.made else { return Ok(Bundle::NotThere(job.status)) };
        let path = self.bundles.join(rows::file_name(&job.id, &made.kind));
        Ok(match regular::open(&path) {
            Ok(file) => Bundle::There(Archive {
                file: Arc::new(file),
                kind: made.kind,
                digest: made.digest,
                len: made.bytes,
                made: job.updated.div_euclid(1000),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                tracing::error!("{} is gone; the job has to be started again", path.display());
                Bundle::Unknown
            }
            // It may be there in a moment: too many open files, perhaps.
            Err(error) => return Err(DatabaseError::Bundle { path, source: error }),
        })
    }

    /// The newest bundle of a project, whoever of its organization has asked for it.
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

    /// Whether bundles can be kept at all.
    pub(super) fn look(&self) -> io::Result<()> {
        std::fs::read_dir(&self.bundles).and(std::fs::read_dir(&self.work)).map(drop)
    }

    /// How many jobs there are in each state.
    pub(super) fn count(&self) -> Result<Vec<(String, u64)>, DatabaseError> {
        self.db.read(rows::count)
    }

    /// Waits for the next job, and a place among the workers for its organization; none once it is closed.
    fn next(&self) -> Option<(Job, Share)> {
        loop {
            let mut queue = self.queue();
            while !queue.is_fresh && !queue.is_closed {
                queue = self.wake.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            if queue.is_closed {
                return None;
            }
            queue.is_fresh = false;
            drop(queue);
            let now = millis(SystemTime::now());
            if self.is_stopping.load(Ordering::Relaxed) {
                return None;
            }
            let places = Arc::clone(self.shares.pool(Resource::Workers));
            let turn = move |organization: &str| places.take_turn(organization);
            match self.db.write(move |transaction| rows::take(transaction, now, turn)) {
                Ok(Some(job)) => {
                    // There may be more, for others as well.
                    self.queue().is_fresh = true;
                    self.wake.notify_one();
                    return Some(job);
                }
                Ok(None) => {}
                Err(error) => {
                    tracing::error!("cannot take the next job: {}", Chain(&error));
                    std::thread::sleep(std::time::Duration::from_secs(1));
                    self.queue().is_fresh = true;
                }
            }
        }
    }

    /// A place among the workers is free again, which somebody whom it was not given may wait for.
    fn give_back(&self, place: Share) {
        drop(place);
        self.queue().is_fresh = true;
        self.wake.notify_one();
    }

    /// The job is being done, and `live` counts how far.
    fn running(&self, id: &str, live: Arc<Live>, watch: &Arc<Watch>) {
        let mut all = self.live();
        let told = all.get(id).map_or((0, 0), |running| running.told);
        let since = millis(SystemTime::now());
        all.insert(id.to_owned(), Running { live, told, since, watch: Arc::clone(watch) });
    }

    /// The job is done: a bundle and its pages, or why there is none. What is beyond what is kept goes.
    fn finish(&self, id: &str, organization: &str, made: &Result<(rows::Made, u64), String>) {
        let reached = self.live().get(id).map_or((0, 0), |running| {
            (running.live.progress().max(running.told.0), running.live.pages().max(running.told.1))
        });
        // Until it is written down: a disk that is full now will not be so for ever, and somebody waits for the end.
        let gone = loop {
            match self.write_end(id, organization, made.clone(), reached) {
                Ok(gone) => break gone,
                Err(error) => tracing::error!("cannot write down how job {id} ended: {}", Chain(&error)),
            }
            let queue = self.queue();
            let wait = |queue: &mut Queue| !queue.is_closed;
            let waited = self.wake.wait_timeout_while(queue, AGAIN, wait).unwrap_or_else(PoisonError::into_inner);
            if waited.0.is_closed {
                break Vec::new();
            }
        };
        self.live().remove(id);
        self.remove(gone);
    }

    /// In one commit with what is forgotten for it, so that whoever sees that this job has ended sees that, too. The files that
    /// may go.
    fn write_end(
        &self,
        id: &str,
        organization: &str,
        made: Result<(rows::Made, u64), String>,
        reached: (u64, u64),
    ) -> Result<Vec<String>, DatabaseError> {
        let (keep, now, job, organization) =
            (self.keep, millis(SystemTime::now()), id.to_owned(), organization.to_owned());
        let pool = Arc::clone(self.shares.pool(Resource::BundleBytes));
        let (mut gone, full) = self.db.write(move |transaction| {
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
                    // What would have gone for it stays.
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
            gone.extend(self.db.write(move |transaction| {
                rows::fail(transaction, &job, &why, reached, now)?;
                keep.forget(transaction, now)
            })?);
        }
        Ok(gone)
    }

    /// Forgets what is beyond what is kept.
    pub(super) fn forget(&self) {
        let (keep, now) = (self.keep, millis(SystemTime::now()));
        match self.db.write(move |transaction| keep.forget(transaction, now)) {
            Ok(gone) => self.remove(gone),
            Err(error) => tracing::error!("cannot forget old jobs: {}", Chain(&error)),
        }
    }

    /// Removes bundles of jobs that are forgotten. A download that has begun still ends well: it holds the open file.
    fn remove(&self, names: Vec<String>) {
        for name in names {
            if let Err(error) = std::fs::remove_file(self.bundles.join(&name)) {
                tracing::warn!("cannot remove the bundle {name}: {error}");
            }
        }
    }

    /// A link to the bundle of this job works until then: it stays for so long.
    pub(super) fn promise(&self, id: &str, until: SystemTime) -> Result<(), DatabaseError> {
        if self.keep.young.is_zero() {
            return Ok(());
        }
        let (id, until) = (id.to_owned(), millis(until));
        self.db.write(move |transaction| rows::promise(transaction, &id, until))
    }

    /// Puts what lies at `path` into place as the bundle of a job, durably.
    fn place(&self, path: &Path, id: &str, kind: &str) -> io::Result<()> {
        regular::open(path)?.sync_all()?;
        std::fs::rename(path, self.bundles.join(rows::file_name(id, kind)))?;
        durable::sync_dir(&self.bundles)
    }

    /// No job begins from now on, and those under way are given up; those that can be are waited for, for a moment.
    pub(super) fn close(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.queue().is_closed = true;
        self.wake.notify_all();
        let until = Instant::now() + PATIENCE;
        loop {
            let live = self.live();
            live.values().for_each(|running| running.watch.end());
            // Packing is not called off: nothing of it outlives the process.
            if !live.values().any(|running| matches!(*running.live, Live::Making(_))) || Instant::now() > until {
                return;
            }
            drop(live);
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// Removes bundles of jobs that are forgotten. What no job of ours can have made is somebody's, and stays.
fn remove_unnamed(bundles: &Path, known: &BTreeSet<String>) -> io::Result<()> {
    let bundles = Directory::open(bundles)?;
    for entry in bundles.entries()? {
        let Entry { name, kind } = entry?;
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
