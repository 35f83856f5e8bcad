//! Access control, the trusted proxies that identify a client, and the access log.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use support::h2::{Http2Client, StreamOutcome};
use support::host::{Host, bundle, large_bundle, toml_string};
use support::http::{PersistentConnection, Response, exchange, get, request_and_close};
use support::zip::{deflated, zip};
use support::{Daemon, HTTP2_SERVERS, KillOnDrop, metrics, send_signal, until};

/// The source address of a request that does not choose one.
const LOCAL: &str = "127.0.0.1";
const OTHER_CLIENT: &str = "127.0.0.2";
const PROXY: &str = "127.0.0.3";

fn host() -> Host {
    let host = Host::bare()
        .set("staticExport.bundleUrl", toml_string("bundle.zip"))
        .set("sync.interval", toml_string("1h"))
        .set("admin.listen", toml_string("127.0.0.1:0"));
    host.put("bundle.zip", bundle("one"));
    host
}

/// Starts `run` and waits until it is ready. The admin listener has no access control, so it always answers.
fn start_and_wait(host: &Host) -> Daemon {
    let log = std::fs::File::create(host.path("messages")).expect("a file");
    let daemon = Daemon::start(host.command(&["run"]).stderr(log));
    let admin = host.reported_address("admin");
    until("a version is served", || get(&admin, "/readyz").status == 200);
    daemon
}

fn log_text(host: &Host) -> String {
    std::fs::read_to_string(host.path("messages")).expect("a file")
}

/// A connection from the source address `source`, one of this machine's.
fn connect_from(source: &str, address: &str) -> TcpStream {
    let source: IpAddr = source.parse().expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(source, 0).into()).expect("all of 127.0.0.0/8 is this machine");
    socket.connect(&address.parse::<SocketAddr>().expect("an address").into()).expect("the server accepts");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
    socket.into()
}

/// Sends one request from the source address `source`, on a separate connection.
fn request_from(source: &str, address: &str, method: &str, target: &str, headers: &[&str]) -> Response {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: docs.example\r\nConnection: close\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    exchange(connect_from(source, address), head.as_bytes(), method == "HEAD")
}

/// The header fields that do not depend on the time.
fn fields(response: &Response) -> Vec<(String, String)> {
    response.headers.iter().filter(|(name, _)| name != "date").cloned().collect()
}

#[test]
fn clients_outside_access_allow_get_the_same_403_for_every_request() {
    let host = host().set("access.allow", "[\"127.0.0.2\", \"2001:db8::/32\"]");
    let daemon = start_and_wait(&host);
    let request_from =
        |source, method, target, headers: &[&str]| request_from(source, &daemon.address, method, target, headers);
    assert_eq!(request_from(OTHER_CLIENT, "GET", "/guide", &[]).status, 200);
    let refused = request_from(LOCAL, "GET", "/guide", &[]);
    assert_eq!((refused.status, refused.header("cache-control")), (403, Some("no-store")));
    assert!(refused.body.len() < 100 && refused.header("content-type") == Some("text/plain; charset=utf-8"));
    for target in ["/", "/missing", "/missing.js", "/logo.png", "/guide/", "/%00", "/..%2f", "/_docwharf/search", "*"] {
        for method in ["GET", "HEAD", "OPTIONS", "POST", "BREW"] {
            let all_headers =
                ["If-None-Match: *", "Range: bytes=0-0", "Accept-Encoding: gzip", "X-Forwarded-For: 127.0.0.2"];
            for headers in [&all_headers[..0], &all_headers] {
                let response = request_from(LOCAL, method, target, headers);
                assert_eq!(response.status, 403, "{method} {target}");
                assert_eq!(fields(&response), fields(&refused), "{method} {target}");
                assert!(method == "HEAD" || response.body == refused.body, "{method} {target}");
            }
        }
    }
    // Over HTTP/2, too.
    let expected = StreamOutcome::Response { status: 403, body: refused.body.clone() };
    assert_eq!(Http2Client::open(&daemon.address).get("/guide", &[]), expected);
    let allowed = toml_string("192.0.2.0/24");
    let with_hyper = self::host().set("access.allow", allowed).set("server.http2", toml_string("hyper"));
    let with_hyper = start_and_wait(&with_hyper);
    assert_eq!(Http2Client::open(&with_hyper.address).get("/guide", &[]), expected, "with hyper");
    // Health and metrics have no access control.
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(&host.reported_address("admin"), path).status, 200, "{path}");
    }
    // A refusal leaves the connection usable.
    let mut connection = PersistentConnection::open(&daemon.address);
    for _ in 0..3 {
        connection.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(connection.response(false).status, 403);
    }
}

#[test]
fn a_403_response_has_no_header_fields_from_the_sites_headers_file() {
    let host = host().set("access.allow", toml_string(OTHER_CLIENT));
    let rules = "/guide\n  X-There: yes\n";
    host.put(
        "bundle.zip",
        zip(&[deflated("index.html", "home"), deflated("guide.html", "x"), deflated("_headers", rules)]),
    );
    let daemon = start_and_wait(&host);
    assert_eq!(request_from(OTHER_CLIENT, &daemon.address, "GET", "/guide", &[]).header("x-there"), Some("yes"));
    let (with_rule, without_rule) =
        ["/guide", "/missing"].map(|target| request_from(LOCAL, &daemon.address, "GET", target, &[])).into();
    assert_eq!((with_rule.status, fields(&with_rule)), (403, fields(&without_rule)));
}

#[test]
fn the_access_header_counts_only_from_a_trusted_proxy() {
    let host =
        host().set("server.trustedProxies", toml_string(PROXY)).set("access.header", toml_string("X-Forwarded-User"));
    let daemon = start_and_wait(&host);
    let status = |source, headers: &[&str]| request_from(source, &daemon.address, "GET", "/", headers).status;
    assert_eq!(status(PROXY, &["X-Forwarded-User: anna"]), 200);
    assert_eq!(status(PROXY, &["x-forwarded-user: anna"]), 200);
    for wrong in [
        &[][..],
        &["X-Forwarded-User:"],
        &["X-Forwarded-User:  \t "],
        // A field that the client sent, and the proxy's after it.
        &["X-Forwarded-User: root", "X-Forwarded-User: anna"],
        &["X_Forwarded_User: anna"],
        &["X-Forwarded-Users: anna"],
    ] {
        assert_eq!(status(PROXY, wrong), 403, "{wrong:?}");
    }
    for client in [LOCAL, OTHER_CLIENT] {
        let forged = ["X-Forwarded-User: anna", "X-Forwarded-For: 127.0.0.3", "Forwarded: for=127.0.0.3"];
        assert_eq!(status(client, &forged), 403);
    }
}

// Regression: a trusted proxy that named no client was let in by its own address.
#[test]
fn access_requires_the_header_and_an_allowed_address_of_the_client_not_the_proxy() {
    let host = host()
        .set("server.trustedProxies", toml_string(PROXY))
        .set("access.header", toml_string("X-Forwarded-User"))
        .set("access.allow", "[\"203.0.113.0/24\", \"127.0.0.0/8\"]");
    let daemon = start_and_wait(&host);
    let status = |headers: &[&str]| {
        let all: Vec<&str> = headers.iter().copied().chain(["X-Forwarded-User: anna"]).collect();
        request_from(PROXY, &daemon.address, "GET", "/", &all).status
    };
    assert_eq!(status(&["X-Forwarded-For: 203.0.113.9"]), 200);
    assert_eq!(status(&["X-Forwarded-For: 198.51.100.1, 203.0.113.9"]), 200);
    assert_eq!(status(&["Forwarded: for=203.0.113.9;proto=https"]), 200);
    assert_eq!(status(&["X-Forwarded-For: ::ffff:203.0.113.9"]), 200);
    for wrong in [
        // The client behind the proxy is unknown.
        &[][..],
        &["X-Forwarded-Proto: https"],
        &["Forwarded: proto=https"],
        &["X-Forwarded-For: 198.51.100.1"],
        &["X-Forwarded-For: 203.0.113.9, 198.51.100.1"],
        &["X-Forwarded-For: unknown"],
        &["X-Forwarded-For: "],
        &["Forwarded: for=unknown"],
        &["Forwarded: nonsense"],
        &["Forwarded: for=203.0.113.9", "X-Forwarded-For: 198.51.100.1"],
        &["Forwarded: for=198.51.100.1", "X-Forwarded-For: 203.0.113.9"],
    ] {
        assert_eq!(status(wrong), 403, "{wrong:?}");
    }
    let unsigned = request_from(PROXY, &daemon.address, "GET", "/", &["X-Forwarded-For: 203.0.113.9"]);
    assert_eq!(unsigned.status, 403, "the address alone is not enough");
    assert_eq!(request_from(LOCAL, &daemon.address, "GET", "/", &[]).status, 403);
}

#[test]
fn the_listener_of_the_staged_version_ignores_the_access_rules() {
    let host = host()
        .set("access.allow", toml_string("203.0.113.0/24"))
        .set("activate.mode", toml_string("manual"))
        .set("activate.listen", toml_string("127.0.0.1:0"));
    let _daemon = Daemon::start(&mut host.command(&["run"]));
    let staged = host.status()["daemon"]["staged"][0].as_str().expect("the address of its listener").to_owned();
    let staged = staged.trim_start_matches("http://").trim_end_matches('/');
    until("the staged version is served", || get(staged, "/guide").status == 200);
}

// Regression: a folder as `logFile`, and fields that identify no user as `access.header`, were accepted.
#[test]
fn config_check_names_the_key_of_each_mistake_in_access() {
    for (key, value, message) in [
        ("server.trustedProxies", "[\"10.0.0.0/33\"]", "is not a range of addresses"),
        ("server.trustedProxies", "[\"10.1.0.0/8\"]", "10.0.0.0/8"),
        ("access.allow", "[\"office\"]", "is not a range of addresses"),
        ("access.allow", "[]", "an empty list refuses every client"),
        ("access.header", "\"X-User\"", "server.trustedProxies"),
        ("access.log", "\"on\"", "combined"),
        ("access.logAddress", "\"some\"", "truncated"),
        ("access.logFile", "\"/\"", "name a file in it"),
        ("access.logFile", "\".\"", "name a file in it"),
        ("access.logFile", "\"logs/\"", "name a file in it"),
    ] {
        let ended = Host::bare().set(key, value).expect_exit(2, &["config", "check"]);
        assert!(ended.stderr.contains(key) && ended.stderr.contains(message), "{key}: {}", ended.stderr);
    }
    for name in [
        "Host",
        "X Forwarded",
        "",
        "Cookie",
        "authorization",
        "Proxy-Authorization",
        "Connection",
        "Keep-Alive",
        "TE",
        "Trailer",
        "Upgrade",
        "Forwarded",
        "X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Real-IP",
        "Via",
        "Origin",
        "Accept-Charset",
        "Content-Type",
        "If-Match",
        "Sec-Fetch-User",
    ] {
        let host =
            Host::bare().set("server.trustedProxies", toml_string(PROXY)).set("access.header", toml_string(name));
        let ended = host.expect_exit(2, &["config", "check"]);
        assert!(ended.stderr.contains("access.header"), "{name}: {}", ended.stderr);
    }
    for name in ["X-Forwarded-User", "X-Forwarded-Email", "Remote-User", "X-Auth-Request-User", "X-WEBAUTH-USER"] {
        Host::bare()
            .set("sync.inbox", toml_string("inbox"))
            .set("server.trustedProxies", toml_string(PROXY))
            .set("access.header", toml_string(name))
            .ok(&["config", "check"]);
    }
    let host =
        host().set("access.log", toml_string("json")).set("access.logFile", toml_string("no/such/folder/access.log"));
    let ended = host.expect_exit(8, &["run"]);
    assert!(ended.stderr.contains("access.log") && ended.stdout.is_empty(), "{}", ended.stderr);
}

#[test]
fn a_public_listener_without_access_rules_causes_a_warning() {
    let warning = "set access.allow or access.header";
    let warnings = |host: &Host| {
        let doctor_output = host.command(&["doctor", "--offline"]).output().expect("it runs");
        let doctor_output = String::from_utf8_lossy(&doctor_output.stdout).into_owned();
        let check_stderr = host.ok(&["config", "check"]).stderr;
        let _daemon = start_and_wait(host);
        until("the version is active", || log_text(host).contains("is active"));
        [doctor_output, check_stderr, log_text(host)].map(|text| text.contains(warning))
    };
    let open = host().set("server.listen", toml_string("0.0.0.0:0"));
    assert_eq!(warnings(&open), [true; 3]);
    assert_eq!(warnings(&host()), [false; 3], "this machine only");
    let both = host().set("server.listen", "[\"127.0.0.1:0\", \"0.0.0.0:0\"]");
    assert_eq!(warnings(&both), [true; 3], "an address behind one of this machine");
    let guarded = host().set("server.listen", toml_string("0.0.0.0:0")).set("access.allow", toml_string("127.0.0.0/8"));
    assert_eq!(warnings(&guarded), [false; 3]);
}

// ---------------------------------------------------------------------------------------------------------------------
// Access log

fn host_with_log(format: &str) -> Host {
    host().set("access.log", toml_string(format)).set("access.logFile", toml_string("access.log"))
}

fn complete_lines(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let complete_len = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |index| index + 1);
    String::from_utf8(bytes[..complete_len].to_vec()).expect("lines are UTF-8").lines().map(str::to_owned).collect()
}

/// Waits until the log has `count` lines, and returns them.
#[track_caller]
fn wait_for_lines(host: &Host, count: usize) -> Vec<String> {
    until("the lines are written", || complete_lines(&host.path("access.log")).len() >= count);
    let lines = complete_lines(&host.path("access.log"));
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

// Regression: HTTP/2: a 431 response had no line in the access log, did not pass the access check, and lacked the
// fields that all other responses have.
#[test]
fn http2_431_responses_are_logged_and_follow_the_access_check() {
    let host = host_with_log("json");
    let daemon = start_and_wait(&host);
    let value = "v".repeat(60_000);
    let large = [("user-agent", "large"), ("x-first", value.as_str()), ("x-second", value.as_str())];
    let mut client = Http2Client::open(&daemon.address);
    let StreamOutcome::Response { status: 431, body } = client.get("/guide?q=secret", &large) else { panic!("no 431") };
    let line = json(&wait_for_lines(&host, 1)[0]);
    assert_eq!(
        (&line["status"], &line["target"], &line["userAgent"]),
        (&431.into(), &"/guide".into(), &"large".into())
    );
    assert_eq!(line["bytes"], body.len());
    // A target that alone is too large.
    let target = format!("/{value}{value}");
    assert!(matches!(client.get(&target, &[]), StreamOutcome::Response { status: 431, .. }));
    let line = json(&wait_for_lines(&host, 2)[1]);
    assert_eq!((&line["status"], &line["method"], &line["protocol"]), (&431.into(), &"GET".into(), &"HTTP/2.0".into()));
    // A client without access gets the usual refusal.
    let daemon = start_and_wait(&self::host().set("access.allow", toml_string("192.0.2.0/24")));
    let mut client = Http2Client::open(&daemon.address);
    assert!(matches!(client.get("/guide", &large), StreamOutcome::Response { status: 403, .. }));
}

#[test]
fn the_json_access_log_has_a_line_for_each_response_without_the_query() {
    for http2 in HTTP2_SERVERS {
        let host = host_with_log("json").set("server.http2", toml_string(http2));
        let daemon = start_and_wait(&host);
        let page = request_and_close(&daemon.address, "GET", "/guide", &[]);
        let headers = ["User-Agent: curl/8", "Referer: https://search.example/?q=secret#x", "Accept-Encoding: gzip"];
        let coded = request_and_close(&daemon.address, "GET", "/guide?q=secret", &headers);
        let tag = format!("If-None-Match: {}", page.header("etag").expect("a tag"));
        request_and_close(&daemon.address, "HEAD", "/guide", &[]);
        request_and_close(&daemon.address, "GET", "/guide", &[&tag]);
        request_and_close(&daemon.address, "GET", "/logo.png", &["Range: bytes=0-4"]);
        request_and_close(&daemon.address, "GET", "/missing.js", &[]);
        request_and_close(&daemon.address, "DELETE", "/", &[]);
        let lines: Vec<Value> = wait_for_lines(&host, 7).iter().map(|line| json(line)).collect();
        let field = |n: usize, key: &str| lines[n][key].clone();
        let sizes: Vec<u64> = lines.iter().map(|line| line["bytes"].as_u64().expect("a number")).collect();
        let (full_len, gzip_len) = (page.body.len() as u64, coded.body.len() as u64);
        assert!(gzip_len < full_len);
        assert_eq!(
            sizes,
            [full_len, gzip_len, 0, 0, 5, "404: no such file\n".len() as u64, "405: method not allowed\n".len() as u64]
        );
        let statuses: Vec<u64> = lines.iter().map(|line| line["status"].as_u64().expect("a number")).collect();
        assert_eq!(statuses, [200, 200, 200, 304, 206, 404, 405]);
        assert_eq!(field(0, "client"), "127.0.0.0", "truncated by default");
        assert_eq!((field(1, "target"), field(1, "referrer")), ("/guide".into(), "https://search.example/".into()));
        assert_eq!(
            (field(1, "userAgent"), field(1, "method"), field(1, "protocol")),
            ("curl/8".into(), "GET".into(), "HTTP/1.1".into())
        );
        assert_eq!((field(2, "method"), field(6, "method")), ("HEAD".into(), "DELETE".into()));
        let active = host.active().expect("a version");
        for line in &lines {
            assert!(active.starts_with(line["version"].as_str().expect("an id")), "{line}");
            assert!(
                line["seconds"].as_f64().expect("a number") < 10.0 && !line.to_string().contains("secret"),
                "{line}"
            );
            assert!(line["time"].as_str().expect("a time").ends_with('Z'));
        }
        let StreamOutcome::Response { status: 200, body } = Http2Client::open(&daemon.address).get("/", &[]) else {
            panic!("an answer")
        };
        let line = json(&wait_for_lines(&host, 8)[7]);
        assert_eq!((&line["protocol"], &line["bytes"]), (&"HTTP/2.0".into(), &body.len().into()), "{http2}");
    }
}

#[test]
fn the_combined_log_format_is_standard_and_appends_seconds_and_version() {
    let host = host_with_log("combined")
        .set("access.logAddress", toml_string("full"))
        .set("server.trustedProxies", toml_string(PROXY))
        .set("access.header", toml_string("X-User"));
    let daemon = start_and_wait(&host);
    let headers = ["X-User: anna b", "X-Forwarded-For: 203.0.113.9", "User-Agent: a \"quoted\" \\ agent"];
    request_from(PROXY, &daemon.address, "GET", "/logo.png?x", &headers);
    // The user's name counts only from a trusted proxy.
    request_from(LOCAL, &daemon.address, "GET", "/", &["X-User: root", "X-Forwarded-For: 203.0.113.9"]);
    let lines = wait_for_lines(&host, 2);
    let id = &host.active().expect("a version")[..12];
    let (before, after) = lines[0].split_once('[').expect("a time");
    assert_eq!(before, "203.0.113.9 - anna\\x20b ");
    let (time, rest) = after.split_once(']').expect("its end");
    assert!(time.len() == 26 && time.ends_with(" +0000"), "{time}");
    let expected = " \"GET /logo.png HTTP/1.1\" 200 20 \"-\" \"a \\x22quoted\\x22 \\x5C agent\" ";
    let suffix = rest.strip_prefix(expected).unwrap_or_else(|| panic!("{rest}"));
    let (seconds, version) = suffix.split_once(' ').expect("seconds and version");
    assert!(seconds.parse::<f64>().is_ok() && version == id, "{suffix}");
    assert!(lines[1].starts_with("127.0.0.1 - - [") && lines[1].contains("\" 403 "), "{}", lines[1]);
}

#[test]
fn the_access_log_can_omit_the_client_address() {
    let host = host_with_log("json").set("access.logAddress", toml_string("none"));
    let daemon = start_and_wait(&host);
    request_and_close(&daemon.address, "GET", "/", &[]);
    assert_eq!(json(&wait_for_lines(&host, 1)[0]).get("client"), None);
}

#[test]
fn the_access_log_counts_the_bytes_sent_of_an_aborted_download() {
    let host = host_with_log("json");
    host.put("bundle.zip", large_bundle("large", 24 << 20));
    let daemon = start_and_wait(&host);
    let mut stream = support::http::connect(&daemon.address);
    stream.write_all(b"GET /noise.png HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
    let mut start = vec![0; 1 << 20];
    stream.read_exact(&mut start).expect("a part of it");
    assert_eq!(complete_lines(&host.path("access.log")).len(), 0, "the response is not complete yet");
    drop(stream);
    let line = json(&wait_for_lines(&host, 1)[0]);
    let bytes = line["bytes"].as_u64().expect("a number");
    assert!((1 << 19..24 << 20).contains(&bytes), "{line}");
    // A complete response counts all its bytes, and the time until the slow client has read them.
    let mut stream = support::http::connect(&daemon.address);
    let started = Instant::now();
    stream.write_all(b"GET /noise.png HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("the server reads");
    stream.read_exact(&mut start).expect("a part of it");
    // Buffers cannot hold half of it, so the response is not complete before the client reads on.
    let waited = started.elapsed() + Duration::from_millis(200);
    until("200 ms have passed", || started.elapsed() >= waited);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    let line = json(&wait_for_lines(&host, 2)[1]);
    assert_eq!(line["bytes"], 24 << 20, "{line}");
    assert!(line["seconds"].as_f64().expect("a number") >= 0.2, "{line}");
}

#[test]
fn a_request_cannot_inject_a_line_into_the_access_log() {
    for format in ["json", "combined"] {
        let host = host_with_log(format);
        let daemon = start_and_wait(&host);
        let hostile: [&[u8]; 9] = [
            b"x\r\n127.0.0.1 - - forged",
            b"x\n127.0.0.1 - - forged",
            b"x\r127.0.0.1 - - forged",
            b"\x1b[2Jcleared",
            b"\" 200 1 \"-\" \"forged",
            b"\\\", \"status\": 999, \"a\": \"",
            b"\xff\xfe\x80 \xc2\x9b31m",
            "\u{2028}forged\u{202e}".as_bytes(),
            b"tab\there",
        ];
        let mut answered = 0;
        for value in hostile {
            for field in ["User-Agent", "Referer"] {
                let mut stream = support::http::connect(&daemon.address);
                let mut head =
                    format!("GET /%0a%1b[2J%22?x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{field}: ").into_bytes();
                head.extend_from_slice(value);
                head.extend_from_slice(b"\r\n\r\n");
                stream.write_all(&head).expect("the server reads");
                let mut response = Vec::new();
                let _ = stream.read_to_end(&mut response);
                // hyper refuses malformed HTTP itself, and such a response is not logged.
                let is_own_response = response.windows(17).any(|w| w == b"400: bad request\n");
                answered += usize::from(is_own_response);
            }
        }
        assert!(answered >= 10, "{answered}");
        for line in wait_for_lines(&host, answered) {
            assert!(!line.chars().any(|c| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c)), "{line:?}");
            if format == "json" {
                assert_eq!(json(&line)["status"], 400, "{line}");
            } else {
                assert_eq!(line.matches('"').count(), 6, "{line}");
                assert!(line.is_ascii() && line.starts_with("127.0.0.0 - - ["), "{line}");
            }
        }
    }
}

#[test]
fn sighup_reopens_an_access_log_that_was_renamed() {
    let host = host_with_log("json");
    let daemon = start_and_wait(&host);
    request_and_close(&daemon.address, "GET", "/before", &[]);
    wait_for_lines(&host, 1);
    std::fs::rename(host.path("access.log"), host.path("access.log.1")).expect("files can be renamed");
    request_and_close(&daemon.address, "GET", "/between", &[]);
    until("the line is in the renamed file", || complete_lines(&host.path("access.log.1")).len() == 2);
    daemon.signal("HUP");
    until("the new file exists", || host.path("access.log").exists());
    request_and_close(&daemon.address, "GET", "/after", &[]);
    assert_eq!(json(&wait_for_lines(&host, 1)[0])["target"], "/after");
    assert_eq!(complete_lines(&host.path("access.log.1")).len(), 2);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(host.path("access.log")).expect("a file").permissions(),
    );
    assert_eq!(mode & 0o137, 0, "other users have no access: {mode:o}");
}

#[test]
fn stdout_has_addresses_then_log_lines_and_a_shutdown_loses_no_line() {
    let host = host().set("access.log", toml_string("json"));
    let mut child = host.command(&["run"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut first = String::new();
    stdout.read_line(&mut first).expect("a line");
    let address = first.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    for _ in 0..200 {
        get(&address, "/guide");
    }
    send_signal(&child, "TERM");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("lines");
    assert!(child.wait().expect("it ends").success());
    let lines: Vec<Value> = rest.lines().map(json).collect();
    assert_eq!(lines.iter().filter(|line| line["target"] == "/guide").count(), 200);
}

#[test]
fn requests_are_not_logged_when_the_access_log_is_off() {
    let host = host();
    let mut child = host.command(&["run"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut first = String::new();
    stdout.read_line(&mut first).expect("a line");
    let address = first.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    until("it is served", || get(&address, "/guide?noticed").status == 200);
    send_signal(&child, "TERM");
    let output = child.wait_with_output().expect("it ends");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the end");
    assert_eq!(rest, "");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("guide"));
}

fn dropped_lines(host: &Host) -> u64 {
    metrics::value(&host.reported_address("admin"), "docwharf_access_log_dropped_lines_total")
}

#[test]
fn a_full_disk_drops_access_log_lines_but_the_site_is_served() {
    let host = host().set("access.log", toml_string("json")).set("access.logFile", toml_string("/dev/full"));
    let daemon = start_and_wait(&host);
    for _ in 0..100 {
        assert_eq!(request_and_close(&daemon.address, "GET", "/guide", &[]).status, 200);
    }
    until("dropped lines are counted", || dropped_lines(&host) == 100);
    until("dropped lines are reported", || log_text(&host).contains("of the access log dropped"));
    assert!(log_text(&host).contains("/dev/full"), "{}", log_text(&host));
    assert_eq!(log_text(&host).matches("of the access log dropped").count(), 1, "at most one report a minute");
}

#[test]
fn an_unread_stdout_pipe_drops_access_log_lines_but_the_site_is_served() {
    let host = host().set("access.log", toml_string("json"));
    let messages_to = std::fs::File::create(host.path("messages")).expect("a file");
    let mut command = host.command(&["run"]);
    let mut child = KillOnDrop(command.stdout(Stdio::piped()).stderr(messages_to).spawn().expect("it starts"));
    let mut stdout = child.0.stdout.take().expect("it is piped");
    let mut first = Vec::new();
    let mut byte = [0];
    while first.last() != Some(&b'\n') {
        stdout.read_exact(&mut byte).expect("an address");
        first.push(byte[0]);
    }
    let address = String::from_utf8(first).expect("text");
    let address = address.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    until("it is served", || request_and_close(&address, "GET", "/", &[]).status == 200);
    // More lines than the pipe and the queue hold.
    let mut connection = PersistentConnection::open(&address);
    let request = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
    for _ in 0..400 {
        connection.send(request.repeat(50));
        for _ in 0..50 {
            assert_eq!(connection.response(true).status, 200);
        }
    }
    assert_eq!(request_and_close(&address, "GET", "/guide", &[]).status, 200);
    assert!(dropped_lines(&host) > 0);
    until("the dropped lines are reported", || log_text(&host).contains("too slow"));
    // The full pipe does not delay the shutdown either.
    send_signal(&child.0, "TERM");
    assert_eq!(child.wait(Duration::from_secs(10)), Some(0));
    drop(stdout);
}

/// Makes a named pipe and fills it. The returned file has both ends open but never reads, so writers can open the pipe.
fn open_full_pipe(path: &Path) -> std::fs::File {
    assert!(std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
    let mut pipe =
        OpenOptions::new().read(true).write(true).custom_flags(O_NONBLOCK).open(path).expect("both its ends");
    for size in [4096, 1] {
        while pipe.write(&vec![b'\n'; size]).is_ok() {}
    }
    pipe
}

/// The value on x86-64 and `AArch64` Linux.
const O_NONBLOCK: i32 = 0o4000;

// Regression: long addresses and user agents made the queue of a slow access log take 279 MB.
#[test]
fn the_access_log_queue_is_limited_by_bytes_and_not_only_by_lines() {
    let host = host_with_log("json");
    let _pipe = open_full_pipe(&host.path("access.log"));
    let daemon = start_and_wait(&host);
    let mut connection = PersistentConnection::open(&daemon.address);
    // Far fewer lines than the queue admits, each as long as a client can make it.
    let long = "\t\u{80}".repeat(2_000);
    let head =
        format!("HEAD /{} HTTP/1.1\r\nHost: x\r\nUser-Agent: x{long}x\r\nReferer: x{long}x\r\n\r\n", "a".repeat(2_000));
    for _ in 0..2_000 {
        connection.send(&head);
        assert_eq!(connection.response(true).status, 404);
    }
    let dropped = dropped_lines(&host);
    assert!((1..2_000).contains(&dropped), "{dropped}");
}

// Regression: SIGHUP could not replace an access log that was a full pipe by a file.
#[test]
fn sighup_replaces_a_full_access_log_pipe_with_a_file_and_loses_no_line() {
    let host = host_with_log("json");
    let _pipe = open_full_pipe(&host.path("access.log"));
    let daemon = start_and_wait(&host);
    request_and_close(&daemon.address, "GET", "/before", &[]);
    std::fs::rename(host.path("access.log"), host.path("pipe")).expect("files can be renamed");
    daemon.signal("HUP");
    // The line that waited is written completely to the new file.
    until("the waiting line is in the new file", || complete_lines(&host.path("access.log")).len() == 1);
    request_and_close(&daemon.address, "GET", "/after", &[]);
    let targets: Vec<Value> = wait_for_lines(&host, 2).iter().map(|line| json(line)["target"].clone()).collect();
    assert_eq!(targets, ["/before", "/after"]);
    assert_eq!(dropped_lines(&host), 0);
}

// Regression: lines that a full pipe had not accepted when the server ended were not reported.
#[test]
fn access_log_lines_dropped_at_shutdown_are_reported() {
    let host = host_with_log("json");
    let _pipe = open_full_pipe(&host.path("access.log"));
    let mut daemon = start_and_wait(&host);
    for _ in 0..3 {
        request_and_close(&daemon.address, "GET", "/guide", &[]);
    }
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    // On a busy machine, some lines may be reported before the stop.
    let log = log_text(&host);
    let dropped = |line: &str| -> Option<u64> {
        let (before, _) = line.split_once(" of the access log dropped")?;
        before.split_whitespace().nth_back(1)?.parse().ok()
    };
    assert_eq!(log.lines().filter_map(dropped).sum::<u64>(), 3, "{log}");
}

// ---------------------------------------------------------------------------------------------------------------------
// Changes of the configuration, and `serve` of a single bundle

// Regression: access could not be restricted without a restart.
#[test]
fn changed_access_rules_apply_without_a_restart_and_to_open_connections() {
    let mut host = host()
        .set("server.listen", toml_string("0.0.0.0:0"))
        .set("server.trustedProxies", toml_string(PROXY))
        .set("access.allow", toml_string(LOCAL));
    let daemon = start_and_wait(&host);
    let mut connection = PersistentConnection::open(&daemon.address);
    let mut status = || {
        connection.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        connection.response(false).status
    };
    let status_via_proxy = || request_from(PROXY, &daemon.address, "GET", "/", &["X-Forwarded-For: 127.0.0.2"]).status;
    assert_eq!((status(), status_via_proxy()), (200, 403));
    host.change("access.allow", toml_string(OTHER_CLIENT));
    until("the new list is in force", || status() == 403);
    assert_eq!(status_via_proxy(), 200);
    host.change("access.allow", "[]");
    until("the invalid value is reported", || log_text(&host).contains("stays in force"));
    assert_eq!((status(), status_via_proxy()), (403, 200), "the invalid value changes nothing");
    host.change("access.allow", toml_string(OTHER_CLIENT));
    host.change("server.trustedProxies", toml_string("127.0.0.4"));
    until("the former proxy is not trusted any more", || status_via_proxy() == 403);
    let warning = "set access.allow or access.header";
    assert!(!log_text(&host).contains(warning), "{}", log_text(&host));
    host.remove("access.allow");
    until("every client may read", || status() == 200);
    until("the warning is logged", || log_text(&host).contains(warning));
    assert!(!log_text(&host).contains("needs a restart"), "{}", log_text(&host));
}

// Regression: `serve` gave no warning that a site is public, and ignored `[access]` of the configuration that was
// named.
#[test]
fn serve_applies_the_access_rules_and_log_of_the_given_configuration() {
    let host = Host::bare()
        .set("server.trustedProxies", toml_string(PROXY))
        .set("access.allow", toml_string(OTHER_CLIENT))
        .set("access.log", toml_string("json"))
        .set("access.logFile", toml_string("access.log"));
    host.put("bundle.zip", bundle("one"));
    let path = host.path("bundle.zip");
    let arguments = ["serve", path.to_str().expect("text"), "--listen", "0.0.0.0:0"];
    let log = |host: &Host| std::fs::File::create(host.path("messages")).expect("a file");
    let mut daemon = Daemon::start(host.command(&arguments).stderr(log(&host)));
    let status = |source, headers: &[&str]| request_from(source, &daemon.address, "GET", "/guide", headers).status;
    assert_eq!((status(LOCAL, &[]), status(OTHER_CLIENT, &[])), (403, 200));
    assert_eq!(status(LOCAL, &["X-Forwarded-For: 127.0.0.2"]), 403);
    assert_eq!(status(PROXY, &["X-Forwarded-For: 127.0.0.2"]), 200);
    assert!(log_text(&host).lines().all(|line| line.contains(": version ")), "{}", log_text(&host));
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    assert_eq!(complete_lines(&host.path("access.log")).len(), 4);
    // Without access control, the warning is printed before the listener opens.
    let open = Host::bare();
    let _daemon = Daemon::start(open.command(&arguments).stderr(log(&open)));
    let stderr = log_text(&open);
    assert!(stderr.contains("every client that can reach 0.0.0.0:") && stderr.contains("--config"), "{stderr}");
    let _daemon =
        Daemon::start(open.command(&[arguments[0], arguments[1], "--listen", LOCAL_LISTENER]).stderr(log(&open)));
    assert!(!log_text(&open).contains("warning"), "this machine only: {}", log_text(&open));
}

const LOCAL_LISTENER: &str = "127.0.0.1:0";

/// RFC 9111, 5.2.2.7: without `private`, a shared cache would send the response to clients without access.
// Regression: shared caches could store hashed assets and 404 responses of a site that `[access]` restricts.
#[test]
fn cache_control_has_private_when_access_is_restricted() {
    let pages = zip(&[
        deflated("index.html", "home"),
        deflated("app.0ab12cd3.js", "x"),
        deflated("own.html", "x"),
        deflated("odd.html", "x"),
        deflated(
            "_headers",
            "/own.html\n  Cache-Control: max-age=600\n\
             /odd.html\n  Cache-Control: no-transform, private=\"x-a\"\n  Expires: Thu, 01 Dec 2037 16:00:00 GMT\n",
        ),
    ]);
    for (allow, is_open) in [("[]", true), ("[\"127.0.0.0/8\"]", false)] {
        let host = host().set("access.allow", allow);
        let host = if is_open { host.without("access.allow") } else { host };
        host.put("bundle.zip", &pages);
        let daemon = start_and_wait(&host);
        let cache_control =
            |target: &str| get(&daemon.address, target).header("cache-control").unwrap_or("").to_owned();
        let private = if is_open { "" } else { "private, " };
        assert_eq!(cache_control("/app.0ab12cd3.js"), format!("{private}max-age=31536000, immutable"));
        assert_eq!(cache_control("/own.html"), format!("{private}max-age=600"));
        assert_eq!(cache_control("/none.js"), format!("{private}max-age=60"));
        assert_eq!(cache_control("/odd.html"), format!("{private}no-transform, private=\"x-a\""));
        assert_eq!(cache_control("/"), format!("{private}no-cache"));
    }
}

// Regression: a 403 response had the site's policy, and so the hosts that the site needs.
#[test]
fn a_403_response_has_no_content_security_policy() {
    for preset in ["report", "connected", "airgap"] {
        let host = host().set("access.allow", "[\"127.0.0.2\"]").set("server.csp", toml_string(preset));
        host.put("bundle.zip", zip(&[deflated("index.html", "<script src=https://inside.example/x.js></script>")]));
        let daemon = start_and_wait(&host);
        let field = if preset == "report" { "content-security-policy-report-only" } else { "content-security-policy" };
        until("the policy is known", || {
            let response = request_from(OTHER_CLIENT, &daemon.address, "GET", "/", &[]);
            preset == "airgap" || response.header(field).is_some_and(|policy| policy.contains("inside.example"))
        });
        let refused = get(&daemon.address, "/");
        assert_eq!((refused.status, refused.header(field)), (403, None), "{preset}");
    }
}
