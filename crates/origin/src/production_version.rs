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
use docwharf_site::seal::{self, ImageSpace, SealError, SealOptions, SealProgress};
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
pub(super) fn production_finder(exports: Arc<ExportJobs>, space: PathBuf, effort: SealOptions) -> previews::Production {
    let sealed: Mutex<HashMap<String, (PathBuf, Arc<SealedVersion>)>> = Mutex::default();
    Arc::new(move |project| {
        let bundle = exports.newest(project).ok().flatten()?;
        let mut sealed = sealed.lock();
        if let Some((_, known)) = sealed.get(project).filter(|(path, _)| *path == bundle) {
            return Some(Arc::clone(known));
        }
        match seal_bundle(&bundle, &space, &effort) {
            Ok(version) => {
                let version = Arc::new(version);
                sealed.insert(project.to_owned(), (bundle, Arc::clone(&version)));
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
fn seal_bundle(bundle: &Path, space: &Path, effort: &SealOptions) -> Result<SealedVersion, ProductionError> {
    let space = ImageSpace::Unlinked(space.to_owned());
    let seal::SealedBundle { proven, image, image_len, .. } =
        seal::seal(bundle, &space, effort, &SealProgress::default())?;
    let index = ImageIndex::decode(proven.index(image_len), image_len, proven.id).map_err(io::Error::other)?;
    Ok(SealedVersion::new(proven.id, mapping::map_image(image)?, index))
}
