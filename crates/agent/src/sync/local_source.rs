//! A source on this machine: the file of the bundle, or the file with the link to it.

use std::fs::Metadata;
use std::path::Path;

use docwharf_base::regular_file;

use super::{BundleLocation, SyncError, SyncSettings};

/// Checks whether the bundle, or the file with the link to it, is on this machine, if it has to be. It opens no
/// connection. With an API, the bundle may come from there.
pub fn check_local_source(sync_settings: &SyncSettings) -> Result<(), SyncError> {
    if !sync_settings.enabled || sync_settings.api.is_some() {
        return Ok(());
    }
    match &sync_settings.bundle {
        Some(BundleLocation::Unreadable { error, .. }) => Err(SyncError::UnusableSetting(error.clone())),
        Some(BundleLocation::File(path)) => bundle_file_metadata(path, sync_settings.bundle_key()).map(drop),
        Some(BundleLocation::Link(_)) | None => Ok(()),
    }
}

/// Reads the metadata of the bundle's file, which the key names. An error if it is missing, a folder, or not a regular
/// file.
pub(super) fn bundle_file_metadata(path: &Path, key: &'static str) -> Result<Metadata, SyncError> {
    let missing = |source| SyncError::Missing { path: path.to_owned(), key, source };
    let metadata = std::fs::metadata(path).map_err(missing)?;
    if metadata.is_dir() {
        return Err(SyncError::IsFolder { path: path.to_owned(), key });
    }
    if !metadata.is_file() {
        // Opening a named pipe waits for a writer, perhaps for ever.
        return Err(missing(regular_file::not_regular_error(metadata.file_type())));
    }
    Ok(metadata)
}
