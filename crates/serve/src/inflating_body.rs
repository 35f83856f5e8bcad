//! A body that is inflated as the client reads it.
//!
//! A small file, and one in the cache of inflated files, is available as a whole when its first bytes are sent. Of
//! other files, at most one window of the decoder is in memory. The bytes before a requested range are inflated as
//! well, and discarded.
//!
//! A body that waits for its client holds no inflated file: it gets one from the cache only when its first bytes are
//! sent.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};

use docwharf_base::codec::inflate::InflateStatus;

use super::body_chunk::BodyChunk;
use super::decoder_pool::DecoderClaim;
use super::held_bytes::{HELD, HeldBytesGuard};
use super::inflated_file_cache::{InflatedFile, InflatedFileSource, MAX_SMALL_FILE_BYTES};
use super::turn::{add_inflate_time, may_inflate};

/// A DEFLATE stream that is decoded piece by piece.
#[derive(Debug)]
pub(super) struct InflatingBody {
    coded: Bytes,
    /// The number of bytes of `coded` that were decoded.
    consumed: usize,
    decoder: DecoderClaim,
    /// The number of bytes decoded so far. The last of them are in the decoder's window.
    decoded_len: u64,
    /// Whether the end of the stream was decoded.
    is_done: bool,
    /// The segments still to be sent.
    segments: VecDeque<BodySegment>,
    /// The number of bytes still to be sent.
    remaining: u64,
    /// The file of the site with this content; `None` for any other stream.
    source: Option<InflatedFileSource>,
    /// Whether the first step was made. The first step may inflate the whole file.
    has_started: bool,
    /// The whole inflated file.
    file: Option<InflatedFile>,
    /// The CRC-32 and the number of the bytes up to the furthest offset that was decoded so far.
    checksum: (crc32fast::Hasher, u64),
}

/// The largest piece that is copied out of the decoder at a time, in bytes, while more than half of the held bytes
/// limit is available.
const MAX_PIECE_BYTES: u64 = 64 * 1024;
/// The largest piece, in bytes, while more than a quarter of the limit is available.
const LOW_MEMORY_PIECE_BYTES: u64 = 16 * 1024;
/// The largest piece, in bytes, otherwise.
const MIN_PIECE_BYTES: u64 = 4 * 1024;

/// The bytes of a piece that is being sent. They count as held until they are dropped.
struct HeldChunk {
    bytes: Vec<u8>,
    _hold: HeldBytesGuard,
}

impl HeldChunk {
    /// Copies as many of the first bytes as one piece may have now.
    fn copy_prefix(bytes: &[u8]) -> Bytes {
        let (available, limit) = (HELD.remaining(), HELD.limit());
        let max_len = match available {
            _ if available > limit / 2 => MAX_PIECE_BYTES,
            _ if available > limit / 4 => LOW_MEMORY_PIECE_BYTES,
            _ => MIN_PIECE_BYTES,
        };
        let bytes = &bytes[..bytes.len().min(max_len as usize)];
        Bytes::from_owner(HeldChunk { bytes: bytes.to_vec(), _hold: HELD.hold(bytes.len() as u64) })
    }
}

impl AsRef<[u8]> for HeldChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// A segment of a body that is inflated as it is sent.
#[derive(Debug)]
pub enum BodySegment {
    /// These bytes.
    Bytes(Bytes),
    /// The decoded bytes from the first offset up to, not including, the second.
    Inflated(u64, u64),
}

/// The result of one step of decoding.
pub(super) enum DecodingStep {
    /// Bytes to be sent.
    Data(BodyChunk),
    /// Nothing to be sent yet: the decoded bytes are before the requested ones, or no decoder is free. Other
    /// connections get their turn first.
    Skipped,
    /// No more bytes follow.
    End,
}

impl BodySegment {
    fn len(&self) -> u64 {
        match self {
            BodySegment::Bytes(bytes) => bytes.len() as u64,
            BodySegment::Inflated(start, end) => end - start,
        }
    }
}

impl InflatingBody {
    /// Creates a body of segments of the DEFLATE stream `coded`; `source` is the file of the site with this content, if
    /// there is one.
    pub(super) fn new(
        coded: Bytes,
        segments: impl IntoIterator<Item = BodySegment>,
        source: Option<InflatedFileSource>,
    ) -> InflatingBody {
        let segments: VecDeque<BodySegment> = segments.into_iter().filter(|segment| segment.len() > 0).collect();
        let remaining = segments.iter().map(BodySegment::len).sum();
        InflatingBody {
            coded,
            consumed: 0,
            decoder: DecoderClaim::new(),
            decoded_len: 0,
            is_done: false,
            segments,
            remaining,
            source,
            has_started: false,
            file: None,
            checksum: Default::default(),
        }
    }

    /// Returns the number of bytes still to be sent.
    pub(super) fn len(&self) -> u64 {
        self.remaining
    }

    /// Makes one step if this thread may inflate now; otherwise the task is woken when it may.
    pub(super) fn poll_step(&mut self, context: &Context<'_>) -> Poll<DecodingStep> {
        // A body that starts again after it lost its decoder can use a cached file as well.
        if self.decoded_len == 0 && self.file.is_none() {
            self.file = self.source.as_ref().and_then(InflatedFileSource::cached);
        }
        if self.file.is_some() {
            self.has_started = true;
            return Poll::Ready(self.next_segment_of_file());
        }
        if !may_inflate(context) {
            return Poll::Pending;
        }
        let start = Instant::now();
        let step =
            if std::mem::replace(&mut self.has_started, true) { self.decode_step() } else { self.decode_first_step() };
        add_inflate_time(start.elapsed());
        Poll::Ready(step)
    }

    /// Makes the first step. A small file is inflated as a whole.
    fn decode_first_step(&mut self) -> DecodingStep {
        if let Some(source) = &self.source {
            if source.len <= MAX_SMALL_FILE_BYTES {
                // A damaged file is sent as far as it can be decoded, while the scrub verifies its version.
                if let Some(file) = source.inflate(&self.coded) {
                    self.file = Some(file);
                    return self.next_segment_of_file();
                }
            } else if self.is_whole() {
                source.request_caching(&self.coded);
            }
        }
        self.decode_step()
    }

    /// Returns whether the body is the whole file, or the whole file and an inserted tag.
    fn is_whole(&self) -> bool {
        let len = self.source.as_ref().map(|source| source.len);
        let mut segments = self.segments.iter();
        matches!(segments.next(), Some(&BodySegment::Inflated(0, end)) if Some(end) == len)
            && matches!((segments.next(), segments.next()), (None | Some(BodySegment::Bytes(_)), None))
    }

    /// Returns the next segment from the whole inflated file.
    fn next_segment_of_file(&mut self) -> DecodingStep {
        let is_whole = self.is_whole();
        let chunk = match (&self.file, self.segments.pop_front()) {
            (Some(file), Some(BodySegment::Inflated(..))) if is_whole => {
                let chunk = BodyChunk::from(file.clone());
                match self.segments.pop_front() {
                    // In one chunk, so that it is sent in one write.
                    Some(BodySegment::Bytes(tag)) => chunk.followed_by(&tag),
                    _ => chunk,
                }
            }
            (Some(file), Some(BodySegment::Inflated(start, end))) => {
                file.bytes.slice(start as usize..end as usize).into()
            }
            (_, Some(BodySegment::Bytes(bytes))) => bytes.into(),
            _ => return DecodingStep::End,
        };
        self.emit(chunk)
    }

    /// Returns the next bytes from the decoder, and decodes one window at most.
    fn decode_step(&mut self) -> DecodingStep {
        let mut may_decode = true;
        loop {
            let (start, end) = match self.segments.front() {
                None => return DecodingStep::End,
                Some(&BodySegment::Inflated(start, end)) => (start, end),
                Some(BodySegment::Bytes(bytes)) => {
                    let bytes = bytes.clone();
                    self.segments.pop_front();
                    return self.emit(bytes.into());
                }
            };
            if let Some(bytes) = self.decoded_piece(start, end) {
                self.decoder.mark_sent();
                let to = start + bytes.len() as u64;
                match self.segments.front_mut() {
                    Some(BodySegment::Inflated(start, end)) if to < *end => *start = to,
                    _ => drop(self.segments.pop_front()),
                }
                return self.emit(bytes.into());
            }
            // The stream was verified when it was sealed. If the file was damaged since then, the response ends early,
            // and the client detects that by its length.
            if self.is_done {
                return DecodingStep::End;
            }
            if !may_decode {
                return DecodingStep::Skipped;
            }
            match self.decode() {
                None => return DecodingStep::Skipped,
                Some(true) => may_decode = false,
                Some(false) => {
                    self.report_damage();
                    return DecodingStep::End;
                }
            }
        }
    }

    /// Returns a piece of the decoder's window that begins at `start` and ends before `end`; `None` if it has to be
    /// decoded first.
    fn decoded_piece(&mut self, start: u64, end: u64) -> Option<Bytes> {
        let decoded_len = self.decoded_len;
        if decoded_len == 0 {
            return None;
        }
        let piece = self.decoder.with_decoder(|decoder, is_new| {
            let output = decoder.output();
            let begin = decoded_len.checked_sub(output.len() as u64).filter(|&begin| !is_new && begin <= start)?;
            let (from, to) = (start, end.min(decoded_len));
            Some((from < to).then(|| HeldChunk::copy_prefix(&output[(from - begin) as usize..(to - begin) as usize])))
        });
        piece.flatten().unwrap_or_else(|| {
            // Another body has taken the decoder, or the segment is before the window: decode from the beginning.
            (self.consumed, self.decoded_len, self.is_done) = (0, 0, false);
            None
        })
    }

    /// Decodes one window and returns whether that succeeded; `None` if no decoder is free now.
    fn decode(&mut self) -> Option<bool> {
        let InflatingBody { coded, consumed, decoded_len, is_done, checksum, source, decoder, .. } = self;
        decoder.with_decoder(|decoder, is_new| {
            if is_new || *decoded_len == 0 {
                decoder.reset();
                (*consumed, *decoded_len) = (0, 0);
            }
            let Ok(step) = decoder.run(&coded[*consumed..], true) else { return false };
            *consumed += step.consumed;
            let output = decoder.output();
            *is_done = step.status == InflateStatus::Done;
            let Some(source) = source else {
                *decoded_len += output.len() as u64;
                return true;
            };
            // Bytes that are decoded again after the decoder was lost are not added to the checksum again.
            let checked_len = checksum.1.saturating_sub(*decoded_len).min(output.len() as u64) as usize;
            *decoded_len += output.len() as u64;
            checksum.0.update(&output[checked_len..]);
            checksum.1 = checksum.1.max(*decoded_len);
            // If the last byte fills the window, no further step reaches the end of the stream. The length is therefore
            // compared as well.
            let is_whole = *is_done || *decoded_len == source.len;
            if is_whole && (checksum.1 != source.len || checksum.0.clone().finalize() != source.crc) {
                source.report_damage();
            }
            true
        })
    }

    /// Reports that the stored bytes are not those that were sealed.
    fn report_damage(&self) {
        if let Some(source) = &self.source {
            source.report_damage();
        }
    }

    /// Counts the bytes of a chunk as sent, and releases the decoder after the last one.
    fn emit(&mut self, chunk: BodyChunk) -> DecodingStep {
        self.remaining -= chunk.remaining() as u64;
        if self.remaining == 0 {
            self.decoder.release();
        }
        DecodingStep::Data(chunk)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Waker;

    use docwharf_base::codec::deflate::Deflater;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;

    use super::*;
    use crate::inflated_file_cache::InflatedFileCache;

    #[test]
    fn a_whole_file_followed_by_a_tag_counts_as_the_whole_file() {
        let digest = Digest::compute(b"x");
        let cache = Arc::new(InflatedFileCache::new(1 << 20, Arc::default()));
        let tag = || BodySegment::Bytes("tag".into());
        for (segments, expected) in [
            (vec![BodySegment::Inflated(0, 5)], true),
            (vec![BodySegment::Inflated(0, 5), tag()], true),
            (vec![BodySegment::Inflated(0, 5), BodySegment::Bytes(Bytes::new())], true),
            (vec![BodySegment::Inflated(0, 4), tag()], false),
            (vec![BodySegment::Inflated(1, 5), tag()], false),
            (vec![tag(), BodySegment::Inflated(0, 5)], false),
            (vec![BodySegment::Inflated(0, 5), tag(), tag()], false),
            (vec![BodySegment::Inflated(0, 5), BodySegment::Inflated(0, 5)], false),
            (vec![tag()], false),
        ] {
            let case = format!("{segments:?}");
            let source =
                InflatedFileSource { cache: Arc::clone(&cache), version: VersionId(digest), digest, len: 5, crc: 0 };
            assert_eq!(InflatingBody::new(Bytes::new(), segments, Some(source)).is_whole(), expected, "{case}");
        }
    }

    #[test]
    fn a_body_that_lost_its_decoder_resumes_at_the_same_offset() {
        let content: Vec<u8> = (0..300_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let mut coded = Vec::new();
        Deflater::new(1).encode_all(&content, &mut coded);
        let (len, digest, crc) = (content.len() as u64, Digest::compute(&content), crc32fast::hash(&content));
        for is_cached in [false, true] {
            let cache = Arc::new(InflatedFileCache::new(1 << 20, Arc::default()));
            let source = InflatedFileSource { cache: Arc::clone(&cache), version: VersionId(digest), digest, len, crc };
            let segment = BodySegment::Inflated(0, len);
            let mut body = InflatingBody::new(coded.clone().into(), [segment], Some(source));
            let (mut sent, mut has_lost_decoder) = (Vec::new(), false);
            loop {
                match body.poll_step(&Context::from_waker(Waker::noop())) {
                    Poll::Ready(DecodingStep::Data(chunk)) => sent.extend(chunk.parts().concat()),
                    Poll::Ready(DecodingStep::End) => break,
                    Poll::Ready(DecodingStep::Skipped) | Poll::Pending => {}
                }
                if !has_lost_decoder && sent.len() > 100_000 && body.decoded_len == sent.len() as u64 {
                    has_lost_decoder = true;
                    body.decoder.release();
                    if is_cached {
                        // No decoder was free for the next step, and the file was cached meanwhile.
                        body.decoded_len = 0;
                        cache.insert(digest, content.clone().into());
                    }
                }
            }
            assert!(has_lost_decoder && sent == content && body.len() == 0, "cached: {is_cached}");
            assert_eq!(body.file.is_some(), is_cached);
        }
    }
}
