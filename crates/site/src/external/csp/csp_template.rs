//! The policies of a site as text.

use std::fmt::Write;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::super::content_fact::ResourceKind;
use super::csp_facts::{CspFacts, InlineCodeSet, NO_SET, SiteFacts};
use super::host_sources::list_sources;

/// The length of one hash source in a policy in bytes: `'sha256-`, 44 characters of Base64, `'` and a space.
const HASH_SOURCE_BYTES: usize = 8 + 44 + 2;

/// The value of `server.csp`.
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
    /// Returns the name of the preset in the configuration.
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
pub struct CspSettings {
    /// The value of `server.csp`.
    pub preset: CspPreset,
    /// The value of the `frame-ancestors` directive; `None` omits it.
    pub ancestors: Option<&'static str>,
    /// The length in bytes above which a policy omits hash sources. The rest of a policy may be longer.
    pub max_bytes: usize,
}

/// Statistics of the policies of a version.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CspStatistics {
    /// The number of pages.
    pub pages: u64,
    /// The number of pages that allow all inline scripts because their hashes are not certain.
    pub uncertain: u64,
    /// The number of pages that allow all inline scripts because their policy would exceed [`CspSettings::max_bytes`].
    pub too_long: u64,
    /// The length of the longest policy in bytes.
    pub longest_bytes: usize,
    /// The length of the policies of all pages together in bytes.
    pub total_bytes: u64,
}

/// Returns the policy that is sent before the site has been read. Only [`CspPreset::Airgap`], which does not depend on
/// the site, has one.
pub fn provisional_policy(settings: &CspSettings) -> Option<String> {
    let unknown =
        SiteFacts { uses_eval: true, uses_wasm: true, data_scripts: true, data_styles: true, ..SiteFacts::default() };
    (settings.preset == CspPreset::Airgap).then(|| CspTemplate::new(settings, &unknown).without_hashes())
}

impl CspFacts {
    /// Creates the template of all policies of this site.
    pub fn template(&self, settings: &CspSettings) -> CspTemplate {
        CspTemplate::new(settings, &self.site_facts)
    }

    /// Renders the policy of the pages with this set.
    pub fn render(&self, template: &CspTemplate, set: u32) -> String {
        let Some(set) = self.sets.get(set as usize) else { return template.without_hashes() };
        let (scripts, styles) = template.select_hashes(set);
        let mut text = String::with_capacity(template.policy_len(set, scripts, styles));
        text.push_str(&template.start);
        self.append_inline_sources(&mut text, scripts.then_some(&*set.scripts), set.has_handlers);
        text.push_str(&template.middle);
        self.append_inline_sources(&mut text, styles.then_some(&*set.styles), set.has_style_attributes);
        text.push_str(&template.end);
        text
    }

    fn append_inline_sources(&self, text: &mut String, numbers: Option<&[u32]>, in_attributes: bool) {
        let Some(numbers) = numbers else {
            text.push_str(UNSAFE_INLINE);
            return;
        };
        if in_attributes {
            text.push_str(UNSAFE_HASHES);
        }
        for &number in numbers {
            text.push_str(" 'sha256-");
            STANDARD.encode_string(self.digests[number as usize].0, text);
            text.push('\'');
        }
    }

    /// Computes statistics of the policies under these settings.
    pub fn compute_statistics(&self, settings: &CspSettings) -> CspStatistics {
        let template = self.template(settings);
        let mut statistics = CspStatistics::default();
        for set in self.set_numbers.iter().filter(|&&set| set != NO_SET) {
            let set = &self.sets[*set as usize];
            let (scripts, styles) = template.select_hashes(set);
            let len = template.policy_len(set, scripts, styles);
            statistics.pages += 1;
            statistics.uncertain += u64::from(set.script_hashes_unknown);
            statistics.too_long += u64::from(!scripts && !set.script_hashes_unknown);
            statistics.longest_bytes = statistics.longest_bytes.max(len);
            statistics.total_bytes += len as u64;
        }
        statistics
    }
}

const UNSAFE_INLINE: &str = " 'unsafe-inline'";
const UNSAFE_HASHES: &str = " 'unsafe-hashes'";

/// The template of all policies of a site under one set of settings, without the hash sources of a page, which are
/// inserted in two positions.
#[derive(Debug, Clone)]
pub struct CspTemplate {
    start: String,
    middle: String,
    end: String,
    max_bytes: usize,
}

impl CspTemplate {
    fn new(settings: &CspSettings, site_facts: &SiteFacts) -> CspTemplate {
        let sources_of = |kind: ResourceKind| {
            if settings.preset == CspPreset::Airgap { Vec::new() } else { list_sources(site_facts, kind) }
        };
        let join = |sources: Vec<String>| sources.into_iter().fold(String::new(), |text, source| text + " " + &source);
        let mut middle = String::new();
        if site_facts.uses_eval {
            middle.push_str(" 'unsafe-eval'");
        } else if site_facts.uses_wasm {
            middle.push_str(" 'wasm-unsafe-eval'");
        }
        if site_facts.data_scripts {
            middle.push_str(" data:");
        }
        middle.push_str(&join(sources_of(ResourceKind::Script)));
        middle.push_str("; style-src 'self'");
        let mut end = if site_facts.data_styles { " data:".to_owned() } else { String::new() };
        end.push_str(&join(sources_of(ResourceKind::Style)));
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
            let sources = sources_of(kind);
            if !sources.is_empty() {
                let _ = write!(end, "; {directive} 'self' data: blob:{}", join(sources));
            }
        }
        // Without `worker-src` workers fall back to `script-src`, and many are created from a blob.
        let _ = write!(end, "; worker-src 'self' blob:{}", join(sources_of(ResourceKind::Worker)));
        let _ = write!(end, "; base-uri 'self'{}", join(sources_of(ResourceKind::Base)));
        let _ = write!(end, "; form-action 'self'{}", join(sources_of(ResourceKind::Form)));
        if let Some(ancestors) = settings.ancestors {
            let _ = write!(end, "; frame-ancestors {ancestors}");
        }
        CspTemplate {
            start: "default-src 'self' data: blob:; script-src 'self'".to_owned(),
            middle,
            end,
            max_bytes: settings.max_bytes,
        }
    }

    /// Returns the policy without hash sources, for files that are not pages and for unknown pages.
    pub fn without_hashes(&self) -> String {
        [&self.start, UNSAFE_INLINE, &self.middle, UNSAFE_INLINE, &self.end].concat()
    }

    /// Decides whether the scripts and the styles of a page are allowed by hash: only if their hashes are certain and
    /// the policy does not become too long. Hashes of styles are omitted first, because other directives limit the
    /// effect of styles.
    fn select_hashes(&self, set: &InlineCodeSet) -> (bool, bool) {
        let (scripts, styles) = (!set.script_hashes_unknown, !set.style_hashes_unknown);
        let fits = |&(scripts, styles): &(bool, bool)| self.policy_len(set, scripts, styles) <= self.max_bytes;
        [(scripts, styles), (scripts, false), (false, styles)].into_iter().find(fits).unwrap_or((false, false))
    }

    fn policy_len(&self, set: &InlineCodeSet, scripts: bool, styles: bool) -> usize {
        let inline_len = |has_hashes: bool, in_attributes: bool, count: usize| {
            let attributes = if in_attributes { UNSAFE_HASHES.len() } else { 0 };
            if has_hashes { attributes + count * HASH_SOURCE_BYTES } else { UNSAFE_INLINE.len() }
        };
        self.start.len()
            + inline_len(scripts, set.has_handlers, set.scripts.len())
            + self.middle.len()
            + inline_len(styles, set.has_style_attributes, set.styles.len())
            + self.end.len()
    }
}

#[cfg(test)]
mod tests {
    use docwharf_base::model::digest::Digest;

    use super::super::host_sources::MAX_SOURCES_BYTES;
    use super::*;
    use crate::external::address::ExternalOrigin;

    const SETTINGS: CspSettings =
        CspSettings { preset: CspPreset::Connected, ancestors: Some("'self'"), max_bytes: 3072 };

    fn site_facts(origins: &[(ResourceKind, &str)]) -> SiteFacts {
        let origins = origins.iter().map(|(kind, text)| (*kind, ExternalOrigin::from_trusted(text))).collect();
        SiteFacts { origins, ..SiteFacts::default() }
    }

    fn directive(policy: &str, name: &str) -> String {
        let mut directives = policy.split("; ");
        directives.find_map(|directive| directive.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_default().to_owned()
    }

    #[test]
    fn csp_policy_has_the_computed_length_and_omits_hashes_that_make_it_too_long() {
        let digests: Vec<Digest> = (0..100u8).map(|n| Digest::compute(&[n])).collect();
        let set = |scripts: u32, styles: u32| InlineCodeSet {
            scripts: (0..scripts).collect(),
            styles: (0..styles).collect(),
            has_handlers: scripts > 1,
            has_style_attributes: true,
            ..InlineCodeSet::default()
        };
        let sets = vec![
            set(0, 0),
            set(2, 2),
            set(1, 99),
            set(99, 1),
            InlineCodeSet { script_hashes_unknown: true, ..set(2, 0) },
        ];
        let facts =
            CspFacts { set_numbers: vec![0, NO_SET, 1, 2, 3, 4], sets, digests, site_facts: SiteFacts::default() };
        let template = facts.template(&SETTINGS);
        for number in 0..facts.sets.len() as u32 {
            let set = &facts.sets[number as usize];
            let (scripts, styles) = template.select_hashes(set);
            let text = facts.render(&template, number);
            assert_eq!(text.len(), template.policy_len(set, scripts, styles), "{text}");
            assert!(text.len() <= SETTINGS.max_bytes);
        }
        let script_and_style_sources = |number: u32| {
            let text = facts.render(&template, number);
            (directive(&text, "script-src"), directive(&text, "style-src"))
        };
        assert_eq!(script_and_style_sources(0), ("'self'".into(), "'self' 'unsafe-hashes'".into()));
        assert!(
            script_and_style_sources(1).0.starts_with("'self' 'unsafe-hashes' 'sha256-")
                && script_and_style_sources(1).1.contains("sha256")
        );
        assert!(
            script_and_style_sources(2).0.contains("sha256")
                && script_and_style_sources(2).1 == "'self' 'unsafe-inline'"
        );
        assert!(
            script_and_style_sources(3).0 == "'self' 'unsafe-inline'"
                && script_and_style_sources(3).1.contains("sha256")
        );
        assert_eq!(script_and_style_sources(4).0, "'self' 'unsafe-inline'");
        let statistics = facts.compute_statistics(&SETTINGS);
        assert_eq!((statistics.pages, statistics.uncertain, statistics.too_long), (5, 1, 1));
        assert_eq!(facts.set(1), None);
    }

    #[test]
    fn connected_preset_allows_used_origins_and_airgap_preset_allows_none() {
        let used_sources = site_facts(&[
            (ResourceKind::Style, "https://fonts.googleapis.com"),
            (ResourceKind::Image, "//img.example"),
            (ResourceKind::Connect, "https://api.example"),
            (ResourceKind::Form, "https://form.example"),
        ]);
        let policy = CspTemplate::new(&SETTINGS, &used_sources).without_hashes();
        assert_eq!(directive(&policy, "style-src"), "'self' 'unsafe-inline' https://fonts.googleapis.com");
        assert_eq!(
            directive(&policy, "font-src"),
            "'self' data: blob: https://fonts.googleapis.com https://fonts.gstatic.com"
        );
        assert!(directive(&policy, "img-src").ends_with(" img.example"), "{policy}");
        assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https://api.example");
        assert_eq!(directive(&policy, "form-action"), "'self' https://form.example");
        assert_eq!(directive(&policy, "frame-ancestors"), "'self'");
        let airgap =
            CspTemplate::new(&CspSettings { preset: CspPreset::Airgap, ..SETTINGS }, &used_sources).without_hashes();
        assert!(!airgap.contains("example") && !airgap.contains("http"), "{airgap}");
    }

    #[test]
    fn external_scripts_may_connect_to_any_https_host_but_only_listed_scripts_run() {
        let policy = CspTemplate::new(
            &SETTINGS,
            &site_facts(&[(ResourceKind::Script, "https://cdn.example"), (ResourceKind::Image, "http://i.example")]),
        );
        let policy = policy.without_hashes();
        assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-inline' https://cdn.example");
        assert_eq!(directive(&policy, "img-src"), "'self' data: blob: http://i.example https:");
        assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https: wss:");
    }

    #[test]
    fn only_the_airgap_preset_has_a_provisional_policy() {
        assert_eq!(provisional_policy(&SETTINGS), None);
        let policy = provisional_policy(&CspSettings { preset: CspPreset::Airgap, ..SETTINGS }).unwrap();
        assert!(!policy.contains("http") && policy.contains("'unsafe-inline'"), "{policy}");
    }

    // Regression: the policy refused `ws:` when a site named too many WebSocket hosts.
    #[test]
    fn a_site_with_more_origins_than_fit_allows_whole_schemes() {
        let many: Vec<String> = (0..40).map(|n| format!("https://host-number-{n:03}.example")).collect();
        let many: Vec<(ResourceKind, &str)> = many.iter().map(|text| (ResourceKind::Image, text.as_str())).collect();
        let policy = CspTemplate::new(&SETTINGS, &site_facts(&many)).without_hashes();
        assert_eq!(directive(&policy, "img-src"), "'self' data: blob: http: https:");
        let many = |kind: ResourceKind| SiteFacts { unlisted_kinds: [kind].into(), ..SiteFacts::default() };
        let policy = CspTemplate::new(&SETTINGS, &many(ResourceKind::Style)).without_hashes();
        assert_eq!(directive(&policy, "font-src"), "'self' data: blob: http: https:");
        assert_eq!(
            (directive(&policy, "connect-src"), directive(&policy, "frame-src")),
            (String::new(), String::new())
        );
        let policy = CspTemplate::new(&SETTINGS, &many(ResourceKind::Connect)).without_hashes();
        assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: http: https: ws: wss:");
        assert!(!directive(&policy, "script-src").contains("http"), "{policy}");
        let policy = CspTemplate::new(&SETTINGS, &many(ResourceKind::Script)).without_hashes();
        assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https: wss:");
        assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-inline' http: https:");
    }

    #[test]
    fn style_hashes_are_dropped_before_script_hashes_and_only_above_the_size_limit() {
        let template = CspTemplate::new(&SETTINGS, &SiteFacts::default());
        let base_len = template.policy_len(&InlineCodeSet::default(), true, true);
        let set = |scripts: u32, styles: u32| InlineCodeSet {
            scripts: (0..scripts).collect(),
            styles: (0..styles).collect(),
            ..InlineCodeSet::default()
        };
        let with_max_bytes = |bytes: usize| CspTemplate { max_bytes: bytes, ..template.clone() };
        for (scripts, styles, extra_bytes, expected) in [
            (20, 20, 40 * HASH_SOURCE_BYTES, (true, true)),
            (20, 20, 40 * HASH_SOURCE_BYTES - 1, (true, false)),
            (20, 20, 20 * HASH_SOURCE_BYTES + UNSAFE_INLINE.len(), (true, false)),
            (20, 20, 20 * HASH_SOURCE_BYTES + UNSAFE_INLINE.len() - 1, (false, false)),
            (21, 20, 20 * HASH_SOURCE_BYTES + UNSAFE_INLINE.len(), (false, true)),
            (20, 21, 20 * HASH_SOURCE_BYTES + UNSAFE_INLINE.len(), (true, false)),
            (0, 0, 0, (true, true)),
        ] {
            assert_eq!(
                with_max_bytes(base_len + extra_bytes).select_hashes(&set(scripts, styles)),
                expected,
                "{scripts} {styles} {extra_bytes}"
            );
        }
        let with_unknown_hashes = InlineCodeSet { script_hashes_unknown: true, ..set(0, 1) };
        assert_eq!(with_max_bytes(1 << 20).select_hashes(&with_unknown_hashes), (false, true));
        assert_eq!(
            with_max_bytes(1 << 20).select_hashes(&InlineCodeSet { style_hashes_unknown: true, ..set(1, 0) }),
            (true, false)
        );
        assert_eq!(with_max_bytes(base_len).select_hashes(&with_unknown_hashes), (false, false));
    }

    #[test]
    fn each_resource_kind_has_its_csp_directive_and_each_preset_its_sources() {
        for (kind, name) in [
            (ResourceKind::Script, "script-src"),
            (ResourceKind::Style, "style-src"),
            (ResourceKind::Image, "img-src"),
            (ResourceKind::Font, "font-src"),
            (ResourceKind::Connect, "connect-src"),
            (ResourceKind::Media, "media-src"),
            (ResourceKind::Frame, "frame-src"),
            (ResourceKind::Object, "object-src"),
            (ResourceKind::Manifest, "manifest-src"),
            (ResourceKind::Worker, "worker-src"),
            (ResourceKind::Base, "base-uri"),
            (ResourceKind::Form, "form-action"),
        ] {
            let used_sources = site_facts(&[(kind, "https://used.example")]);
            for (preset, expected) in
                [(CspPreset::Connected, true), (CspPreset::Report, true), (CspPreset::Airgap, false)]
            {
                let policy = CspTemplate::new(&CspSettings { preset, ..SETTINGS }, &used_sources).without_hashes();
                assert_eq!(directive(&policy, name).ends_with(" https://used.example"), expected, "{name}: {policy}");
            }
        }
        for (site_facts, scripts, styles) in [
            (SiteFacts { uses_eval: true, uses_wasm: true, ..SiteFacts::default() }, " 'unsafe-eval'", ""),
            (SiteFacts { uses_wasm: true, ..SiteFacts::default() }, " 'wasm-unsafe-eval'", ""),
            (SiteFacts { data_scripts: true, ..SiteFacts::default() }, " data:", ""),
            (SiteFacts { data_styles: true, ..SiteFacts::default() }, "", " data:"),
            (SiteFacts::default(), "", ""),
        ] {
            let policy = CspTemplate::new(&CspSettings { ancestors: None, ..SETTINGS }, &site_facts).without_hashes();
            assert_eq!(directive(&policy, "script-src"), format!("'self' 'unsafe-inline'{scripts}"));
            assert_eq!(directive(&policy, "style-src"), format!("'self' 'unsafe-inline'{styles}"));
            assert_eq!(directive(&policy, "default-src"), "'self' data: blob:");
            assert_eq!(directive(&policy, "worker-src"), "'self' blob:");
            assert!(!policy.contains("frame-ancestors"), "{policy}");
        }
    }

    /// The origins that a page names, a kind, and the sources that the page needs for this kind.
    type SourcesCase<'a> = (&'a [(ResourceKind, &'a str)], ResourceKind, &'a [&'a str]);

    #[test]
    fn origins_of_styles_and_scripts_are_also_allowed_for_the_resources_they_load() {
        let cases: [SourcesCase<'_>; 14] = [
            (
                &[(ResourceKind::Style, "https://use.typekit.net")],
                ResourceKind::Font,
                &["https://p.typekit.net", "https://use.typekit.net"],
            ),
            (
                &[(ResourceKind::Style, "//fonts.googleapis.com")],
                ResourceKind::Image,
                &["fonts.googleapis.com", "https://fonts.gstatic.com"],
            ),
            (&[(ResourceKind::Style, "https://fonts.bunny.net")], ResourceKind::Font, &["https://fonts.bunny.net"]),
            (&[(ResourceKind::Style, "https://s.example")], ResourceKind::Media, &[]),
            (&[(ResourceKind::Font, "https://f.example")], ResourceKind::Image, &[]),
            (&[(ResourceKind::Script, "https://s.example")], ResourceKind::Style, &["https:"]),
            (
                &[(ResourceKind::Script, "https://s.example"), (ResourceKind::Font, "//f.example")],
                ResourceKind::Font,
                &["f.example", "https:"],
            ),
            (
                &[(ResourceKind::Script, "https://s.example"), (ResourceKind::Connect, "ws://c.example")],
                ResourceKind::Connect,
                &["https:", "ws://c.example", "wss:"],
            ),
            (&[(ResourceKind::Script, "https://s.example")], ResourceKind::Media, &["https:"]),
            (&[(ResourceKind::Script, "https://s.example")], ResourceKind::Frame, &["https:"]),
            (&[(ResourceKind::Script, "https://s.example")], ResourceKind::Object, &[]),
            (&[(ResourceKind::Script, "https://s.example")], ResourceKind::Worker, &[]),
            (&[(ResourceKind::Script, "https://s.example")], ResourceKind::Form, &[]),
            (&[(ResourceKind::Image, "https://[::1]")], ResourceKind::Image, &[]),
        ];
        for (origins, kind, expected) in cases {
            assert_eq!(list_sources(&site_facts(origins), kind), expected, "{origins:?}");
        }
        // The limit counts the space before each source.
        for (length, is_named) in [(MAX_SOURCES_BYTES - 1, true), (MAX_SOURCES_BYTES, false)] {
            let origin = format!("https://{}", "a".repeat(length - "https://".len()));
            let sources = list_sources(&site_facts(&[(ResourceKind::Image, &origin)]), ResourceKind::Image);
            assert_eq!(sources == [origin], is_named, "{length}");
        }
    }
}
