//! A forward proxy for plain HTTP that records the request lines.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The running proxy; its thread ends with the test.
#[derive(Debug)]
pub struct ForwardProxy {
    /// The address of the proxy.
    pub address: SocketAddr,
    request_lines: Arc<Mutex<Vec<String>>>,
}

impl Default for ForwardProxy {
    fn default() -> ForwardProxy {
        ForwardProxy::new()
    }
}

impl ForwardProxy {
    /// Starts a proxy on a free port.
    pub fn new() -> ForwardProxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let request_lines = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&request_lines);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let log = Arc::clone(&log);
                std::thread::spawn(move || forward(stream, &log));
            }
        });
        ForwardProxy { address, request_lines }
    }

    /// The value for `HTTP_PROXY`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The request lines so far.
    pub fn request_lines(&self) -> Vec<String> {
        self.request_lines.lock().expect("no panic while locked").clone()
    }
}

/// Passes one request on, and then all bytes of the response.
fn forward(mut client: TcpStream, log: &Mutex<Vec<String>>) -> Option<()> {
    client.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(end) = bytes.windows(4).position(|w| w == b"\r\n\r\n") {
            break end;
        }
        let mut chunk = [0; 4096];
        let n = client.read(&mut chunk).ok().filter(|n| *n > 0)?;
        bytes.extend_from_slice(&chunk[..n]);
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let (line, fields) = head.split_once("\r\n")?;
    log.lock().expect("no panic while locked").push(line.to_owned());
    let mut words = line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let Some(address) = target.strip_prefix("http://") else {
        return client.write_all(b"HTTP/1.1 405 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok();
    };
    let (host, path) = address.split_once('/')?;
    let mut server = TcpStream::connect(host).ok()?;
    server.write_all(format!("{method} /{path} HTTP/1.1\r\n{fields}\r\n\r\n").as_bytes()).ok()?;
    server.write_all(&bytes[end + 4..]).ok()?;
    let (mut from, mut to) = (client.try_clone().ok()?, server.try_clone().ok()?);
    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
    std::io::copy(&mut server, &mut client).ok()?;
    client.shutdown(std::net::Shutdown::Both).ok()
}
