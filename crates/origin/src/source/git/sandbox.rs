//! Sandboxes for build commands.
//!
//! | | other user | separate processes | separate files | separate network |
//! |---|---|---|---|---|
//! | [`Sandbox::Bubblewrap`] | if run by root | yes | yes: the system read-only, the checkout, nothing else | yes |
//! | [`Sandbox::Namespaces`] | yes | yes | no: all files that any user may read | yes |
//! | [`Sandbox::OtherUser`] | yes | no | no | no |
//! | [`Sandbox::None`] | no | no | no | no |
//!
//! A sandbox is tried to find out whether it is available, with the same arguments that the build gets: containers
//! forbid different parts. All but the last also set `PR_SET_NO_NEW_PRIVS` and drop all capabilities.
//!
//! **The end of the origin.** Each build is killed when the thread that waits for it ends, even if the origin is
//! killed. In the first two sandboxes a build cannot prevent this: process 1 of its PID namespace belongs to root or to
//! bubblewrap, and all others end with it. In the other two the signal reaches the first process alone, which may have
//! disabled it.
//!
//! **The network.** The last two cannot prevent a build from using the network. If the configuration does not allow it,
//! the origin logs a warning for each such build. In an air-gapped deployment, builds run in the first two only. A
//! network namespace does not separate the Unix sockets that have a path, and by some of them a service of the machine
//! asks a name server for its client (systemd-resolved, nscd, D-Bus). So an air-gapped build does not see `/run` of the
//! machine, where these sockets are. The last two cannot hide it; and in an empty network namespace without another
//! user, a build of root could return to the namespace of the origin.
//!
//! **World-writable folders** (`/tmp` and the like) are private to the build in the first two. They lie below the
//! work folder of the build, which is measured and removed. In the other two a build may leave files there, and what it
//! writes there is not counted.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use docwharf_base::child_network::ChildNetwork;
use docwharf_base::directory::Directory;
use docwharf_base::error_chain::OneLine;

use super::address::redact;
use super::process::{ProgramLimits, ProgramStop, run_program};
use super::{GitError, GitSource};

/// User id of the unprivileged user of all systems; builds run as this user if the origin runs as root.
const UNPRIVILEGED_USER: &str = "65534";
const UNPRIVILEGED_USER_ID: u32 = 65534;
/// Timeout for trying a sandbox.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// PATH of the system's programs in a build.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Folders of the system. Those that are symbolic links are symbolic links in the sandbox, too.
const SYSTEM_FOLDERS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];
/// Entries of `/etc` that programs need; none of them is secret.
const ETC_ENTRIES: [&str; 18] = [
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
const NETWORK_ETC_ENTRIES: [&str; 3] = ["hosts", "resolv.conf", "services"];
/// World-writable folders, each with the name of the folder in the work folder that replaces it.
const WORLD_WRITABLE_FOLDERS: [(&str, &str); 4] =
    [("/tmp", "tmp"), ("/var/tmp", "var-tmp"), ("/dev/shm", "shm"), ("/run/lock", "lock")];
/// Folders with the sockets of services, each with the name of the folder in the work folder that replaces it for an
/// air-gapped build. They come before the world-writable folders, one of which is inside.
const SERVICE_FOLDERS: [(&str, &str); 2] = [("/run", "run"), ("/var/run", "var-run")];
/// Shell script that runs its arguments as the first candidate of the kernel's out-of-memory killer. Its first argument
/// is the process id of the origin. If the parent is another process by now, the origin died before the parent-death
/// signal was set (`PR_SET_PDEATHSIG`), and the script ends.
const START_SCRIPT: &str = "test \"$PPID\" = \"$1\" || exit 125; shift; \
                     { echo 1000 > /proc/self/oom_score_adj; } 2>/dev/null; exec \"$@\"";
/// Shell script of process 1 in the namespaces. That process runs as root, so that the build cannot prevent its end at
/// the end of the origin. Its arguments are the program that mounts, the checkout, and pairs of folders of which the
/// first is bound onto the second, up to a `--`.
const PRIVATE_FOLDERS_SCRIPT: &str = "mount=$1; site=$2; shift 2; while test \"$1\" != --; do \
                       \"$mount\" -o rbind \"$1\" \"$2\" || exit 125; shift 2; done; shift; \
                       cd \"$site\" || exit 125; \"$@\"; exit $?";
/// Shell script that sets limits and then runs the build: no core dumps, a number of open files and of processes, the
/// size of one file (in blocks of 512 bytes) and the data of one process (in KiB). Address space is not limited:
/// runtimes reserve much more of it than they use. The kernel counts processes for each user, so this limit is that of
/// all builds; that of one build is checked in [`super::process`]. The letter of the option for processes depends on
/// the shell.
const LIMITS_SCRIPT: &str = "ulimit -c 0 2>/dev/null; ulimit -n 4096 2>/dev/null; ulimit -f \"$2\" 2>/dev/null; \
                      ulimit -d \"$3\" 2>/dev/null; \
                      ulimit -u \"$4\" 2>/dev/null || ulimit -p \"$4\" 2>/dev/null; exec /bin/sh -c \"$1\"";
/// Maximum number of processes of all builds together, which the kernel enforces.
const MAX_PROCESSES_OF_ALL_BUILDS: u64 = 4096;
/// Shell script that checks that the checkout is there and that a file can be written.
const TRIAL_SCRIPT: &str = "cd \"$1\" && : > \"$2/probe\" && rm \"$2/probe\"";

/// Isolation of a build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sandbox {
    /// The `bwrap` program.
    Bubblewrap,
    /// Another user, with separate processes and a separate network; only root can use it.
    Namespaces,
    /// Another user; only root can use it.
    OtherUser,
    /// No isolation, which the configuration has to allow.
    None,
}

impl Sandbox {
    /// All sandboxes, the strongest first.
    pub const ALL: [Sandbox; 4] = [Sandbox::Bubblewrap, Sandbox::Namespaces, Sandbox::OtherUser, Sandbox::None];

    /// Whether this sandbox can prevent a build from using the network.
    fn can_isolate_network(self) -> bool {
        matches!(self, Sandbox::Bubblewrap | Sandbox::Namespaces)
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sandbox::Bubblewrap => "bubblewrap",
            Sandbox::Namespaces => "another user with namespaces",
            Sandbox::OtherUser => "another user",
            Sandbox::None => "no sandbox",
        })
    }
}

/// Environment of one build.
#[derive(Debug)]
pub(super) struct BuildEnvironment<'a> {
    git: &'a GitSource,
    site: &'a Path,
    limits: &'a ProgramLimits<'a>,
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
        git: &'a GitSource,
        site: &'a Path,
        limits: &'a ProgramLimits<'a>,
    ) -> Result<BuildEnvironment<'a>, GitError> {
        let environment = BuildEnvironment { git, site, limits, is_root: rustix::process::geteuid().is_root() };
        for folder in environment.build_folders() {
            fs::DirBuilder::new().mode(0o700).create(&folder).map_err(GitError::io_error("create", &folder))?;
            if environment.is_root {
                change_owner(&folder)?;
            }
        }
        if environment.is_root {
            change_owner(site)?;
            // The user of the build may traverse this folder, but not list it.
            let permissions = fs::Permissions::from_mode(0o711);
            fs::set_permissions(limits.work_folder, permissions)
                .map_err(GitError::io_error("set the permissions of", limits.work_folder))?;
        }
        Ok(environment)
    }

    /// Returns the paths of the folders of the build beside the checkout.
    fn build_folders(&self) -> impl Iterator<Item = PathBuf> {
        ["home"]
            .into_iter()
            .chain(self.replaced_folders().map(|(_, name)| name))
            .map(|name| self.limits.work_folder.join(name))
    }

    /// Returns the folders of the system that the build does not see, each with the name of the folder in the work
    /// folder that replaces it.
    fn replaced_folders(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let services: &[_] = if self.is_air_gapped() { &SERVICE_FOLDERS } else { &[] };
        services.iter().copied().chain(WORLD_WRITABLE_FOLDERS)
    }

    fn is_air_gapped(&self) -> bool {
        self.git.outbound_policy.is_air_gapped()
    }

    /// Removes the folders of the build beside the checkout.
    pub(super) fn remove_build_folders(&self) -> Result<(), GitError> {
        for folder in self.build_folders() {
            fs::remove_dir_all(&folder).map_err(GitError::io_error("remove", &folder))?;
        }
        Ok(())
    }

    /// Returns the first of these sandboxes that works here.
    pub(super) fn choose(&self, candidates: &[Sandbox]) -> Result<Sandbox, GitError> {
        let mut reasons = Vec::new();
        for &sandbox in candidates {
            match self.try_sandbox(sandbox)? {
                None => return Ok(sandbox),
                Some(reason) => reasons.push(format!("{sandbox}: {reason}")),
            }
        }
        let reasons = reasons.join("; ");
        Err(if self.is_air_gapped() { GitError::NoIsolation(reasons) } else { GitError::NoSandbox(reasons) })
    }

    /// Tries a sandbox. Returns the reason if it cannot be used, and `None` if it can.
    fn try_sandbox(&self, sandbox: Sandbox) -> Result<Option<String>, GitError> {
        if self.is_air_gapped() && !sandbox.can_isolate_network() {
            return Ok(Some("it has the services of this machine, some of which have a network".to_owned()));
        }
        if sandbox == Sandbox::None {
            let reason = "a build without a sandbox is not allowed (allowUntrusted)";
            return Ok((!self.git.allows_no_sandbox).then(|| reason.to_owned()));
        }
        let paths = self.sandbox_paths(sandbox);
        let script = [OsStr::new(TRIAL_SCRIPT), OsStr::new("sh"), paths.site.as_os_str(), paths.tmp.as_os_str()];
        let mut command = match self.sandbox_command(sandbox, &script) {
            Ok(command) => command,
            Err(reason) => return Ok(Some(reason)),
        };
        let build_limits = self.limits;
        let deadline = build_limits.deadline.min(Instant::now() + TRIAL_TIMEOUT);
        let trial_limits = ProgramLimits { deadline, ..*build_limits };
        match run_program(&mut command, false, &trial_limits, &mut |_| {}) {
            Ok(result) if result.status.success() => Ok(None),
            Ok(result) => Ok(Some(format!("{} ({})", OneLine(&result.last_lines), result.describe_exit()))),
            Err(ProgramStop::Time) if Instant::now() < build_limits.deadline => {
                Ok(Some("it takes too long".to_owned()))
            }
            Err(ProgramStop::StartFailed(_, error)) => Ok(Some(error.to_string())),
            Err(stop) => Err(GitError::from_stop("the trial of a sandbox", self.git, stop)),
        }
    }

    /// Runs the build command in a sandbox. `committed_at` is the commit time in seconds since 1970, for
    /// `SOURCE_DATE_EPOCH`.
    pub(super) fn run_build(&self, sandbox: Sandbox, build: &str, committed_at: i64) -> Result<(), GitError> {
        let context = self.limits.context;
        if !self.git.permits_build_network() && self.has_network(sandbox) {
            // The log of a job is shown for previews only.
            tracing::warn!(
                "a build of {} has {}; install bubblewrap, or set network = true if the build may use the network",
                OneLine(&redact(&self.git.repository)),
                self.describe(sandbox)
            );
        }
        context.log_line(format!("the build has {}", self.describe(sandbox)));
        context.log_line(format!("$ {}", OneLine(&redact(build))));
        // The limit for one file is above the limit for all files together. So the measurement, and not the shell,
        // reports a file that is just too large.
        let blocks = (self.git.max_bytes / 512).saturating_add(4096);
        let numbers = [blocks, (self.git.max_memory_bytes >> 10).max(1), MAX_PROCESSES_OF_ALL_BUILDS]
            .map(|n| OsString::from(n.to_string()));
        let [blocks, memory, processes] = &numbers;
        let script = [OsStr::new(LIMITS_SCRIPT), OsStr::new("sh"), OsStr::new(build), blocks, memory, processes];
        let mut command = self.sandbox_command(sandbox, &script).map_err(GitError::NoSandbox)?;
        command.env("SOURCE_DATE_EPOCH", committed_at.to_string());
        let started = Instant::now();
        let result = run_program(&mut command, false, self.limits, &mut |line| context.log_line(redact(line)));
        let result = result.map_err(|stop| GitError::from_stop("the build", self.git, stop));
        let result = result.inspect_err(|error| context.log_line(error.to_string()))?;
        let exit = result.describe_exit();
        context.log_line(format!("the build ended after {:.1} s with {exit}", started.elapsed().as_secs_f64()));
        if result.status.code() == Some(127) {
            context.log_line(
                "exit code 127 usually means that a command was not found; folders with tools outside /usr must be listed in tools",
            );
        }
        if result.status.success() {
            return Ok(());
        }
        Err(GitError::Build { build: redact(build), exit, output: redact(&result.last_lines) })
    }

    /// Describes a sandbox for the log.
    fn describe(&self, sandbox: Sandbox) -> String {
        let user = if self.is_root { format!(" as user {UNPRIVILEGED_USER}") } else { String::new() };
        let network = match (self.git.permits_build_network(), self.has_network(sandbox)) {
            (true, _) => "with the network",
            (false, false) => "without network",
            (false, true) => "with the network, which this sandbox cannot prevent",
        };
        match sandbox {
            Sandbox::Bubblewrap => format!("the sandbox of bubblewrap{user}, {network}"),
            Sandbox::Namespaces => format!("separate processes{user}, {network}"),
            Sandbox::OtherUser => format!("no sandbox, but runs{user}, {network}"),
            Sandbox::None => format!("no sandbox, as the configuration allows, {network}"),
        }
    }

    /// Whether the build has the network in this sandbox.
    fn has_network(&self, sandbox: Sandbox) -> bool {
        self.git.permits_build_network() || !sandbox.can_isolate_network()
    }

    /// Returns the paths of folders as the build sees them in a sandbox.
    fn sandbox_paths(&self, sandbox: Sandbox) -> SandboxPaths {
        if sandbox == Sandbox::Bubblewrap {
            return SandboxPaths { site: "/build".into(), home: "/home/build".into(), tmp: "/tmp".into() };
        }
        let work_folder = self.limits.work_folder;
        SandboxPaths { site: self.site.to_owned(), home: work_folder.join("home"), tmp: work_folder.join("tmp") }
    }

    /// Returns the command that runs `sh -c` with these arguments in a sandbox, or why there is none.
    fn sandbox_command(&self, sandbox: Sandbox, script: &[&OsStr]) -> Result<Command, String> {
        let mut arguments = start_arguments();
        arguments.extend(match sandbox {
            Sandbox::Bubblewrap => self.bubblewrap_arguments()?,
            Sandbox::Namespaces => self.namespace_arguments()?,
            // A change of the user clears the parent-death signal (prctl(2)), so it is set again.
            Sandbox::OtherUser => self.unprivileged_arguments(&["--pdeathsig", "KILL"])?,
            Sandbox::None => Vec::new(),
        });
        arguments.extend(["/bin/sh", "-c"].map(OsString::from));
        // The sandboxes take the network from the build themselves, if they can.
        let mut command = ChildNetwork::Inherited.command(&arguments[0]);
        let paths = self.sandbox_paths(sandbox);
        let tools = self.git.tools.iter().map(|tool| tool.as_os_str()).chain([OsStr::new(SYSTEM_PATH)]);
        command
            .args(&arguments[1..])
            .args(script)
            .current_dir(self.site)
            .env_clear()
            .env("PATH", tools.collect::<Vec<_>>().join(OsStr::new(":")))
            .env("HOME", paths.home)
            .env("TMPDIR", paths.tmp)
            .envs([("LANG", "C.UTF-8"), ("CI", "true"), ("TERM", "dumb")]);
        Ok(command)
    }

    /// Returns the arguments that run a command with its own processes and its own folders in place of some of the
    /// system.
    fn namespace_arguments(&self) -> Result<Vec<OsString>, String> {
        let setpriv = self.unprivileged_arguments(&[])?;
        let mut arguments = vec![find_program("unshare")?];
        arguments.extend(["--pid", "--fork", "--kill-child", "--mount-proc", "--ipc"].map(OsString::from));
        arguments.extend((!self.git.permits_build_network()).then(|| OsString::from("--net")));
        arguments.extend(["--", "/bin/sh", "-c", PRIVATE_FOLDERS_SCRIPT, "sh"].map(OsString::from));
        arguments.extend([find_program("mount")?, self.site.into()]);
        arguments.extend(self.private_folders()?.into_iter().flatten().map(PathBuf::into_os_string));
        arguments.push("--".into());
        Ok([arguments, setpriv].concat())
    }

    /// Returns the pairs of folders to bind. The first pairs keep the work folder and the tools visible if they are in
    /// a replaced folder. The last pairs bind folders of the work folder onto the replaced ones.
    fn private_folders(&self) -> Result<Vec<[PathBuf; 2]>, String> {
        let (mut visible, mut covers, mut covered) = (Vec::new(), Vec::<[PathBuf; 2]>::new(), Vec::new());
        for (shared, name) in self.replaced_folders() {
            let Ok(shared) = fs::canonicalize(shared) else { continue };
            if !shared.is_dir() || covered.contains(&shared) {
                continue;
            }
            let replacement = self.limits.work_folder.join(name);
            let tools =
                self.git.tools.iter().filter_map(|tool| fs::canonicalize(tool).ok()).filter(|tool| tool.is_dir());
            for needed in tools.chain([self.limits.work_folder.to_owned()]) {
                let Ok(inside) = needed.strip_prefix(&shared) else { continue };
                let to = replacement.join(inside);
                fs::create_dir_all(&to).map_err(|error| format!("cannot create {}: {error}", to.display()))?;
                visible.push([needed, to]);
            }
            for [outer, outer_path] in &covers {
                let Ok(inside) = shared.strip_prefix(outer_path) else { continue };
                let to = outer.join(inside);
                fs::create_dir_all(&to).map_err(|error| format!("cannot create {}: {error}", to.display()))?;
            }
            covers.push([replacement, shared.clone()]);
            covered.push(shared);
        }
        Ok([visible, covers].concat())
    }

    /// Returns the arguments that run a command as the unprivileged user, without a means to become another user.
    fn unprivileged_arguments(&self, more: &[&str]) -> Result<Vec<OsString>, String> {
        if !self.is_root {
            return Err("only root can use it".to_owned());
        }
        let mut arguments = vec![find_program("setpriv")?];
        arguments.extend(
            ["--reuid", UNPRIVILEGED_USER, "--regid", UNPRIVILEGED_USER, "--clear-groups", "--no-new-privs"]
                .map(OsString::from),
        );
        arguments.extend(["--inh-caps=-all", "--bounding-set=-all"].map(OsString::from));
        arguments.extend(more.iter().map(OsString::from));
        arguments.push("--".into());
        Ok(arguments)
    }

    /// Returns the arguments that run a command in bubblewrap: the system read-only, the checkout, and nothing else.
    fn bubblewrap_arguments(&self) -> Result<Vec<OsString>, String> {
        let mut arguments = vec![find_program("bwrap")?];
        let mut add = |more: &[&OsStr]| arguments.extend(more.iter().map(OsString::from));
        for flag in ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"] {
            add(&[flag.as_ref()]);
        }
        if !self.git.permits_build_network() {
            add(&["--unshare-net".as_ref()]);
        }
        for folder in SYSTEM_FOLDERS {
            match fs::read_link(folder) {
                Ok(target) => add(&["--symlink".as_ref(), target.as_os_str(), folder.as_ref()]),
                Err(_) => add(&["--ro-bind-try".as_ref(), folder.as_ref(), folder.as_ref()]),
            }
        }
        // Bubblewrap would create the folder for its own user only, who is root if the origin is.
        add(&["--dir", "/etc"].map(OsStr::new));
        let network: &[&str] = if self.git.permits_build_network() { &NETWORK_ETC_ENTRIES } else { &[] };
        for name in ETC_ENTRIES.iter().chain(network) {
            let path = Path::new("/etc").join(name);
            add(&["--ro-bind-try".as_ref(), path.as_os_str(), path.as_os_str()]);
        }
        add(&["--proc", "/proc", "--dev", "/dev"].map(OsStr::new));
        let paths = self.sandbox_paths(Sandbox::Bubblewrap);
        for folder in ["/home", "/var", "/run"] {
            add(&["--dir", folder].map(OsStr::new));
        }
        // `/dev/shm` is bound to the work folder too, so that its content counts like any file.
        let work_folder = self.limits.work_folder;
        let shared = WORLD_WRITABLE_FOLDERS.map(|(folder, name)| (work_folder.join(name), PathBuf::from(folder)));
        let own = [(work_folder.join("home"), paths.home), (self.site.to_owned(), paths.site)];
        for (from, to) in shared.into_iter().chain(own) {
            add(&["--bind".as_ref(), from.as_os_str(), to.as_os_str()]);
        }
        // After the build's own folders: one of them may be above a tool, as `/tmp` is.
        for tool in &self.git.tools {
            for parent in parent_folders(tool) {
                add(&["--dir".as_ref(), parent.as_os_str()]);
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
            return Ok([arguments, self.unprivileged_arguments(&[])?].concat());
        }
        add(&["--unshare-user", "--"].map(OsStr::new));
        Ok(arguments)
    }
}

/// Returns the first arguments of each command. With them it ends with the origin, is the first candidate of the
/// out-of-memory killer, and has the lowest priority, as far as this machine has the programs for that.
fn start_arguments() -> Vec<OsString> {
    let mut arguments = Vec::new();
    // The `setpriv` of busybox has no `--pdeathsig`. Bubblewrap sets the signal itself, too.
    let is_util_linux = |program: &OsString| fs::canonicalize(program).is_ok_and(|path| !path.ends_with("busybox"));
    if let Some(setpriv) = find_program("setpriv").ok().filter(is_util_linux) {
        arguments.push(setpriv);
        arguments.extend(["--pdeathsig", "KILL", "--"].map(OsString::from));
    }
    arguments.extend(["/bin/sh", "-c", START_SCRIPT, "sh"].map(OsString::from));
    arguments.push(std::process::id().to_string().into());
    for (program, options) in [("nice", ["-n", "19"]), ("ionice", ["-c", "3"])] {
        if let Ok(program) = find_program(program) {
            arguments.push(program);
            arguments.extend(options.map(OsString::from));
        }
    }
    arguments
}

/// Makes the unprivileged user the owner of a tree. A build of another project may run as that user at the same time.
fn change_owner(root: &Path) -> Result<(), GitError> {
    let directory = Directory::open_no_follow(root).map_err(GitError::io_error("open", root))?;
    let result = directory.set_owner_of_tree(UNPRIVILEGED_USER_ID, UNPRIVILEGED_USER_ID);
    result.map_err(GitError::io_error("change the owner of", root))
}

/// Returns the parent folders of a tool, the highest first. Folders that bubblewrap creates automatically are
/// accessible to root only.
fn parent_folders(tool: &Path) -> Vec<&Path> {
    let is_needed =
        |folder: &&Path| folder.parent().is_some() && !SYSTEM_FOLDERS.iter().any(|system| folder.starts_with(system));
    let mut parents: Vec<&Path> = tool.ancestors().skip(1).filter(is_needed).collect();
    parents.reverse();
    parents
}

/// Returns the full path of a program on the PATH of this process.
fn find_program(name: &str) -> Result<OsString, String> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| SYSTEM_PATH.into());
    let is_program =
        |file: &PathBuf| fs::metadata(file).is_ok_and(|metadata| metadata.is_file() && metadata.mode() & 0o111 != 0);
    let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(is_program);
    found.map(PathBuf::into_os_string).ok_or_else(|| format!("{name} is not installed"))
}
