//! Builds sites from a branch of a Git repository.
//!
//! The `git` program fetches the newest commit and the one before it, lists the changed files, and writes the checkout.
//! Its own data is removed before anything else runs ([`client`]). Then the build command runs in the checkout, in the
//! strongest sandbox that this machine has ([`sandbox`]), and all processes that it started are killed when it ends
//! ([`process`]). Both steps are limited in time, in the size of everything that they write, in memory and in the
//! number of processes.
//!
//! ```text
//! site/       the checkout, and what the build adds to it
//! git/        the repository                    ┐ until the build begins
//! git-home/   git's configuration               ┘
//! home/ tmp/ var-tmp/ shm/ lock/                folders of the build beside the checkout, until it ends
//! ```
//!
//! A repository is as trustworthy as the users who may push to it. So git gets the configuration of this program and no
//! other, no hook, filter or submodule of the repository is used, and no protocol that could run programs is allowed. A
//! password in the repository's URL reaches git through its environment alone: no argument, file, log or message
//! contains it.

mod address;
mod branch;
mod client;
mod output_lines;
mod process;
mod process_memory;
mod sandbox;
mod sandbox_command;
mod site_folder;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::model::units::format_size;

use super::{JobContext, LimitReached, SharedResource};

use address::RepositoryAddress;
use client::GitClient;
use process::{ProgramLimits, ProgramStop};
use sandbox::BuildEnvironment;

pub use address::find_outbound_problem;
pub use branch::is_branch_name;
pub use sandbox_command::Sandbox;

/// Maximum number of file names that a commit lists for each kind of change.
const MAX_LISTED_FILES: usize = 1000;
/// Timeout for listing the branches of a repository.
const LIST_TIMEOUT: Duration = Duration::from_mins(1);

/// A repository, and how a site is built from a branch of it.
#[derive(Clone)]
pub struct GitSource {
    /// A URL or a path.
    pub repository: String,
    /// The branch that exports are built from.
    pub branch: String,
    /// The command that builds the site, run by `sh -c` in the checkout; without one the checkout is the site.
    pub build: Option<String>,
    /// The folder of the checkout that is the site after the build; without it, the checkout itself.
    pub output: Option<PathBuf>,
    /// Absolute paths of folders with tools that are installed outside `/usr`. They precede the folders of the system
    /// on the PATH of the build. In a sandbox they are read-only at the same path.
    pub tools: Vec<PathBuf>,
    /// Whether the build may use the network. Only the sandboxes with bubblewrap or namespaces can prevent it. Without
    /// effect in an air-gapped deployment: then builds run in these sandboxes only, without a network.
    pub allows_network: bool,
    /// Whether the build may run without a sandbox, as this process's user, if no sandbox is available. Without effect
    /// in an air-gapped deployment.
    pub allows_no_sandbox: bool,
    /// Maximum time of cloning and building together.
    pub max_duration: Duration,
    /// Maximum size of a checkout with its build, in bytes.
    pub max_bytes: u64,
    /// Maximum memory of all processes of a build together, and of each of them, in bytes.
    pub max_memory_bytes: u64,
    /// Maximum number of processes of a build at a time.
    pub max_processes: u64,
    /// The outbound connections that git may open.
    pub outbound_policy: OutboundPolicy,
}

impl GitSource {
    /// Whether a build may have the network.
    fn permits_build_network(&self) -> bool {
        self.allows_network && !self.outbound_policy.is_air_gapped()
    }
}

impl fmt::Debug for GitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GitSource")
            .field("repository", &address::redact(&self.repository))
            .field("branch", &self.branch)
            .field("build", &self.build)
            .field("output", &self.output)
            .field("tools", &self.tools)
            .field("allows_network", &self.allows_network)
            .field("allows_no_sandbox", &self.allows_no_sandbox)
            .field("max_duration", &self.max_duration)
            .field("max_bytes", &self.max_bytes)
            .field("max_memory_bytes", &self.max_memory_bytes)
            .field("max_processes", &self.max_processes)
            .field("outbound_policy", &self.outbound_policy)
            .finish()
    }
}

/// Author of a commit, as the commit states it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitAuthor {
    /// The name.
    pub name: String,
    /// The mail address.
    pub email: String,
}

/// A commit and the files that it changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GitCommit {
    /// The commit id in hex.
    pub sha: String,
    /// The branch whose head it was.
    pub branch: String,
    /// The subject and body of the commit, cut if long.
    pub message: String,
    /// The author of the commit, if it has one.
    pub author: Option<GitAuthor>,
    /// Files that the first parent of the commit does not have; at most the first 1000, as in the lists below.
    pub added: Vec<String>,
    /// Files that the first parent has with another content.
    pub modified: Vec<String>,
    /// Files that only the first parent has.
    pub removed: Vec<String>,
}

/// A site that was built.
#[derive(Debug)]
pub struct BuiltSite {
    /// The folder of the site, within the work folder.
    pub site: PathBuf,
    /// The commit that it was built from.
    pub commit: GitCommit,
}

/// Reason why there is no site.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The `git` program is not installed.
    #[error("cannot run git: it is not on the PATH; install the package git")]
    NotInstalled,
    /// The address of the repository is not accepted.
    #[error("cannot use the repository {repository}: {reason}")]
    Repository {
        /// The redacted address of the repository.
        repository: String,
        /// The reason.
        reason: String,
    },
    /// No branch can have this name.
    #[error("{0:?} is not a valid name of a branch; see git-check-ref-format(1)")]
    BranchName(String),
    /// The repository has no such branch.
    #[error("{repository} has no branch {branch:?}; push the branch, or correct its name")]
    NoBranch {
        /// The redacted address of the repository.
        repository: String,
        /// The branch.
        branch: String,
    },
    /// The `git` program failed.
    #[error("cannot {doing} {repository}: git printed: {output}")]
    Git {
        /// The attempted operation.
        doing: &'static str,
        /// The redacted address of the repository.
        repository: String,
        /// The last lines of git's output.
        output: String,
    },
    /// The build command failed.
    #[error("the build {build:?} failed: {exit}{}{output}", if output.is_empty() { "" } else { "; its last output: " })]
    Build {
        /// The command.
        build: String,
        /// The exit code or signal of the command.
        exit: String,
        /// The last lines of the command's output.
        output: String,
    },
    /// Cloning and building took longer than allowed.
    #[error("{doing} was ended: cloning and building took longer than {} s together; allow more time (buildTime)", time.as_secs())]
    Time {
        /// The operation that was running.
        doing: &'static str,
        /// The limit.
        time: Duration,
    },
    /// Checkout and build took more space than allowed.
    #[error("{doing} was ended: checkout and build take more than {}; allow a larger size (buildSize)", format_size(*size))]
    Size {
        /// The operation that was running.
        doing: &'static str,
        /// The limit in bytes.
        size: u64,
    },
    /// The processes took more memory than allowed.
    #[error("{doing} was ended: its processes use more than {} of memory; reduce that, or raise the limit (limits.organization.buildMemory)", format_size(*memory))]
    Memory {
        /// The operation that was running.
        doing: &'static str,
        /// The limit in bytes.
        memory: u64,
    },
    /// The build started more processes than allowed.
    #[error(
        "{doing} was ended: it has more than {processes} processes; reduce that, or raise the limit (limits.organization.buildProcesses)"
    )]
    Processes {
        /// The operation that was running.
        doing: &'static str,
        /// The limit.
        processes: u64,
    },
    /// The build, together with all others, exceeds a limit.
    #[error("{doing} was ended: {}; start the job again later, or raise the limit", reason.describe("builds", *resource))]
    Share {
        /// The operation that was running.
        doing: &'static str,
        /// The exhausted resource.
        resource: SharedResource,
        /// The reached limit: that of the organization, or that of all together.
        reason: LimitReached,
    },
    /// The size of the written files cannot be measured.
    #[error("{doing} was ended: the size of its files cannot be measured because {} cannot be read", path.display())]
    Unmeasurable {
        /// The operation that was running.
        doing: &'static str,
        /// The path that cannot be read.
        path: PathBuf,
        #[source]
        /// The cause.
        source: io::Error,
    },
    /// The operation was cancelled.
    #[error("{0} was cancelled")]
    Cancelled(&'static str),
    /// No sandbox is usable, and the configuration does not allow a build without one.
    #[error(
        "there is no sandbox for the build ({0}); install bubblewrap, or set allowUntrusted = true if every user who may \
             push to the repository may also do everything that this process may do"
    )]
    NoSandbox(String),
    /// No sandbox is usable in an air-gapped deployment.
    #[error(
        "there is no sandbox for the build of an air-gapped origin: bubblewrap or, for root, namespaces ({0}); \
             install bubblewrap, and permit network namespaces to this process"
    )]
    NoIsolation(String),
    /// The folder of the site is missing, or is not a folder within the checkout.
    #[error("cannot use the folder {:?} of the checkout as the site: {reason}", output.display().to_string())]
    Output {
        /// The configured folder.
        output: PathBuf,
        /// The reason.
        reason: &'static str,
    },
    /// A file or program cannot be used.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// The attempted operation.
        doing: &'static str,
        /// The file or program.
        path: PathBuf,
        #[source]
        /// The cause.
        source: io::Error,
    },
}

impl GitError {
    fn io_error(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GitError {
        let path = path.to_owned();
        move |source| GitError::Io { doing, path, source }
    }

    /// Converts the reason why a program was ended to an error.
    fn from_stop(doing: &'static str, git: &GitSource, stop: ProgramStop) -> GitError {
        match stop {
            ProgramStop::Cancelled => GitError::Cancelled(doing),
            ProgramStop::Time => GitError::Time { doing, time: git.max_duration },
            ProgramStop::Size => GitError::Size { doing, size: git.max_bytes },
            ProgramStop::Memory => GitError::Memory { doing, memory: git.max_memory_bytes },
            ProgramStop::Processes => GitError::Processes { doing, processes: git.max_processes },
            ProgramStop::Share(resource, reason) => GitError::Share { doing, resource, reason },
            ProgramStop::Unmeasurable(path, source) => GitError::Unmeasurable { doing, path, source },
            ProgramStop::StartFailed(program, source) => GitError::Io { doing: "run", path: program, source },
        }
    }
}

/// Builds a site from the head of a branch. Blocks for at most `git.max_duration` plus the time to remove files.
/// `work_folder` is an empty folder that the caller removes. `context` gets the log, and can cancel the build.
pub fn build_site(
    git: &GitSource,
    branch: &str,
    work_folder: &Path,
    context: &JobContext,
) -> Result<BuiltSite, GitError> {
    build_site_in(&Sandbox::ALL, git, branch, work_folder, context)
}

/// Does the same as [`build_site`], with the first usable one of these sandboxes.
pub fn build_site_in(
    sandboxes: &[Sandbox],
    git: &GitSource,
    branch: &str,
    work_folder: &Path,
    context: &JobContext,
) -> Result<BuiltSite, GitError> {
    let work_folder = work_folder.canonicalize().map_err(GitError::io_error("find", work_folder))?;
    let limits = ProgramLimits::new(git, context, git.max_duration, &work_folder);
    if !is_branch_name(branch) {
        return Err(GitError::BranchName(branch.to_owned()));
    }
    let site = work_folder.join("site");
    let head = check_out(git, branch, &site, &limits)?;
    if let Some(build) = &git.build {
        let environment = BuildEnvironment::new(git, &site, &limits)?;
        let sandbox = environment.choose(sandboxes)?;
        environment.run_build(sandbox, build, head.committed_at)?;
        environment.remove_build_folders()?;
    }
    let site = site_folder::open(&site, git.output.as_deref())?;
    site_folder::remove_unpublishable(&site, context)?;
    Ok(BuiltSite { site: site.path().to_owned(), commit: head.commit })
}

/// Checks out a branch, and removes the data of git.
fn check_out(
    git: &GitSource,
    branch: &str,
    site: &Path,
    limits: &ProgramLimits<'_>,
) -> Result<client::BranchHead, GitError> {
    let address = RepositoryAddress::parse(&git.repository, &git.outbound_policy)?;
    let home = limits.work_folder.join("git-home");
    let client = GitClient::new(git, &address, home, limits)?;
    let head = client.check_out(branch, site)?;
    client.remove_folders()?;
    Ok(head)
}

/// Kills the remaining processes of builds whose work folders are below this folder, after the process that started
/// them was killed. No build may be running there.
pub fn kill_leftover_builds(folder: &Path) {
    process::kill_leftover_processes(folder);
}

/// Returns the branches of a repository, each with its commit id.
pub fn list_branches(git: &GitSource, context: &JobContext) -> Result<BTreeMap<String, String>, GitError> {
    let address = RepositoryAddress::parse(&git.repository, &git.outbound_policy)?;
    let work_folder = tempfile::tempdir().map_err(GitError::io_error("create a folder in", &std::env::temp_dir()))?;
    let limits = ProgramLimits::new(git, context, git.max_duration.min(LIST_TIMEOUT), work_folder.path());
    GitClient::new(git, &address, work_folder.path().join("git-home"), &limits)?.list_branches()
}
