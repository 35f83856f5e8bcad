//! Bodies of requests to the resources that answer POST: one that does not arrive in time gets 408, one that is too
//! large 413, in each protocol, and the next request is answered.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use support::h2::{DATA, END_HEADERS, HEADERS, Http2Client, StreamOutcome, block};
use support::host::{Host, bundle, run_concurrently};
use support::http::{connect, get, parse};
use support::{Daemon, HTTP2_SERVERS};

/// The name of each resource, the deadline for its body in seconds, and whether it is there without analytics.
const RESOURCES: [(&str, u32, bool); 4] =
    [("mcp", 10, true), ("ask", 10, true), ("playground", 30, true), ("events", 10, false)];

/// Longer than each of the deadlines. It only ends a test that fails.
const READ_TIMEOUT: Duration = Duration::from_mins(2);
/// The host that the HTTP/2 client names.
const HOST: &str = "docs.example";
/// The size of a body that is too large for each of the resources.
const TOO_LARGE_BYTES: usize = 300 << 10;

fn resources() -> impl Iterator<Item = (&'static str, u32)> {
    let is_there = |is_always: &bool| *is_always || cfg!(feature = "analytics");
    RESOURCES.iter().filter(move |(.., is_always)| is_there(is_always)).map(|(name, seconds, _)| (*name, *seconds))
}

/// Starts `run` with all resources on.
fn start(http2: &str) -> (Host, Daemon) {
    let host = Host::with_assistant(http2, bundle("Moat"))
        .set("assistant.hosts", format!("[\"{HOST}\"]"))
        .set("playground.maxRequest", "1024");
    let daemon = host.run();
    support::until("the site is served", || get(&daemon.address, "/").status == 200);
    (host, daemon)
}

/// The fields of a request in each protocol: the media type, and the origin that the playground requires.
fn fields(resource: &str) -> Vec<(&'static str, String)> {
    let mut fields = vec![("content-type", "application/json".to_owned())];
    if resource == "playground" {
        fields.push(("origin", format!("http://{HOST}")));
    }
    fields
}

#[track_caller]
fn check_timeout_text(resource: &str, seconds: u32, text: &str) {
    assert!(
        text.contains(&format!("the body was not complete after {seconds} seconds; send it again")),
        "{resource}: {text}"
    );
}

/// Sends a body that does not end over HTTP/1.1, a byte at a time.
fn send_slow_body(address: &str, resource: &str, seconds: u32) {
    let mut stream = connect(address);
    let fields =
        fields(resource).iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect::<Vec<_>>().concat();
    let head = format!("POST /_docwharf/{resource} HTTP/1.1\r\nHost: {HOST}\r\n{fields}Content-Length: 900\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    // The deadline is for the whole body: that it goes on does not help.
    stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    for _ in 0..READ_TIMEOUT.as_secs() * 2 {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                let _ = stream.write_all(b" ");
            }
            Err(_) => break,
        }
    }
    let response = parse(&received, false);
    assert_eq!(response.status, 408, "{resource}: {response:?}");
    assert_eq!(response.header("cache-control"), Some("no-store"), "{resource}");
    check_timeout_text(resource, seconds, &response.text());
}

fn open_http2(address: &str) -> Http2Client {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(READ_TIMEOUT)).unwrap();
    let socket = stream.try_clone().unwrap();
    let mut client = Http2Client::over(Box::new(stream), socket, 0x7fff_ffff);
    client.widen_connection_window();
    client
}

/// Sends a body that does not end over HTTP/2.
fn send_unfinished_stream(address: &str, resource: &str, seconds: u32) {
    let mut client = open_http2(address);
    let path = format!("/_docwharf/{resource}");
    let own = fields(resource);
    let pseudo = [(":method", "POST"), (":scheme", "http"), (":path", path.as_str()), (":authority", HOST)];
    let all: Vec<(&str, &str)> =
        pseudo.into_iter().chain(own.iter().map(|(name, value)| (*name, value.as_str()))).collect();
    let stream = client.new_stream();
    client.send(HEADERS, END_HEADERS, stream, &block(&all)).unwrap();
    client.send(DATA, 0, stream, b"{").unwrap();
    let response = client.response(stream);
    assert_eq!(response.status, 408, "{resource}: {response:?}");
    assert_eq!(response.header("cache-control"), Some("no-store"), "{resource}");
    check_timeout_text(resource, seconds, &response.text());
    // Other streams of the connection go on.
    assert!(matches!(client.get("/", &[]), StreamOutcome::Response { status: 200, .. }), "{resource}");
}

#[test]
fn a_body_that_is_not_complete_at_its_deadline_gets_408_in_each_protocol() {
    let servers = HTTP2_SERVERS.map(start);
    let mut cases: Vec<(usize, bool, &str, u32)> = Vec::new();
    for (resource, seconds) in resources() {
        cases.extend([(0, false, resource, seconds), (0, true, resource, seconds), (1, true, resource, seconds)]);
    }
    run_concurrently(&cases, |&(server, is_http2, resource, seconds)| {
        let address = &servers[server].1.address;
        if is_http2 {
            send_unfinished_stream(address, resource, seconds);
        } else {
            send_slow_body(address, resource, seconds);
        }
    });
}

#[test]
fn a_body_that_is_too_large_gets_413_in_each_protocol_and_the_next_request_is_answered() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // The library builds no client without one, although no connection here is encrypted.
    let _ = rustls::crypto::ring::default_provider().install_default();
    for http2 in HTTP2_SERVERS {
        let (_host, daemon) = start(http2);
        let address = &daemon.address;
        for (resource, _) in resources() {
            for is_http2 in [true, false] {
                #[allow(clippy::disallowed_types)] // a client of HTTP/2 that obeys flow control
                let builder = reqwest::Client::builder().no_proxy();
                let builder = if is_http2 { builder.http2_prior_knowledge() } else { builder.http1_only() };
                let client = builder.build().unwrap();
                let post = |body: Vec<u8>| {
                    let mut request = client.post(format!("http://{address}/_docwharf/{resource}")).body(body);
                    for (name, value) in fields(resource) {
                        // The client names the address.
                        request = request.header(name, value.replace(HOST, address));
                    }
                    runtime.block_on(async {
                        let response = request.send().await.unwrap();
                        (response.status().as_u16(), response.text().await.unwrap())
                    })
                };
                let case = format!("{http2} {resource} {is_http2}");
                let (status, text) = post(vec![b' '; TOO_LARGE_BYTES]);
                assert!(
                    status == 413 && text.contains("larger than") && text.contains("; send less"),
                    "{case}: {status} {text}"
                );
                assert_eq!(post(b"{}".to_vec()).0, 400, "{case}");
            }
        }
    }
}
