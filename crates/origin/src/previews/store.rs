//! Stores the versions of previews in a folder of the origin's state that no other program writes to.
//!
//! ```text
//! lock               flock: one process
//! work/<id>/         a deployment that is being built; emptied at a start
//! work.of-…/         work that could not be removed at a start
//! <id>/              its version, in the format of the store: site.zip and index, 0444
//! ```
//!
//! A version is complete and durable before its folder gets that name, and has the name before any row names it. A
//! start removes versions that no row names.

// Other users may write here, so a path may lead elsewhere at its next use. See `docwharf_base::directory`.
#![deny(clippy::disallowed_methods)]

use std::collections::BTreeSet;
use std::fs::{DirBuilder, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use docwharf_agent::store::{IMAGE, INDEX};
use docwharf_base::clock::unix_seconds;
use docwharf_base::directory::{Directory, DirectoryEntry, EntryKind};
use docwharf_base::durable::{self, FileLock};
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::version::VersionId;
use docwharf_site::index::ImageIndex;
use docwharf_site::mapping::{self, SealedFile};
use docwharf_site::seal::{self, SealError, SealOptions, SealedBundle, VerifiedBundle};
use docwharf_site::sealed_version::SealedVersion;

use super::super::stale_work::remove_work_folder;

/// Time that another process may take to end and release the lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// Folder for deployments that are being built.
const WORK: &str = "work";
/// Subfolder of a deployment's work folder: the checkout and its build.
const SOURCE: &str = "source";
/// Subfolder of a deployment's work folder: image and index.
const VERSION: &str = "version";

/// Reason why an operation on stored previews failed.
#[derive(Debug, thiserror::Error)]
pub enum PreviewStoreError {
    /// A file or folder cannot be used.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Another process holds the lock.
    #[error("another origin uses {}; end it, or give this one a state of its own", .0.display())]
    Taken(PathBuf),
    /// A version is damaged; its branch has to be deployed again.
    #[error("the version in {} is damaged; deploy its branch again", path.display())]
    Damaged {
        /// Its folder.
        path: PathBuf,
        /// The damage; `None` if the image is intact but holds another version.
        #[source]
        source: Option<SealError>,
    },
}

fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PreviewStoreError {
    let path = path.to_owned();
    move |source| PreviewStoreError::Io { doing, path, source }
}

/// The folder with the versions of previews.
#[derive(Debug)]
pub(super) struct PreviewStore {
    folder: PathBuf,
    /// The open `folder`. Builds may run as another user, who only traverses it.
    directory: Directory,
    _lock: FileLock,
}

/// Work folder of a deployment; empty when the deployment begins, removed when this value is dropped.
#[derive(Debug)]
pub(super) struct DeploymentWorkspace {
    work: Directory,
    id: String,
    directory: Directory,
}

impl DeploymentWorkspace {
    /// Returns the folder for the checkout and its build.
    pub(super) fn source(&self) -> PathBuf {
        self.directory.path().join(SOURCE)
    }

    /// Returns the folder for the sealed version.
    pub(super) fn version(&self) -> PathBuf {
        self.directory.path().join(VERSION)
    }
}

impl Drop for DeploymentWorkspace {
    fn drop(&mut self) {
        if let Err(error) = self.work.remove_all_if_there(&self.id) {
            let path = self.directory.path().display();
            tracing::warn!("cannot remove {path}: {error}; it is removed at the next start");
        }
    }
}

impl PreviewStore {
    /// Opens and locks the folder, and creates it if needed.
    pub(super) fn open(folder: PathBuf) -> Result<PreviewStore, PreviewStoreError> {
        // Mode 0711: builds that run as another user can reach their own folder, but cannot list this one.
        #[allow(clippy::disallowed_methods)] // below the state folder, which belongs to the operator
        let made = DirBuilder::new().recursive(true).mode(0o711).create(&folder);
        made.map_err(io_error("make", &folder))?;
        if let Some(parent) = folder.parent().filter(|parent| *parent != Path::new("")) {
            // Its content is durable only if its own entry is.
            durable::sync_dir(parent).map_err(io_error("sync", parent))?;
        }
        let directory = Directory::open_unlinked(&folder).map_err(io_error("open", &folder))?;
        let taken =
            FileLock::acquire_in(&directory, "lock", LOCK_TIMEOUT).map_err(io_error("lock", &folder.join("lock")))?;
        let Some(taken) = taken else { return Err(PreviewStoreError::Taken(folder)) };
        Ok(PreviewStore { folder, directory, _lock: taken })
    }

    /// Removes leftovers of an earlier process: all work folders, and all versions except those of the deployments in
    /// `needed`. An entry that cannot be removed does not prevent the rest from being served.
    pub(super) fn clear(&self, needed: &BTreeSet<&str>) -> Result<(), PreviewStoreError> {
        remove_work_folder(&self.directory, WORK);
        let is_work = |name: &str| name.split_once('.').is_some_and(|(first, _)| first == WORK);
        for entry in self.directory.entries().map_err(io_error("read", &self.folder))? {
            let DirectoryEntry { name, kind } = entry.map_err(io_error("read", &self.folder))?;
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

    /// Creates the work folder of a deployment.
    pub(super) fn create_workspace(&self, id: &str) -> Result<DeploymentWorkspace, PreviewStoreError> {
        let path = self.folder.join(WORK).join(id);
        let make = || -> io::Result<DeploymentWorkspace> {
            let work = self.directory.ensure_directory(WORK, 0o711)?;
            let directory = work.create_directory(id, 0o711)?;
            let bench = DeploymentWorkspace { work, id: id.to_owned(), directory };
            for (name, mode) in [(SOURCE, 0o711), (VERSION, 0o700)] {
                bench.directory.create_directory(name, mode)?;
            }
            Ok(bench)
        };
        make().map_err(io_error("make", &path))
    }

    /// Moves what was sealed in a work folder into place as the version of a deployment, and opens it. Files that the
    /// version `before` has with the same content keep their dates.
    pub(super) fn store_version(
        &self,
        id: &str,
        bench: &DeploymentWorkspace,
        sealing: SealedBundle,
        before: Option<&SealedVersion>,
    ) -> Result<SealedVersion, PreviewStoreError> {
        let SealedBundle { mut proven, image, image_len, .. } = sealing;
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
            ImageIndex::decode(index, image_len, proven.id).map_err(io::Error::other).map_err(io_error("open", &to))?;
        let image = mapping::map_image(image).map_err(io_error("map", &to))?;
        Ok(SealedVersion::new(proven.id, image, index))
    }

    /// Opens the version of a deployment. If its index does not match, the image is verified again.
    pub(super) fn open_version(
        &self,
        id: &str,
        version: VersionId,
        effort: &SealOptions,
    ) -> Result<SealedVersion, PreviewStoreError> {
        let dir = self.folder.join(id);
        let path = dir.join(IMAGE);
        let shelved = self.directory.directory(id).map_err(io_error("open", &dir))?;
        let image = SealedFile::open(&shelved, IMAGE, version).map_err(io_error("open", &path))?;
        let metadata = image.metadata().map_err(io_error("look at", &path))?;
        let stored = SealedFile::open(&shelved, INDEX, version);
        let stored = stored.and_then(|index| mapping::map_index(&index)).unwrap_or_default();
        let known = ImageIndex::decode(stored.clone(), metadata.len(), version).ok();
        let index = if let Some(index) = known {
            index
        } else {
            let damaged = |source| PreviewStoreError::Damaged { path: dir.clone(), source };
            let image = image.try_clone().map_err(io_error("open", &path))?;
            let proven = seal::verify_opened_image(image, &path, effort);
            let mut proven = proven.map_err(|error| damaged(Some(error)))?;
            if proven.id != version {
                return Err(damaged(None));
            }
            let modified = metadata.modified().map_err(io_error("look at", &path))?;
            date(&mut proven, unix_seconds(modified), None);
            let bytes = proven.index(metadata.len());
            ImageIndex::decode(bytes, metadata.len(), version)
                .map_err(io::Error::other)
                .map_err(io_error("open", &dir))?
        };
        // The index was made again, or had an older format. It is a cache: if it cannot be written, the version is
        // served all the same.
        if stored != index.bytes()
            && let Err(error) = shelved.replace(INDEX, 0o444, index.bytes())
        {
            tracing::warn!("cannot write the index in {}: {error}", dir.display());
        }
        let image = mapping::map_image(image).map_err(io_error("map", &path))?;
        Ok(SealedVersion::new(version, image, index))
    }

    /// Removes the version of a deployment. Responses in progress are sent to the end.
    pub(super) fn remove(&self, id: &str) {
        let path = self.folder.join(id);
        let removed = self.directory.remove_all(id).map_err(io_error("remove", &path));
        if let Err(error) = removed {
            tracing::warn!("{}; it is removed at the next start", ErrorChain(&error));
        }
    }
}

/// Sets the dates for `Last-Modified`: a file keeps its date as long as it keeps its content, and never has the date
/// that another content had.
fn date(proven: &mut VerifiedBundle, sealed_at: i64, before: Option<&SealedVersion>) {
    for (path, entry) in &mut proven.files {
        let other = before.and_then(|before| Some(before.entry(before.index().find(path.as_bytes())?)));
        entry.modified = match other {
            Some(other) if other.content == entry.content => other.modified,
            Some(other) if other.modified == sealed_at => sealed_at - 1,
            _ => sealed_at,
        };
    }
}

fn write_sealed(directory: &Directory, bytes: &[u8]) -> Result<(), PreviewStoreError> {
    let written = directory.create_file(INDEX, 0o444).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(io_error("write", &directory.path().join(INDEX)))
}
