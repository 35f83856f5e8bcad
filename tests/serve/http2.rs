//! What a connection of HTTP/2 is promised beyond what every connection is (`tests/serve/connections.rs`): nobody on it waits for
//! another, what is on its way costs little, and what was begun comes whole.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use support::h2::{self, Answer, Client};
use support::{Daemon, folder, write_site};

/// Bytes that nothing makes smaller.
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

const LARGE: usize = 32 << 20;

/// A site with a large picture, and a large text, which lies compressed.
fn site() -> (tempfile::TempDir, Daemon, Vec<u8>) {
    let dir = folder();
    let root = write_site(&dir.path().join("site"), &[("index.html", "<p>home"), ("a.txt", "content of a")]);
    let picture = noise(LARGE);
    std::fs::write(root.join("large.png"), &picture).expect("a file can be written");
    let text = "The same line again and again.\n".repeat(300_000);
    std::fs::write(root.join("large.txt"), text).expect("a file can be written");
    let daemon = Daemon::serve(&root, &[]);
    (dir, daemon, picture)
}

fn small() -> Answer {
    Answer::Response { status: 200, body: b"content of a".to_vec() }
}

/// Anonymous memory of a daemon, in bytes: without the site, which is a file.
fn anonymous(daemon: &Daemon) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", daemon.pid())).expect("it runs");
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).expect("a line of it");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

#[test]
fn a_small_answer_and_a_cancellation_overtake_a_download_whatever_its_windows() {
    let (_dir, daemon, _) = site();
    let mut client = Client::open(&daemon.address);
    let large = client.request("GET", "/large.png", &[]);
    while client.received(large) == 0 {
        assert!(client.receive());
    }
    // Windows would let all of it through first.
    assert_eq!(client.get("/a.txt", &[]), small());
    assert!(client.received(large) < LARGE / 2, "{} bytes came first", client.received(large));
    client.send(h2::RST_STREAM, 0, large, &[0, 0, 0, 8]).expect("the server reads");
    assert_eq!(client.get("/a.txt", &[]), small());
    let received = client.received(large);
    assert_eq!(client.get("/a.txt", &[]), small());
    assert!(client.received(large) == received && received < LARGE / 2, "{received} bytes, and then more");
}

#[test]
fn answers_that_have_to_be_made_take_little_however_many_wait_for_their_reader() {
    let (_dir, daemon, _) = site();
    for window in [0, 1] {
        let mut first = Client::open(&daemon.address);
        assert_eq!(first.get("/a.txt", &[]), small());
        let before = anonymous(&daemon);
        let mut client = Client::open_with_window(&daemon.address, window);
        for _ in 0..120 {
            client.request("GET", "/large.txt", &[]);
        }
        let last = client.request("HEAD", "/a.txt", &[]);
        assert!(matches!(client.answer(last), Answer::Response { status: 200, .. }));
        let more = anonymous(&daemon).saturating_sub(before);
        assert!(more < 24 << 20, "{more} bytes for 120 answers with windows of {window}");
    }
}

#[test]
fn all_answers_come_whole_though_more_are_asked_for_than_are_made_at_a_time() {
    let (_dir, daemon, _) = site();
    let mut client = Client::open(&daemon.address);
    let text = "The same line again and again.\n".repeat(300_000);
    let asked: Vec<u32> = (0..10).map(|_| client.request("GET", "/large.txt", &[])).collect();
    let part = ("range", "bytes=8000000-8000009");
    let parts: Vec<u32> = (0..40).map(|_| client.request("GET", "/large.txt", &[part])).collect();
    for stream in parts {
        let body = text.as_bytes()[8_000_000..8_000_010].to_vec();
        assert_eq!(client.answer(stream), Answer::Response { status: 206, body });
    }
    for stream in asked {
        assert!(client.answer(stream) == Answer::Response { status: 200, body: text.clone().into_bytes() });
    }
}

#[test]
fn questions_that_come_faster_than_answers_are_read_are_all_answered() {
    let (_dir, daemon, _) = site();
    let mut client = Client::open(&daemon.address);
    let fields = [(":method", "HEAD"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")];
    let block = h2::block(&fields);
    let mut asked = Vec::new();
    let mut bytes = Vec::new();
    for _ in 0..3_000 {
        let stream = client.stream();
        bytes.extend(h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, stream, &block));
        asked.push(stream);
    }
    client.send_bytes(&bytes).expect("the server reads");
    for stream in asked {
        assert_eq!(client.answer(stream), Answer::Response { status: 200, body: Vec::new() });
    }
}

#[test]
fn a_stop_lets_a_download_come_whole_whose_reader_goes_on_saying_how_much_it_takes() {
    let (_dir, mut daemon, picture) = site();
    let mut client = Client::open_with_window(&daemon.address, 1 << 20);
    let large = client.request("GET", "/large.png", &[]);
    while client.received(large) == 0 {
        assert!(client.receive());
    }
    daemon.signal("TERM");
    let mut told = 0;
    while client.received(large) < LARGE {
        let came = client.received(large) - told;
        if came > 30_000 {
            told += came;
            for stream in [0, large] {
                client.send(h2::WINDOW_UPDATE, 0, stream, &(came as u32).to_be_bytes()).expect("the server reads");
            }
        }
        assert!(client.receive(), "it ends after {} bytes", client.received(large));
    }
    // As browsers do when it has all come.
    let _ = client.send(h2::WINDOW_UPDATE, 0, 0, &1_000_000_u32.to_be_bytes());
    assert!(client.answer(large) == Answer::Response { status: 200, body: picture });
    assert_eq!(daemon.wait(Duration::from_secs(20)), Some(0));
}

#[test]
fn a_peer_that_has_each_answer_thrown_away_is_not_answered_for_ever() {
    let (_dir, daemon, _) = site();
    let head = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/large.png"), (":authority", "x")]);
    // By its own word, and by a mistake that makes us do it.
    for (kind, payload) in [(h2::RST_STREAM, [0, 0, 0, 8]), (h2::WINDOW_UPDATE, [0; 4])] {
        let mut client = Client::open_with_window(&daemon.address, 0);
        let mut code = None;
        for batch in 1..=100 {
            let streams: Vec<u32> = (0..200).map(|_| client.stream()).collect();
            let asked = |id| h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, id, &head);
            let pairs = streams.iter().flat_map(|&id| [asked(id), h2::frame(kind, 0, id, &payload)].concat());
            let bytes: Vec<u8> = pairs.chain(h2::frame(h2::PING, 0, 0, b"the next")).collect();
            client.send_some(&bytes);
            // It is read each time: a GOAWAY that lies unread is lost when the connection is closed under what is sent.
            while code.is_none() && client.pongs() < batch && client.receive() {
                code = client.goaway();
            }
            if client.pongs() < batch {
                break;
            }
        }
        assert_eq!(code, Some(11), "ENHANCE_YOUR_CALM, after {kind}");
    }
}

#[test]
fn a_thousand_answers_left_before_they_have_come_do_not_end_a_connection() {
    let (_dir, daemon, _) = site();
    let head = h2::block(&[(":method", "GET"), (":scheme", "http"), (":path", "/large.png"), (":authority", "x")]);
    let mut client = Client::open_with_window(&daemon.address, 0);
    // Ten pages of 100 resources each: nghttp2 allows as many at once.
    for _ in 0..10 {
        let streams: Vec<u32> = (0..100).map(|_| client.stream()).collect();
        let asked = streams.iter().map(|id| h2::frame(h2::HEADERS, h2::END_STREAM | h2::END_HEADERS, *id, &head));
        let left = streams.iter().map(|id| h2::frame(h2::RST_STREAM, 0, *id, &[0, 0, 0, 8]));
        let bytes: Vec<u8> = asked.chain(left).flatten().collect();
        client.send_bytes(&bytes).expect("the server reads");
    }
    let next = client.request("GET", "/a.txt", &[]);
    client.send(h2::WINDOW_UPDATE, 0, next, &100_u32.to_be_bytes()).expect("the server reads");
    assert_eq!(client.answer(next), small());
    assert_eq!(client.goaway(), None);
}

#[test]
fn a_ping_that_is_always_under_way_does_not_end_a_download() {
    let (_dir, daemon, picture) = site();
    let mut client = Client::open_with_window(&daemon.address, 0);
    let large = client.request("GET", "/large.png", &[]);
    for count in 1..=12_000 {
        if count % 10 == 0 {
            client.send(h2::WINDOW_UPDATE, 0, large, &5_u32.to_be_bytes()).expect("the server reads");
        }
        client.send(h2::PING, 0, 0, b"bdpprobe").expect("the server reads");
        while client.pongs() < count {
            assert!(client.receive(), "it ends after {count} PINGs with {:?}", client.goaway());
        }
    }
    assert!(client.received(large) >= 5_000);
    for stream in [0, large] {
        client.send(h2::WINDOW_UPDATE, 0, stream, &0x3fff_ffff_u32.to_be_bytes()).expect("the server reads");
    }
    assert!(client.answer(large) == Answer::Response { status: 200, body: picture });
}

#[test]
fn a_refused_body_may_end_by_itself_and_a_very_long_one_is_told_to_stop() {
    let (_dir, daemon, _) = site();
    let head = h2::block(&[(":method", "POST"), (":scheme", "http"), (":path", "/a.txt"), (":authority", "x")]);
    for (frames, expected) in [(2, None), (100, None), (400, Some(0))] {
        let mut client = Client::open(&daemon.address);
        let stream = client.stream();
        client.send(h2::HEADERS, h2::END_HEADERS, stream, &head).expect("the server reads");
        assert!(matches!(client.answer(stream), Answer::Response { status: 405, .. }));
        // No more than windows let through.
        let mut room = 65_535;
        for frame in 1..=frames {
            let flags = if frame == frames { h2::END_STREAM } else { 0 };
            while room < 16_384 && client.stopped(stream).is_none() && client.receive() {
                room += client.take_granted(stream);
            }
            if client.stopped(stream).is_some() {
                break;
            }
            client.send(h2::DATA, flags, stream, &[7; 16_384]).expect("the server reads");
            room -= 16_384;
        }
        assert_eq!(client.stopped(stream), expected, "{frames} frames");
        assert_eq!(client.get("/a.txt", &[]), small());
        assert_eq!((client.stopped(stream), client.goaway()), (expected, None), "{frames} frames");
    }
}

#[test]
fn floods_of_frames_that_ask_for_nothing_end_their_connection_and_say_why() {
    let (_dir, daemon, _) = site();
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
    for (what, frame) in floods {
        // While an answer waits for its window, so that nothing else ends the connection.
        let mut client = Client::open_with_window(&daemon.address, 0);
        client.request("GET", "/large.png", &[]);
        let frames = frame.repeat(1_000);
        let is_cut = (0..30).any(|_| !client.send_some(&frames));
        let mut code = None;
        while code.is_none() && client.receive() {
            code = client.goaway();
        }
        assert!(code == Some(11) || (is_cut && code.is_none()), "{code:?} after {what}");
    }
}

/// A minute, because that is what a reader has; beside each other one that takes nothing and one that takes little.
#[test]
fn a_reader_that_takes_nothing_is_ended_whatever_it_sends_and_a_slow_one_is_not() {
    let (_dir, daemon, _) = site();
    let begun = Instant::now();
    let mut slow = Client::open_with_window(&daemon.address, 1_000);
    let large = slow.request("GET", "/large.png", &[]);
    let mut stalled = Client::open_with_window(&daemon.address, 0);
    for _ in 0..3 {
        stalled.request("GET", "/large.png", &[]);
    }
    let mut pongs = 0;
    loop {
        pongs += 1;
        let frames = [
            h2::frame(h2::WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1]),
            h2::frame(h2::SETTINGS, 0, 0, &[]),
            h2::frame(2, 0, 9, &[0, 0, 0, 3, 16]),
            h2::frame(h2::PING, 0, 0, &[7; 8]),
        ];
        let is_open = stalled.send_some(&frames.concat());
        while is_open && stalled.pongs() < pongs && stalled.goaway().is_none() && stalled.receive() {}
        if stalled.pongs() < pongs {
            break;
        }
        assert!(begun.elapsed() < Duration::from_secs(90), "it is not ended");
        let before = slow.received(large);
        slow.send(h2::WINDOW_UPDATE, 0, large, &1_000_u32.to_be_bytes()).expect("the server reads");
        slow.send(h2::WINDOW_UPDATE, 0, 0, &1_000_u32.to_be_bytes()).expect("the server reads");
        while slow.received(large) < before + 1_000 {
            assert!(slow.receive(), "a reader that takes 1 KB a second is ended after {:?}", begun.elapsed());
        }
        // A second of the readers' life, not a wait for something to happen.
        std::thread::sleep(Duration::from_secs(1));
    }
    while stalled.goaway().is_none() && stalled.receive() {}
    assert_eq!(stalled.goaway(), Some(11));
    assert!(begun.elapsed() > Duration::from_secs(50), "it has a minute");
    assert_eq!(slow.get("/a.txt", &[]), small());
}

#[test]
fn a_connection_that_is_alive_and_asks_nothing_has_35_seconds() {
    let (_dir, daemon, _) = site();
    let stream = TcpStream::connect(&daemon.address).expect("the server accepts");
    let socket = stream.try_clone().expect("a descriptor can be had");
    let begun = Instant::now();
    let mut client = Client::over(Box::new(stream), socket, 1 << 20);
    // Its PINGs are answered, which would keep one that has asked something for five minutes.
    while client.receive() {}
    assert!(begun.elapsed() < Duration::from_secs(100), "closed after {:?}", begun.elapsed());
}
