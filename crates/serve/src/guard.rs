//! A connection that gives up on a peer that has stopped reading ([`Progress`]), and that tells its site when the disk does not
//! give what is to be sent. One that reads slowly is not cut.

use std::future::Future;
use std::io;
use std::os::fd::BorrowedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep_until};

use super::Site;
use super::doubts::is_damage;
use super::progress::{Look, PATIENCE, Progress, taken};
use super::stream::{SendFile, Stream};

/// A TCP stream whose writes fail when the peer has taken nothing for a while.
#[derive(Debug)]
pub(super) struct Guarded {
    stream: Stream,
    patience: Duration,
    /// What is sent on it comes from this site's versions, if it is a site's.
    site: Option<Arc<Site>>,
    /// What is known of the peer while a write waits.
    waiting: Option<Box<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    progress: Progress,
    timer: Pin<Box<Sleep>>,
}

impl Guarded {
    /// Writes may wait as long as the peer takes some of what was sent.
    pub(super) fn new(stream: Stream, site: Option<Arc<Site>>) -> Guarded {
        Guarded { stream, patience: PATIENCE, site, waiting: None }
    }

    fn watch<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(written) = written {
            self.waiting = None;
            if let (Err(error), Some(site)) = (&written, &self.site)
                && is_damage(error)
            {
                site.doubt(&format!("the stored file could not be read ({error})"));
            }
            return Poll::Ready(written);
        }
        let Guarded { stream, patience, waiting, .. } = self;
        let waiting = waiting.get_or_insert_with(|| {
            let progress = Progress::begin(Instant::now(), *patience);
            let timer = Box::pin(sleep_until(progress.look_at().into()));
            Box::new(Waiting { progress, timer })
        });
        loop {
            ready!(waiting.timer.as_mut().poll(context));
            match waiting.progress.look(Instant::now(), taken(stream.socket())) {
                Look::Again(at) => waiting.timer.as_mut().reset(at.into()),
                Look::Stopped => {
                    return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client stopped reading")));
                }
            }
        }
    }
}

impl AsyncRead for Guarded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.watch(context, written)
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

impl SendFile for Guarded {
    fn sends_files(&self) -> bool {
        self.stream.sends_files()
    }

    fn poll_send_file(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        head: &[u8],
        file: BorrowedFd<'_>,
        at: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_send_file(context, head, file, at, len);
        self.watch(context, sent)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};

    use super::*;

    /// A stream to a reader that takes nothing by itself.
    fn stalled(patience: Duration) -> (Guarded, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let reader = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (writer, _) = listener.accept().unwrap();
        writer.set_nonblocking(true).unwrap();
        (Guarded { patience, ..Guarded::new(writer.into(), None) }, reader)
    }

    /// Writes until that fails, or `most` bytes were taken.
    async fn write(stream: &mut Guarded, most: usize) -> io::Result<usize> {
        let mut all = 0;
        while all < most {
            all += poll_fn(|context| Pin::new(&mut *stream).poll_write(context, &[b'x'; 16_384])).await?;
        }
        Ok(all)
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let (mut stream, _reader) = stalled(Duration::from_millis(50));
        let error = write(&mut stream, usize::MAX).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_write_that_waited_for_its_reader_goes_on() {
        let (mut stream, mut reader) = stalled(Duration::from_mins(1));
        let begun = tokio::task::spawn_blocking(move || {
            let mut all = 0;
            let mut some = [0; 16_384];
            while all < 16 << 20 {
                all += reader.read(&mut some).unwrap();
            }
        });
        assert!(write(&mut stream, 16 << 20).await.is_ok());
        assert!(stream.waiting.is_none());
        drop(stream);
        let _ = begun.await;
    }
}
