//! An answer before it is sent.

use serde_json::Value;

/// Fields and body of an answer before it is sent.
pub(super) struct Outgoing {
    pub(super) status: u16,
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Outgoing {
    pub(super) fn new(status: u16, kind: &str, body: Vec<u8>) -> Outgoing {
        Outgoing { status, fields: vec![("Content-Type".to_owned(), kind.to_owned())], body }
    }

    pub(super) fn json(status: u16, body: &Value) -> Outgoing {
        Outgoing::new(status, "application/json", body.to_string().into_bytes())
    }

    pub(super) fn set(&mut self, name: &str, value: Option<&str>) {
        self.fields.retain(|(n, _)| !n.eq_ignore_ascii_case(name));
        self.fields.extend(value.map(|value| (name.to_owned(), value.to_owned())));
    }
}
