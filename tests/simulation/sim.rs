//! The simulated machine: its state, its clocks, its faults, and the steps that every operation has in common.

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
use docwharf::sync::SyncSettings;
use docwharf::sync::scheduler::ClockReading;
use tokio::time::Instant;

use super::daemon::Daemon;
use super::disk::{Content, Disk};
use super::interference::Outage;
use super::random::Random;
use super::rules::Rules;
use super::upstream::Upstream;

/// Number of the last operations that are printed after a failure.
const TRACE_LEN: usize = 60;

/// The panic payload of a crash: the process was killed, or the power was cut.
pub(crate) struct Crash {
    pub(crate) is_power_cut: bool,
}

/// The panic payload of a broken guarantee, with a message.
pub(crate) struct BrokenPromise(pub(crate) String);

/// The probabilities of faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Faults {
    /// Whether there are no faults, and the operator does nothing.
    pub(crate) are_off: bool,
    /// The process is killed at an effect.
    pub(crate) crash: f64,
    /// A call fails.
    pub(crate) call: f64,
    /// A write fails.
    pub(crate) disk: f64,
    /// A person or another process does something meanwhile.
    pub(crate) interference: f64,
}

impl Faults {
    pub(crate) const NONE: Faults = Faults { are_off: true, crash: 0.0, call: 0.0, disk: 0.0, interference: 0.0 };
}

/// The originator of the current operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    /// The daemon, outside tasks.
    Daemon,
    /// A task: a sync, an import, or the decision after a release; `force` means without the gate.
    Task { force: bool },
    /// A command of a person.
    Operator,
    /// The decision after a person has ended a hold: the same rules apply as in a task.
    Releasing,
}

impl Actor {
    /// Whether a command is being executed.
    pub(crate) fn is_person(self) -> bool {
        matches!(self, Actor::Operator | Actor::Releasing)
    }
}

/// The state of the simulation.
pub(crate) struct State {
    pub(crate) random: Random,
    pub(crate) faults: Faults,
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    /// Seconds by which the wall clock is ahead; and the sum of all its forward adjustments.
    pub(crate) clock_offset: i64,
    pub(crate) clock_advanced: i64,
    pub(crate) disk: Disk,
    pub(crate) upstream: Upstream,
    pub(crate) daemon: Daemon,
    pub(crate) rules: Rules,
    pub(crate) outages: Vec<Outage>,
    pub(crate) actor: Actor,
    /// The sync settings of the current task.
    pub(crate) sync_settings: SyncSettings,
    /// Nesting of commands and tasks.
    pub(crate) depth: u32,
    /// Whether the record is locked. There is no interference while it is.
    pub(crate) is_record_locked: bool,
    trace: VecDeque<String>,
}

pub(crate) struct Sim {
    pub(crate) state: RefCell<State>,
    /// Cancels the current task.
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) root: PathBuf,
    /// Versions that are mapped, once for each mapping.
    pub(crate) leases: Rc<RefCell<Vec<VersionId>>>,
    base: Instant,
    /// Whether each operation is printed immediately.
    prints_trace: bool,
}

/// Prevents the removal of a version.
#[derive(Debug)]
pub(crate) struct Lease {
    id: VersionId,
    leases: Rc<RefCell<Vec<VersionId>>>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut leases = self.leases.borrow_mut();
        if let Some(index) = leases.iter().position(|&id| id == self.id) {
            leases.swap_remove(index);
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
            clock_offset: 0,
            clock_advanced: 0,
            disk: Disk::new(120_000_000),
            upstream: Upstream::default(),
            rules: Rules::default(),
            outages: Vec::new(),
            actor: Actor::Daemon,
            sync_settings: daemon.config.clone(),
            daemon,
            depth: 0,
            is_record_locked: false,
            trace: VecDeque::new(),
            random,
        };
        Sim {
            state: RefCell::new(state),
            stop: Arc::new(AtomicBool::new(false)),
            root: PathBuf::from("/store"),
            leases: Rc::default(),
            base: Instant::now(),
            prints_trace: std::env::var_os("DOCWHARF_TRACE").is_some(),
        }
    }

    pub(crate) fn with<T>(&self, action: impl FnOnce(&mut State) -> T) -> T {
        action(&mut self.state.borrow_mut())
    }

    pub(crate) fn happens(&self, probability: f64) -> bool {
        self.with(|s| s.random.happens(probability))
    }

    pub(crate) fn below(&self, n: u64) -> u64 {
        self.with(|s| s.random.below(n))
    }

    pub(crate) fn fraction(&self) -> f64 {
        self.with(|s| s.random.fraction())
    }

    /// Returns the seconds since 1970 on the wall clock.
    pub(crate) fn wall_clock(&self) -> i64 {
        self.with(|s| NOON + s.elapsed.as_secs().cast_signed() + s.clock_offset)
    }

    pub(crate) fn clock_reading(&self) -> ClockReading {
        let wall = SystemTime::UNIX_EPOCH + Duration::from_secs(self.wall_clock().cast_unsigned());
        ClockReading { monotonic: self.base + self.with(|s| s.elapsed), wall }
    }

    /// Converts an instant to the scale of `elapsed`.
    pub(crate) fn since_base(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.base)
    }

    pub(crate) fn advance_clock(&self, time: Duration) {
        self.with(|s| {
            s.elapsed += time;
            if time > Duration::from_secs(5) {
                s.disk.sync_all();
            }
        });
    }

    /// Runs the common steps of an operation: checks all invariants after the previous one, logs and counts this one,
    /// and lets a crash or an interference happen.
    pub(crate) fn operation(&self, message: impl FnOnce() -> String) {
        self.check_invariants();
        self.log(message);
        let (crash, interference) = self.with(|s| {
            s.operations += 1;
            let may_interfere = !s.is_record_locked && s.depth < 2;
            (s.random.happens(s.faults.crash), may_interfere && s.random.happens(s.faults.interference))
        });
        if crash {
            self.crash();
        }
        if interference {
            self.interfere();
        }
    }

    pub(crate) fn crash(&self) -> ! {
        let is_power_cut = self.happens(0.5);
        self.log(|| format!("*** {}", if is_power_cut { "power cut" } else { "killed" }));
        resume_unwind(Box::new(Crash { is_power_cut }))
    }

    pub(crate) fn fail(&self, message: impl Into<String>) -> ! {
        let message = message.into();
        self.log(|| format!("*** {message}"));
        resume_unwind(Box::new(BrokenPromise(message)))
    }

    pub(crate) fn log(&self, message: impl FnOnce() -> String) {
        self.with(|s| {
            let line = format!("{:>9} {:>10.1} s {:?}: {}", s.operations, s.elapsed.as_secs_f64(), s.actor, message());
            if self.prints_trace {
                eprintln!("{line}");
            }
            s.trace.push_back(line);
            if s.trace.len() > TRACE_LEN {
                s.trace.pop_front();
            }
        });
    }

    pub(crate) fn trace(&self) -> String {
        self.with(|s| s.trace.iter().cloned().collect::<Vec<_>>().join("\n"))
    }

    pub(crate) fn lease(&self, id: VersionId) -> Lease {
        self.leases.borrow_mut().push(id);
        Lease { id, leases: Rc::clone(&self.leases) }
    }

    /// Runs an action as another actor.
    pub(crate) fn acting<T>(&self, actor: Actor, action: impl FnOnce() -> T) -> T {
        let before = self.with(|s| {
            s.depth += 1;
            std::mem::replace(&mut s.actor, actor)
        });
        let result = action();
        self.with(|s| {
            s.depth -= 1;
            s.actor = before;
        });
        result
    }
}

/// Returns the version id of a content.
pub(crate) fn id_of(content: Content) -> VersionId {
    VersionId(Digest::compute(&content.n.to_le_bytes()))
}

/// Returns the SHA-256 of the archive of a content.
pub(crate) fn archive_of(content: Content) -> Digest {
    Digest::compute(format!("archive {}", content.n).as_bytes())
}
