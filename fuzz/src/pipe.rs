//! A connection in memory, and a waker that records whether it was called.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};

use docwharf::serve::http1::SendFile;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The bytes from the client that the server has not read, and the bytes that the server has written.
#[derive(Default)]
pub struct Pipe {
    pub input: VecDeque<u8>,
    pub output: Vec<u8>,
    /// The most bytes that a write accepts.
    pub max_write: usize,
    /// Whether the client has ended its side.
    pub is_input_ended: bool,
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            return if self.is_input_ended { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let n = buffer.remaining().min(self.input.len());
        let bytes: Vec<u8> = self.input.drain(..n).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let n = bytes.len().min(self.max_write);
        self.output.extend_from_slice(&bytes[..n]);
        Poll::Ready(Ok(n))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl SendFile for Pipe {
    fn can_send_files(&self) -> bool {
        false
    }

    fn poll_send_file(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &[u8],
        _: BorrowedFd<'_>,
        _: u64,
        _: usize,
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Err(io::ErrorKind::Unsupported.into()))
    }
}

/// A waker that records whether it was called.
#[derive(Default)]
pub struct WakeFlag(AtomicBool);

impl WakeFlag {
    /// Whether the waker was called since the last call of this function.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
