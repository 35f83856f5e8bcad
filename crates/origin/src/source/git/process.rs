//! Runs programs within limits, and ends them with all processes that they have started.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, PipeReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::super::{JobContext, LimitReached, SharedResource};
use super::Git;
use super::output_lines::Lines;
use super::process_memory::memory_of;

/// Interval at which the end of a program, cancellation and the deadline are checked.
const TICK: Duration = Duration::from_millis(20);
/// Minimum interval between two measurements of the folder.
const MEASURE: Duration = Duration::from_millis(200);
/// Measuring takes at most one part in this many of the time.
const MEASURE_PART: u32 = 10;
/// Timeout for the rest of the output, once all processes that could write it are dead.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum size that counts for an entry, in bytes: the number of empty files is limited too.
const ENTRY: u64 = 512;
/// Maximum number of bytes of standard output that are kept; the rest is left out.
const KEPT: usize = 32 << 20;
/// Number of processes of a sandbox that do not count: bubblewrap's two, or `unshare` and the shell that is process 1.
const HELPERS: u64 = 3;
/// Number of last output lines that an error quotes.
const LAST: usize = 4;

/// Limits of the programs of one checkout or build.
#[derive(Debug)]
pub(super) struct ProgramLimits<'a> {
    pub(super) watch: &'a JobContext,
    /// Deadline of all programs together.
    pub(super) until: Instant,
    /// The folder that everything is written to, canonical. A process with a `HOME` in it was started by this build.
    pub(super) space: &'a Path,
    /// Maximum size of the folder in bytes.
    pub(super) size: u64,
    /// Maximum memory of all processes together, in bytes.
    pub(super) memory: u64,
    /// Maximum number of processes.
    pub(super) processes: u64,
}

/// Reason why a program was ended, or did not start.
#[derive(Debug)]
pub(super) enum ProgramStop {
    /// It was cancelled.
    Over,
    /// The deadline has passed.
    Time,
    /// It wrote more than the size limit.
    Size,
    /// It took more memory than the limit.
    Memory,
    /// It started more processes than the limit.
    Processes,
    /// Its organization, or all together, reached the limit of a shared resource.
    Share(SharedResource, LimitReached),
    /// It wrote files that cannot be measured.
    Hidden(PathBuf, io::Error),
    /// It did not start, or its status cannot be read.
    Start(PathBuf, io::Error),
}

/// Result of a program that ended by itself.
#[derive(Debug)]
pub(super) struct ProgramResult {
    pub(super) status: ExitStatus,
    /// Its standard output, if that was requested.
    pub(super) output: Vec<u8>,
    /// Its last lines of output.
    pub(super) last: String,
}

impl ProgramResult {
    /// Describes how it ended.
    pub(super) fn how(&self) -> String {
        use std::os::unix::process::ExitStatusExt;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (_, Some(signal)) => format!("killed by signal {signal}"),
            _ => self.status.to_string(),
        }
    }
}

/// Output of a running program.
enum Heard {
    Line(String),
    Bytes(Vec<u8>),
}

impl<'a> ProgramLimits<'a> {
    /// Returns the limits of a project; the deadline is `time` from now.
    pub(super) fn new(git: &Git, watch: &'a JobContext, time: Duration, space: &'a Path) -> ProgramLimits<'a> {
        let &Git { size, memory, processes, .. } = git;
        ProgramLimits { watch, until: Instant::now() + time, space, size, memory, processes }
    }

    /// Fails if the job was cancelled or the deadline has passed.
    fn look(&self) -> Result<(), ProgramStop> {
        if self.watch.is_over() {
            return Err(ProgramStop::Over);
        }
        if Instant::now() >= self.until {
            return Err(ProgramStop::Time);
        }
        Ok(())
    }

    /// Measures the folder; fails if it is over a limit.
    fn measure(&self) -> Result<(), ProgramStop> {
        let mut left = self.size;
        let mut folders = vec![self.space.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Err(error) if is_gone(&error) => continue,
                other => other.map_err(|error| ProgramStop::Hidden(folder.clone(), error))?,
            };
            for entry in entries {
                let entry = entry.map_err(|error| ProgramStop::Hidden(folder.clone(), error))?;
                let metadata = match entry.metadata() {
                    Err(error) if is_gone(&error) => continue,
                    other => other.map_err(|error| ProgramStop::Hidden(entry.path(), error))?,
                };
                // A sparse file takes little space here, and its full size once it is packed.
                let taken = metadata.len().max(metadata.blocks() * 512).max(ENTRY);
                left = left.checked_sub(taken).ok_or(ProgramStop::Size)?;
                if metadata.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        self.hold(SharedResource::BuildDisk, self.size - left)
    }

    /// Measures these processes; fails if their number or memory is over a limit.
    fn measure_processes(&self, processes: &[Pid]) -> Result<(), ProgramStop> {
        let count = (processes.len() as u64).saturating_sub(HELPERS);
        if count > self.processes {
            return Err(ProgramStop::Processes);
        }
        let memory = memory_of(processes);
        if memory > self.memory {
            return Err(ProgramStop::Memory);
        }
        self.hold(SharedResource::BuildProcesses, count)?;
        self.hold(SharedResource::BuildMemory, memory)
    }

    fn hold(&self, resource: SharedResource, amount: u64) -> Result<(), ProgramStop> {
        self.watch.hold_share(resource, amount).map_err(|why| ProgramStop::Share(resource, why))
    }
}

/// Whether an error means that a file was removed meanwhile.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Runs a program until it ends or reaches a limit. With `wants_output` its standard output is kept; otherwise it goes
/// to `hear` line by line, like its standard error. No process that it started is alive when this returns, except those
/// that hide on purpose (see [`Family`]).
pub(super) fn run(
    command: &mut Command,
    wants_output: bool,
    bounds: &ProgramLimits<'_>,
    hear: &mut dyn FnMut(&str),
) -> Result<ProgramResult, ProgramStop> {
    bounds.look()?;
    let program = PathBuf::from(command.get_program());
    let (mut family, heard) =
        start(command, wants_output, bounds).map_err(|error| ProgramStop::Start(program, error))?;
    let mut ended = ProgramResult { status: ExitStatus::default(), output: Vec::new(), last: String::new() };
    let mut last: Vec<String> = Vec::new();
    let mut take = |heard: Heard| match heard {
        Heard::Line(line) => {
            hear(&line);
            if last.len() == LAST {
                last.remove(0);
            }
            last.push(line);
        }
        Heard::Bytes(bytes) => {
            let room = KEPT.saturating_sub(ended.output.len());
            ended.output.extend_from_slice(&bytes[..bytes.len().min(room)]);
        }
    };
    let cut = attend(&family, &heard, bounds, &mut take);
    ended.status = family.end().map_err(|error| ProgramStop::Start(PathBuf::from(command.get_program()), error))?;
    let late = Instant::now() + OUTPUT_TIMEOUT;
    while let Some(left) = late.checked_duration_since(Instant::now())
        && let Ok(more) = heard.recv_timeout(left)
    {
        take(more);
    }
    cut?;
    bounds.measure()?;
    ended.last = last.join(" | ");
    Ok(ended)
}

/// Starts a program, and threads that read its output. The threads end when no process is left that could write.
fn start(
    command: &mut Command,
    wants_output: bool,
    bounds: &ProgramLimits<'_>,
) -> io::Result<(ProcessTree, Receiver<Heard>)> {
    // Bounded: a program that writes faster than its output is read has to wait.
    let (sender, heard) = mpsc::sync_channel(64);
    let (lines, errors) = io::pipe()?;
    if wants_output {
        let (bytes, output) = io::pipe()?;
        command.stdout(output);
        read(bytes, sender.clone(), |bytes, sender| sender.send(Heard::Bytes(bytes.to_vec())).is_ok())?;
    } else {
        command.stdout(errors.try_clone()?);
    }
    let mut cutter = Lines::default();
    read(lines, sender, move |bytes, sender| {
        let mut is_heard = true;
        let mut hear = |line| is_heard &= sender.send(Heard::Line(line)).is_ok();
        if bytes.is_empty() {
            cutter.end(&mut hear);
        } else {
            cutter.push(bytes, &mut hear);
        }
        is_heard
    })?;
    let child = command.stdin(Stdio::null()).stderr(errors).process_group(0).spawn();
    // Otherwise the command keeps the pipes open, and the threads running.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    Ok((ProcessTree { child: child?, space: bounds.space.to_owned(), is_over: false }, heard))
}

/// Reads a pipe on a thread and passes each piece to `hand_on`, at the end an empty one. Stops if `hand_on` returns
/// false.
fn read(
    mut pipe: PipeReader,
    sender: SyncSender<Heard>,
    mut hand_on: impl FnMut(&[u8], &SyncSender<Heard>) -> bool + Send + 'static,
) -> io::Result<()> {
    let turn = move || {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let n = match pipe.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other.unwrap_or(0),
            };
            if !hand_on(&buffer[..n], &sender) || n == 0 {
                return;
            }
        }
    };
    std::thread::Builder::new().name("output".to_owned()).spawn(turn).map(drop)
}

/// Receives the output and checks the limits until the program ends or reaches one.
fn attend(
    family: &ProcessTree,
    heard: &Receiver<Heard>,
    bounds: &ProgramLimits<'_>,
    take: &mut dyn FnMut(Heard),
) -> Result<(), ProgramStop> {
    let mut next = Instant::now() + MEASURE;
    loop {
        match heard.recv_timeout(TICK) {
            Ok(more) => take(more),
            Err(RecvTimeoutError::Timeout) => {}
            // A program may close its output and continue.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(TICK),
        }
        bounds.look()?;
        if family.has_ended() {
            return Ok(());
        }
        let began = Instant::now();
        if began >= next {
            bounds.measure_processes(&family.living())?;
            bounds.measure()?;
            next = Instant::now() + MEASURE.max(began.elapsed() * MEASURE_PART);
        }
    }
}

/// A program and the processes that it started. All of them are killed when this value is dropped.
///
/// A process can leave its process group, so `/proc` is searched as well: for the session, for children of known
/// processes, and for a `HOME` in the folder of the build. A process that has changed all of these on purpose is not
/// found. Only a sandbox with a PID namespace of its own leaves no process behind in any case.
#[derive(Debug)]
struct ProcessTree {
    child: Child,
    space: PathBuf,
    is_over: bool,
}

impl ProcessTree {
    fn id(&self) -> Option<Pid> {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Whether the program itself has ended. It is not reaped here: until it is, no other process gets its id.
    fn has_ended(&self) -> bool {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        self.id().is_none_or(|id| !matches!(waitid(WaitId::Pid(id), options), Ok(None)))
    }

    /// Kills the remaining processes and returns the exit status of the program.
    fn end(&mut self) -> io::Result<ExitStatus> {
        /// Maximum number of rounds: a process that is being killed may have started another just before.
        const ROUNDS: u32 = 200;
        if let Some(id) = self.id() {
            // Fails if the group has no process any more.
            let _ = kill_process_group(id, Signal::KILL);
            for _ in 0..ROUNDS {
                let left = self.left(id);
                if left.is_empty() {
                    break;
                }
                for id in left {
                    let _ = kill_process(id, Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.is_over = true;
        self.child.wait()
    }

    /// Returns the ids of all processes that are alive.
    fn living(&self) -> Vec<Pid> {
        self.id().map(|id| self.left(id)).unwrap_or_default()
    }

    /// Returns the ids of the living processes that descend from `first` or belong to the build.
    fn left(&self, first: Pid) -> Vec<Pid> {
        let everybody: Vec<Stat> = processes();
        let mut ours = BTreeSet::from([first.as_raw_nonzero().get()]);
        loop {
            let before = ours.len();
            for stat in everybody.iter().filter(|stat| stat.id != std::process::id().cast_signed()) {
                let is_related = [stat.parent, stat.group, stat.session].iter().any(|id| ours.contains(id));
                if !ours.contains(&stat.id) && (is_related || lives_in(stat.id, &self.space)) {
                    ours.insert(stat.id);
                }
            }
            if ours.len() == before {
                break;
            }
        }
        let is_left = |stat: &&Stat| ours.contains(&stat.id) && !stat.is_dead;
        everybody.iter().filter(is_left).filter_map(|stat| Pid::from_raw(stat.id)).collect()
    }
}

/// Kills every process that was started with a `HOME` below this folder: builds of an origin process that was killed,
/// where their sandbox does not end them. No build may be running there.
pub(super) fn kill_left(folder: &Path) {
    let Ok(folder) = folder.canonicalize() else { return };
    for stat in processes().iter().filter(|stat| !stat.is_dead && lives_in(stat.id, &folder)) {
        if let Some(id) = Pid::from_raw(stat.id).filter(|_| stat.id != std::process::id().cast_signed()) {
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if !self.is_over {
            // No caller is left to get the status.
            let _ = self.end();
        }
    }
}

/// Fields of `/proc/<id>/stat` (`proc_pid_stat(5)`).
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    id: i32,
    is_dead: bool,
    parent: i32,
    group: i32,
    session: i32,
}

impl Stat {
    fn read(text: &str) -> Option<Stat> {
        let id = text.split(' ').next()?.parse().ok()?;
        // The name is in parentheses and may contain any characters.
        let mut fields = text.rsplit_once(") ")?.1.split(' ');
        let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
        let mut number = || fields.next()?.parse().ok();
        Some(Stat { id, is_dead, parent: number()?, group: number()?, session: number()? })
    }
}

fn processes() -> Vec<Stat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let names = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
        name.iter().all(u8::is_ascii_digit)
    });
    names.filter_map(|path| Stat::read(&String::from_utf8_lossy(&fs::read(path.join("stat")).ok()?))).collect()
}

/// Whether a process was started with a `HOME` in this folder.
fn lives_in(id: i32, space: &Path) -> bool {
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    let home = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"HOME="));
    home.is_some_and(|home| Path::new(std::ffi::OsStr::from_bytes(home)).starts_with(space))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_read_whatever_it_calls_itself() {
        let read = Stat::read("17 (a) Z 1 (b) S 5 16 15 0 -1 4194304").unwrap();
        assert_eq!(read, Stat { id: 17, is_dead: false, parent: 5, group: 16, session: 15 });
        assert!(Stat::read("18 (x) Z 5 16 15 0").unwrap().is_dead);
        assert_eq!(Stat::read("garbage"), None);
    }
}
