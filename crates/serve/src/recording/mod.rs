//! Records what readers do while a site is served: views of pages, searches, and clicks on their results.
//!
//! Everything is held in bounded memory until the program takes it ([`Recorder::take`]) and stores it. Nothing of it
//! identifies a reader: addresses are only compared with a limit (`request_rate`), and neither a User-Agent nor the
//! path of a referrer is kept.
//!
//! Views are counted by the server: each GET of a page that is answered with 200 or 304, also from the response cache
//! ([`ViewedContent`]). Searches come from the search page and from the box, which sends events
//! ([`event_batch`], [`events_handler`](super::events_handler)).

pub mod agents;
pub(crate) mod event_batch;
pub(crate) mod recorded_fields;
mod recorder;
#[cfg(test)]
mod tests;
mod view_counts;
mod viewed_content;

pub(crate) use recorder::RecordedRequest;
pub use recorder::{Recorder, RecordingSettings};
pub(crate) use viewed_content::ViewedContent;
