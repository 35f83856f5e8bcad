//! The restrictions of a bundle's rules by the operator's settings, because a bundle is untrusted data: header fields
//! that its rules must not set.

use http::{HeaderName, HeaderValue};

use crate::external::address::{AddressTarget, classify_address};

/// The directives of a Content-Security-Policy that send reports.
const REPORT_DIRECTIVES: [&str; 2] = ["report-uri", "report-to"];

/// The settings of the operator that a bundle must not override.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // the settings are independent
pub struct OperatorRestrictions {
    /// The operator has set a referrer policy.
    pub sets_referrer_policy: bool,
    /// The operator has decided which sites may show pages in a frame.
    pub sets_frame_policy: bool,
    /// Browsers must not connect to other origins.
    pub is_airgapped: bool,
    /// Access to the site is restricted.
    pub restricts_access: bool,
}

impl OperatorRestrictions {
    /// Whether a bundle's rule may set this field to this value.
    pub(super) fn allows(self, name: &HeaderName, value: &HeaderValue) -> bool {
        let text = value.to_str().unwrap_or_default();
        match name.as_str() {
            "referrer-policy" => !self.sets_referrer_policy,
            "x-frame-options" => !self.sets_frame_policy,
            "link" => !self.is_airgapped || !links_to_other_origin(text),
            "cache-control" => !self.restricts_access || !is_for_shared_caches(text),
            // Some caches obey Surrogate-Control or the targeted fields of RFC 9213 (`…-cache-control`) instead of
            // Cache-Control.
            "surrogate-control" => !self.restricts_access,
            name => {
                !self.restricts_access || !(name.ends_with("-cache-control") || name.starts_with("access-control-"))
            }
        }
    }
}

/// Whether a `Link` value names another origin. Everything between `<` and `>` counts as a target, wherever it is.
fn links_to_other_origin(text: &str) -> bool {
    let targets = text.split('<').skip(1).map(|rest| rest.split('>').next().unwrap_or_default());
    targets.into_iter().any(|target| classify_address(target) != AddressTarget::NoExternalRequest)
}

/// Whether a `Cache-Control` value lets a shared cache store the response to a request with credentials (RFC 9111,
/// 3.5).
fn is_for_shared_caches(text: &str) -> bool {
    const SHARED_CACHE_DIRECTIVES: [&str; 3] = ["public", "s-maxage", "must-revalidate"];
    let words = text.split([',', ';', ' ', '\t', '=', '"']);
    words.into_iter().any(|word| SHARED_CACHE_DIRECTIVES.iter().any(|shared| word.eq_ignore_ascii_case(shared)))
}

/// Removes the reporting directives from a list of policies; `None` if it has none. A comma ends a policy (CSP3,
/// 2.2.2).
pub(super) fn remove_report_directives(text: &str) -> Option<String> {
    let is_report_directive = |directive: &str| {
        let name = directive.split_ascii_whitespace().next().unwrap_or_default();
        REPORT_DIRECTIVES.iter().any(|report| name.eq_ignore_ascii_case(report))
    };
    if !text.split([',', ';']).any(is_report_directive) {
        return None;
    }
    let policies = text.split(',').map(|policy| {
        let directives = policy
            .split(';')
            .map(str::trim)
            .filter(|directive| !directive.is_empty() && !is_report_directive(directive));
        directives.collect::<Vec<_>>().join("; ")
    });
    Some(policies.filter(|policy| !policy.is_empty()).collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_directives_are_removed_from_a_csp_of_the_bundle() {
        for (policy, rest) in [
            ("default-src 'self'; report-uri https://x.example/r", Some("default-src 'self'")),
            ("report-to all;img-src *", Some("img-src *")),
            ("a 1;\tREPORT-URI /r ;b 2, Report-To x, c 3", Some("a 1; b 2, c 3")),
            ("report-uri", Some("")),
            ("default-src 'self'; ;img-src report-to", None),
            ("report-urix 1", None),
        ] {
            assert_eq!(remove_report_directives(policy).as_deref(), rest, "{policy}");
        }
    }

    #[test]
    fn bundle_headers_cannot_override_restrictions_of_the_operator() {
        let airgapped = OperatorRestrictions { is_airgapped: true, ..OperatorRestrictions::default() };
        let closed = OperatorRestrictions { restricts_access: true, ..OperatorRestrictions::default() };
        let frames = OperatorRestrictions { sets_frame_policy: true, ..OperatorRestrictions::default() };
        let referrer = OperatorRestrictions { sets_referrer_policy: true, ..OperatorRestrictions::default() };
        for (restrictions, name, value, is_allowed) in [
            (airgapped, "link", "</a.css>; rel=preload; as=style", true),
            (airgapped, "link", "<a.css>; rel=preload, <?x=http://y>; rel=next", true),
            (airgapped, "link", "<https://x.example>; rel=preconnect", false),
            (airgapped, "link", "</a>; rel=next, < \\/\\x.example>; rel=dns-prefetch", false),
            (airgapped, "link", "</a>; title=\"<//x.example>\"", false),
            (airgapped, "cache-control", "public", true),
            (closed, "link", "<https://x.example>; rel=preconnect", true),
            (closed, "cache-control", "max-age=60", true),
            (closed, "cache-control", "private, max-age=60, no-transform", true),
            (closed, "cache-control", "max-age=60,Public", false),
            (closed, "cache-control", "s-maxage=60", false),
            (closed, "cache-control", "max-age=0, must-revalidate", false),
            (closed, "cdn-cache-control", "max-age=60", false),
            (closed, "surrogate-control", "max-age=60", false),
            (closed, "access-control-allow-origin", "*", false),
            (closed, "access-control-allow-credentials", "true", false),
            (closed, "x-frame-options", "DENY", true),
            (frames, "x-frame-options", "DENY", false),
            (frames, "referrer-policy", "unsafe-url", true),
            (referrer, "referrer-policy", "no-referrer", false),
            (referrer, "access-control-allow-origin", "*", true),
        ] {
            let name = HeaderName::from_static(name);
            assert_eq!(
                restrictions.allows(&name, &HeaderValue::from_static(value)),
                is_allowed,
                "{restrictions:?} {name}: {value}"
            );
            assert!(OperatorRestrictions::default().allows(&name, &HeaderValue::from_static(value)), "{name}: {value}");
        }
    }
}
