//! What a connection has still to give: heads and short bodies in a buffer, and what comes behind them. Short answers are
//! gathered and leave in one write.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::Body as _;

use super::super::stream::SendFile;
use super::super::tally::{Piece, Told};
use super::super::turn::{TurnBudget, end_turn};

/// Bodies up to this size are copied behind their heads: cheaper than telling the kernel of two places.
const COPIED: usize = 2048;
/// Answers to requests that came together are written together, until there are so many bytes of them. A client that
/// pipelines costs a call of the kernel for about twelve short answers so, and a connection holds little more than before.
pub(super) const GATHERED: usize = 4096;

thread_local! {
    /// Heads on their way out; a connection that does not have to wait gives its buffer back.
    static OUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// What the peer has still to take.
#[derive(Default)]
pub(super) struct Outgoing {
    /// Heads that are written, with short bodies; whoever puts an answer here begins with [`Outgoing::open`].
    pub(super) head: Vec<u8>,
    /// How much of that the peer has taken.
    at: usize,
    piece: Option<Piece>,
    body: Option<Told>,
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

impl Outgoing {
    /// Has a buffer for a head.
    pub(super) fn open(&mut self) {
        if self.head.capacity() == 0 {
            self.head = OUT.take();
            self.head.clear();
        }
    }

    /// Puts a body behind the head that was put there.
    pub(super) fn put(&mut self, piece: Option<Piece>, body: Option<Told>) {
        (self.piece, self.body) = (piece, body);
        self.join();
    }

    /// Whether another answer may be put behind what is there.
    pub(super) fn takes_more(&self) -> bool {
        self.piece.is_none() && self.body.is_none() && self.head.len() < GATHERED
    }

    /// Copies a short piece of a body behind its head; whether there was one.
    fn join(&mut self) -> bool {
        let is_short = |piece: &mut Piece| piece.remaining() <= COPIED;
        if self.at == self.head.len() || self.head.len() > super::READ {
            return false;
        }
        let Some(mut piece) = self.piece.take_if(is_short) else { return false };
        while piece.has_remaining() {
            let chunk = piece.chunk();
            self.head.extend_from_slice(chunk);
            let len = chunk.len();
            piece.advance(len);
        }
        true
    }

    /// Sends all of it.
    pub(super) fn send<S: SendFile + Unpin>(
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
            if self.join() {
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

    use bytes::Bytes;
    use tokio::io::AsyncWrite;

    use super::*;
    use docwharf_base::codec::deflate::Deflater;
    use crate::body::{Body, Chunk, Wanted};
    use docwharf_site::room::Room;

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
            let mut out = Outgoing::default();
            out.open();
            out.head.extend_from_slice(b"head\r\n\r\n");
            out.put(Some(Chunk::lying(bytes, Some(lies)).into()), None);
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

    fn sent(out: &mut Outgoing, willing: usize) -> (io::Result<()>, Vec<u8>) {
        let mut stream = Moody { willing, taken: Vec::new() };
        let mut budget = TurnBudget::new();
        loop {
            if let Poll::Ready(sent) = out.send(&mut stream, &mut Context::from_waker(Waker::noop()), &mut budget) {
                return (sent, stream.taken);
            }
        }
    }

    #[test]
    fn short_answers_are_gathered_and_long_ones_are_not_copied() {
        for (head, body, takes_more, joined) in [
            (8, 0, true, 0),
            (8, COPIED, true, COPIED),
            (8, COPIED + 1, false, 0),
            (GATHERED - 1, 0, true, 0),
            (GATHERED, 0, false, 0),
            (GATHERED - COPIED - 1, COPIED, true, COPIED),
            (GATHERED - COPIED, COPIED, false, COPIED),
        ] {
            let mut out = Outgoing::default();
            out.open();
            out.head.resize(head, b'h');
            out.put(Some(Chunk::from(Bytes::from(vec![b'b'; body])).into()), None);
            assert_eq!((out.takes_more(), out.head.len()), (takes_more, head + joined), "{head} and {body}");
            let expected = [vec![b'h'; head], vec![b'b'; body]].concat();
            assert!(matches!(sent(&mut out, 0), (Ok(()), all) if all == expected), "{head} and {body}");
            assert!(out.takes_more() && out.head.is_empty(), "nothing is left");
        }
    }

    #[test]
    fn a_body_that_ends_before_its_time_is_no_good_end() {
        let content = vec![b'x'; 100_000];
        let mut coded = Vec::new();
        Deflater::new(1).all(&content, &mut coded);
        for (there, is_good) in [(coded.len(), true), (coded.len() / 2, false), (0, false)] {
            let body = Body::inflating(Bytes::copy_from_slice(&coded[..there]), [Wanted::Made(0, 100_000)]);
            let mut out = Outgoing::default();
            out.open();
            out.head.extend_from_slice(b"head\r\n\r\n");
            out.put(None, Some(body.into()));
            assert!(!out.takes_more(), "its body comes first");
            let (end, all) = sent(&mut out, 0);
            assert_eq!(
                end.map_err(|error| error.kind()),
                if is_good { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof) }
            );
            assert_eq!(all.len() == 8 + content.len(), is_good, "{there} bytes");
        }
    }
}
