//! Answers made by a test.

use std::time::Duration;

use serde_json::{Value, json};

/// The way in which an answer is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The answer of the specification.
    #[default]
    Honest,
    /// An answer made by the test.
    Made,
    /// No answer, for as long as the other side waits.
    Silence,
    /// The connection is closed before an answer.
    Close,
}

/// An answer, or the honest one with changes.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Reply {
    pub(super) kind: ReplyKind,
    pub(super) status: u16,
    pub(super) body: Option<Vec<u8>>,
    /// `None` takes a field away.
    pub(super) fields: Vec<(String, Option<String>)>,
    pub(super) whole: bool,
    pub(super) cut: Option<usize>,
    pub(super) stall: Option<usize>,
    pub(super) trickle: Option<(usize, Duration)>,
    pub(super) zeros: usize,
}

/// The honest answer, to be changed.
pub fn honest() -> Reply {
    Reply::default()
}

/// An error of this status with a JSON body, as the API writes them.
pub fn answer(status: u16) -> Reply {
    let reply = Reply { kind: ReplyKind::Made, status, ..Reply::default() };
    reply.json(&json!({"error": format!("scripted answer {status}")}))
}

/// Status 200 with this body.
pub fn raw(kind: &str, body: impl AsRef<[u8]>) -> Reply {
    Reply { kind: ReplyKind::Made, status: 200, ..Reply::default() }.body(kind, body)
}

/// Reads the request and never answers.
pub fn silence() -> Reply {
    Reply { kind: ReplyKind::Silence, ..Reply::default() }
}

/// Closes the connection instead of an answer.
pub fn close() -> Reply {
    Reply { kind: ReplyKind::Close, ..Reply::default() }
}

/// A redirect to another location.
pub fn redirect(status: u16, location: &str) -> Reply {
    Reply { kind: ReplyKind::Made, status, body: Some(Vec::new()), ..Reply::default() }.header("Location", location)
}

/// An error of the storage service.
pub fn storage_error(status: u16, code: &str, message: &str) -> Reply {
    let reply = Reply { kind: ReplyKind::Made, status, ..Reply::default() };
    reply.body("application/xml", storage_xml(code, message))
}

/// Answer of the storage service to a link that has expired.
pub fn expired() -> Reply {
    storage_error(403, "AccessDenied", "Request has expired")
}

/// Returns the body of an error of the storage service.
pub(super) fn storage_xml(code: &str, message: &str) -> String {
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<Error><Code>{code}</Code><Message>{message}</Message>\
         <RequestId>4442587FB7D0A2F9</RequestId></Error>"
    )
}

impl Reply {
    /// Sets the status.
    pub fn status(mut self, status: u16) -> Reply {
        self.status = status;
        self
    }

    /// Sets content type and body.
    pub fn body(mut self, kind: &str, body: impl AsRef<[u8]>) -> Reply {
        self.body = Some(body.as_ref().to_vec());
        self.header("Content-Type", kind)
    }

    /// Sets a JSON body.
    pub fn json(self, body: &Value) -> Reply {
        self.body("application/json", body.to_string())
    }

    /// Sets a field, in place of one of that name.
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Reply {
        self.fields.push((name.to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Takes a field away.
    pub fn without(mut self, name: &str) -> Reply {
        self.fields.push((name.to_owned(), None));
        self
    }

    /// Answers a range with the whole.
    pub fn ignoring_range(mut self) -> Reply {
        self.whole = true;
        self
    }

    /// Closes the connection after so many bytes of the body.
    pub fn cut(mut self, bytes: usize) -> Reply {
        self.cut = Some(bytes);
        self
    }

    /// Sends so many bytes of the body and then nothing more.
    pub fn stall(mut self, bytes: usize) -> Reply {
        self.stall = Some(bytes);
        self
    }

    /// Sends so many zeros behind the body, to the next 64 KiB, or as many as are taken.
    pub fn zeros(mut self, bytes: usize) -> Reply {
        self.zeros = bytes;
        self
    }

    /// Sends the body in so many pieces with a pause between them.
    pub fn trickle(mut self, pieces: usize, pause: Duration) -> Reply {
        self.trickle = Some((pieces, pause));
        self
    }
}
