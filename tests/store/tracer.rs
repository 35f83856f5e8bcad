//! A tracer that stops the real program at each system call that changes files below a folder. There it kills the
//! program before or right after the call, or makes the call fail. The product contains no code for this.
//!
//! The kernel selects the calls: a seccomp filter stops the program at calls that can change files and lets all others
//! pass, and `ptrace` reports each stop to this thread. A library in `LD_PRELOAD` would miss calls, because the program
//! makes some of them without the C library.

// `ptrace` and seccomp filters need `unsafe`. Each block states why it is sound.
#![allow(unsafe_code)]
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use libc::{c_int, c_long, c_void, pid_t};
use rustix::process::{Pid, Signal, kill_process_group};

/// The time after which a program that still runs is killed. Its test fails.
const PROGRAM_TIMEOUT: Duration = Duration::from_mins(2);

/// The arguments of a call that identify files, by their numbers: a descriptor, a path, a folder's descriptor with a
/// path below it, two of them, or a socket's address.
#[derive(Clone, Copy)]
enum PathArgument {
    Fd(usize),
    Path(usize),
    At(usize, usize),
    Paths(usize, usize),
    Ats(usize, usize, usize, usize),
    Address(usize),
}

struct Call {
    number: c_long,
    name: &'static str,
    path_argument: PathArgument,
    /// The number of the argument with the flags of `open`: without `O_CREAT` and `O_TRUNC` it changes nothing.
    flags: Option<u32>,
}

const fn call(number: c_long, name: &'static str, path_argument: PathArgument) -> Call {
    Call { number, name, path_argument, flags: None }
}

const CALLS: &[Call] = &[
    call(libc::SYS_write, "write", PathArgument::Fd(0)),
    call(libc::SYS_writev, "write", PathArgument::Fd(0)),
    call(libc::SYS_pwrite64, "write", PathArgument::Fd(0)),
    call(libc::SYS_pwritev, "write", PathArgument::Fd(0)),
    call(libc::SYS_pwritev2, "write", PathArgument::Fd(0)),
    call(libc::SYS_sendfile, "write", PathArgument::Fd(0)),
    call(libc::SYS_copy_file_range, "write", PathArgument::Fd(2)),
    call(libc::SYS_splice, "write", PathArgument::Fd(2)),
    call(libc::SYS_fsync, "fsync", PathArgument::Fd(0)),
    call(libc::SYS_fdatasync, "fsync", PathArgument::Fd(0)),
    call(libc::SYS_syncfs, "syncfs", PathArgument::Fd(0)),
    call(libc::SYS_ftruncate, "truncate", PathArgument::Fd(0)),
    call(libc::SYS_truncate, "truncate", PathArgument::Path(0)),
    call(libc::SYS_fallocate, "allocate", PathArgument::Fd(0)),
    call(libc::SYS_fchmod, "chmod", PathArgument::Fd(0)),
    call(libc::SYS_fchmodat, "chmod", PathArgument::At(0, 1)),
    call(libc::SYS_fchown, "chown", PathArgument::Fd(0)),
    call(libc::SYS_fchownat, "chown", PathArgument::At(0, 1)),
    call(libc::SYS_utimensat, "date", PathArgument::At(0, 1)),
    Call { number: libc::SYS_openat, name: "create", path_argument: PathArgument::At(0, 1), flags: Some(2) },
    call(libc::SYS_mkdirat, "mkdir", PathArgument::At(0, 1)),
    call(libc::SYS_unlinkat, "remove", PathArgument::At(0, 1)),
    call(libc::SYS_symlinkat, "symlink", PathArgument::At(1, 2)),
    call(libc::SYS_linkat, "link", PathArgument::Ats(0, 1, 2, 3)),
    call(libc::SYS_renameat2, "rename", PathArgument::Ats(0, 1, 2, 3)),
    call(libc::SYS_bind, "bind", PathArgument::Address(1)),
];

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[Call] = &[
    Call { number: libc::SYS_open, name: "create", path_argument: PathArgument::Path(0), flags: Some(1) },
    call(libc::SYS_creat, "create", PathArgument::Path(0)),
    call(libc::SYS_mkdir, "mkdir", PathArgument::Path(0)),
    call(libc::SYS_rmdir, "remove", PathArgument::Path(0)),
    call(libc::SYS_unlink, "remove", PathArgument::Path(0)),
    call(libc::SYS_chmod, "chmod", PathArgument::Path(0)),
    call(libc::SYS_chown, "chown", PathArgument::Path(0)),
    call(libc::SYS_symlink, "symlink", PathArgument::Path(1)),
    call(libc::SYS_link, "link", PathArgument::Paths(0, 1)),
    call(libc::SYS_rename, "rename", PathArgument::Paths(0, 1)),
    call(libc::SYS_renameat, "rename", PathArgument::Ats(0, 1, 2, 3)),
];
#[cfg(not(target_arch = "x86_64"))]
const OLD_CALLS: &[Call] = &[];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

fn calls() -> impl Iterator<Item = &'static Call> {
    CALLS.iter().chain(OLD_CALLS)
}

/// One call that changes a file or folder below the traced folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    /// `write`, `fsync`, `rename`, …
    pub(crate) call: &'static str,
    /// The changed path, relative to the folder. Version ids and times are replaced by fixed texts.
    pub(crate) path: String,
    /// The number of earlier steps with an equal call and path.
    pub(crate) nth: usize,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.call, self.path)?;
        if self.nth > 0 { write!(f, " ({})", self.nth + 1) } else { Ok(()) }
    }
}

/// The interruption at a step.
#[derive(Clone, Copy)]
pub(crate) enum Interruption<'a> {
    /// The program is killed before the call.
    KillBefore,
    /// The program is killed right after the call.
    KillAfter,
    /// The call does nothing and fails with this error number. The program goes on.
    Fail(i32),
    /// The function is called right after the call, then the program is killed.
    DoAndKill(&'a dyn Fn()),
}

/// Whether this tracer can make calls fail: access to registers differs between architectures.
pub(crate) const CAN_FAIL: bool = cfg!(target_arch = "x86_64");

/// The folder to watch, and the interruption.
pub(crate) struct TracePlan<'a> {
    /// The folder whose changes are steps.
    pub(crate) folder: &'a Path,
    /// Texts in paths, and their replacements in steps.
    pub(crate) replacements: &'a [(String, String)],
    /// The step that is interrupted, and how.
    pub(crate) interruption: Option<(&'a Step, Interruption<'a>)>,
}

/// The result of a traced program.
#[derive(Debug)]
pub(crate) struct TraceResult {
    /// The exit code. `None` if the program was killed.
    pub(crate) code: Option<i32>,
    /// All steps in order, and whether the kernel refused each.
    pub(crate) steps: Vec<(Step, bool)>,
    /// Whether the program reached the step of the plan.
    pub(crate) was_reached: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the command to its end under the plan. `started` is called with its process id.
///
/// # Panics
/// If the system refuses `ptrace` or seccomp filters.
pub(crate) fn trace(command: &mut Command, plan: &TracePlan<'_>, started: impl FnOnce(u32)) -> TraceResult {
    let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile().expect("a temporary file"));
    command.stdin(Stdio::null());
    command.stdout(stdout.try_clone().expect("a descriptor")).stderr(stderr.try_clone().expect("a descriptor"));
    command.process_group(0);
    let seccomp_filter = seccomp_filter();
    // SAFETY: between fork and exec only system calls are made, on memory that was allocated before.
    unsafe {
        command.pre_exec(move || start_tracing(&seccomp_filter));
    }
    // `run_to_end` waits for the child, together with its threads.
    #[allow(clippy::zombie_processes)]
    let child = command.spawn().unwrap_or_else(|error| {
        panic!(
            "these tests need `ptrace` of their own children and seccomp filters, which this machine or its container \
             refuses (docker: --cap-add SYS_PTRACE): {error}"
        )
    });
    let leader = pid_t::try_from(child.id()).expect("a process id");
    started(child.id());
    let mut tracer = Tracer {
        leader,
        folder: plan.folder.canonicalize().expect("the folder is there"),
        plan,
        known_threads: HashSet::from([leader]),
        pending_steps: HashMap::new(),
        steps: Vec::new(),
        counts: HashMap::new(),
        was_reached: false,
    };
    let (running, ended) = channel::<()>();
    let watchdog = std::thread::spawn(move || {
        let is_timed_out = ended.recv_timeout(PROGRAM_TIMEOUT) == Err(RecvTimeoutError::Timeout);
        if is_timed_out {
            kill_group(leader);
        }
        is_timed_out
    });
    let code = tracer.run_to_end();
    drop(running);
    let is_timed_out = watchdog.join().expect("waiting does not panic");
    let text = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("the output can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (stdout, stderr) = (text(&mut stdout), text(&mut stderr));
    assert!(!is_timed_out, "still running after {PROGRAM_TIMEOUT:?}: {stdout}{stderr}");
    TraceResult { code, steps: tracer.steps, was_reached: tracer.was_reached, stdout, stderr }
}

fn kill_group(leader: pid_t) {
    if let Some(pid) = Pid::from_raw(leader) {
        // The process may have ended already.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// The seccomp filter: stops at the listed calls, and lets all others pass.
fn seccomp_filter() -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const HAS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let instruction = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let stop = instruction(RETURN, libc::SECCOMP_RET_TRACE, 0, 0);
    let pass = instruction(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    // The architecture is at 4, the number at 0, the lower half of argument n at 16 + 8 n (both are little-endian).
    let mut program =
        vec![instruction(LOAD, 4, 0, 0), instruction(EQUAL, ARCHITECTURE, 1, 0), pass, instruction(LOAD, 0, 0, 0)];
    for call in calls() {
        let number = u32::try_from(call.number).expect("numbers of calls are small");
        if let Some(argument) = call.flags {
            let changes = (libc::O_CREAT | libc::O_TRUNC).cast_unsigned();
            program.push(instruction(EQUAL, number, 0, 4));
            program.extend([instruction(LOAD, 16 + 8 * argument, 0, 0), instruction(HAS, changes, 0, 1), stop, pass]);
        } else {
            program.extend([instruction(EQUAL, number, 0, 1), stop]);
        }
    }
    program.push(pass);
    program
}

/// Runs in the child before exec: makes this thread its tracer and installs the filter.
fn start_tracing(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: plain system calls; the filter outlives the call that reads it and is not written to.
    let failed = unsafe {
        libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) != 0
    };
    if failed { Err(io::Error::last_os_error()) } else { Ok(()) }
}

struct Tracer<'a> {
    leader: pid_t,
    folder: PathBuf,
    plan: &'a TracePlan<'a>,
    /// Threads that have reported their first stop.
    known_threads: HashSet<pid_t>,
    /// The index of the step whose call a thread executes.
    pending_steps: HashMap<pid_t, usize>,
    steps: Vec<(Step, bool)>,
    counts: HashMap<(&'static str, String), usize>,
    was_reached: bool,
}

impl Tracer<'_> {
    /// Handles all stops until the program has ended. Returns its exit code.
    fn run_to_end(&mut self) -> Option<i32> {
        let mut is_started = false;
        loop {
            let mut status: c_int = 0;
            // Only children of this thread, because several tests trace at the same time.
            // SAFETY: a plain system call that writes to `status`.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            if pid < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                panic!("the program has ended without a status: {error}");
            }
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                if pid == self.leader {
                    return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
                }
                continue;
            }
            if !is_started {
                // The stop at exec.
                is_started = true;
                let options = libc::PTRACE_O_TRACESECCOMP
                    | libc::PTRACE_O_TRACECLONE
                    | libc::PTRACE_O_TRACEFORK
                    | libc::PTRACE_O_TRACEVFORK
                    | libc::PTRACE_O_TRACESYSGOOD
                    | libc::PTRACE_O_EXITKILL;
                assert_eq!(
                    ptrace_request(libc::PTRACE_SETOPTIONS, pid, options.cast_unsigned() as usize),
                    0,
                    "options of ptrace"
                );
                ptrace_request(libc::PTRACE_CONT, pid, 0);
                continue;
            }
            self.handle_stop(pid, libc::WSTOPSIG(status), status >> 16);
        }
    }

    fn handle_stop(&mut self, pid: pid_t, signal: c_int, event: c_int) {
        let is_first = self.known_threads.insert(pid);
        if event == libc::PTRACE_EVENT_SECCOMP {
            self.handle_entry(pid);
        } else if signal == libc::SIGTRAP | 0x80 {
            self.handle_exit(pid);
        } else if event != 0 || is_first && signal == libc::SIGSTOP {
            ptrace_request(libc::PTRACE_CONT, pid, 0);
        } else {
            ptrace_request(libc::PTRACE_CONT, pid, signal.cast_unsigned() as usize);
        }
    }

    /// Handles a thread that is about to make a call.
    fn handle_entry(&mut self, pid: pid_t) {
        let Some((name, path)) = syscall_info(pid).and_then(|info| self.identify_call(pid, &info)) else {
            ptrace_request(libc::PTRACE_CONT, pid, 0);
            return;
        };
        let nth = self.counts.entry((name, path.clone())).or_default();
        let step = Step { call: name, path, nth: *nth };
        *nth += 1;
        let interruption = self
            .plan
            .interruption
            .filter(|(step_of_plan, _)| **step_of_plan == step)
            .map(|(_, interruption)| interruption);
        self.steps.push((step, false));
        match interruption {
            Some(Interruption::KillBefore) => {
                self.was_reached = true;
                kill_group(self.leader);
                return;
            }
            Some(Interruption::Fail(error)) => {
                self.was_reached = true;
                fail_call(pid, error);
            }
            _ => {}
        }
        self.pending_steps.insert(pid, self.steps.len() - 1);
        ptrace_request(libc::PTRACE_SYSCALL, pid, 0);
    }

    /// Handles a thread whose call has returned.
    fn handle_exit(&mut self, pid: pid_t) {
        const EXIT: u64 = 2;
        let result = syscall_info(pid).filter(|info| info[0] & 0xff == EXIT).map(|info| info[3].cast_signed());
        if let (Some(result), Some(index)) = (result, self.pending_steps.remove(&pid)) {
            self.steps[index].1 = result < 0;
            match self.plan.interruption.filter(|(step, _)| **step == self.steps[index].0).map(|(_, then)| then) {
                Some(Interruption::KillAfter) => {
                    self.was_reached = true;
                    kill_group(self.leader);
                    return;
                }
                Some(Interruption::DoAndKill(action)) => {
                    self.was_reached = true;
                    action();
                    kill_group(self.leader);
                    return;
                }
                _ => {}
            }
        }
        ptrace_request(libc::PTRACE_CONT, pid, 0);
    }

    /// The name of the call and the path that it changes, if the path is below the folder.
    fn identify_call(&self, pid: pid_t, info: &SyscallInfo) -> Option<(&'static str, String)> {
        let number = c_long::try_from(info[3]).ok()?;
        let call = calls().find(|call| call.number == number)?;
        let argument = |n: usize| info[4 + n];
        let below_folder = |path: PathBuf| path.strip_prefix(&self.folder).ok().map(|path| self.redact_path(path));
        let pair = |from: PathBuf, to: PathBuf| match (below_folder(from), below_folder(to)) {
            (None, None) => None,
            (from, to) => {
                let outside = || "(elsewhere)".to_owned();
                Some(format!("{} to {}", from.unwrap_or_else(outside), to.unwrap_or_else(outside)))
            }
        };
        let path = match call.path_argument {
            PathArgument::Fd(fd) => below_folder(path_of_descriptor(pid, argument(fd))?)?,
            PathArgument::Path(path) => below_folder(resolve(pid, None, argument(path))?)?,
            PathArgument::At(dir, path) => below_folder(resolve(pid, Some(argument(dir)), argument(path))?)?,
            PathArgument::Paths(from, to) => {
                pair(resolve(pid, None, argument(from))?, resolve(pid, None, argument(to))?)?
            }
            PathArgument::Ats(from_dir, from, to_dir, to) => pair(
                resolve(pid, Some(argument(from_dir)), argument(from))?,
                resolve(pid, Some(argument(to_dir)), argument(to))?,
            )?,
            PathArgument::Address(address) => {
                below_folder(socket_path(pid, argument(address), argument(address + 1))?)?
            }
        };
        Some((call.name, path))
    }

    /// The path as it is in steps.
    fn redact_path(&self, path: &Path) -> String {
        let mut text = path.to_string_lossy().into_owned();
        if text.is_empty() {
            ".".clone_into(&mut text);
        }
        for (from, to) in self.plan.replacements {
            text = text.replace(from, to);
        }
        // Names of receipts contain the time, names of temporary folders a random part.
        let mut parts: Vec<String> = text.split('/').map(str::to_owned).collect();
        for part in &mut parts {
            let digits = part.bytes().filter(u8::is_ascii_digit).count();
            if digits == 20 {
                *part = part.replace(|c: char| c.is_ascii_digit(), "").replace(".json", "<time>.json");
            } else if part.starts_with(".staging-") {
                ".staging".clone_into(part);
            }
        }
        parts.join("/")
    }
}

/// `struct ptrace_syscall_info`: the kind of stop at 0, number or result of the call at 3, arguments from 4 on.
type SyscallInfo = [u64; 11];

fn syscall_info(pid: pid_t) -> Option<SyscallInfo> {
    const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    let mut info: SyscallInfo = [0; 11];
    // SAFETY: the kernel writes at most the given number of bytes.
    let len =
        unsafe { libc::ptrace(GET_SYSCALL_INFO, pid, size_of::<SyscallInfo>(), info.as_mut_ptr().cast::<c_void>()) };
    (len > 0).then_some(info)
}

fn ptrace_request(operation: libc::c_uint, pid: pid_t, data: usize) -> c_long {
    // SAFETY: these requests read and write no memory of this process. A request to a thread that has just been killed
    // fails; `waitpid` reports its end next.
    unsafe { libc::ptrace(operation, pid, 0, data) }
}

/// Makes the kernel skip the call that a thread is about to make, with `error` as its result.
#[cfg(target_arch = "x86_64")]
fn fail_call(pid: pid_t, error: i32) {
    // SAFETY: registers are plain numbers, and the kernel fills all of them.
    unsafe {
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        assert_eq!(libc::ptrace(libc::PTRACE_GETREGS, pid, 0, &raw mut registers), 0, "registers can be read");
        registers.orig_rax = u64::MAX;
        registers.rax = i64::from(-error).cast_unsigned();
        assert_eq!(libc::ptrace(libc::PTRACE_SETREGS, pid, 0, &raw const registers), 0, "registers can be set");
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn fail_call(_: pid_t, _: i32) {
    panic!("calls can be made to fail on x86-64 only (see CAN_FAIL)");
}

fn path_of_descriptor(pid: pid_t, fd: u64) -> Option<PathBuf> {
    // The kernel reads the lower half.
    let path = std::fs::read_link(format!("/proc/{pid}/fd/{}", fd as u32)).ok()?;
    let text = path.to_str()?;
    text.starts_with('/').then(|| PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(text)))
}

/// The absolute path of a path argument.
fn resolve(pid: pid_t, dir: Option<u64>, address: u64) -> Option<PathBuf> {
    let path = if address == 0 { PathBuf::new() } else { PathBuf::from(read_string(pid, address)?) };
    let base = || match dir {
        Some(fd) if fd as i32 != libc::AT_FDCWD => path_of_descriptor(pid, fd),
        _ => std::fs::read_link(format!("/proc/{pid}/cwd")).ok(),
    };
    let full_path = if path.is_absolute() { path } else { base()?.join(path) };
    let Ok(rest) = full_path.strip_prefix("/proc/self/fd") else { return Some(full_path) };
    let mut rest = rest.components();
    let fd = rest.next()?.as_os_str().to_str()?.parse().ok()?;
    Some(path_of_descriptor(pid, fd)?.join(rest.as_path()))
}

fn read_string(pid: pid_t, address: u64) -> Option<String> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; 4096];
    // The memory may end with the page.
    let first_len = 4096 - (address % 4096) as usize;
    let mut n = memory.read_at(&mut bytes[..first_len], address).ok()?;
    if !bytes[..n].contains(&0) {
        n += memory.read_at(&mut bytes[n..], address + n as u64).unwrap_or(0);
    }
    let end = bytes[..n].iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// The path in the address of a Unix socket, if it has one.
fn socket_path(pid: pid_t, address: u64, len: u64) -> Option<PathBuf> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; usize::try_from(len).ok()?.min(128)];
    memory.read_exact_at(&mut bytes, address).ok()?;
    let is_local = bytes.get(..2)? == libc::AF_UNIX.to_ne_bytes().get(..2)?;
    (is_local && bytes.get(2) == Some(&b'/')).then(|| resolve(pid, None, address + 2)).flatten()
}
