//! Builds deployments one after the other: from a branch to the version that its preview serves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use docwharf_base::clock::now_unix_millis;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::count_noun;
use docwharf_base::thread_priority;
use docwharf_serve::Site;
use docwharf_site::diff::count_pages;
use docwharf_site::mapping::return_freed_memory;
use docwharf_site::seal::{self, ImageSpace, SealError, SealOptions, SealProgress};
use docwharf_site::sealed_version::SealedVersion;

use super::super::source::JobContext;
use super::super::source::git::{self, GitError};
use super::deployment::{Author, Commit, told};
use super::rows::{self, DeploymentEnd, DeploymentOutcome, PreviewChange, QueuedDeployment, STOPPED};
use super::store::PreviewStoreError;
use super::{PreviewProject, PreviewState, links};

/// Pause before the end of a deployment that could not be written is written again.
const AGAIN: Duration = Duration::from_secs(5);

/// Reason why a deployment failed.
#[derive(Debug, thiserror::Error)]
enum PreviewBuildError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Shelf(#[from] PreviewStoreError),
    #[error("the project {0} has no previews here any more")]
    NoProject(String),
    #[error("{STOPPED}")]
    Stopped,
}

/// A version built from a branch.
struct BuiltPreview {
    version: SealedVersion,
    summary: String,
}

/// Commit and author of a deployment, known even if it fails later.
type DeployedCommit = Option<(Commit, Option<Author>)>;

impl PreviewState {
    /// Builds waiting deployments until the queue is closed. Users decide what a branch costs, so the thread runs at
    /// the lowest priority.
    pub(super) fn work(&self) {
        thread_priority::lower();
        while let Some((job, watch)) = self.queue.next() {
            tracing::info!("preview {}: building {} of {}", job.slug, job.branch, job.project);
            if let Err(error) = self.db.run_writer({
                let id = job.id.clone();
                move |transaction| rows::begin(transaction, &id)
            }) {
                // It is built all the same; if the process ends meanwhile, it is built again.
                tracing::warn!("{}", ErrorChain(&error));
            }
            // Removing branches that are gone first frees disk space and slugs.
            self.sweep_project(&job.project);
            self.build(&job, &watch);
            return_freed_memory();
            self.queue.done(&job);
        }
    }

    fn build(&self, job: &QueuedDeployment, watch: &JobContext) {
        let mut origin = None;
        // A panic must not leave this deployment in progress for ever. The panic hook logs it. Unfinished files lie in
        // the work folder of the deployment only.
        let made = catch_unwind(AssertUnwindSafe(|| self.make(job, watch, &mut origin)));
        watch.release_shares();
        let (outcome, summary, version) = match made {
            Ok(Ok(BuiltPreview { version, summary })) => (DeploymentOutcome::Shown(version.id), summary, Some(version)),
            Ok(Err(error)) => {
                let outcome = match error {
                    PreviewBuildError::Git(GitError::NoBranch { .. }) => DeploymentOutcome::NoBranch,
                    _ => DeploymentOutcome::Failed,
                };
                let summary = if self.queue.is_closed() { STOPPED.to_owned() } else { ErrorChain(&error).to_string() };
                (if self.queue.is_closed() { DeploymentOutcome::Failed } else { outcome }, summary, None)
            }
            Err(_) => {
                let summary = "the build stopped unexpectedly; the log of the origin says where".to_owned();
                (DeploymentOutcome::Failed, summary, None)
            }
        };
        if version.is_some() {
            tracing::info!("preview {}: {summary}", job.slug);
        } else {
            tracing::error!("preview {}: {summary}", job.slug);
        }
        let (commit, author) = origin.map_or((None, None), |(commit, author)| (Some(commit), author));
        self.finish(job, &DeploymentEnd { outcome, summary, logs: watch.log(), commit, author }, version);
    }

    /// Records the result, then serves the new version if there is one.
    fn finish(&self, job: &QueuedDeployment, end: &DeploymentEnd, version: Option<SealedVersion>) {
        let Some(ended) = self.write_end(job, end) else {
            if let DeploymentOutcome::Shown(_) = end.outcome {
                self.store.remove(&job.id);
            }
            return;
        };
        if let Some(version) = version {
            self.site_of(job).set_version(version);
        }
        if ended.is_gone {
            self.take_away(&job.slug);
        }
        if let Some(id) = ended.unneeded {
            self.store.remove(&id);
        }
    }

    /// Retries until the result is written or the origin is stopped. In that case the next start finds the unfinished
    /// deployment and marks it as failed.
    fn write_end(&self, job: &QueuedDeployment, end: &DeploymentEnd) -> Option<PreviewChange> {
        loop {
            let (of, what) = (job.clone(), end.clone());
            match self.db.run_writer(move |transaction| rows::end(transaction, &of, &what, now_unix_millis())) {
                Ok(ended) => return Some(ended),
                Err(error) => tracing::error!("{}; it is tried again", ErrorChain(&error)),
            }
            if self.queue.sleep(AGAIN) {
                return None;
            }
        }
    }

    fn make(
        &self,
        job: &QueuedDeployment,
        watch: &JobContext,
        origin: &mut DeployedCommit,
    ) -> Result<BuiltPreview, PreviewBuildError> {
        let project =
            self.projects.get(&job.project).ok_or_else(|| PreviewBuildError::NoProject(job.project.clone()))?;
        let bench = self.store.create_workspace(&job.id)?;
        let made = git::build_site(&project.git, &job.branch, &bench.source(), watch)?;
        *origin = Some(told(made.commit));
        let sealing = self.seal(job, &made.site, &bench.version(), watch)?;
        let before = self.site_of(job).current();
        let version = self.store.store_version(&job.id, &bench, sealing, before.as_deref())?;
        // From here on the version is stored, and must be removed if the deployment fails.
        self.judge(project, &version, watch).map(|summary| BuiltPreview { version, summary }).inspect_err(|_| {
            self.store.remove(&job.id);
        })
    }

    /// Verifies and seals the site like any folder: links that lead out of it are left out, forbidden content is
    /// refused.
    fn seal(
        &self,
        job: &QueuedDeployment,
        site: &Path,
        to: &Path,
        watch: &JobContext,
    ) -> Result<seal::SealedBundle, PreviewBuildError> {
        let effort = SealOptions { durable: true, may_move: false, ..self.effort };
        let write = |source| SealError::Write { path: to.to_owned(), source };
        let space = ImageSpace::Dir(Directory::open_unlinked(to).map_err(write)?);
        let sealing = seal::seal(site, &space, &effort, &SealProgress::default()).map_err(|error| match error {
            // Users know the branch, not the temporary path.
            SealError::Refused { source, .. } => SealError::Refused { path: job.branch.clone().into(), source },
            other => other,
        })?;
        for warning in &sealing.proven.warnings {
            watch.log_line(format!("warning: {warning}"));
        }
        if watch.is_over() { Err(PreviewBuildError::Stopped) } else { Ok(sealing) }
    }

    /// Checks the links of a version and returns its summary, such as `42 pages; no broken links`.
    fn judge(
        &self,
        project: &PreviewProject,
        version: &SealedVersion,
        watch: &JobContext,
    ) -> Result<String, PreviewBuildError> {
        if let Some(doubts) = version.describe_rule_faults() {
            watch.log_line(format!("warning: {doubts}"));
        }
        let production = (self.production)(&project.id);
        let links = links::look(version, production.as_deref(), self.effort.threads, &|| watch.is_over());
        let links = links.ok_or(PreviewBuildError::Stopped)?;
        let summary = format!("{}; {links}", count_noun(count_pages(version.index()), "page"));
        watch.log_line(format!("version {}: {summary}", version.id.short()));
        Ok(summary)
    }

    /// Returns the site of a deployment's preview.
    fn site_of(&self, job: &QueuedDeployment) -> Arc<Site> {
        self.place_for(&job.project, &job.slug)
    }
}
