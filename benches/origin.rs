//! What an origin carries: batches of searches that are on disk when they are acknowledged, and a thousand agents that poll.
//! On loopback, against the release build. The peer of the first is `SQLite` itself, through its own program, doing the same
//! inserts one transaction a batch; of the second a bare hyper would be, which `benches/serve` measures.

#![allow(missing_docs)]

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use support::hub::{Hub, JOBS};

const SENDERS: usize = 8;
const BATCHES: usize = 600;
const EVENTS: usize = 500;
const AGENTS: usize = 1000;
const POLLING: Duration = Duration::from_secs(15);

fn main() {
    let mut hub = Hub::of_folder();
    hub.start();
    let (ours, theirs) = (ingest(&hub), sqlite());
    println!("| what | events/s | ratio |\n|---|---|---|");
    println!("| sqlite3, one transaction a batch, synchronous=FULL | {theirs:.0} | 1 |");
    println!(
        "| `POST /v1/analytics/…/searches`, {SENDERS} senders, {EVENTS} events a batch | {ours:.0} | {:.2} |\n",
        ours / theirs
    );
    ask(&hub);
    poll(&hub);
}

/// How long a page over all that was taken in takes.
fn ask(hub: &Hub) {
    let mut stream = TcpStream::connect(hub.address()).expect("it accepts");
    let head = format!(
        "GET /v1/analytics/docs/searches?dateFrom=2026-10-01&dateTo=2026-11-01 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        hub.key
    );
    let mut times: Vec<_> = (0..11)
        .map(|_| {
            let began = Instant::now();
            assert_eq!(exchange(&mut stream, &head, "", &mut Vec::new()), 200);
            began.elapsed()
        })
        .collect();
    times.sort();
    println!("a page of searches over {} events: {} ms (median)\n", BATCHES * EVENTS, times[5].as_millis());
}

/// Sends a request on a connection that is kept, and reads its answer.
fn exchange(stream: &mut TcpStream, head: &str, body: &str, buffer: &mut Vec<u8>) -> u16 {
    stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).expect("it is sent");
    buffer.clear();
    let mut chunk = [0; 16 * 1024];
    loop {
        let n = stream.read(&mut chunk).expect("it answers");
        assert!(n > 0, "the connection ended");
        buffer.extend_from_slice(&chunk[..n]);
        let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        let text = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
        let length =
            text.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.trim().parse().ok());
        if buffer.len() >= end + 4 + length.unwrap_or(0usize) {
            return text.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        }
    }
}

fn event(n: usize) -> serde_json::Value {
    let (day, minute) = (1 + n % 28, n % 60);
    json!({ "query": format!("tide {}", n % 5000), "time": format!("2026-10-{day:02}T10:{minute:02}:00Z"), "clickedPage": "/guides/start" })
}

fn ingest(hub: &Hub) -> f64 {
    let next = AtomicUsize::new(0);
    let began = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(hub.address()).expect("it accepts");
                let mut buffer = Vec::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= BATCHES {
                        return;
                    }
                    let events: Vec<_> = (0..EVENTS).map(|i| event(n * EVENTS + i)).collect();
                    let body = json!({ "batchId": format!("b{n}"), "events": events }).to_string();
                    let head = format!(
                        "POST /v1/analytics/docs/searches HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
                        hub.key,
                        body.len()
                    );
                    assert_eq!(exchange(&mut stream, &head, &body, &mut buffer), 200, "{}", String::from_utf8_lossy(&buffer));
                }
            });
        }
    });
    (BATCHES * EVENTS) as f64 / began.elapsed().as_secs_f64()
}

/// The same rows by sqlite3 itself.
fn sqlite() -> f64 {
    let dir = support::folder();
    let mut sql = String::from(
        "PRAGMA journal_mode=wal;PRAGMA synchronous=full;CREATE TABLE s (project TEXT, time INTEGER, batch INTEGER, place INTEGER, \
         query TEXT, clicked TEXT, PRIMARY KEY (project, time, batch, place)) WITHOUT ROWID;\n",
    );
    for n in 0..BATCHES {
        sql.push_str("BEGIN;\n");
        for i in 0..EVENTS {
            let at = n * EVENTS + i;
            let time = 1_790_000_000_000u64 + (at as u64 % 28) * 86_400_000;
            let _ = writeln!(sql, "INSERT INTO s VALUES('docs',{time},{n},{i},'tide {}','/guides/start');", at % 5000);
        }
        sql.push_str("COMMIT;\n");
    }
    let began = Instant::now();
    let mut child = Command::new("sqlite3")
        .arg(dir.path().join("s.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("sqlite3 is installed");
    child.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success());
    (BATCHES * EVENTS) as f64 / began.elapsed().as_secs_f64()
}

/// Memory of a process in KiB: resident, anonymous.
fn memory(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let field = |name: &str| {
        status
            .lines()
            .find(|line| line.starts_with(name))
            .and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
            .unwrap_or(0)
    };
    (field("VmRSS:"), field("RssAnon:"))
}

/// Agents that ask for a job as fast as they are answered, each on a connection of its own.
fn poll(hub: &Hub) {
    let job = hub.export(&json!({}));
    hub.ended(&job);
    let pid = hub.daemon.as_ref().expect("it runs").pid();
    let before = memory(pid);
    let (asked, slowest) = (AtomicU64::new(0), AtomicU64::new(0));
    let head = format!("GET {JOBS}/{job} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", hub.key);
    let until = Instant::now() + POLLING;
    let mut during = before;
    std::thread::scope(|scope| {
        for _ in 0..AGENTS {
            std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn_scoped(scope, || {
                    let mut stream = TcpStream::connect(hub.address()).expect("it accepts");
                    let mut buffer = Vec::new();
                    while Instant::now() < until {
                        let began = Instant::now();
                        assert_eq!(exchange(&mut stream, &head, "", &mut buffer), 200);
                        slowest.fetch_max(began.elapsed().as_millis() as u64, Ordering::Relaxed);
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                })
                .expect("a thread");
        }
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(200));
            let now = memory(pid);
            during = (during.0.max(now.0), during.1.max(now.1));
        }
    });
    let rate = asked.into_inner() as f64 / POLLING.as_secs_f64();
    println!(
        "{AGENTS} agents polling without a pause: {rate:.0} answers/s, the slowest after {} ms",
        slowest.into_inner()
    );
    println!(
        "memory: {} KiB resident ({} anonymous) before, at most {} ({}) while they poll",
        before.0, before.1, during.0, during.1
    );
}
