//! Response bodies that count the bytes sent and write a line to the access log at their end. Without an access log,
//! nothing is counted.
//!
//! Bytes that a body has handed to the connection may still be lost, so each chunk counts the bytes that the connection
//! takes from it. The line is written when the body and its last chunk have been dropped, sent or not.

use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http::header::{REFERER, USER_AGENT};
use http::{Request, Response};
use http_body::{Frame, SizeHint};

use docwharf_base::model::version::VersionId;
use docwharf_site::room::Lies;

use super::Site;
use super::body::{Again, Body, Chunk};
use super::line::{Line, kept, kept_target};
use super::log::Log;
use super::peer::Client;

/// A response body, and the log entry to which its bytes are added if there is an access log.
#[derive(Debug)]
pub struct Told {
    body: Body,
    tally: Option<Arc<Tally>>,
}

/// A chunk of a body, and the log entry to which its bytes are added if there is an access log.
#[derive(Debug)]
pub struct Piece {
    chunk: Chunk,
    tally: Option<Arc<Tally>>,
}

/// The log entry of a response that is being sent. Dropping it writes the line.
#[derive(Debug)]
struct Tally {
    line: Line,
    log: Arc<Log>,
    begun: Instant,
    sent: AtomicU64,
}

impl Drop for Tally {
    fn drop(&mut self) {
        let line = self.line.write(self.log.format, *self.sent.get_mut(), self.begun.elapsed());
        self.log.write(line);
    }
}

impl From<Body> for Told {
    fn from(body: Body) -> Told {
        Told { body, tally: None }
    }
}

impl Told {
    /// Attaches a log entry to the response to a request that arrived at `begun`. The line is written when the response
    /// has been sent.
    pub(super) fn to<B>(
        site: &Site,
        log: &Arc<Log>,
        request: &Request<B>,
        version: Option<VersionId>,
        begun: Instant,
        response: Response<Body>,
    ) -> Response<Told> {
        let door = site.door();
        let headers = request.headers();
        let client = Client::of(&door.proxies, request);
        let line = Line {
            time: std::time::SystemTime::now(),
            client: log.address.of(client.address),
            user: door.access.user(client, headers).map(kept),
            method: request.method().clone(),
            target: kept_target(request.uri()),
            protocol: request.version(),
            status: response.status().as_u16(),
            referrer: headers.get(REFERER).map(kept),
            agent: headers.get(USER_AGENT).map(kept),
            version,
        };
        let tally = Tally { line, log: Arc::clone(log), begun, sent: AtomicU64::new(0) };
        response.map(|body| Told { body, tally: Some(Arc::new(tally)) })
    }
}

impl Told {
    /// Returns where the body is found again; `None` if the response is logged.
    pub(super) fn again(&self) -> Option<&Again> {
        if self.tally.is_none() { self.body.again() } else { None }
    }

    /// Returns the number of bytes still to be sent.
    pub(super) fn len(&self) -> u64 {
        self.body.len()
    }

    /// See [`Body::is_made`].
    pub(super) fn is_made(&self) -> bool {
        self.body.is_made()
    }
}

impl Piece {
    /// See [`Chunk::first`].
    pub(super) fn first(&self, n: usize) -> (&[u8], (&Bytes, usize), &[u8]) {
        self.chunk.first(n)
    }

    /// See [`Chunk::lies`].
    pub(super) fn lies(&self) -> Option<&Lies> {
        self.chunk.lies()
    }

    /// See [`Chunk::forget_where`].
    pub(super) fn forget_where(&mut self) {
        self.chunk.forget_where();
    }

    /// Returns whether no bytes are left to be sent.
    pub(super) fn is_empty(&self) -> bool {
        !self.chunk.has_remaining()
    }
}

impl From<Chunk> for Piece {
    fn from(chunk: Chunk) -> Piece {
        Piece { chunk, tally: None }
    }
}

impl http_body::Body for Told {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        let told = self.get_mut();
        let frame = Pin::new(&mut told.body).poll_frame(context);
        frame.map(|frame| {
            frame.map(|frame| frame.map(|frame| frame.map_data(|chunk| Piece { chunk, tally: told.tally.clone() })))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Buf for Piece {
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
        if let Some(tally) = &self.tally {
            tally.sent.fetch_add(count as u64, Ordering::Relaxed);
        }
    }
}
