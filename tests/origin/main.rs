//! The origin: its management API, sources of sites, previews, and limits of organizations.

mod crawl;
mod export_api;
mod git;
mod management_api;
mod previews;
mod organizations {
    mod all_limits_at_once;
    mod data;
    mod routes;
}
