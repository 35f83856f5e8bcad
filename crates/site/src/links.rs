//! The links of a page, read from its attributes by an HTML parser, as a browser does, never by searching the text.

use std::borrow::Cow;

use lol_html::html_content::Element;
use lol_html::{HtmlRewriter, MemorySettings, Settings, element};

/// The memory limit of the HTML parser for one page, in bytes. Only a page whose tags are nested without end needs
/// more; the rest of such a page is not read.
const MAX_PARSER_MEMORY_BYTES: usize = 16 << 20;

/// The elements and attributes that hold an address: links, styles, scripts, images, frames, media. Forms are left out:
/// the target of a form need not answer a GET.
const LINK_SELECTORS: &str = "a[href], area[href], base[href], link[href], script[src], img[src], img[srcset], source[src], \
                        source[srcset], iframe[src], frame[src], embed[src], video[src], video[poster], audio[src], \
                        track[src], object[data], meta[http-equiv][content]";

/// An upper bound for the length of a character reference name in HTML, in bytes.
const MAX_REFERENCE_NAME_BYTES: usize = 32;

/// An address in a page.
#[derive(Debug, PartialEq, Eq)]
pub enum PageAddress<'a> {
    /// The base of relative links. Only the first one of a page counts.
    Base(&'a str),
    /// A link as it is written in the page, with character references decoded.
    Link(&'a str),
}

/// Reads a page that `feed` passes in pieces, and calls `report` for each address in it, in order.
pub fn read_links(feed: impl FnOnce(&mut dyn FnMut(&[u8]) -> bool), mut report: impl FnMut(PageAddress<'_>)) {
    let handler = element!(LINK_SELECTORS, |element| {
        emit_addresses(element, &mut report);
        Ok(())
    });
    let settings = Settings::new()
        .append_element_content_handler(handler)
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MAX_PARSER_MEMORY_BYTES))
        // Markup that is ambiguous without the whole document tree is read as text, as in most browsers.
        .with_strict(false);
    let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
    // The parser fails beyond `MAX_PARSER_MEMORY_BYTES`; the links that it has read before are reported.
    feed(&mut |piece| rewriter.write(piece).is_ok());
}

fn emit_addresses(element: &Element<'_, '_>, report: &mut impl FnMut(PageAddress<'_>)) {
    let value = |name: &str| element.get_attribute(name);
    let mut report_link = |text: Option<String>| {
        if let Some(text) = text.as_deref().and_then(decode_references).filter(|text| !text.trim().is_empty()) {
            report(PageAddress::Link(&text));
        }
    };
    match element.tag_name().as_str() {
        "base" => {
            if let Some(text) = value("href").as_deref().and_then(decode_references) {
                report(PageAddress::Base(&text));
            }
        }
        "link" if !is_followed(&value("rel").unwrap_or_default()) => {}
        "a" | "area" | "link" => report_link(value("href")),
        "object" => report_link(value("data")),
        "meta" => {
            if value("http-equiv").is_some_and(|name| name.eq_ignore_ascii_case("refresh")) {
                report_link(value("content").as_deref().and_then(refresh_address).map(str::to_owned));
            }
        }
        _ => {
            report_link(value("src"));
            report_link(value("poster"));
            let srcset = value("srcset");
            if let Some(srcset) = srcset.as_deref().and_then(decode_references) {
                // The references are decoded already. Decoding again would also decode references that appear only
                // after the first pass.
                srcset_addresses(&srcset, |candidate| report(PageAddress::Link(candidate)));
            }
        }
    }
}

/// Whether the target of a `link` element is fetched or followed. `preconnect` and `dns-prefetch` name servers, not
/// resources.
fn is_followed(rel: &str) -> bool {
    !rel.split_ascii_whitespace()
        .any(|word| ["preconnect", "dns-prefetch"].iter().any(|hint| word.eq_ignore_ascii_case(hint)))
}

/// Returns the address of a `meta` refresh: `next.html` in `5; url=next.html`.
pub fn refresh_address(content: &str) -> Option<&str> {
    let (_, rest) = content.split_once([';', ','])?;
    let rest = rest.trim_start();
    let url = rest.get(..3).filter(|word| word.eq_ignore_ascii_case("url")).map(|_| rest[3..].trim_start())?;
    let url = url.strip_prefix('=')?.trim();
    let quote = url.chars().next().filter(|c| matches!(c, '"' | '\''));
    Some(quote.map_or(url, |quote| url[1..].split(quote).next().unwrap_or_default()))
}

/// Calls `report` for each address in a `srcset` attribute (HTML, "parse a srcset attribute").
pub fn srcset_addresses<'a>(srcset: &'a str, mut report: impl FnMut(&'a str)) {
    let mut rest = srcset;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        if rest.is_empty() {
            return;
        }
        let end = rest.find(|c: char| c.is_ascii_whitespace()).unwrap_or(rest.len());
        let (url, after) = rest.split_at(end);
        rest = after;
        let trimmed = url.trim_end_matches(',');
        if trimmed.len() == url.len() {
            // Descriptors follow the address, up to a comma that is not in parentheses.
            let mut depth = 0u32;
            let comma = rest.find(|c| {
                match c {
                    '(' => depth += 1,
                    ')' => depth = depth.saturating_sub(1),
                    _ => {}
                }
                c == ',' && depth == 0
            });
            rest = comma.map_or("", |comma| &rest[comma..]);
        }
        report(trimmed);
    }
}

/// Decodes the character references in a text. Only those that occur in addresses are supported: numbers, and the names
/// of the characters with a meaning in HTML. Returns `None` for any other name: its character would decide where the
/// link leads, so the link is not checked. [`resolve_references`](crate::external::character_references) leaves such a
/// name as written instead.
fn decode_references(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('&') {
        return Some(Cow::Borrowed(text));
    }
    let mut output = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(ampersand) = rest.find('&') {
        output.push_str(&rest[..ampersand]);
        rest = &rest[ampersand + 1..];
        // The search is bounded, because a page may consist of nothing but `&`.
        let end = rest.bytes().take(MAX_REFERENCE_NAME_BYTES + 1).position(|b| b == b';').filter(|&end| end > 0);
        let name = end.map(|end| &rest[..end]);
        let name = name.filter(|name| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'#'));
        let Some(name) = name else {
            output.push('&');
            continue;
        };
        output.push(decode_reference(name)?);
        rest = &rest[name.len() + 1..];
    }
    output.push_str(rest);
    Some(Cow::Owned(output))
}

fn decode_reference(name: &str) -> Option<char> {
    let Some(number) = name.strip_prefix('#') else {
        return Some(match name {
            "amp" | "AMP" => '&',
            "lt" | "LT" => '<',
            "gt" | "GT" => '>',
            "quot" | "QUOT" => '"',
            "apos" => '\'',
            "nbsp" => '\u{a0}',
            _ => return None,
        });
    };
    let number = match number.strip_prefix(['x', 'X']) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => number.parse(),
    };
    char::from_u32(number.ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_addresses(html: &str) -> Vec<String> {
        let mut addresses = Vec::new();
        // Pieces of three bytes, so that every tag is split.
        let feed = |sink: &mut dyn FnMut(&[u8]) -> bool| {
            for piece in html.as_bytes().chunks(3) {
                assert!(sink(piece));
            }
        };
        read_links(feed, |address| {
            addresses.push(match address {
                PageAddress::Base(text) => format!("base {text}"),
                PageAddress::Link(text) => text.to_owned(),
            });
        });
        addresses
    }

    #[test]
    fn page_links_and_assets_are_found_where_browsers_find_them() {
        let html = r#"<!doctype html><BASE href="/b/"><link rel="preload stylesheet" href=a.css><link rel=preconnect href="/x">
            <meta http-equiv="Refresh" content="5; URL='next.html'"><meta name="x" content="0;url=no.html">
            <script src="s.js">var t = '<a href="no1.html">';</script><style>/* <img src="no2.png"> */</style>
            <!-- <a href="no3.html"> --><a href='a&amp;b.html'>x</a><a name="y">y</a><a href="">z</a>
            <map><area href="r.html"></map><form action="no4"><input></form><textarea><a href="no5.html"></textarea>
            <img src="i.png" srcset="i1.png 1x, i2.png 2x"><picture><source srcset="p.webp"></picture>
            <iframe src="f.html"></iframe><video src="v.mp4" poster="v.png"><track src="t.vtt"></video>
            <audio src="m.mp3"></audio><object data="o.svg"></object><a href="caf&#233;&#x2e;html">"#;
        assert_eq!(
            page_addresses(html),
            [
                "base /b/",
                "a.css",
                "next.html",
                "s.js",
                "a&b.html",
                "r.html",
                "i.png",
                "i1.png",
                "i2.png",
                "p.webp",
                "f.html",
                "v.mp4",
                "v.png",
                "t.vtt",
                "m.mp3",
                "o.svg",
                "café.html",
            ]
        );
    }

    #[test]
    fn srcset_is_split_into_candidates_as_the_html_standard_specifies() {
        for (srcset, expected) in [
            ("a.png", vec!["a.png"]),
            (" a.png 1x , b.png 2x,", vec!["a.png", "b.png"]),
            ("a.png, b.png", vec!["a.png", "b.png"]),
            ("a,b.png 100w,c.png 200w", vec!["a,b.png", "c.png"]),
            ("a.png x(1,2) 3x, b.png", vec!["a.png", "b.png"]),
            ("data:image/png;base64,AAAA 1x, b.png 2x", vec!["data:image/png;base64,AAAA", "b.png"]),
            (",, ,", vec![]),
        ] {
            let mut addresses = Vec::new();
            srcset_addresses(srcset, |candidate| addresses.push(candidate));
            assert_eq!(addresses, expected, "{srcset}");
        }
    }

    #[test]
    fn character_references_are_decoded_once_and_unknown_ones_are_not_guessed() {
        for (text, expected) in [
            ("a&amp;amp;b", Some("a&amp;b")),
            ("a?x=1&y=2", Some("a?x=1&y=2")),
            ("a&#x41;&#66;", Some("aAB")),
            ("a&;b&c d;", Some("a&;b&c d;")),
            ("a&auml;.html", None),
            ("a&#xd800;", None),
            ("a&#99999999999;", None),
        ] {
            assert_eq!(decode_references(text).as_deref(), expected, "{text}");
        }
    }

    // Regression: an address of a million `&` took half a minute to read.
    #[test]
    fn address_of_many_ampersands_is_decoded_in_linear_time() {
        // An unbounded search for the end of each reference would take minutes.
        let text = "&".repeat(8 << 20);
        assert_eq!(decode_references(&text).as_deref(), Some(text.as_str()));
        let name = |len: usize| format!("&{};", "a".repeat(len));
        assert_eq!(decode_references(&name(MAX_REFERENCE_NAME_BYTES)), None, "an unsupported name");
        assert_eq!(
            decode_references(&name(MAX_REFERENCE_NAME_BYTES + 1)).as_deref(),
            Some(name(MAX_REFERENCE_NAME_BYTES + 1).as_str()),
            "too long for a name"
        );
    }

    #[test]
    fn deeply_nested_page_uses_bounded_memory_and_keeps_earlier_links() {
        let mut html = String::from("<a href=first>");
        html.push_str(&"<div><p>".repeat(2_000_000));
        let mut address_count = 0;
        let feed = |sink: &mut dyn FnMut(&[u8]) -> bool| {
            let _ = html.as_bytes().chunks(65536).all(&mut *sink);
        };
        read_links(feed, |_| address_count += 1);
        assert_eq!(address_count, 1);
    }

    #[test]
    fn resource_hints_and_empty_or_undecodable_addresses_are_not_links() {
        let html = r#"<frame src=a.html><embed src=b.swf><video><source src=c.mp4></video><link rel="x DNS-PREFETCH" href=no>
            <link rel="Preconnect" href=no><link href=d.css><a href=" ">no</a><input src=no><meta http-equiv=refresh content="1;url=f&amp;g">
            <a href="&foo;">no</a><base href="&foo;"><base href="/b"><img srcset="&foo; 1x" src=" "><a href="&#x41;">x</a>"#;
        assert_eq!(page_addresses(html), ["a.html", "b.swf", "c.mp4", "d.css", "f&g", "base /b", "A"]);
    }

    #[test]
    fn meta_refresh_address_is_parsed_after_its_delay() {
        for (content, expected) in [
            ("5; url=next.html", Some("next.html")),
            ("5;URL = 'a b' x", Some("a b")),
            ("0,url=\"x\"y", Some("x")),
            ("0; url='x", Some("x")),
            ("0;url= x ", Some("x")),
            ("0;url=", Some("")),
            ("0;url=a;b,c", Some("a;b,c")),
            ("5", None),
            ("url=x", None),
            ("5; next.html", None),
            ("5; urlx=a", None),
            ("5; ur", None),
            ("5; éé=x", None),
        ] {
            assert_eq!(refresh_address(content), expected, "{content}");
        }
    }

    #[test]
    fn basic_character_references_are_decoded_by_name_and_by_number() {
        let text = "&amp;&AMP;&lt;&LT;&gt;&GT;&quot;&QUOT;&apos;&nbsp;&#x41;&#X41;&#65;";
        assert_eq!(decode_references(text).as_deref(), Some("&&<<>>\"\"'\u{a0}AAA"));
        for name in ["Amp", "Lt", "APOS", "#", "#x", "#y", "#xg"] {
            assert_eq!(decode_reference(name), None, "{name}");
        }
        for (srcset, expected) in [
            ("a.png x(1,(2,3),4) 1x,b.png", ["a.png", "b.png"]),
            ("a.png ),b.png", ["a.png", "b.png"]),
            ("a\n1x,\tb", ["a", "b"]),
        ] {
            let mut addresses = Vec::new();
            srcset_addresses(srcset, |candidate| addresses.push(candidate));
            assert_eq!(addresses, expected, "{srcset}");
        }
    }
}
