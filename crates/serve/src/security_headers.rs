//! Header fields of every response, whatever it contains: those that protect readers (content security policy, referrer
//! and frame policy, `nosniff`, Strict-Transport-Security), and those that rules add.

use http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_DNS_PREFETCH_CONTROL, X_FRAME_OPTIONS};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};

use docwharf_base::model::version::VersionId;
use docwharf_site::external::csp;
use docwharf_site::media_types::runs_scripts;
use docwharf_site::sealed_version::SealedVersion;

use super::access::add_hsts;
use super::body::ResponseBody;
use super::csp_header;
use super::header_rules::{apply_header_rules, mark_private, may_run_scripts};
use super::site::Site;

/// The origins that may show the site in a frame (`server.frames`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FramePolicy {
    /// The site's own origin.
    #[default]
    SameOrigin,
    /// No origin.
    Deny,
    /// Every origin.
    Any,
}

impl FramePolicy {
    /// Returns the source list of `frame-ancestors`, which agrees with `X-Frame-Options`; `None` for no directive.
    pub fn frame_ancestors(self) -> Option<&'static str> {
        match self {
            FramePolicy::SameOrigin => Some("'self'"),
            FramePolicy::Deny => Some("'none'"),
            FramePolicy::Any => None,
        }
    }
}

/// The operator's settings of the header fields that protect readers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProtectionSettings {
    /// `server.referrerPolicy` if it is set. If it is empty, no field is sent.
    pub referrer: Option<String>,
    /// `server.frames` if it is set.
    pub frames: Option<FramePolicy>,
    /// `server.csp` and the limits of its policies; `None` to send no policy.
    pub csp: Option<csp::CspRules>,
}

/// The Referrer-Policy that is sent by default. It keeps internal URLs from other sites, and is the default of
/// browsers.
pub const DEFAULT_REFERRER_POLICY: &str = "strict-origin-when-cross-origin";

/// The fields of [`ProtectionSettings`], rendered once.
#[derive(Debug)]
pub(super) struct SecurityHeaders {
    fields: Vec<(HeaderName, HeaderValue)>,
    csp: Option<(HeaderName, Option<HeaderValue>)>,
}

impl SecurityHeaders {
    pub(super) fn new(protection: &ProtectionSettings) -> SecurityHeaders {
        let mut fields = vec![(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
        let referrer = match &protection.referrer {
            None => Some(HeaderValue::from_static(DEFAULT_REFERRER_POLICY)),
            Some(own) => HeaderValue::from_str(own).ok().filter(|value| !value.is_empty()),
        };
        fields.extend(referrer.map(|value| (REFERRER_POLICY, value)));
        match protection.frames.unwrap_or_default() {
            FramePolicy::SameOrigin => fields.push((X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"))),
            FramePolicy::Deny => fields.push((X_FRAME_OPTIONS, HeaderValue::from_static("DENY"))),
            FramePolicy::Any => {}
        }
        if protection.csp.as_ref().is_some_and(|rules| rules.preset == csp::CspPreset::Airgap) {
            // Browsers resolve the host names of links before a reader follows them, and no policy forbids that.
            fields.push((X_DNS_PREFETCH_CONTROL, HeaderValue::from_static("off")));
        }
        let csp = protection
            .csp
            .as_ref()
            .map(|rules| (csp_header::policy_field_name(rules.preset), csp_header::provisional_policy_value(rules)));
        SecurityHeaders { fields, csp }
    }
}

/// The file that a response contains. It is among the response's extensions if content security policies are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServedFile {
    /// The version of the file, which need not be the active one.
    version: VersionId,
    file: usize,
    /// Whether browsers apply a policy to such a file. The media type decides, whether or not the file was scanned.
    needs_policy: bool,
}

impl ServedFile {
    pub(super) fn new(version: &SealedVersion, file: usize) -> ServedFile {
        let needs_policy = runs_scripts(&version.content_type(file));
        ServedFile { version: version.id, file, needs_policy }
    }
}

/// Adds the header fields that do not depend on how the response was made. `version` is the version that was served
/// when the request began.
pub fn add_common_headers<B>(
    site: &Site,
    version: Option<&SealedVersion>,
    request: &Request<B>,
    response: &mut Response<ResponseBody>,
) {
    if response.status().is_informational() {
        return;
    }
    for (name, value) in &site.security_headers.fields {
        response.headers_mut().insert(name, value.clone());
    }
    // A client without access must not learn which hosts the site needs. The refusal has no scripts.
    if response.status() != StatusCode::FORBIDDEN {
        add_policy(site, version, request, response);
    }
    add_hsts(site, request, response.headers_mut());
    mark_private(site, response.headers_mut());
    // Rules come last: their author knows the other fields and may override them.
    apply_header_rules(site, version, request, response);
}

/// Adds the content security policy to responses whose policy browsers apply: documents, and scripts that run beside
/// them. A policy that is already there stays, because browsers enforce both.
fn add_policy<B>(
    site: &Site,
    version: Option<&SealedVersion>,
    request: &Request<B>,
    response: &mut Response<ResponseBody>,
) {
    let Some((field, before)) = &site.security_headers.csp else { return };
    // Built-in pages, redirects and refusals contain no file.
    let shown = response.extensions().get::<ServedFile>().copied();
    // A rule may give a text file the media type of a document.
    let counts = |shown: ServedFile| {
        shown.needs_policy || version.is_some_and(|version| may_run_scripts(site, version, request))
    };
    if shown.is_some_and(|shown| !counts(shown)) {
        return;
    }
    let ready = site.policies.load();
    let ready = ready.as_ref().filter(|ready| version.is_some_and(|version| version.id == ready.id));
    let value = match ready {
        Some(ready) => Some(ready.value(shown.filter(|shown| shown.version == ready.id).map(|shown| shown.file))),
        None => before.clone(),
    };
    if let Some(value) = value {
        response.headers_mut().append(field, value);
    }
}

#[cfg(test)]
mod tests {
    use csp::{CspPreset, CspRules};

    use super::*;
    use crate::SiteSettings;
    use crate::access::{AccessControl, AccessPolicy};
    use crate::cidr::IpRanges;

    fn rules(preset: CspPreset) -> CspRules {
        CspRules { preset, ancestors: Some("'self'"), max_bytes: 3072 }
    }

    #[test]
    fn every_answer_has_what_the_operator_says_and_our_defaults_where_he_says_nothing() {
        const NOSNIFF: &str = "x-content-type-options: nosniff";
        const SAME: &str = "x-frame-options: SAMEORIGIN";
        let referrer = |text: &str| Some(text.to_owned());
        let usual = format!("referrer-policy: {DEFAULT_REFERRER_POLICY}");
        for (protection, expected) in [
            (ProtectionSettings::default(), &[NOSNIFF, &usual, SAME][..]),
            (ProtectionSettings { referrer: referrer(""), ..ProtectionSettings::default() }, &[NOSNIFF, SAME]),
            (
                ProtectionSettings { referrer: referrer("no-referrer"), ..ProtectionSettings::default() },
                &[NOSNIFF, "referrer-policy: no-referrer", SAME],
            ),
            (
                ProtectionSettings { frames: Some(FramePolicy::SameOrigin), ..ProtectionSettings::default() },
                &[NOSNIFF, &usual, SAME],
            ),
            (
                ProtectionSettings { frames: Some(FramePolicy::Deny), ..ProtectionSettings::default() },
                &[NOSNIFF, &usual, "x-frame-options: DENY"],
            ),
            (
                ProtectionSettings { frames: Some(FramePolicy::Any), ..ProtectionSettings::default() },
                &[NOSNIFF, &usual],
            ),
            (
                ProtectionSettings { csp: Some(rules(CspPreset::Connected)), ..ProtectionSettings::default() },
                &[NOSNIFF, &usual, SAME],
            ),
            (
                ProtectionSettings { csp: Some(rules(CspPreset::Report)), ..ProtectionSettings::default() },
                &[NOSNIFF, &usual, SAME],
            ),
            (
                ProtectionSettings { csp: Some(rules(CspPreset::Airgap)), ..ProtectionSettings::default() },
                &[NOSNIFF, &usual, SAME, "x-dns-prefetch-control: off"],
            ),
        ] {
            let dress = SecurityHeaders::new(&protection);
            let fields: Vec<String> =
                dress.fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            assert_eq!(fields, expected, "{protection:?}");
            assert_eq!(dress.csp.is_some(), protection.csp.is_some(), "{protection:?}");
        }
        let ancestors =
            [FramePolicy::SameOrigin, FramePolicy::Deny, FramePolicy::Any].map(FramePolicy::frame_ancestors);
        assert_eq!(ancestors, [Some("'self'"), Some("'none'"), None]);
    }

    #[test]
    fn a_policy_that_holds_without_the_site_is_sent_from_the_first_answer_on_and_not_with_a_refusal() {
        let access = AccessPolicy { allow: Some(IpRanges::default()), user_header: None };
        for (preset, before) in [(CspPreset::Airgap, true), (CspPreset::Connected, false), (CspPreset::Report, false)] {
            for is_closed in [false, true] {
                let protection = ProtectionSettings { csp: Some(rules(preset)), ..ProtectionSettings::default() };
                let access = if is_closed { access.clone() } else { AccessPolicy::default() };
                let door = AccessControl { access, proxies: IpRanges::default() };
                let site = Site::new(SiteSettings { protection, access_control: door, ..SiteSettings::default() });
                for (status, has_policy, has_fields) in [
                    (200, before, true),
                    (404, before, true),
                    (503, before, true),
                    (403, false, true),
                    (103, false, false),
                ] {
                    let what = format!("{status} {preset:?} {is_closed}");
                    let mut answer = Response::new(ResponseBody::empty());
                    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                    add_common_headers(&site, None, &Request::new(()), &mut answer);
                    let fields = answer.headers();
                    assert_eq!(fields.contains_key("content-security-policy"), has_policy, "{what}");
                    assert_eq!(fields.contains_key(X_CONTENT_TYPE_OPTIONS), has_fields, "{what}");
                    assert_eq!(fields.contains_key("cache-control"), is_closed && has_fields, "{what}");
                }
            }
        }
    }
}
