//! A host on which docwharf runs against an upstream server: configuration, key file, store, and the commands with
//! them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::upstream::{DOMAIN, KEY, Upstream};
use crate::zip::{deflated, stored, zip};
use crate::{
    CommandOutput, Daemon, SetOnDrop, docwharf, http, memory_folder, peak_memory_kib, tar, temporary_folder, until,
};

/// Makes a small bundle; the title of its front page is `text`.
pub fn bundle(text: &str) -> Vec<u8> {
    zip(&[
        deflated("index.html", &format!("<title>{text}</title>")),
        deflated("guide.html", &format!("<p>{text}{}</p>", " tide".repeat(300))),
        stored("logo.png", "not really a picture"),
    ])
}

/// Generates at least `bytes` bytes, and up to 7 more, that do not compress.
fn incompressible_bytes(bytes: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut noise = Vec::with_capacity(bytes + 8);
    while noise.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        noise.extend_from_slice(&state.to_le_bytes());
    }
    noise
}

/// Makes a bundle of about `bytes` bytes that does not compress.
pub fn large_bundle(text: &str, bytes: usize) -> Vec<u8> {
    let page = deflated("index.html", &format!("<title>{text}</title>"));
    let picture =
        crate::zip::Member { name: b"noise.png".to_vec(), content: incompressible_bytes(bytes), deflate: false };
    zip(&[page, picture])
}

/// Makes a tar of about `bytes` bytes in many files that do not compress.
pub fn large_tar(text: &str, bytes: usize) -> Vec<u8> {
    let page = tar::file("index.html", &format!("<title>{text}</title>"));
    let content = incompressible_bytes(bytes);
    let pictures = content.chunks(200_000).enumerate();
    let pictures = pictures.map(|(n, noise)| tar::entry(&format!("noise-{n}.png"), b'0', noise));
    tar::tar(&[page].into_iter().chain(pictures).collect::<Vec<_>>())
}

/// Requests the front page and returns its title; empty if the page is not a title alone.
pub fn front_page_title(daemon: &Daemon) -> String {
    let page = http::get(&daemon.address, "/").text();
    page.strip_prefix("<title>").and_then(|rest| rest.strip_suffix("</title>")).unwrap_or("").to_owned()
}

/// A host with a configuration, on which tests run commands.
#[must_use]
pub struct Host {
    /// The folder of the configuration, the key, the store and bundles.
    pub dir: tempfile::TempDir,
    /// The configuration: section and key → value as TOML.
    settings: BTreeMap<(String, String), String>,
}

impl Host {
    /// Creates a host with `[api]` for this upstream, a key file, no probes, and short pauses.
    pub fn new(upstream: &Upstream) -> Host {
        Host::bare().with_api_of(upstream)
    }

    /// Creates a host like [`Host::new`], in memory where possible, for tests that do not depend on a disk.
    pub fn in_memory(upstream: &Upstream) -> Host {
        Host::bare_in(memory_folder()).with_api_of(upstream)
    }

    fn with_api_of(self, upstream: &Upstream) -> Host {
        self.put("key", KEY);
        self.set("api.baseUrl", toml_string(&upstream.base_url()))
            .set("api.domain", toml_string(DOMAIN))
            .set("api.keyFile", toml_string("key"))
            .set("sync.probe", "[]")
            .set("sync.interval", toml_string("1h"))
    }

    /// Creates a host with this link, no API and no key.
    pub fn linked(link: &str) -> Host {
        Host::bare().set("staticExport.bundleUrl", toml_string(link)).set("sync.interval", toml_string("1h"))
    }

    /// Creates a host without a source of bundles.
    pub fn bare() -> Host {
        Host::bare_in(temporary_folder())
    }

    /// Creates a host with all resources for assistants and an active version of `bundle`. No model and no API listens
    /// at the addresses of the configuration.
    #[track_caller]
    pub fn with_assistant(http2: &str, bundle: impl AsRef<[u8]>) -> Host {
        let host = Host::bare()
            .set("server.http2", toml_string(http2))
            .set("search.enabled", "true")
            .set("assistant.baseUrl", toml_string("http://127.0.0.1:9/v1"))
            .set("assistant.model", toml_string("m"))
            .set("playground.enabled", "true")
            .set("playground.allow", "[{ origin = \"http://127.0.0.1:9\" }]");
        host.put("bundle.zip", bundle);
        host.ok(&["import", &host.path("bundle.zip").display().to_string()]);
        host
    }

    /// Turns off what assistants use, so that no file of the Markdown of all pages is built.
    pub fn without_assistants(self) -> Host {
        ["assistant.mcp", "assistant.markdown", "assistant.llms"].iter().fold(self, |host, key| host.set(key, "false"))
    }

    fn bare_in(dir: tempfile::TempDir) -> Host {
        Host { dir, settings: BTreeMap::new() }
            .set("store.path", toml_string("store"))
            .set("server.listen", toml_string("127.0.0.1:0"))
            // Tests of the search turn it on. In others, an index would only cost time.
            .set("search.enabled", "false")
            .set("network.pollFirst", toml_string("20ms"))
            .set("network.pollMost", toml_string("100ms"))
            .set("network.callTimeout", toml_string("5s"))
            .set("network.idleTimeout", toml_string("5s"))
    }

    /// Creates a host with this configuration after `[store]` and `[server]`. `text` may begin with further keys of
    /// `[server]`.
    pub fn configured(text: &str) -> Host {
        let host = Host { dir: temporary_folder(), settings: BTreeMap::new() };
        host.configure(text);
        host
    }

    /// Replaces the configuration by one like that of [`Host::configured`].
    pub fn configure(&self, text: &str) {
        let head = "[store]\npath = \"store\"\n[server]\nlisten = \"127.0.0.1:0\"\n";
        // At the end: tests name lines of the file.
        self.put("docwharf.toml", format!("{head}{text}\n[search]\nenabled = false\n"));
    }

    /// Sets `section.key` to a value in TOML.
    pub fn set(mut self, key: &str, value: impl Into<String>) -> Host {
        self.change(key, value);
        self
    }

    /// Sets `section.key` of an existing host.
    pub fn change(&mut self, key: &str, value: impl Into<String>) {
        let (section, name) = key.split_once('.').expect("section.key");
        self.settings.insert((section.to_owned(), name.to_owned()), value.into());
        self.write();
    }

    /// Returns the value of a key in TOML.
    pub fn value(&self, key: &str) -> Option<String> {
        let (section, name) = key.split_once('.').expect("section.key");
        self.settings.get(&(section.to_owned(), name.to_owned())).cloned()
    }

    /// Removes `section.key`.
    pub fn without(mut self, key: &str) -> Host {
        self.remove(key);
        self
    }

    /// Removes `section.key` of an existing host.
    pub fn remove(&mut self, key: &str) {
        let (section, name) = key.split_once('.').expect("section.key");
        self.settings.remove(&(section.to_owned(), name.to_owned()));
        self.write();
    }

    /// Writes the configuration to a temporary file and renames it.
    pub fn write(&self) {
        let mut sections: BTreeMap<&str, String> = BTreeMap::new();
        for ((section, name), value) in &self.settings {
            let _ = writeln!(sections.entry(section).or_default(), "{name} = {value}");
        }
        let mut text = String::new();
        for (section, body) in sections {
            let _ = write!(text, "[{section}]\n{body}");
        }
        self.put("docwharf.toml", text);
    }

    /// Returns a path in the folder of this host.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a file to a temporary name and renames it.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let temporary = self.path(&format!(".{name}.new"));
        std::fs::write(&temporary, bytes).expect("files can be written");
        // Some of these files are keys, which only the owner may read.
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&temporary, private).expect("modes can be set");
        std::fs::rename(temporary, self.path(name)).expect("files can be renamed");
    }

    /// Writes a bundle to `bundle.zip`.
    pub fn put_bundle(&self, bytes: &[u8]) {
        self.put("bundle.zip", bytes);
    }

    /// Creates a command that runs `docwharf` with these arguments and the configuration of this host.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = docwharf();
        command.args(arguments).arg("--config").arg(self.path("docwharf.toml")).env("USER", "tester");
        command
    }

    /// Runs a command, which must end with this exit code; an error must be one line.
    #[track_caller]
    pub fn expect_exit(&self, code: i32, arguments: &[&str]) -> CommandOutput {
        expect_plain_exit(code, run_with_timeout(&mut self.command(arguments)))
    }

    /// Runs a command, which must end with this exit code. It must print one line on standard error, or none if it
    /// succeeds.
    #[track_caller]
    pub fn expect_exit_one_line(&self, code: i32, arguments: &[&str]) -> CommandOutput {
        let ended = run_with_timeout(&mut self.command(arguments)).expect(code);
        let lines = ended.stderr.lines().filter(|line| !line.contains("no daemon serves this store"));
        assert_eq!(lines.count(), usize::from(code != 0), "{}", ended.stderr);
        ended
    }

    /// Runs a command, which must succeed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> CommandOutput {
        self.expect_exit(0, arguments)
    }

    /// Runs `docwharf sync --json`, which must succeed, and returns its `result`.
    #[track_caller]
    pub fn sync(&self) -> String {
        self.ok(&["sync", "--json"]).json()["result"].as_str().expect("a result").to_owned()
    }

    /// Starts `docwharf run`.
    #[track_caller]
    pub fn run(&self) -> Daemon {
        Daemon::start(&mut self.command(&["run"]))
    }

    /// Starts `docwharf run` and appends its standard error to a file, which [`Host::log`] reads.
    #[track_caller]
    pub fn run_logged(&self) -> Daemon {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.path("log")).expect("a log");
        Daemon::start(self.command(&["run"]).stderr(log))
    }

    /// Returns the standard error of all processes that [`Host::run_logged`] has started.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Returns the output of `docwharf status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.ok(&["status", "--json"]).json()
    }

    /// Waits until `status` has the address of a listener of the daemon, such as `admin` or `staged`, and returns it
    /// without the scheme.
    #[track_caller]
    pub fn reported_address(&self, listener: &str) -> String {
        let mut url = String::new();
        until("the address is in the status", || {
            self.status()["daemon"][listener][0].as_str().unwrap_or_default().clone_into(&mut url);
            !url.is_empty()
        });
        url.trim_start_matches("http://").trim_end_matches('/').to_owned()
    }

    /// Returns the version id in this field of `status`, or `none`.
    #[track_caller]
    pub fn version_id(&self, field: &str) -> String {
        self.status()[field].as_str().unwrap_or("none").to_owned()
    }

    /// Returns the id of the active version.
    #[track_caller]
    pub fn active(&self) -> Option<String> {
        self.status()["active"].as_str().map(str::to_owned)
    }

    /// Returns the result of the last attempt, from `status`.
    #[track_caller]
    pub fn last_result(&self) -> String {
        self.status()["lastAttempt"]["result"].as_str().unwrap_or("").to_owned()
    }

    /// Returns the error of the last attempt, from `status`.
    #[track_caller]
    pub fn last_error(&self) -> String {
        self.status()["lastAttempt"]["error"].as_str().unwrap_or("").to_owned()
    }

    /// Returns the id of the export job in the store's record.
    #[track_caller]
    pub fn job(&self) -> Option<String> {
        self.status()["job"]["id"].as_str().map(str::to_owned)
    }

    /// Panics if an ended sync has left files in the staging or download folder of the store.
    #[track_caller]
    pub fn assert_tidy(&self) {
        for name in ["store/staging", "store/downloads"] {
            let leftovers: Vec<_> = std::fs::read_dir(self.path(name)).into_iter().flatten().flatten().collect();
            assert!(leftovers.is_empty(), "{name}: {leftovers:?}");
        }
    }
}

/// Formats a text as a TOML string.
pub fn toml_string(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

/// Runs a command to its end; panics after four minutes.
#[track_caller]
pub fn run_with_timeout(command: &mut Command) -> CommandOutput {
    wait_with_timeout(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("docwharf starts"))
}

/// Waits for the end of a child process and reads its output pipes; panics after four minutes. A command may wait for a
/// daemon, which imports and syncs at a low priority.
#[track_caller]
pub fn wait_with_timeout(mut child: Child) -> CommandOutput {
    fn spawn_reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        let mut pipe = pipe.expect("a pipe");
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (stdout, stderr) = (spawn_reader(child.stdout.take()), spawn_reader(child.stderr.take()));
    let deadline = Instant::now() + Duration::from_mins(4);
    let mut is_timed_out = false;
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        if Instant::now() > deadline {
            is_timed_out = true;
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let join = |handle: std::thread::JoinHandle<String>| handle.join().expect("a reader does not panic");
    let ended = CommandOutput { code: status.code(), stdout: join(stdout), stderr: join(stderr) };
    assert!(!is_timed_out, "still running after four minutes: {ended:?}");
    ended
}

/// Runs a command to its end, and returns its peak memory (largest resident size) in KiB and its output. The kernel
/// retains the peak until the process ends, so only memory that is allocated in the last instant is missed.
///
/// On a busy machine, the process can end before its status was read. Then the command is made and run again.
#[track_caller]
pub fn run_and_measure(mut make_command: impl FnMut() -> Command) -> (u64, CommandOutput) {
    for _ in 0..20 {
        let mut command = make_command();
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("docwharf starts");
        let pid = child.id();
        let is_over = AtomicBool::new(false);
        let (peak_memory, output) = std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let mut peak_memory = 0;
                while !is_over.load(Ordering::Relaxed) {
                    peak_memory = peak_memory_kib(pid).unwrap_or(0).max(peak_memory);
                    std::thread::yield_now();
                }
                peak_memory
            });
            let end_of_process = SetOnDrop(&is_over);
            let output = wait_with_timeout(child);
            drop(end_of_process);
            (watcher.join().expect("reading a file does not panic"), output)
        });
        if peak_memory > 0 {
            return (peak_memory, output);
        }
    }
    panic!("the memory was not read in any of 20 runs");
}

/// Panics unless the exit code is `code`, and an error is one line without control characters.
#[track_caller]
pub fn expect_plain_exit(code: i32, ended: CommandOutput) -> CommandOutput {
    let ended = ended.expect(code);
    if code != 0 {
        let error_lines = ended.stderr.lines().filter(|line| line.starts_with("docwharf: "));
        let lines: Vec<&str> = error_lines.filter(|line| !line.starts_with("docwharf: warning: ")).collect();
        assert_eq!(lines.len(), 1, "one line of error: {}", ended.stderr);
        assert!(lines[0].chars().count() < 1000, "{} characters: {}", lines[0].chars().count(), lines[0]);
        let text = ended.stderr.strip_suffix('\n').expect("the output ends with a line end");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "control characters: {text:?}");
    }
    ended
}

/// Runs each case in a separate thread, because the cases mostly wait.
#[track_caller]
pub fn run_concurrently<T: Sync>(cases: &[T], run: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| run(case));
        }
    });
}
