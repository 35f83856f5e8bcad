//! The sockets of the site, their certificate and their access log, and the URLs that are announced.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use docwharf_serve::access_log::{AccessLog, AccessLogSettings};
use docwharf_serve::key_pair::{KeyPair, KeyPairFiles};
use docwharf_serve::listener::{self, HttpListener};
use docwharf_serve::tls::ServerTls;

use super::error::DaemonError;

/// Converts bound sockets into listeners, with TLS if `tls` is given.
pub fn listeners(sockets: Vec<std::net::TcpListener>, tls: Option<&Arc<ServerTls>>) -> Vec<HttpListener> {
    let to_listener = |socket| match tls {
        Some(tls) => HttpListener::with_tls(socket, tls),
        None => HttpListener::from(socket),
    };
    sockets.into_iter().map(to_listener).collect()
}

/// Binds every address. If one cannot be bound, none stays bound.
pub fn bind(addresses: &[std::net::SocketAddr]) -> Result<Vec<std::net::TcpListener>, DaemonError> {
    addresses
        .iter()
        .map(|&address| listener::bind(address).map_err(|source| DaemonError::Bind { address, source }))
        .collect()
}

/// Loads certificate and key for TLS listeners. A certificate that has expired or is not valid yet is used
/// nevertheless, with a warning: a site that browsers warn about is more useful than one that is down.
pub fn load_tls(files: &KeyPairFiles) -> Result<Arc<ServerTls>, DaemonError> {
    let pair = KeyPair::load(files)?;
    if let Some(warning) = pair.date_problem(std::time::SystemTime::now()) {
        tracing::warn!("{warning}");
    }
    Ok(ServerTls::new(pair))
}

/// Opens the access log; `None` if no log is configured.
pub fn open_log(settings: Option<&AccessLogSettings>) -> Result<Option<Arc<AccessLog>>, DaemonError> {
    let Some(settings) = settings else { return Ok(None) };
    let path = settings.file.clone().unwrap_or_else(|| PathBuf::from("(standard output)"));
    AccessLog::open(settings).map(Some).map_err(|source| DaemonError::Log { path, source })
}

/// Prints the URLs of the site to standard output, one per line, once the sockets accept connections.
pub(super) fn announce(urls: &[String]) {
    let mut out = io::stdout().lock();
    for url in urls {
        // If standard output is closed, no process reads the URLs.
        let _ = writeln!(out, "{url}");
    }
    let _ = out.flush();
}

/// Returns the URLs under which clients reach these listeners.
pub(super) fn urls(listeners: &[HttpListener]) -> Vec<String> {
    listeners.iter().filter_map(|listener| listener.url().ok()).collect()
}

/// Returns the URLs of listeners without TLS.
pub(super) fn http_urls(listeners: &[std::net::TcpListener]) -> Vec<String> {
    let addresses = listeners.iter().filter_map(|listener| listener.local_addr().ok());
    addresses.map(|address| format!("http://{address}/")).collect()
}
