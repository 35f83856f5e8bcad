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
mod site_folder;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use docwharf_base::model::units::show_size;

use super::{JobContext, LimitReached, SharedResource};

use address::RepositoryAddress;
use client::GitClient;
use process::{ProgramLimits, ProgramStop};
use sandbox::BuildEnvironment;

pub use branch::is_branch_name;
pub use sandbox::Sandbox;

/// Maximum number of file names that a commit lists for each kind of change.
const NAMES: usize = 1000;
/// Timeout for listing the branches of a repository.
const LISTING: Duration = Duration::from_mins(1);

/// A repository, and how a site is built from a branch of it.
#[derive(Clone)]
pub struct Git {
    /// A URL or a path.
    pub repository: String,
    /// The branch that exports are built from.
    pub branch: String,
    /// The command that builds the site, run by `sh -c` in the checkout; without one the checkout is the site.
    pub build: Option<String>,
    /// The folder of the checkout that is the site after the build; without it, the checkout itself.
    pub output: Option<PathBuf>,
    /// Folders that precede those of the system on the PATH of the build. In a sandbox they are read-only at the same
    /// path. They are meant for tools that are installed outside `/usr`. Absolute paths.
    pub tools: Vec<PathBuf>,
    /// Whether the build may use the network; without bubblewrap and namespaces it cannot be prevented.
    pub network: bool,
    /// Whether the build may run as this process's user if no sandbox is available.
    pub allow_untrusted: bool,
    /// Maximum time of cloning and building together.
    pub time: Duration,
    /// Maximum size of a checkout with its build, in bytes.
    pub size: u64,
    /// Maximum memory of all processes of a build together, and of each of them, in bytes.
    pub memory: u64,
    /// Maximum number of processes of a build at a time.
    pub processes: u64,
}

impl fmt::Debug for Git {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Git")
            .field("repository", &address::redact(&self.repository))
            .field("branch", &self.branch)
            .field("build", &self.build)
            .field("output", &self.output)
            .field("tools", &self.tools)
            .field("network", &self.network)
            .field("allow_untrusted", &self.allow_untrusted)
            .field("time", &self.time)
            .field("size", &self.size)
            .field("memory", &self.memory)
            .field("processes", &self.processes)
            .finish()
    }
}

/// Author of a commit, as the commit names them.
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
    /// Its subject and body, cut if long.
    pub message: String,
    /// Its author, if it names one.
    pub author: Option<GitAuthor>,
    /// Files that its first parent does not have; at most the first 1000, as in the lists below.
    pub added: Vec<String>,
    /// Files that its first parent has with another content.
    pub modified: Vec<String>,
    /// Files that only its first parent has.
    pub removed: Vec<String>,
}

/// A site that was built.
#[derive(Debug)]
pub struct BuiltSite {
    /// The folder of the site, within the given space.
    pub site: PathBuf,
    /// The commit that it was built from.
    pub commit: GitCommit,
}

/// Reason why there is no site.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// The `git` program is not installed.
    #[error("cannot run git: it is not on the PATH; install it (the package is called git everywhere)")]
    NotInstalled,
    /// The address of the repository is not accepted.
    #[error("cannot use the repository {repository}: {why}")]
    Repository {
        /// The redacted address of the repository.
        repository: String,
        /// The reason.
        why: &'static str,
    },
    /// No branch can have this name.
    #[error("{0:?} is no name that a branch can have")]
    BranchName(String),
    /// The repository has no such branch.
    #[error("{repository} has no branch {branch:?}")]
    NoBranch {
        /// The redacted address of the repository.
        repository: String,
        /// The branch.
        branch: String,
    },
    /// The `git` program failed.
    #[error("cannot {doing} {repository}: git says: {said}")]
    Git {
        /// The attempted operation.
        doing: &'static str,
        /// The redacted address of the repository.
        repository: String,
        /// Its last lines of output.
        said: String,
    },
    /// The build command failed.
    #[error("the build {build:?} failed: {how}{}{said}", if said.is_empty() { "" } else { "; it ends with: " })]
    Build {
        /// The command.
        build: String,
        /// Its exit code or signal.
        how: String,
        /// Its last lines of output.
        said: String,
    },
    /// Cloning and building took longer than allowed.
    #[error("{doing} was ended: cloning and building took longer than {} s together; give it more time", time.as_secs())]
    Time {
        /// The operation that was running.
        doing: &'static str,
        /// The limit.
        time: Duration,
    },
    /// Checkout and build took more space than allowed.
    #[error("{doing} was ended: checkout and build take more than {}; allow a larger size", show_size(*size))]
    Size {
        /// The operation that was running.
        doing: &'static str,
        /// The limit in bytes.
        size: u64,
    },
    /// The processes took more memory than allowed.
    #[error("{doing} was ended: its processes take more than {} of memory; make it take less, or allow more (limits.organization.buildMemory)", show_size(*memory))]
    Memory {
        /// The operation that was running.
        doing: &'static str,
        /// The limit in bytes.
        memory: u64,
    },
    /// The build started more processes than allowed.
    #[error(
        "{doing} was ended: it has more than {processes} processes; make it start fewer, or allow more (limits.organization.buildProcesses)"
    )]
    Processes {
        /// The operation that was running.
        doing: &'static str,
        /// The limit.
        processes: u64,
    },
    /// The build, together with all others, exceeds a limit.
    #[error("{doing} was ended: {}; start it again later, or raise that limit", why.describe("builds", *resource))]
    Share {
        /// The operation that was running.
        doing: &'static str,
        /// The exhausted resource.
        resource: SharedResource,
        /// The reached limit: that of the organization, or that of all together.
        why: LimitReached,
    },
    /// The size of the written files cannot be measured.
    #[error("{doing} was ended: what it has written cannot be measured because {} cannot be read", path.display())]
    Hidden {
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
    Over(&'static str),
    /// No sandbox is usable, and the configuration does not allow a build without one.
    #[error(
        "there is no sandbox for the build ({0}); install bubblewrap, or set allowUntrusted = true if whoever may push to \
             the repository may also do all that this process may"
    )]
    NoSandbox(String),
    /// The folder of the site is missing, or is not a folder within the checkout.
    #[error("the site should be in the folder {:?} of the checkout, and {why}", output.display().to_string())]
    Output {
        /// The configured folder.
        output: PathBuf,
        /// The reason.
        why: &'static str,
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
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GitError {
        let path = path.to_owned();
        move |source| GitError::Io { doing, path, source }
    }

    /// Converts the reason why a program was ended to an error.
    fn cut(doing: &'static str, git: &Git, cut: ProgramStop) -> GitError {
        match cut {
            ProgramStop::Over => GitError::Over(doing),
            ProgramStop::Time => GitError::Time { doing, time: git.time },
            ProgramStop::Size => GitError::Size { doing, size: git.size },
            ProgramStop::Memory => GitError::Memory { doing, memory: git.memory },
            ProgramStop::Processes => GitError::Processes { doing, processes: git.processes },
            ProgramStop::Share(resource, why) => GitError::Share { doing, resource, why },
            ProgramStop::Hidden(path, source) => GitError::Hidden { doing, path, source },
            ProgramStop::Start(program, source) => GitError::Io { doing: "run", path: program, source },
        }
    }
}

/// Builds a site from the head of a branch. Blocks for at most `git.time` plus the time to remove files. `space` is an
/// empty folder that the caller removes. `watch` gets the log, and can cancel the build.
pub fn build_site(git: &Git, branch: &str, space: &Path, watch: &JobContext) -> Result<BuiltSite, GitError> {
    make_among(&Sandbox::ALL, git, branch, space, watch)
}

/// Does [`make`] in the first usable one of these sandboxes.
pub fn make_among(
    sandboxes: &[Sandbox],
    git: &Git,
    branch: &str,
    space: &Path,
    watch: &JobContext,
) -> Result<BuiltSite, GitError> {
    let space = space.canonicalize().map_err(GitError::io("find", space))?;
    let bounds = ProgramLimits::new(git, watch, git.time, &space);
    if !is_branch_name(branch) {
        return Err(GitError::BranchName(branch.to_owned()));
    }
    let site = space.join("site");
    let commit = check_out(git, branch, &site, &bounds)?;
    if let Some(build) = &git.build {
        let cell = BuildEnvironment::new(git, &site, &bounds)?;
        let chosen = cell.choose(sandboxes)?;
        cell.build(chosen, build, commit.made)?;
        cell.sweep()?;
    }
    let site = site_folder::open(&site, git.output.as_deref())?;
    site_folder::remove_unpublishable(&site, watch)?;
    Ok(BuiltSite { site: site.path().to_owned(), commit: commit.commit })
}

/// Checks out a branch; afterwards only its files remain.
fn check_out(git: &Git, branch: &str, site: &Path, bounds: &ProgramLimits<'_>) -> Result<client::BranchHead, GitError> {
    let address = RepositoryAddress::read(&git.repository)?;
    let home = bounds.space.join("git-home");
    let client = GitClient::new(git, &address, home, bounds)?;
    let head = client.check_out(branch, site)?;
    client.remove()?;
    Ok(head)
}

/// Kills processes that builds in the spaces below this folder have left, after the process that started them was
/// killed. No build may be running there.
pub fn kill_leftover_builds(folder: &Path) {
    process::kill_left(folder);
}

/// Returns the branches of a repository, each with its commit id.
pub fn branches(git: &Git, watch: &JobContext) -> Result<BTreeMap<String, String>, GitError> {
    let address = RepositoryAddress::read(&git.repository)?;
    let space = tempfile::tempdir().map_err(GitError::io("make a folder in", &std::env::temp_dir()))?;
    let bounds = ProgramLimits::new(git, watch, git.time.min(LISTING), space.path());
    GitClient::new(git, &address, space.path().join("git-home"), &bounds)?.branches()
}
