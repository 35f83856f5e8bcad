//! Latency of the MCP server: 16 clients call `search_docs` and `read_page` at a time.
//!
//! `cargo bench --bench mcp -- BUNDLE` with a bundle of documentation; `.ci/extra mcp-speed` does it with the
//! documentation of Python. The goals are those of BENCHMARKS.md.

#![allow(missing_docs)]

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::http::{PersistentConnection, get, post_request};
use support::mcp::{MCP_PATH, modern_metadata};
use support::{Daemon, temporary_folder, until_within};

const CLIENTS: usize = 16;
/// The number of calls of each tool, by all clients together.
const CALLS: usize = 8_000;
/// The longest time for the search index.
const INDEX_TIMEOUT: Duration = Duration::from_mins(2);

/// A connection of a client.
struct McpClient {
    connection: PersistentConnection,
}

impl McpClient {
    fn open(address: &str) -> McpClient {
        McpClient { connection: PersistentConnection::open(address) }
    }

    /// Calls a tool and returns its structured content.
    fn call(&mut self, tool: &str, arguments: &Value) -> Result<Value, String> {
        let params = json!({ "name": tool, "arguments": arguments, "_meta": modern_metadata() });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        let name = format!("Mcp-Name: {tool}");
        let fields = [
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            &name,
        ];
        self.connection.send(post_request("localhost", MCP_PATH, &fields, body));
        let response = self.connection.response(false);
        let answer: Value = serde_json::from_slice(&response.body).map_err(|error| error.to_string())?;
        let result = &answer["result"];
        if response.status != 200 || result["isError"] != false {
            return Err(format!("{tool} {arguments}: {} {answer}", response.status));
        }
        Ok(result["structuredContent"].clone())
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    let bundle = std::env::args().skip(1).find(|argument| !argument.starts_with("--"));
    let bundle = PathBuf::from(bundle.ok_or("name a bundle of documentation")?);
    let folder = temporary_folder();
    let config_file = folder.path().join("config.toml");
    let daemon = Daemon::serve_configured(&bundle, &config_file, "[assistant]\nmcpPerMinute = 65535\n");
    let mut client = McpClient::open(&daemon.address);
    until_within(INDEX_TIMEOUT, "the index is open", || {
        client.call("search_docs", &json!({ "query": "index" })).is_ok_and(|answer| answer["indexing"] == false)
    });
    let pages = list_pages(&mut client)?;
    println!("{} pages, {CLIENTS} clients, {CALLS} calls of each tool:\n", pages.len());
    println!("| tool | p50, ms | p99, ms | slowest, ms | calls a second | must (aim) p99 |\n|---|---|---|---|---|---|");
    let searches: Vec<Value> = pages.iter().map(|(_, title)| json!({ "query": first_words(title) })).collect();
    let reads: Vec<Value> = pages.iter().map(|(url, _)| json!({ "url": url })).collect();
    // `run` converts all pages beforehand, `serve` when the first one is read.
    client.call("read_page", &reads[0])?;
    until_within(INDEX_TIMEOUT, "all pages are converted", || get(&daemon.address, "/llms-full.txt").status == 200);
    measure(&daemon.address, "search_docs", &searches, "20 (10)")?;
    measure(&daemon.address, "read_page", &reads, "25 (10)")
}

/// Returns the address and the title of each page.
fn list_pages(client: &mut McpClient) -> Result<Vec<(String, String)>, String> {
    let (mut pages, mut arguments) = (Vec::new(), json!({ "limit": 500 }));
    loop {
        let answer = client.call("list_pages", &arguments)?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        pages.extend(
            answer["pages"].as_array().into_iter().flatten().map(|page| (text(&page["url"]), text(&page["title"]))),
        );
        match answer["nextCursor"].as_str() {
            Some(cursor) => arguments["cursor"] = json!(cursor),
            None => return Ok(pages),
        }
    }
}

fn first_words(title: &str) -> String {
    let words: Vec<&str> =
        title.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty()).collect();
    let words = words.iter().take(4).copied().collect::<Vec<_>>().join(" ");
    if words.is_empty() { "index".to_owned() } else { words }
}

/// Calls a tool with the arguments in turn, and prints the latencies.
fn measure(address: &str, tool: &str, arguments: &[Value], goal: &str) -> Result<(), String> {
    let next = AtomicUsize::new(0);
    let started = Instant::now();
    let results: Vec<Result<Vec<f64>, String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = McpClient::open(address);
                    let mut latencies = Vec::new();
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= CALLS {
                            return Ok(latencies);
                        }
                        let begun = Instant::now();
                        client.call(tool, &arguments[number % arguments.len()])?;
                        latencies.push(begun.elapsed().as_secs_f64() * 1000.0);
                    }
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a client has failed".to_owned())))
            .collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let mut latencies: Vec<f64> = results.into_iter().collect::<Result<Vec<_>, _>>()?.concat();
    latencies.sort_by(f64::total_cmp);
    let at = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    let rate = CALLS as f64 / seconds;
    println!("| {tool} | {:.2} | {:.2} | {:.2} | {rate:.0} | {goal} |", at(50), at(99), at(100));
    Ok(())
}
