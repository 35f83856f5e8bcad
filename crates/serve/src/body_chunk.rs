//! A chunk of a response body: a slice of the image, and the gzip header and trailer around it.

use std::io::IoSlice;

use bytes::{Buf, Bytes};

use docwharf_base::codec::gzip;
use docwharf_site::memfd_arena::MemfdRange;

/// A piece of a response body: bytes of the image without a copy, and the gzip header and trailer around them.
#[derive(Debug, Clone)]
pub struct BodyChunk {
    header: &'static [u8],
    bytes: Bytes,
    trailer: [u8; gzip::GZIP_TRAILER_BYTES],
    /// The number of sent bytes of `trailer`; its length if there is no trailer.
    trailer_sent: usize,
    /// The range of `bytes` in a memfd, from which the kernel can send them.
    memfd_range: Option<MemfdRange>,
}

impl From<Bytes> for BodyChunk {
    fn from(bytes: Bytes) -> BodyChunk {
        BodyChunk::with_memfd_range(bytes, None)
    }
}

impl BodyChunk {
    /// Creates a chunk of `bytes` between `header` and `trailer`.
    pub fn framed(header: &'static [u8], bytes: Bytes, trailer: [u8; gzip::GZIP_TRAILER_BYTES]) -> BodyChunk {
        BodyChunk { header, bytes, trailer, trailer_sent: 0, memfd_range: None }
    }

    /// Creates a chunk of bytes that may also be in a memfd, from which the kernel can send them.
    pub(super) fn with_memfd_range(bytes: Bytes, memfd_range: Option<MemfdRange>) -> BodyChunk {
        BodyChunk {
            header: &[],
            bytes,
            trailer: [0; gzip::GZIP_TRAILER_BYTES],
            trailer_sent: gzip::GZIP_TRAILER_BYTES,
            memfd_range,
        }
    }

    /// Returns the range of the bytes in a memfd, from which the kernel can send them.
    pub(super) fn memfd_range(&self) -> Option<&MemfdRange> {
        self.memfd_range.as_ref()
    }

    /// Discards the range in the memfd, because the kernel could not send from it.
    pub(super) fn clear_memfd_range(&mut self) {
        self.memfd_range = None;
    }

    /// Returns the first `n` bytes: those of the header, then a buffer and how many of its bytes belong to them, then
    /// those of the trailer.
    pub(super) fn first_bytes(&self, n: usize) -> (&[u8], (&Bytes, usize), &[u8]) {
        let header_len = n.min(self.header.len());
        let bytes_len = (n - header_len).min(self.bytes.len());
        let trailer_len = n - header_len - bytes_len;
        (&self.header[..header_len], (&self.bytes, bytes_len), &self.trailer[self.trailer_sent..][..trailer_len])
    }

    /// Returns header, bytes and trailer as three slices that can be cut.
    pub fn parts(&self) -> [Bytes; 3] {
        [
            Bytes::from_static(self.header),
            self.bytes.clone(),
            Bytes::copy_from_slice(&self.trailer[self.trailer_sent..]),
        ]
    }
}

impl Buf for BodyChunk {
    fn remaining(&self) -> usize {
        self.header.len() + self.bytes.len() + self.trailer.len() - self.trailer_sent
    }

    fn chunk(&self) -> &[u8] {
        match (self.header, &self.bytes[..]) {
            ([], []) => &self.trailer[self.trailer_sent..],
            ([], bytes) => bytes,
            (header, _) => header,
        }
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut n = 0;
        for part in [self.header, &self.bytes, &self.trailer[self.trailer_sent..]] {
            if !part.is_empty() && n < slices.len() {
                slices[n] = IoSlice::new(part);
                n += 1;
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
        let trailer_len = count - header_len - bytes_len;
        assert!(trailer_len <= self.trailer.len() - self.trailer_sent, "advanced beyond the end");
        self.trailer_sent += trailer_len;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framed_chunk_yields_prefix_data_and_suffix_after_any_advance() {
        let (front, bytes, back) = (b"ab", b"cdefg", *b"01234567");
        let whole = [&front[..], bytes, &back].concat();
        for taken in 0..=whole.len() {
            for step in [1, 2, 4, whole.len()] {
                let mut chunk = BodyChunk::framed(front, Bytes::from_static(bytes), back);
                let mut remaining = taken;
                while remaining > 0 {
                    chunk.advance(remaining.min(step));
                    remaining -= remaining.min(step);
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
