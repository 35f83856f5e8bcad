//! Answers of the API. Only `jobId`, `status` and `bundleUrl` are required, each in its own answer, as texts that are
//! not empty; everything else may be missing or of any type (rules of the agent, part C1).

use std::fmt::Write;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::base::secret::{SafeUrl, Scrubber};
use crate::model::units::count;

/// What a job's status means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Status {
    /// The bundle can be asked for.
    Completed,
    /// There will be no bundle.
    Failed,
    /// Every other word: still working.
    Working(String),
}

/// A job as it was last seen.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The word itself.
    pub status: String,
    /// How far, in percent.
    pub progress: Option<f64>,
    /// Pages so far.
    pub page_count: Option<u64>,
    /// When it last moved, in the server's words.
    pub updated_at: Option<String>,
    /// Why it failed.
    pub error: Option<String>,
}

impl Job {
    /// What the status means.
    pub fn meaning(&self) -> Status {
        match self.status.as_str() {
            "completed" => Status::Completed,
            "failed" => Status::Failed,
            other => Status::Working(other.to_owned()),
        }
    }

    /// In a few words: `running, 55 %, 12 pages`.
    pub fn line(&self) -> String {
        let mut line = self.status.clone();
        if let Some(progress) = self.progress {
            let _ = write!(line, ", {progress:.0} %");
        }
        if let Some(pages) = self.page_count {
            let _ = write!(line, ", {}", count(pages, "page"));
        }
        line
    }
}

/// A presigned link.
#[derive(Debug, Clone)]
pub struct Link {
    /// Where the bundle is.
    pub url: SafeUrl,
    /// Size in bytes, as a hint.
    pub size: Option<u64>,
    /// Until when, in the server's words; a hint.
    pub expires_at: Option<String>,
}

fn text<'a>(answer: &'a Map<String, Value>, name: &str) -> Result<&'a str, String> {
    match answer.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(_) => Err(format!("its {name} is not a text")),
        None => Err(format!("it has no {name}")),
    }
}

fn number(value: Option<&Value>) -> Option<f64> {
    let number = match value? {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().trim_end_matches('%').trim().parse().ok(),
        _ => None,
    };
    number.filter(|n| n.is_finite() && *n >= 0.0)
}

/// A number of things.
fn whole(value: Option<&Value>) -> Option<u64> {
    // What is beyond u64 is beyond counting.
    number(value).map(|n| format!("{n:.0}").parse().unwrap_or(u64::MAX))
}

fn hint(answer: &Map<String, Value>, name: &str) -> Option<String> {
    answer.get(name)?.as_str().map(str::to_owned)
}

/// The id that a start gives.
pub fn job_id(answer: &Map<String, Value>) -> Result<String, String> {
    text(answer, "jobId").map(str::to_owned)
}

/// The state that a poll gives.
pub fn job(answer: &Map<String, Value>, scrubber: &Scrubber) -> Result<Job, String> {
    let error = match answer.get("error") {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(scrubber.scrub(text)),
        Some(other) => Some(scrubber.scrub(&other.to_string())),
    };
    Ok(Job {
        status: text(answer, "status")?.to_owned(),
        progress: number(answer.get("progress")),
        page_count: whole(answer.get("pageCount")),
        updated_at: hint(answer, "updatedAt"),
        error,
    })
}

/// The link that a bundle call gives.
pub fn link(answer: &Map<String, Value>) -> Result<Link, String> {
    let url = SafeUrl::parse(text(answer, "bundleUrl")?).map_err(|why| format!("its bundleUrl is unusable: {why}"))?;
    Ok(Link { url, size: whole(answer.get("sizeBytes")), expires_at: hint(answer, "expiresAt") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn only_what_is_promised_is_required_and_the_rest_may_be_of_any_type() {
        let none = Scrubber::default();
        let bare = job(&object(r#"{"status":"warming-up"}"#), &none).unwrap();
        assert_eq!(bare.meaning(), Status::Working("warming-up".into()));
        let odd = r#"{"status":"running","progress":"55","pageCount":"many","updatedAt":7,"error":null,"x":[]}"#;
        let odd = job(&object(odd), &none).unwrap();
        assert_eq!(
            (odd.progress, odd.page_count, odd.updated_at.as_deref(), odd.error),
            (Some(55.0), None, None, None)
        );
        for wrong in [r"{}", r#"{"status":""}"#, r#"{"status":7}"#] {
            assert!(job(&object(wrong), &none).is_err(), "{wrong}");
        }
        assert!(job_id(&object(r#"{"jobId":null}"#)).is_err());
        assert_eq!(job_id(&object(r#"{"jobId":"a/b"}"#)).unwrap(), "a/b");
    }

    #[test]
    fn a_link_is_http_and_its_hints_are_hints() {
        let of = |text| link(&object(text));
        let good = of(r#"{"bundleUrl":"https://b/x?s=1","sizeBytes":"big","expiresAt":0}"#).unwrap();
        assert_eq!((good.size, good.expires_at), (None, None));
        for wrong in [r#"{"bundleUrl":"file:///etc/passwd"}"#, r#"{"bundleUrl":""}"#, r"{}", r#"{"bundleUrl":"x"}"#] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
