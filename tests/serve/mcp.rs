//! The MCP server over HTTP: the rules of the transport on the wire, in each protocol, and the answers of a whole site.

#![allow(clippy::needless_pass_by_value)] // JSON is written where it is passed

use serde_json::{Value, json};
use support::h2::Http2Client;
use support::http::{self, PersistentConnection, Response, connect, exchange, get, post_request, request};
use support::mcp::{MCP_PATH, modern_metadata};
use support::{HTTP2_SERVERS, serve_configured, serve_site, until_done_in_background};

const ACCEPT: &str = "Accept: application/json, text/event-stream";
const JSON: &str = "Content-Type: application/json";

const PAGES: [(&str, &str); 3] = [
    ("index.html", "<title>Start</title><main><h1>Start</h1><p>Anchors and quays.</p></main>"),
    ("guide/tides.html", "<title>Tides</title><main><h1 id=tides>Tides</h1><p>Anchors in the tide.</p></main>"),
    ("guide/ropes.html", "<title>Ropes</title><main><h1>Ropes</h1><p>How to tie a bowline.</p></main>"),
];

#[track_caller]
fn post(address: &str, fields: &[&str], body: &[u8]) -> Response {
    http::post(address, MCP_PATH, fields, body)
}

fn ping() -> Vec<u8> {
    message("ping", json!({}))
}

fn message(method: &str, params: Value) -> Vec<u8> {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string().into_bytes()
}

/// A request of 2026-07-28 with its metadata.
fn modern(method: &str, mut params: Value) -> Vec<u8> {
    params["_meta"] = modern_metadata();
    message(method, params)
}

#[track_caller]
fn body(response: &Response) -> Value {
    assert_eq!(response.header("content-type"), Some("application/json"), "{response:?}");
    response.json()
}

/// Calls a tool as a client of 2025-11-25, and returns the structured content.
#[track_caller]
fn call(address: &str, tool: &str, arguments: Value) -> Value {
    let response =
        post(address, &[ACCEPT, JSON], &message("tools/call", json!({ "name": tool, "arguments": arguments })));
    let answer = body(&response);
    assert_eq!((response.status, &answer["result"]["isError"]), (200, &json!(false)), "{answer}");
    answer["result"]["structuredContent"].clone()
}

#[test]
fn each_fault_of_a_request_has_its_status() {
    let (_dir, daemon) = serve_site(&PAGES, &[]);
    let address = &daemon.address;
    assert_eq!(post(address, &[ACCEPT, JSON], &ping()).status, 200);
    let large = vec![b' '; (64 << 10) + 1];
    let fits = [message("ping", json!({})), vec![b' '; (64 << 10) - ping().len()]].concat();
    assert_eq!(post(address, &[ACCEPT, JSON], &fits).status, 200);
    for (fields, content, status) in [
        (&[JSON, "Accept: text/event-stream"][..], &ping()[..], 406),
        (&[JSON, "Accept: application/json;q=0"], &ping(), 406),
        (&[JSON], &ping(), 200),
        (&[JSON, "Accept: */*"], &ping(), 200),
        (&[ACCEPT], &ping(), 415),
        (&[ACCEPT, "Content-Type: text/plain"], &ping(), 415),
        (&[ACCEPT, "Content-Type: application/json; charset=utf-8"], &ping(), 200),
        (&[ACCEPT, JSON], &large, 413),
        (&[ACCEPT, JSON], b"{", 400),
        (&[ACCEPT, JSON], b"", 400),
        (&[ACCEPT, JSON], b"[]", 400),
        (&[ACCEPT, JSON, "MCP-Protocol-Version: 1"], &ping(), 400),
        (&[ACCEPT, JSON], br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#, 202),
    ] {
        let response = post(address, fields, content);
        assert_eq!(response.status, status, "{fields:?} {response:?}");
        assert_eq!(response.header("cache-control"), Some("no-store"), "{fields:?}");
        if status == 202 {
            assert!(response.body.is_empty());
        }
    }
    let malformed = body(&post(address, &[ACCEPT, JSON], b"{"));
    assert_eq!(malformed["error"]["code"], -32700);
    for method in ["GET", "DELETE", "HEAD", "PUT"] {
        let response = request(address, method, MCP_PATH, &[]);
        assert_eq!((response.status, response.header("allow")), (405, Some("POST, OPTIONS")), "{method}");
    }
    let options = request(address, "OPTIONS", MCP_PATH, &[]);
    assert_eq!((options.status, options.header("allow")), (204, Some("POST, OPTIONS")));
    // Neither another path nor a file of the bundle.
    assert_eq!(get(address, "/_docwharf/mcp/").status, 404);
    assert_eq!(http::post(address, "/_docwharf/mcp?x=1", &[ACCEPT, JSON], ping()).status, 200);
    let chunked = b"POST /_docwharf/mcp HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(exchange(connect(address), chunked, false).status, 400);
}

#[test]
fn a_request_of_2026_07_28_must_agree_with_its_fields_and_an_unknown_method_is_404() {
    let (_dir, daemon) = serve_site(&PAGES, &[]);
    let send = |fields: &[&str], content: &[u8]| {
        let response =
            post(&daemon.address, &[&[ACCEPT, JSON, "MCP-Protocol-Version: 2026-07-28"], fields].concat(), content);
        (response.status, body(&response))
    };
    let (status, answer) = send(&["Mcp-Method: server/discover"], &modern("server/discover", json!({})));
    assert_eq!((status, &answer["result"]["resultType"]), (200, &json!("complete")));
    let (status, answer) = send(&["Mcp-Method: tools/list"], &modern("tools/list", json!({})));
    let tools = answer["result"]["tools"].as_array().unwrap().len();
    assert_eq!((status, tools, &answer["result"]["ttlMs"]), (200, 3, &json!(60_000)));
    assert_eq!(answer["result"]["cacheScope"], "public");
    let (status, answer) = send(&["Mcp-Method: none/such"], &modern("none/such", json!({})));
    assert_eq!((status, &answer["error"]["code"]), (404, &json!(-32601)));
    let (status, answer) = send(&["Mcp-Method: initialize"], &modern("tools/list", json!({})));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32020)));
    let call = modern("tools/call", json!({ "name": "list_pages", "arguments": {} }));
    let (status, answer) = send(&["Mcp-Method: tools/call"], &call);
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32020)));
    let (status, answer) = send(&["Mcp-Method: tools/call", "Mcp-Name: read_page"], &call);
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32020)));
    let (status, answer) = send(&["Mcp-Method: tools/call", "Mcp-Name: list_pages"], &call);
    assert_eq!((status, &answer["result"]["isError"]), (200, &json!(false)));
    let (status, answer) = send(&["Mcp-Method: tools/list"], &message("tools/list", json!({})));
    assert_eq!((status, &answer["error"]["code"]), (400, &json!(-32602)));
}

#[test]
fn a_client_of_an_earlier_version_begins_with_initialize_and_gets_no_session() {
    let (_dir, daemon) = serve_site(&PAGES, &[]);
    for version in ["2025-03-26", "2025-06-18", "2025-11-25"] {
        let client = json!({ "name": "test", "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client });
        let response = post(&daemon.address, &[ACCEPT, JSON], &message("initialize", params));
        let answer = body(&response);
        assert_eq!((response.status, &answer["result"]["protocolVersion"]), (200, &json!(version)));
        assert_eq!(response.header("mcp-session-id"), None);
        let named = format!("MCP-Protocol-Version: {version}");
        let unknown = post(&daemon.address, &[ACCEPT, JSON, &named], &message("none/such", json!({})));
        assert_eq!((unknown.status, &body(&unknown)["error"]["code"]), (200, &json!(-32601)), "{version}");
        // A session id of another server is ignored.
        let listed =
            post(&daemon.address, &[ACCEPT, JSON, &named, "Mcp-Session-Id: x"], &message("tools/list", json!({})));
        assert!(body(&listed)["result"].get("ttlMs").is_none());
    }
}

#[test]
fn the_tools_answer_from_the_whole_site() {
    let (_dir, daemon) = serve_site(&PAGES, &[]);
    let address = &daemon.address;
    // Calls of tools are counted, and would exceed the limit of a minute.
    until_done_in_background("the index is open", || {
        request(address, "GET", "/_docwharf/search?q=anchors", &["Accept: application/json"]).status == 200
    });
    assert_eq!(call(address, "search_docs", json!({ "query": "anchors" }))["indexing"], false);
    let found = call(address, "search_docs", json!({ "query": "bowline" }));
    assert_eq!(found["results"][0]["title"], "Ropes");
    let url = found["results"][0]["url"].clone();
    let page = call(address, "read_page", json!({ "url": url }));
    assert!(page["markdown"].as_str().unwrap().contains("How to tie a bowline."), "{page}");
    let absolute = format!("http://{address}/guide/tides");
    assert_eq!(call(address, "read_page", json!({ "url": absolute }))["title"], "Tides");
    let listed = call(address, "list_pages", json!({}));
    assert_eq!(listed["pages"].as_array().unwrap().len(), 3);
}

#[test]
fn pages_of_other_sites_and_rebound_names_are_refused_unless_their_host_is_listed() {
    let (_dir, daemon) = serve_configured(&PAGES, "[assistant]\nhosts = [\"docs.example\", \"agents.example:8443\"]\n");
    let address = &daemon.address;
    let own = format!("Origin: http://{address}");
    for (fields, status) in [
        (&[][..], 200),
        (&["Origin: https://docs.example"], 200),
        (&["Origin: https://docs.example:444"], 200),
        (&["Origin: https://agents.example:8443"], 200),
        (&["Origin: https://agents.example:8444"], 403),
        (&["Origin: https://evil.example"], 403),
        (&["Origin: null"], 403),
        (&["Origin: https://docs.example", "Origin: https://docs.example"], 403),
        // An own page is no agent. The rule is the same for it.
        (&[own.as_str()], 403),
        (&["Host: evil.example"], 403),
        (&["Host: docs.example"], 200),
        (&["Host: localhost"], 200),
        (&["Host: [::1]:80"], 200),
        (&["Host: 192.0.2.1"], 403),
    ] {
        let response = post(address, &[&[ACCEPT, JSON], fields].concat(), &ping());
        assert_eq!(response.status, status, "{fields:?} {response:?}");
    }
}

#[test]
fn requests_of_an_address_are_limited_and_the_server_can_be_off() {
    let (_dir, daemon) = serve_configured(&PAGES, "[assistant]\nmcpPerMinute = 3\n");
    let statuses: Vec<u16> = (0..4).map(|_| post(&daemon.address, &[ACCEPT, JSON], &ping()).status).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
    assert_eq!(post(&daemon.address, &[ACCEPT, JSON], &ping()).header("retry-after"), Some("60"));
    let (_dir, off) = serve_configured(&PAGES, "[assistant]\nmcp = false\n");
    assert_eq!(post(&off.address, &[ACCEPT, JSON], &ping()).status, 404);
    assert_eq!(get(&off.address, MCP_PATH).status, 404);
    let (_dir, closed) = serve_configured(&PAGES, "[access]\nallow = [\"192.0.2.0/24\"]\n");
    assert_eq!(post(&closed.address, &[ACCEPT, JSON], &ping()).status, 403);
    let (_dir, without_search) = serve_configured(&PAGES, "[search]\nenabled = false\n");
    let tools = body(&post(&without_search.address, &[ACCEPT, JSON], &message("tools/list", json!({}))));
    let names: Vec<&str> =
        tools["result"]["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["read_page", "list_pages"]);
}

#[test]
fn messages_have_the_same_answers_over_http_2() {
    for http2 in HTTP2_SERVERS {
        let config = format!("[server]\nhttp2 = \"{http2}\"\n[assistant]\nhosts = [\"docs.example\"]\n");
        let (_dir, daemon) = serve_configured(&PAGES, &config);
        let over_http1 = post(&daemon.address, &[ACCEPT, JSON], &message("tools/list", json!({})));
        let mut client = Http2Client::open(&daemon.address);
        let fields = [("accept", "application/json, text/event-stream"), ("content-type", "application/json")];
        let content = message("tools/list", json!({}));
        let (first, second) = content.split_at(20);
        let stream = client.request_with_body("POST", MCP_PATH, &fields, &[first, second]);
        let response = client.response(stream);
        assert_eq!((response.status, response.text()), (200, over_http1.text()), "{http2}");
        let stream = client.request_with_body("POST", MCP_PATH, &fields, &[b"{"]);
        let response = client.response(stream);
        assert_eq!((response.status, &body(&response)["error"]["code"]), (400, &json!(-32700)), "{http2}");
        let stream = client.request("DELETE", MCP_PATH, &[]);
        assert_eq!(client.response(stream).status, 405, "{http2}");
    }
}

#[test]
fn further_requests_follow_on_the_same_connection() {
    let (_dir, daemon) = serve_site(&PAGES, &[]);
    let mut connection = PersistentConnection::open(&daemon.address);
    let content = message("tools/call", json!({ "name": "list_pages", "arguments": {} }));
    for _ in 0..20 {
        connection.send(post_request("localhost", MCP_PATH, &[JSON], &content));
        let response = connection.response(false);
        assert_eq!(body(&response)["result"]["structuredContent"]["pages"].as_array().unwrap().len(), 3);
    }
}
