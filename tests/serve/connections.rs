//! Connections: framing, limits, HTTP/1.0, 1.1 and 2, many bad clients beside a good one, start and shutdown.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use support::h2::{self, Http2Client, StreamOutcome};
use support::host::{self, Host};
use support::http::{PersistentConnection, connect, get, parse, request, send_bytes};
use support::zip::{deflated, zip};
use support::{
    Daemon, HTTP2_SERVERS, KillOnDrop, SetOnDrop, anonymous_memory_bytes, docwharf, metrics, open_descriptors,
    response_after_stop, run_docwharf, sample_text, serve_site_with_http2, temporary_folder, until, write_site,
};

/// Serves these files from a new folder.
fn serve_site(files: &[(&str, &str)]) -> (tempfile::TempDir, Daemon) {
    support::serve_site(files, &[])
}

const SMALL: [(&str, &str); 3] = [("index.html", "<p>home"), ("a.txt", "content of a"), ("b.txt", "content of b")];

/// Bytes that cannot be compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// A site with a large picture and a large page.
fn large_site() -> (tempfile::TempDir, Daemon, Vec<u8>) {
    large_site_with_http2("own")
}

fn large_site_with_http2(http2: &str) -> (tempfile::TempDir, Daemon, Vec<u8>) {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &SMALL);
    let picture = noise(24 << 20);
    std::fs::write(root.join("large.png"), &picture).expect("a file can be written");
    std::fs::write(root.join("large.txt"), "The same line again and again.\n".repeat(700_000))
        .expect("a file can be written");
    let daemon = Daemon::serve_with_http2(http2, &root, &[]);
    (dir, daemon, picture)
}

/// Panics unless the site answers a request on a new connection within 20 s.
#[track_caller]
fn assert_served(address: &str) {
    let started = Instant::now();
    assert_eq!(get(address, "/a.txt").text(), "content of a");
    assert!(started.elapsed() < Duration::from_secs(20), "served after {:?}", started.elapsed());
}

/// The number of HTTP/1 responses in `bytes`.
fn count_responses(bytes: &[u8]) -> usize {
    bytes.windows(9).filter(|w| w.starts_with(b"HTTP/1.") && w[8] == b' ').count()
}

// ---------------------------------------------------------------------------------------------------------------------
// Connections

#[test]
fn a_connection_is_reused_and_pipelined_requests_are_answered_in_order() {
    let (_dir, daemon) = serve_site(&SMALL);
    let request = |method: &str, target: &str| format!("{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut connection = PersistentConnection::open(&daemon.address);
    for _ in 0..3 {
        connection.send(request("GET", "/a.txt"));
        assert_eq!(connection.response(false).text(), "content of a");
    }
    // HEAD, 304, 204, 404, 405 and 206 send no byte that a client could read as the next response.
    let cases = [
        ("GET", "/a.txt", 200, "content of a"),
        ("HEAD", "/a.txt", 200, ""),
        ("OPTIONS", "/", 204, ""),
        ("GET", "/missing.js", 404, "404: no such file\n"),
        ("GET", "/b.txt", 200, "content of b"),
        ("POST", "/b.txt", 405, "405: method not allowed\n"),
        ("GET", "/%00", 400, "400: bad request\n"),
        ("GET", "/", 200, "<p>home"),
    ];
    let all: String = cases.iter().map(|(method, target, _, _)| request(method, target)).collect();
    connection.send(&all);
    for (method, target, status, body) in cases {
        let response = connection.response(method == "HEAD");
        assert_eq!((response.status, response.text().as_str()), (status, body), "{method} {target}");
    }
    let tag = get(&daemon.address, "/a.txt").header("etag").expect("a tag").to_owned();
    let cases = [
        (format!("If-None-Match: {tag}"), 304),
        ("If-Match: \"x\"".into(), 412),
        ("Range: bytes=1-2".into(), 206),
        ("Range: bytes=99-".into(), 416),
    ];
    for (field, status) in cases {
        connection.send(format!("GET /a.txt HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n{}", request("GET", "/b.txt")));
        assert_eq!(connection.response(false).status, status, "{field}");
        assert_eq!(connection.response(false).text(), "content of b", "after {field}");
    }
    // Hundreds of requests at once, and one that arrives byte by byte.
    connection.send(request("GET", "/a.txt").repeat(300));
    for _ in 0..300 {
        assert_eq!(connection.response(false).text(), "content of a");
    }
    for byte in request("GET", "/b.txt").bytes() {
        connection.send([byte]);
    }
    assert_eq!(connection.response(false).text(), "content of b");
    // Empty lines between requests are skipped (RFC 9112, 2.2).
    connection.send(format!("\r\n\r\n{}", request("GET", "/a.txt")));
    assert_eq!(connection.response(false).text(), "content of a");
}

// Regression: a response was not sent until the next pipelined request had arrived completely.
#[test]
fn a_request_is_answered_while_the_next_pipelined_one_is_incomplete() {
    let (_dir, daemon) = serve_site(&SMALL);
    let mut connection = PersistentConnection::open(&daemon.address);
    connection.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\nGET /b.txt HT");
    assert_eq!(connection.response(false).text(), "content of a");
    connection.send("TP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(connection.response(false).text(), "content of b");
}

#[test]
fn a_connection_is_closed_after_connection_close_or_http_1_0() {
    let (_dir, daemon) = serve_site(&SMALL);
    for bytes in [
        "GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: Close, foo\r\n\r\n",
        "GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /b.txt HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /a.txt HTTP/1.0\r\n\r\n",
        "GET /a.txt HTTP/1.0\r\nConnection: close\r\n\r\n",
    ] {
        let mut connection = PersistentConnection::open(&daemon.address);
        connection.send(bytes);
        let rest = connection.read_to_close();
        assert_eq!(count_responses(&rest), 1, "{bytes:?}");
        assert_eq!(parse(&rest, false).text(), "content of a", "{bytes:?}");
    }
    // A client that has shut down its sending side gets its response.
    let mut connection = PersistentConnection::open(&daemon.address);
    connection.send("GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    connection.stream.shutdown(std::net::Shutdown::Write).expect("one side can be closed");
    assert_eq!(parse(&connection.read_to_close(), false).text(), "content of a");
}

#[test]
fn http_1_0_responses_have_content_length_and_no_chunked_encoding() {
    let (_dir, daemon, picture) = large_site();
    for target in ["/a.txt", "/large.png", "/large.txt", "/missing", "/missing.js"] {
        for field in ["", "Accept-Encoding: gzip\r\n", "Host: x\r\n", "TE: chunked\r\n"] {
            let mut connection = PersistentConnection::open(&daemon.address);
            connection.send(format!("GET {target} HTTP/1.0\r\n{field}\r\n"));
            let response = parse(&connection.read_to_close(), false);
            assert!(response.header("transfer-encoding").is_none(), "{target} {field}");
            assert!(response.header("content-length").is_some(), "{target} {field}");
            assert!(matches!(response.status, 200 | 404), "{target} {field}");
            if target == "/large.png" {
                assert!(response.body == picture);
            }
        }
    }
    // A client that has shut down its sending side gets the whole body, too.
    let mut connection = PersistentConnection::open(&daemon.address);
    connection.send("GET /large.png HTTP/1.0\r\n\r\n");
    connection.stream.shutdown(std::net::Shutdown::Write).expect("one side can be closed");
    assert!(parse(&connection.read_to_close(), false).body == picture);
    // An HTTP/1.0 connection stays open only if the client requests it.
    let mut connection = PersistentConnection::open(&daemon.address);
    for _ in 0..2 {
        connection.send("GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(connection.response(false).text(), "content of a");
    }
}

#[test]
fn a_request_target_in_absolute_form_is_served_like_its_path() {
    let (_dir, daemon) = serve_site(&SMALL);
    for target in [
        "http://x/a.txt",
        "http://127.0.0.1:1/a.txt",
        "HTTP://x/a.txt?q",
        "https://other.example/a.txt",
        "http://x:80/%61.txt",
        "http://[::1]:8/a.txt",
    ] {
        let response = request(&daemon.address, "GET", target, &[]);
        assert_eq!((response.status, response.text().as_str()), (200, "content of a"), "{target}");
    }
    for target in ["http://x", "http://x/", "http://x?q"] {
        assert_eq!(get(&daemon.address, target).text(), "<p>home", "{target}");
    }
    assert_eq!(request(&daemon.address, "OPTIONS", "*", &[]).status, 204);
    for (method, target) in
        [("GET", "*"), ("GET", "a.txt"), ("CONNECT", "x:443"), ("CONNECT", "/"), ("GET", "x:443"), ("GET", "?q")]
    {
        let status = request(&daemon.address, method, target, &[]).status;
        assert!(matches!(status, 400 | 404 | 405), "{method} {target}: {status}");
    }
}

#[test]
fn requests_with_upgrade_or_expect_headers_get_the_usual_response() {
    let (_dir, daemon) = serve_site(&SMALL);
    for fields in [
        &["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"][..],
        &["Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"],
        &["Expect: 100-continue"],
        &["TE: trailers"],
    ] {
        let response = request(&daemon.address, "GET", "/a.txt", fields);
        assert_eq!((response.status, response.text().as_str()), (200, "content of a"), "{fields:?}");
    }
}

#[test]
fn every_response_has_a_date_even_to_malformed_requests() {
    let (_dir, daemon) = serve_site(&SMALL);
    let get =
        |target: &str, fields: &str| format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{fields}\r\n");
    for (bytes, status) in [
        (get("/a.txt", ""), 200),
        (get("/a.txt", "Range: bytes=0-1\r\n"), 206),
        (get("/a.txt", "Range: bytes=0-1,3-4\r\n"), 206),
        (get("/a.txt", "If-None-Match: *\r\n"), 304),
        (get("/nowhere", ""), 404),
        (get("/nowhere.js", ""), 404),
        (get("/a.txt", "If-Match: \"x\"\r\n"), 412),
        (get("/a.txt", "Range: bytes=99-\r\n"), 416),
        (get("/%01", ""), 400),
        (get("/a.txt", "Transfer-Encoding: chunked\r\n"), 400),
        (get("/a.txt", "no colon\r\n"), 400),
        (get(&format!("/{}", "a".repeat(70_000)), ""), 414),
        (get("/a.txt", &format!("X: {}\r\n", "a".repeat(200_000))), 431),
        ("HEAD /a.txt HTTP/1.0\r\n\r\n".into(), 200),
        ("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(), 204),
        ("PUT /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".into(), 405),
        ("GET /a.txt HTTP/1.1\r\n\r\n".into(), 400),
    ] {
        let case = bytes[..bytes.len().min(60)].to_owned();
        let mut connection = PersistentConnection::open(&daemon.address);
        connection.send(bytes);
        let response = parse(&connection.read_to_close(), status == 304 || case.starts_with("HEAD"));
        assert_eq!(response.status, status, "{case:?}");
        let date = response.header("date").unwrap_or_else(|| panic!("no date: {case:?}"));
        let date = httpdate::parse_http_date(date).unwrap_or_else(|_| panic!("{date:?}: {case:?}"));
        let age = std::time::SystemTime::now().duration_since(date).unwrap_or_default();
        assert!(age < Duration::from_secs(30), "{case:?}: {age:?}");
        assert!(response.header("server").is_none_or(|server| !server.contains(env!("CARGO_PKG_VERSION"))), "{case:?}");
    }
}

#[test]
fn empty_lines_before_a_request_and_bare_line_feeds_are_accepted() {
    let (_dir, daemon) = serve_site(&SMALL);
    // RFC 9112, 2.2: a server SHOULD skip empty lines, and MAY accept a bare line feed.
    for bytes in [
        "\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /a.txt HTTP/1.1\nHost: x\nConnection: close\n\n",
    ] {
        let mut connection = PersistentConnection::open(&daemon.address);
        connection.send(bytes);
        assert_eq!(parse(&connection.read_to_close(), false).text(), "content of a", "{bytes:?}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Refused requests

/// Sends `bytes` and one more request. The server must refuse the first with one of `statuses`, and must not answer the
/// second, because the end of the first is uncertain.
#[track_caller]
fn assert_refused(address: &str, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let bytes = bytes.as_ref();
    let request = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    let mut connection = PersistentConnection::open(address);
    connection.send(bytes);
    connection.send("GET /b.txt HTTP/1.1\r\nHost: x\r\n\r\n");
    let rest = connection.read_to_close();
    assert!(!rest.is_empty(), "closed without a response: {request:?}");
    assert_eq!(count_responses(&rest), 1, "{request:?}: {:?}", String::from_utf8_lossy(&rest));
    let status = parse(&rest, false).status;
    assert!(statuses.contains(&status), "{status}, not {statuses:?}: {request:?}");
    assert!(!rest.windows(12).any(|w| w == b"content of b"), "{request:?}");
}

#[test]
fn requests_without_exactly_one_valid_host_header_get_400() {
    let (_dir, daemon) = serve_site(&SMALL);
    let address = &daemon.address;
    for fields in [
        "",
        "Host: x\r\nHost: x\r\n",
        "Host: x\r\nhost: y\r\n",
        "Host: a b\r\n",
        "Host: a/b\r\n",
        "Host: http://x\r\n",
        "Host: x?y\r\n",
        "Host: x#y\r\n",
        "Host: user@x\r\n",
        "Host: a\\b\r\n",
        "Host: x:port\r\n",
        "Host: x:1:2\r\n",
        "Host: [::1\r\n",
        "Host: [zz]\r\n",
        "Host: x]\r\n",
        "Host: ::1\r\n",
        "Host: :80\r\n",
        "Host: <script>\r\n",
        "Host: \u{e9}\r\n",
    ] {
        for method in ["GET", "HEAD", "OPTIONS", "POST"] {
            let mut connection = PersistentConnection::open(address);
            connection.send(format!("{method} /a.txt HTTP/1.1\r\n{fields}Connection: close\r\n\r\n"));
            assert_eq!(parse(&connection.read_to_close(), method == "HEAD").status, 400, "{method} {fields:?}");
        }
    }
    assert_refused(address, "GET http://x/a.txt HTTP/1.1\r\n\r\n", &[400]);
    assert_refused(address, "GET /a.txt HTTP/1.0\r\nHost: a b\r\n\r\n", &[400]);
    for host in ["x", "x:80", "docs.example", "127.0.0.1:8080", "[::1]", "[::1]:8080", "a-b_c.example", "x."] {
        let mut connection = PersistentConnection::open(address);
        connection.send(format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(connection.response(false).status, 200, "{host}");
    }
}

#[test]
fn transfer_encoding_is_refused_and_the_connection_closed() {
    let (_dir, daemon) = serve_site(&SMALL);
    for (fields, body) in [
        ("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"),
        ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked, gzip\r\n", ""),
        ("Transfer-Encoding: xchunked\r\n", ""),
        ("Transfer-Encoding: identity\r\n", ""),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding:\u{b}chunked\r\n", "0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", "zz\r\nhello\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", "-1\r\nhello\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked\r\n", "ffffffffffffffffff\r\nhello"),
        ("Transfer-Encoding: chunked\r\n", "5\nhello\n0\n\n"),
        ("Transfer-Encoding: chunked\r\n", "0x5\r\nhello\r\n0\r\n\r\n"),
    ] {
        for method in ["GET", "POST", "OPTIONS"] {
            assert_refused(
                &daemon.address,
                format!("{method} /a.txt HTTP/1.1\r\nHost: x\r\n{fields}\r\n{body}"),
                &[400],
            );
        }
    }
    assert_refused(&daemon.address, "GET /a.txt HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400]);
}

// Regression: a refusal was not sent while the server waited for the rest of a pipelined request.
#[test]
fn malformed_http_1_requests_get_400_and_the_connection_is_closed() {
    let (_dir, daemon) = serve_site(&SMALL);
    let with = |fields: &str| format!("GET /a.txt HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    for bytes in [
        with("Content-Length: 1\r\nContent-Length: 2\r\n"),
        with("Content-Length: 1, 2\r\n"),
        with("Content-Length: +1\r\n"),
        with("Content-Length: -1\r\n"),
        with("Content-Length: 0x1\r\n"),
        with("Content-Length: 1 1\r\n"),
        with("Content-Length: x\r\n"),
        with("Content-Length:\r\n"),
        with("Content-Length: 99999999999999999999999\r\n"),
        with("Content-Length : 5\r\n"),
        with("Name : value\r\n"),
        with("Name\t: value\r\n"),
        with("no colon\r\n"),
        with("nocolon\r\n"),
        with(": no name\r\n"),
        with("(name): value\r\n"),
        with("name: a\u{0}b\r\n"),
        with("name: a\rb\r\n"),
        with("name: value\r\n folded\r\n"),
        "GET /a.txt HTTP/1.1\r\n Host: x\r\n\r\n".into(),
        "GET /a.txt HTTP/1.1\r\nHost : x\r\n\r\n".into(),
        "GET  /a.txt HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET /a b HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET /a.txt\r\nHost: x\r\n\r\n".into(),
        "GET /a.txt HTTP/1.1 \r\nHost: x\r\n\r\n".into(),
        "GET /a.txt HTTP/9.9\r\nHost: x\r\n\r\n".into(),
        "GET /a.txt HTTP/2.0\r\nHost: x\r\n\r\n".into(),
        "GET /a.txt XTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "G@T /a.txt HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET http:// HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "GET /\u{0} HTTP/1.1\r\nHost: x\r\n\r\n".into(),
        "PRI * HTTP/1.1\r\n\r\n".into(),
        "complete rubbish\r\n\r\n".into(),
        "\u{16}\u{3}\u{1}\u{2}\u{0}\u{1}\u{0}\u{1}\u{fc}\u{3}\u{3}\r\n\r\n".into(),
    ] {
        assert_refused(&daemon.address, bytes, &[400]);
    }
    assert_served(&daemon.address);
}

// Regression: a long request target was answered with 431.
#[test]
fn too_long_request_targets_get_414_and_too_large_headers_431() {
    let (_dir, daemon) = serve_site(&SMALL);
    let address = &daemon.address;
    for len in [66_000, 70_000] {
        assert_refused(address, format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(len)), &[414]);
        assert_refused(address, format!("GET /?{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(len)), &[414]);
    }
    for len in [1 << 20, 8 << 20] {
        assert_refused(address, format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(len)), &[414, 431]);
    }
    for len in [140_000, 1 << 20, 8 << 20] {
        assert_refused(address, format!("GET / HTTP/1.1\r\nHost: x\r\nCookie: {}\r\n\r\n", "a".repeat(len)), &[431]);
        assert_refused(address, format!("GET / HTTP/1.1\r\nHost: x\r\n{}: a\r\n\r\n", "a".repeat(len)), &[431]);
    }
    for count in [1000, 20_000, 1_000_000] {
        assert_refused(address, format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "a: b\r\n".repeat(count)), &[431]);
    }
    // Sizes that browsers send are accepted.
    for len in [2000, 7000] {
        assert_eq!(get(address, &format!("/a.txt?{}", "a".repeat(len))).status, 200);
        assert_eq!(request(address, "GET", "/a.txt", &[&format!("Cookie: {}", "a".repeat(len))]).status, 200);
    }
    assert_eq!(request(address, "GET", "/a.txt", &[&format!("Cookie: {}", "a".repeat(120_000))]).status, 200);
    let fields = vec!["X-Field: value"; 60];
    assert_eq!(request(address, "GET", "/a.txt", &fields).status, 200);
}

#[test]
fn a_request_body_is_never_parsed_as_the_next_request() {
    let (_dir, daemon) = serve_site(&SMALL);
    let hidden = "GET /b.txt HTTP/1.1\r\nHost: x\r\n\r\n";
    for (method, status) in
        [("GET", 200), ("HEAD", 200), ("OPTIONS", 204), ("POST", 405), ("PUT", 405), ("TRACE", 405), ("BREW", 405)]
    {
        for target in ["/a.txt", "/missing"] {
            let status = if status == 200 && target == "/missing" { 404 } else { status };
            let mut connection = PersistentConnection::open(&daemon.address);
            connection.send(format!(
                "{method} {target} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{hidden}GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
                hidden.len()
            ));
            assert_eq!(connection.response(method == "HEAD").status, status, "{method} {target}");
            let rest = String::from_utf8_lossy(&connection.read_to_close()).into_owned();
            assert!(!rest.contains("content of b"), "{method} {target}: {rest}");
            // Either the next request is answered, or the connection is closed.
            assert!(rest.is_empty() || rest.ends_with("<p>home"), "{method} {target}: {rest}");
        }
    }
}

#[test]
fn an_unwanted_request_body_is_cut_off_and_not_read_for_ever() {
    let (_dir, daemon) = serve_site(&SMALL);
    for expect in ["", "Expect: 100-continue\r\n"] {
        for method in ["POST", "PUT", "GET"] {
            let mut stream = connect(&daemon.address);
            stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
            let head = format!("{method} /a.txt HTTP/1.1\r\nHost: x\r\n{expect}Content-Length: 1000000000000\r\n\r\n");
            stream.write_all(head.as_bytes()).expect("the server reads");
            let piece = vec![b'x'; 1 << 20];
            let mut sent = 0u64;
            let cut = loop {
                match stream.write(&piece) {
                    Ok(n) => sent += n as u64,
                    Err(error) => break error,
                }
                assert!(sent < 256 << 20, "{method}: {sent} bytes swallowed");
            };
            assert!(
                matches!(cut.kind(), std::io::ErrorKind::BrokenPipe | std::io::ErrorKind::ConnectionReset),
                "{method}: {cut}"
            );
        }
    }
    // A body that never arrives does not delay the response.
    let mut connection = PersistentConnection::open(&daemon.address);
    connection.send("POST /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
    assert_eq!(connection.response(false).status, 405);
    assert_served(&daemon.address);
}

// ---------------------------------------------------------------------------------------------------------------------
// Bad clients beside good ones

// Regression: one client could make the server buffer gigabytes of pipelined responses.
#[test]
fn clients_are_served_beside_hundreds_of_idle_and_stalled_connections() {
    let (_dir, daemon, _) = large_site();
    let mut connections: Vec<TcpStream> = Vec::new();
    assert_served(&daemon.address);
    let before = open_descriptors(daemon.pid());
    for i in 0..500 {
        let mut stream = connect(&daemon.address);
        let part: &[u8] = match i % 5 {
            0 => b"",
            1 => b"G",
            2 => b"GET /a.txt HTTP/1.1\r\nHost: x\r\nX-Slow: ",
            3 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n",
            _ => b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nhalf",
        };
        stream.write_all(part).expect("the server reads");
        connections.push(stream);
    }
    for target in ["/large.png", "/large.txt"] {
        for _ in 0..20 {
            let mut stream = connect(&daemon.address);
            let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
            stream.write_all(head.repeat(20).as_bytes()).expect("the server reads");
            connections.push(stream);
        }
    }
    let mut streams: Vec<Http2Client> = (0..10).map(|_| Http2Client::open_with_window(&daemon.address, 0)).collect();
    for client in &mut streams {
        for _ in 0..20 {
            client.request("GET", "/large.txt", &[]);
        }
    }
    for _ in 0..20 {
        assert_served(&daemon.address);
        let mut client = Http2Client::open(&daemon.address);
        assert_eq!(client.get("/b.txt", &[]), StreamOutcome::Response { status: 200, body: b"content of b".to_vec() });
    }
    assert!(anonymous_memory_bytes(daemon.pid()) < 256 << 20, "{} bytes", anonymous_memory_bytes(daemon.pid()));
    drop(connections);
    drop(streams);
    until("the descriptors are closed", || open_descriptors(daemon.pid()) <= before + 5);
    assert_served(&daemon.address);
}

/// The bytes in the kernel's send queue of each connection of the server, acknowledged ones excluded.
fn queued_bytes(daemon: &Daemon) -> Vec<u64> {
    let port = daemon.address.rsplit(':').next().expect("a port").parse::<u16>().expect("a number");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel lists its connections");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let established = rows.filter(|row| row[1].ends_with(&format!(":{port:04X}")) && row[3] == "01");
    established.map(|row| u64::from_str_radix(&row[4][..8], 16).expect("hex digits")).collect()
}

// Regression: a stalled client could make the kernel buffer four megabytes for it, and copying them delayed other
// clients.
#[test]
fn the_send_queue_of_a_stalled_client_stays_below_one_mebibyte() {
    const READERS: usize = 20;
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &SMALL);
    std::fs::write(root.join("large.png"), noise(24 << 20)).expect("a file can be written");
    let daemon = Daemon::serve(&root, &[]);
    let stalled: Vec<_> = (0..READERS)
        .map(|_| {
            let mut stream = connect(&daemon.address);
            stream.write_all(b"GET /large.png HTTP/1.1\r\nHost: x\r\n\r\n").expect("it is read");
            stream
        })
        .collect();
    let mut before = Vec::new();
    let mut repeats = 0;
    until("the send queues do not grow any more", || {
        let now = queued_bytes(&daemon);
        // While other tests open and close connections, the kernel's table may miss a row or list it twice.
        if now.len() == READERS && now.iter().all(|&bytes| bytes > 0) {
            repeats = if now == before { repeats + 1 } else { 0 };
            before = now;
        }
        repeats == 20
    });
    // By default, Linux queues up to 4 MiB for each connection.
    assert!(before.iter().all(|&bytes| bytes < 1 << 20), "{before:?}");
    assert_served(&daemon.address);
    drop(stalled);
}

#[test]
fn aborted_downloads_leak_no_descriptors_and_no_memory() {
    let (_dir, daemon, picture) = large_site();
    assert_served(&daemon.address);
    let before = open_descriptors(daemon.pid());
    for round in 0..4 {
        let mut downloads = Vec::new();
        for i in 0..50 {
            let mut stream = connect(&daemon.address);
            let target = ["/large.png", "/large.txt"][i % 2];
            stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("the server reads");
            downloads.push(stream);
        }
        for mut stream in downloads {
            stream.read_exact(&mut [0; 1000]).expect("the download has begun");
            if round % 2 == 0 {
                // With a linger time of zero, closing the socket sends RST.
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("an option can be set");
            }
        }
        assert_served(&daemon.address);
    }
    for _ in 0..20 {
        let mut client = Http2Client::open(&daemon.address);
        client.request("GET", "/large.png", &[]);
        assert!(client.receive());
    }
    until("the descriptors are closed", || open_descriptors(daemon.pid()) <= before + 5);
    assert!(anonymous_memory_bytes(daemon.pid()) < 256 << 20, "{} bytes", anonymous_memory_bytes(daemon.pid()));
    assert!(get(&daemon.address, "/large.png").body == picture);
}

/// A site of `pages` pages of `len` bytes. The cache of inflated files has `cache` bytes, so most requests miss it.
fn site_of_pages(pages: usize, len: usize, cache: &str) -> (Host, Daemon) {
    let host = Host::bare().set("server.identityCache", host::toml_string(cache));
    let pages = (0..pages).map(|n| deflated(&format!("p{n}.html"), &format!("{n}{}", sample_text(len))));
    let files: Vec<_> = pages.chain([deflated("index.html", "<p>home"), deflated("a.txt", "content of a")]).collect();
    host.put("bundle.zip", zip(&files));
    host.ok(&["import", host.path("bundle.zip").to_str().expect("a plain path")]);
    let daemon = host.run();
    (host, daemon)
}

// Regression: one connection that pipelined requests for large pages stopped its thread, and the accept loop, for 12 s.
#[test]
fn clients_are_served_beside_pipelined_range_requests_for_large_pages() {
    const PAGES: usize = 24;
    let (_host, daemon) = site_of_pages(PAGES, 1_900_000, "32MiB");
    let request = |n: usize, range: &str| format!("GET /p{n}.html HTTP/1.1\r\nHost: x\r\nRange: bytes={range}\r\n\r\n");
    let all: String = (0..PAGES).map(|n| request(n, "0-0") + &request(n, "1800000-1800000")).collect();
    let attacker = connect(&daemon.address);
    let mut reader = attacker.try_clone().expect("a socket can be shared");
    let answers = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // It ends when the connection is shut down.
        scope.spawn(|| while (&attacker).write_all(all.repeat(20).as_bytes()).is_ok() {});
        scope.spawn(|| {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut chunk) {
                answers.fetch_add(n, Ordering::Relaxed);
            }
        });
        until("the pipelining client gets responses", || answers.load(Ordering::Relaxed) > 1000);
        let (slowest, progress) = slowest_of_100_responses(&daemon, &answers);
        attacker.shutdown(std::net::Shutdown::Both).expect("it is open");
        assert!(slowest < Duration::from_secs(6), "{slowest:?} for one response");
        assert!(progress > 0, "the pipelining client gets responses, too");
    });
}

/// Requests a small file 100 times, each time over a new connection. Returns the longest time for one response, and by
/// how much `answers` of another client has increased meanwhile.
fn slowest_of_100_responses(daemon: &Daemon, answers: &AtomicUsize) -> (Duration, usize) {
    let before = answers.load(Ordering::Relaxed);
    let times = (0..100).map(|_| {
        let started = Instant::now();
        assert_served(&daemon.address);
        started.elapsed()
    });
    (times.max().unwrap_or_default(), answers.load(Ordering::Relaxed) - before)
}

// Regression: one HTTP/2 connection that always had requests for large pages stopped its thread, and the accept loop.
#[test]
fn clients_are_served_beside_http2_range_requests_for_large_pages() {
    const PAGES: usize = 24;
    /// Fewer than a connection may have at a time, so that none is refused.
    const MAX_PENDING: usize = 100;
    let (_host, daemon) = site_of_pages(PAGES, 1_900_000, "32MiB");
    let answers = AtomicUsize::new(0);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut client = Http2Client::open(&daemon.address);
            let mut pending = VecDeque::new();
            for n in 0.. {
                let range = ["bytes=0-0", "bytes=1800000-1800000"][n % 2];
                pending.push_back(client.request("GET", &format!("/p{}.html", n / 2 % PAGES), &[("range", range)]));
                if pending.len() == MAX_PENDING {
                    let outcome = client.wait_for_stream(pending.pop_front().expect("a stream"));
                    assert!(matches!(outcome, StreamOutcome::Response { status: 206, .. }), "{outcome:?}");
                    answers.fetch_add(1, Ordering::Relaxed);
                }
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let end_of_requests = SetOnDrop(&is_over);
        until("the HTTP/2 client gets responses", || answers.load(Ordering::Relaxed) > 10);
        let (slowest, progress) = slowest_of_100_responses(&daemon, &answers);
        drop(end_of_requests);
        assert!(slowest < Duration::from_secs(6), "{slowest:?} for one response");
        assert!(progress > 0, "the HTTP/2 client gets responses, too");
    });
}

// Regression: each response held its inflated pages without a bound when the client did not read, and the memory was
// not returned afterwards.
#[test]
fn unread_responses_stay_within_the_memory_limit_and_free_it_afterwards() {
    const MAX_HELD_BYTES: u64 = 64 << 20;
    let (_host, daemon) = site_of_pages(300, 50_000, "1MiB");
    assert_served(&daemon.address);
    let before = anonymous_memory_bytes(daemon.pid());
    let mut connections = Vec::new();
    // A window of one byte is enough to make a stream start.
    for window in [0, 1] {
        for _ in 0..15 {
            let mut client = Http2Client::open_with_window(&daemon.address, window);
            for n in 0..100 {
                client.request("GET", &format!("/p{}.html", n * 3), &[]);
            }
            connections.push(client);
        }
    }
    let mut plain: Vec<TcpStream> = Vec::new();
    for n in 0..200 {
        let stream = connect(&daemon.address);
        let head = format!("GET /p{n}.html HTTP/1.1\r\nHost: x\r\n\r\n");
        (&stream).write_all(head.repeat(50).as_bytes()).expect("the server reads");
        plain.push(stream);
    }
    for _ in 0..20 {
        assert_served(&daemon.address);
    }
    let during = anonymous_memory_bytes(daemon.pid());
    // All requested bodies together have 650 MB.
    assert!(during < before + MAX_HELD_BYTES + (48 << 20), "{before} bytes and then {during}");
    drop((connections, plain));
    until("memory is returned to the system", || anonymous_memory_bytes(daemon.pid()) < before + (16 << 20));
}

/// Connects with a receive buffer that is as small as the kernel allows.
fn connect_with_small_buffer(address: &str) -> TcpStream {
    let address: SocketAddr = address.parse().expect("an address");
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(1).expect("an option can be set");
    socket.connect(&address.into()).expect("the server accepts");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
    socket.into()
}

// Regression: each body that was inflated while it was sent took half a megabyte, nothing bounded all such bodies
// together, and the memory was not returned afterwards.
#[test]
fn stalled_clients_of_one_large_text_stay_within_held_bytes_and_free_them() {
    const READERS: usize = 400;
    // `server.heldBytes`, and the bytes that each body may hold beyond it.
    const MAX_HELD_BYTES: u64 = (8 << 20) + READERS as u64 * 4096;
    let host = Host::bare()
        .set("server.identityCache", host::toml_string("1MiB"))
        .set("server.heldBytes", host::toml_string("8MiB"))
        .set("admin.listen", host::toml_string("127.0.0.1:0"));
    let large = deflated("large.txt", &sample_text(4 << 20));
    host.put("bundle.zip", zip(&[large, deflated("index.html", "<p>home"), deflated("a.txt", "content of a")]));
    host.ok(&["import", host.path("bundle.zip").to_str().expect("a plain path")]);
    let daemon = host.run();
    let admin = host.reported_address("admin");
    let held_bytes = || metrics::value(&admin, "docwharf_answers_held_bytes");
    assert_served(&daemon.address);
    let before = anonymous_memory_bytes(daemon.pid());
    let readers: Vec<TcpStream> = (0..READERS)
        .map(|_| {
            let mut stream = connect_with_small_buffer(&daemon.address);
            stream.write_all(b"GET /large.txt HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
            stream
        })
        .collect();
    for mut reader in &readers {
        let mut start = [0; 15];
        reader.read_exact(&mut start).expect("the response has begun");
        assert_eq!(&start, b"HTTP/1.1 200 OK");
    }
    let (mut held, mut during) = (0, 0);
    for _ in 0..20 {
        assert_served(&daemon.address);
        (held, during) = (held.max(held_bytes()), during.max(anonymous_memory_bytes(daemon.pid())));
    }
    assert!((1 << 20..=MAX_HELD_BYTES).contains(&held), "{held} bytes held");
    assert!(during < before + MAX_HELD_BYTES + (16 << 20), "{before} bytes and then {during}");
    drop(readers);
    until("nothing is held", || held_bytes() == 0);
    until("memory is returned to the system", || anonymous_memory_bytes(daemon.pid()) < before + (8 << 20));
}

// Regression: two packets kept a connection open for ever: a part of the HTTP/2 preface behind a request had no
// deadline.
#[test]
fn connections_with_an_incomplete_request_are_closed_within_65_seconds() {
    let (_dir, daemon) = serve_site(&SMALL);
    let started = Instant::now();
    let starts: [&[u8]; 7] = [
        b"",
        b"G",
        b"GET /a.txt HTTP/1.1\r\nHost: x\r\nX-Slow: ",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n",
        b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\nGET /b.txt HTTP/1.1\r\nX-Slow: ",
        b"POST /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nhalf",
        // HTTP/2 cannot begin behind a request: waiting for the rest of its preface is no state without a deadline.
        b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\nPRI * HTTP/2.0\r\n",
    ];
    let silent = [0, starts.len() - 1];
    let mut slow: Vec<Option<TcpStream>> = starts
        .iter()
        .map(|start| {
            let mut stream = connect(&daemon.address);
            stream.write_all(start).expect("the server reads");
            stream.set_read_timeout(Some(Duration::from_millis(100))).expect("a time-out can be set");
            Some(stream)
        })
        .collect();
    while slow.iter().any(Option::is_some) {
        for (i, slot) in slow.iter_mut().enumerate() {
            let Some(stream) = slot else { continue };
            let mut chunk = [0; 4096];
            let ended = match stream.read(&mut chunk) {
                Ok(n) => n == 0,
                Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
            };
            // One byte every three seconds must not extend the deadline. Some clients send nothing more.
            let drip = !silent.contains(&i) && started.elapsed().as_secs().is_multiple_of(3);
            if ended || (drip && stream.write_all(b"a").is_err()) {
                *slot = None;
            }
        }
        let open: Vec<usize> = slow.iter().enumerate().filter_map(|(i, slot)| slot.as_ref().map(|_| i)).collect();
        assert!(started.elapsed() < Duration::from_secs(65) || open.is_empty(), "still open after 65 s: {open:?}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Start and end

#[test]
fn a_shutdown_lets_downloads_finish_and_exits_with_0() {
    for http2 in HTTP2_SERVERS {
        let (_dir, mut daemon, picture) = large_site_with_http2(http2);
        let mut downloads: Vec<_> = (0..3)
            .map(|_| {
                let mut stream = connect(&daemon.address);
                stream.write_all(b"GET /large.png HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
                let mut start = vec![0; 10_000];
                stream.read_exact(&mut start).expect("the download has begun");
                (stream, start)
            })
            .collect();
        let mut client = Http2Client::open_with_window(&daemon.address, 1_000_000);
        let stream = client.request("GET", "/large.png", &[]);
        assert!(client.receive());
        // These connections have no response in progress.
        let mut idle: Vec<_> = (0..50).map(|_| connect(&daemon.address)).collect();
        let mut idle_after_request = PersistentConnection::open(&daemon.address);
        idle_after_request.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(idle_after_request.response(false).status, 200);
        idle[0].write_all(b"GET /a.t").expect("the server reads");
        let mut quiet = Http2Client::open(&daemon.address);
        assert!(quiet.receive());

        daemon.signal("TERM");
        until("nothing new is accepted", || TcpStream::connect(&daemon.address).is_err());
        for (stream, start) in &mut downloads {
            stream.read_to_end(start).expect("the download is finished");
            let response = parse(start, false);
            assert!(response.body == picture);
        }
        let grant = 0x3fff_ffff_u32.to_be_bytes();
        client.send(h2::WINDOW_UPDATE, 0, 0, &grant).expect("the server reads");
        client.send(h2::WINDOW_UPDATE, 0, stream, &grant).expect("the server reads");
        assert!(
            client.wait_for_stream(stream) == StreamOutcome::Response { status: 200, body: picture },
            "the download by HTTP/2 is finished"
        );
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    }
}

#[test]
fn a_shutdown_answers_requests_on_connections_not_yet_accepted() {
    let (_dir, mut daemon, _) = large_site();
    daemon.signal("STOP");
    // More connections than one batch of the accept loop. The kernel connects them while the process is stopped.
    let mut waiting: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = connect(&daemon.address);
            stream.write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("the kernel reads");
            stream
        })
        .collect();
    daemon.signal("TERM");
    daemon.signal("CONT");
    for stream in &mut waiting {
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("an answer");
        assert_eq!(parse(&response, false).status, 200);
    }
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn an_http2_preface_after_an_http_1_request_is_refused() {
    for http2 in HTTP2_SERVERS {
        let (_dir, daemon, _) = large_site_with_http2(http2);
        let request = b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n";
        let settings = h2::frame(h2::SETTINGS, 0, 0, &[]);
        let mut answers =
            send_bytes(&daemon.address, &[request, &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat());
        let head_len = answers.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer") + 4;
        let rest = answers.split_off(head_len + "content of a".len());
        // RFC 9113, 3.3: after a request, the preface is an invalid HTTP/1.1 request.
        assert_eq!(parse(&answers, false).text(), "content of a");
        assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{:?}", String::from_utf8_lossy(&rest));
    }
}

#[test]
fn a_shutdown_with_open_connections_exits_with_0_and_cuts_only_stalled_ones() {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &SMALL);
    std::fs::write(root.join("large.png"), noise(24 << 20)).expect("a file can be written");
    let preface = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &h2::frame(h2::SETTINGS, 0, 0, &[])[..]].concat();
    let fields = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")]);
    let headers = h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, 1, &fields);
    // This client does not acknowledge the server's PING.
    let http2_request = [&preface[..], &headers].concat();
    // hyper serves a connection on which OPTIONS was received.
    let parts: [&[u8]; 8] = [
        b"",
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET",
        b"PRI * HT",
        &preface,
        &http2_request,
        b"GET /large.png HTTP/1.1\r\nHost: x\r\n\r\n",
    ];
    // The last client stalls.
    for (signal, count, cut) in [("INT", parts.len() - 1, None), ("TERM", parts.len(), Some("1 connection"))] {
        let attempt = || {
            let log = std::fs::File::create(dir.path().join(signal)).expect("a file");
            let mut command = docwharf();
            let mut daemon =
                Daemon::start(command.arg("serve").arg(&root).args(["--listen", "127.0.0.1:0"]).stderr(log));
            let mut connections: Vec<TcpStream> = Vec::new();
            for part in &parts[..count] {
                let mut stream = connect(&daemon.address);
                stream.write_all(part).expect("the server reads");
                connections.push(stream);
            }
            assert_served(&daemon.address);
            let signalled = Instant::now();
            daemon.signal(signal);
            // A connection without an open request ends at the stop. A request that arrives later is still answered,
            // and its connection does not wait for another one.
            connections[1].read_to_end(&mut Vec::new()).expect("the server closes the connection");
            let _ = connections[0].write_all(parts[1]);
            let delay = signalled.elapsed();
            let mut response = Vec::new();
            let _ = connections[0].read_to_end(&mut response);
            // The connection of the stalled reader is closed after a few seconds.
            assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{signal}");
            let log = std::fs::read_to_string(dir.path().join(signal)).expect("the log");
            let lines: Vec<&str> = log.lines().filter(|line| line.contains("after the listener closed")).collect();
            let is_expected = |line: &&str| {
                cut.is_some_and(|cut| line.ends_with(&format!(" {cut} cut 8s after the listener closed")))
            };
            assert!(lines.len() == usize::from(cut.is_some()) && lines.iter().all(is_expected), "{signal}: {lines:?}");
            (delay, response)
        };
        let is_answered = |response: &Vec<u8>| response.starts_with(b"HTTP/1.1 200 ");
        let response = response_after_stop(attempt, is_answered);
        assert!(is_answered(&response), "{signal}: {:?}", String::from_utf8_lossy(&response));
    }
}

#[test]
fn a_port_in_use_prints_one_line_and_exits_with_8() {
    let (dir, daemon) = serve_site(&SMALL);
    let root = dir.path().join("site");
    let root = root.to_str().expect("a plain path");
    let ended = run_docwharf(["serve", root, "--listen", &daemon.address]).expect(8);
    assert_eq!(ended.stdout, "");
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains(&daemon.address), "{}", ended.stderr);
    // The same if one of two addresses is in use: docwharf listens on all or on none.
    let ended = run_docwharf(["serve", root, "--listen", "127.0.0.1:0", "--listen", &daemon.address]).expect(8);
    assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{}", ended.stderr);
    assert_served(&daemon.address);
}

#[test]
fn serve_exits_with_5_for_an_invalid_bundle_and_opens_no_listener() {
    let dir = temporary_folder();
    let refused: [(&str, &[u8]); 4] = [
        ("page.zip", b"<!doctype html><title>Sign in</title>"),
        ("empty.tar", b""),
        ("error.zip", b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>"),
        ("no-page.zip", &support::zip::zip(&[support::zip::stored("a.css", "a{}")])),
    ];
    for (name, bytes) in refused {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("a file can be written");
        let ended = run_docwharf(["serve", path.to_str().expect("a plain path"), "--listen", "127.0.0.1:0"]).expect(5);
        assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{name}: {}", ended.stderr);
    }
    let missing = dir.path().join("missing.zip");
    let ended = run_docwharf(["serve", missing.to_str().expect("a plain path"), "--listen", "127.0.0.1:0"]).expect(2);
    assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{}", ended.stderr);
}

#[test]
fn serve_exits_with_2_for_invalid_options() {
    let (dir, _daemon) = serve_site(&SMALL);
    let root = dir.path().join("site");
    let root = root.to_str().expect("a plain path");
    for options in [
        &["--listen", "nonsense"][..],
        &["--listen", "127.0.0.1:99999"],
        &["--base-path", "docs"],
        &["--base-path", "//evil.example"],
        &["--base-path", "/a/../b"],
        &["--slashes", "perhaps"],
    ] {
        let ended = run_docwharf([&["serve", root], options].concat()).expect(2);
        assert_eq!(ended.stdout, "", "{options:?}");
    }
}

#[test]
fn serve_prints_each_address_once_its_listener_is_open() {
    let dir = temporary_folder();
    let root = write_site(dir.path(), &SMALL);
    let mut child = KillOnDrop(
        docwharf()
            .arg("serve")
            .arg(&root)
            .args(["--listen", "127.0.0.1:0", "--listen", "127.0.0.1:0"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("docwharf starts"),
    );
    let stdout = child.0.stdout.take().expect("stdout is piped");
    let lines: Vec<String> = BufReader::new(stdout).lines().take(2).map(|line| line.expect("a line")).collect();
    assert_ne!(lines[0], lines[1]);
    for line in lines {
        let address = line.strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')).expect("an address");
        assert_eq!(get(address, "/a.txt").text(), "content of a", "{line}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// HTTP/2

#[test]
fn small_http2_responses_overtake_a_large_one_that_arrives_completely() {
    for http2 in HTTP2_SERVERS {
        let (_dir, daemon, picture) = large_site_with_http2(http2);
        let mut client = Http2Client::open_with_window(&daemon.address, 65_535);
        let large = client.request("GET", "/large.png", &[]);
        // Now the connection's window is larger than the stream's.
        client.send(h2::WINDOW_UPDATE, 0, 0, &0x3fff_ffff_u32.to_be_bytes()).expect("the server reads");
        for _ in 0..10 {
            assert_eq!(
                client.get("/a.txt", &[]),
                StreamOutcome::Response { status: 200, body: b"content of a".to_vec() }
            );
        }
        client.send(h2::WINDOW_UPDATE, 0, large, &0x3fff_ffff_u32.to_be_bytes()).expect("the server reads");
        assert!(client.wait_for_stream(large) == StreamOutcome::Response { status: 200, body: picture });
    }
}

// Regression: HTTP/2: the server accepted whitespace at the start or end of a field value, a fragment in `:path`, an
// invalid `:authority`, and a `host` that differs from it.
#[test]
fn malformed_requests_over_http_2_are_refused() {
    for http2 in HTTP2_SERVERS {
        let (_dir, daemon) = serve_site_with_http2(http2, &SMALL);
        let (method, scheme, path, authority) =
            ((":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x"));
        let fragment = (":path", "/a.txt#b");
        let cases: &[&[(&str, &str)]] = &[
            &[method, scheme, authority],
            &[scheme, path, authority],
            &[method, path, authority],
            &[method, scheme, (":path", ""), authority],
            &[method, scheme, path, path, authority],
            &[method, method, scheme, path, authority],
            &[method, scheme, path, authority, ("X-Upper", "a")],
            &[method, scheme, path, authority, ("Host", "x")],
            &[method, scheme, authority, ("a", "b"), path],
            &[method, scheme, path, authority, (":status", "200")],
            &[method, scheme, path, authority, (":unknown", "a")],
            &[method, scheme, path, authority, ("connection", "close")],
            &[method, scheme, path, authority, ("transfer-encoding", "chunked")],
            &[method, scheme, path, authority, ("te", "gzip")],
            &[method, scheme, path, authority, ("a b", "c")],
            &[method, scheme, path, authority, ("", "c")],
            &[method, scheme, path, authority, ("a", "b\r\nc: d")],
            &[method, scheme, path, authority, ("a", "b\0c")],
            &[method, scheme, path, (":authority", "a b")],
            &[method, scheme, path, authority, ("host", "x"), ("host", "y")],
            &[(":method", "G T"), scheme, path, authority],
            &[method, scheme, (":path", "/a\u{1}b"), authority],
            &[method, scheme, path, authority, ("content-length", "x")],
            &[method, scheme, path, authority, ("content-length", "5")],
            &[method, scheme, path, authority, ("x-a", " b")],
            &[method, scheme, path, authority, ("x-a", "b\t")],
            &[method, scheme, fragment, authority],
            &[method, scheme, path, authority, ("host", "y")],
            &[method, scheme, path, (":authority", "x:port")],
            &[method, scheme, path, (":authority", "a@x")],
            &[method, scheme, path, (":authority", "x/y")],
        ];
        for fields in cases {
            let mut client = Http2Client::open(&daemon.address);
            let stream = client.send_fields(fields);
            match client.wait_for_stream(stream) {
                // hyper drops a fragment before docwharf sees the request (see docs/serving.md).
                StreamOutcome::Response { status: 200, .. } if http2 == "hyper" && fields.contains(&fragment) => {}
                StreamOutcome::Response { status, .. } => assert_eq!(status, 400, "{http2}: {fields:?}"),
                StreamOutcome::Reset(_) | StreamOutcome::ConnectionClosed(_) => {}
            }
            assert_served(&daemon.address);
        }
    }
}

// Regression: HTTP/2: trailers were not checked, and a request was accepted whose body was not as long as its
// content-length when they arrived.
#[test]
fn malformed_trailers_over_http_2_end_their_stream() {
    let (_dir, daemon) = serve_site(&SMALL);
    let request_block = |fields: &[(&str, &str)]| {
        let usual = [(":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")];
        h2::block(&[&usual[..], fields].concat())
    };
    let length = ("content-length", "5");
    for (fields, trailer, expected) in [
        (None, ("x-checksum", "abc"), None),
        (None, (":path", "/b.txt"), Some(1)),
        (None, ("X-Checksum", "abc"), Some(1)),
        (None, ("x-checksum", "abc "), Some(1)),
        (None, ("connection", "close"), Some(1)),
        (Some(length), ("x-checksum", "abc"), Some(1)),
    ] {
        // Without a window, the server sends no body before it has checked the trailers.
        let mut client = Http2Client::open_with_window(&daemon.address, 0);
        let stream = client.new_stream();
        let frames = [
            h2::frame(h2::HEADERS, h2::END_HEADERS, stream, &request_block(fields.as_slice())),
            h2::frame(h2::DATA, 0, stream, b"abcd"),
            h2::frame(h2::HEADERS, h2::END_HEADERS | h2::END_STREAM, stream, &h2::block(&[trailer])),
            h2::frame(h2::WINDOW_UPDATE, 0, stream, &100_u32.to_be_bytes()),
        ];
        client.send_bytes(&frames.concat()).expect("the server reads");
        let expected = match expected {
            None => StreamOutcome::Response { status: 200, body: b"content of a".to_vec() },
            Some(code) => StreamOutcome::Reset(code),
        };
        assert_eq!(client.wait_for_stream(stream), expected, "{fields:?} {trailer:?}");
        client.send(h2::SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).expect("the server reads");
        assert!(
            matches!(client.get("/b.txt", &[]), StreamOutcome::Response { status: 200, .. }),
            "{fields:?} {trailer:?}"
        );
    }
}

#[test]
fn an_invalid_http2_frame_closes_only_its_own_connection() {
    let (_dir, daemon) = serve_site(&SMALL);
    let head = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")]);
    let end_of_request = h2::END_STREAM | h2::END_HEADERS;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("headers on stream 0", h2::frame(h2::HEADERS, end_of_request, 0, &head)),
        ("headers on an even stream", h2::frame(h2::HEADERS, end_of_request, 2, &head)),
        ("data on an idle stream", h2::frame(h2::DATA, 0, 5, b"x")),
        ("data on stream 0", h2::frame(h2::DATA, 0, 0, b"x")),
        ("continuation without headers", h2::frame(h2::CONTINUATION, h2::END_HEADERS, 1, &head)),
        (
            "headers interrupted",
            [h2::frame(h2::HEADERS, h2::END_STREAM, 1, &head), h2::frame(h2::PING, 0, 0, &[0; 8])].concat(),
        ),
        ("a frame over the limit", h2::frame(h2::DATA, 0, 1, &vec![0; 20_000])),
        ("settings of a broken length", h2::frame(h2::SETTINGS, 0, 0, &[0; 5])),
        ("settings on a stream", h2::frame(h2::SETTINGS, 0, 1, &[])),
        ("an initial window over the limit", h2::frame(h2::SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])),
        ("a ping of a broken length", h2::frame(h2::PING, 0, 0, &[0; 7])),
        ("a window increment of 0", h2::frame(h2::WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a window over the limit", h2::frame(h2::WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())),
        ("a reset of an idle stream", h2::frame(h2::RST_STREAM, 0, 7, &[0, 0, 0, 8])),
        ("an index beyond the table", h2::frame(h2::HEADERS, end_of_request, 1, &[0xff, 0xff, 0xff, 0x7f])),
        ("an integer without an end", h2::frame(h2::HEADERS, end_of_request, 1, &[0xff; 40])),
        ("a string beyond its block", h2::frame(h2::HEADERS, end_of_request, 1, &[0x00, 0x7f, 0xff, 0xff, 0x03, b'a'])),
        ("a push by a client", h2::frame(5, h2::END_HEADERS, 1, &[0, 0, 0, 2])),
        ("padding longer than its frame", h2::frame(h2::DATA, 8, 1, &[200, 1, 2])),
    ];
    for (case, bytes) in cases {
        let mut good = Http2Client::open(&daemon.address);
        assert!(matches!(good.get("/a.txt", &[]), StreamOutcome::Response { status: 200, .. }), "{case}");
        let mut client = Http2Client::open(&daemon.address);
        let _ = client.send_bytes(&bytes);
        client.wait_for_end();
        assert!(matches!(good.get("/b.txt", &[]), StreamOutcome::Response { status: 200, .. }), "{case}");
    }
    // A connection preface that is wrong, and one without SETTINGS after it.
    for bytes in
        [&b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"]
    {
        let mut connection = PersistentConnection::open(&daemon.address);
        connection.send(bytes);
        let rest = connection.read_to_close();
        assert!(!String::from_utf8_lossy(&rest).contains("<p>home"));
    }
    assert_served(&daemon.address);
}

#[test]
fn http2_header_bombs_and_continuation_floods_are_refused() {
    let (_dir, daemon) = serve_site(&SMALL);
    let start = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")]);
    let filler = h2::block(&[("x-filler", &"a".repeat(15_000))]);
    // Each reference to the dynamic table is one byte on the wire, and counts 4 KB in the header list.
    let mut bomb = start.clone();
    bomb.push(0x40);
    bomb.extend_from_slice(&[1, b'a', 0x7f, 0xa1, 0x1e]); // a value of 4,000 bytes, added to the dynamic table
    bomb.extend_from_slice(&[b'v'; 4000]);
    bomb.extend_from_slice(&[0xbe; 10_000]);
    for (case, first, next) in [
        ("large fields", &start, Some(&filler)),
        ("empty frames", &start, Some(&Vec::new())),
        ("references", &bomb, None),
    ] {
        let mut client = Http2Client::open(&daemon.address);
        let is_bomb = next.is_none();
        let flags = h2::END_STREAM | if is_bomb { h2::END_HEADERS } else { 0 };
        client.send(h2::HEADERS, flags, 1, first).expect("the server reads");
        if let Some(next) = next {
            let frames = h2::frame(h2::CONTINUATION, 0, 1, next).repeat(64);
            let cut = (0..1000).any(|_| client.send_bytes(&frames).is_err());
            client.wait_for_end();
            if next.is_empty() {
                // The server reads and discards so few bytes after the GOAWAY, so that the GOAWAY arrives.
                assert_eq!(client.goaway(), Some(11), "ENHANCE_YOUR_CALM, {case}");
            } else {
                assert!(cut, "{case}: nearly 1 GB of fields was accepted");
            }
        } else {
            match client.wait_for_stream(1) {
                StreamOutcome::Response { status, .. } => assert!(matches!(status, 400 | 431), "{case}: {status}"),
                StreamOutcome::Reset(_) | StreamOutcome::ConnectionClosed(_) => {}
            }
        }
        assert!(
            anonymous_memory_bytes(daemon.pid()) < 256 << 20,
            "{case}: {} bytes",
            anonymous_memory_bytes(daemon.pid())
        );
        assert_served(&daemon.address);
    }
    // A header list over the limit in one well-formed block.
    let mut client = Http2Client::open(&daemon.address);
    client.send(h2::HEADERS, h2::END_STREAM, 1, &start).expect("the server reads");
    for i in 0..20 {
        let flags = if i == 19 { h2::END_HEADERS } else { 0 };
        if client.send(h2::CONTINUATION, flags, 1, &filler).is_err() {
            break;
        }
    }
    match client.wait_for_stream(1) {
        StreamOutcome::Response { status, .. } => assert_eq!(status, 431),
        StreamOutcome::Reset(_) | StreamOutcome::ConnectionClosed(_) => {}
    }
    assert_served(&daemon.address);
}

#[test]
fn an_http2_field_block_has_at_most_64_frames() {
    let (_dir, daemon) = serve_site(&SMALL);
    let start = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")]);
    // The response to HEADERS and `continuations` CONTINUATION frames, the last of which ends the block.
    let response_to = |continuations: usize| {
        let mut client = Http2Client::open(&daemon.address);
        client.send(h2::HEADERS, h2::END_STREAM, 1, &start).expect("the server reads");
        let mut frames = h2::frame(h2::CONTINUATION, 0, 1, &[]).repeat(continuations - 1);
        frames.extend(h2::frame(h2::CONTINUATION, h2::END_HEADERS, 1, &[]));
        client.send_bytes(&frames).expect("the server reads");
        client.wait_for_stream(1)
    };
    assert!(matches!(response_to(63), StreamOutcome::Response { status: 200, .. }));
    assert_eq!(response_to(64), StreamOutcome::ConnectionClosed(Some(11)), "ENHANCE_YOUR_CALM");
}

#[test]
fn clients_are_served_beside_floods_of_http2_resets_and_control_frames() {
    let (_dir, daemon, _) = large_site();
    assert_served(&daemon.address);
    let before = open_descriptors(daemon.pid());
    let head = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/large.txt"), (":authority", "x")]);
    let mut good = Http2Client::open(&daemon.address);
    for case in ["resets", "pings", "settings", "priorities", "empty data", "windows"] {
        let mut client = Http2Client::open_with_window(&daemon.address, 0);
        // Like an attacker, the client reads no response.
        client.shorten_write_timeout();
        let opened = client.new_stream();
        let post = h2::block(&[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "x")]);
        let _ = client.send_bytes(&h2::frame(h2::HEADERS, h2::END_HEADERS, opened, &post));
        for _ in 0..200 {
            let mut bytes = Vec::new();
            for _ in 0..100 {
                match case {
                    "resets" => {
                        let stream = client.new_stream();
                        bytes.extend(h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, stream, &head));
                        bytes.extend(h2::frame(h2::RST_STREAM, 0, stream, &[0, 0, 0, 8]));
                    }
                    "pings" => bytes.extend(h2::frame(h2::PING, 0, 0, &[7; 8])),
                    "settings" => bytes.extend(h2::frame(h2::SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 100])),
                    "priorities" => bytes.extend(h2::frame(2, 0, 9, &[0, 0, 0, 3, 16])),
                    "empty data" => bytes.extend(h2::frame(h2::DATA, 0, opened, &[])),
                    _ => bytes.extend(h2::frame(h2::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
                }
            }
            if !client.send_some(&bytes) {
                break;
            }
        }
        assert_served(&daemon.address);
        assert!(matches!(good.get("/b.txt", &[]), StreamOutcome::Response { status: 200, .. }), "beside {case}");
        assert!(
            anonymous_memory_bytes(daemon.pid()) < 256 << 20,
            "{case}: {} bytes",
            anonymous_memory_bytes(daemon.pid())
        );
    }
    drop(good);
    until("the descriptors are closed", || open_descriptors(daemon.pid()) <= before + 5);
}
