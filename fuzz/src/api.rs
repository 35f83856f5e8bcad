//! Answers of the management API: what they must hold is found whatever stands beside it, and no secret of ours comes out
//! of them again.

use std::fmt::Write;

use docwharf::api::analytics;
use docwharf::api::export::{ExportStep, next_step};
use docwharf::api::preview;
use docwharf::api::responses::{ApiResponse, parse_job, parse_job_id, parse_link};
use docwharf::base::error_chain::OneLine;
use docwharf::base::secret::{Scrubber, Secret};
use docwharf::net::request_error::RequestError;
use http::HeaderMap;
use serde_json::Value;

use super::recipe::Recipe;

const KEY: &str = "dwk_0123456789abcdef";

/// Any bytes as an answer, with the key in it at every `\x01`; or one that was made of texts in any notation.
pub fn api(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let scrubber = {
        let mut scrubber = Scrubber::default();
        scrubber.hide(&Secret::new(KEY.to_owned()));
        scrubber
    };
    let (status, bytes) = if recipe.once_in(4) { described(&mut recipe) } else { (None, with_key(recipe.rest())) };

    let trouble = RequestError::from_answer(500, &HeaderMap::new(), &bytes, &scrubber);
    hides(&format!("{trouble} {:?}", trouble.code()));
    hides(&RequestError::unreadable(200, "it is odd", &bytes, &scrubber).to_string());
    let one_line = OneLine(&trouble.to_string()).to_string();
    assert!(!one_line.contains(['\n', '\r', '\x1b', '\0']), "{one_line:?}");

    let strict: Option<Value> = serde_json::from_slice(&bytes).ok().filter(Value::is_object);
    let Some(answer) = ApiResponse::parse(&bytes) else {
        assert!(strict.is_none(), "a JSON object is not read: {:?}", String::from_utf8_lossy(&bytes));
        assert!(status.is_none(), "{:?}", String::from_utf8_lossy(&bytes));
        return;
    };
    let read = parse_job(&answer, &scrubber);
    if let Some(status) = &status {
        assert_eq!(read.as_ref().map(|job| &job.status), Ok(status), "{:?}", String::from_utf8_lossy(&bytes));
    }
    if let Ok(job) = &read {
        hides(&format!("{:?}", job.error));
        assert!(!job.status.is_empty() && job.progress.is_none_or(|n| n.is_finite() && n >= 0.0));
        assert_eq!(next_step(job) == ExportStep::AskForLink, job.status == "completed");
        assert_eq!(matches!(next_step(job), ExportStep::GiveUp(_)), job.status == "failed");
    }
    // Where a strict reader understands all of it, each required field is exactly what it says.
    if let Some(strict) = &strict {
        let text = |name: &str| strict[name].as_str().filter(|text| !text.is_empty());
        assert_eq!(read.ok().as_ref().map(|job| &job.status[..]), text("status"));
        assert_eq!(parse_job_id(&answer).ok().as_deref(), text("jobId"));
        let is_link = text("bundleUrl").and_then(|text| url::Url::parse(text).ok());
        let is_link = is_link.is_some_and(|url| ["http", "https"].contains(&url.scheme()) && url.has_host());
        assert_eq!(parse_link(&answer).is_ok(), is_link, "{strict}");
    }
    if let Ok(link) = parse_link(&answer) {
        assert!(["http", "https"].contains(&link.url.expose().scheme()));
        let url = link.url.expose();
        // Host and path may say the same as the query.
        let says_so =
            |query: &str| url.path().contains(query) || url.host_str().is_some_and(|host| host.contains(query));
        let query = url.query().filter(|query| query.len() > 8 && !says_so(query));
        assert!(query.is_none_or(|query| !link.url.to_string().contains(query)), "a query is shown");
    }
    let started = preview::parse_started_preview(&answer);
    let shown = started.preview_url.unwrap_or_else(|| "https://x/".to_owned());
    assert!(shown.starts_with("http") && shown.bytes().all(|b| b.is_ascii_graphic()), "{shown:?}");
    assert!(started.status_id.is_none_or(|id| !["", ".", ".."].contains(&&*id)));
    if let Ok(deployment) = preview::parse_deployment(&answer, &scrubber) {
        hides(&format!("{:?} {:?}", deployment.summary, deployment.logs));
    }
    if let Ok(page) = analytics::parse_search_page(&answer) {
        // A page goes through the store and comes back as it was.
        let text = serde_json::to_string(&page).expect("a page can be written");
        assert_eq!(serde_json::from_str::<analytics::SearchPage>(&text).expect("and read"), page);
        let mut reading = analytics::SearchPageReader::first(5);
        let more = page.next_cursor.is_some();
        if reading.add_page(page.clone()).is_ok() && more && reading.next_request().is_some() {
            assert!(reading.add_page(page).is_err(), "a cursor that comes again is noticed");
        }
    }
}

fn hides(text: &str) {
    assert!(!text.contains(KEY), "the key is shown: {text}");
}

fn with_key(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|&b| b == 1).collect::<Vec<_>>().join(KEY.as_bytes())
}

/// An object whose status is a text of any UTF-16, half surrogate pairs too, each unit written in one of its notations;
/// and the text that this is.
fn described(recipe: &mut Recipe<'_>) -> (Option<String>, Vec<u8>) {
    let mut units = vec![u16::from(b'r')];
    let mut json = "r".to_owned();
    for _ in 0..recipe.below(12) {
        let unit = match recipe.below(4) {
            0 => 0xd800 + recipe.short() % 0x400,
            1 => 0xdc00 + recipe.short() % 0x400,
            2 => recipe.one_of(&[u16::from(b'"'), u16::from(b'\\'), u16::from(b'u'), 10, 0, 0xe9, 0xfffd]),
            _ => recipe.short(),
        };
        units.push(unit);
        match (char::from_u32(u32::from(unit)), recipe.below(3)) {
            (Some(c @ ('"' | '\\' | '/')), 0) => json.extend(['\\', c]),
            (Some('\n'), 0) => json.push_str("\\n"),
            (Some(c), 1) if !c.is_control() && !['"', '\\', '\u{feff}'].contains(&c) => json.push(c),
            (_, 2) => _ = write!(json, "\\u{unit:04X}"),
            _ => _ = write!(json, "\\u{unit:04x}"),
        }
    }
    let beside =
        recipe.one_of(&["", ",\"progress\":1e999", ",\"error\":\"\\udead\"", ",\"x\":[{}]", ",\"pageCount\":\"7 %\""]);
    let before = recipe.one_of(&["", "\u{feff}", " \n"]);
    (Some(String::from_utf16_lossy(&units)), format!("{before}{{\"status\":\"{json}\"{beside}}}").into_bytes())
}
