//! Builds deployments one after the other: from a branch to the version that its preview serves.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use docwharf_base::clock::now_unix_millis;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::units::format_count;
use docwharf_base::thread_priority;
use docwharf_serve::Site;
use docwharf_site::diff::count_pages;
use docwharf_site::mapping::return_freed_memory;
use docwharf_site::seal::{self, ImageTarget, SealError, SealOptions, SealProgress};
use docwharf_site::sealed_version::SealedVersion;

use super::super::source::JobContext;
use super::super::source::git::{self, GitError};
use super::deployment::{ApiAuthor, ApiCommit, to_api_commit};
use super::rows::{self, DeploymentEnd, DeploymentOutcome, DeploymentRequest, INTERRUPTED_SUMMARY, PreviewChange};
use super::store::PreviewStoreError;
use super::{PreviewProject, PreviewState, broken_links};

/// Pause between two attempts to write the end of a deployment to the database.
const WRITE_RETRY_PAUSE: Duration = Duration::from_secs(5);

/// Reason why a deployment failed.
#[derive(Debug, thiserror::Error)]
enum PreviewBuildError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Store(#[from] PreviewStoreError),
    #[error("the project {0} has no previews any more")]
    NoProject(String),
    #[error("{INTERRUPTED_SUMMARY}")]
    Cancelled,
}

/// A version built from a branch.
struct BuiltPreview {
    version: SealedVersion,
    summary: String,
}

/// Commit and author of a deployment, known even if it fails later.
type DeployedCommit = Option<(ApiCommit, Option<ApiAuthor>)>;

impl PreviewState {
    /// Builds waiting deployments until the queue is closed. The cost of a build depends on the branch, so the thread
    /// runs at the lowest priority.
    pub(super) fn run_worker(&self) {
        thread_priority::lower_to_minimum();
        while let Some((deployment, context)) = self.queue.next_deployment() {
            tracing::info!("preview {}: building {} of {}", deployment.slug, deployment.branch, deployment.project);
            if let Err(error) = self.db.write({
                let id = deployment.id.clone();
                move |transaction| rows::mark_in_progress(transaction, &id)
            }) {
                // The deployment is built nevertheless. If the process ends meanwhile, it is built again.
                tracing::warn!("{}", ErrorChain(&error));
            }
            // Previews of deleted branches are removed before the build, to free disk space and slugs.
            self.remove_deleted_branches_of(&deployment.project);
            self.build(&deployment, &context);
            return_freed_memory();
            self.queue.remove_ended(&deployment);
        }
    }

    fn build(&self, deployment: &DeploymentRequest, context: &JobContext) {
        let mut commit = None;
        // After a panic, the deployment must not stay "in progress". The panic hook logs the panic. Unfinished files
        // are only in the work folder of the deployment.
        let result = catch_unwind(AssertUnwindSafe(|| self.build_version(deployment, context, &mut commit)));
        context.release_shares();
        let (outcome, summary, version) = match result {
            Ok(Ok(BuiltPreview { version, summary })) => {
                (DeploymentOutcome::Served(version.id), summary, Some(version))
            }
            Ok(Err(error)) => {
                let outcome = match error {
                    PreviewBuildError::Git(GitError::NoBranch { .. }) => DeploymentOutcome::NoBranch,
                    _ => DeploymentOutcome::Failed,
                };
                let summary = if self.queue.is_closed() {
                    INTERRUPTED_SUMMARY.to_owned()
                } else {
                    ErrorChain(&error).to_string()
                };
                (if self.queue.is_closed() { DeploymentOutcome::Failed } else { outcome }, summary, None)
            }
            Err(_) => {
                let summary = "the build failed unexpectedly; the log of the origin has the reason".to_owned();
                (DeploymentOutcome::Failed, summary, None)
            }
        };
        if version.is_some() {
            tracing::info!("preview {}: {summary}", deployment.slug);
        } else {
            tracing::error!("preview {}: {summary}", deployment.slug);
        }
        let (commit, author) = commit.map_or((None, None), |(commit, author)| (Some(commit), author));
        self.record_end(deployment, &DeploymentEnd { outcome, summary, logs: context.log(), commit, author }, version);
    }

    /// Records the result, then serves the new version if there is one.
    fn record_end(&self, deployment: &DeploymentRequest, end: &DeploymentEnd, version: Option<SealedVersion>) {
        let Some(change) = self.write_end(deployment, end) else {
            if let DeploymentOutcome::Served(_) = end.outcome {
                self.store.remove(&deployment.id);
            }
            return;
        };
        if let Some(version) = version {
            let id = version.id;
            self.site_of(deployment).set_version(version);
            self.update_search(&deployment.slug, id, &deployment.id);
        }
        if change.is_removed {
            self.remove_site(&deployment.slug);
        }
        if let Some(id) = change.replaced_deployment {
            self.store.remove(&id);
        }
    }

    /// Retries until the result is written or the origin is stopped. If the origin is stopped, the next start finds the
    /// unfinished deployment and marks it as failed.
    fn write_end(&self, deployment: &DeploymentRequest, end: &DeploymentEnd) -> Option<PreviewChange> {
        loop {
            let (deployment, end) = (deployment.clone(), end.clone());
            match self.db.write(move |transaction| rows::record_end(transaction, &deployment, &end, now_unix_millis()))
            {
                Ok(change) => return Some(change),
                Err(error) => tracing::error!("{}; the write is tried again", ErrorChain(&error)),
            }
            if self.queue.wait_or_closed(WRITE_RETRY_PAUSE) {
                return None;
            }
        }
    }

    /// Builds, verifies and stores the version of a deployment. `commit` gets its commit as soon as that is known.
    fn build_version(
        &self,
        deployment: &DeploymentRequest,
        context: &JobContext,
        commit: &mut DeployedCommit,
    ) -> Result<BuiltPreview, PreviewBuildError> {
        let project = self
            .projects
            .get(&deployment.project)
            .ok_or_else(|| PreviewBuildError::NoProject(deployment.project.clone()))?;
        let workspace = self.store.create_workspace(&deployment.id)?;
        let built = git::build_site(&project.git, &deployment.branch, &workspace.source(), context)?;
        *commit = Some(to_api_commit(built.commit));
        let sealed = self.seal(deployment, &built.site, &workspace.version(), context)?;
        let previous = self.site_of(deployment).served_version();
        let version = self.store.store_version(&deployment.id, &workspace, sealed, previous.as_deref())?;
        // From here on the version is stored, and must be removed if the deployment fails.
        self.check_version_links(project, &version, context)
            .map(|summary| BuiltPreview { version, summary })
            .inspect_err(|_| {
                self.store.remove(&deployment.id);
            })
    }

    /// Verifies and seals the site like any folder: links that lead out of it are left out, forbidden content is
    /// refused.
    fn seal(
        &self,
        deployment: &DeploymentRequest,
        site: &Path,
        target_folder: &Path,
        context: &JobContext,
    ) -> Result<seal::SealedBundle, PreviewBuildError> {
        let seal_options = SealOptions { durable: true, may_move: false, ..self.seal_options };
        let write_error = |source| SealError::Write { path: target_folder.to_owned(), source };
        let target = ImageTarget::Dir(Directory::open_no_follow(target_folder).map_err(write_error)?);
        let sealed =
            seal::seal(site, &target, &seal_options, &SealProgress::default()).map_err(|error| match error {
                // Users know the branch, not the temporary path.
                SealError::Refused { source, .. } => {
                    SealError::Refused { path: deployment.branch.clone().into(), source }
                }
                other => other,
            })?;
        for warning in &sealed.verified.warnings {
            context.log_line(format!("warning: {warning}"));
        }
        if context.is_cancelled() { Err(PreviewBuildError::Cancelled) } else { Ok(sealed) }
    }

    /// Checks the links of a version and returns its summary, such as `42 pages; no broken links`.
    fn check_version_links(
        &self,
        project: &PreviewProject,
        version: &SealedVersion,
        context: &JobContext,
    ) -> Result<String, PreviewBuildError> {
        if let Some(rule_faults) = version.describe_rule_faults() {
            context.log_line(format!("warning: {rule_faults}"));
        }
        let production = (self.production_finder)(&project.id);
        let links =
            broken_links::describe_broken_links(version, production.as_deref(), self.seal_options.threads, &|| {
                context.is_cancelled()
            });
        let links = links.ok_or(PreviewBuildError::Cancelled)?;
        let summary = format!("{}; {links}", format_count(count_pages(version.index()), "page"));
        context.log_line(format!("version {}: {summary}", version.id.short()));
        Ok(summary)
    }

    /// Returns the site of a deployment's preview.
    fn site_of(&self, deployment: &DeploymentRequest) -> Arc<Site> {
        self.site_at(&deployment.project, &deployment.slug)
    }
}
