//! Counts of the requests for Markdown and `llms.txt` that docwharf makes: by endpoint and outcome.

use std::sync::atomic::{AtomicU64, Ordering};

use http::StatusCode;

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

impl MarkdownEndpoint {
    /// All endpoints.
    pub const ALL: [MarkdownEndpoint; 4] =
        [MarkdownEndpoint::Page, MarkdownEndpoint::NegotiatedPage, MarkdownEndpoint::Llms, MarkdownEndpoint::LlmsFull];

    /// The name of the endpoint in metrics.
    pub fn name(self) -> &'static str {
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

impl MarkdownOutcome {
    /// All outcomes.
    pub const ALL: [MarkdownOutcome; 4] =
        [MarkdownOutcome::Ok, MarkdownOutcome::NotModified, MarkdownOutcome::Refused, MarkdownOutcome::Busy];

    /// The name of the outcome in metrics.
    pub fn name(self) -> &'static str {
        match self {
            MarkdownOutcome::Ok => "ok",
            MarkdownOutcome::NotModified => "not_modified",
            MarkdownOutcome::Refused => "refused",
            MarkdownOutcome::Busy => "busy",
        }
    }

    /// Returns the outcome that a status stands for.
    fn of_status(status: StatusCode) -> MarkdownOutcome {
        match status {
            StatusCode::NOT_MODIFIED => MarkdownOutcome::NotModified,
            status if status.is_client_error() => MarkdownOutcome::Refused,
            status if status.is_server_error() => MarkdownOutcome::Busy,
            _ => MarkdownOutcome::Ok,
        }
    }
}

/// The counts at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MarkdownStatistics([[u64; MarkdownOutcome::ALL.len()]; MarkdownEndpoint::ALL.len()]);

impl MarkdownStatistics {
    /// Returns the number of requests to this endpoint with this outcome.
    pub fn count(&self, endpoint: MarkdownEndpoint, outcome: MarkdownOutcome) -> u64 {
        self.0[endpoint as usize][outcome as usize]
    }
}

/// The counters of a site.
#[derive(Debug, Default)]
pub(super) struct MarkdownCounters([[AtomicU64; MarkdownOutcome::ALL.len()]; MarkdownEndpoint::ALL.len()]);

impl MarkdownCounters {
    /// Counts a response with this status.
    pub(super) fn count(&self, endpoint: MarkdownEndpoint, status: StatusCode) {
        self.0[endpoint as usize][MarkdownOutcome::of_status(status) as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts.
    pub(super) fn read(&self) -> MarkdownStatistics {
        MarkdownStatistics(self.0.each_ref().map(|row| row.each_ref().map(|count| count.load(Ordering::Relaxed))))
    }
}
