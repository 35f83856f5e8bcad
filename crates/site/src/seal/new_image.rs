//! Writes a new image from the entries of a bundle.

use std::path::Path;

use crate::bundle::bundle_reader::{BundleKind, BundleReadError, BundleReader};
use crate::image::ImageWriter;
use crate::mapping::SealedFile;
use docwharf_base::model::digest::Digest;

use super::image_target::{IMAGE_FILE_NAME, ImageTarget};
use super::rewrite;
use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::{SealedBundle, finish_verification};

/// Reads a bundle to its end, verifies it and writes its image in `target`. `archive` returns the digest and the size
/// of the archive after it has been read; `path` is for messages.
pub(super) fn write_new_image<E: BundleReader>(
    mut entries: E,
    kind: BundleKind,
    archive: impl FnOnce(E) -> Option<(Digest, u64)>,
    path: &Path,
    target: &ImageTarget,
    options: &SealOptions,
    progress: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let seal_error = |error: BundleReadError| SealError::from_read(error, path, target.path());
    let write_error = |source| SealError::Write { path: target.path().to_owned(), source };
    let image = target.create(IMAGE_FILE_NAME)?;
    let writer = ImageWriter::new(image.try_clone().map_err(write_error)?);
    let (gathered, writer) =
        rewrite::read_entries(&mut entries, Some(writer), options, progress).map_err(seal_error)?;
    let verified =
        finish_verification(gathered, kind, archive(entries)).map_err(|refusal| seal_error(refusal.into()))?;
    let mut image_len = 0;
    if let Some(mut writer) = writer {
        for folder in &verified.folders {
            writer.append_folder(&[folder.as_bytes(), b"/"].concat()).map_err(write_error)?;
        }
        image_len = writer.finish().map_err(write_error)?;
    }
    if options.durable {
        image.sync_all().map_err(write_error)?;
    }
    let image = SealedFile::from_sealing(image, verified.id);
    Ok(SealedBundle { verified, image, image_len, adopted: false })
}
