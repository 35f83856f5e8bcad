//! The configuration as a JSON Schema (draft 2020-12), for editors. It describes the form that docwharf writes itself;
//! the checks also accept numbers and flags in quotes, as the environment has them.

use serde_json::{Map, Value as Json, json};

use docwharf_base::model::units::format_duration;

use super::key_table::{ConfigKey, TableList, ValueType, exact_size};
use super::keys::AGENT_KEYS;

/// The syntax of durations.
const DURATION_PATTERN: &str = "^([0-9]+(ms|s|m|h|d))+$";
/// The syntax of sizes.
const SIZE_PATTERN: &str = "^[0-9]+ *(B|KiB|MiB|GiB|TiB|kB|MB|GB)?$";

/// Returns the schema of a configuration file.
pub fn config_schema() -> Json {
    let sections: Map<String, Json> = AGENT_KEYS
        .sections
        .iter()
        .map(|section| {
            let keys = section.keys.iter().map(|key| (key.parts().1.to_owned(), key_schema(key)));
            let lists = AGENT_KEYS.lists.iter().filter_map(|list| {
                let (parent, name) = list.name.split_once('.')?;
                (parent == section.name).then(|| (name.to_owned(), list_schema(list)))
            });
            (section.name.to_owned(), object(&keys.chain(lists).collect()))
        })
        .collect();
    let mut schema = object(&sections);
    schema["$schema"] = json!("https://json-schema.org/draft/2020-12/schema");
    schema["title"] = json!("docwharf configuration");
    schema
}

/// Returns the schema of a table with these keys and no other.
fn object(properties: &Map<String, Json>) -> Json {
    json!({ "type": "object", "additionalProperties": false, "properties": properties })
}

fn key_schema(key: &ConfigKey) -> Json {
    let mut schema = value_schema(key.value_type);
    let note = match key.value_type {
        ValueType::Duration { min } if !min.is_zero() => format!(" (at least {})", format_duration(min)),
        ValueType::DurationOrZero { min } => format!(" (at least {}, or 0s)", format_duration(min)),
        ValueType::Size { min, max: u64::MAX } if min > 0 => format!(" (at least {})", exact_size(min)),
        _ => String::new(),
    };
    schema["description"] = json!(format!("{}{note}", key.help));
    // TOML and JSON write the defaults of all keys alike.
    if let Ok(default) = serde_json::from_str::<Json>(key.default) {
        schema["default"] = default;
    }
    schema
}

fn value_schema(value_type: ValueType) -> Json {
    let list = |item: Json| json!({ "type": "array", "items": item });
    let text_or_list = |item: Json| json!({ "anyOf": [item.clone(), list(item)] });
    match value_type {
        ValueType::Flag => json!({ "type": "boolean" }),
        ValueType::Number { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        ValueType::Duration { .. } | ValueType::DurationOrZero { .. } => {
            json!({ "type": "string", "pattern": DURATION_PATTERN })
        }
        ValueType::Size { min, max } => {
            // The integers of TOML have 64 bits with a sign.
            let max_integer = max.min(i64::MAX.unsigned_abs());
            json!({ "anyOf": [
                { "type": "integer", "minimum": min, "maximum": max_integer },
                { "type": "string", "pattern": SIZE_PATTERN },
            ] })
        }
        ValueType::Percent => json!({ "type": "string", "pattern": "^(100|[0-9]{1,2}) *%$" }),
        ValueType::Mode => json!({ "type": "string", "pattern": "^[0-7]{3,4}$" }),
        ValueType::Word(words) => json!({ "enum": words }),
        ValueType::Words(words) => text_or_list(json!({ "enum": words })),
        ValueType::Text | ValueType::Path | ValueType::Location => json!({ "type": "string", "minLength": 1 }),
        ValueType::Url => json!({ "type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://" }),
        ValueType::Texts | ValueType::Urls => text_or_list(json!({ "type": "string" })),
        ValueType::Status => json!({ "enum": [200, 301, 302, 303, 307, 308, 404] }),
        ValueType::TextTable => {
            json!({ "type": "object", "additionalProperties": text_or_list(json!({ "type": "string" })) })
        }
    }
}

fn list_schema(list: &TableList) -> Json {
    let properties = list.keys.iter().map(|key| (key.parts().1.to_owned(), key_schema(key)));
    json!({ "type": "array", "items": object(&properties.collect()) })
}

#[cfg(test)]
mod tests {
    use super::super::keys::keys;
    use super::*;

    #[test]
    fn config_schema_has_the_description_type_and_default_of_each_key() {
        let schema = config_schema();
        for key in keys() {
            let (section, name) = key.parts();
            let found = &schema["properties"][section]["properties"][name];
            assert!(found["description"].as_str().is_some_and(|text| text.starts_with(key.help)), "{}", key.name);
            assert_eq!(found.get("default").is_some(), !key.default.is_empty(), "{}", key.name);
        }
        let keep = &schema["properties"]["sync"]["properties"]["keep"];
        assert_eq!((&keep["minimum"], &keep["maximum"], &keep["default"]), (&json!(0), &json!(10_000), &json!(3)));
        let redirects = &schema["properties"]["server"]["properties"]["redirects"]["items"]["properties"];
        assert_eq!(redirects["force"]["type"], "boolean");
        assert_eq!(schema["properties"]["sync"]["additionalProperties"], false);
        let list = &schema["properties"]["server"]["properties"]["headers"];
        assert_eq!((&list["type"], &list["items"]["additionalProperties"]), (&json!("array"), &json!(false)));
        let methods = &schema["properties"]["playground"]["properties"]["allow"]["items"]["properties"]["methods"];
        assert_eq!(methods["anyOf"][1]["items"]["enum"][0], "GET");
        assert_eq!((&schema["type"], &schema["additionalProperties"]), (&json!("object"), &json!(false)));
    }

    #[test]
    fn config_schema_describes_the_written_form_of_each_value_type() {
        let schema = config_schema();
        let text = json!({ "type": "string" });
        let coding = json!({ "enum": ["br", "zstd"] });
        for (key, mut expected) in [
            ("staticExport.enabled", json!({ "type": "boolean" })),
            ("staticExport.bundleUrl", json!({ "type": "string", "minLength": 1 })),
            ("api.baseUrl", json!({ "type": "string", "pattern": "^[Hh][Tt][Tt][Pp][Ss]?://" })),
            ("sync.threads", json!({ "type": "integer", "minimum": 1, "maximum": 256 })),
            ("sync.interval", json!({ "type": "string", "pattern": DURATION_PATTERN })),
            ("store.scrub", json!({ "type": "string", "pattern": DURATION_PATTERN })),
            ("sync.probe", json!({ "anyOf": [text, { "type": "array", "items": text }] })),
            ("server.listen", json!({ "anyOf": [text, { "type": "array", "items": text }] })),
            ("server.codings", json!({ "anyOf": [coding, { "type": "array", "items": coding }] })),
            ("access.log", json!({ "enum": ["off", "json", "combined"] })),
            ("gate.maxShrink", json!({ "type": "string", "pattern": "^(100|[0-9]{1,2}) *%$" })),
            ("publish.mode", json!({ "type": "string", "pattern": "^[0-7]{3,4}$" })),
            (
                "server.cspSize",
                json!({ "anyOf": [
                    { "type": "integer", "minimum": 1024, "maximum": 65536 },
                    { "type": "string", "pattern": SIZE_PATTERN },
                ] }),
            ),
            (
                "store.maxBytes",
                // The largest integer of TOML.
                json!({ "anyOf": [
                    { "type": "integer", "minimum": 0, "maximum": i64::MAX },
                    { "type": "string", "pattern": SIZE_PATTERN },
                ] }),
            ),
        ] {
            let (section, name) = key.split_once('.').expect("section.key");
            let found = &schema["properties"][section]["properties"][name];
            for field in ["description", "default"] {
                if let Some(value) = found.get(field) {
                    expected[field] = value.clone();
                }
            }
            assert_eq!(*found, expected, "{key}");
        }
        for (key, note) in [
            ("sync.interval", " (at least 100ms)"),
            ("store.scrub", " (at least 10m, or 0s)"),
            ("store.maxBytes", ""),
            ("server.assetGrace", ""),
            ("analytics.maxBytes", " (at least 1MiB)"),
        ] {
            let (section, name) = key.split_once('.').expect("section.key");
            let found = &schema["properties"][section]["properties"][name]["description"];
            let help = AGENT_KEYS.find_key(key).expect("a key").help;
            assert_eq!(found.as_str(), Some(&*format!("{help}{note}")), "{key}");
        }
    }
}
