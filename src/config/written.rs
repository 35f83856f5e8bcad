//! The configuration as written: a value for each known key, with its place. The environment overrides the TOML file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::keys::{SECTIONS, find_key, keys};
use super::systemd_credentials::SystemdCredentials;
use super::table_lists::{self, TABLE_LISTS, TableRow};
use super::{ConfigPlace, ConfigProblem};

/// A value with its place.
#[derive(Debug, Clone)]
pub struct WrittenValue {
    /// The value.
    pub value: ConfigValue,
    /// Its place.
    pub place: ConfigPlace,
}

/// A value of one of the types that keys accept. A value from the environment is a text, and may stand for any type.
#[derive(Clone, PartialEq, Eq)]
pub enum ConfigValue {
    /// A string.
    Text(String),
    /// `true` or `false`.
    Flag(bool),
    /// A whole number.
    Number(i64),
    /// A list of strings.
    Texts(Vec<String>),
}

/// Masks texts, because they may be links, which are secrets.
impl std::fmt::Debug for ConfigValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ConfigValue::Text(_) => "Text(***)",
            ConfigValue::Flag(_) => "Flag",
            ConfigValue::Number(_) => "Number",
            ConfigValue::Texts(_) => "Texts(***)",
        })
    }
}

/// All values as written.
#[derive(Debug, Default)]
pub struct WrittenConfig {
    values: BTreeMap<&'static str, WrittenValue>,
    lists: BTreeMap<&'static str, Vec<TableRow>>,
    /// Mistakes of syntax, unknown keys, and values of a wrong type.
    pub problems: Vec<ConfigProblem>,
    /// Warnings about values that are allowed but probably not intended.
    pub warnings: Vec<ConfigProblem>,
    /// The systemd credentials.
    pub credentials: SystemdCredentials,
}

impl WrittenConfig {
    /// Returns the value of a key, if it was written.
    pub fn get(&self, key: &str) -> Option<&WrittenValue> {
        self.values.get(key)
    }

    /// Returns the folder to which a relative path in this value refers: for a value in the file `beside`, the file's
    /// folder, else the working directory.
    pub fn base_of(&self, key: &str, beside: &Path) -> PathBuf {
        match self.get(key).map(|written| &written.place) {
            Some(ConfigPlace::File(..)) => beside.to_owned(),
            _ => std::env::current_dir().unwrap_or_default(),
        }
    }

    /// Returns the rows of a list.
    pub fn rows(&self, list: &str) -> &[TableRow] {
        self.lists.get(list).map_or(&[], Vec::as_slice)
    }

    /// Reads TOML text; `path` is for messages.
    pub fn read_toml(&mut self, text: &str, path: &Path) {
        let place = |at: usize| {
            let before = &text[..text.floor_char_boundary(at)];
            let line = before.matches('\n').count() + 1;
            let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
            ConfigPlace::File(path.to_owned(), line, column)
        };
        let (table, errors) = DeTable::parse_recoverable(text);
        self.read_table(&table.into_inner(), "", &place);
        if let Some(error) = errors.first() {
            // Text around a mistake of syntax may be read wrongly, so only that mistake is reported.
            let at = error.span().map_or(0, |span| span.start);
            let what = format!("this is not TOML: {}", error.message().replace('\n', ", "));
            self.problems = vec![ConfigProblem { place: place(at), what }];
        }
    }

    fn read_table(&mut self, table: &DeTable<'_>, above: &str, place: &dyn Fn(usize) -> ConfigPlace) {
        for (key, value) in table {
            let name = if above.is_empty() { key.get_ref().to_string() } else { format!("{above}.{}", key.get_ref()) };
            let here = place(key.span().start);
            if let Some(list) = table_lists::find_list(&name) {
                let rows = list.read_rows(self, value.get_ref(), here, place);
                self.lists.insert(list.name, rows);
                continue;
            }
            if SECTIONS.iter().any(|section| section.name == name) {
                if let DeValue::Table(inner) = value.get_ref() {
                    self.read_table(inner, &name, place);
                } else {
                    self.problems
                        .push(ConfigProblem { place: here, what: format!("{name} is a section: write [{name}]") });
                }
                continue;
            }
            match to_value(value.get_ref()) {
                Some(value) => {
                    if !self.insert(&name, value, here.clone()) {
                        self.problems.push(ConfigProblem { place: here, what: unknown_key(&name) });
                    }
                }
                None if find_key(&name).is_some() => {
                    let what = format!("{name} has a value of the wrong kind ({})", value.get_ref().type_str());
                    self.problems.push(ConfigProblem { place: here, what });
                }
                None => self.problems.push(ConfigProblem { place: here, what: unknown_key(&name) }),
            }
        }
    }

    /// Reads environment variables: `DOCWHARF_STATIC_EXPORT__BUNDLE_URL` is `staticExport.bundleUrl`. An unknown name
    /// with `__` is a mistake; other names are ignored (Kubernetes sets some).
    pub fn read_env(&mut self, variables: impl Iterator<Item = (OsString, OsString)>) {
        for (name, value) in variables {
            let Some(name) = name.to_str().filter(|name| name.starts_with("DOCWHARF_")) else { continue };
            if !name.contains("__") {
                // Not an error: Kubernetes sets such names. A name that only lacks the second underscore is probably a
                // mistake.
                let meant = keys().map(|key| variable_name(key.name)).find(|known| known.replace("__", "_") == name);
                if let Some(meant) = meant {
                    let what = format!("this is ignored; did you mean {meant}, with two underscores?");
                    self.warnings.push(ConfigProblem { place: ConfigPlace::Env(name.to_owned()), what });
                }
                continue;
            }
            let place = ConfigPlace::Env(name.to_owned());
            let Some(key) = keys().map(|key| key.name).find(|key| variable_name(key) == name) else {
                let nearest = suggest_nearest(name, keys().map(|key| variable_name(key.name)));
                self.problems.push(ConfigProblem { place, what: format!("no key has this name{nearest}") });
                continue;
            };
            match value.into_string() {
                Ok(text) => {
                    self.insert(key, ConfigValue::Text(text), place);
                }
                Err(_) => self.problems.push(ConfigProblem { place, what: format!("{key} is not UTF-8") }),
            }
        }
    }

    /// Stores a value; `false` if there is no such key.
    fn insert(&mut self, name: &str, value: ConfigValue, place: ConfigPlace) -> bool {
        let Some(key) = find_key(name) else { return false };
        self.values.insert(key.name, WrittenValue { value, place });
        true
    }
}

pub(super) fn to_value(value: &DeValue<'_>) -> Option<ConfigValue> {
    match value {
        DeValue::String(text) => Some(ConfigValue::Text(text.to_string())),
        DeValue::Boolean(flag) => Some(ConfigValue::Flag(*flag)),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok().map(ConfigValue::Number),
        DeValue::Array(items) => {
            let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
            texts.collect::<Option<Vec<String>>>().map(ConfigValue::Texts)
        }
        _ => None,
    }
}

/// Returns the environment variable of a key: upper case, parts of camelCase joined by `_`, levels by `__`.
pub fn variable_name(key: &str) -> String {
    let mut name = String::from("DOCWHARF_");
    for c in key.chars() {
        match c {
            '.' => name.push_str("__"),
            c if c.is_ascii_uppercase() => {
                name.push('_');
                name.push(c);
            }
            c => name.push(c.to_ascii_uppercase()),
        }
    }
    name
}

fn unknown_key(name: &str) -> String {
    // The name may be meant as that of a section.
    let sections = SECTIONS.iter().map(|section| section.name.to_owned());
    let lists = TABLE_LISTS.iter().map(|list| list.name.to_owned());
    let nearest = suggest_nearest(name, keys().map(|key| key.name.to_owned()).chain(sections).chain(lists));
    format!("there is no key {name}{nearest}")
}

pub(super) fn suggest_nearest(name: &str, known: impl Iterator<Item = String>) -> String {
    let scored = known.map(|key| (strsim::damerau_levenshtein(name, &key), key));
    match scored.min() {
        Some((distance, key)) if distance <= 4 => format!("; did you mean {key}?"),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_follow_the_keys() {
        assert_eq!(variable_name("staticExport.bundleUrl"), "DOCWHARF_STATIC_EXPORT__BUNDLE_URL");
        assert_eq!(variable_name("server.listen"), "DOCWHARF_SERVER__LISTEN");
    }

    #[test]
    fn every_mistake_is_reported_with_its_place_and_the_nearest_key() {
        let mut raw = WrittenConfig::default();
        raw.read_toml("[staticExport]\nsha265 = \"x\"\nenabled = true\n\n[sever]\nlisten = 1\n", Path::new("c.toml"));
        raw.read_env([("DOCWHARF_STORE__PTH".into(), "x".into()), ("DOCWHARF_PORT".into(), "x".into())].into_iter());
        ConfigProblem::sort(&mut raw.problems);
        let lines: Vec<String> = raw.problems.iter().map(ToString::to_string).collect();
        assert_eq!(
            lines,
            [
                "c.toml:2:1: there is no key staticExport.sha265; did you mean staticExport.sha256?",
                "c.toml:5:2: there is no key sever; did you mean server?",
                "$DOCWHARF_STORE__PTH: no key has this name; did you mean DOCWHARF_STORE__PATH?",
            ]
        );
    }
}
