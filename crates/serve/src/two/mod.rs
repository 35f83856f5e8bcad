//! HTTP/2 (RFC 9113) towards the readers of a site, by hand for what it does not need: no body of a request is wanted, nothing
//! is pushed, and nearly every answer is there at once, so that a request is no object and no task.
//!
//! A turn: put out what windows allow of the answers that are on their way ([`streams`]), send all that was put out in one write
//! ([`out`]), read what has come and take it frame by frame ([`take`], [`frame`]). A request is decoded ([`hpack`]), judged
//! ([`request`]) and answered ([`give`]): from what was answered before to the same question, or by `handler` like all others.
//!
//! What a peer can make us keep is bounded: what was read once; half a block of fields; a table of 4 KiB; [`MOST_STREAMS`]
//! answers on their way, which are places in the image but for a few that are being made; and heads and replies, because
//! nothing more is taken while much waits to be sent. What it can make us do in vain is bounded by [`budget`] and [`uploads`],
//! and how long it can make us wait by [`deadlines`].

mod budget;
mod deadlines;
mod frame;
mod give;
pub mod hpack;
mod out;
mod request;
mod streams;
mod take;
mod uploads;

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Response;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Site;
use super::connection::{LAST_REQUEST, PREFACE};
use super::peer::Peer;
use super::tally::Told;
use super::turn::{TurnBudget, end_turn};

use budget::PeerBudget;
use deadlines::{Deadlines, Overdue, Waiting};
use frame::Code;
use hpack::Decoder;
use out::Out;
use streams::Streams;
use uploads::Uploads;

/// Answers of a connection that may be on their way at the same time.
const MOST_STREAMS: usize = 128;
/// What is read at a time.
const READ: usize = 32 * 1024;
/// What a stop asks, to know when it is known.
const SIGN: &[u8; 8] = b"docwharf";
/// Payload of the PING to a peer that has been silent.
const STILL_THERE: &[u8; 8] = b"anybody?";
/// How long, and for how many bytes, a peer is listened to that is to go.
const LINGER: Duration = Duration::from_secs(1);
const MOST_THROWN_AWAY: usize = 1 << 20;

thread_local! {
    /// What has just been read.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection of HTTP/2 to a site.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
pub struct Two {
    site: Arc<Site>,
    peer: Peer,
    /// Whether a request has come.
    begun: Arc<AtomicBool>,
    /// What the peer has still to say before its first frame.
    preface: &'static [u8],
    /// Whether that frame has come.
    is_settled: bool,
    /// What was read and not taken: part of a frame, or more.
    rest: Vec<u8>,
    /// Whether it is more: what it asks for waits until what was asked for is sent.
    is_behind: bool,
    block: Option<Block>,
    decoder: Decoder,
    /// The newest stream of the peer.
    highest: u32,
    uploads: Uploads,
    streams: Streams,
    /// Answers that have to wait, at a start.
    later: Vec<Later>,
    out: Out,
    /// Whether the peer knows that we keep no table.
    has_told_of_table: bool,
    budget: PeerBudget,
    turn: TurnBudget,
    /// Whether the turn's time is over: whatever has come waits for the next one.
    is_turn_over: bool,
    end: End,
    /// Whether nothing more comes from the peer.
    is_deaf: bool,
    deadlines: Deadlines,
    /// By when it is gone, once all has been said.
    gone_by: Option<Instant>,
    thrown_away: usize,
    /// The last stream that the peer was told would be answered.
    last_told: u32,
}

/// An answer that has to wait.
struct Later {
    stream: u32,
    /// Whether the body of the request is still coming.
    is_fed: bool,
    /// By how much the window of its stream has been widened meanwhile.
    widened: u32,
    answer: Pin<Box<dyn Future<Output = Response<Told>> + Send>>,
}

/// A block of fields that goes on in the next frame.
struct Block {
    stream: u32,
    is_last: bool,
    bytes: Vec<u8>,
    frames: usize,
}

/// How a turn ended.
enum Turn {
    /// So did the connection.
    Ended,
    /// The peer, the socket or what is being made has to go on.
    Waits,
    /// Others have theirs now; there is more to be done.
    Yields,
}

/// How far the connection has come to its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    /// The peer is told to ask no more, and has until then to show that it knows.
    Asked(Instant),
    /// What it asks after this is not answered.
    Told,
    /// The peer asks no more.
    Left,
    /// It has done what it may not.
    Failed,
}

impl Two {
    /// A connection on which nothing of HTTP/2 has been read. `begun` is told that a request has come.
    pub fn new(site: Arc<Site>, peer: Peer, begun: Arc<AtomicBool>) -> Two {
        let mut two = Two {
            site,
            peer,
            begun,
            preface: PREFACE,
            is_settled: false,
            rest: Vec::new(),
            is_behind: false,
            block: None,
            decoder: Decoder::default(),
            highest: 0,
            uploads: Uploads::default(),
            streams: Streams::default(),
            later: Vec::new(),
            out: Out::default(),
            has_told_of_table: false,
            budget: PeerBudget::new(Instant::now()),
            turn: TurnBudget::new(),
            is_turn_over: false,
            end: End::Open,
            is_deaf: false,
            deadlines: Deadlines::default(),
            gone_by: None,
            thrown_away: 0,
            last_told: 0x7fff_ffff,
        };
        two.introduce();
        two
    }

    /// Our settings (RFC 9113, 6.5.2, and RFC 9218, 2.1 for the last, which says that priorities count for nothing).
    fn introduce(&mut self) {
        let settings = [(3u16, MOST_STREAMS as u32), (6, hpack::MOST_FIELDS as u32), (9, 1)];
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        self.out.frame(frame::SETTINGS, 0, 0, &payload);
    }

    /// Takes what was read before it was known that this is HTTP/2.
    pub(super) fn begin(&mut self, early: &[u8]) {
        self.take(early);
    }

    /// By when the peer has to have done something.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let asked = if let End::Asked(until) = self.end { Some(until) } else { None };
        self.deadlines.next().into_iter().chain(self.gone_by).chain(asked).min()
    }

    /// Such a moment may have come; whether the connection has to go.
    pub(super) fn run_out(&mut self) -> bool {
        let now = Instant::now();
        if self.gone_by.is_some_and(|until| now >= until) {
            return true;
        }
        match self.deadlines.check(now, self.out.has_sent) {
            Overdue::Nothing => {}
            Overdue::Silent => self.out.frame(frame::PING, 0, 0, STILL_THERE),
            Overdue::Idle => self.finish(),
            // What waits for the socket stands before whatever could still be said.
            Overdue::Stalled if self.out.is_empty() => self.give_up(Code::Calm),
            Overdue::Stalled | Overdue::Lost => return true,
        }
        if let End::Asked(until) = self.end
            && now >= until
        {
            self.tell_last();
        }
        false
    }

    /// Answers what is on its way, and no more: the peer is told first, and after that which of its requests was the last, so
    /// that none is lost that was sent meanwhile (RFC 9113, 6.8).
    pub(super) fn finish(&mut self) {
        if self.end == End::Open {
            self.say_goodbye(0x7fff_ffff, Code::None);
            self.out.frame(frame::PING, 0, 0, SIGN);
            self.end = End::Asked(Instant::now() + LAST_REQUEST);
        }
    }

    fn tell_last(&mut self) {
        self.say_goodbye(self.highest, Code::None);
        self.end = End::Told;
    }

    fn say_goodbye(&mut self, last: u32, code: Code) {
        // Never more than was said before (RFC 9113, 6.8).
        let last = last.min(self.last_told);
        self.last_told = last;
        self.out.frame(frame::GOAWAY, 0, 0, &[last.to_be_bytes(), (code as u32).to_be_bytes()].concat());
    }

    /// Goes on until it has to wait; ready when the connection has ended.
    pub fn poll<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<()> {
        (self.turn, self.is_turn_over) = (TurnBudget::new(), false);
        match self.turn(stream, context) {
            Turn::Ended => return Poll::Ready(()),
            Turn::Yields => end_turn(context),
            Turn::Waits => {
                let waiting = self.waiting();
                if self.gone_by.is_none() && self.end != End::Failed {
                    self.deadlines.wait(Instant::now(), &waiting);
                }
                debug_assert!(waiting.is_busy || self.deadline().is_some(), "a state that waits for ever");
            }
        }
        Poll::Pending
    }

    /// What is waited for, where nothing more can be done now.
    fn waiting(&self) -> Waiting {
        let answers = self.streams.len();
        Waiting {
            // What waits for us is not late.
            is_partial: !self.is_behind && (!self.rest.is_empty() || self.block.is_some() || !self.is_settled),
            needs_window: answers > 0,
            sends_data: self.out.holds_data(),
            is_busy: !self.out.is_empty() || self.streams.is_making || self.is_behind,
            is_idle: answers == 0 && self.later.is_empty() && !self.out.holds_data() && self.end == End::Open,
            data_frames: self.streams.served.data_frames,
            newest: self.highest,
        }
    }

    /// Counts work of this cost (see [`TurnBudget::spend`]).
    fn spend(&mut self, cost: usize) {
        self.is_turn_over |= self.turn.spend(cost);
    }

    fn turn<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Turn {
        loop {
            match self.round(stream, context) {
                Some(turn) => return turn,
                None if self.is_turn_over => return Turn::Yields,
                None => {}
            }
        }
    }

    /// Sends, reads and takes once; how the turn ended, if it has.
    fn round<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Option<Turn> {
        let is_there_more = self.fill(context);
        let before = self.out.sent();
        let is_stuck = match self.out.send(stream, context) {
            Poll::Ready(Err(_)) => return Some(Turn::Ended),
            sent => sent.is_pending(),
        };
        self.spend((self.out.sent() - before) as usize);
        if !is_stuck && !is_there_more && self.is_over() {
            return Some(if self.leave(stream, context).is_ready() { Turn::Ended } else { Turn::Waits });
        }
        if self.is_behind && !self.out.is_full() {
            self.take(&[]);
            return None;
        }
        // What comes is read also while something waits to be sent: another request, or the end of the one before.
        let can_read = !self.is_deaf && !self.is_behind && self.end != End::Failed;
        let came = if can_read { self.read(stream, context) } else { Poll::Pending };
        match came {
            Poll::Ready(None) => Some(Turn::Ended),
            Poll::Ready(Some(())) if !is_stuck && !self.streams.is_making => None,
            Poll::Ready(Some(())) => Some(Turn::Yields),
            // Bodies that are being made have woken this.
            Poll::Pending if is_stuck || self.streams.is_making => Some(Turn::Waits),
            Poll::Pending if is_there_more => None,
            Poll::Pending if self.is_deaf && self.later.is_empty() => {
                // The peer sends nothing more, so no window can grow: close.
                let is_shut = Pin::new(stream).poll_shutdown(context).is_ready();
                Some(if is_shut { Turn::Ended } else { Turn::Waits })
            }
            Poll::Pending => Some(Turn::Waits),
        }
    }

    /// Says that nothing more comes, and reads on for a moment: a socket that is closed with bytes unread takes back what the
    /// peer has not read yet.
    fn leave<S: AsyncRead + AsyncWrite + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<()> {
        if self.gone_by.is_none() {
            match Pin::new(&mut *stream).poll_shutdown(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Ready(Ok(())) => {}
            }
            self.gone_by = Some(Instant::now() + LINGER);
            self.deadlines.clear();
        }
        let mut buffer = BUFFER.take();
        buffer.resize(READ, 0);
        let done = loop {
            let mut room = ReadBuf::new(&mut buffer);
            match Pin::new(&mut *stream).poll_read(context, &mut room) {
                Poll::Pending => break Poll::Pending,
                Poll::Ready(Ok(())) if !room.filled().is_empty() && self.thrown_away < MOST_THROWN_AWAY => {
                    self.thrown_away += room.filled().len();
                }
                Poll::Ready(_) => break Poll::Ready(()),
            }
        };
        BUFFER.set(buffer);
        done
    }

    /// Puts out what can be; whether there is more of it.
    fn fill(&mut self, context: &mut Context<'_>) -> bool {
        if self.end == End::Failed {
            self.streams.is_making = false;
            return false;
        }
        let mut at = 0;
        while let Some(later) = self.later.get_mut(at) {
            match later.answer.as_mut().poll(context) {
                Poll::Pending => at += 1,
                Poll::Ready(response) => {
                    let Later { stream, is_fed, widened, .. } = self.later.swap_remove(at);
                    self.give(stream, is_fed, response, None);
                    // Too much for a window is noticed when the next comes.
                    let _ = self.streams.widen(stream, widened);
                }
            }
        }
        let is_there_more = self.streams.fill(&mut self.out, context);
        while let Some(id) = self.streams.next_answered_upload() {
            self.has_answered_upload(id);
        }
        is_there_more
    }

    /// Whether nothing more is to be said.
    fn is_over(&self) -> bool {
        match self.end {
            End::Failed => true,
            End::Told | End::Left => self.streams.len() == 0 && self.later.is_empty(),
            End::Open | End::Asked(_) => false,
        }
    }

    /// Reads and takes what has come; none when the connection is broken.
    fn read<S: AsyncRead + Unpin>(&mut self, stream: &mut S, context: &mut Context<'_>) -> Poll<Option<()>> {
        let mut buffer = BUFFER.take();
        buffer.resize(READ, 0);
        let mut room = ReadBuf::new(&mut buffer);
        let read = Pin::new(stream).poll_read(context, &mut room);
        let filled = room.filled().len();
        let came = match read {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Err(_)) => Poll::Ready(None),
            Poll::Ready(Ok(())) => {
                self.is_deaf = filled == 0;
                self.deadlines.is_heard();
                self.out.has_sent = false;
                self.take(&buffer[..filled]);
                Poll::Ready(Some(()))
            }
        };
        BUFFER.set(buffer);
        came
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::Settings;
    use crate::body::Body;

    /// A connection of which nothing has been read, and that has nothing to serve.
    fn fresh() -> Two {
        let peer = Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), is_encrypted: false };
        Two::new(Site::new(Settings::default()), peer, Arc::default())
    }

    /// A connection whose peer has introduced itself, and that has nothing to serve.
    pub(super) fn begun() -> Two {
        let mut two = fresh();
        two.begin(&[PREFACE, &frame(frame::SETTINGS, 0, 0, &[])].concat());
        two
    }

    pub(super) fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
        [&frame::head(payload.len(), kind, flags, id)[..], payload].concat()
    }

    /// A request that has ended.
    pub(super) fn request(id: u32) -> Vec<u8> {
        let mut block = vec![0x82, 0x86, 0x84];
        hpack::encode::field(":authority", b"x", &mut block);
        frame(frame::HEADERS, frame::END_STREAM | frame::END_HEADERS, id, &block)
    }

    /// Frames that wait to be sent: kind, flags, stream, payload.
    pub(super) fn replies(two: &Two) -> Vec<(u8, u8, u32, Vec<u8>)> {
        let (bytes, mut at, mut frames) = (two.out.all(), 0, Vec::new());
        while let Some((frame, payload)) = frame::Frame::first(&bytes[at..]).unwrap() {
            frames.push((frame.kind, frame.flags, frame.stream, payload.to_vec()));
            at += frame::HEAD + frame.len;
        }
        frames
    }

    /// `RST_STREAM` and `GOAWAY` that wait to be sent: kind, stream (the last one, of `GOAWAY`), code.
    pub(super) fn faults(two: &Two) -> Vec<(u8, u32, u32)> {
        let fault = |(kind, _, stream, payload): (u8, u8, u32, Vec<u8>)| match kind {
            frame::RST_STREAM => Some((kind, stream, frame::number(&payload))),
            frame::GOAWAY => Some((kind, frame::number(&payload[..4]), frame::number(&payload[4..]))),
            _ => None,
        };
        replies(two).into_iter().filter_map(fault).collect()
    }

    #[test]
    fn what_widens_a_window_while_an_answer_waits_counts_when_it_is_given() {
        const LEN: usize = 200 << 10;
        let mut two = begun();
        // A request whose answer waits for a version to be opened.
        two.highest = 1;
        let answer = Box::pin(std::future::ready(Response::new(Told::from(Body::full(vec![0; LEN])))));
        two.later.push(Later { stream: 1, is_fed: false, widened: 0, answer });
        let wider = (1u32 << 20).to_be_bytes();
        two.take(&[frame(frame::WINDOW_UPDATE, 0, 0, &wider), frame(frame::WINDOW_UPDATE, 0, 1, &wider)].concat());
        let (_client, mut server) = tokio::io::duplex(1 << 20);
        let mut context = Context::from_waker(std::task::Waker::noop());
        for _ in 0..100 {
            two.round(&mut server, &mut context);
        }
        let served = two.streams.served;
        assert_eq!((served.answers, served.data_bytes), (1, LEN as u64), "it comes whole without a further window");
    }

    #[test]
    fn answers_that_wait_and_answers_on_their_way_take_their_places_together() {
        let refused = [(frame::RST_STREAM, 2 * MOST_STREAMS as u32 + 1, Code::Refused as u32)];
        for later in [0, 1, MOST_STREAMS - 1, MOST_STREAMS] {
            for (all, expected) in [(MOST_STREAMS - 1, &[][..]), (MOST_STREAMS, &refused)] {
                let mut two = begun();
                for at in 0..all {
                    let id = 2 * at as u32 + 1;
                    two.highest = id;
                    if at < later {
                        let answer = Box::pin(std::future::pending());
                        two.later.push(Later { stream: id, is_fed: false, widened: 0, answer });
                    } else {
                        two.streams.begin(id, None, Some(Body::full("x").into()), false);
                    }
                }
                two.take(&request(2 * MOST_STREAMS as u32 + 1));
                assert_eq!(faults(&two), expected, "{all}, {later} of which wait");
            }
        }
    }

    #[test]
    fn what_still_comes_after_the_end_is_thrown_away_up_to_a_mebibyte() {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let (mut client, mut server) = tokio::io::duplex(2 * READ);
        let mut two = begun();
        two.give_up(Code::Calm);
        let mut came = 0;
        while came <= MOST_THROWN_AWAY {
            // Closing while something is unread would be a reset, which may overtake what was said last.
            assert!(two.poll(&mut server, &mut context).is_pending(), "after {came} bytes");
            let Poll::Ready(Ok(n)) = Pin::new(&mut client).poll_write(&mut context, &vec![b'x'; READ]) else {
                panic!("what came is taken")
            };
            came += n;
        }
        assert!(two.poll(&mut server, &mut context).is_ready());
        // And only as long as the peer is there.
        let (client, mut server) = tokio::io::duplex(2 * READ);
        let mut two = begun();
        two.give_up(Code::Calm);
        assert!(two.poll(&mut server, &mut context).is_pending());
        drop(client);
        assert!(two.poll(&mut server, &mut context).is_ready());
    }

    #[test]
    fn requests_that_have_come_wait_when_the_time_of_a_turn_is_over() {
        let mut two = begun();
        two.is_turn_over = true;
        two.take(&[1, 3, 5].map(request).concat());
        assert_eq!((two.highest, two.is_behind), (0, true));
        assert!(!two.waiting().is_partial && two.waiting().is_busy, "it is not the peer that is late");
        while two.is_behind {
            let before = two.highest;
            (two.turn, two.is_turn_over) = (TurnBudget::new(), false);
            two.take(&[]);
            assert!(two.highest > before, "each turn gets further");
        }
        assert_eq!((two.highest, two.rest.len()), (5, 0));
    }

    #[test]
    fn a_connection_begins_with_the_preface_and_settings() {
        let protocol = [(frame::GOAWAY, 0, Code::Protocol as u32)];
        for at in 0..PREFACE.len() {
            let (mut two, mut preface) = (fresh(), PREFACE.to_vec());
            preface[at] ^= 0x20;
            two.begin(&preface);
            assert_eq!(faults(&two), protocol, "byte {at} of the preface");
        }
        for (what, first) in [
            ("PING", frame(frame::PING, 0, 0, &[0; 8])),
            ("SETTINGS with ACK", frame(frame::SETTINGS, frame::ACK, 0, &[])),
            ("SETTINGS on a stream", frame(frame::SETTINGS, 0, 1, &[])),
            ("a request", request(1)),
            ("an unknown frame", frame(0x7f, 0, 0, &[])),
        ] {
            let mut two = fresh();
            two.begin(&[PREFACE, &first].concat());
            assert_eq!(faults(&two), protocol, "{what}");
        }
    }

    #[test]
    fn frames_mean_the_same_wherever_they_are_split() {
        let ping = frame(frame::PING, 0, 0, b"12345678");
        let bytes = [PREFACE, &frame(frame::SETTINGS, 0, 0, &[]), &ping, &request(1), &ping, &request(3)].concat();
        let mut whole = fresh();
        whole.begin(&bytes);
        let kinds = |two: &Two| replies(two).iter().map(|reply| (reply.0, reply.1, reply.2)).collect::<Vec<_>>();
        let expected = kinds(&whole);
        assert_eq!(expected.iter().filter(|reply| reply.0 == frame::HEADERS).count(), 2);
        for at in 0..=bytes.len() {
            let mut two = fresh();
            two.begin(&bytes[..at]);
            two.take(&bytes[at..]);
            assert_eq!((kinds(&two), two.highest, two.rest.len()), (expected.clone(), 3, 0), "at {at}");
        }
        let mut two = fresh();
        for byte in bytes {
            two.take(&[byte]);
        }
        assert_eq!(kinds(&two), expected, "a byte at a time");
    }

    #[test]
    fn a_stop_names_the_last_stream_that_is_answered_and_never_a_later_one() {
        let mut two = begun();
        let sign = frame(frame::PING, frame::ACK, 0, SIGN);
        two.take(&[request(1), sign.clone()].concat());
        assert_eq!(faults(&two), [], "nobody has asked for that PING");
        (0..2).for_each(|_| two.finish());
        two.take(&[frame(frame::PING, frame::ACK, 0, b"another!"), request(3)].concat());
        let mut expected = vec![(frame::GOAWAY, 0x7fff_ffff, 0)];
        assert_eq!(faults(&two), expected);
        two.take(&[sign, request(5)].concat());
        expected.push((frame::GOAWAY, 3, 0));
        assert_eq!(faults(&two), expected);
        two.take(&frame(frame::PING, 0, 0, &[0; 7]));
        expected.push((frame::GOAWAY, 3, Code::FrameSize as u32));
        assert_eq!(faults(&two), expected);
        let answered = replies(&two).into_iter().filter(|reply| reply.0 == frame::HEADERS).map(|reply| reply.2);
        assert_eq!(answered.collect::<Vec<_>>(), [1, 3]);
    }
}
