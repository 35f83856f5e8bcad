//! The admin routes. Those that only report are served on the control socket and on `admin.listen`. Commands are
//! accepted on the control socket only, where the user of the client is known.

use std::sync::Arc;

use http::header::VARY;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::sync::{mpsc, oneshot};

use docwharf_agent::publish::published_version;
use docwharf_agent::store::VersionStore;
use docwharf_base::error_chain::ErrorChain;
use docwharf_base::metrics_format::MetricsFormat;
use docwharf_serve::Site;
use docwharf_serve::body::ResponseBody;
use docwharf_serve::peer::Peer;
use docwharf_serve::service::{RequestService, ServiceResponse, box_body};
use docwharf_serve::watchdog::Watchdog;

#[cfg(feature = "analytics")]
use super::analytics_api::{self, AnalyticsApi};
use super::control_messages::{COMMANDS_PATH, CommandReply, DaemonCommand};
use super::daemon_state::DaemonState;
use super::metrics::DaemonMetrics;
use super::responses::{
    AdminTransport, JSON_TYPE, TEXT_TYPE, admin_response, respond_misdirected, respond_not_allowed,
};
use super::status::StoreStatus;

/// The maximum size of a command in bytes.
const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// A command on its way to the main loop.
#[derive(Debug)]
pub struct QueuedCommand {
    /// The command.
    pub command: DaemonCommand,
    /// The channel for the reply.
    pub reply: oneshot::Sender<CommandReply>,
}

/// The HTTP service of the admin routes.
#[derive(Debug)]
pub struct AdminService {
    /// The store that the daemon has open.
    pub store: VersionStore,
    /// The state that the main loop reports.
    pub daemon_state: Arc<DaemonState>,
    /// The metrics of the daemon.
    pub metrics: Arc<DaemonMetrics>,
    /// The site that the daemon serves.
    pub site: Arc<Site>,
    /// The queue of commands to the main loop.
    pub commands: mpsc::Sender<QueuedCommand>,
    /// The watchdog of the accept loops.
    pub watchdog: Arc<Watchdog>,
    /// The routes that read what readers searched for and read.
    #[cfg(feature = "analytics")]
    pub analytics: Arc<AnalyticsApi>,
}

impl RequestService for AdminService {
    fn respond(self: Arc<Self>, request: Request<Incoming>, _peer: Peer) -> ServiceResponse {
        Box::pin(async move { box_body(self.reply(request, AdminTransport::Network).await) })
    }
}

impl AdminService {
    pub(super) async fn reply(
        self: Arc<Self>,
        request: Request<Incoming>,
        transport: AdminTransport,
    ) -> Response<ResponseBody> {
        let path = request.uri().path();
        if path == COMMANDS_PATH && transport == AdminTransport::Socket {
            return match *request.method() {
                Method::POST => self.accept_command(request.into_body()).await,
                _ => respond_not_allowed("POST"),
            };
        }
        let known = matches!(path, "/livez" | "/readyz" | "/status" | "/metrics");
        // Probes and scrapers may use any name of the machine, and these three routes reveal nothing that needs
        // protection.
        let is_for_machines = matches!(path, "/livez" | "/readyz" | "/metrics");
        if transport == AdminTransport::Network && !is_for_machines && !self.daemon_state.permits(&request) {
            return respond_misdirected();
        }
        #[cfg(feature = "analytics")]
        if path.starts_with(analytics_api::PATH_PREFIX) {
            let head = request.into_parts().0;
            let api = Arc::clone(&self.analytics);
            let response = tokio::task::spawn_blocking(move || api.respond(&head, transport));
            return response.await.unwrap_or_else(|died| {
                admin_response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, format!("{died}\n"))
            });
        }
        if known && !matches!(*request.method(), Method::GET | Method::HEAD) {
            return respond_not_allowed("GET, HEAD");
        }
        match path {
            // This response alone shows that the admin loop runs; the check is for the loops that serve readers.
            "/livez" if self.watchdog.is_healthy() => admin_response(StatusCode::OK, TEXT_TYPE, "ok\n"),
            "/livez" => admin_response(
                StatusCode::SERVICE_UNAVAILABLE,
                TEXT_TYPE,
                "the server does not accept connections any more\n",
            ),
            // An unreachable upstream is no reason to fail: the sealed version is served.
            "/readyz" if self.site.served_version().is_some() && !self.is_published() => {
                admin_response(StatusCode::SERVICE_UNAVAILABLE, TEXT_TYPE, "nothing is published yet\n")
            }
            "/readyz" if self.site.served_version().is_some() => admin_response(StatusCode::OK, TEXT_TYPE, "ready\n"),
            "/readyz" => admin_response(StatusCode::SERVICE_UNAVAILABLE, TEXT_TYPE, "no version yet\n"),
            "/status" | "/metrics" => {
                let is_status = path == "/status";
                let format = MetricsFormat::negotiate(request.headers());
                // Both read the store, which blocks.
                let response =
                    tokio::task::spawn_blocking(move || if is_status { self.status() } else { self.metrics(format) });
                response.await.unwrap_or_else(|died| {
                    admin_response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, format!("{died}\n"))
                })
            }
            _ => admin_response(
                StatusCode::NOT_FOUND,
                TEXT_TYPE,
                "404: there are /livez, /readyz, /status and /metrics\n",
            ),
        }
    }

    /// Returns whether a version is published, if the site is served as files only; `true` if this daemon serves the
    /// site.
    fn is_published(&self) -> bool {
        let publish = self.daemon_state.snapshot().publish.filter(|_| self.daemon_state.site_urls.is_empty());
        publish.is_none_or(|settings| published_version(&settings).is_some())
    }

    fn status(&self) -> Response<ResponseBody> {
        let now = self.daemon_state.snapshot();
        let status = StoreStatus::read(
            &self.store,
            now.sync_settings.as_ref(),
            now.feature_settings.as_ref(),
            None,
            Some(&self.daemon_state),
        );
        match status.map(|status| serde_json::to_vec_pretty(&status)) {
            Ok(Ok(json)) => admin_response(StatusCode::OK, JSON_TYPE, json),
            Ok(Err(error)) => admin_response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, format!("{error}\n")),
            Err(error) => {
                admin_response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, format!("{}\n", ErrorChain(&error)))
            }
        }
    }

    fn metrics(&self, format: MetricsFormat) -> Response<ResponseBody> {
        match self.metrics.encode(&self.store, &self.daemon_state, &self.site) {
            Ok(text) => {
                let mut response = admin_response(StatusCode::OK, format.content_type(), format.render(text));
                response.headers_mut().insert(VARY, HeaderValue::from_static("Accept"));
                response
            }
            Err(error) => admin_response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, format!("{error}\n")),
        }
    }

    async fn accept_command(&self, body: Incoming) -> Response<ResponseBody> {
        let command = match Limited::new(body, MAX_COMMAND_BYTES).collect().await {
            Ok(body) => serde_json::from_slice::<DaemonCommand>(&body.to_bytes()).map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        let command = match command {
            Ok(command) => command,
            Err(why) => {
                return admin_response(StatusCode::BAD_REQUEST, TEXT_TYPE, format!("this is not a command: {why}\n"));
            }
        };
        let (reply, receiver) = oneshot::channel();
        let respond_stopping =
            || admin_response(StatusCode::SERVICE_UNAVAILABLE, TEXT_TYPE, "the daemon is stopping\n");
        if self.commands.send(QueuedCommand { command, reply }).await.is_err() {
            return respond_stopping();
        }
        let Ok(reply) = receiver.await else { return respond_stopping() };
        match serde_json::to_vec(&reply) {
            Ok(json) => admin_response(StatusCode::OK, JSON_TYPE, json),
            Err(error) => admin_response(StatusCode::INTERNAL_SERVER_ERROR, TEXT_TYPE, format!("{error}\n")),
        }
    }
}
