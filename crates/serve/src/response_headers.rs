//! Header fields that do not depend on the kind of a response: an ordered list of stages, each of which adds the fields
//! of one subject. A later stage has access to the fields of the earlier ones and may change them.

use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, STRICT_TRANSPORT_SECURITY};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use super::body::ResponseBody;
use super::built_in_resource::is_built_in;
use super::csp_header::ServedFile;
use super::header_rules::{apply_bundle_rules, apply_operator_rules, may_run_scripts};
use super::request_context::RequestContext;

/// Adds the fields of one subject to the response to a request.
type HeaderStage = fn(&RequestContext<'_>, &mut Response<ResponseBody>);

/// The stages in their order.
const HEADER_STAGES: [HeaderStage; 6] = [
    add_security_headers,
    add_content_policy,
    add_hsts,
    apply_bundle_rules,
    // After the rules of the bundle, which may set Cache-Control.
    mark_private,
    // Last, because the operator may override all other fields.
    apply_operator_rules,
];

/// Adds the header fields of all stages to a response.
pub(super) fn add_response_headers(context: &RequestContext<'_>, response: &mut Response<ResponseBody>) {
    if response.status().is_informational() {
        return;
    }
    for stage in HEADER_STAGES {
        stage(context, response);
    }
}

/// Adds the fields that protect readers and are the same in every response.
fn add_security_headers(context: &RequestContext<'_>, response: &mut Response<ResponseBody>) {
    for (name, value) in &context.site().security_headers.fields {
        response.headers_mut().insert(name, value.clone());
    }
}

/// Adds the content security policy to responses whose policy browsers apply: documents, and scripts that run beside
/// them. A policy that is already present stays, because browsers enforce both.
fn add_content_policy(context: &RequestContext<'_>, response: &mut Response<ResponseBody>) {
    // A client without access must not learn which hosts the site needs. The refusal has no scripts.
    if response.status() == StatusCode::FORBIDDEN {
        return;
    }
    // The search page is the only document among them, and has a policy of its own already.
    if is_built_in(response) && !response.headers().contains_key(CONTENT_SECURITY_POLICY) {
        return;
    }
    let site = context.site();
    let Some((field, provisional)) = &site.security_headers.csp else { return };
    // Built-in pages, redirects and refusals contain no file.
    let file = response.extensions().get::<ServedFile>().copied();
    // A rule may give a text file the media type of a document.
    if file.is_some_and(|file| !file.needs_policy && !may_run_scripts(context)) {
        return;
    }
    let csp = site.csp.load();
    let csp = csp.as_ref().filter(|csp| context.version().is_some_and(|version| version.id == csp.id));
    let value = match csp {
        Some(csp) => Some(csp.value(file.filter(|file| file.version == csp.id).map(|file| file.file))),
        None => provisional.clone(),
    };
    if let Some(value) = value {
        response.headers_mut().append(field, value);
    }
}

/// Adds Strict-Transport-Security if it is configured and the client uses https (RFC 6797, section 7.2).
fn add_hsts(context: &RequestContext<'_>, response: &mut Response<ResponseBody>) {
    if let Some(hsts) = &context.site().settings.hsts
        && context.client().is_https
    {
        response.headers_mut().insert(STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
}

/// Marks the response as `private` if not every client may read the site, because a shared cache would serve it to
/// clients without access (RFC 9111, 5.2.2.7).
fn mark_private(context: &RequestContext<'_>, response: &mut Response<ResponseBody>) {
    if !context.access_control().rules.is_open() {
        add_private_directive(response.headers_mut());
    }
}

fn add_private_directive(headers: &mut HeaderMap) {
    let values: Vec<&[u8]> = headers.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes).collect();
    let directives = values.join(&b", "[..]);
    // `private="name"` applies to one field only.
    let mut names = directives.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    if names.any(|name| name.eq_ignore_ascii_case(b"private") || name.eq_ignore_ascii_case(b"no-store")) {
        return;
    }
    let comma: &[u8] = if directives.is_empty() { b"" } else { b", " };
    if let Ok(value) = HeaderValue::from_bytes(&[b"private", comma, &directives].concat()) {
        headers.insert(CACHE_CONTROL, value);
    }
}

#[cfg(test)]
mod tests {
    use http::header::X_CONTENT_TYPE_OPTIONS;
    use http::{HeaderName, Request};

    use docwharf_base::model::cidr::IpRanges;
    use docwharf_site::external::csp::{CspPreset, CspSettings};

    use super::*;
    use crate::access::{AccessControl, AccessRules};
    use crate::peer::Peer;
    use crate::security_headers::SecurityHeaderSettings;
    use crate::{Site, SiteSettings};

    /// Returns an access control that admits no client.
    fn closed_access() -> AccessControl {
        let rules = AccessRules { allow: Some(IpRanges::default()), user_header: None };
        AccessControl { rules, proxies: IpRanges::default() }
    }

    #[test]
    fn only_the_airgap_csp_is_sent_before_page_hashes_exist_and_no_csp_is_sent_with_403() {
        for (preset, is_sent) in [(CspPreset::Airgap, true), (CspPreset::Connected, false), (CspPreset::Report, false)]
        {
            for is_closed in [false, true] {
                let csp = CspSettings { preset, ancestors: Some("'self'"), max_bytes: 3072 };
                let security_headers = SecurityHeaderSettings { csp: Some(csp), ..SecurityHeaderSettings::default() };
                let access_control = if is_closed { closed_access() } else { AccessControl::default() };
                let site = Site::new(SiteSettings { security_headers, access_control, ..SiteSettings::default() });
                for (status, has_policy, has_fields) in [
                    (200, is_sent, true),
                    (404, is_sent, true),
                    (503, is_sent, true),
                    (403, false, true),
                    (103, false, false),
                ] {
                    let case = format!("{status} {preset:?} {is_closed}");
                    let mut response = Response::new(ResponseBody::empty());
                    *response.status_mut() = StatusCode::from_u16(status).unwrap();
                    let request = Request::new(());
                    add_response_headers(&RequestContext::new(&site, &request, None), &mut response);
                    let fields = response.headers();
                    assert_eq!(fields.contains_key("content-security-policy"), has_policy, "{case}");
                    assert_eq!(fields.contains_key(X_CONTENT_TYPE_OPTIONS), has_fields, "{case}");
                    assert_eq!(fields.contains_key("cache-control"), is_closed && has_fields, "{case}");
                }
            }
        }
    }

    #[test]
    fn strict_transport_security_is_sent_only_over_https_and_only_if_configured() {
        const PROXY: &str = "203.0.113.7";
        let value = HeaderValue::from_static("max-age=60");
        let https = (HeaderName::from_static("x-forwarded-proto"), "https");
        for (is_configured, is_trusted, fields, is_encrypted, expected) in [
            (true, false, &[][..], true, true),
            (true, false, &[], false, false),
            (true, false, std::slice::from_ref(&https), false, false),
            (true, true, std::slice::from_ref(&https), false, true),
            (true, true, &[], false, false),
            (false, true, std::slice::from_ref(&https), true, false),
        ] {
            let proxies = if is_trusted { IpRanges::parse(&[PROXY]).unwrap() } else { IpRanges::default() };
            let access_control = AccessControl { rules: AccessRules::default(), proxies };
            let hsts = is_configured.then(|| value.clone());
            let site = Site::new(SiteSettings { access_control, hsts, ..SiteSettings::default() });
            let mut request = Request::new(());
            for (name, value) in fields {
                request.headers_mut().append(name.clone(), value.parse().unwrap());
            }
            let peer = Peer {
                address: (PROXY.parse::<std::net::IpAddr>().unwrap(), 4711).into(),
                is_encrypted,
                is_loopback_listener: false,
            };
            let mut response = Response::new(ResponseBody::empty());
            add_hsts(&RequestContext::new(&site, &request, Some(peer)), &mut response);
            let sent = response.headers().get(STRICT_TRANSPORT_SECURITY);
            assert_eq!(sent, Some(&value).filter(|_| expected), "{is_configured} {is_trusted} {is_encrypted}");
        }
    }

    #[test]
    fn responses_of_an_access_controlled_site_are_always_private_or_no_store() {
        let closed = Site::new(SiteSettings { access_control: closed_access(), ..SiteSettings::default() });
        let open = Site::new(SiteSettings::default());
        for (present, expected) in [
            (&[][..], &["private"][..]),
            (&["no-cache"], &["private, no-cache"]),
            (&["max-age=5", "immutable"], &["private, max-age=5, immutable"]),
            (&["public, max-age=5"], &["private, public, max-age=5"]),
            (&["private=\"set-cookie\", max-age=5"], &["private, private=\"set-cookie\", max-age=5"]),
            (&["x-private, no-stores"], &["private, x-private, no-stores"]),
            (&["no-store"], &["no-store"]),
            (&["max-age=5 ,\tPrivate"], &["max-age=5 ,\tPrivate"]),
            (&["max-age=5", "NO-STORE"], &["max-age=5", "NO-STORE"]),
        ] {
            let mut response = Response::new(ResponseBody::empty());
            for value in present {
                response.headers_mut().append(CACHE_CONTROL, value.parse().unwrap());
            }
            let values = |response: &Response<ResponseBody>| -> Vec<String> {
                let values = response.headers().get_all(CACHE_CONTROL).iter();
                values.map(|value| value.to_str().unwrap().to_owned()).collect()
            };
            let request = Request::new(());
            let (open, closed) =
                (RequestContext::new(&open, &request, None), RequestContext::new(&closed, &request, None));
            mark_private(&open, &mut response);
            assert_eq!(values(&response), present, "every client may read");
            mark_private(&closed, &mut response);
            assert_eq!(values(&response), expected, "{present:?}");
            mark_private(&closed, &mut response);
            assert_eq!(values(&response), expected, "{present:?}: the second call changes nothing");
        }
    }
}
