//! TLS for client connections: the handshake, and the certificate in use, which can be replaced without dropping a
//! connection.

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

use super::key_pair::{CertificateValidity, KeyPair, KeyPairError, KeyPairFiles};
use super::lazy_stream::SendFile;
use super::site::Site;
use super::site_settings::Http2Server;
use super::stall_timeout::StallTimeoutStream;

/// The content type of the TLS record that starts a handshake (RFC 8446, section 5.1).
const HANDSHAKE_RECORD: u8 = 22;
/// The response to a client that sends plain HTTP to a TLS port, like that of nginx.
const PLAIN_HTTP_RESPONSE: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 51\r\n\
    Cache-Control: no-store\r\nConnection: close\r\n\r\n400: this port speaks TLS; the address is https://\n";
/// The largest number of bytes read from a client that sends plain HTTP before its connection is closed.
const MAX_PLAIN_HTTP_BYTES: u64 = 64 * 1024;

/// The reason why a new certificate and key are not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The certificate or the key cannot be used.
    #[error(transparent)]
    KeyPair(#[from] KeyPairError),
    /// The new certificate is not valid now, but the one in use is.
    #[error("{0}")]
    Dates(String),
}

/// The certificate and key in use. A connection uses those that it started with.
#[derive(Debug)]
pub struct ServerTls {
    key_pair: ArcSwap<KeyPair>,
}

impl ServerTls {
    /// Creates the TLS state with this certificate and key.
    pub fn new(key_pair: KeyPair) -> Arc<ServerTls> {
        Arc::new(ServerTls { key_pair: ArcSwap::from_pointee(key_pair) })
    }

    /// Returns the certificate and key in use.
    pub fn key_pair(&self) -> Arc<KeyPair> {
        self.key_pair.load_full()
    }

    /// Loads the current content of the files, for all later handshakes; `None` if the certificate has not changed.
    /// Fails if the pair cannot be used, or if the new certificate is not valid now while the one in use is.
    pub fn reload(&self, files: &KeyPairFiles) -> Result<Option<Arc<KeyPair>>, ReloadError> {
        let new = KeyPair::load(files)?;
        if new.has_same_certificates(&self.key_pair.load()) {
            return Ok(None);
        }
        let now = SystemTime::now();
        if let Some(problem) = new.date_problem(now)
            && self.key_pair.load().validity(now) == CertificateValidity::Valid
        {
            return Err(ReloadError::Dates(problem));
        }
        self.key_pair.store(Arc::new(new));
        Ok(Some(self.key_pair()))
    }

    /// Performs the handshake with a client; `None` if it fails. `site` is the site that the connection is for. A
    /// client that sends plain HTTP gets a 400 response.
    pub(super) async fn handshake(
        &self,
        mut stream: TcpStream,
        site: Option<Arc<Site>>,
    ) -> Option<TlsStream<StallTimeoutStream>> {
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
        let is_http2_off = site.as_ref().is_some_and(|site| site.settings.http2 == Http2Server::Off);
        let key_pair = self.key_pair();
        let config = if is_http2_off { &key_pair.http1_config } else { &key_pair.config };
        let acceptor = TlsAcceptor::from(Arc::clone(config));
        acceptor.accept(StallTimeoutStream::new(stream.into(), site)).await.ok()
    }
}

/// A TLS stream has to read and encrypt the bytes of a file, so it cannot send files directly.
impl SendFile for TlsStream<StallTimeoutStream> {
    fn can_send_files(&self) -> bool {
        false
    }

    fn poll_send_file(
        self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        _head: &[u8],
        _file: BorrowedFd<'_>,
        _offset: u64,
        _len: usize,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

/// Sends the response, then reads what the client has sent: closing a socket with unread bytes resets the connection,
/// and the response may be lost with it.
async fn refuse_plain(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_HTTP_RESPONSE).await?;
    stream.shutdown().await?;
    let mut rest = stream.take(MAX_PLAIN_HTTP_BYTES);
    let mut buffer = [0; 4096];
    while rest.read(&mut buffer).await? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_response_has_the_content_length_of_its_body() {
        let text = std::str::from_utf8(PLAIN_HTTP_RESPONSE).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{} bytes", body.len());
    }
}
