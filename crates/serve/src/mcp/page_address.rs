//! Finds the page to which an address leads that a model has passed: a path, an address of this site, or the URI of a
//! resource.

use http::HeaderValue;
use percent_encoding::{percent_decode_str, percent_encode};

use docwharf_base::encode_sets::LOCATION_PATH;
use docwharf_base::model::site_path::is_page;
use docwharf_site::lookup::{AddressSettings, BasePathMatch, match_base_path};
use docwharf_site::rules::route::{RouteResult, RouteSettings, route_address};
use docwharf_site::sealed_version::SealedVersion;

use super::tools::RESOURCE_PREFIX;
use crate::named_host::HostAndPort;

/// The number of redirects that are followed; browsers stop at 20.
const MAX_REDIRECTS: usize = 20;

/// The reason why an address leads to no page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum PageAddressFault {
    /// The address is one of another host.
    #[error("this address is not on this site")]
    OtherHost,
    /// The site has nothing at the address.
    #[error("there is no page at this address")]
    NotFound,
    /// The site has a file at the address that is not a page.
    #[error("there is a file at this address, but no page")]
    NotPage,
}

/// A page that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddressedPage {
    /// The number of the file in the version.
    pub(super) file: usize,
    /// The decoded address at which the site answers with it, with its leading slash.
    pub(super) address: Vec<u8>,
}

/// Finds the page to which an address leads, directly or by redirects of the site. `is_own_host` decides whether a host
/// is one of this site.
pub(super) fn find_page(
    version: &SealedVersion,
    addresses: &AddressSettings,
    url: &str,
    is_own_host: impl Fn(&HostAndPort) -> bool,
) -> Result<AddressedPage, PageAddressFault> {
    let url = url.trim();
    let url = &url[..url.find(['#', '?']).unwrap_or(url.len())];
    let base_path = &addresses.base_path;
    let in_site = match strip_prefix_ignoring_case(url, RESOURCE_PREFIX) {
        Some(path) => decode_path(&format!("/{path}"))?,
        None => path_in_site(base_path, &decode_path(own_path(url, is_own_host)?)?)?,
    };
    let slashes = addresses.slashes.unwrap_or(version.auto_slashes);
    let settings = RouteSettings { base_path, slashes, rules: &addresses.rules };
    match follow(version, &settings, in_site.clone()) {
        // `/guide.md` is the Markdown of the page `/guide`.
        Err(PageAddressFault::NotFound | PageAddressFault::NotPage) if in_site.ends_with(b".md") => {
            follow(version, &settings, in_site[..in_site.len() - b".md".len()].to_vec())
        }
        result => result,
    }
}

/// Returns the address of a page from the root of the host, percent-encoded; `address` is the one below the base path.
pub(super) fn page_url(base_path: &str, address: &str) -> String {
    format!("{base_path}{}", percent_encode(address.as_bytes(), LOCATION_PATH))
}

/// Returns the URI of the resource of a page.
pub(super) fn resource_uri(address: &str) -> String {
    page_url(RESOURCE_PREFIX, address)
}

/// Returns the path of an address, with its leading slash; relative addresses are below the root of the host.
fn own_path(url: &str, is_own_host: impl Fn(&HostAndPort) -> bool) -> Result<&str, PageAddressFault> {
    let after_scheme = ["https://", "http://", "//"].iter().find_map(|scheme| strip_prefix_ignoring_case(url, scheme));
    let Some(rest) = after_scheme else {
        // A scheme that the site does not have.
        return if url.contains("://") { Err(PageAddressFault::OtherHost) } else { Ok(url) };
    };
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = HeaderValue::from_str(authority).ok().and_then(|authority| HostAndPort::parse(&authority));
    if host.is_some_and(|host| is_own_host(&host)) { Ok(path) } else { Err(PageAddressFault::OtherHost) }
}

/// Decodes a path and adds its leading slash. The server refuses control characters.
fn decode_path(path: &str) -> Result<Vec<u8>, PageAddressFault> {
    let slash = if path.starts_with('/') { "" } else { "/" };
    let decoded: Vec<u8> = slash.bytes().chain(percent_decode_str(path)).collect();
    let has_control = decoded.iter().any(|&byte| byte < 0x20 || byte == 0x7f);
    if has_control { Err(PageAddressFault::NotFound) } else { Ok(decoded) }
}

/// Returns the path below the base path, with its leading slash.
fn path_in_site(base_path: &str, decoded: &[u8]) -> Result<Vec<u8>, PageAddressFault> {
    match match_base_path(base_path, decoded) {
        BasePathMatch::Inside(_) => Ok(decoded[base_path.len() - 1..].to_vec()),
        BasePathMatch::Above => Ok(b"/".to_vec()),
        BasePathMatch::FrontPagePayload(_) | BasePathMatch::Outside => Err(PageAddressFault::NotFound),
    }
}

fn follow(
    version: &SealedVersion,
    settings: &RouteSettings<'_>,
    mut address: Vec<u8>,
) -> Result<AddressedPage, PageAddressFault> {
    for _ in 0..MAX_REDIRECTS {
        let location = match route_address(version, settings, &address, None) {
            RouteResult::File(file) | RouteResult::Rewritten(file, 200) => {
                let is_page = is_page(version.index().path(file));
                return if is_page { Ok(AddressedPage { file, address }) } else { Err(PageAddressFault::NotPage) };
            }
            RouteResult::NotFound | RouteResult::Rewritten(..) => return Err(PageAddressFault::NotFound),
            RouteResult::RuleRedirect(_, location) | RouteResult::CanonicalRedirect(location) => location,
        };
        let path = location.strip_prefix(settings.base_path).ok_or(PageAddressFault::OtherHost)?;
        let path = &path[..path.find(['#', '?']).unwrap_or(path.len())];
        address = decode_path(&format!("/{path}"))?;
    }
    Err(PageAddressFault::NotFound)
}

fn strip_prefix_ignoring_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_versions::version_with_files;

    const FILES: [(&str, &str); 7] = [
        ("_redirects", "/old /guide/start 301\n/away https://other.example/x 302\n/loop /loop2\n/loop2 /loop\n"),
        ("a.css", "a{}"),
        ("guide/start.html", "<p>start"),
        ("guide/x y/index.html", "<p>x"),
        ("index.html", "<p>home"),
        ("notes.md", "# no page"),
        ("own.html", "<p>own"),
    ];

    fn find(url: &str) -> Result<String, PageAddressFault> {
        let version = version_with_files(&FILES, 0);
        let addresses = AddressSettings { base_path: "/docs/".to_owned(), ..AddressSettings::default() };
        let own = HostAndPort::parse(&HeaderValue::from_static("docs.example:8080")).unwrap();
        let file = find_page(&version, &addresses, url, |host| *host == own)?.file;
        Ok(String::from_utf8(version.index().path(file).to_vec()).unwrap())
    }

    #[test]
    fn a_page_is_found_in_each_form_of_address_that_the_site_answers() {
        for (url, expected) in [
            ("/docs/guide/start", "guide/start.html"),
            ("/docs/guide/start.html", "guide/start.html"),
            ("/docs/guide/start/", "guide/start.html"),
            ("/docs/guide/start/index.html", "guide/start.html"),
            ("/docs/guide/start.md", "guide/start.html"),
            ("/docs/guide/start.html.md", "guide/start.html"),
            (" /docs/guide/start#part ", "guide/start.html"),
            ("/docs/guide/start?x=/y#part", "guide/start.html"),
            ("docs/guide/start", "guide/start.html"),
            ("/docs/guide/x%20y", "guide/x y/index.html"),
            ("/docs/guide/x y/", "guide/x y/index.html"),
            ("/docs/", "index.html"),
            ("/docs", "index.html"),
            ("/", "index.html"),
            ("/docs/old", "guide/start.html"),
            ("http://docs.example:8080/docs/guide/start#part", "guide/start.html"),
            ("HTTPS://DOCS.example:8080/docs/own.md", "own.html"),
            ("//docs.example:8080/docs/", "index.html"),
            ("http://docs.example:8080", "index.html"),
            ("docwharf:///guide/start", "guide/start.html"),
            ("docwharf:///guide/x%20y/", "guide/x y/index.html"),
            ("docwharf:///", "index.html"),
        ] {
            assert_eq!(find(url).as_deref(), Ok(expected), "{url}");
        }
    }

    #[test]
    fn an_address_that_leads_to_no_page_of_the_site_has_a_reason() {
        use PageAddressFault::{NotFound, NotPage, OtherHost};
        for (url, expected) in [
            ("/guide/start", NotFound),
            ("/docs/none", NotFound),
            ("/docs/none.md", NotFound),
            ("/docs/loop", NotFound),
            ("/docs/a%00", NotFound),
            ("/docs/../docs/", NotFound),
            ("/docs/a.css", NotPage),
            ("/docs/notes.md", NotFound),
            ("/docs/away", OtherHost),
            ("http://other.example/docs/", OtherHost),
            ("http://docs.example/docs/", OtherHost),
            ("http://user@docs.example:8080/docs/", OtherHost),
            ("//other.example/docs/", OtherHost),
            ("file:///etc/passwd", OtherHost),
            ("ftp://docs.example:8080/docs/", OtherHost),
            ("docwharf://docs/guide/start", OtherHost),
        ] {
            assert_eq!(find(url), Err(expected), "{url}");
        }
    }

    #[test]
    fn addresses_are_percent_encoded() {
        assert_eq!(page_url("/docs/", "a b/é?"), "/docs/a%20b/%C3%A9%3F");
        assert_eq!(resource_uri("guide/x y/"), "docwharf:///guide/x%20y/");
    }
}
