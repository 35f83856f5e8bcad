use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::mpsc;
use std::time::Duration;

use http::header::{CONTENT_TYPE, HOST, ORIGIN, RETRY_AFTER};
use http::{HeaderName, Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};

use docwharf_base::model::cidr::IpRange;
use docwharf_base::net::NetworkSettings;
use docwharf_site::rules::pattern::{Pattern, PatternDialect};

use super::*;
use crate::handler::handle_deferred;
use crate::named_host::HostList;
use crate::playground_settings::AllowedTarget;
use crate::request_body::RequestBody;
use crate::search::{InjectMode, SearchSettings, test_indexes};
use crate::test_versions::version_with_files;
use crate::{Site, SiteSettings};

/// A body that was received as a whole.
struct TestBody(String);

impl RequestBody for TestBody {
    async fn read(self, limits: BodyLimits) -> Result<CountedBytes, BodyFault> {
        let mut bytes = CountedBytes::new(limits.memory);
        if self.0.len() > limits.max_bytes {
            return Err(BodyFault::TooLarge);
        }
        assert!(bytes.append(self.0.as_bytes()));
        Ok(bytes)
    }
}

/// Starts a target that answers each connection with these bytes and then closes it. Returns its address, and the
/// requests that it received.
fn start_target(response: impl Into<Vec<u8>>) -> (SocketAddr, mpsc::Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = mpsc::channel();
    let response = response.into();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let request = read_request(&mut stream);
            let _ = stream.write_all(&response);
            let is_silent = response.is_empty();
            if sender.send(request).is_err() {
                return;
            }
            if is_silent {
                // Until the client gives up.
                let _ = stream.read(&mut [0; 1]);
            }
        }
    });
    (address, receiver)
}

/// Reads the head of a request and the body that it declares.
fn read_request(stream: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let text = String::from_utf8_lossy(&bytes);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return text.into_owned();
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return String::from_utf8_lossy(&bytes).into_owned(),
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

fn allowed(address: SocketAddr) -> AllowedTarget {
    AllowedTarget {
        is_https: false,
        host: address.ip().to_string(),
        port: address.port(),
        methods: vec![Method::GET, Method::POST, Method::HEAD],
        paths: vec![Pattern::parse("/v1/*", PatternDialect::Netlify).unwrap()],
        addresses: vec![IpRange::parse("127.0.0.0/8").unwrap()],
    }
}

fn settings(allow: Vec<AllowedTarget>) -> PlaygroundSettings {
    PlaygroundSettings {
        allow,
        hosts: HostList::parse(&["docs.example"]),
        timeout: Duration::from_secs(10),
        max_request: 1000,
        max_response: 1000,
        per_minute: NonZeroU32::new(1000).unwrap(),
        rewrite: false,
        network: NetworkSettings::default(),
    }
}

fn site_with(settings: PlaygroundSettings) -> Arc<Site> {
    let site = Site::new(SiteSettings::default());
    site.set_version(version_with_files(&[("index.html", "<p>a")], 0));
    site.set_playground_settings(Some(Arc::new(settings)));
    site
}

const OWN: [(HeaderName, &str); 3] =
    [(HOST, "docs.example"), (ORIGIN, "https://docs.example"), (CONTENT_TYPE, "application/json; charset=utf-8")];

/// Sends a request to the playground: status, header fields and body of the response.
async fn send(
    site: &Arc<Site>,
    method: Method,
    fields: &[(HeaderName, &str)],
    body: impl ToString,
) -> Response<String> {
    let mut request = Request::new(TestBody(body.to_string()));
    *request.method_mut() = method;
    *request.uri_mut() = "/_docwharf/playground".parse().unwrap();
    for (name, value) in fields {
        request.headers_mut().append(name, value.parse().unwrap());
    }
    let (head, body) = handle_deferred(site, request, None).await.into_parts();
    let bytes = body.collect().await.unwrap().to_bytes().to_vec();
    Response::from_parts(head, String::from_utf8(bytes).unwrap())
}

/// Sends a request of a page of the site itself; returns the status and the JSON of the response.
async fn ask(site: &Arc<Site>, body: &Value) -> (u16, Value) {
    let response = send(site, Method::POST, &OWN, body).await;
    assert_eq!(response.headers()["cache-control"], "no-store");
    (response.status().as_u16(), serde_json::from_str(response.body()).unwrap())
}

fn get(address: SocketAddr, path: &str) -> Value {
    json!({ "method": "GET", "url": format!("http://{address}{path}") })
}

#[tokio::test]
async fn a_request_reaches_its_target_and_the_response_is_data_of_the_answer() {
    let reply =
        "HTTP/1.1 201 Made\r\nSet-Cookie: a=1\r\nAccess-Control-Allow-Origin: *\r\nContent-Length: 5\r\n\r\nhello";
    let (address, requests) = start_target(reply);
    let site = site_with(settings(vec![allowed(address)]));
    let body = json!({
        "method": "POST", "url": format!("http://{address}/v1/a%20b?key=s3cret#fragment"), "body": "{\"x\": 1}",
        "headers": { "Authorization": "Bearer t0ken", "Content-Type": "application/json", "Cookie": "session=1" },
    });
    let response = send(&site, Method::POST, &OWN, body).await;
    assert_eq!(response.status(), 200);
    for name in ["set-cookie", "access-control-allow-origin"] {
        assert!(!response.headers().contains_key(name), "{name}");
    }
    let mut answer: Value = serde_json::from_str(response.body()).unwrap();
    assert!(answer["ms"].take().as_u64().is_some());
    let fields = json!([["set-cookie", "a=1"], ["access-control-allow-origin", "*"], ["content-length", "5"]]);
    let expected = json!({
        "status": 201, "headers": fields, "body": "hello", "encoding": "utf-8", "truncated": false, "ms": null,
    });
    assert_eq!(answer, expected);
    let request = requests.recv().unwrap();
    assert!(request.starts_with("POST /v1/a%20b?key=s3cret HTTP/1.1\r\n"), "{request}");
    assert!(request.ends_with("\r\n\r\n{\"x\": 1}"), "{request}");
    let lines = [
        "authorization: Bearer t0ken",
        "content-type: application/json",
        &format!("host: {address}"),
        "content-length: 8",
    ];
    for line in lines {
        assert!(request.contains(&format!("\r\n{line}\r\n")), "{line}: {request}");
    }
    for name in ["cookie", "origin", "referer", "sec-"] {
        assert!(!request.contains(&format!("\r\n{name}")), "{name}: {request}");
    }
    assert_eq!(site.playground_counts().get(PlaygroundOutcome::Answered), 1);
}

#[tokio::test]
async fn only_pages_of_the_site_itself_may_use_the_playground() {
    let (address, requests) = start_target("HTTP/1.1 204 No Content\r\n\r\n");
    let site = site_with(settings(vec![allowed(address)]));
    let body = get(address, "/v1/x");
    let json = (CONTENT_TYPE, "application/json");
    let own = (ORIGIN, "http://docs.example");
    let host = (HOST, "docs.example");
    for (fields, expected) in [
        (&[host.clone(), own.clone(), json.clone()][..], 200),
        (&[(HOST, "127.0.0.1:80"), (ORIGIN, "http://127.0.0.1"), json.clone()], 200),
        (&[(HOST, "localhost:8080"), (ORIGIN, "http://localhost:8080"), json.clone()], 200),
        (&[host.clone(), json.clone()], 403),
        (&[host.clone(), own.clone(), own.clone(), json.clone()], 403),
        (&[host.clone(), (ORIGIN, "null"), json.clone()], 403),
        (&[host.clone(), (ORIGIN, "https://evil.example"), json.clone()], 403),
        (&[host.clone(), (ORIGIN, "https://docs.example:8443"), json.clone()], 403),
        // A name that was rebound to this server.
        (&[(HOST, "evil.example"), (ORIGIN, "http://evil.example"), json.clone()], 403),
        (&[host.clone(), own.clone()], 415),
        (&[host.clone(), own.clone(), (CONTENT_TYPE, "text/plain")], 415),
        (&[host.clone(), own.clone(), (CONTENT_TYPE, "application/jsonx")], 415),
    ] {
        let response = send(&site, Method::POST, fields, &body).await;
        assert_eq!(response.status(), expected, "{fields:?}: {}", response.body());
        let json: Value = serde_json::from_str(response.body()).unwrap();
        assert!(expected == 200 || (json["error"].is_string() && json["message"].is_string()), "{json}");
    }
    assert_eq!(requests.try_iter().count(), 3);
    let outcomes =
        [PlaygroundOutcome::Answered, PlaygroundOutcome::Refused].map(|one| site.playground_counts().get(one));
    assert_eq!(outcomes, [3, 9]);
    for method in [Method::GET, Method::HEAD, Method::PUT] {
        let response = send(&site, method.clone(), &OWN, "").await;
        assert_eq!(
            (response.status().as_u16(), &response.headers()["allow"]),
            (405, &"POST, OPTIONS".parse().unwrap())
        );
    }
    site.set_playground_settings(None);
    assert_eq!(send(&site, Method::POST, &OWN, &body).await.status(), 404);
    assert_eq!(send(&site, Method::GET, &OWN, "").await.status(), 404);
}

#[tokio::test]
async fn a_request_that_no_rule_permits_is_refused_with_the_name_of_the_rule_and_sends_nothing() {
    let (address, requests) = start_target("HTTP/1.1 204 No Content\r\n\r\n");
    let unlisted = AllowedTarget { addresses: Vec::new(), ..allowed(address) };
    let named = AllowedTarget { host: "localhost".to_owned(), ..unlisted.clone() };
    let closed = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        AllowedTarget { port: listener.local_addr().unwrap().port(), ..unlisted.clone() }
    };
    let site = site_with(settings(vec![allowed(address)]));
    for (method, url, rule) in [
        ("GET", format!("http://127.0.0.1:{}/v1/x", closed.port), "origin"),
        ("GET", format!("https://{address}/v1/x"), "origin"),
        ("GET", format!("http://localhost:{}/v1/x", address.port()), "origin"),
        ("GET", format!("http://user@{address}/v1/x"), "origin"),
        ("GET", "file:///etc/passwd".to_owned(), "origin"),
        ("DELETE", format!("http://{address}/v1/x"), "method"),
        ("GET", format!("http://{address}/v2/x"), "path"),
        ("GET", format!("http://{address}/v1/../v2"), "path"),
        ("GET", format!("http://{address}/v1/%2e%2e%2fv2"), "path"),
        ("GET", format!("http://{address}/v1/..\\v2"), "path"),
    ] {
        let (status, json) = ask(&site, &json!({ "method": method, "url": url })).await;
        assert_eq!((status, json["error"].as_str()), (403, Some(rule)), "{method} {url}");
        let message = json["message"].as_str().unwrap();
        assert!(message.ends_with("; ask the operator to list it in playground.allow"), "{message}");
    }
    // The address is refused however the target is named, and whether anything listens there or not.
    let mut answers = Vec::new();
    for target in [unlisted, named, closed] {
        let url = format!("http://{}:{}/v1/x", target.host, target.port);
        site.set_playground_settings(Some(Arc::new(settings(vec![target]))));
        answers.push(ask(&site, &json!({ "method": "GET", "url": url })).await);
    }
    assert_eq!((answers[0].0, answers[0].1["error"].as_str()), (403, Some("address")));
    assert!(answers.iter().all(|answer| *answer == answers[0]), "{answers:?}");
    assert_eq!(requests.try_iter().count(), 0);
    assert_eq!(site.playground_counts().get(PlaygroundOutcome::NotAllowed), 13);
}

#[tokio::test]
async fn a_redirect_is_the_answer_and_is_not_followed() {
    let (other, other_requests) = start_target("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret");
    let reply = format!("HTTP/1.1 302 Found\r\nLocation: http://{other}/v1/\r\nContent-Length: 0\r\n\r\n");
    let (address, _requests) = start_target(reply);
    let site = site_with(settings(vec![allowed(address), allowed(other)]));
    let (status, json) = ask(&site, &get(address, "/v1/x")).await;
    assert_eq!((status, json["status"].as_u64()), (200, Some(302)));
    assert_eq!(json["headers"][0], json!(["location", format!("http://{other}/v1/")]));
    assert_eq!(other_requests.try_iter().count(), 0);
}

#[tokio::test]
async fn a_long_response_is_cut_and_a_body_of_any_length_is_read_to_its_end() {
    for (reply, body, is_truncated) in [
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{}", "x".repeat(1000)), "x".repeat(1000), false),
        (format!("HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n{}", "x".repeat(1001)), "x".repeat(1000), true),
        (format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(100_000)), "x".repeat(1000), true),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end".to_owned(), "until the end".to_owned(), false),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n".to_owned(),
            "abc".to_owned(),
            false,
        ),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok".to_owned(),
            "ok".to_owned(),
            false,
        ),
    ] {
        let (address, _requests) = start_target(reply.clone());
        let site = site_with(settings(vec![allowed(address)]));
        let (status, json) = ask(&site, &get(address, "/v1/x")).await;
        assert_eq!(status, 200, "{reply:.80}: {json}");
        let found = (json["body"].as_str().unwrap(), json["truncated"].as_bool().unwrap());
        assert_eq!(found, (&*body, is_truncated), "{reply:.80}");
    }
    let (address, _requests) = start_target("HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n");
    let site = site_with(settings(vec![allowed(address)]));
    let body = json!({ "method": "HEAD", "url": format!("http://{address}/v1/x") });
    assert_eq!(ask(&site, &body).await.1["body"], "");
}

#[tokio::test]
async fn a_target_that_fails_or_is_silent_is_reported_without_details() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for (reply, expected) in [
        (None, (502, "target")),
        (Some("garbage\r\n\r\n"), (502, "target")),
        (Some("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort"), (502, "target")),
        (Some("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), (502, "target")),
        // The target sends nothing.
        (Some(""), (504, "timeout")),
    ] {
        let (address, _requests) = match reply {
            Some(reply) => start_target(reply),
            None => (closed, mpsc::channel().1),
        };
        let timeout = Duration::from_millis(if expected.0 == 504 { 300 } else { 10_000 });
        let site = site_with(PlaygroundSettings { timeout, ..settings(vec![allowed(address)]) });
        let (status, json) = ask(&site, &get(address, "/v1/x")).await;
        assert_eq!((status, json["error"].as_str().unwrap()), expected, "{reply:?}");
        let advice = match reply {
            None => "; check the url, or try again when the API runs",
            Some("") => " within 0.3 s; try again, or ask the operator to raise playground.timeout",
            Some(_) => "; check that the url is that of an HTTP API",
        };
        assert!(json["message"].as_str().unwrap().ends_with(advice), "{json}");
        assert!(!json.to_string().contains("127.0.0.1"), "{json}");
        let outcome = if expected.0 == 504 { PlaygroundOutcome::TimedOut } else { PlaygroundOutcome::Failed };
        assert_eq!(site.playground_counts().get(outcome), 1);
    }
    let name = AllowedTarget { host: "docwharf.invalid".to_owned(), port: 80, ..allowed(closed) };
    let site = site_with(settings(vec![name]));
    let (status, json) = ask(&site, &json!({ "method": "GET", "url": "http://docwharf.invalid/v1/" })).await;
    assert_eq!((status, json["error"].as_str()), (502, Some("target")));
}

#[tokio::test]
async fn malformed_large_and_frequent_requests_are_refused() {
    let (address, _requests) = start_target("HTTP/1.1 204 No Content\r\n\r\n");
    let site =
        site_with(PlaygroundSettings { per_minute: NonZeroU32::new(5).unwrap(), ..settings(vec![allowed(address)]) });
    let url = format!("http://{address}/v1/x");
    let long = "x".repeat(1001);
    let longer = "x".repeat(200_000);
    for (body, expected) in [
        ("{".to_owned(), (400, "malformed")),
        (json!({ "method": "GET", "url": "/v1/x" }).to_string(), (400, "malformed")),
        (json!({ "method": "POST", "url": url, "body": long }).to_string(), (413, "too-large")),
        (json!({ "method": "POST", "url": url, "body": longer }).to_string(), (413, "too-large")),
    ] {
        let response = send(&site, Method::POST, &OWN, &body).await;
        let json: Value = serde_json::from_str(response.body()).unwrap();
        assert_eq!((response.status().as_u16(), json["error"].as_str().unwrap()), expected, "{body:.100}");
    }
    assert_eq!(ask(&site, &json!({ "method": "POST", "url": url, "body": "x".repeat(1000) })).await.0, 200);
    let response = send(&site, Method::POST, &OWN, get(address, "/v1/x")).await;
    assert_eq!((response.status().as_u16(), &response.headers()[RETRY_AFTER]), (429, &"60".parse().unwrap()));
    assert_eq!(site.playground_counts().get(PlaygroundOutcome::Limited), 1);
}

#[tokio::test]
async fn requests_to_targets_at_a_time_are_bounded() {
    let (address, _requests) = start_target("HTTP/1.1 204 No Content\r\n\r\n");
    let site = site_with(settings(vec![allowed(address)]));
    let permits: Vec<_> = std::iter::from_fn(|| site.playground.take_permit()).collect();
    assert_eq!(permits.len(), 32);
    let response = send(&site, Method::POST, &OWN, get(address, "/v1/x")).await;
    assert_eq!((response.status().as_u16(), &response.headers()[RETRY_AFTER]), (503, &"1".parse().unwrap()));
    drop(permits);
    assert_eq!(ask(&site, &get(address, "/v1/x")).await.0, 200);
}

#[tokio::test]
async fn pages_have_the_script_only_with_rewrite_whatever_the_search_inserts() {
    let (address, _requests) = start_target("");
    let site = site_with(settings(vec![allowed(address)]));
    let get = |target: &'static str| {
        let request = Request::get(target).header(HOST, "docs.example").body(TestBody(String::new())).unwrap();
        handle_deferred(&site, request, None)
    };
    assert_eq!(get("/_docwharf/playground.js").await.status(), 404);
    assert!(site.inserted_tag().is_none());
    site.set_playground_settings(Some(Arc::new(PlaygroundSettings {
        rewrite: true,
        ..settings(vec![allowed(address)])
    })));
    let script = get("/_docwharf/playground.js").await;
    assert_eq!(
        (script.status().as_u16(), &script.headers()[CONTENT_TYPE]),
        (200, &"text/javascript; charset=utf-8".parse().unwrap())
    );
    let tag = "<script src=\"/_docwharf/playground.js\"></script>";
    assert_eq!(site.inserted_tag().as_ref().map(|inserted| inserted.bytes().to_vec()), Some(tag.as_bytes().to_vec()));
    site.set_version(version_with_files(&[("index.html", "<p>b")], 0));
    assert!(site.inserted_tag().is_some());
    let search = SearchSettings { inject: InjectMode::Always, ..test_indexes::settings() };
    site.set_search_settings(Arc::new(search));
    let both = format!("{tag}<script src=\"/_docwharf/search.js\" defer></script>");
    assert_eq!(site.inserted_tag().as_ref().map(|inserted| inserted.bytes().to_vec()), Some(both.into_bytes()));
    site.set_playground_settings(None);
    assert!(site.inserted_tag().as_ref().is_some_and(|inserted| !inserted.bytes().starts_with(tag.as_bytes())));
}
