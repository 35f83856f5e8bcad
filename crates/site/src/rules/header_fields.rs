//! Header fields for responses, by address.
//!
//! Several rules about one address add up: the values that they give one field are joined by commas, as hosting
//! services for static sites do. The operator's values for a field replace the bundle's, and both replace docwharf's
//! own. No rule changes fields that frame a response, name its bytes or give its date. A bundle is untrusted data: it
//! may not set fields that affect more than its own pages, that send clients or reports elsewhere, or that would undo
//! the operator's settings ([`ProtectedHeaders`]).

use http::header::{
    ACCEPT_RANGES, AGE, ALLOW, CACHE_CONTROL, CONNECTION, CONTENT_DISPOSITION, CONTENT_ENCODING, CONTENT_LANGUAGE,
    CONTENT_LENGTH, CONTENT_LOCATION, CONTENT_RANGE, CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY,
    CONTENT_TYPE, DATE, ETAG, EXPIRES, HOST, LAST_MODIFIED, LINK, LOCATION, PROXY_AUTHENTICATE, REFRESH, RETRY_AFTER,
    SET_COOKIE, STRICT_TRANSPORT_SECURITY, TE, TRAILER, TRANSFER_ENCODING, UPGRADE, VARY, WWW_AUTHENTICATE,
    X_CONTENT_TYPE_OPTIONS, X_DNS_PREFETCH_CONTROL, X_FRAME_OPTIONS,
};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};

use super::pattern::Pattern;
use super::protected_headers::{ProtectedHeaders, remove_report_directives};

/// The maximum number of patterns in one source of rules.
const MAX_PATTERNS: usize = 200;
/// The maximum number of fields in one source of rules.
const MAX_FIELDS: usize = 1_000;
/// The maximum size of all fields of one source of rules, in bytes: one response may get them all.
const MAX_FIELD_BYTES: usize = 16 << 10;

/// The fields that no rule sets or removes: framing, validators, and fields that the server computes.
const SERVER_FIELDS: [HeaderName; 22] = [
    ACCEPT_RANGES,
    AGE,
    ALLOW,
    CONNECTION,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_LOCATION,
    CONTENT_RANGE,
    DATE,
    ETAG,
    HOST,
    HeaderName::from_static("keep-alive"),
    LAST_MODIFIED,
    LOCATION,
    PROXY_AUTHENTICATE,
    HeaderName::from_static("proxy-connection"),
    RETRY_AFTER,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
    WWW_AUTHENTICATE,
];
/// The fields that only the operator sets, because they affect the whole host or all clients of a shared cache, or send
/// clients or reports elsewhere.
const OPERATOR_FIELDS: [HeaderName; 9] = [
    HeaderName::from_static("alt-svc"),
    HeaderName::from_static("clear-site-data"),
    HeaderName::from_static("nel"),
    REFRESH,
    HeaderName::from_static("report-to"),
    HeaderName::from_static("reporting-endpoints"),
    HeaderName::from_static("service-worker-allowed"),
    SET_COOKIE,
    STRICT_TRANSPORT_SECURITY,
];
/// The fields that a rule may set but not remove.
const REQUIRED_FIELDS: [HeaderName; 4] = [CACHE_CONTROL, CONTENT_TYPE, VARY, X_CONTENT_TYPE_OPTIONS];
/// The fields that describe a file. They are not added to redirects and error responses.
const FILE_FIELDS: [HeaderName; 6] =
    [CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_LANGUAGE, CONTENT_TYPE, EXPIRES, LINK];

/// The author of a set of rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleOwner {
    /// The author of the bundle.
    Bundle,
    /// The operator of the server.
    Operator,
}

/// The effect of one rule on one field.
#[derive(Debug, Clone, PartialEq, Eq)]
enum FieldChange {
    Set(HeaderName, HeaderValue),
    Remove(HeaderName),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Block {
    pattern: Pattern,
    deeds: Vec<FieldChange>,
}

/// The header fields of one source of rules, by address.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields {
    blocks: Vec<Block>,
    deeds: usize,
    bytes: usize,
}

/// Splits a line `Name: value`.
pub fn split_field(line: &str) -> Result<(&str, &str), String> {
    let (name, value) = line.split_once(':').ok_or("a line below a pattern is written Name: value")?;
    Ok((name.trim(), value.trim()))
}

impl Fields {
    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Adds a block for the addresses that match a pattern. Returns its number.
    pub fn add_block(&mut self, pattern: Pattern) -> Result<usize, String> {
        if self.blocks.len() >= MAX_PATTERNS {
            return Err(format!("there are more than {MAX_PATTERNS} patterns"));
        }
        self.blocks.push(Block { pattern, deeds: Vec::new() });
        Ok(self.blocks.len() - 1)
    }

    /// Adds a field to the block with this number.
    pub fn add_field(&mut self, block: usize, name: &str, value: &str, owner: RuleOwner) -> Result<(), String> {
        let name = parse_field_name(name)?;
        let value = Some(value).filter(|value| value.is_ascii()).and_then(|value| HeaderValue::from_str(value).ok());
        let value =
            value.ok_or_else(|| format!("{name} has a value that no field can have: visible ASCII is needed"))?;
        if name == X_CONTENT_TYPE_OPTIONS {
            return if value == "nosniff" { Ok(()) } else { Err(format!("{name} is nosniff everywhere")) };
        }
        if owner == RuleOwner::Bundle {
            return self.set_by_bundle(block, name, value);
        }
        self.add(block, name.as_str().len() + value.len(), FieldChange::Set(name, value))
    }

    /// Adds the permitted part of a bundle's field. The error describes the part that is not permitted.
    fn set_by_bundle(&mut self, block: usize, name: HeaderName, value: HeaderValue) -> Result<(), String> {
        if OPERATOR_FIELDS.contains(&name) {
            return Err(format!("{name} concerns more than the pages of this site: only the configuration sets it"));
        }
        let text = value.to_str().unwrap_or_default();
        // Browsers treat an unknown value as permission.
        if name == X_FRAME_OPTIONS && !["DENY", "SAMEORIGIN"].iter().any(|known| text.eq_ignore_ascii_case(known)) {
            return Err(format!("{name} is DENY or SAMEORIGIN"));
        }
        let is_policy = [CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY].contains(&name);
        let Some(rest) = remove_report_directives(text).filter(|_| is_policy) else {
            return self.add(block, name.as_str().len() + value.len(), FieldChange::Set(name, value));
        };
        let told =
            format!("only the configuration says where reports of {name} go: report-uri and report-to do not count");
        if let (Ok(rest), false) = (HeaderValue::from_str(&rest), rest.is_empty()) {
            self.add(block, name.as_str().len() + rest.len(), FieldChange::Set(name, rest))?;
        }
        Err(told)
    }

    /// Adds the removal of a field that earlier rules set. A removal by the operator also removes docwharf's own field.
    pub fn add_removal(&mut self, block: usize, name: &str) -> Result<(), String> {
        let name = parse_field_name(name)?;
        if REQUIRED_FIELDS.contains(&name) {
            return Err(format!("{name} has to be there: set another value"));
        }
        self.add(block, name.as_str().len(), FieldChange::Remove(name))
    }

    fn add(&mut self, block: usize, bytes: usize, deed: FieldChange) -> Result<(), String> {
        if self.deeds >= MAX_FIELDS || self.bytes + bytes > MAX_FIELD_BYTES {
            return Err(format!("there are more than {MAX_FIELDS} fields, or {MAX_FIELD_BYTES} bytes of them"));
        }
        self.deeds += 1;
        self.bytes += bytes;
        if let Some(block) = self.blocks.get_mut(block) {
            block.deeds.push(deed);
        }
        Ok(())
    }

    /// Returns the media types that the rules set for a decoded address with its leading slash.
    pub fn media_types<'a>(&'a self, address: &[u8]) -> impl Iterator<Item = &'a str> {
        let named = |block: &'a Block| block.deeds.iter().filter_map(media_type);
        let about = move |block: &&'a Block| named(block).next().is_some() && block.pattern.matches(address).is_some();
        self.blocks.iter().filter(about).flat_map(named)
    }

    /// Adds the fields for a decoded address, with its leading slash, to a response. `ground` has the restrictions for
    /// a bundle's rules; `None` applies the rules as the operator's.
    pub fn apply(&self, address: &[u8], ground: Option<ProtectedHeaders>, status: StatusCode, headers: &mut HeaderMap) {
        let owner = if ground.is_some() { RuleOwner::Bundle } else { RuleOwner::Operator };
        // The fields to add, in their order: (name, values).
        let mut said: Vec<(&HeaderName, Vec<&HeaderValue>)> = Vec::new();
        for block in self.blocks.iter().filter(|block| block.pattern.matches(address).is_some()) {
            for deed in &block.deeds {
                match deed {
                    FieldChange::Set(name, value) if ground.is_some_and(|ground| !ground.allows(name, value)) => {}
                    FieldChange::Set(name, value) => match said.iter_mut().find(|(known, _)| *known == name) {
                        Some((_, values)) => values.push(value),
                        None => said.push((name, vec![value])),
                    },
                    FieldChange::Remove(name) => {
                        said.retain(|(known, _)| *known != name);
                        if owner == RuleOwner::Operator {
                            headers.remove(name);
                        }
                    }
                }
            }
        }
        let is_file = matches!(status.as_u16(), 200 | 206 | 304);
        for (name, values) in said {
            let describes = headers.contains_key(CONTENT_TYPE);
            if FILE_FIELDS.contains(name) && (!is_file || (*name == CONTENT_TYPE && !describes)) {
                continue;
            }
            merge_field(headers, name, &values, owner);
        }
    }
}

/// Returns the media type, if a rule sets it.
fn media_type(deed: &FieldChange) -> Option<&str> {
    match deed {
        FieldChange::Set(name, value) if *name == CONTENT_TYPE => value.to_str().ok(),
        _ => None,
    }
}

fn parse_field_name(name: &str) -> Result<HeaderName, String> {
    let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| format!("{name:?} is not a valid field name"))?;
    if SERVER_FIELDS.contains(&name) {
        return Err(format!("{name} is the server's: no rule changes it"));
    }
    Ok(name)
}

fn merge_field(headers: &mut HeaderMap, name: &HeaderName, values: &[&HeaderValue], owner: RuleOwner) {
    // A bundle must not loosen a restriction of the operator.
    let is_lock = [X_FRAME_OPTIONS, X_DNS_PREFETCH_CONTROL].contains(name);
    let is_shut = headers.get(name).is_some_and(|value| value == "DENY" || value == "off");
    if owner == RuleOwner::Bundle && is_lock && is_shut {
        return;
    }
    let is_policy = [CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY_REPORT_ONLY].contains(name);
    if *name == SET_COOKIE || is_policy {
        // Cookies cannot be joined. A browser enforces every policy (CSP3), so a bundle can forbid more and never less.
        if owner == RuleOwner::Operator {
            headers.remove(name);
        }
        for &value in values {
            headers.append(name, value.clone());
        }
    } else if *name == VARY {
        // The response depends on the fields that docwharf lists, whatever a rule says, so values are only added.
        let mut all: Vec<&str> = Vec::new();
        let known: Vec<HeaderValue> = headers.get_all(VARY).iter().cloned().collect();
        let items = known.iter().chain(values.iter().copied()).filter_map(|value| value.to_str().ok());
        for item in items.flat_map(|text| text.split(',')).map(str::trim).filter(|item| !item.is_empty()) {
            if !all.iter().any(|known| known.eq_ignore_ascii_case(item)) {
                all.push(item);
            }
        }
        insert_joined(headers, name, &all.join(", "));
    } else if *name == LINK {
        // docwharf's own link to the Markdown of a page stays beside the links of a rule.
        let known: Vec<HeaderValue> = headers.get_all(LINK).iter().cloned().collect();
        let texts: Vec<&str> =
            known.iter().chain(values.iter().copied()).filter_map(|value| value.to_str().ok()).collect();
        insert_joined(headers, name, &texts.join(", "));
    } else if let [value] = values {
        headers.insert(name, (*value).clone());
    } else {
        let texts: Vec<&str> = values.iter().filter_map(|value| value.to_str().ok()).collect();
        insert_joined(headers, name, &texts.join(", "));
    }
}

/// Sets a field to a joined value, whose parts were checked one by one.
fn insert_joined(headers: &mut HeaderMap, name: &HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::pattern::PatternDialect;
    use super::super::{RuleDraft, netlify_files};
    use super::*;

    fn applied(text: &str, owner: RuleOwner, address: &str, status: u16, before: &[(&str, &str)]) -> Vec<String> {
        let mut draft = RuleDraft::default();
        netlify_files::read_headers(text, netlify_files::HEADERS_FILE, &mut draft);
        assert_eq!(draft.faults, []);
        let mut headers = HeaderMap::new();
        for (name, value) in before {
            headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
        }
        let ground = (owner == RuleOwner::Bundle).then(ProtectedHeaders::default);
        draft.fields.apply(address.as_bytes(), ground, StatusCode::from_u16(status).unwrap(), &mut headers);
        let mut told: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        told.sort();
        told
    }

    const RULES: &str = "# all\n/*\n  X-A: 1\n  Vary: Cookie, accept\n/guides/*\n  X-A: 2\n\tX-B: x: y\n  Cache-Control: max-age=5\n/guides/open\n  ! X-A\n";

    #[test]
    fn rules_about_one_address_add_up_and_one_can_take_away() {
        let of = |address| applied(RULES, RuleOwner::Bundle, address, 200, &[("vary", "Accept"), ("x-a", "0")]);
        assert_eq!(of("/"), ["vary: Accept, Cookie", "x-a: 1"]);
        assert_eq!(of("/guides/x"), ["cache-control: max-age=5", "vary: Accept, Cookie", "x-a: 1, 2", "x-b: x: y"]);
        assert_eq!(of("/guides/open")[2..], ["x-a: 0", "x-b: x: y"], "what docwharf says, a bundle does not take away");
        assert_eq!(applied(RULES, RuleOwner::Operator, "/guides/open", 200, &[("x-a", "0")]).len(), 3);
    }

    #[test]
    fn what_is_missing_and_what_has_moved_is_never_cached_as_a_file_is() {
        for (status, expected) in [(200, true), (206, true), (304, true), (404, false), (301, false), (412, false)] {
            let told = applied(RULES, RuleOwner::Bundle, "/guides/x", status, &[("cache-control", "no-cache")]);
            assert_eq!(told.contains(&"cache-control: max-age=5".to_owned()), expected, "{status}");
            assert!(told.contains(&"x-b: x: y".to_owned()), "{status}");
        }
        let typed = |before: &[(&str, &str)]| applied("/*\n Content-Type: a/b\n", RuleOwner::Bundle, "/", 200, before);
        assert_eq!(typed(&[("content-type", "text/html")]), ["content-type: a/b"]);
        assert_eq!(typed(&[]), [""; 0]);
    }

    #[test]
    fn links_are_added_to_and_the_operator_can_take_them_away() {
        let rule = "/*\n Link: </b>\n Link: </c>\n";
        assert_eq!(applied(rule, RuleOwner::Bundle, "/", 200, &[("link", "</a>")]), ["link: </a>, </b>, </c>"]);
        assert_eq!(applied("/*\n ! Link\n", RuleOwner::Operator, "/", 200, &[("link", "</a>")]), [""; 0]);
    }

    #[test]
    fn a_bundle_forbids_more_and_never_less() {
        let frames = |rule: &str, owner, before| applied(rule, owner, "/", 200, &[("x-frame-options", before)]);
        let open = "/*\n X-Frame-Options: SAMEORIGIN\n";
        assert_eq!(frames(open, RuleOwner::Bundle, "DENY"), ["x-frame-options: DENY"]);
        assert_eq!(frames(open, RuleOwner::Operator, "DENY"), ["x-frame-options: SAMEORIGIN"]);
        let shut = "/*\n X-Frame-Options: DENY\n";
        assert_eq!(frames(shut, RuleOwner::Bundle, "SAMEORIGIN"), ["x-frame-options: DENY"]);
        let rule = "/*\n Content-Security-Policy: default-src *\n";
        let before = [("content-security-policy", "default-src 'self'")];
        assert_eq!(applied(rule, RuleOwner::Bundle, "/", 200, &before).len(), 2);
        assert_eq!(applied(rule, RuleOwner::Operator, "/", 200, &before), ["content-security-policy: default-src *"]);
    }

    #[test]
    fn what_is_the_servers_is_refused_by_name() {
        let mut fields = Fields::default();
        let block = fields.add_block(Pattern::parse("/*", PatternDialect::Netlify).unwrap()).unwrap();
        for name in [
            "Content-Length",
            "content-encoding",
            "Transfer-Encoding",
            "Connection",
            "Keep-Alive",
            "Upgrade",
            "Trailer",
            "Date",
            "ETag",
            "Last-Modified",
            "Content-Range",
            "Accept-Ranges",
            "Location",
            "Allow",
            "Age",
            "Host",
            "TE",
            "Retry-After",
            "WWW-Authenticate",
            "Content-Location",
            "Proxy-Connection",
            "bad name",
            "",
            "é",
            "x\n",
        ] {
            assert!(fields.add_field(block, name, "1", RuleOwner::Operator).is_err(), "{name}");
            assert!(fields.add_removal(block, name).is_err(), "{name}");
        }
        for name in [
            "Set-Cookie",
            "Strict-Transport-Security",
            "Alt-Svc",
            "Clear-Site-Data",
            "NEL",
            "Refresh",
            "Report-To",
            "Reporting-Endpoints",
            "Service-Worker-Allowed",
        ] {
            assert!(fields.add_field(block, name, "1", RuleOwner::Bundle).is_err(), "{name}");
            assert!(fields.add_field(block, name, "1", RuleOwner::Operator).is_ok(), "{name}");
        }
        for name in ["Cache-Control", "Content-Type", "Vary", "X-Content-Type-Options"] {
            assert!(fields.add_removal(block, name).is_err(), "{name}");
        }
        assert!(fields.add_field(block, "X-Content-Type-Options", "nosniff", RuleOwner::Bundle).is_ok());
        assert!(fields.add_field(block, "X-Content-Type-Options", "sniff", RuleOwner::Bundle).is_err());
        for value in ["a\nb", "a\r\nX: y", "é", "\0"] {
            assert!(fields.add_field(block, "X-A", value, RuleOwner::Bundle).is_err(), "{value:?}");
        }
    }

    #[test]
    fn what_all_rules_add_to_an_answer_is_bounded() {
        let mut draft = RuleDraft::default();
        let text = (0..5000).map(|n| format!("/*\n  X-{n}: {}\n", "x".repeat(100))).collect::<Vec<_>>().concat();
        netlify_files::read_headers(&text, netlify_files::HEADERS_FILE, &mut draft);
        assert!(!draft.faults.is_empty());
        let mut headers = HeaderMap::new();
        draft.fields.apply(b"/", Some(ProtectedHeaders::default()), StatusCode::OK, &mut headers);
        let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
        assert!(bytes <= MAX_FIELD_BYTES && headers.len() == MAX_PATTERNS.min(headers.len()), "{bytes}");
    }

    fn pattern(source: &str) -> Pattern {
        Pattern::parse(source, PatternDialect::Netlify).unwrap()
    }

    #[test]
    fn as_many_patterns_fields_and_bytes_count_as_may() {
        let mut fields = Fields::default();
        for number in 0..MAX_PATTERNS {
            assert_eq!(fields.add_block(pattern("/a")), Ok(number));
        }
        assert!(fields.add_block(pattern("/a")).is_err());
        for number in 0..MAX_FIELDS {
            assert!(
                if usize::is_multiple_of(number, 2) {
                    fields.add_field(7, "X", "1", RuleOwner::Bundle)
                } else {
                    fields.add_removal(7, "X")
                }
                .is_ok()
            );
        }
        assert!(fields.add_field(7, "X", "1", RuleOwner::Operator).is_err() && fields.add_removal(7, "X").is_err());
        // Names count like values, and removals like fields.
        for (first, last, expected) in [(1, "", true), (1, "1", false), (0, "1", true)] {
            let mut fields = Fields::default();
            let block = fields.add_block(pattern("/a")).unwrap();
            fields.add_field(block, "XY", &"1".repeat(MAX_FIELD_BYTES - 10 + first), RuleOwner::Bundle).unwrap();
            fields.add_removal(block, "XYZ").unwrap();
            assert_eq!(fields.add_field(block, "ABCD", last, RuleOwner::Operator).is_ok(), expected, "{first} {last}");
        }
    }

    #[test]
    fn a_bundle_says_of_a_field_what_it_may() {
        for (name, value, owner, is_told, expected) in [
            ("X-Frame-Options", "deny", RuleOwner::Bundle, false, &["x-frame-options: deny"][..]),
            ("X-Frame-Options", "SameOrigin", RuleOwner::Bundle, false, &["x-frame-options: SameOrigin"]),
            ("X-Frame-Options", "ALLOWALL", RuleOwner::Bundle, true, &[]),
            ("X-Frame-Options", "ALLOWALL", RuleOwner::Operator, false, &["x-frame-options: ALLOWALL"]),
            (
                "Content-Security-Policy",
                "img-src *; report-uri /r",
                RuleOwner::Bundle,
                true,
                &["content-security-policy: img-src *"],
            ),
            ("Content-Security-Policy-Report-Only", "report-to x", RuleOwner::Bundle, true, &[]),
            (
                "Content-Security-Policy",
                "report-to x",
                RuleOwner::Operator,
                false,
                &["content-security-policy: report-to x"],
            ),
            ("X-A", "img-src *; report-uri /r", RuleOwner::Bundle, false, &["x-a: img-src *; report-uri /r"]),
            ("X-Content-Type-Options", "nosniff", RuleOwner::Operator, false, &[]),
            ("X-Content-Type-Options", "NOSNIFF", RuleOwner::Operator, true, &[]),
            ("X-A", "", RuleOwner::Bundle, false, &["x-a: "]),
            ("X-A", "\u{e9}", RuleOwner::Operator, true, &[]),
            ("Set-Cookie", "a=b", RuleOwner::Bundle, true, &[]),
            ("Set-Cookie", "a=b", RuleOwner::Operator, false, &["set-cookie: a=b"]),
        ] {
            let mut fields = Fields::default();
            let block = fields.add_block(pattern("/a")).unwrap();
            assert_eq!(fields.add_field(block, name, value, owner).is_err(), is_told, "{name}: {value}");
            let mut headers = HeaderMap::new();
            fields.apply(b"/a", None, StatusCode::OK, &mut headers);
            let said: Vec<String> =
                headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            assert_eq!(said, expected, "{name}: {value}");
        }
    }

    #[test]
    fn what_is_said_of_a_file_goes_along_with_files_and_everything_else_always() {
        let names = ["cache-control", "content-disposition", "content-language", "content-type", "expires", "link"];
        for name in names.into_iter().chain(["x-a", "vary", "referrer-policy"]) {
            for status in [200, 206, 304, 301, 308, 404, 412, 416] {
                let text = format!("/*\n {name}: new\n");
                let told = applied(&text, RuleOwner::Operator, "/", status, &[("content-type", "old/type")]);
                let expected = !names.contains(&name) || matches!(status, 200 | 206 | 304);
                assert_eq!(told.contains(&format!("{name}: new")), expected, "{name} {status}");
            }
        }
        assert_eq!(applied("/*\n Cache-Control: new\n", RuleOwner::Bundle, "/", 304, &[]), ["cache-control: new"]);
    }

    #[test]
    fn several_values_of_a_field_become_what_it_is_made_for() {
        for (rule, owner, before, expected) in [
            ("X-A: 1\n X-A: 2", RuleOwner::Bundle, &[("x-a", "0")][..], &["x-a: 1, 2"][..]),
            (
                "Set-Cookie: a=1\n Set-Cookie: b=2",
                RuleOwner::Operator,
                &[("set-cookie", "c=3")],
                &["set-cookie: a=1", "set-cookie: b=2"],
            ),
            (
                "Vary: Accept\n Vary: Cookie, ACCEPT,",
                RuleOwner::Operator,
                &[("vary", "accept-encoding")],
                &["vary: accept-encoding, Accept, Cookie"],
            ),
            ("Vary: Cookie", RuleOwner::Bundle, &[("vary", "Accept"), ("vary", "cookie")], &["vary: Accept, cookie"]),
            ("Link: </b>", RuleOwner::Operator, &[("link", "</a>"), ("link", "</c>")], &["link: </a>, </c>, </b>"]),
            (
                "Content-Security-Policy: a",
                RuleOwner::Bundle,
                &[("content-security-policy", "b")],
                &["content-security-policy: a", "content-security-policy: b"],
            ),
            (
                "Content-Security-Policy-Report-Only: a",
                RuleOwner::Operator,
                &[("content-security-policy-report-only", "b")],
                &["content-security-policy-report-only: a"],
            ),
            (
                "X-DNS-Prefetch-Control: on",
                RuleOwner::Bundle,
                &[("x-dns-prefetch-control", "off")],
                &["x-dns-prefetch-control: off"],
            ),
            (
                "X-DNS-Prefetch-Control: on",
                RuleOwner::Operator,
                &[("x-dns-prefetch-control", "off")],
                &["x-dns-prefetch-control: on"],
            ),
            (
                "X-DNS-Prefetch-Control: off",
                RuleOwner::Bundle,
                &[("x-dns-prefetch-control", "on")],
                &["x-dns-prefetch-control: off"],
            ),
            ("X-A: on", RuleOwner::Bundle, &[("x-a", "off")], &["x-a: on"]),
            ("! X-A", RuleOwner::Bundle, &[("x-a", "1")], &["x-a: 1"]),
            ("! X-A", RuleOwner::Operator, &[("x-a", "1")], &[]),
            ("X-A: 1\n ! X-A\n X-B: 2", RuleOwner::Bundle, &[], &["x-b: 2"]),
            ("! X-A\n X-A: 1", RuleOwner::Bundle, &[], &["x-a: 1"]),
        ] {
            let mut draft = RuleDraft::default();
            let block = draft.fields.add_block(pattern("/*")).unwrap();
            for line in rule.split('\n').map(str::trim) {
                match line.strip_prefix("! ") {
                    Some(name) => draft.fields.add_removal(block, name).unwrap(),
                    None => split_field(line)
                        .and_then(|(name, value)| draft.fields.add_field(block, name, value, owner))
                        .unwrap(),
                }
            }
            let mut headers = HeaderMap::new();
            for (name, value) in before {
                headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
            }
            let ground = (owner == RuleOwner::Bundle).then(ProtectedHeaders::default);
            draft.fields.apply(b"/", ground, StatusCode::OK, &mut headers);
            let mut said: Vec<String> =
                headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
            said.sort();
            assert_eq!(said, expected, "{rule} {owner:?}");
        }
        assert!(split_field("no colon").is_err());
        assert_eq!(split_field(" X-A : b: c "), Ok(("X-A", "b: c")));
    }

    #[test]
    fn the_types_that_rules_name_are_those_of_the_address() {
        let mut fields = Fields::default();
        for (source, name, value) in [
            ("/a/*", "Content-Type", "a/1"),
            ("/a/*", "X-A", "a/2"),
            ("/*", "content-type", "a/3"),
            ("/b", "Content-Type", "a/4"),
        ] {
            let block = fields.add_block(pattern(source)).unwrap();
            fields.add_field(block, name, value, RuleOwner::Bundle).unwrap();
        }
        for (address, expected) in [("/a/x", &["a/1", "a/3"][..]), ("/b", &["a/3", "a/4"]), ("/c", &["a/3"])] {
            assert_eq!(fields.media_types(address.as_bytes()).collect::<Vec<_>>(), expected, "{address}");
        }
        assert!(Fields::default().is_empty() && !fields.is_empty());
        let ground = Some(ProtectedHeaders { has_frames: true, ..ProtectedHeaders::default() });
        let mut ruled = Fields::default();
        let block = ruled.add_block(pattern("/a")).unwrap();
        ruled.add_field(block, "X-Frame-Options", "DENY", RuleOwner::Bundle).unwrap();
        ruled.add_field(block, "X-A", "1", RuleOwner::Bundle).unwrap();
        let mut headers = HeaderMap::new();
        ruled.apply(b"/a", ground, StatusCode::OK, &mut headers);
        assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-a"]);
        ruled.apply(b"/b", None, StatusCode::OK, &mut headers);
        assert_eq!(headers.len(), 1);
    }
}
