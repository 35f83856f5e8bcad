//! What a build may reach, and what holds it back.
//!
//! | | own user | own processes | own files | own network |
//! |---|---|---|---|---|
//! | [`Sandbox::Bubblewrap`] | where we are root | yes | yes: the system read-only, the checkout, nothing else | yes |
//! | [`Sandbox::Namespaces`] | yes | yes | no: what anybody may read | yes |
//! | [`Sandbox::User`] | yes | no | no | no |
//! | [`Sandbox::Nothing`] | no | no | no | no |
//!
//! Whether one can be had is found out by trying it, with the very arguments that the build gets: containers forbid now this,
//! now that. All but the last also mean no new privileges (`PR_SET_NO_NEW_PRIVS`) and no capabilities.
//!
//! **The end of the origin.** Each build is killed when the thread that waits for it ends, however the origin ends. In the
//! first two sandboxes this cannot be evaded: process 1 of the build's process ids is root's or bubblewrap's, and takes all
//! others with it. In the other two the signal reaches the first process alone, which may have asked not to get it.
//!
//! **Folders for everybody** (`/tmp` and the like) are the build's own in the first two, below the space that is measured and
//! removed. In the other two a build may leave files there, and what it writes there is not counted.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use docwharf_base::chain::OneLine;

use super::address::redact;
use super::process::{Bounds, Cut, run};
use super::{Git, GitError};

/// Who is called nobody everywhere: builds are run as this user where we are root.
const NOBODY: &str = "65534";
const NOBODY_ID: u32 = 65534;
/// How long trying a sandbox may take.
const TRIAL: Duration = Duration::from_secs(10);
/// Where a build finds the system's programs.
const SYSTEM: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Folders of the system. Those that are links are links in the sandbox, too.
const FOLDERS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// What programs want to know of the system; nothing of it is anybody's secret.
const SETTINGS: [&str; 18] = [
    "alternatives",
    "ca-certificates",
    "fonts",
    "group",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "ssl/certs",
    "ssl/openssl.cnf",
    "texmf",
    "timezone",
];
/// What only those who may use the network want to know.
const NETWORK: [&str; 3] = ["hosts", "resolv.conf", "services"];
/// Folders in which everybody may write, with the names of those in our space that a build has in their place.
const SHARED: [(&str, &str); 4] =
    [("/tmp", "tmp"), ("/var/tmp", "var-tmp"), ("/dev/shm", "shm"), ("/run/lock", "lock")];
/// Starts the rest of its arguments as the first victim of a lack of memory. Its first argument is our process id: whoever
/// has another parent by now was started by a process that died before the kernel was asked to tell of that.
const START: &str = "test \"$PPID\" = \"$1\" || exit 125; shift; \
                     { echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; exec \"$@\"";
/// Process 1 of the namespaces, which stays root's: the build cannot keep it from ending with us. Gets the program that
/// mounts, the checkout, and pairs of folders of which the first is bound onto the second, up to a `--`.
const PRIVATE: &str = "mount=$1; site=$2; shift 2; while test \"$1\" != --; do \
                       \"$mount\" -o rbind \"$1\" \"$2\" || exit 125; shift 2; done; shift; \
                       cd \"$site\" || exit 125; \"$@\"; exit $?";
/// No core dumps, and some end to files, to processes, to the size of one file (in blocks of 512 bytes) and to the data of
/// one process (in KiB). Address space is not limited: runtimes reserve much more of it than they use. Processes count for
/// each user, so the bound of one build is watched ([`super::process`]) and this one is that of all builds. Each shell has its
/// own letter for the processes. Then the build begins.
const LIMITS: &str = "ulimit -c 0 2>/dev/null; ulimit -n 4096 2>/dev/null; ulimit -f \"$2\" 2>/dev/null; \
                      ulimit -d \"$3\" 2>/dev/null; \
                      ulimit -u \"$4\" 2>/dev/null || ulimit -p \"$4\" 2>/dev/null; exec /bin/sh -c \"$1\"";
/// Processes of all builds together, whatever else is allowed.
const ALL_PROCESSES: u64 = 4096;
/// Is the checkout there, and may something be written?
const TRY: &str = "cd \"$1\" && : > \"$2/probe\" && rm \"$2/probe\"";

/// What holds a build back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// `bwrap`.
    Bubblewrap,
    /// Another user with processes and a network of its own; only root can.
    Namespaces,
    /// Another user; only root can.
    User,
    /// Nothing, which the configuration has to allow.
    Nothing,
}

impl Sandbox {
    /// All of them, the best first.
    pub const ALL: [Sandbox; 4] = [Sandbox::Bubblewrap, Sandbox::Namespaces, Sandbox::User, Sandbox::Nothing];
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sandbox::Bubblewrap => "bubblewrap",
            Sandbox::Namespaces => "another user with namespaces",
            Sandbox::User => "another user",
            Sandbox::Nothing => "no sandbox",
        })
    }
}

/// Where a build takes place.
#[derive(Debug)]
pub(super) struct Cell<'a> {
    git: &'a Git,
    site: &'a Path,
    bounds: &'a Bounds<'a>,
    is_root: bool,
}

/// Folders as the build knows them.
struct Seen {
    site: PathBuf,
    home: PathBuf,
    tmp: PathBuf,
}

impl<'a> Cell<'a> {
    /// Makes the folders that a build has beside the checkout, and hands everything over to whoever will run it.
    pub(super) fn new(git: &'a Git, site: &'a Path, bounds: &'a Bounds<'a>) -> Result<Cell<'a>, GitError> {
        let cell = Cell { git, site, bounds, is_root: rustix::process::geteuid().is_root() };
        for folder in cell.beside() {
            fs::DirBuilder::new().mode(0o700).create(&folder).map_err(GitError::io("make", &folder))?;
            if cell.is_root {
                hand_over(&folder)?;
            }
        }
        if cell.is_root {
            hand_over(site)?;
            // Nobody may pass through, and not look around.
            let passable = fs::Permissions::from_mode(0o711);
            fs::set_permissions(bounds.space, passable).map_err(GitError::io("open", bounds.space))?;
        }
        Ok(cell)
    }

    fn beside(&self) -> impl Iterator<Item = PathBuf> {
        ["home"].into_iter().chain(SHARED.map(|(_, name)| name)).map(|name| self.bounds.space.join(name))
    }

    /// Removes those folders.
    pub(super) fn sweep(&self) -> Result<(), GitError> {
        for folder in self.beside() {
            fs::remove_dir_all(&folder).map_err(GitError::io("remove", &folder))?;
        }
        Ok(())
    }

    /// The first of these sandboxes that works here.
    pub(super) fn choose(&self, among: &[Sandbox]) -> Result<Sandbox, GitError> {
        let mut reasons = Vec::new();
        for &sandbox in among {
            match self.is_usable(sandbox)? {
                None => return Ok(sandbox),
                Some(why) => reasons.push(format!("{sandbox}: {why}")),
            }
        }
        Err(GitError::NoSandbox(reasons.join("; ")))
    }

    /// Why a sandbox cannot be used, if so.
    fn is_usable(&self, sandbox: Sandbox) -> Result<Option<String>, GitError> {
        if sandbox == Sandbox::Nothing {
            return Ok((!self.git.allow_untrusted).then(|| "it is not allowed".to_owned()));
        }
        let seen = self.seen(sandbox);
        let inner = [OsStr::new(TRY), OsStr::new("sh"), seen.site.as_os_str(), seen.tmp.as_os_str()];
        let mut command = match self.command(sandbox, &inner) {
            Ok(command) => command,
            Err(why) => return Ok(Some(why)),
        };
        let mine = self.bounds;
        let bounds = Bounds { until: mine.until.min(Instant::now() + TRIAL), ..*mine };
        let ended = run(&mut command, false, &bounds, &mut |_| {});
        match ended {
            Ok(ended) if ended.status.success() => Ok(None),
            Ok(ended) => Ok(Some(format!("{} ({})", OneLine(&ended.last), ended.how()))),
            Err(Cut::Time) if Instant::now() < mine.until => Ok(Some("it takes too long".to_owned())),
            Err(Cut::Start(_, error)) => Ok(Some(error.to_string())),
            Err(cut) => Err(GitError::cut("trying a sandbox", self.git, cut)),
        }
    }

    /// Runs the build.
    pub(super) fn build(&self, sandbox: Sandbox, build: &str, made: i64) -> Result<(), GitError> {
        let watch = self.bounds.watch;
        watch.say(format!("the build has {}", self.words(sandbox)));
        watch.say(format!("$ {}", OneLine(&redact(build))));
        // The size of all files together is watched; one that is just too large is found by that, not by its shell.
        let blocks = (self.git.size / 512).saturating_add(4096);
        let numbers = [blocks, (self.git.memory >> 10).max(1), ALL_PROCESSES].map(|n| OsString::from(n.to_string()));
        let [blocks, memory, processes] = &numbers;
        let inner = [OsStr::new(LIMITS), OsStr::new("sh"), OsStr::new(build), blocks, memory, processes];
        let mut command = self.command(sandbox, &inner).map_err(GitError::NoSandbox)?;
        command.env("SOURCE_DATE_EPOCH", made.to_string());
        let began = Instant::now();
        let ended = run(&mut command, false, self.bounds, &mut |line| watch.say(redact(line)));
        let ended = ended.map_err(|cut| GitError::cut("the build", self.git, cut));
        let ended = ended.inspect_err(|error| watch.say(error.to_string()))?;
        let how = ended.how();
        watch.say(format!("the build ended after {:.1} s with {how}", began.elapsed().as_secs_f64()));
        if ended.status.code() == Some(127) {
            watch.say("exit code 127 mostly means that a command is not found; tools outside /usr have to be named");
        }
        if ended.status.success() {
            return Ok(());
        }
        Err(GitError::Build { build: redact(build), how, said: redact(&ended.last) })
    }

    /// What is told of a sandbox in the log.
    fn words(&self, sandbox: Sandbox) -> String {
        let user = if self.is_root { format!(" as user {NOBODY}") } else { String::new() };
        let network = match (sandbox, self.git.network) {
            (_, true) => "with the network",
            (Sandbox::Bubblewrap | Sandbox::Namespaces, false) => "without network",
            (Sandbox::User | Sandbox::Nothing, false) => "with the network, which it cannot be kept from",
        };
        match sandbox {
            Sandbox::Bubblewrap => format!("the sandbox of bubblewrap{user}, {network}"),
            Sandbox::Namespaces => format!("processes of its own{user}, {network}"),
            Sandbox::User => format!("no sandbox but that it runs{user}, {network}"),
            Sandbox::Nothing => format!("no sandbox, as the configuration allows, {network}"),
        }
    }

    fn seen(&self, sandbox: Sandbox) -> Seen {
        if sandbox == Sandbox::Bubblewrap {
            return Seen { site: "/build".into(), home: "/home/build".into(), tmp: "/tmp".into() };
        }
        let space = self.bounds.space;
        Seen { site: self.site.to_owned(), home: space.join("home"), tmp: space.join("tmp") }
    }

    /// `sh -c` in a sandbox, with these arguments; or why there is none.
    fn command(&self, sandbox: Sandbox, inner: &[&OsStr]) -> Result<Command, String> {
        let mut words = started();
        words.extend(match sandbox {
            Sandbox::Bubblewrap => self.bubblewrap()?,
            Sandbox::Namespaces => self.namespaces()?,
            // Becoming another user makes the kernel forget to whom it should tell of our end.
            Sandbox::User => self.nobody(&["--pdeathsig", "KILL"])?,
            Sandbox::Nothing => Vec::new(),
        });
        words.extend(["/bin/sh", "-c"].map(OsString::from));
        let mut command = Command::new(&words[0]);
        let seen = self.seen(sandbox);
        let tools = self.git.tools.iter().map(|tool| tool.as_os_str()).chain([OsStr::new(SYSTEM)]);
        command
            .args(&words[1..])
            .args(inner)
            .current_dir(self.site)
            .env_clear()
            .env("PATH", tools.collect::<Vec<_>>().join(OsStr::new(":")))
            .env("HOME", seen.home)
            .env("TMPDIR", seen.tmp)
            .envs([("LANG", "C.UTF-8"), ("CI", "true"), ("TERM", "dumb")]);
        Ok(command)
    }

    /// Processes of its own, and folders for everybody that are its own.
    fn namespaces(&self) -> Result<Vec<OsString>, String> {
        let setpriv = self.nobody(&[])?;
        let mut words = vec![find("unshare")?];
        words.extend(["--pid", "--fork", "--kill-child", "--mount-proc", "--ipc"].map(OsString::from));
        words.extend((!self.git.network).then(|| OsString::from("--net")));
        words.extend(["--", "/bin/sh", "-c", PRIVATE, "sh"].map(OsString::from));
        words.extend([find("mount")?, self.site.into()]);
        words.extend(self.private_folders()?.into_iter().flatten().map(PathBuf::into_os_string));
        words.push("--".into());
        Ok([words, setpriv].concat())
    }

    /// What is bound onto what, in this order: our space and the tools, where a folder that gets covered has them, and
    /// then the folders of our space that cover those for everybody.
    fn private_folders(&self) -> Result<Vec<[PathBuf; 2]>, String> {
        let (mut kept, mut covers, mut covered) = (Vec::new(), Vec::new(), Vec::new());
        for (shared, name) in SHARED {
            let Ok(shared) = fs::canonicalize(shared) else { continue };
            if !shared.is_dir() || covered.contains(&shared) {
                continue;
            }
            let ours = self.bounds.space.join(name);
            let tools =
                self.git.tools.iter().filter_map(|tool| fs::canonicalize(tool).ok()).filter(|tool| tool.is_dir());
            for needed in tools.chain([self.bounds.space.to_owned()]) {
                let Ok(inside) = needed.strip_prefix(&shared) else { continue };
                let to = ours.join(inside);
                fs::create_dir_all(&to).map_err(|error| format!("cannot make {}: {error}", to.display()))?;
                kept.push([needed, to]);
            }
            covers.push([ours, shared.clone()]);
            covered.push(shared);
        }
        Ok([kept, covers].concat())
    }

    /// Become nobody, for good.
    fn nobody(&self, more: &[&str]) -> Result<Vec<OsString>, String> {
        if !self.is_root {
            return Err("only root can".to_owned());
        }
        let mut words = vec![find("setpriv")?];
        words.extend(["--reuid", NOBODY, "--regid", NOBODY, "--clear-groups", "--no-new-privs"].map(OsString::from));
        words.extend(["--inh-caps=-all", "--bounding-set=-all"].map(OsString::from));
        words.extend(more.iter().map(OsString::from));
        words.push("--".into());
        Ok(words)
    }

    /// The system read-only, the checkout, and nothing else.
    fn bubblewrap(&self) -> Result<Vec<OsString>, String> {
        let mut words = vec![find("bwrap")?];
        let mut add = |arguments: &[&OsStr]| words.extend(arguments.iter().map(OsString::from));
        for flag in ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"] {
            add(&[flag.as_ref()]);
        }
        if !self.git.network {
            add(&["--unshare-net".as_ref()]);
        }
        for folder in FOLDERS {
            match fs::read_link(folder) {
                Ok(target) => add(&["--symlink".as_ref(), target.as_os_str(), folder.as_ref()]),
                Err(_) => add(&["--ro-bind-try".as_ref(), folder.as_ref(), folder.as_ref()]),
            }
        }
        let network: &[&str] = if self.git.network { &NETWORK } else { &[] };
        for name in SETTINGS.iter().chain(network) {
            let path = Path::new("/etc").join(name);
            add(&["--ro-bind-try".as_ref(), path.as_os_str(), path.as_os_str()]);
        }
        add(&["--proc", "/proc", "--dev", "/dev"].map(OsStr::new));
        let seen = self.seen(Sandbox::Bubblewrap);
        for folder in ["/home", "/var", "/run"] {
            add(&["--dir", folder].map(OsStr::new));
        }
        // Memory that is a file system counts like any file: it is in our space.
        let space = self.bounds.space;
        let shared = SHARED.map(|(folder, name)| (space.join(name), PathBuf::from(folder)));
        let own = [(space.join("home"), seen.home), (self.site.to_owned(), seen.site)];
        for (from, to) in shared.into_iter().chain(own) {
            add(&["--bind".as_ref(), from.as_os_str(), to.as_os_str()]);
        }
        // Behind our folders: one of them may be above a tool, as /tmp is.
        for tool in &self.git.tools {
            for above in above(tool) {
                add(&["--dir".as_ref(), above.as_os_str()]);
            }
            add(&["--ro-bind-try".as_ref(), tool.as_os_str(), tool.as_os_str()]);
        }
        add(&["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/build"].map(OsStr::new));
        add(&["--die-with-parent", "--new-session", "--cap-drop", "ALL"].map(OsStr::new));
        if self.is_root {
            // Root needs no namespace of users, which is what containers forbid most. What it keeps, it needs to become
            // nobody, and loses by that.
            for capability in ["CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP"] {
                add(&["--cap-add".as_ref(), capability.as_ref()]);
            }
            add(&["--".as_ref()]);
            return Ok([words, self.nobody(&[])?].concat());
        }
        add(&["--unshare-user", "--"].map(OsStr::new));
        Ok(words)
    }
}

/// The beginning of each command: it ends with us, is the first to go when memory is short, and has the lowest priority as far
/// as this machine has the programs for that.
fn started() -> Vec<OsString> {
    let mut words = Vec::new();
    // That of busybox cannot tell of our end. Bubblewrap does that by itself, too.
    let is_whole = |program: &OsString| fs::canonicalize(program).is_ok_and(|path| !path.ends_with("busybox"));
    if let Some(setpriv) = find("setpriv").ok().filter(is_whole) {
        words.push(setpriv);
        words.extend(["--pdeathsig", "KILL", "--"].map(OsString::from));
    }
    words.extend(["/bin/sh", "-c", START, "sh"].map(OsString::from));
    words.push(std::process::id().to_string().into());
    for (program, arguments) in [("nice", ["-n", "19"]), ("ionice", ["-c", "3"])] {
        if let Ok(program) = find(program) {
            words.push(program);
            words.extend(arguments.map(OsString::from));
        }
    }
    words
}

/// Gives a tree to nobody. Links are given away themselves, not what they lead to.
fn hand_over(root: &Path) -> Result<(), GitError> {
    let mut found = vec![root.to_owned()];
    while let Some(path) = found.pop() {
        lchown(&path, Some(NOBODY_ID), Some(NOBODY_ID)).map_err(GitError::io("hand over", &path))?;
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            for entry in fs::read_dir(&path).map_err(GitError::io("read", &path))? {
                found.push(entry.map_err(GitError::io("read", &path))?.path());
            }
        }
    }
    Ok(())
}

/// The folders above a tool, the highest first. Those that bubblewrap makes unasked let nobody but root through.
fn above(tool: &Path) -> Vec<&Path> {
    let is_ours =
        |folder: &&Path| folder.parent().is_some() && !FOLDERS.iter().any(|system| folder.starts_with(system));
    let mut above: Vec<&Path> = tool.ancestors().skip(1).filter(is_ours).collect();
    above.reverse();
    above
}

/// A program on our PATH, with the folder that it is in.
fn find(name: &str) -> Result<OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| SYSTEM.into());
    let is_program =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0);
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_program);
    found.map(PathBuf::into_os_string).ok_or_else(|| format!("{name} is not installed"))
}
