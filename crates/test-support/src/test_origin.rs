//! A `docwharf origin` process for tests, with organizations, projects, and a folder that survives a restart.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::http::{self, Response};
use crate::{CommandOutput, Daemon, docwharf, run_to_end, temporary_folder, until_done_in_background, write_site};

/// The path of export jobs in the API.
pub const JOBS_PATH: &str = "/v1/static-export/jobs";

/// An origin: its folder with the configuration and the state, and the process while it runs.
pub struct TestOrigin {
    /// The folder of the configuration and the state.
    pub dir: tempfile::TempDir,
    /// The process while it runs.
    pub daemon: Option<Daemon>,
    /// A key of the organization `acme` with all permissions.
    pub key: String,
}

/// A test that fails prints the log.
impl Drop for TestOrigin {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Ok(log) = std::fs::read_to_string(self.path("log"))
        {
            eprintln!("the log of the origin:\n{log}");
        }
    }
}

impl TestOrigin {
    /// Creates an origin with these organizations (TOML), the usual `[server]`, and a key for acme.
    #[track_caller]
    pub fn new(organizations: &str) -> TestOrigin {
        TestOrigin::with_server_section("[server]\nlisten = [\"127.0.0.1:0\"]\n", organizations)
    }

    /// Creates an origin with this `[server]` section.
    #[track_caller]
    pub fn with_server_section(server: &str, organizations: &str) -> TestOrigin {
        let mut origin = TestOrigin { dir: temporary_folder(), daemon: None, key: String::new() };
        origin.write(server, organizations);
        origin.key = origin.create_key("acme", "all", &[]);
        origin
    }

    /// Creates an origin with one project of acme: a folder with three files.
    #[track_caller]
    pub fn with_folder_project() -> TestOrigin {
        let origin = TestOrigin::new(FOLDER_PROJECT);
        write_site(
            &origin.path("site"),
            &[("index.html", "<p>home"), ("guides/start.html", "<p>start"), ("a.css", "a{}")],
        );
        origin
    }

    /// Writes the configuration: `[server]`, `[store]`, organizations.
    pub fn write(&self, server: &str, organizations: &str) {
        let text = format!("{server}[store]\npath = \"state\"\n{organizations}");
        std::fs::write(self.path("origin.toml"), text).expect("a file can be written");
    }

    /// Returns a path in the folder of this origin.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Creates a command that runs `docwharf origin` with these arguments and its configuration.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = docwharf();
        command.arg("origin").args(arguments).arg("--config").arg(self.path("origin.toml"));
        command
    }

    /// Runs a command of `docwharf origin`, which must succeed.
    #[track_caller]
    pub fn ok(&self, arguments: &[&str]) -> CommandOutput {
        run_to_end(&mut self.command(arguments)).expect(0)
    }

    /// Creates a key of an organization and returns it.
    #[track_caller]
    pub fn create_key(&self, organization: &str, name: &str, more: &[&str]) -> String {
        let arguments = [&["key", "create", organization, name][..], more].concat();
        self.ok(&arguments).stdout.trim_end().to_owned()
    }

    /// Starts the origin and appends its log to a file.
    #[track_caller]
    pub fn start(&mut self) -> &mut TestOrigin {
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

    /// Waits for the end of an origin that another process has killed.
    pub fn wait_for_end(&mut self) {
        let mut daemon = self.daemon.take().expect("it ran");
        daemon.wait(std::time::Duration::from_secs(20));
    }

    /// Returns the address of the running origin, without the scheme.
    pub fn address(&self) -> &str {
        &self.daemon.as_ref().expect("it runs").address
    }

    /// Returns the address of health and metrics of the last start, without the scheme. There must be an `[admin]`
    /// section.
    #[track_caller]
    pub fn admin_address(&self) -> String {
        let log = self.log();
        let address = log.rsplit_once("health and metrics are at http://").and_then(|(_, rest)| rest.split('/').next());
        address.expect("an address").to_owned()
    }

    /// Returns the anonymous memory of the process in bytes.
    #[track_caller]
    pub fn anonymous_memory_bytes(&self) -> u64 {
        crate::anonymous_memory_bytes(self.daemon.as_ref().expect("it runs").pid())
    }

    /// Returns the log of all starts so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("log")).expect("a log")
    }

    /// Sends a request with this key.
    #[track_caller]
    pub fn send_request(&self, key: &str, method: &str, target: &str, body: Option<&Value>) -> Response {
        let body = body.map(ToString::to_string);
        let mut text =
            format!("{method} {target} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {key}\r\n", self.address());
        if let Some(body) = &body {
            let _ = write!(text, "Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        let _ = write!(text, "\r\n{}", body.unwrap_or_default());
        http::exchange(http::connect(self.address()), text.as_bytes(), method == "HEAD")
    }

    /// Sends a GET with the key of acme.
    #[track_caller]
    pub fn get(&self, target: &str) -> Response {
        self.send_request(&self.key, "GET", target, None)
    }

    /// Sends a POST with the key of acme.
    #[track_caller]
    pub fn post(&self, target: &str, body: &Value) -> Response {
        self.send_request(&self.key, "POST", target, Some(body))
    }

    /// Starts an export of the only site, with further members of the request body, and returns the job's id.
    #[track_caller]
    pub fn export(&self, more: &Value) -> String {
        let mut body = json!({ "domain": "docs.acme.example" });
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let response = self.post(JOBS_PATH, &body);
        assert_eq!(response.status, 202, "{}", response.text());
        json_body(&response)["jobId"].as_str().expect("an id").to_owned()
    }

    /// Waits until a job has ended and returns its last status.
    #[track_caller]
    pub fn wait_for_job(&self, job: &str) -> Value {
        let mut last = Value::Null;
        until_done_in_background("the job ends", || {
            last = json_body(&self.get(&format!("{JOBS_PATH}/{job}")));
            last["status"] == "completed" || last["status"] == "failed"
        });
        last
    }

    /// Waits for a job, which must succeed, and downloads its bundle.
    #[track_caller]
    pub fn bundle(&self, job: &str) -> Response {
        let status = self.wait_for_job(job);
        assert_eq!(status["status"], "completed", "{status}");
        http::get(self.address(), &self.link(job))
    }

    /// Requests a new link to the bundle of a job and returns its path and query.
    #[track_caller]
    pub fn link(&self, job: &str) -> String {
        let response = self.send_request(&self.key, "POST", &format!("{JOBS_PATH}/{job}/bundle"), None);
        assert_eq!(response.status, 200, "{}", response.text());
        let url = json_body(&response)["bundleUrl"].as_str().expect("a link").to_owned();
        url.split_once("://")
            .and_then(|(_, rest)| rest.find('/').map(|start| rest[start..].to_owned()))
            .expect("a path")
    }

    /// Unpacks a bundle and returns the paths of its files.
    #[track_caller]
    pub fn files(&self, bundle: &Response) -> Vec<String> {
        let (archive, target) = (self.path("bundle.tar.gz"), self.path("unpacked"));
        let _ = std::fs::remove_dir_all(&target);
        std::fs::write(&archive, &bundle.body).expect("a file can be written");
        run_to_end(docwharf().args(["bundle", "unpack"]).arg(&archive).arg(&target)).expect(0);
        crate::read_tree(&target).into_iter().map(|(name, _)| name).collect()
    }
}

/// The organization acme with one project: the folder `site`.
pub const FOLDER_PROJECT: &str = "[[organization]]\nid = \"acme\"\n[[organization.project]]\nid = \"docs\"\n\
                          domain = \"docs.acme.example\"\ndirectory = \"site\"\n";

/// Parses the body of a response as JSON.
#[track_caller]
pub fn json_body(response: &Response) -> Value {
    response.json()
}

/// Returns the error message of a response.
#[track_caller]
pub fn error_message(response: &Response) -> String {
    json_body(response)["error"].as_str().unwrap_or_else(|| panic!("no error: {}", response.text())).to_owned()
}

/// Runs `git` with these arguments in a repository.
#[track_caller]
pub fn git(repository: &Path, arguments: &[&str]) {
    let mut command = Command::new("git");
    command.current_dir(repository).args(["-c", "user.name=Ada", "-c", "user.email=ada@acme.example"]).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    let ended = run_to_end(&mut command);
    assert_eq!(ended.code, Some(0), "git {arguments:?}: {}{}", ended.stdout, ended.stderr);
}

/// Creates a repository with these files on the branch `main`.
#[track_caller]
pub fn repository(path: &Path, files: &[(&str, &str)]) {
    std::fs::create_dir_all(path).expect("a folder can be made");
    git(path, &["init", "-q", "-b", "main"]);
    commit(path, files, "first");
}

/// Writes these files and commits them.
#[track_caller]
pub fn commit(path: &Path, files: &[(&str, &str)], message: &str) {
    write_site(path, files);
    git(path, &["add", "-A"]);
    git(path, &["commit", "-q", "-m", message]);
}
