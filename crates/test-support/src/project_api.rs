//! The parts of the upstream's API besides exports: previews with their deployments, and search analytics.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::upstream::request::{Request, UpstreamCall};

/// The id of the only project.
pub const PROJECT: &str = "prj_7/a";

/// A search: the term, the day as YYYY-MM-DD, and the page that was clicked.
pub type ReceivedEvent = (String, String, Option<String>);

/// The state of previews and searches.
#[derive(Debug)]
pub struct ProjectApi {
    /// The states of each deployment, one for each poll; the last is repeated. A text stands for a complete response
    /// with that status.
    pub states: Vec<Value>,
    /// All searches.
    pub events: Vec<ReceivedEvent>,
    /// Branches with a preview.
    pub branches: Vec<String>,
    /// The number of polls of each deployment.
    pub deployments: BTreeMap<String, usize>,
}

impl Default for ProjectApi {
    fn default() -> ProjectApi {
        ProjectApi {
            states: ["queued", "in_progress", "success"].map(Value::from).into(),
            events: Vec::new(),
            branches: Vec::new(),
            deployments: BTreeMap::new(),
        }
    }
}

fn decode(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn error_body(status: u16, error: &str, details: &[&str]) -> (u16, Value) {
    let details: Vec<Value> = details.iter().map(|message| json!({"message": message})).collect();
    let body = if details.is_empty() { json!({"error": error}) } else { json!({"error": error, "details": details}) };
    (status, body)
}

impl ProjectApi {
    /// Returns the status and the body of the response to a request.
    pub fn respond(&mut self, request: &Request, origin: &str) -> (u16, Value) {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let last_segment = || decode(path.rsplit('/').next().unwrap_or_default());
        match request.call {
            UpstreamCall::Preview if last_segment() != PROJECT => error_body(404, "no such project", &[]),
            UpstreamCall::Preview => self.create_preview(&request.body, origin),
            UpstreamCall::Deployment => self.poll_deployment(&last_segment()),
            UpstreamCall::Searches if decode(path) != format!("/v1/analytics/{PROJECT}/searches") => {
                error_body(404, "no such project", &[])
            }
            _ => self.list_searches(query),
        }
    }

    fn create_preview(&mut self, body: &[u8], origin: &str) -> (u16, Value) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(branch) = body["branch"].as_str().filter(|branch| !branch.is_empty()) else {
            return error_body(400, "branch is required", &[]);
        };
        if !self.branches.iter().any(|name| name == branch) {
            self.branches.push(branch.to_owned());
        }
        let id = format!("dep_{}", self.deployments.len() + 1);
        self.deployments.insert(id.clone(), 0);
        let slug: String = branch.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        (202, json!({"statusId": id, "previewUrl": format!("{origin}/preview/{slug}")}))
    }

    fn poll_deployment(&mut self, id: &str) -> (u16, Value) {
        let Some(polls) = self.deployments.get_mut(id) else { return error_body(404, "no such deployment", &[]) };
        let state = self.states[(*polls).min(self.states.len() - 1)].clone();
        *polls += 1;
        let Some(status) = state.as_str() else { return (200, state) };
        let has_ended = matches!(status, "success" | "failure");
        let body = json!({
            "_id": id, "projectId": PROJECT, "status": status, "createdAt": "2026-08-01T10:00:00.000Z",
            "endedAt": has_ended.then_some("2026-08-01T10:01:00.000Z"),
            "summary": has_ended.then(|| format!("the build ended in {status}")),
            "logs": ["cloning", "building 12 pages"], "subdomain": "docs", "author": null, "source": "api",
            "commit": {"sha": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "ref": "feature/tides", "message": "Tides by moonlight",
                "filesChanged": {"added": ["tides.mdx"], "modified": ["index.mdx", "docs.json"], "removed": []}},
        });
        (200, body)
    }

    fn list_searches(&self, query: &str) -> (u16, Value) {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let parameters: BTreeMap<String, String> =
            pairs.filter_map(|pair| pair.split_once('=')).map(|(name, value)| (decode(name), decode(value))).collect();
        let known_names = ["dateFrom", "dateTo", "limit", "cursor"];
        let unknown_names: Vec<&str> =
            parameters.keys().map(String::as_str).filter(|name| !known_names.contains(name)).collect();
        if !unknown_names.is_empty() {
            return error_body(400, "Invalid query parameters", &unknown_names);
        }
        let limit: usize = parameters.get("limit").map_or(Ok(50), |limit| limit.parse()).unwrap_or(0);
        if !(1..=100).contains(&limit) {
            return error_body(400, "Invalid query parameters", &["limit: must be between 1 and 100"]);
        }
        let offset =
            match parameters.get("cursor").map(|cursor| cursor.strip_prefix("after+/=").and_then(|n| n.parse().ok())) {
                None => 0,
                Some(Some(offset)) => offset,
                Some(None) => return error_body(400, "Invalid cursor", &["cursor: is not one of ours"]),
            };
        let day = |name: &str| parameters.get(name).map(|text| text[..10.min(text.len())].to_owned());
        let (from, to) = (day("dateFrom"), day("dateTo"));
        let rows = self.rows(from.as_deref(), to.as_deref());
        let total: u64 = rows.iter().map(|row| row["hits"].as_u64().unwrap_or(0)).sum();
        let page: Vec<&Value> = rows.iter().skip(offset).take(limit).collect();
        let next = offset + page.len();
        let cursor = (next < rows.len()).then(|| format!("after+/={next}"));
        (200, json!({"searches": page, "totalSearches": total, "nextCursor": cursor}))
    }

    /// Returns the searches of some days as rows of the API: sorted by hits, then by term.
    fn rows(&self, from: Option<&str>, to: Option<&str>) -> Vec<Value> {
        let mut terms: BTreeMap<&str, Vec<&ReceivedEvent>> = BTreeMap::new();
        for event in &self.events {
            let day = event.1.as_str();
            if from.is_none_or(|from| day >= from) && to.is_none_or(|to| day < to) {
                terms.entry(&event.0).or_default().push(event);
            }
        }
        let mut rows: Vec<Value> = terms
            .into_iter()
            .map(|(term, events)| {
                let mut pages: BTreeMap<&str, usize> = BTreeMap::new();
                for page in events.iter().filter_map(|event| event.2.as_deref()) {
                    *pages.entry(page).or_default() += 1;
                }
                let clicks: usize = pages.values().sum();
                let top = pages.iter().max_by_key(|(_, clicks)| **clicks).map(|(page, _)| *page);
                let ctr = (clicks as f64 * 1000.0 / events.len() as f64).round() / 10.0;
                let last = events.iter().map(|event| event.1.as_str()).max().unwrap_or_default();
                json!({"searchQuery": term, "hits": events.len(), "ctr": ctr, "topClickedPage": top,
                    "lastSearchedAt": format!("{last}T12:00:00.000Z")})
            })
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row["hits"].as_u64()));
        rows
    }
}
