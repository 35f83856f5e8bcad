//! Sites of previews: which address serves which version, and which previews are removed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use docwharf_base::clock::now_unix_millis;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_serve::{Site, SiteSettings};

use super::super::database::DatabaseError;
use super::super::source::git::{self, GitSource};
use super::{PreviewError, PreviewProject, PreviewSite, PreviewState, rows};

/// Size of the cache of inflated files of each preview, in bytes.
const INFLATED_CACHE_BYTES: u64 = 4 << 20;
/// Time for which assets of a version stay available after its replacement, for pages that are still open.
const ASSET_GRACE: Duration = Duration::from_mins(10);

impl PreviewState {
    /// Opens the versions that previews serve, and removes those that no preview serves. A version that cannot be
    /// opened is logged and has to be deployed again; the others are served.
    pub(super) fn open_sites(&self) -> Result<(), PreviewError> {
        let previews = self.db.read(rows::list_previews)?;
        let served: BTreeSet<&str> =
            previews.iter().filter_map(|preview| preview.served.as_ref()).map(|(_, id)| id.as_str()).collect();
        self.store.remove_unused(&served)?;
        for preview in previews.iter().filter(|preview| self.projects.contains_key(&preview.project)) {
            let site = self.site_at(&preview.project, &preview.slug);
            let Some((version, id)) = &preview.served else { continue };
            match self.store.open_version(id, *version, &self.seal_options) {
                Ok(opened) => {
                    site.set_version(opened);
                    self.update_search(&preview.slug, *version, id);
                }
                Err(error) => {
                    tracing::error!("the preview of {} of {}: {}", preview.branch, preview.project, ErrorChain(&error));
                }
            }
        }
        Ok(())
    }

    /// Returns the site at this address; creates it if there is none. It belongs to one branch as long as that has a
    /// preview.
    pub(super) fn site_at(&self, project: &str, slug: &str) -> Arc<Site> {
        let mut sites = self.sites.write();
        let entry = sites.entry(slug.to_owned()).or_insert_with(|| {
            let base_path = self.location.base_path(project, slug);
            let settings = SiteSettings {
                base_path,
                identity_cache: INFLATED_CACHE_BYTES,
                asset_grace: ASSET_GRACE,
                is_unpublished: true,
                ..SiteSettings::default()
            };
            let base_path = settings.base_path.clone();
            let site = Site::new(settings);
            // Without ask and playground: a branch must not spend what the operator pays for, nor reach an API.
            site.set_assistant_settings(self.assistant.then(Arc::default));
            let search = self.search.as_ref().map(|search| search.attach(&site, &base_path, &self.store.work_folder()));
            PreviewSite { project: project.to_owned(), site, search }
        });
        Arc::clone(&entry.site)
    }

    /// Tells the search of a preview that its site serves the version of this deployment now.
    pub(super) fn update_search(&self, slug: &str, version: VersionId, deployment: &str) {
        let sites = self.sites.read();
        let Some(search) = sites.get(slug).and_then(|entry| entry.search.as_ref()) else { return };
        match self.store.open_image(deployment) {
            Ok(image) => search.update_version(version, image),
            Err(error) => tracing::warn!("preview {slug}: {}; it cannot be searched", ErrorChain(&error)),
        }
    }

    /// Removes the site at this address. Responses in progress are sent to the end.
    pub(super) fn remove_site(&self, slug: &str) {
        self.sites.write().remove(slug);
    }

    /// Removes the previews of deleted branches of all projects, and expired versions.
    pub(super) fn remove_deleted_branches(&self) {
        for project in self.projects.keys() {
            if self.queue.is_closed() {
                return;
            }
            self.remove_deleted_branches_of(project);
        }
        for entry in self.sites.read().values() {
            entry.site.release_expired_versions();
        }
    }

    /// Removes the previews of deleted branches of a project; logs a failure.
    pub(super) fn remove_deleted_branches_of(&self, project: &str) {
        let Some(PreviewProject { git, .. }) = self.projects.get(project) else { return };
        if let Err(error) = self.try_remove_deleted_branches(project, git) {
            tracing::error!("{}", ErrorChain(&error));
        }
    }

    fn try_remove_deleted_branches(&self, project: &str, git: &GitSource) -> Result<(), DatabaseError> {
        if !self.db.read(|connection| rows::has_previews(connection, project))? {
            return Ok(());
        }
        let listed_at = now_unix_millis();
        let branches: BTreeSet<String> = match git::list_branches(git, &self.branch_listing) {
            Ok(branches) => branches.into_keys().collect(),
            Err(error) => {
                tracing::warn!("{}; all previews of {project} stay", ErrorChain(&error));
                return Ok(());
            }
        };
        if branches.is_empty() {
            // More likely the repository is being set up again than its last branch was deleted.
            tracing::warn!("the repository of {project} has no branch at all; its previews stay");
            return Ok(());
        }
        let project_id = project.to_owned();
        let removed = self.db.write(move |transaction| {
            rows::delete_previews_without_branch(transaction, &project_id, &branches, listed_at)
        })?;
        for preview in removed {
            tracing::info!(
                "preview {}: removed, because the branch {} of {project} was deleted",
                preview.slug,
                preview.branch
            );
            self.remove_site(&preview.slug);
            if let Some((_, id)) = preview.served {
                self.store.remove(&id);
            }
        }
        Ok(())
    }
}
