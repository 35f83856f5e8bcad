//! Encodes raw DEFLATE (RFC 1951). Each stream ends so that the position of its last block is known without decoding
//! it.

use flate2::{Compress, Compression, FlushCompress};

/// The position at which a stream of [`Deflater`] can be continued. Every such stream ends with an empty block with
/// fixed codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateStreamEnd {
    /// The bit at which the header of the last block begins, counted from the start of the stream.
    pub last_header_bit: u64,
    /// The number of bits in the last byte that do not belong to the stream.
    pub spare_bits: u8,
}

/// Encodes one stream after another and reuses its memory for each.
#[derive(Debug)]
pub struct Deflater {
    raw: Compress,
}

impl Deflater {
    /// Creates an encoder with a compression level of zlib, 1 to 9.
    pub fn new(level: u32) -> Self {
        Deflater { raw: Compress::new(Compression::new(level), false) }
    }

    /// Encodes more content of the current stream. Output that is ready is appended to `out`.
    pub fn write(&mut self, content: &[u8], out: &mut Vec<u8>) {
        self.feed(content, out, FlushCompress::None);
    }

    /// Ends the stream and prepares for the next one.
    ///
    /// A sync flush ends on a byte boundary. An empty block with fixed codes and the final bit set follows it (RFC
    /// 1951, 3.2.6; bits in the order of the stream: header `1 10`, end of block `0000000`). A server may append to
    /// the page at this block.
    pub fn finish(&mut self, out: &mut Vec<u8>) -> DeflateStreamEnd {
        self.feed(&[], out, FlushCompress::Sync);
        let ending = DeflateStreamEnd { last_header_bit: self.raw.total_out() * 8, spare_bits: 6 };
        out.extend_from_slice(&[0x03, 0x00]);
        self.raw.reset();
        ending
    }

    /// Encodes `content` as a whole stream.
    pub fn encode_all(&mut self, content: &[u8], out: &mut Vec<u8>) -> DeflateStreamEnd {
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
