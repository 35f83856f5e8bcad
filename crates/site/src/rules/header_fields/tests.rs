use super::super::pattern::PatternDialect;
use super::super::{RuleDraft, netlify_files};
use super::*;

fn apply_rules(text: &str, owner: RuleOwner, address: &str, status: u16, before: &[(&str, &str)]) -> Vec<String> {
    let mut draft = RuleDraft::default();
    netlify_files::read_headers(text, netlify_files::HEADERS_FILE, &mut draft);
    assert_eq!(draft.faults, []);
    let mut headers = HeaderMap::new();
    for (name, value) in before {
        headers.append(HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
    }
    let restrictions = (owner == RuleOwner::Bundle).then(OperatorRestrictions::default);
    draft.fields.apply(address.as_bytes(), restrictions, StatusCode::from_u16(status).unwrap(), &mut headers);
    let mut fields: Vec<String> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    fields.sort();
    fields
}

const RULES: &str = "# all\n/*\n  X-A: 1\n  Vary: Cookie, accept\n/guides/*\n  X-A: 2\n\tX-B: x: y\n  Cache-Control: max-age=5\n/guides/open\n  ! X-A\n";

#[test]
fn header_rules_for_one_address_accumulate_and_operator_rules_remove_fields() {
    let fields_for = |address| apply_rules(RULES, RuleOwner::Bundle, address, 200, &[("vary", "Accept"), ("x-a", "0")]);
    assert_eq!(fields_for("/"), ["vary: Accept, Cookie", "x-a: 1"]);
    assert_eq!(fields_for("/guides/x"), ["cache-control: max-age=5", "vary: Accept, Cookie", "x-a: 1, 2", "x-b: x: y"]);
    assert_eq!(
        fields_for("/guides/open")[2..],
        ["x-a: 0", "x-b: x: y"],
        "a bundle does not remove a field of docwharf"
    );
    assert_eq!(apply_rules(RULES, RuleOwner::Operator, "/guides/open", 200, &[("x-a", "0")]).len(), 3);
}

#[test]
fn cache_control_of_a_bundle_does_not_apply_to_errors_and_redirects() {
    for (status, expected) in [(200, true), (206, true), (304, true), (404, false), (301, false), (412, false)] {
        let fields = apply_rules(RULES, RuleOwner::Bundle, "/guides/x", status, &[("cache-control", "no-cache")]);
        assert_eq!(fields.contains(&"cache-control: max-age=5".to_owned()), expected, "{status}");
        assert!(fields.contains(&"x-b: x: y".to_owned()), "{status}");
    }
    let with_content_type =
        |before: &[(&str, &str)]| apply_rules("/*\n Content-Type: a/b\n", RuleOwner::Bundle, "/", 200, before);
    assert_eq!(with_content_type(&[("content-type", "text/html")]), ["content-type: a/b"]);
    assert_eq!(with_content_type(&[]), [""; 0]);
}

// Regression: a rule for Content-Type replaced the type that has the boundary, so clients could not separate the parts.
#[test]
fn the_type_of_a_response_with_several_ranges_is_not_replaced() {
    let before = [("content-type", "multipart/byteranges; boundary=x")];
    for owner in [RuleOwner::Bundle, RuleOwner::Operator] {
        let fields = apply_rules("/*\n Content-Type: a/b\n", owner, "/", 206, &before);
        assert_eq!(fields, ["content-type: multipart/byteranges; boundary=x"], "{owner:?}");
    }
}

#[test]
fn link_fields_are_appended_and_operator_rules_can_remove_them() {
    let rule = "/*\n Link: </b>\n Link: </c>\n";
    assert_eq!(apply_rules(rule, RuleOwner::Bundle, "/", 200, &[("link", "</a>")]), ["link: </a>, </b>, </c>"]);
    assert_eq!(apply_rules("/*\n ! Link\n", RuleOwner::Operator, "/", 200, &[("link", "</a>")]), [""; 0]);
}

#[test]
fn bundle_header_rules_can_tighten_security_headers_but_not_weaken_them() {
    let frames = |rule: &str, owner, before| apply_rules(rule, owner, "/", 200, &[("x-frame-options", before)]);
    let open = "/*\n X-Frame-Options: SAMEORIGIN\n";
    assert_eq!(frames(open, RuleOwner::Bundle, "DENY"), ["x-frame-options: DENY"]);
    assert_eq!(frames(open, RuleOwner::Operator, "DENY"), ["x-frame-options: SAMEORIGIN"]);
    let shut = "/*\n X-Frame-Options: DENY\n";
    assert_eq!(frames(shut, RuleOwner::Bundle, "SAMEORIGIN"), ["x-frame-options: DENY"]);
    let rule = "/*\n Content-Security-Policy: default-src *\n";
    let before = [("content-security-policy", "default-src 'self'")];
    assert_eq!(apply_rules(rule, RuleOwner::Bundle, "/", 200, &before).len(), 2);
    assert_eq!(apply_rules(rule, RuleOwner::Operator, "/", 200, &before), ["content-security-policy: default-src *"]);
}

#[test]
fn header_fields_that_the_server_sets_are_refused_in_rules() {
    let mut fields = HeaderFieldRules::default();
    let block = fields.add_rule(Pattern::parse("/*", PatternDialect::Netlify).unwrap()).unwrap();
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
fn total_size_of_fields_that_rules_add_to_a_response_is_limited() {
    let mut draft = RuleDraft::default();
    let text = (0..5000).map(|n| format!("/*\n  X-{n}: {}\n", "x".repeat(100))).collect::<Vec<_>>().concat();
    netlify_files::read_headers(&text, netlify_files::HEADERS_FILE, &mut draft);
    assert!(!draft.faults.is_empty());
    let mut headers = HeaderMap::new();
    draft.fields.apply(b"/", Some(OperatorRestrictions::default()), StatusCode::OK, &mut headers);
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    assert!(bytes <= MAX_FIELD_BYTES && headers.len() == MAX_PATTERNS.min(headers.len()), "{bytes}");
}

fn pattern(source: &str) -> Pattern {
    Pattern::parse(source, PatternDialect::Netlify).unwrap()
}

#[test]
fn header_rules_are_accepted_up_to_the_limits_of_patterns_fields_and_bytes() {
    let mut fields = HeaderFieldRules::default();
    for number in 0..MAX_PATTERNS {
        assert_eq!(fields.add_rule(pattern("/a")), Ok(number));
    }
    assert!(fields.add_rule(pattern("/a")).is_err());
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
        let mut fields = HeaderFieldRules::default();
        let block = fields.add_rule(pattern("/a")).unwrap();
        fields.add_field(block, "XY", &"1".repeat(MAX_FIELD_BYTES - 10 + first), RuleOwner::Bundle).unwrap();
        fields.add_removal(block, "XYZ").unwrap();
        assert_eq!(fields.add_field(block, "ABCD", last, RuleOwner::Operator).is_ok(), expected, "{first} {last}");
    }
}

#[test]
fn bundle_cookies_csp_reports_and_unsafe_frame_options_are_reported_as_errors() {
    for (name, value, owner, is_refused, expected) in [
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
        let mut fields = HeaderFieldRules::default();
        let block = fields.add_rule(pattern("/a")).unwrap();
        assert_eq!(fields.add_field(block, name, value, owner).is_err(), is_refused, "{name}: {value}");
        let mut headers = HeaderMap::new();
        fields.apply(b"/a", None, StatusCode::OK, &mut headers);
        let fields: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        assert_eq!(fields, expected, "{name}: {value}");
    }
}

#[test]
fn representation_headers_apply_only_to_200_206_and_304_and_others_to_any_status() {
    let names = ["cache-control", "content-disposition", "content-language", "content-type", "expires", "link"];
    for name in names.into_iter().chain(["x-a", "vary", "referrer-policy"]) {
        for status in [200, 206, 304, 301, 308, 404, 412, 416] {
            let text = format!("/*\n {name}: new\n");
            let fields = apply_rules(&text, RuleOwner::Operator, "/", status, &[("content-type", "old/type")]);
            let expected = !names.contains(&name) || matches!(status, 200 | 206 | 304);
            assert_eq!(fields.contains(&format!("{name}: new")), expected, "{name} {status}");
        }
    }
    assert_eq!(apply_rules("/*\n Cache-Control: new\n", RuleOwner::Bundle, "/", 304, &[]), ["cache-control: new"]);
}

#[test]
fn repeated_header_fields_are_joined_replaced_or_repeated_as_each_field_requires() {
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
        let block = draft.fields.add_rule(pattern("/*")).unwrap();
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
        let restrictions = (owner == RuleOwner::Bundle).then(OperatorRestrictions::default);
        draft.fields.apply(b"/", restrictions, StatusCode::OK, &mut headers);
        let mut fields: Vec<String> =
            headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
        fields.sort();
        assert_eq!(fields, expected, "{rule} {owner:?}");
    }
    assert!(split_field("no colon").is_err());
    assert_eq!(split_field(" X-A : b: c "), Ok(("X-A", "b: c")));
}

#[test]
fn media_types_of_header_rules_are_listed_for_the_matching_address() {
    let mut fields = HeaderFieldRules::default();
    for (source, name, value) in [
        ("/a/*", "Content-Type", "a/1"),
        ("/a/*", "X-A", "a/2"),
        ("/*", "content-type", "a/3"),
        ("/b", "Content-Type", "a/4"),
    ] {
        let block = fields.add_rule(pattern(source)).unwrap();
        fields.add_field(block, name, value, RuleOwner::Bundle).unwrap();
    }
    for (address, expected) in [("/a/x", &["a/1", "a/3"][..]), ("/b", &["a/3", "a/4"]), ("/c", &["a/3"])] {
        assert_eq!(fields.media_types(address.as_bytes()).collect::<Vec<_>>(), expected, "{address}");
    }
    assert!(HeaderFieldRules::default().is_empty() && !fields.is_empty());
    let restrictions = Some(OperatorRestrictions { sets_frame_policy: true, ..OperatorRestrictions::default() });
    let mut rules = HeaderFieldRules::default();
    let block = rules.add_rule(pattern("/a")).unwrap();
    rules.add_field(block, "X-Frame-Options", "DENY", RuleOwner::Bundle).unwrap();
    rules.add_field(block, "X-A", "1", RuleOwner::Bundle).unwrap();
    let mut headers = HeaderMap::new();
    rules.apply(b"/a", restrictions, StatusCode::OK, &mut headers);
    assert_eq!(headers.keys().map(HeaderName::as_str).collect::<Vec<_>>(), ["x-a"]);
    rules.apply(b"/b", None, StatusCode::OK, &mut headers);
    assert_eq!(headers.len(), 1);
}
