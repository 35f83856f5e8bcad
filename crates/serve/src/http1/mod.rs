//! HTTP/1.1 without hyper for plain requests (see [`request_head`]), which are most of what a site receives. The first
//! request on a connection that is not plain, or whose response has to be awaited, is returned to `connection` with all
//! its bytes, and so is everything after it: `connection` detects HTTP/2, and hyper serves everything else.
//!
//! In a turn the connection reads received bytes into a buffer of the thread and parses each request head. It gets the
//! response from the cache or from the handler ([`super::respond`]), and writes its head and body in one write. Short
//! responses to pipelined requests are written together. Between turns the connection stores only requests that are not
//! answered yet, the last of which may be partial, and bytes that the peer has not accepted yet.

pub mod request_head;
mod response_head;
mod send_buffer;

use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use tokio::io::{AsyncRead, ReadBuf};

use super::connection_deadlines::{HEAD_TIMEOUT, WaitReason};
use super::header_pool;
use super::logged_body::{LoggedBody, LoggedChunk};
use super::peer::Peer;
use super::respond::{may_wait, respond_from_cache, respond_now};
use super::response_cache::{CacheAddress, HeadFormat};
use super::site::Site;
use super::turn::{RESPONSE_COST, TurnBudget, UNCACHED_RESPONSE_COST, end_turn};

pub use super::lazy_stream::SendFile;
use request_head::{HeadOutcome, PlainRequestHead, for_each_field, parse_head};
use send_buffer::Http1SendBuffer;

/// The size of the read buffer in bytes.
const READ_BUFFER_BYTES: usize = request_head::MAX_PLAIN_HEAD_BYTES;

thread_local! {
    /// The read buffer of the thread.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The outcome of serving a connection's plain requests.
pub enum Http1Outcome {
    /// The connection has ended.
    Ended,
    /// The rest of the connection, from these bytes on, is not served here: `connection` detects HTTP/2, and hyper
    /// serves everything else.
    NotServedHere(Vec<u8>),
}

/// A connection on which only plain requests were received so far.
pub struct Http1Connection {
    site: Arc<Site>,
    peer: Peer,
    /// Set when the first request is received.
    request_received: Arc<AtomicBool>,
    /// Bytes that were read but not answered.
    unanswered: Vec<u8>,
    /// Whether `unanswered` was parsed and is only part of a request head.
    is_partial_head: bool,
    send_buffer: Http1SendBuffer,
    /// Whether the connection ends after the responses that are pending.
    is_closing: bool,
    /// The cost of the work that was not reported to the turn's budget yet, in bytes handled; see
    /// [`TurnBudget::spend`].
    cost: usize,
    /// The deadline for a complete request head; `None` while a response is pending.
    deadline: Option<Instant>,
    /// The event that the connection waited for when it last could not proceed.
    wait_reason: WaitReason,
}

impl Http1Connection {
    /// Creates a connection of `peer` to `site`. `request_received` is set when the first request is received.
    pub fn new(site: Arc<Site>, peer: Peer, request_received: Arc<AtomicBool>) -> Http1Connection {
        Http1Connection {
            site,
            peer,
            request_received,
            unanswered: Vec::new(),
            is_partial_head: false,
            send_buffer: Http1SendBuffer::default(),
            is_closing: false,
            cost: 0,
            deadline: None,
            wait_reason: WaitReason::Internal,
        }
    }

    /// Returns the event that the connection waits for.
    pub(super) fn wait_reason(&self) -> WaitReason {
        self.wait_reason
    }

    /// Sends the pending responses and accepts no more requests.
    pub(super) fn finish(&mut self) {
        self.is_closing = true;
    }

    /// Serves requests until the connection has to wait; ready when the connection has ended, or its rest is not served
    /// here.
    pub fn poll<S: AsyncRead + SendFile + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<Http1Outcome> {
        let mut budget = TurnBudget::new();
        loop {
            self.wait_reason = WaitReason::PeerReads;
            match ready!(self.send_buffer.send(stream, context, &mut budget)) {
                Ok(()) => {}
                Err(_) => return Poll::Ready(Http1Outcome::Ended),
            }
            if self.is_closing {
                return Pin::new(stream).poll_shutdown(context).map(|_| Http1Outcome::Ended);
            }
            let outcome = if self.unanswered.is_empty() || self.is_partial_head {
                ready!(self.read(stream, context))
            } else {
                self.respond_to_unanswered()
            };
            if let Some(outcome) = outcome {
                return Poll::Ready(outcome);
            }
            let cost = std::mem::replace(&mut self.cost, 0);
            if budget.spend(cost) {
                self.wait_reason = WaitReason::Internal;
                end_turn(context);
                return Poll::Pending;
            }
        }
    }

    /// Reads from the stream and answers the requests that were received.
    fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<Option<Http1Outcome>> {
        let mut buffer = BUFFER.take();
        buffer.resize(READ_BUFFER_BYTES, 0);
        let mut read_buf = ReadBuf::new(&mut buffer);
        let read = Pin::new(stream).poll_read(context, &mut read_buf);
        let filled = read_buf.filled().len();
        let outcome = match read {
            Poll::Pending => {
                let deadline = self.deadline.get_or_insert_with(|| Instant::now() + HEAD_TIMEOUT);
                self.wait_reason = WaitReason::Peer(*deadline);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Some(Http1Outcome::Ended)),
            Poll::Ready(Ok(())) if filled == 0 => Poll::Ready(Some(self.handle_end_of_input())),
            Poll::Ready(Ok(())) if self.unanswered.is_empty() => {
                let bytes = &buffer[..filled];
                let handled = self.respond_to_all(bytes);
                if let Some(len) = handled
                    && len < filled
                {
                    self.unanswered = bytes[len..].to_vec();
                }
                Poll::Ready(if handled.is_none() { Some(Http1Outcome::NotServedHere(bytes.to_vec())) } else { None })
            }
            Poll::Ready(Ok(())) => {
                self.unanswered.extend_from_slice(&buffer[..filled]);
                Poll::Ready(self.respond_to_unanswered())
            }
        };
        BUFFER.set(buffer);
        outcome
    }

    /// Handles the end of the input. hyper answers a partial request head.
    fn handle_end_of_input(&mut self) -> Http1Outcome {
        if self.unanswered.is_empty() {
            Http1Outcome::Ended
        } else {
            Http1Outcome::NotServedHere(std::mem::take(&mut self.unanswered))
        }
    }

    /// Answers the requests in `unanswered`, and stores the bytes after them.
    fn respond_to_unanswered(&mut self) -> Option<Http1Outcome> {
        let mut bytes = std::mem::take(&mut self.unanswered);
        let Some(len) = self.respond_to_all(&bytes) else { return Some(Http1Outcome::NotServedHere(bytes)) };
        if len < bytes.len() {
            bytes.drain(..len);
            bytes.shrink_to_fit();
            self.unanswered = bytes;
        }
        None
    }

    /// Answers the requests at the start of `bytes` for as long as their responses can be written together. Returns the
    /// length of those requests; `None` if the first is not answered here, see [`Http1Connection::respond_to_first`].
    fn respond_to_all(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut handled = 0;
        loop {
            let len = self.respond_to_first(&bytes[handled..]);
            self.is_partial_head = len == Some(0);
            match len {
                // The request is parsed again, as the first one, after the responses before it are sent.
                None if handled > 0 => return Some(handled),
                _ => handled += len?,
            }
            if self.is_partial_head || handled == bytes.len() || self.is_closing || !self.send_buffer.can_add_response()
            {
                return Some(handled);
            }
        }
    }

    /// Answers the first request and returns its length: 0 if it is not complete, `None` if it is not answered here: it
    /// is not plain, does not parse, or its response may have to be awaited.
    fn respond_to_first(&mut self, bytes: &[u8]) -> Option<usize> {
        let head = match parse_head(bytes) {
            HeadOutcome::Partial => return Some(0),
            HeadOutcome::NotPlain => return None,
            HeadOutcome::Plain(head) => head,
        };
        if may_wait(&self.site, head.target) {
            return None;
        }
        self.request_received.store(true, Ordering::Relaxed);
        self.deadline = None;
        self.send_buffer.obtain_buffer();
        let address = head.cache_key.as_ref().and_then(|key| CacheAddress::new(&self.site, key, HeadFormat::Lines));
        let cached = address
            .and_then(|address| respond_from_cache(&self.site, &address, &head.fields, &mut self.send_buffer.buffer));
        if let Some(body) = cached {
            self.end_response(head.closes, Some(body.into()), None);
            self.cost += RESPONSE_COST;
        } else {
            let request = build_request(&head)?;
            let response = respond_now(&self.site, request, self.peer)?;
            self.write_response(&head, address, response);
            self.cost += UNCACHED_RESPONSE_COST;
        }
        Some(head.bytes.len())
    }

    /// Writes the response to a request that is not cached, and caches it if possible.
    fn write_response(
        &mut self,
        head: &PlainRequestHead<'_>,
        address: Option<CacheAddress<'_>>,
        response: Response<LoggedBody>,
    ) {
        let (parts, body) = response.into_parts();
        debug_assert!(!body.is_streamed(), "a response that is available at once has a length");
        let closes = parts.headers.get(CONNECTION).is_some_and(|value| value == "close");
        let out = &mut self.send_buffer.buffer;
        let head_start = out.len();
        response_head::write_head(parts.status, &parts.headers, body.len(), out);
        if let (Some(address), Some(stored), false) = (address, body.stored_body(), closes) {
            address.store(parts.status, &out[head_start..], stored);
        }
        header_pool::recycle_header_map(parts.headers);
        self.end_response(head.closes || closes, None, Some(body));
    }

    /// Writes the last fields of a head, and sets the body that follows it.
    fn end_response(&mut self, closes: bool, chunk: Option<LoggedChunk>, body: Option<LoggedBody>) {
        self.is_closing |= closes;
        response_head::write_end(self.is_closing, &mut self.send_buffer.buffer);
        self.send_buffer.set_body(chunk, body);
    }
}

/// Builds the request for the handler from a head; `None` if a header field or the target does not parse.
fn build_request(head: &PlainRequestHead<'_>) -> Option<Request<()>> {
    let bytes = Bytes::copy_from_slice(head.bytes);
    let mut fields = header_pool::take_header_map();
    let mut is_valid = true;
    for_each_field(&bytes, |name, value| {
        let name = HeaderName::from_bytes(name.as_bytes());
        match (name, HeaderValue::from_maybe_shared(bytes.slice_ref(value))) {
            (Ok(name), Ok(value)) => drop(fields.append(name, value)),
            _ => is_valid = false,
        }
    });
    let mut request = Request::new(());
    *request.method_mut() = if head.is_get { Method::GET } else { Method::HEAD };
    *request.uri_mut() = Uri::from_maybe_shared(Bytes::copy_from_slice(head.target.as_bytes())).ok()?;
    *request.headers_mut() = fields;
    is_valid.then_some(request)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::task::Waker;

    use tokio::io::AsyncWrite;

    use super::send_buffer::GATHER_BYTES;
    use super::*;
    use crate::{OpeningGuard, SiteSettings};

    /// The stream of a peer that sends all its requests at once; it records the bytes of each write.
    struct PipelinedStream<'a> {
        input: &'a [u8],
        /// Whether the peer may send more after `input`.
        is_open: bool,
        /// Whether the peer reads.
        is_writable: bool,
        writes: Vec<Vec<u8>>,
    }

    impl<'a> PipelinedStream<'a> {
        /// Creates the stream of a peer that reads everything, and sends nothing after `input`.
        fn new(input: &'a [u8]) -> PipelinedStream<'a> {
            PipelinedStream { input, is_open: false, is_writable: true, writes: Vec::new() }
        }
    }

    impl AsyncRead for PipelinedStream<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            if self.input.is_empty() && self.is_open {
                return Poll::Pending;
            }
            let (chunk, rest) = self.input.split_at(self.input.len().min(buffer.remaining()));
            buffer.put_slice(chunk);
            self.input = rest;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for PipelinedStream<'_> {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            if !self.is_writable {
                return Poll::Pending;
            }
            self.writes.push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl SendFile for PipelinedStream<'_> {
        fn can_send_files(&self) -> bool {
            false
        }

        fn poll_send_file(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
            _: BorrowedFd<'_>,
            _: u64,
            _: usize,
        ) -> Poll<io::Result<usize>> {
            Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
        }
    }

    // Regression: each of many short responses to a client that pipelines was written alone, and the unread rest was
    // copied each time.
    #[test]
    fn short_responses_to_pipelined_requests_are_written_together() {
        let peer = Peer { address: ([127, 0, 0, 1], 1).into(), is_encrypted: false, is_loopback_listener: false };
        let mut connection = Http1Connection::new(Site::new(SiteSettings::default()), peer, Arc::default());
        let requests = ["HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"; 1000].concat();
        // A request that is not plain is passed to hyper, after all responses to the requests before it.
        let other_request = "BREW / HTTP/1.1\r\nHost: x\r\n\r\n";
        let input = [requests.as_bytes(), other_request.as_bytes()].concat();
        let mut stream = PipelinedStream::new(&input);
        let outcome = loop {
            // Pending at the end of a turn.
            if let Poll::Ready(outcome) = connection.poll(&mut stream, &mut Context::from_waker(Waker::noop())) {
                break outcome;
            }
        };
        assert!(matches!(outcome, Http1Outcome::NotServedHere(bytes) if bytes == other_request.as_bytes()));
        let written = stream.writes.concat();
        assert_eq!(written.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"HTTP/1.1 ")).count(), 1000);
        assert!(written.ends_with(b"\r\n\r\n"));
        let longest = stream.writes.iter().map(Vec::len).max().unwrap_or_default();
        assert!(longest < 2 * GATHER_BYTES, "{longest} bytes at a time");
        let max_writes = written.len() / GATHER_BYTES * 2;
        assert!(stream.writes.len() < max_writes, "{} writes of {} bytes", stream.writes.len(), written.len());
    }

    /// Sends `input` on a new connection, then the end of the input. Returns the responses and the outcome. With
    /// `finishes`, the connection accepts no requests.
    fn respond_on_new_connection(site: &Arc<Site>, input: &str, finishes: bool) -> (String, Http1Outcome) {
        let peer = Peer { address: ([127, 0, 0, 1], 1).into(), is_encrypted: false, is_loopback_listener: false };
        let mut connection = Http1Connection::new(Arc::clone(site), peer, Arc::default());
        if finishes {
            connection.finish();
        }
        let mut stream = PipelinedStream::new(input.as_bytes());
        let outcome = loop {
            if let Poll::Ready(outcome) = connection.poll(&mut stream, &mut Context::from_waker(Waker::noop())) {
                break outcome;
            }
        };
        (String::from_utf8(stream.writes.concat()).unwrap(), outcome)
    }

    #[test]
    fn connection_close_ends_the_connection_also_after_a_cached_response() {
        let site = Site::new(SiteSettings::default());
        let plain = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        let last = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let missing = "HTTP/1.1 503 ";
        for (input, count, closes) in [
            (plain.to_owned(), 1, false),
            (plain.repeat(5), 5, false),
            (format!("{last}{plain}"), 1, true),
            (format!("{plain}{plain}{last}{plain}{plain}"), 3, true),
        ] {
            for attempt in 0..2 {
                let (text, outcome) = respond_on_new_connection(&site, &input, false);
                assert_eq!(text.matches(missing).count(), count, "{input} (attempt {attempt})");
                assert_eq!(
                    text.matches("connection: close\r\n").count(),
                    usize::from(closes),
                    "{input} (attempt {attempt})"
                );
                assert_eq!(text.matches("\r\ndate: ").count(), count, "{input} (attempt {attempt})");
                assert!(matches!(outcome, Http1Outcome::Ended), "{input} (attempt {attempt})");
            }
        }
        // A request without Host ends the connection as well, and its response is not cached.
        let bad = "GET /a HTTP/1.1\r\n\r\n";
        let (text, outcome) = respond_on_new_connection(&site, &format!("{plain}{bad}{plain}"), false);
        assert!(text.starts_with(missing) && text.contains("HTTP/1.1 400 ") && text.matches(missing).count() == 1);
        assert!(text.contains("connection: close\r\n") && matches!(outcome, Http1Outcome::Ended));
        let (text, outcome) = respond_on_new_connection(&site, plain, true);
        assert!(text.is_empty() && matches!(outcome, Http1Outcome::Ended), "no more input is read");
    }

    #[test]
    fn an_incomplete_or_not_plain_request_is_passed_to_hyper_with_all_its_bytes() {
        let site = Site::new(SiteSettings::default());
        let plain = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        for (before, rest) in [
            (0, "GET /a HTTP/1.1\r\nHost"),
            (3, "G"),
            (0, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
            (3, "BREW / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n"),
        ] {
            let (text, outcome) = respond_on_new_connection(&site, &format!("{}{rest}", plain.repeat(before)), false);
            assert_eq!(text.matches("HTTP/1.1 503 ").count(), before, "{rest}");
            assert!(matches!(outcome, Http1Outcome::NotServedHere(bytes) if bytes == rest.as_bytes()), "{rest}");
        }
        assert!(matches!(respond_on_new_connection(&site, "", false).1, Http1Outcome::Ended));
    }

    #[test]
    fn each_request_head_has_a_fixed_deadline_but_a_client_that_does_not_read_has_none() {
        let peer = Peer { address: ([127, 0, 0, 1], 1).into(), is_encrypted: false, is_loopback_listener: false };
        let request_received = Arc::<AtomicBool>::default();
        let site = Site::new(SiteSettings::default());
        let mut connection = Http1Connection::new(site, peer, Arc::clone(&request_received));
        let mut stream = PipelinedStream { is_open: true, ..PipelinedStream::new(b"") };
        let mut wait_reason = |input: &'static [u8], is_writable: bool| {
            (stream.input, stream.is_writable) = (input, is_writable);
            assert!(connection.poll(&mut stream, &mut Context::from_waker(Waker::noop())).is_pending());
            connection.wait_reason()
        };
        let is_later = |wait_reason: WaitReason, first: WaitReason| matches!((wait_reason, first), (WaitReason::Peer(deadline), WaitReason::Peer(first)) if deadline > first);
        let first = wait_reason(b"", true);
        assert_eq!(wait_reason(b"GET / HTTP/1.1\r\nHo", true), first, "a part of the head");
        assert!(!request_received.load(Ordering::Relaxed), "a part of a head is no request");
        let second = wait_reason(b"st: x\r\n\r\n", true);
        assert!(is_later(second, first), "{second:?} after {first:?}");
        assert!(request_received.load(Ordering::Relaxed));
        assert_eq!(wait_reason(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false), WaitReason::PeerReads);
        let third = wait_reason(b"", true);
        assert!(is_later(third, second), "{third:?} after {second:?}");
    }

    // Only hyper can wait for a response, and an asset may be in a version that is not open yet.
    #[test]
    fn plain_requests_are_passed_to_hyper_while_earlier_versions_are_being_opened() {
        let site = Site::new(SiteSettings::default());
        let plain = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        let opening = OpeningGuard::start(&site);
        let (text, outcome) = respond_on_new_connection(&site, plain, false);
        assert!(text.is_empty() && matches!(outcome, Http1Outcome::NotServedHere(bytes) if bytes == plain.as_bytes()));
        drop(opening);
        assert!(respond_on_new_connection(&site, plain, false).0.starts_with("HTTP/1.1 503 "));
    }
}
