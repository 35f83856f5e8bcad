//! Encodes raw DEFLATE (RFC 1951). The position of the last block of each stream is known without decoding the stream.

use flate2::{Compress, Compression, FlushCompress};

/// The position of the last block of a stream of [`Deflater`], which the index of a version stores. Every such stream
/// ends with an empty block with fixed codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeflateStreamEnd {
    /// The bit at which the header of the last block begins, counted from the start of the stream.
    pub last_block_bit: u64,
    /// The number of bits in the last byte that do not belong to the stream.
    pub spare_bits: u8,
}

/// Encodes one stream after another and reuses its memory for each.
#[derive(Debug)]
pub struct Deflater {
    compressor: Compress,
}

impl Deflater {
    /// Creates an encoder with a compression level of zlib, 1 to 9.
    pub fn new(level: u32) -> Self {
        Deflater { compressor: Compress::new(Compression::new(level), false) }
    }

    /// Encodes more content of the current stream. Output that is ready is appended to `out`.
    pub fn write(&mut self, content: &[u8], out: &mut Vec<u8>) {
        self.compress(content, out, FlushCompress::None);
    }

    /// Ends the stream and prepares for the next one.
    ///
    /// A sync flush ends on a byte boundary. An empty block with fixed codes and the final bit set follows it (RFC
    /// 1951, 3.2.6; bits in the order of the stream: header `1 10`, end of block `0000000`).
    pub fn finish(&mut self, out: &mut Vec<u8>) -> DeflateStreamEnd {
        self.compress(&[], out, FlushCompress::Sync);
        let stream_end = DeflateStreamEnd { last_block_bit: self.compressor.total_out() * 8, spare_bits: 6 };
        out.extend_from_slice(&[0x03, 0x00]);
        self.compressor.reset();
        stream_end
    }

    /// Encodes `content` as a whole stream.
    pub fn encode_all(&mut self, content: &[u8], out: &mut Vec<u8>) -> DeflateStreamEnd {
        out.reserve(content.len() / 4 + 128);
        self.write(content, out);
        self.finish(out)
    }

    fn compress(&mut self, mut content: &[u8], out: &mut Vec<u8>, flush: FlushCompress) {
        loop {
            if out.capacity() - out.len() < 64 {
                out.reserve((content.len() / 4).max(4096));
            }
            let (read_before, written_before) = (self.compressor.total_in(), self.compressor.total_out());
            // zlib fails here only when a stream is used after its end, which `finish` rules out.
            if self.compressor.compress_vec(content, out, flush).is_err() {
                unreachable!("the encoder is reset after each stream");
            }
            content = &content[(self.compressor.total_in() - read_before) as usize..];
            let is_stuck = self.compressor.total_out() == written_before;
            if content.is_empty() && (out.len() < out.capacity() || is_stuck) {
                return;
            }
        }
    }
}
