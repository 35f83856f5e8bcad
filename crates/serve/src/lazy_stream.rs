//! A TCP connection that is registered with the tokio runtime only when it has to wait. A client that sends one request
//! and closes is served without a registration, which saves most of the cost of such a connection.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// The largest read in bytes before the socket is registered; most request heads are smaller.
const MAX_UNREGISTERED_READ_BYTES: usize = 4096;

/// A stream that can send a head and then bytes of a file without copying the file's bytes through user space.
pub trait SendFile: AsyncWrite {
    /// Returns whether this stream supports [`SendFile::poll_send_file`].
    fn can_send_files(&self) -> bool;

    /// Writes some of `head` and, once all of it is written, some of the `len` bytes of `file` from `offset`. Returns
    /// the number of bytes written of both together. An error of the kind [`io::ErrorKind::InvalidInput`],
    /// [`io::ErrorKind::Unsupported`] or [`io::ErrorKind::PermissionDenied`] means that the caller has to write the
    /// bytes itself.
    fn poll_send_file(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>>;
}

/// Sends `head` and bytes of `file` with one attempt each. The kernel keeps the head until the file's bytes follow
/// (`MSG_MORE`, send(2)).
fn send_file(
    socket: BorrowedFd<'_>,
    head: &[u8],
    file: BorrowedFd<'_>,
    mut offset: u64,
    len: usize,
) -> io::Result<usize> {
    let mut sent = 0;
    if !head.is_empty() {
        sent = rustix::net::send(socket, head, SendFlags::MORE | SendFlags::NOSIGNAL)?;
        if sent < head.len() {
            return Ok(sent);
        }
    }
    match rustix::fs::sendfile(socket, file, Some(&mut offset), len) {
        Ok(0) if sent == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(n) => Ok(sent + n),
        // The next call reports the error if it persists.
        Err(_) if sent > 0 => Ok(sent),
        Err(error) => Err(error.into()),
    }
}

/// A TCP connection, registered with the runtime or not.
#[derive(Debug)]
pub(super) struct LazyTcpStream(LazyTcpState);

#[derive(Debug)]
enum LazyTcpState {
    /// The connection did not have to wait yet. The socket is non-blocking.
    Unregistered(std::net::TcpStream),
    /// The socket is registered with the runtime.
    Registered(TcpStream),
    /// The socket could not be registered, and is closed.
    Failed,
}

impl From<std::net::TcpStream> for LazyTcpStream {
    /// Wraps a socket, which must be non-blocking.
    fn from(socket: std::net::TcpStream) -> LazyTcpStream {
        LazyTcpStream(LazyTcpState::Unregistered(socket))
    }
}

impl From<TcpStream> for LazyTcpStream {
    fn from(stream: TcpStream) -> LazyTcpStream {
        LazyTcpStream(LazyTcpState::Registered(stream))
    }
}

impl LazyTcpStream {
    /// Returns the stream of the runtime, and registers the socket first if needed.
    fn register(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let LazyTcpState::Unregistered(_) = self.0
            && let LazyTcpState::Unregistered(socket) = std::mem::replace(&mut self.0, LazyTcpState::Failed)
        {
            self.0 = LazyTcpState::Registered(TcpStream::from_std(socket)?);
        }
        match &mut self.0 {
            LazyTcpState::Registered(stream) => Ok(Pin::new(stream)),
            LazyTcpState::Unregistered(_) | LazyTcpState::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns the socket; an error if it could not be registered.
    pub(super) fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.0 {
            LazyTcpState::Unregistered(socket) => Ok(socket.as_fd()),
            LazyTcpState::Registered(stream) => Ok(stream.as_fd()),
            LazyTcpState::Failed => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Runs `action` on a socket that is not registered. `None` if it would block, or if the socket is registered.
    fn try_unregistered<T>(
        &mut self,
        mut action: impl FnMut(&mut std::net::TcpStream) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let LazyTcpState::Unregistered(socket) = &mut self.0 else { return None };
        loop {
            match action(socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                result => return Some(result),
            }
        }
    }
}

impl AsyncRead for LazyTcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = buffer.remaining().min(MAX_UNREGISTERED_READ_BYTES);
        if let Some(read) = self.try_unregistered(|socket| socket.read(buffer.initialize_unfilled_to(len))) {
            return Poll::Ready(read.map(|n| buffer.advance(n)));
        }
        self.register()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for LazyTcpStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.try_unregistered(|socket| socket.write(bytes)) {
            Some(written) => Poll::Ready(written),
            None => self.register()?.poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.try_unregistered(|socket| socket.write_vectored(slices)) {
            Some(written) => Poll::Ready(written),
            None => self.register()?.poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A TCP socket buffers nothing in user space.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            LazyTcpState::Unregistered(socket) => Poll::Ready(socket.shutdown(Shutdown::Write)),
            LazyTcpState::Registered(stream) => Pin::new(stream).poll_shutdown(context),
            LazyTcpState::Failed => Poll::Ready(Ok(())),
        }
    }
}

impl SendFile for LazyTcpStream {
    fn can_send_files(&self) -> bool {
        true
    }

    fn poll_send_file(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(sent) = self.try_unregistered(|socket| send_file(socket.as_fd(), head, file, offset, len)) {
            return Poll::Ready(sent);
        }
        let stream = self.register()?;
        loop {
            ready!(stream.poll_write_ready(context))?;
            match stream.try_io(Interest::WRITABLE, || send_file(stream.as_fd(), head, file, offset, len)) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn send_file_sends_the_head_first_and_fails_if_the_file_is_truncated() {
        let (mut receiver, sender) = UnixStream::pair().unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        for (head, offset, len, expected) in [
            ("head ", 2, 3, Ok("head 234")),
            ("", 0, 10, Ok("0123456789")),
            ("", 8, 5, Ok("89")),
            // The head is sent; the next call reports the error.
            ("head", 10, 1, Ok("head")),
            ("", 10, 1, Err(ErrorKind::UnexpectedEof)),
        ] {
            let sent = send_file(sender.as_fd(), head.as_bytes(), file.as_fd(), offset, len);
            let sent = sent.map_err(|error| error.kind());
            assert_eq!(sent, expected.map(str::len), "{head:?} and {len} bytes from {offset}");
            let mut received = vec![0; sent.unwrap_or(0)];
            receiver.read_exact(&mut received).unwrap();
            assert_eq!(received, expected.unwrap_or_default().as_bytes(), "{head:?} and {len} bytes from {offset}");
        }
    }
}
