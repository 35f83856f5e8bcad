//! The management API and the storage behind it: jobs that need time, links that expire.

use std::collections::BTreeMap;
use std::time::Duration;

use super::disk::Content;
use super::random::Random;

/// Number of recent contents to which sources return.
const RECENT_CONTENTS: usize = 4;

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Working,
    Completed,
    Failed,
    /// The API does not know it any more.
    Vanished,
}

/// An export job.
#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) content: Content,
    /// When the agent began to request the job.
    pub(crate) requested: Duration,
    pub(crate) ends_at: Duration,
    pub(crate) end_state: State,
    /// Forward adjustments of the wall clock before the job was started.
    pub(crate) clock_advanced: i64,
    /// Whether the agent has received the job's id, and so must not start another job.
    pub(crate) is_known_to_agent: bool,
}

impl Job {
    /// Returns the largest age that the agent can compute for the job.
    pub(crate) fn max_age(&self, now: Duration, clock_advanced: i64) -> Duration {
        now.saturating_sub(self.requested) + Duration::from_secs((clock_advanced - self.clock_advanced).unsigned_abs())
    }

    pub(crate) fn state(&self, now: Duration) -> State {
        if self.end_state == State::Vanished || now >= self.ends_at { self.end_state } else { State::Working }
    }
}

/// The state of the API and the storage.
#[derive(Debug, Default)]
pub(crate) struct Upstream {
    /// The content that each source exports now, for each label and without one.
    pub(crate) published: BTreeMap<(String, Option<String>), Content>,
    /// The content of the plain link.
    pub(crate) link: Option<Content>,
    pub(crate) jobs: Vec<Job>,
    /// Links by their number: index of the job, and time of expiry.
    pub(crate) links: Vec<(usize, Duration)>,
    contents: u64,
    /// The last contents that were written.
    recent: Vec<Content>,
    /// When the agent began to request a job, and the sum of the clock's forward adjustments then.
    pub(crate) job_request: (Duration, i64),
}

impl Upstream {
    /// Creates new content.
    pub(crate) fn create_content(&mut self, random: &mut Random, hostile: bool) -> Content {
        self.contents += 1;
        let n = self.contents;
        let content = Content { n, pages: 1 + random.below(20), bytes: 1_000_000 + random.below(9_000_000), hostile };
        self.recent.push(content);
        if self.recent.len() > RECENT_CONTENTS {
            self.recent.remove(0);
        }
        content
    }

    /// Creates new content, or returns the `active` one or one of the recent contents of any source.
    pub(crate) fn create_or_reuse_content(
        &mut self,
        random: &mut Random,
        active: Option<Content>,
        hostile: bool,
    ) -> Content {
        match active {
            Some(active) if random.happens(0.25) => active,
            _ if !self.recent.is_empty() && random.happens(0.25) => random.pick(&self.recent),
            _ => self.create_content(random, hostile),
        }
    }

    /// Returns the content that a source exports.
    pub(crate) fn content_of(&mut self, source: &str, pin: Option<&str>, random: &mut Random) -> Content {
        let key = (source.to_owned(), pin.map(str::to_owned));
        if let Some(&content) = self.published.get(&key) {
            return content;
        }
        let content = self.create_content(random, false);
        self.published.insert(key, content);
        content
    }

    /// Starts a job; returns its index.
    pub(crate) fn start_job(
        &mut self,
        source: &str,
        pin: Option<&str>,
        now: Duration,
        has_no_faults: bool,
        random: &mut Random,
    ) -> usize {
        let content = self.content_of(source, pin, random);
        let duration = Duration::from_secs(match random.below(10) {
            0 => 0,
            1..=7 => random.below(40),
            8 => random.below(600),
            _ if has_no_faults => 60,
            _ => random.below(20_000),
        });
        let end_state = if !has_no_faults && random.happens(0.1) { State::Failed } else { State::Completed };
        let id = format!("job/{}", self.jobs.len());
        let ((requested, clock_advanced), ends_at) = (self.job_request, now + duration);
        self.jobs.push(Job {
            id,
            source: source.to_owned(),
            content,
            requested,
            ends_at,
            end_state,
            clock_advanced,
            is_known_to_agent: false,
        });
        self.jobs.len() - 1
    }

    /// Returns the index of a job.
    pub(crate) fn find_job(&self, id: &str) -> Option<usize> {
        self.jobs.iter().rposition(|job| job.id == id)
    }
}
