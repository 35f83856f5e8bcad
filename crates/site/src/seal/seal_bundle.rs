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

use super::image_space::{FilePlace, ImageSpace};
use super::new_image::write_new_image;
use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::seal_zip::seal_zip;
use super::verified_bundle::SealedBundle;
use super::verify::is_dir;

/// Verifies the bundle at `path` and writes its sealed image in `space`.
pub fn seal(
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    if is_dir(path)? {
        let folder = FolderReader::open(path, &effort.limits).map_err(lift)?;
        let warnings = folder.warnings.clone();
        let mut sealing = write_new_image(folder, BundleKind::Folder, |_| None, path, space, effort, meter)?;
        sealing.proven.warnings.extend(warnings);
        return Ok(sealing);
    }
    let file = regular_file::open(path).map_err(|source| SealError::Read { path: path.to_owned(), source })?;
    seal_opened(file, path, None, space, effort, meter)
}

/// Verifies an archive that is open already and writes its sealed image in `space`. `path` is for messages. If `place`
/// is given and on the file system of the image, the archive is moved from there rather than copied.
pub fn seal_opened(
    file: File,
    path: &Path,
    place: Option<FilePlace<'_>>,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    match format::open_archive(file, path, &effort.limits).map_err(lift)? {
        RecognizedArchive::Tar(kind, tar) => seal_tar(*tar, kind, path, space, effort, meter),
        RecognizedArchive::Zip(received) => seal_zip(&received, path, place, space, effort, meter),
    }
}

/// Verifies and seals a bundle that is still being downloaded to `place`, if it can be read from start to end. `None`
/// for a ZIP, whose directory is at its end, and for a download that fails or ends before its first byte.
pub fn seal_arriving(
    (directory, name): FilePlace<'_>,
    growth: &Arc<WriteProgress>,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<Option<SealedBundle>, SealError> {
    // The download creates the file with its first byte.
    if growth.wait_for(1).is_none_or(|there| there == 0) {
        return Ok(None);
    }
    let path = &directory.path().join(name);
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    let opened = directory.open_file(name, FileAccess::Read, FileRequirements::SINGLE_NAME);
    let file = opened.map_err(|source| SealError::Read { path: path.clone(), source })?;
    match format::open_growing_archive(file, path, &effort.limits, growth).map_err(lift)? {
        RecognizedArchive::Tar(kind, tar) => seal_tar(*tar, kind, path, space, effort, meter).map(Some),
        RecognizedArchive::Zip(_) => Ok(None),
    }
}

fn seal_tar(
    tar: TarReader,
    kind: BundleKind,
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    write_new_image(tar, kind, |tar| Some(tar.into_source().digest_and_len()), path, space, effort, meter)
}
