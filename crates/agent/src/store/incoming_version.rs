//! Incoming versions: a version is written to a directory in `staging/` and becomes part of the store by one rename.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use docwharf_base::directory::{Directory, FileId, is_unsupported};
use docwharf_base::model::version::VersionId;
use docwharf_site::mapping::SealedFile;

use super::StoreError;
use super::layout::{IMAGE, INDEX};
use super::writer::StoreWriter;

/// A version that is being written, in a directory of its own in `staging/`. The directory is removed when this is
/// dropped.
///
/// If root writes to the store of another user, that user owns the directory from the beginning, so that the service
/// can remove it after a kill. That user may exchange names in it at any moment, so it is used through its descriptor
/// only.
#[derive(Debug)]
pub struct IncomingVersion {
    parent: Directory,
    name: String,
    directory: Directory,
}

impl IncomingVersion {
    /// The directory of the incoming version.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}

impl Drop for IncomingVersion {
    fn drop(&mut self) {
        // If this fails, the next start removes the directory.
        let _ = self.parent.remove_all(&self.name);
    }
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The version is new in this store.
    New,
    /// The store has the version, undamaged.
    AlreadyStored,
    /// The store had the version, damaged; it has been replaced by this one.
    Repaired,
}

impl StoreWriter {
    /// Creates the directory of an incoming version.
    pub fn begin_incoming_version(&self) -> Result<IncomingVersion, StoreError> {
        let parent = self.store().folder("staging")?;
        let mut n = 0u32;
        loop {
            let name = n.to_string();
            match parent.create_directory(&name, 0o755) {
                Ok(directory) => {
                    // At once: after a kill the service, which may not be root, must be able to remove it.
                    self.change_owner_to_store_owner();
                    return Ok(IncomingVersion { parent, name, directory });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
                Err(source) => {
                    let path = parent.path().join(&name);
                    return Err(StoreError::Io { doing: "make", path, source });
                }
            }
        }
    }

    /// Writes the index of an incoming version, and makes the index and the open `image` durable and read-only.
    pub fn finish_incoming_version(
        &self,
        incoming: &IncomingVersion,
        image: &File,
        index: &[u8],
    ) -> Result<(), StoreError> {
        let path = incoming.directory.path();
        write_index(&incoming.directory, index).map_err(StoreError::io("write", &path.join(INDEX)))?;
        // Through the descriptor: the name may lead to a file that the owner of the store must not change.
        let set_mode = |mode| image.set_permissions(Permissions::from_mode(mode));
        // FAT has no files that some users may read and others may not.
        set_mode(0o440).or_else(|_| set_mode(0o444)).map_err(StoreError::io("seal", &path.join(IMAGE)))?;
        incoming.directory.sync().map_err(StoreError::io("sync", path))
    }

    /// Makes a finished incoming version with this image the version `id`. A version that is stored already is kept if
    /// `is_undamaged` returns true for its image.
    pub fn commit(
        &self,
        incoming: &IncomingVersion,
        image: &File,
        id: VersionId,
        is_undamaged: impl FnOnce(SealedFile) -> bool,
    ) -> Result<CommitOutcome, StoreError> {
        let (target, name) = (self.store().version_dir(id), id.to_string());
        let versions = self.store().folder("versions")?;
        check_image(incoming, image).map_err(StoreError::io("commit", incoming.directory.path()))?;
        let mut outcome = CommitOutcome::New;
        if versions.has(&name) {
            if self.store().image(id).is_ok_and(is_undamaged) {
                return Ok(CommitOutcome::AlreadyStored);
            }
            // In one step, so that a crash leaves one of the two. A process that has the damaged image mapped keeps it;
            // its name is removed with the incoming version's directory.
            replace_damaged(incoming, &versions, &name).map_err(StoreError::io("repair", &target))?;
            outcome = CommitOutcome::Repaired;
        } else {
            let moved = incoming.parent.rename(&incoming.name, &versions, &name);
            moved.map_err(StoreError::io("move into place", &target))?;
        }
        versions.sync().map_err(StoreError::io("sync", versions.path()))?;
        Ok(outcome)
    }

    /// Replaces the index of a version, as a whole.
    pub fn replace_index(&self, id: VersionId, index: &[u8]) -> Result<(), StoreError> {
        let folder = self.store().folder("versions")?.open_directory(id.to_string());
        let written = folder.and_then(|folder| folder.replace(INDEX, 0o440, index));
        written.map_err(StoreError::io("write the index in", &self.store().version_dir(id)))
    }
}

/// Checks that the incoming version still contains this image: in a store of another user, that user may have replaced
/// it.
fn check_image(incoming: &IncomingVersion, image: &File) -> io::Result<()> {
    let named = incoming.directory.metadata_of(IMAGE)?;
    if FileId::from_metadata(&named) == FileId::from_metadata(&image.metadata()?) {
        Ok(())
    } else {
        let why = "another process replaced the file while it was being stored; check who may write to the store, then try \
                   again";
        Err(io::Error::other(why))
    }
}

/// Replaces a damaged version by an incoming one, in one step: a crash leaves one of the two. On file systems that
/// cannot exchange names the files are replaced one by one; opening a version detects an index that does not belong to
/// its image.
fn replace_damaged(incoming: &IncomingVersion, versions: &Directory, name: &str) -> io::Result<()> {
    match incoming.parent.exchange(&incoming.name, versions, name) {
        Err(error) if is_unsupported(&error) => replace_files(incoming, versions, name),
        result => result,
    }
}

fn replace_files(incoming: &IncomingVersion, versions: &Directory, name: &str) -> io::Result<()> {
    let damaged = versions.open_directory(name)?;
    for file in [IMAGE, INDEX] {
        incoming.directory.rename(file, &damaged, file)?;
    }
    damaged.sync()
}

fn write_index(directory: &Directory, bytes: &[u8]) -> io::Result<()> {
    let mut file = directory.create_file(INDEX, 0o440)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
mod tests;
