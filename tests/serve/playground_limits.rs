//! The bounds of what an API may answer, through the executable.

use std::io::Write;

use serde_json::{Value, json};
use support::api_server::ApiTestServer;
use support::http::post;
use support::{Daemon, serve_configured};

/// Sends a GET request to this API through the playground: status and JSON of the response.
fn get_through(daemon: &Daemon, api: &str) -> (u16, Value) {
    let body = json!({ "method": "GET", "url": format!("http://{api}/") }).to_string();
    let fields = ["Content-Type: application/json", &format!("Origin: http://{}", daemon.address)];
    let response = post(&daemon.address, "/_docwharf/playground", &fields, body);
    (response.status, response.json())
}

#[test]
fn an_api_with_an_endless_or_oversized_head_gets_502_and_the_playground_goes_on() {
    let head = |fields: usize, value: usize| {
        let fields = (0..fields).map(|n| format!("X-{n}: {}\r\n", "v".repeat(value))).collect::<Vec<_>>().concat();
        format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n{fields}\r\nok").into_bytes()
    };
    let start = |respond: fn(&mut dyn Write)| ApiTestServer::start_with("127.0.0.1:0", respond).address;
    let fixed = |bytes: Vec<u8>| ApiTestServer::start("127.0.0.1:0", bytes).address;
    // Until the connection ends.
    let endless = start(|out| {
        let _ = out.write_all(b"HTTP/1.1 200 OK\r\n");
        while out.write_all(b"X-More: of this field, without an end\r\n").is_ok() {}
    });
    let many_interim = start(|out| while out.write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n").is_ok() {});
    let apis = [
        ("255 fields", fixed(head(255, 10)), 200),
        ("257 fields", fixed(head(257, 10)), 502),
        ("60 KiB", fixed(head(60, 1000)), 200),
        ("400 KiB", fixed(head(100, 4000)), 502),
        ("an endless head", endless, 502),
        // Ended by the deadline, if by nothing else.
        ("endless interim responses", many_interim, 504),
    ];
    let allow = apis
        .iter()
        .map(|(_, api, _)| format!("[[playground.allow]]\norigin = \"http://{api}\"\naddresses = [\"127.0.0.1\"]\n"))
        .collect::<Vec<_>>()
        .concat();
    let config = format!("[playground]\nenabled = true\ntimeout = \"2s\"\n{allow}");
    let (_dir, daemon) = serve_configured(&[("index.html", "<h1>Quay</h1>")], &config);
    for (name, api, expected) in &apis {
        let (status, answer) = get_through(&daemon, api);
        assert_eq!(status, *expected, "{name}: {answer}");
        if status == 200 {
            assert_eq!((&answer["status"], &answer["body"]), (&json!(200), &json!("ok")), "{name}");
        } else {
            assert_eq!(answer["error"], if status == 502 { "target" } else { "timeout" }, "{name}: {answer}");
        }
    }
    assert_eq!(get_through(&daemon, &apis[0].1).0, 200);
}
