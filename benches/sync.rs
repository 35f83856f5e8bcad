//! A complete sync with its download, compared with the pipelines that people write.
//!
//! `cargo bench --bench sync -- FOLDER [--rounds N]`, where FOLDER has `site.zip` and `site.tar.gz` of one large site
//! (`.ci/extra corpus` makes them of the Rust documentation). A server of this program's own, on loopback, sends them
//! at 100 Mbit/s and without a limit. It supports ranges, with which `ripunzip unzip-uri` downloads. As in
//! `benches/seal.rs`, peers end with `sync -f`, rounds are interleaved, each run starts with an idle disk, and every
//! extraction goes to a new folder.

#![allow(missing_docs)]
#![allow(clippy::disallowed_methods)] // it starts programs

mod peers;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use peers::{Arguments, compare, first_line, is_installed};

/// 100 Mbit/s, in bytes of content: header fields and TCP overhead are not counted.
const LIMITED_BYTES_PER_SECOND: f64 = 12_500_000.0;
/// A server that could not send for a while catches up with at most this time.
const MAX_CATCH_UP: Duration = Duration::from_millis(100);
/// Bytes of one write.
const PIECE_BYTES: usize = 64 * 1024;

/// The rate limit of all connections together.
struct RateLimiter {
    bytes_per_second: f64,
    /// The time at which the next byte may be sent.
    next_send_time: Mutex<Instant>,
}

impl RateLimiter {
    fn new(bytes_per_second: f64) -> RateLimiter {
        RateLimiter { bytes_per_second, next_send_time: Mutex::new(Instant::now()) }
    }

    /// Waits until `bytes` bytes may have been sent at this rate.
    fn wait_for_turn(&self, bytes: usize) {
        if self.bytes_per_second.is_infinite() {
            return;
        }
        let send_time = {
            let mut next_send_time = self.next_send_time.lock().expect("no thread panics with it");
            let earliest = Instant::now().checked_sub(MAX_CATCH_UP).expect("the machine has been up for longer");
            *next_send_time =
                (*next_send_time).max(earliest) + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
            *next_send_time
        };
        thread::sleep(send_time.saturating_duration_since(Instant::now()));
    }
}

/// Serves the files of a folder below `/100/` and `/max/` until the program ends. Returns the base URL.
fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let address = listener.local_addr().expect("it is bound");
    let limited = Arc::new(RateLimiter::new(LIMITED_BYTES_PER_SECOND));
    let unlimited = Arc::new(RateLimiter::new(f64::INFINITY));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("connections come in");
            let (folder, limited, unlimited) = (folder.clone(), Arc::clone(&limited), Arc::clone(&unlimited));
            // An error means that the client has closed the connection.
            thread::spawn(move || serve_connection(&stream, &folder, &limited, &unlimited));
        }
    });
    format!("http://{address}")
}

/// A parsed request.
#[derive(Default)]
struct Request {
    method: String,
    target: String,
    range: Option<String>,
}

fn read_request(lines: &mut impl BufRead) -> io::Result<Option<Request>> {
    let mut request = Request::default();
    let mut line = String::new();
    if lines.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    request.method = words.next().unwrap_or_default();
    request.target = words.next().unwrap_or_default();
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(Some(request));
        }
        if let Some((name, value)) = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("range")) {
            request.range = Some(format!("{}:{}", name.to_ascii_lowercase(), value.trim()));
        }
    }
}

fn serve_connection(
    stream: &TcpStream,
    folder: &Path,
    limited: &RateLimiter,
    unlimited: &RateLimiter,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream);
    while let Some(request) = read_request(&mut lines)? {
        let (limiter, name) = match request.target.trim_start_matches('/').split_once('/') {
            Some(("100", name)) => (limited, name),
            Some(("max", name)) => (unlimited, name),
            _ => (unlimited, "none"),
        };
        match File::open(folder.join(name)) {
            Ok(file) => send_file(stream, &request, &file, limiter)?,
            Err(_) => write_head(stream, "404 Not Found", "Content-Length: 0\r\n")?,
        }
    }
    Ok(())
}

fn write_head(mut stream: &TcpStream, status: &str, fields: &str) -> io::Result<()> {
    stream.write_all(format!("HTTP/1.1 {status}\r\n{fields}\r\n").as_bytes())
}

/// Sends the file, or the requested range of it.
fn send_file(mut stream: &TcpStream, request: &Request, file: &File, limiter: &RateLimiter) -> io::Result<()> {
    let total_len = file.metadata()?.len();
    let part = request.range.as_deref().and_then(|range| parse_range(range, total_len));
    let (from, to) = if let Some((from, to)) = part {
        let fields = format!("Content-Range: bytes {from}-{}/{total_len}\r\nContent-Length: {}\r\n", to - 1, to - from);
        write_head(stream, "206 Partial Content", &format!("{fields}ETag: \"{total_len}\"\r\n"))?;
        (from, to)
    } else {
        let fields = format!("Accept-Ranges: bytes\r\nContent-Length: {total_len}\r\nETag: \"{total_len}\"\r\n");
        write_head(stream, "200 OK", &fields)?;
        (0, total_len)
    };
    if request.method == "HEAD" {
        return Ok(());
    }
    let mut piece = vec![0; PIECE_BYTES];
    let mut offset = from;
    while offset < to {
        let n = PIECE_BYTES.min((to - offset) as usize);
        file.read_exact_at(&mut piece[..n], offset)?;
        limiter.wait_for_turn(n);
        stream.write_all(&piece[..n])?;
        offset += n as u64;
    }
    Ok(())
}

/// Start and end (exclusive) of the range in `range:bytes=…`.
fn parse_range(range: &str, total_len: u64) -> Option<(u64, u64)> {
    let (from, to) = range.strip_prefix("range:bytes=")?.split_once('-')?;
    let (from, to) = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) => (from, (to + 1).min(total_len)),
        (Ok(from), Err(_)) => (from, total_len),
        (Err(_), Ok(last)) => (total_len.saturating_sub(last), total_len),
        (Err(_), Err(_)) => return None,
    };
    (from < to).then_some((from, to))
}

fn main() {
    let Some(Arguments { folder, rounds }) = peers::arguments("sync") else { return };
    let scratch = tempfile::Builder::new().prefix("bench-sync-").tempdir_in(&folder).expect("FOLDER can be written");
    let program = env!("CARGO_BIN_EXE_docwharf");
    println!("{}", first_line(&format!("{program} --version")));
    for command in ["curl --version", "tar --version", "unzip -v", "bsdtar --version", "ripunzip --version"] {
        if is_installed(command.split(' ').next().unwrap_or_default()) {
            println!("{}", first_line(command));
        }
    }
    let base = serve(folder.clone());
    let config = scratch.path().join("empty.toml");
    std::fs::write(&config, "").expect("FOLDER can be written");
    let docwharf_command = format!(
        "DOCWHARF_STORE__PATH=\"$D\" DOCWHARF_STATIC_EXPORT__BUNDLE_URL=\"$A\" {program} -q sync --config \"{}\"",
        config.display()
    );
    // Each name is that of the program that is needed besides curl.
    let zip = [
        ("unzip", "curl -sf \"$A\" -o \"$D/.zip\" && unzip -q \"$D/.zip\" -d \"$D\" && rm \"$D/.zip\""),
        ("bsdtar", "curl -sf \"$A\" | bsdtar xf - -C \"$D\""),
        ("ripunzip", "ripunzip -q unzip-uri -d \"$D\" \"$A\""),
    ];
    let tar = [("tar", "curl -sf \"$A\" | tar xz -C \"$D\""), ("bsdtar", "curl -sf \"$A\" | bsdtar xf - -C \"$D\"")];
    for (rate, title) in [("100", "at 100 Mbit/s"), ("max", "unlimited")] {
        for (name, peers) in [("site.zip", &zip[..]), ("site.tar.gz", &tar[..])] {
            let size = std::fs::metadata(folder.join(name)).expect("the archive is there").len();
            let link = format!("{base}/{rate}/{name}");
            let title = format!("{name}, {title}");
            compare(&title, &link, size, scratch.path(), rounds, ("docwharf sync", &docwharf_command), peers);
            if rate == "100" {
                println!("the transfer alone at 100 Mbit/s: {:.2} s", size as f64 / LIMITED_BYTES_PER_SECOND);
            }
        }
    }
    println!("\nremoving the scratch folder; this may take longer than the benchmark");
}
