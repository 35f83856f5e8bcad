//! One table of requests over HTTP/1.1 and HTTP/2, each in clear and over TLS: the answers are the same in all that they say.

use std::io::{Read, Write};

use support::h2::{Answer, Client};
use support::http::{Response, connect, exchange, get};
use support::tls::{Authority, shake};
use support::{Daemon, folder, write_site};

const NAME: &str = "docs.example";

/// Method, path and further fields.
type Asked<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// What protects readers stands in every answer.
const PROTECTING: [(&str, &str); 3] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    ("x-frame-options", "SAMEORIGIN"),
];

/// A request over HTTP/1.1.
#[track_caller]
fn plain<S: Read + Write>(stream: S, method: &str, path: &str, fields: &[(&str, &str)]) -> Response {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {NAME}\r\n");
    for (name, value) in fields {
        request.push_str(&[name, ": ", value, "\r\n"].concat());
    }
    request.push_str("\r\n");
    exchange(stream, request.as_bytes(), method == "HEAD")
}

/// Compares status, fields in any order, and body. Left out is what belongs to the connection or to the moment.
#[track_caller]
fn assert_same(what: &str, answer: &Response, expected: &Response) {
    let fields = |answer: &Response| {
        let apart = ["connection", "keep-alive", "transfer-encoding", "date"];
        let mut fields = answer.headers.clone();
        fields.retain(|(name, _)| !apart.contains(&name.as_str()));
        fields.sort();
        fields
    };
    assert_eq!(answer.status, expected.status, "{what}");
    assert_eq!(fields(answer), fields(expected), "{what}");
    assert!(answer.body == expected.body, "{what}: {} and {} bytes", answer.body.len(), expected.body.len());
    assert!(answer.headers.iter().any(|(name, _)| name == "date"), "{what}: no date");
}

#[test]
fn http_2_and_tls_give_the_same_answers() {
    let dir = folder();
    let page = "A page of some length. ".repeat(4000);
    let root = write_site(
        &dir.path().join("site"),
        &[
            ("index.html", &page),
            ("x/index.html", "<p>x"),
            ("p.png", "not really"),
            ("empty.txt", ""),
            ("404.html", "<p>own"),
            (".env", "HIDDEN"),
        ],
    );
    write_site(dir.path(), &[("secret.html", "TOPSECRET")]);
    let daemon = Daemon::serve(&root, &[]);
    let authority = Authority::new();
    let pair = authority.issue(&[NAME]);
    write_site(dir.path(), &[("cert.pem", &pair.certificate), ("key.pem", &pair.key)]);
    let files = ["cert.pem", "key.pem"].map(|name| dir.path().join(name).to_str().expect("a name").to_owned());
    let secure = Daemon::serve(&root, &["--tls-cert", &files[0], "--tls-key", &files[1]]);
    let stream = shake(&secure.address, &authority.client(&["h2"]), NAME).expect("a handshake");
    let socket = stream.sock.try_clone().expect("a descriptor");
    let mut secure_client = Client::over(Box::new(stream), socket, 1 << 20);
    secure_client.widen();
    let tag = get(&daemon.address, "/").header("etag").expect("a tag").to_owned();
    let gzip = ("accept-encoding", "gzip");
    let cases: &[Asked] = &[
        ("GET", "/", &[]),
        ("GET", "/", &[gzip]),
        ("HEAD", "/", &[gzip]),
        ("GET", "/", &[("range", "bytes=10-99")]),
        ("GET", "/", &[gzip, ("range", "bytes=-20")]),
        ("GET", "/", &[("range", "bytes=999999-")]),
        ("GET", "/", &[("if-none-match", &tag)]),
        ("GET", "/", &[("if-match", "\"x\"")]),
        ("GET", "/", &[("range", "bytes=0-1,10-11")]),
        ("HEAD", "/", &[("range", "bytes=0-1,10-11")]),
        ("HEAD", "/", &[("if-none-match", &tag)]),
        ("GET", "/", &[("if-modified-since", "Fri, 31 Dec 9999 23:59:59 GMT")]),
        ("GET", "/p.png", &[gzip]),
        ("GET", "/empty.txt", &[]),
        ("GET", "/x", &[]),
        ("GET", "/x/?q", &[]),
        ("GET", "/missing", &[]),
        ("GET", "/missing.js", &[]),
        ("HEAD", "/missing", &[]),
        ("HEAD", "/missing.js", &[]),
        ("GET", "/.env", &[]),
        ("GET", "/%00", &[]),
        ("OPTIONS", "/", &[]),
        ("POST", "/", &[]),
        ("TRACE", "/", &[]),
        ("BREW", "/missing", &[]),
        ("GET", "/../secret.html", &[]),
        ("GET", "/x/../../secret.html", &[]),
        ("GET", "/%2e%2e/secret.html", &[]),
        ("GET", "/..%2fsecret.html", &[]),
        ("GET", "/%252e%252e/secret.html", &[]),
        ("GET", "//secret.html", &[]),
        ("GET", "/..%5csecret.html", &[]),
    ];
    let mut client = Client::open(&daemon.address);
    let asked: Vec<u32> = cases.iter().map(|&(method, path, fields)| client.request(method, path, fields)).collect();
    for (&(method, path, fields), stream) in cases.iter().zip(asked) {
        let what = format!("{method} {path} {fields:?}");
        let expected = plain(connect(&daemon.address), method, path, fields);
        let text = String::from_utf8_lossy(&expected.body).into_owned();
        assert!(!text.contains("TOPSECRET"), "{what}");
        for (name, value) in PROTECTING {
            assert_eq!(expected.header(name), Some(value), "{what}");
        }
        assert_same(&format!("{what} over HTTP/2"), &client.response(stream), &expected);
        let stream = shake(&secure.address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
        assert_same(&format!("{what} over TLS"), &plain(stream, method, path, fields), &expected);
        let stream = secure_client.request(method, path, fields);
        assert_same(&format!("{what} over HTTP/2 and TLS"), &secure_client.response(stream), &expected);
    }
}

#[test]
fn no_address_that_only_http_2_can_spell_leads_outside() {
    let dir = folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>x")]);
    write_site(dir.path(), &[("secret.html", "TOPSECRET")]);
    let daemon = Daemon::serve(&root, &[]);
    for path in [
        "../secret.html",
        "secret.html",
        "",
        "*",
        "\\..\\secret.html",
        "/..\\secret.html",
        "http://x/../secret.html",
        "/\u{0}",
        "/a b",
        "/\r\nX: y",
    ] {
        let mut client = Client::open(&daemon.address);
        match client.get(path, &[]) {
            Answer::Response { status, body } => {
                assert!(matches!(status, 400 | 404), "{path:?}: {status}");
                assert!(!String::from_utf8_lossy(&body).contains("TOPSECRET"), "{path:?}");
            }
            Answer::Reset(_) | Answer::Ended(_) => {}
        }
    }
}
