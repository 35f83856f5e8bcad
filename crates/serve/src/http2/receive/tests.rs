use super::super::TurnBudget;
use super::super::hpack::encode;
use super::super::tests::{begun, faults, frame, replies, request};
use super::*;
use crate::body::ResponseBody;

const WHOLE: u8 = frame::END_STREAM | frame::END_HEADERS;
const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

/// A connection with two pending responses. The request of stream 1 still has to send a body of `length` bytes,
/// that of stream 5 has ended, and stream 3 was never used.
fn busy(length: u64) -> Http2Connection {
    let mut two = begun();
    two.newest_stream = 5;
    two.uploads.begin(1, Some(length));
    two.streams.begin(1, None, Some(ResponseBody::full(vec![7; 100_000]).into()), true);
    two.streams.begin(5, None, Some(ResponseBody::full("x").into()), false);
    two
}

/// Makes `two` handle all of `bytes`, in as many turns as needed.
fn feed(two: &mut Http2Connection, bytes: &[u8]) {
    two.receive(bytes);
    while two.is_behind {
        (two.turn, two.is_turn_over) = (TurnBudget::new(), false);
        two.receive(&[]);
    }
}

fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        encode::append_field(name, value.as_bytes(), &mut block);
    }
    block
}

fn setting(name: u8, value: u32) -> Vec<u8> {
    [&[0, name], &value.to_be_bytes()[..]].concat()
}

#[test]
fn each_fault_of_a_connection_ends_it_with_its_code() {
    use super::super::frame::{CONTINUATION, DATA, GOAWAY, HEADERS, PING, PRIORITY, PUSH_PROMISE, RST_STREAM};
    use super::super::frame::{SETTINGS, WINDOW_UPDATE};
    let good = request(7)[frame::HEADER_BYTES..].to_vec();
    let settings = |payload: &[u8]| frame(SETTINGS, 0, 0, payload);
    let begin = |flags, id| frame(HEADERS, flags, id, &good);
    let cases: Vec<(&str, ErrorCode, Vec<u8>)> = vec![
        ("SETTINGS with ACK and a payload", ErrorCode::FrameSize, frame(SETTINGS, frame::ACK, 0, &setting(3, 1))),
        ("SETTINGS of 5 bytes", ErrorCode::FrameSize, settings(&[0; 5])),
        ("SETTINGS of 7 bytes", ErrorCode::FrameSize, settings(&[0; 7])),
        ("SETTINGS on a stream", ErrorCode::Protocol, frame(SETTINGS, 0, 1, &[])),
        ("SETTINGS with ACK on a stream", ErrorCode::Protocol, frame(SETTINGS, frame::ACK, 1, &[])),
        ("ENABLE_PUSH 2", ErrorCode::Protocol, settings(&setting(2, 2))),
        ("INITIAL_WINDOW_SIZE 2^31", ErrorCode::FlowControl, settings(&setting(4, 1 << 31))),
        ("MAX_FRAME_SIZE 2^14 - 1", ErrorCode::Protocol, settings(&setting(5, (1 << 14) - 1))),
        ("MAX_FRAME_SIZE 2^24", ErrorCode::Protocol, settings(&setting(5, 1 << 24))),
        ("the second setting is wrong", ErrorCode::Protocol, settings(&[setting(3, 1), setting(2, 2)].concat())),
        ("PING of 7 bytes", ErrorCode::FrameSize, frame(PING, 0, 0, &[0; 7])),
        ("PING of 9 bytes", ErrorCode::FrameSize, frame(PING, 0, 0, &[0; 9])),
        ("PING with ACK of 7 bytes", ErrorCode::FrameSize, frame(PING, frame::ACK, 0, &[0; 7])),
        ("PING on a stream", ErrorCode::Protocol, frame(PING, 0, 1, &[0; 8])),
        ("WINDOW_UPDATE of 3 bytes", ErrorCode::FrameSize, frame(WINDOW_UPDATE, 0, 0, &[0, 0, 1])),
        ("WINDOW_UPDATE of 5 bytes on a stream", ErrorCode::FrameSize, frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 0, 1])),
        ("WINDOW_UPDATE by 0", ErrorCode::Protocol, frame(WINDOW_UPDATE, 0, 0, &[0; 4])),
        ("WINDOW_UPDATE by the reserved bit", ErrorCode::Protocol, frame(WINDOW_UPDATE, 0, 0, &[0x80, 0, 0, 0])),
        ("WINDOW_UPDATE of an idle stream", ErrorCode::Protocol, frame(WINDOW_UPDATE, 0, 7, &[0, 0, 0, 1])),
        ("WINDOW_UPDATE of an even stream", ErrorCode::Protocol, frame(WINDOW_UPDATE, 0, 2, &[0, 0, 0, 1])),
        ("a window of 2^31", ErrorCode::FlowControl, frame(WINDOW_UPDATE, 0, 0, &0x7fff_0001_u32.to_be_bytes())),
        ("RST_STREAM of 3 bytes", ErrorCode::FrameSize, frame(RST_STREAM, 0, 1, &[0; 3])),
        ("RST_STREAM of the connection", ErrorCode::Protocol, frame(RST_STREAM, 0, 0, &[0; 4])),
        ("RST_STREAM of an idle stream", ErrorCode::Protocol, frame(RST_STREAM, 0, 7, &[0; 4])),
        ("RST_STREAM of an even stream", ErrorCode::Protocol, frame(RST_STREAM, 0, 4, &[0; 4])),
        ("PRIORITY of the connection", ErrorCode::Protocol, frame(PRIORITY, 0, 0, &[0; 5])),
        ("GOAWAY on a stream", ErrorCode::Protocol, frame(GOAWAY, 0, 1, &[0; 8])),
        ("GOAWAY of 7 bytes", ErrorCode::FrameSize, frame(GOAWAY, 0, 0, &[0; 7])),
        ("PUSH_PROMISE", ErrorCode::Protocol, frame(PUSH_PROMISE, frame::END_HEADERS, 1, &[0, 0, 0, 2])),
        ("DATA of the connection", ErrorCode::Protocol, frame(DATA, 0, 0, b"x")),
        ("DATA of an idle stream", ErrorCode::Protocol, frame(DATA, 0, 7, b"x")),
        ("DATA of an even stream", ErrorCode::Protocol, frame(DATA, 0, 2, b"x")),
        ("DATA after END_STREAM", ErrorCode::StreamClosed, frame(DATA, 0, 5, b"x")),
        ("empty DATA after END_STREAM", ErrorCode::StreamClosed, frame(DATA, 0, 5, b"")),
        ("END_STREAM after END_STREAM", ErrorCode::StreamClosed, frame(DATA, frame::END_STREAM, 5, b"")),
        (
            "DATA after RST_STREAM",
            ErrorCode::StreamClosed,
            [frame(RST_STREAM, 0, 1, &[0; 4]), frame(DATA, 0, 1, b"x")].concat(),
        ),
        ("DATA with too much padding", ErrorCode::Protocol, frame(DATA, PADDED, 1, &[3, 1, 2])),
        ("DATA without the length of its padding", ErrorCode::FrameSize, frame(DATA, PADDED, 1, &[])),
        ("HEADERS with too much padding", ErrorCode::Protocol, frame(HEADERS, WHOLE | PADDED, 7, &[200, 0x82])),
        (
            "HEADERS without all of its priority",
            ErrorCode::FrameSize,
            frame(HEADERS, WHOLE | WITH_PRIORITY, 7, &good[..4]),
        ),
        ("HEADERS of the connection", ErrorCode::Protocol, begin(WHOLE, 0)),
        ("HEADERS of an even stream", ErrorCode::Protocol, begin(WHOLE, 8)),
        ("HEADERS after END_STREAM", ErrorCode::StreamClosed, begin(WHOLE, 5)),
        ("fields that cannot be decoded", ErrorCode::Compression, frame(HEADERS, WHOLE, 7, &[0x80])),
        ("CONTINUATION of nothing", ErrorCode::Protocol, frame(CONTINUATION, frame::END_HEADERS, 1, &good)),
        (
            "CONTINUATION of another stream",
            ErrorCode::Protocol,
            [begin(frame::END_STREAM, 7), frame(CONTINUATION, frame::END_HEADERS, 9, &[])].concat(),
        ),
        ("HEADERS within a block", ErrorCode::Protocol, [begin(frame::END_STREAM, 7), begin(WHOLE, 7)].concat()),
        (
            "an unknown frame within a block",
            ErrorCode::Protocol,
            [begin(frame::END_STREAM, 7), frame(0x7f, 0, 7, &[])].concat(),
        ),
        ("a frame of 2^14 + 1 bytes", ErrorCode::FrameSize, frame(0x7f, 0, 0, &[0; 16_385])),
    ];
    for (what, code, mut bytes) in cases {
        let mut two = busy(10);
        // Frames after the error are ignored.
        bytes.extend(frame(PING, 0, 0, b"12345678"));
        feed(&mut two, &bytes);
        assert_eq!(faults(&two), [(GOAWAY, 5, code as u32)], "{what}");
        assert!(two.end == ShutdownState::Failed && two.streams.len() == 0, "{what}");
        assert!(!replies(&two).iter().any(|reply| reply.0 == PING), "{what}");
    }
}

#[test]
fn a_stream_that_was_passed_over_is_not_begun_later() {
    let mut two = busy(10);
    feed(&mut two, &request(3));
    // The stream was never open and is closed; either code is right (RFC 9113, sections 5.1 and 5.1.1).
    assert!(matches!(faults(&two)[..], [(frame::GOAWAY, 5, 1 | 5)]), "{:?}", faults(&two));
    assert!(!replies(&two).iter().any(|reply| reply.0 == frame::HEADERS));
}

#[test]
fn each_fault_of_a_stream_resets_that_stream_only() {
    let trailers = block(&[("x-checksum", "abc")]);
    let wider = |by: u32| frame(frame::WINDOW_UPDATE, 0, 1, &by.to_be_bytes());
    for (what, code, bytes) in [
        ("WINDOW_UPDATE by 0", ErrorCode::Protocol, wider(0)),
        ("WINDOW_UPDATE by the reserved bit", ErrorCode::Protocol, wider(1 << 31)),
        ("a window of 2^31", ErrorCode::FlowControl, wider(0x7fff_0001)),
        ("PRIORITY of 4 bytes", ErrorCode::FrameSize, frame(frame::PRIORITY, 0, 1, &[0; 4])),
        ("PRIORITY of 6 bytes", ErrorCode::FrameSize, frame(frame::PRIORITY, 0, 1, &[0; 6])),
        ("a body that is too long", ErrorCode::Protocol, frame(frame::DATA, 0, 1, &[0; 11])),
        ("a body that is too short", ErrorCode::Protocol, frame(frame::DATA, frame::END_STREAM, 1, &[0; 9])),
        ("no body", ErrorCode::Protocol, frame(frame::DATA, frame::END_STREAM, 1, &[])),
        ("trailers that do not end it", ErrorCode::Protocol, frame(frame::HEADERS, frame::END_HEADERS, 1, &trailers)),
    ] {
        let mut two = busy(10);
        feed(&mut two, &[bytes, frame(frame::PING, 0, 0, b"12345678")].concat());
        assert_eq!(faults(&two), [(frame::RST_STREAM, 1, code as u32)], "{what}");
        assert_eq!(two.streams.len(), 1, "{what}: the other answer is still sent");
        let last = replies(&two).pop();
        assert_eq!(last, Some((frame::PING, frame::ACK, 0, b"12345678".to_vec())), "{what}");
    }
    for bytes in [wider(0x7fff_0000), frame(frame::DATA, frame::END_STREAM, 1, &[0; 10])] {
        let mut two = busy(10);
        feed(&mut two, &bytes);
        assert_eq!((faults(&two), two.streams.len()), (vec![], 2));
    }
}

#[test]
fn what_was_on_its_way_when_a_stream_was_reset_is_no_fault() {
    let mut two = busy(10);
    let body = frame(frame::DATA, frame::END_STREAM, 1, &[0; 10]);
    let late = [frame(frame::WINDOW_UPDATE, 0, 1, &[0; 4]), frame(frame::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), body];
    feed(&mut two, &late.concat());
    assert_eq!(faults(&two), [(frame::RST_STREAM, 1, ErrorCode::Protocol as u32)]);
    // A malformed request is reset as well, and its body comes nevertheless.
    let mut two = busy(10);
    let fields = block(&[(":method", "POST"), (":path", "/")]);
    let late =
        [frame(frame::HEADERS, frame::END_HEADERS, 7, &fields), frame(frame::DATA, frame::END_STREAM, 7, b"abc")];
    feed(&mut two, &late.concat());
    assert_eq!(faults(&two), [(frame::RST_STREAM, 7, ErrorCode::Protocol as u32)]);
}

#[test]
fn a_malformed_request_is_an_error_of_its_stream() {
    let usual = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")];
    let faults_of = |fields: &[(&str, &str)]| {
        let mut two = busy(10);
        feed(&mut two, &frame(frame::HEADERS, WHOLE, 7, &block(fields)));
        let is_answered = replies(&two).iter().any(|reply| (reply.0, reply.2) == (frame::HEADERS, 7));
        assert_eq!(is_answered, faults(&two).is_empty(), "{fields:?}");
        faults(&two)
    };
    let malformed = [(frame::RST_STREAM, 7, ErrorCode::Protocol as u32)];
    for missing in 0..3 {
        let mut fields = usual.to_vec();
        let name = fields.remove(missing).0;
        assert_eq!(faults_of(&fields), malformed, "without {name}");
    }
    for field in usual {
        assert_eq!(faults_of(&[&usual[..], &[field]].concat()), malformed, "{field:?} twice");
        let mut fields = usual.to_vec();
        fields.retain(|other| *other != field);
        fields.extend([("accept", "*/*"), field]);
        assert_eq!(faults_of(&fields), malformed, "{field:?} behind another field");
    }
    for (field, is_good) in [
        ((":status", "200"), false),
        ((":unknown", "a"), false),
        ((":protocol", "websocket"), false),
        (("Accept", "*/*"), false),
        (("accepT", "*/*"), false),
        (("connection", "close"), false),
        (("connection", "keep-alive"), false),
        (("keep-alive", "timeout=5"), false),
        (("proxy-connection", "keep-alive"), false),
        (("transfer-encoding", "chunked"), false),
        (("upgrade", "h2c"), false),
        (("te", "gzip"), false),
        (("te", "trailers, gzip"), false),
        (("te", ""), false),
        (("content-length", "1"), false),
        (("te", "trailers"), true),
        (("te", "Trailers"), true),
        (("content-length", "0"), true),
        (("cookie", "a=b"), true),
        (("x-upgrade", "h2c"), true),
    ] {
        let expected = if is_good { &[][..] } else { &malformed };
        assert_eq!(faults_of(&[&usual[..], &[field]].concat()), expected, "{field:?}");
    }
    let cookies = [("cookie", "a=b"), ("cookie", "c=d")];
    assert_eq!(faults_of(&[&usual[..], &cookies].concat()), [], "cookies may come one by one");
}

#[test]
fn each_frame_has_the_reply_that_it_asks_for() {
    let acknowledged = (frame::SETTINGS, frame::ACK, 0, vec![]);
    let several = [setting(1, 0), setting(2, 1), setting(4, 0x7fff_0000), setting(5, 16_384), setting(99, 1)].concat();
    let fields = &request(7)[frame::HEADER_BYTES..];
    // The stream depends on itself, which is no longer an error (RFC 9113, section 5.3.2).
    let itself = [&[0, 0, 0, 7, 16], fields].concat();
    for (what, bytes, expected) in [
        ("SETTINGS", frame(frame::SETTINGS, 0, 0, &several), vec![acknowledged]),
        ("SETTINGS with ACK", frame(frame::SETTINGS, frame::ACK, 0, &[]), vec![]),
        ("PING", frame(frame::PING, 0xfe, 0, b"12345678"), vec![(frame::PING, frame::ACK, 0, b"12345678".to_vec())]),
        ("PING with ACK", frame(frame::PING, frame::ACK, 0, b"12345678"), vec![]),
        ("PRIORITY of an idle stream", frame(frame::PRIORITY, 0, 8, &[0; 5]), vec![]),
        ("WINDOW_UPDATE of a stream that has ended", frame(frame::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1]), vec![]),
        ("RST_STREAM of a stream that has ended", frame(frame::RST_STREAM, 0, 3, &[0; 4]), vec![]),
        ("an unknown frame", frame(0x7f, 0xff, 8, &[0; 16_384]), vec![]),
        ("empty DATA", frame(frame::DATA, 0, 1, &[]), vec![]),
    ] {
        let mut two = busy(10);
        feed(&mut two, &bytes);
        assert_eq!(replies(&two)[2..], expected, "{what}");
    }
    let mut two = busy(10);
    feed(&mut two, &frame(frame::HEADERS, WHOLE | WITH_PRIORITY, 7, &itself));
    assert!(matches!(replies(&two)[2..], [(frame::HEADERS, _, 7, _)]));
}

#[test]
fn the_129th_answer_is_refused_and_its_fields_and_body_are_taken_all_the_same() {
    let mut two = begun();
    two.newest_stream = 255;
    for id in (1..MAX_STREAMS as u32 * 2 - 1).step_by(2) {
        two.streams.begin(id, None, Some(ResponseBody::full("x").into()), false);
    }
    // `:authority: x`, which is added to the dynamic table.
    let kept = [0x82, 0x86, 0x84, 0x41, 1, b'x'];
    two.streams.begin(255, None, Some(ResponseBody::full("x").into()), false);
    let frames =
        [frame(frame::HEADERS, frame::END_HEADERS, 257, &kept), frame(frame::DATA, frame::END_STREAM, 257, b"abc")];
    feed(&mut two, &frames.concat());
    let refused = vec![(frame::RST_STREAM, 257, ErrorCode::RefusedStream as u32)];
    assert_eq!((faults(&two), two.streams.len()), (refused.clone(), MAX_STREAMS));
    // One response is dropped, and the next request is answered.
    assert!(two.streams.remove(255));
    feed(&mut two, &frame(frame::HEADERS, WHOLE, 259, &[0x82, 0x86, 0x84, 0xbe]));
    assert_eq!(faults(&two), refused);
    assert!(matches!(replies(&two).last(), Some((frame::HEADERS, _, 259, _))));
}

#[test]
fn a_block_of_fields_has_at_most_128_kib() {
    // The block cannot be decoded, which shows whether decoding was tried.
    let mut block = vec![0x80];
    for (len, expected) in
        [(MAX_BLOCK_BYTES, ErrorCode::Compression), (MAX_BLOCK_BYTES + 1, ErrorCode::EnhanceYourCalm)]
    {
        block.resize(len, 0);
        let mut two = begun();
        let count = block.chunks(frame::MAX_PAYLOAD_BYTES).count();
        for (n, part) in block.chunks(frame::MAX_PAYLOAD_BYTES).enumerate() {
            let kind = if n == 0 { frame::HEADERS } else { frame::CONTINUATION };
            let flags = if n + 1 == count { frame::END_HEADERS } else { 0 };
            feed(&mut two, &frame(kind, flags, 1, part));
        }
        assert_eq!(faults(&two), [(frame::GOAWAY, 0, expected as u32)], "{len} bytes");
    }
}

#[test]
fn windows_are_given_back_with_padding_and_a_streams_own_once_it_is_answered() {
    let mut two = busy(40_000);
    let mut padded = vec![0; 16_384];
    padded[0] = 255;
    let widened = |two: &Http2Connection| {
        let frames = replies(two).into_iter().filter(|reply| reply.0 == frame::WINDOW_UPDATE);
        frames.map(|(_, _, id, by)| (id, read_be(&by))).collect::<Vec<_>>()
    };
    feed(&mut two, &frame(frame::DATA, PADDED, 1, &padded));
    assert_eq!(widened(&two), []);
    feed(&mut two, &frame(frame::DATA, 0, 1, &[0; 16_384]));
    assert_eq!(widened(&two), [(0, 32_768)]);
    two.has_answered_upload(1);
    assert_eq!(widened(&two), [(0, 32_768), (1, 32_768)]);
    // 256 bytes were padding.
    feed(&mut two, &frame(frame::DATA, frame::END_STREAM, 1, &[0; 40_000 - 32_768 + 256]));
    assert_eq!((widened(&two).len(), faults(&two)), (2, vec![]));
}
