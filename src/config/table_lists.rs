//! Lists of tables, such as `[[server.redirects]]`: rows of keys, each value with its place. They can be set in the
//! file only, not in the environment.

use serde_json::json;
use toml::de::{DeTable, DeValue};

use super::written::{ConfigValue, WrittenConfig, WrittenValue, suggest_nearest, to_value};
use super::{ConfigPlace, ConfigProblem};

/// A list of tables: its name, and the keys of a row with their types.
#[derive(Debug, Clone, Copy)]
pub struct TableList {
    /// The name with its section.
    pub name: &'static str,
    /// The keys of a row.
    pub keys: &'static [(&'static str, RowValue)],
}

/// The type of a value in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowValue {
    /// A text.
    Text,
    /// `true` or `false`.
    Flag,
    /// A status of HTTP that a redirect may have.
    Status,
    /// A text or a list of texts.
    Texts,
    /// A table with arbitrary names, each with a text or a list of texts.
    Table,
}

/// All lists.
pub const TABLE_LISTS: &[TableList] = &[
    TableList {
        name: "server.redirects",
        keys: &[
            ("source", RowValue::Text),
            ("destination", RowValue::Text),
            ("permanent", RowValue::Flag),
            ("status", RowValue::Status),
            ("force", RowValue::Flag),
        ],
    },
    TableList {
        name: "server.headers",
        keys: &[("source", RowValue::Text), ("values", RowValue::Table), ("remove", RowValue::Texts)],
    },
];

/// One table of a list.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// The place of the beginning of the table.
    pub place: ConfigPlace,
    /// Its keys with their values; a key of an inner table is written `values.X-Name`.
    pub items: Vec<(String, WrittenValue)>,
}

impl TableRow {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&WrittenValue> {
        self.items.iter().find(|(name, _)| name == key).map(|(_, written)| written)
    }
}

/// Finds the list of this name.
pub(super) fn find_list(name: &str) -> Option<&'static TableList> {
    TABLE_LISTS.iter().find(|list| list.name == name)
}

impl TableList {
    /// Reads the rows. Mistakes are added to `raw`.
    pub(super) fn read_rows(
        &'static self,
        raw: &mut WrittenConfig,
        value: &DeValue<'_>,
        here: ConfigPlace,
        place: &dyn Fn(usize) -> ConfigPlace,
    ) -> Vec<TableRow> {
        let name = self.name;
        let wrong = ConfigProblem { place: here, what: format!("{name} is a list of tables: write [[{name}]]") };
        let DeValue::Array(items) = value else {
            raw.problems.push(wrong);
            return Vec::new();
        };
        let mut rows = Vec::new();
        for item in items {
            let DeValue::Table(table) = item.get_ref() else {
                raw.problems.push(wrong);
                return rows;
            };
            let mut row = TableRow { place: place(item.span().start), items: Vec::new() };
            self.read_row(raw, table, "", &mut row, place);
            rows.push(row);
        }
        rows
    }

    fn read_row(
        &self,
        raw: &mut WrittenConfig,
        table: &DeTable<'_>,
        above: &str,
        row: &mut TableRow,
        place: &dyn Fn(usize) -> ConfigPlace,
    ) {
        let list = self.name;
        // An inner table has arbitrary names.
        let is_inner = !above.is_empty();
        for (key, value) in table {
            let name = format!("{above}{}", key.get_ref());
            let here = place(key.span().start);
            let expected = self.keys.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
            let is_open = expected == Some(RowValue::Table);
            let is_known = is_inner || expected.is_some();
            match (value.get_ref(), to_value(value.get_ref())) {
                (DeValue::Table(inner), _) if is_open => self.read_row(raw, inner, &format!("{name}."), row, place),
                _ if is_open => {
                    let what = format!("{list}.{name} is a table: write {name} = {{ Name = \"value\" }}");
                    raw.problems.push(ConfigProblem { place: here, what });
                }
                (_, Some(value)) if is_known => {
                    row.items.push((name, WrittenValue { value, place: here }));
                }
                (value, None) if is_known => {
                    let what = format!("{list}.{name} has a value of the wrong kind ({})", value.type_str());
                    raw.problems.push(ConfigProblem { place: here, what });
                }
                _ => {
                    let known = self.keys.iter().map(|(key, _)| format!("{list}.{key}"));
                    let full = format!("{list}.{name}");
                    let what = format!("there is no key {full}{}", suggest_nearest(&full, known));
                    raw.problems.push(ConfigProblem { place: here, what });
                }
            }
        }
    }
}

/// Formats a basic string of TOML. JSON strings are the same, except that TOML also requires U+007F to be escaped.
pub(super) fn toml_string(text: &str) -> String {
    json!(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Formats a key of a row as TOML. In a key of an inner table, the name is quoted if TOML requires it.
pub(super) fn toml_key(key: &str) -> String {
    let is_bare = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    match key.split_once('.') {
        Some((above, name)) if !is_bare(name) => format!("{above}.{}", toml_string(name)),
        _ => key.to_owned(),
    }
}

/// Returns the text of a text value; `None` for any other value.
pub(super) fn as_text(value: &ConfigValue) -> Option<&str> {
    match value {
        ConfigValue::Text(text) => Some(text),
        _ => None,
    }
}
