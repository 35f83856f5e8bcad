//! Response bodies: slices of the image, or a page being inflated as fast as the client takes it.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::codec::inflate::{Inflate, Status};

/// A response body. Its length is always known.
#[derive(Debug)]
pub enum Body {
    /// Bytes that are there.
    Parts(VecDeque<Bytes>),
    /// Bytes that are being made.
    Inflating(Box<Inflating>),
}

/// A DEFLATE stream being decoded piece by piece.
#[derive(Debug)]
pub struct Inflating {
    coded: Bytes,
    at: usize,
    inflate: Inflate,
    left: u64,
}

impl Body {
    /// No bytes.
    pub fn empty() -> Body {
        Body::Parts(VecDeque::new())
    }

    /// These bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        Body::parts([bytes.into()])
    }

    /// These bytes, one after the other.
    pub fn parts(parts: impl IntoIterator<Item = Bytes>) -> Body {
        Body::Parts(parts.into_iter().filter(|part| !part.is_empty()).collect())
    }

    /// The `len` bytes that `coded` expands to.
    pub fn inflating(coded: Bytes, len: u64) -> Body {
        if len == 0 {
            return Body::empty();
        }
        Body::Inflating(Box::new(Inflating { coded, at: 0, inflate: Inflate::new(), left: len }))
    }

    /// The bytes from `start` up to, not including, `end` of a body that is there.
    pub fn slice(parts: &[Bytes], start: u64, end: u64) -> Body {
        Body::Parts(Body::cut(parts, start, end).collect())
    }

    /// The same as pieces, to be put together with others.
    pub fn cut(parts: &[Bytes], start: u64, end: u64) -> impl Iterator<Item = Bytes> {
        let mut at = 0u64;
        parts.iter().filter_map(move |part| {
            let len = part.len() as u64;
            let (from, to) = (start.clamp(at, at + len) - at, end.clamp(at, at + len) - at);
            at += len;
            (from < to).then(|| part.slice(from as usize..to as usize))
        })
    }

    /// Bytes still to come.
    pub fn len(&self) -> u64 {
        match self {
            Body::Parts(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            Body::Inflating(inflating) => inflating.left,
        }
    }

    /// Whether nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Inflating {
    fn next(&mut self) -> Option<Bytes> {
        while self.left > 0 {
            // The stream was proved when it was sealed; if the file has rotted since, the response ends short, which
            // the client notices by its length.
            let step = self.inflate.run(&self.coded[self.at..], true).ok()?;
            self.at += step.consumed;
            let output = self.inflate.output();
            let output = &output[..output.len().min(usize::try_from(self.left).unwrap_or(usize::MAX))];
            self.left -= output.len() as u64;
            if !output.is_empty() {
                return Some(Bytes::copy_from_slice(output));
            }
            if step.status == Status::Done {
                return None;
            }
        }
        None
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = match self.get_mut() {
            Body::Parts(parts) => parts.pop_front(),
            Body::Inflating(inflating) => inflating.next(),
        };
        Poll::Ready(next.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}
