//! Progress of a job, measured while it runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::source::JobContext;
use docwharf_site::seal::SealProgress;
use docwharf_site::seal::pack::PackProgress;

/// The work of a job, with counters of its progress.
#[derive(Debug)]
pub(super) enum JobProgress {
    /// Pages are being made: checked out, built, or fetched from a server.
    Making(Arc<JobContext>),
    /// A folder is being packed.
    Folder {
        /// The positions of its pages among its files, ascending.
        pages: Vec<usize>,
        /// The size of its content.
        bytes: u64,
        passes: PackProgress,
        /// Whether its pages had to be made first, which was half of the work.
        is_made: bool,
    },
    /// An archive is being copied, then verified.
    Archive { bytes: u64, copied: AtomicU64, proving: SealProgress },
}

impl JobProgress {
    /// Returns the progress from 0 to 99: a running job has not reached 100.
    pub(super) fn progress(&self) -> u64 {
        let part = |done: u64, of: u64| done.min(of).saturating_mul(100).checked_div(of).unwrap_or(0);
        let progress = match self {
            JobProgress::Making(watch) => {
                let (done, known) = watch.pages();
                part(done, known) / 2
            }
            // Compressing takes about as long as reading and verifying together.
            JobProgress::Folder { bytes, passes, is_made, .. } => {
                let [reading, writing, proving] =
                    [&passes.reading, &passes.writing, &passes.proving].map(|meter| part(meter.bytes(), *bytes));
                let progress = (reading + 2 * writing + proving) / 4;
                if *is_made { 50 + progress / 2 } else { progress }
            }
            // The expanded size of a compressed archive is known only once it has been verified.
            JobProgress::Archive { bytes, copied, .. } => part(copied.load(Ordering::Relaxed), *bytes) / 2,
        };
        progress.min(99)
    }

    pub(super) fn pages(&self) -> u64 {
        match self {
            JobProgress::Making(watch) => watch.pages().0,
            JobProgress::Folder { pages, passes, .. } => {
                let files = passes.reading.files();
                pages.partition_point(|&position| (position as u64) < files) as u64
            }
            JobProgress::Archive { .. } => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_grows_with_the_work_and_never_says_that_it_is_done() {
        let archive = |copied| JobProgress::Archive {
            bytes: 10,
            copied: AtomicU64::new(copied),
            proving: SealProgress::default(),
        };
        for (copied, expected) in [(0, 0), (5, 25), (10, 50), (99, 50)] {
            assert_eq!(archive(copied).progress(), expected);
        }
        let folder =
            |is_made| JobProgress::Folder { pages: vec![0, 2], bytes: 0, passes: PackProgress::default(), is_made };
        assert_eq!((folder(false).progress(), folder(true).progress(), folder(false).pages()), (0, 50, 0));
        let watch = Arc::new(JobContext::default());
        let making = JobProgress::Making(Arc::clone(&watch));
        assert_eq!(making.progress(), 0);
        watch.set_known_pages(4);
        watch.count_page();
        assert_eq!((making.progress(), making.pages()), (12, 1));
    }
}
