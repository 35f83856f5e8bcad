//! The state folder of an origin (`store.path`), which only one origin uses at a time.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::time::Duration;

use docwharf_base::durable::FileLock;

use super::error::OriginError;

/// Time that an earlier origin may take to end and release the locks of its folders. A process that it was starting
/// when it was killed holds them until it runs its program.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// Creates the state folder if necessary, and locks it. Waits up to `timeout` for another process to release the lock;
/// then the error is [`OriginError::Locked`].
///
/// The content is private, but a build that runs as another user must be able to pass through the folder; hence mode
/// 0711.
pub(super) fn lock(folder: &Path, timeout: Duration) -> Result<FileLock, OriginError> {
    let system_error = |doing| move |source| OriginError::System { doing, source };
    DirBuilder::new()
        .recursive(true)
        .mode(0o711)
        .create(folder)
        .map_err(system_error("create the folder store.path"))?;
    let acquire =
        |timeout| FileLock::acquire(&folder.join("lock"), timeout).map_err(system_error("lock the folder store.path"));
    if let Some(lock) = acquire(Duration::ZERO)? {
        return Ok(lock);
    }
    tracing::info!("another origin is using {}; waiting up to {} s for its end", folder.display(), timeout.as_secs());
    acquire(timeout)?.ok_or_else(|| OriginError::Locked(folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_state_folder_of_an_origin_has_mode_0711_and_an_exclusive_lock() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("state");
        let first = lock(&folder, Duration::ZERO).unwrap();
        assert_eq!(std::fs::metadata(&folder).unwrap().permissions().mode() & 0o7777, 0o711);
        let second = lock(&folder, Duration::ZERO).map(drop);
        assert!(matches!(second, Err(OriginError::Locked(locked)) if locked == folder));
        drop(first);
        assert!(lock(&folder, Duration::ZERO).is_ok());
    }
}
