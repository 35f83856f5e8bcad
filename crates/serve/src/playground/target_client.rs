//! Sends a request to a target and reads its response within bounds.
//!
//! The name of the target is looked up once. Every address is checked, and the connection goes to one that was checked,
//! so that a name server that gives another answer the next time changes nothing. Each request has its own connection,
//! so none is reused that was made for another target. There is no proxy, and no redirect is followed: neither exists
//! here.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use docwharf_base::model::cidr::IpRange;
use docwharf_base::net::NetworkSettings;
use docwharf_base::net::connect::{self, LookupError};
use docwharf_base::net::public_address::is_public_or_listed;

use crate::request_body::CountedBytes;

use super::BODY_MEMORY;
use super::request::TargetRequest;
use super::target_url::TargetUrl;

/// The time for a connection to one address of several. The next address is tried after it.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(3);
/// The largest head of a response, in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;
/// The largest number of header fields of a response.
const MAX_HEAD_FIELDS: usize = 256;

/// The conditions under which a request is sent.
pub(crate) struct SendConditions<'a> {
    /// The addresses that are permitted although they are not public.
    pub(crate) addresses: &'a [IpRange],
    pub(crate) network: &'a NetworkSettings,
    /// The TLS configuration; `None` if it could not be built.
    pub(crate) tls: Option<Arc<ClientConfig>>,
    /// The largest body of a response in bytes.
    pub(crate) max_response: u64,
}

/// The response of a target.
pub(crate) struct TargetResponse {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    pub(crate) body: CountedBytes,
    /// Whether the body was longer and is cut.
    pub(crate) is_truncated: bool,
}

/// The reason why there is no response of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetFault {
    /// The target cannot be in a request.
    Malformed,
    /// An address of the target is neither public nor listed, or the deployment does not permit it.
    Address,
    /// The name of the target has no address.
    NoAddress,
    /// No address accepts a connection.
    NotConnected,
    /// The TLS handshake failed.
    Tls,
    /// The response is not HTTP, or was cut off.
    NoUsableResponse,
    /// The bodies of other requests take all memory that bodies may take.
    OutOfMemory,
}

/// Sends a request to its target. The caller sets the deadline; when the future is dropped, the connection ends. The
/// permit is kept until then, and until the end of the look-up of the name, which cannot be interrupted.
pub(crate) async fn send_to_target(
    request: TargetRequest,
    permit: OwnedSemaphorePermit,
    conditions: &SendConditions<'_>,
) -> Result<TargetResponse, TargetFault> {
    let TargetRequest { method, url, fields, body } = request;
    let mut http_request = Request::new(Full::new(body));
    *http_request.method_mut() = method;
    *http_request.uri_mut() = url.request_target().parse().map_err(|_| TargetFault::Malformed)?;
    *http_request.headers_mut() = complete_fields(fields, &url)?;
    let (addresses, _permit) = find_addresses(&url, permit, conditions).await?;
    let stream = connect_to_any(&addresses, conditions.network).await?;
    if !url.is_https() {
        return exchange(stream, http_request, conditions.max_response).await;
    }
    let tls = conditions.tls.clone().ok_or(TargetFault::Tls)?;
    let name = ServerName::try_from(url.lookup_host()).map_err(|_| TargetFault::Tls)?;
    let stream = TlsConnector::from(tls).connect(name, stream).await.map_err(|_| TargetFault::Tls)?;
    exchange(stream, http_request, conditions.max_response).await
}

/// Adds the fields that each request has.
fn complete_fields(mut fields: HeaderMap, url: &TargetUrl) -> Result<HeaderMap, TargetFault> {
    fields.insert(HOST, HeaderValue::from_str(url.host_field()).map_err(|_| TargetFault::Malformed)?);
    for (name, value) in [
        (ACCEPT, "*/*"),
        // A page could not decode the body.
        (ACCEPT_ENCODING, "identity"),
        (USER_AGENT, concat!("docwharf/", env!("CARGO_PKG_VERSION"))),
    ] {
        fields.entry(name).or_insert(HeaderValue::from_static(value));
    }
    Ok(fields)
}

/// Looks the host of a URL up once, and checks all of its addresses.
async fn find_addresses(
    url: &TargetUrl,
    permit: OwnedSemaphorePermit,
    conditions: &SendConditions<'_>,
) -> Result<(Vec<SocketAddr>, OwnedSemaphorePermit), TargetFault> {
    let (host, port, outbound) = (url.lookup_host(), url.port(), conditions.network.outbound.clone());
    let lookup = async move { connect::lookup(&host, port, &outbound).await };
    let (found, permit) = run_with_permit(permit, lookup).await.ok_or(TargetFault::NoAddress)?;
    let addresses = found.map_err(|error| match error {
        LookupError::Outbound(error) if error.is_about_address() => TargetFault::Address,
        LookupError::Outbound(_) | LookupError::System(_) => TargetFault::NoAddress,
    })?;
    check_addresses(&addresses, conditions.addresses)?;
    Ok((addresses, permit))
}

/// Does work in a task that keeps the permit until its end, also if the returned future is dropped before. Returns the
/// permit with the result; `None` if the work has panicked.
async fn run_with_permit<T: Send + 'static>(
    permit: OwnedSemaphorePermit,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<(T, OwnedSemaphorePermit)> {
    tokio::spawn(async move { (work.await, permit) }).await.ok()
}

/// Checks the addresses of a name. One that is not permitted refuses all: the owner of the name decides which one a
/// later lookup gives first.
fn check_addresses(addresses: &[SocketAddr], listed: &[IpRange]) -> Result<(), TargetFault> {
    if addresses.is_empty() {
        return Err(TargetFault::NoAddress);
    }
    let is_permitted = |address: &SocketAddr| is_public_or_listed(address.ip(), listed);
    if addresses.iter().all(is_permitted) { Ok(()) } else { Err(TargetFault::Address) }
}

/// Connects to the first of these addresses that accepts the connection.
async fn connect_to_any(addresses: &[SocketAddr], network: &NetworkSettings) -> Result<TcpStream, TargetFault> {
    for (number, &address) in addresses.iter().enumerate() {
        let is_last = number + 1 == addresses.len();
        let limit = if is_last { network.connect_timeout } else { network.connect_timeout.min(ADDRESS_TIMEOUT) };
        if let Ok(Ok(stream)) = timeout(limit, connect::connect_tcp(address, &network.outbound)).await {
            return Ok(stream);
        }
    }
    Err(TargetFault::NotConnected)
}

/// Sends a request on a new connection and reads the response.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    request: Request<Full<Bytes>>,
    max_response: u64,
) -> Result<TargetResponse, TargetFault> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(MAX_HEAD_BYTES).max_headers(MAX_HEAD_FIELDS);
    let handshake = builder.handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = handshake.map_err(|_| TargetFault::NoUsableResponse)?;
    let mut connection = pin!(connection);
    let mut is_open = true;
    let mut response = pin!(async move {
        let response = sender.send_request(request).await.map_err(|_| TargetFault::NoUsableResponse)?;
        read_response(response, max_response).await
    });
    // The connection makes progress only when it is polled. It may end before the last bytes of a body are read.
    std::future::poll_fn(|context| {
        if is_open && connection.as_mut().poll(context).is_ready() {
            is_open = false;
        }
        response.as_mut().poll(context)
    })
    .await
}

async fn read_response(
    response: http::Response<hyper::body::Incoming>,
    max_response: u64,
) -> Result<TargetResponse, TargetFault> {
    let (head, mut content) = response.into_parts();
    if head.status.is_informational() {
        return Err(TargetFault::NoUsableResponse);
    }
    let (mut body, mut is_truncated) = (CountedBytes::new(&BODY_MEMORY), false);
    while let Some(frame) = content.frame().await {
        let Ok(mut data) = frame.map_err(|_| TargetFault::NoUsableResponse)?.into_data() else { continue };
        let remaining = usize::try_from(max_response).unwrap_or(usize::MAX) - body.as_ref().len();
        is_truncated = data.len() > remaining;
        data.truncate(remaining);
        if !body.append(&data) {
            return Err(TargetFault::OutOfMemory);
        }
        if is_truncated {
            break;
        }
    }
    Ok(TargetResponse { status: head.status, fields: head.headers, body, is_truncated })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // they fill the queue of a listener of their own
mod connection_tests;

#[cfg(test)]
mod tests {
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    fn addresses(list: &[&str]) -> Vec<SocketAddr> {
        list.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 443)).collect()
    }

    #[tokio::test]
    async fn a_look_up_keeps_its_permit_after_the_request_has_ended() {
        let permits = Arc::new(Semaphore::new(1));
        let permit = || Arc::clone(&permits).try_acquire_owned().unwrap();
        let (end, wait) = oneshot::channel::<()>();
        let running = run_with_permit(permit(), wait);
        assert!(timeout(Duration::from_millis(1), running).await.is_err(), "the look-up has not ended");
        assert_eq!(permits.available_permits(), 0);
        end.send(()).unwrap();
        let permit_after_end = timeout(Duration::from_mins(1), permits.acquire()).await;
        drop(permit_after_end.expect("the look-up has ended").unwrap());
        let (result, kept) = run_with_permit(permit(), async { 7 }).await.unwrap();
        assert_eq!((result, permits.available_permits()), (7, 0));
        drop(kept);
        assert_eq!(permits.available_permits(), 1);
    }

    #[test]
    fn one_address_that_is_not_permitted_refuses_all_of_them() {
        let listed = [IpRange::parse("10.1.0.0/16").unwrap()];
        for (list, expected) in [
            (&["8.8.8.8"][..], Ok(())),
            (&["8.8.8.8", "2001:4860:4860::8888", "10.1.2.3"], Ok(())),
            (&["8.8.8.8", "127.0.0.1"], Err(TargetFault::Address)),
            (&["127.0.0.1", "8.8.8.8"], Err(TargetFault::Address)),
            (&["8.8.8.8", "8.8.4.4", "::ffff:8.8.8.8"], Err(TargetFault::Address)),
            (&["10.1.2.3", "10.2.0.1"], Err(TargetFault::Address)),
            (&[], Err(TargetFault::NoAddress)),
        ] {
            assert_eq!(check_addresses(&addresses(list), &listed), expected, "{list:?}");
        }
    }

    #[test]
    fn a_request_has_the_host_of_its_url_and_defaults_where_the_page_sets_nothing() {
        let url = TargetUrl::parse("https://api.example:8443/").map_err(|_| ()).unwrap();
        let fields = complete_fields(HeaderMap::new(), &url).unwrap();
        assert_eq!(
            (&fields[HOST], &fields[ACCEPT], &fields[ACCEPT_ENCODING]),
            (
                &HeaderValue::from_static("api.example:8443"),
                &HeaderValue::from_static("*/*"),
                &HeaderValue::from_static("identity"),
            )
        );
        let mut own = HeaderMap::new();
        own.insert(USER_AGENT, HeaderValue::from_static("a page"));
        assert_eq!(complete_fields(own, &url).unwrap()[USER_AGENT], "a page");
    }
}
