//! The state of an upstream, and what it answers to a request for a bundle.

use std::collections::{HashMap, VecDeque};

use docwharf::model::digest::Digest;
use serde_json::Value;

use super::outgoing::Outgoing;
use super::reply::{Reply, honest, storage_xml};
use super::request::{Call, Request};
use crate::studio::Studio;
use crate::tar::gzip;

/// When the bundle was last changed, whatever it is.
const MODIFIED: &str = "Sat, 01 Aug 2026 10:00:00 GMT";

/// A `Content-Encoding: gzip` on the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// A label alone, as of a storage service that took a `.tar.gz` for a coded `.tar`.
    Label,
    /// A second layer around what was compressed already.
    Layer,
}

/// State of the upstream.
#[derive(Debug)]
pub struct Plan {
    /// The key it takes.
    pub key: String,
    /// The bundle of the next job.
    pub bundle: Vec<u8>,
    /// Validator of the bundle; none for one made from its content.
    pub etag: Option<String>,
    /// Content coding of the bundle.
    pub coding: Option<Coding>,
    /// Statuses that polls of a job give one after the other; the last is repeated. A text stands for a whole answer
    /// with that status.
    pub statuses: Vec<Value>,
    /// The ids of the next jobs; then they are numbered.
    pub job_ids: VecDeque<String>,
    /// Number of times that a link works.
    pub link_uses: usize,
    /// Expiry of links; none for an hour from now, null leaves it out.
    pub expires_at: Option<Value>,
    /// Size in the answer with the link; none for the real one.
    pub size_bytes: Option<Value>,
    /// A link in place of the honest one.
    pub link: Option<String>,
    /// Links lead to the API's own address.
    pub link_on_api: bool,
    /// Content of pages that are probed.
    pub probe: Vec<u8>,
    /// Content of pages by target with its query.
    pub pages: HashMap<String, Vec<u8>>,
    /// Previews and search analytics.
    pub studio: Studio,
    /// Seconds by which its clock is ahead.
    pub skew: i64,
    /// Polls answered so far, for each job.
    pub(super) jobs: HashMap<String, usize>,
    pub(super) started: usize,
    /// Uses left, by signature.
    pub(super) links: HashMap<String, usize>,
    pub(super) rules: Vec<Rule>,
    pub(super) log: Vec<Request>,
}

/// An answer to the next requests of one subject.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) call: Call,
    pub(super) skip: usize,
    pub(super) times: usize,
    pub(super) reply: Reply,
}

impl Plan {
    /// Returns the answer that a rule gives, or the honest one.
    pub(super) fn scripted(&mut self, call: Call) -> Reply {
        for rule in self.rules.iter_mut().filter(|rule| rule.call == call && rule.times > 0) {
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            rule.times -= 1;
            return rule.reply.clone();
        }
        honest()
    }

    /// The bytes behind a link.
    pub fn representation(&self) -> Vec<u8> {
        if self.coding == Some(Coding::Layer) { gzip(&self.bundle) } else { self.bundle.clone() }
    }

    /// The validator of these bytes.
    pub fn validator(&self) -> String {
        self.etag.clone().unwrap_or_else(|| format!("\"{}\"", &Digest::of(&self.bundle).hex()[..32]))
    }

    /// Answers a request for a bundle as the storage service does.
    pub(super) fn download(&mut self, request: &Request, whole: bool) -> Outgoing {
        let xml = |status, code: &str, message: &str| {
            Outgoing::new(status, "application/xml", storage_xml(code, message).into_bytes())
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
        let asked = request.header("range").and_then(|range| range.strip_prefix("bytes="));
        let asked = asked.filter(|_| {
            let held = request.header("if-range");
            !whole && held.is_none_or(|held| (held == etag && !held.starts_with("W/")) || held == MODIFIED)
        });
        let asked = asked.and_then(|range| range.split_once('-'));
        let bounds = asked.and_then(|(from, to)| {
            let from: usize = from.parse().ok()?;
            let to = if to.is_empty() { total - 1 } else { to.parse().ok()? };
            Some((from, to.min(total - 1)))
        });
        if request.header("if-none-match").is_some_and(|held| held.split(", ").any(|held| held == etag)) {
            outgoing = Outgoing::new(304, "application/gzip", Vec::new());
        } else if let Some((from, to)) = bounds {
            if from >= total {
                outgoing = xml(416, "InvalidRange", "The requested range is not satisfiable");
                outgoing.set("Content-Range", Some(&format!("bytes */{total}")));
                return outgoing;
            }
            outgoing = Outgoing::new(206, "application/gzip", bytes[from..=to].to_vec());
            outgoing.set("Content-Range", Some(&format!("bytes {from}-{to}/{total}")));
        } else {
            outgoing = Outgoing::new(200, "application/gzip", bytes);
        }
        outgoing.set("ETag", Some(&etag));
        outgoing.set("Last-Modified", Some(MODIFIED));
        outgoing.set("Accept-Ranges", Some("bytes"));
        if self.coding.is_some() {
            outgoing.set("Content-Encoding", Some("gzip"));
        }
        outgoing
    }
}
