//! The management API and the storage behind it: jobs that take their time, links that expire.

use std::collections::BTreeMap;
use std::time::Duration;

use super::disk::Content;
use super::random::Random;

/// Contents to which sources go back.
const RECENT: usize = 4;

/// How a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Working,
    Completed,
    Failed,
    /// Nobody knows it any more.
    Vanished,
}

#[derive(Debug, Clone)]
pub(crate) struct Job {
    pub(crate) id: String,
    pub(crate) source: String,
    pub(crate) content: Content,
    /// When the agent began to ask for one.
    pub(crate) asked: Duration,
    pub(crate) ends: Duration,
    pub(crate) end: State,
    /// Forward jumps of the wall's clock before it was started.
    pub(crate) jumped: i64,
    /// The agent was told of it and has had the chance to remember it.
    pub(crate) ours: bool,
}

impl Job {
    /// How old it may seem to the agent at most.
    pub(crate) fn age(&self, now: Duration, jumped: i64) -> Duration {
        now.saturating_sub(self.asked) + Duration::from_secs((jumped - self.jumped).unsigned_abs())
    }

    pub(crate) fn state(&self, now: Duration) -> State {
        if self.end == State::Vanished || now >= self.ends { self.end } else { State::Working }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Upstream {
    /// What each source exports under each label (and without one) now.
    pub(crate) published: BTreeMap<(String, Option<String>), Content>,
    /// What lies behind the plain link.
    pub(crate) link: Option<Content>,
    pub(crate) jobs: Vec<Job>,
    /// Links by their number: whose bundle, and until when.
    pub(crate) links: Vec<(usize, Duration)>,
    contents: u64,
    /// The last contents that were written.
    recent: Vec<Content>,
    /// When the agent began to ask for a job, and how far the wall's clock had been put forward by then.
    pub(crate) asking: (Duration, i64),
}

impl Upstream {
    /// Content that was never seen before.
    pub(crate) fn write(&mut self, random: &mut Random, hostile: bool) -> Content {
        self.contents += 1;
        let n = self.contents;
        let content = Content { n, pages: 1 + random.below(20), bytes: 1_000_000 + random.below(9_000_000), hostile };
        self.recent.push(content);
        if self.recent.len() > RECENT {
            self.recent.remove(0);
        }
        content
    }

    /// The same, or what is `active`, or one of the contents that were there not long ago, of whichever source.
    pub(crate) fn write_or_go_back(&mut self, random: &mut Random, active: Option<Content>, hostile: bool) -> Content {
        match active {
            Some(active) if random.happens(0.25) => active,
            _ if !self.recent.is_empty() && random.happens(0.25) => random.pick(&self.recent),
            _ => self.write(random, hostile),
        }
    }

    /// What a source exports.
    pub(crate) fn of(&mut self, source: &str, pin: Option<&str>, random: &mut Random) -> Content {
        let key = (source.to_owned(), pin.map(str::to_owned));
        if let Some(&content) = self.published.get(&key) {
            return content;
        }
        let content = self.write(random, false);
        self.published.insert(key, content);
        content
    }

    pub(crate) fn start(
        &mut self,
        source: &str,
        pin: Option<&str>,
        now: Duration,
        calm: bool,
        random: &mut Random,
    ) -> usize {
        let content = self.of(source, pin, random);
        let took = Duration::from_secs(match random.below(10) {
            0 => 0,
            1..=7 => random.below(40),
            8 => random.below(600),
            _ if calm => 60,
            _ => random.below(20_000),
        });
        let end = if !calm && random.happens(0.1) { State::Failed } else { State::Completed };
        let id = format!("job/{}", self.jobs.len());
        let ((asked, jumped), ends) = (self.asking, now + took);
        self.jobs.push(Job { id, source: source.to_owned(), content, asked, ends, end, jumped, ours: false });
        self.jobs.len() - 1
    }

    pub(crate) fn job(&self, id: &str) -> Option<usize> {
        self.jobs.iter().rposition(|job| job.id == id)
    }
}
