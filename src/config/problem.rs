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
    /// Returns what to do about a configuration that could not be read; `None` for a mistake in one that was.
    pub fn advice_to_read(&self) -> Option<&'static str> {
        if !self.message.starts_with("cannot read ") || self.place != ConfigPlace::Missing {
            return None;
        }
        Some(if self.message.contains("Permission denied") {
            "run the command as root (sudo), or as a user who may read the file"
        } else {
            "name a file that can be read with --config; docwharf config init writes one"
        })
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_problems_are_sorted_by_file_position_then_environment_then_no_place() {
        let file = |line, column| ConfigPlace::File("c.toml".into(), line, column);
        let variable = ConfigPlace::Env("DOCWHARF_SYNC__KEEP".to_owned());
        let places = [ConfigPlace::Missing, variable, file(10, 1), file(2, 9), file(2, 1)];
        let mut problems = places.map(|place| ConfigProblem { place, message: "wrong".to_owned() });
        ConfigProblem::sort(&mut problems);
        assert_eq!(
            problems.map(|problem| problem.to_string()),
            [
                "c.toml:2:1: wrong",
                "c.toml:2:9: wrong",
                "c.toml:10:1: wrong",
                "$DOCWHARF_SYNC__KEEP: wrong",
                "configuration: wrong",
            ]
        );
    }

    #[test]
    fn lines_and_columns_count_from_1_and_columns_count_characters() {
        let text = "ä = 1\nöü = 2\n";
        for (offset, line, column) in [(0, 1, 1), (2, 1, 2), (6, 1, 6), (7, 2, 1), (11, 2, 3), (8, 2, 1), (99, 3, 1)] {
            let place = ConfigPlace::in_text(text, offset, Path::new("c.toml"));
            assert_eq!(place, ConfigPlace::File("c.toml".into(), line, column), "{offset}");
        }
    }
}
