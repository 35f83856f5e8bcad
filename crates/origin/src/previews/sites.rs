//! Sites of previews: which address serves which version, and which previews are removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use docwharf_base::clock::now_unix_millis;
use docwharf_base::error_chain::ErrorChain;
use docwharf_serve::{Site, SiteSettings as Serving};

use super::super::database::DatabaseError;
use super::super::source::git::{self, Git};
use super::{PreviewError, PreviewProject, PreviewSite, PreviewState, rows};

/// Size of the cache of inflated pages of each preview, in bytes.
const CACHE: u64 = 4 << 20;
/// How long an open page of a preview that was deployed again may still request its assets.
const ASSET_GRACE: Duration = Duration::from_mins(10);
impl PreviewState {
    /// Opens the versions that previews serve, and removes those that no preview serves. A version that cannot be
    /// opened is logged and has to be deployed again; the others are served.
    pub(super) fn show_all(&self) -> Result<(), PreviewError> {
        let previews = self.db.read(rows::previews)?;
        let needed: BTreeSet<&str> =
            previews.iter().filter_map(|preview| preview.shown.as_ref()).map(|(_, id)| id.as_str()).collect();
        self.store.clear(&needed)?;
        for preview in previews.iter().filter(|preview| self.projects.contains_key(&preview.project)) {
            let site = self.place_for(&preview.project, &preview.slug);
            let Some((version, id)) = &preview.shown else { continue };
            match self.store.open_version(id, *version, &self.effort) {
                Ok(version) => site.set_version(version),
                Err(error) => {
                    tracing::error!("the preview of {} of {}: {}", preview.branch, preview.project, ErrorChain(&error));
                }
            }
        }
        Ok(())
    }

    /// Returns the site at this address; creates it if there is none. It belongs to one branch as long as that has a
    /// preview.
    pub(super) fn place_for(&self, project: &str, slug: &str) -> Arc<Site> {
        let mut shown = self.sites.write();
        let entry = shown.entry(slug.to_owned()).or_insert_with(|| {
            let base_path = self.place.base_path(project, slug);
            let serving = Serving { base_path, identity_cache: CACHE, asset_grace: ASSET_GRACE, ..Serving::default() };
            PreviewSite { project: project.to_owned(), site: Site::new(serving) }
        });
        Arc::clone(&entry.site)
    }

    /// Removes the site at this address. Responses in progress are sent to the end.
    pub(super) fn take_away(&self, slug: &str) {
        self.sites.write().remove(slug);
    }

    pub(super) fn sweep(&self) {
        for project in self.projects.keys() {
            if self.queue.is_closed() {
                return;
            }
            self.sweep_project(project);
        }
        for shown in self.sites.read().values() {
            shown.site.release_expired_versions();
        }
    }

    pub(super) fn sweep_project(&self, project: &str) {
        let Some(PreviewProject { git, .. }) = self.projects.get(project) else { return };
        if let Err(error) = self.try_sweep(project, git) {
            tracing::error!("{}", ErrorChain(&error));
        }
    }

    fn try_sweep(&self, project: &str, git: &Git) -> Result<(), DatabaseError> {
        if !self.db.read(|connection| rows::has_previews(connection, project))? {
            return Ok(());
        }
        let seen = now_unix_millis();
        let branches: BTreeSet<String> = match git::branches(git, &self.asking) {
            Ok(branches) => branches.into_keys().collect(),
            Err(error) => {
                tracing::warn!("{}; all previews of {project} stay", ErrorChain(&error));
                return Ok(());
            }
        };
        if branches.is_empty() {
            // It is more likely being set up again than without its last branch.
            tracing::warn!("the repository of {project} has no branch at all; its previews stay");
            return Ok(());
        }
        let of = project.to_owned();
        let gone = self.db.run_writer(move |transaction| rows::sweep(transaction, &of, &branches, seen))?;
        for preview in gone {
            tracing::info!(
                "preview {}: the branch {} of {project} is gone, and so is it",
                preview.slug,
                preview.branch
            );
            self.take_away(&preview.slug);
            if let Some((_, id)) = preview.shown {
                self.store.remove(&id);
            }
        }
        Ok(())
    }
}
