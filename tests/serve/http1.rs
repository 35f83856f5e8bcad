//! The fast path of HTTP/1.1 and the response cache: responses are those of hyper, and the same without the cache.

use std::io::{Read, Write};
use std::time::Duration;

use support::h2::{Http2Client, StreamOutcome};
use support::host::{Host, toml_string};
use support::http::{PersistentConnection, Response, connect, get};
use support::zip::{deflated, zip};
use support::{Daemon, HTTP2_SERVERS, open_descriptors, temporary_folder, until, write_site};

fn site() -> (tempfile::TempDir, Daemon) {
    site_with_http2("own")
}

fn site_with_http2(http2: &str) -> (tempfile::TempDir, Daemon) {
    let dir = temporary_folder();
    let page = format!("<p>page {}", "with some text ".repeat(400));
    let files = [
        ("index.html", "<p>home"),
        ("a.txt", "content of a"),
        ("page.html", &page),
        ("page.md", "# page"),
        ("empty.txt", ""),
        ("404.html", "<p>lost"),
        ("logo.0ab12cd3.png", "no picture"),
        ("_redirects", "/old /page.html 301\n"),
    ];
    let root = write_site(&dir.path().join("site"), &files);
    std::fs::write(root.join("large.html"), "The same line again and again.\n".repeat(100_000)).expect("it is written");
    let daemon = Daemon::serve_with_http2(http2, &root, &[]);
    (dir, daemon)
}

const REQUESTS: [(&str, &str); 20] = [
    ("/", ""),
    ("/a.txt", ""),
    ("/a.txt", "Accept-Encoding: gzip\r\n"),
    ("/page.html", "Accept-Encoding: gzip, deflate, br, zstd\r\n"),
    ("/page.html", "Accept: text/markdown\r\n"),
    ("/page.html", "Accept: text/markdown\r\nAccept-Encoding: gzip\r\n"),
    ("/page", "User-Agent: x\r\nCookie: a=b\r\nCache-Control: no-cache\r\n"),
    ("/page?x=y", ""),
    ("/pa%67e.html", ""),
    ("/large.html", ""),
    ("/large.html", "Range: bytes=5-9\r\n"),
    ("/large.html", "Accept-Encoding: gzip\r\n"),
    ("/empty.txt", ""),
    ("/missing", ""),
    ("/missing.js", ""),
    ("/old", ""),
    ("/logo.0ab12cd3.png", ""),
    ("/logo.0ab12cd3.png", "If-None-Match: *\r\n"),
    ("/a.txt", "If-Modified-Since: Fri, 31 Dec 2100 23:59:59 GMT\r\n"),
    ("/%00", ""),
];

/// Status, fields and body, without the date.
fn without_date(response: &Response) -> (u16, Vec<(String, String)>, &[u8]) {
    let mut fields: Vec<_> = response.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
    fields.sort();
    (response.status, fields, &response.body)
}

#[test]
fn responses_are_equal_with_and_without_cache_and_from_either_http1_parser() {
    let (_dir, daemon) = site();
    let mut hyper_connection = PersistentConnection::open(&daemon.address);
    // OPTIONS is not a plain request: from here on, hyper serves the connection.
    hyper_connection.send("OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(hyper_connection.response(false).status, 204);
    for method in ["GET", "HEAD"] {
        for (target, fields) in REQUESTS {
            let request = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
            let send = |connection: &mut PersistentConnection| {
                connection.send(&request);
                let response = connection.response(method == "HEAD");
                assert_eq!(response.headers.iter().filter(|(name, _)| name == "date").count(), 1, "{request}");
                response
            };
            let expected = send(&mut hyper_connection);
            let mut fast_connection = PersistentConnection::open(&daemon.address);
            for attempt in 0..3 {
                assert_eq!(
                    without_date(&send(&mut fast_connection)),
                    without_date(&expected),
                    "{request} (attempt {attempt})"
                );
            }
        }
    }
}

#[test]
fn http2_responses_are_equal_with_and_without_cache() {
    for http2 in HTTP2_SERVERS {
        let (_dir, daemon) = site_with_http2(http2);
        let mut client = Http2Client::open(&daemon.address);
        for (target, encoding) in
            [("/page.html", ""), ("/page.html", "gzip"), ("/missing", ""), ("/old", ""), ("/empty.txt", "")]
        {
            let fields: &[(&str, &str)] = if encoding.is_empty() { &[] } else { &[("accept-encoding", encoding)] };
            let field = if encoding.is_empty() { String::new() } else { format!("Accept-Encoding: {encoding}\r\n") };
            let mut connection = PersistentConnection::open(&daemon.address);
            connection.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n{field}\r\n"));
            let expected = connection.response(false);
            for attempt in 0..3 {
                let response = client.get(target, fields);
                let expected_answer = StreamOutcome::Response { status: expected.status, body: expected.body.clone() };
                assert!(response == expected_answer, "{target} {encoding:?} (turn {attempt})");
            }
        }
    }
}

#[test]
fn pipelined_requests_split_at_any_byte_are_answered_in_order() {
    let (_dir, daemon) = site();
    let requests: Vec<String> = (0..40)
        .flat_map(|i| {
            let plain = format!("GET /a.txt?{i} HTTP/1.1\r\nHost: x\r\n\r\n");
            let not_plain = match i {
                20 => "POST /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nGET",
                _ => "HEAD /page.html HTTP/1.1\r\nHost: x\r\n\r\n",
            };
            [plain, not_plain.to_owned()]
        })
        .collect();
    let bytes = requests.concat();
    for piece_len in [1, 7, 100, 1000, bytes.len()] {
        let mut connection = PersistentConnection::open(&daemon.address);
        for piece in bytes.as_bytes().chunks(piece_len) {
            connection.send(piece);
        }
        for (i, request) in requests.iter().enumerate() {
            // A refused body may end the connection. Requests after it are then not answered.
            let response = connection.response(request.starts_with("HEAD"));
            let expected = match request.split(' ').next() {
                Some("POST") => 405,
                _ => 200,
            };
            assert_eq!(response.status, expected, "{i} in pieces of {piece_len}");
            if response.header("connection") == Some("close") {
                break;
            }
        }
    }
}

#[test]
fn unread_responses_delay_only_later_requests_on_the_same_connection() {
    let (_dir, daemon) = site();
    let mut slow = connect(&daemon.address);
    let request = b"GET /large.html HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    slow.write_all(&[&request.repeat(4)[..], last].concat()).expect("the server reads");
    let content = "The same line again and again.\n".repeat(100_000);
    for _ in 0..50 {
        assert_eq!(get(&daemon.address, "/a.txt").text(), "content of a");
    }
    let mut bytes = Vec::new();
    slow.read_to_end(&mut bytes).expect("all responses arrive");
    let text = String::from_utf8(bytes).expect("text");
    assert_eq!(text.matches(&content).count(), 4);
    assert!(text.ends_with("\r\n\r\ncontent of a"), "the last response arrives last");
}

#[test]
fn ten_thousand_short_connections_leak_no_descriptors() {
    let (_dir, daemon) = site();
    assert_eq!(get(&daemon.address, "/a.txt").status, 200);
    let before = open_descriptors(daemon.pid());
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let address = daemon.address.clone();
            std::thread::spawn(move || {
                for _ in 0..2500 {
                    let mut stream = connect(&address);
                    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
                    stream
                        .write_all(b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                        .expect("the server reads");
                    let mut response = Vec::new();
                    stream.read_to_end(&mut response).expect("an answer");
                    assert!(response.ends_with(b"\r\n\r\ncontent of a"));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("all requests are answered");
    }
    until("the descriptors are closed", || open_descriptors(daemon.pid()) <= before + 5);
}

/// Text of about `bytes` bytes, every line of which has the page's number.
fn numbered_lines(page: usize, bytes: usize) -> String {
    let lines = bytes / "page 0, line 12345\n".len();
    (0..lines).map(|line| format!("page {page}, line {line}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn a_page_being_sent_stays_intact_when_it_is_evicted_from_the_cache() {
    const PAGES: usize = 30;
    const PAGE_BYTES: usize = 600_000;
    let pages: Vec<String> = (0..PAGES).map(|page| numbered_lines(page, PAGE_BYTES)).collect();
    let names: Vec<String> = (0..PAGES).map(|page| format!("{page}.txt")).collect();
    let files = names.iter().zip(&pages).map(|(name, page)| deflated(name, page));
    // The cache holds at most four of the thirty pages. Each is too large to be copied into the send buffer.
    let host = Host::bare().set("server.identityCache", toml_string("3MiB"));
    host.put("bundle.zip", zip(&files.chain([deflated("index.html", "<p>home")]).collect::<Vec<_>>()));
    host.ok(&["import", host.path("bundle.zip").to_str().expect("its path is text")]);
    let daemon = host.run();
    let request = |n: usize| format!("GET /{n}.txt HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut slow: Vec<PersistentConnection> = (0..PAGES).map(|_| PersistentConnection::open(&daemon.address)).collect();
    for (n, connection) in slow.iter_mut().enumerate() {
        // Twice, so that a part of the second response is still unsent when other pages replace it in the cache.
        connection.send(request(n).repeat(2));
    }
    let mut busy = PersistentConnection::open(&daemon.address);
    for n in (0..PAGES).rev().chain(0..PAGES) {
        busy.send(request(n));
        assert!(busy.response(false).body == pages[n].as_bytes(), "page {n} has the content of another page");
    }
    for (n, connection) in slow.iter_mut().enumerate() {
        for attempt in 0..2 {
            let response = connection.response(false);
            assert_eq!(response.header("content-length"), Some(pages[n].len().to_string().as_str()));
            assert!(
                response.body == pages[n].as_bytes(),
                "page {n} has the content of another page the {attempt}. time"
            );
        }
    }
}
