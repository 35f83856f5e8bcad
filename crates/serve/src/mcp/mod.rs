//! A server of the Model Context Protocol (MCP), by which coding agents search and read a site.
//!
//! [`McpServer`] answers the messages of one version of a site. `rmcp` parses and dispatches them; it has no sessions
//! here. `mcp_handler` receives messages over HTTP and checks everything that belongs to HTTP ([`http_message`]);
//! [`serve_stdio`] receives them from a client that has started this process.
//!
//! Pages are untrusted: they appear only as quoted content of answers. The tools ([`tools`]) are constant. Arguments
//! are written by a model ([`arguments`]), so a mistake in them is answered with advice and not with an error of the
//! protocol. All work that depends on pages runs on the threads of queries ([`site_reader`]).

mod arguments;
mod cursor;
pub(crate) mod dispatch;
pub(crate) mod http_message;
mod line_transport;
mod page_address;
mod page_part;
mod server;
mod site_reader;
mod stdio;
mod tools;

#[cfg(test)]
mod limit_tests;
#[cfg(test)]
mod tests;

pub use crate::mcp_statistics::{McpCounts, McpOperation, McpOutcome};
pub use server::McpServer;
pub use stdio::{McpStdioError, serve_stdio};
