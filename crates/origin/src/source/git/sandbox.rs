//! Sandboxes for build commands.
//!
//! | | own user | own processes | own files | own network |
//! |---|---|---|---|---|
//! | [`Sandbox::Bubblewrap`] | if run by root | yes | yes: the system read-only, the checkout, nothing else | yes |
//! | [`Sandbox::Namespaces`] | yes | yes | no: all files that any user may read | yes |
//! | [`Sandbox::User`] | yes | no | no | no |
//! | [`Sandbox::Nothing`] | no | no | no | no |
//!
//! A sandbox is tried to find out whether it is available, with the same arguments that the build gets: containers
//! forbid different parts. All but the last also set `PR_SET_NO_NEW_PRIVS` and drop all capabilities.
//!
//! **The end of the origin.** Each build is killed when the thread that waits for it ends, however the origin ends. In
//! the first two sandboxes a build cannot prevent this: process 1 of its PID namespace belongs to root or to
//! bubblewrap, and all others end with it. In the other two the signal reaches the first process alone, which may have
//! disabled it.
//!
//! **World-writable folders** (`/tmp` and the like) are private to the build in the first two. They lie below the space
//! that is measured and removed. In the other two a build may leave files there, and what it writes there is not
//! counted.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use docwharf_base::error_chain::OneLine;

use super::address::redact;
use super::process::{ProgramLimits, ProgramStop, run};
use super::{Git, GitError};

/// User id of the unprivileged user of all systems; builds run as this user if the origin runs as root.
const NOBODY: &str = "65534";
const NOBODY_ID: u32 = 65534;
/// Timeout for trying a sandbox.
const TRIAL: Duration = Duration::from_secs(10);
/// PATH of the system's programs in a build.
const SYSTEM: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Folders of the system. Those that are symbolic links are symbolic links in the sandbox, too.
const FOLDERS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Entries of `/etc` that programs need; none of them is secret.
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
/// Entries of `/etc` that only builds with network access need.
const NETWORK: [&str; 3] = ["hosts", "resolv.conf", "services"];
/// World-writable folders, each with the name of the folder in the build's space that replaces it.
const SHARED: [(&str, &str); 4] =
    [("/tmp", "tmp"), ("/var/tmp", "var-tmp"), ("/dev/shm", "shm"), ("/run/lock", "lock")];
/// Shell script that runs its arguments as the first candidate of the kernel's out-of-memory killer. Its first argument
/// is the process id of the origin. If the parent is another process by now, the origin died before the parent-death
/// signal was set (`PR_SET_PDEATHSIG`), and the script ends.
const START: &str = "test \"$PPID\" = \"$1\" || exit 125; shift; \
                     { echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; exec \"$@\"";
/// Shell script of process 1 in the namespaces. That process stays root's, so that the build cannot keep it from ending
/// with the origin. Its arguments are the program that mounts, the checkout, and pairs of folders of which the first is
/// bound onto the second, up to a `--`.
const PRIVATE: &str = "mount=$1; site=$2; shift 2; while test \"$1\" != --; do \
                       \"$mount\" -o rbind \"$1\" \"$2\" || exit 125; shift 2; done; shift; \
                       cd \"$site\" || exit 125; \"$@\"; exit $?";
/// Shell script that sets limits and then runs the build: no core dumps, a number of open files and of processes, the
/// size of one file (in blocks of 512 bytes) and the data of one process (in KiB). Address space is not limited:
/// runtimes reserve much more of it than they use. The kernel counts processes for each user, so this limit is that of
/// all builds; that of one build is checked in [`super::process`]. The letter of the option for processes depends on
/// the shell.
const LIMITS: &str = "ulimit -c 0 2>/dev/null; ulimit -n 4096 2>/dev/null; ulimit -f \"$2\" 2>/dev/null; \
                      ulimit -d \"$3\" 2>/dev/null; \
                      ulimit -u \"$4\" 2>/dev/null || ulimit -p \"$4\" 2>/dev/null; exec /bin/sh -c \"$1\"";
/// Maximum number of processes of all builds together, whatever else is allowed.
const ALL_PROCESSES: u64 = 4096;
/// Shell script that checks that the checkout is there and that a file can be written.
const TRY: &str = "cd \"$1\" && : > \"$2/probe\" && rm \"$2/probe\"";

/// Isolation of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// The `bwrap` program.
    Bubblewrap,
    /// Another user, with processes and a network of its own; only root can use it.
    Namespaces,
    /// Another user; only root can use it.
    User,
    /// No isolation, which the configuration has to allow.
    Nothing,
}

impl Sandbox {
    /// All sandboxes, the strongest first.
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

/// Environment of one build.
#[derive(Debug)]
pub(super) struct BuildEnvironment<'a> {
    git: &'a Git,
    site: &'a Path,
    bounds: &'a ProgramLimits<'a>,
    is_root: bool,
}

/// Paths of folders as the build sees them.
struct SandboxPaths {
    site: PathBuf,
    home: PathBuf,
    tmp: PathBuf,
}

impl<'a> BuildEnvironment<'a> {
    /// Creates the folders of the build beside the checkout, and gives them and the checkout to the user that will run
    /// it.
    pub(super) fn new(
        git: &'a Git,
        site: &'a Path,
        bounds: &'a ProgramLimits<'a>,
    ) -> Result<BuildEnvironment<'a>, GitError> {
        let cell = BuildEnvironment { git, site, bounds, is_root: rustix::process::geteuid().is_root() };
        for folder in cell.beside() {
            fs::DirBuilder::new().mode(0o700).create(&folder).map_err(GitError::io("make", &folder))?;
            if cell.is_root {
                hand_over(&folder)?;
            }
        }
        if cell.is_root {
            hand_over(site)?;
            // The user of the build may traverse this folder, but not list it.
            let passable = fs::Permissions::from_mode(0o711);
            fs::set_permissions(bounds.space, passable).map_err(GitError::io("open", bounds.space))?;
        }
        Ok(cell)
    }

    fn beside(&self) -> impl Iterator<Item = PathBuf> {
        ["home"].into_iter().chain(SHARED.map(|(_, name)| name)).map(|name| self.bounds.space.join(name))
    }

    /// Removes the folders of the build beside the checkout.
    pub(super) fn sweep(&self) -> Result<(), GitError> {
        for folder in self.beside() {
            fs::remove_dir_all(&folder).map_err(GitError::io("remove", &folder))?;
        }
        Ok(())
    }

    /// Returns the first of these sandboxes that works here.
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

    /// Returns why a sandbox cannot be used; `None` if it can.
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
        let bounds = ProgramLimits { until: mine.until.min(Instant::now() + TRIAL), ..*mine };
        let ended = run(&mut command, false, &bounds, &mut |_| {});
        match ended {
            Ok(ended) if ended.status.success() => Ok(None),
            Ok(ended) => Ok(Some(format!("{} ({})", OneLine(&ended.last), ended.how()))),
            Err(ProgramStop::Time) if Instant::now() < mine.until => Ok(Some("it takes too long".to_owned())),
            Err(ProgramStop::Start(_, error)) => Ok(Some(error.to_string())),
            Err(cut) => Err(GitError::cut("trying a sandbox", self.git, cut)),
        }
    }

    /// Runs the build command in a sandbox. `made` is the commit time in seconds since 1970, for `SOURCE_DATE_EPOCH`.
    pub(super) fn build(&self, sandbox: Sandbox, build: &str, made: i64) -> Result<(), GitError> {
        let watch = self.bounds.watch;
        watch.log_line(format!("the build has {}", self.words(sandbox)));
        watch.log_line(format!("$ {}", OneLine(&redact(build))));
        // The limit of one file is above that of all files together. So a file that is just too large is found by the
        // measurement and not by the shell.
        let blocks = (self.git.size / 512).saturating_add(4096);
        let numbers = [blocks, (self.git.memory >> 10).max(1), ALL_PROCESSES].map(|n| OsString::from(n.to_string()));
        let [blocks, memory, processes] = &numbers;
        let inner = [OsStr::new(LIMITS), OsStr::new("sh"), OsStr::new(build), blocks, memory, processes];
        let mut command = self.command(sandbox, &inner).map_err(GitError::NoSandbox)?;
        command.env("SOURCE_DATE_EPOCH", made.to_string());
        let began = Instant::now();
        let ended = run(&mut command, false, self.bounds, &mut |line| watch.log_line(redact(line)));
        let ended = ended.map_err(|cut| GitError::cut("the build", self.git, cut));
        let ended = ended.inspect_err(|error| watch.log_line(error.to_string()))?;
        let how = ended.how();
        watch.log_line(format!("the build ended after {:.1} s with {how}", began.elapsed().as_secs_f64()));
        if ended.status.code() == Some(127) {
            watch.log_line(
                "exit code 127 mostly means that a command is not found; tools outside /usr have to be named",
            );
        }
        if ended.status.success() {
            return Ok(());
        }
        Err(GitError::Build { build: redact(build), how, said: redact(&ended.last) })
    }

    /// Describes a sandbox for the log.
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

    fn seen(&self, sandbox: Sandbox) -> SandboxPaths {
        if sandbox == Sandbox::Bubblewrap {
            return SandboxPaths { site: "/build".into(), home: "/home/build".into(), tmp: "/tmp".into() };
        }
        let space = self.bounds.space;
        SandboxPaths { site: self.site.to_owned(), home: space.join("home"), tmp: space.join("tmp") }
    }

    /// Returns the command that runs `sh -c` with these arguments in a sandbox, or why there is none.
    fn command(&self, sandbox: Sandbox, inner: &[&OsStr]) -> Result<Command, String> {
        let mut words = started();
        words.extend(match sandbox {
            Sandbox::Bubblewrap => self.bubblewrap()?,
            Sandbox::Namespaces => self.namespaces()?,
            // A change of the user clears the parent-death signal (prctl(2)), so it is set again.
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

    /// Returns the words that run a command with its own processes and its own world-writable folders.
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

    /// Returns the pairs of folders to bind, in this order: the build's space and the tools, where they lie in a folder
    /// that is covered; then the folders of the space that cover the world-writable ones.
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

    /// Returns the words that run a command as the unprivileged user, for good.
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

    /// Returns the words that run a command in bubblewrap: the system read-only, the checkout, and nothing else.
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
        // `/dev/shm` is bound to the build's space too, so that it counts like any file.
        let space = self.bounds.space;
        let shared = SHARED.map(|(folder, name)| (space.join(name), PathBuf::from(folder)));
        let own = [(space.join("home"), seen.home), (self.site.to_owned(), seen.site)];
        for (from, to) in shared.into_iter().chain(own) {
            add(&["--bind".as_ref(), from.as_os_str(), to.as_os_str()]);
        }
        // After the build's own folders: one of them may be above a tool, as `/tmp` is.
        for tool in &self.git.tools {
            for above in above(tool) {
                add(&["--dir".as_ref(), above.as_os_str()]);
            }
            add(&["--ro-bind-try".as_ref(), tool.as_os_str(), tool.as_os_str()]);
        }
        add(&["--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/build"].map(OsStr::new));
        add(&["--die-with-parent", "--new-session", "--cap-drop", "ALL"].map(OsStr::new));
        if self.is_root {
            // Root needs no user namespace, which is what containers forbid most. It needs these capabilities to become
            // the unprivileged user, and loses them by that.
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

/// Returns the first words of each command. With them it ends with the origin, is the first candidate of the
/// out-of-memory killer, and has the lowest priority, as far as this machine has the programs for that.
fn started() -> Vec<OsString> {
    let mut words = Vec::new();
    // The `setpriv` of busybox has no `--pdeathsig`. Bubblewrap sets the signal itself, too.
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

/// Gives a tree to the unprivileged user. The owner of a symbolic link is changed, not that of its target.
fn hand_over(root: &Path) -> Result<(), GitError> {
    let mut found = vec![root.to_owned()];
    while let Some(path) = found.pop() {
        lchown(&path, Some(NOBODY_ID), Some(NOBODY_ID)).map_err(GitError::io("change the owner of", &path))?;
        if fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_dir()) {
            for entry in fs::read_dir(&path).map_err(GitError::io("read", &path))? {
                found.push(entry.map_err(GitError::io("read", &path))?.path());
            }
        }
    }
    Ok(())
}

/// Returns the folders above a tool, the highest first. Those that bubblewrap creates by itself are accessible to root
/// only.
fn above(tool: &Path) -> Vec<&Path> {
    let is_ours =
        |folder: &&Path| folder.parent().is_some() && !FOLDERS.iter().any(|system| folder.starts_with(system));
    let mut above: Vec<&Path> = tool.ancestors().skip(1).filter(is_ours).collect();
    above.reverse();
    above
}

/// Returns the full path of a program on the PATH of this process.
fn find(name: &str) -> Result<OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| SYSTEM.into());
    let is_program =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0);
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_program);
    found.map(PathBuf::into_os_string).ok_or_else(|| format!("{name} is not installed"))
}
