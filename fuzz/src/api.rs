//! Responses of the management API: required values are found whatever else the response contains, and no message shows
//! the API key that a response repeats.

use std::fmt::Write;

use docwharf::api::analytics;
use docwharf::api::export::{ExportAction, next_action};
use docwharf::api::preview;
use docwharf::api::responses::{ApiResponse, parse_job, parse_job_id, parse_link};
use docwharf::base::error_chain::OneLine;
use docwharf::base::secret::{Secret, SecretRedactor};
use docwharf::net::request_error::RequestError;
use http::HeaderMap;
use serde_json::Value;

use super::fuzz_input::FuzzInput;

const KEY: &str = "dwk_0123456789abcdef";

/// Any bytes as a response, with the key in place of each `\x01`; or a job response with a status in any JSON notation.
pub fn api(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let redactor = {
        let mut redactor = SecretRedactor::default();
        redactor.hide(&Secret::new(KEY.to_owned()));
        redactor
    };
    let (status, bytes) =
        if input.once_in(4) { make_job_response(&mut input) } else { (None, insert_key(input.rest())) };

    let error = RequestError::from_response(500, &HeaderMap::new(), &bytes, &redactor);
    assert_no_key(&format!("{error} {:?}", error.code()));
    assert_no_key(&RequestError::unreadable(200, "it is odd", &bytes, &redactor).to_string());
    let one_line = OneLine(&error.to_string()).to_string();
    assert!(!one_line.contains(['\n', '\r', '\x1b', '\0']), "{one_line:?}");

    let strict_json: Option<Value> = serde_json::from_slice(&bytes).ok().filter(Value::is_object);
    let Some(response) = ApiResponse::parse(&bytes) else {
        assert!(strict_json.is_none(), "a JSON object is not read: {:?}", String::from_utf8_lossy(&bytes));
        assert!(status.is_none(), "{:?}", String::from_utf8_lossy(&bytes));
        return;
    };
    let job = parse_job(&response, &redactor);
    if let Some(status) = &status {
        assert_eq!(job.as_ref().map(|job| &job.status), Ok(status), "{:?}", String::from_utf8_lossy(&bytes));
    }
    if let Ok(job) = &job {
        assert_no_key(&format!("{:?}", job.error));
        assert!(!job.status.is_empty() && job.progress.is_none_or(|n| n.is_finite() && n >= 0.0));
        assert_eq!(next_action(job) == ExportAction::RequestLink, job.status == "completed");
        assert_eq!(matches!(next_action(job), ExportAction::Failed(_)), job.status == "failed");
    }
    // If a strict JSON parser accepts the response, each required field has the value that it finds.
    if let Some(strict) = &strict_json {
        let text = |name: &str| strict[name].as_str().filter(|text| !text.is_empty());
        assert_eq!(job.ok().as_ref().map(|job| &job.status[..]), text("status"));
        assert_eq!(parse_job_id(&response).ok().as_deref(), text("jobId"));
        let is_link = text("bundleUrl").and_then(|text| url::Url::parse(text).ok());
        let is_link = is_link.is_some_and(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        assert_eq!(parse_link(&response).is_ok(), is_link, "{strict}");
    }
    if let Ok(link) = parse_link(&response) {
        assert!(["http", "https"].contains(&link.url.expose().scheme()));
        let url = link.url.expose();
        // The host or the path may contain the same text as the query.
        let is_elsewhere =
            |query: &str| url.path().contains(query) || url.host_str().is_some_and(|host| host.contains(query));
        let query = url.query().filter(|query| query.len() > 8 && !is_elsewhere(query));
        assert!(query.is_none_or(|query| !link.url.to_string().contains(query)), "a query is shown");
    }
    let started = preview::parse_started_preview(&response);
    let shown_url = started.preview_url.unwrap_or_else(|| "https://x/".to_owned());
    assert!(shown_url.starts_with("http") && shown_url.bytes().all(|b| b.is_ascii_graphic()), "{shown_url:?}");
    assert!(started.status_id.is_none_or(|id| !["", ".", ".."].contains(&&*id)));
    if let Ok(deployment) = preview::parse_deployment(&response, &redactor) {
        assert_no_key(&format!("{:?} {:?}", deployment.summary, deployment.logs));
    }
    if let Ok(page) = analytics::parse_search_page(&response) {
        // A page is the same after it was stored and read again.
        let text = serde_json::to_string(&page).expect("a page can be written");
        assert_eq!(serde_json::from_str::<analytics::SearchPage>(&text).expect("a stored page can be read"), page);
        let mut reading = analytics::SearchPageReader::first(5);
        let has_more = page.next_cursor.is_some();
        if reading.add_page(page.clone()).is_ok() && has_more && reading.next_request().is_some() {
            assert!(reading.add_page(page).is_err(), "a repeated cursor is refused");
        }
    }
}

fn assert_no_key(text: &str) {
    assert!(!text.contains(KEY), "the key is shown: {text}");
}

fn insert_key(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|&b| b == 1).collect::<Vec<_>>().join(KEY.as_bytes())
}

/// Makes a job response. Its status is any UTF-16 text, also with unpaired surrogates, and each unit is in one of its
/// JSON notations. Returns the status and the response.
fn make_job_response(input: &mut FuzzInput<'_>) -> (Option<String>, Vec<u8>) {
    let mut units = vec![u16::from(b'r')];
    let mut json = "r".to_owned();
    for _ in 0..input.below(12) {
        let unit = match input.below(4) {
            0 => 0xd800 + input.u16() % 0x400,
            1 => 0xdc00 + input.u16() % 0x400,
            2 => input.one_of(&[u16::from(b'"'), u16::from(b'\\'), u16::from(b'u'), 10, 0, 0xe9, 0xfffd]),
            _ => input.u16(),
        };
        units.push(unit);
        match (char::from_u32(u32::from(unit)), input.below(3)) {
            (Some(c @ ('"' | '\\' | '/')), 0) => json.extend(['\\', c]),
            (Some('\n'), 0) => json.push_str("\\n"),
            (Some(c), 1) if !c.is_control() && !['"', '\\', '\u{feff}'].contains(&c) => json.push(c),
            (_, 2) => _ = write!(json, "\\u{unit:04X}"),
            _ => _ = write!(json, "\\u{unit:04x}"),
        }
    }
    let other_fields =
        input.one_of(&["", ",\"progress\":1e999", ",\"error\":\"\\udead\"", ",\"x\":[{}]", ",\"pageCount\":\"7 %\""]);
    let prefix = input.one_of(&["", "\u{feff}", " \n"]);
    (Some(String::from_utf16_lossy(&units)), format!("{prefix}{{\"status\":\"{json}\"{other_fields}}}").into_bytes())
}
