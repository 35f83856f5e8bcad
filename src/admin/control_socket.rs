//! The control socket: `control.sock` in the store, for the daemon's own user and root.
//!
//! The address of a Unix socket holds 108 bytes, and the path of a store may be longer. Both ends therefore reach the
//! socket through a descriptor of the store's folder.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use docwharf_agent::store::CONTROL;

use super::responses::AdminTransport;
use super::routes::AdminService;

/// The timeout for the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The timeout for responses that are in progress when the daemon stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A short path to the control socket, which is valid as long as this value holds the store's folder open.
#[derive(Debug)]
pub struct ControlSocketPath {
    dir: File,
}

impl ControlSocketPath {
    /// Opens the folder of a store.
    pub fn open(store: &Path) -> io::Result<ControlSocketPath> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(ControlSocketPath { dir: File::from(rustix::fs::open(store, flags, Mode::empty())?) })
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> PathBuf {
        self.sibling(CONTROL)
    }

    fn sibling(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }
}

/// The listening control socket; its file is removed when it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    socket_path: ControlSocketPath,
}

impl ControlSocket {
    /// Listens in this store. The caller must hold the lock of the store; the file of a socket that a crash left was
    /// removed when the lock was taken.
    pub fn bind(store: &Path) -> io::Result<ControlSocket> {
        let socket_path = ControlSocketPath::open(store)?;
        // The socket gets its final name once it has its mode.
        let new_path = socket_path.sibling(&format!(".{CONTROL}.new"));
        let listener = UnixListener::bind(&new_path)?;
        std::fs::set_permissions(&new_path, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&new_path, socket_path.path())?;
        Ok(ControlSocket { listener, socket_path })
    }

    /// Serves requests until `stop` becomes true.
    pub async fn serve(self, admin: Arc<AdminService>, mut stop: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        let mut heartbeat = admin.watchdog.register();
        loop {
            let accepted = heartbeat.beat_while(async {
                tokio::select! {
                    accepted = self.listener.accept() => Some(accepted),
                    _ = stop.wait_for(|&stop| stop) => None,
                }
            });
            let Some(accepted) = accepted.await else { break };
            match accepted {
                Ok((stream, _)) if is_trusted(&stream) => {
                    connections.spawn(serve_connection(stream, Arc::clone(&admin)));
                }
                Ok(_) => {
                    tracing::warn!(
                        "refused a client of the control socket: it runs neither as the user of this process nor as root"
                    );
                }
                Err(error) => {
                    tracing::warn!("cannot accept at the control socket: {error}; trying again in a moment");
                    sleep(Duration::from_millis(50)).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
        drop(heartbeat);
        // A client that waits for a sync learns from the end of the connection that there will be no reply.
        let _ = timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} }).await;
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.socket_path.path());
    }
}

/// Returns whether the client runs as the user of this process or as root.
fn is_trusted(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

async fn serve_connection(stream: UnixStream, admin: Arc<AdminService>) {
    let service = service_fn(|request| {
        let admin = Arc::clone(&admin);
        async move { Ok::<_, std::convert::Infallible>(admin.reply(request, AdminTransport::Socket).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // Errors on this connection concern the client only.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
