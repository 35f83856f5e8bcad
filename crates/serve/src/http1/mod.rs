//! HTTP/1.1 without hyper for plain requests (see [`request_head`]), which are most of what a site receives. The first
//! request on a connection that is not plain goes to hyper with every byte of it, and so does everything after it.
//!
//! In a turn the connection reads what has arrived into a buffer of the thread and parses each request head. It takes
//! the response from the cache or from the handler ([`super::respond`]), and writes its head and body in one write.
//! Short responses to pipelined requests are written together. The connection keeps only what has to wait: a partial
//! request head, and bytes that the peer has not accepted yet.

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
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use tokio::io::{AsyncRead, ReadBuf};

use super::connection_deadlines::{HEAD_TIMEOUT, WaitReason};
use super::header_pool;
use super::logged_body::{LoggedBody, LoggedChunk};
use super::peer::Peer;
use super::respond::{respond_from_cache, respond_now};
use super::response_cache::{CacheLookup, HeadFormat};
use super::site::Site;
use super::turn::{RESPONSE_COST, TurnBudget, UNCACHED_RESPONSE_COST, end_turn};

pub use super::lazy_stream::SendFile;
use request_head::{HeadOutcome, PlainRequestHead, for_each_field, parse_head};
use send_buffer::Http1SendBuffer;

/// The size of the read buffer in bytes.
const READ_BUFFER_BYTES: usize = request_head::MAX_HEAD_BYTES;

thread_local! {
    /// The read buffer of the thread.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The outcome of serving a connection's plain requests.
pub enum Http1Outcome {
    /// The connection has ended.
    Ended,
    /// hyper takes over, from these bytes on.
    Hyper(Vec<u8>),
}

/// A connection on which only plain requests have come so far.
pub struct Http1Connection {
    site: Arc<Site>,
    peer: Peer,
    /// Set when a request has come.
    begun: Arc<AtomicBool>,
    /// Bytes that were read but not answered.
    rest: Vec<u8>,
    /// Whether `rest` was parsed and is only part of a request head.
    is_part: bool,
    out: Http1SendBuffer,
    /// Whether the connection ends after the responses that are pending.
    is_last: bool,
    /// Work since it was last reported to the turn's budget, in bytes handled; see [`TurnBudget::spend`].
    cost: usize,
    /// The deadline for a complete request head; `None` while a response is pending.
    deadline: Option<Instant>,
    /// The event that the connection waited for when it last could not proceed.
    waits: WaitReason,
}

impl Http1Connection {
    /// Creates a connection of `peer` to `site`. `begun` is set when a request has come.
    pub fn new(site: Arc<Site>, peer: Peer, begun: Arc<AtomicBool>) -> Http1Connection {
        Http1Connection {
            site,
            peer,
            begun,
            rest: Vec::new(),
            is_part: false,
            out: Http1SendBuffer::default(),
            is_last: false,
            cost: 0,
            deadline: None,
            waits: WaitReason::Internal,
        }
    }

    /// Returns the event that the connection waits for.
    pub(super) fn waits(&self) -> WaitReason {
        self.waits
    }

    /// Sends the pending responses and accepts no more requests.
    pub(super) fn finish(&mut self) {
        self.is_last = true;
    }

    /// Serves until it has to wait; ready when the connection has ended or hyper has to take over.
    pub fn poll<S: AsyncRead + SendFile + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<Http1Outcome> {
        let mut budget = TurnBudget::new();
        loop {
            self.waits = WaitReason::PeerReads;
            match ready!(self.out.send(stream, context, &mut budget)) {
                Ok(()) => {}
                Err(_) => return Poll::Ready(Http1Outcome::Ended),
            }
            if self.is_last {
                return Pin::new(stream).poll_shutdown(context).map(|_| Http1Outcome::Ended);
            }
            let came = if self.rest.is_empty() || self.is_part {
                ready!(self.read(stream, context))
            } else {
                self.respond_to_rest()
            };
            if let Some(turn) = came {
                return Poll::Ready(turn);
            }
            let cost = std::mem::replace(&mut self.cost, 0);
            if budget.spend(cost) {
                self.waits = WaitReason::Internal;
                end_turn(context);
                return Poll::Pending;
            }
        }
    }

    /// Reads from the stream and answers what has come.
    fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<Option<Http1Outcome>> {
        let mut buffer = BUFFER.take();
        buffer.resize(READ_BUFFER_BYTES, 0);
        let mut room = ReadBuf::new(&mut buffer);
        let read = Pin::new(stream).poll_read(context, &mut room);
        let filled = room.filled().len();
        let turn = match read {
            Poll::Pending => {
                let by = self.deadline.get_or_insert_with(|| Instant::now() + HEAD_TIMEOUT);
                self.waits = WaitReason::Peer(*by);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Some(Http1Outcome::Ended)),
            Poll::Ready(Ok(())) if filled == 0 => Poll::Ready(Some(self.handle_end_of_input())),
            Poll::Ready(Ok(())) if self.rest.is_empty() => {
                let bytes = &buffer[..filled];
                let answered = self.respond_to_all(bytes);
                if let Some(len) = answered
                    && len < filled
                {
                    self.rest = bytes[len..].to_vec();
                }
                Poll::Ready(if answered.is_none() { Some(Http1Outcome::Hyper(bytes.to_vec())) } else { None })
            }
            Poll::Ready(Ok(())) => {
                self.rest.extend_from_slice(&buffer[..filled]);
                Poll::Ready(self.respond_to_rest())
            }
        };
        BUFFER.set(buffer);
        turn
    }

    /// Handles the end of the input. hyper answers a partial request head.
    fn handle_end_of_input(&mut self) -> Http1Outcome {
        if self.rest.is_empty() { Http1Outcome::Ended } else { Http1Outcome::Hyper(std::mem::take(&mut self.rest)) }
    }

    /// Answers the requests in `rest`, and keeps the bytes after them.
    fn respond_to_rest(&mut self) -> Option<Http1Outcome> {
        let mut rest = std::mem::take(&mut self.rest);
        let Some(len) = self.respond_to_all(&rest) else { return Some(Http1Outcome::Hyper(rest)) };
        if len < rest.len() {
            rest.drain(..len);
            rest.shrink_to_fit();
            self.rest = rest;
        }
        None
    }

    /// Answers the requests at the start of `bytes` for as long as their responses can be written together. Returns the
    /// length of those requests; `None` if the first is not plain.
    fn respond_to_all(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            let len = self.respond_to_first(&bytes[at..]);
            self.is_part = len == Some(0);
            match len {
                // It is parsed again, as the first, after the responses before it are sent.
                None if at > 0 => return Some(at),
                _ => at += len?,
            }
            if self.is_part || at == bytes.len() || self.is_last || !self.out.takes_more() {
                return Some(at);
            }
        }
    }

    /// Answers the first request and returns its length: 0 if it is not complete, `None` if it is not plain.
    fn respond_to_first(&mut self, bytes: &[u8]) -> Option<usize> {
        let head = match parse_head(bytes) {
            HeadOutcome::Partial => return Some(0),
            HeadOutcome::NotPlain => return None,
            HeadOutcome::Plain(head) => head,
        };
        if self.site.is_opening() {
            return None;
        }
        self.begun.store(true, Ordering::Relaxed);
        self.deadline = None;
        self.out.take_buffer();
        let lookup = head.cache_key.as_ref().and_then(|key| CacheLookup::new(&self.site, key, HeadFormat::Lines));
        let cached = lookup.and_then(|lookup| respond_from_cache(&self.site, &lookup, &mut self.out.head));
        if let Some(body) = cached {
            self.end_response(head.closes, Some(body.into()), None);
            self.cost += RESPONSE_COST;
        } else {
            self.respond(&head, lookup, build_request(&head)?);
            self.cost += UNCACHED_RESPONSE_COST;
        }
        Some(head.bytes.len())
    }

    /// Answers a request that is not cached, and caches the response if possible.
    fn respond(&mut self, head: &PlainRequestHead<'_>, lookup: Option<CacheLookup<'_>>, request: Request<()>) {
        let (parts, body) = respond_now(&self.site, request, self.peer).into_parts();
        let closes = parts.headers.get(CONNECTION).is_some_and(|value| value == "close");
        let out = &mut self.out.head;
        let before = out.len();
        response_head::write_head(parts.status, &parts.headers, body.len(), out);
        if let (Some(lookup), Some(location), false) = (lookup, body.location(), closes) {
            lookup.store(parts.status, &out[before..], location.clone());
        }
        header_pool::recycle_header_map(parts.headers);
        self.end_response(head.closes || closes, None, Some(body));
    }

    /// Writes the end of a head, and sets the body behind it.
    fn end_response(&mut self, closes: bool, chunk: Option<LoggedChunk>, body: Option<LoggedBody>) {
        self.is_last |= closes;
        response_head::write_end(self.is_last, &mut self.out.head);
        self.out.set_body(chunk, body);
    }
}

/// Makes the request of a head; `None` if a header field or the target does not parse.
fn build_request(head: &PlainRequestHead<'_>) -> Option<Request<()>> {
    let bytes = Bytes::copy_from_slice(head.bytes);
    let mut fields = header_pool::take_header_map();
    let mut is_good = true;
    for_each_field(&bytes, |name, value| {
        let name = HeaderName::from_bytes(name.as_bytes());
        match (name, HeaderValue::from_maybe_shared(bytes.slice_ref(value))) {
            (Ok(name), Ok(value)) => drop(fields.append(name, value)),
            _ => is_good = false,
        }
    });
    let mut request = Request::new(());
    *request.method_mut() = if head.wants_body { Method::GET } else { Method::HEAD };
    *request.uri_mut() = Uri::from_maybe_shared(Bytes::copy_from_slice(head.target.as_bytes())).ok()?;
    *request.headers_mut() = fields;
    is_good.then_some(request)
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::os::fd::BorrowedFd;
    use std::task::Waker;

    use tokio::io::AsyncWrite;

    use super::send_buffer::GATHER_BYTES;
    use super::*;
    use crate::SiteSettings;

    /// A peer that has sent everything it sends, and records what is written to it.
    struct Pipelined<'a> {
        said: &'a [u8],
        writes: Vec<Vec<u8>>,
    }

    impl AsyncRead for Pipelined<'_> {
        fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            let (now, later) = self.said.split_at(self.said.len().min(room.remaining()));
            room.put_slice(now);
            self.said = later;
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncWrite for Pipelined<'_> {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
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

    impl SendFile for Pipelined<'_> {
        fn sends_files(&self) -> bool {
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

    #[test]
    fn short_answers_to_requests_that_came_together_are_written_together() {
        let peer = Peer { address: ([127, 0, 0, 1], 1).into(), is_encrypted: false };
        let mut plain = Http1Connection::new(Site::new(SiteSettings::default()), peer, Arc::default());
        let requests = ["HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"; 1000].concat();
        // A request that is not plain goes to hyper, after all responses to the requests before it.
        let other = "BREW / HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut stream = Pipelined { said: &[requests.as_bytes(), other.as_bytes()].concat(), writes: Vec::new() };
        let turn = loop {
            // Pending at the end of a turn.
            if let Poll::Ready(turn) = plain.poll(&mut stream, &mut Context::from_waker(Waker::noop())) {
                break turn;
            }
        };
        assert!(matches!(turn, Http1Outcome::Hyper(bytes) if bytes == other.as_bytes()));
        let all = stream.writes.concat();
        assert_eq!(all.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"HTTP/1.1 ")).count(), 1000);
        assert!(all.ends_with(b"\r\n\r\n"));
        let longest = stream.writes.iter().map(Vec::len).max().unwrap_or_default();
        assert!(longest < 2 * GATHER_BYTES, "{longest} bytes at a time");
        let most = all.len() / GATHER_BYTES * 2;
        assert!(stream.writes.len() < most, "{} writes of {} bytes", stream.writes.len(), all.len());
    }

    /// Returns what a new connection answers when the peer sends `said` and closes, and how the connection goes on.
    fn answered(site: &Arc<Site>, said: &str, finishes: bool) -> (String, Http1Outcome) {
        let peer = Peer { address: ([127, 0, 0, 1], 1).into(), is_encrypted: false };
        let mut plain = Http1Connection::new(Arc::clone(site), peer, Arc::default());
        if finishes {
            plain.finish();
        }
        let mut stream = Pipelined { said: said.as_bytes(), writes: Vec::new() };
        let turn = loop {
            if let Poll::Ready(turn) = plain.poll(&mut stream, &mut Context::from_waker(Waker::noop())) {
                break turn;
            }
        };
        (String::from_utf8(stream.writes.concat()).unwrap(), turn)
    }

    #[test]
    fn a_connection_ends_when_its_client_says_so_also_behind_an_answer_that_was_given_before() {
        let site = Site::new(SiteSettings::default());
        let plain = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        let last = "GET /a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        let missing = "HTTP/1.1 503 ";
        for (said, answers, closes) in [
            (plain.to_owned(), 1, false),
            (plain.repeat(5), 5, false),
            (format!("{last}{plain}"), 1, true),
            (format!("{plain}{plain}{last}{plain}{plain}"), 3, true),
        ] {
            for turn in 0..2 {
                let (text, end) = answered(&site, &said, false);
                assert_eq!(text.matches(missing).count(), answers, "{said} (turn {turn})");
                assert_eq!(text.matches("connection: close\r\n").count(), usize::from(closes), "{said} (turn {turn})");
                assert_eq!(text.matches("\r\ndate: ").count(), answers, "{said} (turn {turn})");
                assert!(matches!(end, Http1Outcome::Ended), "{said} (turn {turn})");
            }
        }
        // A request without Host ends the connection as well, and its response is not cached.
        let bad = "GET /a HTTP/1.1\r\n\r\n";
        let (text, end) = answered(&site, &format!("{plain}{bad}{plain}"), false);
        assert!(text.starts_with(missing) && text.contains("HTTP/1.1 400 ") && text.matches(missing).count() == 1);
        assert!(text.contains("connection: close\r\n") && matches!(end, Http1Outcome::Ended));
        let (text, end) = answered(&site, plain, true);
        assert!(text.is_empty() && matches!(end, Http1Outcome::Ended), "nothing is read any more");
    }

    #[test]
    fn what_is_no_whole_plain_request_goes_on_with_every_byte_of_it() {
        let site = Site::new(SiteSettings::default());
        let plain = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        for (before, rest) in [
            (0, "GET /a HTTP/1.1\r\nHost"),
            (3, "G"),
            (0, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
            (3, "BREW / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n"),
        ] {
            let (text, end) = answered(&site, &format!("{}{rest}", plain.repeat(before)), false);
            assert_eq!(text.matches("HTTP/1.1 503 ").count(), before, "{rest}");
            assert!(matches!(end, Http1Outcome::Hyper(bytes) if bytes == rest.as_bytes()), "{rest}");
        }
        assert!(matches!(answered(&site, "", false).1, Http1Outcome::Ended));
    }
}
