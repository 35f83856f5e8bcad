//! An origin with organizations, projects and a folder that outlives it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::http::{self, Response};
use crate::{Daemon, Ended, docwharf, end, folder, until, write_site};

/// Path of export jobs.
pub const JOBS: &str = "/v1/static-export/jobs";

/// The folder of an origin, its file, and the origin while it runs.
pub struct Hub {
    /// Folder of the origin, its configuration and its state.
    pub dir: tempfile::TempDir,
    /// The origin while it runs.
    pub daemon: Option<Daemon>,
    /// Key of acme, for everything.
    pub key: String,
}

impl Hub {
    /// An origin with the organizations in `file`, the usual `[server]`, and a key for acme.
    #[track_caller]
    pub fn new(file: &str) -> Hub {
        Hub::with("[server]\nlisten = [\"127.0.0.1:0\"]\n", file)
    }

    /// An origin with this `[server]`.
    #[track_caller]
    pub fn with(server: &str, file: &str) -> Hub {
        let mut hub = Hub { dir: folder(), daemon: None, key: String::new() };
        hub.write(server, file);
        hub.key = hub.create("acme", "all", &[]);
        hub
    }

    /// An origin of one folder of acme's, with three files.
    #[track_caller]
    pub fn of_folder() -> Hub {
        let hub = Hub::new(FOLDER);
        write_site(
            &hub.path("site"),
            &[("index.html", "<p>home"), ("guides/start.html", "<p>start"), ("a.css", "a{}")],
        );
        hub
    }

    /// Writes the configuration: `[server]`, `[store]`, organizations.
    pub fn write(&self, server: &str, file: &str) {
        let text = format!("{server}[store]\npath = \"state\"\n{file}");
        std::fs::write(self.path("origin.toml"), text).expect("a file can be written");
    }

    /// A path in the folder of this origin.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// `docwharf origin` with these arguments and its configuration.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = docwharf();
        command.arg("origin").args(arguments).arg("--config").arg(self.path("origin.toml"));
        command
    }

    /// Runs a command of `docwharf origin`, which must succeed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> Ended {
        end(&mut self.command(arguments)).expect(0)
    }

    /// A new key.
    #[track_caller]
    pub fn create(&self, organization: &str, name: &str, more: &[&str]) -> String {
        let arguments = [&["key", "create", organization, name][..], more].concat();
        self.ok(&arguments).stdout.trim_end().to_owned()
    }

    /// Starts the origin; its log is added to a file.
    #[track_caller]
    pub fn start(&mut self) -> &mut Hub {
        let log = std::fs::OpenOptions::new().append(true).create(true).open(self.path("log")).expect("a log");
        self.daemon = Some(Daemon::start(self.command(&["-vv"]).stderr(log)));
        self
    }

    /// Kills the origin and waits for its end.
    pub fn kill(&mut self) {
        let mut daemon = self.daemon.take().expect("it runs");
        daemon.signal("KILL");
        daemon.wait(std::time::Duration::from_secs(20));
    }

    /// Waits for the end of an origin that another process killed.
    pub fn kill_quietly(&mut self) {
        let mut daemon = self.daemon.take().expect("it ran");
        daemon.wait(std::time::Duration::from_secs(20));
    }

    /// Address of the running origin without the scheme.
    pub fn address(&self) -> &str {
        &self.daemon.as_ref().expect("it runs").address
    }

    /// Address of health and metrics of the last start, without the scheme; there must be an `[admin]`.
    #[track_caller]
    pub fn admin_address(&self) -> String {
        let log = self.log();
        let told = log.rsplit_once("health and metrics are at http://").and_then(|(_, rest)| rest.split('/').next());
        told.expect("an address").to_owned()
    }

    /// Anonymous memory of the process, in bytes.
    pub fn anonymous(&self) -> u64 {
        let pid = self.daemon.as_ref().expect("it runs").pid();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the process lives");
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
    }

    /// Log of every start so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).expect("a log")
    }

    /// A request with this key.
    #[track_caller]
    pub fn ask(&self, key: &str, method: &str, target: &str, body: Option<&Value>) -> Response {
        let body = body.map(ToString::to_string);
        let mut text =
            format!("{method} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\n", self.address());
        if let Some(body) = &body {
            let _ = write!(text, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        let _ = write!(text, "\r\n{}", body.unwrap_or_default());
        http::exchange(http::connect(self.address()), text.as_bytes(), method == "HEAD")
    }

    /// GET with the key of acme.
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.ask(&self.key, "GET", target, None)
    }

    /// POST with the key of acme.
    #[track_caller]
    pub fn post(&self, target: &str, body: &Value) -> Response {
        self.ask(&self.key, "POST", target, Some(body))
    }

    /// Starts an export of the only site.
    #[track_caller]
    pub fn export(&self, more: &Value) -> String {
        let mut body = json!({ "domain": "docs.acme.example" });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let answer = self.post(JOBS, &body);
        assert_eq!(answer.status, 202, "{}", answer.text());
        data(&answer)["jobId"].as_str().expect("an id").to_owned()
    }

    /// The job once it has come to an end.
    #[track_caller]
    pub fn ended(&self, job: &str) -> Value {
        let mut last = Value::Null;
        until("the job ends", || {
            last = data(&self.get(&format!("{JOBS}/{job}")));
            last["status"] == "completed" || last["status"] == "failed"
        });
        last
    }

    /// The bundle of a job that must go well.
    #[track_caller]
    pub fn bundle(&self, job: &str) -> Response {
        let ended = self.ended(job);
        assert_eq!(ended["status"], "completed", "{ended}");
        http::get(self.address(), &self.link(job))
    }

    /// The target of a fresh link.
    #[track_caller]
    pub fn link(&self, job: &str) -> String {
        let answer = self.ask(&self.key, "POST", &format!("{JOBS}/{job}/bundle"), None);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let url = data(&answer)["bundleUrl"].as_str().expect("a link").to_owned();
        url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|at| rest[at..].to_owned())).expect("a path")
    }

    /// The pages of a bundle.
    #[track_caller]
    pub fn files(&self, bundle: &Response) -> Vec<String> {
        let (archive, out) = (self.path("bundle.tar.gz"), self.path("unpacked"));
        let _ = std::fs::remove_dir_all(&out);
        std::fs::write(&archive, &bundle.body).expect("a file can be written");
        end(docwharf().args(["bundle", "unpack"]).arg(&archive).arg(&out)).expect(0);
        crate::read_tree(&out).into_iter().map(|(name, _)| name).collect()
    }
}

/// A folder of acme's.
pub const FOLDER: &str = "[[organization]]\nid = \"acme\"\n[[organization.project]]\nid = \"docs\"\n\
                          domain = \"docs.acme.example\"\ndirectory = \"site\"\n";

/// An answer as JSON.
#[track_caller]
pub fn data(answer: &Response) -> Value {
    serde_json::from_slice(&answer.body).unwrap_or_else(|e| panic!("not JSON ({e}): {}", answer.text()))
}

/// The error of an answer.
#[track_caller]
pub fn error(answer: &Response) -> String {
    data(answer)["error"].as_str().unwrap_or_else(|| panic!("no error: {}", answer.text())).to_owned()
}

/// Does something in a repository.
#[track_caller]
pub fn git(repository: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(repository).args(["-c", "user.name=Ada", "-c", "user.email=ada@acme.example"]).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let ended = end(&mut command);
    assert_eq!(ended.code, Some(0), "git {arguments:?}: {}{}", ended.stdout, ended.stderr);
}

/// A repository of these files on its branch main.
#[track_caller]
pub fn repository(path: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(path).expect("a folder can be made");
    git(path, &["init", "-q", "-b", "main"]);
    commit(path, files, "first");
}

/// Changes these files and says so.
#[track_caller]
pub fn commit(path: &Path, files: &[(&str, &str)], message: &str) {
    write_site(path, files);
    git(path, &["add", "-A"]);
    git(path, &["commit", "-q", "-m", message]);
}
