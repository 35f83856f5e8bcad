//! The configuration: as written ([`raw`]), then checked ([`checked`]). All mistakes are reported at once.

pub mod access;
pub mod checked;
mod checker;
pub mod credentials;
mod gate;
pub mod lists;
pub mod origin;
pub mod protection;
mod publish;
pub mod raw;
mod rules;
pub mod show;
mod space;
pub mod tls;
pub mod unit;
pub mod values;

use std::fmt;
use std::path::PathBuf;

/// A mistake in the configuration, displayed on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The place of the mistake: a file with line and column, or the name of a variable.
    pub place: Place,
    /// The description, which names the key.
    pub what: String,
}

/// The place at which a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// In a file, at this line and column, counted from 1.
    File(PathBuf, usize, usize),
    /// In the environment, in this variable.
    Env(String),
    /// No place: a value is missing.
    Missing,
}

impl Problem {
    /// Sorts mistakes: those in the file by line, then those in the environment, then missing values.
    pub fn sort(problems: &mut [Problem]) {
        problems.sort_by_key(|problem| match problem.place {
            Place::File(_, line, column) => (0, line, column),
            Place::Env(_) => (1, 0, 0),
            Place::Missing => (2, 0, 0),
        });
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File(path, line, column) => {
                write!(f, "{}:{line}:{column}: {}", path.display(), self.what)
            }
            Place::Env(name) => write!(f, "${name}: {}", self.what),
            Place::Missing => write!(f, "configuration: {}", self.what),
        }
    }
}
