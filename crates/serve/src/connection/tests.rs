use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Duration;

use tokio::sync::Semaphore;

use super::*;
use crate::SiteSettings;
use crate::serving_threads::ServingThreads;
use crate::stall_timeout::StallTimeoutStream;

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// A received frame: kind, flags, stream, payload.
type ReceivedFrame = (u8, u8, u32, Vec<u8>);

/// Returns the bytes of an HTTP/2 frame.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&(payload.len() as u32).to_be_bytes()[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Returns the frames of a request for `/`, and of a window for its response, whose stream has none at first.
fn request_with_window(stream: u32) -> Vec<u8> {
    let block = [0x82, 0x86, 0x84, 0x01, 1, b'x'];
    let headers = frame(HEADERS, END_STREAM | END_HEADERS, stream, &block);
    [headers, frame(WINDOW_UPDATE, 0, stream, &(1u32 << 20).to_be_bytes())].concat()
}

/// An HTTP/2 client that is never silent: it enlarges the connection's window by a byte every few milliseconds.
struct RestlessClient {
    stream: TcpStream,
    received: Vec<u8>,
}

impl RestlessClient {
    fn connect(address: std::net::SocketAddr) -> RestlessClient {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
        // SETTINGS_INITIAL_WINDOW_SIZE is 0.
        stream.write_all(&[CLIENT_PREFACE, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0])].concat()).unwrap();
        RestlessClient { stream, received: Vec::new() }
    }

    /// Returns the next frame until `deadline`. `Ok(None)` is the end of the connection, an error means that the
    /// deadline has passed.
    fn next_frame(&mut self, deadline: Instant) -> Result<Option<ReceivedFrame>, ()> {
        loop {
            if let Some((header, rest)) = self.received.split_at_checked(9) {
                let len = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
                if rest.len() >= len {
                    let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
                    let next = (header[3], header[4], stream, rest[..len].to_vec());
                    self.received.drain(..9 + len);
                    return Ok(Some(next));
                }
            }
            if Instant::now() >= deadline {
                return Err(());
            }
            let mut buffer = [0; 4096];
            match self.stream.read(&mut buffer) {
                Ok(0) => return Ok(None),
                Ok(n) => self.received.extend_from_slice(&buffer[..n]),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    // The server may have closed the connection.
                    let _ = self.stream.write_all(&frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes()));
                }
                Err(error) => panic!("{error}"),
            }
        }
    }
}

// Regression: HTTP/2: a connection without requests stayed open for as long as the client sent any frames.
#[test]
fn an_idle_http2_connection_sends_queued_data_and_ends_with_no_error_despite_frames() {
    const IDLE_TIMEOUT: Duration = Duration::from_millis(100);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _runtime_context = runtime.enter();
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut client = RestlessClient::connect(listener.local_addr().unwrap());
    let first = request_with_window(1);
    let (headers, window) = first.split_at(first.len() - 13);
    client.stream.write_all(headers).unwrap();
    let (socket, address) = listener.accept().unwrap();
    socket.set_nonblocking(true).unwrap();

    let peer = Peer { address, is_encrypted: false, is_loopback_listener: false };
    let site = Site::new(SiteSettings::default());
    let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
    let guard = OpenConnectionGuard::new(
        &Arc::new(ConnectionTracker::default()),
        permit,
        ServingThreads::on_current_runtime().assign().1,
    );
    let mut connection = Connection::new(
        StallTimeoutStream::new(socket.into(), None),
        ExpectedProtocol::Http2,
        site.into(),
        peer,
        Instant::now(),
        guard,
    );
    assert!(connection.poll_first().is_pending());
    let Protocol::Http2(_, http2) = &mut connection.protocol else { panic!("the protocol is known") };
    http2.set_idle_timeout(IDLE_TIMEOUT);
    let connection = runtime.spawn(connection);

    // A connection whose response waits for a window is not idle.
    let mut frames = Vec::new();
    let busy_until = Instant::now() + 3 * IDLE_TIMEOUT;
    while let Ok(frame) = client.next_frame(busy_until) {
        frames.push(frame.expect("the connection is open"));
    }
    client.stream.write_all(window).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while let Some(frame) = client.next_frame(deadline).expect("the connection ends") {
        // A request that was under way when the server sent GOAWAY, and the acknowledgement of the PING after that.
        if frame.0 == PING && frame.1 & ACK == 0 {
            let ping_ack = self::frame(PING, ACK, 0, &frame.3);
            let _ = client.stream.write_all(&[request_with_window(3), ping_ack].concat());
        }
        frames.push(frame);
    }
    drop(client);
    runtime.block_on(connection).unwrap();

    frames.retain(|frame| frame.0 != SETTINGS);
    let position = |is_wanted: &dyn Fn(&ReceivedFrame) -> bool| frames.iter().position(is_wanted);
    let end_of = |stream| position(&|frame| frame.0 == 0 && frame.1 & END_STREAM != 0 && frame.2 == stream);
    let goaways: Vec<(u32, u32)> = frames
        .iter()
        .filter(|frame| frame.0 == GOAWAY)
        .map(|frame| frame.3.split_at(4))
        .map(|(stream, code)| {
            (u32::from_be_bytes(stream.try_into().unwrap()), u32::from_be_bytes(code.try_into().unwrap()))
        })
        .collect();
    // On a busy machine the second request may arrive too late: then the last GOAWAY does not name it.
    let last_stream = if end_of(3).is_some() { 3 } else { 1 };
    assert_eq!(goaways, [(0x7fff_ffff, 0), (last_stream, 0)], "{frames:?}");
    assert!(end_of(1).is_some() && end_of(1) < position(&|frame| frame.0 == GOAWAY), "{frames:?}");
}

#[test]
fn a_split_http2_preface_is_detected_and_an_incomplete_one_is_handled_as_http1() {
    let mut context = Context::from_waker(Waker::noop());
    let send = |client: &mut tokio::io::DuplexStream, bytes: &[u8]| {
        let sent = tokio::io::AsyncWrite::poll_write(Pin::new(client), &mut Context::from_waker(Waker::noop()), bytes);
        assert!(matches!(sent, Poll::Ready(Ok(n)) if n == bytes.len()));
    };
    for at in 1..CLIENT_PREFACE.len() {
        for (rest, expected) in [(&CLIENT_PREFACE[at..], Some(true)), (b"x", Some(false)), (b"", None)] {
            let (mut client, mut server) = tokio::io::duplex(64);
            let mut initial_bytes = Vec::new();
            send(&mut client, &CLIENT_PREFACE[..at]);
            assert!(detect_http2(&mut server, &mut initial_bytes, &mut context).is_pending(), "{at} bytes");
            if !rest.is_empty() {
                send(&mut client, rest);
            }
            let detected = detect_http2(&mut server, &mut initial_bytes, &mut context);
            let is_http2 = if let Poll::Ready(is_http2) = detected { Some(is_http2.unwrap()) } else { None };
            assert_eq!(is_http2, expected, "{at} bytes, and then {rest:?}");
            assert_eq!(initial_bytes, [&CLIENT_PREFACE[..at], rest].concat());
            drop(client);
            if is_http2.is_none() {
                let detected = detect_http2(&mut server, &mut initial_bytes, &mut context);
                assert!(matches!(detected, Poll::Ready(Ok(false))), "{at} bytes, and then the end");
            }
        }
    }
}
