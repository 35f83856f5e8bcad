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

use super::body_format::{AddressPurpose, AddressVisitor, part_of, style, unless_equal};

/// Maximum depth of `noscript` content that is parsed as a page of its own.
const DEPTH: u32 = 2;

/// Returns the page with the replacements that `meet` returned; `None` if it cannot be parsed to its end within
/// [`QUERY_MEMORY_BYTES`]. In that case `meet` was still called for the part that was parsed.
pub(super) fn rewrite_page(html: &[u8], meet: &mut AddressVisitor<'_>) -> Option<Vec<u8>> {
    nested(html, DEPTH, meet)
}

fn nested(html: &[u8], depth: u32, meet: &mut AddressVisitor<'_>) -> Option<Vec<u8>> {
    let walk = RefCell::new(PageVisitor { meet, is_map: false, text: String::new(), depth });
    let mut out = Vec::with_capacity(html.len() + 64);
    let settings = Settings::new()
        .append_element_content_handler(element!("*", |element| {
            walk.borrow_mut().element(element);
            Ok(())
        }))
        .append_element_content_handler(text!("style, noscript, script", |chunk| {
            walk.borrow_mut().text(chunk);
            Ok(())
        }))
        .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MAX_PAGE_MEMORY_BYTES))
        .with_strict(false);
    let mut rewriter = HtmlRewriter::new(settings, |piece: &[u8]| out.extend_from_slice(piece));
    rewriter.write(html).and_then(|()| rewriter.end()).ok()?;
    drop(walk);
    Some(out)
}

struct PageVisitor<'w, 'm> {
    meet: &'w mut AddressVisitor<'m>,
    /// Whether the script being read is an import map.
    is_map: bool,
    /// Text of the style sheet, import map or `noscript` content being read.
    text: String,
    depth: u32,
}

impl PageVisitor<'_, '_> {
    fn element(&mut self, element: &mut Element<'_, '_>) {
        let tag = element.tag_name();
        self.is_map = false;
        if element.attributes().is_empty() {
            return;
        }
        if let Some(written) = element.get_attribute("style") {
            let meet = &mut *self.meet;
            change(element, "style", &written, |text| style(text, meet));
        }
        match tag.as_str() {
            "a" | "area" => self.each(element, AddressPurpose::Link, &["href", "xlink:href"]),
            "link" => self.link(element),
            "base" => self.each(element, AddressPurpose::Base, &["href"]),
            "img" | "source" | "input" => {
                self.each(element, AddressPurpose::Asset, &["src"]);
                self.each(element, AddressPurpose::Form, &["formaction"]);
                self.set(element, "srcset");
            }
            "script" => {
                let kind = element.get_attribute("type");
                self.is_map = kind.is_some_and(|kind| kind.trim().eq_ignore_ascii_case("importmap"));
                self.each(element, AddressPurpose::Asset, &["src", "href", "xlink:href"]);
            }
            "video" | "audio" | "track" | "embed" | "iframe" | "frame" => {
                self.each(element, AddressPurpose::Asset, &["src", "poster"]);
            }
            "object" => self.each(element, AddressPurpose::Asset, &["data"]),
            "image" | "use" | "feimage" => self.each(element, AddressPurpose::Asset, &["href", "xlink:href"]),
            "body" | "table" | "td" | "th" => self.each(element, AddressPurpose::Asset, &["background"]),
            "form" => self.each(element, AddressPurpose::Form, &["action"]),
            "button" => self.each(element, AddressPurpose::Form, &["formaction"]),
            "meta" => self.meta(element),
            _ => {}
        }
    }

    fn each(&mut self, element: &mut Element<'_, '_>, how: AddressPurpose, names: &[&str]) {
        for name in names {
            if let Some(written) = element.get_attribute(name) {
                change(element, name, &written, |text| (self.meet)(how, text));
            }
        }
    }

    /// Visits a `link` element. Browsers fetch some targets, readers may follow others. The rest is left alone: hints
    /// that name servers, and the canonical address, which is that of the original site and not of its copy.
    fn link(&mut self, element: &mut Element<'_, '_>) {
        const FETCHED: [&str; 8] = [
            "stylesheet",
            "icon",
            "apple-touch-icon",
            "apple-touch-icon-precomposed",
            "mask-icon",
            "preload",
            "modulepreload",
            "manifest",
        ];
        const FOLLOWED: [&str; 7] = ["alternate", "next", "prev", "help", "license", "search", "author"];
        let words = element.get_attribute("rel").unwrap_or_default().to_ascii_lowercase();
        let has = |these: &[&str]| words.split_ascii_whitespace().any(|word| these.contains(&word));
        if has(&["canonical"]) {
            return;
        }
        let how = match () {
            () if has(&FETCHED) => AddressPurpose::Asset,
            () if has(&FOLLOWED) => AddressPurpose::Link,
            () if has(&["prefetch"]) => AddressPurpose::Guess,
            () => return,
        };
        self.each(element, how, &["href"]);
        self.set(element, "imagesrcset");
    }

    fn set(&mut self, element: &mut Element<'_, '_>, name: &str) {
        let Some(written) = element.get_attribute(name) else { return };
        change(element, name, &written, |set| {
            let (mut out, mut end) = (String::new(), 0);
            srcset_addresses(set, |candidate| {
                if let Some(new) = (self.meet)(AddressPurpose::Asset, candidate) {
                    let place = part_of(set, candidate);
                    let _ = write!(out, "{}{new}", &set[end..place.start]);
                    end = place.end;
                }
            });
            (end > 0).then(|| out + &set[end..])
        });
    }

    fn meta(&mut self, element: &mut Element<'_, '_>) {
        if !element.get_attribute("http-equiv").is_some_and(|name| name.eq_ignore_ascii_case("refresh")) {
            return;
        }
        let Some(written) = element.get_attribute("content") else { return };
        change(element, "content", &written, |content| {
            let address = refresh_address(content)?;
            let place = part_of(content, address);
            let new = (self.meet)(AddressPurpose::Link, address)?;
            Some(format!("{}{new}{}", &content[..place.start], &content[place.end..]))
        });
    }

    /// Collects the chunks of a text node until it is complete. Raw text (`style`, `noscript`) is removed from the
    /// output meanwhile and written again at the end of the node.
    fn text(&mut self, chunk: &mut TextChunk<'_>) {
        let tag = chunk.text_type();
        if tag == lol_html::html_content::TextType::ScriptData {
            if self.is_map {
                self.text.push_str(chunk.as_str());
            }
            if chunk.last_in_text_node() && self.is_map {
                self.imports();
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
        let whole = std::mem::take(&mut self.text);
        // Text that begins with `<` is a page in `noscript`. A style sheet that begins so has no addresses.
        let new = if self.depth > 0 && whole.trim_start().starts_with('<') {
            nested(whole.as_bytes(), self.depth - 1, self.meet).and_then(|new| String::from_utf8(new).ok())
        } else {
            style(&whole, self.meet)
        };
        chunk.replace(&new.unwrap_or(whole), ContentType::Html);
    }

    /// Visits the modules of an import map. They are needed even if no script that is read here imports them.
    fn imports(&mut self) {
        let text = std::mem::take(&mut self.text);
        let Ok(Value::Object(map)) = serde_json::from_str(&text) else { return };
        let of = |name: &str| map.get(name).and_then(Value::as_object).into_iter().flatten().map(|(_, to)| to);
        let scoped = of("scopes").filter_map(Value::as_object).flatten().map(|(_, to)| to);
        for address in of("imports").chain(scoped).filter_map(Value::as_str) {
            // An address that ends in a slash is a prefix, not a module.
            if !address.ends_with('/') {
                (self.meet)(AddressPurpose::Guess, address);
            }
        }
    }
}

/// Sets an attribute to what `new` returns for its text, if the decoded text is certain and the result differs.
fn change(element: &mut Element<'_, '_>, name: &str, written: &str, new: impl FnOnce(&str) -> Option<String>) {
    let (text, is_certain) = resolve_references(written);
    let Some(new) = new(&text).and_then(|new| unless_equal(new, &text)) else { return };
    if is_certain {
        // The library escapes quotes. The name was read from the page, so it can be written to it.
        let _ = element.set_attribute(name, &new.replace('&', "&amp;"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(html: &str) -> (Vec<String>, String) {
        let mut met = Vec::new();
        let mut meet = |how: AddressPurpose, text: &str| {
            met.push(format!("{how:?} {text}"));
            text.ends_with('!').then(|| format!("/new?a&b={}", text.len()))
        };
        let out = rewrite_page(html.as_bytes(), &mut meet).unwrap();
        (met, String::from_utf8(out).unwrap())
    }

    #[test]
    fn addresses_are_met_by_what_they_are_for() {
        let html = r#"<base href="/b/"><link rel=stylesheet href=a.css><link rel="canonical" href="no"><link rel=preconnect href=no>
            <link rel=preload as=image imagesrcset="p1 1x, p2 2x"><link rel=alternate href=feed><script src=s.js>"<a href=no>"</script>
            <script type=importmap>{"imports":{"a":"/m.js","b/":"/b/"},"scopes":{"/x":{"c":"./c.js"}}}</script>
            <a href="x?a=1&amp;b=2">x</a><img src=i.png srcset="i1, i2 2x"><p style="background: url(&quot;bg.png&quot;)">
            <style>@import "c.css"; a{b:url(d.png)}</style><noscript><img src=n.png></noscript><iframe src=f></iframe>
            <form action=go><button formaction=there></form><meta http-equiv=refresh content="3; url='next'">
            <svg><use href="u.svg#x"/></svg><object data=o></object><video poster=v.png><source src=v.mp4><track src=t.vtt></video>"#;
        let (met, out) = both(html);
        let expected = "Base /b/|Asset a.css|Asset p1|Asset p2|Link feed|Asset s.js|Guess /m.js|Guess ./c.js|Link x?a=1&b=2|\
            Asset i.png|Asset i1|Asset i2|Asset bg.png|Asset c.css|Asset d.png|Asset n.png|Asset f|Form go|Form there|Link next|\
            Asset u.svg#x|Asset o|Asset v.png|Asset v.mp4|Asset t.vtt";
        assert_eq!(met.join("|"), expected);
        assert_eq!(out, html, "nothing was put in, and nothing has changed");
    }

    #[test]
    fn only_what_is_put_in_changes() {
        let (_, out) = both(
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
    fn a_page_nested_without_end_is_left_as_it_is() {
        let html = format!("<a href=first>{}", "<div><p>".repeat(2_000_000));
        let mut met = 0;
        let out = rewrite_page(html.as_bytes(), &mut |_, _| {
            met += 1;
            None
        });
        assert_eq!((out, met), (None, 1));
    }
}
