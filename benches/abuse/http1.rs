//! Attacks over HTTP/1.1.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::time::sleep;

use crate::attack::{Attack, AttackConnection, AttackFuture, Listener, Pace};
use crate::site::{LARGE, SMALL, big_page, page};

const SECOND: Duration = Duration::from_secs(1);

/// An attack in clear, without a limit of its rate.
const fn unlimited(
    name: &'static str,
    title: &'static str,
    connections: usize,
    run: fn(AttackConnection) -> AttackFuture,
) -> Attack {
    Attack { name, title, listener: Listener::Clear, connections, pace: Pace::Unlimited, has_small_buffer: false, run }
}

pub(crate) const ATTACKS: &[Attack] = &[
    unlimited("slow-heads", "slow heads, a field a second", 1000, |s| Box::pin(slow_heads(s))),
    unlimited("slow-heads-4000", "slow heads, a field a second, 4,000 connections", 4000, |s| Box::pin(slow_heads(s))),
    unlimited("slow-bodies", "slow bodies, a byte a second", 1000, |s| Box::pin(slow_bodies(s))),
    Attack {
        has_small_buffer: true,
        ..unlimited("slow-readers", "slow readers: half read 1 B/s, half read nothing", 500, |s| {
            Box::pin(slow_readers(s))
        })
    },
    unlimited("idle", "connections that send nothing", 1000, |s| Box::pin(idle(s))),
    unlimited("idle-4000", "4,000 connections that send nothing", 4000, |s| Box::pin(idle(s))),
    unlimited("half-preface", "a request, then half an HTTP/2 preface", 1000, |s| Box::pin(half_preface(s))),
    unlimited("pipelined-heads", "pipelined HEADs, one connection", 1, |s| Box::pin(pipelined_heads(s))),
    unlimited("pipelined-pages", "pipelined large pages, `bytes=0-0`, one connection", 1, |s| {
        Box::pin(pipelined_pages(s))
    }),
    half_core("many-ranges", "requests for 1,000 ranges", 64, |s| Box::pin(many_ranges(s))),
    half_core("overlapping-ranges", "requests for 1,000 overlapping ranges", 64, |s| Box::pin(overlapping_ranges(s))),
    unlimited("huge-heads", "heads without end", 100, |s| Box::pin(huge_heads(s))),
    half_core("aborts", "requests for large pages, aborted", 100, |s| Box::pin(aborts(s))),
    Attack {
        has_small_buffer: true,
        ..unlimited("stalled-pages", "identity pages, readers that stall", 400, |s| Box::pin(stalled(s)))
    },
];

const fn half_core(
    name: &'static str,
    title: &'static str,
    connections: usize,
    run: fn(AttackConnection) -> AttackFuture,
) -> Attack {
    Attack { pace: Pace::HalfCore, ..unlimited(name, title, connections, run) }
}

async fn slow_heads(mut connection: AttackConnection) -> io::Result<()> {
    connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n").await?;
    connection.drip(b"X-Field: 1\r\n", SECOND).await
}

async fn slow_bodies(mut connection: AttackConnection) -> io::Result<()> {
    connection.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").await?;
    connection.drip(b"x", SECOND).await
}

async fn slow_readers(mut connection: AttackConnection) -> io::Result<()> {
    connection.send(format!("GET {LARGE} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await?;
    if connection.number.is_multiple_of(2) {
        return connection.hold_open().await;
    }
    loop {
        connection.receive(1).await?;
        sleep(SECOND).await;
    }
}

async fn idle(mut connection: AttackConnection) -> io::Result<()> {
    connection.drain().await
}

async fn half_preface(mut connection: AttackConnection) -> io::Result<()> {
    connection.send(format!("GET {SMALL} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await?;
    connection.receive(64 * 1024).await?;
    connection.send(b"PRI * HTTP/2.0\r\n").await?;
    connection.drain().await
}

async fn pipelined_heads(connection: AttackConnection) -> io::Result<()> {
    let request = format!("HEAD {SMALL} HTTP/1.1\r\nHost: x\r\n\r\n");
    let batch = request.repeat(256);
    connection
        .flood(|buffer| {
            buffer.extend_from_slice(batch.as_bytes());
            256
        })
        .await
}

/// A request for one byte of a large page. Each `n` has another page.
pub(crate) fn one_byte_of_page(n: usize) -> String {
    format!("GET {} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-0\r\n\r\n", big_page(n))
}

async fn pipelined_pages(connection: AttackConnection) -> io::Result<()> {
    let mut n = 0;
    connection
        .flood(|buffer| {
            for _ in 0..64 {
                buffer.extend_from_slice(one_byte_of_page(n).as_bytes());
                n += 1;
            }
            64
        })
        .await
}

async fn ranges(connection: AttackConnection, ranges: &str) -> io::Result<()> {
    let mut n = connection.number;
    connection
        .flood(|buffer| {
            n += 1;
            let head = format!("GET {} HTTP/1.1\r\nHost: x\r\nRange: bytes={ranges}\r\n\r\n", page(n));
            buffer.extend_from_slice(head.as_bytes());
            1
        })
        .await
}

async fn many_ranges(connection: AttackConnection) -> io::Result<()> {
    let list: Vec<String> = (0..1000).map(|n| format!("{0}-{0}", n * 2)).collect();
    ranges(connection, &list.join(",")).await
}

async fn overlapping_ranges(connection: AttackConnection) -> io::Result<()> {
    let list: Vec<String> = (0..1000).map(|n| format!("{n}-")).collect();
    ranges(connection, &list.join(",")).await
}

async fn huge_heads(mut connection: AttackConnection) -> io::Result<()> {
    connection.send(b"GET / HTTP/1.1\r\nHost: x\r\n").await?;
    let mut fields = String::new();
    for n in 0..100 {
        let _ = write!(fields, "X-Field-{n}: {}\r\n", "y".repeat(60));
    }
    connection
        .flood(|buffer| {
            buffer.extend_from_slice(fields.as_bytes());
            1
        })
        .await
}

async fn aborts(mut connection: AttackConnection) -> io::Result<()> {
    connection.shared.start_units(1).await;
    let n = connection.shared.unit_count();
    connection.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", big_page(n)).as_bytes()).await?;
    connection.receive(1).await?;
    // Closing sends a reset.
    connection.stream.set_zero_linger()
}

async fn stalled(mut connection: AttackConnection) -> io::Result<()> {
    let n = connection.number;
    connection.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", big_page(n)).as_bytes()).await?;
    connection.hold_open().await
}
