//! HTTP server of docwharf: answers HTTP/1.1 and HTTP/2 requests from one sealed version of a site, with or without
//! TLS.
//!
//! A [`Site`] holds the version that is served and all other state that responses depend on: rules, access control,
//! policies, precompressed files. Each of them can be replaced while the server runs; a request uses the version that
//! was served when it began. [`listener`] accepts connections and passes their requests to the site. No request reaches
//! the file system: the body of a file comes from a memory-mapped sealed file, or from the cache of inflated files.
//!
//! # Path of a request
//!
//! The client is identified ([`peer`]) and checked against the access rules ([`access`]). The request is
//! then checked as HTTP requires (`request_checks`), its path is resolved to a file or a rule
//! ([`docwharf_site::lookup`], [`docwharf_site::rules`]), and its preconditions are evaluated ([`conditional`]). The
//! form ([`negotiate`], [`precompressed`]) and the byte ranges ([`byte_range`], [`multipart`]) of the response are
//! chosen, and the body is created ([`body`]). Header fields that every response has are added in stages
//! ([`security_headers`], [`csp_header`]). The access log gets a line when the body has been sent ([`logged_body`],
//! [`access_log_line`], [`access_log`]). The heads of responses to repeated requests come from `response_cache`.
//!
//! Requests to the [`search`] of the site are answered by `search_handler`; their queries run on threads of their own.
//! `post_resources` lists the resources that answer POST requests; [`request_body`] reads their bodies. [`recording`]
//! counts what readers do, and `events_handler` receives the events of the search box.
//!
//! The transport layer has the serving threads, the connections, their protocols ([`http1`] for HTTP/1.1, [`http2`]
//! for HTTP/2) and TLS ([`tls`]).
//!
//! # Example
//!
//! ```no_run
//! use std::io;
//!
//! use docwharf_serve::listener::{self, HttpListener};
//! use docwharf_serve::{Site, SiteSettings};
//! use docwharf_site::sealed_version::SealedVersion;
//!
//! /// Serves one version until the process ends.
//! async fn run(version: SealedVersion) -> io::Result<()> {
//!     let site = Site::new(SiteSettings::default());
//!     site.set_version(version);
//!     let socket = listener::bind(([127, 0, 0, 1], 8080).into())?;
//!     let (_stop, stopped) = tokio::sync::watch::channel(false);
//!     listener::serve(vec![HttpListener::from(socket)], site.into(), stopped).await
//! }
//! ```

pub mod access;
pub mod access_log;
pub mod access_log_line;
#[cfg(test)]
mod access_tests;
mod ask;
mod ask_handler;
mod assistant_settings;
pub mod body;
pub mod body_chunk;
mod built_in_resource;
pub mod byte_range;
pub mod conditional;
mod connection;
mod connection_deadlines;
mod connection_tracker;
mod content_changes;
mod converted_pages;
pub mod csp_header;
mod damage_reports;
mod decoder_pool;
mod entity_tag;
mod events_handler;
mod file_body;
mod file_response;
pub mod fixed_responses;
pub mod handler;
mod head_timer;
mod header_pool;
mod header_rules;
pub mod held_bytes;
pub mod host_field;
pub mod http1;
pub mod http2;
mod inflated_file_cache;
pub mod inflating_body;
pub mod insertion;
pub mod key_pair;
mod lazy_stream;
pub mod listener;
pub mod logged_body;
mod markdown_handler;
mod markdown_links;
mod markdown_statistics;
pub mod mcp;
mod mcp_handler;
mod mcp_state;
mod mcp_statistics;
pub mod multipart;
mod named_host;
pub mod negotiate;
mod outcome_counts;
mod own_origin;
pub mod page_markdown;
pub mod peer;
mod peer_progress;
mod playground;
mod playground_handler;
mod playground_settings;
mod post_resources;
pub mod precompressed;
mod reclaim;
pub mod recording;
mod replay_stream;
mod representation;
pub mod request_body;
mod request_checks;
mod request_context;
mod request_rate;
mod request_step;
mod respond;
mod response_cache;
mod response_headers;
pub mod retained_versions;
pub mod search;
mod search_handler;
pub mod security_headers;
pub mod service;
mod serving_threads;
mod site;
mod site_assistant;
mod site_insertion;
mod site_recording;
mod site_search;
mod site_settings;
mod stall_timeout;
mod streamed_body;
#[cfg(test)]
mod test_versions;
pub mod tls;
mod turn;
pub mod watchdog;

pub use ask::AskOutcome;
pub use assistant_settings::{AskSettings, AssistantSettings};
pub use converted_pages::SiteMarkdownSource;
pub use markdown_statistics::{MarkdownCounts, MarkdownEndpoint, MarkdownOutcome};
pub use named_host::HostList;
pub use outcome_counts::{CountLabel, OutcomeCounts};
pub use playground::PlaygroundOutcome;
pub use playground_settings::{AllowedTarget, PlaygroundSettings};
pub use site::{OpeningGuard, STATUS_CLASSES, Site};
pub use site_settings::{Http2Server, SiteSettings};
