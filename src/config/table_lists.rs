//! Lists of tables, such as `[[server.redirects]]`: rows of keys, each value with its place. They can be set in the
//! file only, not in the environment.

use toml::de::{DeTable, DeValue};

use super::show::toml_string;
use super::written::{ConfigValue, WrittenConfig, WrittenValue, suggest_nearest, to_value};
use super::{ConfigPlace, ConfigProblem};

/// A list of tables: its name, and the keys of a row. A key that ends with `.*` is a table with arbitrary names.
#[derive(Debug, Clone, Copy)]
pub struct TableList {
    /// The name with its section.
    pub name: &'static str,
    keys: &'static [&'static str],
}

/// All lists.
pub const TABLE_LISTS: &[TableList] = &[
    TableList { name: "server.redirects", keys: &["source", "destination", "permanent", "status", "force"] },
    TableList { name: "server.headers", keys: &["source", "values.*", "remove"] },
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
        for (key, value) in table {
            let name = format!("{above}{}", key.get_ref());
            let here = place(key.span().start);
            let is_open = self.keys.contains(&format!("{name}.*").as_str());
            match (value.get_ref(), to_value(value.get_ref())) {
                (DeValue::Table(inner), _) if is_open => self.read_row(raw, inner, &format!("{name}."), row, place),
                _ if is_open => {
                    let what = format!("{list}.{name} is a table: write {name} = {{ Name = \"value\" }}");
                    raw.problems.push(ConfigProblem { place: here, what });
                }
                (_, Some(value)) if !above.is_empty() || self.keys.contains(&name.as_str()) => {
                    row.items.push((name, WrittenValue { value, place: here }));
                }
                (value, None) if !above.is_empty() || self.keys.contains(&name.as_str()) => {
                    let what = format!("{list}.{name} has a value of the wrong kind ({})", value.type_str());
                    raw.problems.push(ConfigProblem { place: here, what });
                }
                _ => {
                    let known = self.keys.iter().map(|key| format!("{list}.{}", key.trim_end_matches(".*")));
                    let full = format!("{list}.{name}");
                    let what = format!("there is no key {full}{}", suggest_nearest(&full, known));
                    raw.problems.push(ConfigProblem { place: here, what });
                }
            }
        }
    }
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
