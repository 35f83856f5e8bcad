use std::net::{Ipv4Addr, SocketAddr};

use http::Response;

use super::*;
use crate::SiteSettings;
use crate::body::ResponseBody;
use crate::logged_body::LoggedBody;

/// Creates a connection to an empty site, on which nothing was read.
fn new_connection() -> Http2Connection {
    let peer =
        Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), is_encrypted: false, is_loopback_listener: false };
    Http2Connection::new(Site::new(SiteSettings::default()), peer, Arc::default())
}

/// Creates a connection to an empty site whose peer has sent the preface and SETTINGS.
pub(super) fn opened_connection() -> Http2Connection {
    let mut connection = new_connection();
    connection.receive_initial_bytes(&[CLIENT_PREFACE, &frame(frame::SETTINGS, 0, 0, &[])].concat());
    connection
}

/// Returns the bytes of a frame.
pub(super) fn frame(kind: u8, flags: u8, id: u32, payload: &[u8]) -> Vec<u8> {
    [&frame::encode_header(payload.len(), kind, flags, id)[..], payload].concat()
}

/// Returns the frame of a complete request without a body.
pub(super) fn request(id: u32) -> Vec<u8> {
    let mut block = vec![0x82, 0x86, 0x84];
    hpack::encode::append_field(":authority", b"x", &mut block);
    frame(frame::HEADERS, frame::END_STREAM | frame::END_HEADERS, id, &block)
}

/// Returns a deferred response to a complete request.
pub(super) fn deferred_response(stream: u32, response: DeferredSiteResponse) -> DeferredResponse {
    DeferredResponse { stream, is_request_open: false, window_increment: 0, ends_with_input: false, response }
}

/// Passes `bytes` to the connection at the start of a turn.
fn receive_in_new_turn(connection: &mut Http2Connection, bytes: &[u8]) {
    (connection.turn_budget, connection.is_turn_over) = (TurnBudget::new(), false);
    connection.receive(bytes);
}

/// Returns the queued frames: kind, flags, stream, payload.
pub(super) fn queued_frames(connection: &Http2Connection) -> Vec<(u8, u8, u32, Vec<u8>)> {
    let (bytes, mut at, mut frames) = (connection.send_buffer.queued_bytes(), 0, Vec::new());
    while let Some((frame, payload)) = frame::FrameHeader::parse(&bytes[at..]).unwrap() {
        frames.push((frame.kind, frame.flags, frame.stream, payload.to_vec()));
        at += frame::HEADER_BYTES + frame.len;
    }
    frames
}

/// Returns the queued RST_STREAM and GOAWAY frames: kind, stream (for GOAWAY the last stream), error code.
pub(super) fn queued_errors(connection: &Http2Connection) -> Vec<(u8, u32, u32)> {
    let error = |(kind, _, stream, payload): (u8, u8, u32, Vec<u8>)| match kind {
        frame::RST_STREAM => Some((kind, stream, frame::read_be(&payload))),
        frame::GOAWAY => Some((kind, frame::read_be(&payload[..4]), frame::read_be(&payload[4..]))),
        _ => None,
    };
    queued_frames(connection).into_iter().filter_map(error).collect()
}

#[test]
fn window_updates_for_a_deferred_response_apply_when_the_response_starts() {
    const LEN: usize = 200 << 10;
    let mut connection = opened_connection();
    // A request whose response waits for a version to be opened.
    connection.newest_stream = 1;
    let response = Box::pin(std::future::ready(Response::new(LoggedBody::from(ResponseBody::full(vec![0; LEN])))));
    connection.deferred.push(deferred_response(1, response));
    let increment = (1u32 << 20).to_be_bytes();
    connection.receive(
        &[frame(frame::WINDOW_UPDATE, 0, 0, &increment), frame(frame::WINDOW_UPDATE, 0, 1, &increment)].concat(),
    );
    let (_client, mut server) = tokio::io::duplex(1 << 20);
    let mut context = Context::from_waker(std::task::Waker::noop());
    for _ in 0..100 {
        connection.run_round(&mut server, &mut context);
    }
    let served = connection.streams.queued;
    assert_eq!(
        (served.responses, served.data_bytes),
        (1, LEN as u64),
        "the body is sent without a further WINDOW_UPDATE"
    );
}

// Regression: increments beyond the largest window were dropped in silence (RFC 9113, section 6.9.1).
#[test]
fn window_of_a_deferred_response_beyond_the_maximum_is_a_flow_control_error() {
    let connection_with_window = |increment: u32| {
        let mut connection = opened_connection();
        connection.newest_stream = 1;
        let response = Box::pin(std::future::pending());
        connection.deferred.push(deferred_response(1, response));
        connection.receive(&frame(frame::WINDOW_UPDATE, 0, 1, &increment.to_be_bytes()));
        connection
    };
    let flow_control = ErrorCode::FlowControl as u32;
    let largest = 0x7fff_ffff - 65_535;
    let beyond = connection_with_window(largest + 1);
    assert_eq!(queued_errors(&beyond), [(frame::RST_STREAM, 1, flow_control)]);
    assert!(beyond.deferred.is_empty());
    let mut full = connection_with_window(largest);
    assert_eq!((queued_errors(&full), full.deferred.len()), (Vec::new(), 1));
    // A larger initial window applies to this stream, too (section 6.9.2).
    let setting = [&frame::SETTINGS_INITIAL_WINDOW_SIZE.to_be_bytes()[..], &65_536u32.to_be_bytes()].concat();
    full.receive(&frame(frame::SETTINGS, 0, 0, &setting));
    assert_eq!(queued_errors(&full), [(frame::GOAWAY, 1, flow_control)]);
}

#[test]
fn deferred_and_active_responses_count_together_toward_the_stream_limit() {
    let refused = [(frame::RST_STREAM, 2 * MAX_STREAMS as u32 + 1, ErrorCode::RefusedStream as u32)];
    for deferred in [0, 1, MAX_STREAMS - 1, MAX_STREAMS] {
        for (count, expected) in [(MAX_STREAMS - 1, &[][..]), (MAX_STREAMS, &refused)] {
            let mut connection = opened_connection();
            for index in 0..count {
                let id = 2 * index as u32 + 1;
                connection.newest_stream = id;
                if index < deferred {
                    let response = Box::pin(std::future::pending());
                    connection.deferred.push(deferred_response(id, response));
                } else {
                    connection.streams.start_body(id, None, Some(ResponseBody::full("x").into()), false);
                }
            }
            connection.receive(&request(2 * MAX_STREAMS as u32 + 1));
            assert_eq!(queued_errors(&connection), expected, "{count} responses, {deferred} of them deferred");
        }
    }
}

#[test]
fn input_after_a_connection_error_is_discarded_up_to_1_mib() {
    let mut context = Context::from_waker(std::task::Waker::noop());
    let (mut client, mut server) = tokio::io::duplex(2 * READ_BUFFER_BYTES);
    let mut connection = opened_connection();
    connection.fail_connection(ErrorCode::EnhanceYourCalm);
    let mut written = 0;
    while written <= MAX_LINGER_BYTES {
        // Closing with unread bytes would be a reset, which may overtake the last frames.
        assert!(connection.poll(&mut server, &mut context).is_pending(), "after {written} bytes");
        let Poll::Ready(Ok(n)) = Pin::new(&mut client).poll_write(&mut context, &vec![b'x'; READ_BUFFER_BYTES]) else {
            panic!("the input is read")
        };
        written += n;
    }
    assert!(connection.poll(&mut server, &mut context).is_ready());
    // Input is read only while the peer is connected.
    let (client, mut server) = tokio::io::duplex(2 * READ_BUFFER_BYTES);
    let mut connection = opened_connection();
    connection.fail_connection(ErrorCode::EnhanceYourCalm);
    assert!(connection.poll(&mut server, &mut context).is_pending());
    drop(client);
    assert!(connection.poll(&mut server, &mut context).is_ready());
}

// Regression: HTTP/2: a connection's turn was bounded by reads, each with as many requests as fit, so other connections
// waited for 60 ms and more.
#[test]
fn received_requests_wait_when_the_turn_budget_is_used_up() {
    let mut connection = opened_connection();
    connection.is_turn_over = true;
    connection.receive(&[1, 3, 5].map(request).concat());
    assert_eq!((connection.newest_stream, connection.has_unhandled_frames), (0, true));
    assert!(!connection.wait_conditions().is_partial && connection.wait_conditions().is_busy, "the peer is not late");
    while connection.has_unhandled_frames {
        let newest_before = connection.newest_stream;
        (connection.turn_budget, connection.is_turn_over) = (TurnBudget::new(), false);
        connection.receive(&[]);
        assert!(connection.newest_stream > newest_before, "each turn handles a frame");
    }
    assert_eq!((connection.newest_stream, connection.unhandled_input.len()), (5, 0));
}

#[test]
fn a_connection_begins_with_the_preface_and_settings() {
    let protocol = [(frame::GOAWAY, 0, ErrorCode::Protocol as u32)];
    for at in 0..CLIENT_PREFACE.len() {
        let (mut connection, mut preface) = (new_connection(), CLIENT_PREFACE.to_vec());
        preface[at] ^= 0x20;
        connection.receive_initial_bytes(&preface);
        assert_eq!(queued_errors(&connection), protocol, "byte {at} of the preface");
    }
    for (case, first) in [
        ("PING", frame(frame::PING, 0, 0, &[0; 8])),
        ("SETTINGS with ACK", frame(frame::SETTINGS, frame::ACK, 0, &[])),
        ("SETTINGS on a stream", frame(frame::SETTINGS, 0, 1, &[])),
        ("a request", request(1)),
        ("an unknown frame", frame(0x7f, 0, 0, &[])),
    ] {
        let mut connection = new_connection();
        connection.receive_initial_bytes(&[CLIENT_PREFACE, &first].concat());
        assert_eq!(queued_errors(&connection), protocol, "{case}");
    }
}

#[test]
fn frames_mean_the_same_wherever_they_are_split() {
    let ping = frame(frame::PING, 0, 0, b"12345678");
    let bytes = [CLIENT_PREFACE, &frame(frame::SETTINGS, 0, 0, &[]), &ping, &request(1), &ping, &request(3)].concat();
    let mut unsplit = new_connection();
    unsplit.receive_initial_bytes(&bytes);
    let kinds = |connection: &Http2Connection| {
        queued_frames(connection).iter().map(|frame| (frame.0, frame.1, frame.2)).collect::<Vec<_>>()
    };
    let expected = kinds(&unsplit);
    assert_eq!(expected.iter().filter(|frame| frame.0 == frame::HEADERS).count(), 2);
    for at in 0..=bytes.len() {
        let mut connection = new_connection();
        connection.receive_initial_bytes(&bytes[..at]);
        connection.receive(&bytes[at..]);
        assert_eq!(
            (kinds(&connection), connection.newest_stream, connection.unhandled_input.len()),
            (expected.clone(), 3, 0),
            "at {at}"
        );
    }
    let mut connection = new_connection();
    for byte in bytes {
        connection.receive(&[byte]);
    }
    assert_eq!(kinds(&connection), expected, "a byte at a time");
}

#[test]
fn goaway_at_shutdown_names_the_last_handled_stream_and_refuses_later_ones() {
    let mut connection = opened_connection();
    let ping_ack = frame(frame::PING, frame::ACK, 0, SHUTDOWN_PING);
    receive_in_new_turn(&mut connection, &[request(1), ping_ack.clone()].concat());
    assert_eq!(queued_errors(&connection), [], "no such PING was sent");
    (0..2).for_each(|_| connection.begin_shutdown());
    assert_eq!(queued_frames(&connection).pop(), Some((frame::PING, 0, 0, SHUTDOWN_PING.to_vec())));
    receive_in_new_turn(&mut connection, &[frame(frame::PING, frame::ACK, 0, b"12345678"), request(3)].concat());
    let mut expected = vec![(frame::GOAWAY, 0x7fff_ffff, 0)];
    assert_eq!(queued_errors(&connection), expected);
    receive_in_new_turn(&mut connection, &[ping_ack, request(5)].concat());
    expected.push((frame::GOAWAY, 3, 0));
    assert_eq!(queued_errors(&connection), expected);
    // A later request is not answered, and its body is no error.
    let request_with_body = [
        frame(frame::HEADERS, frame::END_HEADERS, 7, &request(7)[frame::HEADER_BYTES..]),
        frame(frame::DATA, frame::END_STREAM, 7, b"abc"),
    ];
    receive_in_new_turn(&mut connection, &request_with_body.concat());
    assert_eq!(queued_errors(&connection), expected);
    receive_in_new_turn(&mut connection, &frame(frame::PING, 0, 0, &[0; 7]));
    expected.push((frame::GOAWAY, 3, ErrorCode::FrameSize as u32));
    assert_eq!(queued_errors(&connection), expected);
    let answered =
        queued_frames(&connection).into_iter().filter(|frame| frame.0 == frame::HEADERS).map(|frame| frame.2);
    assert_eq!(answered.collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn the_settings_announce_128_streams_64_kib_of_fields_and_no_priorities() {
    let payload = [(3u16, 128u32), (6, 65_536), (9, 1)]
        .map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .concat();
    assert_eq!(queued_frames(&new_connection()), [(frame::SETTINGS, 0, 0, payload)]);
}

// The peer may allow no dynamic table, and then expects this update (RFC 7541, section 4.2).
#[test]
fn only_the_first_head_of_a_connection_sets_the_hpack_table_size_to_0_cached_or_not() {
    let site = Site::new(SiteSettings::default());
    let peer =
        Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), is_encrypted: false, is_loopback_listener: false };
    for attempt in 0..2 {
        let mut connection = Http2Connection::new(Arc::clone(&site), peer, Arc::default());
        connection.receive_initial_bytes(&[CLIENT_PREFACE, &frame(frame::SETTINGS, 0, 0, &[])].concat());
        for id in [1, 3] {
            receive_in_new_turn(&mut connection, &request(id));
        }
        let heads = queued_frames(&connection).into_iter().filter(|frame| frame.0 == frame::HEADERS);
        let first_bytes: Vec<u8> = heads.map(|frame| frame.3[0]).collect();
        // `:status` with a literal value, without indexing.
        assert_eq!(first_bytes, [hpack::encode::TABLE_SIZE_ZERO, 8], "attempt {attempt}");
    }
}

#[test]
fn a_response_without_a_body_ends_with_its_head_and_counts_as_completed() {
    let mut connection = opened_connection();
    assert!(!connection.request_received.load(std::sync::atomic::Ordering::Relaxed));
    let mut block = vec![0x86, 0x84];
    hpack::encode::append_field(":method", b"HEAD", &mut block);
    let end_of_request = frame::END_STREAM | frame::END_HEADERS;
    receive_in_new_turn(&mut connection, &frame(frame::HEADERS, end_of_request, 1, &block));
    let last = queued_frames(&connection).pop().map(|frame| (frame.0, frame.1, frame.2));
    assert_eq!(last, Some((frame::HEADERS, end_of_request, 1)));
    assert_eq!((connection.streams.len(), connection.streams.queued.responses), (0, 1));
    assert!(connection.request_received.load(std::sync::atomic::Ordering::Relaxed));
}

#[test]
fn a_head_longer_than_a_frame_uses_continuation_frames() {
    // No backslash is shorter in the Huffman code.
    let value = vec![b'\\'; 40_000];
    for (body, flags) in [(ResponseBody::empty(), frame::END_STREAM), (ResponseBody::full("x"), 0)] {
        let mut connection = opened_connection();
        let start = queued_frames(&connection).len();
        let mut response = Response::new(LoggedBody::from(body));
        response.headers_mut().insert("x-long", http::HeaderValue::from_bytes(&value).unwrap());
        connection.queue_response(1, false, response, None);
        let frames = queued_frames(&connection).split_off(start);
        let kinds: Vec<(u8, u8)> = frames.iter().map(|frame| (frame.0, frame.1)).collect();
        let expected = [(frame::HEADERS, flags), (frame::CONTINUATION, 0), (frame::CONTINUATION, frame::END_HEADERS)];
        assert_eq!(kinds, expected);
        let block = frames.iter().map(|frame| &frame.3[..]).collect::<Vec<_>>().concat();
        let mut fields = hpack::DecodedFields::default();
        HpackDecoder::default().decode(&block, &mut fields).unwrap();
        assert!(fields.get(b"x-long") == Some(&value[..]));
    }
}

#[test]
fn the_deadline_of_a_partial_frame_or_field_block_is_not_extended_by_further_parts() {
    let (mut client, mut server) = tokio::io::duplex(1 << 16);
    let mut connection = new_connection();
    let mut deadline_after = |bytes: &[u8]| {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let written = Pin::new(&mut client).poll_write(&mut context, bytes);
        assert!(matches!(written, Poll::Ready(Ok(n)) if n == bytes.len()));
        assert!(connection.poll(&mut server, &mut context).is_pending());
        connection.deadline().expect("a state that waits has a deadline")
    };
    let settings = frame(frame::SETTINGS, 0, 0, &[]);
    let begun = deadline_after(&CLIENT_PREFACE[..5]);
    assert_eq!(deadline_after(&CLIENT_PREFACE[5..]), begun, "SETTINGS must follow the preface");
    assert_eq!(deadline_after(&settings[..4]), begun);
    assert!(deadline_after(&settings[4..]) > begun);
    let ping = frame(frame::PING, 0, 0, b"12345678");
    let begun = deadline_after(&ping[..9]);
    assert_eq!(deadline_after(&ping[9..12]), begun, "a part of a frame");
    assert!(deadline_after(&ping[12..]) > begun);
    let begun = deadline_after(&frame(frame::HEADERS, frame::END_STREAM, 1, &[0x82, 0x86]));
    assert_eq!(deadline_after(&frame(frame::CONTINUATION, 0, 1, &[0x84])), begun, "a part of a field block");
    assert!(deadline_after(&frame(frame::CONTINUATION, frame::END_HEADERS, 1, &[])) > begun);
    // A PING may arrive late only behind output that was sent after the last input.
    deadline_after(&frame(frame::PING, frame::ACK, 0, b"12345678"));
    assert!(!connection.send_buffer.has_sent, "nothing was sent since then");
}

#[test]
fn a_stream_reset_drops_its_deferred_response_and_counts_toward_the_reset_limit() {
    let (mut connection, mut id) = (opened_connection(), 1);
    while connection.shutdown != ShutdownState::Failed {
        // Control frames would be too many at 10,000.
        assert!(id < 10_000, "resets of responses that wait are not counted");
        connection.newest_stream = id;
        let response = Box::pin(std::future::pending());
        connection.deferred.push(deferred_response(id, response));
        receive_in_new_turn(&mut connection, &frame(frame::RST_STREAM, 0, id, &[0, 0, 0, 8]));
        assert!(connection.deferred.is_empty(), "stream {id}");
        id += 2;
    }
    assert_eq!(queued_errors(&connection), [(frame::GOAWAY, id - 2, ErrorCode::EnhanceYourCalm as u32)]);
}
