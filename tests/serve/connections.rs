//! What connections are promised: framing, bounds, HTTP/1.0, 1.1 and 2, many bad clients beside a good one, start and end.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use support::h2::{self, Answer, Client};
use support::host::{self, Host};
use support::http::{PersistentConnection, connect, get, parse, raw, request};
use support::zip::{deflated, zip};
use support::{Daemon, docwharf, folder, run, text, until, write_site};

/// A folder being served, and the folder.
fn site(files: &[(&str, &str)]) -> (tempfile::TempDir, Daemon) {
    let dir = folder();
    write_site(&dir.path().join("site"), files);
    let daemon = Daemon::serve(&dir.path().join("site"), &[]);
    (dir, daemon)
}

const SMALL: [(&str, &str); 3] = [("index.html", "<p>home"), ("a.txt", "content of a"), ("b.txt", "content of b")];

/// Bytes that nothing makes smaller.
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
    let dir = folder();
    let root = write_site(&dir.path().join("site"), &SMALL);
    let picture = noise(24 << 20);
    std::fs::write(root.join("large.png"), &picture).expect("a file can be written");
    std::fs::write(root.join("large.txt"), "The same line again and again.\n".repeat(700_000))
        .expect("a file can be written");
    let daemon = Daemon::serve(&root, &[]);
    (dir, daemon, picture)
}

/// Fails unless the site answers a new connection.
#[track_caller]
fn is_served(address: &str) {
    let begun = Instant::now();
    assert_eq!(get(address, "/a.txt").text(), "content of a");
    assert!(begun.elapsed() < Duration::from_secs(20), "served after {:?}", begun.elapsed());
}

/// How many responses there are in these bytes.
fn responses(bytes: &[u8]) -> usize {
    bytes.windows(9).filter(|w| w.starts_with(b"HTTP/1.") && w[8] == b' ').count()
}

// ---------------------------------------------------------------------------------------------------------------------
// Connections

#[test]
fn a_connection_is_kept_and_what_is_sent_ahead_is_answered_in_order() {
    let (_dir, daemon) = site(&SMALL);
    let one = |method: &str, target: &str| format!("{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut connection = PersistentConnection::open(&daemon.address);
    for _ in 0..3 {
        connection.send(one("GET", "/a.txt"));
        assert_eq!(connection.response(false).text(), "content of a");
    }
    // HEAD, 304, 204, 404, 405 and 206 leave no byte behind that could be taken for the next answer.
    let asked = [
        ("GET", "/a.txt", 200, "content of a"),
        ("HEAD", "/a.txt", 200, ""),
        ("OPTIONS", "/", 204, ""),
        ("GET", "/missing.js", 404, "404: no such file\n"),
        ("GET", "/b.txt", 200, "content of b"),
        ("POST", "/b.txt", 405, "405: method not allowed\n"),
        ("GET", "/%00", 400, "400: bad request\n"),
        ("GET", "/", 200, "<p>home"),
    ];
    let all: String = asked.iter().map(|(method, target, _, _)| one(method, target)).collect();
    connection.send(&all);
    for (method, target, status, body) in asked {
        let answer = connection.response(method == "HEAD");
        assert_eq!((answer.status, answer.text().as_str()), (status, body), "{method} {target}");
    }
    let tag = get(&daemon.address, "/a.txt").header("etag").expect("a tag").to_owned();
    let cases = [
        (format!("If-None-Match: {tag}"), 304),
        ("If-Match: \"x\"".into(), 412),
        ("Range: bytes=1-2".into(), 206),
        ("Range: bytes=99-".into(), 416),
    ];
    for (field, status) in cases {
        connection.send(format!("GET /a.txt HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n{}", one("GET", "/b.txt")));
        assert_eq!(connection.response(false).status, status, "{field}");
        assert_eq!(connection.response(false).text(), "content of b", "behind {field}");
    }
    // Hundreds at once, byte by byte as well.
    connection.send(one("GET", "/a.txt").repeat(300));
    for _ in 0..300 {
        assert_eq!(connection.response(false).text(), "content of a");
    }
    for byte in one("GET", "/b.txt").bytes() {
        connection.send([byte]);
    }
    assert_eq!(connection.response(false).text(), "content of b");
    // Empty lines between requests are skipped (RFC 9112, 2.2).
    connection.send(format!("\r\n\r\n{}", one("GET", "/a.txt")));
    assert_eq!(connection.response(false).text(), "content of a");
}

#[test]
fn a_whole_request_is_answered_while_the_next_is_still_arriving() {
    let (_dir, daemon) = site(&SMALL);
    let mut connection = PersistentConnection::open(&daemon.address);
    connection.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\nGET /b.txt HT");
    assert_eq!(connection.response(false).text(), "content of a");
    connection.send("TP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(connection.response(false).text(), "content of b");
}

#[test]
fn a_connection_is_closed_when_the_client_says_so() {
    let (_dir, daemon) = site(&SMALL);
    for bytes in [
        "GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: Close, foo\r\n\r\n",
        "GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /b.txt HTTP/1.1\r\nHost: x\r\n\r\n",
        "GET /a.txt HTTP/1.0\r\n\r\n",
        "GET /a.txt HTTP/1.0\r\nConnection: close\r\n\r\n",
    ] {
        let mut connection = PersistentConnection::open(&daemon.address);
        connection.send(bytes);
        let rest = connection.rest();
        assert_eq!(responses(&rest), 1, "{bytes:?}");
        assert_eq!(parse(&rest, false).text(), "content of a", "{bytes:?}");
    }
    // A client that has said everything and only listens gets its answer.
    let mut connection = PersistentConnection::open(&daemon.address);
    connection.send("GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    connection.stream.shutdown(std::net::Shutdown::Write).expect("one side can be closed");
    assert_eq!(parse(&connection.rest(), false).text(), "content of a");
}

#[test]
fn http_1_0_gets_whole_bodies_with_their_length() {
    let (_dir, daemon, picture) = large_site();
    for target in ["/a.txt", "/large.png", "/large.txt", "/missing", "/missing.js"] {
        for field in ["", "Accept-Encoding: gzip\r\n", "Host: x\r\n", "TE: chunked\r\n"] {
            let mut connection = PersistentConnection::open(&daemon.address);
            connection.send(format!("GET {target} HTTP/1.0\r\n{field}\r\n"));
            let answer = parse(&connection.rest(), false);
            assert!(answer.header("transfer-encoding").is_none(), "{target} {field}");
            assert!(answer.header("content-length").is_some(), "{target} {field}");
            assert!(matches!(answer.status, 200 | 404), "{target} {field}");
            if target == "/large.png" {
                assert!(answer.body == picture);
            }
        }
    }
    // Kept only when asked for.
    let mut connection = PersistentConnection::open(&daemon.address);
    for _ in 0..2 {
        connection.send("GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        assert_eq!(connection.response(false).text(), "content of a");
    }
}

#[test]
fn the_absolute_form_is_the_same_address() {
    let (_dir, daemon) = site(&SMALL);
    for target in [
        "http://x/a.txt",
        "http://127.0.0.1:1/a.txt",
        "HTTP://x/a.txt?q",
        "https://other.example/a.txt",
        "http://x:80/%61.txt",
        "http://[::1]:8/a.txt",
    ] {
        let answer = request(&daemon.address, "GET", target, &[]);
        assert_eq!((answer.status, answer.text().as_str()), (200, "content of a"), "{target}");
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
fn upgrades_and_expectations_are_no_reason_not_to_answer() {
    let (_dir, daemon) = site(&SMALL);
    for fields in [
        &["Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"][..],
        &["Upgrade: websocket", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"],
        &["Expect: 100-continue"],
        &["TE: trailers"],
    ] {
        let answer = request(&daemon.address, "GET", "/a.txt", fields);
        assert_eq!((answer.status, answer.text().as_str()), (200, "content of a"), "{fields:?}");
    }
}

#[test]
fn every_answer_has_one_date_also_where_nobody_understood_the_question() {
    let (_dir, daemon) = site(&SMALL);
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
        let what = bytes[..bytes.len().min(60)].to_owned();
        let mut connection = PersistentConnection::open(&daemon.address);
        connection.send(bytes);
        let answer = parse(&connection.rest(), status == 304 || what.starts_with("HEAD"));
        assert_eq!(answer.status, status, "{what:?}");
        let date = answer.header("date").unwrap_or_else(|| panic!("no date: {what:?}"));
        let date = httpdate::parse_http_date(date).unwrap_or_else(|_| panic!("{date:?}: {what:?}"));
        let age = std::time::SystemTime::now().duration_since(date).unwrap_or_default();
        assert!(age < Duration::from_secs(30), "{what:?}: {age:?}");
        assert!(answer.header("server").is_none_or(|server| !server.contains(env!("CARGO_PKG_VERSION"))), "{what:?}");
    }
}

#[test]
fn empty_lines_before_a_request_and_bare_line_feeds_are_understood() {
    let (_dir, daemon) = site(&SMALL);
    // RFC 9112, 2.2: the one should, the other may.
    for bytes in [
        "\r\n\r\nGET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "GET /a.txt HTTP/1.1\nHost: x\nConnection: close\n\n",
    ] {
        let mut connection = PersistentConnection::open(&daemon.address);
        connection.send(bytes);
        assert_eq!(parse(&connection.rest(), false).text(), "content of a", "{bytes:?}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// What is refused

/// Sends these bytes and one more request; the first must be refused with one of these statuses, and the second, which
/// could be anything by then, must not be answered.
#[track_caller]
fn refused(address: &str, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let bytes = bytes.as_ref();
    let what = String::from_utf8_lossy(&bytes[..bytes.len().min(120)]).into_owned();
    let mut connection = PersistentConnection::open(address);
    connection.send(bytes);
    connection.send("GET /b.txt HTTP/1.1\r\nHost: x\r\n\r\n");
    let rest = connection.rest();
    assert!(!rest.is_empty(), "closed without a word: {what:?}");
    assert_eq!(responses(&rest), 1, "{what:?}: {:?}", String::from_utf8_lossy(&rest));
    let status = parse(&rest, false).status;
    assert!(statuses.contains(&status), "{status}, not {statuses:?}: {what:?}");
    assert!(!rest.windows(12).any(|w| w == b"content of b"), "{what:?}");
}

#[test]
fn exactly_one_good_host_is_wanted() {
    let (_dir, daemon) = site(&SMALL);
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
            assert_eq!(parse(&connection.rest(), method == "HEAD").status, 400, "{method} {fields:?}");
        }
    }
    refused(address, "GET http://x/a.txt HTTP/1.1\r\n\r\n", &[400]);
    refused(address, "GET /a.txt HTTP/1.0\r\nHost: a b\r\n\r\n", &[400]);
    for host in ["x", "x:80", "docs.example", "127.0.0.1:8080", "[::1]", "[::1]:8080", "a-b_c.example", "x."] {
        let mut connection = PersistentConnection::open(address);
        connection.send(format!("GET /a.txt HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(connection.response(false).status, 200, "{host}");
    }
}

#[test]
fn transfer_encoding_is_refused_and_the_connection_closed() {
    let (_dir, daemon) = site(&SMALL);
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
            refused(&daemon.address, format!("{method} /a.txt HTTP/1.1\r\nHost: x\r\n{fields}\r\n{body}"), &[400]);
        }
    }
    refused(&daemon.address, "GET /a.txt HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &[400]);
}

#[test]
fn what_is_no_http_is_refused_with_a_status() {
    let (_dir, daemon) = site(&SMALL);
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
        refused(&daemon.address, bytes, &[400]);
    }
    is_served(&daemon.address);
}

#[test]
fn targets_and_headers_are_bounded() {
    let (_dir, daemon) = site(&SMALL);
    let address = &daemon.address;
    for len in [66_000, 70_000] {
        refused(address, format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(len)), &[414]);
        refused(address, format!("GET /?{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(len)), &[414]);
    }
    for len in [1 << 20, 8 << 20] {
        refused(address, format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(len)), &[414, 431]);
    }
    for len in [140_000, 1 << 20, 8 << 20] {
        refused(address, format!("GET / HTTP/1.1\r\nHost: x\r\nCookie: {}\r\n\r\n", "a".repeat(len)), &[431]);
        refused(address, format!("GET / HTTP/1.1\r\nHost: x\r\n{}: a\r\n\r\n", "a".repeat(len)), &[431]);
    }
    for count in [1000, 20_000, 1_000_000] {
        refused(address, format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "a: b\r\n".repeat(count)), &[431]);
    }
    // What browsers do send is no problem.
    for len in [2000, 7000] {
        assert_eq!(get(address, &format!("/a.txt?{}", "a".repeat(len))).status, 200);
        assert_eq!(request(address, "GET", "/a.txt", &[&format!("Cookie: {}", "a".repeat(len))]).status, 200);
    }
    let fields = vec!["X-Field: value"; 60];
    assert_eq!(request(address, "GET", "/a.txt", &fields).status, 200);
}

#[test]
fn a_body_is_never_taken_for_a_request() {
    let (_dir, daemon) = site(&SMALL);
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
            let rest = String::from_utf8_lossy(&connection.rest()).into_owned();
            assert!(!rest.contains("content of b"), "{method} {target}: {rest}");
            // Either the next request is answered, or the connection is closed.
            assert!(rest.is_empty() || rest.ends_with("<p>home"), "{method} {target}: {rest}");
        }
    }
}

#[test]
fn a_refused_body_is_not_swallowed_for_ever() {
    let (_dir, daemon) = site(&SMALL);
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
    // A body that never comes does not hold up the answer.
    let mut connection = PersistentConnection::open(&daemon.address);
    connection.send("POST /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n");
    assert_eq!(connection.response(false).status, 405);
    is_served(&daemon.address);
}

// ---------------------------------------------------------------------------------------------------------------------
// Bad company

fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the process lives").count()
}

/// Resident memory in bytes.
fn resident(daemon: &Daemon) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("the process lives");
    // What is mapped from the sealed file is the page cache's, not ours.
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("Linux tells");
    line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
}

#[test]
fn others_are_served_beside_hundreds_of_idle_half_sent_and_stalled_connections() {
    let (_dir, daemon, _) = large_site();
    let mut company: Vec<TcpStream> = Vec::new();
    is_served(&daemon.address);
    let before = descriptors(&daemon);
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
        company.push(stream);
    }
    for target in ["/large.png", "/large.txt"] {
        for _ in 0..20 {
            let mut stream = connect(&daemon.address);
            let head = format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
            stream.write_all(head.repeat(20).as_bytes()).expect("the server reads");
            company.push(stream);
        }
    }
    let mut streams: Vec<Client> = (0..10).map(|_| Client::open_with_window(&daemon.address, 0)).collect();
    for client in &mut streams {
        for _ in 0..20 {
            client.request("GET", "/large.txt", &[]);
        }
    }
    for _ in 0..20 {
        is_served(&daemon.address);
        let mut client = Client::open(&daemon.address);
        assert_eq!(client.get("/b.txt", &[]), Answer::Response { status: 200, body: b"content of b".to_vec() });
    }
    assert!(resident(&daemon) < 256 << 20, "{} bytes", resident(&daemon));
    drop(company);
    drop(streams);
    until("the descriptors come back", || descriptors(&daemon) <= before + 5);
    is_served(&daemon.address);
}

/// What the kernel holds for each of a server's connections, sent or not, in bytes.
fn queued(daemon: &Daemon) -> Vec<u64> {
    let port = daemon.address.rsplit(':').next().expect("a port").parse::<u16>().expect("a number");
    let table = std::fs::read_to_string("/proc/net/tcp").expect("the kernel lists its connections");
    let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = rows.filter(|row| row[1].ends_with(&format!(":{port:04X}")) && row[3] == "01");
    ours.map(|row| u64::from_str_radix(&row[4][..8], 16).expect("hex digits")).collect()
}

#[test]
fn a_reader_who_stalls_costs_the_kernel_no_megabytes() {
    const READERS: usize = 20;
    let dir = folder();
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
    let mut same = 0;
    until("the server has sent all it will", || {
        let now = queued(&daemon);
        // While other tests open and close connections, the kernel's table may miss a row or give it twice.
        if now.len() == READERS && now.iter().all(|&bytes| bytes > 0) {
            same = if now == before { same + 1 } else { 0 };
            before = now;
        }
        same == 20
    });
    // Linux alone would take up to 4 MiB for each.
    assert!(before.iter().all(|&bytes| bytes < 1 << 20), "{before:?}");
    is_served(&daemon.address);
    drop(stalled);
}

#[test]
fn downloads_that_are_broken_off_leave_nothing_behind() {
    let (_dir, daemon, picture) = large_site();
    is_served(&daemon.address);
    let before = descriptors(&daemon);
    for round in 0..4 {
        let mut storm = Vec::new();
        for i in 0..50 {
            let mut stream = connect(&daemon.address);
            let target = ["/large.png", "/large.txt"][i % 2];
            stream.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).expect("the server reads");
            storm.push(stream);
        }
        for mut stream in storm {
            stream.read_exact(&mut [0; 1000]).expect("the download has begun");
            if round % 2 == 0 {
                // Gone without goodbye: what is dropped now is reset.
                socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("an option can be set");
            }
        }
        is_served(&daemon.address);
    }
    for _ in 0..20 {
        let mut client = Client::open(&daemon.address);
        client.request("GET", "/large.png", &[]);
        assert!(client.receive());
    }
    until("the descriptors come back", || descriptors(&daemon) <= before + 5);
    assert!(resident(&daemon) < 256 << 20, "{} bytes", resident(&daemon));
    assert!(get(&daemon.address, "/large.png").body == picture);
}

/// So many pages of this length, of which `cache` bytes are kept: they have to be inflated again and again.
fn site_of_pages(pages: usize, len: usize, cache: &str) -> (Host, Daemon) {
    let host = Host::bare().set("server.identityCache", host::text(cache));
    let pages = (0..pages).map(|n| deflated(&format!("p{n}.html"), &format!("{n}{}", text(len))));
    let files: Vec<_> = pages.chain([deflated("index.html", "<p>home"), deflated("a.txt", "content of a")]).collect();
    host.put("bundle.zip", zip(&files));
    host.ok(&["import", host.path("bundle.zip").to_str().expect("a plain path")]);
    let daemon = host.run();
    (host, daemon)
}

#[test]
fn others_are_answered_beside_a_connection_that_pipelines_for_the_ends_of_large_pages() {
    const PAGES: usize = 24;
    let (_host, daemon) = site_of_pages(PAGES, 1_900_000, "32MiB");
    let ask = |n: usize, range: &str| format!("GET /p{n}.html HTTP/1.1\r\nHost: x\r\nRange: bytes={range}\r\n\r\n");
    let all: String = (0..PAGES).map(|n| ask(n, "0-0") + &ask(n, "1800000-1800000")).collect();
    let attacker = connect(&daemon.address);
    let mut reader = attacker.try_clone().expect("a socket can be shared");
    let answers = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        // It ends when the connection is shut down.
        scope.spawn(|| while (&attacker).write_all(all.repeat(20).as_bytes()).is_ok() {});
        scope.spawn(|| {
            let mut chunk = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut chunk) {
                answers.fetch_add(n, std::sync::atomic::Ordering::Relaxed);
            }
        });
        until("it is answered", || answers.load(std::sync::atomic::Ordering::Relaxed) > 1000);
        let before = answers.load(std::sync::atomic::Ordering::Relaxed);
        let slowest = (0..100).map(|_| {
            let begun = Instant::now();
            is_served(&daemon.address);
            begun.elapsed()
        });
        let slowest = slowest.max();
        let after = answers.load(std::sync::atomic::Ordering::Relaxed);
        attacker.shutdown(std::net::Shutdown::Both).expect("it is open");
        assert!(slowest < Some(Duration::from_secs(2)), "{slowest:?} for one answer");
        assert!(after > before, "it is answered all the while");
    });
}

#[test]
fn answers_that_nobody_takes_hold_no_more_memory_than_they_may_and_give_it_back() {
    const MOST: usize = 64 << 20;
    let (_host, daemon) = site_of_pages(300, 50_000, "1MiB");
    is_served(&daemon.address);
    let before = resident(&daemon);
    let mut company = Vec::new();
    // One byte is taken of each: enough to make them begin.
    for window in [0, 1] {
        for _ in 0..15 {
            let mut client = Client::open_with_window(&daemon.address, window);
            for n in 0..100 {
                client.request("GET", &format!("/p{}.html", n * 3), &[]);
            }
            company.push(client);
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
        is_served(&daemon.address);
    }
    let held = resident(&daemon);
    // All that was asked for is 650 MB.
    assert!(held < before + MOST + (48 << 20), "{before} bytes and then {held}");
    drop((company, plain));
    until("memory goes back to the system", || resident(&daemon) < before + (16 << 20));
}

#[test]
fn a_head_that_does_not_end_is_cut_within_65_seconds() {
    let (_dir, daemon) = site(&SMALL);
    let begun = Instant::now();
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
        for (i, place) in slow.iter_mut().enumerate() {
            let Some(stream) = place else { continue };
            let mut chunk = [0; 4096];
            let ended = match stream.read(&mut chunk) {
                Ok(n) => n == 0,
                Err(error) => !matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut),
            };
            // A byte now and then, which must not buy more time; some say nothing more at all.
            let drip = !silent.contains(&i) && begun.elapsed().as_secs().is_multiple_of(3);
            if ended || (drip && stream.write_all(b"a").is_err()) {
                *place = None;
            }
        }
        let open: Vec<usize> = slow.iter().enumerate().filter_map(|(i, place)| place.as_ref().map(|_| i)).collect();
        assert!(begun.elapsed() < Duration::from_secs(65) || open.is_empty(), "still open after 65 s: {open:?}");
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// Start and end

#[test]
fn a_stop_lets_a_download_finish_and_ends_with_0() {
    let (_dir, mut daemon, picture) = large_site();
    let mut downloads: Vec<_> = (0..3)
        .map(|_| {
            let mut stream = connect(&daemon.address);
            stream.write_all(b"GET /large.png HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
            let mut begun = vec![0; 10_000];
            stream.read_exact(&mut begun).expect("the download has begun");
            (stream, begun)
        })
        .collect();
    let mut client = Client::open_with_window(&daemon.address, 1_000_000);
    let stream = client.request("GET", "/large.png", &[]);
    assert!(client.receive());
    // These have nothing to finish.
    let mut idle: Vec<_> = (0..50).map(|_| connect(&daemon.address)).collect();
    let mut kept = PersistentConnection::open(&daemon.address);
    kept.send("GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(kept.response(false).status, 200);
    idle[0].write_all(b"GET /a.t").expect("the server reads");
    let mut quiet = Client::open(&daemon.address);
    assert!(quiet.receive());

    daemon.signal("TERM");
    until("nothing new is accepted", || TcpStream::connect(&daemon.address).is_err());
    for (stream, begun) in &mut downloads {
        stream.read_to_end(begun).expect("the download is finished");
        let answer = parse(begun, false);
        assert!(answer.body == picture);
    }
    let grant = 0x3fff_ffff_u32.to_be_bytes();
    client.send(h2::WINDOW_UPDATE, 0, 0, &grant).expect("the server reads");
    client.send(h2::WINDOW_UPDATE, 0, stream, &grant).expect("the server reads");
    assert!(
        client.answer(stream) == Answer::Response { status: 200, body: picture },
        "the download by HTTP/2 is finished"
    );
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn what_was_asked_before_a_stop_is_answered_though_it_was_not_accepted_yet() {
    let (_dir, mut daemon, _) = large_site();
    daemon.signal("STOP");
    // More than are accepted without a look at anything else. They are connected by the kernel.
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
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert_eq!(parse(&answer, false).status, 200);
    }
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn http_2_begins_with_the_first_bytes_of_a_connection_or_not_at_all() {
    let (_dir, daemon, _) = large_site();
    let question = b"GET /a.txt HTTP/1.1\r\nHost: x\r\n\r\n";
    let settings = h2::frame(h2::SETTINGS, 0, 0, &[]);
    let mut answers = raw(&daemon.address, &[question, &b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings].concat());
    let at = answers.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer") + 4;
    let rest = answers.split_off(at + "content of a".len());
    // RFC 9113, 3.3: what follows is a request of HTTP/1.1 that is none.
    assert_eq!(parse(&answers, false).text(), "content of a");
    assert!(rest.is_empty() || rest.starts_with(b"HTTP/1.1 4"), "{:?}", String::from_utf8_lossy(&rest));
}

#[test]
fn a_stop_ends_with_0_whoever_is_connected() {
    let (nothing, kept): (&[u8], &[u8]) = (b"", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    let stalled: &[u8] = b"GET /large.png HTTP/1.1\r\nHost: x\r\n\r\n";
    for (signal, parts) in [("INT", &[nothing, kept][..]), ("TERM", &[nothing, kept, b"GET", b"PRI * HT", stalled])] {
        let (_dir, mut daemon, _) = large_site();
        let mut company: Vec<TcpStream> = Vec::new();
        for part in parts {
            let mut stream = connect(&daemon.address);
            stream.write_all(part).expect("the server reads");
            company.push(stream);
        }
        is_served(&daemon.address);
        daemon.signal(signal);
        // The stalled reader is given up after a few seconds.
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0), "{signal}");
    }
}

#[test]
fn a_port_in_use_is_one_line_and_8() {
    let (dir, daemon) = site(&SMALL);
    let root = dir.path().join("site");
    let root = root.to_str().expect("a plain path");
    let ended = run(["serve", root, "--listen", &daemon.address]).expect(8);
    assert_eq!(ended.stdout, "");
    assert_eq!(ended.stderr.lines().count(), 1, "{}", ended.stderr);
    assert!(ended.stderr.contains(&daemon.address), "{}", ended.stderr);
    // One of two is as bad: it listens on every address, or on none.
    let ended = run(["serve", root, "--listen", "127.0.0.1:0", "--listen", &daemon.address]).expect(8);
    assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{}", ended.stderr);
    is_served(&daemon.address);
}

#[test]
fn a_refused_bundle_is_5_and_nothing_listens() {
    let dir = folder();
    let refused: [(&str, &[u8]); 4] = [
        ("page.zip", b"<!doctype html><title>Sign in</title>"),
        ("empty.tar", b""),
        ("error.zip", b"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>"),
        ("no-page.zip", &support::zip::zip(&[support::zip::stored("a.css", "a{}")])),
    ];
    for (name, bytes) in refused {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).expect("a file can be written");
        let ended = run(["serve", path.to_str().expect("a plain path"), "--listen", "127.0.0.1:0"]).expect(5);
        assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{name}: {}", ended.stderr);
    }
    let missing = dir.path().join("missing.zip");
    let ended = run(["serve", missing.to_str().expect("a plain path"), "--listen", "127.0.0.1:0"]).expect(2);
    assert_eq!((ended.stdout.as_str(), ended.stderr.lines().count()), ("", 1), "{}", ended.stderr);
}

#[test]
fn wrong_words_are_2_before_anything_is_read() {
    let (dir, _daemon) = site(&SMALL);
    let root = dir.path().join("site");
    let root = root.to_str().expect("a plain path");
    for more in [
        &["--listen", "nonsense"][..],
        &["--listen", "127.0.0.1:99999"],
        &["--base-path", "docs"],
        &["--base-path", "//evil.example"],
        &["--base-path", "/a/../b"],
        &["--slashes", "perhaps"],
    ] {
        let ended = run([&["serve", root], more].concat()).expect(2);
        assert_eq!(ended.stdout, "", "{more:?}");
    }
}

#[test]
fn every_address_is_announced_once_it_answers() {
    let dir = folder();
    let root = write_site(dir.path(), &SMALL);
    let mut child = Ending(
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

/// A process that is killed when the test ends.
struct Ending(std::process::Child);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// HTTP/2

#[test]
fn a_large_body_comes_whole_over_http_2_and_small_ones_overtake_it() {
    let (_dir, daemon, picture) = large_site();
    let mut client = Client::open_with_window(&daemon.address, 65_535);
    let large = client.request("GET", "/large.png", &[]);
    // The connection's own window is larger than the stream's is now.
    client.send(h2::WINDOW_UPDATE, 0, 0, &0x3fff_ffff_u32.to_be_bytes()).expect("the server reads");
    for _ in 0..10 {
        assert_eq!(client.get("/a.txt", &[]), Answer::Response { status: 200, body: b"content of a".to_vec() });
    }
    client.send(h2::WINDOW_UPDATE, 0, large, &0x3fff_ffff_u32.to_be_bytes()).expect("the server reads");
    assert!(client.answer(large) == Answer::Response { status: 200, body: picture });
}

#[test]
fn malformed_requests_over_http_2_are_refused() {
    let (_dir, daemon) = site(&SMALL);
    let (method, scheme, path, authority) =
        ((":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x"));
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
        &[method, scheme, (":path", "/a.txt#b"), authority],
        &[method, scheme, path, authority, ("host", "y")],
        &[method, scheme, path, (":authority", "x:port")],
        &[method, scheme, path, (":authority", "a@x")],
        &[method, scheme, path, (":authority", "x/y")],
    ];
    for fields in cases {
        let mut client = Client::open(&daemon.address);
        let stream = client.ask(fields);
        match client.answer(stream) {
            Answer::Response { status, .. } => assert_eq!(status, 400, "{fields:?}"),
            Answer::Reset(_) | Answer::Ended(_) => {}
        }
        is_served(&daemon.address);
    }
}

#[test]
fn malformed_trailers_over_http_2_end_their_stream() {
    let (_dir, daemon) = site(&SMALL);
    let asked = |more: &[(&str, &str)]| {
        let usual = [(":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")];
        h2::block(&[&usual[..], more].concat())
    };
    let long = ("content-length", "5");
    for (more, trailer, expected) in [
        (None, ("x-checksum", "abc"), None),
        (None, (":path", "/b.txt"), Some(1)),
        (None, ("X-Checksum", "abc"), Some(1)),
        (None, ("x-checksum", "abc "), Some(1)),
        (None, ("connection", "close"), Some(1)),
        (Some(long), ("x-checksum", "abc"), Some(1)),
    ] {
        // Its window lets nothing through before the trailers have been looked at.
        let mut client = Client::open_with_window(&daemon.address, 0);
        let stream = client.stream();
        let frames = [
            h2::frame(h2::HEADERS, h2::END_HEADERS, stream, &asked(more.as_slice())),
            h2::frame(h2::DATA, 0, stream, b"abcd"),
            h2::frame(h2::HEADERS, h2::END_HEADERS | h2::END_STREAM, stream, &h2::block(&[trailer])),
            h2::frame(h2::WINDOW_UPDATE, 0, stream, &100_u32.to_be_bytes()),
        ];
        client.send_bytes(&frames.concat()).expect("the server reads");
        let expected = match expected {
            None => Answer::Response { status: 200, body: b"content of a".to_vec() },
            Some(code) => Answer::Reset(code),
        };
        assert_eq!(client.answer(stream), expected, "{more:?} {trailer:?}");
        client.send(h2::SETTINGS, 0, 0, &[0, 4, 0, 0, 0xff, 0xff]).expect("the server reads");
        assert!(matches!(client.get("/b.txt", &[]), Answer::Response { status: 200, .. }), "{more:?} {trailer:?}");
    }
}

#[test]
fn frames_that_break_the_rules_end_their_connection_only() {
    let (_dir, daemon) = site(&SMALL);
    let head = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")]);
    let whole = h2::END_STREAM | h2::END_HEADERS;
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("headers on stream 0", h2::frame(h2::HEADERS, whole, 0, &head)),
        ("headers on an even stream", h2::frame(h2::HEADERS, whole, 2, &head)),
        ("data on an idle stream", h2::frame(h2::DATA, 0, 5, b"x")),
        ("data on stream 0", h2::frame(h2::DATA, 0, 0, b"x")),
        ("continuation of nothing", h2::frame(h2::CONTINUATION, h2::END_HEADERS, 1, &head)),
        (
            "headers interrupted",
            [h2::frame(h2::HEADERS, h2::END_STREAM, 1, &head), h2::frame(h2::PING, 0, 0, &[0; 8])].concat(),
        ),
        ("a frame over the limit", h2::frame(h2::DATA, 0, 1, &vec![0; 20_000])),
        ("settings of a broken length", h2::frame(h2::SETTINGS, 0, 0, &[0; 5])),
        ("settings on a stream", h2::frame(h2::SETTINGS, 0, 1, &[])),
        ("an initial window over the limit", h2::frame(h2::SETTINGS, 0, 0, &[0, 4, 0xff, 0xff, 0xff, 0xff])),
        ("a ping of a broken length", h2::frame(h2::PING, 0, 0, &[0; 7])),
        ("a window of nothing more", h2::frame(h2::WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("a window over the limit", h2::frame(h2::WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes())),
        ("a reset of an idle stream", h2::frame(h2::RST_STREAM, 0, 7, &[0, 0, 0, 8])),
        ("an index beyond the table", h2::frame(h2::HEADERS, whole, 1, &[0xff, 0xff, 0xff, 0x7f])),
        ("an integer without an end", h2::frame(h2::HEADERS, whole, 1, &[0xff; 40])),
        ("a string beyond its block", h2::frame(h2::HEADERS, whole, 1, &[0x00, 0x7f, 0xff, 0xff, 0x03, b'a'])),
        ("a push by a client", h2::frame(5, h2::END_HEADERS, 1, &[0, 0, 0, 2])),
        ("padding longer than its frame", h2::frame(h2::DATA, 8, 1, &[200, 1, 2])),
    ];
    for (what, bytes) in cases {
        let mut good = Client::open(&daemon.address);
        assert!(matches!(good.get("/a.txt", &[]), Answer::Response { status: 200, .. }), "{what}");
        let mut client = Client::open(&daemon.address);
        let _ = client.send_bytes(&bytes);
        client.end();
        assert!(matches!(good.get("/b.txt", &[]), Answer::Response { status: 200, .. }), "{what}");
    }
    // A preface that turns into something else.
    for bytes in
        [&b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n\r\n"]
    {
        let mut connection = PersistentConnection::open(&daemon.address);
        connection.send(bytes);
        let rest = connection.rest();
        assert!(!String::from_utf8_lossy(&rest).contains("<p>home"));
    }
    is_served(&daemon.address);
}

#[test]
fn header_bombs_and_floods_of_continuations_are_cut() {
    let (_dir, daemon) = site(&SMALL);
    let start = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")]);
    let filler = h2::block(&[("x-filler", &"a".repeat(15_000))]);
    // Each reference to the table costs one byte and counts 4 KB.
    let mut bomb = start.clone();
    bomb.push(0x40);
    bomb.extend_from_slice(&[1, b'a', 0x7f, 0xa1, 0x1e]); // a value of 4,000 bytes, kept in the table
    bomb.extend_from_slice(&[b'v'; 4000]);
    bomb.extend_from_slice(&[0xbe; 10_000]);
    for (what, first, next) in [
        ("large fields", &start, Some(&filler)),
        ("empty frames", &start, Some(&Vec::new())),
        ("references", &bomb, None),
    ] {
        let mut client = Client::open(&daemon.address);
        let is_bomb = next.is_none();
        let flags = h2::END_STREAM | if is_bomb { h2::END_HEADERS } else { 0 };
        client.send(h2::HEADERS, flags, 1, first).expect("the server reads");
        if let Some(next) = next {
            let frames = h2::frame(h2::CONTINUATION, 0, 1, next).repeat(64);
            let cut = (0..1000).any(|_| client.send_bytes(&frames).is_err());
            client.end();
            if next.is_empty() {
                // So few bytes are read and thrown away behind the GOAWAY, so that it arrives.
                assert_eq!(client.goaway(), Some(11), "ENHANCE_YOUR_CALM, {what}");
            } else {
                assert!(cut, "{what}: nearly 1 GB of fields was taken");
            }
        } else {
            match client.answer(1) {
                Answer::Response { status, .. } => assert!(matches!(status, 400 | 431), "{what}: {status}"),
                Answer::Reset(_) | Answer::Ended(_) => {}
            }
        }
        assert!(resident(&daemon) < 256 << 20, "{what}: {} bytes", resident(&daemon));
        is_served(&daemon.address);
    }
    // A header list over the limit in one well-formed block.
    let mut client = Client::open(&daemon.address);
    client.send(h2::HEADERS, h2::END_STREAM, 1, &start).expect("the server reads");
    for i in 0..20 {
        let flags = if i == 19 { h2::END_HEADERS } else { 0 };
        if client.send(h2::CONTINUATION, flags, 1, &filler).is_err() {
            break;
        }
    }
    match client.answer(1) {
        Answer::Response { status, .. } => assert_eq!(status, 431),
        Answer::Reset(_) | Answer::Ended(_) => {}
    }
    is_served(&daemon.address);
}

#[test]
fn a_block_of_fields_has_at_most_64_frames_however_small() {
    let (_dir, daemon) = site(&SMALL);
    let start = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")]);
    // HEADERS and so many CONTINUATIONs, the last of which ends the block.
    let sent = |more: usize| {
        let mut client = Client::open(&daemon.address);
        client.send(h2::HEADERS, h2::END_STREAM, 1, &start).expect("the server reads");
        let mut frames = h2::frame(h2::CONTINUATION, 0, 1, &[]).repeat(more - 1);
        frames.extend(h2::frame(h2::CONTINUATION, h2::END_HEADERS, 1, &[]));
        client.send_bytes(&frames).expect("the server reads");
        client.answer(1)
    };
    assert!(matches!(sent(63), Answer::Response { status: 200, .. }));
    assert_eq!(sent(64), Answer::Ended(Some(11)), "ENHANCE_YOUR_CALM");
}

#[test]
fn floods_of_resets_and_control_frames_leave_others_served() {
    let (_dir, daemon, _) = large_site();
    is_served(&daemon.address);
    let before = descriptors(&daemon);
    let head = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/large.txt"), (":authority", "x")]);
    let mut good = Client::open(&daemon.address);
    for what in ["resets", "pings", "settings", "priorities", "empty data", "windows"] {
        let mut client = Client::open_with_window(&daemon.address, 0);
        // Nothing that comes back is read, as an attacker would.
        client.give_up_when_stuck();
        let opened = client.stream();
        let post = h2::block(&[(":method", "POST"), (":scheme", "http"), (":path", "/"), (":authority", "x")]);
        let _ = client.send_bytes(&h2::frame(h2::HEADERS, h2::END_HEADERS, opened, &post));
        for _ in 0..200 {
            let mut bytes = Vec::new();
            for _ in 0..100 {
                match what {
                    "resets" => {
                        let stream = client.stream();
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
        is_served(&daemon.address);
        assert!(matches!(good.get("/b.txt", &[]), Answer::Response { status: 200, .. }), "beside {what}");
        assert!(resident(&daemon) < 256 << 20, "{what}: {} bytes", resident(&daemon));
    }
    drop(good);
    until("the descriptors come back", || descriptors(&daemon) <= before + 5);
}
