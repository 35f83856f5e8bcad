//! The pattern of a rule: a source with `*` and `:name`.
//!
//! There are two dialects. In both, `:name` stands for one segment, and `:name*` and a `*` that is a whole segment
//! stand for any number of segments; more text may follow. In `_redirects` and `_headers` of hosting services, a `*`
//! within a segment also stands for any text, slashes included. In a `docs.json`, a `*` at the end of a segment stands
//! for the rest of that segment. In both, a match takes one pass over the address, without backtracking.

use percent_encoding::percent_decode_str;
use serde::{Deserialize, Serialize};

/// The maximum length of a source or destination in bytes.
pub const MAX_SOURCE_BYTES: usize = 2000;
/// The maximum number of captures of one pattern.
pub const MAX_CAPTURES: usize = 8;

/// The meaning of `*` in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternDialect {
    /// The meaning in `_redirects`, `_headers` and `[[server.headers]]`.
    Netlify,
    /// The meaning in a `docs.json` and in `[[server.redirects]]`.
    DocsJson,
}

/// A part of a pattern. Only [`PatternToken::Literal`] contains slashes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum PatternToken {
    /// These bytes, percent-decoded.
    Literal(Box<[u8]>),
    /// A whole segment, not empty.
    Segment,
    /// The rest of a segment, possibly empty.
    Rest,
}

/// The part that stands for any number of segments, and the tokens after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct PatternTail {
    /// Whether it stands for whole segments. Then the slash before them may be missing if there are none.
    is_whole_segments: bool,
    end: Vec<PatternToken>,
}

/// A parsed source. It can be passed to another process of this program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pattern {
    head: Vec<PatternToken>,
    tail: Option<PatternTail>,
    names: Vec<Box<str>>,
}

/// The captures of a match: the parts of the address that the variable parts of the pattern stand for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Captures<'a> {
    parts: [&'a [u8]; MAX_CAPTURES],
}

impl<'a> Captures<'a> {
    /// Returns the capture with this number, below [`MAX_CAPTURES`].
    pub fn get(&self, number: usize) -> &'a [u8] {
        self.parts.get(number).copied().unwrap_or_default()
    }
}

/// The state of the parser: tokens and names.
#[derive(Default)]
struct PatternParser {
    tokens: Vec<PatternToken>,
    literal: Vec<u8>,
    names: Vec<Box<str>>,
}

impl PatternParser {
    fn flush(&mut self) {
        if !self.literal.is_empty() {
            self.tokens.push(PatternToken::Literal(std::mem::take(&mut self.literal).into()));
        }
    }

    fn capture(&mut self, token: PatternToken, name: &str) {
        self.flush();
        self.tokens.push(token);
        self.names.push(name.into());
    }
}

impl Pattern {
    /// Parses a source: an address of the site with its leading slash, percent-encoded where necessary.
    pub fn parse(source: &str, dialect: PatternDialect) -> Result<Pattern, String> {
        check_source(source)?;
        let trimmed = if source == "/" { source } else { source.strip_suffix('/').unwrap_or(source) };
        let mut parser = PatternParser::default();
        let mut head = None;
        for segment in trimmed.split('/').skip(1) {
            parser.literal.push(b'/');
            let kind = classify_segment(segment, dialect)?;
            match kind {
                SegmentKind::Literal => parser.literal.extend(decode_literal(segment)?),
                SegmentKind::Segment(name) => parser.capture(PatternToken::Segment, name),
                SegmentKind::Rest(before) => {
                    parser.literal.extend(decode_literal(before)?);
                    parser.capture(PatternToken::Rest, "*");
                }
                SegmentKind::AnySegments { before, after, name } => {
                    if head.is_some() {
                        return Err("only one * can stand for any number of segments".to_owned());
                    }
                    let is_whole_segments = before.is_empty() && after.is_empty();
                    if is_whole_segments {
                        parser.literal.pop();
                    }
                    parser.literal.extend(decode_literal(before)?);
                    parser.flush();
                    parser.names.push(name.into());
                    head = Some((std::mem::take(&mut parser.tokens), is_whole_segments));
                    parser.literal.extend(decode_literal(after)?);
                }
            }
        }
        parser.flush();
        let PatternParser { tokens, names, .. } = parser;
        if names.len() > MAX_CAPTURES {
            return Err(format!("a source can have at most {MAX_CAPTURES} parts with * or :name"));
        }
        let Some((head, is_whole_segments)) = head else { return Ok(Pattern { head: tokens, tail: None, names }) };
        if tokens.contains(&PatternToken::Rest) {
            return Err("no other * can follow the one that stands for any number of segments".to_owned());
        }
        Ok(Pattern { head, tail: Some(PatternTail { is_whole_segments, end: tokens }), names })
    }

    /// Returns the address, without a trailing slash, if the pattern matches only one.
    pub fn exact(&self) -> Option<&[u8]> {
        match (&self.tail, &self.head[..]) {
            (None, [PatternToken::Literal(literal)]) => Some(literal),
            _ => None,
        }
    }

    /// Returns whether the pattern matches every address, as `/*` does.
    pub fn matches_every_address(&self) -> bool {
        self.head.is_empty() && self.tail.as_ref().is_some_and(|tail| tail.end.is_empty())
    }

    /// Returns the names of the captures, in the order of their numbers.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Matches a decoded address with its leading slash. One trailing slash makes no difference.
    pub fn matches<'a>(&self, address: &'a [u8]) -> Option<Captures<'a>> {
        let mut captures = Captures::default();
        let mut number = 0;
        let tail_ends_pattern = self.tail.as_ref().is_some_and(|tail| tail.end.is_empty());
        let mut rest = if tail_ends_pattern { address } else { without_trailing_slash(address) };
        for token in &self.head {
            let end = match token {
                PatternToken::Literal(literal) => {
                    rest = rest.strip_prefix(&**literal)?;
                    continue;
                }
                PatternToken::Segment => Some(first_segment_len(rest)).filter(|&end| end > 0)?,
                PatternToken::Rest => first_segment_len(rest),
            };
            captures.parts[number] = &rest[..end];
            number += 1;
            rest = &rest[end..];
        }
        let Some(tail) = &self.tail else { return rest.is_empty().then_some(captures) };
        if tail.is_whole_segments {
            match rest.split_first() {
                None if tail.end.is_empty() => return Some(captures),
                Some((b'/', after)) => rest = after,
                _ => return None,
            }
        }
        let mut last = self.names.len();
        for token in tail.end.iter().rev() {
            if let PatternToken::Literal(literal) = token {
                rest = rest.strip_suffix(&**literal)?;
                continue;
            }
            let start = rest.iter().rposition(|&b| b == b'/').map_or(0, |slash| slash + 1);
            if start == rest.len() {
                return None;
            }
            last -= 1;
            captures.parts[last] = &rest[start..];
            rest = &rest[..start];
        }
        captures.parts[number] = rest;
        Some(captures)
    }

    /// Returns an address that matches the pattern, with `filler` for each variable part.
    pub fn example(&self, filler: &str) -> Vec<u8> {
        let mut address = Vec::new();
        let end = self.tail.iter().flat_map(|tail| &tail.end);
        let append = |address: &mut Vec<u8>, token: &PatternToken| match token {
            PatternToken::Literal(literal) => address.extend_from_slice(literal),
            PatternToken::Segment | PatternToken::Rest => address.extend_from_slice(filler.as_bytes()),
        };
        self.head.iter().for_each(|token| append(&mut address, token));
        if let Some(tail) = &self.tail {
            if tail.is_whole_segments {
                address.push(b'/');
            }
            address.extend_from_slice(filler.as_bytes());
        }
        end.for_each(|token| append(&mut address, token));
        address
    }
}

/// The meaning of a segment of a source.
enum SegmentKind<'a> {
    /// Fixed text.
    Literal,
    /// A capture of the whole segment, with this name.
    Segment(&'a str),
    /// This text, then a capture of the rest of the segment.
    Rest(&'a str),
    /// A capture of any number of segments, between two texts.
    AnySegments { before: &'a str, after: &'a str, name: &'a str },
}

fn classify_segment(segment: &str, dialect: PatternDialect) -> Result<SegmentKind<'_>, String> {
    if let Some(rest) = segment.strip_prefix(':') {
        let name = &rest[..name_len(rest)];
        if !name.is_empty() {
            return match &rest[name.len()..] {
                "" => Ok(SegmentKind::Segment(name)),
                "*" => Ok(SegmentKind::AnySegments { before: "", after: "", name }),
                _ => Err(format!(":{name} stands for a whole segment; the text after it is not supported")),
            };
        }
    }
    let Some((before, after)) = segment.split_once('*') else { return Ok(SegmentKind::Literal) };
    match dialect {
        _ if after.contains('*') => Err("a segment can have only one *".to_owned()),
        _ if segment == "*" => Ok(SegmentKind::AnySegments { before, after, name: "splat" }),
        PatternDialect::Netlify => Ok(SegmentKind::AnySegments { before, after, name: "splat" }),
        PatternDialect::DocsJson if after.is_empty() => Ok(SegmentKind::Rest(before)),
        PatternDialect::DocsJson => Err("a * must be at the end of a segment".to_owned()),
    }
}

/// Returns the length of the name at the beginning of `text`, in bytes: a letter, then letters, digits and `_`.
pub(super) fn name_len(text: &str) -> usize {
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return 0;
    }
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len())
}

/// Checks that a source is an address that a request can have.
fn check_source(source: &str) -> Result<(), String> {
    if source.len() > MAX_SOURCE_BYTES {
        return Err(format!("the source is longer than {MAX_SOURCE_BYTES} bytes"));
    }
    if source.contains("://") {
        return Err("the source names a host; rules apply to addresses of this site only".to_owned());
    }
    if !source.starts_with('/') {
        return Err("the source is not an address: write it like /guides/start".to_owned());
    }
    if source.contains(['?', '#']) {
        return Err("the source has a query or a fragment, which are not compared".to_owned());
    }
    if source.chars().any(|c| c.is_control() || c == ' ') {
        return Err("the source has a space or a control character: write it percent-encoded".to_owned());
    }
    if source.split('/').skip(1).any(|segment| matches!(segment, "." | "..")) {
        return Err("no address has . or .. in it: the source can never match".to_owned());
    }
    let path: Vec<u8> = percent_decode_str(&source[1..]).collect();
    if path.split(|&b| b == b'/').next() == Some(crate::lookup::unserved_paths::RESERVED_FOLDER) {
        return Err("addresses below /_docwharf/ are reserved for docwharf: the source can never match".to_owned());
    }
    Ok(())
}

fn decode_literal(text: &str) -> Result<Vec<u8>, String> {
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    if bytes.iter().any(|&b| b < 0x20 || b == 0x7f) {
        return Err("no address has control characters in it: the source can never match".to_owned());
    }
    Ok(bytes)
}

/// Returns an address without its trailing slash.
pub fn without_trailing_slash(address: &[u8]) -> &[u8] {
    match address.strip_suffix(b"/") {
        Some(trimmed) if !trimmed.is_empty() => trimmed,
        _ => address,
    }
}

/// Returns the length of the first segment.
fn first_segment_len(rest: &[u8]) -> usize {
    rest.iter().position(|&b| b == b'/').unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture_texts(source: &str, dialect: PatternDialect, address: &str) -> Option<Vec<String>> {
        let pattern = Pattern::parse(source, dialect).unwrap();
        let captures = pattern.matches(address.as_bytes())?;
        let text = |n| String::from_utf8(captures.get(n).to_vec()).unwrap();
        Some((0..pattern.names().len()).map(text).collect())
    }

    #[test]
    fn pattern_matches_the_addresses_that_its_dialect_defines() {
        use PatternDialect::{DocsJson, Netlify};
        let cases: &[(&str, PatternDialect, &str, Option<&[&str]>)] = &[
            ("/", Netlify, "/", Some(&[])),
            ("/", Netlify, "/a", None),
            ("/a", Netlify, "/a", Some(&[])),
            ("/a/", Netlify, "/a", Some(&[])),
            ("/a", Netlify, "/a/", Some(&[])),
            ("/a", Netlify, "/a//", None),
            ("/a", Netlify, "/A", None),
            ("/caf%C3%A9", Netlify, "/café", Some(&[])),
            ("/café", Netlify, "/café", Some(&[])),
            ("/news/*", Netlify, "/news", Some(&[""])),
            ("/news/*", Netlify, "/news/", Some(&[""])),
            ("/news/*", Netlify, "/news/a/b/", Some(&["a/b/"])),
            ("/news/*", Netlify, "/newsletter", None),
            ("/*", Netlify, "/", Some(&[""])),
            ("/*", Netlify, "/a", Some(&["a"])),
            ("/blog-*", Netlify, "/blog-a/b", Some(&["a/b"])),
            ("/blog-*", DocsJson, "/blog-a/b", None),
            ("/blog-*", DocsJson, "/blog-a", Some(&["a"])),
            ("/blog-*", DocsJson, "/blog-", Some(&[""])),
            ("/blog-*/x", DocsJson, "/blog-a/x", Some(&["a"])),
            ("/*.css", Netlify, "/a/b.css", Some(&["a/b"])),
            ("/*/edit", Netlify, "/a/b/edit", Some(&["a/b"])),
            ("/*/edit", Netlify, "/edit", None),
            ("/*/:page", Netlify, "/a/b/c/", Some(&["a/b", "c"])),
            ("/:year/:month", Netlify, "/2024/05", Some(&["2024", "05"])),
            ("/:year/:month", Netlify, "/2024", None),
            ("/:year/:month", Netlify, "/2024/05/06", None),
            ("/:year/x", Netlify, "//x", None),
            ("/beta/:slug*", DocsJson, "/beta", Some(&[""])),
            ("/beta/:slug*", DocsJson, "/beta/a/b", Some(&["a/b"])),
            ("/beta/:slug*", DocsJson, "/betamax", None),
            ("/:a/:b*", DocsJson, "/x/y/z", Some(&["x", "y/z"])),
            ("/a:b", DocsJson, "/a:b", Some(&[])),
        ];
        for &(source, dialect, address, expected) in cases {
            let expected = expected.map(|parts| parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>());
            let captures = capture_texts(source, dialect, address);
            assert_eq!(captures, expected, "{source} {address}");
        }
    }

    #[test]
    fn invalid_pattern_source_is_refused_with_the_reason() {
        use PatternDialect::{DocsJson, Netlify};
        for (source, dialect, expected) in [
            ("a", Netlify, "not an address"),
            ("", DocsJson, "not an address"),
            ("https://x.example/a", Netlify, "names a host"),
            ("/a?b=c", DocsJson, "query"),
            ("/a#b", DocsJson, "fragment"),
            ("/a/../b", DocsJson, "never match"),
            ("/a%0a", DocsJson, "never match"),
            ("/_docwharf/search", DocsJson, "never match"),
            ("/%5Fdocwharf", DocsJson, "never match"),
            ("/*/*", Netlify, "only one *"),
            ("/a**", Netlify, "only one *"),
            ("/*.css", DocsJson, "end of a segment"),
            ("/:slug(.*)", DocsJson, "whole segment"),
            ("/:slug?", DocsJson, "query"),
            ("/:a*/b-*", DocsJson, "no other *"),
            ("/:a/:b/:c/:d/:e/:f/:g/:h/:i", DocsJson, "at most 8"),
        ] {
            let error = Pattern::parse(source, dialect).unwrap_err();
            assert!(error.contains(expected), "{source}: {error}");
        }
        assert!(Pattern::parse(&format!("/{}", "a".repeat(MAX_SOURCE_BYTES)), DocsJson).is_err());
    }

    #[test]
    fn pattern_example_matches_its_own_pattern() {
        for source in ["/a", "/:x/b", "/a/*", "/a/*/c", "/*.css", "/a-*", "/:x*"] {
            for dialect in [PatternDialect::Netlify, PatternDialect::DocsJson] {
                let Ok(pattern) = Pattern::parse(source, dialect) else { continue };
                assert!(pattern.matches(&pattern.example("w")).is_some(), "{source}");
            }
        }
    }

    #[test]
    fn pattern_source_is_accepted_up_to_its_limits() {
        use PatternDialect::{DocsJson, Netlify};
        let is_source = |source: &str, dialect| Pattern::parse(source, dialect).is_ok();
        let long = |len: usize| format!("/{}", "a".repeat(len - 1));
        assert!(is_source(&long(MAX_SOURCE_BYTES), DocsJson) && !is_source(&long(MAX_SOURCE_BYTES + 1), DocsJson));
        for dialect in [DocsJson, Netlify] {
            assert!(
                is_source("/:a/:b/:c/:d/:e/:f/:g/:h", dialect) && !is_source("/:a/:b/:c/:d/:e/:f/:g/:h/:i", dialect)
            );
            assert!(is_source("/:a/:b/:c/:d/:e/:f/:g/*", dialect) && !is_source("/:a/:b/:c/:d/:e/:f/:g/:h/*", dialect));
        }
        let eight = ["1", "2", "3", "4", "5", "6", "7", "8/9"].map(str::to_owned).to_vec();
        assert_eq!(capture_texts("/:a/:b/:c/:d/:e/:f/:g/*", Netlify, "/1/2/3/4/5/6/7/8/9"), Some(eight));
        let mixed = ["1", "2/3", "4", "5"].map(str::to_owned).to_vec();
        assert_eq!(capture_texts("/:a/:b*/:c/x/:d", DocsJson, "/1/2/3/4/x/5/"), Some(mixed));
        for (source, dialect, expected) in [
            ("/a b", DocsJson, false),
            ("/a%20b", DocsJson, true),
            ("/a\u{7f}", DocsJson, false),
            ("/a%7f", DocsJson, false),
            ("/a%1f", DocsJson, false),
            ("/./a", DocsJson, false),
            ("/a/..", DocsJson, false),
            ("/.../a", DocsJson, true),
            ("/_docwharfs", DocsJson, true),
            ("/a/_docwharf", DocsJson, true),
            ("/_docwharf", DocsJson, false),
            ("/a-*b", DocsJson, false),
            ("/a-*b", Netlify, true),
            ("/a-*/b-*", DocsJson, true),
            ("/a-*/b-*", Netlify, false),
            ("/*/:b*", DocsJson, false),
            ("/:a*/:b", DocsJson, true),
            ("/:1", DocsJson, true),
            ("/:a_1", DocsJson, true),
            ("/:a-b", DocsJson, false),
        ] {
            assert_eq!(is_source(source, dialect), expected, "{source}");
        }
        for (source, dialect, exact) in [
            ("/a/b/", DocsJson, Some("/a/b")),
            ("/", DocsJson, Some("/")),
            ("/:1", DocsJson, Some("/:1")),
            ("/:a", DocsJson, None),
            ("/a/*", Netlify, None),
            ("/a-*", DocsJson, None),
        ] {
            assert_eq!(Pattern::parse(source, dialect).unwrap().exact(), exact.map(str::as_bytes), "{source}");
        }
    }

    #[test]
    fn pattern_parts_after_a_multi_segment_wildcard_are_matched_from_the_end() {
        use PatternDialect::{DocsJson, Netlify};
        let cases: [(&str, PatternDialect, &str, Option<&[&str]>); 14] = [
            ("/:a*/x", DocsJson, "/x", None),
            ("/:a*/x", DocsJson, "/b/c/x", Some(&["b/c"])),
            ("/:a*/x", DocsJson, "/b/c/x/", Some(&["b/c"])),
            ("/:a*/x", DocsJson, "/b/cx", None),
            ("/p/:a*/x", DocsJson, "/p/x", None),
            ("/p/:a*/x", DocsJson, "/p/b/x", Some(&["b"])),
            ("/p/:a*/x", DocsJson, "/p", None),
            ("/*/:p/:q", Netlify, "/a/b/c/d", Some(&["a/b", "c", "d"])),
            ("/*/:p", Netlify, "/a//", None),
            ("/p-*/x", Netlify, "/p-/x", Some(&[""])),
            ("/p-*/x", Netlify, "/p-a/b/x", Some(&["a/b"])),
            ("/p-*/x", Netlify, "/q-a/x", None),
            ("/a/b-*/c", DocsJson, "/a/b-x/y/c", None),
            ("/a/b-*/c", DocsJson, "/a/b-/c", Some(&[""])),
        ];
        for (source, dialect, address, expected) in cases {
            let expected = expected.map(|parts| parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>());
            assert_eq!(capture_texts(source, dialect, address), expected, "{source} {address}");
        }
    }
}
