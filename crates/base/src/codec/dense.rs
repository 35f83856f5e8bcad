//! Codings that are smaller than gzip and take longer to make: Brotli (RFC 7932) and Zstandard (RFC 8878). Encoders only;
//! whoever reads them is a browser.

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;

/// A content coding that is made after a version has been activated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dense {
    /// `br`
    Brotli,
    /// `zstd`
    Zstd,
}

impl Dense {
    /// All of them.
    pub const ALL: [Dense; 2] = [Dense::Brotli, Dense::Zstd];

    /// The name that `Content-Encoding` and `server.codings` have for it (RFC 9110, 8.4.1).
    pub fn token(self) -> &'static str {
        match self {
            Dense::Brotli => "br",
            Dense::Zstd => "zstd",
        }
    }

    /// The one of this name.
    pub fn named(token: &str) -> Option<Dense> {
        Dense::ALL.into_iter().find(|coding| coding.token() == token)
    }
}

/// How hard an encoder tries; see [`effort`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort(i32);

/// Bytes of content up to which Brotli is worth this quality. Measured on the pages of the Python and Rust documentation,
/// on one core, beside gzip at level 6: quality 11 leaves 76 % of its bytes at 0.8 MB/s, 10 leaves 78 % at 2.7, 5 leaves
/// 87 % at 40, and what lies between 5 and 10 is as slow as 10 (its tables are cleared for each page). So a version costs
/// about a minute of one core, however large it is: 40 s, 50 s, and 13 s for the 511 MB of the Rust documentation.
const QUALITIES: [(u64, i32); 2] = [(32 << 20, 11), (128 << 20, 10)];
/// Beyond these.
const FAST: i32 = 5;

/// Zstandard is for the few who have no Brotli. Level 9 leaves 96 % of gzip's bytes at 90 MB/s; 15 would leave 93 % at 10.
const ZSTD_LEVEL: i32 = 9;

/// The logarithm of the largest window. Both lie below what decoders must take (RFC 7932: 24; RFC 9659: 8 MiB).
const WINDOW: i32 = 22;

/// What a site with so many bytes of content is worth.
pub fn effort(coding: Dense, content: u64) -> Effort {
    Effort(match coding {
        Dense::Zstd => ZSTD_LEVEL,
        Dense::Brotli => QUALITIES.iter().find(|(most, _)| content <= *most).map_or(FAST, |(_, quality)| *quality),
    })
}

/// One file on its way.
pub struct Encoder(Inner);

enum Inner {
    Brotli(Box<CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Encoder")
    }
}

impl Encoder {
    /// For a content of `len` bytes: as many must be written to it.
    pub fn new(coding: Dense, Effort(effort): Effort, len: u64) -> io::Result<Encoder> {
        let inner = match coding {
            Dense::Brotli => {
                let params = BrotliEncoderParams {
                    quality: effort,
                    lgwin: window(effort, len),
                    size_hint: usize::try_from(len).unwrap_or(usize::MAX),
                    ..BrotliEncoderParams::default()
                };
                Inner::Brotli(Box::new(CompressorWriter::with_params(Vec::new(), 16 << 10, &params)))
            }
            Dense::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), effort)?;
                encoder.set_pledged_src_size(Some(len))?;
                encoder.window_log(window(0, len).cast_unsigned())?;
                Inner::Zstd(encoder)
            }
        };
        Ok(Encoder(inner))
    }

    /// Takes the next bytes of the content.
    pub fn write(&mut self, content: &[u8]) -> io::Result<()> {
        match &mut self.0 {
            Inner::Brotli(encoder) => encoder.write_all(content),
            Inner::Zstd(encoder) => encoder.write_all(content),
        }
    }

    /// Bytes that have come out so far.
    pub fn made(&self) -> usize {
        match &self.0 {
            Inner::Brotli(encoder) => encoder.get_ref().len(),
            Inner::Zstd(encoder) => encoder.get_ref().len(),
        }
    }

    /// The coded bytes.
    pub fn finish(self) -> io::Result<Vec<u8>> {
        match self.0 {
            Inner::Brotli(encoder) => Ok(encoder.into_inner()),
            Inner::Zstd(encoder) => encoder.finish(),
        }
    }
}

/// The smallest window that holds the content: at the upper qualities the encoder's tables grow with it. At the others a
/// small window would choose other tables, which are slower.
fn window(effort: i32, len: u64) -> i32 {
    if effort == FAST {
        return WINDOW;
    }
    (16..WINDOW).find(|window| (1u64 << window) - 16 >= len).unwrap_or(WINDOW)
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn decoded(coding: Dense, coded: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            Dense::Brotli => brotli_decompressor::Decompressor::new(coded, 4096).read_to_end(&mut content).unwrap(),
            Dense::Zstd => zstd::stream::read::Decoder::new(coded).unwrap().read_to_end(&mut content).unwrap(),
        };
        content
    }

    #[test]
    fn what_was_coded_at_any_effort_and_size_is_decoded_again() {
        for len in [0usize, 1, 65_519, 65_520, 65_521, 300_000, 5_000_000] {
            let content: Vec<u8> = (0..len).map(|n| (n.wrapping_mul(n) >> 9) as u8).collect();
            for coding in Dense::ALL {
                for site in [0, 64 << 20, 1 << 30] {
                    if len > 1_000_000 && site < 1 << 30 {
                        continue; // slow, and the same code
                    }
                    let mut encoder = Encoder::new(coding, effort(coding, site), len as u64).unwrap();
                    content.chunks(70_001).for_each(|piece| encoder.write(piece).unwrap());
                    let coded = encoder.finish().unwrap();
                    assert!(decoded(coding, &coded) == content, "{coding:?} of {len} bytes in a site of {site}");
                }
            }
        }
    }

    #[test]
    fn the_larger_a_site_the_less_a_page_of_it_may_cost() {
        let quality = |content: u64| effort(Dense::Brotli, content).0;
        assert_eq!([0, 32 << 20, (32 << 20) + 1, 128 << 20, 511_000_000].map(quality), [11, 11, 10, 10, 5]);
    }

    #[test]
    fn codings_have_their_names_and_windows_hold_the_content() {
        assert_eq!(Dense::ALL.map(Dense::token), ["br", "zstd"]);
        for (token, coding) in
            [("br", Some(Dense::Brotli)), ("zstd", Some(Dense::Zstd)), ("BR", None), ("gzip", None), ("", None)]
        {
            assert_eq!(Dense::named(token), coding, "{token}");
        }
        for (len, bits) in [
            (0, 16),
            ((1 << 16) - 16, 16),
            ((1 << 16) - 15, 17),
            ((1 << 21) - 16, 21),
            ((1 << 21) - 15, 22),
            (u64::MAX, 22),
        ] {
            assert_eq!((window(11, len), window(FAST, len)), (bits, 22), "{len}");
        }
        assert_eq!([0, u64::MAX].map(|content| effort(Dense::Zstd, content)), [Effort(ZSTD_LEVEL); 2]);
        for coding in Dense::ALL {
            let mut encoder = Encoder::new(coding, effort(coding, 0), 3).unwrap();
            encoder.write(b"abc").unwrap();
            let made = encoder.made();
            assert!(made <= encoder.finish().unwrap().len(), "{coding:?}");
        }
    }
}
