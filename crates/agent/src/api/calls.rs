//! The calls of the management API: whether each may be repeated, and the advice to print when it fails.

use docwharf_base::net::request_error::{RequestError, RequestErrorCause};
use docwharf_base::net::retry::{CallKind, MAX_SYNC_RETRY_AFTER};

/// A call of the management API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApiCall {
    /// Start an export job.
    StartExport,
    /// Poll the state of an export job.
    PollExport,
    /// Request a link to the bundle of an export job.
    RequestExportLink,
    /// Start a preview, or deploy it again.
    Preview,
    /// Poll the state of a preview's deployment.
    Deployment,
    /// Request a page of search analytics.
    Searches,
    /// Request views of pages.
    Views,
    /// Request counts of views by a key.
    PageCounts,
}

impl ApiCall {
    /// Returns the kind of call, which decides whether it may be repeated.
    pub fn kind(self) -> CallKind {
        match self {
            ApiCall::StartExport | ApiCall::Preview => CallKind::Start,
            ApiCall::PollExport | ApiCall::Deployment | ApiCall::Searches | ApiCall::Views | ApiCall::PageCounts => {
                CallKind::Read
            }
            ApiCall::RequestExportLink => CallKind::Link,
        }
    }

    /// Returns advice for a person about this failure, to be appended to its message; empty if there is none.
    pub fn advice(self, request_error: &RequestError) -> String {
        let advice = match request_error.cause {
            RequestErrorCause::Status(401) => unauthorized_advice(request_error),
            RequestErrorCause::Status(403) => self.forbidden_advice(request_error),
            RequestErrorCause::Status(400 | 422) => match self {
                ApiCall::Preview => "check the branch and api.projectId",
                ApiCall::Searches => "check the dates, --limit, --cursor and api.projectId",
                ApiCall::Views | ApiCall::PageCounts => "check the dates, --limit, --offset and api.projectId",
                ApiCall::Deployment => "check the status id and api.statusPath",
                ApiCall::StartExport | ApiCall::PollExport | ApiCall::RequestExportLink => {
                    "check api.domain and staticExport.version"
                }
            },
            RequestErrorCause::Status(404) => match self {
                ApiCall::StartExport => "check api.baseUrl and api.domain",
                ApiCall::PollExport | ApiCall::RequestExportLink => {
                    "there is no such job any more, or not at this api.baseUrl"
                }
                ApiCall::Preview | ApiCall::Searches => "check api.baseUrl and api.projectId",
                ApiCall::Views => "check api.baseUrl and api.projectId; not every server counts views of pages",
                ApiCall::PageCounts => "check api.baseUrl and api.projectId; only servers of docwharf have such counts",
                ApiCall::Deployment => "there is no such deployment, or its state is at another api.statusPath",
            },
            RequestErrorCause::Status(409) => "the upstream is not in the expected state; try again later",
            _ if request_error.retry_after.is_some_and(|wait| wait > MAX_SYNC_RETRY_AFTER) => {
                "try again after that time"
            }
            RequestErrorCause::Status(429) => match self {
                ApiCall::Preview => "an organization may start 5 previews a minute: try again later",
                ApiCall::Searches | ApiCall::Views | ApiCall::PageCounts => {
                    "an organization may request analytics 100 times an hour: try again later"
                }
                _ => "too many requests: try again later",
            },
            RequestErrorCause::NotConnected => "check api.baseUrl, the network and proxies",
            RequestErrorCause::Unreadable => {
                "the server at api.baseUrl did not return a response of the management API"
            }
            RequestErrorCause::NoUsableResponse | RequestErrorCause::Status(500..) => {
                "the upstream has trouble; try again later"
            }
            RequestErrorCause::Tls
            | RequestErrorCause::RefusedRedirect
            | RequestErrorCause::NotPermitted
            | RequestErrorCause::TooLarge
            | RequestErrorCause::Disk
            | RequestErrorCause::Status(_) => return String::new(),
        };
        if advice.is_empty() { String::new() } else { format!("; {advice}") }
    }

    fn forbidden_advice(self, request_error: &RequestError) -> &'static str {
        let message = request_error.to_string().to_ascii_lowercase();
        let contains_any = |words: &[&str]| words.iter().any(|word| message.contains(word));
        let is_preview = matches!(self, ApiCall::Preview | ApiCall::Deployment);
        if contains_any(&["plan", "enterprise", "upgrade"]) {
            return match self {
                _ if is_preview => "previews need another plan: ask the vendor",
                ApiCall::Searches => "search analytics need another plan: ask the vendor",
                ApiCall::Views | ApiCall::PageCounts => "views of pages need another plan: ask the vendor",
                _ => "static export needs another plan: ask the vendor",
            };
        }
        if contains_any(&["read-only", "read only", "readonly", "scope", "permission", "write"]) {
            return match self {
                _ if is_preview => "the key may not do this: make one that may start previews",
                ApiCall::Searches | ApiCall::Views | ApiCall::PageCounts => {
                    "the key may not do this: make one that may read analytics"
                }
                _ => "the key may not do this: make one that may start exports",
            };
        }
        if contains_any(&["address", "allowlist", "allow list", "whitelist", " ip "]) {
            return "this machine's address is not allowed: have it added to the list";
        }
        match self {
            ApiCall::StartExport => {
                "the plan may lack static export, the key may be read-only, or this address is not allowed"
            }
            ApiCall::Preview => "the plan may lack previews, the key may be read-only, or this address is not allowed",
            _ => "the key may not do this, or this address is not allowed",
        }
    }
}

/// Returns the advice for a 401, without the part that the upstream's message already contains.
fn unauthorized_advice(request_error: &RequestError) -> &'static str {
    let message = request_error.to_string().to_ascii_lowercase();
    let contains_any = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if contains_any(&["new one", "new key", "another key"]) {
        return "";
    }
    if contains_any(&["key"]) && contains_any(&["wrong", "invalid", "revoked", "expired", "unknown"]) {
        return "put a valid one in its place";
    }
    "the key is wrong, revoked or has expired: put a valid one in its place"
}

#[cfg(test)]
mod tests {
    use super::*;

    // Regression: the advice after a 401 repeated what the upstream's message had already said about the key.
    #[test]
    fn key_advice_does_not_repeat_the_message_of_the_api() {
        for (message, advice) in [
            ("401 Unauthorized", "; the key is wrong, revoked or has expired: put a valid one in its place"),
            ("401 Unauthorized: Invalid API key", "; put a valid one in its place"),
            ("401 Unauthorized: this key is wrong, revoked or over; ask for a new one", ""),
        ] {
            assert_eq!(
                ApiCall::StartExport.advice(&RequestError::new(RequestErrorCause::Status(401), message)),
                advice,
                "{message}"
            );
        }
    }

    const ALL: [ApiCall; 8] = [
        ApiCall::StartExport,
        ApiCall::PollExport,
        ApiCall::RequestExportLink,
        ApiCall::Preview,
        ApiCall::Deployment,
        ApiCall::Searches,
        ApiCall::Views,
        ApiCall::PageCounts,
    ];

    #[test]
    fn each_api_call_has_its_retry_kind() {
        const READ: CallKind = CallKind::Read;
        let calls = [CallKind::Start, READ, CallKind::Link, CallKind::Start, READ, READ, READ, READ];
        assert_eq!(ALL.map(ApiCall::kind), calls);
    }

    /// Checks the advice of all calls for one failure: a part of each, in the order of [`ALL`].
    fn assert_advice(request_error: &RequestError, parts: [&str; 8]) {
        for (call, part) in ALL.into_iter().zip(parts) {
            let advice = call.advice(request_error);
            let is_expected =
                if part.is_empty() { advice.is_empty() } else { advice.starts_with("; ") && advice.contains(part) };
            assert!(is_expected, "{call:?} {request_error}: {advice:?} has no {part:?}");
        }
    }

    #[test]
    fn each_failed_api_call_has_advice_about_the_probable_cause() {
        let status = |status, words: &str| RequestError::new(RequestErrorCause::Status(status), words);
        let invalid =
            ["api.domain", "api.domain", "api.domain", "branch", "statusPath", "--cursor", "--offset", "--offset"];
        let not_found = [
            "api.domain",
            "no such job",
            "no such job",
            "projectId",
            "no such deployment",
            "projectId",
            "not every server",
            "only servers of docwharf",
        ];
        let too_many =
            ["too many", "too many", "too many", "5 previews", "too many", "100 times", "100 times", "100 times"];
        for (code, parts) in [
            (400, invalid),
            (422, invalid),
            (404, not_found),
            (409, ["expected state"; 8]),
            (429, too_many),
            (500, ["has trouble"; 8]),
            (599, ["has trouble"; 8]),
            (402, [""; 8]),
            (405, [""; 8]),
        ] {
            assert_advice(&status(code, "x"), parts);
        }
        for (words, parts) in [
            (
                "needs the Enterprise plan",
                [
                    "export need",
                    "export need",
                    "export need",
                    "previews need",
                    "previews need",
                    "search analytics need",
                    "views of pages need",
                    "views of pages need",
                ],
            ),
            (
                "the key is READ-ONLY",
                [
                    "start exports",
                    "start exports",
                    "start exports",
                    "start previews",
                    "start previews",
                    "read analytics",
                    "read analytics",
                    "read analytics",
                ],
            ),
            ("your IP 127.0.0.1 is not on the allowlist", ["address is not allowed: have it added"; 8]),
            (
                "no",
                [
                    "static export, the key",
                    "the key may not",
                    "the key may not",
                    "previews, the key",
                    "the key may not",
                    "the key may not",
                    "the key may not",
                    "the key may not",
                ],
            ),
        ] {
            assert_advice(&status(403, words), parts);
        }
        for (cause, part) in [
            (RequestErrorCause::NotConnected, "proxies"),
            (RequestErrorCause::Unreadable, "did not return a response"),
            (RequestErrorCause::NoUsableResponse, "has trouble"),
            (RequestErrorCause::Tls, ""),
            (RequestErrorCause::RefusedRedirect, ""),
            (RequestErrorCause::TooLarge, ""),
            (RequestErrorCause::Disk, ""),
        ] {
            assert_advice(&RequestError::new(cause, "x"), [part; 8]);
        }
        for (code, wait, part) in
            [(503, 60, "has trouble"), (503, 61, "try again after that time"), (409, 61, "expected state")]
        {
            let mut request_error = status(code, "x");
            request_error.retry_after = Some(std::time::Duration::from_secs(wait));
            assert_advice(&request_error, [part; 8]);
        }
    }
}
