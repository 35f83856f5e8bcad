//! The output of an HTTP/1.1 connection: a buffer of heads and short bodies, and the body that follows it. Short
//! responses are gathered and sent in one write.

use std::cell::Cell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http_body::Body as _;

use super::super::lazy_stream::SendFile;
use super::super::logged_body::{LoggedBody, LoggedChunk};
use super::super::turn::{TurnBudget, end_turn};

/// The largest body in bytes that is copied behind its head: cheaper than passing two buffers to the kernel.
const MAX_COPIED_BODY_BYTES: usize = 2048;
/// The size in bytes up to which pipelined responses are gathered into one write. A pipelining client then costs one
/// system call for about twelve short responses, and a connection needs little more memory.
pub(super) const GATHER_BYTES: usize = 4096;

thread_local! {
    /// The buffer of heads. A connection that does not have to wait returns it to the thread.
    static OUT: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bytes that the peer has not accepted yet.
#[derive(Default)]
pub(super) struct Http1SendBuffer {
    /// Response heads with short bodies. Call [`Http1SendBuffer::take_buffer`] before a response is added.
    pub(super) head: Vec<u8>,
    /// The number of bytes of `head` that the peer has accepted.
    at: usize,
    piece: Option<LoggedChunk>,
    body: Option<LoggedBody>,
}

/// Sends a head and a piece that lies in a file.
fn send_from_file<S: SendFile>(
    stream: Pin<&mut S>,
    context: &mut Context<'_>,
    head: &[u8],
    piece: &LoggedChunk,
) -> Poll<io::Result<usize>> {
    match piece.lies() {
        Some(lies) => stream.poll_send_file(context, head, lies.file(), lies.offset, piece.remaining()),
        None => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
    }
}

/// Returns whether the kernel cannot send this file directly; see [`SendFile`].
fn is_refused(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
}

impl Http1SendBuffer {
    /// Takes a buffer for heads if there is none.
    pub(super) fn take_buffer(&mut self) {
        if self.head.capacity() == 0 {
            self.head = OUT.take();
            self.head.clear();
        }
    }

    /// Adds the body of the head that was added last.
    pub(super) fn set_body(&mut self, piece: Option<LoggedChunk>, body: Option<LoggedBody>) {
        (self.piece, self.body) = (piece, body);
        self.copy_short_body();
    }

    /// Returns whether another response may be added.
    pub(super) fn takes_more(&self) -> bool {
        self.piece.is_none() && self.body.is_none() && self.head.len() < GATHER_BYTES
    }

    /// Copies a short piece of the body behind its head; returns whether there was one.
    fn copy_short_body(&mut self) -> bool {
        let is_short = |piece: &mut LoggedChunk| piece.remaining() <= MAX_COPIED_BODY_BYTES;
        if self.at == self.head.len() || self.head.len() > super::READ_BUFFER_BYTES {
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

    /// Sends everything; pending when the stream cannot take more or the turn is over.
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
                    // The body is shorter than its Content-Length. The connection must end, so that the peer notices.
                    None if body.len() > 0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    None => self.body = None,
                }
            }
            if self.copy_short_body() {
                // Looks for the end of the body before the head is sent.
                continue;
            }
            if self.at == self.head.len() && self.piece.is_none() && self.body.is_none() {
                if self.at > 0 {
                    // A TLS stream may have accepted bytes without sending them.
                    ready!(Pin::new(&mut *stream).poll_flush(context))?;
                }
                self.return_buffer();
                return Poll::Ready(Ok(()));
            }
            let written = ready!(self.write(stream, context))?;
            // A client that reads as fast as we write would occupy the thread.
            if budget.spend(written) && !self.is_sent() {
                end_turn(context);
                return Poll::Pending;
            }
        }
    }

    /// Returns whether everything has been written.
    fn is_sent(&self) -> bool {
        self.at == self.head.len() && self.piece.is_none() && self.body.as_ref().is_none_or(|body| body.len() == 0)
    }

    /// Writes once and returns the number of bytes written.
    fn write<S: SendFile + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut stream = Pin::new(stream);
        let head = &self.head[self.at..];
        let n = match &mut self.piece {
            None => ready!(stream.poll_write(context, head))?,
            Some(piece) if stream.sends_files() && piece.lies().is_some() => {
                match ready!(send_from_file(stream.as_mut(), context, head, piece)) {
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

    fn return_buffer(&mut self) {
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
    use crate::body::ResponseBody;
    use crate::body_chunk::BodyChunk;
    use crate::inflating_body::BodySegment;
    use docwharf_base::codec::deflate::Deflater;
    use docwharf_site::memfd_arena::MemfdArena;

    /// A stream that sends `willing` bytes from a file and then refuses to.
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
        let room = MemfdArena::new(1 << 20).unwrap();
        for willing in [0, 1, 100_000, 300_000] {
            let (bytes, lies) = room.store(&content).unwrap();
            let mut out = Http1SendBuffer::default();
            out.take_buffer();
            out.head.extend_from_slice(b"head\r\n\r\n");
            out.set_body(Some(BodyChunk::with_file_location(bytes, Some(lies)).into()), None);
            let mut stream = Moody { willing, taken: Vec::new() };
            let mut budget = TurnBudget::new();
            let mut send = || out.send(&mut stream, &mut Context::from_waker(Waker::noop()), &mut budget);
            let sent = loop {
                // Pending at the end of a turn.
                if let Poll::Ready(sent) = send() {
                    break sent;
                }
            };
            assert!(sent.is_ok());
            assert!(stream.taken == [b"head\r\n\r\n", &content[..]].concat(), "after {willing} bytes");
        }
    }

    fn sent(out: &mut Http1SendBuffer, willing: usize) -> (io::Result<()>, Vec<u8>) {
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
            (8, MAX_COPIED_BODY_BYTES, true, MAX_COPIED_BODY_BYTES),
            (8, MAX_COPIED_BODY_BYTES + 1, false, 0),
            (GATHER_BYTES - 1, 0, true, 0),
            (GATHER_BYTES, 0, false, 0),
            (GATHER_BYTES - MAX_COPIED_BODY_BYTES - 1, MAX_COPIED_BODY_BYTES, true, MAX_COPIED_BODY_BYTES),
            (GATHER_BYTES - MAX_COPIED_BODY_BYTES, MAX_COPIED_BODY_BYTES, false, MAX_COPIED_BODY_BYTES),
        ] {
            let mut out = Http1SendBuffer::default();
            out.take_buffer();
            out.head.resize(head, b'h');
            out.set_body(Some(BodyChunk::from(Bytes::from(vec![b'b'; body])).into()), None);
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
        Deflater::new(1).encode_all(&content, &mut coded);
        for (there, is_good) in [(coded.len(), true), (coded.len() / 2, false), (0, false)] {
            let body =
                ResponseBody::inflating(Bytes::copy_from_slice(&coded[..there]), [BodySegment::Inflated(0, 100_000)]);
            let mut out = Http1SendBuffer::default();
            out.take_buffer();
            out.head.extend_from_slice(b"head\r\n\r\n");
            out.set_body(None, Some(body.into()));
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
