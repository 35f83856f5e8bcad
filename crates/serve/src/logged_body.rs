//! Response bodies that count the bytes sent and write a line to the access log at their end. Without an access log,
//! nothing is counted.
//!
//! Bytes that a body has passed to the connection may still be lost, so each chunk counts the bytes that the connection
//! has queued or sent of it. The line is written when the body and its last chunk have been dropped, sent or not.

use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Buf;
use http::Response;
use http::header::{REFERER, USER_AGENT};
use http_body::{Frame, SizeHint};

use docwharf_site::memfd_arena::MemfdRange;

use super::access_log::AccessLog;
use super::access_log_line::{AccessLogLine, truncate_target, truncate_value};
use super::body::{ResponseBody, StoredBody};
use super::body_chunk::{BodyChunk, ChunkPart};
use super::request_context::RequestContext;

/// A response body, and the log entry that counts its sent bytes if there is an access log.
#[derive(Debug)]
pub struct LoggedBody {
    body: ResponseBody,
    log_line: Option<Arc<PendingLogLine>>,
}

/// A chunk of a body, and the log entry that counts its sent bytes if there is an access log.
#[derive(Debug)]
pub struct LoggedChunk {
    chunk: BodyChunk,
    log_line: Option<Arc<PendingLogLine>>,
}

/// The log entry of a response that is being sent. Dropping it writes the line.
#[derive(Debug)]
struct PendingLogLine {
    line: AccessLogLine,
    log: Arc<AccessLog>,
    /// When the request arrived.
    arrived_at: Instant,
    sent: AtomicU64,
}

impl Drop for PendingLogLine {
    fn drop(&mut self) {
        let line = self.line.format(self.log.format, *self.sent.get_mut(), self.arrived_at.elapsed());
        self.log.write(line);
    }
}

impl From<ResponseBody> for LoggedBody {
    fn from(body: ResponseBody) -> LoggedBody {
        LoggedBody { body, log_line: None }
    }
}

impl LoggedBody {
    /// Attaches a log entry to the response to a request that arrived at `arrived_at`. The line is written when the
    /// body and its chunks are dropped.
    pub(super) fn with_log_line(
        context: &RequestContext<'_>,
        log: &Arc<AccessLog>,
        arrived_at: Instant,
        response: Response<ResponseBody>,
    ) -> Response<LoggedBody> {
        let (client, headers) = (context.client(), context.headers());
        let line = AccessLogLine {
            time: std::time::SystemTime::now(),
            client: log.address.apply(client.address),
            user: context.access_control().rules.user(client, headers).map(truncate_value),
            method: context.method().clone(),
            target: truncate_target(context.target()),
            protocol: context.protocol(),
            status: response.status().as_u16(),
            referrer: headers.get(REFERER).map(truncate_value),
            user_agent: headers.get(USER_AGENT).map(truncate_value),
            version: context.version().map(|version| version.id),
        };
        let pending = PendingLogLine { line, log: Arc::clone(log), arrived_at, sent: AtomicU64::new(0) };
        response.map(|body| LoggedBody { body, log_line: Some(Arc::new(pending)) })
    }

    /// Returns what the response cache stores of the body; `None` if the response is not cached or is logged.
    pub(super) fn stored_body(&self) -> Option<StoredBody> {
        let location = self.body.location().filter(|_| self.log_line.is_none())?;
        Some(StoredBody { location: location.clone(), viewed: self.body.viewed() })
    }

    /// See [`ResponseBody::len`].
    pub(super) fn len(&self) -> u64 {
        self.body.len()
    }

    /// See [`ResponseBody::is_empty`].
    pub(super) fn is_empty(&self) -> bool {
        self.body.is_empty()
    }

    /// See [`ResponseBody::is_streamed`].
    pub(super) fn is_streamed(&self) -> bool {
        self.body.is_streamed()
    }

    /// See [`ResponseBody::is_inflated`].
    pub(super) fn is_inflated(&self) -> bool {
        self.body.is_inflated()
    }
}

impl LoggedChunk {
    /// See [`BodyChunk::visit_first_bytes`].
    pub(super) fn visit_first_bytes<'a>(&'a self, n: usize, visit: impl FnMut(ChunkPart<'a>)) {
        self.chunk.visit_first_bytes(n, visit);
    }

    /// See [`BodyChunk::memfd_range`].
    pub(super) fn memfd_range(&self) -> Option<(&MemfdRange, usize)> {
        self.chunk.memfd_range()
    }

    /// See [`BodyChunk::clear_memfd_range`].
    pub(super) fn clear_memfd_range(&mut self) {
        self.chunk.clear_memfd_range();
    }

    /// Returns whether no bytes are left to be sent.
    pub(super) fn is_empty(&self) -> bool {
        !self.chunk.has_remaining()
    }
}

impl From<BodyChunk> for LoggedChunk {
    fn from(chunk: BodyChunk) -> LoggedChunk {
        LoggedChunk { chunk, log_line: None }
    }
}

impl http_body::Body for LoggedBody {
    type Data = LoggedChunk;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<LoggedChunk>, Infallible>>> {
        let LoggedBody { body, log_line } = self.get_mut();
        let frame = Pin::new(body).poll_frame(context);
        frame.map(|frame| {
            frame.map(|frame| {
                frame.map(|frame| frame.map_data(|chunk| LoggedChunk { chunk, log_line: log_line.clone() }))
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Buf for LoggedChunk {
    fn remaining(&self) -> usize {
        self.chunk.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.chunk.chunk()
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.chunk.chunks_vectored(slices)
    }

    fn advance(&mut self, count: usize) {
        self.chunk.advance(count);
        if let Some(log_line) = &self.log_line {
            log_line.sent.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}
