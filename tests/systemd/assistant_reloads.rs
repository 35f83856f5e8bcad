//! Each key of `[assistant]` and `[playground]` takes effect at a reload, for a connection that was opened before.

use std::collections::BTreeSet;

use docwharf::config::keys::keys;
use serde_json::{Value, json};
use support::chat_server::{ChatReply, ChatTestServer};
use support::http::{PersistentConnection, Response};
use support::until_done_in_background;
use support::zip::{deflated, zip};

use super::*;

/// The daemon and what its readers use.
struct Fixture {
    host: Host,
    manager: TestServiceManager,
    daemon: Daemon,
    endpoint: ChatTestServer,
    other_endpoint: ChatTestServer,
    /// The address of an API, which answers nothing at `/slow` and 5,000 bytes elsewhere.
    api: String,
}

/// A connection of a reader.
struct Reader<'f> {
    fixture: &'f Fixture,
    connection: PersistentConnection,
    /// Whether the configuration was reloaded with the other value.
    is_after: bool,
}

/// Sends a request on the connection of a reader, and returns what depends on the key.
type Observation = fn(&mut Reader) -> String;

/// The key, its value before and after a reload, what is observed, and what is expected each time.
type KeyEffect = (&'static str, &'static str, &'static str, Observation, [&'static str; 2]);

/// `$other` and `$api` stand for the addresses of the other endpoint and the API.
const EFFECTS: &[KeyEffect] = &[
    ("assistant.mcp", "true", "false", |reader| reader.ping(&[]).status.to_string(), ["200", "404"]),
    ("assistant.mcpPerMinute", "60000", "1", |reader| reader.ping(&[]).status.to_string(), ["200", "429"]),
    ("assistant.markdown", "true", "false", |reader| reader.get("/ropes.md").status.to_string(), ["200", "404"]),
    ("assistant.llms", "true", "false", |reader| reader.get("/llms.txt").status.to_string(), ["200", "404"]),
    (
        "assistant.hosts",
        "[\"docs.example\"]",
        "[\"other.example\"]",
        |reader| reader.ping(&["Origin: https://docs.example"]).status.to_string(),
        ["200", "403"],
    ),
    ("assistant.baseUrl", "\"$own\"", "\"$other\"", |reader| reader.answer(), ["own [1].", "other [1]."]),
    ("assistant.model", "\"one\"", "\"two\"", |reader| reader.sent()["model"].to_string(), ["\"one\"", "\"two\""]),
    ("assistant.keyFile", "\"key\"", "\"other-key\"", |reader| reader.authorization(), ["Bearer k1", "Bearer k2"]),
    ("assistant.maxQuestion", "1000", "5", |reader| reader.ask().status.to_string(), ["200", "400"]),
    (
        "assistant.maxContext",
        "24000",
        "1000",
        |reader| (reader.sent()["messages"][1]["content"].as_str().unwrap().len() > 3000).to_string(),
        ["true", "false"],
    ),
    ("assistant.maxAnswer", "1024", "77", |reader| reader.sent()["max_tokens"].to_string(), ["1024", "77"]),
    ("assistant.timeout", "\"60s\"", "\"100ms\"", |reader| reader.ask_silent_endpoint_after(), ["200", "504"]),
    ("assistant.parallel", "2", "1", |reader| reader.ask_beside_another(), ["200", "503"]),
    ("assistant.perMinute", "60000", "1", |reader| reader.ask().status.to_string(), ["200", "429"]),
    ("assistant.perDay", "1000000", "1", |reader| reader.ask().status.to_string(), ["200", "429"]),
    ("playground.enabled", "true", "false", |reader| reader.try_it("/", "").status.to_string(), ["200", "404"]),
    (
        "playground.timeout",
        "\"30s\"",
        "\"100ms\"",
        |reader| {
            let path = if reader.is_after { "/slow" } else { "/" };
            reader.try_it(path, "").status.to_string()
        },
        ["200", "504"],
    ),
    (
        "playground.maxRequest",
        "\"1MiB\"",
        "1024",
        |reader| reader.try_it("/", &"x".repeat(5000)).status.to_string(),
        ["200", "413"],
    ),
    (
        "playground.maxResponse",
        "\"5MiB\"",
        "1024",
        |reader| reader.try_it("/", "").json()["truncated"].to_string(),
        ["false", "true"],
    ),
    ("playground.perMinute", "60000", "1", |reader| reader.try_it("/", "").status.to_string(), ["200", "429"]),
    (
        "playground.rewrite",
        "false",
        "true",
        |reader| reader.get("/_docwharf/playground.js").status.to_string(),
        ["404", "200"],
    ),
    (
        "playground.allow",
        "[{ origin = \"http://$api\", methods = [\"GET\", \"POST\"], addresses = [\"127.0.0.1\"] }]",
        "[{ origin = \"http://$api\", methods = [\"GET\"], addresses = [\"127.0.0.1\"] }]",
        |reader| reader.try_it("/", "").status.to_string(),
        ["200", "403"],
    ),
];

/// Starts an API. Its threads end with the test program.
fn start_api() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                let n = stream.read(&mut buffer).unwrap_or(0);
                if buffer[..n].starts_with(b"POST /slow") {
                    // Until the client gives up.
                    while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
                    return;
                }
                let body = "y".repeat(5000);
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5000\r\n\r\n{body}");
                // Not closed before the request is read: a reset would destroy the response.
                let _ = stream.shutdown(std::net::Shutdown::Write);
                while stream.read(&mut buffer).is_ok_and(|n| n > 0) {}
            });
        }
    });
    address
}

impl Fixture {
    fn start() -> Fixture {
        let endpoint = ChatTestServer::start([ChatReply::text("own [1].")]);
        let other_endpoint = ChatTestServer::start([ChatReply::text("other [1].")]);
        let host = Host::bare().set("search.enabled", "true").set("server.codings", "[]");
        host.put("key", "k1\n");
        host.put("other-key", "k2\n");
        let manager = TestServiceManager::new(&host);
        let api = start_api();
        let own = endpoint.base_url.clone();
        let paragraph = "<p>A bowline is a knot at the end of a rope, and it holds.".repeat(20);
        let sections = (0..6).map(|n| format!("<h2 id=s{n}>Bowline {n}</h2>{paragraph}")).collect::<Vec<_>>().concat();
        host.put(
            "bundle.zip",
            zip(&[
                deflated("index.html", "<title>Start</title><p>Start"),
                deflated("ropes.html", &format!("<title>Ropes</title><h1>Ropes</h1>{sections}")),
            ]),
        );
        let mut host = host;
        for (key, before, ..) in EFFECTS {
            host.change(key, before.replace("$own", &own).replace("$api", &api));
        }
        host.ok(&["import", host.path("bundle.zip").to_str().unwrap()]);
        let daemon = Daemon::start(&mut manager.connect(&host, host.command(&["run"]), None));
        manager.until("ready", |message| message == "READY=1");
        until_done_in_background("the index is open", || {
            http::request(&daemon.address, "GET", "/_docwharf/search?q=x", &["Accept: application/json"]).status == 200
        });
        until_done_in_background("the list is made", || http::get(&daemon.address, "/llms.txt").status == 200);
        Fixture { host, manager, daemon, endpoint, other_endpoint, api }
    }

    /// Sets a key and waits until the daemon has read the configuration again.
    fn reload(&mut self, key: &str, value: &str) {
        let value = value.replace("$own", &self.endpoint.base_url).replace("$api", &self.api);
        self.host.change(key, value.replace("$other", &self.other_endpoint.base_url));
        self.daemon.signal("HUP");
        self.manager.until("it reloads", |message| message.starts_with("RELOADING=1"));
        self.manager.until("it has reloaded", |message| message == "READY=1");
    }
}

impl Reader<'_> {
    fn send(&mut self, method: &str, target: &str, fields: &[&str], body: &str) -> Response {
        send_on(&mut self.connection, &self.fixture.daemon.address, method, target, fields, body);
        self.connection.response(false)
    }

    fn get(&mut self, target: &str) -> Response {
        self.send("GET", target, &[], "")
    }

    fn ping(&mut self, fields: &[&str]) -> Response {
        self.send("POST", "/_docwharf/mcp", fields, r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#)
    }

    fn ask(&mut self) -> Response {
        self.send("POST", "/_docwharf/ask", &[], r#"{"question":"bowline"}"#)
    }

    fn answer(&mut self) -> String {
        self.ask().json()["answer"].as_str().unwrap().to_owned()
    }

    /// Asks, and returns the body that the endpoint has received.
    fn sent(&mut self) -> Value {
        assert_eq!(self.ask().status, 200);
        self.fixture.endpoint.requests().last().unwrap().body.clone()
    }

    fn authorization(&mut self) -> String {
        self.sent();
        self.fixture.endpoint.requests().last().unwrap().field("authorization").unwrap_or_default().to_owned()
    }

    /// Asks while the endpoint answers, or does not answer after the reload.
    fn ask_silent_endpoint_after(&mut self) -> String {
        if self.is_after {
            self.fixture.endpoint.set_replies([ChatReply::Silent(Vec::new())]);
        }
        let status = self.ask().status;
        self.fixture.endpoint.set_replies([ChatReply::text("own [1].")]);
        status.to_string()
    }

    /// Asks while another question is being answered.
    fn ask_beside_another(&mut self) -> String {
        let (endpoint, address) = (&self.fixture.endpoint, &self.fixture.daemon.address);
        let (asked, ended) = (endpoint.requests().len(), endpoint.disconnects());
        endpoint.set_replies([ChatReply::Silent(Vec::new()), ChatReply::text("own [1].")]);
        let mut other = PersistentConnection::open(address);
        send_on(&mut other, address, "POST", "/_docwharf/ask", &[], r#"{"question":"bowline"}"#);
        until("the endpoint is asked", || endpoint.requests().len() > asked);
        let status = self.ask().status;
        drop(other);
        until("the other question has ended", || endpoint.disconnects() > ended);
        endpoint.set_replies([ChatReply::text("own [1].")]);
        status.to_string()
    }

    /// Sends a POST request to the API through the playground.
    fn try_it(&mut self, path: &str, body: &str) -> Response {
        let url = format!("http://{}{path}", self.fixture.api);
        let origin = format!("Origin: http://{}", self.fixture.daemon.address);
        let body = json!({ "method": "POST", "url": url, "headers": {}, "body": body }).to_string();
        self.send("POST", "/_docwharf/playground", &[&origin], &body)
    }
}

fn send_on(
    connection: &mut PersistentConnection,
    address: &str,
    method: &str,
    target: &str,
    fields: &[&str],
    body: &str,
) {
    let fields = fields.iter().map(|field| format!("{field}\r\n")).collect::<Vec<_>>().concat();
    let content = if method == "POST" {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    } else {
        String::new()
    };
    connection.send(format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n{fields}{content}\r\n{body}"));
}

#[test]
fn each_key_of_the_assistant_and_the_playground_takes_effect_on_an_open_connection() {
    // The rules of the playground are tables, and no key of the list.
    let named: BTreeSet<&str> = EFFECTS.iter().map(|(key, ..)| *key).filter(|key| *key != "playground.allow").collect();
    let is_ours = |key: &str| key.starts_with("assistant.") || key.starts_with("playground.");
    assert_eq!(named, keys().map(|key| key.name).filter(|key| is_ours(key)).collect());
    let mut fixture = Fixture::start();
    for &(key, before, after, observe, expected) in EFFECTS {
        let connection = PersistentConnection::open(&fixture.daemon.address);
        let mut reader = Reader { fixture: &fixture, connection, is_after: false };
        assert_eq!(observe(&mut reader), expected[0], "{key} = {before}");
        let connection = reader.connection;
        fixture.reload(key, after);
        let mut reader = Reader { fixture: &fixture, connection, is_after: true };
        assert_eq!(observe(&mut reader), expected[1], "{key} = {after}");
        fixture.reload(key, before);
    }
}
