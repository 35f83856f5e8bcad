use super::super::TurnBudget;
use super::super::hpack::encode;
use super::super::send_buffer::SendBuffer;
use super::super::tests::{frame, opened_connection, queued_errors, queued_frames, request};
use super::*;
use crate::body::ResponseBody;

/// The flags of a request in one frame, without a body.
const END_OF_REQUEST: u8 = frame::END_STREAM | frame::END_HEADERS;
const PADDED: u8 = 0x8;
const WITH_PRIORITY: u8 = 0x20;

/// Creates a connection with two pending responses. The body of the request on stream 1, of `length` bytes, is not
/// received yet; the request on stream 5 has ended; stream 3 was never used.
fn connection_with_responses(length: u64) -> Http2Connection {
    let mut connection = opened_connection();
    connection.newest_stream = 5;
    connection.receive_window.add(1, Some(length));
    connection.streams.start_body(1, None, Some(ResponseBody::full(vec![7; 100_000]).into()), true);
    connection.streams.start_body(5, None, Some(ResponseBody::full("x").into()), false);
    connection
}

/// Passes all of `bytes` to the connection, in as many turns as needed.
fn receive_all(connection: &mut Http2Connection, bytes: &[u8]) {
    connection.receive(bytes);
    while connection.has_unhandled_frames {
        (connection.turn_budget, connection.is_turn_over) = (TurnBudget::new(), false);
        connection.receive(&[]);
    }
}

/// Encodes a field block.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in fields {
        encode::append_field(name, value.as_bytes(), &mut block);
    }
    block
}

/// Encodes one setting of a SETTINGS frame.
fn setting(name: u8, value: u32) -> Vec<u8> {
    [&[0, name], &value.to_be_bytes()[..]].concat()
}

#[test]
fn each_connection_error_sends_goaway_with_its_error_code() {
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
        (
            "HEADERS with too much padding",
            ErrorCode::Protocol,
            frame(HEADERS, END_OF_REQUEST | PADDED, 7, &[200, 0x82]),
        ),
        (
            "HEADERS without all of its priority",
            ErrorCode::FrameSize,
            frame(HEADERS, END_OF_REQUEST | WITH_PRIORITY, 7, &good[..4]),
        ),
        ("HEADERS of the connection", ErrorCode::Protocol, begin(END_OF_REQUEST, 0)),
        ("HEADERS of an even stream", ErrorCode::Protocol, begin(END_OF_REQUEST, 8)),
        ("HEADERS after END_STREAM", ErrorCode::StreamClosed, begin(END_OF_REQUEST, 5)),
        ("fields that cannot be decoded", ErrorCode::Compression, frame(HEADERS, END_OF_REQUEST, 7, &[0x80])),
        ("CONTINUATION without HEADERS", ErrorCode::Protocol, frame(CONTINUATION, frame::END_HEADERS, 1, &good)),
        (
            "CONTINUATION of another stream",
            ErrorCode::Protocol,
            [begin(frame::END_STREAM, 7), frame(CONTINUATION, frame::END_HEADERS, 9, &[])].concat(),
        ),
        (
            "HEADERS within a block",
            ErrorCode::Protocol,
            [begin(frame::END_STREAM, 7), begin(END_OF_REQUEST, 7)].concat(),
        ),
        (
            "an unknown frame within a block",
            ErrorCode::Protocol,
            [begin(frame::END_STREAM, 7), frame(0x7f, 0, 7, &[])].concat(),
        ),
        ("a frame of 2^14 + 1 bytes", ErrorCode::FrameSize, frame(0x7f, 0, 0, &[0; 16_385])),
    ];
    for (case, code, mut bytes) in cases {
        let mut connection = connection_with_responses(10);
        // Frames after the error are ignored.
        bytes.extend(frame(PING, 0, 0, b"12345678"));
        receive_all(&mut connection, &bytes);
        assert_eq!(queued_errors(&connection), [(GOAWAY, 5, code as u32)], "{case}");
        assert!(connection.shutdown == ShutdownState::Failed && connection.streams.len() == 0, "{case}");
        assert!(!queued_frames(&connection).iter().any(|frame| frame.0 == PING), "{case}");
    }
}

#[test]
fn a_stream_id_below_the_newest_stream_cannot_be_opened() {
    let mut connection = connection_with_responses(10);
    receive_all(&mut connection, &request(3));
    // The stream was never open and is closed; either code is right (RFC 9113, sections 5.1 and 5.1.1).
    assert!(matches!(queued_errors(&connection)[..], [(frame::GOAWAY, 5, 1 | 5)]), "{:?}", queued_errors(&connection));
    assert!(!queued_frames(&connection).iter().any(|frame| frame.0 == frame::HEADERS));
}

#[test]
fn each_stream_error_resets_only_that_stream() {
    let trailers = block(&[("x-checksum", "abc")]);
    let window_update = |increment: u32| frame(frame::WINDOW_UPDATE, 0, 1, &increment.to_be_bytes());
    for (case, code, bytes) in [
        ("WINDOW_UPDATE by 0", ErrorCode::Protocol, window_update(0)),
        ("WINDOW_UPDATE by the reserved bit", ErrorCode::Protocol, window_update(1 << 31)),
        ("a window of 2^31", ErrorCode::FlowControl, window_update(0x7fff_0001)),
        ("PRIORITY of 4 bytes", ErrorCode::FrameSize, frame(frame::PRIORITY, 0, 1, &[0; 4])),
        ("PRIORITY of 6 bytes", ErrorCode::FrameSize, frame(frame::PRIORITY, 0, 1, &[0; 6])),
        ("a body that is too long", ErrorCode::Protocol, frame(frame::DATA, 0, 1, &[0; 11])),
        ("a body that is too short", ErrorCode::Protocol, frame(frame::DATA, frame::END_STREAM, 1, &[0; 9])),
        ("no body", ErrorCode::Protocol, frame(frame::DATA, frame::END_STREAM, 1, &[])),
        ("trailers that do not end it", ErrorCode::Protocol, frame(frame::HEADERS, frame::END_HEADERS, 1, &trailers)),
    ] {
        let mut connection = connection_with_responses(10);
        receive_all(&mut connection, &[bytes, frame(frame::PING, 0, 0, b"12345678")].concat());
        assert_eq!(queued_errors(&connection), [(frame::RST_STREAM, 1, code as u32)], "{case}");
        assert_eq!(connection.streams.len(), 1, "{case}: the other response is still sent");
        let last = queued_frames(&connection).pop();
        assert_eq!(last, Some((frame::PING, frame::ACK, 0, b"12345678".to_vec())), "{case}");
    }
    for bytes in [window_update(0x7fff_0000), frame(frame::DATA, frame::END_STREAM, 1, &[0; 10])] {
        let mut connection = connection_with_responses(10);
        receive_all(&mut connection, &bytes);
        assert_eq!((queued_errors(&connection), connection.streams.len()), (vec![], 2));
    }
}

#[test]
fn frames_in_flight_for_a_reset_stream_are_not_an_error() {
    let mut connection = connection_with_responses(10);
    let body = frame(frame::DATA, frame::END_STREAM, 1, &[0; 10]);
    let late_frames =
        [frame(frame::WINDOW_UPDATE, 0, 1, &[0; 4]), frame(frame::WINDOW_UPDATE, 0, 1, &[0, 0, 0, 1]), body];
    receive_all(&mut connection, &late_frames.concat());
    assert_eq!(queued_errors(&connection), [(frame::RST_STREAM, 1, ErrorCode::Protocol as u32)]);
    // The stream of a malformed request is reset as well, and its body still arrives.
    let mut connection = connection_with_responses(10);
    let fields = block(&[(":method", "POST"), (":path", "/")]);
    let late_frames =
        [frame(frame::HEADERS, frame::END_HEADERS, 7, &fields), frame(frame::DATA, frame::END_STREAM, 7, b"abc")];
    receive_all(&mut connection, &late_frames.concat());
    assert_eq!(queued_errors(&connection), [(frame::RST_STREAM, 7, ErrorCode::Protocol as u32)]);
}

#[test]
fn a_malformed_request_is_a_stream_error() {
    let valid_fields = [(":method", "GET"), (":scheme", "http"), (":path", "/"), (":authority", "x")];
    let errors_of = |fields: &[(&str, &str)]| {
        let mut connection = connection_with_responses(10);
        receive_all(&mut connection, &frame(frame::HEADERS, END_OF_REQUEST, 7, &block(fields)));
        let is_answered = queued_frames(&connection).iter().any(|frame| (frame.0, frame.2) == (frame::HEADERS, 7));
        assert_eq!(is_answered, queued_errors(&connection).is_empty(), "{fields:?}");
        queued_errors(&connection)
    };
    let malformed = [(frame::RST_STREAM, 7, ErrorCode::Protocol as u32)];
    for missing in 0..3 {
        let mut fields = valid_fields.to_vec();
        let name = fields.remove(missing).0;
        assert_eq!(errors_of(&fields), malformed, "without {name}");
    }
    for field in valid_fields {
        assert_eq!(errors_of(&[&valid_fields[..], &[field]].concat()), malformed, "{field:?} twice");
        let mut fields = valid_fields.to_vec();
        fields.retain(|present| *present != field);
        fields.extend([("accept", "*/*"), field]);
        assert_eq!(errors_of(&fields), malformed, "{field:?} after a regular field");
    }
    for (field, is_valid) in [
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
        let expected = if is_valid { &[][..] } else { &malformed };
        assert_eq!(errors_of(&[&valid_fields[..], &[field]].concat()), expected, "{field:?}");
    }
    let cookies = [("cookie", "a=b"), ("cookie", "c=d")];
    assert_eq!(errors_of(&[&valid_fields[..], &cookies].concat()), [], "several cookie fields are allowed");
}

#[test]
fn settings_and_ping_frames_are_acknowledged_and_other_frames_are_not() {
    let acknowledged = (frame::SETTINGS, frame::ACK, 0, vec![]);
    let several = [setting(1, 0), setting(2, 1), setting(4, 0x7fff_0000), setting(5, 16_384), setting(99, 1)].concat();
    let fields = &request(7)[frame::HEADER_BYTES..];
    // The stream depends on itself, which is no longer an error (RFC 9113, section 5.3.2).
    let self_dependent = [&[0, 0, 0, 7, 16], fields].concat();
    for (case, bytes, expected) in [
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
        let mut connection = connection_with_responses(10);
        receive_all(&mut connection, &bytes);
        assert_eq!(queued_frames(&connection)[2..], expected, "{case}");
    }
    let mut connection = connection_with_responses(10);
    receive_all(&mut connection, &frame(frame::HEADERS, END_OF_REQUEST | WITH_PRIORITY, 7, &self_dependent));
    assert!(matches!(queued_frames(&connection)[2..], [(frame::HEADERS, _, 7, _)]));
}

#[test]
fn the_129th_stream_is_refused_but_its_fields_are_decoded_and_its_body_is_read() {
    let mut connection = opened_connection();
    connection.newest_stream = 255;
    for id in (1..MAX_STREAMS as u32 * 2 - 1).step_by(2) {
        connection.streams.start_body(id, None, Some(ResponseBody::full("x").into()), false);
    }
    // `:authority: x`, which is added to the dynamic table.
    let fields = [0x82, 0x86, 0x84, 0x41, 1, b'x'];
    connection.streams.start_body(255, None, Some(ResponseBody::full("x").into()), false);
    let frames =
        [frame(frame::HEADERS, frame::END_HEADERS, 257, &fields), frame(frame::DATA, frame::END_STREAM, 257, b"abc")];
    receive_all(&mut connection, &frames.concat());
    let refused = vec![(frame::RST_STREAM, 257, ErrorCode::RefusedStream as u32)];
    assert_eq!((queued_errors(&connection), connection.streams.len()), (refused.clone(), MAX_STREAMS));
    // One response is dropped, and the next request is answered.
    assert!(connection.streams.remove(255));
    receive_all(&mut connection, &frame(frame::HEADERS, END_OF_REQUEST, 259, &[0x82, 0x86, 0x84, 0xbe]));
    assert_eq!(queued_errors(&connection), refused);
    assert!(matches!(queued_frames(&connection).last(), Some((frame::HEADERS, _, 259, _))));
}

#[test]
fn a_field_block_larger_than_128_kib_ends_the_connection() {
    // The block cannot be decoded: the error code shows whether decoding was tried.
    let mut block = vec![0x80];
    for (len, expected) in
        [(MAX_BLOCK_BYTES, ErrorCode::Compression), (MAX_BLOCK_BYTES + 1, ErrorCode::EnhanceYourCalm)]
    {
        block.resize(len, 0);
        let mut connection = opened_connection();
        let count = block.chunks(frame::INITIAL_MAX_FRAME_SIZE).count();
        for (n, part) in block.chunks(frame::INITIAL_MAX_FRAME_SIZE).enumerate() {
            let kind = if n == 0 { frame::HEADERS } else { frame::CONTINUATION };
            let flags = if n + 1 == count { frame::END_HEADERS } else { 0 };
            receive_all(&mut connection, &frame(kind, flags, 1, part));
        }
        assert_eq!(queued_errors(&connection), [(frame::GOAWAY, 0, expected as u32)], "{len} bytes");
    }
}

#[test]
fn window_updates_include_padding_and_a_stream_window_grows_only_after_its_response() {
    let mut connection = connection_with_responses(40_000);
    let mut padded = vec![0; 16_384];
    padded[0] = 255;
    let increments = |connection: &Http2Connection| {
        let frames = queued_frames(connection).into_iter().filter(|frame| frame.0 == frame::WINDOW_UPDATE);
        frames.map(|(_, _, id, increment)| (id, read_be(&increment))).collect::<Vec<_>>()
    };
    receive_all(&mut connection, &frame(frame::DATA, PADDED, 1, &padded));
    assert_eq!(increments(&connection), []);
    receive_all(&mut connection, &frame(frame::DATA, 0, 1, &[0; 16_384]));
    assert_eq!(increments(&connection), [(0, 32_768)]);
    connection.handle_unfinished_request(1);
    assert_eq!(increments(&connection), [(0, 32_768), (1, 32_768)]);
    // 256 bytes were padding.
    receive_all(&mut connection, &frame(frame::DATA, frame::END_STREAM, 1, &[0; 40_000 - 32_768 + 256]));
    assert_eq!((increments(&connection).len(), queued_errors(&connection)), (2, vec![]));
}

#[test]
fn frames_without_effect_are_limited_on_every_kind_of_stream() {
    for (case, bytes) in [
        ("empty DATA", frame(frame::DATA, 0, 1, &[])),
        ("DATA of padding only", frame(frame::DATA, PADDED, 1, &[0])),
        ("RST_STREAM of a stream that has ended", frame(frame::RST_STREAM, 0, 3, &[0; 4])),
        ("WINDOW_UPDATE of a stream that has ended", frame(frame::WINDOW_UPDATE, 0, 3, &[0, 0, 0, 1])),
        ("PRIORITY of an idle stream", frame(frame::PRIORITY, 0, 9, &[0; 5])),
    ] {
        let (mut connection, mut count) = (connection_with_responses(10), 0);
        while connection.shutdown != ShutdownState::Failed {
            receive_all(&mut connection, &bytes);
            count += 1;
            assert!(count < 60_000, "{case} is not counted");
        }
        assert!(count >= 10_000, "{case}: {count} frames");
        assert_eq!(queued_errors(&connection), [(frame::GOAWAY, 5, ErrorCode::EnhanceYourCalm as u32)], "{case}");
    }
}

#[test]
fn no_further_request_is_handled_while_256_kib_of_output_wait() {
    const MAX_QUEUED_BYTES: usize = 256 << 10;
    let mut connection = opened_connection();
    let head = block(&[(":method", "HEAD"), (":scheme", "http"), (":path", "/")]);
    let requests: Vec<u8> = (0..4_000).flat_map(|n| frame(frame::HEADERS, END_OF_REQUEST, 2 * n + 1, &head)).collect();
    connection.receive(&requests);
    let receive_in_next_turn = |connection: &mut Http2Connection| {
        (connection.turn_budget, connection.is_turn_over) = (TurnBudget::new(), false);
        connection.receive(&[]);
    };
    while connection.has_unhandled_frames && !connection.send_buffer.is_full() {
        receive_in_next_turn(&mut connection);
    }
    let queued = connection.send_buffer.queued_bytes().len();
    assert!((MAX_QUEUED_BYTES..MAX_QUEUED_BYTES + 2_048).contains(&queued), "{queued} bytes");
    let newest_stream = connection.newest_stream;
    receive_in_next_turn(&mut connection);
    assert_eq!((connection.newest_stream, connection.has_unhandled_frames), (newest_stream, true));
}

#[test]
fn one_ping_at_a_time_is_free_while_a_response_is_pending_and_only_then() {
    for (mut connection, expected) in [(connection_with_responses(10), false), (opened_connection(), true)] {
        for _ in 0..30_000 {
            // Everything was sent.
            connection.send_buffer = SendBuffer::default();
            receive_all(&mut connection, &frame(frame::PING, 0, 0, b"12345678"));
            if connection.shutdown == ShutdownState::Failed {
                break;
            }
        }
        let code = queued_errors(&connection).pop().map(|error| error.2);
        let expected = expected.then_some(ErrorCode::EnhanceYourCalm as u32);
        assert_eq!(code, expected);
    }
}
