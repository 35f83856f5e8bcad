//! The requests that an upstream has received.

use std::time::Instant;

use serde_json::Value;

/// Subject of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// Start of an export job.
    Start,
    /// Status of an export job.
    Poll,
    /// Link to the bundle of an export job.
    Bundle,
    /// The bundle behind a link.
    Download,
    /// A page that is probed for changes.
    Probe,
    /// Creation of a preview.
    Preview,
    /// Status of a deployment.
    Deployment,
    /// Search analytics.
    Searches,
    /// Any other request.
    Other,
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// Subject of the request.
    pub call: Call,
    /// Method.
    pub method: String,
    /// Target with its query.
    pub target: String,
    /// Names as they were sent.
    pub headers: Vec<(String, String)>,
    /// Body.
    pub body: Vec<u8>,
    /// Time of arrival.
    pub at: Instant,
    /// Status of the answer; 0 for none.
    pub status: u16,
}

impl Request {
    /// The value of a field that is there at most once.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v.as_str());
        let first = values.next();
        assert!(values.next().is_none(), "{name} more than once: {:?}", self.headers);
        first
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|e| panic!("no JSON ({e}): {self:?}"))
    }

    /// Everything that was sent but the body, as text to search in.
    pub fn head(&self) -> String {
        let fields: Vec<String> = self.headers.iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
        format!("{} {}\n{}", self.method, self.target, fields.concat())
    }

    /// The job a poll or a bundle call names, decoded once; the whole of its one segment.
    pub fn job(&self) -> Option<String> {
        job_of(path(&self.target))
    }
}

fn path(target: &str) -> &str {
    target.split('?').next().unwrap_or(target)
}

fn job_of(path: &str) -> Option<String> {
    let rest = path.strip_prefix("/v1/static-export/jobs/")?;
    let segment = rest.strip_suffix("/bundle").unwrap_or(rest);
    if segment.is_empty() || segment.contains('/') {
        return None;
    }
    Some(percent_encoding::percent_decode_str(segment).decode_utf8_lossy().into_owned())
}

/// Returns the subject of a request by its method and target.
pub(super) fn classify(request: &Request) -> Call {
    let path = path(&request.target);
    match request.method.as_str() {
        "POST" if path == "/v1/static-export/jobs" => Call::Start,
        "POST" if path.ends_with("/bundle") && job_of(path).is_some() => Call::Bundle,
        "GET" if job_of(path).is_some() => Call::Poll,
        "POST" if path.starts_with("/v1/project/preview/") => Call::Preview,
        "GET" if path.starts_with("/v1/project/update-status/") => Call::Deployment,
        "GET" if path.starts_with("/v1/analytics/") && path.ends_with("/searches") => Call::Searches,
        _ if path.starts_with("/exports/") => Call::Download,
        _ if matches!(path, "/sitemap.xml" | "/llms.txt") => Call::Probe,
        _ => Call::Other,
    }
}
