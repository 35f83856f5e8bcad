//! Parsers of values with their own syntax, shared by configuration and command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use docwharf_agent::sync::BundleLocation;
use docwharf_base::error_chain::QuotedName;
use docwharf_base::secret::SafeUrl;
use docwharf_serve::Http2Server;
use docwharf_site::lookup::Slashes;

/// Parses the location of a bundle: a link, a file URL, or a path relative to `base`.
pub fn parse_bundle(text: &str, base: &Path) -> Result<BundleLocation, String> {
    if text.is_empty() {
        return Err("it is empty".to_owned());
    }
    // A signed link is a secret, so no message repeats the text.
    let lower = text.to_ascii_lowercase();
    let is_url = lower.contains("://");
    let looks_signed = text.split_once('?').is_some_and(|(_, query)| query.contains('='));
    if !is_url && (lower.starts_with("http:") || lower.starts_with("https:") || looks_signed) {
        return Err("a link begins with https://; write a path that contains a ? as a file URL".to_owned());
    }
    let scheme = text.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref() {
        Some("http" | "https") => SafeUrl::parse(text).map(BundleLocation::Link),
        Some("file") | None => Ok(BundleLocation::File(base.join(file_path(text)?))),
        Some(other) => Err(format!(
            "bundles come from https, http, a file URL or a path, not from {}",
            QuotedName(other.as_bytes())
        )),
    }
}

/// Parses a path, or a file URL (RFC 8089) of this machine.
fn file_path(text: &str) -> Result<PathBuf, String> {
    // Schemes are case-insensitive (RFC 3986, section 3.1).
    let scheme = text.split_at_checked(5).filter(|(scheme, _)| scheme.eq_ignore_ascii_case("file:"));
    let Some((_, rest)) = scheme else { return Ok(PathBuf::from(text)) };
    let path = match rest.strip_prefix("//") {
        Some(rest) => rest.strip_prefix("localhost").unwrap_or(rest),
        None => rest,
    };
    if path.contains('?') {
        // File URLs have no query (RFC 8089), and the query may be a secret.
        return Err("a file URL has no query; write a ? in a name as %3F".to_owned());
    }
    if !path.starts_with('/') {
        return Err("write a file URL like file:///path/to/bundle.zip".to_owned());
    }
    let path = percent_encoding::percent_decode_str(path).decode_utf8();
    path.map(|path| PathBuf::from(path.as_ref())).map_err(|_| "it is not UTF-8".to_owned())
}

/// Parses the base URL of the API: http or https, without a query.
pub fn parse_base_url(text: &str) -> Result<SafeUrl, String> {
    let url = SafeUrl::parse(text)?;
    if !url.expose().username().is_empty() || url.expose().password().is_some() {
        return Err("an API's address has no user name and no password: the key identifies the client".to_owned());
    }
    if url.has_query() || url.expose().fragment().is_some() {
        return Err("an API's address has neither query nor fragment".to_owned());
    }
    Ok(url)
}

/// Parses a host name: no scheme, no port, no path.
pub fn parse_domain(text: &str) -> Result<String, String> {
    let plain = |label: &str| {
        !label.is_empty() && label.len() <= 63 && label.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
    };
    let text = text.trim();
    if text.len() <= 253 && text.split('.').all(plain) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is not a host name: write it like docs.example.com, without scheme, port and path"))
}

/// Parses the id of a project, as the dashboard shows it beside the keys.
pub fn parse_project(text: &str) -> Result<String, String> {
    let id = text.trim();
    let is_usable = !matches!(id, "" | "." | "..") && !id.chars().any(|c| c.is_control() || c.is_whitespace());
    is_usable.then(|| id.to_owned()).ok_or_else(|| format!("{text:?} is not a project id: copy it from the dashboard"))
}

/// Parses an address to listen on.
pub fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    let text = text.strip_prefix("localhost:").map_or_else(|| text.to_owned(), |port| format!("127.0.0.1:{port}"));
    text.parse().map_err(|_| format!("{text:?} is not an address: write it like 127.0.0.1:8080 or [::]:8080"))
}

/// Parses addresses to listen on; empty texts are skipped.
pub(super) fn parse_listen_list(texts: &[String]) -> Result<Vec<SocketAddr>, String> {
    texts.iter().filter(|text| !text.is_empty()).map(|text| parse_listen(text)).collect()
}

/// Parses `auto`, `serve` or `redirect`; `None` for `auto`.
pub fn parse_slashes(text: &str) -> Result<Option<Slashes>, String> {
    match text {
        "auto" => Ok(None),
        "serve" => Ok(Some(Slashes::Serve)),
        "redirect" => Ok(Some(Slashes::Redirect)),
        _ => Err("\"auto\", \"serve\" or \"redirect\" is needed".to_owned()),
    }
}

/// Parses which implementation serves HTTP/2.
pub fn parse_http2(text: &str) -> Result<Http2Server, String> {
    match text {
        "own" => Ok(Http2Server::Own),
        "hyper" => Ok(Http2Server::Hyper),
        "off" => Ok(Http2Server::Off),
        _ => Err("\"own\", \"hyper\" or \"off\" is needed".to_owned()),
    }
}

/// Parses the base path of the site: `/`, `/docs`, `/docs/`. The result ends with a slash.
pub fn parse_base_path(text: &str) -> Result<String, String> {
    let wrong = || format!("{text:?} is not a base path: write it like / or /docs/");
    let inner = text.strip_prefix('/').ok_or_else(wrong)?;
    let inner = inner.strip_suffix('/').unwrap_or(inner);
    if inner.is_empty() {
        return if text == "/" { Ok(text.to_owned()) } else { Err(wrong()) };
    }
    let plain = |part: &str| {
        !part.is_empty()
            && part != "."
            && part != ".."
            && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
    };
    if inner.split('/').all(plain) { Ok(format!("/{inner}/")) } else { Err(wrong()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_come_from_links_file_urls_and_paths() {
        let parse = |text| parse_bundle(text, Path::new("/etc"));
        assert_eq!(parse("file:///a%20b.zip"), Ok(BundleLocation::File("/a b.zip".into())));
        assert_eq!(parse("file://localhost/x"), Ok(BundleLocation::File("/x".into())));
        // RFC 8089, appendix B, also allows a single slash.
        assert_eq!(parse("file:/x/y"), Ok(BundleLocation::File("/x/y".into())));
        // Regression: `FILE:///x` was a path relative to the configuration file.
        assert_eq!(parse("FILE:///x"), Ok(BundleLocation::File("/x".into())));
        assert_eq!(parse("docs.zip"), Ok(BundleLocation::File("/etc/docs.zip".into())));
        assert_eq!(parse("/srv/what?.zip"), Ok(BundleLocation::File("/srv/what?.zip".into())));
        for relative in ["file://host/x", "file:x", "FILE:x"] {
            let why = "write a file URL like file:///path/to/bundle.zip";
            assert_eq!(parse(relative), Err(why.to_owned()), "{relative}");
        }
        assert_eq!(parse("file:///%ff"), Err("it is not UTF-8".to_owned()));
        let link = parse("HTTPS://bucket.example/x?X-Amz-Signature=secret").unwrap();
        assert!(matches!(&link, BundleLocation::Link(url) if url.to_string() == "https://bucket.example/x?***"));
        for wrong in [
            "s3://bucket/x?sig=secret-value",
            "https://?sig=secret-value",
            "bucket/x?sig=secret-value",
            "https:/b/x?sig=secret-value",
            "file:///x?sig=secret-value",
            "File:///x?sig=secret-value",
        ] {
            let why = parse(wrong).unwrap_err();
            assert!(!why.contains("secret-value"), "{why}");
        }
    }

    #[test]
    fn a_domain_is_a_host_name() {
        for good in ["docs.example.com", "localhost", "a-b.c"] {
            assert_eq!(parse_domain(good).as_deref(), Ok(good));
        }
        for wrong in ["https://docs.example.com", "docs.example.com/", "a b", "docs.example.com:443", "a..b", ""] {
            assert!(parse_domain(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(parse_domain(" docs.example\n").as_deref(), Ok("docs.example"));
        // The bounds of RFC 1035, section 2.3.4; underscores occur in names of internal networks.
        let (longest, too_long) = ("a".repeat(63), "a".repeat(64));
        let name = format!("{longest}.{longest}.{longest}.{}", "b".repeat(61));
        assert_eq!(parse_domain(&name).as_deref(), Ok(name.as_str()));
        assert_eq!(parse_domain("a_b.c").as_deref(), Ok("a_b.c"));
        for wrong in [format!("{name}b"), format!("{too_long}.example")] {
            let why = "is not a host name: write it like docs.example.com, without scheme, port and path";
            assert_eq!(parse_domain(&wrong), Err(format!("{wrong:?} {why}")));
        }
    }

    #[test]
    fn a_project_id_is_one_segment_of_a_path() {
        for (text, id) in [("p_1", "p_1"), (" 0123\n", "0123"), ("..a", "..a")] {
            assert_eq!(parse_project(text).as_deref(), Ok(id), "{text:?}");
        }
        for wrong in ["", " ", ".", "..", "a b", "a\tb", "a\u{7f}", "a\u{a0}b"] {
            let message = format!("{wrong:?} is not a project id: copy it from the dashboard");
            assert_eq!(parse_project(wrong), Err(message));
        }
    }

    #[test]
    fn the_address_of_an_api_has_neither_user_nor_query_nor_fragment() {
        let parse = |text| parse_base_url(text).map(|url| url.expose().to_string());
        assert_eq!(parse("https://api.example/v1/").as_deref(), Ok("https://api.example/v1/"));
        for text in ["https://ada@api.example/v1", "https://:secret-value@api.example/v1"] {
            let why = "an API's address has no user name and no password: the key identifies the client";
            assert_eq!(parse(text), Err(why.to_owned()), "{text}");
        }
        for text in ["https://api.example/v1?a=b", "https://api.example/v1?", "https://api.example/v1#a"] {
            assert_eq!(parse(text), Err("an API's address has neither query nor fragment".to_owned()), "{text}");
        }
    }

    #[test]
    fn an_address_to_listen_on_is_numeric_or_localhost_and_has_a_port() {
        for (text, address) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("[::]:443", "[::]:443"),
            ("0.0.0.0:0", "0.0.0.0:0"),
        ] {
            assert_eq!(parse_listen(text).map(|address| address.to_string()).as_deref(), Ok(address), "{text}");
        }
        for wrong in ["", "8080", ":8080", "localhost", "docs.example:80", "127.0.0.1", "127.0.0.1:65536"] {
            let message = format!("{wrong:?} is not an address: write it like 127.0.0.1:8080 or [::]:8080");
            assert_eq!(parse_listen(wrong), Err(message));
        }
        let list = |texts: &[&str]| parse_listen_list(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        assert_eq!(list(&["", "localhost:1", ""]).map(|list| list.len()), Ok(1));
        assert_eq!(list(&[]), Ok(Vec::new()));
    }

    #[test]
    fn a_base_path_ends_with_a_slash() {
        assert_eq!(parse_base_path("/docs").unwrap(), "/docs/");
        assert_eq!(parse_base_path("/a/b/").unwrap(), "/a/b/");
        assert_eq!(parse_base_path("/").unwrap(), "/");
        assert_eq!(parse_base_path("/~a/b.c_d-e/..f").unwrap(), "/~a/b.c_d-e/..f/");
        for wrong in ["", "docs", "//", "//x", "/../x", "/a b", "/a//b", "/a//", "/./a", "/a/.", "/a/../", "/a%2fb"] {
            let message = format!("{wrong:?} is not a base path: write it like / or /docs/");
            assert_eq!(parse_base_path(wrong), Err(message));
        }
    }
}
