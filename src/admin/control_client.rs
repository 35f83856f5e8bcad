//! The client of the control socket: sends commands of the command line to a running daemon, and reads its routes.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::UnixStream;
use tokio::time::timeout;

use docwharf_base::accounts::describe_user;
use docwharf_base::model::deployment::OutboundPolicy;
use docwharf_base::net::connect;

use super::control_messages::{COMMANDS_PATH, CommandReply, DaemonCommand};
use super::control_socket::ControlSocketPath;

/// The maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 16 << 20;
/// The timeout of a request that is answered at once.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// A running daemon, reached through the control socket of its store.
#[derive(Debug)]
pub struct ControlClient {
    socket_path: ControlSocketPath,
    /// The user id of the store's owner.
    owner: u32,
}

impl ControlClient {
    /// Finds the daemon that has this store open; `None` if no process listens on its control socket.
    pub async fn find(store: &Path) -> Option<ControlClient> {
        let owner = std::fs::metadata(store).ok()?.uid();
        let daemon = ControlClient { socket_path: ControlSocketPath::open(store).ok()?, owner };
        daemon.connect().await.ok()?;
        Some(daemon)
    }

    /// Returns the path to the control socket of a store; `None` if the folder of the store cannot be opened.
    pub fn socket_path(store: &Path) -> Option<ControlSocketPath> {
        ControlSocketPath::open(store).ok()
    }

    /// Connects to the control socket. It is an error if the listening process has ended, or belongs to another user
    /// than root, the owner of the store and the caller.
    ///
    /// A child of the daemon holds the socket, and the lock of the store, until its `exec` has closed them. If the
    /// daemon is killed in this time, the socket accepts a connection that no process responds to.
    async fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.socket_path.path()).await?;
        let credentials = stream.peer_cred()?;
        if credentials.pid().is_some_and(has_ended) {
            return Err(io::Error::new(io::ErrorKind::ConnectionRefused, "the process that listened there has ended"));
        }
        let peer = credentials.uid();
        if [0, self.owner, geteuid().as_raw()].contains(&peer) {
            return Ok(stream);
        }
        Err(io::Error::other(format!(
            "the process that listens there belongs to {}, not to the store's owner, {}",
            describe_user(peer),
            describe_user(self.owner)
        )))
    }

    /// Sends a command and waits for its reply, without a timeout.
    pub async fn send_command(&self, command: &DaemonCommand) -> io::Result<CommandReply> {
        let body = serde_json::to_vec(command)?;
        let stream = self.connect().await?;
        let (status, bytes) = exchange(stream, Method::POST, COMMANDS_PATH, body).await?;
        if !status.is_success() {
            return Err(io::Error::other(format!(
                "it responded with {status}: {}",
                String::from_utf8_lossy(&bytes).trim()
            )));
        }
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Sends a GET request for one of the daemon's routes.
    pub async fn get(&self, path: &str) -> io::Result<(StatusCode, Bytes)> {
        let stream = self.connect().await?;
        with_timeout(exchange(stream, Method::GET, path, Vec::new())).await
    }
}

/// Returns whether no process has this id. The id of a process that this process cannot see is 0.
fn has_ended(process_id: i32) -> bool {
    Pid::from_raw(process_id).is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

/// Sends a GET request to an admin listener, if the policy permits a connection to it.
pub async fn get_over_tcp(address: SocketAddr, path: &str, policy: &OutboundPolicy) -> io::Result<(StatusCode, Bytes)> {
    with_timeout(async {
        let stream = connect::connect_tcp(local_address(address), policy).await?;
        exchange(stream, Method::GET, path, Vec::new()).await
    })
    .await
}

/// Returns the address at which this machine reaches a listener: loopback for one that listens on all addresses.
fn local_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

async fn with_timeout<T>(response: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(REQUEST_TIMEOUT, response).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> io::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // It ends with the exchange, which reports the same errors.
    tokio::spawn(connection);
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, "localhost")
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let status = response.status();
    let body = Limited::new(response.into_body(), MAX_RESPONSE_BYTES).collect().await.map_err(io::Error::other)?;
    Ok((status, body.to_bytes()))
}
