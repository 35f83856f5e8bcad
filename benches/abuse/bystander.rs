//! A bystander: it opens a new connection and sends one request every 20 ms, whether earlier ones are answered or not.
//! Every 100 ms it requests `/livez`, too.

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
use crate::servers::SERVER_NAME;

const REQUEST_INTERVAL: Duration = Duration::from_millis(20);
/// A request without a response in this time has failed.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// One request in so many is followed by a request for `/livez`.
const REQUESTS_PER_LIVEZ: u64 = 5;

/// The request that a bystander sends.
#[derive(Clone)]
pub(crate) struct BystanderRequest {
    pub address: SocketAddr,
    pub tls: Option<Arc<ClientConfig>>,
    pub path: String,
    /// Further field lines, each with its line end.
    pub fields: String,
    /// The expected body. `None` accepts any body.
    pub body: Option<Vec<u8>>,
}

/// The outcome of one request.
#[derive(Debug)]
struct RequestOutcome {
    started: Instant,
    duration: Duration,
    is_livez: bool,
    error: Option<String>,
}

/// Sends requests on a separate thread until it is stopped.
pub(crate) struct Bystander {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<RequestOutcome>>,
}

/// The outcomes of all requests of a bystander.
#[derive(Debug)]
pub(crate) struct BystanderReport(Vec<RequestOutcome>);

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &BystanderRequest) -> Result<(), String> {
    let head =
        format!("GET {} HTTP/1.1\r\nHost: {SERVER_NAME}\r\nConnection: close\r\n{}\r\n", request.path, request.fields);
    stream.write_all(head.as_bytes()).await.map_err(|error| format!("cannot send: {error}"))?;
    stream.flush().await.map_err(|error| format!("cannot send: {error}"))?;
    let (mut response, mut buffer) = (Vec::new(), vec![0; 16 * 1024]);
    loop {
        let read = stream.read(&mut buffer).await;
        response.extend_from_slice(&buffer[..*read.as_ref().unwrap_or(&0)]);
        let is_complete = match &request.body {
            Some(body) => response.len() > body.len() && response.ends_with(body),
            None => matches!(read, Ok(0)),
        };
        if is_complete {
            let status = response.get(9..12).unwrap_or_default();
            let status = String::from_utf8_lossy(status);
            return if status == "200" { Ok(()) } else { Err(format!("status {status}")) };
        }
        match read {
            Ok(0) => return Err(format!("closed after {} bytes", response.len())),
            Err(error) => return Err(format!("after {} bytes: {error}", response.len())),
            Ok(_) => {}
        }
    }
}

async fn send_request(request: &BystanderRequest) -> Result<(), String> {
    let stream = TcpStream::connect(request.address).await.map_err(|error| format!("cannot connect: {error}"))?;
    let Some(config) = &request.tls else { return exchange(stream, request).await };
    let name = ServerName::try_from(SERVER_NAME).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream).await;
    exchange(stream.map_err(|error| format!("no handshake: {error}"))?, request).await
}

fn timed_request(request: &Arc<BystanderRequest>, is_livez: bool) -> impl Future<Output = RequestOutcome> + use<> {
    let request = Arc::clone(request);
    async move {
        let started = Instant::now();
        let response = timeout(REQUEST_TIMEOUT, send_request(&request)).await;
        let error = response.unwrap_or_else(|_| Err(format!("no response within {REQUEST_TIMEOUT:?}"))).err();
        RequestOutcome { started, duration: started.elapsed(), is_livez, error }
    }
}

async fn send_requests(
    request: BystanderRequest,
    admin: Option<SocketAddr>,
    stop: Arc<AtomicBool>,
) -> Vec<RequestOutcome> {
    let livez = admin.map(|address| {
        let (path, fields) = ("/livez".to_owned(), String::new());
        Arc::new(BystanderRequest { address, tls: None, path, fields, body: None })
    });
    let request = Arc::new(request);
    let (mut outcomes, mut running) = (Vec::new(), JoinSet::new());
    let mut ticks = interval(REQUEST_INTERVAL);
    for n in 0_u64.. {
        ticks.tick().await;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        running.spawn(timed_request(&request, false));
        if let Some(livez) = livez.as_ref().filter(|_| n.is_multiple_of(REQUESTS_PER_LIVEZ)) {
            running.spawn(timed_request(livez, true));
        }
        while let Some(Ok(outcome)) = running.try_join_next() {
            outcomes.push(outcome);
        }
    }
    outcomes.extend(running.join_all().await);
    outcomes
}

impl Bystander {
    pub(crate) fn start(request: BystanderRequest, admin: Option<SocketAddr>) -> Result<Self, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || runtime.block_on(send_requests(request, admin, stopped)));
        Ok(Self { stop, thread })
    }

    pub(crate) fn stop(self) -> Result<BystanderReport, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map(BystanderReport).map_err(|_| "the bystander has panicked".to_owned())
    }
}

impl BystanderReport {
    /// Summarizes the requests that started between two times.
    pub(crate) fn summarize(&self, begin: Instant, end: Instant) -> Value {
        let within = |outcome: &&RequestOutcome| outcome.started >= begin && outcome.started < end;
        let (livez, pages): (Vec<_>, Vec<_>) = self.0.iter().filter(within).partition(|outcome| outcome.is_livez);
        let durations_ms = |outcomes: &[&RequestOutcome]| {
            outcomes.iter().map(|outcome| outcome.duration.as_secs_f64() * 1e3).collect::<Vec<_>>()
        };
        let failed = |outcomes: &[&RequestOutcome]| outcomes.iter().filter(|outcome| outcome.error.is_some()).count();
        let pages_ms = durations_ms(&pages);
        json!({
            "asked": pages.len(),
            "failed": failed(&pages),
            "first_failure": pages.iter().find_map(|outcome| outcome.error.as_deref()),
            "p50_ms": percentile(&pages_ms, 0.5),
            "p99_ms": percentile(&pages_ms, 0.99),
            "max_ms": percentile(&pages_ms, 1.0),
            "livez_asked": livez.len(),
            "livez_failed": failed(&livez),
            "livez_first_failure": livez.iter().find_map(|outcome| outcome.error.as_deref()),
            "livez_p99_ms": percentile(&durations_ms(&livez), 0.99),
        })
    }
}
