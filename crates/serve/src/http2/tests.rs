use std::net::{Ipv4Addr, SocketAddr};

use http::Response;

use super::*;
use crate::SiteSettings;
use crate::body::ResponseBody;
use crate::logged_body::LoggedBody;

/// A connection to an empty site on which nothing has been read.
fn fresh() -> Http2Connection {
    let peer = Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), is_encrypted: false };
    Http2Connection::new(Site::new(SiteSettings::default()), peer, Arc::default())
}

/// A connection to an empty site whose peer has sent the preface and SETTINGS.
pub(super) fn begun() -> Http2Connection {
    let mut two = fresh();
    two.begin(&[CLIENT_PREFACE, &frame(frame::SETTINGS, 0, 0, &[])].concat());
    two
}

pub(super) fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    [&frame::encode_header(payload.len(), kind, flags, id)[..], payload].concat()
}

/// A complete request without a body.
pub(super) fn request(id: u32) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x84];
    hpack::encode::append_field(":authority", b"x", &mut block);
    frame(frame::HEADERS, frame::END_STREAM | frame::END_HEADERS, id, &block)
}

/// Queued frames: kind, flags, stream, payload.
pub(super) fn replies(two: &Http2Connection) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let (bytes, mut at, mut frames) = (two.send_buffer.all(), 0, Vec::new());
    while let Some((frame, payload)) = frame::FrameHeader::parse(&bytes[at..]).unwrap() {
        frames.push((frame.kind, frame.flags, frame.stream, payload.to_vec()));
        at += frame::HEADER_BYTES + frame.len;
    }
    frames
}

/// Queued `RST_STREAM` and `GOAWAY` frames: kind, stream (for `GOAWAY` the last stream), code.
pub(super) fn faults(two: &Http2Connection) -> Vec<(u8, u32, u32)> {
    let fault = |(kind, _, stream, payload): (u8, u8, u32, Vec<u8>)| match kind {
        frame::RST_STREAM => Some((kind, stream, frame::read_be(&payload))),
        frame::GOAWAY => Some((kind, frame::read_be(&payload[..4]), frame::read_be(&payload[4..]))),
        _ => None,
    };
    replies(two).into_iter().filter_map(fault).collect()
}

#[test]
fn what_widens_a_window_while_an_answer_waits_counts_when_it_is_given() {
    const LEN: usize = 200 << 10;
    let mut two = begun();
    // A request whose response waits for a version to be opened.
    two.newest_stream = 1;
    let answer = Box::pin(std::future::ready(Response::new(LoggedBody::from(ResponseBody::full(vec![0; LEN])))));
    two.deferred.push(DeferredResponse { stream: 1, is_request_open: false, widened: 0, response: answer });
    let wider = (1u32 << 20).to_be_bytes();
    two.receive(&[frame(frame::WINDOW_UPDATE, 0, 0, &wider), frame(frame::WINDOW_UPDATE, 0, 1, &wider)].concat());
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
    let refused = [(frame::RST_STREAM, 2 * MAX_STREAMS as u32 + 1, ErrorCode::RefusedStream as u32)];
    for later in [0, 1, MAX_STREAMS - 1, MAX_STREAMS] {
        for (all, expected) in [(MAX_STREAMS - 1, &[][..]), (MAX_STREAMS, &refused)] {
            let mut two = begun();
            for at in 0..all {
                let id = 2 * at as u32 + 1;
                two.newest_stream = id;
                if at < later {
                    let answer = Box::pin(std::future::pending());
                    two.deferred.push(DeferredResponse {
                        stream: id,
                        is_request_open: false,
                        widened: 0,
                        response: answer,
                    });
                } else {
                    two.streams.begin(id, None, Some(ResponseBody::full("x").into()), false);
                }
            }
            two.receive(&request(2 * MAX_STREAMS as u32 + 1));
            assert_eq!(faults(&two), expected, "{all}, {later} of which wait");
        }
    }
}

#[test]
fn what_still_comes_after_the_end_is_thrown_away_up_to_a_mebibyte() {
    let mut context = Context::from_waker(std::task::Waker::noop());
    let (mut client, mut server) = tokio::io::duplex(2 * READ_BUFFER_BYTES);
    let mut two = begun();
    two.fail_connection(ErrorCode::EnhanceYourCalm);
    let mut came = 0;
    while came <= MAX_LINGER_BYTES {
        // Closing with unread bytes would be a reset, which may overtake the last frames.
        assert!(two.poll(&mut server, &mut context).is_pending(), "after {came} bytes");
        let Poll::Ready(Ok(n)) = Pin::new(&mut client).poll_write(&mut context, &vec![b'x'; READ_BUFFER_BYTES]) else {
            panic!("what came is taken")
        };
        came += n;
    }
    assert!(two.poll(&mut server, &mut context).is_ready());
    // Input is read only while the peer is connected.
    let (client, mut server) = tokio::io::duplex(2 * READ_BUFFER_BYTES);
    let mut two = begun();
    two.fail_connection(ErrorCode::EnhanceYourCalm);
    assert!(two.poll(&mut server, &mut context).is_pending());
    drop(client);
    assert!(two.poll(&mut server, &mut context).is_ready());
}

#[test]
fn requests_that_have_come_wait_when_the_time_of_a_turn_is_over() {
    let mut two = begun();
    two.is_turn_over = true;
    two.receive(&[1, 3, 5].map(request).concat());
    assert_eq!((two.newest_stream, two.is_behind), (0, true));
    assert!(!two.waiting().is_partial && two.waiting().is_busy, "it is not the peer that is late");
    while two.is_behind {
        let before = two.newest_stream;
        (two.turn, two.is_turn_over) = (TurnBudget::new(), false);
        two.receive(&[]);
        assert!(two.newest_stream > before, "each turn gets further");
    }
    assert_eq!((two.newest_stream, two.rest.len()), (5, 0));
}

#[test]
fn a_connection_begins_with_the_preface_and_settings() {
    let protocol = [(frame::GOAWAY, 0, ErrorCode::Protocol as u32)];
    for at in 0..CLIENT_PREFACE.len() {
        let (mut two, mut preface) = (fresh(), CLIENT_PREFACE.to_vec());
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
        two.begin(&[CLIENT_PREFACE, &first].concat());
        assert_eq!(faults(&two), protocol, "{what}");
    }
}

#[test]
fn frames_mean_the_same_wherever_they_are_split() {
    let ping = frame(frame::PING, 0, 0, b"12345678");
    let bytes = [CLIENT_PREFACE, &frame(frame::SETTINGS, 0, 0, &[]), &ping, &request(1), &ping, &request(3)].concat();
    let mut whole = fresh();
    whole.begin(&bytes);
    let kinds =
        |two: &Http2Connection| replies(two).iter().map(|reply| (reply.0, reply.1, reply.2)).collect::<Vec<_>>();
    let expected = kinds(&whole);
    assert_eq!(expected.iter().filter(|reply| reply.0 == frame::HEADERS).count(), 2);
    for at in 0..=bytes.len() {
        let mut two = fresh();
        two.begin(&bytes[..at]);
        two.receive(&bytes[at..]);
        assert_eq!((kinds(&two), two.newest_stream, two.rest.len()), (expected.clone(), 3, 0), "at {at}");
    }
    let mut two = fresh();
    for byte in bytes {
        two.receive(&[byte]);
    }
    assert_eq!(kinds(&two), expected, "a byte at a time");
}

#[test]
fn a_stop_names_the_last_stream_that_is_answered_and_never_a_later_one() {
    let mut two = begun();
    let sign = frame(frame::PING, frame::ACK, 0, SHUTDOWN_PING);
    two.receive(&[request(1), sign.clone()].concat());
    assert_eq!(faults(&two), [], "nobody has asked for that PING");
    (0..2).for_each(|_| two.finish());
    two.receive(&[frame(frame::PING, frame::ACK, 0, b"another!"), request(3)].concat());
    let mut expected = vec![(frame::GOAWAY, 0x7fff_ffff, 0)];
    assert_eq!(faults(&two), expected);
    two.receive(&[sign, request(5)].concat());
    expected.push((frame::GOAWAY, 3, 0));
    assert_eq!(faults(&two), expected);
    two.receive(&frame(frame::PING, 0, 0, &[0; 7]));
    expected.push((frame::GOAWAY, 3, ErrorCode::FrameSize as u32));
    assert_eq!(faults(&two), expected);
    let answered = replies(&two).into_iter().filter(|reply| reply.0 == frame::HEADERS).map(|reply| reply.2);
    assert_eq!(answered.collect::<Vec<_>>(), [1, 3]);
}
