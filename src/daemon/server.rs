//! The runtime of a server, and how a signal stops it.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

use docwharf_serve::listener::{self, HttpListener, RESERVED_DESCRIPTORS};
use docwharf_serve::service::ListenerService;

use super::error::DaemonError;
use super::listeners::{announce, urls};

/// Creates the runtime of a daemon.
pub(super) fn build_runtime() -> Result<tokio::runtime::Runtime, DaemonError> {
    let files = listener::raise_open_file_limit();
    if files < RESERVED_DESCRIPTORS {
        return Err(DaemonError::TooFewFiles(files));
    }
    // The server has separate threads for requests; this runtime is for all other tasks.
    docwharf_base::runtime::build_runtime(tokio::runtime::Builder::new_multi_thread().worker_threads(2))
        .map_err(DaemonError::Start)
}

/// The signals that stop the process.
pub(super) struct StopSignals {
    term: Signal,
    int: Signal,
    /// SIGHUP from a closed terminal; `None` if SIGHUP has another meaning.
    hup: Option<Signal>,
}

impl StopSignals {
    /// Installs the handlers. With `hangup`, SIGHUP stops the process, too.
    pub(super) fn new(hangup: bool) -> Result<StopSignals, DaemonError> {
        let listen = |kind| signal(kind).map_err(DaemonError::Start);
        let hup = if hangup { Some(listen(SignalKind::hangup())?) } else { None };
        Ok(StopSignals { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())?, hup })
    }

    /// Waits for one of the signals.
    pub(super) async fn wait_for_stop(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
            () = wait_for_hangup(self.hup.as_mut()) => {}
        }
    }
}

async fn wait_for_hangup(signal: Option<&mut Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Implements the command `serve`: answers requests with `service` until a stop signal arrives. `introduce` is called
/// before the addresses are printed, once nothing can prevent the start any more.
pub fn serve(
    service: ListenerService,
    listeners: Vec<HttpListener>,
    introduce: impl FnOnce(),
) -> Result<(), DaemonError> {
    let runtime = build_runtime()?;
    let result = serve_in(&runtime, service, listeners, true, introduce);
    runtime.shutdown_background();
    result
}

/// Answers requests on this runtime until a stop signal arrives. `introduce` is as for [`serve`].
pub(super) fn serve_in(
    runtime: &tokio::runtime::Runtime,
    service: ListenerService,
    listeners: Vec<HttpListener>,
    hangup: bool,
    introduce: impl FnOnce(),
) -> Result<(), DaemonError> {
    runtime.block_on(async {
        let mut signals = StopSignals::new(hangup)?;
        let (stop, stopped) = watch::channel(false);
        introduce();
        announce(&urls(&listeners));
        let server = tokio::spawn(listener::serve(listeners, service, stopped));
        tokio::pin!(server);
        tokio::select! {
            ended = &mut server => return server_result(ended),
            () = signals.wait_for_stop() => {}
        }
        stop.send_replace(true);
        server_result(server.await)
    })
}

/// Converts the end of the server's task.
pub(super) fn server_result(ended: Result<io::Result<()>, tokio::task::JoinError>) -> Result<(), DaemonError> {
    ended.map_err(io::Error::other).flatten().map_err(DaemonError::EndedUnexpectedly)
}
