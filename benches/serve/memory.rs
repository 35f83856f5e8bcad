//! Memory: after the start, after a walk over all pages, and of ten thousand connections that wait for a request.

use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::common::http::Client;
use crate::common::place::local;
use crate::common::process::{Memory, Server};
use crate::field::Contender;
use crate::options::Options;
use crate::site::Site;

/// What `sockstat` counts in, on the machines that this is measured on.
const PAGE: f64 = 4096.0;

fn cell(memory: Memory) -> Value {
    json!({ "pss_kib": memory.pss, "anonymous_kib": memory.anonymous })
}

/// lighttpd keeps each file open for half a minute, and refuses more where a host allows too few descriptors.
const PATIENCE: Duration = Duration::from_mins(1);

/// Every page, as it is and compressed.
fn walk(site: &Site, contender: &Contender) -> Result<(), String> {
    let mut client = connect(contender)?;
    for fields in [vec![], vec![("Accept-Encoding".to_owned(), "gzip".to_owned())]] {
        for page in site.pages()? {
            let begun = Instant::now();
            loop {
                let answer = client.get(&page.path, &fields);
                let answer = answer.map_err(|error| format!("{}, {}: {error}", contender.name, page.path))?;
                if answer.status == 200 {
                    break;
                }
                if begun.elapsed() > PATIENCE {
                    return Err(format!("{}, {}: status {}", contender.name, page.path, answer.status));
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    }
    Ok(())
}

fn connect(contender: &Contender) -> Result<Client, String> {
    Client::connect(local(contender.place.port)).map_err(|error| format!("{}: cannot connect: {error}", contender.name))
}

/// Bytes that the kernel holds for TCP, of all sockets of the machine.
fn kernel() -> f64 {
    let text = std::fs::read_to_string("/proc/net/sockstat").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with("TCP:")).unwrap_or_default();
    let pages = line.split("mem ").nth(1).and_then(|text| text.split(' ').next()?.parse::<f64>().ok());
    pages.unwrap_or(f64::NAN) * PAGE
}

/// Bytes a connection that has had one answer and waits. An error is the server's limit, or ours.
fn idle(site: &Site, contender: &Contender, server: &Server, count: usize) -> Result<Value, String> {
    // What the first few cost that others do not is no connection's.
    for _ in 0..100 {
        connect(contender)?.get(&site.hot.path, &[]).map_err(|error| error.to_string())?;
    }
    let (before, held) = (server.memory(), kernel());
    let mut clients = Vec::with_capacity(count);
    for n in 0..count {
        let mut client = connect(contender)?;
        let answer = client.get(&site.hot.path, &[]).map_err(|error| format!("connection {n}: {error}"))?;
        if answer.status != 200 {
            return Err(format!("connection {n}: status {}", answer.status));
        }
        clients.push(client);
    }
    let open = clients.iter().filter(|client| client.is_open()).count();
    if open < count {
        return Err(format!("closes {} of {count} connections before they have waited", count - open));
    }
    let (after, now) = (server.memory(), kernel());
    let each = |before: u64, after: u64| (after as f64 - before as f64) * 1024.0 / count as f64;
    Ok(json!({
        "connections": count, "pss_bytes": each(before.pss, after.pss),
        "anonymous_bytes": each(before.anonymous, after.anonymous), "kernel_bytes": (now - held) / count as f64,
    }))
}

/// Of each server, one after another and each started anew.
pub(crate) fn memory(options: &Options, site: &Site, field: &[Contender]) -> Result<Value, String> {
    let mut all = Map::new();
    for contender in field {
        let server = contender.start(site)?;
        let begun = server.memory();
        // A server that gives up half-way, as some do where few descriptors are allowed, has no such figure.
        let walked = match walk(site, contender) {
            Ok(()) => {
                let mut walked = cell(server.memory());
                if let Some(ours) = &contender.ours {
                    walked["identity_cache_bytes"] = json!(ours.identity_cache());
                }
                walked
            }
            Err(why) => {
                eprintln!("{why}");
                json!({ "reason": why })
            }
        };
        drop(server);
        let server = contender.start(site)?;
        let count = if options.quick { 1000 } else { 10_000 };
        let waiting = idle(site, contender, &server, count).unwrap_or_else(|why| json!({ "reason": why }));
        all.insert(contender.name.to_owned(), json!({ "start": cell(begun), "walked": walked, "idle": waiting }));
        eprintln!("{}: memory of {}", site.name, contender.name);
    }
    Ok(Value::Object(all))
}
