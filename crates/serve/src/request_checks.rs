//! The checks of a request before its path matters: whether the client may read the site, and whether method, target
//! and header fields are acceptable.

use http::header::{CONNECTION, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::{HeaderValue, Response, Version};

use super::body::ResponseBody;
use super::fixed_responses;
use super::host_field::{is_host, is_same_host};
use super::request_context::{MethodClass, RequestContext};

/// Returns the 403 response if the client may not read the site. It is the same for every path and method, so it does
/// not show which paths exist.
pub(super) fn check_access(context: &RequestContext<'_>) -> Option<Response<ResponseBody>> {
    let rules = &context.access_control().rules;
    if rules.is_open() || rules.admits(context.client(), context.headers()) {
        return None;
    }
    let mut response = fixed_responses::forbidden(context.is_head());
    if context.headers().contains_key(TRANSFER_ENCODING) {
        // The bytes after such a head on the connection cannot be interpreted safely (RFC 9112, section 6.1).
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Some(response)
}

/// Returns the response if it does not depend on the path: because the request is malformed, or because its method is
/// neither GET nor HEAD.
pub(super) fn check_request(context: &RequestContext<'_>) -> Option<Response<ResponseBody>> {
    if let Some(response) = check_request_head(context) {
        return Some(response);
    }
    match context.method_class() {
        MethodClass::Get | MethodClass::Head => {}
        MethodClass::Options => return Some(fixed_responses::options()),
        MethodClass::Unsupported => return Some(fixed_responses::method_not_allowed(false)),
    }
    let head = context.is_head();
    // hyper parses a target without a leading slash as the authority of a CONNECT request.
    if !context.target().path().starts_with('/') {
        return Some(fixed_responses::bad_request(head, true));
    }
    let has_control = context.decoded_path().iter().any(|&byte| byte < 0x20 || byte == 0x7f);
    has_control.then(|| fixed_responses::bad_request(head, false))
}

/// Returns the response if the request is malformed whatever its method and path are.
pub(super) fn check_request_head(context: &RequestContext<'_>) -> Option<Response<ResponseBody>> {
    let head = context.is_head();
    // No resource accepts a body with Transfer-Encoding. hyper drops Content-Length next to it, so a request with both
    // looks like one with Transfer-Encoding alone. Both are refused and the connection is closed (RFC 9112, 6.1).
    if context.headers().contains_key(TRANSFER_ENCODING) || !has_valid_host(context) {
        return Some(fixed_responses::bad_request(head, true));
    }
    let is_malformed = context.protocol() == Version::HTTP_2 && !is_well_formed_http2(context);
    is_malformed.then(|| fixed_responses::bad_request(head, false))
}

/// Returns whether a request of HTTP/2 is well formed in what hyper does not check: `:authority`, whether `host` names
/// the same, and whitespace at the ends of values (RFC 9113, sections 8.2.1 and 8.3.1). docwharf's own HTTP/2 refuses
/// such a request before it gets here.
fn is_well_formed_http2(context: &RequestContext<'_>) -> bool {
    let target = context.target();
    let is_whitespace = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let authority = target.authority().map_or("", |authority| authority.as_str());
    let scheme = target.scheme_str().unwrap_or_default();
    let is_same = |host: &HeaderValue| is_same_host(scheme.as_bytes(), authority.as_bytes(), host.as_bytes());
    (authority.is_empty() || HeaderValue::from_str(authority).is_ok_and(|value| is_host(&value)))
        && context.headers().get_all(HOST).iter().all(is_same)
        && !context
            .headers()
            .values()
            .any(|value| is_whitespace(value.as_bytes().first()) || is_whitespace(value.as_bytes().last()))
}

/// Returns whether the request has one Host field with a valid value, or none where none is needed (RFC 9112, 3.2).
fn has_valid_host(context: &RequestContext<'_>) -> bool {
    let mut hosts = context.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => context.protocol() != Version::HTTP_11,
        (Some(host), None) => is_host(host),
        (Some(_), Some(_)) => false,
    }
}

/// Returns the media type that a request declares for its body, without parameters; empty if there is none.
pub(super) fn declared_media_type<'r>(context: &RequestContext<'r>) -> &'r [u8] {
    let value = context.headers().get(CONTENT_TYPE).map(HeaderValue::as_bytes).unwrap_or_default();
    value.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii()
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Method, Request};

    use docwharf_base::model::cidr::IpRanges;

    use super::*;
    use crate::access::{AccessControl, AccessRules};
    use crate::peer::Peer;
    use crate::{Site, SiteSettings};

    fn rules(is_listed: bool) -> AccessRules {
        AccessRules { allow: is_listed.then(|| IpRanges::parse(&["192.0.2.0/24"]).unwrap()), user_header: None }
    }

    fn access_refusal(site: &Site, method: &Method, fields: &[(HeaderName, &str)]) -> Option<Response<ResponseBody>> {
        let mut request = Request::new(());
        *request.method_mut() = method.clone();
        for (name, value) in fields {
            request.headers_mut().append(name.clone(), value.parse().unwrap());
        }
        let peer = Peer { address: ([203, 0, 113, 7], 4711).into(), is_encrypted: false, is_loopback_listener: false };
        check_access(&RequestContext::new(site, &request, Some(peer)))
    }

    #[test]
    fn an_access_refusal_closes_the_connection_only_for_chunked_requests() {
        let access_control = AccessControl { rules: rules(true), proxies: IpRanges::default() };
        let closed = Site::new(SiteSettings { access_control, ..SiteSettings::default() });
        let open = Site::new(SiteSettings::default());
        let chunked = (TRANSFER_ENCODING, "chunked");
        for (method, fields, closes) in [
            (Method::GET, &[][..], false),
            (Method::HEAD, &[], false),
            (Method::POST, &[], false),
            (Method::GET, std::slice::from_ref(&chunked), true),
        ] {
            assert!(access_refusal(&open, &method, fields).is_none(), "{method}");
            let response = access_refusal(&closed, &method, fields).unwrap();
            assert_eq!(response.status(), 403, "{method}");
            assert_eq!(response.headers().get(CONNECTION).is_some_and(|value| value == "close"), closes, "{method}");
            assert_eq!(response.body().is_empty(), method == Method::HEAD, "{method}");
        }
        closed.set_access_control(AccessControl { rules: rules(false), proxies: IpRanges::default() });
        assert!(access_refusal(&closed, &Method::GET, &[]).is_none(), "access control can change");
    }

    #[test]
    fn a_request_that_no_path_can_answer_has_its_status_and_one_that_is_unclear_ends_the_connection() {
        let site = Site::new(SiteSettings::default());
        let host = ("host", "x");
        for (method, target, fields, expected) in [
            (Method::GET, "/", &[host][..], None),
            (Method::HEAD, "/a%20b%c3%a9", &[host], None),
            (Method::GET, "/", &[], Some((400, true))),
            (Method::GET, "/", &[host, host], Some((400, true))),
            (Method::GET, "/", &[("host", "a b")], Some((400, true))),
            (Method::GET, "/", &[host, ("transfer-encoding", "chunked")], Some((400, true))),
            (Method::GET, "*", &[host], Some((400, true))),
            (Method::GET, "x:443", &[host], Some((400, true))),
            (Method::GET, "/%00", &[host], Some((400, false))),
            (Method::GET, "/a%1fb", &[host], Some((400, false))),
            (Method::HEAD, "/%7f", &[host], Some((400, false))),
            (Method::OPTIONS, "*", &[host], Some((204, false))),
            (Method::OPTIONS, "/%00", &[host], Some((204, false))),
            (Method::POST, "/", &[host], Some((405, false))),
            (Method::CONNECT, "x:443", &[host], Some((405, false))),
        ] {
            let mut request = Request::new(());
            *request.method_mut() = method;
            *request.uri_mut() = target.parse().unwrap();
            for &(name, value) in fields {
                request.headers_mut().append(HeaderName::from_static(name), value.parse().unwrap());
            }
            let response = check_request(&RequestContext::new(&site, &request, None)).map(|response| {
                (response.status().as_u16(), response.headers().get(CONNECTION).is_some_and(|value| value == "close"))
            });
            assert_eq!(response, expected, "{request:?}");
        }
    }
}
