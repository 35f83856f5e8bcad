//! Verifies a bundle or a sealed image without writing anything.

use std::fs::File;
use std::path::Path;

use crate::bundle::bundle_reader::{BundleKind, BundleReadError};
use crate::bundle::folder::FolderReader;
use crate::bundle::format::{self, RecognizedArchive};
use crate::bundle::refusal::BundleRefusal;
use crate::bundle::zip::ZipArchive;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::regular_file;

use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::{VerifiedBundle, finish_verification};
use super::{adopt, rewrite};

/// Verifies the bundle at `path` without writing anything.
pub fn verify(path: &Path, options: &SealOptions, progress: &SealProgress) -> Result<VerifiedBundle, SealError> {
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, path);
    let refuse = |refusal: BundleRefusal| seal_error(refusal.into());
    if is_dir(path)? {
        let mut folder = FolderReader::open(path, &options.limits).map_err(seal_error)?;
        let (gathered, _) = rewrite::read_entries(&mut folder, None, options, progress).map_err(seal_error)?;
        let mut verified = finish_verification(gathered, BundleKind::Folder, None).map_err(refuse)?;
        verified.warnings.extend(folder.warnings);
        return Ok(verified);
    }
    match open(path, &options.limits).map_err(seal_error)? {
        RecognizedArchive::Tar(kind, mut tar) => {
            let (gathered, _) = rewrite::read_entries(&mut *tar, None, options, progress).map_err(seal_error)?;
            finish_verification(gathered, kind, Some(tar.into_source().digest_and_len())).map_err(refuse)
        }
        RecognizedArchive::Zip(file) => {
            let zip = ZipArchive::open(file, path, &options.limits).map_err(seal_error)?;
            let verified_zip = adopt::verify_entries(&zip, options, progress, None).map_err(seal_error)?;
            finish_verification(verified_zip.gathered, BundleKind::Zip, Some(verified_zip.archive)).map_err(refuse)
        }
    }
}

/// No limits, for images: the archive was within its limits when it was received, and an image may be larger than its
/// archive.
const NO_LIMITS: BundleLimits =
    BundleLimits { entries: u64::MAX, unpacked: u64::MAX, archive: u64::MAX, entry: u64::MAX };

/// Verifies a sealed image again.
pub fn verify_image(path: &Path, options: &SealOptions) -> Result<VerifiedBundle, SealError> {
    let file = regular_file::open(path).map_err(|source| SealError::Read { path: path.to_owned(), source })?;
    verify_opened_image(file, path, options)
}

/// Verifies a sealed image that is open already. `path` is for messages.
pub fn verify_opened_image(file: File, path: &Path, options: &SealOptions) -> Result<VerifiedBundle, SealError> {
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, path);
    let zip = ZipArchive::open_image(file, path, &NO_LIMITS).map_err(seal_error)?;
    let verified_zip = adopt::verify_entries(&zip, options, &SealProgress::default(), None).map_err(seal_error)?;
    finish_verification(verified_zip.gathered, BundleKind::Zip, Some(verified_zip.archive))
        .map_err(|refusal| seal_error(refusal.into()))
}

/// Verifies a sealed image on the calling thread alone. `pace` is called with the size of each piece of content that
/// was read, and may block to limit the speed. `path` is for messages.
pub fn verify_slowly(image: File, path: &Path, pace: &mut dyn FnMut(u64)) -> Result<VerifiedBundle, SealError> {
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, path);
    let zip = ZipArchive::open_image(image, path, &NO_LIMITS).map_err(seal_error)?;
    let gathered = adopt::verify_entries_slowly(&zip, pace).map_err(seal_error)?;
    finish_verification(gathered, BundleKind::Zip, None).map_err(|refusal| seal_error(refusal.into()))
}

fn open(path: &Path, limits: &BundleLimits) -> Result<RecognizedArchive, BundleReadError> {
    format::open_archive(regular_file::open(path).map_err(BundleReadError::io(path))?, path, limits)
}

/// Whether there is a folder at `path`.
#[allow(clippy::disallowed_methods)] // only a hint: opening the path decides
pub(super) fn is_dir(path: &Path) -> Result<bool, SealError> {
    match std::fs::metadata(path) {
        Ok(metadata) => Ok(metadata.is_dir()),
        Err(source) => Err(SealError::Read { path: path.to_owned(), source }),
    }
}
