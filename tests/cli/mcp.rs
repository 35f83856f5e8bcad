//! `docwharf mcp`: messages on standard input and output, places, and exit codes.

#![allow(clippy::needless_pass_by_value)] // JSON is written where it is passed

use std::io::{BufRead, BufReader, Write};
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use support::host::{Host, toml_string};
use support::zip::{deflated, zip};
use support::{KillOnDrop, docwharf, send_signal, write_site};

const PAGES: [(&str, &str); 2] = [
    ("index.html", "<title>Start</title><main><h1>Start</h1><p>Anchors and quays.</p></main>"),
    ("guide/ropes.html", "<title>Ropes</title><main><h1>Ropes</h1><p>How to tie a bowline.</p></main>"),
];
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// A client that has started the server.
pub(super) struct StdioClient {
    pub(super) child: KillOnDrop,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl StdioClient {
    pub(super) fn start(command: &mut Command) -> StdioClient {
        let mut child = KillOnDrop(
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts"),
        );
        let input = child.0.stdin.take();
        let output = BufReader::new(child.0.stdout.take().expect("stdout is piped"));
        StdioClient { child, input, output }
    }

    fn send(&mut self, message: &Value) {
        let input = self.input.as_mut().expect("standard input is open");
        writeln!(input, "{message}").expect("the server reads");
    }

    /// Sends a request and returns the answer.
    #[track_caller]
    pub(super) fn request(&mut self, method: &str, params: Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }));
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the server answers");
        let answer: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?}"));
        assert_eq!(answer["id"], 7, "{answer}");
        answer
    }

    #[track_caller]
    pub(super) fn initialize(&mut self) {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
        assert_eq!(self.request("initialize", params)["result"]["protocolVersion"], "2025-11-25");
        self.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    #[track_caller]
    pub(super) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({ "name": tool, "arguments": arguments }));
        assert_eq!(answer["result"]["isError"], false, "{answer}");
        answer["result"]["structuredContent"].clone()
    }

    /// Closes standard input and returns the exit code.
    pub(super) fn close(mut self) -> Option<i32> {
        self.input = None;
        self.child.wait(END_TIMEOUT)
    }
}

#[test]
fn a_folder_is_served_without_a_store_and_the_end_of_standard_input_ends_the_server() {
    let host = Host::bare();
    let site = write_site(&host.path("site"), &PAGES);
    let mut client = StdioClient::start(docwharf().arg("mcp").arg("--in").arg(&site));
    client.initialize();
    let tools = client.request("tools/list", json!({}));
    assert_eq!(tools["result"]["tools"].as_array().unwrap().len(), 3);
    // The first search waits for the index.
    let found = client.call("search_docs", json!({ "query": "bowline" }));
    assert_eq!((&found["indexing"], &found["results"][0]["url"]), (&json!(false), &json!("/guide/ropes.html")));
    let page = client.call("read_page", json!({ "url": "/guide/ropes" }));
    assert!(page["markdown"].as_str().unwrap().contains("bowline"), "{page}");
    assert_eq!(client.call("list_pages", json!({}))["pages"].as_array().unwrap().len(), 2);
    assert_eq!(client.close(), Some(0));
}

#[test]
fn a_client_of_2026_07_28_needs_no_initialize() {
    let host = Host::bare();
    let site = write_site(&host.path("site"), &PAGES);
    let mut client = StdioClient::start(docwharf().arg("mcp").arg("--in").arg(&site));
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let discovered = client.request("server/discover", json!({ "_meta": meta }));
    assert!(discovered["result"]["supportedVersions"].as_array().unwrap().contains(&json!("2026-07-28")));
    let params = json!({ "name": "list_pages", "arguments": {}, "_meta": meta });
    let listed = client.request("tools/call", params);
    assert_eq!(listed["result"]["structuredContent"]["pages"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(client.close(), Some(0));
}

#[test]
fn the_place_is_the_active_version_another_one_or_a_path_and_addresses_have_the_base_path() {
    let host = Host::bare().set("server.basePath", toml_string("/docs/"));
    let bundle =
        |pages: &[(&str, &str)]| zip(&pages.iter().map(|(name, text)| deflated(name, text)).collect::<Vec<_>>());
    host.put("before.zip", bundle(&[("index.html", "<title>Before</title><p>Before")]));
    host.put("bundle.zip", bundle(&PAGES));
    host.ok(&["import", host.path("before.zip").to_str().unwrap(), "--label", "1.3"]);
    host.ok(&["import", host.path("bundle.zip").to_str().unwrap(), "--label", "1.4"]);
    let archive = host.path("before.zip");
    for (place, title) in [
        (None, "Start"),
        (Some("active"), "Start"),
        (Some("1.3"), "Before"),
        (Some("previous"), "Before"),
        (Some(archive.to_str().unwrap()), "Before"),
    ] {
        let arguments: Vec<&str> = ["mcp"].into_iter().chain(place.iter().flat_map(|place| ["--in", place])).collect();
        let mut client = StdioClient::start(&mut host.command(&arguments));
        client.initialize();
        let page = client.call("read_page", json!({ "url": "/docs/" }));
        assert_eq!((&page["title"], &page["url"]), (&json!(title), &json!("/docs/")), "{place:?}");
        assert_eq!(client.close(), Some(0), "{place:?}");
    }
}

#[test]
fn a_place_that_is_not_there_and_a_first_message_of_another_kind_have_their_exit_codes() {
    let host = Host::bare();
    let absent = host.expect_exit(2, &["mcp", "--in", "nope.zip"]);
    assert!(absent.stderr.contains("--in nope.zip: there is no such file here"), "{}", absent.stderr);
    let unknown = host.expect_exit(2, &["mcp", "--in", "no-such-label"]);
    assert!(unknown.stderr.contains("no-such-label") && unknown.stdout.is_empty(), "{unknown:?}");
    let html = host.path("page.html");
    std::fs::write(&html, "<p>no archive").unwrap();
    host.expect_exit(5, &["mcp", "--in", html.to_str().unwrap()]);
    let site = write_site(&host.path("site"), &PAGES);
    let mut client = StdioClient::start(docwharf().arg("mcp").arg("--in").arg(&site));
    client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    assert_eq!(client.close(), Some(8));
    // A client that only looks whether the server starts.
    let client = StdioClient::start(docwharf().arg("mcp").arg("--in").arg(&site));
    assert_eq!(client.close(), Some(0));
}

#[test]
fn a_line_that_is_too_long_is_refused_and_the_next_one_is_answered() {
    let host = Host::bare();
    let site = write_site(&host.path("site"), &PAGES);
    let mut client = StdioClient::start(docwharf().arg("mcp").arg("--in").arg(&site));
    client.initialize();
    let long = "x".repeat(70_000);
    client.send(&json!({ "jsonrpc": "2.0", "id": 1, "method": "ping", "params": { "text": long } }));
    let mut answer = String::new();
    client.output.read_line(&mut answer).unwrap();
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32600)));
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    assert_eq!(client.close(), Some(0));
}

#[test]
fn a_line_that_is_not_json_is_answered_and_the_server_goes_on() {
    let host = Host::bare();
    let site = write_site(&host.path("site"), &PAGES);
    let mut client = StdioClient::start(docwharf().arg("mcp").arg("--in").arg(&site));
    // Also before the session begins.
    for is_initialized in [false, true] {
        for line in ["nonsense", "{\"jsonrpc\":", "\u{1}"] {
            writeln!(client.input.as_mut().unwrap(), "{line}").unwrap();
            let mut answer = String::new();
            client.output.read_line(&mut answer).unwrap();
            let answer: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!((&answer["id"], &answer["error"]["code"]), (&Value::Null, &json!(-32700)), "{line:?}");
        }
        if !is_initialized {
            client.initialize();
        }
    }
    assert_eq!(client.request("ping", json!({}))["result"], json!({}));
    assert_eq!(client.close(), Some(0));
}

#[test]
fn a_signal_ends_the_server_with_its_exit_code() {
    let host = Host::bare();
    let site = write_site(&host.path("site"), &PAGES);
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let mut client = StdioClient::start(docwharf().arg("mcp").arg("--in").arg(&site));
        client.initialize();
        send_signal(&client.child.0, name);
        assert_eq!(client.child.wait(END_TIMEOUT), Some(code), "{name}");
    }
}
