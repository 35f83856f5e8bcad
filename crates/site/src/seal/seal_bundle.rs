//! Seals a bundle: a folder, a complete archive, or one that still grows.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use crate::bundle::bundle_reader::{BundleKind, BundleReadError};
use crate::bundle::folder::FolderReader;
use crate::bundle::format::{self, RecognizedArchive};
use crate::bundle::tar::TarReader;
use docwharf_base::directory::{FileAccess, FileRequirements};
use docwharf_base::growing_file::WriteProgress;
use docwharf_base::regular_file;

use super::image_target::{FileLocation, ImageTarget};
use super::new_image::write_new_image;
use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::seal_zip::seal_zip;
use super::verified_bundle::SealedBundle;
use super::verify::is_dir;

/// Verifies the bundle at `path` and writes its sealed image in `target`.
pub fn seal(
    path: &Path,
    target: &ImageTarget,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, target.path());
    if is_dir(path)? {
        let folder = FolderReader::open(path, &options.limits).map_err(seal_error)?;
        let warnings = folder.warnings.clone();
        let mut sealed = write_new_image(folder, BundleKind::Folder, |_| None, path, target, options, progress)?;
        sealed.verified.warnings.extend(warnings);
        return Ok(sealed);
    }
    let file = regular_file::open(path).map_err(|source| SealError::Read { path: path.to_owned(), source })?;
    seal_opened(file, path, None, target, options, progress)
}

/// Verifies an archive that is open already and writes its sealed image in `target`. `path` is for messages. If
/// `location` is on the file system of the image, a ZIP is moved from there rather than copied. A tar is not moved: it
/// is read, and a new image is written.
pub fn seal_opened(
    file: File,
    path: &Path,
    location: Option<FileLocation<'_>>,
    target: &ImageTarget,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, target.path());
    match format::open_archive(file, path, &options.limits).map_err(seal_error)? {
        RecognizedArchive::Tar(kind, tar) => seal_tar(*tar, kind, path, target, options, progress),
        RecognizedArchive::Zip(received) => seal_zip(&received, path, location, target, options, progress),
    }
}

/// Verifies and seals a bundle that is still being downloaded to `location`, if it can be read from start to end.
/// Returns `None` for a ZIP, whose directory is at its end, and for a download that fails or ends before its first
/// byte.
pub fn seal_growing_archive(
    (directory, name): FileLocation<'_>,
    growth: &Arc<WriteProgress>,
    target: &ImageTarget,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<Option<SealedBundle>, SealError> {
    // The download creates the file with its first byte.
    if growth.wait_for_len(1).is_none_or(|len| len == 0) {
        return Ok(None);
    }
    let path = &directory.path().join(name);
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, target.path());
    let opened = directory.open_file(name, FileAccess::Read, FileRequirements::SINGLE_NAME);
    let file = opened.map_err(|source| SealError::Read { path: path.clone(), source })?;
    match format::open_growing_archive(file, path, &options.limits, growth).map_err(seal_error)? {
        RecognizedArchive::Tar(kind, tar) => seal_tar(*tar, kind, path, target, options, progress).map(Some),
        RecognizedArchive::Zip(_) => Ok(None),
    }
}

fn seal_tar(
    tar: TarReader,
    kind: BundleKind,
    path: &Path,
    target: &ImageTarget,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<SealedBundle, SealError> {
    write_new_image(tar, kind, |tar| Some(tar.into_source().digest_and_len()), path, target, options, progress)
}
