//! A value of the configuration as written, with its place.

use toml::de::DeValue;

use super::key_table::TableList;
use super::problem::ConfigPlace;

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

impl ConfigValue {
    /// Converts a value of TOML; `None` if no key accepts a value of its type.
    pub(super) fn from_toml(value: &DeValue<'_>) -> Option<ConfigValue> {
        match value {
            DeValue::String(text) => Some(ConfigValue::Text(text.to_string())),
            DeValue::Boolean(flag) => Some(ConfigValue::Flag(*flag)),
            DeValue::Integer(number) => {
                i64::from_str_radix(number.as_str(), number.radix()).ok().map(ConfigValue::Number)
            }
            DeValue::Array(items) => {
                let texts = items.iter().map(|item| item.get_ref().as_str().map(str::to_owned));
                texts.collect::<Option<Vec<String>>>().map(ConfigValue::Texts)
            }
            _ => None,
        }
    }

    /// Returns the text of a text value; `None` for any other value.
    pub(super) fn as_text(&self) -> Option<&str> {
        match self {
            ConfigValue::Text(text) => Some(text),
            _ => None,
        }
    }
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

/// One table of a list.
#[derive(Debug, Clone)]
pub struct TableRow {
    /// The list.
    pub list: &'static TableList,
    /// The place of the beginning of the table.
    pub place: ConfigPlace,
    /// Its keys with their values; a key of an inner table is written `values.X-Name`.
    pub items: Vec<(String, WrittenValue)>,
    /// The rows of the lists in it.
    pub rows: Vec<TableRow>,
}

impl TableRow {
    /// Returns the value of a key.
    pub fn get(&self, key: &str) -> Option<&WrittenValue> {
        self.items.iter().find(|(name, _)| name == key).map(|(_, written)| written)
    }
}
