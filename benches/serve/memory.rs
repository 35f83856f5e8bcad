//! Memory: after the start, after requests for all pages, and of ten thousand idle connections.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::common::http::HttpClient;
use crate::common::process::{Server, ServerMemory};
use crate::common::server_setup::local;
use crate::contenders::Contender;
use crate::options::Options;
use crate::site::Site;

/// The page size, in which `sockstat` counts, on the measured machines.
const PAGE_BYTES: f64 = 4096.0;

fn cell(memory: ServerMemory) -> Value {
    json!({ "pss_kib": memory.pss, "anonymous_kib": memory.anonymous })
}

/// lighttpd keeps each file open for half a minute, and returns errors if the limit of descriptors is too low.
const FETCH_TIMEOUT: Duration = Duration::from_mins(1);

/// Requests every page, with and without gzip.
fn fetch_all_pages(site: &Site, contender: &Contender) -> Result<(), String> {
    let mut client = connect(contender)?;
    for fields in [vec![], vec![("Accept-Encoding".to_owned(), "gzip".to_owned())]] {
        for page in site.pages()? {
            let started = Instant::now();
            loop {
                let response = client.get(&page.path, &fields);
                let response = response.map_err(|error| format!("{}, {}: {error}", contender.name, page.path))?;
                if response.status == 200 {
                    break;
                }
                if started.elapsed() > FETCH_TIMEOUT {
                    return Err(format!("{}, {}: status {}", contender.name, page.path, response.status));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    Ok(())
}

fn connect(contender: &Contender) -> Result<HttpClient, String> {
    HttpClient::connect(local(contender.setup.port))
        .map_err(|error| format!("{}: cannot connect: {error}", contender.name))
}

/// The kernel's memory for all TCP sockets of the machine, in bytes.
fn kernel_tcp_bytes() -> f64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
    let pages = line.split("mem ").nth(1).and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * PAGE_BYTES
}

/// The bytes per idle connection after one response. An error means a limit of the server or of this program.
fn idle_connection_cost(site: &Site, contender: &Contender, server: &Server, count: usize) -> Result<Value, String> {
    // The first connections have one-time costs, which must not count.
    for _ in 0..100 {
        connect(contender)?.get(&site.hot.path, &[]).map_err(|error| error.to_string())?;
    }
    let (before, kernel_before) = (server.memory(), kernel_tcp_bytes());
    let mut clients = Vec::with_capacity(count);
    for n in 0..count {
        let mut client = connect(contender)?;
        let response = client.get(&site.hot.path, &[]).map_err(|error| format!("connection {n}: {error}"))?;
        if response.status != 200 {
            return Err(format!("connection {n}: status {}", response.status));
        }
        clients.push(client);
    }
    let open = clients.iter().filter(|client| client.is_open()).count();
    if open < count {
        return Err(format!("closes {} of {count} connections before they have waited", count - open));
    }
    let (after, kernel_after) = (server.memory(), kernel_tcp_bytes());
    let per_connection = |before: u64, after: u64| (after as f64 - before as f64) * 1024.0 / count as f64;
    Ok(json!({
        "connections": count, "pss_bytes": per_connection(before.pss, after.pss),
        "anonymous_bytes": per_connection(before.anonymous, after.anonymous),
        "kernel_bytes": (kernel_after - kernel_before) / count as f64,
    }))
}

/// Measures each server, one after another. Each is started anew.
pub(crate) fn memory(options: &Options, site: &Site, contenders: &[Contender]) -> Result<Value, String> {
    let mut results = Map::new();
    for contender in contenders {
        let server = contender.start(site)?;
        let started = server.memory();
        // A server that fails in between, as some do with few descriptors, has no such value.
        let after_all_pages = match fetch_all_pages(site, contender) {
            Ok(()) => {
                let mut after_all_pages = cell(server.memory());
                if let Some(docwharf) = &contender.docwharf {
                    after_all_pages["identity_cache_bytes"] = json!(docwharf.identity_cache());
                }
                after_all_pages
            }
            Err(reason) => {
                eprintln!("{reason}");
                json!({ "reason": reason })
            }
        };
        drop(server);
        let server = contender.start(site)?;
        let count = if options.quick { 1000 } else { 10_000 };
        let idle =
            idle_connection_cost(site, contender, &server, count).unwrap_or_else(|reason| json!({ "reason": reason }));
        results.insert(
            contender.name.to_owned(),
            json!({ "start": cell(started), "walked": after_all_pages, "idle": idle }),
        );
        eprintln!("{}: memory of {}", site.name, contender.name);
    }
    Ok(Value::Object(results))
}
