//! Checks of responses, before a server's speed is measured.

use std::io::Read;

use crate::common::http::{HttpClient, Response};
use crate::rows::RowRequest;
use crate::site::Site;

/// The expected response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExpectedResponse {
    Page { gzip: bool },
    NotModified,
    Missing,
}

/// Checks all responses. Returns the mean length of bodies as sent, which the load tool must get, too.
pub(crate) fn check(site: &Site, request: &RowRequest) -> Result<f64, String> {
    let mut client = HttpClient::connect(request.address).map_err(|error| format!("cannot connect: {error}"))?;
    let mut total = 0;
    for path in &request.paths {
        let response = client.get(path, &request.fields).map_err(|error| format!("{path}: {error}"))?;
        check_response(site, request, path, &response).map_err(|error| format!("{path}: {error}"))?;
        total += response.body.len();
        if request.closes() {
            if !client.is_ended() {
                return Err(format!("{path}: the connection is not ended"));
            }
            client = HttpClient::connect(request.address).map_err(|error| format!("cannot connect again: {error}"))?;
        } else if !response.is_reusable || !client.is_silent() {
            return Err(format!("{path}: bytes after the response, or the connection is closed"));
        }
    }
    Ok(total as f64 / request.paths.len() as f64)
}

fn check_response(site: &Site, request: &RowRequest, path: &str, response: &Response) -> Result<(), String> {
    let coding = response.field("content-encoding").unwrap_or("identity");
    let status = |expected: u16| match response.status {
        status if status == expected => Ok(()),
        status => Err(format!("status {status} in place of {expected}")),
    };
    match request.expected {
        ExpectedResponse::NotModified => status(304),
        ExpectedResponse::Missing => status(404),
        ExpectedResponse::Page { gzip } => {
            status(200)?;
            let expected_coding = if gzip { "gzip" } else { "identity" };
            if coding != expected_coding {
                return Err(format!("Content-Encoding {coding} in place of {expected_coding}"));
            }
            let length = response.field("content-length").and_then(|length| length.parse().ok());
            // Caddy sends precompressed files in chunks, which is valid, too.
            let chunked = response.field("transfer-encoding") == Some("chunked");
            if length != Some(response.body.len()) && !(gzip && chunked) {
                return Err("no Content-Length".to_owned());
            }
            let mut decoded = Vec::new();
            if gzip {
                let read = flate2::read::GzDecoder::new(response.body.as_slice()).read_to_end(&mut decoded);
                read.map_err(|error| format!("invalid gzip: {error}"))?;
            }
            let body = if gzip { &decoded } else { &response.body };
            if site.has_body(path, body) { Ok(()) } else { Err("another body than the file's".to_owned()) }
        }
    }
}

/// The precondition field for a revalidation, from the server's own validator.
pub(crate) fn condition(site: &Site, address: std::net::SocketAddr) -> Result<Option<(String, String)>, String> {
    let response = crate::common::http::get_once(address, &site.hot.path, &[]).map_err(|error| error.to_string())?;
    let field = |response_field: &str, request_field: &str| {
        response.field(response_field).map(|value| (request_field.to_owned(), value.to_owned()))
    };
    Ok(field("etag", "If-None-Match").or_else(|| field("last-modified", "If-Modified-Since")))
}

/// Compares the page over HTTP/2 by prior knowledge, byte by byte. nghttp makes the request.
pub(crate) fn check_h2(site: &Site, request: &RowRequest) -> Result<(), String> {
    let url = format!("http://{}{}", request.address, request.paths[0]);
    let mut command = std::process::Command::new("nghttp");
    // Without --no-dep, nghttp sends the priorities that browsers send.
    let output = command.args(["-H", "accept-encoding: identity", &url]).output();
    let output = output.map_err(|error| format!("cannot start nghttp: {error}"))?;
    if output.status.success() && site.has_body(&request.paths[0], &output.stdout) {
        return Ok(());
    }
    Err(format!("another body over HTTP/2: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
