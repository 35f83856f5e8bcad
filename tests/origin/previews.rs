//! Previews of an origin: from branches of real repositories to what readers are answered.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf::model::limits::BundleLimits;
use docwharf::origin::database::Database;
use docwharf::origin::previews::{
    DeployError, Deployment, PreviewLocation, PreviewProject, PreviewService, PreviewServiceSettings, Production,
    Status, respond_to_preview,
};
use docwharf::origin::shares::ResourcePools;
use docwharf::origin::source::Git;
use docwharf::origin::{OriginLimits, SharedResource};
use docwharf::seal::{self, ImageSpace, SealOptions, SealProgress};
use docwharf::serve::Site;
use docwharf::site::index::ImageIndex;
use docwharf::site::mapping;
use docwharf::site::sealed_version::SealedVersion;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;

/// How long anything may take here.
const PATIENCE: Duration = Duration::from_mins(1);
/// Never, for what is not to happen by itself.
const NEVER: Duration = Duration::from_hours(1);

/// A repository of a project.
struct Repository(PathBuf);

impl Repository {
    fn new(at: PathBuf) -> Repository {
        fs::create_dir_all(&at).unwrap();
        let repository = Repository(at);
        repository.git(&["init", "-q", "-b", "main"]);
        repository.commit(&[("index.html", "<h1>main</h1>")], "begin");
        repository
    }

    #[track_caller]
    fn git(&self, args: &[&str]) {
        self.ask(args, "");
    }

    /// What a command says that is told this.
    #[track_caller]
    fn ask(&self, args: &[&str], told: &str) -> String {
        let mut command = Command::new("git");
        command.arg("-C").arg(&self.0).args(["-c", "user.name=Ada", "-c", "user.email=ada@example.com"]).args(args);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_SYSTEM", "/dev/null");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // Who reads nothing may have ended before it is told anything.
        let _ = child.stdin.take().unwrap().write_all(told.as_bytes());
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

    /// Makes a branch of `main` with these files.
    fn branch(&self, name: &str, files: &[(&str, &str)]) {
        self.git(&["checkout", "-q", "-b", name, "main"]);
        self.commit(files, "on the branch");
    }

    fn source(&self) -> Git {
        Git {
            repository: self.0.to_string_lossy().into_owned(),
            branch: "main".to_owned(),
            build: None,
            output: None,
            tools: Vec::new(),
            network: false,
            allow_untrusted: true,
            time: PATIENCE,
            size: 1 << 30,
            memory: 1 << 30,
            processes: 256,
        }
    }
}

/// An origin's previews, and what they are made of.
struct Stand {
    dir: PathBuf,
    projects: Vec<PreviewProject>,
    place: PreviewLocation,
    production: Production,
    every: Duration,
    /// What is removed with it, if it is the one that has made it.
    #[allow(dead_code)] // held, not looked at
    gone_at_the_end: Option<tempfile::TempDir>,
}

impl Stand {
    /// With one project `p` whose repository comes along.
    fn new() -> (Stand, Repository) {
        let dir = tempfile::Builder::new().prefix("docwharf-test-").tempdir().unwrap();
        // Whoever builds may be another user.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut stand = Stand::at(dir.path());
        stand.gone_at_the_end = Some(dir);
        let repository = Repository::new(stand.dir.join("p.git"));
        stand.project("p", "o", repository.source());
        (stand, repository)
    }

    fn at(dir: &Path) -> Stand {
        let (dir, place, production) = (dir.to_owned(), PreviewLocation::Host, Arc::new(|_: &str| None));
        Stand { dir, projects: Vec::new(), place, production, every: NEVER, gone_at_the_end: None }
    }

    fn project(&mut self, id: &str, organization: &str, git: Git) {
        let domain = format!("{id}.example");
        self.projects.push(PreviewProject { organization: organization.to_owned(), id: id.to_owned(), domain, git });
    }

    fn open(&self) -> Arc<PreviewService> {
        let db = Arc::new(Database::open(&self.dir.join("origin.db")).unwrap());
        let projects: BTreeMap<String, PreviewProject> =
            self.projects.iter().map(|project| (project.id.clone(), project.clone())).collect();
        // One at a time, so that a second one waits.
        let limits =
            OriginLimits::from_config(|_| None, |resource| (resource == SharedResource::PreviewBuilds).then_some(1))
                .unwrap();
        let settings = PreviewServiceSettings {
            folder: self.dir.join("previews"),
            projects,
            effort: SealOptions { threads: 2, ..SealOptions::new(BundleLimits::default()) },
            shares: ResourcePools::new(limits, self.projects.len()),
            every: self.every,
            place: self.place.clone(),
            production: Arc::clone(&self.production),
        };
        PreviewService::open(db, settings).unwrap()
    }

    /// The folders of versions that there are.
    fn versions(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.join("previews")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("dp_")).collect()
    }
}

/// Looks again and again until there is something to see.
#[track_caller]
fn until<T>(what: &str, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[track_caller]
fn ended(previews: &PreviewService, id: &str) -> Deployment {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let deployment = previews.status(id).unwrap().expect("it is remembered");
        if matches!(deployment.status, Status::Success | Status::Failure) {
            return deployment;
        }
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {deployment:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Deploys a branch, waits for it, and tells its slug.
#[track_caller]
fn deployed(previews: &PreviewService, project: &str, branch: &str) -> (String, Deployment) {
    let started = previews.deploy(project, branch).unwrap();
    let deployment = ended(previews, &started.status_id);
    assert_eq!(deployment.status, Status::Success, "{deployment:#?}");
    (started.slug, deployment)
}

fn fetch(site: &Site, path: &str) -> (StatusCode, HeaderMap, String) {
    let request = Request::get(path).header("Host", "x.preview.example").body(()).unwrap();
    let (head, body) = respond_to_preview(site, &request).into_parts();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
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
fn a_preview_shows_its_branch_and_tells_its_commit() {
    let (stand, repository) = Stand::new();
    repository.branch("feature/New_Login", &[("index.html", "<h1>login</h1>"), ("new.html", "new")]);
    let previews = stand.open();
    let (slug, deployment) = deployed(&previews, "p", "feature/New_Login");
    assert_eq!(slug, "feature-new-login");
    assert_eq!(page(&previews, "p", &slug), "<h1>login</h1>");
    assert_eq!(previews.by_host_label("FEATURE-new-login"), Some(("p".to_owned(), slug.clone())));
    assert!(previews.site("q", &slug).is_none(), "it is another project's");

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
    assert_eq!(fields, expected, "what the status endpoint tells, and nothing more");
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
fn a_branch_deployed_again_keeps_its_address_and_shows_its_new_content() {
    let (stand, repository) = Stand::new();
    repository.branch("b", &[("index.html", "one")]);
    let previews = stand.open();
    let (slug, first) = deployed(&previews, "p", "b");
    assert_eq!(page(&previews, "p", &slug), "one");
    repository.commit(&[("index.html", "two")], "change");
    let (again, second) = deployed(&previews, "p", "b");
    assert_eq!((again, page(&previews, "p", &slug)), (slug, "two".to_owned()));
    assert_ne!(first.id, second.id);
    until("the version before is removed", || (stand.versions() == [second.id.clone()]).then_some(()));
}

#[test]
fn what_was_shown_stays_while_its_branch_is_built_again_and_when_nothing_comes_of_it() {
    let (mut stand, repository) = Stand::new();
    // Only a branch that asks for it is built for so long that nothing comes of it.
    stand.projects[0].git.build = Some(SLOW.to_owned());
    stand.projects[0].git.time = Duration::from_secs(15);
    repository.branch("b", &[("index.html", "one")]);
    let previews = stand.open();
    let (slug, _) = deployed(&previews, "p", "b");
    repository.commit(&[("index.html", "two"), ("wait", "")], "change");
    let started = previews.deploy("p", "b").unwrap();
    let status = || previews.status(&started.status_id).unwrap().unwrap();
    until("it is being built", || (status().status == Status::InProgress).then_some(()));
    assert_eq!(page(&previews, "p", &slug), "one", "while it is built");
    // Others wait for their turn, once each.
    let other = previews.deploy("p", "main").unwrap();
    assert_eq!(previews.status(&other.status_id).unwrap().unwrap().status, Status::Queued);
    assert_eq!(previews.deploy("p", "main").unwrap(), other);
    let main = previews.site("p", &other.slug).expect("an address that is about to be something");
    assert_eq!(fetch(&main, "/").0, 503, "not yet");
    let failed = ended(&previews, &started.status_id);
    assert_eq!(failed.status, Status::Failure);
    assert!(failed.summary.is_some() && failed.ended_at.is_some(), "{failed:?}");
    assert_eq!(page(&previews, "p", &slug), "one", "after it has failed");
    assert_eq!(ended(&previews, &other.status_id).status, Status::Success);
    assert_eq!(fetch(&main, "/").2, "<h1>main</h1>", "the site that was asked for before is the one that shows it");
}

#[test]
fn a_preview_goes_with_its_branch_and_with_nothing_else() {
    let (stand, repository) = Stand::new();
    repository.branch("b", &[("index.html", "b")]);
    repository.git(&["checkout", "-q", "main"]);
    let previews = stand.open();
    let (slug, _) = deployed(&previews, "p", "b");
    let (main, of_main) = deployed(&previews, "p", "main");
    previews.sweep();
    assert_eq!(page(&previews, "p", &slug), "b");
    // Who cannot be asked has not said that the branch is gone.
    let away = stand.dir.join("away.git");
    fs::rename(&repository.0, &away).unwrap();
    previews.sweep();
    assert_eq!(page(&previews, "p", &slug), "b");
    fs::rename(&away, &repository.0).unwrap();
    repository.git(&["branch", "-q", "-D", "b"]);
    previews.sweep();
    assert!(previews.site("p", &slug).is_none() && previews.by_host_label(&slug).is_none());
    assert_eq!(page(&previews, "p", &main), "<h1>main</h1>");
    assert_eq!(stand.versions(), [of_main.id]);
}

#[test]
fn repositories_are_asked_for_their_branches_every_while() {
    let (mut stand, repository) = Stand::new();
    stand.every = Duration::from_millis(20);
    repository.branch("b", &[]);
    repository.git(&["checkout", "-q", "main"]);
    let previews = stand.open();
    let (slug, _) = deployed(&previews, "p", "b");
    repository.git(&["branch", "-q", "-D", "b"]);
    until("the preview is gone", || previews.by_host_label(&slug).is_none().then_some(()));
    until("its version, too", || stand.versions().is_empty().then_some(()));
}

#[test]
fn a_branch_that_is_not_there_leaves_no_preview_and_one_that_cannot_be_is_refused() {
    let (stand, repository) = Stand::new();
    let previews = stand.open();
    let started = previews.deploy("p", "nowhere").unwrap();
    let failed = ended(&previews, &started.status_id);
    assert_eq!(failed.status, Status::Failure);
    assert!(failed.summary.unwrap().contains("nowhere"));
    until("the preview is gone", || previews.by_host_label(&started.slug).is_none().then_some(()));
    assert!(previews.site("p", &started.slug).is_none());
    // A preview whose branch goes before it is deployed again goes, too.
    repository.branch("b", &[]);
    let (slug, _) = deployed(&previews, "p", "b");
    repository.git(&["checkout", "-q", "main"]);
    repository.git(&["branch", "-q", "-D", "b"]);
    let again = previews.deploy("p", "b").unwrap();
    assert_eq!(ended(&previews, &again.status_id).status, Status::Failure);
    until("the preview is gone", || previews.by_host_label(&slug).is_none().then_some(()));
    assert_eq!(stand.versions(), [""; 0]);

    for wrong in ["", "a..b", "-x", "a b"] {
        assert!(matches!(previews.deploy("p", wrong), Err(DeployError::Branch(_))), "{wrong:?}");
    }
    assert!(matches!(previews.deploy("q", "main"), Err(DeployError::NoProject)));
    assert!(previews.status("dp_0000000000000000").unwrap().is_none());
}

#[test]
fn two_projects_with_branches_of_one_name_have_an_address_each() {
    let (mut stand, repository) = Stand::new();
    let other = Repository::new(stand.dir.join("q.git"));
    stand.project("q", "another", other.source());
    repository.branch("b", &[("index.html", "of p")]);
    other.branch("b", &[("index.html", "of q")]);
    let previews = stand.open();
    let ((p, of_p), (q, of_q)) = (deployed(&previews, "p", "b"), deployed(&previews, "q", "b"));
    assert_eq!(p, "b");
    assert!(q.starts_with("b-") && q.len() == "b-".len() + 6, "{q}");
    assert_eq!((page(&previews, "p", &p), page(&previews, "q", &q)), ("of p".to_owned(), "of q".to_owned()));
    assert!(previews.site("p", &q).is_none() && previews.site("q", &p).is_none());
    assert_eq!((of_p.organization.as_str(), of_q.organization.as_str()), ("o", "another"));
    assert_eq!(deployed(&previews, "q", "b").0, q, "and keeps it");
}

#[test]
fn what_a_branch_links_to_outside_of_it_is_not_shown() {
    let (stand, repository) = Stand::new();
    let secret = stand.dir.join("outside");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("secret.html"), "secret").unwrap();
    repository.branch("b", &[("docs/index.html", "docs")]);
    symlink(secret.join("secret.html"), repository.0.join("a.html")).unwrap();
    symlink(&secret, repository.0.join("docs/up")).unwrap();
    repository.commit(&[], "ways out");
    let previews = stand.open();
    let (slug, deployment) = deployed(&previews, "p", "b");
    let site = previews.site("p", &slug).unwrap();
    assert_eq!(fetch(&site, "/docs/").2, "docs");
    for (path, name) in [("/a.html", "\"a.html\" is left out"), ("/docs/up/secret.html", "\"docs/up\" is left out")] {
        assert_eq!(fetch(&site, path).0, 404, "{path}");
        assert!(deployment.logs.iter().any(|line| line.contains(name)), "{:?}", deployment.logs);
    }
}

#[test]
fn a_hostile_branch_is_refused_and_says_why() {
    let (stand, repository) = Stand::new();
    repository.branch("name", &[("C:x.html", "x")]);
    repository.branch("empty", &[("x.txt", "no page")]);
    repository.git(&["rm", "-q", "index.html"]);
    repository.commit(&[], "nothing left");
    let previews = stand.open();
    for (branch, why) in [("name", "\"C:x.html\" begins with a drive letter"), ("empty", "holds no HTML page")] {
        let started = previews.deploy("p", branch).unwrap();
        let deployment = ended(&previews, &started.status_id);
        let summary = deployment.summary.unwrap();
        assert_eq!(deployment.status, Status::Failure, "{branch}");
        assert!(summary.contains(why) && summary.contains(branch), "{branch}: {summary}");
        assert!(!summary.contains("work"), "people know the branch, not where it was built: {summary}");
        assert_eq!(deployment.commit.unwrap().branch, branch);
        until("nothing is shown", || previews.site("p", &started.slug).is_none().then_some(()));
    }
    assert_eq!(stand.versions(), [""; 0]);
}

#[test]
fn a_branch_whose_paths_lead_out_of_it_writes_nothing_there() {
    let (stand, repository) = Stand::new();
    repository.branch("b", &[]);
    // No working tree has such a name; a tree that somebody makes by hand does.
    let blob = repository.ask(&["hash-object", "-w", "--stdin"], "out");
    let out = repository.ask(&["mktree"], &format!("100644 blob {blob}\tescaped.html\n"));
    let tree = repository.ask(&["mktree"], &format!("040000 tree {out}\t..\n100644 blob {blob}\tindex.html\n"));
    let commit = repository.ask(&["commit-tree", &tree, "-p", "HEAD", "-m", "out"], "");
    repository.git(&["update-ref", "refs/heads/b", &commit]);
    let previews = stand.open();
    let started = previews.deploy("p", "b").unwrap();
    let deployment = ended(&previews, &started.status_id);
    assert_eq!(deployment.status, Status::Failure, "{deployment:?}");
    until("nothing is shown", || previews.site("p", &started.slug).is_none().then_some(()));
    let escaped = Command::new("find").arg(&stand.dir).args(["-name", "escaped.html"]).output().unwrap().stdout;
    assert_eq!(String::from_utf8(escaped).unwrap(), "");
}

#[test]
fn a_restart_keeps_previews_and_removes_what_none_shows() {
    let (stand, repository) = Stand::new();
    repository.branch("b", &[("index.html", "one")]);
    let previews = stand.open();
    let (slug, deployment) = deployed(&previews, "p", "b");
    drop(previews);
    let debris = stand.dir.join("previews/dp_00000000debris00");
    fs::create_dir_all(&debris).unwrap();
    let previews = stand.open();
    assert_eq!(page(&previews, "p", &slug), "one");
    assert_eq!(stand.versions(), [deployment.id.as_str()]);
    assert_eq!(previews.status(&deployment.id).unwrap().unwrap(), deployment);
    drop(previews);
    // The index is a cache; the image is not.
    let version = stand.dir.join("previews").join(&deployment.id);
    fs::remove_file(version.join("index")).unwrap();
    let previews = stand.open();
    assert_eq!(page(&previews, "p", &slug), "one");
    drop(previews);
    let image = fs::read(version.join("site.zip")).unwrap();
    fs::remove_file(version.join("site.zip")).unwrap();
    fs::write(version.join("site.zip"), &image[..image.len() / 2]).unwrap();
    let previews = stand.open();
    assert!(previews.site("p", &slug).is_none(), "nothing unproven is served");
    assert_eq!(deployed(&previews, "p", "b").0, slug);
    assert_eq!(page(&previews, "p", &slug), "one");
}

#[test]
fn previews_are_shown_also_while_a_build_of_the_last_process_still_writes() {
    let (stand, repository) = Stand::new();
    repository.branch("b", &[("index.html", "one")]);
    let (slug, _) = deployed(&stand.open(), "p", "b");
    let left = stand.dir.join("previews/work/dp_00000000outlived");
    fs::create_dir_all(&left).unwrap();
    let script = "n=0; while :; do : > $n; n=$((n+1)); done";
    let mut build = Command::new("sh").args(["-c", script]).current_dir(&left).stderr(Stdio::null()).spawn().unwrap();
    until("it writes", || left.join("100").exists().then_some(()));
    for _ in 0..3 {
        assert_eq!(page(&stand.open(), "p", &slug), "one");
    }
    build.kill().unwrap();
    build.wait().unwrap();
    drop(stand.open());
    let entries = fs::read_dir(stand.dir.join("previews")).unwrap();
    let names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(names.iter().all(|name| !name.starts_with("work")), "it is removed in the end: {names:?}");
}

#[test]
fn a_stop_ends_what_is_built_and_says_so() {
    let (mut stand, repository) = Stand::new();
    stand.projects[0].git.build = Some(SLOW.to_owned());
    repository.branch("slow", &[("wait", "")]);
    let previews = stand.open();
    let started = previews.deploy("p", "slow").unwrap();
    let status = |previews: &PreviewService| previews.status(&started.status_id).unwrap().unwrap();
    until("it is being built", || (status(&previews).status == Status::InProgress).then_some(()));
    let waits = previews.deploy("p", "main").unwrap();
    previews.close();
    assert!(matches!(previews.deploy("p", "main"), Err(DeployError::Closed)));
    let stopped = status(&previews);
    assert_eq!(stopped.status, Status::Failure);
    assert!(stopped.summary.unwrap().contains("the origin was stopped while it was being built; deploy again"));
    drop(previews);
    assert_eq!(ended(&stand.open(), &waits.status_id).status, Status::Success, "what waited waits still");
}

/// Where the child of the next test works; without it there is nothing to do.
const CHILD: &str = "DOCWHARF_TEST_PREVIEWS_CHILD";

#[test]
fn after_a_kill_every_deployment_tells_the_truth_and_nothing_acknowledged_is_lost() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return be_killed(Path::new(&dir));
    }
    let (mut stand, repository) = Stand::new();
    repository.branch("slow", &[("index.html", "slow")]);
    repository.git(&["checkout", "-q", "main"]);
    let (slug, _) = deployed(&stand.open(), "p", "slow");
    repository.git(&["checkout", "-q", "slow"]);
    repository.commit(&[("wait", "")], "slower");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "previews::after_a_kill_every_deployment_tells_the_truth_and_nothing_acknowledged_is_lost"])
        .arg("--nocapture")
        .env(CHILD, &stand.dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let ids = lines.find_map(|line| Some(line.split_once("acknowledged ")?.1.to_owned())).expect("the child says so");
    child.kill().unwrap();
    child.wait().unwrap();
    let (slow, main) = ids.split_once(' ').unwrap();

    stand.projects[0].git.build = Some(SLOW.to_owned());
    let previews = stand.open();
    let deployment = previews.status(slow).unwrap().unwrap();
    assert_eq!(deployment.status, Status::Failure);
    let said = "the origin was stopped while it was being built; deploy again";
    assert_eq!((deployment.summary.as_deref(), deployment.ended_at.is_some()), (Some(said), true));
    assert_eq!(page(&previews, "p", &slug), "slow", "what was shown before");
    assert_eq!(ended(&previews, main).status, Status::Success, "what waited is built");
    assert_eq!(page(&previews, "p", "main"), "<h1>main</h1>");
    let work = stand.dir.join("previews/work");
    until("nothing is left of the build", || {
        fs::read_dir(&work).map_or(true, |mut entries| entries.next().is_none()).then_some(())
    });
}

/// A branch that asks for it is built for longer than any test takes, but not for ever if nobody ends it.
const SLOW: &str = "if [ -e wait ]; then n=0; while [ $n -lt 1000 ]; do sleep 0.1; n=$((n+1)); done; fi";

/// Deploys two branches, of which one is being built and the other waits, tells their ids, and waits for the end.
fn be_killed(dir: &Path) {
    let mut stand = Stand::at(dir);
    let git = Repository(dir.join("p.git")).source();
    stand.project("p", "o", Git { build: Some(SLOW.to_owned()), ..git });
    let previews = stand.open();
    let slow = previews.deploy("p", "slow").unwrap();
    until("it is being built", || {
        let deployment = previews.status(&slow.status_id).unwrap().unwrap();
        (deployment.status == Status::InProgress).then_some(())
    });
    let main = previews.deploy("p", "main").unwrap();
    println!("\nacknowledged {} {}", slow.status_id, main.status_id);
    loop {
        std::thread::park();
    }
}

/// A folder as production shows it.
fn sealed(folder: &Path) -> Arc<SealedVersion> {
    let effort = SealOptions { threads: 1, ..SealOptions::new(BundleLimits::default()) };
    let sealing =
        seal::seal(folder, &ImageSpace::Unlinked(std::env::temp_dir()), &effort, &SealProgress::default()).unwrap();
    let (id, len) = (sealing.proven.id, sealing.image_len);
    let index = ImageIndex::decode(sealing.proven.index(len), len, id).unwrap();
    Arc::new(SealedVersion::new(id, mapping::map_image(sealing.image).unwrap(), index))
}

#[test]
fn broken_links_are_told_and_which_of_them_are_new_against_production() {
    let (mut stand, repository) = Stand::new();
    let links = |to: &[&str]| to.iter().map(|to| format!("<a href=\"{to}\">x</a>")).collect::<Vec<_>>().concat();
    repository.commit(&[("index.html", &links(&["/old", "/there"])), ("there.html", "x")], "links");
    let site = stand.dir.join("site");
    fs::create_dir(&site).unwrap();
    fs::write(site.join("index.html"), links(&["/old", "/there"])).unwrap();
    fs::write(site.join("there.html"), "x").unwrap();
    repository.branch("b", &[("index.html", &links(&["/old", "/there", "/new?x#y"])), ("c.html", &links(&["/old"]))]);

    let (_, deployment) = deployed(&stand.open(), "p", "b");
    let summary = deployment.summary.unwrap();
    assert_eq!(summary, "3 pages; 3 broken links: /c.html -> /old, /index.html -> /new, /index.html -> /old");

    let production = sealed(&site);
    stand.production = Arc::new(move |project: &str| (project == "p").then(|| Arc::clone(&production)));
    let (_, deployment) = deployed(&stand.open(), "p", "b");
    let summary = deployment.summary.unwrap();
    let expected = "3 pages; 3 broken links, 2 of them new against production: /c.html -> /old, /index.html -> /new";
    assert_eq!(summary, expected, "of a link that production has, too, only that there is one");
    assert!(deployment.logs.iter().any(|line| line.contains(expected)), "{:?}", deployment.logs);
}

#[test]
fn below_a_path_addresses_are_those_of_the_prefix_and_pages_are_as_they_were_sealed() {
    let (mut stand, repository) = Stand::new();
    stand.place = PreviewLocation::Path("/preview/".to_owned());
    let home = "<a href=\"guide/\">x</a><a href=\"/guide/\">y</a>";
    repository.branch("b", &[("index.html", home), ("guide/index.html", "guide"), ("404.html", "none")]);
    repository.commit(&[("_redirects", "/old /guide/ 301\n"), ("_headers", "/*\n  Cache-Control: public\n")], "rules");
    let previews = stand.open();
    let (slug, _) = deployed(&previews, "p", "b");
    let site = previews.site("p", &slug).unwrap();
    let location = |path: &str| {
        let (status, fields, _) = fetch(&site, path);
        assert!(status.is_redirection(), "{path}: {status}");
        fields["location"].to_str().unwrap().to_owned()
    };
    assert_eq!(fetch(&site, "/preview/p/b/").2, home, "no link is rewritten");
    assert_eq!(fetch(&site, "/preview/p/b/guide/").2, "guide");
    assert_eq!(location("/preview/p/b/guide"), "/preview/p/b/guide/");
    assert_eq!(location("/preview/p/b/old"), "/preview/p/b/guide/");
    assert_eq!(location("/preview/p/b"), "/preview/p/b/");
    let (status, _, text) = fetch(&site, "/preview/p/b/nothing");
    assert_eq!((status.as_u16(), text.as_str()), (404, "none"));
    assert_eq!(fetch(&site, "/guide/").0, 404, "where a link that begins with / leads is not ours");
    for path in ["/preview/p/b/", "/preview/p/b/nothing", "/preview/p/b/old", "/elsewhere"] {
        let (_, fields, _) = fetch(&site, path);
        assert_eq!(fields["x-robots-tag"], "noindex", "{path}");
        assert_eq!(fields["cache-control"], "private, no-cache", "{path}: whatever the branch says");
    }
}
