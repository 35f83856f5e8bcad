//! What lies between a connection and hyper: what has come before it was known which protocol is spoken.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// A connection whose first bytes may have been read already.
#[derive(Debug)]
pub(super) struct Wire<S> {
    io: TokioIo<S>,
    early: Vec<u8>,
    taken: usize,
}

impl<S> Wire<S> {
    /// `early` is what has come on `stream` so far.
    pub(super) fn new(stream: S, early: Vec<u8>) -> Wire<S> {
        Wire { io: TokioIo::new(stream), early, taken: 0 }
    }
}

impl<S: AsyncRead + Unpin> Read for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let early = &self.early[self.taken..];
        if early.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let n = early.len().min(buffer.remaining());
        buffer.put_slice(&early[..n]);
        self.taken += n;
        if self.taken == self.early.len() {
            (self.early, self.taken) = (Vec::new(), 0);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Write for Wire<S> {
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
