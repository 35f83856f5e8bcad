//! The admin routes. Those that tell answer on the socket and on `admin.listen`; orders are taken on the socket only, where
//! it is known who asks.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use tokio::sync::{mpsc, oneshot};

use docwharf_base::chain::Chain;
use docwharf_base::exposition::MetricsFormat;
use docwharf_agent::publish::published;
use docwharf_serve::Site;
use docwharf_serve::answer::Answer;
use docwharf_serve::peer::Peer;
use docwharf_serve::watchdog::Watchdog;
use docwharf_agent::store::Store;

use super::live::Live;
use super::metrics::Metrics;
use super::status::Status;
use super::wire::{ORDERS, Order, Reply};

/// An order is no larger than this.
const MOST: usize = 64 * 1024;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// A text of ours.
type Said = Full<Bytes>;

/// How a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Over the control socket: from our own user or root.
    Socket,
    /// Over the network: from anybody.
    Network,
}

/// An order on its way to the agent.
#[derive(Debug)]
pub struct Call {
    /// What is wanted.
    pub order: Order,
    /// Where the answer goes.
    pub reply: oneshot::Sender<Reply>,
}

/// Answers for a running daemon.
#[derive(Debug)]
pub struct Admin {
    /// The store it has open.
    pub store: Store,
    /// What the agent tells.
    pub live: Arc<Live>,
    /// What it counts.
    pub metrics: Arc<Metrics>,
    /// The site it serves.
    pub site: Arc<Site>,
    /// The way to the agent.
    pub orders: mpsc::Sender<Call>,
    /// Whether the loops that accept turn.
    pub pulse: Arc<Watchdog>,
}

impl Answer for Admin {
    type Body = Said;

    fn answer(
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
        // Probes and scrapers ask by whatever name the machine has for them, and these three tell a page nothing.
        let is_for_machines = matches!(path, "/livez" | "/readyz" | "/metrics");
        if reach == Reach::Network && !is_for_machines && !self.live.permits(&request) {
            return misdirected();
        }
        if known && !matches!(*request.method(), Method::GET | Method::HEAD) {
            return not_allowed("GET, HEAD");
        }
        match path {
            // That this is answered shows that this loop turns; what is asked is whether those of the readers do.
            "/livez" if self.pulse.is_healthy() => answer(StatusCode::OK, TEXT, "ok\n"),
            "/livez" => {
                answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "the server does not accept connections any more\n")
            }
            // Never fails because an upstream does: what was proved once is served.
            "/readyz" if self.site.current().is_some() && !self.is_published() => {
                answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "nothing is published yet\n")
            }
            "/readyz" if self.site.current().is_some() => answer(StatusCode::OK, TEXT, "ready\n"),
            "/readyz" => answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, "no version yet\n"),
            "/status" | "/metrics" => {
                let is_status = path == "/status";
                let format = MetricsFormat::accepted(request.headers());
                // They read the store.
                let told =
                    tokio::task::spawn_blocking(move || if is_status { self.status() } else { self.metrics(format) });
                told.await.unwrap_or_else(|died| answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{died}\n")))
            }
            _ => answer(StatusCode::NOT_FOUND, TEXT, "404: there are /livez, /readyz, /status and /metrics\n"),
        }
    }

    /// Whether who is served by files alone has any; true where readers are served by us.
    fn is_published(&self) -> bool {
        let publish = self.live.now().publish.filter(|_| self.live.addresses.is_empty());
        publish.is_none_or(|settings| published(&settings).is_some())
    }

    fn status(&self) -> Response<Said> {
        let now = self.live.now();
        let status = Status::of(&self.store, now.intent.as_ref(), None, Some(&self.live));
        match status.map(|status| serde_json::to_vec_pretty(&status)) {
            Ok(Ok(json)) => answer(StatusCode::OK, JSON, json),
            Ok(Err(error)) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{error}\n")),
            Err(error) => answer(StatusCode::INTERNAL_SERVER_ERROR, TEXT, format!("{}\n", Chain(&error))),
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
            Err(why) => return answer(StatusCode::BAD_REQUEST, TEXT, format!("this is no order: {why}\n")),
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

/// The request names a host that is none of ours (RFC 9110, section 15.5.20).
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
