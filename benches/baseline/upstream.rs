//! The management API and its object store at one address, with the faults that a scenario needs.

use std::collections::{BTreeSet, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The API key.
pub(crate) const KEY: &str = "dwk_5ecretAdminKeyOfTheBaseline";
/// The start of each link's signature.
pub(crate) const SIGNATURE: &str = "51gna7ureOfTheBucket";
/// The API's error message when it refuses the key.
pub(crate) const REVOKED: &str = "this key was revoked on 2026-11-01";

/// A fault of the upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// 401, with the reason in the body.
    Revoked,
    /// The API returns 503, and the object store treats every link as expired.
    Down,
    /// The first start of a job returns 503 with Retry-After.
    BusyOnce,
    /// The object store sends an HTML page with status 200.
    HtmlPage,
    /// The first download is cut in the middle.
    CutOnce,
    /// The first download is cut in the middle, and its link has expired from then on.
    LinkExpires,
    /// The first download takes more than five seconds.
    SlowOnce,
}

#[derive(Debug)]
pub(crate) struct UpstreamState {
    fault: Fault,
    bundle: Arc<Vec<u8>>,
    /// The bundle of each job: the one that was published when it started.
    jobs: Vec<Arc<Vec<u8>>>,
    links: usize,
    dead_links: HashSet<usize>,
    /// Counters since the fault was set: starts of jobs, downloads, and sent bytes of bundles.
    pub(crate) job_starts: usize,
    pub(crate) downloads: usize,
    pub(crate) sent_bytes: usize,
    /// Secrets found in the command lines of all processes during a request.
    pub(crate) secrets_in_ps: BTreeSet<&'static str>,
}

/// The running upstream. Its thread ends with the program.
pub(crate) struct Upstream {
    address: SocketAddr,
    state: Arc<Mutex<UpstreamState>>,
}

impl Upstream {
    pub(crate) fn new(bundle: Vec<u8>) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(UpstreamState {
            fault: Fault::None,
            bundle: Arc::new(bundle),
            jobs: Vec::new(),
            links: 0,
            dead_links: HashSet::new(),
            job_starts: 0,
            downloads: 0,
            sent_bytes: 0,
            secrets_in_ps: BTreeSet::new(),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = Arc::clone(&shared);
                // A client may disconnect in the middle of a response.
                std::thread::spawn(move || serve_request(&stream, &state, address));
            }
        });
        Upstream { address, state }
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, UpstreamState> {
        self.state.lock().expect("no panic while locked")
    }

    /// Publishes another bundle. Running jobs keep theirs.
    pub(crate) fn publish(&self, bundle: Vec<u8>) {
        self.state().bundle = Arc::new(bundle);
    }

    /// Sets the fault and resets the counters.
    pub(crate) fn fault(&self, fault: Fault) {
        let mut state = self.state();
        (state.fault, state.job_starts, state.downloads, state.sent_bytes) = (fault, 0, 0, 0);
    }
}

struct Request {
    line: String,
    has_valid_key: bool,
    range: Option<usize>,
}

fn read_request(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut request = Request { line: String::new(), has_valid_key: false, range: None };
    reader.read_line(&mut request.line).ok()?;
    let mut length = 0;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.has_valid_key = value.trim() == format!("Bearer {KEY}"),
            "content-length" => length = value.trim().parse().ok()?,
            "range" => request.range = value.trim().strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok(),
            _ => {}
        }
    }
    reader.take(length).read_to_end(&mut Vec::new()).ok()?;
    Some(request)
}

fn send(mut stream: &TcpStream, status: &str, fields: &str, body: &[u8]) -> std::io::Result<()> {
    let length = body.len();
    write!(stream, "HTTP/1.1 {status}\r\n{fields}Content-Length: {length}\r\nConnection: close\r\n\r\n")?;
    stream.write_all(body)
}

fn json(stream: &TcpStream, status: &str, fields: &str, body: &str) -> std::io::Result<()> {
    send(stream, status, &format!("{fields}Content-Type: application/json\r\n"), body.as_bytes())
}

fn serve_request(stream: &TcpStream, state: &Mutex<UpstreamState>, address: SocketAddr) -> Option<()> {
    let request = read_request(stream)?;
    let secrets = secrets_in_process_list();
    let mut state = state.lock().ok()?;
    state.secrets_in_ps.extend(secrets);
    let mut words = request.line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let parts: Vec<&str> = target.split(['/', '?', '=']).skip(1).collect();
    if parts[0] == "bundles" {
        return send_bundle(stream, state, parts[1].parse().ok()?, parts[2].parse().ok()?, request.range);
    }
    let fault = state.fault;
    match (method, &parts[1..]) {
        _ if fault == Fault::Down => json(stream, "503 Service Unavailable", "", r#"{"error":"maintenance"}"#),
        _ if fault == Fault::Revoked || !request.has_valid_key => {
            json(stream, "401 Unauthorized", "", &format!(r#"{{"error":"{REVOKED}"}}"#))
        }
        ("POST", ["static-export", "jobs"]) => {
            state.job_starts += 1;
            if fault == Fault::BusyOnce && state.job_starts == 1 {
                json(stream, "503 Service Unavailable", "Retry-After: 1\r\n", r#"{"error":"busy"}"#)
            } else {
                let bundle = Arc::clone(&state.bundle);
                state.jobs.push(bundle);
                json(stream, "202 Accepted", "", &format!(r#"{{"jobId":"{}"}}"#, state.jobs.len() - 1))
            }
        }
        ("GET", ["static-export", "jobs", _]) => json(stream, "200 OK", "", r#"{"status":"completed"}"#),
        ("POST", ["static-export", "jobs", job, "bundle"]) => {
            state.links += 1;
            let link = format!("http://{address}/bundles/{job}/{}?s={SIGNATURE}", state.links);
            json(stream, "200 OK", "", &format!(r#"{{"bundleUrl":"{link}"}}"#))
        }
        _ => json(stream, "404 Not Found", "", r#"{"error":"nothing here"}"#),
    }
    .ok()
}

fn send_bundle(
    mut stream: &TcpStream,
    mut state: MutexGuard<'_, UpstreamState>,
    job: usize,
    link: usize,
    range: Option<usize>,
) -> Option<()> {
    state.downloads += 1;
    let (fault, first) = (state.fault, state.downloads == 1);
    if fault == Fault::Down || state.dead_links.contains(&link) {
        let xml = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>";
        return send(stream, "403 Forbidden", "Content-Type: application/xml\r\n", xml.as_bytes()).ok();
    }
    if fault == Fault::HtmlPage {
        let page = "<!DOCTYPE html><html><title>Sign in</title><p>Your session has ended.</html>";
        return send(stream, "200 OK", "Content-Type: text/html\r\n", page.as_bytes()).ok();
    }
    let bytes = Arc::clone(state.jobs.get(job)?);
    let from = range.filter(|&from| from < bytes.len()).unwrap_or(0);
    let middle = bytes.len() / 2;
    let is_cut = first && matches!(fault, Fault::CutOnce | Fault::LinkExpires);
    let to = if is_cut { middle } else { bytes.len() };
    if is_cut && fault == Fault::LinkExpires {
        state.dead_links.insert(link);
    }
    state.sent_bytes += to - from;
    drop(state);
    let (total, rest) = (bytes.len(), bytes.len() - from);
    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
    let part = range.map_or_else(String::new, |_| format!("Content-Range: bytes {from}-{}/{total}\r\n", total - 1));
    write!(
        stream,
        "HTTP/1.1 {status}\r\nETag: \"job-{job}\"\r\n{part}Content-Length: {rest}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    if first && fault == Fault::SlowOnce {
        stream.write_all(&bytes[..middle]).ok()?;
        std::thread::sleep(Duration::from_secs(5));
        return stream.write_all(&bytes[middle..]).ok();
    }
    stream.write_all(&bytes[from..to]).ok()
}

/// The secrets that `ps` shows to every user of the machine at this moment.
fn secrets_in_process_list() -> BTreeSet<&'static str> {
    let mut secrets = BTreeSet::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        for (name, secret) in [("key", KEY), ("link", SIGNATURE)] {
            if line.contains(secret) {
                secrets.insert(name);
            }
        }
    }
    secrets
}
