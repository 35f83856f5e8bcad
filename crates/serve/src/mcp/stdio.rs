//! The server on the standard streams of this process, for a client that has started it.

use rmcp::service::{RoleServer, ServerInitializeError};
use rmcp::transport::async_rw::AsyncRwTransport;
use rmcp::transport::stdio_pipes;

use super::server::McpServer;

/// The maximum length of a message, in bytes. Longer ones are dropped.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The reason why the server on the standard streams has ended before its client has closed them.
#[derive(Debug, thiserror::Error)]
pub enum McpStdioError {
    /// The first messages were not those of the protocol, or could not be answered.
    #[error("cannot begin the session with the client")]
    Begin(#[source] Box<ServerInitializeError>),
    /// The task of the server has failed.
    #[error("the session with the client has failed")]
    Failed(#[source] tokio::task::JoinError),
}

/// Answers messages from standard input on standard output, one in a line, until the client closes standard input.
/// Nothing else may be written to standard output.
pub async fn serve_stdio(server: McpServer) -> Result<(), McpStdioError> {
    let (input, output) = stdio_pipes();
    let transport = AsyncRwTransport::<RoleServer, _, _>::new(input, output).with_max_line_length(MAX_LINE_BYTES);
    let service = match rmcp::serve_server(server, transport).await {
        Ok(service) => service,
        // The client has ended, perhaps because it only wanted to know whether the server starts.
        Err(ServerInitializeError::ConnectionClosed(_)) => return Ok(()),
        Err(error) => return Err(McpStdioError::Begin(Box::new(error))),
    };
    service.waiting().await.map(drop).map_err(McpStdioError::Failed)
}
