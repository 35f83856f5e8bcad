//! The search of a site: its settings and its state, the threads of queries, and the files of the search box.
//!
//! This module knows neither requests nor [`Site`](crate::Site), which has one `SearchState`. `search_handler` answers
//! requests with it, and `site_search` has the functions by which the program changes it.
//!
//! A query never runs on a serving thread. `query_threads` has threads for all sites of the process: at most
//! `search.parallel` of them run a query, a bounded number of queries wait, and each of them waits and runs for a
//! bounded time. The serving thread gets a future, so that the connection waits and the thread does not.

mod answer;
mod assets;
mod parameters;
mod query_threads;
mod resource;
mod settings;
mod state;
mod statistics;
#[cfg(test)]
pub(crate) mod test_indexes;

pub use settings::{InjectMode, SearchBoxSettings, SearchSettings};
pub use statistics::{QUERY_DURATION_BOUNDS, QueryOutcome, QueryStatistics};

pub(crate) use answer::{
    AnswerFormat, SearchAnswer, SearchAudience, SearchQuery, empty_response, render_answer, render_search_page,
};
pub(crate) use assets::SearchAsset;
pub(crate) use parameters::{
    InvalidParameters, MAX_SECTION_BYTES, SearchParameters, may_be_language_tag, section_in_site,
};
pub(crate) use query_threads::{PendingResult, QueryThreads};
#[cfg(test)]
pub(crate) use resource::SEARCH_RESOURCES;
pub(crate) use resource::SearchResource;
pub(crate) use state::{MissingIndex, PendingAnswer, SearchFailure, SearchSettingsInForce, SearchState};
