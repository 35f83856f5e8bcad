//! An upstream for tests: the static-export API at one address, and the object store with the bundles at another. It
//! records every request, and rules of a test can change every response.

mod api;
mod clock;
mod connections;
mod outgoing;
mod reply;
pub(crate) mod request;
mod state;

use std::collections::{HashMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

use crate::project_api::ProjectApi;

pub use api::SIGNATURE;
pub use clock::{http_date_in, rfc3339_in};
pub use connections::{ByteStream, StreamWrapper};
use connections::{SharedState, serve};
pub use reply::{
    Reply, close_without_reply, error_reply, expired_link_reply, no_reply, normal_reply, raw_reply, redirect_reply,
    storage_error,
};
pub use request::{Request, UpstreamCall};
use state::Rule;
pub use state::{BundleCoding, UpstreamState};

/// The API key that the API accepts.
pub const KEY: &str = "dwk_5ecretAdminKeyThatNobodyMayPrint";
/// The domain that is exported.
pub const DOMAIN: &str = "docs.example.com";

/// A running upstream; stopped when dropped.
pub struct Upstream {
    shared: Arc<SharedState>,
    /// A bound socket that does not listen yet, so that connections to it are refused.
    closed: Mutex<Option<Socket>>,
}

/// Builds a rule for the responses to one kind of call.
#[must_use]
pub struct RuleBuilder<'a> {
    upstream: &'a Upstream,
    rule: Rule,
}

impl RuleBuilder<'_> {
    /// Limits the rule to a number of calls.
    pub fn times(mut self, times: usize) -> Self {
        self.rule.times = times;
        self
    }

    /// Skips this many calls before the rule applies. Calls to which an earlier rule responds do not count.
    pub fn after(mut self, skip: usize) -> Self {
        self.rule.skip = skip;
        self
    }

    /// Sets the response and adds the rule. Earlier rules have priority.
    pub fn respond_with(mut self, reply: Reply) {
        self.rule.reply = reply;
        self.upstream.state().rules.push(self.rule);
    }
}

fn bind_socket() -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("a free port");
    socket
}

fn address(socket: &Socket) -> SocketAddr {
    socket.local_addr().ok().and_then(|a| a.as_socket()).expect("an address")
}

impl Upstream {
    /// Starts an upstream with this bundle.
    pub fn new(bundle: Vec<u8>) -> Upstream {
        let upstream = Upstream::closed(bundle);
        upstream.open();
        upstream
    }

    /// Starts an upstream with an API that refuses connections until [`Upstream::open`].
    pub fn closed(bundle: Vec<u8>) -> Upstream {
        Upstream::build(bundle, "http", Arc::new(|stream| Some(Box::new(stream))))
    }

    /// Starts an upstream that wraps each connection with `wrap`. Its API refuses connections until [`Upstream::open`].
    pub fn build(bundle: Vec<u8>, scheme: &'static str, wrap: StreamWrapper) -> Upstream {
        let (api, object_store) = (bind_socket(), bind_socket());
        let state = UpstreamState {
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
            project_api: ProjectApi::default(),
            skew: 0,
            jobs: HashMap::new(),
            started: 0,
            links: HashMap::new(),
            rules: Vec::new(),
            log: Vec::new(),
        };
        let shared = Arc::new(SharedState {
            state: Mutex::new(state),
            stop: AtomicBool::new(false),
            connections: AtomicUsize::new(0),
            sent: AtomicUsize::new(0),
            api: address(&api),
            object_store: address(&object_store),
            scheme,
            wrap,
        });
        serve(&shared, object_store);
        Upstream { shared, closed: Mutex::new(Some(api)) }
    }

    /// Makes the API accept connections.
    pub fn open(&self) {
        let api = self.closed.lock().expect("no panic while locked").take().expect("not open yet");
        serve(&self.shared, api);
    }

    /// Returns the value for `api.baseUrl`.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.api_origin())
    }

    /// Returns the origin (scheme, host and port) of the API.
    pub fn api_origin(&self) -> String {
        format!("{}://{}", self.shared.scheme, self.shared.api)
    }

    /// Returns the origin (scheme, host and port) of the object store.
    pub fn object_store_origin(&self) -> String {
        format!("{}://{}", self.shared.scheme, self.shared.object_store)
    }

    /// Returns the URL of a page of the published site, for probes.
    pub fn probe_url(&self) -> String {
        format!("{}/sitemap.xml", self.object_store_origin())
    }

    /// Makes a new link to the bundle.
    pub fn link(&self) -> String {
        api::make_link(self.shared.addresses(), &mut self.state(), "by-hand")
    }

    /// Locks the state of the upstream, for reading and changing it.
    #[track_caller]
    pub fn state(&self) -> MutexGuard<'_, UpstreamState> {
        self.shared.state()
    }

    /// Replaces the bundle.
    pub fn publish(&self, bundle: Vec<u8>) {
        self.state().bundle = bundle;
    }

    /// Sets the statuses that the polls of each job return, one after the other.
    pub fn statuses(&self, statuses: &[Value]) {
        self.state().statuses = statuses.to_vec();
    }

    /// Adds a completed job that another process has started.
    pub fn add_finished_job(&self, id: &str) {
        self.state().jobs.insert(id.to_owned(), usize::MAX / 2);
    }

    /// Whether a poll has returned the last status of a job.
    pub fn has_job_ended(&self, id: &str) -> bool {
        let state = self.state();
        state.jobs.get(id).is_some_and(|polls| *polls >= state.statuses.len())
    }

    /// Removes all jobs.
    pub fn remove_jobs(&self) {
        self.state().jobs.clear();
    }

    /// Starts a rule for the responses to this kind of call.
    pub fn on(&self, call: UpstreamCall) -> RuleBuilder<'_> {
        RuleBuilder { upstream: self, rule: Rule { call, skip: 0, times: usize::MAX, reply: normal_reply() } }
    }

    /// Removes all rules.
    pub fn clear_rules(&self) {
        self.state().rules.clear();
    }

    /// Returns every request so far.
    pub fn log(&self) -> Vec<Request> {
        self.state().log.clone()
    }

    /// Returns the requests of one kind.
    pub fn calls(&self, call: UpstreamCall) -> Vec<Request> {
        self.state().log.iter().filter(|request| request.call == call).cloned().collect()
    }

    /// Returns the number of requests of one kind.
    pub fn count(&self, call: UpstreamCall) -> usize {
        self.state().log.iter().filter(|request| request.call == call).count()
    }

    /// Returns the number of connections, also of those without a request.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns the number of bytes of bodies that were written. Some of them may still be in the kernel.
    pub fn sent_bytes(&self) -> usize {
        self.shared.sent.load(Ordering::SeqCst)
    }

    /// Lists the requests and the status of each response, for messages.
    pub fn request_history(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for request in &self.state().log {
            let Request { call, method, target, status, .. } = request;
            let _ = write!(text, "\n  {call:?} {method} {target} → {status}");
        }
        text
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for address in [self.shared.api, self.shared.object_store] {
            // Wakes the thread that accepts.
            let _ = TcpStream::connect(address);
        }
    }
}
