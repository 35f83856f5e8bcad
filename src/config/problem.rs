//! A mistake in a configuration, and the place at which a value was written.

use std::fmt;
use std::path::{Path, PathBuf};

/// A mistake in the configuration, displayed on one line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The place of the mistake: a file with line and column, or the name of a variable.
    pub place: ConfigPlace,
    /// The description, which names the key.
    pub message: String,
}

/// The place at which a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigPlace {
    /// In a file, at this line and column, counted from 1.
    File(PathBuf, usize, usize),
    /// In the environment, in this variable.
    Env(String),
    /// No place: a value is missing.
    Missing,
}

impl ConfigPlace {
    /// Returns the place of this offset in bytes of the text of a file.
    pub(super) fn in_text(text: &str, offset: usize, path: &Path) -> ConfigPlace {
        let before = &text[..text.floor_char_boundary(offset)];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
        ConfigPlace::File(path.to_owned(), line, column)
    }
}

impl ConfigProblem {
    /// Sorts mistakes: those in the file by line, then those in the environment, then missing values.
    pub fn sort(problems: &mut [ConfigProblem]) {
        problems.sort_by_key(|problem| match problem.place {
            ConfigPlace::File(_, line, column) => (0, line, column),
            ConfigPlace::Env(_) => (1, 0, 0),
            ConfigPlace::Missing => (2, 0, 0),
        });
    }
}

impl fmt::Display for ConfigProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            ConfigPlace::File(path, line, column) => {
                write!(f, "{}:{line}:{column}: {}", path.display(), self.message)
            }
            ConfigPlace::Env(name) => write!(f, "${name}: {}", self.message),
            ConfigPlace::Missing => write!(f, "configuration: {}", self.message),
        }
    }
}
