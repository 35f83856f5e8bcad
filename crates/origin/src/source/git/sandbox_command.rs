//! The sandboxes, and the command lines that run a program in each of them.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use docwharf_base::child_network::ChildNetwork;

use super::GitSource;

/// User id of the unprivileged user of all systems; builds run as this user if the origin runs as root.
pub(super) const UNPRIVILEGED_USER: &str = "65534";
pub(super) const UNPRIVILEGED_USER_ID: u32 = 65534;
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
    pub(super) fn can_isolate_network(self) -> bool {
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

/// The parts of a build on which the command line of its sandbox depends.
#[derive(Debug)]
pub(super) struct SandboxCommand<'a> {
    pub(super) sandbox: Sandbox,
    pub(super) git: &'a GitSource,
    /// The checkout.
    pub(super) site: &'a Path,
    /// The folder around the checkout, which has the other folders of the build.
    pub(super) work_folder: &'a Path,
    /// Whether the origin runs as root.
    pub(super) is_root: bool,
}

/// Paths of folders as the build sees them.
pub(super) struct SandboxPaths {
    pub(super) site: PathBuf,
    home: PathBuf,
    pub(super) tmp: PathBuf,
}

impl SandboxCommand<'_> {
    /// Returns the paths of folders as the build sees them in the sandbox.
    pub(super) fn paths(&self) -> SandboxPaths {
        if self.sandbox == Sandbox::Bubblewrap {
            return SandboxPaths { site: "/build".into(), home: "/home/build".into(), tmp: "/tmp".into() };
        }
        SandboxPaths {
            site: self.site.to_owned(),
            home: self.work_folder.join("home"),
            tmp: self.work_folder.join("tmp"),
        }
    }

    /// Returns the command that runs `sh -c` with these arguments in the sandbox, or why there is none.
    pub(super) fn command(&self, script: &[&OsStr]) -> Result<Command, String> {
        let mut arguments = start_arguments();
        arguments.extend(match self.sandbox {
            Sandbox::Bubblewrap => self.bubblewrap_arguments()?,
            Sandbox::Namespaces => self.namespace_arguments()?,
            // A change of the user clears the parent-death signal (prctl(2)), so it is set again.
            Sandbox::OtherUser => self.unprivileged_arguments(&["--pdeathsig", "KILL"])?,
            Sandbox::None => Vec::new(),
        });
        arguments.extend(["/bin/sh", "-c"].map(OsString::from));
        // The sandboxes take the network from the build themselves, if they can.
        let mut command = ChildNetwork::Inherited.command(&arguments[0]);
        let paths = self.paths();
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
        for (shared, name) in replaced_folders(self.git) {
            let Ok(shared) = fs::canonicalize(shared) else { continue };
            if !shared.is_dir() || covered.contains(&shared) {
                continue;
            }
            let replacement = self.work_folder.join(name);
            let tools =
                self.git.tools.iter().filter_map(|tool| fs::canonicalize(tool).ok()).filter(|tool| tool.is_dir());
            for needed in tools.chain([self.work_folder.to_owned()]) {
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
        let paths = self.paths();
        for folder in ["/home", "/var", "/run"] {
            add(&["--dir", folder].map(OsStr::new));
        }
        // `/dev/shm` is bound to the work folder too, so that its content counts like any file.
        let work_folder = self.work_folder;
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

/// Returns the folders of the system that the build does not see, each with the name of the folder in the work
/// folder that replaces it.
pub(super) fn replaced_folders(git: &GitSource) -> impl Iterator<Item = (&'static str, &'static str)> {
    let services: &[_] = if git.outbound_policy.is_air_gapped() { &SERVICE_FOLDERS } else { &[] };
    services.iter().copied().chain(WORLD_WRITABLE_FOLDERS)
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
