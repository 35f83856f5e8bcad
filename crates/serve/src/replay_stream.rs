//! The stream that hyper reads and writes: it replays the bytes that were read to detect the protocol.
//!
//! hyper reads nothing while a response is awaited or sent, and so does not learn that the client has gone. For the few
//! responses that must end with their client, the stream reads ahead itself ([`EndWatch`]).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest number of bytes that are read ahead. After a client has sent more, its end is not noticed early.
const MAX_READ_AHEAD_BYTES: usize = 16 * 1024;

/// States whether the end of the input ends the connection, although a response is awaited or being sent.
#[derive(Debug, Clone, Default)]
pub(super) struct EndWatch(Arc<AtomicBool>);

impl EndWatch {
    /// Sets whether the end of the input ends the connection from now on.
    pub(super) fn set(&self, is_watched: bool) {
        self.0.store(is_watched, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream whose first bytes may have been read already; reads return those first.
#[derive(Debug)]
pub(super) struct ReplayStream<S> {
    io: TokioIo<S>,
    initial_bytes: Vec<u8>,
    replayed: usize,
    end_watch: EndWatch,
}

impl<S> ReplayStream<S> {
    /// Wraps `stream`; `initial_bytes` are the bytes that were already read from it.
    pub(super) fn new(stream: S, initial_bytes: Vec<u8>) -> ReplayStream<S> {
        ReplayStream { io: TokioIo::new(stream), initial_bytes, replayed: 0, end_watch: EndWatch::default() }
    }

    /// Adds a watch that was handed out before.
    pub(super) fn with_end_watch(self, end_watch: EndWatch) -> ReplayStream<S> {
        ReplayStream { end_watch, ..self }
    }
}

impl<S: AsyncRead + Unpin> ReplayStream<S> {
    /// Reads what the client has sent meanwhile, for later reads; an error if it has closed its sending side. The task
    /// is woken when it does.
    fn read_ahead(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        while self.initial_bytes.len() - self.replayed < MAX_READ_AHEAD_BYTES {
            let mut storage = [const { MaybeUninit::uninit() }; 1024];
            let mut buffer = ReadBuf::uninit(&mut storage);
            match Pin::new(self.io.inner_mut()).poll_read(context, &mut buffer)? {
                Poll::Pending => break,
                Poll::Ready(()) if buffer.filled().is_empty() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Poll::Ready(()) => self.initial_bytes.extend_from_slice(buffer.filled()),
            }
        }
        Ok(())
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

impl<S: AsyncRead + AsyncWrite + Unpin> Write for ReplayStream<S> {
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

    /// hyper flushes each time it is polled, so that an end of the input is noticed here.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.end_watch.is_set() {
            self.read_ahead(context)?;
        }
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use hyper::rt::ReadBuf as HyperReadBuf;
    use tokio::io::AsyncWriteExt;

    use super::*;

    #[tokio::test]
    async fn the_end_of_the_input_is_an_error_of_a_flush_only_while_it_is_watched_and_loses_no_bytes() {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let watch = EndWatch::default();
        let mut stream = ReplayStream::new(server, Vec::new()).with_end_watch(watch.clone());
        let mut context = Context::from_waker(Waker::noop());
        let mut flush = |stream: &mut ReplayStream<_>| Pin::new(stream).poll_flush(&mut context);
        client.write_all(b"next").await.unwrap();
        watch.set(true);
        assert!(matches!(flush(&mut stream), Poll::Ready(Ok(()))));
        drop(client);
        watch.set(false);
        assert!(matches!(flush(&mut stream), Poll::Ready(Ok(()))), "another client may close its sending side");
        watch.set(true);
        assert!(matches!(flush(&mut stream), Poll::Ready(Err(_))));
        let mut bytes = [0; 16];
        let mut buffer = HyperReadBuf::new(&mut bytes);
        let read = Pin::new(&mut stream).poll_read(&mut Context::from_waker(Waker::noop()), buffer.unfilled());
        assert!(matches!(read, Poll::Ready(Ok(()))) && buffer.filled() == b"next");
    }

    #[tokio::test]
    async fn a_client_that_keeps_sending_is_read_ahead_up_to_a_bound() {
        let (mut client, server) = tokio::io::duplex(64 << 10);
        let mut stream = ReplayStream::new(server, Vec::new());
        stream.end_watch.set(true);
        client.write_all(&vec![7; 40 << 10]).await.unwrap();
        assert!(Pin::new(&mut stream).poll_flush(&mut Context::from_waker(Waker::noop())).is_ready());
        assert_eq!(stream.initial_bytes.len(), MAX_READ_AHEAD_BYTES);
    }

    #[test]
    fn a_replay_stream_yields_its_initial_bytes_first_and_only_once() {
        for initial_bytes in ["", "G", "GET / HTTP/1.1"] {
            for buffer_len in [1, 3, 100] {
                let mut stream = ReplayStream::new(&b"\r\n\r\n"[..], initial_bytes.as_bytes().to_vec());
                let mut received = Vec::new();
                loop {
                    let mut bytes = vec![0; buffer_len];
                    let mut buffer = HyperReadBuf::new(&mut bytes);
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
