//! Names of sites as clients see them: the domain, and the URL that links begin with. Pure functions.

use std::fmt;

/// A host name in lower case: labels of letters, digits, `-` and `_`, separated by single dots. It needs no escaping in
/// a URL, in XML or in a log.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Domain(String);

impl Domain {
    /// Parses a host name. The error states the rule that the text violates.
    pub fn parse(text: &str) -> Result<Domain, &'static str> {
        if text.is_empty() {
            return Err("a domain has at least one character");
        }
        if text.contains("://") {
            return Err("a domain is a host name only, without a scheme");
        }
        if text.contains(['/', '\\', '?', '#']) {
            return Err("a domain is a host name only, without a path or a slash");
        }
        if text.contains([':', '@']) {
            return Err("a domain is a host name only, without a port or a user");
        }
        let is_label = |label: &str| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
        };
        if text.len() > 253 || !text.split('.').all(is_label) {
            return Err(
                "a domain consists of labels of letters, digits, hyphens and underscores, with single dots between them",
            );
        }
        Ok(Domain(text.to_ascii_lowercase()))
    }

    /// Returns the host name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The beginning of every link: scheme, host and optionally a path, without a slash at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// Parses a URL such as `https://origin.example` or `https://example.org/exports/`. The error states the reason.
    pub fn parse(text: &str) -> Result<PublicUrl, &'static str> {
        let url: http::Uri = text.parse().map_err(|_| "it is not a URL; write it like https://origin.example")?;
        if !matches!(url.scheme_str(), Some("http" | "https")) {
            return Err("it needs a scheme; write it like https://origin.example");
        }
        if url.query().is_some() || text.contains('#') {
            return Err("it must not have a query or a fragment, because links have their own query");
        }
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("it must not contain a user or a password, because every link would contain them");
        }
        Ok(PublicUrl(text.trim_end_matches('/').to_owned()))
    }

    /// Returns the URL, without a slash at the end.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_a_host_name_and_nothing_else() {
        assert_eq!(Domain::parse("Docs.Example.com").map(|d| d.to_string()), Ok("docs.example.com".to_owned()));
        assert!(Domain::parse("localhost").is_ok() && Domain::parse("127.0.0.1").is_ok());
        for wrong in
            ["", ".", "a..b", "a.", "https://a.b", "a/b", "a.b/", "a:80", "me@a", "a b", "ä.de", "a\nb", "a?b", "<a>"]
        {
            assert!(Domain::parse(wrong).is_err(), "{wrong:?}");
        }
        assert!(Domain::parse(&"a".repeat(63)).is_ok() && Domain::parse(&"a".repeat(64)).is_err());
        let long = "a.".repeat(126);
        assert!(Domain::parse(&format!("{long}b")).is_ok() && Domain::parse(&format!("{long}bc")).is_err());
        assert!(Domain::parse("a_b-1.x").is_ok() && Domain::parse("a\\b").is_err() && Domain::parse("a#b").is_err());
    }

    #[test]
    fn a_public_url_has_a_scheme_and_no_query() {
        for (text, expected) in [
            ("https://origin.example", "https://origin.example"),
            ("http://origin.example:8080/", "http://origin.example:8080"),
            ("https://example.org/exports/", "https://example.org/exports"),
        ] {
            assert_eq!(PublicUrl::parse(text).map(|url| url.0), Ok(expected.to_owned()));
        }
        for wrong in ["", "origin.example", "/x", "ftp://x", "https://", "http://x/?a", "http://x/#a", "http://u:p@x/"]
        {
            assert!(PublicUrl::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
