//! Tests of all keys at once: their defaults, the least and the greatest value, and values of another kind.

use std::path::Path;

use docwharf_serve::security_headers::{DEFAULT_REFERRER_POLICY, FramePolicy};

use super::super::written::{CONFIG_KEYS, WrittenConfig, keys};
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
    ("publish.mode", "\"0600\""),
    ("limits.entries", "200001"),
    ("limits.unpacked", "\"9GiB\""),
    ("limits.archive", "\"5GiB\""),
    ("limits.entry", "\"3GiB\""),
    ("activate.mode", "\"manual\""),
];

/// Of each key that is a number, a size or a duration: the least and the greatest value, and what lies just outside.
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
    "admin.listen",
    "admin.hosts",
    "publish.directory",
    "gate.require",
    "activate.mode",
    "activate.listen",
];

/// The other keys without which a key has no effect.
fn beside(key: &str) -> &'static str {
    match key {
        "api.statusPath" => "[api]\nbaseUrl = \"https://api.example/v1/\"\ndomain = \"docs.example.com\"\n",
        "server.cspSize" => "[server]\ncsp = \"connected\"\n",
        "access.logAddress" => "[access]\nlog = \"json\"\n",
        "publish.mode" => "[publish]\ndirectory = \"www\"\n",
        _ => "",
    }
}

fn checked(text: &str) -> Result<Config, Vec<String>> {
    let mut raw = WrittenConfig::default();
    raw.read_toml(text, Path::new("/etc/c.toml"));
    check(raw, Path::new("/etc")).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// A configuration that sets this key, and only the other keys that it needs.
fn setting(key: &str, value: &str) -> String {
    let (section, name) = key.split_once('.').expect("section.key");
    match beside(key) {
        "" => format!("[{section}]\n{name} = {value}\n"),
        more => format!("{more}{name} = {value}\n"),
    }
}

/// A configuration that writes down the default of this key.
fn written(name: &str) -> Config {
    let key = CONFIG_KEYS.iter().find(|key| key.name == name).expect("a key");
    checked(&setting(name, key.default)).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"))
}

#[test]
fn each_default_means_the_same_as_if_it_were_written_down() {
    // Writing down one of these keys has more effects than its value: see below.
    let deciding = ["sync.interval", "server.frames", "server.referrerPolicy"];
    for key in keys().filter(|key| !key.default.is_empty() && !deciding.contains(&key.name)) {
        assert_eq!(Ok(written(key.name)), checked(beside(key.name)), "{}", key.name);
    }
    assert_eq!(written("sync.interval").intent.interval, checked("").unwrap().intent.interval);
    // If the key is not written down, a page may set another value.
    assert_eq!(written("server.frames").settings.protection.frames, Some(FramePolicy::default()));
    assert_eq!(written("server.referrerPolicy").settings.protection.referrer.as_deref(), Some(DEFAULT_REFERRER_POLICY));
}

#[test]
fn another_value_than_the_default_makes_another_configuration() {
    // Otherwise the test above would show nothing about the default.
    for key in keys().filter(|key| !key.default.is_empty()) {
        let other = OTHER_VALUES.iter().find(|(name, _)| *name == key.name);
        let (name, value) = other.unwrap_or_else(|| panic!("{}: another value is missing in this test", key.name));
        let changed = checked(&setting(name, value)).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        assert_ne!(changed, written(name), "{name}");
    }
}

#[test]
fn each_number_size_and_duration_is_taken_up_to_its_bounds_and_refused_beyond_them() {
    for (name, taken, refused) in BOUNDS {
        for value in taken {
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
        assert_ne!(is_bounded, WITHOUT_BOUNDS.contains(&key.name), "{}: it is to stand in one of two tables", key.name);
    }
}

#[test]
fn each_key_refuses_a_value_of_another_kind_in_one_line_that_names_it() {
    for key in keys() {
        let (section, name) = key.name.split_once('.').expect("section.key");
        let problems = checked(&format!("[{section}]\n{name} = [[1]]\n")).unwrap_err();
        let (value, kind) = (format!("{}: ", key.name), format!("{} has a value", key.name));
        let naming = problems.iter().filter(|line| line.contains(&value) || line.contains(&kind));
        assert_eq!(naming.count(), 1, "{}: {problems:#?}", key.name);
    }
}
