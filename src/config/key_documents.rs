//! The table of keys as text: the example configuration that `config init` writes, and the tables of the handbook.

use std::fmt::Write;

use docwharf_base::model::units::format_duration;

use super::key_table::{ConfigKey, Section, ValueType, exact_size, size_range};
use super::keys::AGENT_KEYS;

/// The first lines of the example configuration.
const EXAMPLE_HEAD: &str = "\
# docwharf: every key with its default. Copy this file to /etc/docwharf/config.toml and change what you need: a line
# without the # in front is in force. Relative paths are relative to this file. The environment can set each key, too:
# staticExport.bundleUrl is DOCWHARF_STATIC_EXPORT__BUNDLE_URL. Durations are written 90s, 15m, 2h30m, 7d; sizes 512KiB,
# 64MiB, 2GiB.
";

/// The lists of tables at the end of `[server]`.
const EXAMPLE_RULES: &str = r#"
# Your own redirects apply before those of server.redirectsFile and of the site. Addresses are those of the site, below
# basePath. :name is a segment, :name* any number of segments, a * at the end of a segment its rest. A redirect applies
# if the site has no file at the address; with force, also if it has one. permanent: 308 instead of 307. Or a status:
# 301, 302, 303, 307, 308; 200 and 404 serve another file of the site. These tables must be after all keys of [server].
# [[server.redirects]]
# source = "/old/:slug*"
# destination = "/new/:slug*"
# permanent = true
# Header fields of responses. One * stands for any text. Fields that frame a response cannot be set.
# [[server.headers]]
# source = "/assets/*"
# values = { Access-Control-Allow-Origin = "*", X-Robots-Tag = ["noindex", "nosnippet"] }
# remove = ["Link"]
"#;

/// The list of tables at the end of `[playground]`.
const EXAMPLE_TARGETS: &str = r#"
# One table for each API: its origin, which is scheme, host and port. methods: without it, GET only. paths: without it,
# all; a * stands for any text. addresses: an API whose name leads to an address that is not public (loopback, private
# networks and the like) gets no request, unless the address is in one of these. These tables must be after all keys of
# [playground].
# [[playground.allow]]
# origin = "https://api.example.com"
# methods = ["GET", "POST"]
# paths = ["/v1/*"]
# addresses = ["10.0.0.0/8"]
"#;

/// The longest line of the example configuration.
const MAX_LINE_CHARS: usize = 120;

/// Returns the example configuration: every key with its explanation and its default, or an example. All keys are
/// comments, because some have effects by being set, whatever their value: an interval starts an export at each check.
pub fn example_config() -> String {
    let mut out = EXAMPLE_HEAD.to_owned();
    for section in AGENT_KEYS.sections {
        write_section(&mut out, section);
    }
    out
}

fn write_section(out: &mut String, section: &Section) {
    let _ = writeln!(out, "\n[{}]", section.name);
    for key in section.keys {
        write_comment(out, key.comment);
        let value = if key.default.is_empty() { key.example } else { key.default };
        let _ = writeln!(out, "#{} = {value}", key.parts().1);
    }
    out.push_str(match section.name {
        "server" => EXAMPLE_RULES.trim_start(),
        "playground" => EXAMPLE_TARGETS.trim_start(),
        _ => "",
    });
}

/// Writes a text as comment lines.
fn write_comment(out: &mut String, text: &str) {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > MAX_LINE_CHARS {
            let _ = writeln!(out, "{line}");
            line.clear();
        }
        line.push_str(if line.is_empty() { "# " } else { " " });
        line.push_str(word);
    }
    if !line.is_empty() {
        let _ = writeln!(out, "{line}");
    }
}

/// Returns the row of a key in the tables of docs/configuration.md: key, values, default and meaning.
pub fn handbook_row(key: &ConfigKey) -> String {
    let default = match (key.default_note, key.default) {
        ("", "") => "–".to_owned(),
        ("", default) => format!("`{}`", default.trim_matches('"')),
        (note, _) => note.to_owned(),
    };
    format!("| `{}` | {} | {default} | {} |", key.name, describe_values(key.value_type), key.help)
}

/// Describes the values that a key accepts, in Markdown.
pub fn describe_values(value_type: ValueType) -> String {
    let list = |words: &[&str]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    match value_type {
        ValueType::Flag => "`true`, `false`".to_owned(),
        ValueType::Number { min, max } => format!("{min} to {max}"),
        ValueType::Duration { min } if min.is_zero() => "duration".to_owned(),
        ValueType::Duration { min } => format!("duration from {}", format_duration(min)),
        ValueType::DurationOrZero { min } => format!("duration from {}, or `0s`", format_duration(min)),
        ValueType::Size { min: 0, max: u64::MAX } => "size".to_owned(),
        ValueType::Size { min, max: u64::MAX } => format!("size from {}", exact_size(min)),
        ValueType::Size { min, max } => format!("size from {}", size_range(min, max)),
        ValueType::Percent => "`0%` to `100%`".to_owned(),
        ValueType::Mode => "octal digits".to_owned(),
        ValueType::Word(words) => list(words),
        ValueType::Words(words) => format!("list of {}", list(words)),
        ValueType::Text => "text".to_owned(),
        ValueType::Path => "path".to_owned(),
        ValueType::Url => "URL".to_owned(),
        ValueType::Location => "URL or path".to_owned(),
        ValueType::Texts => "text or list".to_owned(),
        ValueType::Urls => "URL or list".to_owned(),
        ValueType::Status => "status".to_owned(),
        ValueType::TextTable => "table".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::keys;
    use super::*;

    const HANDBOOK: &str = include_str!("../../docs/configuration.md");
    const EXAMPLE_FILE: &str = include_str!("../../config.example.toml");

    #[test]
    fn the_example_file_is_what_config_init_writes() {
        for (file, table) in EXAMPLE_FILE.lines().zip(example_config().lines()) {
            assert_eq!(file, table);
        }
        assert_eq!(EXAMPLE_FILE, example_config());
        let longest = EXAMPLE_FILE.lines().map(|line| line.chars().count()).max();
        assert!(longest <= Some(MAX_LINE_CHARS), "{longest:?}");
    }

    #[test]
    fn the_handbook_has_the_row_of_each_key_and_no_other() {
        for section in AGENT_KEYS.sections {
            // A section may be a table within another one, such as [analytics.deliver].
            let is_of_section = |line: &&str| {
                let name = line.strip_prefix("| `").and_then(|rest| rest.split('`').next());
                name.and_then(|name| name.rsplit_once('.')).is_some_and(|(table, _)| table == section.name)
            };
            let written: Vec<&str> = HANDBOOK.lines().filter(is_of_section).collect();
            let table: Vec<String> = section.keys.iter().map(handbook_row).collect();
            assert_eq!(written, table);
        }
        let is_list = |line: &&str| line.starts_with("| `[[");
        let (lists, others): (Vec<&str>, Vec<&str>) =
            HANDBOOK.lines().filter(|line| line.starts_with("| `")).partition(is_list);
        assert_eq!(others.len(), keys().count());
        for list in AGENT_KEYS.lists {
            let name = format!("`[[{}]]`", list.name);
            assert_eq!(lists.iter().filter(|line| line.contains(&name)).count(), 1, "{name}");
        }
    }

    #[test]
    fn each_config_key_has_a_help_text_and_a_default_or_an_example() {
        for section in AGENT_KEYS.sections {
            assert!(section.keys.first().is_some_and(|key| !key.comment.is_empty()), "{}", section.name);
            for key in section.keys {
                assert_eq!(key.parts().0, section.name, "{}", key.name);
                assert_ne!(key.default.is_empty(), key.example.is_empty(), "{}: a default or an example", key.name);
                assert!(!key.help.is_empty() && !key.help.contains('|'), "{}: {}", key.name, key.help);
            }
        }
    }
}
