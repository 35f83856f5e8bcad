//! Runs the command `origin`: serves the management API until a stop signal arrives.

use std::sync::Arc;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use docwharf_base::error_chain::ErrorChain;
use docwharf_origin::{OriginAdmin, OriginServer};
use docwharf_serve::key_pair::KeyPairFiles;
use docwharf_serve::listener::{self, HttpListener};
use docwharf_serve::tls::ServerTls;

use super::error::DaemonError;
use super::listeners::urls;
use super::server::{build_runtime, serve_in};

/// The effect of SIGHUP on an origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OriginHangup {
    /// The origin stops, like any program whose terminal is closed.
    Stop,
    /// The origin continues, and logs a warning.
    Warn,
}

/// The maximum number of connections to an origin's listener of health and metrics.
const MAX_ADMIN_CONNECTIONS: usize = 32;
/// Interval between checks whether the certificate files of an origin have changed.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Runs `origin`: serves the management API until a stop signal arrives. Health and metrics have separate listeners
/// for a few connections.
pub fn origin(
    origin: &Arc<OriginServer>,
    listeners: Vec<HttpListener>,
    admin: Vec<std::net::TcpListener>,
    pair: Option<(Arc<ServerTls>, KeyPairFiles)>,
    hangup: OriginHangup,
) -> Result<(), DaemonError> {
    for url in urls(&listeners) {
        tracing::info!("the API is at {url}v1 (api.baseUrl)");
    }
    for address in admin.iter().filter_map(|listener| listener.local_addr().ok()) {
        tracing::info!("health and metrics are at http://{address}/");
    }
    let runtime = build_runtime()?;
    let (stop, stopped) = watch::channel(false);
    let admin_server = listener::serve_limited(
        admin,
        Arc::new(OriginAdmin(Arc::clone(origin))).into(),
        stopped,
        MAX_ADMIN_CONNECTIONS,
    );
    runtime.spawn(async move {
        if let Err(error) = admin_server.await {
            tracing::error!("the listener of health and metrics stopped: {error}");
        }
    });
    if let Some((tls, files)) = pair {
        runtime.spawn(reload_when_changed(tls, files));
    }
    if hangup == OriginHangup::Warn {
        // Installed before anything is served: until then, a SIGHUP would end the process.
        let mut hangups = {
            let _inside = runtime.enter();
            signal(SignalKind::hangup()).map_err(DaemonError::Start)?
        };
        runtime.spawn(async move {
            while hangups.recv().await.is_some() {
                tracing::warn!(
                    "SIGHUP has no effect: an origin reads its configuration only when it starts; restart it"
                );
            }
        });
    }
    let result = serve_in(&runtime, Arc::clone(origin).into(), listeners, hangup == OriginHangup::Stop, || ());
    tracing::info!("stopping; tasks in progress are abandoned");
    stop.send_replace(true);
    origin.close();
    runtime.shutdown_background();
    result
}

/// Loads the certificate again whenever its files have changed. Never returns; the task ends with the runtime.
async fn reload_when_changed(tls: Arc<ServerTls>, files: KeyPairFiles) {
    loop {
        tokio::time::sleep(CERTIFICATE_CHECK_INTERVAL).await;
        match tls.reload(&files) {
            Ok(None) => {}
            Ok(Some(_)) => tracing::info!("the TLS certificate was replaced"),
            Err(error) => tracing::error!("{}; the previous certificate stays in force", ErrorChain(&error)),
        }
    }
}
