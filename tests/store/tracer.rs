//! The real program, stopped at each system call by which it changes what lies below a folder: killed before the call or
//! right after it, or told that the call has failed. Nothing of this is in the product; it does not know.
//!
//! The kernel does the picking: a seccomp filter stops the program at calls that can change files and lets all others
//! pass, and `ptrace` tells this thread of each. Libraries that are put before others (`LD_PRELOAD`) would see nothing:
//! the program makes some of its calls without the C library.

// There is no other way to `ptrace` and to seccomp filters; every block says why it is sound.
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

/// A program that has not ended after so long is killed, and its test fails.
const PATIENCE: Duration = Duration::from_mins(2);

/// What a call names: the descriptor in this argument, a path, a folder's descriptor and a path below it, a socket's
/// address.
#[derive(Clone, Copy)]
enum Names {
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
    names: Names,
    /// Where the flags are by which opening changes nothing unless they say so.
    flags: Option<u32>,
}

const fn call(number: c_long, name: &'static str, names: Names) -> Call {
    Call { number, name, names, flags: None }
}

const CALLS: &[Call] = &[
    call(libc::SYS_write, "write", Names::Fd(0)),
    call(libc::SYS_writev, "write", Names::Fd(0)),
    call(libc::SYS_pwrite64, "write", Names::Fd(0)),
    call(libc::SYS_pwritev, "write", Names::Fd(0)),
    call(libc::SYS_pwritev2, "write", Names::Fd(0)),
    call(libc::SYS_sendfile, "write", Names::Fd(0)),
    call(libc::SYS_copy_file_range, "write", Names::Fd(2)),
    call(libc::SYS_splice, "write", Names::Fd(2)),
    call(libc::SYS_fsync, "fsync", Names::Fd(0)),
    call(libc::SYS_fdatasync, "fsync", Names::Fd(0)),
    call(libc::SYS_syncfs, "syncfs", Names::Fd(0)),
    call(libc::SYS_ftruncate, "truncate", Names::Fd(0)),
    call(libc::SYS_truncate, "truncate", Names::Path(0)),
    call(libc::SYS_fallocate, "allocate", Names::Fd(0)),
    call(libc::SYS_fchmod, "chmod", Names::Fd(0)),
    call(libc::SYS_fchmodat, "chmod", Names::At(0, 1)),
    call(libc::SYS_fchown, "chown", Names::Fd(0)),
    call(libc::SYS_fchownat, "chown", Names::At(0, 1)),
    call(libc::SYS_utimensat, "date", Names::At(0, 1)),
    Call { number: libc::SYS_openat, name: "create", names: Names::At(0, 1), flags: Some(2) },
    call(libc::SYS_mkdirat, "mkdir", Names::At(0, 1)),
    call(libc::SYS_unlinkat, "remove", Names::At(0, 1)),
    call(libc::SYS_symlinkat, "symlink", Names::At(1, 2)),
    call(libc::SYS_linkat, "link", Names::Ats(0, 1, 2, 3)),
    call(libc::SYS_renameat2, "rename", Names::Ats(0, 1, 2, 3)),
    call(libc::SYS_bind, "bind", Names::Address(1)),
];

/// Those that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLD_CALLS: &[Call] = &[
    Call { number: libc::SYS_open, name: "create", names: Names::Path(0), flags: Some(1) },
    call(libc::SYS_creat, "create", Names::Path(0)),
    call(libc::SYS_mkdir, "mkdir", Names::Path(0)),
    call(libc::SYS_rmdir, "remove", Names::Path(0)),
    call(libc::SYS_unlink, "remove", Names::Path(0)),
    call(libc::SYS_chmod, "chmod", Names::Path(0)),
    call(libc::SYS_chown, "chown", Names::Path(0)),
    call(libc::SYS_symlink, "symlink", Names::Path(1)),
    call(libc::SYS_link, "link", Names::Paths(0, 1)),
    call(libc::SYS_rename, "rename", Names::Paths(0, 1)),
    call(libc::SYS_renameat, "rename", Names::Ats(0, 1, 2, 3)),
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

/// One change of what lies below the folder.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Step {
    /// `write`, `fsync`, `rename`, …
    pub(crate) call: &'static str,
    /// To what: a path below the folder, with ids and times by the names that they were given.
    pub(crate) path: String,
    /// How often the same has been done to the same before.
    pub(crate) nth: usize,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.call, self.path)?;
        if self.nth > 0 { write!(f, " ({})", self.nth + 1) } else { Ok(()) }
    }
}

/// What happens at a step.
#[derive(Clone, Copy)]
pub(crate) enum Then<'a> {
    /// Killed before the call.
    KillBefore,
    /// Killed right after it.
    KillAfter,
    /// The call does nothing and fails with this number; the program goes on.
    Fail(i32),
    /// This is done right after the call, then it is killed.
    DoAndKill(&'a dyn Fn()),
}

/// Whether calls can be made to fail here: that takes another way to the registers on each architecture.
pub(crate) const CAN_FAIL: bool = cfg!(target_arch = "x86_64");

/// What to look at, and what to do where.
pub(crate) struct Plan<'a> {
    /// The folder.
    pub(crate) below: &'a Path,
    /// Texts in paths, and what steps have instead of them.
    pub(crate) names: &'a [(String, String)],
    /// At which step something happens, and what.
    pub(crate) at: Option<(&'a Step, Then<'a>)>,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    /// The exit code; none if it was killed.
    pub(crate) code: Option<i32>,
    /// Steps that were taken, in order, and whether the kernel refused them.
    pub(crate) steps: Vec<(Step, bool)>,
    /// Whether the step of the plan was reached.
    pub(crate) reached: bool,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs the command to its end under the plan. `started` is told its process id.
///
/// # Panics
/// Where `ptrace` or seccomp filters are refused: without them there is no test.
pub(crate) fn trace(command: &mut Command, plan: &Plan<'_>, started: impl FnOnce(u32)) -> Ran {
    let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile().expect("a temporary file"));
    command.stdin(Stdio::null());
    command.stdout(stdout.try_clone().expect("a descriptor")).stderr(stderr.try_clone().expect("a descriptor"));
    command.process_group(0);
    let filter = filter();
    // SAFETY: between fork and exec only system calls are made, on memory that was allocated before.
    unsafe {
        command.pre_exec(move || be_traced(&filter));
    }
    // Its end is awaited below, together with those of its threads.
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
        below: plan.below.canonicalize().expect("the folder is there"),
        plan,
        seen: HashSet::from([leader]),
        inside: HashMap::new(),
        steps: Vec::new(),
        counts: HashMap::new(),
        reached: false,
    };
    let (done, minded) = channel::<()>();
    let minder = std::thread::spawn(move || {
        let late = minded.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout);
        if late {
            kill(leader);
        }
        late
    });
    let code = tracer.attend();
    drop(done);
    let late = minder.join().expect("waiting does not panic");
    let text = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("what was printed can be read");
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (stdout, stderr) = (text(&mut stdout), text(&mut stderr));
    assert!(!late, "still running after {PATIENCE:?}: {stdout}{stderr}");
    Ran { code, steps: tracer.steps, reached: tracer.reached, stdout, stderr }
}

fn kill(leader: pid_t) {
    if let Some(pid) = Pid::from_raw(leader) {
        // It may have ended by itself.
        let _ = kill_process_group(pid, Signal::KILL);
    }
}

/// The filter: stop at these calls, let others pass.
fn filter() -> Vec<libc::sock_filter> {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const HAS: u16 = (libc::BPF_JMP | libc::BPF_JSET | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let line = |code, k, jt, jf| libc::sock_filter { code, jt, jf, k };
    let stop = line(RETURN, libc::SECCOMP_RET_TRACE, 0, 0);
    let pass = line(RETURN, libc::SECCOMP_RET_ALLOW, 0, 0);
    // The architecture is at 4, the number at 0, the lower half of argument n at 16 + 8 n (both are little-endian).
    let mut lines = vec![line(LOAD, 4, 0, 0), line(EQUAL, ARCHITECTURE, 1, 0), pass, line(LOAD, 0, 0, 0)];
    for call in calls() {
        let number = u32::try_from(call.number).expect("numbers of calls are small");
        if let Some(argument) = call.flags {
            let changes = (libc::O_CREAT | libc::O_TRUNC).cast_unsigned();
            lines.push(line(EQUAL, number, 0, 4));
            lines.extend([line(LOAD, 16 + 8 * argument, 0, 0), line(HAS, changes, 0, 1), stop, pass]);
        } else {
            lines.extend([line(EQUAL, number, 0, 1), stop]);
        }
    }
    lines.push(pass);
    lines
}

/// In the child, before it becomes the program.
fn be_traced(filter: &[libc::sock_filter]) -> io::Result<()> {
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
    below: PathBuf,
    plan: &'a Plan<'a>,
    /// Threads whose first stop has been seen, or whose first stop is none.
    seen: HashSet<pid_t>,
    /// Threads within a call, by their step.
    inside: HashMap<pid_t, usize>,
    steps: Vec<(Step, bool)>,
    counts: HashMap<(&'static str, String), usize>,
    reached: bool,
}

impl Tracer<'_> {
    /// Goes along until the program has ended; gives its exit code.
    fn attend(&mut self) -> Option<i32> {
        let mut begun = false;
        loop {
            let mut status: c_int = 0;
            // Only of this thread: several tests trace at once.
            // SAFETY: a plain system call that writes to `status`.
            let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
            if pid < 0 {
                let error = io::Error::last_os_error();
                if error.kind() == io::ErrorKind::Interrupted {
                    continue;
                }
                panic!("the program is gone without a word: {error}");
            }
            if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
                if pid == self.leader {
                    return libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status));
                }
                continue;
            }
            if !begun {
                // The stop at exec.
                begun = true;
                let options = libc::PTRACE_O_TRACESECCOMP
                    | libc::PTRACE_O_TRACECLONE
                    | libc::PTRACE_O_TRACEFORK
                    | libc::PTRACE_O_TRACEVFORK
                    | libc::PTRACE_O_TRACESYSGOOD
                    | libc::PTRACE_O_EXITKILL;
                assert_eq!(
                    request(libc::PTRACE_SETOPTIONS, pid, options.cast_unsigned() as usize),
                    0,
                    "options of ptrace"
                );
                request(libc::PTRACE_CONT, pid, 0);
                continue;
            }
            self.stopped(pid, libc::WSTOPSIG(status), status >> 16);
        }
    }

    fn stopped(&mut self, pid: pid_t, signal: c_int, event: c_int) {
        let is_first = self.seen.insert(pid);
        if event == libc::PTRACE_EVENT_SECCOMP {
            self.enter(pid);
        } else if signal == libc::SIGTRAP | 0x80 {
            self.leave(pid);
        } else if event != 0 || is_first && signal == libc::SIGSTOP {
            request(libc::PTRACE_CONT, pid, 0);
        } else {
            request(libc::PTRACE_CONT, pid, signal.cast_unsigned() as usize);
        }
    }

    /// A thread is about to make a call.
    fn enter(&mut self, pid: pid_t) {
        let Some((name, path)) = info(pid).and_then(|info| self.judge(pid, &info)) else {
            request(libc::PTRACE_CONT, pid, 0);
            return;
        };
        let nth = self.counts.entry((name, path.clone())).or_default();
        let step = Step { call: name, path, nth: *nth };
        *nth += 1;
        let then = self.plan.at.filter(|(at, _)| **at == step).map(|(_, then)| then);
        self.steps.push((step, false));
        match then {
            Some(Then::KillBefore) => {
                self.reached = true;
                kill(self.leader);
                return;
            }
            Some(Then::Fail(error)) => {
                self.reached = true;
                fail(pid, error);
            }
            _ => {}
        }
        self.inside.insert(pid, self.steps.len() - 1);
        request(libc::PTRACE_SYSCALL, pid, 0);
    }

    /// A thread has made it.
    fn leave(&mut self, pid: pid_t) {
        const EXIT: u64 = 2;
        let result = info(pid).filter(|info| info[0] & 0xff == EXIT).map(|info| info[3].cast_signed());
        if let (Some(result), Some(at)) = (result, self.inside.remove(&pid)) {
            self.steps[at].1 = result < 0;
            match self.plan.at.filter(|(step, _)| **step == self.steps[at].0).map(|(_, then)| then) {
                Some(Then::KillAfter) => {
                    self.reached = true;
                    kill(self.leader);
                    return;
                }
                Some(Then::DoAndKill(act)) => {
                    self.reached = true;
                    act();
                    kill(self.leader);
                    return;
                }
                _ => {}
            }
        }
        request(libc::PTRACE_CONT, pid, 0);
    }

    /// What the call is and what it is made to, if that lies below the folder.
    fn judge(&self, pid: pid_t, info: &Info) -> Option<(&'static str, String)> {
        let number = c_long::try_from(info[3]).ok()?;
        let call = calls().find(|call| call.number == number)?;
        let argument = |n: usize| info[4 + n];
        let here = |path: PathBuf| path.strip_prefix(&self.below).ok().map(|path| self.named(path));
        let pair = |from: PathBuf, to: PathBuf| match (here(from), here(to)) {
            (None, None) => None,
            (from, to) => {
                let elsewhere = || "(elsewhere)".to_owned();
                Some(format!("{} to {}", from.unwrap_or_else(elsewhere), to.unwrap_or_else(elsewhere)))
            }
        };
        let path = match call.names {
            Names::Fd(fd) => here(of_fd(pid, argument(fd))?)?,
            Names::Path(path) => here(resolve(pid, None, argument(path))?)?,
            Names::At(dir, path) => here(resolve(pid, Some(argument(dir)), argument(path))?)?,
            Names::Paths(from, to) => pair(resolve(pid, None, argument(from))?, resolve(pid, None, argument(to))?)?,
            Names::Ats(from_dir, from, to_dir, to) => pair(
                resolve(pid, Some(argument(from_dir)), argument(from))?,
                resolve(pid, Some(argument(to_dir)), argument(to))?,
            )?,
            Names::Address(address) => here(socket(pid, argument(address), argument(address + 1))?)?,
        };
        Some((call.name, path))
    }

    /// A path as steps have it.
    fn named(&self, path: &Path) -> String {
        let mut text = path.to_string_lossy().into_owned();
        if text.is_empty() {
            ".".clone_into(&mut text);
        }
        for (from, to) in self.plan.names {
            text = text.replace(from, to);
        }
        // Receipts are called by their time, temporary folders by chance.
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

/// What the kernel tells of a call: which stop it is, the number or result at 3, arguments from 4 on.
type Info = [u64; 11];

fn info(pid: pid_t) -> Option<Info> {
    const GET_SYSCALL_INFO: libc::c_uint = 0x420e;
    let mut info: Info = [0; 11];
    // SAFETY: the kernel writes at most as many bytes as it is told that there are.
    let got = unsafe { libc::ptrace(GET_SYSCALL_INFO, pid, size_of::<Info>(), info.as_mut_ptr().cast::<c_void>()) };
    (got > 0).then_some(info)
}

fn request(what: libc::c_uint, pid: pid_t, data: usize) -> c_long {
    // SAFETY: requests that read and write nothing of ours. One to a thread that has just been killed fails, and its end
    // is heard of next.
    unsafe { libc::ptrace(what, pid, 0, data) }
}

/// Has the call that a thread is about to make skipped, with this error for its result.
#[cfg(target_arch = "x86_64")]
fn fail(pid: pid_t, error: i32) {
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
fn fail(_: pid_t, _: i32) {
    panic!("calls can be made to fail on x86-64 only (see CAN_FAIL)");
}

fn of_fd(pid: pid_t, fd: u64) -> Option<PathBuf> {
    // The kernel takes the lower half.
    let path = std::fs::read_link(format!("/proc/{pid}/fd/{}", fd as u32)).ok()?;
    let text = path.to_str()?;
    text.starts_with('/').then(|| PathBuf::from(text.strip_suffix(" (deleted)").unwrap_or(text)))
}

/// The path that a call names.
fn resolve(pid: pid_t, dir: Option<u64>, at: u64) -> Option<PathBuf> {
    let path = if at == 0 { PathBuf::new() } else { PathBuf::from(string(pid, at)?) };
    let base = || match dir {
        Some(fd) if fd as i32 != libc::AT_FDCWD => of_fd(pid, fd),
        _ => std::fs::read_link(format!("/proc/{pid}/cwd")).ok(),
    };
    let whole = if path.is_absolute() { path } else { base()?.join(path) };
    let Ok(rest) = whole.strip_prefix("/proc/self/fd") else { return Some(whole) };
    let mut rest = rest.components();
    let fd = rest.next()?.as_os_str().to_str()?.parse().ok()?;
    Some(of_fd(pid, fd)?.join(rest.as_path()))
}

fn string(pid: pid_t, at: u64) -> Option<String> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; 4096];
    // A page's end may be that of the memory.
    let most = 4096 - (at % 4096) as usize;
    let mut n = memory.read_at(&mut bytes[..most], at).ok()?;
    if !bytes[..n].contains(&0) {
        n += memory.read_at(&mut bytes[n..], at + n as u64).unwrap_or(0);
    }
    let end = bytes[..n].iter().position(|&byte| byte == 0)?;
    Some(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// The path of a socket's address, if it has one.
fn socket(pid: pid_t, at: u64, len: u64) -> Option<PathBuf> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let mut bytes = vec![0; usize::try_from(len).ok()?.min(128)];
    memory.read_exact_at(&mut bytes, at).ok()?;
    let is_local = bytes.get(..2)? == libc::AF_UNIX.to_ne_bytes().get(..2)?;
    (is_local && bytes.get(2) == Some(&b'/')).then(|| resolve(pid, None, at + 2)).flatten()
}
