//! Scrub: verifies that a stored version has not changed since it was sealed. It reads every byte again, slowly, while
//! the site is served.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use rustix::io::Errno;

use crate::store::operations::StoreOperations;
use crate::store::writer::StoreWriter;
use crate::store::{IMAGE, VersionStore};
use docwharf_base::directory::FileId;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::model::limits::BundleLimits;
use docwharf_base::model::site_path::SitePath;
use docwharf_base::model::version::VersionId;
use docwharf_site::index::IndexEntry;
use docwharf_site::seal::{SealError, SealOptions, VerifiedBundle, verify_slowly};

use super::open;
use super::stored_index::read_index;

/// Bytes of content read per second. One core verifies ten times as many, so a scrub takes a tenth of a core.
const MAX_BYTES_PER_SECOND: u64 = 32 << 20;
/// Lower bound of a sleep: a shorter one costs more than it saves.
const MIN_SLEEP: Duration = Duration::from_millis(20);

/// The result of a scrub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScrubResult {
    /// The version is undamaged.
    Undamaged,
    /// The image is undamaged, but the index was not: it has been rebuilt. A version that is open should be opened
    /// again.
    IndexRebuilt,
    /// The version is damaged, for this reason.
    Damaged(String),
    /// The version has been removed or replaced meanwhile.
    Removed,
}

/// Verifies a version and records the result: a mark for a damaged one, the time for an undamaged one. An error means
/// that the version was not verified. A result that cannot be recorded is returned all the same: a disk that fails
/// often refuses writes.
pub fn scrub(writer: &StoreWriter, id: VersionId) -> io::Result<ScrubResult> {
    let result = verify_image(writer, id)?;
    let recorded = match &result {
        ScrubResult::Undamaged | ScrubResult::IndexRebuilt => {
            writer.clear_damage_mark(id).and_then(|()| writer.note_verified(id))
        }
        ScrubResult::Damaged(_) => writer.mark_damaged(id),
        ScrubResult::Removed => Ok(()),
    };
    if let Err(error) = recorded {
        tracing::warn!("{}; version {} is verified again earlier than necessary", ErrorChain(&error), id.short());
    }
    Ok(result)
}

fn verify_image(writer: &StoreWriter, id: VersionId) -> io::Result<ScrubResult> {
    let store = writer.store();
    let path = store.version_dir(id).join(IMAGE);
    let opened = none_if_missing(store.image(id).and_then(|image| image.metadata().map(|metadata| (image, metadata))));
    let (image, metadata) = match opened {
        Ok(Some(opened)) => opened,
        Ok(None) => return Ok(ScrubResult::Removed),
        Err(error) if is_data_loss(&error) => {
            return Ok(ScrubResult::Damaged(format!("its image cannot be opened: {error}")));
        }
        Err(error) => return Err(error),
    };
    // Prevents pruning of the version meanwhile, where files can be locked and no other process has locked this one.
    let _ = flock(&image, FlockOperation::NonBlockingLockShared);
    // Removes the file from the page cache, so that it is read from the disk. Mapped pages stay in the cache.
    let _ = fadvise(&image, 0, None, Advice::DontNeed);
    let verified = verify_slowly(image.into_file(), &path, &mut throttle());
    let mut undamaged = ScrubResult::Undamaged;
    let damage = match verified {
        Ok(verified) if verified.id != id => Some("its content does not match its id".to_owned()),
        Ok(verified) if index_matches(store, &verified) => None,
        Ok(_) => {
            // A damaged index can be rebuilt.
            tracing::warn!("the index of version {} does not match its image; it is rebuilt", id.short());
            let seal_options = SealOptions { threads: 1, ..SealOptions::new(BundleLimits::default()) };
            open::open(writer, id, &seal_options, true).map_err(io::Error::other)?;
            undamaged = ScrubResult::IndexRebuilt;
            None
        }
        Err(SealError::Read { source, .. }) if !is_data_loss(&source) => return Err(source),
        Err(error) => Some(ErrorChain(&error).to_string()),
    };
    // If the version was replaced or pruned meanwhile, the result is about another file.
    let is_still_stored = none_if_missing(store.image(id).and_then(|image| image.metadata()))?
        .is_some_and(|now| FileId::from_metadata(&now) == FileId::from_metadata(&metadata));
    Ok(match damage {
        _ if !is_still_stored => ScrubResult::Removed,
        Some(why) => ScrubResult::Damaged(why),
        None => undamaged,
    })
}

/// Whether a version's index exists and matches the verified image.
fn index_matches(store: &VersionStore, verified: &VerifiedBundle) -> bool {
    let Ok(index) = read_index(store, verified.id) else { return false };
    let matches = |(i, (path, entry)): (usize, &(SitePath, IndexEntry))| {
        // Dates are not in the image.
        let indexed = IndexEntry { modified: entry.modified, ..index.entry(i) };
        index.path(i) == path.as_bytes() && indexed == *entry
    };
    index.len() == verified.files.len() && verified.files.iter().enumerate().all(matches)
}

/// Whether the error means that the disk has lost data; any other error may be temporary.
fn is_data_loss(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(errno, Some(Errno::IO | Errno::BADMSG | Errno::UCLEAN)) || error.kind() == io::ErrorKind::UnexpectedEof
}

fn none_if_missing<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Sleeps so that reading is no faster than [`MAX_BYTES_PER_SECOND`].
struct ReadThrottle {
    start: Instant,
    bytes: u64,
}

fn throttle() -> impl FnMut(u64) {
    let mut throttle = ReadThrottle { start: Instant::now(), bytes: 0 };
    move |bytes| throttle.after_read(bytes)
}

impl ReadThrottle {
    fn after_read(&mut self, bytes: u64) {
        self.bytes += bytes;
        let due = Duration::from_millis(self.bytes.saturating_mul(1000) / MAX_BYTES_PER_SECOND);
        let pause = due.saturating_sub(self.start.elapsed());
        if pause >= MIN_SLEEP {
            thread::sleep(pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_loss_includes_permanent_read_errors_and_no_temporary_ones() {
        let error = |errno: Errno| io::Error::from(errno);
        for errno in [Errno::IO, Errno::BADMSG, Errno::UCLEAN] {
            assert!(is_data_loss(&error(errno)), "{errno}");
        }
        assert!(is_data_loss(&io::ErrorKind::UnexpectedEof.into()), "a truncated file");
        for errno in [Errno::ACCESS, Errno::MFILE, Errno::NOMEM, Errno::INTR, Errno::STALE, Errno::NOENT] {
            assert!(!is_data_loss(&error(errno)), "{errno}");
        }
        assert_eq!(none_if_missing(Ok(7)).unwrap(), Some(7));
        assert_eq!(none_if_missing::<u8>(Err(error(Errno::NOENT))).unwrap(), None);
        assert!(none_if_missing::<u8>(Err(error(Errno::ACCESS))).is_err());
    }
}
