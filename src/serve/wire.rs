//! What lies between a connection and the protocol that is spoken on it: what has come before it was known which one that
//! is, and what HTTP/2 has to say to many streams, gathered until the connection has nothing more to say for now.
//!
//! hyper writes each response of an HTTP/2 connection by itself. Gathered, all that is ready in one turn leaves in one
//! write; no timer is involved: [`Gathered::send`] is called at the end of the same turn.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

/// What is gathered at most, in bytes, before it is sent in the middle of a turn.
const MOST: usize = 256 * 1024;
/// What is larger is not copied to be gathered, if that can be avoided.
const LARGE: usize = 2048;
/// Pieces that are sent in one write; the kernel takes a thousand.
const AT_ONCE: usize = 64;

thread_local! {
    /// Room to gather in. Nearly always it is sent at the end of the turn, so that one is enough for all connections of a
    /// thread.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// See [`Lent`].
    static LENT: RefCell<Lent> = const { RefCell::new(Lent { is_on: false, bytes: Vec::new() }) };
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

/// Large bodies that are handed to HTTP/2 while a connection has its turn: what it then writes of them need not be copied to
/// be gathered, because it can be found among these. Empty between turns, so that no version is held on to.
#[derive(Debug, Default)]
struct Lent {
    is_on: bool,
    bytes: Vec<Bytes>,
}

/// Says that these bytes are going to be written, if they are worth it and a connection of HTTP/2 has its turn.
pub(super) fn lend(bytes: &Bytes) {
    if bytes.len() >= LARGE {
        LENT.with_borrow_mut(|lent| {
            if lent.is_on {
                lent.bytes.push(bytes.clone());
            }
        });
    }
}

/// The same bytes as `slice`, without a copy, if they were lent.
fn lent(slice: &[u8]) -> Option<Bytes> {
    let wanted = slice.as_ptr_range();
    LENT.with_borrow(|lent| {
        let holds = |bytes: &&Bytes| {
            let range = bytes.as_ptr_range();
            range.start <= wanted.start && wanted.end <= range.end
        };
        lent.bytes.iter().find(holds).map(|bytes| bytes.slice_ref(slice))
    })
}

/// A turn of a connection of HTTP/2, in which bodies are lent.
pub(super) struct Lending(());

impl Lending {
    pub(super) fn begin() -> Lending {
        LENT.with_borrow_mut(|lent| lent.is_on = true);
        Lending(())
    }
}

impl Drop for Lending {
    fn drop(&mut self) {
        LENT.with_borrow_mut(|lent| {
            lent.is_on = false;
            lent.bytes.clear();
        });
    }
}

/// A connection whose writes are gathered. Whoever speaks on it and whoever sends have one each; they never do so at the
/// same time.
#[derive(Debug)]
pub(super) struct Gathered<W>(Arc<Mutex<Gathering<W>>>);

#[derive(Debug)]
struct Gathering<W> {
    wire: W,
    /// Small things, one after the other.
    queue: Vec<u8>,
    /// What of that has been sent.
    at: usize,
    /// Large things, and how much of the queue comes before each.
    large: VecDeque<(usize, Bytes)>,
    /// Bytes of all of them that are still to be sent.
    left: usize,
}

impl<W> Clone for Gathered<W> {
    fn clone(&self) -> Self {
        Gathered(Arc::clone(&self.0))
    }
}

impl<W: Write + Unpin> Gathered<W> {
    pub(super) fn new(wire: W) -> Gathered<W> {
        let large = VecDeque::new();
        Gathered(Arc::new(Mutex::new(Gathering { wire, queue: Vec::new(), at: 0, large, left: 0 })))
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
        while self.left > 0 {
            let mut slices = [IoSlice::new(&[]); AT_ONCE];
            let count = pieces(&self.queue, self.at, &self.large, &mut slices);
            match ready!(Pin::new(&mut self.wire).poll_write_vectored(context, &slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.sent(n),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// So many bytes have gone.
    fn sent(&mut self, mut n: usize) {
        self.left -= n;
        while let Some((before, bytes)) = self.large.front_mut() {
            let small = n.min(*before - self.at);
            self.at += small;
            n -= small;
            if n < bytes.len() {
                bytes.advance(n);
                return;
            }
            n -= bytes.len();
            self.large.pop_front();
        }
        self.at += n;
        if self.left == 0 {
            // A connection that is idle keeps no room.
            self.at = 0;
            self.queue.clear();
            ROOM.set(std::mem::take(&mut self.queue));
        }
    }

    /// Takes all that `slices` hold.
    fn take(&mut self, context: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        let len: usize = slices.iter().map(|slice| slice.len()).sum();
        if self.left + len > MOST {
            ready!(self.send(context))?;
        }
        if self.queue.capacity() == 0 {
            self.queue = ROOM.take();
        }
        for slice in slices {
            match if slice.len() >= LARGE { lent(slice) } else { None } {
                Some(bytes) => self.large.push_back((self.queue.len(), bytes)),
                None => self.queue.extend_from_slice(slice),
            }
        }
        self.left += len;
        Poll::Ready(Ok(len))
    }
}

/// What comes next of a queue from `at` on and of the large things between, in order; as many pieces as fit.
fn pieces<'a>(
    queue: &'a [u8],
    mut at: usize,
    large: &'a VecDeque<(usize, Bytes)>,
    slices: &mut [IoSlice<'a>],
) -> usize {
    let mut count = 0;
    let mut put = |part: &'a [u8]| {
        if !part.is_empty() && count < slices.len() {
            slices[count] = IoSlice::new(part);
            count += 1;
        }
    };
    for (before, bytes) in large {
        put(&queue[at..*before]);
        put(bytes);
        at = *before;
    }
    put(&queue[at..]);
    count
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// Takes a few bytes at a time, and none every third time.
    #[derive(Debug)]
    struct Reluctant {
        came: Vec<u8>,
        calls: usize,
        most: usize,
    }

    impl Write for Reluctant {
        fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(context, &[IoSlice::new(bytes)])
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _context: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.calls += 1;
            if self.calls.is_multiple_of(3) {
                return Poll::Pending;
            }
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(self.most).collect();
            self.came.extend_from_slice(&all);
            Poll::Ready(Ok(all.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn what_is_gathered_leaves_in_its_order_lent_or_copied_however_little_is_taken_at_a_time() {
        let body: Bytes = (0..100_000u32).map(|n| (n.wrapping_mul(n) >> 5) as u8).collect::<Vec<u8>>().into();
        for most in [1, 999, 30_000, usize::MAX] {
            let mut gathered = Gathered::new(Reluctant { came: Vec::new(), calls: 0, most });
            let mut context = Context::from_waker(Waker::noop());
            let mut expected = Vec::new();
            for turn in 0..12usize {
                let lending = (turn % 3 != 0).then(Lending::begin);
                lend(&body);
                for part in 0..turn {
                    let head = [turn as u8, part as u8, 7];
                    let len = [10, LARGE, 16_384][part % 3];
                    let slices = [IoSlice::new(&head), IoSlice::new(&body[part * 10..part * 10 + len])];
                    let taken = loop {
                        match Pin::new(&mut gathered).poll_write_vectored(&mut context, &slices) {
                            Poll::Ready(taken) => break taken.unwrap(),
                            Poll::Pending => {}
                        }
                    };
                    assert_eq!(taken, head.len() + len);
                    expected.extend_from_slice(&head);
                    expected.extend_from_slice(&slices[1]);
                }
                drop(lending);
                // Sometimes not all of it is taken before more comes.
                let _ = gathered.send(&mut context);
            }
            while gathered.send(&mut context).is_pending() {}
            let gathering = gathered.lock();
            assert!(gathering.wire.came == expected, "at most {most} at a time");
            assert_eq!((gathering.left, gathering.large.len()), (0, 0));
        }
    }

    #[test]
    fn nothing_is_lent_beyond_a_turn() {
        let body = Bytes::from(vec![1; LARGE]);
        lend(&body);
        assert!(lent(&body).is_none());
        let lending = Lending::begin();
        lend(&body);
        assert!(lent(&body[1..]).is_some());
        assert!(lent(&vec![1; LARGE]).is_none(), "bytes of another");
        drop(lending);
        assert!(lent(&body).is_none());
    }
}
