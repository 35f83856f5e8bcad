//! The header fields that the rules of a bundle or of the operator may set or remove.

use http::HeaderName;
use http::header::{
    ACCEPT_RANGES, AGE, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_TYPE, DATE, ETAG, EXPIRES, HOST, LAST_MODIFIED, LINK,
    LOCATION, PROXY_AUTHENTICATE, REFRESH, RETRY_AFTER, SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, VARY, WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};

/// The author of a set of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOwner {
    /// The author of the bundle.
    Bundle,
    /// The operator of the server.
    Operator,
}

/// The fields that no rule can set or remove: framing, validators, and fields that the server computes.
const SERVER_FIELDS: [HeaderName; 22] = [
    ACCEPT_RANGES,
    AGE,
    ALLOW,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    DATE,
    ETAG,
    HOST,
    HeaderName::from_static("keep-alive"),
    LAST_MODIFIED,
    LOCATION,
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-connection"),
    RETRY_AFTER,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    WWW_AUTHENTICATE,
];
/// The fields that only the operator can set, because they affect the whole host or all clients of a shared cache, or
/// send clients or reports to other hosts.
pub(super) const OPERATOR_FIELDS: [HeaderName; 9] = [
    HeaderName::from_static("alt-svc"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("nel"),
    REFRESH,
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("service-worker-allowed"),
    SET_COOKIE,
    STRICT_TRANSPORT_SECURITY,
];
/// The fields that a rule may set but not remove.
pub(super) const REQUIRED_FIELDS: [HeaderName; 4] = [CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS];
/// The fields that describe a file. They are not added to redirects and error responses.
pub(super) const FILE_FIELDS: [HeaderName; 6] =
    [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES, LINK];

/// Parses the name of a field that a rule may set or remove.
pub(super) fn parse_field_name(name: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a valid field name"))?;
    if SERVER_FIELDS.contains(&name) {
        return Err(format!("{name} is set by the server: no rule can change it"));
    }
    Ok(name)
}
