//! The connections of an upstream: one request, one answer each.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::api::{self, Origins};
use super::clock::shifted;
use super::outgoing::Outgoing;
use super::plan::Plan;
use super::reply::{Reply, ReplyKind};
use super::request::{Call, Request, classify};

/// Bytes that follow a body, again and again.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// A connection, with or without a layer of cryptography.
pub trait Wire: Read + Write + Send {}
impl<T: Read + Write + Send> Wire for T {}

/// Makes a connection of a stream, if the other side plays along.
pub type Wrap = Arc<dyn Fn(TcpStream) -> Option<Box<dyn Wire>> + Send + Sync>;

/// Accepts connections in a thread until the upstream goes.
pub(super) fn serve(shared: &Arc<Shared>, socket: Socket) {
    socket.listen(128).expect("a bound socket can listen");
    let listener = TcpListener::from(socket);
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            if shared.stop.load(Ordering::SeqCst) {
                return;
            }
            let Ok(stream) = stream else { continue };
            shared.connections.fetch_add(1, Ordering::SeqCst);
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
                let _ = stream.set_write_timeout(Some(Duration::from_secs(30)));
                let _ = stream.set_nodelay(true);
                if let Some(mut wire) = (shared.wrap)(stream) {
                    shared.converse(wire.as_mut());
                }
            });
        }
    });
}

/// What the threads of an upstream share.
pub(super) struct Shared {
    pub(super) plan: Mutex<Plan>,
    pub(super) stop: AtomicBool,
    pub(super) connections: AtomicUsize,
    /// Bytes of bodies that were written.
    pub(super) sent: AtomicUsize,
    pub(super) api: SocketAddr,
    pub(super) bucket: SocketAddr,
    pub(super) scheme: &'static str,
    pub(super) wrap: Wrap,
}

impl Shared {
    /// The addresses that links lead to.
    pub(super) fn origins(&self) -> Origins {
        Origins { scheme: self.scheme, api: self.api, bucket: self.bucket }
    }

    /// Locks the state.
    #[track_caller]
    pub(super) fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// One request, one answer, and the connection is closed.
    fn converse(&self, wire: &mut dyn Wire) {
        let Some(mut request) = self.receive(wire) else { return };
        request.call = classify(&request);
        let (reply, outgoing) = {
            let mut plan = self.plan();
            let reply = plan.scripted(request.call);
            let outgoing = match reply.kind {
                ReplyKind::Silence | ReplyKind::Close => None,
                ReplyKind::Honest => Some(api::answer(self.origins(), &mut plan, &request, reply.whole)),
                ReplyKind::Made => Some(Outgoing { status: reply.status, fields: Vec::new(), body: Vec::new() }),
            };
            let outgoing = outgoing.map(|mut outgoing| {
                if reply.status != 0 {
                    outgoing.status = reply.status;
                }
                if let Some(body) = &reply.body {
                    outgoing.body.clone_from(body);
                }
                let now = shifted(plan.skew);
                outgoing.set("Date", Some(&httpdate::fmt_http_date(now)));
                for (name, value) in &reply.fields {
                    outgoing.set(name, value.as_deref());
                }
                outgoing
            });
            request.status = outgoing.as_ref().map_or(0, |outgoing| outgoing.status);
            plan.log.push(request);
            (reply, outgoing)
        };
        match outgoing {
            Some(outgoing) => self.send(wire, outgoing, &reply),
            None if reply.kind == ReplyKind::Silence => self.wait(wire),
            None => {}
        }
    }

    /// Waits until the other side has enough, or the upstream goes.
    fn wait(&self, wire: &mut dyn Wire) {
        let mut byte = [0; 256];
        while !self.stop.load(Ordering::SeqCst) {
            match wire.read(&mut byte) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if is_time_out(&error) => {}
                Err(_) => return,
            }
        }
    }

    fn send(&self, wire: &mut dyn Wire, mut outgoing: Outgoing, reply: &Reply) {
        use std::fmt::Write as _;
        let mut head = format!("HTTP/1.1 {} Scripted\r\nConnection: close\r\n", outgoing.status);
        let bodiless = matches!(outgoing.status, 204 | 304);
        let told = |name: &str| reply.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !bodiless && !told("Content-Length") && !told("Transfer-Encoding") {
            let length = outgoing.body.len().to_string();
            outgoing.set("Content-Length", Some(&length));
        }
        for (name, value) in &outgoing.fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        let whole = if bodiless { &[][..] } else { &outgoing.body };
        let most = reply.cut.or(reply.stall).unwrap_or(usize::MAX).min(whole.len());
        let body = &whole[..most];
        if wire.write_all(head.as_bytes()).is_err() {
            return;
        }
        let (pieces, pause) = reply.trickle.unwrap_or((1, Duration::ZERO));
        for piece in body.chunks(body.len().div_ceil(pieces).max(1)) {
            if self.give(wire, piece).is_err() {
                return;
            }
            std::thread::sleep(pause);
        }
        for _ in 0..reply.zeros.div_ceil(ZEROS.len()) {
            if self.give(wire, &ZEROS).is_err() {
                return;
            }
        }
        let _ = wire.flush();
        if reply.stall.is_some() {
            self.wait(wire);
        }
    }

    /// Writes a part of a body, and counts what is taken of it.
    fn give(&self, wire: &mut dyn Wire, bytes: &[u8]) -> std::io::Result<()> {
        for part in bytes.chunks(ZEROS.len()) {
            wire.write_all(part)?;
            self.sent.fetch_add(part.len(), Ordering::SeqCst);
        }
        wire.flush()
    }

    fn receive(&self, wire: &mut dyn Wire) -> Option<Request> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break end;
            }
            self.more(wire, &mut bytes)?;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut request =
            Request { call: Call::Other, method, target, headers, body: Vec::new(), at: Instant::now(), status: 0 };
        let mut body = bytes.split_off(end + 4);
        let field = |name: &str| {
            request.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        if field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            while !body.ends_with(b"0\r\n\r\n") {
                self.more(wire, &mut body)?;
            }
            body = unchunked(&body)?;
        } else if let Some(length) = field("content-length") {
            let length: usize = length.parse().ok()?;
            while body.len() < length {
                self.more(wire, &mut body)?;
            }
        }
        request.body = body;
        Some(request)
    }

    fn more(&self, wire: &mut dyn Wire, bytes: &mut Vec<u8>) -> Option<()> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match wire.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => {
                    bytes.extend_from_slice(&chunk[..n]);
                    return Some(());
                }
                Err(error) if is_time_out(&error) && !self.stop.load(Ordering::SeqCst) => {}
                Err(_) => return None,
            }
        }
    }
}

fn is_time_out(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn unchunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&bytes[..end]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(out);
        }
        out.extend_from_slice(bytes.get(end + 2..end + 2 + size)?);
        bytes = bytes.get(end + 4 + size..)?;
    }
}
