//! Previews: the response to starting one, and the state of its deployment. Pure.
//!
//! The specification leaves open how the state is requested and what it contains. So the path is a setting, every field
//! but `status` may be missing or of any type, and an unknown status means that the deployment is still working.

use serde::Serialize;
use serde_json::Value;

use docwharf_base::secret::SecretRedactor;

use super::responses::{ApiResponse, as_count, optional_text, required_text};

/// The response to starting a preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StartedPreview {
    /// The id for requests of the deployment's state.
    pub status_id: Option<String>,
    /// URL of the preview, which may not be deployed yet.
    pub preview_url: Option<String>,
}

/// Upper bound of the length of a preview's URL in bytes; a longer one is ignored.
const MAX_URL_BYTES: usize = 8 * 1024;

/// Parses the response to starting a preview. The URL is normalized as a browser does, so that it is safe to print.
pub fn parse_started_preview(response: &ApiResponse) -> StartedPreview {
    let url = match response.value("previewUrl") {
        Some(Value::String(text)) => url::Url::parse(&text).ok(),
        _ => None,
    };
    let preview_url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.as_str().len() <= MAX_URL_BYTES);
    let status_id = match response.value("statusId") {
        Some(Value::String(id)) => Some(id).filter(|id| is_path_segment(id)),
        Some(Value::Number(id)) => Some(id.to_string()),
        _ => None,
    };
    StartedPreview { status_id, preview_url: preview_url.map(String::from) }
}

/// Whether the text can be a segment of a path.
pub fn is_path_segment(text: &str) -> bool {
    !matches!(text, "" | "." | "..")
}

/// The state of a preview's deployment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewDeployment {
    /// The status, as the server names it.
    pub status: String,
    /// Summary of the result.
    pub summary: Option<String>,
    /// Lines of the build's log.
    pub logs: Vec<String>,
    /// Time of the request, as the server formats it.
    pub created_at: Option<String>,
    /// Time of the end, as the server formats it.
    pub ended_at: Option<String>,
    /// The deployed commit.
    pub commit: Option<PreviewCommit>,
}

/// A deployed commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PreviewCommit {
    /// Hash of the commit.
    pub sha: Option<String>,
    /// Branch of the commit.
    #[serde(rename = "ref")]
    pub branch: Option<String>,
    /// Message of the commit.
    pub message: Option<String>,
    /// How many files the commit changes.
    pub files_changed: ChangedFileCounts,
}

/// How many files a commit changes, as far as the server reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct ChangedFileCounts {
    /// Number of added files.
    pub added: Option<u64>,
    /// Number of modified files.
    pub modified: Option<u64>,
    /// Number of removed files.
    pub removed: Option<u64>,
}

/// The next action after a poll.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeploymentAction {
    /// Poll again after a pause.
    Poll,
    /// The preview is deployed.
    Ready,
    /// The deployment has failed.
    Failed,
}

impl PreviewDeployment {
    /// Returns the next action. Only `success` and `failure` end a deployment; any other status means that it is still
    /// working.
    pub fn next_action(&self) -> DeploymentAction {
        match self.status.as_str() {
            "success" => DeploymentAction::Ready,
            "failure" => DeploymentAction::Failed,
            _ => DeploymentAction::Poll,
        }
    }

    /// Formats the state in a few words: `in_progress, 12 lines of log`.
    pub fn line(&self) -> String {
        match self.logs.len() as u64 {
            0 => self.status.clone(),
            lines => format!("{}, {} of log", self.status, docwharf_base::model::units::format_count(lines, "line")),
        }
    }
}

/// Parses the state of a deployment; secrets are hidden in it.
pub fn parse_deployment(response: &ApiResponse, redactor: &SecretRedactor) -> Result<PreviewDeployment, String> {
    let text = |name| optional_text(response, name).filter(|text| !text.is_empty()).map(|text| redactor.redact(&text));
    Ok(PreviewDeployment {
        status: redactor.redact(&required_text(response, "status")?),
        summary: text("summary"),
        logs: split_log_lines(response.value("logs")).iter().map(|line| redactor.redact(line)).collect(),
        created_at: text("createdAt"),
        ended_at: text("endedAt"),
        commit: response.raw_value("commit").and_then(|raw| ApiResponse::parse(raw.get().as_bytes())).map(|commit| {
            let text =
                |name| optional_text(&commit, name).filter(|text| !text.is_empty()).map(|text| redactor.redact(&text));
            PreviewCommit {
                sha: text("sha"),
                branch: text("ref"),
                message: text("message"),
                files_changed: count_changed_files(&commit),
            }
        }),
    })
}

/// Splits logs into lines: the server sends a list of texts, or one text of several lines.
fn split_log_lines(logs: Option<Value>) -> Vec<String> {
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    match logs {
        Some(Value::String(text)) => lines(&text),
        Some(Value::Array(list)) => list
            .iter()
            .flat_map(|line| match line {
                Value::String(text) => lines(text),
                other => vec![other.to_string()],
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Counts changed files: the server sends lists of names, or numbers.
fn count_changed_files(commit: &ApiResponse) -> ChangedFileCounts {
    let Some(files) = commit.raw_value("filesChanged").and_then(|raw| ApiResponse::parse(raw.get().as_bytes())) else {
        return ChangedFileCounts::default();
    };
    let count = |name| match files.value(name) {
        Some(Value::Array(list)) => Some(list.len() as u64),
        other => as_count(other),
    };
    ChangedFileCounts { added: count("added"), modified: count("modified"), removed: count("removed") }
}

/// Path of a deployment's state below `api.baseUrl`. One of its segments is replaced by the status id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StatusPath(Vec<String>);

/// Placeholder of the status id.
const STATUS_ID_PLACEHOLDER: &str = "{statusId}";
/// Placeholder of the project.
const PROJECT_ID_PLACEHOLDER: &str = "{projectId}";

impl Default for StatusPath {
    fn default() -> StatusPath {
        StatusPath(["project", "update-status", STATUS_ID_PLACEHOLDER].map(str::to_owned).into())
    }
}

impl StatusPath {
    /// Parses a path like `/project/update-status/{statusId}`; the error describes the mistake.
    pub fn parse(text: &str) -> Result<StatusPath, String> {
        let error = |why: &str| format!("{text:?} {why}: write it like /project/update-status/{STATUS_ID_PLACEHOLDER}");
        let path = text.trim().strip_prefix('/').ok_or_else(|| error("does not begin with /"))?;
        let segments: Vec<String> = path.split('/').map(str::to_owned).collect();
        if segments.iter().filter(|segment| *segment == STATUS_ID_PLACEHOLDER).count() != 1 {
            return Err(error("does not have exactly one segment {statusId}"));
        }
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
        for segment in segments
            .iter()
            .filter(|segment| ![STATUS_ID_PLACEHOLDER, PROJECT_ID_PLACEHOLDER].contains(&segment.as_str()))
        {
            if segment.is_empty() || [".", ".."].contains(&segment.as_str()) || !segment.bytes().all(plain) {
                return Err(error(&format!("has the segment {segment:?}, which is no plain name")));
            }
        }
        Ok(StatusPath(segments))
    }

    /// Returns the path for one deployment; none if the path contains the project and `project` is none.
    pub fn fill<'a>(&'a self, id: &'a str, project: Option<&'a str>) -> Option<Vec<&'a str>> {
        let fill_segment = |segment: &'a String| match segment.as_str() {
            STATUS_ID_PLACEHOLDER => Some(id),
            PROJECT_ID_PLACEHOLDER => project,
            plain => Some(plain),
        };
        self.0.iter().map(fill_segment).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(text: &str) -> ApiResponse {
        ApiResponse::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn only_success_and_failure_end_a_deployment() {
        let action = |status: &str| {
            let response = object(&format!("{{\"status\":{status:?}}}"));
            parse_deployment(&response, &SecretRedactor::default()).unwrap().next_action()
        };
        assert_eq!((action("success"), action("failure")), (DeploymentAction::Ready, DeploymentAction::Failed));
        for working in ["queued", "in_progress", "SUCCESS", "failed", "cancelled", "warming-up"] {
            assert_eq!(action(working), DeploymentAction::Poll, "{working}");
        }
    }

    #[test]
    fn deployment_requires_only_its_status() {
        let parse = |text| parse_deployment(&object(text), &SecretRedactor::default());
        let odd = r#"{"status":"queued","summary":7,"logs":"a\nb","commit":"x","endedAt":null}"#;
        let odd = parse(odd).unwrap();
        assert_eq!((odd.summary, odd.logs, odd.commit), (None, vec!["a".to_owned(), "b".to_owned()], None));
        let complete = r#"{"status":"success","logs":["a",{"b":1}],"commit":{"sha":"1","ref":"main","filesChanged":
            {"added":["x","y"],"modified":3,"removed":null}}}"#;
        let commit = parse(complete).unwrap().commit.unwrap();
        assert_eq!(commit.files_changed, ChangedFileCounts { added: Some(2), modified: Some(3), removed: None });
        assert!(parse("{}").is_err());
    }

    #[test]
    fn started_preview_has_no_required_fields_and_its_url_is_safe_to_print() {
        let parse = |text| parse_started_preview(&object(text));
        assert_eq!(parse(r#"{"previewUrl":"https://p.example/"}"#).status_id, None);
        assert_eq!(parse(r#"{"statusId":7}"#).status_id.as_deref(), Some("7"));
        for wrong in [r"{}", r#"{"previewUrl":"javascript:alert(1)"}"#, r#"{"previewUrl":7,"statusId":".."}"#] {
            assert_eq!(parse(wrong), StartedPreview { status_id: None, preview_url: None }, "{wrong}");
        }
        let hostile = parse("{\"previewUrl\":\"https://p.example/a\\u001b[2J\\u202eb\"}").preview_url.unwrap();
        assert_eq!(hostile, "https://p.example/a%1B[2J%E2%80%AEb");
    }

    #[test]
    fn status_path_has_exactly_one_status_id_and_no_dot_dot_or_query() {
        let path = StatusPath::parse("/p/{projectId}/status/{statusId}").unwrap();
        assert_eq!(path.fill("a/b", Some("7")).unwrap(), ["p", "7", "status", "a/b"]);
        assert_eq!(path.fill("a", None), None);
        assert_eq!(StatusPath::default(), StatusPath::parse("/project/update-status/{statusId}").unwrap());
        for wrong in
            ["", "x/{statusId}", "/x", "/../{statusId}", "/{statusId}/{statusId}", "/a?b/{statusId}", "//{statusId}"]
        {
            assert!(StatusPath::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn preview_url_is_http_or_https_and_status_id_is_one_path_segment() {
        let long = |n: usize| format!("https://p.example/{}", "x".repeat(n - "https://p.example/".len()));
        for (address, is_shown) in [
            ("http://p.example/", true),
            ("https://p.example/?x", true),
            (&long(8192), true),
            (&long(8193), false),
            ("ftp://p.example/", false),
            ("data:text/html,x", false),
            ("p.example", false),
            ("", false),
        ] {
            let preview = parse_started_preview(&object(&format!(r#"{{"previewUrl":"{address}","statusId":"x"}}"#)));
            assert_eq!(preview.preview_url.as_deref(), is_shown.then_some(address));
            assert_eq!(preview.status_id.as_deref(), Some("x"));
        }
        for (id, expected) in [
            (r#""a/b""#, Some("a/b")),
            ("7", Some("7")),
            (r#""...""#, Some("...")),
            (r#"".""#, None),
            (r#""""#, None),
            ("null", None),
        ] {
            let preview = parse_started_preview(&object(&format!(r#"{{"statusId":{id}}}"#)));
            assert_eq!(preview.status_id.as_deref(), expected, "{id}");
        }
        assert_eq!(["x", "", ".", ".."].map(is_path_segment), [true, false, false, false]);
    }

    #[test]
    fn deployment_texts_are_redacted_and_empty_texts_are_none() {
        let mut redactor = SecretRedactor::default();
        redactor.hide(&docwharf_base::secret::Secret::new("dwk_0123456789".to_owned()));
        let text = r#"{"status":"queued","summary":"S dwk_0123456789","logs":["L dwk_0123456789\nmore",{"x":"dwk_0123456789"},7],
            "createdAt":"1","endedAt":"2","commit":{"sha":"dwk_0123456789","ref":"R dwk_0123456789","message":"M dwk_0123456789",
            "filesChanged":{"added":4,"modified":[],"removed":["x"]}}}"#;
        let deployment = parse_deployment(&object(text), &redactor).unwrap();
        assert_eq!(deployment.logs, ["L ***", "more", r#"{"x":"***"}"#, "7"]);
        let text = |text: &str| Some(text.to_owned());
        let files_changed = ChangedFileCounts { added: Some(4), modified: Some(0), removed: Some(1) };
        let commit = PreviewCommit { sha: text("***"), branch: text("R ***"), message: text("M ***"), files_changed };
        assert_eq!((&deployment.summary, &deployment.commit), (&text("S ***"), &Some(commit)));
        assert_eq!(
            (&deployment.created_at, &deployment.ended_at, deployment.line()),
            (&text("1"), &text("2"), "queued, 4 lines of log".into())
        );
        let empty = r#"{"status":"queued","summary":"","logs":"","createdAt":"","commit":{"sha":"","filesChanged":7}}"#;
        let empty = parse_deployment(&object(empty), &redactor).unwrap();
        let commit =
            PreviewCommit { sha: None, branch: None, message: None, files_changed: ChangedFileCounts::default() };
        assert_eq!((&empty.summary, &empty.created_at, &empty.commit), (&None, &None, &Some(commit)));
        assert_eq!((empty.logs.len(), empty.line()), (0, "queued".to_owned()));
        let single_line = parse_deployment(&object(r#"{"status":"x dwk_0123456789","logs":"a"}"#), &redactor).unwrap();
        assert_eq!((single_line.commit.is_none(), single_line.line()), (true, "x ***, 1 line of log".to_owned()));
    }

    #[test]
    fn status_path_consists_of_unreserved_characters_and_placeholders() {
        for (text, segments) in [
            ("/{statusId}", &["7"][..]),
            (" /a-b_c.d~e/{statusId} ", &["a-b_c.d~e", "7"]),
            ("/.../{statusId}/x", &["...", "7", "x"]),
            ("/{projectId}/{projectId}/{statusId}", &["p", "p", "7"]),
        ] {
            assert_eq!(StatusPath::parse(text).unwrap().fill("7", Some("p")).unwrap(), segments, "{text}");
        }
        for wrong in [
            "/",
            "/{statusId}/",
            "/./{statusId}",
            "/{statusId}/..",
            "/x{statusId}",
            "/%41/{statusId}",
            "/a b/{statusId}",
            "/ä/{statusId}",
        ] {
            assert!(StatusPath::parse(wrong).is_err(), "{wrong}");
        }
        assert_eq!(StatusPath::default().fill("7", None).unwrap(), ["project", "update-status", "7"]);
    }
}
