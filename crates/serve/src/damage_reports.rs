//! Reports of damage: a file of a version could not be sent as it was sealed. The first report of each version is
//! logged, and every report wakes the task that verifies the stored version again.

use std::collections::BTreeSet;
use std::io;

use rustix::io::Errno;
use tokio::sync::Notify;

use docwharf_base::locks::Mutex;
use docwharf_base::model::version::VersionId;

/// The versions that are reported as damaged.
#[derive(Debug, Default)]
pub(crate) struct DamageReports {
    new_report: Notify,
    versions: Mutex<ReportedVersions>,
}

#[derive(Debug, Default)]
struct ReportedVersions {
    /// The versions reported since the last call of [`DamageReports::wait_for_report`].
    reported: BTreeSet<VersionId>,
    /// The versions for which a line was logged.
    logged: BTreeSet<VersionId>,
}

impl DamageReports {
    /// Reports that a file of one of these versions is not what was sealed, for this `reason`. The log gets one line
    /// for the first of the versions, however many requests are affected.
    pub(crate) fn report(&self, versions: &[VersionId], reason: &str) {
        let Some(first) = versions.first() else { return };
        let mut reports = self.versions.lock();
        reports.reported.extend(versions);
        let is_new = reports.logged.insert(*first);
        drop(reports);
        if is_new {
            let short = first.short();
            let or_another = if versions.len() > 1 { " or of a replaced version" } else { "" };
            tracing::warn!(
                "cannot send a file of version {short}{or_another}: {reason}; unless store.scrub is 0s, `docwharf run` verifies \
                 it now and `docwharf status` shows the result"
            );
        }
        self.new_report.notify_one();
    }

    /// Waits for a report and returns the versions reported since the last call.
    pub(crate) async fn wait_for_report(&self) -> BTreeSet<VersionId> {
        self.new_report.notified().await;
        std::mem::take(&mut self.versions.lock().reported)
    }
}

/// Returns whether writing to a socket failed because the disk could not be read: the kernel returns EFAULT if it
/// cannot read a page of a mapping (write(2)), and EIO if it cannot read a file (sendfile(2)). The peer can cause
/// neither.
pub(super) fn is_read_error(error: &io::Error) -> bool {
    matches!(Errno::from_io_error(error), Some(Errno::FAULT | Errno::IO))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use docwharf_base::model::digest::Digest;
    use tracing::span;

    /// Counts the lines that are logged.
    #[derive(Debug, Default)]
    struct LineCounter(AtomicUsize);

    impl tracing::Subscriber for LineCounter {
        fn enabled(&self, _: &tracing::Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }

        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

        fn event(&self, _: &tracing::Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }

        fn enter(&self, _: &span::Id) {}

        fn exit(&self, _: &span::Id) {}
    }

    #[test]
    fn the_log_has_one_line_for_each_version_however_often_its_damage_is_reported() {
        let (reports, counter) = (DamageReports::default(), Arc::<LineCounter>::default());
        let [one, two] = [b"1", b"2"].map(|content| VersionId(Digest::compute(content)));
        // With a single dispatcher, tracing asks the thread that logs a line first whether the line is needed. That may
        // be the thread of another test, which needs none. With a second dispatcher, it asks both of them.
        let _second = tracing::Dispatch::new(LineCounter::default());
        tracing::subscriber::with_default(Arc::clone(&counter), || {
            for (versions, lines) in [(&[one][..], 1), (&[one], 1), (&[one, two], 1), (&[two, one], 2), (&[], 2)] {
                reports.report(versions, "a test");
                assert_eq!(counter.0.load(Ordering::Relaxed), lines, "{versions:?}");
            }
        });
    }

    #[tokio::test]
    async fn damage_reports_return_each_reported_version_once() {
        let reports = DamageReports::default();
        let [one, two] = [b"1", b"2"].map(|content| VersionId(Digest::compute(content)));
        reports.report(&[], "nothing is served");
        reports.report(&[one], "a test");
        reports.report(&[one, two], "a test");
        assert_eq!(reports.wait_for_report().await, BTreeSet::from([one, two]));
        reports.report(&[two], "a test");
        assert_eq!(reports.wait_for_report().await, BTreeSet::from([two]));
    }

    #[test]
    fn read_errors_of_the_disk_are_damage_and_socket_errors_are_not() {
        for (code, expected) in [
            (libc::EFAULT, true),
            (libc::EIO, true),
            (libc::EPIPE, false),
            (libc::ECONNRESET, false),
            (libc::ETIMEDOUT, false),
            (libc::EAGAIN, false),
            (libc::EINVAL, false),
        ] {
            assert_eq!(is_read_error(&io::Error::from_raw_os_error(code)), expected, "{code}");
        }
        assert!(!is_read_error(&io::ErrorKind::WriteZero.into()));
    }
}
