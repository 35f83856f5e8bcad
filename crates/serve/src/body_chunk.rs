//! A chunk of a response body: a slice of the image, and the bytes around it: the gzip header and trailer, or the tag
//! that is inserted into a page.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

use docwharf_base::codec::continuation::StreamContinuation;
use docwharf_base::codec::gzip;
use docwharf_site::memfd_arena::MemfdRange;

/// A piece of a response body: bytes of the image without a copy, and the bytes around them.
#[derive(Debug, Clone)]
pub struct BodyChunk {
    header: &'static [u8],
    bytes: Bytes,
    trailer: [u8; gzip::GZIP_TRAILER_BYTES],
    /// The number of sent bytes of `trailer`; its length if there is no trailer.
    trailer_sent: usize,
    /// The range of `bytes` in a memfd, from which the kernel can send them.
    memfd_range: Option<MemfdRange>,
    /// The parts after `bytes` of a page with an inserted tag. Such a chunk has no `trailer`.
    continuation: Option<Box<ChunkContinuation>>,
}

/// The parts of a page with an inserted tag that follow the first bytes of the image.
#[derive(Debug, Clone, Default)]
struct ChunkContinuation {
    /// The byte of the image in which the mark of the last DEFLATE block is cleared, if it is not part of `end`.
    changed: Option<u8>,
    /// The bytes of the image that follow it.
    rest: Bytes,
    /// The tag, and the bytes of its coding and of the gzip trailer.
    end: Vec<u8>,
    /// The number of sent bytes of `end`.
    end_sent: usize,
}

impl ChunkContinuation {
    fn unsent_end(&self) -> &[u8] {
        &self.end[self.end_sent..]
    }

    fn remaining(&self) -> usize {
        self.changed.as_slice().len() + self.rest.len() + self.unsent_end().len()
    }

    fn chunk(&self) -> &[u8] {
        match (self.changed.as_slice(), &self.rest[..]) {
            ([], []) => self.unsent_end(),
            ([], rest) => rest,
            (changed, _) => changed,
        }
    }

    fn advance(&mut self, count: usize) {
        let changed_len = count.min(self.changed.as_slice().len());
        if changed_len > 0 {
            self.changed = None;
        }
        let rest_len = (count - changed_len).min(self.rest.len());
        self.rest.advance(rest_len);
        let end_len = count - changed_len - rest_len;
        assert!(end_len <= self.unsent_end().len(), "advanced beyond the end");
        self.end_sent += end_len;
    }
}

/// A part of a chunk.
#[derive(Debug)]
pub(super) enum ChunkPart<'a> {
    /// A few bytes, which are best copied.
    Short(&'a [u8]),
    /// The first bytes of a buffer, and how many of them.
    Shared(&'a Bytes, usize),
}

impl From<Bytes> for BodyChunk {
    fn from(bytes: Bytes) -> BodyChunk {
        BodyChunk::with_memfd_range(bytes, None)
    }
}

impl BodyChunk {
    /// Creates a chunk of `bytes` between `header` and `trailer`.
    pub fn framed(header: &'static [u8], bytes: Bytes, trailer: [u8; gzip::GZIP_TRAILER_BYTES]) -> BodyChunk {
        BodyChunk { header, bytes, trailer, trailer_sent: 0, memfd_range: None, continuation: None }
    }

    /// Creates a chunk of bytes that may also be in a memfd, from which the kernel can send them.
    pub(super) fn with_memfd_range(bytes: Bytes, memfd_range: Option<MemfdRange>) -> BodyChunk {
        BodyChunk {
            header: &[],
            bytes,
            trailer: [0; gzip::GZIP_TRAILER_BYTES],
            trailer_sent: gzip::GZIP_TRAILER_BYTES,
            memfd_range,
            continuation: None,
        }
    }

    /// Creates a chunk of `header` and of the coded stream `bytes`, to which content was added.
    pub(super) fn continued(header: &'static [u8], mut bytes: Bytes, stream: StreamContinuation) -> BodyChunk {
        let StreamContinuation { kept_len, changed, end } = stream;
        bytes.truncate(kept_len);
        let mut continuation = ChunkContinuation { end, ..ChunkContinuation::default() };
        if let Some((offset, byte)) = changed.filter(|(offset, _)| *offset < bytes.len()) {
            continuation.rest = bytes.split_off(offset);
            continuation.rest.advance(1);
            continuation.changed = Some(byte);
        }
        BodyChunk { header, continuation: Some(Box::new(continuation)), ..BodyChunk::from(bytes) }
    }

    /// Appends a copy of `end` to a chunk without a trailer.
    pub(super) fn followed_by(self, end: &[u8]) -> BodyChunk {
        debug_assert!(self.trailer_sent == self.trailer.len() && self.continuation.is_none(), "the chunk has an end");
        let continuation = ChunkContinuation { end: end.to_vec(), ..ChunkContinuation::default() };
        BodyChunk { continuation: Some(Box::new(continuation)), ..self }
    }

    /// Returns the range in a memfd of the next bytes, from which the kernel can send them, and their number.
    pub(super) fn memfd_range(&self) -> Option<(&MemfdRange, usize)> {
        let range = self.memfd_range.as_ref().filter(|_| self.header.is_empty() && !self.bytes.is_empty())?;
        Some((range, self.bytes.len()))
    }

    /// Discards the range in the memfd, because the kernel could not send from it.
    pub(super) fn clear_memfd_range(&mut self) {
        self.memfd_range = None;
    }

    /// Passes the first `n` bytes to `visit`, part by part.
    pub(super) fn visit_first_bytes<'a>(&'a self, n: usize, mut visit: impl FnMut(ChunkPart<'a>)) {
        let mut left = n;
        let mut take = |len: usize| {
            let taken = len.min(left);
            left -= taken;
            taken
        };
        visit(ChunkPart::Short(&self.header[..take(self.header.len())]));
        visit(ChunkPart::Shared(&self.bytes, take(self.bytes.len())));
        match &self.continuation {
            None => {
                let trailer = self.unsent_trailer();
                visit(ChunkPart::Short(&trailer[..take(trailer.len())]));
            }
            Some(continuation) => {
                let (changed, end) = (continuation.changed.as_slice(), continuation.unsent_end());
                visit(ChunkPart::Short(&changed[..take(changed.len())]));
                visit(ChunkPart::Shared(&continuation.rest, take(continuation.rest.len())));
                visit(ChunkPart::Short(&end[..take(end.len())]));
            }
        }
    }

    /// Returns all bytes as slices that can be cut. Some of them may be empty.
    pub fn parts(&self) -> [Bytes; 5] {
        let [changed, rest, end] = match &self.continuation {
            None => [Bytes::new(), Bytes::new(), Bytes::copy_from_slice(self.unsent_trailer())],
            Some(continuation) => [
                Bytes::copy_from_slice(continuation.changed.as_slice()),
                continuation.rest.clone(),
                Bytes::copy_from_slice(continuation.unsent_end()),
            ],
        };
        [Bytes::from_static(self.header), self.bytes.clone(), changed, rest, end]
    }

    fn unsent_trailer(&self) -> &[u8] {
        &self.trailer[self.trailer_sent..]
    }
}

impl Buf for BodyChunk {
    fn remaining(&self) -> usize {
        let end_len = match &self.continuation {
            None => self.unsent_trailer().len(),
            Some(continuation) => continuation.remaining(),
        };
        self.header.len() + self.bytes.len() + end_len
    }

    fn chunk(&self) -> &[u8] {
        match (self.header, &self.bytes[..], &self.continuation) {
            ([], [], None) => self.unsent_trailer(),
            ([], [], Some(continuation)) => continuation.chunk(),
            ([], bytes, _) => bytes,
            (header, ..) => header,
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        let mut add = |part: &'a [u8]| {
            if !part.is_empty() && n < slices.len() {
                slices[n] = IoSlice::new(part);
                n += 1;
            }
        };
        add(self.header);
        add(&self.bytes);
        match &self.continuation {
            None => add(self.unsent_trailer()),
            Some(continuation) => {
                add(continuation.changed.as_slice());
                add(&continuation.rest);
                add(continuation.unsent_end());
            }
        }
        n
    }

    fn advance(&mut self, count: usize) {
        let header_len = count.min(self.header.len());
        self.header = &self.header[header_len..];
        let bytes_len = (count - header_len).min(self.bytes.len());
        self.bytes.advance(bytes_len);
        if let Some(range) = &mut self.memfd_range {
            range.offset += bytes_len as u64;
        }
        let end_len = count - header_len - bytes_len;
        if let Some(continuation) = &mut self.continuation {
            return continuation.advance(end_len);
        }
        assert!(end_len <= self.trailer.len() - self.trailer_sent, "advanced beyond the end");
        self.trailer_sent += end_len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks every method of a chunk with these bytes, after any number of bytes was sent in steps of any length.
    fn check_chunk(make_chunk: impl Fn() -> BodyChunk, whole: &[u8]) {
        for taken in 0..=whole.len() {
            for step in [1, 2, 4, whole.len().max(1)] {
                let mut chunk = make_chunk();
                let mut remaining = taken;
                while remaining > 0 {
                    chunk.advance(remaining.min(step));
                    remaining -= remaining.min(step);
                }
                let rest = &whole[taken..];
                assert_eq!((chunk.remaining(), chunk.has_remaining()), (rest.len(), !rest.is_empty()));
                assert!(rest.starts_with(chunk.chunk()) && chunk.chunk().is_empty() == rest.is_empty());
                assert_eq!(chunk.parts().concat(), rest);
                assert_eq!(chunk.clone().copy_to_bytes(rest.len()), rest);
                for n in 0..=rest.len() {
                    let mut first = Vec::new();
                    chunk.visit_first_bytes(n, |part| match part {
                        ChunkPart::Short(bytes) => first.extend_from_slice(bytes),
                        ChunkPart::Shared(bytes, len) => first.extend_from_slice(&bytes[..len]),
                    });
                    assert_eq!(first, &rest[..n], "{n} behind {taken}");
                }
                let mut slices = [IoSlice::new(&[]); 6];
                let count = chunk.chunks_vectored(&mut slices);
                assert_eq!(slices[..count].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>(), rest);
                assert!(slices[..count].iter().all(|slice| !slice.is_empty()));
                let few = chunk.chunks_vectored(&mut slices[..1]);
                assert_eq!(few, usize::from(!rest.is_empty()));
            }
        }
    }

    #[test]
    fn a_framed_chunk_yields_prefix_data_and_suffix_after_any_advance() {
        let (front, bytes, back) = (b"ab", b"cdefg", *b"01234567");
        let whole = [&front[..], bytes, &back].concat();
        check_chunk(|| BodyChunk::framed(front, Bytes::from_static(bytes), back), &whole);
        check_chunk(|| Bytes::from_static(bytes).into(), bytes);
    }

    #[test]
    fn a_continued_chunk_yields_the_kept_the_changed_and_the_added_bytes_after_any_advance() {
        for (kept_len, changed, expected) in [
            (8, None, &b"ab01234567end"[..]),
            (6, None, b"ab012345end"),
            (0, None, b"abend"),
            (8, Some((0, b'X')), b"abX1234567end"),
            (8, Some((3, b'X')), b"ab012X4567end"),
            (8, Some((7, b'X')), b"ab0123456Xend"),
            (1, Some((0, b'X')), b"abXend"),
        ] {
            let stream = StreamContinuation { kept_len, changed, end: b"end".to_vec() };
            check_chunk(|| BodyChunk::continued(b"ab", Bytes::from_static(b"01234567"), stream.clone()), expected);
            let without_header = || BodyChunk::continued(b"", Bytes::from(b"01234567".to_vec()), stream.clone());
            check_chunk(without_header, &expected[2..]);
        }
        for (bytes, end, expected) in [("page", "tag", "pagetag"), ("", "tag", "tag"), ("page", "", "page")] {
            check_chunk(
                || BodyChunk::from(Bytes::from_static(bytes.as_bytes())).followed_by(end.as_bytes()),
                expected.as_bytes(),
            );
        }
    }
}
