//! Values that must not appear in output: keys, and the query of a signed link. Neither type can be printed or
//! serialized by accident, and both are wiped from memory when dropped. Copies that libraries make while sending are
//! not wiped.

use std::any::Any;
use std::fmt;
use std::panic::{self, PanicHookInfo};

use serde::{Serialize, Serializer};
use url::Url;
use zeroize::{Zeroize, Zeroizing};

/// Minimum length in bytes of a text to hide; hiding shorter ones would damage ordinary words.
const MIN_HIDDEN_BYTES: usize = 6;

/// A text that is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps `text` so that it is not displayed.
    pub fn new(text: String) -> Secret {
        Secret(Zeroizing::new(text))
    }

    /// The text itself, only for sending it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// An http or https URL that is displayed without user name, password, query and fragment.
#[derive(Clone, PartialEq, Eq)]
pub struct SafeUrl(Url);

impl SafeUrl {
    /// Parses an absolute http or https URL. The error message never repeats the text.
    pub fn parse(text: &str) -> Result<SafeUrl, String> {
        let url = Url::parse(text.trim()).map_err(|error| format!("it is no URL ({error})"))?;
        SafeUrl::from_url(url)
    }

    /// Resolves `location` as a reference relative to this URL (RFC 3986 section 5, RFC 9110 section 10.2.2).
    pub fn join(&self, location: &str) -> Result<SafeUrl, String> {
        let url = self.0.join(location).map_err(|error| format!("it is no URL ({error})"))?;
        SafeUrl::from_url(url)
    }

    fn from_url(url: Url) -> Result<SafeUrl, String> {
        match url.scheme() {
            "http" | "https" if url.has_host() => Ok(SafeUrl(url)),
            scheme => Err(format!("it is not http or https but {scheme:?}")),
        }
    }

    /// The URL itself, only for sending it.
    pub fn expose(&self) -> &Url {
        &self.0
    }

    /// Whether two URLs have the same scheme, host and port (RFC 6454 section 4).
    pub fn same_origin(&self, other: &SafeUrl) -> bool {
        self.0.origin() == other.0.origin()
    }

    /// Returns host and port, for messages.
    pub fn host(&self) -> String {
        let host = self.0.host_str().unwrap_or_default();
        self.0.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
    }

    /// Whether the scheme is https.
    pub fn is_encrypted(&self) -> bool {
        self.0.scheme() == "https"
    }

    /// Whether the URL has a query, as signed links do.
    pub fn has_query(&self) -> bool {
        self.0.query().is_some()
    }

    /// Whether the host is this machine.
    pub fn is_loopback(&self) -> bool {
        match self.0.host() {
            Some(url::Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        }
    }

    /// The URL without its secret parts. Receipts, labels and messages use it as the name of the source.
    pub fn without_secrets(&self) -> String {
        let mut url = self.0.clone();
        url.set_query(None);
        url.set_fragment(None);
        // Neither call can fail: the URL has a host.
        let _ = url.set_username("");
        let _ = url.set_password(None);
        url.into()
    }
}

impl fmt::Display for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hidden = if self.has_query() { "?***" } else { "" };
        write!(f, "{}{hidden}", self.without_secrets())
    }
}

impl fmt::Debug for SafeUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for SafeUrl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Drop for SafeUrl {
    fn drop(&mut self) {
        // A URL without query, user name and password has nothing to wipe.
        let is_secret = self.has_query() || !self.0.username().is_empty() || self.0.password().is_some();
        if is_secret && let Ok(nothing) = Url::parse("wiped:") {
            String::from(std::mem::replace(&mut self.0, nothing)).zeroize();
        }
    }
}

/// Returns the message of a panic if it is a literal of the program. A formatted message may contain a secret, so it is
/// withheld; the location is enough to find the cause.
pub fn panic_message(payload: &(dyn Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("its message is withheld: it may contain a secret")
}

/// Installs a panic hook that prints one line on stderr: the location and the literal message, without values.
pub fn install_panic_hook() {
    panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        let words = panic_message(info.payload());
        let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        eprintln!("docwharf: a mistake in docwharf itself, at {place}: {words}; please report it with this line");
    }));
}

/// Replaces secrets in texts of other programs: an upstream may quote the request that it was sent.
#[derive(Clone, Default)]
pub struct Scrubber {
    needles: Vec<Zeroizing<String>>,
}

impl Scrubber {
    /// Adds this secret to the texts to hide.
    pub fn hide(&mut self, secret: &Secret) {
        self.add_needle(secret.expose());
    }

    /// Adds a URL's query, each of its values, its user name and its password to the texts to hide.
    pub fn hide_url(&mut self, url: &SafeUrl) {
        let url = url.expose();
        if let Some(query) = url.query() {
            self.add_needle(query);
            for pair in query.split('&') {
                self.add_needle(pair.split_once('=').map_or(pair, |(_, value)| value));
            }
            for (_, value) in url.query_pairs() {
                self.add_needle(&value);
            }
        }
        self.add_needle(url.password().unwrap_or_default());
        self.add_needle(url.username());
    }

    fn add_needle(&mut self, needle: &str) {
        if needle.len() >= MIN_HIDDEN_BYTES && !self.needles.iter().any(|known| known.as_str() == needle) {
            self.needles.push(Zeroizing::new(needle.to_owned()));
            // Longer ones are replaced first, because they may contain shorter ones.
            self.needles.sort_by_key(|needle| std::cmp::Reverse(needle.len()));
        }
    }

    /// Replaces every secret in `text` by `***`. The query of anything that looks like a link is replaced as well,
    /// because the link may be a signed one that was never added.
    pub fn scrub(&self, text: &str) -> String {
        let known = self.needles.iter().fold(text.to_owned(), |text, needle| text.replace(needle.as_str(), "***"));
        let ends = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
        let hide = |word: &str| match word.split_once('?') {
            Some((before, query)) if query.contains('=') => {
                format!("{before}?***{}", &word[word.trim_end_matches(ends).len()..])
            }
            _ => word.to_owned(),
        };
        known.split_inclusive(ends).map(hide).collect()
    }
}

impl fmt::Debug for Scrubber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scrubber({})", self.needles.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: &str =
        "https://user:hunter22@bucket.example/a/b.tar.gz?X-Amz-Signature=abc%2Fdef123&X-Amz-Date=2026#x";

    #[test]
    fn a_signed_link_shows_neither_query_nor_password() {
        let url = SafeUrl::parse(SIGNED).unwrap();
        assert_eq!(url.to_string(), "https://bucket.example/a/b.tar.gz?***");
        assert_eq!(format!("{url:?}"), url.to_string());
        assert_eq!(url.without_secrets(), "https://bucket.example/a/b.tar.gz");
        assert_eq!(format!("{:?}", Secret::new("key".into())), "***");
    }

    #[test]
    fn serde_and_display_show_no_more_than_debug() {
        #[derive(Serialize)]
        struct Told {
            key: Secret,
            link: SafeUrl,
        }
        let told = Told { key: Secret::new("dwk_0123456789".into()), link: SafeUrl::parse(SIGNED).unwrap() };
        let json = serde_json::to_string(&told).unwrap();
        assert_eq!(json, r#"{"key":"***","link":"https://bucket.example/a/b.tar.gz?***"}"#);
        assert_eq!(told.key.to_string(), "***");
    }

    #[test]
    fn a_panic_tells_its_own_words_and_no_values() {
        let said = |panic: Box<dyn Any + Send>| panic_message(panic.as_ref());
        let literal = panic::catch_unwind(|| panic!("cannot happen")).unwrap_err();
        assert_eq!(said(literal), "cannot happen");
        let key = "dwk_0123456789";
        let told = panic::catch_unwind(|| panic!("the key {key} is wrong")).unwrap_err();
        assert!(!said(told).contains(key));
        let unwrapped = panic::catch_unwind(|| SafeUrl::parse("geheim").map_err(|_| key).unwrap()).unwrap_err();
        assert!(!said(unwrapped).contains(key));
    }

    #[test]
    fn what_is_not_http_is_no_link_and_is_not_repeated() {
        for text in ["file:///etc/passwd?sig=geheim", "ftp://host/geheim", "geheim", "http:"] {
            let why = SafeUrl::parse(text).unwrap_err();
            assert!(!why.contains("geheim"), "{why}");
        }
    }

    #[test]
    fn texts_of_others_are_scrubbed_raw_and_decoded() {
        let mut scrubber = Scrubber::default();
        scrubber.hide_url(&SafeUrl::parse(SIGNED).unwrap());
        scrubber.hide(&Secret::new("dwk_0123456789".into()));
        let text = "got abc%2Fdef123, abc/def123, hunter22, Bearer dwk_0123456789 in 2026";
        assert_eq!(scrubber.scrub(text), "got ***, ***, ***, Bearer *** in 2026");
        let link = r#"{"bundleUrl":"https:\/\/b\/x.zip?X-Sig=geheim","n":1} why? a=b"#;
        assert_eq!(scrubber.scrub(link), r#"{"bundleUrl":"https:\/\/b\/x.zip?***","n":1} why? a=b"#);
    }

    #[test]
    fn origin_is_scheme_host_and_port() {
        let url = |text| SafeUrl::parse(text).unwrap();
        for (one, other) in
            [("https://a/x", "HTTPS://A:443/y?z"), ("http://a", "http://a:80/"), ("http://a:8", "http://a:8")]
        {
            assert!(url(one).same_origin(&url(other)), "{one} {other}");
        }
        let others =
            ["http://a/x", "http://a:443/x", "https://a:80/x", "https://a:444/x", "https://b/x", "https://a.b/x"];
        for other in others {
            assert!(!url("https://a/x").same_origin(&url(other)), "{other}");
        }
        assert!(!url("https://a:8443/x").same_origin(&url("http://a:8443/x")), "the port is not all");
    }

    #[test]
    fn of_a_url_host_port_scheme_and_whether_it_is_signed_are_known() {
        for (text, host, is_encrypted, has_query, is_loopback) in [
            ("https://bucket.example/a", "bucket.example", true, false, false),
            ("https://u:p@bucket.example:443/a?x=1", "bucket.example", true, true, false),
            (" http://bucket.example:443/a#b ", "bucket.example:443", false, false, false),
            ("http://localhost/", "localhost", false, false, true),
            ("http://docs.localhost:81/?", "docs.localhost:81", false, true, true),
            ("http://notlocalhost/", "notlocalhost", false, false, false),
            ("http://localhost.example/", "localhost.example", false, false, false),
            ("http://127.0.0.1:8080/", "127.0.0.1:8080", false, false, true),
            ("http://127.255.0.9/", "127.255.0.9", false, false, true),
            ("http://128.0.0.1/", "128.0.0.1", false, false, false),
            ("https://[::1]:81/", "[::1]:81", true, false, true),
            ("https://[::2]/", "[::2]", true, false, false),
        ] {
            let url = SafeUrl::parse(text).unwrap();
            assert_eq!(url.host(), host, "{text}");
            let found = (url.is_encrypted(), url.has_query(), url.is_loopback());
            assert_eq!(found, (is_encrypted, has_query, is_loopback), "{text}");
        }
        let from = SafeUrl::parse("https://bucket.example/a/b?x=1").unwrap();
        for (location, to) in [
            ("c?y=2", "https://bucket.example/a/c?y=2"),
            ("/c", "https://bucket.example/c"),
            ("//other/c", "https://other/c"),
        ] {
            assert_eq!(from.join(location).unwrap().expose().as_str(), to);
        }
        for wrong in ["ftp://b/?s=geheim", "file:///geheim", "http://[geheim"] {
            assert!(!from.join(wrong).unwrap_err().contains("geheim"), "{wrong}");
        }
    }

    #[test]
    fn each_part_of_a_link_that_may_be_a_secret_is_hidden_and_a_long_one_whole() {
        for (url, text, left) in [
            ("https://b/x?sig=abcdef", "got abcdef.", "got ***."),
            ("https://b/x?sig=abcde", "got abcde and sig=abcde", "got abcde and ***"),
            ("https://b/x?a=1&b=secret7", "secret7", "***"),
            ("https://b/x?secret7&b=1", "secret7", "***"),
            ("https://b/x?t=a%2Bb%2Bc+d", "a%2Bb%2Bc+d is a+b+c d", "*** is ***"),
            ("https://user01:x@b/", "user01", "***"),
            ("https://u:passw0rd@b/", "passw0rd", "***"),
            ("https://b/x?p=abcdef&q=abcdefgh", "abcdefgh abcdef", "*** ***"),
            ("https://b/x", "https://b/x", "https://b/x"),
            ("https://b/x", "see 'http://h/y?a=b' or <http://h/y?a=b>", "see 'http://h/y?***' or <http://h/y?***>"),
            ("https://b/x", "what?yes a=b", "what?yes a=b"),
        ] {
            let mut scrubber = Scrubber::default();
            scrubber.hide_url(&SafeUrl::parse(url).unwrap());
            assert_eq!(scrubber.scrub(text), left, "{url}");
        }
        let mut scrubber = Scrubber::default();
        scrubber.hide(&Secret::new("12345".into()));
        scrubber.hide(&Secret::new("abcdef".into()));
        assert_eq!(
            (scrubber.scrub("12345 abcdef"), format!("{scrubber:?}")),
            ("12345 ***".into(), "Scrubber(1)".into())
        );
    }
}
