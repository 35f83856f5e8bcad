//! Where the versions of previews lie: in a folder of the origin's state that nobody else writes to.
//!
//! ```text
//! lock               flock: one process
//! work/<id>/         a deployment that is being built; emptied at a start
//! work.of-…/         what could not be removed then
//! <id>/              what it has made, as the store keeps versions: site.zip and index, 0444
//! ```
//!
//! A version is whole and durable before its folder gets that name, and has it before any row names it. What no row names
//! is removed at a start.

// Other users may write here: what is reached by path may lead elsewhere by then. See `base/directory`.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use docwharf_base::chain::Chain;
use docwharf_base::directory::{Directory, Entry, EntryKind};
use docwharf_base::durable::{self, Lock};
use docwharf_base::model::units::unix_seconds;
use docwharf_base::model::version::VersionId;
use docwharf_site::seal::{self, Effort, Proven, SealError, Sealing};
use docwharf_site::index::Index;
use docwharf_site::mapping;
use docwharf_site::sealed::Sealed;
use docwharf_agent::store::{IMAGE, INDEX};

use super::super::leftover::set_aside;

/// How long another process may still be ending.
const PATIENCE: Duration = Duration::from_secs(10);
/// The folder of what is being built.
const WORK: &str = "work";
/// In the folder of a deployment that is being built: what it is built of.
const SOURCE: &str = "source";
/// Beside it: image and index.
const VERSION: &str = "version";

/// Why the folder does not do what is asked.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// A file or folder.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Another process works there.
    #[error("another origin uses {}; end it, or give this one a state of its own", .0.display())]
    Taken(PathBuf),
    /// A version is damaged, and its content not known from elsewhere.
    #[error("the version in {} is damaged; deploy its branch again", path.display())]
    Damaged {
        /// Its folder.
        path: PathBuf,
        /// What is wrong with it, if it is not merely another one.
        #[source]
        source: Option<SealError>,
    },
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ShelfError {
    let path = path.to_owned();
    move |source| ShelfError::Io { doing, path, source }
}

/// The folder.
#[derive(Debug)]
pub(super) struct Shelf {
    folder: PathBuf,
    /// The same, open. Builds may run as another user who passes through it.
    directory: Directory,
    _lock: Lock,
}

/// Where a deployment is being built; empty when it begins, and gone when it ends.
#[derive(Debug)]
pub(super) struct Bench {
    work: Directory,
    id: String,
    directory: Directory,
}

impl Bench {
    /// For the checkout and what is built of it.
    pub(super) fn source(&self) -> PathBuf {
        self.directory.path().join(SOURCE)
    }

    /// For the image.
    pub(super) fn version(&self) -> PathBuf {
        self.directory.path().join(VERSION)
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Err(error) = self.work.remove_all_if_there(&self.id) {
            let path = self.directory.path().display();
            tracing::warn!("cannot remove {path}: {error}; it is removed at the next start");
        }
    }
}

impl Shelf {
    /// Takes the folder, making it if need be.
    pub(super) fn open(folder: PathBuf) -> Result<Shelf, ShelfError> {
        // Builds may run as another user: they pass through to their own, and find no other.
        #[allow(clippy::disallowed_methods)] // below the state, which is the operator's
        let made = DirBuilder::new().recursive(true).mode(0o711).create(&folder);
        made.map_err(io_error("make", &folder))?;
        if let Some(parent) = folder.parent().filter(|parent| *parent != Path::new("")) {
            // What is on disk in it is not if it is not there itself.
            durable::sync_dir(parent).map_err(io_error("sync", parent))?;
        }
        let directory = Directory::open_unlinked(&folder).map_err(io_error("open", &folder))?;
        let taken = Lock::take_in(&directory, "lock", PATIENCE).map_err(io_error("lock", &folder.join("lock")))?;
        let Some(taken) = taken else { return Err(ShelfError::Taken(folder)) };
        Ok(Shelf { folder, directory, _lock: taken })
    }

    /// Removes what an earlier process has left: all work, and each version but those of these deployments. What cannot be
    /// removed keeps nobody from showing the rest.
    pub(super) fn clear(&self, needed: &BTreeSet<&str>) -> Result<(), ShelfError> {
        set_aside(&self.directory, WORK);
        let is_work = |name: &str| name.split_once('.').is_some_and(|(first, _)| first == WORK);
        for entry in self.directory.entries().map_err(io_error("read", &self.folder))? {
            let Entry { name, kind } = entry.map_err(io_error("read", &self.folder))?;
            let is_left = name.to_str().is_some_and(|name| needed.contains(name) || is_work(name));
            if kind != EntryKind::Directory || is_left {
                continue;
            }
            if let Err(error) = self.directory.remove_all_if_there(&name) {
                let path = self.folder.join(&name);
                tracing::warn!("cannot remove {}: {error}; it is tried again at the next start", path.display());
            }
        }
        Ok(())
    }

    /// A place to work on a deployment.
    pub(super) fn bench(&self, id: &str) -> Result<Bench, ShelfError> {
        let path = self.folder.join(WORK).join(id);
        let make = || -> io::Result<Bench> {
            let work = self.directory.ensure_directory(WORK, 0o711)?;
            let directory = work.create_directory(id, 0o711)?;
            let bench = Bench { work, id: id.to_owned(), directory };
            for (name, mode) in [(SOURCE, 0o711), (VERSION, 0o700)] {
                bench.directory.create_directory(name, mode)?;
            }
            Ok(bench)
        };
        make().map_err(io_error("make", &path))
    }

    /// Makes what was sealed on a bench the version of a deployment, and opens it. Files that the version `before` has as
    /// well keep their dates.
    pub(super) fn keep(
        &self,
        id: &str,
        bench: &Bench,
        sealing: Sealing,
        before: Option<&Sealed>,
    ) -> Result<Sealed, ShelfError> {
        let Sealing { mut proven, image, image_len, .. } = sealing;
        let from = bench.version();
        let path = from.join(IMAGE);
        let sealed_at = image.metadata().and_then(|metadata| metadata.modified()).map_err(io_error("read", &path))?;
        date(&mut proven, unix_seconds(sealed_at), before);
        let index = proven.index(image_len);
        let made = bench.directory.directory(VERSION).map_err(io_error("open", &from))?;
        write_sealed(&made, &index)?;
        image.set_permissions(Permissions::from_mode(0o444)).map_err(io_error("seal", &path))?;
        made.sync().map_err(io_error("sync", &from))?;
        let to = self.folder.join(id);
        bench.directory.rename(VERSION, &self.directory, id).map_err(io_error("move into place", &to))?;
        self.directory.sync().map_err(io_error("sync", &self.folder))?;
        let index =
            Index::decode(index, image_len, proven.id).map_err(io::Error::other).map_err(io_error("open", &to))?;
        let image = mapping::map(image, proven.id).map_err(io_error("map", &to))?;
        Ok(Sealed::new(proven.id, image, index))
    }

    /// Opens the version of a deployment. With an index that does not match, the image is proved again.
    pub(super) fn open_version(&self, id: &str, version: VersionId, effort: &Effort) -> Result<Sealed, ShelfError> {
        let dir = self.folder.join(id);
        let path = dir.join(IMAGE);
        let shelved = self.directory.directory(id).map_err(io_error("open", &dir))?;
        let image = shelved.file(IMAGE).map_err(io_error("open", &path))?;
        let metadata = image.metadata().map_err(io_error("look at", &path))?;
        let stored = shelved.file(INDEX).and_then(|index| mapping::map_index(index, version)).unwrap_or_default();
        let known = Index::decode(stored.clone(), metadata.len(), version).ok();
        let index = if let Some(index) = known {
            index
        } else {
            let damaged = |source| ShelfError::Damaged { path: dir.clone(), source };
            let image = image.try_clone().map_err(io_error("open", &path))?;
            let proven = seal::verify_opened_image(image, &path, effort);
            let mut proven = proven.map_err(|error| damaged(Some(error)))?;
            if proven.id != version {
                return Err(damaged(None));
            }
            let modified = metadata.modified().map_err(io_error("look at", &path))?;
            date(&mut proven, unix_seconds(modified), None);
            let bytes = proven.index(metadata.len());
            Index::decode(bytes, metadata.len(), version).map_err(io::Error::other).map_err(io_error("open", &dir))?
        };
        // Made again, or of the format before. A cache: whoever cannot write it serves all the same.
        if stored != index.bytes()
            && let Err(error) = shelved.replace(INDEX, 0o444, index.bytes())
        {
            tracing::warn!("cannot write the index in {}: {error}", dir.display());
        }
        let image = mapping::map(image, version).map_err(io_error("map", &path))?;
        Ok(Sealed::new(version, image, index))
    }

    /// Removes the version of a deployment. Whoever is still sending from it does so to the end.
    pub(super) fn remove(&self, id: &str) {
        let path = self.folder.join(id);
        let removed = self.directory.remove_all(id).map_err(io_error("remove", &path));
        if let Err(error) = removed {
            tracing::warn!("{}; it is removed at the next start", Chain(&error));
        }
    }
}

/// Last-Modified: a file keeps its date as long as it keeps its content, and never has the date that another content had.
fn date(proven: &mut Proven, sealed_at: i64, before: Option<&Sealed>) {
    for (path, entry) in &mut proven.files {
        let other = before.and_then(|before| Some(before.entry(before.index().find(path.as_bytes())?)));
        entry.modified = match other {
            Some(other) if other.content == entry.content => other.modified,
            Some(other) if other.modified == sealed_at => sealed_at - 1,
            _ => sealed_at,
        };
    }
}

fn write_sealed(directory: &Directory, bytes: &[u8]) -> Result<(), ShelfError> {
    let written = directory.create_file(INDEX, 0o444).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(io_error("write", &directory.path().join(INDEX)))
}
