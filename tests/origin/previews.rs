//! Previews of an origin: from branches of real repositories to the responses for readers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf::model::deployment::OutboundPolicy;
use docwharf::model::limits::BundleLimits;
use docwharf::origin::database::open_database;
use docwharf::origin::previews::{
    DeployError, Deployment, DeploymentStatus, PreviewLocation, PreviewProject, PreviewService, PreviewServiceSettings,
    ProductionFinder, respond_to_preview,
};
use docwharf::origin::resource_pools::ResourcePools;
use docwharf::origin::source::GitSource;
use docwharf::origin::{OriginLimits, SharedResource};
use docwharf::seal::{self, ImageTarget, SealOptions, SealProgress};
use docwharf::serve::Site;
use docwharf::site::index::ImageIndex;
use docwharf::site::mapping;
use docwharf::site::sealed_version::SealedVersion;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;

/// Timeout of every step of a test.
const TIMEOUT: Duration = Duration::from_mins(4);
/// Interval for tests in which the branches are not listed automatically.
const NEVER: Duration = Duration::from_hours(1);

/// A repository of a project.
struct Repository(PathBuf);

impl Repository {
    fn new(path: PathBuf) -> Repository {
        fs::create_dir_all(&path).unwrap();
        let repository = Repository(path);
        repository.git(&["init", "-q", "-b", "main"]);
        repository.commit(&[("index.html", "<h1>main</h1>")], "begin");
        repository
    }

    #[track_caller]
    fn git(&self, args: &[&str]) {
        self.git_output(args, "");
    }

    /// Runs git with this standard input, and returns its output.
    #[track_caller]
    fn git_output(&self, args: &[&str], input: &str) -> String {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.0).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]).args(args);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // A command that does not read its input may end before it is written.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {args:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn commit(&self, files: &[(&str, &str)], message: &str) {
        for (name, text) in files {
            let path = self.0.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "--allow-empty", "-m", message]);
    }

    /// Creates a branch of `main` with these files.
    fn branch(&self, name: &str, files: &[(&str, &str)]) {
        self.git(&["checkout", "-q", "-b", name, "main"]);
        self.commit(files, "on the branch");
    }

    fn source(&self) -> GitSource {
        GitSource {
            repository: self.0.to_string_lossy().into_owned(),
            branch: "main".to_owned(),
            build: None,
            output: None,
            tools: Vec::new(),
            allows_network: false,
            allows_no_sandbox: true,
            max_duration: TIMEOUT,
            max_bytes: 1 << 30,
            max_memory_bytes: 1 << 30,
            max_processes: 256,
            outbound_policy: OutboundPolicy::Any,
        }
    }
}

/// The settings and folders of a preview service.
struct PreviewFixture {
    dir: PathBuf,
    projects: Vec<PreviewProject>,
    location: PreviewLocation,
    production_finder: ProductionFinder,
    check_interval: Duration,
    assistant: bool,
    /// The temporary folder, if this fixture has created it; it is removed when this value is dropped.
    #[allow(dead_code)] // only for its Drop
    temporary_folder: Option<tempfile::TempDir>,
}

impl PreviewFixture {
    /// Creates a fixture with one project `p`, and returns it with the repository of the project.
    fn new() -> (PreviewFixture, Repository) {
        let dir = tempfile::Builder::new().prefix("docwharf-test-").tempdir().unwrap();
        // The user of a build must be able to traverse the folder.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut fixture = PreviewFixture::in_folder(dir.path());
        fixture.temporary_folder = Some(dir);
        let repository = Repository::new(fixture.dir.join("p.git"));
        fixture.add_project("p", "o", repository.source());
        (fixture, repository)
    }

    fn in_folder(dir: &Path) -> PreviewFixture {
        let (dir, location, production_finder) = (dir.to_owned(), PreviewLocation::Host, Arc::new(|_: &str| None));
        PreviewFixture {
            dir,
            projects: Vec::new(),
            location,
            production_finder,
            check_interval: NEVER,
            assistant: true,
            temporary_folder: None,
        }
    }

    fn add_project(&mut self, id: &str, organization: &str, git: GitSource) {
        let domain = format!("{id}.example");
        self.projects.push(PreviewProject { organization: organization.to_owned(), id: id.to_owned(), domain, git });
    }

    fn open(&self) -> Arc<PreviewService> {
        let db = Arc::new(open_database(&self.dir.join("origin.db")).unwrap());
        let projects: BTreeMap<String, PreviewProject> =
            self.projects.iter().map(|project| (project.id.clone(), project.clone())).collect();
        // One build at a time, so that a second deployment waits.
        let limits =
            OriginLimits::from_config(|_| None, |resource| (resource == SharedResource::PreviewBuilds).then_some(1))
                .unwrap();
        let settings = PreviewServiceSettings {
            folder: self.dir.join("previews"),
            projects,
            seal_options: SealOptions { threads: 2, ..SealOptions::new(BundleLimits::default()) },
            pools: ResourcePools::new(limits, self.projects.len()),
            check_interval: self.check_interval,
            search: None,
            assistant: self.assistant,
            location: self.location.clone(),
            production_finder: Arc::clone(&self.production_finder),
        };
        PreviewService::open(db, settings).unwrap()
    }

    /// Returns the names of the folders with stored versions.
    fn versions(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("previews")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("dp_")).collect()
    }
}

/// Calls `find` until it returns a value.
#[track_caller]
fn until<T>(what: &str, find: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        if let Some(value) = find() {
            return value;
        }
        assert!(Instant::now() < deadline, "{what}: not within {TIMEOUT:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Waits for the end of a deployment.
#[track_caller]
fn wait_for_end(previews: &PreviewService, id: &str) -> Deployment {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let deployment = previews.status(id).unwrap().expect("the deployment is stored");
        if matches!(deployment.status, DeploymentStatus::Success | DeploymentStatus::Failure) {
            return deployment;
        }
        assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {deployment:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Deploys a branch, waits for the end, and returns its slug and the deployment.
#[track_caller]
fn deploy_and_wait(previews: &PreviewService, project: &str, branch: &str) -> (String, Deployment) {
    let started = previews.deploy(project, branch).unwrap();
    let deployment = wait_for_end(previews, &started.status_id);
    assert_eq!(deployment.status, DeploymentStatus::Success, "{deployment:#?}");
    (started.slug, deployment)
}

fn fetch(site: &Arc<Site>, path: &str) -> (StatusCode, HeaderMap, String) {
    let request = Request::get(path).header("Host", "x.preview.example").body(()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (head, body) = runtime.block_on(respond_to_preview(site, request)).into_parts();
    let bytes = runtime.block_on(body.collect()).unwrap().to_bytes();
    (head.status, head.headers, String::from_utf8(bytes.into()).unwrap())
}

#[track_caller]
fn page(previews: &PreviewService, project: &str, slug: &str) -> String {
    let site = previews.site(project, slug).expect("there is a preview");
    let (status, _, text) = fetch(&site, "/");
    assert_eq!(status, 200, "{text}");
    text
}

#[test]
fn preview_serves_its_branch_and_the_deployment_status_has_the_commit() {
    let (fixture, repository) = PreviewFixture::new();
    repository.branch("feature/New_Login", &[("index.html", "<h1>login</h1>"), ("new.html", "new")]);
    let previews = fixture.open();
    let (slug, deployment) = deploy_and_wait(&previews, "p", "feature/New_Login");
    assert_eq!(slug, "feature-new-login");
    assert_eq!(page(&previews, "p", &slug), "<h1>login</h1>");
    assert_eq!(previews.find_by_host_label("FEATURE-new-login"), Some(("p".to_owned(), slug.clone())));
    assert!(previews.site("q", &slug).is_none(), "the preview belongs to another project");

    assert_eq!(deployment.organization, "o");
    assert!(deployment.summary.as_deref().unwrap().starts_with("2 pages; no broken links"), "{deployment:?}");
    let json = serde_json::to_value(&deployment).unwrap();
    let mut fields: Vec<&String> = json.as_object().unwrap().keys().collect();
    fields.sort();
    let expected = [
        "_id",
        "author",
        "commit",
        "createdAt",
        "endedAt",
        "logs",
        "projectId",
        "source",
        "status",
        "subdomain",
        "summary",
    ];
    assert_eq!(fields, expected, "the fields of the status endpoint");
    assert_eq!((&json["status"], &json["subdomain"]), (&"success".into(), &"feature-new-login".into()));
    assert_eq!((&json["projectId"], &json["author"]["name"]), (&"p".into(), &"Ada".into()));
    let commit = &json["commit"];
    assert_eq!((&commit["ref"], &commit["message"]), (&"feature/New_Login".into(), &"on the branch".into()));
    assert_eq!(commit["sha"].as_str().unwrap().len(), 40);
    assert_eq!(commit["filesChanged"]["added"], serde_json::json!(["new.html"]));
    assert_eq!(commit["filesChanged"]["modified"], serde_json::json!(["index.html"]));
    assert!(json["createdAt"].as_str().unwrap().ends_with('Z') && json["endedAt"].is_string());
}

#[test]
fn redeployed_branch_keeps_its_slug_and_serves_the_new_content() {
    let (fixture, repository) = PreviewFixture::new();
    repository.branch("b", &[("index.html", "one")]);
    let previews = fixture.open();
    let (slug, first) = deploy_and_wait(&previews, "p", "b");
    assert_eq!(page(&previews, "p", &slug), "one");
    repository.commit(&[("index.html", "two")], "change");
    let (second_slug, second) = deploy_and_wait(&previews, "p", "b");
    assert_eq!((second_slug, page(&previews, "p", &slug)), (slug, "two".to_owned()));
    assert_ne!(first.id, second.id);
    until("the previous version is removed", || (fixture.versions() == [second.id.clone()]).then_some(()));
}

#[test]
fn previews_are_readable_by_assistants_unless_that_is_off() {
    let (mut fixture, repository) = PreviewFixture::new();
    repository.branch("b", &[("index.html", "<h1>login</h1>")]);
    for (assistant, status) in [(true, 200), (false, 404)] {
        fixture.assistant = assistant;
        let previews = fixture.open();
        let (slug, _) = deploy_and_wait(&previews, "p", "b");
        let site = previews.site("p", &slug).unwrap();
        assert_eq!(fetch(&site, "/index.md").0, status);
        assert_eq!(fetch(&site, "/_docwharf/mcp").0, if assistant { 405 } else { 404 });
        assert_eq!(page(&previews, "p", &slug), "<h1>login</h1>");
    }
}

#[test]
fn preview_serves_its_old_version_during_a_build_and_after_a_failed_build() {
    let (mut fixture, repository) = PreviewFixture::new();
    // Only the build of a branch with the file `wait` takes a while and fails. No build has a short time limit, which
    // would also end the others on a busy machine: git and builds have the lowest priority.
    fixture.projects[0].git.build = Some("if [ -e wait ]; then sleep 10; exit 1; fi".to_owned());
    repository.branch("b", &[("index.html", "one")]);
    let previews = fixture.open();
    let (slug, _) = deploy_and_wait(&previews, "p", "b");
    repository.commit(&[("index.html", "two"), ("wait", "")], "change");
    let started = previews.deploy("p", "b").unwrap();
    let status = || previews.status(&started.status_id).unwrap().unwrap();
    until("the branch is being built", || (status().status == DeploymentStatus::InProgress).then_some(()));
    assert_eq!(page(&previews, "p", &slug), "one", "while the branch is being built");
    // Other branches wait, with one deployment each.
    let other = previews.deploy("p", "main").unwrap();
    assert_eq!(previews.status(&other.status_id).unwrap().unwrap().status, DeploymentStatus::Queued);
    assert_eq!(previews.deploy("p", "main").unwrap(), other);
    let main = previews.site("p", &other.slug).expect("a waiting preview has a site");
    assert_eq!(fetch(&main, "/").0, 503, "the preview has no version yet");
    let failed = wait_for_end(&previews, &started.status_id);
    assert_eq!(failed.status, DeploymentStatus::Failure);
    assert!(failed.summary.is_some() && failed.ended_at.is_some(), "{failed:?}");
    assert_eq!(page(&previews, "p", &slug), "one", "after the failure");
    assert_eq!(wait_for_end(&previews, &other.status_id).status, DeploymentStatus::Success);
    assert_eq!(fetch(&main, "/").2, "<h1>main</h1>", "the same site object serves the version");
}

#[test]
fn preview_is_removed_only_when_its_branch_is_deleted() {
    let (fixture, repository) = PreviewFixture::new();
    repository.branch("b", &[("index.html", "b")]);
    repository.git(&["checkout", "-q", "main"]);
    let previews = fixture.open();
    let (slug, _) = deploy_and_wait(&previews, "p", "b");
    let (main, main_deployment) = deploy_and_wait(&previews, "p", "main");
    previews.remove_deleted_branches();
    assert_eq!(page(&previews, "p", &slug), "b");
    // A repository that cannot be reached does not mean that the branch was deleted.
    let moved_repository = fixture.dir.join("away.git");
    fs::rename(&repository.0, &moved_repository).unwrap();
    previews.remove_deleted_branches();
    assert_eq!(page(&previews, "p", &slug), "b");
    fs::rename(&moved_repository, &repository.0).unwrap();
    repository.git(&["branch", "-q", "-D", "b"]);
    previews.remove_deleted_branches();
    assert!(previews.site("p", &slug).is_none() && previews.find_by_host_label(&slug).is_none());
    assert_eq!(page(&previews, "p", &main), "<h1>main</h1>");
    assert_eq!(fixture.versions(), [main_deployment.id]);
}

#[test]
fn deleted_branches_are_detected_at_each_check_interval() {
    let (mut fixture, repository) = PreviewFixture::new();
    fixture.check_interval = Duration::from_millis(20);
    repository.branch("b", &[]);
    repository.git(&["checkout", "-q", "main"]);
    let previews = fixture.open();
    let (slug, _) = deploy_and_wait(&previews, "p", "b");
    repository.git(&["branch", "-q", "-D", "b"]);
    until("the preview is removed", || previews.find_by_host_label(&slug).is_none().then_some(()));
    until("its version is removed", || fixture.versions().is_empty().then_some(()));
}

#[test]
fn missing_branch_leaves_no_preview_and_an_invalid_branch_name_is_refused() {
    let (fixture, repository) = PreviewFixture::new();
    let previews = fixture.open();
    let started = previews.deploy("p", "nowhere").unwrap();
    let failed = wait_for_end(&previews, &started.status_id);
    assert_eq!(failed.status, DeploymentStatus::Failure);
    assert!(failed.summary.unwrap().contains("nowhere"));
    until("the preview is removed", || previews.find_by_host_label(&started.slug).is_none().then_some(()));
    assert!(previews.site("p", &started.slug).is_none());
    // A preview is removed if its branch was deleted before it is deployed again.
    repository.branch("b", &[]);
    let (slug, _) = deploy_and_wait(&previews, "p", "b");
    repository.git(&["checkout", "-q", "main"]);
    repository.git(&["branch", "-q", "-D", "b"]);
    let second = previews.deploy("p", "b").unwrap();
    assert_eq!(wait_for_end(&previews, &second.status_id).status, DeploymentStatus::Failure);
    until("the preview is removed", || previews.find_by_host_label(&slug).is_none().then_some(()));
    assert_eq!(fixture.versions(), [""; 0]);

    let too_long = "x".repeat(256);
    for invalid in ["", "a..b", "-x", "a b", &too_long] {
        assert!(matches!(previews.deploy("p", invalid), Err(DeployError::BranchName(_))), "{invalid:?}");
    }
    assert!(matches!(previews.deploy("q", "main"), Err(DeployError::NoProject)));
    assert!(previews.status("dp_0000000000000000").unwrap().is_none());
}

#[test]
fn branches_of_the_same_name_in_two_projects_have_different_slugs() {
    let (mut fixture, repository) = PreviewFixture::new();
    let other = Repository::new(fixture.dir.join("q.git"));
    fixture.add_project("q", "another", other.source());
    repository.branch("b", &[("index.html", "of p")]);
    other.branch("b", &[("index.html", "of q")]);
    let previews = fixture.open();
    let ((p, of_p), (q, of_q)) = (deploy_and_wait(&previews, "p", "b"), deploy_and_wait(&previews, "q", "b"));
    assert_eq!(p, "b");
    assert!(q.starts_with("b-") && q.len() == "b-".len() + 6, "{q}");
    assert_eq!((page(&previews, "p", &p), page(&previews, "q", &q)), ("of p".to_owned(), "of q".to_owned()));
    assert!(previews.site("p", &q).is_none() && previews.site("q", &p).is_none());
    assert_eq!((of_p.organization.as_str(), of_q.organization.as_str()), ("o", "another"));
    assert_eq!(deploy_and_wait(&previews, "q", "b").0, q, "the slug stays the same");
}

#[test]
fn symlinks_that_lead_out_of_a_branch_are_not_served_in_its_preview() {
    let (fixture, repository) = PreviewFixture::new();
    let secret = fixture.dir.join("outside");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("secret.html"), "secret").unwrap();
    repository.branch("b", &[("docs/index.html", "docs")]);
    symlink(secret.join("secret.html"), repository.0.join("a.html")).unwrap();
    symlink(&secret, repository.0.join("docs/up")).unwrap();
    repository.commit(&[], "links that lead out");
    let previews = fixture.open();
    let (slug, deployment) = deploy_and_wait(&previews, "p", "b");
    let site = previews.site("p", &slug).unwrap();
    assert_eq!(fetch(&site, "/docs/").2, "docs");
    for (path, name) in [("/a.html", "\"a.html\" is left out"), ("/docs/up/secret.html", "\"docs/up\" is left out")] {
        assert_eq!(fetch(&site, path).0, 404, "{path}");
        assert!(deployment.logs.iter().any(|line| line.contains(name)), "{:?}", deployment.logs);
    }
}

#[test]
fn deployment_of_an_invalid_site_fails_with_the_reason_in_its_summary() {
    let (fixture, repository) = PreviewFixture::new();
    repository.branch("name", &[("C:x.html", "x")]);
    repository.branch("empty", &[("x.txt", "no page")]);
    repository.git(&["rm", "-q", "index.html"]);
    repository.commit(&[], "nothing left");
    let previews = fixture.open();
    for (branch, reason) in [("name", "\"C:x.html\" begins with a drive letter"), ("empty", "has no HTML page")] {
        let started = previews.deploy("p", branch).unwrap();
        let deployment = wait_for_end(&previews, &started.status_id);
        let summary = deployment.summary.unwrap();
        assert_eq!(deployment.status, DeploymentStatus::Failure, "{branch}");
        assert!(summary.contains(reason) && summary.contains(branch), "{branch}: {summary}");
        assert!(!summary.contains("work"), "users know the branch, not the temporary path: {summary}");
        assert_eq!(deployment.commit.unwrap().branch, branch);
        until("the preview is removed", || previews.site("p", &started.slug).is_none().then_some(()));
    }
    assert_eq!(fixture.versions(), [""; 0]);
}

#[test]
fn git_tree_with_parent_folder_entries_writes_no_file_outside_the_checkout() {
    let (fixture, repository) = PreviewFixture::new();
    repository.branch("b", &[]);
    // A working tree cannot contain such a name, but a tree object that was created by hand can.
    let blob = repository.git_output(&["hash-object", "-w", "--stdin"], "out");
    let out = repository.git_output(&["mktree"], &format!("100644 blob {blob}\tescaped.html\n"));
    let tree = repository.git_output(&["mktree"], &format!("040000 tree {out}\t..\n100644 blob {blob}\tindex.html\n"));
    let commit = repository.git_output(&["commit-tree", &tree, "-p", "HEAD", "-m", "out"], "");
    repository.git(&["update-ref", "refs/heads/b", &commit]);
    let previews = fixture.open();
    let started = previews.deploy("p", "b").unwrap();
    let deployment = wait_for_end(&previews, &started.status_id);
    assert_eq!(deployment.status, DeploymentStatus::Failure, "{deployment:?}");
    until("the preview is removed", || previews.site("p", &started.slug).is_none().then_some(()));
    let escaped = Command::new("find").arg(&fixture.dir).args(["-name", "escaped.html"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(escaped).unwrap(), "");
}

#[test]
fn restart_keeps_previews_and_removes_unreferenced_versions() {
    let (fixture, repository) = PreviewFixture::new();
    repository.branch("b", &[("index.html", "one")]);
    let previews = fixture.open();
    let (slug, deployment) = deploy_and_wait(&previews, "p", "b");
    drop(previews);
    let unreferenced = fixture.dir.join("previews/dp_00000000debris00");
    fs::create_dir_all(&unreferenced).unwrap();
    let previews = fixture.open();
    assert_eq!(page(&previews, "p", &slug), "one");
    assert_eq!(fixture.versions(), [deployment.id.as_str()]);
    assert_eq!(previews.status(&deployment.id).unwrap().unwrap(), deployment);
    drop(previews);
    // The index is a cache and is created again; the image is not.
    let version = fixture.dir.join("previews").join(&deployment.id);
    fs::remove_file(version.join("index")).unwrap();
    let previews = fixture.open();
    assert_eq!(page(&previews, "p", &slug), "one");
    drop(previews);
    let image = fs::read(version.join("site.zip")).unwrap();
    fs::remove_file(version.join("site.zip")).unwrap();
    fs::write(version.join("site.zip"), &image[..image.len() / 2]).unwrap();
    let previews = fixture.open();
    assert!(previews.site("p", &slug).is_none(), "a damaged image is not served");
    assert_eq!(deploy_and_wait(&previews, "p", "b").0, slug);
    assert_eq!(page(&previews, "p", &slug), "one");
}

// Regression: a build outlived an origin that was killed, and kept the next one from starting.
#[test]
fn previews_are_served_while_a_build_of_the_previous_process_still_writes() {
    let (fixture, repository) = PreviewFixture::new();
    repository.branch("b", &[("index.html", "one")]);
    let (slug, _) = deploy_and_wait(&fixture.open(), "p", "b");
    let leftover = fixture.dir.join("previews/work/dp_00000000outlived");
    fs::create_dir_all(&leftover).unwrap();
    let script = "n=0; while :; do : > $n; n=$((n+1)); done";
    let mut build =
        Command::new("sh").args(["-c", script]).current_dir(&leftover).stderr(Stdio::null()).spawn().unwrap();
    until("the build writes", || leftover.join("100").exists().then_some(()));
    for _ in 0..3 {
        assert_eq!(page(&fixture.open(), "p", &slug), "one");
    }
    build.kill().unwrap();
    build.wait().unwrap();
    drop(fixture.open());
    let entries = fs::read_dir(fixture.dir.join("previews")).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.starts_with("work")), "the work folder is removed at last: {names:?}");
}

#[test]
fn stop_fails_the_running_deployment_and_a_restart_builds_the_queued_one() {
    let (mut fixture, repository) = PreviewFixture::new();
    fixture.projects[0].git.build = Some(SLOW_BUILD.to_owned());
    repository.branch("slow", &[("wait", "")]);
    let previews = fixture.open();
    let started = previews.deploy("p", "slow").unwrap();
    let status = |previews: &PreviewService| previews.status(&started.status_id).unwrap().unwrap();
    until("the branch is being built", || (status(&previews).status == DeploymentStatus::InProgress).then_some(()));
    let waiting = previews.deploy("p", "main").unwrap();
    previews.close();
    assert!(matches!(previews.deploy("p", "main"), Err(DeployError::Closed)));
    let stopped = status(&previews);
    assert_eq!(stopped.status, DeploymentStatus::Failure);
    assert!(stopped.summary.unwrap().contains("the origin was stopped while it was being built; deploy again"));
    drop(previews);
    assert_eq!(
        wait_for_end(&fixture.open(), &waiting.status_id).status,
        DeploymentStatus::Success,
        "a waiting deployment is built after the restart"
    );
}

/// Environment variable with the folder of the child process of the next test; only the child has it.
const CHILD_VARIABLE: &str = "DOCWHARF_TEST_PREVIEWS_CHILD";

#[test]
fn restart_after_a_kill_fails_the_running_deployment_and_builds_the_queued_one() {
    if let Some(dir) = std::env::var_os(CHILD_VARIABLE) {
        return run_until_killed(Path::new(&dir));
    }
    let (mut fixture, repository) = PreviewFixture::new();
    repository.branch("slow", &[("index.html", "slow")]);
    repository.git(&["checkout", "-q", "main"]);
    let (slug, _) = deploy_and_wait(&fixture.open(), "p", "slow");
    repository.git(&["checkout", "-q", "slow"]);
    repository.commit(&[("wait", "")], "slower");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "previews::restart_after_a_kill_fails_the_running_deployment_and_builds_the_queued_one"])
        .arg("--nocapture")
        .env(CHILD_VARIABLE, &fixture.dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let ids =
        lines.find_map(|line| Some(line.split_once("acknowledged ")?.1.to_owned())).expect("the child prints the ids");
    child.kill().unwrap();
    child.wait().unwrap();
    let (slow, main) = ids.split_once(' ').unwrap();

    fixture.projects[0].git.build = Some(SLOW_BUILD.to_owned());
    let previews = fixture.open();
    let deployment = previews.status(slow).unwrap().unwrap();
    assert_eq!(deployment.status, DeploymentStatus::Failure);
    let expected = "the origin was stopped while it was being built; deploy again";
    assert_eq!((deployment.summary.as_deref(), deployment.ended_at.is_some()), (Some(expected), true));
    assert_eq!(page(&previews, "p", &slug), "slow", "the previous version");
    assert_eq!(wait_for_end(&previews, main).status, DeploymentStatus::Success, "a waiting deployment is built");
    assert_eq!(page(&previews, "p", "main"), "<h1>main</h1>");
    let work = fixture.dir.join("previews/work");
    until("the files of the build are removed", || {
        fs::read_dir(&work).map_or(true, |mut entries| entries.next().is_none()).then_some(())
    });
}

/// Build command. With the file `wait` in the branch it takes longer than any test, but it ends at last.
const SLOW_BUILD: &str = "if [ -e wait ]; then n=0; while [ $n -lt 1000 ]; do sleep 0.1; n=$((n+1)); done; fi";

/// Deploys two branches, of which one is being built and the other waits, prints their ids, and waits to be killed.
fn run_until_killed(dir: &Path) {
    let mut fixture = PreviewFixture::in_folder(dir);
    let git = Repository(dir.join("p.git")).source();
    fixture.add_project("p", "o", GitSource { build: Some(SLOW_BUILD.to_owned()), ..git });
    let previews = fixture.open();
    let slow = previews.deploy("p", "slow").unwrap();
    until("the branch is being built", || {
        let deployment = previews.status(&slow.status_id).unwrap().unwrap();
        (deployment.status == DeploymentStatus::InProgress).then_some(())
    });
    let main = previews.deploy("p", "main").unwrap();
    println!("\nacknowledged {} {}", slow.status_id, main.status_id);
    loop {
        std::thread::park();
    }
}

/// Seals a folder, as the version of production.
fn seal_folder(folder: &Path) -> Arc<SealedVersion> {
    let seal_options = SealOptions { threads: 1, ..SealOptions::new(BundleLimits::default()) };
    let sealed =
        seal::seal(folder, &ImageTarget::Unlinked(std::env::temp_dir()), &seal_options, &SealProgress::default())
            .unwrap();
    let (id, len) = (sealed.verified.id, sealed.image_len);
    let index = ImageIndex::decode(sealed.verified.encode_index(len), len, id).unwrap();
    Arc::new(SealedVersion::new(id, mapping::map_image(sealed.image).unwrap(), index))
}

#[test]
fn deployment_summary_lists_broken_links_that_production_does_not_have() {
    let (mut fixture, repository) = PreviewFixture::new();
    let links = |to: &[&str]| to.iter().map(|to| format!("<a href=\"{to}\">x</a>")).collect::<Vec<_>>().concat();
    repository.commit(&[("index.html", &links(&["/old", "/there"])), ("there.html", "x")], "links");
    let site = fixture.dir.join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), links(&["/old", "/there"])).unwrap();
    fs::write(site.join("there.html"), "x").unwrap();
    repository.branch("b", &[("index.html", &links(&["/old", "/there", "/new?x#y"])), ("c.html", &links(&["/old"]))]);

    let (_, deployment) = deploy_and_wait(&fixture.open(), "p", "b");
    let summary = deployment.summary.unwrap();
    assert_eq!(summary, "3 pages; 3 broken links: /c.html -> /old, /index.html -> /new, /index.html -> /old");

    let production = seal_folder(&site);
    fixture.production_finder = Arc::new(move |project: &str| (project == "p").then(|| Arc::clone(&production)));
    let (_, deployment) = deploy_and_wait(&fixture.open(), "p", "b");
    let summary = deployment.summary.unwrap();
    let expected = "3 pages; 3 broken links, 2 of them new against production: /c.html -> /old, /index.html -> /new";
    assert_eq!(summary, expected, "a link that is broken in production, too, is only counted");
    assert!(deployment.logs.iter().any(|line| line.contains(expected)), "{:?}", deployment.logs);
}

#[test]
fn preview_below_a_path_prefixes_redirects_and_does_not_rewrite_pages() {
    let (mut fixture, repository) = PreviewFixture::new();
    fixture.location = PreviewLocation::Path("/preview/".to_owned());
    let home = "<a href=\"guide/\">x</a><a href=\"/guide/\">y</a>";
    repository.branch("b", &[("index.html", home), ("guide/index.html", "guide"), ("404.html", "none")]);
    repository.commit(&[("_redirects", "/old /guide/ 301\n"), ("_headers", "/*\n  Cache-Control: public\n")], "rules");
    let previews = fixture.open();
    let (slug, _) = deploy_and_wait(&previews, "p", "b");
    let site = previews.site("p", &slug).unwrap();
    let location = |path: &str| {
        let (status, fields, _) = fetch(&site, path);
        assert!(status.is_redirection(), "{path}: {status}");
        fields["location"].to_str().unwrap().to_owned()
    };
    assert_eq!(fetch(&site, "/preview/p/b/").2, home, "links are not rewritten");
    assert_eq!(fetch(&site, "/preview/p/b/guide/").2, "guide");
    assert_eq!(location("/preview/p/b/guide"), "/preview/p/b/guide/");
    assert_eq!(location("/preview/p/b/old"), "/preview/p/b/guide/");
    assert_eq!(location("/preview/p/b"), "/preview/p/b/");
    let (status, _, text) = fetch(&site, "/preview/p/b/nothing");
    assert_eq!((status.as_u16(), text.as_str()), (404, "none"));
    assert_eq!(fetch(&site, "/guide/").0, 404, "a link that begins with / leads out of the preview");
    for path in ["/preview/p/b/", "/preview/p/b/nothing", "/preview/p/b/old", "/elsewhere"] {
        let (_, fields, _) = fetch(&site, path);
        assert_eq!(fields["x-robots-tag"], "noindex", "{path}");
        assert_eq!(fields["cache-control"], "private, no-cache", "{path}: whatever the branch sets");
    }
}

#[test]
fn previews_of_an_unconfigured_project_are_retained_and_not_served() {
    let (mut fixture, repository) = PreviewFixture::new();
    repository.branch("b", &[("index.html", "one")]);
    let (slug, deployment) = deploy_and_wait(&fixture.open(), "p", "b");
    let version = fixture.dir.join("previews").join(&deployment.id);
    for name in ["site.zip", "index"] {
        let mode = fs::metadata(version.join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o444, "{name}: nobody changes a sealed version by mistake");
    }
    let project = fixture.projects.remove(0);
    let previews = fixture.open();
    assert_eq!((previews.count(), previews.find_by_host_label(&slug)), (0, None));
    assert!(previews.site("p", &slug).is_none());
    drop(previews);
    assert_eq!(fixture.versions(), [deployment.id.as_str()]);
    // The project is configured again, for another organization.
    fixture.projects.push(PreviewProject { organization: "another".to_owned(), ..project });
    let previews = fixture.open();
    assert_eq!((previews.count(), page(&previews, "p", &slug)), (1, "one".to_owned()));
    let status = previews.status(&deployment.id).unwrap().unwrap();
    assert_eq!(status.organization, "another", "the organization that owns the project sees its deployments");
}
