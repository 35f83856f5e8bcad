//! Attacks of one organization on an origin that it shares with others.

use std::fmt::Write as _;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::spawn_local;
use tokio::time::sleep;

use crate::attack::{Attack, AttackConnection, Listener, Shared};

pub(crate) const ATTACKS: &[Attack] = &[
    Attack::unlimited(Listener::Clear, "half-batches", "batches of 8 MiB without their last byte", 120, |s| {
        Box::pin(half_batches(s))
    }),
    Attack::unlimited(Listener::Clear, "distinct-terms", "batches of distinct terms", 4, |s| {
        Box::pin(distinct_terms(s))
    }),
    Attack::unlimited(Listener::Clear, "many-exports", "exports of a large folder", 8, |s| Box::pin(many_exports(s))),
    Attack::unlimited(Listener::Clear, "dripping-crawl", "a crawl of pages that drip", 1, |s| {
        Box::pin(dripping_crawl(s))
    }),
    Attack::unlimited(Listener::Clear, "hostile-scripts", "a crawl of scripts that are hard to read", 1, |s| {
        Box::pin(hostile_scripts(s))
    }),
    Attack::unlimited(Listener::Clear, "queued-previews", "previews whose builds take their time", 1, |s| {
        Box::pin(queued_previews(s))
    }),
];

/// The hostile organization's projects and their domains.
pub(crate) const FOLDER: &str = "evil-folder";
pub(crate) const CRAWLED: &str = "evil-crawled";
pub(crate) const BUILT: &str = "evil-built";

pub(crate) fn domain(project: &str) -> String {
    format!("{project}.example")
}

fn post(connection: &AttackConnection, target: &str, length: usize) -> String {
    let key = &connection.shared.parameters.key;
    format!(
        "POST {target} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n"
    )
}

/// Sends a request. Returns the head of its response.
async fn send_request(connection: &mut AttackConnection, target: &str, body: &str) -> io::Result<String> {
    connection.shared.start_units(1).await;
    let request = post(connection, target, body.len()) + body;
    connection.send(request.as_bytes()).await?;
    Ok(String::from_utf8_lossy(&connection.receive(64 * 1024).await?).into_owned())
}

const BATCH_BYTES: usize = 8 * 1024 * 1024;

async fn half_batches(mut connection: AttackConnection) -> io::Result<()> {
    let head = post(&connection, &format!("/v1/analytics/{FOLDER}/searches"), BATCH_BYTES);
    connection.send(head.as_bytes()).await?;
    let piece = vec![b' '; 64 * 1024];
    for _ in 1..BATCH_BYTES / piece.len() {
        connection.send(&piece).await?;
    }
    connection.send(&piece[1..]).await?;
    connection.drain().await
}

async fn distinct_terms(mut connection: AttackConnection) -> io::Result<()> {
    loop {
        let n = connection.shared.unit_count();
        let mut events = String::new();
        for event in 0..1000 {
            let comma = if event == 0 { "" } else { "," };
            let term = format!("{n:08}-{event:04}-{}", "t".repeat(480));
            let _ = write!(events, r#"{comma}{{"query":"{term}","time":"2026-10-01T10:00:00Z"}}"#);
        }
        let number = connection.number;
        let body = format!(r#"{{"batchId":"{number}-{n}","events":[{events}]}}"#);
        send_request(&mut connection, &format!("/v1/analytics/{FOLDER}/searches"), &body).await?;
    }
}

const JOBS: &str = "/v1/static-export/jobs";

async fn many_exports(mut connection: AttackConnection) -> io::Result<()> {
    let body = format!(r#"{{"domain":"{}"}}"#, domain(FOLDER));
    loop {
        send_request(&mut connection, JOBS, &body).await?;
        // A refused request is repeated as well.
        sleep(Duration::from_millis(20)).await;
    }
}

/// Serves one request for the crawled site: sends the pieces with a pause before each but the first. The bytes count as
/// sent by the attacker.
async fn serve_page(
    mut stream: TcpStream,
    length: usize,
    pieces: Vec<Vec<u8>>,
    pause: Duration,
    shared: Rc<Shared>,
) -> io::Result<()> {
    let mut buffer = vec![0; 16 * 1024];
    // Reads the first part of the request. The rest, if any, is ignored.
    let _ = stream.read(&mut buffer).await?;
    let head =
        format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    shared.count_sent(head.len());
    for (n, piece) in pieces.into_iter().enumerate() {
        if n > 0 {
            sleep(pause).await;
        }
        stream.write_all(&piece).await?;
        shared.count_sent(piece.len());
    }
    Ok(())
}

/// Requests exports of the crawled site again and again, and serves that site.
async fn crawl(
    mut connection: AttackConnection,
    length: usize,
    pieces: Vec<Vec<u8>>,
    pause: Duration,
) -> io::Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", connection.shared.parameters.crawled)).await?;
    let shared = Rc::clone(&connection.shared);
    let serve_loop = async {
        loop {
            let (stream, _) = listener.accept().await?;
            spawn_local(serve_page(stream, length, pieces.clone(), pause, Rc::clone(&shared)));
        }
    };
    let body = format!(r#"{{"domain":"{}"}}"#, domain(CRAWLED));
    let request_loop = async {
        loop {
            send_request(&mut connection, JOBS, &body).await?;
            sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::select! {
        ended = serve_loop => ended,
        ended = request_loop => ended,
    }
}

async fn dripping_crawl(connection: AttackConnection) -> io::Result<()> {
    crawl(connection, 1000, vec![b"<p>".to_vec(); 1000], Duration::from_secs(15)).await
}

async fn hostile_scripts(connection: AttackConnection) -> io::Result<()> {
    let page = b"/_next/static/".repeat(1024 * 1024 / 14);
    crawl(connection, page.len(), vec![page], Duration::ZERO).await
}

async fn queued_previews(mut connection: AttackConnection) -> io::Result<()> {
    loop {
        let branch = format!("branch-{}", connection.shared.unit_count() % 8);
        let body = format!(r#"{{"branch":"{branch}"}}"#);
        send_request(&mut connection, &format!("/v1/project/preview/{BUILT}"), &body).await?;
        sleep(Duration::from_millis(100)).await;
    }
}
