//! A response before it is sent.

use serde_json::Value;

/// A response before it is sent.
pub(super) struct OutgoingResponse {
    pub(super) status: u16,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl OutgoingResponse {
    pub(super) fn new(status: u16, content_type: &str, body: Vec<u8>) -> OutgoingResponse {
        OutgoingResponse { status, fields: vec![("Content-Type".to_owned(), content_type.to_owned())], body }
    }

    pub(super) fn json(status: u16, body: &Value) -> OutgoingResponse {
        OutgoingResponse::new(status, "application/json", body.to_string().into_bytes())
    }

    /// Sets a header field, or removes it if `value` is `None`.
    pub(super) fn set(&mut self, name: &str, value: Option<&str>) {
        self.fields.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.fields.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
}
