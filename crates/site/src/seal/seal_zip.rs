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

use super::image_space::{FilePlace, IMAGE_FILE_NAME, ImageSpace, RECEIVED_FILE_NAME};
use super::new_image::write_new_image;
use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::{SealedBundle, finish_verification};
use super::{adopt, growing_copy};

/// Copies or moves a received ZIP, then adopts or rewrites it.
pub(super) fn seal_zip(
    received: &File,
    path: &Path,
    place: Option<FilePlace<'_>>,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let length = received.metadata().map_err(|source| SealError::Read { path: path.to_owned(), source })?.len();
    if length > effort.limits.archive {
        return Err(lift(BundleFault::ArchiveTooLarge(effort.limits.archive).in_archive().into()));
    }
    let read = |source| SealError::Read { path: path.to_owned(), source };
    let start = ZipArchive::find_directory_start(received.try_clone().map_err(read)?, path).map_err(lift)?;
    if let (Some((directory, name)), ImageSpace::Dir(dir)) = (place, space)
        && directory.rename(name, dir, IMAGE_FILE_NAME).is_ok()
    {
        let image = open_moved_image(dir, received).map_err(write)?;
        return seal_moved_zip(image, path, space, effort, meter);
    }
    let image = space.create(IMAGE_FILE_NAME)?;
    // The copy is verified, because the copy is served, whatever happens to the original meanwhile. Its central
    // directory is copied first; the members are verified while they are being copied.
    growing_copy::copy_range(received, &image, start, length).map_err(write)?;
    let zip = ZipArchive::open(image.try_clone().map_err(write)?, path, &effort.limits).map_err(lift)?;
    let (archive, zip) = if adopt::can_adopt(&zip) {
        let received = adopt::ReceivedZip { from: received, to: &image, end: start };
        let proved = adopt::verify_members(&zip, effort, meter, Some(&received)).map_err(lift)?;
        if proved.exact {
            let image_len = proved.archive.1;
            let proven = finish_verification(proved.gathered, BundleKind::Zip, Some(proved.archive));
            let proven = proven.map_err(|refusal| lift(refusal.into()))?;
            let image = SealedFile::from_sealing(image, proven.id);
            return Ok(SealedBundle { proven, image, image_len, adopted: true });
        }
        (proved.archive, zip)
    } else {
        growing_copy::copy_range(received, &image, 0, start).map_err(write)?;
        (adopt::digest_file(&image, &WriteProgress::complete()).map_err(write)?, zip)
    };
    rewrite_zip(zip, archive, path, space, effort, meter)
}

/// Opens the image that was `received` and has been moved into `dir`. The image must have no other name, so that no
/// later download can write to the sealed file, and must still be that file: another user may own the folder and
/// replace it.
fn open_moved_image(dir: &Directory, received: &File) -> io::Result<File> {
    let image = dir.open_file(IMAGE_FILE_NAME, FileAccess::ReadWrite, FileRequirements::SINGLE_NAME)?;
    if FileId::from_metadata(&image.metadata()?) == FileId::from_metadata(&received.metadata()?) {
        Ok(image)
    } else {
        let why = "another process replaced the file while it was being stored; check who may write to the store, then try \
                   again";
        Err(io::Error::other(why))
    }
}

/// Verifies a moved ZIP in place: in `space`, under the image's name. No other process writes to it.
fn seal_moved_zip(
    image: File,
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let zip = ZipArchive::open(image.try_clone().map_err(write)?, path, &effort.limits).map_err(lift)?;
    let mut archive = None;
    if adopt::can_adopt(&zip) {
        let proved = adopt::verify_members(&zip, effort, meter, None).map_err(lift)?;
        if proved.exact {
            if effort.durable {
                image.sync_all().map_err(write)?;
            }
            let image_len = proved.archive.1;
            let proven = finish_verification(proved.gathered, BundleKind::Zip, Some(proved.archive));
            let proven = proven.map_err(|refusal| lift(refusal.into()))?;
            let image = SealedFile::from_sealing(image, proven.id);
            return Ok(SealedBundle { proven, image, image_len, adopted: true });
        }
        archive = Some(proved.archive);
    }
    let archive = match archive {
        Some(archive) => archive,
        None => adopt::digest_file(&image, &WriteProgress::complete()).map_err(write)?,
    };
    rewrite_zip(zip, archive, path, space, effort, meter)
}

/// Writes a new image from the ZIP in `space` that has the image's name.
fn rewrite_zip(
    zip: ZipArchive,
    archive: (Digest, u64),
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    if let ImageSpace::Dir(dir) = space {
        dir.rename(IMAGE_FILE_NAME, dir, RECEIVED_FILE_NAME).map_err(write)?;
    }
    let sealing = write_new_image(ZipReader::new(zip), BundleKind::Zip, |_| Some(archive), path, space, effort, meter)?;
    if let ImageSpace::Dir(dir) = space {
        dir.remove_file(RECEIVED_FILE_NAME).map_err(write)?;
    }
    Ok(sealing)
}
