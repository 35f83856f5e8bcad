//! The state of an upstream, and its responses to requests for a bundle.

use std::collections::{HashMap, VecDeque};

use docwharf::model::digest::Digest;
use serde_json::Value;

use super::outgoing::OutgoingResponse;
use super::reply::{Reply, normal_reply, storage_xml};
use super::request::{Request, UpstreamCall};
use crate::project_api::ProjectApi;
use crate::tar::gzip;

/// The modification time of every bundle.
const LAST_MODIFIED: &str = "Sat, 01 Aug 2026 10:00:00 GMT";

/// A `Content-Encoding: gzip` on the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BundleCoding {
    /// Only the header field, as from an object store that treats a `.tar.gz` as a compressed `.tar`.
    Label,
    /// The header field and a second gzip layer around the bundle.
    Layer,
}

/// The state of an upstream.
#[derive(Debug)]
pub struct UpstreamState {
    /// The key that the API accepts.
    pub key: String,
    /// The bundle that every link leads to, also a link of an earlier job.
    pub bundle: Vec<u8>,
    /// The entity tag of the bundle; `None` for one that is computed from its content.
    pub etag: Option<String>,
    /// The content coding of the bundle.
    pub coding: Option<BundleCoding>,
    /// The statuses that the polls of a job return, one after the other; the last is repeated. A JSON string is
    /// shorthand for a complete response with that status.
    pub statuses: Vec<Value>,
    /// The ids of the next jobs. Later jobs are numbered.
    pub job_ids: VecDeque<String>,
    /// The number of times that a link works.
    pub link_uses: usize,
    /// The expiry of links: `None` for an hour from now, null to omit it.
    pub expires_at: Option<Value>,
    /// The size in the response with the link; `None` for the real one.
    pub size_bytes: Option<Value>,
    /// A link in place of a working one.
    pub link: Option<String>,
    /// Whether links lead to the address of the API.
    pub link_on_api: bool,
    /// The content of probed pages.
    pub probe: Vec<u8>,
    /// The content of pages, by request target with its query.
    pub pages: HashMap<String, Vec<u8>>,
    /// Previews and search analytics.
    pub project_api: ProjectApi,
    /// The number of seconds by which the upstream's clock is ahead.
    pub skew: i64,
    /// The number of polls so far, for each job.
    pub(super) jobs: HashMap<String, usize>,
    pub(super) started: usize,
    /// The number of remaining uses of each link, by signature.
    pub(super) links: HashMap<String, usize>,
    pub(super) rules: Vec<Rule>,
    pub(super) log: Vec<Request>,
}

/// A response to the next calls of one kind.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) call: UpstreamCall,
    pub(super) skip: usize,
    pub(super) times: usize,
    pub(super) reply: Reply,
}

impl UpstreamState {
    /// Returns the reply of the first rule that applies, or the normal reply.
    pub(super) fn next_reply(&mut self, call: UpstreamCall) -> Reply {
        for rule in self.rules.iter_mut().filter(|rule| rule.call == call && rule.times > 0) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            return rule.reply.clone();
        }
        normal_reply()
    }

    /// Returns the bytes that a link leads to.
    pub fn representation(&self) -> Vec<u8> {
        if self.coding == Some(BundleCoding::Layer) { gzip(&self.bundle) } else { self.bundle.clone() }
    }

    /// Returns the entity tag of the bundle.
    pub fn validator(&self) -> String {
        self.etag.clone().unwrap_or_else(|| format!("\"{}\"", &Digest::compute(&self.bundle).to_hex()[..32]))
    }

    /// Makes the response of the object store to a request for a bundle.
    pub(super) fn download(&mut self, request: &Request, ignores_range: bool) -> OutgoingResponse {
        let xml = |status, code: &str, message: &str| {
            OutgoingResponse::new(status, "application/xml", storage_xml(code, message).into_bytes())
        };
        if request.header("authorization").is_some() {
            return xml(400, "InvalidArgument", "Only one auth mechanism allowed");
        }
        if request.method != "GET" {
            return xml(403, "SignatureDoesNotMatch", "The signature is for another method");
        }
        let query = request.target.split_once('?').map_or("", |(_, query)| query);
        let signature = query.split('&').find_map(|pair| pair.strip_prefix("X-Amz-Signature="));
        match signature.and_then(|signature| self.links.get_mut(signature)) {
            None => return xml(403, "SignatureDoesNotMatch", "The signature is not ours"),
            Some(0) => return xml(403, "AccessDenied", "Request has expired"),
            Some(uses) => *uses -= 1,
        }
        let bytes = self.representation();
        let etag = self.validator();
        let total = bytes.len();
        let mut outgoing;
        let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
        let range = range.filter(|_| {
            let validator = request.header("if-range");
            !ignores_range
                && validator.is_none_or(|value| (value == etag && !value.starts_with("W/")) || value == LAST_MODIFIED)
        });
        let range = range.and_then(|range| range.split_once('-'));
        let bounds = range.and_then(|(from, to)| {
            let from: usize = from.parse().ok()?;
            let to = if to.is_empty() { total - 1 } else { to.parse().ok()? };
            Some((from, to.min(total - 1)))
        });
        if request.header("if-none-match").is_some_and(|values| values.split(", ").any(|value| value == etag)) {
            outgoing = OutgoingResponse::new(304, "application/gzip", Vec::new());
        } else if let Some((from, to)) = bounds {
            if from >= total {
                outgoing = xml(416, "InvalidRange", "The requested range is not satisfiable");
                outgoing.set("Content-Range", Some(&format!("bytes */{total}")));
                return outgoing;
            }
            outgoing = OutgoingResponse::new(206, "application/gzip", bytes[from..=to].to_vec());
            outgoing.set("Content-Range", Some(&format!("bytes {from}-{to}/{total}")));
        } else {
            outgoing = OutgoingResponse::new(200, "application/gzip", bytes);
        }
        outgoing.set("ETag", Some(&etag));
        outgoing.set("Last-Modified", Some(LAST_MODIFIED));
        outgoing.set("Accept-Ranges", Some("bytes"));
        if self.coding.is_some() {
            outgoing.set("Content-Encoding", Some("gzip"));
        }
        outgoing
    }
}
