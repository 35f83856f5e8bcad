//! An HTTP/2 client that sends frame by frame, so that a test can send any invalid frame. It works in cleartext with
//! prior knowledge, or over TLS.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use docwharf::serve::http2::hpack::{DecodedFields, HpackDecoder};

use crate::http::Response;
use crate::upstream::ByteStream;

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

/// The ACK flag of SETTINGS and PING.
pub const ACK: u8 = 1;
/// The END_STREAM flag of DATA and HEADERS.
pub const END_STREAM: u8 = 1;
/// The END_HEADERS flag of HEADERS and CONTINUATION.
pub const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 32;

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StreamOutcome {
    /// A complete response.
    Response {
        /// The status code.
        status: u16,
        /// The body without its frames.
        body: Vec<u8>,
    },
    /// The stream was reset with this code.
    Reset(u32),
    /// The connection was closed, with the error code of its GOAWAY frame if there was one.
    ConnectionClosed(Option<u32>),
}

/// A response that is still arriving.
#[derive(Debug, Default)]
struct PartialResponse {
    block: Vec<u8>,
    status: Option<u16>,
    body: Vec<u8>,
    has_ended: bool,
    /// The error code of a reset before the end of the response.
    reset: Option<u32>,
    /// The error code of a reset after the complete response.
    reset_after_end: Option<u32>,
    /// The increments of the stream's flow-control window that no test has read yet.
    granted: usize,
}

/// A connection of an HTTP/2 client.
pub struct Http2Client {
    stream: Box<dyn ByteStream>,
    /// The connection below TLS, or the connection itself.
    socket: TcpStream,
    responses: HashMap<u32, PartialResponse>,
    next_stream: u32,
    goaway: Option<u32>,
    ping_acks: usize,
}

impl Http2Client {
    /// Opens a connection with the largest flow-control windows.
    pub fn open(address: &str) -> Http2Client {
        let mut client = Http2Client::open_with_window(address, 0x7fff_ffff);
        client.widen_connection_window();
        client
    }

    /// Raises the flow-control window of the connection to its maximum (RFC 9113, 6.9.1).
    pub fn widen_connection_window(&mut self) {
        let increment = (0x7fff_ffff_u32 - 65_535).to_be_bytes();
        self.send(WINDOW_UPDATE, 0, 0, &increment).expect("the server reads");
    }

    /// Opens a connection on which the flow-control window of each stream is `window` bytes.
    pub fn open_with_window(address: &str, window: u32) -> Http2Client {
        let stream = TcpStream::connect(address).expect("the server accepts");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
        stream.set_write_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
        stream.set_nodelay(true).expect("an option can be set");
        let socket = stream.try_clone().expect("the descriptor can be duplicated");
        Http2Client::over(Box::new(stream), socket, window)
    }

    /// Starts HTTP/2 on an established connection; `socket` is the TCP socket below it.
    pub fn over(stream: Box<dyn ByteStream>, socket: TcpStream, window: u32) -> Http2Client {
        let mut client =
            Http2Client { stream, socket, responses: HashMap::new(), next_stream: 1, goaway: None, ping_acks: 0 };
        client.stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").expect("the server reads");
        let mut settings = Vec::new();
        // No dynamic table for responses, no server push.
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
        let result = self.stream.write_all(bytes);
        if let Err(error) = &result {
            assert!(!is_timeout(error), "the server neither reads nor closes");
        }
        result
    }

    /// Shortens the timeout of writes to 300 ms.
    pub fn shorten_write_timeout(&mut self) {
        self.socket.set_write_timeout(Some(Duration::from_millis(300))).expect("a timeout can be set");
    }

    /// Sends bytes; returns false if the server does not read them all in time, or has closed.
    pub fn send_some(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Returns the id of a new stream.
    pub fn new_stream(&mut self) -> u32 {
        self.next_stream += 2;
        self.next_stream - 2
    }

    /// Sends a request without a body and returns its stream. Large fields go into CONTINUATION frames.
    pub fn send_fields(&mut self, fields: &[(&str, &str)]) -> u32 {
        let stream = self.new_stream();
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

    /// Sends a request with the usual pseudo-header fields and further fields, and returns its stream.
    pub fn request(&mut self, method: &str, path: &str, more: &[(&str, &str)]) -> u32 {
        let mut fields =
            vec![(":method", method), (":scheme", "http"), (":path", path), (":authority", "docs.example")];
        fields.extend_from_slice(more);
        self.send_fields(&fields)
    }

    /// Sends a request with a body in one frame for each chunk, and returns its stream.
    pub fn request_with_body(&mut self, method: &str, path: &str, more: &[(&str, &str)], chunks: &[&[u8]]) -> u32 {
        let stream = self.new_stream();
        let mut fields =
            vec![(":method", method), (":scheme", "http"), (":path", path), (":authority", "docs.example")];
        fields.extend_from_slice(more);
        let _ = self.send(HEADERS, END_HEADERS, stream, &block(&fields));
        for chunk in chunks {
            let _ = self.send(DATA, 0, stream, chunk);
        }
        let _ = self.send(DATA, END_STREAM, stream, b"");
        stream
    }

    /// Sends a GET and waits for its outcome.
    #[track_caller]
    pub fn get(&mut self, path: &str, more: &[(&str, &str)]) -> StreamOutcome {
        let stream = self.request("GET", path, more);
        self.wait_for_stream(stream)
    }

    /// Waits for the outcome of a stream.
    #[track_caller]
    pub fn wait_for_stream(&mut self, stream: u32) -> StreamOutcome {
        loop {
            if let Some(partial) = self.responses.get_mut(&stream) {
                if let Some(code) = partial.reset {
                    return StreamOutcome::Reset(code);
                }
                if partial.has_ended {
                    let status = partial.status.expect("a response has a status");
                    return StreamOutcome::Response { status, body: std::mem::take(&mut partial.body) };
                }
            }
            if !self.receive() {
                return StreamOutcome::ConnectionClosed(self.goaway);
            }
        }
    }

    /// Waits for the complete response of a stream, with its fields. The HPACK decoder of docwharf decodes them.
    #[track_caller]
    pub fn response(&mut self, stream: u32) -> Response {
        let outcome = self.wait_for_stream(stream);
        let StreamOutcome::Response { status, body } = outcome else { panic!("no response: {outcome:?}") };
        let mut fields = DecodedFields::default();
        // A block can refer to earlier blocks only through the dynamic table, which has size 0 here.
        HpackDecoder::default().decode(&self.responses[&stream].block, &mut fields).expect("a block of fields");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let headers = fields.iter().filter(|(name, _)| *name != b":status");
        Response { status, headers: headers.map(|(name, value)| (text(name), text(value))).collect(), body }
    }

    /// The error code of the GOAWAY frame that the server has sent.
    pub fn goaway(&self) -> Option<u32> {
        self.goaway
    }

    /// The number of PING acknowledgements that were received.
    pub fn ping_acks(&self) -> usize {
        self.ping_acks
    }

    /// The error code of a reset after the complete response: the server reads no more of the request.
    pub fn reset_after_end(&self, stream: u32) -> Option<u32> {
        self.responses.get(&stream).and_then(|partial| partial.reset_after_end)
    }

    /// Returns by how many bytes the server has raised the window of a stream since the last call.
    pub fn take_granted_bytes(&mut self, stream: u32) -> usize {
        self.responses.get_mut(&stream).map_or(0, |partial| std::mem::take(&mut partial.granted))
    }

    /// The number of bytes of a body that were received so far.
    pub fn received_bytes(&self, stream: u32) -> usize {
        self.responses.get(&stream).map_or(0, |partial| partial.body.len())
    }

    /// Reads until the server ends the connection: by a GOAWAY frame with an error, by a reset of its only stream, or
    /// by closing. Panics if it does not.
    #[track_caller]
    pub fn wait_for_end(&mut self) {
        while self.goaway.is_none_or(|code| code == 0) && !self.responses.values().any(|a| a.reset.is_some()) {
            if !self.receive() {
                return;
            }
        }
    }

    /// Reads and processes one frame; returns false at the end of the connection.
    #[track_caller]
    pub fn receive(&mut self) -> bool {
        let mut head = [0; 9];
        if !self.read_exact(&mut head) {
            return false;
        }
        let length = usize::from(head[0]) << 16 | usize::from(head[1]) << 8 | usize::from(head[2]);
        let (kind, flags) = (head[3], head[4]);
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
        let mut payload = vec![0; length];
        if !self.read_exact(&mut payload) {
            return false;
        }
        let code =
            |offset: usize| payload.get(offset..offset + 4).map_or(0, |b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]));
        match kind {
            SETTINGS if flags & ACK == 0 => {
                let _ = self.send(SETTINGS, ACK, 0, &[]);
            }
            PING if flags & ACK == 0 => {
                let _ = self.send(PING, ACK, 0, &payload);
            }
            PING => self.ping_acks += 1,
            WINDOW_UPDATE if stream != 0 => {
                self.responses.entry(stream).or_default().granted += code(0) as usize;
            }
            GOAWAY => self.goaway = Some(code(4)),
            RST_STREAM => {
                let code = code(0);
                let partial = self.responses.entry(stream).or_default();
                // A reset after a complete response means: send no more of the request (RFC 9113, 8.1).
                if partial.has_ended {
                    partial.reset_after_end = Some(code);
                } else {
                    partial.reset = Some(code);
                }
            }
            HEADERS | CONTINUATION | DATA => {
                let partial = self.responses.entry(stream).or_default();
                assert!(!partial.has_ended, "a frame of type {kind} after the end of stream {stream}");
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
                    partial.has_ended = true;
                }
            }
            _ => {}
        }
        true
    }

    #[track_caller]
    fn read_exact(&mut self, buffer: &mut [u8]) -> bool {
        match self.stream.read_exact(buffer) {
            Ok(()) => true,
            Err(error) => {
                assert!(!is_timeout(&error), "the server neither responds nor closes");
                false
            }
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

/// Encodes one frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

/// Encodes a field block of literals that neither use nor change the HPACK tables.
pub fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (name, value) in fields {
        bytes.push(0);
        for text in [name, value] {
            put_length(&mut bytes, text.len());
            bytes.extend_from_slice(text.as_bytes());
        }
    }
    bytes
}

/// Appends an HPACK integer with a prefix of seven bits.
fn put_length(bytes: &mut Vec<u8>, value: usize) {
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

/// Decodes the status of a response, which is the first field of its block.
#[track_caller]
fn status(block: &[u8]) -> u16 {
    // Table size updates come first; with a size of 0 each has one byte.
    let start = block.iter().position(|b| b & 0xe0 != 0x20).expect("a field");
    let block = &block[start..];
    match block[0] {
        first @ 0x88..=0x8e => [200, 204, 206, 304, 400, 404, 500][usize::from(first - 0x88)],
        0x48..=0x4e | 0x08..=0x0e | 0x18..=0x1e => {
            let length = usize::from(block[1] & 0x7f);
            let value = &block[2..2 + length];
            let text = if block[1] & 0x80 == 0 { value.to_vec() } else { decode_digits(value) };
            String::from_utf8_lossy(&text).parse().unwrap_or_else(|_| panic!("no status: {block:02x?}"))
        }
        _ => panic!("the first field is no status: {block:02x?}"),
    }
}

/// Decodes digits in the Huffman code of RFC 7541, appendix B.
fn decode_digits(value: &[u8]) -> Vec<u8> {
    let bits: Vec<u8> = value.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1)).collect();
    let number = |bits: &[u8]| bits.iter().fold(0u8, |number, bit| number << 1 | bit);
    let (mut position, mut text) = (0, Vec::new());
    while bits.len() - position >= 5 {
        let five = number(&bits[position..position + 5]);
        if five < 3 {
            text.push(b'0' + five);
            position += 5;
        } else if bits.len() - position >= 6 && (0b01_1001..=0b01_1111).contains(&number(&bits[position..position + 6]))
        {
            text.push(b'3' + number(&bits[position..position + 6]) - 0b01_1001);
            position += 6;
        } else {
            break; // padding
        }
    }
    text
}
