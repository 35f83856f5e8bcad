//! `[assistant]` and `[playground]` in `run`: the keys apply at a reload, on the site and where the version that waits
//! is shown.

use serde_json::json;
use support::host::{Host, bundle, toml_string};
use support::mcp::{MCP_PATH, modern_metadata};
use support::{Daemon, http, until};

/// The daemon reloads its configuration.
fn reload(daemon: &Daemon, host: &mut Host, key: &str, value: &str) {
    host.change(key, value);
    daemon.signal("HUP");
}

/// Waits until a request for this target has this status.
#[track_caller]
fn until_status(address: &str, target: &str, status: u16) {
    until(&format!("{target} has the status {status}"), || http::get(address, target).status == status);
}

#[test]
fn keys_of_the_assistant_and_the_playground_apply_at_a_reload_and_features_follows() {
    let mut host = Host::bare();
    host.put("site.zip", bundle("one"));
    host.ok(&["import", host.path("site.zip").to_str().expect("a path")]);
    let daemon = host.run();
    // Without a key, pages have Markdown.
    assert!(http::get(&daemon.address, "/guide.md").text().starts_with("one tide"));
    reload(&daemon, &mut host, "assistant.markdown", "false");
    until_status(&daemon.address, "/guide.md", 404);
    reload(&daemon, &mut host, "assistant.markdown", "true");
    until_status(&daemon.address, "/guide.md", 200);
    reload(&daemon, &mut host, "assistant.llms", "false");
    until_status(&daemon.address, "/llms.txt", 404);
    let state = |host: &Host, row: usize| host.status()["features"]["features"][row]["state"].clone();
    assert_eq!((state(&host, 1), state(&host, 3)), (json!("available"), json!("configurable")));
    host.change("playground.allow", "[{ origin = \"https://api.example\" }]");
    reload(&daemon, &mut host, "playground.enabled", "true");
    until("the playground is on", || state(&host, 3) == "available");
    reload(&daemon, &mut host, "assistant.mcp", "false");
    until("no assistant can use the site", || state(&host, 1) == "configurable");
    // A mistake leaves the previous keys in force.
    reload(&daemon, &mut host, "assistant.model", &toml_string("llama3.1"));
    until("the mistake is reported", || host.status()["configError"].is_string());
    let error = host.status()["configError"].to_string();
    assert!(error.contains("assistant.baseUrl is missing: "), "{error}");
    assert_eq!(state(&host, 3), "available");
    assert_eq!(http::get(&daemon.address, "/guide.md").status, 200);
}

/// Returns who may store the answers of the MCP server at an address.
#[track_caller]
fn cache_scope(address: &str) -> String {
    let params = json!({ "_meta": modern_metadata() });
    let message = json!({ "jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": params }).to_string();
    let fields = ["Content-Type: application/json", "MCP-Protocol-Version: 2026-07-28", "Mcp-Method: server/discover"];
    let answer = http::post(address, MCP_PATH, &fields, message).json();
    answer["result"]["cacheScope"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn version_that_waits_is_shown_with_the_markdown_that_it_will_have() {
    let host = Host::bare()
        .set("activate.mode", toml_string("manual"))
        .set("activate.listen", toml_string("127.0.0.1:0"))
        .set("staticExport.bundleUrl", toml_string("bundle.zip"))
        .set("sync.interval", toml_string("1h"));
    host.put("bundle.zip", bundle("one"));
    let mut host = host;
    let daemon = host.run();
    let staged = host.reported_address("staged");
    until_status(&staged, "/", 200);
    assert!(http::get(&staged, "/guide.md").text().starts_with("one tide"));
    assert_eq!(http::get(&daemon.address, "/guide.md").status, 503, "no version is active");
    assert_eq!(cache_scope(&staged), "private", "not everyone may read it yet");
    reload(&daemon, &mut host, "assistant.markdown", "false");
    until_status(&staged, "/guide.md", 404);
}
