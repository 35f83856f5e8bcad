//! Addresses of the crawled site in one normal form, which is used for requests and for comparing links.

use std::fmt;

use url::Url;

/// Maximum length of an address in bytes. A longer one comes from a mistake or from an endless site, and is not
/// requested.
const MAX_ADDRESS_BYTES: usize = 2000;

/// A path with its query, as in the request line (RFC 9112, 3.2.1). It is percent-encoded in one way only (RFC 3986,
/// 6.2.2), so that two spellings of one address are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SiteAddress {
    /// The path with its leading slash.
    pub path: String,
    /// The query without `?`; an empty query is `None`.
    pub query: Option<String>,
}

impl fmt::Display for SiteAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        self.query.iter().try_for_each(|query| write!(f, "?{query}"))
    }
}

impl SiteAddress {
    /// Creates an address without a query.
    pub(super) fn from_path(path: &str) -> SiteAddress {
        SiteAddress { path: normalize_path(path), query: None }
    }

    /// Returns the request target of a URL.
    fn from_url(url: &Url) -> SiteAddress {
        let query = url.query().filter(|query| !query.is_empty()).map(str::to_owned);
        SiteAddress { path: normalize_path(url.path()), query }
    }

    /// Returns the length of path and query in bytes.
    pub(super) fn len(&self) -> usize {
        self.path.len() + self.query.as_ref().map_or(0, String::len)
    }

    /// Returns the percent-decoded path with its leading slash.
    pub(super) fn decoded_path(&self) -> Vec<u8> {
        percent_encoding::percent_decode_str(&self.path).collect()
    }
}

/// Target of a link in a page or style sheet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkTarget {
    /// This site.
    SameSite {
        /// The address to request.
        address: SiteAddress,
        /// The fragment, without `#`.
        fragment: Option<String>,
        /// Whether the link contains the site's own host, which the copy will not have.
        is_absolute: bool,
    },
    /// Another origin, at this URL.
    OtherOrigin(Url),
    /// No target that is requested: a fragment of the same page, a script, a mail address, an invalid or too long link.
    Ignored,
}

/// Resolves the link `text` in a document at `base`, on the site of `start`.
pub fn resolve_link(start: &Url, base: &Url, text: &str) -> LinkTarget {
    let text = text.trim_matches(|c: char| c.is_ascii_whitespace());
    if text.is_empty() || text.starts_with('#') {
        return LinkTarget::Ignored;
    }
    let Ok(url) = base.join(text) else { return LinkTarget::Ignored };
    if !matches!(url.scheme(), "http" | "https") {
        return LinkTarget::Ignored;
    }
    if url.origin() != start.origin() || !url.username().is_empty() || url.password().is_some() {
        return LinkTarget::OtherOrigin(url);
    }
    let address = SiteAddress::from_url(&url);
    if address.len() > MAX_ADDRESS_BYTES {
        return LinkTarget::Ignored;
    }
    // A link that is neither a path nor a query names a scheme or a host. Browsers treat a backslash as a slash.
    let is_absolute = Url::parse(text).is_ok() || text.replace('\\', "/").starts_with("//");
    LinkTarget::SameSite { address, fragment: url.fragment().map(str::to_owned), is_absolute }
}

/// Normalises a path: decodes encoded letters, digits, `-`, `.`, `_`, `~`, and writes the hex digits of other codes in
/// upper case.
fn normalize_path(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(position) = rest.find('%') {
        out.push_str(&rest[..position]);
        let code = rest.get(position + 1..position + 3).filter(|code| code.bytes().all(|b| b.is_ascii_hexdigit()));
        let Some(code) = code else {
            // A percent sign that begins no code is an ordinary character.
            out.push_str("%25");
            rest = &rest[position + 1..];
            continue;
        };
        let byte = u8::from_str_radix(code, 16).unwrap_or_default();
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push_str(&code.to_ascii_uppercase());
        }
        rest = &rest[position + 3..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equivalent_percent_encodings_normalize_to_the_same_path() {
        for (path, expected) in [("/a", "/a"), ("/%61%2d%7E", "/a-~"), ("/caf%c3%a9", "/caf%C3%A9"), ("/5%", "/5%25")] {
            assert_eq!(normalize_path(path), expected, "{path}");
        }
    }

    #[test]
    fn only_links_with_the_same_scheme_host_and_port_belong_to_the_crawled_site() {
        let start = Url::parse("http://docs.example:8080/guide/").unwrap();
        let resolve = |text: &str| match resolve_link(&start, &start, text) {
            LinkTarget::SameSite { address, fragment, is_absolute } => {
                let fragment = fragment.map_or_else(String::new, |text| format!("#{text}"));
                Some(format!("{}{address}{fragment}", if is_absolute { "! " } else { "" }))
            }
            _ => None,
        };
        for (text, expected) in [
            ("a", Some("/guide/a")),
            (" ../b?x=1#y\n", Some("/b?x=1#y")),
            ("/é", Some("/%C3%A9")),
            ("?", Some("/guide/")),
            ("http://DOCS.example:8080", Some("! /")),
            ("//docs.example:8080/a#b", Some("! /a#b")),
            ("#a", None),
            ("", None),
            ("mailto:a@docs.example", None),
            ("javascript:void(0)", None),
            ("data:text/plain,x", None),
            ("https://docs.example:8080/a", None),
            ("http://docs.example/a", None),
            ("http://user@docs.example:8080/a", None),
            ("//other.example/a", None),
        ] {
            assert_eq!(resolve(text).as_deref(), expected, "{text}");
        }
    }
}
