//! The connections of an upstream: each has one request and one response.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use socket2::Socket;

use super::api::{self, UpstreamAddresses};
use super::clock::seconds_from_now;
use super::outgoing::OutgoingResponse;
use super::reply::{Reply, ReplyKind};
use super::request::{Request, UpstreamCall, classify};
use super::state::UpstreamState;

/// Bytes that are sent after a body, repeatedly.
static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// A connection, with or without TLS.
pub trait ByteStream: Read + Write + Send {}
impl<T: Read + Write + Send> ByteStream for T {}

/// Wraps an accepted TCP stream, for example in TLS. `None` if the handshake cannot start.
pub type StreamWrapper = Arc<dyn Fn(TcpStream) -> Option<Box<dyn ByteStream>> + Send + Sync>;

/// Accepts connections in a thread until the upstream is dropped.
pub(super) fn serve(shared: &Arc<SharedState>, socket: Socket) {
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
                if let Some(mut stream) = (shared.wrap)(stream) {
                    shared.handle_connection(stream.as_mut());
                }
            });
        }
    });
}

/// The state that the threads of an upstream share.
pub(super) struct SharedState {
    pub(super) state: Mutex<UpstreamState>,
    pub(super) stop: AtomicBool,
    pub(super) connections: AtomicUsize,
    /// The number of bytes of bodies that were written.
    pub(super) sent: AtomicUsize,
    pub(super) api: SocketAddr,
    pub(super) object_store: SocketAddr,
    pub(super) scheme: &'static str,
    pub(super) wrap: StreamWrapper,
}

impl SharedState {
    /// The addresses that links lead to.
    pub(super) fn addresses(&self) -> UpstreamAddresses {
        UpstreamAddresses { scheme: self.scheme, api: self.api, object_store: self.object_store }
    }

    /// Locks the state.
    #[track_caller]
    pub(super) fn state(&self) -> MutexGuard<'_, UpstreamState> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Reads one request, sends one response and closes the connection.
    fn handle_connection(&self, stream: &mut dyn ByteStream) {
        let Some(mut request) = self.receive(stream) else { return };
        request.call = classify(&request);
        let (reply, outgoing) = {
            let mut state = self.state();
            let reply = state.next_reply(request.call);
            let outgoing = match reply.kind {
                ReplyKind::NoReply | ReplyKind::Close => None,
                ReplyKind::Normal => Some(api::respond(self.addresses(), &mut state, &request, reply.ignores_range)),
                ReplyKind::Scripted => {
                    Some(OutgoingResponse { status: reply.status, fields: Vec::new(), body: Vec::new() })
                }
            };
            let outgoing = outgoing.map(|mut outgoing| {
                if reply.status != 0 {
                    outgoing.status = reply.status;
                }
                if let Some(body) = &reply.body {
                    outgoing.body.clone_from(body);
                }
                let now = seconds_from_now(state.skew);
                outgoing.set("Date", Some(&httpdate::fmt_http_date(now)));
                for (name, value) in &reply.fields {
                    outgoing.set(name, value.as_deref());
                }
                outgoing
            });
            request.status = outgoing.as_ref().map_or(0, |outgoing| outgoing.status);
            state.log.push(request);
            (reply, outgoing)
        };
        match outgoing {
            Some(outgoing) => self.send(stream, outgoing, &reply),
            None if reply.kind == ReplyKind::NoReply => self.wait_for_close(stream),
            None => {}
        }
    }

    /// Waits until the client closes the connection or the upstream is dropped.
    fn wait_for_close(&self, stream: &mut dyn ByteStream) {
        let mut byte = [0; 256];
        while !self.stop.load(Ordering::SeqCst) {
            match stream.read(&mut byte) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if is_timeout(&error) => {}
                Err(_) => return,
            }
        }
    }

    fn send(&self, stream: &mut dyn ByteStream, mut outgoing: OutgoingResponse, reply: &Reply) {
        use std::fmt::Write as _;
        let mut head = format!("HTTP/1.1 {} Scripted\r\nConnection: close\r\n", outgoing.status);
        let has_no_body = matches!(outgoing.status, 204 | 304);
        let is_scripted = |name: &str| reply.fields.iter().any(|(n, _)| n.eq_ignore_ascii_case(name));
        if !has_no_body && !is_scripted("Content-Length") && !is_scripted("Transfer-Encoding") {
            let length = outgoing.body.len().to_string();
            outgoing.set("Content-Length", Some(&length));
        }
        for (name, value) in &outgoing.fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        let full_body = if has_no_body { &[][..] } else { &outgoing.body };
        let sent_len = reply.close_after_bytes.or(reply.stall_after_bytes).unwrap_or(usize::MAX).min(full_body.len());
        let body = &full_body[..sent_len];
        if stream.write_all(head.as_bytes()).is_err() {
            return;
        }
        let (pieces, pause) = reply.trickle.unwrap_or((1, Duration::ZERO));
        for piece in body.chunks(body.len().div_ceil(pieces).max(1)) {
            if self.send_body_part(stream, piece).is_err() {
                return;
            }
            std::thread::sleep(pause);
        }
        for _ in 0..reply.trailing_zero_bytes.div_ceil(ZEROS.len()) {
            if self.send_body_part(stream, &ZEROS).is_err() {
                return;
            }
        }
        let _ = stream.flush();
        if reply.stall_after_bytes.is_some() {
            self.wait_for_close(stream);
        }
    }

    /// Writes a part of a body and counts the bytes that were written.
    fn send_body_part(&self, stream: &mut dyn ByteStream, bytes: &[u8]) -> std::io::Result<()> {
        for part in bytes.chunks(ZEROS.len()) {
            stream.write_all(part)?;
            self.sent.fetch_add(part.len(), Ordering::SeqCst);
        }
        stream.flush()
    }

    fn receive(&self, stream: &mut dyn ByteStream) -> Option<Request> {
        let mut bytes = Vec::new();
        let end = loop {
            if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
                break end;
            }
            self.read_more(stream, &mut bytes)?;
        };
        let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let mut words = lines.next()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let headers: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
            .collect();
        let mut request = Request {
            call: UpstreamCall::Other,
            method,
            target,
            headers,
            body: Vec::new(),
            received_at: Instant::now(),
            status: 0,
        };
        let mut body = bytes.split_off(end + 4);
        let field = |name: &str| {
            request.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        if field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked")) {
            while !body.ends_with(b"0\r\n\r\n") {
                self.read_more(stream, &mut body)?;
            }
            body = decode_chunked(&body)?;
        } else if let Some(length) = field("content-length") {
            let length: usize = length.parse().ok()?;
            while body.len() < length {
                self.read_more(stream, &mut body)?;
            }
        }
        request.body = body;
        Some(request)
    }

    fn read_more(&self, stream: &mut dyn ByteStream, bytes: &mut Vec<u8>) -> Option<()> {
        let mut chunk = [0; 16 * 1024];
        loop {
            match stream.read(&mut chunk) {
                Ok(0) => return None,
                Ok(n) => {
                    bytes.extend_from_slice(&chunk[..n]);
                    return Some(());
                }
                Err(error) if is_timeout(&error) && !self.stop.load(Ordering::SeqCst) => {}
                Err(_) => return None,
            }
        }
    }
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut)
}

fn decode_chunked(mut bytes: &[u8]) -> Option<Vec<u8>> {
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
