//! A response body whose chunks are made while it is sent, so that its length is not known.
//!
//! The body owns the future that makes its chunks. The future runs only while the connection polls the body, and ends
//! with it: when the client disconnects, the connection drops the body, and with it everything that the future waits
//! for. At most [`MAX_WAITING_CHUNKS`] chunks wait for the connection; then the future waits.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use tokio::sync::mpsc;

/// The largest number of chunks that wait to be sent.
const MAX_WAITING_CHUNKS: usize = 16;

/// The future that makes the chunks of a body.
type ChunkProducer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A response body of unknown length.
pub(crate) struct StreamedBody {
    chunks: mpsc::Receiver<Bytes>,
    /// `None` after it has ended.
    producer: Option<ChunkProducer>,
    has_ended: bool,
}

/// Adds chunks to a [`StreamedBody`].
#[derive(Debug)]
pub(crate) struct BodySender(mpsc::Sender<Bytes>);

impl BodySender {
    /// Adds a chunk; waits while too many chunks have not been sent yet. An empty chunk is left out.
    pub(crate) async fn send(&self, chunk: impl Into<Bytes>) {
        let chunk = chunk.into();
        if !chunk.is_empty() {
            // Fails only without a receiver, and then this future is dropped, too.
            let _ = self.0.send(chunk).await;
        }
    }
}

impl StreamedBody {
    /// Creates a body of the chunks that the future of `produce` sends. The body ends when the future does.
    pub(crate) fn new<F>(produce: impl FnOnce(BodySender) -> F) -> StreamedBody
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (sender, chunks) = mpsc::channel(MAX_WAITING_CHUNKS);
        StreamedBody { chunks, producer: Some(Box::pin(produce(BodySender(sender)))), has_ended: false }
    }

    /// Returns the next chunk; `None` at the end.
    pub(crate) fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut chunk = self.chunks.poll_recv(context);
        if chunk.is_pending()
            && let Some(producer) = &mut self.producer
        {
            if producer.as_mut().poll(context).is_ready() {
                self.producer = None;
            }
            chunk = self.chunks.poll_recv(context);
        }
        self.has_ended |= matches!(chunk, Poll::Ready(None));
        chunk
    }

    /// Returns whether the end was reached.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }
}

impl fmt::Debug for StreamedBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamedBody").field("has_ended", &self.has_ended).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Waker;

    use tokio::sync::oneshot;

    use super::*;

    fn poll(body: &mut StreamedBody) -> Poll<Option<Bytes>> {
        body.poll_chunk(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn a_streamed_body_has_the_chunks_of_its_future_and_ends_with_it() {
        let (go, gone) = oneshot::channel::<()>();
        let mut body = StreamedBody::new(|sender| async move {
            sender.send("a").await;
            sender.send("").await;
            let _ = gone.await;
            sender.send("b").await;
        });
        assert_eq!(poll(&mut body), Poll::Ready(Some(Bytes::from("a"))));
        assert!(poll(&mut body).is_pending() && !body.has_ended());
        go.send(()).unwrap();
        assert_eq!(poll(&mut body), Poll::Ready(Some(Bytes::from("b"))));
        assert_eq!(poll(&mut body), Poll::Ready(None));
        assert!(body.has_ended());
        assert_eq!(poll(&mut body), Poll::Ready(None), "the end stays the end");
    }

    #[test]
    fn a_streamed_body_that_is_not_read_makes_a_bounded_number_of_chunks() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&made);
        let mut body = StreamedBody::new(|sender| async move {
            loop {
                sender.send("x").await;
                counter.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(poll(&mut body), Poll::Ready(Some(Bytes::from("x"))));
        assert_eq!(made.load(Ordering::Relaxed), MAX_WAITING_CHUNKS);
    }

    #[test]
    fn dropping_a_streamed_body_drops_its_future() {
        let (held, mut is_dropped) = oneshot::channel::<()>();
        let mut body = StreamedBody::new(|sender| async move {
            sender.send("a").await;
            std::future::pending::<()>().await;
            drop(held);
        });
        assert!(poll(&mut body).is_ready() && poll(&mut body).is_pending());
        assert_eq!(is_dropped.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        drop(body);
        assert_eq!(is_dropped.try_recv(), Err(oneshot::error::TryRecvError::Closed));
    }
}
