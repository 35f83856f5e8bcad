//! Tests of all keys at once: their defaults, and values of another kind.

use std::path::Path;

use crate::serve::dress::{Frames, REFERRER};

use super::super::raw::{KEYS, Raw, keys};
use super::{Config, check};

/// Another value of each key that has a default.
const OTHERS: &[(&str, &str)] = &[
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
    ("access.log", "\"json\""),
    ("access.logAddress", "\"full\""),
    ("publish.mode", "\"0600\""),
    ("limits.entries", "200001"),
    ("limits.unpacked", "\"9GiB\""),
    ("limits.archive", "\"5GiB\""),
    ("limits.entry", "\"3GiB\""),
    ("activate.mode", "\"manual\""),
];

/// What a key's section must say besides for the key to mean anything.
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
    let mut raw = Raw::default();
    raw.read_toml(text, Path::new("/etc/c.toml"));
    check(raw, Path::new("/etc")).map_err(|problems| problems.iter().map(ToString::to_string).collect())
}

/// A configuration that sets this key, and nothing else that it does not need.
fn setting(key: &str, value: &str) -> String {
    let (section, name) = key.split_once('.').expect("section.key");
    match beside(key) {
        "" => format!("[{section}]\n{name} = {value}\n"),
        more => format!("{more}{name} = {value}\n"),
    }
}

/// A configuration that writes down the default of this key.
fn written(name: &str) -> Config {
    let key = KEYS.iter().find(|key| key.name == name).expect("a key");
    checked(&setting(name, key.default)).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"))
}

#[test]
fn each_default_means_the_same_as_if_it_were_written_down() {
    // That one of these is written down decides more than its value: see below.
    let deciding = ["sync.interval", "server.frames", "server.referrerPolicy"];
    for key in keys().filter(|key| !key.default.is_empty() && !deciding.contains(&key.name)) {
        assert_eq!(Ok(written(key.name)), checked(beside(key.name)), "{}", key.name);
    }
    assert_eq!(written("sync.interval").intent.interval, checked("").unwrap().intent.interval);
    // A page may say otherwise where nothing is written down.
    assert_eq!(written("server.frames").settings.protection.frames, Some(Frames::default()));
    assert_eq!(written("server.referrerPolicy").settings.protection.referrer.as_deref(), Some(REFERRER));
}

#[test]
fn another_value_than_the_default_makes_another_configuration() {
    // Otherwise nothing would be proved of the default, either.
    for key in keys().filter(|key| !key.default.is_empty()) {
        let other = OTHERS.iter().find(|(name, _)| *name == key.name);
        let (name, value) = other.unwrap_or_else(|| panic!("{}: another value is missing in this test", key.name));
        let changed = checked(&setting(name, value)).unwrap_or_else(|problems| panic!("{name}: {problems:#?}"));
        assert_ne!(changed, written(name), "{name}");
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
