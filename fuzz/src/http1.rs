//! Heads of requests over HTTP/1.1 (RFC 9112): what is taken for a plain request is what a reader finds in it that knows
//! lines, blanks and colons only, and has nothing that says of a body. A connection gives the same answers in pieces of any
//! size, each of them the one that `handler` gives, and hands the first request that is not plain on with every byte of it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use docwharf::serve::http1::request_head::{HeadOutcome, MAX_HEAD_BYTES, PlainRequestHead, for_each_field, parse_head};
use docwharf::serve::http1::{Http1Connection, Http1Outcome};
use docwharf::serve::peer::Peer;
use docwharf::serve::{Site, SiteSettings};
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{Method, Request};

use super::address::{self, Answer};
use super::pipe::{Pipe, Woken};
use super::recipe::Recipe;

/// A plain request has no more fields.
const MOST_FIELDS: usize = 64;
const FILES: [(&str, &str); 5] = [
    ("index.html", "the first page"),
    ("a.html", "a page"),
    ("a.md", "the same in Markdown"),
    ("b.css", "body {}"),
    ("404.html", "nothing is here"),
];

/// A head as lines, and its first line and fields by blanks and colons.
struct Lines<'a> {
    len: usize,
    method: &'a [u8],
    target: &'a [u8],
    version: &'a [u8],
    fields: Vec<(&'a [u8], &'a [u8])>,
}

/// The length of a whole head, and its lines without their ends. Empty lines before it are a part of it (RFC 9112, 2.2).
fn lines(bytes: &[u8]) -> Option<(usize, Vec<&[u8]>)> {
    let (mut at, mut lines) = (0, Vec::new());
    loop {
        let end = at + bytes[at..].iter().position(|&b| b == b'\n')?;
        let line = &bytes[at..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        at = end + 1;
        if !line.is_empty() {
            lines.push(line);
        } else if !lines.is_empty() {
            return Some((at, lines));
        }
    }
}

/// A value without the white space around it (RFC 9112, 5).
fn trimmed(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn read_lines(bytes: &[u8]) -> Option<Lines<'_>> {
    let (len, lines) = lines(bytes)?;
    let mut words = lines[0].split(|&b| b == b' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if words.next().is_some() {
        return None;
    }
    let mut fields = Vec::new();
    for &line in &lines[1..] {
        let colon = line.iter().position(|&b| b == b':')?;
        fields.push((&line[..colon], trimmed(&line[colon + 1..])));
    }
    Some(Lines { len, method, target, version, fields })
}

fn shown(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

/// A token (RFC 9110, 5.6.2).
fn is_token(text: &[u8]) -> bool {
    let is_in_token = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    !text.is_empty() && text.iter().all(is_in_token)
}

/// What a head says, and that nothing of it says that a body follows (RFC 9112, 6.3): whoever counts bytes of a body in
/// another way finds none either.
fn check_plain(head: &PlainRequestHead<'_>, bytes: &[u8]) {
    let found = read_lines(bytes).unwrap_or_else(|| panic!("plain, but no request in lines: {}", shown(bytes)));
    assert_eq!(shown(head.bytes), shown(&bytes[..found.len]), "where the head ends");
    let method: &[u8] = if head.wants_body { b"GET" } else { b"HEAD" };
    assert_eq!((method, head.target.as_bytes(), &b"HTTP/1.1"[..]), (found.method, found.target, found.version));
    assert!(head.target.starts_with('/') && head.target.bytes().all(|b| b > b' ' && b != 0x7f), "{:?}", head.target);
    let mut fields = Vec::new();
    for_each_field(head.bytes, |name, value| fields.push((name.as_bytes(), value)));
    assert_eq!(fields, found.fields);
    assert!(fields.len() <= MOST_FIELDS && head.bytes.len() <= MAX_HEAD_BYTES);
    let mut closes = false;
    for (name, value) in fields {
        let is_visible = |&b: &u8| b == b'\t' || (b >= b' ' && b != 0x7f);
        assert!(is_token(name) && value.iter().all(is_visible), "{}", shown(bytes));
        match &name.to_ascii_lowercase()[..] {
            b"content-length" | b"transfer-encoding" | b"expect" | b"upgrade" => panic!("framed: {}", shown(bytes)),
            b"connection" => match &value.to_ascii_lowercase()[..] {
                b"close" => closes = true,
                other => assert_eq!(shown(other), "keep-alive"),
            },
            _ => {}
        }
    }
    assert_eq!(head.closes, closes, "{}", shown(bytes));
}

/// What is made of the first head in `bytes`, compared with its lines, and with what is made of a part of it and of more.
fn judge(bytes: &[u8]) -> HeadOutcome<'_> {
    let come = parse_head(bytes);
    let more = [bytes, b"GET / HTTP/1.1\r\nhost: other.example\r\n\r\n"].concat();
    match &come {
        HeadOutcome::Plain(head) => {
            check_plain(head, bytes);
            let len = head.bytes.len();
            assert_eq!(parse_head(head.bytes), come, "what is behind a head is none of it");
            assert_eq!(parse_head(&more), come, "what is behind a head is none of it");
            for cut in (0..len).step_by(len / 40 + 1).chain(len.saturating_sub(4)..len) {
                assert_eq!(parse_head(&bytes[..cut]), HeadOutcome::Partial, "{cut} bytes of {}", shown(head.bytes));
            }
        }
        HeadOutcome::Partial => {
            assert!(bytes.len() <= MAX_HEAD_BYTES && lines(bytes).is_none(), "more is waited for: {}", shown(bytes));
        }
        HeadOutcome::NotPlain => assert_eq!(parse_head(&more), HeadOutcome::NotPlain, "{}", shown(bytes)),
    }
    come
}

/// A request in the making.
struct Draft {
    text: String,
    /// What its lines end with.
    end: &'static str,
    fields: usize,
    is_plain: bool,
}

impl Draft {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push_str(self.end);
    }

    fn field(&mut self, field: &str, is_plain: bool) {
        self.line(field);
        self.fields += 1;
        self.is_plain &= is_plain;
    }

    /// On both sides of the limits.
    fn fill(&mut self, recipe: &mut Recipe<'_>) {
        if recipe.once_in(2) {
            for _ in 0..60 + recipe.below(8) {
                self.field("x: 1", true);
            }
        } else {
            let room = MAX_HEAD_BYTES - 10 + recipe.below(20);
            let rest = "x: ".len() + 2 * self.end.len();
            self.field(&format!("x: {}", "1".repeat(room.saturating_sub(self.text.len() + rest))), true);
        }
    }
}

/// A request by a recipe, and whether it is plain.
fn described(recipe: &mut Recipe<'_>) -> (Vec<u8>, bool) {
    let method = recipe.one_of(&["GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "get", "GETS"]);
    let target = recipe.one_of(&TARGETS);
    let version = recipe.one_of(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "http/1.1"]);
    let is_plain =
        ["GET", "HEAD"].contains(&method) && target.starts_with('/') && !target.contains(' ') && version == "HTTP/1.1";
    let end = recipe.one_of(&["\r\n", "\r\n", "\r\n", "\n"]);
    let text = recipe.one_of(&["", "", "", "", "", "", "\r\n", "\n\r\n"]).to_owned();
    let mut draft = Draft { text, end, fields: 0, is_plain };
    draft.line(&format!("{method} {target} {version}"));
    if !recipe.once_in(8) {
        let host = recipe.one_of(&["site.example", "site.example:80", "[::1]", "a b"]);
        draft.field(&format!("Host: {host}"), true);
    }
    for _ in 0..recipe.below(6) {
        let (name, value, is_good) = recipe.one_of(&FIELDS);
        let (before, behind) = (recipe.one_of(&["", " ", "\t ", " "]), recipe.one_of(&["", "", " ", "\t"]));
        draft.field(&format!("{name}:{before}{value}{behind}"), is_good);
    }
    if recipe.once_in(32) {
        draft.fill(recipe);
    }
    if recipe.once_in(8) {
        draft.field(recipe.one_of(&MALFORMED), false);
    }
    draft.line("");
    let is_plain = draft.is_plain && draft.fields <= MOST_FIELDS && draft.text.len() <= MAX_HEAD_BYTES;
    (draft.text.into_bytes(), is_plain)
}

const TARGETS: [&str; 14] = [
    "/",
    "/a",
    "/a.html",
    "/a?b=c",
    "/missing",
    "/%61",
    "/\u{e9}",
    "/b.css",
    "//",
    "/..",
    "*",
    "x",
    "http://x/",
    "/a b",
];

/// Lines that are no fields.
const MALFORMED: [&str; 10] =
    [" folded", "\tfolded", "Name : x", ": x", "no colon", "a\0: b", "x: \u{1}", "x: a\rb", "\u{e9}: x", "x\r: y"];

/// Fields, and whether a request with them is plain.
const FIELDS: [(&str, &str, bool); 25] = [
    ("Accept-Encoding", "gzip", true),
    ("accept-encoding", "", true),
    ("Accept", "text/markdown", true),
    ("Accept", "*/*", true),
    ("If-None-Match", "*", true),
    ("If-None-Match", "\"x\"", true),
    ("If-Match", "\"x\"", true),
    ("If-Modified-Since", "Sun, 09 Sep 2001 01:46:40 GMT", true),
    ("If-Range", "\"x\"", true),
    ("Range", "bytes=0-1", true),
    ("Range", "bytes=0-1,3-4", true),
    ("Host", "site.example", true),
    ("Connection", "close", true),
    ("Connection", "Keep-Alive", true),
    ("X-Empty", "", true),
    ("X-Text", "caf\u{e9}\tau lait", true),
    ("Content-Length2", "5", true),
    ("connection", "keep-alive, close", false),
    ("Connection", "upgrade", false),
    ("Content-Length", "0", false),
    ("content-length", "5", false),
    ("Transfer-Encoding", "chunked", false),
    ("TRANSFER-ENCODING", "identity", false),
    ("Expect", "100-continue", false),
    ("Upgrade", "h2c", false),
];

/// The request of a head in lines; none if it is none to the `http` crate.
fn request(found: &Lines<'_>) -> Option<Request<()>> {
    let mut request = Request::builder().method(found.method).uri(found.target);
    for (name, value) in &found.fields {
        request = request.header(*name, *value);
    }
    request.body(()).ok()
}

/// Goes on until the connection waits; gives how it goes on, if it ends.
fn turn(plain: &mut Http1Connection, pipe: &mut Pipe) -> Option<Http1Outcome> {
    let woken = Arc::<Woken>::default();
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    for _ in 0..1_000_000 {
        if let Poll::Ready(turn) = plain.poll(pipe, &mut context) {
            return Some(turn);
        }
        if !woken.take() {
            return None;
        }
    }
    panic!("it goes on for ever");
}

/// Sends `text` over a connection in pieces, and compares what comes with what `handler` makes of each request.
fn converse(site: &Arc<Site>, text: &[u8], piece: usize, takes: usize) {
    let (mut at, mut answers, mut is_last) = (0, Vec::new(), false);
    while !is_last
        && let HeadOutcome::Plain(head) = parse_head(&text[at..])
        && let Some(asked) = read_lines(head.bytes).and_then(|found| request(&found))
    {
        let answer = address::answer(site, &asked);
        is_last = head.closes || answer.headers.get(CONNECTION).is_some_and(|value| value == "close");
        at += head.bytes.len();
        answers.push((asked.method().clone(), answer, is_last));
    }

    let peer = Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), is_encrypted: false };
    let mut plain = Http1Connection::new(Arc::clone(site), peer, Arc::new(AtomicBool::new(false)));
    let mut pipe = Pipe { takes, ..Pipe::default() };
    let (mut sent, mut ended) = (0, None);
    while ended.is_none() && sent < text.len() {
        let next = text.len().min(sent + piece);
        pipe.input.extend(&text[sent..next]);
        sent = next;
        ended = turn(&mut plain, &mut pipe);
    }
    if ended.is_none() {
        pipe.is_over = true;
        ended = turn(&mut plain, &mut pipe);
    }
    match ended.expect("a connection on which nothing more comes ends") {
        Http1Outcome::Ended => assert!(is_last || at == text.len(), "it ends before {}", shown(&text[at..])),
        Http1Outcome::Hyper(mut rest) => {
            assert!(!is_last, "nothing is handed on behind the last answer");
            rest.extend(&pipe.input);
            rest.extend_from_slice(&text[sent..]);
            assert_eq!(shown(&rest), shown(&text[at..]), "what is handed on, in pieces of {piece}");
        }
    }
    let mut out = &pipe.output[..];
    for (method, answer, is_last) in &answers {
        out = compare(out, method, answer, *is_last);
    }
    assert!(out.is_empty(), "behind the last answer: {}", shown(out));
}

/// Compares the first answer in `out`; gives what is behind it.
fn compare<'a>(out: &'a [u8], method: &Method, expected: &Answer, is_last: bool) -> &'a [u8] {
    let end = out.windows(4).position(|four| four == b"\r\n\r\n").expect("a whole head") + 4;
    let head = std::str::from_utf8(&out[..end - 4]).expect("visible characters");
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    assert!(status.starts_with(&format!("HTTP/1.1 {} ", expected.status)), "{status}");
    let pair = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut fields: Vec<(String, String)> = lines.map(|line| pair(line).expect("a field")).collect();
    let mut take = |name: &str| -> Vec<String> {
        let (taken, left) = std::mem::take(&mut fields).into_iter().partition(|(known, _)| known == name);
        fields = left;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    };
    assert_eq!(take("date").len(), 1, "one date: {head}");
    assert_eq!(take("connection").concat(), if is_last { "close" } else { "" }, "{head}");

    let text = |value: &http::HeaderValue| value.to_str().expect("visible characters").to_owned();
    let all = expected.headers.iter().filter(|(name, _)| **name != CONNECTION);
    let mut wanted: Vec<(String, String)> = all.map(|(name, value)| (name.to_string(), text(value))).collect();
    // Neither has a body, and so no length of one that counts (RFC 9110, 8.6).
    let may_have_body = ![204, 304].contains(&expected.status);
    if may_have_body && !expected.headers.contains_key(CONTENT_LENGTH) {
        wanted.push((CONTENT_LENGTH.to_string(), expected.body.len().to_string()));
    }
    fields.sort();
    wanted.sort();
    assert_eq!(fields, wanted, "{head}");
    if may_have_body && *method == Method::GET {
        let lengths = wanted.iter().filter(|(name, _)| name == CONTENT_LENGTH.as_str());
        let lengths: Vec<&str> = lengths.map(|(_, value)| value.as_str()).collect();
        assert_eq!(lengths, [expected.body.len().to_string()], "one length, which is that of the body: {head}");
    } else {
        assert!(expected.body.is_empty(), "{head}");
    }
    out[end..].strip_prefix(&expected.body[..]).unwrap_or_else(|| panic!("another body: {head}"))
}

/// See the head of this file: any bytes, or requests by a recipe.
pub fn http1_head(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let piece = recipe.one_of(&[usize::MAX / 2, 1, 7, 100]);
    let takes = recipe.one_of(&[usize::MAX, 1000, 7]);
    let text = if recipe.once_in(2) {
        recipe.rest().to_vec()
    } else {
        let mut text = Vec::new();
        for _ in 0..=recipe.below(5) {
            let (one, is_plain) = described(&mut recipe);
            match judge(&one) {
                HeadOutcome::Plain(head) => assert!(is_plain && head.bytes == one, "plain: {}", shown(&one)),
                HeadOutcome::Partial => panic!("it is whole: {}", shown(&one)),
                HeadOutcome::NotPlain => assert!(!is_plain, "it is plain: {}", shown(&one)),
            }
            text.extend_from_slice(&one);
        }
        text
    };
    judge(&text);
    let files = FILES.iter().map(|(name, text)| (name.as_bytes().to_vec(), text.as_bytes().to_vec()));
    let settings = SiteSettings { identity_cache: 0, asset_grace: Duration::ZERO, ..SiteSettings::default() };
    let site = address::site(&files.collect(), settings);
    converse(&site, &text, piece, takes);
    // Again, by what is known from the first time.
    converse(&site, &text, usize::MAX / 2, usize::MAX);
}
