//! Stores the versions of previews in a folder below the origin's state folder, to which no other program writes.
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
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

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

use super::super::stale_work::end_builds_and_remove_work_folder;
use super::super::state_folder::LOCK_TIMEOUT;

/// Folder for deployments that are being built.
const WORK_FOLDER: &str = "work";
/// Subfolder of a deployment's work folder: the checkout and its build.
const SOURCE_FOLDER: &str = "source";
/// Subfolder of a deployment's work folder: image and index.
const VERSION_FOLDER: &str = "version";

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
    #[error("another origin uses {}; stop that one, or set another store.path for this one", .0.display())]
    Locked(PathBuf),
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
    /// The open `folder`. Builds may run as another user, which can only traverse it.
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
        self.directory.path().join(SOURCE_FOLDER)
    }

    /// Returns the folder for the sealed version.
    pub(super) fn version(&self) -> PathBuf {
        self.directory.path().join(VERSION_FOLDER)
    }
}

impl Drop for DeploymentWorkspace {
    fn drop(&mut self) {
        if let Err(error) = self.work.remove_all_if_exists(&self.id) {
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
        let result = DirBuilder::new().recursive(true).mode(0o711).create(&folder);
        result.map_err(io_error("create", &folder))?;
        if let Some(parent) = folder.parent().filter(|parent| *parent != Path::new("")) {
            // Its content is durable only if its own entry is.
            durable::sync_dir(parent).map_err(io_error("sync", parent))?;
        }
        let directory = Directory::open_no_follow(&folder).map_err(io_error("open", &folder))?;
        let lock =
            FileLock::acquire_in(&directory, "lock", LOCK_TIMEOUT).map_err(io_error("lock", &folder.join("lock")))?;
        let Some(lock) = lock else { return Err(PreviewStoreError::Locked(folder)) };
        Ok(PreviewStore { folder, directory, _lock: lock })
    }

    /// Removes leftovers of an earlier process: all work folders, and all versions except those of the deployments in
    /// `served`. An entry that cannot be removed does not prevent the rest from being served.
    pub(super) fn remove_unused(&self, served: &BTreeSet<&str>) -> Result<(), PreviewStoreError> {
        end_builds_and_remove_work_folder(&self.directory, WORK_FOLDER);
        let is_work_folder = |name: &str| name.split_once('.').is_some_and(|(first, _)| first == WORK_FOLDER);
        for entry in self.directory.entries().map_err(io_error("read", &self.folder))? {
            let DirectoryEntry { name, kind } = entry.map_err(io_error("read", &self.folder))?;
            let is_kept = name.to_str().is_some_and(|name| served.contains(name) || is_work_folder(name));
            if kind != EntryKind::Directory || is_kept {
                continue;
            }
            if let Err(error) = self.directory.remove_all_if_exists(&name) {
                let path = self.folder.join(&name);
                tracing::warn!("cannot remove {}: {error}; the next start tries again", path.display());
            }
        }
        Ok(())
    }

    /// Creates the work folder of a deployment.
    pub(super) fn create_workspace(&self, id: &str) -> Result<DeploymentWorkspace, PreviewStoreError> {
        let path = self.folder.join(WORK_FOLDER).join(id);
        let create = || -> io::Result<DeploymentWorkspace> {
            let work = self.directory.ensure_directory(WORK_FOLDER, 0o711)?;
            let directory = work.create_directory(id, 0o711)?;
            let workspace = DeploymentWorkspace { work, id: id.to_owned(), directory };
            for (name, mode) in [(SOURCE_FOLDER, 0o711), (VERSION_FOLDER, 0o700)] {
                workspace.directory.create_directory(name, mode)?;
            }
            Ok(workspace)
        };
        create().map_err(io_error("create", &path))
    }

    /// Moves a sealed version from a work folder into place as the version of a deployment, and opens it. Files that
    /// the version `previous` has with the same content keep their dates.
    pub(super) fn store_version(
        &self,
        id: &str,
        workspace: &DeploymentWorkspace,
        sealed: SealedBundle,
        previous: Option<&SealedVersion>,
    ) -> Result<SealedVersion, PreviewStoreError> {
        let SealedBundle { mut verified, image, image_len, .. } = sealed;
        let from = workspace.version();
        let path = from.join(IMAGE);
        let sealed_at = image.metadata().and_then(|metadata| metadata.modified()).map_err(io_error("read", &path))?;
        set_file_dates(&mut verified, unix_seconds(sealed_at), previous);
        let index = verified.encode_index(image_len);
        let version_folder = workspace.directory.open_directory(VERSION_FOLDER).map_err(io_error("open", &from))?;
        write_index(&version_folder, &index)?;
        image.set_permissions(Permissions::from_mode(0o444)).map_err(io_error("seal", &path))?;
        version_folder.sync().map_err(io_error("sync", &from))?;
        let to = self.folder.join(id);
        workspace.directory.rename(VERSION_FOLDER, &self.directory, id).map_err(io_error("move into place", &to))?;
        self.directory.sync().map_err(io_error("sync", &self.folder))?;
        let index = ImageIndex::decode(index, image_len, verified.id)
            .map_err(io::Error::other)
            .map_err(io_error("open", &to))?;
        let image = mapping::map_image(image).map_err(io_error("map", &to))?;
        Ok(SealedVersion::new(verified.id, image, index))
    }

    /// Opens the version of a deployment. If its index does not match, the image is verified again.
    pub(super) fn open_version(
        &self,
        id: &str,
        version: VersionId,
        seal_options: &SealOptions,
    ) -> Result<SealedVersion, PreviewStoreError> {
        let dir = self.folder.join(id);
        let path = dir.join(IMAGE);
        let version_folder = self.directory.open_directory(id).map_err(io_error("open", &dir))?;
        let image = SealedFile::open(&version_folder, IMAGE, version).map_err(io_error("open", &path))?;
        let metadata = image.metadata().map_err(io_error("read the metadata of", &path))?;
        let stored = SealedFile::open(&version_folder, INDEX, version);
        let stored = stored.and_then(|index| mapping::map_index(&index)).unwrap_or_default();
        let decoded_index = ImageIndex::decode(stored.clone(), metadata.len(), version).ok();
        let index = if let Some(index) = decoded_index {
            index
        } else {
            let damaged = |source| PreviewStoreError::Damaged { path: dir.clone(), source };
            let image = image.try_clone().map_err(io_error("open", &path))?;
            let verified = seal::verify_opened_image(image, &path, seal_options);
            let mut verified = verified.map_err(|error| damaged(Some(error)))?;
            if verified.id != version {
                return Err(damaged(None));
            }
            let modified = metadata.modified().map_err(io_error("read the metadata of", &path))?;
            set_file_dates(&mut verified, unix_seconds(modified), None);
            let bytes = verified.encode_index(metadata.len());
            ImageIndex::decode(bytes, metadata.len(), version)
                .map_err(io::Error::other)
                .map_err(io_error("open", &dir))?
        };
        // The index was created again, or had an older format. It is a cache: if it cannot be written, the version is
        // served nevertheless.
        if stored != index.bytes()
            && let Err(error) = version_folder.replace(INDEX, 0o444, index.bytes())
        {
            tracing::warn!("cannot write the index in {}: {error}", dir.display());
        }
        let image = mapping::map_image(image).map_err(io_error("map", &path))?;
        Ok(SealedVersion::new(version, image, index))
    }

    /// Opens the image of a deployment's version, for a process that reads it.
    pub(super) fn open_image(&self, id: &str) -> Result<File, PreviewStoreError> {
        let path = Path::new(id).join(IMAGE);
        self.directory.open_for_reading(&path).map_err(io_error("open", &self.folder.join(&path)))
    }

    /// Returns the path of the folder for temporary files, which is removed at a start.
    pub(super) fn work_folder(&self) -> PathBuf {
        self.folder.join(WORK_FOLDER)
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

/// Sets the dates for `Last-Modified`. A file keeps its date while its content is unchanged, and never has the date of
/// a previous version with other content.
fn set_file_dates(verified: &mut VerifiedBundle, sealed_at: i64, previous: Option<&SealedVersion>) {
    for (path, entry) in &mut verified.files {
        let previous_entry =
            previous.and_then(|previous| Some(previous.entry(previous.index().find(path.as_bytes())?)));
        entry.modified = match previous_entry {
            Some(previous_entry) if previous_entry.content == entry.content => previous_entry.modified,
            Some(previous_entry) if previous_entry.modified == sealed_at => sealed_at - 1,
            _ => sealed_at,
        };
    }
}

fn write_index(directory: &Directory, bytes: &[u8]) -> Result<(), PreviewStoreError> {
    let written = directory.create_file(INDEX, 0o444).and_then(|mut file| {
        file.write_all(bytes)?;
        file.sync_all()
    });
    written.map_err(io_error("write", &directory.path().join(INDEX)))
}
