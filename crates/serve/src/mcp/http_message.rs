//! Checks a message that was received over HTTP against its header fields, as the transport "Streamable HTTP" of the
//! protocol requires. Pure.
//!
//! Since 2026-07-28 each request says in its own `_meta` which version it uses, and repeats version, method and the
//! name of what is called in header fields, so that proxies need not parse bodies. A difference would let a request
//! pass a proxy as another one, so it is refused. Earlier versions begin with `initialize` and name the version in a
//! field only.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use rmcp::model::{
    ClientCapabilities, ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, GetMeta, Implementation,
    InitializeRequestParams, JsonRpcError, JsonRpcRequest, ProtocolVersion, RequestId,
};
use serde_json::Value;

use super::server::SUPPORTED_VERSIONS;

const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// The marks around a field value in Base64, which is used for names that are not visible ASCII.
const BASE64_MARKS: (&str, &str) = ("=?base64?", "?=");
/// The methods whose requests repeat a parameter in `Mcp-Name`, with that parameter.
const NAME_PARAMETERS: [(&str, &str); 5] = [
    ("tools/call", "name"),
    ("prompts/get", "name"),
    ("resources/read", "uri"),
    ("resources/subscribe", "uri"),
    ("resources/unsubscribe", "uri"),
];

/// The value of a header field that may occur once.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldText {
    Absent,
    Value(String),
    /// It occurs more than once, or is not visible ASCII.
    Invalid,
}

impl FieldText {
    fn read(headers: &HeaderMap, name: &HeaderName) -> FieldText {
        let mut values = headers.get_all(name).iter();
        match (values.next().map(HeaderValue::to_str), values.next()) {
            (None, _) => FieldText::Absent,
            (Some(Ok(value)), None) => FieldText::Value(value.to_owned()),
            _ => FieldText::Invalid,
        }
    }
}

/// The header fields of the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct McpHeaders {
    version: FieldText,
    method: FieldText,
    name: FieldText,
}

/// A message that passed all checks.
#[derive(Debug)]
pub(crate) enum McpMessage {
    Request(Box<CheckedRequest>),
    /// A notification, which has no answer.
    Notification,
}

/// A request that passed all checks.
#[derive(Debug)]
pub(crate) struct CheckedRequest {
    pub(super) request: JsonRpcRequest<ClientRequest>,
    /// The facts about the client that a connection with a session would have.
    pub(super) client: InitializeRequestParams,
    /// Whether an error has a status of its own; before 2026-07-28 it is always 200.
    pub(super) has_error_status: bool,
}

/// The refusal of a message.
#[derive(Debug)]
pub(crate) struct MessageRefusal {
    pub(super) error: JsonRpcError,
}

impl MessageRefusal {
    /// The status of every refusal.
    pub(crate) const STATUS: StatusCode = StatusCode::BAD_REQUEST;

    fn new(id: Option<RequestId>, error: ErrorData) -> MessageRefusal {
        MessageRefusal { error: JsonRpcError::new(id, error) }
    }

    fn header_mismatch(id: Option<RequestId>, message: impl Into<String>) -> MessageRefusal {
        MessageRefusal::new(id, ErrorData::header_mismatch(message.into(), None))
    }

    /// Returns the body of the response.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(&self.error).unwrap_or_default()
    }
}

impl McpHeaders {
    /// Reads the fields of a request.
    pub(crate) fn read(headers: &HeaderMap) -> McpHeaders {
        let read = |name| FieldText::read(headers, &name);
        McpHeaders { version: read(PROTOCOL_VERSION), method: read(METHOD), name: read(NAME) }
    }

    /// Returns the version that the field names.
    fn named_version(&self) -> Option<&str> {
        if let FieldText::Value(version) = &self.version { Some(version) } else { None }
    }
}

/// Parses a body and checks it against the header fields.
pub(crate) fn check_message(headers: &McpHeaders, body: &[u8]) -> Result<McpMessage, MessageRefusal> {
    let value: Value = serde_json::from_slice(body).map_err(|error| {
        MessageRefusal::new(None, ErrorData::parse_error(format!("the body is not JSON: {error}"), None))
    })?;
    if value.is_array() {
        let message = "a body has one message; batches are not supported";
        return Err(MessageRefusal::new(None, ErrorData::invalid_request(message, None)));
    }
    if headers.version == FieldText::Invalid {
        return Err(MessageRefusal::header_mismatch(None, "MCP-Protocol-Version occurs twice or is not ASCII"));
    }
    let message = ClientJsonRpcMessage::deserialize_value(&value)?;
    match message {
        ClientJsonRpcMessage::Request(request) => check_request(headers, &value, request),
        ClientJsonRpcMessage::Notification(_) => {
            check_known_version(headers, None)?;
            if has_standard_fields(headers) {
                check_method_field(headers, &value, None)?;
            }
            Ok(McpMessage::Notification)
        }
        ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => {
            let message = "this server sends no requests, so it accepts no responses";
            Err(MessageRefusal::new(None, ErrorData::invalid_request(message, None)))
        }
    }
}

/// Parses messages from JSON that was parsed already.
trait DeserializeValue: Sized {
    fn deserialize_value(value: &Value) -> Result<Self, MessageRefusal>;
}

impl DeserializeValue for ClientJsonRpcMessage {
    fn deserialize_value(value: &Value) -> Result<Self, MessageRefusal> {
        serde::Deserialize::deserialize(value).map_err(|_| {
            let id = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
            MessageRefusal::new(id, ErrorData::invalid_request("the body is not a message of JSON-RPC 2.0", None))
        })
    }
}

fn check_request(
    headers: &McpHeaders,
    value: &Value,
    request: JsonRpcRequest<ClientRequest>,
) -> Result<McpMessage, MessageRefusal> {
    let id = Some(request.id.clone());
    if let ClientRequest::InitializeRequest(initialize) = &request.request {
        let version = initialize.params.protocol_version.clone();
        if headers.named_version().is_some_and(|named| named != version.as_str()) {
            let message = "MCP-Protocol-Version names another version than the parameters of initialize";
            return Err(MessageRefusal::header_mismatch(id, message));
        }
        // The fields of 2026-07-28 are optional here, but never wrong.
        if headers.method != FieldText::Absent {
            check_method_field(headers, value, id)?;
        }
        return Ok(accept(request, version, false));
    }
    let meta = request.request.get_meta();
    let own_version = meta.protocol_version();
    if own_version.is_none() {
        check_known_version(headers, id.as_ref())?;
    }
    if has_standard_fields(headers) {
        check_method_field(headers, value, id.clone())?;
        check_name_field(headers, value, id.clone())?;
    }
    let is_discover = matches!(request.request, ClientRequest::DiscoverRequest(_));
    let Some(own_version) = own_version else {
        if is_discover || has_standard_fields(headers) {
            let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28).join(", ");
            let message = format!("_meta lacks required fields, or they are malformed: {missing}");
            return Err(MessageRefusal::new(id, ErrorData::invalid_params(message, None)));
        }
        let named = headers.named_version();
        let version = SUPPORTED_VERSIONS.iter().find(|version| Some(version.as_str()) == named).cloned();
        // A client without the field uses the version that had no such field yet.
        return Ok(accept(request, version.unwrap_or(ProtocolVersion::V_2025_03_26), false));
    };
    match headers.named_version() {
        None => {
            let message = "_meta names a protocol version, so the field MCP-Protocol-Version is required";
            Err(MessageRefusal::header_mismatch(id, message))
        }
        Some(named) if named != own_version.as_str() => {
            let message = "MCP-Protocol-Version names another version than _meta";
            Err(MessageRefusal::header_mismatch(id, message))
        }
        Some(_) if !SUPPORTED_VERSIONS.contains(&own_version) => {
            Err(MessageRefusal::new(id, ErrorData::unsupported_protocol_version(own_version, SUPPORTED_VERSIONS)))
        }
        Some(_) => {
            let missing = meta.missing_required_keys(&ProtocolVersion::V_2026_07_28);
            if !missing.is_empty() && !own_version.has_initialize() {
                let message = format!("_meta lacks required fields, or they are malformed: {}", missing.join(", "));
                return Err(MessageRefusal::new(id, ErrorData::invalid_params(message, None)));
            }
            Ok(accept(request, own_version, true))
        }
    }
}

fn accept(request: JsonRpcRequest<ClientRequest>, version: ProtocolVersion, has_error_status: bool) -> McpMessage {
    let client = InitializeRequestParams::new(ClientCapabilities::default(), Implementation::new("client", "0"))
        .with_protocol_version(version);
    McpMessage::Request(Box::new(CheckedRequest { request, client, has_error_status }))
}

/// Returns whether the version that the field names requires `Mcp-Method` and `Mcp-Name`.
fn has_standard_fields(headers: &McpHeaders) -> bool {
    headers.named_version().is_some_and(|version| version >= ProtocolVersion::STANDARD_HEADERS.as_str())
}

fn check_known_version(headers: &McpHeaders, id: Option<&RequestId>) -> Result<(), MessageRefusal> {
    let Some(named) = headers.named_version() else { return Ok(()) };
    if SUPPORTED_VERSIONS.iter().any(|version| version.as_str() == named) {
        return Ok(());
    }
    let supported = SUPPORTED_VERSIONS.iter().map(|version| Value::from(version.as_str())).collect::<Vec<_>>();
    let data = serde_json::json!({ "requested": named, "supported": supported });
    let error = ErrorData::new(ErrorCode::UNSUPPORTED_PROTOCOL_VERSION, "Unsupported protocol version", Some(data));
    Err(MessageRefusal::new(id.cloned(), error))
}

fn check_method_field(headers: &McpHeaders, value: &Value, id: Option<RequestId>) -> Result<(), MessageRefusal> {
    match &headers.method {
        FieldText::Value(method) if Some(method.as_str()) == value["method"].as_str() => Ok(()),
        FieldText::Absent => Err(MessageRefusal::header_mismatch(id, "the field Mcp-Method is required")),
        _ => Err(MessageRefusal::header_mismatch(id, "Mcp-Method names another method than the body")),
    }
}

fn check_name_field(headers: &McpHeaders, value: &Value, id: Option<RequestId>) -> Result<(), MessageRefusal> {
    let method = value["method"].as_str().unwrap_or_default();
    let parameter = NAME_PARAMETERS.iter().find(|(name, _)| *name == method).map(|(_, parameter)| parameter);
    let Some(parameter) = parameter else { return Ok(()) };
    let expected = value["params"][parameter].as_str();
    match &headers.name {
        FieldText::Value(name) if expected.is_some() && decode_field(name).as_deref() == expected => Ok(()),
        // A missing parameter is refused with the message.
        FieldText::Absent if expected.is_none() => Ok(()),
        FieldText::Absent => Err(MessageRefusal::header_mismatch(id, "the field Mcp-Name is required")),
        _ => Err(MessageRefusal::header_mismatch(id, "Mcp-Name names something else than the body")),
    }
}

/// Decodes the value of a field; `None` if it is marked as Base64 and is none.
fn decode_field(value: &str) -> Option<String> {
    let coded = value.strip_prefix(BASE64_MARKS.0).and_then(|rest| rest.strip_suffix(BASE64_MARKS.1));
    match coded {
        Some(coded) => String::from_utf8(STANDARD.decode(coded).ok()?).ok(),
        None => Some(value.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(fields: &[(&'static str, &str)]) -> McpHeaders {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.append(HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        McpHeaders::read(&map)
    }

    fn meta(version: &str) -> Value {
        json!({
            "io.modelcontextprotocol/protocolVersion": version,
            "io.modelcontextprotocol/clientCapabilities": {},
        })
    }

    fn request(method: &str, params: &Value) -> Vec<u8> {
        json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params }).to_string().into_bytes()
    }

    /// Returns the version of an accepted request and whether its errors have a status, or the code of the refusal.
    fn check(fields: &[(&'static str, &str)], body: &[u8]) -> Result<(String, bool), i32> {
        match check_message(&headers(fields), body) {
            Ok(McpMessage::Request(request)) => {
                Ok((request.client.protocol_version.to_string(), request.has_error_status))
            }
            Ok(McpMessage::Notification) => Ok((String::new(), false)),
            Err(refusal) => Err(refusal.error.error.code.0),
        }
    }

    const VERSION: (&str, &str) = ("mcp-protocol-version", "2026-07-28");
    const LIST: (&str, &str) = ("mcp-method", "tools/list");
    const CALL: (&str, &str) = ("mcp-method", "tools/call");

    #[test]
    fn a_request_of_2026_07_28_repeats_its_version_method_and_name_in_fields() {
        let accepted = Ok(("2026-07-28".to_owned(), true));
        let list = request("tools/list", &json!({ "_meta": meta("2026-07-28") }));
        assert_eq!(check(&[VERSION, LIST], &list), accepted);
        for wrong in [
            &[VERSION][..],
            &[LIST],
            &[VERSION, CALL],
            &[VERSION, LIST, LIST],
            &[VERSION, VERSION, LIST],
            &[("mcp-protocol-version", "2025-11-25"), LIST],
        ] {
            assert_eq!(check(wrong, &list), Err(-32020), "{wrong:?}");
        }
        let call = request("tools/call", &json!({ "name": "lis\u{e9}", "_meta": meta("2026-07-28") }));
        assert_eq!(check(&[VERSION, CALL, ("mcp-name", "=?base64?bGlzw6k=?=")], &call), accepted);
        for wrong in [None, Some("lis"), Some("=?base64?bGlzw6k?=")] {
            let fields: Vec<_> = [VERSION, CALL].into_iter().chain(wrong.map(|name| ("mcp-name", name))).collect();
            assert_eq!(check(&fields, &call), Err(-32020), "{wrong:?}");
        }
        let read = request("resources/read", &json!({ "uri": "docwharf:///a", "_meta": meta("2026-07-28") }));
        let fields = [VERSION, ("mcp-method", "resources/read"), ("mcp-name", "docwharf:///a")];
        assert_eq!(check(&fields, &read), accepted);
        assert_eq!(check(&fields[..2], &read), Err(-32020));
    }

    #[test]
    fn a_request_of_2026_07_28_needs_its_metadata_and_a_known_version() {
        for params in [json!({}), json!({ "_meta": { "io.modelcontextprotocol/protocolVersion": "2026-07-28" } })] {
            assert_eq!(check(&[VERSION, LIST], &request("tools/list", &params)), Err(-32602), "{params}");
        }
        assert_eq!(check(&[], &request("server/discover", &json!({}))), Err(-32602));
        let future = request("tools/list", &json!({ "_meta": meta("2099-01-01") }));
        assert_eq!(check(&[("mcp-protocol-version", "2099-01-01"), LIST], &future), Err(-32022));
        let plain = request("tools/list", &json!({}));
        assert_eq!(check(&[("mcp-protocol-version", "2024-11-05")], &plain), Err(-32022));
        assert_eq!(check(&[("mcp-protocol-version", "1")], &plain), Err(-32022));
    }

    #[test]
    fn a_client_with_initialize_needs_no_metadata_and_errors_have_status_200() {
        let plain = request("tools/list", &json!({}));
        let accepted = |version: &str| Ok((version.to_owned(), false));
        assert_eq!(check(&[("mcp-protocol-version", "2025-11-25")], &plain), accepted("2025-11-25"));
        assert_eq!(check(&[("mcp-protocol-version", "2025-06-18")], &plain), accepted("2025-06-18"));
        assert_eq!(check(&[], &plain), accepted("2025-03-26"));
        let initialize = |version: &str| {
            let client = json!({ "name": "test", "version": "1" });
            request("initialize", &json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": client }))
        };
        assert_eq!(check(&[], &initialize("2025-11-25")), accepted("2025-11-25"));
        assert_eq!(check(&[], &initialize("2024-11-05")), accepted("2024-11-05"));
        let other = [("mcp-protocol-version", "2025-06-18")];
        assert_eq!(check(&other, &initialize("2025-11-25")), Err(-32020));
        assert_eq!(check(&[("mcp-method", "initialize")], &initialize("2025-11-25")), accepted("2025-11-25"));
        assert_eq!(check(&[LIST], &initialize("2025-11-25")), Err(-32020));
    }

    #[test]
    fn a_body_is_one_message() {
        for (body, code) in [
            (&b""[..], -32700),
            (b"{", -32700),
            (b"\xff", -32700),
            (b"[]", -32600),
            (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", -32600),
            (b"7", -32600),
            (b"{}", -32600),
            (b"{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", -32600),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", -32600),
            (b"{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{\"code\":1,\"message\":\"x\"}}", -32600),
        ] {
            assert_eq!(check(&[], body), Err(code), "{}", String::from_utf8_lossy(body));
        }
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        assert_eq!(check(&[], deep.as_bytes()), Err(-32700));
        let notification = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        assert_eq!(check(&[], notification), Ok((String::new(), false)));
        assert_eq!(check(&[VERSION], notification), Err(-32020));
    }
}
