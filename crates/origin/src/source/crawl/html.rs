//! Visits every address in a page; a callback may replace it. Finding links and rewriting them are the same pass, so
//! nothing is rewritten that was not visited, and nothing is followed that would not be rewritten.

use std::cell::RefCell;
use std::fmt::Write as _;

use lol_html::html_content::{ContentType, Element, TextChunk};
use lol_html::{HtmlRewriter, MemorySettings, Settings, element, text};
use serde_json::Value;

use docwharf_site::external::character_references::resolve_references;
use docwharf_site::external::page::MAX_PAGE_MEMORY_BYTES;
use docwharf_site::links::{refresh_address, srcset_addresses};

use super::body_format::{AddressPurpose, AddressVisitor, byte_range_of, rewrite_style, unless_equal};

/// Maximum depth of `noscript` content that is parsed as a separate page.
const MAX_NOSCRIPT_DEPTH: u32 = 2;

/// Returns the page with the replacements that `visit` returned; `None` if it cannot be parsed to its end within
/// [`MAX_PAGE_MEMORY_BYTES`]. In that case `visit` was still called for the part that was parsed.
pub(super) fn rewrite_page(html: &[u8], visit: &mut AddressVisitor<'_>) -> Option<Vec<u8>> {
    rewrite_nested(html, MAX_NOSCRIPT_DEPTH, visit)
}

fn rewrite_nested(html: &[u8], depth: u32, visit: &mut AddressVisitor<'_>) -> Option<Vec<u8>> {
    let visitor = RefCell::new(PageVisitor { visit, is_import_map: false, text: String::new(), depth });
    let mut out = Vec::with_capacity(html.len() + 64);
    let settings = Settings::new()
        .append_element_content_handler(element!("*", |element| {
            visitor.borrow_mut().visit_element(element);
            Ok(())
        }))
        .append_element_content_handler(text!("style, noscript, script", |chunk| {
            visitor.borrow_mut().visit_text(chunk);
            Ok(())
        }))
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MAX_PAGE_MEMORY_BYTES))
        .with_strict(false);
    let mut rewriter = HtmlRewriter::new(settings, |piece: &[u8]| out.extend_from_slice(piece));
    rewriter.write(html).and_then(|()| rewriter.end()).ok()?;
    drop(visitor);
    Some(out)
}

struct PageVisitor<'w, 'm> {
    visit: &'w mut AddressVisitor<'m>,
    /// Whether the script that is being read is an import map.
    is_import_map: bool,
    /// Text of the style sheet, import map or `noscript` content that is being read.
    text: String,
    depth: u32,
}

impl PageVisitor<'_, '_> {
    fn visit_element(&mut self, element: &mut Element<'_, '_>) {
        let tag = element.tag_name();
        self.is_import_map = false;
        if element.attributes().is_empty() {
            return;
        }
        if let Some(value) = element.get_attribute("style") {
            let visit = &mut *self.visit;
            rewrite_attribute(element, "style", &value, |text| rewrite_style(text, visit));
        }
        match tag.as_str() {
            "a" | "area" => self.visit_attributes(element, AddressPurpose::Link, &["href", "xlink:href"]),
            "link" => self.visit_link(element),
            "base" => self.visit_attributes(element, AddressPurpose::Base, &["href"]),
            "img" | "source" | "input" => {
                self.visit_attributes(element, AddressPurpose::Asset, &["src"]);
                self.visit_attributes(element, AddressPurpose::Form, &["formaction"]);
                self.visit_srcset(element, "srcset");
            }
            "script" => {
                let kind = element.get_attribute("type");
                self.is_import_map = kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("importmap"));
                self.visit_attributes(element, AddressPurpose::Asset, &["src", "href", "xlink:href"]);
            }
            "video" | "audio" | "track" | "embed" | "iframe" | "frame" => {
                self.visit_attributes(element, AddressPurpose::Asset, &["src", "poster"]);
            }
            "object" => self.visit_attributes(element, AddressPurpose::Asset, &["data"]),
            "image" | "use" | "feimage" => {
                self.visit_attributes(element, AddressPurpose::Asset, &["href", "xlink:href"]);
            }
            "body" | "table" | "td" | "th" => self.visit_attributes(element, AddressPurpose::Asset, &["background"]),
            "form" => self.visit_attributes(element, AddressPurpose::Form, &["action"]),
            "button" => self.visit_attributes(element, AddressPurpose::Form, &["formaction"]),
            "meta" => self.visit_meta(element),
            _ => {}
        }
    }

    fn visit_attributes(&mut self, element: &mut Element<'_, '_>, purpose: AddressPurpose, names: &[&str]) {
        for name in names {
            if let Some(value) = element.get_attribute(name) {
                rewrite_attribute(element, name, &value, |text| (self.visit)(purpose, text));
            }
        }
    }

    /// Visits a `link` element. Browsers fetch some targets, readers may follow others. Other targets stay unchanged:
    /// hints that name servers, and the canonical address, which is that of the original site and not of its copy.
    fn visit_link(&mut self, element: &mut Element<'_, '_>) {
        const FETCHED_RELATIONS: [&str; 8] = [
            "stylesheet",
            "icon",
            "apple-touch-icon",
            "apple-touch-icon-precomposed",
            "mask-icon",
            "preload",
            "modulepreload",
            "manifest",
        ];
        const FOLLOWED_RELATIONS: [&str; 7] = ["alternate", "next", "prev", "help", "license", "search", "author"];
        let relations = element.get_attribute("rel").unwrap_or_default().to_ascii_lowercase();
        let has_any = |names: &[&str]| relations.split_ascii_whitespace().any(|relation| names.contains(&relation));
        if has_any(&["canonical"]) {
            return;
        }
        let purpose = match () {
            () if has_any(&FETCHED_RELATIONS) => AddressPurpose::Asset,
            () if has_any(&FOLLOWED_RELATIONS) => AddressPurpose::Link,
            () if has_any(&["prefetch"]) => AddressPurpose::Guess,
            () => return,
        };
        self.visit_attributes(element, purpose, &["href"]);
        self.visit_srcset(element, "imagesrcset");
    }

    fn visit_srcset(&mut self, element: &mut Element<'_, '_>, name: &str) {
        let Some(value) = element.get_attribute(name) else { return };
        rewrite_attribute(element, name, &value, |set| {
            let (mut out, mut end) = (String::new(), 0);
            srcset_addresses(set, |candidate| {
                if let Some(new) = (self.visit)(AddressPurpose::Asset, candidate) {
                    let range = byte_range_of(set, candidate);
                    let _ = write!(out, "{}{new}", &set[end..range.start]);
                    end = range.end;
                }
            });
            (end > 0).then(|| out + &set[end..])
        });
    }

    fn visit_meta(&mut self, element: &mut Element<'_, '_>) {
        if !element.get_attribute("http-equiv").is_some_and(|name| name.eq_ignore_ascii_case("refresh")) {
            return;
        }
        let Some(value) = element.get_attribute("content") else { return };
        rewrite_attribute(element, "content", &value, |content| {
            let address = refresh_address(content)?;
            let range = byte_range_of(content, address);
            let new = (self.visit)(AddressPurpose::Link, address)?;
            Some(format!("{}{new}{}", &content[..range.start], &content[range.end..]))
        });
    }

    /// Collects the chunks of a text node until it is complete. Raw text (`style`, `noscript`) is removed from the
    /// output meanwhile and written again at the end of the node.
    fn visit_text(&mut self, chunk: &mut TextChunk<'_>) {
        let tag = chunk.text_type();
        if tag == lol_html::html_content::TextType::ScriptData {
            if self.is_import_map {
                self.text.push_str(chunk.as_str());
            }
            if chunk.last_in_text_node() && self.is_import_map {
                self.visit_import_map();
            }
            return;
        }
        if tag != lol_html::html_content::TextType::RawText {
            return;
        }
        self.text.push_str(chunk.as_str());
        if !chunk.last_in_text_node() {
            chunk.remove();
            return;
        }
        let content = std::mem::take(&mut self.text);
        // Text that begins with `<` is a page in `noscript`. A style sheet that begins with `<` has no addresses.
        let new = if self.depth > 0 && content.trim_start().starts_with('<') {
            rewrite_nested(content.as_bytes(), self.depth - 1, self.visit).and_then(|new| String::from_utf8(new).ok())
        } else {
            rewrite_style(&content, self.visit)
        };
        chunk.replace(&new.unwrap_or(content), ContentType::Html);
    }

    /// Visits the modules of an import map. They are needed even if no script that is read here imports them.
    fn visit_import_map(&mut self) {
        let text = std::mem::take(&mut self.text);
        let Ok(Value::Object(map)) = serde_json::from_str(&text) else { return };
        let targets_in = |name: &str| map.get(name).and_then(Value::as_object).into_iter().flatten().map(|(_, to)| to);
        let scoped = targets_in("scopes").filter_map(Value::as_object).flatten().map(|(_, to)| to);
        for address in targets_in("imports").chain(scoped).filter_map(Value::as_str) {
            // An address that ends in a slash is a prefix, not a module.
            if !address.ends_with('/') {
                (self.visit)(AddressPurpose::Guess, address);
            }
        }
    }
}

/// Sets an attribute to the result of `rewrite` for its text, if the decoded text is certain and the result differs.
fn rewrite_attribute(
    element: &mut Element<'_, '_>,
    name: &str,
    value: &str,
    rewrite: impl FnOnce(&str) -> Option<String>,
) {
    let (text, is_certain) = resolve_references(value);
    let Some(new) = rewrite(&text).and_then(|new| unless_equal(new, &text)) else { return };
    if is_certain {
        // The library escapes quotes. The name was read from the page, so it can be written to it.
        let _ = element.set_attribute(name, &new.replace('&', "&amp;"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn visited_and_rewritten(html: &str) -> (Vec<String>, String) {
        let mut visited = Vec::new();
        let mut visit = |purpose: AddressPurpose, text: &str| {
            visited.push(format!("{purpose:?} {text}"));
            text.ends_with('!').then(|| format!("/new?a&b={}", text.len()))
        };
        let out = rewrite_page(html.as_bytes(), &mut visit).unwrap();
        (visited, String::from_utf8(out).unwrap())
    }

    #[test]
    fn html_addresses_are_visited_with_their_purpose() {
        let html = r#"<base href="/b/"><link rel=stylesheet href=a.css><link rel="canonical" href="no"><link rel=preconnect href=no>
            <link rel=preload as=image imagesrcset="p1 1x, p2 2x"><link rel=alternate href=feed><script src=s.js>"<a href=no>"</script>
            <script type=importmap>{"imports":{"a":"/m.js","b/":"/b/"},"scopes":{"/x":{"c":"./c.js"}}}</script>
            <a href="x?a=1&amp;b=2">x</a><img src=i.png srcset="i1, i2 2x"><p style="background: url(&quot;bg.png&quot;)">
            <style>@import "c.css"; a{b:url(d.png)}</style><noscript><img src=n.png></noscript><iframe src=f></iframe>
            <form action=go><button formaction=there></form><meta http-equiv=refresh content="3; url='next'">
            <svg><use href="u.svg#x"/></svg><object data=o></object><video poster=v.png><source src=v.mp4><track src=t.vtt></video>"#;
        let (visited, out) = visited_and_rewritten(html);
        let expected = "Base /b/|Asset a.css|Asset p1|Asset p2|Link feed|Asset s.js|Guess /m.js|Guess ./c.js|Link x?a=1&b=2|\
            Asset i.png|Asset i1|Asset i2|Asset bg.png|Asset c.css|Asset d.png|Asset n.png|Asset f|Form go|Form there|Link next|\
            Asset u.svg#x|Asset o|Asset v.png|Asset v.mp4|Asset t.vtt";
        assert_eq!(visited.join("|"), expected);
        assert_eq!(out, html, "without a replacement nothing changes");
    }

    #[test]
    fn html_rewriting_changes_only_replaced_addresses() {
        let (_, out) = visited_and_rewritten(
            "<a HREF='x!' data-a='&quot;'>x!</a><img srcset='a, b!  2x,c 3x'><p style=\"a: url('b!')\">\
            <style>/* url(b!) */ a{b:url( b! )}</style><noscript><a href=x!></a></noscript>\
            <meta http-equiv=refresh content='0;url=\"x!\"'><script>'<a href=\"x!\">'</script><!-- <a href=x!> -->",
        );
        assert_eq!(
            out,
            "<a HREF=\"/new?a&amp;b=2\" data-a='&quot;'>x!</a><img srcset=\"a, /new?a&amp;b=2  2x,c 3x\">\
            <p style=\"a: url('/new?a&amp;b=2')\"><style>/* url(b!) */ a{b:url( /new?a&b=2 )}</style>\
            <noscript><a href=\"/new?a&amp;b=2\"></a></noscript><meta http-equiv=refresh content=\"0;url=&quot;/new?a&amp;b=2&quot;\">\
            <script>'<a href=\"x!\">'</script><!-- <a href=x!> -->"
        );
    }

    #[test]
    fn a_too_deeply_nested_html_page_is_not_rewritten() {
        let html = format!("<a href=first>{}", "<div><p>".repeat(2_000_000));
        let mut visited = 0;
        let out = rewrite_page(html.as_bytes(), &mut |_, _| {
            visited += 1;
            None
        });
        assert_eq!((out, visited), (None, 1));
    }
}
