//! What goes along with every answer, whatever it is.

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

/// Who may show the site in a frame (`server.frames`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Frames {
    /// The site itself.
    #[default]
    Same,
    /// Nobody.
    Nobody,
    /// Everybody.
    Any,
}

impl Frames {
    /// What `frame-ancestors` says; it and `X-Frame-Options` agree.
    pub fn ancestors(self) -> Option<&'static str> {
        match self {
            Frames::Same => Some("'self'"),
            Frames::Nobody => Some("'none'"),
            Frames::Any => None,
        }
    }
}

/// What an operator says about what goes along with answers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Protection {
    /// `server.referrerPolicy`, if it is written down; nothing is sent if it is empty.
    pub referrer: Option<String>,
    /// `server.frames`, if it is written down.
    pub frames: Option<Frames>,
    /// `server.csp` and what its policies may take; none is sent without.
    pub csp: Option<csp::Rules>,
}

/// What is sent where nobody says otherwise: it keeps addresses of the inside from other sites, and is what browsers do
/// by themselves.
pub const REFERRER: &str = "strict-origin-when-cross-origin";

/// The same as fields, made once.
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
        if protection.csp.as_ref().is_some_and(|rules| rules.preset == csp::Preset::Airgap) {
            // Names are looked up for links before anybody follows them, which no policy forbids.
            fields.push((X_DNS_PREFETCH_CONTROL, HeaderValue::from_static("off")));
        }
        let csp = protection.csp.as_ref().map(|rules| (policy::field(rules.preset), policy::before(rules)));
        Dress { fields, csp }
    }
}

/// Which file an answer shows; among its extensions where there are policies.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shown {
    /// Of which version, which need not be the one that is served.
    version: VersionId,
    file: usize,
    /// Whether a browser follows the policy of such a file: by what it is sent as, whether or not it was read.
    counts: bool,
}

impl Shown {
    pub(super) fn new(version: &Sealed, file: usize) -> Shown {
        let counts = runs_scripts(&version.content_type(file));
        Shown { version: version.id, file, counts }
    }
}

/// Adds to an answer what does not depend on how it came about. `version` is what was served when the request began.
pub fn dress<B>(site: &Site, version: Option<&Sealed>, request: &Request<B>, response: &mut Response<Body>) {
    if response.status().is_informational() {
        return;
    }
    for (name, value) in &site.dress.fields {
        response.headers_mut().insert(name, value.clone());
    }
    // A refusal tells those who may not read nothing, neither which hosts the site needs. It has no scripts.
    if response.status() != StatusCode::FORBIDDEN {
        police(site, version, request, response);
    }
    insist_on_tls(site, request, response.headers_mut());
    keep_private(site, response.headers_mut());
    // Last, because whoever writes a rule knows what is there.
    fields(site, version, request, response);
}

/// Adds the policy where a browser would follow one: to documents, and to what runs beside them. A policy that is there
/// already stays: a browser obeys both.
fn police<B>(site: &Site, version: Option<&Sealed>, request: &Request<B>, response: &mut Response<Body>) {
    let Some((field, before)) = &site.dress.csp else { return };
    // Pages of our own, redirects and refusals show no file.
    let shown = response.extensions().get::<Shown>().copied();
    // Rules may send a text as a page.
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
    use csp::{Preset, Rules};

    use super::*;
    use crate::Settings;
    use crate::access::{Access, Door};
    use crate::cidr::Networks;

    fn rules(preset: Preset) -> Rules {
        Rules { preset, ancestors: Some("'self'"), most: 3072 }
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
            (Protection { csp: Some(rules(Preset::Connected)), ..Protection::default() }, &[NOSNIFF, &usual, SAME]),
            (Protection { csp: Some(rules(Preset::Report)), ..Protection::default() }, &[NOSNIFF, &usual, SAME]),
            (
                Protection { csp: Some(rules(Preset::Airgap)), ..Protection::default() },
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
        for (preset, before) in [(Preset::Airgap, true), (Preset::Connected, false), (Preset::Report, false)] {
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
