//! The processes of a server: started on one core, measured by CPU time and memory, killed at the end.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process_group, setrlimit};

/// The clock ticks of `/proc`, on every Linux that docwharf is built for.
const TICKS_PER_SECOND: f64 = 100.0;

/// The cores for servers and for the load.
pub(crate) const SERVER_CORE: usize = 0;
pub(crate) const LOAD_CORE: usize = 1;

/// Whether this machine has two cores. The first call must happen before this program is pinned to one core.
pub(crate) fn can_pin() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| std::thread::available_parallelism().is_ok_and(|cores| cores.get() > LOAD_CORE))
}

/// Pins this thread to a core, and all threads and processes that it starts later.
pub(crate) fn pin(core: usize) -> Result<(), String> {
    let mut cores = rustix::thread::CpuSet::new();
    cores.set(core);
    rustix::thread::sched_setaffinity(None, &cores).map_err(|error| format!("cannot move to core {core}: {error}"))
}

/// Raises the limit of open files for this process and its children, for ten thousand connections and caches of open
/// files. Returns the limit.
pub(crate) fn raise_file_limit() -> u64 {
    static FILES: OnceLock<u64> = OnceLock::new();
    *FILES.get_or_init(|| {
        let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(WANTED_OPEN_FILES);
        // Only root may raise the maximum.
        for files in [maximum.max(WANTED_OPEN_FILES), maximum] {
            let limit = Rlimit { current: Some(files), maximum: Some(files) };
            if setrlimit(Resource::Nofile, limit).is_ok() {
                return files;
            }
        }
        maximum
    })
}

/// nginx and lighttpd keep requested files open: 64,000 files of the Rust documentation, in two codings.
const WANTED_OPEN_FILES: u64 = 262_144;

/// A running server in its own process group, which is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
}

/// How a server is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartMode {
    /// On the servers' core. It ends with this program, even if that is killed.
    EndsWithParent,
    /// Started without a wrapper, for measuring the start.
    NoWrapper,
    /// Like `EndsWithParent`, but on all cores.
    AllCores,
}

/// Starts `command`, on the servers' core unless `mode` is `AllCores`.
pub(crate) fn spawn(
    command: &[String],
    folder: &Path,
    variables: &[(String, String)],
    mode: StartMode,
) -> Result<Server, String> {
    let log = fs::File::create(folder.join("log")).map_err(|error| format!("cannot write a log: {error}"))?;
    let errors = log.try_clone().map_err(|error| format!("cannot write a log: {error}"))?;
    let wrapper: &[&str] = if mode == StartMode::NoWrapper { &[] } else { &["setpriv", "--pdeathsig", "TERM"] };
    let words: Vec<&str> = wrapper.iter().copied().chain(command.iter().map(String::as_str)).collect();
    let mut start = Command::new(words[0]);
    start.args(&words[1..]).current_dir(folder).stdin(Stdio::null()).stdout(log).stderr(errors).process_group(0);
    start.envs(variables.iter().map(|(name, value)| (name, value)));
    let is_pinned = can_pin() && mode != StartMode::AllCores;
    if is_pinned {
        pin(SERVER_CORE)?;
    }
    let child = start.spawn().map_err(|error| format!("cannot start {}: {error}", words.join(" ")));
    if is_pinned {
        pin(LOAD_CORE)?;
    }
    Ok(Server { child: child? })
}

/// The CPU time of processes, from two counters.
#[derive(Debug, Default)]
pub(crate) struct CpuTimes {
    /// Nanoseconds of each thread.
    threads: HashMap<u32, u64>,
    /// utime and stime of all processes in clock ticks: of ended threads, too.
    ticks: u64,
}

impl CpuTimes {
    /// Seconds of CPU time since `before`. From the nanoseconds of each thread, or from ticks if a thread has ended:
    /// its nanoseconds are lost.
    pub(crate) fn since(&self, before: &Self) -> f64 {
        let has_ended_threads = before.threads.keys().any(|thread| !self.threads.contains_key(thread));
        if has_ended_threads || self.threads.is_empty() {
            return self.ticks.saturating_sub(before.ticks) as f64 / TICKS_PER_SECOND;
        }
        let nanoseconds =
            self.threads.iter().map(|(thread, now)| now - before.threads.get(thread).unwrap_or(&0)).sum::<u64>();
        nanoseconds as f64 / 1e9
    }
}

/// Memory of all processes of a server, in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ServerMemory {
    pub pss: u64,
    /// Anonymous memory, without files. Shared pages count in parts.
    pub anonymous: u64,
}

/// The parent and the ticks (utime, stime) in `/proc/PID/stat`.
fn parent_and_ticks(pid: u32) -> Option<(u32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may contain any character.
    let fields: Vec<&str> = text.get(text.rfind(')')? + 1..)?.split_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    Some((number(1)? as u32, number(11)? + number(12)?))
}

fn numeric_names(folder: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A process and all its descendants.
pub(crate) fn process_tree(root: u32) -> Vec<u32> {
    let parents: Vec<(u32, u32)> =
        numeric_names("/proc").into_iter().filter_map(|pid| Some((pid, parent_and_ticks(pid)?.0))).collect();
    let mut process_tree = vec![root];
    let mut index = 0;
    while index < process_tree.len() {
        let pid_of_parent = process_tree[index];
        process_tree.extend(parents.iter().filter(|(_, parent)| *parent == pid_of_parent).map(|(pid, _)| *pid));
        index += 1;
    }
    process_tree
}

/// The CPU time of these processes.
pub(crate) fn cpu_times_of(process_tree: &[u32]) -> CpuTimes {
    let mut cpu_times = CpuTimes::default();
    for &pid in process_tree {
        cpu_times.ticks += parent_and_ticks(pid).map_or(0, |(_, ticks)| ticks);
        for thread in numeric_names(&format!("/proc/{pid}/task")) {
            let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).unwrap_or_default();
            if let Some(nanoseconds) = text.split(' ').next().and_then(|text| text.parse().ok()) {
                cpu_times.threads.insert(thread, nanoseconds);
            }
        }
    }
    cpu_times
}

/// Anonymous memory of these processes in KiB. Cheap enough for ten calls a second. A page that two processes share
/// counts twice, unlike in `Server::memory`.
pub(crate) fn anonymous_kib(process_tree: &[u32]) -> u64 {
    let rss_anon = |pid: &u32| -> Option<u64> {
        let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        text.lines().find(|line| line.starts_with("RssAnon:"))?.split_whitespace().nth(1)?.parse().ok()
    };
    process_tree.iter().filter_map(rss_anon).sum()
}

impl Server {
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The server's process and all its descendants.
    pub(crate) fn process_tree(&self) -> Vec<u32> {
        process_tree(self.pid())
    }

    pub(crate) fn cpu_times(&self) -> CpuTimes {
        cpu_times_of(&self.process_tree())
    }

    pub(crate) fn memory(&self) -> ServerMemory {
        let mut memory = ServerMemory::default();
        for pid in self.process_tree() {
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
