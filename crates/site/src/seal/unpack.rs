//! Unpacks a verified bundle as plain files: the files of the site except hidden ones, or every entry.
//!
//! The files are written from the sealed image, after the whole bundle was verified. Modes, owners and times of the
//! archive are not carried over.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::extract::{self, FileTree};
use crate::mapping;
use docwharf_base::codec::inflate::Inflater;
use docwharf_base::model::site_path::{SitePath, is_hidden};

use super::image_target::ImageTarget;
use super::seal_bundle::seal;
use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::{SealedBundle, VerifiedBundle};

/// The reason why nothing was unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The bundle was refused or cannot be read.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The target exists and is not an empty folder.
    #[error("{} is not an empty folder; name one that is empty or does not exist", .0.display())]
    NotEmpty(PathBuf),
    /// The target cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or folder that was being written.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> UnpackError + '_ {
    move |source| UnpackError::Write { path: path.to_owned(), source }
}

/// Verifies the bundle at `from` and writes its site to `to`, which must be absent or an empty folder. With `raw`, it
/// writes every accepted entry. A failure leaves `to` unchanged.
pub fn unpack(
    from: &Path,
    to: &Path,
    raw: bool,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<VerifiedBundle, UnpackError> {
    let exists = match fs::read_dir(to) {
        Ok(mut entries) => match entries.next() {
            None => true,
            Some(_) => return Err(UnpackError::NotEmpty(to.to_owned())),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => false,
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(UnpackError::NotEmpty(to.to_owned()));
        }
        Err(source) => {
            return Err(UnpackError::Write { path: to.to_owned(), source });
        }
    };
    let parent = match to.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    // The image and the tree are written on the file system of the target, because they are renamed.
    let work_parent = if exists { to } else { parent };
    let SealedBundle { verified, image, .. } =
        seal(from, &ImageTarget::Unlinked(work_parent.to_owned()), options, progress)?;
    let tree =
        tempfile::Builder::new().prefix(".docwharf-").tempdir_in(work_parent).map_err(write_error(work_parent))?;
    let image = mapping::map_image(image).map_err(write_error(work_parent))?;
    let mut file_tree = FileTree::new(File::open(tree.path()).map_err(write_error(tree.path()))?, None);
    if raw {
        for folder in &verified.folders {
            file_tree.create_folder(folder).map_err(|e| write_error(&path_for_message(to, folder))(e.into()))?;
        }
    }
    let mut inflate = Inflater::new();
    let files = if raw { &verified.raw_files } else { &verified.files };
    for (path, entry) in files.iter().filter(|(path, _)| raw || !is_hidden(path.as_bytes())) {
        let compressed = &image[entry.offset as usize..(entry.offset + entry.compressed_len) as usize];
        let mut file = file_tree.create(path).map_err(|e| write_error(&path_for_message(to, path))(e.into()))?;
        extract::write_content(&mut file, compressed, entry, &mut inflate)
            .map_err(write_error(&path_for_message(to, path)))?;
    }
    if exists {
        move_up(tree.path(), to)?;
    } else {
        // The mode of the temporary folder depends on the umask; a site is readable by all users.
        use std::os::unix::fs::PermissionsExt;
        let tree = tree.keep();
        let moved = fs::set_permissions(&tree, fs::Permissions::from_mode(0o755)).and_then(|()| fs::rename(&tree, to));
        if let Err(source) = moved {
            let _ = fs::remove_dir_all(&tree);
            return Err(UnpackError::Write { path: to.to_owned(), source });
        }
    }
    Ok(verified)
}

/// Returns a path for messages.
fn path_for_message(root: &Path, path: &SitePath) -> PathBuf {
    root.join(OsStr::from_bytes(path.as_bytes()))
}

/// Moves the entries of `tree` into `to`, which is its parent and otherwise empty. `to` may be a mount point, so it
/// cannot be replaced by a rename.
fn move_up(tree: &Path, to: &Path) -> Result<(), UnpackError> {
    let mut moved = Vec::new();
    let result = (|| {
        for entry in fs::read_dir(tree)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            fs::rename(entry.path(), &target)?;
            moved.push(target);
        }
        Ok(())
    })();
    result.map_err(|source| {
        for path in &moved {
            let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
        }
        UnpackError::Write { path: to.to_owned(), source }
    })
}
