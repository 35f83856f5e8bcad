//! Helpers that tests and benchmarks share: the executable, sockets, files, archives, upstreams.

// A helper that fails panics, because that is how a test fails.
#![allow(clippy::missing_panics_doc)]

pub mod disk;
pub mod h2;
pub mod host;
pub mod http;
#[path = "test_origin.rs"]
pub mod hub;
pub mod proxy;
pub mod studio;
pub mod tar;
pub mod tls;
pub mod upstream;
pub mod zip;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

/// A fresh folder, gone at the end of the test.
pub fn folder() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("docwharf-test-").tempdir().expect("a temporary folder")
}

/// A folder in memory where there is one: what a kill leaves is what the kernel holds, and waiting for a disk at each
/// `fsync` shows nothing.
pub fn quick_folder() -> tempfile::TempDir {
    let in_memory = tempfile::Builder::new().prefix("docwharf-test-").tempdir_in("/dev/shm");
    in_memory.unwrap_or_else(|_| folder())
}

/// Path of the `docwharf` executable that Cargo has built beside the test program.
///
/// Cargo tells it to the programs that it runs; one that is run by itself lies in `deps`, one folder below it.
pub fn program() -> PathBuf {
    if let Some(path) = std::env::var_os("CARGO_BIN_EXE_docwharf") {
        return path.into();
    }
    let own = std::env::current_exe().expect("a test program knows its own path");
    let path = own.parent().and_then(Path::parent).expect("test programs lie in `deps`").join("docwharf");
    assert!(path.exists(), "{} is missing: `cargo build` makes it, and so does `cargo test`", path.display());
    path
}

/// Copies the program to a path.
///
/// Another program does it: a descriptor of ours that is open for writing would be held by a child that another test
/// has just forked, and as long as it is, the copy cannot be started.
pub fn copy_program(to: &Path) {
    let copied = Command::new("cp").arg(program()).arg(to).status().expect("cp runs");
    assert!(copied.success(), "the program cannot be copied to {}", to.display());
}

/// The program, with nothing of the caller's environment that could change what it does.
pub fn docwharf() -> Command {
    let mut command = Command::new(program());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().to_ascii_uppercase();
        let changes = ["RUST_LOG", "STATE_DIRECTORY", "CREDENTIALS_DIRECTORY", "JOURNAL_STREAM", "NOTIFY_SOCKET"];
        if text.starts_with("DOCWHARF_")
            || text.starts_with("SSL_CERT_")
            || text.starts_with("LISTEN_")
            || text.starts_with("WATCHDOG_")
            || text.ends_with("_PROXY")
            || changes.contains(&text.as_str())
        {
            command.env_remove(name);
        }
    }
    // Root's commands read the units that this machine has.
    command.env("SYSTEMD_UNIT_PATH", "/nonexistent");
    command.stdin(Stdio::null());
    command
}

/// Exit code and output of a command that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit code; none after a signal.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Ended {
    /// Panics with everything that was printed unless the code is `code`.
    #[track_caller]
    #[allow(clippy::return_self_not_must_use)] // Often the code is all that a test looks at.
    pub fn expect(self, code: i32) -> Ended {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.stdout, self.stderr);
        self
    }

    /// The standard output as JSON.
    #[track_caller]
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|e| panic!("not JSON ({e}): {}", self.stdout))
    }
}

/// Runs a command to its end.
pub fn end(command: &mut Command) -> Ended {
    let Output { status, stdout, stderr } = command.output().expect("docwharf starts");
    Ended {
        code: status.code(),
        stdout: String::from_utf8_lossy(&stdout).into_owned(),
        stderr: String::from_utf8_lossy(&stderr).into_owned(),
    }
}

/// Runs `docwharf` with these arguments to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ended {
    end(docwharf().args(arguments))
}

/// The commands that help lists below these words.
pub fn commands_below(words: &[&str]) -> Vec<String> {
    let help = run(words.iter().chain(&["--help"])).expect(0).stdout;
    let Some(list) = help.split("Commands:\n").nth(1) else { return Vec::new() };
    let names = list.lines().take_while(|line| line.starts_with("  "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names.filter(|name| *name != "help").map(str::to_owned).collect()
}

/// A port of this machine that is known before anything listens there, and stays free for the program that is told it.
///
/// It is bound and does not listen. The kernel gives it to no process that asks for any free port, neither to listen
/// nor to connect from; a server that names it gets it, because both sockets have `SO_REUSEADDR` (socket(7)).
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

    /// Listens there, as another program would, until it is dropped; the port stays reserved.
    pub fn listen(&self) -> TcpListener {
        TcpListener::bind(&self.address).expect("the port is reserved")
    }
}

/// A running `serve` or `run`; killed when dropped.
pub struct Daemon {
    child: Child,
    /// Address at which it answers, without the scheme: `127.0.0.1:43817`. The first of several.
    pub address: String,
    /// All addresses that it has announced, with the scheme.
    pub urls: Vec<String>,
}

impl Daemon {
    /// Starts a command that announces its address, and waits until it has.
    #[track_caller]
    pub fn start(command: &mut Command) -> Daemon {
        Daemon::start_at(command, 1)
    }

    /// Starts a command that announces `count` addresses, and waits until it has.
    #[track_caller]
    pub fn start_at(command: &mut Command, count: usize) -> Daemon {
        let mut child = command.stdout(Stdio::piped()).spawn().expect("docwharf starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut urls = Vec::new();
        for _ in 0..count {
            let mut line = String::new();
            stdout.read_line(&mut line).expect("stdout can be read");
            let is_address = ["http://", "https://"].iter().any(|scheme| line.starts_with(scheme));
            if !is_address || !line.ends_with("/\n") {
                let status = child.wait();
                panic!("no address announced: {line:?}, ended {status:?}");
            }
            urls.push(line.trim_end().to_owned());
        }
        let address = urls[0].split("://").nth(1).expect("a scheme").trim_end_matches('/').to_owned();
        Daemon { child, address, urls }
    }

    /// The address of the n-th that it has announced, without the scheme.
    #[track_caller]
    pub fn at(&self, n: usize) -> &str {
        self.urls[n].split("://").nth(1).expect("a scheme").trim_end_matches('/')
    }

    /// `docwharf serve PATH` on a free port, with further arguments.
    #[track_caller]
    pub fn serve(path: &Path, more: &[&str]) -> Daemon {
        Daemon::start(docwharf().arg("serve").arg(path).args(["--listen", "127.0.0.1:0"]).args(more))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name, such as `TERM`.
    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status();
        assert!(status.expect("kill runs").success());
    }

    /// Waits for the end; gives the exit code.
    pub fn wait(&mut self, patience: Duration) -> Option<i32> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child can be waited for") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "still running after {patience:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Asks again and again until the answer is yes; panics with `what` after half a minute.
#[track_caller]
pub fn until(what: &str, mut yes: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !yes() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Writes files below `root`.
pub fn write_site(root: &Path, files: &[(&str, &str)]) -> PathBuf {
    for (name, content) in files {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().expect("a file has a folder")).expect("folders can be made");
        std::fs::write(path, content).expect("files can be written");
    }
    root.to_owned()
}

/// All files below `root` by their relative paths, in order, with content.
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

/// A folder being served, and the folder.
#[track_caller]
pub fn site(files: &[(&str, &str)], more: &[&str]) -> (tempfile::TempDir, Daemon) {
    let dir = folder();
    write_site(&dir.path().join("site"), files);
    let daemon = Daemon::serve(&dir.path().join("site"), more);
    (dir, daemon)
}

/// An archive being served, and the folder it is in.
#[track_caller]
pub fn archive(bytes: &[u8]) -> (tempfile::TempDir, Daemon) {
    let dir = folder();
    let path = dir.path().join("bundle");
    std::fs::write(&path, bytes).expect("an archive can be written");
    let daemon = Daemon::serve(&path, &[]);
    (dir, daemon)
}

/// Text that compresses about as well as pages do.
pub fn text(len: usize) -> String {
    let mut out = String::with_capacity(len + 64);
    let mut state = 7u32;
    while out.len() < len {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let at = out.len();
        let _ = writeln!(out, "Section {at} says that {state:x} follows.");
    }
    out.truncate(len);
    out
}
