//! Reads the body of a request, within bounds.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The deadline for a complete body, from the end of the request head.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFault {
    /// The body is longer than the bound.
    TooLarge,
    /// The body was not complete at the deadline.
    Slow,
    /// The client has ended the body, or the connection, before its end.
    Incomplete,
}

/// The body of a request, as the protocol delivers it.
pub(crate) trait RequestBody: Send + 'static {
    /// Reads the body, which may have up to `max_bytes` bytes.
    fn read(self, max_bytes: usize) -> impl Future<Output = Result<Bytes, BodyFault>> + Send;
}

impl RequestBody for Incoming {
    async fn read(self, max_bytes: usize) -> Result<Bytes, BodyFault> {
        match timeout(BODY_TIMEOUT, Limited::new(self, max_bytes).collect()).await {
            Err(_) => Err(BodyFault::Slow),
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyFault::TooLarge),
            Ok(Err(_)) => Err(BodyFault::Incomplete),
        }
    }
}

/// The body of a request of HTTP/2, which its connection collects.
#[derive(Debug)]
pub(crate) enum CollectedBody {
    /// There is no body, or it is not needed.
    Empty,
    /// The connection sends the body when it is complete or too large.
    Awaited(oneshot::Receiver<Result<Bytes, BodyFault>>),
}

impl RequestBody for CollectedBody {
    async fn read(self, _: usize) -> Result<Bytes, BodyFault> {
        match self {
            CollectedBody::Empty => Ok(Bytes::new()),
            CollectedBody::Awaited(receiver) => match timeout(BODY_TIMEOUT, receiver).await {
                Err(_) => Err(BodyFault::Slow),
                Ok(Err(_)) => Err(BodyFault::Incomplete),
                Ok(Ok(result)) => result,
            },
        }
    }
}

/// A request without a body, in tests and for transports that deliver none.
impl RequestBody for () {
    async fn read(self, _: usize) -> Result<Bytes, BodyFault> {
        Ok(Bytes::new())
    }
}
