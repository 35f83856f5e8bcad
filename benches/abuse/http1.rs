//! Attacks over HTTP/1.1.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::time::sleep;

use crate::attack::{Attack, Listener, Pace, Running, Session};
use crate::site::{LARGE, SMALL, big_page, page};

const SECOND: Duration = Duration::from_secs(1);

/// An attack in clear with connections that send what they like.
const fn free(name: &'static str, title: &'static str, connections: usize, run: fn(Session) -> Running) -> Attack {
    Attack { name, title, on: Listener::Clear, connections, pace: Pace::Free, narrow: false, run }
}

pub(crate) const ATTACKS: &[Attack] = &[
    free("slow-heads", "slow heads, a field a second", 1000, |s| Box::pin(slow_heads(s))),
    free("slow-heads-4000", "slow heads, a field a second, 4,000 connections", 4000, |s| Box::pin(slow_heads(s))),
    free("slow-bodies", "slow bodies, a byte a second", 1000, |s| Box::pin(slow_bodies(s))),
    Attack { narrow: true, ..free("slow-readers", "slow readers: 1 B/s, none", 500, |s| Box::pin(slow_readers(s))) },
    free("idle", "connections that say nothing", 1000, |s| Box::pin(idle(s))),
    free("idle-4000", "4,000 connections that say nothing", 4000, |s| Box::pin(idle(s))),
    free("half-preface", "a request, then half an HTTP/2 preface", 1000, |s| Box::pin(half_preface(s))),
    free("pipelined-heads", "pipelined HEADs, one connection", 1, |s| Box::pin(pipelined_heads(s))),
    free("pipelined-pages", "pipelined large pages, `bytes=0-0`, one connection", 1, |s| Box::pin(pipelined_pages(s))),
    half("many-ranges", "requests for 1,000 ranges", 64, |s| Box::pin(many_ranges(s))),
    half("overlapping-ranges", "requests for 1,000 overlapping ranges", 64, |s| Box::pin(overlapping_ranges(s))),
    free("huge-heads", "heads without end", 100, |s| Box::pin(huge_heads(s))),
    half("aborts", "requests for large pages, aborted", 100, |s| Box::pin(aborts(s))),
    Attack {
        narrow: true,
        ..free("stalled-pages", "identity pages, readers that stall", 400, |s| Box::pin(stalled(s)))
    },
];

const fn half(name: &'static str, title: &'static str, connections: usize, run: fn(Session) -> Running) -> Attack {
    Attack { pace: Pace::Half, ..free(name, title, connections, run) }
}

async fn slow_heads(mut session: Session) -> io::Result<()> {
    session.send(b"GET / HTTP/1.1\r\nHost: x\r\n").await?;
    session.drip(b"X-Field: 1\r\n", SECOND).await
}

async fn slow_bodies(mut session: Session) -> io::Result<()> {
    session.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n").await?;
    session.drip(b"x", SECOND).await
}

async fn slow_readers(mut session: Session) -> io::Result<()> {
    session.send(format!("GET {LARGE} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await?;
    if session.number.is_multiple_of(2) {
        return session.hold().await;
    }
    loop {
        session.receive(1).await?;
        sleep(SECOND).await;
    }
}

async fn idle(mut session: Session) -> io::Result<()> {
    session.drain().await
}

async fn half_preface(mut session: Session) -> io::Result<()> {
    session.send(format!("GET {SMALL} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await?;
    session.receive(64 * 1024).await?;
    session.send(b"PRI * HTTP/2.0\r\n").await?;
    session.drain().await
}

async fn pipelined_heads(session: Session) -> io::Result<()> {
    let request = format!("HEAD {SMALL} HTTP/1.1\r\nHost: x\r\n\r\n");
    let batch = request.repeat(256);
    session
        .flood(|buffer| {
            buffer.extend_from_slice(batch.as_bytes());
            256
        })
        .await
}

/// A request for one byte of a large page, another one each time.
pub(crate) fn one_byte_of_page(n: usize) -> String {
    format!("GET {} HTTP/1.1\r\nHost: x\r\nRange: bytes=0-0\r\n\r\n", big_page(n))
}

async fn pipelined_pages(session: Session) -> io::Result<()> {
    let mut n = 0;
    session
        .flood(|buffer| {
            for _ in 0..64 {
                buffer.extend_from_slice(one_byte_of_page(n).as_bytes());
                n += 1;
            }
            64
        })
        .await
}

async fn ranges(session: Session, ranges: &str) -> io::Result<()> {
    let mut n = session.number;
    session
        .flood(|buffer| {
            n += 1;
            let head = format!("GET {} HTTP/1.1\r\nHost: x\r\nRange: bytes={ranges}\r\n\r\n", page(n));
            buffer.extend_from_slice(head.as_bytes());
            1
        })
        .await
}

async fn many_ranges(session: Session) -> io::Result<()> {
    let list: Vec<String> = (0..1000).map(|n| format!("{0}-{0}", n * 2)).collect();
    ranges(session, &list.join(",")).await
}

async fn overlapping_ranges(session: Session) -> io::Result<()> {
    let list: Vec<String> = (0..1000).map(|n| format!("{n}-")).collect();
    ranges(session, &list.join(",")).await
}

async fn huge_heads(mut session: Session) -> io::Result<()> {
    session.send(b"GET / HTTP/1.1\r\nHost: x\r\n").await?;
    let mut fields = String::new();
    for n in 0..100 {
        let _ = write!(fields, "X-Field-{n}: {}\r\n", "y".repeat(60));
    }
    session
        .flood(|buffer| {
            buffer.extend_from_slice(fields.as_bytes());
            1
        })
        .await
}

async fn aborts(mut session: Session) -> io::Result<()> {
    session.shared.units(1).await;
    let n = session.shared.count();
    session.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", big_page(n)).as_bytes()).await?;
    session.receive(1).await?;
    // Closing sends a reset.
    session.wire.set_zero_linger()
}

async fn stalled(mut session: Session) -> io::Result<()> {
    let n = session.number;
    session.send(format!("GET {} HTTP/1.1\r\nHost: x\r\n\r\n", big_page(n)).as_bytes()).await?;
    session.hold().await
}
