//! A minimal HTTP/1.1 client, for comparing responses byte by byte.

use std::fmt::Write as _;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A response. The body has no transfer coding any more, but still its content coding.
#[derive(Debug)]
pub(crate) struct Response {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the connection may be reused.
    pub is_reusable: bool,
}

impl Response {
    /// The value of a field, by its name in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A connection, and the bytes that were read but not used yet.
#[derive(Debug)]
pub(crate) struct HttpClient {
    stream: TcpStream,
    buffer: Vec<u8>,
    host: String,
}

fn invalid_data(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidData, reason.to_owned())
}

impl HttpClient {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self { stream, buffer: Vec::new(), host: address.to_string() })
    }

    pub(crate) fn get(&mut self, path: &str, fields: &[(String, String)]) -> Result<Response> {
        let mut head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for (name, value) in fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        self.stream.write_all(head.as_bytes())?;
        self.read_response()
    }

    fn read_more(&mut self) -> Result<usize> {
        let start = self.buffer.len();
        self.buffer.resize(start + 64 * 1024, 0);
        let read = self.stream.read(&mut self.buffer[start..]);
        self.buffer.truncate(start + *read.as_ref().unwrap_or(&0));
        read
    }

    /// Reads exactly `length` bytes.
    fn read_exact(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < length {
            if self.read_more()? == 0 {
                return Err(invalid_data("the connection ended within a response"));
            }
        }
        let rest = self.buffer.split_off(length);
        Ok(std::mem::replace(&mut self.buffer, rest))
    }

    /// Reads up to `end`, which is consumed, but not returned.
    fn read_until(&mut self, end: &[u8]) -> Result<Vec<u8>> {
        loop {
            if let Some(index) = self.buffer.windows(end.len()).position(|window| window == end) {
                let mut bytes = self.read_exact(index + end.len())?;
                bytes.truncate(index);
                return Ok(bytes);
            }
            if self.read_more()? == 0 {
                return Err(invalid_data("the connection ended within a response head"));
            }
        }
    }

    fn read_response(&mut self) -> Result<Response> {
        let head =
            String::from_utf8(self.read_until(b"\r\n\r\n")?).map_err(|_| invalid_data("a head that is no text"))?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| invalid_data("no status"))?;
        let fields: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut response = Response { status, fields, body: Vec::new(), is_reusable: true };
        let closes = response.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if status == 304 || status == 204 {
            // These responses have no body.
        } else if let Some(length) = response.field("content-length") {
            let length = length.parse().map_err(|_| invalid_data("a Content-Length that is no number"))?;
            response.body = self.read_exact(length)?;
        } else if response.field("transfer-encoding").is_some() {
            response.body = self.chunks()?;
        } else {
            while self.read_more()? > 0 {}
            response.body = std::mem::take(&mut self.buffer);
        }
        if !self.buffer.is_empty() {
            return Err(invalid_data("bytes after the end of a response"));
        }
        response.is_reusable = !closes;
        Ok(response)
    }

    fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line =
                String::from_utf8(self.read_until(b"\r\n")?).map_err(|_| invalid_data("a chunk's size is no text"))?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.map_err(|_| invalid_data("a chunk's size is no number"))?;
            body.append(&mut self.read_exact(size)?);
            self.read_until(b"\r\n")?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Waits until the server closes the connection. False if it sends bytes instead.
    pub(crate) fn is_ended(&mut self) -> bool {
        self.read_more().is_ok_and(|read| read == 0)
    }

    /// Whether the connection is open and has no unread bytes.
    pub(crate) fn is_open(&self) -> bool {
        let result = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        matches!(result, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Whether no further bytes have arrived, such as a body of a response that must have none.
    pub(crate) fn is_silent(&self) -> bool {
        let result = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let silent = matches!(&result, Err(error) if error.kind() == ErrorKind::WouldBlock) || matches!(result, Ok(0));
        self.stream.set_nonblocking(false).is_ok() && silent
    }
}

/// Sends one request on a new connection.
pub(crate) fn get_once(address: SocketAddr, path: &str, fields: &[(String, String)]) -> Result<Response> {
    HttpClient::connect(address)?.get(path, fields)
}
