//! Serving a site to readers: addresses, content, headers, connections, protocols, access.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own

mod access;
mod addresses;
mod ask;
mod assistant_access;
mod codings;
mod connections;
mod content;
mod csp;
mod http1;
mod http2;
mod injected_instructions;
mod insertion;
mod markdown;
mod mcp;
mod mcp_limits;
mod next;
mod playground;
mod playground_limits;
mod post_bodies;
mod protocols;
mod ranges;
mod redirects;
mod search;
mod tls;
