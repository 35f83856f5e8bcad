//! Where an address leads, as far as a policy cares: here, to another origin, or nowhere that is fetched.

use url::Url;

/// An address or the part of one that names the origin is never longer, in bytes.
const LONGEST: usize = 2048;

/// Where an address leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leads {
    /// To this site, or to what is no request: `mailto:`, `about:`.
    Here,
    /// To another origin, which may be this one spelt out.
    Outside(Origin),
    /// Its content stands in the address itself.
    Data,
    /// To what a script has made.
    Blob,
    /// Into code.
    Code,
}

/// Another origin: `https://cdn.example`, `wss://live.example:8443`, or `//cdn.example` with the page's own scheme.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(String);

impl Origin {
    /// As it is shown.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// An origin of this text, which is known to be one.
    pub(super) fn known(text: &str) -> Origin {
        Origin(text.to_owned())
    }

    /// As a policy names it; none if a policy cannot, as for IPv6 addresses. Nothing that has a meaning in a policy can be in it,
    /// whatever the page says.
    pub fn source(&self) -> Option<&str> {
        let source = self.0.strip_prefix("//").unwrap_or(&self.0);
        let host = source.split_once("://").map_or(source, |(_, host)| host);
        let good = |b: u8| b.is_ascii_alphanumeric() || b"-._:".contains(&b);
        (!host.is_empty() && host.bytes().all(good)).then_some(source)
    }

    /// The host, perhaps with a port.
    pub fn host(&self) -> &str {
        self.0.split_once("//").map_or(&self.0, |(_, host)| host)
    }
}

/// Sees where an address leads, which is relative to a page of this site.
pub fn leads(text: &str) -> Leads {
    let text = text.trim_matches(|c: char| c <= ' ');
    // Almost all addresses end here: no scheme, no host.
    let start = &text.as_bytes()[..text.len().min(LONGEST)];
    let is_sloped = |b: &u8| matches!(b, b'/' | b'\\');
    let mut letters = start.iter().filter(|b| !matches!(b, b'\t' | b'\n' | b'\r'));
    match letters.next() {
        Some(first) if is_sloped(first) => {
            if !letters.next().is_some_and(is_sloped) {
                return Leads::Here;
            }
            return origin(&format!("https:{}", cut(text))).map_or(Leads::Here, |(origin, _)| {
                let host = origin.strip_prefix("https:").unwrap_or(&origin);
                Leads::Outside(Origin(host.to_owned()))
            });
        }
        Some(first) if first.is_ascii_alphabetic() => {}
        _ => return Leads::Here,
    }
    if letters.find(|b| !(b.is_ascii_alphanumeric() || b"+-.".contains(b))) != Some(&b':') {
        return Leads::Here;
    }
    match scheme(start).as_str() {
        "data" => Leads::Data,
        "blob" => Leads::Blob,
        "javascript" => Leads::Code,
        "http" | "https" | "ws" | "wss" => match origin(cut(text)) {
            Some((origin, _)) => Leads::Outside(Origin(origin)),
            None => Leads::Here,
        },
        _ => Leads::Here,
    }
}

/// Where an address with a host leads to: the origin, and the whole of it.
pub fn origin(text: &str) -> Option<(String, Url)> {
    let url = Url::parse(text).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
    Some((format!("{}://{host}{port}", url.scheme()), url))
}

/// Whether code in an address does nothing, as in `javascript:void(0)`.
pub fn is_idle(text: &str) -> bool {
    let code = text.split_once(':').map_or("", |(_, code)| code);
    let code: String = code.chars().filter(|c| !c.is_whitespace() && *c != ';').collect();
    matches!(code.as_str(), "" | "void(0)" | "void0" | "false" | "undefined" | "%20" | "void(null)")
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

fn scheme(start: &[u8]) -> String {
    let letters = start.iter().filter(|b| !matches!(b, b'\t' | b'\n' | b'\r')).take_while(|b| **b != b':');
    letters.map(|b| char::from(b.to_ascii_lowercase())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_leads_where_a_browser_would_ask() {
        let outside = |text: &str| Leads::Outside(Origin(text.to_owned()));
        for (text, expected) in [
            ("a/b.css", Leads::Here),
            ("/a//b", Leads::Here),
            ("#x", Leads::Here),
            ("?a=https://x.example/", Leads::Here),
            ("", Leads::Here),
            ("mailto:me@x.example", Leads::Here),
            ("https://", Leads::Here),
            ("HTTPS://CDN.Example:443/x", outside("https://cdn.example")),
            (" ht\ntps://cdn.example/x", outside("https://cdn.example")),
            ("https:cdn.example/x", outside("https://cdn.example")),
            ("http://cdn.example:8080/x", outside("http://cdn.example:8080")),
            ("//cdn.example/x", outside("//cdn.example")),
            ("/\\cdn.example/x", outside("//cdn.example")),
            ("wss://live.example/", outside("wss://live.example")),
            ("data:text/css,a", Leads::Data),
            ("blob:x", Leads::Blob),
            ("java\tscript:alert(1)", Leads::Code),
        ] {
            assert_eq!(leads(text), expected, "{text:?}");
        }
    }

    #[test]
    fn no_host_says_anything_else_in_a_policy() {
        for text in ["https://a;sandbox/", "https://*/", "https://a,b/", "https://'self'/", "https://[::1]/", "//*/x"] {
            match leads(text) {
                Leads::Outside(origin) => assert_eq!(origin.source(), None, "{text}"),
                other => assert_eq!(other, Leads::Here, "{text}"),
            }
        }
        assert_eq!(Origin("//cdn.example".to_owned()).source(), Some("cdn.example"));
    }

    #[test]
    fn idle_code_is_known() {
        assert!(is_idle("javascript:void(0)") && is_idle("JavaScript: void 0;") && is_idle("javascript:"));
        assert!(!is_idle("javascript:go()"));
    }

    #[test]
    fn schemes_hosts_and_ports_are_those_that_a_browser_sees() {
        let outside = |text: &str| Leads::Outside(Origin(text.to_owned()));
        for (text, expected) in [
            ("HTTP://x.example:80/", outside("http://x.example")),
            ("http://x.example:443/", outside("http://x.example:443")),
            ("Ws://X.example:80", outside("ws://x.example")),
            ("wss://x.example:8443", outside("wss://x.example:8443")),
            ("\\\\x.example/", outside("//x.example")),
            ("/\t/x.example", outside("//x.example")),
            ("//X.example:443/", outside("//x.example")),
            ("//", Leads::Here),
            ("\u{0} //x.example \n", outside("//x.example")),
            ("DATA:,x", Leads::Data),
            ("Blob:x", Leads::Blob),
            ("JavaScript:x()", Leads::Code),
            ("java script:x()", Leads::Here),
            ("1http://x.example/", Leads::Here),
            ("ftp://x.example/", Leads::Here),
            ("about:blank", Leads::Here),
            ("a+b-c.d:x", Leads::Here),
            ("https", Leads::Here),
            (":x", Leads::Here),
        ] {
            assert_eq!(leads(text), expected, "{text:?}");
        }
        assert_eq!(leads(&format!("https://x.example/{}", "é".repeat(LONGEST))), outside("https://x.example"));
        let origin = |text: &str| Origin(text.to_owned());
        for (text, source, host) in [
            ("https://x-1.example:8080", Some("https://x-1.example:8080"), "x-1.example:8080"),
            ("//x_y.example", Some("x_y.example"), "x_y.example"),
            ("wss://[::1]", None, "[::1]"),
            ("//a,b", None, "a,b"),
            ("//", None, ""),
        ] {
            assert_eq!((origin(text).source(), origin(text).host()), (source, host), "{text}");
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
            assert_eq!(is_idle(code), expected, "{code}");
        }
    }
}
