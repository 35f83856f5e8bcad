//! One table of requests over HTTP/1.1 and HTTP/2, each in clear and over TLS. All responses to a request are the same.

use std::io::{Read, Write};
use std::path::Path;

use support::h2::{self, Http2Client, StreamOutcome};
use support::http::{Response, connect, exchange, get, send_bytes};
use support::tls::{CertificateAuthority, tls_handshake};
use support::{Daemon, HTTP2_SERVERS, temporary_folder, write_site};

const NAME: &str = "docs.example";

/// Method, path and further fields.
type Request<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);

/// The security fields that every response has.
const SECURITY_FIELDS: [(&str, &str); 3] = [
    ("x-content-type-options", "nosniff"),
    ("referrer-policy", "strict-origin-when-cross-origin"),
    ("x-frame-options", "SAMEORIGIN"),
];

/// Sends a request over HTTP/1.1.
#[track_caller]
fn http1_request<S: Read + Write>(stream: S, method: &str, path: &str, fields: &[(&str, &str)]) -> Response {
    let mut request = format!("{method} {path} HTTP/1.1\r\nHost: {NAME}\r\n");
    for (name, value) in fields {
        request.push_str(&[name, ": ", value, "\r\n"].concat());
    }
    request.push_str("\r\n");
    exchange(stream, request.as_bytes(), method == "HEAD")
}

/// Compares status, fields in any order, and body. Fields of the connection and the date are ignored.
#[track_caller]
fn assert_same_response(case: &str, response: &Response, expected: &Response) {
    let fields = |response: &Response| {
        let ignored = ["connection", "keep-alive", "transfer-encoding", "date"];
        let mut fields = response.headers.clone();
        fields.retain(|(name, _)| !ignored.contains(&name.as_str()));
        fields.sort();
        fields
    };
    assert_eq!(response.status, expected.status, "{case}");
    assert_eq!(fields(response), fields(expected), "{case}");
    assert!(response.body == expected.body, "{case}: {} and {} bytes", response.body.len(), expected.body.len());
    assert!(response.headers.iter().any(|(name, _)| name == "date"), "{case}: no date");
}

/// The bytes with which a client that speaks HTTP/2 begins.
fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &h2::frame(h2::SETTINGS, 0, 0, &[])[..]].concat()
}

/// `SETTINGS_NO_RFC7540_PRIORITIES` (RFC 9218, section 2.1). Only docwharf's own HTTP/2 announces it, hyper's does not.
const NO_PRIORITIES: u16 = 9;

/// `SETTINGS_MAX_CONCURRENT_STREAMS` and `SETTINGS_MAX_HEADER_LIST_SIZE`, which both implementations announce.
const ANNOUNCED_BOUNDS: [(u16, u32); 2] = [(3, 128), (6, 65_536)];

/// The identifiers and values in the SETTINGS frame with which a server begins (RFC 9113, section 6.5).
fn announced_settings(address: &str) -> Vec<(u16, u32)> {
    let mut stream = connect(address);
    stream.write_all(&preface()).expect("the server reads");
    let mut head = [0; 9];
    stream.read_exact(&mut head).expect("the head of a frame");
    assert_eq!((head[0], head[3]), (0, h2::SETTINGS));
    let mut payload = vec![0; usize::from(u16::from_be_bytes([head[1], head[2]]))];
    stream.read_exact(&mut payload).expect("the frame");
    let settings = payload.chunks_exact(6);
    let name = |setting: &[u8]| u16::from_be_bytes([setting[0], setting[1]]);
    let value = |setting: &[u8]| u32::from_be_bytes([setting[2], setting[3], setting[4], setting[5]]);
    settings.map(|setting| (name(setting), value(setting))).collect()
}

/// Writes a certificate for [`NAME`] and its key into `dir`; returns the options of `serve` for TLS.
fn tls_options(dir: &Path, authority: &CertificateAuthority) -> Vec<String> {
    let pair = authority.issue(&[NAME]);
    write_site(dir, &[("cert.pem", &pair.certificate), ("key.pem", &pair.key)]);
    let file = |name: &str| dir.join(name).to_str().expect("a name").to_owned();
    vec!["--tls-cert".to_owned(), file("cert.pem"), "--tls-key".to_owned(), file("key.pem")]
}

#[test]
fn http_2_and_tls_give_the_same_responses_as_http_1() {
    assert_protocols_answer_alike("own");
}

#[test]
fn http_2_of_hyper_and_tls_give_the_same_responses_as_http_1() {
    assert_protocols_answer_alike("hyper");
}

#[test]
fn with_http2_off_alpn_selects_http_1_1_and_the_preface_is_parsed_as_http_1_1() {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>home")]);
    let authority = CertificateAuthority::new();
    let options = tls_options(dir.path(), &authority);
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    let secure = Daemon::serve_with_http2("off", &root, &options);
    let stream = tls_handshake(&secure.address, &authority.client(&["h2", "http/1.1"]), NAME).expect("a handshake");
    assert_eq!(stream.conn.alpn_protocol(), Some(&b"http/1.1"[..]));
    assert_eq!(http1_request(stream, "GET", "/", &[]).text(), "<p>home");
    assert!(tls_handshake(&secure.address, &authority.client(&["h2"]), NAME).is_err(), "no common protocol");
    // The response to a preface is the one on a connection whose ALPN protocol is HTTP/1.1.
    let as_http_1 = |daemon: &Daemon, offered: &[&str]| {
        let mut stream = tls_handshake(&daemon.address, &authority.client(offered), NAME).expect("a handshake");
        stream.write_all(&preface()).expect("the server reads");
        let mut response = Vec::new();
        let _ = stream.read_to_end(&mut response);
        response
    };
    let expected = as_http_1(&Daemon::serve_with_http2("own", &root, &options), &["http/1.1"]);
    let clear = Daemon::serve_with_http2("off", &root, &[]);
    assert_eq!(send_bytes(&clear.address, &preface()), expected, "{:?}", String::from_utf8_lossy(&expected));
    assert_eq!(as_http_1(&secure, &[]), expected, "without ALPN");
    assert_eq!(get(&clear.address, "/").text(), "<p>home");
}

#[track_caller]
fn assert_protocols_answer_alike(http2: &str) {
    let dir = temporary_folder();
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
    let daemon = Daemon::serve_with_http2(http2, &root, &[]);
    let settings = announced_settings(&daemon.address);
    assert_eq!(settings.iter().any(|(name, _)| *name == NO_PRIORITIES), http2 == "own");
    assert!(ANNOUNCED_BOUNDS.iter().all(|bound| settings.contains(bound)), "{settings:?}");
    let authority = CertificateAuthority::new();
    let options = tls_options(dir.path(), &authority);
    let secure = Daemon::serve_with_http2(http2, &root, &options.iter().map(String::as_str).collect::<Vec<_>>());
    let stream = tls_handshake(&secure.address, &authority.client(&["h2"]), NAME).expect("a handshake");
    let socket = stream.sock.try_clone().expect("a descriptor");
    let mut secure_client = Http2Client::over(Box::new(stream), socket, 1 << 20);
    secure_client.widen_connection_window();
    let tag = get(&daemon.address, "/").header("etag").expect("a tag").to_owned();
    let gzip = ("accept-encoding", "gzip");
    let cases: &[Request] = &[
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
    let mut client = Http2Client::open(&daemon.address);
    let streams: Vec<u32> = cases.iter().map(|&(method, path, fields)| client.request(method, path, fields)).collect();
    for (&(method, path, fields), stream) in cases.iter().zip(streams) {
        let case = format!("{method} {path} {fields:?}");
        let expected = http1_request(connect(&daemon.address), method, path, fields);
        let text = String::from_utf8_lossy(&expected.body).into_owned();
        assert!(!text.contains("TOPSECRET"), "{case}");
        for (name, value) in SECURITY_FIELDS {
            assert_eq!(expected.header(name), Some(value), "{case}");
        }
        assert_same_response(&format!("{case} over HTTP/2"), &client.response(stream), &expected);
        let stream = tls_handshake(&secure.address, &authority.client(&["http/1.1"]), NAME).expect("a handshake");
        assert_same_response(&format!("{case} over TLS"), &http1_request(stream, method, path, fields), &expected);
        let stream = secure_client.request(method, path, fields);
        assert_same_response(&format!("{case} over HTTP/2 and TLS"), &secure_client.response(stream), &expected);
    }
}

#[test]
fn no_http2_path_reads_a_file_outside_the_site() {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>x")]);
    write_site(dir.path(), &[("secret.html", "TOPSECRET")]);
    let daemons = HTTP2_SERVERS.map(|http2| Daemon::serve_with_http2(http2, &root, &[]));
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
        for daemon in &daemons {
            let mut client = Http2Client::open(&daemon.address);
            match client.get(path, &[]) {
                StreamOutcome::Response { status, body } => {
                    assert!(matches!(status, 400 | 404), "{path:?}: {status}");
                    assert!(!String::from_utf8_lossy(&body).contains("TOPSECRET"), "{path:?}");
                }
                StreamOutcome::Reset(_) | StreamOutcome::ConnectionClosed(_) => {}
            }
        }
    }
}
