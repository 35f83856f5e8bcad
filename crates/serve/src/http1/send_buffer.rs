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

/// The largest body in bytes that is copied after its head: cheaper than passing two buffers to the kernel.
const MAX_COPIED_BODY_BYTES: usize = 2048;
/// The size in bytes up to which pipelined responses are gathered into one write. A pipelining client then costs one
/// system call for about twelve short responses, and a connection needs little more memory.
pub(super) const GATHER_BYTES: usize = 4096;
/// The size of the buffer in bytes above which no more of a body is copied into it. It bounds the memory for a body of
/// many short chunks.
const MAX_BUFFER_BYTES: usize = 16 * 1024;

/// The largest number of slices in one write: the heads and the parts of a chunk.
const MAX_SLICES: usize = 6;

thread_local! {
    /// A free buffer for heads. A connection that does not have to wait returns its buffer to the thread.
    static FREE_BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The bytes that the stream has not accepted yet.
#[derive(Default)]
pub(super) struct Http1SendBuffer {
    /// Response heads with short bodies. Call [`Http1SendBuffer::obtain_buffer`] before a response is added.
    pub(super) buffer: Vec<u8>,
    /// The number of bytes of `buffer` that the stream has accepted.
    written: usize,
    /// The part of the body that is sent next.
    chunk: Option<LoggedChunk>,
    body: Option<LoggedBody>,
}

/// Sends a head and the bytes of a chunk that are in a memfd.
fn send_from_memfd<S: SendFile>(
    stream: Pin<&mut S>,
    context: &mut Context<'_>,
    head: &[u8],
    chunk: &LoggedChunk,
) -> Poll<io::Result<usize>> {
    match chunk.memfd_range() {
        Some((range, len)) => stream.poll_send_file(context, head, range.memfd(), range.offset, len),
        None => Poll::Ready(Err(io::ErrorKind::Unsupported.into())),
    }
}

/// Returns whether the kernel cannot send this file directly; see [`SendFile`].
fn is_unsupported(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied)
}

impl Http1SendBuffer {
    /// Obtains a buffer for heads if there is none.
    pub(super) fn obtain_buffer(&mut self) {
        if self.buffer.capacity() == 0 {
            self.buffer = FREE_BUFFER.take();
            self.buffer.clear();
        }
    }

    /// Adds the body of the head that was added last.
    pub(super) fn set_body(&mut self, chunk: Option<LoggedChunk>, body: Option<LoggedBody>) {
        (self.chunk, self.body) = (chunk, body);
        self.copy_short_body();
    }

    /// Returns whether another response may be added.
    pub(super) fn can_add_response(&self) -> bool {
        self.chunk.is_none() && self.body.is_none() && self.buffer.len() < GATHER_BYTES
    }

    /// Copies a short chunk of the body after its head; returns whether it was copied.
    fn copy_short_body(&mut self) -> bool {
        let is_short = |chunk: &mut LoggedChunk| chunk.remaining() <= MAX_COPIED_BODY_BYTES;
        if self.written == self.buffer.len() || self.buffer.len() > MAX_BUFFER_BYTES {
            return false;
        }
        let Some(mut chunk) = self.chunk.take_if(is_short) else { return false };
        while chunk.has_remaining() {
            let bytes = chunk.chunk();
            self.buffer.extend_from_slice(bytes);
            let len = bytes.len();
            chunk.advance(len);
        }
        true
    }

    /// Sends everything; pending when the stream accepts no more bytes or the turn is over.
    pub(super) fn send<S: SendFile + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
        budget: &mut TurnBudget,
    ) -> Poll<io::Result<()>> {
        loop {
            if self.chunk.is_none()
                && let Some(body) = &mut self.body
            {
                match ready!(Pin::new(&mut *body).poll_frame(context)) {
                    Some(Ok(frame)) => self.chunk = frame.into_data().ok(),
                    Some(Err(never)) => match never {},
                    // The body is shorter than its Content-Length. The connection must end, so that the peer notices.
                    None if !body.is_empty() => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                    None => self.body = None,
                }
            }
            if self.copy_short_body() {
                // Another frame may end the body before the head is sent.
                continue;
            }
            if self.written == self.buffer.len() && self.chunk.is_none() && self.body.is_none() {
                if self.written > 0 {
                    // A TLS stream may have accepted bytes without sending them.
                    ready!(Pin::new(&mut *stream).poll_flush(context))?;
                }
                self.return_buffer();
                return Poll::Ready(Ok(()));
            }
            let len = ready!(self.write(stream, context))?;
            // A client that reads as fast as this server writes would occupy the thread.
            if budget.spend(len) && !self.is_sent() {
                end_turn(context);
                return Poll::Pending;
            }
        }
    }

    /// Returns whether everything has been written.
    fn is_sent(&self) -> bool {
        self.written == self.buffer.len() && self.chunk.is_none() && self.body.as_ref().is_none_or(LoggedBody::is_empty)
    }

    /// Writes once and returns the number of bytes written.
    fn write<S: SendFile + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut stream = Pin::new(stream);
        let unwritten = &self.buffer[self.written..];
        let n = match &mut self.chunk {
            None => ready!(stream.poll_write(context, unwritten))?,
            Some(chunk) if stream.can_send_files() && chunk.memfd_range().is_some() => {
                match ready!(send_from_memfd(stream.as_mut(), context, unwritten, chunk)) {
                    Err(error) if is_unsupported(&error) => {
                        chunk.clear_memfd_range();
                        return Poll::Ready(Ok(0));
                    }
                    sent => sent?,
                }
            }
            Some(chunk) => {
                let mut slices = [IoSlice::new(&[]); MAX_SLICES];
                let mut count = 0;
                if !unwritten.is_empty() {
                    slices[0] = IoSlice::new(unwritten);
                    count = 1;
                }
                count += chunk.chunks_vectored(&mut slices[count..]);
                ready!(stream.poll_write_vectored(context, &slices[..count]))?
            }
        };
        if n == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        let from_buffer = n.min(unwritten.len());
        self.written += from_buffer;
        if let Some(chunk) = &mut self.chunk {
            chunk.advance(n - from_buffer);
            if !chunk.has_remaining() {
                self.chunk = None;
            }
        }
        Poll::Ready(Ok(n))
    }

    fn return_buffer(&mut self) {
        let buffer = std::mem::take(&mut self.buffer);
        self.written = 0;
        if buffer.capacity() > 0 {
            FREE_BUFFER.set(buffer);
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

    /// A stream that sends at most `file_bytes` bytes from a file, and then fails to with `refusal`.
    struct PartlyFileStream {
        file_bytes: usize,
        refusal: io::ErrorKind,
        received: Vec<u8>,
        /// Whether nothing was written since the last flush.
        is_flushed: bool,
    }

    impl AsyncWrite for PartlyFileStream {
        fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            let n = bytes.len().min(70_000);
            self.received.extend_from_slice(&bytes[..n]);
            self.is_flushed = false;
            Poll::Ready(Ok(n))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_flushed = true;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    impl SendFile for PartlyFileStream {
        fn can_send_files(&self) -> bool {
            true
        }

        fn poll_send_file(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            head: &[u8],
            file: BorrowedFd<'_>,
            offset: u64,
            len: usize,
        ) -> Poll<io::Result<usize>> {
            if self.file_bytes == 0 {
                return Poll::Ready(Err(self.refusal.into()));
            }
            let n = len.min(self.file_bytes);
            self.file_bytes -= n;
            self.is_flushed = false;
            self.received.extend_from_slice(head);
            let mut bytes = vec![0; n];
            File::from(file.try_clone_to_owned()?).read_exact_at(&mut bytes, offset)?;
            self.received.extend_from_slice(&bytes);
            Poll::Ready(Ok(head.len() + n))
        }
    }

    #[test]
    fn bytes_that_sendfile_refuses_are_written_from_memory() {
        let content: Vec<u8> = (0..300_000u32).map(|n| (n >> 6) as u8).collect();
        let arena = MemfdArena::new(1 << 20).unwrap();
        let send = |file_bytes: usize, refusal: io::ErrorKind| {
            let (bytes, range) = arena.store(&content).unwrap();
            let mut buffer = Http1SendBuffer::default();
            buffer.obtain_buffer();
            buffer.buffer.extend_from_slice(b"head\r\n\r\n");
            buffer.set_body(Some(BodyChunk::with_memfd_range(bytes, Some(range)).into()), None);
            send_with(&mut buffer, PartlyFileStream { file_bytes, refusal, received: Vec::new(), is_flushed: true })
        };
        let refusals = [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];
        for (file_bytes, refusal) in
            [0, 1, 100_000, 300_000].into_iter().flat_map(|bytes| refusals.map(|refusal| (bytes, refusal)))
        {
            let (sent, received) = send(file_bytes, refusal);
            assert!(sent.is_ok(), "{refusal} after {file_bytes} bytes");
            assert!(received == [b"head\r\n\r\n", &content[..]].concat(), "{refusal} after {file_bytes} bytes");
        }
        // Any other error is one of the connection.
        let (sent, received) = send(100_000, io::ErrorKind::BrokenPipe);
        assert_eq!(sent.map_err(|error| error.kind()), Err(io::ErrorKind::BrokenPipe));
        assert_eq!(received.len(), 8 + 100_000);
    }

    #[test]
    fn a_tag_behind_bytes_in_a_memfd_is_sent_after_the_last_of_them() {
        let content: Vec<u8> = (0..300_000u32).map(|n| (n >> 6) as u8).collect();
        let arena = MemfdArena::new(1 << 20).unwrap();
        for file_bytes in [0, 1, 299_999, 300_000, 400_000] {
            let (bytes, range) = arena.store(&content).unwrap();
            let chunk = BodyChunk::with_memfd_range(bytes, Some(range)).followed_by(b"<tag>");
            let mut buffer = Http1SendBuffer::default();
            buffer.obtain_buffer();
            buffer.buffer.extend_from_slice(b"head\r\n\r\n");
            buffer.set_body(Some(chunk.into()), None);
            let (sent, received) = send_all(&mut buffer, file_bytes);
            assert!(sent.is_ok(), "after {file_bytes} bytes");
            assert!(received == [b"head\r\n\r\n", &content[..], b"<tag>"].concat(), "after {file_bytes} bytes");
        }
    }

    /// Sends everything in as many turns as needed. Returns the result, and the bytes that the stream has received.
    fn send_with(buffer: &mut Http1SendBuffer, mut stream: PartlyFileStream) -> (io::Result<()>, Vec<u8>) {
        let mut budget = TurnBudget::new();
        loop {
            // Pending at the end of a turn.
            if let Poll::Ready(sent) = buffer.send(&mut stream, &mut Context::from_waker(Waker::noop()), &mut budget) {
                assert!(stream.is_flushed || sent.is_err(), "a TLS stream keeps what is not flushed");
                return (sent, stream.received);
            }
        }
    }

    fn send_all(buffer: &mut Http1SendBuffer, file_bytes: usize) -> (io::Result<()>, Vec<u8>) {
        let refusal = io::ErrorKind::InvalidInput;
        send_with(buffer, PartlyFileStream { file_bytes, refusal, received: Vec::new(), is_flushed: true })
    }

    #[test]
    fn short_responses_are_gathered_in_one_buffer_and_long_bodies_are_not_copied() {
        for (head, body, can_add_response, copied) in [
            (8, 0, true, 0),
            (8, MAX_COPIED_BODY_BYTES, true, MAX_COPIED_BODY_BYTES),
            (8, MAX_COPIED_BODY_BYTES + 1, false, 0),
            (GATHER_BYTES - 1, 0, true, 0),
            (GATHER_BYTES, 0, false, 0),
            (GATHER_BYTES - MAX_COPIED_BODY_BYTES - 1, MAX_COPIED_BODY_BYTES, true, MAX_COPIED_BODY_BYTES),
            (GATHER_BYTES - MAX_COPIED_BODY_BYTES, MAX_COPIED_BODY_BYTES, false, MAX_COPIED_BODY_BYTES),
        ] {
            let mut buffer = Http1SendBuffer::default();
            buffer.obtain_buffer();
            buffer.buffer.resize(head, b'h');
            buffer.set_body(Some(BodyChunk::from(Bytes::from(vec![b'b'; body])).into()), None);
            assert_eq!(
                (buffer.can_add_response(), buffer.buffer.len()),
                (can_add_response, head + copied),
                "{head} and {body}"
            );
            let expected = [vec![b'h'; head], vec![b'b'; body]].concat();
            assert!(matches!(send_all(&mut buffer, 0), (Ok(()), all) if all == expected), "{head} and {body}");
            assert!(buffer.can_add_response() && buffer.buffer.is_empty(), "everything was sent");
        }
    }

    #[test]
    fn a_body_that_ends_early_fails_the_connection_with_unexpected_eof() {
        let content = vec![b'x'; 100_000];
        let mut coded = Vec::new();
        Deflater::new(1).encode_all(&content, &mut coded);
        for (available, is_complete) in [(coded.len(), true), (coded.len() / 2, false), (0, false)] {
            let body = ResponseBody::inflating(
                Bytes::copy_from_slice(&coded[..available]),
                [BodySegment::Inflated(0, 100_000)],
            );
            let mut buffer = Http1SendBuffer::default();
            buffer.obtain_buffer();
            buffer.buffer.extend_from_slice(b"head\r\n\r\n");
            buffer.set_body(None, Some(body.into()));
            assert!(!buffer.can_add_response(), "its body has to be sent first");
            let (end, all) = send_all(&mut buffer, 0);
            assert_eq!(
                end.map_err(|error| error.kind()),
                if is_complete { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof) }
            );
            assert_eq!(all.len() == 8 + content.len(), is_complete, "{available} bytes");
        }
    }
}
