//! Worker threads that make bundles, each one job after the other.
//!
//! If the source has no finished pages, they are made first, in a folder of the job. A folder is packed, and the bundle
//! verified. An archive is copied, and the copy verified, so that the bundle is what was verified, whatever happens to
//! the original.

use std::fs::File;
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::settings::OriginProject;
use crate::site_survey::SiteSurvey;
use crate::source::crawl::{CrawlError, crawl};
use crate::source::git::{self, GitError};
use crate::source::{JobContext, ProjectSource};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::{count_noun, show_size};
use docwharf_base::regular_file;
use docwharf_base::thread_priority;
use docwharf_site::bundle::BundleReadError;
use docwharf_site::mapping::return_freed_memory;
use docwharf_site::seal::pack::{PackError, PackProgress, pack_with_progress};
use docwharf_site::seal::unpack::{UnpackError, unpack};
use docwharf_site::seal::{SealError, SealProgress, VerifiedBundle, verify};

use super::ExportJobs;
use super::progress::JobProgress;
use super::rows::{CompletedBundle, JobRow};
use super::subset::{self, SubsetError};

/// Maximum number of attempts to pack a site that changes meanwhile; then the job fails.
const TRIES: u32 = 3;
/// Pause before a site is packed again: its build may be nearly done.
const QUIET: Duration = Duration::from_millis(500);
/// Number of bytes copied at a time.
const PIECE: usize = 1 << 20;

/// Reason why a job has no bundle.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Look(#[from] BundleReadError),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Prove(#[from] SealError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Crawl(#[from] CrawlError),
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Subset(#[from] SubsetError),
    #[error("cannot start a thread")]
    Thread(#[source] io::Error),
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} changes again and again while it is read; start another job when it is quiet", .0.display())]
    Changing(PathBuf),
    #[error("the project {project} no longer has the domain {domain}; start another job")]
    NoSite { domain: String, project: String },
    #[error("static exports are no longer enabled for the project {0} (exports = false)")]
    NotAllowed(String),
    #[error("{0}")]
    NoRoom(String),
}

/// Work folder of a job; removed when this value is dropped.
struct JobFolder<'a>(&'a Path);

impl Drop for JobFolder<'_> {
    fn drop(&mut self) {
        // If this fails, the next start removes the folder.
        let _ = std::fs::remove_dir_all(self.0);
    }
}

impl ExportJobs {
    /// Runs jobs until the queue is closed.
    pub(crate) fn work(&self) {
        while let Some((job, place)) = self.next() {
            let (id, domain) = (&job.id, &job.asked.domain);
            tracing::info!("job {id}: making {domain}");
            let (began, watch) = (Instant::now(), Arc::new(self.watch_of(&job)));
            // A panic must not leave this job running for ever. The panic hook logs it. Unfinished files lie in the
            // job's own folder only.
            let made = catch_unwind(AssertUnwindSafe(|| self.make(&job, &watch)));
            watch.release_shares();
            let made = made
                .unwrap_or_else(|_| Err("packing stopped unexpectedly; the log of the origin says where".to_owned()));
            match &made {
                Ok((made, pages)) => tracing::info!(
                    "job {id}: completed, {}, {}, {:.1} s",
                    count_noun(*pages, "page"),
                    show_size(made.bytes),
                    began.elapsed().as_secs_f64()
                ),
                Err(why) => tracing::error!("job {id}: failed: {why}"),
            }
            if self.is_stopping.load(Ordering::Relaxed) && made.is_err() {
                // The job was cancelled and did not fail by itself: the next start marks it as failed.
                self.live().remove(id);
                return;
            }
            self.finish(id, &job.asked.organization, &made);
            self.give_back(place);
        }
    }

    fn watch_of(&self, job: &JobRow) -> JobContext {
        JobContext::of(Arc::clone(self.shares()), &job.asked.organization)
    }

    fn make(&self, job: &JobRow, watch: &Arc<JobContext>) -> Result<(CompletedBundle, u64), String> {
        let bench = self.work.join(&job.id);
        let made = std::fs::create_dir(&bench).map_err(io_error("make", &bench)).and_then(|()| {
            let bench = JobFolder(&bench);
            self.make_from(job, bench.0, watch)
        });
        made.map_err(|error| ErrorChain(&error).to_string())
    }

    fn make_from(
        &self,
        job: &JobRow,
        bench: &Path,
        watch: &Arc<JobContext>,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let project = self.project_of(job)?;
        if let Some(why) = self.no_room(&job.asked.organization, 0) {
            return Err(ExportError::NoRoom(why));
        }
        let paths = job.asked.paths.as_deref();
        match &project.source {
            ProjectSource::Directory(path) => self.make_of(job, path, bench, watch),
            ProjectSource::Git(git) => {
                self.running(&job.id, Arc::new(JobProgress::Making(Arc::clone(watch))), watch);
                let space = bench.join("checkout");
                std::fs::create_dir(&space).map_err(io_error("make", &space))?;
                let made = run_at_low_priority(|| git::build_site(git, &git.branch, &space, watch))?;
                let site = self.part_of(&made.site, paths, bench)?;
                self.pack_once(job, &site, bench, watch, true)
            }
            ProjectSource::Crawl(source) => {
                self.running(&job.id, Arc::new(JobProgress::Making(Arc::clone(watch))), watch);
                let site = bench.join("crawled");
                std::fs::create_dir(&site).map_err(io_error("make", &site))?;
                let crawled = run_at_low_priority(|| crawl(source, paths, &site, watch))?;
                for warning in &crawled.warnings {
                    tracing::warn!("job {}: {warning}", job.id);
                }
                self.pack_once(job, &site, bench, watch, true)
            }
        }
    }

    /// Returns the project of a job. A job may have waited while the configuration was changed: the domain may belong
    /// to another organization by now, and exports may be disabled.
    fn project_of(&self, job: &JobRow) -> Result<&OriginProject, ExportError> {
        let asked = &job.asked;
        let found = self.projects.get(&asked.project);
        let found = found.filter(|(organization, project)| {
            *organization == asked.organization && project.domain.as_str() == asked.domain
        });
        match found {
            Some((_, project)) if project.exports => Ok(project),
            Some(_) => Err(ExportError::NotAllowed(asked.project.clone())),
            None => Err(ExportError::NoSite { domain: asked.domain.clone(), project: asked.project.clone() }),
        }
    }

    /// Makes the bundle of a folder or an archive. Tries again if the source has changed meanwhile, whatever the error:
    /// a file that is being replaced can be missing, short or half an archive.
    fn make_of(
        &self,
        job: &JobRow,
        path: &Path,
        bench: &Path,
        watch: &Arc<JobContext>,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let look = || SiteSurvey::read(path, &self.effort.limits);
        for _ in 0..TRIES {
            let before = look();
            let digest = before.as_ref().ok().map(|survey| survey.digest);
            let made = before.map_err(ExportError::Look).and_then(|_| self.try_once(job, path, bench, watch));
            let error = match made {
                Ok(made) => return Ok(made),
                Err(error) => error,
            };
            if matches!(error, ExportError::NoRoom(_)) {
                return Err(error);
            }
            let same = look().ok().map(|survey| survey.digest) == digest;
            if same && !matches!(error, ExportError::Pack(PackError::Changed(_))) || watch.is_over() {
                return Err(error);
            }
            for left in ["part", "unpacked"] {
                let _ = std::fs::remove_dir_all(bench.join(left));
            }
            std::thread::sleep(QUIET);
        }
        Err(ExportError::Changing(path.to_owned()))
    }

    fn try_once(
        &self,
        job: &JobRow,
        path: &Path,
        bench: &Path,
        watch: &Arc<JobContext>,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let metadata = std::fs::metadata(path).map_err(io_error("look at", path))?;
        let paths = job.asked.paths.as_deref();
        if metadata.is_dir() {
            let site = self.part_of(path, paths, bench)?;
            self.pack_once(job, &site, bench, watch, false)
        } else if paths.is_some() {
            let unpacked = bench.join("unpacked");
            unpack(path, &unpacked, false, &self.effort, &SealProgress::default())?;
            let site = self.part_of(&unpacked, paths, bench)?;
            self.pack_once(job, &site, bench, watch, false)
        } else {
            self.copy(job, path, metadata.len(), bench, watch)
        }
    }

    /// Returns the site itself, or a copy of the requested pages.
    fn part_of(&self, site: &Path, paths: Option<&[String]>, bench: &Path) -> Result<PathBuf, ExportError> {
        let Some(paths) = paths else { return Ok(site.to_owned()) };
        let part = bench.join("part");
        std::fs::create_dir(&part).map_err(io_error("make", &part))?;
        subset::copy(site, &part, paths, &self.effort.limits)?;
        Ok(part)
    }

    fn pack_once(
        &self,
        job: &JobRow,
        folder: &Path,
        bench: &Path,
        watch: &Arc<JobContext>,
        is_made: bool,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let survey = SiteSurvey::read(folder, &self.effort.limits)?;
        if let Some(why) = self.no_room(&job.asked.organization, survey.bytes) {
            return Err(ExportError::NoRoom(why));
        }
        let pages = survey.pages.iter().map(|page| page.position).collect();
        let live =
            Arc::new(JobProgress::Folder { pages, bytes: survey.bytes, passes: PackProgress::default(), is_made });
        self.running(&job.id, Arc::clone(&live), watch);
        let unwatched = PackProgress::default();
        let passes = if let JobProgress::Folder { passes, .. } = &*live { passes } else { &unwatched };
        let to = bench.join("bundle.tar.gz");
        let proven = pack_with_progress(folder, &to, &self.effort, passes)?;
        self.placed(job, folder, &to, &proven)
    }

    fn copy(
        &self,
        job: &JobRow,
        archive: &Path,
        bytes: u64,
        bench: &Path,
        watch: &Arc<JobContext>,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        if let Some(why) = self.no_room(&job.asked.organization, bytes) {
            return Err(ExportError::NoRoom(why));
        }
        let live =
            Arc::new(JobProgress::Archive { bytes, copied: AtomicU64::new(0), proving: SealProgress::default() });
        self.running(&job.id, Arc::clone(&live), watch);
        let unwatched = (AtomicU64::new(0), SealProgress::default());
        let (copied, meter) = match &*live {
            JobProgress::Archive { copied, proving, .. } => (copied, proving),
            _ => (&unwatched.0, &unwatched.1),
        };
        let to = bench.join("copy");
        self.copy_bytes(archive, &to, copied)?;
        // Users know the archive, not the copy.
        let proven = verify(&to, &self.effort, meter).map_err(|error| match error {
            SealError::Refused { source, .. } => SealError::Refused { path: archive.to_owned(), source },
            other => other,
        })?;
        self.placed(job, archive, &to, &proven)
    }

    fn copy_bytes(&self, archive: &Path, to: &Path, copied: &AtomicU64) -> Result<(), ExportError> {
        let mut from = regular_file::open(archive).map_err(io_error("read", archive))?;
        let mut file = File::create(to).map_err(io_error("write", to))?;
        let mut piece = vec![0; PIECE];
        loop {
            let n = from.read(&mut piece).map_err(io_error("read", archive))?;
            if n == 0 {
                return Ok(());
            }
            file.write_all(&piece[..n]).map_err(io_error("write", to))?;
            if copied.fetch_add(n as u64, Ordering::Relaxed) > self.effort.limits.archive {
                // The archive is over the size limit, or grows while it is copied. Verification reports that it is too
                // large.
                return Ok(());
            }
        }
    }

    fn placed(
        &self,
        job: &JobRow,
        from: &Path,
        made: &Path,
        proven: &VerifiedBundle,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let (digest, bytes) = proven.archive.ok_or_else(|| ExportError::Changing(from.to_owned()))?;
        let kind = proven.kind.name().to_owned();
        self.place(made, &job.id, &kind).map_err(io_error("put into place", made))?;
        Ok((CompletedBundle { kind, digest, bytes }, proven.flavor.pages))
    }
}

/// Runs work whose cost users decide on a thread of the lowest priority, because this thread could not raise its own
/// priority again.
fn run_at_low_priority<T: Send, E: Into<ExportError> + Send>(
    work: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, ExportError> {
    let lowered = || {
        thread_priority::lower();
        work()
    };
    let done = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("making".to_owned());
        thread.spawn_scoped(scope, lowered).map(ScopedJoinHandle::join)
    });
    // A hostile source may have caused large allocations.
    return_freed_memory();
    // A panic continues in this thread, which reports it.
    done.map_err(ExportError::Thread)?.unwrap_or_else(|panic| resume_unwind(panic)).map_err(Into::into)
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::Io { doing, path, source }
}
