//! The endpoints of the Markdown and the `llms.txt` that docwharf makes, and the outcomes of requests to them: the
//! labels of their counts.

use http::StatusCode;

use super::outcome_counts::{CountLabel, OutcomeCounts};

/// An endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkdownEndpoint {
    /// The Markdown of a page at its own address, which ends with `.md`.
    Page,
    /// The Markdown of a page at the address of the page, for a client that prefers it.
    NegotiatedPage,
    /// `llms.txt`.
    Llms,
    /// `llms-full.txt`.
    LlmsFull,
}

impl CountLabel for MarkdownEndpoint {
    const KEY: &'static str = "endpoint";
    const ALL: &'static [MarkdownEndpoint] =
        &[MarkdownEndpoint::Page, MarkdownEndpoint::NegotiatedPage, MarkdownEndpoint::Llms, MarkdownEndpoint::LlmsFull];

    fn name(self) -> &'static str {
        match self {
            MarkdownEndpoint::Page => "page",
            MarkdownEndpoint::NegotiatedPage => "negotiated_page",
            MarkdownEndpoint::Llms => "llms",
            MarkdownEndpoint::LlmsFull => "llms_full",
        }
    }
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MarkdownOutcome {
    /// It was answered, with the whole or a range.
    Ok,
    /// The client has it already: status 304.
    NotModified,
    /// A precondition has failed, or the range does not exist: status 412 or 416.
    Refused,
    /// It is not made yet, or there was no time or no memory for it: status 503.
    Busy,
}

impl CountLabel for MarkdownOutcome {
    const KEY: &'static str = "outcome";
    const ALL: &'static [MarkdownOutcome] =
        &[MarkdownOutcome::Ok, MarkdownOutcome::NotModified, MarkdownOutcome::Refused, MarkdownOutcome::Busy];

    fn name(self) -> &'static str {
        match self {
            MarkdownOutcome::Ok => "ok",
            MarkdownOutcome::NotModified => "not_modified",
            MarkdownOutcome::Refused => "refused",
            MarkdownOutcome::Busy => "busy",
        }
    }
}

impl MarkdownOutcome {
    /// Returns the outcome that a status stands for.
    pub(super) fn of_status(status: StatusCode) -> MarkdownOutcome {
        match status {
            StatusCode::NOT_MODIFIED => MarkdownOutcome::NotModified,
            status if status.is_client_error() => MarkdownOutcome::Refused,
            status if status.is_server_error() => MarkdownOutcome::Busy,
            _ => MarkdownOutcome::Ok,
        }
    }
}

/// The counts of requests by endpoint and outcome.
pub type MarkdownCounts = OutcomeCounts<MarkdownOutcome, MarkdownEndpoint>;
