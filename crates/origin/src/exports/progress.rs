//! Progress of a job, measured while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::JobContext;
use docwharf_site::seal::SealProgress;
use docwharf_site::seal::pack::PackProgress;

/// The current step of a job, with counters of its progress.
#[derive(Debug)]
pub(super) enum JobProgress {
    /// Pages are being made: checked out, built, or fetched from a server.
    MakingPages(Arc<JobContext>),
    /// A folder is being packed.
    PackingFolder {
        /// The positions of its pages among its files, ascending.
        pages: Vec<usize>,
        /// The size of its content.
        bytes: u64,
        passes: PackProgress,
        /// Whether the job had to make the pages first, which is the first half of its progress.
        has_made_pages: bool,
    },
    /// An archive is being copied, then verified.
    CopyingArchive { bytes: u64, copied: AtomicU64, verifying: SealProgress },
}

impl JobProgress {
    /// Returns the progress from 0 to 99: a running job has not reached 100.
    pub(super) fn percent(&self) -> u64 {
        let percent = |done: u64, total: u64| done.min(total).saturating_mul(100).checked_div(total).unwrap_or(0);
        let progress = match self {
            JobProgress::MakingPages(context) => {
                let (done, total) = context.pages();
                percent(done, total) / 2
            }
            // Compressing takes about as long as reading and verifying together.
            JobProgress::PackingFolder { bytes, passes, has_made_pages, .. } => {
                let [reading, writing, verifying] =
                    [&passes.reading, &passes.writing, &passes.verifying].map(|meter| percent(meter.bytes(), *bytes));
                let progress = (reading + 2 * writing + verifying) / 4;
                if *has_made_pages { 50 + progress / 2 } else { progress }
            }
            // The expanded size of a compressed archive is unknown until it has been verified.
            JobProgress::CopyingArchive { bytes, copied, .. } => percent(copied.load(Ordering::Relaxed), *bytes) / 2,
        };
        progress.min(99)
    }

    /// Returns the number of pages that are finished.
    pub(super) fn pages(&self) -> u64 {
        match self {
            JobProgress::MakingPages(context) => context.pages().0,
            JobProgress::PackingFolder { pages, passes, .. } => {
                let files = passes.reading.files();
                pages.partition_point(|&position| (position as u64) < files) as u64
            }
            JobProgress::CopyingArchive { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn export_job_progress_grows_with_bytes_and_pages_and_stays_below_100_percent() {
        let archive = |copied| JobProgress::CopyingArchive {
            bytes: 10,
            copied: AtomicU64::new(copied),
            verifying: SealProgress::default(),
        };
        for (copied, expected) in [(0, 0), (5, 25), (10, 50), (99, 50)] {
            assert_eq!(archive(copied).percent(), expected);
        }
        let folder = |has_made_pages| JobProgress::PackingFolder {
            pages: vec![0, 2],
            bytes: 0,
            passes: PackProgress::default(),
            has_made_pages,
        };
        assert_eq!((folder(false).percent(), folder(true).percent(), folder(false).pages()), (0, 50, 0));
        let context = Arc::new(JobContext::default());
        let making = JobProgress::MakingPages(Arc::clone(&context));
        assert_eq!(making.percent(), 0);
        context.set_known_pages(4);
        context.count_page();
        assert_eq!((making.percent(), making.pages()), (12, 1));
    }
}
