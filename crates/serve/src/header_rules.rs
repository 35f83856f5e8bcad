//! Header fields that rules add to the responses of a path: first the rules of the bundle, then those of the operator.

use std::borrow::Cow;

use http::header::CACHE_CONTROL;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use percent_encoding::percent_decode;

use docwharf_site::external::csp::CspPreset;
use docwharf_site::lookup::{BasePathMatch, SiteFiles, match_base_path};
use docwharf_site::media_types::runs_scripts;
use docwharf_site::rules::protected_headers::ProtectedHeaders;
use docwharf_site::sealed_version::SealedVersion;

use super::body::ResponseBody;
use super::site::Site;

/// Adds the fields of the matching rules to a response about a path of the site. A request that is refused before its
/// path matters gets none.
pub fn apply_header_rules<B>(
    site: &Site,
    version: Option<&SealedVersion>,
    request: &Request<B>,
    response: &mut Response<ResponseBody>,
) {
    let (Some(version), own) = (version, site.rules()) else { return };
    let brought = &version.rules().fields;
    if (brought.is_empty() && own.fields.is_empty()) || !is_about_address(response.status()) {
        return;
    }
    let decoded: Cow<'_, [u8]> = percent_decode(request.uri().path().as_bytes()).into();
    let base_path = &site.settings.base_path;
    let BasePathMatch::Inside(_) = match_base_path(base_path, &decoded) else { return };
    let address = &decoded[base_path.len() - 1..];
    let status = response.status();
    let headers = response.headers_mut();
    brought.apply(address, Some(protected_headers(site)), status, headers);
    mark_private(site, headers);
    own.fields.apply(address, None, status, headers);
}

/// Returns whether a rule gives the requested path a media type with which scripts may run.
pub(super) fn may_run_scripts<B>(site: &Site, version: &SealedVersion, request: &Request<B>) -> bool {
    let (brought, own) = (&version.rules().fields, site.rules());
    if brought.is_empty() && own.fields.is_empty() {
        return false;
    }
    let decoded: Cow<'_, [u8]> = percent_decode(request.uri().path().as_bytes()).into();
    let base_path = &site.settings.base_path;
    let BasePathMatch::Inside(_) = match_base_path(base_path, &decoded) else { return false };
    let address = &decoded[base_path.len() - 1..];
    brought.media_types(address).chain(own.fields.media_types(address)).any(runs_scripts)
}

/// Marks the response as `private` if not every client may read the site, because a shared cache would serve it to
/// clients without access (RFC 9111, 5.2.2.7). The operator's rules are applied later and may override it.
pub(super) fn mark_private(site: &Site, headers: &mut HeaderMap) {
    if site.access_control().access.is_open() {
        return;
    }
    let said: Vec<&[u8]> = headers.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes).collect();
    let said = said.join(&b", "[..]);
    // `private="name"` applies to one field only.
    let mut words = said.split(|&byte| byte == b',').map(<[u8]>::trim_ascii);
    if words.any(|word| word.eq_ignore_ascii_case(b"private") || word.eq_ignore_ascii_case(b"no-store")) {
        return;
    }
    let comma: &[u8] = if said.is_empty() { b"" } else { b", " };
    if let Ok(value) = HeaderValue::from_bytes(&[b"private", comma, &said].concat()) {
        headers.insert(CACHE_CONTROL, value);
    }
}

/// Returns what the bundle's rules must not change: the operator's settings take precedence over the bundle, and the
/// bundle over the defaults.
fn protected_headers(site: &Site) -> ProtectedHeaders {
    let protection = &site.settings.protection;
    ProtectedHeaders {
        has_referrer: protection.referrer.is_some(),
        has_frames: protection.frames.is_some(),
        is_airgapped: protection.csp.as_ref().is_some_and(|rules| rules.preset == CspPreset::Airgap),
        is_closed: !site.access_control().access.is_open(),
    }
}

fn is_about_address(status: StatusCode) -> bool {
    // A client without access must not learn about paths, not even which rules match them.
    const REFUSED: [StatusCode; 4] =
        [StatusCode::BAD_REQUEST, StatusCode::FORBIDDEN, StatusCode::METHOD_NOT_ALLOWED, StatusCode::NO_CONTENT];
    !REFUSED.contains(&status) && !status.is_server_error()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SiteSettings;
    use crate::access::{AccessControl, AccessPolicy};
    use crate::cidr::IpRanges;

    #[test]
    fn where_not_everybody_may_read_nothing_is_for_shared_caches_whatever_was_said_before() {
        let access = AccessPolicy { allow: Some(IpRanges::default()), user_header: None };
        let door = AccessControl { access, proxies: IpRanges::default() };
        let closed = Site::new(SiteSettings { access_control: door, ..SiteSettings::default() });
        let open = Site::new(SiteSettings::default());
        for (said, expected) in [
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
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append(CACHE_CONTROL, value.parse().unwrap());
            }
            let values = |headers: &HeaderMap| -> Vec<String> {
                headers.get_all(CACHE_CONTROL).iter().map(|value| value.to_str().unwrap().to_owned()).collect()
            };
            mark_private(&open, &mut headers);
            assert_eq!(values(&headers), said, "everybody may read");
            mark_private(&closed, &mut headers);
            assert_eq!(values(&headers), expected, "{said:?}");
            mark_private(&closed, &mut headers);
            assert_eq!(values(&headers), expected, "{said:?}: once is enough");
        }
    }

    #[test]
    fn rules_are_about_addresses_and_not_about_refusals() {
        for status in [200, 206, 301, 304, 307, 404, 412, 416] {
            assert!(is_about_address(StatusCode::from_u16(status).unwrap()), "{status}");
        }
        for status in [204, 400, 403, 405, 500, 503] {
            assert!(!is_about_address(StatusCode::from_u16(status).unwrap()), "{status}");
        }
    }
}
