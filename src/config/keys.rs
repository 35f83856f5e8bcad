//! The table of all keys: one row a key, with its type, bounds, default and explanation. The checks, `config show`,
//! `config init`, `config schema` and docs/configuration.md all take them from here.

mod serving;
mod source;
mod versions;

use std::time::Duration;

use serving::{ACCESS, ADMIN, SERVER, TLS};
use source::{API, NETWORK, STATIC_EXPORT, SYNC};
use versions::{ACTIVATE, GATE, LIMITS, PUBLISH, STORE};

/// All sections, in the order in which `config show` and `config init` print them.
pub const SECTIONS: &[Section] =
    &[STATIC_EXPORT, API, SYNC, NETWORK, STORE, SERVER, TLS, ACCESS, ADMIN, GATE, ACTIVATE, PUBLISH, LIMITS];

/// A section (a table in TOML) with its keys.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// The name.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [ConfigKey],
}

/// A key of the configuration.
#[derive(Debug, Clone, Copy)]
pub struct ConfigKey {
    /// The name with its section.
    pub name: &'static str,
    /// The type and the bounds of its values.
    pub value_type: ValueType,
    /// The default in TOML if no other key and no variable decides it; empty if there is none.
    pub default: &'static str,
    /// The default in Markdown, if `default` does not say everything about it.
    pub default_note: &'static str,
    /// A value in TOML as an example, if the key has no default.
    pub example: &'static str,
    /// The meaning in a few words, in Markdown: for the handbook and the schema.
    pub help: &'static str,
    /// The explanation in the example configuration. A key without one shares that of the key before it.
    pub comment: &'static str,
}

/// The row of a key about which nothing is known. Rows of the table name the fields that differ.
const KEY: ConfigKey = ConfigKey {
    name: "",
    value_type: ValueType::Text,
    default: "",
    default_note: "",
    example: "",
    help: "",
    comment: "",
};

impl ConfigKey {
    /// Returns the section and the name within it.
    pub fn parts(&self) -> (&'static str, &'static str) {
        self.name.split_once('.').unwrap_or(("", self.name))
    }
}

/// The type of a value, with its bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueType {
    /// `true` or `false`.
    Flag,
    /// A whole number from `min` to `max`.
    Number {
        /// The smallest number.
        min: u64,
        /// The largest number.
        max: u64,
    },
    /// A duration of at least `min`.
    Duration {
        /// The shortest duration.
        min: Duration,
    },
    /// A duration of at least `min`, or none (`0s`).
    DurationOrZero {
        /// The shortest duration besides `0s`.
        min: Duration,
    },
    /// A size from `min` to `max` bytes.
    Size {
        /// The smallest size in bytes.
        min: u64,
        /// The largest size in bytes.
        max: u64,
    },
    /// Whole percent, such as `30%`.
    Percent,
    /// Octal digits in quotes, as `chmod` and `umask` take them.
    Mode,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these words.
    Words(&'static [&'static str]),
    /// A text with a syntax of its own.
    Text,
    /// A path, relative to the file that contains it.
    Path,
    /// An http or https URL.
    Url,
    /// A URL that may be a secret, or a path.
    Location,
    /// A list of texts. A single text is allowed, too; it is split at commas.
    Texts,
    /// A list of http and https URLs, like [`ValueType::Texts`].
    Urls,
}

/// A size without bounds.
const ANY_SIZE: ValueType = ValueType::Size { min: 0, max: u64::MAX };

impl ValueType {
    /// Returns whether values may be URLs that contain secrets.
    pub fn may_be_secret(self) -> bool {
        matches!(self, ValueType::Url | ValueType::Location | ValueType::Urls)
    }

    /// Returns whether a value is a list.
    pub fn is_list(self) -> bool {
        matches!(self, ValueType::Words(_) | ValueType::Texts | ValueType::Urls)
    }
}

/// Lists the keys.
pub fn keys() -> impl Iterator<Item = ConfigKey> {
    SECTIONS.iter().flat_map(|section| section.keys).copied()
}

/// Finds the key of this name.
pub fn find_key(name: &str) -> Option<ConfigKey> {
    keys().find(|key| key.name == name)
}

/// Formats the bounds of a size in KiB: `1KiB to 64KiB`.
pub(super) fn size_range(min: u64, max: u64) -> String {
    format!("{}KiB to {}KiB", min >> 10, max >> 10)
}
