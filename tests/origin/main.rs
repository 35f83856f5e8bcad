//! The origin: its management API, sources of sites, previews, and limits of organizations.

mod crawl;
mod export_api;
mod git;
mod management_api;
mod previews;
mod tenants {
    mod data;
    mod everything;
    mod routes;
}
