//! A bystander: a fresh connection and one request every 20 ms, whatever became of those before. Beside it, `/livez`
//! every 100 ms.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};
use tokio_rustls::TlsConnector;

use crate::common::stats::percentile;
use crate::servers::NAME;

const EVERY: Duration = Duration::from_millis(20);
/// Beyond it a request has failed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Each so many-th time `/livez` is asked for, too.
const LIVEZ_EVERY: u64 = 5;

/// What is asked for.
#[derive(Clone)]
pub(crate) struct Question {
    pub address: SocketAddr,
    pub tls: Option<Arc<ClientConfig>>,
    pub path: String,
    /// Further lines of the head, each with its end.
    pub fields: String,
    /// The body that must come; any will do if there is none.
    pub body: Option<Vec<u8>>,
}

/// An answer, or what was wrong.
#[derive(Debug)]
struct Asked {
    begun: Instant,
    took: Duration,
    is_livez: bool,
    wrong: Option<String>,
}

/// Asks on a thread of its own until it is stopped.
pub(crate) struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Asked>>,
}

/// All that a bystander has seen.
#[derive(Debug)]
pub(crate) struct Seen(Vec<Asked>);

async fn exchange(mut wire: impl AsyncRead + AsyncWrite + Unpin, question: &Question) -> Result<(), String> {
    let head =
        format!("GET {} HTTP/1.1\r\nHost: {NAME}\r\nConnection: close\r\n{}\r\n", question.path, question.fields);
    wire.write_all(head.as_bytes()).await.map_err(|error| format!("cannot send: {error}"))?;
    wire.flush().await.map_err(|error| format!("cannot send: {error}"))?;
    let (mut answer, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        let read = wire.read(&mut buffer).await;
        answer.extend_from_slice(&buffer[..*read.as_ref().unwrap_or(&0)]);
        let is_whole = match &question.body {
            Some(body) => answer.len() > body.len() && answer.ends_with(body),
            None => matches!(read, Ok(0)),
        };
        if is_whole {
            let status = answer.get(9..12).unwrap_or_default();
            let status = String::from_utf8_lossy(status);
            return if status == "200" { Ok(()) } else { Err(format!("status {status}")) };
        }
        match read {
            Ok(0) => return Err(format!("closed after {} bytes", answer.len())),
            Err(error) => return Err(format!("after {} bytes: {error}", answer.len())),
            Ok(_) => {}
        }
    }
}

async fn ask(question: &Question) -> Result<(), String> {
    let wire = TcpStream::connect(question.address).await.map_err(|error| format!("cannot connect: {error}"))?;
    let Some(config) = &question.tls else { return exchange(wire, question).await };
    let name = ServerName::try_from(NAME).map_err(|error| error.to_string())?;
    let wire = TlsConnector::from(Arc::clone(config)).connect(name, wire).await;
    exchange(wire.map_err(|error| format!("no handshake: {error}"))?, question).await
}

fn asked(question: &Arc<Question>, is_livez: bool) -> impl Future<Output = Asked> + use<> {
    let question = Arc::clone(question);
    async move {
        let begun = Instant::now();
        let answer = timeout(PATIENCE, ask(&question)).await;
        let wrong = answer.unwrap_or_else(|_| Err(format!("no answer within {PATIENCE:?}"))).err();
        Asked { begun, took: begun.elapsed(), is_livez, wrong }
    }
}

async fn watch(question: Question, admin: Option<SocketAddr>, stop: Arc<AtomicBool>) -> Vec<Asked> {
    let livez = admin.map(|address| {
        let (path, fields) = ("/livez".to_owned(), String::new());
        Arc::new(Question { address, tls: None, path, fields, body: None })
    });
    let question = Arc::new(question);
    let (mut all, mut running) = (Vec::new(), JoinSet::new());
    let mut ticks = interval(EVERY);
    for n in 0_u64.. {
        ticks.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        running.spawn(asked(&question, false));
        if let Some(livez) = livez.as_ref().filter(|_| n.is_multiple_of(LIVEZ_EVERY)) {
            running.spawn(asked(livez, true));
        }
        while let Some(Ok(one)) = running.try_join_next() {
            all.push(one);
        }
    }
    all.extend(running.join_all().await);
    all
}

impl Bystander {
    pub(crate) fn start(question: Question, admin: Option<SocketAddr>) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || runtime.block_on(watch(question, admin, stopped)));
        Ok(Self { stop, thread })
    }

    pub(crate) fn stop(self) -> Result<Seen, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map(Seen).map_err(|_| "the bystander has panicked".to_owned())
    }
}

impl Seen {
    /// What it has seen of requests that began between two moments.
    pub(crate) fn between(&self, begin: Instant, end: Instant) -> Value {
        let within = |one: &&Asked| one.begun >= begin && one.begun < end;
        let (livez, pages): (Vec<_>, Vec<_>) = self.0.iter().filter(within).partition(|one| one.is_livez);
        let times = |all: &[&Asked]| all.iter().map(|one| one.took.as_secs_f64() * 1e3).collect::<Vec<_>>();
        let failed = |all: &[&Asked]| all.iter().filter(|one| one.wrong.is_some()).count();
        let pages_ms = times(&pages);
        json!({
            "asked": pages.len(),
            "failed": failed(&pages),
            "first_failure": pages.iter().find_map(|one| one.wrong.as_deref()),
            "p50_ms": percentile(&pages_ms, 0.5),
            "p99_ms": percentile(&pages_ms, 0.99),
            "max_ms": percentile(&pages_ms, 1.0),
            "livez_asked": livez.len(),
            "livez_failed": failed(&livez),
            "livez_first_failure": livez.iter().find_map(|one| one.wrong.as_deref()),
            "livez_p99_ms": percentile(&times(&livez), 0.99),
        })
    }
}
