//! Adds content behind the end of a coded stream, without decoding or encoding the stream. The result is one valid
//! stream, and nearly all of its bytes are those of the original.
//!
//! - DEFLATE (RFC 1951, 3.2.3): the mark of the last block is cleared, and a stored block with the added content begins
//!   at the bit at which the stream has ended.
//! - Brotli (RFC 7932, 9.2): an uncompressed meta-block is inserted before the empty last one.
//! - Zstandard (RFC 8878, 3.1.1.2): a raw block replaces the empty last one.
//!
//! For Brotli and Zstandard, this needs a stream that was encoded as [`StreamEnd::Continuable`].
//!
//! [`StreamEnd::Continuable`]: super::content_coding::StreamEnd::Continuable

use super::content_coding::ContentCoding;
use super::deflate::DeflateStreamEnd;

/// The largest number of bytes that can be added to a stream. It is the smallest maximum size of a Zstandard block: a
/// block is not larger than the window (RFC 8878, 3.1.1.2.4), and a window has at least 1 KiB.
pub const MAX_ADDED_BYTES: usize = 1024;

/// The length of the end of a DEFLATE stream, in bytes, within which the last block may begin so that the whole end is
/// copied. A stream of [`Deflater`](super::deflate::Deflater) ends with a block of two bytes.
const MAX_COPIED_END_BYTES: usize = 64;
/// The number of bits in the header of a DEFLATE block: the mark of the last block, and the type.
const DEFLATE_BLOCK_HEADER_BITS: u8 = 3;
/// The length and its complement in a stored DEFLATE block, in bytes.
const STORED_LENGTHS_BYTES: usize = 4;
/// The header of an uncompressed Brotli meta-block of up to 64 KiB, in bytes.
const BROTLI_BLOCK_HEADER_BYTES: usize = 3;
/// The header of a Zstandard block in bytes.
const ZSTD_BLOCK_HEADER_BYTES: usize = 3;
/// The capacity, in bytes, that is reserved for a caller's trailer, such as that of gzip.
const TRAILER_CAPACITY: usize = 8;

/// A stream to which content was added, described by its differences from the original stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamContinuation {
    /// The number of bytes from the start of the original stream that are kept.
    pub kept_len: usize,
    /// The offset and the new value of one of these bytes; `None` if they do not change.
    pub changed: Option<(usize, u8)>,
    /// The bytes that follow them.
    pub end: Vec<u8>,
}

/// Adds content to a DEFLATE stream that ends at `stream_end`. The bits after that end may have any value. Returns
/// `None` if the stream has no such end, or if more than [`MAX_ADDED_BYTES`] are added.
pub fn continue_deflate(coded: &[u8], stream_end: DeflateStreamEnd, added: &[u8]) -> Option<StreamContinuation> {
    let DeflateStreamEnd { last_block_bit, spare_bits } = stream_end;
    let last_block_byte = usize::try_from(last_block_bit / 8).ok().filter(|&at| at < coded.len())?;
    if spare_bits > 7 || added.len() > MAX_ADDED_BYTES {
        return None;
    }
    let without_mark = coded[last_block_byte] & !(1u8 << (last_block_bit % 8));
    let copies_last_block = coded.len() - last_block_byte <= MAX_COPIED_END_BYTES;
    let kept_len = if copies_last_block { last_block_byte } else { coded.len() - 1 };
    let end_len = coded.len() - kept_len + 1 + STORED_LENGTHS_BYTES + added.len();
    let mut end = Vec::with_capacity(end_len + TRAILER_CAPACITY);
    end.extend_from_slice(&coded[kept_len..]);
    if copies_last_block {
        end[0] = without_mark;
    }
    // The header of a stored block that is the last one has the bits 1, 0, 0. The block continues at the next byte.
    let last_bits = u16::from(end.pop()? & (0xffu8 >> spare_bits)) | 1u16 << (8 - spare_bits);
    end.push(last_bits as u8);
    if spare_bits < DEFLATE_BLOCK_HEADER_BITS {
        end.push((last_bits >> 8) as u8);
    }
    let added_len = added.len() as u16;
    end.extend_from_slice(&added_len.to_le_bytes());
    end.extend_from_slice(&(!added_len).to_le_bytes());
    end.extend_from_slice(added);
    Some(StreamContinuation { kept_len, changed: (!copies_last_block).then_some((last_block_byte, without_mark)), end })
}

/// Returns by how many bytes [`continue_deflate`] makes a stream with this number of spare bits longer.
pub fn deflate_growth(spare_bits: u8, added_len: usize) -> u64 {
    u64::from(spare_bits < DEFLATE_BLOCK_HEADER_BITS) + (STORED_LENGTHS_BYTES + added_len) as u64
}

/// Returns whether a stream ends as [`continue_coding`] requires. A stream of another encoder may end in this way by
/// chance, so the caller must know how the stream was encoded.
pub fn is_continuable(coding: ContentCoding, coded: &[u8]) -> bool {
    coded.ends_with(coding.empty_last_block())
}

/// Adds content to a stream that was encoded as [`StreamEnd::Continuable`]. Returns `None` if the stream does not end
/// in this way, or if no bytes or more than [`MAX_ADDED_BYTES`] are added.
///
/// [`StreamEnd::Continuable`]: super::content_coding::StreamEnd::Continuable
pub fn continue_coding(coding: ContentCoding, coded: &[u8], added: &[u8]) -> Option<StreamContinuation> {
    let kept = coded.strip_suffix(coding.empty_last_block())?;
    if added.is_empty() || added.len() > MAX_ADDED_BYTES {
        return None;
    }
    let added_len = added.len() as u32;
    let mut end = Vec::with_capacity(BROTLI_BLOCK_HEADER_BYTES + added.len() + 1);
    match coding {
        ContentCoding::Brotli => {
            // Not the last meta-block (1 bit), the length in four nibbles (2 bits), the length minus 1 (16 bits),
            // uncompressed (1 bit).
            let header = (added_len - 1) << 3 | 1u32 << 19;
            end.extend_from_slice(&header.to_le_bytes()[..BROTLI_BLOCK_HEADER_BYTES]);
            end.extend_from_slice(added);
            end.extend_from_slice(coding.empty_last_block());
        }
        ContentCoding::Zstd => {
            // The last block (1 bit), a raw block (2 bits), its size (21 bits).
            let header = added_len << 3 | 1;
            end.extend_from_slice(&header.to_le_bytes()[..ZSTD_BLOCK_HEADER_BYTES]);
            end.extend_from_slice(added);
        }
    }
    Some(StreamContinuation { kept_len: kept.len(), changed: None, end })
}

/// Returns by how many bytes [`continue_coding`] makes a stream longer.
pub fn coding_growth(coding: ContentCoding, added_len: usize) -> u64 {
    let headers = match coding {
        ContentCoding::Brotli => BROTLI_BLOCK_HEADER_BYTES,
        ContentCoding::Zstd => ZSTD_BLOCK_HEADER_BYTES - coding.empty_last_block().len(),
    };
    (headers + added_len) as u64
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use flate2::{Compress, Compression, FlushCompress};

    use super::*;
    use crate::codec::content_coding::{ContentEncoder, StreamEnd, choose_encoder_level};
    use crate::codec::deflate::Deflater;
    use crate::codec::inflate::{InflateStatus, Inflater};

    const ADDED: &[u8] = b"<script src=\"/x.js\" defer></script>";

    /// Returns the continued stream as a whole.
    fn apply(coded: &[u8], continuation: &StreamContinuation) -> Vec<u8> {
        let mut bytes = coded[..continuation.kept_len].to_vec();
        if let Some((at, byte)) = continuation.changed {
            bytes[at] = byte;
        }
        bytes.extend_from_slice(&continuation.end);
        bytes
    }

    /// Decodes a DEFLATE stream with zlib, which must read all of it.
    fn inflate(coded: &[u8]) -> Vec<u8> {
        let mut decoder = flate2::bufread::DeflateDecoder::new(coded);
        let mut content = Vec::new();
        decoder.read_to_end(&mut content).expect("zlib reads the stream");
        assert_eq!(decoder.total_in(), coded.len() as u64, "nothing follows the stream");
        content
    }

    /// Finds the end of a DEFLATE stream.
    fn find_end(coded: &[u8]) -> DeflateStreamEnd {
        let mut inflater = Inflater::new();
        let mut start = 0;
        loop {
            let step = inflater.run(&coded[start..], true).expect("a valid stream");
            start += step.consumed;
            if step.status == InflateStatus::Done {
                return DeflateStreamEnd {
                    last_block_bit: inflater.last_block_bit(),
                    spare_bits: inflater.spare_bits(),
                };
            }
        }
    }

    /// Returns text without repetitions, which every coding makes shorter all the same.
    fn content(len: usize) -> Vec<u8> {
        let mut state = 7u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            b"abcdefgh <p>"[(state >> 24) as usize % 12]
        };
        (0..len).map(|_| next()).collect()
    }

    /// Compresses content as `zip` does: the last block may begin and end at any bit.
    fn deflate(content: &[u8], level: u32) -> Vec<u8> {
        let mut out = Vec::with_capacity(content.len() * 2 + 1000);
        let mut compressor = Compress::new(Compression::new(level), false);
        compressor.compress_vec(content, &mut out, FlushCompress::Finish).expect("memory");
        out
    }

    #[test]
    fn a_continued_deflate_stream_decodes_to_the_content_and_what_was_added() {
        let mut seen_spare_bits = [false; 8];
        let mut seen_changes = [false; 2];
        for level in 0..=9 {
            for len in (0..200).chain([1000, 65_535, 65_536, 300_000]) {
                let content = content(len);
                let coded = deflate(&content, level);
                let end = find_end(&coded);
                // The spare bits may have any value, because they are not part of the stream.
                let mut dirty = coded.clone();
                if let Some(last) = dirty.last_mut() {
                    *last |= !(0xffu8 >> end.spare_bits);
                }
                for coded in [&coded, &dirty] {
                    for added in [ADDED, b"", &[b'x'; MAX_ADDED_BYTES]] {
                        let case = format!("{len} bytes at level {level}, and {} more", added.len());
                        let continuation = continue_deflate(coded, end, added).expect("it can be continued");
                        let continued = apply(coded, &continuation);
                        assert_eq!(inflate(&continued), [&content[..], added].concat(), "{case}");
                        let growth = continued.len() - coded.len();
                        assert_eq!(growth as u64, deflate_growth(end.spare_bits, added.len()), "{case}");
                        seen_changes[usize::from(continuation.changed.is_some())] = true;
                    }
                }
                seen_spare_bits[usize::from(end.spare_bits)] = true;
            }
        }
        assert_eq!((seen_spare_bits, seen_changes), ([true; 8], [true; 2]), "not every form of an end occurred");
    }

    #[test]
    fn a_sealed_deflate_stream_is_kept_up_to_its_empty_last_block() {
        for len in [0, 1, 63, 64, 1000, 100_000] {
            let (content, mut coded) = (content(len), Vec::new());
            let end = Deflater::new(6).encode_all(&content, &mut coded);
            let continuation = continue_deflate(&coded, end, ADDED).expect("it can be continued");
            assert_eq!((continuation.kept_len, continuation.changed), (coded.len() - 2, None), "{len}");
            assert_eq!(inflate(&apply(&coded, &continuation)), [&content[..], ADDED].concat(), "{len}");
        }
    }

    #[test]
    fn a_deflate_stream_without_such_an_end_is_not_continued() {
        let coded = deflate(&content(1000), 6);
        let end = find_end(&coded);
        for (coded, last_block_bit, spare_bits, added_len) in [
            (&coded[..0], 0, 0, 1),
            (&coded[..], coded.len() as u64 * 8, 0, 1),
            (&coded, u64::MAX, 0, 1),
            (&coded, end.last_block_bit, 8, 1),
            (&coded, end.last_block_bit, 255, 1),
            (&coded, end.last_block_bit, end.spare_bits, MAX_ADDED_BYTES + 1),
        ] {
            let end = DeflateStreamEnd { last_block_bit, spare_bits };
            assert_eq!(continue_deflate(coded, end, &vec![b'x'; added_len]), None, "{end:?} {added_len}");
        }
    }

    fn decode(coding: ContentCoding, coded: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        match coding {
            ContentCoding::Brotli => {
                brotli_decompressor::Decompressor::new(coded, 4096).read_to_end(&mut content).expect("Brotli")
            }
            ContentCoding::Zstd => {
                zstd::stream::read::Decoder::new(coded).expect("memory").read_to_end(&mut content).expect("Zstandard")
            }
        };
        content
    }

    fn encode(coding: ContentCoding, content: &[u8], site_bytes: u64, stream_end: StreamEnd) -> Vec<u8> {
        let level = choose_encoder_level(coding, site_bytes);
        let mut encoder = ContentEncoder::new(coding, level, content.len() as u64, stream_end).unwrap();
        encoder.write(content).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn a_continued_brotli_or_zstandard_stream_decodes_to_the_content_and_what_was_added() {
        for coding in ContentCoding::ALL {
            for len in [0, 1, 2, 64, 65, 66, 67, 1023, 1024, 1025, 65_535, 65_536, 131_072, 400_000] {
                let content = content(len);
                for site_bytes in [0, 64 << 20, 1 << 30] {
                    let coded = encode(coding, &content, site_bytes, StreamEnd::Continuable);
                    assert!(is_continuable(coding, &coded));
                    for added in [ADDED, b"x", &[b'x'; MAX_ADDED_BYTES]] {
                        let case = format!("{coding:?}: {len} bytes in a site of {site_bytes}, {} more", added.len());
                        let continuation = continue_coding(coding, &coded, added).expect("it can be continued");
                        let continued = apply(&coded, &continuation);
                        assert!(decode(coding, &continued) == [&content[..], added].concat(), "{case}");
                        assert_eq!(
                            (continued.len() - coded.len()) as u64,
                            coding_growth(coding, added.len()),
                            "{case}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_brotli_or_zstandard_stream_that_ends_otherwise_is_not_continued() {
        for coding in ContentCoding::ALL {
            let coded = encode(coding, &content(1000), 0, StreamEnd::Continuable);
            for added in [&b""[..], &[b'x'; MAX_ADDED_BYTES + 1]] {
                assert_eq!(continue_coding(coding, &coded, added), None, "{coding:?}: {} bytes", added.len());
            }
            for wrong in [&coded[..1], &[&coded[..], b"\xff"].concat(), b""] {
                assert!(!is_continuable(coding, wrong), "{coding:?}");
                assert_eq!(continue_coding(coding, wrong, ADDED), None, "{coding:?}");
            }
        }
    }
}
