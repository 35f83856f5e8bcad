//! Redirects to another scheme, host, port or user: where the API key may be sent, which redirects of bundles and
//! probes are followed, and which fields are sent.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::host::{Host, bundle, front_page_title, run_concurrently, run_with_timeout, toml_string};
use support::project_api::PROJECT;
use support::tls::CertificateAuthority;
use support::until;
use support::upstream::{ByteStream, KEY, StreamWrapper, Upstream, UpstreamCall, redirect_reply};

/// A user and a password as a URL has them, and as a request has them (RFC 7617).
const USER: &str = "ada:pa55word";
const BASIC: &str = "YWRhOnBhNTV3b3Jk";
/// The number of cases that run at the same time. Each is a process whose calls have a time limit.
const CASES_AT_A_TIME: usize = 8;

// A server that records requests.

/// The scheme of a connection and the bytes that the server has received on it, decrypted.
struct RecordedConnection {
    scheme: &'static str,
    bytes: Arc<Mutex<Vec<u8>>>,
}

/// All connections in the order of their arrival.
type Connections = Arc<Mutex<Vec<RecordedConnection>>>;

impl RecordedConnection {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no panic while locked")).into_owned()
    }

    /// Scheme, host and port of the first request.
    fn origin(&self) -> String {
        let text = self.text();
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        let host = fields.find(|(name, _)| name.eq_ignore_ascii_case("host")).map_or("", |(_, host)| host.trim());
        format!("{}://{host}", self.scheme)
    }

    /// The path of the first request, without the query.
    fn path(&self) -> String {
        let text = self.text();
        let target = text.split(' ').nth(1).unwrap_or_default();
        target.split('?').next().unwrap_or_default().to_owned()
    }
}

/// A connection that stores the bytes that are read from it.
struct Tee {
    wire: Box<dyn ByteStream>,
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl Read for Tee {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.wire.read(buffer)?;
        self.bytes.lock().expect("no panic while locked").extend_from_slice(&buffer[..length]);
        Ok(length)
    }
}

impl Write for Tee {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wire.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wire.flush()
    }
}

/// Whether the first byte is the type of a TLS handshake record (RFC 8446, 5.1). `None` if no byte arrives.
fn is_tls_handshake(stream: &TcpStream) -> Option<bool> {
    const HANDSHAKE: u8 = 22;
    let timeout = stream.read_timeout().ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let mut first = [0];
    let length = stream.peek(&mut first).ok()?;
    stream.set_read_timeout(timeout).ok()?;
    (length == 1).then_some(first[0] == HANDSHAKE)
}

/// An upstream whose ports accept both TLS and plain HTTP, so that a redirect can change the scheme alone.
fn listen(authority: &CertificateAuthority, scheme: &'static str, connections: &Connections) -> Upstream {
    let (connections, accept_tls) =
        (Arc::clone(connections), authority.server_stream_wrapper(&["127.0.0.1", "localhost"]));
    let accept: StreamWrapper = Arc::new(move |stream: TcpStream| {
        let is_encrypted = is_tls_handshake(&stream)?;
        let (scheme, bytes) = (if is_encrypted { "https" } else { "http" }, Arc::default());
        let connection = RecordedConnection { scheme, bytes: Arc::clone(&bytes) };
        connections.lock().expect("no panic while locked").push(connection);
        let wire: Box<dyn ByteStream> = if is_encrypted { accept_tls(stream)? } else { Box::new(stream) };
        Some(Box::new(Tee { wire, bytes }) as Box<dyn ByteStream>)
    });
    let upstream = Upstream::build(bundle("one"), scheme, accept);
    upstream.open();
    upstream
}

/// A host that trusts the authority, with a key and a project.
fn host(upstream: &Upstream, authority: &CertificateAuthority) -> Host {
    let host = Host::in_memory(upstream)
        .set("api.caFile", toml_string("ca.pem"))
        .set("api.projectId", toml_string(PROJECT))
        .set("network.callTimeout", toml_string("30s"))
        .set("network.idleTimeout", toml_string("30s"));
    host.put("ca.pem", authority.pem());
    host
}

// Targets of redirects.

/// The target of a redirect.
struct RedirectTarget {
    /// The value of `Location`.
    location: String,
    /// Scheme, host and port of a request for it.
    origin: String,
}

impl RedirectTarget {
    fn scheme(&self) -> &str {
        scheme_of(&self.origin)
    }

    fn has_user(&self) -> bool {
        self.location.contains('@')
    }
}

fn scheme_of(origin: &str) -> &str {
    origin.split_once("://").expect("a scheme").0
}

/// The names of all targets.
const TARGET_NAMES: [&str; 10] = [
    "the same address",
    "a path",
    "the same host, no scheme",
    "another scheme",
    "another host",
    "another port",
    "another port, no scheme",
    "another port, the own one as user",
    "another scheme and port",
    "the same address with a user",
];

/// The target `name` of a redirect from `own_origin`. `other_origin` has the same host and another port.
fn redirect_target(name: &str, own_origin: &str, other_origin: &str, path: &str, other_path: &str) -> RedirectTarget {
    let (scheme, authority) = own_origin.split_once("://").expect("a scheme");
    let (_, other_authority) = other_origin.split_once("://").expect("a scheme");
    let other_scheme = if scheme == "https" { "http" } else { "https" };
    let localhost = authority.replace("127.0.0.1", "localhost");
    let origin_of = |scheme: &str, authority: &str| format!("{scheme}://{authority}");
    let (origin, location) = match name {
        "the same address" => (own_origin.to_owned(), format!("{own_origin}{path}")),
        "a path" => (own_origin.to_owned(), path.to_owned()),
        "the same host, no scheme" => (own_origin.to_owned(), format!("//{authority}{path}")),
        "another scheme" => (origin_of(other_scheme, authority), format!("{other_scheme}://{authority}{path}")),
        "another host" => (origin_of(scheme, &localhost), format!("{scheme}://{localhost}{path}")),
        "another port" => (origin_of(scheme, other_authority), format!("{scheme}://{other_authority}{other_path}")),
        "another port, no scheme" => (origin_of(scheme, other_authority), format!("//{other_authority}{other_path}")),
        "another port, the own one as user" => {
            (origin_of(scheme, other_authority), format!("{scheme}://{authority}@{other_authority}{other_path}"))
        }
        "another scheme and port" => {
            (origin_of(other_scheme, other_authority), format!("{other_scheme}://{other_authority}{other_path}"))
        }
        "the same address with a user" => (own_origin.to_owned(), format!("{scheme}://{USER}@{authority}{path}")),
        _ => panic!("unknown target {name:?}"),
    };
    RedirectTarget { location, origin }
}

/// Runs all cases, [`CASES_AT_A_TIME`] at the same time.
fn run_cases<T: Sync>(cases: &[T], run: impl Fn(&T) + Sync) {
    for chunk in cases.chunks(CASES_AT_A_TIME) {
        run_concurrently(chunk, &run);
    }
}

// API calls.

/// A call of the API, the status of its redirect, its path, and the command that makes it.
struct ApiCall {
    call: UpstreamCall,
    status: u16,
    path: &'static str,
    command: &'static [&'static str],
}

const SYNC: &[&str] = &["sync"];

/// All calls that send the key. A POST may be redirected only with 307 and 308.
const CALLS: [ApiCall; 6] = [
    ApiCall { call: UpstreamCall::Start, status: 307, path: "/v1/static-export/jobs", command: SYNC },
    ApiCall {
        call: UpstreamCall::Poll,
        status: 302,
        path: "/v1/static-export/jobs/se_0000000000000001",
        command: SYNC,
    },
    ApiCall {
        call: UpstreamCall::Link,
        status: 308,
        path: "/v1/static-export/jobs/se_0000000000000001/bundle",
        command: SYNC,
    },
    ApiCall {
        call: UpstreamCall::Preview,
        status: 307,
        path: "/v1/project/preview/prj_7%2Fa",
        command: &["preview", "create", "--branch", "x"],
    },
    ApiCall {
        call: UpstreamCall::Deployment,
        status: 303,
        path: "/v1/project/update-status/dep_1",
        command: &["preview", "status", "dep_1"],
    },
    ApiCall {
        call: UpstreamCall::Searches,
        status: 301,
        path: "/v1/analytics/prj_7%2Fa/searches",
        command: &["analytics", "searches"],
    },
];

/// Redirects a call of the API along `hops`. The key may be sent only to the API's scheme, host and port, and no
/// redirect to another one may be followed.
fn assert_key_stays(scheme: &'static str, api_call: &ApiCall, status: u16, hops: &[&'static str]) {
    let case = format!("{scheme}, {:?} with {status} to {hops:?}", api_call.call);
    let (authority, connections) = (CertificateAuthority::new(), Connections::default());
    let upstream = listen(&authority, scheme, &connections);
    let other = listen(&authority, scheme, &connections);
    upstream.state().project_api.states = vec!["success".into()];
    upstream.state().project_api.deployments.insert("dep_1".to_owned(), 0);
    upstream.state().project_api.events.push(("tide".to_owned(), "2026-08-10".to_owned(), None));
    let own_origin = upstream.api_origin();
    let hops: Vec<RedirectTarget> = hops
        .iter()
        .map(|name| redirect_target(name, &own_origin, &other.api_origin(), api_call.path, api_call.path))
        .collect();
    for hop in &hops {
        upstream.on(api_call.call).times(1).respond_with(redirect_reply(status, &hop.location));
    }
    let may_follow = |hop: &&RedirectTarget| {
        let is_repeatable = matches!(status, 307 | 308)
            || matches!(api_call.call, UpstreamCall::Poll | UpstreamCall::Deployment | UpstreamCall::Searches);
        hop.origin == own_origin && !hop.has_user() && is_repeatable
    };
    let followed = hops.iter().take_while(may_follow).count();
    let is_refused = followed < hops.len();

    let ended = host(&upstream, &authority).expect_exit(if is_refused { 4 } else { 0 }, api_call.command);
    let connections = connections.lock().expect("no panic while locked");
    assert!(
        connections[0].origin() == own_origin && connections[0].text().contains(KEY),
        "{case}: the key was not sent at all"
    );
    for connection in &*connections {
        let text = connection.text();
        assert!(
            connection.origin() == own_origin || !text.contains(KEY),
            "{case}: the key is at {}: {text}",
            connection.origin()
        );
        assert!(!text.contains(BASIC), "{case}: {text}");
    }
    let calls: Vec<String> = connections
        .iter()
        .filter(|connection| connection.path() == api_call.path)
        .map(RecordedConnection::origin)
        .collect();
    assert!(calls.iter().all(|origin| *origin == own_origin), "{case}: {calls:?}");
    if is_refused {
        assert_eq!(calls.len(), followed + 1, "{case}: {}", upstream.request_history());
        let message = if hops[followed].origin == own_origin { "redirects" } else { "where the key must not be sent" };
        assert!(ended.stderr.contains(message), "{case}: {}", ended.stderr);
    } else {
        assert!(calls.len() > followed, "{case}: {}", upstream.request_history());
    }
}

// Regression: a redirect of the API to an address with a user name sent two Authorization fields.
#[test]
fn api_redirects_never_send_the_key_to_another_scheme_host_or_port() {
    let [start, poll, other_calls @ ..] = &CALLS;
    let mut cases: Vec<(&'static str, &ApiCall, u16, Vec<&'static str>)> = Vec::new();
    for name in TARGET_NAMES {
        cases.extend(
            [("https", start), ("https", poll), ("http", start)]
                .map(|(scheme, api_call)| (scheme, api_call, api_call.status, vec![name])),
        );
    }
    for api_call in other_calls {
        for name in ["the same address", "another scheme", "another port", "the same address with a user"] {
            cases.push(("https", api_call, api_call.status, vec![name]));
        }
    }
    // Each other status.
    for status in [301, 302, 303, 308] {
        cases.push(("https", start, status, vec!["another scheme"]));
        cases.push(("https", start, status, vec!["the same address"]));
    }
    // An allowed hop before it does not allow a forbidden one.
    for api_call in [start, poll] {
        cases.push(("https", api_call, api_call.status, vec!["the same address", "another port"]));
        cases.push(("https", api_call, api_call.status, vec!["a path", "the same host, no scheme", "another scheme"]));
    }
    run_cases(&cases, |(scheme, api_call, status, hops)| assert_key_stays(scheme, api_call, *status, hops));
}

#[test]
fn doctor_follows_no_redirect() {
    let (authority, connections) = (CertificateAuthority::new(), Connections::default());
    let upstream = listen(&authority, "https", &connections);
    let other = listen(&authority, "https", &connections);
    let job = "/v1/static-export/jobs/docwharf-doctor";
    upstream.on(UpstreamCall::Poll).respond_with(redirect_reply(307, &format!("{}{job}", other.api_origin())));
    upstream.on(UpstreamCall::Probe).respond_with(redirect_reply(302, &other.probe_url()));
    let host = host(&upstream, &authority).set("sync.probe", format!("[{}]", toml_string(&upstream.probe_url())));
    let ended = run_with_timeout(&mut host.command(&["doctor", "--json"]));
    assert!(ended.json()["checks"].is_array());
    assert_eq!(
        (upstream.count(UpstreamCall::Poll), upstream.count(UpstreamCall::Probe)),
        (1, 1),
        "{}",
        upstream.request_history()
    );
    assert_eq!(other.connections(), 0);
}

// Bundles and probes.

/// A kind of request that is sent without the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestKind {
    /// A bundle by the link in the API's response.
    Link,
    /// A bundle by `staticExport.bundleUrl`, with a user in the URL.
    BundleUrl,
    /// `sync.probe`
    Probe,
}

/// Path and query of a URL.
fn path_of(url: &str, origin: &str) -> String {
    url.strip_prefix(origin).expect("an address of this origin").to_owned()
}

/// Makes docwharf send this kind of request, and waits until it is done.
fn make_request(kind: RequestKind, upstream: &Upstream, authority: &CertificateAuthority) {
    let host = host(upstream, authority);
    match kind {
        RequestKind::Link => drop(run_with_timeout(&mut host.command(SYNC))),
        RequestKind::BundleUrl => {
            // An API is configured, too. Its key must not be sent.
            let url = upstream.link().replacen("://", &format!("://{USER}@"), 1);
            drop(run_with_timeout(&mut host.set("staticExport.bundleUrl", toml_string(&url)).command(SYNC)));
        }
        RequestKind::Probe => {
            let host = host.set("sync.probe", format!("[{}]", toml_string(&upstream.probe_url())));
            let daemon = host.run();
            until("the first check has ended", || front_page_title(&daemon) == "one");
        }
    }
}

/// Redirects a request along `hops`. They must be followed, but never from https to http. Neither the key nor the user
/// of another origin may be sent.
fn assert_no_secret_sent(kind: RequestKind, scheme: &'static str, hops: &[&'static str]) {
    let case = format!("{scheme}, {kind:?} to {hops:?}");
    let (authority, connections) = (CertificateAuthority::new(), Connections::default());
    let upstream = listen(&authority, scheme, &connections);
    let other = listen(&authority, scheme, &connections);
    let own_origin = upstream.object_store_origin();
    let (call, path, other_path) = match kind {
        RequestKind::Probe => (
            UpstreamCall::Probe,
            path_of(&upstream.probe_url(), &own_origin),
            path_of(&other.probe_url(), &other.object_store_origin()),
        ),
        _ => (
            UpstreamCall::Download,
            path_of(&upstream.link(), &own_origin),
            path_of(&other.link(), &other.object_store_origin()),
        ),
    };
    let hops: Vec<RedirectTarget> = hops
        .iter()
        .map(|name| redirect_target(name, &own_origin, &other.object_store_origin(), &path, &other_path))
        .collect();
    let mut expected = vec![own_origin.clone()];
    for hop in &hops {
        let from = expected.last().expect("at least one");
        let server =
            if from.ends_with(other.object_store_origin().trim_start_matches(scheme)) { &other } else { &upstream };
        server.on(call).times(1).respond_with(redirect_reply(302, &hop.location));
        if scheme_of(from) == "https" && hop.scheme() == "http" {
            break;
        }
        expected.push(hop.origin.clone());
    }

    make_request(kind, &upstream, &authority);
    let connections = connections.lock().expect("no panic while locked");
    for connection in &*connections {
        let (origin, text) = (connection.origin(), connection.text());
        assert!(origin == upstream.api_origin() || !text.contains(KEY), "{case}: the key is at {origin}: {text}");
        assert!(origin == own_origin || !text.contains(BASIC), "{case}: a user of {own_origin} is at {origin}: {text}");
        let fields = text.to_ascii_lowercase();
        assert!(!fields.contains("\nreferer:") && !fields.contains("\ncookie:"), "{case}: {text}");
    }
    // The API's link names its job, the configured one does not.
    let prefix = match kind {
        RequestKind::Link => "/exports/",
        RequestKind::BundleUrl => "/exports/byhand/",
        RequestKind::Probe => "/sitemap.xml",
    };
    let origins: Vec<String> = connections
        .iter()
        .filter(|connection| connection.path().starts_with(prefix))
        .map(RecordedConnection::origin)
        .collect();
    assert_eq!(origins, expected, "{case}: {}{}", upstream.request_history(), other.request_history());
}

#[test]
fn downloads_and_probes_follow_redirects_without_secrets_but_not_https_to_http() {
    let mut cases: Vec<(RequestKind, &'static str, Vec<&'static str>)> = Vec::new();
    for kind in [RequestKind::Link, RequestKind::BundleUrl, RequestKind::Probe] {
        cases.extend(TARGET_NAMES.map(|name| (kind, "https", vec![name])));
        for name in ["another scheme", "another host", "another port", "another scheme and port"] {
            cases.push((kind, "http", vec![name]));
        }
        cases.push((kind, "https", vec!["another port", "another scheme"]));
        cases.push((kind, "http", vec!["another scheme", "another port"]));
    }
    run_cases(&cases, |(kind, scheme, hops)| assert_no_secret_sent(*kind, scheme, hops));
}
