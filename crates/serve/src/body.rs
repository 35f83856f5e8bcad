//! Response bodies: slices of the image, or a page that is inflated when the client takes it. A small page, and one that is
//! kept, is there whole at that moment; of others there is never more than a window in memory. What comes before a range is
//! inflated, too, and dropped.
//!
//! A body that waits for its reader holds no page: it looks for one when its first bytes are taken.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::{Buf, Bytes};
use http_body::{Frame, SizeHint};

use docwharf_base::codec::dense::Dense;
use docwharf_base::codec::gzip;
use docwharf_base::codec::inflate::Status;
use docwharf_site::room::Lies;

use super::decoders::DecoderClaim;
use super::held::{HELD, Hold};
use super::negotiate::Form;
use super::pages::{Page, PageSource, SMALL};
use super::turn::{end_turn, has_inflated, may_inflate};

/// A response body. Its length is always known.
#[derive(Debug)]
pub struct Body {
    content: Content,
    again: Option<Again>,
}

#[derive(Debug)]
enum Content {
    /// All of it at once.
    Whole(Chunk),
    /// Bytes that are there.
    Parts(VecDeque<Bytes>),
    /// Bytes that are being made.
    Inflating(Box<Inflating>),
}

/// How the same body is had again, as long as the site stays as it is: where it lies, not the bytes, which would hold on to
/// their version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Again {
    /// There is none.
    Nothing,
    /// A text of the program's own.
    Text(&'static [u8]),
    /// A file of the version that is served, in a form that lies in its image.
    File(usize, Form),
    /// The same in a denser form, whose bytes have this CRC-32: that form may be made anew while its version stays.
    Dense(usize, Dense, u32),
}

/// A DEFLATE stream being decoded piece by piece.
#[derive(Debug)]
pub struct Inflating {
    coded: Bytes,
    at: usize,
    decoder: DecoderClaim,
    /// Bytes decoded so far; the last of them are what the decoder shows.
    made: u64,
    is_done: bool,
    wanted: VecDeque<Wanted>,
    /// Bytes still to be sent.
    left: u64,
    /// What page this is, if it is one of a site.
    source: Option<PageSource>,
    /// Whether it was looked whether there is a whole page.
    is_begun: bool,
    /// The whole page.
    page: Option<Page>,
    /// What was decoded so far: its CRC-32, and how many bytes.
    checked: (crc32fast::Hasher, u64),
}

/// Longest piece that is made at a time, in bytes, while much more may be held; and while little may, or nothing.
const PIECE: u64 = 64 * 1024;
const SMALL_PIECE: u64 = 16 * 1024;
const SMALLEST_PIECE: u64 = 4 * 1024;

/// Bytes of a body on their way, counted as held.
struct HeldPiece {
    bytes: Vec<u8>,
    _hold: Hold,
}

impl HeldPiece {
    /// As many of these bytes as one piece may have now.
    fn first_of(bytes: &[u8]) -> Bytes {
        let (left, limit) = (HELD.left(), HELD.limit());
        let most = match left {
            _ if left > limit / 2 => PIECE,
            _ if left > limit / 4 => SMALL_PIECE,
            _ => SMALLEST_PIECE,
        };
        let bytes = &bytes[..bytes.len().min(most as usize)];
        Bytes::from_owner(HeldPiece { bytes: bytes.to_vec(), _hold: HELD.hold(bytes.len() as u64) })
    }
}

impl AsRef<[u8]> for HeldPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// What is to be sent next.
#[derive(Debug)]
pub enum Wanted {
    /// These bytes.
    There(Bytes),
    /// Those of the stream from the first number up to, not including, the second.
    Made(u64, u64),
}

/// How far one step of decoding came.
enum Step {
    /// Something to be sent.
    Data(Chunk),
    /// Nothing of what was made is wanted: others come first now.
    Skipped,
    End,
}

/// Bytes to be sent in one go: those of the image as they lie there, and what frames them.
#[derive(Debug, Clone)]
pub struct Chunk {
    front: &'static [u8],
    bytes: Bytes,
    back: [u8; gzip::TRAILER],
    /// How much of `back` has been sent, or is not there.
    back_at: usize,
    /// Where `bytes` lie, if the kernel can send them from there.
    lies: Option<Lies>,
}

impl From<Bytes> for Chunk {
    fn from(bytes: Bytes) -> Chunk {
        Chunk::lying(bytes, None)
    }
}

impl Chunk {
    /// These bytes between these others.
    pub fn framed(front: &'static [u8], bytes: Bytes, back: [u8; gzip::TRAILER]) -> Chunk {
        Chunk { front, bytes, back, back_at: 0, lies: None }
    }

    /// These bytes, which lie there.
    pub(super) fn lying(bytes: Bytes, lies: Option<Lies>) -> Chunk {
        Chunk { front: &[], bytes, back: [0; gzip::TRAILER], back_at: gzip::TRAILER, lies }
    }

    /// Where they lie, if the kernel can send them from there.
    pub(super) fn lies(&self) -> Option<&Lies> {
        self.lies.as_ref()
    }

    /// The kernel cannot, after all.
    pub(super) fn forget_where(&mut self) {
        self.lies = None;
    }

    /// The first `n` bytes: what is in front, of what lies there so many, and what is behind.
    pub(super) fn first(&self, n: usize) -> (&[u8], (&Bytes, usize), &[u8]) {
        let front = n.min(self.front.len());
        let bytes = (n - front).min(self.bytes.len());
        let back = n - front - bytes;
        (&self.front[..front], (&self.bytes, bytes), &self.back[self.back_at..][..back])
    }

    /// The same one by one, to be cut.
    pub fn parts(&self) -> [Bytes; 3] {
        [Bytes::from_static(self.front), self.bytes.clone(), Bytes::copy_from_slice(&self.back[self.back_at..])]
    }
}

impl Buf for Chunk {
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
            lies.at += bytes as u64;
        }
        let back = count - front - bytes;
        assert!(back <= self.back.len() - self.back_at, "advanced beyond the end");
        self.back_at += back;
    }
}

impl From<Chunk> for Body {
    fn from(chunk: Chunk) -> Body {
        Content::Whole(chunk).into()
    }
}

impl From<Content> for Body {
    fn from(content: Content) -> Body {
        Body { content, again: None }
    }
}

impl Body {
    /// No bytes.
    pub fn empty() -> Body {
        Body::full(Bytes::new())
    }

    /// These bytes.
    pub fn full(bytes: impl Into<Bytes>) -> Body {
        Chunk::from(bytes.into()).into()
    }

    /// These bytes, one after the other.
    pub fn parts(parts: impl IntoIterator<Item = Bytes>) -> Body {
        Content::Parts(parts.into_iter().filter(|part| !part.is_empty()).collect()).into()
    }

    /// The same, which can be had again in this way.
    pub(super) fn lasting(self, again: Again) -> Body {
        Body { again: Some(again), ..self }
    }

    /// How the same body is had again, if the whole answer depends on nothing but site and request.
    pub(super) fn again(&self) -> Option<&Again> {
        self.again.as_ref()
    }

    /// Parts of what `coded` expands to, and what goes between them. They are in the order in which they are made: a stream
    /// is gone through once.
    pub fn inflating(coded: Bytes, wanted: impl IntoIterator<Item = Wanted>) -> Body {
        Body::made(coded, wanted, None)
    }

    /// The same of a page of a site, which may be there whole when it is sent, and is looked at for damage.
    pub(super) fn page(source: PageSource, coded: Bytes, wanted: impl IntoIterator<Item = Wanted>) -> Body {
        Body::made(coded, wanted, Some(source))
    }

    fn made(coded: Bytes, wanted: impl IntoIterator<Item = Wanted>, source: Option<PageSource>) -> Body {
        let wanted: VecDeque<Wanted> = wanted.into_iter().filter(|wanted| wanted.len() > 0).collect();
        let left = wanted.iter().map(Wanted::len).sum();
        if left == 0 {
            return Body::empty();
        }
        Content::Inflating(Box::new(Inflating {
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

    /// The bytes from `start` up to, not including, `end` of a body that is there.
    pub fn slice(parts: &[Bytes], start: u64, end: u64) -> Body {
        Content::Parts(Body::cut(parts, start, end).collect()).into()
    }

    /// The same as pieces, to be put together with others.
    pub fn cut(parts: &[Bytes], start: u64, end: u64) -> impl Iterator<Item = Bytes> {
        let mut at = 0u64;
        parts.iter().filter_map(move |part| {
            let len = part.len() as u64;
            let (from, to) = (start.clamp(at, at + len) - at, end.clamp(at, at + len) - at);
            at += len;
            (from < to).then(|| part.slice(from as usize..to as usize))
        })
    }

    /// Bytes still to come.
    pub fn len(&self) -> u64 {
        match &self.content {
            Content::Whole(chunk) => chunk.remaining() as u64,
            Content::Parts(parts) => parts.iter().map(|part| part.len() as u64).sum(),
            Content::Inflating(inflating) => inflating.left,
        }
    }

    /// Whether what is to come has to be made.
    pub(super) fn is_made(&self) -> bool {
        matches!(self.content, Content::Inflating(_))
    }

    /// Whether nothing is to come.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Wanted {
    fn len(&self) -> u64 {
        match self {
            Wanted::There(bytes) => bytes.len() as u64,
            Wanted::Made(start, end) => end - start,
        }
    }
}

impl Inflating {
    /// Goes on, if this thread may inflate now; else the task is woken when it may.
    fn poll_step(&mut self, context: &Context<'_>) -> Poll<Step> {
        // Also where it has to begin anew.
        if self.made == 0 && self.page.is_none() {
            self.page = self.source.as_ref().and_then(PageSource::kept);
        }
        if self.page.is_some() {
            self.is_begun = true;
            return Poll::Ready(self.step_of_page());
        }
        if !may_inflate(context) {
            return Poll::Pending;
        }
        let begun = Instant::now();
        let step = if std::mem::replace(&mut self.is_begun, true) { self.step() } else { self.first_step() };
        has_inflated(begun.elapsed());
        Poll::Ready(step)
    }

    /// Begins: with the whole page if that is small.
    fn first_step(&mut self) -> Step {
        if let Some(source) = &self.source {
            if source.len <= SMALL {
                // What is damaged goes out as far as it can be decoded, while its version is verified.
                if let Some(page) = source.make(&self.coded) {
                    self.page = Some(page);
                    return self.step_of_page();
                }
            } else if self.is_whole() {
                source.wish(&self.coded);
            }
        }
        self.step()
    }

    /// Whether it is the whole page that is wanted.
    fn is_whole(&self) -> bool {
        let len = self.source.as_ref().map(|source| source.len);
        matches!(self.wanted.front(), Some(&Wanted::Made(0, end)) if Some(end) == len && self.wanted.len() == 1)
    }

    /// Takes what is wanted next from the whole page.
    fn step_of_page(&mut self) -> Step {
        let is_whole = self.is_whole();
        let chunk = match (&self.page, self.wanted.pop_front()) {
            (Some(page), Some(Wanted::Made(..))) if is_whole => Chunk::from(page.clone()),
            (Some(page), Some(Wanted::Made(start, end))) => page.bytes.slice(start as usize..end as usize).into(),
            (_, Some(Wanted::There(bytes))) => bytes.into(),
            _ => return Step::End,
        };
        self.sent(chunk)
    }

    /// Decodes one window at most.
    fn step(&mut self) -> Step {
        let mut may_decode = true;
        loop {
            let (start, end) = match self.wanted.front() {
                None => return Step::End,
                Some(&Wanted::Made(start, end)) => (start, end),
                Some(Wanted::There(bytes)) => {
                    let bytes = bytes.clone();
                    self.wanted.pop_front();
                    return self.sent(bytes.into());
                }
            };
            if let Some(bytes) = self.made_of(start, end) {
                self.decoder.has_sent();
                let to = start + bytes.len() as u64;
                match self.wanted.front_mut() {
                    Some(Wanted::Made(start, end)) if to < *end => *start = to,
                    _ => drop(self.wanted.pop_front()),
                }
                return self.sent(bytes.into());
            }
            // The stream was proved when it was sealed; if the file has rotted since, the response ends short, which
            // the client notices by its length.
            if self.is_done {
                return Step::End;
            }
            if !may_decode {
                return Step::Skipped;
            }
            match self.decode() {
                None => return Step::Skipped,
                Some(true) => may_decode = false,
                Some(false) => {
                    self.doubt();
                    return Step::End;
                }
            }
        }
    }

    /// A piece of what the decoder shows, from `start` on and before `end`. None if it has to be decoded first.
    fn made_of(&mut self, start: u64, end: u64) -> Option<Bytes> {
        let made = self.made;
        if made == 0 {
            return None;
        }
        let piece = self.decoder.with(|decoder, is_new| {
            let output = decoder.output();
            let begin = made.checked_sub(output.len() as u64).filter(|&begin| !is_new && begin <= start)?;
            let (from, to) = (start, end.min(made));
            Some((from < to).then(|| HeldPiece::first_of(&output[(from - begin) as usize..(to - begin) as usize])))
        });
        piece.flatten().unwrap_or_else(|| {
            // Another body has got the decoder, or what is wanted comes before what was decoded: all over again.
            (self.at, self.made, self.is_done) = (0, 0, false);
            None
        })
    }

    /// Decodes a window; whether that went well. None if there is no decoder now.
    fn decode(&mut self) -> Option<bool> {
        let Inflating { coded, at, made, is_done, checked, source, decoder, .. } = self;
        decoder.with(|decoder, is_new| {
            if is_new || *made == 0 {
                decoder.reset();
                (*at, *made) = (0, 0);
            }
            let Ok(step) = decoder.run(&coded[*at..], true) else { return false };
            *at += step.consumed;
            let output = decoder.output();
            *is_done = step.status == Status::Done;
            let Some(source) = source else {
                *made += output.len() as u64;
                return true;
            };
            // What was decoded before a decoder was lost is not looked at again.
            let known = checked.1.saturating_sub(*made).min(output.len() as u64) as usize;
            *made += output.len() as u64;
            checked.0.update(&output[known..]);
            checked.1 = checked.1.max(*made);
            // Nobody asks for the end of a stream whose last byte fills the window.
            let is_whole = *is_done || *made == source.len;
            if is_whole && (checked.1 != source.len || checked.0.clone().finalize() != source.crc) {
                source.doubt();
            }
            true
        })
    }

    /// Says that what the disk has is not what was sealed.
    fn doubt(&self) {
        if let Some(source) = &self.source {
            source.doubt();
        }
    }

    fn sent(&mut self, chunk: Chunk) -> Step {
        self.left -= chunk.remaining() as u64;
        if self.left == 0 {
            self.decoder.give_up();
        }
        Step::Data(chunk)
    }
}

impl http_body::Body for Body {
    type Data = Chunk;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Chunk>, Infallible>>> {
        let next = match &mut self.get_mut().content {
            Content::Whole(chunk) => {
                let all = std::mem::replace(chunk, Bytes::new().into());
                all.has_remaining().then_some(all)
            }
            Content::Parts(parts) => parts.pop_front().map(Chunk::from),
            Content::Inflating(inflating) => match ready!(inflating.poll_step(context)) {
                Step::Data(chunk) => Some(chunk),
                Step::End => None,
                Step::Skipped => {
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
    use docwharf_base::codec::deflate::Deflater;
    use docwharf_base::model::digest::Digest;
    use docwharf_base::model::version::VersionId;
    use crate::doubts::Doubts;
    use crate::pages::Pages;

    #[test]
    fn what_comes_before_a_part_is_gone_through_a_window_at_a_time_and_others_are_let_in_between() {
        let content: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let mut coded = Vec::new();
        Deflater::new(1).all(&content, &mut coded);
        let len = content.len() as u64;
        let wanted = [Wanted::There("head".into()), Wanted::Made(7, 9), Wanted::Made(len - 5, len)];
        let mut body = Body::inflating(coded.into(), wanted);
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

    /// All that is sent of a body, and whether it came to its end.
    fn all_of(mut body: Body) -> (Vec<u8>, bool) {
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
        Deflater::new(1).all(&content, &mut coded);
        (content, coded.into())
    }

    #[test]
    fn what_the_disk_has_changed_in_a_page_is_told_of_once_all_of_it_was_made() {
        for len in [60_000, 300_001] {
            let (content, coded) = content(len);
            let (len, crc) = (u64::from(len), crc32fast::hash(&content));
            let digest = Digest::of(&content);
            // What is known of the page, what there is of its bytes, what is asked for, and whether it is told of.
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
                let doubts = Arc::<Doubts>::default();
                let pages = Arc::new(Pages::new(1 << 20, Arc::clone(&doubts)));
                let version = VersionId(digest);
                let source = PageSource { pages: Arc::clone(&pages), version, digest, len: known_len, crc: known_crc };
                let (sent, is_whole) =
                    all_of(Body::page(source, coded.slice(..there), [Wanted::Made(wanted.0, wanted.1)]));
                let asked = &content[wanted.0 as usize..wanted.1 as usize];
                assert_eq!(is_whole, there == coded.len(), "{what}");
                assert!(asked.starts_with(&sent) && (!is_whole || sent == asked), "{what}: {} bytes", sent.len());
                let raised = pin!(doubts.raised()).poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(raised.is_ready(), expected, "{what}");
                assert_eq!(pages.get(&digest).is_some(), known_len <= SMALL && !expected, "{what}");
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
            let wanted = slices.iter().map(|&(start, end)| Wanted::Made(start, end));
            let body = Body::inflating(coded.clone(), wanted);
            let expected: Vec<u8> =
                slices.iter().flat_map(|&(start, end)| &content[start as usize..end as usize]).copied().collect();
            assert_eq!((body.len(), body.is_empty()), (expected.len() as u64, expected.is_empty()), "{slices:?}");
            assert_eq!(body.is_made(), !expected.is_empty(), "{slices:?}");
            assert!(all_of(body) == (expected, true), "{slices:?}");
        }
    }

    #[test]
    fn a_framed_chunk_is_its_three_parts_however_much_of_it_was_taken() {
        let (front, bytes, back) = (b"ab", b"cdefg", *b"01234567");
        let whole = [&front[..], bytes, &back].concat();
        for taken in 0..=whole.len() {
            for step in [1, 2, 4, whole.len()] {
                let mut chunk = Chunk::framed(front, Bytes::from_static(bytes), back);
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
                    let (front, (bytes, some), back) = chunk.first(n);
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
                let cut: Vec<Bytes> = Body::cut(&pieces, start as u64, end as u64).collect();
                let expected = &whole[start..end.min(whole.len())];
                assert_eq!(cut.concat(), expected, "{start}-{end}");
                assert!(cut.iter().all(|piece| !piece.is_empty()), "{start}-{end}");
                let body = Body::slice(&pieces, start as u64, end as u64);
                assert_eq!((body.len(), body.is_end_stream()), (expected.len() as u64, expected.is_empty()));
                assert_eq!(all_of(body), (expected.to_vec(), true), "{start}-{end}");
            }
        }
        assert_eq!(all_of(Body::parts(pieces)), (whole, true));
        assert_eq!(all_of(Body::empty()), (Vec::new(), true));
    }
}
