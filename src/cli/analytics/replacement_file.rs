//! A file that a command writes: it replaces the file of that name only when it is complete.

use std::fs::Permissions;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use docwharf_base::durable::sync_dir;

use super::super::failure::CommandFailure;

/// A temporary file beside the file that it will replace. It is removed unless it is committed.
#[derive(Debug)]
pub(super) struct ReplacementFile {
    file: NamedTempFile,
    target: PathBuf,
    /// The noun for messages: `report`.
    noun: &'static str,
}

impl ReplacementFile {
    /// Creates a temporary file beside `path`. The umask reduces `mode`. `noun` is the name of the content in messages.
    pub(super) fn new(path: &Path, mode: u32, noun: &'static str) -> Result<ReplacementFile, CommandFailure> {
        let failed = || CommandFailure::local(format!("cannot write the {noun} to {}", path.display()));
        // If the path is a symbolic link, its target is replaced and the link stays.
        let target = match std::fs::canonicalize(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            other => other.map_err(failed())?,
        };
        match std::fs::metadata(&target) {
            Ok(metadata) if metadata.is_dir() => return Err(failed()(io::ErrorKind::IsADirectory.into())),
            // A pipe or device would be replaced by a file.
            Ok(metadata) if !metadata.is_file() => return Err(failed()(io::Error::other("it is not a regular file"))),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed()(error)),
            _ => {}
        }
        let folder = folder_of(&target);
        let mut builder = tempfile::Builder::new();
        let builder = builder.prefix(".docwharf-").suffix(".new").permissions(Permissions::from_mode(mode));
        Ok(ReplacementFile { file: builder.tempfile_in(folder).map_err(failed())?, target, noun })
    }

    /// Writes a text and commits it.
    pub(super) fn write(mut self, text: &str) -> Result<PathBuf, CommandFailure> {
        let failed = format!("cannot write the {} to {}", self.noun, self.target.display());
        self.file.write_all(text.as_bytes()).map_err(CommandFailure::local(failed))?;
        self.commit()
    }

    /// Opens the temporary file once more, for a thread that writes it while this value can still remove it.
    #[cfg(feature = "analytics")]
    pub(super) fn writer(&self) -> io::Result<std::fs::File> {
        self.file.as_file().try_clone()
    }

    /// Makes the content durable, renames the file into its place, and returns that path.
    pub(super) fn commit(self) -> Result<PathBuf, CommandFailure> {
        let ReplacementFile { file, target, noun } = self;
        let failed = || CommandFailure::local(format!("cannot write the {noun} to {}", target.display()));
        file.as_file().sync_all().map_err(failed())?;
        file.persist(&target).map_err(|error| failed()(error.error))?;
        sync_dir(folder_of(&target)).map_err(failed())?;
        Ok(target)
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
