//! The content security policy of each page, computed from what the pages say.
//!
//! Two things with two scopes. **Hashes** of inline scripts are the page's own: a list for the whole site would be too
//! long for any header. **Origins** are the whole site's: a page that is reached by a soft navigation, as Next.js does
//! it, is shown under the policy of the page at which the reader came in.
//!
//! Not used are nonces (a page is the same bytes for everybody and is cached) and `'strict-dynamic'` (it would refuse
//! the page's own scripts from files). Styles are named by hash on pages without scripts only: what scripts put into a
//! page is not known here, and scripts put styles there all the time.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::sync::{Mutex, PoisonError};

use docwharf_base::model::digest::Digest;
use crate::sealed::Sealed;

use super::Kind;
use super::address::Origin;
use super::collect::{Builder, Collector};
use super::read_all;

pub use super::encoded::{Fault, decode, encode};

/// Bytes that all sources of one directive may take; beyond that it allows whole schemes.
const SOURCES: usize = 600;
/// The number of no set.
pub(super) const NONE: u32 = u32::MAX;
/// What one hash takes in a policy: `'sha256-`, 44 letters, `'` and a space.
const HASH: usize = 8 + 44 + 2;

/// Style sheets of well-known hosts whose fonts and images come from another: these cannot be read here.
const COMPANIONS: [(&str, &str); 3] = [
    ("fonts.googleapis.com", "https://fonts.gstatic.com"),
    ("use.typekit.net", "https://p.typekit.net"),
    ("fonts.bunny.net", "https://fonts.bunny.net"),
];

/// What a policy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The browser tells what `connected` would refuse, and refuses nothing.
    Report,
    /// What the pages use is allowed.
    Connected,
    /// No origin but this one.
    Airgap,
}

impl Preset {
    /// As it is configured.
    pub fn name(self) -> &'static str {
        match self {
            Preset::Report => "report",
            Preset::Connected => "connected",
            Preset::Airgap => "airgap",
        }
    }
}

/// What decides about policies besides the site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// What they are for.
    pub preset: Preset,
    /// What `frame-ancestors` says, if it is to say anything.
    pub ancestors: Option<&'static str>,
    /// Bytes that a policy may have; a longer one names no hashes.
    pub most: usize,
}

/// What a whole site uses.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Site {
    /// Other origins and what for.
    pub origins: BTreeSet<(Kind, Origin)>,
    /// What they are too many for to be told apart; then none is kept.
    pub many: BTreeSet<Kind>,
    /// Whether a script makes code of text.
    pub evaluates: bool,
    /// Whether a script runs WebAssembly.
    pub wasm: bool,
    /// Whether a script stands in an address.
    pub data_scripts: bool,
    /// Whether a style does.
    pub data_styles: bool,
}

/// What stands in a page; the numbers are those of digests.
#[allow(clippy::struct_excessive_bools)] // each is a fact of its own
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Set {
    /// Inline scripts and handlers.
    pub scripts: Box<[u32]>,
    /// Inline styles and `style` attributes.
    pub styles: Box<[u32]>,
    /// Whether any script runs.
    pub runs: bool,
    /// Whether some scripts stand in attributes.
    pub has_handlers: bool,
    /// Whether some styles do.
    pub has_style_attributes: bool,
    /// Whether its scripts cannot be named by hash.
    pub loose_script: bool,
    /// Whether its styles cannot.
    pub loose_style: bool,
}

/// All that policies of one version are made of.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policies {
    /// The number of each file's set; [`NONE`] for what is no page.
    pub(super) files: Vec<u32>,
    pub(super) sets: Vec<Set>,
    pub(super) digests: Vec<Digest>,
    /// What the whole site uses.
    pub site: Site,
}

/// How policies come out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Survey {
    /// Pages.
    pub pages: u64,
    /// Those whose inline scripts are allowed as they come, because they cannot be named for certain.
    pub unsure: u64,
    /// The same, because their policy would be longer than the rules allow.
    pub long: u64,
    /// Bytes of the longest policy that is sent.
    pub longest: usize,
    /// Bytes of all pages' policies together.
    pub total: u64,
}

/// Reads the whole of `site`, with so many threads. `stop` is asked again and again; once it says yes: `None`.
pub fn compute(site: &Sealed, threads: usize, stop: &(dyn Fn() -> bool + Sync)) -> Option<Policies> {
    let builder = Mutex::new(Builder::new(site.index().len()));
    let collectors = read_all(site, threads, stop, || Collector::new(&builder))?;
    collectors.into_iter().for_each(Collector::finish);
    Some(builder.into_inner().unwrap_or_else(PoisonError::into_inner).policies())
}

/// The policy while nothing is known of the site; only a preset that does not depend on it has one.
pub fn before(rules: &Rules) -> Option<String> {
    let unknown = Site { evaluates: true, wasm: true, data_scripts: true, data_styles: true, ..Site::default() };
    (rules.preset == Preset::Airgap).then(|| Frame::new(rules, &unknown).loose())
}

impl Policies {
    /// The number of a page's set; none for what is no page.
    pub fn set(&self, file: usize) -> Option<u32> {
        self.files.get(file).copied().filter(|&set| set != NONE)
    }

    /// What all policies of this site have in common.
    pub fn frame(&self, rules: &Rules) -> Frame {
        Frame::new(rules, &self.site)
    }

    /// The policy of the pages with this set.
    pub fn render(&self, frame: &Frame, set: u32) -> String {
        let Some(set) = self.sets.get(set as usize) else { return frame.loose() };
        let (scripts, styles) = frame.named(set);
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
            text.push_str(LOOSE);
            return;
        };
        if in_attributes {
            text.push_str(IN_ATTRIBUTES);
        }
        for &number in numbers {
            text.push_str(" 'sha256-");
            base64(text, &self.digests[number as usize].0);
            text.push('\'');
        }
    }

    /// How the policies come out under these rules.
    pub fn survey(&self, rules: &Rules) -> Survey {
        let frame = self.frame(rules);
        let mut survey = Survey::default();
        for set in self.files.iter().filter(|&&set| set != NONE) {
            let set = &self.sets[*set as usize];
            let (scripts, styles) = frame.named(set);
            let len = frame.len(set, scripts, styles);
            survey.pages += 1;
            survey.unsure += u64::from(set.loose_script);
            survey.long += u64::from(!scripts && !set.loose_script);
            survey.longest = survey.longest.max(len);
            survey.total += len as u64;
        }
        survey
    }

    /// How many different policies there are.
    pub fn different(&self) -> usize {
        self.sets.len()
    }
}

const LOOSE: &str = " 'unsafe-inline'";
const IN_ATTRIBUTES: &str = " 'unsafe-hashes'";

/// What all policies of a site under the same rules have in common, with two gaps for what is a page's own.
#[derive(Debug, Clone)]
pub struct Frame {
    start: String,
    middle: String,
    end: String,
    most: usize,
}

impl Frame {
    fn new(rules: &Rules, site: &Site) -> Frame {
        let of = |kind: Kind| if rules.preset == Preset::Airgap { Vec::new() } else { sources(site, kind) };
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
        middle.push_str(&list(of(Kind::Script)));
        middle.push_str("; style-src 'self'");
        let mut end = if site.data_styles { " data:".to_owned() } else { String::new() };
        end.push_str(&list(of(Kind::Style)));
        // What is not named here follows `default-src`; `data:` and `blob:` are no other origin.
        for (kind, directive) in [
            (Kind::Image, "img-src"),
            (Kind::Font, "font-src"),
            (Kind::Connect, "connect-src"),
            (Kind::Media, "media-src"),
            (Kind::Frame, "frame-src"),
            (Kind::Object, "object-src"),
            (Kind::Manifest, "manifest-src"),
        ] {
            let sources = of(kind);
            if !sources.is_empty() {
                let _ = write!(end, "; {directive} 'self' data: blob:{}", list(sources));
            }
        }
        // Without it workers follow `script-src`, and many are made of a blob.
        let _ = write!(end, "; worker-src 'self' blob:{}", list(of(Kind::Worker)));
        let _ = write!(end, "; base-uri 'self'{}", list(of(Kind::Base)));
        let _ = write!(end, "; form-action 'self'{}", list(of(Kind::Form)));
        if let Some(ancestors) = rules.ancestors {
            let _ = write!(end, "; frame-ancestors {ancestors}");
        }
        Frame { start: "default-src 'self' data: blob:; script-src 'self'".to_owned(), middle, end, most: rules.most }
    }

    /// The policy that names no hashes: for what is no page, and for pages of which nothing is known.
    pub fn loose(&self) -> String {
        [&self.start, LOOSE, &self.middle, LOOSE, &self.end].concat()
    }

    /// Whether scripts and styles of a page are named by their hashes: not where that cannot be, nor where the policy
    /// would become too long. Styles are given up first: what they can do, other directives bound.
    fn named(&self, set: &Set) -> (bool, bool) {
        let (scripts, styles) = (!set.loose_script, !set.loose_style);
        let fits = |&(scripts, styles): &(bool, bool)| self.len(set, scripts, styles) <= self.most;
        [(scripts, styles), (scripts, false), (false, styles)].into_iter().find(fits).unwrap_or((false, false))
    }

    fn len(&self, set: &Set, scripts: bool, styles: bool) -> usize {
        let gap = |named: bool, in_attributes: bool, count: usize| {
            let attributes = if in_attributes { IN_ATTRIBUTES.len() } else { 0 };
            if named { attributes + count * HASH } else { LOOSE.len() }
        };
        self.start.len()
            + gap(scripts, set.has_handlers, set.scripts.len())
            + self.middle.len()
            + gap(styles, set.has_style_attributes, set.styles.len())
            + self.end.len()
    }
}

/// The sources that a site uses for one kind of thing.
fn sources(site: &Site, kind: Kind) -> Vec<String> {
    let of = |kind: Kind| site.origins.iter().filter(move |(one, _)| *one == kind).map(|(_, origin)| origin);
    let mut found: BTreeSet<String> = of(kind).filter_map(Origin::source).map(str::to_owned).collect();
    let runs_others = of(Kind::Script).next().is_some() || site.many.contains(&Kind::Script);
    let mut is_many = site.many.contains(&kind);
    if matches!(kind, Kind::Font | Kind::Image) {
        // Style sheets of others bring fonts and images, mostly from where they are themselves.
        is_many |= site.many.contains(&Kind::Style);
        for origin in of(Kind::Style) {
            found.extend(origin.source().map(str::to_owned));
            let companion = COMPANIONS.iter().find(|(host, _)| *host == origin.host());
            found.extend(companion.map(|(_, other)| (*other).to_owned()));
        }
    }
    let length: usize = found.iter().map(|one| one.len() + 1).sum();
    let is_vague = is_many || length > SOURCES;
    // What a script from elsewhere brings along cannot be read here. Which scripts run stays named.
    let is_brought = runs_others
        && matches!(kind, Kind::Style | Kind::Font | Kind::Image | Kind::Media | Kind::Frame | Kind::Connect);
    if is_vague || is_brought {
        found.retain(|one| !is_vague && !one.starts_with("https:") && !one.starts_with("wss:"));
        found.insert("https:".to_owned());
        if is_vague {
            found.insert("http:".to_owned());
        }
        if kind == Kind::Connect {
            found.insert("wss:".to_owned());
            if is_vague {
                found.insert("ws:".to_owned());
            }
        }
    }
    found.into_iter().collect()
}

/// Base64 with padding (RFC 4648, 4).
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
mod tests {
    use super::*;

    const RULES: Rules = Rules { preset: Preset::Connected, ancestors: Some("'self'"), most: 3072 };

    fn site(origins: &[(Kind, &str)]) -> Site {
        let origins = origins.iter().map(|(kind, text)| (*kind, Origin::known(text))).collect();
        Site { origins, ..Site::default() }
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
        let set = |scripts: u32, styles: u32| Set {
            scripts: (0..scripts).collect(),
            styles: (0..styles).collect(),
            has_handlers: scripts > 1,
            has_style_attributes: true,
            ..Set::default()
        };
        let sets = vec![set(0, 0), set(2, 2), set(1, 99), set(99, 1), Set { loose_script: true, ..set(2, 0) }];
        let policies = Policies { files: vec![0, NONE, 1, 2, 3, 4], sets, digests, site: Site::default() };
        let frame = policies.frame(&RULES);
        for number in 0..policies.sets.len() as u32 {
            let set = &policies.sets[number as usize];
            let (scripts, styles) = frame.named(set);
            let text = policies.render(&frame, number);
            assert_eq!(text.len(), frame.len(set, scripts, styles), "{text}");
            assert!(text.len() <= RULES.most);
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
            (Kind::Style, "https://fonts.googleapis.com"),
            (Kind::Image, "//img.example"),
            (Kind::Connect, "https://api.example"),
            (Kind::Form, "https://form.example"),
        ]);
        let policy = Frame::new(&RULES, &used).loose();
        assert_eq!(directive(&policy, "style-src"), "'self' 'unsafe-inline' https://fonts.googleapis.com");
        assert_eq!(
            directive(&policy, "font-src"),
            "'self' data: blob: https://fonts.googleapis.com https://fonts.gstatic.com"
        );
        assert!(directive(&policy, "img-src").ends_with(" img.example"), "{policy}");
        assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https://api.example");
        assert_eq!(directive(&policy, "form-action"), "'self' https://form.example");
        assert_eq!(directive(&policy, "frame-ancestors"), "'self'");
        let airgap = Frame::new(&Rules { preset: Preset::Airgap, ..RULES }, &used).loose();
        assert!(!airgap.contains("example") && !airgap.contains("http"), "{airgap}");
    }

    #[test]
    fn scripts_of_others_may_ask_others_but_only_named_ones_run() {
        let policy =
            Frame::new(&RULES, &site(&[(Kind::Script, "https://cdn.example"), (Kind::Image, "http://i.example")]));
        let policy = policy.loose();
        assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-inline' https://cdn.example");
        assert_eq!(directive(&policy, "img-src"), "'self' data: blob: http://i.example https:");
        assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https: wss:");
    }

    #[test]
    fn before_anything_is_known_only_airgap_says_something() {
        assert_eq!(before(&RULES), None);
        let policy = before(&Rules { preset: Preset::Airgap, ..RULES }).unwrap();
        assert!(!policy.contains("http") && policy.contains("'unsafe-inline'"), "{policy}");
    }

    #[test]
    fn a_site_with_more_origins_than_fit_allows_whole_schemes() {
        let many: Vec<String> = (0..40).map(|n| format!("https://host-number-{n:03}.example")).collect();
        let many: Vec<(Kind, &str)> = many.iter().map(|text| (Kind::Image, text.as_str())).collect();
        let policy = Frame::new(&RULES, &site(&many)).loose();
        assert_eq!(directive(&policy, "img-src"), "'self' data: blob: http: https:");
        let many = |kind: Kind| Site { many: [kind].into(), ..Site::default() };
        let policy = Frame::new(&RULES, &many(Kind::Style)).loose();
        assert_eq!(directive(&policy, "font-src"), "'self' data: blob: http: https:");
        assert_eq!(
            (directive(&policy, "connect-src"), directive(&policy, "frame-src")),
            (String::new(), String::new())
        );
        let policy = Frame::new(&RULES, &many(Kind::Connect)).loose();
        assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: http: https: ws: wss:");
        assert!(!directive(&policy, "script-src").contains("http"), "{policy}");
        let policy = Frame::new(&RULES, &many(Kind::Script)).loose();
        assert_eq!(directive(&policy, "connect-src"), "'self' data: blob: https: wss:");
        assert_eq!(directive(&policy, "script-src"), "'self' 'unsafe-inline' http: https:");
    }

    #[test]
    fn styles_are_given_up_before_scripts_and_neither_at_the_bound() {
        let frame = Frame::new(&RULES, &Site::default());
        let bare = frame.len(&Set::default(), true, true);
        let set = |scripts: u32, styles: u32| Set {
            scripts: (0..scripts).collect(),
            styles: (0..styles).collect(),
            ..Set::default()
        };
        let most = |bytes: usize| Frame { most: bytes, ..frame.clone() };
        for (scripts, styles, room, expected) in [
            (20, 20, 40 * HASH, (true, true)),
            (20, 20, 40 * HASH - 1, (true, false)),
            (20, 20, 20 * HASH + LOOSE.len(), (true, false)),
            (20, 20, 20 * HASH + LOOSE.len() - 1, (false, false)),
            (21, 20, 20 * HASH + LOOSE.len(), (false, true)),
            (20, 21, 20 * HASH + LOOSE.len(), (true, false)),
            (0, 0, 0, (true, true)),
        ] {
            assert_eq!(most(bare + room).named(&set(scripts, styles)), expected, "{scripts} {styles} {room}");
        }
        let loose = Set { loose_script: true, ..set(0, 1) };
        assert_eq!(most(1 << 20).named(&loose), (false, true));
        assert_eq!(most(1 << 20).named(&Set { loose_style: true, ..set(1, 0) }), (true, false));
        assert_eq!(most(bare).named(&loose), (false, false));
    }

    #[test]
    fn each_preset_says_what_it_may_and_each_kind_has_its_directive() {
        for (kind, name) in [
            (Kind::Script, "script-src"),
            (Kind::Style, "style-src"),
            (Kind::Image, "img-src"),
            (Kind::Font, "font-src"),
            (Kind::Connect, "connect-src"),
            (Kind::Media, "media-src"),
            (Kind::Frame, "frame-src"),
            (Kind::Object, "object-src"),
            (Kind::Manifest, "manifest-src"),
            (Kind::Worker, "worker-src"),
            (Kind::Base, "base-uri"),
            (Kind::Form, "form-action"),
        ] {
            let used = site(&[(kind, "https://used.example")]);
            for (preset, expected) in [(Preset::Connected, true), (Preset::Report, true), (Preset::Airgap, false)] {
                let policy = Frame::new(&Rules { preset, ..RULES }, &used).loose();
                assert_eq!(directive(&policy, name).ends_with(" https://used.example"), expected, "{name}: {policy}");
            }
        }
        for (site, scripts, styles) in [
            (Site { evaluates: true, wasm: true, ..Site::default() }, " 'unsafe-eval'", ""),
            (Site { wasm: true, ..Site::default() }, " 'wasm-unsafe-eval'", ""),
            (Site { data_scripts: true, ..Site::default() }, " data:", ""),
            (Site { data_styles: true, ..Site::default() }, "", " data:"),
            (Site::default(), "", ""),
        ] {
            let policy = Frame::new(&Rules { ancestors: None, ..RULES }, &site).loose();
            assert_eq!(directive(&policy, "script-src"), format!("'self' 'unsafe-inline'{scripts}"));
            assert_eq!(directive(&policy, "style-src"), format!("'self' 'unsafe-inline'{styles}"));
            assert_eq!(directive(&policy, "default-src"), "'self' data: blob:");
            assert_eq!(directive(&policy, "worker-src"), "'self' blob:");
            assert!(!policy.contains("frame-ancestors"), "{policy}");
        }
    }

    /// What a page names, and what it then needs of a kind.
    type Brought<'a> = (&'a [(Kind, &'a str)], Kind, &'a [&'a str]);

    #[test]
    fn what_is_brought_along_is_allowed_where_it_may_come_from() {
        let cases: [Brought<'_>; 14] = [
            (
                &[(Kind::Style, "https://use.typekit.net")],
                Kind::Font,
                &["https://p.typekit.net", "https://use.typekit.net"],
            ),
            (
                &[(Kind::Style, "//fonts.googleapis.com")],
                Kind::Image,
                &["fonts.googleapis.com", "https://fonts.gstatic.com"],
            ),
            (&[(Kind::Style, "https://fonts.bunny.net")], Kind::Font, &["https://fonts.bunny.net"]),
            (&[(Kind::Style, "https://s.example")], Kind::Media, &[]),
            (&[(Kind::Font, "https://f.example")], Kind::Image, &[]),
            (&[(Kind::Script, "https://s.example")], Kind::Style, &["https:"]),
            (&[(Kind::Script, "https://s.example"), (Kind::Font, "//f.example")], Kind::Font, &["f.example", "https:"]),
            (
                &[(Kind::Script, "https://s.example"), (Kind::Connect, "ws://c.example")],
                Kind::Connect,
                &["https:", "ws://c.example", "wss:"],
            ),
            (&[(Kind::Script, "https://s.example")], Kind::Media, &["https:"]),
            (&[(Kind::Script, "https://s.example")], Kind::Frame, &["https:"]),
            (&[(Kind::Script, "https://s.example")], Kind::Object, &[]),
            (&[(Kind::Script, "https://s.example")], Kind::Worker, &[]),
            (&[(Kind::Script, "https://s.example")], Kind::Form, &[]),
            (&[(Kind::Image, "https://[::1]")], Kind::Image, &[]),
        ];
        for (origins, kind, expected) in cases {
            assert_eq!(sources(&site(origins), kind), expected, "{origins:?}");
        }
        // All sources of a directive may take so much; each has a space before it.
        for (length, is_named) in [(SOURCES - 1, true), (SOURCES, false)] {
            let origin = format!("https://{}", "a".repeat(length - "https://".len()));
            let found = sources(&site(&[(Kind::Image, &origin)]), Kind::Image);
            assert_eq!(found == [origin], is_named, "{length}");
        }
    }
}
