//! Rules that a bundle brings along: whatever a `_redirects`, `_headers` or `docs.json` says and whatever is asked for, no
//! answer leads to a host that no rule names, has a line end in a field, or is framed by a rule.

use std::collections::BTreeSet;

use docwharf::site::lookup::{LookupResult, SiteFiles, Slashes, resolve_address};
use docwharf::site::rules::pattern::{Pattern, PatternDialect};
use docwharf::site::rules::protected_headers::ProtectedHeaders;
use docwharf::site::rules::route::{ComparisonBudget, RouteResult, RouteSettings, follow_to_end, route_address};
use docwharf::site::rules::rule_check::check_rules;
use docwharf::site::rules::{RuleDraft, RuleSet, docs_json, netlify_files};
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, DATE, ETAG, LOCATION, SET_COOKIE, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use url::Url;

use super::recipe::Recipe;

const PATHS: [&str; 9] = [
    "index.html",
    "a.html",
    "a/b/index.html",
    "c.css",
    "404.html",
    ".git/config",
    "_redirects",
    "docs/x.html",
    "x y.html",
];

/// Paths with the rules that came with them.
struct Site(RuleSet);

impl SiteFiles for Site {
    fn find(&self, path: &[u8]) -> Option<usize> {
        PATHS.iter().position(|known| known.as_bytes() == path)
    }

    fn rules(&self) -> &RuleSet {
        &self.0
    }

    fn markdown(&self, _page: usize) -> Option<usize> {
        None
    }
}

/// Options, then, each up to a NUL: rules, a decoded address, a query, fields.
pub fn rules(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let base_path = recipe.one_of(&["/", "/docs/"]);
    let slashes = recipe.one_of(&[Slashes::Serve, Slashes::Redirect]);
    let is_json = recipe.once_in(3);
    let mut parts = recipe.rest().splitn(4, |&b| b == 0);
    let mut part = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (text, address, query, headers) = (part(), part(), part(), part());

    let mut draft = RuleDraft::default();
    if is_json {
        docs_json::read_redirects(&text, docs_json::FILE_NAME, false, &mut draft);
    } else {
        netlify_files::read_redirects(&text, netlify_files::REDIRECTS_FILE, &mut draft);
    }
    netlify_files::read_headers(&headers, netlify_files::HEADERS_FILE, &mut draft);
    for fault in &draft.faults {
        assert!(!fault.to_string().is_empty());
    }
    let site = Site(RuleSet::new(draft));
    let none = RuleSet::default();
    let ask = RouteSettings { base_path, slashes, rules: &none };

    // What the server hands on is an address without control characters, and a query as it came over the wire.
    let address: String = address.chars().filter(|c| !c.is_control()).collect();
    let address = format!("/{}", address.trim_start_matches('/'));
    let query: String = query.chars().filter(|c| c.is_ascii_graphic() && *c != '#').collect();
    let query = (!query.is_empty()).then_some(query);

    let hosts = origins(&site.0);
    match route_address(&site, &ask, address.as_bytes(), query.as_deref()) {
        RouteResult::RuleRedirect(status, location) => {
            assert!([301, 302, 303, 307, 308].contains(&status));
            leads_where_a_rule_says(&location, base_path, &hosts);
        }
        RouteResult::CanonicalRedirect(location) => leads_where_a_rule_says(&location, base_path, &BTreeSet::new()),
        RouteResult::Rewritten(file, status) => {
            assert!([200, 404].contains(&status) && is_shown(PATHS[file]), "{}", PATHS[file]);
        }
        RouteResult::File(file) => {
            assert!(is_shown(PATHS[file]), "{}", PATHS[file]);
            assert_eq!(resolve_address(&site, &address.as_bytes()[1..], slashes), LookupResult::File(file));
        }
        RouteResult::Nothing => {
            assert_eq!(resolve_address(&site, &address.as_bytes()[1..], slashes), LookupResult::Nothing);
        }
    }
    // Following it comes to an end, and whatever is wrong is found without a panic.
    let budget = ComparisonBudget::new(1 << 24);
    let _ = follow_to_end(&site, &ask, address.as_bytes(), query.as_deref(), Some(&budget));
    let checked =
        check_rules(&site, &ask, &|below| PATHS.iter().any(|path| format!("/{path}").as_bytes().starts_with(below)));
    for finding in checked.findings {
        assert!(!finding.what.is_empty() && !finding.place.is_empty());
    }
    fields(&site.0, address.as_bytes());
    if address.len() <= 24 {
        for line in text.lines().filter_map(|line| line.split_whitespace().next()) {
            pattern(line, &address);
        }
    }
}

fn is_shown(path: &str) -> bool {
    ![".git/config", "_redirects"].contains(&path)
}

/// The hosts that rules name themselves.
fn origins(rules: &RuleSet) -> BTreeSet<String> {
    let of = |destination: &str| {
        let (scheme, rest) = destination.split_once("://")?;
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let url = Url::parse(&format!("{scheme}://{authority}/")).ok()?;
        Some(url.origin().ascii_serialization())
    };
    rules.list().iter().filter(|rule| rule.target.is_elsewhere()).filter_map(|rule| of(&rule.destination)).collect()
}

/// A `Location` as a browser reads it.
fn leads_where_a_rule_says(location: &str, base_path: &str, hosts: &BTreeSet<String>) {
    assert!(location.bytes().all(|b| b.is_ascii_graphic()), "{location:?}");
    assert!(HeaderValue::from_str(location).is_ok());
    let here = Url::parse("http://site.example/somewhere/deep").expect("a URL");
    let there = here.join(location).unwrap_or_else(|error| panic!("{location:?}: {error}"));
    if location.starts_with('/') {
        assert!(location.starts_with(base_path), "{location:?} is not below {base_path}");
        assert_eq!(there.origin(), here.origin(), "{location:?}");
    } else {
        let origin = there.origin().ascii_serialization();
        assert!(hosts.contains(&origin), "{location:?} leads to {origin}, which no rule names: {hosts:?}");
        assert!(there.username().is_empty() && there.password().is_none(), "{location:?}");
    }
}

/// Fields go along, and what frames an answer stays.
fn fields(rules: &RuleSet, address: &[u8]) {
    for status in [200, 304, 307, 404] {
        let ours = [
            (CONTENT_LENGTH, "7"),
            (ETAG, "\"x\""),
            (LOCATION, "/x"),
            (DATE, "now"),
            (CONTENT_ENCODING, "gzip"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in &ours {
            headers.insert(name, HeaderValue::from_static(value));
        }
        rules.fields.apply(
            address,
            Some(ProtectedHeaders::default()),
            StatusCode::from_u16(status).expect("a status"),
            &mut headers,
        );
        for (name, value) in &ours {
            let all: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
            assert_eq!(all, [value], "{name}");
        }
        for name in [TRANSFER_ENCODING, CONNECTION, SET_COOKIE] {
            assert!(!headers.contains_key(&name), "{name}");
        }
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        assert!(bytes < 64 << 10, "{bytes} bytes of fields");
        assert!(
            headers.values().all(|value| value.as_bytes().iter().all(|&b| b == b'\t' || (0x20..0x7f).contains(&b)))
        );
    }
}

/// A part of a source, for a matcher that tries everything.
#[derive(Debug)]
enum Part {
    Byte(u8),
    /// Bytes without a slash: at least so many.
    Segment(usize),
    Any,
}

/// A pattern matches what a matcher finds that goes back and tries again as often as it likes.
fn pattern(source: &str, address: &str) {
    let Ok(pattern) = Pattern::parse(source, PatternDialect::Netlify) else { return };
    let bare = if source == "/" { source } else { source.strip_suffix('/').unwrap_or(source) };
    // An encoded slash or star is a byte like others; keep to sources that say what they mean.
    if bare.contains('%') || source.len() > 40 {
        return;
    }
    let mut parts = Vec::new();
    let mut is_optional = false;
    for segment in bare.split('/').skip(1) {
        parts.push(Part::Byte(b'/'));
        let name = segment.strip_prefix(':').filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()));
        match (name, segment.split_once('*')) {
            (Some(name), None) if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                parts.push(Part::Segment(1));
            }
            (_, Some((before, after))) => {
                let is_whole = name.is_some() || segment == "*";
                let before = if is_whole { "" } else { before };
                parts.extend(before.bytes().map(Part::Byte));
                parts.push(Part::Any);
                parts.extend(after.bytes().map(Part::Byte));
                is_optional = is_whole;
            }
            _ => parts.extend(segment.bytes().map(Part::Byte)),
        }
    }
    let address = address.as_bytes();
    let bare_address = address.strip_suffix(b"/").filter(|bare| !bare.is_empty()).unwrap_or(address);
    let mut expected = tries(&parts, address) || tries(&parts, bare_address);
    if let (true, [before @ .., Part::Byte(b'/'), Part::Any]) = (is_optional, &parts[..]) {
        // `/news/*` is about `/news`, too.
        expected |= tries(before, address);
    }
    let found = pattern.matches(address).is_some();
    assert_eq!(found, expected, "{source} {:?}", String::from_utf8_lossy(address));
}

fn tries(parts: &[Part], text: &[u8]) -> bool {
    match parts {
        [] => text.is_empty(),
        [Part::Byte(byte), rest @ ..] => text.first() == Some(byte) && tries(rest, &text[1..]),
        [Part::Segment(least), rest @ ..] => {
            let most = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
            (*least..=most).any(|len| tries(rest, &text[len..]))
        }
        [Part::Any, rest @ ..] => (0..=text.len()).any(|len| tries(rest, &text[len..])),
    }
}
