//! What the assistants cost: the time that ask adds to the first token of a model, and the memory of an idle server.
//!
//! `cargo bench --bench assistants -- BUNDLE` with a bundle of documentation; `.ci/extra assistants-cost` does it with
//! the documentation of Python. The model is a server on loopback that answers at once, so that all of the measured time
//! is docwharf's. The goals are those of BENCHMARKS.md.

#![allow(missing_docs)]

use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use support::chat_server::{ChatReply, ChatTestServer};
use support::host::Host;
use support::http::{connect, get, post_request, request};
use support::{Daemon, anonymous_memory_bytes, temporary_folder, until_within};

const QUESTIONS: usize = 1_000;
/// The longest time for the search index and the Markdown of all pages.
const PREPARATION_TIMEOUT: Duration = Duration::from_mins(5);
/// The number of starts of each configuration whose memory is measured.
const STARTS: usize = 5;
/// The time after the last work of a server, in which it gives back memory.
const IDLE_TIME: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let bundle = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let Some(bundle) = bundle.map(PathBuf::from) else {
        eprintln!("name a bundle of documentation");
        return ExitCode::FAILURE;
    };
    measure_first_token(&bundle);
    measure_idle_memory(&bundle);
    ExitCode::SUCCESS
}

fn measure_first_token(bundle: &Path) {
    let endpoint = ChatTestServer::start([ChatReply::Answer(vec!["It is so [1].".to_owned()])]);
    let folder = temporary_folder();
    let text = format!(
        "[assistant]\nbaseUrl = \"{}\"\nmodel = \"m\"\nperMinute = 65535\nperDay = 1000000\n",
        endpoint.base_url
    );
    let daemon = Daemon::serve_configured(bundle, &folder.path().join("config.toml"), &text);
    until_within(PREPARATION_TIMEOUT, "the index is open", || {
        let target = "/_docwharf/search?q=index";
        request(&daemon.address, "GET", target, &["Accept: application/json"]).status == 200
    });
    let words =
        ["iterator", "exception", "decorator", "socket", "thread", "regular expression", "datetime", "csv file"];
    let forms = ["How do I use a WORD?", "What is the difference between a WORD and a list?", "Why does my WORD fail?"];
    let (mut through_ask, mut direct) = (Vec::new(), Vec::new());
    for number in 0..QUESTIONS {
        let question = forms[number % forms.len()].replace("WORD", words[number % words.len()]);
        let body = json!({ "question": question }).to_string();
        let fields = &["Accept: text/event-stream"];
        through_ask.push(time_to_text(&daemon.address, "/_docwharf/ask", fields, &body, "event: delta"));
        let request = endpoint.requests().pop().expect("the model was asked");
        let address = endpoint.base_url.trim_start_matches("http://").trim_end_matches("/v1");
        direct.push(time_to_text(address, "/v1/chat/completions", &[], &request.body.to_string(), "data:"));
    }
    println!("{QUESTIONS} questions, one after the other:\n");
    println!("| first token | p50, ms | p99, ms | slowest, ms |\n|---|---|---|---|");
    let direct = print_row("of the model, the same request", direct);
    let through_ask = print_row("through ask", through_ask);
    println!("\nadded at p99: {:.1} ms; must (aim): 100 (40)\n", through_ask - direct);
}

/// Returns the time in milliseconds from before the connection until the response has this text.
fn time_to_text(address: &str, target: &str, fields: &[&str], body: &str, text: &str) -> f64 {
    let begun = Instant::now();
    let mut stream = connect(address);
    let request = post_request(address, target, &[&["Content-Type: application/json"], fields].concat(), body);
    stream.write_all(&request).expect("the server reads");
    let (mut response, mut chunk) = (Vec::new(), [0; 16 << 10]);
    while !String::from_utf8_lossy(&response).contains(text) {
        let n = stream.read(&mut chunk).expect("the server answers");
        assert!(n > 0, "no {text:?}: {}", String::from_utf8_lossy(&response));
        response.extend_from_slice(&chunk[..n]);
    }
    let time = begun.elapsed();
    // The next question begins when this one has ended.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    while !String::from_utf8_lossy(&response).contains("done") && stream.read(&mut chunk).is_ok_and(|n| n > 0) {}
    time.as_secs_f64() * 1000.0
}

/// Prints p50, p99 and the slowest of these times, and returns p99.
fn print_row(name: &str, mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    let at = |percent: usize| times[(times.len() - 1) * percent / 100];
    println!("| {name} | {:.2} | {:.2} | {:.2} |", at(50), at(99), at(100));
    at(99)
}

/// Measures `run` on a store that has the bundle, its index and its Markdown, without a request.
fn measure_idle_memory(bundle: &Path) {
    let endpoint = ChatTestServer::start([ChatReply::text("It is so [1].")]);
    let off = host_with_search("[assistant]\nmcp = false\nmarkdown = false\nllms = false\n");
    let on = host_with_search(&format!(
        "[assistant]\nbaseUrl = \"{}\"\nmodel = \"m\"\n[playground]\nenabled = true\nrewrite = true\n\
         [[playground.allow]]\norigin = \"https://api.example.com\"\n",
        endpoint.base_url
    ));
    println!("| idle memory of its own, MiB | median of {STARTS} starts |\n|---|---|");
    let mut medians = Vec::new();
    for (name, host) in [("without assistants", &off), ("with all of them", &on)] {
        host.ok(&["import", bundle.to_str().expect("a path that is UTF-8")]);
        let mut sizes: Vec<u64> = (0..=STARTS).map(|_| idle_memory(host)).collect();
        // The first start makes index, forms and Markdown.
        sizes.remove(0);
        sizes.sort_unstable();
        let median = sizes[sizes.len() / 2] as f64 / f64::from(1 << 20);
        println!("| {name} | {median:.2} |");
        medians.push(median);
    }
    println!("\nadded: {:.2} MiB; must: 2", medians[1] - medians[0]);
}

/// Creates a host with search, and with these sections.
fn host_with_search(sections: &str) -> Host {
    let host = Host::bare();
    host.put(
        "docwharf.toml",
        format!("[store]\npath = \"store\"\n[server]\nlisten = \"127.0.0.1:0\"\ncodings = []\n{sections}"),
    );
    host
}

fn idle_memory(host: &Host) -> u64 {
    let daemon = host.run();
    let mut idle_since = Instant::now();
    until_within(PREPARATION_TIMEOUT, "the index is open, and no program makes anything", || {
        if child_count(daemon.pid()) > 0 || get(&daemon.address, "/_docwharf/search?q=index").status != 200 {
            idle_since = Instant::now();
        }
        idle_since.elapsed() > IDLE_TIME
    });
    anonymous_memory_bytes(daemon.pid())
}

/// The number of programs that a process has started and that run.
fn child_count(pid: u32) -> usize {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .map(|task| fs::read_to_string(task.path().join("children")).unwrap_or_default().split_whitespace().count())
        .sum()
}
