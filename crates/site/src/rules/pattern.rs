//! The pattern of a rule: a source with `*` and `:name`.
//!
//! There are two dialects. In `_redirects` and `_headers` of hosting services, one `*` stands for everything that
//! follows, slashes included. In a `docs.json`, `:name*` does, and a `*` after the beginning of a segment stands for
//! the rest of that segment. In both, a match takes one pass over the address, without backtracking.

use percent_encoding::percent_decode_str;

/// The maximum length of a source or destination in bytes.
pub const LONGEST: usize = 2000;
/// The maximum number of captures of one pattern.
pub const MOST_CAPTURES: usize = 8;

/// The meaning of `*` in a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// The meaning in `_redirects` and `_headers`.
    Hosting,
    /// The meaning in a `docs.json` and in the configuration.
    Docs,
}

/// A part of a pattern. Only [`Token::Literal`] contains slashes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// These bytes, percent-decoded.
    Literal(Box<[u8]>),
    /// A whole segment, not empty.
    Segment,
    /// The rest of a segment, possibly empty.
    Rest,
}

/// The part that stands for any number of segments, and the tokens after it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tail {
    /// Whether it stands for whole segments. Then the slash before it may be missing together with them.
    is_whole: bool,
    end: Vec<Token>,
}

/// A parsed source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern {
    head: Vec<Token>,
    tail: Option<Tail>,
    names: Vec<Box<str>>,
}

/// The captures of a match: the parts of the address that the variable parts of the pattern stand for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Captures<'a> {
    parts: [&'a [u8]; MOST_CAPTURES],
}

impl<'a> Captures<'a> {
    /// Returns the capture with this number, below [`MOST_CAPTURES`].
    pub fn get(&self, number: usize) -> &'a [u8] {
        self.parts.get(number).copied().unwrap_or_default()
    }
}

/// The state of the parser: tokens and names.
#[derive(Default)]
struct Reading {
    tokens: Vec<Token>,
    literal: Vec<u8>,
    names: Vec<Box<str>>,
}

impl Reading {
    fn flush(&mut self) {
        if !self.literal.is_empty() {
            self.tokens.push(Token::Literal(std::mem::take(&mut self.literal).into()));
        }
    }

    fn capture(&mut self, token: Token, name: &str) {
        self.flush();
        self.tokens.push(token);
        self.names.push(name.into());
    }
}

impl Pattern {
    /// Parses a source: an address of the site with its leading slash, percent-encoded where necessary.
    pub fn parse(source: &str, dialect: Dialect) -> Result<Pattern, String> {
        refuse(source)?;
        let bare = if source == "/" { source } else { source.strip_suffix('/').unwrap_or(source) };
        let mut reading = Reading::default();
        let mut head = None;
        for segment in bare.split('/').skip(1) {
            reading.literal.push(b'/');
            let star = star_of(segment, dialect)?;
            match star {
                Star::None => reading.literal.extend(decoded(segment)?),
                Star::Segment(name) => reading.capture(Token::Segment, name),
                Star::Rest(before) => {
                    reading.literal.extend(decoded(before)?);
                    reading.capture(Token::Rest, "*");
                }
                Star::All { before, after, name } => {
                    if head.is_some() {
                        return Err("only one * can stand for any number of segments".to_owned());
                    }
                    let is_whole = before.is_empty() && after.is_empty();
                    if is_whole {
                        reading.literal.pop();
                    }
                    reading.literal.extend(decoded(before)?);
                    reading.flush();
                    reading.names.push(name.into());
                    head = Some((std::mem::take(&mut reading.tokens), is_whole));
                    reading.literal.extend(decoded(after)?);
                }
            }
        }
        reading.flush();
        let Reading { tokens, names, .. } = reading;
        if names.len() > MOST_CAPTURES {
            return Err(format!("at most {MOST_CAPTURES} parts of an address can be taken over"));
        }
        let Some((head, is_whole)) = head else { return Ok(Pattern { head: tokens, tail: None, names }) };
        if tokens.contains(&Token::Rest) {
            return Err("no other * can follow the one that stands for any number of segments".to_owned());
        }
        Ok(Pattern { head, tail: Some(Tail { is_whole, end: tokens }), names })
    }

    /// Returns the address, without a trailing slash, if the pattern matches only one.
    pub fn exact(&self) -> Option<&[u8]> {
        match (&self.tail, &self.head[..]) {
            (None, [Token::Literal(literal)]) => Some(literal),
            _ => None,
        }
    }

    /// Returns the names of the captures, in the order of their numbers.
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// Matches a decoded address with its leading slash. One trailing slash makes no difference.
    pub fn matches<'a>(&self, address: &'a [u8]) -> Option<Captures<'a>> {
        let mut captures = Captures::default();
        let mut number = 0;
        let takes_end = self.tail.as_ref().is_some_and(|tail| tail.end.is_empty());
        let mut rest = if takes_end { address } else { bare(address) };
        for token in &self.head {
            let end = match token {
                Token::Literal(literal) => {
                    rest = rest.strip_prefix(&**literal)?;
                    continue;
                }
                Token::Segment => Some(segment(rest)).filter(|&end| end > 0)?,
                Token::Rest => segment(rest),
            };
            captures.parts[number] = &rest[..end];
            number += 1;
            rest = &rest[end..];
        }
        let Some(tail) = &self.tail else { return rest.is_empty().then_some(captures) };
        if tail.is_whole {
            match rest.split_first() {
                None if tail.end.is_empty() => return Some(captures),
                Some((b'/', more)) => rest = more,
                _ => return None,
            }
        }
        let mut last = self.names.len();
        for token in tail.end.iter().rev() {
            if let Token::Literal(literal) = token {
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

    /// Returns an address that matches the pattern, with `word` for each variable part.
    pub fn example(&self, word: &str) -> Vec<u8> {
        let mut address = Vec::new();
        let end = self.tail.iter().flat_map(|tail| &tail.end);
        let put = |address: &mut Vec<u8>, token: &Token| match token {
            Token::Literal(literal) => address.extend_from_slice(literal),
            Token::Segment | Token::Rest => address.extend_from_slice(word.as_bytes()),
        };
        self.head.iter().for_each(|token| put(&mut address, token));
        if let Some(tail) = &self.tail {
            if tail.is_whole {
                address.push(b'/');
            }
            address.extend_from_slice(word.as_bytes());
        }
        end.for_each(|token| put(&mut address, token));
        address
    }
}

/// The meaning of a segment of a source.
enum Star<'a> {
    None,
    Segment(&'a str),
    Rest(&'a str),
    All { before: &'a str, after: &'a str, name: &'a str },
}

fn star_of(segment: &str, dialect: Dialect) -> Result<Star<'_>, String> {
    if let Some(rest) = segment.strip_prefix(':') {
        let name = &rest[..name_len(rest)];
        if !name.is_empty() {
            return match &rest[name.len()..] {
                "" => Ok(Star::Segment(name)),
                "*" => Ok(Star::All { before: "", after: "", name }),
                _ => Err(format!(":{name} stands for a whole segment: what follows it is not understood")),
            };
        }
    }
    let Some((before, after)) = segment.split_once('*') else { return Ok(Star::None) };
    match dialect {
        _ if after.contains('*') => Err("one * a segment is understood".to_owned()),
        _ if segment == "*" => Ok(Star::All { before, after, name: "splat" }),
        Dialect::Hosting => Ok(Star::All { before, after, name: "splat" }),
        Dialect::Docs if after.is_empty() => Ok(Star::Rest(before)),
        Dialect::Docs => Err("a * stands at the end of a segment".to_owned()),
    }
}

/// Returns the length of the name at the beginning of `text`, in bytes: a letter, then letters, digits and `_`.
pub(super) fn name_len(text: &str) -> usize {
    if !text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return 0;
    }
    text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len())
}

/// Checks that a source is an address, and one that a request can have.
fn refuse(source: &str) -> Result<(), String> {
    if source.len() > LONGEST {
        return Err(format!("the source is longer than {LONGEST} bytes"));
    }
    if source.contains("://") {
        return Err("the source names a host: rules are about addresses of this site".to_owned());
    }
    if !source.starts_with('/') {
        return Err("the source is no address: write it like /guides/start".to_owned());
    }
    if source.contains(['?', '#']) {
        return Err("the source has a query or a fragment, which are not compared".to_owned());
    }
    if source.chars().any(|c| c.is_control() || c == ' ') {
        return Err("the source has a space or a control character: write it percent-encoded".to_owned());
    }
    if source.split('/').skip(1).any(|segment| matches!(segment, "." | "..")) {
        return Err("no address has . or .. in it: this can never match".to_owned());
    }
    let path: Vec<u8> = percent_decode_str(&source[1..]).collect();
    if path.split(|&b| b == b'/').next() == Some(crate::lookup::RESERVED) {
        return Err("addresses below /_docwharf/ are docwharf's own: this can never match".to_owned());
    }
    Ok(())
}

fn decoded(text: &str) -> Result<Vec<u8>, String> {
    let bytes: Vec<u8> = percent_decode_str(text).collect();
    if bytes.iter().any(|&b| b < 0x20 || b == 0x7f) {
        return Err("no address has control characters in it: this can never match".to_owned());
    }
    Ok(bytes)
}

/// Returns an address without its trailing slash.
pub fn bare(address: &[u8]) -> &[u8] {
    match address.strip_suffix(b"/") {
        Some(bare) if !bare.is_empty() => bare,
        _ => address,
    }
}

/// Returns the length of the first segment.
fn segment(rest: &[u8]) -> usize {
    rest.iter().position(|&b| b == b'/').unwrap_or(rest.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(source: &str, dialect: Dialect, address: &str) -> Option<Vec<String>> {
        let pattern = Pattern::parse(source, dialect).unwrap();
        let captures = pattern.matches(address.as_bytes())?;
        let of = |n| String::from_utf8(captures.get(n).to_vec()).unwrap();
        Some((0..pattern.names().len()).map(of).collect())
    }

    #[test]
    fn a_pattern_is_about_the_addresses_that_it_looks_like() {
        use Dialect::{Docs, Hosting};
        let cases: &[(&str, Dialect, &str, Option<&[&str]>)] = &[
            ("/", Hosting, "/", Some(&[])),
            ("/", Hosting, "/a", None),
            ("/a", Hosting, "/a", Some(&[])),
            ("/a/", Hosting, "/a", Some(&[])),
            ("/a", Hosting, "/a/", Some(&[])),
            ("/a", Hosting, "/a//", None),
            ("/a", Hosting, "/A", None),
            ("/caf%C3%A9", Hosting, "/café", Some(&[])),
            ("/café", Hosting, "/café", Some(&[])),
            ("/news/*", Hosting, "/news", Some(&[""])),
            ("/news/*", Hosting, "/news/", Some(&[""])),
            ("/news/*", Hosting, "/news/a/b/", Some(&["a/b/"])),
            ("/news/*", Hosting, "/newsletter", None),
            ("/*", Hosting, "/", Some(&[""])),
            ("/*", Hosting, "/a", Some(&["a"])),
            ("/blog-*", Hosting, "/blog-a/b", Some(&["a/b"])),
            ("/blog-*", Docs, "/blog-a/b", None),
            ("/blog-*", Docs, "/blog-a", Some(&["a"])),
            ("/blog-*", Docs, "/blog-", Some(&[""])),
            ("/blog-*/x", Docs, "/blog-a/x", Some(&["a"])),
            ("/*.css", Hosting, "/a/b.css", Some(&["a/b"])),
            ("/*/edit", Hosting, "/a/b/edit", Some(&["a/b"])),
            ("/*/edit", Hosting, "/edit", None),
            ("/*/:page", Hosting, "/a/b/c/", Some(&["a/b", "c"])),
            ("/:year/:month", Hosting, "/2024/05", Some(&["2024", "05"])),
            ("/:year/:month", Hosting, "/2024", None),
            ("/:year/:month", Hosting, "/2024/05/06", None),
            ("/:year/x", Hosting, "//x", None),
            ("/beta/:slug*", Docs, "/beta", Some(&[""])),
            ("/beta/:slug*", Docs, "/beta/a/b", Some(&["a/b"])),
            ("/beta/:slug*", Docs, "/betamax", None),
            ("/:a/:b*", Docs, "/x/y/z", Some(&["x", "y/z"])),
            ("/a:b", Docs, "/a:b", Some(&[])),
        ];
        for &(source, dialect, address, expected) in cases {
            let expected = expected.map(|parts| parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>());
            let found = parts(source, dialect, address);
            assert_eq!(found, expected, "{source} {address}");
        }
    }

    #[test]
    fn what_can_be_no_source_says_why() {
        use Dialect::{Docs, Hosting};
        for (source, dialect, why) in [
            ("a", Hosting, "no address"),
            ("", Docs, "no address"),
            ("https://x.example/a", Hosting, "names a host"),
            ("/a?b=c", Docs, "query"),
            ("/a#b", Docs, "fragment"),
            ("/a/../b", Docs, "never match"),
            ("/a%0a", Docs, "never match"),
            ("/_docwharf/search", Docs, "never match"),
            ("/%5Fdocwharf", Docs, "never match"),
            ("/*/*", Hosting, "only one *"),
            ("/a**", Hosting, "one * a segment"),
            ("/*.css", Docs, "end of a segment"),
            ("/:slug(.*)", Docs, "whole segment"),
            ("/:slug?", Docs, "query"),
            ("/:a*/b-*", Docs, "no other *"),
            ("/:a/:b/:c/:d/:e/:f/:g/:h/:i", Docs, "at most 8"),
        ] {
            let told = Pattern::parse(source, dialect).unwrap_err();
            assert!(told.contains(why), "{source}: {told}");
        }
        assert!(Pattern::parse(&format!("/{}", "a".repeat(LONGEST)), Docs).is_err());
    }

    #[test]
    fn an_example_is_an_address_that_matches() {
        for source in ["/a", "/:x/b", "/a/*", "/a/*/c", "/*.css", "/a-*", "/:x*"] {
            for dialect in [Dialect::Hosting, Dialect::Docs] {
                let Ok(pattern) = Pattern::parse(source, dialect) else { continue };
                assert!(pattern.matches(&pattern.example("w")).is_some(), "{source}");
            }
        }
    }

    #[test]
    fn what_a_source_may_have_it_may_have_up_to_its_bound() {
        use Dialect::{Docs, Hosting};
        let is_source = |source: &str, dialect| Pattern::parse(source, dialect).is_ok();
        let long = |len: usize| format!("/{}", "a".repeat(len - 1));
        assert!(is_source(&long(LONGEST), Docs) && !is_source(&long(LONGEST + 1), Docs));
        for dialect in [Docs, Hosting] {
            assert!(
                is_source("/:a/:b/:c/:d/:e/:f/:g/:h", dialect) && !is_source("/:a/:b/:c/:d/:e/:f/:g/:h/:i", dialect)
            );
            assert!(is_source("/:a/:b/:c/:d/:e/:f/:g/*", dialect) && !is_source("/:a/:b/:c/:d/:e/:f/:g/:h/*", dialect));
        }
        let eight = ["1", "2", "3", "4", "5", "6", "7", "8/9"].map(str::to_owned).to_vec();
        assert_eq!(parts("/:a/:b/:c/:d/:e/:f/:g/*", Hosting, "/1/2/3/4/5/6/7/8/9"), Some(eight));
        let mixed = ["1", "2/3", "4", "5"].map(str::to_owned).to_vec();
        assert_eq!(parts("/:a/:b*/:c/x/:d", Docs, "/1/2/3/4/x/5/"), Some(mixed));
        for (source, dialect, expected) in [
            ("/a b", Docs, false),
            ("/a%20b", Docs, true),
            ("/a\u{7f}", Docs, false),
            ("/a%7f", Docs, false),
            ("/a%1f", Docs, false),
            ("/./a", Docs, false),
            ("/a/..", Docs, false),
            ("/.../a", Docs, true),
            ("/_docwharfs", Docs, true),
            ("/a/_docwharf", Docs, true),
            ("/_docwharf", Docs, false),
            ("/a-*b", Docs, false),
            ("/a-*b", Hosting, true),
            ("/a-*/b-*", Docs, true),
            ("/a-*/b-*", Hosting, false),
            ("/*/:b*", Docs, false),
            ("/:a*/:b", Docs, true),
            ("/:1", Docs, true),
            ("/:a_1", Docs, true),
            ("/:a-b", Docs, false),
        ] {
            assert_eq!(is_source(source, dialect), expected, "{source}");
        }
        for (source, dialect, exact) in [
            ("/a/b/", Docs, Some("/a/b")),
            ("/", Docs, Some("/")),
            ("/:1", Docs, Some("/:1")),
            ("/:a", Docs, None),
            ("/a/*", Hosting, None),
            ("/a-*", Docs, None),
        ] {
            assert_eq!(Pattern::parse(source, dialect).unwrap().exact(), exact.map(str::as_bytes), "{source}");
        }
    }

    #[test]
    fn what_stands_behind_any_number_of_segments_is_compared_from_the_end() {
        use Dialect::{Docs, Hosting};
        let cases: [(&str, Dialect, &str, Option<&[&str]>); 14] = [
            ("/:a*/x", Docs, "/x", None),
            ("/:a*/x", Docs, "/b/c/x", Some(&["b/c"])),
            ("/:a*/x", Docs, "/b/c/x/", Some(&["b/c"])),
            ("/:a*/x", Docs, "/b/cx", None),
            ("/p/:a*/x", Docs, "/p/x", None),
            ("/p/:a*/x", Docs, "/p/b/x", Some(&["b"])),
            ("/p/:a*/x", Docs, "/p", None),
            ("/*/:p/:q", Hosting, "/a/b/c/d", Some(&["a/b", "c", "d"])),
            ("/*/:p", Hosting, "/a//", None),
            ("/p-*/x", Hosting, "/p-/x", Some(&[""])),
            ("/p-*/x", Hosting, "/p-a/b/x", Some(&["a/b"])),
            ("/p-*/x", Hosting, "/q-a/x", None),
            ("/a/b-*/c", Docs, "/a/b-x/y/c", None),
            ("/a/b-*/c", Docs, "/a/b-/c", Some(&[""])),
        ];
        for (source, dialect, address, expected) in cases {
            let expected = expected.map(|parts| parts.iter().map(|&part| part.to_owned()).collect::<Vec<_>>());
            assert_eq!(parts(source, dialect, address), expected, "{source} {address}");
        }
    }
}
