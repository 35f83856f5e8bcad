//! A host that keeps a site up to date, with the loop or with docwharf, and the content that a reader gets.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use super::upstream::KEY;
use support::tar::{TarEntry, file, gzip, tar};
use support::{CommandOutput, Daemon, docwharf, run_to_end, temporary_folder};

pub(crate) const DOMAIN: &str = "docs.example.com";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Updater {
    Loop,
    Docwharf,
}

/// A host with its folder and its server.
pub(crate) struct Host {
    pub(crate) updater: Updater,
    dir: tempfile::TempDir,
    api: String,
    server: Option<Server>,
    address: String,
}

enum Server {
    Python(Child),
    Docwharf(Daemon),
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Server::Python(child) = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct RunResult {
    pub(crate) ok: bool,
    /// The error message and the exit code.
    pub(crate) message: String,
}

impl fmt::Display for RunResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ok { f.write_str("run ok") } else { write!(f, "run failed: “{}”", self.message) }
    }
}

fn run_result(ended: &CommandOutput) -> RunResult {
    let lines = ended.stderr.lines().filter(|line| !line.trim().is_empty());
    // GNU tar and gzip print the error before the line that they exit.
    let error_line = lines.clone().find(|line| !line.contains("exiting now")).unwrap_or_default();
    let code = ended.code.map_or_else(|| "killed".to_owned(), |code| format!("exit {code}"));
    RunResult { ok: ended.code == Some(0), message: format!("{}; {code}", error_line.trim_start_matches("docwharf: ")) }
}

impl Host {
    pub(crate) fn new(updater: Updater, api: &str) -> Host {
        let host = Host { updater, dir: temporary_folder(), api: api.to_owned(), server: None, address: String::new() };
        std::fs::create_dir_all(host.path("site/releases")).expect("a folder");
        std::fs::write(host.path("key"), KEY).expect("a key");
        rustix::fs::chmod(host.path("key"), 0o600.into()).expect("the key is ours");
        // Without probes each check is an export, as in the loop. The scenarios start each check. The loop has no
        // search.
        let config = format!(
            "[api]\nbaseUrl = \"{api}\"\ndomain = \"{DOMAIN}\"\nkeyFile = \"key\"\n[store]\npath = \"store\"\n\
             [server]\nlisten = \"127.0.0.1:0\"\n[sync]\nprobe = []\ninterval = \"12h\"\n\
             [search]\nenabled = false\n"
        );
        std::fs::write(host.path("docwharf.toml"), config).expect("a configuration");
        host
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn script(&self, name: &str) -> Command {
        let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/baseline").join(name));
        command.env("API_URL", &self.api).env("API_KEY", KEY).env("DOMAIN", DOMAIN).env("SITE", self.path("site"));
        command.stdin(Stdio::null());
        command
    }

    fn docwharf(&self, arguments: &[&str]) -> Command {
        let mut command = docwharf();
        command.args(arguments).arg("--config").arg(self.path("docwharf.toml")).env("USER", "operator");
        command
    }

    /// The command of one run, as a timer starts it, without a daemon.
    pub(crate) fn sync_command(&self) -> Command {
        match self.updater {
            Updater::Loop => self.script("loop.sh"),
            Updater::Docwharf => self.docwharf(&["sync", "-vv"]),
        }
    }

    /// Runs the command to its end.
    pub(crate) fn run_sync(&self) -> RunResult {
        let ended = run_to_end(&mut self.sync_command());
        self.log(&ended.stderr);
        self.log(&ended.stdout);
        if self.updater == Updater::Loop {
            return run_result(&ended);
        }
        // The last line is the error. The lines before it are due to -vv.
        let last = ended.stderr.lines().last().unwrap_or_default().replace(&self.api, "http://…/v1");
        run_result(&CommandOutput { stderr: last, ..ended })
    }

    fn log(&self, text: &str) {
        let mut file = File::options().create(true).append(true).open(self.path("log")).expect("a log");
        file.write_all(text.as_bytes()).expect("a log");
    }

    /// The complete log.
    pub(crate) fn log_text(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Starts the server for readers, and returns the content that the first request gets.
    pub(crate) fn start_server(&mut self) -> ServedContent {
        match self.updater {
            Updater::Loop => {
                let mut command = Command::new("python3");
                command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]);
                self.start_python(command.arg(self.path("site/current")));
            }
            Updater::Docwharf => {
                let before = self.ended_syncs();
                let log = File::options().create(true).append(true).open(self.path("log")).expect("a log");
                let daemon = Daemon::start(self.docwharf(&["run", "-v"]).stderr(log));
                self.address.clone_from(&daemon.address);
                self.server = Some(Server::Docwharf(daemon));
                let first = self.front_page();
                self.wait_for_end(before);
                return first;
            }
        }
        self.front_page()
    }

    /// Starts the host like a container that has only a start command.
    pub(crate) fn start_container(&mut self) -> ServedContent {
        match self.updater {
            Updater::Loop => {
                let mut command = self.script("start.sh");
                self.start_python(&mut command);
                self.front_page()
            }
            Updater::Docwharf => self.start_server(),
        }
    }

    fn start_python(&mut self, command: &mut Command) {
        let log = File::options().create(true).append(true).open(self.path("log")).expect("a log");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line);
        // Serving HTTP on 127.0.0.1 port 40123 (http://127.0.0.1:40123/) ...
        let address = line.split_once("(http://").and_then(|(_, rest)| rest.split_once('/'));
        self.address = address.map_or_else(|| "127.0.0.1:1".to_owned(), |(address, _)| address.to_owned());
        self.server = Some(Server::Python(child));
    }

    /// Stops the server, as if the machine went down.
    pub(crate) fn stop(&mut self) {
        self.server = None;
    }

    /// Kills all processes in the middle of an update. Returns false if the update ended before.
    pub(crate) fn kill_while_unpacking(&mut self) -> bool {
        let started = Instant::now();
        let is_in_time = |started: Instant| started.elapsed() < Duration::from_secs(20);
        match self.updater {
            Updater::Loop => {
                let current = std::fs::read_link(self.path("site/current")).expect("the link to the served release");
                let mut sync_command = self.sync_command().process_group(0).spawn().expect("the loop starts");
                let is_unpacking = || {
                    let releases = list_folder(&self.path("site/releases"));
                    let newest = releases.iter().rfind(|release| **release != current && release.is_dir());
                    newest.is_some_and(|release| list_folder(&release.join("part")).len() > 100)
                };
                while is_in_time(started) && !is_unpacking() {
                    std::thread::yield_now();
                }
                let _ = kill_process_group(Pid::from_child(&sync_command), Signal::KILL);
                let _ = sync_command.wait();
                self.stop();
                std::fs::read_link(self.path("site/current")).expect("the link to the served release") == current
            }
            Updater::Docwharf => {
                let active = self.active();
                let Some(Server::Docwharf(daemon)) = &self.server else { return false };
                daemon.signal("HUP");
                let staging = self.path("store/staging");
                let is_unpacking = || {
                    let images = list_folder(&staging).into_iter().map(|stage| stage.join("site.zip"));
                    images.into_iter().any(|image| image.metadata().is_ok_and(|m| m.len() > 0))
                };
                while is_in_time(started) && !is_unpacking() {
                    std::thread::yield_now();
                }
                self.stop();
                self.active() == active
            }
        }
    }

    fn active(&self) -> serde_json::Value {
        run_to_end(&mut self.docwharf(&["status", "--json"])).expect(0).json()["active"].clone()
    }

    /// One run while the server runs.
    pub(crate) fn update(&self) -> RunResult {
        let Some(Server::Docwharf(daemon)) = &self.server else { return self.run_sync() };
        let before = self.ended_syncs();
        daemon.signal("HUP");
        let line = self.wait_for_end(before);
        let (_, message) = line.split_once("ERROR ").unwrap_or_default();
        RunResult {
            ok: message.is_empty(),
            message: message.split("; the active version stays").next().unwrap_or(message).to_owned(),
        }
    }

    /// The number of log lines that end a sync of the daemon.
    fn ended_syncs(&self) -> usize {
        self.log_text().lines().filter(|line| is_end(line)).count()
    }

    fn wait_for_end(&self, before: usize) -> String {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(line) = self.log_text().lines().filter(|line| is_end(line)).nth(before) {
                return line.to_owned();
            }
            assert!(Instant::now() < deadline, "no sync has ended: {}", self.log_text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Goes back to the previous version, like an operator.
    pub(crate) fn rollback(&mut self) {
        match self.updater {
            Updater::Loop => drop(run_to_end(&mut self.script("rollback.sh")).expect(0)),
            Updater::Docwharf => drop(run_to_end(&mut self.docwharf(&["rollback"])).expect(0)),
        }
    }

    /// Sends a request to the server.
    pub(crate) fn get(&self, target: &str, fields: &str) -> Result<Response, String> {
        get(&self.address, target, fields)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The content of the front page.
    pub(crate) fn front_page(&self) -> ServedContent {
        self.read_pages(&["/"])
    }

    /// The content of these addresses together.
    pub(crate) fn read_pages(&self, targets: &[&str]) -> ServedContent {
        let mut versions = BTreeSet::new();
        for target in targets {
            match self.get(target, "") {
                Ok(response) if response.status == 200 => versions.extend(markers(&response.body)),
                Ok(response) => return ServedContent::Error(format!("{} at {target}", response.status)),
                Err(reason) => return ServedContent::Error(reason),
            }
        }
        match versions.len() {
            0 => ServedContent::Error("an unknown page".to_owned()),
            1 => ServedContent::Version(versions.into_iter().next().unwrap_or_default()),
            _ => ServedContent::Mixed(versions),
        }
    }

    /// The content of these addresses, once it is `version`, or after two seconds.
    pub(crate) fn wait_for_version(&self, version: u32, targets: &[&str]) -> ServedContent {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let content = self.read_pages(targets);
            if content == ServedContent::Version(version) || Instant::now() > deadline {
                return content;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_end(line: &str) -> bool {
    ["is active", "nothing new", "looking again in", "the next check is in"].iter().any(|end| line.contains(end))
}

/// The sorted entries of a folder. Empty if the folder does not exist.
fn list_folder(dir: &Path) -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    list.sort();
    list
}

/// The content that a reader gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ServedContent {
    Version(u32),
    Mixed(BTreeSet<u32>),
    Error(String),
}

impl fmt::Display for ServedContent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ServedContent::Version(version) => write!(f, "v{version}"),
            ServedContent::Mixed(versions) => {
                let names: Vec<String> = versions.iter().map(|version| format!("v{version}")).collect();
                write!(f, "{} mixed", names.join(" and "))
            }
            ServedContent::Error(reason) => write!(f, "error ({reason})"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Response {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// Sends one request on a new connection. An incomplete body is an error.
pub(crate) fn get(address: &str, target: &str, fields: &str) -> Result<Response, String> {
    let mut stream = TcpStream::connect(address).map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        _ => error.to_string(),
    })?;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{fields}\r\n");
    let mut bytes = Vec::new();
    stream.set_read_timeout(Some(Duration::from_secs(20))).map_err(|error| error.to_string())?;
    stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
    stream.read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").ok_or("no answer")?;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or("no status")?;
    let response = Response { status, head, body: bytes[end + 4..].to_vec() };
    let is_complete =
        response.field("content-length").is_none_or(|n| status == 304 || n == response.body.len().to_string());
    is_complete.then_some(response).ok_or_else(|| "a part of a body".to_owned())
}

/// The versions that a body names: each `@7@` in it.
pub(crate) fn markers(body: &[u8]) -> BTreeSet<u32> {
    String::from_utf8_lossy(body).split('@').filter_map(|word| word.parse().ok()).collect()
}

/// The site of a version. Every file contains the number. The name of the script contains it, too, as bundlers do.
pub(crate) fn site_pages(version: u32, parts: usize) -> Vec<(String, String)> {
    let filler = format!("<p>This line is of version @{version}@.</p>\n");
    let mut pages = vec![
        ("index.html".to_owned(), format!("<!DOCTYPE html><link href=app.css>{}", filler.repeat(2000))),
        ("app.css".to_owned(), format!("/* @{version}@ */")),
        (format!("app.{version}.js"), format!("// @{version}@")),
    ];
    pages.extend((0..parts).map(|n| (format!("part/{n:05}.html"), format!("part {n} {}", filler.repeat(60)))));
    pages
}

/// The site as the bundle of an API, with further entries at its end.
pub(crate) fn bundle_with(version: u32, parts: usize, more_entries: Vec<TarEntry>) -> Vec<u8> {
    let pages = site_pages(version, parts);
    let mut entries: Vec<TarEntry> = pages.iter().map(|(name, text)| file(name, text)).collect();
    entries.extend(more_entries);
    gzip(&tar(&entries))
}

pub(crate) fn bundle(version: u32) -> Vec<u8> {
    bundle_with(version, 10, Vec::new())
}
