//! Each configuration key and a reload: the new value applies at once, or docwharf reports that the key needs a
//! restart.

use std::collections::BTreeSet;

use docwharf::config::keys::keys;

use super::*;

/// The key, a changed value, and the name in the message that a restart is needed; empty if the value applies at once.
const RELOADS: &[(&str, &str, &str)] = &[
    ("staticExport.enabled", "true", ""),
    ("staticExport.bundleUrl", "\"other.zip\"", ""),
    ("staticExport.bundleUrlFile", "\"bundle-url\"", ""),
    ("staticExport.version", "\"v2\"", ""),
    ("staticExport.sha256", "\"0000000000000000000000000000000000000000000000000000000000000000\"", ""),
    ("api.baseUrl", "\"http://127.0.0.1:9/other/v1\"", ""),
    ("api.domain", "\"other.example.com\"", ""),
    ("api.projectId", "\"p_2\"", ""),
    ("api.keyFile", "\"other-key\"", ""),
    ("api.caFile", "\"cert.pem\"", ""),
    ("api.statusPath", "\"/status/{statusId}\"", ""),
    ("sync.interval", "\"2h\"", ""),
    ("sync.schedule", "\"0 3 * * *\"", ""),
    ("sync.probe", "[\"http://127.0.0.1:9/sitemap.xml\"]", ""),
    ("sync.maxAge", "\"25h\"", ""),
    ("sync.inbox", "\"other-inbox\"", ""),
    ("sync.jobTimeout", "\"31m\"", ""),
    ("sync.keep", "4", ""),
    ("sync.threads", "2", ""),
    ("network.connectTimeout", "\"11s\"", ""),
    ("network.callTimeout", "\"31s\"", ""),
    ("network.idleTimeout", "\"31s\"", ""),
    ("network.pollFirst", "\"2s\"", ""),
    ("network.pollMost", "\"11s\"", ""),
    ("network.redirects", "11", ""),
    ("store.path", "\"other-store\"", "store.path"),
    ("store.maxBytes", "\"1GiB\"", ""),
    ("store.minFree", "\"1MiB\"", ""),
    ("store.scrub", "\"8d\"", "store.scrub"),
    ("server.listen", "\"127.0.0.1:9\"", "server.listen"),
    ("server.basePath", "\"/docs/\"", "server.basePath"),
    ("server.slashes", "\"serve\"", "server.slashes"),
    ("server.identityCache", "\"65MiB\"", "server.identityCache"),
    ("server.heldBytes", "\"65MiB\"", "server.heldBytes"),
    ("server.codings", "[\"br\"]", "server.codings"),
    ("server.csp", "\"airgap\"", "server.csp"),
    ("server.cspSize", "\"4KiB\"", "server.cspSize"),
    ("server.frames", "\"any\"", "server.frames"),
    ("server.referrerPolicy", "\"off\"", "server.referrerPolicy"),
    ("server.assetGrace", "\"73h\"", "server.assetGrace"),
    ("server.http2", "\"off\"", "server.http2"),
    ("server.redirectsFile", "\"rules\"", ""),
    ("server.trustedProxies", "[\"192.0.2.2\"]", ""),
    ("tls.certFile", "\"other-cert.pem\"", ""),
    ("tls.keyFile", "\"other-key.pem\"", ""),
    ("tls.listen", "\"127.0.0.1:9\"", "tls.listen"),
    ("tls.hsts", "\"1d\"", "tls.hsts"),
    ("access.allow", "[\"192.0.2.0/24\"]", ""),
    ("access.header", "\"X-User\"", ""),
    ("access.log", "\"combined\"", "access.log"),
    ("access.logFile", "\"other.log\"", "access.log"),
    ("access.logAddress", "\"full\"", "access.log"),
    ("search.enabled", "true", ""),
    ("search.inject", "\"always\"", ""),
    ("search.selectors", "[\"#search\"]", ""),
    ("search.button", "false", ""),
    ("search.exclude", "[\"/internal/:path*\"]", ""),
    ("search.synonyms", "\"synonyms.toml\"", ""),
    ("search.parallel", "2", ""),
    ("assistant.mcp", "false", ""),
    ("assistant.mcpPerMinute", "60", ""),
    ("assistant.markdown", "false", ""),
    ("assistant.llms", "false", ""),
    ("assistant.hosts", "[\"docs.example.com\"]", ""),
    ("assistant.baseUrl", "\"http://127.0.0.1:9/other/v1\"", ""),
    ("assistant.model", "\"other\"", ""),
    ("assistant.keyFile", "\"other-key\"", ""),
    ("assistant.maxQuestion", "500", ""),
    ("assistant.maxContext", "12000", ""),
    ("assistant.maxAnswer", "512", ""),
    ("assistant.timeout", "\"2m\"", ""),
    ("assistant.parallel", "4", ""),
    ("assistant.perMinute", "5", ""),
    ("assistant.perDay", "1000", ""),
    ("playground.enabled", "true", ""),
    ("playground.timeout", "\"10s\"", ""),
    ("playground.maxRequest", "\"64KiB\"", ""),
    ("playground.maxResponse", "\"1MiB\"", ""),
    ("playground.perMinute", "30", ""),
    ("playground.rewrite", "true", ""),
    ("analytics.enabled", "false", ""),
    ("analytics.searches", "false", ""),
    ("analytics.pages", "false", ""),
    ("analytics.projectId", "\"p_3\"", ""),
    ("analytics.keyFile", "\"analytics-keys\"", ""),
    ("analytics.keep", "\"30d\"", ""),
    ("analytics.maxBytes", "\"1MiB\"", ""),
    ("analytics.mask", "false", ""),
    ("analytics.respectOptOut", "false", ""),
    ("analytics.bots", "\"bots.txt\"", ""),
    ("analytics.deliver.baseUrl", "\"http://127.0.0.1:9/other/v1\"", ""),
    ("analytics.deliver.projectId", "\"p_4\"", ""),
    ("analytics.deliver.keyFile", "\"other-key\"", ""),
    ("analytics.deliver.interval", "\"2m\"", ""),
    ("analytics.deliver.queue", "\"1MiB\"", ""),
    ("deployment.type", "\"air-gapped\"", ""),
    ("deployment.allow", "[\"192.0.2.1\"]", ""),
    ("admin.listen", "\"127.0.0.1:9\"", "admin.listen"),
    ("admin.hosts", "\"docs.internal\"", ""),
    ("publish.directory", "\"www\"", ""),
    ("publish.mode", "\"0600\"", ""),
    ("publish.umask", "\"0027\"", ""),
    ("limits.entries", "200001", ""),
    ("limits.unpacked", "\"9GiB\"", ""),
    ("limits.archive", "\"5GiB\"", ""),
    ("limits.entry", "\"3GiB\"", ""),
    ("gate.require", "[\"/start\"]", ""),
    ("gate.minPages", "2", ""),
    ("gate.maxShrink", "\"30%\"", ""),
    ("gate.maxBrokenLinks", "3", ""),
    ("activate.mode", "\"manual\"", ""),
    ("activate.listen", "\"127.0.0.1:9\"", "activate.listen"),
];

/// Creates a host with a configuration in which each of these values is valid.
fn host() -> Host {
    let pair = CertificateAuthority::new().issue(&["docs.example.com"]);
    let host = Host::bare();
    for name in ["cert.pem", "other-cert.pem"] {
        host.put(name, &pair.certificate);
    }
    for name in ["key.pem", "other-key.pem"] {
        host.put(name, &pair.key);
    }
    for (name, content) in [
        ("key", "dwk_1"),
        ("bundle-url", "http://127.0.0.1:9/bundle.zip\n"),
        ("other-key", "dwk_2"),
        ("rules", "/old /new 301\n"),
        ("synonyms.toml", "sets = [[\"quay\", \"wharf\"]]\n"),
        ("analytics-keys", "0123456789abcdef\n"),
        ("bots.txt", "bot LinkChecker\n"),
    ] {
        host.put(name, content);
    }
    // Requests to an upstream are disabled, or fail at once.
    let host = if cfg!(feature = "analytics") {
        host.set("analytics.deliver.baseUrl", toml_string("http://127.0.0.1:9/v1"))
            .set("analytics.deliver.keyFile", toml_string("key"))
    } else {
        host
    };
    host.set("staticExport.enabled", "false")
        .set("assistant.baseUrl", toml_string("http://127.0.0.1:9/v1"))
        .set("assistant.model", toml_string("model"))
        .set("api.baseUrl", toml_string("http://127.0.0.1:9/v1"))
        .set("api.domain", toml_string("docs.example.com"))
        .set("api.keyFile", toml_string("key"))
        .set("sync.probe", "[]")
        .set("server.csp", toml_string("report"))
        .set("server.trustedProxies", toml_string("192.0.2.1"))
        .set("tls.listen", toml_string("127.0.0.1:0"))
        .set("tls.certFile", toml_string("cert.pem"))
        .set("tls.keyFile", toml_string("key.pem"))
        .set("access.log", toml_string("json"))
        .set("access.logFile", toml_string("access.log"))
}

// Regression: after a reload with a changed `store.scrub` or `tls.listen`, only that reload asked for a restart,
// although the next one found the change not applied either.
#[test]
fn each_changed_key_applies_at_a_reload_or_is_reported_to_need_a_restart() {
    let names: BTreeSet<&str> = RELOADS.iter().map(|(key, ..)| *key).collect();
    assert_eq!(names, keys().map(|key| key.name).collect(), "each key has one line in this test");
    let mut host = host();
    let manager = TestServiceManager::new(&host);
    let log = std::fs::File::create(host.path("messages")).expect("a file");
    let mut command = manager.connect(&host, host.command(&["run"]), None);
    let daemon = Daemon::start_with_addresses(command.stderr(log), 2);
    manager.until("ready", |message| message == "READY=1");
    let messages = |host: &Host| std::fs::read_to_string(host.path("messages")).expect("a file");
    // Without the feature, each key of [analytics] is a mistake.
    let is_in_this_build = |key: &str| cfg!(feature = "analytics") || !key.starts_with("analytics.");
    for &(key, value, restart) in RELOADS.iter().filter(|(key, ..)| is_in_this_build(key)) {
        let before = host.value(key);
        // The second reload reports it again, because there was no restart.
        for ordinal in ["first", "second"] {
            let previous_len = messages(&host).len();
            host.change(key, value);
            daemon.signal("HUP");
            manager.until("it reloads", |message| message.starts_with("RELOADING=1"));
            manager.until("it has reloaded", |message| message == "READY=1");
            let all = messages(&host);
            let new = &all[previous_len..];
            let reported: BTreeSet<&str> = new
                .lines()
                .filter_map(|line| line.strip_suffix(" has changed, which needs a restart"))
                .filter_map(|line| line.split_once("WARN ").map(|(_, name)| name.trim()))
                .collect();
            let expected: BTreeSet<&str> = [restart].into_iter().filter(|name| !name.is_empty()).collect();
            assert_eq!(reported, expected, "{key}, {ordinal} reload:\n{new}");
            assert!(!new.contains("stays in force"), "{key} = {value}: {new}");
        }
        match before {
            Some(before) => host.change(key, before),
            None => host.remove(key),
        }
    }
}
