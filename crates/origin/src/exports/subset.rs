//! Copies some pages of a site with everything that is not a page: styles, scripts, images and whatever else they may
//! need.

// Other users may write here, so a path may lead elsewhere at its next use. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use docwharf_base::directory::Directory;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::site_path::is_page;
use docwharf_site::bundle::BundleReadError;
use docwharf_site::bundle::folder::{FolderFile, FolderReader};
use docwharf_site::bundle::site_layout::SiteLayout;

/// Reason why a part of a site cannot be copied.
#[derive(Debug, thiserror::Error)]
pub(super) enum SubsetError {
    #[error(transparent)]
    Read(#[from] BundleReadError),
    #[error("{0}: there is no such page; remove it from paths, or publish it")]
    NoPage(String),
    #[error("cannot copy {}", path.display())]
    Copy {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Returns the files that may be served at a page's address: `/guides/start` is `guides/start.html` or
/// `guides/start/index.html`.
fn page_file_candidates(address: &str) -> [String; 3] {
    let path = address.trim_matches('/');
    match path {
        "" => ["index.html".to_owned(), "index.htm".to_owned(), String::new()],
        _ => [format!("{path}.html"), format!("{path}/index.html"), path.to_owned()],
    }
}

/// Copies these pages, and everything that is not a page, from the site in `from` into the empty folder `to`. The 404
/// page that the server uses is always copied: `404.html`, or else `404/index.html`.
pub(super) fn copy_pages(from: &Path, to: &Path, pages: &[String], limits: &BundleLimits) -> Result<(), SubsetError> {
    let folder = FolderReader::open(from, limits)?;
    let site_layout = SiteLayout::detect(folder.files.iter().map(|item| &item.path)).ok();
    let site_path = |item: &FolderFile| {
        site_layout
            .as_ref()
            .and_then(|site_layout| site_layout.site_path(&item.path))
            .map(|path| path.as_bytes().to_vec())
    };
    let all_paths: BTreeSet<Vec<u8>> = folder.files.iter().filter_map(site_path).collect();
    let not_found = [&b"404.html"[..], b"404/index.html"].into_iter().find(|path| all_paths.contains(*path));
    let mut selected: BTreeSet<Vec<u8>> = not_found.map(<[u8]>::to_vec).into_iter().collect();
    for page in pages {
        let path = page_file_candidates(page)
            .into_iter()
            .map(String::into_bytes)
            .find(|path| all_paths.contains(path) && is_page(path));
        selected.insert(path.ok_or_else(|| SubsetError::NoPage(page.clone()))?);
    }
    let target = Directory::open_no_follow(to).map_err(copy_error(to))?;
    for item in &folder.files {
        let Some(path) = site_path(item) else { continue };
        if is_page(&path) && !selected.contains(&path) {
            continue;
        }
        copy_file(&folder, item, &target)?;
    }
    Ok(())
}

fn copy_file(folder: &FolderReader, item: &FolderFile, to: &Directory) -> Result<(), SubsetError> {
    let path = Path::new(OsStr::from_bytes(item.path.as_bytes()));
    let target_path = to.path().join(path);
    let mut parent = to.clone();
    for name in path.parent().into_iter().flat_map(Path::iter) {
        parent = parent.ensure_directory(name, 0o777).map_err(copy_error(&target_path))?;
    }
    let name = path.file_name().unwrap_or_default();
    let mut file = parent.create_file(name, 0o666).map_err(copy_error(&target_path))?;
    folder.read_file(item, &mut |piece| file.write_all(piece).map_err(BundleReadError::Sink)).map_err(|error| {
        match error {
            BundleReadError::Sink(source) => copy_error(&target_path)(source),
            other => other.into(),
        }
    })?;
    Ok(())
}

fn copy_error(path: &Path) -> impl FnOnce(io::Error) -> SubsetError {
    let path = path.to_owned();
    move |source| SubsetError::Copy { path, source }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // folders that only this test uses
mod tests {
    use std::fs;

    use super::*;

    /// Copies these pages of a small site, and returns the names of the copied files.
    fn copy(pages: &[&str]) -> Result<Vec<String>, String> {
        let files = ["404.html", "a.css", "guides.html", "guides/index.html", "guides/start.html", "index.html"];
        copy_of(&files, pages)
    }

    /// Copies these pages of a site with these files, and returns the names of the copied files.
    fn copy_of(files: &[&str], pages: &[&str]) -> Result<Vec<String>, String> {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for name in files {
            let path = from.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        fs::create_dir(&to).unwrap();
        let pages: Vec<String> = pages.iter().map(|page| (*page).to_owned()).collect();
        let limits = BundleLimits::default();
        copy_pages(&from, &to, &pages, &limits).map_err(|error| error.to_string())?;
        let copied = FolderReader::open(&to, &limits).unwrap();
        let mut names: Vec<String> =
            copied.files.iter().map(|item| String::from_utf8(item.path.as_bytes().to_vec()).unwrap()).collect();
        names.sort();
        Ok(names)
    }

    #[test]
    fn a_subset_export_contains_requested_pages_the_404_page_and_all_non_page_files() {
        for (pages, expected) in [
            (&["/"][..], &["404.html", "a.css", "index.html"][..]),
            (&["/guides"], &["404.html", "a.css", "guides.html"]),
            (&["/guides/"], &["404.html", "a.css", "guides.html"]),
            (&["/guides/index"], &["404.html", "a.css", "guides/index.html"]),
            (&["/guides/start.html", "/"], &["404.html", "a.css", "guides/start.html", "index.html"]),
        ] {
            assert_eq!(copy(pages).unwrap(), expected, "{pages:?}");
        }
        for absent in ["/a.css", "/nowhere", "/guides/start/more"] {
            let message = format!("{absent}: there is no such page; remove it from paths, or publish it");
            assert_eq!(copy(&["/", absent]), Err(message));
        }
    }

    // Regression: a 404 page at `404/index.html` was not copied, although the server would use it.
    #[test]
    fn a_subset_export_contains_the_404_page_that_the_server_uses() {
        for (files, expected) in [
            (&["404/index.html", "index.html", "other.html"][..], &["404/index.html", "index.html"][..]),
            (&["404.html", "404/index.html", "index.html"], &["404.html", "index.html"]),
            (&["site/404/index.html", "site/index.html", "site/b.html"], &["site/404/index.html", "site/index.html"]),
            (&["index.html", "other.html"], &["index.html"]),
        ] {
            assert_eq!(copy_of(files, &["/"]).unwrap(), expected, "{files:?}");
        }
    }
}
