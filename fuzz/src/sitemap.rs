//! Sitemaps of a crawled site. In any bytes, only a sitemap names addresses, and their length is limited. A generated
//! sitemap names the addresses that it was made from. All requested addresses have the site's origin and fit one
//! request line.

use std::fmt::Write;

use docwharf::origin::source::crawl::address::{LinkTarget, resolve_link};
use docwharf::origin::source::crawl::sitemap::visit_sitemap_addresses;
use url::{Position, Url};

use super::fuzz_input::FuzzInput;

/// The maximum length of an address that the reader returns.
const MAX_SITEMAP_ADDRESS_BYTES: usize = 8 << 10;
/// The maximum length of an address that is requested, without the `?` before its query.
const MAX_REQUEST_ADDRESS_BYTES: usize = 2000;

fn read_addresses(body: &[u8]) -> Vec<String> {
    let mut addresses = Vec::new();
    visit_sitemap_addresses(body, &mut |address| addresses.push(address.to_owned()));
    addresses
}

/// Checks any bytes as a sitemap.
fn check_bytes(body: &[u8], start: &Url) {
    let addresses = read_addresses(body);
    let text = String::from_utf8_lossy(body);
    let is_sitemap = ["urlset", "sitemapindex"].iter().any(|name| text.contains(name));
    assert!(addresses.is_empty() || is_sitemap, "addresses without a sitemap: {addresses:?}");
    assert!(addresses.len() <= text.matches("loc").count(), "{} addresses", addresses.len());
    for address in &addresses {
        assert!(address.len() <= MAX_SITEMAP_ADDRESS_BYTES, "an address of {} bytes", address.len());
        check_link(start, address);
    }
}

/// Resolves an address and checks the result. Returns whether it would be requested.
fn check_link(start: &Url, text: &str) -> bool {
    match resolve_link(start, start, text) {
        LinkTarget::SameSite { address, .. } => {
            let target = address.to_string();
            assert!(target.starts_with('/') && target.len() <= MAX_REQUEST_ADDRESS_BYTES + 1, "{target:?}");
            // The address is part of the request line (RFC 9112, 3).
            assert!(target.bytes().all(|b| b.is_ascii_graphic()) && !target.contains('#'), "{target:?}");
            let mut request_url = start.clone();
            request_url.set_fragment(None);
            request_url.set_path(&address.path);
            request_url.set_query(address.query.as_deref());
            assert_eq!(request_url.origin(), start.origin(), "{text:?} leads to {request_url}");
            assert!(request_url.username().is_empty() && request_url.password().is_none(), "{request_url}");
            match resolve_link(start, start, request_url.as_str()) {
                LinkTarget::SameSite { address: resolved, .. } => {
                    assert_eq!(resolved, address, "a resolved address stays the same");
                }
                other => panic!("{request_url} leads to {other:?}"),
            }
            true
        }
        LinkTarget::OtherOrigin(url) => {
            assert!(["http", "https"].contains(&url.scheme()), "{url}");
            let has_credentials = !url.username().is_empty() || url.password().is_some();
            assert!(url.origin() != start.origin() || has_credentials, "{url} is of this site");
            false
        }
        LinkTarget::Ignored => false,
    }
}

/// An address and whether it belongs to the site with the origin `site`.
fn make_address(site: &str, input: &mut FuzzInput<'_>) -> (String, bool) {
    let (text, is_same_site) = input.one_of(&[
        ("SITE/a", true),
        ("SITE/b?c=1&d=<2>", true),
        ("SITE/caf\u{e9}#part", true),
        ("SITE//two/./../c", true),
        ("/from/the/root", true),
        ("beside", true),
        ("?only=query", true),
        ("HTTP:/sub\\path", true),
        ("http://site.example:81/a", false),
        ("https://other.example/a", false),
        ("//other.example/a", false),
        ("\\\\other.example\\a", false),
        ("http://site.example@other.example/a", false),
        ("http://someone@site.example/a", false),
        ("http://site.example.other.example/a", false),
        ("http://[::2]/a", false),
        ("ftp://site.example/a", false),
        ("mailto:a@site.example", false),
        ("javascript:alert(1)", false),
        ("data:text/plain,a", false),
        ("#part", false),
    ]);
    // `HTTP:/path` is a relative address only for a page with the same scheme.
    let is_same_site = is_same_site && (!text.starts_with("HTTP:") || site.starts_with("http:"));
    (text.replace("SITE", site), is_same_site)
}

/// Encodes an address as the content of an XML element.
fn element_content(input: &mut FuzzInput<'_>, text: &str) -> String {
    let escaped = || text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    match input.below(5) {
        0 => format!("<![CDATA[{text}]]>"),
        1 => format!(" \n<![CDATA[ {text}\t]]> "),
        2 => format!("\n\t{}  ", escaped()),
        3 => text.chars().fold(String::new(), |mut coded, c| {
            let _ = write!(coded, "&#x{:x};", u32::from(c));
            coded
        }),
        _ => escaped(),
    }
}

/// Makes a sitemap and checks its addresses.
fn check_generated(input: &mut FuzzInput<'_>, start: &Url) {
    let site = &start[..Position::BeforePath];
    let root = input.one_of(&["urlset", "sitemapindex", "urlset", "rss"]);
    let prefix = input.one_of(&["", "", "s:", "ns1:"]);
    let mut text = input
        .one_of(&[
            "",
            "<?xml version=\"1.0\"?>\n",
            "\u{feff}<?xml version='1.0'?>",
            "<!DOCTYPE urlset>",
            "<!-- <urlset> -->",
        ])
        .to_owned();
    let _ = write!(text, "<{prefix}{root} xmlns:image=\"x\">");
    let mut written = Vec::new();
    for _ in 0..input.below(12) {
        let (address, is_same_site) = make_address(site, input);
        let content = element_content(input, &address);
        // The namespace prefix of `loc` does not matter.
        let name = input.one_of(&["loc", "loc", "loc a=\"b\"", "loc\n"]);
        let loc_prefix = if input.once_in(8) { "image:" } else { prefix };
        let _ = write!(text, "<{prefix}url><{loc_prefix}{name}>{content}</{loc_prefix}loc>");
        text.push_str(input.one_of(&[
            "",
            "<lastmod>2026-01-01</lastmod>",
            "<!-- <loc>/no</loc> -->",
            "<location>/no</location>",
        ]));
        let _ = writeln!(text, "</{prefix}url>");
        written.push((address, is_same_site));
    }
    let _ = write!(text, "</{prefix}{root}>");
    let addresses = read_addresses(text.as_bytes());
    if root == "rss" {
        assert!(addresses.is_empty(), "addresses without a sitemap: {addresses:?}");
        return;
    }
    let expected: Vec<&str> = written.iter().map(|(address, _)| &address[..]).collect();
    assert_eq!(addresses, expected, "{text}");
    for (address, is_same_site) in &written {
        assert_eq!(check_link(start, address), *is_same_site, "{address} on {start}");
    }
    // A truncated sitemap has no other addresses, but the last one may be truncated.
    let len = text.floor_char_boundary(usize::from(input.u16()) % (text.len() + 1));
    let first_addresses = read_addresses(&text.as_bytes()[..len]);
    let complete = first_addresses.len().saturating_sub(1);
    assert!(
        first_addresses.len() <= addresses.len() && first_addresses[..complete] == addresses[..complete],
        "{first_addresses:?} of {addresses:?}"
    );
}

/// The fuzz target: see the module documentation.
pub fn sitemap(data: &[u8]) {
    let mut input = FuzzInput::new(data);
    let start = input.one_of(&["http://site.example/docs/", "https://site.example:8443/", "http://[::1]:8080/a/b?c=d"]);
    let start = Url::parse(start).expect("a URL");
    if input.once_in(2) {
        check_bytes(input.rest(), &start);
    } else {
        check_generated(&mut input, &start);
    }
}
