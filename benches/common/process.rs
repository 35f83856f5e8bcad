//! A server's processes: started on one core, asked for their time and memory, ended whatever happens.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process_group, setrlimit};

/// What `/proc` counts in, on every Linux that docwharf is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Where servers and load run: different cores if there are two.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const LOAD_CORE: usize = 1;

/// Whether this machine has a core for the servers and one for the load. Asked before this program moves to one.
pub(crate) fn can_pin() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > LOAD_CORE))
}

/// Moves this thread to a core, and with it all that it starts from now on.
pub(crate) fn pin(core: usize) -> Result<(), String> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores).map_err(|error| format!("cannot move to core {core}: {error}"))
}

/// Room for ten thousand connections and caches of open files, here and in all that is started from here: how many
/// files may be open.
pub(crate) fn many_files() -> u64 {
    static FILES: OnceLock<u64> = OnceLock::new();
    *FILES.get_or_init(|| {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(MANY_FILES);
        // Only root may raise the maximum.
        for files in [most.max(MANY_FILES), most] {
            let limit = Rlimit { current: Some(files), maximum: Some(files) };
            if setrlimit(Resource::Nofile, limit).is_ok() {
                return files;
            }
        }
        most
    })
}

/// nginx and lighttpd keep files open that were asked for, of the Rust documentation 64,000 in two codings.
const MANY_FILES: u64 = 262_144;

/// A running server: a process group of its own, killed when this goes.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
}

/// How a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// It ends with this program even if that is killed.
    Bound,
    /// Nothing is between this program and it: for measuring how long that takes.
    Bare,
    /// As `Bound`, on all cores.
    AllCores,
}

/// Starts `command`, unless `how` says otherwise on the servers' core.
pub(crate) fn spawn(
    command: &[String],
    folder: &Path,
    variables: &[(String, String)],
    how: How,
) -> Result<Server, String> {
    let log = fs::File::create(folder.join("log")).map_err(|error| format!("cannot write a log: {error}"))?;
    let errors = log.try_clone().map_err(|error| format!("cannot write a log: {error}"))?;
    let bound: &[&str] = if how == How::Bare { &[] } else { &["setpriv", "--pdeathsig", "TERM"] };
    let all: Vec<&str> = bound.iter().copied().chain(command.iter().map(String::as_str)).collect();
    let mut start = Command::new(all[0]);
    start.args(&all[1..]).current_dir(folder).stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
    start.envs(variables.iter().map(|(name, value)| (name, value)));
    let pinned = can_pin() && how != How::AllCores;
    if pinned {
        pin(SERVER_CORE)?;
    }
    let child = start.spawn().map_err(|error| format!("cannot start {}: {error}", all.join(" ")));
    if pinned {
        pin(LOAD_CORE)?;
    }
    Ok(Server { child: child? })
}

/// Time on a processor, and where it was counted.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Nanoseconds of each thread.
    threads: HashMap<u32, u64>,
    /// utime and stime of all processes in clock ticks: of ended threads, too.
    ticks: u64,
}

impl Times {
    /// Seconds since an earlier look. By thread in nanoseconds, unless threads have ended meanwhile and have taken
    /// their time with them: then in ticks.
    pub(crate) fn since(&self, before: &Self) -> f64 {
        let gone = before.threads.keys().any(|thread| !self.threads.contains_key(thread));
        if gone || self.threads.is_empty() {
            return self.ticks.saturating_sub(before.ticks) as f64 / TICKS_PER_SECOND;
        }
        let spent =
            self.threads.iter().map(|(thread, now)| now - before.threads.get(thread).unwrap_or(&0)).sum::<u64>();
        spent as f64 / 1e9
    }
}

/// Kilobytes of all its processes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub pss: u64,
    /// Anonymous: what no file backs. Shared between processes, it is counted in parts.
    pub anonymous: u64,
}

/// The parent and the ticks (utime, stime) in `/proc/PID/stat`.
fn stat(pid: u32) -> Option<(u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold anything.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
    Some((number(1)? as u32, number(11)? + number(12)?))
}

fn numbers_in(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A process and all its descendants.
pub(crate) fn tree_of(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        numbers_in("/proc").into_iter().filter_map(|pid| Some((pid, stat(pid)?.0))).collect();
    let mut tree = vec![root];
    let mut at = 0;
    while at < tree.len() {
        let of = tree[at];
        tree.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        at += 1;
    }
    tree
}

/// The time that these processes have spent on a processor.
pub(crate) fn times_of(tree: &[u32]) -> Times {
    let mut times = Times::default();
    for &pid in tree {
        times.ticks += stat(pid).map_or(0, |(_, ticks)| ticks);
        for thread in numbers_in(&format!("/proc/{pid}/task")) {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).unwrap_or_default();
            if let Some(spent) = text.split(' ').next().and_then(|text| text.parse().ok()) {
                times.threads.insert(thread, spent);
            }
        }
    }
    times
}

/// Anonymous memory of these processes in KiB. Cheap enough to be asked ten times a second; a page that two of them
/// share counts twice, unlike in `Server::memory`.
pub(crate) fn anonymous_of(tree: &[u32]) -> u64 {
    let of = |pid: &u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        text.lines().find(|line| line.starts_with("RssAnon:"))?.split_whitespace().nth(1)?.parse().ok()
    };
    tree.iter().filter_map(of).sum()
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its process and all descendants.
    pub(crate) fn tree(&self) -> Vec<u32> {
        tree_of(self.pid())
    }

    pub(crate) fn times(&self) -> Times {
        times_of(&self.tree())
    }

    pub(crate) fn memory(&self) -> Memory {
        let mut memory = Memory::default();
        for pid in self.tree() {
            let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
            let field = |name: &str| -> u64 {
                let line = text.lines().find(|line| line.starts_with(name));
                line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
            };
            memory.pss += field("Pss:");
            memory.anonymous += field("Pss_Anon:");
        }
        memory
    }

    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = Pid::from_child(&self.child);
        let _ = kill_process_group(group, Signal::TERM);
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && self.is_running() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = kill_process_group(group, Signal::KILL);
        let _ = self.child.wait();
    }
}
