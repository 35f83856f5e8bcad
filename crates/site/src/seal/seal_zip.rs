//! Seals a received ZIP: it becomes the image as it is, or an image is written from it.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::bundle::bundle_reader::{BundleKind, BundleReadError};
use crate::bundle::refusal::BundleFault;
use crate::bundle::zip::ZipArchive;
use crate::bundle::zip_entry::ZipReader;
use crate::mapping::SealedFile;
use docwharf_base::directory::{Directory, FileAccess, FileId, FileRequirements};
use docwharf_base::growing_file::WriteProgress;
use docwharf_base::model::digest::Digest;

use super::image_target::{FileLocation, IMAGE_FILE_NAME, ImageTarget, RECEIVED_FILE_NAME};
use super::new_image::write_new_image;
use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::{SealedBundle, finish_verification};
use super::{adopt, growing_copy};

/// Copies or moves a received ZIP, then adopts or rewrites it.
pub(super) fn seal_zip(
    received: &File,
    path: &Path,
    location: Option<FileLocation<'_>>,
    target: &ImageTarget,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, target.path());
    let write_error = |source| SealError::Write { path: target.path().to_owned(), source };
    let archive_len = received.metadata().map_err(|source| SealError::Read { path: path.to_owned(), source })?.len();
    if archive_len > options.limits.archive {
        return Err(seal_error(BundleFault::ArchiveTooLarge(options.limits.archive).in_bundle().into()));
    }
    let read_error = |source| SealError::Read { path: path.to_owned(), source };
    let directory_offset =
        ZipArchive::find_directory_offset(received.try_clone().map_err(read_error)?, path).map_err(seal_error)?;
    if let (Some((directory, name)), ImageTarget::Dir(dir)) = (location, target)
        && directory.rename(name, dir, IMAGE_FILE_NAME).is_ok()
    {
        let image = open_moved_image(dir, received).map_err(write_error)?;
        return seal_moved_zip(image, path, target, options, progress);
    }
    let image = target.create(IMAGE_FILE_NAME)?;
    // The copy is verified, because the copy is served, even if the original changes meanwhile. Its central
    // directory is copied first; the entries are verified while they are being copied.
    growing_copy::copy_range(received, &image, directory_offset, archive_len).map_err(write_error)?;
    let zip = ZipArchive::open(image.try_clone().map_err(write_error)?, path, &options.limits).map_err(seal_error)?;
    let (archive, zip) = if adopt::may_adopt(&zip) {
        let received = adopt::ReceivedZip { from: received, to: &image, end: directory_offset };
        let verified_zip = adopt::verify_entries(&zip, options, progress, Some(&received)).map_err(seal_error)?;
        if verified_zip.all_end_at_declared_len {
            let image_len = verified_zip.archive.1;
            let verified = finish_verification(verified_zip.gathered, BundleKind::Zip, Some(verified_zip.archive));
            let verified = verified.map_err(|refusal| seal_error(refusal.into()))?;
            let image = SealedFile::from_sealing(image, verified.id);
            return Ok(SealedBundle { verified, image, image_len, adopted: true });
        }
        (verified_zip.archive, zip)
    } else {
        growing_copy::copy_range(received, &image, 0, directory_offset).map_err(write_error)?;
        (adopt::digest_file(&image, &WriteProgress::complete()).map_err(write_error)?, zip)
    };
    rewrite_zip(zip, archive, path, target, options, progress)
}

/// Opens the image that was `received` and has been moved into `dir`. The image must have no other name, so that no
/// later download can write to the sealed file, and must still be that file: another user may own the folder and
/// replace it.
fn open_moved_image(dir: &Directory, received: &File) -> io::Result<File> {
    let image = dir.open_file(IMAGE_FILE_NAME, FileAccess::ReadWrite, FileRequirements::SINGLE_NAME)?;
    if FileId::from_metadata(&image.metadata()?) == FileId::from_metadata(&received.metadata()?) {
        Ok(image)
    } else {
        let message = "another process replaced the file while it was being stored; check who may write to the store, then try \
                   again";
        Err(io::Error::other(message))
    }
}

/// Verifies a moved ZIP in place: in `target`, under the image's name. No other process writes to it.
fn seal_moved_zip(
    image: File,
    path: &Path,
    target: &ImageTarget,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, target.path());
    let write_error = |source| SealError::Write { path: target.path().to_owned(), source };
    let zip = ZipArchive::open(image.try_clone().map_err(write_error)?, path, &options.limits).map_err(seal_error)?;
    let mut archive = None;
    if adopt::may_adopt(&zip) {
        let verified_zip = adopt::verify_entries(&zip, options, progress, None).map_err(seal_error)?;
        if verified_zip.all_end_at_declared_len {
            if options.durable {
                image.sync_all().map_err(write_error)?;
            }
            let image_len = verified_zip.archive.1;
            let verified = finish_verification(verified_zip.gathered, BundleKind::Zip, Some(verified_zip.archive));
            let verified = verified.map_err(|refusal| seal_error(refusal.into()))?;
            let image = SealedFile::from_sealing(image, verified.id);
            return Ok(SealedBundle { verified, image, image_len, adopted: true });
        }
        archive = Some(verified_zip.archive);
    }
    let archive = match archive {
        Some(archive) => archive,
        None => adopt::digest_file(&image, &WriteProgress::complete()).map_err(write_error)?,
    };
    rewrite_zip(zip, archive, path, target, options, progress)
}

/// Writes a new image from the ZIP in `target` that has the image's name.
fn rewrite_zip(
    zip: ZipArchive,
    archive: (Digest, u64),
    path: &Path,
    target: &ImageTarget,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let write_error = |source| SealError::Write { path: target.path().to_owned(), source };
    if let ImageTarget::Dir(dir) = target {
        dir.rename(IMAGE_FILE_NAME, dir, RECEIVED_FILE_NAME).map_err(write_error)?;
    }
    let sealed =
        write_new_image(ZipReader::new(zip), BundleKind::Zip, |_| Some(archive), path, target, options, progress)?;
    if let ImageTarget::Dir(dir) = target {
        dir.remove_file(RECEIVED_FILE_NAME).map_err(write_error)?;
    }
    Ok(sealed)
}
