//! The management API and its bucket at one address, doing what a scenario needs to go wrong.

use std::collections::{BTreeSet, HashSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The admin key.
pub(crate) const KEY: &str = "dwk_5ecretAdminKeyOfTheBaseline";
/// What each link's signature begins with.
pub(crate) const SIGNATURE: &str = "51gna7ureOfTheBucket";
/// What the API says when it refuses the key.
pub(crate) const REVOKED: &str = "this key was revoked on 2026-11-01";

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// 401, with the reason in the body.
    Revoked,
    /// The API answers 503, the bucket calls every link expired.
    Down,
    /// The first start of a job is answered 503, with Retry-After.
    BusyOnce,
    /// The bucket sends an HTML page with status 200.
    HtmlPage,
    /// The first download is cut in the middle.
    CutOnce,
    /// The same, and its link is dead from then on.
    LinkDies,
    /// The first download takes its time.
    SlowOnce,
}

#[derive(Debug)]
pub(crate) struct Script {
    fault: Fault,
    bundle: Arc<Vec<u8>>,
    /// What each job exports: what was published when it started.
    jobs: Vec<Arc<Vec<u8>>>,
    links: usize,
    dead: HashSet<usize>,
    /// Since the fault was set: starts of jobs, downloads, and bytes of bundles sent.
    pub(crate) starts: usize,
    pub(crate) downloads: usize,
    pub(crate) sent: usize,
    /// Secrets found in the command lines of this machine's processes while they were asking.
    pub(crate) in_ps: BTreeSet<&'static str>,
}

/// The running upstream. Its thread ends with the program.
pub(crate) struct Upstream {
    address: SocketAddr,
    script: Arc<Mutex<Script>>,
}

impl Upstream {
    pub(crate) fn new(bundle: Vec<u8>) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("an address");
        let script = Arc::new(Mutex::new(Script {
            fault: Fault::None,
            bundle: Arc::new(bundle),
            jobs: Vec::new(),
            links: 0,
            dead: HashSet::new(),
            starts: 0,
            downloads: 0,
            sent: 0,
            in_ps: BTreeSet::new(),
        }));
        let shared = Arc::clone(&script);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let script = Arc::clone(&shared);
                // A client that goes away in the middle is its own business.
                std::thread::spawn(move || answer(&stream, &script, address));
            }
        });
        Upstream { address, script }
    }

    pub(crate) fn base(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().expect("no panic while locked")
    }

    /// Publishes another bundle; jobs that run keep theirs.
    pub(crate) fn publish(&self, bundle: Vec<u8>) {
        self.script().bundle = Arc::new(bundle);
    }

    /// From now on this goes wrong; counting begins anew.
    pub(crate) fn fault(&self, fault: Fault) {
        let mut script = self.script();
        (script.fault, script.starts, script.downloads, script.sent) = (fault, 0, 0, 0);
    }
}

struct Request {
    line: String,
    key: bool,
    range: Option<usize>,
}

fn read(stream: &TcpStream) -> Option<Request> {
    let mut reader = BufReader::new(stream);
    let mut request = Request { line: String::new(), key: false, range: None };
    reader.read_line(&mut request.line).ok()?;
    let mut length = 0;
    loop {
        let mut field = String::new();
        reader.read_line(&mut field).ok()?;
        let Some((name, value)) = field.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "authorization" => request.key = value.trim() == format!("Bearer {KEY}"),
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

fn answer(stream: &TcpStream, script: &Mutex<Script>, address: SocketAddr) -> Option<()> {
    let request = read(stream)?;
    let seen = look_around();
    let mut script = script.lock().ok()?;
    script.in_ps.extend(seen);
    let mut words = request.line.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let parts: Vec<&str> = target.split(['/', '?', '=']).skip(1).collect();
    if parts[0] == "bundles" {
        return bundle(stream, script, parts[1].parse().ok()?, parts[2].parse().ok()?, request.range);
    }
    let fault = script.fault;
    match (method, &parts[1..]) {
        _ if fault == Fault::Down => json(stream, "503 Service Unavailable", "", r#"{"error":"maintenance"}"#),
        _ if fault == Fault::Revoked || !request.key => {
            json(stream, "401 Unauthorized", "", &format!(r#"{{"error":"{REVOKED}"}}"#))
        }
        ("POST", ["static-export", "jobs"]) => {
            script.starts += 1;
            if fault == Fault::BusyOnce && script.starts == 1 {
                json(stream, "503 Service Unavailable", "Retry-After: 1\r\n", r#"{"error":"busy"}"#)
            } else {
                let bundle = Arc::clone(&script.bundle);
                script.jobs.push(bundle);
                json(stream, "202 Accepted", "", &format!(r#"{{"jobId":"{}"}}"#, script.jobs.len() - 1))
            }
        }
        ("GET", ["static-export", "jobs", _]) => json(stream, "200 OK", "", r#"{"status":"completed"}"#),
        ("POST", ["static-export", "jobs", job, "bundle"]) => {
            script.links += 1;
            let link = format!("http://{address}/bundles/{job}/{}?s={SIGNATURE}", script.links);
            json(stream, "200 OK", "", &format!(r#"{{"bundleUrl":"{link}"}}"#))
        }
        _ => json(stream, "404 Not Found", "", r#"{"error":"nothing here"}"#),
    }
    .ok()
}

fn bundle(
    mut stream: &TcpStream,
    mut script: MutexGuard<'_, Script>,
    job: usize,
    link: usize,
    range: Option<usize>,
) -> Option<()> {
    script.downloads += 1;
    let (fault, first) = (script.fault, script.downloads == 1);
    if fault == Fault::Down || script.dead.contains(&link) {
        let xml = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>";
        return send(stream, "403 Forbidden", "Content-Type: application/xml\r\n", xml.as_bytes()).ok();
    }
    if fault == Fault::HtmlPage {
        let page = "<!DOCTYPE html><html><title>Sign in</title><p>Your session has ended.</html>";
        return send(stream, "200 OK", "Content-Type: text/html\r\n", page.as_bytes()).ok();
    }
    let bytes = Arc::clone(script.jobs.get(job)?);
    let from = range.filter(|&from| from < bytes.len()).unwrap_or(0);
    let middle = bytes.len() / 2;
    let cut = first && matches!(fault, Fault::CutOnce | Fault::LinkDies);
    let to = if cut { middle } else { bytes.len() };
    if cut && fault == Fault::LinkDies {
        script.dead.insert(link);
    }
    script.sent += to - from;
    drop(script);
    let (all, rest) = (bytes.len(), bytes.len() - from);
    let status = if range.is_some() { "206 Partial Content" } else { "200 OK" };
    let part = range.map_or_else(String::new, |_| format!("Content-Range: bytes {from}-{}/{all}\r\n", all - 1));
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

/// What `ps` shows to every user of the machine just now.
fn look_around() -> BTreeSet<&'static str> {
    let mut seen = BTreeSet::new();
    for process in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        for (what, secret) in [("key", KEY), ("link", SIGNATURE)] {
            if line.contains(secret) {
                seen.insert(what);
            }
        }
    }
    seen
}
