//! The policies of a site as text.

use std::fmt::Write;

use super::super::content_fact::ResourceKind;
use super::host_sources::sources_of_kind;
use super::site_policies::{InlineCodeSet, NO_SET, SiteFacts, SitePolicies};

/// The length of one hash source in a policy in bytes: `'sha256-`, 44 characters of Base64, `'` and a space.
const HASH_SOURCE_BYTES: usize = 8 + 44 + 2;

/// The purpose of a policy (`server.csp`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CspPreset {
    /// The browser reports violations of `connected` and blocks nothing.
    Report,
    /// Everything that the pages use is allowed.
    Connected,
    /// No external origin is allowed.
    Airgap,
}

impl CspPreset {
    /// The name of the preset in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            CspPreset::Report => "report",
            CspPreset::Connected => "connected",
            CspPreset::Airgap => "airgap",
        }
    }
}

/// The settings that policies depend on besides the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CspRules {
    /// The purpose of the policies.
    pub preset: CspPreset,
    /// The value of the `frame-ancestors` directive; `None` omits it.
    pub ancestors: Option<&'static str>,
    /// The largest length of a policy in bytes. A policy that would be longer omits hash sources.
    pub max_bytes: usize,
}

/// Statistics of the policies of a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PolicyStatistics {
    /// The number of pages.
    pub pages: u64,
    /// The number of pages that allow all inline scripts because their hashes are not certain.
    pub unsure: u64,
    /// The number of pages that allow all inline scripts because their policy would be longer than the rules allow.
    pub long: u64,
    /// The length of the longest policy in bytes.
    pub longest: usize,
    /// The length of the policies of all pages together in bytes.
    pub total: u64,
}

/// Returns the policy that is sent before the site has been read. Only [`CspPreset::Airgap`], which does not depend on
/// the site, has one.
pub fn provisional_policy(rules: &CspRules) -> Option<String> {
    let unknown =
        SiteFacts { evaluates: true, wasm: true, data_scripts: true, data_styles: true, ..SiteFacts::default() };
    (rules.preset == CspPreset::Airgap).then(|| PolicyTemplate::new(rules, &unknown).without_hashes())
}

impl SitePolicies {
    /// Makes the template of all policies of this site.
    pub fn template(&self, rules: &CspRules) -> PolicyTemplate {
        PolicyTemplate::new(rules, &self.site)
    }

    /// Renders the policy of the pages with this set.
    pub fn render(&self, frame: &PolicyTemplate, set: u32) -> String {
        let Some(set) = self.sets.get(set as usize) else { return frame.without_hashes() };
        let (scripts, styles) = frame.hashed(set);
        let mut text = String::with_capacity(frame.len(set, scripts, styles));
        text.push_str(&frame.start);
        self.sources(&mut text, scripts.then_some(&*set.scripts), set.has_handlers);
        text.push_str(&frame.middle);
        self.sources(&mut text, styles.then_some(&*set.styles), set.has_style_attributes);
        text.push_str(&frame.end);
        text
    }

    fn sources(&self, text: &mut String, named: Option<&[u32]>, in_attributes: bool) {
        let Some(numbers) = named else {
            text.push_str(UNSAFE_INLINE);
            return;
        };
        if in_attributes {
            text.push_str(UNSAFE_HASHES);
        }
        for &number in numbers {
            text.push_str(" 'sha256-");
            base64(text, &self.digests[number as usize].0);
            text.push('\'');
        }
    }

    /// Computes statistics of the policies under these rules.
    pub fn survey(&self, rules: &CspRules) -> PolicyStatistics {
        let frame = self.template(rules);
        let mut survey = PolicyStatistics::default();
        for set in self.files.iter().filter(|&&set| set != NO_SET) {
            let set = &self.sets[*set as usize];
            let (scripts, styles) = frame.hashed(set);
            let len = frame.len(set, scripts, styles);
            survey.pages += 1;
            survey.unsure += u64::from(set.script_hashes_unknown);
            survey.long += u64::from(!scripts && !set.script_hashes_unknown);
            survey.longest = survey.longest.max(len);
            survey.total += len as u64;
        }
        survey
    }
}

const UNSAFE_INLINE: &str = " 'unsafe-inline'";
const UNSAFE_HASHES: &str = " 'unsafe-hashes'";

/// The template of all policies of a site under one set of rules, with two gaps for the hash sources of a page.
#[derive(Debug, Clone)]
pub struct PolicyTemplate {
    start: String,
    middle: String,
    end: String,
    max_bytes: usize,
}

impl PolicyTemplate {
    fn new(rules: &CspRules, site: &SiteFacts) -> PolicyTemplate {
        let of = |kind: ResourceKind| {
            if rules.preset == CspPreset::Airgap { Vec::new() } else { sources_of_kind(site, kind) }
        };
        let list = |sources: Vec<String>| sources.into_iter().fold(String::new(), |all, one| all + " " + &one);
        let mut middle = String::new();
        if site.evaluates {
            middle.push_str(" 'unsafe-eval'");
        } else if site.wasm {
            middle.push_str(" 'wasm-unsafe-eval'");
        }
        if site.data_scripts {
            middle.push_str(" data:");
        }
        middle.push_str(&list(of(ResourceKind::Script)));
        middle.push_str("; style-src 'self'");
        let mut end = if site.data_styles { " data:".to_owned() } else { String::new() };
        end.push_str(&list(of(ResourceKind::Style)));
        // A directive that is omitted falls back to `default-src`. `data:` and `blob:` are not external origins.
        for (kind, directive) in [
            (ResourceKind::Image, "img-src"),
            (ResourceKind::Font, "font-src"),
            (ResourceKind::Connect, "connect-src"),
            (ResourceKind::Media, "media-src"),
            (ResourceKind::Frame, "frame-src"),
            (ResourceKind::Object, "object-src"),
            (ResourceKind::Manifest, "manifest-src"),
        ] {
            let sources = of(kind);
            if !sources.is_empty() {
                let _ = write!(end, "; {directive} 'self' data: blob:{}", list(sources));
            }
        }
        // Without `worker-src` workers fall back to `script-src`, and many are created from a blob.
        let _ = write!(end, "; worker-src 'self' blob:{}", list(of(ResourceKind::Worker)));
        let _ = write!(end, "; base-uri 'self'{}", list(of(ResourceKind::Base)));
        let _ = write!(end, "; form-action 'self'{}", list(of(ResourceKind::Form)));
        if let Some(ancestors) = rules.ancestors {
            let _ = write!(end, "; frame-ancestors {ancestors}");
        }
        PolicyTemplate {
            start: "default-src 'self' data: blob:; script-src 'self'".to_owned(),
            middle,
            end,
            max_bytes: rules.max_bytes,
        }
    }

    /// The policy without hash sources, for files that are not pages and for pages that are not known.
    pub fn without_hashes(&self) -> String {
        [&self.start, UNSAFE_INLINE, &self.middle, UNSAFE_INLINE, &self.end].concat()
    }

    /// Decides whether the scripts and the styles of a page are allowed by hash: only if their hashes are certain and
    /// the policy does not become too long. Hashes of styles are omitted first, because other directives limit the
    /// effect of styles.
    fn hashed(&self, set: &InlineCodeSet) -> (bool, bool) {
        let (scripts, styles) = (!set.script_hashes_unknown, !set.style_hashes_unknown);
        let fits = |&(scripts, styles): &(bool, bool)| self.len(set, scripts, styles) <= self.max_bytes;
        [(scripts, styles), (scripts, false), (false, styles)].into_iter().find(fits).unwrap_or((false, false))
    }

    fn len(&self, set: &InlineCodeSet, scripts: bool, styles: bool) -> usize {
        let gap = |named: bool, in_attributes: bool, count: usize| {
            let attributes = if in_attributes { UNSAFE_HASHES.len() } else { 0 };
            if named { attributes + count * HASH_SOURCE_BYTES } else { UNSAFE_INLINE.len() }
        };
        self.start.len()
            + gap(scripts, set.has_handlers, set.scripts.len())
            + self.middle.len()
            + gap(styles, set.has_style_attributes, set.styles.len())
            + self.end.len()
    }
}

/// Appends `bytes` in Base64 with padding (RFC 4648, section 4).
fn base64(out: &mut String, bytes: &[u8]) {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let word = group.iter().fold(0u32, |word, &byte| word << 8 | u32::from(byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let letter = LETTERS[(word >> (18 - 6 * place)) as usize & 63];
            out.push(if place <= group.len() { char::from(letter) } else { '=' });
        }
    }
}

#[cfg(test)]
mod tests;
