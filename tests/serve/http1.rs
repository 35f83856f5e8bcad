//! Requests that are answered without more machinery than they need, and from what was answered before, are answered as all
//! others are.

use std::io::{Read, Write};
use std::time::Duration;

use support::h2::{Answer, Client};
use support::host::{Host, text};
use support::http::{PersistentConnection, Response, connect, get};
use support::zip::{deflated, zip};
use support::{Daemon, folder, until, write_site};

fn site() -> (tempfile::TempDir, Daemon) {
    let dir = folder();
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
    let daemon = Daemon::serve(&root, &[]);
    (dir, daemon)
}

const ASKED: [(&str, &str); 20] = [
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

/// What does not depend on when it was sent.
fn lasting(answer: &Response) -> (u16, Vec<(String, String)>, &[u8]) {
    let mut fields: Vec<_> = answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect();
    fields.sort();
    (answer.status, fields, &answer.body)
}

#[test]
fn an_answer_is_the_same_the_first_time_and_later_and_whoever_reads_the_request() {
    let (_dir, daemon) = site();
    let mut other = PersistentConnection::open(&daemon.address);
    // Not plain: from here on another reader has the connection.
    other.send("OPTIONS / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(other.response(false).status, 204);
    for method in ["GET", "HEAD"] {
        for (target, fields) in ASKED {
            let request = format!("{method} {target} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
            let ask = |connection: &mut PersistentConnection| {
                connection.send(&request);
                let answer = connection.response(method == "HEAD");
                assert_eq!(answer.headers.iter().filter(|(name, _)| name == "date").count(), 1, "{request}");
                answer
            };
            let expected = ask(&mut other);
            let mut plain = PersistentConnection::open(&daemon.address);
            for turn in 0..3 {
                assert_eq!(lasting(&ask(&mut plain)), lasting(&expected), "{request} (turn {turn})");
            }
        }
    }
}

#[test]
fn an_answer_is_the_same_the_first_time_and_later_over_http_2() {
    let (_dir, daemon) = site();
    let mut client = Client::open(&daemon.address);
    for (target, encoding) in
        [("/page.html", ""), ("/page.html", "gzip"), ("/missing", ""), ("/old", ""), ("/empty.txt", "")]
    {
        let fields: &[(&str, &str)] = if encoding.is_empty() { &[] } else { &[("accept-encoding", encoding)] };
        let field = if encoding.is_empty() { String::new() } else { format!("Accept-Encoding: {encoding}\r\n") };
        let mut one = PersistentConnection::open(&daemon.address);
        one.send(format!("GET {target} HTTP/1.1\r\nHost: x\r\n{field}\r\n"));
        let expected = one.response(false);
        for turn in 0..3 {
            let answer = client.get(target, fields);
            let same = Answer::Response { status: expected.status, body: expected.body.clone() };
            assert!(answer == same, "{target} {encoding:?} (turn {turn})");
        }
    }
}

#[test]
fn plain_requests_and_others_on_one_connection_are_answered_in_order_however_they_arrive() {
    let (_dir, daemon) = site();
    let all: Vec<String> = (0..40)
        .flat_map(|i| {
            let plain = format!("GET /a.txt?{i} HTTP/1.1\r\nHost: x\r\n\r\n");
            let other = match i {
                20 => "POST /a.txt HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nGET",
                _ => "HEAD /page.html HTTP/1.1\r\nHost: x\r\n\r\n",
            };
            [plain, other.to_owned()]
        })
        .collect();
    let bytes = all.concat();
    for piece in [1, 7, 100, 1000, bytes.len()] {
        let mut connection = PersistentConnection::open(&daemon.address);
        for piece in bytes.as_bytes().chunks(piece) {
            connection.send(piece);
        }
        for (i, request) in all.iter().enumerate() {
            // A body that is refused may end the connection; what is behind it is then not answered.
            let answer = connection.response(request.starts_with("HEAD"));
            let expected = match request.split(' ').next() {
                Some("POST") => 405,
                _ => 200,
            };
            assert_eq!(answer.status, expected, "{i} in pieces of {piece}");
            if answer.header("connection") == Some("close") {
                break;
            }
        }
    }
}

#[test]
fn answers_that_nobody_takes_hold_up_what_is_asked_behind_them_and_nothing_else() {
    let (_dir, daemon) = site();
    let mut slow = connect(&daemon.address);
    let request = b"GET /large.html HTTP/1.1\r\nHost: x\r\n\r\n";
    let last = b"GET /a.txt HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    slow.write_all(&[&request.repeat(4)[..], last].concat()).expect("the server reads");
    let content = "The same line again and again.\n".repeat(100_000);
    for _ in 0..50 {
        assert_eq!(get(&daemon.address, "/a.txt").text(), "content of a");
    }
    let mut all = Vec::new();
    slow.read_to_end(&mut all).expect("all answers come");
    let text = String::from_utf8(all).expect("text");
    assert_eq!(text.matches(&content).count(), 4);
    assert!(text.ends_with("\r\n\r\ncontent of a"), "the last answer comes last");
}

#[test]
fn ten_thousand_short_connections_leave_nothing_behind() {
    let (_dir, daemon) = site();
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).expect("the process lives").count();
    assert_eq!(get(&daemon.address, "/a.txt").status, 200);
    let before = descriptors();
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
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).expect("an answer");
                    assert!(answer.ends_with(b"\r\n\r\ncontent of a"));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("all are answered");
    }
    until("the descriptors come back", || descriptors() <= before + 5);
}

/// Lines that no two pages share.
fn numbered(page: usize, bytes: usize) -> String {
    let lines = bytes / "page 0, line 12345\n".len();
    (0..lines).map(|line| format!("page {page}, line {line}\n")).collect::<Vec<_>>().concat()
}

#[test]
fn a_page_on_its_way_stays_what_it_is_when_others_take_its_place_in_memory() {
    const PAGES: usize = 30;
    const BYTES: usize = 600_000;
    let pages: Vec<String> = (0..PAGES).map(|page| numbered(page, BYTES)).collect();
    let names: Vec<String> = (0..PAGES).map(|page| format!("{page}.txt")).collect();
    let files = names.iter().zip(&pages).map(|(name, page)| deflated(name, page));
    // Of the thirty four at most, each too large to be copied.
    let host = Host::bare().set("server.identityCache", text("3MiB"));
    host.put("bundle.zip", zip(&files.chain([deflated("index.html", "<p>home")]).collect::<Vec<_>>()));
    host.ok(&["import", host.path("bundle.zip").to_str().expect("its path is text")]);
    let daemon = host.run();
    let request = |n: usize| format!("GET /{n}.txt HTTP/1.1\r\nHost: x\r\n\r\n");
    let mut slow: Vec<PersistentConnection> = (0..PAGES).map(|_| PersistentConnection::open(&daemon.address)).collect();
    for (n, connection) in slow.iter_mut().enumerate() {
        // Twice, so that of the second answer some is still to be sent when others come.
        connection.send(request(n).repeat(2));
    }
    let mut busy = PersistentConnection::open(&daemon.address);
    for n in (0..PAGES).rev().chain(0..PAGES) {
        busy.send(request(n));
        assert!(busy.response(false).body == pages[n].as_bytes(), "page {n} is another one");
    }
    for (n, connection) in slow.iter_mut().enumerate() {
        for turn in 0..2 {
            let answer = connection.response(false);
            assert_eq!(answer.header("content-length"), Some(pages[n].len().to_string().as_str()));
            assert!(answer.body == pages[n].as_bytes(), "page {n} is another one the {turn}. time");
        }
    }
}
