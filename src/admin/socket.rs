//! The control socket: `control.sock` in the store, for the daemon's own user and root.
//!
//! A socket's address holds 108 bytes; a store may lie deeper than that. So both ends reach it through the descriptor of
//! the store's folder.

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

use super::routes::{Admin, Reach};

/// A request's head must be whole after this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Answers under way when the daemon stops get so long.
const DRAIN: Duration = Duration::from_secs(2);

/// A way to the socket that is short enough, for as long as the folder is held open.
#[derive(Debug)]
pub struct Way {
    dir: File,
}

impl Way {
    /// The way into this store.
    pub fn into(store: &Path) -> io::Result<Way> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Way { dir: File::from(rustix::fs::open(store, flags, Mode::empty())?) })
    }

    /// The socket.
    pub fn path(&self) -> PathBuf {
        self.at(CONTROL)
    }

    fn at(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }
}

/// The socket, listening; its name goes with it.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    way: Way,
}

impl Control {
    /// Listens in this store, whose lock the caller holds; whoever took it has swept away what a crash left of an earlier
    /// socket.
    pub fn bind(store: &Path) -> io::Result<Control> {
        let way = Way::into(store)?;
        // It gets its name when it has its mode.
        let beside = way.at(&format!(".{CONTROL}.new"));
        let listener = UnixListener::bind(&beside)?;
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&beside, way.path())?;
        Ok(Control { listener, way })
    }

    /// Answers until `stop` turns true.
    pub async fn serve(self, admin: Arc<Admin>, mut stop: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        let mut heart = admin.pulse.register();
        loop {
            let accepted = heart.beat_while(async {
                tokio::select! {
                    accepted = self.listener.accept() => Some(accepted),
                    _ = stop.wait_for(|&stop| stop) => None,
                }
            });
            let Some(accepted) = accepted.await else { break };
            match accepted {
                Ok((stream, _)) if is_trusted(&stream) => {
                    connections.spawn(connection(stream, Arc::clone(&admin)));
                }
                Ok(_) => {
                    tracing::warn!("somebody other than our own user and root was turned away at the control socket");
                }
                Err(error) => {
                    tracing::warn!("cannot accept at the control socket: {error}; trying again in a moment");
                    sleep(Duration::from_millis(50)).await;
                }
            }
            while connections.try_join_next().is_some() {}
        }
        drop(heart);
        // Who waits for a sync learns from the end of the connection that there will be no answer.
        let _ = timeout(DRAIN, async { while connections.join_next().await.is_some() {} }).await;
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.way.path());
    }
}

/// Whether the other end is our own user, or root.
fn is_trusted(stream: &UnixStream) -> bool {
    stream.peer_cred().is_ok_and(|peer| peer.uid() == 0 || peer.uid() == geteuid().as_raw())
}

async fn connection(stream: UnixStream, admin: Arc<Admin>) {
    let service = service_fn(|request| {
        let admin = Arc::clone(&admin);
        async move { Ok::<_, std::convert::Infallible>(admin.reply(request, Reach::Socket).await) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    // Errors here are the client's.
    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
}
