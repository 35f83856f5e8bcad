//! Header fields of every response, whatever it contains: those that protect readers (content security policy, referrer
//! and frame policy, `nosniff`, Strict-Transport-Security), and those that rules add.

use http::header::{REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_DNS_PREFETCH_CONTROL, X_FRAME_OPTIONS};
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};

use docwharf_base::model::version::VersionId;
use docwharf_site::outside::csp;
use docwharf_site::sealed::Sealed;
use docwharf_site::types::runs_scripts;

use super::Site;
use super::access::insist_on_tls;
use super::body::Body;
use super::fields::{fields, keep_private, may_run};
use super::policy;

/// The origins that may show the site in a frame (`server.frames`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Frames {
    /// The site's own origin.
    #[default]
    Same,
    /// No origin.
    Nobody,
    /// Every origin.
    Any,
}

impl Frames {
    /// Returns the source list of `frame-ancestors`, which agrees with `X-Frame-Options`; `None` for no directive.
    pub fn ancestors(self) -> Option<&'static str> {
        match self {
            Frames::Same => Some("'self'"),
            Frames::Nobody => Some("'none'"),
            Frames::Any => None,
        }
    }
}

/// The operator's settings of the header fields that protect readers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protection {
    /// `server.referrerPolicy` if it is set. If it is empty, no field is sent.
    pub referrer: Option<String>,
    /// `server.frames` if it is set.
    pub frames: Option<Frames>,
    /// `server.csp` and the limits of its policies; `None` to send no policy.
    pub csp: Option<csp::CspRules>,
}

/// The Referrer-Policy that is sent by default. It keeps internal URLs from other sites, and is the default of
/// browsers.
pub const REFERRER: &str = "strict-origin-when-cross-origin";

/// The fields of [`Protection`], rendered once.
#[derive(Debug)]
pub(super) struct Dress {
    fields: Vec<(HeaderName, HeaderValue)>,
    csp: Option<(HeaderName, Option<HeaderValue>)>,
}

impl Dress {
    pub(super) fn new(protection: &Protection) -> Dress {
        let mut fields = vec![(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))];
        let referrer = match &protection.referrer {
            None => Some(HeaderValue::from_static(REFERRER)),
            Some(own) => HeaderValue::from_str(own).ok().filter(|value| !value.is_empty()),
        };
        fields.extend(referrer.map(|value| (REFERRER_POLICY, value)));
        match protection.frames.unwrap_or_default() {
            Frames::Same => fields.push((X_FRAME_OPTIONS, HeaderValue::from_static("SAMEORIGIN"))),
            Frames::Nobody => fields.push((X_FRAME_OPTIONS, HeaderValue::from_static("DENY"))),
            Frames::Any => {}
        }
        if protection.csp.as_ref().is_some_and(|rules| rules.preset == csp::CspPreset::Airgap) {
            // Browsers resolve the host names of links before a reader follows them, and no policy forbids that.
            fields.push((X_DNS_PREFETCH_CONTROL, HeaderValue::from_static("off")));
        }
        let csp = protection.csp.as_ref().map(|rules| (policy::field(rules.preset), policy::before(rules)));
        Dress { fields, csp }
    }
}

/// The file that a response contains. It is among the response's extensions if content security policies are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// The version of the file, which need not be the active one.
    version: VersionId,
    file: usize,
    /// Whether browsers apply a policy to such a file. The media type decides, whether or not the file was scanned.
    counts: bool,
}

impl Shown {
    pub(super) fn new(version: &Sealed, file: usize) -> Shown {
        let counts = runs_scripts(&version.content_type(file));
        Shown { version: version.id, file, counts }
    }
}

/// Adds the header fields that do not depend on how the response was made. `version` is the version that was served
/// when the request began.
pub fn dress<B>(site: &Site, version: Option<&Sealed>, request: &Request<B>, response: &mut Response<Body>) {
    if response.status().is_informational() {
        return;
    }
    for (name, value) in &site.dress.fields {
        response.headers_mut().insert(name, value.clone());
    }
    // A client without access must not learn which hosts the site needs. The refusal has no scripts.
    if response.status() != StatusCode::FORBIDDEN {
        police(site, version, request, response);
    }
    insist_on_tls(site, request, response.headers_mut());
    keep_private(site, response.headers_mut());
    // Rules come last: their author knows the other fields and may override them.
    fields(site, version, request, response);
}

/// Adds the content security policy to responses whose policy browsers apply: documents, and scripts that run beside
/// them. A policy that is already there stays, because browsers enforce both.
fn police<B>(site: &Site, version: Option<&Sealed>, request: &Request<B>, response: &mut Response<Body>) {
    let Some((field, before)) = &site.dress.csp else { return };
    // Built-in pages, redirects and refusals contain no file.
    let shown = response.extensions().get::<Shown>().copied();
    // A rule may give a text file the media type of a document.
    let counts = |shown: Shown| shown.counts || version.is_some_and(|version| may_run(site, version, request));
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
    use crate::Settings;
    use crate::access::{Access, Door};
    use crate::cidr::Networks;

    fn rules(preset: CspPreset) -> CspRules {
        CspRules { preset, ancestors: Some("'self'"), max_bytes: 3072 }
    }

    #[test]
    fn every_answer_has_what_the_operator_says_and_our_defaults_where_he_says_nothing() {
        const NOSNIFF: &str = "x-content-type-options: nosniff";
        const SAME: &str = "x-frame-options: SAMEORIGIN";
        let referrer = |text: &str| Some(text.to_owned());
        let usual = format!("referrer-policy: {REFERRER}");
        for (protection, expected) in [
            (Protection::default(), &[NOSNIFF, &usual, SAME][..]),
            (Protection { referrer: referrer(""), ..Protection::default() }, &[NOSNIFF, SAME]),
            (
                Protection { referrer: referrer("no-referrer"), ..Protection::default() },
                &[NOSNIFF, "referrer-policy: no-referrer", SAME],
            ),
            (Protection { frames: Some(Frames::Same), ..Protection::default() }, &[NOSNIFF, &usual, SAME]),
            (
                Protection { frames: Some(Frames::Nobody), ..Protection::default() },
                &[NOSNIFF, &usual, "x-frame-options: DENY"],
            ),
            (Protection { frames: Some(Frames::Any), ..Protection::default() }, &[NOSNIFF, &usual]),
            (Protection { csp: Some(rules(CspPreset::Connected)), ..Protection::default() }, &[NOSNIFF, &usual, SAME]),
            (Protection { csp: Some(rules(CspPreset::Report)), ..Protection::default() }, &[NOSNIFF, &usual, SAME]),
            (
                Protection { csp: Some(rules(CspPreset::Airgap)), ..Protection::default() },
                &[NOSNIFF, &usual, SAME, "x-dns-prefetch-control: off"],
            ),
        ] {
            let dress = Dress::new(&protection);
            let fields: Vec<String> =
                dress.fields.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            assert_eq!(fields, expected, "{protection:?}");
            assert_eq!(dress.csp.is_some(), protection.csp.is_some(), "{protection:?}");
        }
        let ancestors = [Frames::Same, Frames::Nobody, Frames::Any].map(Frames::ancestors);
        assert_eq!(ancestors, [Some("'self'"), Some("'none'"), None]);
    }

    #[test]
    fn a_policy_that_holds_without_the_site_is_sent_from_the_first_answer_on_and_not_with_a_refusal() {
        let access = Access { allow: Some(Networks::default()), header: None };
        for (preset, before) in [(CspPreset::Airgap, true), (CspPreset::Connected, false), (CspPreset::Report, false)] {
            for is_closed in [false, true] {
                let protection = Protection { csp: Some(rules(preset)), ..Protection::default() };
                let access = if is_closed { access.clone() } else { Access::default() };
                let door = Door { access, proxies: Networks::default() };
                let site = Site::new(Settings { protection, door, ..Settings::default() });
                for (status, has_policy, has_fields) in [
                    (200, before, true),
                    (404, before, true),
                    (503, before, true),
                    (403, false, true),
                    (103, false, false),
                ] {
                    let what = format!("{status} {preset:?} {is_closed}");
                    let mut answer = Response::new(Body::empty());
                    *answer.status_mut() = StatusCode::from_u16(status).unwrap();
                    dress(&site, None, &Request::new(()), &mut answer);
                    let fields = answer.headers();
                    assert_eq!(fields.contains_key("content-security-policy"), has_policy, "{what}");
                    assert_eq!(fields.contains_key(X_CONTENT_TYPE_OPTIONS), has_fields, "{what}");
                    assert_eq!(fields.contains_key("cache-control"), is_closed && has_fields, "{what}");
                }
            }
        }
    }
}
