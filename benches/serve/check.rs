//! Whether answers are right: before a server's speed counts for anything.

use std::io::Read;

use crate::common::http::{Answer, Client};
use crate::rows::Ask;
use crate::site::Site;

/// What an answer has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Page { gzip: bool },
    NotModified,
    Missing,
}

/// Bytes of bodies as they travelled, over all that was asked: what the load must then get on average.
pub(crate) fn check(site: &Site, ask: &Ask) -> Result<f64, String> {
    let mut client = Client::connect(ask.address).map_err(|error| format!("cannot connect: {error}"))?;
    let mut total = 0;
    for path in &ask.paths {
        let answer = client.get(path, &ask.fields).map_err(|error| format!("{path}: {error}"))?;
        judge(site, ask, path, &answer).map_err(|what| format!("{path}: {what}"))?;
        total += answer.body.len();
        if ask.closes() {
            if !client.is_ended() {
                return Err(format!("{path}: the connection is not ended"));
            }
            client = Client::connect(ask.address).map_err(|error| format!("cannot connect again: {error}"))?;
        } else if !answer.keeps || !client.is_silent() {
            return Err(format!("{path}: bytes behind the answer, or the connection is closed"));
        }
    }
    Ok(total as f64 / ask.paths.len() as f64)
}

fn judge(site: &Site, ask: &Ask, path: &str, answer: &Answer) -> Result<(), String> {
    let coding = answer.field("content-encoding").unwrap_or("identity");
    let status = |expected: u16| match answer.status {
        status if status == expected => Ok(()),
        status => Err(format!("status {status} in place of {expected}")),
    };
    match ask.expected {
        Expected::NotModified => status(304),
        Expected::Missing => status(404),
        Expected::Page { gzip } => {
            status(200)?;
            let wanted = if gzip { "gzip" } else { "identity" };
            if coding != wanted {
                return Err(format!("Content-Encoding {coding} in place of {wanted}"));
            }
            let length = answer.field("content-length").and_then(|length| length.parse().ok());
            // Caddy frames files that were compressed beforehand in chunks, which is as right.
            let chunked = answer.field("transfer-encoding") == Some("chunked");
            if length != Some(answer.body.len()) && !(gzip && chunked) {
                return Err("no Content-Length".to_owned());
            }
            let mut decoded = Vec::new();
            if gzip {
                let read = flate2::read::GzDecoder::new(answer.body.as_slice()).read_to_end(&mut decoded);
                read.map_err(|error| format!("what should be gzip is not: {error}"))?;
            }
            let body = if gzip { &decoded } else { &answer.body };
            if body == site.body(path) { Ok(()) } else { Err("another body than the file's".to_owned()) }
        }
    }
}

/// The condition under which a server's answer need not be sent again.
pub(crate) fn condition(site: &Site, address: std::net::SocketAddr) -> Result<Option<(String, String)>, String> {
    let answer = crate::common::http::once(address, &site.hot.path, &[]).map_err(|error| error.to_string())?;
    let field = |theirs: &str, ours: &str| answer.field(theirs).map(|value| (ours.to_owned(), value.to_owned()));
    Ok(field("etag", "If-None-Match").or_else(|| field("last-modified", "If-Modified-Since")))
}

/// HTTP/2 by prior knowledge, as nghttp speaks it and nothing else: the page, byte by byte.
pub(crate) fn check_h2(site: &Site, ask: &Ask) -> Result<(), String> {
    let url = format!("http://{}{}", ask.address, ask.paths[0]);
    let mut command = std::process::Command::new("nghttp");
    // Not --no-dep: what it sends otherwise is what browsers send.
    let output = command.args(["-H", "accept-encoding: identity", &url]).output();
    let output = output.map_err(|error| format!("cannot start nghttp: {error}"))?;
    if output.status.success() && output.stdout == site.body(&ask.paths[0]) {
        return Ok(());
    }
    Err(format!("another body over HTTP/2: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
