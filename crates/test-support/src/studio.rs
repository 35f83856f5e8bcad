//! Previews with their deployments, and searches in pages: the parts of the upstream's API besides exports.

use std::collections::BTreeMap;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use crate::upstream::request::{Call, Request};

/// The project that there is.
pub const PROJECT: &str = "prj_7/a";

/// A search: term, day as YYYY-MM-DD, the page that was clicked.
pub type SearchEvent = (String, String, Option<String>);

/// Previews and searches.
#[derive(Debug)]
pub struct Studio {
    /// States of each deployment, one poll after the other; the last is repeated. A text stands for an honest
    /// answer with that status.
    pub states: Vec<Value>,
    /// Every search.
    pub events: Vec<SearchEvent>,
    /// Branches with a preview.
    pub branches: Vec<String>,
    /// Deployments and how often each was asked about.
    pub deployments: BTreeMap<String, usize>,
}

impl Default for Studio {
    fn default() -> Studio {
        Studio {
            states: ["queued", "in_progress", "success"].map(Value::from).into(),
            events: Vec::new(),
            branches: Vec::new(),
            deployments: BTreeMap::new(),
        }
    }
}

fn decoded(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

fn refusal(status: u16, error: &str, details: &[&str]) -> (u16, Value) {
    let details: Vec<Value> = details.iter().map(|message| json!({"message": message})).collect();
    let body = if details.is_empty() { json!({"error": error}) } else { json!({"error": error, "details": details}) };
    (status, body)
}

impl Studio {
    /// Status and body of an honest answer.
    pub fn answer(&mut self, request: &Request, origin: &str) -> (u16, Value) {
        let (path, query) = request.target.split_once('?').unwrap_or((&request.target, ""));
        let last = || decoded(path.rsplit('/').next().unwrap_or_default());
        match request.call {
            Call::Preview if last() != PROJECT => refusal(404, "no such project", &[]),
            Call::Preview => self.preview(&request.body, origin),
            Call::Deployment => self.deployment(&last()),
            Call::Searches if decoded(path) != format!("/v1/analytics/{PROJECT}/searches") => {
                refusal(404, "no such project", &[])
            }
            _ => self.searches(query),
        }
    }

    fn preview(&mut self, body: &[u8], origin: &str) -> (u16, Value) {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let Some(branch) = body["branch"].as_str().filter(|branch| !branch.is_empty()) else {
            return refusal(400, "branch is required", &[]);
        };
        if !self.branches.iter().any(|known| known == branch) {
            self.branches.push(branch.to_owned());
        }
        let id = format!("dep_{}", self.deployments.len() + 1);
        self.deployments.insert(id.clone(), 0);
        let slug: String = branch.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        (202, json!({"statusId": id, "previewUrl": format!("{origin}/preview/{slug}")}))
    }

    fn deployment(&mut self, id: &str) -> (u16, Value) {
        let Some(polls) = self.deployments.get_mut(id) else { return refusal(404, "no such deployment", &[]) };
        let state = self.states[(*polls).min(self.states.len() - 1)].clone();
        *polls += 1;
        let Some(status) = state.as_str() else { return (200, state) };
        let ended = matches!(status, "success" | "failure");
        let body = json!({
            "_id": id, "projectId": PROJECT, "status": status, "createdAt": "2026-08-01T10:00:00.000Z",
            "endedAt": ended.then_some("2026-08-01T10:01:00.000Z"),
            "summary": ended.then(|| format!("the build ended in {status}")),
            "logs": ["cloning", "building 12 pages"], "subdomain": "docs", "author": null, "source": "api",
            "commit": {"sha": "0a1b2c3d4e5f60718293a4b5c6d7e8f901234567", "ref": "feature/tides", "message": "Tides by moonlight",
                "filesChanged": {"added": ["tides.mdx"], "modified": ["index.mdx", "docs.json"], "removed": []}},
        });
        (200, body)
    }

    fn searches(&self, query: &str) -> (u16, Value) {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let given: BTreeMap<String, String> = pairs
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (decoded(name), decoded(value)))
            .collect();
        let known = ["dateFrom", "dateTo", "limit", "cursor"];
        let unknown: Vec<&str> = given.keys().map(String::as_str).filter(|name| !known.contains(name)).collect();
        if !unknown.is_empty() {
            return refusal(400, "Invalid query parameters", &unknown);
        }
        let limit: usize = given.get("limit").map_or(Ok(50), |limit| limit.parse()).unwrap_or(0);
        if !(1..=100).contains(&limit) {
            return refusal(400, "Invalid query parameters", &["limit: must be between 1 and 100"]);
        }
        let after = match given.get("cursor").map(|cursor| cursor.strip_prefix("after+/=").and_then(|n| n.parse().ok()))
        {
            None => 0,
            Some(Some(after)) => after,
            Some(None) => return refusal(400, "Invalid cursor", &["cursor: is not one of ours"]),
        };
        let day = |name: &str| given.get(name).map(|text| text[..10.min(text.len())].to_owned());
        let (from, to) = (day("dateFrom"), day("dateTo"));
        let rows = self.rows(from.as_deref(), to.as_deref());
        let total: u64 = rows.iter().map(|row| row["hits"].as_u64().unwrap_or(0)).sum();
        let page: Vec<&Value> = rows.iter().skip(after).take(limit).collect();
        let next = after + page.len();
        let cursor = (next < rows.len()).then(|| format!("after+/={next}"));
        (200, json!({"searches": page, "totalSearches": total, "nextCursor": cursor}))
    }

    /// The events of some days as the API has them: by hits, then by term.
    fn rows(&self, from: Option<&str>, to: Option<&str>) -> Vec<Value> {
        let mut terms: BTreeMap<&str, Vec<&SearchEvent>> = BTreeMap::new();
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
