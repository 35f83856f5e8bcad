//! What is promised of sites that are made from a branch of a Git repository. It needs the `git` program, and tries every
//! sandbox that this machine has.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use docwharf::base::error_chain::ErrorChain;
use docwharf::origin::shares::ResourcePools;
use docwharf::origin::source::JobContext;
use docwharf::origin::source::git::{
    BuiltSite, Git, GitError, Sandbox, branches, build_site, is_branch_name, make_among,
};
use docwharf::origin::{OriginLimits, SharedResource};

const LONG: Duration = Duration::from_mins(2);
const MIB: u64 = 1 << 20;

/// A folder with a repository in it, and room beside it.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    /// A repository with one commit that has these files.
    #[track_caller]
    fn with(files: &[(&str, &str)]) -> Place {
        let place = Place { dir: tempfile::tempdir().unwrap() };
        // Another user has to come through.
        fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(place.repository()).unwrap();
        place.git(&["init", "--quiet", "--initial-branch=main"]);
        place.commit(files, "The first pages\n\nAnd why.");
        place
    }

    fn repository(&self) -> PathBuf {
        self.dir.path().join("repository")
    }

    #[track_caller]
    fn git(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("git");
        command.args(arguments).current_dir(self.repository()).env("HOME", self.dir.path());
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        for who in ["AUTHOR", "COMMITTER"] {
            command.env(format!("GIT_{who}_NAME"), "Ada Lovelace").env(format!("GIT_{who}_EMAIL"), "ada@example.org");
            command.env(format!("GIT_{who}_DATE"), "2026-03-01T12:00:00Z");
        }
        let done = command.output().expect("git runs; these tests need it installed");
        assert!(done.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
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

    /// Its main branch, built by a command.
    fn source(&self, build: &str) -> Git {
        let build = (!build.is_empty()).then(|| build.to_owned());
        let output = build.as_ref().map(|_| PathBuf::from("out"));
        source(self.repository().to_str().unwrap(), build, output)
    }

    fn space(&self) -> PathBuf {
        tempfile::Builder::new().prefix("space-").tempdir_in(self.dir.path()).unwrap().keep()
    }
}

fn source(repository: &str, build: Option<String>, output: Option<PathBuf>) -> Git {
    Git {
        repository: repository.to_owned(),
        branch: "main".to_owned(),
        build,
        output,
        tools: Vec::new(),
        network: false,
        allow_untrusted: true,
        time: LONG,
        size: 64 * MIB,
        memory: 1024 * MIB,
        processes: 256,
    }
}

/// One try, and what was said.
fn attempt(place: &Place, git: &Git, sandbox: Sandbox) -> (Result<BuiltSite, GitError>, String) {
    let watch = JobContext::default();
    let made = make_among(&[sandbox], git, &git.branch, &place.space(), &watch);
    (made, watch.log().join("\n"))
}

/// The sandboxes that can be had here; nothing at all is always among them.
fn sandboxes() -> Vec<Sandbox> {
    let place = Place::with(&[("index.html", "x")]);
    let git = place.source("mkdir out");
    let usable = |sandbox: &Sandbox| match attempt(&place, &git, *sandbox) {
        (Err(GitError::NoSandbox(why)), _) => {
            println!("not tested here: {why}");
            false
        }
        (made, log) => {
            made.unwrap_or_else(|error| panic!("{sandbox}: {}: {log}", ErrorChain(&error)));
            println!("tested here: {sandbox}");
            true
        }
    };
    let usable: Vec<Sandbox> = Sandbox::ALL.into_iter().filter(usable).collect();
    assert!(usable.contains(&Sandbox::Nothing));
    usable
}

fn message(made: Result<BuiltSite, GitError>) -> String {
    ErrorChain(&made.expect_err("no site")).to_string()
}

fn names(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Whether a process runs that has this among its arguments.
fn is_running(argument: &str) -> bool {
    let commands =
        fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    commands.into_iter().any(|line| line.split(|byte| *byte == 0).any(|word| word == argument.as_bytes()))
}

/// Whether folders in which everybody may write are the build's own.
fn has_own_folders(sandbox: Sandbox) -> bool {
    matches!(sandbox, Sandbox::Bubblewrap | Sandbox::Namespaces)
}

/// An argument of `sleep` that nobody else uses.
fn own_nap(number: u32) -> String {
    format!("86{number}.{}", std::process::id())
}

#[test]
fn a_plain_branch_is_a_site_without_what_belongs_to_git() {
    let place = Place::with(&[("index.html", "<p>Hello"), ("guide/a.html", "<p>A")]);
    let space = place.space();
    let watch = JobContext::default();
    let made = build_site(&place.source(""), "main", &space, &watch).unwrap();
    assert!(made.site.starts_with(space.canonicalize().unwrap()));
    assert_eq!(names(&made.site), BTreeSet::from(["guide".to_owned(), "index.html".to_owned()]));
    assert_eq!(fs::read_to_string(made.site.join("guide/a.html")).unwrap(), "<p>A");
    assert_eq!(names(&space), BTreeSet::from(["site".to_owned()]));
    assert!(watch.log().iter().any(|line| line.starts_with("$ git fetch")), "{:?}", watch.log());
}

#[test]
fn a_commit_tells_who_what_and_which_files_against_its_first_parent() {
    let place = Place::with(&[("a.html", "a"), ("b.html", "b"), ("c.html", "c")]);
    let watch = JobContext::default();
    let head = |branch: &str| build_site(&place.source(""), branch, &place.space(), &watch).unwrap().commit;
    let first = head("main");
    assert_eq!(first.message, "The first pages\n\nAnd why.");
    let author = first.author.unwrap();
    assert_eq!((author.name.as_str(), author.email.as_str()), ("Ada Lovelace", "ada@example.org"));
    assert_eq!(first.added, ["a.html", "b.html", "c.html"]);
    fs::remove_file(place.repository().join("c.html")).unwrap();
    let sha = place.commit(&[("a.html", "new"), ("ü d.html", "d")], "Second");
    let second = head("main");
    assert_eq!((second.sha, second.branch.as_str()), (sha, "main"));
    assert_eq!(
        (second.added, second.modified, second.removed),
        (vec!["ü d.html".to_owned()], vec!["a.html".to_owned()], vec!["c.html".to_owned()])
    );
    // A merge, of which the first parent counts; and many commits, of which two are fetched.
    place.git(&["checkout", "--quiet", "-b", "side/x"]);
    place.commit(&[("side.html", "s")], "Side");
    place.git(&["checkout", "--quiet", "main"]);
    place.commit(&[("main.html", "m")], "Main");
    place.git(&["merge", "--quiet", "--no-ff", "--message", "Merged", "side/x"]);
    let merged = head("main");
    assert_eq!((merged.added, merged.modified, merged.removed), (vec!["side.html".to_owned()], vec![], vec![]));
    assert_eq!(head("side/x").added, ["side.html"]);
}

#[test]
fn branches_are_listed_with_their_commits() {
    let place = Place::with(&[("index.html", "x")]);
    let main = place.git(&["rev-parse", "HEAD"]);
    place.git(&["tag", "v1"]);
    place.git(&["checkout", "--quiet", "-b", "feature/ü"]);
    let feature = place.commit(&[("index.html", "y")], "Feature");
    // git itself would not make such a branch, but somebody may.
    fs::write(place.repository().join(".git/refs/heads/-x"), format!("{main}\n")).unwrap();
    let found = branches(&place.source(""), &JobContext::default()).unwrap();
    let expected = [("feature/ü".to_owned(), feature), ("main".to_owned(), main)];
    assert_eq!(found, expected.into());
}

#[test]
fn a_missing_branch_is_told_from_a_missing_repository() {
    let place = Place::with(&[("index.html", "x")]);
    let watch = JobContext::default();
    let missing = build_site(&place.source(""), "nowhere", &place.space(), &watch).unwrap_err();
    assert!(matches!(&missing, GitError::NoBranch { branch, .. } if branch == "nowhere"), "{missing}");
    let git = source(place.dir.path().join("absent").to_str().unwrap(), None, None);
    let absent = build_site(&git, "main", &place.space(), &watch).unwrap_err();
    assert!(matches!(absent, GitError::Git { .. }) && absent.to_string().contains("absent"), "{absent}");
    assert!(branches(&git, &watch).is_err());
}

#[test]
fn hostile_names_of_branches_and_repositories_do_not_reach_git() {
    let place = Place::with(&[("index.html", "x")]);
    for name in ["--upload-pack=touch pwned", "-b", "a b", "x:y", "*", "refs/../x", "@{-1}", "main^", ""] {
        let watch = JobContext::default();
        let refused = build_site(&place.source(""), name, &place.space(), &watch).unwrap_err();
        assert!(matches!(refused, GitError::BranchName(_)) && watch.log().is_empty(), "{name:?}: {refused}");
    }
    let marker = place.dir.path().join("pwned");
    let evil = format!("ext::sh -c touch% {}", marker.display());
    for repository in [evil.as_str(), "--upload-pack=x", "-x", "fd::3"] {
        let watch = JobContext::default();
        let refused = build_site(&source(repository, None, None), "main", &place.space(), &watch).unwrap_err();
        assert!(matches!(refused, GitError::Repository { .. }) && watch.log().is_empty(), "{refused}");
    }
    assert!(!marker.exists());
}

#[test]
fn names_of_branches_are_judged_as_git_judges_them() {
    let place = Place::with(&[("index.html", "x")]);
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
        command.args(["check-ref-format", "--branch", name]).current_dir(place.repository());
        let is_valid = command.output().unwrap().status.success();
        assert_eq!(is_branch_name(name), is_valid, "{name:?}");
    }
}

#[test]
fn a_build_makes_the_site_in_every_sandbox() {
    let place = Place::with(&[("page.md", "Hello")]);
    let build = "test ! -e .git && mkdir -p out/sub && printf '\\033[1;32mwriting\\033[0m to %s\\n' \"$TMPDIR\" && \
                 : > \"$TMPDIR/x\" && : > \"$HOME/x\" && cp page.md out/index.html && ln -s ../index.html out/sub/b.html && \
                 mkdir out/.git && touch out/.git/config && sleep 0";
    for sandbox in sandboxes() {
        let (made, log) = attempt(&place, &place.source(build), sandbox);
        let made = made.unwrap_or_else(|error| panic!("{sandbox}: {}\n{log}", ErrorChain(&error)));
        assert_eq!(fs::read_to_string(made.site.join("index.html")).unwrap(), "Hello");
        assert_eq!(fs::read_to_string(made.site.join("sub/b.html")).unwrap(), "Hello");
        assert!(made.site.ends_with("site/out") && !made.site.join(".git").exists());
        assert_eq!(names(made.site.parent().unwrap().parent().unwrap()), BTreeSet::from(["site".to_owned()]));
        assert!(log.contains("\nwriting to /") && !log.contains('\x1b'), "{log}");
        assert!(log.contains("\nthe build has ") && log.contains("\n$ test ! -e .git"), "{log}");
        assert!(log.contains("with exit code 0"), "{log}");
    }
}

#[test]
fn a_build_that_fails_is_told_with_its_last_lines() {
    let place = Place::with(&[("page.md", "Hello")]);
    for sandbox in sandboxes() {
        let (made, log) = attempt(&place, &place.source("echo one; echo 'bad: page.md' >&2; exit 3"), sandbox);
        let error = message(made);
        assert!(error.contains("exit code 3") && error.contains("one | bad: page.md"), "{error}");
        assert!(log.contains("\none\nbad: page.md\nthe build ended after"), "{log}");
        let (made, log) = attempt(&place, &place.source("no-such-tool --x"), sandbox);
        assert!(message(made).contains("exit code 127") && log.contains("tools outside /usr"), "{log}");
    }
}

#[test]
fn what_a_build_has_started_ends_with_it() {
    let place = Place::with(&[("page.md", "Hello")]);
    let nap = own_nap(1);
    let build = format!("mkdir out; setsid sleep {nap} >/dev/null 2>&1 & sleep 0.2; sleep {nap} & cat page.md");
    for sandbox in sandboxes() {
        let began = Instant::now();
        let (made, log) = attempt(&place, &place.source(&build), sandbox);
        made.unwrap_or_else(|error| panic!("{sandbox}: {}\n{log}", ErrorChain(&error)));
        assert!(log.contains("\nHello\n"), "{log}");
        assert!(!is_running(&nap), "{sandbox}");
        assert!(began.elapsed() < LONG / 2, "{sandbox}: {:?}", began.elapsed());
    }
}

#[test]
fn when_time_is_up_grandchildren_are_killed_too() {
    let place = Place::with(&[("page.md", "Hello")]);
    for (sandbox, number) in sandboxes().into_iter().zip(20..) {
        let nap = own_nap(number);
        let build = format!("(sh -c 'setsid sleep {nap}; :' &); (trap '' TERM HUP INT; sleep {nap}); :");
        let git = Git { time: Duration::from_secs(5), ..place.source(&build) };
        let was_seen = std::thread::scope(|scope| {
            let work = scope.spawn(|| attempt(&place, &git, sandbox));
            let mut was_seen = false;
            while !work.is_finished() {
                was_seen |= is_running(&nap);
                std::thread::yield_now();
            }
            let (made, log) = work.join().unwrap();
            assert!(matches!(made, Err(GitError::Time { .. })), "{sandbox}: {made:?}: {log}");
            assert!(log.contains("longer than 5 s"), "{log}");
            was_seen
        });
        assert!(was_seen && !is_running(&nap), "{sandbox}: {was_seen}");
    }
}

#[test]
fn a_build_that_nobody_waits_for_any_more_ends_at_once() {
    let place = Place::with(&[("page.md", "Hello")]);
    for (sandbox, number) in sandboxes().into_iter().zip(30..) {
        let nap = own_nap(number);
        let git = place.source(&format!("setsid sleep {nap} & sleep {nap}"));
        let (watch, space) = (JobContext::default(), place.space());
        std::thread::scope(|scope| {
            let work = scope.spawn(|| make_among(&[sandbox], &git, "main", &space, &watch));
            while !is_running(&nap) && !work.is_finished() {
                std::thread::yield_now();
            }
            let began = Instant::now();
            watch.cancel();
            let made = work.join().unwrap();
            assert!(matches!(made, Err(GitError::Over(_))), "{sandbox}: {made:?}");
            assert!(began.elapsed() < Duration::from_secs(20), "{sandbox}: {:?}", began.elapsed());
        });
        assert!(!is_running(&nap), "{sandbox}");
    }
}

#[test]
fn a_build_that_writes_too_much_is_ended_wherever_it_writes() {
    let place = Place::with(&[("page.md", "Hello")]);
    for sandbox in sandboxes() {
        // Many files, and one.
        let mut places = vec!["./$n", "$HOME/one", "$TMPDIR/one"];
        if has_own_folders(sandbox) {
            places.extend(["/tmp/one", "/var/tmp/one", "/dev/shm/one"]);
        }
        for file in places {
            let build = format!("n=0; while head -c 1000000 /dev/zero >> \"{file}\"; do n=$((n+1)); done; sleep 600");
            let (made, log) = attempt(&place, &Git { size: 12 * MIB, ..place.source(&build) }, sandbox);
            assert!(matches!(made, Err(GitError::Size { .. })), "{sandbox}, {file}: {made:?}: {log}");
        }
        // A file with holes, made in no time.
        let git = Git { size: 12 * MIB, ..place.source("mkdir out; truncate -s 13M out/x") };
        let (made, log) = attempt(&place, &git, sandbox);
        assert!(matches!(made, Err(GitError::Size { .. })), "{sandbox}: {made:?}: {log}");
    }
    let large = Place::with(&[("large.txt", &"large".repeat(1_000_000))]);
    let cloned = build_site(&Git { size: MIB, ..large.source("") }, "main", &large.space(), &JobContext::default());
    assert!(matches!(cloned, Err(GitError::Size { doing: "git", .. })), "{cloned:?}");
}

#[test]
fn a_build_leaves_nothing_in_folders_for_everybody() {
    let place = Place::with(&[("page.md", "Hello")]);
    let name = format!("docwharf-left-{}", std::process::id());
    let folders = ["/tmp", "/var/tmp", "/dev/shm"];
    let build = folders.map(|folder| format!("echo x > {folder}/{name} && ")).concat() + "mkdir out && cp page.md out";
    for sandbox in sandboxes().into_iter().filter(|sandbox| has_own_folders(*sandbox)) {
        let (made, log) = attempt(&place, &place.source(&build), sandbox);
        made.unwrap_or_else(|error| panic!("{sandbox}: {}\n{log}", ErrorChain(&error)));
        for folder in folders {
            assert!(!Path::new(folder).join(&name).exists(), "{sandbox}: {folder}");
        }
    }
}

#[test]
fn a_build_that_takes_too_much_memory_or_too_many_processes_is_ended() {
    let place = Place::with(&[("page.md", "Hello")]);
    // Each holds 20 MB until the end of its input, which does not come.
    let many = "for n in 1 2 3 4; do (head -c 20000000 /dev/zero; exec sleep 600) | tail & done; wait";
    let one = "mkdir out; head -c 200000000 /dev/zero | tail > out/index.html";
    let forks = "n=0; while [ $n -lt 60 ]; do sleep 600 & n=$((n+1)); done; wait";
    for sandbox in sandboxes() {
        let git = Git { memory: 48 * MIB, ..place.source(many) };
        let (made, log) = attempt(&place, &git, sandbox);
        assert!(matches!(made, Err(GitError::Memory { .. })), "{sandbox}: {made:?}: {log}");
        // One process alone is refused the memory, or ended.
        let (made, log) = attempt(&place, &Git { memory: 48 * MIB, ..place.source(one) }, sandbox);
        let is_held = matches!(made, Err(GitError::Memory { .. })) || log.contains("memory exhausted");
        assert!(is_held, "{sandbox}: {made:?}: {log}");
        let (made, log) = attempt(&place, &Git { processes: 40, ..place.source(forks) }, sandbox);
        assert!(matches!(made, Err(GitError::Processes { .. })), "{sandbox}: {made:?}: {log}");
        assert!(log.contains("more than 40 processes"), "{log}");
    }
}

#[test]
fn builds_of_an_organization_share_what_it_may_take() {
    let place = Place::with(&[("page.md", "Hello")]);
    let git = place.source("mkdir out; head -c 8000000 /dev/zero > out/x; sleep 600");
    let limits =
        OriginLimits::from_config(|resource| (resource == SharedResource::BuildDisk).then_some(12 * MIB), |_| None)
            .unwrap();
    let shares = ResourcePools::new(limits, 2);
    let other = JobContext::of(Arc::clone(&shares), "acme");
    other.hold_share(SharedResource::BuildDisk, 6 * MIB).unwrap();
    let watch = JobContext::of(Arc::clone(&shares), "acme");
    let made = make_among(&[Sandbox::Nothing], &git, "main", &place.space(), &watch);
    assert!(matches!(made, Err(GitError::Share { resource: SharedResource::BuildDisk, .. })), "{made:?}");
    assert!(watch.log().join("\n").contains("buildDisk"), "{:?}", watch.log());
    watch.release_shares();
    assert_eq!(shares.pool(SharedResource::BuildDisk).in_use(), 6 * MIB);
}

#[test]
fn a_build_has_the_lowest_priority_and_is_the_first_to_go_when_memory_is_short() {
    let place = Place::with(&[("page.md", "Hello")]);
    let build =
        "mkdir out; cat /proc/self/oom_score_adj > out/got; nice >> out/got; ionice >> out/got || echo none >> out/got";
    for sandbox in sandboxes() {
        let (made, log) = attempt(&place, &place.source(build), sandbox);
        let site = made.unwrap_or_else(|error| panic!("{sandbox}: {}\n{log}", ErrorChain(&error))).site;
        let got = fs::read_to_string(site.join("got")).unwrap();
        let lines: Vec<&str> = got.lines().collect();
        assert_eq!(lines[..2], ["1000", "19"], "{sandbox}: {got}");
        assert!(matches!(lines[2], "idle" | "none"), "{sandbox}: {got}");
    }
}

/// Where the child of the next test works, and in which sandbox; without it there is nothing to do.
const CHILD: &str = "DOCWHARF_TEST_GIT_CHILD";

#[test]
fn a_build_ends_with_the_origin_however_that_ends() {
    if let Ok(told) = std::env::var(CHILD) {
        let words: Vec<&str> = told.split('|').collect();
        let git = source(words[1], Some(words[2].to_owned()), None);
        let sandbox = Sandbox::ALL[words[3].parse::<usize>().unwrap()];
        let made = make_among(&[sandbox], &git, "main", Path::new(words[0]), &JobContext::default());
        panic!("it was not killed: {made:?}");
    }
    let place = Place::with(&[("page.md", "Hello")]);
    for (sandbox, number) in sandboxes().into_iter().zip(40..) {
        let nap = own_nap(number);
        // Without process ids of its own, only the first process is sure to end.
        let build = match sandbox {
            Sandbox::Bubblewrap | Sandbox::Namespaces => format!("setsid sleep {nap} & sleep {nap}"),
            Sandbox::User | Sandbox::Nothing => format!("exec sleep {nap}"),
        };
        let at = Sandbox::ALL.iter().position(|one| *one == sandbox).unwrap();
        let told = format!("{}|{}|{build}|{at}", place.space().display(), place.repository().display());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "git::a_build_ends_with_the_origin_however_that_ends", "--nocapture"])
            .env(CHILD, told)
            .spawn()
            .unwrap();
        let until = |what: &str, yes: &dyn Fn() -> bool| {
            let deadline = Instant::now() + LONG;
            while !yes() {
                assert!(Instant::now() < deadline, "{sandbox}: waited in vain: {what}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        until("the build runs", &|| is_running(&nap));
        child.kill().unwrap();
        child.wait().unwrap();
        until("the build has ended", &|| !is_running(&nap));
    }
}

#[test]
fn a_build_sees_nothing_of_our_environment() {
    // Cargo gives it to tests, and so to every program that they start.
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let place = Place::with(&[("page.md", "Hello")]);
    for sandbox in sandboxes() {
        let (made, log) = attempt(&place, &place.source("mkdir out; env > out/env"), sandbox);
        let text = fs::read_to_string(made.unwrap_or_else(|error| panic!("{error}: {log}")).site.join("env")).unwrap();
        let found: BTreeSet<&str> = text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        let given = BTreeSet::from(["PATH", "HOME", "LANG", "TMPDIR", "CI", "TERM", "SOURCE_DATE_EPOCH"]);
        assert!(given.is_subset(&found), "{sandbox}: {text}");
        // What shells add by themselves.
        let rest: Vec<_> =
            found.difference(&given).filter(|name| !matches!(**name, "PWD" | "OLDPWD" | "SHLVL" | "_")).collect();
        assert!(rest.is_empty(), "{sandbox}: {rest:?}");
        assert!(text.contains("SOURCE_DATE_EPOCH=1772366400\n"), "{text}");
    }
}

#[test]
fn a_build_neither_reads_nor_writes_beside_the_checkout() {
    let place = Place::with(&[("page.md", "Hello")]);
    let (secret, open) = (place.dir.path().join("secret"), place.dir.path().join("open"));
    let (written, dropped) = (place.dir.path().join("written"), place.dir.path().join("open-folder/dropped"));
    fs::write(&secret, "geheim").unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&open, "offen").unwrap();
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
    for sandbox in sandboxes() {
        let (made, log) = attempt(&place, &place.source(&script), sandbox);
        let site = made.unwrap_or_else(|error| panic!("{error}: {log}")).site;
        let got = String::from_utf8_lossy(&fs::read(site.join("got")).unwrap()).into_owned();
        let is_guarded = sandbox != Sandbox::Nothing;
        // Without a sandbox all of it is possible, so the questions are the right ones.
        assert_eq!(got.contains("geheim"), !is_guarded, "{sandbox}: {got}");
        assert_eq!(written.exists(), !is_guarded, "{sandbox}: {got}");
        assert_eq!(got.contains("CARGO_MANIFEST_DIR"), !is_guarded, "{sandbox}: {got}");
        // Namespaces hide only the folders in which everybody may write, as that of temporary files is.
        let is_hidden = sandbox == Sandbox::Namespaces && place.dir.path().starts_with("/tmp");
        let is_walled = sandbox == Sandbox::Bubblewrap || is_hidden;
        assert_eq!(got.contains("offen"), !is_walled, "{sandbox}: {got}");
        assert_eq!(dropped.exists(), !is_walled, "{sandbox}: {got}");
        let _ = (fs::remove_file(&written), fs::remove_file(&dropped));
    }
}

#[test]
fn a_build_has_the_network_only_where_it_is_allowed() {
    let place = Place::with(&[("page.md", "Hello")]);
    let ours = fs::read_link("/proc/self/ns/net").unwrap();
    let script = "mkdir out; readlink /proc/self/ns/net > out/net";
    for sandbox in sandboxes() {
        for network in [true, false] {
            let (made, log) = attempt(&place, &Git { network, ..place.source(script) }, sandbox);
            let site = made.unwrap_or_else(|error| panic!("{sandbox}: {}: {log}", ErrorChain(&error))).site;
            let is_ours = fs::read_to_string(site.join("net")).unwrap().trim() == ours.to_str().unwrap();
            let can_be_cut = matches!(sandbox, Sandbox::Bubblewrap | Sandbox::Namespaces);
            assert_eq!(is_ours, network || !can_be_cut, "{sandbox}: {log}");
            let said = match (is_ours, network) {
                (true, true) => ", with the network\n",
                (true, false) => ", with the network, which it cannot be kept from\n",
                _ => ", without network\n",
            };
            assert!(log.contains(said), "{log}");
        }
    }
}

#[test]
fn tools_outside_the_system_are_found_where_they_are_named() {
    let place = Place::with(&[("page.md", "Hello")]);
    let tools = place.dir.path().join("tools");
    fs::create_dir(&tools).unwrap();
    fs::write(tools.join("press"), "#!/bin/sh\nmkdir out && cp page.md out/; touch \"$(dirname \"$0\")/x\" || :\n")
        .unwrap();
    fs::set_permissions(tools.join("press"), fs::Permissions::from_mode(0o755)).unwrap();
    for sandbox in sandboxes() {
        // What everybody may write to only bubblewrap shows read-only.
        let mode = if sandbox == Sandbox::Bubblewrap { 0o777 } else { 0o755 };
        fs::set_permissions(&tools, fs::Permissions::from_mode(mode)).unwrap();
        let git = Git { tools: vec![tools.clone()], ..place.source("press") };
        let (made, log) = attempt(&place, &git, sandbox);
        assert!(made.unwrap_or_else(|error| panic!("{error}: {log}")).site.join("page.md").exists());
        assert_eq!(tools.join("x").exists(), sandbox == Sandbox::Nothing, "{sandbox}: {log}");
        let (made, _) = attempt(&place, &place.source("press"), sandbox);
        assert!(matches!(made, Err(GitError::Build { .. })));
    }
}

#[test]
fn without_a_sandbox_nothing_is_built_unless_that_is_allowed() {
    let place = Place::with(&[("page.md", "Hello")]);
    let git = Git { allow_untrusted: false, ..place.source("touch ran; mkdir out") };
    let space = place.space();
    let error = message(make_among(&[Sandbox::Nothing], &git, "main", &space, &JobContext::default()));
    assert!(error.contains("install bubblewrap") && error.contains("allowUntrusted"), "{error}");
    assert!(!space.join("site/ran").exists());
    // Without a build there is nothing to hold back.
    let plain = Git { build: None, output: None, ..git };
    make_among(&[Sandbox::Nothing], &plain, "main", &place.space(), &JobContext::default()).unwrap();
}

#[test]
fn links_that_lead_out_of_the_site_are_left_out() {
    let place = Place::with(&[("index.html", "x"), ("docs/index.html", "y")]);
    fs::write(place.dir.path().join("secret"), "geheim").unwrap();
    for (target, link) in [
        ("/etc/passwd", "passwd"),
        ("/etc", "etc"),
        ("../../../secret", "docs/secret"),
        ("secret", "docs/chain"),
        ("index.html", "docs/same.html"),
        ("../index.html", "docs/up.html"),
        ("nowhere", "docs/nowhere"),
    ] {
        symlink(target, place.repository().join(link)).unwrap();
    }
    place.commit(&[], "Links");
    let (made, log) = attempt(&place, &place.source(""), Sandbox::Nothing);
    let site = made.unwrap().site;
    assert_eq!(names(&site), BTreeSet::from(["docs", "index.html"].map(str::to_owned)));
    assert_eq!(names(&site.join("docs")), BTreeSet::from(["index.html", "same.html", "up.html"].map(str::to_owned)));
    assert!(log.contains("\n\"passwd\" is left out") && log.contains("\n\"docs/chain\" is left out"), "{log}");
    // What lies in the checkout and not in the site is outside as well.
    let git = Git { output: Some("docs".into()), ..place.source("") };
    let site = attempt(&place, &git, Sandbox::Nothing).0.unwrap().site;
    assert_eq!(names(&site), BTreeSet::from(["index.html", "same.html"].map(str::to_owned)));
}

#[test]
fn the_output_is_a_folder_of_the_checkout_or_it_is_an_error_that_names_it() {
    let place = Place::with(&[("index.html", "x")]);
    for sandbox in sandboxes() {
        for (build, output, why) in [
            ("true", "out", "there is nothing"),
            ("touch out", "out", "no folder"),
            ("ln -s /etc out", "out", "leads out"),
            ("mkdir a; ln -s ../.. a/out", "a/out", "leads out"),
            ("mkdir out", "../site/out", "leads out"),
            ("mkdir out", "/etc", "leads out"),
        ] {
            let git = Git { output: Some(output.into()), ..place.source(build) };
            let (made, log) = attempt(&place, &git, sandbox);
            let is_output = matches!(made, Err(GitError::Output { .. }));
            let error = message(made);
            assert!(is_output && error.contains(why) && error.contains(&format!("{output:?}")), "{error}: {log}");
        }
    }
}

#[test]
fn nothing_that_a_repository_says_is_run_or_fetched_by_git() {
    let place = Place::with(&[("index.html", "x")]);
    let marker = place.dir.path().join("ran");
    let touch = format!("#!/bin/sh\ntouch '{}'\n", marker.display());
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n";
    place.commit(
        &[
            (".gitattributes", "*.html filter=evil\n*.bin filter=lfs\n"),
            (".gitmodules", "[submodule \"sub\"]\n    path = sub\n    url = ../other\n"),
            ("movie.bin", pointer),
        ],
        "Asks for more",
    );
    let sha = place.git(&["rev-parse", "HEAD"]);
    place.git(&["update-index", "--add", "--cacheinfo", &format!("160000,{sha},sub")]);
    place.git(&["commit", "--quiet", "--message", "Submodule"]);
    // The side that serves: its hooks and its configuration are not ours either.
    for hook in ["post-checkout", "pre-receive", "post-upload-pack"] {
        let path = place.repository().join(".git/hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, &touch).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    place.git(&["config", "filter.evil.smudge", &format!("touch '{}'", marker.display())]);
    place.git(&["config", "uploadpack.packObjectsHook", &format!("touch '{}'; exec", marker.display())]);
    let (made, log) = attempt(&place, &place.source(""), Sandbox::Nothing);
    let site = made.unwrap_or_else(|error| panic!("{error}: {log}")).site;
    assert_eq!(fs::read_to_string(site.join("movie.bin")).unwrap(), pointer);
    assert!(names(&site.join("sub")).is_empty());
    assert!(!marker.exists());
}

#[test]
fn a_repository_of_another_user_is_read() {
    let place = Place::with(&[("index.html", "x")]);
    let other = fs::metadata(place.repository()).unwrap().uid() + 1;
    let mut found = vec![place.repository()];
    while let Some(path) = found.pop() {
        if lchown(&path, Some(other), None).is_err() {
            println!("not tested here: only root can give files away");
            return;
        }
        if path.is_dir() {
            found.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    let mut plain = Command::new("git");
    plain.arg("-C").arg(place.repository()).arg("status").env("HOME", "/nowhere").env("GIT_CONFIG_NOSYSTEM", "1");
    assert!(!plain.output().unwrap().status.success(), "git minds whose it is");
    let (made, log) = attempt(&place, &place.source(""), Sandbox::Nothing);
    made.unwrap_or_else(|error| panic!("{error}: {log}"));
}

#[test]
fn a_password_in_the_url_is_sent_to_its_host_and_told_to_nobody() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    // Refuses whoever comes, and notes what they brought.
    let upstream = std::thread::spawn(move || {
        let mut brought = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            if head.first().is_some_and(|line| line.contains("/end")) {
                return brought;
            }
            brought.extend(head.into_iter().filter(|line| line.to_ascii_lowercase().starts_with("authorization:")));
            let body = "http://ada:hunter22@host/ says no";
            let answer = "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nConnection: close";
            let _ =
                write!(stream, "{answer}\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        }
        brought
    });
    let place = Place::with(&[("index.html", "x")]);
    let git = source(&format!("http://ada:hunter22@127.0.0.1:{port}/docs.git?token=hunter22"), None, None);
    let (made, log) = attempt(&place, &git, Sandbox::Nothing);
    let error = message(made);
    write!(std::net::TcpStream::connect(("127.0.0.1", port)).unwrap(), "GET /end HTTP/1.1\r\n\r\n").unwrap();
    let brought = upstream.join().unwrap();
    // ada:hunter22
    assert!(brought.iter().any(|line| line.ends_with("Basic YWRhOmh1bnRlcjIy")), "{brought:?}: {error}: {log}");
    for text in [&error, &log, &format!("{git:?}")] {
        assert!(!text.contains("hunter22"), "{text}");
        assert!(text.contains("127.0.0.1"), "{text}");
    }
}
