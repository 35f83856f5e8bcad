//! The origin: its management API, sources of sites, previews, and limits of organizations.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own

mod air_gapped;
mod crawl;
mod export_api;
mod git;
mod management_api;
mod previews;
mod organizations {
    mod all_limits_at_once;
    #[cfg(feature = "analytics")]
    mod analytics;
    mod data;
    mod routes;
}
