//! The server on the standard streams of this process, for a client that has started it.

use std::time::Duration;

use rmcp::service::ServerInitializeError;
use rmcp::transport::stdio_pipes;

use super::line_transport;
use super::server::McpServer;

/// The time in which a client that has closed standard input must read the last lines.
const LAST_LINES_TIMEOUT: Duration = Duration::from_secs(5);

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
    let (transport, writer) = line_transport::start(input, output);
    let result = match rmcp::serve_server(server, transport).await {
        Ok(service) => service.waiting().await.map(drop).map_err(McpStdioError::Failed),
        // The client has ended, perhaps because it only wanted to know whether the server starts.
        Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
        Err(error) => Err(McpStdioError::Begin(Box::new(error))),
    };
    // A client that has ended reads nothing more.
    let _ = tokio::time::timeout(LAST_LINES_TIMEOUT, writer).await;
    result
}
