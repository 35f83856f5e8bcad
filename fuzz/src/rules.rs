//! The rules of a bundle: for any `_redirects`, `_headers` or `docs.json` and any request, no response redirects to a
//! host that no rule names, or has a line end in a field, and no rule sets a field for message framing.

use std::collections::BTreeSet;

use docwharf::site::lookup::{LookupResult, SiteFiles, Slashes, resolve_address};
use docwharf::site::rules::operator_restrictions::OperatorRestrictions;
use docwharf::site::rules::pattern::{Pattern, PatternDialect};
use docwharf::site::rules::route::{ComparisonBudget, RouteResult, RouteSettings, follow_to_end, route_address};
use docwharf::site::rules::rule_check::check_rules;
use docwharf::site::rules::{RuleDraft, RuleSet, docs_json, netlify_files};
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, DATE, ETAG, LOCATION, SET_COOKIE, TRANSFER_ENCODING,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, HeaderValue, StatusCode};
use url::Url;

use super::fuzz_input::FuzzInput;

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

/// A site with the files `PATHS` and the rules.
struct Site(RuleSet);

impl SiteFiles for Site {
    fn find(&self, path: &[u8]) -> Option<usize> {
        PATHS.iter().position(|file_path| file_path.as_bytes() == path)
    }

    fn rules(&self) -> &RuleSet {
        &self.0
    }

    fn markdown_of(&self, _page: usize) -> Option<usize> {
        None
    }
}

/// The input is options and then four parts with NULs between them: rules, a decoded address, a query, and header
/// rules.
pub fn rules(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let base_path = input.one_of(&["/", "/docs/"]);
    let slashes = input.one_of(&[Slashes::Serve, Slashes::Redirect]);
    let is_json = input.once_in(3);
    let mut parts = input.rest().splitn(4, |&b| b == 0);
    let mut next_part = || String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let (rules_text, address, query, headers_text) = (next_part(), next_part(), next_part(), next_part());

    let mut draft = RuleDraft::default();
    if is_json {
        docs_json::read_redirects(&rules_text, docs_json::FILE_NAME, false, &mut draft);
    } else {
        netlify_files::read_redirects(&rules_text, netlify_files::REDIRECTS_FILE, &mut draft);
    }
    netlify_files::read_headers(&headers_text, netlify_files::HEADERS_FILE, &mut draft);
    for fault in &draft.faults {
        assert!(!fault.to_string().is_empty());
    }
    let site = Site(RuleSet::new(draft));
    let no_rules = RuleSet::default();
    let settings = RouteSettings { base_path, slashes, rules: &no_rules };

    // The server passes an address without control characters, and the query as it was received.
    let address: String = address.chars().filter(|c| !c.is_control()).collect();
    let address = format!("/{}", address.trim_start_matches('/'));
    let query: String = query.chars().filter(|c| c.is_ascii_graphic() && *c != '#').collect();
    let query = (!query.is_empty()).then_some(query);

    let origins = destination_origins(&site.0);
    match route_address(&site, &settings, address.as_bytes(), query.as_deref()) {
        RouteResult::RuleRedirect(status, location) => {
            assert!([301, 302, 303, 307, 308].contains(&status));
            assert_allowed_location(&location, base_path, &origins);
        }
        RouteResult::CanonicalRedirect(location) => assert_allowed_location(&location, base_path, &BTreeSet::new()),
        RouteResult::Rewritten(file, status) => {
            assert!([200, 404].contains(&status) && is_public(PATHS[file]), "{}", PATHS[file]);
        }
        RouteResult::File(file) => {
            assert!(is_public(PATHS[file]), "{}", PATHS[file]);
            assert_eq!(resolve_address(&site, &address.as_bytes()[1..], slashes), LookupResult::File(file));
        }
        RouteResult::NotFound => {
            assert_eq!(resolve_address(&site, &address.as_bytes()[1..], slashes), LookupResult::NotFound);
        }
    }
    // Following redirects ends, and checking the rules does not panic.
    let budget = ComparisonBudget::new(1 << 24);
    let _ = follow_to_end(&site, &settings, address.as_bytes(), query.as_deref(), Some(&budget));
    let checked = check_rules(&site, &settings, &|prefix| {
        PATHS.iter().any(|path| format!("/{path}").as_bytes().starts_with(prefix))
    });
    for problem in checked.problems {
        assert!(!problem.message.is_empty() && !problem.place.is_empty());
    }
    check_fields(&site.0, address.as_bytes());
    if address.len() <= 24 {
        for line in rules_text.lines().filter_map(|line| line.split_whitespace().next()) {
            check_pattern(line, &address);
        }
    }
}

fn is_public(path: &str) -> bool {
    ![".git/config", "_redirects"].contains(&path)
}

/// The origins in the destinations of rules.
fn destination_origins(rules: &RuleSet) -> BTreeSet<String> {
    let origin_of = |destination: &str| {
        let (scheme, rest) = destination.split_once("://")?;
        let authority = &rest[..rest.find(['/', '?', '#']).unwrap_or(rest.len())];
        let url = Url::parse(&format!("{scheme}://{authority}/")).ok()?;
        Some(url.origin().ascii_serialization())
    };
    rules
        .list()
        .iter()
        .filter(|rule| rule.parsed_destination.is_on_other_host())
        .filter_map(|rule| origin_of(&rule.destination))
        .collect()
}

/// Resolves a `Location` as a browser does. It must be on the site or have an origin of a rule.
fn assert_allowed_location(location: &str, base_path: &str, origins: &BTreeSet<String>) {
    assert!(location.bytes().all(|b| b.is_ascii_graphic()), "{location:?}");
    assert!(HeaderValue::from_str(location).is_ok());
    let page = Url::parse("http://site.example/somewhere/deep").expect("a URL");
    let target = page.join(location).unwrap_or_else(|error| panic!("{location:?}: {error}"));
    if location.starts_with('/') {
        assert!(location.starts_with(base_path), "{location:?} is not below {base_path}");
        assert_eq!(target.origin(), page.origin(), "{location:?}");
    } else {
        let origin = target.origin().ascii_serialization();
        assert!(origins.contains(&origin), "{location:?} has the origin {origin}, which no rule names: {origins:?}");
        assert!(target.username().is_empty() && target.password().is_none(), "{location:?}");
    }
}

/// Applies header rules. They must not change the fields of the server's own response or add fields for message
/// framing.
fn check_fields(rules: &RuleSet, address: &[u8]) {
    for status in [200, 304, 307, 404] {
        let server_fields = [
            (CONTENT_LENGTH, "7"),
            (ETAG, "\"x\""),
            (LOCATION, "/x"),
            (DATE, "now"),
            (CONTENT_ENCODING, "gzip"),
            (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in &server_fields {
            headers.insert(name, HeaderValue::from_static(value));
        }
        rules.fields.apply(
            address,
            Some(OperatorRestrictions::default()),
            StatusCode::from_u16(status).expect("a status"),
            &mut headers,
        );
        for (name, value) in &server_fields {
            let values: Vec<&HeaderValue> = headers.get_all(name).iter().collect();
            assert_eq!(values, [value], "{name}");
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

/// A part of a pattern, for a backtracking matcher.
#[derive(Debug)]
enum PatternPart {
    Byte(u8),
    /// Bytes without a slash, at least this many.
    Segment(usize),
    Any,
}

/// Compares a pattern with a simple matcher that backtracks without limit.
fn check_pattern(source: &str, address: &str) {
    let Ok(pattern) = Pattern::parse(source, PatternDialect::Netlify) else { return };
    let bare_source = if source == "/" { source } else { source.strip_suffix('/').unwrap_or(source) };
    // The simple matcher does not decode percent-encodings.
    if bare_source.contains('%') || source.len() > 40 {
        return;
    }
    let mut parts = Vec::new();
    let mut is_optional = false;
    for segment in bare_source.split('/').skip(1) {
        parts.push(PatternPart::Byte(b'/'));
        let name = segment.strip_prefix(':').filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()));
        match (name, segment.split_once('*')) {
            (Some(name), None) if name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => {
                parts.push(PatternPart::Segment(1));
            }
            (_, Some((before, after))) => {
                let is_whole_segment = name.is_some() || segment == "*";
                let before = if is_whole_segment { "" } else { before };
                parts.extend(before.bytes().map(PatternPart::Byte));
                parts.push(PatternPart::Any);
                parts.extend(after.bytes().map(PatternPart::Byte));
                is_optional = is_whole_segment;
            }
            _ => parts.extend(segment.bytes().map(PatternPart::Byte)),
        }
    }
    let address = address.as_bytes();
    let bare_address = address.strip_suffix(b"/").filter(|bare| !bare.is_empty()).unwrap_or(address);
    let mut expected = matches_parts(&parts, address) || matches_parts(&parts, bare_address);
    if let (true, [before @ .., PatternPart::Byte(b'/'), PatternPart::Any]) = (is_optional, &parts[..]) {
        // `/news/*` matches `/news`, too.
        expected |= matches_parts(before, address);
    }
    let is_match = pattern.matches(address).is_some();
    assert_eq!(is_match, expected, "{source} {:?}", String::from_utf8_lossy(address));
}

fn matches_parts(parts: &[PatternPart], text: &[u8]) -> bool {
    match parts {
        [] => text.is_empty(),
        [PatternPart::Byte(byte), rest @ ..] => text.first() == Some(byte) && matches_parts(rest, &text[1..]),
        [PatternPart::Segment(min_len), rest @ ..] => {
            let max_len = text.iter().position(|&b| b == b'/').unwrap_or(text.len());
            (*min_len..=max_len).any(|len| matches_parts(rest, &text[len..]))
        }
        [PatternPart::Any, rest @ ..] => (0..=text.len()).any(|len| matches_parts(rest, &text[len..])),
    }
}
