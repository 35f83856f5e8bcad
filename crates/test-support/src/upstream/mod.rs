//! An upstream for tests: the static-export API at one address, the bucket with its bundles at another, every request
//! kept, and every answer open to a change of script.

use std::collections::{HashMap, VecDeque};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use docwharf::model::digest::Digest;
use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

use crate::studio::Studio;
use crate::tar::gzip;

/// The admin key that the API takes.
pub const KEY: &str = "dwk_5ecretAdminKeyThatNobodyMayPrint";
/// Beginning of each signature of a link.
pub const SIGNATURE: &str = "51gna7ure0fTheBucket";
/// Bytes that follow a body, again and again.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];
/// When the bundle was last changed, whatever it is.
const MODIFIED: &str = "Sat, 01 Aug 2026 10:00:00 GMT";
/// The domain that is exported.
pub const DOMAIN: &str = "docs.example.com";

/// Subject of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// Start of an export job.
    Start,
    /// Status of an export job.
    Poll,
    /// Link to the bundle of an export job.
    Bundle,
    /// The bundle behind a link.
    Download,
    /// A page that is probed for changes.
    Probe,
    /// Creation of a preview.
    Preview,
    /// Status of a deployment.
    Deployment,
    /// Search analytics.
    Searches,
    /// Any other request.
    Other,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// Subject of the request.
    pub call: Call,
    /// Method.
    pub method: String,
    /// Target with its query.
    pub target: String,
    /// Names as they were sent.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// Time of arrival.
    pub at: Instant,
    /// Status of the answer; 0 for none.
    pub status: u16,
}

impl Request {
    /// The value of a field that is there at most once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "{name} more than once: {:?}", self.headers);
        first
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("no JSON ({e}): {self:?}"))
    }

    /// Everything that was sent but the body, as text to search in.
    pub fn head(&self) -> String {
        let fields: Vec<String> = self.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        format!("{} {}\n{}", self.method, self.target, fields.concat())
    }

    /// The job a poll or a bundle call names, decoded once; the whole of its one segment.
    pub fn job(&self) -> Option<String> {
        job_of(path(&self.target))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
enum Kind {
    /// The answer of the specification.
    #[default]
    Honest,
    /// An answer made by the test.
    Made,
    /// No answer, for as long as the other side waits.
    Silence,
    /// The connection is closed before an answer.
    Close,
}

/// An answer, or the honest one with changes.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Reply {
    kind: Kind,
    status: u16,
    body: Option<Vec<u8>>,
    /// `None` takes a field away.
    fields: Vec<(String, Option<String>)>,
    whole: bool,
    cut: Option<usize>,
    stall: Option<usize>,
    trickle: Option<(usize, Duration)>,
    zeros: usize,
}

/// The honest answer, to be changed.
pub fn honest() -> Reply {
    Reply::default()
}

/// An error of this status with a JSON body, as the API writes them.
pub fn answer(status: u16) -> Reply {
    let reply = Reply { kind: Kind::Made, status, ..Reply::default() };
    reply.json(&json!({"error": format!("scripted answer {status}")}))
}

/// Status 200 with this body.
pub fn raw(kind: &str, body: impl AsRef<[u8]>) -> Reply {
    Reply { kind: Kind::Made, status: 200, ..Reply::default() }.body(kind, body)
}

/// Reads the request and never answers.
pub fn silence() -> Reply {
    Reply { kind: Kind::Silence, ..Reply::default() }
}

/// Closes the connection instead of an answer.
pub fn close() -> Reply {
    Reply { kind: Kind::Close, ..Reply::default() }
}

/// A redirect to another location.
pub fn redirect(status: u16, location: &str) -> Reply {
    Reply { kind: Kind::Made, status, body: Some(Vec::new()), ..Reply::default() }.header("Location", location)
}

/// An error of the storage service.
pub fn storage_error(status: u16, code: &str, message: &str) -> Reply {
    let reply = Reply { kind: Kind::Made, status, ..Reply::default() };
    reply.body("application/xml", storage_xml(code, message))
}

/// Answer of the storage service to a link that has expired.
pub fn expired() -> Reply {
    storage_error(403, "AccessDenied", "Request has expired")
}

fn storage_xml(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
         <RequestId>4442587FB7D0A2F9</RequestId></Error>"
    )
}

impl Reply {
    /// Sets the status.
    pub fn status(mut self, status: u16) -> Reply {
        self.status = status;
        self
    }

    /// Sets content type and body.
    pub fn body(mut self, kind: &str, body: impl AsRef<[u8]>) -> Reply {
        self.body = Some(body.as_ref().to_vec());
        self.header("Content-Type", kind)
    }

    /// Sets a JSON body.
    pub fn json(self, body: &Value) -> Reply {
        self.body("application/json", body.to_string())
    }

    /// Sets a field, in place of one of that name.
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Reply {
        self.fields.push((name.to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Takes a field away.
    pub fn without(mut self, name: &str) -> Reply {
        self.fields.push((name.to_owned(), None));
        self
    }

    /// Answers a range with the whole.
    pub fn ignoring_range(mut self) -> Reply {
        self.whole = true;
        self
    }

    /// Closes the connection after so many bytes of the body.
    pub fn cut(mut self, bytes: usize) -> Reply {
        self.cut = Some(bytes);
        self
    }

    /// Sends so many bytes of the body and then nothing more.
    pub fn stall(mut self, bytes: usize) -> Reply {
        self.stall = Some(bytes);
        self
    }

    /// Sends so many zeros behind the body, to the next 64 KiB, or as many as are taken.
    pub fn zeros(mut self, bytes: usize) -> Reply {
        self.zeros = bytes;
        self
    }

    /// Sends the body in so many pieces with a pause between them.
    pub fn trickle(mut self, pieces: usize, pause: Duration) -> Reply {
        self.trickle = Some((pieces, pause));
        self
    }
}

/// A `Content-Encoding: gzip` on the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// A label alone, as of a storage service that took a `.tar.gz` for a coded `.tar`.
    Label,
    /// A second layer around what was compressed already.
    Layer,
}

/// State of the upstream.
#[derive(Debug)]
pub struct Plan {
    /// The key it takes.
    pub key: String,
    /// The bundle of the next job.
    pub bundle: Vec<u8>,
    /// Validator of the bundle; none for one made from its content.
    pub etag: Option<String>,
    /// Content coding of the bundle.
    pub coding: Option<Coding>,
    /// Statuses that polls of a job give one after the other; the last is repeated. A text stands for a whole answer
    /// with that status.
    pub statuses: Vec<Value>,
    /// The ids of the next jobs; then they are numbered.
    pub job_ids: VecDeque<String>,
    /// Number of times that a link works.
    pub link_uses: usize,
    /// Expiry of links; none for an hour from now, null leaves it out.
    pub expires_at: Option<Value>,
    /// Size in the answer with the link; none for the real one.
    pub size_bytes: Option<Value>,
    /// A link in place of the honest one.
    pub link: Option<String>,
    /// Links lead to the API's own address.
    pub link_on_api: bool,
    /// Content of pages that are probed.
    pub probe: Vec<u8>,
    /// Content of pages by target with its query.
    pub pages: HashMap<String, Vec<u8>>,
    /// Previews and search analytics.
    pub studio: Studio,
    /// Seconds by which its clock is ahead.
    pub skew: i64,
    /// Polls answered so far, for each job.
    jobs: HashMap<String, usize>,
    started: usize,
    /// Uses left, by signature.
    links: HashMap<String, usize>,
    rules: Vec<Rule>,
    log: Vec<Request>,
}

#[derive(Debug)]
struct Rule {
    call: Call,
    skip: usize,
    times: usize,
    reply: Reply,
}

struct Shared {
    plan: Mutex<Plan>,
    stop: AtomicBool,
    connections: AtomicUsize,
    /// Bytes of bodies that were written.
    sent: AtomicUsize,
    api: SocketAddr,
    bucket: SocketAddr,
    scheme: &'static str,
    wrap: Wrap,
}

/// The running upstream; gone when dropped.
pub struct Upstream {
    shared: Arc<Shared>,
    /// A bound socket that does not listen yet, so that connections to it are refused.
    closed: Mutex<Option<Socket>>,
}

/// A rule in the making.
#[must_use]
pub struct On<'a> {
    upstream: &'a Upstream,
    rule: Rule,
}

impl On<'_> {
    /// Limits the rule to a number of calls.
    pub fn times(mut self, times: usize) -> Self {
        self.rule.times = times;
        self
    }

    /// Delays the rule until a number of calls that no earlier rule took.
    pub fn after(mut self, skip: usize) -> Self {
        self.rule.skip = skip;
        self
    }

    /// The rule is in force from now on, behind those before it.
    pub fn gives(mut self, reply: Reply) {
        self.rule.reply = reply;
        self.upstream.plan().rules.push(self.rule);
    }
}

fn bound() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    socket
}

fn address(socket: &Socket) -> SocketAddr {
    socket.local_addr().ok().and_then(|a| a.as_socket()).expect("an address")
}

impl Upstream {
    /// An upstream whose next job will end with this bundle.
    pub fn new(bundle: Vec<u8>) -> Upstream {
        let upstream = Upstream::closed(bundle);
        upstream.open();
        upstream
    }

    /// An upstream whose API refuses connections until it is opened.
    pub fn closed(bundle: Vec<u8>) -> Upstream {
        Upstream::build(bundle, "http", Arc::new(|stream| Some(Box::new(stream))))
    }

    /// An upstream that speaks through the result of `wrap` for a connection, and refuses connections until it is
    /// opened.
    pub fn build(bundle: Vec<u8>, scheme: &'static str, wrap: Wrap) -> Upstream {
        let (api, bucket) = (bound(), bound());
        let plan = Plan {
            key: KEY.to_owned(),
            bundle,
            etag: None,
            coding: None,
            statuses: vec!["queued".into(), "running".into(), "completed".into()],
            job_ids: VecDeque::new(),
            link_uses: usize::MAX,
            expires_at: None,
            size_bytes: None,
            link: None,
            link_on_api: false,
            probe: b"<urlset></urlset>".to_vec(),
            pages: HashMap::new(),
            studio: Studio::default(),
            skew: 0,
            jobs: HashMap::new(),
            started: 0,
            links: HashMap::new(),
            rules: Vec::new(),
            log: Vec::new(),
        };
        let shared = Arc::new(Shared {
            plan: Mutex::new(plan),
            stop: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            api: address(&api),
            bucket: address(&bucket),
            scheme,
            wrap,
        });
        serve(&shared, bucket);
        Upstream { shared, closed: Mutex::new(Some(api)) }
    }

    /// Lets the API take connections.
    pub fn open(&self) {
        let api = self.closed.lock().expect("no panic while locked").take().expect("not open yet");
        serve(&self.shared, api);
    }

    /// Value for `api.baseUrl`.
    pub fn base(&self) -> String {
        format!("{}/v1", self.api())
    }

    /// The API's origin.
    pub fn api(&self) -> String {
        format!("{}://{}", self.shared.scheme, self.shared.api)
    }

    /// The bucket's origin.
    pub fn bucket(&self) -> String {
        format!("{}://{}", self.shared.scheme, self.shared.bucket)
    }

    /// A page of the site as it is published, for probes.
    pub fn probe(&self) -> String {
        format!("{}/sitemap.xml", self.bucket())
    }

    /// A fresh link to the bundle.
    pub fn link(&self) -> String {
        self.shared.link(&mut self.plan(), "by-hand")
    }

    /// State of the upstream, to be read and changed.
    #[track_caller]
    pub fn plan(&self) -> MutexGuard<'_, Plan> {
        self.shared.plan()
    }

    /// Sets the bundle with which jobs end.
    pub fn publish(&self, bundle: Vec<u8>) {
        self.plan().bundle = bundle;
    }

    /// Sets the statuses that polls of each job give one after the other.
    pub fn statuses(&self, statuses: &[Value]) {
        self.plan().statuses = statuses.to_vec();
    }

    /// A job that somebody else started and that is done.
    pub fn finished_job(&self, id: &str) {
        self.plan().jobs.insert(id.to_owned(), usize::MAX / 2);
    }

    /// Whether a job has told the last of its statuses.
    pub fn has_ended(&self, id: &str) -> bool {
        let plan = self.plan();
        plan.jobs.get(id).is_some_and(|polls| *polls >= plan.statuses.len())
    }

    /// The jobs are gone.
    pub fn forget_jobs(&self) {
        self.plan().jobs.clear();
    }

    /// The next answers to such a call.
    pub fn on(&self, call: Call) -> On<'_> {
        On { upstream: self, rule: Rule { call, skip: 0, times: usize::MAX, reply: honest() } }
    }

    /// Removes all rules.
    pub fn heal(&self) {
        self.plan().rules.clear();
    }

    /// Every request so far.
    pub fn log(&self) -> Vec<Request> {
        self.plan().log.clone()
    }

    /// The requests of one kind.
    pub fn calls(&self, call: Call) -> Vec<Request> {
        self.plan().log.iter().filter(|request| request.call == call).cloned().collect()
    }

    /// Number of requests of one kind.
    pub fn count(&self, call: Call) -> usize {
        self.plan().log.iter().filter(|request| request.call == call).count()
    }

    /// Number of connections, also without a request.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Bytes of bodies that have gone out; the kernel may hold some of them.
    pub fn sent(&self) -> usize {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// The order of calls with what each was answered, for messages.
    pub fn story(&self) -> String {
        use std::fmt::Write as _;
        let mut told = String::new();
        for request in &self.plan().log {
            let Request { call, method, target, status, .. } = request;
            let _ = write!(told, "\n  {call:?} {method} {target} → {status}");
        }
        told
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for address in [self.shared.api, self.shared.bucket] {
            // Wakes the thread that accepts.
            let _ = TcpStream::connect(address);
        }
    }
}

/// A connection, with or without a layer of cryptography.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Makes a connection of a stream, if the other side plays along.
pub type Wrap = Arc<dyn Fn(TcpStream) -> Option<Box<dyn Wire>> + Send + Sync>;

fn serve(shared: &Arc<Shared>, socket: Socket) {
    socket.listen(128).expect("a bound socket can listen");
    let listener = TcpListener::from(socket);
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if shared.stop.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            shared.connections.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
                let _ = stream.set_write_timeout(Some(Duration::from_secs(30)));
                let _ = stream.set_nodelay(true);
                if let Some(mut wire) = (shared.wrap)(stream) {
                    shared.converse(wire.as_mut());
                }
            });
        }
    });
}

/// Fields and body of an answer before it is sent.
struct Outgoing {
    status: u16,
    fields: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Outgoing {
    fn new(status: u16, kind: &str, body: Vec<u8>) -> Outgoing {
        Outgoing { status, fields: vec![("Content-Type".to_owned(), kind.to_owned())], body }
    }

    fn json(status: u16, body: &Value) -> Outgoing {
        Outgoing::new(status, "application/json", body.to_string().into_bytes())
    }

    fn set(&mut self, name: &str, value: Option<&str>) {
        self.fields.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.fields.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
}

impl Shared {
    #[track_caller]
    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn link(&self, plan: &mut Plan, job: &str) -> String {
        let signature = format!("{SIGNATURE}{:04}", plan.links.len());
        let uses = plan.link_uses;
        plan.links.insert(signature.clone(), uses);
        let origin = if plan.link_on_api { self.api } else { self.bucket };
        let job: String = job.chars().filter(char::is_ascii_alphanumeric).collect();
        format!(
            "{}://{origin}/exports/{job}/bundle.tar.gz?X-Amz-Algorithm=AWS4-HMAC-SHA256\
             &X-Amz-Credential=AKIDEXAMPLE%2F20260801%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Expires=3600\
             &X-Amz-Security-Token={SIGNATURE}T0ken&X-Amz-Signature={signature}",
            self.scheme
        )
    }

    /// One request, one answer, and the connection is closed.
    fn converse(&self, wire: &mut dyn Wire) {
        let Some(mut request) = self.receive(wire) else { return };
        request.call = classify(&request);
        let (reply, outgoing) = {
            let mut plan = self.plan();
            let reply = plan.scripted(request.call);
            let outgoing = match reply.kind {
                Kind::Silence | Kind::Close => None,
                Kind::Honest => Some(self.honest(&mut plan, &request, reply.whole)),
                Kind::Made => Some(Outgoing { status: reply.status, fields: Vec::new(), body: Vec::new() }),
            };
            let outgoing = outgoing.map(|mut outgoing| {
                if reply.status != 0 {
                    outgoing.status = reply.status;
                }
                if let Some(body) = &reply.body {
                    outgoing.body.clone_from(body);
                }
                let now = shifted(plan.skew);
                outgoing.set("Date", Some(&httpdate::fmt_http_date(now)));
                for (name, value) in &reply.fields {
                    outgoing.set(name, value.as_deref());
                }
                outgoing
            });
            request.status = outgoing.as_ref().map_or(0, |outgoing| outgoing.status);
            plan.log.push(request);
            (reply, outgoing)
        };
        match outgoing {
            Some(outgoing) => self.send(wire, outgoing, &reply),
            None if reply.kind == Kind::Silence => self.wait(wire),
            None => {}
        }
    }

    /// Waits until the other side has enough, or the upstream goes.
    fn wait(&self, wire: &mut dyn Wire) {
        let mut byte = [0; 256];
        while !self.stop.load(Ordering::SeqCst) {
            match wire.read(&mut byte) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if is_time_out(&error) => {}
                Err(_) => return,
            }
        }
    }

    fn send(&self, wire: &mut dyn Wire, mut outgoing: Outgoing, reply: &Reply) {
        use std::fmt::Write as _;
        let mut head = format!("HTTP/1.1 {} Scripted\r\nConnection: close\r\n", outgoing.status);
        let bodiless = matches!(outgoing.status, 204 | 304);
        let told = |name: &str| reply.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !bodiless && !told("Content-Length") && !told("Transfer-Encoding") {
            let length = outgoing.body.len().to_string();
            outgoing.set("Content-Length", Some(&length));
        }
        for (name, value) in &outgoing.fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        let whole = if bodiless { &[][..] } else { &outgoing.body };
        let most = reply.cut.or(reply.stall).unwrap_or(usize::MAX).min(whole.len());
        let body = &whole[..most];
        if wire.write_all(head.as_bytes()).is_err() {
            return;
        }
        let (pieces, pause) = reply.trickle.unwrap_or((1, Duration::ZERO));
        for piece in body.chunks(body.len().div_ceil(pieces).max(1)) {
            if self.give(wire, piece).is_err() {
                return;
            }
            std::thread::sleep(pause);
        }
        for _ in 0..reply.zeros.div_ceil(ZEROS.len()) {
            if self.give(wire, &ZEROS).is_err() {
                return;
            }
        }
        let _ = wire.flush();
        if reply.stall.is_some() {
            self.wait(wire);
        }
    }

    /// Writes a part of a body, and counts what is taken of it.
    fn give(&self, wire: &mut dyn Wire, bytes: &[u8]) -> std::io::Result<()> {
        for part in bytes.chunks(ZEROS.len()) {
            wire.write_all(part)?;
            self.sent.fetch_add(part.len(), Ordering::SeqCst);
        }
        wire.flush()
    }

    fn receive(&self, wire: &mut dyn Wire) -> Option<Request> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break end;
            }
            self.more(wire, &mut bytes)?;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut request =
            Request { call: Call::Other, method, target, headers, body: Vec::new(), at: Instant::now(), status: 0 };
        let mut body = bytes.split_off(end + 4);
        let field = |name: &str| {
            request.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        if field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            while !body.ends_with(b"0\r\n\r\n") {
                self.more(wire, &mut body)?;
            }
            body = unchunked(&body)?;
        } else if let Some(length) = field("content-length") {
            let length: usize = length.parse().ok()?;
            while body.len() < length {
                self.more(wire, &mut body)?;
            }
        }
        request.body = body;
        Some(request)
    }

    fn more(&self, wire: &mut dyn Wire, bytes: &mut Vec<u8>) -> Option<()> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match wire.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => {
                    bytes.extend_from_slice(&chunk[..n]);
                    return Some(());
                }
                Err(error) if is_time_out(&error) && !self.stop.load(Ordering::SeqCst) => {}
                Err(_) => return None,
            }
        }
    }

    /// The answer of the specification.
    fn honest(&self, plan: &mut Plan, request: &Request, whole: bool) -> Outgoing {
        match request.call {
            Call::Download => return plan.download(request, whole),
            Call::Probe => {
                let page = plan.pages.get(&request.target).unwrap_or(&plan.probe);
                let etag = format!("\"{}\"", &Digest::of(page).hex()[..16]);
                let mut outgoing = Outgoing::new(200, "application/xml", page.clone());
                if request.header("if-none-match") == Some(&etag) {
                    outgoing = Outgoing::new(304, "application/xml", Vec::new());
                }
                outgoing.set("ETag", Some(&etag));
                return outgoing;
            }
            _ => {}
        }
        if request.header("authorization") != Some(&format!("Bearer {}", plan.key)) {
            return Outgoing::json(401, &json!({"error": "invalid API key"}));
        }
        let vanished = || Outgoing::json(404, &json!({"error": "no such job"}));
        match request.call {
            Call::Start => {
                let domain = serde_json::from_slice::<Value>(&request.body).ok();
                let domain = domain.and_then(|body| body["domain"].as_str().map(str::to_owned));
                if domain.is_none_or(|domain| domain.is_empty() || domain.contains(['/', ':'])) {
                    return Outgoing::json(400, &json!({"error": "domain is missing or no host name"}));
                }
                plan.started += 1;
                let id = plan.job_ids.pop_front().unwrap_or_else(|| format!("se_{:016x}", plan.started));
                plan.jobs.insert(id.clone(), 0);
                let now = stamp(plan.skew);
                Outgoing::json(
                    202,
                    &json!({"jobId": id, "status": "queued", "progress": 0, "pageCount": 0, "createdAt": now,
                        "updatedAt": now}),
                )
            }
            Call::Poll => {
                let Some((id, polls)) = request.job().and_then(|id| plan.jobs.get_key_value(&id)) else {
                    return vanished();
                };
                let (id, polls) = (id.clone(), *polls);
                plan.jobs.insert(id.clone(), polls + 1);
                let last = plan.statuses.len() - 1;
                match &plan.statuses[polls.min(last)] {
                    Value::String(status) => {
                        let progress = if status == "completed" { 100 } else { polls.min(99) };
                        Outgoing::json(
                            200,
                            &json!({"jobId": id, "status": status, "progress": progress, "pageCount": progress * 3,
                                "updatedAt": stamp(plan.skew), "error": null}),
                        )
                    }
                    other => Outgoing::json(200, other),
                }
            }
            Call::Bundle => {
                let Some((id, polls)) = request.job().and_then(|id| plan.jobs.get_key_value(&id)) else {
                    return vanished();
                };
                let (id, polls) = (id.clone(), *polls);
                let last = plan.statuses.len() - 1;
                let said = &plan.statuses[polls.saturating_sub(1).min(last)];
                if said != "completed" && said["status"] != "completed" {
                    return Outgoing::json(409, &json!({"error": "the job is not finished"}));
                }
                let link = plan.link.clone().unwrap_or_else(|| self.link(plan, &id));
                let size = plan.size_bytes.clone().unwrap_or_else(|| plan.representation().len().into());
                let expires = plan.expires_at.clone().unwrap_or_else(|| stamp(plan.skew + 3600).into());
                let mut body = json!({"jobId": id, "bundleUrl": link, "sizeBytes": size});
                if !expires.is_null() {
                    body["expiresAt"] = expires;
                }
                Outgoing::json(200, &body)
            }
            Call::Preview | Call::Deployment | Call::Searches => {
                let origin = format!("{}://{}", self.scheme, self.api);
                let (status, body) = plan.studio.answer(request, &origin);
                Outgoing::json(status, &body)
            }
            _ => Outgoing::json(404, &json!({"error": "no such route"})),
        }
    }
}

impl Plan {
    fn scripted(&mut self, call: Call) -> Reply {
        for rule in self.rules.iter_mut().filter(|rule| rule.call == call && rule.times > 0) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            return rule.reply.clone();
        }
        honest()
    }

    /// The bytes behind a link.
    pub fn representation(&self) -> Vec<u8> {
        if self.coding == Some(Coding::Layer) { gzip(&self.bundle) } else { self.bundle.clone() }
    }

    /// The validator of these bytes.
    pub fn validator(&self) -> String {
        self.etag.clone().unwrap_or_else(|| format!("\"{}\"", &Digest::of(&self.bundle).hex()[..32]))
    }

    fn download(&mut self, request: &Request, whole: bool) -> Outgoing {
        let xml = |status, code: &str, message: &str| {
            Outgoing::new(status, "application/xml", storage_xml(code, message).into_bytes())
        };
        if request.header("authorization").is_some() {
            return xml(400, "InvalidArgument", "Only one auth mechanism allowed");
        }
        if request.method != "GET" {
            return xml(403, "SignatureDoesNotMatch", "The signature is for another method");
        }
        let query = request.target.split_once('?').map_or("", |(_, query)| query);
        let signature = query.split('&').find_map(|pair| pair.strip_prefix("X-Amz-Signature="));
        match signature.and_then(|signature| self.links.get_mut(signature)) {
            None => return xml(403, "SignatureDoesNotMatch", "The signature is not ours"),
            Some(0) => return xml(403, "AccessDenied", "Request has expired"),
            Some(uses) => *uses -= 1,
        }
        let bytes = self.representation();
        let etag = self.validator();
        let total = bytes.len();
        let mut outgoing;
        let asked = request.header("range").and_then(|range| range.strip_prefix("bytes="));
        let asked = asked.filter(|_| {
            let held = request.header("if-range");
            !whole && held.is_none_or(|held| (held == etag && !held.starts_with("W/")) || held == MODIFIED)
        });
        let asked = asked.and_then(|range| range.split_once('-'));
        let bounds = asked.and_then(|(from, to)| {
            let from: usize = from.parse().ok()?;
            let to = if to.is_empty() { total - 1 } else { to.parse().ok()? };
            Some((from, to.min(total - 1)))
        });
        if request.header("if-none-match").is_some_and(|held| held.split(", ").any(|held| held == etag)) {
            outgoing = Outgoing::new(304, "application/gzip", Vec::new());
        } else if let Some((from, to)) = bounds {
            if from >= total {
                outgoing = xml(416, "InvalidRange", "The requested range is not satisfiable");
                outgoing.set("Content-Range", Some(&format!("bytes */{total}")));
                return outgoing;
            }
            outgoing = Outgoing::new(206, "application/gzip", bytes[from..=to].to_vec());
            outgoing.set("Content-Range", Some(&format!("bytes {from}-{to}/{total}")));
        } else {
            outgoing = Outgoing::new(200, "application/gzip", bytes);
        }
        outgoing.set("ETag", Some(&etag));
        outgoing.set("Last-Modified", Some(MODIFIED));
        outgoing.set("Accept-Ranges", Some("bytes"));
        if self.coding.is_some() {
            outgoing.set("Content-Encoding", Some("gzip"));
        }
        outgoing
    }
}

fn is_time_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.extend_from_slice(bytes.get(end + 2..end + 2 + size)?);
        bytes = bytes.get(end + 4 + size..)?;
    }
}

fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

fn job_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/v1/static-export/jobs/")?;
    let segment = rest.strip_suffix("/bundle").unwrap_or(rest);
    if segment.is_empty() || segment.contains('/') {
        return None;
    }
    Some(percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned())
}

fn classify(request: &Request) -> Call {
    let path = path(&request.target);
    match request.method.as_str() {
        "POST" if path == "/v1/static-export/jobs" => Call::Start,
        "POST" if path.ends_with("/bundle") && job_of(path).is_some() => Call::Bundle,
        "GET" if job_of(path).is_some() => Call::Poll,
        "POST" if path.starts_with("/v1/project/preview/") => Call::Preview,
        "GET" if path.starts_with("/v1/project/update-status/") => Call::Deployment,
        "GET" if path.starts_with("/v1/analytics/") && path.ends_with("/searches") => Call::Searches,
        _ if path.starts_with("/exports/") => Call::Download,
        _ if matches!(path, "/sitemap.xml" | "/llms.txt") => Call::Probe,
        _ => Call::Other,
    }
}

fn shifted(seconds: i64) -> SystemTime {
    let by = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 { SystemTime::now() - by } else { SystemTime::now() + by }
}

/// A moment as the API writes it, so many seconds from now.
pub fn stamp(seconds: i64) -> String {
    jiff::Timestamp::try_from(shifted(seconds)).expect("a moment of our age").to_string()
}

/// A moment as HTTP writes it, so many seconds from now.
pub fn http_date(seconds: i64) -> String {
    httpdate::fmt_http_date(shifted(seconds))
}
