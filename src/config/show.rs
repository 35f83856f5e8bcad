//! Shows the configuration in force, and what has set each value; secrets are masked. The output is a configuration,
//! too: loaded again, it has the same effect.

use std::fmt::Write;
use std::path::Path;

use serde_json::{Map, Value as Json, json};

use docwharf_agent::sync::BundleLocation;
use docwharf_base::model::deployment::DeploymentType;
use docwharf_base::secret::SafeUrl;

use super::checked::Config;
use super::key_table::{ConfigKey, ValueType};
use super::keys::{AGENT_KEYS, keys};
use super::problem::ConfigPlace;
use super::sync_settings::DEFAULT_JOB_INTERVAL;
use super::toml_text::{toml_key, toml_string};
use super::value_parsers::parse_bundle;
use super::written::WrittenConfig;
use super::written_value::{ConfigValue, TableRow, WrittenValue};

/// One value in force.
#[derive(Debug)]
pub struct ShownValue {
    /// The key.
    pub name: &'static str,
    /// Its value in TOML; `None` if it is not set and has no default.
    pub value: Option<String>,
    /// The place that has set the value: `/etc/c.toml:3`, `$DOCWHARF_…`, `default`, or `not set`.
    pub set_by: String,
    /// Whether the configuration sets the value. A default is shown as a comment: some keys have an effect by being
    /// set, whatever their value.
    pub is_set: bool,
}

/// Lists all values in force. `config` is the result of checking `raw`, and `config_folder` the folder of the file.
pub fn values_in_force(raw: &WrittenConfig, config: &Config, config_folder: &Path) -> Vec<ShownValue> {
    let show = |key: ConfigKey| {
        if let Some(written) = raw.get(key.name) {
            let value = Some(format_written(&key, written, &raw.base_of(key.name, config_folder)));
            return ShownValue { name: key.name, value, set_by: describe_place(&written.place), is_set: true };
        }
        let value = default_in_force(&key, raw, config);
        let set_by = if value.is_some() { "default" } else { "not set" }.to_owned();
        ShownValue { name: key.name, value, set_by, is_set: false }
    };
    keys().map(show).collect()
}

/// Returns the default of a key in TOML. Those that depend on other keys or variables come from the checked
/// configuration.
fn default_in_force(key: &ConfigKey, raw: &WrittenConfig, config: &Config) -> Option<String> {
    match key.name {
        "sync.interval" if config.sync_settings.interval == DEFAULT_JOB_INTERVAL => Some("\"24h\"".to_owned()),
        "sync.probe" => {
            let probes: Vec<String> =
                config.sync_settings.probes.iter().map(|probe| toml_string(&probe.to_string())).collect();
            (!probes.is_empty()).then(|| format!("[{}]", probes.join(", ")))
        }
        "server.csp" if config.deployment.deployment_type == DeploymentType::AirGapped => Some("\"airgap\"".to_owned()),
        "store.path" => Some(toml_string(&config.store.to_string_lossy())),
        "analytics.enabled" => Some(config.analytics.enabled.to_string()),
        "analytics.projectId" => Some(toml_string(&config.analytics.project)),
        // The mask decides the modes.
        "publish.mode" if raw.get("publish.umask").is_some() => None,
        _ => (!key.default.is_empty()).then(|| key.default.to_owned()),
    }
}

/// Formats a value as its type demands. The environment has texts only, and its paths are relative to the working
/// directory; in a file, they would be relative to the file.
fn format_written(key: &ConfigKey, written: &WrittenValue, base: &Path) -> String {
    let ConfigValue::Text(text) = &written.value else { return format_value(key.value_type, &written.value) };
    match key.value_type {
        ValueType::Flag if matches!(text.as_str(), "true" | "false") => text.clone(),
        ValueType::Number { .. } => text.parse::<u64>().map_or_else(|_| toml_string(text), |number| number.to_string()),
        ValueType::Path => absolute(text, base),
        // A query may be a secret, even where a path is meant.
        ValueType::Location if !text.contains('?') => match parse_bundle(text, base) {
            Ok(BundleLocation::File(path)) => path.to_str().map_or_else(|| toml_string(text), toml_string),
            _ => quoted(key.value_type, text),
        },
        kind if kind.is_list() && (text.is_empty() || text.contains(',')) => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            format_value(kind, &ConfigValue::Texts(items.map(str::to_owned).collect()))
        }
        kind => quoted(kind, text),
    }
}

/// Formats a path as an absolute one.
fn absolute(text: &str, base: &Path) -> String {
    base.join(text).to_str().map_or_else(|| toml_string(text), toml_string)
}

/// Returns the name of the file and the line, or the variable, that sets a value.
fn describe_place(place: &ConfigPlace) -> String {
    match place {
        ConfigPlace::File(path, line, _) => format!("{}:{line}", path.display()),
        ConfigPlace::Env(name) => format!("${name}"),
        ConfigPlace::Missing => "default".to_owned(),
    }
}

fn format_value(kind: ValueType, value: &ConfigValue) -> String {
    match value {
        ConfigValue::Text(text) => quoted(kind, text),
        ConfigValue::Texts(texts) => {
            let items: Vec<String> = texts.iter().map(|text| quoted(kind, text)).collect();
            format!("[{}]", items.join(", "))
        }
        ConfigValue::Flag(flag) => flag.to_string(),
        ConfigValue::Number(number) => number.to_string(),
    }
}

/// Formats a text in quotes; secrets in links are masked.
fn quoted(kind: ValueType, text: &str) -> String {
    let masked = match (kind.may_be_secret(), SafeUrl::parse(text), text.split_once('?')) {
        (true, Ok(url), _) => url.to_string(),
        (true, Err(_), Some((before, _))) => format!("{before}?***"),
        _ => text.to_owned(),
    };
    toml_string(&masked)
}

/// Formats values as TOML; a comment says what has set each of them. A key that is not set is only a comment.
pub fn as_toml(values: &[ShownValue]) -> String {
    let width = values.iter().filter_map(|v| Some(v.name.split_once('.')?.1.len() + 5 + v.value.as_ref()?.len())).max();
    let width = width.unwrap_or(0).min(48);
    let mut out = String::new();
    let mut section = "";
    for value in values {
        let Some((parent, name)) = value.name.split_once('.') else { continue };
        if parent != section {
            let gap = if section.is_empty() { "" } else { "\n" };
            let _ = writeln!(out, "{gap}[{parent}]");
            section = parent;
        }
        let line = match &value.value {
            Some(text) if value.is_set => format!("{name} = {text}"),
            Some(text) => format!("# {name} = {text}"),
            None => format!("# {name} ="),
        };
        let _ = writeln!(out, "{line:width$}  # {}", value.set_by);
    }
    out
}

/// Formats the lists as TOML.
pub fn lists_as_toml(raw: &WrittenConfig) -> String {
    let mut out = String::new();
    for row in AGENT_KEYS.lists.iter().flat_map(|list| raw.rows(list.name)) {
        let _ = writeln!(out, "\n[[{}]]  # {}", row.list.name, describe_place(&row.place));
        for (key, written) in &row.items {
            let _ = writeln!(out, "{} = {}", toml_key(key), format_value(ValueType::Text, &written.value));
        }
    }
    out
}

/// Formats the lists as JSON: name → rows.
pub fn lists_as_json(raw: &WrittenConfig) -> Json {
    let parse = |text: String| serde_json::from_str::<Json>(&text).unwrap_or_else(|_| json!(text));
    let row_json = |row: &TableRow| {
        let items =
            row.items.iter().map(|(key, written)| (key.clone(), parse(format_value(ValueType::Text, &written.value))));
        json!({ "values": items.collect::<Map<String, Json>>(), "origin": describe_place(&row.place) })
    };
    let lists = AGENT_KEYS.lists.iter().map(|list| (list.name.to_owned(), raw.rows(list.name).map(row_json).collect()));
    Json::Object(lists.collect())
}

/// Formats values as JSON: key → value and what has set it.
pub fn as_json(values: &[ShownValue]) -> Json {
    // The values of all keys are written the same in TOML and in JSON.
    let parse = |text: &String| serde_json::from_str::<Json>(text).unwrap_or_else(|_| json!(text));
    let entry = |value: &ShownValue| {
        let json = json!({ "value": value.value.as_ref().map(parse), "origin": value.set_by });
        (value.name.to_owned(), json)
    };
    json!({ "schemaVersion": 1, "values": values.iter().map(entry).collect::<Map<String, Json>>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::inputs::ConfigInputs;

    fn show_config(text: &str, variables: &[(&str, &str)]) -> String {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("c.toml"));
        raw.read_env(variables.iter().map(|&(name, value)| (name.into(), value.into())));
        let config_inputs = ConfigInputs {
            config_path: Some("/etc/c.toml".into()),
            ignores_environment: true,
            ..ConfigInputs::default()
        };
        let config = config_inputs.check(&raw).unwrap_or_else(|problems| panic!("{text}: {problems:#?}"));
        as_toml(&values_in_force(&raw, &config, &config_inputs.folder()))
    }

    /// The line of a key in a section.
    #[track_caller]
    fn line(shown: &str, key: &str) -> String {
        let (section, name) = key.split_once('.').unwrap();
        let body = shown.split(&format!("[{section}]\n")).nth(1).unwrap().split("\n[").next().unwrap();
        let is_key = |line: &&str| line.trim_start_matches("# ").starts_with(&format!("{name} ="));
        let line = body.lines().find(is_key).unwrap_or_else(|| panic!("{key} is missing in {shown}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn config_show_prints_what_has_set_each_value_and_masks_links() {
        let text = show_config(
            "[staticExport]\nbundleUrl = \"https://b.example/x?sig=secret-value\"\n",
            &[("DOCWHARF_SYNC__KEEP", "7")],
        );
        assert!(!text.contains("secret-value"), "{text}");
        assert_eq!(line(&text, "staticExport.bundleUrl"), "bundleUrl = \"https://b.example/x?***\" # c.toml:2");
        assert_eq!(line(&text, "sync.keep"), "keep = 7 # $DOCWHARF_SYNC__KEEP");
        assert_eq!(line(&text, "sync.interval"), "# interval = \"15m\" # default");
        assert_eq!(line(&text, "sync.schedule"), "# schedule = # not set");
    }

    #[test]
    fn config_show_prints_the_effective_default_if_it_depends_on_other_keys() {
        const API: &str = "[api]\nbaseUrl = \"https://api.example/v1/\"\ndomain = \"docs.example.com\"\n";
        let interval = |text: &str, variables: &[(&str, &str)]| line(&show_config(text, variables), "sync.interval");
        let (quarter, day) = ("# interval = \"15m\" # default", "# interval = \"24h\" # default");
        let no_probes = "[sync]\nprobe = []\n";
        assert_eq!(interval(&format!("{API}{no_probes}"), &[]), day);
        assert_eq!(interval(API, &[("DOCWHARF_SYNC__PROBE", "")]), day);
        assert_eq!(interval(API, &[]), quarter);
        // Without [api], nothing is exported.
        assert_eq!(interval(&format!("[staticExport]\nbundleUrl = \"/b.zip\"\n{no_probes}"), &[]), quarter);
        let probe =
            "# probe = [\"https://docs.example.com/sitemap.xml\", \"https://docs.example.com/llms.txt\"] # default";
        assert_eq!(line(&show_config(API, &[]), "sync.probe"), probe);
        assert_eq!(line(&show_config("", &[]), "analytics.projectId"), "# projectId = \"site\" # default");
        let shown = show_config(&format!("{API}projectId = \"p_1\"\n"), &[]);
        assert_eq!(line(&shown, "analytics.projectId"), "# projectId = \"p_1\" # default");
        let masked = show_config("[publish]\ndirectory = \"/www\"\numask = \"0027\"\n", &[]);
        assert_eq!(line(&masked, "publish.mode"), "# mode = # not set");
    }

    #[test]
    fn config_show_json_has_the_type_and_origin_of_each_value() {
        let mut raw = WrittenConfig::default();
        let text = "[server]\nlisten = [\"127.0.0.1:1\"]\n[[server.headers]]\nsource = \"/*\"\nremove = [\"Link\"]\n";
        raw.read_toml(text, Path::new("c.toml"));
        let variables = [("DOCWHARF_SYNC__KEEP", "7"), ("DOCWHARF_STATIC_EXPORT__ENABLED", "false")];
        raw.read_env(variables.iter().map(|&(name, value)| (name.into(), value.into())));
        let config_inputs = ConfigInputs { ignores_environment: true, ..ConfigInputs::default() };
        let config = config_inputs.check(&raw).unwrap_or_else(|problems| panic!("{problems:#?}"));
        let json = as_json(&values_in_force(&raw, &config, Path::new("/etc")));
        assert_eq!(json["schemaVersion"], 1);
        for (key, value, set_by) in [
            ("sync.keep", json!(7), "$DOCWHARF_SYNC__KEEP"),
            ("staticExport.enabled", json!(false), "$DOCWHARF_STATIC_EXPORT__ENABLED"),
            ("server.listen", json!(["127.0.0.1:1"]), "c.toml:2"),
            ("sync.interval", json!("15m"), "default"),
            ("limits.entries", json!(200_000), "default"),
            ("tls.certFile", Json::Null, "not set"),
        ] {
            assert_eq!(json["values"][key], json!({ "value": value, "origin": set_by }), "{key}");
        }
        let headers = json!([{ "values": { "source": "/*", "remove": ["Link"] }, "origin": "c.toml:3" }]);
        assert_eq!(
            lists_as_json(&raw),
            json!({ "server.redirects": [], "server.headers": headers, "playground.allow": [] })
        );
    }

    #[test]
    fn config_show_masks_each_url_of_a_comma_separated_list() {
        let variables = [
            ("DOCWHARF_API__BASE_URL", "https://api.example/v1"),
            ("DOCWHARF_API__DOMAIN", "docs.example"),
            (
                "DOCWHARF_SYNC__PROBE",
                "https://docs.example/a,https://ada:secret-value@docs.example/b?signature=secret-value",
            ),
        ];
        let text = show_config("", &variables);
        assert!(!text.contains("secret-value") && text.contains("https://docs.example/b?***"), "{text}");
    }
}
