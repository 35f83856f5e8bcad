//! The script by which the calls of a page to listed origins go through the playground: `BASE/_docwharf/playground.js`.

use docwharf_site::lookup::RESERVED_FOLDER;

use crate::playground_settings::AllowedTarget;
use crate::search::SearchAsset;

/// The script as written. [`render_script_asset`] makes what is served.
const PLAYGROUND_JS: &str = include_str!("playground.js");
/// The place of the settings in the script: an empty object, so that the file is a valid script as written.
const SETTINGS_PLACEHOLDER: &str = "/*SETTINGS*/{}";

/// Returns whether a decoded path within the site is that of the script.
pub(crate) fn is_script_path(path: &[u8]) -> bool {
    path.strip_prefix(b"/").and_then(|path| path.strip_prefix(RESERVED_FOLDER)) == Some(b"/playground.js")
}

/// Renders the script for these targets of a site below `base_path`.
pub(crate) fn render_script_asset(allow: &[AllowedTarget], base_path: &str) -> SearchAsset {
    SearchAsset::from_script(render_script(allow, base_path))
}

/// Renders the script: with the settings as a JSON literal, and without lines of comments and indentation. No literal
/// of the script spans lines.
fn render_script(allow: &[AllowedTarget], base_path: &str) -> String {
    let mut origins: Vec<String> = allow.iter().map(browser_origin).collect();
    origins.sort();
    origins.dedup();
    let settings = serde_json::json!({ "origins": origins, "base": base_path });
    let lines = PLAYGROUND_JS.lines().map(str::trim_start);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("//"));
    let script: String = lines.flat_map(|line| [line, "\n"]).collect();
    script.replacen(SETTINGS_PLACEHOLDER, &settings.to_string(), 1)
}

/// Returns the origin of a target as browsers write it (RFC 6454, section 6.2): without the default port.
fn browser_origin(target: &AllowedTarget) -> String {
    let (scheme, default_port) = if target.is_https { ("https", 443) } else { ("http", 80) };
    let port = if target.port == default_port { String::new() } else { format!(":{}", target.port) };
    format!("{scheme}://{}{port}", target.host)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(is_https: bool, host: &str, port: u16) -> AllowedTarget {
        let host = host.to_owned();
        AllowedTarget { is_https, host, port, methods: Vec::new(), paths: Vec::new(), addresses: Vec::new() }
    }

    #[test]
    fn the_script_has_each_listed_origin_once_and_nothing_else_of_the_settings() {
        let allow = [
            target(true, "b.example", 443),
            target(false, "a.example", 80),
            target(true, "b.example", 443),
            target(true, "b.example", 8443),
            target(false, "[::1]", 443),
        ];
        let script = render_script(&allow, "/docs/");
        let settings = concat!(
            r#"{"base":"/docs/","origins":["http://[::1]:443","http://a.example","https://b.example","#,
            r#""https://b.example:8443"]}"#,
        );
        assert_eq!(script.matches(settings).count(), 1, "{script}");
        assert!(!script.contains("/*SETTINGS*/") && !script.contains("\n//") && !script.contains("\n "));
    }

    #[test]
    fn only_its_own_path_is_that_of_the_script() {
        for (path, expected) in [
            ("/_docwharf/playground.js", true),
            ("/_docwharf/playground", false),
            ("/_docwharf/playground.js/", false),
            ("/playground.js", false),
            ("/a/_docwharf/playground.js", false),
        ] {
            assert_eq!(is_script_path(path.as_bytes()), expected, "{path}");
        }
    }
}
