//! The encoder: raw DEFLATE at low effort, ended so that the place of the last block is known without reading it again.

use flate2::{Compress, Compression, FlushCompress};

/// Where a stream that [`Deflater`] wrote can be continued: it always ends with an empty fixed block of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// The bit at which the last block's header stands.
    pub last_header_bit: u64,
    /// Bits of the last byte that do not belong to the stream.
    pub spare_bits: u8,
}

/// Encodes one stream after another, keeping its memory.
#[derive(Debug)]
pub struct Deflater {
    raw: Compress,
}

impl Deflater {
    /// `level` is zlib's, 1 to 9.
    pub fn new(level: u32) -> Self {
        Deflater { raw: Compress::new(Compression::new(level), false) }
    }

    /// Adds content of the current stream; what comes out is appended to `out`.
    pub fn write(&mut self, content: &[u8], out: &mut Vec<u8>) {
        self.feed(content, out, FlushCompress::None);
    }

    /// Ends the stream and makes ready for the next.
    ///
    /// A sync flush ends on a byte boundary; behind it stands one empty fixed block with the final bit set (RFC 1951,
    /// 3.2.6: header `1 10`, end of block `0000000`), the place where a server may add to the page.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> Ending {
        self.feed(&[], out, FlushCompress::Sync);
        let ending = Ending { last_header_bit: self.raw.total_out() * 8, spare_bits: 6 };
        out.extend_from_slice(&[0x03, 0x00]);
        self.raw.reset();
        ending
    }

    /// A whole stream at once.
    pub fn all(&mut self, content: &[u8], out: &mut Vec<u8>) -> Ending {
        out.reserve(content.len() / 4 + 128);
        self.write(content, out);
        self.finish(out)
    }

    fn feed(&mut self, mut content: &[u8], out: &mut Vec<u8>, flush: FlushCompress) {
        loop {
            if out.capacity() - out.len() < 64 {
                out.reserve((content.len() / 4).max(4096));
            }
            let (read, written) = (self.raw.total_in(), self.raw.total_out());
            // zlib fails here only when a stream is used after its end, which `finish` rules out.
            if self.raw.compress_vec(content, out, flush).is_err() {
                unreachable!("the encoder is reset after each stream");
            }
            content = &content[(self.raw.total_in() - read) as usize..];
            let stuck = self.raw.total_out() == written;
            if content.is_empty() && (out.len() < out.capacity() || stuck) {
                return;
            }
        }
    }
}
