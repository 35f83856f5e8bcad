//! An HTTP/2 connection to a site: requests in any HPACK representation and in any pieces, with changes of flow-control
//! windows, unnecessary frames and invalid bytes. A model of the client checks that no frame exceeds the maximum frame
//! size, that no byte exceeds a flow-control window, and that each request gets one response: the handler's.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Waker};

use docwharf::serve::http2::Http2Connection;
use docwharf::serve::http2::hpack::{DecodedFields, HpackDecoder, encode};
use docwharf::serve::peer::Peer;
use docwharf::serve::{Site, SiteSettings};
use http::Method;

use super::address;
use super::fuzz_input::FuzzInput;
use super::pipe::{Pipe, WakeFlag};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FILES: [(&str, usize); 5] =
    [("index.html", 500), ("large.html", 150_000), ("a.txt", 3), ("empty.txt", 0), ("middle.css", 17_000)];
const TARGETS: [&str; 8] =
    ["/", "/large.html", "/a.txt", "/empty.txt", "/middle.css", "/missing", "/missing.js", "/large?x"];

/// The state of a stream at the client.
#[allow(clippy::struct_excessive_bools)] // the facts are independent
struct Stream {
    window: i64,
    /// Method and target.
    request: (Method, &'static str),
    /// Whether the client has sent END_STREAM.
    is_request_ended: bool,
    /// Whether the client sent END_STREAM with the request's HEADERS.
    was_ended_with_headers: bool,
    status: Option<u16>,
    content_length: Option<usize>,
    body: Vec<u8>,
    /// Whether the response is complete.
    is_response_ended: bool,
    /// Whether the client has reset the stream or sent a malformed request.
    is_aborted: bool,
    /// Whether the request is malformed, so that the server may reset the stream (RFC 9113, 8.1.1).
    is_malformed: bool,
}

/// The model of the client.
struct Client {
    site: Arc<Site>,
    connection: Http2Connection,
    pipe: Pipe,
    window: i64,
    initial_window: i64,
    max_frame_len: usize,
    streams: BTreeMap<u32, Stream>,
    next_stream_id: u32,
    decoder: HpackDecoder,
    /// The dynamic table of the client's HPACK encoder, the newest entry first.
    encoder_table: VecDeque<(String, String)>,
    /// Whether the client has sent invalid or random bytes.
    has_sent_garbage: bool,
    has_ended: bool,
    /// Whether several actions are sent together. The server may send frames between them.
    is_batch: bool,
}

fn make_frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn read_u32(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

impl Client {
    fn new(max_write: usize) -> Client {
        let content = |(name, len): &(&str, usize)| {
            let text: Vec<u8> = (0..*len).map(|n| b'a' + (n * 7 / 3 % 26) as u8).collect();
            (name.as_bytes().to_vec(), text)
        };
        let site = address::make_site(&FILES.iter().map(content).collect(), SiteSettings::default());
        let peer = Peer {
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
            is_encrypted: false,
            is_loopback_listener: false,
        };
        let connection = Http2Connection::new(Arc::clone(&site), peer, Arc::new(AtomicBool::new(false)));
        Client {
            site,
            connection,
            pipe: Pipe { max_write, ..Pipe::default() },
            window: 65_535,
            initial_window: 65_535,
            max_frame_len: 16_384,
            streams: BTreeMap::new(),
            next_stream_id: 1,
            decoder: HpackDecoder::default(),
            encoder_table: VecDeque::new(),
            has_sent_garbage: false,
            has_ended: false,
            is_batch: false,
        }
    }

    /// Sends bytes in pieces, and checks the frames that the server sends.
    fn send(&mut self, bytes: &[u8], piece_len: usize) {
        for piece in bytes.chunks(piece_len) {
            self.pipe.input.extend(piece);
            self.poll_server();
        }
    }

    /// Polls the server until it waits, and checks its frames.
    fn poll_server(&mut self) {
        let wake_flag = Arc::<WakeFlag>::default();
        let waker = Waker::from(Arc::clone(&wake_flag));
        let mut context = Context::from_waker(&waker);
        let max_polls = 100_000 + self.pipe.input.len();
        for _ in 0..max_polls {
            if self.has_ended {
                break;
            }
            let before = (self.pipe.input.len(), self.pipe.output.len());
            self.has_ended = self.connection.poll(&mut self.pipe, &mut context).is_ready();
            // The connection is idle if it neither woke itself nor read or wrote any bytes.
            let is_woken = wake_flag.take();
            if !is_woken && before == (self.pipe.input.len(), self.pipe.output.len()) {
                break;
            }
        }
        let output = std::mem::take(&mut self.pipe.output);
        let mut remaining = &output[..];
        while !remaining.is_empty() {
            let len = read_u32(&remaining[..3]) as usize;
            self.receive_frame(remaining[3], remaining[4], read_u32(&remaining[5..9]), &remaining[9..9 + len]);
            remaining = &remaining[9 + len..];
        }
    }

    /// Checks a frame from the server.
    fn receive_frame(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        assert!(payload.len() <= self.max_frame_len || self.has_sent_garbage, "a frame of {} bytes", payload.len());
        match kind {
            0 => {
                let len = i64::try_from(payload.len()).expect("a frame is short");
                self.window -= len;
                let stream = self.streams.get_mut(&id).filter(|_| !self.has_sent_garbage);
                let Some(stream) = stream else { return assert!(self.has_sent_garbage, "DATA without a request") };
                stream.window -= len;
                let fits = payload.is_empty() || (stream.window >= 0 && self.window >= 0);
                assert!(fits, "the flow-control windows are {} and {}", stream.window, self.window);
                // After a reset the server may have sent more before it received the reset.
                assert!(stream.status.is_some() && !stream.is_response_ended);
                stream.body.extend_from_slice(payload);
                self.check_end(id, flags);
            }
            1 => {
                assert_eq!(flags & 4, 4, "the field block is in one frame");
                let mut fields = DecodedFields::default();
                self.decoder.decode(payload, &mut fields).expect("a block that can be decoded");
                if self.has_sent_garbage {
                    return;
                }
                let text = |name: &[u8]| {
                    let field = fields.iter().find(|(field_name, _)| *field_name == name);
                    field.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                };
                assert_eq!(fields.iter().next().map(|(name, _)| name), Some(&b":status"[..]));
                let stream = self.streams.get_mut(&id).expect("the response to a request");
                // Also after a reset the head arrives at most once.
                assert!(stream.status.is_none(), "one HEADERS frame for each response");
                stream.status = text(b":status").and_then(|status| status.parse().ok());
                stream.content_length = text(b"content-length").and_then(|length| length.parse().ok());
                assert!(text(b"date").is_some() && text(b"connection").is_none());
                self.check_end(id, flags);
            }
            3 => {
                let code = read_u32(payload);
                let Some(stream) = self.streams.get(&id) else { return assert!(self.has_sent_garbage) };
                // The server stops a long request body with NO_ERROR, and resets malformed requests.
                let is_allowed = if code == 0 {
                    stream.is_response_ended && !stream.was_ended_with_headers
                } else {
                    code == 1 && stream.is_malformed
                };
                assert!(self.has_sent_garbage || is_allowed, "RST_STREAM {code}");
            }
            7 => assert!(self.has_sent_garbage, "GOAWAY {}", read_u32(&payload[4..8])),
            4 | 6 | 8 => {}
            other => panic!("a frame of type {other}"),
        }
    }

    /// Compares a complete response with the handler's.
    fn check_end(&mut self, id: u32, flags: u8) {
        if flags & 1 == 0 {
            return;
        }
        let stream = self.streams.get_mut(&id).expect("the stream exists");
        assert!(!stream.is_response_ended, "one END_STREAM for each response");
        stream.is_response_ended = true;
        let (method, target) = stream.request.clone();
        let expected = address::request_target(&self.site, method.clone(), target).expect("the target is valid");
        assert_eq!(stream.status, Some(expected.status), "{method} {target}");
        assert!(stream.body == expected.body, "{method} {target}: {} bytes", stream.body.len());
        if method == Method::GET {
            assert_eq!(stream.content_length, Some(stream.body.len()), "{method} {target}");
        }
    }

    /// Appends a field to a block in one of its representations.
    fn append_field(&mut self, input: &mut FuzzInput<'_>, name: &str, value: &str, block: &mut Vec<u8>) {
        let index = self.encoder_table.iter().position(|(n, v)| n == name && v == value);
        match (input.below(3), index) {
            (0, Some(index)) if index < 60 => block.push(0x80 | (62 + index) as u8),
            (1, _) => {
                block.extend_from_slice(&[0x40, name.len() as u8]);
                block.extend_from_slice(name.as_bytes());
                block.push(value.len() as u8);
                block.extend_from_slice(value.as_bytes());
                self.encoder_table.push_front((name.to_owned(), value.to_owned()));
                let size = |table: &VecDeque<(String, String)>| {
                    table.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>()
                };
                while size(&self.encoder_table) > 4096 {
                    self.encoder_table.pop_back();
                }
            }
            _ => encode::append_field(name, value.as_bytes(), block),
        }
    }

    /// Starts a request. Its body may follow.
    fn start_request(&mut self, input: &mut FuzzInput<'_>) -> Vec<u8> {
        let open = self.streams.values().filter(|stream| !stream.is_response_ended && !stream.is_aborted).count();
        if open >= 100 {
            return Vec::new();
        }
        let method = input.one_of(&["GET", "GET", "GET", "HEAD", "POST", "OPTIONS"]);
        let target = input.one_of(&TARGETS);
        let mut block = Vec::new();
        for (name, value) in
            [(":method", method), (":scheme", "http"), (":path", target), (":authority", "site.example")]
        {
            self.append_field(input, name, value, &mut block);
        }
        for _ in 0..input.below(4) {
            let (name, value) =
                input.one_of(&[("user-agent", "fuzz"), ("x-a", ""), ("x-b", "some value"), ("te", "trailers")]);
            self.append_field(input, name, value, &mut block);
        }
        let is_request_ended = method != "POST" || input.once_in(2);
        let id = self.next_stream_id;
        self.next_stream_id += 2;
        let stream = Stream {
            window: self.initial_window,
            request: (Method::from_bytes(method.as_bytes()).expect("a method"), target),
            is_request_ended,
            was_ended_with_headers: is_request_ended,
            status: None,
            content_length: None,
            body: Vec::new(),
            is_response_ended: false,
            is_aborted: false,
            is_malformed: false,
        };
        self.streams.insert(id, stream);
        let flags = u8::from(is_request_ended);
        if input.once_in(4) {
            let split = input.below(256).min(block.len());
            return [make_frame(1, flags, id, &block[..split]), make_frame(9, 4, id, &block[split..])].concat();
        }
        make_frame(1, flags | 4, id, &block)
    }

    /// WINDOW_UPDATE for the connection (0) or a stream. Empty if the window would be too large.
    fn update_window(&mut self, id: u32, increment: u32) -> Vec<u8> {
        let window =
            if id == 0 { Some(&mut self.window) } else { self.streams.get_mut(&id).map(|stream| &mut stream.window) };
        match window {
            Some(window) if increment > 0 && *window + i64::from(increment) <= 0x7fff_ffff => {
                *window += i64::from(increment);
                make_frame(8, 0, id, &increment.to_be_bytes())
            }
            _ => Vec::new(),
        }
    }

    /// SETTINGS with new values.
    fn change_settings(&mut self, input: &mut FuzzInput<'_>) -> Vec<u8> {
        let mut initial_window = input.one_of(&[0u32, 1, 100, 65_535, 1 << 20]);
        if self.is_batch {
            // Frames that the server sent before it read smaller windows would seem too long.
            initial_window = initial_window.max(u32::try_from(self.initial_window).expect("a window fits u32"));
        }
        self.streams.values_mut().for_each(|stream| stream.window += i64::from(initial_window) - self.initial_window);
        self.initial_window = i64::from(initial_window);
        // Frames that were already sent may have the earlier maximum length.
        self.max_frame_len = self.max_frame_len.max(input.one_of(&[16_384, 20_000, 1 << 20]));
        let values = [(4u16, initial_window), (5, self.max_frame_len as u32), (1, 0), (6, 100), (0xabcd, 7)];
        let payload: Vec<u8> =
            values.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        make_frame(4, 0, 0, &payload)
    }

    /// Sends trailers, valid or malformed. Empty if the request has ended.
    fn send_trailers(&mut self, input: &mut FuzzInput<'_>) -> Vec<u8> {
        let Some(id) = self.select_stream(input) else { return Vec::new() };
        let stream = self.streams.get_mut(&id).expect("the stream exists");
        if stream.is_request_ended {
            return Vec::new();
        }
        let (name, value, is_malformed) = input.one_of(&[
            ("x-sum", "abc", false),
            ("x-sum", "", false),
            (":path", "/", true),
            ("X-Sum", "abc", true),
            ("x-sum", " abc", true),
        ]);
        stream.is_request_ended = true;
        if is_malformed {
            (stream.is_malformed, stream.is_aborted) = (true, true);
        }
        let mut block = Vec::new();
        self.append_field(input, name, value, &mut block);
        make_frame(1, 5, id, &block)
    }

    /// Selects a stream.
    fn select_stream(&self, input: &mut FuzzInput<'_>) -> Option<u32> {
        let n = input.below(256);
        (!self.streams.is_empty())
            .then(|| *self.streams.keys().nth(n % self.streams.len()).expect("the index is in range"))
    }

    /// Performs one action. Returns the bytes to send.
    fn act(&mut self, input: &mut FuzzInput<'_>) -> Vec<u8> {
        match input.below(16) {
            0..=6 => self.start_request(input),
            7 => {
                let increment = input.one_of(&[1, 1000, 65_535, 1 << 20]);
                self.update_window(0, increment)
            }
            8 | 9 => {
                let increment = input.one_of(&[1, 1000, 65_535, 1 << 20]);
                self.select_stream(input).map(|id| self.update_window(id, increment)).unwrap_or_default()
            }
            10 => self.change_settings(input),
            11 => make_frame(6, input.one_of(&[0, 1]), 0, b"12345678"),
            12 => make_frame(input.one_of(&[2, 0x7f]), 0, 1, b"12345"),
            13 => {
                let Some(id) = self.select_stream(input) else { return Vec::new() };
                let stream = self.streams.get_mut(&id).expect("the stream exists");
                (stream.is_aborted, stream.is_request_ended) = (true, true);
                make_frame(3, 0, id, &8u32.to_be_bytes())
            }
            14 => {
                let Some(id) = self.select_stream(input) else { return Vec::new() };
                let stream = self.streams.get_mut(&id).expect("the stream exists");
                if stream.is_request_ended {
                    return Vec::new();
                }
                if input.once_in(4) {
                    return self.send_trailers(input);
                }
                stream.is_request_ended = input.once_in(2);
                let content = &[7; 255][..input.below(256)];
                make_frame(0, u8::from(stream.is_request_ended), id, content)
            }
            _ => {
                self.has_sent_garbage = true;
                let max_len = input.below(256);
                let bytes = input.bytes(max_len).to_vec();
                if bytes.len() >= 6 && input.once_in(2) {
                    return make_frame(bytes[0] % 11, bytes[1], u32::from(bytes[2] % 16), &bytes[3..]);
                }
                bytes
            }
        }
    }
}

/// The fuzz target: see the module documentation.
pub fn http2(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let mut client = Client::new(input.one_of(&[usize::MAX, 1000, 7]));
    client.send(&[PREFACE, &make_frame(4, 0, 0, &[])].concat(), input.one_of(&[1000, 1]));
    for _ in 0..200 {
        if input.is_empty() || client.has_ended {
            break;
        }
        let mut bytes = client.act(&mut input);
        let mut piece_len = input.one_of(&[100_000, 100_000, 1, 10]);
        // Some actions are sent together. The model must know in which order the server reads them.
        client.is_batch = true;
        while input.once_in(4) {
            bytes.extend(client.act(&mut input));
            piece_len = 100_000;
        }
        client.is_batch = false;
        client.send(&bytes, piece_len);
    }
    if client.has_sent_garbage {
        return;
    }
    assert!(!client.has_ended, "the server has ended the connection");
    // With large enough windows, all responses are complete.
    let window_update = client.update_window(0, 0x3fff_ffff);
    client.send(&window_update, 100);
    let ids: Vec<u32> = client.streams.keys().copied().collect();
    for id in ids {
        let window_update = client.update_window(id, 1 << 20);
        client.send(&window_update, 100);
    }
    for (id, stream) in &client.streams {
        assert!(stream.is_response_ended || stream.is_aborted, "no response on {id}: {:?}", stream.request);
    }
}
