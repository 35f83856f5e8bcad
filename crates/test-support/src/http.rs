//! A client that sends exactly the bytes it is told to.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A response as it came.
#[derive(Debug, Clone)]
pub struct Response {
    /// Status code.
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    /// Body without its chunks.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of a field that is there at most once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "{name} more than once: {:?}", self.headers);
        first
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// Opens a connection.
pub fn connect(address: &str) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the server accepts");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out can be set");
    stream
}

/// Sends `bytes` on a new connection, closes our side of nothing, and reads until the server closes.
pub fn raw(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = connect(address);
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    answer
}

/// One request on a connection of its own. `headers` are whole lines without line ends.
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

/// One request that ends its connection, for tests that count requests or read the log.
#[track_caller]
pub fn single(address: &str, method: &str, target: &str, headers: &[&str]) -> Response {
    request(address, method, target, &[headers, &["Connection: close"]].concat())
}

/// Sends a request that keeps its connection, reads the answer to its end, and asks once more there: what stands behind
/// an answer would be taken for the beginning of the next (RFC 9112, 6.3 and 9.3). `head` says that the request is a
/// HEAD.
#[track_caller]
pub fn exchange<S: Read + Write>(stream: S, request: &[u8], head: bool) -> Response {
    let mut connection = PersistentConnection { stream, buffer: Vec::new() };
    connection.send(request);
    let answer = connection.response(head);
    let closes = answer.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
    if !closes {
        connection.send("OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    }
    let behind = connection.rest();
    if !behind.is_empty() {
        assert!(!closes, "bytes behind the last answer: {:?}", String::from_utf8_lossy(&behind));
        parse(&behind, false);
    }
    answer
}

/// GET without further fields.
pub fn get(address: &str, target: &str) -> Response {
    request(address, "GET", target, &[])
}

/// Content of a gzip body, which must end where its one member ends.
#[track_caller]
pub fn gunzip(bytes: &[u8]) -> Vec<u8> {
    let mut decoder = flate2::bufread::GzDecoder::new(bytes);
    let mut out = Vec::new();
    decoder.read_to_end(&mut out).expect("whole gzip");
    assert!(decoder.into_inner().is_empty(), "bytes behind the gzip member");
    out
}

/// A connection on which several responses are expected.
#[derive(Debug)]
pub struct PersistentConnection<S = TcpStream> {
    /// The connection below.
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
    /// Sends these bytes; a server that has closed already shows when its answer is read.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// The next response, of whose body Content-Length or its last chunk says the end; `head` says that there is none.
    #[track_caller]
    pub fn response(&mut self, head: bool) -> Response {
        let end = loop {
            if let Some(end) = self.buffer.windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
            assert!(self.more(), "the connection ended inside a head: {:?}", String::from_utf8_lossy(&self.buffer));
        };
        let mut response = parse(&self.buffer[..end], true);
        self.buffer.drain(..end);
        if head || matches!(response.status, 204 | 304) {
            return response;
        }
        if response.header("transfer-encoding") == Some("chunked") {
            response.body = self.chunks();
            return response;
        }
        let length = response.header("content-length").expect("every body has its length").parse().expect("a length");
        response.body = self.take(length);
        response
    }

    /// Bytes of a body.
    #[track_caller]
    fn take(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.more(), "the connection ended {} bytes into a body of {length}", self.buffer.len());
        }
        self.buffer.drain(..length).collect()
    }

    /// A body in chunks, without trailers (RFC 9112, 7.1).
    #[track_caller]
    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let end = loop {
                if let Some(end) = self.buffer.windows(2).position(|w| w == b"\r\n") {
                    break end;
                }
                assert!(self.more(), "the connection ended before a chunk");
            };
            let line = self.take(end + 2);
            let size = std::str::from_utf8(&line[..end]).ok().and_then(|size| usize::from_str_radix(size, 16).ok());
            let size = size.unwrap_or_else(|| panic!("no size of a chunk: {:?}", String::from_utf8_lossy(&line)));
            let chunk = self.take(size + 2);
            assert!(chunk.ends_with(b"\r\n"), "a chunk is longer than it says");
            if size == 0 {
                return body;
            }
            body.extend_from_slice(&chunk[..size]);
        }
    }

    /// Reads the rest until the server closes. Panics if it keeps the connection open.
    #[track_caller]
    pub fn rest(&mut self) -> Vec<u8> {
        while self.more() {}
        std::mem::take(&mut self.buffer)
    }

    /// Reads what there is; false at the end of the connection.
    #[track_caller]
    fn more(&mut self) -> bool {
        let mut chunk = vec![0; 256 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(n) => {
                self.buffer.extend_from_slice(&chunk[..n]);
                true
            }
            Err(error) if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) => {
                panic!("the server neither answers nor closes: {:?}", String::from_utf8_lossy(&self.buffer))
            }
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                panic!("TLS ended without close_notify (RFC 8446, 6.1)")
            }
            // A reset ends a connection as well.
            Err(_) => false,
        }
    }
}

/// Reads one response from the bytes of a connection that was closed behind it.
#[track_caller]
pub fn parse(bytes: &[u8], head: bool) -> Response {
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
    if head || matches!(status, 204 | 304) {
        assert!(response.body.is_empty(), "bytes behind the head of an answer that has no body: {response:?}");
    } else if let Some(length) = response.header("content-length") {
        assert_eq!(response.body.len().to_string(), length, "body and Content-Length differ: {text}");
    }
    response
}
