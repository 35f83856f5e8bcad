//! HTTP/2, beyond the tests for all protocols (`tests/serve/protocols.rs`): streams do not delay each other,
//! responses in progress need little memory, and a response that was started is completed.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::h2::{self, Http2Client, StreamOutcome};
use support::{Daemon, HTTP2_SERVERS, anonymous_memory_bytes, temporary_folder, write_site};

/// Bytes that cannot be compressed.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let next = |state: &mut u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        state.to_le_bytes()
    };
    (0..len.div_ceil(8)).flat_map(|_| next(&mut state)).take(len).collect()
}

const PICTURE_BYTES: usize = 32 << 20;

/// A site with a large picture, and a large text, which is stored compressed.
fn large_site() -> (tempfile::TempDir, Daemon, Vec<u8>) {
    large_site_with_http2("own")
}

fn large_site_with_http2(http2: &str) -> (tempfile::TempDir, Daemon, Vec<u8>) {
    let dir = temporary_folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>home"), ("a.txt", "content of a")]);
    let picture = noise(PICTURE_BYTES);
    std::fs::write(root.join("large.png"), &picture).expect("a file can be written");
    let text = "The same line again and again.\n".repeat(300_000);
    std::fs::write(root.join("large.txt"), text).expect("a file can be written");
    let daemon = Daemon::serve_with_http2(http2, &root, &[]);
    (dir, daemon, picture)
}

fn response_of_a() -> StreamOutcome {
    StreamOutcome::Response { status: 200, body: b"content of a".to_vec() }
}

#[test]
fn small_responses_and_stream_resets_overtake_an_http2_download() {
    for http2 in HTTP2_SERVERS {
        let (_dir, daemon, _) = large_site_with_http2(http2);
        let mut client = Http2Client::open(&daemon.address);
        let large = client.request("GET", "/large.png", &[]);
        while client.received_bytes(large) == 0 {
            assert!(client.receive());
        }
        // The windows are large enough for all of it.
        assert_eq!(client.get("/a.txt", &[]), response_of_a());
        assert!(client.received_bytes(large) < PICTURE_BYTES / 2, "{} bytes came first", client.received_bytes(large));
        client.send(h2::RST_STREAM, 0, large, &[0, 0, 0, 8]).expect("the server reads");
        assert_eq!(client.get("/a.txt", &[]), response_of_a());
        let received = client.received_bytes(large);
        assert_eq!(client.get("/a.txt", &[]), response_of_a());
        assert!(
            client.received_bytes(large) == received && received < PICTURE_BYTES / 2,
            "{received} bytes, and then more"
        );
    }
}

// Regression: 120 responses that must be inflated took 30 MB before any of them was sent.
#[test]
fn waiting_http2_responses_that_need_inflating_use_little_memory() {
    let (_dir, daemon, _) = large_site();
    for window in [0, 1] {
        let mut first = Http2Client::open(&daemon.address);
        assert_eq!(first.get("/a.txt", &[]), response_of_a());
        let before = anonymous_memory_bytes(daemon.pid());
        let mut client = Http2Client::open_with_window(&daemon.address, window);
        for _ in 0..120 {
            client.request("GET", "/large.txt", &[]);
        }
        let last = client.request("HEAD", "/a.txt", &[]);
        assert!(matches!(client.wait_for_stream(last), StreamOutcome::Response { status: 200, .. }));
        let growth = anonymous_memory_bytes(daemon.pid()).saturating_sub(before);
        assert!(growth < 24 << 20, "{growth} bytes for 120 answers with windows of {window}");
    }
}

#[test]
fn more_http2_requests_than_are_inflated_at_once_all_complete() {
    for http2 in HTTP2_SERVERS {
        let (_dir, daemon, _) = large_site_with_http2(http2);
        let mut client = Http2Client::open(&daemon.address);
        let text = "The same line again and again.\n".repeat(300_000);
        let full_streams: Vec<u32> = (0..10).map(|_| client.request("GET", "/large.txt", &[])).collect();
        let range = ("range", "bytes=8000000-8000009");
        let range_streams: Vec<u32> = (0..40).map(|_| client.request("GET", "/large.txt", &[range])).collect();
        for stream in range_streams {
            let body = text.as_bytes()[8_000_000..8_000_010].to_vec();
            assert_eq!(client.wait_for_stream(stream), StreamOutcome::Response { status: 206, body });
        }
        for stream in full_streams {
            assert!(
                client.wait_for_stream(stream)
                    == StreamOutcome::Response { status: 200, body: text.clone().into_bytes() }
            );
        }
    }
}

#[test]
fn thousands_of_http2_requests_sent_at_once_are_all_answered() {
    let (_dir, daemon, _) = large_site();
    let mut client = Http2Client::open(&daemon.address);
    let fields = [(":method", "HEAD"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")];
    let block = h2::block(&fields);
    let mut streams = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..3_000 {
        let stream = client.new_stream();
        bytes.extend(h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, stream, &block));
        streams.push(stream);
    }
    client.send_bytes(&bytes).expect("the server reads");
    for stream in streams {
        assert_eq!(client.wait_for_stream(stream), StreamOutcome::Response { status: 200, body: Vec::new() });
    }
}

#[test]
fn a_shutdown_completes_an_http2_download_whose_client_sends_window_updates() {
    for http2 in HTTP2_SERVERS {
        let (_dir, mut daemon, picture) = large_site_with_http2(http2);
        let mut client = Http2Client::open_with_window(&daemon.address, 1 << 20);
        let large = client.request("GET", "/large.png", &[]);
        while client.received_bytes(large) == 0 {
            assert!(client.receive());
        }
        daemon.signal("TERM");
        let mut granted = 0;
        while client.received_bytes(large) < PICTURE_BYTES {
            let ungranted = client.received_bytes(large) - granted;
            if ungranted > 30_000 {
                granted += ungranted;
                for stream in [0, large] {
                    let sent = client.send(h2::WINDOW_UPDATE, 0, stream, &(ungranted as u32).to_be_bytes());
                    // hyper closes the connection as soon as it has sent the whole body.
                    assert!(sent.is_ok() || http2 == "hyper", "the server reads: {sent:?}");
                }
            }
            assert!(client.receive(), "it ends after {} bytes", client.received_bytes(large));
        }
        // Browsers send this after the end of the body, too.
        let _ = client.send(h2::WINDOW_UPDATE, 0, 0, &1_000_000_u32.to_be_bytes());
        assert!(client.wait_for_stream(large) == StreamOutcome::Response { status: 200, body: picture });
        assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
    }
}

#[test]
fn an_http2_client_that_resets_every_stream_gets_enhance_your_calm() {
    let (_dir, daemon, _) = large_site();
    let head = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/large.png"), (":authority", "x")]);
    // The client resets each stream, or sends an invalid increment, so that the server resets it.
    for (kind, payload) in [(h2::RST_STREAM, [0, 0, 0, 8]), (h2::WINDOW_UPDATE, [0; 4])] {
        let mut client = Http2Client::open_with_window(&daemon.address, 0);
        let mut code = None;
        for batch in 1..=100 {
            let streams: Vec<u32> = (0..200).map(|_| client.new_stream()).collect();
            let headers_frame = |id| h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, id, &head);
            let pairs = streams.iter().flat_map(|&id| [headers_frame(id), h2::frame(kind, 0, id, &payload)].concat());
            let bytes: Vec<u8> = pairs.chain(h2::frame(h2::PING, 0, 0, b"the next")).collect();
            client.send_some(&bytes);
            // The client reads after each batch: an unread GOAWAY is lost when a write to the closed connection resets
            // it.
            while code.is_none() && client.ping_acks() < batch && client.receive() {
                code = client.goaway();
            }
            if client.ping_acks() < batch {
                break;
            }
        }
        assert_eq!(code, Some(11), "ENHANCE_YOUR_CALM, after {kind}");
    }
}

// Regression: HTTP/2: the server ended the connection of a reader that left three pages with 100 resources each before
// these had arrived.
#[test]
fn a_thousand_cancelled_http2_requests_do_not_close_the_connection() {
    let (_dir, daemon, _) = large_site();
    let head = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/large.png"), (":authority", "x")]);
    let mut client = Http2Client::open_with_window(&daemon.address, 0);
    // Ten pages of 100 resources each: nghttp2 allows as many at once.
    for _ in 0..10 {
        let streams: Vec<u32> = (0..100).map(|_| client.new_stream()).collect();
        let requests = streams.iter().map(|id| h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, *id, &head));
        let resets = streams.iter().map(|id| h2::frame(h2::RST_STREAM, 0, *id, &[0, 0, 0, 8]));
        let bytes: Vec<u8> = requests.chain(resets).flatten().collect();
        client.send_bytes(&bytes).expect("the server reads");
    }
    let next = client.request("GET", "/a.txt", &[]);
    client.send(h2::WINDOW_UPDATE, 0, next, &100_u32.to_be_bytes()).expect("the server reads");
    assert_eq!(client.wait_for_stream(next), response_of_a());
    assert_eq!(client.goaway(), None);
}

// Regression: HTTP/2: the server ended a client that measures the round-trip time with PING after 10,000 of them in one
// download.
#[test]
fn thousands_of_http2_pings_do_not_end_a_download() {
    let (_dir, daemon, picture) = large_site();
    let mut client = Http2Client::open_with_window(&daemon.address, 0);
    let large = client.request("GET", "/large.png", &[]);
    for count in 1..=12_000 {
        if count % 10 == 0 {
            client.send(h2::WINDOW_UPDATE, 0, large, &5_u32.to_be_bytes()).expect("the server reads");
        }
        client.send(h2::PING, 0, 0, b"bdpprobe").expect("the server reads");
        while client.ping_acks() < count {
            assert!(client.receive(), "it ends after {count} PINGs with {:?}", client.goaway());
        }
    }
    assert!(client.received_bytes(large) >= 5_000);
    for stream in [0, large] {
        client.send(h2::WINDOW_UPDATE, 0, stream, &0x3fff_ffff_u32.to_be_bytes()).expect("the server reads");
    }
    assert!(client.wait_for_stream(large) == StreamOutcome::Response { status: 200, body: picture });
}

// Regression: HTTP/2: the server refused a body and reset the stream at once, which curl 7.88 reports as an error of
// the connection.
#[test]
fn an_http2_stream_is_reset_only_if_its_unwanted_body_is_very_long() {
    let (_dir, daemon, _) = large_site();
    let head = h2::block(&[(":method", "POST"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")]);
    for (frames, expected) in [(2, None), (100, None), (400, Some(0))] {
        let mut client = Http2Client::open(&daemon.address);
        let stream = client.new_stream();
        client.send(h2::HEADERS, h2::END_HEADERS, stream, &head).expect("the server reads");
        assert!(matches!(client.wait_for_stream(stream), StreamOutcome::Response { status: 405, .. }));
        // The client keeps to the flow-control window.
        let mut window = 65_535;
        for frame in 1..=frames {
            let flags = if frame == frames { h2::END_STREAM } else { 0 };
            while window < 16_384 && client.reset_after_end(stream).is_none() && client.receive() {
                window += client.take_granted_bytes(stream);
            }
            if client.reset_after_end(stream).is_some() {
                break;
            }
            client.send(h2::DATA, flags, stream, &[7; 16_384]).expect("the server reads");
            window -= 16_384;
        }
        assert_eq!(client.reset_after_end(stream), expected, "{frames} frames");
        assert_eq!(client.get("/a.txt", &[]), response_of_a());
        assert_eq!((client.reset_after_end(stream), client.goaway()), (expected, None), "{frames} frames");
    }
}

// Regression: HTTP/2: WINDOW_UPDATE and GOAWAY were not counted as control frames.
#[test]
fn floods_of_http2_control_frames_close_the_connection_with_enhance_your_calm() {
    let (_dir, daemon, _) = large_site();
    let floods: [(&str, Vec<u8>); 8] = [
        ("PING", h2::frame(h2::PING, 0, 0, &[7; 8])),
        ("answers to PING", h2::frame(h2::PING, h2::ACK, 0, &[7; 8])),
        ("SETTINGS", h2::frame(h2::SETTINGS, 0, 0, &[])),
        ("answers to SETTINGS", h2::frame(h2::SETTINGS, h2::ACK, 0, &[])),
        ("WINDOW_UPDATE", h2::frame(h2::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])),
        ("GOAWAY", h2::frame(h2::GOAWAY, 0, 0, &[0; 8])),
        ("PRIORITY", h2::frame(2, 0, 9, &[0, 0, 0, 3, 16])),
        ("unknown frames", h2::frame(0x7f, 0, 9, &[])),
    ];
    for (flood, frame) in floods {
        // A response waits for its window, so that the connection is not ended for being idle.
        let mut client = Http2Client::open_with_window(&daemon.address, 0);
        client.request("GET", "/large.png", &[]);
        let frames = frame.repeat(1_000);
        let is_cut = (0..30).any(|_| !client.send_some(&frames));
        let mut code = None;
        while code.is_none() && client.receive() {
            code = client.goaway();
        }
        assert!(code == Some(11) || (is_cut && code.is_none()), "{code:?} after {flood}");
    }
}

/// Lasts a minute, which is the time limit of a stalled reader. A slow reader is connected at the same time.
// Regression: HTTP/2: a client with closed flow-control windows held its responses in memory for as long as it sent any
// frames.
#[test]
fn a_stalled_http2_client_is_disconnected_and_a_slow_one_is_not() {
    let (_dir, daemon, _) = large_site();
    let started = Instant::now();
    let mut slow = Http2Client::open_with_window(&daemon.address, 1_000);
    let large = slow.request("GET", "/large.png", &[]);
    let mut stalled = Http2Client::open_with_window(&daemon.address, 0);
    for _ in 0..3 {
        stalled.request("GET", "/large.png", &[]);
    }
    let mut ping_acks = 0;
    loop {
        ping_acks += 1;
        let frames = [
            h2::frame(h2::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            h2::frame(h2::SETTINGS, 0, 0, &[]),
            h2::frame(2, 0, 9, &[0, 0, 0, 3, 16]),
            h2::frame(h2::PING, 0, 0, &[7; 8]),
        ];
        let is_open = stalled.send_some(&frames.concat());
        while is_open && stalled.ping_acks() < ping_acks && stalled.goaway().is_none() && stalled.receive() {}
        if stalled.ping_acks() < ping_acks {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(90), "the stalled connection is still open");
        let before = slow.received_bytes(large);
        slow.send(h2::WINDOW_UPDATE, 0, large, &1_000_u32.to_be_bytes()).expect("the server reads");
        slow.send(h2::WINDOW_UPDATE, 0, 0, &1_000_u32.to_be_bytes()).expect("the server reads");
        while slow.received_bytes(large) < before + 1_000 {
            assert!(slow.receive(), "a reader that takes 1 KB a second is ended after {:?}", started.elapsed());
        }
        // The clients act once a second. This is not a wait for an event.
        std::thread::sleep(Duration::from_secs(1));
    }
    while stalled.goaway().is_none() && stalled.receive() {}
    assert_eq!(stalled.goaway(), Some(11));
    assert!(started.elapsed() > Duration::from_secs(50), "the stalled connection was closed too early");
    assert_eq!(slow.get("/a.txt", &[]), response_of_a());
}

#[test]
fn an_http2_connection_that_sends_no_request_is_closed_although_it_answers_pings() {
    let (_dir, daemon, _) = large_site();
    let stream = TcpStream::connect(&daemon.address).expect("the server accepts");
    let socket = stream.try_clone().expect("a descriptor can be had");
    let started = Instant::now();
    let mut client = Http2Client::over(Box::new(stream), socket, 1 << 20);
    // The client answers PINGs. A connection that has made a request would stay open for five minutes.
    while client.receive() {}
    assert!(started.elapsed() < Duration::from_secs(100), "closed after {:?}", started.elapsed());
}

#[test]
fn after_a_clients_goaway_pending_responses_are_sent_and_the_connection_closed() {
    let (_dir, daemon) = support::serve_site(&[("index.html", "<p>home"), ("a.txt", "content of a")], &[]);
    let mut client = Http2Client::open_with_window(&daemon.address, 0);
    let stream = client.request("GET", "/a.txt", &[]);
    client.send(h2::GOAWAY, 0, 0, &[0; 8]).expect("the server reads");
    client.send(h2::PING, 0, 0, b"12345678").expect("the server reads");
    while client.ping_acks() == 0 {
        assert!(client.receive(), "the connection ended before the response");
    }
    client.send(h2::WINDOW_UPDATE, 0, stream, &100_u32.to_be_bytes()).expect("the server reads");
    assert_eq!(client.wait_for_stream(stream), response_of_a());
    while client.receive() {}
    assert_eq!(client.goaway(), None, "the end of the connection is no error");
}

#[test]
fn an_http2_client_that_has_shut_down_its_sending_side_gets_the_full_response() {
    let (_dir, daemon, picture) = large_site();
    let stream = TcpStream::connect(&daemon.address).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
    let socket = stream.try_clone().expect("a descriptor can be had");
    let mut client =
        Http2Client::over(Box::new(stream), socket.try_clone().expect("a descriptor can be had"), 0x7fff_ffff);
    client.widen_connection_window();
    let large = client.request("GET", "/large.png", &[]);
    socket.shutdown(std::net::Shutdown::Write).expect("one side can be closed");
    assert!(client.wait_for_stream(large) == StreamOutcome::Response { status: 200, body: picture });
    while client.receive() {}
    assert_eq!(client.goaway(), None);
}
