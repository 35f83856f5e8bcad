//! A connection of HTTP/2 to a site of files that lie there: requests in any spelling of HPACK, in any pieces, with windows
//! that change, frames that nobody needs, and bytes that are none. A model of the client's side knows what may come when: no
//! frame longer than it takes, no byte beyond a window, one answer a request, and that the one that `handler` gives.

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
use super::pipe::{Pipe, Woken};
use super::recipe::Recipe;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const FILES: [(&str, usize); 5] =
    [("index.html", 500), ("large.html", 150_000), ("a.txt", 3), ("empty.txt", 0), ("middle.css", 17_000)];
const TARGETS: [&str; 8] =
    ["/", "/large.html", "/a.txt", "/empty.txt", "/middle.css", "/missing", "/missing.js", "/large?x"];

/// What the client knows of a stream.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
struct Stream {
    window: i64,
    /// Method and target.
    asked: (Method, &'static str),
    /// Whether the client has ended its side.
    is_said: bool,
    /// Whether it had when it asked.
    was_said: bool,
    status: Option<u16>,
    length: Option<usize>,
    body: Vec<u8>,
    is_over: bool,
    is_given_up: bool,
    /// Whether the server may end it for what the client has sent on it (RFC 9113, 8.1.1).
    is_malformed: bool,
}

/// The client's side.
struct Client {
    site: Arc<Site>,
    two: Http2Connection,
    pipe: Pipe,
    window: i64,
    initial: i64,
    most: usize,
    streams: BTreeMap<u32, Stream>,
    next: u32,
    decoder: HpackDecoder,
    /// What the client has put into the table, the newest first, and what it counts.
    table: VecDeque<(String, String)>,
    /// Whether it has sent what it may not, or nobody knows what.
    is_wild: bool,
    has_ended: bool,
    /// Whether other things arrive with the next: the server may send between two of them.
    is_batch: bool,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

impl Client {
    fn new(takes: usize) -> Client {
        let content = |(name, len): &(&str, usize)| {
            let text: Vec<u8> = (0..*len).map(|n| b'a' + (n * 7 / 3 % 26) as u8).collect();
            (name.as_bytes().to_vec(), text)
        };
        let site = address::site(&FILES.iter().map(content).collect(), SiteSettings::default());
        let peer = Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), is_encrypted: false };
        let two = Http2Connection::new(Arc::clone(&site), peer, Arc::new(AtomicBool::new(false)));
        Client {
            site,
            two,
            pipe: Pipe { takes, ..Pipe::default() },
            window: 65_535,
            initial: 65_535,
            most: 16_384,
            streams: BTreeMap::new(),
            next: 1,
            decoder: HpackDecoder::default(),
            table: VecDeque::new(),
            is_wild: false,
            has_ended: false,
            is_batch: false,
        }
    }

    /// Sends bytes in pieces, and looks at what comes.
    fn send(&mut self, bytes: &[u8], piece: usize) {
        for piece in bytes.chunks(piece) {
            self.pipe.input.extend(piece);
            self.turn();
        }
    }

    fn turn(&mut self) {
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut context = Context::from_waker(&waker);
        let most = 100_000 + self.pipe.input.len();
        for _ in 0..most {
            if self.has_ended {
                break;
            }
            let before = (self.pipe.input.len(), self.pipe.output.len());
            self.has_ended = self.two.poll(&mut self.pipe, &mut context).is_ready();
            // A turn has an end, behind which nothing is left to do, or it wakes itself, or it has done something.
            let is_woken = woken.take();
            if !is_woken && before == (self.pipe.input.len(), self.pipe.output.len()) {
                break;
            }
        }
        let output = std::mem::take(&mut self.pipe.output);
        let mut rest = &output[..];
        while !rest.is_empty() {
            let len = number(&rest[..3]) as usize;
            self.come(rest[3], rest[4], number(&rest[5..9]), &rest[9..9 + len]);
            rest = &rest[9 + len..];
        }
    }

    /// A frame of the server's.
    fn come(&mut self, kind: u8, flags: u8, id: u32, payload: &[u8]) {
        assert!(payload.len() <= self.most || self.is_wild, "a frame of {} bytes", payload.len());
        match kind {
            0 => {
                let len = i64::try_from(payload.len()).expect("a frame is short");
                self.window -= len;
                let stream = self.streams.get_mut(&id).filter(|_| !self.is_wild);
                let Some(stream) = stream else { return assert!(self.is_wild, "data of nothing") };
                stream.window -= len;
                let fits = payload.is_empty() || (stream.window >= 0 && self.window >= 0);
                assert!(fits, "{} and {} are left of windows", stream.window, self.window);
                // Of one that was given up in the same breath some may have gone before that was looked at.
                assert!(stream.status.is_some() && !stream.is_over);
                stream.body.extend_from_slice(payload);
                self.end(id, flags);
            }
            1 => {
                assert_eq!(flags & 4, 4, "a short head in one frame");
                let mut fields = DecodedFields::default();
                self.decoder.decode(payload, &mut fields).expect("a block that can be decoded");
                if self.is_wild {
                    return;
                }
                let text = |name: &[u8]| {
                    let found = fields.iter().find(|(known, _)| *known == name);
                    found.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
                };
                assert_eq!(fields.iter().next().map(|(name, _)| name), Some(&b":status"[..]));
                let stream = self.streams.get_mut(&id).expect("an answer to a request");
                // One that was given up in the same breath has had its head.
                assert!(stream.status.is_none(), "one head an answer");
                stream.status = text(b":status").and_then(|status| status.parse().ok());
                stream.length = text(b"content-length").and_then(|length| length.parse().ok());
                assert!(text(b"date").is_some() && text(b"connection").is_none());
                self.end(id, flags);
            }
            3 => {
                let code = number(payload);
                let Some(stream) = self.streams.get(&id) else { return assert!(self.is_wild) };
                // Nobody wants the rest of a long body; else there is no reason but the client's.
                let is_right =
                    if code == 0 { stream.is_over && !stream.was_said } else { code == 1 && stream.is_malformed };
                assert!(self.is_wild || is_right, "reset {code}");
            }
            7 => assert!(self.is_wild, "goodbye {}", number(&payload[4..8])),
            4 | 6 | 8 => {}
            other => panic!("a frame of kind {other}"),
        }
    }

    /// Compares an answer that is whole.
    fn end(&mut self, id: u32, flags: u8) {
        if flags & 1 == 0 {
            return;
        }
        let stream = self.streams.get_mut(&id).expect("it is there");
        assert!(!stream.is_over, "one end an answer");
        stream.is_over = true;
        let (method, target) = stream.asked.clone();
        let expected = address::ask(&self.site, method.clone(), target).expect("a target that can be asked for");
        assert_eq!(stream.status, Some(expected.status), "{method} {target}");
        assert!(stream.body == expected.body, "{method} {target}: {} bytes", stream.body.len());
        if method == Method::GET {
            assert_eq!(stream.length, Some(stream.body.len()), "{method} {target}");
        }
    }

    /// Puts a field behind a block, in one of its spellings.
    fn spell(&mut self, recipe: &mut Recipe<'_>, name: &str, value: &str, block: &mut Vec<u8>) {
        let known = self.table.iter().position(|(n, v)| n == name && v == value);
        match (recipe.below(3), known) {
            (0, Some(at)) if at < 60 => block.push(0x80 | (62 + at) as u8),
            (1, _) => {
                block.extend_from_slice(&[0x40, name.len() as u8]);
                block.extend_from_slice(name.as_bytes());
                block.push(value.len() as u8);
                block.extend_from_slice(value.as_bytes());
                self.table.push_front((name.to_owned(), value.to_owned()));
                let size = |table: &VecDeque<(String, String)>| {
                    table.iter().map(|(name, value)| name.len() + value.len() + 32).sum::<usize>()
                };
                while size(&self.table) > 4096 {
                    self.table.pop_back();
                }
            }
            _ => encode::append_field(name, value.as_bytes(), block),
        }
    }

    /// A request, perhaps with a body.
    fn ask(&mut self, recipe: &mut Recipe<'_>) -> Vec<u8> {
        let open = self.streams.values().filter(|stream| !stream.is_over && !stream.is_given_up).count();
        if open >= 100 {
            return Vec::new();
        }
        let method = recipe.one_of(&["GET", "GET", "GET", "HEAD", "POST", "OPTIONS"]);
        let target = recipe.one_of(&TARGETS);
        let mut block = Vec::new();
        for (name, value) in
            [(":method", method), (":scheme", "http"), (":path", target), (":authority", "site.example")]
        {
            self.spell(recipe, name, value, &mut block);
        }
        for _ in 0..recipe.below(4) {
            let (name, value) =
                recipe.one_of(&[("user-agent", "fuzz"), ("x-a", ""), ("x-b", "some value"), ("te", "trailers")]);
            self.spell(recipe, name, value, &mut block);
        }
        let is_said = method != "POST" || recipe.once_in(2);
        let id = self.next;
        self.next += 2;
        let stream = Stream {
            window: self.initial,
            asked: (Method::from_bytes(method.as_bytes()).expect("a method"), target),
            is_said,
            was_said: is_said,
            status: None,
            length: None,
            body: Vec::new(),
            is_over: false,
            is_given_up: false,
            is_malformed: false,
        };
        self.streams.insert(id, stream);
        let flags = u8::from(is_said);
        if recipe.once_in(4) {
            let at = recipe.below(256).min(block.len());
            return [frame(1, flags, id, &block[..at]), frame(9, 4, id, &block[at..])].concat();
        }
        frame(1, flags | 4, id, &block)
    }

    fn widen(&mut self, id: u32, by: u32) -> Vec<u8> {
        let window =
            if id == 0 { Some(&mut self.window) } else { self.streams.get_mut(&id).map(|one| &mut one.window) };
        match window {
            Some(window) if by > 0 && *window + i64::from(by) <= 0x7fff_ffff => {
                *window += i64::from(by);
                frame(8, 0, id, &by.to_be_bytes())
            }
            _ => Vec::new(),
        }
    }

    fn settle(&mut self, recipe: &mut Recipe<'_>) -> Vec<u8> {
        let mut initial = recipe.one_of(&[0u32, 1, 100, 65_535, 1 << 20]);
        if self.is_batch {
            // What was sent before windows became smaller would seem too much.
            initial = initial.max(u32::try_from(self.initial).expect("it is a window"));
        }
        self.streams.values_mut().for_each(|stream| stream.window += i64::from(initial) - self.initial);
        self.initial = i64::from(initial);
        // Frames that are on their way may still be as long as before.
        self.most = self.most.max(recipe.one_of(&[16_384, 20_000, 1 << 20]));
        let values = [(4u16, initial), (5, self.most as u32), (1, 0), (6, 100), (0xabcd, 7)];
        let payload: Vec<u8> =
            values.iter().flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
        frame(4, 0, 0, &payload)
    }

    /// Trailers behind a body, good or malformed; nothing where a request has ended.
    fn end_with_trailers(&mut self, recipe: &mut Recipe<'_>) -> Vec<u8> {
        let Some(id) = self.some_stream(recipe) else { return Vec::new() };
        let stream = self.streams.get_mut(&id).expect("it is there");
        if stream.is_said {
            return Vec::new();
        }
        let (name, value, is_malformed) = recipe.one_of(&[
            ("x-sum", "abc", false),
            ("x-sum", "", false),
            (":path", "/", true),
            ("X-Sum", "abc", true),
            ("x-sum", " abc", true),
        ]);
        stream.is_said = true;
        if is_malformed {
            (stream.is_malformed, stream.is_given_up) = (true, true);
        }
        let mut block = Vec::new();
        self.spell(recipe, name, value, &mut block);
        frame(1, 5, id, &block)
    }

    fn some_stream(&self, recipe: &mut Recipe<'_>) -> Option<u32> {
        let at = recipe.below(256);
        (!self.streams.is_empty()).then(|| *self.streams.keys().nth(at % self.streams.len()).expect("one of them"))
    }

    /// One thing that a client does.
    fn act(&mut self, recipe: &mut Recipe<'_>) -> Vec<u8> {
        match recipe.below(16) {
            0..=6 => self.ask(recipe),
            7 => {
                let by = recipe.one_of(&[1, 1000, 65_535, 1 << 20]);
                self.widen(0, by)
            }
            8 | 9 => {
                let by = recipe.one_of(&[1, 1000, 65_535, 1 << 20]);
                self.some_stream(recipe).map(|id| self.widen(id, by)).unwrap_or_default()
            }
            10 => self.settle(recipe),
            11 => frame(6, recipe.one_of(&[0, 1]), 0, b"12345678"),
            12 => frame(recipe.one_of(&[2, 0x7f]), 0, 1, b"12345"),
            13 => {
                let Some(id) = self.some_stream(recipe) else { return Vec::new() };
                let stream = self.streams.get_mut(&id).expect("it is there");
                (stream.is_given_up, stream.is_said) = (true, true);
                frame(3, 0, id, &8u32.to_be_bytes())
            }
            14 => {
                let Some(id) = self.some_stream(recipe) else { return Vec::new() };
                let stream = self.streams.get_mut(&id).expect("it is there");
                if stream.is_said {
                    return Vec::new();
                }
                if recipe.once_in(4) {
                    return self.end_with_trailers(recipe);
                }
                stream.is_said = recipe.once_in(2);
                let content = &[7; 255][..recipe.below(256)];
                frame(0, u8::from(stream.is_said), id, content)
            }
            _ => {
                self.is_wild = true;
                let most = recipe.below(256);
                let bytes = recipe.bytes(most).to_vec();
                if bytes.len() >= 6 && recipe.once_in(2) {
                    return frame(bytes[0] % 11, bytes[1], u32::from(bytes[2] % 16), &bytes[3..]);
                }
                bytes
            }
        }
    }
}

/// See the head of this file.
pub fn http2(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let mut client = Client::new(recipe.one_of(&[usize::MAX, 1000, 7]));
    client.send(&[PREFACE, &frame(4, 0, 0, &[])].concat(), recipe.one_of(&[1000, 1]));
    for _ in 0..200 {
        if recipe.is_empty() || client.has_ended {
            break;
        }
        let mut bytes = client.act(&mut recipe);
        let mut piece = recipe.one_of(&[100_000, 100_000, 1, 10]);
        // Some things arrive together: the model has to know in which order they are looked at.
        client.is_batch = true;
        while recipe.once_in(4) {
            bytes.extend(client.act(&mut recipe));
            piece = 100_000;
        }
        client.is_batch = false;
        client.send(&bytes, piece);
    }
    if client.is_wild {
        return;
    }
    assert!(!client.has_ended, "it has ended by itself");
    // With room enough every answer comes, and comes whole.
    let wide = client.widen(0, 0x3fff_ffff);
    client.send(&wide, 100);
    let ids: Vec<u32> = client.streams.keys().copied().collect();
    for id in ids {
        let wide = client.widen(id, 1 << 20);
        client.send(&wide, 100);
    }
    for (id, stream) in &client.streams {
        assert!(stream.is_over || stream.is_given_up, "no answer on {id}: {:?}", stream.asked);
    }
}
