use docwharf_base::model::digest::Digest;

use super::super::host_sources::MAX_SOURCES_BYTES;
use super::*;
use crate::external::address::ExternalOrigin;

const RULES: CspRules = CspRules { preset: CspPreset::Connected, ancestors: Some("'self'"), max_bytes: 3072 };

fn site(origins: &[(ResourceKind, &str)]) -> SiteFacts {
    let origins = origins.iter().map(|(kind, text)| (*kind, ExternalOrigin::from_trusted(text))).collect();
    SiteFacts { origins, ..SiteFacts::default() }
}

fn directive(policy: &str, name: &str) -> String {
    let mut all = policy.split("; ");
    all.find_map(|one| one.strip_prefix(name)?.strip_prefix(' ')).unwrap_or_default().to_owned()
}

#[test]
fn base64_is_that_of_the_rfc() {
    for (text, expected) in [("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
        let mut out = String::new();
        base64(&mut out, text.as_bytes());
        assert_eq!(out, expected);
    }
}

#[test]
fn a_policy_is_as_long_as_was_reckoned_and_falls_back_when_it_is_too_long() {
    let digests: Vec<Digest> = (0..100u8).map(|n| Digest::of(&[n])).collect();
    let set = |scripts: u32, styles: u32| InlineCodeSet {
        scripts: (0..scripts).collect(),
        styles: (0..styles).collect(),
        has_handlers: scripts > 1,
        has_style_attributes: true,
        ..InlineCodeSet::default()
    };
    let sets =
        vec![set(0, 0), set(2, 2), set(1, 99), set(99, 1), InlineCodeSet { script_hashes_unknown: true, ..set(2, 0) }];
    let policies = SitePolicies { files: vec![0, NO_SET, 1, 2, 3, 4], sets, digests, site: SiteFacts::default() };
    let frame = policies.template(&RULES);
    for number in 0..policies.sets.len() as u32 {
        let set = &policies.sets[number as usize];
        let (scripts, styles) = frame.hashed(set);
        let text = policies.render(&frame, number);
        assert_eq!(text.len(), frame.len(set, scripts, styles), "{text}");
        assert!(text.len() <= RULES.max_bytes);
    }
    let of = |number: u32| {
        let text = policies.render(&frame, number);
        (directive(&text, "script-src"), directive(&text, "style-src"))
    };
    assert_eq!(of(0), ("'self'".into(), "'self' 'unsafe-hashes'".into()));
    assert!(of(1).0.starts_with("'self' 'unsafe-hashes' 'sha256-") && of(1).1.contains("sha256"));
    assert!(of(2).0.contains("sha256") && of(2).1 == "'self' 'unsafe-inline'");
    assert!(of(3).0 == "'self' 'unsafe-inline'" && of(3).1.contains("sha256"));
    assert_eq!(of(4).0, "'self' 'unsafe-inline'");
    let survey = policies.survey(&RULES);
    assert_eq!((survey.pages, survey.unsure, survey.long), (5, 1, 1));
    assert_eq!(policies.set(1), None);
}

#[test]
fn connected_allows_what_is_used_and_airgap_nothing() {
    let used = site(&[
        (ResourceKind::Style, "https://fonts.googleapis.com"),
        (ResourceKind::Image, "//img.example"),
        (ResourceKind::Connect, "https://api.example"),
        (ResourceKind::Form, "https://form.example"),
    ]);
    let policy = PolicyTemplate::new(&RULES, &used).without_hashes();
    assert_eq!(directive(&policy, "style-src"), "'self' 'unsafe-inline' https://fonts.googleapis.com");
    assert_eq!(
        directive(&policy, "font-src"),
        "'self' data: blob: https://fonts.googleapis.com https://fonts.gstatic.com"
    );
    assert!(directive(&policy, "img-src").ends_with(" img.example"), "{policy}");
    assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https://api.example");
    assert_eq!(directive(&policy, "form-action"), "'self' https://form.example");
    assert_eq!(directive(&policy, "frame-ancestors"), "'self'");
    let airgap = PolicyTemplate::new(&CspRules { preset: CspPreset::Airgap, ..RULES }, &used).without_hashes();
    assert!(!airgap.contains("example") && !airgap.contains("http"), "{airgap}");
}

#[test]
fn scripts_of_others_may_ask_others_but_only_named_ones_run() {
    let policy = PolicyTemplate::new(
        &RULES,
        &site(&[(ResourceKind::Script, "https://cdn.example"), (ResourceKind::Image, "http://i.example")]),
    );
    let policy = policy.without_hashes();
    assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-inline' https://cdn.example");
    assert_eq!(directive(&policy, "img-src"), "'self' data: blob: http://i.example https:");
    assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https: wss:");
}

#[test]
fn before_anything_is_known_only_airgap_says_something() {
    assert_eq!(provisional_policy(&RULES), None);
    let policy = provisional_policy(&CspRules { preset: CspPreset::Airgap, ..RULES }).unwrap();
    assert!(!policy.contains("http") && policy.contains("'unsafe-inline'"), "{policy}");
}

#[test]
fn a_site_with_more_origins_than_fit_allows_whole_schemes() {
    let many: Vec<String> = (0..40).map(|n| format!("https://host-number-{n:03}.example")).collect();
    let many: Vec<(ResourceKind, &str)> = many.iter().map(|text| (ResourceKind::Image, text.as_str())).collect();
    let policy = PolicyTemplate::new(&RULES, &site(&many)).without_hashes();
    assert_eq!(directive(&policy, "img-src"), "'self' data: blob: http: https:");
    let many = |kind: ResourceKind| SiteFacts { too_many: [kind].into(), ..SiteFacts::default() };
    let policy = PolicyTemplate::new(&RULES, &many(ResourceKind::Style)).without_hashes();
    assert_eq!(directive(&policy, "font-src"), "'self' data: blob: http: https:");
    assert_eq!((directive(&policy, "connect-src"), directive(&policy, "frame-src")), (String::new(), String::new()));
    let policy = PolicyTemplate::new(&RULES, &many(ResourceKind::Connect)).without_hashes();
    assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: http: https: ws: wss:");
    assert!(!directive(&policy, "script-src").contains("http"), "{policy}");
    let policy = PolicyTemplate::new(&RULES, &many(ResourceKind::Script)).without_hashes();
    assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https: wss:");
    assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-inline' http: https:");
}

#[test]
fn styles_are_given_up_before_scripts_and_neither_at_the_bound() {
    let frame = PolicyTemplate::new(&RULES, &SiteFacts::default());
    let bare = frame.len(&InlineCodeSet::default(), true, true);
    let set = |scripts: u32, styles: u32| InlineCodeSet {
        scripts: (0..scripts).collect(),
        styles: (0..styles).collect(),
        ..InlineCodeSet::default()
    };
    let most = |bytes: usize| PolicyTemplate { max_bytes: bytes, ..frame.clone() };
    for (scripts, styles, room, expected) in [
        (20, 20, 40 * HASH_SOURCE_BYTES, (true, true)),
        (20, 20, 40 * HASH_SOURCE_BYTES - 1, (true, false)),
        (20, 20, 20 * HASH_SOURCE_BYTES + UNSAFE_INLINE.len(), (true, false)),
        (20, 20, 20 * HASH_SOURCE_BYTES + UNSAFE_INLINE.len() - 1, (false, false)),
        (21, 20, 20 * HASH_SOURCE_BYTES + UNSAFE_INLINE.len(), (false, true)),
        (20, 21, 20 * HASH_SOURCE_BYTES + UNSAFE_INLINE.len(), (true, false)),
        (0, 0, 0, (true, true)),
    ] {
        assert_eq!(most(bare + room).hashed(&set(scripts, styles)), expected, "{scripts} {styles} {room}");
    }
    let loose = InlineCodeSet { script_hashes_unknown: true, ..set(0, 1) };
    assert_eq!(most(1 << 20).hashed(&loose), (false, true));
    assert_eq!(most(1 << 20).hashed(&InlineCodeSet { style_hashes_unknown: true, ..set(1, 0) }), (true, false));
    assert_eq!(most(bare).hashed(&loose), (false, false));
}

#[test]
fn each_preset_says_what_it_may_and_each_kind_has_its_directive() {
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
        let used = site(&[(kind, "https://used.example")]);
        for (preset, expected) in [(CspPreset::Connected, true), (CspPreset::Report, true), (CspPreset::Airgap, false)]
        {
            let policy = PolicyTemplate::new(&CspRules { preset, ..RULES }, &used).without_hashes();
            assert_eq!(directive(&policy, name).ends_with(" https://used.example"), expected, "{name}: {policy}");
        }
    }
    for (site, scripts, styles) in [
        (SiteFacts { evaluates: true, wasm: true, ..SiteFacts::default() }, " 'unsafe-eval'", ""),
        (SiteFacts { wasm: true, ..SiteFacts::default() }, " 'wasm-unsafe-eval'", ""),
        (SiteFacts { data_scripts: true, ..SiteFacts::default() }, " data:", ""),
        (SiteFacts { data_styles: true, ..SiteFacts::default() }, "", " data:"),
        (SiteFacts::default(), "", ""),
    ] {
        let policy = PolicyTemplate::new(&CspRules { ancestors: None, ..RULES }, &site).without_hashes();
        assert_eq!(directive(&policy, "script-src"), format!("'self' 'unsafe-inline'{scripts}"));
        assert_eq!(directive(&policy, "style-src"), format!("'self' 'unsafe-inline'{styles}"));
        assert_eq!(directive(&policy, "default-src"), "'self' data: blob:");
        assert_eq!(directive(&policy, "worker-src"), "'self' blob:");
        assert!(!policy.contains("frame-ancestors"), "{policy}");
    }
}

/// The origins that a page names, a kind, and the sources that the page needs for this kind.
type Brought<'a> = (&'a [(ResourceKind, &'a str)], ResourceKind, &'a [&'a str]);

#[test]
fn what_is_brought_along_is_allowed_where_it_may_come_from() {
    let cases: [Brought<'_>; 14] = [
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
        assert_eq!(sources_of_kind(&site(origins), kind), expected, "{origins:?}");
    }
    // The limit counts the space before each source.
    for (length, is_named) in [(MAX_SOURCES_BYTES - 1, true), (MAX_SOURCES_BYTES, false)] {
        let origin = format!("https://{}", "a".repeat(length - "https://".len()));
        let found = sources_of_kind(&site(&[(ResourceKind::Image, &origin)]), ResourceKind::Image);
        assert_eq!(found == [origin], is_named, "{length}");
    }
}
