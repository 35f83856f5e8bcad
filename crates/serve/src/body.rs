//! Response bodies: slices of the image, a file that is inflated as the client reads it, or chunks that are made while
//! the body is sent.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use http::Response;
use http_body::{Frame, SizeHint};

use docwharf_base::codec::content_coding::ContentCoding;

use super::body_chunk::BodyChunk;
use super::inflated_file_cache::InflatedFileSource;
use super::inflating_body::{BodySegment, DecodingStep, InflatingBody};
use super::insertion::TagDigest;
use super::negotiate::ResponseForm;
use super::recording::ViewedContent;
use super::streamed_body::{BodySender, StreamedBody};
use super::turn::end_turn;

/// A response body. Its length is known, unless it is streamed.
#[derive(Debug)]
pub struct ResponseBody {
    content: BodyContent,
    location: Option<BodyLocation>,
    viewed: ViewedContent,
}

/// The response to a request whose body was read, perhaps later.
pub(super) type PostAnswer = Pin<Box<dyn Future<Output = Response<ResponseBody>> + Send>>;

#[derive(Debug)]
enum BodyContent {
    /// The whole body in one chunk.
    Whole(BodyChunk),
    /// Several slices, all of them available.
    Parts(VecDeque<Bytes>),
    /// Bytes that are inflated as they are sent.
    Inflating(Box<InflatingBody>),
    /// Chunks that are made as they are sent.
    Streamed(Box<StreamedBody>),
}

/// The location from which the body of a cached response is read again while the site does not change. It does not
/// include the bytes, because bytes would keep their version in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum BodyLocation {
    /// The body is empty.
    Empty,
    /// The body is a text of the program.
    StaticText(&'static [u8]),
    /// The body is a file of the served version in the form gzip or identity, from the image or the cache of inflated
    /// files.
    File(usize, ResponseForm),
    /// The body is a precompressed file of the served version. The CRC-32 is that of the coded bytes, because a coding
    /// may be replaced while its version stays.
    Precompressed(usize, ContentCoding, u32),
    /// The body is a text of the program, followed by the tag with this digest. The tag may be replaced before a change
    /// of the generation is seen.
    TextWithTag(&'static [u8], TagDigest),
    /// The body is a file of the served version, followed by a tag.
    PageWithTag {
        /// The number of the file.
        file: usize,
        form: ResponseForm,
        /// The CRC-32 of a precompressed form without the tag; 0 for any other form.
        coded_crc: u32,
        /// The digest of the tag.
        tag: TagDigest,
    },
}

/// The part of a body that the response cache stores: its location, and the page that counts as viewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StoredBody {
    pub(super) location: BodyLocation,
    pub(super) viewed: ViewedContent,
}

impl From<BodyLocation> for StoredBody {
    fn from(location: BodyLocation) -> StoredBody {
        StoredBody { location, viewed: ViewedContent::Nothing }
    }
}

impl From<BodyChunk> for ResponseBody {
    fn from(chunk: BodyChunk) -> ResponseBody {
        BodyContent::Whole(chunk).into()
    }
}

impl From<BodyContent> for ResponseBody {
    fn from(content: BodyContent) -> ResponseBody {
        ResponseBody { content, location: None, viewed: ViewedContent::Nothing }
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

    /// Adds the location from which the body can be read again.
    pub(super) fn with_location(self, location: BodyLocation) -> ResponseBody {
        ResponseBody { location: Some(location), ..self }
    }

    /// Returns the location from which the body can be read again; `None` if the response depends on more than the site
    /// and the request.
    pub(super) fn location(&self) -> Option<&BodyLocation> {
        self.location.as_ref()
    }

    /// Sets the part of the site that is viewed with this response.
    pub(super) fn with_viewed(self, viewed: ViewedContent) -> ResponseBody {
        ResponseBody { viewed, ..self }
    }

    /// Returns the part of the site that is viewed with this response.
    pub(super) fn viewed(&self) -> ViewedContent {
        self.viewed
    }

    /// Creates a body of segments of the DEFLATE stream `coded`. Segments in ascending order need one pass; the stream
    /// is decoded from its beginning again when a segment begins before the decoder's window.
    pub fn inflating(coded: Bytes, segments: impl IntoIterator<Item = BodySegment>) -> ResponseBody {
        ResponseBody::from_segments(coded, segments, None)
    }

    /// Creates a body of segments of a file of a site. The file may come from the cache, and its content is checked for
    /// damage.
    pub(super) fn from_file(
        source: InflatedFileSource,
        coded: Bytes,
        segments: impl IntoIterator<Item = BodySegment>,
    ) -> ResponseBody {
        ResponseBody::from_segments(coded, segments, Some(source))
    }

    fn from_segments(
        coded: Bytes,
        segments: impl IntoIterator<Item = BodySegment>,
        source: Option<InflatedFileSource>,
    ) -> ResponseBody {
        let body = InflatingBody::new(coded, segments, source);
        if body.len() == 0 { ResponseBody::empty() } else { BodyContent::Inflating(Box::new(body)).into() }
    }

    /// Creates a body of the bytes from `start` up to, not including, `end` of a body whose parts are all available.
    pub fn slice(parts: &[Bytes], start: u64, end: u64) -> ResponseBody {
        BodyContent::Parts(ResponseBody::slice_parts(parts, start, end).collect()).into()
    }

    /// Cuts the bytes from `start` up to, not including, `end` out of these parts.
    pub fn slice_parts(parts: &[Bytes], start: u64, end: u64) -> impl Iterator<Item = Bytes> {
        let mut offset = 0u64;
        parts.iter().filter_map(move |part| {
            let len = part.len() as u64;
            let (from, to) = (start.clamp(offset, offset + len) - offset, end.clamp(offset, offset + len) - offset);
            offset += len;
            (from < to).then(|| part.slice(from as usize..to as usize))
        })
    }

    /// Creates a body of the chunks that the future of `produce` sends. The body ends when the future does, and the
    /// future is dropped when the client disconnects.
    pub(crate) fn streamed<F>(produce: impl FnOnce(BodySender) -> F) -> ResponseBody
    where
        F: Future<Output = ()> + Send + 'static,
    {
        BodyContent::Streamed(Box::new(StreamedBody::new(produce))).into()
    }

    /// Returns the number of bytes still to be sent; 0 if it is not known, because the body is streamed.
    pub fn len(&self) -> u64 {
        match &self.content {
            BodyContent::Whole(chunk) => chunk.remaining() as u64,
            BodyContent::Parts(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            BodyContent::Inflating(inflating) => inflating.len(),
            BodyContent::Streamed(_) => 0,
        }
    }

    /// Returns whether the length is not known, because the chunks are made as they are sent.
    pub(super) fn is_streamed(&self) -> bool {
        matches!(self.content, BodyContent::Streamed(_))
    }

    /// Returns whether the bytes still to be sent are inflated as they are sent.
    pub(super) fn is_inflated(&self) -> bool {
        matches!(self.content, BodyContent::Inflating(_))
    }

    /// Returns whether no bytes are left to be sent. Of a streamed body that is known only after its end.
    pub fn is_empty(&self) -> bool {
        match &self.content {
            BodyContent::Streamed(streamed) => streamed.has_ended(),
            _ => self.len() == 0,
        }
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
                let whole = std::mem::replace(chunk, Bytes::new().into());
                whole.has_remaining().then_some(whole)
            }
            BodyContent::Parts(parts) => parts.pop_front().map(BodyChunk::from),
            BodyContent::Inflating(inflating) => match ready!(inflating.poll_step(context)) {
                DecodingStep::Data(chunk) => Some(chunk),
                DecodingStep::End => None,
                DecodingStep::Skipped => {
                    end_turn(context);
                    return Poll::Pending;
                }
            },
            BodyContent::Streamed(streamed) => ready!(streamed.poll_chunk(context)).map(BodyChunk::from),
        };
        Poll::Ready(next.map(|chunk| Ok(Frame::data(chunk))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        if self.is_streamed() && !self.is_empty() { SizeHint::default() } else { SizeHint::with_exact(self.len()) }
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
    use crate::inflated_file_cache::{InflatedFileCache, MAX_SMALL_FILE_BYTES};
    use docwharf_base::codec::deflate::Deflater;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;

    // Regression: a range of a compressed file inflated everything before it in one piece, while other connections
    // waited.
    #[test]
    fn inflating_up_to_a_range_start_yields_to_other_connections_between_windows() {
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let mut coded = Vec::new();
        Deflater::new(1).encode_all(&content, &mut coded);
        let len = content.len() as u64;
        let segments =
            [BodySegment::Bytes("head".into()), BodySegment::Inflated(7, 9), BodySegment::Inflated(len - 5, len)];
        let mut body = ResponseBody::inflating(coded.into(), segments);
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
    fn read_all(mut body: ResponseBody) -> (Vec<u8>, bool) {
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
    fn a_damaged_file_is_reported_after_it_was_inflated_completely() {
        for len in [60_000, 300_001] {
            let (content, coded) = content(len);
            let (len, crc) = (u64::from(len), crc32fast::hash(&content));
            let digest = Digest::compute(&content);
            // The length and CRC-32 that the index has, the number of coded bytes, the requested range, and whether
            // damage is reported.
            for (known_len, known_crc, available, range, expected) in [
                (len, crc, coded.len(), (0, len), false),
                (len, crc ^ 1, coded.len(), (0, len), true),
                (len + 1, crc, coded.len(), (0, len), true),
                (len, crc, coded.len() / 2, (0, len), true),
                (len, crc ^ 1, coded.len(), (len - 7, len), true),
                (len, crc, coded.len(), (len - 7, len), false),
                (len, crc, coded.len(), (5, 9), false),
            ] {
                let case = format!("{known_len} {known_crc} {available} {range:?} of {len}");
                let damage_reports = Arc::<DamageReports>::default();
                let cache = Arc::new(InflatedFileCache::new(1 << 20, Arc::clone(&damage_reports)));
                let version = VersionId(digest);
                let source =
                    InflatedFileSource { cache: Arc::clone(&cache), version, digest, len: known_len, crc: known_crc };
                let (sent, is_whole) = read_all(ResponseBody::from_file(
                    source,
                    coded.slice(..available),
                    [BodySegment::Inflated(range.0, range.1)],
                ));
                let requested = &content[range.0 as usize..range.1 as usize];
                assert_eq!(is_whole, available == coded.len(), "{case}");
                assert!(
                    requested.starts_with(&sent) && (!is_whole || sent == requested),
                    "{case}: {} bytes",
                    sent.len()
                );
                let report = pin!(damage_reports.wait_for_report()).poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(report.is_ready(), expected, "{case}");
                assert_eq!(cache.get(&digest).is_some(), known_len <= MAX_SMALL_FILE_BYTES && !expected, "{case}");
            }
        }
    }

    #[test]
    fn restarted_decoding_does_not_report_an_intact_file_as_damaged() {
        let (content, coded) = content(300_001);
        let (len, digest, crc) = (content.len() as u64, Digest::compute(&content), crc32fast::hash(&content));
        for (known_crc, expected) in [(crc, false), (crc ^ 1, true)] {
            let damage_reports = Arc::<DamageReports>::default();
            let cache = Arc::new(InflatedFileCache::new(1 << 20, Arc::clone(&damage_reports)));
            let source = InflatedFileSource { cache, version: VersionId(digest), digest, len, crc: known_crc };
            // Decoding starts again for the second part, as for a body that has lost its decoder.
            let slices = [(len - 7, len), (5, 9), (len - 3, len)];
            let segments = slices.map(|(start, end)| BodySegment::Inflated(start, end));
            let (sent, is_whole) = read_all(ResponseBody::from_file(source, coded.clone(), segments));
            let requested = slices.map(|(start, end)| &content[start as usize..end as usize]).concat();
            assert_eq!((sent, is_whole), (requested, true), "{known_crc}");
            let report = pin!(damage_reports.wait_for_report()).poll(&mut Context::from_waker(Waker::noop()));
            assert_eq!(report.is_ready(), expected, "{known_crc}");
        }
    }

    #[test]
    fn an_inflating_body_sends_ranges_in_any_order() {
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
            let segments = slices.iter().map(|&(start, end)| BodySegment::Inflated(start, end));
            let body = ResponseBody::inflating(coded.clone(), segments);
            let expected: Vec<u8> =
                slices.iter().flat_map(|&(start, end)| &content[start as usize..end as usize]).copied().collect();
            assert_eq!((body.len(), body.is_empty()), (expected.len() as u64, expected.is_empty()), "{slices:?}");
            assert_eq!(body.is_inflated(), !expected.is_empty(), "{slices:?}");
            assert!(read_all(body) == (expected, true), "{slices:?}");
        }
    }

    #[test]
    fn a_body_slice_equals_the_same_range_of_the_concatenated_parts() {
        let pieces = ["ab", "", "cdef", "g"].map(Bytes::from);
        let whole = pieces.concat();
        for start in 0..=whole.len() {
            for end in start..=whole.len() + 1 {
                let cut: Vec<Bytes> = ResponseBody::slice_parts(&pieces, start as u64, end as u64).collect();
                let expected = &whole[start..end.min(whole.len())];
                assert_eq!(cut.concat(), expected, "{start}-{end}");
                assert!(cut.iter().all(|piece| !piece.is_empty()), "{start}-{end}");
                let body = ResponseBody::slice(&pieces, start as u64, end as u64);
                assert_eq!((body.len(), body.is_end_stream()), (expected.len() as u64, expected.is_empty()));
                assert_eq!(read_all(body), (expected.to_vec(), true), "{start}-{end}");
            }
        }
        assert_eq!(read_all(ResponseBody::parts(pieces)), (whole, true));
        assert_eq!(read_all(ResponseBody::empty()), (Vec::new(), true));
    }
}
