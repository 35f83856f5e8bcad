//! A TCP connection that joins the runtime only when it has to wait. Whoever asks one thing and goes is answered without:
//! that spares most of what such a connection costs.

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::net::SendFlags;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

/// What a first read takes; a request's head is mostly smaller.
const FIRST_READ: usize = 4096;

/// What a head and bytes of a file can be written to without the bytes being read.
pub trait SendFile: AsyncWrite {
    /// Whether it is worth asking.
    fn sends_files(&self) -> bool;

    /// Writes some of `head` and, when that is all, of the `len` bytes of `file` from `at` on; how much of both together.
    /// An error of the kind [`io::ErrorKind::InvalidInput`], [`io::ErrorKind::Unsupported`] or
    /// [`io::ErrorKind::PermissionDenied`] says that they have to be written as others are.
    fn poll_send_file(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        head: &[u8],
        file: BorrowedFd<'_>,
        at: u64,
        len: usize,
    ) -> Poll<io::Result<usize>>;
}

/// The same, once. The head waits in the kernel for what comes behind it (`MSG_MORE`, send(2)).
fn send_file(socket: BorrowedFd<'_>, head: &[u8], file: BorrowedFd<'_>, mut at: u64, len: usize) -> io::Result<usize> {
    let mut sent = 0;
    if !head.is_empty() {
        sent = rustix::net::send(socket, head, SendFlags::MORE | SendFlags::NOSIGNAL)?;
        if sent < head.len() {
            return Ok(sent);
        }
    }
    match rustix::fs::sendfile(socket, file, Some(&mut at), len) {
        Ok(0) if sent == 0 => Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(n) => Ok(sent + n),
        // Who asks again for the rest is told.
        Err(_) if sent > 0 => Ok(sent),
        Err(error) => Err(error.into()),
    }
}

/// A connection, known to the runtime or not yet.
#[derive(Debug)]
pub(super) struct Stream(State);

#[derive(Debug)]
enum State {
    /// Never had to wait. The socket does not block.
    Fresh(std::net::TcpStream),
    /// Waits by the runtime.
    Registered(TcpStream),
    /// Could not be registered.
    Lost,
}

impl From<std::net::TcpStream> for Stream {
    /// The socket must not block.
    fn from(socket: std::net::TcpStream) -> Stream {
        Stream(State::Fresh(socket))
    }
}

impl From<TcpStream> for Stream {
    fn from(stream: TcpStream) -> Stream {
        Stream(State::Registered(stream))
    }
}

impl Stream {
    /// The same within the runtime.
    fn registered(&mut self) -> io::Result<Pin<&mut TcpStream>> {
        if let State::Fresh(_) = self.0
            && let State::Fresh(socket) = std::mem::replace(&mut self.0, State::Lost)
        {
            self.0 = State::Registered(TcpStream::from_std(socket)?);
        }
        match &mut self.0 {
            State::Registered(stream) => Ok(Pin::new(stream)),
            State::Fresh(_) | State::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// The socket, as long as there is one.
    pub(super) fn socket(&self) -> io::Result<BorrowedFd<'_>> {
        match &self.0 {
            State::Fresh(socket) => Ok(socket.as_fd()),
            State::Registered(stream) => Ok(stream.as_fd()),
            State::Lost => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Tries at once what a fresh socket need not wait for; `None` if it has to.
    fn at_once<T>(
        &mut self,
        mut action: impl FnMut(&mut std::net::TcpStream) -> io::Result<T>,
    ) -> Option<io::Result<T>> {
        let State::Fresh(socket) = &mut self.0 else { return None };
        loop {
            match action(socket) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                done => return Some(done),
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining().min(FIRST_READ);
        if let Some(read) = self.at_once(|socket| socket.read(buffer.initialize_unfilled_to(room))) {
            return Poll::Ready(read.map(|n| buffer.advance(n)));
        }
        self.registered()?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.at_once(|socket| socket.write(bytes)) {
            Some(written) => Poll::Ready(written),
            None => self.registered()?.poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.at_once(|socket| socket.write_vectored(slices)) {
            Some(written) => Poll::Ready(written),
            None => self.registered()?.poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket keeps nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.0 {
            State::Fresh(socket) => Poll::Ready(socket.shutdown(Shutdown::Write)),
            State::Registered(stream) => Pin::new(stream).poll_shutdown(context),
            State::Lost => Poll::Ready(Ok(())),
        }
    }
}

impl SendFile for Stream {
    fn sends_files(&self) -> bool {
        true
    }

    fn poll_send_file(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        head: &[u8],
        file: BorrowedFd<'_>,
        at: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        if let Some(sent) = self.at_once(|socket| send_file(socket.as_fd(), head, file, at, len)) {
            return Poll::Ready(sent);
        }
        let stream = self.registered()?;
        loop {
            ready!(stream.poll_write_ready(context))?;
            match stream.try_io(Interest::WRITABLE, || send_file(stream.as_fd(), head, file, at, len)) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                sent => return Poll::Ready(sent),
            }
        }
    }
}
