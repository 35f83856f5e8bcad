//! Both ends of a connection in memory, and whether the server has asked for another turn.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake};

use docwharf::serve::http1::SendFile;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What the client has sent and the server has not read, and what the server has written.
#[derive(Default)]
pub struct Pipe {
    pub input: VecDeque<u8>,
    pub output: Vec<u8>,
    /// Bytes that are taken at a time.
    pub takes: usize,
    /// Whether the client sends nothing more.
    pub is_over: bool,
}

impl AsyncRead for Pipe {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.input.is_empty() {
            return if self.is_over { Poll::Ready(Ok(())) } else { Poll::Pending };
        }
        let n = buffer.remaining().min(self.input.len());
        let bytes: Vec<u8> = self.input.drain(..n).collect();
        buffer.put_slice(&bytes);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Pipe {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let n = bytes.len().min(self.takes);
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
    fn sends_files(&self) -> bool {
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

/// Whether the connection has asked for another turn.
#[derive(Default)]
pub struct Woken(AtomicBool);

impl Woken {
    /// Whether it has since this was last asked.
    pub fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}
