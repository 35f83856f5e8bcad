//! TLS on connections that readers open: the pair in force, exchanged without a connection dropped, and the handshake.

use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::SystemTime;

use arc_swap::ArcSwap;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::Site;
use super::guard::Guarded;
use super::pair::{Files, Pair, PairError, Standing};
use super::stream::SendFile;

/// The type of a TLS record with which a client begins (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;
/// What a client that speaks plain http is told, as nginx does; and no more of it is read than this.
const PLAIN: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 51\r\n\
    Cache-Control: no-store\r\nConnection: close\r\n\r\n400: this port speaks TLS; the address is https://\n";
const MOST_READ: u64 = 64 * 1024;

/// Why a new pair is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// It cannot be used.
    #[error(transparent)]
    Pair(#[from] PairError),
    /// It can, but the one in force is better.
    #[error("{0}")]
    Dates(String),
}

/// The pair in force. Connections go on under the pair that they began with.
#[derive(Debug)]
pub struct Tls {
    pair: ArcSwap<Pair>,
}

impl Tls {
    /// Begins with this pair.
    pub fn new(pair: Pair) -> Arc<Tls> {
        Arc::new(Tls { pair: ArcSwap::from_pointee(pair) })
    }

    /// The pair in force.
    pub fn pair(&self) -> Arc<Pair> {
        self.pair.load_full()
    }

    /// Takes over what the files hold now, from the next handshake on. A pair that cannot be used, or whose dates are
    /// wrong while those of the one in force are right, is not taken over. None if nothing has changed.
    pub fn reload(&self, files: &Files) -> Result<Option<Arc<Pair>>, ReloadError> {
        let new = Pair::load(files)?;
        if new.is_same(&self.pair.load()) {
            return Ok(None);
        }
        let now = SystemTime::now();
        if let Some(doubt) = new.doubt(now)
            && self.pair.load().standing(now) == Standing::Valid
        {
            return Err(ReloadError::Dates(doubt));
        }
        self.pair.store(Arc::new(new));
        Ok(Some(self.pair()))
    }

    /// Agrees with a client of this site, if it is one; none if there is no agreement. Who speaks plain http is told so.
    pub(super) async fn shake(&self, mut stream: TcpStream, site: Option<Arc<Site>>) -> Option<TlsStream<Guarded>> {
        let mut first = [0];
        if stream.peek(&mut first).await.ok()? == 0 {
            return None;
        }
        if first[0] != HANDSHAKE_RECORD {
            if first[0].is_ascii_uppercase() {
                let _ = refuse_plain(&mut stream).await;
            }
            return None;
        }
        let acceptor = TlsAcceptor::from(Arc::clone(&self.pair.load().config));
        acceptor.accept(Guarded::new(stream.into(), site)).await.ok()
    }
}

/// What is encrypted has to be read.
impl SendFile for TlsStream<Guarded> {
    fn sends_files(&self) -> bool {
        false
    }

    fn poll_send_file(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        _head: &[u8],
        _file: BorrowedFd<'_>,
        _at: u64,
        _len: usize,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

/// Reads what has come before closing: a socket that is closed with bytes unread is reset, and the answer with it.
async fn refuse_plain(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(MOST_READ);
    let mut buffer = [0; 4096];
    while rest.read(&mut buffer).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_plain_http_has_the_length_that_it_says() {
        let text = std::str::from_utf8(PLAIN).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{} bytes", body.len());
    }
}
