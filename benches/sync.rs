//! A whole sync, download included, against the pipelines that people write.
//!
//! `cargo bench --bench sync -- FOLDER [--rounds N]`, where FOLDER holds `site.zip` and `site.tar.gz` of one large site
//! (`.ci/extra corpus` makes them of the Rust documentation). A server of this program's own, on loopback, sends them at
//! 100 Mbit/s and as fast as it can; it knows ranges, which `ripunzip unzip-uri` downloads by. What goes for
//! `benches/seal.rs` goes here: peers end with `sync -f`, rounds are interleaved, each run starts with a quiet disk, and
//! every extraction goes to a new folder.

#![allow(missing_docs)]

mod peers;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use peers::{Arguments, compare, first_line, installed};

/// 100 Mbit/s, in bytes of content: fields and frames are not counted.
const LIMITED: f64 = 12_500_000.0;
/// A server that was kept from sending catches up with what this time would have taken.
const BEHIND: Duration = Duration::from_millis(100);
/// Bytes that are sent at a time.
const PIECE: usize = 64 * 1024;

/// What all connections together may send.
struct Bucket {
    bytes_a_second: f64,
    /// When the next byte may go.
    free_at: Mutex<Instant>,
}

impl Bucket {
    fn new(bytes_a_second: f64) -> Bucket {
        Bucket { bytes_a_second, free_at: Mutex::new(Instant::now()) }
    }

    /// Waits until so many bytes have had their time on the wire.
    fn take(&self, bytes: usize) {
        if self.bytes_a_second.is_infinite() {
            return;
        }
        let due = {
            let mut free_at = self.free_at.lock().expect("no thread panics with it");
            let earliest = Instant::now().checked_sub(BEHIND).expect("the machine has been up for longer");
            *free_at = (*free_at).max(earliest) + Duration::from_secs_f64(bytes as f64 / self.bytes_a_second);
            *free_at
        };
        thread::sleep(due.saturating_duration_since(Instant::now()));
    }
}

/// Serves the files of a folder below `/100/` and `/max/` until the program ends; gives its address.
fn serve(folder: PathBuf) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let address = listener.local_addr().expect("it is bound");
    let limited = Arc::new(Bucket::new(LIMITED));
    let unlimited = Arc::new(Bucket::new(f64::INFINITY));
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("connections come in");
            let (folder, limited, unlimited) = (folder.clone(), Arc::clone(&limited), Arc::clone(&unlimited));
            // Whoever breaks off has what it wanted.
            thread::spawn(move || answer_all(&stream, &folder, &limited, &unlimited));
        }
    });
    format!("http://{address}")
}

/// What is asked for.
#[derive(Default)]
struct Asked {
    method: String,
    target: String,
    range: Option<String>,
}

fn read_request(lines: &mut impl BufRead) -> io::Result<Option<Asked>> {
    let mut asked = Asked::default();
    let mut line = String::new();
    if lines.read_line(&mut line)? == 0 {
        return Ok(None);
    }
    let mut words = line.split(' ').map(str::to_owned);
    asked.method = words.next().unwrap_or_default();
    asked.target = words.next().unwrap_or_default();
    loop {
        line.clear();
        if lines.read_line(&mut line)? == 0 || line.trim().is_empty() {
            return Ok(Some(asked));
        }
        if let Some((name, value)) = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("range")) {
            asked.range = Some(format!("{}:{}", name.to_ascii_lowercase(), value.trim()));
        }
    }
}

fn answer_all(stream: &TcpStream, folder: &Path, limited: &Bucket, unlimited: &Bucket) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut lines = BufReader::new(stream);
    while let Some(asked) = read_request(&mut lines)? {
        let (bucket, name) = match asked.target.trim_start_matches('/').split_once('/') {
            Some(("100", name)) => (limited, name),
            Some(("max", name)) => (unlimited, name),
            _ => (unlimited, "none"),
        };
        match File::open(folder.join(name)) {
            Ok(file) => answer(stream, &asked, &file, bucket)?,
            Err(_) => write_head(stream, "404 Not Found", "Content-Length: 0\r\n")?,
        }
    }
    Ok(())
}

fn write_head(mut stream: &TcpStream, status: &str, fields: &str) -> io::Result<()> {
    stream.write_all(format!("HTTP/1.1 {status}\r\n{fields}\r\n").as_bytes())
}

/// Sends the file, or the one range of it that is asked for.
fn answer(mut stream: &TcpStream, asked: &Asked, file: &File, bucket: &Bucket) -> io::Result<()> {
    let whole = file.metadata()?.len();
    let part = asked.range.as_deref().and_then(|range| part(range, whole));
    let (from, to) = if let Some((from, to)) = part {
        let fields = format!("Content-Range: bytes {from}-{}/{whole}\r\nContent-Length: {}\r\n", to - 1, to - from);
        write_head(stream, "206 Partial Content", &format!("{fields}ETag: \"{whole}\"\r\n"))?;
        (from, to)
    } else {
        let fields = format!("Accept-Ranges: bytes\r\nContent-Length: {whole}\r\nETag: \"{whole}\"\r\n");
        write_head(stream, "200 OK", &fields)?;
        (0, whole)
    };
    if asked.method == "HEAD" {
        return Ok(());
    }
    let mut piece = vec![0; PIECE];
    let mut at = from;
    while at < to {
        let n = PIECE.min((to - at) as usize);
        file.read_exact_at(&mut piece[..n], at)?;
        bucket.take(n);
        stream.write_all(&piece[..n])?;
        at += n as u64;
    }
    Ok(())
}

/// The bytes that `range:bytes=…` asks for, the end not included.
fn part(range: &str, whole: u64) -> Option<(u64, u64)> {
    let (from, to) = range.strip_prefix("range:bytes=")?.split_once('-')?;
    let (from, to) = match (from.parse::<u64>(), to.parse::<u64>()) {
        (Ok(from), Ok(to)) => (from, (to + 1).min(whole)),
        (Ok(from), Err(_)) => (from, whole),
        (Err(_), Ok(last)) => (whole.saturating_sub(last), whole),
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
        if installed(command.split(' ').next().unwrap_or_default()) {
            println!("{}", first_line(command));
        }
    }
    let base = serve(folder.clone());
    let ours = format!(
        "DOCWHARF_STORE__PATH=\"$D\" DOCWHARF_STATIC_EXPORT__BUNDLE_URL=\"$A\" {program} -q sync --config /dev/null"
    );
    // Each name begins with the program that has to be there besides curl.
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
            compare(&title, &link, size, scratch.path(), rounds, ("docwharf sync", &ours), peers);
            if rate == "100" {
                println!("the wire alone: {:.2} s", size as f64 / LIMITED);
            }
        }
    }
    println!("\nremoving the scratch folder; this may take longer than all the rest");
}
