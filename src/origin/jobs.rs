//! Jobs: what was asked for, in which order, and what became of it.
//!
//! A job is queued, then running, then completed or failed; nothing leads back. One thread takes them from the queue in
//! order. The queue is bounded, and only the newest finished jobs are kept, so that no client can fill memory or disk.

use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use serde::Serialize;

use crate::bundle::Kind;
use crate::model::digest::{Digest, hex};
use crate::model::units::show_time;
use crate::model::version::Label;
use crate::seal::Meter;
use crate::seal::pack::Passes;

use super::{Domain, random};

/// Jobs that may wait.
const QUEUE: usize = 64;
/// Finished jobs that are remembered, with their archives.
const KEPT: usize = 32;

/// An archive that is handed out: an open file, whether or not it still has a name.
#[derive(Debug)]
pub(super) struct Archive {
    pub(super) file: Arc<File>,
    pub(super) kind: Kind,
    pub(super) digest: Digest,
    pub(super) len: u64,
    /// When it was made, in seconds since 1970.
    pub(super) made: i64,
}

impl Archive {
    /// The last component of its link.
    pub(super) fn name(&self) -> String {
        format!("bundle.{}", self.kind.name())
    }
}

/// What a job's work amounts to, counted while it is done.
#[derive(Debug)]
pub(super) enum Live {
    /// A folder is packed.
    Folder {
        /// The positions of its pages among its files, ascending.
        pages: Vec<usize>,
        /// Its content.
        bytes: u64,
        passes: Passes,
    },
    /// An archive is copied, then proved.
    Archive { bytes: u64, copied: AtomicU64, proving: Meter },
}

impl Live {
    /// From 0 to 99: a job that is running is not done.
    fn progress(&self) -> u64 {
        let part = |done: u64, of: u64| done.min(of).saturating_mul(100).checked_div(of).unwrap_or(0);
        let progress = match self {
            // Compressing takes about as long as reading and proving together.
            Live::Folder { bytes, passes, .. } => {
                let [reading, writing, proving] =
                    [&passes.reading, &passes.writing, &passes.proving].map(|meter| part(meter.bytes(), *bytes));
                (reading + 2 * writing + proving) / 4
            }
            // What a compressed archive expands to is known when it has been proved.
            Live::Archive { bytes, copied, .. } => part(copied.load(Ordering::Relaxed), *bytes) / 2,
        };
        progress.min(99)
    }

    fn pages(&self) -> u64 {
        match self {
            Live::Folder { pages, passes, .. } => {
                let files = passes.reading.files();
                pages.partition_point(|&position| (position as u64) < files) as u64
            }
            Live::Archive { .. } => 0,
        }
    }
}

#[derive(Debug)]
enum State {
    Queued,
    Running(Arc<Live>),
    Completed(Arc<Archive>),
    Failed(String),
}

#[derive(Debug)]
struct Job {
    domain: Domain,
    version: Option<Label>,
    state: State,
    progress: u64,
    pages: u64,
    created: SystemTime,
    updated: SystemTime,
}

impl Job {
    /// Takes over what has been done since somebody last asked.
    fn refresh(&mut self) {
        if let State::Running(live) = &self.state {
            let now = (live.progress(), live.pages());
            if now != (self.progress, self.pages) {
                (self.progress, self.pages) = now;
                self.updated = SystemTime::now();
            }
        }
    }

    fn turn(&mut self, state: State) {
        self.state = state;
        self.updated = SystemTime::now();
    }

    fn show(&self, id: &str) -> Shown {
        Shown {
            job_id: id.to_owned(),
            domain: self.domain.to_string(),
            version: self.version.clone(),
            status: self.status(),
            progress: self.progress,
            page_count: self.pages,
            created_at: show_time(self.created),
            updated_at: show_time(self.updated),
            error: if let State::Failed(why) = &self.state { Some(why.clone()) } else { None },
        }
    }

    fn status(&self) -> &'static str {
        match self.state {
            State::Queued => "queued",
            State::Running(_) => "running",
            State::Completed(_) => "completed",
            State::Failed(_) => "failed",
        }
    }
}

/// A job as clients see it.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Shown {
    pub(super) job_id: String,
    domain: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Label>,
    status: &'static str,
    progress: u64,
    page_count: u64,
    created_at: String,
    updated_at: String,
    error: Option<String>,
}

/// Why a job is not started.
#[derive(Debug)]
pub(super) enum NotStarted {
    /// Too many are waiting.
    Full,
    /// It cannot be given an id.
    NoId(io::Error),
}

/// What there is of a job to hand out.
#[derive(Debug)]
pub(super) enum Bundle {
    /// Never heard of it, or no longer.
    Unknown,
    /// It is in this state.
    NotThere(&'static str),
    /// This.
    There(Arc<Archive>),
}

#[derive(Debug, Default)]
struct Table {
    jobs: HashMap<String, Job>,
    queue: VecDeque<String>,
    /// Oldest first.
    finished: VecDeque<String>,
    closed: bool,
}

/// All jobs of the process.
#[derive(Debug, Default)]
pub(super) struct Jobs {
    table: Mutex<Table>,
    wake: Condvar,
}

impl Jobs {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Nothing in here panics half-way through a change.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a job.
    pub(super) fn start(&self, domain: Domain, version: Option<Label>) -> Result<Shown, NotStarted> {
        let id = format!("se_{}", hex(&random::<8>().map_err(NotStarted::NoId)?));
        let now = SystemTime::now();
        let job = Job { domain, version, state: State::Queued, progress: 0, pages: 0, created: now, updated: now };
        let shown = job.show(&id);
        let mut table = self.table();
        if table.queue.len() >= QUEUE {
            return Err(NotStarted::Full);
        }
        table.jobs.insert(id.clone(), job);
        table.queue.push_back(id);
        self.wake.notify_one();
        Ok(shown)
    }

    /// The job as it is now.
    pub(super) fn show(&self, id: &str) -> Option<Shown> {
        let mut table = self.table();
        let job = table.jobs.get_mut(id)?;
        job.refresh();
        Some(job.show(id))
    }

    /// What there is to hand out.
    pub(super) fn bundle(&self, id: &str) -> Bundle {
        match self.table().jobs.get(id) {
            None => Bundle::Unknown,
            Some(Job { state: State::Completed(archive), .. }) => Bundle::There(Arc::clone(archive)),
            Some(job) => Bundle::NotThere(job.status()),
        }
    }

    /// Waits for the next job; none once it is closed.
    pub(super) fn next(&self) -> Option<(String, Domain)> {
        let mut table = self.table();
        loop {
            if table.closed {
                return None;
            }
            if let Some(id) = table.queue.pop_front()
                && let Some(domain) = table.jobs.get(&id).map(|job| job.domain.clone())
            {
                return Some((id, domain));
            }
            table = self.wake.wait(table).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The job is being done, and `live` counts how far.
    pub(super) fn running(&self, id: &str, live: Arc<Live>) {
        if let Some(job) = self.table().jobs.get_mut(id) {
            job.turn(State::Running(live));
        }
    }

    /// The job is done: an archive and its pages, or why there is none.
    pub(super) fn finish(&self, id: &str, made: Result<(Archive, u64), String>) {
        let mut table = self.table();
        if let Some(job) = table.jobs.get_mut(id) {
            job.refresh();
            match made {
                Ok((archive, pages)) => {
                    (job.progress, job.pages) = (100, pages);
                    job.turn(State::Completed(Arc::new(archive)));
                }
                Err(why) => job.turn(State::Failed(why)),
            }
            table.finished.push_back(id.to_owned());
        }
        while table.finished.len() > KEPT {
            // A download of its archive that has begun still ends well: it holds the open file.
            if let Some(oldest) = table.finished.pop_front() {
                table.jobs.remove(&oldest);
            }
        }
    }

    /// No job begins from now on.
    pub(super) fn close(&self) {
        self.table().closed = true;
        self.wake.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn domain() -> Domain {
        Domain::parse("docs.example").unwrap()
    }

    fn archive() -> (Archive, u64) {
        let file = Arc::new(tempfile::tempfile().unwrap());
        (Archive { file, kind: Kind::TarGz, digest: Digest::of(b""), len: 0, made: 0 }, 3)
    }

    #[test]
    fn only_so_many_jobs_wait() {
        let jobs = Jobs::default();
        for _ in 0..QUEUE {
            jobs.start(domain(), None).unwrap();
        }
        assert!(matches!(jobs.start(domain(), None), Err(NotStarted::Full)));
        jobs.next().unwrap();
        jobs.start(domain(), None).unwrap();
    }

    #[test]
    fn only_the_newest_finished_jobs_are_kept() {
        let jobs = Jobs::default();
        let mut ids = Vec::new();
        for n in 0..KEPT + 2 {
            ids.push(jobs.start(domain(), None).unwrap().job_id);
            let (id, _) = jobs.next().unwrap();
            assert_eq!(id, ids[n]);
            jobs.finish(&id, if n % 2 == 0 { Ok(archive()) } else { Err("no".to_owned()) });
        }
        assert!(jobs.show(&ids[0]).is_none() && jobs.show(&ids[1]).is_none());
        assert!(matches!(jobs.bundle(&ids[0]), Bundle::Unknown));
        assert!(matches!(jobs.bundle(&ids[2]), Bundle::There(_)));
        assert!(matches!(jobs.bundle(&ids[3]), Bundle::NotThere("failed")));
        assert_eq!(jobs.table().jobs.len(), KEPT);
    }

    #[test]
    fn progress_grows_with_the_work_and_ends_with_the_job() {
        let live = Arc::new(Live::Archive { bytes: 10, copied: AtomicU64::new(0), proving: Meter::default() });
        let jobs = Jobs::default();
        let id = jobs.start(domain(), None).unwrap().job_id;
        jobs.next().unwrap();
        jobs.running(&id, Arc::clone(&live));
        for (copied, expected) in [(0, 0), (5, 25), (10, 50), (99, 50)] {
            if let Live::Archive { copied: so_far, .. } = &*live {
                so_far.store(copied, Ordering::Relaxed);
            }
            let shown = jobs.show(&id).unwrap();
            assert_eq!((shown.status, shown.progress), ("running", expected));
        }
        jobs.finish(&id, Ok(archive()));
        let shown = jobs.show(&id).unwrap();
        assert_eq!((shown.status, shown.progress, shown.page_count), ("completed", 100, 3));
        let empty = Live::Folder { pages: vec![0, 2], bytes: 0, passes: Passes::default() };
        assert_eq!((empty.progress(), empty.pages()), (0, 0));
    }
}
