//! The content security policy that goes along with an answer.
//!
//! Policies come after their version: they are computed beside serving (`site::outside::csp`). Until they are there, and
//! for what is no page, a policy that names no hashes is sent, where the preset has one that holds without knowing the
//! site: `airgap` refuses other origins from the first answer on.

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY};
use http::{HeaderName, HeaderValue};
use quick_cache::sync::Cache;

use docwharf_base::model::version::VersionId;
use docwharf_site::outside::csp::{self, Frame, Policies, Preset, Rules, Survey};

/// Policies that are kept ready, of a few KiB at most each.
const KEPT: usize = 1024;

/// The policies of one version, ready to be sent.
#[derive(Debug)]
pub struct Ready {
    /// Whose they are.
    pub id: VersionId,
    /// How they come out.
    pub survey: Survey,
    policies: Policies,
    frame: Frame,
    loose: HeaderValue,
    rendered: Cache<u32, HeaderValue>,
}

impl Ready {
    /// Prepares the policies of version `id`.
    pub fn new(id: VersionId, policies: Policies, rules: &Rules) -> Ready {
        let (frame, survey) = (policies.frame(rules), policies.survey(rules));
        let loose = value(frame.loose());
        let rendered = Cache::new(KEPT.min(policies.different().max(1)));
        Ready { id, survey, policies, frame, loose, rendered }
    }

    /// The policy of a page; of anything else without a number.
    pub(super) fn value(&self, file: Option<usize>) -> HeaderValue {
        let Some(set) = file.and_then(|file| self.policies.set(file)) else { return self.loose.clone() };
        if let Some(known) = self.rendered.get(&set) {
            return known;
        }
        let value = value(self.policies.render(&self.frame, set));
        self.rendered.insert(set, value.clone());
        value
    }
}

/// What is sent before the policies are there, if anything is.
pub(super) fn before(rules: &Rules) -> Option<HeaderValue> {
    csp::before(rules).map(value)
}

/// The field in which a preset's policies go.
pub(super) fn field(preset: Preset) -> HeaderName {
    match preset {
        Preset::Report => CONTENT_SECURITY_POLICY_REPORT_ONLY,
        Preset::Connected | Preset::Airgap => CONTENT_SECURITY_POLICY,
    }
}

fn value(policy: String) -> HeaderValue {
    // Sources are checked letter by letter when they are taken over; an empty field would allow everything.
    HeaderValue::from_maybe_shared(Bytes::from(policy))
        .unwrap_or_else(|_| HeaderValue::from_static("default-src 'self' 'unsafe-inline'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_to_be_reported_goes_in_the_field_that_refuses_nothing() {
        for (preset, name, before_site) in [
            (Preset::Report, "content-security-policy-report-only", false),
            (Preset::Connected, "content-security-policy", false),
            (Preset::Airgap, "content-security-policy", true),
        ] {
            assert_eq!(field(preset), name);
            assert_eq!(before(&Rules { preset, ancestors: None, most: 3072 }).is_some(), before_site, "{name}");
        }
        assert_eq!(value("default-src 'none'".to_owned()), "default-src 'none'");
        assert!(
            value("a\nb".to_owned()).to_str().unwrap().contains("default-src"),
            "an empty one would allow everything"
        );
    }
}
