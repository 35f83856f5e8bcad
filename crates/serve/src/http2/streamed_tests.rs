//! Tests of response bodies of unknown length, and of responses that end with their client.

use std::task::Waker;

use bytes::Bytes;
use http::Response;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use super::tests::{deferred_response, frame, opened_connection, queued_frames};
use super::*;
use crate::body::ResponseBody;
use crate::logged_body::LoggedBody;

/// Creates a response whose chunks are those of the channel.
fn streamed_response() -> (mpsc::Sender<Bytes>, Response<LoggedBody>) {
    let (sender, mut chunks) = mpsc::channel::<Bytes>(16);
    let body = ResponseBody::streamed(|out| async move {
        while let Some(chunk) = chunks.recv().await {
            out.send(chunk).await;
        }
    });
    (sender, Response::new(LoggedBody::from(body)))
}

/// Lets the connection queue what it can, and returns the queued DATA frames: payload length, whether END_STREAM is
/// set.
fn queue_data(connection: &mut Http2Connection) -> Vec<(usize, bool)> {
    connection.send_buffer = SendBuffer::default();
    connection.queue_responses(&mut Context::from_waker(Waker::noop()));
    let frames = queued_frames(connection).into_iter().filter(|(kind, ..)| *kind == frame::DATA);
    frames.map(|(_, flags, _, payload)| (payload.len(), flags & frame::END_STREAM != 0)).collect()
}

#[test]
fn a_streamed_response_has_no_length_and_ends_with_its_last_chunk() {
    let mut connection = opened_connection();
    let (sender, response) = streamed_response();
    connection.newest_stream = 1;
    connection.queue_response(1, false, response, None);
    let head = queued_frames(&connection).into_iter().find(|(kind, ..)| *kind == frame::HEADERS).unwrap();
    assert_eq!(head.1, frame::END_HEADERS);
    let mut fields = hpack::DecodedFields::default();
    HpackDecoder::default().decode(&head.3, &mut fields).unwrap();
    assert_eq!((fields.get(b":status"), fields.get(b"content-length")), (Some(&b"200"[..]), None));
    assert_eq!(queue_data(&mut connection), [], "there is no chunk yet");
    sender.try_send(Bytes::from_static(b"one")).unwrap();
    sender.try_send(Bytes::from_static(b"three")).unwrap();
    assert_eq!(queue_data(&mut connection), [(3, false), (5, false)]);
    assert_eq!(queue_data(&mut connection), []);
    drop(sender);
    assert_eq!(queue_data(&mut connection), [(0, true)]);
    assert_eq!((connection.streams.len(), connection.streams.queued.responses), (0, 1));
}

#[test]
fn a_streamed_response_obeys_the_windows_and_its_end_needs_none() {
    let mut connection = opened_connection();
    let (sender, response) = streamed_response();
    connection.newest_stream = 1;
    connection.queue_response(1, false, response, None);
    connection.streams.set_initial_window(4).unwrap();
    sender.try_send(Bytes::from_static(b"123456")).unwrap();
    drop(sender);
    assert_eq!(queue_data(&mut connection), [(4, false)]);
    assert!(connection.wait_conditions().needs_window, "the peer has to enlarge the window");
    connection.streams.increase_window(1, 2).unwrap();
    assert_eq!(queue_data(&mut connection), [(2, false), (0, true)]);
}

#[test]
fn a_peer_that_waits_for_a_chunk_has_no_deadline_for_its_window() {
    let mut connection = opened_connection();
    let (sender, response) = streamed_response();
    connection.newest_stream = 1;
    connection.queue_response(1, false, response, None);
    queue_data(&mut connection);
    connection.send_buffer = SendBuffer::default();
    let conditions = connection.wait_conditions();
    assert!(!conditions.needs_window && !conditions.is_idle && !conditions.is_busy, "{conditions:?}");
    // A peer that is no longer there is noticed by a PING.
    connection.deadlines.update(Instant::now(), &conditions);
    assert!(connection.deadlines.next().is_some());
    drop(sender);
}

/// Serves the connection until it ends, or has nothing to do.
fn run(connection: &mut Http2Connection, server: &mut tokio::io::DuplexStream) -> bool {
    let mut context = Context::from_waker(Waker::noop());
    (0..20).any(|_| connection.poll(server, &mut context).is_ready())
}

#[tokio::test]
async fn a_reset_and_a_closed_input_end_a_streamed_response() {
    for is_reset in [true, false] {
        let mut connection = opened_connection();
        let (sender, response) = streamed_response();
        connection.newest_stream = 1;
        connection.queue_response(1, false, response, None);
        let (mut client, mut server) = tokio::io::duplex(1 << 16);
        assert!(!run(&mut connection, &mut server) && !sender.is_closed());
        if is_reset {
            client.write_all(&frame(frame::RST_STREAM, 0, 1, &[0, 0, 0, 8])).await.unwrap();
        } else {
            client.shutdown().await.unwrap();
        }
        assert_eq!(run(&mut connection, &mut server), !is_reset);
        assert!(sender.is_closed(), "reset: {is_reset}");
    }
}

#[tokio::test]
async fn a_deferred_response_that_ends_with_its_client_is_dropped_at_the_end_of_the_input() {
    for ends_with_input in [true, false] {
        let mut connection = opened_connection();
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let response = Box::pin(async move {
            let _ = receiver.await;
            Response::new(LoggedBody::from(ResponseBody::empty()))
        });
        connection.newest_stream = 1;
        connection.deferred.push(DeferredResponse { ends_with_input, ..deferred_response(1, response) });
        let (mut client, mut server) = tokio::io::duplex(1 << 16);
        client.shutdown().await.unwrap();
        assert_eq!(run(&mut connection, &mut server), ends_with_input);
        assert_eq!(sender.is_closed(), ends_with_input);
    }
}
