//! Sites made from a branch of a Git repository.

use std::path::PathBuf;
use std::time::Duration;

/// A repository, and what is to be done with a branch of it.
#[derive(Debug, Clone)]
pub struct Git {
    /// A URL or a path.
    pub repository: String,
    /// The branch that exports are made of.
    pub branch: String,
    /// The command that builds the site, by `sh -c` in the checkout; without one the checkout is the site.
    pub build: Option<String>,
    /// The folder of the checkout in which the site lies then; without it the checkout itself.
    pub output: Option<PathBuf>,
    /// Whether the build may run as this user where no sandbox is to be had.
    pub allow_untrusted: bool,
    /// How long cloning and building may take together.
    pub time: Duration,
    /// How many bytes a checkout with its build may take.
    pub size: u64,
}
