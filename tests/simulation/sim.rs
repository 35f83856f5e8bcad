//! The simulated machine: its clocks, what may go wrong, and what every effect has in common.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use docwharf::model::digest::Digest;
use docwharf::model::version::VersionId;
use docwharf::sync::SyncIntent;
use docwharf::sync::scheduler::ClockReading;
use tokio::time::Instant;

use super::daemon::Daemon;
use super::disk::{Content, Disk};
use super::meddling::Weather;
use super::random::Random;
use super::rules::Rules;
use super::upstream::Upstream;

/// So many of the last operations are told after a failure.
const TRACE: usize = 60;

/// The process has died; with the machine, if `power` is gone.
pub(crate) struct Crash {
    pub(crate) power: bool,
}

/// A promise was broken.
pub(crate) struct Broken(pub(crate) String);

/// How much goes wrong.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    /// Nothing does, and the operator leaves everything alone.
    pub(crate) calm: bool,
    /// The process dies, at any effect.
    pub(crate) crash: f64,
    /// A call has no good answer.
    pub(crate) call: f64,
    /// A write fails.
    pub(crate) disk: f64,
    /// Somebody does something meanwhile.
    pub(crate) meddling: f64,
}

impl Faults {
    pub(crate) const NONE: Faults = Faults { calm: true, crash: 0.0, call: 0.0, disk: 0.0, meddling: 0.0 };
}

/// Who acts at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    /// A start, or nobody.
    Daemon,
    /// A sync, an import, what follows a release; whether what is due passes the gate unasked.
    Work { force: bool },
    /// A person who says what is to be so.
    Operator,
    /// A person who has ended a hold: what is due now is due by the rules, as in any work.
    Releasing,
}

impl Actor {
    /// Whether an order is being carried out.
    pub(crate) fn is_person(self) -> bool {
        matches!(self, Actor::Operator | Actor::Releasing)
    }
}

pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// What the wall's clock is ahead, and all that it was ever put forward.
    pub(crate) skew: i64,
    pub(crate) jumped: i64,
    pub(crate) disk: Disk,
    pub(crate) upstream: Upstream,
    pub(crate) daemon: Daemon,
    pub(crate) rules: Rules,
    pub(crate) weather: Vec<Weather>,
    pub(crate) actor: Actor,
    /// The intent that the work under way was started with.
    pub(crate) intent: SyncIntent,
    /// How deep in one another operator and work are; nobody meddles while the record is somebody's turn.
    pub(crate) depth: u32,
    pub(crate) in_turn: bool,
    trace: VecDeque<String>,
}

pub(crate) struct Sim {
    pub(crate) state: RefCell<State>,
    /// Calls the work off.
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) root: PathBuf,
    /// Versions that somebody has mapped, with how many do.
    pub(crate) leases: Rc<RefCell<Vec<VersionId>>>,
    base: Instant,
    /// Whether the trace is printed as it happens.
    loud: bool,
}

/// Keeps a version from being pruned.
#[derive(Debug)]
pub(crate) struct Lease {
    id: VersionId,
    all: Rc<RefCell<Vec<VersionId>>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut all = self.all.borrow_mut();
        if let Some(at) = all.iter().position(|&id| id == self.id) {
            all.swap_remove(at);
        }
    }
}

/// 2026-11-20T12:00:00Z
const NOON: i64 = 1_795_176_000;

impl Sim {
    pub(crate) fn new(seed: u64) -> Sim {
        let mut random = Random::new(seed);
        let daemon = Daemon::new(&mut random);
        let state = State {
            faults: Faults::NONE,
            operations: 0,
            elapsed: Duration::from_secs(1),
            skew: 0,
            jumped: 0,
            disk: Disk::of(120_000_000),
            upstream: Upstream::default(),
            rules: Rules::default(),
            weather: Vec::new(),
            actor: Actor::Daemon,
            intent: daemon.config.clone(),
            daemon,
            depth: 0,
            in_turn: false,
            trace: VecDeque::new(),
            random,
        };
        Sim {
            state: RefCell::new(state),
            stop: Arc::new(AtomicBool::new(false)),
            root: PathBuf::from("/store"),
            leases: Rc::default(),
            base: Instant::now(),
            loud: std::env::var_os("DOCWHARF_TRACE").is_some(),
        }
    }

    pub(crate) fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.borrow_mut())
    }

    pub(crate) fn happens(&self, probability: f64) -> bool {
        self.with(|s| s.random.happens(probability))
    }

    pub(crate) fn below(&self, n: u64) -> u64 {
        self.with(|s| s.random.below(n))
    }

    pub(crate) fn part(&self) -> f64 {
        self.with(|s| s.random.part())
    }

    /// Seconds since 1970, as the wall's clock has it.
    pub(crate) fn wall(&self) -> i64 {
        self.with(|s| NOON + s.elapsed.as_secs().cast_signed() + s.skew)
    }

    pub(crate) fn moment(&self) -> ClockReading {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(self.wall().cast_unsigned());
        ClockReading { at: self.base + self.with(|s| s.elapsed), wall }
    }

    /// When this is, counted as `elapsed` is.
    pub(crate) fn since_base(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.base)
    }

    pub(crate) fn pass(&self, time: Duration) {
        self.with(|s| {
            s.elapsed += time;
            if time > Duration::from_secs(5) {
                s.disk.settle();
            }
        });
    }

    /// One operation: told, counted, and a chance for everything else. Whatever the one before it has done, what must
    /// hold holds.
    pub(crate) fn operation(&self, what: impl FnOnce() -> String) {
        self.check_standing();
        self.tell(what);
        let (crash, meddling) = self.with(|s| {
            s.operations += 1;
            let may_meddle = !s.in_turn && s.depth < 2;
            (s.random.happens(s.faults.crash), may_meddle && s.random.happens(s.faults.meddling))
        });
        if crash {
            self.crash();
        }
        if meddling {
            self.meddle();
        }
    }

    pub(crate) fn crash(&self) -> ! {
        let power = self.happens(0.5);
        self.tell(|| format!("*** {}", if power { "power cut" } else { "killed" }));
        resume_unwind(Box::new(Crash { power }))
    }

    pub(crate) fn broken(&self, what: impl Into<String>) -> ! {
        let what = what.into();
        self.tell(|| format!("*** {what}"));
        resume_unwind(Box::new(Broken(what)))
    }

    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        self.with(|s| {
            let line = format!("{:>9} {:>10.1} s {:?}: {}", s.operations, s.elapsed.as_secs_f64(), s.actor, what());
            if self.loud {
                eprintln!("{line}");
            }
            s.trace.push_back(line);
            if s.trace.len() > TRACE {
                s.trace.pop_front();
            }
        });
    }

    pub(crate) fn trace(&self) -> String {
        self.with(|s| s.trace.iter().cloned().collect::<Vec<_>>().join("\n"))
    }

    pub(crate) fn lease(&self, id: VersionId) -> Lease {
        self.leases.borrow_mut().push(id);
        Lease { id, all: Rc::clone(&self.leases) }
    }

    /// Does something as somebody else.
    pub(crate) fn acting<T>(&self, actor: Actor, work: impl FnOnce() -> T) -> T {
        let before = self.with(|s| {
            s.depth += 1;
            std::mem::replace(&mut s.actor, actor)
        });
        let result = work();
        self.with(|s| {
            s.depth -= 1;
            s.actor = before;
        });
        result
    }
}

/// The version that a content becomes.
pub(crate) fn id_of(content: Content) -> VersionId {
    VersionId(Digest::of(&content.n.to_le_bytes()))
}

/// SHA-256 of its archive.
pub(crate) fn archive_of(content: Content) -> Digest {
    Digest::of(format!("archive {}", content.n).as_bytes())
}
