//! Responses of the API. Only `jobId`, `status` and `bundleUrl` are required, each in its own response, as non-empty
//! strings; every other field may be missing or of any type (`docs/design/agent.md`, rule 1).

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Number, Value};

use docwharf_base::model::units::format_count;
use docwharf_base::secret::{SafeUrl, SecretRedactor};

/// The fields of a response, each parsed only when it is read: a number out of range or half a surrogate pair in a
/// field that is not needed causes no error.
#[derive(Debug, Clone)]
pub struct ApiResponse(BTreeMap<String, Box<RawValue>>);

impl ApiResponse {
    /// Parses a JSON object; `None` for anything else.
    pub fn parse(bytes: &[u8]) -> Option<ApiResponse> {
        let text = String::from_utf8_lossy(bytes);
        serde_json::from_str(text.trim_start_matches('\u{feff}')).ok().map(ApiResponse)
    }

    pub(super) fn value(&self, name: &str) -> Option<Value> {
        let raw = self.0.get(name)?.get();
        serde_json::from_str(raw).ok().or_else(|| serde_json::from_str(&replace_lone_surrogates(raw)).ok())
    }

    /// Returns the JSON text of a field.
    pub(super) fn raw_value(&self, name: &str) -> Option<&RawValue> {
        self.0.get(name).map(AsRef::as_ref)
    }
}

/// Replaces lone halves of surrogate pairs, which a text cut in the middle of a character contains, by replacement
/// characters (RFC 8259 section 8.2 leaves them to the reader).
fn replace_lone_surrogates(json: &str) -> String {
    let unit = |start: usize| {
        let digits = json.get(start..start + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut out, mut pos) = (String::with_capacity(json.len()), 0);
    while let Some(offset) = json[pos..].find('\\') {
        out.push_str(&json[pos..pos + offset]);
        pos += offset;
        let length = match (unit(pos), unit(pos + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => 12,
            (Some(0xd800..=0xdfff), _) => {
                out.push('\u{fffd}');
                pos += 6;
                continue;
            }
            (Some(_), _) => 6,
            // A backslash and the escaped character.
            _ => 2,
        };
        let end = json.ceil_char_boundary(pos + length);
        out.push_str(json.get(pos..end).unwrap_or_default());
        pos = end;
    }
    out.push_str(&json[pos..]);
    out
}

/// The meaning of a job's status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportStatus {
    /// The bundle is ready.
    Completed,
    /// The job has failed.
    Failed,
    /// The job is still working, with this status.
    Working(String),
}

/// The state of an export job at the last poll.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExportJob {
    /// The status, as the server names it.
    pub status: String,
    /// Progress in percent.
    pub progress: Option<f64>,
    /// Number of pages so far.
    pub page_count: Option<u64>,
    /// Time of the last progress, as the server formats it.
    pub updated_at: Option<String>,
    /// The reason of a failure.
    pub error: Option<String>,
}

impl ExportJob {
    /// Returns the meaning of the status.
    pub fn status_meaning(&self) -> ExportStatus {
        match self.status.as_str() {
            "completed" => ExportStatus::Completed,
            "failed" => ExportStatus::Failed,
            other => ExportStatus::Working(other.to_owned()),
        }
    }

    /// Formats the state in a few words: `running, 55 %, 12 pages`.
    pub fn line(&self) -> String {
        let mut line = self.status.clone();
        if let Some(progress) = self.progress {
            let _ = write!(line, ", {progress:.0} %");
        }
        if let Some(pages) = self.page_count {
            let _ = write!(line, ", {}", format_count(pages, "page"));
        }
        line
    }
}

/// A signed link to a bundle.
#[derive(Debug, Clone)]
pub struct SignedLink {
    /// URL of the bundle.
    pub url: SafeUrl,
    /// Size of the bundle in bytes; a hint.
    pub size: Option<u64>,
    /// Expiry of the link, as the server formats it; a hint.
    pub expires_at: Option<String>,
}

pub(super) fn required_text(response: &ApiResponse, name: &str) -> Result<String, String> {
    match response.value(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        None if !response.0.contains_key(name) => Err(format!("it has no {name}")),
        _ => Err(format!("its {name} is not a text")),
    }
}

pub(super) fn as_number(value: Option<Value>) -> Option<f64> {
    let number = match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().trim_end_matches('%').trim().parse().ok(),
        _ => None,
    };
    number.filter(|n| n.is_finite() && *n >= 0.0)
}

/// Converts a value to a whole number, rounded.
pub(super) fn as_count(value: Option<Value>) -> Option<u64> {
    // A number above the range of u64 counts as its maximum.
    as_number(value).map(|n| format!("{n:.0}").parse().unwrap_or(u64::MAX))
}

/// Converts a value to a number of JSON. A number in a string counts as well.
pub(super) fn as_json_number(value: Option<Value>) -> Option<Number> {
    match value? {
        Value::Number(number) => Some(number),
        Value::String(text) => serde_json::from_str(text.trim()).ok(),
        _ => None,
    }
}

/// Converts a value to a text: a string as it is, any other value but null as JSON.
pub(super) fn as_text(value: Option<Value>) -> Option<String> {
    match value? {
        Value::String(text) => Some(text),
        Value::Null => None,
        other => Some(other.to_string()),
    }
}

/// Returns the objects of a list, which must exist; null is an empty list. Elements that are no objects are ignored
/// with a warning.
pub(super) fn required_objects(response: &ApiResponse, name: &str) -> Result<Vec<ApiResponse>, String> {
    let list = response.raw_value(name).ok_or_else(|| format!("it has no {name}"))?;
    let rows: Option<Vec<Box<RawValue>>> =
        serde_json::from_str(list.get()).map_err(|_| format!("its {name} are no list"))?;
    let rows = rows.unwrap_or_default();
    let objects: Vec<ApiResponse> = rows.iter().filter_map(|raw| ApiResponse::parse(raw.get().as_bytes())).collect();
    if objects.len() < rows.len() {
        let ignored = format_count((rows.len() - objects.len()) as u64, "row");
        tracing::warn!("{ignored} of the {name} are not JSON objects and are ignored");
    }
    Ok(objects)
}

pub(super) fn optional_text(response: &ApiResponse, name: &str) -> Option<String> {
    match response.value(name)? {
        Value::String(text) => Some(text),
        _ => None,
    }
}

/// Parses the id in the response to starting a job.
pub fn parse_job_id(response: &ApiResponse) -> Result<String, String> {
    required_text(response, "jobId")
}

/// Parses the response to a poll; secrets are hidden in its status and error.
pub fn parse_job(response: &ApiResponse, redactor: &SecretRedactor) -> Result<ExportJob, String> {
    let error = match response.value("error") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(redactor.redact(&text)),
        Some(other) => Some(redactor.redact(&other.to_string())),
    };
    Ok(ExportJob {
        status: redactor.redact(&required_text(response, "status")?),
        progress: as_number(response.value("progress")),
        page_count: as_count(response.value("pageCount")),
        updated_at: optional_text(response, "updatedAt"),
        error,
    })
}

/// Parses the link in the response to a bundle call.
pub fn parse_link(response: &ApiResponse) -> Result<SignedLink, String> {
    let url = SafeUrl::parse(&required_text(response, "bundleUrl")?)
        .map_err(|why| format!("its bundleUrl is unusable: {why}"))?;
    Ok(SignedLink {
        url,
        size: as_count(response.value("sizeBytes")),
        expires_at: optional_text(response, "expiresAt"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> ApiResponse {
        ApiResponse::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn job_requires_only_a_status_and_other_fields_may_have_any_type() {
        let redactor = SecretRedactor::default();
        let bare = parse_job(&object(r#"{"status":"warming-up"}"#), &redactor).unwrap();
        assert_eq!(bare.status_meaning(), ExportStatus::Working("warming-up".into()));
        let odd = r#"{"status":"running","progress":"55","pageCount":"many","updatedAt":7,"error":null,"x":[]}"#;
        let odd = parse_job(&object(odd), &redactor).unwrap();
        assert_eq!(
            (odd.progress, odd.page_count, odd.updated_at.as_deref(), odd.error),
            (Some(55.0), None, None, None)
        );
        for wrong in [r"{}", r#"{"status":""}"#, r#"{"status":7}"#] {
            assert!(parse_job(&object(wrong), &redactor).is_err(), "{wrong}");
        }
        let beyond = r#"{"status":"running","progress":1e999,"error":"\ud800","pageCount":3,"x":"\udc00"}"#;
        let beyond = parse_job(&object(beyond), &redactor).unwrap();
        assert_eq!((beyond.progress, beyond.page_count, beyond.error.as_deref()), (None, Some(3), Some("\u{fffd}")));
        assert_eq!(parse_job(&object("\u{feff}{\"status\":\"queued\"}"), &redactor).unwrap().status, "queued");
        for no_object in ["", "[]", "\"text\"", "{\"status\":", "<html>", "null"] {
            assert!(ApiResponse::parse(no_object.as_bytes()).is_none(), "{no_object}");
        }
        assert!(parse_job_id(&object(r#"{"jobId":null}"#)).is_err());
        assert_eq!(parse_job_id(&object(r#"{"jobId":"a/b"}"#)).unwrap(), "a/b");
    }

    #[test]
    fn unpaired_surrogate_becomes_one_replacement_character() {
        for (json, text) in [
            (r#""a\ud83d""#, "a\u{fffd}"),
            (r#""\ude00\n\ud83d\ude00\\ud83d\u00e9\ud83dé""#, "\u{fffd}\n\u{1f600}\\ud83dé\u{fffd}é"),
        ] {
            let response = object(&format!("{{\"searchQuery\":{json}}}"));
            assert_eq!(response.value("searchQuery").unwrap(), text);
        }
    }

    #[test]
    fn bundle_url_must_be_http_and_invalid_size_or_expiry_is_ignored() {
        let parse = |text| parse_link(&object(text));
        let good = parse(r#"{"bundleUrl":"https://b/x?s=1","sizeBytes":"big","expiresAt":0}"#).unwrap();
        assert_eq!((good.size, good.expires_at), (None, None));
        for wrong in [r#"{"bundleUrl":"file:///etc/passwd"}"#, r#"{"bundleUrl":""}"#, r"{}", r#"{"bundleUrl":"x"}"#] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn job_error_of_any_json_type_and_status_are_shown_with_secrets_redacted() {
        let mut redactor = SecretRedactor::default();
        redactor.hide(&docwharf_base::secret::Secret::new("dwk_0123456789".to_owned()));
        for (error, expected) in [
            (r#""the key dwk_0123456789 is wrong""#, Some("the key *** is wrong")),
            (r#"{"key":"dwk_0123456789"}"#, Some(r#"{"key":"***"}"#)),
            (r#"["dwk_0123456789"]"#, Some(r#"["***"]"#)),
            ("7", Some("7")),
            (r#""""#, Some("")),
            ("null", None),
        ] {
            let job = parse_job(&object(&format!(r#"{{"status":"failed","error":{error}}}"#)), &redactor).unwrap();
            assert_eq!((job.error.as_deref(), job.status_meaning()), (expected, ExportStatus::Failed), "{error}");
        }
        assert_eq!(
            parse_job(&object(r#"{"status":"completed"}"#), &redactor).unwrap().status_meaning(),
            ExportStatus::Completed
        );
        assert_eq!(parse_job(&object(r#"{"status":"for dwk_0123456789"}"#), &redactor).unwrap().status, "for ***");
    }

    #[test]
    fn job_numbers_are_read_from_json_strings_or_percentages_and_never_negative() {
        for (json, progress, pages) in [
            ("55", Some("55"), Some(55)),
            ("0", Some("0"), Some(0)),
            ("12.4", Some("12.4"), Some(12)),
            ("13.6", Some("13.6"), Some(14)),
            (r#"" 55 % ""#, Some("55"), Some(55)),
            (r#""55""#, Some("55"), Some(55)),
            ("-1", None, None),
            (r#""-1""#, None, None),
            (r#""inf""#, None, None),
            (r#""NaN""#, None, None),
            ("1e30", Some("1e30"), Some(u64::MAX)),
            ("true", None, None),
            ("null", None, None),
            ("[1]", None, None),
        ] {
            let job = object(&format!(r#"{{"status":"x","progress":{json},"pageCount":{json},"updatedAt":"now"}}"#));
            let job = parse_job_without_secrets(&job);
            assert_eq!(job.progress, progress.map(|text| text.parse().unwrap()), "{json}");
            assert_eq!((job.page_count, job.updated_at.as_deref()), (pages, Some("now")), "{json}");
        }
    }

    fn parse_job_without_secrets(response: &ApiResponse) -> ExportJob {
        parse_job(response, &SecretRedactor::default()).unwrap()
    }

    #[test]
    fn job_is_summarized_in_one_line() {
        for (text, line) in [
            (r#"{"status":"running"}"#, "running"),
            (r#"{"status":"running","progress":54.6,"pageCount":12}"#, "running, 55 %, 12 pages"),
            (r#"{"status":"running","pageCount":1}"#, "running, 1 page"),
        ] {
            assert_eq!(parse_job_without_secrets(&object(text)).line(), line);
        }
        let link = parse_link(&object(r#"{"bundleUrl":"http://b/x","sizeBytes":7,"expiresAt":"soon"}"#)).unwrap();
        assert_eq!(
            (link.url.without_secrets().as_str(), link.size, link.expires_at.as_deref()),
            ("http://b/x", Some(7), Some("soon"))
        );
    }
}
