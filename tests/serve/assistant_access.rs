//! Access control on the wire, for all that was added for agents and readers' questions. That no resource is missing
//! here is checked by `crates/serve/src/access_tests.rs`.

use support::h2::Http2Client;
use support::host::{Host, bundle};
use support::http::{Response, get, request};
use support::{Daemon, HTTP2_SERVERS, until, until_done_in_background};

/// Method, address, and `Accept`.
const REQUESTS: [(&str, &str, &str); 22] = [
    ("POST", "/_docwharf/mcp", "application/json, text/event-stream"),
    ("GET", "/_docwharf/mcp", "text/event-stream"),
    ("OPTIONS", "/_docwharf/mcp", "*/*"),
    ("DELETE", "/_docwharf/mcp", "*/*"),
    ("POST", "/_docwharf/ask", "application/json"),
    ("POST", "/_docwharf/ask", "text/event-stream"),
    ("OPTIONS", "/_docwharf/ask", "*/*"),
    ("GET", "/_docwharf/ask", "*/*"),
    ("POST", "/_docwharf/playground", "*/*"),
    ("OPTIONS", "/_docwharf/playground", "*/*"),
    ("POST", "/_docwharf/events", "*/*"),
    ("GET", "/_docwharf/ask.js", "*/*"),
    ("GET", "/_docwharf/ask.css", "*/*"),
    ("GET", "/_docwharf/playground.js", "*/*"),
    ("GET", "/_docwharf/search.js", "*/*"),
    ("GET", "/guide.md", "*/*"),
    ("GET", "/guide", "text/markdown"),
    ("GET", "/llms.txt", "*/*"),
    ("GET", "/llms-full.txt", "*/*"),
    ("GET", "/.well-known/llms.txt", "*/*"),
    ("GET", "/.well-known/llms-full.txt", "*/*"),
    ("HEAD", "/guide.md", "*/*"),
];

fn start(http2: &str) -> (Host, Daemon) {
    let host = Host::with_assistant(http2, bundle("Moat")).set("playground.rewrite", "true");
    let daemon = host.run();
    (host, daemon)
}

/// Sends a request without a body over HTTP/1.1.
fn over_http1(daemon: &Daemon, (method, target, accept): (&str, &str, &str)) -> Response {
    let accept = format!("Accept: {accept}");
    request(&daemon.address, method, target, &[&accept, "Content-Type: application/json", "Content-Length: 0"])
}

fn over_http2(daemon: &Daemon, (method, target, accept): (&str, &str, &str)) -> Response {
    let mut client = Http2Client::open(&daemon.address);
    let stream = client.request(method, target, &[("accept", accept), ("content-type", "application/json")]);
    client.response(stream)
}

/// The fields that do not depend on the time or the protocol.
fn fields(response: &Response) -> Vec<(String, String)> {
    let is_variable = |name: &str| matches!(name, "date" | "connection" | "keep-alive");
    response.headers.iter().filter(|(name, _)| !is_variable(name)).cloned().collect()
}

#[test]
fn clients_outside_access_allow_get_403_for_all_of_the_assistant_and_learn_nothing_else() {
    for http2 in HTTP2_SERVERS {
        let (mut host, daemon) = start(http2);
        until_done_in_background("the lists are made", || get(&daemon.address, "/llms-full.txt").status == 200);
        for case in REQUESTS {
            let response = over_http1(&daemon, case);
            assert!(!matches!(response.status, 404 | 503), "{case:?} is there: {response:?}");
        }
        // In force for connections and pages that were served before, too.
        host.change("access.allow", "[\"192.0.2.0/24\"]");
        daemon.signal("HUP");
        until("the access control is in force", || get(&daemon.address, "/").status == 403);
        let refused = get(&daemon.address, "/");
        for case in REQUESTS {
            for response in [over_http1(&daemon, case), over_http2(&daemon, case)] {
                assert_eq!((response.status, fields(&response)), (403, fields(&refused)), "{http2} {case:?}");
                assert!(case.0 == "HEAD" || response.body == refused.body, "{http2} {case:?}");
            }
        }
    }
}
