//! Some pages of a site, with everything that is no page: styles, scripts, images, whatever they may need.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::bundle::ReadError;
use crate::bundle::flavor::Flavor;
use crate::bundle::folder::Folder;
use crate::model::limits::Limits;
use crate::model::site_path::is_page;

/// Why there is no such part of a site.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubsetError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error("{0}: there is no such page; leave it out of paths, or publish it")]
    NoPage(String),
    #[error("cannot copy {}", path.display())]
    Copy {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The files that may answer for a page's address: `/guides/start` is `guides/start.html` or `guides/start/index.html`.
fn candidates(address: &str) -> [String; 3] {
    let bare = address.trim_matches('/');
    match bare {
        "" => ["index.html".to_owned(), "index.htm".to_owned(), String::new()],
        _ => [format!("{bare}.html"), format!("{bare}/index.html"), bare.to_owned()],
    }
}

/// Copies from the site in `from` these pages and what is no page into the empty folder `to`. The page that answers for
/// missing ones comes along.
pub(super) fn copy(from: &Path, to: &Path, pages: &[String], limits: &Limits) -> Result<(), SubsetError> {
    let folder = Folder::open(from, limits)?;
    let flavor = Flavor::of(folder.items.iter().map(|item| &item.path)).ok();
    let site_path = |item: &crate::bundle::folder::Item| {
        flavor.as_ref().and_then(|flavor| flavor.site_path(&item.path)).map(|path| path.as_bytes().to_vec())
    };
    let mut wanted: BTreeSet<Vec<u8>> = BTreeSet::from([b"404.html".to_vec()]);
    let all: BTreeSet<Vec<u8>> = folder.items.iter().filter_map(site_path).collect();
    for page in pages {
        let found =
            candidates(page).into_iter().map(String::into_bytes).find(|path| all.contains(path) && is_page(path));
        wanted.insert(found.ok_or_else(|| SubsetError::NoPage(page.clone()))?);
    }
    for item in &folder.items {
        let Some(path) = site_path(item) else { continue };
        if is_page(&path) && !wanted.contains(&path) {
            continue;
        }
        let target = to.join(OsStr::from_bytes(item.path.as_bytes()));
        let failed = |source| SubsetError::Copy { path: item.file.clone(), source };
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent).map_err(failed)?;
        }
        std::fs::copy(&item.file, &target).map_err(failed)?;
    }
    Ok(())
}
