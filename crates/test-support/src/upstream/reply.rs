//! Responses that a test defines.

use std::time::Duration;

use serde_json::{Value, json};

/// The kind of a reply.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum ReplyKind {
    /// The normal response of the API or the object store.
    #[default]
    Normal,
    /// A response that the test defines.
    Scripted,
    /// No response; the connection stays open until the client closes it.
    NoReply,
    /// The connection is closed without a response.
    Close,
}

/// A response that the test defines, or changes of the normal response.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Reply {
    pub(super) kind: ReplyKind,
    pub(super) status: u16,
    pub(super) body: Option<Vec<u8>>,
    /// `None` removes the field.
    pub(super) fields: Vec<(String, Option<String>)>,
    pub(super) ignores_range: bool,
    /// The number of body bytes after which the connection is closed.
    pub(super) close_after_bytes: Option<usize>,
    /// The number of body bytes after which nothing more is sent.
    pub(super) stall_after_bytes: Option<usize>,
    /// The number of pieces of the body, and the pause after each.
    pub(super) trickle: Option<(usize, Duration)>,
    /// The number of zero bytes after the body.
    pub(super) trailing_zero_bytes: usize,
}

/// The normal response; the methods of [`Reply`] change it.
pub fn normal_reply() -> Reply {
    Reply::default()
}

/// An error with this status and a JSON body, as the API sends it.
pub fn error_reply(status: u16) -> Reply {
    let reply = Reply { kind: ReplyKind::Scripted, status, ..Reply::default() };
    reply.json(&json!({"error": format!("scripted reply {status}")}))
}

/// A response with status 200, this content type and this body.
pub fn raw_reply(content_type: &str, body: impl AsRef<[u8]>) -> Reply {
    Reply { kind: ReplyKind::Scripted, status: 200, ..Reply::default() }.body(content_type, body)
}

/// Reads the request and never responds.
pub fn no_reply() -> Reply {
    Reply { kind: ReplyKind::NoReply, ..Reply::default() }
}

/// Closes the connection without a response.
pub fn close_without_reply() -> Reply {
    Reply { kind: ReplyKind::Close, ..Reply::default() }
}

/// A redirect to another location.
pub fn redirect_reply(status: u16, location: &str) -> Reply {
    Reply { kind: ReplyKind::Scripted, status, body: Some(Vec::new()), ..Reply::default() }.header("Location", location)
}

/// An error of the object store.
pub fn storage_error(status: u16, code: &str, message: &str) -> Reply {
    let reply = Reply { kind: ReplyKind::Scripted, status, ..Reply::default() };
    reply.body("application/xml", storage_xml(code, message))
}

/// The response of the object store to a link that has expired.
pub fn expired_link_reply() -> Reply {
    storage_error(403, "AccessDenied", "Request has expired")
}

/// Returns the body of an error of the object store.
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
    pub fn body(mut self, content_type: &str, body: impl AsRef<[u8]>) -> Reply {
        self.body = Some(body.as_ref().to_vec());
        self.header("Content-Type", content_type)
    }

    /// Sets a JSON body.
    pub fn json(self, body: &Value) -> Reply {
        self.body("application/json", body.to_string())
    }

    /// Sets a header field, or replaces the field of that name.
    pub fn header(mut self, name: &str, value: impl AsRef<str>) -> Reply {
        self.fields.push((name.to_owned(), Some(value.as_ref().to_owned())));
        self
    }

    /// Removes a header field.
    pub fn without(mut self, name: &str) -> Reply {
        self.fields.push((name.to_owned(), None));
        self
    }

    /// Responds to a range request with the complete body.
    pub fn ignoring_range(mut self) -> Reply {
        self.ignores_range = true;
        self
    }

    /// Closes the connection after this many bytes of the body.
    pub fn cut(mut self, bytes: usize) -> Reply {
        self.close_after_bytes = Some(bytes);
        self
    }

    /// Sends this many bytes of the body and then nothing more.
    pub fn stall(mut self, bytes: usize) -> Reply {
        self.stall_after_bytes = Some(bytes);
        self
    }

    /// Sends this many zeros after the body, rounded up to 64 KiB, or until the client closes.
    pub fn zeros(mut self, bytes: usize) -> Reply {
        self.trailing_zero_bytes = bytes;
        self
    }

    /// Sends the body in this many pieces with a pause after each.
    pub fn trickle(mut self, pieces: usize, pause: Duration) -> Reply {
        self.trickle = Some((pieces, pause));
        self
    }
}
