//! Attacks over HTTP/1.1.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::time::sleep;

use crate::attack::{Attack, AttackConnection, Listener};
use crate::site::{LARGE, SMALL, big_page, page, word};

const SECOND: Duration = Duration::from_secs(1);

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::unlimited(Listener::Clear, "slow-heads", "slow heads, a field a second", 1000, |s| Box::pin(slow_heads(s))),
    Attack::unlimited(
        Listener::Clear,
        "slow-heads-4000",
        "slow heads, a field a second, 4,000 connections",
        4000,
        |s| Box::pin(slow_heads(s)),
    ),
    Attack::unlimited(Listener::Clear, "slow-bodies", "slow bodies, a byte a second", 1000, |s| {
        Box::pin(slow_bodies(s))
    }),
    Attack::unlimited(Listener::Clear, "slow-readers", "slow readers: half read 1 B/s, half read nothing", 500, |s| {
        Box::pin(slow_readers(s))
    })
    .with_small_buffer(),
    Attack::unlimited(Listener::Clear, "idle", "connections that send nothing", 1000, |s| Box::pin(idle(s))),
    Attack::unlimited(Listener::Clear, "idle-4000", "4,000 connections that send nothing", 4000, |s| Box::pin(idle(s))),
    Attack::unlimited(Listener::Clear, "half-preface", "a request, then half an HTTP/2 preface", 1000, |s| {
        Box::pin(half_preface(s))
    }),
    Attack::unlimited(Listener::Clear, "pipelined-heads", "pipelined HEADs, one connection", 1, |s| {
        Box::pin(pipelined_heads(s))
    }),
    Attack::unlimited(
        Listener::Clear,
        "pipelined-pages",
        "pipelined large pages, `bytes=0-0`, one connection",
        1,
        |s| Box::pin(pipelined_pages(s)),
    ),
    Attack::unlimited(Listener::Clear, "searches", "searches for 17 words, one of them misspelt", 64, |s| {
        Box::pin(searches(s))
    }),
    Attack::half_core(Listener::Clear, "many-ranges", "requests for 1,000 ranges", 64, |s| Box::pin(many_ranges(s))),
    Attack::half_core(Listener::Clear, "overlapping-ranges", "requests for 1,000 overlapping ranges", 64, |s| {
        Box::pin(overlapping_ranges(s))
    }),
    Attack::unlimited(Listener::Clear, "huge-heads", "heads without end", 100, |s| Box::pin(huge_heads(s))),
    Attack::half_core(Listener::Clear, "aborts", "requests for large pages, aborted", 100, |s| Box::pin(aborts(s))),
    Attack::unlimited(Listener::Clear, "stalled-pages", "identity pages, readers that stall", 400, |s| {
        Box::pin(stalled(s))
    })
    .with_small_buffer(),
];

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

/// Searches that no cache has an answer to: words of most pages, one that is in none and has to be corrected, and one
/// that may be incomplete, in nearly as many characters as a question may have. Other servers answer them with 404.
async fn searches(connection: AttackConnection) -> io::Result<()> {
    const WORDS: usize = 16;
    let mut n = connection.number;
    connection
        .flood(|buffer| {
            n += 64;
            let words: Vec<String> = (0..WORDS).map(|k| word((n * WORDS + k) as u64)).collect();
            let target = format!("/_docwharf/search?q={}q+{}&limit=50", word(n as u64), words.join("+"));
            buffer.extend_from_slice(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes());
            1
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
