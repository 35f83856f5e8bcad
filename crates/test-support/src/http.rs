//! An HTTP/1.1 client that sends exactly the bytes of the test.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;

/// A response as it was received.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The header fields; names are in lower case.
    pub headers: Vec<(String, String)>,
    /// The body without its chunk framing.
    pub body: Vec<u8>,
}

impl Response {
    /// Returns the value of a field; panics if the response has several fields of this name.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "{name} more than once: {:?}", self.headers);
        first
    }

    /// Returns the body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// Returns the body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {}", self.text()))
    }
}

/// Opens a connection.
pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout can be set");
    stream
}

/// Sends `bytes` on a new connection, leaves it open, and reads until the server closes it.
pub fn send_bytes(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    let mut response = Vec::new();
    let _ = stream.read_to_end(&mut response);
    response
}

/// Sends a request on a new connection. `headers` are complete lines without line ends.
#[track_caller]
pub fn request(address: &str, method: &str, target: &str, headers: &[&str]) -> Response {
    let mut text = format!("{method} {target} HTTP/1.1\r\nHost: {address}\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    text.push_str("\r\n");
    exchange(connect(address), text.as_bytes(), method == "HEAD")
}

/// Sends a request with `Connection: close`, for tests that count requests or read the log.
#[track_caller]
pub fn request_and_close(address: &str, method: &str, target: &str, headers: &[&str]) -> Response {
    request(address, method, target, &[headers, &["Connection: close"]].concat())
}

/// Sends a request on a persistent connection and reads the response. Then it sends a second request: bytes after the
/// first response would be read as the beginning of the second one (RFC 9112, 6.3 and 9.3), which fails. `is_head`
/// means that the request is a HEAD.
#[track_caller]
pub fn exchange<S: Read + Write>(stream: S, request: &[u8], is_head: bool) -> Response {
    let mut connection = PersistentConnection { stream, buffer: Vec::new() };
    connection.send(request);
    let response = connection.response(is_head);
    let closes = response.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    if !closes {
        connection.send("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    }
    let remaining = connection.read_to_close();
    if !remaining.is_empty() {
        assert!(!closes, "bytes after the last response: {:?}", String::from_utf8_lossy(&remaining));
        parse(&remaining, false);
    }
    response
}

/// Sends a GET without further fields.
pub fn get(address: &str, target: &str) -> Response {
    request(address, "GET", target, &[])
}

/// Returns the bytes of a POST request with a body. `fields` are complete lines without line ends; one for `Host` takes
/// the place of that of the address.
pub fn post_request(address: &str, target: &str, fields: &[&str], body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut head = format!("POST {target} HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
    if !fields.iter().any(|field| field.starts_with("Host:")) {
        let _ = write!(head, "Host: {address}\r\n");
    }
    for field in fields {
        let _ = write!(head, "{field}\r\n");
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

/// Sends a POST request with a body on a new connection. `fields` are those of [`post_request`].
#[track_caller]
pub fn post(address: &str, target: &str, fields: &[&str], body: impl AsRef<[u8]>) -> Response {
    exchange(connect(address), &post_request(address, target, fields, body), false)
}

/// Decodes a gzip body, which must have one member and nothing after it.
#[track_caller]
pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(bytes);
    let mut out = Vec::new();
    decoder.read_to_end(&mut out).expect("a complete gzip member");
    assert!(decoder.into_inner().is_empty(), "bytes after the gzip member");
    out
}

/// A connection on which several responses are expected.
#[derive(Debug)]
pub struct PersistentConnection<S = TcpStream> {
    /// The underlying connection.
    pub stream: S,
    buffer: Vec<u8>,
}

impl PersistentConnection {
    /// Opens a connection.
    pub fn open(address: &str) -> PersistentConnection {
        PersistentConnection { stream: connect(address), buffer: Vec::new() }
    }
}

impl<S: Read + Write> PersistentConnection<S> {
    /// Sends these bytes. If the server has closed the connection, reading the response reports it.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Reads the next response. Its body must have a Content-Length or chunks; `is_head` means that it has no body.
    #[track_caller]
    pub fn response(&mut self, is_head: bool) -> Response {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(
                self.read_more(),
                "the connection ended inside a head: {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        };
        let mut response = parse(&self.buffer[..end], true);
        self.buffer.drain(..end);
        if is_head || matches!(response.status, 204 | 304) {
            return response;
        }
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = self.read_chunks();
            return response;
        }
        let length = response.header("content-length").expect("every body has its length").parse().expect("a length");
        response.body = self.read_bytes(length);
        response
    }

    /// Reads this many bytes of a body.
    #[track_caller]
    fn read_bytes(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.read_more(), "the connection ended {} bytes into a body of {length}", self.buffer.len());
        }
        self.buffer.drain(..length).collect()
    }

    /// Reads a body in chunks, without trailers (RFC 9112, 7.1).
    #[track_caller]
    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                    break end;
                }
                assert!(self.read_more(), "the connection ended before a chunk");
            };
            let line = self.read_bytes(end + 2);
            let size = std::str::from_utf8(&line[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
            let size = size.unwrap_or_else(|| panic!("no chunk size: {:?}", String::from_utf8_lossy(&line)));
            let chunk = self.read_bytes(size + 2);
            assert!(chunk.ends_with(b"\r\n"), "a chunk is longer than its size");
            if size == 0 {
                return body;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// Reads until the server closes the connection. Panics if it stays open.
    #[track_caller]
    pub fn read_to_close(&mut self) -> Vec<u8> {
        while self.read_more() {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads available bytes; returns false at the end of the connection.
    #[track_caller]
    fn read_more(&mut self) -> bool {
        let mut chunk = vec![0; 256 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                true
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                panic!("the server neither responds nor closes: {:?}", String::from_utf8_lossy(&self.buffer))
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                panic!("TLS ended without close_notify (RFC 8446, 6.1)")
            }
            // A reset ends a connection as well.
            Err(_) => false,
        }
    }
}

/// Parses one response from all bytes of a connection.
#[track_caller]
pub fn parse(bytes: &[u8], is_head: bool) -> Response {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no response head in {:?}", String::from_utf8_lossy(bytes)));
    let text = String::from_utf8_lossy(&bytes[..end]).into_owned();
    assert!(text.starts_with("HTTP/1."), "no response: {text:?}");
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()).expect("a status line");
    let headers: Vec<(String, String)> = lines
        .map(|line| {
            let (name, value) = line.split_once(':').expect("a field has a colon");
            (name.to_ascii_lowercase(), value.trim().to_owned())
        })
        .collect();
    let response = Response { status, headers, body: bytes[end + 4..].to_vec() };
    if is_head || matches!(status, 204 | 304) {
        assert!(response.body.is_empty(), "bytes after the head of a response without a body: {response:?}");
    } else if let Some(length) = response.header("content-length") {
        assert_eq!(response.body.len().to_string(), length, "body and Content-Length differ: {text}");
    }
    response
}
