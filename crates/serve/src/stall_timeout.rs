//! A TCP stream that ends when its peer has stopped reading ([`PeerProgress`]); a peer that reads slowly is not
//! disconnected. The stream also reports to its site when a stored file cannot be read while it is sent.

use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use super::damage_reports::is_read_error;
use super::lazy_stream::{LazyTcpStream, SendFile};
use super::peer_progress::{PeerProgress, ProgressCheck, STALL_TIMEOUT, acknowledged_bytes};
use super::site::Site;

/// A TCP stream whose writes fail with `TimedOut` when the peer has acknowledged nothing for a while.
#[derive(Debug)]
pub(super) struct StallTimeoutStream {
    stream: LazyTcpStream,
    stall_timeout: Duration,
    /// The site whose stored versions are sent on this stream, if any.
    site: Option<Arc<Site>>,
    /// The progress of the peer while a write is pending.
    pending_write: Option<Box<PendingWrite>>,
}

#[derive(Debug)]
struct PendingWrite {
    progress: PeerProgress,
    timer: Pin<Box<Sleep>>,
}

impl StallTimeoutStream {
    /// Wraps `stream`. A write may be pending for as long as the peer acknowledges bytes.
    pub(super) fn new(stream: LazyTcpStream, site: Option<Arc<Site>>) -> StallTimeoutStream {
        StallTimeoutStream { stream, stall_timeout: STALL_TIMEOUT, site, pending_write: None }
    }

    /// Clears the state when a write completes, and reports a read error of the stored file to the site. While the
    /// write is pending, checks the peer's progress, and fails when the peer has stopped reading.
    fn poll_progress<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = written {
            self.pending_write = None;
            if let (Err(error), Some(site)) = (&written, &self.site)
                && is_read_error(error)
            {
                site.report_damage(&format!("the stored file could not be read ({error})"));
            }
            return Poll::Ready(written);
        }
        let StallTimeoutStream { stream, stall_timeout, pending_write, .. } = self;
        let pending_write = pending_write.get_or_insert_with(|| {
            let progress = PeerProgress::start(Instant::now(), *stall_timeout);
            let timer = Box::pin(sleep_until(progress.next_check().into()));
            Box::new(PendingWrite { progress, timer })
        });
        loop {
            ready!(pending_write.timer.as_mut().poll(context));
            match pending_write.progress.check(Instant::now(), acknowledged_bytes(stream.socket())) {
                ProgressCheck::CheckAt(time) => pending_write.timer.as_mut().reset(time.into()),
                ProgressCheck::Stopped => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading")));
                }
            }
        }
    }
}

impl AsyncRead for StallTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for StallTimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.poll_progress(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.poll_progress(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl SendFile for StallTimeoutStream {
    fn can_send_files(&self) -> bool {
        self.stream.can_send_files()
    }

    fn poll_send_file(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        head: &[u8],
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_send_file(context, head, file, offset, len);
        self.poll_progress(context, sent)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)] // tests connect to their own sockets
mod tests {
    use std::fs::File;
    use std::future::poll_fn;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use socket2::{Domain, SockRef, Socket, Type};

    use super::*;

    /// Returns a stream, and its client, which reads only when the test does.
    fn stream_and_client(stall_timeout: Duration) -> (StallTimeoutStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (writer, _) = listener.accept().unwrap();
        writer.set_nonblocking(true).unwrap();
        (StallTimeoutStream { stall_timeout, ..StallTimeoutStream::new(writer.into(), None) }, reader)
    }

    /// Writes until that fails, or until `max_bytes` bytes were accepted.
    async fn write(stream: &mut StallTimeoutStream, max_bytes: usize) -> io::Result<usize> {
        let mut written = 0;
        while written < max_bytes {
            written += poll_fn(|context| Pin::new(&mut *stream).poll_write(context, &[b'x'; 16_384])).await?;
        }
        Ok(written)
    }

    #[tokio::test]
    async fn write_to_a_client_that_reads_nothing_times_out() {
        let (mut stream, _reader) = stream_and_client(Duration::from_millis(50));
        let error = write(&mut stream, usize::MAX).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    /// The ways in which HTTP/1.1, hyper, HTTP/2 and TLS write.
    #[derive(Debug, Clone, Copy)]
    enum WriteKind {
        Plain,
        Vectored,
        File,
    }

    async fn write_once(stream: &mut StallTimeoutStream, kind: WriteKind, file: &File) -> io::Result<usize> {
        const BYTES: &[u8] = &[b'x'; 16_384];
        poll_fn(|context| {
            let stream = Pin::new(&mut *stream);
            match kind {
                WriteKind::Plain => stream.poll_write(context, BYTES),
                WriteKind::Vectored => stream.poll_write_vectored(context, &[io::IoSlice::new(BYTES)]),
                WriteKind::File => stream.poll_send_file(context, &[], file.as_fd(), 0, BYTES.len()),
            }
        })
        .await
    }

    #[tokio::test]
    async fn plain_vectored_and_file_writes_time_out_if_the_client_reads_nothing() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[b'x'; 16_384]).unwrap();
        for kind in [WriteKind::Plain, WriteKind::Vectored, WriteKind::File] {
            let (mut stream, _reader) = stream_and_client(Duration::from_millis(50));
            let end = async {
                loop {
                    if let Err(error) = write_once(&mut stream, kind, &file).await {
                        break error;
                    }
                }
            };
            let error = tokio::time::timeout(Duration::from_secs(20), end).await;
            assert_eq!(error.map(|error| error.kind()), Ok(io::ErrorKind::TimedOut), "{kind:?}");
        }
    }

    #[tokio::test]
    async fn pending_write_resumes_when_the_client_reads_again() {
        let (mut stream, mut reader) = stream_and_client(Duration::from_mins(1));
        let reading = tokio::task::spawn_blocking(move || {
            let mut total = 0;
            let mut buffer = [0; 16_384];
            while total < 16 << 20 {
                total += reader.read(&mut buffer).unwrap();
            }
        });
        assert!(write(&mut stream, 16 << 20).await.is_ok());
        assert!(stream.pending_write.is_none());
        drop(stream);
        let _ = reading.await;
    }

    // Regression: a client that read 2 KB/s was disconnected although it made progress.
    #[tokio::test]
    async fn client_that_reads_a_few_kilobytes_per_stall_timeout_is_cut_only_when_it_stops() {
        const STALL_TIMEOUT: Duration = Duration::from_millis(30);
        const READ_BYTES: usize = 8 * 1024;
        /// As in [`crate::listener`]: below half of this the kernel reports the socket as writable again.
        const MAX_UNSENT_BYTES: usize = 256 * 1024;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        SockRef::from(&listener).set_tcp_notsent_lowat(MAX_UNSENT_BYTES as u32).unwrap();
        let reader = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        reader.set_recv_buffer_size(4096).unwrap();
        reader.connect(&listener.local_addr().unwrap().into()).unwrap();
        let mut reader = TcpStream::from(reader);
        let (writer, _) = listener.accept().unwrap();
        writer.set_nonblocking(true).unwrap();
        let new_stream = StallTimeoutStream::new(writer.into(), None);
        let mut stream = StallTimeoutStream { stall_timeout: STALL_TIMEOUT, ..new_stream };

        let (mut started_at, mut last_acknowledged, mut read_bytes) = (None, None, 0);
        poll_fn(|context| {
            // Until the kernel accepts no more, nothing is read. Then the reader reads before each check of its
            // progress, and the write stays pending.
            if let Some(started_at) = started_at {
                reader.read_exact(&mut [0; READ_BYTES]).unwrap();
                read_bytes += READ_BYTES;
                while acknowledged_bytes(stream.stream.socket()) == last_acknowledged {
                    assert!(Instant::now() < started_at + Duration::from_secs(20), "the reader acknowledges");
                }
            }
            last_acknowledged = acknowledged_bytes(stream.stream.socket());
            while let Poll::Ready(written) = Pin::new(&mut stream).poll_write(context, &[b'x'; 16_384]) {
                assert!(started_at.is_none(), "{written:?} after {read_bytes} bytes were read");
                written.unwrap();
            }
            let started_at = *started_at.get_or_insert_with(Instant::now);
            if started_at.elapsed() > 6 * STALL_TIMEOUT { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        // The old rule, by writability, would have cut the reader after the first time limit.
        assert!(read_bytes < MAX_UNSENT_BYTES / 2, "{read_bytes} bytes make the socket writable");
        let error = write(&mut stream, usize::MAX).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
