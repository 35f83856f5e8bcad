//! Encoders for the content codings that compress better than gzip and take longer: Brotli (RFC 7932) and Zstandard
//! (RFC 8878). The server never decodes them. (Bundles may be zstd archives; `bundle::archive_stream` reads those.)

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;

/// A content coding (RFC 9110, 8.4.1) that is computed after a version has been activated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ContentCoding {
    /// Brotli, `br`.
    Brotli,
    /// Zstandard, `zstd`.
    Zstd,
}

impl ContentCoding {
    /// All content codings that this module can encode.
    pub const ALL: [ContentCoding; 2] = [ContentCoding::Brotli, ContentCoding::Zstd];

    /// The name of the coding in `Content-Encoding` (RFC 9110, 8.4.1) and in `server.codings`.
    pub fn token(self) -> &'static str {
        match self {
            ContentCoding::Brotli => "br",
            ContentCoding::Zstd => "zstd",
        }
    }

    /// Returns the empty last block with which a stream ends that is [`StreamEnd::Continuable`]: for Brotli a last
    /// meta-block without content (RFC 7932, 9.2), for Zstandard a raw block without content (RFC 8878, 3.1.1.2).
    pub fn empty_last_block(self) -> &'static [u8] {
        match self {
            ContentCoding::Brotli => &[0x03],
            ContentCoding::Zstd => &[0x01, 0x00, 0x00],
        }
    }

    /// Returns the coding with this name. Names are compared byte by byte.
    pub fn from_token(token: &str) -> Option<ContentCoding> {
        ContentCoding::ALL.into_iter().find(|coding| coding.token() == token)
    }
}

/// How an encoded stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// In the shortest way.
    Shortest,
    /// With [`ContentCoding::empty_last_block`] on a byte boundary, and without the length and the checksum of the
    /// content, so that content can be added later ([`super::continuation`]). It takes at most 5 bytes more.
    Continuable,
}

/// The level of an encoder (for Brotli: its quality), chosen by [`choose_encoder_level`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncoderLevel(i32);

/// The largest content of a site in bytes and the Brotli quality up to that size. Measured on the pages of the Python
/// and Rust documentation, on one core, compared with gzip at level 6: the output of quality 11 has 76 % of the size
/// of gzip's output, at 0.8 MB/s; that of quality 10 has 78 %, at 2.7 MB/s; that of quality 5 has 87 %, at 40 MB/s.
/// Qualities between 5 and 10 are as slow as 10, because their tables are cleared for each page. A version therefore
/// costs at most about a minute of one core up to 2.4 GB of content; above that, one second per 40 MB. Examples: 40 s
/// for 32 MiB, 50 s for 128 MiB, and 13 s for the 511 MB of the Rust documentation.
const BROTLI_QUALITIES: [(u64, i32); 2] = [(32 << 20, 11), (128 << 20, 10)];
/// The Brotli quality for larger sites.
const FAST_BROTLI_QUALITY: i32 = 5;

/// The Zstandard level. Zstandard is for the few clients without Brotli. The output of level 9 has 96 % of the
/// size of gzip's output, at 90 MB/s; that of level 15 would have 93 %, at 10 MB/s.
const ZSTD_LEVEL: i32 = 9;

/// The base-2 logarithm of the largest window, for both codings. It is below what decoders must accept (RFC 7932: 24;
/// RFC 9659: 8 MiB).
const MAX_WINDOW_LOG: i32 = 22;

/// Chooses the level for a site with `content_bytes` bytes of content: the larger the site, the less time a page may
/// take.
pub fn choose_encoder_level(coding: ContentCoding, content_bytes: u64) -> EncoderLevel {
    EncoderLevel(match coding {
        ContentCoding::Zstd => ZSTD_LEVEL,
        ContentCoding::Brotli => BROTLI_QUALITIES
            .iter()
            .find(|(max_content_bytes, _)| content_bytes <= *max_content_bytes)
            .map_or(FAST_BROTLI_QUALITY, |(_, quality)| *quality),
    })
}

/// Encodes the content of one file.
pub struct ContentEncoder {
    kind: EncoderKind,
    stream_end: StreamEnd,
}

enum EncoderKind {
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl std::fmt::Debug for ContentEncoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContentEncoder")
    }
}

impl ContentEncoder {
    /// Creates an encoder for a content of exactly `len` bytes.
    pub fn new(
        coding: ContentCoding,
        EncoderLevel(level): EncoderLevel,
        len: u64,
        stream_end: StreamEnd,
    ) -> io::Result<ContentEncoder> {
        let kind = match coding {
            ContentCoding::Brotli => {
                let params = BrotliEncoderParams {
                    quality: level,
                    lgwin: window_log(level, len),
                    size_hint: usize::try_from(len).unwrap_or(usize::MAX),
                    ..BrotliEncoderParams::default()
                };
                EncoderKind::Brotli(Box::new(CompressorWriter::with_params(Vec::new(), 16 << 10, &params)))
            }
            ContentCoding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
                // The encoder always needs the length, for the sizes of its tables. By default, it writes no checksum.
                encoder.include_contentsize(stream_end == StreamEnd::Shortest)?;
                encoder.set_pledged_src_size(Some(len))?;
                encoder.window_log(window_log(0, len).cast_unsigned())?;
                EncoderKind::Zstd(encoder)
            }
        };
        Ok(ContentEncoder { kind, stream_end })
    }

    /// Encodes the next bytes of the content.
    pub fn write(&mut self, content: &[u8]) -> io::Result<()> {
        match &mut self.kind {
            EncoderKind::Brotli(encoder) => encoder.write_all(content),
            EncoderKind::Zstd(encoder) => encoder.write_all(content),
        }
    }

    /// The number of encoded bytes so far. The encoder may still hold more in its buffer.
    pub fn encoded_len(&self) -> usize {
        match &self.kind {
            EncoderKind::Brotli(encoder) => encoder.get_ref().len(),
            EncoderKind::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    /// Ends the encoding and returns all encoded bytes.
    pub fn finish(mut self) -> io::Result<Vec<u8>> {
        if self.stream_end == StreamEnd::Shortest {
            return match self.kind {
                EncoderKind::Brotli(encoder) => Ok(encoder.into_inner()),
                EncoderKind::Zstd(encoder) => encoder.finish(),
            };
        }
        // A flush ends the current block, and in Brotli it ends on a byte boundary.
        match &mut self.kind {
            EncoderKind::Brotli(encoder) => encoder.flush()?,
            EncoderKind::Zstd(encoder) => encoder.flush()?,
        }
        let flushed_len = self.encoded_len();
        let (bytes, is_continuable) = match self.kind {
            EncoderKind::Brotli(encoder) => {
                let bytes = encoder.into_inner();
                // Only as a byte of its own is it the last block. It could also be the end of another block.
                let is_continuable = bytes[flushed_len..] == *ContentCoding::Brotli.empty_last_block();
                (bytes, is_continuable)
            }
            EncoderKind::Zstd(encoder) => {
                let bytes = encoder.finish()?;
                let is_continuable = bytes[flushed_len..].ends_with(ContentCoding::Zstd.empty_last_block());
                (bytes, is_continuable)
            }
        };
        if !is_continuable {
            return Err(io::Error::other("the encoder did not end a stream with an empty block"));
        }
        Ok(bytes)
    }
}

/// Returns the base-2 logarithm of the smallest window that holds the content: at high qualities the encoder's tables
/// grow with the window. At the quality [`FAST_BROTLI_QUALITY`] a small window would select other tables, which are
/// slower.
fn window_log(brotli_quality: i32, len: u64) -> i32 {
    if brotli_quality == FAST_BROTLI_QUALITY {
        return MAX_WINDOW_LOG;
    }
    (16..MAX_WINDOW_LOG).find(|window| (1u64 << window) - 16 >= len).unwrap_or(MAX_WINDOW_LOG)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decode(coding: ContentCoding, coded: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            ContentCoding::Brotli => {
                brotli_decompressor::Decompressor::new(coded, 4096).read_to_end(&mut content).unwrap()
            }
            ContentCoding::Zstd => zstd::stream::read::Decoder::new(coded).unwrap().read_to_end(&mut content).unwrap(),
        };
        content
    }

    #[test]
    fn encoded_content_decodes_at_any_level_and_size() {
        for len in [0usize, 1, 65_519, 65_520, 65_521, 300_000, 5_000_000] {
            let content: Vec<u8> = (0..len).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
            for coding in ContentCoding::ALL {
                for site_bytes in [0, 64 << 20, 1 << 30] {
                    if len > 1_000_000 && site_bytes < 1 << 30 {
                        continue; // slow, and the same code
                    }
                    let encode = |stream_end: StreamEnd| {
                        let level = choose_encoder_level(coding, site_bytes);
                        let mut encoder = ContentEncoder::new(coding, level, len as u64, stream_end).unwrap();
                        content.chunks(70_001).for_each(|piece| encoder.write(piece).unwrap());
                        encoder.finish().unwrap()
                    };
                    let case = format!("{coding:?} of {len} bytes in a site of {site_bytes}");
                    let (shortest, continuable) = (encode(StreamEnd::Shortest), encode(StreamEnd::Continuable));
                    assert!(decode(coding, &shortest) == content, "{case}");
                    assert!(decode(coding, &continuable) == content, "{case}: continuable");
                    assert!(continuable.ends_with(coding.empty_last_block()), "{case}");
                    assert!(continuable.len() <= shortest.len() + 5, "{case}: {} bytes", continuable.len());
                }
            }
        }
    }

    #[test]
    fn brotli_quality_decreases_with_the_size_of_the_site() {
        let quality = |content: u64| choose_encoder_level(ContentCoding::Brotli, content).0;
        assert_eq!([0, 32 << 20, (32 << 20) + 1, 128 << 20, 511_000_000].map(quality), [11, 11, 10, 10, 5]);
    }

    #[test]
    fn codings_have_http_tokens_and_windows_fit_the_content() {
        assert_eq!(ContentCoding::ALL.map(ContentCoding::token), ["br", "zstd"]);
        for (token, coding) in [
            ("br", Some(ContentCoding::Brotli)),
            ("zstd", Some(ContentCoding::Zstd)),
            ("BR", None),
            ("gzip", None),
            ("", None),
        ] {
            assert_eq!(ContentCoding::from_token(token), coding, "{token}");
        }
        for (len, bits) in [
            (0, 16),
            ((1 << 16) - 16, 16),
            ((1 << 16) - 15, 17),
            ((1 << 21) - 16, 21),
            ((1 << 21) - 15, 22),
            (u64::MAX, 22),
        ] {
            assert_eq!((window_log(11, len), window_log(FAST_BROTLI_QUALITY, len)), (bits, 22), "{len}");
        }
        assert_eq!(
            [0, u64::MAX].map(|content| choose_encoder_level(ContentCoding::Zstd, content)),
            [EncoderLevel(ZSTD_LEVEL); 2]
        );
        for coding in ContentCoding::ALL {
            let level = choose_encoder_level(coding, 0);
            let mut encoder = ContentEncoder::new(coding, level, 3, StreamEnd::Shortest).unwrap();
            encoder.write(b"abc").unwrap();
            let encoded_len = encoder.encoded_len();
            assert!(encoded_len <= encoder.finish().unwrap().len(), "{coding:?}");
        }
    }
}
