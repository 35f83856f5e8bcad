//! Staging and committing of versions: a version is written below `staging/` and becomes part of the store by one
//! rename.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use docwharf_base::directory::{Directory, FileId, is_unsupported};
use docwharf_base::model::version::VersionId;
use docwharf_site::mapping::SealedFile;

use super::StoreError;
use super::layout::{IMAGE, INDEX};
use super::writer::StoreWriter;

/// A directory for unfinished work; it is removed when this is dropped.
///
/// In a store of another user it belongs to that user from the beginning, so that the service can remove it after a
/// kill. That user may exchange names in it at any moment, so it is used through its descriptor only.
#[derive(Debug)]
pub struct VersionStage {
    parent: Directory,
    name: String,
    directory: Directory,
}

impl VersionStage {
    /// The stage's directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
}

impl Drop for VersionStage {
    fn drop(&mut self) {
        // After a failure the next start removes what is left.
        let _ = self.parent.remove_all(&self.name);
    }
}

/// The result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The version is new in this store.
    New,
    /// The store had the version, undamaged.
    Known,
    /// The store had the version, damaged; it has been replaced.
    Mended,
}

impl StoreWriter {
    /// Creates a directory for unfinished work.
    pub fn stage(&self) -> Result<VersionStage, StoreError> {
        let parent = self.store().folder("staging")?;
        let mut n = 0u32;
        loop {
            let name = n.to_string();
            match parent.create_directory(&name, 0o755) {
                Ok(directory) => {
                    // At once: after a kill the service, which may not be root, must be able to remove it.
                    self.hand_over();
                    return Ok(VersionStage { parent, name, directory });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => n += 1,
                Err(source) => {
                    let path = parent.path().join(&name);
                    return Err(StoreError::Io { doing: "make", path, source });
                }
            }
        }
    }

    /// Writes a version's index into its stage, and makes the index and the open `image` durable and read-only.
    pub fn finish_stage(&self, stage: &VersionStage, image: &File, index: &[u8]) -> Result<(), StoreError> {
        let path = stage.directory.path();
        write_sealed(&stage.directory, index).map_err(StoreError::io("write", &path.join(INDEX)))?;
        // Through the descriptor: the name may lead to a file that the owner of the store could not change.
        let seal = |mode| image.set_permissions(Permissions::from_mode(mode));
        // FAT has no files that some users may read and others may not.
        seal(0o440).or_else(|_| seal(0o444)).map_err(StoreError::io("seal", &path.join(IMAGE)))?;
        stage.directory.sync().map_err(StoreError::io("sync", path))
    }

    /// Makes a finished stage with this image the version `id`; the stage is used up. A version that is stored already
    /// is kept if `whole` says that its image is undamaged.
    pub fn commit(
        &self,
        stage: &VersionStage,
        image: &File,
        id: VersionId,
        whole: impl FnOnce(SealedFile) -> bool,
    ) -> Result<CommitOutcome, StoreError> {
        let (target, name) = (self.store().version_dir(id), id.to_string());
        let versions = self.store().folder("versions")?;
        is_still_there(stage, image).map_err(StoreError::io("commit", stage.directory.path()))?;
        let mut committed = CommitOutcome::New;
        if versions.has(&name) {
            if self.store().image(id).is_ok_and(whole) {
                return Ok(CommitOutcome::Known);
            }
            // In one step, so that a crash leaves one of the two. A process that has the damaged image mapped keeps it;
            // its name is removed with the stage.
            mend(stage, &versions, &name).map_err(StoreError::io("mend", &target))?;
            committed = CommitOutcome::Mended;
        } else {
            let moved = stage.parent.rename(&stage.name, &versions, &name);
            moved.map_err(StoreError::io("move into place", &target))?;
        }
        versions.sync().map_err(StoreError::io("sync", versions.path()))?;
        Ok(committed)
    }

    /// Replaces the index of a version, as a whole.
    pub fn replace_index(&self, id: VersionId, index: &[u8]) -> Result<(), StoreError> {
        let folder = self.store().folder("versions")?.directory(id.to_string());
        let written = folder.and_then(|folder| folder.replace(INDEX, 0o440, index));
        written.map_err(StoreError::io("write the index in", &self.store().version_dir(id)))
    }
}

/// Checks that the stage still contains this image: in a store of another user, that user may have replaced it.
fn is_still_there(stage: &VersionStage, image: &File) -> io::Result<()> {
    let named = stage.directory.metadata_of(IMAGE)?;
    if FileId::from_metadata(&named) == FileId::from_metadata(&image.metadata()?) {
        Ok(())
    } else {
        let why = "another process replaced the file while it was being stored; check who may write to the store, then try \
                   again";
        Err(io::Error::other(why))
    }
}

/// Replaces a damaged version by a finished stage, in one step: a crash leaves one of the two. On file systems that
/// cannot exchange names the files are replaced one by one; opening a version detects an index that does not belong to
/// its image.
fn mend(stage: &VersionStage, versions: &Directory, name: &str) -> io::Result<()> {
    match stage.parent.exchange(&stage.name, versions, name) {
        Err(error) if is_unsupported(&error) => replace_files(stage, versions, name),
        done => done,
    }
}

fn replace_files(stage: &VersionStage, versions: &Directory, name: &str) -> io::Result<()> {
    let damaged = versions.directory(name)?;
    for file in [IMAGE, INDEX] {
        stage.directory.rename(file, &damaged, file)?;
    }
    damaged.sync()
}

fn write_sealed(stage: &Directory, bytes: &[u8]) -> io::Result<()> {
    let mut file = stage.create_file(INDEX, 0o440)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // directories of these tests alone
#[path = "incoming_version/tests.rs"]
mod tests;
