//! Configuration proved: every value has its type, every default is filled in.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::digest::Digest;
use crate::model::limits::Limits;
use crate::model::units::{parse_duration, parse_size};
use crate::model::version::Label;
use crate::seal::Effort;
use crate::serve::Settings;
use crate::site::lookup::Slashes;
use crate::sync::Intent;

use super::raw::{Raw, Value, Written};
use super::{Place, Problem};

/// Where the configuration is when nobody says otherwise.
pub const DEFAULT_FILE: &str = "/etc/docwharf/config.toml";
/// Where the store is when nobody says otherwise.
const DEFAULT_STORE: &str = "/var/lib/docwharf";
/// The only listener with a default.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

/// All that docwharf does, decided.
#[derive(Debug, Clone)]
pub struct Config {
    /// What a sync is to do.
    pub intent: Intent,
    /// How often the source is looked at.
    pub interval: Duration,
    /// Where versions are kept.
    pub store: PathBuf,
    /// Where the site is served.
    pub listen: Vec<SocketAddr>,
    /// How.
    pub settings: Settings,
}

/// Where configuration comes from.
#[derive(Debug, Clone, Default)]
pub struct Sources {
    /// `--config`
    pub flag: Option<PathBuf>,
}

impl Sources {
    /// Reads file and environment, and proves them.
    pub fn load(&self) -> Result<Config, Vec<Problem>> {
        let named = self.flag.clone().or_else(|| std::env::var_os("DOCWHARF_CONFIG").map(PathBuf::from));
        let path = named.clone().unwrap_or_else(|| PathBuf::from(DEFAULT_FILE));
        let mut raw = Raw::default();
        match std::fs::read_to_string(&path) {
            Ok(text) => raw.read_toml(&text, &path),
            Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                let what = format!("cannot read {}: {error}", path.display());
                return Err(vec![Problem { place: Place::Missing, what }]);
            }
        }
        raw.read_env(std::env::vars_os());
        // Absolute, so that the source's name in receipts says which file it was.
        let path = std::path::absolute(&path).unwrap_or(path);
        check(raw, path.parent().unwrap_or(Path::new("/")))
    }
}

struct Checker<'a> {
    raw: &'a Raw,
    problems: Vec<Problem>,
}

impl Checker<'_> {
    fn problem(&mut self, written: &Written, what: String) {
        self.problems.push(Problem { place: written.place.clone(), what });
    }

    /// A value that `parse` understands; text from the environment is parsed like text from a file.
    fn value<T>(&mut self, key: &str, parse: impl FnOnce(&Value) -> Result<T, String>) -> Option<T> {
        let written = self.raw.get(key)?;
        match parse(&written.value) {
            Ok(value) => Some(value),
            Err(why) => {
                self.problem(written, format!("{key}: {why}"));
                None
            }
        }
    }

    fn text(&mut self, key: &str) -> Option<String> {
        self.value(key, |value| match value {
            Value::Text(text) if text.is_empty() => Err("it is empty".to_owned()),
            Value::Text(text) => Ok(text.clone()),
            _ => Err("a text in quotes is needed".to_owned()),
        })
    }

    fn flag(&mut self, key: &str) -> Option<bool> {
        self.value(key, |value| match value {
            Value::Flag(flag) => Ok(*flag),
            Value::Text(text) if text == "true" => Ok(true),
            Value::Text(text) if text == "false" => Ok(false),
            _ => Err("true or false is needed".to_owned()),
        })
    }

    fn number(&mut self, key: &str, least: u64, most: u64) -> Option<u64> {
        self.value(key, |value| {
            let number = match value {
                Value::Number(number) => u64::try_from(*number).ok(),
                Value::Text(text) => text.parse().ok(),
                _ => None,
            };
            number
                .filter(|n| (least..=most).contains(n))
                .ok_or_else(|| format!("a whole number from {least} to {most} is needed"))
        })
    }

    fn size(&mut self, key: &str) -> Option<u64> {
        self.value(key, |value| match value {
            Value::Text(text) => parse_size(text),
            Value::Number(number) => u64::try_from(*number).map_err(|_| "a size is not negative".to_owned()),
            _ => Err("a size such as \"64MiB\" is needed".to_owned()),
        })
    }

    fn texts(&mut self, key: &str) -> Option<Vec<String>> {
        self.value(key, |value| match value {
            Value::Text(text) => Ok(text.split(',').map(|item| item.trim().to_owned()).collect()),
            Value::Texts(texts) => Ok(texts.clone()),
            _ => Err("a text or a list of texts is needed".to_owned()),
        })
    }
}

/// Proves what was written. Relative paths of a file are relative to it, those of the environment to where we are.
fn check(mut raw: Raw, beside: &Path) -> Result<Config, Vec<Problem>> {
    let problems = std::mem::take(&mut raw.problems);
    let mut checker = Checker { raw: &raw, problems };
    let base_of = |key: &str| match raw.get(key).map(|written| &written.place) {
        Some(Place::File(..)) => beside.to_owned(),
        _ => std::env::current_dir().unwrap_or_default(),
    };
    let intent = check_intent(&mut checker, &base_of("staticExport.bundleUrl"));
    let interval = checker.value("sync.interval", |value| match value {
        Value::Text(text) => parse_duration(text).and_then(|interval| {
            if interval < Duration::from_millis(100) {
                Err("at least 100ms is needed".to_owned())
            } else {
                Ok(interval)
            }
        }),
        _ => Err("a duration such as \"15m\" is needed".to_owned()),
    });
    let store = match checker.text("store.path") {
        Some(path) => base_of("store.path").join(path),
        None => std::env::var_os("STATE_DIRECTORY")
            // systemd gives a list when a unit has several.
            .and_then(|value| value.to_str()?.split(':').next().map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from(DEFAULT_STORE)),
    };
    let listen = check_listen(&mut checker);
    let settings = check_settings(&mut checker);
    if !checker.problems.is_empty() {
        Problem::sort(&mut checker.problems);
        return Err(checker.problems);
    }
    Ok(Config { intent, interval: interval.unwrap_or(Duration::from_mins(15)), store, listen, settings })
}

fn check_intent(checker: &mut Checker<'_>, base: &Path) -> Intent {
    let enabled = checker.flag("staticExport.enabled");
    let source = checker.value("staticExport.bundleUrl", |value| match value {
        Value::Text(text) => bundle_path(text),
        _ => Err("a text in quotes is needed".to_owned()),
    });
    let pin = checker.value("staticExport.version", |value| match value {
        Value::Text(text) => Label::new(text).map_err(str::to_owned),
        _ => Err("a text in quotes is needed".to_owned()),
    });
    let sha256 = checker.value("staticExport.sha256", |value| match value {
        Value::Text(text) => Digest::parse(text.trim()).ok_or_else(|| "64 hex digits are needed".to_owned()),
        _ => Err("64 hex digits in quotes are needed".to_owned()),
    });
    let limits = Limits::default();
    let limits = Limits {
        entries: checker.number("limits.entries", 1, 10_000_000).unwrap_or(limits.entries),
        unpacked: checker.size("limits.unpacked").unwrap_or(limits.unpacked),
        archive: checker.size("limits.archive").unwrap_or(limits.archive),
        entry: checker.size("limits.entry").unwrap_or(limits.entry),
    };
    let mut effort = Effort::new(limits);
    if let Some(threads) = checker.number("sync.threads", 1, 256) {
        effort.threads = threads as usize;
    }
    Intent {
        enabled: enabled.unwrap_or(true),
        source: source.map(|path| base.join(path)),
        pin,
        sha256,
        effort,
        keep: checker.number("sync.keep", 0, 10_000).unwrap_or(3) as usize,
    }
}

/// A path, or a file URL (RFC 8089) of this machine.
fn bundle_path(text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    if let Some(rest) = text.strip_prefix("file:") {
        let path = match rest.strip_prefix("//") {
            Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
            None => rest,
        };
        if !path.starts_with('/') {
            return Err("a file URL is written file:///path/to/bundle.zip".to_owned());
        }
        let path = percent_encoding::percent_decode_str(path).decode_utf8();
        return path.map(|path| PathBuf::from(path.as_ref())).map_err(|_| "it is not UTF-8".to_owned());
    }
    // The text is a secret where it is a signed link: it is not repeated.
    match text.split_once("://") {
        Some((scheme, _)) => Err(format!(
            "bundles are read from a path or a file:// URL, not over {}; fetch the bundle first",
            crate::base::chain::Name(scheme.as_bytes())
        )),
        None => Ok(PathBuf::from(text)),
    }
}

fn check_listen(checker: &mut Checker<'_>) -> Vec<SocketAddr> {
    let texts = checker.texts("server.listen").unwrap_or_else(|| vec![DEFAULT_LISTEN.to_owned()]);
    let parsed = texts.iter().map(|text| parse_listen(text)).collect::<Result<Vec<_>, _>>();
    match parsed {
        Ok(list) if !list.is_empty() => list,
        Ok(_) => {
            checker.value::<()>("server.listen", |_| Err("at least one address is needed".to_owned()));
            Vec::new()
        }
        Err(why) => {
            checker.value::<()>("server.listen", |_| Err(why));
            Vec::new()
        }
    }
}

/// An address to listen on.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| format!("{text:?} is no address: write it like 127.0.0.1:8080 or [::]:8080"))
}

fn check_settings(checker: &mut Checker<'_>) -> Settings {
    let defaults = Settings::default();
    let base_path = checker.value("server.basePath", |value| match value {
        Value::Text(text) => parse_base_path(text),
        _ => Err("a text in quotes is needed".to_owned()),
    });
    let slashes = checker.value("server.slashes", |value| match value {
        Value::Text(text) => parse_slashes(text),
        _ => Err("\"auto\", \"serve\" or \"redirect\" is needed".to_owned()),
    });
    Settings {
        base_path: base_path.unwrap_or(defaults.base_path),
        slashes: slashes.unwrap_or(defaults.slashes),
        identity_cache: checker.size("server.identityCache").unwrap_or(defaults.identity_cache),
    }
}

/// `auto`, `serve` or `redirect`.
pub fn parse_slashes(text: &str) -> Result<Option<Slashes>, String> {
    match text {
        "auto" => Ok(None),
        "serve" => Ok(Some(Slashes::Serve)),
        "redirect" => Ok(Some(Slashes::Redirect)),
        _ => Err("\"auto\", \"serve\" or \"redirect\" is needed".to_owned()),
    }
}

/// Where the site begins: `/`, `/docs`, `/docs/`; the result ends with a slash.
pub fn parse_base_path(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is no base path: write it like / or /docs/");
    let inner = text.strip_prefix('/').ok_or_else(wrong)?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return if text == "/" { Ok(text.to_owned()) } else { Err(wrong()) };
    }
    let plain = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
    };
    if inner.split('/').all(plain) { Ok(format!("/{inner}/")) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checked(text: &str) -> Result<Config, Vec<String>> {
        let mut raw = Raw::default();
        raw.read_toml(text, Path::new("/etc/c.toml"));
        check(raw, Path::new("/etc")).map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn paths_are_relative_to_the_file_and_defaults_are_filled_in() {
        let config = checked("[staticExport]\nbundleUrl = \"docs.zip\"\n[store]\npath = \"store\"\n").unwrap();
        assert_eq!(config.intent.source.as_deref(), Some(Path::new("/etc/docs.zip")));
        assert_eq!(config.store, Path::new("/etc/store"));
        assert!(config.intent.enabled);
        assert_eq!(config.listen, [DEFAULT_LISTEN.parse().unwrap()]);
        assert_eq!(config.interval, Duration::from_mins(15));
    }

    #[test]
    fn file_urls_are_paths() {
        assert_eq!(bundle_path("file:///a%20b.zip"), Ok(PathBuf::from("/a b.zip")));
        assert_eq!(bundle_path("file://localhost/x"), Ok(PathBuf::from("/x")));
        assert!(bundle_path("file://host/x").is_err());
        let refused = bundle_path("https://bucket/x?X-Amz-Signature=secret").unwrap_err();
        assert!(!refused.contains("secret"), "{refused}");
    }

    #[test]
    fn every_wrong_value_is_one_line_that_names_its_key() {
        let text = "[staticExport]\nenabled = \"perhaps\"\nsha256 = \"12\"\nversion = \"\"\n\
                    [server]\nlisten = [\"here\"]\nbasePath = \"docs\"\nslashes = \"both\"\n\
                    [sync]\ninterval = 5\nkeep = -1\n[limits]\narchive = \"1XB\"\nentries = 0\n";
        let problems = checked(text).unwrap_err();
        let keys =
            ["enabled", "sha256", "version", "listen", "basePath", "slashes", "interval", "keep", "archive", "entries"];
        assert_eq!(problems.len(), keys.len(), "{problems:#?}");
        for key in keys {
            assert_eq!(problems.iter().filter(|line| line.contains(&format!(".{key}:"))).count(), 1, "{key}");
        }
    }

    #[test]
    fn a_base_path_ends_with_a_slash() {
        assert_eq!(parse_base_path("/docs").unwrap(), "/docs/");
        assert_eq!(parse_base_path("/a/b/").unwrap(), "/a/b/");
        assert_eq!(parse_base_path("/").unwrap(), "/");
        for wrong in ["", "docs", "//", "//x", "/../x", "/a b", "/a//b"] {
            assert!(parse_base_path(wrong).is_err(), "{wrong:?}");
        }
    }
}
