//! The types of a table of keys: one row a key, with its type, bounds, default and explanation. [`WrittenConfig`] reads
//! a file by such a table; the documents of its keys are made of it, or compared with it.
//!
//! [`WrittenConfig`]: super::written::WrittenConfig

use std::time::Duration;

/// All keys of one configuration file.
#[derive(Debug, Clone, Copy)]
pub struct KeyTable {
    /// The sections, in the order in which they are printed.
    pub sections: &'static [Section],
    /// The lists of tables.
    pub lists: &'static [TableList],
}

impl KeyTable {
    /// Lists the keys of the sections.
    pub fn keys(&self) -> impl Iterator<Item = ConfigKey> + use<> {
        self.sections.iter().flat_map(|section| section.keys).copied()
    }

    /// Finds the key of this name in the sections.
    pub fn find_key(&self, name: &str) -> Option<ConfigKey> {
        self.keys().find(|key| key.name == name)
    }

    /// Lists the names with which an unknown key is compared: those of keys, sections and lists.
    pub(super) fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        let parents = self.sections.iter().filter_map(|section| Some(section.name.split_once('.')?.0));
        let sections = self.sections.iter().map(|section| section.name).chain(parents);
        let lists = self.lists.iter().map(|list| list.name);
        self.keys().map(|key| key.name).chain(sections).chain(lists)
    }
}

/// A section (a table in TOML) with its keys.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// The name, with dots between the parts of a table within a table.
    pub name: &'static str,
    /// Its keys.
    pub keys: &'static [ConfigKey],
}

/// A list of tables, such as `[[server.redirects]]`. It can be set in the file only, not in the environment.
#[derive(Debug, Clone, Copy)]
pub struct TableList {
    /// The name, with that of the section or list that contains it.
    pub name: &'static str,
    /// The keys of a row.
    pub keys: &'static [ConfigKey],
    /// The lists in each row.
    pub lists: &'static [TableList],
}

impl TableList {
    /// Finds the key of a row by its name within the row.
    pub fn find_key(&self, name: &str) -> Option<ConfigKey> {
        self.keys.iter().find(|key| key.parts().1 == name).copied()
    }
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
    /// The default in Markdown, if `default` alone does not describe it.
    pub default_note: &'static str,
    /// A value in TOML as an example, if the key has no default.
    pub example: &'static str,
    /// The meaning in a few words, in Markdown: for the handbook and the schema.
    pub help: &'static str,
    /// The explanation in the example configuration. A key without one shares the explanation of the key before it.
    pub comment: &'static str,
}

/// A row with empty fields. Rows of the table set the fields that differ.
pub(super) const KEY: ConfigKey = ConfigKey {
    name: "",
    value_type: ValueType::Text,
    default: "",
    default_note: "",
    example: "",
    help: "",
    comment: "",
};

impl ConfigKey {
    /// Returns the section (or the list) and the name within it.
    pub fn parts(&self) -> (&'static str, &'static str) {
        self.name.rsplit_once('.').unwrap_or(("", self.name))
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
    /// Octal digits in quotes, as for `chmod` and `umask`.
    Mode,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A list of these words.
    Words(&'static [&'static str]),
    /// A text with its own syntax.
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
    /// A status of HTTP that a rule may have.
    Status,
    /// A table with arbitrary names, each with a text or a list of texts; only in a row of a list.
    TextTable,
}

/// A size without bounds.
pub(super) const ANY_SIZE: ValueType = ValueType::Size { min: 0, max: u64::MAX };

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

/// Formats the bounds of a size: `1KiB to 64KiB`.
pub(super) fn size_range(min: u64, max: u64) -> String {
    format!("{} to {}", exact_size(min), exact_size(max))
}

/// Formats a size in the largest unit that divides it: `1MiB`.
pub(super) fn exact_size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units.into_iter().find(|(bits, _)| bytes > 0 && bytes.trailing_zeros() >= *bits);
    unit.map_or_else(|| format!("{bytes}B"), |(bits, name)| format!("{}{name}", bytes >> bits))
}
