//! Values that must not appear in output: keys, and the query of a signed link. Neither type can be printed or
//! serialized by accident, and both are wiped from memory when dropped. Copies that libraries make while sending are
//! not wiped.

use std::any::Any;
use std::fmt;
use std::panic::{self, PanicHookInfo};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};
use url::Url;
use zeroize::{Zeroize, Zeroizing};

/// Minimum length in bytes of a text to hide; hiding a shorter one would damage ordinary words.
const MIN_HIDDEN_BYTES: usize = 6;

/// A text that is never displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Wraps `text` so that it is not displayed.
    pub fn new(text: String) -> Secret {
        Secret(Zeroizing::new(text))
    }

    /// Returns the text itself; use it only to send it.
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
        let url = Url::parse(text.trim()).map_err(|error| format!("it is not a URL ({error})"))?;
        SafeUrl::from_url(url)
    }

    /// Resolves `location` as a reference relative to this URL (RFC 3986 section 5, RFC 9110 section 10.2.2).
    pub fn join(&self, location: &str) -> Result<SafeUrl, String> {
        let url = self.0.join(location).map_err(|error| format!("it is not a URL ({error})"))?;
        SafeUrl::from_url(url)
    }

    fn from_url(url: Url) -> Result<SafeUrl, String> {
        match url.scheme() {
            "http" | "https" if url.has_host() => Ok(SafeUrl(url)),
            scheme => Err(format!("it is not http or https but {scheme:?}")),
        }
    }

    /// Returns the URL itself; use it only to send it.
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
        if is_secret && let Ok(placeholder) = Url::parse("wiped:") {
            String::from(std::mem::replace(&mut self.0, placeholder)).zeroize();
        }
    }
}

/// Returns the message of a panic if it is a literal of the program. A formatted message may contain a secret, so it is
/// hidden; the location is enough to find the cause.
pub fn panic_message(payload: &(dyn Any + Send)) -> &'static str {
    payload.downcast_ref::<&'static str>().copied().unwrap_or("the message is hidden, because it may contain a secret")
}

/// Installs a panic hook that prints one line on stderr: the location and the literal message, without values.
pub fn install_panic_hook() {
    panic::set_hook(Box::new(|info: &PanicHookInfo<'_>| {
        let message = panic_message(info.payload());
        let location = info.location().map_or_else(|| "an unknown location".to_owned(), ToString::to_string);
        eprintln!("docwharf: internal error at {location}: {message}; please report this line");
    }));
}

/// Replaces secrets in texts of other programs: an upstream server may quote the request in its response.
#[derive(Clone, Default)]
pub struct SecretRedactor {
    hidden: Vec<Zeroizing<String>>,
}

impl SecretRedactor {
    /// Adds this secret to the texts to hide.
    pub fn hide(&mut self, secret: &Secret) {
        self.add_hidden(secret.expose());
    }

    /// Adds these parts of a URL to the texts to hide: its query as written; each value of the query, its user name and
    /// its password, as written and decoded; and user name and password as an Authorization header has them (Base64).
    pub fn hide_url(&mut self, url: &SafeUrl) {
        let url = url.expose();
        if let Some(query) = url.query() {
            self.add_hidden(query);
            for pair in query.split('&') {
                self.add_hidden(pair.split_once('=').map_or(pair, |(_, value)| value));
            }
            for (_, value) in url.query_pairs() {
                self.add_hidden(&value);
            }
        }
        let parts = [url.username(), url.password().unwrap_or_default()];
        let decoded = parts.map(|part| percent_encoding::percent_decode_str(part).decode_utf8_lossy());
        // The server gets the decoded forms, in base64, and may quote them.
        if parts != ["", ""] {
            self.add_hidden(&encode_basic_credentials(&decoded[0], &decoded[1]));
        }
        for part in parts {
            self.add_hidden(part);
        }
        for part in &decoded {
            self.add_hidden(part);
        }
    }

    fn add_hidden(&mut self, text: &str) {
        if text.len() >= MIN_HIDDEN_BYTES && !self.hidden.iter().any(|hidden| hidden.as_str() == text) {
            self.hidden.push(Zeroizing::new(text.to_owned()));
            // Longer ones are replaced first, because they may contain shorter ones.
            self.hidden.sort_by_key(|hidden| std::cmp::Reverse(hidden.len()));
        }
    }

    /// Replaces every secret in `text` by `***`. The query of anything that looks like a link is replaced as well,
    /// because the link may be a signed one that was never added.
    pub fn redact(&self, text: &str) -> String {
        let without_known =
            self.hidden.iter().fold(text.to_owned(), |text, hidden| text.replace(hidden.as_str(), "***"));
        let is_delimiter = |c: char| c.is_whitespace() || matches!(c, '"' | '\'' | '<' | '>' | '`');
        let hide_query = |word: &str| match word.split_once('?') {
            Some((before, query)) if query.contains('=') => {
                format!("{before}?***{}", &word[word.trim_end_matches(is_delimiter).len()..])
            }
            _ => word.to_owned(),
        };
        without_known.split_inclusive(is_delimiter).map(hide_query).collect()
    }
}

/// Encodes user name and password as they are sent to the server (Basic, RFC 7617).
fn encode_basic_credentials(user: &str, password: &str) -> Zeroizing<String> {
    let credentials = Zeroizing::new(format!("{user}:{password}"));
    Zeroizing::new(STANDARD.encode(credentials.as_bytes()))
}

impl fmt::Debug for SecretRedactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretRedactor({})", self.hidden.len())
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
        struct Output {
            key: Secret,
            link: SafeUrl,
        }
        let output = Output { key: Secret::new("dwk_0123456789".into()), link: SafeUrl::parse(SIGNED).unwrap() };
        let json = serde_json::to_string(&output).unwrap();
        assert_eq!(json, r#"{"key":"***","link":"https://bucket.example/a/b.tar.gz?***"}"#);
        assert_eq!(output.key.to_string(), "***");
    }

    // Regression: a panic, and the failure of a sync after one, printed values that may be secret.
    #[test]
    fn panic_message_contains_only_literal_text() {
        let message = |panic: Box<dyn Any + Send>| panic_message(panic.as_ref());
        let literal = panic::catch_unwind(|| panic!("cannot happen")).unwrap_err();
        assert_eq!(message(literal), "cannot happen");
        let key = "dwk_0123456789";
        let formatted = panic::catch_unwind(|| panic!("the key {key} is wrong")).unwrap_err();
        assert!(!message(formatted).contains(key));
        let unwrapped = panic::catch_unwind(|| SafeUrl::parse("s3cret").map_err(|_| key).unwrap()).unwrap_err();
        assert!(!message(unwrapped).contains(key));
    }

    #[test]
    fn url_that_is_not_http_is_refused_and_not_quoted_in_the_error() {
        for text in ["file:///etc/passwd?sig=s3cret", "ftp://host/s3cret", "s3cret", "http:"] {
            let error = SafeUrl::parse(text).unwrap_err();
            assert!(!error.contains("s3cret"), "{error}");
        }
    }

    #[test]
    fn secrets_are_redacted_in_raw_and_decoded_form() {
        let mut redactor = SecretRedactor::default();
        redactor.hide_url(&SafeUrl::parse(SIGNED).unwrap());
        redactor.hide(&Secret::new("dwk_0123456789".into()));
        let text = "got abc%2Fdef123, abc/def123, hunter22, Bearer dwk_0123456789 in 2026";
        assert_eq!(redactor.redact(text), "got ***, ***, ***, Bearer *** in 2026");
        let link = r#"{"bundleUrl":"https:\/\/b\/x.zip?X-Sig=s3cret","n":1} why? a=b"#;
        assert_eq!(redactor.redact(link), r#"{"bundleUrl":"https:\/\/b\/x.zip?***","n":1} why? a=b"#);
    }

    #[test]
    fn origin_is_scheme_host_and_port() {
        let url = |text| SafeUrl::parse(text).unwrap();
        for (first, second) in
            [("https://a/x", "HTTPS://A:443/y?z"), ("http://a", "http://a:80/"), ("http://a:8", "http://a:8")]
        {
            assert!(url(first).same_origin(&url(second)), "{first} {second}");
        }
        let other_origins =
            ["http://a/x", "http://a:443/x", "https://a:80/x", "https://a:444/x", "https://b/x", "https://a.b/x"];
        for other in other_origins {
            assert!(!url("https://a/x").same_origin(&url(other)), "{other}");
        }
        assert!(!url("https://a:8443/x").same_origin(&url("http://a:8443/x")), "an equal port alone is not enough");
    }

    #[test]
    fn url_reports_its_host_encryption_query_and_loopback_address() {
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
            let properties = (url.is_encrypted(), url.has_query(), url.is_loopback());
            assert_eq!(properties, (is_encrypted, has_query, is_loopback), "{text}");
        }
        let from = SafeUrl::parse("https://bucket.example/a/b?x=1").unwrap();
        for (location, to) in [
            ("c?y=2", "https://bucket.example/a/c?y=2"),
            ("/c", "https://bucket.example/c"),
            ("//other/c", "https://other/c"),
        ] {
            assert_eq!(from.join(location).unwrap().expose().as_str(), to);
        }
        for invalid in ["ftp://b/?s=s3cret", "file:///s3cret", "http://[s3cret"] {
            assert!(!from.join(invalid).unwrap_err().contains("s3cret"), "{invalid}");
        }
    }

    #[test]
    fn each_secret_part_of_a_url_is_redacted_and_the_longest_match_first() {
        for (url, text, expected) in [
            ("https://b/x?sig=abcdef", "got abcdef.", "got ***."),
            ("https://b/x?sig=abcde", "got abcde and sig=abcde", "got abcde and ***"),
            ("https://b/x?a=1&b=secret7", "secret7", "***"),
            ("https://b/x?secret7&b=1", "secret7", "***"),
            ("https://b/x?t=a%2Bb%2Bc+d", "a%2Bb%2Bc+d is a+b+c d", "*** is ***"),
            ("https://user01:x@b/", "user01", "***"),
            ("https://u:passw0rd@b/", "passw0rd", "***"),
            ("https://u:p%40ssw0rd@b/", "p%40ssw0rd is p@ssw0rd", "*** is ***"),
            ("https://team%2Fdocs:x@b/", "team%2Fdocs is team/docs", "*** is ***"),
            ("https://user:hunter22@b/", "Basic dXNlcjpodW50ZXIyMg== is wrong", "Basic *** is wrong"),
            ("https://team%2Fdocs:p%40ssw0rd@b/", "dGVhbS9kb2NzOnBAc3N3MHJk", "***"),
            ("https://user01:x@b/", "dXNlcjAxOng=", "***"),
            ("https://token01@b/", "dG9rZW4wMTo=", "***"),
            ("https://b/x?p=abcdef&q=abcdefgh", "abcdefgh abcdef", "*** ***"),
            ("https://b/x", "https://b/x", "https://b/x"),
            ("https://b/x", "see 'http://h/y?a=b' or <http://h/y?a=b>", "see 'http://h/y?***' or <http://h/y?***>"),
            ("https://b/x", "what?yes a=b", "what?yes a=b"),
        ] {
            let mut redactor = SecretRedactor::default();
            redactor.hide_url(&SafeUrl::parse(url).unwrap());
            assert_eq!(redactor.redact(text), expected, "{url}");
        }
        let mut redactor = SecretRedactor::default();
        redactor.hide(&Secret::new("12345".into()));
        redactor.hide(&Secret::new("abcdef".into()));
        assert_eq!(
            (redactor.redact("12345 abcdef"), format!("{redactor:?}")),
            ("12345 ***".into(), "SecretRedactor(1)".into())
        );
    }
}
