//! A chunk of a response body: a slice of the image, and the gzip header and trailer around it.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

use docwharf_base::codec::gzip;
use docwharf_site::memfd_arena::ArenaRange;

/// A piece of a body that is sent in one go: bytes of the image without a copy, and the gzip header and trailer around
/// them.
#[derive(Debug, Clone)]
pub struct BodyChunk {
    front: &'static [u8],
    bytes: Bytes,
    back: [u8; gzip::TRAILER_BYTES],
    /// The offset in `back` of the first byte that is still to be sent; the length of `back` if there is no trailer.
    back_at: usize,
    /// The place of `bytes` in a file from which the kernel can send them.
    lies: Option<ArenaRange>,
}

impl From<Bytes> for BodyChunk {
    fn from(bytes: Bytes) -> BodyChunk {
        BodyChunk::with_file_location(bytes, None)
    }
}

impl BodyChunk {
    /// Creates a chunk of `bytes` between `front` and `back`.
    pub fn framed(front: &'static [u8], bytes: Bytes, back: [u8; gzip::TRAILER_BYTES]) -> BodyChunk {
        BodyChunk { front, bytes, back, back_at: 0, lies: None }
    }

    /// Creates a chunk of bytes that may also be in a file from which the kernel can send them.
    pub(super) fn with_file_location(bytes: Bytes, lies: Option<ArenaRange>) -> BodyChunk {
        BodyChunk { front: &[], bytes, back: [0; gzip::TRAILER_BYTES], back_at: gzip::TRAILER_BYTES, lies }
    }

    /// Returns the place of the bytes in a file from which the kernel can send them.
    pub(super) fn lies(&self) -> Option<&ArenaRange> {
        self.lies.as_ref()
    }

    /// Discards the place in a file, because the kernel could not send from it.
    pub(super) fn clear_file_location(&mut self) {
        self.lies = None;
    }

    /// Returns the first `n` bytes: those of the header, the bytes of the body with the number of them that count, and
    /// those of the trailer.
    pub(super) fn first_bytes(&self, n: usize) -> (&[u8], (&Bytes, usize), &[u8]) {
        let front = n.min(self.front.len());
        let bytes = (n - front).min(self.bytes.len());
        let back = n - front - bytes;
        (&self.front[..front], (&self.bytes, bytes), &self.back[self.back_at..][..back])
    }

    /// Returns header, bytes and trailer as three slices that can be cut.
    pub fn parts(&self) -> [Bytes; 3] {
        [Bytes::from_static(self.front), self.bytes.clone(), Bytes::copy_from_slice(&self.back[self.back_at..])]
    }
}

impl Buf for BodyChunk {
    fn remaining(&self) -> usize {
        self.front.len() + self.bytes.len() + self.back.len() - self.back_at
    }

    fn chunk(&self) -> &[u8] {
        match (self.front, &self.bytes[..]) {
            ([], []) => &self.back[self.back_at..],
            ([], bytes) => bytes,
            (front, _) => front,
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        for part in [self.front, &self.bytes, &self.back[self.back_at..]] {
            if !part.is_empty() && n < slices.len() {
                slices[n] = IoSlice::new(part);
                n += 1;
            }
        }
        n
    }

    fn advance(&mut self, count: usize) {
        let front = count.min(self.front.len());
        self.front = &self.front[front..];
        let bytes = (count - front).min(self.bytes.len());
        self.bytes.advance(bytes);
        if let Some(lies) = &mut self.lies {
            lies.offset += bytes as u64;
        }
        let back = count - front - bytes;
        assert!(back <= self.back.len() - self.back_at, "advanced beyond the end");
        self.back_at += back;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framed_chunk_is_its_three_parts_however_much_of_it_was_taken() {
        let (front, bytes, back) = (b"ab", b"cdefg", *b"01234567");
        let whole = [&front[..], bytes, &back].concat();
        for taken in 0..=whole.len() {
            for step in [1, 2, 4, whole.len()] {
                let mut chunk = BodyChunk::framed(front, Bytes::from_static(bytes), back);
                let mut left = taken;
                while left > 0 {
                    chunk.advance(left.min(step));
                    left -= left.min(step);
                }
                let rest = &whole[taken..];
                assert_eq!((chunk.remaining(), chunk.has_remaining()), (rest.len(), !rest.is_empty()));
                assert!(rest.starts_with(chunk.chunk()) && chunk.chunk().is_empty() == rest.is_empty());
                assert_eq!(chunk.parts().concat(), rest);
                for n in 0..=rest.len() {
                    let (front, (bytes, some), back) = chunk.first_bytes(n);
                    assert_eq!([front, &bytes[..some], back].concat(), &rest[..n], "{n} behind {taken}");
                }
                let mut slices = [IoSlice::new(&[]); 4];
                let count = chunk.chunks_vectored(&mut slices);
                assert_eq!(slices[..count].iter().flat_map(|slice| slice.to_vec()).collect::<Vec<u8>>(), rest);
                assert!(slices[..count].iter().all(|slice| !slice.is_empty()));
                let few = chunk.chunks_vectored(&mut slices[..1]);
                assert_eq!(few, usize::from(!rest.is_empty()));
            }
        }
    }
}
