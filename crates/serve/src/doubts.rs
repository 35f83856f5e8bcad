//! What was found wrong with a version while it was sent: logged once for each version, and verified at once by whoever waits
//! for it.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, PoisonError};

use rustix::io::Errno;
use tokio::sync::Notify;

use docwharf_base::model::version::VersionId;

/// Doubts about versions that are served.
#[derive(Debug, Default)]
pub(crate) struct Doubts {
    is_raised: Notify,
    versions: Mutex<Versions>,
}

#[derive(Debug, Default)]
struct Versions {
    /// Those that nobody has looked at since they were doubted.
    raised: BTreeSet<VersionId>,
    /// Those that the log has a line for.
    logged: BTreeSet<VersionId>,
}

impl Doubts {
    /// Something of one of these versions is not what was sealed; `what` says how that was noticed. The log has one line for
    /// the first of them, however many readers meet the damage.
    pub(crate) fn doubt(&self, versions: &[VersionId], what: &str) {
        let Some(first) = versions.first() else { return };
        let mut all = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        all.raised.extend(versions);
        let is_new = all.logged.insert(*first);
        drop(all);
        if is_new {
            let short = first.short();
            let or_another = if versions.len() > 1 { " or of a replaced version" } else { "" };
            tracing::warn!(
                "cannot send a file of version {short}{or_another}: {what}; unless store.scrub is 0s, `docwharf run` verifies \
                 it now and `docwharf status` shows the result"
            );
        }
        self.is_raised.notify_one();
    }

    /// Waits for a doubt; the versions that were doubted since the last call.
    pub(crate) async fn raised(&self) -> BTreeSet<VersionId> {
        self.is_raised.notified().await;
        std::mem::take(&mut self.versions.lock().unwrap_or_else(PoisonError::into_inner).raised)
    }
}

/// Whether a write to a socket failed because the disk does not give what is to be sent: the kernel answers EFAULT where it
/// cannot read a page of a mapping (write(2)), and EIO where it cannot read a file (sendfile(2)). The peer causes neither.
pub(super) fn is_damage(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::FAULT | Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use docwharf_base::model::digest::Digest;

    #[tokio::test]
    async fn each_doubted_version_is_told_of_until_somebody_has_looked() {
        let doubts = Doubts::default();
        let [one, two] = [b"1", b"2"].map(|content| VersionId(Digest::of(content)));
        doubts.doubt(&[], "nothing is served");
        doubts.doubt(&[one], "a test");
        doubts.doubt(&[one, two], "a test");
        assert_eq!(doubts.raised().await, BTreeSet::from([one, two]));
        doubts.doubt(&[two], "a test");
        assert_eq!(doubts.raised().await, BTreeSet::from([two]));
    }

    #[test]
    fn what_the_disk_does_not_give_is_damage_and_what_a_peer_does_is_none() {
        for (code, expected) in [
            (libc::EFAULT, true),
            (libc::EIO, true),
            (libc::EPIPE, false),
            (libc::ECONNRESET, false),
            (libc::ETIMEDOUT, false),
            (libc::EAGAIN, false),
            (libc::EINVAL, false),
        ] {
            assert_eq!(is_damage(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
        assert!(!is_damage(&io::ErrorKind::WriteZero.into()));
    }
}
