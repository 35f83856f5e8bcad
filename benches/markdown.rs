//! The Markdown of all pages of a site, compared with html2text of `PyPI`, on one core.
//!
//! `cargo bench --bench markdown -- FOLDER PYTHON [--rounds N]`, where FOLDER has the HTML files of a site and PYTHON is
//! a Python with html2text; `.ci/extra markdown` makes both. Both programs read all files into memory before the clock
//! starts, convert each on one thread, and their rounds are interleaved. The first round of each is a warm-up.

#![allow(missing_docs)]
#![allow(clippy::disallowed_methods)] // it reads files and starts a program

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use docwharf::search::markdown::{MarkdownSettings, render_page};

/// The script that converts the same files with html2text.
const PEER_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/markdown/html2text_peer.py");
/// The number of rounds without `--rounds`.
const DEFAULT_ROUNDS: usize = 5;
/// The greatest ratio to html2text.
const MAX_RATIO: f64 = 0.25;
/// The longest time for the documentation of Python, in seconds.
const MAX_SECONDS: f64 = 4.0;

/// Lists the HTML files below a folder, in order.
fn list_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry can be read").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            list_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "html") {
            pages.push(path);
        }
    }
}

/// Converts all pages once. Returns the seconds and the bytes of Markdown.
fn convert_all(pages: &[(String, Vec<u8>)]) -> (f64, usize) {
    let start = Instant::now();
    let mut bytes = 0;
    for (page_url, html) in pages {
        let settings = MarkdownSettings { page_url, base_path: "/" };
        bytes += render_page(html, &settings).map_or(0, |markdown| markdown.text.len());
    }
    (start.elapsed().as_secs_f64(), bytes)
}

/// Runs html2text once. Returns the seconds and the bytes of Markdown.
fn run_peer(python: &str, folder: &Path) -> Result<(f64, usize), String> {
    let output = Command::new(python).arg(PEER_SCRIPT).arg(folder).output();
    let output = output.map_err(|error| format!("cannot start {python}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut numbers = text.split_whitespace();
    let seconds = numbers.next().and_then(|number| number.parse().ok());
    let bytes = numbers.next().and_then(|number| number.parse().ok());
    seconds.zip(bytes).ok_or_else(|| format!("{python}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let [folder, python, rest @ ..] = arguments.as_slice() else {
        println!("usage: cargo bench --bench markdown -- FOLDER PYTHON [--rounds N]");
        return ExitCode::SUCCESS;
    };
    let rounds = match rest {
        [flag, rounds] if flag == "--rounds" => rounds.parse().unwrap_or(DEFAULT_ROUNDS).max(1),
        _ => DEFAULT_ROUNDS,
    };
    let folder = Path::new(folder);
    let mut paths = Vec::new();
    list_pages(folder, &mut paths);
    let pages: Vec<(String, Vec<u8>)> = paths
        .iter()
        .map(|path| {
            let url = path.strip_prefix(folder).unwrap_or(path).to_string_lossy().into_owned();
            (url, fs::read(path).expect("a page can be read"))
        })
        .collect();
    let html_bytes: usize = pages.iter().map(|(_, html)| html.len()).sum();
    println!("{} pages, {:.1} MB of HTML", pages.len(), html_bytes as f64 / 1e6);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let (seconds, bytes) = convert_all(&pages);
        let peer = match run_peer(python, folder) {
            Ok(peer) => peer,
            Err(error) => {
                println!("{error}");
                return ExitCode::FAILURE;
            }
        };
        println!("docwharf {seconds:.3} s ({bytes} bytes), html2text {:.3} s ({} bytes)", peer.0, peer.1);
        if round > 0 {
            ours.push(seconds);
            theirs.push(peer.0);
        }
    }
    let ratio = median(ours.iter().zip(&theirs).map(|(ours, theirs)| ours / theirs).collect());
    let seconds = median(ours);
    println!("\nmedian: {seconds:.3} s, {ratio:.4} of html2text (at most {MAX_SECONDS} s and {MAX_RATIO})");
    if ratio <= MAX_RATIO && seconds <= MAX_SECONDS { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
