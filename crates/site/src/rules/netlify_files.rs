//! Reads `_redirects` and `_headers`, in the format of Netlify and Cloudflare Pages.

use super::header_fields::{self, RuleOwner};
use super::pattern::{Pattern, PatternDialect};
use super::rule::{RedirectRule, RuleAction};
use super::rule_draft::RuleDraft;

pub use crate::lookup::unserved_paths::{HEADERS_FILE, REDIRECTS_FILE};

/// The maximum length of a line in bytes. A longer line is ignored.
const MAX_LINE_BYTES: usize = 5_000;
/// The status of a redirect without one.
const DEFAULT_STATUS: u16 = 301;

/// Reads the lines of a `_redirects` file: `source destination [status][!]`. `name` is the name of the file in
/// messages.
pub fn read_redirects(text: &str, name: &str, draft: &mut RuleDraft) {
    let before = draft.fault_count;
    for (number, line) in (1..).zip(lines(text)) {
        let line = line.split_once(" #").map_or(line, |(before, _)| before).trim();
        if !line.is_empty() && !line.starts_with('#') {
            let place = format!("{name}:{number}");
            if draft.has_too_many_faults(before, &place) {
                break;
            }
            draft.add(place.clone(), parse_redirect(line, place));
        }
    }
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.strip_prefix('\u{feff}').unwrap_or(text).lines()
}

fn parse_redirect(line: &str, place: String) -> Result<RedirectRule, String> {
    if line.len() > MAX_LINE_BYTES {
        return Err(format!("the line is longer than {MAX_LINE_BYTES} bytes"));
    }
    let mut words = line.split_whitespace();
    let source = words.next().unwrap_or_default();
    let rest: Vec<&str> = words.collect();
    let Some(destination_index) = rest.iter().position(|word| word.starts_with('/') || word.contains("://")) else {
        return Err(match rest.first() {
            None => "the line has no destination: write it like /old /new 301".to_owned(),
            Some(word) => format!("{word:?} is not a destination: write it like /new or https://host/new"),
        });
    };
    if destination_index > 0 {
        return Err(format!("conditions on the query ({}) are not supported", rest[0]));
    }
    let (mut action, mut force) = (RuleAction::from_status(DEFAULT_STATUS)?, false);
    for (number, word) in rest[1..].iter().enumerate() {
        let status = word.strip_suffix('!').unwrap_or(word);
        match status.parse::<u16>() {
            Ok(status) if number == 0 => (action, force) = (RuleAction::from_status(status)?, word.ends_with('!')),
            _ => return Err(format!("conditions ({word}) are not supported")),
        }
    }
    RedirectRule::new(place, source, rest[0], PatternDialect::Netlify, action, force)
}

/// Reads the blocks of a `_headers` file: a line with a pattern, followed by indented lines `Name: value`, or `! Name`
/// to remove a field.
pub fn read_headers(text: &str, name: &str, draft: &mut RuleDraft) {
    // `None` after a faulty pattern, whose lines are ignored.
    let mut block: Option<usize> = None;
    let before = draft.fault_count;
    for (number, line) in (1..).zip(lines(text)) {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with('#') {
            continue;
        }
        let place = format!("{name}:{number}");
        if draft.has_too_many_faults(before, &place) {
            break;
        }
        if line.len() > MAX_LINE_BYTES {
            draft.add_fault(place, format!("the line is longer than {MAX_LINE_BYTES} bytes"));
            continue;
        }
        if !line.starts_with([' ', '\t']) {
            block = match Pattern::parse(trimmed, PatternDialect::Netlify)
                .and_then(|pattern| draft.fields.add_rule(pattern))
            {
                Ok(number) => Some(number),
                Err(message) => {
                    draft.add_fault(place, message);
                    None
                }
            };
            continue;
        }
        let Some(block) = block else { continue };
        let result = match trimmed.strip_prefix('!') {
            Some(name) => draft.fields.add_removal(block, name.trim()),
            None => header_fields::split_field(trimmed)
                .and_then(|(name, value)| draft.fields.add_field(block, name, value, RuleOwner::Bundle)),
        };
        if let Err(message) = result {
            draft.add_fault(place, message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_line_is_parsed_as_a_rule_or_reported_with_the_reason() {
        for (line, expected) in [
            ("/a /b", Ok((301, false))),
            ("\t/a\t/b   302  # moved", Ok((302, false))),
            ("/a /b 308!", Ok((308, true))),
            ("/a/* /index.html 200", Ok((200, false))),
            ("/en/* /en/404.html 404", Ok((404, false))),
            ("/a https://x.example/b", Ok((301, false))),
            ("/a /b#c 301", Ok((301, false))),
            ("/a", Err("no destination")),
            ("/a b", Err("is not a destination")),
            ("/a id=:id /b", Err("conditions on the query")),
            ("/a /b 302 Country=de", Err("conditions (Country=de)")),
            ("/a /b 418", Err("the status 418")),
            ("/a /b 99999", Err("conditions")),
            ("/a/* https://x.example/:splat 200", Err("cannot serve")),
            ("https://x.example/a /b", Err("names a host")),
            ("a /b", Err("not an address")),
        ] {
            let mut draft = RuleDraft::default();
            read_redirects(line, REDIRECTS_FILE, &mut draft);
            match expected {
                Ok((status, force)) => {
                    assert_eq!(draft.faults, [], "{line}");
                    let rule = &draft.rules[0];
                    assert_eq!((rule.action.status(), rule.force), (status, force), "{line}");
                }
                Err(expected) => {
                    assert!(draft.rules.is_empty(), "{line}");
                    let fault = draft.faults[0].to_string();
                    assert!(fault.starts_with("_redirects:1: ") && fault.contains(expected), "{line}: {fault}");
                }
            }
        }
    }

    #[test]
    fn comments_and_empty_lines_are_skipped_and_line_numbers_are_kept() {
        let mut draft = RuleDraft::default();
        read_redirects("\u{feff}# moved\r\n\r\n  # more\r\n/a /b\r\n/c\r\n", REDIRECTS_FILE, &mut draft);
        assert_eq!((&*draft.rules[0].place, draft.rules.len()), ("_redirects:4", 1));
        assert_eq!(draft.faults[0].place, "_redirects:5");
    }

    /// The places of the faults, and the header fields for an address.
    fn read_fields(text: &str, address: &str) -> (Vec<String>, Vec<String>) {
        let mut draft = RuleDraft::default();
        read_headers(text, HEADERS_FILE, &mut draft);
        let mut map = http::HeaderMap::new();
        draft.fields.apply(address.as_bytes(), None, http::StatusCode::OK, &mut map);
        let fields = map.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        (draft.faults.iter().map(|fault| fault.place.clone()).collect(), fields.collect())
    }

    #[test]
    fn headers_file_block_is_a_pattern_followed_by_indented_fields() {
        let none: [&str; 0] = [];
        for (text, faults, fields) in [
            ("/a\n  X-A: 1\n", &none[..], &["x-a: 1"][..]),
            ("\u{feff}# all\r\n/a\r\n\tX-A:1\r\n", &none, &["x-a: 1"]),
            ("/a\n\n  # no\n  X-A:  x: y \n", &none, &["x-a: x: y"]),
            ("/b\n  X-A: 1\n", &none, &none),
            ("/*\n  X-A: 1\n/a\n  ! X-A\n", &none, &none),
            ("/a\n  !X-A\n/*\n  X-A: 1\n", &none, &["x-a: 1"]),
            ("  X-A: 1\n/a\n  X-B: 1\n", &none, &["x-b: 1"]),
            ("a\n  X-A: 1\n/a\n  X-B: 1\n", &["_headers:1"], &["x-b: 1"]),
            ("/a\n  X-A 1\n  X-B: 1\n", &["_headers:2"], &["x-b: 1"]),
            ("/a\n  ! bad name\n  X-B: 1\n", &["_headers:2"], &["x-b: 1"]),
            ("/a\n  Set-Cookie: a=b\n", &["_headers:2"], &none),
            ("/a\nX-A: 1\n  X-B: 1\n", &["_headers:2"], &none),
        ] {
            let (found_faults, found_fields) = read_fields(text, "/a");
            assert_eq!(
                (found_faults, found_fields),
                (faults.iter().map(|&f| f.to_owned()).collect(), fields.iter().map(|&f| f.to_owned()).collect()),
                "{text}"
            );
        }
    }

    #[test]
    fn redirects_and_headers_lines_longer_than_the_limit_are_refused() {
        for (extra_bytes, is_read) in [(0, true), (1, false)] {
            let value = "x".repeat(MAX_LINE_BYTES + extra_bytes - "  X-A: ".len());
            let (faults, fields) = read_fields(&format!("/a\n  X-A: {value}\n  X-B: 1\n"), "/a");
            assert_eq!((faults.len(), fields.len()), if is_read { (0, 2) } else { (1, 1) });
            let mut draft = RuleDraft::default();
            read_redirects(
                &format!("/a{}/b\n/c /d\n", " ".repeat(MAX_LINE_BYTES + extra_bytes - 4)),
                REDIRECTS_FILE,
                &mut draft,
            );
            assert_eq!((draft.faults.len(), draft.rules.len()), if is_read { (0, 2) } else { (1, 1) });
        }
        for (line, rules) in [
            ("/a /b 301 302", 0),
            ("/a /b 301 #302", 1),
            ("/a /b#302", 1),
            ("/a /b 301!!", 0),
            ("/a ://b", 0),
            ("#/a /b", 0),
        ] {
            let mut draft = RuleDraft::default();
            read_redirects(line, REDIRECTS_FILE, &mut draft);
            assert_eq!(draft.rules.len(), rules, "{line}");
        }
    }
}
