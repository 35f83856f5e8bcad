//! The send queue of an HTTP/2 connection: small pieces are copied into one buffer, large ones are referenced.
//! Everything that was queued in a round is sent in one write if it has at most [`MAX_SLICES`] pieces.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::AsyncWrite;

use super::frame;

/// The number of queued bytes from which everything is sent before more is added. The piece that reaches it is added
/// whole, so more bytes may be queued.
const FULL_QUEUE_BYTES: usize = 256 * 1024;
/// The size in bytes from which a piece is referenced instead of copied.
const MIN_SHARED_BYTES: usize = 2048;
/// When this many sent bytes are at the front of the buffer, they are removed, even if the buffer is not empty.
const MAX_SENT_PREFIX_BYTES: usize = 64 * 1024;
/// The largest number of slices in one write; the kernel accepts 1,024.
const MAX_SLICES: usize = 64;

thread_local! {
    /// The buffer of the thread: nearly always everything is sent at the end of a turn, so one buffer serves all
    /// connections.
    static IDLE_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// The bytes that are queued for sending on one connection.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    /// The small pieces, one after another.
    copied: Vec<u8>,
    /// The number of bytes of `copied` that have been sent.
    copied_sent: usize,
    /// The large pieces, which are not copied, each with the offset in `copied` before which it is sent.
    shared: VecDeque<(usize, Bytes)>,
    /// The number of queued bytes, large pieces included.
    queued_len: usize,
    /// The number of bytes sent since the connection began.
    sent: u64,
    /// The value of `sent` at which the last queued DATA frame has been sent.
    data_end: u64,
    /// Whether a TLS stream may still buffer bytes that it has accepted.
    is_unflushed: bool,
    /// Whether anything was sent since the connection last cleared this.
    pub(super) has_sent: bool,
}

impl SendBuffer {
    /// Returns whether the queue has to be sent before more is added.
    pub(super) fn is_full(&self) -> bool {
        self.queued_len >= FULL_QUEUE_BYTES
    }

    /// Returns whether everything has been sent.
    pub(super) fn is_empty(&self) -> bool {
        self.queued_len == 0
    }

    /// Returns the number of bytes sent since the connection began.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// Marks the end of the queue as the end of a DATA frame.
    pub(super) fn mark_data_end(&mut self) {
        self.data_end = self.sent + self.queued_len as u64;
    }

    /// Returns whether DATA is queued.
    pub(super) fn has_queued_data(&self) -> bool {
        self.sent < self.data_end
    }

    /// Lets `write` append to the buffer, and returns its result.
    pub(super) fn write<T>(&mut self, write: impl FnOnce(&mut Vec<u8>) -> T) -> T {
        if self.copied.capacity() == 0 {
            self.copied = IDLE_BUFFER.take();
        }
        let len_before = self.copied.len();
        let result = write(&mut self.copied);
        self.queued_len += self.copied.len() - len_before;
        result
    }

    /// Queues a copy of `bytes`.
    pub(super) fn queue_copy(&mut self, bytes: &[u8]) {
        self.write(|copied| copied.extend_from_slice(bytes));
    }

    /// Queues a frame.
    pub(super) fn queue_frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        self.queue_copy(&frame::encode_header(payload.len(), kind, flags, stream));
        self.queue_copy(payload);
    }

    /// Queues the first `len` bytes of `bytes`, by reference if they are many.
    pub(super) fn queue_shared(&mut self, bytes: &Bytes, len: usize) {
        if len < MIN_SHARED_BYTES {
            return self.queue_copy(&bytes[..len]);
        }
        self.shared.push_back((self.copied.len(), bytes.slice(..len)));
        self.queued_len += len;
    }

    /// Sends everything that is queued; pending when the stream accepts no more bytes.
    pub(super) fn send<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        while self.queued_len > 0 {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let count = self.fill_slices(&mut slices);
            match ready!(Pin::new(&mut *stream).poll_write_vectored(context, &slices[..count]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                n => self.remove_sent(n),
            }
        }
        if self.is_unflushed {
            ready!(Pin::new(stream).poll_flush(context))?;
            self.is_unflushed = false;
        }
        Poll::Ready(Ok(()))
    }

    /// Fills `slices` with the next pieces to send, in order, and returns how many there are.
    fn fill_slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let (mut count, mut offset) = (0, self.copied_sent);
        let mut add = |part: &'a [u8]| {
            if !part.is_empty() && count < slices.len() {
                slices[count] = IoSlice::new(part);
                count += 1;
            }
        };
        for (before, bytes) in self.shared.iter().take(MAX_SLICES) {
            add(&self.copied[offset..*before]);
            add(bytes);
            offset = *before;
        }
        if self.shared.len() < MAX_SLICES {
            add(&self.copied[offset..]);
        }
        count
    }

    /// Removes `n` sent bytes from the queue.
    fn remove_sent(&mut self, n: usize) {
        self.advance_sent(n);
        if self.queued_len > 0 && self.copied_sent > MAX_SENT_PREFIX_BYTES {
            self.copied.drain(..self.copied_sent);
            self.shared.iter_mut().for_each(|(before, _)| *before -= self.copied_sent);
            self.copied_sent = 0;
        }
    }

    /// Advances the position in the queue by `n` sent bytes, and returns the buffer to the thread when all is sent.
    fn advance_sent(&mut self, mut n: usize) {
        self.queued_len -= n;
        self.sent += n as u64;
        (self.is_unflushed, self.has_sent) = (true, true);
        while let Some((before, bytes)) = self.shared.front_mut() {
            let from_copied = n.min(*before - self.copied_sent);
            self.copied_sent += from_copied;
            n -= from_copied;
            if n < bytes.len() {
                bytes.advance(n);
                return;
            }
            n -= bytes.len();
            self.shared.pop_front();
        }
        self.copied_sent += n;
        if self.queued_len == 0 {
            // An idle connection has no buffer.
            self.copied_sent = 0;
            let mut buffer = std::mem::take(&mut self.copied);
            if buffer.capacity() <= FULL_QUEUE_BYTES {
                buffer.clear();
                IDLE_BUFFER.set(buffer);
            }
        }
    }
}

#[cfg(test)]
impl SendBuffer {
    /// Returns everything that is queued.
    pub(super) fn queued_bytes(&self) -> Vec<u8> {
        let (mut queued, mut offset) = (Vec::new(), self.copied_sent);
        for (before, bytes) in &self.shared {
            queued.extend_from_slice(&self.copied[offset..*before]);
            queued.extend_from_slice(bytes);
            offset = *before;
        }
        queued.extend_from_slice(&self.copied[offset..]);
        queued
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// A stream that accepts at most `max_len` bytes at a time, and nothing at every third write.
    #[derive(Debug)]
    struct LimitedStream {
        received: Vec<u8>,
        calls: usize,
        max_len: usize,
        /// Whether nothing was written since the last flush.
        is_flushed: bool,
    }

    impl AsyncWrite for LimitedStream {
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
            let all: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).take(self.max_len).collect();
            self.received.extend_from_slice(&all);
            self.is_flushed = false;
            Poll::Ready(Ok(all.len()))
        }

        fn poll_flush(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.is_flushed = true;
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn queued_output_is_sent_in_order_across_partial_writes() {
        let body: Bytes = (0..100_000u32).map(|n| (n.wrapping_mul(n) >> 5) as u8).collect::<Vec<u8>>().into();
        for max_len in [1, 999, 30_000, usize::MAX] {
            let mut stream = LimitedStream { received: Vec::new(), calls: 0, max_len, is_flushed: true };
            let (mut out, mut expected) = (SendBuffer::default(), Vec::new());
            let mut context = Context::from_waker(Waker::noop());
            for turn in 0..40usize {
                for part in 0..turn {
                    let head = [turn as u8, part as u8, 7];
                    let len = [10, MIN_SHARED_BYTES, 16_384][part % 3];
                    let from = body.slice(part * 10..);
                    out.queue_copy(&head);
                    out.queue_shared(&from, len);
                    expected.extend_from_slice(&head);
                    expected.extend_from_slice(&from[..len]);
                }
                // Sometimes more is queued before everything is sent.
                let _ = out.send(&mut stream, &mut context);
            }
            while out.send(&mut stream, &mut context).is_pending() {}
            assert!(stream.received == expected, "at most {max_len} at a time");
            assert!(stream.is_flushed, "a TLS stream keeps what is not flushed");
            assert!(out.queued_len == 0 && out.shared.is_empty() && out.copied.capacity() == 0);
        }
    }

    #[test]
    fn the_send_buffer_has_queued_data_until_the_last_data_byte_is_sent() {
        let mut stream = LimitedStream { received: Vec::new(), calls: 0, max_len: 10, is_flushed: true };
        let (mut out, mut context) = (SendBuffer::default(), Context::from_waker(Waker::noop()));
        out.queue_frame(frame::PING, frame::ACK, 0, b"12345678");
        assert!(!out.has_queued_data() && !out.has_sent);
        while out.send(&mut stream, &mut context).is_pending() {}
        assert!(out.has_sent && !out.has_queued_data());
        let data_end = stream.received.len() + 25;
        out.queue_copy(&[7; 25]);
        out.mark_data_end();
        out.queue_copy(&[8; 25]);
        loop {
            let sent = stream.received.len();
            assert_eq!(out.has_queued_data(), sent < data_end, "{sent} of {data_end} bytes were sent");
            if out.send(&mut stream, &mut context).is_ready() {
                break;
            }
        }
        assert!(!out.has_queued_data() && out.is_empty());
    }
}
