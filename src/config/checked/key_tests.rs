//! Tests of all keys at once: their defaults, their smallest and largest value, and values of another type.

use std::path::Path;

use docwharf_serve::security_headers::{DEFAULT_REFERRER_POLICY, FramePolicy};

use super::super::key_documents::example_config;
use super::super::key_table::{ConfigKey, ValueType};
use super::super::keys::{AGENT_KEYS, keys};
use super::super::show::{as_toml, lists_as_toml, values_in_force};
use super::super::written::WrittenConfig;
use super::{Config, check};

/// Another value of each key that has a default.
const OTHER_VALUES: &[(&str, &str)] = &[
    ("staticExport.enabled", "false"),
    ("api.statusPath", "\"/status/{statusId}\""),
    ("sync.interval", "\"16m\""),
    ("sync.maxAge", "\"25h\""),
    ("sync.jobTimeout", "\"31m\""),
    ("sync.keep", "4"),
    ("network.connectTimeout", "\"11s\""),
    ("network.callTimeout", "\"31s\""),
    ("network.idleTimeout", "\"31s\""),
    ("network.pollFirst", "\"2s\""),
    ("network.pollMost", "\"11s\""),
    ("network.redirects", "11"),
    ("deployment.type", "\"air-gapped\""),
    ("deployment.allow", "[\"10.0.0.5:443\"]"),
    ("store.path", "\"/srv/docwharf\""),
    ("store.scrub", "\"8d\""),
    ("server.listen", "\"127.0.0.1:8081\""),
    ("server.basePath", "\"/docs/\""),
    ("server.slashes", "\"serve\""),
    ("server.identityCache", "\"65MiB\""),
    ("server.heldBytes", "\"65MiB\""),
    ("server.codings", "[\"br\"]"),
    ("server.csp", "\"airgap\""),
    ("server.cspSize", "\"4KiB\""),
    ("server.frames", "\"any\""),
    ("server.referrerPolicy", "\"off\""),
    ("server.assetGrace", "\"73h\""),
    ("server.http2", "\"hyper\""),
    ("access.log", "\"json\""),
    ("access.logAddress", "\"full\""),
    ("search.enabled", "false"),
    ("search.inject", "\"always\""),
    ("search.selectors", "[\"#search\"]"),
    ("search.button", "false"),
    ("search.exclude", "[\"/internal/:path*\"]"),
    ("assistant.mcp", "false"),
    ("assistant.mcpPerMinute", "121"),
    ("assistant.markdown", "false"),
    ("assistant.llms", "false"),
    ("assistant.hosts", "[\"docs.example.com\"]"),
    ("assistant.maxQuestion", "1001"),
    ("assistant.maxContext", "24001"),
    ("assistant.maxAnswer", "1025"),
    ("assistant.timeout", "\"61s\""),
    ("assistant.parallel", "3"),
    ("assistant.perMinute", "11"),
    ("assistant.perDay", "2001"),
    ("playground.enabled", "true"),
    ("playground.timeout", "\"31s\""),
    ("playground.maxRequest", "\"2MiB\""),
    ("playground.maxResponse", "\"6MiB\""),
    ("playground.perMinute", "61"),
    ("playground.rewrite", "true"),
    ("analytics.enabled", "false"),
    ("analytics.searches", "false"),
    ("analytics.pages", "false"),
    ("analytics.keep", "\"401d\""),
    ("analytics.maxBytes", "\"2GiB\""),
    ("analytics.mask", "false"),
    ("analytics.respectOptOut", "false"),
    ("publish.mode", "\"0600\""),
    ("limits.entries", "200001"),
    ("limits.unpacked", "\"9GiB\""),
    ("analytics.deliver.interval", "\"2m\""),
    ("analytics.deliver.queue", "\"2MiB\""),
    ("limits.archive", "\"5GiB\""),
    ("limits.entry", "\"3GiB\""),
    ("activate.mode", "\"manual\""),
];

/// For each key that is a number, a size or a duration: its smallest and largest value, and values just outside.
const BOUNDS: &[(&str, [&str; 2], &[&str])] = &[
    ("sync.interval", ["\"100ms\"", LONGEST_DURATION], &["\"99ms\"", TOO_LONG_DURATION]),
    ("sync.maxAge", ["\"1s\"", LONGEST_DURATION], &["\"999ms\"", TOO_LONG_DURATION]),
    ("sync.jobTimeout", ["\"1s\"", LONGEST_DURATION], &["\"999ms\"", TOO_LONG_DURATION]),
    ("sync.keep", ["0", "10000"], &["-1", "10001"]),
    ("sync.threads", ["1", "256"], &["0", "257"]),
    ("network.connectTimeout", ["\"10ms\"", LONGEST_DURATION], &["\"9ms\"", TOO_LONG_DURATION]),
    ("network.callTimeout", ["\"10ms\"", LONGEST_DURATION], &["\"9ms\"", TOO_LONG_DURATION]),
    ("network.idleTimeout", ["\"10ms\"", LONGEST_DURATION], &["\"9ms\"", TOO_LONG_DURATION]),
    ("network.pollFirst", ["\"10ms\"", LONGEST_DURATION], &["\"9ms\"", TOO_LONG_DURATION]),
    ("network.pollMost", ["\"10ms\"", LONGEST_DURATION], &["\"9ms\"", TOO_LONG_DURATION]),
    ("network.redirects", ["0", "100"], &["-1", "101"]),
    ("store.maxBytes", ["0", LARGEST_SIZE], &["-1", TOO_LARGE_SIZE]),
    ("store.minFree", ["0", LARGEST_SIZE], &["-1", TOO_LARGE_SIZE]),
    // 0s means never.
    ("store.scrub", ["\"0s\"", LONGEST_DURATION], &["\"1ms\"", "\"599s\"", TOO_LONG_DURATION]),
    ("store.scrub", ["\"10m\"", LONGEST_DURATION], &[]),
    ("server.identityCache", ["0", LARGEST_SIZE], &["-1", TOO_LARGE_SIZE]),
    ("server.heldBytes", ["0", LARGEST_SIZE], &["-1", TOO_LARGE_SIZE]),
    ("server.cspSize", ["1024", "\"64KiB\""], &["-1", "1023", "65537"]),
    ("server.assetGrace", ["\"0s\"", LONGEST_DURATION], &["\"-1s\"", TOO_LONG_DURATION]),
    ("tls.hsts", ["\"0s\"", LONGEST_DURATION], &["\"-1s\"", TOO_LONG_DURATION]),
    ("search.parallel", ["1", "256"], &["0", "257"]),
    ("assistant.mcpPerMinute", ["1", "65535"], &["0", "65536"]),
    ("assistant.maxQuestion", ["1", "10000"], &["0", "10001"]),
    ("assistant.maxContext", ["1000", "1000000"], &["999", "1000001"]),
    ("assistant.maxAnswer", ["1", "100000"], &["0", "100001"]),
    ("assistant.timeout", ["\"100ms\"", LONGEST_DURATION], &["\"99ms\"", TOO_LONG_DURATION]),
    ("assistant.parallel", ["1", "256"], &["0", "257"]),
    ("assistant.perMinute", ["1", "65535"], &["0", "65536"]),
    ("assistant.perDay", ["1", "1000000000"], &["0", "1000000001"]),
    ("playground.timeout", ["\"100ms\"", LONGEST_DURATION], &["\"99ms\"", TOO_LONG_DURATION]),
    ("playground.maxRequest", ["1024", "\"16MiB\""], &["-1", "1023", "16777217"]),
    ("playground.maxResponse", ["1024", "\"64MiB\""], &["-1", "1023", "67108865"]),
    ("playground.perMinute", ["1", "65535"], &["0", "65536"]),
    ("analytics.keep", ["\"1d\"", LONGEST_DURATION], &["\"23h59m\"", TOO_LONG_DURATION]),
    ("analytics.maxBytes", ["\"1MiB\"", LARGEST_SIZE], &["1048575", "-1", TOO_LARGE_SIZE]),
    ("analytics.deliver.interval", ["\"1s\"", LONGEST_DURATION], &["\"999ms\"", TOO_LONG_DURATION]),
    ("analytics.deliver.queue", ["\"1MiB\"", LARGEST_SIZE], &["1048575", "-1", TOO_LARGE_SIZE]),
    ("publish.mode", ["\"0400\"", "\"0666\""], &["\"0044\"", "\"0667\"", "\"0755\""]),
    ("publish.umask", ["\"0000\"", "\"0077\""], &["\"0100\"", "\"0177\""]),
    ("limits.entries", ["1", "10000000"], &["0", "10000001"]),
    ("limits.unpacked", ["0", LARGEST_SIZE], &["-1", TOO_LARGE_SIZE]),
    ("limits.archive", ["0", LARGEST_SIZE], &["-1", TOO_LARGE_SIZE]),
    ("limits.entry", ["0", LARGEST_SIZE], &["-1", TOO_LARGE_SIZE]),
    ("gate.minPages", ["0", "1000000000"], &["-1", "1000000001"]),
    ("gate.maxShrink", ["\"0%\"", "\"100%\""], &["\"-1%\"", "\"101%\""]),
    ("gate.maxBrokenLinks", ["0", "1000000000"], &["-1", "1000000001"]),
];

const LONGEST_DURATION: &str = "\"4294967295d\"";
const TOO_LONG_DURATION: &str = "\"4294967296d\"";
const LARGEST_SIZE: &str = "\"18446744073709551615\"";
const TOO_LARGE_SIZE: &str = "\"18446744073709551616\"";

/// The other keys: texts, words, paths, addresses and flags.
const WITHOUT_BOUNDS: &[&str] = &[
    "staticExport.enabled",
    "staticExport.bundleUrl",
    "staticExport.bundleUrlFile",
    "staticExport.version",
    "staticExport.sha256",
    "api.baseUrl",
    "api.domain",
    "api.projectId",
    "api.keyFile",
    "api.caFile",
    "api.statusPath",
    "sync.schedule",
    "sync.probe",
    "sync.inbox",
    "deployment.type",
    "deployment.allow",
    "store.path",
    "server.listen",
    "server.basePath",
    "server.slashes",
    "server.codings",
    "server.csp",
    "server.frames",
    "server.referrerPolicy",
    "server.http2",
    "server.redirectsFile",
    "server.trustedProxies",
    "tls.certFile",
    "tls.keyFile",
    "tls.listen",
    "access.allow",
    "access.header",
    "access.log",
    "access.logFile",
    "access.logAddress",
    "search.enabled",
    "search.inject",
    "search.selectors",
    "search.button",
    "search.exclude",
    "search.synonyms",
    "assistant.mcp",
    "assistant.markdown",
    "assistant.llms",
    "assistant.hosts",
    "assistant.baseUrl",
    "assistant.model",
    "assistant.keyFile",
    "playground.enabled",
    "playground.rewrite",
    "analytics.enabled",
    "analytics.searches",
    "analytics.pages",
    "analytics.projectId",
    "analytics.keyFile",
    "analytics.mask",
    "analytics.respectOptOut",
    "analytics.bots",
    "analytics.deliver.baseUrl",
    "analytics.deliver.projectId",
    "analytics.deliver.keyFile",
    "admin.listen",
    "admin.hosts",
    "publish.directory",
    "gate.require",
    "activate.mode",
    "activate.listen",
];

/// Whether a configuration may set this key: without the feature `analytics`, each key of that section is a mistake.
fn is_in_this_build(name: &str) -> bool {
    cfg!(feature = "analytics") || !name.starts_with("analytics.")
}

/// Lists the keys that a configuration may set.
fn keys_of_this_build() -> impl Iterator<Item = ConfigKey> {
    keys().filter(|key| is_in_this_build(key.name))
}

/// The other keys without which a key has no effect.
fn required_keys(key: &str) -> &'static str {
    match key {
        "api.statusPath" | "api.projectId" | "api.keyFile" | "sync.probe" => {
            "[api]\nbaseUrl = \"https://api.example/v1/\"\ndomain = \"docs.example.com\"\n"
        }
        "analytics.deliver.baseUrl" => "[analytics]\ndeliver.keyFile = \"key\"\n",
        "analytics.deliver.keyFile" => "[analytics]\ndeliver.baseUrl = \"https://origin.example/v1\"\n",
        name if name.starts_with("analytics.deliver.") => {
            "[analytics]\ndeliver.baseUrl = \"https://origin.example/v1\"\ndeliver.keyFile = \"key\"\n"
        }
        "assistant.baseUrl" => "[assistant]\nmodel = \"m\"\n",
        "assistant.model" => "[assistant]\nbaseUrl = \"http://127.0.0.1:9/v1\"\n",
        "assistant.keyFile"
        | "assistant.maxQuestion"
        | "assistant.maxContext"
        | "assistant.maxAnswer"
        | "assistant.timeout"
        | "assistant.parallel"
        | "assistant.perMinute"
        | "assistant.perDay" => "[assistant]\nbaseUrl = \"http://127.0.0.1:9/v1\"\nmodel = \"m\"\n",
        "deployment.allow" => "[deployment]\ntype = \"air-gapped\"\n",
        "server.cspSize" => "[server]\ncsp = \"connected\"\n",
        "access.logAddress" => "[access]\nlog = \"json\"\n",
        "publish.mode" => "[publish]\ndirectory = \"www\"\n",
        "api.baseUrl" => "[api]\ndomain = \"docs.example.com\"\n",
        "api.domain" => "[api]\nbaseUrl = \"https://api.example/v1/\"\n",
        "tls.certFile" => "[tls]\nkeyFile = \"key.pem\"\n",
        "tls.keyFile" => "[tls]\ncertFile = \"certificate.pem\"\n",
        "tls.listen" => "[tls]\ncertFile = \"certificate.pem\"\nkeyFile = \"key.pem\"\n",
        "access.header" => "[server]\ntrustedProxies = \"::1\"\n",
        _ => "",
    }
}

fn checked(text: &str) -> Result<Config, Vec<String>> {
    let mut raw = WrittenConfig::default();
    raw.read_toml(text, Path::new("/etc/c.toml"));
    check(&raw, Path::new("/etc")).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// Returns a configuration that sets this key, and only the other keys that it needs.
fn setting(key: &str, value: &str) -> String {
    let (section, name) = key.split_once('.').expect("section.key");
    let more = required_keys(key);
    let header = format!("[{section}]\n");
    if more.starts_with(&header) {
        format!("{more}{name} = {value}\n")
    } else {
        format!("{more}{header}{name} = {value}\n")
    }
}

/// Returns a configuration that sets this key to its default.
fn config_with_default(name: &str) -> Config {
    let key = AGENT_KEYS.find_key(name).expect("a key");
    checked(&setting(name, key.default)).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"))
}

#[test]
fn explicit_default_of_each_agent_key_equals_the_unset_key() {
    // Setting one of these keys has more effects than its value: see below.
    let deciding = ["sync.interval", "server.frames", "server.referrerPolicy"];
    for key in keys_of_this_build().filter(|key| !key.default.is_empty() && !deciding.contains(&key.name)) {
        assert_eq!(Ok(config_with_default(key.name)), checked(required_keys(key.name)), "{}", key.name);
    }
    assert_eq!(
        config_with_default("sync.interval").sync_settings.interval,
        checked("").unwrap().sync_settings.interval
    );
    // If the key is not set, a page may set another value.
    assert_eq!(config_with_default("server.frames").settings.security_headers.frames, Some(FramePolicy::default()));
    assert_eq!(
        config_with_default("server.referrerPolicy").settings.security_headers.referrer.as_deref(),
        Some(DEFAULT_REFERRER_POLICY)
    );
}

#[test]
fn non_default_value_of_each_agent_key_changes_the_configuration() {
    // Otherwise the test above would show nothing about the default.
    for key in keys_of_this_build().filter(|key| !key.default.is_empty()) {
        let other = OTHER_VALUES.iter().find(|(name, _)| *name == key.name);
        let (name, value) = other.unwrap_or_else(|| panic!("{}: another value is missing in this test", key.name));
        let changed = checked(&setting(name, value)).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        assert_ne!(changed, config_with_default(name), "{name}");
    }
}

#[test]
fn numbers_sizes_and_durations_are_accepted_up_to_their_limits_and_refused_beyond() {
    for (name, accepted, refused) in BOUNDS.iter().filter(|(name, ..)| is_in_this_build(name)) {
        for value in accepted {
            checked(&setting(name, value)).unwrap_or_else(|problems| panic!("{name} = {value}: {problems:#?}"));
        }
        for value in *refused {
            let problems = checked(&setting(name, value)).expect_err(&format!("{name} = {value}"));
            let naming = problems.iter().filter(|line| line.contains(&format!("{name}: ")));
            assert_eq!(naming.count(), 1, "{name} = {value}: {problems:#?}");
        }
    }
    for key in keys() {
        let is_bounded = BOUNDS.iter().any(|(name, ..)| *name == key.name);
        assert_ne!(
            is_bounded,
            WITHOUT_BOUNDS.contains(&key.name),
            "{}: it must be in exactly one of the two tables",
            key.name
        );
    }
}

#[test]
fn agent_key_with_a_value_of_the_wrong_type_is_reported_in_one_line() {
    for key in keys() {
        let (section, name) = key.name.split_once('.').expect("section.key");
        let problems = checked(&format!("[{section}]\n{name} = [[1]]\n")).unwrap_err();
        let (value, kind) = (format!("{}: ", key.name), format!("{} has a value", key.name));
        let naming = problems.iter().filter(|line| line.contains(&value) || line.contains(&kind));
        assert_eq!(naming.count(), 1, "{}: {problems:#?}", key.name);
    }
}

#[test]
fn enumerated_keys_accept_only_the_words_of_the_key_table() {
    for key in keys() {
        let ValueType::Word(words) = key.value_type else { continue };
        for word in words {
            checked(&setting(key.name, &format!("{word:?}"))).unwrap_or_else(|problems| panic!("{problems:#?}"));
        }
        let problems = checked(&setting(key.name, "\"perhaps\"")).expect_err(key.name);
        let message = problems.iter().find(|line| line.contains(&format!("{}: ", key.name)));
        let message = message.unwrap_or_else(|| panic!("{}: {problems:#?}", key.name));
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    }
}

#[test]
fn the_example_configuration_changes_nothing() {
    assert_eq!(checked(&example_config()), checked(""));
}

/// The environment variables with which a configuration is read, besides its file.
type Variables<'a> = &'a [(&'a str, &'a str)];

/// Reads a configuration. Returns the checked configuration, without the places of its values, and the output of
/// `config show`.
fn checked_and_shown(text: &str, variables: Variables<'_>) -> (String, String) {
    let mut raw = WrittenConfig::default();
    raw.read_toml(text, Path::new("/etc/c.toml"));
    raw.read_env(variables.iter().map(|&(name, value)| (name.into(), value.into())));
    let folder = Path::new("/etc");
    let mut config = check(&raw, folder).unwrap_or_else(|problems| panic!("{text}: {problems:#?}"));
    let shown = as_toml(&values_in_force(&raw, &config, folder)) + &lists_as_toml(&raw);
    // Warnings and rules contain places. Rules are compared by all that remains of them.
    config.warnings.clear();
    let debug = format!("{config:#?}");
    let lines: Vec<&str> = debug.lines().filter(|line| !line.contains("c.toml:")).collect();
    (lines.join("\n"), shown)
}

#[test]
fn the_output_of_config_show_is_a_configuration_with_the_same_effect() {
    const API: &str = "[api]\nbaseUrl = \"https://api.example/v1/\"\ndomain = \"docs.example.com\"\n";
    const LISTS: &str = "\
        [[server.redirects]]\nsource = \"/a\"\ndestination = \"/b\"\n\
        [[server.headers]]\nsource = \"/*\"\nvalues = { X-A = \"b\", \"X.B\" = [\"1\", \"2\"] }\n\
        remove = \"Link\"\n\
        [[playground.allow]]\norigin = \"https://api.example.com\"\nmethods = \"GET, POST\"\n\
        paths = [\"/v1/*\"]\naddresses = [\"10.0.0.0/8\"]\n";
    let file = |more: &str| (format!("{API}{more}"), &[][..]);
    let mut configurations: Vec<(String, Variables<'_>)> = vec![
        (String::new(), &[]),
        file(""),
        file("[sync]\nprobe = []\n"),
        file("[sync]\nprobe = \"https://docs.example.com/a, https://docs.example.com/b\"\n"),
        file("[sync]\ninterval = \"15m\"\n"),
        file("[sync]\nschedule = \"15 4 * * 1-5\"\n"),
        ("[staticExport]\nbundleUrl = \"docs.zip\"\n[sync]\nprobe = []\n".to_owned(), &[]),
        ("[publish]\ndirectory = \"www\"\numask = \"0027\"\n".to_owned(), &[]),
        (LISTS.to_owned(), &[]),
        (API.to_owned(), &[("DOCWHARF_SYNC__PROBE", "")]),
        (
            "[store]\npath = \"store\"\n".to_owned(),
            &[
                // Paths in the environment are relative to the working directory, not to the file.
                ("DOCWHARF_STATIC_EXPORT__BUNDLE_URL", "docs.zip"),
                ("DOCWHARF_STATIC_EXPORT__ENABLED", "false"),
                ("DOCWHARF_SYNC__INBOX", "inbox"),
                ("DOCWHARF_SYNC__KEEP", "7"),
                ("DOCWHARF_LIMITS__ARCHIVE", "1024"),
                ("DOCWHARF_SERVER__LISTEN", "127.0.0.1:8081, [::1]:8081"),
                ("DOCWHARF_SERVER__CODINGS", ""),
            ],
        ),
    ];
    // These name files that do not exist here.
    let files = ["server.redirectsFile", "search.synonyms", "analytics.bots"];
    for key in keys_of_this_build().filter(|key| !files.contains(&key.name)) {
        let other = OTHER_VALUES.iter().find(|(name, _)| *name == key.name).map_or(key.example, |(_, value)| value);
        let values = [key.default, other].into_iter().filter(|value| !value.is_empty());
        configurations.extend(values.map(|value| (setting(key.name, value), &[][..])));
    }
    for (text, variables) in configurations {
        let (before, shown) = checked_and_shown(&text, variables);
        let (after, shown_again) = checked_and_shown(&shown, &[]);
        assert_eq!(before, after, "{text}{variables:?}\n{shown}");
        let values = |shown: &str| -> Vec<String> {
            shown.lines().map(|line| line.split("  # ").next().unwrap_or_default().trim_end().to_owned()).collect()
        };
        assert_eq!(values(&shown), values(&shown_again));
    }
}
