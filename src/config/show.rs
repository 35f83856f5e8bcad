//! Shows the configuration in force, with the origin of each value; secrets are masked.

use std::fmt::Write;

use serde_json::{Map, Value as Json, json};

use docwharf_base::secret::SafeUrl;

use super::ConfigPlace;
use super::table_lists::{TABLE_LISTS, TableRow, toml_key};
use super::written::{ConfigValue, WrittenConfig, keys};

/// One value in force.
#[derive(Debug)]
pub struct ShownValue {
    /// The key.
    pub name: &'static str,
    /// Its value in TOML; `None` if it is not set and has no default.
    pub value: Option<String>,
    /// The origin of the value: `default`, `/etc/c.toml:3`, `$DOCWHARF_…`.
    pub origin: String,
}

/// Lists all values in force.
pub fn values_in_force(raw: &WrittenConfig) -> Vec<ShownValue> {
    // The one default that depends on another key.
    let each_look = matches!(raw.get("sync.probe").map(|written| &written.value), Some(ConfigValue::Texts(list)) if list.is_empty());
    let of = |key: super::written::ConfigKey| match raw.get(key.name) {
        Some(written) => ShownValue {
            name: key.name,
            value: Some(format_value(key.name, &written.value)),
            origin: origin(&written.place),
        },
        None if key.default.is_empty() => ShownValue { name: key.name, value: None, origin: "not set".to_owned() },
        None => {
            let default = if each_look && key.name == "sync.interval" { "\"24h\"" } else { key.default };
            ShownValue { name: key.name, value: Some(default.to_owned()), origin: "default".to_owned() }
        }
    };
    keys().map(of).collect()
}

fn origin(place: &ConfigPlace) -> String {
    match place {
        ConfigPlace::File(path, line, _) => format!("{}:{line}", path.display()),
        ConfigPlace::Env(name) => format!("${name}"),
        ConfigPlace::Missing => "default".to_owned(),
    }
}

fn format_value(name: &str, value: &ConfigValue) -> String {
    match value {
        ConfigValue::Text(text) => quoted(name, text),
        ConfigValue::Texts(texts) => {
            let items: Vec<String> = texts.iter().map(|text| quoted(name, text)).collect();
            format!("[{}]", items.join(", "))
        }
        ConfigValue::Flag(flag) => flag.to_string(),
        ConfigValue::Number(number) => number.to_string(),
        ConfigValue::Section => String::new(),
    }
}

/// Formats a text in quotes; secrets in links are masked.
fn quoted(name: &str, text: &str) -> String {
    let may_be_link = matches!(name, "staticExport.bundleUrl" | "api.baseUrl" | "sync.probe");
    let masked = match (may_be_link, SafeUrl::parse(text), text.split_once('?')) {
        (true, Ok(url), _) => url.to_string(),
        (true, Err(_), Some((before, _))) => format!("{before}?***"),
        _ => text.to_owned(),
    };
    toml_string(&masked)
}

/// Formats a basic string of TOML. JSON strings are the same, except that TOML also requires U+007F to be escaped.
pub(super) fn toml_string(text: &str) -> String {
    json!(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Formats values as TOML, each with its origin in a comment.
pub fn as_toml(values: &[ShownValue]) -> String {
    let width = values.iter().filter_map(|v| Some(v.name.split_once('.')?.1.len() + 3 + v.value.as_ref()?.len())).max();
    let width = width.unwrap_or(0).min(48);
    let mut out = String::new();
    let mut section = "";
    for value in values {
        let Some((above, name)) = value.name.split_once('.') else { continue };
        if above != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{gap}[{above}]");
            section = above;
        }
        let line = match &value.value {
            Some(text) => format!("{name} = {text}"),
            None => format!("#{name} ="),
        };
        let _ = writeln!(out, "{line:width$}  # {}", value.origin);
    }
    out
}

/// Formats the lists as TOML.
pub fn lists_as_toml(raw: &WrittenConfig) -> String {
    let mut out = String::new();
    for (list, row) in TABLE_LISTS.iter().flat_map(|list| raw.rows(list.name).iter().map(move |row| (list.name, row))) {
        let _ = writeln!(out, "\n[[{list}]]  # {}", origin(&row.place));
        for (key, written) in &row.items {
            let _ = writeln!(out, "{} = {}", toml_key(key), format_value(key, &written.value));
        }
    }
    out
}

/// Formats the lists as JSON: name → rows.
pub fn lists_as_json(raw: &WrittenConfig) -> Json {
    let read = |text: String| serde_json::from_str::<Json>(&text).unwrap_or_else(|_| json!(text));
    let of = |row: &TableRow| {
        let items = row.items.iter().map(|(key, written)| (key.clone(), read(format_value(key, &written.value))));
        json!({ "values": items.collect::<Map<String, Json>>(), "origin": origin(&row.place) })
    };
    let lists = TABLE_LISTS.iter().map(|list| (list.name.to_owned(), raw.rows(list.name).iter().map(of).collect()));
    Json::Object(lists.collect())
}

/// Formats values as JSON: key → value and origin.
pub fn as_json(values: &[ShownValue]) -> Json {
    // The values of all keys are written the same in TOML and in JSON.
    let read = |text: &String| serde_json::from_str::<Json>(text).unwrap_or_else(|_| json!(text));
    let entry = |value: &ShownValue| {
        let json = json!({ "value": value.value.as_ref().map(read), "origin": value.origin });
        (value.name.to_owned(), json)
    };
    json!({ "schemaVersion": 1, "values": values.iter().map(entry).collect::<Map<String, Json>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn each_value_has_its_origin_and_links_are_masked() {
        let mut raw = WrittenConfig::default();
        raw.read_toml("[staticExport]\nbundleUrl = \"https://b.example/x?sig=geheim\"\n", Path::new("c.toml"));
        raw.read_env([("DOCWHARF_SYNC__KEEP".into(), "7".into())].into_iter());
        let text = as_toml(&values_in_force(&raw));
        let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap().to_owned();
        assert!(!text.contains("geheim"), "{text}");
        assert!(line("bundleUrl").contains("https://b.example/x?***") && line("bundleUrl").ends_with("# c.toml:2"));
        assert!(line("keep = \"7\"").ends_with("# $DOCWHARF_SYNC__KEEP"));
        assert!(line("interval = \"15m\"").ends_with("# default"));
        assert!(line("#schedule =").ends_with("# not set"));
    }
}
