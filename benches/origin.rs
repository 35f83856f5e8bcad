//! The load that an origin handles: batches of searches that are on disk before they are acknowledged, and a thousand
//! agents that poll. On loopback, against the release build. The first is compared with the `sqlite3` program, which
//! makes the same inserts in one transaction a batch. The second has no peer here: `benches/serve` measures plain HTTP.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own
#![allow(missing_docs)]

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use support::test_origin::{JOBS_PATH, TestOrigin};
use support::{anonymous_memory_bytes, resident_memory_bytes};

const SENDERS: usize = 8;
const BATCH_COUNT: usize = 600;
const EVENTS_PER_BATCH: usize = 500;
const AGENTS: usize = 1000;
const POLLING_TIME: Duration = Duration::from_secs(15);

fn main() {
    let mut origin = TestOrigin::with_folder_project();
    origin.start();
    let (docwharf_rate, sqlite_rate) = (events_per_second(&origin), sqlite_events_per_second());
    println!("| what | events/s | ratio |\n|---|---|---|");
    println!("| sqlite3, one transaction a batch, synchronous=FULL | {sqlite_rate:.0} | 1 |");
    println!(
        "| `POST /v1/analytics/…/searches`, {SENDERS} senders, {EVENTS_PER_BATCH} events a batch | {docwharf_rate:.0} | {:.2} |\n",
        docwharf_rate / sqlite_rate
    );
    measure_query(&origin);
    measure_polling(&origin);
}

/// Prints the time of a query over all stored events.
fn measure_query(origin: &TestOrigin) {
    let mut stream = TcpStream::connect(origin.address()).expect("it accepts");
    let head = format!(
        "GET /v1/analytics/docs/searches?dateFrom=2026-10-01&dateTo=2026-11-01 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n",
        origin.key
    );
    let mut times: Vec<_> = (0..11)
        .map(|_| {
            let started = Instant::now();
            assert_eq!(exchange(&mut stream, &head, "", &mut Vec::new()), 200);
            started.elapsed()
        })
        .collect();
    times.sort();
    println!(
        "a page of searches over {} events: {} ms (median)\n",
        BATCH_COUNT * EVENTS_PER_BATCH,
        times[5].as_millis()
    );
}

/// Sends a request on an open connection, and reads its response. Returns the status.
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

fn search_event(n: usize) -> serde_json::Value {
    let (day, minute) = (1 + n % 28, n % 60);
    json!({ "query": format!("tide {}", n % 5000), "time": format!("2026-10-{day:02}T10:{minute:02}:00Z"), "clickedPage": "/guides/start" })
}

fn events_per_second(origin: &TestOrigin) -> f64 {
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..SENDERS {
            scope.spawn(|| {
                let mut stream = TcpStream::connect(origin.address()).expect("it accepts");
                let mut buffer = Vec::new();
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= BATCH_COUNT {
                        return;
                    }
                    let events: Vec<_> = (0..EVENTS_PER_BATCH).map(|i| search_event(n * EVENTS_PER_BATCH + i)).collect();
                    let body = json!({ "batchId": format!("b{n}"), "events": events }).to_string();
                    let head = format!(
                        "POST /v1/analytics/docs/searches HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nContent-Length: {}\r\n\r\n",
                        origin.key,
                        body.len()
                    );
                    assert_eq!(exchange(&mut stream, &head, &body, &mut buffer), 200, "{}", String::from_utf8_lossy(&buffer));
                }
            });
        }
    });
    (BATCH_COUNT * EVENTS_PER_BATCH) as f64 / started.elapsed().as_secs_f64()
}

/// The rate of `sqlite3` for the same rows.
fn sqlite_events_per_second() -> f64 {
    let dir = support::temporary_folder();
    let mut sql = String::from(
        "PRAGMA journal_mode=wal;PRAGMA synchronous=full;CREATE TABLE s (project TEXT, time INTEGER, batch INTEGER, place INTEGER, \
         query TEXT, clicked TEXT, PRIMARY KEY (project, time, batch, place)) WITHOUT ROWID;\n",
    );
    for n in 0..BATCH_COUNT {
        sql.push_str("BEGIN;\n");
        for i in 0..EVENTS_PER_BATCH {
            let number = n * EVENTS_PER_BATCH + i;
            let time = 1_790_000_000_000u64 + (number as u64 % 28) * 86_400_000;
            let _ =
                writeln!(sql, "INSERT INTO s VALUES('docs',{time},{n},{i},'tide {}','/guides/start');", number % 5000);
        }
        sql.push_str("COMMIT;\n");
    }
    let started = Instant::now();
    let mut child = Command::new("sqlite3")
        .arg(dir.path().join("s.db"))
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .expect("sqlite3 is installed");
    child.stdin.take().expect("it is piped").write_all(sql.as_bytes()).expect("it reads");
    assert!(child.wait().expect("it ends").success());
    (BATCH_COUNT * EVENTS_PER_BATCH) as f64 / started.elapsed().as_secs_f64()
}

/// Resident and anonymous memory of a process, in KiB.
fn memory_kib(pid: u32) -> (u64, u64) {
    (resident_memory_bytes(pid) / 1024, anonymous_memory_bytes(pid) / 1024)
}

/// Agents that poll a job without a pause, each on its own connection.
fn measure_polling(origin: &TestOrigin) {
    let job = origin.export(&json!({}));
    origin.wait_for_job(&job);
    let pid = origin.daemon.as_ref().expect("it runs").pid();
    let before = memory_kib(pid);
    let (requests, slowest) = (AtomicU64::new(0), AtomicU64::new(0));
    let head = format!("GET {JOBS_PATH}/{job} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", origin.key);
    let deadline = Instant::now() + POLLING_TIME;
    let mut peak = before;
    std::thread::scope(|scope| {
        for _ in 0..AGENTS {
            std::thread::Builder::new()
                .stack_size(64 * 1024)
                .spawn_scoped(scope, || {
                    let mut stream = TcpStream::connect(origin.address()).expect("it accepts");
                    let mut buffer = Vec::new();
                    while Instant::now() < deadline {
                        let started = Instant::now();
                        assert_eq!(exchange(&mut stream, &head, "", &mut buffer), 200);
                        slowest.fetch_max(started.elapsed().as_millis() as u64, Ordering::Relaxed);
                        requests.fetch_add(1, Ordering::Relaxed);
                    }
                })
                .expect("a thread");
        }
        while Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(200));
            let now = memory_kib(pid);
            peak = (peak.0.max(now.0), peak.1.max(now.1));
        }
    });
    let rate = requests.into_inner() as f64 / POLLING_TIME.as_secs_f64();
    println!(
        "{AGENTS} agents polling without a pause: {rate:.0} answers/s, the slowest after {} ms",
        slowest.into_inner()
    );
    println!(
        "memory: {} KiB resident ({} anonymous) before, at most {} ({}) while they poll",
        before.0, before.1, peak.0, peak.1
    );
}
