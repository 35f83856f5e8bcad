//! The URL of a request to a target: parsed once, and refused rather than repaired. Pure.
//!
//! A target that interprets a path in another way than the rules do would answer requests that no rule allows. So a
//! path with dot segments is refused however they are written: encoded, encoded twice, with a backslash, or with
//! parameters (`..;`), which some servers remove.

use std::borrow::Cow;

use percent_encoding::percent_decode;
use url::{Host, Position, Url};

/// The number of times that a path is decoded in the search for dot segments.
const MAX_DECODINGS: usize = 4;

/// The URL of a request to a target. It has no user name, password or fragment, and its path does not climb.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct TargetUrl {
    url: Url,
    decoded_path: Vec<u8>,
}

/// The reason why a URL is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TargetUrlFault {
    /// It is no absolute URL, or has characters that a URL must not have.
    Malformed,
    /// Its scheme is neither http nor https, or it has a user name or a password: no origin is like that.
    NoOrigin,
    /// Its path may climb to another one.
    ClimbingPath,
}

impl TargetUrl {
    /// Parses a URL.
    pub(crate) fn parse(text: &str) -> Result<TargetUrl, TargetUrlFault> {
        // The parser would remove tabs and line breaks, and spaces at both ends.
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(TargetUrlFault::Malformed);
        }
        let url = Url::parse(text).map_err(|_| TargetUrlFault::Malformed)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(TargetUrlFault::NoOrigin);
        }
        // The parser accepts other numbers of slashes as well.
        let after_scheme = text.get(url.scheme().len()..).and_then(|rest| rest.strip_prefix("://"));
        let (authority, path) = split_authority(after_scheme.ok_or(TargetUrlFault::NoOrigin)?);
        if authority.is_empty() {
            return Err(TargetUrlFault::Malformed);
        }
        if authority.contains('@') || !url.username().is_empty() || url.password().is_some() {
            return Err(TargetUrlFault::NoOrigin);
        }
        let decoded_path = decode(path.as_bytes());
        if decoded_path.iter().any(|&byte| byte < b' ' || byte == 0x7f) {
            return Err(TargetUrlFault::Malformed);
        }
        if climbs(path.as_bytes()) {
            return Err(TargetUrlFault::ClimbingPath);
        }
        let decoded_path = decode(url.path().as_bytes()).into_owned();
        Ok(TargetUrl { url, decoded_path })
    }

    /// Returns whether the scheme is https.
    pub(crate) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Returns the host as it is written in a URL: a name in lower case, or an address, one of IPv6 in brackets.
    pub(crate) fn host(&self) -> &str {
        self.url.host_str().unwrap_or_default()
    }

    /// Returns the host as it is looked up: without brackets.
    pub(crate) fn lookup_host(&self) -> String {
        match self.url.host() {
            Some(Host::Domain(name)) => name.to_owned(),
            Some(Host::Ipv4(address)) => address.to_string(),
            Some(Host::Ipv6(address)) => address.to_string(),
            None => String::new(),
        }
    }

    /// Returns the port, also if it is the default one.
    pub(crate) fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or_default()
    }

    /// Returns the path, percent-decoded, with its leading slash.
    pub(crate) fn decoded_path(&self) -> &[u8] {
        &self.decoded_path
    }

    /// Returns path and query, as a request has them.
    pub(crate) fn request_target(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }

    /// Returns the value of Host: the host, and the port unless it is the default one.
    pub(crate) fn host_field(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }
}

/// Splits what follows `://` into authority and path. The parser takes a backslash for a slash.
fn split_authority(text: &str) -> (&str, &str) {
    let text = &text[..text.find(['?', '#']).unwrap_or(text.len())];
    text.split_at(text.find(['/', '\\']).unwrap_or(text.len()))
}

fn decode(path: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(path).into()
}

/// Returns whether a path has dot segments or backslashes, however often they are encoded. A path that is still
/// encoded after several decodings is refused, too: no honest one is.
fn climbs(path: &[u8]) -> bool {
    let mut path = Cow::Borrowed(path);
    for _ in 0..MAX_DECODINGS {
        // Some servers decode what no standard permits: overlong forms of UTF-8, and `%u002e`.
        if std::str::from_utf8(&path).is_err() || has_unusual_escape(&path) {
            return true;
        }
        if path.contains(&b'\\') || path.split(|&byte| byte == b'/').any(is_dot_segment) {
            return true;
        }
        let decoded = decode(&path);
        if decoded == path {
            return false;
        }
        path = Cow::Owned(decoded.into_owned());
    }
    true
}

/// Returns whether a `%` begins no percent-encoding, but `%u` and a hexadecimal digit.
fn has_unusual_escape(path: &[u8]) -> bool {
    path.windows(3).any(|part| part[0] == b'%' && part[1].eq_ignore_ascii_case(&b'u') && part[2].is_ascii_hexdigit())
}

fn is_dot_segment(segment: &[u8]) -> bool {
    let name = segment.split(|&byte| byte == b';').next().unwrap_or_default();
    name == b"." || name == b".."
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_has_a_host_a_port_and_a_path_and_no_fragment() {
        for (text, is_https, host, port, path, target, host_field) in [
            ("https://api.example", true, "api.example", 443, "/", "/", "api.example"),
            (
                "https://API.example/v1/a%20b?q=%2e%2e/x#y",
                true,
                "api.example",
                443,
                "/v1/a b",
                "/v1/a%20b?q=%2e%2e/x",
                "api.example",
            ),
            ("http://api.example:8080?x", false, "api.example", 8080, "/", "/?x", "api.example:8080"),
            ("http://api.example:80/", false, "api.example", 80, "/", "/", "api.example"),
            ("http://127.1:1/", false, "127.0.0.1", 1, "/", "/", "127.0.0.1:1"),
            ("http://0x7f000001/", false, "127.0.0.1", 80, "/", "/", "127.0.0.1"),
            ("http://2130706433/", false, "127.0.0.1", 80, "/", "/", "127.0.0.1"),
            ("http://[0:0::1]:9/", false, "[::1]", 9, "/", "/", "[::1]:9"),
            ("http://x/caf\u{e9}", false, "x", 80, "/caf\u{e9}", "/caf%C3%A9", "x"),
            ("http://x/a...b/..c/d../...", false, "x", 80, "/a...b/..c/d../...", "/a...b/..c/d../...", "x"),
            ("http://x//a//b", false, "x", 80, "//a//b", "//a//b", "x"),
        ] {
            let url = TargetUrl::parse(text).unwrap_or_else(|fault| panic!("{text}: {fault:?}"));
            assert_eq!((url.is_https(), url.host(), url.port()), (is_https, host, port), "{text}");
            assert_eq!(String::from_utf8_lossy(url.decoded_path()), path, "{text}");
            assert_eq!((url.request_target(), url.host_field()), (target, host_field), "{text}");
            assert_eq!(url.lookup_host(), host.trim_matches(['[', ']']), "{text}");
        }
    }

    #[test]
    fn a_path_that_climbs_is_refused_however_it_is_written() {
        for path in [
            "/..",
            "/../",
            "/.",
            "/./",
            "/v1/..",
            "/v1/../admin",
            "/v1/./x",
            "/v1/%2e%2e/admin",
            "/v1/%2E%2E/admin",
            "/v1/.%2e/admin",
            "/v1/%2e./admin",
            "/v1/%2e/admin",
            "/v1/%252e%252e/admin",
            "/v1/%25252e%25252e/admin",
            "/v1/%2525252525252e/admin",
            "/v1/..%2fadmin",
            "/v1%2f..%2fadmin",
            "/v1/..%252fadmin",
            "/v1\\..\\admin",
            "/v1/..\\admin",
            "/v1/%5c../admin",
            "/v1/%5C..%5cadmin",
            "/v1/%255c..%255cadmin",
            "/v1/a\\b",
            "\\v1",
            "/v1/..;/admin",
            "/v1/..;x=1/admin",
            "/v1/%2e%2e%3b/admin",
            "/v1/%c0%ae%c0%ae/admin",
            "/v1/%u002e%u002e/admin",
            "/v1/%25u002e/admin",
        ] {
            let result = TargetUrl::parse(&format!("https://api.example{path}"));
            assert_eq!(result.map(|_| ()), Err(TargetUrlFault::ClimbingPath), "{path}");
        }
    }

    #[test]
    fn a_url_without_an_origin_of_http_is_refused() {
        for text in [
            "ftp://api.example/",
            "file:///etc/passwd",
            "gopher://api.example/",
            "data:,x",
            "https:api.example/",
            "https:/api.example/",
            "https:api.example?x=https://api.example/",
            "https://user@api.example/",
            "https://user:secret@api.example/",
            "https://:@api.example/",
            "https://@api.example/",
            "https://api.example@evil.example/",
            "https://api.example%40x@evil.example/",
        ] {
            assert_eq!(TargetUrl::parse(text).map(|_| ()), Err(TargetUrlFault::NoOrigin), "{text}");
        }
        // The parser takes the backslash for a slash, so that no user part remains.
        let url = TargetUrl::parse("https://api.example\\@evil.example/").map(|_| ());
        assert_eq!(url, Err(TargetUrlFault::ClimbingPath));
    }

    #[test]
    fn a_malformed_url_is_refused() {
        for text in [
            "",
            "/v1",
            "//api.example/",
            "api.example",
            "https://",
            "https:///",
            "https:///api.example/",
            "https://\\api.example/",
            " https://api.example/",
            "https://api.example/ x",
            "https://api.example/a\tb",
            "https://api.\nexample/",
            "https://api.example/%00",
            "https://api.example/a%0d%0aX:%20y",
            "https://api.example:99999/",
            "https://a b/",
            "https://[::1/",
            "https://1.2.3.4.5/",
        ] {
            assert_eq!(TargetUrl::parse(text).map(|_| ()), Err(TargetUrlFault::Malformed), "{text:?}");
        }
    }
}
