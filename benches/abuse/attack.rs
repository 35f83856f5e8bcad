//! The driver of all attacks: it opens connections, passes them to the attack's function, and opens them again when the
//! server closes them, until the end time. It runs in a separate process at nice 19, on one thread.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::{LocalSet, spawn_local};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// The listener of a server that an attack connects to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Clear,
    Http2,
    Tls,
}

/// The rate of an attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// As fast as its connections allow, or as the attack's own pauses allow.
    Unlimited,
    /// Half of the rate that saturates one core: for handshakes and complete requests, which cost all servers CPU time.
    HalfCore,
}

pub(crate) type AttackFuture = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// An attack: a row of the tables.
pub(crate) struct Attack {
    pub name: &'static str,
    pub title: &'static str,
    pub listener: Listener,
    pub connections: usize,
    pub pace: Pace,
    /// A small receive buffer, for clients that stop reading.
    pub has_small_buffer: bool,
    pub run: fn(AttackConnection) -> AttackFuture,
}

impl Attack {
    /// An attack without a limit of its rate.
    pub(crate) const fn unlimited(
        listener: Listener,
        name: &'static str,
        title: &'static str,
        connections: usize,
        run: fn(AttackConnection) -> AttackFuture,
    ) -> Attack {
        Attack { name, title, listener, connections, pace: Pace::Unlimited, has_small_buffer: false, run }
    }

    /// An attack at half of the rate that saturates one core.
    pub(crate) const fn half_core(
        listener: Listener,
        name: &'static str,
        title: &'static str,
        connections: usize,
        run: fn(AttackConnection) -> AttackFuture,
    ) -> Attack {
        Attack { pace: Pace::HalfCore, ..Attack::unlimited(listener, name, title, connections, run) }
    }

    /// The same attack by clients with a small receive buffer.
    pub(crate) const fn with_small_buffer(self) -> Attack {
        Attack { has_small_buffer: true, ..self }
    }
}

/// The maximum number of connections of an attack.
pub(crate) const MAX_CONNECTIONS: usize = 4000;

/// The parameters of the attacker process.
#[derive(Debug, Clone)]
pub(crate) struct AttackParameters {
    pub address: SocketAddr,
    pub seconds: f64,
    /// The rate of all connections together, in units per second; a unit is a handshake or a complete request. `None`
    /// means unlimited.
    pub rate: Option<f64>,
    /// The root certificate that TLS clients trust, PEM.
    pub root: PathBuf,
    /// A key of the hostile organization, for attacks on an origin.
    pub key: String,
    /// The port of the hostile organization's site, which the origin crawls.
    pub crawled: u16,
}

impl AttackParameters {
    pub(crate) fn to_json(&self) -> Value {
        json!({
            "address": self.address.to_string(), "seconds": self.seconds, "rate": self.rate, "root": self.root,
            "key": self.key, "crawled": self.crawled,
        })
    }

    pub(crate) fn from_json(text: &str) -> Result<Self, String> {
        let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let text = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
        Ok(Self {
            address: text("address").parse().map_err(|error| format!("no address: {error}"))?,
            seconds: value["seconds"].as_f64().ok_or("no time")?,
            rate: value["rate"].as_f64(),
            root: text("root").into(),
            key: text("key"),
            crawled: value["crawled"].as_u64().and_then(|port| port.try_into().ok()).unwrap_or(0),
        })
    }
}

/// The state that all connections of an attack share.
pub(crate) struct Shared {
    pub parameters: AttackParameters,
    pub end_time: Instant,
    sent: Cell<u64>,
    received: Cell<u64>,
    units: Cell<u64>,
    opened: Cell<u64>,
    /// Connections that are open now, and the maximum so far.
    open: Cell<u64>,
    max_open: Cell<u64>,
    refused: Cell<u64>,
    /// The time at which the next unit may start.
    next_unit_start: RefCell<Instant>,
}

impl Shared {
    fn new(parameters: AttackParameters) -> Rc<Self> {
        let now = Instant::now();
        let zero = || Cell::new(0);
        Rc::new(Self {
            end_time: now + Duration::from_secs_f64(parameters.seconds),
            parameters,
            sent: zero(),
            received: zero(),
            units: zero(),
            opened: zero(),
            open: zero(),
            max_open: zero(),
            refused: zero(),
            next_unit_start: RefCell::new(now),
        })
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.end_time
    }

    /// Waits until `count` units may start, and counts them.
    pub(crate) async fn start_units(&self, unit_count: u64) {
        self.units.set(self.units.get() + unit_count);
        let Some(rate) = self.parameters.rate else { return };
        let start = {
            let mut next_unit_start = self.next_unit_start.borrow_mut();
            let start = (*next_unit_start).max(Instant::now());
            *next_unit_start = start + Duration::from_secs_f64(unit_count as f64 / rate);
            start
        };
        sleep_until(start).await;
    }

    /// Counts bytes that were sent on connections other than those of the attack.
    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    fn count_open(&self) {
        self.opened.set(self.opened.get() + 1);
        self.open.set(self.open.get() + 1);
        self.max_open.set(self.max_open.get().max(self.open.get()));
    }

    /// The number of units so far.
    pub(crate) fn unit_count(&self) -> usize {
        self.units.get() as usize
    }

    fn report(&self) -> Value {
        json!({
            "sent": self.sent.get(), "received": self.received.get(), "units": self.units.get(),
            "opened": self.opened.get(), "most_open": self.max_open.get(), "refused": self.refused.get(),
        })
    }
}

/// The size of buffers for bytes that are discarded.
const CHUNK: usize = 64 * 1024;

/// One connection of an attack.
pub(crate) struct AttackConnection {
    pub stream: TcpStream,
    pub shared: Rc<Shared>,
    /// The number of the connection in the attack, from 0.
    pub number: usize,
}

async fn send(shared: &Shared, stream: &mut (impl AsyncWriteExt + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = stream.write(bytes).await?;
        shared.sent.set(shared.sent.get() + sent as u64);
        bytes = &bytes[sent..];
    }
    Ok(())
}

impl AttackConnection {
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        send(&self.shared, &mut self.stream, bytes).await
    }

    /// Receives some bytes. Returns an error at the end of the stream.
    pub(crate) async fn receive(&mut self, max_len: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; max_len];
        let read = self.stream.read(&mut buffer).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.shared.received.set(self.shared.received.get() + read as u64);
        buffer.truncate(read);
        Ok(buffer)
    }

    /// Reads until the server closes.
    pub(crate) async fn drain(&mut self) -> io::Result<()> {
        loop {
            self.receive(CHUNK).await?;
        }
    }

    /// Keeps the connection open without reading from it.
    pub(crate) async fn hold_open(&mut self) -> io::Result<()> {
        sleep_until(self.shared.end_time).await;
        Ok(())
    }

    /// Sends `bytes` again and again, with a pause before each, and reads all responses. Ends when the server closes.
    pub(crate) async fn drip(self, bytes: &[u8], pause: Duration) -> io::Result<()> {
        self.flood_with(|buffer| buffer.extend_from_slice(bytes), pause).await
    }

    /// Sends what `fill` puts into the buffer, again and again, and reads all responses. `fill` returns the number of
    /// units in the buffer.
    pub(crate) async fn flood(self, mut fill: impl FnMut(&mut Vec<u8>) -> u64) -> io::Result<()> {
        let (shared, mut writer, reader) = self.split();
        let mut buffer = Vec::with_capacity(CHUNK);
        let write_loop = async {
            loop {
                buffer.clear();
                shared.start_units(fill(&mut buffer)).await;
                send(&shared, &mut writer, &buffer).await?;
                // On one thread, a server that reads everything at once would block the other connections.
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = write_loop => ended,
            ended = reader => ended,
        }
    }

    async fn flood_with(self, mut fill: impl FnMut(&mut Vec<u8>), pause: Duration) -> io::Result<()> {
        let (shared, mut writer, reader) = self.split();
        let mut buffer = Vec::new();
        let write_loop = async {
            loop {
                sleep(pause).await;
                buffer.clear();
                fill(&mut buffer);
                send(&shared, &mut writer, &buffer).await?;
            }
        };
        tokio::select! {
            ended = write_loop => ended,
            ended = reader => ended,
        }
    }

    /// The write half, and a future that reads the other half until the server closes.
    fn split(self) -> (Rc<Shared>, OwnedWriteHalf, impl Future<Output = io::Result<()>>) {
        let (mut reader, writer) = self.stream.into_split();
        let shared = Rc::clone(&self.shared);
        let reading = async move {
            let mut buffer = vec![0; CHUNK];
            loop {
                let read = reader.read(&mut buffer).await?;
                if read == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                shared.received.set(shared.received.get() + read as u64);
            }
        };
        (self.shared, writer, reading)
    }
}

/// A small send buffer: unread bytes in it count as sent when the server closes.
const SEND_BUFFER: u32 = 64 * 1024;
const SMALL_RECEIVE_BUFFER: u32 = 4096;

async fn open_connection(attack: &Attack, shared: &Rc<Shared>, number: usize) -> io::Result<AttackConnection> {
    let socket = if shared.parameters.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_send_buffer_size(SEND_BUFFER)?;
    if attack.has_small_buffer {
        socket.set_recv_buffer_size(SMALL_RECEIVE_BUFFER)?;
    }
    let stream = socket.connect(shared.parameters.address).await?;
    stream.set_nodelay(true)?;
    Ok(AttackConnection { stream, shared: Rc::clone(shared), number })
}

/// Opens one of the attack's connections again and again. If the server closes at once, all of them together connect at
/// most 1,000 times a second.
async fn keep_connected(attack: &'static Attack, shared: Rc<Shared>, number: usize) {
    while !shared.is_over() {
        match timeout_at(shared.end_time, open_connection(attack, &shared, number)).await {
            Ok(Ok(connection)) => {
                shared.count_open();
                let _ = timeout_at(shared.end_time, (attack.run)(connection)).await;
                shared.open.set(shared.open.get() - 1);
            }
            Ok(Err(_)) => shared.refused.set(shared.refused.get() + 1),
            Err(_) => return,
        }
        sleep(Duration::from_millis(attack.connections as u64)).await;
    }
}

/// Runs an attack to its end. Returns the counters.
pub(crate) fn run(attack: &'static Attack, parameters: AttackParameters) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    let report = LocalSet::new().block_on(&runtime, async {
        let shared = Shared::new(parameters);
        let count = attack.connections.min(MAX_CONNECTIONS);
        let tasks: Vec<_> =
            (0..count).map(|number| spawn_local(keep_connected(attack, Rc::clone(&shared), number))).collect();
        for task in tasks {
            let _ = task.await;
        }
        shared.report()
    });
    Ok(report)
}
