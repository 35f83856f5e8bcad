//! HTTP/2, in cleartext by prior knowledge or on a connection that is encrypted already, frame by frame, so that every
//! frame can be wrong.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use docwharf::serve::http2::hpack::{DecodedFields, HpackDecoder};

use crate::http::Response;
use crate::upstream::Wire;

/// Frame type DATA.
pub const DATA: u8 = 0;
/// Frame type HEADERS.
pub const HEADERS: u8 = 1;
/// Frame type `RST_STREAM`.
pub const RST_STREAM: u8 = 3;
/// Frame type SETTINGS.
pub const SETTINGS: u8 = 4;
/// Frame type PING.
pub const PING: u8 = 6;
/// Frame type GOAWAY.
pub const GOAWAY: u8 = 7;
/// Frame type `WINDOW_UPDATE`.
pub const WINDOW_UPDATE: u8 = 8;
/// Frame type CONTINUATION.
pub const CONTINUATION: u8 = 9;

/// Flag of SETTINGS and PING that acknowledge one.
pub const ACK: u8 = 1;
/// Flag of the last DATA or HEADERS of a stream.
pub const END_STREAM: u8 = 1;
/// Flag of the last frame of a block of fields.
pub const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// Outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A whole response.
    Response {
        /// Status code.
        status: u16,
        /// Body without its frames.
        body: Vec<u8>,
    },
    /// The stream was reset with this code.
    Reset(u32),
    /// The connection was given up, with the code of its GOAWAY if there was one.
    Ended(Option<u32>),
}

/// A response that is still arriving.
#[derive(Debug, Default)]
struct Partial {
    block: Vec<u8>,
    status: Option<u16>,
    body: Vec<u8>,
    ended: bool,
    reset: Option<u32>,
    /// The code of a reset that came behind the whole response.
    stopped: Option<u32>,
    /// Bytes that the server has said it takes more, and that no test has asked for.
    granted: usize,
}

/// One connection.
pub struct Client {
    stream: Box<dyn Wire>,
    /// The connection below TLS, or the connection itself.
    socket: TcpStream,
    answers: HashMap<u32, Partial>,
    next: u32,
    goaway: Option<u32>,
    pongs: usize,
}

impl Client {
    /// Opens a connection whose windows let everything through.
    pub fn open(address: &str) -> Client {
        let mut client = Client::open_with_window(address, 0x7fff_ffff);
        client.widen();
        client
    }

    /// Takes as much on the connection as there can be (RFC 9113, 6.9.1).
    pub fn widen(&mut self) {
        let grant = (0x7fff_ffff_u32 - 65_535).to_be_bytes();
        self.send(WINDOW_UPDATE, 0, 0, &grant).expect("the server reads");
    }

    /// Opens a connection on which each stream may be sent `window` bytes.
    pub fn open_with_window(address: &str, window: u32) -> Client {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
        stream.set_nodelay(true).expect("an option can be set");
        let socket = stream.try_clone().expect("a descriptor can be had");
        Client::over(Box::new(stream), socket, window)
    }

    /// Begins on a connection that is there, and whose socket this is.
    pub fn over(stream: Box<dyn Wire>, socket: TcpStream, window: u32) -> Client {
        let mut client = Client { stream, socket, answers: HashMap::new(), next: 1, goaway: None, pongs: 0 };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("the server reads");
        let mut settings = Vec::new();
        // No dynamic table for what comes back, no pushes.
        for (name, value) in [(1u16, 0u32), (2, 0), (4, window)] {
            settings.extend_from_slice(&name.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        client.send(SETTINGS, 0, 0, &settings).expect("the server reads");
        client
    }

    /// Sends one frame. Panics if the server neither reads nor closes.
    pub fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> io::Result<()> {
        let bytes = frame(kind, flags, stream, payload);
        self.send_bytes(&bytes)
    }

    /// Sends bytes as they are. Panics if the server neither reads nor closes.
    pub fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let sent = self.stream.write_all(bytes);
        if let Err(error) = &sent {
            assert!(!is_time_out(error), "the server neither reads nor closes");
        }
        sent
    }

    /// Shortens the time-out of writes to 300 ms.
    pub fn give_up_when_stuck(&mut self) {
        self.socket.set_write_timeout(Some(Duration::from_millis(300))).expect("a time-out can be set");
    }

    /// Sends bytes as long as the server takes them; false when it does no more, or has closed.
    pub fn send_some(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// The number of a new stream.
    pub fn stream(&mut self) -> u32 {
        self.next += 2;
        self.next - 2
    }

    /// Sends a request without a body, in as many frames as it takes; gives its stream.
    pub fn ask(&mut self, fields: &[(&str, &str)]) -> u32 {
        let stream = self.stream();
        let block = block(fields);
        let (mut kind, mut flags) = (HEADERS, END_STREAM);
        let mut parts = block.chunks(16_384).peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_none() {
                flags |= END_HEADERS;
            }
            let _ = self.send(kind, flags, stream, part);
            (kind, flags) = (CONTINUATION, 0);
        }
        stream
    }

    /// Sends a request with the usual pseudo-header fields and these.
    pub fn request(&mut self, method: &str, path: &str, more: &[(&str, &str)]) -> u32 {
        let mut fields =
            vec![(":method", method), (":scheme", "http"), (":path", path), (":authority", "docs.example")];
        fields.extend_from_slice(more);
        self.ask(&fields)
    }

    /// A request and its answer.
    #[track_caller]
    pub fn get(&mut self, path: &str, more: &[(&str, &str)]) -> Answer {
        let stream = self.request("GET", path, more);
        self.answer(stream)
    }

    /// Waits for what becomes of a stream.
    #[track_caller]
    pub fn answer(&mut self, stream: u32) -> Answer {
        loop {
            if let Some(partial) = self.answers.get_mut(&stream) {
                if let Some(code) = partial.reset {
                    return Answer::Reset(code);
                }
                if partial.ended {
                    let status = partial.status.expect("a response has a status");
                    return Answer::Response { status, body: std::mem::take(&mut partial.body) };
                }
            }
            if !self.receive() {
                return Answer::Ended(self.goaway);
            }
        }
    }

    /// Waits for the whole answer of a stream, with its fields. They are decoded by the program's own HPACK.
    #[track_caller]
    pub fn response(&mut self, stream: u32) -> Response {
        let answer = self.answer(stream);
        let Answer::Response { status, body } = answer else { panic!("no response: {answer:?}") };
        let mut fields = DecodedFields::default();
        // What comes in one block may rest on those before it; the server keeps no table.
        HpackDecoder::default().decode(&self.answers[&stream].block, &mut fields).expect("a block of fields");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = fields.iter().filter(|(name, _)| *name != b":status");
        Response { status, headers: headers.map(|(name, value)| (text(name), text(value))).collect(), body }
    }

    /// The code with which the server has said goodbye.
    pub fn goaway(&self) -> Option<u32> {
        self.goaway
    }

    /// Answers to PING that have come.
    pub fn pongs(&self) -> usize {
        self.pongs
    }

    /// The code with which the server has said, behind a whole response, that it wants no more of the request.
    pub fn stopped(&self, stream: u32) -> Option<u32> {
        self.answers.get(&stream).and_then(|partial| partial.stopped)
    }

    /// Bytes that the server takes more of a request's body, since this was last asked.
    pub fn take_granted(&mut self, stream: u32) -> usize {
        self.answers.get_mut(&stream).map_or(0, |partial| std::mem::take(&mut partial.granted))
    }

    /// Bytes of a body that have come so far.
    pub fn received(&self, stream: u32) -> usize {
        self.answers.get(&stream).map_or(0, |partial| partial.body.len())
    }

    /// Reads until the connection is given up: by GOAWAY for an error, by a reset of its only stream, or by closing.
    /// Panics if it is not.
    #[track_caller]
    pub fn end(&mut self) {
        while self.goaway.is_none_or(|code| code == 0) && !self.answers.values().any(|a| a.reset.is_some()) {
            if !self.receive() {
                return;
            }
        }
    }

    /// Reads one frame and takes note of it; false at the end of the connection.
    #[track_caller]
    pub fn receive(&mut self) -> bool {
        let mut head = [0; 9];
        if !self.fill(&mut head) {
            return false;
        }
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let mut payload = vec![0; length];
        if !self.fill(&mut payload) {
            return false;
        }
        let code = |at: usize| payload.get(at..at + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        match kind {
            SETTINGS if flags & ACK == 0 => {
                let _ = self.send(SETTINGS, ACK, 0, &[]);
            }
            PING if flags & ACK == 0 => {
                let _ = self.send(PING, ACK, 0, &payload);
            }
            PING => self.pongs += 1,
            WINDOW_UPDATE if stream != 0 => {
                self.answers.entry(stream).or_default().granted += code(0) as usize;
            }
            GOAWAY => self.goaway = Some(code(4)),
            RST_STREAM => {
                let code = code(0);
                let partial = self.answers.entry(stream).or_default();
                // A whole response may be followed by a reset that only says: send no more.
                if partial.ended {
                    partial.stopped = Some(code);
                } else {
                    partial.reset = Some(code);
                }
            }
            HEADERS | CONTINUATION | DATA => {
                let partial = self.answers.entry(stream).or_default();
                assert!(!partial.ended, "a frame of kind {kind} behind the end of stream {stream}");
                let mut rest = &payload[..];
                if kind != CONTINUATION && flags & PADDED != 0 {
                    rest = &rest[1..rest.len() - usize::from(rest[0])];
                }
                if kind == DATA {
                    partial.body.extend_from_slice(rest);
                } else {
                    if kind == HEADERS && flags & PRIORITY != 0 {
                        rest = &rest[5..];
                    }
                    partial.block.extend_from_slice(rest);
                    if flags & END_HEADERS != 0 && partial.status.is_none() {
                        partial.status = Some(status(&partial.block));
                    }
                }
                if kind != CONTINUATION && flags & END_STREAM != 0 {
                    partial.ended = true;
                }
            }
            _ => {}
        }
        true
    }

    #[track_caller]
    fn fill(&mut self, buffer: &mut [u8]) -> bool {
        match self.stream.read_exact(buffer) {
            Ok(()) => true,
            Err(error) => {
                assert!(!is_time_out(&error), "the server neither answers nor closes");
                false
            }
        }
    }
}

fn is_time_out(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// The bytes of one frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// A header block of literals that neither use nor change the tables.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            length(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// An HPACK integer with a prefix of seven bits.
fn length(bytes: &mut Vec<u8>, value: usize) {
    if value < 127 {
        bytes.push(value as u8);
        return;
    }
    bytes.push(127);
    let mut rest = value - 127;
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
}

/// The status of a response, which is the first field of its block.
#[track_caller]
fn status(block: &[u8]) -> u16 {
    // Changes of the table's size come first; with a size of 0 each is one byte.
    let start = block.iter().position(|b| b & 0xe0 != 0x20).expect("a field");
    let block = &block[start..];
    match block[0] {
        first @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(first - 0x88)],
        0x48..=0x4e | 0x08..=0x0e | 0x18..=0x1e => {
            let length = usize::from(block[1] & 0x7f);
            let value = &block[2..2 + length];
            let text = if block[1] & 0x80 == 0 { value.to_vec() } else { digits(value) };
            String::from_utf8_lossy(&text).parse().unwrap_or_else(|_| panic!("no status: {block:02x?}"))
        }
        _ => panic!("the first field is no status: {block:02x?}"),
    }
}

/// Digits in the code of RFC 7541, appendix B.
fn digits(value: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> = value.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0u8, |number, bit| number << 1 | bit);
    let (mut at, mut text) = (0, Vec::new());
    while bits.len() - at >= 5 {
        let five = number(&bits[at..at + 5]);
        if five < 3 {
            text.push(b'0' + five);
            at += 5;
        } else if bits.len() - at >= 6 && (0b01_1001..=0b01_1111).contains(&number(&bits[at..at + 6])) {
            text.push(b'3' + number(&bits[at..at + 6]) - 0b01_1001);
            at += 6;
        } else {
            break; // padding
        }
    }
    text
}
