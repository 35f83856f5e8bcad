//! Request heads of HTTP/1.1 (RFC 9112). A plain request has the method, target and fields that a simple line parser
//! finds, and no field that announces a body. The responses of a connection do not depend on the size of the received
//! pieces, and are those of `handler`. The connection passes the first request that is not plain on, with all its
//! bytes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use docwharf::serve::http1::request_head::{
    HeadOutcome, MAX_PLAIN_HEAD_BYTES, PlainRequestHead, for_each_field, parse_head,
};
use docwharf::serve::http1::{Http1Connection, Http1Outcome};
use docwharf::serve::peer::Peer;
use docwharf::serve::{Site, SiteSettings};
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::{Method, Request};

use super::address::{self, Response};
use super::fuzz_input::FuzzInput;
use super::pipe::{Pipe, WakeFlag};

/// The most fields of a plain request.
const MAX_FIELDS: usize = 64;
const FILES: [(&str, &str); 5] = [
    ("index.html", "the first page"),
    ("a.html", "a page"),
    ("a.md", "the same in Markdown"),
    ("b.css", "body {}"),
    ("404.html", "nothing is here"),
];

/// A head as the simple line parser reads it.
struct ParsedHead<'a> {
    len: usize,
    method: &'a [u8],
    target: &'a [u8],
    version: &'a [u8],
    fields: Vec<(&'a [u8], &'a [u8])>,
}

/// The length of a complete head and its lines without their line ends. Empty lines before the request are part of the
/// head (RFC 9112, 2.2).
fn split_lines(bytes: &[u8]) -> Option<(usize, Vec<&[u8]>)> {
    let (mut start, mut lines) = (0, Vec::new());
    loop {
        let end = start + bytes[start..].iter().position(|&b| b == b'\n')?;
        let line = &bytes[start..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        start = end + 1;
        if !line.is_empty() {
            lines.push(line);
        } else if !lines.is_empty() {
            return Some((start, lines));
        }
    }
}

/// Removes the white space around a value (RFC 9112, 5).
fn trim(mut value: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = value {
        value = rest;
    }
    value
}

fn parse_lines(bytes: &[u8]) -> Option<ParsedHead<'_>> {
    let (len, lines) = split_lines(bytes)?;
    let mut parts = lines[0].split(|&b| b == b' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let mut fields = Vec::new();
    for &line in &lines[1..] {
        let colon = line.iter().position(|&b| b == b':')?;
        fields.push((&line[..colon], trim(&line[colon + 1..])));
    }
    Some(ParsedHead { len, method, target, version, fields })
}

fn escaped(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).escape_debug().to_string()
}

/// A token (RFC 9110, 5.6.2).
fn is_token(text: &[u8]) -> bool {
    let is_token_char = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    !text.is_empty() && text.iter().all(is_token_char)
}

/// Checks a plain head against the line parser. No field announces a body (RFC 9112, 6.3), so another implementation
/// finds no body either.
fn check_plain(head: &PlainRequestHead<'_>, bytes: &[u8]) {
    let parsed = parse_lines(bytes).unwrap_or_else(|| panic!("the line parser finds no request: {}", escaped(bytes)));
    assert_eq!(escaped(head.bytes), escaped(&bytes[..parsed.len]), "the end of the head");
    let method: &[u8] = if head.is_get { b"GET" } else { b"HEAD" };
    assert_eq!((method, head.target.as_bytes(), &b"HTTP/1.1"[..]), (parsed.method, parsed.target, parsed.version));
    assert!(head.target.starts_with('/') && head.target.bytes().all(|b| b > b' ' && b != 0x7f), "{:?}", head.target);
    let mut fields = Vec::new();
    for_each_field(head.bytes, |name, value| fields.push((name.as_bytes(), value)));
    assert_eq!(fields, parsed.fields);
    assert!(fields.len() <= MAX_FIELDS && head.bytes.len() <= MAX_PLAIN_HEAD_BYTES);
    let mut closes = false;
    for (name, value) in fields {
        let is_visible = |&b: &u8| b == b'\t' || (b >= b' ' && b != 0x7f);
        assert!(is_token(name) && value.iter().all(is_visible), "{}", escaped(bytes));
        match &name.to_ascii_lowercase()[..] {
            b"content-length" | b"transfer-encoding" | b"expect" | b"upgrade" => {
                panic!("a field for a body: {}", escaped(bytes))
            }
            b"connection" => match &value.to_ascii_lowercase()[..] {
                b"close" => closes = true,
                other => assert_eq!(escaped(other), "keep-alive"),
            },
            _ => {}
        }
    }
    assert_eq!(head.closes, closes, "{}", escaped(bytes));
}

/// Parses the first head in `bytes` and checks the result, also for a part of the head and with more bytes after it.
fn check_head(bytes: &[u8]) -> HeadOutcome<'_> {
    let outcome = parse_head(bytes);
    let more = [bytes, b"GET / HTTP/1.1\r\nhost: other.example\r\n\r\n"].concat();
    match &outcome {
        HeadOutcome::Plain(head) => {
            check_plain(head, bytes);
            let len = head.bytes.len();
            assert_eq!(parse_head(head.bytes), outcome, "bytes after the head change the result");
            assert_eq!(parse_head(&more), outcome, "bytes after the head change the result");
            for cut in (0..len).step_by(len / 40 + 1).chain(len.saturating_sub(4)..len) {
                assert_eq!(parse_head(&bytes[..cut]), HeadOutcome::Partial, "{cut} bytes of {}", escaped(head.bytes));
            }
        }
        HeadOutcome::Partial => {
            assert!(
                bytes.len() <= MAX_PLAIN_HEAD_BYTES && split_lines(bytes).is_none(),
                "more bytes are required: {}",
                escaped(bytes)
            );
        }
        HeadOutcome::NotPlain => assert_eq!(parse_head(&more), HeadOutcome::NotPlain, "{}", escaped(bytes)),
    }
    outcome
}

/// A request that is being written.
struct RequestDraft {
    text: String,
    /// The line end.
    line_end: &'static str,
    fields: usize,
    is_plain: bool,
}

impl RequestDraft {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push_str(self.line_end);
    }

    fn field(&mut self, field: &str, is_plain: bool) {
        self.line(field);
        self.fields += 1;
        self.is_plain &= is_plain;
    }

    /// Adds fields up to a limit, or a little less or more.
    fn fill(&mut self, input: &mut FuzzInput<'_>) {
        if input.once_in(2) {
            for _ in 0..60 + input.below(8) {
                self.field("x: 1", true);
            }
        } else {
            let target_len = MAX_PLAIN_HEAD_BYTES - 10 + input.below(20);
            let other_len = "x: ".len() + 2 * self.line_end.len();
            self.field(&format!("x: {}", "1".repeat(target_len.saturating_sub(self.text.len() + other_len))), true);
        }
    }
}

/// Makes a request. Returns its bytes and whether it is plain.
fn make_request(input: &mut FuzzInput<'_>) -> (Vec<u8>, bool) {
    let method = input.one_of(&["GET", "GET", "GET", "HEAD", "POST", "OPTIONS", "get", "GETS"]);
    let target = input.one_of(&TARGETS);
    let version = input.one_of(&["HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.1", "HTTP/1.0", "HTTP/1.2", "http/1.1"]);
    let is_plain =
        ["GET", "HEAD"].contains(&method) && target.starts_with('/') && !target.contains(' ') && version == "HTTP/1.1";
    let line_end = input.one_of(&["\r\n", "\r\n", "\r\n", "\n"]);
    let text = input.one_of(&["", "", "", "", "", "", "\r\n", "\n\r\n"]).to_owned();
    let mut draft = RequestDraft { text, line_end, fields: 0, is_plain };
    draft.line(&format!("{method} {target} {version}"));
    if !input.once_in(8) {
        let host = input.one_of(&["site.example", "site.example:80", "[::1]", "a b"]);
        draft.field(&format!("Host: {host}"), true);
    }
    for _ in 0..input.below(6) {
        let (name, value, is_plain) = input.one_of(&FIELDS);
        let (before, after) = (input.one_of(&["", " ", "\t ", " "]), input.one_of(&["", "", " ", "\t"]));
        draft.field(&format!("{name}:{before}{value}{after}"), is_plain);
    }
    if input.once_in(32) {
        draft.fill(input);
    }
    if input.once_in(8) {
        draft.field(input.one_of(&MALFORMED_FIELDS), false);
    }
    draft.line("");
    let is_plain = draft.is_plain && draft.fields <= MAX_FIELDS && draft.text.len() <= MAX_PLAIN_HEAD_BYTES;
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

/// Malformed field lines.
const MALFORMED_FIELDS: [&str; 10] =
    [" folded", "\tfolded", "Name : x", ": x", "no colon", "a\0: b", "x: \u{1}", "x: a\rb", "\u{e9}: x", "x\r: y"];

/// Fields, and whether a request with the field is plain.
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

/// The request of a head. `None` if it is not valid for the `http` crate.
fn to_request(head: &ParsedHead<'_>) -> Option<Request<()>> {
    let mut request = Request::builder().method(head.method).uri(head.target);
    for (name, value) in &head.fields {
        request = request.header(*name, *value);
    }
    request.body(()).ok()
}

/// Polls the connection until it waits. Returns the outcome if the connection ends.
fn poll_until_waiting(connection: &mut Http1Connection, pipe: &mut Pipe) -> Option<Http1Outcome> {
    let wake_flag = Arc::<WakeFlag>::default();
    let waker = Waker::from(Arc::clone(&wake_flag));
    let mut context = Context::from_waker(&waker);
    for _ in 0..1_000_000 {
        if let Poll::Ready(outcome) = connection.poll(pipe, &mut context) {
            return Some(outcome);
        }
        if !wake_flag.take() {
            return None;
        }
    }
    panic!("the connection never waits");
}

/// Sends `text` over a connection in pieces, and compares the responses with those of `handler`. `max_write` is the
/// number of bytes that a write accepts.
fn check_connection(site: &Arc<Site>, text: &[u8], piece_len: usize, max_write: usize) {
    let (mut plain_end, mut responses, mut is_last) = (0, Vec::new(), false);
    while !is_last
        && let HeadOutcome::Plain(head) = parse_head(&text[plain_end..])
        && let Some(request) = parse_lines(head.bytes).and_then(|head| to_request(&head))
    {
        let response = address::respond(site, &request);
        is_last = head.closes || response.headers.get(CONNECTION).is_some_and(|value| value == "close");
        plain_end += head.bytes.len();
        responses.push((request.method().clone(), response, is_last));
    }

    let peer =
        Peer { address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)), is_encrypted: false, is_loopback_listener: false };
    let mut connection = Http1Connection::new(Arc::clone(site), peer, Arc::new(AtomicBool::new(false)));
    let mut pipe = Pipe { max_write, ..Pipe::default() };
    let (mut sent, mut outcome) = (0, None);
    while outcome.is_none() && sent < text.len() {
        let next = text.len().min(sent + piece_len);
        pipe.input.extend(&text[sent..next]);
        sent = next;
        outcome = poll_until_waiting(&mut connection, &mut pipe);
    }
    if outcome.is_none() {
        pipe.is_input_ended = true;
        outcome = poll_until_waiting(&mut connection, &mut pipe);
    }
    match outcome.expect("the connection ends after the end of input") {
        Http1Outcome::Ended => {
            assert!(is_last || plain_end == text.len(), "the connection ends before {}", escaped(&text[plain_end..]));
        }
        Http1Outcome::NotServedHere(mut rest) => {
            assert!(!is_last, "bytes after the last response are passed on");
            rest.extend(&pipe.input);
            rest.extend_from_slice(&text[sent..]);
            assert_eq!(
                escaped(&rest),
                escaped(&text[plain_end..]),
                "the bytes that are passed on, in pieces of {piece_len}"
            );
        }
    }
    let mut output = &pipe.output[..];
    for (method, response, is_last) in &responses {
        output = compare_response(output, method, response, *is_last);
    }
    assert!(output.is_empty(), "after the last response: {}", escaped(output));
}

/// Compares the first response in `output`. Returns the bytes after it.
fn compare_response<'a>(output: &'a [u8], method: &Method, expected: &Response, is_last: bool) -> &'a [u8] {
    let end = output.windows(4).position(|window| window == b"\r\n\r\n").expect("a complete head") + 4;
    let head = std::str::from_utf8(&output[..end - 4]).expect("visible characters");
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap_or_default();
    assert!(status.starts_with(&format!("HTTP/1.1 {} ", expected.status)), "{status}");
    let parse_field = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_owned(), value.to_owned()));
    let mut fields: Vec<(String, String)> = lines.map(|line| parse_field(line).expect("a field")).collect();
    let mut remove_field = |name: &str| -> Vec<String> {
        let (removed, remaining) = std::mem::take(&mut fields).into_iter().partition(|(field, _)| field == name);
        fields = remaining;
        let removed: Vec<(String, String)> = removed;
        removed.into_iter().map(|(_, value)| value).collect()
    };
    assert_eq!(remove_field("date").len(), 1, "one date: {head}");
    assert_eq!(remove_field("connection").concat(), if is_last { "close" } else { "" }, "{head}");

    let text = |value: &http::HeaderValue| value.to_str().expect("visible characters").to_owned();
    let expected_headers = expected.headers.iter().filter(|(name, _)| **name != CONNECTION);
    let mut expected_fields: Vec<(String, String)> =
        expected_headers.map(|(name, value)| (name.to_string(), text(value))).collect();
    // Responses with these statuses have no body and no Content-Length (RFC 9110, 8.6).
    let may_have_body = ![204, 304].contains(&expected.status);
    if may_have_body && !expected.headers.contains_key(CONTENT_LENGTH) {
        expected_fields.push((CONTENT_LENGTH.to_string(), expected.body.len().to_string()));
    }
    fields.sort();
    expected_fields.sort();
    assert_eq!(fields, expected_fields, "{head}");
    if may_have_body && *method == Method::GET {
        let lengths = expected_fields.iter().filter(|(name, _)| name == CONTENT_LENGTH.as_str());
        let lengths: Vec<&str> = lengths.map(|(_, value)| value.as_str()).collect();
        assert_eq!(lengths, [expected.body.len().to_string()], "one Content-Length, that of the body: {head}");
    } else {
        assert!(expected.body.is_empty(), "{head}");
    }
    output[end..].strip_prefix(&expected.body[..]).unwrap_or_else(|| panic!("another body: {head}"))
}

/// The fuzz target (see the module documentation): any bytes, or generated requests.
pub fn http1_head(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let piece_len = input.one_of(&[usize::MAX / 2, 1, 7, 100]);
    let max_write = input.one_of(&[usize::MAX, 1000, 7]);
    let text = if input.once_in(2) {
        input.rest().to_vec()
    } else {
        let mut text = Vec::new();
        for _ in 0..=input.below(5) {
            let (request, is_plain) = make_request(&mut input);
            match check_head(&request) {
                HeadOutcome::Plain(head) => {
                    assert!(is_plain && head.bytes == request, "taken as plain: {}", escaped(&request));
                }
                HeadOutcome::Partial => panic!("taken as incomplete: {}", escaped(&request)),
                HeadOutcome::NotPlain => assert!(!is_plain, "not taken as plain: {}", escaped(&request)),
            }
            text.extend_from_slice(&request);
        }
        text
    };
    check_head(&text);
    let files = FILES.iter().map(|(name, text)| (name.as_bytes().to_vec(), text.as_bytes().to_vec()));
    let settings = SiteSettings { identity_cache: 0, asset_grace: Duration::ZERO, ..SiteSettings::default() };
    let site = address::make_site(&files.collect(), settings);
    check_connection(&site, &text, piece_len, max_write);
    // Once more, with the caches filled by the first run.
    check_connection(&site, &text, usize::MAX / 2, usize::MAX);
}
