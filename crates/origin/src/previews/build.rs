//! One deployment after the other: from a branch to what its preview shows.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use docwharf_base::chain::Chain;
use docwharf_base::directory::Directory;
use docwharf_base::priority;
use docwharf_base::model::units::count;
use docwharf_site::seal::{self, Effort, Meter, SealError, Space};
use docwharf_serve::Site;
use docwharf_site::diff::pages;
use docwharf_site::mapping::return_freed;
use docwharf_site::sealed::Sealed;

use super::super::source::Watch;
use super::super::source::git::{self, GitError};
use super::deployment::{Author, Commit, told};
use super::rows::{self, End, Ended, Outcome, STOPPED, Waiting};
use super::shelf::ShelfError;
use super::{Inner, Project, links, milliseconds};

/// After how long the end of a deployment that could not be written down is written again.
const AGAIN: Duration = Duration::from_secs(5);

/// Why a branch has not become a version.
#[derive(Debug, thiserror::Error)]
enum NotMade {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error(transparent)]
    Shelf(#[from] ShelfError),
    #[error("the project {0} has no previews here any more")]
    NoProject(String),
    #[error("{STOPPED}")]
    Stopped,
}

/// What has become of a branch.
struct Made {
    version: Sealed,
    summary: String,
}

/// What is known of a deployment's commit, also if nothing comes of it.
type Origin = Option<(Commit, Option<Author>)>;

impl Inner {
    /// Builds what waits, until it is closed. What a branch costs others decide, so it is less important than all else.
    pub(super) fn work(&self) {
        priority::lower();
        while let Some((job, watch)) = self.queue.next() {
            tracing::info!("preview {}: building {} of {}", job.slug, job.branch, job.project);
            if let Err(error) = self.db.write({
                let id = job.id.clone();
                move |transaction| rows::begin(transaction, &id)
            }) {
                // It is built all the same; if the process ends meanwhile, it is built again.
                tracing::warn!("{}", Chain(&error));
            }
            // Branches that are gone make room first, on disk and among the names that there are.
            self.sweep_project(&job.project);
            self.build(&job, &watch);
            return_freed();
            self.queue.done(&job);
        }
    }

    fn build(&self, job: &Waiting, watch: &Watch) {
        let mut origin = None;
        // A panic would leave this deployment under way for ever. It is logged by its hook; what it may have left
        // half-done lies on the bench only.
        let made = catch_unwind(AssertUnwindSafe(|| self.make(job, watch, &mut origin)));
        watch.give_back();
        let (outcome, summary, version) = match made {
            Ok(Ok(Made { version, summary })) => (Outcome::Shown(version.id), summary, Some(version)),
            Ok(Err(error)) => {
                let outcome = match error {
                    NotMade::Git(GitError::NoBranch { .. }) => Outcome::NoBranch,
                    _ => Outcome::Failed,
                };
                let summary = if self.queue.is_closed() { STOPPED.to_owned() } else { Chain(&error).to_string() };
                (if self.queue.is_closed() { Outcome::Failed } else { outcome }, summary, None)
            }
            Err(_) => {
                let summary = "the build stopped unexpectedly; the log of the origin says where".to_owned();
                (Outcome::Failed, summary, None)
            }
        };
        if version.is_some() {
            tracing::info!("preview {}: {summary}", job.slug);
        } else {
            tracing::error!("preview {}: {summary}", job.slug);
        }
        let (commit, author) = origin.map_or((None, None), |(commit, author)| (Some(commit), author));
        self.finish(job, &End { outcome, summary, logs: watch.log(), commit, author }, version);
    }

    /// Writes down how it has ended, then shows what there is to show.
    fn finish(&self, job: &Waiting, end: &End, version: Option<Sealed>) {
        let Some(ended) = self.write_end(job, end) else {
            if let Outcome::Shown(_) = end.outcome {
                self.shelf.remove(&job.id);
            }
            return;
        };
        if let Some(version) = version {
            self.site_of(job).show(version);
        }
        if ended.is_gone {
            self.take_away(&job.slug);
        }
        if let Some(id) = ended.unneeded {
            self.shelf.remove(&id);
        }
    }

    /// Tries until it is written, or until the origin is stopped: then the next one finds what is unfinished, and says so.
    fn write_end(&self, job: &Waiting, end: &End) -> Option<Ended> {
        loop {
            let (of, what) = (job.clone(), end.clone());
            match self.db.write(move |transaction| rows::end(transaction, &of, &what, milliseconds())) {
                Ok(ended) => return Some(ended),
                Err(error) => tracing::error!("{}; it is tried again", Chain(&error)),
            }
            if self.queue.sleep(AGAIN) {
                return None;
            }
        }
    }

    fn make(&self, job: &Waiting, watch: &Watch, origin: &mut Origin) -> Result<Made, NotMade> {
        let project = self.projects.get(&job.project).ok_or_else(|| NotMade::NoProject(job.project.clone()))?;
        let bench = self.shelf.bench(&job.id)?;
        let made = git::make(&project.git, &job.branch, &bench.source(), watch)?;
        *origin = Some(told(made.commit));
        let sealing = self.seal(job, &made.site, &bench.version(), watch)?;
        let before = self.site_of(job).current();
        let version = self.shelf.keep(&job.id, &bench, sealing, before.as_deref())?;
        // From here on it is on the shelf, and must not stay there for nothing.
        self.judge(project, &version, watch).map(|summary| Made { version, summary }).inspect_err(|_| {
            self.shelf.remove(&job.id);
        })
    }

    /// Proves the site as any folder is proved: what leads out of it is left out, what no site may hold is refused.
    fn seal(&self, job: &Waiting, site: &Path, to: &Path, watch: &Watch) -> Result<seal::Sealing, NotMade> {
        let effort = Effort { durable: true, take: false, ..self.effort };
        let write = |source| SealError::Write { path: to.to_owned(), source };
        let space = Space::Dir(Directory::open_unlinked(to).map_err(write)?);
        let sealing = seal::seal(site, &space, &effort, &Meter::default()).map_err(|error| match error {
            // People know the branch, not where it lies while it is judged.
            SealError::Refused { source, .. } => SealError::Refused { path: job.branch.clone().into(), source },
            other => other,
        })?;
        for warning in &sealing.proven.warnings {
            watch.say(format!("warning: {warning}"));
        }
        if watch.is_over() { Err(NotMade::Stopped) } else { Ok(sealing) }
    }

    /// `42 pages; no broken links`
    fn judge(&self, project: &Project, version: &Sealed, watch: &Watch) -> Result<String, NotMade> {
        if let Some(doubts) = version.doubts() {
            watch.say(format!("warning: {doubts}"));
        }
        let production = (self.production)(&project.id);
        let links = links::look(version, production.as_deref(), self.effort.threads, &|| watch.is_over());
        let links = links.ok_or(NotMade::Stopped)?;
        let summary = format!("{}; {links}", count(pages(version.index()), "page"));
        watch.say(format!("version {}: {summary}", version.id.short()));
        Ok(summary)
    }

    /// The site of a deployment's preview.
    fn site_of(&self, job: &Waiting) -> Arc<Site> {
        self.place_for(&job.project, &job.slug)
    }
}
