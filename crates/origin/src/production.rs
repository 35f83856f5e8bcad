//! The production version of a project, as far as this origin knows: the newest bundle of the whole site. It is sealed
//! when a preview is first compared with it.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use docwharf_base::chain::Chain;
use docwharf_site::seal::{self, Effort, Meter, SealError, Space};
use docwharf_site::index::Index;
use docwharf_site::mapping;
use docwharf_site::sealed::Sealed;

use super::exports::Exports;
use super::previews;

#[derive(Debug, thiserror::Error)]
enum NotSealed {
    #[error(transparent)]
    Seal(#[from] SealError),
    #[error("cannot open the sealed version")]
    Open(#[from] io::Error),
}

/// Returns a function that finds the production version by the id of a project.
pub(super) fn production(exports: Arc<Exports>, space: PathBuf, effort: Effort) -> previews::Production {
    let sealed: Mutex<HashMap<String, (PathBuf, Arc<Sealed>)>> = Mutex::default();
    Arc::new(move |project| {
        let bundle = exports.newest(project).ok().flatten()?;
        let mut sealed = sealed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, known)) = sealed.get(project).filter(|(path, _)| *path == bundle) {
            return Some(Arc::clone(known));
        }
        match open(&bundle, &space, &effort) {
            Ok(version) => {
                let version = Arc::new(version);
                sealed.insert(project.to_owned(), (bundle, Arc::clone(&version)));
                Some(version)
            }
            Err(error) => {
                // A preview does not fail without a production version; only the comparison is left out.
                tracing::warn!("cannot compare a preview with {}: {}", bundle.display(), Chain(&error));
                None
            }
        }
    })
}

/// Seals a bundle into a file without a name, which the kernel removes when it is no longer mapped.
fn open(bundle: &Path, space: &Path, effort: &Effort) -> Result<Sealed, NotSealed> {
    let space = Space::Unlinked(space.to_owned());
    let seal::Sealing { proven, image, image_len, .. } = seal::seal(bundle, &space, effort, &Meter::default())?;
    let index = Index::decode(proven.index(image_len), image_len, proven.id).map_err(io::Error::other)?;
    Ok(Sealed::new(proven.id, mapping::map(image, proven.id)?, index))
}
