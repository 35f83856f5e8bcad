//! The responses of the playground: JSON with the response of a target, or with the reason why there is none.

use std::fmt;
use std::time::Duration;

use base64::display::Base64Display;
use base64::engine::general_purpose::{GeneralPurpose, STANDARD};
use bytes::Bytes;
use http::{Response, StatusCode};
use serde::{Serialize, Serializer};

use crate::body::ResponseBody;
use crate::fixed_responses::{JSON_TYPE, uncached_response};
use crate::request_body::CountedBytes;

use super::BODY_MEMORY;
use super::header_fields::list_response_fields;
use super::target_client::TargetResponse;

/// The bytes of the JSON besides header fields and body, at most.
const FRAME_BYTES: usize = 256;

/// The JSON of an answer.
#[derive(Serialize)]
struct AnswerJson<'a> {
    status: u16,
    headers: &'a [(&'a str, String)],
    body: AnswerBody<'a>,
    encoding: &'static str,
    truncated: bool,
    ms: u64,
}

/// The body of a target's response, as JSON has it.
enum AnswerBody<'a> {
    Text(&'a str),
    Base64(&'a [u8]),
}

impl AnswerBody<'_> {
    fn encoding(&self) -> &'static str {
        match self {
            AnswerBody::Text(_) => "utf-8",
            AnswerBody::Base64(_) => "base64",
        }
    }

    /// Returns the length in JSON, at most.
    fn json_len(&self) -> usize {
        match self {
            AnswerBody::Text(text) => escaped_len(text),
            AnswerBody::Base64(bytes) => bytes.len().div_ceil(3) * 4,
        }
    }
}

impl Serialize for AnswerBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            AnswerBody::Text(text) => serializer.serialize_str(text),
            AnswerBody::Base64(bytes) => {
                let display: Base64Display<'_, '_, GeneralPurpose> = Base64Display::new(bytes, &STANDARD);
                serializer.collect_str(&display)
            }
        }
    }
}

/// Chooses the encoding of a body: text if it is UTF-8, also if it was cut within a character, and if escapes do not
/// make it longer than base64 does.
fn choose_body(bytes: &[u8], is_truncated: bool) -> AnswerBody<'_> {
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if is_truncated && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    match text {
        Some(text) if escaped_len(text) <= text.len() * 2 + FRAME_BYTES => AnswerBody::Text(text),
        _ => AnswerBody::Base64(bytes),
    }
}

/// Returns the length of a text in JSON, without quotes.
fn escaped_len(text: &str) -> usize {
    let byte_len = |byte: u8| match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..=0x1f => 6,
        _ => 1,
    };
    text.bytes().map(byte_len).sum()
}

/// Renders the answer with a target's response; `None` if there is no memory for it.
pub(crate) fn render_answer(response: &TargetResponse, took: Duration) -> Option<Bytes> {
    let headers = list_response_fields(&response.fields);
    let body = choose_body(response.body.as_ref(), response.is_truncated);
    let answer = AnswerJson {
        status: response.status.as_u16(),
        headers: &headers,
        encoding: body.encoding(),
        truncated: response.is_truncated,
        ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        body,
    };
    let mut json = CountedBytes::new(&BODY_MEMORY);
    if !json.reserve(answer.body.json_len() + FRAME_BYTES) {
        return None;
    }
    serde_json::to_writer(&mut json, &answer).ok()?;
    Some(json.into_bytes())
}

/// Creates the response with an answer.
pub(crate) fn respond_with_answer(answer: Bytes) -> Response<ResponseBody> {
    uncached_response(StatusCode::OK, JSON_TYPE, answer)
}

/// Creates a refusal. `error` is a short constant name, for programs; `message` is for people.
pub(crate) fn refuse(status: StatusCode, error: &str, message: impl fmt::Display) -> Response<ResponseBody> {
    let json = serde_json::json!({ "error": error, "message": message.to_string() });
    uncached_response(status, JSON_TYPE, json.to_string())
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use http::header::CONTENT_TYPE;
    use http::{HeaderMap, HeaderValue};
    use serde_json::{Value, json};

    use super::*;

    fn answer(body: &[u8], is_truncated: bool) -> Value {
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        let mut content = CountedBytes::new(&BODY_MEMORY);
        assert!(content.append(body));
        let response = TargetResponse { status: StatusCode::CREATED, fields, body: content, is_truncated };
        serde_json::from_slice(&render_answer(&response, Duration::from_millis(12)).unwrap()).unwrap()
    }

    #[test]
    fn an_answer_has_status_fields_body_encoding_and_time_of_the_target() {
        let expected = json!({
            "status": 201, "headers": [["content-type", "text/plain"]], "body": "caf\u{e9}\n", "encoding": "utf-8",
            "truncated": false, "ms": 12,
        });
        assert_eq!(answer("caf\u{e9}\n".as_bytes(), false), expected);
        assert_eq!(answer(b"", false)["body"], "");
    }

    #[test]
    fn a_body_that_is_no_utf_8_or_mostly_control_characters_is_base64() {
        for (body, is_truncated, expected, encoding) in [
            (&b"\xff\x00"[..], false, "/wA=", "base64"),
            (b"caf\xc3", false, "Y2Fmww==", "base64"),
            // The cut was within a character.
            (b"caf\xc3", true, "caf", "utf-8"),
            (b"caf\xc3a", true, "Y2Fmw2E=", "base64"),
            (b"\xe2\x82", true, "", "utf-8"),
        ] {
            let json = answer(body, is_truncated);
            let found = (json["body"].as_str(), json["encoding"].as_str(), json["truncated"].as_bool());
            assert_eq!(found, (Some(expected), Some(encoding), Some(is_truncated)), "{body:?}");
        }
        assert_eq!(answer(&[1; 1000], false)["encoding"], "base64");
        assert_eq!(answer(&[b'"'; 1000], false)["encoding"], "utf-8");
    }

    #[test]
    fn the_memory_of_an_answer_is_reserved_before_it_is_rendered() {
        for text in ["\"\\\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}a\u{e9}\u{10ffff}", "", "plain"] {
            assert_eq!(serde_json::to_string(text).unwrap().len(), escaped_len(text) + 2, "{text:?}");
        }
        assert_eq!(AnswerBody::Base64(&[0; 4]).json_len(), STANDARD.encode([0; 4]).len());
    }
}
