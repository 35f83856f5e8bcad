//! The production version of a project, as far as this origin knows: the newest bundle of the whole site. It is sealed
//! when a preview is first compared with it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use docwharf_base::error_chain::ErrorChain;
use docwharf_base::locks::Mutex;
use docwharf_site::index::ImageIndex;
use docwharf_site::mapping;
use docwharf_site::seal::{self, ImageTarget, SealError, SealOptions, SealProgress};
use docwharf_site::sealed_version::SealedVersion;

use super::exports::ExportJobs;
use super::previews;

#[derive(Debug, thiserror::Error)]
enum ProductionError {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("cannot open the sealed version")]
    Open(#[from] io::Error),
}

/// Returns a function that finds the production version by the id of a project.
pub(super) fn production_finder(
    export_jobs: Arc<ExportJobs>,
    image_folder: PathBuf,
    seal_options: SealOptions,
) -> previews::ProductionFinder {
    let sealed_versions: Mutex<HashMap<String, (PathBuf, Arc<SealedVersion>)>> = Mutex::default();
    Arc::new(move |project| {
        let bundle = export_jobs.newest_bundle(project).ok().flatten()?;
        let mut sealed_versions = sealed_versions.lock();
        if let Some((_, version)) = sealed_versions.get(project).filter(|(path, _)| *path == bundle) {
            return Some(Arc::clone(version));
        }
        match seal_bundle(&bundle, &image_folder, &seal_options) {
            Ok(version) => {
                let version = Arc::new(version);
                sealed_versions.insert(project.to_owned(), (bundle, Arc::clone(&version)));
                Some(version)
            }
            Err(error) => {
                // A preview does not fail without a production version; only the comparison is left out.
                tracing::warn!("cannot compare a preview with {}: {}", bundle.display(), ErrorChain(&error));
                None
            }
        }
    })
}

/// Seals a bundle into a file without a name, which the kernel removes when it is no longer mapped.
fn seal_bundle(
    bundle: &Path,
    image_folder: &Path,
    seal_options: &SealOptions,
) -> Result<SealedVersion, ProductionError> {
    let target = ImageTarget::Unlinked(image_folder.to_owned());
    let seal::SealedBundle { verified, image, image_len, .. } =
        seal::seal(bundle, &target, seal_options, &SealProgress::default())?;
    let index =
        ImageIndex::decode(verified.encode_index(image_len), image_len, verified.id).map_err(io::Error::other)?;
    Ok(SealedVersion::new(verified.id, mapping::map_image(image)?, index))
}
