//! Attacks of one organization on an origin that it shares with others.

use std::fmt::Write as _;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::attack::{Attack, Listener, Pace, Running, Session, Shared};

const fn free(name: &'static str, title: &'static str, connections: usize, run: fn(Session) -> Running) -> Attack {
    Attack { name, title, on: Listener::Clear, connections, pace: Pace::Free, narrow: false, run }
}

pub(crate) const ATTACKS: &[Attack] = &[
    free("half-batches", "batches of 8 MiB without their last byte", 120, |s| Box::pin(half_batches(s))),
    free("distinct-terms", "batches of distinct terms", 4, |s| Box::pin(distinct_terms(s))),
    free("many-exports", "exports of a large folder", 8, |s| Box::pin(many_exports(s))),
    free("dripping-crawl", "a crawl of pages that drip", 1, |s| Box::pin(dripping_crawl(s))),
    free("hostile-scripts", "a crawl of scripts that are hard to read", 1, |s| Box::pin(hostile_scripts(s))),
    free("queued-previews", "previews whose builds take their time", 1, |s| Box::pin(queued_previews(s))),
];

/// The hostile organization's projects and their domains.
pub(crate) const FOLDER: &str = "evil-folder";
pub(crate) const CRAWLED: &str = "evil-crawled";
pub(crate) const BUILT: &str = "evil-built";

pub(crate) fn domain(project: &str) -> String {
    format!("{project}.example")
}

fn post(session: &Session, target: &str, length: usize) -> String {
    let key = &session.shared.orders.key;
    format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// Sends a request; the head of its answer.
async fn ask(session: &mut Session, target: &str, body: &str) -> io::Result<String> {
    session.shared.units(1).await;
    let request = post(session, target, body.len()) + body;
    session.send(request.as_bytes()).await?;
    Ok(String::from_utf8_lossy(&session.receive(64 * 1024).await?).into_owned())
}

const BATCH_BYTES: usize = 8 * 1024 * 1024;

async fn half_batches(mut session: Session) -> io::Result<()> {
    let head = post(&session, &format!("/v1/analytics/{FOLDER}/searches"), BATCH_BYTES);
    session.send(head.as_bytes()).await?;
    let piece = vec![b' '; 64 * 1024];
    for _ in 1..BATCH_BYTES / piece.len() {
        session.send(&piece).await?;
    }
    session.send(&piece[1..]).await?;
    session.drain().await
}

async fn distinct_terms(mut session: Session) -> io::Result<()> {
    loop {
        let n = session.shared.count();
        let mut events = String::new();
        for event in 0..1000 {
            let comma = if event == 0 { "" } else { "," };
            let term = format!("{n:08}-{event:04}-{}", "t".repeat(480));
            let _ = write!(events, r#"{comma}{{"query":"{term}","time":"2026-10-01T10:00:00Z"}}"#);
        }
        let number = session.number;
        let body = format!(r#"{{"batchId":"{number}-{n}","events":[{events}]}}"#);
        ask(&mut session, &format!("/v1/analytics/{FOLDER}/searches"), &body).await?;
    }
}

const JOBS: &str = "/v1/static-export/jobs";

async fn many_exports(mut session: Session) -> io::Result<()> {
    let body = format!(r#"{{"domain":"{}"}}"#, domain(FOLDER));
    loop {
        ask(&mut session, JOBS, &body).await?;
        // Refused ones are asked for again, too.
        sleep(Duration::from_millis(20)).await;
    }
}

/// Answers every request to the crawled site with these pieces, and a pause before each but the first. The hostile
/// organization sends them, too.
async fn answer(
    mut wire: TcpStream,
    length: usize,
    pieces: Vec<Vec<u8>>,
    pause: Duration,
    shared: Rc<Shared>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    // The request; one that came in pieces is answered as well.
    let _ = wire.read(&mut buffer).await?;
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    wire.write_all(head.as_bytes()).await?;
    shared.count_sent(head.len());
    for (n, piece) in pieces.into_iter().enumerate() {
        if n > 0 {
            sleep(pause).await;
        }
        wire.write_all(&piece).await?;
        shared.count_sent(piece.len());
    }
    Ok(())
}

/// Has the crawled site exported again and again, and is that site.
async fn crawl(mut session: Session, length: usize, pieces: Vec<Vec<u8>>, pause: Duration) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", session.shared.orders.crawled)).await?;
    let shared = Rc::clone(&session.shared);
    let serving = async {
        loop {
            let (wire, _) = listener.accept().await?;
            spawn_local(answer(wire, length, pieces.clone(), pause, Rc::clone(&shared)));
        }
    };
    let body = format!(r#"{{"domain":"{}"}}"#, domain(CRAWLED));
    let asking = async {
        loop {
            ask(&mut session, JOBS, &body).await?;
            sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        ended = serving => ended,
        ended = asking => ended,
    }
}

async fn dripping_crawl(session: Session) -> io::Result<()> {
    crawl(session, 1000, vec![b"<p>".to_vec(); 1000], Duration::from_secs(15)).await
}

async fn hostile_scripts(session: Session) -> io::Result<()> {
    let page = b"/_next/static/".repeat(1024 * 1024 / 14);
    crawl(session, page.len(), vec![page], Duration::ZERO).await
}

async fn queued_previews(mut session: Session) -> io::Result<()> {
    loop {
        let branch = format!("branch-{}", session.shared.count() % 8);
        let body = format!(r#"{{"branch":"{branch}"}}"#);
        ask(&mut session, &format!("/v1/project/preview/{BUILT}"), &body).await?;
        sleep(Duration::from_millis(100)).await;
    }
}
