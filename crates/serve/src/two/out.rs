//! What is on its way to the peer: small things one behind the other in one place, large ones as they lie there. All that was
//! put in during a turn leaves in one write.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use super::frame;

/// When so much is waiting, in bytes, it is sent before more is put in.
const MUCH: usize = 256 * 1024;
/// What is larger is not copied.
const LARGE: usize = 2048;
/// What has been sent of the small things goes when it is so much, in bytes, if it has not gone before.
const STALE: usize = 64 * 1024;
/// Pieces that are sent in one write; the kernel takes a thousand.
const AT_ONCE: usize = 64;

thread_local! {
    /// Nearly always all is sent at the end of a turn, so that one room is enough for all connections of a thread.
    static ROOM: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug, Default)]
pub(super) struct Out {
    /// Small things.
    queue: Vec<u8>,
    /// What of that has been sent.
    at: usize,
    /// Large things, and how much of the queue comes before each.
    large: VecDeque<(usize, Bytes)>,
    /// Bytes of all of them that are still to be sent.
    left: usize,
    /// Bytes that have been sent since the connection began.
    sent: u64,
    /// How many have been when the last frame of DATA that was put in has gone.
    data_end: u64,
    /// Whether what was taken may not have been sent: what is encrypted.
    is_held: bool,
    /// Whether anything was sent since somebody last set this.
    pub(super) has_sent: bool,
}

impl Out {
    /// Whether it is time to send.
    pub(super) fn is_full(&self) -> bool {
        self.left >= MUCH
    }

    /// Whether all that was put in has been sent.
    pub(super) fn is_empty(&self) -> bool {
        self.left == 0
    }

    /// Bytes that have been sent since the connection began.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// What was put in last is DATA.
    pub(super) fn ends_with_data(&mut self) {
        self.data_end = self.sent + self.left as u64;
    }

    /// Whether DATA waits to be sent.
    pub(super) fn holds_data(&self) -> bool {
        self.sent < self.data_end
    }

    /// Puts in what `write` writes behind what is there.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if self.queue.capacity() == 0 {
            self.queue = ROOM.take();
        }
        let before = self.queue.len();
        let written = write(&mut self.queue);
        self.left += self.queue.len() - before;
        written
    }

    /// Puts in a copy.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.write(|queue| queue.extend_from_slice(bytes));
    }

    /// Puts in a frame.
    pub(super) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.put(&frame::head(payload.len(), kind, flags, stream));
        self.put(payload);
    }

    /// Puts in the first bytes of what lies there.
    pub(super) fn lend(&mut self, bytes: &Bytes, len: usize) {
        if len < LARGE {
            return self.put(&bytes[..len]);
        }
        self.large.push_back((self.queue.len(), bytes.slice(..len)));
        self.left += len;
    }

    /// Sends all of it.
    pub(super) fn send<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.left > 0 {
            let mut slices = [IoSlice::new(&[]); AT_ONCE];
            let count = self.pieces(&mut slices);
            match ready!(Pin::new(&mut *stream).poll_write_vectored(context, &slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.take_out(n),
            }
        }
        if self.is_held {
            ready!(Pin::new(stream).poll_flush(context))?;
            self.is_held = false;
        }
        Poll::Ready(Ok(()))
    }

    /// What comes next, in order; as many pieces as fit.
    fn pieces<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut count, mut at) = (0, self.at);
        let mut put = |part: &'a [u8]| {
            if !part.is_empty() && count < slices.len() {
                slices[count] = IoSlice::new(part);
                count += 1;
            }
        };
        for (before, bytes) in self.large.iter().take(AT_ONCE) {
            put(&self.queue[at..*before]);
            put(bytes);
            at = *before;
        }
        if self.large.len() < AT_ONCE {
            put(&self.queue[at..]);
        }
        count
    }

    /// So many bytes have gone.
    fn take_out(&mut self, n: usize) {
        self.go(n);
        if self.left > 0 && self.at > STALE {
            self.queue.drain(..self.at);
            self.large.iter_mut().for_each(|(before, _)| *before -= self.at);
            self.at = 0;
        }
    }

    fn go(&mut self, mut n: usize) {
        self.left -= n;
        self.sent += n as u64;
        (self.is_held, self.has_sent) = (true, true);
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
            let mut room = std::mem::take(&mut self.queue);
            if room.capacity() <= MUCH {
                room.clear();
                ROOM.set(room);
            }
        }
    }
}

#[cfg(test)]
impl Out {
    /// All that is waiting.
    pub(super) fn all(&self) -> Vec<u8> {
        let (mut all, mut at) = (Vec::new(), self.at);
        for (before, bytes) in &self.large {
            all.extend_from_slice(&self.queue[at..*before]);
            all.extend_from_slice(bytes);
            at = *before;
        }
        all.extend_from_slice(&self.queue[at..]);
        all
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

    impl AsyncWrite for Reluctant {
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
    fn what_was_put_in_leaves_in_its_order_however_little_is_taken_at_a_time() {
        let body: Bytes = (0..100_000u32).map(|n| (n.wrapping_mul(n) >> 5) as u8).collect::<Vec<u8>>().into();
        for most in [1, 999, 30_000, usize::MAX] {
            let mut reluctant = Reluctant { came: Vec::new(), calls: 0, most };
            let (mut out, mut expected) = (Out::default(), Vec::new());
            let mut context = Context::from_waker(Waker::noop());
            for turn in 0..40usize {
                for part in 0..turn {
                    let head = [turn as u8, part as u8, 7];
                    let len = [10, LARGE, 16_384][part % 3];
                    let from = body.slice(part * 10..);
                    out.put(&head);
                    out.lend(&from, len);
                    expected.extend_from_slice(&head);
                    expected.extend_from_slice(&from[..len]);
                }
                // Sometimes not all of it is taken before more comes.
                let _ = out.send(&mut reluctant, &mut context);
            }
            while out.send(&mut reluctant, &mut context).is_pending() {}
            assert!(reluctant.came == expected, "at most {most} at a time");
            assert!(out.left == 0 && out.large.is_empty() && out.queue.capacity() == 0);
        }
    }
}
