//! Messages to the MCP server of a site.

use serde_json::{Value, json};

/// The path of the MCP server below the base path.
pub const MCP_PATH: &str = "/_docwharf/mcp";

/// Returns `_meta` of the parameters of a request of 2026-07-28.
pub fn modern_metadata() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}
