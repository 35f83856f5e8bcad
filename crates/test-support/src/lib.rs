//! Helpers that tests and benchmarks share: the executable, sockets, files, archives, and servers to talk to.

// A helper that fails panics, because that is how a test fails.
#![allow(clippy::missing_panics_doc)]
// Helpers connect to the servers of a test.
#![allow(clippy::disallowed_methods)]

pub mod api_server;
pub mod chat_server;
pub mod disk;
pub mod h2;
pub mod host;
pub mod http;
pub mod mcp;
pub mod metrics;
pub mod name_server;
pub mod project_api;
pub mod proxy;
pub mod recorded_network;
pub mod service_manager;
pub mod tar;
pub mod test_origin;
pub mod tls;
pub mod upstream;
pub mod zip;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use socket2::{Domain, Socket, Type};

/// Creates a folder that is removed when the returned value is dropped.
pub fn temporary_folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("docwharf-test-").tempdir().expect("a temporary folder")
}

/// Creates a temporary folder in memory if the system has `/dev/shm`. A kill of a process loses nothing that the kernel
/// has, on a disk or in memory, so waiting for a disk at each `fsync` would only take time.
pub fn memory_folder() -> tempfile::TempDir {
    let in_memory = tempfile::Builder::new().prefix("docwharf-test-").tempdir_in("/dev/shm");
    in_memory.unwrap_or_else(|_| temporary_folder())
}

/// Returns the path of the `docwharf` executable that Cargo has built beside the test program.
///
/// Cargo passes it in the environment. A test program that is run without Cargo is in `deps`, one folder below the
/// executable.
pub fn program_path() -> PathBuf {
    if let Some(path) = std::env::var_os("CARGO_BIN_EXE_docwharf") {
        return path.into();
    }
    let test_program = std::env::current_exe().expect("a test program knows its own path");
    let path = test_program.parent().and_then(Path::parent).expect("test programs lie in `deps`").join("docwharf");
    assert!(path.exists(), "{} is missing: run `cargo build` or `cargo test`", path.display());
    path
}

/// Copies the `docwharf` executable to a path.
///
/// `cp` writes the copy. If this process opened it for writing, a child that another test forks at this moment would
/// inherit the descriptor, and a file that is open for writing cannot be executed.
pub fn copy_program(to: &Path) {
    let status = Command::new("cp").arg(program_path()).arg(to).status().expect("cp runs");
    assert!(status.success(), "the program cannot be copied to {}", to.display());
}

/// Creates a command that runs `docwharf`, without the environment variables of the caller that change its behaviour.
pub fn docwharf() -> Command {
    let mut command = Command::new(program_path());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_ascii_uppercase();
        let removed = ["RUST_LOG", "STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM", "NOTIFY_SOCKET"];
        if text.starts_with("DOCWHARF_")
            || text.starts_with("SSL_CERT_")
            || text.starts_with("LISTEN_")
            || text.starts_with("WATCHDOG_")
            || text.ends_with("_PROXY")
            || removed.contains(&text.as_str())
        {
            command.env_remove(name);
        }
    }
    // Commands that run as root would otherwise read the systemd units of this machine.
    command.env("SYSTEMD_UNIT_PATH", "/nonexistent");
    // Each client would otherwise parse all root certificates of this machine: a fifteenth of the agent's tests.
    command.env("SSL_CERT_FILE", concat!(env!("CARGO_MANIFEST_DIR"), "/no-root-certificates.pem"));
    command.stdin(Stdio::null());
    command
}

/// Exit code and output of a command that has ended.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit code; `None` after a signal.
    pub code: Option<i32>,
    /// The standard output.
    pub stdout: String,
    /// The standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Panics with the output unless the exit code is `code`.
    #[track_caller]
    #[allow(clippy::return_self_not_must_use)] // Some tests check the exit code only.
    pub fn expect(self, code: i32) -> CommandOutput {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// The standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.stdout))
    }
}

/// Runs a command to its end, without a time limit.
pub fn run_to_end(command: &mut Command) -> CommandOutput {
    let Output { status, stdout, stderr } = command.output().expect("docwharf starts");
    CommandOutput {
        code: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Runs `docwharf` with these arguments to its end.
pub fn run_docwharf<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> CommandOutput {
    run_to_end(docwharf().args(arguments))
}

/// Returns the subcommands that the help of a command lists; `words` is the command, such as `["origin", "key"]`.
pub fn list_subcommands(words: &[&str]) -> Vec<String> {
    let help = run_docwharf(words.iter().chain(&["--help"])).expect(0).stdout;
    let Some(list) = help.split("Commands:\n").nth(1) else { return Vec::new() };
    let names = list.lines().take_while(|line| line.starts_with("  "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// A port of this machine that is known before a program listens on it, and that stays free for that program.
///
/// The socket is bound and does not listen. The kernel does not choose its port for a process that requests any free
/// port. A server that requests this port gets it, because both sockets have `SO_REUSEADDR` (socket(7)).
pub struct ReservedPort {
    _socket: Socket,
    /// `127.0.0.1:43817`
    pub address: String,
}

impl Default for ReservedPort {
    fn default() -> ReservedPort {
        ReservedPort::new()
    }
}

impl ReservedPort {
    /// Reserves a free port of 127.0.0.1.
    pub fn new() -> ReservedPort {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
        socket.set_reuse_address(true).expect("an option of all sockets");
        socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
        let address = socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
        ReservedPort { _socket: socket, address: address.to_string() }
    }

    /// Listens on the port, as another program would. The port stays reserved after the listener is dropped.
    pub fn listen(&self) -> TcpListener {
        TcpListener::bind(&self.address).expect("the port is reserved")
    }
}

/// Sends a signal by name, such as `TERM`, to a child that has not been waited for.
///
/// The test itself sends it: on a busy machine, a `kill` process would send it much later than the test expects.
#[track_caller]
pub fn send_signal(child: &Child, name: &str) {
    let signal = match name {
        "CONT" => Signal::CONT,
        "HUP" => Signal::HUP,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "STOP" => Signal::STOP,
        "TERM" => Signal::TERM,
        _ => panic!("no test sends the signal {name:?}"),
    };
    kill_process(Pid::from_child(child), signal).expect("a child that was not waited for gets a signal");
}

/// The longest time between a stop and a request that must still be answered. docwharf waits 500 ms for such a request;
/// on a busy machine, it may accept a later one too late.
const MAX_REQUEST_DELAY: Duration = Duration::from_millis(300);

/// Stops a daemon and sends it a request, again until the request was in time or answered, and returns the response.
///
/// `attempt` returns the time between the stop and the request, and the response.
#[track_caller]
pub fn response_after_stop<T>(mut attempt: impl FnMut() -> (Duration, T), is_answered: impl Fn(&T) -> bool) -> T {
    let mut attempts = (0..10).map(|_| attempt());
    let decided = attempts.find(|(delay, response)| *delay <= MAX_REQUEST_DELAY || is_answered(response));
    decided.expect("one of ten requests is sent in time").1
}

/// A child process that is killed when this is dropped.
#[derive(Debug)]
pub struct KillOnDrop(pub Child);

impl KillOnDrop {
    /// The process id.
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for the end of the process and returns its exit code. Panics after `timeout`.
    #[track_caller]
    pub fn wait(&mut self, timeout: Duration) -> Option<i32> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.0.try_wait().expect("the child can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "still running after {timeout:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sets a flag when it is dropped, so that a thread which waits for the flag also ends when the test fails.
pub struct SetOnDrop<'a>(pub &'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A running `serve` or `run`; killed when dropped.
pub struct Daemon {
    child: KillOnDrop,
    /// The first address that it has announced, without the scheme: `127.0.0.1:43817`.
    pub address: String,
    /// All addresses that it has announced, with the scheme.
    pub urls: Vec<String>,
}

/// Returns the peak memory of a running `docwharf` process in KiB (`VmHWM`). `None` after its end, and as long as the
/// new process has not replaced the program of the test: until then, its memory is that of the test.
pub fn peak_memory_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let peak = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    status.starts_with("Name:\tdocwharf\n").then_some(peak)
}

/// Returns the anonymous memory of a running process in bytes. Mapped files, such as the image of a site, are not
/// counted. `RssAnon` in `/proc/PID/status` would be inexact (`proc_pid_status(5)`).
#[track_caller]
pub fn anonymous_memory_bytes(pid: u32) -> u64 {
    memory_bytes(pid, "Anonymous:")
}

/// Returns the resident memory of a running process in bytes, with the resident part of mapped files.
#[track_caller]
pub fn resident_memory_bytes(pid: u32) -> u64 {
    memory_bytes(pid, "Rss:")
}

#[track_caller]
fn memory_bytes(pid: u32, field: &str) -> u64 {
    let memory = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the process runs");
    let line = memory.lines().find_map(|line| line.strip_prefix(field)).expect("Linux reports it");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Returns the number of open file descriptors of a running process.
#[track_caller]
pub fn open_descriptors(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).expect("the process runs").count()
}

/// The values of `server.http2` with which a test of HTTP/2 runs that counts no frames.
pub const HTTP2_SERVERS: [&str; 2] = ["own", "hyper"];

impl Daemon {
    /// Starts a command that announces its address, and waits for the announcement.
    #[track_caller]
    pub fn start(command: &mut Command) -> Daemon {
        Daemon::start_with_addresses(command, 1)
    }

    /// Starts a command that announces `count` addresses, and waits for the announcements.
    #[track_caller]
    pub fn start_with_addresses(command: &mut Command, count: usize) -> Daemon {
        let mut child = KillOnDrop(command.stdout(Stdio::piped()).spawn().expect("docwharf starts"));
        let mut stdout = BufReader::new(child.0.stdout.take().expect("stdout is piped"));
        let mut urls = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("stdout can be read");
            let is_address = ["http://", "https://"].iter().any(|scheme| line.starts_with(scheme));
            if !is_address || !line.ends_with("/\n") {
                let status = child.0.wait();
                panic!("no address announced: {line:?}, ended {status:?}");
            }
            urls.push(line.trim_end().to_owned());
        }
        let address = urls[0].split("://").nth(1).expect("a scheme").trim_end_matches('/').to_owned();
        Daemon { child, address, urls }
    }

    /// Returns the announced address with this index, without the scheme.
    #[track_caller]
    pub fn address_of(&self, n: usize) -> &str {
        self.urls[n].split("://").nth(1).expect("a scheme").trim_end_matches('/')
    }

    /// Starts `docwharf serve PATH` on a free port, with further arguments. Unless they say otherwise, pages are sent
    /// as they are, without the search box.
    #[track_caller]
    pub fn serve(path: &Path, more: &[&str]) -> Daemon {
        let search_box: &[&str] = if more.contains(&"--search-box") { &[] } else { &["--search-box", "never"] };
        let mut command = docwharf();
        command.arg("serve").arg(path).args(["--listen", "127.0.0.1:0"]).args(search_box).args(more);
        Daemon::start(&mut command)
    }

    /// Starts `serve` for the folder at `path` with this value of `server.http2`.
    pub fn serve_with_http2(http2: &str, path: &Path, more: &[&str]) -> Daemon {
        let config = path.with_file_name(format!("{http2}.toml"));
        std::fs::write(&config, format!("[server]\nhttp2 = \"{http2}\"\n")).expect("a file can be written");
        Daemon::serve(path, &[&["--config", config.to_str().expect("a name")], more].concat())
    }

    /// Writes a configuration to `config_file` and starts `serve` for the bundle at `path` with it.
    #[track_caller]
    pub fn serve_configured(path: &Path, config_file: &Path, config: &str) -> Daemon {
        std::fs::write(config_file, config).expect("a file can be written");
        Daemon::serve(path, &["--config", config_file.to_str().expect("a name")])
    }

    /// The process id.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Sends a signal by name, such as `TERM`.
    #[track_caller]
    pub fn signal(&self, name: &str) {
        send_signal(&self.child.0, name);
    }

    /// Waits for the end of the process and returns its exit code. Panics after `timeout`.
    #[track_caller]
    pub fn wait(&mut self, timeout: Duration) -> Option<i32> {
        self.child.wait(timeout)
    }
}

/// Waits until `condition` returns true. Panics with `what` after 30 seconds.
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    until_within(Duration::from_secs(30), what, condition);
}

/// Like [`until`], for work that docwharf does at a low priority: with nice 10 or 19, it gets a small part of a busy
/// machine. Panics with `what` after four minutes.
#[track_caller]
pub fn until_done_in_background(what: &str, condition: impl FnMut() -> bool) {
    until_within(Duration::from_mins(4), what, condition);
}

/// Waits until `condition` returns true. Panics with `what` after `timeout`.
#[track_caller]
pub fn until_within(timeout: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + timeout;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes files below `root`, and returns `root`.
pub fn write_site(root: &Path, files: &[(&str, &str)]) -> PathBuf {
    for (name, content) in files {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folders can be made");
        std::fs::write(path, content).expect("files can be written");
    }
    root.to_owned()
}

/// Reads all files below `root`: the relative path and the content of each, sorted by path.
pub fn read_tree(root: &Path) -> Vec<(String, Vec<u8>)> {
    fn walk(dir: &Path, root: &Path, found: &mut Vec<(String, Vec<u8>)>) {
        for entry in std::fs::read_dir(dir).expect("a folder can be read") {
            let path = entry.expect("an entry can be read").path();
            if path.is_dir() {
                walk(&path, root, found);
            } else {
                let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
                found.push((name, std::fs::read(&path).expect("a file can be read")));
            }
        }
    }
    let mut found = Vec::new();
    walk(root, root, &mut found);
    found.sort();
    found
}

/// Writes files into a temporary folder and starts `docwharf serve` for it.
#[track_caller]
pub fn serve_site(files: &[(&str, &str)], more: &[&str]) -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    write_site(&dir.path().join("site"), files);
    let daemon = Daemon::serve(&dir.path().join("site"), more);
    (dir, daemon)
}

/// Writes files into a temporary folder and starts `docwharf serve` for it with this configuration.
#[track_caller]
pub fn serve_configured(files: &[(&str, &str)], config: &str) -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), files);
    let daemon = Daemon::serve_configured(&root, &dir.path().join("config.toml"), config);
    (dir, daemon)
}

/// Writes files into a temporary folder and starts `docwharf serve` for it with this value of `server.http2`.
#[track_caller]
pub fn serve_site_with_http2(http2: &str, files: &[(&str, &str)]) -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), files);
    let daemon = Daemon::serve_with_http2(http2, &root, &[]);
    (dir, daemon)
}

/// Writes an archive into a temporary folder and starts `docwharf serve` for it.
#[track_caller]
pub fn serve_archive(bytes: &[u8]) -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    let path = dir.path().join("bundle");
    std::fs::write(&path, bytes).expect("an archive can be written");
    let daemon = Daemon::serve(&path, &[]);
    (dir, daemon)
}

/// Generates text that compresses about as well as pages do.
pub fn sample_text(len: usize) -> String {
    let mut out = String::with_capacity(len + 64);
    let mut state = 7u32;
    while out.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let offset = out.len();
        let _ = writeln!(out, "Section {offset} says that {state:x} follows.");
    }
    out.truncate(len);
    out
}
