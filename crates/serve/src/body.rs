//! Response bodies: slices of the image, or a file that is inflated as the client reads it.
//!
//! A small file, and one in the cache of inflated files, is available as a whole when its first bytes are taken. Of
//! other files, no more than one window of the decoder is in memory. What comes before a requested range is inflated as
//! well, and dropped.
//!
//! A body that waits for its client holds no inflated file: it looks for one only when its first bytes are taken.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

use docwharf_base::codec::content_coding::ContentCoding;
use docwharf_base::codec::gzip;
use docwharf_base::codec::inflate::InflateStatus;
use docwharf_site::memfd_arena::ArenaRange;

use super::decoder_pool::DecoderClaim;
use super::held_bytes::{HELD, HeldBytesGuard};
use super::negotiate::ResponseForm;
use super::page_cache::{InflatedPage, MAX_SMALL_PAGE_BYTES, PageSource};
use super::turn::{count_inflating, end_turn, may_inflate};

/// A response body. Its length is always known.
#[derive(Debug)]
pub struct ResponseBody {
    content: BodyContent,
    again: Option<BodyLocation>,
}

#[derive(Debug)]
enum BodyContent {
    /// The whole body in one chunk.
    Whole(BodyChunk),
    /// Several slices, all of them available.
    Parts(VecDeque<Bytes>),
    /// Bytes that are inflated as they are sent.
    InflatingBody(Box<InflatingBody>),
}

/// Where the body of a cached response is found again while the site does not change. It names the place and not the
/// bytes, because bytes would keep their version in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BodyLocation {
    /// The body is empty.
    Empty,
    /// The body is a text of the program.
    StaticText(&'static [u8]),
    /// The body is a file of the served version, in a form that the image contains.
    File(usize, ResponseForm),
    /// The body is a file of the served version in a dense coding. The CRC-32 is that of the coded bytes, because a
    /// coding may be made anew while its version stays.
    Dense(usize, ContentCoding, u32),
}

/// A DEFLATE stream that is decoded piece by piece.
#[derive(Debug)]
pub struct InflatingBody {
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
enum BodyStep {
    /// Bytes to be sent.
    Data(BodyChunk),
    /// Nothing to be sent yet: the decoded bytes come before the requested ones, or no decoder is free. Other
    /// connections get their turn first.
    Skipped,
    End,
}

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

impl From<BodyChunk> for ResponseBody {
    fn from(chunk: BodyChunk) -> ResponseBody {
        BodyContent::Whole(chunk).into()
    }
}

impl From<BodyContent> for ResponseBody {
    fn from(content: BodyContent) -> ResponseBody {
        ResponseBody { content, again: None }
    }
}

impl ResponseBody {
    /// Creates a body without bytes.
    pub fn empty() -> ResponseBody {
        ResponseBody::full(Bytes::new())
    }

    /// Creates a body of these bytes.
    pub fn full(bytes: impl Into<Bytes>) -> ResponseBody {
        BodyChunk::from(bytes.into()).into()
    }

    /// Creates a body of these slices in this order.
    pub fn parts(parts: impl IntoIterator<Item = Bytes>) -> ResponseBody {
        BodyContent::Parts(parts.into_iter().filter(|part| !part.is_empty()).collect()).into()
    }

    /// Marks the body as one that can be found again.
    pub(super) fn with_location(self, again: BodyLocation) -> ResponseBody {
        ResponseBody { again: Some(again), ..self }
    }

    /// Returns where the body is found again; `None` if the response depends on more than the site and the request.
    pub(super) fn again(&self) -> Option<&BodyLocation> {
        self.again.as_ref()
    }

    /// Creates a body of segments of the stream `coded`. Segments in ascending order need one pass; the stream is
    /// decoded from its beginning again when a segment begins before the decoder's window.
    pub fn inflating(coded: Bytes, wanted: impl IntoIterator<Item = BodySegment>) -> ResponseBody {
        ResponseBody::from_segments(coded, wanted, None)
    }

    /// Creates a body of segments of a file of a site. The file may come from the cache, and its content is checked for
    /// damage.
    pub(super) fn page(
        source: PageSource,
        coded: Bytes,
        wanted: impl IntoIterator<Item = BodySegment>,
    ) -> ResponseBody {
        ResponseBody::from_segments(coded, wanted, Some(source))
    }

    fn from_segments(
        coded: Bytes,
        wanted: impl IntoIterator<Item = BodySegment>,
        source: Option<PageSource>,
    ) -> ResponseBody {
        let wanted: VecDeque<BodySegment> = wanted.into_iter().filter(|wanted| wanted.len() > 0).collect();
        let left = wanted.iter().map(BodySegment::len).sum();
        if left == 0 {
            return ResponseBody::empty();
        }
        BodyContent::InflatingBody(Box::new(InflatingBody {
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
        }))
        .into()
    }

    /// Creates a body of the bytes from `start` up to, not including, `end` of a body whose parts are all available.
    pub fn slice(parts: &[Bytes], start: u64, end: u64) -> ResponseBody {
        BodyContent::Parts(ResponseBody::cut(parts, start, end).collect()).into()
    }

    /// Cuts the bytes from `start` up to, not including, `end` out of these parts.
    pub fn cut(parts: &[Bytes], start: u64, end: u64) -> impl Iterator<Item = Bytes> {
        let mut at = 0u64;
        parts.iter().filter_map(move |part| {
            let len = part.len() as u64;
            let (from, to) = (start.clamp(at, at + len) - at, end.clamp(at, at + len) - at);
            at += len;
            (from < to).then(|| part.slice(from as usize..to as usize))
        })
    }

    /// Returns the number of bytes still to be sent.
    pub fn len(&self) -> u64 {
        match &self.content {
            BodyContent::Whole(chunk) => chunk.remaining() as u64,
            BodyContent::Parts(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            BodyContent::InflatingBody(inflating) => inflating.left,
        }
    }

    /// Returns whether the bytes still to be sent are inflated as they are sent.
    pub(super) fn is_inflated(&self) -> bool {
        matches!(self.content, BodyContent::InflatingBody(_))
    }

    /// Returns whether no bytes are left to be sent.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
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
    /// Makes one step if this thread may inflate now; otherwise the task is woken when it may.
    fn poll_step(&mut self, context: &Context<'_>) -> Poll<BodyStep> {
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
    fn first_step(&mut self) -> BodyStep {
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
        matches!(self.wanted.front(), Some(&BodySegment::Inflated(0, end)) if Some(end) == len && self.wanted.len() == 1)
    }

    /// Takes the next segment from the whole inflated file.
    fn step_of_whole_page(&mut self) -> BodyStep {
        let is_whole = self.is_whole();
        let chunk = match (&self.page, self.wanted.pop_front()) {
            (Some(page), Some(BodySegment::Inflated(..))) if is_whole => BodyChunk::from(page.clone()),
            (Some(page), Some(BodySegment::Inflated(start, end))) => {
                page.bytes.slice(start as usize..end as usize).into()
            }
            (_, Some(BodySegment::Bytes(bytes))) => bytes.into(),
            _ => return BodyStep::End,
        };
        self.sent(chunk)
    }

    /// Takes the next segment from the decoder, and decodes one window at most.
    fn step(&mut self) -> BodyStep {
        let mut may_decode = true;
        loop {
            let (start, end) = match self.wanted.front() {
                None => return BodyStep::End,
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
                return BodyStep::End;
            }
            if !may_decode {
                return BodyStep::Skipped;
            }
            match self.decode() {
                None => return BodyStep::Skipped,
                Some(true) => may_decode = false,
                Some(false) => {
                    self.report_damage();
                    return BodyStep::End;
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

    fn sent(&mut self, chunk: BodyChunk) -> BodyStep {
        self.left -= chunk.remaining() as u64;
        if self.left == 0 {
            self.decoder.release();
        }
        BodyStep::Data(chunk)
    }
}

impl http_body::Body for ResponseBody {
    type Data = BodyChunk;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<BodyChunk>, Infallible>>> {
        let next = match &mut self.get_mut().content {
            BodyContent::Whole(chunk) => {
                let all = std::mem::replace(chunk, Bytes::new().into());
                all.has_remaining().then_some(all)
            }
            BodyContent::Parts(parts) => parts.pop_front().map(BodyChunk::from),
            BodyContent::InflatingBody(inflating) => match ready!(inflating.poll_step(context)) {
                BodyStep::Data(chunk) => Some(chunk),
                BodyStep::End => None,
                BodyStep::Skipped => {
                    end_turn(context);
                    return Poll::Pending;
                }
            },
        };
        Poll::Ready(next.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len())
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Waker;

    use http_body::Body as _;

    use super::*;
    use crate::damage_reports::DamageReports;
    use crate::page_cache::PageCache;
    use docwharf_base::codec::deflate::Deflater;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;

    #[test]
    fn what_comes_before_a_part_is_gone_through_a_window_at_a_time_and_others_are_let_in_between() {
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let mut coded = Vec::new();
        Deflater::new(1).encode_all(&content, &mut coded);
        let len = content.len() as u64;
        let wanted =
            [BodySegment::Bytes("head".into()), BodySegment::Inflated(7, 9), BodySegment::Inflated(len - 5, len)];
        let mut body = ResponseBody::inflating(coded.into(), wanted);
        assert_eq!(body.len(), 11);
        let (mut sent, mut pauses) = (Vec::new(), 0);
        loop {
            match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => pauses += 1,
                Poll::Ready(Some(Ok(frame))) => {
                    sent.extend(frame.into_data().into_iter().flat_map(|chunk| chunk.parts().concat()));
                }
                Poll::Ready(None) => break,
            }
        }
        assert_eq!(sent, [b"head", &content[7..9], &content[content.len() - 5..]].concat());
        assert!(pauses >= 10, "{pauses} pauses");
        assert!(body.is_end_stream());
    }

    /// Returns all bytes that a body sends, and whether it reached its end.
    fn all_of(mut body: ResponseBody) -> (Vec<u8>, bool) {
        let mut sent = Vec::new();
        loop {
            match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
                Poll::Pending => {}
                Poll::Ready(Some(Ok(frame))) => {
                    sent.extend(frame.into_data().into_iter().flat_map(|chunk| chunk.parts().concat()));
                }
                Poll::Ready(None) => return (sent, body.is_empty()),
            }
        }
    }

    fn content(len: u32) -> (Vec<u8>, Bytes) {
        let content: Vec<u8> = (0..len).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let mut coded = Vec::new();
        Deflater::new(1).encode_all(&content, &mut coded);
        (content, coded.into())
    }

    #[test]
    fn what_the_disk_has_changed_in_a_page_is_told_of_once_all_of_it_was_made() {
        for len in [60_000, 300_001] {
            let (content, coded) = content(len);
            let (len, crc) = (u64::from(len), crc32fast::hash(&content));
            let digest = Digest::of(&content);
            // The length and CRC-32 that the index has, the number of coded bytes, the requested range, and whether
            // damage is reported.
            for (known_len, known_crc, there, wanted, expected) in [
                (len, crc, coded.len(), (0, len), false),
                (len, crc ^ 1, coded.len(), (0, len), true),
                (len + 1, crc, coded.len(), (0, len), true),
                (len, crc, coded.len() / 2, (0, len), true),
                (len, crc ^ 1, coded.len(), (len - 7, len), true),
                (len, crc, coded.len(), (len - 7, len), false),
                (len, crc, coded.len(), (5, 9), false),
            ] {
                let what = format!("{known_len} {known_crc} {there} {wanted:?} of {len}");
                let doubts = Arc::<DamageReports>::default();
                let pages = Arc::new(PageCache::new(1 << 20, Arc::clone(&doubts)));
                let version = VersionId(digest);
                let source = PageSource { pages: Arc::clone(&pages), version, digest, len: known_len, crc: known_crc };
                let (sent, is_whole) = all_of(ResponseBody::page(
                    source,
                    coded.slice(..there),
                    [BodySegment::Inflated(wanted.0, wanted.1)],
                ));
                let asked = &content[wanted.0 as usize..wanted.1 as usize];
                assert_eq!(is_whole, there == coded.len(), "{what}");
                assert!(asked.starts_with(&sent) && (!is_whole || sent == asked), "{what}: {} bytes", sent.len());
                let raised = pin!(doubts.wait_for_report()).poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(raised.is_ready(), expected, "{what}");
                assert_eq!(pages.get(&digest).is_some(), known_len <= MAX_SMALL_PAGE_BYTES && !expected, "{what}");
            }
        }
    }

    #[test]
    fn parts_are_made_in_any_order_though_a_stream_is_gone_through_from_its_beginning() {
        let (content, coded) = content(200_000);
        let len = content.len() as u64;
        for slices in [
            &[(0, len)][..],
            &[(0, 1), (1, 2), (len - 1, len)],
            &[(len - 5, len), (0, 4), (2, 9)],
            &[(150_000, 150_010), (40_000, 150_000), (65_530, 65_540)],
            &[(7, 7), (3, 4), (len, len)],
            &[(5, 5)],
            &[],
        ] {
            let wanted = slices.iter().map(|&(start, end)| BodySegment::Inflated(start, end));
            let body = ResponseBody::inflating(coded.clone(), wanted);
            let expected: Vec<u8> =
                slices.iter().flat_map(|&(start, end)| &content[start as usize..end as usize]).copied().collect();
            assert_eq!((body.len(), body.is_empty()), (expected.len() as u64, expected.is_empty()), "{slices:?}");
            assert_eq!(body.is_inflated(), !expected.is_empty(), "{slices:?}");
            assert!(all_of(body) == (expected, true), "{slices:?}");
        }
    }

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

    #[test]
    fn what_is_cut_out_of_a_body_is_that_part_of_all_its_pieces() {
        let pieces = ["ab", "", "cdef", "g"].map(Bytes::from);
        let whole = pieces.concat();
        for start in 0..=whole.len() {
            for end in start..=whole.len() + 1 {
                let cut: Vec<Bytes> = ResponseBody::cut(&pieces, start as u64, end as u64).collect();
                let expected = &whole[start..end.min(whole.len())];
                assert_eq!(cut.concat(), expected, "{start}-{end}");
                assert!(cut.iter().all(|piece| !piece.is_empty()), "{start}-{end}");
                let body = ResponseBody::slice(&pieces, start as u64, end as u64);
                assert_eq!((body.len(), body.is_end_stream()), (expected.len() as u64, expected.is_empty()));
                assert_eq!(all_of(body), (expected.to_vec(), true), "{start}-{end}");
            }
        }
        assert_eq!(all_of(ResponseBody::parts(pieces)), (whole, true));
        assert_eq!(all_of(ResponseBody::empty()), (Vec::new(), true));
    }
}
