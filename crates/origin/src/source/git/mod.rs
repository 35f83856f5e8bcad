//! Sites made from a branch of a Git repository.
//!
//! The `git` program fetches the newest commit and the one before it, tells what changed, and writes the files; what
//! belongs to git is removed again, before anything else runs ([`client`]). Then the build command runs in the checkout, in
//! the best sandbox that this machine has ([`sandbox`]), and whatever it has started is killed when it ends ([`process`]).
//! Both are watched for time, for the size of everything that they write, for memory and for the number of processes.
//!
//! ```text
//! site/       the checkout, and what the build makes of it
//! git/        the repository                    ┐ until the build begins
//! git-home/   git's configuration               ┘
//! home/ tmp/ var-tmp/ shm/ lock/                what the build has beside the checkout, until it ends
//! ```
//!
//! A repository is as trustworthy as whoever may push to it. So git gets a configuration of ours and no other, no hook, no
//! filter and no submodule of the repository has a say, and no protocol that could run programs is allowed. A password in
//! the repository's URL reaches git through its environment alone: no argument, file, log or message has it.

mod address;
mod branch;
mod client;
mod lines;
mod memory;
mod process;
mod sandbox;
mod tree;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use docwharf_base::model::units::show_size;

use super::{NoShare, Resource, Watch};

use address::Address;
use client::Client;
use process::{Bounds, Cut};
use sandbox::Cell;

pub use branch::is_branch_name;
pub use sandbox::Sandbox;

/// Names that a commit tells of each kind.
const NAMES: usize = 1000;
/// How long the names of the branches may take to arrive.
const LISTING: Duration = Duration::from_mins(1);

/// A repository, and what is to be done with a branch of it.
#[derive(Clone)]
pub struct Git {
    /// A URL or a path.
    pub repository: String,
    /// The branch that exports are made of.
    pub branch: String,
    /// The command that builds the site, by `sh -c` in the checkout; without one the checkout is the site.
    pub build: Option<String>,
    /// The folder of the checkout in which the site lies then; without it the checkout itself.
    pub output: Option<PathBuf>,
    /// Folders that the build finds on its PATH before the system's, and in a sandbox read-only where they are: for tools
    /// that are installed outside `/usr`. Absolute.
    pub tools: Vec<PathBuf>,
    /// Whether the build may reach the network; without bubblewrap and namespaces it cannot be kept from it.
    pub network: bool,
    /// Whether the build may run as this user where no sandbox is to be had.
    pub allow_untrusted: bool,
    /// How long cloning and building may take together.
    pub time: Duration,
    /// How many bytes a checkout with its build may take.
    pub size: u64,
    /// How many bytes of memory all processes of a build may take together, and each of them by itself.
    pub memory: u64,
    /// How many processes a build may have at a time.
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

/// Who wrote a commit, as they said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The name.
    pub name: String,
    /// The address for mail.
    pub email: String,
}

/// What a branch holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Commit {
    /// The name of the commit, in hex.
    pub sha: String,
    /// The branch whose head it was.
    pub branch: String,
    /// Its subject and body, cut when long.
    pub message: String,
    /// Who wrote it, if it says so.
    pub author: Option<Author>,
    /// Files that its first parent does not have; the first thousand, as are those below.
    pub added: Vec<String>,
    /// Files that were otherwise in its first parent.
    pub modified: Vec<String>,
    /// Files that only its first parent has.
    pub removed: Vec<String>,
}

/// A site that was made.
#[derive(Debug)]
pub struct Made {
    /// The folder that is the site, within the space that was given.
    pub site: PathBuf,
    /// What it was made of.
    pub commit: Commit,
}

/// Why there is no site.
#[derive(Debug, thiserror::Error)]
pub enum GitError {
    /// There is no `git` program.
    #[error("cannot run git: it is not on the PATH; install it (the package is called git everywhere)")]
    NotInstalled,
    /// The repository is written in a way that is not taken.
    #[error("cannot use the repository {repository}: {why}")]
    Repository {
        /// Without what is secret.
        repository: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// No branch can have this name.
    #[error("{0:?} is no name that a branch can have")]
    BranchName(String),
    /// The repository has no such branch.
    #[error("{repository} has no branch {branch:?}")]
    NoBranch {
        /// Without what is secret.
        repository: String,
        /// The branch.
        branch: String,
    },
    /// git said no.
    #[error("cannot {doing} {repository}: git says: {said}")]
    Git {
        /// What for.
        doing: &'static str,
        /// Without what is secret.
        repository: String,
        /// Its last lines.
        said: String,
    },
    /// The build said no.
    #[error("the build {build:?} failed: {how}{}{said}", if said.is_empty() { "" } else { "; it ends with: " })]
    Build {
        /// The command.
        build: String,
        /// Its exit code or signal.
        how: String,
        /// Its last lines.
        said: String,
    },
    /// It took too long.
    #[error("{doing} was ended: cloning and building took longer than {} s together; give it more time", time.as_secs())]
    Time {
        /// What was under way.
        doing: &'static str,
        /// What was allowed.
        time: Duration,
    },
    /// It grew too large.
    #[error("{doing} was ended: checkout and build take more than {}; allow a larger size", show_size(*size))]
    Size {
        /// What was under way.
        doing: &'static str,
        /// What was allowed, in bytes.
        size: u64,
    },
    /// It took too much memory.
    #[error("{doing} was ended: its processes take more than {} of memory; make it take less, or allow more (limits.organization.buildMemory)", show_size(*memory))]
    Memory {
        /// What was under way.
        doing: &'static str,
        /// What was allowed, in bytes.
        memory: u64,
    },
    /// It started too many processes.
    #[error(
        "{doing} was ended: it has more than {processes} processes; make it start fewer, or allow more (limits.organization.buildProcesses)"
    )]
    Processes {
        /// What was under way.
        doing: &'static str,
        /// What was allowed.
        processes: u64,
    },
    /// With all other builds it takes more than a limit allows.
    #[error("{doing} was ended: {}; start it again later, or raise that limit", why.reached("builds", *resource))]
    Share {
        /// What was under way.
        doing: &'static str,
        /// Of what there is no more.
        resource: Resource,
        /// For whom.
        why: NoShare,
    },
    /// What was written cannot be measured.
    #[error("{doing} was ended: what it has written cannot be measured because {} cannot be read", path.display())]
    Hidden {
        /// What was under way.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        #[source]
        /// Why not.
        source: io::Error,
    },
    /// Somebody has asked to stop.
    #[error("{0} was ended because that was asked for")]
    Over(&'static str),
    /// The build would run unguarded.
    #[error(
        "there is no sandbox for the build ({0}); install bubblewrap, or set allowUntrusted = true if whoever may push to \
             the repository may also do all that this process may"
    )]
    NoSandbox(String),
    /// The build has not made what it should, or not as a folder of its own.
    #[error("the site should be in the folder {:?} of the checkout, and {why}", output.display().to_string())]
    Output {
        /// What was configured.
        output: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file or a program was not to be had.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// What for.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        #[source]
        /// Why not.
        source: io::Error,
    },
}

impl GitError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GitError {
        let path = path.to_owned();
        move |source| GitError::Io { doing, path, source }
    }

    /// Why something had to end before its time.
    fn cut(doing: &'static str, git: &Git, cut: Cut) -> GitError {
        match cut {
            Cut::Over => GitError::Over(doing),
            Cut::Time => GitError::Time { doing, time: git.time },
            Cut::Size => GitError::Size { doing, size: git.size },
            Cut::Memory => GitError::Memory { doing, memory: git.memory },
            Cut::Processes => GitError::Processes { doing, processes: git.processes },
            Cut::Share(resource, why) => GitError::Share { doing, resource, why },
            Cut::Hidden(path, source) => GitError::Hidden { doing, path, source },
            Cut::Start(program, source) => GitError::Io { doing: "run", path: program, source },
        }
    }
}

/// Makes a site of the head of a branch. Blocks, at most for `git.time` and the moment that removing takes. `space` is an
/// empty folder of ours that the caller removes; `watch` is told what is done, and is asked whether to go on.
pub fn make(git: &Git, branch: &str, space: &Path, watch: &Watch) -> Result<Made, GitError> {
    make_among(&Sandbox::ALL, git, branch, space, watch)
}

/// As [`make`], in the first usable one of these sandboxes.
pub fn make_among(
    sandboxes: &[Sandbox],
    git: &Git,
    branch: &str,
    space: &Path,
    watch: &Watch,
) -> Result<Made, GitError> {
    let space = space.canonicalize().map_err(GitError::io("find", space))?;
    let bounds = Bounds::new(git, watch, git.time, &space);
    if !is_branch_name(branch) {
        return Err(GitError::BranchName(branch.to_owned()));
    }
    let site = space.join("site");
    let commit = check_out(git, branch, &site, &bounds)?;
    if let Some(build) = &git.build {
        let cell = Cell::new(git, &site, &bounds)?;
        let chosen = cell.choose(sandboxes)?;
        cell.build(chosen, build, commit.made)?;
        cell.sweep()?;
    }
    let site = tree::output(&site, git.output.as_deref())?;
    tree::tidy(&site, watch)?;
    Ok(Made { site, commit: commit.commit })
}

/// Leaves the files alone behind.
fn check_out(git: &Git, branch: &str, site: &Path, bounds: &Bounds<'_>) -> Result<client::Head, GitError> {
    let address = Address::read(&git.repository)?;
    let home = bounds.space.join("git-home");
    let client = Client::new(git, &address, home, bounds)?;
    let head = client.check_out(branch, site)?;
    client.remove()?;
    Ok(head)
}

/// Ends what builds in the spaces below this folder have left behind in a process that was killed. Nobody may be building
/// there.
pub fn end_left(folder: &Path) {
    process::kill_left(folder);
}

/// The branches of a repository, and the commit that each one leads to.
pub fn branches(git: &Git, watch: &Watch) -> Result<BTreeMap<String, String>, GitError> {
    let address = Address::read(&git.repository)?;
    let space = tempfile::tempdir().map_err(GitError::io("make a folder in", &std::env::temp_dir()))?;
    let bounds = Bounds::new(git, watch, git.time.min(LISTING), space.path());
    Client::new(git, &address, space.path().join("git-home"), &bounds)?.branches()
}
