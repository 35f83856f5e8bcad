//! Sitemaps of a site that is crawled: of any bytes, only a sitemap names addresses, in bounded texts; of one that was written,
//! they are those that it was written with. What is asked for of them is of the site's own origin, and one line.

use std::fmt::Write;

use docwharf::origin::source::crawl::address::{LinkTarget, resolve_link};
use docwharf::origin::source::crawl::sitemap::addresses;
use url::{Position, Url};

use super::recipe::Recipe;

/// An address that is told is no longer, in bytes.
const LONGEST_TOLD: usize = 8 << 10;
/// Nor is one that is asked for, without the `?` before its query.
const LONGEST_ASKED: usize = 2000;

fn read(body: &[u8]) -> Vec<String> {
    let mut all = Vec::new();
    addresses(body, &mut |address| all.push(address.to_owned()));
    all
}

/// Any bytes.
fn any(body: &[u8], start: &Url) {
    let told = read(body);
    let text = String::from_utf8_lossy(body);
    let is_named = ["urlset", "sitemapindex"].iter().any(|name| text.contains(name));
    assert!(told.is_empty() || is_named, "addresses of what is no sitemap: {told:?}");
    assert!(told.len() <= text.matches("loc").count(), "{} addresses", told.len());
    for address in &told {
        assert!(address.len() <= LONGEST_TOLD, "an address of {} bytes", address.len());
        follow(start, address);
    }
}

/// What is asked for, if anything is; whether it is.
fn follow(start: &Url, text: &str) -> bool {
    match resolve_link(start, start, text) {
        LinkTarget::Here { address, .. } => {
            let target = address.to_string();
            assert!(target.starts_with('/') && target.len() <= LONGEST_ASKED + 1, "{target:?}");
            // It goes into the first line of a request (RFC 9112, 3).
            assert!(target.bytes().all(|b| b.is_ascii_graphic()) && !target.contains('#'), "{target:?}");
            let mut asked = start.clone();
            asked.set_fragment(None);
            asked.set_path(&address.path);
            asked.set_query(address.query.as_deref());
            assert_eq!(asked.origin(), start.origin(), "{text:?} leads to {asked}");
            assert!(asked.username().is_empty() && asked.password().is_none(), "{asked}");
            match resolve_link(start, start, asked.as_str()) {
                LinkTarget::Here { address: again, .. } => assert_eq!(again, address, "one address has one form"),
                other => panic!("{asked} leads to {other:?}"),
            }
            true
        }
        LinkTarget::Elsewhere(url) => {
            assert!(["http", "https"].contains(&url.scheme()), "{url}");
            let has_credentials = !url.username().is_empty() || url.password().is_some();
            assert!(url.origin() != start.origin() || has_credentials, "{url} is of this site");
            false
        }
        LinkTarget::Nowhere => false,
    }
}

/// Addresses, and whether they are of the site at `site`.
fn known(site: &str, recipe: &mut Recipe<'_>) -> (String, bool) {
    let (text, is_here) = recipe.one_of(&[
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
    // A scheme without a host is that of the page only if the page has the same one.
    let is_here = is_here && (!text.starts_with("HTTP:") || site.starts_with("http:"));
    (text.replace("SITE", site), is_here)
}

/// An address as the content of an element.
fn content(recipe: &mut Recipe<'_>, text: &str) -> String {
    let escaped = || text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    match recipe.below(5) {
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

/// A sitemap by a recipe.
fn described(recipe: &mut Recipe<'_>, start: &Url) {
    let site = &start[..Position::BeforePath];
    let root = recipe.one_of(&["urlset", "sitemapindex", "urlset", "rss"]);
    let prefix = recipe.one_of(&["", "", "s:", "ns1:"]);
    let mut text = recipe
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
    for _ in 0..recipe.below(12) {
        let (address, is_here) = known(site, recipe);
        let content = content(recipe, &address);
        // A name with another prefix is an address of the site all the same.
        let name = recipe.one_of(&["loc", "loc", "loc a=\"b\"", "loc\n"]);
        let own = if recipe.once_in(8) { "image:" } else { prefix };
        let _ = write!(text, "<{prefix}url><{own}{name}>{content}</{own}loc>");
        text.push_str(recipe.one_of(&[
            "",
            "<lastmod>2026-01-01</lastmod>",
            "<!-- <loc>/no</loc> -->",
            "<location>/no</location>",
        ]));
        let _ = writeln!(text, "</{prefix}url>");
        written.push((address, is_here));
    }
    let _ = write!(text, "</{prefix}{root}>");
    let told = read(text.as_bytes());
    if root == "rss" {
        assert!(told.is_empty(), "addresses of what is no sitemap: {told:?}");
        return;
    }
    let expected: Vec<&str> = written.iter().map(|(address, _)| &address[..]).collect();
    assert_eq!(told, expected, "{text}");
    for (address, is_here) in &written {
        assert_eq!(follow(start, address), *is_here, "{address} on {start}");
    }
    // Cut short, it tells no others; the last one may be a part of what it was.
    let at = text.floor_char_boundary(usize::from(recipe.short()) % (text.len() + 1));
    let part = read(&text.as_bytes()[..at]);
    let whole = part.len().saturating_sub(1);
    assert!(part.len() <= told.len() && part[..whole] == told[..whole], "{part:?} of {told:?}");
}

/// See the head of this file.
pub fn sitemap(data: &[u8]) {
    let mut recipe = Recipe::new(data);
    let start =
        recipe.one_of(&["http://site.example/docs/", "https://site.example:8443/", "http://[::1]:8080/a/b?c=d"]);
    let start = Url::parse(start).expect("a URL");
    if recipe.once_in(2) {
        any(recipe.rest(), &start);
    } else {
        described(&mut recipe, &start);
    }
}
