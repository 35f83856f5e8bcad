//! Agent and origin as real processes: the agent downloads what the origin exports, through a proxy that records each
//! request and can cut responses.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use support::{
    CommandOutput, Daemon, docwharf, http, run_to_end, temporary_folder, until, until_done_in_background, write_site,
};

const KEY: &str = "dwk_0123456789abcdef";
const DOMAIN: &str = "docs.example.com";

/// State of the proxy: the faults that a test sets, and the recorded requests.
#[derive(Default)]
struct Proxy {
    /// The number of bundle responses that are still to be cut.
    remaining_cuts: AtomicUsize,
    /// The number of bytes after which a response is cut.
    cut_after: AtomicU64,
    /// The heads of all requests.
    heads: Mutex<Vec<String>>,
}

/// Starts a proxy to `origin`. Each connection has one request.
fn start_proxy(origin: &str) -> (String, Arc<Proxy>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let proxy = Arc::new(Proxy::default());
    let (origin, shared) = (origin.to_owned(), Arc::clone(&proxy));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (origin, proxy) = (origin.clone(), Arc::clone(&shared));
            std::thread::spawn(move || forward(client, &origin, &proxy));
        }
    });
    (address, proxy)
}

/// Forwards one request and its response. An error on either side closes both connections.
fn forward(mut client: TcpStream, origin: &str, proxy: &Proxy) -> Option<()> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        client.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    proxy.heads.lock().unwrap().push(text.clone());
    let lower = text.to_ascii_lowercase();
    let length = lower.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    client.read_exact(&mut body).ok()?;
    // One request per connection, so that each is recorded.
    let head = text.replacen("\r\n", "\r\nConnection: close\r\n", 1);
    let mut origin_stream = TcpStream::connect(origin).ok()?;
    origin_stream.write_all(head.as_bytes()).ok()?;
    origin_stream.write_all(&body).ok()?;
    let is_cut = text.starts_with("GET /bundles/")
        && proxy.remaining_cuts.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
    let limit = if is_cut { proxy.cut_after.load(Ordering::SeqCst) } else { u64::MAX };
    let copied = std::io::copy(&mut origin_stream.take(limit), &mut client);
    let _ = client.shutdown(Shutdown::Both);
    copied.ok().map(drop)
}

/// A folder with a site, a key, an origin that exports the site, a proxy to it and a configuration for an agent.
struct Chain {
    dir: tempfile::TempDir,
    origin: Option<Daemon>,
    proxy: Arc<Proxy>,
}

impl Chain {
    fn new(options: &[&str]) -> Chain {
        let dir = temporary_folder();
        write_site(&dir.path().join("site"), &[("index.html", "<title>one</title>"), ("a/b.html", "<p>two")]);
        std::fs::write(dir.path().join("key"), format!("{KEY}\n")).unwrap();
        let site = format!("{DOMAIN}={}", dir.path().join("site").display());
        let mut command = docwharf();
        command.args(["origin", "--listen", "127.0.0.1:0", "--site", &site, "--key-file"]).arg(dir.path().join("key"));
        let origin = Daemon::start(command.args(options));
        let (address, proxy) = start_proxy(&origin.address);
        let config = format!(
            "[api]\nbaseUrl = \"http://{address}/v1\"\ndomain = \"{DOMAIN}\"\nkeyFile = \"key\"\n\
             [sync]\ninterval = \"200ms\"\nprobe = [\"http://{address}/sites/{DOMAIN}/sitemap.xml\"]\n\
             [network]\npollFirst = \"20ms\"\n[store]\npath = \"store\"\n[server]\nlisten = \"127.0.0.1:0\"\n\
             [search]\nenabled = false\n"
        );
        std::fs::write(dir.path().join("docwharf.toml"), config).unwrap();
        Chain { dir, origin: Some(origin), proxy }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, verb: &str) -> std::process::Command {
        let mut command = docwharf();
        command.arg(verb).arg("--config").arg(self.path("docwharf.toml"));
        command
    }

    fn sync(&self) -> CommandOutput {
        run_to_end(self.command("sync").arg("--json"))
    }

    /// The heads of requests that begin with `start`.
    fn requests_starting_with(&self, start: &str) -> Vec<String> {
        self.proxy.heads.lock().unwrap().iter().filter(|head| head.starts_with(start)).cloned().collect()
    }

    /// Adds a file of `bytes` bytes that cannot be compressed.
    fn add_noise(&self, bytes: usize) {
        let mut state = 88_172_645_463_325_252_u64;
        let noise = std::iter::repeat_with(|| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()
        });
        std::fs::write(self.path("site/noise.png"), noise.flatten().take(bytes).collect::<Vec<u8>>()).unwrap();
    }
}

#[test]
fn the_agent_serves_changes_of_the_origin_and_sends_its_key_only_to_the_api() {
    let chain = Chain::new(&[]);
    assert_eq!(chain.sync().expect(0).json()["result"], "activated");
    assert_eq!(chain.sync().expect(0).json()["result"], "already current");
    let agent = Daemon::start(&mut chain.command("run"));
    for text in ["two", "three"] {
        std::fs::write(chain.path("site/index.html"), format!("<title>{text}</title>")).unwrap();
        until_done_in_background("the change", || http::get(&agent.address, "/").text().contains(text));
    }
    for head in chain.proxy.heads.lock().unwrap().iter() {
        let has_key = head.to_ascii_lowercase().contains("authorization:");
        assert_eq!(has_key, head.split(' ').nth(1).unwrap().starts_with("/v1/"), "{head}");
    }
    let downloads = chain.requests_starting_with("GET /bundles/");
    assert!(
        downloads[1].to_ascii_lowercase().contains("if-none-match:"),
        "the second request is conditional: {}",
        downloads[1]
    );
}

#[test]
fn a_download_that_is_cut_twice_resumes_without_repeating_bytes() {
    let chain = Chain::new(&[]);
    chain.add_noise(3 << 20);
    chain.proxy.cut_after.store(1_200_000, Ordering::SeqCst);
    chain.proxy.remaining_cuts.store(2, Ordering::SeqCst);
    assert_eq!(chain.sync().expect(0).json()["result"], "activated");
    let downloads = chain.requests_starting_with("GET /bundles/");
    assert_eq!(downloads.len(), 3);
    for head in &downloads[1..] {
        let head = head.to_ascii_lowercase();
        assert!(head.contains("range: bytes=") && head.contains("if-range: \""), "{head}");
    }
    assert_eq!(chain.requests_starting_with("POST /v1/static-export/jobs HTTP").len(), 1);
}

#[test]
fn a_link_that_expires_between_two_cuts_is_renewed_for_the_same_job() {
    let chain = Chain::new(&["--link-lifetime", "1s"]);
    chain.add_noise(3 << 20);
    chain.proxy.cut_after.store(600_000, Ordering::SeqCst);
    // The pauses after three cuts take at least three and a half seconds.
    chain.proxy.remaining_cuts.store(3, Ordering::SeqCst);
    assert_eq!(chain.sync().expect(0).json()["result"], "activated");
    assert_eq!(chain.requests_starting_with("POST /v1/static-export/jobs HTTP").len(), 1, "one job");
    let links = chain.proxy.heads.lock().unwrap().iter().filter(|h| h.contains("/bundle HTTP")).count();
    assert!(links >= 2, "{links} links");
}

#[test]
fn the_agent_serves_the_site_after_the_origin_has_stopped() {
    let mut chain = Chain::new(&[]);
    chain.sync().expect(0);
    drop(chain.origin.take());
    let agent = Daemon::start(&mut chain.command("run"));
    let last = || run_to_end(chain.command("status").arg("--json")).json()["lastAttempt"]["result"].clone();
    until("a failed check", || last() == "probes unreadable");
    assert!(http::get(&agent.address, "/").text().contains("one"));
}

#[test]
fn https_to_a_plain_http_port_fails_with_a_message_about_plain_http() {
    let chain = Chain::new(&[]);
    let address = &chain.origin.as_ref().unwrap().address;
    let ended = run_to_end(
        docwharf()
            .args(["sync", "--config"])
            .arg(chain.path("docwharf.toml"))
            .env("DOCWHARF_API__BASE_URL", format!("https://{address}/v1")),
    )
    .expect(4);
    assert!(ended.stderr.contains("plain http"), "{}", ended.stderr);
    assert!(chain.requests_starting_with("").is_empty(), "no other request was sent");
}
