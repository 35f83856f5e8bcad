//! Worker threads that make bundles. Each thread runs one job after the other.
//!
//! If the source has no finished pages, they are made first, in the work folder of the job. A folder is packed, and the
//! bundle verified. An archive is copied, and the copy verified, so that a later change of the original does not
//! matter.

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
use docwharf_base::model::units::{format_count, format_size};
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
const MAX_PACK_ATTEMPTS: u32 = 3;
/// Pause before a site is packed again: the build that changes it may be nearly done.
const PACK_RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Number of bytes that are copied at a time.
const COPY_CHUNK_BYTES: usize = 1 << 20;

/// Reason why a job has no bundle.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error(transparent)]
    Survey(#[from] BundleReadError),
    #[error(transparent)]
    Pack(#[from] PackError),
    #[error(transparent)]
    Verify(#[from] SealError),
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Crawl(#[from] CrawlError),
    #[error(transparent)]
    Unpack(#[from] UnpackError),
    #[error(transparent)]
    Subset(#[from] SubsetError),
    #[error("cannot start a thread; start the job again later, or raise the limit of processes (TasksMax=, ulimit -u)")]
    Thread(#[source] io::Error),
    #[error("cannot {doing} {}", path.display())]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} changed during each attempt to read it; start another job when it does not change any more", .0.display())]
    Changing(PathBuf),
    #[error("the project {project} no longer has the domain {domain}; start another job")]
    NoProject { domain: String, project: String },
    #[error("static exports are no longer enabled for the project {0} (exports = false)")]
    NotAllowed(String),
    #[error("{0}")]
    NoSpace(String),
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
    pub(crate) fn run_worker(&self) {
        while let Some((job, worker_share)) = self.next_job() {
            let (id, domain) = (&job.id, &job.request.domain);
            tracing::info!("job {id}: making the bundle of {domain}");
            let (started, context) = (Instant::now(), Arc::new(self.job_context(&job)));
            // After a panic, the job must not stay "running". The panic hook logs the panic. Unfinished files are only
            // in the work folder of the job.
            let result = catch_unwind(AssertUnwindSafe(|| self.make_bundle(&job, &context)));
            context.release_shares();
            let result = result.unwrap_or_else(|_| {
                Err("the job failed unexpectedly; the log of the origin has the reason".to_owned())
            });
            match &result {
                Ok((bundle, pages)) => tracing::info!(
                    "job {id}: completed, {}, {}, {:.1} s",
                    format_count(*pages, "page"),
                    format_size(bundle.bytes),
                    started.elapsed().as_secs_f64()
                ),
                Err(reason) => tracing::error!("job {id}: failed: {reason}"),
            }
            if self.is_stopping.load(Ordering::Relaxed) && result.is_err() {
                // The job was cancelled by the stop of the origin: the next start marks it as failed.
                self.running_jobs().remove(id);
                return;
            }
            self.finish(id, &job.request.organization, &result);
            self.release_worker(worker_share);
        }
    }

    fn job_context(&self, job: &JobRow) -> JobContext {
        JobContext::with_shares(Arc::clone(self.pools()), &job.request.organization)
    }

    fn make_bundle(&self, job: &JobRow, context: &Arc<JobContext>) -> Result<(CompletedBundle, u64), String> {
        let folder = self.work_folder.join(&job.id);
        let result = std::fs::create_dir(&folder).map_err(io_error("create", &folder)).and_then(|()| {
            let job_folder = JobFolder(&folder);
            self.make_bundle_in(job, job_folder.0, context)
        });
        result.map_err(|error| ErrorChain(&error).to_string())
    }

    /// Makes the bundle of a job in its work folder.
    fn make_bundle_in(
        &self,
        job: &JobRow,
        job_folder: &Path,
        context: &Arc<JobContext>,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let project = self.find_project(job)?;
        if let Some(problem) = self.find_space_problem(&job.request.organization, 0) {
            return Err(ExportError::NoSpace(problem));
        }
        let paths = job.request.paths.as_deref();
        match &project.source {
            ProjectSource::FolderOrArchive(path) => self.pack_with_retries(job, path, job_folder, context),
            ProjectSource::Git(git) => {
                self.record_running(&job.id, Arc::new(JobProgress::MakingPages(Arc::clone(context))), context);
                let folder = job_folder.join("checkout");
                std::fs::create_dir(&folder).map_err(io_error("create", &folder))?;
                let built = run_at_low_priority(|| git::build_site(git, &git.branch, &folder, context))?;
                let site = self.select_pages(&built.site, paths, job_folder)?;
                self.pack_folder(job, &site, job_folder, context, true)
            }
            ProjectSource::Crawl(source) => {
                self.record_running(&job.id, Arc::new(JobProgress::MakingPages(Arc::clone(context))), context);
                let site = job_folder.join("crawled");
                std::fs::create_dir(&site).map_err(io_error("create", &site))?;
                let crawled = run_at_low_priority(|| crawl(source, paths, &site, context))?;
                for warning in &crawled.warnings {
                    tracing::warn!("job {}: {warning}", job.id);
                }
                self.pack_folder(job, &site, job_folder, context, true)
            }
        }
    }

    /// Returns the project of a job. A job may have waited while the configuration was changed: the domain may belong
    /// to another organization by now, and exports may be disabled.
    fn find_project(&self, job: &JobRow) -> Result<&OriginProject, ExportError> {
        let request = &job.request;
        let entry = self.projects.get(&request.project);
        let entry = entry.filter(|(organization, project)| {
            *organization == request.organization && project.domain.as_str() == request.domain
        });
        match entry {
            Some((_, project)) if project.allows_exports => Ok(project),
            Some(_) => Err(ExportError::NotAllowed(request.project.clone())),
            None => Err(ExportError::NoProject { domain: request.domain.clone(), project: request.project.clone() }),
        }
    }

    /// Makes the bundle of a folder or an archive. Tries again if the source has changed meanwhile, whatever the error:
    /// a file that is being replaced can be missing, short or half an archive.
    fn pack_with_retries(
        &self,
        job: &JobRow,
        path: &Path,
        job_folder: &Path,
        context: &Arc<JobContext>,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let survey_source = || SiteSurvey::read(path, &self.seal_options.limits);
        for _ in 0..MAX_PACK_ATTEMPTS {
            let before = survey_source();
            let digest = before.as_ref().ok().map(|survey| survey.digest);
            let result =
                before.map_err(ExportError::Survey).and_then(|_| self.try_pack(job, path, job_folder, context));
            let error = match result {
                Ok(bundle) => return Ok(bundle),
                Err(error) => error,
            };
            if matches!(error, ExportError::NoSpace(_)) {
                return Err(error);
            }
            let is_unchanged = survey_source().ok().map(|survey| survey.digest) == digest;
            if is_unchanged && !matches!(error, ExportError::Pack(PackError::Changed(_))) || context.is_cancelled() {
                return Err(error);
            }
            for name in ["part", "unpacked"] {
                let _ = std::fs::remove_dir_all(job_folder.join(name));
            }
            std::thread::sleep(PACK_RETRY_PAUSE);
        }
        Err(ExportError::Changing(path.to_owned()))
    }

    fn try_pack(
        &self,
        job: &JobRow,
        path: &Path,
        job_folder: &Path,
        context: &Arc<JobContext>,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let metadata = std::fs::metadata(path).map_err(io_error("read the metadata of", path))?;
        let paths = job.request.paths.as_deref();
        if metadata.is_dir() {
            let site = self.select_pages(path, paths, job_folder)?;
            self.pack_folder(job, &site, job_folder, context, false)
        } else if paths.is_some() {
            let unpacked = job_folder.join("unpacked");
            unpack(path, &unpacked, false, &self.seal_options, &SealProgress::default())?;
            let site = self.select_pages(&unpacked, paths, job_folder)?;
            self.pack_folder(job, &site, job_folder, context, false)
        } else {
            self.copy_archive(job, path, metadata.len(), job_folder, context)
        }
    }

    /// Returns the site itself, or a copy of the requested pages.
    fn select_pages(&self, site: &Path, paths: Option<&[String]>, job_folder: &Path) -> Result<PathBuf, ExportError> {
        let Some(paths) = paths else { return Ok(site.to_owned()) };
        let part = job_folder.join("part");
        std::fs::create_dir(&part).map_err(io_error("create", &part))?;
        subset::copy_pages(site, &part, paths, &self.seal_options.limits)?;
        Ok(part)
    }

    fn pack_folder(
        &self,
        job: &JobRow,
        folder: &Path,
        job_folder: &Path,
        context: &Arc<JobContext>,
        has_made_pages: bool,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let survey = SiteSurvey::read(folder, &self.seal_options.limits)?;
        if let Some(problem) = self.find_space_problem(&job.request.organization, survey.bytes) {
            return Err(ExportError::NoSpace(problem));
        }
        let pages = survey.pages.iter().map(|page| page.position).collect();
        let progress = Arc::new(JobProgress::PackingFolder {
            pages,
            bytes: survey.bytes,
            passes: PackProgress::default(),
            has_made_pages,
        });
        self.record_running(&job.id, Arc::clone(&progress), context);
        // Never used: `progress` has the variant that was created above.
        let unreported = PackProgress::default();
        let passes = if let JobProgress::PackingFolder { passes, .. } = &*progress { passes } else { &unreported };
        let to = job_folder.join("bundle.tar.gz");
        let verified = pack_with_progress(folder, &to, &self.seal_options, passes)?;
        self.complete_bundle(job, folder, &to, &verified)
    }

    fn copy_archive(
        &self,
        job: &JobRow,
        archive: &Path,
        bytes: u64,
        job_folder: &Path,
        context: &Arc<JobContext>,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        if let Some(problem) = self.find_space_problem(&job.request.organization, bytes) {
            return Err(ExportError::NoSpace(problem));
        }
        let progress = Arc::new(JobProgress::CopyingArchive {
            bytes,
            copied: AtomicU64::new(0),
            verifying: SealProgress::default(),
        });
        self.record_running(&job.id, Arc::clone(&progress), context);
        // Never used: `progress` has the variant that was created above.
        let unreported = (AtomicU64::new(0), SealProgress::default());
        let (copied, meter) = match &*progress {
            JobProgress::CopyingArchive { copied, verifying, .. } => (copied, verifying),
            _ => (&unreported.0, &unreported.1),
        };
        let to = job_folder.join("copy");
        self.copy_file(archive, &to, copied)?;
        // Users know the archive, not the copy.
        let verified = verify(&to, &self.seal_options, meter).map_err(|error| match error {
            SealError::Refused { source, .. } => SealError::Refused { path: archive.to_owned(), source },
            other => other,
        })?;
        self.complete_bundle(job, archive, &to, &verified)
    }

    fn copy_file(&self, archive: &Path, to: &Path, copied: &AtomicU64) -> Result<(), ExportError> {
        let mut source = regular_file::open(archive).map_err(io_error("read", archive))?;
        let mut target = File::create(to).map_err(io_error("write", to))?;
        let mut chunk = vec![0; COPY_CHUNK_BYTES];
        loop {
            let n = source.read(&mut chunk).map_err(io_error("read", archive))?;
            if n == 0 {
                return Ok(());
            }
            target.write_all(&chunk[..n]).map_err(io_error("write", to))?;
            if copied.fetch_add(n as u64, Ordering::Relaxed) > self.seal_options.limits.archive {
                // The archive is over the size limit, or grows while it is copied. Verification reports that it is too
                // large.
                return Ok(());
            }
        }
    }

    /// Moves a verified bundle into its place, and returns it with its number of pages.
    fn complete_bundle(
        &self,
        job: &JobRow,
        from: &Path,
        bundle: &Path,
        verified: &VerifiedBundle,
    ) -> Result<(CompletedBundle, u64), ExportError> {
        let (digest, bytes) = verified.archive.ok_or_else(|| ExportError::Changing(from.to_owned()))?;
        let kind = verified.kind.name().to_owned();
        self.store_bundle(bundle, &job.id, &kind).map_err(io_error("move into place", bundle))?;
        Ok((CompletedBundle { kind, digest, bytes }, verified.site_layout.pages))
    }
}

/// Runs a task on a separate thread of the lowest priority, because users control its cost. This thread could not raise
/// its own priority again.
fn run_at_low_priority<T: Send, E: Into<ExportError> + Send>(
    task: impl FnOnce() -> Result<T, E> + Send,
) -> Result<T, ExportError> {
    let run = || {
        thread_priority::lower_to_minimum();
        task()
    };
    let result = std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("making".to_owned());
        thread.spawn_scoped(scope, run).map(ScopedJoinHandle::join)
    });
    // A hostile source may have caused large allocations.
    return_freed_memory();
    // A panic continues in this thread, which reports it.
    result.map_err(ExportError::Thread)?.unwrap_or_else(|panic| resume_unwind(panic)).map_err(Into::into)
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ExportError {
    let path = path.to_owned();
    move |source| ExportError::Io { doing, path, source }
}
