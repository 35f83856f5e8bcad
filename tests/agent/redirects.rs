//! Each hop of a redirect × (scheme, host, port, user): where the key may go, where a bundle and a probe are looked
//! for, and what goes along.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use support::host::{Host, at_once, bundle, finish, front, text};
use support::studio::PROJECT;
use support::tls::Authority;
use support::until;
use support::upstream::{Call, KEY, Upstream, Wire, Wrap, redirect};

/// A user and a password as a URL has them, and as a request has them (RFC 7617).
const USER: &str = "ada:pa55word";
const BASIC: &str = "YWRhOnBhNTV3b3Jk";
/// Cases that run at a time: each is a process of its own, whose calls have a time limit.
const AT_ONCE: usize = 8;

// What the other side hears.

/// What has come on one connection, decrypted where it was encrypted.
struct Said {
    scheme: &'static str,
    bytes: Arc<Mutex<Vec<u8>>>,
}

/// All connections in their order.
type Heard = Arc<Mutex<Vec<Said>>>;

impl Said {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes.lock().expect("no panic while locked")).into_owned()
    }

    /// Scheme, host and port that were asked.
    fn origin(&self) -> String {
        let text = self.text();
        let mut fields = text.lines().filter_map(|line| line.split_once(':'));
        let host = fields.find(|(name, _)| name.eq_ignore_ascii_case("host")).map_or("", |(_, host)| host.trim());
        format!("{}://{host}", self.scheme)
    }

    /// The path that was asked for, without the query.
    fn path(&self) -> String {
        let text = self.text();
        let target = text.split(' ').nth(1).unwrap_or_default();
        target.split('?').next().unwrap_or_default().to_owned()
    }
}

/// Keeps what is read.
struct Tee {
    wire: Box<dyn Wire>,
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

/// Whether the first byte is that of a record that begins a TLS handshake (RFC 8446, 5.1); nothing if no byte comes.
fn begins_a_handshake(stream: &TcpStream) -> Option<bool> {
    const HANDSHAKE: u8 = 22;
    let patience = stream.read_timeout().ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let mut first = [0];
    let length = stream.peek(&mut first).ok()?;
    stream.set_read_timeout(patience).ok()?;
    (length == 1).then_some(first[0] == HANDSHAKE)
}

/// An upstream on ports that take TLS and plain HTTP alike, so that a scheme can change without the port.
fn listen(authority: &Authority, scheme: &'static str, heard: &Heard) -> Upstream {
    let (heard, encrypt) = (Arc::clone(heard), authority.wrap(&["127.0.0.1", "localhost"]));
    let accept: Wrap = Arc::new(move |stream: TcpStream| {
        let is_encrypted = begins_a_handshake(&stream)?;
        let (scheme, bytes) = (if is_encrypted { "https" } else { "http" }, Arc::default());
        let said = Said { scheme, bytes: Arc::clone(&bytes) };
        heard.lock().expect("no panic while locked").push(said);
        let wire: Box<dyn Wire> = if is_encrypted { encrypt(stream)? } else { Box::new(stream) };
        Some(Box::new(Tee { wire, bytes }) as Box<dyn Wire>)
    });
    let upstream = Upstream::build(bundle("one"), scheme, accept);
    upstream.open();
    upstream
}

/// A host that trusts the authority, with a key and a project.
fn host(upstream: &Upstream, authority: &Authority) -> Host {
    let host = Host::in_memory(upstream)
        .set("api.caFile", text("ca.pem"))
        .set("api.projectId", text(PROJECT))
        .set("network.callTimeout", text("30s"))
        .set("network.idleTimeout", text("30s"));
    host.put("ca.pem", authority.pem());
    host
}

// Where a redirect may lead.

/// A place that a redirect names.
struct Place {
    /// As the field has it.
    location: String,
    /// Scheme, host and port of a request for it.
    origin: String,
}

impl Place {
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

/// Every place, by its name.
const PLACES: [&str; 10] = [
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

/// This place, seen from the origin `own`; `other` has the same host, and another port.
fn place(name: &str, own: &str, other: &str, path: &str, other_path: &str) -> Place {
    let (scheme, authority) = own.split_once("://").expect("a scheme");
    let (_, elsewhere) = other.split_once("://").expect("a scheme");
    let twin = if scheme == "https" { "http" } else { "https" };
    let localhost = authority.replace("127.0.0.1", "localhost");
    let at = |scheme: &str, authority: &str| format!("{scheme}://{authority}");
    let (origin, location) = match name {
        "the same address" => (own.to_owned(), format!("{own}{path}")),
        "a path" => (own.to_owned(), path.to_owned()),
        "the same host, no scheme" => (own.to_owned(), format!("//{authority}{path}")),
        "another scheme" => (at(twin, authority), format!("{twin}://{authority}{path}")),
        "another host" => (at(scheme, &localhost), format!("{scheme}://{localhost}{path}")),
        "another port" => (at(scheme, elsewhere), format!("{scheme}://{elsewhere}{other_path}")),
        "another port, no scheme" => (at(scheme, elsewhere), format!("//{elsewhere}{other_path}")),
        "another port, the own one as user" => {
            (at(scheme, elsewhere), format!("{scheme}://{authority}@{elsewhere}{other_path}"))
        }
        "another scheme and port" => (at(twin, elsewhere), format!("{twin}://{elsewhere}{other_path}")),
        "the same address with a user" => (own.to_owned(), format!("{scheme}://{USER}@{authority}{path}")),
        _ => panic!("no place is called {name:?}"),
    };
    Place { location, origin }
}

/// Runs cases, a few at a time.
fn each<T: Sync>(cases: &[T], run: impl Fn(&T) + Sync) {
    for some in cases.chunks(AT_ONCE) {
        at_once(some, &run);
    }
}

// With the key.

/// A call of the API, the status of its redirect, its path, and the command that makes it.
struct Asked {
    call: Call,
    status: u16,
    path: &'static str,
    command: &'static [&'static str],
}

const SYNC: &[&str] = &["sync"];

/// Every call that carries the key. A POST may be redirected with 307 and 308 only.
const CALLS: [Asked; 6] = [
    Asked { call: Call::Start, status: 307, path: "/v1/static-export/jobs", command: SYNC },
    Asked { call: Call::Poll, status: 302, path: "/v1/static-export/jobs/se_0000000000000001", command: SYNC },
    Asked { call: Call::Bundle, status: 308, path: "/v1/static-export/jobs/se_0000000000000001/bundle", command: SYNC },
    Asked {
        call: Call::Preview,
        status: 307,
        path: "/v1/project/preview/prj_7%2Fa",
        command: &["preview", "create", "--branch", "x"],
    },
    Asked {
        call: Call::Deployment,
        status: 303,
        path: "/v1/project/update-status/dep_1",
        command: &["preview", "status", "dep_1"],
    },
    Asked {
        call: Call::Searches,
        status: 301,
        path: "/v1/analytics/prj_7%2Fa/searches",
        command: &["analytics", "searches"],
    },
];

/// The API answers a call with a redirect to these places, one after the other. The key goes to its own scheme, host
/// and port alone, and no further hop is taken than leads there.
fn key_stays(scheme: &'static str, asked: &Asked, status: u16, hops: &[&'static str]) {
    let at = format!("{scheme}, {:?} with {status} to {hops:?}", asked.call);
    let (authority, heard) = (Authority::new(), Heard::default());
    let upstream = listen(&authority, scheme, &heard);
    let other = listen(&authority, scheme, &heard);
    upstream.plan().studio.states = vec!["success".into()];
    upstream.plan().studio.deployments.insert("dep_1".to_owned(), 0);
    upstream.plan().studio.events.push(("tide".to_owned(), "2026-08-10".to_owned(), None));
    let own = upstream.api();
    let hops: Vec<Place> = hops.iter().map(|name| place(name, &own, &other.api(), asked.path, asked.path)).collect();
    for hop in &hops {
        upstream.on(asked.call).times(1).gives(redirect(status, &hop.location));
    }
    let may_follow = |hop: &&Place| {
        let is_repeatable =
            matches!(status, 307 | 308) || matches!(asked.call, Call::Poll | Call::Deployment | Call::Searches);
        hop.origin == own && !hop.has_user() && is_repeatable
    };
    let followed = hops.iter().take_while(may_follow).count();
    let is_refused = followed < hops.len();

    let ended = host(&upstream, &authority).ends(if is_refused { 4 } else { 0 }, asked.command);
    let heard = heard.lock().expect("no panic while locked");
    assert!(heard[0].origin() == own && heard[0].text().contains(KEY), "{at}: the key was not sent at all");
    for said in &*heard {
        let text = said.text();
        assert!(said.origin() == own || !text.contains(KEY), "{at}: the key is at {}: {text}", said.origin());
        assert!(!text.contains(BASIC), "{at}: {text}");
    }
    let calls: Vec<String> = heard.iter().filter(|said| said.path() == asked.path).map(Said::origin).collect();
    assert!(calls.iter().all(|origin| *origin == own), "{at}: {calls:?}");
    if is_refused {
        assert_eq!(calls.len(), followed + 1, "{at}: {}", upstream.story());
        let why = if hops[followed].origin == own { "redirects" } else { "where the key must not go" };
        assert!(ended.stderr.contains(why), "{at}: {}", ended.stderr);
    } else {
        assert!(calls.len() > followed, "{at}: {}", upstream.story());
    }
}

#[test]
fn no_hop_takes_the_key_to_another_scheme_host_or_port() {
    let [start, poll, others @ ..] = &CALLS;
    let mut cases: Vec<(&'static str, &Asked, u16, Vec<&'static str>)> = Vec::new();
    for name in PLACES {
        cases.extend(
            [("https", start), ("https", poll), ("http", start)]
                .map(|(scheme, asked)| (scheme, asked, asked.status, vec![name])),
        );
    }
    for asked in others {
        for name in ["the same address", "another scheme", "another port", "the same address with a user"] {
            cases.push(("https", asked, asked.status, vec![name]));
        }
    }
    // Whatever the status says.
    for status in [301, 302, 303, 308] {
        cases.push(("https", start, status, vec!["another scheme"]));
        cases.push(("https", start, status, vec!["the same address"]));
    }
    // What was allowed once allows nothing further.
    for asked in [start, poll] {
        cases.push(("https", asked, asked.status, vec!["the same address", "another port"]));
        cases.push(("https", asked, asked.status, vec!["a path", "the same host, no scheme", "another scheme"]));
    }
    each(&cases, |(scheme, asked, status, hops)| key_stays(scheme, asked, *status, hops));
}

#[test]
fn doctor_follows_no_redirect() {
    let (authority, heard) = (Authority::new(), Heard::default());
    let upstream = listen(&authority, "https", &heard);
    let other = listen(&authority, "https", &heard);
    let job = "/v1/static-export/jobs/docwharf-doctor";
    upstream.on(Call::Poll).gives(redirect(307, &format!("{}{job}", other.api())));
    upstream.on(Call::Probe).gives(redirect(302, &other.probe()));
    let host = host(&upstream, &authority).set("sync.probe", format!("[{}]", text(&upstream.probe())));
    let ended = finish(&mut host.command(&["doctor", "--json"]));
    assert!(ended.json()["checks"].is_array());
    assert_eq!((upstream.count(Call::Poll), upstream.count(Call::Probe)), (1, 1), "{}", upstream.story());
    assert_eq!(other.connections(), 0);
}

// Without the key.

/// What is asked for without the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A bundle by the link in the API's answer.
    Link,
    /// A bundle by `staticExport.bundleUrl`, which has a user of its own.
    BundleUrl,
    /// `sync.probe`
    Probe,
}

/// The path of an address with its query.
fn path_of(url: &str, origin: &str) -> String {
    url.strip_prefix(origin).expect("an address of this origin").to_owned()
}

/// Has it asked for, to the end of it.
fn ask_for(kind: Kind, upstream: &Upstream, authority: &Authority) {
    let host = host(upstream, authority);
    match kind {
        Kind::Link => drop(finish(&mut host.command(SYNC))),
        Kind::BundleUrl => {
            // Beside an API: with a key that must not go along.
            let url = upstream.link().replacen("://", &format!("://{USER}@"), 1);
            drop(finish(&mut host.set("staticExport.bundleUrl", text(&url)).command(SYNC)));
        }
        Kind::Probe => {
            let host = host.set("sync.probe", format!("[{}]", text(&upstream.probe())));
            let daemon = host.run();
            until("the look at the start is over", || front(&daemon) == "one");
        }
    }
}

/// A server answers with a redirect to these places, one after the other: they are followed, but never from https to
/// http, and neither the key nor another origin's user goes along.
fn nothing_goes_along(kind: Kind, scheme: &'static str, hops: &[&'static str]) {
    let at = format!("{scheme}, {kind:?} to {hops:?}");
    let (authority, heard) = (Authority::new(), Heard::default());
    let upstream = listen(&authority, scheme, &heard);
    let other = listen(&authority, scheme, &heard);
    let own = upstream.bucket();
    let (call, path, other_path) = match kind {
        Kind::Probe => (Call::Probe, path_of(&upstream.probe(), &own), path_of(&other.probe(), &other.bucket())),
        _ => (Call::Download, path_of(&upstream.link(), &own), path_of(&other.link(), &other.bucket())),
    };
    let hops: Vec<Place> = hops.iter().map(|name| place(name, &own, &other.bucket(), &path, &other_path)).collect();
    let mut expected = vec![own.clone()];
    for hop in &hops {
        let from = expected.last().expect("at least one");
        let server = if from.ends_with(other.bucket().trim_start_matches(scheme)) { &other } else { &upstream };
        server.on(call).times(1).gives(redirect(302, &hop.location));
        if scheme_of(from) == "https" && hop.scheme() == "http" {
            break;
        }
        expected.push(hop.origin.clone());
    }

    ask_for(kind, &upstream, &authority);
    let heard = heard.lock().expect("no panic while locked");
    for said in &*heard {
        let (origin, text) = (said.origin(), said.text());
        assert!(origin == upstream.api() || !text.contains(KEY), "{at}: the key is at {origin}: {text}");
        assert!(origin == own || !text.contains(BASIC), "{at}: a user of {own} is at {origin}: {text}");
        let fields = text.to_ascii_lowercase();
        assert!(!fields.contains("\nreferer:") && !fields.contains("\ncookie:"), "{at}: {text}");
    }
    // The link that the API gives names its job, the one of the configuration does not.
    let begins = match kind {
        Kind::Link => "/exports/",
        Kind::BundleUrl => "/exports/byhand/",
        Kind::Probe => "/sitemap.xml",
    };
    let asked: Vec<String> = heard.iter().filter(|said| said.path().starts_with(begins)).map(Said::origin).collect();
    assert_eq!(asked, expected, "{at}: {}{}", upstream.story(), other.story());
}

#[test]
fn links_and_probes_are_followed_but_never_from_https_to_http_and_nothing_goes_along() {
    let mut cases: Vec<(Kind, &'static str, Vec<&'static str>)> = Vec::new();
    for kind in [Kind::Link, Kind::BundleUrl, Kind::Probe] {
        cases.extend(PLACES.map(|name| (kind, "https", vec![name])));
        for name in ["another scheme", "another host", "another port", "another scheme and port"] {
            cases.push((kind, "http", vec![name]));
        }
        cases.push((kind, "https", vec!["another port", "another scheme"]));
        cases.push((kind, "http", vec!["another scheme", "another port"]));
    }
    each(&cases, |(kind, scheme, hops)| nothing_goes_along(*kind, scheme, hops));
}
