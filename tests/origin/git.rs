//! Sites that are built from a branch of a Git repository. The tests need the `git` program, and try every sandbox that
//! this machine has.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf::base::error_chain::ErrorChain;
use docwharf::model::deployment::OutboundPolicy;
use docwharf::origin::resource_pools::ResourcePools;
use docwharf::origin::source::JobContext;
use docwharf::origin::source::git::{
    BuiltSite, GitError, GitSource, Sandbox, build_site, build_site_in, is_branch_name, list_branches,
};
use docwharf::origin::{OriginLimits, SharedResource};

const TIMEOUT: Duration = Duration::from_mins(4);
const MIB: u64 = 1 << 20;

/// A temporary folder with a repository.
struct RepositoryFixture {
    dir: tempfile::TempDir,
}

impl RepositoryFixture {
    /// Creates a repository with one commit that has these files.
    #[track_caller]
    fn with(files: &[(&str, &str)]) -> RepositoryFixture {
        let fixture = RepositoryFixture { dir: tempfile::tempdir().unwrap() };
        // The user of a build must be able to traverse the folder.
        fs::set_permissions(fixture.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(fixture.repository()).unwrap();
        fixture.git(&["init", "--quiet", "--initial-branch=main"]);
        fixture.commit(files, "The first pages\n\nAnd why.");
        fixture
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    #[track_caller]
    fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.repository()).env("HOME", self.dir.path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for role in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{role}_NAME"), "Ada Lovelace").env(format!("GIT_{role}_EMAIL"), "ada@example.org");
            command.env(format!("GIT_{role}_DATE"), "2026-03-01T12:00:00Z");
        }
        let output = command.output().expect("these tests need the git program");
        assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    #[track_caller]
    fn commit(&self, files: &[(&str, &str)], message: &str) -> String {
        for (name, content) in files {
            let path = self.repository().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--message", message]);
        self.git(&["rev-parse", "HEAD"])
    }

    /// Returns the main branch as a source, built by a command; an empty command means no build.
    fn source(&self, build: &str) -> GitSource {
        let build = (!build.is_empty()).then(|| build.to_owned());
        let output = build.as_ref().map(|_| PathBuf::from("out"));
        git_source(self.repository().to_str().unwrap(), build, output)
    }

    /// Creates an empty folder for a build.
    fn work_folder(&self) -> PathBuf {
        tempfile::Builder::new().prefix("work-").tempdir_in(self.dir.path()).unwrap().keep()
    }
}

fn git_source(repository: &str, build: Option<String>, output: Option<PathBuf>) -> GitSource {
    GitSource {
        repository: repository.to_owned(),
        branch: "main".to_owned(),
        build,
        output,
        tools: Vec::new(),
        allows_network: false,
        allows_no_sandbox: true,
        max_duration: TIMEOUT,
        max_bytes: 64 * MIB,
        max_memory_bytes: 1024 * MIB,
        max_processes: 256,
        outbound_policy: OutboundPolicy::Any,
    }
}

/// Builds the branch of a source in this sandbox. Returns the result and the log.
fn build_in(fixture: &RepositoryFixture, git: &GitSource, sandbox: Sandbox) -> (Result<BuiltSite, GitError>, String) {
    let context = JobContext::default();
    let result = build_site_in(&[sandbox], git, &git.branch, &fixture.work_folder(), &context);
    (result, context.log().join("\n"))
}

/// Returns the sandboxes that are usable on this machine; [`Sandbox::None`] is always among them.
fn usable_sandboxes() -> Vec<Sandbox> {
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    let git = fixture.source("mkdir out");
    let usable = |sandbox: &Sandbox| match build_in(&fixture, &git, *sandbox) {
        (Err(GitError::NoSandbox(reason)), _) => {
            println!("not tested on this machine: {reason}");
            false
        }
        (result, log) => {
            result.unwrap_or_else(|error| panic!("{sandbox}: {}: {log}", ErrorChain(&error)));
            println!("tested on this machine: {sandbox}");
            true
        }
    };
    let usable: Vec<Sandbox> = Sandbox::ALL.into_iter().filter(usable).collect();
    assert!(usable.contains(&Sandbox::None));
    usable
}

fn error_message(result: Result<BuiltSite, GitError>) -> String {
    ErrorChain(&result.expect_err("no site")).to_string()
}

fn file_names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Whether a process with this argument runs.
fn is_running(argument: &str) -> bool {
    let commands =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    commands.into_iter().any(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

/// Whether the world-writable folders are private to the build.
fn has_private_folders(sandbox: Sandbox) -> bool {
    matches!(sandbox, Sandbox::Bubblewrap | Sandbox::Namespaces)
}

/// Returns an argument of `sleep` that no other process uses.
fn unique_sleep_argument(number: u32) -> String {
    format!("86{number}.{}", std::process::id())
}

#[test]
fn branch_without_a_build_is_exported_without_git_metadata() {
    let fixture = RepositoryFixture::with(&[("index.html", "<p>Hello"), ("guide/a.html", "<p>A")]);
    let work_folder = fixture.work_folder();
    let context = JobContext::default();
    let result = build_site(&fixture.source(""), "main", &work_folder, &context).unwrap();
    assert!(result.site.starts_with(work_folder.canonicalize().unwrap()));
    assert_eq!(file_names(&result.site), BTreeSet::from(["guide".to_owned(), "index.html".to_owned()]));
    assert_eq!(fs::read_to_string(result.site.join("guide/a.html")).unwrap(), "<p>A");
    assert_eq!(file_names(&work_folder), BTreeSet::from(["site".to_owned()]));
    assert!(context.log().iter().any(|line| line.starts_with("$ git fetch")), "{:?}", context.log());
}

#[test]
fn commit_info_has_author_message_and_changed_files_against_the_first_parent() {
    let fixture = RepositoryFixture::with(&[("a.html", "a"), ("b.html", "b"), ("c.html", "c")]);
    let context = JobContext::default();
    let head = |branch: &str| build_site(&fixture.source(""), branch, &fixture.work_folder(), &context).unwrap().commit;
    let first = head("main");
    assert_eq!(first.message, "The first pages\n\nAnd why.");
    let author = first.author.unwrap();
    assert_eq!((author.name.as_str(), author.email.as_str()), ("Ada Lovelace", "ada@example.org"));
    assert_eq!(first.added, ["a.html", "b.html", "c.html"]);
    fs::remove_file(fixture.repository().join("c.html")).unwrap();
    let sha = fixture.commit(&[("a.html", "new"), ("ü d.html", "d")], "Second");
    let second = head("main");
    assert_eq!((second.sha, second.branch.as_str()), (sha, "main"));
    assert_eq!(
        (second.added, second.modified, second.removed),
        (vec!["ü d.html".to_owned()], vec!["a.html".to_owned()], vec!["c.html".to_owned()])
    );
    // A merge, whose first parent counts; and many commits, of which two are fetched.
    fixture.git(&["checkout", "--quiet", "-b", "side/x"]);
    fixture.commit(&[("side.html", "s")], "Side");
    fixture.git(&["checkout", "--quiet", "main"]);
    fixture.commit(&[("main.html", "m")], "Main");
    fixture.git(&["merge", "--quiet", "--no-ff", "--message", "Merged", "side/x"]);
    let merged = head("main");
    assert_eq!((merged.added, merged.modified, merged.removed), (vec!["side.html".to_owned()], vec![], vec![]));
    assert_eq!(head("side/x").added, ["side.html"]);
}

#[test]
fn branches_are_listed_with_their_commits() {
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    let main = fixture.git(&["rev-parse", "HEAD"]);
    fixture.git(&["tag", "v1"]);
    fixture.git(&["checkout", "--quiet", "-b", "feature/ü"]);
    let feature = fixture.commit(&[("index.html", "y")], "Feature");
    // git itself would not create such a branch, but a user can.
    fs::write(fixture.repository().join(".git/refs/heads/-x"), format!("{main}\n")).unwrap();
    let found = list_branches(&fixture.source(""), &JobContext::default()).unwrap();
    let expected = [("feature/ü".to_owned(), feature), ("main".to_owned(), main)];
    assert_eq!(found, expected.into());
}

#[test]
fn missing_branch_and_missing_repository_are_different_errors() {
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    let context = JobContext::default();
    let missing = build_site(&fixture.source(""), "nowhere", &fixture.work_folder(), &context).unwrap_err();
    assert!(matches!(&missing, GitError::NoBranch { branch, .. } if branch == "nowhere"), "{missing}");
    let git = git_source(fixture.dir.path().join("absent").to_str().unwrap(), None, None);
    let absent = build_site(&git, "main", &fixture.work_folder(), &context).unwrap_err();
    assert!(matches!(absent, GitError::Git { .. }) && absent.to_string().contains("absent"), "{absent}");
    // A repository without any branch is being set up again: it misses all of them, and not this one.
    let empty = fixture.dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    assert!(Command::new("git").args(["init", "--quiet"]).current_dir(&empty).status().unwrap().success());
    let git_of_empty = git_source(empty.to_str().unwrap(), None, None);
    let error = build_site(&git_of_empty, "main", &fixture.work_folder(), &context).unwrap_err();
    assert!(matches!(error, GitError::Git { doing: "fetch from", .. }), "{error}");
    assert!(list_branches(&git_of_empty, &context).unwrap().is_empty());
    assert!(list_branches(&git, &context).is_err());
}

#[test]
fn hostile_branch_names_and_repository_urls_are_not_passed_to_git() {
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    for name in ["--upload-pack=touch pwned", "-b", "a b", "x:y", "*", "refs/../x", "@{-1}", "main^", ""] {
        let context = JobContext::default();
        let refused = build_site(&fixture.source(""), name, &fixture.work_folder(), &context).unwrap_err();
        assert!(matches!(refused, GitError::BranchName(_)) && context.log().is_empty(), "{name:?}: {refused}");
    }
    let marker = fixture.dir.path().join("pwned");
    let hostile_url = format!("ext::sh -c touch% {}", marker.display());
    for repository in [hostile_url.as_str(), "--upload-pack=x", "-x", "fd::3"] {
        let context = JobContext::default();
        let refused =
            build_site(&git_source(repository, None, None), "main", &fixture.work_folder(), &context).unwrap_err();
        assert!(matches!(refused, GitError::Repository { .. }) && context.log().is_empty(), "{refused}");
    }
    assert!(!marker.exists());
}

#[test]
fn branch_name_validation_agrees_with_git_check_ref_format() {
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    let names = [
        "main",
        "HEAD",
        "a.lock",
        "a/.b",
        "a..b",
        "a@{b",
        "-x",
        "@a",
        "refs/heads/x",
        "a.",
        "./a",
        "a/.",
        "ü",
        "a b",
        "a/",
        "/a",
        "a//b",
        "x.lock/y",
        "{",
        "a@",
        "..",
        ".",
        "!",
        "a~b",
        "a^",
        "a:b",
        "a?",
        "a*",
        "a[",
        "a\\b",
        "a\tb",
        "a\u{7f}b",
    ];
    for name in names {
        let mut command = Command::new("git");
        command.args(["check-ref-format", "--branch", name]).current_dir(fixture.repository());
        let is_valid = command.output().unwrap().status.success();
        assert_eq!(is_branch_name(name), is_valid, "{name:?}");
    }
}

#[test]
fn a_build_makes_the_site_in_every_sandbox() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let build = "test ! -e .git && mkdir -p out/sub && printf '\\033[1;32mwriting\\033[0m to %s\\n' \"$TMPDIR\" && \
                 : > \"$TMPDIR/x\" && : > \"$HOME/x\" && cp page.md out/index.html && ln -s ../index.html out/sub/b.html && \
                 mkdir out/.git && touch out/.git/config && sleep 0";
    for sandbox in usable_sandboxes() {
        let (result, log) = build_in(&fixture, &fixture.source(build), sandbox);
        let result = result.unwrap_or_else(|error| panic!("{sandbox}: {}\n{log}", ErrorChain(&error)));
        assert_eq!(fs::read_to_string(result.site.join("index.html")).unwrap(), "Hello");
        assert_eq!(fs::read_to_string(result.site.join("sub/b.html")).unwrap(), "Hello");
        assert!(result.site.ends_with("site/out") && !result.site.join(".git").exists());
        assert_eq!(file_names(result.site.parent().unwrap().parent().unwrap()), BTreeSet::from(["site".to_owned()]));
        assert!(log.contains("\nwriting to /") && !log.contains('\x1b'), "{log}");
        assert!(log.contains("\nthe build has ") && log.contains("\n$ test ! -e .git"), "{log}");
        assert!(log.contains("with exit code 0"), "{log}");
    }
}

#[test]
fn failed_build_error_has_the_exit_code_and_the_last_output_lines() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    for sandbox in usable_sandboxes() {
        let (result, log) = build_in(&fixture, &fixture.source("echo one; echo 'bad: page.md' >&2; exit 3"), sandbox);
        let error = error_message(result);
        assert!(error.contains("exit code 3") && error.contains("one | bad: page.md"), "{error}");
        assert!(log.contains("\none\nbad: page.md\nthe build ended after"), "{log}");
        let many_lines = fixture.source("for n in 1 2 3 4 5 6; do echo line $n; done; exit 3");
        let error = error_message(build_in(&fixture, &many_lines, sandbox).0);
        assert!(error.ends_with("its last output: line 3 | line 4 | line 5 | line 6"), "{error}");
        let (result, log) = build_in(&fixture, &fixture.source("no-such-tool --x"), sandbox);
        assert!(error_message(result).contains("exit code 127") && log.contains("tools outside /usr"), "{log}");
    }
}

#[test]
fn background_processes_of_a_build_end_with_the_build() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let sleep_argument = unique_sleep_argument(1);
    let build = format!(
        "mkdir out; setsid sleep {sleep_argument} >/dev/null 2>&1 & sleep 0.2; sleep {sleep_argument} & cat page.md"
    );
    for sandbox in usable_sandboxes() {
        let started = Instant::now();
        let (result, log) = build_in(&fixture, &fixture.source(&build), sandbox);
        result.unwrap_or_else(|error| panic!("{sandbox}: {}\n{log}", ErrorChain(&error)));
        assert!(log.contains("\nHello\n"), "{log}");
        assert!(!is_running(&sleep_argument), "{sandbox}");
        assert!(started.elapsed() < TIMEOUT / 2, "{sandbox}: {:?}", started.elapsed());
    }
}

#[test]
fn build_timeout_kills_grandchildren_too() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    for (sandbox, number) in usable_sandboxes().into_iter().zip(20..) {
        let sleep_argument = unique_sleep_argument(number);
        let build =
            format!("(sh -c 'setsid sleep {sleep_argument}; :' &); (trap '' TERM HUP INT; sleep {sleep_argument}); :");
        let is_seen_and_killed_after = |seconds: u64| {
            let git = GitSource { max_duration: Duration::from_secs(seconds), ..fixture.source(&build) };
            let was_seen = std::thread::scope(|scope| {
                let build = scope.spawn(|| build_in(&fixture, &git, sandbox));
                let mut was_seen = false;
                while !build.is_finished() {
                    was_seen |= is_running(&sleep_argument);
                    std::thread::sleep(Duration::from_millis(10));
                }
                let (result, log) = build.join().unwrap();
                assert!(matches!(result, Err(GitError::Time { .. })), "{sandbox}: {result:?}: {log}");
                assert!(!was_seen || log.contains(&format!("longer than {seconds} s")), "{log}");
                was_seen
            });
            assert!(!is_running(&sleep_argument), "{sandbox}");
            was_seen
        };
        // The time includes that of git. On a busy machine, all of it may pass before the build begins, because both
        // have the lowest priority.
        assert!([5, 20, 80].into_iter().any(is_seen_and_killed_after), "{sandbox}");
    }
}

#[test]
fn cancelled_build_ends_at_once() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    for (sandbox, number) in usable_sandboxes().into_iter().zip(30..) {
        let sleep_argument = unique_sleep_argument(number);
        let git = fixture.source(&format!("setsid sleep {sleep_argument} & sleep {sleep_argument}"));
        let (context, work_folder) = (JobContext::default(), fixture.work_folder());
        std::thread::scope(|scope| {
            let build = scope.spawn(|| build_site_in(&[sandbox], &git, "main", &work_folder, &context));
            while !is_running(&sleep_argument) && !build.is_finished() {
                std::thread::sleep(Duration::from_millis(10));
            }
            let started = Instant::now();
            context.cancel();
            let result = build.join().unwrap();
            assert!(matches!(result, Err(GitError::Cancelled(_))), "{sandbox}: {result:?}");
            assert!(started.elapsed() < Duration::from_secs(20), "{sandbox}: {:?}", started.elapsed());
        });
        assert!(!is_running(&sleep_argument), "{sandbox}");
    }
}

#[test]
fn build_that_exceeds_its_disk_limit_is_killed_wherever_it_writes() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    for sandbox in usable_sandboxes() {
        // Many files, then one file in each folder.
        let mut places = vec!["./$n", "$HOME/one", "$TMPDIR/one"];
        if has_private_folders(sandbox) {
            places.extend(["/tmp/one", "/var/tmp/one", "/dev/shm/one"]);
        }
        for file in places {
            let build = format!("n=0; while head -c 1000000 /dev/zero >> \"{file}\"; do n=$((n+1)); done; sleep 600");
            let (result, log) =
                build_in(&fixture, &GitSource { max_bytes: 12 * MIB, ..fixture.source(&build) }, sandbox);
            assert!(matches!(result, Err(GitError::Size { .. })), "{sandbox}, {file}: {result:?}: {log}");
        }
        // A sparse file, which is created at once.
        let git = GitSource { max_bytes: 12 * MIB, ..fixture.source("mkdir out; truncate -s 13M out/x") };
        let (result, log) = build_in(&fixture, &git, sandbox);
        assert!(matches!(result, Err(GitError::Size { .. })), "{sandbox}: {result:?}: {log}");
    }
    // The number of empty files is limited, too.
    let many = fixture.source("mkdir out; n=0; while [ $n -lt 6000 ]; do : > out/$n; n=$((n+1)); done");
    let (result, log) = build_in(&fixture, &GitSource { max_bytes: 2 * MIB, ..many }, Sandbox::None);
    assert!(matches!(result, Err(GitError::Size { .. })), "{result:?}: {log}");
    let large = RepositoryFixture::with(&[("large.txt", &"large".repeat(1_000_000))]);
    let cloned = build_site(
        &GitSource { max_bytes: MIB, ..large.source("") },
        "main",
        &large.work_folder(),
        &JobContext::default(),
    );
    assert!(matches!(cloned, Err(GitError::Size { doing: "git", .. })), "{cloned:?}");
}

// Regression: a build could leave files in `/var/tmp` that no limit counted.
#[test]
fn build_leaves_no_files_in_world_writable_folders() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let name = format!("docwharf-left-{}", std::process::id());
    let folders = ["/tmp", "/var/tmp", "/dev/shm"];
    let build = folders.map(|folder| format!("echo x > {folder}/{name} && ")).concat() + "mkdir out && cp page.md out";
    for sandbox in usable_sandboxes().into_iter().filter(|sandbox| has_private_folders(*sandbox)) {
        let (result, log) = build_in(&fixture, &fixture.source(&build), sandbox);
        result.unwrap_or_else(|error| panic!("{sandbox}: {}\n{log}", ErrorChain(&error)));
        for folder in folders {
            assert!(!Path::new(folder).join(&name).exists(), "{sandbox}: {folder}");
        }
    }
}

// Regression: a build could use all memory.
#[test]
fn build_that_exceeds_its_memory_or_process_limit_is_killed() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    // Each process holds 20 MB until the end of its input, which never arrives.
    let many_processes = "for n in 1 2 3 4; do (head -c 20000000 /dev/zero; exec sleep 600) | tail & done; wait";
    let large_process = "mkdir out; head -c 200000000 /dev/zero | tail > out/index.html";
    let forks = "n=0; while [ $n -lt 60 ]; do sleep 600 & n=$((n+1)); done; wait";
    for sandbox in usable_sandboxes() {
        let git = GitSource { max_memory_bytes: 48 * MIB, ..fixture.source(many_processes) };
        let (result, log) = build_in(&fixture, &git, sandbox);
        assert!(matches!(result, Err(GitError::Memory { .. })), "{sandbox}: {result:?}: {log}");
        // A single process does not get the memory, or is ended.
        let (result, log) =
            build_in(&fixture, &GitSource { max_memory_bytes: 48 * MIB, ..fixture.source(large_process) }, sandbox);
        let is_limited = matches!(result, Err(GitError::Memory { .. })) || log.contains("memory exhausted");
        assert!(is_limited, "{sandbox}: {result:?}: {log}");
        let (result, log) = build_in(&fixture, &GitSource { max_processes: 40, ..fixture.source(forks) }, sandbox);
        assert!(matches!(result, Err(GitError::Processes { .. })), "{sandbox}: {result:?}: {log}");
        assert!(log.contains("more than 40 processes"), "{log}");
    }
}

#[test]
fn builds_of_an_organization_share_its_disk_limit() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let git = fixture.source("mkdir out; head -c 8000000 /dev/zero > out/x; sleep 600");
    let limits =
        OriginLimits::from_config(|resource| (resource == SharedResource::BuildDisk).then_some(12 * MIB), |_| None)
            .unwrap();
    let pools = ResourcePools::new(limits, 2);
    let other = JobContext::with_shares(Arc::clone(&pools), "acme");
    other.hold_share(SharedResource::BuildDisk, 6 * MIB).unwrap();
    let context = JobContext::with_shares(Arc::clone(&pools), "acme");
    let result = build_site_in(&[Sandbox::None], &git, "main", &fixture.work_folder(), &context);
    assert!(matches!(result, Err(GitError::Share { resource: SharedResource::BuildDisk, .. })), "{result:?}");
    assert!(context.log().join("\n").contains("buildDisk"), "{:?}", context.log());
    context.release_shares();
    assert_eq!(pools.pool(SharedResource::BuildDisk).in_use(), 6 * MIB);
}

#[test]
fn build_has_the_lowest_priority_and_the_highest_oom_score() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let build =
        "mkdir out; cat /proc/self/oom_score_adj > out/got; nice >> out/got; ionice >> out/got || echo none >> out/got";
    for sandbox in usable_sandboxes() {
        let (result, log) = build_in(&fixture, &fixture.source(build), sandbox);
        let site = result.unwrap_or_else(|error| panic!("{sandbox}: {}\n{log}", ErrorChain(&error))).site;
        let output = fs::read_to_string(site.join("got")).unwrap();
        let lines: Vec<&str> = output.lines().collect();
        assert_eq!(lines[..2], ["1000", "19"], "{sandbox}: {output}");
        assert!(matches!(lines[2], "idle" | "none"), "{sandbox}: {output}");
    }
}

/// Environment variable with the arguments of the child process of the next test; only the child has it.
const CHILD_VARIABLE: &str = "DOCWHARF_TEST_GIT_CHILD";

// Regression: a build outlived an origin that was killed, and kept the next one from starting.
#[test]
fn build_ends_when_the_origin_is_killed() {
    if let Ok(value) = std::env::var(CHILD_VARIABLE) {
        let words: Vec<&str> = value.split('|').collect();
        let git = git_source(words[1], Some(words[2].to_owned()), None);
        let sandbox = Sandbox::ALL[words[3].parse::<usize>().unwrap()];
        let result = build_site_in(&[sandbox], &git, "main", Path::new(words[0]), &JobContext::default());
        panic!("the child was not killed: {result:?}");
    }
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    for (sandbox, number) in usable_sandboxes().into_iter().zip(40..) {
        let sleep_argument = unique_sleep_argument(number);
        // Without a separate PID namespace, only the first process ends in any case.
        let build = match sandbox {
            Sandbox::Bubblewrap | Sandbox::Namespaces => {
                format!("setsid sleep {sleep_argument} & sleep {sleep_argument}")
            }
            Sandbox::OtherUser | Sandbox::None => format!("exec sleep {sleep_argument}"),
        };
        let index = Sandbox::ALL.iter().position(|candidate| *candidate == sandbox).unwrap();
        let value = format!("{}|{}|{build}|{index}", fixture.work_folder().display(), fixture.repository().display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "git::build_ends_when_the_origin_is_killed", "--nocapture"])
            .env(CHILD_VARIABLE, value)
            .spawn()
            .unwrap();
        let until = |what: &str, condition: &dyn Fn() -> bool| {
            let deadline = Instant::now() + TIMEOUT;
            while !condition() {
                assert!(Instant::now() < deadline, "{sandbox}: timeout: {what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        until("the build runs", &|| is_running(&sleep_argument));
        child.kill().unwrap();
        child.wait().unwrap();
        until("the build has ended", &|| !is_running(&sleep_argument));
    }
}

#[test]
fn build_does_not_inherit_the_environment_of_the_origin() {
    // Cargo sets it for tests, so every program that they start inherits it.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    for sandbox in usable_sandboxes() {
        let (result, log) = build_in(&fixture, &fixture.source("mkdir out; env > out/env"), sandbox);
        let text =
            fs::read_to_string(result.unwrap_or_else(|error| panic!("{error}: {log}")).site.join("env")).unwrap();
        let found: BTreeSet<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        let expected = BTreeSet::from(["PATH", "HOME", "LANG", "TMPDIR", "CI", "TERM", "SOURCE_DATE_EPOCH"]);
        assert!(expected.is_subset(&found), "{sandbox}: {text}");
        // Variables that shells add automatically are ignored.
        let unexpected: Vec<_> =
            found.difference(&expected).filter(|name| !matches!(**name, "PWD" | "OLDPWD" | "SHLVL" | "_")).collect();
        assert!(unexpected.is_empty(), "{sandbox}: {unexpected:?}");
        assert!(text.contains("SOURCE_DATE_EPOCH=1772366400\n"), "{text}");
    }
}

#[test]
fn sandboxed_build_cannot_read_or_write_outside_its_checkout() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let (secret, open) = (fixture.dir.path().join("secret"), fixture.dir.path().join("open"));
    let (written, dropped) = (fixture.dir.path().join("written"), fixture.dir.path().join("open-folder/dropped"));
    fs::write(&secret, "secret-value").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&open, "public-text").unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o644)).unwrap();
    fs::create_dir(dropped.parent().unwrap()).unwrap();
    fs::set_permissions(dropped.parent().unwrap(), fs::Permissions::from_mode(0o777)).unwrap();
    let script = format!(
        "mkdir out; {{ cat '{0}' ../../secret; cat '{1}'; echo x > '{2}'; echo x > ../../written; echo x > '{3}'; \
         cat /proc/*/environ; }} > out/got 2>&1; :",
        secret.display(),
        open.display(),
        written.display(),
        dropped.display(),
    );
    for sandbox in usable_sandboxes() {
        let (result, log) = build_in(&fixture, &fixture.source(&script), sandbox);
        let site = result.unwrap_or_else(|error| panic!("{error}: {log}")).site;
        let output = String::from_utf8_lossy(&fs::read(site.join("got")).unwrap()).into_owned();
        let is_isolated = sandbox != Sandbox::None;
        // Without a sandbox all of it is possible, which shows that the script tests the right accesses.
        assert_eq!(output.contains("secret-value"), !is_isolated, "{sandbox}: {output}");
        assert_eq!(written.exists(), !is_isolated, "{sandbox}: {output}");
        assert_eq!(output.contains("CARGO_MANIFEST_DIR"), !is_isolated, "{sandbox}: {output}");
        // Namespaces hide only world-writable folders, such as the one for temporary files.
        let is_hidden = sandbox == Sandbox::Namespaces && fixture.dir.path().starts_with("/tmp");
        let hides_other_files = sandbox == Sandbox::Bubblewrap || is_hidden;
        assert_eq!(output.contains("public-text"), !hides_other_files, "{sandbox}: {output}");
        assert_eq!(dropped.exists(), !hides_other_files, "{sandbox}: {output}");
        let _ = (fs::remove_file(&written), fs::remove_file(&dropped));
    }
}

#[test]
fn build_has_network_access_only_when_it_is_allowed() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let own_namespace = fs::read_link("/proc/self/ns/net").unwrap();
    let script = "mkdir out; readlink /proc/self/ns/net > out/net";
    for sandbox in usable_sandboxes() {
        for allows_network in [true, false] {
            let (result, log) = build_in(&fixture, &GitSource { allows_network, ..fixture.source(script) }, sandbox);
            let site = result.unwrap_or_else(|error| panic!("{sandbox}: {}: {log}", ErrorChain(&error))).site;
            let is_own_namespace =
                fs::read_to_string(site.join("net")).unwrap().trim() == own_namespace.to_str().unwrap();
            let can_isolate_network = matches!(sandbox, Sandbox::Bubblewrap | Sandbox::Namespaces);
            assert_eq!(is_own_namespace, allows_network || !can_isolate_network, "{sandbox}: {log}");
            let expected = match (is_own_namespace, allows_network) {
                (true, true) => ", with the network\n",
                (true, false) => ", with the network, which this sandbox cannot prevent\n",
                _ => ", without network\n",
            };
            assert!(log.contains(expected), "{log}");
        }
    }
}

#[test]
fn build_of_an_air_gapped_origin_runs_without_network_in_bubblewrap_or_namespaces_only() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let own_namespace = fs::read_link("/proc/self/ns/net").unwrap();
    let outbound_policy = OutboundPolicy::AirGapped { allow: [].into() };
    for sandbox in usable_sandboxes() {
        for allows_network in [true, false] {
            let can_isolate_network = matches!(sandbox, Sandbox::Bubblewrap | Sandbox::Namespaces);
            let git = GitSource {
                allows_network,
                outbound_policy: outbound_policy.clone(),
                ..fixture
                    .source("mkdir out; readlink /proc/self/ns/net > out/net; cat /proc/self/net/route > out/route")
            };
            let (result, log) = build_in(&fixture, &git, sandbox);
            let site = match result {
                Ok(result) => result.site,
                Err(GitError::NoIsolation(reason)) if !can_isolate_network => {
                    assert!(reason.contains("has the services of this machine"), "{sandbox}: {reason}");
                    continue;
                }
                Err(error) => panic!("{sandbox}: {}: {log}", ErrorChain(&error)),
            };
            assert!(can_isolate_network, "{sandbox}: {log}");
            let namespace = fs::read_to_string(site.join("net")).unwrap();
            assert!(namespace.starts_with("net:["), "{sandbox}: {namespace}");
            assert_ne!(namespace.trim(), own_namespace.to_str().unwrap(), "{sandbox}: {log}");
            let routes = fs::read_to_string(site.join("route")).unwrap();
            assert_eq!(routes.lines().skip(1).count(), 0, "the table has a head only: {routes}");
            assert!(log.contains(", without network\n"), "{sandbox}: {log}");
        }
    }
}

// Regression: a service of the machine asks a name server for every process that connects to its socket.
#[test]
fn build_of_an_air_gapped_origin_reaches_no_service_by_its_socket_in_run() {
    let socket = PathBuf::from(format!("/run/docwharf-test-{}.sock", std::process::id()));
    let listener = match UnixListener::bind(&socket) {
        Ok(listener) => listener,
        Err(error) => return println!("not tested: cannot create {}: {error}", socket.display()),
    };
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o777)).unwrap();
    listener.set_nonblocking(true).unwrap();
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    // A program of git that connects to a socket with a path. The listener ends the connection without an answer.
    let script = format!(
        "mkdir out; test -d /run/lock && echo lock > out/lock; timeout 2 git credential-cache --socket {} exit; \
         ls /run /var/run > out/list || true",
        socket.display()
    );
    let connects = |outbound_policy: OutboundPolicy, sandbox| {
        let (result, log) = build_in(&fixture, &GitSource { outbound_policy, ..fixture.source(&script) }, sandbox);
        let site = result.unwrap_or_else(|error| panic!("{sandbox}: {}: {log}", ErrorChain(&error))).site;
        let list = fs::read_to_string(site.join("list")).unwrap();
        let is_listed = list.contains(socket.file_name().unwrap().to_str().unwrap());
        let is_connected = listener.accept().is_ok();
        assert_eq!(is_listed, is_connected, "{sandbox}: {list}\n{log}");
        (is_connected, site.join("lock").exists())
    };
    for sandbox in usable_sandboxes() {
        // Bubblewrap hides the sockets from all builds.
        let (is_connected, has_lock_folder) = connects(OutboundPolicy::Any, sandbox);
        assert_eq!(is_connected, sandbox != Sandbox::Bubblewrap, "{sandbox}");
        if matches!(sandbox, Sandbox::Bubblewrap | Sandbox::Namespaces) {
            let air_gapped = connects(OutboundPolicy::AirGapped { allow: [].into() }, sandbox);
            assert_eq!(air_gapped, (false, has_lock_folder), "{sandbox}");
        }
    }
    fs::remove_file(&socket).unwrap();
}

// Regression: only the log of the job said so, which is shown for previews only.
#[test]
fn origin_log_warns_of_a_build_that_can_use_the_network_without_permission() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let log_path = fixture.dir.path().join("log");
    // With a single dispatcher, tracing asks the thread that logs a line first whether the line is needed. That may be
    // the thread of another test, which needs none. With a second dispatcher, it asks both of them.
    let _second = tracing::Dispatch::new(tracing_subscriber::fmt().with_writer(std::io::sink).finish());
    for sandbox in usable_sandboxes() {
        for allows_network in [true, false] {
            let git = GitSource { allows_network, ..fixture.source("mkdir out") };
            let file = fs::File::create(&log_path).unwrap();
            let subscriber = tracing_subscriber::fmt().with_writer(file).with_ansi(false).finish();
            let (result, log) = tracing::subscriber::with_default(subscriber, || build_in(&fixture, &git, sandbox));
            result.unwrap_or_else(|error| panic!("{sandbox}: {}: {log}", ErrorChain(&error)));
            let can_isolate_network = matches!(sandbox, Sandbox::Bubblewrap | Sandbox::Namespaces);
            let logged = fs::read_to_string(&log_path).unwrap();
            let is_warned = logged.contains(&format!("a build of {} has no sandbox", git.repository))
                && logged.contains("with the network, which this sandbox cannot prevent; install bubblewrap");
            assert_eq!(is_warned, !allows_network && !can_isolate_network, "{sandbox}: {logged}");
        }
    }
}

#[test]
fn build_finds_tools_in_the_configured_tools_folders() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let tools = fixture.dir.path().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("press"), "#!/bin/sh\nmkdir out && cp page.md out/; touch \"$(dirname \"$0\")/x\" || :\n")
        .unwrap();
    fs::set_permissions(tools.join("press"), fs::Permissions::from_mode(0o755)).unwrap();
    // A tool comes before a program of the system with its name.
    fs::write(tools.join("uname"), "#!/bin/sh\necho of the tools\n").unwrap();
    fs::set_permissions(tools.join("uname"), fs::Permissions::from_mode(0o755)).unwrap();
    for sandbox in usable_sandboxes() {
        // Only bubblewrap shows a world-writable folder read-only.
        let mode = if sandbox == Sandbox::Bubblewrap { 0o777 } else { 0o755 };
        fs::set_permissions(&tools, fs::Permissions::from_mode(mode)).unwrap();
        let git = GitSource { tools: vec![tools.clone()], ..fixture.source("press && uname > out/uname") };
        let (result, log) = build_in(&fixture, &git, sandbox);
        let site = result.unwrap_or_else(|error| panic!("{error}: {log}")).site;
        assert!(site.join("page.md").exists());
        assert_eq!(fs::read_to_string(site.join("uname")).unwrap(), "of the tools\n", "{sandbox}");
        assert_eq!(tools.join("x").exists(), sandbox == Sandbox::None, "{sandbox}: {log}");
        let (result, _) = build_in(&fixture, &fixture.source("press"), sandbox);
        assert!(matches!(result, Err(GitError::Build { .. })));
    }
}

#[test]
fn build_without_a_sandbox_is_refused_unless_configured() {
    let fixture = RepositoryFixture::with(&[("page.md", "Hello")]);
    let git = GitSource { allows_no_sandbox: false, ..fixture.source("touch ran; mkdir out") };
    let work_folder = fixture.work_folder();
    let error = error_message(build_site_in(&[Sandbox::None], &git, "main", &work_folder, &JobContext::default()));
    assert!(error.contains("install bubblewrap") && error.contains("allowUntrusted"), "{error}");
    assert!(!work_folder.join("site/ran").exists());
    // A source without a build needs no sandbox.
    let plain = GitSource { build: None, output: None, ..git };
    build_site_in(&[Sandbox::None], &plain, "main", &fixture.work_folder(), &JobContext::default()).unwrap();
}

#[test]
fn symlinks_that_lead_out_of_the_site_are_left_out() {
    let fixture = RepositoryFixture::with(&[("index.html", "x"), ("docs/index.html", "y")]);
    fs::write(fixture.dir.path().join("secret"), "secret-value").unwrap();
    for (target, link) in [
        ("/etc/passwd", "passwd"),
        ("/etc", "etc"),
        ("../../../secret", "docs/secret"),
        ("secret", "docs/chain"),
        ("index.html", "docs/same.html"),
        ("../index.html", "docs/up.html"),
        ("nowhere", "docs/nowhere"),
    ] {
        symlink(target, fixture.repository().join(link)).unwrap();
    }
    fixture.commit(&[], "Links");
    let (result, log) = build_in(&fixture, &fixture.source(""), Sandbox::None);
    let site = result.unwrap().site;
    assert_eq!(file_names(&site), BTreeSet::from(["docs", "index.html"].map(str::to_owned)));
    assert_eq!(
        file_names(&site.join("docs")),
        BTreeSet::from(["index.html", "same.html", "up.html"].map(str::to_owned))
    );
    assert!(log.contains("\n\"passwd\" is left out") && log.contains("\n\"docs/chain\" is left out"), "{log}");
    // A file of the checkout that is not in the site is outside the site as well.
    let git = GitSource { output: Some("docs".into()), ..fixture.source("") };
    let site = build_in(&fixture, &git, Sandbox::None).0.unwrap().site;
    assert_eq!(file_names(&site), BTreeSet::from(["index.html", "same.html"].map(str::to_owned)));
}

#[test]
fn build_output_must_be_a_folder_inside_the_checkout() {
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    for sandbox in usable_sandboxes() {
        for (build, output, reason) in [
            ("true", "out", "it does not exist"),
            ("touch out", "out", "not a folder"),
            ("ln -s /etc out", "out", "leads out"),
            ("mkdir a; ln -s ../.. a/out", "a/out", "leads out"),
            ("mkdir out", "../site/out", "leads out"),
            ("mkdir out", "/etc", "leads out"),
        ] {
            let git = GitSource { output: Some(output.into()), ..fixture.source(build) };
            let (result, log) = build_in(&fixture, &git, sandbox);
            let is_output = matches!(result, Err(GitError::Output { .. }));
            let error = error_message(result);
            assert!(is_output && error.contains(reason) && error.contains(&format!("{output:?}")), "{error}: {log}");
        }
    }
}

#[test]
fn git_runs_no_hooks_or_filters_and_fetches_no_submodules_or_lfs_files() {
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    let marker = fixture.dir.path().join("ran");
    let touch = format!("#!/bin/sh\ntouch '{}'\n", marker.display());
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    fixture.commit(
        &[
            (".gitattributes", "*.html filter=evil\n*.bin filter=lfs\n"),
            (".gitmodules", "[submodule \"sub\"]\n    path = sub\n    url = ../other\n"),
            ("movie.bin", pointer),
        ],
        "Filters and submodules",
    );
    let sha = fixture.git(&["rev-parse", "HEAD"]);
    fixture.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{sha},sub")]);
    fixture.git(&["commit", "--quiet", "--message", "Submodule"]);
    // Hooks and configuration of the served repository must not be used either.
    for hook in ["post-checkout", "pre-receive", "post-upload-pack"] {
        let path = fixture.repository().join(".git/hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &touch).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fixture.git(&["config", "filter.evil.smudge", &format!("touch '{}'", marker.display())]);
    fixture.git(&["config", "uploadpack.packObjectsHook", &format!("touch '{}'; exec", marker.display())]);
    let (result, log) = build_in(&fixture, &fixture.source(""), Sandbox::None);
    let site = result.unwrap_or_else(|error| panic!("{error}: {log}")).site;
    assert_eq!(fs::read_to_string(site.join("movie.bin")).unwrap(), pointer);
    assert!(file_names(&site.join("sub")).is_empty());
    assert!(!marker.exists());
}

#[test]
fn a_repository_of_another_user_is_read() {
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    let other_user = fs::metadata(fixture.repository()).unwrap().uid() + 1;
    let mut paths = vec![fixture.repository()];
    while let Some(path) = paths.pop() {
        if lchown(&path, Some(other_user), None).is_err() {
            println!("not tested on this machine: only root can change the owner of files");
            return;
        }
        if path.is_dir() {
            paths.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let mut plain = Command::new("git");
    plain.arg("-C").arg(fixture.repository()).arg("status").env("HOME", "/nowhere").env("GIT_CONFIG_NOSYSTEM", "1");
    assert!(!plain.output().unwrap().status.success(), "git must refuse a repository of another user by default");
    let (result, log) = build_in(&fixture, &fixture.source(""), Sandbox::None);
    result.unwrap_or_else(|error| panic!("{error}: {log}"));
}

#[test]
fn repository_url_password_is_sent_to_its_host_and_is_in_no_log_or_error() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Refuses every request, and records the credentials.
    let upstream = std::thread::spawn(move || {
        let mut authorization_fields = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            if head.first().is_some_and(|line| line.contains("/end")) {
                return authorization_fields;
            }
            authorization_fields
                .extend(head.into_iter().filter(|line| line.to_ascii_lowercase().starts_with("authorization:")));
            let body = "http://ada:hunter22@host/ is refused";
            let head = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nConnection: close";
            let _ =
                write!(stream, "{head}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
        authorization_fields
    });
    let fixture = RepositoryFixture::with(&[("index.html", "x")]);
    let git = git_source(&format!("http://ada:hunter22@127.0.0.1:{port}/docs.git?token=hunter22"), None, None);
    let (result, log) = build_in(&fixture, &git, Sandbox::None);
    let error = error_message(result);
    write!(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap(), "GET /end HTTP/1.1\r\n\r\n").unwrap();
    let authorization_fields = upstream.join().unwrap();
    // ada:hunter22
    assert!(
        authorization_fields.iter().any(|line| line.ends_with("Basic YWRhOmh1bnRlcjIy")),
        "{authorization_fields:?}: {error}: {log}"
    );
    for text in [&error, &log, &format!("{git:?}")] {
        assert!(!text.contains("hunter22"), "{text}");
        assert!(text.contains("127.0.0.1"), "{text}");
    }
}
