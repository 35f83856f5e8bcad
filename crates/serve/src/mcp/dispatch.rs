//! Answers one request that was received over HTTP. There are no sessions: each request has a service of its own, which
//! ends with its answer.

use http::StatusCode;
use rmcp::model::{ClientJsonRpcMessage, ErrorCode, ErrorData, JsonRpcError, ServerJsonRpcMessage};
use rmcp::service::{RoleServer, serve_directly};
use rmcp::transport::OneshotTransport;

use super::http_message::CheckedRequest;
use super::server::McpServer;

/// Answers a request: returns the status and the body of the response. When the future is dropped, the work for the
/// request is cancelled.
pub(crate) async fn answer_request(server: McpServer, request: CheckedRequest) -> (StatusCode, Vec<u8>) {
    let CheckedRequest { request, client, has_error_status } = request;
    let id = request.id.clone();
    let (transport, mut receiver) = OneshotTransport::<RoleServer>::new(ClientJsonRpcMessage::Request(request));
    // It ends the service when it is dropped.
    let _service = serve_directly(server, transport, Some(client));
    let answer = receiver
        .recv()
        .await
        .filter(|message| matches!(message, ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_)));
    let answer = answer.unwrap_or_else(|| {
        let error = ErrorData::internal_error("the server has no answer", None);
        ServerJsonRpcMessage::Error(JsonRpcError::new(Some(id), error))
    });
    let status = if has_error_status { error_status(&answer) } else { StatusCode::OK };
    match serde_json::to_vec(&answer) {
        Ok(body) => (status, body),
        Err(_) => (StatusCode::INTERNAL_SERVER_ERROR, Vec::new()),
    }
}

/// Returns the status of an answer of 2026-07-28.
fn error_status(answer: &ServerJsonRpcMessage) -> StatusCode {
    let ServerJsonRpcMessage::Error(error) = answer else { return StatusCode::OK };
    match error.error.code {
        ErrorCode::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        ErrorCode::UNSUPPORTED_PROTOCOL_VERSION
        | ErrorCode::MISSING_REQUIRED_CLIENT_CAPABILITY
        | ErrorCode::HEADER_MISMATCH => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}
