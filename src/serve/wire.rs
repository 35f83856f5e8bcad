//! What lies between a connection and the protocol that is spoken on it: what has come before it was known which one that
//! is, and what HTTP/2 has to say to many streams, gathered until the connection has nothing more to say for now.
//!
//! hyper writes each response of an HTTP/2 connection by itself. Gathered, all that is ready in one turn leaves in one
//! write; no timer is involved: [`Gathered::send`] is called at the end of the same turn.

use std::cell::RefCell;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// What is gathered at most, in bytes, before it is sent in the middle of a turn.
const MOST: usize = 64 * 1024;

thread_local! {
    /// Room to gather in. Nearly always it is sent at the end of the turn, so that one is enough for all connections of a
    /// thread.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

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

/// A connection whose writes are gathered. Whoever speaks on it and whoever sends have one each; they never do so at the
/// same time.
#[derive(Debug)]
pub(super) struct Gathered<W>(Arc<Mutex<Gathering<W>>>);

#[derive(Debug)]
struct Gathering<W> {
    wire: W,
    queue: Vec<u8>,
}

impl<W> Clone for Gathered<W> {
    fn clone(&self) -> Self {
        Gathered(Arc::clone(&self.0))
    }
}

impl<W: Write + Unpin> Gathered<W> {
    pub(super) fn new(wire: W) -> Gathered<W> {
        Gathered(Arc::new(Mutex::new(Gathering { wire, queue: Vec::new() })))
    }

    fn lock(&self) -> MutexGuard<'_, Gathering<W>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends what was gathered; pending while the peer does not take it.
    pub(super) fn send(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.lock().send(context)
    }
}

impl<W: Write + Unpin> Gathering<W> {
    fn send(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.queue.is_empty() {
            let n = ready!(Pin::new(&mut self.wire).poll_write(context, &self.queue))?;
            self.sent(n)?;
        }
        Poll::Ready(Ok(()))
    }

    fn sent(&mut self, n: usize) -> io::Result<()> {
        if n == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        if n < self.queue.len() {
            self.queue.drain(..n);
        } else {
            // A connection that is idle keeps no room.
            self.queue.clear();
            ROOM.set(std::mem::take(&mut self.queue));
        }
        Ok(())
    }

    /// Takes what `slices` hold, or part of it.
    fn take(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.queue.len() + len <= MOST {
            if self.queue.capacity() == 0 {
                self.queue = ROOM.take();
                self.queue.reserve_exact(MOST);
            }
            for slice in slices {
                self.queue.extend_from_slice(slice);
            }
            return Poll::Ready(Ok(len));
        }
        // Together, so that what is large is not copied.
        let gathered = self.queue.len();
        if gathered == 0 {
            return Pin::new(&mut self.wire).poll_write_vectored(context, slices);
        }
        let mut all = Vec::with_capacity(slices.len() + 1);
        all.push(IoSlice::new(&self.queue));
        all.extend(slices.iter().map(|slice| IoSlice::new(slice)));
        let n = ready!(Pin::new(&mut self.wire).poll_write_vectored(context, &all))?;
        self.sent(n.min(gathered))?;
        if n > gathered {
            return Poll::Ready(Ok(n - gathered));
        }
        ready!(self.send(context))?;
        Pin::new(&mut self.wire).poll_write_vectored(context, slices)
    }
}

impl<W: Read + Unpin> Read for Gathered<W> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<io::Result<()>> {
        let mut gathering = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Pin::new(&mut gathering.wire).poll_read(context, buffer)
    }
}

impl<W: Write + Unpin> Write for Gathered<W> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.lock().take(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.lock().take(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Whoever polls the connection sends at the end of the turn.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut gathering = self.lock();
        ready!(gathering.send(context))?;
        Pin::new(&mut gathering.wire).poll_shutdown(context)
    }
}
