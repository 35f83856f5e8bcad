//! What a page fetches, and which scripts and styles stand in it, read as a browser reads it.
//!
//! A policy names an inline script by the SHA-256 of its text as the parser hands it on: decoded, with line ends made
//! `\n` and NUL replaced. Wherever it is not certain what that text is (character references in an SVG's script, names of
//! characters that are not known here, a page that is not read to its end), the page is [`Fact::Unsure`].

use std::cell::RefCell;

use lol_html::html_content::{Element, TextChunk, TextType};
use lol_html::{HtmlRewriter, MemorySettings, Settings, element, text};

use crate::model::digest::{Digest, Hasher};

use super::address::{Leads, is_idle, leads};
use super::{Fact, Kind, css, script};
use crate::site::links::{candidates, refresh, unescaped};

/// What one page may cost its reader, in bytes.
pub const MEMORY: usize = 16 << 20;
/// Bytes of one inline script or style that are looked through for addresses; all of it goes into its digest.
const TEXT: usize = 1 << 20;
/// Pages within attributes of pages within attributes: no further.
const DEPTH: u32 = 3;

/// Gives a page in pieces, until its taker has enough.
pub(super) type Feed<'a> = dyn FnMut(&mut dyn FnMut(&[u8]) -> bool) + 'a;

/// Reads a page and tells of each fact in it, in order.
pub(super) fn read(feed: &mut Feed<'_>, tell: &mut dyn FnMut(Fact<'_>)) {
    nested(feed, DEPTH, tell);
}

fn nested(feed: &mut Feed<'_>, depth: u32, tell: &mut dyn FnMut(Fact<'_>)) {
    let reader = RefCell::new(Reader { tell, open: None, media: false, depth });
    let mut is_whole = true;
    {
        let settings = Settings::new()
            .append_element_content_handler(element!("*", |element| {
                reader.borrow_mut().element(element);
                Ok(())
            }))
            .append_element_content_handler(text!("script, style, noscript", |chunk| {
                reader.borrow_mut().text(chunk);
                Ok(())
            }))
            .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MEMORY))
            .with_strict(false);
        let mut rewriter = HtmlRewriter::new(settings, |_: &[u8]| {});
        let mut is_first = true;
        feed(&mut |piece| {
            // A byte order mark wins over what the server says of the encoding; nothing here reads UTF-16.
            if std::mem::take(&mut is_first) && (piece.starts_with(b"\xff\xfe") || piece.starts_with(b"\xfe\xff")) {
                is_whole = false;
            }
            is_whole = is_whole && rewriter.write(piece).is_ok();
            is_whole
        });
        // What is open at the end is closed by it; a browser runs no script that has no end tag.
        is_whole = is_whole && rewriter.end().is_ok();
    }
    let reader = reader.into_inner();
    if !is_whole {
        (reader.tell)(Fact::Unsure);
    }
}

struct Reader<'t> {
    tell: &'t mut dyn FnMut(Fact<'_>),
    /// The element whose text is being read.
    open: Option<Open>,
    /// Whether the last of these was sound or film, and not a picture: whose sources follow.
    media: bool,
    depth: u32,
}

/// An element whose text counts.
struct Open {
    what: What,
    digest: Normal,
    text: String,
    is_unsure: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// A script that stands in the page and runs.
    Script,
    /// One from a file, or data in a script's clothes.
    Nothing,
    Style,
    NoScript,
}

impl Reader<'_> {
    fn element(&mut self, element: &Element<'_, '_>) {
        let tag = element.tag_name();
        match tag.as_str() {
            "script" => self.script(element),
            "style" => self.begin(What::Style),
            "noscript" => self.begin(What::NoScript),
            "picture" => self.media = false,
            "video" | "audio" => self.media = true,
            _ => {}
        }
        if element.attributes().is_empty() {
            return;
        }
        for attribute in element.attributes() {
            let name = attribute.name();
            let is_style = name == "style";
            if is_style || name.starts_with("on") {
                self.attribute(is_style, &attribute.value());
            }
        }
        self.addresses(&tag, element);
    }

    fn begin(&mut self, what: What) {
        self.open = Some(Open { what, digest: Normal::default(), text: String::new(), is_unsure: false });
    }

    fn script(&mut self, element: &Element<'_, '_>) {
        let source = ["src", "href", "xlink:href"].into_iter().find_map(|name| element.get_attribute(name));
        let says = |name: &str| element.get_attribute(name);
        let runs = runs(says("type").as_deref(), says("language").as_deref());
        if let Some(source) = source {
            if runs {
                (self.tell)(Fact::Runs);
            }
            self.address(Kind::Script, &source);
            self.begin(What::Nothing);
        } else {
            self.begin(if runs { What::Script } else { What::Nothing });
        }
    }

    fn attribute(&mut self, is_style: bool, value: &str) {
        let Some(text) = exact(value) else {
            (self.tell)(if is_style { Fact::UnsureStyle } else { Fact::Unsure });
            return;
        };
        let mut digest = Normal::default();
        digest.update(&text);
        let digest = digest.take();
        if is_style {
            (self.tell)(Fact::StyleAttribute(digest));
            css::read(&text, self.tell);
        } else {
            (self.tell)(Fact::Handler(digest));
        }
    }

    fn address(&mut self, kind: Kind, written: &str) {
        // The name of a character that is not known here does not stand in an origin.
        let text = unescaped(written);
        let text = text.as_deref().unwrap_or(written);
        if leads(text) == Leads::Code {
            if !is_idle(text) {
                (self.tell)(Fact::CodeInAddress);
            }
        } else if !text.trim().is_empty() {
            (self.tell)(Fact::Address(kind, text));
        }
    }

    fn addresses(&mut self, tag: &str, element: &Element<'_, '_>) {
        let value = |name: &str| element.get_attribute(name);
        let source = if self.media { Kind::Media } else { Kind::Image };
        let mut one = |kind: Kind, name: &str| {
            if let Some(text) = value(name) {
                self.address(kind, &text);
            }
        };
        match tag {
            // Readers follow links themselves: only code in them counts.
            "a" | "area" => {
                if let Some(text) = value("href").filter(|text| text.trim_start().len() > 10)
                    && leads(&unescaped(&text).unwrap_or_default()) == Leads::Code
                {
                    one(Kind::Refresh, "href");
                }
            }
            "base" => one(Kind::Base, "href"),
            "img" => {
                one(Kind::Image, "src");
                self.set(element, "srcset");
            }
            "video" | "audio" => {
                one(Kind::Media, "src");
                one(Kind::Image, "poster");
            }
            "source" => {
                one(source, "src");
                self.set(element, "srcset");
            }
            "track" => one(Kind::Media, "src"),
            "iframe" | "frame" => {
                one(Kind::Frame, "src");
                if let Some(text) = value("srcdoc") {
                    self.document(&text);
                }
            }
            "embed" => one(Kind::Object, "src"),
            "object" => one(Kind::Object, "data"),
            "form" => one(Kind::Form, "action"),
            "button" => one(Kind::Form, "formaction"),
            "input" => {
                one(Kind::Form, "formaction");
                one(Kind::Image, "src");
            }
            "body" | "table" | "td" | "th" => one(Kind::Image, "background"),
            "image" | "feimage" | "use" => {
                one(Kind::Image, "href");
                one(Kind::Image, "xlink:href");
            }
            "meta" => {
                if value("http-equiv").is_some_and(|name| name.eq_ignore_ascii_case("refresh"))
                    && let Some(text) = value("content").as_deref().and_then(refresh)
                {
                    self.address(Kind::Refresh, text);
                }
            }
            "link" => self.link(element),
            _ => {}
        }
    }

    fn link(&mut self, element: &Element<'_, '_>) {
        let words = element.get_attribute("rel").unwrap_or_default().to_ascii_lowercase();
        let has = |word: &str| words.split_ascii_whitespace().any(|one| one == word);
        let destination = element.get_attribute("as").unwrap_or_default().to_ascii_lowercase();
        let kind = if has("stylesheet") {
            Kind::Style
        } else if has("modulepreload") {
            Kind::Script
        } else if has("preload") {
            match destination.as_str() {
                "script" => Kind::Script,
                "style" => Kind::Style,
                "font" => Kind::Font,
                "image" => Kind::Image,
                "audio" | "video" | "track" => Kind::Media,
                "document" | "embed" | "object" => Kind::Frame,
                "worker" => Kind::Worker,
                _ => Kind::Connect,
            }
        } else if has("icon") || has("apple-touch-icon") || has("apple-touch-icon-precomposed") || has("mask-icon") {
            Kind::Image
        } else if has("manifest") {
            Kind::Manifest
        } else if has("preconnect") || has("dns-prefetch") || has("prefetch") || has("prerender") {
            Kind::Hint
        } else {
            return;
        };
        if let Some(text) = element.get_attribute("href") {
            self.address(kind, &text);
        }
        if kind == Kind::Image {
            self.set(element, "imagesrcset");
        }
    }

    fn set(&mut self, element: &Element<'_, '_>, name: &str) {
        let Some(written) = element.get_attribute(name) else { return };
        let set = unescaped(&written);
        let tell = &mut *self.tell;
        candidates(set.as_deref().unwrap_or(&written), |text| tell(Fact::Address(Kind::Image, text)));
    }

    /// A page in an attribute has the policy of the page around it.
    fn document(&mut self, written: &str) {
        match exact(written) {
            Some(text) if self.depth > 0 => self.fragment(&text),
            _ => (self.tell)(Fact::Unsure),
        }
    }

    fn fragment(&mut self, text: &str) {
        let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
            take(text.as_bytes());
        };
        nested(&mut feed, self.depth - 1, self.tell);
    }

    fn text(&mut self, chunk: &TextChunk<'_>) {
        let Some(open) = &mut self.open else { return };
        let text = chunk.as_str();
        // In SVG these elements are like any other: their text has references, and may be in several parts.
        open.is_unsure |=
            chunk.text_type() == TextType::Data && text.contains('&') || chunk.text_type() == TextType::CDataSection;
        if matches!(open.what, What::Script | What::Style) {
            open.digest.update(text);
        }
        if open.what != What::Nothing && open.text.len() < TEXT {
            open.text.push_str(text);
        }
        if chunk.last_in_text_node()
            && let Some(open) = self.open.take()
        {
            self.close(open);
        }
    }

    fn close(&mut self, mut open: Open) {
        // Nothing stands in it: nothing runs.
        if open.text.is_empty() {
            return;
        }
        match open.what {
            What::Script => {
                (self.tell)(if open.is_unsure { Fact::Unsure } else { Fact::Script(open.digest.take()) });
                script::read(&open.text, self.tell);
            }
            What::Style => {
                (self.tell)(if open.is_unsure { Fact::UnsureStyle } else { Fact::Style(open.digest.take()) });
                css::read(&open.text, self.tell);
            }
            What::NoScript if self.depth > 0 => self.fragment(&open.text),
            What::NoScript | What::Nothing => {}
        }
    }
}

/// Whether a `script` of this type runs, or decides how others do; anything else is data.
fn runs(kind: Option<&str>, language: Option<&str>) -> bool {
    const TYPES: [&str; 17] = [
        "text/javascript",
        "application/javascript",
        "module",
        "importmap",
        "speculationrules",
        "application/ecmascript",
        "application/x-ecmascript",
        "application/x-javascript",
        "text/ecmascript",
        "text/javascript1.0",
        "text/javascript1.1",
        "text/javascript1.2",
        "text/javascript1.3",
        "text/javascript1.4",
        "text/javascript1.5",
        "text/jscript",
        "text/livescript",
    ];
    let of = |kind: &str| {
        let kind = kind.trim_matches(|c: char| c.is_ascii_whitespace()).to_ascii_lowercase();
        TYPES.contains(&kind.as_str()) || kind == "text/x-javascript" || kind == "text/x-ecmascript"
    };
    match (kind, language) {
        (Some(""), _) | (None, None | Some("")) => true,
        (Some(kind), _) => of(kind),
        (None, Some(language)) => of(&format!("text/{language}")),
    }
}

/// An attribute's text with its character references taken out, where it is certain what they stand for. A reference
/// without its semicolon is one only sometimes; then, and for names that are not known here, there is nothing.
fn exact(text: &str) -> Option<String> {
    for (at, _) in text.match_indices('&') {
        let rest = &text.as_bytes()[at + 1..];
        let is_reference = rest.first().is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'#');
        let len = rest.iter().take(32).take_while(|b| b.is_ascii_alphanumeric() || **b == b'#').count();
        if is_reference && rest.get(len) != Some(&b';') {
            return None;
        }
    }
    unescaped(text).map(std::borrow::Cow::into_owned)
}

/// A digest of text as HTML hands it on.
#[derive(Debug, Default)]
struct Normal {
    hasher: Hasher,
    after_return: bool,
}

impl Normal {
    fn update(&mut self, text: &str) {
        if !self.after_return && !text.bytes().any(|b| matches!(b, b'\r' | 0)) {
            self.hasher.update(text.as_bytes());
            return;
        }
        let mut out = Vec::with_capacity(text.len());
        for byte in text.bytes() {
            match byte {
                b'\n' if self.after_return => {}
                b'\r' => out.push(b'\n'),
                0 => out.extend_from_slice("\u{fffd}".as_bytes()),
                other => out.push(other),
            }
            self.after_return = byte == b'\r';
        }
        self.hasher.update(&out);
    }

    fn take(&mut self) -> Digest {
        self.hasher.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(html: &str, piece: usize) -> Vec<String> {
        let mut all = Vec::new();
        let mut feed = |take: &mut dyn FnMut(&[u8]) -> bool| {
            let _ = html.as_bytes().chunks(piece).all(take);
        };
        read(&mut feed, &mut |fact| {
            all.push(match fact {
                Fact::Address(kind, text) => format!("{} {text}", kind.name()),
                Fact::Mention(text) => format!("? {text}"),
                Fact::Script(digest) => format!("script {}", &digest.hex()[..8]),
                Fact::Handler(digest) => format!("handler {}", &digest.hex()[..8]),
                Fact::Style(digest) => format!("style {}", &digest.hex()[..8]),
                Fact::StyleAttribute(digest) => format!("style= {}", &digest.hex()[..8]),
                other => format!("{other:?}"),
            });
        });
        all
    }

    fn short(text: &str) -> String {
        Digest::of(text.as_bytes()).hex()[..8].to_owned()
    }

    #[test]
    fn addresses_are_told_by_what_browsers_take_them_for() {
        let html = r#"<!doctype html><base href="https://b.example/"><link rel="preload STYLESHEET" href=a.css>
            <link rel="preload" as=font href=f.woff2><link rel=preconnect href="//c.example"><link rel=canonical href=no>
            <link rel="shortcut icon" href=i.ico><link rel=manifest href=m.json><script src=s.js></script>
            <script type="application/ld+json">{"no": "https://no.example/"}</script>
            <img src=i.png srcset="i1.png, i2.png 2x"><picture><source srcset=p.webp></picture>
            <video poster=v.png><source src=v.mp4></video><iframe src=fr.html></iframe><object data=o.svg></object>
            <form action="https://form.example/"><a href="https://no.example/">x</a><a href="javascript:void(0)">y</a>
            <noscript><img src="n.png"></noscript><svg><image href="s.png"/></svg>
            <meta http-equiv=refresh content="5; url=https://next.example/"><a href="javascript:go()">z</a>"#;
        let expected = [
            "base https://b.example/",
            "style a.css",
            "font f.woff2",
            "hint //c.example",
            "image i.ico",
            "manifest m.json",
            "Runs",
            "script s.js",
            "image i.png",
            "image i1.png",
            "image i2.png",
            "image p.webp",
            "image v.png",
            "media v.mp4",
            "frame fr.html",
            "object o.svg",
            "form https://form.example/",
            "image n.png",
            "image s.png",
            "refresh https://next.example/",
            "CodeInAddress",
        ];
        assert_eq!(found(html, 7), expected);
        assert_eq!(found(html, 1 << 20), expected);
    }

    #[test]
    fn what_stands_in_a_page_is_named_as_a_browser_names_it() {
        let html = "<script>a\r\n<!-- <script> b</script> -->\rc\0</script><script type=module>é</script><script></script>\
            <style>p{}\r\n</style><p style=\"a:&quot;b&quot;\r\n\" ONCLICK='go(1 && 2)'>x</p><script type=text/plain>no</script>";
        for piece in [1, 3, 1 << 20] {
            assert_eq!(
                found(html, piece),
                [
                    format!("script {}", short("a\n<!-- <script> b</script> -->\nc\u{fffd}")),
                    format!("script {}", short("é")),
                    format!("style {}", short("p{}\n")),
                    format!("style= {}", short("a:\"b\"\n")),
                    format!("handler {}", short("go(1 && 2)")),
                ],
                "{piece}"
            );
        }
    }

    #[test]
    fn pages_in_attributes_are_read_and_doubts_are_told() {
        let html = "<iframe srcdoc=\"<script>in()</script>&lt;img src='https://i.example/'>\"></iframe>";
        assert_eq!(found(html, 99), [format!("script {}", short("in()")), "image https://i.example/".to_owned()]);
        for html in [
            "<p onclick='a(&auml;)'>",
            "<p onclick='a(&lt1)'>",
            "<svg><script>a &amp; b</script></svg>",
            "<svg><script><![CDATA[a]]></script></svg>",
        ] {
            assert_eq!(found(html, 99), ["Unsure"], "{html}");
        }
        assert_eq!(found("\u{feff}<script>a</script>", 99), [format!("script {}", short("a"))]);
        let mut deep = "<script>x</script>".to_owned();
        for _ in 0..10 {
            deep = format!("<iframe srcdoc=\"{}\"></iframe>", deep.replace('&', "&amp;").replace('"', "&quot;"));
        }
        assert_eq!(found(&deep, 1 << 20), ["Unsure"]);
    }

    #[test]
    fn a_hostile_page_ends_in_doubt_and_bounded_memory() {
        let html = "<div><p>".repeat(2_000_000);
        assert_eq!(found(&html, 65536), ["Unsure"]);
        let html = format!("<script>{}</script>", "x".repeat(64 << 20));
        assert_eq!(found(&html, 65536).len(), 1);
    }
}
