//! Plain requests of HTTP/1.1 ([`head`]), answered without more machinery than they need: most of what a site is asked. The
//! first request on a connection that is not plain goes to hyper with every byte of it, and so does all that comes after it.
//!
//! A turn: read what there is into a buffer of the thread → look at each head → an answer that was given before to the same
//! question ([`super::memo`]), or what `handler` makes of the request → its head ([`render`]) and its body in one write. Short
//! answers to requests that came together are written together. Only what has to wait is kept by the connection: a part of a
//! head, what the peer has not taken yet.

pub mod head;
mod outgoing;
mod render;

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

use super::Site;
use super::answer::told;
use super::connection::{HEAD_TIMEOUT, Waits};
use super::memo::{self, Shape, State};
use super::peer::Peer;
use super::spare;
use super::turn::{ANSWER, NEW_ANSWER, TurnBudget, end_turn};

pub use super::stream::SendFile;
pub(super) use head::is_plain_host;
use head::{Come, Head, each_field, look};
use outgoing::Outgoing;

/// What is read at a time.
const READ: usize = head::LONGEST;

thread_local! {
    /// What has just been read.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// How a connection goes on.
pub enum Turn {
    /// Not at all.
    Ended,
    /// With hyper, from these bytes on.
    Other(Vec<u8>),
}

/// A connection on which only plain requests have come so far.
pub struct Plain {
    site: Arc<Site>,
    peer: Peer,
    /// Whether a request has come.
    begun: Arc<AtomicBool>,
    /// What was read and not answered.
    rest: Vec<u8>,
    /// Whether that has been looked at, and is but a part.
    is_part: bool,
    out: Outgoing,
    /// Nothing more is answered after what is on its way.
    is_last: bool,
    /// Work since the last look at the turn's time; see [`TurnBudget::spend`].
    cost: usize,
    /// By when a head must be whole; none while something is on its way out.
    deadline: Option<Instant>,
    /// What it waited for when it last did not go on.
    waits: Waits,
}

impl Plain {
    /// A new connection; `begun` is told that a request has come.
    pub fn new(site: Arc<Site>, peer: Peer, begun: Arc<AtomicBool>) -> Plain {
        Plain {
            site,
            peer,
            begun,
            rest: Vec::new(),
            is_part: false,
            out: Outgoing::default(),
            is_last: false,
            cost: 0,
            deadline: None,
            waits: Waits::Itself,
        }
    }

    /// What it waits for; see [`Waits`].
    pub(super) fn waits(&self) -> Waits {
        self.waits
    }

    /// Answers what is on its way, and no more.
    pub(super) fn finish(&mut self) {
        self.is_last = true;
    }

    /// Goes on until it has to wait, or is not the one to go on.
    pub fn poll<S: AsyncRead + SendFile + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<Turn> {
        let mut budget = TurnBudget::new();
        loop {
            self.waits = Waits::Reader;
            match ready!(self.out.send(stream, context, &mut budget)) {
                Ok(()) => {}
                Err(_) => return Poll::Ready(Turn::Ended),
            }
            if self.is_last {
                return Pin::new(stream).poll_shutdown(context).map(|_| Turn::Ended);
            }
            let came = if self.rest.is_empty() || self.is_part {
                ready!(self.read(stream, context))
            } else {
                self.answer_rest()
            };
            if let Some(turn) = came {
                return Poll::Ready(turn);
            }
            let cost = std::mem::replace(&mut self.cost, 0);
            if budget.spend(cost) {
                self.waits = Waits::Itself;
                end_turn(context);
                return Poll::Pending;
            }
        }
    }

    /// Reads and answers what has come.
    fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<Option<Turn>> {
        let mut buffer = BUFFER.take();
        buffer.resize(READ, 0);
        let mut room = ReadBuf::new(&mut buffer);
        let read = Pin::new(stream).poll_read(context, &mut room);
        let filled = room.filled().len();
        let turn = match read {
            Poll::Pending => {
                let by = self.deadline.get_or_insert_with(|| Instant::now() + HEAD_TIMEOUT);
                self.waits = Waits::Peer(*by);
                Poll::Pending
            }
            Poll::Ready(Err(_)) => Poll::Ready(Some(Turn::Ended)),
            Poll::Ready(Ok(())) if filled == 0 => Poll::Ready(Some(self.at_end())),
            Poll::Ready(Ok(())) if self.rest.is_empty() => {
                let bytes = &buffer[..filled];
                let answered = self.answer_all(bytes);
                if let Some(len) = answered
                    && len < filled
                {
                    self.rest = bytes[len..].to_vec();
                }
                Poll::Ready(if answered.is_none() { Some(Turn::Other(bytes.to_vec())) } else { None })
            }
            Poll::Ready(Ok(())) => {
                self.rest.extend_from_slice(&buffer[..filled]);
                Poll::Ready(self.answer_rest())
            }
        };
        BUFFER.set(buffer);
        turn
    }

    /// The peer says nothing more. What is half a head is hyper's to refuse.
    fn at_end(&mut self) -> Turn {
        if self.rest.is_empty() { Turn::Ended } else { Turn::Other(std::mem::take(&mut self.rest)) }
    }

    /// Answers what was read before and has not been answered, and keeps what is behind.
    fn answer_rest(&mut self) -> Option<Turn> {
        let mut rest = std::mem::take(&mut self.rest);
        let Some(len) = self.answer_all(&rest) else { return Some(Turn::Other(rest)) };
        if len < rest.len() {
            rest.drain(..len);
            rest.shrink_to_fit();
            self.rest = rest;
        }
        None
    }

    /// Answers the requests at the beginning of `bytes`, as long as their answers can be written together; how long those
    /// requests are, nothing if the first is not plain.
    fn answer_all(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        loop {
            let len = self.answer_first(&bytes[at..]);
            self.is_part = len == Some(0);
            match len {
                // Looked at again, as the first, when the answers before it are on their way.
                None if at > 0 => return Some(at),
                _ => at += len?,
            }
            if self.is_part || at == bytes.len() || self.is_last || !self.out.takes_more() {
                return Some(at);
            }
        }
    }

    /// Makes the answer to the first request; how long that was, 0 if it is not whole, nothing if it is not plain.
    fn answer_first(&mut self, bytes: &[u8]) -> Option<usize> {
        let head = match look(bytes) {
            Come::Part => return Some(0),
            Come::Other => return None,
            Come::Plain(head) => head,
        };
        if self.site.is_opening() {
            return None;
        }
        self.begun.store(true, Ordering::Relaxed);
        self.deadline = None;
        self.out.open();
        if self.answer_again(&head) {
            self.cost += ANSWER;
        } else {
            self.answer(&head, request(&head)?);
            self.cost += NEW_ANSWER;
        }
        Some(head.bytes.len())
    }

    /// Gives an answer that was given before; false if there is none.
    fn answer_again(&mut self, head: &Head<'_>) -> bool {
        let (Some(question), Some(state)) = (&head.question, State::of(&self.site)) else { return false };
        let out = &mut self.out.head;
        let Some((status, body)) = memo::recall(&self.site, state, question, Shape::Lines, out) else { return false };
        self.site.count(status);
        self.is_last |= head.closes;
        render::end(self.is_last, out);
        self.out.put(Some(body.into()), None);
        true
    }

    /// Answers a request.
    fn answer(&mut self, head: &Head<'_>, mut request: Request<()>) {
        let state = State::of(&self.site);
        let begun = self.site.log().map(|_| Instant::now());
        if self.site.looks_at_peers() {
            request.extensions_mut().insert(self.peer);
        }
        let response = told(&self.site, &request, begun);
        spare::keep(std::mem::take(request.headers_mut()));
        let (parts, body) = response.into_parts();
        let closes = parts.headers.get(CONNECTION).is_some_and(|value| value == "close");
        let out = &mut self.out.head;
        let before = out.len();
        render::head(parts.status, &parts.headers, body.len(), out);
        if let (Some(state), Some(question), Some(again), false) = (state, &head.question, body.again(), closes) {
            memo::remember(state, question, Shape::Lines, parts.status, &out[before..], again.clone());
        }
        spare::keep(parts.headers);
        self.is_last |= head.closes || closes;
        render::end(self.is_last, out);
        self.out.put(None, Some(body));
    }
}

/// The request of a head; none if it is not as good as it looks.
fn request(head: &Head<'_>) -> Option<Request<()>> {
    let bytes = Bytes::copy_from_slice(head.bytes);
    let mut fields = spare::fields();
    let mut is_good = true;
    each_field(&bytes, |name, value| {
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

    use super::outgoing::GATHERED;
    use super::*;
    use crate::Settings;

    /// A peer that has said all it says, and counts what is written to it.
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
        let mut plain = Plain::new(Site::new(Settings::default()), peer, Arc::default());
        let requests = ["HEAD / HTTP/1.1\r\nHost: x\r\n\r\n"; 1000].concat();
        // What is no plain request is left to hyper, behind all answers to what came before it.
        let other = "BREW / HTTP/1.1\r\nHost: x\r\n\r\n";
        let mut stream = Pipelined { said: &[requests.as_bytes(), other.as_bytes()].concat(), writes: Vec::new() };
        let turn = loop {
            // Pending when its turn is over.
            if let Poll::Ready(turn) = plain.poll(&mut stream, &mut Context::from_waker(Waker::noop())) {
                break turn;
            }
        };
        assert!(matches!(turn, Turn::Other(bytes) if bytes == other.as_bytes()));
        let all = stream.writes.concat();
        assert_eq!(all.split(|&byte| byte == b'\n').filter(|line| line.starts_with(b"HTTP/1.1 ")).count(), 1000);
        assert!(all.ends_with(b"\r\n\r\n"));
        let longest = stream.writes.iter().map(Vec::len).max().unwrap_or_default();
        assert!(longest < 2 * GATHERED, "{longest} bytes at a time");
        let most = all.len() / GATHERED * 2;
        assert!(stream.writes.len() < most, "{} writes of {} bytes", stream.writes.len(), all.len());
    }

    /// What a new connection is answered that says all this and no more, and how it goes on then.
    fn answered(site: &Arc<Site>, said: &str, finishes: bool) -> (String, Turn) {
        let peer = Peer { address: ([127, 0, 0, 1], 1).into(), is_encrypted: false };
        let mut plain = Plain::new(Arc::clone(site), peer, Arc::default());
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
        let site = Site::new(Settings::default());
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
                assert!(matches!(end, Turn::Ended), "{said} (turn {turn})");
            }
        }
        // What cannot be trusted ends it, too, and is not given to others.
        let bad = "GET /a HTTP/1.1\r\n\r\n";
        let (text, end) = answered(&site, &format!("{plain}{bad}{plain}"), false);
        assert!(text.starts_with(missing) && text.contains("HTTP/1.1 400 ") && text.matches(missing).count() == 1);
        assert!(text.contains("connection: close\r\n") && matches!(end, Turn::Ended));
        let (text, end) = answered(&site, plain, true);
        assert!(text.is_empty() && matches!(end, Turn::Ended), "nothing is read any more");
    }

    #[test]
    fn what_is_no_whole_plain_request_goes_on_with_every_byte_of_it() {
        let site = Site::new(Settings::default());
        let plain = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        for (before, rest) in [
            (0, "GET /a HTTP/1.1\r\nHost"),
            (3, "G"),
            (0, "POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"),
            (3, "BREW / HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\n"),
        ] {
            let (text, end) = answered(&site, &format!("{}{rest}", plain.repeat(before)), false);
            assert_eq!(text.matches("HTTP/1.1 503 ").count(), before, "{rest}");
            assert!(matches!(end, Turn::Other(bytes) if bytes == rest.as_bytes()), "{rest}");
        }
        assert!(matches!(answered(&site, "", false).1, Turn::Ended));
    }
}
