//! The header fields that protect readers and are the same in every response: referrer and frame policy, `nosniff`.

use http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_DNS_PREFETCH_CONTROL, X_FRAME_OPTIONS};
use http::{HeaderName, HeaderValue};

use docwharf_site::external::csp;

use super::csp_header;

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
pub struct SecurityHeaderSettings {
    /// `server.referrerPolicy` if it is set. If it is empty, no field is sent.
    pub referrer: Option<String>,
    /// `server.frames` if it is set.
    pub frames: Option<FramePolicy>,
    /// `server.csp` and the limits of its policies; `None` to send no policy.
    pub csp: Option<csp::CspSettings>,
}

/// The Referrer-Policy that is sent by default. It keeps internal URLs from other sites, and is the default of
/// browsers.
pub const DEFAULT_REFERRER_POLICY: &str = "strict-origin-when-cross-origin";

/// The fields of [`SecurityHeaderSettings`], rendered once.
#[derive(Debug)]
pub(super) struct SecurityHeaders {
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    /// The name of the field for content security policies, and the value until the policies of the version are ready;
    /// `None` if no policies are sent.
    pub(super) csp: Option<(HeaderName, Option<HeaderValue>)>,
}

impl SecurityHeaders {
    pub(super) fn new(settings: &SecurityHeaderSettings) -> SecurityHeaders {
        let mut fields = vec![(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
        let referrer = match &settings.referrer {
            None => Some(HeaderValue::from_static(DEFAULT_REFERRER_POLICY)),
            Some(policy) => HeaderValue::from_str(policy).ok().filter(|value| !value.is_empty()),
        };
        fields.extend(referrer.map(|value| (REFERRER_POLICY, value)));
        match settings.frames.unwrap_or_default() {
            FramePolicy::SameOrigin => fields.push((X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"))),
            FramePolicy::Deny => fields.push((X_FRAME_OPTIONS, HeaderValue::from_static("DENY"))),
            FramePolicy::Any => {}
        }
        if settings.csp.as_ref().is_some_and(|csp_settings| csp_settings.preset == csp::CspPreset::Airgap) {
            // Browsers resolve the host names of links before a reader follows them, and no policy forbids that.
            fields.push((X_DNS_PREFETCH_CONTROL, HeaderValue::from_static("off")));
        }
        let csp = settings
            .csp
            .as_ref()
            .map(|csp| (csp_header::policy_field_name(csp.preset), csp_header::provisional_policy_value(csp)));
        SecurityHeaders { fields, csp }
    }
}

#[cfg(test)]
mod tests {
    use csp::{CspPreset, CspSettings};

    use super::*;

    fn csp_settings(preset: CspPreset) -> CspSettings {
        CspSettings { preset, ancestors: Some("'self'"), max_bytes: 3072 }
    }

    #[test]
    fn security_headers_are_the_configured_ones_or_the_defaults() {
        const NOSNIFF: &str = "x-content-type-options: nosniff";
        const SAME: &str = "x-frame-options: SAMEORIGIN";
        let referrer = |text: &str| Some(text.to_owned());
        let default_referrer = format!("referrer-policy: {DEFAULT_REFERRER_POLICY}");
        for (settings, expected) in [
            (SecurityHeaderSettings::default(), &[NOSNIFF, &default_referrer, SAME][..]),
            (SecurityHeaderSettings { referrer: referrer(""), ..SecurityHeaderSettings::default() }, &[NOSNIFF, SAME]),
            (
                SecurityHeaderSettings { referrer: referrer("no-referrer"), ..SecurityHeaderSettings::default() },
                &[NOSNIFF, "referrer-policy: no-referrer", SAME],
            ),
            (
                SecurityHeaderSettings { frames: Some(FramePolicy::SameOrigin), ..SecurityHeaderSettings::default() },
                &[NOSNIFF, &default_referrer, SAME],
            ),
            (
                SecurityHeaderSettings { frames: Some(FramePolicy::Deny), ..SecurityHeaderSettings::default() },
                &[NOSNIFF, &default_referrer, "x-frame-options: DENY"],
            ),
            (
                SecurityHeaderSettings { frames: Some(FramePolicy::Any), ..SecurityHeaderSettings::default() },
                &[NOSNIFF, &default_referrer],
            ),
            (
                SecurityHeaderSettings {
                    csp: Some(csp_settings(CspPreset::Connected)),
                    ..SecurityHeaderSettings::default()
                },
                &[NOSNIFF, &default_referrer, SAME],
            ),
            (
                SecurityHeaderSettings {
                    csp: Some(csp_settings(CspPreset::Report)),
                    ..SecurityHeaderSettings::default()
                },
                &[NOSNIFF, &default_referrer, SAME],
            ),
            (
                SecurityHeaderSettings {
                    csp: Some(csp_settings(CspPreset::Airgap)),
                    ..SecurityHeaderSettings::default()
                },
                &[NOSNIFF, &default_referrer, SAME, "x-dns-prefetch-control: off"],
            ),
        ] {
            let headers = SecurityHeaders::new(&settings);
            let fields: Vec<String> =
                headers.fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            assert_eq!(fields, expected, "{settings:?}");
            assert_eq!(headers.csp.is_some(), settings.csp.is_some(), "{settings:?}");
        }
        let ancestors =
            [FramePolicy::SameOrigin, FramePolicy::Deny, FramePolicy::Any].map(FramePolicy::frame_ancestors);
        assert_eq!(ancestors, [Some("'self'"), Some("'none'"), None]);
    }
}
