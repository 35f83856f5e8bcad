//! A name server for tests (RFC 1035, over UDP): answers queries for addresses, with another answer each time if the
//! test wants that.

use std::collections::BTreeMap;
use std::net::{IpAddr, UdpSocket};
use std::sync::{Arc, Mutex};

/// The type of a record with an IPv4 address.
const TYPE_A: u16 = 1;
/// The type of a record with an IPv6 address (RFC 3596).
const TYPE_AAAA: u16 = 28;

/// A running name server. Its thread ends with the test program.
pub struct NameServer {
    queries: Arc<Mutex<BTreeMap<String, usize>>>,
}

impl NameServer {
    /// Starts a name server at an address and port. `answer` returns the addresses of a name, in lower case; its second
    /// argument is the number of earlier queries for IPv4 addresses of this name.
    pub fn start(address: &str, answer: impl Fn(&str, usize) -> Vec<IpAddr> + Send + 'static) -> NameServer {
        let socket = UdpSocket::bind(address).expect("the address is free");
        let queries = Arc::<Mutex<BTreeMap<String, usize>>>::default();
        let counted = Arc::clone(&queries);
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((len, client)) = socket.recv_from(&mut buffer) {
                let Some((name, kind, question_end)) = parse_question(&buffer[..len]) else { continue };
                let earlier = {
                    let mut counts = counted.lock().expect("no test panics here");
                    let count = counts.entry(name.clone()).or_default();
                    let earlier = *count;
                    *count += usize::from(kind == TYPE_A);
                    earlier
                };
                let addresses = answer(&name, earlier);
                let _ = socket.send_to(&encode_answer(&buffer[..question_end], kind, &addresses), client);
            }
        });
        NameServer { queries }
    }

    /// Returns the number of queries for IPv4 addresses of a name.
    #[track_caller]
    pub fn queries(&self, name: &str) -> usize {
        self.queries.lock().expect("no test panics here").get(name).copied().unwrap_or_default()
    }
}

/// Reads the question of a query: the name, the type, and where the question ends.
fn parse_question(query: &[u8]) -> Option<(String, u16, usize)> {
    let (mut at, mut labels) = (12, Vec::new());
    loop {
        let len = usize::from(*query.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(query.get(at..at + len)?).to_lowercase());
        at += len;
    }
    let kind = u16::from_be_bytes(query.get(at..at + 2)?.try_into().ok()?);
    query.get(at + 2..at + 4)?;
    Some((labels.join("."), kind, at + 4))
}

/// Encodes the answer to a query: `question` is the query up to the end of its question.
fn encode_answer(question: &[u8], kind: u16, addresses: &[IpAddr]) -> Vec<u8> {
    let records: Vec<Vec<u8>> = addresses
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(address) if kind == TYPE_A => Some(address.octets().to_vec()),
            IpAddr::V6(address) if kind == TYPE_AAAA => Some(address.octets().to_vec()),
            _ => None,
        })
        .collect();
    let mut answer = question.to_vec();
    // A response, authoritative; one question, so many answers, no other records.
    answer[2..4].copy_from_slice(&[0x84, 0x00]);
    let count = u16::try_from(records.len()).expect("few addresses");
    answer[4..12].copy_from_slice(&[0, 1, count.to_be_bytes()[0], count.to_be_bytes()[1], 0, 0, 0, 0]);
    for record in records {
        // The name of the question, the type, the class of the internet, a lifetime of 0 seconds.
        answer.extend([0xc0, 12]);
        answer.extend(kind.to_be_bytes());
        answer.extend([0, 1, 0, 0, 0, 0]);
        answer.extend(u16::try_from(record.len()).expect("an address").to_be_bytes());
        answer.extend(record);
    }
    answer
}
