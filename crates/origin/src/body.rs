//! Response bodies: a text in memory, or a part of an open file that is read as fast as the client receives it.

use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::Either;
use tokio::task::{JoinHandle, spawn_blocking};

use docwharf_serve::body::ResponseBody;
use docwharf_serve::body_chunk::BodyChunk;

/// The number of bytes that are read at a time; a download holds no more than this in memory.
const READ_CHUNK_BYTES: u64 = 256 * 1024;

/// A response body: a text or a part of a bundle, or the body that the site of a preview returns.
pub type OriginBody = Either<ApiBody, ResponseBody>;

/// A response body. Its length is always known.
#[derive(Debug)]
pub enum ApiBody {
    /// Bytes in memory.
    Memory(Bytes),
    /// Bytes of a file, read when the connection polls for them.
    File(FileRangeBody),
}

/// The part of a file that is still to be sent.
#[derive(Debug)]
pub struct FileRangeBody {
    file: Arc<File>,
    position: u64,
    end: u64,
    /// The read that runs on a blocking thread.
    chunk: Option<JoinHandle<io::Result<Bytes>>>,
}

impl ApiBody {
    /// Creates a body without bytes.
    pub fn empty() -> ApiBody {
        ApiBody::Memory(Bytes::new())
    }

    /// Creates a body with the bytes of `file` from `start` up to, but not including, `end`.
    pub fn file_range(file: Arc<File>, start: u64, end: u64) -> ApiBody {
        ApiBody::File(FileRangeBody { file, position: start, end, chunk: None })
    }

    /// Returns the number of bytes that are still to be sent.
    fn remaining(&self) -> u64 {
        match self {
            ApiBody::Memory(text) => text.len() as u64,
            ApiBody::File(range) => range.end - range.position,
        }
    }
}

impl FileRangeBody {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.position >= self.end {
            return Poll::Ready(None);
        }
        let (file, position, len) =
            (&self.file, self.position, (self.end - self.position).min(READ_CHUNK_BYTES) as usize);
        let chunk = self.chunk.get_or_insert_with(|| {
            let file = Arc::clone(file);
            spawn_blocking(move || {
                let mut chunk = vec![0; len];
                // If the file was truncated, this error ends the connection, so that the client notices the missing
                // bytes.
                file.read_exact_at(&mut chunk, position)?;
                Ok(chunk.into())
            })
        });
        let result = ready!(Pin::new(chunk).poll(context));
        self.chunk = None;
        Poll::Ready(Some(match result.map_err(io::Error::other).flatten() {
            Ok(chunk) => {
                self.position += chunk.len() as u64;
                Ok(chunk)
            }
            Err(error) => {
                self.position = self.end;
                Err(error)
            }
        }))
    }
}

impl http_body::Body for ApiBody {
    type Data = BodyChunk;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<io::Result<Frame<BodyChunk>>>> {
        match self.get_mut() {
            ApiBody::Memory(text) if text.is_empty() => Poll::Ready(None),
            ApiBody::Memory(text) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(text).into())))),
            ApiBody::File(range) => {
                range.poll(context).map(|next| next.map(|chunk| chunk.map(|chunk| Frame::data(chunk.into()))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.remaining() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use bytes::Buf;
    use http_body::Body;
    use http_body_util::BodyExt;

    use super::*;

    fn file_with(content: &[u8]) -> Arc<File> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        Arc::new(file)
    }

    #[tokio::test]
    async fn a_file_range_body_is_read_in_chunks_with_an_exact_size_hint() {
        let content: Vec<u8> = (0..700_000_u32).map(|n| (n / 251) as u8).collect();
        let mut body = ApiBody::file_range(file_with(&content), 100, 600_100);
        let mut received = Vec::new();
        assert_eq!(body.size_hint().exact(), Some(600_000));
        while let Some(frame) = body.frame().await {
            let mut piece = frame.unwrap().into_data().unwrap_or_else(|_| panic!("a frame without data"));
            assert!(piece.remaining() as u64 <= READ_CHUNK_BYTES);
            received.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
            assert_eq!(body.size_hint().exact(), Some(600_000 - received.len() as u64));
        }
        assert!(received == content[100..600_100] && body.is_end_stream());
    }

    #[tokio::test]
    async fn a_truncated_file_ends_the_response_body_with_unexpected_eof() {
        let mut body = ApiBody::file_range(file_with(b"0123456789"), 0, 20);
        let error = body.frame().await.expect("a result").map(drop).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(body.frame().await.is_none());
    }
}
