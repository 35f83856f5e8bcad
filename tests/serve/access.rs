//! Who may read, whose word counts about who asks, and what is written down of it.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, Socket, Type};
use support::h2::{Answer, Client};
use support::host::{Host, bundle, large_bundle, text};
use support::http::{PersistentConnection, Response, exchange, get, single};
use support::zip::{deflated, zip};
use support::{Daemon, until};

/// The address that tests come from unless they say otherwise.
const HERE: &str = "127.0.0.1";
const ELSEWHERE: &str = "127.0.0.2";
const PROXY: &str = "127.0.0.3";

fn host() -> Host {
    let host = Host::bare()
        .set("staticExport.bundleUrl", text("bundle.zip"))
        .set("sync.interval", text("1h"))
        .set("admin.listen", text("127.0.0.1:0"));
    host.put("bundle.zip", bundle("one"));
    host
}

/// One that is served; how is asked on the admin side, which asks nobody who they are.
fn served(host: &Host) -> Daemon {
    let log = std::fs::File::create(host.path("messages")).expect("a file");
    let daemon = Daemon::start(host.command(&["run"]).stderr(log));
    let admin = admin(host);
    until("a version is served", || get(&admin, "/readyz").status == 200);
    daemon
}

fn admin(host: &Host) -> String {
    let address = || host.status()["daemon"]["admin"][0].as_str().map(str::to_owned);
    until("the admin side listens", || address().is_some());
    address().expect("an address").trim_start_matches("http://").trim_end_matches('/').to_owned()
}

fn messages(host: &Host) -> String {
    std::fs::read_to_string(host.path("messages")).expect("a file")
}

/// A connection that comes from this address of this machine.
fn connect_from(source: &str, address: &str) -> TcpStream {
    let source: IpAddr = source.parse().expect("an address");
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::new(source, 0).into()).expect("all of 127.0.0.0/8 is this machine");
    socket.connect(&address.parse::<SocketAddr>().expect("an address").into()).expect("the server accepts");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
    socket.into()
}

/// One request from there.
fn asks(source: &str, address: &str, method: &str, target: &str, headers: &[&str]) -> Response {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: docs.example\r\nConnection: close\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    head.push_str("\r\n");
    exchange(connect_from(source, address), head.as_bytes(), method == "HEAD")
}

/// What does not depend on the time.
fn fields(response: &Response) -> Vec<(String, String)> {
    response.headers.iter().filter(|(name, _)| name != "date").cloned().collect()
}

#[test]
fn only_listed_addresses_are_answered_and_a_refusal_says_nothing() {
    let host = host().set("access.allow", "[\"127.0.0.2\", \"2001:db8::/32\"]");
    let daemon = served(&host);
    let asks = |source, method, target, headers: &[&str]| asks(source, &daemon.address, method, target, headers);
    assert_eq!(asks(ELSEWHERE, "GET", "/guide", &[]).status, 200);
    let refused = asks(HERE, "GET", "/guide", &[]);
    assert_eq!((refused.status, refused.header("cache-control")), (403, Some("no-store")));
    assert!(refused.body.len() < 100 && refused.header("content-type") == Some("text/plain; charset=utf-8"));
    for target in ["/", "/missing", "/missing.js", "/logo.png", "/guide/", "/%00", "/..%2f", "/_docwharf/search", "*"] {
        for method in ["GET", "HEAD", "OPTIONS", "POST", "BREW"] {
            let more = ["If-None-Match: *", "Range: bytes=0-0", "Accept-Encoding: gzip", "X-Forwarded-For: 127.0.0.2"];
            for headers in [&more[..0], &more] {
                let answer = asks(HERE, method, target, headers);
                assert_eq!(answer.status, 403, "{method} {target}");
                assert_eq!(fields(&answer), fields(&refused), "{method} {target}");
                assert!(method == "HEAD" || answer.body == refused.body, "{method} {target}");
            }
        }
    }
    // Over HTTP/2, too.
    let answer = Client::open(&daemon.address).get("/guide", &[]);
    assert_eq!(answer, Answer::Response { status: 403, body: refused.body.clone() });
    // Health is nobody's secret, and not asked for here.
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(get(&admin(&host), path).status, 200, "{path}");
    }
    // A refusal leaves the connection usable.
    let mut connection = PersistentConnection::open(&daemon.address);
    for _ in 0..3 {
        connection.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(connection.response(false).status, 403);
    }
}

#[test]
fn a_refusal_is_the_same_where_rules_of_the_site_add_fields() {
    let host = host().set("access.allow", text(ELSEWHERE));
    let rules = "/guide\n  X-There: yes\n";
    host.put(
        "bundle.zip",
        zip(&[deflated("index.html", "home"), deflated("guide.html", "x"), deflated("_headers", rules)]),
    );
    let daemon = served(&host);
    assert_eq!(asks(ELSEWHERE, &daemon.address, "GET", "/guide", &[]).header("x-there"), Some("yes"));
    let (there, nowhere) = ["/guide", "/missing"].map(|target| asks(HERE, &daemon.address, "GET", target, &[])).into();
    assert_eq!((there.status, fields(&there)), (403, fields(&nowhere)));
}

#[test]
fn the_field_of_a_proxy_that_signs_in_counts_from_that_proxy_only() {
    let host = host().set("server.trustedProxies", text(PROXY)).set("access.header", text("X-Forwarded-User"));
    let daemon = served(&host);
    let status = |source, headers: &[&str]| asks(source, &daemon.address, "GET", "/", headers).status;
    assert_eq!(status(PROXY, &["X-Forwarded-User: anna"]), 200);
    assert_eq!(status(PROXY, &["x-forwarded-user: anna"]), 200);
    for wrong in [
        &[][..],
        &["X-Forwarded-User:"],
        &["X-Forwarded-User:  \t "],
        // The client's own, and the proxy's behind it.
        &["X-Forwarded-User: root", "X-Forwarded-User: anna"],
        &["X_Forwarded_User: anna"],
        &["X-Forwarded-Users: anna"],
    ] {
        assert_eq!(status(PROXY, wrong), 403, "{wrong:?}");
    }
    for stranger in [HERE, ELSEWHERE] {
        let forged = ["X-Forwarded-User: anna", "X-Forwarded-For: 127.0.0.3", "Forwarded: for=127.0.0.3"];
        assert_eq!(status(stranger, &forged), 403);
    }
}

#[test]
fn addresses_and_the_field_must_both_hold_and_a_proxy_lets_nobody_in_by_its_own_address() {
    let host = host()
        .set("server.trustedProxies", text(PROXY))
        .set("access.header", text("X-Forwarded-User"))
        .set("access.allow", "[\"203.0.113.0/24\", \"127.0.0.0/8\"]");
    let daemon = served(&host);
    let status = |headers: &[&str]| {
        let all: Vec<&str> = headers.iter().copied().chain(["X-Forwarded-User: anna"]).collect();
        asks(PROXY, &daemon.address, "GET", "/", &all).status
    };
    assert_eq!(status(&["X-Forwarded-For: 203.0.113.9"]), 200);
    assert_eq!(status(&["X-Forwarded-For: 198.51.100.1, 203.0.113.9"]), 200);
    assert_eq!(status(&["Forwarded: for=203.0.113.9;proto=https"]), 200);
    assert_eq!(status(&["X-Forwarded-For: ::ffff:203.0.113.9"]), 200);
    for wrong in [
        // Whoever stands behind it may be anybody.
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
    let unsigned = asks(PROXY, &daemon.address, "GET", "/", &["X-Forwarded-For: 203.0.113.9"]);
    assert_eq!(unsigned.status, 403, "the address alone does not do");
    assert_eq!(asks(HERE, &daemon.address, "GET", "/", &[]).status, 403);
}

#[test]
fn what_is_waiting_to_become_active_is_shown_on_its_own_listener_whoever_may_read() {
    let host = host()
        .set("access.allow", text("203.0.113.0/24"))
        .set("activate.mode", text("manual"))
        .set("activate.listen", text("127.0.0.1:0"));
    let _daemon = Daemon::start(&mut host.command(&["run"]));
    let staged = host.status()["daemon"]["staged"][0].as_str().expect("it listens there").to_owned();
    let staged = staged.trim_start_matches("http://").trim_end_matches('/');
    until("it is shown", || get(staged, "/guide").status == 200);
}

#[test]
fn mistakes_in_access_are_lines_that_name_their_key() {
    for (key, value, says) in [
        ("server.trustedProxies", "[\"10.0.0.0/33\"]", "no range of addresses"),
        ("server.trustedProxies", "[\"10.1.0.0/8\"]", "10.0.0.0/8"),
        ("access.allow", "[\"office\"]", "no range of addresses"),
        ("access.allow", "[]", "nobody"),
        ("access.header", "\"X-User\"", "server.trustedProxies"),
        ("access.log", "\"on\"", "combined"),
        ("access.logAddress", "\"some\"", "truncated"),
        ("access.logFile", "\"/\"", "name a file in it"),
        ("access.logFile", "\".\"", "name a file in it"),
        ("access.logFile", "\"logs/\"", "name a file in it"),
    ] {
        let ended = Host::bare().set(key, value).ends(2, &["config", "check"]);
        assert!(ended.stderr.contains(key) && ended.stderr.contains(says), "{key}: {}", ended.stderr);
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
        let host = Host::bare().set("server.trustedProxies", text(PROXY)).set("access.header", text(name));
        let ended = host.ends(2, &["config", "check"]);
        assert!(ended.stderr.contains("access.header"), "{name}: {}", ended.stderr);
    }
    for name in ["X-Forwarded-User", "X-Forwarded-Email", "Remote-User", "X-Auth-Request-User", "X-WEBAUTH-USER"] {
        Host::bare()
            .set("sync.inbox", text("inbox"))
            .set("server.trustedProxies", text(PROXY))
            .set("access.header", text(name))
            .ok(&["config", "check"]);
    }
    let host = host().set("access.log", text("json")).set("access.logFile", text("no/such/folder/access.log"));
    let ended = host.ends(8, &["run"]);
    assert!(ended.stderr.contains("access.log") && ended.stdout.is_empty(), "{}", ended.stderr);
}

#[test]
fn a_site_for_everybody_who_can_reach_it_is_worth_a_warning_and_one_for_some_is_not() {
    let says = "set access.allow or access.header";
    let told = |host: &Host| {
        let looked = host.command(&["doctor", "--offline"]).output().expect("it runs");
        let looked = String::from_utf8_lossy(&looked.stdout).into_owned();
        let checked = host.ok(&["config", "check"]).stderr;
        let _daemon = served(host);
        until("the agent has begun", || messages(host).contains("is active"));
        [looked, checked, messages(host)].map(|text| text.contains(says))
    };
    let open = host().set("server.listen", text("0.0.0.0:0"));
    assert_eq!(told(&open), [true; 3]);
    assert_eq!(told(&host()), [false; 3], "this machine only");
    let both = host().set("server.listen", "[\"127.0.0.1:0\", \"0.0.0.0:0\"]");
    assert_eq!(told(&both), [true; 3], "an address behind one of this machine");
    let guarded = host().set("server.listen", text("0.0.0.0:0")).set("access.allow", text("127.0.0.0/8"));
    assert_eq!(told(&guarded), [false; 3]);
}

// ---------------------------------------------------------------------------------------------------------------------
// What is written down

fn logged(format: &str) -> Host {
    host().set("access.log", text(format)).set("access.logFile", text("access.log"))
}

fn lines(path: &Path) -> Vec<String> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    String::from_utf8(bytes[..whole].to_vec()).expect("lines are UTF-8").lines().map(str::to_owned).collect()
}

/// The lines, once there are so many.
#[track_caller]
fn wait_for(host: &Host, count: usize) -> Vec<String> {
    until("the lines are written", || lines(&host.path("access.log")).len() >= count);
    let lines = lines(&host.path("access.log"));
    assert_eq!(lines.len(), count, "{lines:#?}");
    lines
}

fn json(line: &str) -> Value {
    serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
}

#[test]
fn fields_that_are_too_large_are_refused_over_http_2_as_everything_else_is() {
    let host = logged("json");
    let daemon = served(&host);
    let value = "v".repeat(60_000);
    let large = [("user-agent", "large"), ("x-first", value.as_str()), ("x-second", value.as_str())];
    let mut client = Client::open(&daemon.address);
    let Answer::Response { status: 431, body } = client.get("/guide?q=secret", &large) else { panic!("no 431") };
    let line = json(&wait_for(&host, 1)[0]);
    assert_eq!(
        (&line["status"], &line["target"], &line["userAgent"]),
        (&431.into(), &"/guide".into(), &"large".into())
    );
    assert_eq!(line["bytes"], body.len());
    // A target that is too large itself.
    let target = format!("/{value}{value}");
    assert!(matches!(client.get(&target, &[]), Answer::Response { status: 431, .. }));
    let line = json(&wait_for(&host, 2)[1]);
    assert_eq!((&line["status"], &line["method"], &line["protocol"]), (&431.into(), &"GET".into(), &"HTTP/2.0".into()));
    // Those who may not read the site hear the same as to everything else.
    let daemon = served(&self::host().set("access.allow", text("192.0.2.0/24")));
    let mut client = Client::open(&daemon.address);
    assert!(matches!(client.get("/guide", &large), Answer::Response { status: 403, .. }));
}

#[test]
fn each_answer_is_a_line_with_what_was_sent_and_no_query() {
    let host = logged("json");
    let daemon = served(&host);
    let page = single(&daemon.address, "GET", "/guide", &[]);
    let headers = ["User-Agent: curl/8", "Referer: https://search.example/?q=secret#x", "Accept-Encoding: gzip"];
    let coded = single(&daemon.address, "GET", "/guide?q=secret", &headers);
    let tag = format!("If-None-Match: {}", page.header("etag").expect("a tag"));
    single(&daemon.address, "HEAD", "/guide", &[]);
    single(&daemon.address, "GET", "/guide", &[&tag]);
    single(&daemon.address, "GET", "/logo.png", &["Range: bytes=0-4"]);
    single(&daemon.address, "GET", "/missing.js", &[]);
    single(&daemon.address, "DELETE", "/", &[]);
    let lines: Vec<Value> = wait_for(&host, 7).iter().map(|line| json(line)).collect();
    let of = |n: usize, key: &str| lines[n][key].clone();
    let sizes: Vec<u64> = lines.iter().map(|line| line["bytes"].as_u64().expect("a number")).collect();
    let (whole, gzip) = (page.body.len() as u64, coded.body.len() as u64);
    assert!(gzip < whole);
    assert_eq!(
        sizes,
        [whole, gzip, 0, 0, 5, "404: no such file\n".len() as u64, "405: method not allowed\n".len() as u64]
    );
    let statuses: Vec<u64> = lines.iter().map(|line| line["status"].as_u64().expect("a number")).collect();
    assert_eq!(statuses, [200, 200, 200, 304, 206, 404, 405]);
    assert_eq!(of(0, "client"), "127.0.0.0", "truncated, unless it says otherwise");
    assert_eq!((of(1, "target"), of(1, "referrer")), ("/guide".into(), "https://search.example/".into()));
    assert_eq!(
        (of(1, "userAgent"), of(1, "method"), of(1, "protocol")),
        ("curl/8".into(), "GET".into(), "HTTP/1.1".into())
    );
    assert_eq!((of(2, "method"), of(6, "method")), ("HEAD".into(), "DELETE".into()));
    let active = host.active().expect("a version");
    for line in &lines {
        assert!(active.starts_with(line["version"].as_str().expect("an id")), "{line}");
        assert!(line["seconds"].as_f64().expect("a number") < 10.0 && !line.to_string().contains("secret"), "{line}");
        assert!(line["time"].as_str().expect("a time").ends_with('Z'));
    }
    let Answer::Response { status: 200, .. } = Client::open(&daemon.address).get("/", &[]) else { panic!("an answer") };
    assert_eq!(json(&wait_for(&host, 8)[7])["protocol"], "HTTP/2.0");
}

#[test]
fn the_combined_format_is_that_of_other_servers_with_seconds_and_version_behind_it() {
    let host = logged("combined")
        .set("access.logAddress", text("full"))
        .set("server.trustedProxies", text(PROXY))
        .set("access.header", text("X-User"));
    let daemon = served(&host);
    let headers = ["X-User: anna b", "X-Forwarded-For: 203.0.113.9", "User-Agent: a \"quoted\" \\ agent"];
    asks(PROXY, &daemon.address, "GET", "/logo.png?x", &headers);
    // Whom nobody has signed in has no name, whatever is sent.
    asks(HERE, &daemon.address, "GET", "/", &["X-User: root", "X-Forwarded-For: 203.0.113.9"]);
    let lines = wait_for(&host, 2);
    let id = &host.active().expect("a version")[..12];
    let (before, after) = lines[0].split_once('[').expect("a time");
    assert_eq!(before, "203.0.113.9 - anna\\x20b ");
    let (time, rest) = after.split_once(']').expect("its end");
    assert!(time.len() == 26 && time.ends_with(" +0000"), "{time}");
    let expected = " \"GET /logo.png HTTP/1.1\" 200 20 \"-\" \"a \\x22quoted\\x22 \\x5C agent\" ";
    let behind = rest.strip_prefix(expected).unwrap_or_else(|| panic!("{rest}"));
    let (seconds, version) = behind.split_once(' ').expect("two more");
    assert!(seconds.parse::<f64>().is_ok() && version == id, "{behind}");
    assert!(lines[1].starts_with("127.0.0.1 - - [") && lines[1].contains("\" 403 "), "{}", lines[1]);
}

#[test]
fn an_address_may_be_left_out() {
    let host = logged("json").set("access.logAddress", text("none"));
    let daemon = served(&host);
    single(&daemon.address, "GET", "/", &[]);
    assert_eq!(json(&wait_for(&host, 1)[0]).get("client"), None);
}

#[test]
fn what_was_broken_off_is_told_with_what_was_sent() {
    let host = logged("json");
    host.put("bundle.zip", large_bundle("large", 24 << 20));
    let daemon = served(&host);
    let mut stream = support::http::connect(&daemon.address);
    stream.write_all(b"GET /noise.png HTTP/1.1\r\nHost: x\r\n\r\n").expect("the server reads");
    let mut some = vec![0; 1 << 20];
    stream.read_exact(&mut some).expect("a part of it");
    assert_eq!(lines(&host.path("access.log")).len(), 0, "it is not over yet");
    drop(stream);
    let line = json(&wait_for(&host, 1)[0]);
    let bytes = line["bytes"].as_u64().expect("a number");
    assert!((1 << 19..24 << 20).contains(&bytes), "{line}");
    // Read to its end, it is all of it, and the time is that of the slow reader.
    let mut stream = support::http::connect(&daemon.address);
    let begun = Instant::now();
    stream.write_all(b"GET /noise.png HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("the server reads");
    stream.read_exact(&mut some).expect("a part of it");
    // Half of it cannot lie in buffers: until it is read, the answer is not over.
    let waited = begun.elapsed() + Duration::from_millis(200);
    until("some time goes by", || begun.elapsed() >= waited);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the rest");
    let line = json(&wait_for(&host, 2)[1]);
    assert_eq!(line["bytes"], 24 << 20, "{line}");
    assert!(line["seconds"].as_f64().expect("a number") >= 0.2, "{line}");
}

#[test]
fn no_request_forges_a_line() {
    for format in ["json", "combined"] {
        let host = logged(format);
        let daemon = served(&host);
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
                let mut answer = Vec::new();
                let _ = stream.read_to_end(&mut answer);
                // What is no request at all is refused before anybody could be told of it.
                let ours = answer.windows(17).any(|w| w == b"400: bad request\n");
                answered += usize::from(ours);
            }
        }
        assert!(answered >= 10, "{answered}");
        for line in wait_for(&host, answered) {
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
fn a_log_that_was_moved_away_goes_on_in_a_new_file_after_a_hangup() {
    let host = logged("json");
    let daemon = served(&host);
    single(&daemon.address, "GET", "/before", &[]);
    wait_for(&host, 1);
    std::fs::rename(host.path("access.log"), host.path("access.log.1")).expect("files can be renamed");
    single(&daemon.address, "GET", "/between", &[]);
    until("the old file goes on", || lines(&host.path("access.log.1")).len() == 2);
    daemon.signal("HUP");
    until("there is a new one", || host.path("access.log").exists());
    single(&daemon.address, "GET", "/after", &[]);
    assert_eq!(json(&wait_for(&host, 1)[0])["target"], "/after");
    assert_eq!(lines(&host.path("access.log.1")).len(), 2);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(host.path("access.log")).expect("a file").permissions(),
    );
    assert_eq!(mode & 0o137, 0, "others need not know: {mode:o}");
}

#[test]
fn the_standard_output_has_addresses_first_then_lines_and_a_stop_loses_none() {
    let host = host().set("access.log", text("json"));
    let mut child = host.command(&["run"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut first = String::new();
    stdout.read_line(&mut first).expect("a line");
    let address = first.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    for _ in 0..200 {
        get(&address, "/guide");
    }
    let pid = child.id().to_string();
    assert!(std::process::Command::new("kill").arg(&pid).status().expect("kill runs").success());
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("lines");
    assert!(child.wait().expect("it ends").success());
    let lines: Vec<Value> = rest.lines().map(json).collect();
    assert_eq!(lines.iter().filter(|line| line["target"] == "/guide").count(), 200);
}

#[test]
fn without_a_log_nothing_is_written_down() {
    let host = host();
    let mut child = host.command(&["run"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut first = String::new();
    stdout.read_line(&mut first).expect("a line");
    let address = first.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    until("it is served", || get(&address, "/guide?noticed").status == 200);
    assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().expect("kill runs").success());
    let output = child.wait_with_output().expect("it ends");
    let mut rest = String::new();
    stdout.read_to_string(&mut rest).expect("the end");
    assert_eq!(rest, "");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("guide"));
}

fn dropped(host: &Host) -> u64 {
    let text = get(&admin(host), "/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix("docwharf_access_log_dropped_lines_total "));
    line.expect("it is counted").parse().expect("a number")
}

#[test]
fn a_full_disk_stops_the_log_and_not_the_site() {
    let host = host().set("access.log", text("json")).set("access.logFile", text("/dev/full"));
    let daemon = served(&host);
    for _ in 0..100 {
        assert_eq!(single(&daemon.address, "GET", "/guide", &[]).status, 200);
    }
    until("what is lost is counted", || dropped(&host) == 100);
    until("and told", || messages(&host).contains("of the access log dropped"));
    assert!(messages(&host).contains("/dev/full"), "{}", messages(&host));
    assert_eq!(messages(&host).matches("of the access log dropped").count(), 1, "once a minute");
}

#[test]
fn a_pipe_that_nobody_reads_stops_the_log_and_not_the_site() {
    let host = host().set("access.log", text("json"));
    let messages_to = std::fs::File::create(host.path("messages")).expect("a file");
    let mut child = host.command(&["run"]).stdout(Stdio::piped()).stderr(messages_to).spawn().expect("it starts");
    let mut stdout = child.stdout.take().expect("it is piped");
    let mut first = Vec::new();
    let mut byte = [0];
    while first.last() != Some(&b'\n') {
        stdout.read_exact(&mut byte).expect("an address");
        first.push(byte[0]);
    }
    let address = String::from_utf8(first).expect("text");
    let address = address.trim().trim_start_matches("http://").trim_end_matches('/').to_owned();
    until("it is served", || single(&address, "GET", "/", &[]).status == 200);
    // More lines than the pipe and the queue hold.
    let mut connection = PersistentConnection::open(&address);
    let one = "HEAD / HTTP/1.1\r\nHost: x\r\n\r\n";
    for _ in 0..400 {
        connection.send(one.repeat(50));
        for _ in 0..50 {
            assert_eq!(connection.response(true).status, 200);
        }
    }
    let begun = Instant::now();
    assert_eq!(single(&address, "GET", "/guide", &[]).status, 200);
    assert!(begun.elapsed() < Duration::from_secs(5));
    assert!(dropped(&host) > 0);
    until("it is told", || messages(&host).contains("too slow"));
    // Nor does it stop the stop.
    assert!(std::process::Command::new("kill").arg(child.id().to_string()).status().expect("kill runs").success());
    let begun = Instant::now();
    until("it ends", || child.try_wait().expect("it can be waited for").is_some());
    assert!(begun.elapsed() < Duration::from_secs(10), "ended after {:?}", begun.elapsed());
    drop(stdout);
}

/// A pipe under this name, full, with a reader that takes nothing. Its writers need not wait for it to be opened.
fn full_pipe(path: &Path) -> std::fs::File {
    assert!(std::process::Command::new("mkfifo").arg(path).status().expect("mkfifo runs").success());
    let mut pipe = OpenOptions::new().read(true).write(true).custom_flags(NO_WAIT).open(path).expect("both its ends");
    for size in [4096, 1] {
        while pipe.write(&vec![b'\n'; size]).is_ok() {}
    }
    pipe
}

/// `O_NONBLOCK`, as every Linux that this runs on has it.
const NO_WAIT: i32 = 0o4000;

#[test]
fn lines_that_wait_are_bounded_by_their_bytes_too() {
    let host = logged("json");
    let _pipe = full_pipe(&host.path("access.log"));
    let daemon = served(&host);
    let mut connection = PersistentConnection::open(&daemon.address);
    // Far fewer lines than may wait, each as long as strangers can make it.
    let long = "\t\u{80}".repeat(2_000);
    let head =
        format!("HEAD /{} HTTP/1.1\r\nHost: x\r\nUser-Agent: x{long}x\r\nReferer: x{long}x\r\n\r\n", "a".repeat(2_000));
    for _ in 0..2_000 {
        connection.send(&head);
        assert_eq!(connection.response(true).status, 404);
    }
    let lost = dropped(&host);
    assert!((1..2_000).contains(&lost), "{lost}");
}

#[test]
fn a_pipe_that_nobody_reads_can_be_left_for_a_file() {
    let host = logged("json");
    let _pipe = full_pipe(&host.path("access.log"));
    let daemon = served(&host);
    single(&daemon.address, "GET", "/before", &[]);
    std::fs::rename(host.path("access.log"), host.path("pipe")).expect("files can be renamed");
    daemon.signal("HUP");
    // What had come already is whole in the new one.
    until("it goes on in a file", || lines(&host.path("access.log")).len() == 1);
    single(&daemon.address, "GET", "/after", &[]);
    let targets: Vec<Value> = wait_for(&host, 2).iter().map(|line| json(line)["target"].clone()).collect();
    assert_eq!(targets, ["/before", "/after"]);
    assert_eq!(dropped(&host), 0);
}

#[test]
fn what_a_full_pipe_has_not_taken_by_the_end_is_told() {
    let host = logged("json");
    let _pipe = full_pipe(&host.path("access.log"));
    let mut daemon = served(&host);
    for _ in 0..3 {
        single(&daemon.address, "GET", "/guide", &[]);
    }
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    assert!(messages(&host).contains("3 lines of the access log dropped"), "{}", messages(&host));
}

// ---------------------------------------------------------------------------------------------------------------------
// What changes, and a single bundle

#[test]
fn who_may_read_changes_without_a_restart_and_on_open_connections() {
    let mut host = host()
        .set("server.listen", text("0.0.0.0:0"))
        .set("server.trustedProxies", text(PROXY))
        .set("access.allow", text(HERE));
    let daemon = served(&host);
    let mut connection = PersistentConnection::open(&daemon.address);
    let mut status = || {
        connection.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
        connection.response(false).status
    };
    let by_proxy = || asks(PROXY, &daemon.address, "GET", "/", &["X-Forwarded-For: 127.0.0.2"]).status;
    assert_eq!((status(), by_proxy()), (200, 403));
    host.change("access.allow", text(ELSEWHERE));
    until("another may read", || status() == 403);
    assert_eq!(by_proxy(), 200);
    host.change("access.allow", "[]");
    until("a mistake is told", || messages(&host).contains("stays in force"));
    assert_eq!((status(), by_proxy()), (403, 200), "and changes nothing");
    host.change("access.allow", text(ELSEWHERE));
    host.change("server.trustedProxies", text("127.0.0.4"));
    until("its word counts no more", || by_proxy() == 403);
    let warning = "set access.allow or access.header";
    assert!(!messages(&host).contains(warning), "{}", messages(&host));
    host.remove("access.allow");
    until("everybody may read", || status() == 200);
    until("that is worth a warning", || messages(&host).contains(warning));
    assert!(!messages(&host).contains("takes a restart"), "{}", messages(&host));
}

#[test]
fn a_single_bundle_is_for_those_whom_a_named_configuration_lets_in() {
    let host = Host::bare()
        .set("server.trustedProxies", text(PROXY))
        .set("access.allow", text(ELSEWHERE))
        .set("access.log", text("json"))
        .set("access.logFile", text("access.log"));
    host.put("bundle.zip", bundle("one"));
    let path = host.path("bundle.zip");
    let arguments = ["serve", path.to_str().expect("text"), "--listen", "0.0.0.0:0"];
    let log = |host: &Host| std::fs::File::create(host.path("messages")).expect("a file");
    let mut daemon = Daemon::start(host.command(&arguments).stderr(log(&host)));
    let status = |source, headers: &[&str]| asks(source, &daemon.address, "GET", "/guide", headers).status;
    assert_eq!((status(HERE, &[]), status(ELSEWHERE, &[])), (403, 200));
    assert_eq!(status(HERE, &["X-Forwarded-For: 127.0.0.2"]), 403);
    assert_eq!(status(PROXY, &["X-Forwarded-For: 127.0.0.2"]), 200);
    assert_eq!(messages(&host), "");
    daemon.signal("TERM");
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    assert_eq!(lines(&host.path("access.log")).len(), 4);
    // Where nobody is asked for, that is told before anybody can read it.
    let open = Host::bare();
    let _daemon = Daemon::start(open.command(&arguments).stderr(log(&open)));
    let told = messages(&open);
    assert!(told.contains("everybody who can reach 0.0.0.0:") && told.contains("--config"), "{told}");
    let _daemon = Daemon::start(open.command(&[arguments[0], arguments[1], "--listen", HERE_ONLY]).stderr(log(&open)));
    assert_eq!(messages(&open), "", "this machine only");
}

const HERE_ONLY: &str = "127.0.0.1:0";

/// RFC 9111, 5.2.2.7: a shared cache would give it to those who may not read.
#[test]
fn where_not_everybody_may_read_nothing_that_lasts_is_for_shared_caches() {
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
        let daemon = served(&host);
        let said = |target: &str| get(&daemon.address, target).header("cache-control").unwrap_or("").to_owned();
        let private = if is_open { "" } else { "private, " };
        assert_eq!(said("/app.0ab12cd3.js"), format!("{private}max-age=31536000, immutable"));
        assert_eq!(said("/own.html"), format!("{private}max-age=600"));
        assert_eq!(said("/none.js"), format!("{private}max-age=60"));
        assert_eq!(said("/odd.html"), format!("{private}no-transform, private=\"x-a\""));
        assert_eq!(said("/"), format!("{private}no-cache"));
    }
}

#[test]
fn a_refusal_does_not_tell_which_hosts_a_site_needs() {
    for preset in ["report", "connected", "airgap"] {
        let host = host().set("access.allow", "[\"127.0.0.2\"]").set("server.csp", text(preset));
        host.put("bundle.zip", zip(&[deflated("index.html", "<script src=https://inside.example/x.js></script>")]));
        let daemon = served(&host);
        let field = if preset == "report" { "content-security-policy-report-only" } else { "content-security-policy" };
        until("the policy is known", || {
            let answer = asks(ELSEWHERE, &daemon.address, "GET", "/", &[]);
            preset == "airgap" || answer.header(field).is_some_and(|policy| policy.contains("inside.example"))
        });
        let refused = get(&daemon.address, "/");
        assert_eq!((refused.status, refused.header(field)), (403, None), "{preset}");
    }
}
