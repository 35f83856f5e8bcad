//! A configuration as written: a value for each key of its table, with its place. The environment overrides the TOML
//! file.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

use super::key_table::{KeyTable, TableList, ValueType};
use super::keys::AGENT_KEYS;
use super::problem::{ConfigPlace, ConfigProblem};
use super::systemd_credentials::SystemdCredentials;
use super::written_value::{ConfigValue, TableRow, WrittenValue};

/// The longest part of the text that a message about syntax quotes.
const MAX_QUOTED_NAME_BYTES: usize = 80;

/// All values as written.
#[derive(Debug)]
pub struct WrittenConfig {
    keys: &'static KeyTable,
    values: BTreeMap<&'static str, WrittenValue>,
    sections: BTreeMap<&'static str, ConfigPlace>,
    rows: Vec<TableRow>,
    /// Mistakes of syntax, unknown keys, and values of a wrong type.
    pub problems: Vec<ConfigProblem>,
    /// Warnings about values that are allowed but probably not intended.
    pub warnings: Vec<ConfigProblem>,
    /// The systemd credentials.
    pub credentials: SystemdCredentials,
}

/// The configuration of an agent, with no value.
impl Default for WrittenConfig {
    fn default() -> WrittenConfig {
        WrittenConfig::new(&AGENT_KEYS)
    }
}

impl WrittenConfig {
    /// Creates a configuration with the keys of this table and no value.
    pub(super) fn new(keys: &'static KeyTable) -> WrittenConfig {
        WrittenConfig {
            keys,
            values: BTreeMap::new(),
            sections: BTreeMap::new(),
            rows: Vec::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            credentials: SystemdCredentials::default(),
        }
    }

    /// Returns the table of all keys.
    pub(super) fn keys(&self) -> &'static KeyTable {
        self.keys
    }

    /// Returns the place of a section, if the file has it.
    #[cfg(feature = "origin")]
    pub(super) fn section(&self, name: &str) -> Option<&ConfigPlace> {
        self.sections.get(name)
    }

    /// Returns the value of a key, if it was written.
    pub fn get(&self, key: &str) -> Option<&WrittenValue> {
        self.values.get(key)
    }

    /// Returns the folder to which a relative path in this value refers: `config_folder`, the folder of the file, for a
    /// value in the file, else the working directory.
    pub fn base_of(&self, key: &str, config_folder: &Path) -> PathBuf {
        match self.get(key).map(|written| &written.place) {
            Some(ConfigPlace::File(..)) => config_folder.to_owned(),
            _ => std::env::current_dir().unwrap_or_default(),
        }
    }

    /// Returns the rows of a list.
    pub fn rows(&self, list: &str) -> impl DoubleEndedIterator<Item = &TableRow> {
        self.rows.iter().filter(move |row| row.list.name == list)
    }

    /// Reads TOML text; `path` is for messages.
    pub fn read_toml(&mut self, text: &str, path: &Path) {
        let place = |offset: usize| ConfigPlace::in_text(text, offset, path);
        let (table, errors) = DeTable::parse_recoverable(text);
        self.read_table(&table.into_inner(), "", &place);
        if let Some(error) = errors.first() {
            // Text around a mistake of syntax may be read wrongly, so only that mistake is reported.
            let offset = error.span().map_or(0, |span| span.start);
            let message = format!("this is not TOML: {}", describe_syntax_error(error, text));
            self.problems = vec![ConfigProblem { place: place(offset), message }];
        }
    }

    fn read_table(&mut self, table: &DeTable<'_>, parent: &str, place: &dyn Fn(usize) -> ConfigPlace) {
        for (key, value) in table {
            let name =
                if parent.is_empty() { key.get_ref().to_string() } else { format!("{parent}.{}", key.get_ref()) };
            let key_place = place(key.span().start);
            if let Some(list) = self.keys.lists.iter().find(|list| list.name == name) {
                let rows = self.read_rows(list, value.get_ref(), key_place, place);
                self.rows.extend(rows);
                continue;
            }
            let section = self.keys.sections.iter().find(|section| section.name == name);
            let contains_sections =
                || self.keys.sections.iter().any(|section| section.name.starts_with(&format!("{name}.")));
            if section.is_some() || contains_sections() {
                if let Some(section) = section {
                    self.sections.insert(section.name, key_place.clone());
                }
                if let DeValue::Table(inner) = value.get_ref() {
                    self.read_table(inner, &name, place);
                } else {
                    self.problem(key_place, format!("{name} is a section: write [{name}]"));
                }
                continue;
            }
            let Some(known) = self.keys.find_key(&name) else {
                self.problem(key_place, unknown_key(&name, self.keys.names()));
                continue;
            };
            match ConfigValue::from_toml(value.get_ref()) {
                Some(value) => drop(self.values.insert(known.name, WrittenValue { value, place: key_place })),
                None => self.problem(key_place, wrong_kind(&name, value.get_ref())),
            }
        }
    }

    fn problem(&mut self, place: ConfigPlace, message: String) {
        self.problems.push(ConfigProblem { place, message });
    }

    fn read_rows(
        &mut self,
        list: &'static TableList,
        value: &DeValue<'_>,
        key_place: ConfigPlace,
        place: &dyn Fn(usize) -> ConfigPlace,
    ) -> Vec<TableRow> {
        let mut rows = Vec::new();
        let items = if let DeValue::Array(items) = value { Some(items) } else { None };
        for item in items.into_iter().flatten() {
            let DeValue::Table(table) = item.get_ref() else { continue };
            let mut row = TableRow { list, place: place(item.span().start), items: Vec::new(), rows: Vec::new() };
            self.read_row(table, "", &mut row, place);
            rows.push(row);
        }
        if items.is_none_or(|items| items.len() > rows.len()) {
            self.problem(key_place, format!("{name} is a list of tables: write [[{name}]]", name = list.name));
        }
        rows
    }

    /// Reads a row. `parent` is empty, or the name of a table in the row, with a dot; such a table has arbitrary names.
    fn read_row(
        &mut self,
        table: &DeTable<'_>,
        parent: &str,
        row: &mut TableRow,
        place: &dyn Fn(usize) -> ConfigPlace,
    ) {
        let list = row.list;
        for (key, value) in table {
            let name = format!("{parent}{}", key.get_ref());
            let full = format!("{}.{name}", list.name);
            let key_place = place(key.span().start);
            if let Some(inner) = list.lists.iter().find(|inner| inner.name == full) {
                let rows = self.read_rows(inner, value.get_ref(), key_place, place);
                row.rows.extend(rows);
                continue;
            }
            let known = list.find_key(&name);
            if known.is_some_and(|key| key.value_type == ValueType::TextTable) {
                match value.get_ref() {
                    DeValue::Table(inner) => self.read_row(inner, &format!("{name}."), row, place),
                    _ => self.problem(key_place, format!("{full} is a table: write {name} = {{ Name = \"value\" }}")),
                }
            } else if known.is_none() && parent.is_empty() {
                let names = list.keys.iter().map(|key| key.name).chain(list.lists.iter().map(|inner| inner.name));
                self.problem(key_place, unknown_key(&full, names));
            } else if let Some(value) = ConfigValue::from_toml(value.get_ref()) {
                row.items.push((name, WrittenValue { value, place: key_place }));
            } else {
                self.problem(key_place, wrong_kind(&full, value.get_ref()));
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
                let suggestion =
                    self.keys.keys().map(|key| variable_name(key.name)).find(|known| known.replace("__", "_") == name);
                if let Some(suggestion) = suggestion {
                    let message = format!("this is ignored; did you mean {suggestion}, with two underscores?");
                    self.warnings.push(ConfigProblem { place: ConfigPlace::Env(name.to_owned()), message });
                }
                continue;
            }
            let place = ConfigPlace::Env(name.to_owned());
            let Some(key) = self.keys.keys().map(|key| key.name).find(|key| variable_name(key) == name) else {
                let nearest = suggest_nearest(name, self.keys.keys().map(|key| variable_name(key.name)));
                self.problem(place, format!("no key has this name{nearest}"));
                continue;
            };
            match value.into_string() {
                Ok(text) => {
                    self.values.insert(key, WrittenValue { value: ConfigValue::Text(text), place });
                }
                Err(_) => self.problem(place, format!("{key} is not UTF-8")),
            }
        }
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

/// Describes a mistake of syntax. The messages of the parser for the two most frequent ones do not name the key, or are
/// hard to understand.
fn describe_syntax_error(error: &toml::de::Error, text: &str) -> String {
    let written = error.span().and_then(|span| text.get(span)).unwrap_or_default().trim();
    let is_name = !written.is_empty() && written.len() <= MAX_QUOTED_NAME_BYTES && !written.contains('\n');
    match error.message() {
        "duplicate key" if is_name => format!("{written} is written twice; keep one"),
        message if message.starts_with("string values must be quoted") => "a text must be in quotes".to_owned(),
        message => message.replace('\n', ", "),
    }
}

fn unknown_key(name: &str, known: impl Iterator<Item = &'static str>) -> String {
    format!("there is no key {name}{}", suggest_nearest(name, known.map(str::to_owned)))
}

fn wrong_kind(name: &str, value: &DeValue<'_>) -> String {
    format!("{name} has a value of the wrong kind ({})", value.type_str())
}

fn suggest_nearest(name: &str, known: impl Iterator<Item = String>) -> String {
    let scored = known.map(|key| (strsim::damerau_levenshtein(name, &key), key));
    match scored.min() {
        Some((distance, key)) if distance <= max_distance(name).max(max_distance(&key)) => {
            format!("; did you mean {key}?")
        }
        _ => String::new(),
    }
}

/// Returns the largest distance of a similar name: half of its last part, because the sections agree in most names, and
/// at most 4.
fn max_distance(name: &str) -> usize {
    let last = name.rsplit(['.', '_']).next().unwrap_or(name);
    (last.chars().count() / 2).min(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variable_names_are_derived_from_config_keys() {
        assert_eq!(variable_name("staticExport.bundleUrl"), "DOCWHARF_STATIC_EXPORT__BUNDLE_URL");
        assert_eq!(variable_name("server.listen"), "DOCWHARF_SERVER__LISTEN");
    }

    #[test]
    fn unknown_agent_keys_are_reported_with_their_place_and_the_nearest_key() {
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

    /// The mistakes in a text, each on one line.
    fn problems(text: &str) -> Vec<String> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("c.toml"));
        raw.problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unknown_key_suggests_only_a_similar_key_and_a_section_is_not_a_value() {
        for (text, expected) in [
            ("[server]\nbad = 1\n", "c.toml:2:1: there is no key server.bad"),
            // Four changes are near, five are not.
            ("[sync]\nkeepwxyz = 1\n", "c.toml:2:1: there is no key sync.keepwxyz; did you mean sync.keep?"),
            ("[sync]\nkeepvwxyz = 1\n", "c.toml:2:1: there is no key sync.keepvwxyz"),
            ("sync = 1\n", "c.toml:1:1: sync is a section: write [sync]"),
            ("[sync]\nkeep = 1.5\n", "c.toml:2:1: sync.keep has a value of the wrong kind (float)"),
            ("[sync]\nkeep = 99999999999999999999\n", "c.toml:2:1: sync.keep has a value of the wrong kind (integer)"),
            // Columns count characters, not bytes.
            (
                "store = { path = \"ä\", maxBytes = 1.5 }\n",
                "c.toml:1:23: store.maxBytes has a value of the wrong kind (float)",
            ),
            (
                "[server]\nredirects = [{ source = \"/a\", destination = \"/b\" }, \"/c /d\"]\n",
                "c.toml:2:1: server.redirects is a list of tables: write [[server.redirects]]",
            ),
        ] {
            assert_eq!(problems(text).first().map(String::as_str), Some(expected), "{text}");
        }
    }

    #[test]
    fn toml_syntax_error_is_the_only_problem_that_is_reported() {
        let found = problems("[sever]\nlisten = 1\n[sync]\nkeep = = 3\n");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].starts_with("c.toml:4:") && found[0].contains(": this is not TOML: "), "{found:?}");
    }

    #[test]
    fn message_about_syntax_names_a_key_that_is_written_twice_and_asks_for_quotes() {
        for (text, expected) in [
            ("[sync]\nkeep = 1\n[sync]\nkeep = 2\n", "c.toml:3:2: this is not TOML: sync is written twice; keep one"),
            ("[sync]\nkeep = 1\nkeep = 2\n", "c.toml:3:1: this is not TOML: keep is written twice; keep one"),
            ("[store]\npath = /srv/docs\n", "c.toml:2:8: this is not TOML: a text must be in quotes"),
        ] {
            assert_eq!(problems(text), [expected], "{text}");
        }
    }

    #[test]
    fn integers_are_read_in_each_base_of_toml() {
        for (text, number) in [("0x10", 16), ("0o17", 15), ("0b101", 5), ("1_000", 1000), ("-1", -1), ("+7", 7)] {
            let mut raw = WrittenConfig::default();
            raw.read_toml(&format!("[sync]\nkeep = {text}\n"), Path::new("c.toml"));
            assert!(raw.get("sync.keep").is_some_and(|found| found.value == ConfigValue::Number(number)), "{text}");
        }
    }

    #[test]
    fn environment_variable_overrides_the_file_value_and_has_its_own_place() {
        use std::os::unix::ffi::OsStringExt;

        let mut raw = WrittenConfig::default();
        raw.read_toml("[sync]\nkeep = 3\n[store]\npath = \"a\"\n", Path::new("/etc/c.toml"));
        let not_text = OsString::from_vec(vec![0xff]);
        raw.read_env(
            [
                ("DOCWHARF_SYNC__KEEP".into(), "7".into()),
                ("DOCWHARF_ACCESS__LOG_FILE".into(), not_text),
                ("OTHER_SYNC__KEEP".into(), "8".into()),
                (OsString::from_vec(b"DOCWHARF_\xff__X".to_vec()), "9".into()),
                ("DOCWHARF_SYNC_KEEP".into(), "9".into()),
            ]
            .into_iter(),
        );
        let keep = raw.get("sync.keep").expect("it is set");
        assert_eq!(keep.place, ConfigPlace::Env("DOCWHARF_SYNC__KEEP".to_owned()));
        assert!(keep.value == ConfigValue::Text("7".to_owned()));
        let lines: Vec<String> = raw.problems.iter().map(ToString::to_string).collect();
        assert_eq!(lines, ["$DOCWHARF_ACCESS__LOG_FILE: access.logFile is not UTF-8"]);
        let warnings: Vec<String> = raw.warnings.iter().map(ToString::to_string).collect();
        assert_eq!(
            warnings,
            ["$DOCWHARF_SYNC_KEEP: this is ignored; did you mean DOCWHARF_SYNC__KEEP, with two underscores?"]
        );
        // A path in the file is relative to its folder, any other one to the working directory.
        let folder = Path::new("/etc");
        assert_eq!(raw.base_of("store.path", folder), folder);
        assert_eq!(raw.base_of("sync.keep", folder), std::env::current_dir().expect("a folder"));
    }
}
