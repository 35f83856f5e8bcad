//! The outcomes of questions, by which they are counted.

use crate::outcome_counts::CountLabel;

/// The outcome of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskOutcome {
    /// The model has answered with citations.
    Answered,
    /// The search found nothing, so the model was not asked.
    NothingFound,
    /// The answer had no citation and was withheld.
    Uncited,
    /// The request was malformed or too large: status 400, 408 or 413.
    Invalid,
    /// The request came from another site, or for another host: status 403.
    Forbidden,
    /// The client has asked too often, or all clients have: status 429.
    RateLimited,
    /// Too many questions were being answered: status 503.
    Busy,
    /// There was no index yet: status 503.
    Indexing,
    /// The endpoint has failed or sent no usable answer: status 502.
    EndpointFailed,
    /// The endpoint did not answer in time: status 504.
    TimedOut,
    /// The reader has disconnected before the end.
    Cancelled,
}

impl CountLabel for AskOutcome {
    const KEY: &'static str = "outcome";
    const ALL: &'static [AskOutcome] = &[
        AskOutcome::Answered,
        AskOutcome::NothingFound,
        AskOutcome::Uncited,
        AskOutcome::Invalid,
        AskOutcome::Forbidden,
        AskOutcome::RateLimited,
        AskOutcome::Busy,
        AskOutcome::Indexing,
        AskOutcome::EndpointFailed,
        AskOutcome::TimedOut,
        AskOutcome::Cancelled,
    ];

    fn name(self) -> &'static str {
        match self {
            AskOutcome::Answered => "answered",
            AskOutcome::NothingFound => "nothing_found",
            AskOutcome::Uncited => "uncited",
            AskOutcome::Invalid => "invalid",
            AskOutcome::Forbidden => "forbidden",
            AskOutcome::RateLimited => "rate_limited",
            AskOutcome::Busy => "busy",
            AskOutcome::Indexing => "indexing",
            AskOutcome::EndpointFailed => "endpoint_failed",
            AskOutcome::TimedOut => "timed_out",
            AskOutcome::Cancelled => "cancelled",
        }
    }
}
