//! Serving a site to readers: addresses, content, headers, connections, protocols, access.

#![allow(clippy::disallowed_methods)] // it connects to servers of its own

mod access;
mod addresses;
mod ask;
mod codings;
mod connections;
mod content;
mod csp;
mod http1;
mod http2;
mod insertion;
mod markdown;
mod mcp;
mod next;
mod playground;
mod protocols;
mod ranges;
mod redirects;
mod search;
mod tls;
