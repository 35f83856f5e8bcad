//! The other end of the control socket: what the command line asks a running daemon.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::process::geteuid;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use super::socket::Way;
use super::wire::{ORDERS, Order, Reply};

/// An answer is no larger than this.
const MOST: usize = 16 << 20;
/// What is answered at once takes no longer.
const SOON: Duration = Duration::from_secs(10);

/// A running daemon that can be asked.
#[derive(Debug)]
pub struct Daemon {
    way: Way,
    /// Whose the store is.
    owner: u32,
}

impl Daemon {
    /// The daemon that has this store open; none if nobody listens there.
    pub async fn of(store: &Path) -> Option<Daemon> {
        let owner = std::fs::metadata(store).ok()?.uid();
        let daemon = Daemon { way: Way::into(store).ok()?, owner };
        daemon.connect().await.ok()?;
        Some(daemon)
    }

    /// The way to the socket of a store, if there is such a folder.
    pub fn way(store: &Path) -> Option<Way> {
        Way::into(store).ok()
    }

    /// Only who may have the store open is spoken to.
    async fn connect(&self) -> io::Result<UnixStream> {
        let stream = UnixStream::connect(self.way.path()).await?;
        let peer = stream.peer_cred()?.uid();
        if [0, self.owner, geteuid().as_raw()].contains(&peer) {
            return Ok(stream);
        }
        Err(io::Error::other(format!("the user {peer} listens there, who is not the store's")))
    }

    /// Has something done, however long it takes.
    pub async fn order(&self, order: &Order) -> io::Result<Reply> {
        let body = serde_json::to_vec(order)?;
        let stream = self.connect().await?;
        let (status, bytes) = exchange(stream, Method::POST, ORDERS, body).await?;
        if !status.is_success() {
            return Err(io::Error::other(format!("it answered {status}: {}", String::from_utf8_lossy(&bytes).trim())));
        }
        Ok(serde_json::from_slice(&bytes)?)
    }

    /// Reads one of its routes.
    pub async fn get(&self, path: &str) -> io::Result<(StatusCode, Bytes)> {
        let stream = self.connect().await?;
        soon(exchange(stream, Method::GET, path, Vec::new())).await
    }
}

/// Reads a route of an admin listener.
pub async fn get_at(address: std::net::SocketAddr, path: &str) -> io::Result<(StatusCode, Bytes)> {
    soon(async { exchange(TcpStream::connect(address).await?, Method::GET, path, Vec::new()).await }).await
}

async fn soon<T>(answer: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(SOON, answer).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    method: Method,
    path: &str,
    body: Vec<u8>,
) -> io::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the exchange; its errors are those of the exchange.
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
    let body = Limited::new(response.into_body(), MOST).collect().await.map_err(io::Error::other)?;
    Ok((status, body.to_bytes()))
}
