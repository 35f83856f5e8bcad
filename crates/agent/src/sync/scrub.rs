//! Scrub: verifies that a stored version is still what was sealed. It reads every byte again, slowly, beside serving.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FlockOperation, fadvise, flock};
use rustix::io::Errno;

use crate::store::operations::StoreOperations;
use crate::store::writer::StoreWriter;
use crate::store::{IMAGE, VersionStore};
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
/// Shortest sleep: shorter ones cost more than they spare.
const MIN_SLEEP: Duration = Duration::from_millis(20);

/// The result of a scrub.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScrubResult {
    /// The version is undamaged.
    Whole,
    /// The image is undamaged, but the index was not: it has been rebuilt, and the version should be opened again where
    /// it is open.
    Mended,
    /// The version is damaged, for this reason.
    Damaged(String),
    /// The version has been removed or replaced meanwhile.
    Gone,
}

/// Verifies a version and records the result: a mark for a damaged one, the time for an undamaged one. An error says
/// nothing about the version. A result that cannot be recorded counts all the same: a disk that fails often takes no
/// more writes.
pub fn scrub(writer: &StoreWriter, id: VersionId) -> io::Result<ScrubResult> {
    let verdict = verify_image(writer, id)?;
    let kept = match &verdict {
        ScrubResult::Whole | ScrubResult::Mended => writer.clear_suspect(id).and_then(|()| writer.note_verified(id)),
        ScrubResult::Damaged(_) => writer.mark_suspect(id),
        ScrubResult::Gone => Ok(()),
    };
    if let Err(error) = kept {
        tracing::warn!("{}; version {} is read again sooner than needed", ErrorChain(&error), id.short());
    }
    Ok(verdict)
}

fn verify_image(writer: &StoreWriter, id: VersionId) -> io::Result<ScrubResult> {
    let store = writer.store();
    let path = store.version_dir(id).join(IMAGE);
    let opened = there(store.image(id).and_then(|image| image.metadata().map(|about| (image, about))));
    let (image, about) = match opened {
        Ok(Some(opened)) => opened,
        Ok(None) => return Ok(ScrubResult::Gone),
        Err(error) if is_rot(&error) => {
            return Ok(ScrubResult::Damaged(format!("its image cannot be opened: {error}")));
        }
        Err(error) => return Err(error),
    };
    // Keeps the version from being pruned meanwhile, where files can be locked and no other process has done so.
    let _ = flock(&image, FlockOperation::NonBlockingLockShared);
    // Drops the file from the page cache, so that it is read from the disk. Pages that are mapped stay.
    let _ = fadvise(&image, 0, None, Advice::DontNeed);
    let verified = verify_slowly(image.into_file(), &path, &mut pace());
    let mut whole = ScrubResult::Whole;
    let damage = match verified {
        Ok(verified) if verified.id != id => Some("it holds another content".to_owned()),
        Ok(verified) if fits(store, &verified) => None,
        Ok(_) => {
            // A damaged index is no loss: it can be rebuilt.
            tracing::warn!("the index of version {} does not match its image; it is made again", id.short());
            let effort = SealOptions { threads: 1, ..SealOptions::new(BundleLimits::default()) };
            open::open(writer, id, &effort, true).map_err(io::Error::other)?;
            whole = ScrubResult::Mended;
            None
        }
        Err(SealError::Read { source, .. }) if !is_rot(&source) => return Err(source),
        Err(error) => Some(ErrorChain(&error).to_string()),
    };
    // A version that was replaced or pruned meanwhile is not the one that was read.
    let still = there(store.image(id).and_then(|image| image.metadata()))?.is_some_and(|now| is_same(&about, &now));
    Ok(match damage {
        _ if !still => ScrubResult::Gone,
        Some(why) => ScrubResult::Damaged(why),
        None => whole,
    })
}

/// Whether a version's index exists and matches the verified image.
fn fits(store: &VersionStore, verified: &VerifiedBundle) -> bool {
    let Ok(index) = read_index(store, verified.id) else { return false };
    let tells = |(i, (path, entry)): (usize, &(SitePath, IndexEntry))| {
        // Dates are not in the image.
        let known = IndexEntry { modified: entry.modified, ..index.entry(i) };
        index.path(i) == path.as_bytes() && known == *entry
    };
    index.len() == verified.files.len() && verified.files.iter().enumerate().all(tells)
}

/// Whether the error says that the disk has lost data; any other error may pass.
fn is_rot(error: &io::Error) -> bool {
    let said = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(said, Some(Errno::IO | Errno::BADMSG | Errno::UCLEAN)) || error.kind() == io::ErrorKind::UnexpectedEof
}

fn there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_same(a: &Metadata, b: &Metadata) -> bool {
    (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// Sleeps so that reading is no faster than [`MAX_BYTES_PER_SECOND`].
struct ReadThrottle {
    began: Instant,
    bytes: u64,
}

fn pace() -> impl FnMut(u64) {
    let mut pace = ReadThrottle { began: Instant::now(), bytes: 0 };
    move |bytes| pace.after(bytes)
}

impl ReadThrottle {
    fn after(&mut self, bytes: u64) {
        self.bytes += bytes;
        let due = Duration::from_millis(self.bytes.saturating_mul(1000) / MAX_BYTES_PER_SECOND);
        let ahead = due.saturating_sub(self.began.elapsed());
        if ahead >= MIN_SLEEP {
            thread::sleep(ahead);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rot_is_what_a_disk_has_lost_and_nothing_that_may_be_over_in_a_moment() {
        let said = |errno: Errno| io::Error::from(errno);
        for errno in [Errno::IO, Errno::BADMSG, Errno::UCLEAN] {
            assert!(is_rot(&said(errno)), "{errno}");
        }
        assert!(is_rot(&io::ErrorKind::UnexpectedEof.into()), "a file that is shorter than it was");
        for errno in [Errno::ACCESS, Errno::MFILE, Errno::NOMEM, Errno::INTR, Errno::STALE, Errno::NOENT] {
            assert!(!is_rot(&said(errno)), "{errno}");
        }
        assert_eq!(there(Ok(7)).unwrap(), Some(7));
        assert_eq!(there::<u8>(Err(said(Errno::NOENT))).unwrap(), None);
        assert!(there::<u8>(Err(said(Errno::ACCESS))).is_err());
    }
}
