//! The requests that an upstream has received.

use std::time::Instant;

use serde_json::Value;

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UpstreamCall {
    /// The start of an export job.
    Start,
    /// The status of an export job.
    Poll,
    /// The link to the bundle of an export job.
    Link,
    /// The download of a bundle.
    Download,
    /// A page that is probed for changes.
    Probe,
    /// The creation of a preview.
    Preview,
    /// The status of a deployment.
    Deployment,
    /// Search analytics.
    Searches,
    /// Any other request.
    Other,
}

/// A request as it was received.
#[derive(Debug, Clone)]
pub struct Request {
    /// The kind of the request.
    pub call: UpstreamCall,
    /// The method.
    pub method: String,
    /// The target with its query.
    pub target: String,
    /// The header fields, with the names as they were sent.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The time of arrival.
    pub received_at: Instant,
    /// The status of the response; 0 for none.
    pub status: u16,
}

impl Request {
    /// Returns the value of a field; panics if the request has several fields of this name.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "{name} more than once: {:?}", self.headers);
        first
    }

    /// Parses the body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("not JSON ({e}): {self:?}"))
    }

    /// Returns the method, the target and the header fields as text.
    pub fn head(&self) -> String {
        let fields: Vec<String> = self.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        format!("{} {}\n{}", self.method, self.target, fields.concat())
    }

    /// Returns the id of the job in the path of a poll or a link call, percent-decoded.
    pub fn job(&self) -> Option<String> {
        job_id_in(path(&self.target))
    }
}

fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

fn job_id_in(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/v1/static-export/jobs/")?;
    let segment = rest.strip_suffix("/bundle").unwrap_or(rest);
    if segment.is_empty() || segment.contains('/') {
        return None;
    }
    Some(percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned())
}

/// Determines the kind of a request from its method and target.
pub(super) fn classify(request: &Request) -> UpstreamCall {
    let path = path(&request.target);
    match request.method.as_str() {
        "POST" if path == "/v1/static-export/jobs" => UpstreamCall::Start,
        "POST" if path.ends_with("/bundle") && job_id_in(path).is_some() => UpstreamCall::Link,
        "GET" if job_id_in(path).is_some() => UpstreamCall::Poll,
        "POST" if path.starts_with("/v1/project/preview/") => UpstreamCall::Preview,
        "GET" if path.starts_with("/v1/project/update-status/") => UpstreamCall::Deployment,
        "GET" if path.starts_with("/v1/analytics/") && path.ends_with("/searches") => UpstreamCall::Searches,
        _ if path.starts_with("/exports/") => UpstreamCall::Download,
        _ if matches!(path, "/sitemap.xml" | "/llms.txt") => UpstreamCall::Probe,
        _ => UpstreamCall::Other,
    }
}
