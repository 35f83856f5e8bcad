//! A host on which docwharf runs against an upstream: configuration, key, store, and the program with all of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::upstream::{DOMAIN, KEY, Upstream};
use crate::zip::{deflated, stored, zip};
use crate::{Daemon, Ended, docwharf, folder, http, quick_folder, tar};

/// A small bundle whose front page says `text`.
pub fn bundle(text: &str) -> Vec<u8> {
    zip(&[
        deflated("index.html", &format!("<title>{text}</title>")),
        deflated("guide.html", &format!("<p>{text}{}</p>", " tide".repeat(300))),
        stored("logo.png", "not really a picture"),
    ])
}

/// Bytes that do not compress: as many as asked for, or up to 7 more.
fn noise(bytes: usize) -> Vec<u8> {
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

/// A bundle of about so many bytes that does not compress.
pub fn large_bundle(text: &str, bytes: usize) -> Vec<u8> {
    let page = deflated("index.html", &format!("<title>{text}</title>"));
    let picture = crate::zip::Member { name: b"noise.png".to_vec(), content: noise(bytes), deflate: false };
    zip(&[page, picture])
}

/// A tar of about so many bytes that does not compress, in many files.
pub fn large_tar(text: &str, bytes: usize) -> Vec<u8> {
    let page = tar::file("index.html", &format!("<title>{text}</title>"));
    let all = noise(bytes);
    let pictures = all.chunks(200_000).enumerate();
    let pictures = pictures.map(|(n, noise)| tar::entry(&format!("noise-{n}.png"), b'0', noise));
    tar::tar(&[page].into_iter().chain(pictures).collect::<Vec<_>>())
}

/// Title of the front page, which is all of it; empty if there is none.
pub fn front(daemon: &Daemon) -> String {
    let text = http::get(&daemon.address, "/").text();
    text.strip_prefix("<title>").and_then(|rest| rest.strip_suffix("</title>")).unwrap_or("").to_owned()
}

/// A host with its configuration, on which commands run.
#[must_use]
pub struct Host {
    /// Folder of the configuration, the key, the store and bundles.
    pub dir: tempfile::TempDir,
    /// Section and key → value as TOML.
    settings: BTreeMap<(String, String), String>,
}

impl Host {
    /// A host with `[api]` for this upstream, a key file, no probes, and pauses that tests can wait for.
    pub fn new(upstream: &Upstream) -> Host {
        Host::bare().of(upstream)
    }

    /// A host as by [`Host::new`], in memory where possible, for tests that show nothing by waiting for a disk.
    pub fn in_memory(upstream: &Upstream) -> Host {
        Host::bare_in(quick_folder()).of(upstream)
    }

    fn of(self, upstream: &Upstream) -> Host {
        self.put("key", KEY);
        self.set("api.baseUrl", text(&upstream.base()))
            .set("api.domain", text(DOMAIN))
            .set("api.keyFile", text("key"))
            .set("sync.probe", "[]")
            .set("sync.interval", text("1h"))
    }

    /// A host with this link, no API and no key.
    pub fn linked(link: &str) -> Host {
        Host::bare().set("staticExport.bundleUrl", text(link)).set("sync.interval", text("1h"))
    }

    /// A host without a source.
    pub fn bare() -> Host {
        Host::bare_in(folder())
    }

    fn bare_in(dir: tempfile::TempDir) -> Host {
        Host { dir, settings: BTreeMap::new() }
            .set("store.path", text("store"))
            .set("server.listen", text("127.0.0.1:0"))
            .set("network.pollFirst", text("20ms"))
            .set("network.pollMost", text("100ms"))
            .set("network.callTimeout", text("5s"))
            .set("network.idleTimeout", text("5s"))
    }

    /// A host with this configuration behind `[store]` and `[server]`; it may begin with further keys of `[server]`.
    pub fn configured(text: &str) -> Host {
        let host = Host { dir: folder(), settings: BTreeMap::new() };
        host.configure(text);
        host
    }

    /// Replaces the whole configuration, settings included, by one for [`Host::configured`].
    pub fn configure(&self, text: &str) {
        let head = "[store]\npath = \"store\"\n[server]\nlisten = \"127.0.0.1:0\"\n";
        self.put("docwharf.toml", format!("{head}{text}\n"));
    }

    /// Sets `section.key` to a value in TOML.
    pub fn set(mut self, key: &str, value: impl Into<String>) -> Host {
        self.change(key, value);
        self
    }

    /// Sets `section.key` of a host that is in use.
    pub fn change(&mut self, key: &str, value: impl Into<String>) {
        let (section, name) = key.split_once('.').expect("section.key");
        self.settings.insert((section.to_owned(), name.to_owned()), value.into());
        self.write();
    }

    /// Value of a key in TOML.
    pub fn value(&self, key: &str) -> Option<String> {
        let (section, name) = key.split_once('.').expect("section.key");
        self.settings.get(&(section.to_owned(), name.to_owned())).cloned()
    }

    /// Leaves a key out.
    pub fn without(mut self, key: &str) -> Host {
        self.remove(key);
        self
    }

    /// Removes `section.key` of a host that is in use.
    pub fn remove(&mut self, key: &str) {
        let (section, name) = key.split_once('.').expect("section.key");
        self.settings.remove(&(section.to_owned(), name.to_owned()));
        self.write();
    }

    /// Writes the configuration as a careful person does: beside it, then renamed.
    pub fn write(&self) {
        let mut sections: BTreeMap<&str, String> = BTreeMap::new();
        for ((section, name), value) in &self.settings {
            let _ = writeln!(sections.entry(section).or_default(), "{name} = {value}");
        }
        let mut all = String::new();
        for (section, body) in sections {
            let _ = write!(all, "[{section}]\n{body}");
        }
        self.put("docwharf.toml", all);
    }

    /// A path in the folder of this host.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Puts a file in place by a rename.
    pub fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        let beside = self.path(&format!(".{name}.new"));
        std::fs::write(&beside, bytes).expect("files can be written");
        // Some of them are keys.
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&beside, private).expect("modes can be set");
        std::fs::rename(beside, self.path(name)).expect("files can be renamed");
    }

    /// Puts a bundle at `bundle.zip`.
    pub fn put_bundle(&self, bytes: &[u8]) {
        self.put("bundle.zip", bytes);
    }

    /// `docwharf` with these arguments and the configuration of this host.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = docwharf();
        command.args(arguments).arg("--config").arg(self.path("docwharf.toml")).env("USER", "tester");
        command
    }

    /// Runs a command, which must end with this code; an error must be one line.
    #[track_caller]
    pub fn ends(&self, code: i32, arguments: &[&str]) -> Ended {
        judged(code, finish(&mut self.command(arguments)))
    }

    /// Runs a command, which must end with this code and print one line of error, or none where it succeeds.
    #[track_caller]
    pub fn ends_plainly(&self, code: i32, arguments: &[&str]) -> Ended {
        let ended = finish(&mut self.command(arguments)).expect(code);
        let lines = ended.stderr.lines().filter(|line| !line.contains("no daemon serves this store"));
        assert_eq!(lines.count(), usize::from(code != 0), "{}", ended.stderr);
        ended
    }

    /// Runs a command, which must succeed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> Ended {
        self.ends(0, arguments)
    }

    /// `docwharf sync --json`, which must succeed; its result.
    #[track_caller]
    pub fn sync(&self) -> String {
        self.ok(&["sync", "--json"]).json()["result"].as_str().expect("a result").to_owned()
    }

    /// Starts `docwharf run`.
    #[track_caller]
    pub fn run(&self) -> Daemon {
        Daemon::start(&mut self.command(&["run"]))
    }

    /// Starts `docwharf run`, whose standard error is added to a file.
    #[track_caller]
    pub fn run_logged(&self) -> Daemon {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.path("log")).expect("a log");
        Daemon::start(self.command(&["run"]).stderr(log))
    }

    /// Everything that `run_logged` has added so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).unwrap_or_default()
    }

    /// The output of `docwharf status --json`.
    #[track_caller]
    pub fn status(&self) -> Value {
        self.ok(&["status", "--json"]).json()
    }

    /// The id of a version in this field of `status`, or `none`.
    #[track_caller]
    pub fn id(&self, field: &str) -> String {
        self.status()[field].as_str().unwrap_or("none").to_owned()
    }

    /// The id of the active version.
    #[track_caller]
    pub fn active(&self) -> Option<String> {
        self.status()["active"].as_str().map(str::to_owned)
    }

    /// The result of the last attempt, as `status` has it.
    #[track_caller]
    pub fn last(&self) -> String {
        self.status()["lastAttempt"]["result"].as_str().unwrap_or("").to_owned()
    }

    /// The error of the last attempt, as `status` has it.
    #[track_caller]
    pub fn last_error(&self) -> String {
        self.status()["lastAttempt"]["error"].as_str().unwrap_or("").to_owned()
    }

    /// The job that the store remembers.
    #[track_caller]
    pub fn job(&self) -> Option<String> {
        self.status()["job"]["id"].as_str().map(str::to_owned)
    }

    /// Panics if a sync that ended has left something in the store.
    #[track_caller]
    pub fn assert_tidy(&self) {
        for name in ["store/staging", "store/downloads"] {
            let left: Vec<_> = std::fs::read_dir(self.path(name)).into_iter().flatten().flatten().collect();
            assert!(left.is_empty(), "{name}: {left:?}");
        }
    }
}

/// A text as TOML.
pub fn text(value: &str) -> String {
    serde_json::Value::from(value).to_string()
}

/// Runs a command to its end; panics after a minute.
#[track_caller]
pub fn finish(command: &mut Command) -> Ended {
    finish_child(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("docwharf starts"))
}

/// Waits for the end of a child with pipes.
#[track_caller]
pub fn finish_child(mut child: Child) -> Ended {
    fn reader(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
        let mut pipe = pipe.expect("a pipe");
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.read_to_end(&mut bytes);
            String::from_utf8_lossy(&bytes).into_owned()
        })
    }
    let (stdout, stderr) = (reader(child.stdout.take()), reader(child.stderr.take()));
    let deadline = Instant::now() + Duration::from_mins(1);
    let mut late = false;
    let status = loop {
        if let Some(status) = child.try_wait().expect("the child can be waited for") {
            break status;
        }
        if Instant::now() > deadline {
            late = true;
            let _ = child.kill();
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let text = |handle: std::thread::JoinHandle<String>| handle.join().expect("a reader does not panic");
    let ended = Ended { code: status.code(), stdout: text(stdout), stderr: text(stderr) };
    assert!(!late, "still running after a minute: {ended:?}");
    ended
}

/// Panics unless the code is this and an error is one line without control characters.
#[track_caller]
pub fn judged(code: i32, ended: Ended) -> Ended {
    let ended = ended.expect(code);
    if code != 0 {
        let own = ended.stderr.lines().filter(|line| line.starts_with("docwharf: "));
        let lines: Vec<&str> = own.filter(|line| !line.starts_with("docwharf: warning: ")).collect();
        assert_eq!(lines.len(), 1, "one line of error: {}", ended.stderr);
        assert!(lines[0].chars().count() < 1000, "{} characters: {}", lines[0].chars().count(), lines[0]);
        let text = ended.stderr.strip_suffix('\n').expect("whole lines");
        assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "control characters: {text:?}");
    }
    ended
}

/// Runs each case in a thread of its own: most of their time is waiting.
#[track_caller]
pub fn at_once<T: Sync>(cases: &[T], run: impl Fn(&T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            scope.spawn(|| run(case));
        }
    });
}
