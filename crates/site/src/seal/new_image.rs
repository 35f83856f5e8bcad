//! Writes a new image from the entries of a bundle.

use std::path::Path;

use crate::bundle::bundle_reader::{BundleKind, BundleReadError, BundleReader};
use crate::image::ImageWriter;
use crate::mapping::SealedFile;
use docwharf_base::model::digest::Digest;

use super::image_space::{IMAGE_FILE_NAME, ImageSpace};
use super::rewrite;
use super::seal_error::SealError;
use super::seal_options::{SealOptions, SealProgress};
use super::verified_bundle::{SealedBundle, finish_verification};

/// Reads a bundle to its end, verifies it and writes its image in `space`. `archive` gives the digest and the size of the
/// archive once it has been read; `path` is for messages.
pub(super) fn write_new_image<E: BundleReader>(
    mut entries: E,
    kind: BundleKind,
    archive: impl FnOnce(E) -> Option<(Digest, u64)>,
    path: &Path,
    space: &ImageSpace,
    effort: &SealOptions,
    meter: &SealProgress,
) -> Result<SealedBundle, SealError> {
    let lift = |error: BundleReadError| SealError::from_read(error, path, space.path());
    let write = |source| SealError::Write { path: space.path().to_owned(), source };
    let image = space.create(IMAGE_FILE_NAME)?;
    let writer = ImageWriter::new(image.try_clone().map_err(write)?);
    let (gathered, writer) = rewrite::rewrite_image(&mut entries, Some(writer), effort, meter).map_err(lift)?;
    let proven = finish_verification(gathered, kind, archive(entries)).map_err(|refusal| lift(refusal.into()))?;
    let mut image_len = 0;
    if let Some(mut writer) = writer {
        for folder in &proven.folders {
            writer.append_folder(&[folder.as_bytes(), b"/"].concat()).map_err(write)?;
        }
        image_len = writer.finish().map_err(write)?;
    }
    if effort.durable {
        image.sync_all().map_err(write)?;
    }
    let image = SealedFile::from_sealing(image, proven.id);
    Ok(SealedBundle { proven, image, image_len, adopted: false })
}
