//! As much of an HTTP/1.1 client as it takes to look at answers byte by byte.

use std::fmt::Write as _;
use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// An answer as it came; the body without its framing, but still coded.
#[derive(Debug)]
pub(crate) struct Answer {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// Whether the connection may be used again.
    pub keeps: bool,
}

impl Answer {
    /// A field by its name in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// A connection, and what was read from it ahead.
#[derive(Debug)]
pub(crate) struct Client {
    stream: TcpStream,
    ahead: Vec<u8>,
    host: String,
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what.to_owned())
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(20)))?;
        Ok(Self { stream, ahead: Vec::new(), host: address.to_string() })
    }

    pub(crate) fn get(&mut self, path: &str, fields: &[(String, String)]) -> Result<Answer> {
        let mut head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n", self.host);
        for (name, value) in fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        self.stream.write_all(head.as_bytes())?;
        self.answer()
    }

    fn more(&mut self) -> Result<usize> {
        let begun = self.ahead.len();
        self.ahead.resize(begun + 64 * 1024, 0);
        let read = self.stream.read(&mut self.ahead[begun..]);
        self.ahead.truncate(begun + *read.as_ref().unwrap_or(&0));
        read
    }

    /// So many bytes from the front.
    fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.ahead.len() < length {
            if self.more()? == 0 {
                return Err(broken("the connection ended within an answer"));
            }
        }
        let rest = self.ahead.split_off(length);
        Ok(std::mem::replace(&mut self.ahead, rest))
    }

    /// Up to and without `end`, which goes as well.
    fn until(&mut self, end: &[u8]) -> Result<Vec<u8>> {
        loop {
            if let Some(at) = self.ahead.windows(end.len()).position(|window| window == end) {
                let mut taken = self.take(at + end.len())?;
                taken.truncate(at);
                return Ok(taken);
            }
            if self.more()? == 0 {
                return Err(broken("the connection ended within an answer's head"));
            }
        }
    }

    fn answer(&mut self) -> Result<Answer> {
        let head = String::from_utf8(self.until(b"\r\n\r\n")?).map_err(|_| broken("a head that is no text"))?;
        let mut lines = head.split("\r\n");
        let status = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok());
        let status = status.ok_or_else(|| broken("no status"))?;
        let fields: Vec<(String, String)> = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let mut answer = Answer { status, fields, body: Vec::new(), keeps: true };
        let closes = answer.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if status == 304 || status == 204 {
            // What follows would be a body; none may.
        } else if let Some(length) = answer.field("content-length") {
            let length = length.parse().map_err(|_| broken("a Content-Length that is no number"))?;
            answer.body = self.take(length)?;
        } else if answer.field("transfer-encoding").is_some() {
            answer.body = self.chunks()?;
        } else {
            while self.more()? > 0 {}
            answer.body = std::mem::take(&mut self.ahead);
        }
        if !self.ahead.is_empty() {
            return Err(broken("bytes behind the end of an answer"));
        }
        answer.keeps = !closes;
        Ok(answer)
    }

    fn chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = String::from_utf8(self.until(b"\r\n")?).map_err(|_| broken("a chunk's size is no text"))?;
            let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
            let size = size.map_err(|_| broken("a chunk's size is no number"))?;
            body.append(&mut self.take(size)?);
            self.until(b"\r\n")?;
            if size == 0 {
                return Ok(body);
            }
        }
    }

    /// Whether the server ends the connection, as it was asked to; waits for it.
    pub(crate) fn is_ended(&mut self) -> bool {
        self.more().is_ok_and(|read| read == 0)
    }

    /// Whether neither side has ended it.
    pub(crate) fn is_open(&self) -> bool {
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        matches!(looked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    /// Nothing more came by itself: what an answer that must have no body would be followed by.
    pub(crate) fn is_silent(&self) -> bool {
        let looked = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        let silent = matches!(&looked, Err(error) if error.kind() == ErrorKind::WouldBlock) || matches!(looked, Ok(0));
        self.stream.set_nonblocking(false).is_ok() && silent
    }
}

/// One request on a connection of its own.
pub(crate) fn once(address: SocketAddr, path: &str, fields: &[(String, String)]) -> Result<Answer> {
    Client::connect(address)?.get(path, fields)
}
