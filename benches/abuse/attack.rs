//! One driver for all attacks: connections that are opened, used by the attack's function and opened again when the
//! server closes them, until the time is over. It runs in a process of its own at nice 19, on one thread.

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

/// The listener of a server that an attack goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Listener {
    Clear,
    Http2,
    Tls,
}

/// How much an attack sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// What its connections can, or what the attack itself waits for.
    Free,
    /// Handshakes and whole requests, which cost every server: half of what saturates one core.
    Half,
}

pub(crate) type Running = Pin<Box<dyn Future<Output = io::Result<()>>>>;

/// An attack: a row of the tables.
pub(crate) struct Attack {
    pub name: &'static str,
    pub title: &'static str,
    pub on: Listener,
    pub connections: usize,
    pub pace: Pace,
    /// A small receive buffer, for readers that stall.
    pub narrow: bool,
    pub run: fn(Session) -> Running,
}

/// The most connections that an attack may have.
pub(crate) const MAX_CONNECTIONS: usize = 4000;

/// What the attacker process is told.
#[derive(Debug, Clone)]
pub(crate) struct Orders {
    pub address: SocketAddr,
    pub seconds: f64,
    /// Units a second of all connections together; none for as many as can be.
    pub rate: Option<f64>,
    /// The root certificate that TLS clients trust, PEM.
    pub root: PathBuf,
    /// A key of the hostile organization, for attacks on an origin.
    pub key: String,
    /// Where the hostile organization has a site that is crawled.
    pub crawled: u16,
}

impl Orders {
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

/// What all connections of an attack share.
pub(crate) struct Shared {
    pub orders: Orders,
    pub until: Instant,
    sent: Cell<u64>,
    received: Cell<u64>,
    units: Cell<u64>,
    opened: Cell<u64>,
    /// Connections that are open now, and the most that were open at once.
    open: Cell<u64>,
    most_open: Cell<u64>,
    refused: Cell<u64>,
    /// When the next unit may begin.
    next: RefCell<Instant>,
}

impl Shared {
    fn new(orders: Orders) -> Rc<Self> {
        let now = Instant::now();
        let zero = || Cell::new(0);
        Rc::new(Self {
            until: now + Duration::from_secs_f64(orders.seconds),
            orders,
            sent: zero(),
            received: zero(),
            units: zero(),
            opened: zero(),
            open: zero(),
            most_open: zero(),
            refused: zero(),
            next: RefCell::new(now),
        })
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Waits until so many units may begin, and counts them.
    pub(crate) async fn units(&self, count: u64) {
        self.units.set(self.units.get() + count);
        let Some(rate) = self.orders.rate else { return };
        let begin = {
            let mut next = self.next.borrow_mut();
            let begin = (*next).max(Instant::now());
            *next = begin + Duration::from_secs_f64(count as f64 / rate);
            begin
        };
        sleep_until(begin).await;
    }

    /// Counts bytes that were sent on another connection than those of the attack.
    pub(crate) fn count_sent(&self, bytes: usize) {
        self.sent.set(self.sent.get() + bytes as u64);
    }

    fn count_open(&self) {
        self.opened.set(self.opened.get() + 1);
        self.open.set(self.open.get() + 1);
        self.most_open.set(self.most_open.get().max(self.open.get()));
    }

    /// How many units were begun so far.
    pub(crate) fn count(&self) -> usize {
        self.units.get() as usize
    }

    fn report(&self) -> Value {
        json!({
            "sent": self.sent.get(), "received": self.received.get(), "units": self.units.get(),
            "opened": self.opened.get(), "most_open": self.most_open.get(), "refused": self.refused.get(),
        })
    }
}

/// A buffer for what is not looked at.
const CHUNK: usize = 64 * 1024;

/// One connection of an attack.
pub(crate) struct Session {
    pub wire: TcpStream,
    pub shared: Rc<Shared>,
    /// Which connection of the attack it is, from 0.
    pub number: usize,
}

async fn send(shared: &Shared, wire: &mut (impl AsyncWriteExt + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let sent = wire.write(bytes).await?;
        shared.sent.set(shared.sent.get() + sent as u64);
        bytes = &bytes[sent..];
    }
    Ok(())
}

impl Session {
    pub(crate) async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        send(&self.shared, &mut self.wire, bytes).await
    }

    /// Some bytes; an error when there are no more.
    pub(crate) async fn receive(&mut self, most: usize) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; most];
        let read = self.wire.read(&mut buffer).await?;
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

    /// Holds the connection without reading from it.
    pub(crate) async fn hold(&mut self) -> io::Result<()> {
        sleep_until(self.shared.until).await;
        Ok(())
    }

    /// Sends a few bytes again and again, with a pause before each, and reads what comes. Ends when the server closes.
    pub(crate) async fn drip(self, bytes: &[u8], pause: Duration) -> io::Result<()> {
        self.flood_with(|buffer| buffer.extend_from_slice(bytes), pause).await
    }

    /// Sends what `make` puts into the buffer, again and again, and reads what comes. `make` returns how many units
    /// it made.
    pub(crate) async fn flood(self, mut make: impl FnMut(&mut Vec<u8>) -> u64) -> io::Result<()> {
        let (shared, mut writer, reader) = self.split();
        let mut buffer = Vec::with_capacity(CHUNK);
        let written = async {
            loop {
                buffer.clear();
                shared.units(make(&mut buffer)).await;
                send(&shared, &mut writer, &buffer).await?;
                // On one thread, a server that takes everything would leave the others no time.
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            ended = written => ended,
            ended = reader => ended,
        }
    }

    async fn flood_with(self, mut make: impl FnMut(&mut Vec<u8>), pause: Duration) -> io::Result<()> {
        let (shared, mut writer, reader) = self.split();
        let mut buffer = Vec::new();
        let written = async {
            loop {
                sleep(pause).await;
                buffer.clear();
                make(&mut buffer);
                send(&shared, &mut writer, &buffer).await?;
            }
        };
        tokio::select! {
            ended = written => ended,
            ended = reader => ended,
        }
    }

    /// The half to write to, and what reads the other half until the server closes.
    fn split(self) -> (Rc<Shared>, OwnedWriteHalf, impl Future<Output = io::Result<()>>) {
        let (mut reader, writer) = self.wire.into_split();
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

/// Small send buffers: what the server has not taken when it closes is counted as sent, up to this.
const SEND_BUFFER: u32 = 64 * 1024;
const NARROW_BUFFER: u32 = 4096;

async fn open(attack: &Attack, shared: &Rc<Shared>, number: usize) -> io::Result<Session> {
    let socket = if shared.orders.address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_send_buffer_size(SEND_BUFFER)?;
    if attack.narrow {
        socket.set_recv_buffer_size(NARROW_BUFFER)?;
    }
    let wire = socket.connect(shared.orders.address).await?;
    wire.set_nodelay(true)?;
    Ok(Session { wire, shared: Rc::clone(shared), number })
}

/// One of the attack's connections, opened again and again. A server that closes at once is asked at most 1,000 times
/// a second by all of them.
async fn keep_connected(attack: &'static Attack, shared: Rc<Shared>, number: usize) {
    while !shared.is_over() {
        match timeout_at(shared.until, open(attack, &shared, number)).await {
            Ok(Ok(session)) => {
                shared.count_open();
                let _ = timeout_at(shared.until, (attack.run)(session)).await;
                shared.open.set(shared.open.get() - 1);
            }
            Ok(Err(_)) => shared.refused.set(shared.refused.get() + 1),
            Err(_) => return,
        }
        sleep(Duration::from_millis(attack.connections as u64)).await;
    }
}

/// Runs an attack to its end; what was sent and received.
pub(crate) fn run(attack: &'static Attack, orders: Orders) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot start a runtime: {error}"))?;
    let report = LocalSet::new().block_on(&runtime, async {
        let shared = Shared::new(orders);
        let count = attack.connections.min(MAX_CONNECTIONS);
        let all: Vec<_> =
            (0..count).map(|number| spawn_local(keep_connected(attack, Rc::clone(&shared), number))).collect();
        for one in all {
            let _ = one.await;
        }
        shared.report()
    });
    Ok(report)
}
