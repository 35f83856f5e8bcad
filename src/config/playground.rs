//! `[playground]`: the APIs to which "Try it" forms of the site may send requests through docwharf.

use std::sync::Arc;
use std::time::Duration;

use http::Method;

use docwharf_base::model::cidr::IpRange;
use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::net::NetworkSettings;
use docwharf_base::secret::SafeUrl;
use docwharf_serve::{AllowedTarget, HostList, PlaygroundSettings};
use docwharf_site::rules::pattern::{Pattern, PatternDialect};

use super::assistant::number_or;
use super::checker::{ValueChecker, WrittenValues};
use super::deployment::check_outbound_url;
use super::key_table::{ValueType, size_range};
use super::keys::PLAYGROUND_METHODS;
use super::problem::ConfigProblem;
use super::written_value::{TableRow, WrittenValue};

/// The list of the targets.
const ALLOW: &str = "playground.allow";
/// The maximum number of targets. Each request is compared with all of them.
const MAX_TARGETS: usize = 100;
/// The maximum number of paths, and of addresses, of a target.
const MAX_ITEMS: usize = 100;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);
const DEFAULT_MAX_REQUEST_BYTES: u64 = 1 << 20;
const DEFAULT_MAX_RESPONSE_BYTES: u64 = 5 << 20;
const DEFAULT_PER_MINUTE: u32 = 60;

/// The settings of the API playground.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaygroundConfig {
    /// Whether it is on.
    pub enabled: bool,
    /// The settings, which are in force if it is on.
    pub settings: PlaygroundSettings,
}

impl PlaygroundConfig {
    /// Returns the settings for a site; `None` if the playground is off.
    pub fn to_site_settings(&self) -> Option<Arc<PlaygroundSettings>> {
        self.enabled.then(|| Arc::new(self.settings.clone()))
    }

    /// Returns the origins of the targets, each once, with the addresses that are allowed although they are not public.
    pub fn origins(&self) -> Vec<(String, Vec<IpRange>)> {
        let mut origins: Vec<(String, Vec<IpRange>)> = Vec::new();
        for target in &self.settings.allow {
            let name = origin_of(target);
            match origins.iter_mut().find(|(known, _)| *known == name) {
                Some((_, addresses)) => addresses.extend(&target.addresses),
                None => origins.push((name, target.addresses.clone())),
            }
        }
        origins
    }
}

/// Returns the origin of a target, as browsers write it (RFC 6454, section 6.2).
fn origin_of(target: &AllowedTarget) -> String {
    let (scheme, default_port) = if target.is_https { ("https", 443) } else { ("http", 80) };
    let port = if target.port == default_port { String::new() } else { format!(":{}", target.port) };
    format!("{scheme}://{}{port}", target.host)
}

/// Checks `[playground]`. `hosts` are those of `assistant.hosts`; `network` has the settings of connections. The
/// proxies of the environment are not used: they would choose the address, which docwharf has to check.
pub(super) fn check_playground(
    checker: &mut ValueChecker<'_>,
    warnings: &mut Vec<ConfigProblem>,
    hosts: &HostList,
    network: &NetworkSettings,
) -> PlaygroundConfig {
    let enabled = checker.flag("playground.enabled").unwrap_or(false);
    let allow = check_targets(checker, &network.outbound);
    if let Some(written) = checker.raw.get("playground.enabled").filter(|_| enabled && allow.is_empty()) {
        let message = format!("playground.enabled: each request is refused: list an API in [[{ALLOW}]]");
        warnings.push(ConfigProblem { place: written.place.clone(), message });
    }
    PlaygroundConfig {
        enabled,
        settings: PlaygroundSettings {
            allow,
            hosts: hosts.clone(),
            timeout: checker.duration("playground.timeout").unwrap_or(DEFAULT_TIMEOUT),
            max_request: check_size(checker, "playground.maxRequest").unwrap_or(DEFAULT_MAX_REQUEST_BYTES),
            max_response: check_size(checker, "playground.maxResponse").unwrap_or(DEFAULT_MAX_RESPONSE_BYTES),
            per_minute: number_or(checker, "playground.perMinute", DEFAULT_PER_MINUTE),
            rewrite: checker.flag("playground.rewrite").unwrap_or(false),
            network: NetworkSettings { ignore_proxies: true, ..network.clone() },
        },
    }
}

/// Reads a size within the bounds of the table of keys.
fn check_size(checker: &mut ValueChecker<'_>, key: &str) -> Option<u64> {
    let (min, max) = checker.number_bounds(key);
    let bytes = checker.size(key)?;
    if (min..=max).contains(&bytes) {
        return Some(bytes);
    }
    checker.value(key, |_| Err(format!("a size from {} is needed", size_range(min, max))))
}

/// Checks the rows of `[[playground.allow]]`. An origin may be in several rows, with other methods and paths in each.
fn check_targets(checker: &mut ValueChecker<'_>, outbound: &OutboundPolicy) -> Vec<AllowedTarget> {
    let mut targets: Vec<AllowedTarget> = Vec::new();
    let raw = checker.raw;
    for (number, row) in raw.rows(ALLOW).enumerate() {
        if number == MAX_TARGETS {
            let message = format!("{ALLOW}: more than {MAX_TARGETS} APIs");
            checker.problems.push(ConfigProblem { place: row.place.clone(), message });
            break;
        }
        let values = TargetValues(row);
        let mut row_checker = ValueChecker { raw: &values, problems: Vec::new() };
        let target = check_target(&mut row_checker, outbound);
        checker.problems.append(&mut row_checker.problems);
        targets.extend(target);
    }
    targets
}

/// The values of one row of `[[playground.allow]]`.
struct TargetValues<'a>(&'a TableRow);

impl WrittenValues for TargetValues<'_> {
    fn written(&self, key: &str) -> Option<&WrittenValue> {
        self.0.get(key)
    }

    fn value_type(&self, key: &str) -> Option<ValueType> {
        self.0.list.find_key(key).map(|key| key.value_type)
    }

    fn message_name(&self, key: &str) -> String {
        format!("{ALLOW}.{key}")
    }
}

fn check_target(checker: &mut ValueChecker<'_, TargetValues<'_>>, outbound: &OutboundPolicy) -> Option<AllowedTarget> {
    if checker.raw.written("origin").is_none() {
        let message = format!("{ALLOW}.origin: it is missing; write origin = \"https://api.example.com\"");
        checker.problems.push(ConfigProblem { place: checker.raw.0.place.clone(), message });
    }
    let origin = checker.parsed("origin", |text| check_outbound_url(parse_origin(text)?, outbound));
    let methods = check_methods(checker);
    let paths = check_items(checker, "paths", parse_path);
    let addresses = check_items(checker, "addresses", |text| IpRange::parse(text).map_err(|error| error.to_string()));
    let origin = origin?;
    let url = origin.expose();
    Some(AllowedTarget {
        is_https: origin.is_encrypted(),
        host: url.host_str()?.to_owned(),
        port: url.port_or_known_default()?,
        methods,
        paths: paths.unwrap_or_default(),
        addresses: addresses.unwrap_or_default(),
    })
}

/// Parses an origin: scheme, host and port. A slash at the end is accepted. The error message never repeats the text,
/// because it may contain a password.
fn parse_origin(text: &str) -> Result<SafeUrl, String> {
    let origin = SafeUrl::parse(text)?;
    let url = origin.expose();
    let has_more = !url.username().is_empty()
        || url.password().is_some()
        || url.path() != "/"
        || url.query().is_some()
        || url.fragment().is_some();
    if has_more {
        return Err("an origin has a scheme, a host and perhaps a port, and nothing else: write it like \
                    https://api.example.com"
            .to_owned());
    }
    Ok(origin)
}

fn check_methods(checker: &mut ValueChecker<'_, TargetValues<'_>>) -> Vec<Method> {
    let Some(names) = checker.texts("methods") else { return vec![Method::GET] };
    let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let parse = |name: &String| {
        let known = PLAYGROUND_METHODS.contains(&name.as_str());
        known.then(|| name.parse::<Method>().ok()).flatten()
    };
    let methods: Option<Vec<Method>> = names.iter().map(parse).collect();
    methods.filter(|methods| !methods.is_empty()).unwrap_or_else(|| {
        let known = PLAYGROUND_METHODS.join(", ");
        checker.value::<()>("methods", |_| Err(format!("one or more of {known} are needed")));
        Vec::new()
    })
}

/// Parses a pattern of paths: `*` stands for any text.
fn parse_path(text: &str) -> Result<Pattern, String> {
    if !text.starts_with('/') {
        return Err(format!("{text:?} is not a path: write it like /v1/*"));
    }
    Pattern::parse(text, PatternDialect::Netlify).map_err(|why| format!("{text:?}: {why}"))
}

/// Reads a list, of which each item is parsed with `parse`.
fn check_items<T>(
    checker: &mut ValueChecker<'_, TargetValues<'_>>,
    key: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Option<Vec<T>> {
    let texts: Vec<String> = checker.texts(key)?.into_iter().filter(|text| !text.is_empty()).collect();
    let items = match texts.len() {
        number if number > MAX_ITEMS => Err(format!("{number} items; at most {MAX_ITEMS} are allowed")),
        _ => texts.iter().map(|text| parse(text)).collect(),
    };
    match items {
        Ok(items) => Some(items),
        Err(why) => {
            checker.value::<()>(key, |_| Err(why));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::written::WrittenConfig;

    /// Checks the section of a configuration: the settings and the warnings, or the mistakes.
    fn checked(text: &str) -> Result<(PlaygroundConfig, Vec<String>), Vec<String>> {
        let mut raw = WrittenConfig::default();
        raw.read_toml(text, Path::new("c.toml"));
        let problems = std::mem::take(&mut raw.problems);
        let mut checker = ValueChecker { raw: &raw, problems };
        let (mut warnings, hosts) = (Vec::new(), HostList::parse(&["docs.example.com"]));
        let config = check_playground(&mut checker, &mut warnings, &hosts, &NetworkSettings::default());
        let lines = |problems: &[ConfigProblem]| problems.iter().map(ToString::to_string).collect::<Vec<_>>();
        if checker.problems.is_empty() { Ok((config, lines(&warnings))) } else { Err(lines(&checker.problems)) }
    }

    /// Returns a configuration that allows this origin, with further keys.
    fn allowing(origin: &str, more: &str) -> String {
        format!("[[playground.allow]]\norigin = \"{origin}\"\n{more}")
    }

    fn targets(text: &str) -> Vec<AllowedTarget> {
        checked(text).unwrap_or_else(|problems| panic!("{text}: {problems:#?}")).0.settings.allow
    }

    #[test]
    fn without_the_section_the_playground_is_off_and_no_proxy_is_used() {
        let (config, warnings) = checked("").unwrap();
        let settings = &config.settings;
        assert!(config.to_site_settings().is_none() && warnings.is_empty() && settings.allow.is_empty());
        assert!(settings.network.ignore_proxies && !settings.rewrite);
        let sizes = (settings.max_request, settings.max_response, settings.per_minute.get());
        assert_eq!((sizes, settings.timeout), ((1 << 20, 5 << 20, 60), Duration::from_secs(30)));
        assert_eq!(settings.hosts, HostList::parse(&["docs.example.com"]));
        let text = "[playground]\nenabled = true\ntimeout = \"1s\"\nmaxRequest = 1024\nmaxResponse = \"64MiB\"\n\
                    perMinute = 1\nrewrite = true\n";
        let (config, warnings) = checked(text).unwrap();
        let settings = config.to_site_settings().expect("it is on");
        let sizes = (settings.max_request, settings.max_response, settings.per_minute.get());
        assert_eq!((sizes, settings.timeout), ((1 << 10, 64 << 20, 1), Duration::from_secs(1)));
        assert!(settings.rewrite);
        let expected = "c.toml:2:1: playground.enabled: each request is refused: list an API in [[playground.allow]]";
        assert_eq!(warnings, [expected]);
        let (_, warnings) = checked(&format!("playground.enabled = true\n{}", allowing("http://a/", ""))).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn a_target_has_the_method_get_and_all_paths_unless_it_names_others() {
        let target = targets(&allowing("https://API.example.com", "")).remove(0);
        assert_eq!((target.is_https, target.host.as_str(), target.port), (true, "api.example.com", 443));
        assert_eq!(target.methods, [Method::GET]);
        assert!(target.paths.is_empty() && target.addresses.is_empty());
        let more = "methods = [\"POST\", \"DELETE\"]\npaths = [\"/v1/*\", \"/caf%C3%A9\"]\n\
                    addresses = [\"10.0.0.0/8\", \"::1\"]\n";
        let target = targets(&allowing("http://[::1]:8080/", more)).remove(0);
        assert_eq!((target.is_https, target.host.as_str(), target.port), (false, "[::1]", 8080));
        assert_eq!(target.methods, [Method::POST, Method::DELETE]);
        let matches = |path: &str| target.paths.iter().any(|pattern| pattern.matches(path.as_bytes()).is_some());
        assert!(matches("/v1/users/7") && matches("/café") && !matches("/v2/users"));
        assert!(target.addresses[0].contains("10.9.8.7".parse().unwrap()) && target.addresses.len() == 2);
        // Another port or scheme is another origin.
        let all = ["http://a", "https://a", "http://a:81"].map(|origin| allowing(origin, "")).concat();
        assert_eq!(targets(&all).len(), 3);
    }

    #[test]
    fn an_origin_in_several_tables_is_named_once_with_the_addresses_of_all() {
        let first = allowing("https://A", "addresses = [\"10.0.0.0/8\"]\n");
        let second = allowing("https://a:443/", "methods = [\"POST\"]\naddresses = [\"::1\"]\n");
        let config = checked(&[first, second, allowing("http://a:81", "")].concat()).unwrap().0;
        let origins = config.origins();
        let names: Vec<&str> = origins.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!((names, config.settings.allow.len()), (vec!["https://a", "http://a:81"], 3));
        let ranges: Vec<String> = origins[0].1.iter().map(ToString::to_string).collect();
        assert_eq!((ranges.join(" "), origins[1].1.len()), ("10.0.0.0/8 ::1".to_owned(), 0));
    }

    #[test]
    fn each_mistake_of_the_playground_is_one_line_that_names_its_key_and_no_secret() {
        let origin = "playground.allow.origin: an origin has a scheme, a host and perhaps a port, and nothing else: \
                      write it like https://api.example.com";
        let known = "one or more of GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS are needed";
        let range = "write it like 10.0.0.0/8, 2001:db8::/32 or ::1";
        let mut cases = vec![
            (allowing("ftp://a", ""), "2:1: playground.allow.origin: it is not http or https but \"ftp\"".to_owned()),
            ("[[playground.allow]]\nmethods = \"GET\"\n".to_owned(), {
                "1:1: playground.allow.origin: it is missing; write origin = \"https://api.example.com\"".to_owned()
            }),
            ("[[playground.allow]]\norigin = 7\n".to_owned(), {
                "2:1: playground.allow.origin: a text in quotes is needed".to_owned()
            }),
            (allowing("http://a", "methods = []\n"), format!("3:1: playground.allow.methods: {known}")),
            (allowing("http://a", "methods = [\"GET\", \"CONNECT\"]\n"), {
                format!("3:1: playground.allow.methods: {known}")
            }),
            (allowing("http://a", "methods = \"get\"\n"), format!("3:1: playground.allow.methods: {known}")),
            (allowing("http://a", "paths = [\"v1\"]\n"), {
                "3:1: playground.allow.paths: \"v1\" is not a path: write it like /v1/*".to_owned()
            }),
            (allowing("http://a", "addresses = [\"internal.example\"]\n"), {
                let start = "3:1: playground.allow.addresses: \"internal.example\" is not a range of addresses";
                format!("{start}: {range}")
            }),
            ("[playground]\nmaxRequest = 1023\n".to_owned(), {
                "2:1: playground.maxRequest: a size from 1KiB to 16MiB is needed".to_owned()
            }),
            ("[playground]\nmaxResponse = \"65MiB\"\n".to_owned(), {
                "2:1: playground.maxResponse: a size from 1KiB to 64MiB is needed".to_owned()
            }),
        ];
        for text in [
            "https://ada:secret-value@a",
            "https://secret-value@a",
            "https://a/v1",
            "https://a?secret-value",
            "https://a/#x",
        ] {
            cases.push((allowing(text, ""), format!("2:1: {origin}")));
        }
        for (text, expected) in cases {
            assert_eq!(checked(&text), Err(vec![format!("c.toml:{expected}")]), "{text}");
        }
        let items = allowing("http://a", &format!("paths = [{}]\n", "\"/a\",".repeat(101)));
        let message = "c.toml:3:1: playground.allow.paths: 101 items; at most 100 are allowed";
        assert_eq!(checked(&items), Err(vec![message.to_owned()]));
        let many: String = (0..101).map(|number| allowing(&format!("http://a:{}", number + 1), "")).collect();
        let message = "c.toml:201:1: playground.allow: more than 100 APIs";
        assert_eq!(checked(&many), Err(vec![message.to_owned()]));
        let unknown = checked(&allowing("http://a", "method = \"GET\"\n")).unwrap_err();
        let message = "c.toml:3:1: there is no key playground.allow.method; did you mean playground.allow.methods?";
        assert_eq!(unknown, [message]);
    }
}
