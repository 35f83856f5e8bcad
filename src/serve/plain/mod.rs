//! Plain requests of HTTP/1.1 ([`head`]), answered without more machinery than they need: most of what a site is asked. The
//! first request on a connection that is not plain goes to hyper with every byte of it, and so does all that comes after it.
//!
//! A turn: read what there is into a buffer of the thread → look at each head → an answer that was given before to the same
//! question ([`super::memo`]), or what `handler` makes of the request → its head ([`render`]) and its body in one write. Only what
//! has to wait is kept by the connection: a part of a head, what the peer has not taken yet.

mod head;
mod render;

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http::header::CONNECTION;
use http::{HeaderName, HeaderValue, Method, Request, Uri};
use http_body::Body as _;
use tokio::io::{AsyncRead, ReadBuf};

use super::Site;
use super::answer::told;
use super::connection::{HEAD_TIMEOUT, Waits};
use super::memo::{self, Shape, State};
use super::peer::Peer;
use super::spare;
use super::stream::SendFile;
use super::tally::{Piece, Told};
use super::turn::{ANSWER, NEW_ANSWER, TurnBudget, end_turn};

pub(super) use head::is_plain_host;
use head::{Come, Head, each_field, look};

/// What is read at a time.
const READ: usize = head::LONGEST;
/// Bodies up to this size are copied behind their heads: cheaper than telling the kernel of two places.
const COPIED: usize = 2048;

thread_local! {
    /// What has just been read.
    static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    /// Heads on their way out; a connection that does not have to wait gives its buffer back.
    static OUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// How a connection goes on.
pub(super) enum Turn {
    /// Not at all.
    Ended,
    /// With hyper, from these bytes on.
    Other(Vec<u8>),
}

/// A connection on which only plain requests have come so far.
pub(super) struct Plain {
    site: Arc<Site>,
    peer: Peer,
    /// Whether a request has come.
    begun: Arc<AtomicBool>,
    /// What was read and not answered.
    rest: Vec<u8>,
    /// Whether that has been looked at, and is but a part.
    is_part: bool,
    out: Out,
    /// Nothing more is answered after what is on its way.
    is_last: bool,
    /// Work since the last look at the turn's time; see [`TurnBudget::spend`].
    cost: usize,
    /// By when a head must be whole; none while something is on its way out.
    deadline: Option<Instant>,
    /// What it waited for when it last did not go on.
    waits: Waits,
}

/// What the peer has still to take.
#[derive(Default)]
struct Out {
    head: Vec<u8>,
    at: usize,
    piece: Option<Piece>,
    body: Option<Told>,
}

impl Plain {
    /// A new connection; `begun` is told that a request has come.
    pub(super) fn new(site: Arc<Site>, peer: Peer, begun: Arc<AtomicBool>) -> Plain {
        Plain {
            site,
            peer,
            begun,
            rest: Vec::new(),
            is_part: false,
            out: Out::default(),
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
    pub(super) fn poll<S: AsyncRead + SendFile + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<Turn> {
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
                let rest = std::mem::take(&mut self.rest);
                self.answer_all(&rest)
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
            Poll::Ready(Ok(())) if self.rest.is_empty() => Poll::Ready(self.answer_all(&buffer[..filled])),
            Poll::Ready(Ok(())) => {
                let mut rest = std::mem::take(&mut self.rest);
                rest.extend_from_slice(&buffer[..filled]);
                Poll::Ready(self.answer_all(&rest))
            }
        };
        BUFFER.set(buffer);
        turn
    }

    /// The peer says nothing more. What is half a head is hyper's to refuse.
    fn at_end(&mut self) -> Turn {
        if self.rest.is_empty() { Turn::Ended } else { Turn::Other(std::mem::take(&mut self.rest)) }
    }

    /// Answers the requests at the beginning of `bytes`, as long as their answers leave at once, and keeps what is behind.
    fn answer_all(&mut self, bytes: &[u8]) -> Option<Turn> {
        let Some(len) = self.answer_first(bytes) else { return Some(Turn::Other(bytes.to_vec())) };
        self.is_part = len == 0;
        if len < bytes.len() {
            self.rest = bytes[len..].to_vec();
        }
        None
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
        self.is_last |= head.closes;
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
        let mut out = OUT.take();
        out.clear();
        let Some((status, body)) = memo::recall(&self.site, state, question, Shape::Lines, &mut out) else {
            OUT.set(out);
            return false;
        };
        self.site.count(status);
        render::end(self.is_last, &mut out);
        self.out.begin(out, Some(body.into()), None);
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
        let mut out = OUT.take();
        out.clear();
        render::head(parts.status, &parts.headers, body.len(), &mut out);
        if let (Some(state), Some(question), Some(again), false) = (state, &head.question, body.again(), closes) {
            memo::remember(state, question, Shape::Lines, parts.status, &out, again.clone());
        }
        spare::keep(parts.headers);
        self.is_last |= closes;
        render::end(self.is_last, &mut out);
        self.out.begin(out, None, Some(body));
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

/// Sends a head and what lies in a file.
fn send_lying<S: SendFile>(
    stream: Pin<&mut S>,
    context: &mut Context<'_>,
    head: &[u8],
    piece: &Piece,
) -> Poll<io::Result<usize>> {
    match piece.lies() {
        Some(lies) => stream.poll_send_file(context, head, lies.file(), lies.at, piece.remaining()),
        None => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
    }
}

/// Whether the system does not send from files in this way, or does not let us: see [`SendFile`].
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
}

impl Out {
    fn begin(&mut self, head: Vec<u8>, piece: Option<Piece>, body: Option<Told>) {
        *self = Out { head, at: 0, piece, body };
    }

    /// Sends all of it.
    fn send<S: SendFile + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        budget: &mut TurnBudget,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.piece.is_none()
                && let Some(body) = &mut self.body
            {
                match ready!(Pin::new(&mut *body).poll_frame(context)) {
                    Some(Ok(frame)) => self.piece = frame.into_data().ok(),
                    Some(Err(never)) => match never {},
                    // What was promised does not come: the peer has to see that something is missing.
                    None if body.len() > 0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    None => self.body = None,
                }
            }
            if let Some(piece) = &mut self.piece
                && self.at < self.head.len()
                && self.head.len() <= READ
                && piece.remaining() <= COPIED
            {
                while piece.has_remaining() {
                    let chunk = piece.chunk();
                    self.head.extend_from_slice(chunk);
                    let len = chunk.len();
                    piece.advance(len);
                }
                self.piece = None;
                // So that the end of the body is seen before the head goes out.
                continue;
            }
            if self.at == self.head.len() && self.piece.is_none() && self.body.is_none() {
                if self.at > 0 {
                    // What is encrypted may have been taken and not been sent.
                    ready!(Pin::new(&mut *stream).poll_flush(context))?;
                }
                self.give_back();
                return Poll::Ready(Ok(()));
            }
            let written = ready!(self.write(stream, context))?;
            // A reader that takes as fast as we write would keep the thread to itself.
            if budget.spend(written) && !self.is_sent() {
                end_turn(context);
                return Poll::Pending;
            }
        }
    }

    /// Whether nothing is left to be written.
    fn is_sent(&self) -> bool {
        self.at == self.head.len() && self.piece.is_none() && self.body.as_ref().is_none_or(|body| body.len() == 0)
    }

    /// Writes once; how many bytes.
    fn write<S: SendFile + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut stream = Pin::new(stream);
        let head = &self.head[self.at..];
        let n = match &mut self.piece {
            None => ready!(stream.poll_write(context, head))?,
            Some(piece) if stream.sends_files() && piece.lies().is_some() => {
                match ready!(send_lying(stream.as_mut(), context, head, piece)) {
                    Err(error) if is_refused(&error) => {
                        piece.forget_where();
                        return Poll::Ready(Ok(0));
                    }
                    sent => sent?,
                }
            }
            Some(piece) => {
                let mut slices = [IoSlice::new(&[]); 4];
                let mut count = 0;
                if !head.is_empty() {
                    slices[0] = IoSlice::new(head);
                    count = 1;
                }
                count += piece.chunks_vectored(&mut slices[count..]);
                ready!(stream.poll_write_vectored(context, &slices[..count]))?
            }
        };
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let of_head = n.min(head.len());
        self.at += of_head;
        if let Some(piece) = &mut self.piece {
            piece.advance(n - of_head);
            if !piece.has_remaining() {
                self.piece = None;
            }
        }
        Poll::Ready(Ok(n))
    }

    fn give_back(&mut self) {
        let head = std::mem::take(&mut self.head);
        self.at = 0;
        if head.capacity() > 0 {
            OUT.set(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::BorrowedFd;
    use std::os::unix::fs::FileExt;
    use std::task::Waker;

    use tokio::io::AsyncWrite;

    use super::*;
    use crate::serve::body::Chunk;
    use crate::site::room::Room;

    /// Sends so much from a file, and then refuses to.
    struct Moody {
        willing: usize,
        taken: Vec<u8>,
    }

    impl AsyncWrite for Moody {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let n = bytes.len().min(70_000);
            self.taken.extend_from_slice(&bytes[..n]);
            Poll::Ready(Ok(n))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl SendFile for Moody {
        fn sends_files(&self) -> bool {
            true
        }

        fn poll_send_file(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            head: &[u8],
            file: BorrowedFd<'_>,
            at: u64,
            len: usize,
        ) -> Poll<io::Result<usize>> {
            if self.willing == 0 {
                return Poll::Ready(Err(io::ErrorKind::InvalidInput.into()));
            }
            let n = len.min(self.willing);
            self.willing -= n;
            self.taken.extend_from_slice(head);
            let mut bytes = vec![0; n];
            File::from(file.try_clone_to_owned()?).read_exact_at(&mut bytes, at)?;
            self.taken.extend_from_slice(&bytes);
            Poll::Ready(Ok(head.len() + n))
        }
    }

    #[test]
    fn what_the_kernel_does_not_send_from_a_file_is_written_as_all_else_is() {
        let content: Vec<u8> = (0..300_000u32).map(|n| (n >> 6) as u8).collect();
        let room = Room::new(1 << 20).unwrap();
        for willing in [0, 1, 100_000, 300_000] {
            let (bytes, lies) = room.put(&content).unwrap();
            let mut out = Out::default();
            out.begin(b"head\r\n\r\n".to_vec(), Some(Chunk::lying(bytes, Some(lies)).into()), None);
            let mut stream = Moody { willing, taken: Vec::new() };
            let mut budget = TurnBudget::new();
            let mut send = || out.send(&mut stream, &mut Context::from_waker(Waker::noop()), &mut budget);
            let sent = loop {
                // Pending when its turn is over.
                if let Poll::Ready(sent) = send() {
                    break sent;
                }
            };
            assert!(sent.is_ok());
            assert!(stream.taken == [b"head\r\n\r\n", &content[..]].concat(), "after {willing} bytes");
        }
    }
}
