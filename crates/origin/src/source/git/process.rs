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

use docwharf_base::child_network::explain_start_error;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, kill_process_group, waitid};

use super::super::{JobContext, LimitReached, SharedResource};
use super::GitSource;
use super::output_lines::OutputLines;
use super::process_memory::measure_memory;

/// Interval at which the end of a program, cancellation and the deadline are checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);
/// Minimum interval between two measurements of the folder.
const MIN_MEASURE_INTERVAL: Duration = Duration::from_millis(200);
/// The pause after a measurement is this many times as long as the measurement, or [`MIN_MEASURE_INTERVAL`] if longer.
const MEASURE_PAUSE_FACTOR: u32 = 10;
/// Timeout for the rest of the output, once all processes that could write it are dead.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Minimum size that counts for an entry, in bytes: the number of empty files is limited too.
const MIN_ENTRY_BYTES: u64 = 512;
/// Maximum number of bytes of standard output that are stored; the rest is discarded.
const MAX_OUTPUT_BYTES: usize = 32 << 20;
/// Number of processes of a sandbox that do not count: bubblewrap's two, or `unshare` and the shell that is process 1;
/// and in both cases the shell of the build command.
const SANDBOX_PROCESSES: u64 = 3;
/// Number of last output lines that an error quotes.
const QUOTED_LINES: usize = 4;

/// Limits of the programs of one checkout or build.
#[derive(Debug)]
pub(super) struct ProgramLimits<'a> {
    pub(super) context: &'a JobContext,
    /// Deadline of all programs together.
    pub(super) deadline: Instant,
    /// The folder that everything is written to, canonical. A process with a `HOME` in it was started by this build.
    pub(super) work_folder: &'a Path,
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
    /// The job was cancelled.
    Cancelled,
    /// The deadline has passed.
    Time,
    /// The program wrote more than the size limit.
    Size,
    /// The program took more memory than the limit.
    Memory,
    /// The program started more processes than the limit.
    Processes,
    /// The organization, or all organizations together, reached the limit of a shared resource.
    Share(SharedResource, LimitReached),
    /// The program wrote files that cannot be measured.
    Unmeasurable(PathBuf, io::Error),
    /// The program did not start, or its exit status cannot be read.
    StartFailed(PathBuf, io::Error),
}

/// Result of a program that was not ended by a limit.
#[derive(Debug)]
pub(super) struct ProgramResult {
    pub(super) status: ExitStatus,
    /// The standard output of the program, if that was requested.
    pub(super) output: Vec<u8>,
    /// The last lines of the program's output.
    pub(super) last_lines: String,
}

impl ProgramResult {
    /// Describes the exit status.
    pub(super) fn describe_exit(&self) -> String {
        use std::os::unix::process::ExitStatusExt;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (_, Some(signal)) => format!("killed by signal {signal}"),
            _ => self.status.to_string(),
        }
    }
}

/// A piece of output of a running program.
enum ProgramOutput {
    Line(String),
    Bytes(Vec<u8>),
}

impl<'a> ProgramLimits<'a> {
    /// Returns the limits of a project; the deadline is `time` from now.
    pub(super) fn new(
        git: &GitSource,
        context: &'a JobContext,
        time: Duration,
        work_folder: &'a Path,
    ) -> ProgramLimits<'a> {
        ProgramLimits {
            context,
            deadline: Instant::now() + time,
            work_folder,
            size: git.max_bytes,
            memory: git.max_memory_bytes,
            processes: git.max_processes,
        }
    }

    /// Fails if the job was cancelled or the deadline has passed.
    fn check_time(&self) -> Result<(), ProgramStop> {
        if self.context.is_cancelled() {
            return Err(ProgramStop::Cancelled);
        }
        if Instant::now() >= self.deadline {
            return Err(ProgramStop::Time);
        }
        Ok(())
    }

    /// Measures the folder; fails if it is over a limit.
    fn measure_folder(&self) -> Result<(), ProgramStop> {
        let mut remaining = self.size;
        let mut folders = vec![self.work_folder.to_owned()];
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Err(error) if is_removed_error(&error) => continue,
                other => other.map_err(|error| ProgramStop::Unmeasurable(folder.clone(), error))?,
            };
            for entry in entries {
                let entry = entry.map_err(|error| ProgramStop::Unmeasurable(folder.clone(), error))?;
                let metadata = match entry.metadata() {
                    Err(error) if is_removed_error(&error) => continue,
                    other => other.map_err(|error| ProgramStop::Unmeasurable(entry.path(), error))?,
                };
                // A sparse file takes little space in the checkout, but its full size once it is packed.
                let bytes = metadata.len().max(metadata.blocks() * 512).max(MIN_ENTRY_BYTES);
                remaining = remaining.checked_sub(bytes).ok_or(ProgramStop::Size)?;
                if metadata.is_dir() {
                    folders.push(entry.path());
                }
            }
        }
        self.hold_share(SharedResource::BuildDisk, self.size - remaining)
    }

    /// Measures these processes; fails if their number or memory is over a limit.
    fn measure_processes(&self, processes: &[Pid]) -> Result<(), ProgramStop> {
        let count = (processes.len() as u64).saturating_sub(SANDBOX_PROCESSES);
        if count > self.processes {
            return Err(ProgramStop::Processes);
        }
        let memory = measure_memory(processes);
        if memory > self.memory {
            return Err(ProgramStop::Memory);
        }
        self.hold_share(SharedResource::BuildProcesses, count)?;
        self.hold_share(SharedResource::BuildMemory, memory)
    }

    fn hold_share(&self, resource: SharedResource, amount: u64) -> Result<(), ProgramStop> {
        self.context.hold_share(resource, amount).map_err(|reason| ProgramStop::Share(resource, reason))
    }
}

/// Whether an error means that a file was removed meanwhile.
pub(super) fn is_removed_error(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Runs a program until it ends or reaches a limit. With `wants_output` its standard output is collected; otherwise it
/// is passed to `log_line` line by line, like its standard error. No process that it started is alive when this
/// returns, except those that hide on purpose (see [`ProcessTree`]).
pub(super) fn run_program(
    command: &mut Command,
    wants_output: bool,
    limits: &ProgramLimits<'_>,
    log_line: &mut dyn FnMut(&str),
) -> Result<ProgramResult, ProgramStop> {
    limits.check_time()?;
    let program = PathBuf::from(command.get_program());
    let (mut process_tree, output) =
        start_program(command, wants_output, limits).map_err(|error| ProgramStop::StartFailed(program, error))?;
    let mut result = ProgramResult { status: ExitStatus::default(), output: Vec::new(), last_lines: String::new() };
    let mut last_lines: Vec<String> = Vec::new();
    let mut receive = |piece: ProgramOutput| match piece {
        ProgramOutput::Line(line) => {
            log_line(&line);
            if last_lines.len() == QUOTED_LINES {
                last_lines.remove(0);
            }
            last_lines.push(line);
        }
        ProgramOutput::Bytes(bytes) => {
            let capacity = MAX_OUTPUT_BYTES.saturating_sub(result.output.len());
            result.output.extend_from_slice(&bytes[..bytes.len().min(capacity)]);
        }
    };
    let supervised = supervise(&process_tree, &output, limits, &mut receive);
    result.status =
        process_tree.end().map_err(|error| ProgramStop::StartFailed(PathBuf::from(command.get_program()), error))?;
    let output_deadline = Instant::now() + OUTPUT_TIMEOUT;
    while let Some(remaining) = output_deadline.checked_duration_since(Instant::now())
        && let Ok(piece) = output.recv_timeout(remaining)
    {
        receive(piece);
    }
    supervised?;
    limits.measure_folder()?;
    result.last_lines = last_lines.join(" | ");
    Ok(result)
}

/// Starts a program, and threads that read its output. The threads end when no process is left that could write.
fn start_program(
    command: &mut Command,
    wants_output: bool,
    limits: &ProgramLimits<'_>,
) -> io::Result<(ProcessTree, Receiver<ProgramOutput>)> {
    // Bounded: a program that writes faster than its output is read has to wait.
    let (sender, receiver) = mpsc::sync_channel(64);
    let (error_reader, error_writer) = io::pipe()?;
    if wants_output {
        let (output_reader, output_writer) = io::pipe()?;
        command.stdout(output_writer);
        read_pipe(output_reader, sender.clone(), |bytes, sender| {
            sender.send(ProgramOutput::Bytes(bytes.to_vec())).is_ok()
        })?;
    } else {
        command.stdout(error_writer.try_clone()?);
    }
    let mut lines = OutputLines::default();
    read_pipe(error_reader, sender, move |bytes, sender| {
        let mut is_received = true;
        let mut send_line = |line| is_received &= sender.send(ProgramOutput::Line(line)).is_ok();
        if bytes.is_empty() {
            lines.end(&mut send_line);
        } else {
            lines.push(bytes, &mut send_line);
        }
        is_received
    })?;
    let child = command.stdin(Stdio::null()).stderr(error_writer).process_group(0).spawn();
    // Otherwise the command would keep the pipes open, and the threads running.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = child.map_err(explain_start_error)?;
    Ok((ProcessTree { child, work_folder: limits.work_folder.to_owned(), is_ended: false }, receiver))
}

/// Reads a pipe on a thread and passes each piece to `pass_on`, and an empty piece at the end. Stops if `pass_on`
/// returns false.
fn read_pipe(
    mut pipe: PipeReader,
    sender: SyncSender<ProgramOutput>,
    mut pass_on: impl FnMut(&[u8], &SyncSender<ProgramOutput>) -> bool + Send + 'static,
) -> io::Result<()> {
    let read_to_end = move || {
        let mut buffer = vec![0; 16 * 1024];
        loop {
            let n = match pipe.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result.unwrap_or(0),
            };
            if !pass_on(&buffer[..n], &sender) || n == 0 {
                return;
            }
        }
    };
    std::thread::Builder::new().name("output".to_owned()).spawn(read_to_end).map(drop)
}

/// Receives the output and checks the limits until the program ends or reaches one.
fn supervise(
    process_tree: &ProcessTree,
    output: &Receiver<ProgramOutput>,
    limits: &ProgramLimits<'_>,
    receive: &mut dyn FnMut(ProgramOutput),
) -> Result<(), ProgramStop> {
    let mut next_measurement = Instant::now() + MIN_MEASURE_INTERVAL;
    loop {
        match output.recv_timeout(CHECK_INTERVAL) {
            Ok(piece) => receive(piece),
            Err(RecvTimeoutError::Timeout) => {}
            // A program may close its output and continue.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(CHECK_INTERVAL),
        }
        limits.check_time()?;
        if process_tree.has_ended() {
            return Ok(());
        }
        let started = Instant::now();
        if started >= next_measurement {
            limits.measure_processes(&process_tree.living_processes())?;
            limits.measure_folder()?;
            next_measurement = Instant::now() + MIN_MEASURE_INTERVAL.max(started.elapsed() * MEASURE_PAUSE_FACTOR);
        }
    }
}

/// A program and the processes that it started. All of them are killed when this value is dropped.
///
/// A process can leave its process group, so `/proc` is searched as well: for the session, for children of known
/// processes, and for a `HOME` in the folder of the build. A process that has changed all of these on purpose is not
/// found. Only a sandbox with a separate PID namespace leaves no process behind in any case.
#[derive(Debug)]
struct ProcessTree {
    child: Child,
    work_folder: PathBuf,
    is_ended: bool,
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
        const MAX_KILL_ROUNDS: u32 = 200;
        if let Some(id) = self.id() {
            // Fails if the group has no process any more.
            let _ = kill_process_group(id, Signal::KILL);
            for _ in 0..MAX_KILL_ROUNDS {
                let remaining = self.related_processes(id);
                if remaining.is_empty() {
                    break;
                }
                for id in remaining {
                    let _ = kill_process(id, Signal::KILL);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        self.is_ended = true;
        self.child.wait()
    }

    /// Returns the ids of all processes that are alive.
    fn living_processes(&self) -> Vec<Pid> {
        self.id().map(|id| self.related_processes(id)).unwrap_or_default()
    }

    /// Returns the ids of the living processes that descend from `first` or belong to the build.
    fn related_processes(&self, first: Pid) -> Vec<Pid> {
        let all: Vec<ProcessStat> = list_processes();
        let mut related = BTreeSet::from([first.as_raw_nonzero().get()]);
        loop {
            let before = related.len();
            for stat in all.iter().filter(|stat| stat.id != std::process::id().cast_signed()) {
                let is_related = [stat.parent, stat.group, stat.session].iter().any(|id| related.contains(id));
                if !related.contains(&stat.id) && (is_related || has_home_in(stat.id, &self.work_folder)) {
                    related.insert(stat.id);
                }
            }
            if related.len() == before {
                break;
            }
        }
        let is_living = |stat: &&ProcessStat| related.contains(&stat.id) && !stat.is_dead;
        all.iter().filter(is_living).filter_map(|stat| Pid::from_raw(stat.id)).collect()
    }
}

/// Kills every process that was started with a `HOME` below this folder. These are builds of an origin process that was
/// killed, if their sandbox did not end them. No build may be running there.
pub(super) fn kill_leftover_processes(folder: &Path) {
    let Ok(folder) = folder.canonicalize() else { return };
    for stat in list_processes().iter().filter(|stat| !stat.is_dead && has_home_in(stat.id, &folder)) {
        if let Some(id) = Pid::from_raw(stat.id).filter(|_| stat.id != std::process::id().cast_signed()) {
            let _ = kill_process(id, Signal::KILL);
        }
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        if !self.is_ended {
            // The status is not needed any more.
            let _ = self.end();
        }
    }
}

/// Fields of `/proc/<id>/stat` (`proc_pid_stat(5)`).
#[derive(Debug, PartialEq, Eq)]
struct ProcessStat {
    id: i32,
    is_dead: bool,
    parent: i32,
    group: i32,
    session: i32,
}

impl ProcessStat {
    fn parse(text: &str) -> Option<ProcessStat> {
        let id = text.split(' ').next()?.parse().ok()?;
        // The name is in parentheses and may contain any characters.
        let mut fields = text.rsplit_once(") ")?.1.split(' ');
        let is_dead = matches!(fields.next()?, "Z" | "X" | "x");
        let mut number = || fields.next()?.parse().ok();
        Some(ProcessStat { id, is_dead, parent: number()?, group: number()?, session: number()? })
    }
}

/// Lists all processes of this machine.
fn list_processes() -> Vec<ProcessStat> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let folders = entries.flatten().map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
        name.iter().all(u8::is_ascii_digit)
    });
    folders
        .filter_map(|path| ProcessStat::parse(&String::from_utf8_lossy(&fs::read(path.join("stat")).ok()?)))
        .collect()
}

/// Whether a process was started with a `HOME` in this folder.
fn has_home_in(id: i32, work_folder: &Path) -> bool {
    let environment = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
    let home = environment.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"HOME="));
    home.is_some_and(|home| Path::new(std::ffi::OsStr::from_bytes(home)).starts_with(work_folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_is_parsed_correctly_for_any_process_name() {
        let stat = ProcessStat::parse("17 (a) Z 1 (b) S 5 16 15 0 -1 4194304").unwrap();
        assert_eq!(stat, ProcessStat { id: 17, is_dead: false, parent: 5, group: 16, session: 15 });
        assert!(ProcessStat::parse("18 (x) Z 5 16 15 0").unwrap().is_dead);
        assert_eq!(ProcessStat::parse("garbage"), None);
    }
}
