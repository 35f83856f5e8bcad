//! Some pages of a site, with everything that is no page: styles, scripts, images, whatever they may need.

// Other users may write here: what is reached by path may lead elsewhere by then. See `base/directory`.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use docwharf_base::directory::Directory;
use docwharf_site::bundle::ReadError;
use docwharf_site::bundle::flavor::Flavor;
use docwharf_site::bundle::folder::{Folder, Item};
use docwharf_base::model::limits::Limits;
use docwharf_base::model::site_path::is_page;

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
    let site_path = |item: &Item| {
        flavor.as_ref().and_then(|flavor| flavor.site_path(&item.path)).map(|path| path.as_bytes().to_vec())
    };
    let mut wanted: BTreeSet<Vec<u8>> = BTreeSet::from([b"404.html".to_vec()]);
    let all: BTreeSet<Vec<u8>> = folder.items.iter().filter_map(site_path).collect();
    for page in pages {
        let found =
            candidates(page).into_iter().map(String::into_bytes).find(|path| all.contains(path) && is_page(path));
        wanted.insert(found.ok_or_else(|| SubsetError::NoPage(page.clone()))?);
    }
    let target = Directory::open_unlinked(to).map_err(copy_error(to))?;
    for item in &folder.items {
        let Some(path) = site_path(item) else { continue };
        if is_page(&path) && !wanted.contains(&path) {
            continue;
        }
        copy_file(&folder, item, &target)?;
    }
    Ok(())
}

fn copy_file(folder: &Folder, item: &Item, to: &Directory) -> Result<(), SubsetError> {
    let path = Path::new(OsStr::from_bytes(item.path.as_bytes()));
    let shown = to.path().join(path);
    let mut parent = to.clone();
    for name in path.parent().into_iter().flat_map(Path::iter) {
        parent = parent.ensure_directory(name, 0o777).map_err(copy_error(&shown))?;
    }
    let name = path.file_name().unwrap_or_default();
    let mut file = parent.create_file(name, 0o666).map_err(copy_error(&shown))?;
    folder.read(item, &mut |piece| file.write_all(piece).map_err(ReadError::Sink)).map_err(|error| match error {
        ReadError::Sink(source) => copy_error(&shown)(source),
        other => other.into(),
    })?;
    Ok(())
}

fn copy_error(path: &Path) -> impl FnOnce(io::Error) -> SubsetError {
    let path = path.to_owned();
    move |source| SubsetError::Copy { path, source }
}
