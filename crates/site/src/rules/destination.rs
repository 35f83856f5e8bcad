//! The destination of a rule: an address of this site or of another one, into which captures are inserted.
//!
//! A request never decides the host of a redirect: another host is written in the rule in full, and everything that is
//! inserted is percent-encoded and follows the host. A redirect within the site begins with exactly one slash.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, percent_decode, percent_encode, utf8_percent_encode};
use url::Url;

use docwharf_base::encode_sets;

use super::pattern::{Captures, MAX_SOURCE_BYTES, name_len};

/// The maximum length of a `Location` in bytes. A longer one is not sent.
const MAX_LOCATION_BYTES: usize = 16 << 10;
/// The maximum number of parameters in a destination's own query.
const MAX_QUERY_PARAMETERS: usize = 16;
/// The maximum number of captures in a destination.
const MAX_NAMED_CAPTURES: usize = 16;

/// A part of a destination.
#[derive(Debug, Clone, PartialEq, Eq)]
enum DestinationPart {
    /// Fixed text, percent-encoded.
    Literal(Box<str>),
    /// The capture with this number.
    Capture(usize),
}

/// A parsed destination.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleDestination {
    /// The scheme and host of another site.
    origin: Option<Box<str>>,
    path: Vec<DestinationPart>,
    query: Option<Vec<DestinationPart>>,
    /// The names of the query's parameters.
    parameters: Vec<Box<str>>,
    fragment: Option<Vec<DestinationPart>>,
}

impl RuleDestination {
    /// Parses a destination that may name the captures of its source.
    pub fn parse(destination: &str, names: &[Box<str>]) -> Result<RuleDestination, String> {
        if destination.len() > MAX_SOURCE_BYTES {
            return Err(format!("the destination is longer than {MAX_SOURCE_BYTES} bytes"));
        }
        if destination.chars().any(char::is_control) {
            return Err("the destination has a control character".to_owned());
        }
        let (origin, local) = split_origin(destination)?;
        let (local, fragment) = split_at_char(local, '#');
        let (path, query) = split_at_char(local, '?');
        let mut parser = DestinationParser { names, capture_count: 0 };
        let path = parser.parse_parts(if path.is_empty() { "/" } else { path })?;
        let parameters: Vec<Box<str>> = query.map(parameter_names).unwrap_or_default();
        if parameters.len() > MAX_QUERY_PARAMETERS {
            return Err(format!("the destination has more than {MAX_QUERY_PARAMETERS} parameters in its query"));
        }
        let query = query.map(|text| parser.parse_parts(text)).transpose()?;
        let fragment = fragment.map(|text| parser.parse_parts(text)).transpose()?;
        if parser.capture_count > MAX_NAMED_CAPTURES {
            return Err(format!("the destination has more than {MAX_NAMED_CAPTURES} parts of the source"));
        }
        Ok(RuleDestination { origin, path, query, parameters, fragment })
    }

    /// Whether the destination is on another host.
    pub fn is_on_other_host(&self) -> bool {
        self.origin.is_some()
    }

    /// Returns the address within the site, decoded and with its leading slash.
    pub fn address(&self, captures: &Captures<'_>) -> Vec<u8> {
        percent_decode(self.path(captures).as_bytes()).collect()
    }

    /// Returns the fixed part of the address within the site, up to the last slash before the first capture; `None`
    /// without captures in the path.
    pub fn fixed_folder(&self) -> Option<Vec<u8>> {
        let [DestinationPart::Literal(first), more @ ..] = &self.path[..] else { return Some(b"/".to_vec()) };
        if more.is_empty() {
            return None;
        }
        let end = first.rfind('/').map_or(0, |slash| slash + 1);
        Some(percent_decode(&first.as_bytes()[..end]).collect())
    }

    /// Returns the encoded path. Within the site it begins with exactly one slash.
    fn path(&self, captures: &Captures<'_>) -> String {
        let mut path = String::new();
        append_parts(&mut path, &self.path, captures, encode_sets::LOCATION_PATH);
        if self.origin.is_none() && path.starts_with("//") {
            path = format!("/{}", path.trim_start_matches('/'));
        }
        path
    }

    /// Returns the value of `Location` on a site that begins at `base_path`; `None` if it would be too long. The query
    /// of the request, which [`encode_query`] has encoded, is appended without the parameters that the destination
    /// already has.
    pub fn location(&self, captures: &Captures<'_>, base_path: &str, query: Option<&str>) -> Option<String> {
        let mut location = match &self.origin {
            Some(origin) => origin.to_string(),
            None => base_path.strip_suffix('/').unwrap_or(base_path).to_owned(),
        };
        location.push_str(&self.path(captures));
        if let Some(own_query) = &self.query {
            location.push('?');
            append_parts(&mut location, own_query, captures, encode_sets::PLAIN_PATH);
        }
        if let Some(query) = query {
            self.append_query(&mut location, query);
        }
        if let Some(fragment) = &self.fragment {
            location.push('#');
            append_parts(&mut location, fragment, captures, encode_sets::PLAIN_PATH);
        }
        (location.len() <= MAX_LOCATION_BYTES).then_some(location)
    }

    fn append_query(&self, location: &mut String, query: &str) {
        let Some(own_query) = &self.query else {
            location.push('?');
            location.push_str(query);
            return;
        };
        let mut is_first = own_query.is_empty();
        for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
            let name = parameter.split('=').next().unwrap_or_default();
            if self.parameters.iter().any(|parameter| **parameter == *name) {
                continue;
            }
            if !is_first {
                location.push('&');
            }
            is_first = false;
            location.push_str(parameter);
        }
    }
}

fn append_parts(output: &mut String, parts: &[DestinationPart], captures: &Captures<'_>, set: &'static AsciiSet) {
    for part in parts {
        match part {
            DestinationPart::Literal(text) => output.push_str(text),
            DestinationPart::Capture(number) => output.extend(percent_encode(captures.get(*number), set)),
        }
        if output.len() > MAX_LOCATION_BYTES {
            // The result is too long to be sent, so the rest is not needed.
            return;
        }
    }
}

/// Percent-encodes the characters that a query may not contain; existing encodings do not change.
pub fn encode_query(query: &str) -> Cow<'_, str> {
    let is_unencoded = |position: usize| {
        let hex = |position: usize| query.as_bytes().get(position).is_some_and(u8::is_ascii_hexdigit);
        !(hex(position + 1) && hex(position + 2))
    };
    if !query.bytes().enumerate().any(|(position, byte)| byte == b'%' && is_unencoded(position)) {
        return utf8_percent_encode(query, encode_sets::LOCATION_QUERY).into();
    }
    let mut output = String::with_capacity(query.len() + 16);
    let mut start = 0;
    for (position, _) in query.match_indices('%').filter(|&(position, _)| is_unencoded(position)) {
        output.extend(utf8_percent_encode(&query[start..position], encode_sets::LOCATION_QUERY));
        output.push_str("%25");
        start = position + 1;
    }
    output.extend(utf8_percent_encode(&query[start..], encode_sets::LOCATION_QUERY));
    output.into()
}

/// Splits at the first `separator`. The second part is `None` without a separator.
fn split_at_char(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator).map_or((text, None), |(before, after)| (before, Some(after)))
}

/// Returns the names of a query's parameters, encoded as in the query of a request.
fn parameter_names(query: &str) -> Vec<Box<str>> {
    let query = &*encode_query(query);
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    parameters.map(|parameter| parameter.split('=').next().unwrap_or_default().into()).collect()
}

/// Splits off the scheme and host of another site. They must be complete and must not depend on captures.
fn split_origin(destination: &str) -> Result<(Option<Box<str>>, &str), String> {
    if let Some(rest) = destination.strip_prefix('/') {
        if rest.starts_with(['/', '\\']) {
            return Err("the destination begins with two slashes: another host is written https://…".to_owned());
        }
        return Ok((None, destination));
    }
    let lower = destination.to_ascii_lowercase();
    let Some(scheme) = ["https://", "http://"].into_iter().find(|scheme| lower.starts_with(scheme)) else {
        return Err("the destination is neither an address like /guides/start nor begins with https://".to_owned());
    };
    let end = destination[scheme.len()..].find(['/', '?', '#']).map_or(destination.len(), |end| end + scheme.len());
    let authority = &destination[scheme.len()..end];
    let has_capture = authority.match_indices(':').any(|(colon, _)| name_len(&authority[colon + 1..]) > 0);
    if has_capture || authority.contains('*') {
        return Err("the host of a redirect must not depend on the request".to_owned());
    }
    if authority.is_empty() || authority.contains(['@', '\\']) {
        return Err("the destination has no plain host name".to_owned());
    }
    match Url::parse(&destination[..end]) {
        Ok(url) if url.has_host() => Ok((Some(url.origin().ascii_serialization().into()), &destination[end..])),
        Ok(_) => Err("the destination has no host".to_owned()),
        Err(error) => Err(format!("the destination's host is not valid: {error}")),
    }
}

/// The parser of a destination.
struct DestinationParser<'a> {
    names: &'a [Box<str>],
    capture_count: usize,
}

impl DestinationParser<'_> {
    fn parse_parts(&mut self, text: &str) -> Result<Vec<DestinationPart>, String> {
        let mut parts = Vec::new();
        let mut literal_start = 0;
        let mut position = 0;
        while let Some(distance) = text[position..].find([':', '*']) {
            let mark = position + distance;
            position = mark + 1;
            let (name, end) = self.parse_name(text, mark)?;
            let Some(number) = name.and_then(|name| self.names.iter().position(|candidate| **candidate == *name))
            else {
                continue;
            };
            parts.extend(literal_part(&text[literal_start..mark]));
            parts.push(DestinationPart::Capture(number));
            self.capture_count += 1;
            (literal_start, position) = (end, end);
        }
        parts.extend(literal_part(&text[literal_start..]));
        Ok(parts)
    }

    /// Returns the name at a `:` or `*`, if it is one, and its end.
    fn parse_name<'t>(&self, text: &'t str, mark: usize) -> Result<(Option<&'t str>, usize), String> {
        let rest = &text[mark..];
        if rest.starts_with('*') {
            // A `*` in a source has the name `*` or, as a whole segment, `splat`.
            let name = if self.names.iter().any(|name| **name == *"*") { "*" } else { "splat" };
            return Ok((Some(name), mark + 1));
        }
        let name = &rest[1..=name_len(&rest[1..])];
        let end = mark + 1 + name.len();
        if name.is_empty() || self.names.iter().any(|candidate| **candidate == *name) {
            // `:slug*` in a destination is the same capture as `:slug`.
            let end = if text[end..].starts_with('*') && !name.is_empty() { end + 1 } else { end };
            return Ok(((!name.is_empty()).then_some(name), end));
        }
        // A colon within a word is an ordinary character. After a slash it begins a name, and this name is unknown.
        if text[..mark].ends_with(['/', '=']) {
            return Err(format!("the destination names :{name}, which the source does not have"));
        }
        Ok((None, end))
    }
}

fn literal_part(text: &str) -> Option<DestinationPart> {
    let text = utf8_percent_encode(text, encode_sets::RULE_TEXT).to_string();
    (!text.is_empty()).then(|| DestinationPart::Literal(text.into()))
}

#[cfg(test)]
mod tests {
    use super::super::pattern::{Pattern, PatternDialect};
    use super::*;

    fn location_for(source: &str, destination: &str, address: &str, query: Option<&str>) -> Option<String> {
        let dialect = if destination.contains('*') { PatternDialect::DocsJson } else { PatternDialect::Netlify };
        let pattern = Pattern::parse(source, dialect).unwrap();
        let target = RuleDestination::parse(destination, pattern.names()).unwrap();
        target.location(&pattern.matches(address.as_bytes())?, "/docs/", query)
    }

    #[test]
    fn captures_are_inserted_into_the_destination_and_percent_encoded() {
        for (source, destination, address, expected) in [
            ("/a", "/b", "/a", "/docs/b"),
            ("/a", "/", "/a", "/docs/"),
            ("/a/*", "/b/:splat", "/a/x/y z", "/docs/b/x/y%20z"),
            ("/a/*", "/b/:splat", "/a", "/docs/b/"),
            ("/:y/:m", "/blog-:y-:m.html", "/2024/05", "/docs/blog-2024-05.html"),
            ("/:code/:name", "/p?code=:code&name=:name#:name", "/a&b/c#d", "/docs/p?code=a%26b&name=c%23d#c%23d"),
            ("/old/article-*", "/new/article-*", "/old/article-7", "/docs/new/article-7"),
            ("/beta/:slug*", "/v2/:slug*", "/beta/a/b", "/docs/v2/a/b"),
            ("/beta/:slug*", "/v2/:slug", "/beta/a/b", "/docs/v2/a/b"),
            ("/a/*", "https://x.example", "/a/b", "https://x.example/"),
            ("/a/*", "HTTPS://X.example:8443/:splat", "/a/b", "https://x.example:8443/b"),
            ("/a/*", "https://bücher.example/:splat?x#y", "/a/b", "https://xn--bcher-kva.example/b?x#y"),
            ("/a", "/time/12:30", "/a", "/docs/time/12:30"),
            ("/a", "/x:y", "/a", "/docs/x:y"),
            ("/a", "/é \"%20", "/a", "/docs/%C3%A9%20%22%20"),
            ("/a/*", "/:splat", "/a/\r\nb", "/docs/%0D%0Ab"),
        ] {
            assert_eq!(
                location_for(source, destination, address, None).as_deref(),
                Some(expected),
                "{destination} {address}"
            );
        }
    }

    #[test]
    fn captured_request_text_cannot_change_the_host_of_a_redirect() {
        for (source, destination, address, expected) in [
            ("/a/*", "/:splat", "/a//evil.example", "/docs/evil.example"),
            ("/a/*", "/:splat", "/a/\\evil.example", "/docs/%5Cevil.example"),
            ("/a/*", "/:splat", "/a/https://evil.example", "/docs/https://evil.example"),
            ("/a/*", "https://x.example/:splat", "/a/@evil.example", "https://x.example/@evil.example"),
            ("/a/*", "https://x.example?:splat", "/a/@evil.example/", "https://x.example/?%40evil.example/"),
        ] {
            assert_eq!(
                location_for(source, destination, address, None).as_deref(),
                Some(expected),
                "{destination} {address}"
            );
        }
        let pattern = Pattern::parse("/a/*", PatternDialect::Netlify).unwrap();
        let target = RuleDestination::parse("/:splat", pattern.names()).unwrap();
        let captures = pattern.matches(b"/a////evil.example").unwrap();
        assert_eq!(target.location(&captures, "/", None).as_deref(), Some("/evil.example"));
        for wrong in [
            "https://:splat/",
            "https://:splat",
            "https://x.example:splat/",
            "https://*.example/",
            "https://u@x.example/",
            "https:///x",
            "https://x.example\\.evil.example/",
            "https://",
            "//evil.example",
            "/\\evil.example",
            "javascript:alert(1)",
            "data:,x",
            "x.example",
            ":splat",
            "",
            "/a\nb",
            "/:nobody",
        ] {
            assert!(RuleDestination::parse(wrong, pattern.names()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn request_query_is_appended_except_for_parameters_of_the_destination() {
        for (destination, query, expected) in [
            ("/b", "x=1&y", "/docs/b?x=1&y"),
            ("/b#c", "x=1", "/docs/b?x=1#c"),
            ("/b?x=2", "x=1&y=3&x=4&z", "/docs/b?x=2&y=3&z"),
            ("/b?x=2", "", "/docs/b?x=2"),
            ("/b?", "x=1", "/docs/b?x=1"),
            ("https://x.example/b?x=2#c", "y=3", "https://x.example/b?x=2&y=3#c"),
        ] {
            assert_eq!(
                location_for("/a", destination, "/a", Some(query)).as_deref(),
                Some(expected),
                "{destination} {query}"
            );
        }
    }

    #[test]
    fn redirect_query_is_encoded_only_where_a_character_is_invalid_in_a_query() {
        let good = "a=1&b=/?:@-._~!$&'()*+,;=%41%zz%".replace("%zz%", "");
        assert!(matches!(encode_query(&good), Cow::Borrowed(same) if same == good));
        for (query, expected) in [
            ("\"<>\\^`{|}", "%22%3C%3E%5C%5E%60%7B%7C%7D"),
            ("a[]=é", "a%5B%5D=%C3%A9"),
            ("100%&%zz%4&%C3%a9", "100%25&%25zz%254&%C3%a9"),
            ("%", "%25"),
            ("é%é|%22", "%C3%A9%25%C3%A9%7C%22"),
        ] {
            assert_eq!(encode_query(query), expected, "{query}");
            assert_eq!(encode_query(expected), expected);
        }
    }

    #[test]
    fn redirect_location_has_a_maximum_length_for_any_request() {
        let destination = format!("/{}", ":splat".repeat(MAX_NAMED_CAPTURES));
        let long = format!("/a/{}", "x".repeat(60_000));
        assert_eq!(location_for("/a/*", &destination, &long, None), None);
        assert!(RuleDestination::parse(&format!("{destination}:splat"), &["splat".into()]).is_err());
        assert!(RuleDestination::parse(&format!("/{}", "a".repeat(MAX_SOURCE_BYTES)), &[]).is_err());
    }

    #[test]
    fn fixed_folder_of_a_destination_ends_at_the_last_slash_before_a_capture() {
        let names = [Box::from("splat"), Box::from("x")];
        for (destination, fixed, address) in [
            ("/a/b", None, "/a/b"),
            ("/a/b?:splat#:x", None, "/a/b"),
            ("/a/b/:splat", Some("/a/b/"), "/a/b/s p"),
            ("/a/b-:splat/c", Some("/a/"), "/a/b-s p/c"),
            ("/:x/b", Some("/"), "/y/b"),
            ("/%C3%A9/:x", Some("/é/"), "/é/y"),
            ("/é%20/*", Some("/é /"), "/é /s p"),
            ("/:x:x", Some("/"), "/yy"),
        ] {
            let target = RuleDestination::parse(destination, &names).unwrap();
            assert_eq!(target.fixed_folder(), fixed.map(|text| text.as_bytes().to_vec()), "{destination}");
            let pattern = Pattern::parse("/*/:x", PatternDialect::Netlify).unwrap();
            assert_eq!(target.address(&pattern.matches(b"/s p/y").unwrap()), address.as_bytes(), "{destination}");
        }
    }

    #[test]
    fn destination_is_accepted_up_to_its_limits_of_length_captures_and_parameters() {
        let is_valid = |text: &str| RuleDestination::parse(text, &["splat".into()]).is_ok();
        let query = |parameters: usize| format!("/?{}", "x=1&".repeat(parameters));
        assert!(is_valid(&query(MAX_QUERY_PARAMETERS)) && !is_valid(&query(MAX_QUERY_PARAMETERS + 1)));
        let parts = |path: usize, query: usize, fragment: usize| {
            format!("/{}?{}#{}", ":splat".repeat(path), ":splat".repeat(query), ":splat".repeat(fragment))
        };
        assert!(
            is_valid(&parts(6, 5, 5))
                && !is_valid(&parts(7, 5, 5))
                && !is_valid(&parts(6, 6, 5))
                && !is_valid(&parts(6, 5, 6))
        );
        let long = |len: usize| format!("/{}", "a".repeat(len - 1));
        assert!(is_valid(&long(MAX_SOURCE_BYTES)) && !is_valid(&long(MAX_SOURCE_BYTES + 1)));
        let location_of_len = |len: usize| {
            location_for("/a/*", "https://x.example/:splat", &format!("/a/{}", "x".repeat(len - 18)), None)
        };
        assert_eq!(
            (location_of_len(MAX_LOCATION_BYTES).as_ref().map(String::len), location_of_len(MAX_LOCATION_BYTES + 1)),
            (Some(MAX_LOCATION_BYTES), None)
        );
        assert_eq!(location_for("/a", "/b", "/a", Some(&"x".repeat(MAX_LOCATION_BYTES))), None);
    }

    #[test]
    fn captures_are_encoded_for_the_url_component_into_which_they_are_inserted() {
        let all = "a-._~!$&'()*+,;=:@?#[]% \"<>\\^`{|}\u{e9}";
        for (destination, expected) in [
            ("/:splat", "/docs/a-._~!$&'()*+,;=:@%3F%23%5B%5D%25%20%22%3C%3E%5C%5E%60%7B%7C%7D%C3%A9"),
            (
                "/?:splat",
                "/docs/?a-._~%21%24%26%27%28%29%2A%2B%2C%3B%3D%3A%40%3F%23%5B%5D%25%20%22%3C%3E%5C%5E%60%7B%7C%7D%C3%A9",
            ),
            (
                "/#:splat",
                "/docs/#a-._~%21%24%26%27%28%29%2A%2B%2C%3B%3D%3A%40%3F%23%5B%5D%25%20%22%3C%3E%5C%5E%60%7B%7C%7D%C3%A9",
            ),
            ("/a%2f \"<>\\^`{|}", "/docs/a%2f%20%22%3C%3E%5C%5E%60%7B%7C%7D"),
        ] {
            assert_eq!(
                location_for("/*", destination, &format!("/{all}"), None).as_deref(),
                Some(expected),
                "{destination}"
            );
        }
        for (destination, query, expected) in [
            ("/b?own", "own=1&x&&y=2", "/docs/b?own&x&y=2"),
            ("/b?own=1&more=2", "more&mor=3&x=own", "/docs/b?own=1&more=2&mor=3&x=own"),
            ("/b?%7C=1", "%7C=2&x", "/docs/b?%7C=1&x"),
            ("/b?", "&x&y", "/docs/b?x&y"),
            ("/b", "", "/docs/b?"),
            ("/time/:nobody*", "x", ""),
            ("/a:nobody", "x", "/docs/a:nobody?x"),
            ("/a?x=:nobody", "x", ""),
        ] {
            let pattern = Pattern::parse("/a", PatternDialect::DocsJson).unwrap();
            let location = RuleDestination::parse(destination, pattern.names())
                .ok()
                .and_then(|target| target.location(&pattern.matches(b"/a").unwrap(), "/docs/", Some(query)));
            assert_eq!(location.unwrap_or_default(), expected, "{destination} {query}");
        }
    }
}
