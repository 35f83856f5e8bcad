//! The stream that hyper reads and writes: it replays the bytes that were read to detect the protocol.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// A stream whose first bytes may have been read already; reads return those first.
#[derive(Debug)]
pub(super) struct ReplayStream<S> {
    io: TokioIo<S>,
    initial_bytes: Vec<u8>,
    replayed: usize,
}

impl<S> ReplayStream<S> {
    /// Wraps `stream`; `initial_bytes` are the bytes that were already read from it.
    pub(super) fn new(stream: S, initial_bytes: Vec<u8>) -> ReplayStream<S> {
        ReplayStream { io: TokioIo::new(stream), initial_bytes, replayed: 0 }
    }
}

impl<S: AsyncRead + Unpin> Read for ReplayStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let initial_bytes = &self.initial_bytes[self.replayed..];
        if initial_bytes.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let n = initial_bytes.len().min(buffer.remaining());
        buffer.put_slice(&initial_bytes[..n]);
        self.replayed += n;
        if self.replayed == self.initial_bytes.len() {
            (self.initial_bytes, self.replayed) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Write for ReplayStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        Write::is_write_vectored(&self.io)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use hyper::rt::ReadBuf;

    use super::*;

    #[test]
    fn a_replay_stream_yields_its_initial_bytes_first_and_only_once() {
        for initial_bytes in ["", "G", "GET / HTTP/1.1"] {
            for buffer_len in [1, 3, 100] {
                let mut stream = ReplayStream::new(&b"\r\n\r\n"[..], initial_bytes.as_bytes().to_vec());
                let mut received = Vec::new();
                loop {
                    let mut bytes = vec![0; buffer_len];
                    let mut buffer = ReadBuf::new(&mut bytes);
                    let read =
                        Pin::new(&mut stream).poll_read(&mut Context::from_waker(Waker::noop()), buffer.unfilled());
                    assert!(matches!(read, Poll::Ready(Ok(()))));
                    if buffer.filled().is_empty() {
                        break;
                    }
                    received.extend_from_slice(buffer.filled());
                }
                assert_eq!(
                    String::from_utf8(received).unwrap(),
                    format!("{initial_bytes}\r\n\r\n"),
                    "{buffer_len} bytes at a time"
                );
                assert!(stream.initial_bytes.is_empty() && stream.initial_bytes.capacity() == 0, "the buffer is freed");
            }
        }
    }
}
