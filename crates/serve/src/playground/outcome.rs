//! The outcomes of requests to the playground, by which they are counted.

use crate::outcome_counts::CountLabel;

/// The outcome of a request to the playground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaygroundOutcome {
    /// The target has answered, with whatever status.
    Answered,
    /// The request is malformed, too large, too slow, of another media type, or not from a page of the site itself
    /// (400, 403, 408, 413, 415).
    Refused,
    /// A rule of `playground.allow`, or the address of the target, does not permit the request (403).
    NotAllowed,
    /// The client has sent too many requests (429), or there are too many at a time (503).
    Limited,
    /// The target cannot be reached, or has sent no usable response (502).
    Failed,
    /// The target has not answered in time (504).
    TimedOut,
}

impl CountLabel for PlaygroundOutcome {
    const KEY: &'static str = "outcome";
    const ALL: &'static [PlaygroundOutcome] = &[
        PlaygroundOutcome::Answered,
        PlaygroundOutcome::Refused,
        PlaygroundOutcome::NotAllowed,
        PlaygroundOutcome::Limited,
        PlaygroundOutcome::Failed,
        PlaygroundOutcome::TimedOut,
    ];

    fn name(self) -> &'static str {
        match self {
            PlaygroundOutcome::Answered => "answered",
            PlaygroundOutcome::Refused => "refused",
            PlaygroundOutcome::NotAllowed => "not_allowed",
            PlaygroundOutcome::Limited => "limited",
            PlaygroundOutcome::Failed => "failed",
            PlaygroundOutcome::TimedOut => "timed_out",
        }
    }
}
