//! A server that stands for the API of a customer. It records each request and answers with the bytes of the test.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

/// An API on loopback or in a namespace. Its thread ends with the test program.
#[derive(Debug)]
pub struct ApiTestServer {
    /// Host and port.
    pub address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ApiTestServer {
    /// Starts an API at an address that answers each request with these bytes, and then ends the connection.
    pub fn start(address: &str, response: impl Into<Vec<u8>>) -> ApiTestServer {
        let response = response.into();
        ApiTestServer::start_with(address, move |out| drop(out.write_all(&response)))
    }

    /// Starts an API at an address that answers each request with what `respond` writes. One connection is served at a
    /// time.
    pub fn start_with(address: &str, respond: impl Fn(&mut dyn Write) + Send + 'static) -> ApiTestServer {
        let listener = TcpListener::bind(address).expect("the address is free");
        let address = listener.local_addr().expect("a bound socket").to_string();
        let requests = Arc::<Mutex<Vec<String>>>::default();
        let received = Arc::clone(&requests);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let (mut bytes, mut buffer) = (Vec::new(), [0; 8192]);
                while !is_complete(&bytes) {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => break,
                        Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                    }
                }
                received.lock().expect("no panic while locked").push(String::from_utf8_lossy(&bytes).into_owned());
                respond(&mut stream);
            }
        });
        ApiTestServer { address, requests }
    }

    /// Takes the requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut self.requests.lock().expect("no panic while locked"))
    }
}

/// Returns whether these bytes are a head and the body that it declares.
fn is_complete(bytes: &[u8]) -> bool {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    bytes.len() - end - 4 >= length.map_or(0, |length| length.parse().expect("a length"))
}
