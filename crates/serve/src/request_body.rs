//! Reads the bodies of requests within bounds: each has a largest size and a deadline, and all bodies of one resource
//! together hold a bounded amount of memory. Clients that send slowly to one resource thus leave the others usable.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body::Body;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::held_bytes::{HeldBytes, HeldBytesGuard};
use super::request_rate::BUSY_RETRY_SECONDS;

/// The unit in which memory is counted, in bytes.
const MEMORY_STEP_BYTES: usize = 16 << 10;
/// The number of bytes of a body that is too large after which the rest is not read. A client that is cut off while it
/// sends may lose the response, so a short rest is read to its end.
const MAX_DISCARDED_BYTES: u64 = 4 << 20;

/// The deadline for a complete body, from the end of the request head, unless a resource has another one.
pub(crate) const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// The bounds of a request body.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimits {
    /// The largest size in bytes.
    pub max_bytes: usize,
    /// The deadline for the complete body, from the end of the request head.
    pub timeout: Duration,
    /// The memory of all bodies of the resource, in the whole process.
    pub memory: &'static HeldBytes,
}

impl BodyLimits {
    /// Creates the limits of a resource whose bodies take this memory and have [`BODY_TIMEOUT`].
    pub(crate) const fn new(max_bytes: usize, memory: &'static HeldBytes) -> BodyLimits {
        BodyLimits { max_bytes, timeout: BODY_TIMEOUT, memory }
    }
}

/// The reason why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyFault {
    /// The body is longer than the bound.
    TooLarge,
    /// The body was not complete at the deadline.
    Slow,
    /// The client has ended the body, or the connection, before its end.
    Incomplete,
    /// The bodies of other requests take all memory that bodies of the resource may take.
    OutOfMemory,
}

impl BodyFault {
    /// Returns the status of the response.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            BodyFault::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BodyFault::Slow => StatusCode::REQUEST_TIMEOUT,
            BodyFault::Incomplete => StatusCode::BAD_REQUEST,
            BodyFault::OutOfMemory => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns after how many seconds the client may send the request again; `None` if that is not a matter of time.
    pub(crate) fn retry_seconds(self) -> Option<u32> {
        (self == BodyFault::OutOfMemory).then_some(BUSY_RETRY_SECONDS)
    }

    /// Describes the fault to the client.
    pub(crate) fn message(self, limits: BodyLimits) -> String {
        match self {
            BodyFault::TooLarge => format!("the body is larger than {} bytes; send less", limits.max_bytes),
            BodyFault::Slow => {
                format!("the body was not complete after {} seconds; send it again", limits.timeout.as_secs())
            }
            BodyFault::Incomplete => "the body ends too early; send it again".to_owned(),
            BodyFault::OutOfMemory => "the server is busy with other requests; try again in a moment".to_owned(),
        }
    }
}

/// Whether a text may be a JSON object. serde accepts an array for a structure, too.
pub(crate) fn is_json_object(text: &[u8]) -> bool {
    text.trim_ascii_start().first() == Some(&b'{')
}

/// A body, or what is made from one, whose memory is counted until it is dropped.
#[derive(Debug)]
pub struct CountedBytes {
    bytes: Vec<u8>,
    memory: &'static HeldBytes,
    guards: Vec<HeldBytesGuard>,
    /// The number of bytes that the guards count.
    counted: usize,
}

impl CountedBytes {
    /// Creates an empty body that counts in `memory`.
    pub(crate) fn new(memory: &'static HeldBytes) -> CountedBytes {
        CountedBytes { bytes: Vec::new(), memory, guards: Vec::new(), counted: 0 }
    }

    /// Appends bytes; false, without a change, if there is no memory for them.
    pub(crate) fn append(&mut self, bytes: &[u8]) -> bool {
        let is_counted = self.reserve(bytes.len());
        if is_counted {
            self.bytes.extend_from_slice(bytes);
        }
        is_counted
    }

    /// Counts the memory of further bytes; false, without a change, if there is not enough.
    pub(crate) fn reserve(&mut self, further: usize) -> bool {
        let needed = self.bytes.len() + further;
        if needed > self.counted {
            // Larger steps for larger bodies keep the number of guards small.
            let missing = (needed - self.counted).max(self.counted / 2).next_multiple_of(MEMORY_STEP_BYTES);
            let Some(guard) = self.memory.try_hold(missing as u64) else { return false };
            self.guards.push(guard);
            self.bytes.reserve_exact(self.counted + missing - self.bytes.len());
            self.counted += missing;
        }
        true
    }

    /// Converts the bytes. Their memory counts until the last clone of the result is dropped.
    pub(crate) fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

/// Writing fails if there is no memory.
impl io::Write for CountedBytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.append(bytes) { Ok(bytes.len()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The body of a request, as the protocol delivers it.
pub trait RequestBody: Send + 'static {
    /// Reads the body within these bounds.
    fn read(self, limits: BodyLimits) -> impl Future<Output = Result<CountedBytes, BodyFault>> + Send;
}

impl RequestBody for Incoming {
    async fn read(self, limits: BodyLimits) -> Result<CountedBytes, BodyFault> {
        timeout(limits.timeout, collect(self, limits)).await.unwrap_or(Err(BodyFault::Slow))
    }
}

async fn collect(mut body: Incoming, limits: BodyLimits) -> Result<CountedBytes, BodyFault> {
    let BodyLimits { max_bytes, memory, .. } = limits;
    if body.size_hint().lower() > MAX_DISCARDED_BYTES.max(max_bytes as u64) {
        return Err(BodyFault::TooLarge);
    }
    let (mut collected, mut fault, mut received) = (CountedBytes::new(memory), None, 0);
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyFault::Incomplete)?.into_data() else { continue };
        received += data.len() as u64;
        if fault.is_none() {
            fault = if received > max_bytes as u64 {
                Some(BodyFault::TooLarge)
            } else if !collected.append(&data) {
                Some(BodyFault::OutOfMemory)
            } else {
                None
            };
        }
        if fault.is_some() {
            collected = CountedBytes::new(memory);
            if received > MAX_DISCARDED_BYTES {
                break;
            }
        }
    }
    fault.map_or(Ok(collected), Err)
}

/// The body of a request of HTTP/2, which its connection collects.
#[derive(Debug)]
pub(crate) enum CollectedBody {
    /// There is no body, or it is not needed.
    Empty,
    /// The connection sends the body when it is complete or cannot be collected.
    Awaited(oneshot::Receiver<Result<CountedBytes, BodyFault>>),
}

impl RequestBody for CollectedBody {
    async fn read(self, limits: BodyLimits) -> Result<CountedBytes, BodyFault> {
        match self {
            CollectedBody::Empty => Ok(CountedBytes::new(limits.memory)),
            CollectedBody::Awaited(receiver) => match timeout(limits.timeout, receiver).await {
                Err(_) => Err(BodyFault::Slow),
                Ok(Err(_)) => Err(BodyFault::Incomplete),
                Ok(Ok(result)) => result,
            },
        }
    }
}

/// A request without a body, in tests and for transports that deliver none.
impl RequestBody for () {
    async fn read(self, limits: BodyLimits) -> Result<CountedBytes, BodyFault> {
        Ok(CountedBytes::new(limits.memory))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_bodies_is_counted_until_they_are_dropped_and_bounded_in_total() {
        static MEMORY: HeldBytes = HeldBytes::new(4 << 20);
        let mut body = CountedBytes::new(&MEMORY);
        assert!(body.append(b"abc") && body.append(&vec![b'd'; 20_000]));
        assert!(body.as_ref().len() == 20_003 && body.as_ref().starts_with(b"abcd"));
        let mut large = CountedBytes::new(&MEMORY);
        assert!(large.reserve(3 << 20));
        assert!(!body.append(&vec![0; 1 << 20]), "more than is left");
        assert_eq!(body.as_ref().len(), 20_003);
        drop(large);
        assert!(body.append(&vec![0; 1 << 20]));
        assert!(body.bytes.capacity() <= body.counted && MEMORY.held() == body.counted as u64);
        let bytes = body.into_bytes();
        let second = bytes.clone();
        drop(bytes);
        assert!(MEMORY.held() >= second.len() as u64);
        drop(second);
        assert_eq!(MEMORY.held(), 0);
    }

    #[test]
    fn each_fault_of_a_body_has_a_status_and_says_what_to_do_next() {
        static MEMORY: HeldBytes = HeldBytes::new(0);
        let limits = BodyLimits::new(1000, &MEMORY);
        for (fault, retry_seconds, status, message) in [
            (BodyFault::TooLarge, None, 413, "the body is larger than 1000 bytes; send less"),
            (BodyFault::Slow, None, 408, "the body was not complete after 10 seconds; send it again"),
            (BodyFault::Incomplete, None, 400, "the body ends too early; send it again"),
            (BodyFault::OutOfMemory, Some(1), 503, "the server is busy with other requests; try again in a moment"),
        ] {
            let found = (fault.retry_seconds(), fault.status().as_u16(), fault.message(limits));
            assert_eq!(found, (retry_seconds, status, message.to_owned()));
        }
    }

    #[test]
    fn a_body_that_grows_in_small_parts_has_few_guards() {
        static MEMORY: HeldBytes = HeldBytes::new(8 << 20);
        let mut body = CountedBytes::new(&MEMORY);
        while body.as_ref().len() < 4 << 20 {
            assert!(body.append(&[0; 1000]));
        }
        assert!(body.guards.len() < 32, "{}", body.guards.len());
        assert!(MEMORY.held() <= 6 << 20, "{}", MEMORY.held());
    }
}
