//! The content security policy of a response (CSP3).
//!
//! The policies of a version are computed while the version is already served ([`docwharf_site::external::csp`]). Until
//! they are ready, and for files that are not pages, a policy without hashes is sent if the preset has one that is
//! valid for every site: `airgap` refuses other origins from the first response on.

use bytes::Bytes;
use http::header::{CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY};
use http::{HeaderName, HeaderValue};
use quick_cache::sync::Cache;

use docwharf_base::model::version::VersionId;
use docwharf_site::external::csp::{self, CspFacts, CspPreset, CspSettings, CspStatistics, CspTemplate};
use docwharf_site::media_types::runs_scripts;
use docwharf_site::sealed_version::SealedVersion;

/// The number of rendered policies that are cached, of a few KiB at most each.
const MAX_RENDERED_POLICIES: usize = 1024;

/// The policies of one version, ready to be sent.
#[derive(Debug)]
pub struct VersionCsp {
    /// The version that the policies belong to.
    pub id: VersionId,
    /// Statistics of the policies.
    pub statistics: CspStatistics,
    facts: CspFacts,
    template: CspTemplate,
    /// The policy without hashes.
    policy_without_hashes: HeaderValue,
    rendered: Cache<u32, HeaderValue>,
}

impl VersionCsp {
    /// Prepares the policies of version `id`.
    pub fn new(id: VersionId, facts: CspFacts, settings: &CspSettings) -> VersionCsp {
        let (template, statistics) = (facts.template(settings), facts.compute_statistics(settings));
        let policy_without_hashes = policy_value(template.without_hashes());
        let rendered = Cache::new(MAX_RENDERED_POLICIES.min(facts.distinct_count().max(1)));
        VersionCsp { id, statistics, facts, template, policy_without_hashes, rendered }
    }

    /// Returns the policy of a page; for `None` and files that are not pages, the policy without hashes.
    pub(super) fn value(&self, file: Option<usize>) -> HeaderValue {
        let Some(set) = file.and_then(|file| self.facts.set(file)) else {
            return self.policy_without_hashes.clone();
        };
        if let Some(value) = self.rendered.get(&set) {
            return value;
        }
        let value = policy_value(self.facts.render(&self.template, set));
        self.rendered.insert(set, value.clone());
        value
    }
}

/// The file that a response contains. It is among the response's extensions if content security policies are sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServedFile {
    /// The version of the file, which need not be the active one.
    pub(super) version: VersionId,
    /// Its number in that version.
    pub(super) file: usize,
    /// Whether browsers apply a policy to such a file. The media type decides, whether or not the file was scanned.
    pub(super) needs_policy: bool,
}

impl ServedFile {
    pub(super) fn new(version: &SealedVersion, file: usize) -> ServedFile {
        let needs_policy = runs_scripts(&version.content_type(file));
        ServedFile { version: version.id, file, needs_policy }
    }
}

/// Returns the policy that is sent until the policies of the version are ready; `None` if the preset has none.
pub(super) fn provisional_policy_value(settings: &CspSettings) -> Option<HeaderValue> {
    csp::provisional_policy(settings).map(policy_value)
}

/// Returns the name of the header field for the policies of a preset.
pub(super) fn policy_field_name(preset: CspPreset) -> HeaderName {
    match preset {
        CspPreset::Report => CONTENT_SECURITY_POLICY_REPORT_ONLY,
        CspPreset::Connected | CspPreset::Airgap => CONTENT_SECURITY_POLICY,
    }
}

fn policy_value(policy: String) -> HeaderValue {
    // Sources were checked character by character when they were collected, so this does not fail. An empty field would
    // allow everything.
    HeaderValue::from_maybe_shared(Bytes::from(policy))
        .unwrap_or_else(|_| HeaderValue::from_static("default-src 'self' 'unsafe-inline'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_report_preset_uses_content_security_policy_report_only() {
        for (preset, name, before_site) in [
            (CspPreset::Report, "content-security-policy-report-only", false),
            (CspPreset::Connected, "content-security-policy", false),
            (CspPreset::Airgap, "content-security-policy", true),
        ] {
            assert_eq!(policy_field_name(preset), name);
            assert_eq!(
                provisional_policy_value(&CspSettings { preset, ancestors: None, max_bytes: 3072 }).is_some(),
                before_site,
                "{name}"
            );
        }
        assert_eq!(policy_value("default-src 'none'".to_owned()), "default-src 'none'");
        assert!(
            policy_value("a\nb".to_owned()).to_str().unwrap().contains("default-src"),
            "an empty policy would allow everything"
        );
    }
}
