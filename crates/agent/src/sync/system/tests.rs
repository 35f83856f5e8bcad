//! Probes against a real server, and the progress that a sync shows.

use std::io::{Read, Write};
use std::net::TcpListener;

use docwharf_base::net::NetworkSettings;

use super::*;

const DATE: &str = "Tue, 01 Jan 2030 12:00:00 GMT";

#[test]
fn the_error_of_a_step_is_shown_until_the_next_step_begins() {
    let progress = TaskProgress::default();
    progress.set_step("polling");
    progress.set_error(Some("503".to_owned()));
    progress.set_step("polling");
    assert_eq!(progress.error().as_deref(), Some("503"), "the step is repeated");
    progress.set_step("downloading");
    assert_eq!((progress.step().as_str(), progress.error()), ("downloading", None));
}

/// Reads a probe from a server with this response. Returns the result, and the head of the request in lower case.
fn read_scripted_probe(
    previous: Option<&ProbeResult>,
    response: String,
) -> (Result<Option<ProbeResult>, RequestErrorCause>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("an address");
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("a request");
            head.push(byte[0]);
        }
        stream.write_all(response.as_bytes()).expect("the client reads");
        String::from_utf8(head).expect("a head in ASCII").to_ascii_lowercase()
    });
    let network = NetworkSettings { ignore_proxies: true, ..NetworkSettings::default() };
    let http = build_client(&network).expect("a client");
    let url = SafeUrl::parse(&format!("http://{address}/sitemap.xml")).expect("a URL");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let result = runtime.block_on(read_probe(&http, &url, previous, 10)).map_err(|error| error.cause);
    (result, server.join().expect("the server ends"))
}

#[test]
fn probe_is_conditional_on_etag_or_else_date_and_only_200_has_content() {
    let probe = |etag: Option<&str>, date: Option<&str>| ProbeResult {
        sha256: Digest::compute(b"body").to_hex(),
        etag: etag.map(str::to_owned),
        last_modified: date.map(str::to_owned),
    };
    let response = |status: u16, fields: &str| {
        let body = if matches!(status, 204 | 304) { "" } else { "Content-Length: 4\r\n\r\nbody" };
        let end = if body.is_empty() { "\r\n" } else { body };
        format!("HTTP/1.1 {status} x\r\nConnection: close\r\n{fields}{end}")
    };
    let both = probe(Some("\"e\""), Some(DATE));
    let (dated, plain) = (probe(None, Some(DATE)), probe(None, None));
    let fields = format!("ETag: \"e\"\r\nLast-Modified: {DATE}\r\n");
    let by_tag = Some("if-none-match: \"e\"".to_owned());
    let by_date = Some(format!("if-modified-since: {}", DATE.to_ascii_lowercase()));
    // The result before, the response, the result, and the condition of the request.
    let cases = [
        (None, response(200, &fields), Ok(Some(both.clone())), None),
        (Some(&both), response(200, ""), Ok(Some(plain.clone())), by_tag.clone()),
        (Some(&both), response(304, ""), Ok(None), by_tag),
        (Some(&dated), response(304, ""), Ok(None), by_date),
        (Some(&plain), response(200, ""), Ok(Some(plain.clone())), None),
        (None, response(304, ""), Err(RequestErrorCause::Status(304)), None),
        (None, response(204, ""), Err(RequestErrorCause::Status(204)), None),
        (None, response(206, ""), Err(RequestErrorCause::Status(206)), None),
        (Some(&both), response(500, ""), Err(RequestErrorCause::Status(500)), Some("if-none-match".to_owned())),
    ];
    for (n, (previous, response, expected, condition)) in cases.into_iter().enumerate() {
        let (result, head) = read_scripted_probe(previous, response);
        assert_eq!(result, expected, "case {n}");
        let conditions: Vec<&str> = head.lines().filter(|line| line.starts_with("if-")).collect();
        assert_eq!(conditions.len(), usize::from(condition.is_some()), "case {n}: {head}");
        assert!(condition.is_none_or(|condition| conditions[0].starts_with(&condition)), "case {n}: {head}");
        assert!(!head.contains("\nauthorization:"), "case {n}: {head}");
    }
}
