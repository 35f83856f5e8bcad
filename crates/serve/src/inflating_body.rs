//! A body that is inflated as the client reads it.
//!
//! A small file, and one in the cache of inflated files, is available as a whole when its first bytes are taken. Of
//! other files, no more than one window of the decoder is in memory. What comes before a requested range is inflated as
//! well, and dropped.
//!
//! A body that waits for its client holds no inflated file: it looks for one only when its first bytes are taken.

use std::collections::VecDeque;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::{Buf, Bytes};

use docwharf_base::codec::inflate::InflateStatus;

use super::body_chunk::BodyChunk;
use super::decoder_pool::DecoderClaim;
use super::held_bytes::{HELD, HeldBytesGuard};
use super::page_cache::{InflatedPage, MAX_SMALL_PAGE_BYTES, PageSource};
use super::turn::{count_inflating, may_inflate};

/// A DEFLATE stream that is decoded piece by piece.
#[derive(Debug)]
pub(super) struct InflatingBody {
    coded: Bytes,
    at: usize,
    decoder: DecoderClaim,
    /// The number of bytes decoded so far. The last of them are in the decoder's window.
    made: u64,
    is_done: bool,
    wanted: VecDeque<BodySegment>,
    /// The number of bytes still to be sent.
    left: u64,
    /// The file of a site whose content this is, if it is one.
    source: Option<PageSource>,
    /// Whether the first step was made, which may inflate the whole file.
    is_begun: bool,
    /// The whole inflated file.
    page: Option<InflatedPage>,
    /// The CRC-32 and the number of the bytes decoded so far.
    checked: (crc32fast::Hasher, u64),
}

/// The largest pieces that are copied out of the decoder at a time, in bytes: while more than half of the held bytes
/// limit is left, while more than a quarter is left, and otherwise.
const MAX_PIECE_BYTES: u64 = 64 * 1024;
const LOW_MEMORY_PIECE_BYTES: u64 = 16 * 1024;
const MIN_PIECE_BYTES: u64 = 4 * 1024;

/// The bytes of a piece that is being sent. They count as held until they are dropped.
struct HeldChunk {
    bytes: Vec<u8>,
    _hold: HeldBytesGuard,
}

impl HeldChunk {
    /// Copies as many of these bytes as one piece may have now.
    fn first_of(bytes: &[u8]) -> Bytes {
        let (left, limit) = (HELD.remaining(), HELD.limit());
        let most = match left {
            _ if left > limit / 2 => MAX_PIECE_BYTES,
            _ if left > limit / 4 => LOW_MEMORY_PIECE_BYTES,
            _ => MIN_PIECE_BYTES,
        };
        let bytes = &bytes[..bytes.len().min(most as usize)];
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
    /// Nothing to be sent yet: the decoded bytes come before the requested ones, or no decoder is free. Other
    /// connections get their turn first.
    Skipped,
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
    /// Creates a body of segments of the stream `coded`; `source` is the file whose content that is, if it is one.
    pub(super) fn new(
        coded: Bytes,
        wanted: impl IntoIterator<Item = BodySegment>,
        source: Option<PageSource>,
    ) -> InflatingBody {
        let wanted: VecDeque<BodySegment> = wanted.into_iter().filter(|wanted| wanted.len() > 0).collect();
        let left = wanted.iter().map(BodySegment::len).sum();
        InflatingBody {
            coded,
            at: 0,
            decoder: DecoderClaim::new(),
            made: 0,
            is_done: false,
            wanted,
            left,
            source,
            is_begun: false,
            page: None,
            checked: Default::default(),
        }
    }

    /// Returns the number of bytes still to be sent.
    pub(super) fn len(&self) -> u64 {
        self.left
    }

    /// Makes one step if this thread may inflate now; otherwise the task is woken when it may.
    pub(super) fn poll_step(&mut self, context: &Context<'_>) -> Poll<DecodingStep> {
        // A body that starts again after it lost its decoder looks for the inflated file as well.
        if self.made == 0 && self.page.is_none() {
            self.page = self.source.as_ref().and_then(PageSource::cached);
        }
        if self.page.is_some() {
            self.is_begun = true;
            return Poll::Ready(self.step_of_whole_page());
        }
        if !may_inflate(context) {
            return Poll::Pending;
        }
        let begun = Instant::now();
        let step = if std::mem::replace(&mut self.is_begun, true) { self.step() } else { self.first_step() };
        count_inflating(begun.elapsed());
        Poll::Ready(step)
    }

    /// Makes the first step. A small file is inflated as a whole.
    fn first_step(&mut self) -> DecodingStep {
        if let Some(source) = &self.source {
            if source.len <= MAX_SMALL_PAGE_BYTES {
                // A damaged file is sent as far as it can be decoded, while its version is verified.
                if let Some(page) = source.inflate(&self.coded) {
                    self.page = Some(page);
                    return self.step_of_whole_page();
                }
            } else if self.is_whole() {
                source.request_caching(&self.coded);
            }
        }
        self.step()
    }

    /// Returns whether the body is the whole file.
    fn is_whole(&self) -> bool {
        let len = self.source.as_ref().map(|source| source.len);
        self.wanted.len() == 1
            && matches!(self.wanted.front(), Some(&BodySegment::Inflated(0, end)) if Some(end) == len)
    }

    /// Takes the next segment from the whole inflated file.
    fn step_of_whole_page(&mut self) -> DecodingStep {
        let is_whole = self.is_whole();
        let chunk = match (&self.page, self.wanted.pop_front()) {
            (Some(page), Some(BodySegment::Inflated(..))) if is_whole => BodyChunk::from(page.clone()),
            (Some(page), Some(BodySegment::Inflated(start, end))) => {
                page.bytes.slice(start as usize..end as usize).into()
            }
            (_, Some(BodySegment::Bytes(bytes))) => bytes.into(),
            _ => return DecodingStep::End,
        };
        self.sent(chunk)
    }

    /// Takes the next segment from the decoder, and decodes one window at most.
    fn step(&mut self) -> DecodingStep {
        let mut may_decode = true;
        loop {
            let (start, end) = match self.wanted.front() {
                None => return DecodingStep::End,
                Some(&BodySegment::Inflated(start, end)) => (start, end),
                Some(BodySegment::Bytes(bytes)) => {
                    let bytes = bytes.clone();
                    self.wanted.pop_front();
                    return self.sent(bytes.into());
                }
            };
            if let Some(bytes) = self.decoded_piece(start, end) {
                self.decoder.has_sent();
                let to = start + bytes.len() as u64;
                match self.wanted.front_mut() {
                    Some(BodySegment::Inflated(start, end)) if to < *end => *start = to,
                    _ => drop(self.wanted.pop_front()),
                }
                return self.sent(bytes.into());
            }
            // The stream was verified when it was sealed. If the file was damaged since, the response ends early, which
            // the client notices by its length.
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
        let made = self.made;
        if made == 0 {
            return None;
        }
        let piece = self.decoder.with_decoder(|decoder, is_new| {
            let output = decoder.output();
            let begin = made.checked_sub(output.len() as u64).filter(|&begin| !is_new && begin <= start)?;
            let (from, to) = (start, end.min(made));
            Some((from < to).then(|| HeldChunk::first_of(&output[(from - begin) as usize..(to - begin) as usize])))
        });
        piece.flatten().unwrap_or_else(|| {
            // Another body has taken the decoder, or the segment comes before the window: decode from the beginning.
            (self.at, self.made, self.is_done) = (0, 0, false);
            None
        })
    }

    /// Decodes one window and returns whether that succeeded; `None` if no decoder is free now.
    fn decode(&mut self) -> Option<bool> {
        let InflatingBody { coded, at, made, is_done, checked, source, decoder, .. } = self;
        decoder.with_decoder(|decoder, is_new| {
            if is_new || *made == 0 {
                decoder.reset();
                (*at, *made) = (0, 0);
            }
            let Ok(step) = decoder.run(&coded[*at..], true) else { return false };
            *at += step.consumed;
            let output = decoder.output();
            *is_done = step.status == InflateStatus::Done;
            let Some(source) = source else {
                *made += output.len() as u64;
                return true;
            };
            // Bytes that are decoded again after the decoder was lost are not added to the checksum again.
            let known = checked.1.saturating_sub(*made).min(output.len() as u64) as usize;
            *made += output.len() as u64;
            checked.0.update(&output[known..]);
            checked.1 = checked.1.max(*made);
            // If the last byte fills the window, no further step sees the end of the stream, so the length counts as
            // well.
            let is_whole = *is_done || *made == source.len;
            if is_whole && (checked.1 != source.len || checked.0.clone().finalize() != source.crc) {
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

    fn sent(&mut self, chunk: BodyChunk) -> DecodingStep {
        self.left -= chunk.remaining() as u64;
        if self.left == 0 {
            self.decoder.release();
        }
        DecodingStep::Data(chunk)
    }
}
