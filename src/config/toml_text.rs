//! Keys and strings as TOML text.

use serde_json::json;

/// Formats a basic string of TOML. JSON strings are the same, except that TOML also requires U+007F to be escaped.
pub(super) fn toml_string(text: &str) -> String {
    json!(text).to_string().replace('\u{7f}', "\\u007f")
}

/// Formats a key of a row as TOML. In a key of an inner table, the name is quoted if TOML requires it.
pub(super) fn toml_key(key: &str) -> String {
    let is_bare = |part: &str| part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
    match key.split_once('.') {
        Some((parent, name)) if !is_bare(name) => format!("{parent}.{}", toml_string(name)),
        _ => key.to_owned(),
    }
}
