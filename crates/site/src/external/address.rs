//! Classifies addresses by the cases that a policy distinguishes: this site, another origin, or no request.

use url::Url;

/// The number of bytes of an address that are parsed. An origin is never longer.
const MAX_ADDRESS_BYTES: usize = 2048;

/// The target of an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddressTarget {
    /// This site, or an address that causes no request: `mailto:`, `about:`.
    NoExternalRequest,
    /// An address with a host. It may be the origin of this site, which is not known here.
    External(ExternalOrigin),
    /// A `data:` address, which contains its content.
    Data,
    /// A `blob:` address, whose content a script has created.
    Blob,
    /// A `javascript:` address.
    JavaScript,
}

/// An external origin (RFC 6454): `https://cdn.example`, `wss://live.example:8443`, or `//cdn.example` with the scheme
/// of the page.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExternalOrigin(String);

impl ExternalOrigin {
    /// Returns the origin as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Creates an origin from text that is already a valid origin.
    pub(super) fn from_trusted(text: &str) -> ExternalOrigin {
        ExternalOrigin(text.to_owned())
    }

    /// Returns the origin as a host source of a policy (CSP Level 3, 2.3.1). `None` if a policy cannot express it, such
    /// as an IPv6 address. The result never contains a character with a meaning in a policy.
    pub fn as_csp_source(&self) -> Option<&str> {
        let source = self.0.strip_prefix("//").unwrap_or(&self.0);
        let host = source.split_once("://").map_or(source, |(_, host)| host);
        let is_valid = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
        (!host.is_empty() && host.bytes().all(is_valid)).then_some(source)
    }

    /// Returns the host, with the port if there is one.
    pub fn host(&self) -> &str {
        self.0.split_once("//").map_or(&self.0, |(_, host)| host)
    }
}

/// Classifies an address in a page of this site.
pub fn classify_address(text: &str) -> AddressTarget {
    let text = text.trim_matches(|c: char| c <= ' ');
    // Almost all addresses have neither scheme nor host and need no parser.
    let start = &text.as_bytes()[..text.len().min(MAX_ADDRESS_BYTES)];
    let is_slash = |b: &u8| matches!(b, b'/' | b'\\');
    let mut significant_bytes = start.iter().filter(|b| !matches!(b, b'\t' | b'\n' | b'\r'));
    match significant_bytes.next() {
        Some(first) if is_slash(first) => {
            if !significant_bytes.next().is_some_and(is_slash) {
                return AddressTarget::NoExternalRequest;
            }
            return parse_origin(&format!("https:{}", truncate_address(text))).map_or(
                AddressTarget::NoExternalRequest,
                |(origin, _)| {
                    let host = origin.strip_prefix("https:").unwrap_or(&origin);
                    AddressTarget::External(ExternalOrigin(host.to_owned()))
                },
            );
        }
        Some(first) if first.is_ascii_alphabetic() => {}
        _ => return AddressTarget::NoExternalRequest,
    }
    if significant_bytes.find(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b))) != Some(&b':') {
        return AddressTarget::NoExternalRequest;
    }
    match parse_scheme(start).as_str() {
        "data" => AddressTarget::Data,
        "blob" => AddressTarget::Blob,
        "javascript" => AddressTarget::JavaScript,
        "http" | "https" | "ws" | "wss" => match parse_origin(truncate_address(text)) {
            Some((origin, _)) => AddressTarget::External(ExternalOrigin(origin)),
            None => AddressTarget::NoExternalRequest,
        },
        _ => AddressTarget::NoExternalRequest,
    }
}

/// Parses an absolute address. Returns its origin as text and the whole URL; `None` if it has no host.
pub fn parse_origin(text: &str) -> Option<(String, Url)> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    Some((format!("{}://{host}{port}", url.scheme()), url))
}

/// Whether the code of a `javascript:` address has no effect, as in `javascript:void(0)`.
pub fn is_no_op_javascript(text: &str) -> bool {
    let code = text.split_once(':').map_or("", |(_, code)| code);
    let code: String = code.chars().filter(|c| !c.is_whitespace() && *c != ';').collect();
    matches!(code.as_str(), "" | "void(0)" | "void0" | "false" | "undefined" | "%20" | "void(null)")
}

fn truncate_address(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_ADDRESS_BYTES)]
}

fn parse_scheme(start: &[u8]) -> String {
    let significant_bytes = start.iter().filter(|b| !matches!(b, b'\t' | b'\n' | b'\r')).take_while(|b| **b != b':');
    significant_bytes.map(|b| char::from(b.to_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_classified_by_the_request_that_a_browser_would_send() {
        let external = |text: &str| AddressTarget::External(ExternalOrigin(text.to_owned()));
        for (text, expected) in [
            ("a/b.css", AddressTarget::NoExternalRequest),
            ("/a//b", AddressTarget::NoExternalRequest),
            ("#x", AddressTarget::NoExternalRequest),
            ("?a=https://x.example/", AddressTarget::NoExternalRequest),
            ("", AddressTarget::NoExternalRequest),
            ("mailto:me@x.example", AddressTarget::NoExternalRequest),
            ("https://", AddressTarget::NoExternalRequest),
            ("HTTPS://CDN.Example:443/x", external("https://cdn.example")),
            (" ht\ntps://cdn.example/x", external("https://cdn.example")),
            ("https:cdn.example/x", external("https://cdn.example")),
            ("http://cdn.example:8080/x", external("http://cdn.example:8080")),
            ("//cdn.example/x", external("//cdn.example")),
            ("/\\cdn.example/x", external("//cdn.example")),
            ("wss://live.example/", external("wss://live.example")),
            ("data:text/css,a", AddressTarget::Data),
            ("blob:x", AddressTarget::Blob),
            ("java\tscript:alert(1)", AddressTarget::JavaScript),
        ] {
            assert_eq!(classify_address(text), expected, "{text:?}");
        }
    }

    #[test]
    fn host_that_csp_would_interpret_differently_is_not_a_csp_source() {
        for text in ["https://a;sandbox/", "https://*/", "https://a,b/", "https://'self'/", "https://[::1]/", "//*/x"] {
            match classify_address(text) {
                AddressTarget::External(origin) => assert_eq!(origin.as_csp_source(), None, "{text}"),
                other => assert_eq!(other, AddressTarget::NoExternalRequest, "{text}"),
            }
        }
        assert_eq!(ExternalOrigin("//cdn.example".to_owned()).as_csp_source(), Some("cdn.example"));
    }

    #[test]
    fn no_op_javascript_urls_are_recognized() {
        assert!(
            is_no_op_javascript("javascript:void(0)")
                && is_no_op_javascript("JavaScript: void 0;")
                && is_no_op_javascript("javascript:")
        );
        assert!(!is_no_op_javascript("javascript:go()"));
    }

    #[test]
    fn schemes_hosts_and_ports_are_those_that_a_browser_sees() {
        let external = |text: &str| AddressTarget::External(ExternalOrigin(text.to_owned()));
        for (text, expected) in [
            ("HTTP://x.example:80/", external("http://x.example")),
            ("http://x.example:443/", external("http://x.example:443")),
            ("Ws://X.example:80", external("ws://x.example")),
            ("wss://x.example:8443", external("wss://x.example:8443")),
            ("\\\\x.example/", external("//x.example")),
            ("/\t/x.example", external("//x.example")),
            ("//X.example:443/", external("//x.example")),
            ("//", AddressTarget::NoExternalRequest),
            ("\u{0} //x.example \n", external("//x.example")),
            ("DATA:,x", AddressTarget::Data),
            ("Blob:x", AddressTarget::Blob),
            ("JavaScript:x()", AddressTarget::JavaScript),
            ("java script:x()", AddressTarget::NoExternalRequest),
            ("1http://x.example/", AddressTarget::NoExternalRequest),
            ("ftp://x.example/", AddressTarget::NoExternalRequest),
            ("about:blank", AddressTarget::NoExternalRequest),
            ("a+b-c.d:x", AddressTarget::NoExternalRequest),
            ("https", AddressTarget::NoExternalRequest),
            (":x", AddressTarget::NoExternalRequest),
        ] {
            assert_eq!(classify_address(text), expected, "{text:?}");
        }
        assert_eq!(
            classify_address(&format!("https://x.example/{}", "é".repeat(MAX_ADDRESS_BYTES))),
            external("https://x.example")
        );
        let origin = |text: &str| ExternalOrigin(text.to_owned());
        for (text, source, host) in [
            ("https://x-1.example:8080", Some("https://x-1.example:8080"), "x-1.example:8080"),
            ("//x_y.example", Some("x_y.example"), "x_y.example"),
            ("wss://[::1]", None, "[::1]"),
            ("//a,b", None, "a,b"),
            ("//", None, ""),
        ] {
            assert_eq!((origin(text).as_csp_source(), origin(text).host()), (source, host), "{text}");
        }
        for (code, expected) in [
            ("javascript:;;", true),
            ("javascript: void ( 0 ) ;", true),
            ("javascript:false", true),
            ("javascript:undefined", true),
            ("javascript:void(null)", true),
            ("javascript:%20", true),
            ("javascript:void(1)", false),
            ("javascript:true", false),
            ("javascript:a:", false),
        ] {
            assert_eq!(is_no_op_javascript(code), expected, "{code}");
        }
    }
}
