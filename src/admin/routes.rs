//! The admin routes. Those that only report are served on the control socket and on `admin.listen`. Commands are
//! accepted on the control socket only, where the user of the client is known.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use tokio::sync::{mpsc, oneshot};

use docwharf_agent::publish::published_version;
use docwharf_agent::store::VersionStore;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::metrics_format::MetricsFormat;
use docwharf_serve::Site;
use docwharf_serve::peer::Peer;
use docwharf_serve::service::RequestService;
use docwharf_serve::watchdog::Watchdog;

use super::live::Live;
use super::metrics::Metrics;
use super::status::Status;
use super::wire::{ORDERS, Order, Reply};

/// The maximum size of a command in bytes.
const MOST: usize = 64 * 1024;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The body of an admin response.
type Said = Full<Bytes>;

/// The way on which a request arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// The control socket: the client is our own user or root.
    Socket,
    /// The network: any client.
    Network,
}

/// A command on its way to the agent.
#[derive(Debug)]
pub struct Call {
    /// The command.
    pub order: Order,
    /// The channel for the reply.
    pub reply: oneshot::Sender<Reply>,
}

/// The HTTP service of the admin routes.
#[derive(Debug)]
pub struct Admin {
    /// The store that the daemon has open.
    pub store: VersionStore,
    /// The state that the agent reports.
    pub live: Arc<Live>,
    /// The metrics of the daemon.
    pub metrics: Arc<Metrics>,
    /// The site that the daemon serves.
    pub site: Arc<Site>,
    /// The queue of commands to the agent.
    pub orders: mpsc::Sender<Call>,
    /// The watchdog of the accept loops.
    pub pulse: Arc<Watchdog>,
}

impl RequestService for Admin {
    type Body = Said;

    fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        _peer: Peer,
    ) -> impl Future<Output = Response<Self::Body>> + Send + 'static + use<> {
        let admin = Arc::clone(self);
        async move { admin.reply(request, Reach::Network).await }
    }
}

impl Admin {
    pub(super) async fn reply(self: Arc<Self>, request: Request<Incoming>, reach: Reach) -> Response<Said> {
        let path = request.uri().path();
        if path == ORDERS && reach == Reach::Socket {
            return match *request.method() {
                Method::POST => self.take(request.into_body()).await,
                _ => not_allowed("POST"),
            };
        }
        let known = matches!(path, "/livez" | "/readyz" | "/status" | "/metrics");
        // Probes and scrapers may use any name of the machine, and these three routes reveal nothing worth protecting.
        let is_for_machines = matches!(path, "/livez" | "/readyz" | "/metrics");
        if reach == Reach::Network && !is_for_machines && !self.live.permits(&request) {
            return misdirected();
        }
        if known && !matches!(*request.method(), Method::GET | Method::HEAD) {
            return not_allowed("GET, HEAD");
        }
        match path {
            // This response alone shows that the admin loop runs; the check is for the loops that serve readers.
            "/livez" if self.pulse.is_healthy() => answer(StatusCode::OK, TEXT, "ok\n"),
            "/livez" => {
                answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the server does not accept connections any more\n")
            }
            // An unreachable upstream is no reason to fail: the sealed version is served.
            "/readyz" if self.site.current().is_some() && !self.is_published() => {
                answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "nothing is published yet\n")
            }
            "/readyz" if self.site.current().is_some() => answer(StatusCode::OK, TEXT, "ready\n"),
            "/readyz" => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "no version yet\n"),
            "/status" | "/metrics" => {
                let is_status = path == "/status";
                let format = MetricsFormat::negotiate(request.headers());
                // Both read the store, which blocks.
                let told =
                    tokio::task::spawn_blocking(move || if is_status { self.status() } else { self.metrics(format) });
                told.await.unwrap_or_else(|died| answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{died}\n")))
            }
            _ => answer(StatusCode::NOT_FOUND, TEXT, "404: there are /livez, /readyz, /status and /metrics\n"),
        }
    }

    /// Returns whether a version is published, if the site is served as files only; `true` if this daemon serves the
    /// site.
    fn is_published(&self) -> bool {
        let publish = self.live.now().publish.filter(|_| self.live.addresses.is_empty());
        publish.is_none_or(|settings| published_version(&settings).is_some())
    }

    fn status(&self) -> Response<Said> {
        let now = self.live.now();
        let status = Status::of(&self.store, now.intent.as_ref(), None, Some(&self.live));
        match status.map(|status| serde_json::to_vec_pretty(&status)) {
            Ok(Ok(json)) => answer(StatusCode::OK, JSON, json),
            Ok(Err(error)) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{}\n", ErrorChain(&error))),
        }
    }

    fn metrics(&self, format: MetricsFormat) -> Response<Said> {
        match self.metrics.text(&self.store, &self.live, &self.site) {
            Ok(text) => {
                let mut response = answer(StatusCode::OK, format.content_type(), format.render(text));
                response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
                response
            }
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        }
    }

    async fn take(&self, body: Incoming) -> Response<Said> {
        let order = match Limited::new(body, MOST).collect().await {
            Ok(body) => serde_json::from_slice::<Order>(&body.to_bytes()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let order = match order {
            Ok(order) => order,
            Err(why) => return answer(StatusCode::BAD_REQUEST, TEXT, format!("this is not a command: {why}\n")),
        };
        let (reply, told) = oneshot::channel();
        let stopping = || answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the daemon is stopping\n");
        if self.orders.send(Call { order, reply }).await.is_err() {
            return stopping();
        }
        let Ok(reply) = told.await else { return stopping() };
        match serde_json::to_vec(&reply) {
            Ok(json) => answer(StatusCode::OK, JSON, json),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
        }
    }
}

fn answer(status: StatusCode, media_type: &'static str, text: impl Into<Bytes>) -> Response<Said> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Responds with 421 to a request that names another host (RFC 9110, section 15.5.20).
fn misdirected() -> Response<Said> {
    let text = "421 Misdirected Request: the Host field does not name this listener; use an IP address, localhost or the \
                machine's name, or add the name to admin.hosts\n";
    answer(StatusCode::MISDIRECTED_REQUEST, TEXT, text)
}

fn not_allowed(allowed: &'static str) -> Response<Said> {
    let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, "405: method not allowed\n");
    response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
    response
}
