//! Records what readers do while a site is served: views of pages, searches, and clicks on their results.
//!
//! Everything is held in bounded memory until the program takes it ([`Recorder::take`]) and stores it. Nothing of it
//! identifies a reader: addresses are only compared with a limit ([`request_rate`]), and neither a User-Agent nor the
//! path of a referrer is kept.
//!
//! Views are counted by the server: each GET of a page that is answered with 200 or 304, also from the response cache
//! ([`ViewedContent`]). Searches come from the search page and from the box, which sends events
//! ([`event_batch`], [`events_handler`](super::events_handler)).

pub mod agents;
pub(crate) mod event_batch;
pub(crate) mod recorded_fields;
mod recorder;
pub(crate) mod request_body;
mod request_rate;
#[cfg(test)]
mod tests;
mod view_counts;

pub(crate) use recorder::RecordedRequest;
pub use recorder::{Recorder, RecordingSettings};

/// The page that counts as viewed when the response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ViewedContent {
    /// Nothing: the response is no page of the served version.
    #[default]
    Nothing,
    /// The page with this file of the served version.
    Page(u32),
    /// The Markdown of the page with this file, which agents read in its place.
    Markdown(u32),
}
