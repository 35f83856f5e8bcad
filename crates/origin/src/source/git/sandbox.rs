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
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use docwharf_base::directory::Directory;
use docwharf_base::error_chain::OneLine;

use super::address::redact;
use super::process::{ProgramLimits, ProgramStop, run_program};
use super::sandbox_command::{Sandbox, SandboxCommand, UNPRIVILEGED_USER, UNPRIVILEGED_USER_ID, replaced_folders};
use super::{GitError, GitSource};

/// Timeout for trying a sandbox.
const TRIAL_TIMEOUT: Duration = Duration::from_secs(10);
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

/// Environment of one build.
#[derive(Debug)]
pub(super) struct BuildEnvironment<'a> {
    git: &'a GitSource,
    site: &'a Path,
    limits: &'a ProgramLimits<'a>,
    is_root: bool,
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
            .chain(replaced_folders(self.git).map(|(_, name)| name))
            .map(|name| self.limits.work_folder.join(name))
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
        let sandbox_command = self.sandbox_command(sandbox);
        let paths = sandbox_command.paths();
        let script = [OsStr::new(TRIAL_SCRIPT), OsStr::new("sh"), paths.site.as_os_str(), paths.tmp.as_os_str()];
        let mut command = match sandbox_command.command(&script) {
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
        let mut command = self.sandbox_command(sandbox).command(&script).map_err(GitError::NoSandbox)?;
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

    fn sandbox_command(&self, sandbox: Sandbox) -> SandboxCommand<'a> {
        let work_folder = self.limits.work_folder;
        SandboxCommand { sandbox, git: self.git, site: self.site, work_folder, is_root: self.is_root }
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
}

/// Makes the unprivileged user the owner of a tree. A build of another project may run as that user at the same time.
fn change_owner(root: &Path) -> Result<(), GitError> {
    let directory = Directory::open_no_follow(root).map_err(GitError::io_error("open", root))?;
    let result = directory.set_owner_of_tree(UNPRIVILEGED_USER_ID, UNPRIVILEGED_USER_ID);
    result.map_err(GitError::io_error("change the owner of", root))
}
