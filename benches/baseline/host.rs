//! A machine that keeps a site up to date, with the loop or with docwharf, and what a reader sees of it.

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
use support::tar::{Entry, file, gzip, tar};
use support::{Daemon, Ended, docwharf, end, folder};

pub(crate) const DOMAIN: &str = "docs.example.com";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Loop,
    Docwharf,
}

/// The machine.
pub(crate) struct Host {
    pub(crate) kind: Kind,
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

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) ok: bool,
    /// Its last words.
    pub(crate) said: String,
}

impl fmt::Display for Ran {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ok { f.write_str("run ok") } else { write!(f, "run failed: “{}”", self.said) }
    }
}

fn ran(ended: &Ended) -> Ran {
    let words = ended.stderr.lines().filter(|line| !line.trim().is_empty());
    // GNU tar and gzip say what is wrong before they say that they stop.
    let telling = words.clone().find(|line| !line.contains("exiting now")).unwrap_or_default();
    let code = ended.code.map_or_else(|| "killed".to_owned(), |code| format!("exit {code}"));
    Ran { ok: ended.code == Some(0), said: format!("{}; {code}", telling.trim_start_matches("docwharf: ")) }
}

impl Host {
    pub(crate) fn new(kind: Kind, api: &str) -> Host {
        let host = Host { kind, dir: folder(), api: api.to_owned(), server: None, address: String::new() };
        std::fs::create_dir_all(host.path("site/releases")).expect("a folder");
        std::fs::write(host.path("key"), KEY).expect("a key");
        rustix::fs::chmod(host.path("key"), 0o600.into()).expect("the key is ours");
        // Without probes, so that each look is an export, as it is for the loop; looks are asked for.
        let config = format!(
            "[api]\nbaseUrl = \"{api}\"\ndomain = \"{DOMAIN}\"\nkeyFile = \"key\"\n[store]\npath = \"store\"\n\
             [server]\nlisten = \"127.0.0.1:0\"\n[sync]\nprobe = []\ninterval = \"12h\"\n"
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

    /// One run as a timer starts it, beside no daemon.
    pub(crate) fn job(&self) -> Command {
        match self.kind {
            Kind::Loop => self.script("loop.sh"),
            Kind::Docwharf => self.docwharf(&["sync", "-vv"]),
        }
    }

    /// The same to its end.
    pub(crate) fn sync(&self) -> Ran {
        let ended = end(&mut self.job());
        self.log(&ended.stderr);
        self.log(&ended.stdout);
        if self.kind == Kind::Loop {
            return ran(&ended);
        }
        // The last line is the error; those before it are what -vv adds.
        let last = ended.stderr.lines().last().unwrap_or_default().replace(&self.api, "http://…/v1");
        ran(&Ended { stderr: last, ..ended })
    }

    fn log(&self, text: &str) {
        let mut file = File::options().create(true).append(true).open(self.path("log")).expect("a log");
        file.write_all(text.as_bytes()).expect("a log");
    }

    /// Everything that has been logged.
    pub(crate) fn logged(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// Starts what answers readers, and gives what the first of them sees.
    pub(crate) fn serve(&mut self) -> Seen {
        match self.kind {
            Kind::Loop => {
                let mut command = Command::new("python3");
                command.args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory"]);
                self.python(command.arg(self.path("site/current")));
            }
            Kind::Docwharf => {
                let before = self.ends();
                let log = File::options().create(true).append(true).open(self.path("log")).expect("a log");
                let daemon = Daemon::start(self.docwharf(&["run", "-v"]).stderr(log));
                self.address.clone_from(&daemon.address);
                self.server = Some(Server::Docwharf(daemon));
                let first = self.front();
                self.wait_for_end(before);
                return first;
            }
        }
        self.front()
    }

    /// Starts it as a container does that has only a start command.
    pub(crate) fn start(&mut self) -> Seen {
        match self.kind {
            Kind::Loop => {
                let mut command = self.script("start.sh");
                self.python(&mut command);
                self.front()
            }
            Kind::Docwharf => self.serve(),
        }
    }

    fn python(&mut self, command: &mut Command) {
        let log = File::options().create(true).append(true).open(self.path("log")).expect("a log");
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut line = String::new();
        let _ = BufReader::new(child.stdout.take().expect("stdout is piped")).read_line(&mut line);
        // Serving HTTP on 127.0.0.1 port 40123 (http://127.0.0.1:40123/) ...
        let address = line.split_once("(http://").and_then(|(_, rest)| rest.split_once('/'));
        self.address = address.map_or_else(|| "127.0.0.1:1".to_owned(), |(address, _)| address.to_owned());
        self.server = Some(Server::Python(child));
    }

    /// The machine goes down: nothing of it runs any more.
    pub(crate) fn stop(&mut self) {
        self.server = None;
    }

    /// kill -9 of everything in the middle of an update; false if that was over before.
    pub(crate) fn kill_while_unpacking(&mut self) -> bool {
        let begun = Instant::now();
        let early = |begun: Instant| begun.elapsed() < Duration::from_secs(20);
        match self.kind {
            Kind::Loop => {
                let current = std::fs::read_link(self.path("site/current")).expect("something is served");
                let mut job = self.job().process_group(0).spawn().expect("the loop starts");
                let half = || {
                    let releases = list(&self.path("site/releases"));
                    let newest = releases.iter().rfind(|release| **release != current && release.is_dir());
                    newest.is_some_and(|release| list(&release.join("part")).len() > 100)
                };
                while early(begun) && !half() {
                    std::thread::yield_now();
                }
                let _ = kill_process_group(Pid::from_child(&job), Signal::KILL);
                let _ = job.wait();
                self.stop();
                std::fs::read_link(self.path("site/current")).expect("it is still there") == current
            }
            Kind::Docwharf => {
                let active = self.active();
                let Some(Server::Docwharf(daemon)) = &self.server else { return false };
                daemon.signal("HUP");
                let staging = self.path("store/staging");
                let half = || {
                    let images = list(&staging).into_iter().map(|stage| stage.join("site.zip"));
                    images.into_iter().any(|image| image.metadata().is_ok_and(|m| m.len() > 0))
                };
                while early(begun) && !half() {
                    std::thread::yield_now();
                }
                self.stop();
                self.active() == active
            }
        }
    }

    fn active(&self) -> serde_json::Value {
        end(&mut self.docwharf(&["status", "--json"])).expect(0).json()["active"].clone()
    }

    /// One run while readers are served.
    pub(crate) fn update(&self) -> Ran {
        let Some(Server::Docwharf(daemon)) = &self.server else { return self.sync() };
        let before = self.ends();
        daemon.signal("HUP");
        let line = self.wait_for_end(before);
        let (_, said) = line.split_once("ERROR ").unwrap_or_default();
        Ran { ok: said.is_empty(), said: said.split("; the active version stays").next().unwrap_or(said).to_owned() }
    }

    /// Lines of the log with which a sync of the daemon ends.
    fn ends(&self) -> usize {
        self.logged().lines().filter(|line| is_end(line)).count()
    }

    fn wait_for_end(&self, before: usize) -> String {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            if let Some(line) = self.logged().lines().filter(|line| is_end(line)).nth(before) {
                return line.to_owned();
            }
            assert!(Instant::now() < deadline, "no sync has ended: {}", self.logged());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The operator goes back to the version before; the daemon does it for him.
    pub(crate) fn rollback(&mut self) {
        match self.kind {
            Kind::Loop => drop(end(&mut self.script("rollback.sh")).expect(0)),
            Kind::Docwharf => drop(end(&mut self.docwharf(&["rollback"])).expect(0)),
        }
    }

    /// A request of a reader.
    pub(crate) fn get(&self, target: &str, fields: &str) -> Result<Answer, String> {
        get(&self.address, target, fields)
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// What the front page shows.
    pub(crate) fn front(&self) -> Seen {
        self.see(&["/"])
    }

    /// What these addresses show together.
    pub(crate) fn see(&self, targets: &[&str]) -> Seen {
        let mut versions = BTreeSet::new();
        for target in targets {
            match self.get(target, "") {
                Ok(answer) if answer.status == 200 => versions.extend(markers(&answer.body)),
                Ok(answer) => return Seen::Nothing(format!("{} at {target}", answer.status)),
                Err(why) => return Seen::Nothing(why),
            }
        }
        match versions.len() {
            0 => Seen::Nothing("a page of nobody".to_owned()),
            1 => Seen::Version(versions.into_iter().next().unwrap_or_default()),
            _ => Seen::Mixed(versions),
        }
    }

    /// What they show once it is `version`, or after two seconds.
    pub(crate) fn see_soon(&self, version: u32, targets: &[&str]) -> Seen {
        let deadline = Instant::now() + Duration::from_secs(2);
        loop {
            let seen = self.see(targets);
            if seen == Seen::Version(version) || Instant::now() > deadline {
                return seen;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn is_end(line: &str) -> bool {
    ["is active", "nothing new", "looking again in"].iter().any(|end| line.contains(end))
}

/// What is in a folder, in order; nothing if it is not there.
fn list(dir: &Path) -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = std::fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path()).collect();
    list.sort();
    list
}

/// What a reader sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Seen {
    Version(u32),
    Mixed(BTreeSet<u32>),
    Nothing(String),
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Seen::Version(version) => write!(f, "v{version}"),
            Seen::Mixed(versions) => {
                let names: Vec<String> = versions.iter().map(|version| format!("v{version}")).collect();
                write!(f, "{} mixed", names.join(" and "))
            }
            Seen::Nothing(why) => write!(f, "error ({why})"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let fields = self.head.lines().filter_map(|line| line.split_once(':'));
        fields.into_iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// One request on a connection of its own; a body that is not whole is an error.
pub(crate) fn get(address: &str, target: &str, fields: &str) -> Result<Answer, String> {
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
    let answer = Answer { status, head, body: bytes[end + 4..].to_vec() };
    let whole = answer.field("content-length").is_none_or(|n| status == 304 || n == answer.body.len().to_string());
    whole.then_some(answer).ok_or_else(|| "a part of a body".to_owned())
}

/// The versions that a body says it is of: each `@7@` in it.
pub(crate) fn markers(body: &[u8]) -> BTreeSet<u32> {
    String::from_utf8_lossy(body).split('@').filter_map(|word| word.parse().ok()).collect()
}

/// The site of a version. Every file says which, many times; the script is named after its content, as bundlers do.
pub(crate) fn pages(version: u32, parts: usize) -> Vec<(String, String)> {
    let filler = format!("<p>This line is of version @{version}@.</p>\n");
    let mut pages = vec![
        ("index.html".to_owned(), format!("<!DOCTYPE html><link href=app.css>{}", filler.repeat(2000))),
        ("app.css".to_owned(), format!("/* @{version}@ */")),
        (format!("app.{version}.js"), format!("// @{version}@")),
    ];
    pages.extend((0..parts).map(|n| (format!("part/{n:05}.html"), format!("part {n} {}", filler.repeat(60)))));
    pages
}

/// The site as the bundle that an API would give, with entries behind it.
pub(crate) fn bundle_with(version: u32, parts: usize, more: Vec<Entry>) -> Vec<u8> {
    let pages = pages(version, parts);
    let mut entries: Vec<Entry> = pages.iter().map(|(name, text)| file(name, text)).collect();
    entries.extend(more);
    gzip(&tar(&entries))
}

pub(crate) fn bundle(version: u32) -> Vec<u8> {
    bundle_with(version, 10, Vec::new())
}
