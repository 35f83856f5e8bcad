//! An upstream for tests: the static-export API at one address, the bucket with its bundles at another, every request
//! kept, and every answer open to a change of script.

mod api;
mod clock;
mod connections;
mod outgoing;
mod plan;
mod reply;
pub(crate) mod request;

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::studio::Studio;

pub use api::SIGNATURE;
pub use clock::{http_date, stamp};
use connections::{Shared, serve};
pub use connections::{Wire, Wrap};
use plan::Rule;
pub use plan::{Coding, Plan};
pub use reply::{Reply, answer, close, expired, honest, raw, redirect, silence, storage_error};
pub use request::{Call, Request};

/// The admin key that the API takes.
pub const KEY: &str = "dwk_5ecretAdminKeyThatNobodyMayPrint";
/// The domain that is exported.
pub const DOMAIN: &str = "docs.example.com";

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
        api::link(self.shared.origins(), &mut self.plan(), "by-hand")
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

    /// A job that another process started and that is done.
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
